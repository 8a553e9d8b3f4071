//! The command line of `threads`.

use clap::{Args, Subcommand};
use serde_json::Value;

use super::args::Wait;
use super::watch::Watch;
use crate::api::THREAD_STATUSES;

/// What to see of threads, and what to do with one.
#[derive(Debug, Subcommand)]
pub enum Threads {
    /// List threads.
    List(ListThreads),
    /// Show one thread: its state, its sub-graphs and what it waits for.
    Show {
        /// The thread's id.
        thread: String,
    },
    /// Show or edit the state of a thread.
    #[command(subcommand)]
    State(ThreadState),
    /// List the checkpoints of a thread, newest first.
    History(History),
    /// Start over from a checkpoint. What was done before it is not done again;
    /// what waits now is superseded.
    Replay(Replay),
    /// Wake a thread: with answers, with amendments, or without either.
    Resume(Resume),
    /// Print what happens in a thread, as it happens, until it rests.
    Watch(Watch),
    /// Pause a thread at the end of the superstep it is in. `resume --continue`
    /// releases it.
    Pause {
        /// The thread's id.
        thread: String,
        /// At once: what waits in the middle of a node is dropped, and the node
        /// runs again later.
        #[arg(long)]
        now: bool,
    },
}

/// Options of `threads list`.
#[derive(Debug, Args)]
pub struct ListThreads {
    /// Only in this status.
    #[arg(long, value_parser = THREAD_STATUSES)]
    pub status: Option<String>,
    /// Only of this graph.
    #[arg(long)]
    pub graph: Option<String>,
    /// At most so many.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: u64,
}

/// What to do with the state of a thread.
#[derive(Debug, Subcommand)]
pub enum ThreadState {
    /// Show the state: as it is now, or as it was at a checkpoint.
    Get {
        /// The thread's id.
        thread: String,
        /// As of this checkpoint, as `threads history` gives it.
        #[arg(long, value_name = "CHECKPOINT", conflicts_with = "frame")]
        at: Option<String>,
        /// Of this unfinished sub-graph, as `threads show` gives it.
        #[arg(long, value_name = "FRAME")]
        frame: Option<String>,
    },
    /// Edit the state of a thread at rest. Nothing runs until `threads resume
    /// --continue`; what waited is superseded.
    Edit(EditState),
}

/// Options of `threads state edit`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("edits").required(true).multiple(true).args(["values", "as_node"]))]
pub struct EditState {
    /// The thread's id.
    pub thread: String,
    /// What to write: an object of keys, as JSON, a file with JSON, or - for
    /// standard input.
    #[arg(long, value_name = "JSON|FILE|-")]
    pub values: Option<String>,
    /// The node that counts as having written it: what follows it is due next.
    /// Without --values this skips a waiting node. By default the node that ran
    /// last.
    #[arg(long, value_name = "NODE")]
    pub as_node: Option<String>,
    /// Only if this is still the newest checkpoint.
    #[arg(long, value_name = "CHECKPOINT")]
    pub seen: Option<String>,
    /// Edit this older checkpoint instead: the thread goes on from there.
    #[arg(long, value_name = "CHECKPOINT", conflicts_with = "frame")]
    pub at: Option<String>,
    /// Edit this unfinished sub-graph instead.
    #[arg(long, value_name = "FRAME")]
    pub frame: Option<String>,
    /// Steps that were done at that checkpoint or after it may be done again;
    /// without it they are listed and nothing changes.
    #[arg(long)]
    pub re_execute: bool,
}

/// Options of `threads history`.
#[derive(Debug, Args)]
pub struct History {
    /// The thread's id.
    pub thread: String,
    /// Of this sub-graph instead.
    #[arg(long, value_name = "FRAME")]
    pub frame: Option<String>,
    /// At most so many.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: u64,
}

/// Options of `threads replay`.
#[derive(Debug, Args)]
pub struct Replay {
    /// The thread's id.
    pub thread: String,
    /// Where to start over, as `threads history` gives it: a checkpoint of the
    /// thread, or of a sub-graph in it.
    pub checkpoint: String,
    /// New input, applied to the state at that checkpoint: JSON, a file with
    /// JSON, or - for standard input.
    #[arg(long, value_name = "JSON|FILE|-")]
    pub input: Option<String>,
    /// Steps that were done at that checkpoint or after it may be done again;
    /// without it they are listed and nothing runs.
    #[arg(long)]
    pub re_execute: bool,
    /// Release the breakpoints at that checkpoint.
    #[arg(long)]
    pub r#continue: bool,
    /// The most supersteps before it pauses.
    #[arg(long, value_name = "SUPERSTEPS")]
    pub recursion_limit: Option<u32>,
    /// How long to wait.
    #[command(flatten)]
    pub wait: Wait,
}

