//! A server with a flow of one's own: `cargo run -p countersign --example own_flow`.
//!
//! Starts one thread of it and prints where to decide it. Ctrl-C ends it; what
//! waits is still there at the next start.

use countersign::app::{self, Options, Port};
use countersign::config::{Config, environment};
use countersign_kernel::prelude::*;
use serde_json::json;

/// The case: its fields are the keys of the thread's state.
#[derive(State)]
struct Leave {
    who: String,
    days: u32,
    approved: Option<bool>,
}

async fn manager(cx: &Context, leave: &Leave) -> NodeResult<LeaveUpdate> {
    let decision = cx
        .ask(
            approval(format!("{} days off for {}?", leave.days, leave.who))
                .detail("Days", leave.days)
                .requested_by(&leave.who)
                .to(role("manager"))
                .on_yes("the days are booked")
                .on_no("nothing is booked"),
        )
        .await?;
    Ok(Leave::update().approved(Some(decision.approved)))
}

fn leave() -> Graph<Leave> {
    let mut g = Graph::new("leave", 1);
    let manager = g.node("manager", manager);
    g.start_with(move |leave| if leave.days > 1 { manager.into() } else { Target::end() });
    g
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "a program that talks to its user")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _present = rustls::crypto::ring::default_provider().install_default();
    let config = Config::load(None, &environment())?;
    let options = Options { demo: false, port: Port::Configured };
    let running = app::start_with(&config, options, vec![leave().compile()?]).await?;

    let by = Principal::service("example");
    let input = json!({"who": "Ines", "days": 3});
    running.engine.start("leave", &input, None, &by).await?;
    println!("Decide it here: {}", running.sign_in_link);

    tokio::signal::ctrl_c().await?;
    running.stop().await;
    Ok(())
}
