//! The kernel of Countersign: graphs, interrupts, approval policy. It decides;
//! others do.
//!
//! No clock, no randomness, no database, no runtime: instants, ids and effects
//! come in through [`ports`], so that a test can drive all of it. Node bodies
//! are async functions that whoever drives the [`machine`] runs.
//!
//! - Writing a flow: [`graph::Graph`], [`state::State`], [`context::Context`]
//!   and the questions in [`question`]. Start with [`prelude`].
//! - Testing a flow: [`driver::Driver`].
//! - Driving a thread: [`machine::Position`].
//!
//! Marks such as (K7) and (R26) number the rules of the semantics: what holds
//! the same rule, in code or in a test, carries the same mark. The promises
//! that they add up to are in ARCHITECTURE.md, each with its tests.

pub mod address;
pub mod canonical;
pub mod context;
pub mod driver;
pub mod fault;
pub mod graph;
pub mod ids;
pub mod limits;
pub mod machine;
pub mod node;
pub mod occurrence;
pub mod policy;
pub mod ports;
pub mod principal;
pub mod question;
pub mod resources;
pub mod state;
pub mod time;

/// What a flow needs, in one line.
pub mod prelude {
    pub use countersign_derive::State;

    pub use crate::context::{Context, Resumption, Slot};
    pub use crate::driver::Driver;
    pub use crate::fault::Fault;
    pub use crate::graph::{CompiledGraph, Graph, NodeRef, Target};
    pub use crate::node::{NodeError, NodeResult};
    pub use crate::principal::{Principal, person, role};
    pub use crate::question::{Ask, Decision, Filled, approval, form, input, modal, multi_select, select, unlock};
    pub use crate::state::State;
}
