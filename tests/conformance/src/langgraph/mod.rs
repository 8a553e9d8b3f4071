//! Scenarios of the format in `recordings/README.md`.

pub mod body;
pub mod build;
pub mod compare;
pub mod explain;
pub mod history;
pub mod load;
pub mod memory;
pub mod model;
pub mod play;
pub mod stored;
pub mod subject;
pub mod template;
pub mod world;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{self, StreamExt};

use self::explain::Kind;
use self::memory::Memory;
use self::model::{Class, Scenario};
use self::play::{Allowed, Profile, play};
use self::stored::Stored;
use self::subject::Subject;
use self::world::World;
use crate::deviations::Deviations;
use crate::report::{Backend, Format, Level, ScenarioResult, Verdict};
use crate::stored::{On, Program};

/// A scenario that takes longer hangs.
const LONGEST: Duration = Duration::from_secs(60);

/// The reason for a deviation that nothing explains, in a folder that is not
/// ours.
const NOT_LISTED: &str = "not in the list";

/// Runs the scenarios of this format in `dir`, side by side. `only` names one
/// of them, or a part of their names.
pub async fn run(dir: &Path, backend: Backend, only: Option<&str>) -> Vec<ScenarioResult> {
    let deviations = match Deviations::own() {
        Ok(deviations) => Arc::new(deviations),
        Err(problem) => return vec![unreadable("deviations.toml", problem)],
    };
    let ours = crate::is_ours(dir);
    let mut results = Vec::new();
    let mut scenarios = Vec::new();
    for loaded in load::load(dir) {
        match loaded {
            Ok(scenario) => scenarios.push(scenario),
            Err(bad) => results.push(unreadable(&bad.place, bad.problem)),
        }
    }
    let exact = scenarios.iter().any(|scenario| Some(scenario.name.as_str()) == only);
    scenarios.retain(|scenario| {
        only.is_none_or(|only| if exact { scenario.name == only } else { scenario.name.contains(only) })
    });
    let runs = scenarios.into_iter().map(|scenario| {
        let deviations = Arc::clone(&deviations);
        let (name, level) = (scenario.name.clone(), scenario.level);
        async move {
            let judged = tokio::spawn(async move { judge(&scenario, backend, &deviations, ours).await });
            let verdict =
                judged.await.unwrap_or_else(|problem| Verdict::failed(format!("the runner broke: {problem}")));
            ScenarioResult { name, format: Format::Langgraph, level, verdict }
        }
    });
    results.extend(stream::iter(runs).buffered(crate::AT_ONCE).collect::<Vec<_>>().await);
    results
}

fn unreadable(place: &str, problem: String) -> ScenarioResult {
    let verdict = Verdict::Failed { difference: problem };
    ScenarioResult { name: place.to_owned(), format: Format::Langgraph, level: Level::Core, verdict }
}

/// Plays a scenario against what was recorded, then against the safe profile
/// where there is one, then allowing for what differs on purpose.
async fn judge(scenario: &Scenario, backend: Backend, deviations: &Deviations, ours: bool) -> Verdict {
    let open = |program| open(backend, program);
    let difference = match attempt(scenario, Profile::Recorded, &[], &open).await {
        Ok(_) => return Verdict::Pass,
        Err(difference) => difference,
    };
    if scenario.level == Level::Core {
        return Verdict::Failed { difference };
    }
    let mut profiles = vec![Profile::Recorded];
    if scenario.actions.iter().any(|action| action.expect_safe.is_some()) {
        if attempt(scenario, Profile::Safe, &[], &open).await.is_ok() {
            return Verdict::PassSafe;
        }
        profiles.push(Profile::Safe);
    }
    for profile in profiles {
        if let Ok(kinds) = attempt(scenario, profile, &deviations.kinds(), &open).await {
            let missing = deviations.missing(&scenario.name, &kinds);
            if ours && !missing.is_empty() {
                let problem = format!("deviates ({missing:?}), and {NOT_LISTED} by name\n{difference}");
                return Verdict::Failed { difference: problem };
            }
            return Verdict::Deviates { reason: deviations.reason(&kinds), difference };
        }
    }
    if ours {
        return Verdict::Failed { difference: format!("deviates in a way that is {NOT_LISTED}\n{difference}") };
    }
    Verdict::Deviates { reason: NOT_LISTED.to_owned(), difference }
}

/// Makes a kernel for threads of a program.
pub type Open<'a> = &'a (dyn Fn(Program) -> BoxFuture<'static, Result<Box<dyn Subject>, String>> + Sync);

/// Plays a scenario from its beginning on a kernel of its own. Gives the kinds
/// of `allowed` difference that were met.
///
/// # Errors
/// The first other difference, for people.
pub async fn attempt(
    scenario: &Scenario,
    profile: Profile,
    allowed: Allowed<'_>,
    open: Open<'_>,
) -> Result<Vec<Kind>, String> {
    let world = Arc::new(World::default());
    match (build::build(scenario, &world), &scenario.expect_compile) {
        (Ok(_), None) => {}
        (Err(_), Some(expected)) if expected.class == Class::InvalidGraph => return Ok(Vec::new()),
        (Err(problem), _) => return Err(problem),
        (Ok(_), Some(_)) => return Err("the graph was built although it is faulty".to_owned()),
    }
    let program: Program = {
        let (scenario, world) = (scenario.clone(), Arc::clone(&world));
        Arc::new(move || build::build(&scenario, &world))
    };
    let mut subject = open(program).await?;
    let played = play(scenario, profile, allowed, subject.as_mut(), &world);
    match tokio::time::timeout(LONGEST, played).await {
        Ok(result) => result,
        Err(_) => Err(format!("not at rest after {LONGEST:?}")),
    }
}

/// A kernel for threads of `program`.
///
/// # Errors
/// It does not start.
pub fn open(backend: Backend, program: Program) -> BoxFuture<'static, Result<Box<dyn Subject>, String>> {
    async move {
        let subject: Box<dyn Subject> = match backend {
            Backend::Memory => Box::new(Memory::new(program()?)),
            Backend::Sqlite => Box::new(Stored::open(On::Sqlite, program).await?),
            Backend::Postgres => Box::new(Stored::open(On::Postgres, program).await?),
            Backend::Redis => Box::new(Stored::open(On::Redis, program).await?),
        };
        Ok(subject)
    }
    .boxed()
}
