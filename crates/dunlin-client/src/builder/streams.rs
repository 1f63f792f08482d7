//! Streams of a QUIC connection, as options.

use core::time::Duration;

use dunlin_base::Repeat;

use super::Builder;
use crate::arguments::TextArg;
use crate::streams::{Priority, StreamDialect, StreamPolicy, TOPICS_MAX};

/// Options that are on or off.
macro_rules! switches {
    ($($(#[$doc:meta])* $name:ident => $field:ident;)*) => {
        /// Options of streams that are on or off; all are off by default.
        impl Builder {
            $($(#[$doc])*
            pub fn $name(mut self, on: bool) -> Self {
                self.options.streams.$field = on;
                self
            })*
        }
    };
}

switches! {
    /// Keeps bytes of different streams in different packets, so that a lost
    /// packet holds up one topic only. Costs packets.
    isolate_streams => isolate;

    /// Sends messages of QoS 0 in datagrams (RFC 9221) where the server takes
    /// them and they fit, and takes datagrams from the server. They may be
    /// lost and come in any order, and are dropped when they are older than
    /// [`Builder::max_age`], or one second.
    datagrams => datagrams;

    /// Lets a server that knows how deliver each topic on a stream of its own,
    /// so that a lost packet holds up its topic only. Dunlin does.
    delivery_streams => deliveries;
}

/// Streams of a QUIC connection. On other transports these options change
/// nothing but the order in which messages leave.
impl Builder {
    /// How messages are spread over the streams of a QUIC connection. Default:
    /// all on one ([`StreamPolicy::Single`]).
    pub fn streams(mut self, policy: StreamPolicy) -> Self {
        self.options.streams.policy = policy;
        self
    }

    /// What kind of stream carries messages besides the first one.
    pub fn stream_dialect(mut self, dialect: StreamDialect) -> Self {
        self.options.streams.dialect = dialect;
        self
    }

    /// How many topics may have a stream of their own at a time, 1 to 1,024.
    /// Default 32. When there are more, the one that rested longest gives its
    /// stream to the next; if none rests, the others share the first stream.
    pub fn topic_streams(mut self, topics: u16) -> Self {
        self.options.streams.topics_max = topics.clamp(1, TOPICS_MAX);
        self
    }

    /// Sends messages of topics that match a filter before or after others: in
    /// this client's queue on every transport, and among the streams of a QUIC
    /// connection. The first filter that matches decides.
    pub fn priority(mut self, filter: impl Into<TextArg>, priority: Priority) -> Self {
        let priority = (filter.into(), priority);
        self.options.streams.priorities.push(priority);
        self
    }

    /// Gives up messages of QoS 0 that have not arrived after this time, with
    /// [`PublishError::Obsolete`](crate::PublishError::Obsolete). They are
    /// dropped from this client's queue on every transport. Where messages
    /// have streams of their own, those on their way are given up, too: their
    /// stream is reset. To learn what has arrived, messages of one topic then
    /// go in trains: what is published while the last train is on its way
    /// waits and forms the next.
    pub fn max_age(mut self, max_age: Duration) -> Self {
        self.options.streams.max_age = Some(max_age);
        self
    }

    /// When small packets are sent twice, a few milliseconds apart; a server
    /// that knows how is asked to do so, too. A single lost packet then holds
    /// up nothing at all. Costs up to twice the bytes; packets that do not fit
    /// the congestion window together with their copies are sent once.
    /// Default: [`Repeat::Lone`] with [`StreamPolicy::Single`], else
    /// [`Repeat::OnLoss`]; both cost nothing where nothing is lost.
    pub fn repeat_packets(mut self, repeat: Repeat) -> Self {
        self.options.streams.repeat.set(repeat);
        self
    }
}
