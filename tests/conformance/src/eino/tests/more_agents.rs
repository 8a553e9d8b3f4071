//! Agents beyond the recordings: graphs behind approval as tools, groups in
//! groups, loops that end early, failures inside.

use super::*;

fn leaf(name: &str, script: &Value) -> Value {
    json!({"type": "leaf", "name": name, "script": script})
}

/// A model that calls each turn's tools and says what the last one said.
fn model(name: &str, turns: &[Value], tools: &Value) -> Value {
    let mut turns = turns.to_vec();
    turns.push(json!({"say": format!("{name} says ${{tools}}")}));
    json!({"type": "model", "name": name, "turns": turns, "tools": tools})
}

fn calls(calls: &[(&str, &str, &str)]) -> Value {
    let calls = calls.iter().map(|(tool, id, args)| json!({"tool": tool, "id": id, "args": args}));
    json!({"calls": calls.collect::<Vec<_>>()})
}

fn wire() -> Value {
    let approve = json!({"fresh": [{"interrupt": {"info": "pay ${input}?"}}], "target": [{"return": "${data}"}]});
    let graph = json!({"name": "flow", "nodes": {"pre": body(&saying("P")), "risk": body(&asking("risk?"))},
        "edges": [["START", "pre"], ["pre", "risk"], ["risk", "END"]]});
    let tool = json!({"approve": approve, "graph": graph, "checkpointed": true, "info": "wire waits"});
    agent(&model("boss", &[calls(&[("wire", "c1", "900")])], &json!({"wire": tool})))
}

#[test]
fn an_approved_tool_runs_its_graph_and_both_ask_at_one_visible_address() {
    let at = ["agent:boss", "tool:wire:c1"];
    let mut risk = waits("risk", &at, "risk?");
    risk["not"] = json!("pay");
    risk["parents"] = json!([{"address": at, "info": "wire waits"}, {"address": ["agent:boss"]}]);
    assert_holds(
        &wire(),
        &[
            step(
                &input("x"),
                &json!({"status": "interrupted", "pending": [waits("pay", &at, "pay 900?")],
                "ran": {"boss/model": ["call"], "boss/wire:c1": ["fresh"]}}),
            ),
            step(
                &answer("pay", "approved"),
                &json!({"status": "interrupted", "pending": [risk],
                "ran": {"boss/wire:c1": ["target"], "boss/wire:c1/flow/pre": ["fresh"],
                    "boss/wire:c1/flow/risk": ["fresh"]}}),
            ),
            step(
                &json!({"resume_all": {}}),
                &json!({"status": "interrupted",
                "pending": [{"address": at, "info": "risk?", "prev": "risk"}],
                "ran": {"boss/wire:c1/flow/risk": ["other"]}}),
            ),
            step(
                &answer("risk", "low"),
                &json!({"status": "done", "output": "boss says ok(low)",
                "ran": {"boss/wire:c1/flow/risk": ["target"], "boss/model": ["call"]},
                "runs": {"boss/model": 2, "boss/wire:c1": 2, "boss/wire:c1/flow/pre": 1,
                    "boss/wire:c1/flow/risk": 3}}),
            ),
        ],
    );
}

#[test]
fn a_tool_that_is_not_approved_says_so_and_its_graph_does_not_run() {
    let at = ["agent:boss", "tool:wire:c1"];
    assert_holds(
        &wire(),
        &[
            step(&input("x"), &json!({"pending": [waits("pay", &at, "pay 900?")]})),
            step(
                &answer("pay", "no"),
                &json!({"status": "done", "output": "boss says no",
                "ran": {"boss/wire:c1": ["target"], "boss/model": ["call"]}}),
            ),
        ],
    );
}

#[test]
fn a_failed_call_is_retried_alone_while_another_waits() {
    let bad = json!({"fresh": [{"fail": "oops"}, {"return": "fixed"}]});
    let tools = json!({"pay": {"script": asking("pay?")}, "bad": {"script": bad}, "calc": {"script": saying("42")}});
    let turn = calls(&[("pay", "c1", "a"), ("bad", "c2", "b"), ("calc", "c3", "c")]);
    let at = ["agent:boss", "tool:pay:c1"];
    assert_holds(
        &agent(&model("boss", &[turn], &tools)),
        &[
            step(
                &input("x"),
                &json!({"status": "failed", "error_contains": "oops", "pending": [waits("p", &at, "pay?")],
                "runs": {"boss/model": 1, "boss/pay:c1": 1, "boss/bad:c2": 1, "boss/calc:c3": 1}}),
            ),
            step(
                &answer("p", "yes"),
                &json!({"status": "failed", "error_contains": "oops", "pending": [],
                "ran": {"boss/pay:c1": ["target"]}}),
            ),
            step(
                &json!({"retry": {}}),
                &json!({"status": "done", "output": "boss says ok(yes)|fixed|42",
                "ran": {"boss/bad:c2": ["fresh"], "boss/model": ["call"]}}),
            ),
        ],
    );
}

