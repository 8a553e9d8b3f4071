//! The file of real payments, and what has to become of its rows.

use std::collections::BTreeMap;

use countersign_worker::store::LedgerEntry;
use serde_json::Value;

const FILE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../graphs/flows/tests/data/payments.csv"));

/// From here on somebody is asked, in pennies.
const ASKED_FROM: i64 = 500_000;

/// What is paid: reference, payee, pennies.
pub(crate) type Row = (String, String, i64);

/// The first rows of the file.
pub(crate) struct PayFile {
    /// As a file.
    pub(crate) text: String,
    /// As they have to be paid.
    pub(crate) rows: Vec<Row>,
}

impl PayFile {
    /// The rows from `from` up to `to`, with the header.
    pub(crate) fn part(from: usize, to: usize) -> Self {
        let mut reader = csv::Reader::from_reader(FILE.as_bytes());
        let header = reader.headers().expect("a header").clone();
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(&header).expect("written");
        let column = |name: &str| header.iter().position(|other| other == name).expect("a column");
        let (reference, payee, amount) = (column("trans_no"), column("supplier_name"), column("amount"));
        let mut rows = Vec::new();
        for record in reader.records().take(to).skip(from) {
            let record = record.expect("a row");
            writer.write_record(&record).expect("written");
            rows.push((record[reference].trim().to_owned(), record[payee].trim().to_owned(), pennies(&record[amount])));
        }
        assert_eq!(rows.len(), to - from, "so many rows are in the file");
        let text = String::from_utf8(writer.into_inner().expect("written")).expect("UTF-8");
        Self { text, rows }
    }

    /// The first `count` rows.
    pub(crate) fn first(count: usize) -> Self {
        Self::part(0, count)
    }

    /// Rows that somebody is asked about.
    pub(crate) fn asked(&self) -> usize {
        self.rows.iter().filter(|row| row.2 >= ASKED_FROM).count()
    }

    /// Rows that are paid without asking.
    pub(crate) fn unasked(&self) -> Vec<Row> {
        self.rows.iter().filter(|row| row.2 < ASKED_FROM).cloned().collect()
    }
}

/// `1,234.5` as 123450.
fn pennies(text: &str) -> i64 {
    let text = text.trim().replace(',', "");
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let part = format!("{part:0<2}");
    assert_eq!(part.len(), 2, "{text}");
    whole.parse::<i64>().expect("a number") * 100 + part.parse::<i64>().expect("a number")
}

/// Asserts that exactly these rows are booked, each once: none is lost, none
/// doubled. Returns how often a booking was asked for beyond the first time.
#[track_caller]
pub(crate) fn paid_once(booked: &[LedgerEntry], rows: &[Row]) -> i64 {
    let mut expected: BTreeMap<Row, i64> = BTreeMap::new();
    for row in rows {
        *expected.entry(row.clone()).or_default() += 1;
    }
    let mut found: BTreeMap<Row, i64> = BTreeMap::new();
    for entry in booked {
        let order: Value = serde_json::from_str(&entry.order).expect("JSON");
        let text = |member: &str| order[member].as_str().expect("a text").to_owned();
        *found.entry((text("reference"), text("payee"), pennies(&text("amount")))).or_default() += 1;
    }
    let lost: Vec<_> = expected.iter().filter(|(row, count)| found.get(*row) < Some(*count)).collect();
    let more: Vec<_> = found.iter().filter(|(row, count)| expected.get(*row) < Some(*count)).collect();
    assert!(lost.is_empty() && more.is_empty(), "not paid: {lost:?}; paid too often: {more:?}");
    booked.iter().map(|entry| entry.attempts - 1).sum()
}
