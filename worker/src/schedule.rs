//! When a schedule ticks: a cron expression in a time zone.
//!
//! The crate `croner` reads the expression and walks the calendar; what happens
//! when clocks change is decided here, over local times without a zone: a local
//! time that does not exist ticks at the next instant that does, one that exists
//! twice ticks the first time. Expressions whose hours are `*` tick in both, so
//! that what runs every few minutes is not silent for an hour.

use std::time::Duration;

use chrono::{DateTime, LocalResult, NaiveDateTime, Offset, TimeDelta, TimeZone, Utc};
use chrono_tz::Tz;
use countersign_kernel::time::Timestamp;
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use sha2::{Digest, Sha256};

/// Longer than any clock was ever put back.
const PUT_BACK_MAX: TimeDelta = TimeDelta::hours(3);
/// Longer than any clock was ever put forward: a day, west of the date line.
const PUT_FORWARD_MAX: i64 = 26 * 60;

/// Why there is no such rhythm.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RhythmError {
    /// The expression does not read.
    #[error("`{expression}` is no cron expression of five fields (minute, hour, day, month, weekday): {problem}")]
    Expression {
        /// What was given.
        expression: String,
        /// What the reader said.
        problem: String,
    },
    /// The zone is unknown.
    #[error("`{0}` is no time zone of the IANA database, such as Europe/Berlin")]
    Zone(String),
    /// The expression never matches.
    #[error("`{0}` never comes")]
    Never(String),
}

/// Instants that come again and again.
#[derive(Debug, Clone)]
pub struct Rhythm {
    cron: Cron,
    zone: Tz,
    /// Whether it ticks in every hour, also in one that comes twice.
    hourly: bool,
}

impl Rhythm {
    /// Reads a cron expression of five fields, or an alias such as `@daily`, in
    /// the local time of a zone.
    ///
    /// # Errors
    /// See [`RhythmError`].
    pub fn parse(expression: &str, zone: &str) -> Result<Self, RhythmError> {
        let zone = zone.parse().map_err(|_| RhythmError::Zone(zone.to_owned()))?;
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let cron = parser.parse(expression).map_err(|problem| RhythmError::Expression {
            expression: expression.to_owned(),
            problem: problem.to_string(),
        })?;
        let hours = expression.split_whitespace().nth(1);
        let hourly =
            hours.map_or_else(|| expression.trim().eq_ignore_ascii_case("@hourly"), |hours| hours.starts_with('*'));
        let rhythm = Self { cron, zone, hourly };
        match rhythm.after(Timestamp::from_micros(0)) {
            Some(_) => Ok(rhythm),
            None => Err(RhythmError::Never(expression.to_owned())),
        }
    }

    /// The first tick after an instant; `None` if there is none in this age.
    #[must_use]
    pub fn after(&self, instant: Timestamp) -> Option<Timestamp> {
        let now = DateTime::from_timestamp_micros(instant.as_micros())?;
        let local = now.with_timezone(&self.zone).naive_local();
        // A time before this one may be that of a later instant, where the clock
        // was put back in between.
        let mut time = local.checked_sub_signed(PUT_BACK_MAX)?;
        let mut first: Option<DateTime<Utc>> = None;
        loop {
            time = self.cron.find_next_occurrence(&time, false).ok()?;
            let next = self.instants(time).into_iter().flatten().filter(|tick| *tick > now).min();
            first = match (first, next) {
                (Some(first), Some(next)) => Some(first.min(next)),
                (first, next) => first.or(next),
            };
            if let Some(first) = first
                && time > local.checked_add_signed(PUT_BACK_MAX)?
            {
                return Some(Timestamp::from_micros(first.timestamp_micros()));
            }
        }
    }

    /// The instants of a local time: none but the end of the gap it is in, one,
    /// or two.
    fn instants(&self, time: NaiveDateTime) -> [Option<DateTime<Utc>>; 2] {
        match self.zone.from_local_datetime(&time) {
            LocalResult::Single(instant) => [Some(instant.to_utc()), None],
            LocalResult::Ambiguous(first, second) => [Some(first.to_utc()), self.hourly.then(|| second.to_utc())],
            LocalResult::None => [self.end_of_gap(time), None],
        }
    }

    /// When the clock was put forward over a local time.
    fn end_of_gap(&self, time: NaiveDateTime) -> Option<DateTime<Utc>> {
        // Changes come at full minutes.
        let after = (1..=PUT_FORWARD_MAX)
            .find_map(|minutes| self.zone.from_local_datetime(&(time + TimeDelta::minutes(minutes))).earliest())?;
        // With the offset before the change, the time is the instant that it would
        // have been; the change lies between the two.
        let (mut early, mut late) = (after.to_utc() - TimeDelta::minutes(PUT_FORWARD_MAX), after.to_utc());
        let offset = |instant: DateTime<Utc>| self.zone.offset_from_utc_datetime(&instant.naive_utc()).fix();
        let end = offset(late);
        while late - early > TimeDelta::seconds(1) {
            let middle = early + (late - early) / 2;
            if offset(middle) == end { late = middle } else { early = middle }
        }
        // To the second: the search ends within one.
        DateTime::from_timestamp(late.timestamp(), 0)
    }
}

