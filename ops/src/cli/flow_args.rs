//! The command line of pauses, limits and dead letters.

use clap::{Args, Subcommand};

/// What to pause or to resume.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum Switch {
    /// A graph: none of its threads is taken up. Starts and answers are accepted.
    Graph {
        /// The graph's name.
        graph: String,
    },
    /// A node of a graph: threads come up to it and stay queued there.
    Node {
        /// The graph's name.
        graph: String,
        /// The node's name.
        node: String,
    },
    /// A channel: its messages stay pending.
    Channel {
        /// The channel: email or webhook.
        channel: String,
    },
}

impl Switch {
    /// The path of its resource.
    pub(super) fn path(&self) -> Vec<&str> {
        match self {
            Self::Graph { graph } => vec!["pauses", "graphs", graph],
            Self::Node { graph, node } => vec!["pauses", "graphs", graph, "nodes", node],
            Self::Channel { channel } => vec!["pauses", "channels", channel],
        }
    }
}

/// Options of `pause`.
#[derive(Debug, Args)]
pub struct PauseFlow {
    /// What to pause.
    #[command(subcommand)]
    pub what: Switch,
    /// Why: people whose threads wait will read it.
    #[arg(long, value_name = "TEXT", global = true, default_value = "paused by an operator")]
    pub reason: String,
    /// When it ends by itself, as in 2027-01-31T17:00:00Z; else `resume` ends it.
    #[arg(long, value_name = "TIME", global = true)]
    pub until: Option<String>,
}

/// Options of `resume`.
#[derive(Debug, Args)]
pub struct ResumeFlow {
    /// What to resume.
    #[command(subcommand)]
    pub what: Switch,
}

/// What to do with limits.
#[derive(Debug, Subcommand)]
pub enum Limits {
    /// List the graphs that have limits.
    List,
    /// Set the limits of a graph, all of them: what is not given is not limited.
    Set(SetLimits),
    /// Take the limits of a graph away.
    Remove {
        /// The graph's name.
        graph: String,
    },
}

/// Options of `limits set`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("limits").required(true).multiple(true)
    .args(["running", "key_running", "starts", "key_starts"]))]
pub struct SetLimits {
    /// The graph's name.
    pub graph: String,
    /// How many of its threads run at a time, over all workers.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub running: Option<u32>,
    /// How many of its threads with the same limit key run at a time.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub key_running: Option<u32>,
    /// How often a thread of it is taken up, as in 100/60: 100 a minute.
    #[arg(long, value_name = "N/SECONDS", value_parser = rate)]
    pub starts: Option<(u32, f64)>,
    /// How often a thread of it with the same limit key is taken up.
    #[arg(long, value_name = "N/SECONDS", value_parser = rate)]
    pub key_starts: Option<(u32, f64)>,
}

fn rate(text: &str) -> Result<(u32, f64), String> {
    let known = text.split_once('/').and_then(|(count, seconds)| {
        Some((count.trim().parse().ok()?, seconds.trim().parse::<f64>().ok().filter(|seconds| seconds.is_finite())?))
    });
    known.ok_or_else(|| "write N/SECONDS, as in 100/60 for 100 a minute".to_owned())
}

/// What to do with dead letters.
#[derive(Debug, Subcommand)]
pub enum DeadLetters {
    /// List work that gave up, oldest first.
    List {
        /// Which.
        #[command(flatten)]
        which: WhichDead,
        /// At most so many.
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
        limit: u64,
    },
    /// Give work that gave up fresh attempts.
    Retry(RetryDead),
}

/// Which dead letters.
#[derive(Debug, Args)]
pub struct WhichDead {
    /// Only of this kind: advance (threads) or deliver (messages).
    #[arg(long, value_parser = ["advance", "deliver"])]
    pub kind: Option<String>,
    /// Only of this graph.
    #[arg(long)]
    pub graph: Option<String>,
    /// Only messages through this channel.
    #[arg(long)]
    pub channel: Option<String>,
    /// Only those that gave up before, as in 2027-01-31T17:00:00Z.
    #[arg(long, value_name = "TIME")]
    pub before: Option<String>,
}

/// Options of `dead-letters retry`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("which").required(true).multiple(true)
    .args(["kind", "graph", "channel", "before", "thread", "all"]))]
pub struct RetryDead {
    /// Which.
    #[command(flatten)]
    pub which: WhichDead,
    /// Only of this thread.
    #[arg(long)]
    pub thread: Option<String>,
    /// Only the one of this id in the thread, as the list gives it.
    #[arg(long, requires = "thread")]
    pub id: Option<String>,
    /// All of them.
    #[arg(long)]
    pub all: bool,
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::args::{Cli, Command};
    use super::*;

    fn parse(words: &[&str]) -> Result<Command, clap::Error> {
        Ok(Cli::try_parse_from(["countersign"].iter().chain(words))?.command)
    }

    #[test]
    fn a_pause_names_what_and_says_why() {
        let Command::Pause(pause) =
            parse(&["pause", "node", "expense", "pay", "--reason", "closed", "--until", "2027-01-31T17:00:00Z"])
                .expect("fine")
        else {
            panic!("a pause")
        };
        assert_eq!(pause.what.path(), ["pauses", "graphs", "expense", "nodes", "pay"]);
        assert_eq!((pause.reason.as_str(), pause.until.as_deref()), ("closed", Some("2027-01-31T17:00:00Z")));
        assert!(parse(&["pause", "expense"]).is_err());
        assert!(parse(&["resume", "channel", "email"]).is_ok());
        assert!(parse(&["pauses"]).is_ok());
    }

    #[test]
    fn limits_are_numbers_and_rates() {
        let Command::Limits(Limits::Set(set)) =
            parse(&["limits", "set", "expense", "--running", "3", "--starts", "100/60"]).expect("fine")
        else {
            panic!("limits")
        };
        assert_eq!((set.running, set.starts), (Some(3), Some((100, 60.0))));
        for bad in [&["--running", "0"][..], &["--starts", "100"], &["--starts", "x/60"], &["--starts", "1/nan"], &[]] {
            assert!(parse(&[&["limits", "set", "expense"], bad].concat()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_retry_says_which() {
        assert!(parse(&["dead-letters", "retry"]).is_err());
        assert!(parse(&["dead-letters", "retry", "--all"]).is_ok());
        assert!(parse(&["dead-letters", "retry", "--id", "x"]).is_err());
        assert!(parse(&["dead-letters", "retry", "--kind", "deliver", "--channel", "email"]).is_ok());
        assert!(parse(&["dead-letters", "list", "--kind", "timer"]).is_err());
    }
}
