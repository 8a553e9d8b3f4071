//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use countersign_kernel::principal::{Approver, PrincipalError};
use countersign_worker::queue::JobKind;

use super::exit::HELP;
use super::flow_args::{DeadLetters, Limits, PauseFlow, ResumeFlow};
use super::store::StoreWork;
use super::thread_args::Threads;
use crate::api::INTERRUPT_STATUSES;
use crate::config::ADMINISTRATOR;

/// What the options that hold for every command stand under.
const EVERY: &str = "Options of every command";

/// A durable job worker with queue-driven approvals.
///
/// Commands talk to the server named by --server, else to the one that runs on
/// the data folder; if none runs, they start it for as long as they take.
#[derive(Debug, Parser)]
#[command(name = "countersign", version, after_help = HELP, max_term_width = 100)]
pub struct Cli {
    /// What holds for every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What holds for every command.
#[derive(Debug, Clone, Default, Args)]
pub struct Global {
    /// Print JSON on standard output: one object, or one per line.
    #[arg(long, global = true, help_heading = EVERY)]
    pub json: bool,
    /// The server to talk to.
    #[arg(long, global = true, help_heading = EVERY, value_name = "URL")]
    pub server: Option<String>,
    /// The configuration file, instead of ./countersign.toml.
    #[arg(long, global = true, help_heading = EVERY, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The data folder, instead of the configured one.
    #[arg(long, global = true, help_heading = EVERY, value_name = "DIR")]
    pub data: Option<PathBuf>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run everything in this process: worker, messages, API, pages.
    Up(Up),
    /// Work on a Postgres database beside `up`, without API and pages, on this or
    /// another machine.
    Worker(Worker),
    /// Start a thread of a graph, or one per row of a file.
    Run(Run),
    /// Look at threads, and change their course.
    #[command(subcommand)]
    Threads(Threads),
    /// Look at what waits for people.
    #[command(subcommand)]
    Interrupts(Interrupts),
    /// Answer a question, or many from a file.
    Answer(Answer),
    /// Look at what the clock starts, and pause it.
    #[command(subcommand)]
    Schedules(Schedules),
    /// Send a thread a signal: an event from outside that its flow waits for, now
    /// or later.
    Signal(SendSignal),
    /// Pause a graph, a node of one, or a channel, for all workers. A single
    /// thread is paused by `threads pause`.
    Pause(PauseFlow),
    /// End a pause; what it held back is taken up at once. A single thread goes on
    /// by `threads resume`.
    Resume(ResumeFlow),
    /// List what is paused.
    Pauses,
    /// Limit how many threads of a graph run at a time, and how often one is taken
    /// up.
    #[command(subcommand)]
    Limits(Limits),
    /// Look at work that gave up, and try it again.
    #[command(subcommand)]
    DeadLetters(DeadLetters),
    /// Print a link that signs a person in to the pages. Needs a server that
    /// runs.
    SignIn(SignIn),
    /// Bring the database up to date, and stop.
    Migrate,
    /// List the threads that this build could not go on with, before it is
    /// deployed. Reads the database beside the server that runs on it, and
    /// changes nothing. Exit code 1 if there are any.
    Check,
    /// Measure the database, or move it to another.
    #[command(subcommand)]
    Store(StoreWork),
    /// Print the commented reference of the configuration.
    Config(ShowConfig),
}

/// Options of `up`.
#[derive(Debug, Args)]
pub struct Up {
    /// Start some sample threads, once; with nobody configured, two sample people
    /// decide them.
    #[arg(long)]
    pub demo: bool,
    /// Listen here, instead of the configured address.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
}

/// Options of `worker`.
#[derive(Debug, Args)]
pub struct Worker {
    /// Only jobs of these kinds: `advance` (run threads), `deliver` (send
    /// messages), `timer` (what falls due: sleeps, deadlines). All by default.
    #[arg(long, value_name = "QUEUES", value_delimiter = ',', value_parser = queue)]
    pub queues: Vec<JobKind>,
    /// Only threads of these graphs; those of others are left to other workers.
    /// All by default.
    #[arg(long, value_name = "GRAPHS", value_delimiter = ',')]
    pub graphs: Vec<String>,
}

fn queue(text: &str) -> Result<JobKind, String> {
    let known = || JobKind::ALL.map(JobKind::name).join(", ");
    JobKind::from_name(text).ok_or_else(|| format!("there are: {}", known()))
}

/// Options of `run`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["input", "each"]))]
pub struct Run {
    /// The graph's name.
    pub graph: String,
    /// The input: JSON, a file with JSON, or - for standard input.
    #[arg(long, value_name = "JSON|FILE|-")]
    pub input: Option<String>,
    /// The thread's id, so that starting it twice is starting it once.
    #[arg(long, value_name = "ID", conflicts_with = "each")]
    pub thread_id: Option<String>,
    /// One thread per row of a CSV file or line of a JSONL file (- for standard
    /// input). Safe to repeat: rows that were started are left alone.
    #[arg(long, value_name = "FILE")]
    pub each: Option<PathBuf>,
    /// How urgent they are: low, normal, high, or a number from -100 to 100; a
    /// point is worth a minute of waiting. As the graph says when absent.
    #[arg(long, value_name = "PRIORITY", allow_hyphen_values = true)]
    pub priority: Option<String>,
    /// Threads of the graph with the same key are limited together. As the graph
    /// says when absent.
    #[arg(long, value_name = "KEY")]
    pub limit_key: Option<String>,
    /// The column that identifies a row; without it, all of its content does.
    #[arg(long, value_name = "COLUMN", requires = "each", conflicts_with = "input")]
    pub key: Option<String>,
    /// How long to wait.
    #[command(flatten)]
    pub wait: Wait,
}

/// How long to wait.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct Wait {
    /// Do not wait for the threads to park or end.
    #[arg(long)]
    pub detach: bool,
    /// Wait at most this long for that (no limit by default).
    #[arg(long, value_name = "SECONDS", conflicts_with = "detach")]
    pub timeout: Option<u64>,
}