/// Options of `threads resume`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("wakes").required(true).multiple(true)
    .args(["answers", "update", "goto", "send", "continue", "retry", "resume_all"]))]
pub struct Resume {
    /// The thread's id.
    pub thread: String,
    /// Answers by interrupt, as in {"ID": {"approved": true}}: JSON, a file with
    /// JSON, or - for standard input.
    #[arg(long, value_name = "JSON|FILE|-")]
    pub answers: Option<String>,
    /// Write this to the state of the waiting superstep: an object of keys, as
    /// JSON, a file with JSON, or -.
    #[arg(long, value_name = "JSON|FILE|-")]
    pub update: Option<String>,
    /// Run this node beside those that wait. May be given several times.
    #[arg(long, value_name = "NODE")]
    pub goto: Vec<String>,
    /// Run this node with an argument beside those that wait, as in
    /// 'pay={"amount": 5}'. May be given several times.
    #[arg(long, value_name = "NODE=JSON", value_parser = task)]
    pub send: Vec<(String, Value)>,
    /// Release breakpoints and pauses.
    #[arg(long)]
    pub r#continue: bool,
    /// Run failed tasks again with their recorded answers.
    #[arg(long)]
    pub retry: bool,
    /// Run every open point without an answer.
    #[arg(long)]
    pub resume_all: bool,
    /// In a thread that has ended, --goto and --send begin again at their nodes;
    /// this lets them do again what they did before. Without it that is listed
    /// and nothing runs.
    #[arg(long)]
    pub re_execute: bool,
    /// The most supersteps before it pauses.
    #[arg(long, value_name = "SUPERSTEPS")]
    pub recursion_limit: Option<u32>,
    /// How long to wait.
    #[command(flatten)]
    pub wait: Wait,
}

fn task(text: &str) -> Result<(String, Value), String> {
    let (node, argument) = text.split_once('=').ok_or("write NODE=JSON, as in 'pay={\"amount\": 5}'")?;
    let argument = serde_json::from_str(argument).map_err(|error| format!("`{argument}` is no JSON: {error}"))?;
    Ok((node.trim().to_owned(), argument))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::json;

    use super::super::args::{Cli, Command};
    use super::*;

    fn parse(words: &[&str]) -> Result<Threads, clap::Error> {
        match Cli::try_parse_from(["countersign", "threads"].iter().chain(words))?.command {
            Command::Threads(threads) => Ok(threads),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_edit_writes_something_or_counts_as_a_node() {
        let neither = parse(&["state", "edit", "t"]).expect_err("neither").to_string();
        assert!(neither.contains("<--values <JSON|FILE|->|--as-node <NODE>>"), "{neither}");
        assert!(parse(&["state", "edit", "t", "--as-node", "pay"]).is_ok());
        assert!(parse(&["state", "edit", "t", "--values", "{}", "--seen", "c", "--at", "b"]).is_ok());
        assert!(parse(&["state", "edit", "t", "--values", "{}", "--frame", "f", "--at", "b"]).is_err());
        assert!(parse(&["state", "get", "t", "--at", "c"]).is_ok());
    }

    #[test]
    fn a_resume_needs_something_that_wakes() {
        assert!(parse(&["resume", "t"]).is_err());
        assert!(parse(&["resume", "t", "--recursion-limit", "3"]).is_err());
        let Threads::Resume(resume) =
            parse(&["resume", "t", "--continue", "--goto", "a", "--goto", "b", "--send", "c={\"n\": 1}"])
                .expect("fine")
        else {
            panic!("resume")
        };
        assert!(resume.r#continue && !resume.retry);
        assert_eq!((resume.goto, resume.send), (vec!["a".into(), "b".into()], vec![("c".into(), json!({"n": 1}))]));
        for bad in ["c", "c=", "c={"] {
            assert!(parse(&["resume", "t", "--send", bad]).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_replay_names_where_to_start_over() {
        assert!(parse(&["replay", "t"]).is_err());
        assert!(parse(&["replay", "t", "c", "--re-execute", "--continue", "--detach"]).is_ok());
        assert!(parse(&["pause", "t", "--now"]).is_ok());
        assert!(parse(&["history", "t", "--limit", "0"]).is_err());
    }
}
