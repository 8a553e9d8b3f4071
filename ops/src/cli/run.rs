//! `run`: starting threads.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use futures_util::{StreamExt as _, stream};
use serde_json::{Map, Value, json};

use super::args::{Run, Wait};
use super::client::{Client, ClientError, Problem, Started};
use super::each::{CONCURRENCY, Identities, Progress, Source};
use super::exit::Exit;
use super::failure::{CliError, chain};
use super::input;
use super::output::{Output, plain};
use super::threads;
use super::wait::{Scope, until_rest};

/// How many threads that failed are named one by one.
const FAILURES_NAMED: usize = 10;

/// Starts what the command line asks for.
pub(super) async fn run(client: &Client, output: Output, args: &Run) -> Result<Exit, CliError> {
    match (&args.each, &args.input) {
        (Some(file), _) => each(client, output, args, file).await,
        (None, Some(text)) => one(client, output, args, &input::json(text)?).await,
        (None, None) => Err(CliError::new(Exit::Usage, "give --input or --each")),
    }
}

async fn one(client: &Client, output: Output, args: &Run, input: &Value) -> Result<Exit, CliError> {
    let started = match client.start_as(&args.graph, input, args.thread_id.as_deref(), &order(args)).await {
        Ok(started) => started,
        // Started before: go on and show it, as after the first time.
        Err(ClientError::Refused(problem)) if is_there(&problem) => {
            json!({"thread_id": args.thread_id, "status": "exists"})
        }
        Err(error) => return Err(error.into()),
    };
    let id = thread_id(&started)?;
    if args.wait.detach {
        output.result(&started, || format!("started {}", plain(&id)));
        return Ok(Exit::Ok);
    }
    until_rest(client, Scope::Thread(&id), args.wait.limit(), &Progress::waiting(output)).await?;
    let thread = client.thread(&id).await?;
    output.result(&thread, || threads::describe(&thread));
    Ok(if thread["status"] == "failed" { Exit::Failure } else { Exit::Ok })
}

/// In which order the command line wants threads to be taken up.
fn order(args: &Run) -> Map<String, Value> {
    let priority = args.priority.as_deref().map(|text| text.parse::<i64>().map_or(json!(text), |number| json!(number)));
    let limit_key = args.limit_key.as_ref().map(|key| json!(key));
    let all = [("priority", priority), ("limit_key", limit_key)];
    all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// Whether the thread was started before, with this very input.
fn is_there(problem: &Problem) -> bool {
    problem.is("thread-exists") && problem.more.get("same_input") == Some(&Value::Bool(true))
}

fn thread_id(started: &Value) -> Result<String, CliError> {
    serde_json::from_value::<Started>(started.clone())
        .map(|started| started.thread_id)
        .map_err(|error| CliError::new(Exit::Failure, format!("the server's reply names no thread: {error}")))
}

/// What became of a row.
enum Outcome {
    Started,
    AlreadyThere,
    Failed(String),
    /// It would fail for every other row as well.
    Hopeless(ClientError),
}

impl Outcome {
    fn name(&self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::AlreadyThere => "already_there",
            Self::Failed(_) | Self::Hopeless(_) => "failed",
        }
    }
}

#[derive(Default)]
struct Tally {
    rows: u64,
    started: u64,
    already_there: u64,
    failed: u64,
    /// The threads of this file, with the place of their row.
    threads: HashMap<String, String>,
}

async fn each(client: &Client, output: Output, args: &Run, file: &Path) -> Result<Exit, CliError> {
    let key = args.key.as_deref().map(str::trim);
    let source = Source::read(file)?;
    if let Some(key) = key {
        source.require_column(key)?;
    }
    let mut tally = Tally::default();
    start_all(client, output, (&args.graph, key, &order(args)), &source, &mut tally).await?;
    let mut statuses = BTreeMap::new();
    if !args.wait.detach {
        statuses = rest(client, output, &args.graph, args.wait, &tally).await?;
    }
    let summary = json!({"summary": {
        "rows": tally.rows,
        "started": tally.started,
        "already_there": tally.already_there,
        "failed_rows": tally.failed,
        "threads": statuses,
    }});
    output.result(&summary, || describe(&tally, &statuses));
    let failed_threads = statuses.get("failed").is_some_and(|count| *count > 0);
    Ok(if tally.failed > 0 || failed_threads { Exit::SomeRowsFailed } else { Exit::Ok })
}

