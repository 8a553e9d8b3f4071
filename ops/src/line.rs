//! Which checkpoints the present of a thread descends from.

use countersign_kernel::ids::CheckpointId;

/// A walk from the newest checkpoint back, over a history that is read newest
/// first and in pages: tells the present line from those that an edit, a
/// replay or a fork left (R13).
#[derive(Debug, Clone, Default)]
pub(crate) struct Line {
    /// The checkpoint to meet next on the line.
    next: Option<CheckpointId>,
    /// Whether the line has come to its first checkpoint.
    ended: bool,
}

impl Line {
    /// A walk that goes on at `next`; from the newest checkpoint, if there is
    /// none.
    pub(crate) fn from(next: Option<CheckpointId>) -> Self {
        Self { next, ended: false }
    }

    /// Whether the line holds this checkpoint, the next older one of the
    /// history.
    pub(crate) fn holds(&mut self, checkpoint: &CheckpointId, parent: Option<&CheckpointId>) -> bool {
        let holds = !self.ended && self.next.as_ref().is_none_or(|next| next == checkpoint);
        if holds {
            self.next = parent.cloned();
            self.ended = parent.is_none();
        }
        holds
    }

    /// Where the line goes on.
    pub(crate) fn next(&self) -> Option<&CheckpointId> {
        self.next.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> CheckpointId {
        CheckpointId::parse(text).expect("an id")
    }

    #[test]
    fn what_a_fork_left_is_not_on_the_line() {
        // d forks from b, so c is left; page by page it is the same.
        let history = [("e", Some("d")), ("d", Some("b")), ("c", Some("b")), ("b", Some("a")), ("a", None)];
        for page in 1..=5 {
            let mut line = Line::default();
            let mut held = Vec::new();
            for part in history.chunks(page) {
                line = Line::from(line.next().cloned());
                for (checkpoint, parent) in part {
                    if line.holds(&id(checkpoint), parent.map(id).as_ref()) {
                        held.push(*checkpoint);
                    }
                }
            }
            assert_eq!(held, ["e", "d", "b", "a"]);
        }
    }
}
