//! How everything stands, in numbers.
//!
//! One look counts everything, flow by flow, so that whoever may see some flows
//! only gets [their share](Overview::counts) of the same look.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use countersign_kernel::ids::{InterruptId, ThreadId};
use countersign_kernel::time::Timestamp;

use super::StoreError;
use super::workers::WorkerView;
use crate::queue::{JobKind, QueueDepth};

/// Ages by which waiting requests are told apart: so many are younger than each.
pub const AGES: [Duration; 4] =
    [Duration::from_hours(1), Duration::from_hours(24), Duration::from_hours(72), Duration::from_hours(168)];

/// Most threads, dead letters of one flow that a look names.
pub const NAMED: u32 = 10;

/// The kinds of points that people decide, which have a request.
pub const REQUEST_KINDS: [&str; 7] = ["approval", "form", "input", "modal", "multi_select", "select", "unlock"];

/// How everything stood at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Overview {
    /// The flows that have threads.
    pub graphs: BTreeMap<String, GraphOverview>,
    /// Messages to people by status, those of all flows. What is sent or skipped
    /// is counted here only.
    pub deliveries: BTreeMap<String, u64>,
    /// What waits in the queues, those of all flows.
    pub queues: Vec<QueueDepth>,
    /// The processes.
    pub workers: Vec<WorkerView>,
}

/// How the threads of one flow stood.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GraphOverview {
    /// Threads by status; those of which there are none are left out.
    pub threads: BTreeMap<String, u64>,
    /// Work that is due and that nobody has begun.
    pub due: BTreeMap<JobKind, DueWork>,
    /// Threads that are queued and stand behind a pause or a limit: they are not
    /// due.
    pub held_back: u64,
    /// Open points by kind.
    pub points: BTreeMap<String, OpenPoints>,
    /// Threads that are held, the newest first, at most [`NAMED`].
    pub held: Vec<Trouble>,
    /// Threads that have failed, the newest first, at most [`NAMED`].
    pub failed: Vec<Trouble>,
    /// Messages that are not out yet or never will be, by channel.
    pub channels: BTreeMap<String, ChannelOverview>,
    /// Work that gave up.
    pub dead: u64,
    /// The newest of that, at most [`NAMED`].
    pub dead_letters: Vec<DeadLetter>,
}

/// Work that is due and that nobody has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueWork {
    /// How much.
    pub count: u64,
    /// Since when the oldest is due.
    pub since: Timestamp,
}

/// Points that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenPoints {
    /// How many.
    pub count: u64,
    /// How many of them are younger than each of [`AGES`].
    pub younger: [u64; AGES.len()],
    /// Since when the oldest waits.
    pub oldest: Timestamp,
    /// Since when the newest waits.
    pub newest: Timestamp,
}

/// A thread that somebody should look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// Which.
    pub thread: ThreadId,
    /// Why.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
}

/// How messages through one channel stand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChannelOverview {
    /// Not tried yet.
    pub pending: u64,
    /// Tried, and to be tried again.
    pub retrying: u64,
    /// Given up.
    pub failed: u64,
    /// The latest failure.
    pub last_failure: Option<DeliveryFailure>,
}

/// A delivery that failed for now or for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryFailure {
    /// The thread.
    pub thread: ThreadId,
    /// What it is about.
    pub interrupt: InterruptId,
    /// What the channel said.
    pub error: String,
}

/// Work that gave up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The thread.
    pub thread: ThreadId,
    /// The kind of work.
    pub kind: String,
    /// The delivery, if it is one.
    pub subject: Option<String>,
    /// Why.
    pub reason: String,
    /// After how many attempts.
    pub attempts: u64,
    /// When.
    pub died_at: Timestamp,
}

/// Sums of an overview over some flows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counts {
    /// Threads by status; those of which there are none are left out.
    pub threads: Vec<(String, u64)>,
    /// Deliveries by status. Over some flows only: those that are pending,
    /// sending or failed.
    pub deliveries: Vec<(String, u64)>,
    /// Requests that wait for people.
    pub requests_open: u64,
    /// Work that gave up.
    pub dead_letters: u64,
    /// Since when the oldest of these requests waits.
    pub oldest_open_request: Option<Timestamp>,
}

impl Overview {
    /// The flows among these, all of them without a list.
    pub fn of<'a>(&'a self, graphs: Option<&'a [String]>) -> impl Iterator<Item = (&'a str, &'a GraphOverview)> {
        self.graphs
            .iter()
            .map(|(name, graph)| (name.as_str(), graph))
            .filter(move |(name, _)| graphs.is_none_or(|graphs| graphs.iter().any(|graph| graph == name)))
    }

    /// The sums over these flows, over all of them without a list.
    #[must_use]
    pub fn counts(&self, graphs: Option<&[String]>) -> Counts {
        let mut counts = Counts::default();
        let mut threads = BTreeMap::new();
        let mut deliveries = BTreeMap::new();
        for (_, graph) in self.of(graphs) {
            for (status, number) in &graph.threads {
                *threads.entry(status.clone()).or_default() += number;
            }
            for (status, number) in graph.deliveries() {
                *deliveries.entry(status.to_owned()).or_default() += number;
            }
            let requests = graph.requests();
            counts.requests_open += requests.map_or(0, |requests| requests.count);
            let oldest = requests.map(|requests| requests.oldest);
            counts.oldest_open_request = counts.oldest_open_request.into_iter().chain(oldest).min();
            counts.dead_letters += graph.dead;
        }
        if graphs.is_none() {
            deliveries.clone_from(&self.deliveries);
        }
        counts.threads = threads.into_iter().collect();
        counts.deliveries = deliveries.into_iter().filter(|(_, number)| *number > 0).collect();
        counts
    }
}

impl GraphOverview {
    /// Messages that are not out, by status.
    fn deliveries(&self) -> [(&'static str, u64); 2] {
        let sum = |of: fn(&ChannelOverview) -> u64| self.channels.values().map(of).sum();
        [("pending", sum(|channel| channel.pending + channel.retrying)), ("failed", sum(|channel| channel.failed))]
    }

    /// The requests that wait for people, if there are any.
    #[must_use]
    pub fn requests(&self) -> Option<OpenPoints> {
        let of_people = |kind: &&String| REQUEST_KINDS.contains(&kind.as_str());
        let asked = self.points.keys().filter(of_people).filter_map(|kind| self.points.get(kind).copied());
        asked.reduce(OpenPoints::and)
    }
}

impl OpenPoints {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let mut younger = self.younger;
        younger.iter_mut().zip(other.younger).for_each(|(sum, more)| *sum += more);
        Self {
            count: self.count + other.count,
            younger,
            oldest: self.oldest.min(other.oldest),
            newest: self.newest.max(other.newest),
        }
    }
}

/// The part of a store that counts.
#[async_trait]
pub trait Overviews: Send + Sync {
    /// How everything stands, all of one moment. What it costs grows with the
    /// number of threads, some 100 ms for 100,000: look once for many.
    ///
    /// # Errors
    /// Only of the database.
    async fn overview(&self, now: Timestamp) -> Result<Overview, StoreError>;

    /// The sums over everything, which do not depend on the time.
    ///
    /// # Errors
    /// Only of the database.
    async fn counts(&self) -> Result<Counts, StoreError> {
        Ok(self.overview(Timestamp::from_micros(0)).await?.counts(None))
    }
}
