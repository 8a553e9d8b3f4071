//! What is printed: results on standard output, messages on standard error.

use std::io::Write as _;

use serde_json::Value;

/// Prints for people, or one JSON object per line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Output {
    json: bool,
}

impl Output {
    /// For people, or with `json` for machines.
    #[must_use]
    pub fn new(json: bool) -> Self {
        Self { json }
    }

    /// Whether machines read.
    #[must_use]
    pub fn is_json(self) -> bool {
        self.json
    }

    /// A result, in the form that was asked for. A reader that went away is no
    /// failure of the command.
    pub fn result(self, value: &Value, text: impl FnOnce() -> String) {
        let text = if self.json { value.to_string() } else { text() };
        let _gone = writeln!(std::io::stdout().lock(), "{text}");
    }

    /// A result that only machines get, where people see a summary.
    pub fn detail(self, value: &Value) {
        if self.json {
            self.result(value, String::new);
        }
    }

    /// A message for people, beside the result.
    pub fn note(self, text: &str) {
        let _gone = writeln!(std::io::stderr().lock(), "{text}");
    }
}

/// A table whose columns are as wide as they need to be.
pub(super) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = head.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut lines = vec![line(head.to_vec())];
    lines.extend(rows.iter().map(|row| line(row.iter().map(String::as_str).collect())));
    lines.join("\n")
}

/// Makes a text safe for a terminal: what others wrote cannot move the cursor
/// or change colours.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_by_characters() {
        let rows = [vec!["ä".to_owned(), "x".to_owned()], vec!["long".to_owned(), String::new()]];
        assert_eq!(table(&["A", "B"], &rows), "A     B\nä     x\nlong");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(plain("a\u{1b}[31mb\nc"), "a [31mb c");
    }
}
