//! The lease of a partition: who should own its log, as one key of a bucket in which a
//! value is forgotten after a while by the server. It is changed by compare-and-set alone.
//! Who owns the log is said by the log.

use async_nats::{HeaderMap, RequestErrorKind, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::timeout;

use crate::api::{Api, AskError};
use crate::config::NatsConfig;
use crate::connect::connect;
use crate::error::OpenError;
use crate::limits::LEASE_ANSWER_WAIT;
use crate::reach::refused;
use crate::reading::PubAck;

/// Refuses a value that does not replace this one.
const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";

/// A value that would not have replaced the one that was expected.
const WRONG_REVISION: u64 = 10_071;

/// Who has the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// The key is gone: who had it renews it no more.
    Gone,
    /// It was given back.
    Free,
    Owner(u64),
}

/// What was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// What the next value has to replace; 0: nothing.
    pub(crate) revision: u64,
    pub(crate) holder: Holder,
}

/// What became of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    At(u64),
    /// Another value is there; or so the server says.
    Refused,
}

/// The key, and the log that it is about. The tests have one without a server.
pub(crate) trait Key {
    async fn read(&self) -> Result<Seen, AskError>;
    /// Replaces the value of a revision; without an owner, the lease is free.
    async fn write(&self, expected: u64, owner: Option<u64>) -> Result<Written, AskError>;
    /// Whether the log listens to this owner.
    async fn is_log_of(&self, owner: u64) -> Result<bool, AskError>;
    /// The lease is being given back: that was sent to the server, and may not be stored
    /// yet. May be dropped and called again.
    async fn hint(&mut self);
    /// Hints are wanted no more.
    fn no_hints(&mut self) {}
}

/// The value of the key.
#[derive(Debug, Serialize, Deserialize)]
struct Value {
    /// In hexadecimal digits; absent: the lease is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
}

fn encode(owner: Option<u64>) -> Bytes {
    let owner = owner.map(|owner| format!("{owner:016x}"));
    json!(Value { owner }).to_string().into()
}

fn decode(bytes: &[u8]) -> Option<Holder> {
    let value: Value = serde_json::from_slice(bytes).ok()?;
    match value.owner {
        None => Some(Holder::Free),
        Some(owner) => u64::from_str_radix(&owner, 16).ok().map(Holder::Owner),
    }
}

/// The key in a bucket of NATS.
pub(crate) struct Bucket {
    bucket: Api,
    log: Api,
    subject: String,
    /// Values as they are written; none where they are not wanted.
    values: Option<Subscriber>,
}

impl Bucket {
    /// Connects, and makes the bucket where there is none. `hints`: they are wanted.
    pub(crate) async fn open(config: &NatsConfig, hints: bool) -> Result<Self, OpenError> {
        let client = connect(&config.servers(&config.urls)).await?;
        let log = Api {
            client: client.clone(),
            stream: config.stream(),
            unanswered: Default::default(),
        };
        let name = config.bucket();
        let subject = config.lease_subject();
        let values = match hints {
            true => {
                let values = client.subscribe(subject.clone()).await;
                Some(values.map_err(|error| OpenError::Server(error.to_string()))?)
            }
            false => None,
        };
        let bucket = Api {
            client,
            stream: format!("KV_{name}"),
            unanswered: Default::default(),
        };
        let wanted = json!({
            "name": bucket.stream,
            "subjects": [format!("$KV.{name}.>")],
            "retention": "limits",
            "storage": "file",
            "discard": "new",
            "num_replicas": config.replicas,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_msgs_per_subject": 1,
            "max_age": u64::try_from(config.lease.as_nanos()).unwrap_or(u64::MAX),
            "allow_direct": true,
            "allow_rollup_hdrs": true,
            "deny_delete": true,
        });
        let found = match bucket.info().await {
            Err(error) if error.is_not_found() => bucket.make(&wanted).await,
            found => found,
        };
        let mut found = found.map_err(|error| refused(&error))?;
        if found.config["max_age"] != wanted["max_age"] && found.config["max_age"] != 0 {
            // It was made with another configuration.
            let age = wanted["max_age"].clone();
            let changed = bucket.change(&found, "max_age", age).await;
            found = changed.map_err(|error| refused(&error))?;
        }
        for key in ["max_age", "max_msgs_per_subject", "subjects"] {
            if found.config[key] != wanted[key] {
                return Err(OpenError::Stream {
                    stream: bucket.stream,
                    why: format!("its {key} is not {}", wanted[key]),
                });
            }
        }
        Ok(Self {
            bucket,
            log,
            subject,
            values,
        })
    }
}

/// No longer than a lease can wait.
async fn soon<T>(answer: impl Future<Output = Result<T, AskError>>) -> Result<T, AskError> {
    let late = |_| Err(AskError::Silent("the time is over".to_owned()));
    timeout(LEASE_ANSWER_WAIT, answer)
        .await
        .unwrap_or_else(late)
}

impl Key for Bucket {
    async fn read(&self) -> Result<Seen, AskError> {
        let Some((revision, value)) = soon(self.bucket.newest(&self.subject)).await? else {
            return Ok(Seen {
                revision: 0,
                holder: Holder::Gone,
            });
        };
        let unreadable = || AskError::Unreadable("it is no lease".to_owned());
        let holder = decode(&value).ok_or_else(unreadable)?;
        Ok(Seen { revision, holder })
    }

    async fn write(&self, expected: u64, owner: Option<u64>) -> Result<Written, AskError> {
        let mut headers = HeaderMap::new();
        headers.insert(EXPECTED, expected.to_string());
        let (subject, value) = (self.subject.clone(), encode(owner));
        let client = &self.bucket.client;
        let request = client.request_with_headers(subject, headers, value);
        let answer = soon(async {
            match request.await {
                Ok(message) => Ok(message.payload),
                Err(error) if error.kind() == RequestErrorKind::InvalidSubject => {
                    Err(AskError::Unreadable(error.to_string()))
                }
                Err(error) => Err(AskError::Silent(error.to_string())),
            }
        });
        let ack: PubAck = serde_json::from_slice(&answer.await?)
            .map_err(|error| AskError::Unreadable(error.to_string()))?;
        match ack.error {
            Some(error) if error.err_code == WRONG_REVISION => Ok(Written::Refused),
            Some(error) => Err(AskError::Refused(error)),
            None => Ok(Written::At(ack.seq)),
        }
    }

    async fn is_log_of(&self, owner: u64) -> Result<bool, AskError> {
        let info = match soon(self.log.info()).await {
            Err(error) if error.is_not_found() => return Ok(false),
            info => info?,
        };
        let end = format!("-{owner:016x}");
        Ok(info
            .subject()
            .is_some_and(|subject| subject.ends_with(&end)))
    }

    async fn hint(&mut self) {
        if let Some(values) = &mut self.values {
            while let Some(value) = values.next().await {
                if decode(&value.payload) == Some(Holder::Free) {
                    return;
                }
            }
        }
        // There are none, or the connection has ended for good.
        core::future::pending().await
    }

    fn no_hints(&mut self) {
        self.values = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back() {
        for owner in [None, Some(0), Some(u64::MAX)] {
            let want = owner.map_or(Holder::Free, Holder::Owner);
            assert_eq!(decode(&encode(owner)), Some(want));
        }
        for wrong in [&b""[..], b"x", b"{\"owner\":\"x\"}", b"{\"owner\":7}"] {
            assert_eq!(decode(wrong), None);
        }
    }
}
