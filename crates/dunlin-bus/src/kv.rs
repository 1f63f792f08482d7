//! The bucket of the nodes: a stream with one message a key, written by compare-and-set, whose
//! messages end by themselves. Spoken to in JetStream's JSON over plain NATS requests. Knows
//! keys and values, no node.

use core::time::Duration;

use async_nats::{Client, HeaderMap, Request, RequestErrorKind};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::error::JoinError;
use crate::limits::{ANSWER_WAIT, ASK_AGAIN, ENTRY_BYTES_MAX, MARK_TTL, NODES_MAX};

/// No such stream.
const NO_STREAM: u64 = 10_059;

/// A stream of this name is there, and is another one.
const OTHER_STREAM: u64 = 10_058;

/// No message has that subject.
const NO_MESSAGE: u64 = 10_037;

/// The last message of the subject is not the one that was expected.
const WRONG_LAST: [u64; 2] = [10_071, 10_164];

/// Status of the message that ends a list of messages, and of an empty list.
const END_OF_LIST: [u16; 2] = [204, 404];

/// Why there is no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum AskError {
    /// It is not known what became of it.
    #[error("no answer: {0}")]
    Silent(String),
    #[error("{text} ({code})")]
    Refused { code: u64, text: String },
}

impl AskError {
    /// The entry was changed meanwhile.
    pub(crate) fn is_wrong_last(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if WRONG_LAST.contains(code))
    }

    fn is(&self, wanted: u64) -> bool {
        matches!(self, Self::Refused { code, .. } if *code == wanted)
    }
}

/// A key as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) key: String,
    pub(crate) revision: u64,
    /// `None`: the mark of one that ended.
    pub(crate) value: Option<Bytes>,
}

/// A bucket.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    client: Client,
    name: String,
}

impl Bucket {
    pub(crate) fn new(client: Client, name: String) -> Self {
        Self { client, name }
    }

    fn stream(&self) -> String {
        format!("KV_{}", self.name)
    }

    fn subject(&self, key: &str) -> String {
        format!("$KV.{}.{key}", self.name)
    }

    async fn request(&self, subject: String, request: Request) -> Result<Bytes, AskError> {
        let silent = |error: String| AskError::Silent(error);
        // The time goes for a server that cannot be written to as well.
        match timeout(ANSWER_WAIT, self.client.send_request(subject, request)).await {
            Ok(Ok(message)) => Ok(message.payload),
            Ok(Err(error)) if error.kind() == RequestErrorKind::NoResponders => {
                Err(silent("nothing listens there".to_owned()))
            }
            Ok(Err(error)) => Err(silent(error.to_string())),
            Err(_) => Err(silent("the time is over".to_owned())),
        }
    }

    async fn ask(&self, subject: String, request: Request) -> Result<Value, AskError> {
        let answer = self.request(subject, request).await?;
        let answer: Value = serde_json::from_slice(&answer)
            .map_err(|error| AskError::Silent(format!("an answer that cannot be read: {error}")))?;
        let error = &answer["error"];
        if error["code"].as_u64() == Some(503) {
            return Err(AskError::Silent("there is no leader".to_owned()));
        }
        if error.is_object() {
            return Err(AskError::Refused {
                code: error["err_code"].as_u64().unwrap_or_default(),
                text: error["description"].as_str().unwrap_or_default().to_owned(),
            });
        }
        Ok(answer)
    }

    async fn api(&self, what: &str, question: &Value) -> Result<Value, AskError> {
        let subject = format!("$JS.API.STREAM.{what}.{}", self.stream());
        let body = Bytes::from(question.to_string());
        self.ask(subject, Request::new().payload(body)).await
    }

