//! Trying a node as often as its policy says.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use futures_util::future::{Either, FutureExt, select};

use super::policy::NodePolicy;
use super::spec::{NodeKind, run_subgraph};
use super::{NodeError, NodeResult, Outcome};
use crate::context::Context;

pub(super) async fn run_attempts(kind: &NodeKind, policy: &NodePolicy, cx: Context) -> NodeResult<Outcome> {
    let most = policy.retry.as_ref().map_or(1, |retry| retry.max_attempts.max(1));
    let mut attempt = 1;
    loop {
        let result = one_attempt(kind, policy, cx.attempt_number(attempt)).await;
        // A question that is open is answered first: what failed beside it
        // stays failed until then.
        let Err(NodeError::Failed(message)) = result else { return result };
        if attempt >= most || cx.is_waiting() || cx.missed_a_deadline() {
            return Err(NodeError::Failed(message));
        }
        if let Some(retry) = &policy.retry {
            let wait = retry.wait_after(attempt);
            if !wait.is_zero() {
                cx.host().timers.wait(wait).await;
            }
        }
        attempt += 1;
    }
}

async fn one_attempt(kind: &NodeKind, policy: &NodePolicy, cx: Context) -> NodeResult<Outcome> {
    let timers = cx.host().timers.clone();
    let run = caught(async {
        match kind {
            NodeKind::Body(body) => body.run(cx).await,
            NodeKind::Graph { graph, mapping } => run_subgraph(graph, mapping, cx).await,
        }
    });
    let Some(timeout) = policy.timeout else { return run.await };
    let limit = timers.limit(timeout);
    match select(std::pin::pin!(run), limit).await {
        Either::Left((result, _)) => result,
        Either::Right(((), _)) => Err(NodeError::Failed(format!("timed out after {timeout:?}"))),
    }
}

/// A panic of a body is a failure of its node and of nothing else.
pub(super) async fn caught(run: impl Future<Output = NodeResult<Outcome>>) -> NodeResult<Outcome> {
    match AssertUnwindSafe(run).catch_unwind().await {
        Ok(result) => result,
        Err(panic) => Err(NodeError::Failed(format!("the body panicked: {}", panic_text(panic.as_ref())))),
    }
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".into())
}
