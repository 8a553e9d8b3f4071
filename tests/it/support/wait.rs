//! Waiting for a condition, not for a time.

use std::time::Duration;

/// How long a condition may take to come true. Generous: a machine under load
/// is slow, and what never comes true is found all the same.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Looks until `look` finds something, and returns it.
pub(crate) async fn eventually<T, Fut>(what: &str, mut look: impl FnMut() -> Fut) -> T
where
    Fut: Future<Output = Option<T>>,
{
    eventually_or(what, || {
        let look = look();
        async move { look.await.ok_or_else(String::new) }
    })
    .await
}

/// As [`eventually`], for a look that says what it saw instead.
pub(crate) async fn eventually_or<T, Fut>(what: &str, mut look: impl FnMut() -> Fut) -> T
where
    Fut: Future<Output = Result<T, String>>,
{
    let mut saw = String::new();
    let found = tokio::time::timeout(DEADLINE, async {
        let mut pause = Duration::from_millis(1);
        loop {
            match look().await {
                Ok(found) => return found,
                Err(instead) => saw = instead,
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    })
    .await;
    found.unwrap_or_else(|_| panic!("not within {DEADLINE:?}: {what} {saw}"))
}