impl Wait {
    /// The upper bound.
    #[must_use]
    pub fn limit(self) -> Option<Duration> {
        self.timeout.map(Duration::from_secs)
    }
}

/// What to see of interrupts.
#[derive(Debug, Subcommand)]
pub enum Interrupts {
    /// List interrupts, oldest first. A line of --json with an answer added is a
    /// line for `answer --each`.
    List(ListInterrupts),
    /// Show one interrupt: what is asked, and how it was decided.
    Show {
        /// The interrupt's id.
        interrupt: String,
    },
}

/// Options of `interrupts list`.
#[derive(Debug, Args)]
pub struct ListInterrupts {
    /// Only in this status.
    #[arg(long, default_value = "open", value_parser = INTERRUPT_STATUSES)]
    pub status: String,
    /// Only of this graph.
    #[arg(long)]
    pub graph: Option<String>,
    /// Only those that this person:ADDRESS, role:NAME or service:NAME is asked.
    #[arg(long, value_parser = approver)]
    pub approver: Option<Approver>,
    /// At most so many.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: u64,
}

fn approver(text: &str) -> Result<Approver, PrincipalError> {
    Approver::try_from(text.to_owned())
}

/// Options of `sign-in`.
#[derive(Debug, Args)]
pub struct SignIn {
    /// The person's mail address, as it is configured.
    #[arg(default_value = ADMINISTRATOR)]
    pub person: String,
    /// How many hours the link works: 1 to 168.
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u64).range(1..=168))]
    pub hours: u64,
}

/// Options of `answer`.
#[derive(Debug, Args)]
pub struct Answer {
    /// The question's id, as `interrupts list` and `threads show` give it.
    #[arg(required_unless_present = "each", conflicts_with = "each")]
    pub interrupt: Option<String>,
    /// The answer: JSON as in {"approved": true}, a file with JSON, or - for
    /// standard input.
    #[arg(value_name = "JSON|FILE|-", required_unless_present = "each", conflicts_with = "each")]
    pub answer: Option<String>,
    /// Many answers: a JSONL file with lines {"interrupt": ID, "answer": {…}},
    /// or a CSV file with the columns interrupt and answer (- for standard
    /// input). Safe to repeat.
    #[arg(long, value_name = "FILE")]
    pub each: Option<PathBuf>,
    /// How long to wait.
    #[command(flatten)]
    pub wait: Wait,
}

/// What to do with schedules.
#[derive(Debug, Subcommand)]
pub enum Schedules {
    /// List the schedules, by name.
    List,
    /// Pause a schedule: nothing ticks until it goes on.
    Pause {
        /// Its name.
        schedule: String,
    },
    /// Have a schedule go on, from its next tick.
    Resume {
        /// Its name.
        schedule: String,
    },
    /// Start a thread of a schedule now, beside its ticks.
    Fire {
        /// Its name.
        schedule: String,
    },
}

