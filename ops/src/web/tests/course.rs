//! Changing the course of a thread on its pages, and what becomes of requests.

use countersign_kernel::graph::START;
use countersign_kernel::ids::CheckpointId;
use countersign_kernel::machine::Edit;
use countersign_worker::engine::{EditRequest, Edited};
use countersign_worker::store::views::HistoryEntry;

use super::*;

impl Pages {
    async fn history(&self, thread: &str) -> Vec<HistoryEntry> {
        let thread = ThreadId::parse(thread).expect("id");
        self.state.engine.store().history(&thread, None, None, 50).await.expect("read")
    }

    pub(super) async fn edit(&self, thread: &str, values: Value, as_node: Option<&str>) -> CheckpointId {
        let edit = EditRequest {
            thread: ThreadId::parse(thread).expect("id"),
            edit: Edit { values: values.as_object().cloned(), as_node: as_node.map(str::to_owned) },
            expected_head: None,
            at: None,
            frame: None,
            principal: Principal::person(ADMINISTRATOR),
        };
        match self.state.engine.edit(edit).await {
            Ok(Edited::New { checkpoint, .. }) => checkpoint,
            other => panic!("{other:?}"),
        }
    }
}

fn page_of(entry: &HistoryEntry, thread: &str) -> String {
    format!("/threads/{thread}/checkpoints/{}", entry.checkpoint)
}

#[tokio::test]
async fn the_administrator_runs_again_from_a_checkpoint_and_what_waited_says_so() {
    let pages = Pages::new().await;
    let (admin, bob) = (pages.administrator().await, pages.cookie(&Principal::person("bob@example.com")).await);
    let first = pages.start("expense", "e-1", expense("420.00")).await;
    let link = pages.link("ann", &first);
    let form = format!("{}&approved=true", pages.get(&link).await.hidden());
    let checkpoint = page_of(&pages.history("e-1").await[0], "e-1");

    // Everybody signed in sees it; only the administrator runs it again.
    let page = pages.get_as(&bob, &checkpoint).await.expect(StatusCode::OK, &["State at this point", "420.00"]);
    assert!(!page.body.contains("Run again from here"), "{}", page.body);
    pages.post_as(&bob, &checkpoint, "").await.expect(StatusCode::FORBIDDEN, &[]);
    pages.get(&checkpoint).await.expect(StatusCode::UNAUTHORIZED, &[]);
    let said = ["Run again from here", "One request that waits now is superseded"];
    let page = pages.get_as(&admin, &checkpoint).await.expect(StatusCode::OK, &said);
    assert!(!page.body.contains("may be done again"), "nothing was done yet: {}", page.body);
    let elsewhere = [("cookie", admin.as_str()), ("content-type", "application/x-www-form-urlencoded")];
    pages
        .send(Method::POST, &checkpoint, &elsewhere, "")
        .await
        .expect(StatusCode::FORBIDDEN, &["Not sent from our page"]);
    assert_eq!(pages.interrupt(&first.id).await.status, "open");

    let reply = pages.post_as(&admin, &checkpoint, "").await.expect(StatusCode::SEE_OTHER, &[]);
    assert_eq!(reply.header("location"), "/threads/e-1");
    let second = pages.waiting("e-1").await;
    assert_ne!(first.id, second.id);

    // The old link: what happened, nothing was recorded, the new request.
    let said = [
        "Replaced by a new request",
        "start over from an earlier point",
        "No answer to it was recorded",
        "Pay 420.00 EUR",
        "has a link of its own",
    ];
    let old = pages.get(&link).await.expect(StatusCode::GONE, &said);
    assert!(!old.body.contains(second.id.as_str()), "{}", old.body);
    let said = ["Not recorded", "nothing was recorded", "start over from an earlier point"];
    pages.post(&link, &form).await.expect(StatusCode::GONE, &said);
    let path = format!("/interrupts/{}", first.id);
    let present = format!("href=\"/interrupts/{}\"", second.id);
    pages.get_as(&bob, &path).await.expect(StatusCode::GONE, &[present.as_str(), "It is asked again"]);
    assert_eq!(pages.interrupt(&second.id).await.status, "open");

    // The history tells the line that was left from the present one.
    let thread = pages.get_as(&bob, "/threads/e-1").await.expect(StatusCode::OK, &["run again", "/checkpoints/"]);
    assert_eq!(thread.body.matches("class=\"left\"").count(), 0, "the fork descends from it: {}", thread.body);
}

