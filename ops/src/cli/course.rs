//! Changing the course of a thread: its state, its past, waking and stopping.

use std::time::Duration;

use countersign_kernel::ids::{CheckpointId, FrameId, IdError, ThreadId};
use serde_json::{Map, Value, json};

use super::args::Wait;
use super::client::{Client, ClientError, Problem};
use super::each::Progress;
use super::exit::Exit;
use super::failure::CliError;
use super::input;
use super::output::{Output, plain, table};
use super::thread_args::{EditState, History, Replay, Resume, ThreadState};
use super::threads::{describe, scalar, values};
use super::wait::{Scope, until_rest};
use super::{pages, points};

/// The pauses between looks at a thread that is about to stop, in milliseconds.
const STOP_PAUSES_MS: [u64; 8] = [20, 20, 40, 80, 160, 320, 640, 1_000];

/// Checked here too: what is no id would be dropped from the address, or lead
/// elsewhere.
pub(super) fn id<T>(parse: fn(String) -> Result<T, IdError>, text: &str) -> Result<T, CliError> {
    parse(text.to_owned()).map_err(|error| CliError::because(Exit::NotFound, &error))
}

/// `threads state`.
pub(super) async fn state(client: &Client, output: Output, args: &ThreadState) -> Result<Exit, CliError> {
    match args {
        ThreadState::Get { thread, at, frame } => {
            let thread = id(ThreadId::parse, thread)?;
            let shown = match (at, frame) {
                (Some(at), _) => {
                    let at = id(CheckpointId::parse, at)?;
                    client.checkpoint(thread.as_str(), at.as_str()).await?
                }
                (None, None) => part(&client.thread(thread.as_str()).await?, &thread),
                (None, Some(frame)) => {
                    let frame = id(FrameId::parse, frame)?;
                    let found = client.thread(thread.as_str()).await?;
                    let frames = found["frames"].as_array().map(Vec::as_slice).unwrap_or_default();
                    let inside = frames.iter().find(|inside| inside["id"] == frame.as_str()).ok_or_else(|| {
                        let known: Vec<String> = frames.iter().map(|inside| scalar(&inside["id"])).collect();
                        let known = if known.is_empty() { "it has none".to_owned() } else { known.join(", ") };
                        let what = format!("the thread has no unfinished sub-graph `{frame}`; known: {known}");
                        CliError::new(Exit::NotFound, what)
                    })?;
                    part(inside, &thread)
                }
            };
            output.result(&shown, || describe_state(&shown));
            Ok(Exit::Ok)
        }
        ThreadState::Edit(args) => edit(client, output, args).await,
    }
}

/// What there is to see of a state, live.
fn part(of: &Value, thread: &ThreadId) -> Value {
    json!({
        "thread_id": thread.as_str(), "checkpoint_id": of["checkpoint_id"], "values": of["values"], "next": of["next"],
    })
}

fn describe_state(shown: &Value) -> String {
    let mut lines = vec![format!("checkpoint  {}", scalar(&shown["checkpoint_id"]))];
    if !list(&shown["next"]).is_empty() {
        lines.push(format!("next        {}", list(&shown["next"])));
    }
    let steps = shown["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !steps.is_empty() {
        lines.push(format!("done since  {}", counted(steps).join(", ")));
    }
    lines.extend(values(&shown["values"], ""));
    lines.join("\n")
}

fn list(value: &Value) -> String {
    value.as_array().into_iter().flatten().map(scalar).collect::<Vec<_>>().join(", ")
}

fn step(step: &Value) -> String {
    format!("{} at {}", scalar(&step["name"]), scalar(&step["address"]))
}

/// Steps, each place once: one that was done on several lines of the history
/// says how often.
fn counted(steps: &[Value]) -> Vec<String> {
    let mut counted: Vec<(String, usize)> = Vec::new();
    for step in steps.iter().map(step) {
        match counted.iter_mut().find(|(known, _)| *known == step) {
            Some((_, times)) => *times += 1,
            None => counted.push((step, 1)),
        }
    }
    let say = |(step, times)| if times == 1 { step } else { format!("{step} (done {times} times)") };
    counted.into_iter().map(say).collect()
}