/// How long after its instant a tick comes: the same wherever it is asked, less
/// than `most`, and another for each instant.
#[must_use]
pub fn jitter(schedule: &str, instant: Timestamp, most: Duration) -> Duration {
    let most = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
    if most == 0 {
        return Duration::ZERO;
    }
    let hash = Sha256::new()
        .chain_update(b"countersign/jitter/1")
        .chain_update(schedule.as_bytes())
        .chain_update(instant.as_micros().to_be_bytes())
        .finalize();
    let mut number = [0; 8];
    number.copy_from_slice(&hash[..8]);
    Duration::from_micros(u64::from_be_bytes(number) % most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        let instant: DateTime<Utc> = text.parse().expect("an instant");
        Timestamp::from_micros(instant.timestamp_micros())
    }

    /// The ticks after an instant, up to another.
    fn ticks(expression: &str, zone: &str, from: &str, until: &str) -> Vec<String> {
        let rhythm = Rhythm::parse(expression, zone).expect("it reads");
        let ticks = std::iter::successors(rhythm.after(at(from)), |tick| rhythm.after(*tick));
        let text = |tick: Timestamp| {
            let instant = DateTime::from_timestamp_micros(tick.as_micros()).expect("in range");
            instant.format("%m-%dT%H:%M").to_string()
        };
        ticks.take_while(|tick| *tick <= at(until)).map(text).collect()
    }

    #[test]
    fn half_past_two_in_berlin_comes_once_a_day_across_both_changes() {
        // The clock goes from 02:00 to 03:00 on the 28th.
        let spring = ticks("30 2 * * *", "Europe/Berlin", "2027-03-26T12:00:00Z", "2027-03-30T12:00:00Z");
        assert_eq!(spring, ["03-27T01:30", "03-28T01:00", "03-29T00:30", "03-30T00:30"]);
        // And from 03:00 to 02:00 on the 31st.
        let autumn = ticks("30 2 * * *", "Europe/Berlin", "2027-10-29T12:00:00Z", "2027-11-02T12:00:00Z");
        assert_eq!(autumn, ["10-30T00:30", "10-31T00:30", "11-01T01:30", "11-02T01:30"]);
    }

    #[test]
    fn a_tick_that_is_asked_for_in_the_middle_of_a_change_is_no_other() {
        let rhythm = Rhythm::parse("30 2 * * *", "Europe/Berlin").expect("it reads");
        for (now, next) in [
            ("2027-10-31T00:29:59Z", "2027-10-31T00:30:00Z"),
            ("2027-10-31T00:30:00Z", "2027-11-01T01:30:00Z"),
            // Half past two for the second time.
            ("2027-10-31T01:15:00Z", "2027-11-01T01:30:00Z"),
            ("2027-03-28T00:59:59Z", "2027-03-28T01:00:00Z"),
            ("2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"),
        ] {
            assert_eq!(rhythm.after(at(now)), Some(at(next)), "after {now}");
        }
    }

    #[test]
    fn what_comes_every_few_minutes_is_not_silent_in_an_hour_that_comes_twice() {
        let autumn = ticks("*/30 * * * *", "Europe/Berlin", "2027-10-30T23:59:00Z", "2027-10-31T02:00:00Z");
        assert_eq!(autumn, ["10-31T00:00", "10-31T00:30", "10-31T01:00", "10-31T01:30", "10-31T02:00"]);
        let spring = ticks("*/30 * * * *", "Europe/Berlin", "2027-03-28T00:20:00Z", "2027-03-28T01:30:00Z");
        assert_eq!(spring, ["03-28T00:30", "03-28T01:00", "03-28T01:30"]);
    }

    #[test]
    fn a_day_that_never_was_ticks_when_the_next_begins() {
        // Samoa went over the date line and left out the 30th.
        let samoa = ticks("0 12 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z", "2012-01-01T00:00:00Z");
        assert_eq!(samoa, ["12-29T22:00", "12-30T10:00", "12-30T22:00", "12-31T22:00"]);
    }

    #[test]
    fn odd_offsets_and_half_hours_of_change() {
        let lord_howe = ticks("15 2 * * *", "Australia/Lord_Howe", "2027-10-01T12:00:00Z", "2027-10-04T12:00:00Z");
        // From 02:00 to 02:30 on the 3rd.
        assert_eq!(lord_howe, ["10-01T15:45", "10-02T15:30", "10-03T15:15"]);
        let kathmandu = ticks("0 0 * * *", "Asia/Kathmandu", "2027-01-01T00:00:00Z", "2027-01-02T00:00:00Z");
        assert_eq!(kathmandu, ["01-01T18:15"]);
    }

    #[test]
    fn what_does_not_read_says_why() {
        let refused = |expression, zone| Rhythm::parse(expression, zone).expect_err("refused").to_string();
        assert!(refused("61 * * * *", "UTC").contains("`61 * * * *` is no cron expression of five fields"));
        assert!(refused("0 0 2 * * *", "UTC").contains("five fields"));
        assert!(refused("0 2 * * *", "Europe/Bärlin").contains("`Europe/Bärlin` is no time zone"));
        assert!(refused("0 2 30 2 *", "UTC").contains("`0 2 30 2 *`"));
        assert!(Rhythm::parse("@daily", "UTC").is_ok());
        assert!(Rhythm::parse("0 9 * * MON-FRI", "America/New_York").is_ok());
    }

    #[test]
    fn jitter_is_bounded_and_a_function_of_name_and_instant() {
        let most = Duration::from_secs(60);
        let of = |name, micros| jitter(name, Timestamp::from_micros(micros), most);
        assert_eq!(of("a", 1), of("a", 1));
        let all: std::collections::BTreeSet<_> = (0..100).map(|micros| of("a", micros)).collect();
        assert!(all.len() > 90 && all.iter().all(|jitter| *jitter < most));
        assert_ne!(of("a", 1), of("b", 1));
        assert_eq!(jitter("a", Timestamp::from_micros(1), Duration::ZERO), Duration::ZERO);
    }
}
