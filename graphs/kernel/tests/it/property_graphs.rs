//! Random graphs with edges, joins, fan-outs, deferred nodes, graphs inside,
//! questions and failures: in whichever order answers and retries come, and
//! however often the thread is loaded anew, the end is the same, and no body
//! runs more often than it has to (K2, K7, K13, K17).

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use countersign_kernel::address::Address;
use countersign_kernel::context::Context;
use countersign_kernel::driver::{Driver, RunRequest};
use countersign_kernel::graph::{CompiledGraph, START};
use countersign_kernel::ids::{FrameId, InterruptId};
use countersign_kernel::machine::{Point, Rest, Resume};
use countersign_kernel::node::{NodeError, NodePolicy, NodeResult, Outcome, SharedBody};
use countersign_kernel::ports::{EffectError, Effects, FrameStep};
use countersign_kernel::state::{Values, Writes};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::*;

/// What runs as a node.
#[derive(Debug, Clone)]
enum Kind {
    /// A body that asks so many questions, one after the other.
    Ask(u8),
    /// A graph as a node.
    Sub(Layers),
    /// A body that calls a graph, and asks one question after it.
    Call(Layers),
}

#[derive(Debug, Clone)]
struct Shape {
    kind: Kind,
    /// Fails when it first comes to its end.
    fails: bool,
    /// So many tasks are sent to the worker, each of which asks.
    sends: u8,
    /// Led to by a join of all of the layer before; else by an edge from each.
    joined: bool,
    /// Led to from two layers before as well, which makes it run twice.
    skips: bool,
    deferred: bool,
}

/// Layers of parallel nodes.
type Layers = Vec<Vec<Shape>>;

fn layers(depth: u32) -> BoxedStrategy<Layers> {
    let ask = (0..3_u8).prop_map(Kind::Ask);
    let kind = if depth == 0 {
        ask.boxed()
    } else {
        let inner = || layers(depth - 1);
        prop_oneof![4 => ask, 2 => inner().prop_map(Kind::Sub), 1 => inner().prop_map(Kind::Call)].boxed()
    };
    let often = |weight| prop::bool::weighted(weight);
    let shape = (kind, often(0.15), prop_oneof![3 => Just(0_u8), 1 => 1..3_u8], any::<bool>(), often(0.2), often(0.15));
    let shape = shape.prop_map(|(kind, fails, sends, joined, skips, deferred)| Shape {
        kind,
        fails,
        sends,
        joined,
        skips,
        deferred,
    });
    let most = if depth == 2 { 4 } else { 3 };
    prop::collection::vec(prop::collection::vec(shape, 1..3), 1..most).boxed()
}

/// What bodies count: how often they ran, and which have failed already.
#[derive(Clone, Default)]
struct Counts {
    runs: Runs,
    ends: Runs,
}

impl Counts {
    fn end(&self, who: &str, fails: bool) -> NodeResult<()> {
        if fails && self.ends.hit(who) == 1 { Err(NodeError::failed("the first time")) } else { Ok(()) }
    }
}

/// What a body saw and was told, under its address.
fn told(cx: &Context, who: &str, what: &Value) -> Writes {
    let seen = cx.state().values().get("log").and_then(Value::as_array).map_or(0, Vec::len);
    got(who, &json!([seen, what])).with("log", &[who])
}

fn body(shape: &Shape, counts: &Counts, inner: Option<Arc<CompiledGraph>>) -> SharedBody {
    let questions = match shape.kind {
        Kind::Ask(questions) => questions,
        Kind::Sub(_) | Kind::Call(_) => 1,
    };
    let shared = (counts.clone(), inner, shape.clone());
    leading(&shared, move |cx, (counts, inner, shape)| async move {
        let who = cx.address().to_string();
        counts.runs.hit(&who);
        let mut answers = Vec::new();
        if let Some(inner) = inner {
            let log = cx.graph("called", &inner, json!({})).await?.remove("log");
            answers.push(json!(log));
        }
        for question in 0..questions {
            answers.push(cx.interrupt(format!("{who}?{question}")).await?);
        }
        counts.end(&who, shape.fails)?;
        let outcome = Outcome::from(told(&cx, &who, &json!(answers)));
        Ok((0..shape.sends).fold(outcome, |outcome, n| outcome.send("worker", json!(n))))
    })
}

fn worker(counts: &Counts) -> SharedBody {
    with(counts, |cx, counts| async move {
        let who = cx.address().to_string();
        counts.runs.hit(&who);
        let answer = cx.interrupt(format!("{who}?0")).await?;
        Ok(told(&cx, &who, &json!([cx.argument(), answer])))
    })
}

