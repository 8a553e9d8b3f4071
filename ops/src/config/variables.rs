//! The environment, and what in it looks like a setting and is none.

use std::collections::BTreeSet;

use super::reader::Reader;

/// What every variable of this program begins with.
const PREFIX: &str = "COUNTERSIGN_";

/// Variables that are no settings: those of the command line, and of the tests
/// and benches.
const OTHERS: [&str; 6] = [
    "COUNTERSIGN_BIN",
    "COUNTERSIGN_CONFIG",
    "COUNTERSIGN_SERVER",
    "COUNTERSIGN_TEST_POSTGRES",
    "COUNTERSIGN_TEST_REDIS",
    "COUNTERSIGN_TOKEN",
];

/// What orchestrators set in every process beside a service called
/// `countersign`: where it can be reached.
const ORCHESTRATORS: [&str; 2] = ["COUNTERSIGN_SERVICE_", "COUNTERSIGN_PORT"];

/// Where variables come from.
pub trait Variables {
    /// The value of a variable.
    fn get(&self, name: &str) -> Option<String>;

    /// The names of all variables, as far as they are known.
    fn names(&self) -> Vec<String> {
        Vec::new()
    }
}

impl<F: Fn(&str) -> Option<String>> Variables for F {
    fn get(&self, name: &str) -> Option<String> {
        self(name)
    }
}

/// The variables of this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct Environment;

#[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
impl Variables for Environment {
    fn get(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn names(&self) -> Vec<String> {
        std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect()
    }
}

/// Notes as a fault every variable that looks like a setting and is none.
pub(super) fn note_unknown(reader: &Reader<'_>) {
    let known = reader.known_variables();
    // Of a file that could not be read, nobody knows the endpoints.
    let spared = if reader.has_faults() { "COUNTERSIGN_WEBHOOKS_" } else { "=" };
    let unknown =
        reader.all_variables().into_iter().filter(|name| is_unknown(name, &known) && !name.starts_with(spared));
    let unknown: BTreeSet<String> = unknown.collect();
    for name in unknown {
        let remedy = match nearest(&name, &known) {
            Some(near) => format!("did you mean {near}? Else remove it"),
            None => "correct or remove it; `countersign config` shows every setting".to_owned(),
        };
        reader.fault(format!("variable {name}"), "there is no such setting", remedy);
    }
}

fn is_unknown(name: &str, known: &BTreeSet<String>) -> bool {
    name.starts_with(PREFIX)
        && !known.contains(name)
        && !OTHERS.contains(&name)
        && !ORCHESTRATORS.iter().any(|set| name.starts_with(set))
}

/// The known name that takes the fewest changes, if they are few.
fn nearest<'a>(name: &str, known: &'a BTreeSet<String>) -> Option<&'a str> {
    let names = known.iter().map(String::as_str).chain(OTHERS);
    let near = names.map(|known| (distance(name, known), known)).min()?;
    (near.0 <= 3).then_some(near.1)
}

/// How many letters have to be changed, added or left out (Levenshtein 1966).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.iter().enumerate() {
            let changed = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_the_one_that_was_meant() {
        let known = ["COUNTERSIGN_LISTEN", "COUNTERSIGN_LOG_FILTER"].map(str::to_owned).into();
        assert_eq!(nearest("COUNTERSIGN_LISTN", &known), Some("COUNTERSIGN_LISTEN"));
        assert_eq!(nearest("COUNTERSIGN_LOG_FLITER", &known), Some("COUNTERSIGN_LOG_FILTER"));
        assert_eq!(nearest("COUNTERSIGN_TOKENS", &known), Some("COUNTERSIGN_TOKEN"));
        assert_eq!(nearest("COUNTERSIGN_COLOUR", &known), None);
        assert_eq!((distance("", "ab"), distance("ab", "ab"), distance("abc", "bcd")), (2, 0, 2));
    }
}
