//! Plays a scenario: performs its actions and compares what can be seen
//! (section 8 of the format). Reference runs are translated as in (R1).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::compare::{Seen, SeenError, compare, describe};
use super::explain::{Case, Kind};
use super::history;
use super::model::{Action, Addressed, Class, Expect, Reference, Scenario, Select, Step};
use super::subject::{Edit, Entry, Frame, Question, Refused, Request, Subject, Target, View};
use super::world::World;

/// Which of the two recordings counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// The reference as it is.
    Recorded,
    /// The reference with its dangerous places made safe.
    Safe,
}

impl Profile {
    fn of(self, action: &Action) -> Option<&Expect> {
        match self {
            Self::Recorded => action.expect.as_ref(),
            Self::Safe => action.expect_safe.as_ref().or(action.expect.as_ref()),
        }
    }
}

/// Kinds of difference that are known and meant.
pub type Allowed<'a> = &'a [Kind];

/// Plays `scenario` on `subject` to its end or to the first difference that is
/// not `allowed`. Gives the kinds of difference that were met.
///
/// # Errors
/// The first action after which something is not as recorded, for people.
pub async fn play(
    scenario: &Scenario,
    profile: Profile,
    allowed: Allowed<'_>,
    subject: &mut dyn Subject,
    world: &Arc<World>,
) -> Result<Vec<Kind>, String> {
    let mut met = Vec::new();
    let mut player = Player { subject, world, limit: scenario.recursion_limit, threads: BTreeMap::new() };
    for (number, action) in scenario.actions.iter().enumerate() {
        let open_before = player.notes(&action.thread).observed.last().map_or(0, Vec::len);
        let broken = |problem: String| format!("action {number}: {}\n  {problem}", action.text);
        let seen = player.perform(action).await.map_err(broken)?;
        let Some(expect) = profile.of(action) else { continue };
        let differences = compare(expect, &seen, scenario.any_error_node);
        if differences.is_empty() {
            continue;
        }
        let case = Case { scenario, number, expect, seen: &seen, differences: &differences, open_before };
        match allowed.iter().copied().find(|kind| kind.explains(&case)) {
            Some(kind) => {
                met.push(kind);
                if kind.ends_comparison() {
                    break;
                }
            }
            None => return Err(describe(number, &action.text, &differences)),
        }
    }
    Ok(met)
}

/// What is remembered of a thread.
#[derive(Debug, Default)]
struct Notes {
    observed: Vec<Vec<Question>>,
    marks: BTreeMap<String, String>,
}

/// An answer, and how it is addressed.
enum Answers<'a> {
    None,
    Plain(&'a Value),
    Addressed(&'a [Addressed]),
}

struct Player<'a> {
    subject: &'a mut dyn Subject,
    world: &'a World,
    limit: u32,
    threads: BTreeMap<String, Notes>,
}

type Done = Result<Result<(), SeenError>, String>;

