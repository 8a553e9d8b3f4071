//! Figures for people and for programs.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::bars;
use crate::figures::{Figure, Figures};

/// The table.
pub(crate) fn table(out: &mut impl Write, notes: &[String], figures: &Figures) -> io::Result<()> {
    for note in notes {
        writeln!(out, "{note}")?;
    }
    writeln!(
        out,
        "\n{:<6} {:<9} {:<17} {:<30} {:>10} {:>23}  bar",
        "", "backend", "variant", "metric", "median", "(min, max)"
    )?;
    let mut before = None;
    for figure in &figures.0 {
        let of = figure.of;
        if before.replace((of.workload, of.backend)).is_some_and(|before| before != (of.workload, of.backend)) {
            writeln!(out)?;
        }
        let spread = format!("({}, {})", short(figure.min()), short(figure.max()));
        let line = format!(
            "{:<6} {:<9} {:<17} {:<30} {:>10} {:>23}  {}",
            of.workload.name(),
            of.backend.name(),
            of.variant,
            of.metric,
            short(figure.median()),
            if figure.values.len() > 1 { spread } else { String::new() },
            bars::verdict(figure).unwrap_or_default()
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// One object a line.
pub(crate) fn json(out: &mut impl Write, figures: &Figures) -> io::Result<()> {
    for figure in &figures.0 {
        writeln!(out, "{}", object(figure))?;
    }
    Ok(())
}

fn object(figure: &Figure) -> Value {
    let of = figure.of;
    json!({
        "workload": of.workload.name(),
        "backend": of.backend.name(),
        "variant": of.variant,
        "metric": of.metric,
        "value": figure.median(),
        "min": figure.min(),
        "max": figure.max(),
        "repetitions": figure.values.len(),
    })
}

/// Three digits that say something.
fn short(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;
    use crate::figures::Of;
    use crate::place::Backend;

    #[test]
    fn a_line_says_what_it_is_of() {
        let of = Of { workload: Workload::W3, backend: Backend::Sqlite, variant: "", metric: "db_mib" };
        let figures = Figures(vec![Figure { of, values: vec![1.5, 2.5, 2.25] }]);
        let mut out = Vec::new();
        json(&mut out, &figures).expect("written");
        let line: Value = serde_json::from_slice(&out).expect("JSON");
        assert_eq!(line["value"], 2.25);
        assert_eq!((line["workload"].as_str(), line["backend"].as_str()), (Some("w3"), Some("sqlite")));
        let mut out = Vec::new();
        table(&mut out, &["a note".to_owned()], &figures).expect("written");
        assert!(String::from_utf8_lossy(&out).contains("MISSED (<= 2, goal 1.2)"));
    }
}
