//! The comparer passes what is right and names each thing that is not.

use serde::Deserialize;
use serde_json::json;

use super::*;

fn expect(value: &Value) -> Expect {
    Expect::deserialize(value).expect("an expectation")
}

fn point(id: &str, node: &str, info: &str) -> SeenPoint {
    let root = SeenParent { id: "r0".into(), address: vec!["runnable:root".into()], info: Value::Null };
    let address = vec!["runnable:root".into(), format!("node:{node}")];
    SeenPoint { id: id.into(), address, info: json!(info), parents: vec![root] }
}

fn seen(points: Vec<SeenPoint>) -> Observation {
    Observation {
        status: if points.is_empty() { Status::Done } else { Status::Interrupted },
        points,
        stops: Stops::default(),
        output: Some(json!("out")),
        errors: Vec::new(),
        ran: BTreeMap::from([("a".into(), vec!["fresh".into()])]),
        runs: BTreeMap::from([("a".into(), 1)]),
        kept: BTreeMap::new(),
        accepted: 1,
        refusals: Vec::new(),
    }
}

fn differences(expected: &Value, seen: &Observation, refs: &mut Refs) -> String {
    compare(&expect(expected), seen, refs).join("\n")
}

#[track_caller]
fn assert_differs(expected: &Value, seen: &Observation, refs: &Refs, with: &str) {
    let text = differences(expected, seen, &mut refs.clone());
    assert!(text.contains(with), "{expected}\ngives:\n{text}");
}

#[test]
fn what_fits_gives_its_ids_their_names() {
    let seen = seen(vec![point("1", "a", "q"), point("2", "b", "q")]);
    let mut refs = Refs::new();
    let expected = json!({
        "status": "interrupted", "ran": {"a": ["fresh"]}, "runs": {"a": 1}, "output": "out",
        "pending": [
            {"ref": "pb", "address": ["runnable:root", "node:b"], "info": "q"},
            {"ref": "pa", "address": ["runnable:root", "node:a"], "info": "q",
             "parents": [{"ref": "r", "address": ["runnable:root"], "info": null}]},
        ],
    });
    assert_eq!(differences(&expected, &seen, &mut refs), "");
    let names = [("pa", "1"), ("pb", "2"), ("r", "r0")];
    assert_eq!(refs, names.map(|(name, id)| (name.to_owned(), id.to_owned())).into());
}

#[test]
fn each_member_can_fail() {
    let refs = Refs::new();
    let done = seen(Vec::new());
    let cases = [
        (json!({"status": "failed"}), "status: expected Failed"),
        (json!({"ran": {}}), "ran: expected {}"),
        (json!({"ran": {"a": ["target"]}}), "ran: expected"),
        (json!({"runs": {"a": 2}}), "runs: expected"),
        (json!({"runs": {"a": 1, "b": 1}}), "runs: expected"),
        (json!({"kept": {"a": 1}}), "kept a: expected"),
        (json!({"output": "other"}), "output: expected"),
        (json!({"output": null}), "output: expected"),
        (json!({"breakpoint": {"before": ["a"], "after": []}}), "breakpoint: expected"),
        (json!({"error_contains": "bank"}), "error: expected one with `bank`"),
        (json!({"refused": {"*": "unknown"}}), "refused: expected {\"*\": \"unknown\"}"),
        (json!({"accepted": 2}), "accepted: expected 2"),
        (json!({"pending_one_of": ["q"]}), "pending: expected one of"),
        (json!({"pending": [{"address": ["runnable:root"], "info": null}]}), "at runnable:root: there is none"),
    ];
    for (expected, with) in cases {
        assert_differs(&expected, &done, &refs, with);
    }
}

#[test]
fn what_is_there_and_not_expected_is_a_difference() {
    let mut seen = seen(vec![point("1", "a", "q")]);
    let refs = Refs::new();
    assert_differs(&json!({"status": "done"}), &seen, &refs, "pending: expected 0 in all");
    assert_differs(&json!({"pending": []}), &seen, &refs, "pending: expected 0 in all");
    seen.stops.after = vec!["a".into()];
    assert_differs(&json!({}), &seen, &refs, "breakpoint: expected");
    seen.errors = vec!["bank down".into()];
    assert_differs(&json!({}), &seen, &refs, "error: expected none");
    assert_eq!(
        differences(
            &json!({"status": "failed", "error_contains": "down", "breakpoint": {"before": [], "after": ["a"]}}),
            &Observation { status: Status::Failed, ..seen.clone() },
            &mut Refs::new(),
        ),
        ""
    );
    seen.refusals = vec![SeenRefusal { id: None, reason: Reason::NotOpen }];
    assert_differs(&json!({}), &seen, &refs, "refused: expected {}");
}

