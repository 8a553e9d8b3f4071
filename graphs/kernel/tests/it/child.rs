//! Parts that a body names itself, and containers that take data (K1, K7, K18,
//! R6, R12).

use countersign_kernel::context::{Context, Slot};
use countersign_kernel::driver::{Driver, Refused};
use countersign_kernel::graph::CompiledGraph;
use countersign_kernel::ids::InterruptId;
use countersign_kernel::machine::Rest;
use countersign_kernel::node::{NodeError, NodeResult, SharedBody};
use countersign_kernel::state::Writes;
use futures_util::future::{join, join_all};
use serde_json::{Value, json};

use crate::support::*;

/// A part that asks `<id>?`.
async fn member(cx: &Context, runs: &Runs, id: &str) -> NodeResult<Value> {
    cx.child("member", id, |cx| async move {
        runs.hit(id);
        cx.interrupt(format!("{id}?")).await
    })
    .await
}

/// Members side by side under a container that takes data.
fn group(ids: &'static [&'static str], runs: &Runs) -> SharedBody {
    with(runs, move |cx, runs| async move {
        runs.hit("group");
        let data = cx.container("the group")?;
        let mut answers = vec![json!(data)];
        for result in join_all(ids.iter().map(|id| member(&cx, &runs, id))).await {
            answers.push(result?);
        }
        Ok(got("n", &json!(answers)))
    })
}

#[test]
fn each_part_has_its_own_segment_and_only_the_answered_one_runs() {
    let runs = Runs::default();
    let mut run = start(single(group(&["x", "y", "z"], &runs)));
    assert_eq!(addresses(&run), ["g/n@0/member[0]:x", "g/n@0/member[0]:y", "g/n@0/member[0]:z"]);
    let points = run.points();
    answer_ids(&mut run, &[(&points[1].id, json!("Y"))]).expect("open");
    assert_eq!(run.points(), [points[0].clone(), points[2].clone()]);
    assert_eq!((runs.of("x"), runs.of("y"), runs.of("z"), runs.of("group")), (1, 2, 1, 2));
    answer_ids(&mut run, &[(&points[2].id, json!("Z")), (&points[0].id, json!("X"))]).expect("open");
    assert_eq!((run.rest(), &run.state()["got"]["n"]), (Rest::Succeeded, &json!([null, "X", "Y", "Z"])));
    assert_eq!((runs.of("x"), runs.of("y"), runs.of("z")), (2, 2, 2));
}

#[test]
fn a_finished_part_keeps_its_result_and_parts_in_turn_stop_at_the_first() {
    let runs = Runs::default();
    let build = || {
        single(with(&runs, |cx, runs| async move {
            let x = member(&cx, &runs, "x").await?;
            let y = member(&cx, &runs, "y").await?;
            Ok(got("n", &json!([x, y])))
        }))
    };
    let mut run = start(build());
    for id in ["x", "y"] {
        assert_eq!(open(&run), [format!("{id}?")]);
        run = run.reopen(build());
        answer(&mut run, id);
    }
    assert_eq!((run.rest(), &run.state()["got"]["n"]), (Rest::Succeeded, &json!(["x", "y"])));
    assert_eq!((runs.of("x"), runs.of("y")), (2, 2));
}

#[test]
fn entering_a_part_again_is_another_visit() {
    let runs = Runs::default();
    let mut run = start(single(with(&runs, |cx, runs| async move {
        let mut all = Vec::new();
        for round in 0..3 {
            let id = if round == 2 { "y" } else { "x" };
            all.push(member(&cx, &runs, id).await?);
        }
        Ok(got("n", &json!(all)))
    })));
    let mut seen = Vec::new();
    for number in 0..3 {
        seen.extend(addresses(&run));
        answer(&mut run, number);
    }
    assert_eq!(seen, ["g/n@0/member[0]:x", "g/n@0/member[1]:x", "g/n@0/member[0]:y"]);
    assert_eq!((run.rest(), &run.state()["got"]["n"]), (Rest::Succeeded, &json!([0, 1, 2])));
    assert_eq!((runs.of("x"), runs.of("y")), (4, 2));
}

