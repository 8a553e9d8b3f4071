//! The recipes, as one tests a flow: answers in, questions and effects out.

mod agent;
mod approval;
mod document;
mod dynamic_stop;
mod editing;
mod event;
mod fan_out;
mod input;
mod retry;
mod review_round;
mod tool_call;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use countersign_flows::recipes::{Call, Message, Model, Outside, OutsideError};
use countersign_kernel::driver::{Driver, Refused};
use countersign_kernel::graph::CompiledGraph;
use countersign_kernel::ids::InterruptId;
use countersign_kernel::machine::{Edit, Resume};
use countersign_kernel::question::Request;
use futures_util::FutureExt;
use serde_json::{Value, json};

const NOTHING: Resume = Resume { release: false, retry: false, resume_all: false, supersteps: None };
const CONTINUE: Resume = Resume { release: true, ..NOTHING };
const RETRY: Resume = Resume { retry: true, ..NOTHING };
const RESUME_ALL: Resume = Resume { resume_all: true, ..NOTHING };

/// Who answers in the tests.
const ANN: &str = "ann@example.com";

/// Polls once: nothing in these tests waits for anything outside.
fn now<F: Future>(future: F) -> F::Output {
    future.now_or_never().expect("nothing here waits for I/O")
}

/// Something outside that keeps what it was called with, by key, and fails as
/// it was told to.
#[derive(Default)]
struct World {
    calls: Mutex<Vec<(String, String, Value)>>,
    failures: Mutex<VecDeque<OutsideError>>,
}

impl World {
    /// What was called with what, in order; failed calls too.
    fn calls(&self) -> Vec<(String, Value)> {
        self.calls.lock().expect("whole").iter().map(|(_, what, arguments)| (what.clone(), arguments.clone())).collect()
    }

    /// How often something was called.
    fn count(&self, what: &str) -> usize {
        self.calls().iter().filter(|(called, _)| called == what).count()
    }

    /// The keys of the calls, in order.
    fn keys(&self) -> Vec<String> {
        self.calls.lock().expect("whole").iter().map(|(key, ..)| key.clone()).collect()
    }

    /// Lets the next calls fail.
    fn fail_next(&self, times: usize) {
        let failures = std::iter::repeat_n(OutsideError::Unavailable("the line is dead".into()), times);
        self.failures.lock().expect("whole").extend(failures);
    }
}

#[async_trait]
impl Outside for World {
    async fn call(&self, key: &str, what: &str, arguments: &Value) -> Result<Value, OutsideError> {
        self.calls.lock().expect("whole").push((key.to_owned(), what.to_owned(), arguments.clone()));
        match self.failures.lock().expect("whole").pop_front() {
            Some(failure) => Err(failure),
            None => Ok(json!(format!("{what} done"))),
        }
    }
}

/// A model that says what it was given to say, and keeps what it heard.
struct Script {
    says: Mutex<VecDeque<Message>>,
    heard: Mutex<Vec<Vec<Message>>>,
}

#[async_trait]
impl Model for Script {
    async fn turn(&self, messages: &[Message]) -> Result<Message, OutsideError> {
        self.heard.lock().expect("whole").push(messages.to_vec());
        self.says.lock().expect("whole").pop_front().ok_or_else(|| OutsideError::Unavailable("out of words".into()))
    }
}

impl Script {
    fn new(says: impl IntoIterator<Item = Message>) -> Self {
        Self { says: Mutex::new(says.into_iter().collect()), heard: Mutex::default() }
    }

    fn turns(&self) -> usize {
        self.heard.lock().expect("whole").len()
    }

    /// The results that the model was told of last.
    fn told(&self) -> Vec<String> {
        let heard = self.heard.lock().expect("whole");
        let results = heard.last().into_iter().flatten().filter_map(|message| match message {
            Message::Tool { call, text } => Some(format!("{call}: {text}")),
            Message::User { .. } | Message::Assistant { .. } => None,
        });
        results.collect()
    }
}

/// A turn with calls: their ids, tools and arguments.
fn says(calls: &[(&str, &str, Value)]) -> Message {
    let call = |(id, tool, arguments): &(&str, &str, Value)| Call {
        id: (*id).to_owned(),
        tool: (*tool).to_owned(),
        arguments: arguments.as_object().cloned().expect("an object"),
    };
    Message::Assistant { text: "…".into(), calls: calls.iter().map(call).collect() }
}

fn world() -> (Arc<World>, Arc<dyn Outside>) {
    let world = Arc::new(World::default());
    (Arc::clone(&world), world)
}

fn start(flow: impl Into<Arc<CompiledGraph>>, input: Value) -> Driver {
    now(Driver::start(flow, input)).expect("good input")
}

/// Answers the only open question.
fn answer(run: &mut Driver, answer: Value) -> Result<(), Refused> {
    now(run.answer_as(ANN, answer))
}

/// Answers some of those that are open.
fn answer_ids(run: &mut Driver, answers: &[(&InterruptId, Value)]) -> Result<(), Refused> {
    now(run.answer_ids(answers.iter().map(|(id, answer)| ((*id).clone(), answer.clone())), ANN))
}

fn resume(run: &mut Driver, resume: Resume) {
    now(run.resume(resume));
}

/// Writes keys to the state, or nothing; as `node`, if one is named.
fn edit(run: &mut Driver, values: Value, node: Option<&str>) {
    let values = match values {
        Value::Object(values) => Some(values),
        _ => None,
    };
    let edit = Edit { values, as_node: node.map(str::to_owned) };
    run.edit(&edit, None, None).expect("it fits");
}

/// What is asked, in the order in which it is listed.
fn asked(run: &Driver) -> Vec<Request> {
    run.points().iter().filter_map(|point| point.request()).collect()
}

fn titles(run: &Driver) -> Vec<String> {
    asked(run).into_iter().map(|request| request.title).collect()
}

/// Where it is asked.
fn places(run: &Driver) -> Vec<String> {
    run.points().iter().map(|point| point.address.to_string()).collect()
}

/// Where a refused answer is at fault.
fn faults(refused: Result<(), Refused>) -> Vec<String> {
    match refused {
        Err(Refused::Invalid(faults)) => faults.into_iter().map(|fault| fault.pointer).collect(),
        other => panic!("{other:?}"),
    }
}