/// Options of `signal`.
#[derive(Debug, Args)]
pub struct SendSignal {
    /// The thread's id.
    pub thread: String,
    /// The signal's name.
    pub name: String,
    /// What it carries: JSON, a file with JSON, or - for standard input; null
    /// when absent.
    #[arg(value_name = "JSON|FILE|-")]
    pub payload: Option<String>,
    /// A key of your own, so that sending it twice is sending it once.
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
}

/// Options of `config`.
#[derive(Debug, Args)]
pub struct ShowConfig {
    /// Only check the configuration and say what is wrong with it.
    #[arg(long)]
    pub check: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parse(words: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("countersign").chain(words.iter().copied()))
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_options_stand_before_or_after_the_command() {
        assert!(parse(&["--json", "threads", "list"]).expect("before").global.json);
        assert!(parse(&["threads", "list", "--json", "--data", "d"]).expect("after").global.json);
    }

    #[test]
    fn a_worker_takes_queues_by_name() {
        let queues = |words: &[&str]| match parse(words).map(|cli| cli.command) {
            Ok(Command::Worker(worker)) => Some(worker.queues),
            _ => None,
        };
        assert_eq!(queues(&["worker"]), Some(Vec::new()));
        assert_eq!(queues(&["worker", "--queues", "deliver,advance"]), Some(vec![JobKind::Deliver, JobKind::Advance]));
        assert_eq!(queues(&["worker", "--queues", "deliver,mail"]), None);
    }

    #[test]
    fn run_takes_one_input_or_a_file_of_rows() {
        assert!(parse(&["run", "expense"]).is_err());
        assert!(parse(&["run", "expense", "--input", "{}", "--each", "x.csv"]).is_err());
        assert!(parse(&["run", "expense", "--input", "{}", "--key", "k"]).is_err());
        assert!(parse(&["run", "expense", "--input", "-"]).is_ok());
        assert!(parse(&["run", "payment", "--each", "x.csv", "--key", "trans_no", "--detach"]).is_ok());
        assert!(parse(&["run", "payment", "--each", "x.csv", "--detach", "--timeout", "1"]).is_err());
    }

    #[test]
    fn lists_know_the_statuses_and_whom_one_can_ask() {
        let Command::Interrupts(Interrupts::List(list)) = parse(&["interrupts", "list"]).expect("defaults").command
        else {
            panic!("list")
        };
        assert_eq!((list.status.as_str(), list.limit), ("open", 50));
        assert!(parse(&["interrupts", "list", "--status", "superseded", "--approver", "role:finance"]).is_ok());
        for bad in [["--status", "parked"], ["--approver", "finance"], ["--limit", "0"]] {
            assert!(parse(&[&["interrupts", "list"], &bad[..]].concat()).is_err(), "{bad:?}");
        }
        assert!(parse(&["threads", "list", "--status", "held"]).is_ok());
        assert!(parse(&["threads", "list", "--status", "open"]).is_err());
    }

    #[test]
    fn sign_in_is_for_the_administrator_and_a_day() {
        let Command::SignIn(args) = parse(&["sign-in"]).expect("defaults").command else { panic!("sign-in") };
        assert_eq!((args.person.as_str(), args.hours), (ADMINISTRATOR, 24));
        assert!(parse(&["sign-in", "ann@example.com", "--hours", "168"]).is_ok());
        assert!(parse(&["sign-in", "--hours", "0"]).is_err());
        assert!(parse(&["sign-in", "--hours", "169"]).is_err());
    }

    #[test]
    fn answer_takes_one_answer_or_a_file() {
        assert!(parse(&["answer"]).is_err());
        assert!(parse(&["answer", "abc"]).is_err());
        assert!(parse(&["answer", "abc", "{}", "--each", "x"]).is_err());
        assert!(parse(&["answer", "abc", "{}"]).is_ok());
        assert!(parse(&["answer", "--each", "x.jsonl"]).is_ok());
    }

    #[test]
    fn a_signal_has_a_thread_and_a_name() {
        assert!(parse(&["signal", "t"]).is_err());
        assert!(parse(&["signal", "t", "paid"]).is_ok());
        assert!(parse(&["signal", "t", "paid", "{}", "--key", "k"]).is_ok());
    }
}
