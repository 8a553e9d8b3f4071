//! Frames: graphs that run inside tasks, and what comes back of them (K17).

use countersign_kernel::machine::TaskStatus;
use countersign_kernel::occurrence::PointKind;
use countersign_kernel::question::approval;
use countersign_worker::store::Refusal;
use countersign_worker::store::commands::{Claimed, Flush, FrameFlush, RecordVote, RestAs, StepCommit};
use serde_json::json;

use super::inner::{done, in_frame, in_root, waiting};
use super::place::{Place, at, fenced, refused, thread};
use crate::support::{ann, operator};

contract!(
    a_frame_comes_back_as_it_was_left,
    a_frame_writes_what_changed_and_a_checkpoint_knows_its_state,
    nothing_of_a_frame_is_written_with_an_old_fence,
    a_superstep_of_a_frame_is_progress_and_a_record_is_none,
    nested_frames_come_outer_ones_first,
    frames_of_finished_tasks_are_not_loaded,
    frames_of_an_earlier_superstep_are_not_loaded,
    a_frame_of_an_earlier_superstep_around_it_is_not_loaded,
    what_changes_inside_commits_with_the_superstep,
    a_fenced_superstep_leaves_its_frames_as_they_were,
    a_point_says_in_which_frame_it_waits,
    a_container_is_named_by_its_id_and_counts_as_no_point,
    the_same_frame_of_two_threads_is_two,
    the_history_of_a_frame_is_its_own,
);

async fn a_frame_comes_back_as_it_was_left(place: &Place) {
    let thread = place.queued("t").await;
    let held = place.held(&thread, at(1)).await;
    let frame = in_root(&held);
    let first = place.begin(&held, &frame).await.checkpoint.expect("a checkpoint");
    let task = first.body.tasks[0].address.clone();
    let slot = task.slot("pay", 1, Some("Ö"));
    for (occurrence, name) in [(&task, "book"), (&slot, "=")] {
        place.store.record_result(place.result(&held, Some(&frame), 0, occurrence, name)).await.expect("recorded");
    }
    let records = place.records_in(&frame, 0, &[("b", waiting()), ("c", done())]);
    place.flush_frame(&thread, held.fence, records).await;

    let again = place.held(&thread, at(20)).await;
    assert_eq!((again.seq, again.records.len()), (0, 0), "the root frame has nothing of it");
    let [back] = again.frames.as_slice() else { panic!("{:?}", again.frames) };
    assert_eq!((&back.frame, &back.owner), (&frame.id, &frame.owner));
    assert_eq!((&back.checkpoint, back.seq, back.branch, back.graph_version), (&first.checkpoint, 0, 0, 1));
    assert_eq!((&back.body, &back.keys), (&first.body, &first.keys));
    assert_eq!(back.values.to_object(), *json!({"m": 0, "said": ["g/a@0 0"]}).as_object().expect("an object"));
    assert_eq!((back.records["b"].status, &back.records["c"]), (TaskStatus::Waiting, &done()));
    let occurrences = &back.records["b"].occurrences;
    assert_eq!(occurrences.get(&task).expect("recorded").steps["book"], json!({"by": "book"}));
    assert_eq!(occurrences.get(&slot).expect("recorded").steps["="], json!({"by": "="}));
}

async fn a_frame_writes_what_changed_and_a_checkpoint_knows_its_state(place: &Place) {
    let thread = place.queued("t").await;
    let held = place.held(&thread, at(1)).await;
    let frame = in_root(&held);
    place.begin(&held, &frame).await;
    for seq in 1..=3 {
        place.flush_frame(&thread, held.fence, place.step_in(&frame, seq, at(2))).await;
    }
    let of_frame = format!("WHERE frame = '{}'", frame.id);
    for (table, rows) in [("state_values", 4), ("state_items", 4), ("checkpoints", 4), ("tasks", 0)] {
        assert_eq!(place.backend.count(&format!("{table} {of_frame}")).await, rows, "{table}");
    }
    assert_eq!(place.backend.count("frames").await, 1);
    let back = place.frames(&thread).await.remove(0);
    assert_eq!((back.seq, back.checkpoint.superstep), (3, 3));
    assert_eq!(back.values.get("said").and_then(|said| said.as_array()).map(Vec::len), Some(4));
    let root = place.store.thread(&thread).await.expect("there");
    assert_eq!(root.state, *json!({"n": 0}).as_object().expect("an object"), "states do not mix");
}

