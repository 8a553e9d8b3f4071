//! `sign-in`: a link for a person.

use serde_json::json;

use super::args::SignIn;
use super::client::Client;
use super::exit::Exit;
use super::failure::CliError;
use super::output::{Output, plain};

/// Prints the link alone on standard output, so that it can be passed on.
pub(super) async fn run(client: &Client, output: Output, args: &SignIn) -> Result<Exit, CliError> {
    let made = client.sign_in_link(&args.person, args.hours).await?;
    output.result(&json!(made), || plain(&made.link));
    if !output.is_json() {
        let (person, until) = (plain(&made.person), plain(&made.expires_at));
        output.note(&format!("It works until {until}. Whoever opens it is {person}: give it to nobody else."));
    }
    Ok(Exit::Ok)
}
