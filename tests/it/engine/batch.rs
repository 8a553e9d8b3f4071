//! Thousands of answers at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersign_kernel::graph::{CompiledGraph, END_NAME, START};
use countersign_kernel::ids::{InterruptId, ThreadId};
use countersign_kernel::prelude::*;
use countersign_kernel::principal::Approver;
use countersign_kernel::state::Reducer;
use countersign_worker::engine::{BatchOutcome, Together, VoteRequest};
use countersign_worker::store::commands::Via;
use countersign_worker::store::views::InterruptFilter;
use countersign_worker::store::{Overviews as _, Refusal, Store as _};
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use crate::support::flows::with;
use crate::support::{On, TestEngine, World, eventually};

engine!(
    thousands_of_answers_over_many_threads_are_one_request,
    one_refused_answer_keeps_a_whole_from_being_recorded,
    a_batch_races_single_answers_and_each_question_is_decided_once,
);

const QUESTIONS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Programs that decide; nobody is sent a mail.
fn clerk(number: u32) -> Principal {
    Principal::service(&format!("desk-{number}"))
}

fn desk(number: u32) -> Approver {
    Approver::Principal(clerk(number))
}

/// Five questions side by side.
fn asks_five() -> CompiledGraph {
    let mut graph = countersign_kernel::graph::GraphBuilder::new("five", 1);
    graph.key("got", Reducer::Merge);
    for node in QUESTIONS {
        let body = with(&Arc::new(node), |cx, node| async move {
            let decision = cx.ask(approval(format!("{node}?")).to(desk(1)).to(desk(2))).await?;
            Ok(countersign_kernel::state::Writes::none().with("got", &BTreeMap::from([(*node, decision.approved)])))
        });
        graph.node(node, body).edge(START, node).edge(node, END_NAME);
    }
    graph.compile().expect("sound")
}

fn world() -> World {
    World::one(asks_five).configured(|config| config.events = false)
}

/// Starts threads, and waits until each asks its five questions.
async fn asking(engine: &TestEngine, threads: usize) -> Vec<InterruptId> {
    let starts = futures_util::stream::iter(0..threads).map(|_| engine.start("five", json!({}))).buffer_unordered(256);
    let started: Vec<ThreadId> = starts.collect().await;
    assert_eq!(started.len(), threads);
    eventually("all ask", async || {
        let counts = engine.store.counts().await.expect("counts");
        (counts.requests_open == 5 * threads as u64).then_some(())
    })
    .await;
    let filter = InterruptFilter { status: Some("open".to_owned()), ..InterruptFilter::default() };
    let found = engine.store.interrupts(&filter, None, u32::MAX).await.expect("listed");
    found.into_iter().map(|view| view.id).collect()
}

fn votes(ids: &[InterruptId], who: &Principal, answer: &Value) -> Vec<VoteRequest> {
    let vote = |interrupt: &InterruptId| VoteRequest {
        interrupt: interrupt.clone(),
        principal: who.clone(),
        operator: false,
        answer: answer.clone(),
        revision: None,
        content_hash: None,
        via: Via { channel: "api", identified: "token" },
    };
    ids.iter().map(vote).collect()
}

fn count(outcomes: &BTreeMap<InterruptId, BatchOutcome>, of: fn(&BatchOutcome) -> bool) -> usize {
    outcomes.values().filter(|outcome| of(outcome)).count()
}

fn recorded(outcome: &BatchOutcome) -> bool {
    matches!(outcome, BatchOutcome::Voted(voted) if voted.decided && !voted.repeated)
}

