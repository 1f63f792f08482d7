//! Claims, and reading the log up to one. Knows no copy.

use core::time::Duration;

use async_nats::{HeaderMap, RequestErrorKind};
use bytes::Bytes;
use dunlin_store::Batch;
use dunlin_store::codec::{DecodeError, Reader, decode_ops};
use serde::Deserialize;
use tokio::time::{Instant, sleep, timeout};

use crate::api::{Api, ApiError, AskError};
use crate::chain::{Chain, Found, LogError};
use crate::limits::{ANSWER_WAIT, ASK_AGAIN};
use crate::record::{self, Head, Kind};

/// Refuses a record that is not the one after this.
pub(crate) const EXPECTED: &str = "Nats-Expected-Last-Sequence";

/// A stream refused a record that was not the next.
pub(crate) const WRONG_PLACE: u64 = 10_071;

/// What a stream answers when it has stored a message, or why it has not.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct PubAck {
    #[serde(default)]
    pub(crate) seq: u64,
    #[serde(default)]
    pub(crate) error: Option<ApiError>,
}

/// Writes that older epochs and terms count no more; its sequence number.
pub(crate) async fn claim(
    api: &Api,
    subject: &str,
    epoch: u64,
    term: u32,
    owner: u64,
) -> Result<u64, AskError> {
    let head = Head {
        kind: Kind::Claim,
        flags: 0,
        epoch,
        term,
        number: 0,
        before: 0,
        base: owner,
    };
    let (bytes, _) = record::encode(&head, b"");
    let request =
        api.client
            .request_with_headers(subject.to_owned(), HeaderMap::new(), Bytes::from(bytes));
    let answer = match timeout(ANSWER_WAIT, request).await {
        Ok(Ok(message)) => message.payload,
        Ok(Err(error)) if error.kind() == RequestErrorKind::InvalidSubject => {
            return Err(AskError::Unreadable(error.to_string()));
        }
        Ok(Err(error)) => return Err(AskError::Silent(error.to_string())),
        Err(_) => return Err(AskError::Silent("the time is over".to_owned())),
    };
    let ack: PubAck =
        serde_json::from_slice(&answer).map_err(|error| AskError::Unreadable(error.to_string()))?;
    match ack.error {
        Some(error) => Err(AskError::Refused(error)),
        None if ack.seq == 0 => Err(AskError::Unreadable("no sequence number".to_owned())),
        None => Ok(ack.seq),
    }
}

/// Why reading ended early.
#[derive(Debug)]
pub(crate) enum ReadError<E> {
    Ask(AskError),
    Log(LogError),
    Caller(E),
}

/// Reads on up to the message `until`, which is there, and hands out what was found and
/// the number of messages that are left of one answer of the server.
pub(crate) async fn read_until<E>(
    api: &Api,
    chain: &mut Chain,
    until: u64,
    patience: Duration,
    mut each: impl FnMut(Found, &Chain, bool) -> Result<(), E>,
) -> Result<(), ReadError<E>> {
    let mut give_up = Instant::now() + patience;
    while chain.next <= until {
        let messages = match api.read(chain.next).await {
            Ok(messages) => messages,
            Err(error) if error.passes() && Instant::now() < give_up => {
                sleep(ASK_AGAIN).await;
                continue;
            }
            Err(error) => return Err(ReadError::Ask(error)),
        };
        // The server that answered may not have it yet.
        if messages.is_empty() {
            if Instant::now() >= give_up {
                return Err(ReadError::Log(LogError::Missing { seq: chain.next }));
            }
            sleep(ASK_AGAIN).await;
            continue;
        }
        give_up = Instant::now() + patience;
        let mut wanted = messages.iter().filter(|(seq, _)| *seq <= until).peekable();
        if wanted.peek().is_none() {
            return Err(ReadError::Log(LogError::Missing { seq: chain.next }));
        }
        while let Some((seq, bytes)) = wanted.next() {
            let found = chain.take(*seq, bytes).map_err(ReadError::Log)?;
            let last = wanted.peek().is_none();
            each(found, chain, last).map_err(ReadError::Caller)?;
        }
    }
    Ok(())
}

/// The batches of a body.
pub(crate) fn batches(body: &[u8]) -> Result<Vec<Batch>, DecodeError> {
    let mut r = Reader::new(body);
    let mut batches = Vec::new();
    while !r.rest().is_empty() {
        batches.push(Batch {
            token: 0,
            ops: decode_ops(&mut r)?,
        });
    }
    Ok(batches)
}
