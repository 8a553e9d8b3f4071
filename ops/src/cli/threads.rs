//! `threads`: looking at them.

use countersign_kernel::ids::ThreadId;
use serde_json::Value;

use super::client::{Client, ThreadSummary};
use super::course;
use super::exit::Exit;
use super::failure::CliError;
use super::output::{Output, plain, table};
use super::thread_args::{ListThreads, Threads};
use super::watch;
use super::{pages, points};

/// Shows what the command line asks for.
pub(super) async fn run(client: &Client, output: Output, args: &Threads) -> Result<Exit, CliError> {
    match args {
        Threads::List(args) => list(client, output, args).await,
        Threads::Show { thread } => {
            let id = course::id(ThreadId::parse, thread)?;
            let thread = client.thread(id.as_str()).await?;
            output.result(&thread, || describe(&thread));
            Ok(Exit::Ok)
        }
        Threads::State(args) => course::state(client, output, args).await,
        Threads::History(args) => course::history(client, output, args).await,
        Threads::Replay(args) => course::replay(client, output, args).await,
        Threads::Resume(args) => course::resume(client, output, args).await,
        Threads::Watch(args) => watch::run(client, output, args).await,
        Threads::Pause { thread, now } => course::pause(client, output, thread, *now).await,
    }
}

async fn list(client: &Client, output: Output, args: &ListThreads) -> Result<Exit, CliError> {
    let (status, graph) = (args.status.as_deref(), args.graph.as_deref());
    let page = async |limit, cursor: Option<&str>| client.threads(status, graph, limit, cursor).await;
    let (items, more) = pages::first(args.limit, page).await?;
    if output.is_json() {
        items.iter().for_each(|item| output.detail(item));
    } else {
        let rows: Vec<Vec<String>> = items.iter().map(row).collect();
        output.result(&Value::Null, || match rows.as_slice() {
            [] => "no threads".to_owned(),
            rows => table(&["THREAD", "GRAPH", "STATUS", "OPEN", "UPDATED"], rows),
        });
    }
    if more {
        output.note(&format!("there are more than {}; see --limit, --status and --graph", args.limit));
    }
    Ok(Exit::Ok)
}

fn row(item: &Value) -> Vec<String> {
    match serde_json::from_value::<ThreadSummary>(item.clone()) {
        Ok(thread) => {
            let status = match thread.held_reason {
                Some(reason) => format!("{} ({})", thread.status, plain(&reason)),
                None => thread.status,
            };
            let updated = scalar(&thread.updated_at);
            vec![plain(&thread.thread_id), plain(&thread.graph), status, thread.open.to_string(), updated]
        }
        // A server of another version: show what there is.
        Err(_) => vec![plain(&item.to_string())],
    }
}

/// A text without quotes; nothing for null.
pub(super) fn scalar(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => plain(text),
        other => other.to_string(),
    }
}

