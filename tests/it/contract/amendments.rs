//! Amendments: a resume that changes the superstep it wakes, all or nothing (R5).

use countersign_kernel::ids::{CheckpointId, InterruptId, ThreadId};
use countersign_kernel::machine::{Resume, Source, TaskStatus};
use countersign_kernel::occurrence::PointKind;
use countersign_kernel::principal::role;
use countersign_kernel::question::approval;
use countersign_worker::store::Refusal;
use countersign_worker::store::commands::{Closing, HeadMove, PointEnd, RestAs, ResumeThread, StepCommit};
use serde_json::json;

use super::inner::{Inner, done, in_root, waiting};
use super::place::{Place, at, refused};
use crate::support::{ann, operator};

contract!(
    records_results_and_frames_go_along_with_an_amended_checkpoint,
    records_of_a_frame_go_along_with_its_amended_checkpoint,
    what_a_move_does_not_carry_stays_where_it_was,
    a_refused_answer_takes_the_amendment_down_and_a_stale_head_takes_the_answer_down,
    a_thread_that_runs_is_not_amended,
    a_finished_thread_is_woken_by_an_amendment,
    a_stop_that_brought_data_is_released_by_its_amendment,
    data_for_a_stop_is_no_vote,
    an_amendment_is_on_record,
);

/// A parked thread: `a` waits and has a result, `done` has finished, and `a`
/// runs a graph in which `b` waits and has a result.
async fn parked(place: &Place, name: &str) -> (ThreadId, Inner, InterruptId) {
    let thread = place.queued(name).await;
    let held = place.held(&thread, at(1)).await;
    let frame = in_root(&held);
    place.begin(&held, &frame).await;
    let (here, inside) = (held.body.tasks[0].address.clone(), frame.owner.address.node("b", 0));
    place.store.record_result(place.result(&held, None, 0, &here, "outer")).await.expect("recorded");
    place.store.record_result(place.result(&held, Some(&frame), 0, &inside, "inner")).await.expect("recorded");
    let question = place.question(&thread, 0, &approval("Pay?").to(role("manager")).request());
    let id = question.point.id.clone();
    let commit = StepCommit {
        tasks: vec![("a".into(), waiting()), ("done".into(), done())],
        frames: vec![place.records_in(&frame, 0, &[("b", waiting())])],
        opened: vec![question],
        rest: Some(RestAs::Parked),
        ..place.commit(&thread, held.fence, at(2))
    };
    place.store.commit(commit).await.expect("parked");
    (thread, frame, id)
}

/// The head, amended: the same tasks at checkpoint 1.
async fn amended(place: &Place, thread: &ThreadId) -> HeadMove {
    let before = place.store.load(thread).await.expect("there");
    let mut next = place.checkpoint(1, at(10));
    next.checkpoint.source = Source::Amend;
    next.checkpoint.parent = Some(before.checkpoint.id);
    next.checkpoint.superstep = 0;
    next.body = before.body;
    HeadMove { carry: true, closed: Closing::Some(Vec::new()), ..place.head(thread, next).await }
}

async fn resume(place: &Place, thread: &ThreadId, head: HeadMove) -> ResumeThread {
    ResumeThread { amended: Some(head), ..place.resume(thread, Resume::default()) }
}

async fn records_results_and_frames_go_along_with_an_amended_checkpoint(place: &Place) {
    let (thread, frame, id) = parked(place, "t").await;
    let asked = place.store.interrupt(&id).await.expect("there");
    place.store.resume(resume(place, &thread, amended(place, &thread).await).await, None).await.expect("amended");
    let held = place.held(&thread, at(11)).await;
    assert_eq!((held.seq, held.checkpoint.source, &held.open), (1, Source::Amend, &vec![id.clone()]));
    assert_eq!((held.records["a"].status, held.records["done"].status), (TaskStatus::Waiting, TaskStatus::Done));
    let here = held.body.tasks[0].address.clone();
    assert!(held.records["a"].occurrences.get(&here).expect("recorded").steps.contains_key("outer"));
    let inside = &held.frames[0];
    assert_eq!((&inside.frame, inside.owner.root_seq, inside.seq), (&frame.id, 1, 0));
    let there = frame.owner.address.node("b", 0);
    assert!(inside.records["b"].occurrences.get(&there).expect("recorded").steps.contains_key("inner"));
    assert_eq!(place.store.interrupt(&id).await.expect("there"), asked, "it waits on, the same");

    // What is written from now on belongs to the amended checkpoint.
    let late = place.result(&held, None, held.seq, &here, "late");
    place.store.record_result(late).await.expect("recorded");
    let again = place.store.load(&thread).await.expect("there");
    let steps = again.records["a"].occurrences.get(&here).expect("recorded").steps.keys().cloned().collect::<Vec<_>>();
    assert_eq!(steps, ["late", "outer"]);
}

