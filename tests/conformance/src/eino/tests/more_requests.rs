//! Requests beyond the recordings: several at once, refused ones, fresh input
//! on a waiting thread, pauses.

use super::*;

fn two() -> Value {
    graph(
        &json!({"a": body(&asking("qa")), "b": body(&asking("qb"))}),
        &json!([["START", "a"], ["START", "b"], ["a", "END"], ["b", "END"]]),
    )
}

fn both() -> Value {
    json!([waits("a", &["runnable:root", "node:a"], "qa"), waits("b", &["runnable:root", "node:b"], "qb")])
}

#[test]
fn answers_to_different_points_at_the_same_time_both_count() {
    assert_holds(
        &two(),
        &[
            step(&input("x"), &json!({"pending": both()})),
            step(
                &json!({"together": [answer("a", "1"), answer("b", "2")]}),
                &json!({"status": "done", "accepted": 2,
                "output": {"a": "ok(1)", "b": "ok(2)"}, "runs": {"a": 2, "b": 2}}),
            ),
        ],
    );
}

#[test]
fn one_bad_id_makes_the_whole_request_do_nothing() {
    let mut bad = answer("a", "1");
    bad["resume"]["ids"] = json!({"not-an-id": {"data": "x"}});
    assert_holds(
        &two(),
        &[
            step(&input("x"), &json!({"pending": both()})),
            step(
                &bad,
                &json!({"status": "interrupted", "refused": {"not-an-id": "unknown"}, "ran": {},
                "pending": [{"address": ["runnable:root", "node:a"], "info": "qa", "same_id_as": "a"},
                    {"address": ["runnable:root", "node:b"], "info": "qb", "same_id_as": "b"}]}),
            ),
            step(&answer("a", "1"), &json!({"status": "interrupted", "ran": {"a": ["target"]}})),
        ],
    );
}

#[test]
fn input_on_a_waiting_thread_is_refused_unless_it_may_drop_what_waits() {
    let anew = json!({"run": {"input": "y", "force_new": true}});
    let mut pending = both();
    (pending[0]["not"], pending[1]["not"]) = (json!("a"), json!("b"));
    (pending[0]["ref"], pending[1]["ref"]) = (json!("a2"), json!("b2"));
    assert_holds(
        &two(),
        &[
            step(&input("x"), &json!({"pending": both()})),
            step(&input("y"), &json!({"status": "interrupted", "refused": {"*": "thread_interrupted"}, "ran": {}})),
            step(&anew, &json!({"status": "interrupted", "pending": pending, "ran": {"a": ["fresh"], "b": ["fresh"]}})),
            step(&answer("a", "late"), &json!({"refused": {"a": "superseded"}, "ran": {}, "status": "interrupted"})),
            step(
                &json!({"resume": {"targets": {"a2": {"data": "1"}, "b2": {}}}}),
                &json!({"status": "done", "output": {"a": "ok(1)", "b": "bare"}}),
            ),
        ],
    );
}

#[test]
fn a_finished_thread_starts_anew_with_fresh_input_and_is_not_resumed() {
    let app = graph(
        &json!({"a": body(&json!({"fresh": [{"return": "<${input}>"}]}))}),
        &json!([["START", "a"], ["a", "END"]]),
    );
    assert_holds(
        &app,
        &[
            step(&input("x"), &json!({"status": "done", "output": "<x>"})),
            step(
                &json!({"resume_all": {}}),
                &json!({"status": "done", "refused": {"*": "nothing_pending"}, "ran": {}}),
            ),
            step(&input("y"), &json!({"status": "done", "output": "<y>", "runs": {"a": 2}})),
            step(&input("y"), &json!({"status": "done", "output": "<y>", "runs": {"a": 3}})),
        ],
    );
}

#[test]
fn a_thread_that_never_ran_cannot_be_resumed() {
    let unknown = json!({"resume": {"targets": {}, "ids": {"what": {}}}});
    assert_holds(
        &two(),
        &[
            step(&unknown, &json!({"status": "no_thread", "refused": {"*": "unknown_thread"}, "ran": {}, "runs": {}})),
            step(&input("x"), &json!({"pending": both()})),
        ],
    );
}

