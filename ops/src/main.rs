//! The program: chooses the TLS provider and hands over to the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Fails only if a provider is installed already, which is as good.
    let _present = rustls::crypto::ring::default_provider().install_default();
    countersign::cli::main(std::env::args_os(), &countersign::config::environment()).into()
}
