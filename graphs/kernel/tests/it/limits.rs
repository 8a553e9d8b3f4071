//! R30: what is too large fails its node, by name, and changes nothing.

use countersign_kernel::driver::Driver;
use countersign_kernel::graph::{GraphBuilder, START};
use countersign_kernel::limits::Limits;
use countersign_kernel::machine::Rest;
use countersign_kernel::node::body_fn;
use countersign_kernel::prelude::*;
use serde_json::json;

use crate::support::now;

#[derive(State)]
struct Note {
    text: String,
    copy: Option<String>,
}

async fn copy(_: &Context, note: &Note) -> NodeResult<NoteUpdate> {
    Ok(Note::update().copy(Some(note.text.clone())))
}

async fn ask(cx: &Context, note: &Note) -> NodeResult<NoteUpdate> {
    cx.ask(approval(note.text.clone())).await?;
    Ok(Note::update())
}

fn flow(asks: bool) -> CompiledGraph {
    let mut flow = Graph::<Note>::new("note", 1);
    let node = if asks { flow.node("ask", ask) } else { flow.node("copy", copy) };
    flow.start(node).end(node);
    flow.compile().expect("sound").with_limits(Limits { payload_bytes: 400, state_key_bytes: 100, ..Limits::default() })
}

#[test]
fn a_value_above_the_limit_is_not_written() {
    let run = now(Driver::start(flow(false), json!({"text": "x".repeat(98)}))).expect("good input");
    assert_eq!(run.rest(), Rest::Succeeded, "98 letters and two quotes fit");
    let run = now(Driver::start(flow(false), json!({"text": "x".repeat(99)}))).expect("good input");
    assert_eq!(run.rest(), Rest::Failed);
    assert!(run.errors()["copy"].contains("`limits.state_key_bytes`"), "{:?}", run.errors());
    assert!(run.state().get("copy").is_none());
}

#[test]
fn a_question_above_the_limit_is_not_asked() {
    let run = now(Driver::start(flow(true), json!({"text": "short"}))).expect("good input");
    assert_eq!(run.rest(), Rest::Parked);
    let run = now(Driver::start(flow(true), json!({"text": "x".repeat(400)}))).expect("good input");
    assert_eq!(run.rest(), Rest::Failed);
    assert!(run.errors()["ask"].contains("`limits.payload_bytes`"), "{:?}", run.errors());
    assert!(run.points().is_empty());
}

#[test]
fn a_superstep_above_the_limit_is_not_entered() {
    let wide = |most| {
        let mut graph = GraphBuilder::new("wide", 1);
        graph.node("first", body_fn(|_| async { Ok(()) })).edge(START, "first");
        for name in ["a", "b", "c"] {
            graph.node(name, body_fn(|_| async { Ok(()) })).edge("first", name);
        }
        graph.compile().expect("sound").with_limits(Limits { tasks_per_superstep: most, ..Limits::default() })
    };
    assert_eq!(now(Driver::start(wide(3), json!({}))).expect("good input").rest(), Rest::Succeeded);
    let run = now(Driver::start(wide(2), json!({}))).expect("good input");
    assert_eq!((run.rest(), run.visits("a"), run.checkpoints()), (Rest::Failed, 0, 1));
    assert!(run.errors()["first"].contains("`limits.tasks_per_superstep`"), "{:?}", run.errors());
}
