//! The record of one occurrence: what it asked, was told, and did (K6).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::address::{Address, SegmentKind};
use crate::ids::InterruptId;
use crate::question::{Answered, Request};
use crate::time::Timestamp;

/// What kind of point a question is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PointKind {
    /// A question people decide on, with a policy ([`Request`]).
    Ask,
    /// A raw `cx.interrupt(payload)`.
    Interrupt,
    /// A component's `cx.suspend(info, state)`.
    Suspend,
    /// A `cx.sleep(…)`: waits for an instant, and for nobody.
    Sleep,
    /// A `cx.signal(name)`: waits for an event from outside.
    Signal,
    /// A container that takes data of its own (K18). No leaf: it waits only
    /// because something below it does.
    Container,
    /// A static breakpoint, raised by the engine at a superstep border.
    Break,
    /// A pause: asked for from outside, or the recursion limit.
    Pause,
}

impl PointKind {
    /// The name as stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Interrupt => "interrupt",
            Self::Suspend => "suspend",
            Self::Sleep => "sleep",
            Self::Signal => "signal",
            Self::Container => "container",
            Self::Break => "break",
            Self::Pause => "pause",
        }
    }
}

/// What has become of a question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum QuestionState {
    /// Waiting for an answer.
    Open,
    /// Answered; the body gets the answer at every run.
    Answered {
        /// The answer.
        answered: Answered,
        /// The body asked something else under this ordinal afterwards; the
        /// answer stays on record but is not used (R4).
        #[serde(default)]
        stale: bool,
    },
    /// Asked again with another payload before anyone answered (R4).
    Superseded,
}

/// One question of an occurrence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QuestionRecord {
    /// Which question of the body this is: the k-th call gets the k-th answer.
    pub ordinal: u32,
    /// The number in the id: rises when a question is asked anew (K6).
    pub number: u32,
    /// The point's id.
    pub id: InterruptId,
    /// What kind of point.
    pub kind: PointKind,
    /// For people: what is asked.
    pub payload: Value,
    /// [`content_hash`](crate::canonical::content_hash) of the payload.
    pub content_hash: String,
    /// When it was first asked.
    pub asked_at: Timestamp,
    /// Until when it waits, if not for ever. Fixed when it is first asked: a
    /// later run of the body moves nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
    /// What has become of it.
    pub state: QuestionState,
    /// What the body showed at a later run, if that differed from what was
    /// answered: the answer is used all the same (R4), and this is the mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown_later: Option<Value>,
    /// Answered and not yet run with: makes the occurrence a target (K7).
    /// Stored when the thread comes to rest in between, at a pause say.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fresh: bool,
}

impl QuestionRecord {
    /// The request behind a question that people decide on.
    #[must_use]
    pub fn request(&self) -> Option<Request> {
        (self.kind == PointKind::Ask).then(|| Request::from_payload(&self.payload).ok()).flatten()
    }

    /// Whether it waits for an answer.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state == QuestionState::Open
    }
}

/// A container that takes data of its own (K18).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Container {
    /// The container's id.
    pub id: InterruptId,
    /// For people.
    pub info: Value,
    /// The newest data that it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Answered>,
    /// Sent and not yet run with: the container is a target.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fresh: bool,
}

/// All that is known of one occurrence.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Occurrence {
    /// Its questions, in the order they were asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<QuestionRecord>,
    /// What `cx.suspend` kept for the component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private_state: Option<Value>,
    /// Set by a container that takes data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<Container>,
    /// Why this part of a task failed, until it runs again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Results of named steps. Stored on their own (R10), so not here.
    #[serde(skip)]
    pub steps: BTreeMap<String, Value>,
}

impl Occurrence {
    /// The valid question at an ordinal: the newest that is not replaced.
    pub(crate) fn at_ordinal(&mut self, ordinal: u32) -> Option<&mut QuestionRecord> {
        self.questions.iter_mut().rev().find(|question| {
            question.ordinal == ordinal
                && !matches!(question.state, QuestionState::Superseded | QuestionState::Answered { stale: true, .. })
        })
    }

    /// Whether something came in here that it has not run with.
    pub(crate) fn is_target(&self) -> bool {
        self.questions.iter().any(|question| question.fresh) || self.container.as_ref().is_some_and(|c| c.fresh)
    }

