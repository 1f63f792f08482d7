//! Questions to JetStream and their answers, in JSON over plain NATS requests. Knows no
//! record.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::sync::Arc;

use async_nats::{Client, RequestErrorKind};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures_util::StreamExt as _;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::limits::{ANSWER_WAIT, LEADER_WAIT, READ_BYTES_MAX, READ_RECORDS_MAX};

/// No such stream.
const NOT_FOUND: u64 = 10_059;

/// No such message.
const NO_MESSAGE: u64 = 10_037;

/// Status of the message that ends a list of messages.
const END_OF_LIST: u16 = 204;

/// An error as JetStream writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct ApiError {
    pub(crate) code: u64,
    #[serde(default)]
    pub(crate) err_code: u64,
    #[serde(default)]
    pub(crate) description: String,
}

impl ApiError {
    /// It says nothing for good: there is no leader, or the server is busy.
    pub(crate) const fn passes(&self) -> bool {
        self.code == 503
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    #[error("no answer: {0}")]
    Silent(String),
    #[error("{} ({})", .0.description, .0.err_code)]
    Refused(ApiError),
    #[error("an answer that cannot be read: {0}")]
    Unreadable(String),
}

impl AskError {
    /// It is worth to ask again.
    pub(crate) const fn passes(&self) -> bool {
        match self {
            Self::Silent(_) => true,
            Self::Refused(error) => error.passes(),
            Self::Unreadable(_) => false,
        }
    }

    pub(crate) const fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused(error) if error.err_code == NOT_FOUND)
    }
}

/// What is known of a stream.
#[derive(Clone, Debug)]
pub(crate) struct StreamInfo {
    /// As the server wrote it: it goes back whole when the subject changes.
    pub(crate) config: Value,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) bytes: u64,
    /// Names of the servers that have a copy; empty where there is no cluster.
    pub(crate) servers: Vec<String>,
}

impl StreamInfo {
    fn new(answer: &Value) -> Self {
        let state = |name: &str| answer["state"][name].as_u64().unwrap_or_default();
        let cluster = &answer["cluster"];
        let replicas = cluster["replicas"].as_array().into_iter().flatten();
        let names = replicas.map(|replica| &replica["name"]);
        Self {
            config: answer["config"].clone(),
            first: state("first_seq"),
            last: state("last_seq"),
            bytes: state("bytes"),
            servers: names
                .chain([&cluster["leader"]])
                .filter_map(|name| name.as_str().map(str::to_owned))
                .collect(),
        }
    }

    /// The one subject that it listens to.
    pub(crate) fn subject(&self) -> Option<&str> {
        match self.config["subjects"].as_array()?.as_slice() {
            [one] => one.as_str(),
            _ => None,
        }
    }

    /// Whether this is of a time before the stream listened to `subject`: a server that
    /// leads the stream since a moment may not know of its last change.
    pub(crate) fn is_before(&self, subject: &str) -> bool {
        let epoch = |subject: &str| {
            let (_, owner) = subject.rsplit_once('.')?;
            owner.split_once('-')?.0.parse::<u64>().ok()
        };
        let seen = self.subject().and_then(epoch);
        matches!((seen, epoch(subject)), (Some(seen), Some(own)) if seen < own)
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.config[name].as_str().unwrap_or_default()
    }
}

/// A message of a stream.
pub(crate) type Stored = (u64, Bytes);

/// The interface of JetStream for one stream.
#[derive(Clone, Debug)]
pub(crate) struct Api {
    pub(crate) client: Client,
    pub(crate) stream: String,
    /// Answers in turn that a leader did not give in time.
    pub(crate) unanswered: Arc<AtomicU32>,
}

impl Api {
    async fn ask(&self, what: &str, question: &Value) -> Result<Value, AskError> {
        let subject = format!("$JS.API.STREAM.{what}.{}", self.stream);
        let answer = self.request(&subject, question).await?;
        let answer: Value = serde_json::from_slice(&answer)
            .map_err(|error| AskError::Unreadable(error.to_string()))?;
        if answer["error"].is_object() {
            let error = ApiError::deserialize(&answer["error"]).unwrap_or_default();
            return Err(AskError::Refused(error));
        }
        Ok(answer)
    }

    async fn request(&self, subject: &str, question: &Value) -> Result<Bytes, AskError> {
        let body = Bytes::from(question.to_string());
        let request = self.client.request(subject.to_owned(), body);
        match timeout(ANSWER_WAIT, request).await {
            Ok(Ok(message)) => Ok(message.payload),
            Ok(Err(error)) if error.kind() == RequestErrorKind::InvalidSubject => {
                Err(AskError::Unreadable(error.to_string()))
            }
            Ok(Err(error)) => Err(AskError::Silent(error.to_string())),
            Err(_) => Err(AskError::Silent("the time is over".to_owned())),
        }
    }

    pub(crate) async fn info(&self) -> Result<StreamInfo, AskError> {
        let answer = self.ask("INFO", &Value::Null).await?;
        Ok(StreamInfo::new(&answer))
    }

