//! Many rows in few statements.
//!
//! What a statement costs is mostly its way to the database and back, so rows
//! of one table are inserted together: on Postgres by one statement that takes
//! an array for each column, on SQLite by statements for 64, 16, 4 and 1 rows,
//! so that few texts are prepared and each is prepared once.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::script::renumber;
use super::{Arg, Conn, Dialect, Query, query};
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
    pub(crate) async fn run(&'static self, conn: &mut Conn<'_>, rows: Vec<Vec<Arg>>) -> Result<(), StoreError> {
        Self::run_all(conn, [(self, rows)]).await
    }

    /// Inserts rows into several tables. On Postgres by one statement, so none may
    /// be of a row that another has inserted; keys that refer to each other are
    /// checked at its end.
    pub(crate) async fn run_all(
        conn: &mut Conn<'_>,
        all: impl IntoIterator<Item = (&'static Self, Vec<Vec<Arg>>)>,
    ) -> Result<(), StoreError> {
        let all = all.into_iter().filter(|(_, rows)| !rows.is_empty());
        match conn.dialect() {
            Dialect::Postgres => {
                let mut statements = Vec::new();
                for (insert, rows) in all {
                    statements.push(insert.postgres(rows)?);
                }
                match together(statements) {
                    Some(query) => conn.later(query).await,
                    None => Ok(()),
                }
            }
            Dialect::Sqlite => {
                for (insert, rows) in all {
                    insert.sqlite(conn, rows).await?;
                }
                Ok(())
            }
        }
    }

    async fn sqlite(&self, conn: &mut Conn<'_>, mut rows: Vec<Vec<Arg>>) -> Result<(), StoreError> {
        if rows.len() == 1 {
            let args = rows.into_iter().flatten();
            return conn.later(args.fold(query(self.values(1)), Query::bind)).await;
        }
        // Apart from what waits: together they would be too many texts to keep.
        conn.settle().await?;
        for size in CHUNKS {
            while rows.len() >= size {
                let rest = rows.split_off(size);
                let chunk = std::mem::replace(&mut rows, rest);
                let args = chunk.into_iter().flatten();
                args.fold(query(self.values(size)), Query::bind).execute(conn).await?;
            }
        }
        Ok(())
    }

    fn postgres(&self, rows: Vec<Vec<Arg>>) -> Result<Query, StoreError> {
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
        Ok(insert)
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

/// Several statements that write as one, for Postgres.
fn together(mut statements: Vec<Query>) -> Option<Query> {
    let last = statements.pop()?;
    if statements.is_empty() {
        return Some(last);
    }
    let (mut text, mut args) = (String::from("WITH "), Vec::new());
    for (number, statement) in statements.into_iter().enumerate() {
        // Writing to a text cannot fail.
        let _ = write!(text, "{}part{number} AS (", if number == 0 { "" } else { "), " });
        renumber(&mut text, statement.sql.postgres_text(), args.len());
        args.extend(statement.args);
    }
    text.push_str(") ");
    renumber(&mut text, last.sql.postgres_text(), args.len());
    args.extend(last.args);
    Some(Query { sql: text.into(), args })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_that_write_are_parts_of_the_last() {
        assert!(together(Vec::new()).is_none());
        let insert =
            |table: &str| query(format!("INSERT INTO {table} SELECT * FROM unnest($1, $2)")).bind(1_i64).bind(2_i64);
        let one = together(vec![insert("a")]).expect("a statement");
        assert_eq!(one.sql.postgres_text(), "INSERT INTO a SELECT * FROM unnest($1, $2)");
        let three = together(vec![insert("a"), insert("b"), insert("c")]).expect("a statement");
        assert_eq!(
            three.sql.postgres_text(),
            "WITH part0 AS (INSERT INTO a SELECT * FROM unnest($1, $2)), \
             part1 AS (INSERT INTO b SELECT * FROM unnest($3, $4)) \
             INSERT INTO c SELECT * FROM unnest($5, $6)"
        );
        assert_eq!(three.args.len(), 6);
    }
}
