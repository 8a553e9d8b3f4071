//! Wake-ups between processes, which go over Postgres.

use std::sync::Arc;
use std::time::Duration;

use countersign_kernel::ports::{Clock as _, Ids as _};
use countersign_worker::queue::{Carrier, JobId, JobKind, Message, Receiver, Wake};
use countersign_worker::store::SqlStore;
use countersign_worker::system::{SystemClock, SystemIds};
use sqlx::{Connection as _, PgConnection};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

use crate::support::postgres::Database;

/// Far below the interval at which apalis' own heartbeat has it look.
const SOON: Duration = Duration::from_secs(10);

struct Heard(UnboundedSender<Message>);

impl Receiver for Heard {
    fn receive(&self, message: Message) {
        let _closed = self.0.send(message);
    }
}

/// Inserts a job as another process does.
async fn insert(other: &mut PgConnection, kind: JobKind) -> JobId {
    let millis = u64::try_from(SystemClock.now().as_micros() / 1000).expect("after 1970");
    let id = JobId::new(millis, u128::from_be_bytes(SystemIds.salt()));
    sqlx::query("INSERT INTO apalis.jobs (id, job_type, job, status, run_at) VALUES ($1, $2, $3, 'Pending', now())")
        .bind(id.to_string())
        .bind(kind.name())
        .bind(br#"{"thread": "elsewhere"}"#.as_slice())
        .execute(other)
        .await
        .expect("inserted");
    id
}

async fn heard(messages: &mut UnboundedReceiver<Message>, what: &str) -> JobId {
    let message = tokio::time::timeout(SOON, messages.recv()).await;
    message.unwrap_or_else(|_| panic!("not heard of soon: {what}")).expect("the carrier runs").id
}

#[tokio::test]
async fn jobs_of_other_processes_are_heard_of_at_once_also_after_the_connection_was_lost() {
    let database = Database::fresh().await;
    let mut other = PgConnection::connect(database.url()).await.expect("another process");
    let store = SqlStore::connect(database.url(), 6).await.expect("a store");
    let carrier = Carrier::new(&store, "hears", Duration::from_hours(1)).of(&[JobKind::Advance]);
    let (sender, mut messages) = unbounded_channel();
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { carrier.run(Arc::new(Heard(sender)), Wake::new(), stop).await }
    });
    for round in 0..3 {
        let left = insert(&mut other, JobKind::Deliver).await;
        let first = insert(&mut other, JobKind::Advance).await;
        assert_eq!(heard(&mut messages, "the first job of a round").await, first, "round {round}");
        // What follows a wake-up by itself must be over.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let second = insert(&mut other, JobKind::Advance).await;
        assert_eq!(heard(&mut messages, "the second job of a round").await, second, "round {round}");
        let waits: i64 = sqlx::query_scalar("SELECT count(*) FROM apalis.jobs WHERE id = $1 AND status = 'Pending'")
            .bind(left.to_string())
            .fetch_one(&mut other)
            .await
            .expect("readable");
        assert_eq!(waits, 1, "a job of another queue is left alone");
        // Inserted while nobody hears it, at the head of the next round.
        let ended: Vec<bool> = sqlx::query_scalar(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND query LIKE 'LISTEN%'",
        )
        .fetch_all(&mut other)
        .await
        .expect("readable");
        assert_eq!(ended, [true], "one connection listens");
    }
    stop.cancel();
    running.await.expect("ended").expect("gave back");
    store.close().await;
    other.close().await.expect("closed");
}