    /// The next free question number.
    pub(crate) fn next_number(&self) -> u32 {
        u32::try_from(self.questions.len()).unwrap_or(u32::MAX)
    }
}

/// The occurrences of one task: the node itself and the parts it entered.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Occurrences(BTreeMap<Address, Occurrence>);

impl Occurrences {
    /// The record at an address, if anything was recorded.
    #[must_use]
    pub fn get(&self, address: &Address) -> Option<&Occurrence> {
        self.0.get(address)
    }

    /// The record at an address, made on first use.
    pub fn entry(&mut self, address: &Address) -> &mut Occurrence {
        self.0.entry(address.clone()).or_default()
    }

    /// The records at an address and below it; one run of the order.
    fn within(&self, address: &Address) -> impl Iterator<Item = (&Address, &Occurrence)> {
        self.0.range(address..).take_while(|(at, _)| at.segments().starts_with(address.segments()))
    }

    /// Parked: something at the address (or below it, if `parts` count) is
    /// open and nothing there was answered just now, so it must not run (K7).
    pub(crate) fn is_parked(&self, address: &Address, parts: bool) -> bool {
        let within =
            || self.within(address).flat_map(|(at, occurrence)| occurrence.questions.iter().map(move |q| (at, q)));
        let open = within().any(|(at, question)| question.is_open() && (parts || at == address));
        open && !self.has_target(address)
    }

    /// Whether something came in at an address or below it.
    pub(crate) fn has_target(&self, address: &Address) -> bool {
        self.within(address).any(|(_, occurrence)| occurrence.is_target())
    }

    /// Closes what is open at an address and below it: it has finished without.
    pub(crate) fn withdraw(&mut self, address: &Address) {
        let within = self.0.range_mut(address..).take_while(|(at, _)| at.segments().starts_with(address.segments()));
        for question in within.flat_map(|(_, occurrence)| &mut occurrence.questions).filter(|q| q.is_open()) {
            question.state = QuestionState::Superseded;
        }
    }

    /// The slots of a batch that are on record, by number, each under the
    /// label it had first.
    pub(crate) fn slots(&self, parent: &Address, batch: &str) -> BTreeMap<u64, Address> {
        let segments = self.within(parent).filter_map(|(at, _)| at.segments().get(parent.segments().len()));
        let slots = segments.filter(|segment| segment.kind == SegmentKind::Slot && segment.name == batch);
        slots.map(|segment| (segment.visit, parent.child(segment.clone()))).collect()
    }

    /// All records with their addresses, in address order.
    pub fn iter(&self) -> impl Iterator<Item = (&Address, &Occurrence)> {
        self.0.iter()
    }

    /// All questions of the task.
    pub fn questions(&self) -> impl Iterator<Item = (&Address, &QuestionRecord)> {
        self.0.iter().flat_map(|(address, occurrence)| occurrence.questions.iter().map(move |q| (address, q)))
    }

    /// All questions of the task, to change.
    pub fn questions_mut(&mut self) -> impl Iterator<Item = &mut QuestionRecord> {
        self.0.values_mut().flat_map(|occurrence| occurrence.questions.iter_mut())
    }

    /// Whether something waits for an answer.
    #[must_use]
    pub fn has_open(&self) -> bool {
        self.questions().any(|(_, question)| question.is_open())
    }

    /// Whether something was answered in this activation.
    #[must_use]
    pub fn has_fresh(&self) -> bool {
        self.0.values().any(Occurrence::is_target)
    }

    /// What came in has been run with.
    pub(crate) fn consume(&mut self) {
        for occurrence in self.0.values_mut() {
            occurrence.questions.iter_mut().for_each(|question| question.fresh = false);
            if let Some(container) = &mut occurrence.container {
                container.fresh = false;
            }
        }
    }

    /// The containers that take data, to give them some.
    pub(crate) fn containers_mut(&mut self) -> impl Iterator<Item = &mut Container> {
        self.0.values_mut().filter_map(|occurrence| occurrence.container.as_mut())
    }
}

impl Serialize for Occurrences {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let kept = self.0.iter().filter(|(_, o)| {
            !o.questions.is_empty() || o.private_state.is_some() || o.container.is_some() || o.failure.is_some()
        });
        serializer.collect_seq(kept)
    }
}

impl<'de> Deserialize<'de> for Occurrences {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<(Address, Occurrence)>::deserialize(deserializer).map(|pairs| Self(pairs.into_iter().collect()))
    }
}
