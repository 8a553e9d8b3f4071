//! The events of a thread, read as they come.

use std::time::Duration;

use reqwest::header::ACCEPT;
use reqwest::{Response, StatusCode};
use serde_json::Value;

use super::{Client, ClientError, read_reply};

/// As good as no limit to how long a stream may last.
const FOR_EVER: Duration = Duration::from_hours(24 * 365);

/// How long a stream may be silent: the server says every 15 seconds that it is
/// there.
const SILENCE: Duration = Duration::from_secs(45);

/// A thread that is watched. Lost connections are taken up where they broke
/// off, so that each event comes once.
pub struct Watch<'c> {
    client: &'c Client,
    thread: String,
    modes: Option<String>,
    follow: bool,
    after: i64,
    open: Option<Stream>,
    /// Attempts since the server last said something.
    attempts: usize,
}

struct Stream {
    response: Response,
    lines: Lines,
}

impl Client {
    /// Watches a thread: events after number `after`, of the kinds `modes` (with
    /// commas between), until it rests, or with `follow` until it has ended.
    #[must_use]
    pub fn watch(&self, thread: &str, modes: Option<&str>, after: i64, follow: bool) -> Watch<'_> {
        let (thread, modes) = (thread.to_owned(), modes.map(str::to_owned));
        Watch { client: self, thread, modes, follow, after, open: None, attempts: 0 }
    }
}

impl Watch<'_> {
    /// The next event, `None` when the watch is over.
    ///
    /// # Errors
    /// As [`ClientError`]; a lost connection only after several attempts.
    pub async fn next(&mut self) -> Result<Option<Value>, ClientError> {
        loop {
            let Some(stream) = &mut self.open else {
                match self.connect().await? {
                    Some(stream) => self.open = Some(stream),
                    None => return Ok(None),
                }
                continue;
            };
            if let Some(event) = stream.lines.next() {
                self.after = event["id"].as_i64().unwrap_or(self.after);
                return Ok(Some(event));
            }
            match tokio::time::timeout(SILENCE, stream.response.chunk()).await {
                Ok(Ok(Some(bytes))) => {
                    self.attempts = 0;
                    stream.lines.push(&bytes);
                }
                // At its end too: the server says whether there is more.
                Ok(Ok(None) | Err(_)) | Err(_) => self.open = None,
            }
        }
    }

    async fn connect(&mut self) -> Result<Option<Stream>, ClientError> {
        let follow = self.follow.to_string();
        let mut query = vec![("follow", follow.as_str())];
        query.extend(self.modes.as_deref().map(|modes| ("modes", modes)));
        let url = self.client.url(&["threads", &self.thread, "events"], &query);
        loop {
            if let Some(before) = self.attempts.checked_sub(1) {
                let pause = self.client.pauses.get(before).or(self.client.pauses.last());
                tokio::time::sleep(Duration::from_millis(pause.copied().unwrap_or_default())).await;
            }
            self.attempts += 1;
            let mut request = self.client.http.get(url.clone()).header(ACCEPT, "text/event-stream");
            request = request.header("last-event-id", self.after).timeout(FOR_EVER);
            if let Some(token) = &self.client.token {
                request = request.bearer_auth(token.expose());
            }
            let problem = match request.send().await {
                Ok(response) if response.status() == StatusCode::OK => {
                    return Ok(Some(Stream { response, lines: Lines::default() }));
                }
                Ok(response) if response.status() == StatusCode::NO_CONTENT => return Ok(None),
                Ok(response) => {
                    let status = response.status();
                    let text = response.text().await.unwrap_or_default();
                    let refused = read_reply(status, &text).err();
                    let unexpected =
                        || ClientError::Unexpected { status: status.as_u16(), what: "no stream of events".to_owned() };
                    let refused = refused.unwrap_or_else(unexpected);
                    if !status.is_server_error() {
                        return Err(refused);
                    }
                    refused
                }
                Err(error) => self.client.failed(error, super::Repeat::Safe),
            };
            if self.attempts > self.client.pauses.len() {
                return Err(problem);
            }
        }
    }
}

/// Takes events out of the text of a stream. Only their data is looked at: the
/// rest of an event is in it too.
#[derive(Debug, Default)]
struct Lines {
    text: Vec<u8>,
    data: String,
}

impl Lines {
    fn push(&mut self, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
    }

    fn next(&mut self) -> Option<Value> {
        while let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.text.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches(['\n', '\r']);
            if line.is_empty() {
                // Anything else than an event, a comment say, has no data.
                if let Ok(event) = serde_json::from_str(&std::mem::take(&mut self.data)) {
                    return Some(event);
                }
            } else if let Some(data) = line.strip_prefix("data:") {
                self.data.push_str(data.strip_prefix(' ').unwrap_or(data));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_come_out_whole_however_they_arrive() {
        let text = ": alive\n\nid: 1\nevent: custom\ndata: {\"id\":1,\"word\":\"ä\"}\n\n:\n\nid:2\r\ndata:{\"id\":2}\r\n\r\ndata: {\"id\"";
        for size in [1, 2, 7, 1000] {
            let mut lines = Lines::default();
            let mut events = Vec::new();
            for part in text.as_bytes().chunks(size) {
                lines.push(part);
                events.extend(std::iter::from_fn(|| lines.next()));
            }
            assert_eq!(events, [json!({"id": 1, "word": "ä"}), json!({"id": 2})], "{size}");
        }
    }
}
