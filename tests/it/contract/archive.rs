//! What was: checkpoints to go back to, and the steps that were done since (R13).

use countersign_kernel::ids::{CheckpointId, ThreadId};
use countersign_kernel::machine::Source;
use countersign_worker::store::Refusal;
use countersign_worker::store::commands::{Activation, HeadMove, MoveThread, NewCheckpoint, RestAs, StepCommit};
use serde_json::json;

use super::inner::{in_frame, in_root};
use super::place::{Place, at, refused};

contract!(
    a_checkpoint_of_the_thread_comes_alone_and_as_it_was,
    a_checkpoint_inside_comes_with_those_around_it,
    a_checkpoint_inside_comes_with_the_one_around_it_at_which_its_frame_began,
    an_unknown_checkpoint_is_refused,
    steps_are_found_from_where_they_were_done_on,
    steps_of_other_lines_from_the_same_checkpoint_are_found,
    steps_inside_are_found_from_outside_and_inside,
    steps_around_a_checkpoint_inside_are_found_from_it,
    steps_that_went_along_with_an_amendment_are_found_from_it,
    results_of_parts_are_no_steps,
);

/// The checkpoint after that of `held`, and the commit that makes it the head.
pub(super) async fn advance(place: &Place, held: &mut Activation) -> NewCheckpoint {
    let mut next = place.checkpoint(held.seq + 1, at(2));
    next.checkpoint.parent = Some(held.checkpoint.id.clone());
    let commit =
        StepCommit { checkpoint: Some(next.clone()), seq: next.seq, ..place.commit(&held.thread, held.fence, at(2)) };
    place.store.commit(commit).await.expect("committed");
    (held.seq, held.checkpoint, held.body) = (next.seq, next.checkpoint.clone(), next.body.clone());
    next
}

/// Does a step of the thread's task.
pub(super) async fn step(place: &Place, held: &Activation, name: &str) {
    let here = held.body.tasks[0].address.clone();
    place.store.record_result(place.result(held, None, held.seq, &here, name)).await.expect("recorded");
}

async fn since(place: &Place, thread: &ThreadId, checkpoint: &CheckpointId) -> Vec<String> {
    let mut steps = place.store.steps_since(thread, checkpoint).await.expect("found");
    steps.sort_by(|a, b| a.name.cmp(&b.name));
    steps.into_iter().map(|step| format!("{} {}", step.address, step.name)).collect()
}

async fn a_checkpoint_of_the_thread_comes_alone_and_as_it_was(place: &Place) {
    let thread = place.queued("t").await;
    let mut held = place.held(&thread, at(1)).await;
    let (first, body) = (held.checkpoint.clone(), held.body.clone());
    for _ in 0..3 {
        advance(place, &mut held).await;
    }
    let chain = place.store.archived(&thread, &first.id).await.expect("there");
    let [at] = chain.as_slice() else { panic!("{chain:?}") };
    assert_eq!((&at.archived.checkpoint, &at.archived.body), (&first, &body));
    assert_eq!((&at.archived.frame, &at.archived.task, at.seq), (&None, &None, 0));
    assert_eq!((at.archived.values.get("n"), at.graph_version), (Some(&json!(0)), 1), "the state of then");
    let newest = place.store.archived(&thread, &held.checkpoint.id).await.expect("there");
    assert_eq!((newest[0].seq, newest[0].archived.values.get("n")), (3, Some(&json!(3))));
}

async fn a_checkpoint_inside_comes_with_those_around_it(place: &Place) {
    let thread = place.queued("t").await;
    let held = place.held(&thread, at(1)).await;
    let outer = in_root(&held);
    let first = place.begin(&held, &outer).await;
    let inner = in_frame(&outer, &first);
    place.begin(&held, &inner).await;
    let third = place.step_in(&inner, 1, at(3)).checkpoint.expect("a checkpoint");
    for seq in 1..=3 {
        let mut commit = place.step_in(&inner, seq, at(3));
        if seq == 1 {
            commit.checkpoint = Some(third.clone());
        }
        place.flush_frame(&thread, held.fence, commit).await;
    }
    let chain = place.store.archived(&thread, &third.checkpoint.id).await.expect("there");
    let found: Vec<_> = chain.iter().map(|at| (at.archived.frame.clone(), at.archived.task.clone(), at.seq)).collect();
    let task = |name: &str| Some(name.to_owned());
    assert_eq!(found, [(None, None, 0), (Some(outer.id), task("a"), 0), (Some(inner.id), task("b"), 1)]);
    assert_eq!(chain[2].archived.checkpoint, third.checkpoint);
    assert_eq!(chain[2].archived.values.get("said"), Some(&json!(["g/a@0/b@0 0", "g/a@0/b@0 1"])));
    assert_eq!(chain[1].archived.values.get("m"), Some(&json!(0)));
    assert_eq!(chain[0].archived.checkpoint.id, held.checkpoint.id);
}

