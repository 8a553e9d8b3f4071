//! A review as a graph of its own, used as a step of other graphs.

use std::sync::Arc;

use countersign_kernel::graph::CompileError;
use countersign_kernel::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

/// A round of review: what is reviewed, and what became of it.
#[derive(State)]
pub struct Review {
    /// What it is about.
    pub title: String,
    /// What is reviewed; the author may rewrite it.
    pub text: String,
    /// The role that reviews.
    pub reviewer: String,
    /// What the reviewers said, in order.
    #[reduce(append)]
    pub remarks: Vec<String>,
    /// The outcome.
    pub accepted: Option<bool>,
}

/// The graph `review_round`: a reviewer accepts a text or says what to change,
/// then the author rewrites it or gives up, until one of them ends it. Input:
/// `{title, text, reviewer}`.
///
/// Use it as a node of any flow ([`Graph::subgraph`]). It has a state of its
/// own, and what it asks is asked as if the outer flow asked it, whatever the
/// depth.
///
/// Guaranteed: its finished nodes are not run again while it waits, also across
/// a restart, and it is entered only on the way to what was answered (K7, K17).
///
/// # Errors
/// The graph is not sound; its tests see to it that it is.
pub fn review_round() -> Result<CompiledGraph, CompileError> {
    let mut round = Graph::<Review>::new("review_round", 1);
    let judge = round.node("judge", judge);
    let rewrite = round.node("rewrite", rewrite);
    round.start(judge);
    round.after(judge, move |review| if review.accepted.is_some() { Target::end() } else { rewrite.into() });
    round.after(rewrite, move |review| if review.accepted.is_some() { Target::end() } else { judge.into() });
    round.compile()
}

async fn judge(cx: &Context, review: &Review) -> NodeResult<ReviewUpdate> {
    let question = approval(format!("Accept “{}”?", review.title))
        .message(&review.text)
        .to(role(&review.reviewer))
        .on_no("the author is asked to rewrite it: say what to change");
    let decision = cx.ask(question).await?;
    if decision.approved {
        return Ok(Review::update().accepted(Some(true)));
    }
    Ok(Review::update().remarks(decision.reason.unwrap_or_else(|| "no reason given".to_owned())))
}

#[derive(Deserialize)]
struct Rewritten {
    text: Option<String>,
}

async fn rewrite(cx: &Context, review: &Review) -> NodeResult<ReviewUpdate> {
    let field = json!({"type": "string", "title": "New text", "description": "Leave it empty to give up."});
    let schema = json!({"type": "object", "properties": {"text": field}});
    let question = form::<Rewritten>(format!("Rewrite “{}”?", review.title), schema)
        .detail("Remark", review.remarks.last().map_or("", String::as_str))
        .message(&review.text)
        .to(role("author"));
    let Filled(rewritten) = cx.ask(question).await?;
    Ok(match rewritten.text {
        Some(text) => Review::update().text(text),
        None => Review::update().accepted(Some(false)),
    })
}

#[derive(State)]
struct Contract {
    title: String,
    text: String,
    accepted: Option<bool>,
    signed: Option<Vec<Principal>>,
}

/// The flow `contract`: two rounds of review, then a signature. Input:
/// `{title, text}`.
///
/// Use it to see one graph in two places: each round has its own frame,
/// address and ids.
///
/// Guaranteed: the second round reviews the text as the first one left it; a
/// round that was given up ends the case.
///
/// # Errors
/// The flow is not sound; its tests see to it that it is.
pub fn contract() -> Result<CompiledGraph, CompileError> {
    let round = Arc::new(review_round()?);
    let input = |reviewer: &'static str| {
        move |c: &Contract| -> Value { json!({"title": c.title, "text": c.text, "reviewer": reviewer}) }
    };
    let result = |review: &Review| Contract::update().text(review.text.clone()).accepted(review.accepted);

    let mut flow = Graph::<Contract>::new("contract", 1);
    let legal = flow.subgraph("legal", Arc::clone(&round), input("legal"), result);
    let finance = flow.subgraph("finance", round, input("finance"), result);
    let sign = flow.node("sign", sign);
    flow.start(legal);
    flow.after(legal, move |c| if c.accepted == Some(true) { finance.into() } else { Target::end() });
    flow.after(finance, move |c| if c.accepted == Some(true) { sign.into() } else { Target::end() });
    flow.end(sign);
    flow.compile()
}

async fn sign(cx: &Context, contract: &Contract) -> NodeResult<ContractUpdate> {
    let question = unlock(format!("Sign “{}”?", contract.title), "signature").message(&contract.text).to(role("board"));
    let signed = cx.ask_signed(question).await?;
    Ok(Contract::update().signed(Some(signed.by)))
}
