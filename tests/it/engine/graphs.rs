//! Small flows whose bodies count their runs.

use std::collections::BTreeMap;

use countersign_kernel::machine::Resume;
use countersign_kernel::prelude::*;
use serde_json::Value;

use crate::support::{Gate, Runs};

pub(super) const NOTHING: Resume = Resume { release: false, retry: false, resume_all: false, supersteps: None };
pub(super) const CONTINUE: Resume = Resume { release: true, ..NOTHING };
pub(super) const RETRY: Resume = Resume { retry: true, ..NOTHING };
pub(super) const RESUME_ALL: Resume = Resume { resume_all: true, ..NOTHING };

#[derive(State)]
pub(super) struct Case {
    /// What each node got or made, by its name.
    #[reduce(merge)]
    got: BTreeMap<String, Value>,
    /// The nodes that finished, in order.
    #[reduce(append)]
    log: Vec<String>,
    n: Option<u32>,
}

/// The node's name, counted.
fn enter(cx: &Context) -> NodeResult<String> {
    let name = cx.address().segments().last().map(|segment| segment.name.clone()).unwrap_or_default();
    cx.resource::<Runs>()?.hit(name.clone());
    Ok(name)
}

fn made(name: String, value: Value) -> CaseUpdate {
    Case::update().got([(name.clone(), value)].into()).log(name)
}

/// Finishes at once.
async fn work(cx: &Context, _: &Case) -> NodeResult<CaseUpdate> {
    let name = enter(cx)?;
    Ok(made(name, Value::from("done")))
}

/// Asks a manager.
async fn ask(cx: &Context, _: &Case) -> NodeResult<CaseUpdate> {
    let name = enter(cx)?;
    let decision = cx.ask(approval(format!("{name}?")).to(role("manager"))).await?;
    Ok(made(name, Value::from(decision.approved)))
}

/// Asks an operator; a resume-all lets it go without an answer.
async fn raw(cx: &Context, _: &Case) -> NodeResult<CaseUpdate> {
    let name = enter(cx)?;
    if cx.is_resume_all() {
        return Ok(made(name, Value::from("let go")));
    }
    let answer = cx.interrupt(format!("{name}?")).await?;
    Ok(made(name, answer))
}

/// Stops at the gate.
async fn gated(cx: &Context, _: &Case) -> NodeResult<CaseUpdate> {
    let name = enter(cx)?;
    cx.resource::<Gate>()?.pass().await;
    Ok(made(name, Value::from("passed")))
}

/// Asks, and with the answer stops at the gate.
async fn ask_then_gated(cx: &Context, _: &Case) -> NodeResult<CaseUpdate> {
    let name = enter(cx)?;
    if !cx.is_resume_all() {
        cx.interrupt(format!("{name}?")).await?;
    }
    cx.resource::<Gate>()?.pass().await;
    Ok(made(name, Value::from("passed")))
}

/// An effect in front of the gate, and one behind it.
async fn stepping(cx: &Context, _: &Case) -> NodeResult<CaseUpdate> {
    let name = enter(cx)?;
    let runs = cx.resource::<Runs>()?;
    let effect = |step: &'static str| cx.step(step, move |_| async move { Ok::<_, NodeError>(runs.hit(step)) });
    let before = effect("before").await?;
    cx.resource::<Gate>()?.pass().await;
    let after = effect("after").await?;
    Ok(made(name, Value::from(vec![before, after])))
}

/// Fails twice, then works.
async fn flaky(cx: &Context, _: &Case) -> NodeResult<CaseUpdate> {
    let name = enter(cx)?;
    if cx.resource::<Runs>()?.of(&name) <= 2 {
        return Err(NodeError::failed("no line"));
    }
    Ok(made(name, Value::from("at last")))
}

/// Panics once, then works.
async fn panicking(cx: &Context, _: &Case) -> NodeResult<CaseUpdate> {
    let name = enter(cx)?;
    assert!(cx.resource::<Runs>()?.of(&name) > 1, "out of paper");
    Ok(made(name, Value::from("at last")))
}

/// Counts up.
async fn count(cx: &Context, case: &Case) -> NodeResult<CaseUpdate> {
    enter(cx)?;
    Ok(Case::update().n(Some(case.n.unwrap_or(0) + 1)))
}

/// What a node of [`side_by_side`] and [`in_a_row`] does.
#[derive(Debug, Clone, Copy)]
pub(super) enum Does {
    Work,
    Ask,
    Raw,
    Gated,
    AskThenGated,
    Stepping,
    Flaky,
    Panicking,
}

fn add(flow: &mut Graph<Case>, name: &'static str, does: Does) -> NodeRef<Case> {
    match does {
        Does::Work => flow.node(name, work),
        Does::Ask => flow.node(name, ask),
        Does::Raw => flow.node(name, raw),
        Does::Gated => flow.node(name, gated),
        Does::AskThenGated => flow.node(name, ask_then_gated),
        Does::Stepping => flow.node(name, stepping),
        Does::Flaky => flow.node(name, flaky),
        Does::Panicking => flow.node(name, panicking),
    }
}

/// `nodes` in one superstep, and `last` once all of them have finished.
pub(super) fn side_by_side(runs: &Runs, gate: &Gate, nodes: &[(&'static str, Does)]) -> CompiledGraph {
    let mut flow = Graph::<Case>::new("flow", 1);
    let nodes: Vec<_> = nodes.iter().map(|(name, does)| add(&mut flow, name, *does)).collect();
    let last = flow.node("last", work);
    for node in &nodes {
        flow.start(*node);
    }
    flow.join(nodes, last).end(last);
    finish(flow, runs, gate)
}

/// `nodes` one after the other.
pub(super) fn in_a_row(runs: &Runs, gate: &Gate, nodes: &[(&'static str, Does)]) -> CompiledGraph {
    let (flow, _) = row(nodes);
    finish(flow, runs, gate)
}

/// `nodes` one after the other, with a stop before the last.
pub(super) fn stopping_before_the_last(runs: &Runs, nodes: &[(&'static str, Does)]) -> CompiledGraph {
    let (mut flow, nodes) = row(nodes);
    flow.break_before(nodes[nodes.len() - 1]);
    finish(flow, runs, &Gate::closed())
}

fn row(nodes: &[(&'static str, Does)]) -> (Graph<Case>, Vec<NodeRef<Case>>) {
    let mut flow = Graph::<Case>::new("flow", 1);
    let nodes: Vec<_> = nodes.iter().map(|(name, does)| add(&mut flow, name, *does)).collect();
    flow.start(nodes[0]);
    for pair in nodes.windows(2) {
        flow.edge(pair[0], pair[1]);
    }
    flow.end(nodes[nodes.len() - 1]);
    (flow, nodes)
}

/// Counts to `until`, a superstep each.
pub(super) fn counting(runs: &Runs, until: u32) -> CompiledGraph {
    let mut flow = Graph::<Case>::new("flow", 1);
    let node = flow.node("count", count);
    flow.start(node);
    flow.after(node, move |case| if case.n < Some(until) { node.into() } else { Target::end() });
    finish(flow, runs, &Gate::closed())
}

fn finish(mut flow: Graph<Case>, runs: &Runs, gate: &Gate) -> CompiledGraph {
    flow.provide(runs.clone()).provide(gate.clone());
    flow.compile().expect("a sound flow")
}
