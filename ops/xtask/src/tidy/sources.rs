//! What holds for every source file.

use super::{Finding, Source};

/// The longest a file may be; files should stay well below.
const LINES_MAX: usize = 600;

/// A library that has its place.
struct Place {
    /// What the code looks for: the crate's name as a path begins.
    name: &'static str,
    /// Where it may be used.
    allowed: &'static [&'static str],
    /// Where that is, in words.
    rule: &'static str,
}

const PLACES: [Place; 7] = [
    Place { name: "apalis", allowed: &["worker/src/queue"], rule: "the carrier stays behind worker/src/queue" },
    Place { name: "redis", allowed: &["worker/src/queue", "tests/"], rule: "Redis is spoken to in worker/src/queue" },
    Place {
        name: "sqlx",
        allowed: &["worker/src/store", "worker/src/queue", "worker/tests", "tests/"],
        rule: "SQL stays in worker/src/store and worker/src/queue",
    },
    Place { name: "lettre", allowed: &["notifier/src/email"], rule: "SMTP stays in notifier/src/email" },
    Place { name: "axum", allowed: &["ops/src"], rule: "HTTP serving stays in ops" },
    Place {
        name: "std::env::var",
        allowed: &["ops/src/config", "ops/xtask", "tests/"],
        rule: "the environment is read in ops/src/config",
    },
    Place { name: "getrandom", allowed: &["worker/src/system"], rule: "chance has one place, worker/src/system" },
];

/// All findings in one file.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    // Scenes of a test for compiler messages are not ours to document.
    if !source.text.starts_with("//!") && !source.path.contains("/ui/") {
        findings.push(Finding::new(&source.path, "begins without `//!`; say what the file is for"));
    }
    let lines = source.text.lines().count();
    if lines > LINES_MAX {
        findings.push(Finding::new(&source.path, format!("{lines} lines, more than {LINES_MAX}; split it by purpose")));
    }
    // This file names everything that it looks for.
    if source.path.starts_with("ops/xtask/") {
        return findings;
    }
    for (i, line) in source.text.lines().enumerate() {
        let code = line.split_once("//").map_or(line, |(code, _)| code);
        for place in &PLACES {
            let used = uses(code, place.name);
            if used && !place.allowed.iter().any(|allowed| source.path.starts_with(allowed)) {
                findings.push(Finding::new(format!("{}:{}", source.path, i + 1), place.rule));
            }
        }
    }
    findings
}

/// Whether a path in `code` begins with `name` or with a crate of that family:
/// `apalis::…`, `apalis_core::…`.
fn uses(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let starts = !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '"' | '/'));
        let tail = code[at + name.len()..].trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
        starts && (tail.starts_with("::") || (name.contains("::") && tail.starts_with('(')))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let findings = check(&Source { path: path.to_owned(), text: text.to_owned() });
        findings.into_iter().map(|finding| format!("{}: {}", finding.place, finding.what)).collect()
    }

    #[test]
    fn libraries_stay_in_their_place() {
        let text = "//! Doc.\nuse sqlx::Row;\nuse apalis_core::x;\n";
        assert_eq!(found("worker/src/queue/x.rs", text), [] as [&str; 0]);
        let said = found("worker/src/executor.rs", text);
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].starts_with("worker/src/executor.rs:2: SQL stays"), "{said:?}");
        assert_eq!(found("ops/src/x.rs", "//! D.\nlet _ = std::env::var(\"A\");").len(), 1);
        assert_eq!(found("ops/src/x.rs", "//! D.\nlet _ = std::env::var_os(\"A\");").len(), 1);
    }

    #[test]
    fn words_in_comments_and_texts_are_no_use() {
        let text = "//! About sqlx::Row.\n// sqlx::x\nlet a = \"sqlx::x\"; // lettre::y\nmy_sqlx::x();\n";
        assert_eq!(found("ops/src/x.rs", text), [] as [&str; 0]);
    }

    #[test]
    fn files_say_what_they_are_for_and_stay_short() {
        assert_eq!(found("ops/src/x.rs", "fn f() {}").len(), 1);
        let long = format!("//! D.\n{}", "x\n".repeat(LINES_MAX));
        assert!(found("ops/src/x.rs", &long)[0].contains("601 lines"));
    }
}
