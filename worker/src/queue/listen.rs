//! Wake-ups from other processes, on Postgres.
//!
//! A trigger of apalis-postgres notifies a channel of every job row that is
//! inserted and due. It is sent with the commit, so whoever fetches then finds
//! the row. On a channel of ours a process [calls](call) the others when it leaves
//! work to them. Nothing depends on either: the carrier also looks by itself, at
//! its interval, and so does the sweep.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use sqlx::PgPool;
use sqlx::postgres::PgListener;
use tokio_util::sync::CancellationToken;

use super::{JobKind, Receiver, Wake};
use crate::store::StoreError;
use crate::store::db::{self, Conn, Dialect};

/// The channel of apalis-postgres' trigger.
const CHANNEL: &str = "apalis::job::insert";

/// The channel on which processes call each other.
const CALLS: &str = "countersign::call";

/// Has every process look for work by itself, once the transaction that `conn`
/// is in commits: there is some whose message is gone. Any number of calls in
/// one transaction are one. On SQLite there is no other process.
///
/// # Errors
/// The database refused.
pub(crate) async fn call(conn: &mut Conn<'_>) -> Result<(), StoreError> {
    if conn.dialect() == Dialect::Postgres {
        db::query("SELECT pg_notify($1, '')").bind(CALLS).execute(conn).await?;
    }
    Ok(())
}

/// The wait before connecting again: doubled from the first to the last with
/// each failure, and back to the first once it works.
const AGAIN_AFTER: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// What the trigger says, as far as it matters here.
#[derive(Deserialize)]
struct Inserted {
    job_type: String,
}

/// Wakes the carrier whenever anybody inserts a job of one of `kinds`, until
/// `shutdown`. Keeps one connection of the pool, and gets another when it is
/// lost.
pub(super) async fn listen(
    pool: PgPool,
    kinds: Vec<JobKind>,
    receiver: Arc<dyn Receiver>,
    wake: Wake,
    shutdown: CancellationToken,
) {
    let listening = async {
        let mut wait = AGAIN_AFTER.0;
        loop {
            let error = match connect(&pool).await {
                Ok(listener) => {
                    wait = AGAIN_AFTER.0;
                    // Whatever was inserted while nobody listened.
                    kinds.iter().for_each(|kind| wake.wake(*kind));
                    receiver.look();
                    hear(listener, &kinds, receiver.as_ref(), &wake).await
                }
                Err(error) => Some(error),
            };
            let error = error.map(|error| error.to_string());
            tracing::warn!(error, ?wait, "nobody tells this process of new jobs; it looks by itself meanwhile");
            tokio::time::sleep(wait).await;
            wait = AGAIN_AFTER.1.min(wait * 2);
        }
    };
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = listening => {}
    }
}

async fn connect(pool: &PgPool) -> Result<PgListener, sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    // Its own way to connect again says nothing of what was missed.
    listener.eager_reconnect(false);
    listener.listen_all([CHANNEL, CALLS]).await?;
    Ok(listener)
}

/// Passes on what is said until the connection is lost, and tells why if that
/// is known.
async fn hear(
    mut listener: PgListener,
    kinds: &[JobKind],
    receiver: &dyn Receiver,
    wake: &Wake,
) -> Option<sqlx::Error> {
    loop {
        match listener.try_recv().await {
            Ok(Some(notification)) if notification.channel() == CALLS => receiver.look(),
            Ok(Some(notification)) => match kind_of(notification.payload()) {
                Some(kind) if kinds.contains(&kind) => wake.wake(kind),
                // Of another queue.
                Some(_) => {}
                None => tracing::debug!("a job of a kind that this version does not know was inserted"),
            },
            Ok(None) => return None,
            Err(error) => return Some(error),
        }
    }
}

fn kind_of(payload: &str) -> Option<JobKind> {
    let inserted: Inserted = serde_json::from_str(payload).ok()?;
    JobKind::from_name(&inserted.job_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_names_its_kind() {
        let said = r#"{"job_type" : "deliver", "id" : "01ARZ3NDEKTSV4RRFFQ69G5FAV", "run_at" : "2026-01-01T00:00:00"}"#;
        assert_eq!(kind_of(said), Some(JobKind::Deliver));
        for other in ["", "insert", "{}", r#"{"job_type": "other"}"#, r#"{"job_type": 1}"#] {
            assert_eq!(kind_of(other), None, "{other}");
        }
    }
}
