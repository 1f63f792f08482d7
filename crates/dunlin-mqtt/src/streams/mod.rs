//! Topics to streams: which stream of a QUIC connection a message goes on, so
//! that topics do not hold each other up and each keeps its order. Decisions
//! only: no transport, no packets, no messages.
//!
//! [`publish`] plans for a client, [`delivery`] for a broker. Both keep topics in
//! the same bounded table (`topics`) and give up first what was used least recently. The
//! machines above it are two, because no question has the same answer on both sides:
//!
//! | question | client | broker |
//! |---|---|---|
//! | who agreed to streams | nothing is agreed: any server may refuse them at any time | the client, in CONNECT, with their number |
//! | what a stream belongs to | one topic, or one message | a lane, which up to [`delivery::TOPICS_PER_LANE`] topics share, and others by hash |
//! | a topic without a stream | goes on control, and is remembered there: 1,024 topics | shares a lane; none is remembered |
//! | what waits | the topic: its messages stay in the queue, where they may become obsolete | bytes: a lane without its stream holds packets that are encoded and counted |
//! | when a topic may change its stream | when the server has read the old one to its end: an end of its own, the last acknowledgement, or a second of silence | when the transport has delivered it |
//! | no stream is left | 200 ms of waiting, then control or another topic's stream | lanes are shared until the client allows more |
//! | who decides about the end of a stream | this side: after each message, each batch, or for a topic that is new | this side when the table is full, or the client |
//! | what it must know of messages | QoS, acknowledgements, when they become obsolete | their priority |
//!
//! One machine for both would be the sum of them: lanes with one topic and no sharing
//! for the client, topics that never wait and timers that never run for the broker.

pub mod delivery;
pub mod option;
pub mod publish;
mod sent;
mod topics;

/// How messages are spread over the streams of a QUIC connection. On other
/// transports everything goes one after the other.
///
/// Messages of one topic always arrive in order, with every policy, except
/// with [`StreamPolicy::PerPublishUnordered`]. Among topics there is an order
/// only with [`StreamPolicy::Single`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamPolicy {
    /// All on one stream, which every server understands. Default.
    #[default]
    Single,
    /// A stream for each topic, so that a lost packet holds up its topic only.
    PerTopic,
    /// A stream for each message. The next message of the same topic waits
    /// until the one before has arrived. A server that works on each stream
    /// by itself can still mix messages of QoS 0.
    PerPublish,
    /// A stream for each message, and none waits: messages of one topic may
    /// overtake each other.
    PerPublishUnordered,
    /// As [`StreamPolicy::PerTopic`] when the server says that it takes such
    /// streams, and from the second topic on; else as
    /// [`StreamPolicy::Single`].
    Auto,
}

impl StreamPolicy {
    /// Whether each message has a stream of its own.
    const fn is_per_publish(self) -> bool {
        matches!(self, Self::PerPublish | Self::PerPublishUnordered)
    }
}

/// What kind of stream carries messages besides the first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamDialect {
    /// Bidirectional, acknowledgements come back on the same stream: Dunlin
    /// and EMQX. Default.
    #[default]
    Bidirectional,
    /// Unidirectional, acknowledgements come on the first stream: Dunlin and
    /// the brokers of the `mqtt5` crate.
    Unidirectional,
}
