//! What is wrong, and what to do about it.

use std::collections::BTreeMap;
use std::time::Duration;

use countersign_kernel::ids::{InterruptId, ThreadId};
use countersign_kernel::time::Timestamp;
use countersign_worker::queue::JobKind;
use countersign_worker::store::overview::{GraphOverview, NAMED, Overview, Trouble};
use countersign_worker::store::workers::WorkerView;

use super::{grouped, span};

/// Work that waits for longer than this is late.
const LATE: Duration = Duration::from_secs(60);

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Warning {
    /// What it is, for programs: `held`, `failed`, `delivery`, `late`, `unserved`,
    /// `queue` or `lost_worker`.
    pub(crate) kind: &'static str,
    /// In a line.
    pub(crate) title: String,
    /// What to do.
    pub(crate) advice: String,
    /// Whom or what it concerns; not all of it if it is much.
    pub(crate) affected: Vec<Affected>,
}

/// Something that a warning is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Affected {
    /// The thread, if it is one.
    pub(crate) thread: Option<ThreadId>,
    /// The point, if a message about one is meant.
    pub(crate) interrupt: Option<InterruptId>,
    /// What is to be said of it.
    pub(crate) detail: String,
}

/// What is wrong with these flows (all without a list), the gravest first. What
/// concerns the processes is told only to those who see all flows.
pub(crate) fn warnings(overview: &Overview, graphs: Option<&[String]>, now: Timestamp) -> Vec<Warning> {
    let mut warnings = Vec::new();
    warnings.extend(held(overview, graphs));
    warnings.extend(channels(overview, graphs));
    if graphs.is_none() {
        warnings.extend(lost(&overview.workers, now));
    }
    warnings.extend(late(overview, graphs, now));
    if graphs.is_none() && !warnings.iter().any(|warning| matches!(warning.kind, "late" | "unserved")) {
        warnings.extend(lagging(overview, now));
    }
    warnings.extend(failed(overview, graphs));
    warnings
}

/// `1 thread`, `3 threads`.
fn number(count: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(count), if count == 1 { "" } else { "s" })
}

fn threads(
    overview: &Overview,
    graphs: Option<&[String]>,
    status: &str,
    list: fn(&GraphOverview) -> &[Trouble],
) -> (u64, Vec<Affected>) {
    let of = || overview.of(graphs);
    let count = of().filter_map(|(_, graph)| graph.threads.get(status)).sum();
    let mut found: Vec<(Timestamp, Affected)> = Vec::new();
    for (name, graph) in of() {
        found.extend(list(graph).iter().map(|trouble| {
            let detail = format!("{name}: {}", trouble.reason);
            (trouble.since, Affected { thread: Some(trouble.thread.clone()), interrupt: None, detail })
        }));
    }
    found.sort_by(|(a, _), (b, _)| b.cmp(a));
    found.truncate(usize::try_from(NAMED).unwrap_or(usize::MAX));
    (count, found.into_iter().map(|(_, affected)| affected).collect())
}

fn held(overview: &Overview, graphs: Option<&[String]>) -> Option<Warning> {
    let (count, affected) = threads(overview, graphs, "held", |graph| &graph.held);
    (count > 0).then(|| Warning {
        kind: "held",
        title: format!("{} held", number(count, "thread")),
        advice: "Remove the cause, then put each back to work: `POST /api/v1/threads/{id}/retry`.".into(),
        affected,
    })
}

fn failed(overview: &Overview, graphs: Option<&[String]>) -> Option<Warning> {
    let (count, affected) = threads(overview, graphs, "failed", |graph| &graph.failed);
    (count > 0).then(|| Warning {
        kind: "failed",
        title: format!("{} failed", number(count, "thread")),
        advice: "Finished work is kept: once the cause is gone, `countersign threads resume THREAD --retry` runs the failed \
                 nodes again; an edit gets around them."
            .into(),
        affected,
    })
}

fn channels(overview: &Overview, graphs: Option<&[String]>) -> Vec<Warning> {
    let mut channels: BTreeMap<&str, (u64, u64, Vec<Affected>)> = BTreeMap::new();
    for (_, graph) in overview.of(graphs) {
        for (name, channel) in &graph.channels {
            let (retrying, failed, affected) = channels.entry(name).or_default();
            *retrying += channel.retrying;
            *failed += channel.failed;
            affected.extend(channel.last_failure.iter().map(|failure| Affected {
                thread: Some(failure.thread.clone()),
                interrupt: Some(failure.interrupt.clone()),
                detail: failure.error.clone(),
            }));
        }
    }
    let failing = channels.into_iter().filter(|(_, (retrying, failed, _))| retrying + failed > 0);
    let warning = |(channel, (retrying, failed, affected)): (&str, (u64, u64, Vec<Affected>))| {
        let (title, advice) = match (failed, retrying) {
            (0, _) => (
                format!("{} through {channel} not sent yet", number(retrying, "message")),
                "They are tried again by themselves; the error says what to correct.",
            ),
            (_, 0) => (
                format!("{} through {channel} given up", number(failed, "message")),
                "These people were not told. The questions still wait; they can be answered at their pages.",
            ),
            _ => (
                format!("{} through {channel} given up, {retrying} not sent yet", number(failed, "message")),
                "Correct what the error says: the latter are tried again by themselves. The people of the former \
                 were not told; their questions can be answered at their pages.",
            ),
        };
        Warning { kind: "delivery", title, advice: advice.into(), affected }
    };
    failing.map(warning).collect()
}

