//! The typed layer over JSON values: what `#[derive(State)]` implements.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::reducer::Reducer;
use super::values::{Change, Values};

/// A state value that cannot be read as the flow's type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateFault {
    /// A required key has no value.
    #[error("missing: the state key `{key}` has no value")]
    Missing {
        /// The key.
        key: String,
    },
    /// A key's value has another type than the field.
    #[error("the value of key `{key}` does not fit: {problem}")]
    Unreadable {
        /// The key.
        key: String,
        /// What the decoder said.
        problem: String,
    },
}

impl StateFault {
    /// The key at fault.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Missing { key } | Self::Unreadable { key, .. } => key,
        }
    }
}

/// One declared key.
#[derive(Debug, Clone, PartialEq)]
pub struct KeySpec {
    /// The key's name.
    pub name: String,
    /// How writes combine.
    pub reducer: Reducer,
    /// Whether the input must give it a value.
    pub required: bool,
    /// The Rust type, for the fingerprint and for people.
    pub type_name: String,
}

/// The declared keys of a graph.
pub type Schema = Vec<KeySpec>;

/// A flow's state: a plain struct whose fields are the keys.
///
/// Derive it: `#[derive(State)]`, with `#[reduce(append)]`, `#[reduce(sum)]`
/// or `#[reduce(merge)]` beside fields that combine, and `#[state(default)]`
/// for last-value fields that start with their default. `Option` fields start
/// with `None`. The derive also makes `<Name>Update` with a setter per field,
/// which is how a node says what it changed; a wrong key or type there does
/// not compile.
///
/// `#[reduce(with = "path::to::function")]` combines in the flow's own way: by a
/// function of the value and the write, both of the field's type. It returns the
/// new value, or a `Result` of it that refuses the write and so fails the node.
/// It must not depend on anything else; the writes of nodes that ran side by
/// side come in the order of their names. With `#[state(default)]` the field
/// starts with its default, as an `Option` does with `None`; otherwise the input
/// gives it, and that first value is taken as it is. The path of the function is
/// part of the graph's fingerprint.
///
/// ```
/// use countersign_kernel::prelude::*;
///
/// #[derive(State)]
/// struct Invoice {
///     amount: u64,
///     #[reduce(append)]
///     notes: Vec<String>,
/// }
/// let _update: InvoiceUpdate = Invoice::update().amount(5).notes("seen".to_owned());
/// ```
///
/// ```
/// use countersign_kernel::prelude::*;
///
/// #[derive(State)]
/// struct Tender {
///     /// The best offer so far.
///     #[reduce(with = "Option::max")]
///     best: Option<u64>,
///     /// May only rise.
///     #[reduce(with = "rising")]
///     #[state(default)]
///     round: u32,
/// }
///
/// fn rising(now: u32, next: u32) -> Result<u32, String> {
///     if next > now { Ok(next) } else { Err(format!("round {next} is over")) }
/// }
/// ```
///
/// ```compile_fail
/// use countersign_kernel::prelude::*;
///
/// #[derive(State)]
/// struct Invoice { amount: u64 }
/// let _update = Invoice::update().amount("five");
/// ```
///
/// ```compile_fail
/// use countersign_kernel::prelude::*;
///
/// #[derive(State)]
/// struct Invoice { amount: u64 }
/// let _update = Invoice::update().amonut(5);
/// ```
pub trait State: Sized + Send + Sync + 'static {
    /// What a node returns: writes to some of the keys.
    type Update: Into<Writes> + Send;

    /// The declared keys.
    fn schema() -> Schema;

    /// Reads the whole struct.
    ///
    /// # Errors
    /// A required key is missing, or a value does not fit its field.
    fn decode(values: &Values) -> Result<Self, StateFault>;

    /// All for which [`decode`](Self::decode) refuses them, key by key.
    fn faults(values: &Values) -> Vec<StateFault> {
        Self::decode(values).err().into_iter().collect()
    }

    /// Brings the struct up to date with one change, at the cost of the change.
    ///
    /// # Errors
    /// The changed value does not fit its field.
    fn patch(&mut self, key: &str, change: &Change) -> Result<(), StateFault>;
}

