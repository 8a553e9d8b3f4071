//! What the page of a request shows.

use askama::Template;
use countersign_kernel::fault::Fault;
use countersign_kernel::question::{Detail, Question, fields};
use countersign_worker::store::views::InterruptView;
use serde_json::Value;

use super::answer::Posted;
use super::decide::{Case, Visit};
use super::fields::{Control, FormView, sentence};
use super::over::{self, Again};
use super::people;
use super::site::Site;
use super::time::Moment;
use crate::state::AppState;

/// Something to say before everything else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Banner {
    pub(super) title: &'static str,
    pub(super) text: &'static str,
}

impl Banner {
    /// The link was made for another content.
    pub(super) fn changed() -> Self {
        Self {
            title: "Changed since the message",
            text: "This request was changed after the message to you was sent. Below is how it stands now; \
                   your decision will be about this.",
        }
    }

    /// The form was about another content.
    pub(super) fn look_again() -> Self {
        Self {
            title: "Not recorded: please look again",
            text: "What you sent was not about the request as it stands now. Below is how it stands; \
                   please decide again.",
        }
    }

    /// The visitor's own answer is on record, and it is another.
    pub(super) fn decided_by_you() -> Self {
        Self {
            title: "You have answered already",
            text: "An answer cannot be changed once it is on record. What you sent now was not recorded.",
        }
    }

    /// Somebody else was faster.
    pub(super) fn decided_by_others() -> Self {
        Self {
            title: "Decided by somebody else meanwhile",
            text: "What you sent was not recorded. Below is what was decided, by whom and when.",
        }
    }

    /// It ended meanwhile.
    pub(super) fn not_recorded_over() -> Self {
        Self { title: "Not recorded", text: "The request stopped waiting before you answered: nothing was recorded." }
    }
}

/// What came of a request, or of a vote.
#[derive(Debug, Clone)]
pub(super) struct Panel {
    /// `yes`, `no`, `wait` or `over`.
    pub(super) look: &'static str,
    /// The outcome in a word or two.
    pub(super) word: String,
    /// What stands before the names.
    pub(super) lead: &'static str,
    /// Who.
    pub(super) who: String,
    /// When.
    pub(super) at: Option<Moment>,
    /// The answer.
    pub(super) rows: Vec<Detail>,
    /// What happened, if nobody decided.
    pub(super) what: Option<&'static str>,
    /// What it means.
    pub(super) after: String,
    /// What asks in its place.
    pub(super) again: Option<Again>,
}

/// The page of a request.
#[derive(Template)]
#[template(path = "decision.html")]
pub(super) struct DecisionPage {
    pub(super) site: Site,
    pub(super) banner: Option<Banner>,
    /// The state in one word.
    pub(super) status: &'static str,
    pub(super) kind: &'static str,
    pub(super) title: String,
    pub(super) message: Option<String>,
    pub(super) requested_by: Option<String>,
    pub(super) graph: String,
    pub(super) thread: String,
    pub(super) asked_at: Moment,
    pub(super) details: Vec<Detail>,
    pub(super) outcomes: Vec<(&'static str, String)>,
    pub(super) deadline: Option<Moment>,
    pub(super) votes: String,
    /// Who voted and when, while it waits.
    pub(super) voters: Vec<(String, Moment)>,
    pub(super) panel: Option<Panel>,
    pub(super) form: Option<FormView>,
    /// As whom the visitor decides.
    pub(super) you: String,
    /// Whether they came by a link.
    pub(super) by_link: bool,
}

impl DecisionPage {
    /// The page for this visit.
    pub(super) fn new(visit: &Visit, case: &Case, banner: Option<Banner>, posted: &Posted, faults: &[Fault]) -> Self {
        let (view, request) = (&case.view, &case.request);
        let panel = panel(visit, case);
        let form = (panel.is_none() && case.admitted)
            .then(|| FormView::new(&request.question, &case.standing, posted, faults));
        let voters = if case.is_open() { case.standing.votes.as_slice() } else { &[] };
        Self {
            site: visit.site.clone(),
            banner,
            status: status_word(view),
            kind: kind_word(request.question.kind()),
            title: request.title.clone(),
            message: request.message.clone().filter(|text| !text.trim().is_empty()),
            requested_by: request.requested_by.clone(),
            graph: view.graph.clone(),
            thread: view.thread.to_string(),
            asked_at: Moment::of(view.asked_at),
            details: details(case),
            outcomes: outcomes(case),
            deadline: view.deadline.map(Moment::of),
            votes: votes(case),
            voters: voters.iter().map(|(who, _, at)| (people::name(&visit.state, who), Moment::of(*at))).collect(),
            panel,
            form,
            you: people::name(&visit.state, &visit.visitor.principal),
            by_link: visit.visitor.announced.is_some(),
        }
    }
}

/// A point that people are not asked about, for the administrator.
#[derive(Template)]
#[template(path = "point.html")]
pub(super) struct PointPage {
    pub(super) site: Site,
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) status: &'static str,
    pub(super) graph: String,
    pub(super) thread: String,
    pub(super) address: String,
    pub(super) asked_at: Moment,
    pub(super) payload: Option<String>,
    pub(super) answered: Option<(String, Moment)>,
    /// What happened to one that no longer waits.
    pub(super) what: Option<&'static str>,
    /// The page of what waits in its place.
    pub(super) successor: Option<String>,
    /// Whether a button lets the thread go on.
    pub(super) stops: bool,
}

