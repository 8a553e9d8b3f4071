//! Who may run now, and who stands back behind a switch or a limit.
//!
//! A claim is judged in the transaction that would take the lease. Who may not
//! run keeps its turn: the place in the order of those that stand behind the
//! same thing, by when it was queued and by its priority. The sweep finds as
//! many of them as there is room for, the first first, and nobody overtakes.

use std::collections::{BTreeMap, BTreeSet};

use countersign_kernel::time::Timestamp;

use super::super::codec::{decode, parse};
use super::super::commands::{Claim, Committed, FlowLimits, HeldBack, HoldBack, Rate, Serves, SwitchOf};
use super::super::controls::turn;
use super::super::db::{self, Arg, Conn};
use super::super::events::What;
use super::super::{Due, StoreError};
use super::commit::encode_text;
use super::controls::{LIMITS, flow_limits, switches};
use super::events::Log;
use super::tx::Tx;
use super::{activate, controls};

/// Whether a claim goes through.
pub(super) enum Judged {
    /// As far as switches and limits go; `counted` is whether its lease takes a
    /// place.
    Goes { counted: bool },
    /// It stands back.
    HeldBack,
}

/// Most kinds of what stands back that one sweep looks at.
const GATES_MAX: i64 = 2_000;

/// A thread that somebody wants to run.
struct Candidate<'a> {
    thread: &'a str,
    graph: String,
    key: Option<String>,
    status: String,
    held_back: Option<HeldBack>,
    turn: i64,
    limits: Option<FlowLimits>,
    now: Timestamp,
}

/// Judges a claim, and has the thread stand back if it may not run.
pub(super) async fn judge(tx: &mut Tx<'_>, claim: &Claim, mut log: Log) -> Result<Judged, StoreError> {
    let goes = Judged::Goes { counted: false };
    let Some(candidate) = candidate(tx.own(), claim).await? else {
        // The claim will find that out.
        return Ok(goes);
    };
    if claim.graphs.as_ref().is_some_and(|graphs| !graphs.contains(&candidate.graph)) {
        return Ok(goes);
    }
    let Some(by) = candidate.obstacle(tx).await? else {
        return Ok(Judged::Goes { counted: candidate.limits.is_some() });
    };
    db::query(
        "UPDATE threads SET held_back = $2, turn = $3, status = 'queued', lease_owner = NULL, lease_until = 0
         WHERE thread = $1",
    )
    .bind(candidate.thread)
    .bind(encode_text(&by)?)
    .bind(candidate.turn)
    .execute(tx.own())
    .await?;
    if candidate.status != "queued" {
        // Its worker was lost.
        log.add(What::status("queued"));
        log.append(tx, &claim.thread).await?;
    }
    Ok(Judged::HeldBack)
}

async fn candidate<'a>(conn: &mut Conn<'_>, claim: &'a Claim) -> Result<Option<Candidate<'a>>, StoreError> {
    let row = db::query(format!(
        "SELECT threads.graph, limit_key, status, held_back, turn, priority, updated_at, set_by, {LIMITS}
         FROM threads LEFT JOIN flow_limits ON flow_limits.graph = threads.graph
         WHERE thread = $1 AND status IN ('queued', 'running') AND not_before <= $2
           AND (lease_owner IS NULL OR lease_until < $2)"
    ))
    .bind(claim.thread.as_str())
    .bind(claim.now.as_micros())
    .fetch_optional(conn)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let held_back: Option<String> = row.try_get(3)?;
    let held_back = held_back.map(|by| decode("held back", claim.thread.as_str(), by.as_bytes())).transpose()?;
    let turn = match &held_back {
        Some(_) => row.try_get(4)?,
        None => turn(Timestamp::from_micros(row.try_get(6)?), row.try_get(5)?),
    };
    let limited: Option<String> = row.try_get(7)?;
    Ok(Some(Candidate {
        thread: claim.thread.as_str(),
        graph: row.try_get(0)?,
        key: row.try_get(1)?,
        status: row.try_get(2)?,
        held_back,
        turn,
        limits: limited.map(|_| flow_limits(&row, 8)).transpose()?,
        now: claim.now,
    }))
}

