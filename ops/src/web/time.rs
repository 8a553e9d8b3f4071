//! Instants as people and machines read them.

use chrono::DateTime;
use countersign_kernel::time::Timestamp;

/// An instant for a `<time>` element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Moment {
    /// RFC 3339.
    pub(super) machine: String,
    /// `2026-11-30 14:05 UTC`.
    pub(super) human: String,
    /// `2026-11-30 14:05:07 UTC`, for what happens in quick succession.
    pub(super) exact: String,
}

impl Moment {
    /// The instant, cut to what is shown.
    pub(super) fn of(at: Timestamp) -> Self {
        match DateTime::from_timestamp_micros(at.as_micros()) {
            Some(time) => Self {
                machine: time.format("%Y-%m-%dT%H:%M:%SZ").to_string(),
                human: time.format("%Y-%m-%d %H:%M UTC").to_string(),
                exact: time.format("%Y-%m-%d %H:%M:%S UTC").to_string(),
            },
            None => {
                let unknown = "an unknown time".to_owned();
                Self { machine: String::new(), human: unknown.clone(), exact: unknown }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_shown_in_utc() {
        let moment = Moment::of(Timestamp::from_micros(1_796_047_500_123_456));
        assert_eq!(moment.human, "2026-11-30 14:05 UTC");
        assert_eq!(
            (moment.machine.as_str(), moment.exact.as_str()),
            ("2026-11-30T14:05:00Z", "2026-11-30 14:05:00 UTC")
        );
        assert_eq!(Moment::of(Timestamp::from_micros(i64::MAX)).human, "an unknown time");
    }
}
