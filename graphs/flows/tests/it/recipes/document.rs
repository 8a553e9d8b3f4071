//! `docs/recipes.md` cannot rot: its code is that of the recipes, and its
//! inputs, answers and edits are taken by them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use countersign_flows::recipes::{
    self, agent, bank_details, close_account, contract, letter, notice, order, quote, tender, tool_call,
};

use super::*;

/// A section: its heading, its text, and the file that each block of Rust is
/// said to be from.
#[derive(Default)]
struct Section {
    text: String,
    code: Vec<(PathBuf, String)>,
}

fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/recipes.md")
}

fn sections() -> BTreeMap<String, Section> {
    let text = std::fs::read_to_string(document()).expect("the document");
    let mut sections: BTreeMap<String, Section> = BTreeMap::new();
    for part in text.split("\n## ") {
        let (heading, body) = part.split_once('\n').expect("a body");
        let mut section = Section { text: body.replace("\\\n", " "), code: Vec::new() };
        let mut file = None;
        for (at, piece) in body.split("```").enumerate() {
            match piece.strip_prefix("rust\n") {
                Some(code) if at % 2 == 1 => {
                    section.code.push((file.clone().expect("a link to its file before the code"), code.to_owned()));
                }
                _ => file = links(piece).into_iter().rfind(|link| link.ends_with(".rs")).map(PathBuf::from).or(file),
            }
        }
        sections.insert(heading.to_owned(), section);
    }
    sections
}

/// The targets of all links.
fn links(text: &str) -> Vec<&str> {
    text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link).collect()
}

/// What stands in quotes after `before`, as JSON.
fn quoted(text: &str, before: &str) -> Vec<Value> {
    let after = text.split(before).skip(1).filter_map(|rest| rest.strip_prefix('\''));
    after.map(|rest| serde_json::from_str(rest.split('\'').next().unwrap_or_default()).expect("JSON")).collect()
}

#[test]
fn its_code_is_that_of_the_recipes_and_its_links_lead_somewhere() {
    let folder = document().parent().expect("a folder").to_owned();
    let mut shown = 0;
    for (heading, section) in sections() {
        for (file, code) in &section.code {
            let source = std::fs::read_to_string(folder.join(file)).expect("a recipe");
            assert!(source.contains(code.as_str()), "{heading}: not in {}:\n{code}", file.display());
            shown += 1;
        }
        for link in links(&section.text).iter().filter(|link| !link.starts_with('#')) {
            assert!(folder.join(link).exists(), "{heading}: {link}");
        }
        for link in links(&section.text).iter().filter_map(|link| link.strip_prefix('#')) {
            let there = sections().keys().any(|known| known.to_lowercase().replace(' ', "-").replace('\'', "") == link);
            assert!(there, "{heading}: #{link}");
        }
    }
    assert!(shown >= 9, "only {shown} blocks of code were found");
}

#[test]
fn every_recipe_is_in_it() {
    let text = std::fs::read_to_string(document()).expect("the document");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/recipes");
    for entry in std::fs::read_dir(sources).expect("the recipes") {
        let name = entry.expect("a file").file_name().into_string().expect("a name");
        assert!(name == "mod.rs" || text.contains(&format!("/recipes/{name})")), "{name}");
    }
}

/// The flow of a section, and the input for sections that show none.
fn flow(heading: &str) -> Option<(CompiledGraph, Value)> {
    let (_, outside) = world();
    let transfer = says(&[("c1", "transfer", json!({"to": "Acme", "amount": 200}))]);
    let flow = match heading {
        "Approval" => close_account(outside),
        "Editing" => letter(outside),
        "Input" => bank_details(outside),
        "One tool call" => tool_call(outside),
        "An agent's calls" => agent(Arc::new(Script::new(std::iter::repeat_n(transfer, 9))), outside),
        "Dynamic stop" => notice(outside),
        "A review as a sub-graph" => contract(),
        "Fan-out" => tender(),
        "An event" => order(outside),
        "Retries" => quote(outside),
        "# Recipes" | "Answering" | "Trying them" => return None,
        other => panic!("{other}: which recipe is it?"),
    };
    let input = match heading {
        "An agent's calls" => json!({"messages": [{"role": "user", "text": "Pay Acme."}]}),
        "Dynamic stop" => json!({"text": "x".repeat(200)}),
        "Fan-out" => json!({"parts": [{"name": "roof", "text": "Slate.", "reviewer": "builders"}]}),
        _ => Value::Null,
    };
    Some((flow.expect("sound"), input))
}

#[test]
fn every_recipe_is_served() {
    let (_, outside) = world();
    let served = recipes::all(&outside, Arc::new(Script::new([]))).expect("sound");
    let served: BTreeSet<_> = served.iter().map(|flow| flow.name().to_owned()).collect();
    let shown = sections().into_keys().filter_map(|heading| flow(&heading)).map(|(flow, _)| flow.name().to_owned());
    assert_eq!(served, shown.collect());
}

/// Gives each answer to the first question that takes it: of a new thread, or
/// of the one that the answers before have led to.
fn take(heading: &str, answers: &[Value], begin: impl Fn() -> Driver) {
    let mut run = begin();
    for reply in answers {
        let takes = |run: &Driver| {
            let points = run.points().into_iter();
            let mut asked = points.filter_map(|point| Some((point.request()?.question, point.id)));
            asked.find(|(question, _)| question.validate(reply).is_ok()).map(|(_, id)| id)
        };
        let id = takes(&run).or_else(|| {
            run = begin();
            takes(&run)
        });
        let id = id.unwrap_or_else(|| panic!("{heading}: nothing asked takes {reply}"));
        answer_ids(&mut run, &[(&id, reply.clone())]).expect("it was asked");
    }
}

#[test]
fn its_inputs_answers_and_edits_are_taken() {
    let (mut inputs, mut answers, mut edits) = (0, 0, 0);
    for (heading, section) in sections() {
        let Some((compiled, usual)) = flow(&heading) else { continue };
        let compiled = Arc::new(compiled);
        let shown = quoted(&section.text, "--input ");
        for graph in section.text.split("countersign run ").skip(1) {
            assert!(graph.starts_with(&format!("{} ", compiled.name())), "{heading}");
        }
        let input = shown.first().cloned().unwrap_or(usual);
        let begin = || start(Arc::clone(&compiled), input.clone());
        let replies = quoted(&section.text, "answer <interrupt> ");
        take(&heading, &replies, begin);
        for command in section.text.split("threads state edit <thread>").skip(1) {
            let line = command.lines().next().unwrap_or_default();
            let node = line.split_once("--as-node ").map(|(_, rest)| rest.split(' ').next().unwrap_or(rest));
            edit(&mut begin(), quoted(line, "--values ").pop().unwrap_or_default(), node);
            edits += 1;
        }
        inputs += shown.len();
        answers += replies.len();
    }
    assert!((inputs, answers, edits) >= (6, 20, 3), "{inputs} inputs, {answers} answers, {edits} edits were found");
}
