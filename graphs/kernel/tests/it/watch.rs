//! What watchers are told of tasks, in every frame (K22).

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use countersign_kernel::address::Address;
use countersign_kernel::driver::Driver;
use countersign_kernel::graph::{CompiledGraph, START};
use countersign_kernel::ids::FrameId;
use countersign_kernel::machine::{Rest, RunAs, TaskChange, TaskEvent};
use countersign_kernel::node::{NodeError, NodePolicy, Outcome, RetryPolicy};
use countersign_kernel::ports::{EffectError, Effects, FrameStep};
use countersign_kernel::state::Writes;
use serde_json::{Value, json};

use crate::support::*;

/// Writes down what it hears.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

impl Heard {
    fn hears(&self, graph: CompiledGraph) -> Driver {
        let mut run = thread(graph).with_host(|host| host.effects = Arc::new(self.clone()));
        let input = countersign_kernel::driver::RunRequest { input: Some(json!({})), ..Default::default() };
        request(&mut run, input).expect("good input");
        run
    }

    /// What was heard since the last look.
    fn took(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("not poisoned"))
    }
}

#[async_trait]
impl Effects for Heard {
    async fn record(&self, _: Option<&FrameId>, _: &Address, _: &str, _: &Value) -> Result<(), EffectError> {
        Ok(())
    }

    async fn frame(&self, _: FrameStep<'_>) -> Result<(), EffectError> {
        Ok(())
    }

    async fn emit(&self, occurrence: &Address, event: &Value) -> Result<(), EffectError> {
        self.0.lock().expect("not poisoned").push(format!("{occurrence} says {event}"));
        Ok(())
    }

    fn note(&self, event: TaskEvent<'_>) {
        let what = match event.change {
            TaskChange::Started(run_as) => run_as.as_str().to_owned(),
            TaskChange::Done { writes, alone } => {
                let keys: Vec<&str> = writes.iter().map(|(key, _)| key.as_str()).collect();
                format!("done {}{}", keys.join(","), if alone { " alone" } else { "" })
            }
            TaskChange::Waiting => "waiting".to_owned(),
            TaskChange::Failed(why) => format!("failed {why}"),
            TaskChange::Stopped => "stopped".to_owned(),
        };
        let frame = if event.frame.is_some() { "*" } else { "" };
        self.0.lock().expect("not poisoned").push(format!("{frame}{} {what}", event.task.key));
    }
}

#[test]
fn a_body_runs_fresh_as_a_target_by_resume_all_or_by_a_retry() {
    let (heard, runs) = (Heard::default(), Runs::default());
    let ask = with(&runs, |cx, runs| async move {
        if cx.is_resume_all() {
            return Ok(Writes::none());
        }
        cx.interrupt("a?").await?;
        if runs.hit("ask") == 1 { Err(NodeError::failed("no line")) } else { Ok(got("ask", &json!(1))) }
    });
    let mut run = heard.hears(graph(|g| {
        g.node("ask", ask).node("other", asking("other", &runs)).edge(START, "ask").edge(START, "other");
    }));
    assert_eq!(heard.took(), ["ask fresh", "other fresh", "ask waiting", "other waiting"]);
    let id = point(&run, "a?").id;
    answer_ids(&mut run, &[(&id, json!(true))]).expect("open");
    assert_eq!(heard.took(), ["ask target", "ask failed no line"], "the one that was answered, and why it failed");
    resume(&mut run, RETRY);
    assert_eq!(heard.took(), ["ask retry", "ask done got"]);
    resume(&mut run, RESUME_ALL);
    assert_eq!(heard.took(), ["other resume_all", "other waiting"]);
    answer(&mut run, "x");
    assert_eq!((run.rest(), heard.took()), (Rest::Succeeded, vec!["other target".into(), "other done got".to_owned()]));
}

#[test]
fn tasks_of_inner_frames_are_heard_of_as_well_sent_ones_by_their_key() {
    let (heard, runs) = (Heard::default(), Runs::default());
    let inner = named("inner", |g| {
        g.node("p", counting("p", &runs)).node("q", asking("q", &runs)).edge(START, "p").edge("p", "q");
    });
    let split =
        leading(&(), |_, ()| async { Ok(Outcome::from(Writes::none()).send("w", json!(1)).send("w", json!(2))) });
    let mut run = heard.hears(graph(|g| {
        g.node("split", split).subgraph("sub", Arc::new(inner)).edge(START, "split").edge("split", "sub");
        g.node(
            "w",
            with(&(), |cx, ()| async move {
                cx.emit(json!({"at": 1})).await?;
                Ok(Writes::none().with("sum", cx.argument().expect("sent one")))
            }),
        );
    }));
    let mut events = heard.took();
    events[2..].sort_unstable();
    let expected = [
        "split fresh",
        "split done  alone",
        "*p fresh",
        "*p done log alone",
        "*q fresh",
        "*q waiting",
        "g/w@1/w[0] says {\"at\":1}",
        "g/w@1/w[1] says {\"at\":1}",
        "sub fresh",
        "sub waiting",
        "w#0 done sum",
        "w#0 fresh",
        "w#1 done sum",
        "w#1 fresh",
    ];
    let mut expected: Vec<String> = expected.map(str::to_owned).into();
    expected[2..].sort_unstable();
    assert_eq!(events, expected);
    answer(&mut run, "x");
    assert_eq!(heard.took(), ["sub target", "*q target", "*q done got alone", "sub done got,log,sum"]);
}

#[test]
fn attempts_of_one_run_are_one_start() {
    let (heard, runs) = (Heard::default(), Runs::default());
    let flaky = with(&runs, |_, runs| async move {
        if runs.hit("n") < 3 { Err(NodeError::failed("no line")) } else { Ok(Writes::none()) }
    });
    let policy = NodePolicy { retry: Some(RetryPolicy::immediate(3)), ..NodePolicy::default() };
    heard.hears(graph(|g| {
        g.node("n", flaky).policy("n", policy).edge(START, "n");
    }));
    assert_eq!((runs.of("n"), heard.took()), (3, vec!["n fresh".to_owned(), "n done  alone".to_owned()]));
}

#[test]
fn who_cannot_be_applied_has_failed_after_all() {
    let heard = Heard::default();
    let writes = || with(&(), |_, ()| async { Ok(Writes::none().with("last", &1)) });
    let run = heard.hears(graph(|g| {
        g.node("a", writes()).node("b", writes()).node("c", with(&(), |_, ()| async { Ok(Writes::none()) }));
        g.edge(START, "a").edge(START, "b").edge(START, "c");
    }));
    assert_eq!(run.rest(), Rest::Failed);
    let events = heard.took();
    let done: Vec<&str> = events[3..6].iter().map(|event| &event[..6]).collect();
    assert_eq!(done, ["a done", "b done", "c done"]);
    assert!(events[6].starts_with("a failed concurrent_update") && events[7].starts_with("b failed"), "{events:?}");
    assert_eq!(events.len(), 8, "{events:?}");
}

#[test]
fn an_undeclared_key_fails_the_task_and_not_only_later() {
    let heard = Heard::default();
    heard.hears(single(with(&(), |_, ()| async { Ok(Writes::none().with("nowhere", &1)) })));
    let events = heard.took();
    assert!(events.len() == 2 && events[1].starts_with("n failed the node writes the key `nowhere`"), "{events:?}");
    assert_eq!(RunAs::ResumeAll.as_str(), "resume_all");
}
