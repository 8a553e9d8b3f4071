//! History, replays and forks (rules 68 to 76, K2, R2, R13).

use countersign_kernel::driver::{Driver, HistoryEntry, Refused, RunRequest};
use countersign_kernel::graph::{CompiledGraph, GraphBuilder, START};
use countersign_kernel::ids::CheckpointId;
use countersign_kernel::machine::{EditRefused, Rest, Source};
use countersign_kernel::occurrence::PointKind;
use countersign_kernel::state::Writes;
use serde_json::{Value, json};

use crate::support::*;

/// `a`, then `b` asks beside `q`, then both lead to `z`.
fn flow(runs: &Runs, more: impl FnOnce(&mut GraphBuilder)) -> CompiledGraph {
    graph(|g| {
        let asks = with(runs, |cx, runs| async move {
            runs.hit("b");
            let answer = cx.interrupt("b?").await?;
            Ok(Writes::none().with("log", &[answer]))
        });
        g.node("a", counting("a", runs)).node("b", asks).node("q", counting("q", runs)).node("z", counting("z", runs));
        g.edge(START, "a").edge("a", "b").edge("a", "q").join(["b", "q"], "z");
        more(g);
    })
}

fn plain(runs: &Runs) -> CompiledGraph {
    flow(runs, |_| ())
}

/// The checkpoints, oldest first.
fn ids(run: &Driver) -> Vec<CheckpointId> {
    run.history().into_iter().rev().map(|entry| entry.checkpoint.id).collect()
}

fn shown(entry: &HistoryEntry) -> (Source, u64, Value, Vec<String>) {
    let checkpoint = &entry.checkpoint;
    (checkpoint.source, checkpoint.superstep, entry.values["log"].clone(), entry.next.clone())
}

