//! How everything stands.

use std::fmt;
use std::time::Duration;

use countersign_kernel::time::Timestamp;
use countersign_worker::queue::JobKind;
use countersign_worker::store::overview::{AGES, GraphOverview};
use countersign_worker::tally::Count;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use super::{Labels, family, single};
use crate::overview::Look;

/// How everything stood at one look.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) look: Look,
}

/// The statuses of threads that are always told, so that a rule on one of them
/// has something to compare with.
const STATUSES: [&str; 7] = ["queued", "running", "parked", "held", "succeeded", "failed", "cancelled"];

fn gauge(number: u64) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(number).unwrap_or(i64::MAX))
}

fn seconds(time: Duration) -> ConstGauge<f64> {
    ConstGauge::new(time.as_secs_f64())
}

impl Standing {
    /// Writes a gauge with samples of each flow.
    fn each<'a, M: EncodeMetric>(
        &'a self,
        encoder: &mut DescriptorEncoder<'_>,
        of: (&str, &str),
        samples: impl Fn(&'a GraphOverview) -> Vec<(Labels<'a>, M)>,
    ) -> fmt::Result {
        let samples = self.look.overview.graphs.iter().flat_map(|(name, graph)| {
            samples(graph).into_iter().map(|(mut labels, value)| {
                labels.insert(0, ("graph", name.as_str()));
                (labels, value)
            })
        });
        family(encoder, of, MetricType::Gauge, samples)
    }

    fn age(&self, since: Timestamp) -> ConstGauge<f64> {
        seconds(self.look.at.since(since))
    }

    fn threads(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        self.each(encoder, ("threads", "Threads by status"), |graph| {
            let count = |status| graph.threads.get(status).copied().unwrap_or(0);
            STATUSES.map(|status| (vec![("status", status)], gauge(count(status)))).into()
        })?;
        self.each(encoder, ("points_open", "Points that wait, by kind"), |graph| {
            graph.points.iter().map(|(kind, points)| (vec![("kind", kind.as_str())], gauge(points.count))).collect()
        })?;
        self.each(encoder, ("requests_open", "Requests that wait for people"), |graph| {
            vec![(Vec::new(), gauge(graph.requests().map_or(0, |requests| requests.count)))]
        })?;
        let ages = AGES.map(|age| format!("{}h", age.as_secs() / 3_600));
        let samples = self.look.overview.graphs.iter().flat_map(|(name, graph)| {
            let younger = graph.requests().map_or([0; AGES.len()], |requests| requests.younger);
            let label = |age| vec![("graph", name.as_str()), ("younger_than", age)];
            ages.iter().map(String::as_str).zip(younger).map(move |(age, count)| (label(age), gauge(count)))
        });
        let name = ("requests_open_younger", "Those of them that wait for less than so long");
        family(encoder, name, MetricType::Gauge, samples)?;
        self.each(encoder, ("requests_oldest_seconds", "How long the oldest request waits"), |graph| {
            let oldest = graph.requests().map(|requests| (Vec::new(), self.age(requests.oldest)));
            oldest.into_iter().collect()
        })?;
        self.each(encoder, ("dead_letters", "Work that gave up"), |graph| vec![(Vec::new(), gauge(graph.dead))])
    }

    fn work(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        self.each(encoder, ("work_due", "Work that is due and that nobody has begun"), |graph| {
            let count = |kind| graph.due.get(&kind).map_or(0, |due| due.count);
            JobKind::ALL.map(|kind| (vec![("kind", kind.name())], gauge(count(kind)))).into()
        })?;
        self.each(encoder, ("work_due_oldest_seconds", "How long the oldest of it is due"), |graph| {
            let age = |kind| graph.due.get(&kind).map_or(seconds(Duration::ZERO), |due| self.age(due.since));
            JobKind::ALL.map(|kind| (vec![("kind", kind.name())], age(kind))).into()
        })?;
        let jobs = self.look.overview.queues.iter().flat_map(|queue| {
            let sample = |state, count| (vec![("kind", queue.kind.name()), ("state", state)], gauge(count));
            [sample("waiting", queue.waiting), sample("fetched", queue.fetched)]
        });
        family(encoder, ("jobs", "Messages in the queues, by kind and state"), MetricType::Gauge, jobs)?;
        let oldest = self.look.overview.queues.iter().flat_map(|queue| {
            let sample = |state, since: Option<Timestamp>| {
                let age = since.map_or(Duration::ZERO, |since| self.look.at.since(since));
                (vec![("kind", queue.kind.name()), ("state", state)], seconds(age))
            };
            [sample("waiting", queue.oldest_waiting_run_at), sample("fetched", queue.oldest_fetched_at)]
        });
        let name = ("jobs_oldest_seconds", "How long the oldest of them waits, or is on its way");
        family(encoder, name, MetricType::Gauge, oldest)?;
        self.each(encoder, ("threads_held_back", "Queued threads behind a pause or a limit"), |graph| {
            vec![(Vec::new(), gauge(graph.held_back))]
        })?;
        self.each(
            encoder,
            ("deliveries_unsent", "Messages to people that are not out, by channel and state"),
            |graph| {
                let each = graph.channels.iter().flat_map(|(name, channel)| {
                    let sample = |state, count| (vec![("channel", name.as_str()), ("state", state)], gauge(count));
                    [
                        sample("pending", channel.pending),
                        sample("retrying", channel.retrying),
                        sample("failed", channel.failed),
                    ]
                });
                each.collect()
            },
        )
    }

    fn workers(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (at, workers) = (self.look.at, &self.look.overview.workers);
        let (lost, alive): (Vec<_>, Vec<_>) = workers.iter().partition(|worker| worker.is_lost(at));
        let states = [("alive", &alive), ("lost", &lost)];
        let states = states.map(|(state, workers)| (vec![("state", state)], gauge(workers.len() as u64)));
        family(encoder, ("workers", "Processes that work on the database, by state"), MetricType::Gauge, states)?;
        let serving = JobKind::ALL.map(|kind| {
            let count = alive.iter().filter(|worker| worker.beat.serves.kinds.contains(&kind)).count();
            (vec![("kind", kind.name())], gauge(count as u64))
        });
        family(encoder, ("workers_serving", "Processes that do jobs of a kind"), MetricType::Gauge, serving)?;
        let lately = Count::ALL.map(|count| {
            let sum = alive.iter().map(|worker| worker.last_minute(count)).sum();
            (vec![("what", count.name())], gauge(sum))
        });
        let name = ("last_minute", "What all processes together did within the last minute");
        family(encoder, name, MetricType::Gauge, lately)
    }
}

impl Collector for Standing {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.threads(&mut encoder)?;
        self.work(&mut encoder)?;
        self.workers(&mut encoder)?;
        single(&mut encoder, ("look_seconds", "How long it took to count all this"), &seconds(self.look.took))?;
        let age = self.look.ended_ago();
        single(&mut encoder, ("look_age_seconds", "How long ago that was"), &seconds(age))
    }
}
