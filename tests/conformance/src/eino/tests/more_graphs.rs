//! Graphs beyond the recordings: nested ones in loops, pre-handlers side by
//! side, stops inside bodies, batches in loops.

use super::*;

fn nested(nodes: &Value, edges: &Value) -> Value {
    json!({"kind": "graph", "graph": {"nodes": nodes, "edges": edges}})
}

#[test]
fn a_nested_graph_in_a_loop_is_clean_at_each_visit() {
    let leaf = json!({"fresh": [{"interrupt": {"info": "round ${runs} of ${input}", "state": "s"}}],
        "target": [{"return": "again"}, {"return": "enough"}]});
    let inner = nested(
        &json!({"pre": body(&saying("P")), "leaf": body(&leaf)}),
        &json!([["START", "pre"], ["pre", "leaf"], ["leaf", "END"]]),
    );
    let mut app = graph(
        &json!({"w": inner, "last": body(&json!({"fresh": [{"return": "<${input}>"}]}))}),
        &json!([["START", "w"], ["last", "END"]]),
    );
    app["graph"]["branches"] = json!([{"from": "w", "cases": {"again": "w"}, "else": "last"}]);
    let at = ["runnable:root", "node:w", "node:leaf"];
    let mut second = waits("b", &at, "round 3 of P");
    second["not"] = json!("a");
    assert_holds(
        &app,
        &[
            step(&input("x"), &json!({"pending": [waits("a", &at, "round 1 of P")]})),
            step(
                &answer("a", "1"),
                &json!({"status": "interrupted", "pending": [second],
                "ran": {"w/leaf": ["target", "fresh"], "w/pre": ["fresh"]}}),
            ),
            step(
                &answer("b", "2"),
                &json!({"status": "done", "output": "<enough>",
                "runs": {"w/pre": 2, "w/leaf": 4, "last": 1}}),
            ),
        ],
    );
}

#[test]
fn pre_handlers_of_one_step_all_count_once_and_delay_nothing() {
    let mut inner = nested(
        &json!({"l": body(&asking("q")), "m": body(&saying("M"))}),
        &json!([["START", "l"], ["START", "m"], ["l", "END"], ["m", "END"]]),
    );
    let mut plain = body(&saying("B"));
    (inner["pre"], plain["pre"]) = (json!("n"), json!("n"));
    let join = body(&json!({"fresh": [{"return": "${input} ${shared.n}"}]}));
    let mut app = graph(
        &json!({"s": inner, "b": plain, "j": join}),
        &json!([["START", "s"], ["START", "b"], ["s", "j"], ["b", "j"], ["j", "END"]]),
    );
    app["graph"]["state"] = json!({"n": 10});
    assert_holds(
        &app,
        &[
            step(&input("x"), &json!({"pending": [waits("p", &["runnable:root", "node:s", "node:l"], "q")]})),
            step(&json!({"resume_all": {}}), &json!({"status": "interrupted", "ran": {"s/l": ["other"]}})),
            step(
                &answer("p", "1"),
                &json!({"status": "done",
                "output": "{\"b\":\"B\",\"l\":\"ok(1)\",\"m\":\"M\"} 12", "runs": {"s/l": 3, "s/m": 1, "b": 1, "j": 1}}),
            ),
        ],
    );
}

#[test]
fn graphs_nested_in_first_place_run_the_handlers_of_all_around() {
    let mut innermost = nested(&json!({"l": body(&saying("L"))}), &json!([["START", "l"], ["l", "END"]]));
    innermost["pre"] = json!("inner");
    let mut middle = nested(
        &json!({"g": innermost, "say": body(&json!({"fresh": [{"return": "${shared.inner}"}]}))}),
        &json!([["START", "g"], ["g", "say"], ["say", "END"]]),
    );
    middle["graph"]["state"] = json!({"inner": 5});
    middle["pre"] = json!("outer");
    let last = body(&json!({"fresh": [{"return": "${input} ${shared.outer}"}]}));
    let mut app = graph(&json!({"m": middle, "last": last}), &json!([["START", "m"], ["m", "last"], ["last", "END"]]));
    app["graph"]["state"] = json!({"outer": 0});
    assert_holds(&app, &[step(&input("x"), &json!({"status": "done", "output": "6 1"}))]);
}

#[test]
fn a_stop_inside_a_graph_that_a_body_runs_is_a_point_of_that_graph() {
    let inner = json!({"name": "inner", "nodes": {"a": body(&saying("A")), "b": body(&saying("B"))},
        "edges": [["START", "a"], ["a", "b"], ["b", "END"]], "state": {"k": 1}, "break_before": ["b"]});
    let host = json!({"kind": "embedded", "checkpointed": true, "info": "host waits", "graph": inner});
    let app = graph(&json!({"host": host}), &json!([["START", "host"], ["host", "END"]]));
    let at = ["runnable:root", "node:host", "runnable:inner"];
    let stop = json!({"ref": "s", "address": at, "info": {"k": 1},
        "parents": [{"address": ["runnable:root", "node:host"], "info": "host waits"}, {"address": ["runnable:root"]}]});
    let before = json!({"before": ["host/inner/b"], "after": []});
    assert_holds(
        &app,
        &[
            step(
                &input("x"),
                &json!({"status": "interrupted", "pending": [stop], "breakpoint": before,
                "ran": {"host/inner/a": ["fresh"]}}),
            ),
            step(
                &json!({"resume": {"targets": {"s": {}}}}),
                &json!({"status": "done", "output": "B",
                "ran": {"host/inner/b": ["fresh"]}}),
            ),
        ],
    );
}

