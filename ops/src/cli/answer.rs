//! `answer`: deciding questions.

use std::path::Path;

use futures_util::{StreamExt as _, stream};
use serde_json::{Map, Value, json};

use super::args::{Answer, Wait};
use super::client::{Answered, Client, ClientError};
use super::each::{CONCURRENCY, Progress, Source};
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

async fn answer_all(client: &Client, output: Output, source: &Source, tally: &mut Tally) -> Result<(), CliError> {
    let progress = Progress::rows(source.count(), output);
    let mut replies = stream::iter(source.rows())
        .map(|row| async move {
            let place = row.place();
            let (interrupt, reply) = match row.content.and_then(|content| parse(&content)) {
                Ok((interrupt, answer)) => {
                    let reply = client.answer(&interrupt, &answer).await;
                    (Some(interrupt), hopeless(reply))
                }
                Err(what) => (None, Ok(Err(what))),
            };
            (row.number, place, interrupt, reply)
        })
        .buffer_unordered(CONCURRENCY);
    while let Some((number, place, interrupt, reply)) = replies.next().await {
        let mut line = json!({"row": number, "interrupt": interrupt});
        tally.rows += 1;
        match reply.map_err(|error| stopped(&progress, tally, error))? {
            Ok((reply, again)) => {
                let outcome = if again { "already_answered" } else { reply["status"].as_str().unwrap_or("decided") };
                match outcome {
                    "already_answered" => tally.already += 1,
                    "waiting" => tally.waiting += 1,
                    _ => tally.decided += 1,
                }
                line["outcome"] = json!(outcome);
                line["thread_id"] = reply["thread_id"].clone();
            }
            Err(what) => {
                tally.failed += 1;
                progress.note(&format!("{place}: {}", plain(&what)));
                line["outcome"] = json!("failed");
                line["error"] = json!(what);
            }
        }
        progress.row_done();
        progress.detail(&line);
    }
    Ok(())
}

fn stopped(progress: &Progress, tally: &Tally, error: ClientError) -> CliError {
    progress.note(&format!("stopped after {} answers; run it again to go on", tally.rows.saturating_sub(1)));
    error.into()
}

/// The outer failure would meet every other row as well.
fn hopeless(reply: Result<(Value, bool), ClientError>) -> Result<Result<(Value, bool), String>, ClientError> {
    match reply {
        Ok(reply) => Ok(Ok(reply)),
        // Somebody the server does not know stays so; a refusal (403) may be of
        // this question only.
        Err(ClientError::Refused(problem)) if problem.status != 401 => Ok(Err(problem.reason())),
        Err(error @ ClientError::Unexpected { status: 500..=599, .. }) => Ok(Err(chain(&error))),
        Err(error) => Err(error),
    }
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
