//! Dynamic stop: a node that stops while the state says so (`NodeInterrupt`).

use std::sync::Arc;

use countersign_kernel::graph::CompileError;
use countersign_kernel::prelude::*;
use serde_json::{Value, json};

use super::Outside;

/// The longest notice that is published, in characters.
const CHARACTERS_MAX: usize = 140;

#[derive(State)]
struct Notice {
    text: String,
    published: Option<Value>,
}

/// The flow `notice`. Input: `{text}`.
///
/// Use it for a stop that is about the data and not about a person's consent:
/// whoever operates the flow mends the state, or skips the check. Nobody is
/// mailed; the point is listed and needs operator scope. If any answer shall let
/// it pass, write `cx.interrupt(problem).await?` in place of the `return`.
///
/// Guaranteed: `continue` alone does not pass it (R11), nor does an answer, as
/// long as the state is as it was. An edit of the state makes the point void
/// and, once released, runs the node afresh, which passes or stops anew; an
/// edit *as this node* skips it (R5). An answer with an `update` in one resume
/// mends the state and keeps what else waits in the superstep.
///
/// # Errors
/// The flow is not sound; its tests see to it that it is.
pub fn notice(outside: Arc<dyn Outside>) -> Result<CompiledGraph, CompileError> {
    let mut flow = Graph::<Notice>::new("notice", 1);
    let check = flow.node("check", check);
    let publish = flow.node("publish", publish);
    flow.start(check).edge(check, publish).end(publish);
    flow.provide(outside);
    flow.compile()
}

async fn check(cx: &Context, notice: &Notice) -> NodeResult<NoticeUpdate> {
    let characters = notice.text.chars().count();
    if characters > CHARACTERS_MAX {
        let problem = json!({"problem": "the text is too long", "characters": characters, "most": CHARACTERS_MAX});
        return Err(cx.suspend(problem, &()));
    }
    Ok(Notice::update())
}

async fn publish(cx: &Context, notice: &Notice) -> NodeResult<NoticeUpdate> {
    let outside = cx.resource::<Arc<dyn Outside>>()?;
    let arguments = json!({"text": notice.text});
    let done = cx.step("publish", |key| async move { outside.call(key.as_str(), "publish", &arguments).await });
    Ok(Notice::update().published(Some(done.await?)))
}