    /// The same of a stream that may have no leader at the moment: it is to be asked again.
    /// Each time it waits longer: a leader may be slow.
    pub(crate) async fn info_soon(&self) -> Result<StreamInfo, AskError> {
        let before = self.unanswered.load(Ordering::Relaxed);
        let wait = LEADER_WAIT.saturating_mul(1 + before).min(ANSWER_WAIT);
        let answer = timeout(wait, self.info()).await;
        let unanswered = answer
            .as_ref()
            .map_or_else(|_| before.saturating_add(1), |_| 0);
        self.unanswered.store(unanswered, Ordering::Relaxed);
        answer.unwrap_or_else(|_| Err(AskError::Silent("no leader answers".to_owned())))
    }

    pub(crate) async fn create(
        &self,
        subject: &str,
        replicas: usize,
    ) -> Result<StreamInfo, AskError> {
        let question = json!({
            "name": self.stream,
            "subjects": [subject],
            "retention": "limits",
            "storage": "file",
            "discard": "new",
            "num_replicas": replicas,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_age": 0,
            "allow_direct": true,
            "deny_delete": true,
        });
        self.make(&question).await
    }

    /// Lets the stream listen to this subject and to no other.
    pub(crate) async fn listen_to(
        &self,
        info: &StreamInfo,
        subject: &str,
    ) -> Result<StreamInfo, AskError> {
        self.change(info, "subjects", json!([subject])).await
    }

    /// Changes one value of the configuration.
    pub(crate) async fn change(
        &self,
        info: &StreamInfo,
        name: &str,
        value: Value,
    ) -> Result<StreamInfo, AskError> {
        let mut question = info.config.clone();
        question[name] = value;
        let answer = self.ask("UPDATE", &question).await?;
        Ok(StreamInfo::new(&answer))
    }

    /// Deletes all messages before this one.
    pub(crate) async fn purge_before(&self, seq: u64) -> Result<(), AskError> {
        self.ask("PURGE", &json!({ "seq": seq })).await.map(drop)
    }

    /// Makes a stream.
    pub(crate) async fn make(&self, config: &Value) -> Result<StreamInfo, AskError> {
        let answer = self.ask("CREATE", config).await?;
        Ok(StreamInfo::new(&answer))
    }

    /// The newest message of a subject, as the leader of the stream knows it.
    pub(crate) async fn newest(&self, subject: &str) -> Result<Option<Stored>, AskError> {
        let question = json!({ "last_by_subj": subject });
        let answer = match self.ask("MSG.GET", &question).await {
            Err(AskError::Refused(error)) if error.err_code == NO_MESSAGE => return Ok(None),
            answer => answer?,
        };
        let message = &answer["message"];
        let unreadable = |why: &str| AskError::Unreadable(why.to_owned());
        let seq = message["seq"].as_u64();
        let seq = seq.ok_or_else(|| unreadable("no sequence number"))?;
        let data = message["data"].as_str().unwrap_or_default();
        let data = BASE64.decode(data).map_err(|_| unreadable("no base64"))?;
        Ok(Some((seq, data.into())))
    }

    /// Messages from this one on, in order; one at least, unless there is none.
    pub(crate) async fn read(&self, from: u64) -> Result<Vec<Stored>, AskError> {
        let silent = |error: String| AskError::Silent(error);
        let inbox = self.client.new_inbox();
        let subscribed = self.client.subscribe(inbox.clone()).await;
        let mut answers = subscribed.map_err(|error| silent(error.to_string()))?;
        let question = json!({
            "seq": from, "batch": READ_RECORDS_MAX, "max_bytes": READ_BYTES_MAX,
        });
        let subject = format!("$JS.API.DIRECT.GET.{}", self.stream);
        let body = Bytes::from(question.to_string());
        let asked = self.client.publish_with_reply(subject, inbox, body).await;
        asked.map_err(|error| silent(error.to_string()))?;
        let mut found = Vec::new();
        loop {
            let message = timeout(ANSWER_WAIT, answers.next()).await;
            let message = message.ok().flatten();
            let message = message.ok_or_else(|| silent("the time is over".to_owned()))?;
            match message.status.map(|status| status.as_u16()) {
                None => {}
                Some(END_OF_LIST | 404) => return Ok(found),
                Some(status) => return Err(silent(format!("status {status}"))),
            }
            let headers = message.headers.as_ref();
            let seq = headers.and_then(|headers| headers.get("Nats-Sequence"));
            let seq = seq.and_then(|seq| seq.as_str().parse().ok());
            let seq = seq.ok_or_else(|| AskError::Unreadable("no sequence".to_owned()))?;
            found.push((seq, message.payload));
        }
    }
}

/// Asks until there is an answer that does not pass, or the time is over.
pub(crate) async fn insist<T, F: Future<Output = Result<T, AskError>>>(
    patience: Duration,
    mut ask: impl FnMut() -> F,
) -> Result<T, AskError> {
    let until = tokio::time::Instant::now() + patience;
    loop {
        match ask().await {
            Err(error) if error.passes() && tokio::time::Instant::now() < until => {
                tracing::debug!("NATS: {error}; asking again");
                tokio::time::sleep(crate::limits::ASK_AGAIN).await;
            }
            answer => return answer,
        }
    }
}
