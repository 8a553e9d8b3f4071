//! A run that loses its process comes out as one that did not, except that the
//! bodies that were running run once more.

#[path = "../../it/support/faulty.rs"]
#[allow(dead_code, reason = "shared with the tests of the engine")]
mod faulty;

use std::sync::Arc;

use async_trait::async_trait;
use countersign_conformance::deviations::Deviations;
use countersign_conformance::langgraph::attempt;
use countersign_conformance::langgraph::load::load;
use countersign_conformance::langgraph::model::{Op, Scenario};
use countersign_conformance::langgraph::play::Profile;
use countersign_conformance::langgraph::stored::Stored;
use countersign_conformance::langgraph::subject::{Edit, Entry, Refused, Request, Subject, View};
use countersign_conformance::recordings;
use countersign_conformance::stored::{Between, On, Program};
use faulty::{Dies, Fate, Faulty};
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{self, StreamExt};

/// Of which write after a request the process dies: none but the claim has
/// been made before the first body, and the first after it is the record of a
/// finished task, a superstep of a sub-graph, or the end of a superstep.
const FATES: [(u32, Dies); 6] =
    [(0, Dies::After), (1, Dies::Before), (1, Dies::After), (2, Dies::Before), (2, Dies::After), (3, Dies::After)];

/// One of so many: with each fate, and with scenarios of each kind.
const SOME: usize = 5;

/// A worker that dies once in each run, if it writes that often.
struct Mortal {
    kernel: Stored,
    fate: (u32, Dies),
}

impl Mortal {
    /// Ends the process and starts another one with this fate.
    async fn start(&mut self, fate: &Fate) -> Result<(), Refused> {
        let fate = fate.clone();
        let between: Between = Arc::new(move |store| Arc::new(Faulty::new(store, fate.clone())));
        self.kernel.set_between(between);
        self.kernel.crash().await.map_err(Refused::Other)
    }
}

#[async_trait]
impl Subject for Mortal {
    async fn run(&mut self, thread: &str, request: Request) -> Result<(), Refused> {
        let fate = Fate::at(self.fate.0, self.fate.1);
        self.start(&fate).await?;
        self.kernel.ask(thread, request).await?;
        let rests = self.kernel.rests(thread);
        let rest = tokio::select! {
            rest = rests => Some(rest),
            () = fate.death() => None,
        };
        match rest {
            Some(rest) => rest.map_err(Refused::Other),
            None => {
                self.start(&Fate::kind()).await?;
                self.kernel.rests(thread).await.map_err(Refused::Other)
            }
        }
    }

    async fn edit(&mut self, thread: &str, edit: Edit) -> Result<String, Refused> {
        self.start(&Fate::kind()).await?;
        self.kernel.edit(thread, edit).await
    }

    async fn view(&mut self, thread: &str) -> Result<View, String> {
        self.kernel.view(thread).await
    }

    async fn history(&mut self, thread: &str) -> Result<Vec<Entry>, String> {
        self.kernel.history(thread).await
    }

    async fn reopen(&mut self) -> Result<(), String> {
        self.kernel.crash().await
    }
}

/// Whether a body does something else when it runs once more.
fn remembers(ops: &[Op]) -> bool {
    ops.iter().any(|op| match op {
        Op::Raise { times, .. } => times.is_some(),
        Op::If { then, otherwise, .. } => remembers(then) || remembers(otherwise),
        _ => false,
    })
}

/// The scenarios that a death can leave as they are, with visits not counted:
/// all that were written by hand, and some of those that were not.
fn scenarios() -> Vec<Scenario> {
    let derived = load(&recordings().with_file_name("derived"));
    let all = load(&recordings()).into_iter().chain(derived).map(|scenario| scenario.expect("a scenario"));
    let forgets = |scenario: &Scenario| {
        let bodies = scenario.graphs.values().flat_map(|graph| graph.nodes.values()).flat_map(|node| &node.ops);
        !bodies.into_iter().any(|ops| remembers(ops))
    };
    let uncounted = |mut scenario: Scenario| {
        for action in &mut scenario.actions {
            for expect in [&mut action.expect, &mut action.expect_safe].into_iter().flatten() {
                expect.visits = None;
            }
        }
        scenario
    };
    let (mut hand, random): (Vec<_>, Vec<_>) =
        all.filter(forgets).map(uncounted).partition(|scenario| scenario.origin != "random");
    hand.extend(random.into_iter().step_by(3));
    hand
}

fn mortal(on: On, fate: (u32, Dies), program: Program) -> BoxFuture<'static, Result<Box<dyn Subject>, String>> {
    async move { Ok(Box::new(Mortal { kernel: Stored::open(on, program).await?, fate }) as Box<dyn Subject>) }.boxed()
}

#[tokio::test(flavor = "multi_thread")]
async fn recordings_hold_on_sqlite_although_the_process_dies_in_each_run() {
    let scenarios = scenarios();
    assert!(scenarios.len() > 120, "only {} scenarios fit", scenarios.len());
    hold_over_deaths(On::Sqlite, scenarios).await;
}

/// Some of them: the server takes its time to hear of a death.
#[tokio::test(flavor = "multi_thread")]
async fn recordings_hold_on_postgres_although_the_process_dies_in_each_run() {
    hold_over_deaths(On::Postgres, scenarios().into_iter().step_by(SOME).collect()).await;
}

async fn hold_over_deaths(on: On, scenarios: Vec<Scenario>) {
    let allowed = Arc::new(Deviations::own().expect("a list").kinds());
    let runs = scenarios.into_iter().zip(FATES.into_iter().cycle()).map(|(scenario, fate)| {
        let allowed = Arc::clone(&allowed);
        tokio::spawn(async move {
            let mut difference = String::new();
            for profile in [Profile::Recorded, Profile::Safe] {
                match attempt(&scenario, profile, &allowed, &|program| mortal(on, fate, program)).await {
                    Ok(_) => return None,
                    Err(found) => difference = found,
                }
            }
            Some(format!("{} {fate:?}\n{difference}", scenario.name))
        })
        .map(|run| run.expect("a result"))
    });
    let failed: Vec<String> = stream::iter(runs).buffer_unordered(8).filter_map(std::future::ready).collect().await;
    assert!(failed.is_empty(), "{} scenarios differ:\n{}", failed.len(), failed.join("\n"));
}
