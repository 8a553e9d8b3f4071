//! One thread: state, what it waits for, its past.

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use countersign_kernel::ids::ThreadId;
use countersign_worker::engine::{FrameState, ThreadView};
use countersign_worker::store::views::{DeliveryView, HistoryEntry, InterruptView, RunView};
use serde_json::{Map, Value};

use super::decision::{kind_word, plain};
use super::home::ThreadRow;
use super::page::render;
use super::people;
use super::problem::{Problem, Segment};
use super::session::Session;
use super::site::Site;
use super::time::Moment;
use crate::held_back::why;
use crate::line::Line;
use crate::state::AppState;

/// Checkpoints shown, the newest first.
const HISTORY_SHOWN: u32 = 50;
/// Sub-graphs shown.
const FRAMES_SHOWN: usize = 20;
/// Checkpoints of a sub-graph shown, the newest first.
const FRAME_HISTORY_SHOWN: u32 = 10;
/// Deliveries shown for each interrupt.
const DELIVERIES_SHOWN: u32 = 50;
/// What the names of mails in the mailbox end with.
const MAIL_SUFFIX: &str = ".eml";
/// Interrupts shown with their deliveries.
const INTERRUPTS_SHOWN: usize = 50;

#[derive(Template)]
#[template(path = "thread.html")]
pub(super) struct ThreadPage {
    pub(super) site: Site,
    /// Whether the visitor may run the thread again.
    pub(super) operator: bool,
    pub(super) line: ThreadRow,
    pub(super) graph_version: u32,
    pub(super) started_by: String,
    pub(super) created_at: Moment,
    pub(super) error: Option<String>,
    pub(super) held_reason: Option<String>,
    /// Why a queued thread does not run.
    pub(super) held_back: Option<String>,
    pub(super) errors: Vec<(String, String)>,
    pub(super) next: Vec<String>,
    pub(super) waits: Vec<WaitView>,
    /// How many more interrupts are open.
    pub(super) waits_more: usize,
    pub(super) state: Vec<StateRow>,
    /// Sub-graphs that have begun and not finished.
    pub(super) frames: Vec<FrameCard>,
    pub(super) runs: Vec<RunRow>,
    pub(super) history: Vec<HistoryRow>,
}

impl ThreadPage {
    /// Whether a line of the history was left.
    fn has_left(&self) -> bool {
        self.history.iter().any(|row| !row.current)
    }
}

/// One key of a state.
#[derive(Debug, Clone)]
pub(super) struct StateRow {
    pub(super) key: String,
    pub(super) value: String,
    /// Whether the value has a structure.
    pub(super) structured: bool,
}

/// A state as it is shown.
pub(super) fn state_rows(state: Map<String, Value>) -> Vec<StateRow> {
    let row = |(key, value): (String, Value)| StateRow {
        value: plain(&value),
        structured: value.is_array() || value.is_object(),
        key,
    };
    state.into_iter().map(row).collect()
}

/// An unfinished sub-graph.
#[derive(Debug, Clone)]
pub(super) struct FrameCard {
    pub(super) graph: String,
    pub(super) address: String,
    pub(super) next: String,
    pub(super) state: Vec<StateRow>,
    pub(super) history: Vec<HistoryRow>,
}

/// An open interrupt.
#[derive(Debug, Clone)]
pub(super) struct WaitView {
    pub(super) id: String,
    pub(super) kind: &'static str,
    /// Its words, else its address.
    pub(super) title: String,
    pub(super) address: String,
    /// What one without words says of itself.
    pub(super) says: Option<String>,
    pub(super) asked_at: Moment,
    pub(super) deadline: Option<Moment>,
    pub(super) votes: Option<String>,
    pub(super) deliveries: Vec<DeliveryRow>,
}

/// A message about an interrupt.
#[derive(Debug, Clone)]
pub(super) struct DeliveryRow {
    pub(super) channel: String,
    pub(super) to: String,
    pub(super) status: String,
    pub(super) attempts: u32,
    pub(super) possibly_twice: bool,
    /// The mail in the mailbox, for who may see it.
    pub(super) mail: Option<String>,
    pub(super) detail: Option<String>,
    pub(super) at: Moment,
}

/// One run.
#[derive(Debug, Clone)]
pub(super) struct RunRow {
    pub(super) run: String,
    pub(super) kind: String,
    pub(super) status: String,
    pub(super) created_at: Moment,
    pub(super) finished_at: Option<Moment>,
}

/// One checkpoint.
#[derive(Debug, Clone)]
pub(super) struct HistoryRow {
    pub(super) checkpoint: String,
    pub(super) seq: i64,
    pub(super) superstep: u64,
    pub(super) source: &'static str,
    pub(super) next: String,
    pub(super) created_at: Moment,
    /// Whether the newest checkpoint descends from it.
    pub(super) current: bool,
}