fn compiled(name: &str, layers: &Layers, counts: &Counts) -> CompiledGraph {
    let names: Vec<Vec<String>> =
        (0..layers.len()).map(|depth| (0..layers[depth].len()).map(|i| format!("n{depth}{i}")).collect()).collect();
    named(name, |g| {
        g.node("worker", worker(counts));
        for (depth, layer) in layers.iter().enumerate() {
            for (name, shape) in names[depth].iter().zip(layer) {
                match &shape.kind {
                    Kind::Ask(_) => g.node(name, body(shape, counts, None)),
                    Kind::Sub(inner) => g.subgraph(name, compiled("inner", inner, counts)),
                    Kind::Call(inner) => {
                        g.node(name, body(shape, counts, Some(Arc::new(compiled("called", inner, counts)))))
                    }
                };
                g.policy(name, NodePolicy { deferred: shape.deferred, ..NodePolicy::default() });
                match depth.checked_sub(1) {
                    None => _ = g.edge(START, name),
                    Some(before) if shape.joined => _ = g.join(names[before].clone(), name),
                    Some(before) => names[before].iter().for_each(|from| _ = g.edge(from, name)),
                }
                if shape.skips && depth >= 2 {
                    g.edge(&names[depth - 2][0], name);
                }
            }
        }
    })
}

/// Keeps the state of each frame from its changes alone, and says at each
/// superstep whether it is the frame's.
struct Replayed {
    kept: Arc<dyn Effects>,
    frames: Mutex<HashMap<FrameId, Values>>,
}

#[async_trait]
impl Effects for Replayed {
    async fn record(
        &self,
        frame: Option<&FrameId>,
        occurrence: &Address,
        name: &str,
        result: &Value,
    ) -> Result<(), EffectError> {
        self.kept.record(frame, occurrence, name, result).await
    }

    async fn frame(&self, step: FrameStep<'_>) -> Result<(), EffectError> {
        let id = step.position.place.id.clone().expect("an inner frame");
        let replayed = {
            let mut frames = self.frames.lock().expect("not poisoned");
            let values = frames.entry(id).or_default();
            for (key, change) in step.changes.into_iter().flatten() {
                values.apply(key, change);
            }
            values.clone()
        };
        for key in step.graph.keys() {
            let value = replayed.get(&key.name).cloned().or_else(|| key.reducer.neutral());
            assert_eq!(step.position.state.values().get(&key.name), value.as_ref(), "`{}` from its changes", key.name);
        }
        self.kept.frame(step).await
    }

    async fn emit(&self, occurrence: &Address, event: &Value) -> Result<(), EffectError> {
        self.kept.emit(occurrence, event).await
    }
}

fn checked(graph: impl Into<Arc<CompiledGraph>>) -> Driver {
    let mut run = thread(graph).with_host(|host| {
        let kept = Arc::clone(&host.effects);
        host.effects = Arc::new(Replayed { kept, frames: Mutex::default() });
    });
    request(&mut run, RunRequest { input: Some(json!({})), ..RunRequest::default() }).expect("good input");
    run
}

fn text(point: &Point) -> &str {
    point.payload.as_str().unwrap_or_default()
}

/// What one round of the game does.
enum Round {
    Answer(Vec<InterruptId>),
    Retry,
}

/// Everything that a client can see.
fn seen(run: &Driver) -> Value {
    let frames: Vec<_> = run.frames().into_iter().map(|f| json!([f.id.as_str(), f.path, f.values, f.next])).collect();
    let points: Vec<_> =
        run.points().iter().map(|p| json!([p.id.as_str(), p.address.to_string(), p.payload])).collect();
    let history: Vec<_> = run.history().iter().map(|e| json!([e.checkpoint.id.as_str(), e.values, e.next])).collect();
    json!([points, frames, history, run.live_state(), run.next(), run.failures(), format!("{:?}", run.rest())])
}

struct Played {
    state: Value,
    counts: Counts,
    /// Answers and retries by the address of the body that they were for.
    given: BTreeMap<String, u32>,
    asked: Vec<String>,
}

/// Plays a thread to its end. `pick` says of each open point, by its index and
/// the number of open points, whether it is answered in this round.
fn play(layers: &Layers, reopen: bool, mut pick: impl FnMut(usize, usize) -> bool) -> Played {
    let counts = Counts::default();
    let mut run = checked(compiled("g", layers, &counts));
    let mut given: BTreeMap<String, u32> = BTreeMap::new();
    let mut asked: BTreeMap<InterruptId, String> = BTreeMap::new();
    while run.rest() != Rest::Succeeded {
        if reopen {
            let before = (seen(&run), run.points());
            run = run.reopen(compiled("g", layers, &counts));
            assert_eq!((seen(&run), run.points()), before, "a restart is not to be seen");
        }
        assert_eq!(run.history()[0].values, run.state(), "the state from its changes");
        let points = run.points();
        for point in &points {
            let known = asked.insert(point.id.clone(), text(point).to_owned());
            assert!(known.is_none_or(|known| known == text(point)), "one id, two questions");
        }
        let round = choose(&run, &points, &mut pick);
        apply(&mut run, &points, &round, &mut given);
    }
    let mut asked: Vec<String> = asked.into_values().collect();
    asked.sort_unstable();
    assert!(asked.windows(2).all(|pair| pair[0] != pair[1]), "one question, two ids");
    Played { state: Value::Object(run.state()), counts, given, asked }
}