async fn a_checkpoint_inside_comes_with_the_one_around_it_at_which_its_frame_began(place: &Place) {
    let thread = place.queued("t").await;
    let mut held = place.held(&thread, at(1)).await;
    let frame = in_root(&held);
    let first = place.begin(&held, &frame).await.checkpoint.expect("a checkpoint");
    let around = held.checkpoint.id.clone();
    advance(place, &mut held).await;
    place.begin(&held, &in_root(&held)).await;
    let chain = place.store.archived(&thread, &first.checkpoint.id).await.expect("there");
    assert_eq!((chain.len(), &chain[0].archived.checkpoint.id), (2, &around));
}

async fn an_unknown_checkpoint_is_refused(place: &Place) {
    let (one, two) = (place.queued("one").await, place.queued("two").await);
    let foreign = place.store.head(&two).await.expect("there");
    for id in [CheckpointId::parse("unknown").expect("an id"), foreign] {
        let refusal = refused(place.store.archived(&one, &id).await);
        assert_eq!(refusal, Refusal::UnknownCheckpoint(id.clone()));
        assert_eq!(since(place, &one, &id).await, Vec::<String>::new());
    }
}

async fn steps_are_found_from_where_they_were_done_on(place: &Place) {
    let thread = place.queued("t").await;
    let mut held = place.held(&thread, at(1)).await;
    let mut ids = vec![held.checkpoint.id.clone()];
    for name in ["zero", "one", "two"] {
        step(place, &held, name).await;
        ids.push(advance(place, &mut held).await.checkpoint.id);
    }
    assert_eq!(since(place, &thread, &ids[0]).await, ["g/a@1 one", "g/a@2 two", "g/a@0 zero"]);
    assert_eq!(since(place, &thread, &ids[1]).await, ["g/a@1 one", "g/a@2 two"]);
    assert_eq!(since(place, &thread, &ids[3]).await, Vec::<String>::new(), "nothing was done there yet");
}

async fn steps_of_other_lines_from_the_same_checkpoint_are_found(place: &Place) {
    let thread = place.queued("t").await;
    let mut held = place.held(&thread, at(1)).await;
    let start = held.checkpoint.id.clone();
    let fork_at = advance(place, &mut held).await;
    advance(place, &mut held).await;
    step(place, &held, "first line").await;
    let rest = StepCommit { rest: Some(RestAs::Succeeded), seq: 2, ..place.commit(&thread, held.fence, at(3)) };
    place.store.commit(rest).await.expect("rested");

    let mut fork = place.checkpoint(3, at(20));
    fork.checkpoint.source = Source::Fork;
    fork.checkpoint.parent = Some(fork_at.checkpoint.id.clone());
    fork.branch = 3;
    let forked = fork.checkpoint.id.clone();
    let head: HeadMove = place.head(&thread, fork).await;
    let command = MoveThread { head, ..place.new_input(&thread, true).await };
    place.store.move_thread(command).await.expect("forked");
    let held = place.held(&thread, at(21)).await;
    step(place, &held, "second line").await;

    let both = ["g/a@2 first line", "g/a@3 second line"];
    assert_eq!(since(place, &thread, &start).await, both);
    assert_eq!(since(place, &thread, &fork_at.checkpoint.id).await, both);
    assert_eq!(since(place, &thread, &forked).await, [both[1]], "the other line is not after the fork");
}