impl PointPage {
    /// The page of this point.
    pub(super) fn new(state: &AppState, site: Site, view: &InterruptView, successor: Option<&InterruptView>) -> Self {
        let over = view.status != "open" && view.answered.is_none();
        Self {
            what: over.then(|| over::what_happened(view)),
            successor: successor.map(|view| format!("{}/interrupts/{}", site.prefix, view.id)),
            stops: view.status == "open" && is_stop(&view.kind),
            site,
            id: view.id.to_string(),
            kind: view.kind.clone(),
            status: status_word(view),
            graph: view.graph.clone(),
            thread: view.thread.to_string(),
            address: view.address.clone(),
            asked_at: Moment::of(view.asked_at),
            payload: (!view.payload.is_null()).then(|| pretty(&view.payload)),
            answered: view
                .answered
                .as_ref()
                .map(|answered| (people::names(state, &answered.by), Moment::of(answered.at))),
        }
    }
}

/// Whether a point of this kind is a stop, which is released rather than
/// answered.
pub(super) fn is_stop(kind: &str) -> bool {
    matches!(kind, "break" | "pause")
}

/// JSON as people read it.
pub(super) fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// The state of an interrupt in one word.
pub(super) fn status_word(view: &InterruptView) -> &'static str {
    match view.status.as_str() {
        "open" => "Waiting",
        "answered" => "Decided",
        "released" => "Released",
        "withdrawn" => "Withdrawn",
        _ => "Superseded",
    }
}

/// A kind of question, as people read it.
pub(super) fn kind_word(kind: &str) -> &'static str {
    match kind {
        "approval" => "Approval",
        "input" => "Question",
        "select" | "multi_select" => "Choice",
        "modal" => "Choice of action",
        "unlock" => "Unlock",
        "form" => "Form",
        "break" => "Breakpoint",
        "pause" => "Pause",
        "suspend" => "Suspended",
        "sleep" => "Sleep",
        "signal" => "Signal",
        _ => "Interrupt",
    }
}

fn panel(visit: &Visit, case: &Case) -> Option<Panel> {
    let (view, question) = (&case.view, &case.request.question);
    if let Some(answered) = &view.answered {
        let value = answered.value.as_ref().unwrap_or(&Value::Null);
        return Some(Panel {
            look: if value.get("approved") == Some(&Value::Bool(false)) { "no" } else { "yes" },
            word: word(question, value),
            lead: "Decided by",
            who: people::names(&visit.state, &answered.by),
            at: Some(Moment::of(answered.at)),
            rows: answer_rows(question, value),
            what: None,
            again: None,
            after: "The decision is on record and cannot be changed. There is nothing more to do here.".to_owned(),
        });
    }
    if !case.is_open() {
        let by_link = visit.visitor.announced.is_some();
        let again = case
            .successor
            .as_ref()
            .map(|successor| over::where_to_go(successor, by_link, &visit.site.prefix, visit.visitor.administrator));
        return Some(Panel {
            look: "over",
            word: if again.is_some() { "Replaced by a new request" } else { "No longer needed" }.to_owned(),
            lead: "",
            who: String::new(),
            at: view.closed_at.map(Moment::of),
            rows: Vec::new(),
            what: Some(over::what_happened(view)),
            after: over::what_counts(view, again.is_some(), case.ended),
            again,
        });
    }
    let (who, value, at) = visit.own_vote(case)?;
    let (have, need) = (case.standing.have, case.standing.need);
    Some(Panel {
        look: "wait",
        word: "Recorded: your vote is in".to_owned(),
        lead: "Voted by",
        who: people::name(&visit.state, who),
        at: Some(Moment::of(*at)),
        rows: std::iter::once(Detail { label: "Your vote".to_owned(), value: word(question, value) })
            .chain(answer_rows(question, value))
            .collect(),
        what: None,
        again: None,
        after: format!(
            "{have} of {need} votes are in. The request waits for others now; there is nothing more for you \
                        to do."
        ),
    })
}

