//! What the commands say of how to go on, and of what stands in the way.

use serde_json::{Value, json};

use super::kit::{Ended, Place, expense};

#[track_caller]
fn done(ended: Ended) -> Ended {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended
}

#[track_caller]
fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

/// The words of a printed command, without the program's name.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (at, part) in line.trim().split('\'').enumerate() {
        if at % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    assert_eq!(words.remove(0), "countersign", "{line}");
    words
}

async fn follow(place: &Place, shown: &str, begins: &str) -> Ended {
    let line = shown.lines().find(|line| line.trim().starts_with(begins));
    let words = words(line.unwrap_or_else(|| panic!("`{begins}` is not in {shown}")));
    place.run_plain(&words.iter().map(String::as_str).collect::<Vec<_>>()).await
}

/// The seven kinds of question, each answered with the line that is printed for
/// it, by `run` and `threads show` and by `interrupts show`.
#[tokio::test]
async fn a_tour_goes_on_by_the_commands_that_are_printed() {
    let place = Place::new();
    let mut shown = done(place.run_plain(&["run", "hitl_tour", "--input", "{}", "--thread-id", "t-1"]).await);
    for kind in ["input", "select", "multi_select", "approval", "modal", "unlock", "form"] {
        let thread = done(place.run(&["threads", "show", "t-1"]).await);
        let point = &thread.line()["interrupts"][0];
        assert_eq!(point["kind"], kind);
        let alone = done(place.run_plain(&["interrupts", "show", &text(&point["id"])]).await);
        let command = alone.stdout.lines().last().expect("a line");
        assert!(shown.stdout.contains(command) && command.starts_with("countersign answer "), "{command}: {shown:?}");
        assert!(!alone.stdout.contains("\"properties\""), "no schema: {}", alone.stdout);
        let id = text(&point["id"]);
        let odd = place.run_plain(&["answer", &id, r#"{"street": "x", "quantity": 1, "odd": 1}"#]).await;
        let said = if kind == "form" { "has no such field" } else { "unknown member; the answer looks like {" };
        assert!(odd.code == Some(5) && odd.stderr.contains(said), "{kind}: {odd:?}");
        done(follow(&place, &shown.stdout, "countersign answer ").await);
        shown = done(place.run_plain(&["threads", "show", "t-1"]).await);
    }
    assert!(shown.stdout.contains("status   succeeded"), "{}", shown.stdout);
}

#[tokio::test]
async fn a_paused_thread_says_so_until_it_is_let_go_on() {
    let place = Place::new();
    let started = done(place.run(&["run", "expense", "--input", &expense("420.00").to_string()]).await).line().clone();
    let (thread, question) = (text(&started["thread_id"]), text(&started["interrupts"][0]["id"]));
    let release = format!("countersign threads resume {thread} --continue");
    let paused = done(place.run_plain(&["threads", "pause", &thread]).await);
    assert_eq!(paused.stdout, format!("the thread is paused; to let it go on:\n{release}\n"));
    let again = done(place.run_plain(&["threads", "pause", &thread]).await);
    assert!(again.stdout.starts_with("the thread is paused already"), "{again:?}");
    let shown = done(place.run_plain(&["threads", "show", &thread]).await);
    assert!(shown.stdout.contains(&release) && shown.stdout.contains("answers are kept"), "{}", shown.stdout);
    let answered = done(place.run_plain(&["answer", &question, r#"{"approved": true}"#]).await);
    assert!(answered.stdout.ends_with(&format!("the thread is paused; to let it go on:\n{release}\n")), "{answered:?}");
    let ended = done(follow(&place, &answered.stdout, "countersign threads resume").await);
    assert!(ended.stdout.contains("outcome: \"paid\""), "{}", ended.stdout);
}

#[tokio::test]
async fn a_refusal_says_what_happened_and_where_to_go() {
    let place = Place::new();
    let started = done(place.run(&["run", "expense", "--input", &expense("420.00").to_string()]).await).line().clone();
    let (thread, first) = (text(&started["thread_id"]), text(&started["interrupts"][0]["id"]));
    let seen = text(&started["checkpoint_id"]);
    let edit = ["threads", "state", "edit", thread.as_str(), "--values", r#"{"amount": "500.00"}"#];
    done(place.run(&[&edit[..], &["--as-node", "START", "--seen", &seen]].concat()).await);
    let resumed = done(place.run(&["threads", "resume", &thread, "--continue"]).await).line().clone();
    let (second, newest) = (text(&resumed["interrupts"][0]["id"]), text(&resumed["checkpoint_id"]));

    let dropped = place.run_plain(&["answer", &first, r#"{"approved": true}"#]).await;
    let said = ["state of its thread was edited", "nothing was recorded", &format!("interrupts show {second}")];
    assert!(dropped.code == Some(5) && said.iter().all(|part| dropped.stderr.contains(part)), "{dropped:?}");
    let late = place.run_plain(&[&edit[..], &["--seen", &seen]].concat()).await;
    let said = [&newest, "countersign threads history", "(409)"];
    assert!(late.code == Some(5) && said.iter().all(|part| late.stderr.contains(part)), "{late:?}");
    assert_eq!(late.stderr.matches("has changed").count(), 1, "once: {late:?}");
    let case = place.run_plain(&[&edit[..], &["--as-node", "start"]].concat()).await;
    assert!(case.code == Some(5) && case.stderr.contains("did you mean `START`?"), "{case:?}");
    let known = place.run_plain(&["threads", "resume", &thread, "--goto", "audit"]).await;
    assert!(known.stderr.contains("known: finance, manager, pay, END"), "{known:?}");
    let faults = place.run_plain(&["threads", "state", "edit", &thread, "--values", r#"{"nope": 1}"#]).await;
    assert!(faults.stderr.contains("/nope: ") && !faults.stderr.contains("`errors`"), "{faults:?}");
    for words in [
        ["threads", "history", thread.as_str(), "--frame", "xyz"],
        ["threads", "state", "get", thread.as_str(), "--frame=xyz"],
    ] {
        assert_eq!(place.run(&words).await.code, Some(4), "{words:?}");
    }
    assert_eq!(place.run(&[&edit[..], &["--frame", "xyz"]].concat()).await.code, Some(4));
    let word = place.run_plain(&["answer", &second, "yes"]).await;
    assert!(word.code == Some(2) && word.stderr.contains("`yes` is neither JSON nor the name of a file"), "{word:?}");
}

#[tokio::test]
async fn the_api_names_the_field_and_the_nodes() {
    let place = Place::new();
    let server = place.up().await;
    let api = &server.api;
    let thread = api.expense("420.00").await;
    api.question(&thread).await;
    let resume = format!("threads/{thread}/resume");
    for (body, field) in [
        (json!({"goto": "pay"}), "/goto: "),
        (json!({"send": {"to": "pay"}}), "/send: "),
        (json!({"send": [{"to": "pay"}, {"to": 1}]}), "/send/1/to: "),
    ] {
        let problem = api.post(&resume, &body).await.problem(422, "invalid-body");
        assert!(text(&problem["detail"]).starts_with(field), "{field}: {problem}");
    }
    let problem = api.post(&resume, &json!({"send": [{"to": "audit"}]})).await.problem(422, "unknown-node");
    assert_eq!((&problem["node"], &problem["known"]), (&json!("audit"), &json!(["finance", "manager", "pay"])));
}

#[tokio::test]
async fn what_cannot_start_leaves_nothing_behind() {
    let place = Place::new();
    let server = place.up().await;
    let address = server.address().trim_start_matches("http://").to_owned();
    let other = Place::new();
    let refused = other.run(&["up", "--listen", &address]).await;
    assert!(refused.code == Some(6) && refused.stderr.contains("cannot listen on"), "{refused:?}");
    assert!(!other.path().join("data").exists(), "no folder was made");
    let misspelt = other.with("COUNTERSIGN_LISTN", "1");
    let checked = misspelt.run(&["config", "--check"]).await;
    assert!(checked.code == Some(2) && checked.stderr.contains("did you mean COUNTERSIGN_LISTEN?"), "{checked:?}");
}

/// The page of a thread leads to the mail itself, not to the name of its file.
#[tokio::test]
async fn the_page_of_a_thread_leads_to_its_mails() {
    let place = Place::new();
    let server = place.up().await;
    let thread = server.api.expense("420.00").await;
    let question = server.api.question(&thread).await;
    server.api.delivered(&question).await;
    let visitor = server.api.with_token(None);
    let link = text(&server.shown["sign_in_link"]);
    let path = link.strip_prefix(server.api.base()).expect("a link to this server");
    let signed_in = visitor.get(path).await;
    let cookie = signed_in.header("set-cookie").split(';').next().expect("a cookie").to_owned();
    let get = async |path: &str| visitor.send(reqwest::Method::GET, path, &[("cookie", &cookie)], Vec::new()).await;
    let page = get(&format!("/threads/{thread}")).await;
    let mail = page.text.split("href=\"").find(|rest| rest.starts_with("/mailbox/")).expect("a mail");
    let mail = mail.split('"').next().expect("a path");
    assert!(!page.text.contains(".eml"), "{}", page.text);
    let mail = get(mail).await;
    assert!(mail.status == 200 && mail.text.contains("Pay 420.00 EUR to Ines Moreau?"), "{}", mail.text);
}
