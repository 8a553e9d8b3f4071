//! The texts of statements.

use std::borrow::Cow;

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

type Text = Cow<'static, str>;

/// A statement, in both dialects.
#[derive(Debug, Clone)]
pub(crate) struct Sql {
    sqlite: Text,
    postgres: Text,
}

/// A statement that the dialects write in two ways. Parameters have the same
/// numbers in both.
pub(crate) const fn either(sqlite: &'static str, postgres: &'static str) -> Sql {
    Sql { sqlite: Cow::Borrowed(sqlite), postgres: Cow::Borrowed(postgres) }
}

impl Sql {
    /// As [`either`], put together from constants; nothing that came from
    /// outside may be in it.
    pub(crate) fn put_together(sqlite: String, postgres: String) -> Self {
        Self { sqlite: sqlite.into(), postgres: postgres.into() }
    }
}

impl From<&'static str> for Sql {
    fn from(text: &'static str) -> Self {
        either(text, text)
    }
}

impl From<String> for Sql {
    /// For statements put together from constants of this module; nothing that
    /// came from outside may be in them.
    fn from(text: String) -> Self {
        Self { sqlite: Cow::Owned(text.clone()), postgres: Cow::Owned(text) }
    }
}

fn safe(text: Text) -> SqlStr {
    match text {
        Cow::Borrowed(text) => text.into_sql_str(),
        Cow::Owned(text) => AssertSqlSafe(text).into_sql_str(),
    }
}

impl Sql {
    pub(super) fn sqlite_text(&self) -> &str {
        &self.sqlite
    }

    pub(super) fn postgres_text(&self) -> &str {
        &self.postgres
    }

    pub(super) fn sqlite(self) -> SqlStr {
        safe(self.sqlite)
    }

    pub(super) fn postgres(self) -> SqlStr {
        safe(self.postgres)
    }
}