fn choose(run: &Driver, points: &[Point], pick: &mut impl FnMut(usize, usize) -> bool) -> Round {
    let failed = run.rest() == Rest::Failed;
    if failed && (points.is_empty() || pick(0, points.len())) {
        return Round::Retry;
    }
    let chosen: Vec<InterruptId> =
        points.iter().enumerate().filter(|(i, _)| pick(*i, points.len())).map(|(_, point)| point.id.clone()).collect();
    if chosen.is_empty() { Round::Answer(vec![points[points.len() / 2].id.clone()]) } else { Round::Answer(chosen) }
}

fn apply(run: &mut Driver, points: &[Point], round: &Round, given: &mut BTreeMap<String, u32>) {
    match round {
        Round::Retry => {
            *given.entry("retries".into()).or_insert(0) += 1;
            request(run, RunRequest { resume: Resume { retry: true, ..Resume::default() }, ..RunRequest::default() })
                .expect("something failed");
            let open = run.points();
            assert!(points.iter().all(|point| open.contains(point)), "a retry closes no point");
        }
        Round::Answer(chosen) => {
            let of = |id: &InterruptId| points.iter().find(|point| point.id == *id).expect("open");
            let answers: Vec<_> = chosen.iter().map(|id| (id, json!(format!("yes to {}", text(of(id)))))).collect();
            answer_ids(run, &answers).expect("open");
            for id in chosen {
                let who = text(of(id)).split('?').next().unwrap_or_default();
                *given.entry(who.to_owned()).or_insert(0) += 1;
            }
            let open = run.points();
            for point in points {
                let answered = chosen.contains(&point.id);
                assert_eq!(open.contains(point), !answered, "{} after a partial resume", point.address);
            }
        }
    }
}

impl Played {
    /// Bodies that only ask run once, and once more for each answer and for
    /// the failure of each; one that calls a graph also for what came in there.
    fn check_runs(&self) -> Result<(), TestCaseError> {
        let failures = self.counts.ends.all();
        let retries = self.given.get("retries").copied().unwrap_or(0);
        for (who, runs) in self.counts.runs.all() {
            let own = self.given.get(&who).copied().unwrap_or(0) + u32::from(failures.contains_key(&who));
            let below = format!("{who}/called");
            let calls = self.counts.runs.all().keys().any(|other| other.starts_with(&below));
            if calls {
                let inside = self.given.range(below.clone()..).take_while(|(who, _)| who.starts_with(&below));
                let inside: u32 = inside.map(|(_, given)| given).sum();
                prop_assert!(runs <= 1 + own + inside + retries, "{} ran {} times", who, runs);
            } else {
                prop_assert_eq!(runs, 1 + own, "runs of {}", who);
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn order_portions_restarts_and_retries_lead_to_the_same_end(
        layers in layers(2),
        picks in prop::collection::vec(any::<bool>(), 1..64),
    ) {
        let one_by_one = play(&layers, false, |index, _| index == 0);
        let mut next = picks.iter().copied().cycle();
        let portions = play(&layers, true, |_, _| next.next().unwrap_or(true));
        let backwards = play(&layers, true, |index, open| index + 1 == open);
        let at_once = play(&layers, false, |_, _| true);

        one_by_one.check_runs()?;
        for other in [&portions, &backwards, &at_once] {
            prop_assert_eq!(&one_by_one.state, &other.state);
            prop_assert_eq!(&one_by_one.asked, &other.asked, "the same questions, each asked once");
            other.check_runs()?;
        }
    }

    #[test]
    fn a_fork_of_any_checkpoint_leads_to_the_same_end_under_ids_of_its_own(
        layers in layers(1),
        at in any::<prop::sample::Index>(),
    ) {
        let counts = Counts::default();
        let mut run = checked(compiled("g", &layers, &counts));
        let ids = finish(&mut run);
        let (end, history) = (run.state(), run.history());
        let at = &history[at.index(history.len())];
        let ran = counts.runs.all();
        if at.next.is_empty() {
            prop_assert!(replay(&mut run, &at.checkpoint.id).is_err());
            return Ok(());
        }
        replay(&mut run, &at.checkpoint.id).expect("known");
        prop_assert!(run.points().iter().all(|point| !ids.contains(&point.id)));
        prop_assert_eq!(&run.history()[run.history().len() - history.len()..], &history[..]);
        finish(&mut run);
        prop_assert_eq!(run.state(), end);
        // Nothing from before the checkpoint has run again.
        for (who, before) in ran {
            let step = who.split('/').nth(1).and_then(|node| node.split('@').nth(1)).and_then(|n| n.parse::<u64>().ok());
            if step.is_some_and(|step| step < at.checkpoint.superstep) {
                prop_assert_eq!(counts.runs.of(&who), before, "{} ran again", who);
            }
        }
    }
}

/// Answers everything until the thread has finished; the ids of all that was
/// asked.
fn finish(run: &mut Driver) -> Vec<InterruptId> {
    let mut asked = Vec::new();
    while run.rest() != Rest::Succeeded {
        let points = run.points();
        let ids: Vec<InterruptId> = points.iter().map(|point| point.id.clone()).collect();
        asked.extend(ids.iter().cloned());
        let round = if points.is_empty() { Round::Retry } else { Round::Answer(ids) };
        apply(run, &points, &round, &mut BTreeMap::new());
    }
    asked
}
