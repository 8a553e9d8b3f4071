//! How everything stands, as parts of a page.

use std::collections::BTreeMap;

use askama::Template;
use countersign_kernel::time::Timestamp;
use countersign_worker::queue::JobKind;
use countersign_worker::store::overview::{AGES, ChannelOverview, GraphOverview, NAMED, OpenPoints, Overview};
use countersign_worker::store::workers::WorkerView;
use countersign_worker::tally::Count;

use super::time::Moment;
use crate::overview::{Affected, Look, span, warnings};

#[expect(unreachable_pub, reason = "the attribute makes a `pub` item of it")]
mod filters {
    /// A number as people read it.
    #[askama::filter_fn]
    pub(super) fn grouped<T: std::fmt::Display>(number: T, _: &dyn askama::Values) -> askama::Result<String> {
        Ok(crate::overview::grouped(number))
    }
}

/// What is wrong.
#[derive(Template)]
#[template(path = "trouble.html")]
pub(super) struct Trouble<'a> {
    prefix: &'a str,
    warnings: Vec<WarningView>,
}

/// Something that is wrong.
struct WarningView {
    title: Vec<(bool, String)>,
    advice: Vec<(bool, String)>,
    /// At most [`AFFECTED_SHOWN`].
    affected: Vec<Affected>,
    /// How many of the list are not shown.
    more: usize,
}

/// How many threads a warning names on the page.
const AFFECTED_SHOWN: usize = 5;

impl<'a> Trouble<'a> {
    pub(super) fn new(prefix: &'a str, look: &Look) -> Self {
        let warnings = warnings(&look.overview, None, look.at).into_iter().map(|mut warning| {
            let more = warning.affected.len().saturating_sub(AFFECTED_SHOWN);
            warning.affected.truncate(AFFECTED_SHOWN);
            WarningView {
                title: parts(&warning.title),
                advice: parts(&warning.advice),
                affected: warning.affected,
                more,
            }
        });
        Self { prefix, warnings: warnings.collect() }
    }
}

/// A text with code in it, between backticks, in parts: whether each is code.
fn parts(text: &str) -> Vec<(bool, String)> {
    text.split('`').enumerate().map(|(place, part)| (place % 2 == 1, part.to_owned())).collect()
}

/// All numbers.
#[derive(Template)]
#[template(path = "standing.html")]
pub(super) struct Standing<'a> {
    prefix: &'a str,
    counts: Vec<CountView>,
    queues: Vec<QueueRow>,
    flows: Vec<FlowRow>,
    ages: Vec<(String, u64)>,
    channels: Vec<ChannelRow>,
    rates: Vec<(&'static str, u64)>,
    workers: Vec<WorkerRow>,
    letters: Vec<LetterRow>,
}

/// A number with what it counts.
struct CountView {
    number: u64,
    label: String,
    /// Whether somebody should look into it.
    alarming: bool,
}

struct QueueRow {
    kind: &'static str,
    due: u64,
    oldest: String,
    waiting: u64,
    fetched: u64,
}

struct FlowRow {
    graph: String,
    queued: u64,
    running: u64,
    parked: u64,
    held: u64,
    failed: u64,
    ended: u64,
}

struct ChannelRow {
    channel: String,
    pending: u64,
    retrying: u64,
    failed: u64,
}

struct WorkerRow {
    name: String,
    host: String,
    pid: u32,
    version: String,
    lost: bool,
    state: String,
    does: String,
    running: u64,
    waiting: u64,
    started_at: Moment,
}

struct LetterRow {
    thread: String,
    kind: String,
    reason: String,
    died_at: Moment,
}

impl<'a> Standing<'a> {
    pub(super) fn new(prefix: &'a str, look: &Look) -> Self {
        let (overview, now) = (&look.overview, look.at);
        Self {
            prefix,
            counts: counts(overview),
            queues: JobKind::ALL.map(|kind| queue(overview, kind, now)).into(),
            flows: overview.graphs.iter().map(|(name, graph)| flow(name, graph)).collect(),
            ages: ages(overview.graphs.values().filter_map(GraphOverview::requests).reduce(OpenPoints::and)),
            channels: channels(overview),
            rates: rates(&overview.workers, now),
            workers: overview.workers.iter().map(|worker| worker_row(worker, now)).collect(),
            letters: letters(overview),
        }
    }
}

fn counts(overview: &Overview) -> Vec<CountView> {
    let totals = overview.counts(None);
    let count = |number: u64, label: String, alarming: bool| CountView { number, label, alarming };
    let mut counts = vec![count(totals.requests_open, "requests open".to_owned(), false)];
    for (status, number) in totals.threads {
        let alarming = (status == "failed" || status == "held") && number > 0;
        counts.push(count(number, format!("threads {status}"), alarming));
    }
    for (status, number) in totals.deliveries.into_iter().filter(|(status, _)| status != "sent") {
        let alarming = status == "failed" && number > 0;
        counts.push(count(number, format!("messages {status}"), alarming));
    }
    counts.push(count(totals.dead_letters, "dead letters".to_owned(), totals.dead_letters > 0));
    counts
}