fn lost(workers: &[WorkerView], now: Timestamp) -> Option<Warning> {
    let lost: Vec<&WorkerView> = workers.iter().filter(|worker| worker.is_lost(now)).collect();
    let affected = lost.iter().map(|worker| {
        let (said, silent) = (&worker.beat, span(now.since(worker.seen_at)));
        let detail = format!("{} on {}, process {}, silent for {silent}", said.name, said.host, said.pid);
        Affected { thread: None, interrupt: None, detail }
    });
    let affected: Vec<Affected> = affected.collect();
    (!affected.is_empty()).then(|| Warning {
        kind: "lost_worker",
        title: format!("{} lost", number(affected.len() as u64, "process").replace("processs", "processes")),
        advice: "What it had under way is taken up by the others when its leases lapse. Look there why it ended, \
                 and start it again. It is listed for an hour."
            .into(),
        affected,
    })
}

/// Whether somebody who is there takes up this work.
fn served(workers: &[WorkerView], kind: JobKind, graph: &str, now: Timestamp) -> bool {
    workers.iter().filter(|worker| !worker.is_lost(now)).any(|worker| {
        let serves = &worker.beat.serves;
        // Deliveries are the same for all flows.
        let all = kind == JobKind::Deliver || serves.graphs.is_none();
        serves.kinds.contains(&kind) && (all || serves.graphs.iter().flatten().any(|served| served == graph))
    })
}

fn late(overview: &Overview, graphs: Option<&[String]>, now: Timestamp) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for kind in JobKind::ALL {
        let due = || {
            overview.of(graphs).filter_map(|(name, graph)| {
                let due = graph.due.get(&kind)?;
                Some((name, *due, served(&overview.workers, kind, name, now)))
            })
        };
        let unserved: Vec<&str> = due().filter(|(_, _, served)| !served).map(|(name, ..)| name).collect();
        if !unserved.is_empty() {
            warnings.push(Warning {
                kind: "unserved",
                title: format!("No process does `{kind}` jobs of {}", unserved.join(", ")),
                advice: format!(
                    "Start one: `countersign worker --queues {kind}`, or `countersign up`. The work waits for it."
                ),
                affected: Vec::new(),
            });
        }
        let late: Vec<_> =
            due().filter(|(_, due, served)| *served && now.since(due.since) > LATE).map(|(_, due, _)| due).collect();
        if let Some(since) = late.iter().map(|due| due.since).min() {
            let count = number(late.iter().map(|due| due.count).sum(), &format!("`{kind}` job"));
            warnings.push(Warning {
                kind: "late",
                title: format!("{count} due, the oldest for {}", span(now.since(since))),
                advice: "The processes are busy or stuck: look at what they run, raise `worker.concurrency`, or start \
                         more of them."
                    .into(),
                affected: Vec::new(),
            });
        }
    }
    warnings
}

/// Messages that nobody carries, though their work is done in time: then the
/// sweep found it.
fn lagging(overview: &Overview, now: Timestamp) -> Vec<Warning> {
    let lag = overview.queues.iter().filter_map(|queue| {
        let oldest = queue.oldest_waiting_run_at.filter(|at| now.since(*at) > LATE)?;
        Some(Warning {
            kind: "queue",
            title: format!("`{}` messages wait in the queue for {}", queue.kind, span(now.since(oldest))),
            advice: "Their work is found by the sweep, later than it should be. With Redis: is it reachable? The logs \
                     of the processes say."
                .into(),
            affected: Vec::new(),
        })
    });
    lag.collect()
}

#[cfg(test)]
mod tests {
    use countersign_worker::queue::QueueDepth;
    use countersign_worker::store::commands::Serves;
    use countersign_worker::store::overview::{ChannelOverview, DeliveryFailure, DueWork};
    use countersign_worker::store::workers::Heartbeat;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn worker(serves: Serves, seen: i64) -> WorkerView {
        let beat = Heartbeat {
            name: "worker-1".into(),
            host: "alpha".into(),
            pid: 7,
            version: "1".into(),
            pages: false,
            serves,
            started_at: at(0),
            every: Duration::from_secs(5),
            running: 0,
            waiting: 0,
            done: BTreeMap::new(),
            last_minute: BTreeMap::new(),
        };
        WorkerView { beat, seen_at: at(seen) }
    }

