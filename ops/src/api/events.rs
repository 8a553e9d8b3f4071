//! What happens in a thread, as it happens: server-sent events, or a page (K22).

use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use countersign_kernel::ids::{CheckpointId, ThreadId};
use countersign_worker::store::views::{EventPage, EventView};
use countersign_worker::store::{EVENT_KINDS, Refusal, StoreError, Watching};
use futures_util::stream::unfold;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::auth::{Caller, Scope};
use super::cursor;
use super::extract::{ApiPath, ApiQuery};
use super::problem::Problem;
use super::shapes::rfc3339;
use crate::state::AppState;

/// How often a stream looks by itself: for what other processes commit.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often a stream on which nothing happens shows that it is alive.
const ALIVE_EVERY: Duration = Duration::from_secs(15);
/// How many events a stream reads at once.
const READ: u32 = 100;
/// Bytes of values beyond which a page ends.
const PAGE_BYTES: usize = 4 << 20;
/// What a client that lost the connection has seen last.
const LAST_EVENT_ID: &str = "last-event-id";

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsQuery {
    /// Kinds of events, with commas between: tasks, updates, values,
    /// interrupts, custom, status. All but values when absent, which carry the
    /// whole state each.
    modes: Option<String>,
    /// Only events after this number; 0 when absent.
    after: Option<i64>,
    /// Whether the stream goes on while the thread waits, until it has ended
    /// for good. Otherwise it ends when the thread rests.
    #[serde(default)]
    follow: bool,
    /// Of a page: at most 500; 50 when absent.
    limit: Option<u32>,
}

/// Something that happened in a thread.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct EventItem {
    /// Its number in the thread: from 1, rising, without gaps over all kinds.
    id: i64,
    /// tasks, updates, values, interrupts, custom or status.
    kind: &'static str,
    at: String,
    /// The facts, by kind. tasks: `node`, `task`, `address`, `frame_id`, and
    /// `state`: started (`how`: fresh, target, resume_all or retry), done,
    /// waiting, failed (`error`) or stopped. updates: the same names and what
    /// the finished task wrote, as `writes`. values: `checkpoint_id`,
    /// `superstep`, `source`, `frame_id` and the whole state, as `values`.
    /// interrupts: `interrupt_id` and `state`: opened (`kind`, `address`,
    /// `frame_id`, `payload`) or closed (`status`). custom: `address` and the
    /// flow's own `payload`. status: `status`, and the `reason` of failed and
    /// held.
    #[schema(value_type = Object)]
    data: Value,
}

/// Some events of a thread.
#[derive(Serialize, ToSchema)]
pub(super) struct EventList {
    /// Those of the kinds asked for, in order.
    events: Vec<EventItem>,
    /// `after` of the next page. The same again when there is nothing more.
    next_after: i64,
}

