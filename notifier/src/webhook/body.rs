//! What an endpoint is told.

use countersign_kernel::ids::{InterruptId, ThreadId};
use countersign_kernel::ports::{DeliveryError, Notice, Occasion};
use countersign_kernel::principal::Approver;
use countersign_kernel::question::Detail;
use serde::Serialize;

use crate::clock::rfc3339;
use crate::failure::permanent;
use crate::link::page_url;

#[derive(Serialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    timestamp: String,
    data: Data<'a>,
}

#[derive(Serialize)]
struct Data<'a> {
    thread_id: &'a ThreadId,
    graph: &'a str,
    interrupt_id: &'a InterruptId,
    address: &'a str,
    kind: &'static str,
    title: &'a str,
    message: Option<&'a str>,
    details: &'a [Detail],
    policy: Rule<'a>,
    revision: u32,
    content_hash: &'a str,
    asked_at: String,
    deadline: Option<String>,
    url: String,
}

#[derive(Serialize)]
struct Rule<'a> {
    approvers: &'a [Approver],
    need: u32,
}

/// The JSON text. `timestamp` is when the request was asked, so that the text
/// is the same for every attempt; `url` is the plain page, which nobody
/// becomes somebody by.
pub(super) fn asked(notice: &Notice, base_url: &str) -> Result<Vec<u8>, DeliveryError> {
    let request = &notice.request;
    let event = Event {
        kind: match notice.occasion {
            Occasion::Asked => "request.asked",
        },
        timestamp: rfc3339(notice.asked_at),
        data: Data {
            thread_id: &notice.thread,
            graph: &notice.graph,
            interrupt_id: &notice.interrupt,
            address: &notice.printed_address,
            kind: request.question.kind(),
            title: &request.title,
            message: request.message.as_deref(),
            details: &request.details,
            policy: Rule { approvers: &request.policy.approvers, need: request.policy.need },
            revision: notice.revision,
            content_hash: &notice.content_hash,
            asked_at: rfc3339(notice.asked_at),
            deadline: notice.deadline.map(rfc3339),
            url: page_url(base_url, &notice.interrupt),
        },
    };
    serde_json::to_vec(&event).map_err(|error| permanent(format!("the request could not be written as JSON: {error}")))
}
