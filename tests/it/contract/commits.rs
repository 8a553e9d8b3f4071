//! What a superstep leaves behind, and when a thread may rest.

use countersign_kernel::machine::{Resume, TaskRecord, TaskStatus};
use countersign_kernel::occurrence::PointKind;
use countersign_kernel::question::approval;
use countersign_kernel::state::Change;
use countersign_worker::store::Accepted;
use countersign_worker::store::commands::{
    Committed, Flush, KeyAt, NewCheckpoint, PointEnd, RestAs, ResumeThread, StepCommit, StepResult,
};
use serde_json::json;

use super::place::{Place, at, thread};
use crate::support::{ann, bob, operator};

contract!(
    a_commit_moves_the_head_and_writes_what_changed,
    appended_items_are_rows_and_read_back_in_order,
    flushed_records_and_step_results_come_back_with_the_next_claim,
    a_result_is_recorded_once,
    what_opens_is_listed_and_what_closes_says_how,
    a_rest_with_an_unconsumed_answer_keeps_the_lease_and_returns_it,
    answers_come_back_in_the_order_they_were_accepted,
    a_rest_with_a_resume_that_nobody_took_up_keeps_the_lease,
    a_run_ends_when_the_thread_rests,
    the_jobs_that_a_commit_names_are_gone_with_it,
);

async fn a_commit_moves_the_head_and_writes_what_changed(place: &Place) {
    let thread = place.queued("t").await;
    let fence = place.held(&thread, at(1)).await.fence;
    let mut next = place.checkpoint(1, at(2));
    next.changes.push(("word".into(), Change::Set(json!("ä 🖋"))));
    next.keys.insert("word".into(), KeyAt::Value(1));
    let head = next.checkpoint.id.clone();
    let commit = StepCommit { checkpoint: Some(next), ..place.commit(&thread, fence, at(2)) };
    assert_eq!(place.store.commit(commit).await.expect("committed"), Committed::Running(Default::default()));

    let mut third = place.checkpoint(2, at(3));
    third.changes.clear();
    third.keys = [("n".into(), KeyAt::Value(1)), ("word".into(), KeyAt::Value(1))].into();
    let commit = StepCommit { checkpoint: Some(third), seq: 2, ..place.commit(&thread, fence, at(3)) };
    place.store.commit(commit).await.expect("committed");

    let detail = place.store.thread(&thread).await.expect("there");
    assert_eq!((&detail.state["n"], &detail.state["word"]), (&json!(1), &json!("ä 🖋")));
    assert_eq!(place.backend.count("state_values").await, 3, "what did not change is not written again");
    let history = place.store.history(&thread, None, None, 10).await.expect("there");
    assert_eq!(history.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [2, 1, 0]);
    assert_eq!((&history[1].checkpoint, &history[2].state["n"]), (&head, &json!(0)));
}

async fn appended_items_are_rows_and_read_back_in_order(place: &Place) {
    let thread = place.queued("t").await;
    let fence = place.held(&thread, at(1)).await.fence;
    let mut until = 0;
    for seq in 1..=3_i64 {
        let items: Vec<_> = (0..seq).map(|item| json!([seq, item])).collect();
        until += items.len() as u64;
        let mut next = place.checkpoint(seq, at(seq));
        next.changes = vec![("log".into(), Change::Appended(items))];
        next.keys = [("log".into(), KeyAt::Items(vec![(0, until)]))].into();
        let commit = StepCommit { checkpoint: Some(next), seq, ..place.commit(&thread, fence, at(seq)) };
        place.store.commit(commit).await.expect("committed");
    }
    let log = json!([[1, 0], [2, 0], [2, 1], [3, 0], [3, 1], [3, 2]]);
    assert_eq!(place.store.thread(&thread).await.expect("there").state["log"], log);
    let history = place.store.history(&thread, None, Some(3), 10).await.expect("there");
    assert_eq!(history[0].state["log"], json!([[1, 0], [2, 0], [2, 1]]), "a checkpoint knows its length");
    assert_eq!(place.backend.count("state_items").await, 6);
}

