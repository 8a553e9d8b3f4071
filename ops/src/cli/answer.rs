//! `answer`: deciding questions.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::args::{Answer, Wait};
use super::client::{Answered, Client, ClientError, Problem};
use super::each::{Progress, Source};
use super::exit::Exit;
use super::failure::{CliError, chain};
use super::input;
use super::output::{Output, plain};
use super::points;
use super::wait::{Scope, until_rest};

/// Answers what the command line asks for.
pub(super) async fn run(client: &Client, output: Output, args: &Answer) -> Result<Exit, CliError> {
    match (&args.each, &args.interrupt, &args.answer) {
        (Some(file), ..) => each(client, output, args.wait, file).await,
        (None, Some(interrupt), Some(text)) => {
            let answer = input::json(text)?;
            one(client, output, args.wait, interrupt, &answer).await
        }
        _ => Err(CliError::new(Exit::Usage, "give a question's id and an answer, or --each")),
    }
}

async fn one(client: &Client, output: Output, wait: Wait, interrupt: &str, answer: &Value) -> Result<Exit, CliError> {
    let (reply, again) = client.answer(interrupt, answer).await?;
    let answered: Answered = serde_json::from_value(reply.clone())
        .map_err(|error| CliError::new(Exit::Failure, format!("the server's reply is unclear: {error}")))?;
    if let Some(thread) = answered.thread_id.as_deref().filter(|_| !wait.detach) {
        until_rest(client, Scope::Thread(thread), wait.limit(), &Progress::waiting(output)).await?;
    }
    // The answer counts whatever is to be seen of its thread.
    let thread = match &answered.thread_id {
        Some(thread) if !output.is_json() => client.thread(thread).await.unwrap_or_default(),
        _ => Value::Null,
    };
    output.result(&reply, || {
        let recorded = if again { "on record before" } else { "recorded" };
        let id = answered.thread_id.as_deref().unwrap_or_default();
        let mut text = match answered.status.as_str() {
            "waiting" => format!("{recorded}: {} of {} needed", answered.have, answered.need),
            status => format!("{recorded}: {}; thread {}", plain(status), plain(id)),
        };
        if points::stop(&thread).is_some() {
            text.push_str(&format!("\nthe thread is paused; to let it go on:\n{}", points::release(id)));
        }
        text
    });
    Ok(Exit::Ok)
}

#[derive(Default)]
struct Tally {
    rows: u64,
    decided: u64,
    waiting: u64,
    already: u64,
    failed: u64,
}

async fn each(client: &Client, output: Output, wait: Wait, file: &Path) -> Result<Exit, CliError> {
    let source = Source::read(file)?;
    source.require_column("interrupt")?;
    source.require_column("answer")?;
    let mut tally = Tally::default();
    answer_all(client, output, &source, &mut tally).await?;
    let overview = if wait.detach {
        None
    } else {
        Some(until_rest(client, Scope::Everything, wait.limit(), &Progress::waiting(output)).await?)
    };
    let threads = overview.map(|overview| overview.threads);
    let summary = json!({"summary": {
        "rows": tally.rows,
        "decided": tally.decided,
        "waiting": tally.waiting,
        "already_answered": tally.already,
        "failed_rows": tally.failed,
        "threads": threads,
    }});
    output.result(&summary, || {
        let mut text = format!(
            "{} answers: {} decided, {} wait for more votes, {} on record before, {} failed",
            tally.rows, tally.decided, tally.waiting, tally.already, tally.failed
        );
        if let Some(threads) = &threads {
            text.push_str(&format!(
                "\nall threads: {} parked, {} succeeded, {} failed, {} held",
                threads.parked, threads.succeeded, threads.failed, threads.held
            ));
        }
        text
    });
    Ok(if tally.failed > 0 { Exit::SomeRowsFailed } else { Exit::Ok })
}

/// How many answers go in one request: enough to be quick, few enough to see it
/// move.
const TOGETHER: usize = 200;

/// A row that is to be answered.
struct Asked {
    number: u64,
    line: u64,
    place: String,
    interrupt: String,
}

/// Rows whose answers go in one request.
#[derive(Default)]
struct Chunk {
    rows: Vec<Asked>,
    answers: Map<String, Value>,
}