async fn nothing_of_a_frame_is_written_with_an_old_fence(place: &Place) {
    let thread = place.queued("t").await;
    let old = place.held(&thread, at(1)).await;
    let frame = in_root(&old);
    place.begin(&old, &frame).await;
    let new = place.held(&thread, at(20)).await;
    let before = format!("{:?}", place.frames(&thread).await);
    let second = in_frame(&frame, &place.step_in(&frame, 0, at(2)));
    for commit in [
        place.step_in(&frame, 1, at(21)),
        place.step_in(&second, 0, at(21)),
        place.records_in(&frame, 0, &[("b", waiting())]),
    ] {
        let flush = FrameFlush { thread: thread.clone(), fence: old.fence, commit, events: Vec::new(), now: at(21) };
        fenced(place.store.flush_frame(flush).await);
    }
    let occurrence = frame.owner.address.node("b", 0);
    fenced(place.store.record_result(place.result(&old, Some(&frame), 0, &occurrence, "book")).await);
    assert_eq!(format!("{:?}", place.frames(&thread).await), before);
    for (table, rows) in [("frames", 1), ("checkpoints", 2), ("state_items", 1), ("tasks", 0), ("steps", 0)] {
        assert_eq!(place.backend.count(table).await, rows, "{table}");
    }
    place.flush_frame(&thread, new.fence, place.step_in(&frame, 1, at(21))).await;
    assert_eq!(place.frames(&thread).await[0].seq, 1, "the holder writes");
}

async fn a_superstep_of_a_frame_is_progress_and_a_record_is_none(place: &Place) {
    let thread = place.queued("moves").await;
    let mut held = place.held(&thread, at(0)).await;
    let frame = in_root(&held);
    place.begin(&held, &frame).await;
    for round in 1..=5 {
        // Each worker is lost after one superstep of the sub-graph.
        held = place.held(&thread, at(round * 20)).await;
        place.flush_frame(&thread, held.fence, place.step_in(&frame, round, at(round * 20))).await;
    }
    for round in 6..=8 {
        held = place.held(&thread, at(round * 20)).await;
        place.flush_frame(&thread, held.fence, place.records_in(&frame, 5, &[("b", waiting())])).await;
    }
    let claimed = place.store.claim(place.claim(&thread, at(200))).await.expect("no failure");
    assert!(matches!(claimed, Claimed::Dead), "{claimed:?}");
}

async fn nested_frames_come_outer_ones_first(place: &Place) {
    let thread = place.queued("t").await;
    let held = place.held(&thread, at(1)).await;
    let mut frames = vec![in_root(&held)];
    for depth in 0..4 {
        let first = place.begin(&held, &frames[depth]).await;
        frames.push(in_frame(&frames[depth], &first));
    }
    frames.pop();
    let back = place.frames(&thread).await;
    let found: Vec<_> = back.iter().map(|frame| (&frame.frame, &frame.owner)).collect();
    assert_eq!(found, frames.iter().map(|frame| (&frame.id, &frame.owner)).collect::<Vec<_>>());
    let addresses: Vec<_> = back.iter().map(|frame| frame.owner.address.to_string()).collect();
    assert_eq!(addresses, ["g/a@0", "g/a@0/b@0", "g/a@0/b@0/b@0", "g/a@0/b@0/b@0/b@0"]);
}

async fn frames_of_finished_tasks_are_not_loaded(place: &Place) {
    let thread = place.queued("t").await;
    let held = place.held(&thread, at(1)).await;
    let outer = in_root(&held);
    let first = place.begin(&held, &outer).await;
    let inner = in_frame(&outer, &first);
    place.begin(&held, &inner).await;
    assert_eq!(place.frames(&thread).await.len(), 2);

    place.flush_frame(&thread, held.fence, place.records_in(&outer, 0, &[("b", done())])).await;
    let left: Vec<_> = place.frames(&thread).await.into_iter().map(|frame| frame.frame).collect();
    assert_eq!(left, std::slice::from_ref(&outer.id), "the task of the sub-graph has finished");

    let mut end = place.step_in(&inner, 1, at(2));
    end.checkpoint.as_mut().expect("a checkpoint").body.tasks.clear();
    place.flush_frame(&thread, held.fence, end).await;
    let left: Vec<_> = place.frames(&thread).await.into_iter().map(|frame| frame.frame).collect();
    assert_eq!(left, [outer.id.clone(), inner.id], "it has ended, and the superstep around it may be refused");

    let (tasks, events) = (vec![("a".into(), done())], Vec::new());
    let flush = Flush { thread: thread.clone(), fence: held.fence, seq: 0, tasks, events, now: at(2) };
    place.store.flush(flush).await.expect("flushed");
    assert_eq!(place.frames(&thread).await.len(), 0, "the task of the thread has finished, and all inside with it");
}

