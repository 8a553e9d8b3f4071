//! Moving a head at rest: who may, what it drops, what is left of it (K15, R5, R13).

use countersign_kernel::ids::{CheckpointId, InterruptId, ThreadId};
use countersign_kernel::machine::{Resume, Source};
use countersign_kernel::occurrence::PointKind;
use countersign_kernel::principal::role;
use countersign_kernel::question::approval;
use countersign_worker::store::commands::{
    Closing, HeadMove, IdempotencyEntry, MoveThread, NewRun, OpenedPoint, PointEnd, RestAs, StepCommit,
};
use countersign_worker::store::{Accepted, Refusal};
use serde_json::json;

use super::place::{Place, at, fenced, refused, thread};
use crate::support::{ann, bob, operator};

contract!(
    a_move_from_a_checkpoint_that_is_not_the_head_is_refused,
    a_thread_that_somebody_runs_or_is_to_run_is_busy,
    what_waits_is_dropped_only_if_told_to,
    an_unknown_thread_has_no_head,
    a_move_that_drops_all_supersedes_it_and_whoever_was_asked_is_asked_no_more,
    a_move_that_closes_some_leaves_the_others_as_they_were,
    what_opens_with_a_move_is_listed_and_told,
    a_move_says_how_the_thread_rests_and_wakes_nobody,
    a_move_that_is_to_run_has_its_run_and_its_job,
    what_a_run_is_to_take_up_is_given_to_whoever_claims_it,
    a_move_is_on_record_with_its_facts,
    the_same_move_gets_the_first_reply_again,
    a_move_fences_off_and_forgets_what_was_asked_of_the_old_head,
    the_state_of_a_line_that_was_left_is_not_mixed_into_the_new_one,
);

/// A thread with two questions to managers, one of which is told to Ann.
async fn asking(place: &Place, name: &str) -> (ThreadId, Vec<InterruptId>) {
    let thread = place.queued(name).await;
    let request = approval("Pay?").to(role("manager")).request();
    let mut points: Vec<_> = (0..2).map(|number| place.question(&thread, number, &request)).collect();
    place.tell(&mut points[0], &ann());
    let ids = points.iter().map(|opened| opened.point.id.clone()).collect();
    place.rest(&thread, points, RestAs::Parked).await;
    (thread, ids)
}

/// An edit that leaves the thread at rest, at `at(20)`.
async fn edit(place: &Place, thread: &ThreadId, rest: RestAs) -> MoveThread {
    let mut next = place.checkpoint(1, at(20));
    next.checkpoint.source = Source::Update;
    MoveThread {
        head: place.head(thread, next).await,
        run: None,
        rest: Some(rest),
        action: "edited",
        detail: json!({"values": {"n": 1}}),
        ..place.new_input(thread, true).await
    }
}

/// Everything that a refused command must leave alone.
async fn whole(place: &Place, thread: &ThreadId) -> String {
    let detail = place.store.thread(thread).await.expect("there");
    let history = place.store.history(thread, None, None, 100).await.expect("there");
    let deliveries = place.store.deliveries(None, None, 100).await.expect("listed");
    format!("{detail:?} {history:?} {deliveries:?} {:?} {:?}", place.actions(thread).await, place.backend.jobs().await)
}

pub(super) async fn refuses(place: &Place, thread: &ThreadId, command: MoveThread) -> Refusal {
    let before = whole(place, thread).await;
    let refusal = refused(place.store.move_thread(command).await);
    assert_eq!(whole(place, thread).await, before, "{refusal:?} changes nothing");
    refusal
}

async fn a_move_from_a_checkpoint_that_is_not_the_head_is_refused(place: &Place) {
    let (thread, _) = asking(place, "t").await;
    let mut command = edit(place, &thread, RestAs::Parked).await;
    command.head.expected_head = CheckpointId::parse("elsewhere").expect("an id");
    assert_eq!(refuses(place, &thread, command).await, Refusal::ThreadChanged);

    // Of two that saw the same head the first wins.
    let (one, two) = (edit(place, &thread, RestAs::Parked).await, edit(place, &thread, RestAs::Parked).await);
    place.store.move_thread(one).await.expect("the first");
    assert_eq!(refuses(place, &thread, two).await, Refusal::ThreadChanged);
}

