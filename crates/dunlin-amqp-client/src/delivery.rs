//! A message that came, and what the application says of it.

use core::fmt;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_amqp::codec::{
    BodyKind, DecodeError, DeliveryState, Error, Header, Message as Sections, Modified, Outcome,
    Properties, Rejected, Symbol, TransactionalState, Value, condition,
};
use dunlin_amqp::{State, Tag};

use crate::command::{Command, LinkKey, Received, Settle};
use crate::settlement::Settlement;
use crate::shared::Shared;

/// A message that came, until the application has settled it. One that is
/// dropped stays with the sender as unsettled until the link ends.
pub struct Delivery {
    received: Received,
    link: LinkKey,
    client: Arc<Shared>,
}

impl Delivery {
    pub(crate) fn new(received: Received, link: LinkKey, client: Arc<Shared>) -> Self {
        Self {
            received,
            link,
            client,
        }
    }

    /// All sections, as they came.
    #[must_use]
    pub fn raw(&self) -> &Bytes {
        &self.received.bytes
    }

    /// Message format, 0 for AMQP.
    #[must_use]
    pub fn format(&self) -> u32 {
        self.received.format
    }

    /// The delivery-tag.
    #[must_use]
    pub fn tag(&self) -> &[u8] {
        self.received.tag.as_bytes()
    }

    /// The sender has settled it: nothing is to be said of it.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.received.settled
    }

    /// An earlier process of the application has had it, with this tag.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        self.received.resumed
    }

    /// Where the sections are, to be read one by one.
    ///
    /// # Errors
    /// The bytes are no message of AMQP.
    pub fn sections(&self) -> Result<Sections<'_>, DecodeError> {
        Sections::scan(&self.received.bytes)
    }

    /// The header; the usual one if there is none or it is wrong.
    #[must_use]
    pub fn header(&self) -> Header {
        let header = self.sections().ok().and_then(|it| it.header().ok());
        header.flatten().unwrap_or_default()
    }

    /// The properties; none if there are none or they are wrong.
    #[must_use]
    pub fn properties(&self) -> Properties<'_> {
        let properties = self.sections().ok().and_then(|it| it.properties().ok());
        properties.flatten().unwrap_or_default()
    }

    /// An application property.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<Value<'_>> {
        let map = self.sections().ok()?.application_properties().ok()??;
        map.get(name)
    }

    /// The bytes of the body: of data sections, of a string, of a binary; the
    /// encoded sections of any other body.
    #[must_use]
    pub fn payload(&self) -> Bytes {
        let raw = &self.received.bytes;
        let Ok(sections) = self.sections() else {
            return raw.clone();
        };
        let body = sections.body();
        if body.kind == BodyKind::Data {
            let mut parts = body.data();
            let first = parts.next().unwrap_or_default();
            let rest: Vec<&[u8]> = parts.collect();
            return match rest.is_empty() {
                true => raw.slice_ref(first),
                false => Bytes::from([&[first][..], &rest[..]].concat().concat()),
            };
        }
        match body.values().next() {
            Some(Ok(Value::String(text))) => raw.slice_ref(text.as_bytes()),
            Some(Ok(Value::Binary(bytes))) => raw.slice_ref(bytes),
            _ => raw.slice_ref(body.bytes),
        }
    }

    /// Takes the message over. The future may be dropped: it tells when the
    /// sender knows.
    pub fn accept(&self) -> Settlement {
        self.settle(&DeliveryState::ACCEPTED)
    }

    /// The message is invalid; `condition` is a symbol such as
    /// `amqp:not-allowed`.
    pub fn reject(&self, condition: &str, description: &str) -> Settlement {
        let condition = Symbol::new(condition).unwrap_or(condition::INVALID_FIELD);
        let rejected = Rejected {
            error: Some(Error::new(condition, description)),
        };
        self.settle(&DeliveryState::Outcome(Outcome::Rejected(rejected)))
    }

    /// Leaves the message to others.
    pub fn release(&self) -> Settlement {
        self.settle(&DeliveryState::RELEASED)
    }

    /// Leaves the message to others and says why: it counts as failed, or is not
    /// for this receiver.
    pub fn modify(&self, delivery_failed: bool, undeliverable_here: bool) -> Settlement {
        self.settle(&DeliveryState::Outcome(Outcome::Modified(Modified {
            delivery_failed,
            undeliverable_here,
            message_annotations: None,
        })))
    }

    /// Takes the message over if the transaction is committed.
    pub(crate) fn accept_in(&self, txn_id: &[u8]) -> Settlement {
        self.settle(&DeliveryState::Transactional(TransactionalState {
            txn_id,
            outcome: Some(Outcome::Accepted),
        }))
    }

    /// [`Delivery::accept`] of which nothing more is heard.
    pub(crate) fn accept_now(&self) {
        drop(self.accept());
    }

    fn settle(&self, state: &DeliveryState<'_>) -> Settlement {
        let (done, settlement) = Settlement::new();
        if self.received.settled {
            let _ = done.send(Ok(()));
            return settlement;
        }
        // What this crate builds can be encoded; a reason that is too long cannot.
        let state = State::new(state).unwrap_or(State::Released);
        let settle = Settle {
            tag: self.received.tag,
            serial: self.received.serial,
            state,
            done,
        };
        self.client.push(Command::Settle(self.link, settle));
        settlement
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tag: &Tag = &self.received.tag;
        f.debug_struct("Delivery")
            .field("tag", tag)
            .field("bytes", &self.received.bytes.len())
            .finish_non_exhaustive()
    }
}
