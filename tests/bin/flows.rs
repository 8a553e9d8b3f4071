//! The program with flows of its own, for the end-to-end tests: graphs that
//! none of those that ship has need of.
//!
//! Every body notes in `journal.txt`, in the working directory, that it ran;
//! `seal` waits for the file `open` there.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use countersign_kernel::graph::CompileError;
use countersign_kernel::prelude::*;
use serde_json::json;

fn main() -> ExitCode {
    let _present = rustls::crypto::ring::default_provider().install_default();
    countersign::cli::main_with(std::env::args_os(), &countersign::config::environment(), flows).into()
}

fn flows() -> Result<Vec<CompiledGraph>, CompileError> {
    Ok(vec![trip()?, gated()?, parcel()?, fan()?, toolbox()?, nested()?, shaky()?, tale()?, patient()?])
}

/// Notes that something ran, in one write, so that lines of several processes
/// do not mix.
fn note(what: &str) -> NodeResult<()> {
    let journal = std::fs::File::options().create(true).append(true).open("journal.txt");
    let written = journal.and_then(|mut journal| journal.write_all(format!("{what}\n").as_bytes()));
    written.map_err(|error| NodeError::failed(format!("the journal: {error}")))
}

#[derive(State)]
struct Trip {
    budget: i64,
    #[reduce(append)]
    log: Vec<String>,
    approved: Option<bool>,
    outcome: Option<String>,
}

/// Gathers, asks, then books in a step or calls it off.
fn trip() -> Result<CompiledGraph, CompileError> {
    let mut flow = Graph::<Trip>::new("trip", 1);
    let (gather, ask, book) = (flow.node("gather", gather), flow.node("ask", ask), flow.node("book", book));
    let call_off = flow.node("call_off", call_off);
    flow.start(gather);
    flow.edge(gather, ask);
    flow.after(ask, move |trip| if trip.approved == Some(true) { book.into() } else { call_off.into() });
    flow.end(book);
    flow.end(call_off);
    flow.compile()
}

/// As `trip`, without asking: it stops before `book` instead.
fn gated() -> Result<CompiledGraph, CompileError> {
    let mut flow = Graph::<Trip>::new("gated", 1);
    let (gather, book) = (flow.node("gather", gather), flow.node("book", book));
    flow.start(gather);
    flow.edge(gather, book);
    flow.end(book);
    flow.break_before(book);
    flow.compile()
}

async fn gather(_: &Context, _: &Trip) -> NodeResult<TripUpdate> {
    note("gather")?;
    Ok(Trip::update().log("gathered".to_owned()))
}

async fn ask(cx: &Context, trip: &Trip) -> NodeResult<TripUpdate> {
    note("ask")?;
    let ask = approval(format!("Travel for {}?", trip.budget)).to(role("manager"));
    let decision = cx.ask(ask.on_yes("it is booked").on_no("it is called off")).await?;
    Ok(Trip::update().approved(Some(decision.approved)).log("asked".to_owned()))
}

async fn book(cx: &Context, trip: &Trip) -> NodeResult<TripUpdate> {
    note("book")?;
    let booked = cx.step("pay", async |_| note("pay").map(|()| trip.budget)).await?;
    Ok(Trip::update().outcome(Some(format!("booked for {booked}"))).log("booked".to_owned()))
}

async fn call_off(_: &Context, _: &Trip) -> NodeResult<TripUpdate> {
    note("call_off")?;
    Ok(Trip::update().outcome(Some("called off".to_owned())))
}

#[derive(State)]
struct Parcel {
    weight: Option<i64>,
    shipped: Option<bool>,
}

#[derive(State)]
struct Check {
    weight: Option<i64>,
    accepted: Option<bool>,
    sealed: Option<bool>,
}

/// A sub-graph between two nodes: `weigh`, `accept` (a question), `seal`.
fn parcel() -> Result<CompiledGraph, CompileError> {
    let mut inner = Graph::<Check>::new("check", 1);
    let (weigh, accept, seal) = (inner.node("weigh", weigh), inner.node("accept", accept), inner.node("seal", seal));
    inner.start(weigh);
    inner.edge(weigh, accept);
    inner.edge(accept, seal);
    inner.end(seal);
    let inner = inner.compile()?;
    let mut flow = Graph::<Parcel>::new("parcel", 1);
    let prepare = flow.node("prepare", prepare);
    let check =
        flow.subgraph("check", inner, |_: &Parcel| json!({}), |check: &Check| Parcel::update().weight(check.weight));
    let ship = flow.node("ship", ship);
    flow.start(prepare);
    flow.edge(prepare, check);
    flow.edge(check, ship);
    flow.end(ship);
    flow.compile()
}

