//! How the events of one commit become one row, in few bytes.
//!
//! A list of lists, `[code, µs before the commit, …]`. A task is named by its
//! address, which says its key if it was not sent one; where it was named before
//! in the row, by the number of that name. A task that started fresh and has
//! finished within the commit, as most do, takes one entry for three events.

use std::collections::{HashMap, VecDeque};

use countersign_kernel::ids::{FrameId, InterruptId};
use countersign_kernel::machine::RunAs;
use countersign_kernel::time::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::events::{Event, TaskEnd, TaskPlace, What, Written};

/// Three events of one task: it started fresh, was done, and wrote something.
const RAN: &str = "r";
const STARTED: &str = "s";
const DONE: &str = "d";
const WAITING: &str = "w";
const FAILED: &str = "f";
const STOPPED: &str = "x";
const WROTE: &str = "u";
const VALUES: &str = "v";
const OPENED: &str = "o";
const CLOSED: &str = "c";
const CUSTOM: &str = "m";
const STATUS: &str = "a";

/// The content of the row of a commit at `committed`.
pub(super) fn pack(events: Vec<Event>, committed: Timestamp) -> Value {
    let before = |event: &Event| json!(committed.as_micros() - event.at.as_micros());
    let mut events = VecDeque::from(events);
    let mut places = Places::new();
    let mut packed: Vec<Value> = Vec::with_capacity(events.len());
    while let Some(event) = events.pop_front() {
        let mut entry = vec![Value::Null, before(&event)];
        if is_run(&event, &events)
            && let (Some(end), Some(Event { what: What::Wrote(place, writes), .. })) =
                (events.pop_front(), events.pop_front())
        {
            entry[0] = json!(RAN);
            entry.extend([before(&end), place_of(&mut places, place)]);
            entry.extend(writes.into_iter().map(write_of));
        } else {
            entry[0] = json!(add_facts(event.what, &mut places, &mut entry));
        }
        packed.push(entry.into());
    }
    packed.into()
}

/// Whether an event and the two after it are a run.
fn is_run(event: &Event, after: &VecDeque<Event>) -> bool {
    let What::Started(place, RunAs::Fresh) = &event.what else { return false };
    let (Some(end), Some(wrote)) = (after.front(), after.get(1)) else { return false };
    let ended = matches!(&end.what, What::Ended(ended, TaskEnd::Done) if ended == place);
    ended && end.at == wrote.at && matches!(&wrote.what, What::Wrote(of, _) if of == place)
}

/// Adds what is to be known of an event; returns its code.
fn add_facts(what: What, places: &mut Places, entry: &mut Vec<Value>) -> &'static str {
    match what {
        What::Started(place, run_as) => {
            entry.push(place_of(places, place));
            entry.extend((run_as != RunAs::Fresh).then(|| json!(run_as)));
            STARTED
        }
        What::Ended(place, end) => {
            entry.push(place_of(places, place));
            match end {
                TaskEnd::Done => DONE,
                TaskEnd::Waiting => WAITING,
                TaskEnd::Stopped => STOPPED,
                TaskEnd::Failed(message) => {
                    entry.push(message.into());
                    FAILED
                }
            }
        }
        What::Wrote(place, writes) => {
            entry.push(place_of(places, place));
            entry.extend(writes.into_iter().map(write_of));
            WROTE
        }
        What::Values(seq, frame) => {
            entry.push(seq.into());
            entry.extend(frame.map(|frame| json!(frame)));
            VALUES
        }
        What::Opened(id) => {
            entry.push(json!(id));
            OPENED
        }
        What::Closed(id, status) => {
            entry.extend([json!(id), status.into()]);
            CLOSED
        }
        What::Custom(address, payload) => {
            entry.extend([address.into(), payload]);
            CUSTOM
        }
        What::Status(status, reason) => {
            entry.push(status.into());
            entry.extend(reason.map(Value::from));
            STATUS
        }
    }
}

/// The key of a task that was not sent one, from its address.
fn key_in(address: &str) -> Option<&str> {
    let (_, last) = address.rsplit_once('/')?;
    let (node, visit) = last.rsplit_once('@')?;
    (!visit.is_empty() && visit.bytes().all(|byte| byte.is_ascii_digit())).then_some(node)
}

/// The tasks that were named in a row, by the number of their name.
type Places = HashMap<TaskPlace, usize>;

fn place_of(places: &mut Places, place: TaskPlace) -> Value {
    if let Some(known) = places.get(&place) {
        return (*known).into();
    }
    let named = match (&place.frame, key_in(&place.address) == Some(place.task.as_str())) {
        (None, true) => json!(place.address),
        (Some(frame), true) => json!([place.address, frame]),
        (frame, false) => json!([place.address, frame, place.task]),
    };
    places.insert(place, places.len());
    named
}