impl Candidate<'_> {
    /// What it has to stand behind, if anything. If not, it has taken what the
    /// rates give.
    async fn obstacle(&self, tx: &mut Tx<'_>) -> Result<Option<HeldBack>, StoreError> {
        let paused = paused(tx.own(), &self.graph, self.now).await?;
        if paused.contains("") {
            return Ok(Some(HeldBack::Graph(self.graph.clone())));
        }
        if let Some(HeldBack::Nodes(_, nodes)) = &self.held_back
            && nodes.iter().all(|node| paused.contains(node))
            && !has_news(tx.own(), self.thread).await?
        {
            return Ok(self.held_back.clone());
        }
        let Some(limits) = self.limits else { return Ok(None) };
        let key = self.key.as_deref();
        let (running, with_key) = running(tx.own(), self).await?;
        for (limit, runs, key) in
            [(limits.running, running, None), (limits.key_running.filter(|_| key.is_some()), with_key, key)]
        {
            let Some(limit) = limit else { continue };
            let by = HeldBack::Running(self.graph.clone(), key.map(str::to_owned));
            if !self.is_next(tx.own(), &by, i64::from(limit) - runs).await? {
                return Ok(Some(by));
            }
        }
        let rates = [(limits.starts, ""), (limits.key_starts.filter(|_| key.is_some()), key.unwrap_or_default())];
        let mut taken = Vec::new();
        for (rate, bucket) in rates {
            let Some(rate) = rate else { continue };
            let full_at = full_at(tx.own(), &self.graph, bucket).await?;
            let by = HeldBack::Starts(self.graph.clone(), (!bucket.is_empty()).then(|| bucket.to_owned()));
            if !self.is_next(tx.own(), &by, left(rate, full_at, self.now)).await? {
                return Ok(Some(by));
            }
            taken.push((bucket, full_at.max(self.now.as_micros()) + rate.interval()));
        }
        for (bucket, full_at) in taken {
            db::query(
                "INSERT INTO flow_rates (graph, key, full_at) VALUES ($1, $2, $3)
                 ON CONFLICT (graph, key) DO UPDATE SET full_at = excluded.full_at",
            )
            .bind(&self.graph)
            .bind(bucket)
            .bind(full_at)
            .execute(tx.own())
            .await?;
        }
        Ok(None)
    }

    /// Whether of those that stand behind the same, fewer than `room` are
    /// before it.
    async fn is_next(&self, conn: &mut Conn<'_>, by: &HeldBack, room: i64) -> Result<bool, StoreError> {
        if room <= 0 {
            return Ok(false);
        }
        let before: i64 = db::scalar(
            "SELECT count(*) FROM (SELECT 1 FROM threads
                                   WHERE held_back = $1 AND (turn, thread) < ($2, $3) AND not_before <= $4 LIMIT $5) AS ahead",
        )
        .bind(encode_text(by)?)
        .bind(self.turn)
        .bind(self.thread)
        .bind(self.now.as_micros())
        .bind(room)
        .fetch_one(conn)
        .await?;
        Ok(before < room)
    }
}

/// The paused nodes of a flow; the empty name is the flow itself.
async fn paused(conn: &mut Conn<'_>, graph: &str, now: Timestamp) -> Result<BTreeSet<String>, StoreError> {
    let nodes: Vec<String> = db::scalar(
        "SELECT node FROM pause_switches
         WHERE kind IN ('graph', 'node') AND name = $1 AND (ends_at IS NULL OR ends_at > $2)",
    )
    .bind(graph)
    .bind(now.as_micros())
    .fetch_all(conn)
    .await?;
    Ok(nodes.into_iter().collect())
}

/// What came in for a thread that has nothing to do with what it stands behind.
const NEWS: &str = "(cancel_requested OR pause_requested
     OR EXISTS (SELECT 1 FROM answers WHERE answers.thread = threads.thread AND consumed_by IS NULL)
     OR EXISTS (SELECT 1 FROM runs WHERE runs.thread = threads.thread AND NOT taken))";

async fn has_news(conn: &mut Conn<'_>, thread: &str) -> Result<bool, StoreError> {
    let news = db::query(format!("SELECT 1 FROM threads WHERE thread = $1 AND {NEWS}")).bind(thread);
    Ok(news.fetch_optional(conn).await?.is_some())
}