#[test]
fn parts_in_parts_are_entered_only_on_the_way_to_an_answer() {
    let runs = Runs::default();
    let mut run = start(single(with(&runs, |cx, runs| async move {
        let runs = &runs;
        let team = |id: &'static str| {
            cx.child("team", id, move |cx| async move {
                runs.hit(id);
                let (a, b) = join(member(&cx, runs, "a"), member(&cx, runs, "b")).await;
                Ok(json!([a?, b?]))
            })
        };
        let (one, two) = join(team("one"), team("two")).await;
        Ok(got("n", &json!([one?, two?])))
    })));
    let points = run.points();
    assert_eq!(addresses(&run)[3], "g/n@0/team[0]:two/member[0]:b");
    let parents: Vec<String> = points[3].parents.iter().map(|parent| parent.address.to_string()).collect();
    assert_eq!(parents, ["g/n@0/team[0]:two", "g/n@0", "g"]);
    answer_ids(&mut run, &[(&points[3].id, json!("2b"))]).expect("open");
    assert_eq!((runs.of("one"), runs.of("two"), runs.of("a"), runs.of("b")), (1, 2, 2, 3));
    let rest: Vec<_> = points[..3].iter().map(|point| (&point.id, json!("."))).collect();
    answer_ids(&mut run, &rest).expect("open");
    assert_eq!(run.state()["got"]["n"], json!([[".", "."], [".", "2b"]]));
}

/// `ask` and `bad` as parts or as slots; `bad` fails until its `good`th run.
fn half_failing(good: u32, slots: bool, runs: &Runs) -> CompiledGraph {
    async fn one(cx: Context, id: &'static str, good: u32, runs: Runs) -> NodeResult<Value> {
        match (id, runs.hit(id)) {
            ("ask", _) => cx.interrupt("ask?").await,
            (_, attempt) if attempt < good => Err(NodeError::failed("out of paper")),
            (_, attempt) => Ok(json!(attempt)),
        }
    }
    single(with(runs, move |cx, runs| async move {
        runs.hit("n");
        let both = if slots {
            let slots = ["ask", "bad"].map(|id| Slot::new(id, id)).into();
            cx.batch("part", slots, |cx, id| one(cx, id, good, runs.clone())).await?
        } else {
            let part = |id: &'static str| {
                let runs = runs.clone();
                cx.child("part", id, move |cx| one(cx, id, good, runs))
            };
            let (ask, bad) = join(part("ask"), part("bad")).await;
            vec![ask?, bad?]
        };
        Ok(got("n", &json!(both)))
    }))
}

#[test]
fn a_failed_part_is_not_run_when_a_sibling_is_answered_and_is_by_a_retry() {
    for slots in [true, false] {
        let runs = Runs::default();
        let mut run = start(half_failing(2, slots, &runs));
        // A batch says at once that a slot failed; this body first looks at the one that waits.
        assert_eq!(run.rest(), if slots { Rest::Failed } else { Rest::Parked });
        answer(&mut run, "A");
        assert_eq!((run.rest(), errors(&run)), (Rest::Failed, vec![("n", "out of paper")]), "slots: {slots}");
        assert_eq!((runs.of("ask"), runs.of("bad"), runs.of("n")), (2, 1, 2));
        run = run.reopen(half_failing(2, slots, &runs));
        resume(&mut run, RETRY);
        assert_eq!((run.rest(), &run.state()["got"]["n"]), (Rest::Succeeded, &json!(["A", 2])));
        assert_eq!((runs.of("ask"), runs.of("bad")), (2, 2));
    }
}

#[test]
fn a_retry_of_a_failed_part_leaves_the_parked_one_alone() {
    let runs = Runs::default();
    let mut run = start(half_failing(3, true, &runs));
    for attempt in 2..=3 {
        assert_eq!((run.rest(), open(&run)), (Rest::Failed, vec!["ask?".to_owned()]));
        resume(&mut run, RETRY);
        assert_eq!((runs.of("ask"), runs.of("bad")), (1, attempt));
    }
    assert_eq!(run.rest(), Rest::Parked);
    answer(&mut run, "A");
    assert_eq!((run.rest(), runs.of("bad")), (Rest::Succeeded, 3));
}

#[test]
fn a_swallowed_failure_of_a_part_stays_what_it_was() {
    let runs = Runs::default();
    let mut run = start(single(with(&runs, |cx, runs| async move {
        let tried: NodeResult<Value> =
            cx.child("part", "bad", |_| async { Err(NodeError::failed(format!("attempt {}", runs.hit("bad")))) }).await;
        let Err(NodeError::Failed(message)) = tried else { return Err(NodeError::failed("it did not fail")) };
        let answer = cx.interrupt(json!({"broken": message.clone()})).await?;
        Ok(got("n", &json!([message, answer])))
    })));
    assert_eq!(run.points()[0].payload, json!({"broken": "attempt 1"}));
    answer(&mut run, "go on");
    assert_eq!((run.rest(), &run.state()["got"]["n"]), (Rest::Succeeded, &json!(["attempt 1", "go on"])));
    assert_eq!(runs.of("bad"), 1);
}