async fn steps_inside_are_found_from_outside_and_inside(place: &Place) {
    let thread = place.queued("t").await;
    let mut held = place.held(&thread, at(1)).await;
    let start = held.checkpoint.id.clone();
    advance(place, &mut held).await;
    let outer = in_root(&held);
    let first = place.begin(&held, &outer).await;
    let inner = in_frame(&outer, &first);
    let begun = place.begin(&held, &inner).await.checkpoint.expect("a checkpoint");
    let mut second = place.step_in(&inner, 1, at(3));
    let new = second.checkpoint.as_mut().expect("a checkpoint");
    new.checkpoint.parent = Some(begun.checkpoint.id.clone());
    let later = new.checkpoint.id.clone();
    place.flush_frame(&thread, held.fence, second).await;
    for (seq, name) in [(0, "early"), (1, "late")] {
        let there = inner.owner.address.node("b", seq);
        let seq = i64::try_from(seq).expect("small");
        let result = place.result(&held, Some(&inner), seq, &there, name);
        place.store.record_result(result).await.expect("recorded");
    }
    let both = ["g/a@1/b@0/b@0 early", "g/a@1/b@0/b@1 late"];
    let outside = first.checkpoint.expect("a checkpoint").checkpoint.id;
    for from in [&start, &held.checkpoint.id, &outside, &begun.checkpoint.id] {
        assert_eq!(since(place, &thread, from).await, both);
    }
    assert_eq!(since(place, &thread, &later).await, [both[1]]);
}

async fn steps_around_a_checkpoint_inside_are_found_from_it(place: &Place) {
    let thread = place.queued("t").await;
    let mut held = place.held(&thread, at(1)).await;
    step(place, &held, "before").await;
    advance(place, &mut held).await;
    step(place, &held, "beside").await;
    let frame = in_root(&held);
    let begun = place.begin(&held, &frame).await.checkpoint.expect("a checkpoint");
    let mut second = place.step_in(&frame, 1, at(3));
    let new = second.checkpoint.as_mut().expect("a checkpoint");
    new.checkpoint.parent = Some(begun.checkpoint.id.clone());
    let later = new.checkpoint.id.clone();
    place.flush_frame(&thread, held.fence, second).await;
    for (seq, name) in [(0, "early"), (1, "late")] {
        let there = frame.owner.address.node("b", seq);
        let seq = i64::try_from(seq).expect("small");
        place.store.record_result(place.result(&held, Some(&frame), seq, &there, name)).await.expect("recorded");
    }
    advance(place, &mut held).await;
    step(place, &held, "following").await;
    // A replay from inside runs the superstep around it again, and all after it.
    let expected = ["g/a@1 beside", "g/a@2 following", "g/a@1/b@1 late"];
    assert_eq!(since(place, &thread, &later).await, expected);
}

async fn steps_that_went_along_with_an_amendment_are_found_from_it(place: &Place) {
    let thread = place.queued("t").await;
    let held = place.held(&thread, at(1)).await;
    let before = held.checkpoint.id.clone();
    let frame = in_root(&held);
    place.begin(&held, &frame).await;
    step(place, &held, "outside").await;
    let there = frame.owner.address.node("b", 0);
    place.store.record_result(place.result(&held, Some(&frame), 0, &there, "within")).await.expect("recorded");
    let rest = StepCommit { rest: Some(RestAs::Parked), ..place.commit(&thread, held.fence, at(3)) };
    place.store.commit(rest).await.expect("rested");

    let mut next = place.checkpoint(1, at(20));
    next.checkpoint.source = Source::Amend;
    next.checkpoint.parent = Some(before.clone());
    next.body = held.body.clone();
    let amended = next.checkpoint.id.clone();
    let mut command = place.new_input(&thread, true).await;
    command.head = HeadMove { carry: true, ..place.head(&thread, next).await };
    place.store.move_thread(command).await.expect("amended");
    let both = ["g/a@0 outside", "g/a@0/b@0 within"];
    assert_eq!(since(place, &thread, &before).await, both);
    assert_eq!(since(place, &thread, &amended).await, both, "a replay from the amended checkpoint does both again");
}

async fn results_of_parts_are_no_steps(place: &Place) {
    let thread = place.queued("t").await;
    let held = place.held(&thread, at(1)).await;
    let here = held.body.tasks[0].address.clone();
    step(place, &held, "pay").await;
    let slot = here.slot("pay", 0, None);
    place.store.record_result(place.result(&held, None, 0, &slot, "=")).await.expect("recorded");
    assert_eq!(since(place, &thread, &held.checkpoint.id).await, ["g/a@0 pay"]);
}
