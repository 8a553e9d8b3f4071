//! Compares what is seen after a step with what is expected.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};

use serde_json::Value;

use super::model::{Expect, ExpectedParent, ExpectedPoint, Status, Stops};

/// What a client sees after a step, in the words of the format.
#[derive(Debug, Clone)]
pub(super) struct Observation {
    /// How the thread rests.
    pub(super) status: Status,
    /// The open points, in the order in which they are listed.
    pub(super) points: Vec<SeenPoint>,
    /// The nodes that open static stops name.
    pub(super) stops: Stops,
    /// The result of a finished thread.
    pub(super) output: Option<Value>,
    /// Why tasks failed.
    pub(super) errors: Vec<String>,
    /// The bodies that ran in this step, with what each saw.
    pub(super) ran: BTreeMap<String, Vec<String>>,
    /// How often each body has run.
    pub(super) runs: BTreeMap<String, u32>,
    /// Results of finished tool calls of nodes.
    pub(super) kept: BTreeMap<String, Value>,
    /// How many requests of the step were accepted.
    pub(super) accepted: usize,
    /// The requests that were not.
    pub(super) refusals: Vec<SeenRefusal>,
}

/// An open point.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SeenPoint {
    pub(super) id: String,
    pub(super) address: Vec<String>,
    pub(super) info: Value,
    /// Nearest first.
    pub(super) parents: Vec<SeenParent>,
}

/// A container above an open point.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SeenParent {
    pub(super) id: String,
    pub(super) address: Vec<String>,
    pub(super) info: Value,
}

/// A request that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SeenRefusal {
    /// The point that it was refused for, if it was for one.
    pub(super) id: Option<String>,
    /// Why, in the words of K11.
    pub(super) reason: Reason,
}

/// Why a request is refused (K11).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reason {
    /// The point is not open. A kernel without a memory of closed points
    /// cannot say whether it ever was.
    NotOpen,
    /// This word.
    Exactly(String),
}

impl Reason {
    fn is(&self, expected: &str) -> bool {
        match self {
            Self::NotOpen => matches!(expected, "unknown" | "already_answered" | "superseded"),
            Self::Exactly(word) => word == expected,
        }
    }
}

/// Ids by the names that a scenario gave them.
pub(super) type Refs = BTreeMap<String, String>;

/// The refusal of any request, whatever it names.
const ANY: &str = "*";

/// Compares; returns one line per difference, and names the ids that the
/// expectation names.
pub(super) fn compare(expect: &Expect, seen: &Observation, refs: &mut Refs) -> Vec<String> {
    let mut found = Differences::default();
    found.equal_if("status", expect.status.as_ref(), &seen.status);
    if expect.status == Some(Status::Failed) || seen.errors.is_empty() {
        if let Some(text) = &expect.error_contains
            && !seen.errors.iter().any(|error| error.contains(text))
        {
            found.add(format_args!("error: expected one with `{text}`, seen {:?}", seen.errors));
        }
    } else {
        found.add(format_args!("error: expected none, seen {:?}", seen.errors));
    }
    found.equal_if("ran", expect.ran.as_ref(), &seen.ran);
    found.equal_if("runs", expect.runs.as_ref(), &seen.runs);
    for (body, result) in expect.kept.iter().flatten() {
        found.equal_if(&format!("kept {body}"), Some(&Some(result)), &seen.kept.get(body));
    }
    found.stops(expect.breakpoint.as_ref(), &seen.stops);
    found.refusals(expect, seen, refs);
    if expect.status.is_none_or(|status| status == Status::Done) && (expect.refused.is_none() || seen.accepted > 0) {
        // Only the end has an output, and a request that is refused has none of
        // its own: what is left over in `expect` is Eino's.
        match (&expect.output, &seen.output) {
            (Some(expected), Some(output)) => found.equal_if("output", Some(expected), output),
            (Some(expected), None) => found.add(format_args!("output: expected {expected}, there is none")),
            (None, _) => {}
        }
    }
    found.points(expect, seen, refs);
    found.lines
}

#[derive(Default)]
struct Differences {
    lines: Vec<String>,
}

impl Differences {
    fn add(&mut self, line: std::fmt::Arguments<'_>) {
        self.lines.push(line.to_string());
    }

    fn equal_if<T: PartialEq + Debug>(&mut self, what: &str, expected: Option<&T>, seen: &T) {
        if let Some(expected) = expected
            && expected != seen
        {
            self.add(format_args!("{what}: expected {expected:?}\n{:>w$}  seen {seen:?}", "", w = what.len()));
        }
    }

    fn stops(&mut self, expected: Option<&Stops>, seen: &Stops) {
        let sorted = |stops: &Stops| {
            let (mut before, mut after) = (stops.before.clone(), stops.after.clone());
            before.sort();
            after.sort();
            Stops { before, after }
        };
        self.equal_if("breakpoint", Some(&expected.map(sorted).unwrap_or_default()), &sorted(seen));
    }

