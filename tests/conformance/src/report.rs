//! What comes of a scenario, and how it is told.
//!
//! Every format gives the same thing: one [`ScenarioResult`] per scenario. A
//! file that cannot be read as a scenario is a failed result of its own, so
//! that nothing in a folder is passed over in silence.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use serde::Serialize;

/// Which kernel a scenario is run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// The kernel's own driver, in memory.
    Memory,
    /// The engine on a real SQLite file.
    Sqlite,
    /// The engine on a Postgres server.
    Postgres,
    /// The same, and a Redis carries the messages.
    Redis,
}

impl FromStr for Backend {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "memory" => Ok(Self::Memory),
            "sqlite" => Ok(Self::Sqlite),
            "postgres" => Ok(Self::Postgres),
            "redis" => Ok(Self::Redis),
            other => Err(format!("`{other}` is no backend; there are memory, sqlite, postgres and redis")),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Redis => "redis",
        })
    }
}

/// Which system a scenario was recorded from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// `recordings/README.md`.
    Langgraph,
    /// `recordings/eino.md`.
    Eino,
}

/// How binding a scenario is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// It has to pass as it is. All scenarios of a format without levels.
    Core,
    /// A surprising place of the reference: a deviation is no failure, but it
    /// has to be named with its reason.
    Choice,
}

/// What came of a scenario.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", content = "detail", rename_all = "snake_case")]
pub enum Verdict {
    /// It matches what was recorded, throughout.
    Pass,
    /// It matches what was recorded under the safe profile, throughout.
    PassSafe,
    /// It differs, for a reason that is in the project's own list.
    Deviates {
        /// The reason, from the list.
        reason: String,
        /// The first difference, for the curious.
        difference: String,
    },
    /// It differs, or could not be run.
    Failed {
        /// Action, member, what was expected, what came.
        difference: String,
    },
    /// It is not run, for a reason that is in the project's own list.
    Skipped {
        /// The reason.
        reason: String,
    },
}

impl Verdict {
    /// Whether this makes the whole run fail.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Failed { .. })
    }

    /// A failure with this difference.
    pub fn failed(difference: impl Into<String>) -> Self {
        Self::Failed { difference: difference.into() }
    }

    /// Not run, for this reason.
    pub fn skipped(reason: impl Into<String>) -> Self {
        Self::Skipped { reason: reason.into() }
    }
}

/// One scenario and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ScenarioResult {
    /// The scenario's name, or the file if it cannot be read.
    pub name: String,
    /// Where it was recorded.
    pub format: Format,
    /// How binding it is.
    pub level: Level,
    /// What came of it.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// All results of a run, for people: what needs reading first, counts last.
///
/// The last line is always `N passed, M failed`. A deviation for a listed
/// reason is neither; a skipped scenario likewise.
#[must_use]
pub fn text(results: &[ScenarioResult]) -> String {
    let mut text = String::new();
    let mut line = |args: fmt::Arguments<'_>| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{args}");
    };
    for result in results {
        let name = &result.name;
        match &result.verdict {
            Verdict::Pass => {}
            Verdict::PassSafe => line(format_args!("pass, safe  {name}")),
            Verdict::Deviates { reason, .. } => line(format_args!("deviates    {name}: {reason}")),
            Verdict::Skipped { reason } => line(format_args!("skipped     {name}: {reason}")),
            Verdict::Failed { .. } => {}
        }
    }
    for result in results {
        if let Verdict::Failed { difference } = &result.verdict {
            line(format_args!("FAILED      {}", result.name));
            for part in difference.lines() {
                line(format_args!("            {part}"));
            }
        }
    }
    let count = |pick: fn(&Verdict) -> bool| results.iter().filter(|result| pick(&result.verdict)).count();
    let safe = count(|verdict| matches!(verdict, Verdict::PassSafe));
    let deviates = count(|verdict| matches!(verdict, Verdict::Deviates { .. }));
    let skipped = count(|verdict| matches!(verdict, Verdict::Skipped { .. }));
    line(format_args!("{} scenarios: {safe} pass safe, {deviates} deviate, {skipped} skipped", results.len()));
    text + &last_line(results)
}

/// `N passed, M failed`.
#[must_use]
pub fn last_line(results: &[ScenarioResult]) -> String {
    let passed = results.iter().filter(|result| matches!(result.verdict, Verdict::Pass | Verdict::PassSafe)).count();
    format!("{passed} passed, {} failed\n", failures(results))
}

/// How many scenarios failed.
#[must_use]
pub fn failures(results: &[ScenarioResult]) -> usize {
    results.iter().filter(|result| result.verdict.is_failure()).count()
}

/// All results as one JSON document.
#[must_use]
pub fn json(results: &[ScenarioResult]) -> String {
    serde_json::json!({ "scenarios": results }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(name: &str, verdict: Verdict) -> ScenarioResult {
        ScenarioResult { name: name.into(), format: Format::Langgraph, level: Level::Choice, verdict }
    }

    #[test]
    fn only_failures_make_a_run_fail_and_all_that_is_not_plain_is_named() {
        let deviates = Verdict::Deviates { reason: "on purpose".into(), difference: "x".into() };
        let mut results = vec![
            result("a", Verdict::Pass),
            result("b", Verdict::PassSafe),
            result("c", deviates),
            result("d", Verdict::skipped("not ours")),
        ];
        assert_eq!(failures(&results), 0);
        assert!(text(&results).ends_with("\n2 passed, 0 failed\n"));
        assert!(text(&results).contains("deviates    c: on purpose"));
        assert!(text(&results).contains("skipped     d: not ours"));
        results.push(result("e", Verdict::failed("action 1\n  next")));
        assert_eq!(failures(&results), 1);
        assert!(text(&results).contains("FAILED      e\n            action 1\n              next\n"));
        assert!(text(&results).ends_with("\n2 passed, 1 failed\n"));
        let document: serde_json::Value = serde_json::from_str(&json(&results)).expect("JSON");
        assert_eq!(document["scenarios"][4]["verdict"], "failed");
        assert_eq!(document["scenarios"][4]["detail"]["difference"], "action 1\n  next");
    }
}