/// The key and the value; or the key and where the value lies.
fn write_of((key, written): (String, Written)) -> Value {
    match written {
        Written::Value(value) => json!([key, value]),
        Written::Replaced(seq, kib) => json!([key, seq, kib]),
        Written::Items(branch, from, until, kib) => json!([key, branch, from, until - from, kib]),
    }
}

/// The events of a row, in order; `None` if [`pack`] did not make it.
pub(super) fn unpack(packed: Value, committed: Timestamp) -> Option<Vec<Event>> {
    let mut places = Vec::new();
    let mut events = Vec::new();
    for entry in list(packed)? {
        let mut parts = Parts(list(entry)?.into());
        let (code, at) = (parts.take::<String>()?, parts.time(committed)?);
        let ended = |place, end| What::Ended(place, end);
        let what = match code.as_str() {
            RAN => {
                let end = parts.time(committed)?;
                let place = parts.place(&mut places)?;
                events.push(Event { at, what: What::Started(place.clone(), RunAs::Fresh) });
                events.push(Event { at: end, what: ended(place.clone(), TaskEnd::Done) });
                events.push(Event { at: end, what: What::Wrote(place, parts.writes()?) });
                continue;
            }
            STARTED => {
                let place = parts.place(&mut places)?;
                What::Started(place, if parts.0.is_empty() { RunAs::Fresh } else { parts.take()? })
            }
            DONE => ended(parts.place(&mut places)?, TaskEnd::Done),
            WAITING => ended(parts.place(&mut places)?, TaskEnd::Waiting),
            STOPPED => ended(parts.place(&mut places)?, TaskEnd::Stopped),
            FAILED => ended(parts.place(&mut places)?, TaskEnd::Failed(parts.take()?)),
            WROTE => What::Wrote(parts.place(&mut places)?, parts.writes()?),
            VALUES => What::Values(parts.take()?, parts.take::<FrameId>()),
            OPENED => What::Opened(parts.take::<InterruptId>()?),
            CLOSED => What::Closed(parts.take()?, parts.take()?),
            CUSTOM => What::Custom(parts.take()?, parts.take()?),
            STATUS => What::Status(parts.take()?, parts.take()),
            _ => return None,
        };
        events.push(Event { at, what });
    }
    Some(events)
}

fn list(value: Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(items) => Some(items),
        _ => None,
    }
}

/// What is left of an entry.
struct Parts(VecDeque<Value>);

impl Parts {
    fn take<T: DeserializeOwned>(&mut self) -> Option<T> {
        serde_json::from_value(self.0.pop_front()?).ok()
    }

    fn time(&mut self, committed: Timestamp) -> Option<Timestamp> {
        Some(Timestamp::from_micros(committed.as_micros().checked_sub(self.take()?)?))
    }

    fn place(&mut self, places: &mut Vec<TaskPlace>) -> Option<TaskPlace> {
        let (address, frame, task) = match self.0.pop_front()? {
            Value::Number(known) => return places.get(usize::try_from(known.as_u64()?).ok()?).cloned(),
            Value::String(address) => (address, None, None),
            named => {
                let mut named = Self(list(named)?.into());
                (named.take()?, named.take::<Option<FrameId>>()?, named.take::<String>())
            }
        };
        let task = task.or_else(|| key_in(&address).map(str::to_owned))?;
        places.push(TaskPlace { task, address, frame });
        places.last().cloned()
    }

