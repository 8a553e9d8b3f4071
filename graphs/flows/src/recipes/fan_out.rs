//! Fan-out: as many reviews as there are parts, side by side, and one result.

use countersign_kernel::graph::CompileError;
use countersign_kernel::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(State)]
struct Tender {
    parts: Vec<Part>,
    #[reduce(append)]
    verdicts: Vec<Verdict>,
    budget: Option<Decision>,
    awarded: Option<bool>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Part {
    name: String,
    text: String,
    reviewer: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Verdict {
    part: String,
    decision: Decision,
}

/// The flow `tender`. Input: `{parts: [{name, text, reviewer}]}`.
///
/// Use it when the number of reviews is known only when the flow runs. Each
/// part is sent to a task of its own; the budget is decided beside them. Send
/// to a sub-graph in the same way: the argument is its input. For calls within
/// one node use [`Context::batch`].
///
/// Guaranteed: an answer runs its own task and no other (K7), a finished task
/// keeps its verdict while the others wait, verdicts are in the order of the
/// parts, whoever answered first, and `award` runs once, after all.
/// It is deferred rather than joined: a join waits for each of its sources, and
/// a fan-out over nothing never finishes.
///
/// # Errors
/// The flow is not sound; its tests see to it that it is.
pub fn tender() -> Result<CompiledGraph, CompileError> {
    let mut flow = Graph::<Tender>::new("tender", 1);
    let review = flow.node("review", review);
    let budget = flow.node("budget", budget);
    let award = flow.node("award", award);
    flow.start_with(move |tender| Target::send_each(review, &tender.parts).and(budget));
    flow.edge(review, award).edge(budget, award).end(award);
    flow.policy(award, NodePolicy { deferred: true, ..NodePolicy::default() });
    flow.compile()
}

async fn review(cx: &Context, _: &Tender) -> NodeResult<TenderUpdate> {
    let part: Part = cx.argument_as()?;
    let question = approval(format!("Accept the part “{}”?", part.name)).message(part.text).to(role(&part.reviewer));
    let decision = cx.ask(question).await?;
    Ok(Tender::update().verdicts(Verdict { part: part.name, decision }))
}

async fn budget(cx: &Context, tender: &Tender) -> NodeResult<TenderUpdate> {
    let question = approval("Is there a budget for it?").detail("Parts", tender.parts.len()).to(role("finance"));
    Ok(Tender::update().budget(Some(cx.ask(question).await?)))
}

async fn award(_: &Context, tender: &Tender) -> NodeResult<TenderUpdate> {
    let parts = tender.verdicts.iter().map(|verdict| &verdict.decision);
    let accepted = parts.chain(&tender.budget).all(|decision| decision.approved);
    Ok(Tender::update().awarded(Some(accepted)))
}
