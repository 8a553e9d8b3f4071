//! `pause`, `resume`, `pauses`, `limits`, `dead-letters`: controlling the flow
//! of work.

use serde_json::{Value, json};

use super::client::Client;
use super::exit::Exit;
use super::failure::CliError;
use super::flow_args::{DeadLetters, Limits, PauseFlow, ResumeFlow, SetLimits, WhichDead};
use super::output::{Output, plain, table};
use super::pages;
use super::threads::scalar;

/// `pause`.
pub(super) async fn pause(client: &Client, output: Output, args: &PauseFlow) -> Result<Exit, CliError> {
    let mut body = json!({"reason": args.reason});
    if let Some(until) = &args.until {
        body["until"] = json!(until);
    }
    let paused = client.put(&args.what.path(), &body).await?;
    output.result(&paused, || {
        let until = match scalar(&paused["until"]) {
            until if until.is_empty() => "until somebody resumes it".to_owned(),
            until => format!("until {until}"),
        };
        format!("paused {}, {until}; each worker stops taking it up within a sweep", named(&paused))
    });
    Ok(Exit::Ok)
}

/// `resume`.
pub(super) async fn resume(client: &Client, output: Output, args: &ResumeFlow) -> Result<Exit, CliError> {
    client.delete(&args.what.path()).await?;
    output.result(&json!({"resumed": true}), || "resumed; what was held back is taken up now".to_owned());
    Ok(Exit::Ok)
}

/// `pauses`.
pub(super) async fn pauses(client: &Client, output: Output) -> Result<Exit, CliError> {
    let found = client.get(&["pauses"]).await?;
    list(output, &found, "nothing is paused", &["PAUSED", "REASON", "BY", "SINCE", "UNTIL"], |item| {
        let cells = ["reason", "by", "since", "until"].map(|member| scalar(&item[member]));
        std::iter::once(named(item)).chain(cells).collect()
    });
    Ok(Exit::Ok)
}

fn named(item: &Value) -> String {
    let words = ["kind", "name", "node"].map(|member| scalar(&item[member]));
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// `limits`.
pub(super) async fn limits(client: &Client, output: Output, args: &Limits) -> Result<Exit, CliError> {
    match args {
        Limits::List => {
            let found = client.get(&["limits"]).await?;
            list(output, &found, "nothing is limited", &["GRAPH", "LIMITS"], |item| {
                vec![scalar(&item["graph"]), limits_text(item)]
            });
        }
        Limits::Set(args) => {
            let set = client.put(&["limits", &args.graph], &limits_body(args)).await?;
            output.result(&set, || format!("{}: {}", plain(&args.graph), limits_text(&set)));
        }
        Limits::Remove { graph } => {
            client.delete(&["limits", graph]).await?;
            output.result(&json!({"removed": graph}), || format!("{} has no limits any more", plain(graph)));
        }
    }
    Ok(Exit::Ok)
}

fn limits_body(args: &SetLimits) -> Value {
    let rate = |rate: Option<(u32, f64)>| rate.map(|(count, seconds)| json!({"count": count, "per_seconds": seconds}));
    let mut body = json!({
        "running": args.running, "key_running": args.key_running,
        "starts": rate(args.starts), "key_starts": rate(args.key_starts),
    });
    if let Some(members) = body.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
    body
}

fn limits_text(item: &Value) -> String {
    let number = |member: &str, words: &str| item[member].as_u64().map(|number| format!("{number} {words}"));
    let rate = |member: &str, words: &str| {
        let rate = &item[member];
        rate["count"].as_u64().map(|count| format!("{count} {words} in {} s", rate["per_seconds"]))
    };
    let all = [
        number("running", "at a time"),
        number("key_running", "of a key at a time"),
        rate("starts", "taken up"),
        rate("key_starts", "of a key taken up"),
    ];
    all.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// `dead-letters`.
pub(super) async fn dead_letters(client: &Client, output: Output, args: &DeadLetters) -> Result<Exit, CliError> {
    match args {
        DeadLetters::List { which, limit } => {
            let page = async |limit, cursor: Option<&str>| client.dead_letters(&filters(which), limit, cursor).await;
            let (items, more) = pages::first(*limit, page).await?;
            let head = ["THREAD", "ID", "KIND", "GRAPH", "ATTEMPTS", "DIED", "REASON"];
            list(output, &json!({"items": items}), "no dead letters", &head, |item| {
                ["thread_id", "id", "kind", "graph", "attempts", "died_at", "reason"]
                    .map(|member| scalar(&item[member]))
                    .into()
            });
            if more {
                output.note(&format!("there are more than {limit}; see --limit and the filters"));
            }
        }
        DeadLetters::Retry(args) => {
            let mut body = json!({"all": args.all, "thread_id": args.thread, "id": args.id});
            for (name, value) in filters(&args.which) {
                body[name] = json!(value);
            }
            if let Some(members) = body.as_object_mut() {
                members.retain(|_, value| !value.is_null());
            }
            let done = client.retry_dead_letters(&body).await?;
            output.result(&done, || {
                let more = if done["more"] == true { "; there are more, run it again" } else { "" };
                format!("{} tried again, {} no longer wanted{more}", done["retried"], done["dropped"])
            });
        }
    }
    Ok(Exit::Ok)
}

fn filters(which: &WhichDead) -> [(&'static str, Option<&str>); 4] {
    [
        ("kind", which.kind.as_deref()),
        ("graph", which.graph.as_deref()),
        ("channel", which.channel.as_deref()),
        ("before", which.before.as_deref()),
    ]
}

fn list(output: Output, found: &Value, none: &str, head: &[&str], row: impl Fn(&Value) -> Vec<String>) {
    let items = found["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    if output.is_json() {
        items.iter().for_each(|item| output.detail(item));
        return;
    }
    let rows: Vec<Vec<String>> = items.iter().map(row).collect();
    output.result(&Value::Null, || if rows.is_empty() { none.to_owned() } else { table(head, &rows) });
}
