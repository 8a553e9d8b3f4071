//! What the end-to-end tests share: the real program as a process in a folder
//! of its own, and those it talks to.

mod binary;
mod http;
mod mail;
mod place;
mod rows;
mod smtp;

use std::time::Duration;

pub(crate) use http::{Api, Reply, expense, identities};
pub(crate) use mail::Letter;
pub(crate) use place::{Ended, Place, Server};
pub(crate) use rows::{PayFile, paid_once};
pub(crate) use smtp::{Authority, Protection, Silent, Smtp, SmtpSetup};

/// How long a condition may take to come true, on a machine under load.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Looks until `look` finds something, and returns it; says what it saw last
/// if it never does.
pub(crate) async fn eventually<T, Fut>(what: &str, mut look: impl FnMut() -> Fut) -> T
where
    Fut: Future<Output = Result<T, String>>,
{
    let mut saw = String::new();
    let found = tokio::time::timeout(DEADLINE, async {
        let mut pause = Duration::from_millis(2);
        loop {
            match look().await {
                Ok(found) => return found,
                Err(instead) => saw = instead,
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    })
    .await;
    found.unwrap_or_else(|_| panic!("not within {DEADLINE:?}: {what}; last seen: {saw}"))
}
