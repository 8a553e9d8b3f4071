//! What watchers are told, with which numbers, and for how long (K22).

use std::sync::Arc;
use std::time::Duration;

use countersign_kernel::ids::{FrameId, ThreadId};
use countersign_kernel::machine::{Resume, RunAs};
use countersign_kernel::occurrence::PointKind;
use countersign_kernel::question::approval;
use countersign_kernel::state::Change;
use countersign_kernel::time::Timestamp;
use countersign_worker::store::commands::{
    AppendEvents, Claimed, Committed, Flush, KeyAt, PointEnd, RestAs, ResumeThread, StepCommit,
};
use countersign_worker::store::views::EventView;
use countersign_worker::store::{Event, Refusal, TaskEnd, TaskPlace, What, Written};
use serde_json::{Value, json};

use super::inner::in_root;
use super::place::{Place, at, fenced, refused, thread};
use crate::support::{ann, operator};

contract!(
    numbers_rise_without_gaps_from_the_start_to_the_end,
    a_commit_is_one_row_and_one_that_tells_nothing_none,
    what_an_old_fence_tells_is_not_told_and_leaves_no_gap,
    what_lies_in_other_rows_is_told_as_it_was_written,
    points_that_votes_moves_and_cancels_close_are_told_once,
    a_thread_that_runs_on_does_not_rest_in_between,
    a_held_thread_says_why_and_so_does_a_failed_one,
    frames_tell_of_their_own_checkpoints,
    a_page_begins_and_ends_where_it_is_told_to,
    old_events_are_forgotten_and_numbers_go_on,
    with_the_journal_off_nothing_is_kept,
    who_watches_is_woken_by_every_commit_of_that_thread,
);

fn told(at: Timestamp, what: What) -> Event {
    Event { at, what }
}

fn task(name: &str) -> TaskPlace {
    TaskPlace { task: name.into(), address: format!("g/{name}@0"), frame: None }
}

async fn events(place: &Place, thread: &ThreadId) -> Vec<EventView> {
    place.store.events(thread, None, 1_000).await.expect("there").events
}

/// Each event in a few words: `status parked`, `opened`, `a started`.
fn words(events: &[EventView]) -> Vec<String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let word = |event: &EventView| {
        let data = &event.data;
        match event.kind {
            "status" => format!("status {}", text(&data["status"])),
            "values" => format!("values {}", data["superstep"]),
            "tasks" => format!("{} {}", text(&data["task"]), text(&data["state"])),
            "updates" => format!("{} wrote {}", text(&data["task"]), data["writes"]),
            "custom" => format!("custom {}", data["payload"]),
            "interrupts" => match data["status"].as_str() {
                Some(status) => format!("closed {status}"),
                None => format!("opened {}", text(&data["kind"])),
            },
            other => other.to_owned(),
        }
    };
    events.iter().map(word).collect()
}

/// Asserts that the numbers are 1, 2, 3…
fn no_gaps(events: &[EventView]) {
    assert!((1..).zip(events).all(|(number, event)| event.id == number), "{events:?}");
}

async fn numbers_rise_without_gaps_from_the_start_to_the_end(place: &Place) {
    let thread = place.queued("t").await;
    let fence = place.held(&thread, at(1)).await.fence;
    let started = vec![told(at(1), What::status("running")), told(at(2), What::Started(task("a"), RunAs::Fresh))];
    let append = AppendEvents { thread: thread.clone(), fence, events: started, now: at(2) };
    place.store.append_events(append).await.expect("appended");
    let ended = vec![told(at(3), What::Ended(task("a"), TaskEnd::Done))];
    let flush = Flush { thread: thread.clone(), fence, seq: 0, tasks: Vec::new(), events: ended, now: at(4) };
    place.store.flush(flush).await.expect("flushed");
    let point = place.point(&thread, 0, PointKind::Interrupt);
    let id = point.point.id.clone();
    let commit = StepCommit {
        checkpoint: Some(place.checkpoint(1, at(5))),
        events: vec![told(at(5), What::Values(1, None))],
        opened: vec![point],
        ..place.commit(&thread, fence, at(5))
    };
    place.store.commit(commit).await.expect("committed");
    let rest = StepCommit {
        closed: vec![(id, PointEnd::Withdrawn)],
        rest: Some(RestAs::Succeeded),
        ..place.commit(&thread, fence, at(6))
    };
    assert_eq!(place.store.commit(rest).await.expect("committed"), Committed::Released);
    let events = events(place, &thread).await;
    no_gaps(&events);
    let expected = [
        "values 0",
        "status queued",
        "status running",
        "a started",
        "a done",
        "values 1",
        "opened interrupt",
        "closed withdrawn",
        "status succeeded",
    ];
    assert_eq!(words(&events), expected);
    let times: Vec<_> = events.iter().map(|event| event.at).collect();
    assert_eq!(times, [0, 0, 1, 2, 3, 5, 5, 6, 6].map(at), "when it happened, not when it was written");
    let page = place.store.events(&thread, None, 1).await.expect("there");
    assert_eq!((page.graph.as_str(), page.status.as_str(), page.last), ("g", "succeeded", 9));
}

