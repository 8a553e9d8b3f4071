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
    /// The most supersteps that one run may take in a frame.
    pub supersteps_per_run: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            payload_bytes: 256 << 10,
            state_key_bytes: 4 << 20,
            tasks_per_superstep: 10_000,
            supersteps_per_run: 1_000,
        }
    }
}

/// Refuses a value above its limit, by name.
pub(crate) fn check(
    what: impl FnOnce() -> String,
    limit_name: &str,
    value: &serde_json::Value,
    most: usize,
) -> Result<(), String> {
    // Numbers and flags are small; only what can be large is measured.
    if value.is_number() || value.is_boolean() || value.is_null() {
        return Ok(());
    }
    let mut counted = Counted(0);
    // Writing to a counter cannot fail, and a JSON value can always be written.
    if serde_json::to_writer(&mut counted, value).is_ok() && counted.0 <= most {
        return Ok(());
    }
    Err(format!("{} has {} bytes; at most {most} are kept (`limits.{limit_name}`)", what(), counted.0))
}

/// Measures a text without keeping it.
struct Counted(usize);

impl std::io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Refuses a superstep of too many tasks.
pub(crate) fn check_tasks(tasks: usize, most: usize) -> Result<(), String> {
    if tasks <= most {
        return Ok(());
    }
    Err(format!("the next superstep has {tasks} tasks; at most {most} run side by side (`limits.tasks_per_superstep`)"))
}
