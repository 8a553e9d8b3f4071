//! Rows of results.

use sqlx::postgres::{PgRow, Postgres};
use sqlx::sqlite::{Sqlite, SqliteRow};
use sqlx::{ColumnIndex, Decode, Row as _, Type};

use crate::store::StoreError;

/// A row of either database.
pub(crate) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

/// What a column may hold.
pub(crate) trait Column<'r>: Decode<'r, Sqlite> + Type<Sqlite> + Decode<'r, Postgres> + Type<Postgres> {}

impl<'r, T> Column<'r> for T where T: Decode<'r, Sqlite> + Type<Sqlite> + Decode<'r, Postgres> + Type<Postgres> {}

impl Row {
    /// The column of that place or name.
    pub(crate) fn try_get<'r, T, C>(&'r self, column: C) -> Result<T, StoreError>
    where
        T: Column<'r>,
        C: ColumnIndex<SqliteRow> + ColumnIndex<PgRow>,
    {
        Ok(match self {
            Self::Sqlite(row) => row.try_get(column)?,
            Self::Postgres(row) => row.try_get(column)?,
        })
    }
}
