//! How everything stands, and the flows this server knows.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use countersign_kernel::time::Timestamp;
use countersign_worker::queue::JobKind;
use countersign_worker::store::overview::{AGES, DueWork, GraphOverview, OpenPoints};
use countersign_worker::store::workers::WorkerView;
use countersign_worker::tally::Count;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::auth::{Caller, Scope};
use super::extract::ApiQuery;
use super::problem::Problem;
use super::shapes::rfc3339;
use crate::overview::{Fresh, Look, warnings};
use crate::state::AppState;

const THREAD_STATUSES: [&str; 7] = ["queued", "running", "parked", "held", "succeeded", "failed", "cancelled"];
const DELIVERY_STATUSES: [&str; 5] = ["pending", "sending", "sent", "failed", "skipped"];

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OverviewQuery {
    /// Whether everything is counted anew, however long that takes. Otherwise,
    /// where it takes longer than 25 ms, the numbers may be those of an earlier
    /// request: at most a twentieth of the time is spent on counting.
    #[serde(default)]
    fresh: bool,
}

/// How everything stands. With a token for some graphs: how these stand.
#[derive(Serialize, ToSchema)]
pub(super) struct OverviewShape {
    /// When this was counted.
    at: String,
    /// What is wrong, the gravest first.
    warnings: Vec<WarningShape>,
    /// Threads by status.
    threads: BTreeMap<String, u64>,
    /// Messages by status. With a token for some graphs without those that are
    /// sent or skipped.
    deliveries: BTreeMap<String, u64>,
    /// Requests that wait for people.
    requests_open: u64,
    /// Since when the oldest of them waits.
    oldest_open: Option<String>,
    /// The same, each in the first span that it is younger than.
    requests_by_age: Vec<AgeShape>,
    /// Open points by kind; those of requests among them.
    points: BTreeMap<String, u64>,
    /// Work that gave up.
    dead_letters: u64,
    /// The newest of that, at most ten of each graph.
    newest_dead_letters: Vec<DeadLetterShape>,
    /// What is to be done, by kind.
    queues: Vec<QueueShape>,
    /// Messages to people that are not out, by channel.
    channels: Vec<ChannelShape>,
    /// The same by graph.
    graphs: BTreeMap<String, GraphCounts>,
    /// What all processes together did within the last minute; null with a token
    /// for some graphs.
    last_minute: Option<BTreeMap<&'static str, u64>>,
    /// The processes, also those that were lost within the last hour; null with
    /// a token for some graphs.
    workers: Option<Vec<WorkerShape>>,
}

/// Something that is wrong.
#[derive(Serialize, ToSchema)]
struct WarningShape {
    /// held, delivery, lost_worker, unserved, late, queue or failed.
    kind: &'static str,
    /// In a line.
    title: String,
    /// What to do.
    advice: String,
    /// Whom or what it concerns; not all of it if it is much.
    affected: Vec<AffectedShape>,
}

/// Something that a warning is about.
#[derive(Serialize, ToSchema)]
struct AffectedShape {
    /// The thread, if it is one.
    thread_id: Option<String>,
    /// The point, if a message about one is meant.
    interrupt_id: Option<String>,
    /// What is to be said of it.
    detail: String,
}

/// How many requests are of an age.
#[derive(Serialize, ToSchema)]
struct AgeShape {
    /// They are younger than so many hours, and not younger than those of the
    /// entry before; null for all that are older.
    younger_than_hours: Option<u64>,
    count: u64,
}

/// Work that gave up.
#[derive(Serialize, ToSchema)]
struct DeadLetterShape {
    thread_id: String,
    graph: String,
    /// advance or deliver.
    kind: String,
    /// The delivery, if it is one.
    delivery_id: Option<String>,
    reason: String,
    attempts: u64,
    died_at: String,
}

/// What is to be done of one kind.
#[derive(Serialize, ToSchema)]
struct QueueShape {
    /// advance or deliver.
    kind: &'static str,
    /// Work that is due and that nobody has begun, as the store knows it.
    due: u64,
    /// Threads behind a pause or a limit, which are not due for now.
    held_back: u64,
    /// Since when the oldest is due.
    oldest_due: Option<String>,
    /// How long that is.
    oldest_due_seconds: f64,
    /// Messages in the queue that nobody fetched, those for later included; null
    /// with a token for some graphs.
    jobs_waiting: Option<u64>,
    /// Since when the oldest of these that is due waits. With Redis: how far the
    /// relay lags behind.
    oldest_job_waiting: Option<String>,
    /// Messages that were fetched, or relayed to Redis, and not dealt with yet.
    jobs_fetched: Option<u64>,
    /// Since when the oldest of these is on its way.
    oldest_job_fetched: Option<String>,
}

/// Messages to people through one channel.
#[derive(Serialize, ToSchema)]
struct ChannelShape {
    channel: String,
    graph: String,
    /// Not tried yet.
    pending: u64,
    /// Tried, and to be tried again.
    retrying: u64,
    /// Given up.
    failed: u64,
    /// The latest failure.
    last_failure: Option<AffectedShape>,
}

