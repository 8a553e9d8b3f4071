//! What a flow's bodies need from outside, by type.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Shared things a graph was given, one per type: a bank, an HTTP client.
#[derive(Clone, Default)]
pub struct Resources(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl Resources {
    /// Adds a thing; a later one of the same type replaces it.
    pub fn insert<T: Send + Sync + 'static>(&mut self, thing: T) {
        self.0.insert(TypeId::of::<T>(), Arc::new(thing));
    }

    /// The thing of this type, if there is one.
    #[must_use]
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.0.get(&TypeId::of::<T>()).and_then(|thing| thing.downcast_ref())
    }
}

impl fmt::Debug for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Resources({})", self.0.len())
    }
}
