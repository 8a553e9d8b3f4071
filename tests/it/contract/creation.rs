//! Starting threads, and giving them new input.

use countersign_kernel::machine::Resume;
use countersign_kernel::occurrence::PointKind;
use countersign_kernel::question::approval;
use countersign_worker::queue::JobKind;
use countersign_worker::store::commands::{CreateThread, IdempotencyEntry, MoveThread, RestAs};
use countersign_worker::store::{Accepted, Refusal};
use serde_json::json;

use super::place::{Place, at, refused, thread};
use crate::support::{ann, bob};

contract!(
    everything_of_a_start_exists_once_it_is_accepted,
    a_refused_start_leaves_nothing,
    the_same_request_gets_the_first_reply_again,
    a_key_with_another_body_is_refused,
    a_reply_is_remembered_for_a_day_and_no_longer,
    the_same_new_input_gets_the_first_reply_again,
    a_known_thread_says_whether_the_input_is_the_same,
    a_start_that_stops_before_the_first_node_is_parked_and_wakes_nobody,
    what_a_start_asks_of_its_run_is_taken_up_unless_it_stops,
    new_input_replaces_what_waited_only_if_told_to,
    new_input_on_a_head_that_moved_is_refused,
    new_input_while_somebody_holds_the_thread_is_refused,
    new_input_fences_off_whoever_held_the_thread_before,
);

fn keyed(key: &str, hash: &str, body: &str) -> Option<IdempotencyEntry> {
    Some(IdempotencyEntry {
        scope: "person:ann@example.com POST /threads".into(),
        key: key.into(),
        request_hash: hash.into(),
        status: 202,
        body: body.into(),
    })
}

async fn everything_of_a_start_exists_once_it_is_accepted(place: &Place) {
    let command = place.create("t", at(0));
    let (job, head) = (command.job, command.first.checkpoint.id.clone());
    let Ok(Accepted::Committed(Some(message))) = place.store.create(command).await else { panic!("not created") };
    assert_eq!((message.id, message.kind, message.thread.as_str()), (job, JobKind::Advance, "t"));
    assert_eq!(place.backend.jobs().await, [job.to_string()]);

    let detail = place.store.thread(&thread("t")).await.expect("there");
    assert_eq!((detail.summary.status.as_str(), detail.summary.started_by), ("queued", ann()));
    assert_eq!((detail.head, detail.next), (head.clone(), vec!["a".to_owned()]));
    assert_eq!(detail.state["n"], 0);
    assert_eq!(
        detail.runs.iter().map(|run| (run.kind.as_str(), run.status.as_str())).collect::<Vec<_>>(),
        [("start", "queued")]
    );
    assert_eq!(place.store.head(&thread("t")).await.expect("there"), head);
    assert_eq!(place.actions(&thread("t")).await, ["started"]);
}

async fn a_refused_start_leaves_nothing(place: &Place) {
    let first = place.queued("t").await;
    let jobs = place.backend.jobs().await;
    let again = CreateThread { idempotency: keyed("k", "h", "second"), ..place.create("t", at(1)) };
    refused(place.store.create(again).await);
    assert_eq!(place.backend.jobs().await, jobs);
    assert_eq!(place.store.history(&first, None, None, 10).await.expect("there").len(), 1);
    assert_eq!(place.backend.count("runs").await, 1);
    assert_eq!(place.backend.count("idempotency").await, 0, "a refusal is no first reply");
}

async fn the_same_request_gets_the_first_reply_again(place: &Place) {
    let first = CreateThread { idempotency: keyed("k", "h", "first"), ..place.create("one", at(0)) };
    assert!(matches!(place.store.create(first).await, Ok(Accepted::Committed(Some(_)))));
    // The repetition carries fresh ids, as a request without a thread id does.
    let again = CreateThread { idempotency: keyed("k", "h", "second"), ..place.create("two", at(5)) };
    let replayed = place.store.create(again).await.expect("no refusal");
    assert_eq!(replayed, Accepted::Replayed { status: 202, body: "first".into() });
    assert_eq!(refused(place.store.thread(&thread("two")).await), Refusal::UnknownThread(thread("two")));
    assert_eq!(place.backend.jobs().await.len(), 1);
}

