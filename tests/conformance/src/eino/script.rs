//! Scripts: what a body does, by how it was woken.

use std::fmt;

use countersign_kernel::canonical::canonical_text;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What a body learned about its run when it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Seen {
    /// Not interrupted before.
    Fresh,
    /// Named, with data.
    Target,
    /// Named, without data.
    TargetBare,
    /// Interrupted and not named.
    Other,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fresh => "fresh",
            Self::Target => "target",
            Self::TargetBare => "target_bare",
            Self::Other => "other",
        })
    }
}

/// The actions of a body. The k-th time a branch is taken uses its k-th
/// action, the last one repeats.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Script {
    fresh: Vec<Action>,
    #[serde(default)]
    target: Vec<Action>,
    #[serde(default)]
    target_bare: Option<Vec<Action>>,
    #[serde(default)]
    other: Option<Vec<Action>>,
    /// The type of private state that the body asks for.
    #[serde(default)]
    pub(super) state_type: Option<Type>,
    /// The type of data that the body asks for.
    #[serde(default)]
    pub(super) data_type: Option<Type>,
}

/// One thing that a body does, and its end.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Action {
    Interrupt {
        info: Value,
        #[serde(default)]
        state: Value,
    },
    Return(Value),
    Fail(String),
    /// Interrupt again with the same info and state.
    Hold(bool),
    /// Wait for the pause from outside, then return.
    Hang(Value),
    Exit(bool),
    BreakLoop(bool),
    Transfer(String),
}

/// A type that a body asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Type {
    Text,
    Number,
    Object,
}

impl Type {
    /// Whether a value has the type. `null` has none.
    pub(super) fn takes(self, value: &Value) -> bool {
        match self {
            Self::Text => value.is_string(),
            Self::Number => value.is_number(),
            Self::Object => value.is_object(),
        }
    }
}

/// How an agent's or a body's run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ending {
    /// With a result.
    Value(Value),
    /// It ends the whole flow of agents.
    Exit,
    /// It ends the loop around it.
    BreakLoop,
    /// It hands over to a sub agent.
    Transfer(String),
}

impl Script {
    /// The action for a run that saw `seen`, as the `k`-th of its kind (from 0).
    ///
    /// # Errors
    /// The script has no action for it.
    pub(super) fn action(&self, seen: Seen, k: usize) -> Result<&Action, String> {
        const HOLD: &Action = &Action::Hold(true);
        let actions = match seen {
            Seen::Fresh => &self.fresh,
            Seen::Target => &self.target,
            Seen::TargetBare => self.target_bare.as_ref().unwrap_or(&self.target),
            Seen::Other => match &self.other {
                Some(actions) => actions,
                None => return Ok(HOLD),
            },
        };
        actions.get(k).or(actions.last()).ok_or_else(|| format!("the script says nothing for `{seen}`"))
    }
}

/// Replaces `${name}` in all strings of a template. A string that is one such
/// name is replaced by the value itself; in longer strings `null` is nothing
/// and what is no text is written as compact JSON with sorted members.
///
/// # Errors
/// A name that has no value here.
pub(super) fn fill(template: &Value, named: &impl Fn(&str) -> Result<Value, String>) -> Result<Value, String> {
    Ok(match template {
        Value::String(text) => fill_text(text, named)?,
        Value::Array(items) => Value::Array(items.iter().map(|item| fill(item, named)).collect::<Result<_, _>>()?),
        Value::Object(members) => {
            let filled = members.iter().map(|(name, member)| Ok((name.clone(), fill(member, named)?)));
            Value::Object(filled.collect::<Result<Map<_, _>, String>>()?)
        }
        scalar => scalar.clone(),
    })
}

/// [`fill`] for one string.
pub(super) fn fill_text(text: &str, named: &impl Fn(&str) -> Result<Value, String>) -> Result<Value, String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}').ok_or_else(|| format!("`{text}` has an open `${{`"))?;
        let value = named(name)?;
        if before.is_empty() && after.is_empty() && filled.is_empty() {
            return Ok(value);
        }
        filled.push_str(before);
        filled.push_str(&as_text(&value));
        rest = after;
    }
    filled.push_str(rest);
    Ok(Value::String(filled))
}

/// A value inside a longer string.
pub(super) fn as_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => canonical_text(other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn script(value: Value) -> Script {
        serde_json::from_value(value).expect("a script")
    }

    #[test]
    fn the_kth_time_uses_the_kth_action_and_the_last_repeats() {
        let script = script(json!({"fresh": [{"return": 1}, {"return": 2}], "target": [{"exit": true}]}));
        let fresh = |k| script.action(Seen::Fresh, k).expect("an action").clone();
        assert_eq!([fresh(0), fresh(1), fresh(7)], [1, 2, 2].map(|n| Action::Return(json!(n))));
        assert_eq!(script.action(Seen::TargetBare, 0), Ok(&Action::Exit(true)), "bare defaults to target");
        assert_eq!(script.action(Seen::Other, 3), Ok(&Action::Hold(true)), "not named defaults to hold");
    }

    #[test]
    fn a_branch_without_actions_is_a_fault() {
        let script = script(json!({"fresh": [{"return": 1}]}));
        assert_eq!(script.action(Seen::Target, 0), Err("the script says nothing for `target`".into()));
    }

    #[test]
    fn names_are_replaced_by_values_alone_and_by_texts_inside() {
        let named = |name: &str| match name {
            "n" => Ok(json!(7)),
            "o" => Ok(json!({"b": [true], "a": "x"})),
            "none" => Ok(Value::Null),
            other => Err(format!("no {other}")),
        };
        let filled = fill(&json!({"k": ["${o}", "${n}"], "t": "<${o}|${n}|${none}>", "plain": 1}), &named);
        let expected = json!({"k": [{"b": [true], "a": "x"}, 7], "t": "<{\"a\":\"x\",\"b\":[true]}|7|>", "plain": 1});
        assert_eq!(filled, Ok(expected));
        assert_eq!(fill(&json!("${what}"), &named), Err("no what".into()));
        assert!(fill(&json!("a ${n"), &named).is_err());
    }

    #[test]
    fn types_take_what_they_name() {
        let values = [json!("x"), json!(1), json!({}), json!(null)];
        let taken = |ty: Type| values.iter().map(|value| ty.takes(value)).collect::<Vec<_>>();
        assert_eq!(taken(Type::Text), [true, false, false, false]);
        assert_eq!(taken(Type::Number), [false, true, false, false]);
        assert_eq!(taken(Type::Object), [false, false, true, false]);
    }
}
