//! `signal`: an event from outside, for a thread that waits for it.

use countersign_kernel::context::{SIGNAL_NAME_BYTES, is_signal_name};
use countersign_kernel::ids::ThreadId;
use serde_json::Value;

use super::args::SendSignal;
use super::client::Client;
use super::course::id;
use super::exit::Exit;
use super::failure::CliError;
use super::input;
use super::output::{Output, plain};

pub(super) async fn run(client: &Client, output: Output, args: &SendSignal) -> Result<Exit, CliError> {
    let thread = id(ThreadId::parse, &args.thread)?;
    if !is_signal_name(&args.name) {
        let what = format!(
            "`{}` is no name of a signal: 1 to {SIGNAL_NAME_BYTES} letters, digits, `-`, `_`, `.` and `:`",
            plain(&args.name)
        );
        return Err(CliError::new(Exit::Usage, what));
    }
    let payload = args.payload.as_deref().map_or(Ok(Value::Null), input::json)?;
    let reply = client.signal(thread.as_str(), &args.name, &payload, args.key.as_deref()).await?;
    output.result(&reply, || format!("accepted: {} for thread {}", plain(&args.name), plain(thread.as_str())));
    Ok(Exit::Ok)
}