/// How the threads of one graph stand.
#[derive(Serialize, ToSchema)]
struct GraphCounts {
    threads: BTreeMap<String, u64>,
    requests_open: u64,
    oldest_open: Option<String>,
    dead_letters: u64,
}

/// A process.
#[derive(Serialize, ToSchema)]
struct WorkerShape {
    name: String,
    host: String,
    pid: u32,
    version: String,
    /// alive or lost.
    state: &'static str,
    /// Whether it serves API and pages.
    pages: bool,
    /// The kinds of jobs that it does.
    queues: Vec<&'static str>,
    /// The graphs that it runs; null for all.
    graphs: Option<Vec<String>>,
    started_at: String,
    seen_at: String,
    /// Threads and messages under way.
    running: u64,
    /// Those that wait in its memory.
    waiting: u64,
    /// What it has done since it started.
    done: BTreeMap<String, u64>,
    /// Within its last minute.
    last_minute: BTreeMap<String, u64>,
}

/// How everything stands: what is wrong, what waits, what the processes do.
#[utoipa::path(
    get, path = "/overview", operation_id = "overview", params(OverviewQuery),
    responses((status = 200, body = OverviewShape), (status = 400, body = Problem), (status = 401, body = Problem))
)]
pub(super) async fn show(
    State(state): State<AppState>,
    caller: Caller,
    ApiQuery(query): ApiQuery<OverviewQuery>,
) -> Result<Json<OverviewShape>, Problem> {
    caller.require(Scope::ThreadsRead)?;
    let fresh = if query.fresh { Fresh::AtAnyCost } else { Fresh::Now };
    let look = state.lookout.look(&state.engine, fresh).await?;
    Ok(Json(shape(&look, caller.graphs())))
}

/// All names with their numbers, and others that are known.
fn all(names: &[&str], counted: impl IntoIterator<Item = (String, u64)>) -> BTreeMap<String, u64> {
    let mut all: BTreeMap<String, u64> = names.iter().map(|name| ((*name).to_owned(), 0)).collect();
    all.extend(counted);
    all
}

fn shape(look: &Look, graphs: Option<&[String]>) -> OverviewShape {
    let overview = &look.overview;
    let of = || overview.of(graphs);
    let counts = overview.counts(graphs);
    let mut points: BTreeMap<String, u64> = BTreeMap::new();
    of().flat_map(|(_, graph)| &graph.points).for_each(|(kind, open)| {
        *points.entry(kind.clone()).or_default() += open.count;
    });
    let deliveries: &[&str] = if graphs.is_some() { &["pending", "failed"] } else { &DELIVERY_STATUSES };
    let warnings = warnings(overview, graphs, look.at).into_iter().map(|warning| WarningShape {
        kind: warning.kind,
        title: warning.title,
        advice: warning.advice,
        affected: warning
            .affected
            .into_iter()
            .map(|affected| AffectedShape {
                thread_id: affected.thread.map(Into::into),
                interrupt_id: affected.interrupt.map(Into::into),
                detail: affected.detail,
            })
            .collect(),
    });
    let requests = of().filter_map(|(_, graph)| graph.requests()).reduce(OpenPoints::and);
    OverviewShape {
        at: rfc3339(look.at),
        warnings: warnings.collect(),
        threads: all(&THREAD_STATUSES, counts.threads),
        deliveries: all(deliveries, counts.deliveries),
        requests_open: counts.requests_open,
        oldest_open: counts.oldest_open_request.map(rfc3339),
        requests_by_age: by_age(requests),
        points,
        dead_letters: counts.dead_letters,
        newest_dead_letters: dead_letters(of()),
        queues: JobKind::ALL.map(|kind| queue(look, graphs, kind)).into(),
        channels: of().flat_map(|(name, graph)| channels(name, graph)).collect(),
        graphs: of().map(|(name, graph)| (name.to_owned(), graph_counts(graph))).collect(),
        last_minute: graphs.is_none().then(|| {
            let alive = || overview.workers.iter().filter(|worker| !worker.is_lost(look.at));
            let sum = |count| alive().map(|worker| worker.last_minute(count)).sum();
            Count::ALL.into_iter().map(|count| (count.name(), sum(count))).collect()
        }),
        workers: graphs
            .is_none()
            .then(|| overview.workers.iter().map(|worker| worker_shape(worker, look.at)).collect()),
    }
}

fn by_age(requests: Option<OpenPoints>) -> Vec<AgeShape> {
    let younger = requests.map_or([0; AGES.len()], |requests| requests.younger);
    let mut counted = 0;
    let mut ages: Vec<AgeShape> = Vec::new();
    for (age, count) in AGES.into_iter().zip(younger) {
        let hours = Some(age.as_secs() / 3_600);
        ages.push(AgeShape { younger_than_hours: hours, count: count.saturating_sub(counted) });
        counted = count;
    }
    let all = requests.map_or(0, |requests| requests.count);
    ages.push(AgeShape { younger_than_hours: None, count: all.saturating_sub(counted) });
    ages
}

