//! Resumes: answers and flags of one request, all or nothing (R1).

use countersign_kernel::ids::{InterruptId, ThreadId};
use countersign_kernel::machine::Resume;
use countersign_kernel::occurrence::PointKind;
use countersign_kernel::principal::role;
use countersign_kernel::question::approval;
use countersign_worker::store::commands::{IdempotencyEntry, PointEnd, RecordVote, RestAs, ResumeThread, StepCommit};
use countersign_worker::store::{Accepted, Refusal};
use serde_json::json;

use super::place::{Place, at, refused, thread};
use crate::support::{ann, bob};

contract!(
    several_answers_are_one_resume,
    one_bad_id_and_nothing_is_recorded,
    an_id_of_another_thread_is_unknown_and_nothing_is_recorded,
    continue_needs_a_break_or_a_pause,
    retry_needs_a_failed_task,
    resume_all_needs_something_open,
    an_ended_thread_is_not_resumed,
    an_ended_thread_says_what_became_of_its_points,
    an_unknown_thread_is_not_resumed,
    flags_of_several_resumes_are_taken_up_together,
    a_resume_of_a_running_thread_is_accepted,
    a_vote_that_decides_nothing_wakes_nobody,
    a_repeated_resume_gets_the_first_reply,
);

const NOTHING: Resume = Resume { release: false, retry: false, resume_all: false, supersteps: None };
const CONTINUE: Resume = Resume { release: true, ..NOTHING };
const RETRY: Resume = Resume { retry: true, ..NOTHING };
const RESUME_ALL: Resume = Resume { resume_all: true, ..NOTHING };

async fn two_questions(place: &Place, name: &str) -> (ThreadId, Vec<InterruptId>) {
    let thread = place.queued(name).await;
    let request = approval("Pay?").to(role("manager")).request();
    let points: Vec<_> = (0..2).map(|number| place.question(&thread, number, &request)).collect();
    let ids = points.iter().map(|opened| opened.point.id.clone()).collect();
    place.rest(&thread, points, RestAs::Parked).await;
    (thread, ids)
}

fn yes(place: &Place, id: &InterruptId) -> RecordVote {
    place.vote(id, &ann(), &["manager"], json!({"approved": true}))
}

async fn several_answers_are_one_resume(place: &Place) {
    let (thread, ids) = two_questions(place, "t").await;
    let jobs = place.backend.jobs().await.len();
    let votes = ids.iter().map(|id| yes(place, id)).collect();
    let command = ResumeThread { votes, ..place.resume(&thread, Resume::default()) };
    let run = command.run.clone();
    assert!(matches!(place.store.resume(command, None).await, Ok(Accepted::Committed(Some(_)))));
    assert_eq!(place.backend.jobs().await.len(), jobs + 1, "one wake-up");
    let held = place.held(&thread, at(11)).await;
    assert_eq!(held.wake.answers.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>(), ids);
    assert_eq!(held.wake.runs, [run]);
    assert_eq!(place.store.thread(&thread).await.expect("there").runs[0].kind, "resume");
}

async fn unchanged(place: &Place, thread: &ThreadId, command: ResumeThread) -> Refusal {
    let before = (place.store.thread(thread).await.expect("there"), place.backend.jobs().await);
    let refusal = refused(place.store.resume(command, None).await);
    let after = (place.store.thread(thread).await.expect("there"), place.backend.jobs().await);
    assert_eq!(after, before, "{refusal:?} changes nothing");
    refusal
}

async fn one_bad_id_and_nothing_is_recorded(place: &Place) {
    let (thread, ids) = two_questions(place, "t").await;
    let unknown = InterruptId::parse("0".repeat(32)).expect("an id");
    let votes = vec![yes(place, &ids[0]), yes(place, &unknown)];
    let command = ResumeThread { votes, ..place.resume(&thread, Resume::default()) };
    assert_eq!(unchanged(place, &thread, command).await, Refusal::UnknownInterrupt(unknown));

    let stranger = place.vote(&ids[1], &bob(), &["sales"], json!({"approved": true}));
    let votes = vec![yes(place, &ids[0]), stranger];
    let command = ResumeThread { votes, ..place.resume(&thread, Resume::default()) };
    assert!(matches!(unchanged(place, &thread, command).await, Refusal::NotAllowed { .. }));
    assert_eq!((place.backend.count("votes").await, place.backend.count("answers").await), (0, 0));
    assert_eq!(place.actions(&thread).await, ["started"]);
}

