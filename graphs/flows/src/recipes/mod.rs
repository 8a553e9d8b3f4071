//! Recipes: small flows to copy, one file for each way in which people and
//! machines share work. `docs/recipes.md` walks through them and says what the
//! approver sees; the tests in `tests/it/recipes` are what a test of your own
//! flow looks like.
//!
//! | you want | copy |
//! | --- | --- |
//! | a yes or no before a machine acts | [`close_account()`] |
//! | somebody to correct what a machine wrote | [`letter()`] |
//! | to ask for what is missing, until it is right | [`bank_details()`] |
//! | to see, change, answer or refuse one tool call | [`tool_call()`], [`review()`] |
//! | the same for every call of an agent | [`agent()`] |
//! | to stop only if the data says so | [`notice()`] |
//! | one review in several places | [`contract()`], [`review_round()`] |
//! | many reviews side by side | [`tender()`] |
//! | to wait for an event, as long as it may take | [`order()`] |
//! | a call that fails now and then | [`quote()`] |
//!
//! ```
//! # use std::sync::Arc;
//! # use async_trait::async_trait;
//! # use countersign_flows::recipes::{Outside, OutsideError, close_account};
//! # use countersign_kernel::prelude::*;
//! # use futures_util::FutureExt;
//! # use serde_json::{Value, json};
//! struct Bank;
//!
//! #[async_trait]
//! impl Outside for Bank {
//!     async fn call(&self, _key: &str, what: &str, _arguments: &Value) -> Result<Value, OutsideError> {
//!         Ok(json!({"done": what}))
//!     }
//! }
//!
//! # async {
//! let flow = close_account(Arc::new(Bank)).expect("a sound flow");
//! let mut run = Driver::start(flow, json!({"account": "A-7", "reason": "moved"})).await.expect("good input");
//! run.answer(json!({"approved": true})).await.expect("one question is open");
//! assert_eq!(run.state()["confirmation"]["done"], "close_account");
//! # }.now_or_never().expect("in memory");
//! ```

mod agent;
mod approval;
mod dynamic_stop;
mod editing;
mod event;
mod fan_out;
mod input;
mod retry;
mod review_round;
mod tool_call;

use std::sync::Arc;

use async_trait::async_trait;
use countersign_kernel::graph::{CompileError, CompiledGraph};
use serde_json::Value;

pub use agent::{Message, Model, agent};
pub use approval::close_account;
pub use dynamic_stop::notice;
pub use editing::letter;
pub use event::order;
pub use fan_out::tender;
pub use input::bank_details;
pub use retry::quote;
pub use review_round::{Review, contract, review_round};
pub use tool_call::{Call, Reviewed, Rule, review, tool_call};

/// Every recipe, to serve them: see `ops/examples/recipes.rs`.
///
/// # Errors
/// A recipe is not sound; its tests see to it that it is.
pub fn all(outside: &Arc<dyn Outside>, model: Arc<dyn Model>) -> Result<Vec<CompiledGraph>, CompileError> {
    let outside = || Arc::clone(outside);
    Ok(vec![
        close_account(outside())?,
        letter(outside())?,
        bank_details(outside())?,
        tool_call(outside())?,
        agent(model, outside())?,
        notice(outside())?,
        contract()?,
        tender()?,
        order(outside())?,
        quote(outside())?,
    ])
}

/// What the recipes reach outside: the one thing to replace by a client of
/// your own.
#[async_trait]
pub trait Outside: Send + Sync {
    /// Does `what` with `arguments`. Done once per `key`, however often it is
    /// called with it.
    ///
    /// # Errors
    /// It was not done, or nobody knows; calling again with the key is safe.
    async fn call(&self, key: &str, what: &str, arguments: &Value) -> Result<Value, OutsideError>;
}

/// Why something outside was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutsideError {
    /// It will not be done, however often it is asked for.
    #[error("refused: {0}")]
    Refused(String),
    /// There was no reply.
    #[error("no reply: {0}")]
    Unavailable(String),
}