/// The kinds that somebody wants.
#[derive(Debug, Clone)]
struct Modes(BTreeSet<&'static str>);

impl Modes {
    fn parse(asked: Option<&str>) -> Result<Self, Problem> {
        let Some(asked) = asked else {
            return Ok(Self(EVENT_KINDS.into_iter().filter(|kind| *kind != "values").collect()));
        };
        let known = |word: &str| EVENT_KINDS.into_iter().find(|kind| *kind == word.trim());
        let modes: Result<BTreeSet<_>, &str> = asked.split(',').map(|word| known(word).ok_or(word)).collect();
        modes.map(Self).map_err(|word| {
            let detail = format!("`modes` holds `{word}`; known are {}", EVENT_KINDS.join(", "));
            Problem::invalid("unknown-mode", detail)
        })
    }

    fn has(&self, kind: &str) -> bool {
        self.0.contains(kind)
    }
}

/// The events of a thread: a stream of server-sent events that begins after
/// `Last-Event-ID` or `after` and can be taken up again there, or with `Accept:
/// application/json` one page. 204 when a stream is taken up that is over.
#[utoipa::path(
    get, path = "/threads/{id}/events", operation_id = "watch_thread",
    params(("id" = String, Path), EventsQuery, ("Last-Event-ID" = Option<i64>, Header)),
    responses(
        (status = 200, content((EventItem = "text/event-stream"), (EventList = "application/json"))), (status = 204),
        (status = 400, body = Problem), (status = 401, body = Problem), (status = 404, body = Problem),
        (status = 422, body = Problem)
    )
)]
pub(super) async fn watch(
    State(state): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    ApiPath(id): ApiPath<ThreadId>,
    ApiQuery(query): ApiQuery<EventsQuery>,
) -> Result<Response, Problem> {
    caller.require(Scope::ThreadsRead)?;
    let modes = Modes::parse(query.modes.as_deref())?;
    let limit = cursor::limit(query.limit)?;
    let resumed = last_event_id(&headers)?;
    let after = resumed.or(query.after).unwrap_or(0);
    // Before the first look, so that nothing slips in between.
    let watching = state.engine.store().journal().watch(&id);
    let first = state.engine.store().events(&id, Some(after), READ).await?;
    if !caller.sees(&first.graph) {
        return Err(Refusal::UnknownThread(id).into());
    }
    if wants_a_page(&headers) {
        return Ok(Json(page(&state, &id, &modes, after, limit).await?).into_response());
    }
    let mut feed = Feed {
        state,
        thread: id,
        modes,
        follow: query.follow,
        watching,
        after,
        ready: VecDeque::new(),
        status: String::new(),
        last: 0,
    };
    feed.take(first);
    feed.skip_unwanted().await?;
    if resumed.is_some() && feed.is_over() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Ok(feed.into_response())
}

/// What the client has seen before it lost the connection, if it says so.
fn last_event_id(headers: &HeaderMap) -> Result<Option<i64>, Problem> {
    let Some(value) = headers.get(LAST_EVENT_ID).filter(|value| !value.is_empty()) else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    number.map(Some).ok_or_else(|| {
        Problem::new(
            StatusCode::BAD_REQUEST,
            "invalid-event-id",
            "The event id is not valid",
            "send the `id` of the last event unchanged as `Last-Event-ID`, or leave it out",
        )
    })
}

fn wants_a_page(headers: &HeaderMap) -> bool {
    let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut kinds = accept.flat_map(|line| line.split(',')).map(|kind| kind.split(';').next().unwrap_or("").trim());
    // The first that both sides know is the one that is wanted more.
    kinds.find(|kind| matches!(*kind, "application/json" | "text/event-stream")) == Some("application/json")
}

async fn page(
    state: &AppState,
    thread: &ThreadId,
    modes: &Modes,
    after: i64,
    limit: u32,
) -> Result<EventList, StoreError> {
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut list = EventList { events: Vec::new(), next_after: after };
    let mut bytes = 0;
    loop {
        let read = state.engine.store().events(thread, Some(list.next_after), limit).await?;
        if read.events.is_empty() {
            return Ok(list);
        }
        for event in read.events {
            list.next_after = event.id;
            if modes.has(event.kind) {
                let item = item(state, thread, event).await?;
                bytes += item.data.get("values").map_or(0, |values| values.to_string().len());
                list.events.push(item);
            }
            if list.events.len() >= most || bytes >= PAGE_BYTES {
                return Ok(list);
            }
        }
    }
}

/// The event as clients see it. The values at a checkpoint are read now that
/// somebody asks.
async fn item(state: &AppState, thread: &ThreadId, event: EventView) -> Result<EventItem, StoreError> {
    let EventView { id, at, kind, mut data } = event;
    let checkpoint = data.get("checkpoint_id").and_then(Value::as_str).filter(|_| kind == "values");
    if let Some(Ok(checkpoint)) = checkpoint.map(CheckpointId::parse) {
        data["values"] = match state.engine.store().archived(thread, &checkpoint).await {
            Ok(mut chain) => chain.pop().map_or(Value::Null, |at| Value::Object(at.archived.values.to_object())),
            Err(StoreError::Refused(Refusal::UnknownCheckpoint(_))) => Value::Null,
            Err(error) => return Err(error),
        };
    }
    Ok(EventItem { id, kind, at: rfc3339(at), data })
}