async fn edit(client: &Client, output: Output, args: &EditState) -> Result<Exit, CliError> {
    let thread = id(ThreadId::parse, &args.thread)?;
    let frame = args.frame.as_deref().map(|frame| id(FrameId::parse, frame)).transpose()?;
    let [at, seen] = [&args.at, &args.seen].map(|at| at.as_deref().map(|at| id(CheckpointId::parse, at)).transpose());
    let (at, seen) = (at?, seen?);
    let values = args.values.as_deref().map(object).transpose()?;
    let body = json!({
        "values": values, "as_node": args.as_node, "checkpoint_id": seen, "at": at, "frame": frame,
        "re_execute": args.re_execute,
    });
    let said = client.edit_state(thread.as_str(), &without_nulls(body)).await;
    let edited = match said {
        Err(ClientError::Refused(problem)) if problem.is("thread-changed") => {
            return Err(changed(client, &thread, frame.as_ref(), *problem).await);
        }
        said => confirmed(said)?,
    };
    output.result(&edited, || {
        let due = list(&edited["next"]);
        let mut text =
            format!("checkpoint {}; the thread is {}", scalar(&edited["checkpoint_id"]), scalar(&edited["status"]));
        if !due.is_empty() {
            text.push_str(&format!("\ndue: {due}\ncountersign threads resume {thread} --continue"));
        }
        text
    });
    Ok(Exit::Ok)
}

/// The refusal of an edit of what is no longer the newest checkpoint, with the
/// one that is.
async fn changed(client: &Client, thread: &ThreadId, frame: Option<&FrameId>, problem: Problem) -> CliError {
    let shown = client.thread(thread.as_str()).await.unwrap_or_default();
    let inside = |frame: &FrameId| shown["frames"].as_array()?.iter().find(|inside| inside["id"] == frame.as_str());
    let newest = frame.map_or(Some(&shown), inside).map(|of| scalar(&of["checkpoint_id"])).unwrap_or_default();
    let newest = if newest.is_empty() { String::new() } else { format!("; its newest checkpoint is {newest} now") };
    let frame = frame.map(|frame| format!(" --frame {frame}")).unwrap_or_default();
    let message = format!("{problem}{newest}; see countersign threads history {thread}{frame}");
    CliError { message, ..CliError::from(ClientError::Refused(Box::new(problem))) }
}

/// An object of keys, given as JSON, as a file's name, or as `-`.
fn object(text: &str) -> Result<Map<String, Value>, CliError> {
    match input::json(text)? {
        Value::Object(members) => Ok(members),
        _ => Err(CliError::new(Exit::Usage, "write an object of keys, as in {\"amount\": 5}")),
    }
}

fn without_nulls(body: Value) -> Value {
    match body {
        Value::Object(members) => members.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        other => other,
    }
}

/// `threads history`.
pub(super) async fn history(client: &Client, output: Output, args: &History) -> Result<Exit, CliError> {
    let thread = id(ThreadId::parse, &args.thread)?;
    let frame = args.frame.as_deref().map(|frame| id(FrameId::parse, frame)).transpose()?;
    let frame = frame.as_ref().map(FrameId::as_str);
    let page = async |limit, cursor: Option<&str>| client.history(thread.as_str(), frame, limit, cursor).await;
    let (items, more) = pages::first(args.limit, page).await?;
    if output.is_json() {
        items.iter().for_each(|item| output.detail(item));
    } else {
        let rows: Vec<Vec<String>> = items.iter().map(row).collect();
        output.result(&Value::Null, || table(&["CHECKPOINT", "STEP", "SOURCE", "NEXT", "MADE", ""], &rows));
    }
    if more {
        output.note(&format!("there are more than {}; see --limit", args.limit));
    }
    Ok(Exit::Ok)
}

fn row(item: &Value) -> Vec<String> {
    let left = if item["current"] == false { "left" } else { "" };
    let members = [&item["checkpoint_id"], &item["superstep"], &item["source"]].map(scalar);
    let rest = [list(&item["next"]), scalar(&item["created_at"]), left.to_owned()];
    members.into_iter().chain(rest).collect()
}

/// `threads replay`.
pub(super) async fn replay(client: &Client, output: Output, args: &Replay) -> Result<Exit, CliError> {
    let thread = id(ThreadId::parse, &args.thread)?;
    let checkpoint = id(CheckpointId::parse, &args.checkpoint)?;
    let input = args.input.as_deref().map(input::json).transpose()?;
    let body = json!({
        "checkpoint_id": checkpoint.as_str(), "input": input, "re_execute": args.re_execute,
        "continue": args.r#continue, "recursion_limit": args.recursion_limit,
    });
    let started = confirmed(client.run_again(thread.as_str(), &without_nulls(body)).await)?;
    rest(client, output, &thread, args.wait, &started).await
}

/// What the server said, unless steps would be done again.
fn confirmed(said: Result<Value, ClientError>) -> Result<Value, CliError> {
    match said {
        Err(ClientError::Refused(problem)) if problem.is("re-executes") => Err(done_again(*problem)),
        said => Ok(said?),
    }
}

/// The steps that would be done again, and how to say that they may.
fn done_again(problem: Problem) -> CliError {
    let steps = problem.more.get("steps").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let message = format!(
        "these steps would be done again: {}; nothing was changed; repeat it with --re-execute",
        counted(steps).join(", ")
    );
    CliError { message, ..CliError::from(ClientError::Refused(Box::new(problem))) }
}