fn queue(overview: &Overview, kind: JobKind, now: Timestamp) -> QueueRow {
    let due = || overview.graphs.values().filter_map(|graph| graph.due.get(&kind));
    let jobs = overview.queues.iter().find(|queue| queue.kind == kind);
    QueueRow {
        kind: kind.name(),
        due: due().map(|due| due.count).sum(),
        oldest: due().map(|due| due.since).min().map_or_else(|| "–".to_owned(), |since| span(now.since(since))),
        waiting: jobs.map_or(0, |jobs| jobs.waiting),
        fetched: jobs.map_or(0, |jobs| jobs.fetched),
    }
}

fn flow(name: &str, graph: &GraphOverview) -> FlowRow {
    let of = |status| graph.threads.get(status).copied().unwrap_or(0);
    FlowRow {
        graph: name.to_owned(),
        queued: of("queued"),
        running: of("running"),
        parked: of("parked"),
        held: of("held"),
        failed: of("failed"),
        ended: of("succeeded") + of("cancelled"),
    }
}

fn ages(requests: Option<OpenPoints>) -> Vec<(String, u64)> {
    let younger = requests.map_or([0; AGES.len()], |requests| requests.younger);
    let all = requests.map_or(0, |requests| requests.count);
    let mut ages = Vec::new();
    let mut before = 0;
    for (age, count) in AGES.into_iter().zip(younger) {
        ages.push((format!("under {}", round(age.as_secs() / 3_600)), count.saturating_sub(before)));
        before = count;
    }
    let last = AGES.last().map_or(0, |age| age.as_secs() / 3_600);
    ages.push((format!("over {}", round(last)), all.saturating_sub(before)));
    ages
}

fn round(hours: u64) -> String {
    match hours {
        1 => "1 hour".to_owned(),
        24 => "1 day".to_owned(),
        hours if hours % 24 == 0 => format!("{} days", hours / 24),
        hours => format!("{hours} hours"),
    }
}

fn channels(overview: &Overview) -> Vec<ChannelRow> {
    let mut channels: BTreeMap<&str, ChannelOverview> = BTreeMap::new();
    for (name, channel) in overview.graphs.values().flat_map(|graph| &graph.channels) {
        let sum = channels.entry(name).or_default();
        sum.pending += channel.pending;
        sum.retrying += channel.retrying;
        sum.failed += channel.failed;
    }
    let rows = channels.into_iter().map(|(name, sum)| ChannelRow {
        channel: name.to_owned(),
        pending: sum.pending,
        retrying: sum.retrying,
        failed: sum.failed,
    });
    rows.collect()
}

fn rates(workers: &[WorkerView], now: Timestamp) -> Vec<(&'static str, u64)> {
    let shown = [
        (Count::RunsStarted, "runs started"),
        (Count::Supersteps, "supersteps"),
        (Count::RunsSucceeded, "threads succeeded"),
        (Count::RunsFailed, "failed"),
        (Count::Answers, "answers"),
        (Count::Delivered, "messages sent"),
    ];
    let alive = || workers.iter().filter(|worker| !worker.is_lost(now));
    shown.map(|(count, words)| (words, alive().map(|worker| worker.last_minute(count)).sum())).into()
}

fn worker_row(worker: &WorkerView, now: Timestamp) -> WorkerRow {
    let said = &worker.beat;
    let lost = worker.is_lost(now);
    let kinds: Vec<&str> = said.serves.kinds.iter().map(|kind| kind.name()).collect();
    let mut does = kinds.join(", ");
    if let Some(graphs) = &said.serves.graphs {
        does.push_str(&format!(" of {}", graphs.join(", ")));
    }
    if said.pages {
        does.push_str(", pages");
    }
    WorkerRow {
        name: said.name.clone(),
        host: said.host.clone(),
        pid: said.pid,
        version: said.version.clone(),
        lost,
        state: if lost { format!("lost for {}", span(now.since(worker.seen_at))) } else { "alive".to_owned() },
        does,
        running: said.running,
        waiting: said.waiting,
        started_at: Moment::of(said.started_at),
    }
}

fn letters(overview: &Overview) -> Vec<LetterRow> {
    let mut letters: Vec<_> = overview.graphs.values().flat_map(|graph| &graph.dead_letters).collect();
    letters.sort_by_key(|letter| std::cmp::Reverse(letter.died_at));
    let shown = usize::try_from(NAMED).unwrap_or(usize::MAX);
    let rows = letters.into_iter().take(shown).map(|letter| LetterRow {
        thread: letter.thread.to_string(),
        kind: letter.kind.clone(),
        reason: letter.reason.clone(),
        died_at: Moment::of(letter.died_at),
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart_by_the_first_span_that_they_are_younger_than() {
        let at = Timestamp::from_micros(0);
        let points = OpenPoints { count: 10, younger: [2, 5, 5, 9], oldest: at, newest: at };
        let ages = ages(Some(points));
        let told: Vec<(&str, u64)> = ages.iter().map(|(label, count)| (label.as_str(), *count)).collect();
        assert_eq!(
            told,
            [("under 1 hour", 2), ("under 1 day", 3), ("under 3 days", 0), ("under 7 days", 4), ("over 7 days", 1)]
        );
    }
}
