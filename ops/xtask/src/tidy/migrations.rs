//! Migrations have the same numbers and names in every dialect.

use super::Finding;

/// Checks the names of both folders. A dialect without any migration is not
/// there yet.
pub(super) fn check(sqlite: &[String], postgres: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (folder, names) in [("migrations/sqlite", sqlite), ("migrations/postgres", postgres)] {
        for (name, number) in names.iter().zip(1..) {
            let expected = format!("{number:04}_");
            if !name.starts_with(&expected) {
                findings
                    .push(Finding::new(format!("{folder}/{name}"), format!("the name should begin with {expected}")));
            }
        }
    }
    if sqlite.is_empty() || postgres.is_empty() {
        return findings;
    }
    let missing = |from: &[String], folder: &str, other: &[String]| {
        let lonely = from.iter().filter(|name| !other.contains(name)).cloned().collect::<Vec<_>>();
        lonely
            .into_iter()
            .map(|name| Finding::new(format!("{folder}/{name}"), "the other dialect has no such file"))
            .collect::<Vec<_>>()
    };
    findings.extend(missing(sqlite, "migrations/sqlite", postgres));
    findings.extend(missing(postgres, "migrations/postgres", sqlite));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(sqlite: &[&str], postgres: &[&str]) -> usize {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        check(&owned(sqlite), &owned(postgres)).len()
    }

    #[test]
    fn dialects_pair_once_both_exist() {
        assert_eq!(found(&["0001_init.sql"], &[]), 0);
        assert_eq!(found(&["0001_init.sql"], &["0001_init.sql"]), 0);
        assert_eq!(found(&["0001_init.sql", "0002_more.sql"], &["0001_init.sql"]), 1);
        assert_eq!(found(&["0001_init.sql"], &["0001_start.sql"]), 2);
    }

    #[test]
    fn numbers_have_no_gaps() {
        assert_eq!(found(&["0001_init.sql", "0003_more.sql"], &[]), 1);
    }
}
