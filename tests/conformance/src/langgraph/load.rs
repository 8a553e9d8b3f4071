//! Finding and reading scenario files.

use std::path::Path;

use super::model::Scenario;

/// A scenario, or why a part of a file is none.
pub type Loaded = Result<Scenario, Unreadable>;

/// Something that should have been a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The file, and the line in a file of lines.
    pub place: String,
    /// What is wrong.
    pub problem: String,
}

/// The file of the other format, which may lie beside ours.
const OTHER_FORMAT: &str = "eino-scenarios.json";

/// All scenarios in `dir` and in its folder `scenarios`, sorted by file.
#[must_use]
pub fn load(dir: &Path) -> Vec<Loaded> {
    let mut files = Vec::new();
    let mut loaded = Vec::new();
    for folder in [dir.to_owned(), dir.join("scenarios")] {
        match std::fs::read_dir(&folder) {
            Ok(entries) => {
                files.extend(entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|file| is_ours(file)));
            }
            Err(problem) if folder == dir => loaded.push(Err(Unreadable::at(&folder, None, &problem))),
            Err(_) => {}
        }
    }
    files.sort();
    for file in files {
        match std::fs::read_to_string(&file) {
            Ok(text) => loaded.extend(read(&file, &text)),
            Err(problem) => loaded.push(Err(Unreadable::at(&file, None, &problem))),
        }
    }
    loaded
}

fn is_ours(file: &Path) -> bool {
    let extension = file.extension().and_then(|extension| extension.to_str());
    let name = file.file_name().and_then(|name| name.to_str());
    matches!(extension, Some("json" | "jsonl")) && name != Some(OTHER_FORMAT) && file.is_file()
}

fn read(file: &Path, text: &str) -> Vec<Loaded> {
    if file.extension().is_some_and(|extension| extension == "jsonl") {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        return lines.map(|(number, line)| scenario(file, Some(number + 1), line)).collect();
    }
    vec![scenario(file, None, text)]
}

fn scenario(file: &Path, line: Option<usize>, text: &str) -> Loaded {
    let scenario: Scenario = serde_json::from_str(text).map_err(|problem| Unreadable::at(file, line, &problem))?;
    if scenario.format != 1 {
        return Err(Unreadable::at(file, line, &format!("`{}` has format {}", scenario.name, scenario.format)));
    }
    Ok(scenario)
}

impl Unreadable {
    fn at(file: &Path, line: Option<usize>, problem: &impl ToString) -> Self {
        let line = line.map_or_else(String::new, |line| format!(", line {line}"));
        Self { place: format!("{}{line}", file.display()), problem: problem.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"{"format": 1, "name": "a", "kind": "k", "origin": "hand", "doc": "", "level": "core",
        "graphs": {}, "actions": [{"do": "history"ACTION}]}"#;

    fn with(action: &str) -> Loaded {
        let text = SMALL.replace("ACTION", action);
        read(Path::new("a.json"), &text).remove(0)
    }

    #[test]
    fn what_the_format_does_not_know_is_named() {
        assert_eq!(with("").map(|scenario| scenario.actions.len()), Ok(1));
        let unknown = with(r#", "sideways": 1"#).expect_err("an unknown member");
        assert!(unknown.problem.contains("sideways"), "{}", unknown.problem);
        let unknown = with(r#", "expect": {"colour": 1}"#).expect_err("an unknown member");
        assert!(unknown.problem.contains("colour"), "{}", unknown.problem);
    }

    #[test]
    fn each_line_is_a_scenario_and_a_bad_one_does_not_hide_the_others() {
        let line = SMALL.replace("ACTION", "").replace('\n', " ");
        let text = format!("{line}\n\n{{\n{line}\n");
        let places: Vec<_> = read(Path::new("a.jsonl"), &text)
            .into_iter()
            .map(|loaded| loaded.map(|scenario| scenario.name).map_err(|bad| bad.place))
            .collect();
        assert_eq!(places, [Ok("a".to_owned()), Err("a.jsonl, line 3".to_owned()), Ok("a".to_owned())]);
    }
}
