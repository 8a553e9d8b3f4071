//! What was done at a checkpoint or after it (R13).
//!
//! The checkpoints of the thread are read once and walked here: a walk in SQL
//! looks through all of them at every step.

use std::collections::{HashMap, HashSet};

use countersign_kernel::address::Address;
use countersign_kernel::ids::{CheckpointId, ThreadId};
use sqlx::{Row, SqliteConnection};

use super::super::StoreError;
use super::super::codec::decode;
use super::super::views::DoneStep;
use super::commit::encode_text;

/// A checkpoint among those of its thread.
struct Node {
    checkpoint: String,
    frame: String,
    seq: i64,
    parent: Option<String>,
    amends: bool,
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
/// when it was dropped is listed with them.
pub(super) async fn steps(
    conn: &mut SqliteConnection,
    thread: &ThreadId,
    checkpoint: &CheckpointId,
    leaves: bool,
) -> Result<Vec<DoneStep>, StoreError> {
    let archive = Archive::read(conn, thread).await?;
    let rows = sqlx::query(
        "WITH after AS (SELECT value ->> 0 AS frame, value ->> 1 AS seq FROM json_each(?2))
         SELECT s.occurrence, s.name, s.recorded_at AS at FROM after
         JOIN steps s ON s.thread = ?1 AND s.frame = after.frame AND s.seq = after.seq
         WHERE s.name <> '='
         UNION ALL
         SELECT NULL, t.task, 0 FROM after
         JOIN tasks t ON t.thread = ?1 AND t.frame = after.frame AND t.seq = after.seq
         WHERE t.status = 'pending'
         ORDER BY 3, 1, 2",
    )
    .bind(thread.as_str())
    .bind(encode_text(&archive.after(checkpoint, leaves))?)
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|row| {
            let name: String = row.try_get(1)?;
            let Some(text) = row.try_get::<Option<String>, _>(0)? else {
                return Ok(DoneStep { address: name, name: "begun, not recorded".into() });
            };
            let address: Address = decode("address", thread.as_str(), text.as_bytes())?;
            Ok(DoneStep { address: address.to_string(), name })
        })
        .collect()
}

impl Archive {
    async fn read(conn: &mut SqliteConnection, thread: &ThreadId) -> Result<Self, StoreError> {
        let rows =
            sqlx::query("SELECT checkpoint, frame, seq, parent, source = 'amend' FROM checkpoints WHERE thread = ?1")
                .bind(thread.as_str())
                .fetch_all(&mut *conn)
                .await?;
        let frames: Vec<(String, String)> = sqlx::query_as("SELECT frame, around FROM frames WHERE thread = ?1")
            .bind(thread.as_str())
            .fetch_all(&mut *conn)
            .await?;
        let head: Option<String> = sqlx::query_scalar("SELECT head FROM threads WHERE thread = ?1")
            .bind(thread.as_str())
            .fetch_optional(conn)
            .await?;
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
            };
            let index = archive.nodes.len();
            archive.by_id.insert(node.checkpoint.clone(), index);
            archive.of_frame.entry(node.frame.clone()).or_default().push(index);
            if let Some(parent) = &node.parent {
                archive.children.entry(parent.clone()).or_default().push(index);
            }
            archive.nodes.push(node);
        }
        for (frame, around) in frames {
            archive.inside.entry(around.clone()).or_default().push(frame.clone());
            archive.around.insert(frame, around);
        }
        archive.head = head.and_then(|head| archive.by_id.get(&head).copied());
        Ok(archive)
    }

    /// Frame and number of each checkpoint at or after one.
    fn after(&self, checkpoint: &CheckpointId, leaves: bool) -> Vec<(&str, i64)> {
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
            after.push((node.frame.as_str(), node.seq));
            queue.extend(self.children.get(&node.checkpoint).into_iter().flatten());
            queue.extend(self.inside(at, &on_path));
        }
        after
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
