//! `interrupts`: looking at what waits for people.

use countersign_kernel::ids::InterruptId;
use serde_json::Value;

use super::args::{Interrupts, ListInterrupts};
use super::client::Client;
use super::exit::Exit;
use super::failure::CliError;
use super::output::{Output, plain, table};
use super::pages;
use super::points;
use super::threads::scalar;

/// Shows what the command line asks for.
pub(super) async fn run(client: &Client, output: Output, args: &Interrupts) -> Result<Exit, CliError> {
    match args {
        Interrupts::List(args) => list(client, output, args).await,
        Interrupts::Show { interrupt } => {
            let id =
                InterruptId::parse(interrupt.as_str()).map_err(|error| CliError::because(Exit::NotFound, &error))?;
            let interrupt = client.interrupt(id.as_str()).await?;
            output.result(&interrupt, || describe(&interrupt));
            Ok(Exit::Ok)
        }
    }
}

async fn list(client: &Client, output: Output, args: &ListInterrupts) -> Result<Exit, CliError> {
    let approver = args.approver.as_ref().map(ToString::to_string);
    let (graph, approver) = (args.graph.as_deref(), approver.as_deref());
    let page =
        async |limit, cursor: Option<&str>| client.interrupts(&args.status, graph, approver, limit, cursor).await;
    let (items, more) = pages::first(args.limit, page).await?;
    if output.is_json() {
        items.into_iter().for_each(|item| output.detail(&line(item)));
    } else {
        let rows: Vec<Vec<String>> = items.iter().map(row).collect();
        output.result(&Value::Null, || match rows.as_slice() {
            [] => "no interrupts".to_owned(),
            rows => table(&["INTERRUPT", "GRAPH", "KIND", "TITLE", "SINCE"], rows),
        });
    }
    if more {
        output.note(&format!("there are more than {}; see --limit, --status, --graph and --approver", args.limit));
    }
    Ok(Exit::Ok)
}

/// The view under the name that `answer --each` reads.
fn line(mut item: Value) -> Value {
    if let Some(members) = item.as_object_mut() {
        let id = members.get("id").cloned().unwrap_or_default();
        members.insert("interrupt".to_owned(), id);
    }
    item
}

fn row(item: &Value) -> Vec<String> {
    let members = [&item["id"], &item["graph"], &item["kind"], &item["payload"]["title"], &item["asked_at"]];
    members.map(scalar).into()
}

/// An interrupt for people: where it is, what is asked, how to answer or how it
/// was decided.
fn describe(interrupt: &Value) -> String {
    let mut lines = Vec::new();
    let mut field = |label: &str, value: String| {
        if !value.is_empty() {
            lines.push(format!("{label:<9}  {value}"));
        }
    };
    for (label, member) in [
        ("interrupt", "id"),
        ("thread", "thread_id"),
        ("graph", "graph"),
        ("at", "address"),
        ("kind", "kind"),
        ("status", "status"),
        ("since", "asked_at"),
        ("until", "deadline"),
        ("closed", "closed_at"),
        ("because", "closed_by"),
        ("instead", "replaced_by"),
    ] {
        field(label, scalar(&interrupt[member]));
    }
    if let (Some(have), Some(need)) = (interrupt["have"].as_u64(), interrupt["need"].as_u64()) {
        field("votes", format!("{have} of {need}"));
    }
    if let Some(decision) = interrupt["decision"].as_object() {
        let by = decision.get("by").and_then(Value::as_array).into_iter().flatten().map(scalar);
        field("by", by.collect::<Vec<_>>().join(" and "));
        field("answer", decision.get("answer").map(|answer| plain(&answer.to_string())).unwrap_or_default());
    }
    lines.extend(points::said(&interrupt["payload"]));
    if interrupt["status"] == "open" {
        lines.extend(points::ways_on(interrupt, &scalar(&interrupt["thread_id"])));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn open() -> Value {
        json!({
            "id": "abc", "thread_id": "t-1", "graph": "expense", "address": "expense/manager@0", "kind": "approval",
            "status": "open", "payload": {"type": "approval", "title": "Pay\u{1b}[2J?"}, "deadline": null,
            "asked_at": "2026-01-02T03:04:05Z", "have": 0, "need": 2, "decision": null
        })
    }

    #[test]
    fn an_open_interrupt_says_how_to_answer() {
        let text = describe(&open());
        for part in ["abc", "t-1", "expense/manager@0", "0 of 2", "countersign answer abc '{\"approved\":true}'"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains('\u{1b}') && !text.contains("until"), "{text}");
    }

    #[test]
    fn a_decided_one_says_how_it_was_decided() {
        let mut decided = open();
        decided["status"] = json!("answered");
        decided["decision"] = json!({"answer": {"approved": false}, "by": ["person:a@b.c"], "at": "2026"});
        let text = describe(&decided);
        assert!(text.contains("person:a@b.c") && text.contains("{\"approved\":false}"), "{text}");
        assert!(!text.contains("countersign answer"), "{text}");
    }

    #[test]
    fn a_line_is_the_view_under_the_name_that_answers_go_by() {
        let line = line(open());
        assert_eq!((&line["interrupt"], &line["graph"]), (&json!("abc"), &json!("expense")));
        assert_eq!(row(&open()), ["abc", "expense", "approval", "Pay [2J?", "2026-01-02T03:04:05Z"]);
    }
}
