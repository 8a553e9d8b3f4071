//! What this process has done.

use std::fmt;
use std::sync::Arc;

use countersign_worker::tally::{BOUNDS, Count, Spread, Tally, Timed};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::{family, single};

/// This process's numbers.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) tally: Arc<Tally>,
    /// Threads that are run or wait in memory.
    pub(super) busy: usize,
}

/// Durations by size, as they are now.
struct Durations(Spread);

impl EncodeMetric for Durations {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let bounds = BOUNDS.into_iter().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(self.0.counts).collect();
        let count = self.0.counts.iter().sum();
        encoder.encode_histogram::<NoLabelSet>(self.0.sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// Counters with one label: name, help, label, and its values.
type Group = (&'static str, &'static str, &'static str, &'static [(&'static str, Count)]);

const GROUPS: [Group; 2] = [
    (
        "rests",
        "Threads that came to rest in this process, by how",
        "status",
        &[
            ("parked", Count::RunsParked),
            ("succeeded", Count::RunsSucceeded),
            ("failed", Count::RunsFailed),
            ("held", Count::RunsHeld),
        ],
    ),
    (
        "delivery_attempts",
        "Attempts of this process to deliver a message, by how they ended",
        "outcome",
        &[("sent", Count::Delivered), ("retried", Count::DeliveryRetries), ("failed", Count::DeliveriesFailed)],
    ),
];

const COUNTERS: [(Count, &str, &str); 7] = [
    (Count::RunsStarted, "runs_started", "Runs that this process accepted: starts, new input, replays, forks"),
    (Count::Supersteps, "supersteps", "Supersteps that this process committed"),
    (Count::Answers, "answers", "Answers that this process recorded, those that wait for more votes included"),
    (Count::Resumes, "resumes", "Resumes that this process accepted"),
    (Count::Commits, "commits", "Transactions that this process committed"),
    (Count::Commands, "commands", "Commands in them"),
    (Count::Swept, "swept", "Pieces of work that the sweep of this process found"),
];

const DURATIONS: [(Timed, &str, &str); 4] = [
    (Timed::ClaimToCommit, "claim_to_commit_seconds", "From the claim of a thread to its first commit"),
    (Timed::Commit, "commit_seconds", "A transaction of the writer, until it is durable"),
    (
        Timed::AnswerToResume,
        "answer_to_resume_seconds",
        "From the acceptance of an answer until somebody holds the thread and takes it up",
    ),
    (Timed::Delivery, "delivery_seconds", "An attempt to deliver a message"),
];

impl Collector for Own {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (count, name, help) in COUNTERS {
            single(&mut encoder, (name, help), &ConstCounter::new(self.tally.of(count)))?;
        }
        for (name, help, label, counts) in GROUPS {
            let samples =
                counts.iter().map(|(value, count)| (vec![(label, *value)], ConstCounter::new(self.tally.of(*count))));
            family(&mut encoder, (name, help), MetricType::Counter, samples)?;
        }
        for (timed, name, help) in DURATIONS {
            single(&mut encoder, (name, help), &Durations(self.tally.spread(timed)))?;
        }
        let busy = ConstGauge::new(i64::try_from(self.busy).unwrap_or(i64::MAX));
        single(&mut encoder, ("threads_in_memory", "Threads that this process runs or has in memory"), &busy)?;
        let build = [(vec![("version", env!("CARGO_PKG_VERSION"))], ConstGauge::new(1_i64))];
        family(&mut encoder, ("build_info", "The program that this process runs"), MetricType::Gauge, build)
    }
}
