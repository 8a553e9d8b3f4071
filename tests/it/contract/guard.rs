//! A move that would have steps done again is refused where it is made (R13).

use countersign_kernel::ids::CheckpointId;
use countersign_kernel::machine::{Source, TaskRecord};
use countersign_worker::store::Refusal;
use countersign_worker::store::commands::{Activation, MoveThread, RestAs, StepCommit, StepGuard};
use countersign_worker::store::views::DoneStep;

use super::archive::{advance, step};
use super::heads::refuses;
use super::inner::{done, waiting};
use super::place::{Place, at};
use crate::support::operator;

contract!(
    a_move_that_would_do_steps_again_changes_nothing,
    a_step_that_was_done_after_the_request_was_made_counts,
    what_a_body_had_begun_counts,
    steps_of_the_line_that_is_left_count,
);

/// An edit of the head of `held`, which goes on from `from`.
async fn edit(place: &Place, held: &Activation, from: &CheckpointId) -> MoveThread {
    let mut next = place.checkpoint(held.seq + 1, at(20));
    next.checkpoint.source = Source::Update;
    next.checkpoint.parent = Some(from.clone());
    MoveThread {
        guard: Some(StepGuard { from: from.clone(), leaves: true, anew: Vec::new() }),
        head: place.head(&held.thread, next).await,
        run: None,
        rest: Some(RestAs::Parked),
        action: "edited",
        ..place.new_input(&held.thread, true).await
    }
}

async fn rests(place: &Place, held: &Activation, tasks: Vec<(String, TaskRecord)>) {
    let rest = Some(RestAs::Parked);
    let commit = StepCommit { rest, paused: true, seq: held.seq, ..place.commit(&held.thread, held.fence, at(3)) };
    place.store.commit(StepCommit { tasks, ..commit }).await.expect("rested");
}

/// What the refused move would have done again.
async fn again(place: &Place, command: MoveThread) -> Vec<String> {
    match refuses(place, &command.thread.clone(), command).await {
        Refusal::ReExecutes(steps) => {
            steps.into_iter().map(|DoneStep { address, name }| format!("{address} {name}")).collect()
        }
        other => panic!("{other:?}"),
    }
}

async fn a_move_that_would_do_steps_again_changes_nothing(place: &Place) {
    let thread = place.queued("t").await;
    let mut held = place.held(&thread, at(1)).await;
    let first = held.checkpoint.id.clone();
    step(place, &held, "zero").await;
    advance(place, &mut held).await;
    step(place, &held, "one").await;
    rests(place, &held, Vec::new()).await;
    let head = held.checkpoint.id.clone();
    assert_eq!(again(place, edit(place, &held, &head).await).await, ["g/a@1 one"]);
    assert_eq!(again(place, edit(place, &held, &first).await).await, ["g/a@0 zero", "g/a@1 one"]);

    let told_to = MoveThread { guard: None, ..edit(place, &held, &head).await };
    place.store.move_thread(told_to).await.expect("moved");
    // What came before does not come again.
    let mut held = place.store.load(&thread).await.expect("there");
    let head = held.checkpoint.id.clone();
    place.store.move_thread(edit(place, &held, &head).await).await.expect("moved");
    held = place.store.load(&thread).await.expect("there");
    assert_eq!(again(place, edit(place, &held, &first).await).await.len(), 2);
}

/// The head is the same and the thread at rest, as the request saw them.
async fn a_step_that_was_done_after_the_request_was_made_counts(place: &Place) {
    let thread = place.queued("t").await;
    let held = place.held(&thread, at(1)).await;
    rests(place, &held, Vec::new()).await;
    let command = edit(place, &held, &held.checkpoint.id).await;

    place.store.pause(&thread, &operator(), place.job(), at(4)).await.expect("woken");
    let held = place.held(&thread, at(5)).await;
    step(place, &held, "meanwhile").await;
    rests(place, &held, Vec::new()).await;
    assert_eq!(again(place, command).await, ["g/a@0 meanwhile"]);
}

async fn what_a_body_had_begun_counts(place: &Place) {
    for (name, record) in [("done", done()), ("waiting", waiting()), ("dropped", TaskRecord::default())] {
        let thread = place.queued(name).await;
        let held = place.held(&thread, at(1)).await;
        rests(place, &held, vec![("a".to_owned(), record)]).await;
        let command = edit(place, &held, &held.checkpoint.id).await;
        if name == "dropped" {
            assert_eq!(again(place, command).await, ["a begun, not recorded"]);
        } else {
            place.store.move_thread(command).await.expect("moved");
        }
    }
    // By the end of its superstep it has run to its own.
    let thread = place.queued("ended").await;
    let mut held = place.held(&thread, at(1)).await;
    let first = held.checkpoint.id.clone();
    let tasks = vec![("a".to_owned(), TaskRecord::default())];
    place.store.commit(StepCommit { tasks, ..place.commit(&thread, held.fence, at(2)) }).await.expect("kept");
    advance(place, &mut held).await;
    rests(place, &held, Vec::new()).await;
    place.store.move_thread(edit(place, &held, &first).await).await.expect("moved");
}

async fn steps_of_the_line_that_is_left_count(place: &Place) {
    let thread = place.queued("t").await;
    let mut held = place.held(&thread, at(1)).await;
    step(place, &held, "shared").await;
    let shared = advance(place, &mut held).await.checkpoint.id;
    let old = advance(place, &mut held).await.checkpoint.id;
    rests(place, &held, Vec::new()).await;

    let mut fork = edit(place, &held, &shared).await;
    fork.head.next.as_mut().expect("a checkpoint").branch = 3;
    place.store.move_thread(MoveThread { rest: None, ..fork }).await.expect("nothing was done since");
    let held = place.held(&thread, at(21)).await;
    step(place, &held, "on the other line").await;
    rests(place, &held, Vec::new()).await;

    // Nothing was done at the old checkpoint or after it; what both lines share
    // stays done.
    let back = edit(place, &held, &old).await;
    assert_eq!(again(place, back.clone()).await, ["g/a@3 on the other line"]);
    let guard = Some(StepGuard { from: old, leaves: false, anew: Vec::new() });
    place.store.move_thread(MoveThread { guard, ..back }).await.expect("an edit inside leaves no line");
}