/// `GET /threads/{id}`.
pub(super) async fn show(
    session: Session,
    State(state): State<AppState>,
    Extension(site): Extension<Site>,
    Segment(id): Segment,
) -> Result<Response, Problem> {
    let id = ThreadId::parse(id).map_err(|_| Problem::NoThread)?;
    let store = state.engine.store();
    let ThreadView { detail: thread, values, next, frames: inside, failures, .. } = state.engine.view(&id).await?;
    let history = store.history(&id, None, None, HISTORY_SHOWN).await?;
    let mut frames = Vec::new();
    for frame in inside.into_iter().take(FRAMES_SHOWN) {
        let history = store.history(&id, Some(&frame.frame), None, FRAME_HISTORY_SHOWN).await?;
        frames.push(frame_card(frame, &history));
    }
    let mut waits = Vec::new();
    for view in thread.interrupts.iter().take(INTERRUPTS_SHOWN) {
        let deliveries = store.deliveries(Some(&view.id), None, DELIVERIES_SHOWN).await?;
        let mailbox = session.administrator && state.mailbox.is_some();
        waits.push(wait(&state, view, &deliveries, mailbox));
    }
    let page = ThreadPage {
        site,
        operator: session.administrator,
        line: ThreadRow::new(&thread.summary),
        graph_version: thread.summary.graph_version,
        started_by: people::name(&state, &thread.summary.started_by),
        created_at: Moment::of(thread.summary.created_at),
        held_back: why(&thread.summary, &store.switches(state.now()).await?),
        error: thread.summary.error,
        held_reason: thread.summary.held_reason,
        errors: failures.into_iter().map(|(path, message)| (path.join(" / "), message)).collect(),
        next,
        waits_more: thread.interrupts.len().saturating_sub(INTERRUPTS_SHOWN),
        waits,
        state: state_rows(values),
        frames,
        runs: thread.runs.iter().map(run).collect(),
        history: steps(&history),
    };
    Ok(render(StatusCode::OK, &page))
}

fn wait(state: &AppState, view: &InterruptView, deliveries: &[DeliveryView], mailbox: bool) -> WaitView {
    let title = view.payload.get("title").and_then(Value::as_str);
    let says = (title.is_none() && !view.payload.is_null()).then(|| plain(&view.payload));
    let votes = view.request.as_ref().map(|request| format!("{} of {} votes", request.have, request.need));
    WaitView {
        id: view.id.to_string(),
        kind: kind_word(&view.kind),
        title: title.unwrap_or(&view.address).to_owned(),
        address: view.address.clone(),
        says,
        asked_at: Moment::of(view.asked_at),
        deadline: view.deadline.map(Moment::of),
        votes,
        deliveries: deliveries.iter().map(|delivery| delivery_row(state, delivery, mailbox)).collect(),
    }
}

fn delivery_row(state: &AppState, delivery: &DeliveryView, mailbox: bool) -> DeliveryRow {
    let file = delivery.detail.as_deref().filter(|_| delivery.status == "sent" && delivery.channel == "email");
    let file = file.and_then(|detail| detail.strip_suffix(MAIL_SUFFIX));
    DeliveryRow {
        channel: delivery.channel.clone(),
        to: people::name(state, &delivery.principal),
        status: delivery.status.clone(),
        attempts: delivery.attempts,
        possibly_twice: delivery.possibly_twice,
        mail: file.filter(|_| mailbox).map(str::to_owned),
        detail: delivery.detail.clone().filter(|_| file.is_none()),
        at: Moment::of(delivery.finished_at.unwrap_or(delivery.created_at)),
    }
}

fn run(run: &RunView) -> RunRow {
    RunRow {
        run: run.run.to_string(),
        kind: run.kind.clone(),
        status: run.status.clone(),
        created_at: Moment::of(run.created_at),
        finished_at: run.finished_at.map(Moment::of),
    }
}

fn frame_card(frame: FrameState, history: &[HistoryEntry]) -> FrameCard {
    FrameCard {
        graph: frame.graph,
        address: frame.address.to_string(),
        next: frame.next.join(", "),
        state: state_rows(frame.values),
        history: steps(history),
    }
}

fn steps(history: &[HistoryEntry]) -> Vec<HistoryRow> {
    let mut line = Line::default();
    history.iter().map(|entry| step(entry, &mut line)).collect()
}

fn step(entry: &HistoryEntry, line: &mut Line) -> HistoryRow {
    HistoryRow {
        checkpoint: entry.checkpoint.to_string(),
        seq: entry.seq,
        superstep: entry.superstep,
        source: source_word(&entry.source),
        next: if entry.next.is_empty() { "–".to_owned() } else { entry.next.join(", ") },
        created_at: Moment::of(entry.created_at),
        current: line.holds(&entry.checkpoint, entry.parent.as_ref()),
    }
}

/// Where a checkpoint came from, as people read it.
pub(super) fn source_word(source: &str) -> &'static str {
    match source {
        "input" => "input",
        "update" => "edit",
        "amend" => "amendment",
        "fork" => "run again",
        _ => "superstep",
    }
}
