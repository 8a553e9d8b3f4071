//! Countersign: a durable job worker with queue-driven approvals.
//!
//! This crate is what runs: the command line ([`cli`]), the configuration
//! ([`config`]), the HTTP API ([`api`]), the pages ([`web`]), and the wiring of
//! all of it ([`app`]).

pub mod api;
pub mod app;
pub mod cli;
pub mod config;
mod held_back;
mod line;
mod metrics;
mod overview;
pub mod state;
pub mod strict_json;
mod succession;
pub mod web;
