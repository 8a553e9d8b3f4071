//! `[[schedules]]`: threads that are started by the clock.

use std::time::Duration;

use countersign_worker::schedule::Rhythm;
use countersign_worker::store::commands::{CatchUp, ScheduleSpec};
use serde_json::Value;

use super::reader::Section;

/// The longest that a tick may be late, in minutes: a year.
const CATCH_UP_MAX: u64 = 366 * 24 * 60;

/// The schedules, each name once.
pub(super) fn read(sections: Vec<Section<'_>>) -> Vec<ScheduleSpec> {
    let mut schedules: Vec<ScheduleSpec> = Vec::new();
    for mut section in sections {
        let (place, reader) = (section.place("name"), section.reader());
        let missing = ["name", "graph", "cron"].map(|key| (key, !section.holds(key), section.place(key)));
        let name = section.parsed("name", name, "use 1 to 64 letters, digits, `-` and `_`");
        let graph = section.text("graph").map(|found| found.value);
        let input =
            section.parsed("input", |text| serde_json::from_str(text), "write JSON, as in '{\"amount\": \"12.00\"}'");
        let zone = section.parsed("zone", zone, "write a name of the IANA database, as in Europe/Berlin");
        let zone = zone.unwrap_or_else(|| "UTC".to_owned());
        let cron = section.parsed(
            "cron",
            |text| Rhythm::parse(text, &zone).map(|_| text.to_owned()),
            "write minute, hour, day, month, weekday, as in 30 2 * * MON-FRI",
        );
        let catch_up = section.parsed("catch_up", catch_up, "write `newest` or `all`").unwrap_or_default();
        let within = section.whole("catch_up_minutes", 60, 1..=CATCH_UP_MAX);
        let jitter = section.whole("jitter_seconds", 0, 0..=86_400);
        let paused = section.flag("paused", false);
        section.finish();
        for (key, _, place) in missing.iter().filter(|(_, missing, _)| *missing) {
            reader.fault(place, "a schedule needs it", format!("give a usable `{key}`"));
        }
        let (Some(name), Some(graph), Some(expression)) = (name, graph, cron) else { continue };
        if schedules.iter().any(|other| other.name == name) {
            reader.fault(place, format!("`{name}` is listed twice"), "give each schedule a name of its own");
            continue;
        }
        schedules.push(ScheduleSpec {
            name,
            graph,
            input: input.unwrap_or_else(|| Value::Object(serde_json::Map::new())),
            expression,
            zone,
            catch_up,
            catch_within: Duration::from_secs(within * 60),
            jitter: Duration::from_secs(jitter),
            paused,
        });
    }
    schedules
}

fn name(text: &str) -> Result<String, &'static str> {
    let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    if plain && (1..=64).contains(&text.len()) { Ok(text.to_owned()) } else { Err("it is no name of a schedule") }
}

fn zone(text: &str) -> Result<String, String> {
    Rhythm::parse("@daily", text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn catch_up(text: &str) -> Result<CatchUp, &'static str> {
    CatchUp::from_name(text).ok_or("there is no such rule")
}