async fn a_commit_is_one_row_and_one_that_tells_nothing_none(place: &Place) {
    let thread = place.queued("t").await;
    let fence = place.held(&thread, at(1)).await.fence;
    assert_eq!(place.backend.count("events").await, 1);
    place.store.commit(place.commit(&thread, fence, at(2))).await.expect("committed");
    assert_eq!(place.backend.count("events").await, 1);
    let many = (0..50).map(|_| told(at(3), What::status("running"))).collect();
    place.store.commit(StepCommit { events: many, ..place.commit(&thread, fence, at(3)) }).await.expect("committed");
    assert_eq!(place.backend.count("events").await, 2);
    assert_eq!(events(place, &thread).await.len(), 52);
}

async fn what_an_old_fence_tells_is_not_told_and_leaves_no_gap(place: &Place) {
    let thread = place.queued("t").await;
    let old = place.held(&thread, at(1)).await.fence;
    let new = place.held(&thread, at(20)).await.fence;
    let tells = |n: i64| vec![told(at(21), What::Custom("g/a@0".into(), json!(n)))];
    let append = |fence, n| AppendEvents { thread: thread.clone(), fence, events: tells(n), now: at(21) };
    let flush =
        |fence, n| Flush { thread: thread.clone(), fence, seq: 0, tasks: Vec::new(), events: tells(n), now: at(21) };
    let stop = || vec![place.point(&thread, 0, PointKind::Pause)];
    let commit = |fence, n| StepCommit { events: tells(n), opened: stop(), ..place.commit(&thread, fence, at(21)) };
    for n in 0..3 {
        fenced(place.store.append_events(append(old, 100)).await);
        place.store.append_events(append(new, 3 * n)).await.expect("the holder tells");
        fenced(place.store.flush(flush(old, 100)).await);
        place.store.flush(flush(new, 3 * n + 1)).await.expect("the holder tells");
        fenced(place.store.commit(commit(old, 100)).await);
        place.store.commit(commit(new, 3 * n + 2)).await.expect("the holder tells");
    }
    let events = events(place, &thread).await;
    no_gaps(&events);
    let words = words(&events);
    let custom: Vec<_> = words.iter().filter(|word| word.starts_with("custom")).collect();
    assert_eq!(custom.len(), 9, "{words:?}");
    assert!(!words.contains(&"custom 100".to_owned()), "{words:?}");
    assert_eq!(words.iter().filter(|word| *word == "opened pause").count(), 1, "raised once: {words:?}");
}

