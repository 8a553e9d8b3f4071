//! Edits of the state (rules 55 to 67, R5, R11, K12).

use countersign_kernel::driver::{Driver, Refused};
use countersign_kernel::fault::Fault;
use countersign_kernel::graph::{CompiledGraph, END_NAME, GraphBuilder, START};
use countersign_kernel::machine::{EditRefused, Rest, Source};
use countersign_kernel::node::NodeError;
use countersign_kernel::occurrence::PointKind;
use countersign_kernel::prelude::{Context, Graph, NodeResult, State};
use countersign_kernel::state::Writes;
use serde_json::{Value, json};

use crate::support::*;

/// `a`, then `b` asks, then `c`; after `a` a condition may lead to `x`.
fn flow(runs: &Runs, more: impl FnOnce(&mut GraphBuilder)) -> CompiledGraph {
    graph(|g| {
        g.node("a", counting("a", runs)).node("b", asking("b", runs)).node("c", counting("c", runs));
        g.node("x", counting("x", runs)).edge(START, "a").edge("b", "c");
        g.branch("a", |view| {
            let away = view.values().get("last") == Some(&json!("away"));
            Ok(vec![if away { "x".into() } else { "b".into() }])
        });
        more(g);
    })
}

fn plain(runs: &Runs) -> CompiledGraph {
    flow(runs, |_| ())
}

/// The only open point is the pause that an edit leaves.
fn edited(run: &Driver) -> bool {
    let points = run.points();
    points.len() == 1 && points[0].kind == PointKind::Pause && points[0].payload == json!({"reason": "edited"})
}

#[test]
fn an_edit_goes_through_the_reducers_and_the_nodes_way_out_is_decided_on_the_new_state() {
    let runs = Runs::default();
    let mut run = start(plain(&runs));
    let before = run.checkpoints();
    let id = edit(&mut run, json!({"log": ["by hand"], "last": "away"}), Some("a")).expect("a node");
    assert_eq!((run.checkpoints(), run.next(), edited(&run)), (before + 1, vec!["x"], true));
    let checkpoint = run.history()[0].checkpoint.clone();
    assert_eq!((checkpoint.id, checkpoint.source, checkpoint.superstep), (id, Source::Update, 2));
    assert_eq!((run.state()["log"].clone(), runs.of("x")), (json!(["a", "by hand"]), 0), "nothing has run");
    resume(&mut run, CONTINUE);
    assert_eq!((run.rest(), &run.state()["log"]), (Rest::Succeeded, &json!(["a", "by hand", "x"])));
}

#[test]
fn as_the_waiting_node_an_edit_takes_its_place_and_without_values_skips_it() {
    for (values, expected) in [(json!({"got": {"b": "by hand"}}), json!({"b": "by hand"})), (Value::Null, json!({}))] {
        let runs = Runs::default();
        let mut run = start(plain(&runs));
        edit(&mut run, values, Some("b")).expect("a node");
        assert_eq!(run.next(), ["c"]);
        resume(&mut run, CONTINUE);
        assert_eq!((run.rest(), runs.of("b"), runs.of("c")), (Rest::Succeeded, 1, 1));
        assert_eq!(run.state()["got"], expected);
    }
}

#[test]
fn as_an_earlier_node_the_run_goes_back_there() {
    let runs = Runs::default();
    let mut run = start(plain(&runs));
    answer(&mut run, 1);
    assert_eq!(run.rest(), Rest::Succeeded);
    edit(&mut run, json!({}), Some(START)).expect("START");
    assert_eq!(run.next(), ["a"]);
    resume(&mut run, CONTINUE);
    answer(&mut run, 2);
    assert_eq!((run.rest(), &run.state()["log"]), (Rest::Succeeded, &json!(["a", "c", "a", "c"])));
}

#[test]
fn without_a_node_the_one_that_ran_last_is_taken() {
    let runs = Runs::default();
    let mut run = start(plain(&runs));
    edit(&mut run, json!({"last": 1}), None).expect("`a` ran last");
    assert_eq!(run.next(), ["b"], "what waited is due again");
    // An edit as a node is no run of it: `a` is still the one that ran last.
    edit(&mut run, json!({"last": 2}), Some("b")).expect("a node");
    assert_eq!(run.next(), ["c"]);
    edit(&mut run, json!({"last": 3}), None).expect("`a` ran last");
    assert_eq!((run.next(), &run.state()["last"]), (vec!["b"], &json!(3)));
}

#[test]
fn without_a_node_it_is_refused_where_several_ran_and_is_the_start_where_none_did() {
    let runs = Runs::default();
    let mut run = start(graph(|g| {
        for node in ["p", "q"] {
            g.node(node, counting(node, &runs)).edge(START, node);
        }
        g.node("z", asking("z", &runs)).join(["p", "q"], "z");
    }));
    let (before, points) = (run.history(), run.points());
    let refused = edit(&mut run, json!({"last": 1}), None);
    assert_eq!(refused, Err(Refused::Edit(EditRefused::Ambiguous(vec!["p".into(), "q".into()]))));
    assert_eq!((run.history(), run.points()), (before, points));
    edit(&mut run, json!({"last": 1}), Some("q")).expect("a node");

    let mut run = start(graph(|g| {
        g.node("n", asking("n", &runs)).edge(START, "n");
    }));
    edit(&mut run, json!({"last": 1}), None).expect("as START");
    assert_eq!((run.next(), &run.state()["last"], run.rest()), (vec!["n"], &json!(1), Rest::Parked));
}

