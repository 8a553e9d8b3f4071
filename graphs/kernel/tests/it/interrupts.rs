//! Asking, answering, partial resumes, resume-all (K2, K6, K7, K10, K11, R4).

use countersign_kernel::driver::Refused;
use countersign_kernel::graph::START;
use countersign_kernel::ids::InterruptId;
use countersign_kernel::machine::Rest;
use countersign_kernel::question::{Question, approval, input, select};
use countersign_kernel::state::Writes;
use futures_util::future::join;
use serde_json::{Value, json};

use crate::support::*;

#[test]
fn a_loop_of_questions_matches_answers_by_ordinal() {
    let runs = Runs::default();
    let mut run = start(single(with(&runs, |cx, runs| async move {
        runs.hit("body");
        cx.step("before", |_| async { Ok::<_, std::fmt::Error>(runs.hit("before")) }).await?;
        loop {
            let value = cx.interrupt("a positive number?").await?;
            if value.as_i64().is_some_and(|number| number > 0) {
                return Ok(Writes::none().with("last", &value));
            }
        }
    })));
    let mut asked = Vec::new();
    for value in [json!(-1), json!("x"), json!(7)] {
        let points = run.points();
        assert_eq!(points.len(), 1);
        asked.push((points[0].number, points[0].id.clone()));
        answer(&mut run, value);
    }
    assert_eq!(asked.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(asked[0].1 != asked[1].1 && asked[1].1 != asked[2].1 && asked[0].1 != asked[2].1);
    assert_eq!((run.rest(), &run.state()["last"]), (Rest::Succeeded, &json!(7)));
    assert_eq!((runs.of("before"), runs.of("body")), (1, 4));
}

#[test]
fn a_partial_resume_runs_only_what_was_answered() {
    let runs = Runs::default();
    let mut run = start(graph(|g| {
        for node in ["a", "b", "c"] {
            g.node(node, asking(node, &runs)).edge(START, node);
        }
    }));
    let before = run.points();
    assert_eq!(open(&run), ["a?", "b?", "c?"]);
    answer_ids(&mut run, &[(&before[1].id, json!("B"))]).expect("open");
    assert_eq!(run.points(), [before[0].clone(), before[2].clone()], "the others wait as before");
    assert_eq!((runs.of("a"), runs.of("b"), runs.of("c")), (1, 2, 1));
    assert_eq!(run.state()["got"], json!({}), "nothing is applied before the superstep is whole");

    answer_ids(&mut run, &[(&before[2].id, json!("C")), (&before[0].id, json!("A"))]).expect("open");
    assert_eq!((runs.of("a"), runs.of("b"), runs.of("c")), (2, 2, 2));
    assert_eq!(run.state()["got"], json!({"a": "A", "b": "B", "c": "C"}));
    assert_eq!((run.rest(), run.checkpoints()), (Rest::Succeeded, 2));
}

#[test]
fn an_answered_question_is_not_asked_again_beside_a_parallel_one() {
    let runs = Runs::default();
    let mut run = start(graph(|g| {
        let twice = with(&runs, |cx, runs| async move {
            runs.hit("a");
            let first = cx.interrupt("a1?").await?;
            let second = cx.interrupt("a2?").await?;
            Ok(got("a", &json!([first, second])))
        });
        g.node("a", twice).edge(START, "a").node("b", asking("b", &runs)).edge(START, "b");
    }));
    let (a1, b1) = (point(&run, "a1?"), point(&run, "b?"));
    answer_ids(&mut run, &[(&a1.id, json!(1))]).expect("open");
    assert_eq!(open(&run), ["a2?", "b?"]);
    assert_eq!(point(&run, "b?"), b1);
    assert_ne!(point(&run, "a2?").id, a1.id);

    // A stale click on the first page decides nothing.
    let waiting = run.points();
    assert_eq!(answer_ids(&mut run, &[(&a1.id, json!(9))]), Err(Refused::NotOpen(a1.id.clone())));
    assert_eq!(run.points(), waiting);

    answer_ids(&mut run, &[(&waiting[0].id, json!(2)), (&b1.id, json!(3))]).expect("open");
    assert_eq!(run.state()["got"], json!({"a": [1, 2], "b": 3}));
    assert_eq!((runs.of("a"), runs.of("b")), (3, 2));
}

#[test]
fn a_plain_answer_is_refused_when_two_wait() {
    let runs = Runs::default();
    let mut run = start(graph(|g| {
        for node in ["a", "b"] {
            g.node(node, asking(node, &runs)).edge(START, node);
        }
    }));
    let before = run.points();
    assert_eq!(now(run.answer(json!(1))), Err(Refused::NotOne(2)));
    assert_eq!((run.points(), run.visits("a"), run.visits("b")), (before, 1, 1));
}

#[test]
fn one_bad_id_and_nothing_is_taken() {
    let runs = Runs::default();
    let mut run = start(graph(|g| {
        for node in ["a", "b"] {
            g.node(node, asking(node, &runs)).edge(START, node);
        }
    }));
    let before = run.points();
    let unknown = InterruptId::parse("0".repeat(32)).expect("an id");
    let refused = answer_ids(&mut run, &[(&before[0].id, json!(1)), (&unknown, json!(2))]);
    assert_eq!(refused, Err(Refused::NotOpen(unknown)));
    assert_eq!(run.points(), before);

    let twice = [(&before[0].id, json!(1)), (&before[0].id, json!(2))];
    assert_eq!(answer_ids(&mut run, &twice), Err(Refused::NotOpen(before[0].id.clone())));
    assert_eq!((run.points(), runs.of("a")), (before, 1));
}

#[test]
fn every_json_value_is_an_answer_and_a_bare_one_is_null() {
    for value in [json!(false), json!(0), json!(""), json!({}), json!([]), Value::Null] {
        let runs = Runs::default();
        let mut run = start(single(asking("n", &runs)));
        answer(&mut run, value.clone());
        assert_eq!((run.rest(), &run.state()["got"]["n"]), (Rest::Succeeded, &value));
    }
}

#[test]
fn an_answer_that_does_not_fit_is_refused_before_anything_runs() {
    let runs = Runs::default();
    let mut run = start(single(with(&runs, |cx, runs| async move {
        runs.hit("n");
        let colour = cx.ask(select("Colour?", ["red", "blue"])).await?;
        Ok(Writes::none().with("last", &colour))
    })));
    let before = run.points();
    let refused = now(run.answer(json!({"value": "green"})));
    assert!(matches!(refused, Err(Refused::Invalid(faults)) if faults[0].pointer == "/value"));
    assert_eq!((run.points(), runs.of("n")), (before, 1));
    answer(&mut run, json!({"value": "blue"}));
    assert_eq!(run.state()["last"], "blue");
}

#[test]
fn a_decision_carries_who_decided() {
    let mut run = start(single(with(&(), |cx, ()| async move {
        let decision = cx.ask(approval("Pay?")).await?;
        Ok(Writes::none().with("last", &decision))
    })));
    now(run.answer_as("Ann@Example.com", json!({"approved": false, "reason": "no"}))).expect("open");
    assert_eq!(run.state()["last"], json!({"approved": false, "reason": "no", "by": ["person:ann@example.com"]}));
}

#[test]
fn a_question_that_nobody_could_answer_fails_its_node() {
    let run = start(single(with(&(), |cx, ()| async move {
        cx.ask(select("Colour?", Vec::<&str>::new())).await?;
        Ok(Writes::none())
    })));
    assert_eq!(run.rest(), Rest::Failed);
    assert_eq!(run.errors()["n"], "`Colour?` offers no options");
}

#[test]
fn a_changed_question_is_asked_as_a_new_one() {
    let runs = Runs::default();
    let mut run = start(single(with(&runs, |cx, runs| async move {
        let amount = if runs.hit("n") == 1 { "100" } else { "900" };
        let name = cx.ask(input(format!("Who pays {amount}?"))).await?;
        Ok(Writes::none().with("last", &name))
    })));
    let first = run.points().remove(0);
    answer(&mut run, json!({"value": "Ann"}));
    let second = run.points().remove(0);
    let request = second.request().expect("a request");
    assert_eq!((request.title.as_str(), &request.question), ("Who pays 900?", &Question::Input { placeholder: None }));
    assert_ne!(second.id, first.id);
    assert_eq!(
        now(run.answer_ids([(first.id.clone(), json!({"value": "x"}))], "a@b")),
        Err(Refused::NotOpen(first.id))
    );
    answer(&mut run, json!({"value": "Bob"}));
    assert_eq!((run.rest(), &run.state()["last"]), (Rest::Succeeded, &json!("Bob")));
}

#[test]
fn a_raw_interrupt_takes_its_answer_though_the_payload_changed() {
    let runs = Runs::default();
    let mut run = start(single(with(&runs, |cx, runs| async move {
        let answer = cx.interrupt(format!("attempt {}", runs.hit("n"))).await?;
        Ok(Writes::none().with("last", &answer))
    })));
    answer(&mut run, "yes");
    assert_eq!((run.rest(), &run.state()["last"]), (Rest::Succeeded, &json!("yes")));
}

#[test]
fn a_swallowed_signal_still_parks() {
    let mut run = start(single(with(&(), |cx, ()| async move {
        let answer = cx.interrupt("sure?").await.ok();
        Ok(Writes::none().with("last", &answer))
    })));
    assert_eq!((run.rest(), open(&run)), (Rest::Parked, vec!["sure?".to_owned()]));
    assert!(!run.state().contains_key("last"));
    answer(&mut run, true);
    assert_eq!((run.rest(), &run.state()["last"]), (Rest::Succeeded, &json!(true)));
}

#[test]
fn two_questions_at_once_in_one_body_wait_side_by_side() {
    let mut run = start(single(with(&(), |cx, ()| async move {
        let (left, right) = join(cx.interrupt("left?"), cx.interrupt("right?")).await;
        Ok(got("n", &json!([left?, right?])))
    })));
    let right = point(&run, "right?");
    answer_ids(&mut run, &[(&right.id, json!("R"))]).expect("open");
    assert_eq!(open(&run), ["left?"]);
    answer(&mut run, "L");
    assert_eq!(run.state()["got"]["n"], json!(["L", "R"]));
}

#[test]
fn resume_all_runs_every_open_point_and_answers_none() {
    let runs = Runs::default();
    let mut run = start(graph(|g| {
        for node in ["a", "b"] {
            g.node(node, asking(node, &runs)).edge(START, node);
        }
        let gives_up = with(&runs, |cx, runs| async move {
            runs.hit("c");
            if cx.is_resume_all() {
                return Ok(got("c", &json!("gave up")));
            }
            cx.interrupt("c?").await?;
            Ok(Writes::none())
        });
        g.node("c", gives_up).edge(START, "c");
    }));
    let before = run.points();
    resume(&mut run, RESUME_ALL);
    assert_eq!(runs.all().into_values().collect::<Vec<_>>(), [2, 2, 2]);
    assert_eq!(run.points(), before[..2], "asking again keeps the id; what was not asked again is withdrawn");
    answer_ids(&mut run, &[(&before[0].id, json!(1)), (&before[1].id, json!(2))]).expect("open");
    assert_eq!(run.state()["got"], json!({"a": 1, "b": 2, "c": "gave up"}));
    assert_eq!((run.rest(), runs.of("c")), (Rest::Succeeded, 2));
}
