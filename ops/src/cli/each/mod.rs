//! Files of rows: `--each`.

mod csv_rows;
mod identity;
mod jsonl_rows;
mod progress;
#[cfg(test)]
mod tests;

use std::path::Path;

use serde_json::{Map, Value};

use self::csv_rows::CsvRows;
pub(super) use self::identity::Identities;
pub(super) use self::progress::Progress;
use super::exit::Exit;
use super::failure::CliError;
use super::input::read_bytes;

/// How many requests are under way at the same time.
pub(super) const CONCURRENCY: usize = 32;

/// One row of a file, or why it cannot be read.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    /// Counts the rows with content, from 1; the header is none.
    pub(super) number: u64,
    /// The line that the row begins at.
    pub(super) line: u64,
    /// The row as an object.
    pub(super) content: Result<Map<String, Value>, String>,
}

impl Row {
    /// How messages name the row.
    pub(super) fn place(&self) -> String {
        format!("row {} (line {})", self.number, self.line)
    }
}

/// A file of rows, as a whole in memory. Reading goes by rows: one that cannot
/// be read does not keep the others from being read.
#[derive(Debug)]
pub(super) enum Source {
    /// A header and rows.
    Csv(CsvRows),
    /// One object per line.
    Jsonl(Vec<u8>),
}

impl Source {
    /// Reads the file, `-` for standard input.
    pub(super) fn read(path: &Path) -> Result<Self, CliError> {
        let bytes = read_bytes(path)?;
        Self::of(path, bytes).map_err(|what| CliError::new(Exit::Usage, format!("{}: {what}", path.display())))
    }

    /// The rows of `bytes`: by the file's extension, else by how they begin.
    pub(super) fn of(path: &Path, mut bytes: Vec<u8>) -> Result<Self, String> {
        if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
            return Err("the file is UTF-16; save it as UTF-8".to_owned());
        }
        if bytes.starts_with(&[0xef, 0xbb, 0xbf]) {
            bytes.drain(..3);
        }
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default().to_lowercase();
        let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
        match (extension.as_str(), first) {
            (_, None) => Err("the file is empty".to_owned()),
            ("jsonl" | "ndjson", _) => Ok(Self::Jsonl(bytes)),
            ("csv", _) => CsvRows::new(bytes, None).map(Self::Csv),
            ("tsv", _) => CsvRows::new(bytes, Some(b'\t')).map(Self::Csv),
            (_, Some(b'{')) => Ok(Self::Jsonl(bytes)),
            (_, Some(b'[')) => Err("the file is a JSON array; write one object per line".to_owned()),
            _ => CsvRows::new(bytes, None).map(Self::Csv),
        }
    }

    /// The rows, in the order of the file.
    pub(super) fn rows(&self) -> Box<dyn Iterator<Item = Row> + Send + '_> {
        match self {
            Self::Csv(csv) => Box::new(csv.rows()),
            Self::Jsonl(bytes) => Box::new(jsonl_rows::rows(bytes)),
        }
    }

    /// How many rows there are.
    pub(super) fn count(&self) -> u64 {
        self.rows().map(|_| 1).sum()
    }

    /// Checks that every row can have a `column`. In JSONL each line decides
    /// for itself.
    pub(super) fn require_column(&self, column: &str) -> Result<(), CliError> {
        match self {
            Self::Csv(csv) if !csv.header().iter().any(|name| name == column) => Err(CliError::new(
                Exit::Usage,
                format!("the file has no column `{column}`; its columns: {}", csv.header().join(", ")),
            )),
            _ => Ok(()),
        }
    }
}