#[test]
fn an_edit_closes_the_question_and_forgets_what_was_answered() {
    let runs = Runs::default();
    let two = with(&runs, |cx, runs| async move {
        runs.hit("n");
        let first = cx.interrupt("first?").await?;
        let second = cx.interrupt("second?").await?;
        Ok(got("n", &json!([first, second])))
    });
    let mut run = start(single(two));
    answer(&mut run, 1);
    let second = point(&run, "second?");
    edit(&mut run, json!({"last": 1}), None).expect("as START");
    assert!(edited(&run));
    assert_eq!(answer_ids(&mut run, &[(&second.id, json!(2))]), Err(Refused::NotOpen(second.id)));
    resume(&mut run, CONTINUE);
    assert_eq!((open(&run), runs.of("n")), (vec!["first?".to_owned()], 3), "it is asked from its first question on");
    answer(&mut run, "a");
    answer(&mut run, "b");
    assert_eq!(run.state()["got"]["n"], json!(["a", "b"]));
}

#[test]
fn an_edit_in_a_half_done_superstep_drops_the_results_of_the_finished_siblings() {
    let runs = Runs::default();
    let mut run = start(graph(|g| {
        g.node("s", counting("s", &runs)).node("a", asking("a", &runs)).node("b", counting("b", &runs));
        g.edge(START, "s").edge("s", "a").edge("s", "b");
    }));
    assert_eq!(run.live_state()["log"], json!(["s", "b"]));
    edit(&mut run, json!({"last": 1}), None).expect("`s` ran last");
    assert_eq!((run.next(), &run.live_state()["log"]), (vec!["a", "b"], &json!(["s"])));
    resume(&mut run, CONTINUE);
    answer(&mut run, "A");
    assert_eq!((run.rest(), runs.of("b"), &run.state()["log"]), (Rest::Succeeded, 2, &json!(["s", "b"])));
}

#[test]
fn an_edit_repairs_what_a_failed_node_needs_or_takes_its_place() {
    for as_failed in [false, true] {
        let runs = Runs::default();
        let picky = with(&runs, |cx, runs| async move {
            runs.hit("n");
            match cx.state().values().get("last") {
                Some(value) => Ok(got("n", value)),
                None => Err(NodeError::failed("there is no `last`")),
            }
        });
        let mut run = start(single(picky));
        assert_eq!(run.rest(), Rest::Failed);
        edit(&mut run, json!({"last": 5}), as_failed.then_some("n")).expect("allowed");
        if as_failed {
            assert_eq!((run.rest(), runs.of("n")), (Rest::Succeeded, 1));
        } else {
            assert_eq!((run.rest(), errors(&run).len()), (Rest::Parked, 0));
            resume(&mut run, CONTINUE);
            assert_eq!((run.rest(), &run.state()["got"]["n"]), (Rest::Succeeded, &json!(5)));
        }
    }
}

#[test]
fn a_stop_before_what_is_due_next_is_raised_by_the_edit_that_leads_there() {
    let runs = Runs::default();
    let mut run = start(flow(&runs, |g| _ = g.break_before("c")));
    edit(&mut run, json!({}), Some("b")).expect("a node");
    let points = run.points();
    assert_eq!((points.len(), points[0].kind, &points[0].payload["before"]), (1, PointKind::Break, &json!(["c"])));
    resume(&mut run, CONTINUE);
    assert_eq!((run.rest(), runs.of("c")), (Rest::Succeeded, 1), "one stop, one release");
}

#[test]
fn as_end_the_thread_is_finished_with_the_results_of_finished_siblings() {
    let runs = Runs::default();
    let mut run = start(graph(|g| {
        g.node("a", asking("a", &runs)).node("b", counting("b", &runs)).edge(START, "a").edge(START, "b");
        g.node("c", counting("c", &runs)).edge("b", "c");
    }));
    let refused = edit(&mut run, json!({"last": 1}), Some(END_NAME));
    assert!(matches!(refused, Err(Refused::Invalid(_))), "{refused:?}");
    edit(&mut run, Value::Null, Some(END_NAME)).expect("END");
    assert_eq!((run.rest(), run.points().len(), run.next().len()), (Rest::Succeeded, 0, 0));
    assert_eq!((&run.state()["log"], runs.of("c")), (&json!(["b"]), 0));
}

