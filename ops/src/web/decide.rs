//! Looking at a request and deciding it, through either door.

use axum::http::StatusCode;
use axum::response::Response;
use countersign_kernel::fault::Fault;
use countersign_kernel::ids::{InterruptId, ThreadId};
use countersign_kernel::policy::Voter;
use countersign_kernel::ports::Directory as _;
use countersign_kernel::principal::Principal;
use countersign_kernel::question::Request;
use countersign_kernel::time::Timestamp;
use countersign_worker::engine::{RequestError, VoteRequest};
use countersign_worker::store::commands::Via;
use countersign_worker::store::views::{InterruptView, RequestView};
use countersign_worker::store::{Refusal, StoreError};
use serde_json::Value;

use super::answer::{Posted, build};
use super::decision::{Banner, DecisionPage, PointPage, is_stop};
use super::over::Successor;
use super::page::{render, see_other};
use super::problem::Problem;
use super::site::Site;
use crate::state::AppState;
use crate::succession::successor;

/// Who looks, and how we know.
#[derive(Debug, Clone)]
pub(super) struct Visitor {
    /// The person that they count as.
    pub(super) principal: Principal,
    /// How they came.
    pub(super) via: Via,
    /// The thread and the content hash that a link was made for.
    pub(super) announced: Option<(ThreadId, String)>,
    /// Whether they may look at what they may not decide.
    pub(super) administrator: bool,
}

/// Somebody at the page of a request.
pub(super) struct Visit {
    pub(super) state: AppState,
    pub(super) site: Site,
    pub(super) interrupt: InterruptId,
    pub(super) visitor: Visitor,
}

/// A request as it stands.
pub(super) struct Case {
    pub(super) view: InterruptView,
    pub(super) request: Request,
    pub(super) standing: RequestView,
    /// Whether the visitor is among those who may decide.
    pub(super) admitted: bool,
    /// What asks in its place, if it was superseded.
    pub(super) successor: Option<Successor>,
    /// Whether its thread has ended, if it was superseded.
    pub(super) ended: bool,
}

enum Found {
    Case(Box<Case>),
    /// A point that people are not asked about, and what waits in its place.
    Point(Box<(InterruptView, Option<InterruptView>)>),
}

impl Visit {
    /// The page as it stands. Decides nothing.
    pub(super) async fn show(&self) -> Result<Response, Problem> {
        match self.find().await? {
            Found::Point(point) => {
                let (view, successor) = *point;
                let page = PointPage::new(&self.state, self.site.clone(), &view, successor.as_ref());
                Ok(render(StatusCode::OK, &page))
            }
            Found::Case(case) => {
                let announced = self.visitor.announced.as_ref().map(|(_, hash)| hash);
                let changed = announced.is_some_and(|hash| *hash != case.standing.content_hash);
                let banner = (changed && case.is_open() && self.own_vote(&case).is_none()).then(Banner::changed);
                let status = if case.is_over() { StatusCode::GONE } else { StatusCode::OK };
                Ok(self.page(status, &case, banner, &Posted::default(), &[]))
            }
        }
    }

    /// Records the answer that was posted and leads back to `here`, or says
    /// why it was not recorded.
    pub(super) async fn decide(&self, posted: &Posted, here: &str) -> Result<Response, Problem> {
        let case = match self.find().await? {
            Found::Case(case) => case,
            Found::Point(point) => return self.release(&point.0).await,
        };
        if !case.admitted {
            return Err(Problem::NotAsked);
        }
        let undecided = case.is_open() && self.own_vote(&case).is_none();
        let Some((revision, content_hash)) = self.seen(&case, posted) else {
            // The form is not one of ours, or an old one.
            return Ok(self.unseen(&case, undecided));
        };
        let current = revision == case.standing.revision && content_hash == case.standing.content_hash;
        if undecided && !current {
            return Ok(self.unseen(&case, undecided));
        }
        let answer = match build(&case.request.question, posted, self.state.config.limits.answer_bytes) {
            Ok(answer) => answer,
            Err(faults) if undecided => {
                return Ok(self.page(StatusCode::UNPROCESSABLE_ENTITY, &case, None, posted, &faults));
            }
            Err(_) => return Ok(self.conflict(&case)),
        };
        let vote = VoteRequest {
            interrupt: self.interrupt.clone(),
            principal: self.visitor.principal.clone(),
            operator: false,
            answer,
            revision: Some(revision),
            content_hash: Some(content_hash),
            via: self.visitor.via.clone(),
        };
        match self.state.engine.vote(vote).await {
            Ok(_) => Ok(see_other(here)),
            Err(RequestError::Store(StoreError::Refused(refusal))) => self.refused(refusal, posted).await,
            Err(error) => Err(error.into()),
        }
    }

    /// Lets a thread go on that stopped at a breakpoint or a pause: only the
    /// administrator has that page.
    async fn release(&self, view: &InterruptView) -> Result<Response, Problem> {
        let thread = format!("{}/threads/{}", self.site.prefix, view.thread);
        if !is_stop(&view.kind) {
            return Err(Problem::NotAsked);
        }
        let vote = VoteRequest {
            interrupt: self.interrupt.clone(),
            principal: self.visitor.principal.clone(),
            operator: true,
            answer: Value::Null,
            revision: None,
            content_hash: None,
            via: self.visitor.via.clone(),
        };
        match self.state.engine.vote(vote).await {
            // Somebody else was faster: the page says so.
            Err(RequestError::Store(StoreError::Refused(
                Refusal::Superseded { .. } | Refusal::AlreadyAnswered { .. },
            ))) => self.show().await,
            Err(error) => Err(error.into()),
            Ok(_) => Ok(see_other(&thread)),
        }
    }

