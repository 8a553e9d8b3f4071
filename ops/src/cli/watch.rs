//! `threads watch`: what happens in a thread, line by line.

use clap::Args;
use countersign_kernel::ids::ThreadId;
use serde_json::Value;

use super::client::Client;
use super::course;
use super::exit::Exit;
use super::failure::CliError;
use super::output::{Output, plain};
use super::threads::scalar;

/// Options of `threads watch`.
#[derive(Debug, Args)]
pub struct Watch {
    /// The thread's id.
    pub thread: String,
    /// Only these kinds, with commas between: tasks, updates, values,
    /// interrupts, custom, status. By default all but values.
    #[arg(long, value_name = "KINDS")]
    pub modes: Option<String>,
    /// Only what came after the event of this number.
    #[arg(long, value_name = "ID", default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..))]
    pub after: i64,
    /// Go on while the thread waits for somebody, until it has ended for good.
    #[arg(long)]
    pub follow: bool,
}

/// Prints events until the thread rests or has ended.
pub(super) async fn run(client: &Client, output: Output, args: &Watch) -> Result<Exit, CliError> {
    let id = course::id(ThreadId::parse, &args.thread)?;
    let mut watch = client.watch(id.as_str(), args.modes.as_deref(), args.after, args.follow);
    while let Some(event) = watch.next().await? {
        output.result(&event, || describe(&event));
    }
    Ok(Exit::Ok)
}

/// An event in one line: number, time, kind, what.
fn describe(event: &Value) -> String {
    let at = scalar(&event["at"]);
    let kind = scalar(&event["kind"]);
    let data = &event["data"];
    let text = |name: &str| scalar(&data[name]);
    let what = match kind.as_str() {
        "tasks" => match text("state").as_str() {
            "started" => format!("{} started ({})", text("address"), text("how")),
            "failed" => format!("{} failed: {}", text("address"), text("error")),
            state => format!("{} {state}", text("address")),
        },
        "updates" => format!("{} wrote {}", text("address"), plain(&data["writes"].to_string())),
        "values" => {
            format!(
                "superstep {}, {}: {}",
                text("superstep"),
                text("checkpoint_id"),
                plain(&data["values"].to_string())
            )
        }
        "interrupts" => match text("state").as_str() {
            "opened" => {
                let title = scalar(&data["payload"]["title"]);
                format!("{} opened, {} {} {title}", text("interrupt_id"), text("kind"), text("address"))
            }
            _ => format!("{} {}", text("interrupt_id"), text("status")),
        },
        "custom" => format!("{} {}", text("address"), plain(&data["payload"].to_string())),
        "status" => [text("status"), text("reason")].join(" "),
        // A server of another version: show what there is.
        _ => plain(&data.to_string()),
    };
    format!("{:>6}  {at}  {kind:<10}  {}", scalar(&event["id"]), what.trim_end())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_says_what_happened_and_controls_no_terminal() {
        let line = |kind: &str, data: Value| {
            describe(&json!({"id": 7, "at": "2026-01-02T03:04:05.000006Z", "kind": kind, "data": data}))
        };
        let failed = line("tasks", json!({"state": "failed", "address": "g/pay@1", "error": "no\u{1b}[2Jline"}));
        assert_eq!(failed, "     7  2026-01-02T03:04:05.000006Z  tasks       g/pay@1 failed: no [2Jline");
        let wrote = line("updates", json!({"address": "g/pay@1", "writes": {"n": "\u{9b}1"}}));
        assert!(wrote.contains("g/pay@1 wrote {\"n\":\"") && !wrote.contains('\u{9b}'), "{wrote}");
        assert!(line("status", json!({"status": "held", "reason": "lost"})).ends_with("held lost"));
        assert!(line("status", json!({"status": "parked"})).ends_with("parked"));
        assert!(line("omens", json!({"x": 1})).ends_with("{\"x\":1}"));
    }
}
