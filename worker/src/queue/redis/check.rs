//! What a Redis should be told apart by before it is trusted with a queue.

use redis::aio::MultiplexedConnection;

use super::Redis;

impl Redis {
    /// Says loudly what is wrong with this Redis as a carrier. Asked again with
    /// each connection of the relay: a restart may change it.
    pub(super) async fn check(&self, connection: &mut MultiplexedConnection) {
        let told: Result<String, _> = redis::cmd("INFO").query_async(connection).await;
        match told {
            Ok(info) => {
                for warning in warnings(&info) {
                    tracing::error!(redis = self.shown, "{warning}");
                }
            }
            // Somebody may not be allowed to ask.
            Err(error) => tracing::debug!(redis = self.shown, %error, "Redis does not tell how it is set up"),
        }
    }
}

/// What is wrong, by what `INFO` tells.
fn warnings(info: &str) -> Vec<&'static str> {
    let told = |key: &str| {
        let value = info.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        value.map(str::trim).unwrap_or_default()
    };
    let mut warnings = Vec::new();
    // Nothing here expires, so only policies for all keys touch it.
    if told("maxmemory_policy").starts_with("allkeys") {
        warnings.push(
            "this Redis throws keys away when its memory is full (maxmemory-policy): messages get lost, and their work \
             waits until it is looked for; set maxmemory-policy to noeviction",
        );
    }
    if told("cluster_enabled") == "1" {
        warnings.push(
            "this Redis is a cluster, which cannot carry the queue: its keys would lie on several nodes; name a single \
             Redis in queue.url",
        );
    }
    if told("role") == "slave" {
        warnings.push("this Redis is a replica, which takes no messages; name the one it follows in queue.url");
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_loses_messages_is_warned_of() {
        let fine =
            "# Server\r\nredis_version:7.0.15\r\nrole:master\r\nmaxmemory_policy:noeviction\r\ncluster_enabled:0\r\n";
        assert!(warnings(fine).is_empty());
        assert!(warnings("maxmemory_policy:volatile-lru\r\n").is_empty());
        assert!(warnings("").is_empty());
        for (line, word) in [
            ("maxmemory_policy:allkeys-lru\r\n", "noeviction"),
            ("cluster_enabled:1\r\n", "cluster"),
            ("role:slave\r\n", "replica"),
        ] {
            let said = warnings(line);
            assert!(said.len() == 1 && said[0].contains(word), "{line}: {said:?}");
        }
    }
}
