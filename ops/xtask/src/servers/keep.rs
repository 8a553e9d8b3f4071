//! The keeper: the process that the servers are children of.

use std::io::Write as _;

use super::place::Place;
use super::{Kind, postgres, redis};
use crate::process::{Failed, say};

/// The command that starts it.
pub(super) const COMMAND: &str = "keep";

/// Starts servers, prints the URL of each as a line, in the order asked for, and
/// keeps them until its input ends.
pub(crate) fn run(kinds: &[Kind]) -> Result<(), Failed> {
    // Deleted after the servers, which are dropped first, have ended.
    let place = Place::new()?;
    let mut servers = Vec::new();
    for kind in kinds {
        let (server, url) = match kind {
            Kind::Postgres => postgres::start(&place, &postgres::QUICK)?,
            Kind::Redis => redis::start(&place)?,
            Kind::StockPostgres => postgres::start(&place, &[])?,
        };
        servers.push(server);
        // Whoever asked may be gone already; then the input has ended too.
        let _gone = writeln!(std::io::stdout().lock(), "{url}");
    }
    until_input_ends();
    Ok(())
}

/// Waits for the end of the input.
pub(super) fn until_input_ends() {
    if let Err(error) = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink()) {
        say(&format!("the input cannot be read: {error}"));
    }
}
