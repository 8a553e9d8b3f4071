//! Running other programs from the workspace's root.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What did not work; the program itself has said why.
#[derive(Debug)]
pub(crate) struct Failed(pub(crate) String);

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).unwrap_or(own).to_owned()
}

/// A message to the developer.
pub(crate) fn say(text: &str) {
    let _gone = writeln!(std::io::stderr().lock(), "xtask: {text}");
}

/// A program to run.
pub(crate) struct Step(Command);

/// `cargo` with these arguments: the one that runs us, so that the toolchain is
/// the same.
pub(crate) fn cargo<I, S>(arguments: I) -> Step
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new(option_env!("CARGO").unwrap_or("cargo"));
    command.args(arguments).current_dir(root());
    Step(command)
}

impl Step {
    /// With a variable.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.0.env(name, value);
        self
    }

    /// Runs it, with its output shown.
    pub(crate) fn done(mut self) -> Result<(), Failed> {
        let words: Vec<_> = self.0.get_args().map(OsStr::to_string_lossy).collect();
        let shown = format!("cargo {}", words.join(" "));
        say(&shown);
        match self.0.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Failed(format!("`{shown}` ended with {status}"))),
            Err(error) => Err(Failed(format!("`{shown}` cannot be run: {error}"))),
        }
    }

    /// Whether it runs well, without showing anything.
    pub(crate) fn works(mut self) -> bool {
        self.0.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }

    /// What it prints.
    pub(crate) fn output(mut self) -> Result<Vec<u8>, Failed> {
        let output = self.0.stderr(Stdio::inherit()).output();
        match output {
            Ok(output) if output.status.success() => Ok(output.stdout),
            Ok(output) => Err(Failed(format!("cargo ended with {}", output.status))),
            Err(error) => Err(Failed(format!("cargo cannot be run: {error}"))),
        }
    }
}
