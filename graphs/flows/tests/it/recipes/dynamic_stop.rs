//! Dynamic stop: the state stops it, and the state lets it pass.

use countersign_flows::recipes::notice;
use countersign_kernel::driver::{Refused, RunRequest};
use countersign_kernel::machine::{Amend, Rest};

use super::*;

fn begun(text: &str) -> (Driver, Arc<World>, Arc<dyn Outside>) {
    let (world, outside) = world();
    (start(notice(Arc::clone(&outside)).expect("sound"), json!({"text": text})), world, outside)
}

fn published(text: &str) -> Vec<(String, Value)> {
    vec![("publish".to_owned(), json!({"text": text}))]
}

fn long() -> String {
    "é".repeat(141)
}

#[test]
fn a_short_text_passes_and_a_long_one_stops() {
    let (run, world, _) = begun(&"é".repeat(140));
    assert_eq!((run.rest(), world.calls().len()), (Rest::Succeeded, 1));
    let (run, world, _) = begun(&long());
    assert_eq!((run.rest(), world.calls().len()), (Rest::Parked, 0));
    assert_eq!(run.points()[0].payload["characters"], 141);
}

#[test]
fn editing_the_state_and_going_on_passes() {
    let (mut run, world, outside) = begun(&long());
    let stop = run.points().remove(0);
    edit(&mut run, json!({"text": "Short."}), None);
    assert_eq!(run.next(), ["check"], "nothing runs before somebody says so");
    let mut run = run.reopen(notice(outside).expect("sound"));
    assert_eq!(answer_ids(&mut run, &[(&stop.id, json!("go on"))]), Err(Refused::NotOpen(stop.id)));
    resume(&mut run, CONTINUE);
    assert_eq!((run.rest(), world.calls()), (Rest::Succeeded, published("Short.")));
}

#[test]
fn an_edit_that_does_not_help_stops_anew() {
    let (mut run, world, _) = begun(&long());
    let stop = run.points().remove(0);
    edit(&mut run, json!({"text": "x".repeat(200)}), None);
    resume(&mut run, CONTINUE);
    assert_eq!((run.rest(), &run.points()[0].payload["characters"]), (Rest::Parked, &json!(200)));
    assert!(run.points()[0].id != stop.id && world.calls().is_empty());
}

#[test]
fn an_update_as_the_node_skips_it() {
    let (mut run, world, _) = begun(&long());
    edit(&mut run, Value::Null, Some("check"));
    assert_eq!(run.next(), ["publish"]);
    resume(&mut run, CONTINUE);
    assert_eq!((run.rest(), world.calls(), run.visits("check")), (Rest::Succeeded, published(&long()), 1));
}

#[test]
fn neither_continue_nor_resume_all_nor_an_answer_passes_it() {
    let (mut run, world, _) = begun(&long());
    let stop = run.points();
    resume(&mut run, CONTINUE);
    resume(&mut run, RESUME_ALL);
    assert_eq!(run.points(), stop);
    for reply in [Value::Null, json!({"approved": true})] {
        answer(&mut run, reply).expect("taken, and of no use");
        assert_eq!((run.rest(), run.points().len()), (Rest::Parked, 1));
    }
    assert_ne!(run.points(), stop, "the state is as it was, so it is asked again");
    assert!(world.calls().is_empty());
}

#[test]
fn an_answer_with_an_update_passes_in_one_request() {
    let (mut run, world, _) = begun(&long());
    let answers = vec![(run.points()[0].id.clone(), Value::Null)];
    let update = json!({"text": "Short."}).as_object().cloned().expect("an object");
    let amend = Amend { update, ..Amend::default() };
    now(run.run(RunRequest { answers, amend, ..RunRequest::default() })).expect("one request");
    assert_eq!((run.rest(), world.calls(), run.visits("check")), (Rest::Succeeded, published("Short."), 2));
}
