//! The flows that are measured, written with the public typed API. Bodies
//! append an item that was made before, and do nothing else.

use std::sync::Arc;

use countersign_kernel::graph::CompileError;
use countersign_kernel::prelude::*;

use crate::desk::{Desk, Item, Moment};

#[derive(State)]
struct Case {
    run: u64,
    #[reduce(append)]
    items: Vec<Item>,
}

/// Node names live as long as the program.
fn name(n: usize) -> &'static str {
    Box::leak(format!("node{n:03}").into_boxed_str())
}

async fn append(cx: &Context, case: &Case) -> NodeResult<CaseUpdate> {
    let desk = cx.resource::<Arc<Desk>>()?;
    let i = case.items.len();
    if i + 1 == desk.len() {
        desk.reached(case.run, Moment::Ending);
    }
    Ok(Case::update().items(desk.item(i)))
}

/// `chain`: nodes in a row.
pub(crate) fn chain(desk: &Arc<Desk>) -> Result<CompiledGraph, CompileError> {
    let mut flow = Graph::<Case>::new("chain", 1);
    let mut before = None;
    for n in 0..desk.len() {
        let node = flow.node(name(n), append);
        match before.replace(node) {
            None => flow.start(node),
            Some(from) => flow.edge(from, node),
        };
    }
    if let Some(last) = before {
        flow.end(last);
    }
    flow.provide(Arc::clone(desk));
    flow.compile()
}

async fn append_and_tell(cx: &Context, case: &Case) -> NodeResult<CaseUpdate> {
    cx.resource::<Arc<Desk>>()?.runs_now();
    append(cx, case).await
}

/// `loop`: one node, as often.
pub(crate) fn looping(desk: &Arc<Desk>) -> Result<CompiledGraph, CompileError> {
    let mut flow = Graph::<Case>::new("loop", 1);
    let node = flow.node("node", append_and_tell);
    let times = desk.len();
    flow.start(node);
    flow.after(node, move |case| if case.items.len() < times { node.into() } else { Target::end() });
    flow.provide(Arc::clone(desk));
    flow.compile()
}

async fn ask(cx: &Context, case: &Case) -> NodeResult<CaseUpdate> {
    cx.resource::<Arc<Desk>>()?.reached(case.run, Moment::Asking);
    cx.ask(approval("Go on?").to(role("approver"))).await?;
    Ok(Case::update())
}

/// `asking`: append, ask, append.
pub(crate) fn asking(desk: &Arc<Desk>) -> Result<CompiledGraph, CompileError> {
    let mut flow = Graph::<Case>::new("asking", 1);
    let (a, ask, b) = (flow.node("a", append), flow.node("ask", ask), flow.node("b", append));
    flow.start(a).edge(a, ask).edge(ask, b).end(b);
    flow.provide(Arc::clone(desk));
    flow.compile()
}

async fn part(cx: &Context, _: &Case) -> NodeResult<CaseUpdate> {
    let desk = cx.resource::<Arc<Desk>>()?;
    let n: u32 = cx.argument_as()?;
    desk.count(n);
    if asks(n) {
        cx.ask(approval(format!("Accept part {n}?")).to(role("approver"))).await?;
    }
    Ok(Case::update().items(desk.item(n as usize)))
}

/// Whether the task with this argument asks: every tenth.
pub(crate) const fn asks(n: u32) -> bool {
    n.is_multiple_of(10)
}

/// `fan_out`: tasks side by side, some of which ask.
pub(crate) fn fan_out(desk: &Arc<Desk>, tasks: u32) -> Result<CompiledGraph, CompileError> {
    let mut flow = Graph::<Case>::new("fan_out", 1);
    let part = flow.node("part", part);
    flow.start_with(move |_| Target::send_each(part, 0..tasks));
    flow.end(part);
    flow.provide(Arc::clone(desk));
    flow.compile()
}
