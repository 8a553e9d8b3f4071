//! A restart changes nothing that a client can see (rule 92): all recordings
//! once more, with the kernel dropped and opened anew after every request.

use std::sync::Arc;

use async_trait::async_trait;
use countersign_conformance::deviations::Deviations;
use countersign_conformance::langgraph::load::load;
use countersign_conformance::langgraph::model::Scenario;
use countersign_conformance::langgraph::play::Profile;
use countersign_conformance::langgraph::subject::{Edit, Entry, Refused, Request, Subject, View};
use countersign_conformance::langgraph::{attempt, open};
use countersign_conformance::recordings;
use countersign_conformance::report::Backend;
use countersign_conformance::stored::Program;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{self, StreamExt};

/// A kernel that forgets everything after a request.
struct Forgetful {
    kernel: Box<dyn Subject>,
    /// Whether something was asked for since the last restart.
    used: bool,
}

#[async_trait]
impl Subject for Forgetful {
    async fn run(&mut self, thread: &str, request: Request) -> Result<(), Refused> {
        self.used = true;
        self.kernel.run(thread, request).await
    }

    async fn edit(&mut self, thread: &str, edit: Edit) -> Result<String, Refused> {
        self.used = true;
        self.kernel.edit(thread, edit).await
    }

    /// What is seen before a restart is seen after it.
    async fn view(&mut self, thread: &str) -> Result<View, String> {
        let before = self.kernel.view(thread).await?;
        if !std::mem::take(&mut self.used) {
            return Ok(before);
        }
        let past = self.kernel.history(thread).await?;
        self.reopen().await?;
        let after = self.kernel.view(thread).await?;
        if before != after {
            return Err(format!("a restart changed\n{before:#?}\ninto\n{after:#?}"));
        }
        if past != self.kernel.history(thread).await? {
            return Err(format!("a restart changed the history\n{past:#?}"));
        }
        Ok(after)
    }

    async fn history(&mut self, thread: &str) -> Result<Vec<Entry>, String> {
        self.kernel.history(thread).await
    }

    async fn reopen(&mut self) -> Result<(), String> {
        self.kernel.reopen().await
    }
}

fn forgetful(backend: Backend, program: Program) -> BoxFuture<'static, Result<Box<dyn Subject>, String>> {
    async move {
        let kernel = open(backend, program).await?;
        Ok(Box::new(Forgetful { kernel, used: false }) as Box<dyn Subject>)
    }
    .boxed()
}

async fn hold_over_restarts(backend: Backend, scenarios: Vec<Scenario>) {
    let allowed = Arc::new(Deviations::own().expect("a list").kinds());
    let runs = scenarios.into_iter().map(|scenario| {
        let allowed = Arc::clone(&allowed);
        tokio::spawn(async move {
            let mut difference = String::new();
            for profile in [Profile::Recorded, Profile::Safe] {
                match attempt(&scenario, profile, &allowed, &|program| forgetful(backend, program)).await {
                    Ok(_) => return None,
                    Err(found) => difference = found,
                }
            }
            Some(format!("{}\n{difference}", scenario.name))
        })
        .map(|run| run.expect("a result"))
    });
    let failed: Vec<String> = stream::iter(runs).buffer_unordered(8).filter_map(std::future::ready).collect().await;
    assert!(failed.is_empty(), "{} scenarios differ:\n{}", failed.len(), failed.join("\n"));
}

fn scenarios() -> Vec<Scenario> {
    load(&recordings()).into_iter().map(|scenario| scenario.expect("a scenario")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_recording_holds_in_memory_over_a_restart_after_every_request() {
    hold_over_restarts(Backend::Memory, scenarios()).await;
}

/// All that were written by hand, and some of those that were not: starting a
/// process takes its time.
#[tokio::test(flavor = "multi_thread")]
async fn recordings_hold_on_sqlite_over_a_restart_after_every_request() {
    let (mut hand, random): (Vec<_>, Vec<_>) = scenarios().into_iter().partition(|scenario| scenario.origin == "hand");
    hand.extend(random.into_iter().step_by(5));
    assert!(hand.len() > 150, "only {} scenarios were found", hand.len());
    hold_over_restarts(Backend::Sqlite, hand).await;
}

/// Some of those.
#[tokio::test(flavor = "multi_thread")]
async fn recordings_hold_on_postgres_over_a_restart_after_every_request() {
    hold_over_restarts(Backend::Postgres, scenarios().into_iter().step_by(5).collect()).await;
}
