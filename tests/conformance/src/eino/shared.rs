//! The shared state of a graph, as a state key of ours.
//!
//! A graph that runs as a node gets such a key of the graph around it as it
//! was, and hands it back: so the value says which additions it holds, and
//! what is handed back adds nothing twice and loses nothing.

use std::collections::BTreeMap;

use countersign_kernel::state::Reducer;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A shared state: what it was set to, and what was added since.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shared {
    /// Rises when it is replaced.
    version: u64,
    base: Value,
    /// By who added it: a member, and how much.
    added: BTreeMap<String, (String, u32)>,
}

/// The state key for the graph at `path`.
pub(super) fn key(path: &[String]) -> String {
    if path.is_empty() { "shared".to_owned() } else { format!("shared.{}", path.join(".")) }
}

/// The write that replaces it.
pub(super) fn set(state: &Value) -> Value {
    json!({"set": state})
}

/// The write with which `who` adds to a member.
pub(super) fn add(who: &str, member: &str, by: u32) -> Value {
    json!({"add": {who: (member, by)}})
}

/// How writes combine.
pub(super) fn reducer(initial: Option<&Value>) -> Reducer {
    let neutral = Shared { base: initial.cloned().unwrap_or_default(), ..Shared::default() };
    Reducer::custom("shared", serde_json::to_value(neutral).ok(), |current, write| {
        let combined = read(&current)?.with(&write)?;
        serde_json::to_value(combined).map_err(|problem| problem.to_string())
    })
}

/// What bodies see, with writes of their own.
pub(super) fn view(value: Option<&Value>, own: impl IntoIterator<Item = Value>) -> Result<Value, String> {
    let mut shared = value.map_or_else(|| Ok(Shared::default()), read)?;
    for write in own {
        shared = shared.with(&write)?;
    }
    let mut state = shared.base;
    for (member, by) in shared.added.into_values() {
        let sum = state.get(&member).and_then(Value::as_u64).unwrap_or(0) + u64::from(by);
        match &mut state {
            Value::Object(members) => {
                members.insert(member, sum.into());
            }
            other => return Err(format!("`{member}` cannot be counted in {other}")),
        }
    }
    Ok(state)
}

fn read(value: &Value) -> Result<Shared, String> {
    Shared::deserialize(value).map_err(|problem| format!("a shared state: {problem}"))
}

impl Shared {
    fn with(mut self, write: &Value) -> Result<Self, String> {
        if let Some(state) = write.get("set") {
            return Ok(Self { version: self.version + 1, base: state.clone(), added: BTreeMap::new() });
        }
        if let Some(added) = write.get("add") {
            let added: BTreeMap<_, _> = Deserialize::deserialize(added).map_err(|problem| format!("{problem}"))?;
            self.added.extend(added);
            return Ok(self);
        }
        // The whole, handed back by a graph inside.
        let other = read(write)?;
        if other.version > self.version {
            return Ok(other);
        }
        if other.version == self.version {
            self.added.extend(other.added);
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use countersign_kernel::state::Change;

    use super::*;

    fn after(writes: &[Value]) -> Value {
        let reducer = reducer(Some(&json!({"n": 0})));
        let mut value = reducer.neutral().expect("a neutral value");
        for write in writes {
            let change = reducer.reduce("shared", Some(&value), write.clone()).expect("a write");
            let Change::Set(next) = change else { panic!("{change:?}") };
            value = next;
        }
        value
    }

    #[test]
    fn it_is_set_and_added_to() {
        let value = after(&[add("a", "n", 1), add("b", "n", 2)]);
        assert_eq!(view(Some(&value), []), Ok(json!({"n": 3})));
        assert_eq!(view(Some(&value), [add("c", "n", 4)]), Ok(json!({"n": 7})));
        let value = after(&[add("a", "n", 1), set(&json!({"n": 10, "k": "v"}))]);
        assert_eq!(view(Some(&value), []), Ok(json!({"n": 10, "k": "v"})));
        assert_eq!(view(None, []), Ok(Value::Null));
    }

    #[test]
    fn what_is_handed_back_adds_nothing_twice_and_loses_nothing() {
        let taken = after(&[add("a", "n", 1)]);
        let inside = after(&[taken.clone(), add("inside", "n", 1)]);
        let value = after(&[taken, add("beside", "n", 1), inside.clone(), inside.clone()]);
        assert_eq!(view(Some(&value), []), Ok(json!({"n": 3})));
        let replaced = after(&[set(&json!({"n": 50})), inside]);
        assert_eq!(view(Some(&replaced), []), Ok(json!({"n": 50})), "what was replaced does not come back");
    }
}
