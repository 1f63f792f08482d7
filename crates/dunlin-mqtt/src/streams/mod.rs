//! Topics to streams: which stream of a QUIC connection a message goes on, so
//! that topics do not hold each other up and each keeps its order. Decisions
//! only: no transport, no packets, no messages.
//!
//! [`publish`] plans for a client, [`delivery`] for a broker. Both keep topics in
//! the same bounded table and give up first what was used least recently. They
//! are two because what is known differs, and with it what a topic waits for:
//!
//! - A client's server may be any. Its streams are read at its own pace and no
//!   stream is agreed, so that a topic has one to itself or is on the first one,
//!   and changes its place only when nothing of it can still be on its way: the
//!   topic waits, and its messages stay in the client's queue, where they may
//!   become obsolete.
//! - A broker's client has asked for a number of streams and its transport says
//!   what has arrived. Topics share streams, and a stream that is not there yet
//!   holds bytes that are encoded and counted already; no topic waits.

pub mod delivery;
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
    /// until the one before has arrived.
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
