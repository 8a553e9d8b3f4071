//! `store`: measuring the database, and moving it to another.

use clap::{Args, Subcommand};
use countersign_worker::store::Copied;
use serde_json::{Value, json};

use super::exit::Exit;
use super::failure::CliError;
use super::output::{Output, plain, table};
use crate::app::{self, Measured};
use crate::config::{Config, StorePlace};

/// What to do with a database.
#[derive(Debug, Subcommand)]
pub enum StoreWork {
    /// Measure the database: tables, graphs, the longest histories. Beside the
    /// processes that use it; it reads whole tables.
    Stats,
    /// Copy everything to an empty database, of the other kind or the same, while
    /// nothing runs on either. Links and ids stay valid: keep `secret.json`.
    Copy(CopyStore),
}

/// Options of `store copy`.
#[derive(Debug, Args)]
pub struct CopyStore {
    /// From where: sqlite:path/of/file.db or postgres://user@host/database.
    #[arg(long, value_name = "URL", value_parser = place)]
    pub from: StorePlace,
    /// To where; the database must exist and be empty, a file is made.
    #[arg(long, value_name = "URL", value_parser = place)]
    pub to: StorePlace,
}

fn place(url: &str) -> Result<StorePlace, String> {
    StorePlace::of_url(url)
}

/// Does what the command line asks for.
pub(super) async fn run(config: &Config, output: Output, args: &StoreWork) -> Result<Exit, CliError> {
    let failed = |error: app::StartError| CliError::because(Exit::Failure, &error);
    match args {
        StoreWork::Stats => {
            let stats = Box::pin(app::store_stats(config)).await.map_err(failed)?;
            output.result(&stats_json(&stats), || describe(&stats));
        }
        StoreWork::Copy(args) => {
            let mut now = String::new();
            let mut progress = |table: &str, rows: u64| {
                if !output.is_json() && (table != now || rows.is_multiple_of(100_000)) {
                    table.clone_into(&mut now);
                    output.note(&format!("{table}: {rows} rows so far"));
                }
            };
            let copied = Box::pin(app::copy_store(&args.from, &args.to, &mut progress)).await.map_err(failed)?;
            output.result(&copied_json(&copied), || {
                format!(
                    "copied {} rows; {} audit chains hold.\nStart with the new `store.url` and the same keys: copy \
                     `secret.json` of the data folder if it moves, so that links in mails stay valid. Jobs are made \
                     anew by the sweep. The old database is as it was: do not start anything on it again.",
                    copied.tables.iter().map(|(_, rows)| rows).sum::<u64>(),
                    copied.chains
                )
            });
        }
    }
    Ok(Exit::Ok)
}

fn copied_json(copied: &Copied) -> Value {
    let tables: serde_json::Map<String, Value> =
        copied.tables.iter().map(|(table, rows)| (table.clone(), json!(rows))).collect();
    json!({"tables": tables, "audit_chains": copied.chains})
}

fn stats_json(measured: &Measured) -> Value {
    let stats = &measured.stats;
    let tables = stats.tables.iter().map(|size| json!({"table": size.table, "rows": size.rows, "bytes": size.bytes}));
    let graphs = stats.graphs.iter().map(|size| {
        json!({
            "graph": size.graph, "status": size.status, "threads": size.threads, "checkpoints": size.checkpoints,
        })
    });
    let threads = stats.threads.iter().map(|size| {
        json!({
            "thread_id": size.thread.as_str(), "graph": size.graph, "checkpoints": size.checkpoints,
            "state_bytes": size.state_bytes,
        })
    });
    json!({
        "bytes": stats.bytes, "tables": tables.collect::<Vec<_>>(), "graphs": graphs.collect::<Vec<_>>(),
        "threads": threads.collect::<Vec<_>>(), "compactable_checkpoints": measured.compactable,
    })
}

fn describe(measured: &Measured) -> String {
    let stats = &measured.stats;
    let tables: Vec<Vec<String>> = stats
        .tables
        .iter()
        .filter(|size| size.rows > 0)
        .map(|size| {
            vec![size.table.clone(), size.rows.to_string(), size.bytes.map(bytes).unwrap_or_else(|| "?".to_owned())]
        })
        .collect();
    let graphs: Vec<Vec<String>> = stats
        .graphs
        .iter()
        .map(|size| {
            vec![plain(&size.graph), size.status.clone(), size.threads.to_string(), size.checkpoints.to_string()]
        })
        .collect();
    let threads: Vec<Vec<String>> = stats
        .threads
        .iter()
        .map(|size| {
            vec![plain(size.thread.as_str()), plain(&size.graph), size.checkpoints.to_string(), bytes(size.state_bytes)]
        })
        .collect();
    let mut parts = vec![format!("{} in all", bytes(stats.bytes)), table(&["TABLE", "ROWS", "SIZE"], &tables)];
    if !graphs.is_empty() {
        parts.push(table(&["GRAPH", "STATUS", "THREADS", "CHECKPOINTS"], &graphs));
        parts.push(table(&["LONGEST HISTORIES", "GRAPH", "CHECKPOINTS", "STATE"], &threads));
    }
    let compactable = measured.compactable.iter().filter(|(_, checkpoints)| **checkpoints > 0);
    parts.extend(
        compactable.map(|(graph, checkpoints)| {
            format!("retention will compact {checkpoints} checkpoints of {}", plain(graph))
        }),
    );
    parts.join("\n\n")
}

/// A size as people read it.
fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{} KiB", bytes >> 10),
        1_048_576..1_073_741_824 => format!("{} MiB", bytes >> 20),
        _ => format!("{:.1} GiB", (bytes >> 20) as f64 / 1_024.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_by_people() {
        assert_eq!(
            [0, 1_023, 1_024, 5 << 20, 3 << 30].map(bytes),
            ["0 B", "1023 B", "1 KiB", "5 MiB", "3.0 GiB"].map(str::to_owned)
        );
    }

    #[test]
    fn a_place_that_is_none_is_refused_without_what_it_says() {
        let problem = place("mysql://ann:hunter2@db").expect_err("no place");
        assert!(problem.contains("sqlite:") && !problem.contains("hunter2"), "{problem}");
    }
}