async fn a_key_with_another_body_is_refused(place: &Place) {
    let first = CreateThread { idempotency: keyed("k", "h", "first"), ..place.create("one", at(0)) };
    place.store.create(first).await.expect("created");
    let other = CreateThread { idempotency: keyed("k", "other", "x"), ..place.create("two", at(1)) };
    assert_eq!(refused(place.store.create(other).await), Refusal::KeyReused);
    assert_eq!(place.backend.count("threads").await, 1);
    let elsewhere =
        IdempotencyEntry { scope: "service:x POST /threads".into(), ..keyed("k", "other", "x").expect("some") };
    let elsewhere = CreateThread { idempotency: Some(elsewhere), ..place.create("three", at(1)) };
    assert!(matches!(place.store.create(elsewhere).await, Ok(Accepted::Committed(_))), "a key is its scope's own");
}

async fn a_reply_is_remembered_for_a_day_and_no_longer(place: &Place) {
    let day = 24 * 3600;
    let start = |thread: &'static str, seconds| CreateThread {
        idempotency: keyed("k", "h", "first"),
        ..place.create(thread, at(seconds))
    };
    place.store.create(start("one", 0)).await.expect("created");
    assert_eq!(place.store.tidy(at(day)).await.expect("tidied"), 0);
    assert!(matches!(place.store.create(start("two", day)).await, Ok(Accepted::Replayed { .. })));
    assert_eq!(place.store.tidy(at(day + 1)).await.expect("tidied"), 1);
    assert!(matches!(place.store.create(start("two", day + 1)).await, Ok(Accepted::Committed(_))));
}

async fn the_same_new_input_gets_the_first_reply_again(place: &Place) {
    let (thread, _) = place.asking("t", approval("Pay?")).await;
    let first = MoveThread { idempotency: keyed("k", "h", "first"), ..place.new_input(&thread, true).await };
    assert!(matches!(place.store.move_thread(first.clone()).await, Ok(Accepted::Committed(Some(_)))));
    // The thread has moved on, which a request of its own would be refused for.
    let again = place
        .store
        .move_thread(MoveThread { run: place.new_input(&thread, true).await.run, ..first })
        .await
        .expect("no refusal");
    assert_eq!(again, Accepted::Replayed { status: 202, body: "first".into() });
    assert_eq!(place.store.thread(&thread).await.expect("there").runs.len(), 2);
}

async fn a_known_thread_says_whether_the_input_is_the_same(place: &Place) {
    let id = place.queued("t").await;
    let same = refused(place.store.create(place.create("t", at(1))).await);
    assert_eq!(same, Refusal::ThreadExists { thread: id.clone(), same_input: true });
    let other = CreateThread { input_hash: "other".into(), ..place.create("t", at(1)) };
    assert_eq!(refused(place.store.create(other).await), Refusal::ThreadExists { thread: id, same_input: false });
}

async fn a_start_that_stops_before_the_first_node_is_parked_and_wakes_nobody(place: &Place) {
    let stop = place.point(&thread("t"), 0, PointKind::Break);
    let command = CreateThread { opened: vec![stop], ..place.create("t", at(0)) };
    assert_eq!(place.store.create(command).await.expect("created"), Accepted::Committed(None));
    let detail = place.store.thread(&thread("t")).await.expect("there");
    assert_eq!((detail.summary.status.as_str(), detail.summary.open), ("parked", 1));
    assert_eq!(detail.interrupts[0].kind, "break");
    assert_eq!(place.backend.jobs().await, Vec::<String>::new());
}

