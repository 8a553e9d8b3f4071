//! Stores, queue, executor and resume routing.

pub mod queue;