async fn frames_of_an_earlier_superstep_are_not_loaded(place: &Place) {
    let thread = place.queued("t").await;
    let held = place.held(&thread, at(1)).await;
    place.begin(&held, &in_root(&held)).await;
    let next = StepCommit { checkpoint: Some(place.checkpoint(1, at(3))), ..place.commit(&thread, held.fence, at(3)) };
    place.store.commit(next).await.expect("committed");
    assert_eq!(place.frames(&thread).await.len(), 0);

    let again = place.held(&thread, at(20)).await;
    let second = in_root(&again);
    place.begin(&again, &second).await;
    let back = place.frames(&thread).await;
    assert_eq!(back.iter().map(|frame| frame.frame.clone()).collect::<Vec<_>>(), [second.id]);
}

async fn a_frame_of_an_earlier_superstep_around_it_is_not_loaded(place: &Place) {
    let thread = place.queued("t").await;
    let held = place.held(&thread, at(1)).await;
    let outer = in_root(&held);
    let first = place.begin(&held, &outer).await;
    let gone = in_frame(&outer, &first);
    place.begin(&held, &gone).await;
    let second = place.step_in(&outer, 1, at(3));
    place.flush_frame(&thread, held.fence, second.clone()).await;
    let left: Vec<_> = place.frames(&thread).await.into_iter().map(|frame| frame.frame).collect();
    assert_eq!(left, std::slice::from_ref(&outer.id));

    let here = in_frame(&outer, &second);
    place.begin(&held, &here).await;
    let left: Vec<_> = place.frames(&thread).await.into_iter().map(|frame| frame.frame).collect();
    assert_eq!(left, [outer.id, here.id], "a task of the same name ran another before");
}

async fn what_changes_inside_commits_with_the_superstep(place: &Place) {
    let thread = place.queued("t").await;
    let held = place.held(&thread, at(1)).await;
    let frame = in_root(&held);
    let first = place.begin(&held, &frame).await.checkpoint.expect("a checkpoint");
    let mut inside = place.records_in(&frame, 0, &[("b", waiting())]);
    let mut changed = first.body.clone();
    changed.resume_all = true;
    inside.body = Some(changed.clone());
    let commit = StepCommit {
        tasks: vec![("a".into(), waiting())],
        frames: vec![inside],
        rest: Some(RestAs::Parked),
        ..place.commit(&thread, held.fence, at(3))
    };
    place.store.commit(commit).await.expect("committed");
    let back = place.store.load(&thread).await.expect("there");
    assert_eq!(back.records["a"].status, TaskStatus::Waiting);
    assert_eq!((&back.frames[0].body, back.frames[0].records["b"].status), (&changed, TaskStatus::Waiting));
}

async fn a_fenced_superstep_leaves_its_frames_as_they_were(place: &Place) {
    let thread = place.queued("t").await;
    let old = place.held(&thread, at(1)).await;
    let frame = in_root(&old);
    place.begin(&old, &frame).await;
    place.held(&thread, at(20)).await;
    let commit = StepCommit {
        frames: vec![place.step_in(&frame, 1, at(21)), place.records_in(&frame, 1, &[("b", waiting())])],
        rest: Some(RestAs::Parked),
        ..place.commit(&thread, old.fence, at(21))
    };
    fenced(place.store.commit(commit).await);
    let back = place.frames(&thread).await.remove(0);
    assert_eq!((back.seq, back.records.len()), (0, 0));
}