async fn an_id_of_another_thread_is_unknown_and_nothing_is_recorded(place: &Place) {
    let (thread, ids) = two_questions(place, "t").await;
    let (_, foreign) = place.asking("other", approval("Pay?").to(role("manager"))).await;
    let votes = vec![yes(place, &ids[0]), yes(place, &foreign)];
    let command = ResumeThread { votes, ..place.resume(&thread, Resume::default()) };
    assert_eq!(unchanged(place, &thread, command).await, Refusal::UnknownInterrupt(foreign.clone()));
    assert_eq!(place.store.interrupt(&foreign).await.expect("there").status, "open");
}

async fn continue_needs_a_break_or_a_pause(place: &Place) {
    let (asking, _) = two_questions(place, "asking").await;
    assert_eq!(unchanged(place, &asking, place.resume(&asking, CONTINUE)).await, Refusal::NothingToContinue);
    for (name, kind) in [("broken", PointKind::Break), ("paused", PointKind::Pause)] {
        let thread = place.queued(name).await;
        let stop = place.point(&thread, 0, kind);
        place.rest(&thread, vec![stop], RestAs::Parked).await;
        place.store.resume(place.resume(&thread, CONTINUE), None).await.expect("released");
        assert_eq!(place.held(&thread, at(11)).await.wake.resume, CONTINUE);
    }
}

async fn retry_needs_a_failed_task(place: &Place) {
    let (asking, _) = two_questions(place, "asking").await;
    assert_eq!(unchanged(place, &asking, place.resume(&asking, RETRY)).await, Refusal::NothingToRetry);
    let thread = place.queued("failed").await;
    place.rest(&thread, Vec::new(), RestAs::Failed { error: "a: no".into(), tasks: 1 }).await;
    place.store.resume(place.resume(&thread, RETRY), None).await.expect("retried");
    assert_eq!(place.held(&thread, at(11)).await.wake.resume, RETRY);
}

async fn resume_all_needs_something_open(place: &Place) {
    let (asking, ids) = two_questions(place, "asking").await;
    place.store.resume(place.resume(&asking, RESUME_ALL), None).await.expect("resumed");
    let held = place.held(&asking, at(11)).await;
    assert_eq!((held.wake.resume, held.wake.answers.len()), (RESUME_ALL, 0), "it carries no answer");
    assert_eq!(place.store.interrupt(&ids[0]).await.expect("there").status, "open");
    let thread = place.queued("failed").await;
    place.rest(&thread, Vec::new(), RestAs::Failed { error: "a: no".into(), tasks: 1 }).await;
    assert_eq!(unchanged(place, &thread, place.resume(&thread, RESUME_ALL)).await, Refusal::NothingPending);
}

async fn an_ended_thread_is_not_resumed(place: &Place) {
    for (name, rest) in [("succeeded", RestAs::Succeeded), ("cancelled", RestAs::Cancelled)] {
        let thread = place.queued(name).await;
        place.rest(&thread, Vec::new(), rest).await;
        for resume in [CONTINUE, RETRY, RESUME_ALL, Resume::default()] {
            assert_eq!(unchanged(place, &thread, place.resume(&thread, resume)).await, Refusal::ThreadEnded(name));
        }
    }
}

