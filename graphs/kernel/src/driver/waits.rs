//! Time and signals for a thread in memory.

use std::cmp::Reverse;

use serde_json::Value;

use super::{Driver, Refused};
use crate::machine::{Point, Position};
use crate::principal::Principal;
use crate::question::{Answered, Elapsed};
use crate::time::Timestamp;

impl Driver {
    /// Lets time pass until the first of the instants that open points wait
    /// for: a sleep ends, or a deadline does what it says. Says whether there was
    /// one.
    pub async fn pass_time(&mut self) -> bool {
        let due = |point: Point| match (point.due, point.elapsed()) {
            (Some(due), Some((Elapsed::Answered(value), by))) => Some((due, point.id, value, by)),
            _ => None,
        };
        let Some((due, id, value, by)) = self.points().into_iter().filter_map(due).min_by_key(|(due, ..)| *due) else {
            return false;
        };
        self.outside.advance(due);
        let answered = Answered { value, by: vec![by], at: due };
        let taken = self.position.as_mut().is_some_and(|position| position.answer(&id, answered).is_ok());
        self.drive().await;
        taken
    }

    /// Sends the thread a signal. If nothing waits for it, it is kept until
    /// something does.
    ///
    /// # Errors
    /// The thread never ran.
    pub async fn signal(&mut self, name: &str, payload: Value) -> Result<(), Refused> {
        if self.position.is_none() {
            return Err(Refused::NeverRan);
        }
        let payload = (!payload.is_null()).then_some(payload);
        self.signals.push((name.to_owned(), payload));
        self.drive().await;
        Ok(())
    }

    /// Gives signals that were kept to the points that wait for them, the oldest
    /// first. Says whether there was one.
    pub(super) fn take_signals(&mut self, position: &mut Position, now: Timestamp) -> bool {
        let mut points = position.points();
        points.sort_by_key(|point| Reverse((point.asked_at, point.address.to_string(), point.number)));
        let mut took = false;
        while let Some(point) = points.pop() {
            let Some(wanted) = point.signal() else { continue };
            let Some(kept) = self.signals.iter().position(|(name, _)| name == wanted) else { continue };
            let (_, value) = self.signals.remove(kept);
            let answered = Answered { value, by: vec![Principal::service("tester")], at: now };
            took |= position.answer(&point.id, answered).is_ok();
        }
        took
    }
}
