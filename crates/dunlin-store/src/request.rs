//! Requests to a store and its answers. Nothing here says how or where a back
//! end keeps things.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_base::{Instant, Message, QoS, ShardId, Text};

use crate::limits::{BATCH_OPS_MAX, LOAD_SEQS_MAX, META_VALUE_BYTES_MAX, SHARDS_MAX, TARGETS_MAX};

/// A session in the store; unique among the sessions that it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey(pub u64);

/// Place of a queued message in the order of all queued messages.
///
/// Shards allocate it as a Lamport counter times [`SHARDS_MAX`] plus their
/// number, so it is unique and rises almost monotonically over all shards:
/// what a store needs to append instead of inserting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl Seq {
    /// The sequence number of this counter value on this shard.
    #[must_use]
    pub const fn new(counter: u64, shard: ShardId) -> Self {
        Self(counter.wrapping_mul(SHARDS_MAX) | shard.0 as u64)
    }

    /// The Lamport counter. A shard that sees a larger one than its own, or
    /// starts after a recovery, goes on from there.
    #[must_use]
    pub const fn counter(self) -> u64 {
        self.0 / SHARDS_MAX
    }

    /// The shard that allocated it.
    #[must_use]
    pub const fn shard(self) -> ShardId {
        ShardId((self.0 % SHARDS_MAX) as u16)
    }
}

/// Everything small that is known of a session, written whole at each change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionRecord {
    /// Client identifier.
    pub client_id: Text,
    /// Protocol level of its last CONNECT (4: MQTT 3.1.1, 5: MQTT 5.0; other
    /// numbers are for other protocols).
    pub version: u8,
    /// Session Expiry Interval in seconds; `u32::MAX`: never.
    pub expiry_interval_secs: u32,
    /// When its network connection ended; `None` while it is connected, and
    /// so after the broker was killed.
    pub disconnected_at: Option<Instant>,
    /// The will that is published unless the client takes it back.
    pub will: Option<StoredWill>,
    /// User name it authenticated as: who its messages are checked against.
    pub user_name: Option<Text>,
    /// The user name, if a password file vouches for it; empty: there is no
    /// name, or a certificate has it, or a record of version 1 does not say.
    pub owner: Text,
    /// What its protocol keeps of it besides, in a form of the submitter.
    pub options: Box<[u8]>,
}

/// A will and when it is due.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredWill {
    /// What is published; `expires` is not set, because that counts from the
    /// publication.
    pub message: Message,
    /// Will Delay Interval in seconds.
    pub delay_secs: u32,
    /// Message Expiry Interval of the will in seconds.
    pub message_expiry_secs: Option<u32>,
}

/// A session that a message is queued for, and how it is delivered there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The session; at most once per message.
    pub session: SessionKey,
    /// QoS of the delivery.
    pub qos: QoS,
    /// RETAIN flag of the delivery.
    pub retain: bool,
    /// Subscription identifiers, in the order they are sent.
    pub identifiers: Vec<u32>,
    /// The full `$share/…` filter that it came through.
    pub shared: Option<Text>,
    /// Attempts to deliver it there that failed.
    pub failed: u16,
    /// Its priority there, where that is not the usual one.
    pub priority: Option<u8>,
    /// It is kept back there until then.
    pub not_before: Option<Instant>,
    /// What its receivers there have added to it, in a form of its protocol.
    pub added: Option<Arc<[u8]>>,
}

impl Target {
    /// A plain delivery at this QoS.
    #[must_use]
    pub const fn new(session: SessionKey, qos: QoS) -> Self {
        Self {
            session,
            qos,
            retain: false,
            identifiers: Vec::new(),
            shared: None,
            failed: 0,
            priority: None,
            not_before: None,
            added: None,
        }
    }
}

/// Where an outgoing QoS 1 or 2 delivery stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InflightState {
    /// PUBLISH sent, its acknowledgement is due.
    Published,
    /// PUBREC received, PUBCOMP is due; the message is no longer needed.
    Released,
}

/// One change. Operations on a session that does not exist (any more) have no
/// effect: another shard may have deleted it while this one was on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreOp {
    /// Creates a session or replaces its record.
    PutSession {
        /// The session.
        key: SessionKey,
        /// Its record.
        record: SessionRecord,
    },
    /// Deletes a session and everything that belongs to it: subscriptions,
    /// in-flight and inbound ids, its place in queued messages.
    DeleteSession {
        /// The session.
        key: SessionKey,
    },
    /// Creates a subscription or replaces its options.
    PutSubscription {
        /// The session.
        key: SessionKey,
        /// The filter as subscribed, with any `$share/NAME/`.
        filter: Text,
        /// Subscription options byte of MQTT 5.0 section 3.8.3.1.
        options: u8,
        /// Subscription identifier.
        identifier: Option<u32>,
    },
    /// Deletes a subscription.
    DeleteSubscription {
        /// The session.
        key: SessionKey,
        /// The filter as subscribed.
        filter: Text,
    },
    /// Queues a message for sessions. A `seq` that is still stored keeps its
    /// message and gains (or replaces) these targets.
    Enqueue {
        /// Its place in the order.
        seq: Seq,
        /// The message.
        message: Arc<Message>,
        /// For whom; at most [`TARGETS_MAX`].
        targets: Vec<Target>,
    },
    /// The message is acknowledged or dropped for this session; it goes with
    /// its last target.
    Dequeue {
        /// The message.
        seq: Seq,
        /// The session.
        session: SessionKey,
    },
    /// Binds a packet id to an outgoing delivery, or moves it on.
    PutInflight {
        /// The session.
        session: SessionKey,
        /// The packet id.
        packet_id: u16,
        /// The message.
        seq: Seq,
        /// Where it stands.
        state: InflightState,
    },
    /// Frees a packet id. The message itself needs a `Dequeue`.
    DeleteInflight {
        /// The session.
        session: SessionKey,
        /// The packet id.
        packet_id: u16,
    },
    /// Remembers the id of an incoming QoS 2 message until it is released.
    PutInbound {
        /// The session.
        session: SessionKey,
        /// The packet id.
        packet_id: u16,
    },
    /// Forgets the id of an incoming QoS 2 message.
    DeleteInbound {
        /// The session.
        session: SessionKey,
        /// The packet id.
        packet_id: u16,
    },
    /// Sets the retained message of its topic.
    PutRetained {
        /// The message.
        message: Arc<Message>,
    },
    /// Deletes the retained message of a topic.
    DeleteRetained {
        /// The topic.
        topic: Text,
    },
    /// Sets a small named value.
    PutMeta {
        /// Its name.
        key: Text,
        /// At most [`META_VALUE_BYTES_MAX`] bytes.
        value: Bytes,
    },
    /// Deletes a named value.
    DeleteMeta {
        /// Its name.
        key: Text,
    },
}