#[test]
fn containers_take_data_only_where_they_say_so() {
    let composite = json!({"kind": "composite", "composite": {"segment": "part", "children": ["p"], "info": "all",
        "scripts": {"p": asking("q")}}});
    let app = graph(&json!({"c": composite}), &json!([["START", "c"], ["c", "END"]]));
    let mut point = waits("p", &["runnable:root", "node:c", "part:p"], "q");
    point["parents"] = json!([{"ref": "c", "address": ["runnable:root", "node:c"], "info": "all"},
        {"ref": "root", "address": ["runnable:root"]}]);
    let refused = |name: &str| json!({"refused": {name: "not_answerable"}, "ran": {}, "status": "interrupted"});
    assert_holds(
        &app,
        &[
            step(&input("x"), &json!({"pending": [point]})),
            step(&json!({"resume": {"targets": {"c": {}}}}), &refused("c")),
            step(&answer("root", "data"), &refused("root")),
            step(
                &json!({"resume": {"targets": {"c": {"data": 1}, "p": {"data": "2"}}}}),
                &json!({"status": "done", "output": {"p": "ok(2)", "_self": 1}}),
            ),
        ],
    );
}

#[test]
fn a_pause_at_once_drops_only_what_has_not_finished() {
    let hangs = body(&json!({"fresh": [{"hang": "late"}, {"return": "second ${input}"}]}));
    let app = graph(
        &json!({"a": body(&saying("A")), "h": hangs, "w": body(&asking("q"))}),
        &json!([["START", "a"], ["START", "h"], ["START", "w"], ["a", "END"], ["h", "END"], ["w", "END"]]),
    );
    let root = json!({"ref": "s", "address": ["runnable:root"], "info": null});
    let question = waits("q", &["runnable:root", "node:w"], "q");
    assert_holds(
        &app,
        &[
            step(
                &json!({"run": {"input": "in", "cancel": "now"}}),
                &json!({"status": "interrupted",
                "pending": [root, question], "runs": {"a": 1, "h": 1, "w": 1}}),
            ),
            step(
                &json!({"resume": {"targets": {"s": {}}}}),
                &json!({"status": "interrupted", "ran": {"h": ["fresh"]}}),
            ),
            step(
                &answer("q", "1"),
                &json!({"status": "done",
                "output": {"a": "A", "h": "second in", "w": "ok(1)"}, "runs": {"a": 1, "h": 2, "w": 2}}),
            ),
        ],
    );
}

#[test]
fn a_pause_while_the_last_node_runs_has_nothing_left_to_stop() {
    let app = graph(&json!({"a": body(&json!({"fresh": [{"hang": "A"}]}))}), &json!([["START", "a"], ["a", "END"]]));
    assert_holds(
        &app,
        &[step(
            &json!({"run": {"input": "in", "cancel": "graceful"}}),
            &json!({"status": "done", "output": "A", "pending": []}),
        )],
    );
}

#[test]
fn a_graceful_pause_reaches_into_a_nested_graph() {
    let inner = json!({"kind": "graph", "graph": {"nodes": {
        "x": body(&json!({"fresh": [{"hang": "X"}]})), "y": body(&json!({"fresh": [{"return": "${input}Y"}]}))},
        "edges": [["START", "x"], ["x", "y"], ["y", "END"]]}});
    let app = graph(&json!({"sg": inner}), &json!([["START", "sg"], ["sg", "END"]]));
    assert_holds(
        &app,
        &[
            step(
                &json!({"run": {"input": "in", "cancel": "graceful"}}),
                &json!({"status": "interrupted",
                "ran": {"sg/x": ["fresh"]}, "breakpoint": {"before": [], "after": ["sg/x"]}}),
            ),
            step(
                &json!({"resume_all": {}}),
                &json!({"status": "done", "output": "XY", "runs": {"sg/x": 1, "sg/y": 1}}),
            ),
        ],
    );
}

