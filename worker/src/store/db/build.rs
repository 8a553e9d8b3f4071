//! Statements whose conditions depend on what is asked for.

use std::fmt::Write as _;

use super::{Arg, Conn, Query, Row, query};
use crate::store::StoreError;

/// Puts a statement together: the texts are constants of the caller, and what
/// comes from outside is bound.
pub(crate) struct Builder {
    text: String,
    args: Vec<Arg>,
}

impl Builder {
    pub(crate) fn new(text: &'static str) -> Self {
        Self { text: text.to_owned(), args: Vec::new() }
    }

    pub(crate) fn push(&mut self, text: &'static str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    pub(crate) fn push_bind(&mut self, arg: impl Into<Arg>) -> &mut Self {
        self.args.push(arg.into());
        // Writing to a text cannot fail.
        let _ = write!(self.text, "${}", self.args.len());
        self
    }

    /// The arguments in brackets, for `IN`; of none nothing is found.
    pub(crate) fn push_list<T: Into<Arg>>(&mut self, list: impl IntoIterator<Item = T>) -> &mut Self {
        self.push("(NULL");
        for arg in list {
            self.push(", ").push_bind(arg);
        }
        self.push(")")
    }

    fn build(self) -> Query {
        self.args.into_iter().fold(query(self.text), Query::bind)
    }

    pub(crate) async fn fetch_all(self, conn: &mut Conn<'_>) -> Result<Vec<Row>, StoreError> {
        self.build().fetch_all(conn).await
    }

    pub(crate) async fn fetch_optional(self, conn: &mut Conn<'_>) -> Result<Option<Row>, StoreError> {
        self.build().fetch_optional(conn).await
    }
}
