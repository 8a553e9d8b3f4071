//! Where the program is.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The program, built from what is in the checkout. `cargo xtask test` builds
/// it and says where in `COUNTERSIGN_BIN`; without that it is built here, once
/// per process (once per run under nextest).
pub(crate) fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| match std::env::var_os("COUNTERSIGN_BIN") {
        Some(path) if !path.is_empty() => PathBuf::from(path),
        _ => build(),
    })
}

/// The program with the flows of `bin/flows.rs` beside those that ship.
pub(crate) fn with_flows() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_countersign-test-flows"))
}

fn build() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own file");
    // `<target>/<profile>/deps/it-<hash>`
    let folder = test.ancestors().nth(2).expect("a profile's folder").to_owned();
    let program = folder.join("countersign").with_extension(std::env::consts::EXE_EXTENSION);
    let stamp = std::env::var_os("NEXTEST_RUN_ID").map(|run| folder.join(".e2e").join(run));
    if stamp.as_ref().is_some_and(|stamp| stamp.exists()) && program.exists() {
        return program;
    }
    let mut cargo = Command::new(option_env!("CARGO").unwrap_or("cargo"));
    cargo.args(["build", "--quiet", "--package", "countersign"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    if folder.file_name().is_some_and(|name| name == "release") {
        cargo.arg("--release");
    }
    let status = cargo.status().expect("cargo runs");
    assert!(status.success(), "the program does not build: {status}");
    if let Some(stamp) = stamp {
        // Those of earlier runs are of no use.
        let _gone = std::fs::remove_dir_all(stamp.parent().expect("a folder"));
        let _there = std::fs::create_dir_all(stamp.parent().expect("a folder"));
        std::fs::write(stamp, "").expect("a stamp");
    }
    program
}