fn dead_letters<'a>(graphs: impl Iterator<Item = (&'a str, &'a GraphOverview)>) -> Vec<DeadLetterShape> {
    let mut letters: Vec<(Timestamp, DeadLetterShape)> = Vec::new();
    for (name, graph) in graphs {
        letters.extend(graph.dead_letters.iter().map(|letter| {
            let shape = DeadLetterShape {
                thread_id: letter.thread.to_string(),
                graph: name.to_owned(),
                kind: letter.kind.clone(),
                delivery_id: letter.subject.clone(),
                reason: letter.reason.clone(),
                attempts: letter.attempts,
                died_at: rfc3339(letter.died_at),
            };
            (letter.died_at, shape)
        }));
    }
    letters.sort_by(|(a, _), (b, _)| b.cmp(a));
    letters.into_iter().map(|(_, letter)| letter).collect()
}

fn queue(look: &Look, graphs: Option<&[String]>, kind: JobKind) -> QueueShape {
    let due = look.overview.of(graphs).filter_map(|(_, graph)| graph.due.get(&kind).copied());
    let due = due.reduce(|a, b| DueWork { count: a.count + b.count, since: a.since.min(b.since) });
    let jobs = look.overview.queues.iter().find(|queue| queue.kind == kind && graphs.is_none());
    QueueShape {
        kind: kind.name(),
        due: due.map_or(0, |due| due.count),
        held_back: match kind {
            JobKind::Advance => look.overview.of(graphs).map(|(_, graph)| graph.held_back).sum(),
            _ => 0,
        },
        oldest_due: due.map(|due| rfc3339(due.since)),
        oldest_due_seconds: due.map_or(0.0, |due| look.at.since(due.since).as_secs_f64()),
        jobs_waiting: jobs.map(|jobs| jobs.waiting),
        oldest_job_waiting: jobs.and_then(|jobs| jobs.oldest_waiting_run_at).filter(|at| *at <= look.at).map(rfc3339),
        jobs_fetched: jobs.map(|jobs| jobs.fetched),
        oldest_job_fetched: jobs.and_then(|jobs| jobs.oldest_fetched_at).map(rfc3339),
    }
}

fn channels(name: &str, graph: &GraphOverview) -> Vec<ChannelShape> {
    let channels = graph.channels.iter().map(|(channel, stands)| ChannelShape {
        channel: channel.clone(),
        graph: name.to_owned(),
        pending: stands.pending,
        retrying: stands.retrying,
        failed: stands.failed,
        last_failure: stands.last_failure.as_ref().map(|failure| AffectedShape {
            thread_id: Some(failure.thread.to_string()),
            interrupt_id: Some(failure.interrupt.to_string()),
            detail: failure.error.clone(),
        }),
    });
    channels.collect()
}

fn graph_counts(graph: &GraphOverview) -> GraphCounts {
    let requests = graph.requests();
    GraphCounts {
        threads: all(&THREAD_STATUSES, graph.threads.clone()),
        requests_open: requests.map_or(0, |requests| requests.count),
        oldest_open: requests.map(|requests| rfc3339(requests.oldest)),
        dead_letters: graph.dead,
    }
}

fn worker_shape(worker: &WorkerView, now: Timestamp) -> WorkerShape {
    let said = worker.beat.clone();
    WorkerShape {
        name: said.name,
        host: said.host,
        pid: said.pid,
        version: said.version,
        state: if worker.is_lost(now) { "lost" } else { "alive" },
        pages: said.pages,
        queues: said.serves.kinds.iter().map(|kind| kind.name()).collect(),
        graphs: said.serves.graphs,
        started_at: rfc3339(said.started_at),
        seen_at: rfc3339(worker.seen_at),
        running: said.running,
        waiting: said.waiting,
        done: said.done,
        last_minute: said.last_minute,
    }
}

/// A flow.
#[derive(Serialize, ToSchema)]
pub(super) struct GraphShape {
    name: String,
    version: u32,
    fingerprint: String,
    nodes: Vec<String>,
    warnings: Vec<String>,
}

/// The flows that this server can run.
#[utoipa::path(get, path = "/graphs", responses((status = 200, body = [GraphShape]), (status = 401, body = Problem)))]
pub(super) async fn graphs(State(state): State<AppState>, caller: Caller) -> Result<Json<Vec<GraphShape>>, Problem> {
    caller.require(Scope::ThreadsRead)?;
    let graphs = state
        .engine
        .graphs()
        .filter(|graph| caller.sees(graph.name()))
        .map(|graph| GraphShape {
            name: graph.name().to_owned(),
            version: graph.version(),
            fingerprint: graph.fingerprint().to_owned(),
            nodes: graph.nodes().map(str::to_owned).collect(),
            warnings: graph.warnings().iter().map(ToString::to_string).collect(),
        })
        .collect();
    Ok(Json(graphs))
}
