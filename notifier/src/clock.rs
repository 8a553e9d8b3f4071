//! Instants in the spellings that messages use.

use std::time::{Duration, SystemTime};

use chrono::{DateTime, SecondsFormat, Utc};
use countersign_kernel::time::Timestamp;

/// The last second that a four-digit year can name, since the Unix epoch.
const LAST_SECOND: u64 = 253_402_300_799;

fn utc(at: Timestamp) -> DateTime<Utc> {
    DateTime::from_timestamp_micros(at.as_micros()).unwrap_or(if at.as_micros() < 0 {
        DateTime::<Utc>::MIN_UTC
    } else {
        DateTime::<Utc>::MAX_UTC
    })
}

/// RFC 3339 with microseconds, UTC: `2026-11-05T14:30:00.000000Z`.
pub(crate) fn rfc3339(at: Timestamp) -> String {
    utc(at).to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// For people: `Thursday, 5 November 2026, 14:30 UTC`.
pub(crate) fn readable(at: Timestamp) -> String {
    utc(at).format("%A, %-d %B %Y, %H:%M UTC").to_string()
}

/// The instant as mail libraries take it, kept within what a `Date` header
/// can name (years 1970 to 9999).
pub(crate) fn system_time(at: Timestamp) -> SystemTime {
    let micros = u64::try_from(at.as_micros()).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros).min(Duration::from_secs(LAST_SECOND))
}

/// A file's time as an instant; the epoch if it lies before.
pub(crate) fn from_system_time(at: SystemTime) -> Timestamp {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(0).after(since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_spelt_and_never_overflow() {
        let at = Timestamp::from_micros(1_793_889_000_000_001);
        assert_eq!(rfc3339(at), "2026-11-05T14:30:00.000001Z");
        assert_eq!(readable(at), "Thursday, 5 November 2026, 14:30 UTC");
        assert_eq!(from_system_time(system_time(at)), at);
        for extreme in [i64::MIN, i64::MAX] {
            let at = Timestamp::from_micros(extreme);
            assert!(!rfc3339(at).is_empty() && !readable(at).is_empty());
            assert!(system_time(at) >= SystemTime::UNIX_EPOCH);
        }
    }
}
