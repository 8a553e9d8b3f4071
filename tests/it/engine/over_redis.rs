//! A Redis that carries messages: it keeps nothing, and losing it loses nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use countersign_kernel::ids::ThreadId;
use countersign_kernel::ports::{Clock as _, Ids as _};
use countersign_worker::queue::{Carrier, JobId, JobKind, Message, Receiver, Wake};
use countersign_worker::store::SqlStore;
use countersign_worker::system::{SystemClock, SystemIds};
use futures_util::future::join_all;
use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

use super::graphs::{Does, in_a_row};
use crate::support::postgres::Database;
use crate::support::redis::{RedisPlace, RedisServer};
use crate::support::{DEADLINE, Gate, On, Runs, TestEngine, World, ann, eventually, eventually_or};

fn world(runs: &Runs, gate: &Gate, nodes: &'static [(&'static str, Does)]) -> World {
    let (runs, gate) = (runs.clone(), gate.clone());
    World::one(move || in_a_row(&runs, &gate, nodes)).carried()
}

/// Waits until so many threads have this status, for as long as it goes on.
async fn count(engine: &TestEngine, status: &str, wanted: u64) {
    let counts = async || -> BTreeMap<String, u64> {
        engine.engine.store().counts().await.expect("counts").threads.into_iter().collect()
    };
    let mut seen = counts().await;
    while seen.get(status) != Some(&wanted) {
        seen = eventually_or(&format!("{wanted} threads are {status}, or more than before"), async || {
            let now = counts().await;
            if now == seen { Err(format!("but {now:?}")) } else { Ok(now) }
        })
        .await;
    }
}

/// Has every message sent that was sent already, but those that are being
/// deleted.
const AGAIN: &str = "UPDATE outbox SET relayed_at = NULL WHERE id IN (SELECT id FROM outbox FOR UPDATE SKIP LOCKED)";

