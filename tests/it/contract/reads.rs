//! Lists, pages, history and counts.

use countersign_kernel::ids::InterruptId;
use countersign_kernel::principal::role;
use countersign_kernel::question::approval;
use countersign_kernel::time::Timestamp;
use countersign_worker::store::Refusal;
use countersign_worker::store::commands::{CreateThread, RestAs, StepCommit};
use countersign_worker::store::views::{InterruptFilter, Keyset, ThreadFilter};
use serde_json::json;

use super::place::{Place, at, refused, thread};
use crate::support::ann;

contract!(
    threads_page_newest_first_without_gaps_or_repeats,
    threads_are_filtered_by_status_and_graph,
    interrupts_page_oldest_first_without_gaps_or_repeats,
    an_inbox_holds_what_one_may_answer,
    history_pages_backwards,
    deliveries_are_listed_by_interrupt_or_status,
    the_overview_counts,
    the_latest_twenty_runs_are_shown,
    what_is_unknown_is_refused,
    the_store_answers,
);

/// The tests' instants come in groups of equal ones.
fn tied(number: i64) -> Timestamp {
    at(number / 4)
}

async fn threads_page_newest_first_without_gaps_or_repeats(place: &Place) {
    for number in 0..23 {
        // Ids that do not sort by age.
        let create = place.create(&format!("t-{:02}", (number * 7) % 23), tied(number));
        place.store.create(create).await.expect("created");
    }
    let everything = place.store.threads(&ThreadFilter::default(), None, 100).await.expect("listed");
    assert_eq!(everything.len(), 23);
    assert!(everything.is_sorted_by(|a, b| (a.created_at, a.thread.as_str()) > (b.created_at, b.thread.as_str())));
    for size in [1, 3, 5] {
        let (mut paged, mut after) = (Vec::new(), None);
        loop {
            let page = place.store.threads(&ThreadFilter::default(), after.as_ref(), size).await.expect("listed");
            assert!(page.len() <= size as usize);
            let Some(last) = page.last() else { break };
            after = Some(Keyset { at: last.created_at, id: last.thread.as_str().to_owned() });
            paged.extend(page);
        }
        assert_eq!(paged, everything, "pages of {size}");
    }
}