#[test]
fn an_agent_as_a_tool_is_called_twice_and_keeps_its_visits_apart() {
    let helper = model("helper", &[calls(&[("search", "h1", "{}")])], &json!({"search": {"script": asking("q")}}));
    let turns = ["c1", "c2"].map(|id| calls(&[("helper", id, "{\"request\":\"do\"}")]));
    let point = |name: &str, id: &str| {
        let tool = format!("tool:helper:{id}");
        waits(name, &["agent:boss", &tool, "agent:helper", "tool:search:h1"], "q")
    };
    let mut second = point("b", "c2");
    second["not"] = json!("a");
    let inner = |id: &str, what: &str| format!("boss/helper:{id}/helper/{what}");
    // The model of an agent is one: its turns are counted where it is called.
    assert_holds(
        &agent(&model("boss", &turns, &json!({"helper": {"agent": helper}}))),
        &[
            step(&input("x"), &json!({"pending": [point("a", "c1")]})),
            step(
                &answer("a", "A"),
                &json!({"status": "interrupted", "pending": [second],
                "ran": {inner("c1", "search:h1"): ["target"], inner("c1", "model"): ["call"], "boss/model": ["call"],
                    inner("c2", "model"): ["call"], inner("c2", "search:h1"): ["fresh"]}}),
            ),
            step(
                &answer("b", "B"),
                &json!({"status": "done", "output": "boss says helper says ok(B)",
                "ran": {inner("c2", "search:h1"): ["target"], inner("c2", "model"): ["call"],
                    "boss/model": ["call"]}}),
            ),
        ],
    );
}

#[test]
fn a_loop_ends_when_a_member_breaks_it_and_not_what_is_around_it() {
    let breaker = json!({"fresh": [{"return": "go on"}, {"break_loop": true}]});
    let drafts = json!({"fresh": [{"return": "draft 1"}, {"return": "draft 2"}]});
    let looped = json!({"type": "loop", "name": "loop", "max": 9,
        "agents": [leaf("writer", &drafts), leaf("critic", &breaker)]});
    let flow = json!({"type": "sequential", "name": "flow", "agents": [looped, leaf("after", &saying("published"))]});
    assert_holds(
        &agent(&flow),
        &[step(
            &input("x"),
            &json!({"status": "done", "output": "published",
            "runs": {"flow/loop/writer": 2, "flow/loop/critic": 2, "flow/after": 1}}),
        )],
    );
}

#[test]
fn a_loop_ends_after_its_rounds_and_an_exit_ends_everything() {
    let rounds = json!({"type": "loop", "name": "loop", "max": 2, "agents": [leaf("w", &saying("again"))]});
    assert_holds(
        &agent(&rounds),
        &[step(&input("x"), &json!({"status": "done", "output": "again", "runs": {"loop/w": 2}}))],
    );
    let exit = leaf("out", &json!({"fresh": [{"exit": true}]}));
    let looped = json!({"type": "loop", "name": "loop", "agents": [exit]});
    let flow = json!({"type": "sequential", "name": "flow", "agents": [looped, leaf("after", &saying("never"))]});
    assert_holds(&agent(&flow), &[step(&input("x"), &json!({"status": "done", "runs": {"flow/loop/out": 1}}))]);
}

#[test]
fn groups_in_groups_wait_together_and_go_on_one_by_one() {
    let inner =
        json!({"type": "sequential", "name": "seq", "agents": [leaf("a", &asking("qa")), leaf("b", &saying("B"))]});
    let both = json!({"type": "parallel", "name": "par", "agents": [inner, leaf("c", &asking("qc"))]});
    let group = |info: &str, address: &[&str]| json!({"address": address, "info": info});
    let mut a = waits("a", &["agent:par", "agent:seq", "agent:a"], "qa");
    a["parents"] = json!([
        group("Sequential workflow interrupted", &["agent:par", "agent:seq"]),
        group("Parallel workflow interrupted", &["agent:par"]),
    ]);
    assert_holds(
        &agent(&both),
        &[
            step(&input("x"), &json!({"pending": [a, waits("c", &["agent:par", "agent:c"], "qc")]})),
            step(&answer("c", "C"), &json!({"status": "interrupted", "ran": {"par/c": ["target"]}})),
            step(
                &answer("a", "A"),
                &json!({"status": "done", "output": "B",
                "ran": {"par/seq/a": ["target"], "par/seq/b": ["fresh"]},
                "runs": {"par/seq/a": 2, "par/seq/b": 1, "par/c": 2}}),
            ),
        ],
    );
}