#[test]
fn steps_of_parts_and_slots_of_one_name_have_keys_of_their_own() {
    let keys = Runs::default();
    let run = start(single(with(&keys, |cx, keys| async move {
        let pay = |cx: Context| {
            let keys = keys.clone();
            async move { cx.step("pay", |key| async move { Ok::<_, std::fmt::Error>(keys.hit(key.as_str())) }).await }
        };
        // All of these print alike in pairs.
        cx.child("x", "a", pay).await?;
        cx.batch("x", vec![Slot::new("a", ())], |cx, ()| pay(cx)).await?;
        cx.child("p", "q/r[0]:s", pay).await?;
        cx.child("p", "q", |cx| async move { cx.child("r", "s", pay).await }).await?;
        Ok(Writes::none())
    })));
    assert_eq!((run.rest(), keys.all().into_values().collect::<Vec<_>>()), (Rest::Succeeded, vec![1, 1, 1, 1]));
}

/// The container nearest to the first open point.
fn container(run: &Driver) -> (InterruptId, Value, bool) {
    let parent = run.points()[0].parents[0].clone();
    (parent.id, parent.info, parent.takes_data)
}

#[test]
fn a_container_gets_its_data_together_with_an_answer_below_it() {
    let runs = Runs::default();
    let build = || single(group(&["x", "y"], &runs));
    let mut run = start(build()).reopen(build());
    let (id, info, takes_data) = container(&run);
    assert_eq!((info, takes_data), (json!("the group"), true));
    let x = point(&run, "x?");
    answer_ids(&mut run, &[(&id, json!({"why": 1})), (&x.id, json!("X"))]).expect("both are known");
    assert_eq!((open(&run), runs.of("group"), runs.of("x"), runs.of("y")), (vec!["y?".to_owned()], 2, 2, 1));
    run = run.reopen(build());
    answer(&mut run, "Y");
    assert_eq!((run.rest(), &run.state()["got"]["n"]), (Rest::Succeeded, &json!([{"why": 1}, "X", "Y"])));
}

#[test]
fn naming_only_the_container_leaves_what_is_below_it_parked() {
    let runs = Runs::default();
    let mut run = start(single(group(&["x", "y"], &runs)));
    let (id, points) = (container(&run).0, run.points());
    answer_ids(&mut run, &[(&id, json!("data"))]).expect("it takes data");
    assert_eq!((runs.of("group"), runs.of("x"), runs.of("y")), (2, 1, 1));
    let ids = |points: &[countersign_kernel::machine::Point]| points.iter().map(|p| p.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&run.points()), ids(&points));
    // It took its data; what is decided stays decided (R9).
    assert!(!container(&run).2);
    assert_eq!(answer_ids(&mut run, &[(&id, json!("more"))]), Err(Refused::NotAnswerable(id)));
    let answers: Vec<_> = points.iter().map(|point| (&point.id, json!("."))).collect();
    answer_ids(&mut run, &answers).expect("open");
    assert_eq!(run.state()["got"]["n"], json!(["data", ".", "."]));
}

#[test]
fn a_container_without_data_or_declaration_is_refused_and_nothing_is_taken() {
    let runs = Runs::default();
    let mut run = start(single(group(&["x"], &runs)));
    let (id, x) = (container(&run).0, point(&run, "x?"));
    let before = run.points();
    let bare = answer_ids(&mut run, &[(&x.id, json!("X")), (&id, Value::Null)]);
    assert_eq!(bare, Err(Refused::NotAnswerable(id)));
    let root = x.parents.last().expect("the root graph").id.clone();
    assert_eq!(answer_ids(&mut run, &[(&root, json!(1))]), Err(Refused::NotAnswerable(root)));
    assert_eq!((run.points(), runs.of("x"), runs.of("group")), (before, 1, 1));

    let mut run = start(single(with(&runs, |cx, runs| async move { Ok(got("n", &member(&cx, &runs, "x").await?)) })));
    let (id, info, takes_data) = container(&run);
    assert_eq!((info, takes_data), (Value::Null, false));
    assert_eq!(answer_ids(&mut run, &[(&id, json!(1))]), Err(Refused::NotAnswerable(id)));
}

#[test]
fn a_container_is_no_question_and_no_plain_answer_is_for_it() {
    let runs = Runs::default();
    let mut run = start(single(group(&["x"], &runs)));
    assert_eq!(run.points().len(), 1);
    answer(&mut run, "X");
    assert_eq!((run.rest(), &run.state()["got"]["n"]), (Rest::Succeeded, &json!([null, "X"])));
}