impl Player<'_> {
    async fn perform(&mut self, action: &Action) -> Result<Seen, String> {
        let thread = action.thread.as_str();
        let done = match &action.step {
            Step::Invoke { input: Some(input), at, recursion_limit } => {
                let mut request = self.request(thread, at.as_deref(), *recursion_limit)?;
                request.input = Some(input.clone());
                self.run(thread, request).await?
            }
            Step::Invoke { input: None, at, recursion_limit } => {
                let request = self.request(thread, at.as_deref(), *recursion_limit)?;
                self.go_on(thread, request, Answers::None).await?
            }
            Step::Resume { value, at, recursion_limit } => {
                let request = self.request(thread, at.as_deref(), *recursion_limit)?;
                self.go_on(thread, request, Answers::Plain(value)).await?
            }
            Step::ResumeMap { answers, at, recursion_limit, strict: _ } => {
                let request = self.request(thread, at.as_deref(), *recursion_limit)?;
                self.go_on(thread, request, Answers::Addressed(answers)).await?
            }
            Step::Command { update, goto, send, resume, at, recursion_limit } => {
                let mut request = self.request(thread, at.as_deref(), *recursion_limit)?;
                request.update = update.clone().unwrap_or_default();
                request.targets = goto.iter().cloned().map(Target::Node).collect();
                request.targets.extend(send.iter().map(|sent| Target::Task(sent.to.clone(), sent.arg.clone())));
                let answers = resume.as_ref().map_or(Answers::None, Answers::Plain);
                self.go_on(thread, request, answers).await?
            }
            Step::UpdateState { values, as_node, at, mark, subgraph } => {
                let at = at.as_deref().map(|mark| self.marked(thread, mark)).transpose()?;
                let edit = Edit { values: values.clone(), as_node: as_node.clone(), at, frame: subgraph.clone() };
                self.edit(thread, edit, mark.as_deref()).await?
            }
            Step::Mark { name, select } => {
                let checkpoint = self.select(thread, select).await?;
                self.notes(thread).marks.insert(name.clone(), checkpoint);
                return Ok(Seen::default());
            }
            Step::GetState { at: Some(mark) } => return self.record(thread, mark).await,
            Step::History {} => {
                let history = history::list(&self.subject.history(thread).await?);
                return Ok(Seen { history, ..Seen::default() });
            }
            Step::Reopen {} => {
                self.subject.reopen().await?;
                Ok(())
            }
            Step::GetState { at: None } => Ok(()),
        };
        self.observe(thread, done.err()).await
    }

    fn notes(&mut self, thread: &str) -> &mut Notes {
        self.threads.entry(thread.to_owned()).or_default()
    }

    fn marked(&self, thread: &str, mark: &str) -> Result<String, String> {
        let marked = self.threads.get(thread).and_then(|notes| notes.marks.get(mark));
        marked.cloned().ok_or_else(|| format!("there is no mark `{mark}`"))
    }

    fn request(&self, thread: &str, at: Option<&str>, limit: Option<u32>) -> Result<Request, String> {
        let at = at.map(|mark| self.marked(thread, mark)).transpose()?;
        Ok(Request { at, supersteps: limit.unwrap_or(self.limit), ..Request::default() })
    }

    /// Goes on, with an answer or without.
    async fn go_on(&mut self, thread: &str, mut request: Request, answers: Answers<'_>) -> Done {
        let view = self.subject.view(thread).await?;
        let adds = !request.update.is_empty() || !request.targets.is_empty();
        if view.checkpoint.is_none() && (adds || matches!(answers, Answers::Plain(_))) {
            // Counts as empty input plus what the command adds (rule 90).
            request.input = Some(Map::new());
            return self.run(thread, request).await;
        }
        if matches!(answers, Answers::None) {
            return self.run(thread, request).await;
        }
        // An answer addressed to the current checkpoint is like one without an
        // address (rule 72).
        if request.at == view.checkpoint {
            request.at = None;
        }
        let mut open = view.questions;
        let mut replayed = false;
        if let Some(at) = request.at.take() {
            // Replay, ask again, then answer: the safe profile's fourth point.
            let replay = Request { at: Some(at), supersteps: request.supersteps, ..Request::default() };
            if let Err(refused) = self.run(thread, replay).await? {
                return Ok(Err(refused));
            }
            open = self.subject.view(thread).await?.questions;
            replayed = true;
        }
        request.answers = match answers {
            Answers::None => Vec::new(),
            Answers::Addressed(answers) => {
                // After a replay the same question has another id.
                let asked_again = if replayed { open.as_slice() } else { &[] };
                let id = |answer: &Addressed| self.id(thread, &answer.reference, asked_again);
                let ids = answers.iter().map(|answer| Ok((id(answer)?, answer.value.clone())));
                last_of_each(ids.collect::<Result<_, String>>()?)
            }
            Answers::Plain(value) => match open.as_slice() {
                // At a stop: belongs to this run and is not used (safe profile).
                [] => Vec::new(),
                [question] => vec![(question.id.clone(), value.clone())],
                questions => {
                    let message = format!("{} questions are open", questions.len());
                    return Ok(Err(SeenError::new(Class::AmbiguousResume, message)));
                }
            },
        };
        self.run(thread, request).await
    }

    async fn run(&mut self, thread: &str, request: Request) -> Done {
        let refused = match self.subject.run(thread, request).await {
            Ok(()) => return Ok(self.subject.view(thread).await?.failure().map_or(Ok(()), Err)),
            Err(refused) => refused,
        };
        Ok(match refused {
            Refused::NothingPending if self.subject.view(thread).await?.checkpoint.is_some() => Ok(()),
            Refused::NothingPending => Err(SeenError::new(Class::EmptyInput, "nothing ever ran")),
            Refused::NotOpen => Err(SeenError::new(Class::UnknownInterrupt, "an id is not open")),
            Refused::BadNode(message) => Err(SeenError::new(Class::InvalidUpdate, message)),
            Refused::Invalid(message) | Refused::Other(message) => Err(SeenError::new(Class::Other, message)),
        })
    }

    async fn edit(&mut self, thread: &str, edit: Edit, mark: Option<&str>) -> Done {
        Ok(match self.subject.edit(thread, edit).await {
            Ok(checkpoint) => {
                if let Some(mark) = mark {
                    self.notes(thread).marks.insert(mark.to_owned(), checkpoint);
                }
                Ok(())
            }
            Err(Refused::BadNode(message) | Refused::Invalid(message)) => {
                Err(SeenError::new(Class::InvalidUpdate, message))
            }
            Err(refused) => Err(SeenError::new(Class::Other, format!("{refused:?}"))),
        })
    }

    /// The id that a scenario means (section 4), or that of the same question
    /// among those that were asked again.
    fn id(&self, thread: &str, reference: &Reference, asked_again: &[Question]) -> Result<String, String> {
        /// Has the form of an id, and is none.
        const NEVER: &str = "00000000000000000000000000000000";
        if reference.unknown {
            return Ok(NEVER.to_owned());
        }
        let none = Vec::new();
        let observed = self.threads.get(thread).map_or(&none, |notes| &notes.observed);
        let found = if let Some(number) = reference.observation {
            observed.get(number).and_then(|seen| pick(seen, reference))
        } else if reference.stale {
            observed.iter().rev().skip(1).find_map(|seen| pick(seen, reference))
        } else {
            observed.last().and_then(|seen| pick(seen, reference))
        };
        let found = found.ok_or_else(|| format!("no question was seen that fits {reference:?}"))?;
        let again = asked_again.iter().find(|again| again.path == found.path && again.payload == found.payload);
        Ok(again.unwrap_or(found).id.clone())
    }

    async fn select(&mut self, thread: &str, select: &Select) -> Result<String, String> {
        let found = if select.current {
            self.subject.view(thread).await?.checkpoint
        } else {
            history::select(&history::list(&self.subject.history(thread).await?), select)
        };
        found.ok_or_else(|| "no checkpoint fits".to_owned())
    }

    /// Reads a checkpoint as it was made, whatever has become of its tasks.
    async fn record(&mut self, thread: &str, mark: &str) -> Result<Seen, String> {
        let id = self.marked(thread, mark)?;
        let entries = self.subject.history(thread).await?;
        let listed = history::list(&entries).into_iter().find(|entry| entry.id == id);
        let root = match listed {
            Some(entry) => Frame { values: entry.values, next: entry.next },
            None => {
                let entry: Option<Entry> = entries.into_iter().find(|entry| entry.id == id);
                entry.ok_or_else(|| format!("the checkpoint `{mark}` is gone"))?.record
            }
        };
        let view = View { checkpoint: Some(id), root, ..View::default() };
        Ok(Seen { view, visits: self.world.visits(), ..Seen::default() })
    }

    async fn observe(&mut self, thread: &str, error: Option<SeenError>) -> Result<Seen, String> {
        let view = self.subject.view(thread).await?;
        self.notes(thread).observed.push(view.questions.clone());
        Ok(Seen { error, view, visits: self.world.visits(), history: Vec::new() })
    }
}