    /// Every request that was refused has to be one that is expected to be.
    /// A kernel may name the first of several bad ids only.
    fn refusals(&mut self, expect: &Expect, seen: &Observation, refs: &Refs) {
        let expected = expect.refused.clone().unwrap_or_default();
        let explains = |refusal: &SeenRefusal, name: &str, reason: &str| {
            let about = name == ANY || refusal.id.as_ref().is_none_or(|id| refs.get(name) == Some(id));
            about && refusal.reason.is(reason)
        };
        let explained = |refusal: &SeenRefusal| expected.iter().any(|(name, why)| explains(refusal, name, why));
        let unexplained: Vec<&SeenRefusal> = seen.refusals.iter().filter(|refusal| !explained(refusal)).collect();
        if !unexplained.is_empty() || (!expected.is_empty() && seen.refusals.is_empty()) {
            self.add(format_args!("refused: expected {expected:?}\n            seen {:?}", seen.refusals));
        }
        let accepted = expect.accepted.or((!expected.is_empty()).then_some(0));
        self.equal_if("accepted", accepted.as_ref(), &seen.accepted);
    }

    fn points(&mut self, expect: &Expect, seen: &Observation, refs: &mut Refs) {
        if let Some(infos) = &expect.pending_one_of {
            match seen.points.as_slice() {
                [point] if infos.contains(&point.info) => {}
                points => self.add(format_args!("pending: expected one of {infos:?}, seen{}", list(points))),
            }
            return;
        }
        let expected = match (&expect.pending, expect.status) {
            (Some(expected), _) => expected.as_slice(),
            (None, Some(Status::Done)) => &[],
            (None, _) => return,
        };
        if let Some(pairs) = assign(expected, &seen.points, refs) {
            for (point, &index) in expected.iter().zip(&pairs) {
                name_ids(point, &seen.points[index], refs);
            }
            return;
        }
        for point in expected {
            let place = point.address.join(";");
            let at = seen.points.iter().filter(|seen| seen.address == point.address);
            let misfits: Vec<String> = at.filter_map(|seen| misfit(point, seen, refs)).collect();
            if !seen.points.iter().any(|seen| misfit(point, seen, refs).is_none()) {
                let why = if misfits.is_empty() { "there is none".to_owned() } else { misfits.join("; ") };
                self.add(format_args!("pending: expected one at {place}: {why}"));
            }
        }
        self.add(format_args!("pending: expected {} in all, seen{}", expected.len(), list(&seen.points)));
    }
}

/// Which seen point stands for each expected one; `None` if they do not fit
/// one to one. Of points that look the same, the first listed is taken first.
fn assign(expected: &[ExpectedPoint], seen: &[SeenPoint], refs: &Refs) -> Option<Vec<usize>> {
    fn extend(expected: &[ExpectedPoint], seen: &[SeenPoint], refs: &Refs, taken: &mut Vec<usize>) -> bool {
        let Some(point) = expected.get(taken.len()) else { return true };
        for (index, candidate) in seen.iter().enumerate() {
            if !taken.contains(&index) && misfit(point, candidate, refs).is_none() {
                taken.push(index);
                if extend(expected, seen, refs, taken) {
                    return true;
                }
                taken.pop();
            }
        }
        false
    }
    let mut taken = Vec::new();
    (expected.len() == seen.len() && extend(expected, seen, refs, &mut taken)).then_some(taken)
}

/// Why a seen point is not the expected one.
fn misfit(expected: &ExpectedPoint, seen: &SeenPoint, refs: &Refs) -> Option<String> {
    if expected.address != seen.address {
        return Some(format!("it is at {}", seen.address.join(";")));
    }
    if let Some(info) = &expected.info
        && *info != seen.info
    {
        return Some(format!("its info is {}, expected {info}", seen.info));
    }
    for name in [&expected.prev, &expected.same_id_as].into_iter().flatten() {
        match refs.get(name) {
            Some(id) if *id == seen.id => {}
            Some(_) => return Some(format!("its id is no longer that of `{name}`")),
            None => return Some(format!("`{name}` is unknown")),
        }
    }
    if let Some(name) = &expected.not
        && refs.get(name) == Some(&seen.id)
    {
        return Some(format!("its id is still that of `{name}`"));
    }
    for (level, parent) in expected.parents.iter().enumerate() {
        let Some(seen) = seen.parents.get(level) else {
            return Some(format!("it has {} parents, expected {}", seen.parents.len(), expected.parents.len()));
        };
        if let Some(why) = parent_misfit(parent, seen) {
            return Some(format!("its parent {level}: {why}"));
        }
    }
    None
}

fn parent_misfit(expected: &ExpectedParent, seen: &SeenParent) -> Option<String> {
    if expected.address != seen.address {
        return Some(format!("it is at {}, expected {}", seen.address.join(";"), expected.address.join(";")));
    }
    let info = expected.info.as_ref()?;
    (*info != seen.info).then(|| format!("its info is {}, expected {info}", seen.info))
}

fn name_ids(expected: &ExpectedPoint, seen: &SeenPoint, refs: &mut Refs) {
    if let Some(name) = &expected.name {
        refs.insert(name.clone(), seen.id.clone());
    }
    for (parent, seen) in expected.parents.iter().zip(&seen.parents) {
        if let Some(name) = &parent.name {
            refs.insert(name.clone(), seen.id.clone());
        }
    }
}

fn list(points: &[SeenPoint]) -> String {
    let mut text = if points.is_empty() { " none".to_owned() } else { String::new() };
    for point in points {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n  {} {} info {}", point.id, point.address.join(";"), point.info);
        for parent in &point.parents {
            let _ = write!(text, "\n    under {} info {}", parent.address.join(";"), parent.info);
        }
    }
    text
}

#[cfg(test)]
#[path = "expect_tests.rs"]
mod tests;