async fn prepare(_: &Context, _: &Parcel) -> NodeResult<ParcelUpdate> {
    note("prepare")?;
    Ok(Parcel::update())
}

async fn weigh(cx: &Context, _: &Check) -> NodeResult<CheckUpdate> {
    note("weigh")?;
    let weight = cx.step("scale", async |_| Ok::<_, NodeError>(7)).await?;
    Ok(Check::update().weight(Some(weight)))
}

async fn accept(cx: &Context, check: &Check) -> NodeResult<CheckUpdate> {
    note("accept")?;
    let weight = check.weight.unwrap_or_default();
    let decision = cx.ask(approval(format!("Accept {weight} kg?")).to(role("manager"))).await?;
    Ok(Check::update().accepted(Some(decision.approved)))
}

async fn seal(_: &Context, _: &Check) -> NodeResult<CheckUpdate> {
    note("seal")?;
    while !Path::new("open").exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    note("sealed")?;
    Ok(Check::update().sealed(Some(true)))
}

async fn ship(_: &Context, _: &Parcel) -> NodeResult<ParcelUpdate> {
    note("ship")?;
    Ok(Parcel::update().shipped(Some(true)))
}

#[derive(State)]
struct Fan {
    #[state(default)]
    rate: i64,
    #[reduce(append)]
    log: Vec<String>,
}

/// Two at once, then a question; `extra` and `worker` only run if somebody
/// sends the flow there.
fn fan() -> Result<CompiledGraph, CompileError> {
    let mut flow = Graph::<Fan>::new("fan", 1);
    let (left, right) = (flow.node("left", async |_: &Context, _: &Fan| side("left")), flow.node("right", right));
    let (gate, extra, worker) = (flow.node("gate", gate), flow.node("extra", extra), flow.node("worker", worker));
    flow.start_with(move |_| [left, right].into());
    flow.join([left, right], gate);
    for last in [gate, extra, worker] {
        flow.end(last);
    }
    flow.compile()
}

fn side(name: &str) -> NodeResult<FanUpdate> {
    note(name)?;
    Ok(Fan::update().log(name.to_owned()))
}

async fn right(_: &Context, _: &Fan) -> NodeResult<FanUpdate> {
    side("right")
}

async fn extra(_: &Context, _: &Fan) -> NodeResult<FanUpdate> {
    side("extra")
}

async fn gate(cx: &Context, fan: &Fan) -> NodeResult<FanUpdate> {
    note("gate")?;
    let decision = cx.ask(approval("Through the gate?").to(role("manager"))).await?;
    Ok(Fan::update().log(format!("gate {} at {}", decision.approved, fan.rate)))
}

async fn worker(cx: &Context, fan: &Fan) -> NodeResult<FanUpdate> {
    note("worker")?;
    let argument: i64 = cx.argument_as()?;
    Ok(Fan::update().log(format!("worked {argument} at {}", fan.rate)))
}

#[derive(State)]
struct Toolbox {
    first: Option<serde_json::Value>,
    setting: Option<serde_json::Value>,
}

/// A container that takes data beside the question below it.
fn toolbox() -> Result<CompiledGraph, CompileError> {
    let mut flow = Graph::<Toolbox>::new("toolbox", 1);
    let tools = flow.node("tools", tools);
    flow.start(tools);
    flow.end(tools);
    flow.compile()
}

async fn tools(cx: &Context, _: &Toolbox) -> NodeResult<ToolboxUpdate> {
    note("tools")?;
    let setting = cx.container(json!({"title": "The settings of the tools"}))?;
    let first = cx.child("tool", "hammer", async |cx| cx.interrupt(json!({"title": "Use the hammer?"})).await).await;
    if setting.is_none() {
        first?;
        return Err(NodeError::Interrupted);
    }
    Ok(Toolbox::update().first(Some(first?)).setting(setting))
}

#[derive(State)]
struct Depth {
    n: Option<i64>,
    #[reduce(append)]
    log: Vec<String>,
}