    /// The revision and the content that the posted form showed; a link's
    /// message showed its own.
    fn seen(&self, case: &Case, posted: &Posted) -> Option<(u32, String)> {
        let announced = self.visitor.announced.as_ref().map(|(_, hash)| hash.as_str());
        let content_hash = posted.get("content_hash").or(announced)?;
        let revision = match posted.get("revision") {
            Some(text) => text.parse().ok()?,
            None => case.standing.revision,
        };
        Some((revision, content_hash.to_owned()))
    }

    /// Nothing is recorded on what was not shown: here is how it stands.
    fn unseen(&self, case: &Case, undecided: bool) -> Response {
        if undecided {
            return self.page(StatusCode::CONFLICT, case, Some(Banner::look_again()), &Posted::default(), &[]);
        }
        self.conflict(case)
    }

    async fn refused(&self, refusal: Refusal, posted: &Posted) -> Result<Response, Problem> {
        let faults = match refusal {
            Refusal::InvalidAnswer { faults, .. } => faults,
            Refusal::RequestChanged { .. }
            | Refusal::AlreadyAnswered { .. }
            | Refusal::AlreadyVoted { .. }
            | Refusal::Superseded { .. } => Vec::new(),
            other => return Err(StoreError::from(other).into()),
        };
        // It changed between our look and the vote: look once more.
        let Found::Case(case) = self.find().await? else { return Err(Problem::NotAsked) };
        let undecided = case.is_open() && self.own_vote(&case).is_none();
        if !faults.is_empty() && undecided {
            return Ok(self.page(StatusCode::UNPROCESSABLE_ENTITY, &case, None, posted, &faults));
        }
        Ok(self.unseen(&case, undecided))
    }

    /// The answer was not recorded, because something else is on record.
    fn conflict(&self, case: &Case) -> Response {
        if case.is_over() {
            return self.page(StatusCode::GONE, case, Some(Banner::not_recorded_over()), &Posted::default(), &[]);
        }
        let by = case.view.answered.as_ref().map(|answered| &answered.by);
        let own = by.is_none_or(|by| by.contains(&self.visitor.principal));
        let banner = if own { Banner::decided_by_you() } else { Banner::decided_by_others() };
        self.page(StatusCode::CONFLICT, case, Some(banner), &Posted::default(), &[])
    }

    fn page(
        &self,
        status: StatusCode,
        case: &Case,
        banner: Option<Banner>,
        posted: &Posted,
        faults: &[Fault],
    ) -> Response {
        render(status, &DecisionPage::new(self, case, banner, posted, faults))
    }

    /// The visitor's own vote.
    pub(super) fn own_vote<'a>(&self, case: &'a Case) -> Option<&'a (Principal, Value, Timestamp)> {
        case.standing.votes.iter().find(|(principal, _, _)| *principal == self.visitor.principal)
    }

    /// Whether a thread comes to no other question, unless it is started over.
    async fn has_ended(&self, thread: &ThreadId) -> Result<bool, Problem> {
        let status = self.state.engine.store().thread(thread).await?.summary.status;
        Ok(matches!(status.as_str(), "succeeded" | "cancelled"))
    }

    /// Reads the request and judges whether the visitor may see it.
    async fn find(&self) -> Result<Found, Problem> {
        let view = self.state.engine.store().interrupt(&self.interrupt).await?;
        let announced = self.visitor.announced.as_ref();
        if announced.is_some_and(|(thread, _)| *thread != view.thread) {
            return Err(Problem::NoRequest);
        }
        let successor = successor(self.state.engine.store().as_ref(), &view).await?;
        let Some(standing) = view.request.clone() else {
            let refuse = if announced.is_some() { Problem::NoRequest } else { Problem::NotAsked };
            let point = Found::Point(Box::new((view, successor)));
            return if self.visitor.administrator { Ok(point) } else { Err(refuse) };
        };
        let request = Request::from_payload(&view.payload).map_err(|error| {
            tracing::error!(%error, interrupt = %view.id, "a request cannot be read");
            Problem::Failed
        })?;
        let principal = self.visitor.principal.clone();
        let voter = Voter { roles: self.state.directory.roles(&principal), principal };
        let admitted = request.policy.admit(&voter).is_ok();
        if !admitted && !self.visitor.administrator {
            return Err(Problem::NotAsked);
        }
        let ended = view.status == "superseded" && self.has_ended(&view.thread).await?;
        let successor = successor.map(|view| Successor::new(&self.state, &self.visitor, &view));
        Ok(Found::Case(Box::new(Case { view, request, standing, admitted, successor, ended })))
    }
}

impl Case {
    /// Whether it waits.
    pub(super) fn is_open(&self) -> bool {
        self.view.status == "open"
    }

    /// Whether it ended without a decision.
    pub(super) fn is_over(&self) -> bool {
        !self.is_open() && self.view.answered.is_none()
    }
}
