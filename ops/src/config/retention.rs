//! The section of what is kept, and for how long.

use std::collections::BTreeMap;

use super::reader::Section;

/// How much of the past is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retention {
    /// How many checkpoints of a thread; 0 is all.
    pub checkpoints: u32,
    /// Flows with a number of their own.
    pub graphs: BTreeMap<String, u32>,
}

/// Most checkpoints that a number can mean.
const CHECKPOINTS_MAX: u64 = 1_000_000;

impl Retention {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let checkpoints = count(&mut section);
        let mut graphs = BTreeMap::new();
        for mut entry in section.entries("graphs") {
            let name = entry.text("name");
            let checkpoints = count(&mut entry);
            match name {
                None if entry.holds("name") => {}
                None => entry.reader().fault(entry.place("name"), "it is missing", "name a graph"),
                Some(name) => {
                    if graphs.insert(name.value, checkpoints).is_some() {
                        entry.reader().fault(name.place, "the graph stands there twice", "keep one of the two");
                    }
                }
            }
            entry.finish();
        }
        section.finish();
        Self { checkpoints, graphs }
    }
}

fn count(section: &mut Section<'_>) -> u32 {
    u32::try_from(section.whole("checkpoints", 0, 0..=CHECKPOINTS_MAX)).unwrap_or(0)
}
