//! Files as people really write them.

use serde_json::json;

use super::*;

fn source(name: &str, text: &str) -> Result<Source, String> {
    Source::of(Path::new(name), text.as_bytes().to_vec())
}

fn rows(name: &str, text: &str) -> Vec<Row> {
    source(name, text).expect("readable").rows().collect()
}

fn contents(name: &str, text: &str) -> Vec<Value> {
    rows(name, text).into_iter().map(|row| Value::Object(row.content.expect("row"))).collect()
}

fn ids(key: Option<&str>, name: &str, text: &str) -> Vec<String> {
    let mut identities = Identities::new("payment", key);
    rows(name, text).iter().map(|row| identities.next(row.content.as_ref().expect("row")).expect("id")).collect()
}

#[test]
fn cells_are_trimmed_and_quotes_understood() {
    let text = "\u{feff}trans_no, name \r\n1 ,\"Smith, \"\"J\"\" \nLtd.\" \r\n\r\n 2,\u{a0}Müller \r\n";
    let rows = rows("x.csv", text);
    assert_eq!(rows.len(), 2);
    assert_eq!(
        rows[0].content,
        Ok(json!({"trans_no": "1", "name": "Smith, \"J\" \nLtd."}).as_object().cloned().expect("object"))
    );
    assert_eq!(rows[1].content.as_ref().expect("row")["name"], "Müller");
    assert_eq!((rows[0].number, rows[0].line), (1, 2));
    assert_eq!((rows[1].number, rows[1].line), (2, 5));
}

#[test]
fn a_row_that_cannot_be_read_is_reported_and_the_others_go_on() {
    let mut bytes = b"a,b\n1,2\n3\n4,5,6\n7,\xa3\n8,9\n".to_vec();
    let source = Source::of(Path::new("x.csv"), std::mem::take(&mut bytes)).expect("readable");
    let said: Vec<_> = source.rows().map(|row| (row.place(), row.content.err())).collect();
    assert_eq!(said[0], ("row 1 (line 2)".to_owned(), None));
    assert_eq!(said[1], ("row 2 (line 3)".to_owned(), Some("it has 1 columns, the header has 2".to_owned())));
    assert_eq!(said[2], ("row 3 (line 4)".to_owned(), Some("it has 3 columns, the header has 2".to_owned())));
    assert!(said[3].1.as_ref().is_some_and(|what| what.contains("`b` is not UTF-8")), "{said:?}");
    assert_eq!(said[4].1, None);
    assert_eq!(source.count(), 5);
}

#[test]
fn a_quote_that_is_never_closed_swallows_no_rows() {
    let said = |text: &str| -> Vec<_> { rows("x.csv", text).into_iter().map(|row| row.content.is_ok()).collect() };
    assert_eq!(said("a,b\n1,2\n3,\"4\n5,6\n7,8\n"), [true, false]);
    assert_eq!(said("a,b\n1,2\n3,\"4"), [true, false]);
    assert_eq!(said("a,b\n1,2\n3,\"4\""), [true, true]);
    assert_eq!(said("a,b\n1,2\n3,4\"\""), [true, true]);
    assert_eq!(said("a,b\r\n1,\"2\r\n\"\r\n\r\n"), [true]);
    assert_eq!(said("a\nend"), [true]);
    assert!(source("x.csv", "a,\"b\n1,2\n").expect_err("the header").contains("never closed"));
}

#[test]
fn a_header_that_is_ambiguous_is_refused() {
    assert_eq!(source("x.csv", "a, b,a \n1,2,3").expect_err("twice"), "columns 1 and 3 are both named `a`");
    assert_eq!(source("x.csv", "a,,c\n1,2,3").expect_err("nameless"), "column 2 has no name in the header");
    for empty in ["", "\u{feff}", "\n \n"] {
        assert_eq!(source("x.csv", empty).expect_err("empty"), "the file is empty");
    }
    assert_eq!(rows("x.csv", "a,b\n"), []);
    assert!(Source::of(Path::new("x.csv"), vec![0xff, 0xfe, b'a', 0]).expect_err("UTF-16").contains("UTF-8"));
}