#[tokio::test]
async fn steps_that_were_done_are_listed_and_have_to_be_confirmed() {
    let pages = Pages::new().await;
    let admin = pages.administrator().await;
    let asked = pages.start("expense", "e-2", expense("420.00")).await;
    let link = pages.link("ann", &asked);
    let form = format!("{}&approved=true", pages.get(&link).await.hidden());
    pages.post(&link, &form).await.expect(StatusCode::SEE_OTHER, &[]);
    let thread = ThreadId::parse("e-2").expect("id");
    for _ in 0..2000 {
        if pages.state.engine.store().thread(&thread).await.expect("read").summary.status == "succeeded" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let history = pages.history("e-2").await;
    let first = page_of(history.last().expect("the input"), "e-2");
    let said = ["done again", "pay", "expense/pay@1", "name=\"re_execute\" value=\"true\" required"];
    pages.get_as(&admin, &first).await.expect(StatusCode::OK, &said);
    pages.post_as(&admin, &first, "").await.expect(StatusCode::CONFLICT, &["confirm that they may be done again"]);
    assert_eq!(pages.history("e-2").await.len(), history.len(), "nothing was made");
    let end = page_of(&history[0], "e-2");
    pages.get_as(&admin, &end).await.expect(StatusCode::OK, &["There is nothing to run from here"]);
    pages.post_as(&admin, &end, "").await.expect(StatusCode::CONFLICT, &["Nothing is left to run"]);

    pages.post_as(&admin, &first, "re_execute=true").await.expect(StatusCode::SEE_OTHER, &[]);
    pages.waiting("e-2").await;
    let thread = pages.get_as(&admin, "/threads/e-2").await.expect(StatusCode::OK, &["marked “left”"]);
    assert_eq!(thread.body.matches("class=\"left\"").count(), 2, "{}", thread.body);
    for (path, said) in [
        ("/threads/e-2/checkpoints/nope", "No such checkpoint"),
        ("/threads/nope/checkpoints/nope", "No such thread"),
        ("/threads/e-2/checkpoints/%20", "No such checkpoint"),
    ] {
        pages.get_as(&admin, path).await.expect(StatusCode::NOT_FOUND, &[said]);
    }
}

#[tokio::test]
async fn an_edit_supersedes_and_the_pause_behind_it_is_released_by_a_button() {
    let pages = Pages::new().await;
    let admin = pages.administrator().await;
    let first = pages.start("expense", "e-3", expense("420.00")).await;
    let link = pages.link("ann", &first);
    pages.edit("e-3", json!({"amount": "50.00"}), Some(START)).await;
    let said = ["has changed the data of the case", "No answer to it was recorded", "you will be asked again"];
    pages.get(&link).await.expect(StatusCode::GONE, &said);

    let pause = pages.waiting("e-3").await;
    assert_eq!(pause.kind, "pause");
    let path = format!("/interrupts/{}", pause.id);
    pages.get_as(&admin, &path).await.expect(StatusCode::OK, &["Go on", "stopped here"]);
    let bob = pages.cookie(&Principal::person("bob@example.com")).await;
    pages.post_as(&bob, &path, "").await.expect(StatusCode::FORBIDDEN, &[]);
    let reply = pages.post_as(&admin, &path, "").await.expect(StatusCode::SEE_OTHER, &[]);
    assert_eq!(reply.header("location"), "/threads/e-3");
    for _ in 0..2000 {
        if pages.history("e-3").await.first().is_some_and(|newest| newest.next.is_empty()) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    pages.get_as(&admin, "/threads/e-3").await.expect(StatusCode::OK, &["50.00", "edit"]);
    // Pressed twice: it is as if pressed once.
    let again = pages.post_as(&admin, &path, "").await;
    assert!(matches!(again.status, StatusCode::OK | StatusCode::SEE_OTHER), "{}", again.status);
}