fn nodes(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn history_is_newest_first_with_state_and_tasks_as_each_superstep_began() {
    let runs = Runs::default();
    let mut run = start_with(plain(&runs), json!({"log": ["in"]}));
    answer(&mut run, "B");
    edit(&mut run, json!({"log": ["edited"]}), None).expect("`z` ran last");
    let history = run.history();
    let expected = [
        (Source::Update, 4, json!(["in", "a", "B", "q", "z", "edited"]), nodes(&[])),
        (Source::Loop, 3, json!(["in", "a", "B", "q", "z"]), nodes(&[])),
        (Source::Loop, 2, json!(["in", "a", "B", "q"]), nodes(&["z"])),
        (Source::Loop, 1, json!(["in", "a"]), nodes(&["b", "q"])),
        (Source::Input, 0, json!(["in"]), nodes(&["a"])),
    ];
    assert_eq!(history.iter().map(shown).collect::<Vec<_>>(), expected);
    for pair in history.windows(2) {
        assert_eq!(pair[0].checkpoint.parent.as_ref(), Some(&pair[1].checkpoint.id));
        assert!(pair[0].checkpoint.created_at > pair[1].checkpoint.created_at);
    }
    assert_eq!(history[4].checkpoint.parent, None);
}

#[test]
fn a_replay_runs_nothing_before_its_checkpoint_and_everything_from_it_on() {
    let runs = Runs::default();
    let mut run = start(plain(&runs));
    let first = run.points();
    answer(&mut run, "one");
    assert_eq!(run.rest(), Rest::Succeeded);
    let (old, branch) = (ids(&run), run.history());

    replay(&mut run, &old[1]).expect("known");
    assert_eq!((run.rest(), open(&run)), (Rest::Parked, vec!["b?".to_owned()]), "it asks again");
    assert_eq!((runs.of("a"), runs.of("b"), runs.of("q"), runs.of("z")), (1, 3, 2, 1));
    assert_ne!(run.points()[0].id, first[0].id, "under an id of its own");
    let stale = answer_ids(&mut run, &[(&first[0].id, json!("stale"))]);
    assert_eq!(stale, Err(Refused::NotOpen(first[0].id.clone())));

    answer(&mut run, "two");
    assert_eq!((run.rest(), &run.state()["log"]), (Rest::Succeeded, &json!(["a", "two", "q", "z"])));
    assert_eq!((runs.of("a"), runs.of("b"), runs.of("q"), runs.of("z")), (1, 4, 2, 2));
    let history = run.history();
    assert_eq!(history[3..], branch, "the old branch stays readable");
    let fork = &history[2].checkpoint;
    assert_eq!((fork.source, fork.superstep, fork.parent.as_ref()), (Source::Fork, 1, Some(&old[1])));
}

#[test]
fn a_replay_of_the_newest_checkpoint_drops_the_answers_and_results_it_has() {
    let runs = Runs::default();
    let two = with(&runs, |cx, runs| async move {
        runs.hit("n");
        let first = cx.interrupt("first?").await?;
        let second = cx.interrupt("second?").await?;
        Ok(got("n", &json!([first, second])))
    });
    let mut run = start(graph(|g| {
        g.node("n", two).node("quick", counting("quick", &runs)).edge(START, "n").edge(START, "quick");
    }));
    answer(&mut run, 1);
    let newest = ids(&run).pop().expect("one");
    let before = run.points();
    answer_ids(&mut run, &[]).expect_err("nothing is asked for");
    assert_eq!(run.points(), before);
    replay(&mut run, &newest).expect("known");
    assert_eq!((open(&run), runs.of("n"), runs.of("quick")), (vec!["first?".to_owned()], 3, 2));
}

#[test]
fn an_answer_cannot_be_sent_to_an_old_checkpoint_with_the_replay() {
    let runs = Runs::default();
    let mut run = start(plain(&runs));
    let (id, at) = (run.points()[0].id.clone(), ids(&run)[1].clone());
    answer(&mut run, "one");
    let before = (run.history(), run.state());
    let answers = vec![(id.clone(), json!("two"))];
    let refused = request(&mut run, RunRequest { at: Some(at), answers, ..RunRequest::default() });
    assert_eq!(refused, Err(Refused::NotOpen(id)));
    assert_eq!(((run.history(), run.state()), runs.of("b")), (before, 2));
}

#[test]
fn steps_are_taken_again_under_other_keys() {
    let keys = Runs::default();
    let pays = with(&keys, |cx, keys| async move {
        cx.step("pay", |key| async move { Ok::<_, std::fmt::Error>(keys.hit(key.as_str())) }).await?;
        Ok(Writes::none())
    });
    let mut run = start(single(pays));
    let first = ids(&run)[0].clone();
    replay(&mut run, &first).expect("known");
    assert_eq!(keys.all().into_values().collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn a_replay_meets_the_stops_again_and_one_from_a_stop_can_be_told_to_pass_it() {
    let runs = Runs::default();
    let mut run = start(flow(&runs, |g| _ = g.break_before("z")));
    answer(&mut run, 1);
    let stop = run.points();
    resume(&mut run, CONTINUE);
    assert_eq!((run.rest(), runs.of("z")), (Rest::Succeeded, 1));
    let old = ids(&run);

    replay(&mut run, &old[1]).expect("known");
    answer(&mut run, 2);
    assert_eq!((run.points()[0].kind, runs.of("z")), (PointKind::Break, 1));

    replay(&mut run, &old[2]).expect("known");
    assert_eq!((run.points().len(), run.points()[0].kind, runs.of("z")), (1, PointKind::Break, 1));
    assert_ne!(run.points()[0].id, stop[0].id, "raised anew by the fork");
    let passing = RunRequest { at: Some(old[2].clone()), resume: CONTINUE, ..RunRequest::default() };
    request(&mut run, passing).expect("known");
    assert_eq!((run.rest(), runs.of("z"), &run.state()["log"]), (Rest::Succeeded, 2, &json!(["a", 1, "q", "z"])));
}

#[test]
fn an_edit_of_an_old_checkpoint_is_a_branch_and_becomes_the_thread() {
    let runs = Runs::default();
    let mut run = start(plain(&runs));
    answer(&mut run, "one");
    let (old, branch) = (ids(&run), run.history());
    let id = run.edit(&edit_of(json!({"log": ["edited"]}), None), Some(&old[1]), None).expect("`a` ran last there");
    assert_eq!((run.rest(), run.next(), &run.state()["log"]), (Rest::Parked, vec!["b", "q"], &json!(["a", "edited"])));
    assert_eq!(run.history()[1..], branch);
    assert_eq!(run.history()[0].checkpoint.id, id);
    assert_eq!(run.history()[0].checkpoint.parent.as_ref(), Some(&old[1]));
    resume(&mut run, CONTINUE);
    answer(&mut run, "two");
    assert_eq!((run.rest(), &run.state()["log"]), (Rest::Succeeded, &json!(["a", "edited", "two", "q", "z"])));

    run.edit(&edit_of(json!({"log": ["by hand"]}), Some("b")), Some(&old[1]), None).expect("a node");
    assert_eq!(run.next().len(), 0, "only one source of the join counts as having run");
    assert_eq!((run.rest(), &run.state()["log"]), (Rest::Succeeded, &json!(["a", "by hand"])));
}

#[test]
fn new_input_at_an_old_checkpoint_starts_over_from_that_state() {
    let runs = Runs::default();
    let mut run = start(plain(&runs));
    answer(&mut run, "one");
    let old = ids(&run);
    let input = Some(json!({"log": ["in"]}));
    request(&mut run, RunRequest { input, at: Some(old[1].clone()), ..RunRequest::default() }).expect("known");
    assert_eq!((open(&run), &run.state()["log"]), (vec!["b?".to_owned()], &json!(["a", "in", "a"])));
    assert_eq!(run.history()[1].checkpoint.parent.as_ref(), Some(&old[1]));
}

#[test]
fn a_replay_has_the_arrivals_at_joins_of_its_checkpoint() {
    let runs = Runs::default();
    let mut run = start(graph(|g| {
        for node in ["a", "b", "c", "z"] {
            g.node(node, counting(node, &runs));
        }
        g.edge(START, "a").edge(START, "b").edge("b", "c").join(["a", "c"], "z");
    }));
    assert_eq!(run.rest(), Rest::Succeeded);
    let old = ids(&run);
    for (at, z) in [(&old[1], 2), (&old[2], 3), (&old[0], 4)] {
        replay(&mut run, at).expect("known");
        assert_eq!((run.rest(), runs.of("z"), &run.state()["log"]), (Rest::Succeeded, z, &json!(["a", "b", "c", "z"])));
    }
    assert_eq!(runs.of("a"), 2);
}

#[test]
fn a_replay_from_before_a_graph_runs_it_from_its_beginning() {
    let runs = Runs::default();
    let inner = named("inner", |g| {
        g.node("p", with(&runs, |_, runs| async move { Ok(got("p", &json!(runs.hit("p")))) }));
        g.node("ask", asking("ask", &runs)).edge(START, "p").edge("p", "ask");
    });
    let mut run = start(graph(|g| {
        g.node("a", counting("a", &runs)).subgraph("sub", inner).edge(START, "a").edge("a", "sub");
    }));
    let first = run.points();
    answer(&mut run, "one");
    let old = ids(&run);
    replay(&mut run, &old[1]).expect("known");
    assert_eq!((runs.of("a"), runs.of("p"), open(&run)), (1, 2, vec!["ask?".to_owned()]));
    assert_ne!(run.points()[0].id, first[0].id);
    assert_ne!(run.points()[0].parents[0].id, first[0].parents[0].id, "another run of the graph");
    answer(&mut run, "two");
    assert_eq!(run.state()["got"], json!({"p": 2, "ask": "two"}));
}

#[test]
fn what_cannot_be_replayed_is_refused_and_changes_nothing() {
    let runs = Runs::default();
    let mut run = start(plain(&runs));
    let unknown = CheckpointId::parse("unknown").expect("an id");
    assert_eq!(replay(&mut run, &unknown), Err(Refused::UnknownCheckpoint(unknown.clone())));
    let edited = run.edit(&edit_of(json!({}), None), Some(&unknown), None);
    assert_eq!(edited, Err(Refused::UnknownCheckpoint(unknown)));
    assert_eq!(open(&run), ["b?"]);
    answer(&mut run, 1);
    let (end, before) = (ids(&run).pop().expect("one"), run.history());
    assert_eq!(replay(&mut run, &end), Err(Refused::Edit(EditRefused::NothingPending)));
    assert_eq!((run.rest(), run.history()), (Rest::Succeeded, before));
}

#[test]
fn input_on_a_waiting_thread_needs_the_word_and_on_a_finished_one_does_not() {
    let runs = Runs::default();
    let mut run = start(plain(&runs));
    let before = run.points();
    let refused = request(&mut run, RunRequest { input: Some(json!({})), ..RunRequest::default() });
    assert_eq!((refused, run.points()), (Err(Refused::Waiting), before.clone()));
    restart(&mut run, json!({"log": ["again"]}));
    assert_eq!((open(&run), &run.state()["log"]), (vec!["b?".to_owned()], &json!(["a", "again", "a"])));
    assert_eq!(answer_ids(&mut run, &[(&before[0].id, json!(1))]), Err(Refused::NotOpen(before[0].id.clone())));
    answer(&mut run, 1);
    request(&mut run, RunRequest { input: Some(json!({})), ..RunRequest::default() }).expect("nothing waits");
    assert_eq!(open(&run), ["b?"]);
    assert_eq!(run.history().last().expect("one").checkpoint.parent, None, "one line from the first input on");
}