async fn answer_all(client: &Client, output: Output, source: &Source, tally: &mut Tally) -> Result<(), CliError> {
    let progress = Progress::rows(source.count(), output);
    let mut chunk = Chunk::default();
    for row in source.rows() {
        let (number, line, place) = (row.number, row.line, row.place());
        match row.content.and_then(|content| parse(&content)) {
            Ok((interrupt, answer)) => {
                // A question that is answered twice is answered in turn.
                if chunk.rows.len() >= TOGETHER || chunk.answers.contains_key(&interrupt) {
                    send(client, &progress, tally, std::mem::take(&mut chunk)).await?;
                }
                chunk.answers.insert(interrupt.clone(), answer);
                chunk.rows.push(Asked { number, line, place, interrupt });
            }
            Err(what) => {
                let shown = json!({"row": number, "line": line, "interrupt": null});
                failed(&progress, tally, &place, shown, &what);
            }
        }
    }
    send(client, &progress, tally, chunk).await
}

async fn send(client: &Client, progress: &Progress, tally: &mut Tally, chunk: Chunk) -> Result<(), CliError> {
    if chunk.rows.is_empty() {
        return Ok(());
    }
    let reply = match client.answer_many(&chunk.answers).await {
        Ok(reply) => Ok(reply),
        // What met this request need not meet the next one.
        Err(error @ ClientError::Unexpected { status: 500..=599, .. }) => Err(chain(&error)),
        Err(ClientError::Refused(problem)) if problem.status >= 500 => Err(problem.to_string()),
        Err(error) => {
            progress.note(&format!("stopped after {} answers; run it again to go on", tally.rows));
            return Err(error.into());
        }
    };
    for row in chunk.rows {
        let mut shown = json!({"row": row.number, "line": row.line, "interrupt": row.interrupt});
        let outcome = match &reply {
            Ok(reply) => &reply["outcomes"][&row.interrupt],
            Err(what) => {
                failed(progress, tally, &row.place, shown, what);
                continue;
            }
        };
        let status = match outcome["status"].as_str() {
            Some("decided" | "waiting") if outcome["repeated"] == true => "already_answered",
            Some(status @ ("decided" | "waiting")) => status,
            _ => {
                failed(progress, tally, &row.place, shown, &reason(outcome));
                continue;
            }
        };
        match status {
            "already_answered" => tally.already += 1,
            "waiting" => tally.waiting += 1,
            _ => tally.decided += 1,
        }
        tally.rows += 1;
        shown["outcome"] = json!(status);
        shown["thread_id"] = outcome["thread_id"].clone();
        progress.row_done();
        progress.detail(&shown);
    }
    Ok(())
}

fn failed(progress: &Progress, tally: &mut Tally, place: &str, mut shown: Value, what: &str) {
    tally.rows += 1;
    tally.failed += 1;
    progress.note(&format!("{place}: {}", plain(what)));
    shown["outcome"] = json!("failed");
    shown["error"] = json!(what);
    progress.row_done();
    progress.detail(&shown);
}

/// Why an answer was refused.
fn reason(outcome: &Value) -> String {
    let problem = serde_json::from_value::<Problem>(outcome["problem"].clone());
    problem.map_or_else(|_| "the server does not say what became of it".to_owned(), |problem| problem.reason())
}

/// The question and the answer of a row: in CSV, the answer is JSON in a cell.
fn parse(row: &Map<String, Value>) -> Result<(String, Value), String> {
    let interrupt = match row.get("interrupt") {
        Some(Value::String(id)) if !id.trim().is_empty() => id.trim().to_owned(),
        _ => return Err("/interrupt: the id of a question is missing".to_owned()),
    };
    let answer = match row.get("answer") {
        None | Some(Value::Null) => return Err("/answer: the answer is missing".to_owned()),
        Some(Value::String(text)) => {
            serde_json::from_str(text).map_err(|error| format!("/answer: this is no JSON: {error}"))?
        }
        Some(value) => value.clone(),
    };
    Ok((interrupt, answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(row: &Value) -> Result<(String, Value), String> {
        parse(row.as_object().expect("object"))
    }

    #[test]
    fn answers_come_as_json_or_as_json_in_a_cell() {
        let expected = Ok(("abc".to_owned(), json!({"approved": true})));
        assert_eq!(parsed(&json!({"interrupt": "abc", "answer": {"approved": true}})), expected);
        assert_eq!(parsed(&json!({"interrupt": " abc ", "answer": "{\"approved\": true}"})), expected);
    }

    #[test]
    fn what_is_missing_is_named() {
        assert!(parsed(&json!({"answer": {}})).expect_err("no id").starts_with("/interrupt: "));
        assert!(parsed(&json!({"interrupt": "a"})).expect_err("no answer").starts_with("/answer: "));
        assert!(parsed(&json!({"interrupt": "a", "answer": "yes"})).expect_err("no JSON").contains("no JSON"));
    }
}