#[test]
fn what_goes_on_without_an_answer_is_withdrawn() {
    let goes_on = json!({"fresh": [{"interrupt": {"info": "q", "state": "s"}}], "target": [{"return": "target"}],
        "other": [{"return": "went on with ${state}"}]});
    let composite = json!({"kind": "composite", "composite": {"segment": "part", "children": ["p", "r"], "info": "all",
        "scripts": {"p": goes_on, "r": asking("r?")}}});
    let app = graph(&json!({"c": composite}), &json!([["START", "c"], ["c", "END"]]));
    let at = |child: &str| vec!["runnable:root".to_owned(), "node:c".to_owned(), format!("part:{child}")];
    let open = json!({"address": at("r"), "info": "r?", "prev": "r"});
    assert_holds(
        &app,
        &[
            step(
                &input("x"),
                &json!({"pending": [{"ref": "p", "address": at("p"), "info": "q"},
                {"ref": "r", "address": at("r"), "info": "r?"}]}),
            ),
            step(
                &json!({"resume_all": {}}),
                &json!({"status": "interrupted", "pending": [open],
                "ran": {"c/p": ["other"], "c/r": ["other"]}}),
            ),
            step(&answer("p", "late"), &json!({"status": "interrupted", "refused": {"p": "superseded"}, "ran": {}})),
            step(
                &answer("r", "1"),
                &json!({"status": "done", "output": {"p": "went on with s", "r": "ok(1)"},
                "runs": {"c/p": 2, "c/r": 3}}),
            ),
        ],
    );
}

#[test]
fn a_part_that_fails_with_its_answer_is_retried_alone() {
    let flaky =
        json!({"fresh": [{"interrupt": {"info": "q"}}], "target": [{"fail": "bank down"}, {"return": "paid ${data}"}]});
    let composite = json!({"kind": "composite", "composite": {"segment": "part", "children": ["p", "r", "d"], "info": "all",
        "scripts": {"p": flaky, "r": asking("r?"), "d": saying("D")}}});
    let app = graph(&json!({"c": composite}), &json!([["START", "c"], ["c", "END"]]));
    let point = |name: &str, info: &str| waits(name, &["runnable:root", "node:c", &format!("part:{name}")], info);
    assert_holds(
        &app,
        &[
            step(&input("x"), &json!({"pending": [point("p", "q"), point("r", "r?")]})),
            step(
                &answer("p", "1"),
                &json!({"status": "failed", "error_contains": "bank down",
                "pending": [{"address": ["runnable:root", "node:c", "part:r"], "info": "r?", "prev": "r"}]}),
            ),
            step(
                &json!({"retry": {}}),
                &json!({"status": "interrupted", "ran": {"c/p": ["target"]},
                "pending": [{"address": ["runnable:root", "node:c", "part:r"], "info": "r?", "prev": "r"}]}),
            ),
            step(
                &answer("r", "2"),
                &json!({"status": "done", "output": {"p": "paid 1", "r": "ok(2)", "d": "D"},
                "runs": {"c/p": 3, "c/r": 2, "c/d": 1}}),
            ),
        ],
    );
}

#[test]
fn a_target_that_holds_has_used_its_answer_and_asks_anew() {
    let script = json!({"fresh": [{"interrupt": {"info": "q", "state": "s"}}],
        "target": [{"hold": true}, {"return": "ok(${data},${state})"}]});
    let app = graph(&json!({"a": body(&script)}), &json!([["START", "a"], ["a", "END"]]));
    let at = ["runnable:root", "node:a"];
    assert_holds(
        &app,
        &[
            step(&input("x"), &json!({"pending": [waits("p", &at, "q")]})),
            step(
                &answer("p", "1"),
                &json!({"status": "interrupted",
                "pending": [{"ref": "p2", "address": at, "info": "q", "not": "p"}]}),
            ),
            step(&answer("p2", "2"), &json!({"status": "done", "output": "ok(2,s)"})),
        ],
    );
}
