//! Which processes measure what: each figure a fresh process on a fresh
//! database, several times.

use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde::Deserialize;
use tokio::process::Command;

use crate::figures::{Figures, Of};
use crate::place::{At, Backend, Fresh};
use crate::{Fault, Options, Workload, machine, report};

/// One figure, or some that are measured together.
struct Plan {
    workload: Workload,
    variant: &'static str,
    /// Its processes, one after another on the same database.
    tasks: &'static [&'static str],
    events: bool,
}

const fn plan(workload: Workload, variant: &'static str, tasks: &'static [&'static str]) -> Plan {
    Plan { workload, variant, tasks, events: true }
}

const fn without_events(workload: Workload, variant: &'static str, tasks: &'static [&'static str]) -> Plan {
    Plan { workload, variant, tasks, events: false }
}

use Workload::{Limit, W1, W2, W3, W4, W5};

const PLANS: &[Plan] = &[
    plan(Limit, "", &["limit_seq"]),
    plan(Limit, "", &["limit_batch"]),
    plan(W1, "chain", &["one_run:chain"]),
    plan(W1, "chain", &["many_runs:chain"]),
    plan(W1, "loop", &["one_run:loop"]),
    plan(W1, "loop", &["many_runs:loop"]),
    without_events(W1, "chain, no events", &["one_run:chain"]),
    without_events(W1, "chain, no events", &["many_runs:chain"]),
    plan(W2, "", &["park"]),
    plan(W2, "", &["resume"]),
    plan(W2, "", &["resume_all"]),
    without_events(W2, "no events", &["park"]),
    without_events(W2, "no events", &["resume"]),
    without_events(W2, "no events", &["resume_all"]),
    plan(W3, "", &["growth"]),
    without_events(W3, "no events", &["growth"]),
    plan(W4, "", &["fan_out"]),
    without_events(W4, "no events", &["fan_out"]),
    plan(W5, "500 parked", &["fill:500", "pick:500"]),
    plan(W5, "20000 parked", &["fill:20000", "pick:20000"]),
    plan(W5, MILLION, &["fill:1000000", "pick:1000000"]),
];

/// Only where it is asked for.
const MILLION: &str = "1000000 parked";

/// How long a process may take, with a million threads and without.
const TAKES_MOST: [Duration; 2] = [Duration::from_secs(3600), Duration::from_secs(300)];

/// What a process says of one metric.
#[derive(Deserialize)]
struct Said {
    metric: String,
    value: f64,
}

/// Measures what the options ask for, and reports it.
pub(crate) async fn run(options: &Options) -> Result<(), Fault> {
    let mut notes = vec![machine::note()];
    let mut backends = Vec::new();
    for backend in [Backend::Sqlite, Backend::Postgres] {
        if options.backend.is_none_or(|only| only == backend) {
            backends.push(backend);
        }
    }
    if backends.contains(&Backend::Postgres) {
        notes.push(machine::postgres(server(options)?).await?);
    }
    let mut figures = Figures::default();
    let mut failed = 0;
    for backend in backends {
        // The chain beside its limit, so that both meet the machine alike.
        for group in [&[Limit, W1][..], &[W2], &[W3], &[W4], &[W5]] {
            let group: Vec<_> = group.iter().copied().filter(|workload| wanted(*workload, options)).collect();
            failed += Box::pin(measure(&group, backend, options, &mut figures)).await?;
        }
    }
    figures.derive();
    figures.0.sort_by_key(|figure| figure.of.workload);
    if options.json {
        report::table(&mut std::io::stderr().lock(), &notes, &figures)?;
        report::json(&mut std::io::stdout().lock(), &figures)?;
    } else {
        report::table(&mut std::io::stdout().lock(), &notes, &figures)?;
    }
    if failed == 0 { Ok(()) } else { Err(format!("{failed} figures could not be measured; see above").into()) }
}

/// The chain's ratio needs the limit.
fn wanted(workload: Workload, options: &Options) -> bool {
    let asked = |workload: &Workload| options.workload.is_empty() || options.workload.contains(workload);
    asked(&workload) || (workload == Limit && asked(&W1))
}

fn server(options: &Options) -> Result<&str, Fault> {
    options.postgres.as_deref().ok_or_else(|| "name a server with --postgres, or run `cargo xtask bench`".into())
}

/// Repeats the plans of some workloads as a whole, so that whatever else the
/// machine does meanwhile meets them alike. Says how many could not be measured.
async fn measure(workloads: &[Workload], backend: Backend, options: &Options, all: &mut Figures) -> Result<u32, Fault> {
    let mut failed = 0;
    for repetition in 0..options.repetitions {
        for plan in PLANS.iter().filter(|plan| workloads.contains(&plan.workload)) {
            let is_million = plan.variant == MILLION;
            if is_million && (!options.million || backend == Backend::Sqlite || repetition > 0) {
                continue;
            }
            let started = Instant::now();
            let place = match backend {
                Backend::Sqlite => Fresh::sqlite(options.data.as_deref())?,
                Backend::Postgres => Fresh::postgres(server(options)?).await?,
            };
            let measured = tasks(plan, &place.at, options).await;
            place.delete().await?;
            let ended = match measured {
                Ok(said) => {
                    let values: Vec<_> = said.iter().map(|said| format!("{}={:.3}", said.metric, said.value)).collect();
                    for Said { metric, value } in said {
                        let of = Of { workload: plan.workload, backend, variant: plan.variant, metric: metric.leak() };
                        all.add(of, value);
                    }
                    format!("took {:.1} s: {}", started.elapsed().as_secs_f64(), values.join(" "))
                }
                Err(fault) => {
                    failed += 1;
                    format!("FAILED: {fault}")
                }
            };
            let (workload, backend, tasks) = (plan.workload.name(), backend.name(), plan.tasks.join(" "));
            let (variant, round, of) = (plan.variant, repetition + 1, options.repetitions);
            let _gone = writeln!(
                std::io::stderr().lock(),
                "bench: {workload} {backend} {variant} {tasks} ({round} of {of}) {ended}"
            );
        }
    }
    Ok(failed)
}

/// Runs the processes of a plan.
async fn tasks(plan: &Plan, at: &At, options: &Options) -> Result<Vec<Said>, Fault> {
    let own = std::env::current_exe()?;
    let mut said = Vec::new();
    for task in plan.tasks {
        let mut command = Command::new(&own);
        command.args(["--task", task, "--at", &at.to_string(), "--connections", &options.connections.to_string()]);
        if !plan.events {
            command.arg("--without-events");
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
        let limit = if plan.variant == MILLION { TAKES_MOST[0] } else { TAKES_MOST[1] };
        let ended = tokio::time::timeout(limit, command.spawn()?.wait_with_output()).await;
        let output = ended.map_err(|_| format!("`{task}` did not end within {limit:?}"))??;
        if !output.status.success() {
            return Err(format!("`{task}` ended with {}", output.status).into());
        }
        for line in String::from_utf8(output.stdout)?.lines() {
            said.push(serde_json::from_str(line)?);
        }
    }
    Ok(said)
}