async fn records_of_a_frame_go_along_with_its_amended_checkpoint(place: &Place) {
    let (thread, frame, _) = parked(place, "t").await;
    let head = place.store.head(&thread).await.expect("there");
    let mut inside = place.step_in(&frame, 1, at(10));
    inside.carry_from = Some(0);
    let new = inside.checkpoint.as_mut().expect("a checkpoint");
    new.checkpoint.superstep = 0;
    new.body = place.frames(&thread).await.remove(0).body;
    let moved = HeadMove {
        expected_head: head.clone(),
        next: None,
        carry: true,
        tasks: Vec::new(),
        frames: vec![inside],
        closed: Closing::Some(Vec::new()),
        opened: Vec::new(),
    };
    place.store.resume(resume(place, &thread, moved).await, None).await.expect("amended");
    let held = place.held(&thread, at(11)).await;
    assert_eq!((&held.checkpoint.id, held.seq, held.records.len()), (&head, 0, 2), "the thread's head stays");
    let inside = &held.frames[0];
    assert_eq!((inside.seq, inside.owner.root_seq, inside.records["b"].status), (1, 0, TaskStatus::Waiting));
    let there = frame.owner.address.node("b", 0);
    assert!(inside.records["b"].occurrences.get(&there).expect("recorded").steps.contains_key("inner"));
    assert_eq!(inside.values.get("m"), Some(&json!(1)));
}

async fn what_a_move_does_not_carry_stays_where_it_was(place: &Place) {
    let (thread, frame, _) = parked(place, "t").await;
    let replayed = HeadMove { carry: false, closed: Closing::All, ..amended(place, &thread).await };
    let mut command = place.new_input(&thread, true).await;
    command.head = replayed;
    place.store.move_thread(command).await.expect("moved");
    let held = place.held(&thread, at(21)).await;
    assert_eq!((held.seq, held.records.len(), held.frames.len(), held.open.len()), (1, 0, 0, 0));
    assert_eq!(place.backend.count("tasks WHERE seq = 0").await, 3, "the line that was left keeps its records");
    assert_eq!(place.store.history(&thread, Some(&frame.id), None, 10).await.expect("there").len(), 1);
}

async fn unchanged(place: &Place, thread: &ThreadId, command: ResumeThread) -> Refusal {
    let look = async || {
        let loaded = place.store.load(thread).await.expect("there");
        format!("{loaded:?} {:?} {:?}", place.actions(thread).await, place.backend.jobs().await)
    };
    let before = look().await;
    let refusal = refused(place.store.resume(command, None).await);
    assert_eq!(look().await, before, "{refusal:?} changes nothing");
    refusal
}

async fn a_refused_answer_takes_the_amendment_down_and_a_stale_head_takes_the_answer_down(place: &Place) {
    let (thread, _, id) = parked(place, "t").await;
    let command = resume(place, &thread, amended(place, &thread).await).await;
    let wrong = place.vote(&id, &ann(), &["manager"], json!({"approved": "maybe"}));
    let refusal = unchanged(place, &thread, ResumeThread { votes: vec![wrong], ..command.clone() }).await;
    assert!(matches!(refusal, Refusal::InvalidAnswer { .. }), "{refusal:?}");

    let yes = place.vote(&id, &ann(), &["manager"], json!({"approved": true}));
    let mut stale = ResumeThread { votes: vec![yes], ..command };
    stale.amended.as_mut().expect("some").expected_head = CheckpointId::parse("elsewhere").expect("an id");
    assert_eq!(unchanged(place, &thread, stale.clone()).await, Refusal::ThreadChanged);
    assert_eq!(place.backend.count("votes").await, 0);

    stale.amended = Some(amended(place, &thread).await);
    place.store.resume(stale, None).await.expect("both fit");
    let held = place.held(&thread, at(11)).await;
    assert_eq!((held.seq, held.wake.answers.len()), (1, 1));
}

