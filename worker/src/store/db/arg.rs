//! Arguments of statements.

use serde_json::Value;
use sqlx::postgres::{PgArguments, Postgres};
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments};

use super::bulk::Kind;
use crate::store::StoreError;

/// An argument. A list is one argument: a JSON text on SQLite, read with
/// `json_each`, an array on Postgres, read with `ANY` or `unnest`.
#[derive(Debug, Clone)]
pub(crate) enum Arg {
    Text(Option<String>),
    Int(Option<i64>),
    Bool(bool),
    Bytes(Option<Vec<u8>>),
    Texts(Vec<String>),
    /// A column of rows, for Postgres.
    Column(Column),
    /// Rows of texts and numbers for a join: a JSON text on both.
    Json(Value),
}

/// The values of a column.
#[derive(Debug, Clone)]
pub(crate) enum Column {
    Texts(Vec<Option<String>>),
    Ints(Vec<Option<i64>>),
    Bools(Vec<bool>),
    Bytes(Vec<Option<Vec<u8>>>),
}

impl Arg {
    /// Values of one column of many rows.
    pub(super) fn column(kind: Kind, values: Vec<Self>) -> Result<Self, StoreError> {
        let mut column = match kind {
            Kind::Text => Column::Texts(Vec::with_capacity(values.len())),
            Kind::Int => Column::Ints(Vec::with_capacity(values.len())),
            Kind::Bool => Column::Bools(Vec::with_capacity(values.len())),
            Kind::Bytes => Column::Bytes(Vec::with_capacity(values.len())),
        };
        for value in values {
            match (&mut column, value) {
                (Column::Texts(column), Self::Text(value)) => column.push(value.map(storable)),
                (Column::Ints(column), Self::Int(value)) => column.push(value),
                (Column::Bools(column), Self::Bool(value)) => column.push(value),
                (Column::Bytes(column), Self::Bytes(value)) => column.push(value),
                (column, value) => {
                    return Err(StoreError::Database(format!("{value:?} does not go into the column {column:?}")));
                }
            }
        }
        Ok(Self::Column(column))
    }

    /// A text that tells it from others of its column.
    pub(crate) fn key(&self) -> String {
        match self {
            Self::Text(Some(text)) => text.clone(),
            Self::Int(Some(number)) => number.to_string(),
            other => format!("{other:?}"),
        }
    }

    /// A list of texts.
    pub(crate) fn texts<T: AsRef<str>>(list: impl IntoIterator<Item = T>) -> Self {
        Self::Texts(list.into_iter().map(|text| text.as_ref().to_owned()).collect())
    }

    pub(super) fn bind_sqlite(
        self,
        query: Query<'_, Sqlite, SqliteArguments>,
    ) -> Result<Query<'_, Sqlite, SqliteArguments>, StoreError> {
        let json = |list: &dyn erased::Json| list.text().map_err(StoreError::Database);
        Ok(match self {
            Self::Text(text) => query.bind(text),
            Self::Int(number) => query.bind(number),
            Self::Bool(flag) => query.bind(flag),
            Self::Bytes(bytes) => query.bind(bytes),
            Self::Texts(list) => query.bind(json(&list)?),
            Self::Column(_) => return Err(StoreError::Database("SQLite takes rows, not columns".into())),
            Self::Json(value) => query.bind(value.to_string()),
        })
    }

    pub(super) fn bind_postgres(self, query: Query<'_, Postgres, PgArguments>) -> Query<'_, Postgres, PgArguments> {
        match self {
            Self::Text(text) => query.bind(text.map(storable)),
            Self::Int(number) => query.bind(number),
            Self::Bool(flag) => query.bind(flag),
            Self::Bytes(bytes) => query.bind(bytes),
            Self::Texts(list) => query.bind(list.into_iter().map(storable).collect::<Vec<_>>()),
            Self::Column(Column::Texts(column)) => query.bind(column),
            Self::Column(Column::Ints(column)) => query.bind(column),
            Self::Column(Column::Bools(column)) => query.bind(column),
            Self::Column(Column::Bytes(column)) => query.bind(column),
            Self::Json(value) => query.bind(value.to_string()),
        }
    }
}

mod erased {
    /// A list as JSON text.
    pub(super) trait Json {
        fn text(&self) -> Result<String, String>;
    }

    impl<T: serde::Serialize> Json for Vec<T> {
        fn text(&self) -> Result<String, String> {
            serde_json::to_string(self).map_err(|error| error.to_string())
        }
    }
}

/// Postgres has no text with a zero in it.
fn storable(text: String) -> String {
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}

impl From<&str> for Arg {
    fn from(text: &str) -> Self {
        Self::Text(Some(text.to_owned()))
    }
}

impl From<&String> for Arg {
    fn from(text: &String) -> Self {
        Self::Text(Some(text.clone()))
    }
}

impl From<String> for Arg {
    fn from(text: String) -> Self {
        Self::Text(Some(text))
    }
}

impl From<Option<&str>> for Arg {
    fn from(text: Option<&str>) -> Self {
        Self::Text(text.map(str::to_owned))
    }
}

impl From<Option<String>> for Arg {
    fn from(text: Option<String>) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Arg {
    fn from(number: i64) -> Self {
        Self::Int(Some(number))
    }
}

impl From<&i64> for Arg {
    fn from(number: &i64) -> Self {
        Self::Int(Some(*number))
    }
}

impl From<u32> for Arg {
    fn from(number: u32) -> Self {
        Self::Int(Some(number.into()))
    }
}

impl From<Option<i64>> for Arg {
    fn from(number: Option<i64>) -> Self {
        Self::Int(number)
    }
}

impl From<Option<u32>> for Arg {
    fn from(number: Option<u32>) -> Self {
        Self::Int(number.map(Into::into))
    }
}

impl From<bool> for Arg {
    fn from(flag: bool) -> Self {
        Self::Bool(flag)
    }
}

impl From<Vec<u8>> for Arg {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(Some(bytes))
    }
}

impl From<&[u8]> for Arg {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(Some(bytes.to_owned()))
    }
}
