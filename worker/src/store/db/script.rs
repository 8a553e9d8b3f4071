//! Statements that go to SQLite together.
//!
//! What a short statement costs is mostly its way to the connection's thread
//! and back. So statements whose result nobody waits for stay here and go with
//! the next one that somebody does wait for, as one text.

use std::fmt::Write as _;

use super::{Arg, Query};

/// A connection that statements can wait on.
#[derive(Debug)]
pub(crate) struct Waiting<C> {
    pub(super) conn: C,
    /// Whether any do: if whoever has the connection sees to those at the end.
    pub(super) gathers: bool,
    /// Whether anything has gone to the database.
    went: bool,
    script: Script,
}

impl<C> Waiting<C> {
    pub(super) fn on(conn: C) -> Self {
        Self { conn, gathers: false, went: false, script: Script::default() }
    }

    /// Has the statement wait.
    pub(super) fn add(&mut self, query: Query) {
        self.script.add(query);
    }

    /// How many statements wait.
    pub(super) fn count(&self) -> usize {
        self.script.statements
    }

    /// Whether no more should wait, so that there are few texts to prepare.
    pub(super) fn is_full(&self) -> bool {
        self.script.statements >= MOST
    }

    /// What waits, as one statement with `last` at its end.
    pub(super) fn with(&mut self, last: Query) -> Query {
        self.went = true;
        if self.script.statements == 0 {
            return last;
        }
        let mut script = std::mem::take(&mut self.script);
        script.add(last);
        script.whole()
    }

    /// What waits, if anything does.
    pub(super) fn take(&mut self) -> Option<Query> {
        self.went |= self.script.statements > 0;
        let script = std::mem::take(&mut self.script);
        (script.statements > 0).then(|| script.whole())
    }
}

impl<C> Waiting<C> {
    /// Drops what waits. Says whether anything went to the database before.
    pub(super) fn abandon(&mut self) -> bool {
        self.script = Script::default();
        self.went
    }
}

/// Most statements in one text.
const MOST: usize = 24;

#[derive(Debug, Default)]
struct Script {
    text: String,
    args: Vec<Arg>,
    statements: usize,
}

impl Script {
    fn add(&mut self, query: Query) {
        if self.statements > 0 {
            self.text.push_str(";\n");
        }
        renumber(&mut self.text, query.sql.sqlite_text(), self.args.len());
        self.args.extend(query.args);
        self.statements += 1;
    }

    fn whole(self) -> Query {
        Query { sql: self.text.into(), args: self.args }
    }
}

/// Appends a statement with its parameters behind those before: `$1` is
/// `$(1 + before)`. They are numbered through in all of a text.
pub(super) fn renumber(text: &mut String, statement: &str, before: usize) {
    let mut parts = statement.split('$');
    text.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        text.push('$');
        if let Ok(number) = part[..digits].parse::<usize>() {
            // Writing to a text cannot fail.
            let _ = write!(text, "{}", number + before);
        }
        text.push_str(&part[digits..]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::query;
    use super::*;

    #[test]
    fn statements_join_with_their_parameters_in_a_row() {
        let mut waiting = Waiting::on(());
        assert!(waiting.take().is_none());
        waiting.add(query("UPDATE a SET b = $1, c = $2 WHERE b > $1").bind(1_i64).bind("c"));
        waiting.add(query("BEGIN"));
        let joined = waiting.with(query("SELECT value ->> '$.x', $1, $12").bind(true));
        assert_eq!(
            joined.sql.sqlite_text(),
            "UPDATE a SET b = $1, c = $2 WHERE b > $1;\nBEGIN;\nSELECT value ->> '$.x', $3, $14"
        );
        assert_eq!(joined.args.len(), 3);
        assert_eq!(waiting.with(query("SELECT 1")).sql.sqlite_text(), "SELECT 1", "nothing waits any more");
    }

    #[test]
    fn what_waits_alone_is_left_as_it_is() {
        let mut waiting = Waiting::on(());
        waiting.add(query("DELETE FROM a WHERE b = $1").bind(1_i64));
        let taken = waiting.take().expect("it waits");
        assert_eq!((taken.sql.sqlite_text(), taken.args.len()), ("DELETE FROM a WHERE b = $1", 1));
        assert!(waiting.take().is_none());
    }
}
