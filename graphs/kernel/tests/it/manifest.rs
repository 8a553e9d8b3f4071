//! The kernel stays pure: its manifest lists nothing that does I/O.

const MANIFEST: &str = include_str!("../../Cargo.toml");

/// Runtimes, databases, clocks, networks, chance.
const NEVER: [&str; 12] = [
    "tokio",
    "async-std",
    "smol",
    "sqlx",
    "rusqlite",
    "chrono",
    "reqwest",
    "hyper",
    "axum",
    "rand",
    "getrandom",
    "uuid",
];

fn dependencies(manifest: &str) -> Vec<&str> {
    let mut section = "";
    let mut names = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']');
            // `[dependencies.tokio]` names one as well.
            names.extend(section.rsplit_once("dependencies.").map(|(_, name)| name));
        } else if section.ends_with("dependencies")
            && let Some((name, _)) = line.split_once(['=', '.', ' '])
        {
            names.push(name.trim_matches('"'));
        }
    }
    names
}

#[test]
fn the_kernel_depends_on_nothing_that_does() {
    let names = dependencies(MANIFEST);
    assert!(names.contains(&"serde") && names.contains(&"sha2"), "the manifest was read: {names:?}");
    let found: Vec<_> = names.iter().filter(|name| NEVER.contains(name)).collect();
    assert!(found.is_empty(), "the kernel lists {found:?}");
}

#[test]
fn every_way_of_listing_a_dependency_is_seen() {
    let manifest = "[package]\nname = \"x\"\n[dependencies]\ntokio.workspace = true\n\"uuid\" = \"1\"\n\
                    [dependencies.sqlx]\nversion = \"0\"\n[dev-dependencies]\nrand = \"1\"\n\
                    [target.'cfg(unix)'.dependencies]\nhyper={version=\"1\"}\n";
    assert_eq!(dependencies(manifest), ["tokio", "uuid", "sqlx", "rand", "hyper"]);
}

#[test]
fn every_rule_of_the_semantics_is_named_in_the_overview() {
    let overview = include_str!("../../src/lib.rs");
    let missing: Vec<String> =
        (1..=22).map(|n| format!("K{n}")).filter(|rule| !overview.contains(&format!("| {rule} |"))).collect();
    assert!(missing.is_empty(), "no row for {missing:?}");
}