async fn flushed_records_and_step_results_come_back_with_the_next_claim(place: &Place) {
    let thread = place.queued("t").await;
    let held = place.held(&thread, at(1)).await;
    let done = TaskRecord { status: TaskStatus::Done, ..TaskRecord::default() };
    let (tasks, events) = (vec![("b".into(), done.clone())], Vec::new());
    let flush = Flush { thread: thread.clone(), fence: held.fence, seq: 0, tasks, events, now: at(2) };
    place.store.flush(flush).await.expect("flushed");
    let address = held.body.tasks[0].address.clone();
    let slot = address.slot("pay", 4, Some("Ä"));
    for (occurrence, name) in [(&address, "pay"), (&slot, "=")] {
        let result = StepResult {
            thread: thread.clone(),
            fence: held.fence,
            frame: None,
            seq: 0,
            occurrence: occurrence.clone(),
            name: name.into(),
            result: json!({"by": name}),
            now: at(2),
        };
        place.store.record_result(result).await.expect("recorded");
    }
    let again = place.held(&thread, at(20)).await;
    assert_eq!(again.records["b"], done);
    let occurrences = &again.records["a"].occurrences;
    assert_eq!(occurrences.get(&address).expect("recorded").steps["pay"], json!({"by": "pay"}));
    assert_eq!(occurrences.get(&slot).expect("recorded").steps["="], json!({"by": "="}));
}

async fn a_result_is_recorded_once(place: &Place) {
    let thread = place.queued("t").await;
    let held = place.held(&thread, at(1)).await;
    let address = held.body.tasks[0].address.clone();
    for result in [json!(1), json!(2)] {
        let result = StepResult {
            thread: thread.clone(),
            fence: held.fence,
            frame: None,
            seq: 0,
            occurrence: address.clone(),
            name: "pay".into(),
            result,
            now: at(2),
        };
        place.store.record_result(result).await.expect("no failure");
    }
    let loaded = place.store.load(&thread).await.expect("there");
    assert_eq!(loaded.records["a"].occurrences.get(&address).expect("there").steps["pay"], 1, "the first counts");
}

async fn what_opens_is_listed_and_what_closes_says_how(place: &Place) {
    let thread = place.queued("t").await;
    let points: Vec<_> = (0..4).map(|number| place.point(&thread, number, PointKind::Interrupt)).collect();
    let ids: Vec<_> = points.iter().map(|opened| opened.point.id.clone()).collect();
    place.rest(&thread, points.clone(), RestAs::Parked).await;
    let detail = place.store.thread(&thread).await.expect("there");
    assert_eq!((detail.summary.open, detail.interrupts.len()), (4, 4));

    let again = Resume { resume_all: true, ..Resume::default() };
    place.store.resume(place.resume(&thread, again), None).await.expect("resumed");
    let held = place.held(&thread, at(11)).await;
    assert_eq!(held.open.len(), 4);
    let closed = vec![
        (ids[0].clone(), PointEnd::Released),
        (ids[1].clone(), PointEnd::Superseded),
        (ids[2].clone(), PointEnd::Withdrawn),
    ];
    let commit = StepCommit {
        closed,
        opened: points, // Raised again under their ids: nothing new.
        runs: held.wake.runs,
        rest: Some(RestAs::Parked),
        ..place.commit(&thread, held.fence, at(12))
    };
    assert_eq!(place.store.commit(commit).await.expect("committed"), Committed::Released);
    for (id, status) in ids.iter().zip(["released", "superseded", "withdrawn", "open"]) {
        let view = place.store.interrupt(id).await.expect("there");
        assert_eq!((view.status.as_str(), view.closed_at), (status, (status != "open").then(|| at(12))));
    }
    assert_eq!(place.store.thread(&thread).await.expect("there").summary.open, 1);
}

