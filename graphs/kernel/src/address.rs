//! Where something happens in a run (K1, R6).

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::ids::{CheckpointId, InterruptId};

/// The question number that stands for the container itself.
const CONTAINER: u32 = u32::MAX;

/// What a segment of an address stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SegmentKind {
    /// A graph, by name.
    Graph,
    /// One execution of a node; the visit is the superstep in its frame.
    Node,
    /// One of several tasks of a node that were sent arguments of their own;
    /// the visit counts them in task order.
    Task,
    /// A slot of a batch; the visit is the slot number.
    Slot,
    /// A part that a body named itself.
    Child,
}

/// One step of the path to a point. Ordered by kind, then visit, then name: the
/// slots of a batch lie in call order, whatever tools they call.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Segment {
    /// What it stands for.
    pub kind: SegmentKind,
    /// The name within its kind.
    pub name: String,
    /// A label such as a tool call id; never needed for uniqueness (K16).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub: Option<String>,
    /// Which visit of this (kind, name) in the parent occurrence.
    #[serde(default)]
    pub visit: u64,
}

impl Ord for Segment {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |segment: &Self| (segment.kind, segment.visit);
        key(self).cmp(&key(other)).then_with(|| self.name.cmp(&other.name)).then_with(|| self.sub.cmp(&other.sub))
    }
}

impl PartialOrd for Segment {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The path to one occurrence: graph, node, slot… Two occurrences of a run
/// never share an address.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Address(Vec<Segment>);

impl Address {
    /// The root frame of a graph.
    #[must_use]
    pub fn graph(name: &str) -> Self {
        Self(vec![Segment { kind: SegmentKind::Graph, name: name.to_owned(), sub: None, visit: 0 }])
    }

    /// This address, one segment deeper.
    #[must_use]
    pub fn child(&self, segment: Segment) -> Self {
        let mut segments = self.0.clone();
        segments.push(segment);
        Self(segments)
    }

    /// One execution of `node` in superstep `superstep` of this frame.
    #[must_use]
    pub fn node(&self, node: &str, superstep: u64) -> Self {
        self.child(Segment { kind: SegmentKind::Node, name: node.to_owned(), sub: None, visit: superstep })
    }

    /// Slot `slot` of the batch `batch`.
    #[must_use]
    pub fn slot(&self, batch: &str, slot: u64, label: Option<&str>) -> Self {
        self.child(Segment {
            kind: SegmentKind::Slot,
            name: batch.to_owned(),
            sub: label.map(str::to_owned),
            visit: slot,
        })
    }

    /// Sent task number `number` of `node` in superstep `superstep` of this frame.
    #[must_use]
    pub fn sent(&self, node: &str, superstep: u64, number: u64) -> Self {
        let segment = Segment { kind: SegmentKind::Task, name: node.to_owned(), sub: None, visit: number };
        self.node(node, superstep).child(segment)
    }

    /// The addresses above this one, nearest first.
    pub fn ancestors(&self) -> impl Iterator<Item = Self> {
        (1..self.0.len()).rev().map(|length| Self(self.0[..length].to_vec()))
    }

    /// Whether `other` is this address or lies below it.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }

    /// The id of the container at this address (K18): that of a question
    /// whose number no question has.
    #[must_use]
    pub fn container_id(&self, salt: &[u8; 16], planned_by: Option<&CheckpointId>) -> InterruptId {
        self.id(salt, planned_by.map_or("", CheckpointId::as_str), CONTAINER)
    }

    /// The segments, outermost first.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// The interrupt id of question `number` at this address (K2, R7): the
    /// first 16 bytes of SHA-256 over format tag, thread salt, the checkpoint
    /// that planned the task, the length-prefixed address, and the number.
    #[must_use]
    pub fn interrupt_id(&self, salt: &[u8; 16], planned_by: &CheckpointId, number: u32) -> InterruptId {
        self.id(salt, planned_by.as_str(), number)
    }

    /// All that makes this address, for a hash: its text is for people, and
    /// two addresses may have the same.
    pub(crate) fn each_part(&self, put: &mut impl FnMut(&[u8])) {
        for segment in &self.0 {
            put(&[segment.kind as u8]);
            put(segment.name.as_bytes());
            put(segment.sub.as_deref().unwrap_or("").as_bytes());
            put(&segment.visit.to_be_bytes());
        }
    }

    fn id(&self, salt: &[u8; 16], planned_by: &str, number: u32) -> InterruptId {
        let mut hash = Sha256::new();
        let mut put = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        };
        put(b"countersign/interrupt/1");
        put(salt);
        put(planned_by.as_bytes());
        self.each_part(&mut put);
        put(&number.to_be_bytes());
        let digest = hash.finalize();
        let text = hex::encode(&digest[..16]);
        // Sixteen bytes always print as 32 lower-case hex digits.
        match InterruptId::parse(text) {
            Ok(id) => id,
            Err(_) => unreachable!("hex of 16 bytes is an interrupt id"),
        }
    }
}

/// As people read it: `checkout/tools@3/pay[0]:call_abc`.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, segment) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("/")?;
            }
            f.write_str(&segment.name)?;
            match segment.kind {
                SegmentKind::Graph if segment.visit == 0 => {}
                SegmentKind::Node => write!(f, "@{}", segment.visit)?,
                SegmentKind::Graph | SegmentKind::Task | SegmentKind::Slot | SegmentKind::Child => {
                    write!(f, "[{}]", segment.visit)?;
                }
            }
            if let Some(sub) = &segment.sub {
                write!(f, ":{sub}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_people_read_it() {
        let address = Address::graph("checkout").node("tools", 3).slot("pay", 0, Some("call_abc"));
        assert_eq!(address.to_string(), "checkout/tools@3/pay[0]:call_abc");
    }

    #[test]
    fn ids_differ_by_every_part_and_by_nothing_else() {
        let salt = [7; 16];
        let planned = CheckpointId::parse("c1").expect("id");
        let base = Address::graph("g").node("n", 1);
        let id = base.interrupt_id(&salt, &planned, 0);
        assert_eq!(id, base.interrupt_id(&salt, &planned, 0));
        let others = [
            base.interrupt_id(&salt, &planned, 1),
            base.interrupt_id(&[8; 16], &planned, 0),
            base.interrupt_id(&salt, &CheckpointId::parse("c2").expect("id"), 0),
            Address::graph("g").node("n", 2).interrupt_id(&salt, &planned, 0),
            Address::graph("gn").interrupt_id(&salt, &planned, 0),
            base.slot("b", 0, None).interrupt_id(&salt, &planned, 0),
        ];
        assert!(others.iter().all(|other| *other != id));
    }
}