async fn what_a_start_asks_of_its_run_is_taken_up_unless_it_stops(place: &Place) {
    let limit = Resume { supersteps: Some(3), ..Resume::default() };
    place.store.create(CreateThread { resume: limit, ..place.create("t", at(0)) }).await.expect("created");
    let held = place.held(&thread("t"), at(1)).await;
    assert_eq!((held.wake.resume, held.wake.runs.len()), (limit, 1));
    let stop = place.point(&thread("stops"), 0, PointKind::Break);
    let command = CreateThread { resume: limit, opened: vec![stop], ..place.create("stops", at(0)) };
    place.store.create(command).await.expect("created");
    assert!(place.store.load(&thread("stops")).await.expect("there").wake.is_empty());
}

async fn new_input_replaces_what_waited_only_if_told_to(place: &Place) {
    let (thread, id) = place.asking("t", approval("Pay?")).await;
    let before = place.store.thread(&thread).await.expect("there");
    assert_eq!(
        refused(place.store.move_thread(place.new_input(&thread, false).await).await),
        Refusal::ThreadInterrupted
    );
    assert_eq!(place.store.thread(&thread).await.expect("there"), before);

    let command = place.new_input(&thread, true).await;
    let job = command.job;
    assert!(matches!(place.store.move_thread(command).await, Ok(Accepted::Committed(Some(_)))));
    let after = place.store.thread(&thread).await.expect("there");
    assert_eq!((after.summary.status.as_str(), after.summary.open, &after.state["n"]), ("queued", 0, &json!(1)));
    assert_eq!(place.store.interrupt(&id).await.expect("there").status, "superseded");
    assert!(place.backend.jobs().await.contains(&job.to_string()));
    let late = place.vote(&id, &bob(), &["approver"], json!({"approved": true}));
    assert_eq!(
        refused(place.store.record_vote(late).await),
        Refusal::Superseded { interrupt: id, status: "superseded".into() }
    );
}

async fn new_input_on_a_head_that_moved_is_refused(place: &Place) {
    let thread = place.queued("t").await;
    place.rest(&thread, Vec::new(), RestAs::Succeeded).await;
    let (one, two) = (place.new_input(&thread, true).await, place.new_input(&thread, true).await);
    place.store.move_thread(one).await.expect("the first is accepted");
    let fence = place.held(&thread, at(21)).await.fence;
    let rest = countersign_worker::store::commands::StepCommit {
        rest: Some(RestAs::Succeeded),
        ..place.commit(&thread, fence, at(22))
    };
    place.store.commit(rest).await.expect("committed");
    assert_eq!(refused(place.store.move_thread(two).await), Refusal::ThreadChanged);
    assert_eq!(place.store.history(&thread, None, None, 10).await.expect("there").len(), 2);
}

async fn new_input_while_somebody_holds_the_thread_is_refused(place: &Place) {
    let thread = place.queued("t").await;
    assert_eq!(refused(place.store.move_thread(place.new_input(&thread, true).await).await), Refusal::ThreadBusy);
    place.held(&thread, at(19)).await;
    assert_eq!(refused(place.store.move_thread(place.new_input(&thread, true).await).await), Refusal::ThreadBusy);
    assert_eq!(place.status(&thread).await, "running");
}

async fn new_input_fences_off_whoever_held_the_thread_before(place: &Place) {
    let thread = place.queued("t").await;
    let old = place.held(&thread, at(1)).await.fence;
    let rest = place.commit(&thread, old, at(2));
    let rest = countersign_worker::store::commands::StepCommit { rest: Some(RestAs::Succeeded), ..rest };
    place.store.commit(rest).await.expect("committed");
    place.store.move_thread(place.new_input(&thread, false).await).await.expect("restarted");
    super::place::fenced(place.store.commit(place.commit(&thread, old, at(21))).await);
    assert!(place.held(&thread, at(22)).await.fence > old);
}
