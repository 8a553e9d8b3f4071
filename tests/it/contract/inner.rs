//! Inner frames for the tests of a store, made by hand.

use countersign_kernel::address::Address;
use countersign_kernel::canonical::content_hash;
use countersign_kernel::ids::{CheckpointId, FrameId, ThreadId};
use countersign_kernel::machine::{Checkpoint, PlannedTask, Source, TaskRecord, TaskStatus};
use countersign_kernel::state::Change;
use countersign_kernel::time::Timestamp;
use countersign_worker::store::commands::{
    Activation, Fence, FrameCommit, FrameFlush, FrameOwner, KeyAt, LoadedFrame, NewCheckpoint, StepResult,
};
use serde_json::json;

use super::place::{Place, at, body};

/// A frame to be written: where it runs, and who runs it.
#[derive(Debug, Clone)]
pub(crate) struct Inner {
    pub(crate) id: FrameId,
    pub(crate) owner: FrameOwner,
}

/// The frame that the task `a` of the root frame's checkpoint runs.
pub(crate) fn in_root(held: &Activation) -> Inner {
    of_task(None, held.seq, &held.checkpoint.id, &held.body.tasks[0])
}

/// The frame that the task of `commit`, a commit of `outer`, runs.
pub(crate) fn in_frame(outer: &Inner, commit: &FrameCommit) -> Inner {
    let new = commit.checkpoint.as_ref().expect("a checkpoint");
    of_task(Some(outer.id.clone()), outer.owner.root_seq, &new.checkpoint.id, &new.body.tasks[0])
}

fn of_task(parent: Option<FrameId>, root_seq: i64, around: &CheckpointId, task: &PlannedTask) -> Inner {
    let hash = content_hash(&json!([parent, task.address, around]));
    Inner {
        id: FrameId::parse(&hash[..32]).expect("a frame id"),
        owner: FrameOwner {
            parent,
            root_seq,
            task: task.key.clone(),
            around: around.clone(),
            address: task.address.clone(),
            graph: "inner".into(),
        },
    }
}

pub(crate) fn done() -> TaskRecord {
    TaskRecord { status: TaskStatus::Done, ..TaskRecord::default() }
}

pub(crate) fn waiting() -> TaskRecord {
    TaskRecord { status: TaskStatus::Waiting, ..TaskRecord::default() }
}

impl Place {
    /// Checkpoint `seq` of a frame, with one task `b` to run, `m` set to `seq`
    /// and the list `said` one longer.
    pub(crate) fn checkpoint_in(&self, frame: &Inner, seq: i64, now: Timestamp) -> NewCheckpoint {
        let superstep = u64::try_from(seq).expect("not negative");
        let id = self.checkpoint(0, now).checkpoint.id;
        let task = PlannedTask {
            key: "b".into(),
            node: "b".into(),
            address: frame.owner.address.node("b", superstep),
            argument: None,
            planned_by: id.clone(),
        };
        let source = if seq == 0 { Source::Input } else { Source::Loop };
        NewCheckpoint {
            checkpoint: Checkpoint { id, parent: None, source, superstep, created_at: now },
            seq,
            branch: 0,
            graph_version: 1,
            fingerprint: "inner".into(),
            body: body(vec![task]),
            keys: [("m".to_owned(), KeyAt::Value(seq)), ("said".to_owned(), KeyAt::Items(vec![(0, superstep + 1)]))]
                .into(),
            changes: vec![
                ("m".to_owned(), Change::Set(json!(seq))),
                ("said".to_owned(), Change::Appended(vec![json!(format!("{} {seq}", frame.owner.address))])),
            ],
        }
    }

    /// What a frame does at checkpoint `seq`: number 0 begins it.
    pub(crate) fn step_in(&self, frame: &Inner, seq: i64, now: Timestamp) -> FrameCommit {
        FrameCommit {
            frame: frame.id.clone(),
            owner: (seq == 0).then(|| frame.owner.clone()),
            checkpoint: Some(self.checkpoint_in(frame, seq, now)),
            carry_from: None,
            seq,
            body: None,
            tasks: Vec::new(),
        }
    }

    /// Records of tasks at checkpoint `seq` of a frame.
    pub(crate) fn records_in(&self, frame: &Inner, seq: i64, tasks: &[(&str, TaskRecord)]) -> FrameCommit {
        FrameCommit {
            frame: frame.id.clone(),
            owner: None,
            checkpoint: None,
            carry_from: None,
            seq,
            body: None,
            tasks: tasks.iter().map(|(key, record)| ((*key).to_owned(), record.clone())).collect(),
        }
    }

    pub(crate) async fn flush_frame(&self, thread: &ThreadId, fence: Fence, commit: FrameCommit) {
        let flush = FrameFlush { thread: thread.clone(), fence, commit, events: Vec::new(), now: at(2) };
        self.store.flush_frame(flush).await.expect("flushed");
    }

    /// Begins a frame under the lease of `held` and gives its first commit.
    pub(crate) async fn begin(&self, held: &Activation, frame: &Inner) -> FrameCommit {
        let commit = self.step_in(frame, 0, at(2));
        self.flush_frame(&held.thread, held.fence, commit.clone()).await;
        commit
    }

    /// The result of step `name` at `occurrence`.
    pub(crate) fn result(
        &self,
        held: &Activation,
        frame: Option<&Inner>,
        seq: i64,
        occurrence: &Address,
        name: &str,
    ) -> StepResult {
        StepResult {
            thread: held.thread.clone(),
            fence: held.fence,
            frame: frame.map(|frame| frame.id.clone()),
            seq,
            occurrence: occurrence.clone(),
            name: name.into(),
            result: json!({"by": name}),
            now: at(2),
        }
    }

    /// The frames of a thread, as the next activation gets them.
    pub(crate) async fn frames(&self, thread: &ThreadId) -> Vec<LoadedFrame> {
        self.store.load(thread).await.expect("there").frames
    }
}