/// The question among those seen that a scenario means.
fn pick<'a>(seen: &'a [Question], reference: &Reference) -> Option<&'a Question> {
    let fits = |question: &&Question| {
        question.path == reference.path && reference.payload.as_ref().is_none_or(|p| *p == question.payload)
    };
    let mut fitting: Vec<&Question> = seen.iter().filter(fits).collect();
    fitting.sort_by_key(|question| countersign_kernel::canonical::canonical_text(&question.payload));
    fitting.get(reference.nth).copied()
}

/// Of several answers to one id the last counts, as in any map.
fn last_of_each(answers: Vec<(String, Value)>) -> Vec<(String, Value)> {
    let mut last: Vec<(String, Value)> = Vec::new();
    for (id, value) in answers {
        last.retain(|(other, _)| *other != id);
        last.push((id, value));
    }
    last
}

impl View {
    /// How the run that led here ended, if not well.
    fn failure(&self) -> Option<SeenError> {
        // A graph that runs as a node fails because something in it did.
        let is_cause =
            |path: &[String]| !self.failed.iter().any(|(other, _)| other.len() > path.len() && other.starts_with(path));
        let first = self.failed.iter().filter(|(path, _)| is_cause(path)).min();
        if let Some((path, message)) = first {
            if message.starts_with("concurrent_update:") {
                return Some(SeenError::new(Class::ConcurrentUpdate, message));
            }
            let nodes: Vec<&str> = path.iter().map(|task| task.split('#').next().unwrap_or(task)).collect();
            return Some(SeenError { class: Class::NodeError, node: Some(nodes.join("/")), message: message.clone() });
        }
        self.exhausted.then(|| SeenError::new(Class::Recursion, "the run used up its supersteps"))
    }
}
