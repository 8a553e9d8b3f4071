//! Rows of a CSV file (RFC 4180), as spreadsheets write them.

use std::io::Read as _;

use csv::{ByteRecord, ReaderBuilder};
use serde_json::{Map, Value};

use super::Row;

/// Without this, the rows behind a stray quote would be part of one cell.
const UNCLOSED: &str = "a quote is opened and never closed, so the rest of the file is in it";
const END: &[u8] = b"\nend";

/// A CSV file with its header understood.
#[derive(Debug)]
pub(in crate::cli) struct CsvRows {
    bytes: Vec<u8>,
    delimiter: u8,
    header: Vec<String>,
    /// Where the record begins whose quote is never closed.
    unclosed: Option<u64>,
}

impl CsvRows {
    /// The rows of `bytes`. Without a `delimiter`, the one that the header has
    /// most of: comma, semicolon or tabulator.
    pub(super) fn new(bytes: Vec<u8>, delimiter: Option<u8>) -> Result<Self, String> {
        let delimiter = delimiter.unwrap_or_else(|| guess(&bytes));
        let mut rows = Self { bytes, delimiter, header: Vec::new(), unclosed: None };
        rows.unclosed = rows.find_unclosed();
        if rows.unclosed == Some(0) {
            return Err(UNCLOSED.to_owned());
        }
        let record = rows.records().next().transpose().map_err(|error| error.to_string())?.unwrap_or_default();
        for (i, field) in record.iter().enumerate() {
            let name =
                std::str::from_utf8(field).map_err(|_| "the header is not UTF-8; save the file as UTF-8")?.trim();
            if name.is_empty() {
                return Err(format!("column {} has no name in the header", i + 1));
            }
            if let Some(first) = rows.header.iter().position(|other| other == name) {
                return Err(format!("columns {} and {} are both named `{name}`", first + 1, i + 1));
            }
            rows.header.push(name.to_owned());
        }
        Ok(rows)
    }

    /// The names of the columns.
    pub(super) fn header(&self) -> &[String] {
        &self.header
    }

    fn records(&self) -> csv::ByteRecordsIntoIter<&[u8]> {
        self.records_of(self.bytes.as_slice())
    }

    fn records_of<R: std::io::Read>(&self, bytes: R) -> csv::ByteRecordsIntoIter<R> {
        let mut builder = ReaderBuilder::new();
        builder.has_headers(false).flexible(true).delimiter(self.delimiter);
        builder.from_reader(bytes).into_byte_records()
    }

    /// The reader takes the end of the file for the end of a quote. So one more
    /// line is put behind the file: what is not read as a record of its own is
    /// in a quote.
    fn find_unclosed(&self) -> Option<u64> {
        let last = self.records_of(self.bytes.as_slice().chain(END)).filter_map(Result::ok).last()?;
        let apart = last.len() == 1 && last.get(0) == Some(&b"end"[..]);
        if apart { None } else { last.position().map(csv::Position::byte) }
    }

    /// The rows after the header.
    pub(super) fn rows(&self) -> impl Iterator<Item = Row> + Send + '_ {
        let mut lines = Lines { bytes: &self.bytes, at: 0, line: 1 };
        self.records().skip(1).zip(1..).map(move |(record, number)| {
            let position = record.as_ref().ok().and_then(ByteRecord::position).map(csv::Position::byte);
            let line = lines.of_record_at(position.and_then(|byte| usize::try_from(byte).ok()).unwrap_or_default());
            let content = match record {
                Ok(_) if position.is_some() && position == self.unclosed => Err(UNCLOSED.to_owned()),
                Ok(record) => self.object(&record),
                Err(error) => Err(error.to_string()),
            };
            Row { number, line, content }
        })
    }

    fn object(&self, record: &ByteRecord) -> Result<Map<String, Value>, String> {
        if record.len() != self.header.len() {
            return Err(format!("it has {} columns, the header has {}", record.len(), self.header.len()));
        }
        let mut object = Map::new();
        for (name, field) in self.header.iter().zip(record) {
            let text = std::str::from_utf8(field)
                .map_err(|_| format!("column `{name}` is not UTF-8; save the file as UTF-8"))?;
            object.insert(name.clone(), Value::from(text.trim()));
        }
        Ok(object)
    }
}

/// Counts lines along a file. The reader's own count is that of the end of the
/// record before, which with CRLF or blank lines is another line.
struct Lines<'a> {
    bytes: &'a [u8],
    at: usize,
    line: u64,
}

impl Lines<'_> {
    /// The line of the record whose search began at `byte`.
    fn of_record_at(&mut self, byte: usize) -> u64 {
        while let Some(next) = self.bytes.get(self.at)
            && (self.at < byte || matches!(next, b'\r' | b'\n'))
        {
            self.line += u64::from(*next == b'\n');
            self.at += 1;
        }
        self.line
    }
}

/// What separates the columns, by the first line. Commas within quotes do not
/// count.
fn guess(bytes: &[u8]) -> u8 {
    let mut counts = [(b',', 0_u32), (b';', 0), (b'\t', 0)];
    let mut quoted = false;
    for byte in bytes.iter().skip_while(|byte| byte.is_ascii_whitespace()) {
        match byte {
            b'"' => quoted = !quoted,
            b'\n' if !quoted => break,
            _ if quoted => {}
            byte => {
                for (delimiter, count) in &mut counts {
                    *count += u32::from(delimiter == byte);
                }
            }
        }
    }
    // The first of equals: without any, a comma and one column.
    counts.iter().rev().max_by_key(|(_, count)| *count).map_or(b',', |(delimiter, _)| *delimiter)
}
