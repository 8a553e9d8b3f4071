//! Values with holes, and tests over them (section 3 of the format).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

/// A JSON value in which some objects stand for other values.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Value")]
pub enum Template {
    /// The value itself.
    Value(Value),
    /// A list, item by item.
    List(Vec<Template>),
    /// An object, member by member.
    Object(Vec<(String, Template)>),
    /// `{"$state": key}`: a key of what the task sees.
    State(String),
    /// `{"$local": name}`: a local variable.
    Local(String),
    /// `{"$item": true}`: the item of a fan-out.
    Item,
    /// `{"$index": true}`: its position.
    Index,
}

impl TryFrom<Value> for Template {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let members = match value {
            Value::Array(items) => {
                return items.into_iter().map(Self::try_from).collect::<Result<_, _>>().map(Self::List);
            }
            Value::Object(members) => members,
            scalar => return Ok(Self::Value(scalar)),
        };
        if members.len() == 1
            && let Some((name, of)) = members.iter().next()
        {
            let text = || of.as_str().map(str::to_owned).ok_or_else(|| format!("`{name}` takes a name, not {of}"));
            match name.as_str() {
                "$state" => return text().map(Self::State),
                "$local" => return text().map(Self::Local),
                "$item" => return Ok(Self::Item),
                "$index" => return Ok(Self::Index),
                _ => {}
            }
        }
        let members = members.into_iter().map(|(name, member)| Self::try_from(member).map(|member| (name, member)));
        members.collect::<Result<_, _>>().map(Self::Object)
    }
}

/// What a template is filled with.
#[derive(Debug, Default)]
pub struct Scope<'a> {
    /// What the task sees, by key.
    pub state: Option<&'a dyn Lookup>,
    /// The locals.
    pub locals: BTreeMap<String, Value>,
    /// The item of a fan-out and its position.
    pub item: Option<(usize, Value)>,
}

/// Something with values by name.
pub trait Lookup: std::fmt::Debug + Sync {
    /// The value of `key`.
    fn get(&self, key: &str) -> Option<&Value>;
}

impl Lookup for Map<String, Value> {
    fn get(&self, key: &str) -> Option<&Value> {
        Map::get(self, key)
    }
}

impl Lookup for countersign_kernel::state::Values {
    fn get(&self, key: &str) -> Option<&Value> {
        Self::get(self, key)
    }
}

impl Template {
    /// The value it stands for; what is absent is `null`.
    #[must_use]
    pub fn fill(&self, scope: &Scope<'_>) -> Value {
        match self {
            Self::Value(value) => value.clone(),
            Self::List(items) => items.iter().map(|item| item.fill(scope)).collect(),
            Self::Object(members) => {
                Value::Object(members.iter().map(|(name, member)| (name.clone(), member.fill(scope))).collect())
            }
            Self::State(key) => scope.state.and_then(|state| state.get(key)).cloned().unwrap_or(Value::Null),
            Self::Local(name) => scope.locals.get(name).cloned().unwrap_or(Value::Null),
            Self::Item => scope.item.as_ref().map_or(Value::Null, |(_, item)| item.clone()),
            Self::Index => scope.item.as_ref().map_or(Value::Null, |(index, _)| Value::from(*index)),
        }
    }
}

/// A condition.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Test {
    /// Both are equal.
    Eq(Template, Template),
    /// They are not.
    Ne(Template, Template),
    /// The first is the smaller integer.
    Lt(Template, Template),
    /// The first is not the smaller integer.
    Ge(Template, Template),
}

impl Test {
    /// Whether it holds.
    ///
    /// # Errors
    /// Something other than integers is to be ordered.
    pub fn holds(&self, scope: &Scope<'_>) -> Result<bool, String> {
        let integer = |template: &Template| match template.fill(scope) {
            Value::Null => Ok(0),
            value => value.as_i64().ok_or_else(|| format!("{value} is no integer to compare")),
        };
        Ok(match self {
            Self::Eq(left, right) => left.fill(scope) == right.fill(scope),
            Self::Ne(left, right) => left.fill(scope) != right.fill(scope),
            Self::Lt(left, right) => integer(left)? < integer(right)?,
            Self::Ge(left, right) => integer(left)? >= integer(right)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template(value: Value) -> Template {
        Template::try_from(value).expect("a template")
    }

    #[test]
    fn holes_are_filled_wherever_they_are() {
        let state = json!({"x": 7}).as_object().cloned().expect("an object");
        let scope = Scope {
            state: Some(&state),
            locals: [("r".to_owned(), json!("R"))].into(),
            item: Some((2, json!({"id": 1}))),
        };
        let filled = template(json!({
            "a": [{"$state": "x"}, {"$state": "y"}, {"$local": "r"}],
            "b": {"$item": true, "more": 1},
            "c": {"d": {"$item": true}, "e": {"$index": true}},
        }))
        .fill(&scope);
        assert_eq!(
            filled,
            json!({"a": [7, null, "R"], "b": {"$item": true, "more": 1}, "c": {"d": {"id": 1}, "e": 2}})
        );
    }

    #[test]
    fn a_hole_needs_a_name() {
        assert!(Template::try_from(json!([{"$state": 1}])).is_err());
    }

    #[test]
    fn tests_order_integers_and_take_null_for_zero() {
        let test = |value: Value| serde_json::from_value::<Test>(value).expect("a test");
        let scope = Scope::default();
        assert_eq!(test(json!({"lt": [{"$local": "n"}, 1]})).holds(&scope), Ok(true));
        assert_eq!(test(json!({"ge": [null, 0]})).holds(&scope), Ok(true));
        assert_eq!(test(json!({"eq": [1, "1"]})).holds(&scope), Ok(false));
        assert_eq!(test(json!({"ne": [1, true]})).holds(&scope), Ok(true));
        assert!(test(json!({"lt": ["a", 1]})).holds(&scope).is_err());
        assert!(serde_json::from_value::<Test>(json!({"gt": [1, 2]})).is_err());
    }
}