    fn due(kind: JobKind, since: i64) -> GraphOverview {
        GraphOverview { due: [(kind, DueWork { count: 2, since: at(since) })].into(), ..GraphOverview::default() }
    }

    fn of(graphs: [(&str, GraphOverview); 1], workers: Vec<WorkerView>) -> Overview {
        let graphs = graphs.into_iter().map(|(name, graph)| (name.to_owned(), graph)).collect();
        Overview { graphs, workers, ..Overview::default() }
    }

    fn kinds(overview: &Overview) -> Vec<&'static str> {
        warnings(overview, None, at(100)).into_iter().map(|warning| warning.kind).collect()
    }

    #[test]
    fn work_is_late_after_a_minute_and_unserved_at_once() {
        let all = || vec![worker(Serves::default(), 99)];
        assert_eq!(kinds(&of([("g", due(JobKind::Advance, 50))], all())), Vec::<&str>::new());
        assert_eq!(kinds(&of([("g", due(JobKind::Advance, 30))], all())), ["late"]);
        let mails = vec![worker(Serves::kinds(&[JobKind::Deliver]), 99)];
        assert_eq!(kinds(&of([("g", due(JobKind::Advance, 99))], mails.clone())), ["unserved"]);
        assert_eq!(kinds(&of([("g", due(JobKind::Deliver, 99))], mails)), Vec::<&str>::new());
        let other = vec![worker(Serves::default().of(Some(vec!["h".into()])), 99)];
        assert_eq!(kinds(&of([("g", due(JobKind::Advance, 99))], other.clone())), ["unserved"]);
        assert_eq!(kinds(&of([("g", due(JobKind::Deliver, 99))], other)), Vec::<&str>::new());
    }

    #[test]
    fn a_queue_that_carries_nothing_is_told_of_unless_the_work_itself_is_late() {
        let lagging = |workers| {
            let mut overview = of([("g", due(JobKind::Advance, 30))], workers);
            let depth = QueueDepth {
                kind: JobKind::Advance,
                waiting: 3,
                fetched: 0,
                oldest_run_at: Some(at(30)),
                oldest_waiting_run_at: Some(at(30)),
                oldest_fetched_at: None,
            };
            overview.queues.push(depth);
            overview
        };
        let late = lagging(vec![worker(Serves::default(), 99)]);
        assert_eq!(kinds(&late), ["late"]);
        assert_eq!(kinds(&Overview { graphs: BTreeMap::new(), ..late.clone() }), ["queue"]);
        let mut later = Overview { graphs: BTreeMap::new(), ..late };
        later.queues[0].oldest_waiting_run_at = Some(at(200));
        assert_eq!(kinds(&later), Vec::<&str>::new());
    }

    #[test]
    fn who_misses_three_heartbeats_is_lost_and_serves_nothing() {
        let graph = || due(JobKind::Advance, 99);
        assert_eq!(kinds(&of([("g", graph())], vec![worker(Serves::default(), 85)])), Vec::<&str>::new());
        assert_eq!(kinds(&of([("g", graph())], vec![worker(Serves::default(), 84)])), ["lost_worker", "unserved"]);
    }

    #[test]
    fn who_sees_some_flows_only_hears_of_these() {
        let trouble = |thread| Trouble {
            thread: ThreadId::parse(thread).expect("an id"),
            reason: "no such graph".into(),
            since: at(1),
        };
        let graph = |thread| GraphOverview {
            threads: [("held".to_owned(), 1)].into(),
            held: vec![trouble(thread)],
            channels: [(
                "email".to_owned(),
                ChannelOverview {
                    failed: 1,
                    last_failure: Some(DeliveryFailure {
                        thread: ThreadId::parse(thread).expect("an id"),
                        interrupt: InterruptId::parse("0".repeat(32)).expect("an id"),
                        error: "550".into(),
                    }),
                    ..ChannelOverview::default()
                },
            )]
            .into(),
            ..GraphOverview::default()
        };
        let mut overview = of([("g", graph("mine"))], vec![worker(Serves::default(), 0)]);
        overview.graphs.insert("other".into(), graph("theirs"));
        assert_eq!(kinds(&overview), ["held", "delivery", "lost_worker"]);
        let mine = warnings(&overview, Some(&["g".to_owned()]), at(100));
        assert_eq!(mine.iter().map(|warning| warning.kind).collect::<Vec<_>>(), ["held", "delivery"]);
        assert_eq!(mine[0].title, "1 thread held");
        let threads = mine.iter().flat_map(|warning| &warning.affected).map(|affected| affected.thread.clone());
        assert!(threads.flatten().all(|thread| thread.as_str() == "mine"));
    }
}
