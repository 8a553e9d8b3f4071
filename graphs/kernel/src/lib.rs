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
//!
//! | Rule | What it says | Where |
//! | --- | --- | --- |
//! | K1 | everything that asks is an occurrence with an address | [`address`] |
//! | K2 | a point's id is derived, stable while it waits, and never used twice | [`address::Address::interrupt_id`] |
//! | K3 | what is stored of a point is enough to list it | [`occurrence::QuestionRecord`], [`machine::Point`] |
//! | K4 | a stop is the end of a whole attempt | [`machine::Position::next`] |
//! | K5 | an answer may be bare | [`question::Answered`] |
//! | K6 | one record for asking in the code and for suspending | [`occurrence`] |
//! | K7 | only what was answered runs | [`machine::Position::answer`], [`context::Context::child`] |
//! | K8 | the switch that runs siblings too is not built: a component that wants to be run sees a resume-all | |
//! | K9 | a run that is repeated has the same input | [`machine::Position::put_back`], [`context::Context::argument`] |
//! | K10 | resume-all runs everything that waits and answers nothing | [`machine::Resume`] |
//! | K11 | a request is taken whole or refused with its reason | [`machine::AnswerRefused`], [`driver::Refused`] |
//! | K12 | static stops are points at a border | [`machine::BorderPoint`] |
//! | K13 | failures keep finished work and raised points | [`machine::Position::complete`], [`machine::Position::answer_again`] |
//! | K14 | a checkpoint per superstep; what cannot be encoded is refused at once | [`machine::Position::settle`], [`state::Writes`] |
//! | K15 | new input drops what waits only when told to | [`machine::Position::restart`] |
//! | K16 | a slot of a batch keeps its result | [`context::Context::batch`] |
//! | K17 | a graph in a body is a frame of the same checkpoint | [`context::Context::graph`] |
//! | K18 | containers that say so take data | [`context::Context::container`] |
//! | K19 | of two answers to one point one is taken: the store's inbox, and here by state | [`machine::Position::answer`] |
//! | K20 | what a body no longer asks is closed | [`machine::Position::complete`] |
//! | K21 | deadlines are data; a point that waits for an instant is answered when it has come | [`question::Deadline`], [`context::Context::sleep`] |
//! | K22 | a stop is no error, and a start says why | [`node::NodeError::Interrupted`], [`machine::RunAs`] |

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

    pub use crate::context::{Context, Resumption, Signed, Slot};
    pub use crate::driver::Driver;
    pub use crate::fault::Fault;
    pub use crate::graph::{CompiledGraph, Graph, NodeRef, Target};
    pub use crate::node::{NodeError, NodePolicy, NodeResult, Outcome, RetryPolicy};
    pub use crate::principal::{Principal, person, role};
    pub use crate::question::{
        Ask, Decision, Filled, OnDeadline, approval, form, input, modal, multi_select, select, unlock,
    };
    pub use crate::state::State;
}
