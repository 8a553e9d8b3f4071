//! Messages to people, one attempt at a time (R23).

use countersign_kernel::ids::{DeliveryId, InterruptId, ThreadId};
use countersign_kernel::ports::DeliveryError;
use countersign_kernel::principal::role;
use countersign_kernel::question::approval;
use countersign_kernel::time::Timestamp;
use countersign_worker::queue::JobId;
use countersign_worker::store::commands::{DeliveryEnd, RestAs, Serves, StepCommit};
use countersign_worker::store::views::{DeliveryTask, DeliveryView};
use serde_json::json;

use super::place::{Place, at};
use crate::support::{ann, bob, operator};

contract!(
    each_recipient_of_a_question_is_told_once,
    an_attempt_is_marked_before_anything_is_sent,
    a_delivery_carries_what_is_asked,
    what_is_sent_stays_sent_and_its_job_goes,
    a_retry_waits_for_its_time_and_brings_its_own_job,
    a_failure_leaves_a_dead_letter_and_an_audit_entry,
    a_sender_that_died_may_have_sent_twice,
    a_closed_request_skips_what_was_not_sent,
    an_attempt_that_ends_after_the_request_closed_is_not_repeated,
    a_sender_that_died_is_not_followed_up_once_the_request_closed,
    there_is_nothing_to_take_of_an_unknown_delivery,
);

struct Told {
    thread: ThreadId,
    interrupt: InterruptId,
    delivery: DeliveryId,
    job: JobId,
}

/// A question that Ann is told of.
async fn told(place: &Place) -> Told {
    let thread = place.queued("t").await;
    let mut point = place.question(&thread, 0, &approval("Pay?").to(role("manager")).request());
    let (delivery, job) = place.tell(&mut point, &ann());
    let interrupt = point.point.id.clone();
    place.rest(&thread, vec![point], RestAs::Parked).await;
    Told { thread, interrupt, delivery, job }
}

async fn take(place: &Place, told: &Told, now: Timestamp) -> Option<DeliveryTask> {
    let until = now.after(std::time::Duration::from_secs(120));
    place.store.take_delivery(&told.thread, &told.delivery, Some(told.job), until, now).await.expect("no failure")
}

async fn finish(place: &Place, told: &Told, end: DeliveryEnd, now: Timestamp) {
    place.store.finish_delivery(&told.thread, &told.delivery, end, Some(told.job), now).await.expect("recorded");
}

async fn view(place: &Place, told: &Told) -> DeliveryView {
    let mut all = place.store.deliveries(Some(&told.interrupt), None, 10).await.expect("listed");
    assert_eq!(all.len(), 1);
    all.remove(0)
}

async fn close(place: &Place, told: &Told) {
    let vote = place.vote(&told.interrupt, &bob(), &["manager"], json!({"approved": true}));
    assert!(place.store.record_vote(vote).await.expect("accepted").decided);
}

fn error() -> String {
    DeliveryError { message: "451 later".into(), retryable: true }.to_string()
}

async fn each_recipient_of_a_question_is_told_once(place: &Place) {
    let thread = place.queued("t").await;
    let mut point = place.question(&thread, 0, &approval("Pay?").request());
    let jobs = [place.tell(&mut point, &ann()).1, place.tell(&mut point, &bob()).1, place.tell(&mut point, &ann()).1];
    let id = point.point.id.clone();
    place.rest(&thread, vec![point.clone()], RestAs::Parked).await;
    let all = place.store.deliveries(Some(&id), None, 10).await.expect("listed");
    let mut who: Vec<_> = all.iter().map(|delivery| delivery.principal.clone()).collect();
    who.sort();
    assert_eq!(who, [ann(), bob()]);
    assert!(all.iter().all(|delivery| delivery.status == "pending" && delivery.occasion == "asked"));
    let queued = place.backend.jobs().await;
    assert!(queued.contains(&jobs[0].to_string()) && queued.contains(&jobs[1].to_string()));
    assert!(!queued.contains(&jobs[2].to_string()), "no job for what is not sent");

    // A superstep that raises the point again tells nobody again.
    let go = countersign_kernel::machine::Resume { resume_all: true, ..Default::default() };
    place.store.resume(place.resume(&thread, go), None).await.expect("resumed");
    let held = place.held(&thread, at(11)).await;
    place.tell(&mut point, &bob());
    let again = StepCommit {
        opened: vec![point],
        runs: held.wake.runs,
        rest: Some(RestAs::Parked),
        ..place.commit(&thread, held.fence, at(12))
    };
    place.store.commit(again).await.expect("committed");
    assert_eq!(place.backend.count("deliveries").await, 2);
}

async fn an_attempt_is_marked_before_anything_is_sent(place: &Place) {
    let told = told(place).await;
    assert_eq!((view(place, &told).await.status.as_str(), view(place, &told).await.attempts), ("pending", 0));
    assert!(take(place, &told, at(3)).await.is_some());
    let marked = view(place, &told).await;
    assert_eq!((marked.status.as_str(), marked.attempts, marked.possibly_twice), ("sending", 1, false));
    assert_eq!(take(place, &told, at(4)).await, None, "somebody is at it");
}

async fn a_delivery_carries_what_is_asked(place: &Place) {
    let told = told(place).await;
    let notice = take(place, &told, at(3)).await.expect("due").notice;
    assert_eq!(
        (notice.delivery, notice.thread, notice.interrupt, notice.attempt),
        (told.delivery.clone(), told.thread.clone(), told.interrupt.clone(), 1)
    );
    assert_eq!((notice.recipient.principal, notice.recipient.address.as_str()), (ann(), "ann@example.com"));
    assert_eq!((notice.request.title.as_str(), notice.revision), ("Pay?", 1));
    assert_eq!(notice.content_hash, notice.request.content_hash());
    assert_eq!((notice.asked_at, notice.printed_address.as_str()), (at(2), "g/a@0"));
}