/// A stream that somebody reads.
struct Feed {
    state: AppState,
    thread: ThreadId,
    modes: Modes,
    follow: bool,
    watching: Watching,
    /// The number of the last event that was dealt with.
    after: i64,
    ready: VecDeque<EventView>,
    /// How the thread stood at the last look, and its last event then.
    status: String,
    last: i64,
}

impl Feed {
    fn take(&mut self, page: EventPage) {
        if page.events.is_empty() {
            // What is missing was forgotten.
            self.after = self.after.max(page.last);
        }
        self.ready.extend(page.events);
        self.status = page.status;
        self.last = page.last;
    }

    /// Whether everything has been said and no more is waited for.
    fn is_over(&self) -> bool {
        let ended = match self.status.as_str() {
            "queued" | "running" => false,
            "succeeded" | "cancelled" => true,
            _ => !self.follow,
        };
        self.after >= self.last && ended
    }

    async fn next(&mut self) -> Option<SseEvent> {
        match self.try_next().await {
            Ok(item) => {
                let item = item?;
                let text = serde_json::to_string(&item).ok()?;
                Some(SseEvent::default().id(item.id.to_string()).event(item.kind).data(text))
            }
            Err(error) => {
                // The reader comes back and goes on where this one ended.
                tracing::error!(%error, thread = %self.thread, "a stream of events broke off");
                None
            }
        }
    }

    async fn try_next(&mut self) -> Result<Option<EventItem>, StoreError> {
        loop {
            self.skip_unwanted().await?;
            if let Some(event) = self.ready.pop_front() {
                self.after = event.id;
                return item(&self.state, &self.thread, event).await.map(Some);
            }
            if self.is_over() {
                return Ok(None);
            }
            tokio::select! {
                () = self.watching.news() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = self.state.engine.stopping() => return Ok(None),
            }
            self.look().await?;
        }
    }

    /// Goes on to the next event of a kind that is wanted, or to the last one.
    async fn skip_unwanted(&mut self) -> Result<(), StoreError> {
        loop {
            while let Some(event) = self.ready.pop_front_if(|event| !self.modes.has(event.kind)) {
                self.after = event.id;
            }
            if !self.ready.is_empty() || self.after >= self.last {
                return Ok(());
            }
            self.look().await?;
        }
    }

    async fn look(&mut self) -> Result<(), StoreError> {
        let page = self.state.engine.store().events(&self.thread, Some(self.after), READ).await?;
        self.take(page);
        Ok(())
    }

    fn into_response(self) -> Response {
        let events = unfold(self, |mut feed| async move {
            let event = feed.next().await?;
            Some((Ok::<_, Infallible>(event), feed))
        });
        let alive = KeepAlive::new().interval(ALIVE_EVERY);
        // A proxy that gathers what it passes on would hold events back.
        let unbuffered = (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
        ([unbuffered], Sse::new(events).keep_alive(alive)).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_words_of_the_list_and_values_only_when_asked_for() {
        let all = Modes::parse(None).expect("a default");
        assert!(all.has("custom") && all.has("status") && !all.has("values"));
        let some = Modes::parse(Some("updates, values")).expect("known");
        assert!(some.has("updates") && some.has("values") && !some.has("tasks"));
        for bad in ["", "update", "updates,,tasks", "VALUES"] {
            assert!(Modes::parse(Some(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_page_is_for_who_prefers_json() {
        let wants = |accept: &'static str| {
            wants_a_page(&HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]))
        };
        assert!(wants("application/json") && wants("application/json; q=0.9, text/event-stream"));
        assert!(!wants("text/event-stream") && !wants("*/*") && !wants("text/event-stream, application/json"));
        assert!(!wants_a_page(&HeaderMap::new()));
    }

    #[test]
    fn an_id_that_is_no_number_is_refused_and_an_empty_one_is_none() {
        let of = |text: &'static str| {
            last_event_id(&HeaderMap::from_iter([(
                HeaderName::from_static(LAST_EVENT_ID),
                HeaderValue::from_static(text),
            )]))
        };
        assert_eq!(of("17").expect("a number"), Some(17));
        assert_eq!(of("").expect("nothing"), None);
        assert!(of("seventeen").is_err());
    }
}