#[test]
fn ids_are_held_to_what_they_were() {
    let seen = seen(vec![point("1", "a", "q")]);
    let refs = Refs::from([("same".into(), "1".into()), ("other".into(), "2".into())]);
    let pending =
        |key: &str, name: &str| json!({"pending": [{"address": ["runnable:root", "node:a"], "info": "q", key: name}]});
    for (key, good, bad, with) in [
        ("prev", "same", "other", "no longer that of `other`"),
        ("same_id_as", "same", "other", "no longer that of `other`"),
        ("not", "other", "same", "still that of `same`"),
    ] {
        assert_eq!(differences(&pending(key, good), &seen, &mut refs.clone()), "");
        assert_differs(&pending(key, bad), &seen, &refs, with);
    }
    assert_differs(&pending("prev", "never"), &seen, &refs, "`never` is unknown");
}

#[test]
fn infos_and_parents_are_compared_where_they_are_given() {
    let seen = seen(vec![point("1", "a", "q")]);
    let refs = Refs::new();
    let pending = |info: &str, parents: Value| json!({"pending": [{"address": ["runnable:root", "node:a"], "info": info, "parents": parents}]});
    assert_differs(&pending("another", json!([])), &seen, &refs, "its info is \"q\"");
    assert_differs(&pending("q", json!([{"address": ["runnable:x"]}])), &seen, &refs, "its parent 0: it is at");
    let info = json!([{"address": ["runnable:root"], "info": "i"}]);
    assert_differs(&pending("q", info), &seen, &refs, "its parent 0: its info is null");
    let two = json!([{"address": ["runnable:root"]}, {"address": []}]);
    assert_differs(&pending("q", two), &seen, &refs, "it has 1 parents, expected 2");
}

#[test]
fn points_that_look_the_same_are_told_apart_by_id_and_else_taken_in_order() {
    let seen = seen(vec![point("1", "a", "q"), point("2", "a", "q")]);
    let one = |extra: (&str, &str)| {
        let mut point = json!({"address": ["runnable:root", "node:a"], "info": "q", "ref": extra.1});
        point[extra.0] = json!(extra.1);
        point
    };
    let mut refs = Refs::new();
    let both = json!({"pending": [one(("ref", "d1")), one(("ref", "d2"))]});
    assert_eq!(differences(&both, &seen, &mut refs), "");
    assert_eq!((refs["d1"].as_str(), refs["d2"].as_str()), ("1", "2"));
    let swapped = json!({"pending": [one(("ref", "new")), one(("prev", "d1"))]});
    assert_eq!(differences(&swapped, &seen, &mut refs), "");
    assert_eq!(refs["new"], "2", "the first is taken by who must have it");
}

#[test]
fn only_the_end_has_an_output() {
    let waits = seen(vec![point("1", "a", "q")]);
    assert_eq!(differences(&json!({"status": "interrupted", "output": "of the end"}), &waits, &mut Refs::new()), "");
    let done = seen(Vec::new());
    assert_differs(&json!({"status": "done", "output": "of the end"}), &done, &Refs::new(), "output: expected");
}

#[test]
fn a_refused_step_runs_nothing_and_says_why() {
    let refs = Refs::from([("p".into(), "1".into())]);
    let refused = |id: Option<&str>, reason: Reason| Observation {
        accepted: 0,
        refusals: vec![SeenRefusal { id: id.map(str::to_owned), reason }],
        ..seen(Vec::new())
    };
    let expected = json!({"refused": {"p": "already_answered"}, "output": "of another run"});
    let ok = |seen: &Observation| differences(&expected, seen, &mut refs.clone());
    assert_eq!(ok(&refused(Some("1"), Reason::NotOpen)), "");
    assert_eq!(ok(&refused(Some("1"), Reason::Exactly("already_answered".into()))), "");
    assert_eq!(ok(&refused(None, Reason::Exactly("already_answered".into()))), "");
    for bad in [
        refused(Some("2"), Reason::NotOpen),
        refused(None, Reason::Exactly("nothing_pending".into())),
        refused(Some("1"), Reason::Exactly("superseded".into())),
        Observation { accepted: 1, ..refused(Some("1"), Reason::NotOpen) },
    ] {
        assert_ne!(ok(&bad), "", "{bad:?}");
    }
}
