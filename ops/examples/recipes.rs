//! A server with all recipes: `cargo run -p countersign --example recipes`.
//!
//! What they do outside happens in memory. `docs/recipes.md` has inputs and
//! answers to try; Ctrl-C ends it, and what waits is still there at the next
//! start.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use countersign::app::{self, Options, Port};
use countersign::config::{Config, environment};
use countersign_flows::recipes::{self, Call, Message, Model, Outside, OutsideError};
use serde_json::{Value, json};

/// Something outside that does whatever it is told, once per key. Yours calls a
/// bank, or whatever it is, and passes the key on.
#[derive(Default)]
struct Memory(Mutex<BTreeMap<String, Value>>);

#[async_trait]
impl Outside for Memory {
    async fn call(&self, key: &str, what: &str, arguments: &Value) -> Result<Value, OutsideError> {
        let mut done = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = done.len() + 1;
        let result = match what {
            "price" => json!(12.5),
            _ => json!({"number": number, "done": what, "with": arguments}),
        };
        Ok(done.entry(key.to_owned()).or_insert(result).clone())
    }
}

/// A model that always wants one transfer made, and then is content. Yours asks
/// one over the network.
struct Parrot;

#[async_trait]
impl Model for Parrot {
    async fn turn(&self, messages: &[Message]) -> Result<Message, OutsideError> {
        let Some(Message::User { .. }) = messages.last() else {
            return Ok(Message::Assistant { text: "That is all.".to_owned(), calls: Vec::new() });
        };
        let arguments = [("to", json!("Acme")), ("amount", json!(200))];
        let arguments = arguments.map(|(name, value)| (name.to_owned(), value)).into_iter().collect();
        let call = Call { id: "c1".to_owned(), tool: "transfer".to_owned(), arguments };
        Ok(Message::Assistant { text: "I pay Acme.".to_owned(), calls: vec![call] })
    }
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "a program that talks to its user")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _present = rustls::crypto::ring::default_provider().install_default();
    let config = Config::load(None, &environment())?;
    let outside: Arc<dyn Outside> = Arc::new(Memory::default());
    let flows = recipes::all(&outside, Arc::new(Parrot))?;
    let names: Vec<String> = flows.iter().map(|flow| flow.name().to_owned()).collect();
    let options = Options { demo: false, port: Port::Configured };
    let running = app::start_with(&config, options, flows).await?;

    println!("Flows: {}", names.join(", "));
    println!("Start one:  cargo run -- run close_account --input '{{\"account\": \"A-7\", \"reason\": \"moved\"}}'");
    println!("Decide it:  {}", running.sign_in_link);

    tokio::signal::ctrl_c().await?;
    running.stop().await;
    Ok(())
}