async fn thousands_of_answers_over_many_threads_are_one_request() {
    let world = world();
    let engine = world.engine().await;
    // On Postgres fewer, for the time it takes.
    let threads = 2_000 / On::one_of() as usize;
    let answers = 5 * threads;
    let ids = asking(&engine, threads).await;
    let yes = json!({"approved": true});
    let answering = engine.engine.vote_many(votes(&ids, &clerk(1), &yes), Together::All, &|_| true);
    // Others write meanwhile.
    let others = async {
        for _ in 0..20 {
            engine.start("five", json!({})).await;
        }
    };
    let (outcomes, ()) = tokio::join!(answering, others);
    let outcomes = outcomes.expect("judged and recorded");
    assert_eq!((outcomes.len(), count(&outcomes, recorded)), (answers, answers));
    let again = engine.engine.vote_many(votes(&ids, &clerk(1), &yes), Together::All, &|_| true).await.expect("judged");
    let repeated = |outcome: &BatchOutcome| matches!(outcome, BatchOutcome::Voted(voted) if voted.repeated);
    assert_eq!(count(&again, repeated), answers, "the same again changes nothing and says so");
    eventually("all finish", async || {
        let counted = engine.store.counts().await.expect("counts").threads;
        counted.contains(&("succeeded".to_owned(), threads as u64)).then_some(())
    })
    .await;
    assert_eq!(world.count("answers WHERE consumed_by IS NOT NULL").await, answers as i64);
    assert_eq!(world.count("audit WHERE action = 'decided'").await, answers as i64);
}

async fn one_refused_answer_keeps_a_whole_from_being_recorded() {
    let world = world();
    let engine = world.engine().await;
    let ids = asking(&engine, 3).await;
    let yes = json!({"approved": true});
    let mut mixed = votes(&ids, &clerk(1), &yes);
    mixed[7] = votes(&ids[7..8], &clerk(3), &yes).remove(0);
    let judged = engine.engine.vote_many(mixed.clone(), Together::All, &|_| true).await.expect("judged");
    assert!(
        matches!(&judged[&ids[7]], BatchOutcome::Refused(error) if error.to_string().contains("desk-3")),
        "{judged:?}"
    );
    assert_eq!((judged.len(), count(&judged, |outcome| matches!(outcome, BatchOutcome::LeftOut))), (15, 14));
    assert_eq!(world.count("votes").await, 0);
    // Of a flow that the caller does not see, nothing is known.
    let unseen =
        engine.engine.vote_many(mixed.clone(), Together::Each, &|graph| graph != "five").await.expect("judged");
    assert!(unseen.iter().all(|(id, outcome)| matches!(outcome, BatchOutcome::Refused(error)
        if error.to_string() == Refusal::UnknownInterrupt(id.clone()).to_string())));
    // Thread by thread, only that of the refused answer is left out.
    let threads = engine.engine.vote_many(mixed.clone(), Together::Thread, &|_| true).await.expect("recorded");
    assert_eq!((count(&threads, recorded), world.count("votes").await), (10, 10));
    let each = engine.engine.vote_many(mixed, Together::Each, &|_| true).await.expect("recorded");
    assert_eq!((count(&each, recorded), world.count("votes").await), (4, 14));
    let thread = engine.store.interrupt(&ids[7]).await.expect("there").thread;
    assert_eq!(engine.store.thread(&thread).await.expect("there").summary.open, 1);
}

async fn a_batch_races_single_answers_and_each_question_is_decided_once() {
    let world = world();
    let (one, two) = (world.engine().await, 20);
    let ids = asking(&one, two).await;
    let singles =
        futures_util::stream::iter(&ids).map(async |id| one.vote(id, &clerk(2), json!({"approved": false})).await);
    let singles =
        async { singles.buffer_unordered(16).filter(|voted| std::future::ready(voted.is_ok())).count().await };
    let batches = async {
        let all = votes(&ids, &clerk(1), &json!({"approved": true}));
        let (a, b) = tokio::join!(
            one.engine.vote_many(all.clone(), Together::Each, &|_| true),
            one.engine.vote_many(all, Together::Each, &|_| true)
        );
        count(&a.expect("recorded"), recorded) + count(&b.expect("recorded"), recorded)
    };
    let (singles, batches) = tokio::join!(singles, batches);
    assert_eq!(singles + batches, ids.len(), "{singles} alone, {batches} in batches");
    eventually("all finish", async || {
        let threads = one.store.counts().await.expect("counts").threads;
        (threads == [("succeeded".to_owned(), 20)]).then_some(())
    })
    .await;
    assert_eq!(world.count("answers").await, ids.len() as i64);
    assert_eq!(world.count("audit WHERE action = 'decided'").await, ids.len() as i64);
}
