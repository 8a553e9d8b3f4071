//! Who depends on whom, by the manifests.

use serde_json::Value;

use super::Finding;
use crate::process::{Failed, cargo};

/// What each crate may use of ours; crates that are not listed may use all.
const LAYERS: [(&str, &[&str]); 5] = [
    ("countersign-derive", &[]),
    ("countersign-kernel", &["countersign-derive"]),
    ("countersign-flows", &["countersign-kernel"]),
    ("countersign-worker", &["countersign-kernel"]),
    ("countersign-notifier", &["countersign-kernel"]),
];

/// All that the kernel may use: it has no runtime, no I/O, no clock and no
/// chance.
const KERNEL: [&str; 9] = [
    "async-trait",
    "countersign-derive",
    "futures-util",
    "hex",
    "rust_decimal",
    "serde",
    "serde_json",
    "sha2",
    "thiserror",
];

/// What the program must not contain: TLS is rustls with ring, without a
/// second provider and without the system's library.
const NOT_SHIPPED: [&str; 4] = ["aws-lc-rs", "native-tls", "openssl", "openssl-sys"];

/// Checks the manifests of the workspace.
pub(super) fn check() -> Result<Vec<Finding>, Failed> {
    let text = cargo(["metadata", "--no-deps", "--format-version", "1", "--locked"]).output()?;
    let metadata: Value =
        serde_json::from_slice(&text).map_err(|error| Failed(format!("cargo's metadata cannot be read: {error}")))?;
    let packages = metadata["packages"].as_array().cloned().unwrap_or_default();
    let mut findings: Vec<Finding> = packages.iter().flat_map(check_package).collect();
    let shipped = ["tree", "-p", "countersign", "--edges", "normal,build", "--prefix", "none", "--locked"];
    findings.extend(check_shipped(&String::from_utf8_lossy(&cargo(shipped).output()?)));
    Ok(findings)
}

/// `tree` has one crate per line, its name first.
fn check_shipped(tree: &str) -> Vec<Finding> {
    let found = |name: &&&str| tree.lines().any(|line| line.split(' ').next() == Some(**name));
    NOT_SHIPPED
        .iter()
        .filter(found)
        .map(|name| Finding::new("the program", format!("must not contain {name}")))
        .collect()
}

fn check_package(package: &Value) -> Vec<Finding> {
    let name = package["name"].as_str().unwrap_or_default();
    let place = format!("manifest of {name}");
    let dependencies = package["dependencies"].as_array().cloned().unwrap_or_default();
    let mut findings = Vec::new();
    for dependency in &dependencies {
        let used = dependency["name"].as_str().unwrap_or_default();
        let in_tests_only = dependency["kind"] == "dev";
        let allowed = LAYERS.iter().find(|(layer, _)| *layer == name).map(|(_, allowed)| *allowed);
        if let Some(allowed) = allowed
            && !in_tests_only
            && (used == "countersign" || used.starts_with("countersign-"))
            && !allowed.contains(&used)
        {
            findings.push(Finding::new(&place, format!("may not depend on {used}")));
        }
        if name == "countersign-kernel" && !in_tests_only && !KERNEL.contains(&used) {
            findings.push(Finding::new(&place, format!("the kernel is pure; {used} is not among what it may use")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(name: &str, dependencies: &[(&str, Option<&str>)]) -> usize {
        let dependencies: Vec<Value> =
            dependencies.iter().map(|(name, kind)| json!({"name": name, "kind": kind})).collect();
        check_package(&json!({"name": name, "dependencies": dependencies})).len()
    }

    #[test]
    fn layers_hold_outside_of_tests() {
        assert_eq!(found("countersign-worker", &[("countersign-kernel", None), ("sqlx", None)]), 0);
        assert_eq!(found("countersign-worker", &[("countersign-notifier", None)]), 1);
        assert_eq!(found("countersign-worker", &[("countersign-flows", Some("dev"))]), 0);
        assert_eq!(found("countersign", &[("countersign-notifier", None)]), 0);
    }

    #[test]
    fn one_provider_of_tls_is_shipped() {
        assert_eq!(check_shipped("rustls v0.23.46\nring v0.17.14\n"), []);
        assert_eq!(check_shipped("rustls v0.23.46\naws-lc-rs v1.19.0 (*)\n").len(), 1);
    }

    #[test]
    fn the_kernel_uses_what_is_listed() {
        assert_eq!(found("countersign-kernel", &[("serde", None), ("proptest", Some("dev"))]), 0);
        assert_eq!(found("countersign-kernel", &[("tokio", None), ("uuid", None)]), 2);
    }
}
