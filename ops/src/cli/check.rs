//! `check`: whether this build could go on with what waits, before a deploy.

use serde_json::json;

use super::args::Global;
use super::exit::Exit;
use super::failure::CliError;
use super::output::{Output, plain};
use crate::app::{self, Check, Flows};
use crate::config::Config;

/// Looks at the database beside the server that runs on it, and lists the
/// threads that do not fit.
pub(super) async fn run(config: &Config, global: &Global, output: Output, flows: Flows) -> Result<Exit, CliError> {
    if global.server.is_some() {
        let why = "check reads a database, with the flows of this program: name its folder with --data, not a server";
        return Err(CliError::new(Exit::Usage, why));
    }
    let failed = |error: &(dyn std::error::Error + 'static)| CliError::because(Exit::Failure, error);
    let flows = flows().map_err(|error| failed(&error))?;
    let check = Box::pin(app::check(config, flows)).await.map_err(|error| failed(&error))?;
    output.result(&to_json(&check), || describe(&check));
    Ok(if check.checked.unfit.is_empty() { Exit::Ok } else { Exit::Failure })
}

fn to_json(check: &Check) -> serde_json::Value {
    let unfit = check.checked.unfit.iter().map(|unfit| {
        json!({
            "thread_id": unfit.thread.as_str(), "graph": unfit.graph, "graph_version": unfit.graph_version,
            "status": unfit.status, "reasons": unfit.reasons,
        })
    });
    json!({
        "fits": check.checked.unfit.is_empty(), "threads": check.checked.threads,
        "unfit": unfit.collect::<Vec<_>>(), "missing_migrations": check.missing,
    })
}

fn describe(check: &Check) -> String {
    let mut lines = Vec::new();
    if !check.missing.is_empty() {
        lines.push(format!(
            "The database is that of an earlier version; this build's first start applies {}.\n\
             A copy to which that was done has been checked.\n",
            check.missing.join(", ")
        ));
    }
    for unfit in &check.checked.unfit {
        let (thread, graph) = (plain(unfit.thread.as_str()), plain(&unfit.graph));
        lines.push(format!("{thread}  {graph}, version {}, {}", unfit.graph_version, unfit.status));
        lines.extend(unfit.reasons.iter().map(|reason| format!("    {}", plain(reason))));
    }
    let threads = check.checked.threads;
    lines.push(match check.checked.unfit.len() {
        0 => format!("All {threads} unfinished threads fit this build."),
        unfit => format!(
            "\n{unfit} of {threads} unfinished threads do not fit this build. They would be held, and nothing of \
             them lost."
        ),
    });
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use countersign_kernel::ids::ThreadId;
    use countersign_worker::engine::{Checked, Unfit};

    use super::*;

    #[test]
    fn it_says_what_does_not_fit_and_what_becomes_of_it() {
        let unfit = Unfit {
            thread: ThreadId::parse("case-1").expect("an id"),
            graph: "leave".into(),
            graph_version: 1,
            status: "parked".into(),
            reasons: vec!["no node `old`".into(), "no \u{1b} key".into()],
        };
        let mut check =
            Check { checked: Checked { threads: 3, unfit: vec![unfit] }, missing: vec!["0003 events".into()] };
        let text = describe(&check);
        assert!(text.starts_with("The database is that of an earlier version;"), "{text}");
        assert!(text.contains("case-1  leave, version 1, parked\n    no node `old`\n    no   key\n"), "{text}");
        assert!(
            text.ends_with(
                "1 of 3 unfinished threads do not fit this build. They would be held, and nothing of them lost."
            ),
            "{text}"
        );
        assert_eq!(to_json(&check)["unfit"][0]["reasons"][0], "no node `old`");
        check = Check { checked: Checked { threads: 3, unfit: Vec::new() }, missing: Vec::new() };
        assert_eq!(describe(&check), "All 3 unfinished threads fit this build.");
        assert_eq!(to_json(&check)["fits"], true);
    }
}
