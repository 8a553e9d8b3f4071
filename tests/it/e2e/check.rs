//! `check`: a new build looks at a data folder while the old one serves it.

use countersign_kernel::graph::{CompiledGraph, GraphBuilder, START};
use countersign_kernel::node::body_fn;
use countersign_kernel::state::Reducer;
use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

use super::kit::{Ended, Place};

/// A data file as an earlier version left it: five threads of shipped flows.
const OLD_FILE: &str = include_str!("../contract/files/migration_0001.sql");

/// `check` of `build` on the data folder of `place`.
async fn check(build: &Place, place: &Place) -> Ended {
    let data = place.path().join("data");
    build.run(&["check", "--data", data.to_str().expect("UTF-8")]).await
}

async fn trip(place: &Place) -> (String, String) {
    let started = place.run(&["run", "trip", "--input", r#"{"budget": 100}"#]).await;
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    (text(&started.line()["thread_id"]), text(&started.line()["interrupts"][0]["id"]))
}

/// Version 2 of `trip`, which asks in a node of this name.
fn trip_two(node: &str, amounts: Reducer) -> CompiledGraph {
    let mut g = GraphBuilder::new("trip", 2);
    g.key("budget", amounts).node(node, body_fn(|_| async { Ok(()) })).edge(START, node);
    g.compile().expect("sound")
}

#[tokio::test]
async fn a_build_is_checked_beside_the_server_that_it_is_to_follow() {
    let (old, new) = (Place::with_flows(), Place::new());
    let server = old.up().await;
    let (thread, question) = trip(&old).await;
    let fine = old.run(&["run", "expense", "--input", &super::kit::expense("420.00").to_string()]).await;
    assert_eq!(fine.code, Some(0), "{fine:?}");
    let before = std::fs::read_dir(old.path().join("data")).expect("a folder").count();

    let same = check(&old, &old).await;
    assert_eq!(
        (same.code, same.line()),
        (Some(0), &json!({"fits": true, "threads": 2, "unfit": [], "missing_migrations": []}))
    );
    let other = check(&new, &old).await;
    assert_eq!((other.code, &other.line()["threads"]), (Some(1), &json!(2)), "{other:?}");
    let unfit = json!([{
        "thread_id": thread, "graph": "trip", "graph_version": 1, "status": "parked",
        "reasons": ["this build has no graph `trip`"],
    }]);
    assert_eq!(other.line()["unfit"], unfit);
    let data = old.path().join("data");
    let plain = new.run_plain(&["check", "--data", data.to_str().expect("UTF-8")]).await;
    assert!(
        plain.stdout.starts_with(&format!("{thread}  trip, version 1, parked\n    this build has no")),
        "{plain:?}"
    );
    assert!(plain.stdout.contains("1 of 2 unfinished threads do not fit this build."), "{plain:?}");

    // Nothing of that was felt: the server has its folder, the thread waits.
    assert_eq!(std::fs::read_dir(&data).expect("a folder").count(), before);
    server.api.get("overview").await.is(200);
    let answered = old.run(&["answer", &question, r#"{"approved": true}"#]).await;
    assert_eq!(answered.code, Some(0), "{answered:?}");
    let left = check(&new, &old).await;
    assert_eq!((left.code, &left.line()["threads"]), (Some(0), &json!(1)), "what has ended is not looked at");
    server.kill().await;
    assert_eq!(check(&new, &old).await.line()["threads"], 1, "also when no server runs");
}

#[tokio::test]
async fn all_that_does_not_fit_another_version_is_named() {
    let old = Place::with_flows();
    let (thread, _) = trip(&old).await;
    let mut config = countersign::config::Config::parse("", "none", &|_: &str| None).expect("the defaults");
    config.data_dir = old.path().join("data");
    let check = async |node, amounts| {
        countersign::app::check(&config, vec![trip_two(node, amounts)]).await.expect("it reads").checked
    };
    assert_eq!(check("ask", Reducer::Last).await.unfit, []);
    let checked = check("other", Reducer::Merge).await;
    let unfit = &checked.unfit[0];
    assert_eq!((checked.threads, unfit.thread.as_str(), unfit.graph_version), (1, thread.as_str(), 1));
    assert_eq!(unfit.reasons.len(), 2, "{:?}", unfit.reasons);
    assert!(unfit.reasons[0].contains("has no node `ask`") && unfit.reasons[1].contains("`budget`"), "{unfit:?}");
}

#[tokio::test]
async fn a_database_of_an_earlier_version_is_checked_on_a_copy() {
    let place = Place::new();
    std::fs::create_dir(place.path().join("data")).expect("a folder");
    let options = SqliteConnectOptions::new().filename(place.data("countersign.db"));
    let mut file = options.clone().create_if_missing(true).connect().await.expect("the file opens");
    sqlx::raw_sql(OLD_FILE).execute(&mut file).await.expect("sound statements");
    file.close().await.expect("written");

    let checked = check(&place, &place).await;
    let line = checked.line();
    assert_eq!((checked.code, &line["fits"], &line["unfit"]), (Some(0), &json!(true), &json!([])), "{checked:?}");
    assert!(line["threads"].as_u64().is_some_and(|threads| threads > 0), "{line}");
    let missing = line["missing_migrations"].as_array().expect("a list");
    assert_eq!(missing.first(), Some(&json!("0002 frames")));
    let plain = place.run_plain(&["check"]).await;
    assert!(plain.stdout.starts_with("The database is that of an earlier version;"), "{plain:?}");

    let mut file = options.connect().await.expect("the file opens");
    let has = sqlx::query_scalar::<_, i64>("SELECT version FROM countersign_migrations").fetch_all(&mut file).await;
    assert_eq!(has.expect("it reads"), [1], "the file itself is as it was");
    file.close().await.expect("read");
    assert_eq!(place.run(&["migrate"]).await.line()["applied"], line["missing_migrations"]);
    assert_eq!(check(&place, &place).await.line()["missing_migrations"], json!([]));
}

#[tokio::test]
async fn what_cannot_be_checked_is_no_all_clear() {
    let place = Place::new();
    let nothing = check(&place, &place).await;
    assert_eq!(nothing.code, Some(1), "{nothing:?}");
    assert!(nothing.stderr.contains("there is no database at") && nothing.stderr.contains("--data"), "{nothing:?}");
    assert!(!place.path().join("data").exists(), "nothing was made");
    let server = place.run(&["check", "--server", "http://127.0.0.1:1"]).await;
    assert_eq!(server.code, Some(2), "{server:?}");

    std::fs::create_dir(place.path().join("data")).expect("a folder");
    std::fs::write(place.data("countersign.db"), "no database at all, but text of some length").expect("written");
    assert_eq!(check(&place, &place).await.code, Some(1));
    std::fs::remove_file(place.data("countersign.db")).expect("removed");
    assert_eq!(place.run(&["migrate"]).await.code, Some(0));
    let options = SqliteConnectOptions::new().filename(place.data("countersign.db"));
    let mut file = options.connect().await.expect("the file opens");
    let newer = "INSERT INTO countersign_migrations (version, description, success, checksum, execution_time)
                 VALUES (9999, 'of the future', 1, x'00', 0)";
    sqlx::query(newer).execute(&mut file).await.expect("written");
    file.close().await.expect("written");
    let newer = check(&place, &place).await;
    assert_eq!(newer.code, Some(1));
    assert!(newer.stderr.contains("newer version of the program (migration 9999)"), "{newer:?}");
}