/// Writes to state keys, in the order they were made.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Writes {
    entries: Vec<(String, Value)>,
    fault: Option<String>,
}

impl Writes {
    /// No writes.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds a write. A value that JSON cannot hold makes the node fail with a
    /// message that names the key (K14).
    #[must_use]
    pub fn with(mut self, key: &str, value: &impl Serialize) -> Self {
        match serde_json::to_value(value) {
            Ok(value) => self.entries.push((key.to_owned(), value)),
            Err(problem) => {
                self.fault.get_or_insert_with(|| format!("the value written to `{key}` cannot be encoded: {problem}"));
            }
        }
        self
    }

    /// The writes so far.
    #[must_use]
    pub fn entries(&self) -> &[(String, Value)] {
        &self.entries
    }

    /// The writes, or the first value that could not be encoded.
    pub(crate) fn into_entries(self) -> Result<Vec<(String, Value)>, String> {
        self.fault.map_or(Ok(self.entries), Err)
    }
}

impl From<()> for Writes {
    fn from((): ()) -> Self {
        Self::default()
    }
}

impl FromIterator<(String, Value)> for Writes {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(entries: I) -> Self {
        Self { entries: entries.into_iter().collect(), fault: None }
    }
}

/// Reads a required key. Used by the derive.
///
/// # Errors
/// The key is missing or its value does not fit.
pub fn decode_key<T: DeserializeOwned>(values: &Values, key: &str) -> Result<T, StateFault> {
    let value = values.get(key).ok_or_else(|| StateFault::Missing { key: key.to_owned() })?;
    decode_value(key, value)
}

/// Reads a key that starts with its default. Used by the derive.
///
/// # Errors
/// The key's value does not fit.
pub fn decode_key_or_default<T: DeserializeOwned + Default>(values: &Values, key: &str) -> Result<T, StateFault> {
    values.get(key).map_or_else(|| Ok(T::default()), |value| decode_value(key, value))
}

/// Reads one value as a field's type. Used by the derive.
///
/// # Errors
/// The value does not fit.
pub fn decode_value<T: DeserializeOwned>(key: &str, value: &Value) -> Result<T, StateFault> {
    T::deserialize(value)
        .map_err(|problem| StateFault::Unreadable { key: key.to_owned(), problem: problem.to_string() })
}

/// The typed layer behind one pointer, so that graphs are untyped inside.
pub(crate) trait StateCodec: Send + Sync {
    fn decode(&self, values: &Values) -> Result<Arc<dyn Any + Send + Sync>, StateFault>;
    /// All that is wrong with values that cannot be decoded.
    fn faults(&self, values: &Values) -> Vec<StateFault>;
    /// Patches in place; `false` if the typed value must be decoded anew.
    fn patch(&self, typed: &mut Arc<dyn Any + Send + Sync>, changes: &[(String, Change)]) -> bool;
}

pub(crate) struct TypedCodec<S>(PhantomData<fn() -> S>);

impl<S> TypedCodec<S> {
    pub(crate) const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<S: State> StateCodec for TypedCodec<S> {
    fn decode(&self, values: &Values) -> Result<Arc<dyn Any + Send + Sync>, StateFault> {
        Ok(Arc::new(S::decode(values)?))
    }

    fn faults(&self, values: &Values) -> Vec<StateFault> {
        S::faults(values)
    }

    fn patch(&self, typed: &mut Arc<dyn Any + Send + Sync>, changes: &[(String, Change)]) -> bool {
        let Some(state) = Arc::get_mut(typed).and_then(|any| any.downcast_mut::<S>()) else {
            return false;
        };
        changes.iter().all(|(key, change)| state.patch(key, change).is_ok())
    }
}

/// Graphs built from data have no Rust type: their bodies read the values.
pub(crate) struct UntypedCodec;

impl StateCodec for UntypedCodec {
    fn decode(&self, _: &Values) -> Result<Arc<dyn Any + Send + Sync>, StateFault> {
        Ok(Arc::new(()))
    }

    fn faults(&self, _: &Values) -> Vec<StateFault> {
        Vec::new()
    }

    fn patch(&self, _: &mut Arc<dyn Any + Send + Sync>, _: &[(String, Change)]) -> bool {
        true
    }
}