#[test]
fn the_separator_is_recognised() {
    assert_eq!(contents("x.csv", "a;b\n1,5;2"), [json!({"a": "1,5", "b": "2"})]);
    assert_eq!(contents("x.tsv", "a\tb\n1,5\t2"), [json!({"a": "1,5", "b": "2"})]);
    assert_eq!(contents("-", "\"a;x;y\",b\n1,2"), [json!({"a;x;y": "1", "b": "2"})]);
    assert_eq!(contents("x.csv", "a\n1"), [json!({"a": "1"})]);
}

#[test]
fn lines_of_json_are_taken_as_they_are() {
    let text = "\u{feff}{\"a\": 1, \"b\": \" x \"}\r\n\n{\"a\": }\n[1]\n{\"a\": 2}";
    let rows = rows("x.jsonl", text);
    assert_eq!(
        rows.iter().map(Row::place).collect::<Vec<_>>().join(", "),
        "row 1 (line 1), row 2 (line 3), row 3 (line 4), row 4 (line 5)"
    );
    assert_eq!(rows[0].content.as_ref().expect("row")["b"], " x ");
    assert_eq!(rows[1].content, Err("the line is not JSON (column 7): expected value".to_owned()));
    assert_eq!(rows[2].content, Err("the line is not a JSON object".to_owned()));
    assert!(rows[3].content.is_ok());
}

#[test]
fn the_kind_of_file_is_sniffed_without_an_extension() {
    assert!(matches!(source("-", " {\"a\": 1}"), Ok(Source::Jsonl(_))));
    assert!(matches!(source("x.txt", "a,b\n1,2"), Ok(Source::Csv(_))));
    assert!(source("x.json", "[{}]").expect_err("array").contains("one object per line"));
}

#[test]
fn equal_rows_are_different_threads_and_appending_keeps_ids() {
    let before = ids(None, "x.csv", "a,b\n1,2\n1,2\n3,4\n");
    assert_eq!(before.len(), 3);
    assert_ne!(before[0], before[1]);
    assert_eq!(before[0].len(), "payment-".len() + 32);
    let after = ids(None, "x.csv", "a,b\n1,2\n1,2\n3,4\n1,2\n5,6\n");
    assert_eq!(after[..3], before);
    assert!(!before.contains(&after[3]));
}

#[test]
fn an_id_is_stable_across_releases() {
    assert_eq!(ids(None, "x.csv", "a,b\n1,2\n"), ["payment-da1492c312e81d5ba8b5e374454f72b7"]);
    assert_eq!(ids(Some("a"), "x.csv", "a,b\n1,2\n"), ["payment-2e5c1e4a662b7097b220361a216c90c3"]);
}

#[test]
fn neither_the_order_of_columns_nor_spaces_around_cells_matter() {
    assert_eq!(ids(None, "x.csv", "a,b\n1,2\n"), ids(None, "x.csv", "b,a\n 2 , 1\n"));
    assert_eq!(ids(None, "x.csv", "a,b\n1,2\n"), ids(None, "x.jsonl", "{\"b\": \"2\", \"a\": \"1\"}"));
    assert_ne!(ids(None, "x.csv", "a,b\n1,2\n"), ids(None, "x.csv", "a,c\n1,2\n"));
}

#[test]
fn with_a_key_only_the_key_counts() {
    let first = ids(Some("a"), "x.csv", "a,b\n1,2\n");
    assert_eq!(first, ids(Some("a"), "x.csv", "a,b\n1,changed\n"));
    assert_eq!(first, ids(Some("a"), "x.jsonl", "{\"a\": 1}"));
    let mut identities = Identities::new("payment", Some("a"));
    for (row, said) in
        [(json!({"a": " "}), "empty"), (json!({"b": 1}), "missing"), (json!({"a": []}), "text or a number")]
    {
        let error = identities.next(row.as_object().expect("object")).expect_err("no key");
        assert!(error.contains(said), "{error}");
    }
    let missing = source("x.csv", "a,b\n1,2").expect("readable").require_column("c").expect_err("no column");
    assert!(missing.message.ends_with("no column `c`; its columns: a, b"), "{missing}");
}
