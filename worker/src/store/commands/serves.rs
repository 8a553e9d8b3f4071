//! What a process takes up.

use crate::queue::JobKind;

/// What a process takes up; the rest is left to other processes of the
/// database. By default everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Serves {
    /// Jobs of these kinds.
    pub kinds: Vec<JobKind>,
    /// Threads of these flows; `None` for all, also those that this build lacks,
    /// which are held (R16). Deliveries are the same for all flows.
    pub graphs: Option<Vec<String>>,
}

impl Default for Serves {
    fn default() -> Self {
        Self { kinds: JobKind::ALL.to_vec(), graphs: None }
    }
}

impl Serves {
    /// Jobs of these kinds, of all flows.
    #[must_use]
    pub fn kinds(kinds: &[JobKind]) -> Self {
        Self { kinds: kinds.to_vec(), graphs: None }
    }

    /// Of these, only threads of these flows.
    #[must_use]
    pub fn of(self, graphs: Option<Vec<String>>) -> Self {
        Self { graphs, ..self }
    }
}