#[test]
fn a_stop_inside_a_graph_that_a_body_runs_takes_new_state() {
    let inner = json!({"name": "inner", "nodes": {"a": body(&saying("A")),
        "b": body(&json!({"fresh": [{"return": "${shared.k}"}]}))},
        "edges": [["START", "a"], ["a", "b"], ["b", "END"]], "state": {"k": 1}, "break_after": ["a"]});
    let host = json!({"kind": "embedded", "checkpointed": true, "info": null, "graph": inner});
    let app = graph(&json!({"host": host}), &json!([["START", "host"], ["host", "END"]]));
    let stop = json!({"ref": "s", "address": ["runnable:root", "node:host", "runnable:inner"], "info": {"k": 1}});
    let after = json!({"before": [], "after": ["host/inner/a"]});
    assert_holds(
        &app,
        &[
            step(&input("x"), &json!({"status": "interrupted", "pending": [stop], "breakpoint": after})),
            step(
                &json!({"resume": {"targets": {"s": {"data": {"$shared": {"k": 2}}}}}}),
                &json!({"status": "done", "output": 2, "ran": {"host/inner/b": ["fresh"]}}),
            ),
        ],
    );
}

#[test]
fn a_stop_after_the_last_node_of_a_nested_graph_parks_before_its_result_is_handed_on() {
    let mut inner = nested(&json!({"x": body(&saying("X"))}), &json!([["START", "x"], ["x", "END"]]));
    inner["graph"]["break_after"] = json!(["x"]);
    let app = graph(
        &json!({"sg": inner, "n": body(&json!({"fresh": [{"return": "<${input}>"}]}))}),
        &json!([["START", "sg"], ["sg", "n"], ["n", "END"]]),
    );
    assert_holds(
        &app,
        &[
            step(
                &input("x"),
                &json!({"status": "interrupted", "ran": {"sg/x": ["fresh"]},
                "pending": [{"address": ["runnable:root", "node:sg"], "info": null}],
                "breakpoint": {"before": [], "after": ["sg/x"]}}),
            ),
            step(&json!({"resume_all": {}}), &json!({"status": "done", "output": "<X>", "ran": {"n": ["fresh"]}})),
        ],
    );
}

#[test]
fn the_next_visit_of_a_tool_node_makes_the_next_batch() {
    let call = |id: &str| json!([{"tool": "pay", "id": id, "args": id}]);
    let tools = json!({"kind": "tools", "tools": {"pay": {"script": {
        "fresh": [{"interrupt": {"info": "${input}"}}], "target": [{"return": "${input}"}]}}},
        "batches": [call("c1"), call("c2")]});
    let decide = body(&json!({"fresh": [{"return": "again"}, {"return": "stop"}]}));
    let mut app = graph(&json!({"t": tools, "d": decide}), &json!([["START", "t"], ["t", "d"]]));
    app["graph"]["branches"] = json!([{"from": "d", "cases": {"again": "t"}, "else": "END"}]);
    let point = |name: &str, id: &str| {
        let tool = format!("tool:pay:{id}");
        waits(name, &["runnable:root", "node:t", &tool], id)
    };
    assert_holds(
        &app,
        &[
            step(&input("x"), &json!({"pending": [point("a", "c1")]})),
            step(&answer("a", "1"), &json!({"pending": [point("b", "c2")], "kept": {"t/pay:c1": "c1"}})),
            step(
                &answer("b", "2"),
                &json!({"status": "done", "output": "stop",
                "runs": {"t/pay:c1": 2, "t/pay:c2": 2, "d": 2}}),
            ),
        ],
    );
}

#[test]
fn a_nested_graph_fails_beside_one_that_asks_and_each_goes_on_by_itself() {
    let failing = nested(
        &json!({"f": body(&json!({"fresh": [{"fail": "disk full"}, {"return": "F"}]}))}),
        &json!([["START", "f"], ["f", "END"]]),
    );
    let waiting = nested(&json!({"w": body(&asking("q"))}), &json!([["START", "w"], ["w", "END"]]));
    let app = graph(
        &json!({"s1": failing, "s2": waiting}),
        &json!([["START", "s1"], ["START", "s2"], ["s1", "END"], ["s2", "END"]]),
    );
    let at = ["runnable:root", "node:s2", "node:w"];
    assert_holds(
        &app,
        &[
            step(
                &input("x"),
                &json!({"status": "failed", "error_contains": "disk full", "pending": [waits("p", &at, "q")]}),
            ),
            step(
                &json!({"retry": {}}),
                &json!({"status": "interrupted", "ran": {"s1/f": ["fresh"]},
                "pending": [{"address": at, "info": "q", "same_id_as": "p"}]}),
            ),
            step(
                &answer("p", "1"),
                &json!({"status": "done", "output": {"f": "F", "w": "ok(1)"},
                "ran": {"s2/w": ["target"]}}),
            ),
        ],
    );
}
