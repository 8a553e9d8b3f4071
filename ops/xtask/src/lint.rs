//! What a reviewer should not have to say.

use crate::process::{Failed, cargo};
use crate::tidy;

/// Formatting, clippy, documentation, house rules.
pub(crate) fn run() -> Result<(), Failed> {
    cargo(["fmt", "--all", "--check"]).done()?;
    cargo(["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]).done()?;
    cargo(["doc", "--workspace", "--no-deps", "--locked"]).env("RUSTDOCFLAGS", "-D warnings").done()?;
    tidy::run()
}