async fn a_thread_that_runs_is_not_amended(place: &Place) {
    let (thread, _, id) = parked(place, "t").await;
    let command = resume(place, &thread, amended(place, &thread).await).await;
    let yes = place.vote(&id, &ann(), &["manager"], json!({"approved": true}));
    place.store.record_vote(yes).await.expect("accepted");
    assert_eq!(unchanged(place, &thread, command.clone()).await, Refusal::ThreadBusy, "queued");
    place.held(&thread, at(9)).await;
    assert_eq!(unchanged(place, &thread, command).await, Refusal::ThreadBusy, "running");
}

async fn a_finished_thread_is_woken_by_an_amendment(place: &Place) {
    let thread = place.queued("t").await;
    place.rest(&thread, Vec::new(), RestAs::Succeeded).await;
    let bare = place.resume(&thread, Resume::default());
    assert_eq!(unchanged(place, &thread, bare).await, Refusal::ThreadEnded("succeeded"));
    place.store.resume(resume(place, &thread, amended(place, &thread).await).await, None).await.expect("more to do");
    assert_eq!((place.status(&thread).await.as_str(), place.held(&thread, at(11)).await.seq), ("queued", 1));

    let cancelled = place.queued("cancelled").await;
    place.store.cancel(&cancelled, &operator(), at(3)).await.expect("taken");
    let command = resume(place, &cancelled, amended(place, &cancelled).await).await;
    assert_eq!(unchanged(place, &cancelled, command).await, Refusal::ThreadEnded("cancelled"));
}

async fn a_stop_that_brought_data_is_released_by_its_amendment(place: &Place) {
    let thread = place.queued("t").await;
    let (stop, asked) = (place.point(&thread, 0, PointKind::Break), place.point(&thread, 1, PointKind::Interrupt));
    let (id, other) = (stop.point.id.clone(), asked.point.id.clone());
    place.rest(&thread, vec![stop, asked], RestAs::Parked).await;
    let released = vec![(id.clone(), PointEnd::Released)];
    let head = HeadMove { closed: Closing::Some(released), ..amended(place, &thread).await };
    place.store.resume(resume(place, &thread, head).await, None).await.expect("amended");
    assert_eq!(place.store.interrupt(&id).await.expect("there").status, "released");
    assert_eq!(place.store.interrupt(&other).await.expect("there").status, "open");
    let detail = place.store.thread(&thread).await.expect("there");
    assert_eq!((detail.summary.status.as_str(), detail.summary.open), ("queued", 1));
}

async fn data_for_a_stop_is_no_vote(place: &Place) {
    for (name, kind) in [("break", PointKind::Break), ("pause", PointKind::Pause)] {
        let thread = place.queued(name).await;
        let stop = place.point(&thread, 0, kind);
        let id = stop.point.id.clone();
        place.rest(&thread, vec![stop], RestAs::Parked).await;
        let mut vote = place.vote(&id, &operator(), &[], json!({"n": 7}));
        vote.operator = true;
        let refusal = refused(place.store.record_vote(vote.clone()).await);
        assert_eq!(refusal, Refusal::CarriesUpdate { interrupt: id.clone(), thread: thread.clone() });
        assert_eq!(place.store.interrupt(&id).await.expect("there").status, "open");
        vote.answer = json!(null);
        assert!(place.store.record_vote(vote).await.expect("a bare release").decided);
    }
}

async fn an_amendment_is_on_record(place: &Place) {
    let (thread, ..) = parked(place, "t").await;
    place.store.resume(resume(place, &thread, amended(place, &thread).await).await, None).await.expect("amended");
    let entry = place.store.audit(&thread).await.expect("there").pop().expect("an entry");
    assert_eq!((entry.action.as_str(), entry.actor), ("resumed", Some(operator().to_string())));
    assert_eq!(entry.detail.expect("kept")["amends"], json!(true));
    assert_eq!(place.store.thread(&thread).await.expect("there").runs[0].kind, "resume");
}
