//! State as JSON values by key, with the typed view cached beside them.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};

use super::typed::{StateCodec, StateFault};

/// What a superstep did to one key; also what a store writes.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// The key has this value now.
    Set(Value),
    /// These items were appended to the key's list.
    Appended(Vec<Value>),
}

/// The values of a state, by key. Cloning is cheap: values are shared.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Values(BTreeMap<String, Arc<Value>>);

impl Values {
    /// The value of a key, if it has one.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key).map(AsRef::as_ref)
    }

    /// Sets a key as it stands in a store.
    pub fn insert(&mut self, key: impl Into<String>, value: Value) {
        self.0.insert(key.into(), Arc::new(value));
    }

    /// The value of a key, shared.
    pub(crate) fn shared(&self, key: &str) -> Option<Arc<Value>> {
        self.0.get(key).cloned()
    }

    /// Sets a key to a shared value.
    pub(crate) fn put(&mut self, key: String, value: Arc<Value>) {
        self.0.insert(key, value);
    }

    /// Removes a key.
    pub(crate) fn remove(&mut self, key: &str) {
        self.0.remove(key);
    }

    /// The keys that have a value, in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Applies a change; appending costs what is appended.
    pub fn apply(&mut self, key: &str, change: &Change) {
        match change {
            Change::Set(value) => {
                self.0.insert(key.to_owned(), Arc::new(value.clone()));
            }
            Change::Appended(items) => {
                let list = self.0.entry(key.to_owned()).or_insert_with(|| Arc::new(Value::Array(Vec::new())));
                if let Value::Array(list) = Arc::make_mut(list) {
                    list.extend(items.iter().cloned());
                }
            }
        }
    }

    /// The values as one JSON object.
    #[must_use]
    pub fn to_object(&self) -> Map<String, Value> {
        self.0.iter().map(|(key, value)| (key.clone(), value.as_ref().clone())).collect()
    }
}

/// What tasks of a superstep see: the values, and the flow's own type decoded
/// from them at first use and kept (R14).
#[derive(Debug, Default)]
pub struct StateView {
    values: Values,
    typed: OnceLock<Arc<dyn Any + Send + Sync>>,
}

/// Equal by values: the typed state follows from them.
impl PartialEq for StateView {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
    }
}

impl StateView {
    /// A view of `values`.
    #[must_use]
    pub fn new(values: Values) -> Self {
        Self { values, typed: OnceLock::new() }
    }

    /// The values by key.
    #[must_use]
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// The typed state; decoded once.
    pub(crate) fn typed(&self, codec: &dyn StateCodec) -> Result<Arc<dyn Any + Send + Sync>, StateFault> {
        if let Some(typed) = self.typed.get() {
            return Ok(Arc::clone(typed));
        }
        let decoded = codec.decode(&self.values)?;
        Ok(Arc::clone(self.typed.get_or_init(|| decoded)))
    }

    /// This view with changes applied. In place when nobody else holds it, so
    /// that a step costs what it changes, not what the state weighs.
    pub(crate) fn changed(mut this: Arc<Self>, codec: &dyn StateCodec, changes: &[(String, Change)]) -> Arc<Self> {
        if Arc::get_mut(&mut this).is_none() {
            this = Arc::new(Self::new(this.values.clone()));
        }
        if let Some(view) = Arc::get_mut(&mut this) {
            for (key, change) in changes {
                view.values.apply(key, change);
            }
            if let Some(mut typed) = view.typed.take()
                && codec.patch(&mut typed, changes)
            {
                view.typed = OnceLock::from(typed);
            }
        }
        this
    }
}
