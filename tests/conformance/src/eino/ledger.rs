//! What the runner counts outside the kernel: which bodies ran, how often, and
//! the gate at which hanging bodies wait for the pause.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::watch;

use super::script::Seen;

/// The word under which a call of a model is counted.
pub(super) const CALL: &str = "call";

#[derive(Default)]
struct Counts {
    /// Bodies run since the step began, in order, with what each saw.
    ran: BTreeMap<String, Vec<String>>,
    /// Runs so far, by body.
    runs: BTreeMap<String, u32>,
    /// How often a branch of a script was taken, by body.
    taken: BTreeMap<(String, Seen), usize>,
    /// How often something else happened, by name.
    counted: BTreeMap<String, u32>,
    /// Results of finished tool calls of nodes, by body.
    finished: BTreeMap<String, Value>,
    /// What was said at an address when it was last asked.
    said: BTreeMap<String, Value>,
    /// Results that agents gave, so that the last of a group is known.
    given: u64,
}

/// Shared by all bodies of an app, for the whole scenario.
pub(super) struct Ledger {
    counts: Mutex<Counts>,
    gate: watch::Sender<Gate>,
}

/// Where a pause from outside stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gate {
    /// Nobody will pause: a body that hangs would hang for ever.
    Shut,
    /// Somebody pauses as soon as a body hangs.
    Awaited,
    /// A body hangs.
    Hanging,
    /// The pause has been asked for; bodies go on.
    Open,
}

impl Default for Ledger {
    fn default() -> Self {
        Self { counts: Mutex::default(), gate: watch::Sender::new(Gate::Shut) }
    }
}

impl Ledger {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        // Every change is a single insertion or addition.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A body begins; how often it has run now.
    pub(super) fn enter(&self, body: &str, seen: &impl ToString) -> u32 {
        let mut counts = self.counts();
        counts.ran.entry(body.to_owned()).or_default().push(seen.to_string());
        let runs = counts.runs.entry(body.to_owned()).or_insert(0);
        *runs += 1;
        *runs
    }

    /// How often a body took a branch before this time.
    pub(super) fn take(&self, body: &str, seen: Seen) -> usize {
        let mut counts = self.counts();
        let taken = counts.taken.entry((body.to_owned(), seen)).or_insert(0);
        *taken += 1;
        *taken - 1
    }

    /// Counts something by name; how often it has happened now.
    pub(super) fn count(&self, name: String) -> u32 {
        let mut counts = self.counts();
        let count = counts.counted.entry(name).or_insert(0);
        *count += 1;
        *count
    }

    /// The body at an address asks.
    pub(super) fn say(&self, address: String, info: &Value) {
        self.counts().said.insert(address, info.clone());
    }

    /// What the body at an address said when it asked.
    pub(super) fn said(&self, address: &str) -> Option<Value> {
        self.counts().said.get(address).cloned()
    }

    /// A tool call of a node has finished.
    pub(super) fn finish(&self, body: &str, result: &Value) {
        self.counts().finished.insert(body.to_owned(), result.clone());
    }

    /// A number for a result that an agent gave, higher than all before.
    pub(super) fn give(&self) -> u64 {
        let mut counts = self.counts();
        counts.given += 1;
        counts.given
    }

    /// A step begins: what runs from here on is its own.
    pub(super) fn begin_step(&self) {
        self.counts().ran.clear();
    }

    /// The bodies that ran in this step.
    pub(super) fn ran(&self) -> BTreeMap<String, Vec<String>> {
        self.counts().ran.clone()
    }

    /// How often each body has run.
    pub(super) fn runs(&self) -> BTreeMap<String, u32> {
        self.counts().runs.clone()
    }

    /// The results of finished tool calls.
    pub(super) fn finished(&self) -> BTreeMap<String, Value> {
        self.counts().finished.clone()
    }

    /// Bodies may hang from now on: somebody waits for that in
    /// [`hanging`](Self::hanging).
    pub(super) fn await_hang(&self) {
        self.gate.send_replace(Gate::Awaited);
    }

    /// Waits until a body hangs.
    pub(super) async fn hanging(&self) {
        // The sender is ours, so the channel does not close.
        let _ = self.gate.subscribe().wait_for(|gate| *gate == Gate::Hanging).await;
    }

    /// Lets hanging bodies go on.
    pub(super) fn go_on(&self) {
        self.gate.send_replace(Gate::Open);
    }

    /// Nobody waits for a body to hang any more.
    pub(super) fn end_hang(&self) {
        self.gate.send_replace(Gate::Shut);
    }

    /// Called by a body that hangs: returns once the pause has been asked for.
    ///
    /// # Errors
    /// Nobody is there to ask for one.
    pub(super) async fn hang(&self) -> Result<(), String> {
        self.gate.send_if_modified(|gate| {
            let awaited = *gate == Gate::Awaited;
            if awaited {
                *gate = Gate::Hanging;
            }
            awaited
        });
        let mut gate = self.gate.subscribe();
        match gate.wait_for(|gate| matches!(gate, Gate::Open | Gate::Shut)).await.map(|gate| *gate) {
            Ok(Gate::Open) => Ok(()),
            _ => Err("a body hangs and nobody asks for a pause".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_add_up_and_what_ran_is_of_the_step() {
        let ledger = Ledger::default();
        assert_eq!((ledger.enter("a", &Seen::Fresh), ledger.enter("a", &Seen::Target)), (1, 2));
        ledger.begin_step();
        assert_eq!(ledger.enter("a/model", &CALL), 1);
        assert_eq!(ledger.ran(), BTreeMap::from([("a/model".into(), vec!["call".into()])]));
        assert_eq!(ledger.runs(), BTreeMap::from([("a".into(), 2), ("a/model".into(), 1)]));
        assert_eq!((ledger.take("a", Seen::Fresh), ledger.take("a", Seen::Fresh)), (0, 1));
        assert_eq!(ledger.take("b", Seen::Fresh), 0);
    }

    #[tokio::test]
    async fn a_body_hangs_until_the_pause_is_asked_for() {
        let ledger = Ledger::default();
        ledger.await_hang();
        let (hung, ()) = tokio::join!(ledger.hang(), async {
            ledger.hanging().await;
            ledger.go_on();
        });
        assert_eq!(hung, Ok(()));
        ledger.end_hang();
        assert!(ledger.hang().await.is_err(), "a body that would hang for ever fails");
    }
}