async fn what_lies_in_other_rows_is_told_as_it_was_written(place: &Place) {
    let thread = place.queued("t").await;
    let fence = place.held(&thread, at(1)).await.fence;
    let long = json!({"text": "ä 🖋 ".repeat(50)});
    let items = vec![json!("first of two that are long enough"), json!([2])];
    let mut next = place.checkpoint(1, at(2));
    next.changes = vec![
        ("long".into(), Change::Set(long.clone())),
        ("list".into(), Change::Appended(items.clone())),
        ("sum".into(), Change::Set(json!({"more": "than was written, by its reducer"}))),
    ];
    next.keys = [
        ("long".to_owned(), KeyAt::Value(1)),
        ("list".to_owned(), KeyAt::Items(vec![(0, 2)])),
        ("sum".to_owned(), KeyAt::Value(1)),
    ]
    .into();
    let added = json!({"than": "was written, by its reducer"});
    let written = |key: &str, value: &Value| (key.to_owned(), Written::Value(value.clone()));
    let writes =
        vec![written("long", &long), written("list", &json!(items)), written("sum", &added), written("n", &json!(7))];
    let wrote = What::Wrote(task("a"), writes).referring_to(&next);
    let What::Wrote(_, referring) = &wrote else { panic!("a write") };
    let kinds: Vec<_> = referring.iter().map(|(_, written)| matches!(written, Written::Value(_))).collect();
    assert_eq!(kinds, [false, false, true, true], "kept once where it is the same, and where that saves something");
    let stop = place.point(&thread, 3, PointKind::Suspend);
    let (id, payload) = (stop.point.id.clone(), stop.point.payload.clone());
    let checkpoint = next.checkpoint.clone();
    let commit = StepCommit {
        checkpoint: Some(next),
        events: vec![told(at(2), wrote), told(at(2), What::Values(1, None))],
        opened: vec![stop],
        ..place.commit(&thread, fence, at(2))
    };
    place.store.commit(commit).await.expect("committed");
    let events = events(place, &thread).await;
    let [update, values, opened] = &events[2..] else { panic!("{events:?}") };
    let expected = json!({"long": long, "list": items, "sum": added, "n": 7});
    assert_eq!((update.kind, &update.data["writes"]), ("updates", &expected));
    assert_eq!(
        (&update.data["node"], &update.data["address"], &update.data["frame_id"]),
        (&json!("a"), &json!("g/a@0"), &Value::Null)
    );
    let expected = json!({"checkpoint_id": checkpoint.id.as_str(), "superstep": 1, "source": "loop", "frame_id": null});
    assert_eq!((values.kind, &values.data), ("values", &expected));
    let expected = json!({
        "state": "opened", "interrupt_id": id.as_str(), "kind": "suspend", "address": "g/a@0", "frame_id": null,
        "payload": payload,
    });
    assert_eq!((opened.kind, &opened.data), ("interrupts", &expected));
}

async fn points_that_votes_moves_and_cancels_close_are_told_once(place: &Place) {
    let yes = json!({"approved": true});
    let (voted, id) = place.asking("voted", approval("Pay?")).await;
    for _ in 0..2 {
        place.store.record_vote(place.vote(&id, &ann(), &["approver"], yes.clone())).await.expect("taken");
    }
    let tail = |events: Vec<EventView>| words(&events)[2..].to_vec();
    let asked = ["opened approval", "status parked"];
    assert_eq!(tail(events(place, &voted).await), [&asked[..], &["closed answered", "status queued"]].concat());

    let (moved, _) = place.asking("moved", approval("Pay?")).await;
    place.store.move_thread(place.new_input(&moved, true).await).await.expect("moved");
    let expected = [&asked[..], &["closed superseded", "values 1", "status queued"]].concat();
    assert_eq!(tail(events(place, &moved).await), expected);

    let (ended, _) = place.asking("ended", approval("Pay?")).await;
    for _ in 0..2 {
        place.store.cancel(&ended, &operator(), at(5)).await.expect("taken");
    }
    assert_eq!(tail(events(place, &ended).await), [&asked[..], &["closed superseded", "status cancelled"]].concat());

    let (running, id) = place.asking("running", approval("Pay?")).await;
    place.store.record_vote(place.vote(&id, &ann(), &["approver"], yes.clone())).await.expect("taken");
    let held = place.held(&running, at(11)).await;
    let second = place.question(&running, 1, &approval("Again?").request());
    let id = second.point.id.clone();
    let commit =
        StepCommit { opened: vec![second], consumed: held.open.clone(), ..place.commit(&running, held.fence, at(12)) };
    place.store.commit(commit).await.expect("committed");
    // While it runs it is not put in line again.
    place.store.record_vote(place.vote(&id, &ann(), &["approver"], yes)).await.expect("taken");
    place.store.cancel(&running, &operator(), at(13)).await.expect("asked");
    let late = StepCommit { rest: Some(RestAs::Cancelled), ..place.commit(&running, held.fence, at(14)) };
    place.store.commit(late).await.expect("committed");
    let more = ["closed answered", "status queued", "opened approval", "closed answered", "status cancelled"];
    let told = events(place, &running).await;
    no_gaps(&told);
    assert_eq!(tail(told), [&asked[..], &more].concat());
}

