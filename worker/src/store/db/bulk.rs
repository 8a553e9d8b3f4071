//! Many rows in few statements.
//!
//! What a statement costs is mostly its way to the database and back, so rows
//! of one table are inserted together: on Postgres by one statement that takes
//! an array for each column, on SQLite by statements for 64, 16, 4 and 1 rows,
//! so that few texts are prepared and each is prepared once.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::{Arg, Conn, Dialect, query};
use crate::store::StoreError;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Int,
    Bool,
    Bytes,
}

/// How rows are inserted into a table.
#[derive(Debug)]
pub(crate) struct Insert {
    pub(crate) table: &'static str,
    pub(crate) columns: &'static [(&'static str, Kind)],
    /// What is done about rows that are there already: `ON CONFLICT …`.
    pub(crate) conflict: &'static str,
}

/// The sizes of statements on SQLite.
const CHUNKS: [usize; 4] = [64, 16, 4, 1];

impl Insert {
    /// Inserts the rows, each with a value for each column.
    pub(crate) async fn run(&self, conn: &mut Conn<'_>, mut rows: Vec<Vec<Arg>>) -> Result<(), StoreError> {
        if rows.is_empty() {
            return Ok(());
        }
        match conn.dialect() {
            Dialect::Postgres => self.run_postgres(conn, rows).await,
            Dialect::Sqlite => {
                for size in CHUNKS {
                    while rows.len() >= size {
                        let rest = rows.split_off(size);
                        let chunk = std::mem::replace(&mut rows, rest);
                        let args = chunk.into_iter().flatten();
                        args.fold(query(self.values(size)), super::Query::bind).execute(conn).await?;
                    }
                }
                Ok(())
            }
        }
    }

    async fn run_postgres(&self, conn: &mut Conn<'_>, rows: Vec<Vec<Arg>>) -> Result<(), StoreError> {
        let mut columns: Vec<Vec<Arg>> = self.columns.iter().map(|_| Vec::with_capacity(rows.len())).collect();
        for row in rows {
            for (column, value) in columns.iter_mut().zip(row) {
                column.push(value);
            }
        }
        let mut insert = query(self.unnest());
        for (column, (_, kind)) in columns.into_iter().zip(self.columns) {
            insert = insert.bind(Arg::column(*kind, column)?);
        }
        insert.execute(conn).await?;
        Ok(())
    }

    fn head(&self) -> String {
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| *name).collect();
        format!("INSERT INTO {} ({})", self.table, names.join(", "))
    }

    fn values(&self, rows: usize) -> String {
        static TEXTS: OnceLock<Mutex<HashMap<(&'static str, usize), String>>> = OnceLock::new();
        let mut texts = TEXTS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        let text = texts.entry((self.table, rows)).or_insert_with(|| {
            let mut text = self.head() + " VALUES ";
            let mut number = 0;
            for row in 0..rows {
                text.push_str(if row == 0 { "(" } else { "), (" });
                for column in 0..self.columns.len() {
                    number += 1;
                    // Writing to a text cannot fail.
                    let _ = write!(text, "{}${number}", if column == 0 { "" } else { ", " });
                }
            }
            text + ") " + self.conflict
        });
        text.clone()
    }

    fn unnest(&self) -> String {
        let arrays: Vec<String> = self
            .columns
            .iter()
            .zip(1..)
            .map(|((_, kind), number)| {
                let kind = match kind {
                    Kind::Text => "text",
                    Kind::Int => "bigint",
                    Kind::Bool => "boolean",
                    Kind::Bytes => "bytea",
                };
                format!("${number}::{kind}[]")
            })
            .collect();
        format!("{} SELECT * FROM unnest({}) {}", self.head(), arrays.join(", "), self.conflict)
    }
}