/// How many threads of the flow run, and how many of them have the same key.
async fn running(conn: &mut Conn<'_>, candidate: &Candidate<'_>) -> Result<(i64, i64), StoreError> {
    let row = db::query(
        "SELECT count(*), count(CASE WHEN limit_key = $2 THEN 1 END) FROM threads
         WHERE graph = $1 AND counted AND lease_owner IS NOT NULL AND lease_until >= $3",
    )
    .bind(&candidate.graph)
    .bind(candidate.key.as_deref())
    .bind(candidate.now.as_micros())
    .fetch_one(conn)
    .await?;
    Ok((row.try_get(0)?, row.try_get(1)?))
}

/// From when on a bucket of starts is full again.
async fn full_at(conn: &mut Conn<'_>, graph: &str, key: &str) -> Result<i64, StoreError> {
    let full_at = db::scalar("SELECT full_at FROM flow_rates WHERE graph = $1 AND key = $2").bind(graph).bind(key);
    Ok(full_at.fetch_optional(conn).await?.unwrap_or(0))
}

/// How many starts a bucket has left.
fn left(rate: Rate, full_at: i64, now: Timestamp) -> i64 {
    let missing = full_at.saturating_sub(now.as_micros()).max(0).unsigned_abs();
    let used = missing.div_ceil(rate.interval().unsigned_abs());
    (i64::from(rate.count) - i64::try_from(used).unwrap_or(i64::MAX)).max(0)
}

/// Gives a thread back that came to what is paused, unless something came in.
pub(super) async fn hold_back(tx: &mut Tx<'_>, hold: HoldBack, mut log: Log) -> Result<Committed, StoreError> {
    let thread = &hold.thread;
    super::commit::fenced(tx, thread, hold.fence).await?;
    let wake = activate::incoming(tx.own(), thread).await?;
    if !wake.is_empty() || wake.pause {
        return Ok(Committed::Running(wake));
    }
    let row =
        db::query("SELECT priority FROM threads WHERE thread = $1").bind(thread.as_str()).fetch_one(tx.own()).await?;
    db::query(
        "UPDATE threads SET status = 'queued', lease_owner = NULL, lease_until = 0, attempts = 0, not_before = 0,
                updated_at = $2, held_back = $3, turn = $4
         WHERE thread = $1",
    )
    .bind(thread.as_str())
    .bind(hold.now.as_micros())
    .bind(encode_text(&hold.by)?)
    .bind(turn(hold.now, row.try_get(0)?))
    .execute(tx.own())
    .await?;
    log.add(What::status("queued"));
    log.append(tx, thread).await?;
    Ok(Committed::Released)
}

/// Those that may go on now.
pub(super) async fn find(
    conn: &mut Conn<'_>,
    serves: &Serves,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<(i64, Due)>, StoreError> {
    // Each name once, by jumps in the index.
    let gates: Vec<String> = db::scalar(
        "WITH RECURSIVE gates (gate) AS (
             SELECT min(held_back) FROM threads WHERE held_back IS NOT NULL
             UNION ALL
             SELECT (SELECT min(held_back) FROM threads WHERE held_back > gates.gate)
             FROM gates WHERE gates.gate IS NOT NULL)
         SELECT gate FROM gates WHERE gate IS NOT NULL LIMIT $1",
    )
    .bind(GATES_MAX)
    .fetch_all(&mut *conn)
    .await?;
    if gates.is_empty() {
        return Ok(Vec::new());
    }
    let room = Room::read(conn, now).await?;
    let mut due = Vec::new();
    for gate in gates {
        let by: HeldBack = decode("held back", &gate, gate.as_bytes())?;
        if serves.graphs.as_ref().is_some_and(|graphs| graphs.iter().all(|graph| graph != by.graph())) {
            continue;
        }
        let free = room.behind(conn, &by).await?.min(i64::from(limit));
        // A node's pause holds nobody back who has something else to take up.
        let only = if free > 0 { "" } else { NEWS };
        if free <= 0 && !matches!(by, HeldBack::Nodes(..)) {
            continue;
        }
        let and = if only.is_empty() { String::new() } else { format!("AND {only}") };
        let rows = db::query(format!(
            "SELECT turn, thread FROM threads WHERE held_back = $1 AND not_before <= $2 {and} ORDER BY turn, thread LIMIT $3"
        ))
        .bind(&gate)
        .bind(now.as_micros())
        .bind(if free > 0 { free } else { i64::from(limit) })
        .fetch_all(&mut *conn)
        .await?;
        for row in rows {
            due.push((row.try_get::<i64, _>(0)?, Due::Thread(parse("thread id", row.try_get(1)?)?)));
        }
    }
    due.sort_by_key(|(turn, _)| *turn);
    due.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    Ok(due)
}

