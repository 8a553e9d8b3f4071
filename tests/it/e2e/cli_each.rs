//! Files of rows: started, repeated, continued, answered.

use serde_json::{Value, json};

use super::kit::{Api, PayFile, Place, paid_once};

/// A file that answers every open question with yes.
async fn approvals(api: &Api) -> (String, usize) {
    let mut lines = String::new();
    let mut count = 0;
    let mut cursor = String::new();
    loop {
        let page = api.get(&format!("interrupts?status=open&limit=500{cursor}")).await.is(200);
        for interrupt in page["items"].as_array().expect("a list") {
            let line = json!({"interrupt": interrupt["id"], "answer": {"approved": true}});
            lines.push_str(&format!("{line}\n"));
            count += 1;
        }
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return (lines, count),
        }
    }
}

/// Goes through a whole file: start, repeat, answer, repeat.
async fn whole(count: usize) {
    let place = Place::new();
    let file = PayFile::first(count);
    let path = place.file("payments.csv", &file.text);
    let run = ["run", "payment", "--each", &path];
    let first = place.run(&run).await;
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    let asked = file.asked();
    let threads = json!({"parked": asked, "succeeded": count - asked});
    let summary = |started: usize, there: usize| json!({"rows": count, "started": started, "already_there": there, "failed_rows": 0, "threads": threads});
    assert_eq!(*first.summary(), summary(count, 0));
    assert_eq!(first.lines.len(), count + 1, "a line per row");
    let mails = place.mails();
    assert_eq!(mails.len(), asked, "a mail each");
    assert_eq!(mails.iter().map(|mail| &mail.message_id).collect::<std::collections::BTreeSet<_>>().len(), asked);
    assert_eq!(paid_once(&place.ledger().await, &file.unasked()), 0);

    let second = place.run(&run).await;
    assert_eq!((second.code, second.summary()), (Some(0), &summary(0, count)));
    assert_eq!(place.mails().len(), asked);

    let server = place.up().await;
    let (lines, found) = approvals(&server.api).await;
    assert_eq!(found, asked);
    let answers = place.file("answers.jsonl", &lines);
    let answered = place.run(&["answer", "--each", &answers]).await;
    assert_eq!(answered.code, Some(0), "{}", answered.stderr);
    let summary = answered.summary();
    assert_eq!((&summary["decided"], &summary["failed_rows"]), (&json!(asked), &json!(0)));
    assert_eq!((&summary["threads"]["succeeded"], &summary["threads"]["parked"]), (&json!(count), &json!(0)));
    let again = place.run(&["answer", "--each", &answers]).await;
    assert_eq!((again.code, &again.summary()["already_answered"]), (Some(0), &json!(asked)));
    assert_eq!(paid_once(&place.ledger().await, &file.rows), 0, "nothing was even tried twice");
    let overview = server.api.get("overview").await.is(200);
    assert_eq!((&overview["dead_letters"], &overview["requests_open"]), (&json!(0), &json!(0)), "{overview}");
}

#[tokio::test]
async fn two_hundred_real_payments() {
    whole(200).await;
}

#[tokio::test]
async fn all_fifteen_hundred_real_payments() {
    whole(1_500).await;
}

#[tokio::test]
async fn of_a_longer_file_only_the_new_rows_start() {
    let place = Place::new();
    let path = place.file("payments.csv", &PayFile::first(40).text);
    let run = ["run", "payment", "--each", &path];
    assert_eq!(place.run(&run).await.summary()["started"], 40);
    let longer = PayFile::first(55);
    place.file("payments.csv", &longer.text);
    let second = place.run(&run).await;
    assert_eq!(second.code, Some(0), "{}", second.stderr);
    assert_eq!((&second.summary()["started"], &second.summary()["already_there"]), (&json!(15), &json!(40)));
    assert_eq!(place.mails().len(), longer.asked());
    assert_eq!(paid_once(&place.ledger().await, &longer.unasked()), 0);
    // The same rows in another order, with other columns first, are the same.
    let (header, rows) = longer.text.split_once('\n').expect("a header");
    let mut rows: Vec<&str> = rows.lines().collect();
    rows.reverse();
    place.file("payments.csv", &format!("{header}\n{}\n", rows.join("\n")));
    assert_eq!(place.run(&run).await.summary()["already_there"], 55);
}