async fn a_thread_that_runs_on_does_not_rest_in_between(place: &Place) {
    let thread = place.queued("t").await;
    let fence = place.held(&thread, at(1)).await.fence;
    let go = Resume { release: true, ..Resume::default() };
    let command = ResumeThread { requested_by: operator(), ..place.resume(&thread, go) };
    place.store.resume(command, None).await.expect("taken");
    let events_of = |n: i64| vec![told(at(11), What::Custom("g/a@0".into(), json!(n)))];
    let rest = StepCommit { events: events_of(1), rest: Some(RestAs::Parked), ..place.commit(&thread, fence, at(11)) };
    let Ok(Committed::Running(incoming)) = place.store.commit(rest).await else { panic!("it rested") };
    let rest = StepCommit {
        events: events_of(2),
        runs: incoming.runs,
        rest: Some(RestAs::Parked),
        ..place.commit(&thread, fence, at(12))
    };
    assert_eq!(place.store.commit(rest).await.expect("committed"), Committed::Released);
    let events = events(place, &thread).await;
    no_gaps(&events);
    assert_eq!(words(&events)[2..], ["custom 1", "custom 2", "status parked"]);
}

async fn a_held_thread_says_why_and_so_does_a_failed_one(place: &Place) {
    let failing = place.queued("failing").await;
    place.rest(&failing, Vec::new(), RestAs::Failed { error: "a: no line".into(), tasks: 1 }).await;
    let last = events(place, &failing).await.pop().expect("events");
    assert_eq!(last.data, json!({"status": "failed", "reason": "a: no line"}));
    let lost = place.queued("lost").await;
    let mut claimed = Claimed::Nothing;
    for n in 0..4 {
        claimed = place.store.claim(place.claim(&lost, at(1 + 20 * n))).await.expect("no failure");
    }
    assert!(matches!(claimed, Claimed::Dead));
    let last = events(place, &lost).await.pop().expect("events");
    assert_eq!((last.id, &last.data["status"]), (3, &json!("held")));
    assert!(last.data["reason"].as_str().is_some_and(|reason| reason.contains("3 attempts")), "{last:?}");
    place.store.release_hold(&lost, &operator(), place.job(), at(100)).await.expect("released");
    assert_eq!(words(&events(place, &lost).await)[2..], ["status held", "status queued"]);
}

async fn frames_tell_of_their_own_checkpoints(place: &Place) {
    let thread = place.queued("t").await;
    let held = place.held(&thread, at(1)).await;
    let frame = in_root(&held);
    let inside =
        |id: &FrameId| TaskPlace { task: "b#1".into(), address: "g/a@0/b@1/b[1]".into(), frame: Some(id.clone()) };
    for seq in 0..2 {
        let commit = place.step_in(&frame, seq, at(2));
        let new = commit.checkpoint.clone().expect("a checkpoint");
        let said = json!([format!("{} {seq}", frame.owner.address)]);
        let writes = vec![("said".to_owned(), Written::Value(said)), ("m".to_owned(), Written::Value(json!(seq)))];
        let events = vec![
            told(at(2), What::Wrote(inside(&frame.id), writes).referring_to(&new)),
            told(at(2), What::Values(seq, Some(frame.id.clone()))),
        ];
        let flush = countersign_worker::store::commands::FrameFlush {
            thread: thread.clone(),
            fence: held.fence,
            commit,
            events,
            now: at(2),
        };
        place.store.flush_frame(flush).await.expect("flushed");
    }
    let told = events(place, &thread).await;
    no_gaps(&told);
    let id = json!(frame.id.as_str());
    for (seq, pair) in (0..2).zip(told[2..].chunks(2)) {
        assert_eq!(
            (&pair[0].data["node"], &pair[0].data["task"], &pair[0].data["frame_id"]),
            (&json!("b"), &json!("b#1"), &id)
        );
        let said = format!("{} {seq}", frame.owner.address);
        assert_eq!(pair[0].data["writes"], json!({"said": [said], "m": seq}));
        assert_eq!((&pair[1].data["superstep"], &pair[1].data["frame_id"]), (&json!(seq), &id));
        let chain = place
            .store
            .archived(&thread, &serde_json::from_value(pair[1].data["checkpoint_id"].clone()).expect("an id"))
            .await;
        assert_eq!(chain.expect("there").last().map(|at| at.archived.values.get("m").cloned()), Some(Some(json!(seq))));
    }
}