async fn an_ended_thread_says_what_became_of_its_points(place: &Place) {
    for name in ["succeeded", "cancelled"] {
        let (thread, ids) = two_questions(place, name).await;
        place.store.record_vote(yes(place, &ids[0])).await.expect("accepted");
        let fence = place.held(&thread, at(11)).await.fence;
        let end = StepCommit {
            consumed: vec![ids[0].clone()],
            closed: vec![(ids[1].clone(), PointEnd::Withdrawn)],
            rest: Some(if name == "succeeded" { RestAs::Succeeded } else { RestAs::Cancelled }),
            ..place.commit(&thread, fence, at(12))
        };
        place.store.commit(end).await.expect("committed");
        let with = |vote: RecordVote, resume| ResumeThread { votes: vec![vote], ..place.resume(&thread, resume) };
        let no = place.vote(&ids[0], &bob(), &["manager"], json!({"approved": false}));
        let refusal = unchanged(place, &thread, with(no, CONTINUE)).await;
        assert!(matches!(refusal, Refusal::AlreadyAnswered { .. }), "{refusal:?}");
        let refusal = unchanged(place, &thread, with(yes(place, &ids[1]), NOTHING)).await;
        assert!(matches!(refusal, Refusal::Superseded { .. }), "{refusal:?}");
        let again = with(yes(place, &ids[0]), NOTHING);
        assert_eq!(place.store.resume(again, None).await.expect("the same again"), Accepted::Committed(None));
        let refusal = unchanged(place, &thread, with(yes(place, &ids[0]), RETRY)).await;
        assert_eq!(refusal, Refusal::ThreadEnded(name));
    }
}

async fn an_unknown_thread_is_not_resumed(place: &Place) {
    let command = place.resume(&thread("unknown"), CONTINUE);
    assert_eq!(refused(place.store.resume(command, None).await), Refusal::UnknownThread(thread("unknown")));
    assert_eq!(place.backend.count("runs").await, 0);
}

async fn flags_of_several_resumes_are_taken_up_together(place: &Place) {
    let thread = place.queued("t").await;
    let stop = place.point(&thread, 0, PointKind::Pause);
    place.rest(&thread, vec![stop], RestAs::Failed { error: "a: no".into(), tasks: 1 }).await;
    place.store.resume(place.resume(&thread, RETRY), None).await.expect("accepted");
    place.store.resume(place.resume(&thread, CONTINUE), None).await.expect("accepted");
    let held = place.held(&thread, at(11)).await;
    assert_eq!(held.wake.resume, Resume { release: true, retry: true, ..NOTHING });
    assert_eq!(held.wake.runs.len(), 2);
}

async fn a_resume_of_a_running_thread_is_accepted(place: &Place) {
    let thread = place.queued("t").await;
    place.held(&thread, at(1)).await;
    assert!(matches!(place.store.resume(place.resume(&thread, RETRY), None).await, Ok(Accepted::Committed(Some(_)))));
    assert_eq!(place.status(&thread).await, "running");
}

async fn a_vote_that_decides_nothing_wakes_nobody(place: &Place) {
    let (thread, id) = place.asking("t", approval("Pay?").to(role("manager")).need(2)).await;
    let jobs = place.backend.jobs().await;
    let command = ResumeThread { votes: vec![yes(place, &id)], ..place.resume(&thread, Resume::default()) };
    assert_eq!(place.store.resume(command, None).await.expect("accepted"), Accepted::Committed(None));
    assert_eq!((place.status(&thread).await.as_str(), place.backend.jobs().await), ("parked", jobs));
    assert_eq!(place.store.interrupt(&id).await.expect("there").request.expect("asked").have, 1);
}

async fn a_repeated_resume_gets_the_first_reply(place: &Place) {
    let (thread, ids) = two_questions(place, "t").await;
    let entry = |body: &str| {
        Some(IdempotencyEntry {
            scope: "s".into(),
            key: "k".into(),
            request_hash: "h".into(),
            status: 202,
            body: body.into(),
        })
    };
    let command = || ResumeThread { votes: vec![yes(place, &ids[0])], ..place.resume(&thread, Resume::default()) };
    place.store.resume(command(), entry("first")).await.expect("accepted");
    let again = place.store.resume(command(), entry("second")).await.expect("no refusal");
    assert_eq!(again, Accepted::Replayed { status: 202, body: "first".into() });
    assert_eq!(place.held(&thread, at(11)).await.wake.runs.len(), 1);
}
