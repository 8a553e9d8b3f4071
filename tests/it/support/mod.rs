//! What the tests share: counters, gates, people, waiting, databases, engines.

mod channel;
mod clock;
mod counters;
mod data;
mod faulty;
pub(crate) mod flows;
mod people;
pub(crate) mod postgres;
pub(crate) mod redis;
mod wait;
mod world;

pub(crate) use channel::Outbox;
pub(crate) use clock::Ahead;
pub(crate) use counters::{Gate, Runs};
pub(crate) use data::On;
pub(crate) use faulty::{Dies, Fate};
pub(crate) use people::{People, ann, bob, cy, operator};
pub(crate) use wait::{DEADLINE, eventually, eventually_or};
pub(crate) use world::{TestEngine, World};
