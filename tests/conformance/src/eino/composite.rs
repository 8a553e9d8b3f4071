//! Composites: containers of the user's own, with a segment type of their own
//! for their children.

use std::sync::Arc;

use countersign_kernel::context::Context;
use countersign_kernel::node::{NodeError, NodeResult};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};

use super::body::{Given, World, play_value};
use super::model::CompositeModel;

/// The member under which a composite says what it was sent itself.
const SELF: &str = "_self";

/// Enters each child and waits for all of them. Finished children answer with
/// their results, parked ones do not run (K7).
pub(super) fn run(
    world: World,
    cx: Context,
    model: Arc<CompositeModel>,
    given: Given,
) -> BoxFuture<'static, NodeResult<Value>> {
    Box::pin(async move {
        let data = cx.container(model.info.clone().unwrap_or_default())?;
        let mut results = Map::new();
        let mut waits = false;
        for child in &model.children {
            let (world, given) = (world.clone(), given.clone());
            let result = match (model.nested.get(child), model.scripts.get(child)) {
                (Some(nested), _) => {
                    let nested = Arc::new(nested.clone());
                    cx.child(&model.segment, child, |cx| run(world, cx, nested, given)).await
                }
                (None, Some(script)) => {
                    let body = |cx: Context| async move { play_value(&world, &cx, script, &given).await };
                    cx.child(&model.segment, child, body).await
                }
                (None, None) => Err(NodeError::failed(format!("the child `{child}` has neither script nor parts"))),
            };
            match result {
                Ok(value) => {
                    results.insert(child.clone(), value);
                }
                Err(NodeError::Interrupted) => waits = true,
                Err(other) => return Err(other),
            }
        }
        if waits {
            return Err(NodeError::Interrupted);
        }
        if let Some(data) = data {
            results.insert(SELF.to_owned(), data);
        }
        Ok(Value::Object(results))
    })
}
