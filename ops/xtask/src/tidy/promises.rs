//! The promises in ARCHITECTURE.md name tests that exist.

use super::{Finding, Source};

/// Where the tests of a group live.
const GROUPS: [(&str, &str); 5] = [
    ("contract", "tests/it/contract/"),
    ("engine", "tests/it/engine/"),
    ("e2e", "tests/it/e2e/"),
    ("kernel", "graphs/kernel/tests/it/"),
    ("web", "ops/src/web/"),
];

/// Every `group::module::test` in backticks must be there; `*` is any test of
/// the module.
pub(super) fn check(architecture: &str, sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in architecture.split('`').skip(1).step_by(2) {
        let parts: Vec<&str> = name.split("::").collect();
        let [group, module, test] = parts.as_slice() else { continue };
        let Some((_, folder)) = GROUPS.iter().find(|(known, _)| known == group) else { continue };
        let place = format!("{folder}{module}");
        let wanted = format!("fn {test}(");
        let there = sources.iter().any(|source| {
            let in_module = source.path == format!("{place}.rs") || source.path.starts_with(&format!("{place}/"));
            in_module && (*test == "*" || source.text.contains(&wanted))
        });
        if !there {
            findings.push(Finding::new("ARCHITECTURE.md", format!("names the test `{name}`, which is not there")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_is_not_there_is_found() {
        let source = Source { path: "tests/it/engine/lease.rs".into(), text: "async fn held() {}".into() };
        let sources = [source];
        assert!(check("| a | `engine::lease::held`, `engine::lease::*`, `std::fmt::Debug` |", &sources).is_empty());
        let text = "`engine::lease::lost` and `engine::leases::*`";
        let findings: Vec<_> = check(text, &sources).into_iter().map(|finding| finding.what).collect();
        assert_eq!(findings.len(), 2, "{findings:?}");
    }
}
