//! One binary, a module per kind of test.

mod contract;
mod e2e;
mod engine;
mod support;
