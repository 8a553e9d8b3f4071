//! Requests that control the flow of work.

use reqwest::Method;
use serde_json::Value;

use super::{Client, ClientError, Page, Repeat};

impl Client {
    /// A resource as it is.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn get(&self, path: &[&str]) -> Result<Value, ClientError> {
        Ok(self.call(Method::GET, path, &[], None, Repeat::Safe).await?.body)
    }

    /// Makes a resource what `body` says.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn put(&self, path: &[&str], body: &Value) -> Result<Value, ClientError> {
        Ok(self.call(Method::PUT, path, &[], Some(body), Repeat::Safe).await?.body)
    }

    /// Takes a resource away. One that is gone is a refusal, so that it is sent
    /// again only if it did not arrive.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn delete(&self, path: &[&str]) -> Result<(), ClientError> {
        self.call(Method::DELETE, path, &[], None, Repeat::Unsent).await.map(|_| ())
    }

    /// One page of dead letters.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn dead_letters(
        &self,
        filters: &[(&str, Option<&str>)],
        limit: u64,
        cursor: Option<&str>,
    ) -> Result<Page, ClientError> {
        self.page("dead-letters", filters, limit, cursor).await
    }

    /// Gives dead letters fresh attempts.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn retry_dead_letters(&self, which: &Value) -> Result<Value, ClientError> {
        Ok(self.call(Method::POST, &["dead-letters", "retry"], &[], Some(which), Repeat::Safe).await?.body)
    }
}