async fn a_thread_that_somebody_runs_or_is_to_run_is_busy(place: &Place) {
    let thread = place.queued("t").await;
    let command = edit(place, &thread, RestAs::Parked).await;
    assert_eq!(refuses(place, &thread, command.clone()).await, Refusal::ThreadBusy, "queued");
    let fence = place.held(&thread, at(19)).await.fence;
    assert_eq!(refuses(place, &thread, command.clone()).await, Refusal::ThreadBusy, "running");
    let lapsed = MoveThread { now: at(100), ..command.clone() };
    assert_eq!(refuses(place, &thread, lapsed).await, Refusal::ThreadBusy, "its work is still to be done");
    let rest = StepCommit { rest: Some(RestAs::Parked), ..place.commit(&thread, fence, at(20)) };
    place.store.commit(rest).await.expect("committed");
    place.store.move_thread(command).await.expect("at rest");
}

async fn what_waits_is_dropped_only_if_told_to(place: &Place) {
    let held = RestAs::Held { reason: "no graph".into() };
    let failed = RestAs::Failed { error: "a: no".into(), tasks: 1 };
    for (name, rest) in [("failed", failed), ("held", held)] {
        let thread = place.queued(name).await;
        place.rest(&thread, Vec::new(), rest).await;
        let command = MoveThread { discard_waiting: false, ..edit(place, &thread, RestAs::Parked).await };
        assert_eq!(refuses(place, &thread, command.clone()).await, Refusal::ThreadInterrupted, "{name}");
        let command = MoveThread { discard_waiting: true, ..command };
        place.store.move_thread(command).await.expect("told to");
    }
    let (parked, _) = asking(place, "parked").await;
    let command = MoveThread { discard_waiting: false, ..edit(place, &parked, RestAs::Parked).await };
    assert_eq!(refuses(place, &parked, command).await, Refusal::ThreadInterrupted);
    for (name, rest) in [("succeeded", RestAs::Succeeded), ("cancelled", RestAs::Cancelled)] {
        let thread = place.queued(name).await;
        place.rest(&thread, Vec::new(), rest).await;
        let command = MoveThread { discard_waiting: false, ..edit(place, &thread, RestAs::Parked).await };
        place.store.move_thread(command).await.expect("nothing waits there");
    }
}

async fn an_unknown_thread_has_no_head(place: &Place) {
    let known = place.queued("t").await;
    place.rest(&known, Vec::new(), RestAs::Succeeded).await;
    let command = edit(place, &known, RestAs::Parked).await;
    let command = MoveThread { thread: thread("unknown"), ..command };
    assert_eq!(refused(place.store.move_thread(command).await), Refusal::UnknownThread(thread("unknown")));
}

async fn a_move_that_drops_all_supersedes_it_and_whoever_was_asked_is_asked_no_more(place: &Place) {
    let (thread, ids) = asking(place, "t").await;
    let yes = place.vote(&ids[1], &ann(), &["manager"], json!({"approved": true}));
    place.store.record_vote(yes).await.expect("accepted");
    // Nobody took the answer up before the thread was set aside.
    let fence = place.held(&thread, at(11)).await.fence;
    let aside = RestAs::Held { reason: "no graph".into() };
    let rest = StepCommit { rest: Some(aside), ..place.commit(&thread, fence, at(12)) };
    place.store.commit(rest).await.expect("held");

    place.store.move_thread(edit(place, &thread, RestAs::Parked).await).await.expect("moved");
    let view = place.store.interrupt(&ids[0]).await.expect("there");
    assert_eq!((view.status.as_str(), view.closed_at), ("superseded", Some(at(20))));
    assert_eq!(place.store.interrupt(&ids[1]).await.expect("there").status, "answered", "it stays on record");
    let late = place.vote(&ids[0], &bob(), &["manager"], json!({"approved": true}));
    let refusal = refused(place.store.record_vote(late).await);
    assert_eq!(refusal, Refusal::Superseded { interrupt: ids[0].clone(), status: "superseded".into() });
    let counts = place.store.counts().await.expect("counts");
    assert_eq!((counts.requests_open, counts.deliveries), (0, vec![("skipped".to_owned(), 1)]));
    assert_eq!(place.backend.count("request_approvers WHERE open").await, 0);
    let loaded = place.store.load(&thread).await.expect("there");
    assert_eq!((loaded.wake.answers.len(), loaded.wake.runs.len(), loaded.open.len()), (0, 0, 0));
    let runs = place.store.thread(&thread).await.expect("there").runs;
    assert!(runs.iter().all(|run| run.finished_at.is_some()), "{runs:?}");
}

