//! What was done at a checkpoint or after it (R13).
//!
//! The checkpoints of the thread are read once and walked here: a walk in SQL
//! looks through all of them at every step.

use std::collections::{HashMap, HashSet};

use countersign_kernel::address::Address;
use countersign_kernel::ids::{CheckpointId, ThreadId};
use serde_json::json;

use super::super::StoreError;
use super::super::codec::decode;
use super::super::commands::StepGuard;
use super::super::db::{self, Arg, Conn};
use super::super::views::DoneStep;

/// A checkpoint among those of its thread.
struct Node {
    checkpoint: String,
    frame: String,
    seq: i64,
    parent: Option<String>,
    amends: bool,
    /// Whether it follows the end of the superstep before.
    settles: bool,
}

/// The checkpoints of a thread and how they hang together.
struct Archive {
    nodes: Vec<Node>,
    by_id: HashMap<String, usize>,
    children: HashMap<String, Vec<usize>>,
    of_frame: HashMap<String, Vec<usize>>,
    /// The checkpoint around each frame, at which it began; and the other way round.
    around: HashMap<String, String>,
    inside: HashMap<String, Vec<String>>,
    head: Option<usize>,
}

/// Steps done at a checkpoint or after it, in whatever frame. For a checkpoint
/// inside that includes what was done around it, beside its frame and after it.
/// With `leaves`, also those of the line that the head is on and that the
/// checkpoint's past does not share: the thread leaves it. What a body had begun
/// when it was dropped is listed with them, until its superstep has ended. And,
/// of the nodes that run anew, what they did on the line before.
pub(super) async fn steps(
    conn: &mut Conn<'_>,
    thread: &ThreadId,
    guard: &StepGuard,
) -> Result<Vec<DoneStep>, StoreError> {
    let archive = Archive::read(conn, thread).await?;
    let mut steps = Vec::new();
    if !guard.anew.is_empty() {
        for (address, name) in done(conn, thread, &archive.before(&guard.from)).await? {
            let node = address.as_ref().and_then(|address| address.segments().get(1));
            if let (Some(address), true) = (&address, node.is_some_and(|node| guard.anew.contains(&node.name))) {
                steps.push(DoneStep { address: address.to_string(), name });
            }
        }
    }
    for (address, name) in done(conn, thread, &archive.after(&guard.from, guard.leaves)).await? {
        steps.push(match address {
            Some(address) => DoneStep { address: address.to_string(), name },
            None => DoneStep { address: name, name: "begun, not recorded".into() },
        });
    }
    Ok(steps)
}

/// What was done at these checkpoints: address and name of each step; only the
/// name of a task that was begun.
async fn done(
    conn: &mut Conn<'_>,
    thread: &ThreadId,
    at: &[(&str, i64, bool)],
) -> Result<Vec<(Option<Address>, String)>, StoreError> {
    let rows = db::query(db::either(
        "WITH after AS (SELECT value ->> 0 AS frame, value ->> 1 AS seq, value ->> 2 AS ended FROM json_each($2))
         SELECT s.occurrence, s.name, s.recorded_at AS at FROM after
         JOIN steps s ON s.thread = $1 AND s.frame = after.frame AND s.seq = after.seq
         WHERE s.name <> '='
         UNION ALL
         SELECT NULL, t.task, 0 FROM after
         JOIN tasks t ON t.thread = $1 AND t.frame = after.frame AND t.seq = after.seq
         WHERE t.status = 'pending' AND NOT after.ended
         ORDER BY 3, 1 NULLS FIRST, 2",
        "WITH after AS (SELECT value ->> 0 AS frame, (value ->> 1)::bigint AS seq, (value ->> 2)::boolean AS ended
                        FROM json_array_elements($2::json) AS given(value))
         SELECT s.occurrence, s.name, s.recorded_at AS at FROM after
         JOIN steps s ON s.thread = $1 AND s.frame = after.frame AND s.seq = after.seq
         WHERE s.name <> '='
         UNION ALL
         SELECT NULL, t.task, 0 FROM after
         JOIN tasks t ON t.thread = $1 AND t.frame = after.frame AND t.seq = after.seq
         WHERE t.status = 'pending' AND NOT after.ended
         ORDER BY 3, 1 NULLS FIRST, 2",
    ))
    .bind(thread.as_str())
    .bind(Arg::Json(json!(at)))
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|row| {
            let address: Option<String> = row.try_get(0)?;
            let address = address.map(|text| decode("address", thread.as_str(), text.as_bytes())).transpose()?;
            Ok((address, row.try_get(1)?))
        })
        .collect()
}