async fn a_rest_with_an_unconsumed_answer_keeps_the_lease_and_returns_it(place: &Place) {
    let thread = place.queued("t").await;
    let fence = place.held(&thread, at(1)).await.fence;
    let point = place.question(&thread, 0, &approval("Pay?").request());
    let id = point.point.id.clone();
    // Asked in a superstep that goes on, answered while the thread runs.
    let commit = StepCommit { opened: vec![point], ..place.commit(&thread, fence, at(2)) };
    place.store.commit(commit).await.expect("committed");
    let vote = place.vote(&id, &ann(), &["approver"], json!({"approved": true}));
    assert!(place.store.record_vote(vote).await.expect("accepted while it runs").decided);
    assert_eq!(place.status(&thread).await, "running");

    let rest = StepCommit { rest: Some(RestAs::Parked), ..place.commit(&thread, fence, at(11)) };
    let Ok(Committed::Running(incoming)) = place.store.commit(rest.clone()).await else { panic!("it rested") };
    assert_eq!(incoming.answers.len(), 1);
    assert_eq!((&incoming.answers[0].0, &incoming.answers[0].1.by), (&id, &vec![ann()]));
    assert_eq!(place.status(&thread).await, "running");

    let rest = StepCommit { consumed: vec![id], ..rest };
    assert_eq!(place.store.commit(rest).await.expect("committed"), Committed::Released);
    assert_eq!(place.status(&thread).await, "parked");
}

async fn answers_come_back_in_the_order_they_were_accepted(place: &Place) {
    let thread = place.queued("t").await;
    let request = approval("Pay?").request();
    let points: Vec<_> = (0..6).map(|number| place.question(&thread, number, &request)).collect();
    let mut order: Vec<_> = points.iter().map(|opened| opened.point.id.clone()).collect();
    order.rotate_left(2);
    order.swap(0, 3);
    place.rest(&thread, points, RestAs::Parked).await;
    for id in &order {
        // All at one instant: the order is that of insertion, not of time.
        let vote = place.vote(id, &bob(), &["approver"], json!({"approved": true}));
        place.store.record_vote(vote).await.expect("accepted");
    }
    let held = place.held(&thread, at(11)).await;
    assert_eq!(held.wake.answers.into_iter().map(|(id, _)| id).collect::<Vec<_>>(), order);
}

async fn a_rest_with_a_resume_that_nobody_took_up_keeps_the_lease(place: &Place) {
    let thread = place.queued("t").await;
    let fence = place.held(&thread, at(1)).await.fence;
    let go = Resume { release: true, ..Resume::default() };
    let command = ResumeThread { requested_by: operator(), ..place.resume(&thread, go) };
    let run = command.run.clone();
    assert!(matches!(place.store.resume(command, None).await, Ok(Accepted::Committed(Some(_)))));
    let rest = StepCommit { rest: Some(RestAs::Parked), ..place.commit(&thread, fence, at(11)) };
    let Ok(Committed::Running(incoming)) = place.store.commit(rest.clone()).await else { panic!("it rested") };
    assert_eq!((incoming.runs, incoming.resume), (vec![run.clone()], go));
    let rest = StepCommit { runs: vec![run], ..rest };
    assert_eq!(place.store.commit(rest).await.expect("committed"), Committed::Released);
}

async fn a_run_ends_when_the_thread_rests(place: &Place) {
    let thread = place.queued("t").await;
    let fence = place.held(&thread, at(1)).await.fence;
    let run = |detail: countersign_worker::store::views::ThreadDetail| {
        (detail.runs[0].status.clone(), detail.runs[0].finished_at)
    };
    assert_eq!(run(place.store.thread(&thread).await.expect("there")), ("running".into(), None));
    let failed = RestAs::Failed { error: "a: no line".into(), tasks: 1 };
    let rest = StepCommit { rest: Some(failed), ..place.commit(&thread, fence, at(2)) };
    place.store.commit(rest).await.expect("committed");
    let detail = place.store.thread(&thread).await.expect("there");
    assert_eq!((detail.summary.failed_tasks, detail.summary.error.as_deref()), (1, Some("a: no line")));
    assert_eq!(run(detail), ("failed".into(), Some(at(2))));
}

async fn the_jobs_that_a_commit_names_are_gone_with_it(place: &Place) {
    let command = place.create("t", at(0));
    let job = command.job;
    place.store.create(command).await.expect("created");
    place.queued("other").await;
    let held = place.held(&thread("t"), at(1)).await;
    let next: NewCheckpoint = place.checkpoint(1, at(2));
    let commit =
        StepCommit { checkpoint: Some(next), jobs: vec![job], ..place.commit(&thread("t"), held.fence, at(2)) };
    place.store.commit(commit).await.expect("committed");
    assert!(!place.backend.jobs().await.contains(&job.to_string()));
    assert_eq!(place.backend.jobs().await.len(), 1, "the other's stays");
}