async fn a_point_says_in_which_frame_it_waits(place: &Place) {
    let thread = place.queued("t").await;
    let held = place.held(&thread, at(1)).await;
    let frame = in_root(&held);
    place.begin(&held, &frame).await;
    let mut inside = place.question(&thread, 0, &approval("Pay?").request());
    inside.point.frame = Some(frame.id.clone());
    inside.point.address = frame.owner.address.node("b", 0);
    let outside = place.question(&thread, 1, &approval("Pay?").request());
    let (id, other) = (inside.point.id.clone(), outside.point.id.clone());
    let commit = StepCommit {
        opened: vec![inside, outside],
        rest: Some(RestAs::Parked),
        ..place.commit(&thread, held.fence, at(3))
    };
    place.store.commit(commit).await.expect("committed");
    let view = place.store.interrupt(&id).await.expect("there");
    assert_eq!((view.frame, view.address.as_str()), (Some(frame.id), "g/a@0/b@0"));
    assert_eq!(place.store.interrupt(&other).await.expect("there").frame, None);
    let listed = place.store.thread(&thread).await.expect("there");
    assert_eq!((listed.summary.open, listed.interrupts.len()), (2, 2), "an inner point is a point of the thread");

    let yes = place.vote(&id, &ann(), &["approver"], json!({"approved": true}));
    assert!(place.store.record_vote(yes).await.expect("accepted").decided);
    assert_eq!(place.held(&thread, at(11)).await.wake.answers[0].0, id);
    assert_eq!(place.store.thread(&thread).await.expect("there").summary.open, 1);
}

async fn a_container_is_named_by_its_id_and_counts_as_no_point(place: &Place) {
    let thread = place.queued("t").await;
    let container = place.point(&thread, 0, PointKind::Container);
    let leaf = place.point(&thread, 1, PointKind::Interrupt);
    let id = container.point.id.clone();
    place.rest(&thread, vec![leaf, container], RestAs::Parked).await;
    let detail = place.store.thread(&thread).await.expect("there");
    assert_eq!((detail.summary.open, detail.interrupts.len()), (1, 1));
    assert_eq!(detail.interrupts[0].kind, "interrupt");

    let mut bare = place.vote(&id, &operator(), &[], json!(null));
    bare.operator = true;
    let refusal = refused(place.store.record_vote(bare.clone()).await);
    assert_eq!(refusal, Refusal::NotAnswerable { interrupt: id.clone() });
    assert_eq!(place.backend.count("votes").await, 0);

    let data = RecordVote { answer: json!({"more": 1}), ..bare };
    let voted = place.store.record_vote(data).await.expect("accepted");
    assert!(voted.decided && voted.wake.is_some());
    let held = place.held(&thread, at(11)).await;
    assert_eq!((&held.wake.answers[0].0, &held.wake.answers[0].1.value), (&id, &Some(json!({"more": 1}))));
}

async fn the_same_frame_of_two_threads_is_two(place: &Place) {
    let mut frames = Vec::new();
    for name in ["one", "two"] {
        let thread = place.queued(name).await;
        let held = place.held(&thread, at(1)).await;
        let mut frame = in_root(&held);
        frame.id = frames.first().map_or(frame.id.clone(), |first: &super::inner::Inner| first.id.clone());
        place.begin(&held, &frame).await;
        frames.push(frame);
    }
    place.store.cancel(&thread("one"), &operator(), at(3)).await.expect("taken");
    let held = place.held(&thread("two"), at(20)).await;
    assert_eq!(held.frames[0].owner, frames[1].owner);
    place.flush_frame(&thread("two"), held.fence, place.step_in(&frames[1], 1, at(21))).await;
    assert_eq!((place.frames(&thread("one")).await[0].seq, place.frames(&thread("two")).await[0].seq), (0, 1));
}

async fn the_history_of_a_frame_is_its_own(place: &Place) {
    let thread = place.queued("t").await;
    let held = place.held(&thread, at(1)).await;
    let frame = in_root(&held);
    place.begin(&held, &frame).await;
    for seq in 1..=4 {
        place.flush_frame(&thread, held.fence, place.step_in(&frame, seq, at(2))).await;
    }
    assert_eq!(place.store.history(&thread, None, None, 10).await.expect("there").len(), 1);
    let (mut seen, mut before) = (Vec::new(), None);
    loop {
        let page = place.store.history(&thread, Some(&frame.id), before, 2).await.expect("there");
        let Some(last) = page.last() else { break };
        before = Some(last.seq);
        seen.extend(page);
    }
    assert_eq!(seen.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [4, 3, 2, 1, 0]);
    assert!(seen.iter().all(|entry| entry.state["m"] == entry.seq && entry.next == ["b"]));
    let said = seen.iter().map(|entry| entry.state["said"].as_array().map_or(0, Vec::len)).collect::<Vec<_>>();
    assert_eq!(said, [5, 4, 3, 2, 1], "each as long as it was");
}
