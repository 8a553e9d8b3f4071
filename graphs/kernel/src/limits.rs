//! What is refused for its size (R30).

/// Sizes in bytes of JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The largest payload of a question.
    pub payload_bytes: usize,
    /// The largest value that a node writes to one key.
    pub state_key_bytes: usize,
    /// The most tasks side by side in one superstep.
    pub tasks_per_superstep: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { payload_bytes: 256 << 10, state_key_bytes: 4 << 20, tasks_per_superstep: 10_000 }
    }
}

/// Refuses a value above its limit, by name.
pub(crate) fn check(what: &str, limit_name: &str, value: &serde_json::Value, most: usize) -> Result<(), String> {
    // Numbers and flags are small; only what can be large is measured.
    if value.is_number() || value.is_boolean() || value.is_null() {
        return Ok(());
    }
    let size = value.to_string().len();
    if size <= most {
        Ok(())
    } else {
        Err(format!("{what} has {size} bytes; at most {most} are kept (`limits.{limit_name}`)"))
    }
}

/// Refuses a superstep of too many tasks.
pub(crate) fn check_tasks(tasks: usize, most: usize) -> Result<(), String> {
    if tasks <= most {
        return Ok(());
    }
    Err(format!("the next superstep has {tasks} tasks; at most {most} run side by side (`limits.tasks_per_superstep`)"))
}
