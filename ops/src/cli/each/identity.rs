//! Which thread a row is, so that starting it twice is starting it once (R24).

use std::collections::HashMap;

use countersign_kernel::canonical::content_hash;
use serde_json::{Map, Value, json};

/// Derives thread ids, `<graph>-<32 hex digits>`, row by row.
///
/// With a key, from the graph and the key's value. Without one, from the row's
/// canonical content and its occurrence number among the equal rows so far: so
/// two equal rows are two threads, the order of columns does not matter, and
/// appending rows leaves the ids of the earlier ones as they are.
#[derive(Debug)]
pub(in crate::cli) struct Identities<'a> {
    graph: &'a str,
    key: Option<&'a str>,
    seen: HashMap<String, u64>,
}

impl<'a> Identities<'a> {
    pub(in crate::cli) fn new(graph: &'a str, key: Option<&'a str>) -> Self {
        Self { graph, key, seen: HashMap::new() }
    }

    /// The id of the next row.
    ///
    /// # Errors
    /// The row has no usable value under the key.
    pub(in crate::cli) fn next(&mut self, row: &Map<String, Value>) -> Result<String, String> {
        let basis = match self.key {
            Some(key) => json!({"graph": self.graph, "key": key_text(row, key)?}),
            None => {
                let content = content_hash(&Value::Object(row.clone()));
                let occurrence = self.seen.entry(content.clone()).and_modify(|n| *n += 1).or_insert(1);
                json!({"graph": self.graph, "row": content, "occurrence": occurrence})
            }
        };
        let hash = content_hash(&basis);
        Ok(format!("{}-{}", self.graph, &hash[..32]))
    }
}

/// The key's value as text: 5 in JSONL and 5 in CSV are the same key.
fn key_text(row: &Map<String, Value>, key: &str) -> Result<String, String> {
    match row.get(key) {
        Some(Value::String(text)) if !text.trim().is_empty() => Ok(text.trim().to_owned()),
        Some(Value::Number(number)) => Ok(number.to_string()),
        Some(Value::String(_)) => Err(format!("/{key}: the key is empty")),
        Some(_) => Err(format!("/{key}: a key is a text or a number")),
        None => Err(format!("/{key}: the key is missing")),
    }
}