#[test]
fn an_unused_thread_can_be_edited_as_if_it_were_its_input() {
    let runs = Runs::default();
    let mut run = thread(plain(&runs));
    edit(&mut run, json!({"log": ["first"]}), None).expect("as START");
    assert_eq!((run.rest(), run.next(), runs.of("a"), edited(&run)), (Rest::Parked, vec!["a"], 0, true));
    assert_eq!(Value::Object(run.state()), json!({"log": ["first"], "sum": 0, "got": {}}));
    run = run.reopen(plain(&runs));
    resume(&mut run, CONTINUE);
    assert_eq!((open(&run), &run.state()["log"]), (vec!["b?".to_owned()], &json!(["first", "a"])));
    assert_eq!(run.history().last().expect("one").checkpoint.parent, None);
}

#[test]
fn a_finished_thread_stays_so_unless_the_edit_leads_on() {
    let runs = Runs::default();
    let mut run = start(plain(&runs));
    answer(&mut run, 1);
    edit(&mut run, json!({"last": 1}), None).expect("`c` ran last");
    assert_eq!((run.rest(), run.points().len(), &run.state()["last"]), (Rest::Succeeded, 0, &json!(1)));
    edit(&mut run, json!({"last": 2}), Some("b")).expect("a node");
    assert_eq!((run.rest(), run.next()), (Rest::Parked, vec!["c"]));
    resume(&mut run, CONTINUE);
    assert_eq!((run.rest(), runs.of("c")), (Rest::Succeeded, 2));
}

#[derive(State)]
struct Typed {
    n: u32,
}

async fn wait(cx: &Context, _: &Typed) -> NodeResult<TypedUpdate> {
    cx.interrupt("?").await?;
    Ok(Typed::update())
}

#[test]
fn an_edit_that_does_not_fit_is_refused_and_changes_nothing() {
    let runs = Runs::default();
    let mut run = start(plain(&runs));
    let before = (run.points(), run.history());
    for (name, said) in [("nowhere", "`nowhere`; known: "), ("start", "`start`; did you mean `START`?; known: ")] {
        let (node, message) = unknown_node(edit(&mut run, json!({}), Some(name)));
        assert_eq!(node, name);
        assert!(message.contains(said) && message.ends_with(", START, END"), "{message}");
    }
    let unknown = edit(&mut run, json!({"lost": 1, "last": 1}), Some("a"));
    assert_eq!(unknown, Err(Refused::Invalid(vec![Fault::at("/lost", "is no key of this graph")])));
    for values in [json!({"log": "text"}), json!({"sum": "1"}), json!({"last": "x".repeat(5 << 20)})] {
        assert!(matches!(edit(&mut run, values, Some("a")), Err(Refused::Invalid(_))));
    }
    let refused = edit(&mut run, json!({"lost": 1, "log": "text", "sum": "1", "last": "x".repeat(5 << 20)}), Some("a"));
    let Err(Refused::Invalid(faults)) = refused else { panic!("{refused:?}") };
    let pointers: Vec<_> = faults.iter().map(|fault| fault.pointer.as_str()).collect();
    assert_eq!(pointers, ["/lost", "/last", "/log", "/sum"], "all at once");
    assert_eq!((run.points(), run.history()), before);

    let mut flow = Graph::<Typed>::new("typed", 1);
    let node = flow.node("wait", wait);
    flow.start(node).end(node);
    let mut run = start_with(flow.compile().expect("sound"), json!({"n": 1}));
    let refused = edit(&mut run, json!({"n": "one"}), None);
    assert!(matches!(&refused, Err(Refused::Invalid(faults)) if faults[0].pointer == "/n"), "{refused:?}");
    assert_eq!(open(&run), ["?"]);
}

#[test]
fn an_edit_as_a_node_whose_way_out_fails_is_refused() {
    let runs = Runs::default();
    let mut run = start(graph(|g| {
        g.node("a", asking("a", &runs)).node("b", counting("b", &runs)).edge(START, "a");
        g.branch("a", |view| match view.values().get("last") {
            Some(Value::String(node)) => Ok(vec![node.as_str().into()]),
            _ => Err("no case fits".into()),
        });
    }));
    for values in [json!({}), json!({"last": "nowhere"})] {
        assert!(matches!(edit(&mut run, values, Some("a")), Err(Refused::Invalid(_))));
        assert_eq!((open(&run), run.state().contains_key("last")), (vec!["a?".to_owned()], false));
    }
    edit(&mut run, json!({"last": "b"}), Some("a")).expect("leads to b");
    assert_eq!(run.next(), ["b"]);
}

#[test]
fn after_a_fan_out_an_edit_without_a_node_counts_as_its_workers() {
    let runs = Runs::default();
    let mut run = start(graph(|g| {
        g.node("w", with(&(), |_, ()| async move { Ok(Writes::none().with("sum", &1)) }));
        g.node("z", asking("z", &runs)).edge("w", "z");
        g.branch(START, |_| Ok(vec![send("w", json!(1)), send("w", json!(2))]));
    }));
    edit(&mut run, json!({"sum": 10}), None).expect("`w` ran last");
    assert_eq!((run.next(), &run.state()["sum"]), (vec!["z"], &json!(12)));
}