    /// Makes the bucket if there is none, and looks whether it is as it has to be.
    pub(crate) async fn ensure(
        &self,
        replicas: usize,
        patience: Duration,
    ) -> Result<(), JoinError> {
        let question = json!({
            "name": self.stream(),
            "subjects": [self.subject(">")],
            "retention": "limits",
            "storage": "file",
            "discard": "new",
            "num_replicas": replicas,
            "max_msgs_per_subject": 1,
            "max_msg_size": ENTRY_BYTES_MAX,
            "allow_direct": true,
            "allow_rollup_hdrs": true,
            "deny_delete": true,
            "allow_msg_ttl": true,
            "subject_delete_marker_ttl": u64::try_from(MARK_TTL.as_nanos()).unwrap_or(u64::MAX),
        });
        let until = tokio::time::Instant::now() + patience;
        loop {
            let answer = match self.api("INFO", &Value::Null).await {
                Err(error) if error.is(NO_STREAM) => self.api("CREATE", &question).await,
                answer => answer,
            };
            match answer {
                Ok(info) => return self.check(&info["config"], replicas),
                // Another node has made it meanwhile.
                Err(error) if error.is(OTHER_STREAM) => {}
                Err(AskError::Silent(why)) if tokio::time::Instant::now() < until => {
                    tracing::debug!("the bucket of the nodes: {why}; asking again");
                }
                Err(error) => return Err(JoinError::Server(error.to_string())),
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    fn check(&self, config: &Value, replicas: usize) -> Result<(), JoinError> {
        let wanted = u64::try_from(replicas).unwrap_or(u64::MAX);
        let why = if config["num_replicas"].as_u64().unwrap_or(1) != wanted {
            "it has another number of replicas than is configured"
        } else if config["storage"] != "file" {
            "it is not kept in files"
        } else if config["max_msgs_per_subject"] != 1 {
            "it keeps more than one value a key"
        } else if config["allow_msg_ttl"] != true {
            "its values do not end by themselves"
        } else if config["allow_direct"] != true {
            "its values cannot be read directly"
        } else if config["subjects"] != json!([self.subject(">")]) {
            "it listens to other subjects"
        } else {
            return Ok(());
        };
        Err(JoinError::Bucket {
            bucket: self.name.clone(),
            why: why.to_owned(),
        })
    }

    async fn write(&self, key: &str, request: Request) -> Result<u64, AskError> {
        let answer = self.ask(self.subject(key), request).await?;
        let revision = answer["seq"].as_u64();
        revision.ok_or_else(|| AskError::Silent("an answer without a number".to_owned()))
    }

    /// Writes a value that ends after `ttl`, if the key was changed last at `revision`, where
    /// 0 is never. Gives the new revision.
    pub(crate) async fn put(
        &self,
        key: &str,
        value: Bytes,
        revision: u64,
        ttl: Duration,
    ) -> Result<u64, AskError> {
        let headers = headers(revision, ttl);
        let request = Request::new().headers(headers).payload(value);
        self.write(key, request).await
    }

    /// Ends a value, if the key was changed last at `revision`.
    pub(crate) async fn delete(&self, key: &str, revision: u64) -> Result<u64, AskError> {
        let mut headers = headers(revision, MARK_TTL);
        headers.insert("KV-Operation", "DEL");
        let request = Request::new().headers(headers).payload(Bytes::new());
        self.write(key, request).await
    }

    /// One key, as the leader of the bucket knows it.
    pub(crate) async fn get(&self, key: &str) -> Result<Option<Item>, AskError> {
        let question = json!({ "last_by_subj": self.subject(key) });
        let answer = match self.api("MSG.GET", &question).await {
            Err(error) if error.is(NO_MESSAGE) => return Ok(None),
            answer => answer?,
        };
        let message = &answer["message"];
        let decoded = |name: &str| STANDARD.decode(message[name].as_str().unwrap_or_default());
        let headers = decoded("hdrs").unwrap_or_default();
        let headers = String::from_utf8_lossy(&headers);
        let is_mark = headers.contains("KV-Operation:") || headers.contains("Nats-Marker-Reason:");
        let unreadable = || AskError::Silent("a message that cannot be read".to_owned());
        let value = decoded("data").map_err(|_| unreadable())?;
        Ok(Some(Item {
            key: key.to_owned(),
            revision: message["seq"].as_u64().ok_or_else(unreadable)?,
            value: (!is_mark).then(|| value.into()),
        }))
    }

    /// All keys, as one of the servers with a copy knows them, and the last change that it
    /// knows.
    pub(crate) async fn list(&self) -> Result<(Vec<Item>, u64), AskError> {
        let silent = |error: String| AskError::Silent(error);
        let asking = async {
            let inbox = self.client.new_inbox();
            let subscribed = self.client.subscribe(inbox.clone()).await;
            let answers = subscribed.map_err(|error| silent(error.to_string()))?;
            let question = json!({ "multi_last": [self.subject(">")] });
            let subject = format!("$JS.API.DIRECT.GET.{}", self.stream());
            let body = Bytes::from(question.to_string());
            let asked = self.client.publish_with_reply(subject, inbox, body).await;
            asked.map_err(|error| silent(error.to_string()))?;
            Ok(answers)
        };
        let over = || silent("the time is over".to_owned());
        let mut answers = timeout(ANSWER_WAIT, asking).await.map_err(|_| over())??;
        let prefix = self.subject("");
        let mut found = Vec::new();
        loop {
            let message = timeout(ANSWER_WAIT, answers.next()).await;
            let message = message.ok().flatten().ok_or_else(over)?;
            let header = |name: &str| message.headers.as_ref()?.get(name).map(|v| v.as_str());
            let number = |name: &str| header(name).and_then(|text| text.parse().ok());
            match message.status.map(|status| status.as_u16()) {
                None => {}
                Some(status) if END_OF_LIST.contains(&status) => {
                    let highest = found.iter().map(|item: &Item| item.revision).max();
                    let up_to = number("Nats-UpTo-Sequence").or(highest);
                    return Ok((found, up_to.unwrap_or_default()));
                }
                Some(status) => return Err(silent(format!("status {status}"))),
            }
            let key = header("Nats-Subject").and_then(|subject| subject.strip_prefix(&prefix));
            let (Some(key), Some(revision)) = (key, number("Nats-Sequence")) else {
                continue;
            };
            let is_mark =
                header("KV-Operation").is_some() || header("Nats-Marker-Reason").is_some();
            found.push(Item {
                key: key.to_owned(),
                revision,
                value: (!is_mark).then(|| message.payload.clone()),
            });
            if found.len() > 2 * usize::from(NODES_MAX) {
                return Err(silent("there are other keys in it".to_owned()));
            }
        }
    }
}

fn headers(revision: u64, ttl: Duration) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(
        "Nats-Expected-Last-Subject-Sequence",
        revision.to_string().as_str(),
    );
    headers.insert("Nats-TTL", format!("{}s", ttl.as_secs()).as_str());
    headers
}
