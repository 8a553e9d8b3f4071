//! The list of checkpoints as the scenarios know it (section 6 of the format).

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::model::{From, Select};
use super::subject::{Entry, Origin};

/// One entry of the list.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// The checkpoint it stands for.
    pub id: String,
    /// All tasks of its superstep.
    pub next: Vec<String>,
    /// The state at its start.
    pub values: Map<String, Value>,
    /// Index of its parent in the same list.
    pub parent: Option<usize>,
}

/// From the kernel's checkpoints, newest first, to the list.
///
/// A copy that a replay makes is left out, amended or not: its children count
/// as children of the original. A checkpoint that a command amended and its
/// amendment are one entry, with the tasks that were planned and the state
/// that was amended.
#[must_use]
pub fn list(entries: &[Entry]) -> Vec<Listed> {
    let by_id: HashMap<&str, &Entry> = entries.iter().map(|entry| (entry.id.as_str(), entry)).collect();
    let parent_of = |entry: &Entry| entry.parent.as_deref().and_then(|id| by_id.get(id)).copied();
    // The nearest checkpoint of an entry's line that is not of these origins.
    let base = |entry: &Entry, passed: &[Origin]| {
        let mut base = by_id.get(entry.id.as_str()).copied();
        while let Some(above) = base.filter(|entry| passed.contains(&entry.origin)).and_then(parent_of) {
            base = Some(above);
        }
        base
    };
    let mut listed: Vec<Listed> = Vec::new();
    let mut parents: Vec<Option<&str>> = Vec::new();
    let mut index: HashMap<&str, usize> = HashMap::new();
    for entry in entries {
        let Some(own) = base(entry, &[Origin::Amended]).filter(|base| base.origin == Origin::Own) else { continue };
        if index.contains_key(own.id.as_str()) {
            continue;
        }
        index.insert(&own.id, listed.len());
        let parent = parent_of(own).and_then(|parent| base(parent, &[Origin::Amended, Origin::Copy]));
        parents.push(parent.map(|parent| parent.id.as_str()));
        listed.push(Listed {
            id: entry.id.clone(),
            next: own.record.next.clone(),
            values: entry.record.values.clone(),
            parent: None,
        });
    }
    for (entry, parent) in listed.iter_mut().zip(parents) {
        entry.parent = parent.and_then(|parent| index.get(parent).copied());
    }
    listed
}

/// The checkpoint that `select` means, other than the current one.
#[must_use]
pub fn select(listed: &[Listed], select: &Select) -> Option<String> {
    let fits = |entry: &&Listed| {
        select.next.as_ref().is_none_or(|next| *next == entry.next)
            && select.values.iter().flatten().all(|(key, value)| entry.values.get(key) == Some(value))
    };
    let mut fitting: Vec<&Listed> = listed.iter().filter(fits).collect();
    if select.from == Some(From::Oldest) {
        fitting.reverse();
    }
    fitting.get(select.nth).map(|entry| entry.id.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::subject::Frame;
    use super::*;

    fn entry(id: &str, parent: Option<&str>, origin: Origin, next: &[&str], x: u32) -> Entry {
        let values = json!({"x": x}).as_object().cloned().expect("an object");
        let next = next.iter().map(|&node| node.to_owned()).collect();
        Entry { id: id.into(), parent: parent.map(Into::into), origin, record: Frame { values, next } }
    }

    #[test]
    fn copies_are_left_out_and_amendments_stand_for_what_they_amended() {
        let entries = [
            entry("8", Some("7"), Origin::Own, &[], 9),
            entry("7", Some("6"), Origin::Amended, &["b", "d"], 8),
            entry("6", Some("2"), Origin::Copy, &["b"], 7),
            entry("5", Some("4"), Origin::Own, &[], 5),
            entry("4", Some("3"), Origin::Own, &["c"], 4),
            entry("3", Some("2"), Origin::Amended, &["b", "d"], 3),
            entry("2", Some("1"), Origin::Own, &["b"], 2),
            entry("1", None, Origin::Own, &["a"], 1),
        ];
        let listed = list(&entries);
        let short: Vec<_> = listed.iter().map(|e| (e.id.as_str(), e.next.join("+"), e.parent)).collect();
        assert_eq!(
            short,
            [
                ("8", String::new(), Some(3)),
                ("5", String::new(), Some(2)),
                ("4", "c".into(), Some(3)),
                ("3", "b".into(), Some(4)),
                ("1", "a".into(), None),
            ]
        );
        assert_eq!(listed[3].values["x"], 3);
    }

    #[test]
    fn checkpoints_are_selected_by_tasks_values_and_number() {
        let entries = [
            entry("2", Some("1"), Origin::Own, &["b"], 1),
            entry("1", Some("0"), Origin::Own, &["b"], 0),
            entry("0", None, Origin::Own, &["a"], 0),
        ];
        let listed = list(&entries);
        let pick = |value: Value| select(&listed, &serde_json::from_value(value).expect("a selection"));
        assert_eq!(pick(json!({"next": ["b"]})).as_deref(), Some("2"));
        assert_eq!(pick(json!({"next": ["b"], "nth": 1})).as_deref(), Some("1"));
        assert_eq!(pick(json!({"values": {"x": 0}, "from": "oldest"})).as_deref(), Some("0"));
        assert_eq!(pick(json!({"next": ["c"]})), None);
    }
}
