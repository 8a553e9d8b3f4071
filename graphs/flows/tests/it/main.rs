//! The flow `payment` over a real file, row by row; and the recipes.

mod recipes;

use std::sync::Arc;

use countersign_flows::{InMemoryLedger, Ledger, payment};
use countersign_kernel::driver::Driver;
use countersign_kernel::machine::Rest;
use futures_util::FutureExt;
use serde_json::{Map, Value};

const FILE: &str = include_str!("../data/payments.csv");

#[derive(Debug, Default, PartialEq)]
struct Counts {
    paid: u32,
    waiting: u32,
    skipped: u32,
    refused: u32,
}

fn rows() -> Vec<Map<String, Value>> {
    let mut reader = csv::Reader::from_reader(FILE.as_bytes());
    let columns = reader.headers().expect("a header").clone();
    reader
        .records()
        .map(|row| columns.iter().map(str::to_owned).zip(row.expect("a row").iter().map(Value::from)).collect())
        .collect()
}

/// Counted without the flow: cents as integers.
fn by_hand() -> (Counts, i64) {
    let mut counts = Counts::default();
    let mut paid_cents = 0;
    for row in rows() {
        let text = row["amount"].as_str().unwrap_or_default().trim();
        let (pounds, pence) = text.split_once('.').unwrap_or((text, ""));
        match format!("{pounds}{pence:0<2}").parse::<i64>() {
            Err(_) => counts.refused += 1,
            Ok(cents) if cents <= 0 => counts.skipped += 1,
            Ok(cents) if cents >= 500_000 => counts.waiting += 1,
            Ok(cents) => {
                counts.paid += 1;
                paid_cents += cents;
            }
        }
    }
    (counts, paid_cents)
}

/// Runs each row as a thread of its own, with a ledger of its own: threads of
/// the driver all have one salt, hence one key.
fn by_flow(rows: Vec<Map<String, Value>>) -> (Counts, i64) {
    let mut counts = Counts::default();
    let mut paid_cents = 0;
    for row in rows {
        let ledger = Arc::new(InMemoryLedger::new());
        let flow = payment(Arc::clone(&ledger) as Arc<dyn Ledger>).expect("sound");
        match Driver::start(flow, Value::Object(row)).now_or_never().expect("in memory") {
            Err(_) => counts.refused += 1,
            Ok(run) if run.rest() == Rest::Parked => counts.waiting += 1,
            Ok(run) if run.state()["outcome"] == "paid" => counts.paid += 1,
            Ok(run) => {
                assert_eq!(run.state()["outcome"], "skipped");
                counts.skipped += 1;
            }
        }
        for payment in ledger.payments() {
            paid_cents += String::from(payment.amount).replace('.', "").parse::<i64>().expect("cents");
        }
    }
    (counts, paid_cents)
}

#[test]
fn every_row_of_a_real_file_ends_where_its_amount_says() {
    let (counts, paid_cents) = by_flow(rows());
    assert_eq!((&counts, paid_cents), (&by_hand().0, by_hand().1));
    assert_eq!(counts, Counts { paid: 1351, waiting: 149, skipped: 0, refused: 0 });
}

#[test]
fn another_spelling_of_the_same_file_gives_the_same() {
    let respelled = rows().into_iter().map(|row| {
        let cells = row.into_iter().map(|(column, cell)| match (column.as_str(), cell.as_str()) {
            ("amount", Some(text)) => {
                let (pounds, pence) = text.split_once('.').unwrap_or((text, "00"));
                let (thousands, rest) = pounds.split_at(pounds.len().saturating_sub(3));
                let comma = if thousands.is_empty() { "" } else { "," };
                ("Amount (£)".to_owned(), Value::from(format!(" £{thousands}{comma}{rest}.{pence} ")))
            }
            _ => (column.replace('_', " ").to_uppercase(), cell),
        });
        cells.collect()
    });
    assert_eq!(by_flow(respelled.collect()), by_hand());
}

#[test]
fn the_same_file_as_credits_pays_nobody() {
    let credits = rows().into_iter().map(|mut row| {
        let amount = format!("({})", row["amount"].as_str().unwrap_or_default());
        row.insert("amount".into(), amount.into());
        row
    });
    let skipped = Counts { skipped: 1500, ..Counts::default() };
    assert_eq!(by_flow(credits.collect()), (skipped, 0));
}