async fn a_move_that_closes_some_leaves_the_others_as_they_were(place: &Place) {
    let (thread, ids) = asking(place, "t").await;
    let before = place.store.interrupt(&ids[0]).await.expect("there");
    let mut command = edit(place, &thread, RestAs::Parked).await;
    command.head.closed = Closing::Some(vec![(ids[1].clone(), PointEnd::Superseded)]);
    place.store.move_thread(command).await.expect("moved");
    assert_eq!(place.store.interrupt(&ids[0]).await.expect("there"), before);
    assert_eq!(place.store.interrupt(&ids[1]).await.expect("there").status, "superseded");
    let detail = place.store.thread(&thread).await.expect("there");
    assert_eq!((detail.summary.open, detail.interrupts.len()), (1, 1));
    let sent = place.store.deliveries(Some(&ids[0]), None, 10).await.expect("listed");
    assert_eq!(sent.iter().map(|view| view.status.as_str()).collect::<Vec<_>>(), ["pending"]);
    let vote = place.vote(&ids[0], &ann(), &["manager"], json!({"approved": true}));
    assert!(place.store.record_vote(vote).await.expect("accepted").decided);
}

async fn what_opens_with_a_move_is_listed_and_told(place: &Place) {
    let (thread, ids) = asking(place, "t").await;
    let mut asked: OpenedPoint = place.question(&thread, 7, &approval("Again?").to(role("manager")).request());
    let (delivery, job) = place.tell(&mut asked, &bob());
    let pause = place.point(&thread, 8, PointKind::Pause);
    let id = asked.point.id.clone();
    let mut command = edit(place, &thread, RestAs::Parked).await;
    command.head.opened = vec![asked, pause];
    place.store.move_thread(command).await.expect("moved");
    let detail = place.store.thread(&thread).await.expect("there");
    assert_eq!((detail.summary.status.as_str(), detail.summary.open), ("parked", 2));
    assert!(detail.interrupts.iter().all(|view| !ids.contains(&view.id)));
    let sent = place.store.deliveries(Some(&id), None, 10).await.expect("listed");
    assert_eq!(sent.iter().map(|view| &view.delivery).collect::<Vec<_>>(), [&delivery]);
    assert!(place.backend.jobs().await.contains(&job.to_string()));
}

async fn a_move_says_how_the_thread_rests_and_wakes_nobody(place: &Place) {
    let failed = RestAs::Failed { error: "b: broken".into(), tasks: 2 };
    for (name, rest) in [("parked", RestAs::Parked), ("failed", failed), ("succeeded", RestAs::Succeeded)] {
        let thread = place.queued(name).await;
        place.rest(&thread, Vec::new(), RestAs::Failed { error: "a: no".into(), tasks: 1 }).await;
        let jobs = place.backend.jobs().await;
        let command = MoveThread { thread: thread.clone(), ..edit(place, &thread, rest).await };
        assert_eq!(place.store.move_thread(command).await.expect("moved"), Accepted::Committed(None));
        assert_eq!(place.backend.jobs().await, jobs);
        let detail = place.store.thread(&thread).await.expect("there");
        assert_eq!((detail.summary.status.as_str(), &detail.state["n"]), (name, &json!(1)));
        let said = (detail.summary.error.as_deref(), detail.summary.failed_tasks);
        assert_eq!(said, if name == "failed" { (Some("b: broken"), 2) } else { (None, 0) });
        assert_eq!(detail.runs.len(), 1, "an edit is no run");
    }
}