#[tokio::test]
async fn equal_rows_are_different_payments_and_a_key_makes_them_one() {
    let place = Place::new();
    let row = "7001,Thames Water,10.00\n";
    let path = place.file("rows.csv", &format!("Trans No,Supplier Name,Amount\n{row}{row}{row}"));
    let plain = place.run(&["run", "payment", "--each", &path]).await;
    assert_eq!((plain.code, &plain.summary()["started"]), (Some(0), &json!(3)));
    assert_eq!(place.ledger().await.len(), 3);
    let keyed = place.run(&["run", "payment", "--each", &path, "--key", "Trans No"]).await;
    assert_eq!((&keyed.summary()["started"], &keyed.summary()["already_there"]), (&json!(1), &json!(2)));
    assert_eq!(place.ledger().await.len(), 4);
    // The same key with another content is no repetition.
    let path = place.file("rows.csv", "Trans No,Supplier Name,Amount\n7001,Thames Water,11.00\n");
    let other = place.run(&["run", "payment", "--each", &path, "--key", "Trans No"]).await;
    assert_eq!((other.code, &other.summary()["failed_rows"]), (Some(3), &json!(1)));
    assert!(other.stderr.contains("7001"), "{}", other.stderr);
    assert_eq!(place.ledger().await.len(), 4);
}

#[tokio::test]
async fn rows_that_cannot_be_read_are_named_and_the_others_go_on() {
    let place = Place::new();
    let text = "Trans No,Supplier Name,Amount\n\
                1,Thames Water,\"1,250.40\"\n\
                2,,10\n\
                3,Thames Water,ten\n\
                4,Thames Water,10,surplus\n\
                5,Thames Water,(310.00)\n\
                6,Thames Water, £20 \n";
    let path = place.file("rows.csv", text);
    let ended = place.run(&["run", "payment", "--each", &path]).await;
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert_eq!((&ended.summary()["started"], &ended.summary()["failed_rows"]), (&json!(3), &json!(3)));
    for place in ["row 2 (line 3)", "row 3 (line 4)", "row 4 (line 5)"] {
        assert!(ended.stderr.contains(place), "{place}: {}", ended.stderr);
    }
    let failed: Vec<&Value> = ended.lines.iter().filter(|line| line["outcome"] == "failed").collect();
    assert!(failed.iter().all(|line| line["error"].is_string()), "{failed:?}");
    assert_eq!(place.ledger().await.len(), 2, "the credit is not paid");
}

#[tokio::test]
async fn answers_that_do_not_fit_are_named_and_the_others_count() {
    let place = Place::new();
    let server = place.up().await;
    let one = server.api.expense("420.00").await;
    let two = server.api.expense("430.00").await;
    let (one, two) = (server.api.question(&one).await, server.api.question(&two).await);
    let text = format!(
        "interrupt,answer\n{one},\"{{\"\"approved\"\": true}}\"\n{two},\"{{\"\"approved\"\": 7}}\"\n{},{{}}\nx,{{\n",
        "0".repeat(32)
    );
    let path = place.file("answers.csv", &text);
    let ended = place.run(&["answer", "--each", &path]).await;
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert_eq!((&ended.summary()["decided"], &ended.summary()["failed_rows"]), (&json!(1), &json!(3)));
    for place in ["row 2", "row 3", "row 4"] {
        assert!(ended.stderr.contains(place), "{place}: {}", ended.stderr);
    }
    assert_eq!(server.api.get(&format!("interrupts/{two}")).await.is(200)["status"], "open");
}