    fn writes(&mut self) -> Option<Vec<(String, Written)>> {
        let write = |write: Value| {
            let mut parts = Self(list(write)?.into());
            let key = parts.take()?;
            let written = match parts.0.len() {
                1 => Written::Value(parts.take()?),
                2 => Written::Replaced(parts.take()?, parts.take()?),
                _ => {
                    let (branch, from, count) = (parts.take()?, parts.take::<u64>()?, parts.take::<u64>()?);
                    Written::Items(branch, from, from.checked_add(count)?, parts.take()?)
                }
            };
            Some((key, written))
        };
        std::mem::take(&mut self.0).into_iter().map(write).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(task: &str, address: &str, frame: Option<&str>) -> TaskPlace {
        let frame = frame.map(|id| FrameId::parse(id).expect("an id"));
        TaskPlace { task: task.into(), address: address.into(), frame }
    }

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    /// Packs, writes, reads and unpacks; returns the text between.
    fn there_and_back(events: &[Event], committed: Timestamp) -> String {
        let text = pack(events.to_vec(), committed).to_string();
        let packed = serde_json::from_str(&text).expect("JSON");
        assert_eq!(unpack(packed, committed).as_deref(), Some(events), "{text}");
        text
    }

    #[test]
    fn what_is_packed_comes_back_and_names_each_task_once() {
        let frame = "0f".repeat(16);
        let (root, inner) = (place("a", "g/a@3", None), place("b", "g/s@1/b@0", Some(&frame)));
        let (sent, inside) = (place("w#1", "g/w@3/w[1]", None), place("w#0", "g/s@1/w@0/w[0]", Some(&frame)));
        let interrupt = || InterruptId::parse("ab".repeat(16)).expect("an id");
        let all = [
            What::Started(root.clone(), RunAs::Target),
            What::Started(inner.clone(), RunAs::Fresh),
            What::Ended(inner.clone(), TaskEnd::Failed("no line".into())),
            What::Ended(inner.clone(), TaskEnd::Stopped),
            What::Ended(root.clone(), TaskEnd::Waiting),
            What::Ended(root.clone(), TaskEnd::Done),
            What::Wrote(root, vec![("n".into(), Written::Value(json!([1]))), ("m".into(), Written::Items(0, 3, 5, 1))]),
            What::Wrote(
                inner.clone(),
                vec![("n".into(), Written::Replaced(7, 300)), ("o".into(), Written::Value(Value::Null))],
            ),
            What::Started(sent.clone(), RunAs::Retry),
            What::Wrote(sent, Vec::new()),
            What::Wrote(inside, Vec::new()),
            What::Values(4, None),
            What::Values(0, inner.frame),
            What::Opened(interrupt()),
            What::Closed(interrupt(), "answered".into()),
            What::Custom("g/a@3/x[0]".into(), json!({"s": 1})),
            What::Custom("g/a@3".into(), Value::Null),
            What::status("parked"),
            What::Status("held".into(), Some("lost".into())),
        ];
        let events: Vec<Event> = (0..).zip(all).map(|(n, what)| Event { at: at(1_000 + n), what }).collect();
        // A clock may be set back in between.
        for committed in [at(5_000), at(0)] {
            let text = there_and_back(&events, committed);
            assert_eq!(text.matches("\"g/a@3\"").count(), 2, "as a task and as who says something: {text}");
            assert_eq!(text.matches("g/s@1/b@0").count(), 1, "{text}");
        }
    }

    #[test]
    fn a_run_is_one_entry_if_it_is_one() {
        let a = place("a", "chain/a@17", None);
        let run = |place: &TaskPlace, start: i64, end: i64| {
            let wrote = vec![("log".to_owned(), Written::Items(0, 17, 18, 0))];
            [
                Event { at: at(start), what: What::Started(place.clone(), RunAs::Fresh) },
                Event { at: at(end), what: What::Ended(place.clone(), TaskEnd::Done) },
                Event { at: at(end), what: What::Wrote(place.clone(), wrote) },
            ]
        };
        let mut events = run(&a, 100, 300).to_vec();
        events.push(Event { at: at(310), what: What::Values(18, None) });
        let text = there_and_back(&events, at(310));
        assert_eq!(text, r#"[["r",210,10,"chain/a@17",["log",0,17,1,0]],["v",0,18]]"#);
        // None of these is one.
        let b = place("b", "chain/b@17", None);
        let [start, end, wrote] = run(&a, 100, 300);
        let [_, other_end, other_wrote] = run(&b, 100, 300);
        let retried = Event { at: at(100), what: What::Started(a.clone(), RunAs::Retry) };
        let later = Event { at: at(301), ..wrote.clone() };
        let waits = Event { at: at(300), what: What::Ended(a, TaskEnd::Waiting) };
        for events in [
            vec![start.clone()],
            vec![start.clone(), end.clone()],
            vec![start.clone(), wrote.clone(), end.clone()],
            vec![start.clone(), waits, wrote.clone()],
            vec![start.clone(), other_end, wrote.clone()],
            vec![start.clone(), end.clone(), other_wrote],
            vec![start.clone(), end.clone(), later],
            vec![retried, end.clone(), wrote.clone()],
            vec![start.clone(), start, end, wrote],
        ] {
            there_and_back(&events, at(400));
        }
    }

    #[test]
    fn what_was_not_packed_is_no_event() {
        for bad in [
            json!(null),
            json!([1]),
            json!([["s"]]),
            json!([["s", 0]]),
            json!([["s", 0, 3]]),
            json!([["s", 0, "g/w@3/w[1]"]]),
            json!([["s", "now", "g/a@1"]]),
            json!([["z", 0, "g/a@1"]]),
            json!([["u", 0, "g/a@1", ["n"]]]),
            json!([["s", 0, "g/a@1", "twice"]]),
        ] {
            assert_eq!(unpack(bad.clone(), at(0)), None, "{bad}");
        }
        assert_eq!(unpack(json!([]), at(0)), Some(Vec::new()));
    }
}