async fn a_move_that_is_to_run_has_its_run_and_its_job(place: &Place) {
    for kind in ["start", "replay", "fork"] {
        let thread = place.queued(kind).await;
        place.rest(&thread, Vec::new(), RestAs::Succeeded).await;
        let run = NewRun { run: place.run(), kind, resume: Resume::default() };
        let command = MoveThread { run: Some(run.clone()), ..place.new_input(&thread, true).await };
        let (job, head) = (command.job, command.head.next.clone().expect("a checkpoint").checkpoint.id);
        let Ok(Accepted::Committed(Some(message))) = place.store.move_thread(command).await else { panic!("{kind}") };
        assert_eq!((message.id, &message.thread), (job, &thread));
        assert!(place.backend.jobs().await.contains(&job.to_string()));
        let detail = place.store.thread(&thread).await.expect("there");
        assert_eq!((detail.summary.status.as_str(), &detail.head), ("queued", &head));
        let runs: Vec<_> = detail.runs.iter().map(|run| (run.kind.as_str(), run.status.as_str())).collect();
        assert!(runs.contains(&(kind, "queued")) && runs.contains(&("start", "succeeded")), "{runs:?}");
        let held = place.held(&thread, at(21)).await;
        assert_eq!((&held.checkpoint.id, held.seq, held.wake.is_empty()), (&head, 1, true));
    }
}

async fn what_a_run_is_to_take_up_is_given_to_whoever_claims_it(place: &Place) {
    let thread = place.queued("t").await;
    place.rest(&thread, Vec::new(), RestAs::Succeeded).await;
    let limit = Resume { supersteps: Some(3), ..Resume::default() };
    let run = NewRun { run: place.run(), kind: "replay", resume: limit };
    let id = run.run.clone();
    let command = MoveThread { run: Some(run), ..place.new_input(&thread, true).await };
    place.store.move_thread(command).await.expect("moved");
    let held = place.held(&thread, at(21)).await;
    assert_eq!((held.wake.resume, held.wake.runs.clone()), (limit, vec![id.clone()]));
    let taken = StepCommit { runs: vec![id], rest: Some(RestAs::Parked), ..place.commit(&thread, held.fence, at(22)) };
    place.store.commit(StepCommit { seq: 1, ..taken }).await.expect("committed");
    assert_eq!(place.store.load(&thread).await.expect("there").wake.runs.len(), 0);
}

async fn a_move_is_on_record_with_its_facts(place: &Place) {
    let (thread, _) = asking(place, "t").await;
    place.store.move_thread(edit(place, &thread, RestAs::Parked).await).await.expect("moved");
    let entry = place.store.audit(&thread).await.expect("there").pop().expect("an entry");
    assert_eq!((entry.action.as_str(), entry.actor, entry.at), ("edited", Some(bob().to_string()), at(20)));
    assert_eq!(entry.detail.expect("kept")["values"], json!({"n": 1}));
    assert_eq!(place.store.verify_audit(&thread).await.expect("verified"), None);
}