/// Two sub-graphs, one in the other; the inner one stops before `second`.
fn nested() -> Result<CompiledGraph, CompileError> {
    let mut inner = Graph::<Depth>::new("inner", 1);
    let (first, second) = (inner.node("first", first), inner.node("second", second));
    inner.start(first);
    inner.edge(first, second);
    inner.end(second);
    inner.break_before(second);
    let inner = inner.compile()?;
    let up = |depth: &Depth| Depth::update().n(depth.n).log(format!("inside: {}", depth.log.join(", ")));
    let down = |depth: &Depth| json!({"n": depth.n});
    let mut middle = Graph::<Depth>::new("middle", 1);
    let inner = middle.subgraph("inner", inner, down, up);
    middle.start(inner);
    middle.end(inner);
    let middle = middle.compile()?;
    let mut flow = Graph::<Depth>::new("nested", 1);
    let middle = flow.subgraph("middle", middle, down, up);
    flow.start(middle);
    flow.end(middle);
    flow.compile()
}

async fn first(_: &Context, depth: &Depth) -> NodeResult<DepthUpdate> {
    note("first")?;
    Ok(Depth::update().log(format!("first {}", depth.n.unwrap_or_default())))
}

async fn second(_: &Context, depth: &Depth) -> NodeResult<DepthUpdate> {
    note("second")?;
    Ok(Depth::update().log(format!("second {}", depth.n.unwrap_or_default())))
}

/// Two at once, of which one fails as long as `n` is not positive; then one more.
fn shaky() -> Result<CompiledGraph, CompileError> {
    let mut flow = Graph::<Depth>::new("shaky", 1);
    let (steady, fails, last) = (flow.node("steady", first), flow.node("fails", fails), flow.node("last", second));
    flow.start_with(move |_| [steady, fails].into());
    flow.join([steady, fails], last);
    flow.end(last);
    flow.compile()
}

async fn fails(_: &Context, depth: &Depth) -> NodeResult<DepthUpdate> {
    note("fails")?;
    if depth.n.unwrap_or_default() <= 0 {
        return Err(NodeError::failed("n is not positive"));
    }
    Ok(Depth::update().log("mended".to_owned()))
}

#[derive(State)]
struct Tale {
    #[reduce(append)]
    chapters: Vec<String>,
}

/// Two nodes; the first says thrice how far it is, and waits for the file
/// `open` before it ends.
fn tale() -> Result<CompiledGraph, CompileError> {
    let mut flow = Graph::<Tale>::new("tale", 1);
    let (tell, end) = (flow.node("tell", tell), flow.node("end", end_of_tale));
    flow.start(tell);
    flow.edge(tell, end);
    flow.end(end);
    flow.compile()
}

async fn tell(cx: &Context, _: &Tale) -> NodeResult<TaleUpdate> {
    for words in 1..=3 {
        cx.emit(json!({"words": words})).await?;
    }
    note("told")?;
    while !Path::new("open").exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(Tale::update().chapters("Once upon a time there was a long first chapter.".to_owned()))
}

async fn end_of_tale(_: &Context, _: &Tale) -> NodeResult<TaleUpdate> {
    Ok(Tale::update().chapters("The end.".to_owned()))
}

#[derive(State)]
struct Patient {
    seconds: u64,
    decision: Option<Decision>,
    paid: Option<serde_json::Value>,
}

/// Asks for so many seconds, which counts as a no; then waits for `paid`.
fn patient() -> Result<CompiledGraph, CompileError> {
    let mut flow = Graph::<Patient>::new("patient", 1);
    let (decide, wait) = (flow.node("decide", decide), flow.node("wait", wait));
    flow.start(decide).edge(decide, wait).end(wait);
    flow.compile()
}

async fn decide(cx: &Context, patient: &Patient) -> NodeResult<PatientUpdate> {
    let time = Duration::from_secs(patient.seconds);
    let decision = cx.ask(approval("In time?").to(role("manager")).within(time, OnDeadline::Reject)).await?;
    Ok(Patient::update().decision(Some(decision)))
}

async fn wait(cx: &Context, _: &Patient) -> NodeResult<PatientUpdate> {
    note("wait")?;
    Ok(Patient::update().paid(Some(cx.signal("paid").await?)))
}