async fn threads_are_filtered_by_status_and_graph(place: &Place) {
    place.queued("queued").await;
    let done = place.queued("done").await;
    place.rest(&done, Vec::new(), RestAs::Succeeded).await;
    let other = CreateThread { graph: "h".into(), ..place.create("other", at(3)) };
    place.store.create(other).await.expect("created");
    let list = async |status: Option<&str>, graph: Option<&str>| {
        let filter = ThreadFilter { status: status.map(Into::into), graph: graph.map(Into::into) };
        let found = place.store.threads(&filter, None, 10).await.expect("listed");
        found.into_iter().map(|summary| summary.thread.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(list(Some("succeeded"), None).await, ["done"]);
    assert_eq!(list(Some("queued"), None).await, ["other", "queued"]);
    assert_eq!(list(Some("queued"), Some("g")).await, ["queued"]);
    assert_eq!(list(None, Some("h")).await, ["other"]);
    assert_eq!(list(Some("held"), None).await, Vec::<String>::new());
}

/// A thread with `count` questions, asked in groups at equal instants.
async fn questions(place: &Place, name: &str, count: u32, to: &str) -> Vec<InterruptId> {
    let thread = place.queued(name).await;
    let request = approval("Pay?").to(role(to)).request();
    let mut points: Vec<_> = (0..count).map(|number| place.question(&thread, number, &request)).collect();
    for (number, opened) in (0..).zip(&mut points) {
        opened.point.asked_at = tied(number);
    }
    let ids = points.iter().map(|opened| opened.point.id.clone()).collect();
    place.rest(&thread, points, RestAs::Parked).await;
    ids
}

async fn interrupts_page_oldest_first_without_gaps_or_repeats(place: &Place) {
    let mut ids = questions(place, "one", 13, "manager").await;
    ids.extend(questions(place, "two", 9, "manager").await);
    let filter = InterruptFilter { status: Some("open".into()), ..InterruptFilter::default() };
    let everything = place.store.interrupts(&filter, None, 100).await.expect("listed");
    assert_eq!(everything.len(), ids.len());
    assert!(everything.is_sorted_by(|a, b| (a.asked_at, a.id.as_str()) < (b.asked_at, b.id.as_str())));
    for size in [1, 4] {
        let (mut paged, mut after) = (Vec::new(), None);
        loop {
            let page = place.store.interrupts(&filter, after.as_ref(), size).await.expect("listed");
            let Some(last) = page.last() else { break };
            after = Some(Keyset { at: last.asked_at, id: last.id.as_str().to_owned() });
            paged.extend(page);
        }
        assert_eq!(paged, everything, "pages of {size}");
    }
}

async fn an_inbox_holds_what_one_may_answer(place: &Place) {
    let managers = questions(place, "one", 2, "manager").await;
    let finance = questions(place, "two", 1, "finance").await;
    let inbox = async |approvers: &[&str]| {
        let filter = InterruptFilter {
            status: Some("open".into()),
            approvers: Some(approvers.iter().map(|approver| (*approver).to_owned()).collect()),
            ..InterruptFilter::default()
        };
        place
            .store
            .interrupts(&filter, None, 10)
            .await
            .expect("listed")
            .into_iter()
            .map(|view| view.id)
            .collect::<Vec<_>>()
    };
    let sorted = |mut ids: Vec<InterruptId>| {
        ids.sort();
        ids
    };
    assert_eq!(sorted(inbox(&["person:ann@example.com", "role:manager"]).await), sorted(managers.clone()));
    assert_eq!(inbox(&["role:finance"]).await, finance);
    assert_eq!(inbox(&["role:manager", "role:finance"]).await.len(), 3, "each once");
    assert_eq!(inbox(&["role:sales"]).await, []);
    let vote = place.vote(&managers[0], &ann(), &["manager"], json!({"approved": true}));
    place.store.record_vote(vote).await.expect("accepted");
    assert_eq!(inbox(&["role:manager"]).await, managers[1..]);
    let of_thread = InterruptFilter { thread: Some(thread("one")), ..InterruptFilter::default() };
    assert_eq!(place.store.interrupts(&of_thread, None, 10).await.expect("listed").len(), 2, "answered ones too");
}

async fn history_pages_backwards(place: &Place) {
    let thread = place.queued("t").await;
    let fence = place.held(&thread, at(1)).await.fence;
    for seq in 1..=6 {
        let next = place.checkpoint(seq, at(seq));
        let commit = StepCommit { checkpoint: Some(next), ..place.commit(&thread, fence, at(seq)) };
        place.store.commit(commit).await.expect("committed");
    }
    let (mut seen, mut before) = (Vec::new(), None);
    loop {
        let page = place.store.history(&thread, None, before, 3).await.expect("there");
        let Some(last) = page.last() else { break };
        before = Some(last.seq);
        seen.extend(page);
    }
    assert_eq!(seen.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [6, 5, 4, 3, 2, 1, 0]);
    assert!(seen.iter().all(|entry| entry.state["n"] == entry.seq && entry.next == ["a"]));
    assert_eq!((seen[6].source.as_str(), seen[0].source.as_str()), ("input", "loop"));
}

async fn deliveries_are_listed_by_interrupt_or_status(place: &Place) {
    let mut ids = Vec::new();
    for name in ["one", "two"] {
        let thread = place.queued(name).await;
        let mut point = place.question(&thread, 0, &approval("Pay?").to(role("manager")).request());
        place.tell(&mut point, &ann());
        ids.push(point.point.id.clone());
        place.rest(&thread, vec![point], RestAs::Parked).await;
    }
    let vote = place.vote(&ids[0], &ann(), &["manager"], json!({"approved": true}));
    place.store.record_vote(vote).await.expect("accepted");
    let list = async |interrupt: Option<&InterruptId>, status: Option<&str>| {
        let found = place.store.deliveries(interrupt, status, 10).await.expect("listed");
        found.into_iter().map(|view| (view.interrupt, view.status)).collect::<Vec<_>>()
    };
    assert_eq!(list(Some(&ids[0]), None).await, [(ids[0].clone(), "skipped".to_owned())]);
    assert_eq!(list(None, Some("pending")).await, [(ids[1].clone(), "pending".to_owned())]);
    assert_eq!(list(None, None).await.len(), 2);
    assert_eq!(place.store.deliveries(None, None, 1).await.expect("listed").len(), 1);
}

async fn the_overview_counts(place: &Place) {
    assert_eq!(place.store.counts().await.expect("counts"), Default::default());
    place.queued("queued").await;
    questions(place, "parked", 2, "manager").await;
    let overview = place.store.counts().await.expect("counts");
    let mut threads = overview.threads;
    threads.sort();
    assert_eq!(threads, [("parked".to_owned(), 1), ("queued".to_owned(), 1)]);
    assert_eq!((overview.requests_open, overview.oldest_open_request), (2, Some(at(0))));
}

async fn the_latest_twenty_runs_are_shown(place: &Place) {
    let thread = place.queued("t").await;
    place.rest(&thread, Vec::new(), RestAs::Failed { error: "a: no".into(), tasks: 1 }).await;
    let retry = countersign_kernel::machine::Resume { retry: true, ..Default::default() };
    for second in 10..35 {
        let command =
            countersign_worker::store::commands::ResumeThread { now: at(second), ..place.resume(&thread, retry) };
        place.store.resume(command, None).await.expect("accepted");
    }
    let runs = place.store.thread(&thread).await.expect("there").runs;
    assert_eq!((runs.len(), runs[0].created_at, runs[19].created_at), (20, at(34), at(15)));
}

async fn what_is_unknown_is_refused(place: &Place) {
    let unknown = thread("unknown");
    let refusal = Refusal::UnknownThread(unknown.clone());
    assert_eq!(refused(place.store.thread(&unknown).await), refusal);
    assert_eq!(refused(place.store.history(&unknown, None, None, 1).await), refusal);
    assert_eq!(refused(place.store.head(&unknown).await), refusal);
    assert_eq!(refused(place.store.load(&unknown).await), refusal);
    let id = InterruptId::parse("0".repeat(32)).expect("an id");
    assert_eq!(refused(place.store.interrupt(&id).await), Refusal::UnknownInterrupt(id));
}

async fn the_store_answers(place: &Place) {
    assert!(place.store.ping().await.is_ok());
}