async fn the_same_move_gets_the_first_reply_again(place: &Place) {
    let (thread, _) = asking(place, "t").await;
    let entry = |hash: &str, body: &str| {
        Some(IdempotencyEntry {
            scope: "s".into(),
            key: "k".into(),
            request_hash: hash.into(),
            status: 200,
            body: body.into(),
        })
    };
    let first = MoveThread { idempotency: entry("h", "first"), ..edit(place, &thread, RestAs::Parked).await };
    let other = MoveThread { idempotency: entry("other", "x"), ..first.clone() };
    place.store.move_thread(first.clone()).await.expect("moved");
    let before = whole(place, &thread).await;
    // The head has moved since, which a request of its own would be refused for.
    let again = place.store.move_thread(MoveThread { idempotency: entry("h", "second"), ..first }).await;
    assert_eq!(again.expect("no refusal"), Accepted::Replayed { status: 200, body: "first".into() });
    assert_eq!(refused(place.store.move_thread(other).await), Refusal::KeyReused);
    assert_eq!(whole(place, &thread).await, before);
    assert_eq!(place.store.repeated("s", "k", "h").await.expect("known"), Some((200, "first".into())));
}

async fn a_move_fences_off_and_forgets_what_was_asked_of_the_old_head(place: &Place) {
    let (thread, _) = asking(place, "t").await;
    let old = place.store.load(&thread).await.expect("there").fence;
    place.store.pause(&thread, &operator(), place.job(), at(5)).await.expect("asked for");
    let held = place.held(&thread, at(6)).await;
    assert!(held.wake.pause);
    // The pause is not made before the worker is lost, and the thread is set aside.
    let aside = RestAs::Held { reason: "no graph".into() };
    let rest = StepCommit { rest: Some(aside), ..place.commit(&thread, held.fence, at(7)) };
    place.store.commit(rest).await.expect("held");

    place.store.move_thread(place.new_input(&thread, true).await).await.expect("moved");
    fenced(place.store.commit(place.commit(&thread, held.fence, at(21))).await);
    fenced(place.store.commit(place.commit(&thread, old, at(21))).await);
    let again = place.held(&thread, at(22)).await;
    assert!(again.fence > held.fence && !again.wake.pause && !again.wake.cancel);
    assert_eq!(place.store.thread(&thread).await.expect("there").summary.held_reason, None);
}

async fn the_state_of_a_line_that_was_left_is_not_mixed_into_the_new_one(place: &Place) {
    use countersign_kernel::state::Change;
    use countersign_worker::store::commands::KeyAt;
    let thread = place.queued("t").await;
    let fence = place.held(&thread, at(1)).await.fence;
    let appending = |place: &Place, seq: i64, branch: i64, until: &[(i64, u64)], item: &str| {
        let mut next = place.checkpoint(seq, at(seq));
        next.branch = branch;
        next.changes.push(("log".into(), Change::Appended(vec![json!(item)])));
        next.keys.insert("log".into(), KeyAt::Items(until.to_vec()));
        next
    };
    for (seq, item) in [(1, "a"), (2, "b"), (3, "c")] {
        let until = [(0, u64::try_from(seq).expect("small"))];
        let next = appending(place, seq, 0, &until, item);
        let commit = StepCommit { checkpoint: Some(next), seq, ..place.commit(&thread, fence, at(seq)) };
        place.store.commit(commit).await.expect("committed");
    }
    let rest = StepCommit { rest: Some(RestAs::Succeeded), seq: 3, ..place.commit(&thread, fence, at(4)) };
    place.store.commit(rest).await.expect("committed");

    // From checkpoint 1 on, twice: each on a line of its own.
    for (seq, item) in [(4, "x"), (5, "y")] {
        let next = appending(place, seq, seq, &[(0, 1), (seq, 2)], item);
        let head: HeadMove = place.head(&thread, next).await;
        let command = MoveThread { head, rest: Some(RestAs::Parked), ..place.new_input(&thread, true).await };
        place.store.move_thread(command).await.expect("moved");
    }
    assert_eq!(place.store.load(&thread).await.expect("there").branch, 5);
    let history = place.store.history(&thread, None, None, 10).await.expect("there");
    let logs: Vec<_> = history.iter().map(|entry| entry.state.get("log").cloned().unwrap_or_default()).collect();
    let expected =
        [json!(["a", "y"]), json!(["a", "x"]), json!(["a", "b", "c"]), json!(["a", "b"]), json!(["a"]), json!(null)];
    assert_eq!(logs, expected);
}
