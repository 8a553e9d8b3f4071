//! House rules, as checks.
//!
//! Each rule is a function from a file, or from the whole, to findings; all
//! findings are reported at once.

mod layers;
mod migrations;
mod promises;
mod sources;

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::{Failed, root, say};

/// A place and what is wrong there.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    place: String,
    what: String,
}

impl Finding {
    fn new(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { place: place.into(), what: what.into() }
    }
}

/// A source file, with its path from the root, separated by slashes.
struct Source {
    path: String,
    text: String,
}

/// Checks all rules.
pub(crate) fn run() -> Result<(), Failed> {
    let root = root();
    let sources = rust_sources(&root)?;
    let mut findings: Vec<Finding> = sources.iter().flat_map(sources::check).collect();
    findings.extend(layers::check()?);
    findings.extend(migrations::check(
        &names_in(&root.join("migrations/sqlite")),
        &names_in(&root.join("migrations/postgres")),
    ));
    let architecture = fs::read_to_string(root.join("ARCHITECTURE.md"))
        .map_err(|error| Failed(format!("ARCHITECTURE.md: {error}")))?;
    findings.extend(promises::check(&architecture, &sources));
    for finding in &findings {
        say(&format!("{}: {}", finding.place, finding.what));
    }
    match findings.len() {
        0 => {
            say(&format!("house rules hold in {} files", sources.len()));
            Ok(())
        }
        count => Err(Failed(format!("{count} findings against the house rules"))),
    }
}

fn rust_sources(root: &Path) -> Result<Vec<Source>, Failed> {
    let mut sources = Vec::new();
    let mut folders: Vec<PathBuf> = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let unreadable = |error: std::io::Error| Failed(format!("{}: {error}", folder.display()));
        for entry in fs::read_dir(&folder).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let kind = entry.file_type().map_err(unreadable)?;
            if kind.is_dir() && !name.starts_with('.') && !matches!(name.as_str(), "target" | "data") {
                folders.push(path);
            } else if kind.is_file() && path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).map_err(|error| Failed(format!("{}: {error}", path.display())))?;
                let parts = path.strip_prefix(root).unwrap_or(&path).components();
                let parts: Vec<_> = parts.map(|part| part.as_os_str().to_string_lossy()).collect();
                sources.push(Source { path: parts.join("/"), text });
            }
        }
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

/// The names of the SQL files in a folder; none if there is no folder.
fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| Path::new(name).extension().is_some_and(|extension| extension == "sql"))
        .collect();
    names.sort_unstable();
    names
}