/// What may be left in a Redis through which messages went, and how much of it.
async fn nothing_is_left(redis: &RedisPlace) {
    eventually_or("nothing is left in Redis", async || {
        let left = redis.keys().await;
        // For each kind of job, the one worker that lives, and a note on it.
        let may_be_left = |key: &str, size: u64| {
            (key.ends_with(":workers") && size == 1) || key.contains(":workers:metadata:") || key.ends_with(":signal")
        };
        let all = left.len() <= 3 * JobKind::ALL.len() && left.iter().all(|(key, size)| may_be_left(key, *size));
        if all { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}

#[tokio::test]
async fn two_thousand_messages_leave_nothing_behind() {
    On::Redis
        .run(async {
            let runs = Runs::default();
            let world = world(&runs, &Gate::closed(), &[("a", Does::Work)]).without_sweep().among_others(DEADLINE);
            let (working, asked) = (world.engine().await, world.idle().await);
            for _ in 0..20 {
                join_all((0..100).map(|_| asked.start("flow", json!({})))).await;
            }
            count(&working, "succeeded", 2_000).await;
            assert_eq!(runs.of("a"), 2_000);
            eventually("the outbox is empty", async || (world.jobs().await == 0).then_some(())).await;
            nothing_is_left(world.redis()).await;
            working.stop().await;
        })
        .await;
}

#[tokio::test]
async fn emptied_in_the_middle_of_a_thousand_running_and_a_thousand_parked_threads_all_finish() {
    let redis = RedisServer::start().await;
    On::Redis
        .run(async {
            let (runs, gate) = (Runs::default(), Gate::closed());
            let nodes = &[("asks", Does::Ask), ("hangs", Does::Gated), ("last", Does::Work)];
            let world = world(&runs, &gate, nodes).over(redis.place()).among_others(DEADLINE);
            let world = world.configured(|config| {
                config.concurrency = 1_000;
                config.sweep_every = Duration::from_millis(200);
                config.sweep_grace = Duration::from_millis(500);
            });
            let (one, two) = (world.engine().await, world.engine().await);
            let asked = world.idle().await;
            let mut threads = Vec::new();
            for _ in 0..20 {
                threads.extend(join_all((0..100).map(|_| asked.start("flow", json!({})))).await);
            }
            count(&asked, "parked", 2_000).await;
            let answer = async |threads: &[ThreadId]| {
                for chunk in threads.chunks(50) {
                    join_all(chunk.iter().map(async |thread| {
                        for open in asked.detail(thread).await.interrupts {
                            asked.vote(&open.id, &ann(), json!({"approved": true})).await.expect("accepted");
                        }
                    }))
                    .await;
                }
            };
            let (running, parked) = threads.split_at(1_000);
            answer(&running[..900]).await;
            gate.arrived(500).await;
            redis.flush().await;
            answer(&running[900..]).await;
            redis.flush().await;
            gate.open();
            answer(&parked[..500]).await;
            redis.flush().await;
            answer(&parked[500..]).await;
            count(&asked, "succeeded", 2_000).await;
            assert_eq!((runs.of("asks"), runs.of("hangs"), runs.of("last")), (4_000, 2_000, 2_000));
            one.stop().await;
            two.stop().await;
        })
        .await;
}

#[tokio::test]
async fn without_redis_work_goes_on_and_with_it_again_messages_do() {
    let mut redis = RedisServer::start().await;
    redis.kill().await;
    On::Redis
        .run(async {
            let runs = Runs::default();
            let world = world(&runs, &Gate::closed(), &[("a", Does::Ask), ("b", Does::Work)]);
            let world = world.over(redis.place()).among_others(Duration::from_secs(2));
            // One finds work by itself, as slowly as in production; the other only
            // gets messages.
            let finding = world.engine().await;
            let asked = world.idle().await;
            let (first, second) = (asked.start("flow", json!({})).await, finding.start("flow", json!({})).await);
            for thread in [&first, &second] {
                let open = finding.parked(thread).await;
                asked.vote(&open[0].id, &ann(), json!({"approved": true})).await.expect("accepted");
                finding.rests(thread, "succeeded").await;
            }
            finding.stop().await;
            asked.crash().await;
            let world = world.without_sweep();
            let (carried, asked) = (world.engine().await, world.idle().await);
            let third = asked.start("flow", json!({})).await;
            redis.start_again().await;
            let open = carried.parked(&third).await;
            redis.kill().await;
            asked.vote(&open[0].id, &ann(), json!({"approved": true})).await.expect("accepted");
            redis.start_again().await;
            carried.rests(&third, "succeeded").await;
            assert_eq!((runs.of("a"), runs.of("b")), (6, 3));
            carried.stop().await;
            nothing_is_left(world.redis()).await;
        })
        .await;
}

#[tokio::test]
async fn messages_that_come_twice_late_and_in_another_order_do_everything_once() {
    On::Redis
        .run(async {
            let runs = Runs::default();
            let world = world(&runs, &Gate::closed(), &[("a", Does::Ask), ("b", Does::Work)]);
            let world = world.without_sweep().among_others(DEADLINE);
            let asked = world.idle().await;
            let threads = join_all((0..60).map(|_| asked.start("flow", json!({})))).await;
            let now = SystemClock.now().as_micros();
            // The last one first, over half a second.
            let turned = format!("UPDATE outbox SET run_at = {now} + 500000 - abs(hashtext(id)) % 500000");
            assert_eq!(world.sql(&turned).await, 60);
            let engines = [world.engine().await, world.engine().await];
            for thread in &threads {
                world.sql(AGAIN).await;
                let open = asked.parked(thread).await;
                asked.vote(&open[0].id, &ann(), json!({"approved": true})).await.expect("accepted");
            }
            for thread in &threads {
                world.sql(AGAIN).await;
                assert_eq!(asked.rests(thread, "succeeded").await.state["log"], json!(["a", "b"]));
            }
            assert_eq!((runs.of("a"), runs.of("b")), (120, 60));
            eventually("the outbox is empty", async || (world.jobs().await == 0).then_some(())).await;
            for engine in engines {
                engine.stop().await;
            }
            nothing_is_left(world.redis()).await;
        })
        .await;
}

/// A database with messages in its outbox, and what carries them.
struct Outgoing {
    store: SqlStore,
    redis: RedisPlace,
    conn: PgConnection,
    _database: Database,
}

impl Outgoing {
    async fn new() -> Self {
        let (database, redis) = (Database::fresh().await, RedisPlace::fresh());
        let store = SqlStore::connect(database.url(), 8).await.expect("a store").through(redis.carrier());
        let conn = PgConnection::connect(database.url()).await.expect("a connection");
        Self { store, redis, conn, _database: database }
    }

    /// Puts so many messages into the outbox.
    async fn put(&mut self, messages: u32) {
        let now = SystemClock.now().as_micros();
        for _ in 0..messages {
            let id = JobId::new(u64::try_from(now / 1000).expect("after 1970"), u128::from_be_bytes(SystemIds.salt()));
            sqlx::query(
                "INSERT INTO outbox (id, thread, kind, run_at, created_at) VALUES ($1, 't', 'advance', $2, $2)",
            )
            .bind(id.to_string())
            .bind(now)
            .execute(&mut self.conn)
            .await
            .expect("inserted");
        }
    }

    async fn unrelayed(&mut self) -> i64 {
        let query = sqlx::query_scalar("SELECT count(*) FROM outbox WHERE relayed_at IS NULL");
        query.fetch_one(&mut self.conn).await.expect("readable")
    }

    fn carry(&self, kinds: &[JobKind]) -> Carrying {
        let carrier = Carrier::new(&self.store, "test", Duration::from_millis(20)).of(kinds);
        let (sender, messages) = unbounded_channel();
        let stop = CancellationToken::new();
        let running = tokio::spawn({
            let stop = stop.clone();
            async move { carrier.run(Arc::new(Heard(sender)), Wake::new(), stop).await }
        });
        Carrying { messages, stop, running }
    }
}

struct Heard(UnboundedSender<Message>);

impl Receiver for Heard {
    fn receive(&self, message: Message) {
        let _closed = self.0.send(message);
    }
}

struct Carrying {
    messages: UnboundedReceiver<Message>,
    stop: CancellationToken,
    running: tokio::task::JoinHandle<Result<(), countersign_worker::queue::QueueError>>,
}

impl Carrying {
    async fn next(&mut self) -> JobId {
        tokio::time::timeout(DEADLINE, self.messages.recv()).await.expect("in time").expect("it runs").id
    }

    async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(DEADLINE, self.running).await.expect("in time").expect("no panic").expect("gave back");
    }
}

#[tokio::test]
async fn few_messages_wait_in_redis_and_the_others_in_the_outbox() {
    let mut outgoing = Outgoing::new().await;
    outgoing.put(1_200).await;
    // Nobody fetches.
    let relaying = outgoing.carry(&[]);
    let waiting = async |redis: &RedisPlace| -> u64 {
        let keys = redis.keys().await;
        let data = keys.iter().find(|(key, _)| key.ends_with(":advance:data"));
        data.map_or(0, |(_, messages)| *messages)
    };
    eventually("Redis has its share", async || (waiting(&outgoing.redis).await == 500).then_some(())).await;
    // More rounds of the relay, none of which pushes.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!((waiting(&outgoing.redis).await, outgoing.unrelayed().await), (500, 700));
    let mut carrying = outgoing.carry(&[JobKind::Advance]);
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 1_200 {
        assert!(seen.insert(carrying.next().await), "twice");
    }
    relaying.stop().await;
    carrying.stop().await;
    assert_eq!(outgoing.unrelayed().await, 0);
    nothing_is_left(&outgoing.redis).await;
}

#[tokio::test]
async fn of_two_relays_at_once_each_message_is_taken_by_one() {
    let mut outgoing = Outgoing::new().await;
    let (mut one, mut two) = (outgoing.carry(&JobKind::ALL), outgoing.carry(&JobKind::ALL));
    outgoing.put(1_000).await;
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 1_000 {
        let id = tokio::select! {
            id = one.next() => id,
            id = two.next() => id,
        };
        assert!(seen.insert(id), "twice");
    }
    one.stop().await;
    two.stop().await;
    nothing_is_left(&outgoing.redis).await;
}

#[tokio::test]
async fn what_is_no_message_is_removed_and_stops_nothing() {
    let mut outgoing = Outgoing::new().await;
    let mut carrying = outgoing.carry(&[JobKind::Advance]);
    outgoing.put(1).await;
    carrying.next().await;
    let mut conn = outgoing.redis.connect().await;
    let queue = format!("{}:advance", outgoing.redis.prefix);
    let good = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    for (id, content) in [("no-ulid", "{\"thread\":\"t\"}"), (good, "no json"), ("01ARZ3NDEKTSV4RRFFQ69G5FAW", "{}")] {
        let mut all = redis::pipe();
        all.hset(format!("{queue}:data"), id, content);
        all.hset_multiple(
            format!("{queue}:meta:{id}"),
            &[("attempts", "0"), ("max_attempts", "1"), ("status", "Pending")],
        );
        all.rpush(format!("{queue}:active"), id);
        all.query_async::<()>(&mut conn).await.expect("pushed");
    }
    // Its content was thrown away, as Redis does when it evicts.
    redis::cmd("RPUSH")
        .arg(format!("{queue}:active"))
        .arg("01ARZ3NDEKTSV4RRFFQ69G5FAX")
        .exec_async(&mut conn)
        .await
        .expect("pushed");
    outgoing.put(1).await;
    carrying.next().await;
    // A fetch that met something unreadable has ended its worker, whose name is
    // forgotten.
    nothing_is_left(&outgoing.redis).await;
    carrying.stop().await;
}

#[tokio::test]
async fn a_dead_worker_is_forgotten_with_what_it_held() {
    let outgoing = Outgoing::new().await;
    let mut conn = outgoing.redis.connect().await;
    let queue = format!("{}:deliver", outgoing.redis.prefix);
    let mut dead = redis::pipe();
    dead.zadd(format!("{queue}:workers"), "dead", SystemClock.now().as_micros() / 1_000_000 - 150);
    dead.hset(format!("{queue}:workers:metadata:dead"), "service", "x");
    for number in 0..50 {
        dead.sadd(format!("{queue}:inflight:dead"), number);
        dead.hset(format!("{queue}:data"), number, "{}");
        dead.hset(format!("{queue}:meta:{number}"), "status", "Pending");
    }
    dead.query_async::<()>(&mut conn).await.expect("made");
    let relaying = outgoing.carry(&[]);
    eventually_or("it is forgotten", async || {
        let keys = outgoing.redis.keys().await;
        if keys.is_empty() { Ok(()) } else { Err(format!("{keys:?}")) }
    })
    .await;
    relaying.stop().await;
}