/// A thread for people: where it stands, its state, what it waits for and how
/// to answer.
pub(super) fn describe(thread: &Value) -> String {
    let mut lines = Vec::new();
    let mut field = |label: &str, value: String| {
        if !value.is_empty() {
            lines.push(format!("{label:<8} {value}"));
        }
    };
    field("thread", scalar(&thread["thread_id"]));
    field("graph", format!("{} {}", scalar(&thread["graph"]), scalar(&thread["graph_version"])).trim().to_owned());
    field("status", scalar(&thread["status"]));
    field("held", scalar(&thread["held_reason"]));
    field(
        "waits",
        match scalar(&thread["held_back"]) {
            why if why.is_empty() => why,
            why => format!("held back: {why}"),
        },
    );
    field("created", scalar(&thread["created_at"]));
    field("updated", scalar(&thread["updated_at"]));
    let next: Vec<String> = thread["next"].as_array().into_iter().flatten().map(scalar).collect();
    field("next", next.join(", "));
    let errors = thread["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    errors.iter().for_each(|error| field("error", error_text(error)));
    // What finished tasks have written is part of it, as far as the server says.
    let state = thread.get("values").unwrap_or(&thread["state"]);
    lines.extend(values(state, ""));
    for frame in thread["frames"].as_array().into_iter().flatten() {
        describe_frame(frame, &mut lines);
    }
    let interrupts = thread["interrupts"].as_array().map(Vec::as_slice).unwrap_or_default();
    let open: Vec<&Value> = interrupts.iter().filter(|point| points::is_open(point)).collect();
    if !open.is_empty() {
        lines.push("waits for".to_owned());
    }
    let id = scalar(&thread["thread_id"]);
    open.iter().for_each(|point| describe_point(point, &id, &mut lines));
    if open.iter().any(|point| points::is_stop(point)) && !open.iter().all(|point| points::is_stop(point)) {
        lines.push("the thread is paused: answers are kept, and run once it goes on".to_owned());
    }
    lines.join("\n")
}

/// A state, key by key.
pub(super) fn values(state: &Value, margin: &str) -> Vec<String> {
    let Some(state) = state.as_object().filter(|state| !state.is_empty()) else { return Vec::new() };
    let keys = state.iter().map(|(key, value)| format!("{margin}  {}: {value}", plain(key)));
    std::iter::once(format!("{margin}state")).chain(keys).collect()
}

fn describe_frame(frame: &Value, lines: &mut Vec<String>) {
    lines.push(format!("inside {}  frame {}", scalar(&frame["address"]), scalar(&frame["id"])));
    let next: Vec<String> = frame["next"].as_array().into_iter().flatten().map(scalar).collect();
    if !next.is_empty() {
        lines.push(format!("  next {}", next.join(", ")));
    }
    lines.extend(values(&frame["values"], "  "));
}

fn error_text(error: &Value) -> String {
    match error.get("message") {
        Some(message) => match scalar(&error["task"]) {
            task if task.is_empty() => scalar(message),
            task => format!("{task}: {}", scalar(message)),
        },
        None => scalar(error),
    }
}

fn describe_point(point: &Value, thread: &str, lines: &mut Vec<String>) {
    let payload = &point["payload"];
    let id = scalar(&point["id"]);
    lines.push(format!("  {id}  {}  {}", scalar(&point["kind"]), scalar(&point["address"])));
    let title = scalar(&payload["title"]);
    if !title.is_empty() {
        lines.push(format!("    {title}"));
    } else if !payload.is_null() {
        lines.push(format!("    {}", plain(&payload.to_string())));
    }
    if let (Some(have), Some(need)) = (point["have"].as_u64(), point["need"].as_u64())
        && need > 1
    {
        lines.push(format!("    {have} of {need} votes"));
    }
    if let Some(deadline) = Some(scalar(&point["deadline"])).filter(|text| !text.is_empty()) {
        lines.push(format!("    until {deadline}"));
    }
    lines.extend(points::ways_on(point, thread).into_iter().map(|way| format!("    {way}")));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_parked_thread_says_how_to_answer() {
        let thread = json!({
            "thread_id": "t-1", "graph": "expense", "graph_version": 1, "status": "parked",
            "state": {"amount": "120"}, "next": ["manager"], "errors": [],
            "interrupts": [
                {"id": "abc", "address": "expense/manager@1", "kind": "question", "status": "open", "have": 0, "need": 2,
                 "payload": {"type": "approval", "title": "Pay\u{1b}[2J?"}},
                {"id": "old", "status": "answered"}
            ]
        });
        let text = describe(&thread);
        for part in ["expense 1", "0 of 2 votes", "Pay [2J?", "countersign answer abc '{\"approved\":true}'"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("old"), "{text}");
    }

    #[test]
    fn a_thread_that_stopped_says_that_answers_wait_for_it() {
        let question = json!({
            "id": "abc", "kind": "form", "status": "open",
            "payload": {"type": "form", "title": "Where?", "schema": {
                "type": "object", "required": ["street"], "properties": {"street": {"type": "string"}},
            }},
        });
        let stop = json!({"id": "def", "kind": "pause", "status": "open", "payload": {"reason": "requested"}});
        let thread = |points: &[&Value]| json!({"thread_id": "t-1", "status": "parked", "interrupts": points});
        let text = describe(&thread(&[&stop, &question]));
        for part in [
            "answers are kept, and run once it goes on",
            "countersign threads resume t-1 --continue",
            "{\"reason\":\"requested\"}",
            "countersign answer abc '{\"street\":\"…\"}'",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!describe(&thread(&[&question])).contains("--continue"));
        assert!(!describe(&thread(&[&stop])).contains("answers are kept"), "nothing else waits");
    }
}
