//! Countersign: a durable job worker with queue-driven approvals.

pub mod app;
pub mod cli;
pub mod config;
