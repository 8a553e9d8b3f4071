//! K7 over random graphs: in whichever order and portions answers come, the
//! end is the same, and no body runs more often than it has to.

use std::collections::{BTreeMap, BTreeSet};

use countersign_kernel::context::{Context, Slot};
use countersign_kernel::driver::Driver;
use countersign_kernel::graph::{CompiledGraph, START};
use countersign_kernel::ids::InterruptId;
use countersign_kernel::machine::{Point, Rest};
use countersign_kernel::node::NodeResult;
use countersign_kernel::state::Writes;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::*;

/// A node: questions it asks in turn, and then a batch of slots that each ask
/// that many in turn.
#[derive(Debug, Clone)]
struct Shape {
    questions: u8,
    slots: Vec<u8>,
}

/// Layers of parallel nodes; a layer starts when the one before has joined.
type Layers = Vec<Vec<Shape>>;

fn layers() -> impl Strategy<Value = Layers> {
    let shape =
        (0..3_u8, prop::collection::vec(0..3_u8, 0..4)).prop_map(|(questions, slots)| Shape { questions, slots });
    prop::collection::vec(prop::collection::vec(shape, 1..4), 1..4)
}

async fn ask_all(cx: &Context, who: &str, questions: u8) -> NodeResult<Vec<Value>> {
    let mut answers = Vec::new();
    for question in 0..questions {
        answers.push(cx.interrupt(format!("{who}/{question}")).await?);
    }
    Ok(answers)
}

fn compiled(layers: &Layers, runs: &Runs) -> CompiledGraph {
    graph(|g| {
        let mut before: Vec<String> = Vec::new();
        for (depth, layer) in layers.iter().enumerate() {
            let names: Vec<String> = (0..layer.len()).map(|i| format!("n{depth}{i}")).collect();
            for (name, shape) in names.iter().zip(layer) {
                let shared = (runs.clone(), name.clone(), shape.clone());
                let body = with(&shared, |cx, (runs, name, shape)| async move {
                    runs.hit(&name);
                    let own = ask_all(&cx, &name, shape.questions).await?;
                    let slots = shape.slots.iter().enumerate();
                    let slots = slots.map(|(i, n)| Slot::new("s", (format!("{name}.{i}"), *n))).collect();
                    let parts: Vec<Vec<Value>> = cx
                        .batch("part", slots, |cx, (who, questions)| {
                            runs.hit(&who);
                            async move { ask_all(&cx, &who, questions).await }
                        })
                        .await?;
                    Ok(got(&name, &json!([own, parts])).with("log", &[name]))
                });
                g.node(name, body);
                if before.is_empty() {
                    g.edge(START, name);
                } else {
                    g.join(before.clone(), name);
                }
            }
            before = names;
        }
        g.node("end", with(&(), |_, ()| async move { Ok(Writes::none().with("sum", &1)) })).join(before, "end");
    })
}

/// Answers with what depends on the question alone, so that runs compare.
fn reply(point: &Point) -> Value {
    json!(format!("yes to {}", point.payload.as_str().unwrap_or_default()))
}

/// How many answers each body got: a slot's count for its node as well.
fn credit(given: &mut BTreeMap<String, u32>, point: &Point) {
    let who = point.payload.as_str().and_then(|text| text.split_once('/')).map_or("", |(who, _)| who);
    *given.entry(who.to_owned()).or_insert(0) += 1;
    if let Some((node, _)) = who.split_once('.') {
        *given.entry(node.to_owned()).or_insert(0) += 1;
    }
}

struct Played {
    state: Value,
    runs: BTreeMap<String, u32>,
    given: BTreeMap<String, u32>,
    asked: BTreeSet<String>,
}

/// Plays a thread to its end. `pick` says of each open point, by its index and
/// the number of open points, whether it is answered in this round.
fn play(layers: &Layers, mut pick: impl FnMut(usize, usize) -> bool) -> Played {
    let runs = Runs::default();
    let mut run: Driver = start(compiled(layers, &runs));
    let mut given = BTreeMap::new();
    let mut ids: BTreeMap<InterruptId, String> = BTreeMap::new();
    while run.rest() == Rest::Parked {
        let points = run.points();
        for point in &points {
            let text = point.payload.as_str().unwrap_or_default().to_owned();
            let known = ids.insert(point.id.clone(), text.clone());
            assert!(known.is_none_or(|known| known == text), "one id, two questions");
        }
        let mut chosen: Vec<&Point> =
            points.iter().enumerate().filter(|(i, _)| pick(*i, points.len())).map(|(_, point)| point).collect();
        if chosen.is_empty() {
            chosen.push(&points[points.len() / 2]);
        }
        let answers: Vec<_> = chosen.iter().map(|point| (&point.id, reply(point))).collect();
        answer_ids(&mut run, &answers).expect("open");
        for point in &chosen {
            credit(&mut given, point);
        }
        let now_open = run.points();
        for point in points.iter().filter(|point| chosen.iter().all(|answered| answered.id != point.id)) {
            assert!(now_open.contains(point), "{} was not answered and has changed", point.address);
        }
        for answered in chosen {
            assert!(now_open.iter().all(|point| point.id != answered.id), "{} is asked again", answered.address);
        }
    }
    assert_eq!(run.rest(), Rest::Succeeded, "{:?}", run.errors());
    let asked: BTreeSet<String> = ids.values().cloned().collect();
    assert_eq!(asked.len(), ids.len(), "one question, two ids");
    Played { state: Value::Object(run.state()), runs: runs.all(), given, asked }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn answers_in_any_order_and_portion_lead_to_the_same_end(
        layers in layers(),
        picks in prop::collection::vec(any::<bool>(), 1..64),
    ) {
        let one_by_one = play(&layers, |index, _| index == 0);
        let mut next = picks.iter().copied().cycle();
        let portions = play(&layers, |_, _| next.next().unwrap_or(true));
        let backwards = play(&layers, |index, open| index + 1 == open);

        for other in [&portions, &backwards] {
            prop_assert_eq!(&one_by_one.state, &other.state);
            prop_assert_eq!(&one_by_one.asked, &other.asked, "the same questions, each asked once");
        }
        for played in [&one_by_one, &portions, &backwards] {
            prop_assert_eq!(&played.state["sum"], &json!(1));
            for (body, runs) in &played.runs {
                let answers = played.given.get(body).copied().unwrap_or(0);
                prop_assert!(*runs <= 1 + answers, "{} ran {} times for {} answers", body, runs, answers);
            }
        }
    }
}