async fn start_all(
    client: &Client,
    output: Output,
    (graph, key, order): (&str, Option<&str>, &Map<String, Value>),
    source: &Source,
    tally: &mut Tally,
) -> Result<(), CliError> {
    let progress = Progress::rows(source.count(), output);
    let mut identities = Identities::new(graph, key);
    let items = source.rows().map(|row| {
        let place = row.place();
        let number = row.number;
        let named = row.content.and_then(|content| identities.next(&content).map(|id| (id, Value::Object(content))));
        (number, place, named)
    });
    let mut outcomes = stream::iter(items)
        .map(|(number, place, named)| async move {
            match named {
                Ok((id, input)) => {
                    let outcome = start(client, (graph, key, order), &id, &input).await;
                    (number, place, Some(id), outcome)
                }
                Err(what) => (number, place, None, Outcome::Failed(what)),
            }
        })
        .buffer_unordered(CONCURRENCY);
    while let Some((number, place, id, outcome)) = outcomes.next().await {
        tally.rows += 1;
        progress.row_done();
        let mut line = json!({"row": number, "thread_id": id, "outcome": outcome.name()});
        match outcome {
            Outcome::Started => tally.started += 1,
            Outcome::AlreadyThere => tally.already_there += 1,
            Outcome::Failed(what) => {
                tally.failed += 1;
                progress.note(&format!("{place}: {}", plain(&what)));
                line["error"] = json!(what);
                progress.detail(&line);
                continue;
            }
            Outcome::Hopeless(error) => {
                let (started, there) = (tally.started, tally.already_there);
                progress
                    .note(&format!("stopped after {started} started, {there} already there; run it again to go on"));
                return Err(error.into());
            }
        }
        if let Some(id) = id {
            tally.threads.insert(id, place);
        }
        progress.detail(&line);
    }
    Ok(())
}

async fn start(
    client: &Client,
    (graph, key, order): (&str, Option<&str>, &Map<String, Value>),
    id: &str,
    input: &Value,
) -> Outcome {
    match client.start_as(graph, input, Some(id), order).await {
        Ok(_) => Outcome::Started,
        Err(ClientError::Refused(problem)) if is_there(&problem) => Outcome::AlreadyThere,
        Err(ClientError::Refused(problem)) if problem.is("thread-exists") => {
            let key = key.map(|key| format!(" (key `{key}`: {})", input[key])).unwrap_or_default();
            Outcome::Failed(format!("thread {id}{key} was started before with other input"))
        }
        Err(ClientError::Refused(problem)) if matches!(problem.status, 400 | 409 | 413 | 422) => {
            Outcome::Failed(problem.reason())
        }
        Err(error @ ClientError::Unexpected { status: 500..=599, .. }) => Outcome::Failed(chain(&error)),
        Err(ClientError::Refused(problem)) if problem.status >= 500 => Outcome::Failed(problem.to_string()),
        Err(error) => Outcome::Hopeless(error),
    }
}

/// Waits, and counts the file's threads by status.
async fn rest(
    client: &Client,
    output: Output,
    graph: &str,
    wait: Wait,
    tally: &Tally,
) -> Result<BTreeMap<String, u64>, CliError> {
    let progress = Progress::waiting(output);
    until_rest(client, Scope::Graph(graph), wait.limit(), &progress).await?;
    let mut statuses = BTreeMap::new();
    let (mut found, mut named) = (0, 0);
    let mut cursor: Option<String> = None;
    loop {
        let page = client.threads(None, Some(graph), 500, cursor.as_deref()).await?;
        for thread in &page.items {
            let (Some(id), Some(status)) = (thread["thread_id"].as_str(), thread["status"].as_str()) else { continue };
            let Some(place) = tally.threads.get(id) else { continue };
            *statuses.entry(status.to_owned()).or_insert(0) += 1;
            found += 1;
            if status == "failed" && named < FAILURES_NAMED {
                named += 1;
                progress.note(&format!("{place}: its thread failed; see `countersign threads show {id}`"));
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() || found >= tally.threads.len() {
            return Ok(statuses);
        }
    }
}

fn describe(tally: &Tally, statuses: &BTreeMap<String, u64>) -> String {
    let mut text = format!(
        "{} rows: {} started, {} already there, {} failed",
        tally.rows, tally.started, tally.already_there, tally.failed
    );
    if !statuses.is_empty() {
        let counts: Vec<String> = statuses.iter().map(|(status, count)| format!("{count} {status}")).collect();
        text.push_str(&format!("\nthreads: {}", counts.join(", ")));
    }
    text
}
