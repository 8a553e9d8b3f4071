//! A body that follows a script, on the component style of the kernel.

use std::sync::Arc;

use countersign_kernel::context::{Context, Resumption};
use countersign_kernel::node::{NodeError, NodeResult};
use serde::de::DeserializeOwned;
use serde_json::{Map, Number, Value};

use super::ledger::Ledger;
use super::place::Sight;
use super::script::{Action, Ending, Script, Seen, Type, fill};

/// What all bodies of an app share.
#[derive(Clone)]
pub(super) struct World {
    /// What is counted, outside the kernel.
    pub(super) ledger: Arc<Ledger>,
    /// How bodies are called.
    pub(super) sight: Sight,
}

/// What a body is given.
#[derive(Debug, Clone)]
pub(super) struct Given {
    /// `${input}`.
    pub(super) input: Value,
    /// `${shared.…}`.
    pub(super) shared: Value,
}

/// How a body was woken.
struct Woken {
    seen: Seen,
    state: Value,
    data: Option<Value>,
}

/// Runs a script once, as the body at the context's address.
pub(super) async fn play(world: &World, cx: &Context, script: &Script, given: &Given) -> NodeResult<Ending> {
    let body = world.sight.body(cx.address());
    let woken = wake(cx, script)?;
    let runs = world.ledger.enter(&body, &woken.seen);
    let action = script.action(woken.seen, world.ledger.take(&body, woken.seen)).map_err(NodeError::Failed)?;
    // State of another type than the body asks for is none (R34).
    let state = match script.state_type {
        Some(wanted) if !wanted.takes(&woken.state) => Value::Null,
        _ => woken.state.clone(),
    };
    let named = |name: &str| {
        Ok(match name {
            "input" => given.input.clone(),
            "data" => woken.data.clone().unwrap_or_default(),
            "state" => state.clone(),
            "has_state" => Value::Bool(!state.is_null()),
            "has_data" => Value::Bool(woken.data.is_some()),
            "runs" => Value::from(runs),
            other => match other.strip_prefix("shared.") {
                Some(key) => given.shared.get(key).cloned().unwrap_or_default(),
                None => return Err(format!("`{other}` is nothing that a script can name")),
            },
        })
    };
    let filled = |template: &Value| fill(template, &named).map_err(NodeError::Failed);
    match action {
        Action::Interrupt { info, state } => {
            let info = filled(info)?;
            world.ledger.say(cx.address().to_string(), &info);
            Err(cx.suspend(info, &filled(state)?))
        }
        Action::Hold(_) => match world.ledger.said(&cx.address().to_string()) {
            Some(info) => Err(cx.suspend(info, &woken.state)),
            None => Err(NodeError::failed("the script holds where nothing was asked")),
        },
        Action::Return(value) => Ok(Ending::Value(filled(value)?)),
        Action::Fail(text) => Err(NodeError::failed(text)),
        Action::Hang(value) => {
            world.ledger.hang().await.map_err(NodeError::Failed)?;
            Ok(Ending::Value(filled(value)?))
        }
        Action::Exit(_) => Ok(Ending::Exit),
        Action::BreakLoop(_) => Ok(Ending::BreakLoop),
        Action::Transfer(name) => Ok(Ending::Transfer(name.clone())),
    }
}

/// Runs a script that has to give a value.
pub(super) async fn play_value(world: &World, cx: &Context, script: &Script, given: &Given) -> NodeResult<Value> {
    match play(world, cx, script, given).await? {
        Ending::Value(value) => Ok(value),
        other => Err(NodeError::failed(format!("only an agent can end with {other:?}"))),
    }
}

fn wake(cx: &Context, script: &Script) -> NodeResult<Woken> {
    let resumption = match script.data_type {
        None => typed::<Value>(cx),
        Some(Type::Text) => typed::<String>(cx),
        Some(Type::Number) => typed::<Number>(cx),
        Some(Type::Object) => typed::<Map<String, Value>>(cx),
    };
    Ok(match resumption? {
        Resumption::Fresh => Woken { seen: Seen::Fresh, state: Value::Null, data: None },
        Resumption::Waiting(state) => Woken { seen: Seen::Other, state, data: None },
        Resumption::Answered(state, None) => Woken { seen: Seen::TargetBare, state, data: None },
        Resumption::Answered(state, data) => Woken { seen: Seen::Target, state, data },
    })
}

/// What the kernel says about data of type `A`, as JSON again.
fn typed<A: DeserializeOwned + Into<Value>>(cx: &Context) -> NodeResult<Resumption<Value, Value>> {
    Ok(match cx.resumption::<Value, A>()? {
        Resumption::Fresh => Resumption::Fresh,
        Resumption::Waiting(state) => Resumption::Waiting(state),
        Resumption::Answered(state, data) => Resumption::Answered(state, data.map(Into::into)),
    })
}
