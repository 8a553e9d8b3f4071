//! Requests that look into the past of a thread and change its course.

use reqwest::Method;
use serde_json::{Value, json};

use super::{Client, ClientError, Page, Repeat, decode};

impl Client {
    /// One page of the checkpoints of a thread, or of a sub-graph in it.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn history(
        &self,
        thread: &str,
        frame: Option<&str>,
        limit: u64,
        cursor: Option<&str>,
    ) -> Result<Page, ClientError> {
        let limit = limit.min(500).to_string();
        let all = [("frame", frame), ("limit", Some(limit.as_str())), ("cursor", cursor)];
        let query: Vec<(&str, &str)> = all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        decode(self.call(Method::GET, &["threads", thread, "history"], &query, None, Repeat::Safe).await?)
    }

    /// A checkpoint of a thread, or of a sub-graph in it.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn checkpoint(&self, thread: &str, checkpoint: &str) -> Result<Value, ClientError> {
        let path = ["threads", thread, "checkpoints", checkpoint];
        Ok(self.call(Method::GET, &path, &[], None, Repeat::Safe).await?.body)
    }

    /// Edits the state of a thread.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn edit_state(&self, thread: &str, body: &Value) -> Result<Value, ClientError> {
        self.change(thread, "state", body, Repeat::Unsent).await
    }

    /// Runs a thread from a checkpoint.
    ///
    /// # Errors
    /// As [`ClientError`]; steps that would be done again are a refusal of type
    /// `re-executes`.
    pub async fn run_again(&self, thread: &str, body: &Value) -> Result<Value, ClientError> {
        self.change(thread, "runs", body, Repeat::Unsent).await
    }

    /// Resumes a thread.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn resume(&self, thread: &str, body: &Value) -> Result<Value, ClientError> {
        self.change(thread, "resume", body, Repeat::Unsent).await
    }

    /// Asks for a pause, at the end of the superstep or `now`.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn pause(&self, thread: &str, now: bool) -> Result<Value, ClientError> {
        let body = json!({"mode": if now { "now" } else { "graceful" }});
        self.change(thread, "pause", &body, Repeat::Safe).await
    }

    /// All schedules, by name.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn schedules(&self) -> Result<Vec<Value>, ClientError> {
        decode(self.call(Method::GET, &["schedules"], &[], None, Repeat::Safe).await?)
    }

    /// Does something with a schedule: `pause`, `resume`, `fire`.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn schedule(&self, name: &str, what: &str) -> Result<Value, ClientError> {
        let repeat = if what == "fire" { Repeat::Unsent } else { Repeat::Safe };
        Ok(self.call(Method::POST, &["schedules", name, what], &[], None, repeat).await?.body)
    }

    /// Sends a thread a signal; under a key, once however often it is called.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn signal(
        &self,
        thread: &str,
        name: &str,
        payload: &Value,
        key: Option<&str>,
    ) -> Result<Value, ClientError> {
        let repeat = if key.is_some() { Repeat::Safe } else { Repeat::Unsent };
        let path = ["threads", thread, "signals", name];
        Ok(self.call_once(Method::POST, &path, &[], Some(payload), repeat, key).await?.body)
    }

    async fn change(&self, thread: &str, what: &str, body: &Value, repeat: Repeat) -> Result<Value, ClientError> {
        Ok(self.call(Method::POST, &["threads", thread, what], &[], Some(body), repeat).await?.body)
    }
}
