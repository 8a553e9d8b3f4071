//! The engine on a real store: what happens when people, crashes and lost
//! messages get between.
//!
//! Tests do not know their database: [`engine!`] makes a test for each, and
//! [`World`](crate::support::World) sees on which it is.

/// Runs each named function on each database.
macro_rules! engine {
    ($($test:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $test() {
                crate::support::On::Sqlite.run(super::$test()).await;
            })+
        }
        mod postgres {
            $(#[tokio::test]
            async fn $test() {
                crate::support::On::Postgres.run(super::$test()).await;
            })+
        }
    };
}

/// Runs each named function also with a Redis that carries the messages, over
/// Postgres: what the queue has a part in.
macro_rules! with_redis {
    ($($test:ident),+ $(,)?) => {
        mod redis {
            $(#[tokio::test]
            async fn $test() {
                crate::support::On::Redis.run(super::$test()).await;
            })+
        }
    };
}

mod amendments;
mod answers;
mod batch;
mod control;
mod crash;
mod delivery;
mod delivery_lost;
mod equality;
mod events;
mod failure;
mod faults;
mod flow_control;
mod graphs;
mod guard;
mod inside;
mod lease;
mod load;
mod nested;
mod over_redis;
mod pauses;
mod queue;
mod random;
mod retention;
mod schedules;
mod serves;
mod shipped;
mod signals;
mod starts;
mod stops;
mod stops_kept;
mod subgraph;
mod time_travel;
mod time_travel_inside;
mod timers;
mod upgrade;
mod versions;
mod versions_once;
mod versions_state;
mod wakes;