/// Changes that happen together or not at all. Batches of one submitter are
/// applied in the order of submission.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Returned in the answer; the submitter's own numbering.
    pub token: u64,
    /// The changes, in order; at most [`BATCH_OPS_MAX`].
    pub ops: Vec<StoreOp>,
}

impl StoreOp {
    /// Bytes of messages and values that it counts for.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Enqueue { message, .. } | Self::PutRetained { message } => message.cost(),
            Self::PutMeta { value, .. } => value.len(),
            _ => 0,
        }
    }
}

impl Batch {
    /// Bytes of messages and values that its operations count for.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.ops.iter().map(StoreOp::bytes).sum()
    }

    /// Checks the limits that hold for every back end.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] with the limit's name.
    pub fn check(&self) -> Result<(), StoreError> {
        if self.ops.len() > BATCH_OPS_MAX {
            return Err(StoreError::TooLarge("operations in a batch"));
        }
        for op in &self.ops {
            match op {
                StoreOp::PutMeta { value, .. } if value.len() > META_VALUE_BYTES_MAX => {
                    return Err(StoreError::TooLarge("bytes of a named value"));
                }
                StoreOp::Enqueue { targets, .. } if targets.len() > TARGETS_MAX => {
                    return Err(StoreError::TooLarge("targets of a message"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// What a shard asks of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Apply; answered by `Committed` or `Failed`.
    Write(Batch),
    /// Read queued messages, seeing what the same submitter wrote before, and
    /// perhaps what it wrote soon after; answered by `Loaded` or `Failed`.
    Load {
        /// Returned in the answer.
        token: u64,
        /// At most [`LOAD_SEQS_MAX`], in the order wanted.
        seqs: Vec<Seq>,
    },
    /// Make everything submitted before survive a power cut with every
    /// durability; answered by `Committed` or `Failed`.
    Flush {
        /// Returned in the answer.
        token: u64,
    },
}

impl Request {
    /// The number that the answer will carry.
    #[must_use]
    pub const fn token(&self) -> u64 {
        match self {
            Self::Write(batch) => batch.token,
            Self::Load { token, .. } | Self::Flush { token } => *token,
        }
    }

    /// Checks the limits that hold for every back end.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] with the limit's name.
    pub fn check(&self) -> Result<(), StoreError> {
        match self {
            Self::Write(batch) => batch.check(),
            Self::Load { seqs, .. } if seqs.len() > LOAD_SEQS_MAX => {
                Err(StoreError::TooLarge("messages in a load"))
            }
            Self::Load { .. } | Self::Flush { .. } => Ok(()),
        }
    }
}

/// A queued message as loaded; `None`: not stored.
pub type LoadedMessage = (Seq, Option<Arc<Message>>);

/// What a store answers: exactly once for each request that it took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreDone {
    /// The batch is as durable as the store was configured to make it.
    Committed {
        /// Of the request.
        token: u64,
    },
    /// The store cannot vouch for the batch: a restart finds all of it or
    /// nothing of it. A batch over a limit leaves nothing.
    Failed {
        /// Of the request.
        token: u64,
        /// Why.
        error: StoreError,
    },
    /// The messages asked for, in the order asked; `None`: not stored.
    Loaded {
        /// Of the request.
        token: u64,
        /// One pair for each `seq` asked for.
        messages: Vec<LoadedMessage>,
    },
}

impl StoreDone {
    /// The number that the request carried.
    #[must_use]
    pub const fn token(&self) -> u64 {
        match self {
            Self::Committed { token } | Self::Failed { token, .. } | Self::Loaded { token, .. } => {
                *token
            }
        }
    }
}

/// Why a store could not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No space is left where the store lives; requests that need none still
    /// work.
    #[error("the disk is full")]
    DiskFull,
    /// Reading or writing failed; the text is for people.
    #[error("the store cannot be read or written: {0}")]
    Io(Text),
    /// What was read is not what was written; the text is for people.
    #[error("the store is damaged: {0}")]
    Corrupt(Text),
    /// The request is over a limit of [`crate::limits`]; names what of it.
    #[error("too many {0}")]
    TooLarge(&'static str),
    /// The store was closed before it came to the request.
    #[error("the store is closed")]
    Closed,
    /// This owner of the store acknowledges nothing any more; the text is for people.
    #[error("the store is given up: {0}")]
    GivenUp(Text),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_carry_counter_and_shard() {
        let seq = Seq::new(12, ShardId(65_535));
        assert_eq!((seq.counter(), seq.shard()), (12, ShardId(65_535)));
        assert!(seq < Seq::new(13, ShardId(0)));
    }
}
