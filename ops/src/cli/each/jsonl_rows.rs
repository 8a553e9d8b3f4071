//! Rows of a JSONL file: one object per line.

use serde_json::{Map, Value};

use super::Row;
use crate::strict_json::Strict;

/// The rows; blank lines are none.
pub(super) fn rows(bytes: &[u8]) -> impl Iterator<Item = Row> + Send + '_ {
    let lines = bytes.split(|byte| *byte == b'\n').zip(1..);
    let filled = lines.filter(|(text, _)| !text.trim_ascii().is_empty());
    filled.zip(1..).map(|((text, line), number)| Row { number, line, content: object(text) })
}

fn object(text: &[u8]) -> Result<Map<String, Value>, String> {
    let text = std::str::from_utf8(text).map_err(|_| "the line is not UTF-8".to_owned())?;
    match serde_json::from_str(text) {
        Ok(Strict(Value::Object(object))) => Ok(object),
        Ok(_) => Err("the line is not a JSON object".to_owned()),
        // Without serde_json's own line number, which is always 1 here.
        Err(error) => Err(format!("the line is not JSON (column {}): {}", error.column(), reason(&error))),
    }
}

fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(reason, _)| reason.to_owned())
}
