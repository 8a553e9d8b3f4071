//! How threads of an older version of a flow come up to the present one.
//!
//! A parked thread is data: planned nodes by name, state by key, and what
//! finished tasks of the superstep have written and where they lead. A new
//! version of the flow says what became of the names and values that it
//! changed; whatever it does not mention must still fit, or the thread is held.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use serde_json::Value;

use crate::machine::{CheckpointBody, StoredOutcome};
use crate::node::{Goto, panic_text};
use crate::state::Values;

/// Makes a key's new value from its old one; or what is wrong with that.
type ChangeFn = Arc<dyn Fn(Value) -> Result<Value, String> + Send + Sync>;

/// The key whose value a migration refused, and why.
pub(crate) type Unchanged = (String, String);

#[derive(Clone)]
enum Step {
    RenameNode { old: String, new: String },
    RenameKey { old: String, new: String },
    RemoveKey(String),
    SetKey { key: String, value: Value },
    ChangeKey { key: String, change: ChangeFn },
}

/// What changed from one version to the next, in order.
#[derive(Clone, Default)]
pub struct Migration(Vec<Step>);

impl fmt::Debug for Migration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Migration({} steps)", self.0.len())
    }
}

impl Migration {
    /// A node has another name now. Threads that wait in it wait on: their
    /// questions keep their ids and addresses.
    pub fn rename_node(&mut self, old: impl Into<String>, new: impl Into<String>) -> &mut Self {
        self.push(Step::RenameNode { old: old.into(), new: new.into() })
    }

    /// A key of the state has another name now.
    pub fn rename_key(&mut self, old: impl Into<String>, new: impl Into<String>) -> &mut Self {
        self.push(Step::RenameKey { old: old.into(), new: new.into() })
    }

    /// A key of the state is gone, and its value with it. A key that a new
    /// version just does not declare any more keeps its value, unread.
    pub fn remove_key(&mut self, key: impl Into<String>) -> &mut Self {
        self.push(Step::RemoveKey(key.into()))
    }

    /// A key is new; threads that have no value for it get this one.
    pub fn add_key(&mut self, key: impl Into<String>, value: impl Into<Value>) -> &mut Self {
        self.push(Step::SetKey { key: key.into(), value: value.into() })
    }

    /// A key has another type or meaning now: `change` makes the new value of
    /// the old one. It must not depend on anything else. It also gets what
    /// finished tasks have written to the key and the superstep has not applied
    /// yet, so of a key that is summed, merged or appended to it must be one
    /// that fits a part as it fits the whole.
    pub fn change_key(
        &mut self,
        key: impl Into<String>,
        change: impl Fn(Value) -> Result<Value, String> + Send + Sync + 'static,
    ) -> &mut Self {
        self.push(Step::ChangeKey { key: key.into(), change: Arc::new(change) })
    }

    fn push(&mut self, step: Step) -> &mut Self {
        self.0.push(step);
        self
    }

    fn apply(&self, body: &mut CheckpointBody, values: &mut Values) -> Result<(), Unchanged> {
        for step in &self.0 {
            match step {
                Step::RenameNode { old, new } => rename_node(body, old, new),
                Step::RenameKey { old, new } => {
                    if let Some(value) = values.shared(old) {
                        values.remove(old);
                        values.put(new.clone(), value);
                    }
                }
                Step::RemoveKey(key) => values.remove(key),
                Step::SetKey { key, value } => {
                    if values.get(key).is_none() {
                        values.insert(key.clone(), value.clone());
                    }
                }
                Step::ChangeKey { key, change } => {
                    if let Some(value) = values.get(key) {
                        let changed = changed(key, change, value)?;
                        values.insert(key.clone(), changed);
                    }
                }
            }
        }
        Ok(())
    }

    fn apply_to_outcome(&self, outcome: &mut StoredOutcome) -> Result<(), Unchanged> {
        for step in &self.0 {
            match step {
                Step::RenameNode { old, new } => {
                    let targets = outcome.targets.iter_mut().flatten().chain(&mut outcome.goto);
                    for Goto::Node(node) | Goto::Send { node, .. } in targets {
                        if node == old {
                            new.clone_into(node);
                        }
                    }
                }
                Step::RenameKey { old, new } => {
                    for (key, _) in outcome.writes.iter_mut().filter(|(key, _)| key == old) {
                        new.clone_into(key);
                    }
                }
                Step::RemoveKey(key) => outcome.writes.retain(|(written, _)| written != key),
                Step::SetKey { .. } => {}
                Step::ChangeKey { key, change } => {
                    for (_, value) in outcome.writes.iter_mut().filter(|(written, _)| written == key) {
                        *value = changed(key, change, value)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// A panic is a refusal: it must not take down who only looks at the thread.
fn changed(key: &str, change: &ChangeFn, value: &Value) -> Result<Value, Unchanged> {
    let changed = std::panic::catch_unwind(AssertUnwindSafe(|| change(value.clone())));
    let changed = changed.unwrap_or_else(|panic| Err(format!("the change panicked: {}", panic_text(panic.as_ref()))));
    changed.map_err(|problem| (key.to_owned(), problem))
}

fn rename_node(body: &mut CheckpointBody, old: &str, new: &str) {
    // The key stays: the task's record lies under it.
    for task in body.tasks.iter_mut().filter(|task| task.node == old) {
        new.clone_into(&mut task.node);
    }
    for nodes in body.arrivals.values_mut().chain([&mut body.deferred, &mut body.ran]) {
        if nodes.remove(old) {
            nodes.insert(new.to_owned());
        }
    }
    let renamed = |join: &str| {
        let (sources, target) = join.split_once('>').unwrap_or((join, ""));
        let of = |name: &str| if name == old { new.to_owned() } else { name.to_owned() };
        // The sources of a join are named in order.
        let mut sources: Vec<String> = sources.split('+').map(of).collect();
        sources.sort_unstable();
        format!("{}>{}", sources.join("+"), of(target))
    };
    body.arrivals = std::mem::take(&mut body.arrivals).into_iter().map(|(join, at)| (renamed(&join), at)).collect();
}

/// The migrations of a flow, by the version that they start from.
#[derive(Debug, Clone, Default)]
pub(crate) struct Migrations(pub(crate) BTreeMap<u32, Migration>);

impl Migrations {
    /// Brings a checkpoint of version `from` up to version `to`. Versions
    /// without a migration changed nothing that needs one.
    pub(crate) fn apply(
        &self,
        from: u32,
        to: u32,
        body: &mut CheckpointBody,
        values: &mut Values,
    ) -> Result<(), Unchanged> {
        self.between(from, to).try_for_each(|migration| migration.apply(body, values))
    }

    /// Brings what a finished task of version `from` wrote up to version `to`.
    pub(crate) fn apply_to_outcome(&self, from: u32, to: u32, outcome: &mut StoredOutcome) -> Result<(), Unchanged> {
        self.between(from, to).try_for_each(|migration| migration.apply_to_outcome(outcome))
    }

    fn between(&self, from: u32, to: u32) -> impl Iterator<Item = &Migration> {
        // A range that ends before it begins is a panic.
        self.0.range(from.min(to)..to).map(|(_, migration)| migration)
    }
}
