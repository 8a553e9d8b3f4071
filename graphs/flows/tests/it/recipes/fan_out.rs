//! Fan-out: a review per part, side by side, and one award.

use countersign_flows::recipes::tender;
use countersign_kernel::machine::Rest;

use super::*;

fn parts(names: &[&str]) -> Value {
    let part =
        |name: &&str| json!({"name": name, "text": format!("All about {name}."), "reviewer": format!("{name}-team")});
    json!({"parts": names.iter().map(part).collect::<Vec<_>>()})
}

fn begun() -> Driver {
    start(tender().expect("sound"), parts(&["roof", "walls", "doors"]))
}

fn yes() -> Value {
    json!({"approved": true})
}

#[test]
fn everybody_is_asked_at_once_and_the_verdicts_are_in_the_order_of_the_parts() {
    let mut run = begun();
    let points = run.points();
    assert_eq!(
        titles(&run),
        [
            "Is there a budget for it?",
            "Accept the part “roof”?",
            "Accept the part “walls”?",
            "Accept the part “doors”?"
        ]
    );
    assert_eq!(asked(&run)[3].policy.approvers[0].to_string(), "role:doors-team");
    for at in [3, 0, 2] {
        answer_ids(&mut run, &[(&points[at].id, yes())]).expect("open");
        assert_eq!(run.visits("award"), 0);
    }
    assert_eq!(run.points(), points[1..2], "the last one waits as before");
    answer(&mut run, yes()).expect("open");
    let verdicts: Vec<Value> =
        run.state()["verdicts"].as_array().into_iter().flatten().map(|v| v["part"].clone()).collect();
    assert_eq!(verdicts, ["roof", "walls", "doors"]);
    assert_eq!((run.rest(), &run.state()["awarded"], run.visits("award")), (Rest::Succeeded, &json!(true), 1));
    assert_eq!(run.visits("review"), 6, "each task ran once to ask and once with its answer");
}

#[test]
fn one_no_among_them_and_it_is_not_awarded() {
    for no in 0..4 {
        let mut run = begun();
        let points = run.points();
        let answers: Vec<_> =
            points.iter().enumerate().map(|(at, point)| (&point.id, json!({"approved": at != no}))).collect();
        answer_ids(&mut run, &answers).expect("all open");
        assert_eq!((run.rest(), &run.state()["awarded"]), (Rest::Succeeded, &json!(false)));
    }
}

#[test]
fn without_parts_there_is_still_an_award() {
    let mut run = start(tender().expect("sound"), parts(&[]));
    assert_eq!(titles(&run), ["Is there a budget for it?"]);
    answer(&mut run, yes()).expect("open");
    assert_eq!((run.rest(), &run.state()["awarded"]), (Rest::Succeeded, &json!(true)));
}

#[test]
fn a_plain_answer_needs_one_question_and_a_wrong_one_changes_nothing() {
    let mut run = begun();
    let points = run.points();
    assert_eq!(answer(&mut run, yes()), Err(Refused::NotOne(4)));
    assert_eq!(faults(answer_ids(&mut run, &[(&points[0].id, yes()), (&points[1].id, Value::Null)])), [""]);
    assert_eq!((run.points(), run.visits("review")), (points, 3));
}

#[test]
fn it_goes_on_after_a_restart_at_every_answer() {
    let mut run = begun();
    for point in run.points() {
        run = run.reopen(tender().expect("sound"));
        answer_ids(&mut run, &[(&point.id, yes())]).expect("open");
    }
    assert_eq!((run.rest(), &run.state()["awarded"]), (Rest::Succeeded, &json!(true)));
}