/// `threads resume`.
pub(super) async fn resume(client: &Client, output: Output, args: &Resume) -> Result<Exit, CliError> {
    let thread = id(ThreadId::parse, &args.thread)?;
    let sends: Vec<Value> = args.send.iter().map(|(to, argument)| json!({"to": to, "argument": argument})).collect();
    let body = json!({
        "answers": args.answers.as_deref().map(object).transpose()?.unwrap_or_default(),
        "update": args.update.as_deref().map(object).transpose()?.unwrap_or_default(),
        "goto": args.goto, "send": sends,
        "continue": args.r#continue, "retry": args.retry, "resume_all": args.resume_all,
        "recursion_limit": args.recursion_limit, "re_execute": args.re_execute,
    });
    let accepted = client.resume(thread.as_str(), &without_nulls(body)).await?;
    rest(client, output, &thread, args.wait, &accepted).await
}

/// `threads pause`.
pub(super) async fn pause(client: &Client, output: Output, thread: &str, now: bool) -> Result<Exit, CliError> {
    let thread = id(ThreadId::parse, thread)?;
    let before = client.thread(thread.as_str()).await?;
    let asked = client.pause(thread.as_str(), now).await?;
    let moving = matches!(before["status"].as_str(), Some("queued" | "running"));
    let what = if points::stop(&before).is_some() {
        "the thread is paused already"
    } else if !moving && !output.is_json() && comes_to_a_stop(client, &thread).await? {
        "the thread is paused"
    } else if now {
        "a pause is asked for: the thread stops at once, and what it is doing runs again later"
    } else {
        "a pause is asked for: the thread stops at the end of its superstep"
    };
    output.result(&asked, || format!("{what}; to let it go on:\n{}", points::release(thread.as_str())));
    Ok(Exit::Ok)
}

/// Whether a thread at rest that was asked to pause has done so: a worker takes
/// it up for that, which takes a moment.
async fn comes_to_a_stop(client: &Client, thread: &ThreadId) -> Result<bool, CliError> {
    for pause_ms in STOP_PAUSES_MS {
        if points::stop(&client.thread(thread.as_str()).await?).is_some() {
            return Ok(true);
        }
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
    }
    Ok(points::stop(&client.thread(thread.as_str()).await?).is_some())
}

/// Waits until the thread rests and shows it, unless told not to.
async fn rest(
    client: &Client,
    output: Output,
    thread: &ThreadId,
    wait: Wait,
    accepted: &Value,
) -> Result<Exit, CliError> {
    if wait.detach {
        output.result(accepted, || format!("accepted: {}", plain(&scalar(&accepted["status"]))));
        return Ok(Exit::Ok);
    }
    until_rest(client, Scope::Thread(thread.as_str()), wait.limit(), &Progress::waiting(output)).await?;
    let shown = client.thread(thread.as_str()).await?;
    output.result(&shown, || describe(&shown));
    Ok(if shown["status"] == "failed" { Exit::Failure } else { Exit::Ok })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_shown_key_by_key() {
        let shown = json!({
            "checkpoint_id": "c-1", "next": ["a", "b"], "values": {"n": 1, "t\u{1b}": "x"},
            "steps": [{"name": "pay", "address": "g/pay@1"}],
        });
        let text = describe_state(&shown);
        for part in ["c-1", "a, b", "pay at g/pay@1", "  n: 1", "  t : \"x\""] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn what_would_be_done_again_is_named() {
        let steps = json!([{"name": "pay", "address": "expense/pay@1"}]);
        let problem = Problem {
            r#type: "urn:countersign:problem:re-executes".into(),
            status: 409,
            more: Map::from_iter([("steps".to_owned(), steps)]),
            ..Problem::default()
        };
        let error = done_again(problem);
        assert_eq!(error.exit, Exit::Refused);
        assert!(error.message.contains("pay at expense/pay@1") && error.message.contains("--re-execute"), "{error}");
        assert!(error.problem.is_some());
    }

    #[test]
    fn steps_of_one_place_are_one_with_their_count() {
        let step = |name: &str| json!({"name": name, "address": "g/pay@1"});
        assert_eq!(counted(&[step("a"), step("b"), step("a")]), ["a at g/pay@1 (done 2 times)", "b at g/pay@1"]);
    }

    #[test]
    fn checkpoints_of_a_line_that_was_left_say_so() {
        let item = json!({
            "checkpoint_id": "c", "superstep": 2, "source": "loop", "next": ["a"], "created_at": "2026", "current": false,
        });
        assert_eq!(row(&item), ["c", "2", "loop", "a", "2026", "left"]);
        assert_eq!(row(&json!({"current": true}))[5], "");
    }
}