async fn what_is_sent_stays_sent_and_its_job_goes(place: &Place) {
    let told = told(place).await;
    take(place, &told, at(3)).await.expect("due");
    finish(place, &told, DeliveryEnd::Sent { detail: "250 ok".into() }, at(4)).await;
    let sent = view(place, &told).await;
    assert_eq!((sent.status.as_str(), sent.detail.as_deref(), sent.finished_at), ("sent", Some("250 ok"), Some(at(4))));
    assert!(!place.backend.jobs().await.contains(&told.job.to_string()));
    assert_eq!(take(place, &told, at(1000)).await, None);
    assert_eq!(place.actions(&told.thread).await, ["started", "delivered"]);
}

async fn a_retry_waits_for_its_time_and_brings_its_own_job(place: &Place) {
    let told = told(place).await;
    take(place, &told, at(3)).await.expect("due");
    let job = place.job();
    finish(place, &told, DeliveryEnd::Retry { error: error(), at: at(60), job }, at(4)).await;
    let waiting = view(place, &told).await;
    assert_eq!(
        (waiting.status.as_str(), waiting.detail.as_deref(), waiting.finished_at),
        ("pending", Some("451 later"), None)
    );
    let jobs = place.backend.jobs().await;
    assert!(jobs.contains(&job.to_string()) && !jobs.contains(&told.job.to_string()));
    assert_eq!(take(place, &told, at(59)).await, None);
    let second = take(place, &told, at(60)).await.expect("due");
    assert_eq!(second.notice.attempt, 2);
    finish(place, &told, DeliveryEnd::Sent { detail: "250".into() }, at(61)).await;
    assert!(!view(place, &told).await.possibly_twice, "the first attempt said that it did not send");
}

async fn a_failure_leaves_a_dead_letter_and_an_audit_entry(place: &Place) {
    let told = told(place).await;
    take(place, &told, at(3)).await.expect("due");
    finish(place, &told, DeliveryEnd::Failed { error: "550 unknown".into() }, at(4)).await;
    let failed = view(place, &told).await;
    assert_eq!((failed.status.as_str(), failed.detail.as_deref()), ("failed", Some("550 unknown")));
    assert_eq!(place.store.counts().await.expect("counts").dead_letters, 1);
    let audit = place.store.audit(&told.thread).await.expect("there");
    let last = audit.last().expect("an entry");
    assert_eq!(last.action, "delivery_failed");
    assert_eq!(last.detail.as_ref().expect("kept")["to"], ann().as_str());
    assert_eq!(place.status(&told.thread).await, "parked", "the request waits on");
    assert_eq!(take(place, &told, at(1000)).await, None);
}

async fn a_sender_that_died_may_have_sent_twice(place: &Place) {
    let told = told(place).await;
    take(place, &told, at(3)).await.expect("due");
    assert_eq!(take(place, &told, at(122)).await, None, "it may still be at it");
    let again = take(place, &told, at(124)).await.expect("lapsed");
    assert_eq!(again.notice.attempt, 2);
    assert!(view(place, &told).await.possibly_twice);
    finish(place, &told, DeliveryEnd::Sent { detail: "250".into() }, at(125)).await;
    assert!(view(place, &told).await.possibly_twice, "it stays marked");
}

async fn a_closed_request_skips_what_was_not_sent(place: &Place) {
    let told = told(place).await;
    close(place, &told).await;
    assert_eq!(view(place, &told).await.status, "skipped");
    assert_eq!(take(place, &told, at(11)).await, None);
    assert!(!place.backend.jobs().await.contains(&told.job.to_string()));
}

async fn an_attempt_that_ends_after_the_request_closed_is_not_repeated(place: &Place) {
    let told = told(place).await;
    take(place, &told, at(3)).await.expect("due");
    close(place, &told).await;
    assert_eq!(view(place, &told).await.status, "sending", "it is under way");
    let job = place.job();
    finish(place, &told, DeliveryEnd::Retry { error: error(), at: at(12), job }, at(11)).await;
    assert_eq!(take(place, &told, at(60)).await, None, "nobody is told of a closed request");
    assert_eq!(view(place, &told).await.status, "skipped");
    assert!(
        place
            .store
            .sweep(&Serves::default(), at(1000), std::time::Duration::ZERO, 10)
            .await
            .expect("swept")
            .iter()
            .all(|due| { matches!(due, countersign_worker::store::Due::Thread(_)) })
    );
}

async fn a_sender_that_died_is_not_followed_up_once_the_request_closed(place: &Place) {
    let told = told(place).await;
    take(place, &told, at(3)).await.expect("due");
    place.store.cancel(&told.thread, &operator(), at(4)).await.expect("cancelled");
    assert_eq!(take(place, &told, at(200)).await, None);
    let left = view(place, &told).await;
    assert_eq!((left.status.as_str(), left.attempts), ("skipped", 1));
}

async fn there_is_nothing_to_take_of_an_unknown_delivery(place: &Place) {
    let told = told(place).await;
    let unknown = DeliveryId::parse("unknown").expect("an id");
    let taken = place.store.take_delivery(&told.thread, &unknown, Some(told.job), at(9), at(3)).await;
    assert_eq!(taken.expect("no failure"), None);
    assert!(!place.backend.jobs().await.contains(&told.job.to_string()), "its job is done with");
}