/// An answer in a word.
fn word(question: &Question, value: &Value) -> String {
    match question {
        // No answer of a person is nothing at all: the time for one ended.
        _ if value.is_null() => "Not decided in time".to_owned(),
        Question::Approval {} if value.get("approved") == Some(&Value::Bool(true)) => "Approved".to_owned(),
        Question::Approval {} => "Rejected".to_owned(),
        Question::Unlock { .. } => "Unlocked".to_owned(),
        _ => "Answered".to_owned(),
    }
}

/// The rest of an answer.
fn answer_rows(question: &Question, value: &Value) -> Vec<Detail> {
    let text = |member: &str| value.get(member).and_then(Value::as_str).unwrap_or_default().to_owned();
    let row = |label: &str, value: String| Detail { label: label.to_owned(), value };
    let label = |options: &[countersign_kernel::question::Choice], chosen: &str| {
        options.iter().find(|option| option.value == chosen).map_or(chosen.to_owned(), |option| option.label.clone())
    };
    match question {
        Question::Approval {} if value.get("reason").is_some() => vec![row("Reason", text("reason"))],
        Question::Approval {} | Question::Unlock { .. } => Vec::new(),
        Question::Input { .. } => vec![row("Answer", text("value"))],
        Question::Select { options } => vec![row("Answer", label(options, &text("value")))],
        Question::Modal { actions } => vec![row("Action", label(actions, &text("action")))],
        Question::MultiSelect { options } => {
            let chosen: Vec<String> = value
                .get("values")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(|chosen| label(options, chosen))
                .collect();
            vec![row("Answer", if chosen.is_empty() { "none".to_owned() } else { chosen.join(", ") })]
        }
        Question::Form { schema } => fields(schema)
            .unwrap_or_default()
            .iter()
            .filter_map(|field| Some(row(&field.label, plain(value.get(&field.name)?))))
            .collect(),
    }
}

/// A JSON value as people read it.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Null => "–".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Array(_) | Value::Object(_) => pretty(value),
    }
}

fn details(case: &Case) -> Vec<Detail> {
    let mut details = case.request.details.clone();
    if let Question::Unlock { key } = &case.request.question {
        details.insert(0, Detail { label: "To unlock".to_owned(), value: key.clone() });
    }
    details
}

fn outcomes(case: &Case) -> Vec<(&'static str, String)> {
    let said = &case.request.outcomes;
    let approval = matches!(case.request.question, Question::Approval {});
    let row = |label, said: Option<&String>, otherwise| (label, sentence(said.map_or(otherwise, String::as_str)));
    let yes = if approval { "If you approve" } else { "When you answer" };
    let mut rows = vec![row(yes, said.yes.as_ref(), "the flow goes on")];
    if approval {
        rows.push(row("If you reject", said.no.as_ref(), "the flow is told so"));
    }
    let waits = match case.view.deadline {
        Some(_) => "it stops waiting at the time below",
        None => "it keeps waiting",
    };
    rows.push(row("If nobody answers", said.silence.as_ref(), waits));
    rows
}

fn votes(case: &Case) -> String {
    let (have, need) = (case.standing.have, case.standing.need);
    if need <= 1 {
        return "One vote decides.".to_owned();
    }
    let alone = match case.request.question {
        Question::Approval {} => " A rejection decides alone.",
        _ => " Only equal answers count together.",
    };
    format!("{have} of {need} votes so far, of different people.{alone}")
}
