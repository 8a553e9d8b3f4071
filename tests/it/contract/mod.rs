//! What every store promises, run on every backend.
//!
//! A test is a function over a [`Place`](place::Place): a fresh database and a
//! store on it. [`contract!`] makes a test of it for each backend; a module of
//! tests is a concern. Nothing in a body knows the backend.

/// Runs each named function on each backend.
macro_rules! contract {
    ($($test:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $test() {
                super::$test(&crate::contract::place::Place::on(crate::contract::sqlite::open().await)).await;
            })+
        }
        mod postgres {
            $(#[tokio::test]
            async fn $test() {
                super::$test(&crate::contract::place::Place::on(crate::contract::postgres::open().await)).await;
            })+
        }
    };
}

mod access;
mod amendments;
mod archive;
mod audit;
mod batches;
mod claims;
mod commits;
mod control;
mod controls;
mod creation;
mod deliveries;
mod events;
mod frames;
mod group;
mod guard;
mod heads;
mod holds;
mod inner;
mod outbox;
mod overview;
mod place;
mod postgres;
mod race;
mod reads;
mod refusals;
mod resumes;
mod retention;
mod schedules;
mod schema;
mod set_aside;
mod shared;
mod signals;
mod sqlite;
mod sweep;
mod timers;
pub(crate) mod upgrade;
mod votes;
mod workers;