impl Archive {
    async fn read(conn: &mut Conn<'_>, thread: &ThreadId) -> Result<Self, StoreError> {
        let rows = db::query(
            "SELECT checkpoint, frame, seq, parent, source = 'amend', source = 'loop' FROM checkpoints WHERE thread = $1",
        )
        .bind(thread.as_str())
        .fetch_all(&mut *conn)
        .await?;
        let frames = db::query("SELECT frame, around FROM frames WHERE thread = $1")
            .bind(thread.as_str())
            .fetch_all(&mut *conn)
            .await?;
        let head: Option<String> =
            db::scalar("SELECT head FROM threads WHERE thread = $1").bind(thread.as_str()).fetch_optional(conn).await?;
        let mut archive = Self {
            nodes: Vec::with_capacity(rows.len()),
            by_id: HashMap::with_capacity(rows.len()),
            children: HashMap::with_capacity(rows.len()),
            of_frame: HashMap::new(),
            around: HashMap::new(),
            inside: HashMap::new(),
            head: None,
        };
        for row in rows {
            let node = Node {
                checkpoint: row.try_get(0)?,
                frame: row.try_get(1)?,
                seq: row.try_get(2)?,
                parent: row.try_get(3)?,
                amends: row.try_get(4)?,
                settles: row.try_get(5)?,
            };
            let index = archive.nodes.len();
            archive.by_id.insert(node.checkpoint.clone(), index);
            archive.of_frame.entry(node.frame.clone()).or_default().push(index);
            if let Some(parent) = &node.parent {
                archive.children.entry(parent.clone()).or_default().push(index);
            }
            archive.nodes.push(node);
        }
        for row in frames {
            let (frame, around): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            archive.inside.entry(around.clone()).or_default().push(frame.clone());
            archive.around.insert(frame, around);
        }
        archive.head = head.and_then(|head| archive.by_id.get(&head).copied());
        Ok(archive)
    }

    /// Frame and number of each checkpoint at or after one, and whether its
    /// superstep has ended.
    fn after(&self, checkpoint: &CheckpointId, leaves: bool) -> Vec<(&str, i64, bool)> {
        let path = self.path(checkpoint);
        let on_path: HashSet<&str> = path.iter().map(|&at| self.nodes[at].frame.as_str()).collect();
        let mut queue = path.clone();
        if leaves {
            let before: HashSet<usize> = path.iter().flat_map(|&at| self.line(Some(at)).skip(1)).collect();
            queue.extend(self.line(self.head).filter(|at| !before.contains(at)));
        }
        // Frames that began before an amendment went along with it.
        for &at in &path {
            let amended = self.line(Some(at)).take_while(|&at| self.nodes[at].amends);
            let begun = amended.filter_map(|at| self.parent(at));
            queue.extend(begun.flat_map(|at| self.inside(at, &on_path)));
        }
        let mut found = HashSet::new();
        let mut after = Vec::new();
        while let Some(at) = queue.pop() {
            if !found.insert(at) {
                continue;
            }
            let node = &self.nodes[at];
            let next = self.children.get(&node.checkpoint).map_or(&[][..], Vec::as_slice);
            after.push((node.frame.as_str(), node.seq, next.iter().any(|&at| self.nodes[at].settles)));
            queue.extend(next);
            queue.extend(self.inside(at, &on_path));
        }
        after
    }

    /// As [`after`](Self::after), of those before a checkpoint on its line, and
    /// of what ran inside them.
    fn before(&self, checkpoint: &CheckpointId) -> Vec<(&str, i64, bool)> {
        let start = self.by_id.get(checkpoint.as_str()).copied();
        let mut queue: Vec<usize> = self.line(start).skip(1).collect();
        let (none, mut before) = (HashSet::new(), Vec::new());
        while let Some(at) = queue.pop() {
            before.push((self.nodes[at].frame.as_str(), self.nodes[at].seq, true));
            queue.extend(self.inside(at, &none));
        }
        before
    }

    /// A checkpoint with those around it.
    fn path(&self, checkpoint: &CheckpointId) -> Vec<usize> {
        let start = self.by_id.get(checkpoint.as_str()).copied();
        let outer = |at: &usize| self.around.get(&self.nodes[*at].frame).and_then(|id| self.by_id.get(id)).copied();
        std::iter::successors(start, outer).collect()
    }

    fn parent(&self, at: usize) -> Option<usize> {
        self.nodes[at].parent.as_ref().and_then(|id| self.by_id.get(id)).copied()
    }

    /// A checkpoint and those before it, newest first.
    fn line(&self, from: Option<usize>) -> impl Iterator<Item = usize> {
        std::iter::successors(from, |at| self.parent(*at))
    }

    /// The checkpoints of the frames that began at one, but for those on the way
    /// to where one goes back to.
    fn inside<'a>(&'a self, at: usize, on_path: &'a HashSet<&str>) -> impl Iterator<Item = usize> + 'a {
        let frames = self.inside.get(&self.nodes[at].checkpoint).into_iter().flatten();
        let beside = frames.filter(|frame| !on_path.contains(frame.as_str()));
        beside.filter_map(|frame| self.of_frame.get(frame)).flatten().copied()
    }
}