/// How much room there is behind what holds threads back.
struct Room {
    now: Timestamp,
    paused: BTreeSet<(String, Option<String>)>,
    limits: BTreeMap<String, FlowLimits>,
    /// By flow, and by flow and key.
    running: BTreeMap<(String, Option<String>), i64>,
}

impl Room {
    async fn read(conn: &mut Conn<'_>, now: Timestamp) -> Result<Self, StoreError> {
        let switches = switches(conn, now).await?.into_iter();
        let paused = switches.filter(|switch| !matches!(switch.of, SwitchOf::Channel(_)));
        let paused = paused.map(|switch| (switch.of.name().to_owned(), switch.of.node().map(str::to_owned))).collect();
        let limits: BTreeMap<_, _> = controls::limits(conn).await?.into_iter().collect();
        let mut running = BTreeMap::new();
        if !limits.is_empty() {
            let rows = db::query(
                "SELECT graph, limit_key, count(*) FROM threads
                 WHERE counted AND lease_owner IS NOT NULL AND lease_until >= $1 GROUP BY graph, limit_key",
            )
            .bind(now.as_micros())
            .fetch_all(conn)
            .await?;
            for row in rows {
                let (graph, key, count): (String, Option<String>, i64) =
                    (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
                if key.is_some() {
                    running.insert((graph.clone(), key), count);
                }
                *running.entry((graph, None)).or_default() += count;
            }
        }
        Ok(Self { now, paused, limits, running })
    }

    async fn behind(&self, conn: &mut Conn<'_>, by: &HeldBack) -> Result<i64, StoreError> {
        let is_paused =
            |graph: &str, node: Option<&str>| self.paused.contains(&(graph.to_owned(), node.map(str::to_owned)));
        let free = |limit: Option<u32>, graph: &str, key: &Option<String>| {
            let runs = self.running.get(&(graph.to_owned(), key.clone())).copied().unwrap_or(0);
            limit.map_or(i64::MAX, |limit| i64::from(limit) - runs)
        };
        let graph = by.graph();
        if is_paused(graph, None) {
            return Ok(0);
        }
        let limits = self.limits.get(graph).copied().unwrap_or_default();
        Ok(match by {
            HeldBack::Graph(_) => i64::MAX,
            HeldBack::Nodes(_, nodes) if nodes.iter().all(|node| is_paused(graph, Some(node))) => 0,
            HeldBack::Nodes(..) => i64::MAX,
            HeldBack::Running(_, key) => {
                let limit = if key.is_some() { limits.key_running } else { limits.running };
                free(limit, graph, key)
            }
            HeldBack::Starts(_, key) => match if key.is_some() { limits.key_starts } else { limits.starts } {
                Some(rate) => {
                    let full_at = full_at(conn, graph, key.as_deref().unwrap_or_default()).await?;
                    left(rate, full_at, self.now)
                }
                None => i64::MAX,
            },
        })
    }
}

/// Locks the limits of the flows of these threads, in order, so that no two
/// processes judge by the same count. For Postgres.
pub(super) async fn lock(conn: &mut Conn<'_>, threads: Arg) -> Result<(), StoreError> {
    db::query(
        "SELECT 1 FROM flow_limits WHERE graph IN (SELECT graph FROM threads WHERE thread = ANY ($1))
         ORDER BY graph FOR UPDATE",
    )
    .bind(threads)
    .execute(conn)
    .await?;
    Ok(())
}