async fn a_page_begins_and_ends_where_it_is_told_to(place: &Place) {
    let thread = place.queued("t").await;
    let fence = place.held(&thread, at(1)).await.fence;
    for row in 0..90 {
        let events = (0..3).map(|n| told(at(2), What::Custom("g".into(), json!(3 * row + n)))).collect();
        let append = AppendEvents { thread: thread.clone(), fence, events, now: at(2) };
        place.store.append_events(append).await.expect("appended");
    }
    let all = events(place, &thread).await;
    no_gaps(&all);
    assert_eq!(all.len(), 272);
    for (after, limit) in [(0, 1), (3, 2), (4, 200), (100, 7), (271, 5), (272, 5), (999, 5), (-5, 3)] {
        let page = place.store.events(&thread, Some(after), limit).await.expect("there");
        let from = usize::try_from(after.clamp(0, 272)).expect("small");
        let until = (from + limit as usize).min(272);
        assert_eq!((page.last, &page.events[..]), (272, &all[from..until]), "after {after}, {limit}");
    }
    // Large ones come in smaller pages.
    let large = json!("x".repeat(1 << 20));
    for _ in 0..8 {
        let events = vec![told(at(3), What::Custom("g".into(), large.clone()))];
        let append = AppendEvents { thread: thread.clone(), fence, events, now: at(3) };
        place.store.append_events(append).await.expect("appended");
    }
    let page = place.store.events(&thread, Some(272), 500).await.expect("there");
    assert_eq!((page.last, page.events.len()), (280, 4));
    assert!(matches!(
        refused(place.store.events(&super::place::thread("none"), None, 1).await),
        Refusal::UnknownThread(_)
    ));
}

async fn old_events_are_forgotten_and_numbers_go_on(place: &Place) {
    for name in ["a", "b"] {
        place.queued(name).await;
    }
    let (a, b) = (thread("a"), thread("b"));
    let fence = place.held(&a, at(100)).await.fence;
    let tells = |n: i64| vec![told(at(n), What::Custom("g".into(), json!(n)))];
    let append = |n: i64| AppendEvents { thread: a.clone(), fence, events: tells(n), now: at(n) };
    place.store.append_events(append(100)).await.expect("appended");
    assert_eq!(place.store.forget_events(at(0), 10).await.expect("forgotten"), 0, "nothing is older");
    assert_eq!(place.store.forget_events(at(50), 1).await.expect("forgotten"), 1, "not more than it may");
    assert_eq!(place.store.forget_events(at(50), 10).await.expect("forgotten"), 1);
    assert_eq!(place.store.forget_events(at(50), 10).await.expect("forgotten"), 0);
    let page = place.store.events(&b, None, 10).await.expect("there");
    assert_eq!((page.events.len(), page.last, page.status.as_str()), (0, 2, "queued"));
    place.store.append_events(append(101)).await.expect("appended");
    assert_eq!(events(place, &a).await.iter().map(|event| event.id).collect::<Vec<_>>(), [3, 4]);
    assert_eq!(place.store.forget_events(at(1000), 10).await.expect("forgotten"), 2);
    assert_eq!(place.backend.count("events").await, 0);
    place.store.append_events(append(102)).await.expect("appended");
    assert_eq!(events(place, &a).await[0].id, 5, "a number is never given twice");
}

async fn with_the_journal_off_nothing_is_kept(place: &Place) {
    place.store.journal().switch(false);
    let (thread, id) = place.asking("t", approval("Pay?")).await;
    let vote = place.vote(&id, &ann(), &["approver"], json!({"approved": true}));
    place.store.record_vote(vote).await.expect("taken");
    place.store.cancel(&thread, &operator(), at(20)).await.expect("taken");
    let page = place.store.events(&thread, None, 10).await.expect("there");
    assert_eq!((page.events.len(), page.last, page.status.as_str()), (0, 0, "cancelled"));
    assert_eq!(place.backend.count("events").await, 0);
}

async fn who_watches_is_woken_by_every_commit_of_that_thread(place: &Place) {
    let (a, b) = (thread("a"), thread("b"));
    let mut watching = place.store.journal().watch(&a);
    let store = Arc::clone(&place.store);
    let mut heard = async |what: &str| {
        let news = tokio::time::timeout(crate::support::DEADLINE, watching.news()).await;
        assert!(news.is_ok(), "{what}");
    };
    place.queued("a").await;
    heard("created").await;
    let fence = place.held(&a, at(1)).await.fence;
    heard("claimed").await;
    store.commit(place.commit(&a, fence, at(2))).await.expect("committed");
    heard("committed").await;
    store.release(&a, fence, at(3)).await.expect("given back");
    heard("released").await;
    place.queued("b").await;
    store.cancel(&b, &operator(), at(4)).await.expect("taken");
    let other = tokio::time::timeout(Duration::from_millis(1), watching.news()).await;
    assert!(other.is_err(), "another thread's");
}
