//! The closed set of things that go into a shard and come out of it. Sockets,
//! store, authenticator and other shards are all behind these values, so the
//! simulator and the daemon drive the same code.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

use bytes::Bytes;
use dunlin_base::transport::{CloseCause, NetEvent, Peer};
use dunlin_base::{ConnId, Instant, Message, Repeat, SendBuf, ShardId, StreamId, Text};
use dunlin_store::{Request, StoreDone, StoreOp};

use crate::auth::{AuthAnswer, AuthRequest};

/// Something happened.
#[derive(Debug)]
pub enum Input<'a> {
    /// On a transport of this shard.
    Net(NetEvent<'a>),
    /// Another shard says something. Messages of one shard arrive in the order
    /// in which it sent them.
    Bus {
        /// Who.
        from: ShardId,
        /// What.
        message: BusMessage,
    },
    /// The store answered.
    Store(StoreDone),
    /// The authenticator answered.
    Auth {
        /// The connection that asked.
        conn: ConnId,
        /// The answer.
        answer: AuthAnswer,
    },
}

/// Something is to be done.
#[derive(Debug)]
pub enum Output {
    /// On a transport of this shard.
    Net(NetCommand),
    /// Tell another shard.
    Bus {
        /// Whom.
        to: ShardId,
        /// What.
        message: BusMessage,
    },
    /// Ask the store.
    Store(Request),
    /// Ask the authenticator.
    Auth {
        /// The connection that the answer is for.
        conn: ConnId,
        /// The question.
        request: AuthRequest,
    },
    /// Worth a line in the log.
    Event(Event),
}

/// What a transport is to do.
#[derive(Debug)]
pub enum NetCommand {
    /// Send bytes on a stream.
    Send {
        /// The connection.
        conn: ConnId,
        /// The stream.
        stream: StreamId,
        /// The bytes.
        data: SendBuf,
    },
    /// Nothing more will be sent on this stream.
    FinishStream {
        /// The connection.
        conn: ConnId,
        /// The stream.
        stream: StreamId,
    },
    /// Abandon a stream both ways: RESET_STREAM and STOP_SENDING.
    ResetStream {
        /// The connection.
        conn: ConnId,
        /// The stream.
        stream: StreamId,
        /// Application error code.
        code: u64,
    },
    /// Open a stream; [`OwnedNetEvent::StreamOpened`] answers, in the order in
    /// which streams were asked for.
    OpenStream {
        /// The connection.
        conn: ConnId,
        /// Both sides send on it.
        bidirectional: bool,
    },
    /// Have what is sent on a stream overtake what is sent on streams with a
    /// lower priority; 0 to begin with.
    SetPriority {
        /// The connection.
        conn: ConnId,
        /// The stream.
        stream: StreamId,
        /// Its priority.
        priority: i32,
    },
    /// Keep bytes of different streams in different packets.
    IsolateStreams {
        /// The connection.
        conn: ConnId,
        /// Do, or stop to.
        isolate: bool,
    },
    /// Send small packets twice.
    RepeatPackets {
        /// The connection.
        conn: ConnId,
        /// When.
        repeat: Repeat,
    },
    /// More follows soon what is sent next: a transport that holds the answer
    /// to early data back waits for it, within its bounds.
    ExpectMore {
        /// The connection.
        conn: ConnId,
    },
    /// Send a datagram. One that does not fit, now, goes out on the stream.
    /// Its bytes count until [`OwnedNetEvent::Sent`], at once for a datagram.
    SendDatagram {
        /// The connection.
        conn: ConnId,
        /// The bytes.
        data: Bytes,
        /// Drop it if it has not left by then.
        expires: Instant,
        /// Where it goes otherwise; it must be between two packets.
        fallback: StreamId,
    },
    /// Send what is waiting, then close.
    Close {
        /// The connection.
        conn: ConnId,
        /// QUIC application error code.
        code: u64,
        /// The client said goodbye: what is waiting need not arrive.
        promptly: bool,
    },
    /// Close the connection when nothing arrives for this long.
    SetIdleTimeout {
        /// The connection.
        conn: ConnId,
        /// How long.
        timeout: Duration,
    },
    /// Stop or resume reading, so that the peer has to wait.
    PauseReading {
        /// The connection.
        conn: ConnId,
        /// Stop or resume.
        paused: bool,
    },
}

impl NetCommand {
    /// The connection that the command is for.
    #[must_use]
    pub const fn conn(&self) -> ConnId {
        match self {
            Self::Send { conn, .. }
            | Self::FinishStream { conn, .. }
            | Self::ResetStream { conn, .. }
            | Self::OpenStream { conn, .. }
            | Self::SetPriority { conn, .. }
            | Self::IsolateStreams { conn, .. }
            | Self::RepeatPackets { conn, .. }
            | Self::ExpectMore { conn }
            | Self::SendDatagram { conn, .. }
            | Self::Close { conn, .. }
            | Self::SetIdleTimeout { conn, .. }
            | Self::PauseReading { conn, .. } => *conn,
        }
    }
}

/// A [`NetEvent`] that owns its bytes, on its way to the shard where the
/// session lives.
#[derive(Debug)]
pub enum OwnedNetEvent {
    /// As [`NetEvent::Bytes`].
    Bytes(StreamId, Bytes),
    /// As [`NetEvent::StreamFinished`].
    StreamFinished(StreamId),
    /// As [`NetEvent::StreamReset`].
    StreamReset(StreamId, u64),
    /// As [`NetEvent::Datagram`].
    Datagram(Bytes),
    /// As [`NetEvent::StreamOpened`].
    StreamOpened(Option<StreamId>),
    /// As [`NetEvent::StreamsAvailable`]: whether of the bidirectional kind.
    StreamsAvailable(bool),
    /// As [`NetEvent::StreamDelivered`].
    StreamDelivered(StreamId),
    /// As [`NetEvent::Sent`].
    Sent(usize),
    /// As [`NetEvent::StreamBlocked`].
    StreamBlocked(StreamId, usize),
    /// As [`NetEvent::Migrated`].
    Migrated(SocketAddr),
    /// As [`NetEvent::Closed`].
    Closed(CloseCause),
}

/// What shards say to each other.
#[derive(Debug)]
pub enum BusMessage {
    /// A connection whose session lives with the receiver: its CONNECT and
    /// what came with it. [`BusMessage::Net`] follows, and commands come back
    /// as [`BusMessage::Command`].
    Handover {
        /// The connection.
        conn: ConnId,
        /// Who is there.
        peer: Peer,
        /// Bytes from CONNECT on.
        data: Bytes,
    },
    /// Something happened on a handed-over connection.
    Net {
        /// The connection.
        conn: ConnId,
        /// What.
        event: OwnedNetEvent,
    },
    /// Do this on a connection of yours.
    Command(NetCommand),
    /// The sender's subscriptions changed; answered by
    /// [`BusMessage::InterestNoted`]. Also serves as a barrier: everything
    /// that the receiver said before its answer has arrived then.
    Interest {
        /// Returned in the answer.
        token: u64,
        /// Changes, in order.
        changes: Vec<InterestChange>,
    },
    /// The changes are in force.
    InterestNoted {
        /// Of the request.
        token: u64,
    },
    /// A message that the receiver's sessions want.
    Forward {
        /// What to deliver, and how.
        forward: Forward,
        /// With a token: say [`BusMessage::Prepared`], then wait for
        /// [`BusMessage::Settled`] before durable receivers see it.
        token: Option<u64>,
    },
    /// What must be stored for a forwarded message.
    Prepared {
        /// Of the request.
        token: u64,
        /// Store operations; the publisher's shard writes them in one batch
        /// with its own.
        ops: Vec<StoreOp>,
        /// A queue was full and the policy is to refuse.
        refused: bool,
        /// Shared subscriptions without a member there any more.
        missed: Option<Missed>,
    },
    /// The batch was stored, or the publish is off.
    Settled {
        /// Of the request.
        token: u64,
        /// Stored.
        committed: bool,
    },
    /// Sets or (with an empty payload) removes a retained message; sent by the
    /// topic's owner to all others.
    Retained {
        /// The message.
        message: Arc<Message>,
    },
}

/// What a shard could not deliver because its members of a shared subscription
/// left while the message was on its way.
#[derive(Clone, Debug)]
pub struct Missed {
    /// The message.
    pub message: Arc<Message>,
    /// The `$share` filters.
    pub shares: Vec<Text>,
}

/// One message for another shard.
#[derive(Clone, Debug)]
pub struct Forward {
    /// The message.
    pub message: Arc<Message>,
    /// Session of the publisher, for No Local; 0: none.
    pub origin: u64,
    /// Deliver to all matching plain subscriptions.
    pub plain: bool,
    /// Deliver to one member of each of these `$share` filters.
    pub shares: Vec<Text>,
    /// The receiver owns the topic's retained message and shall set it.
    pub retain: bool,
}

/// A change of what a shard wants to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterestChange {
    /// A plain filter got its first subscriber.
    Add(Text),
    /// A plain filter lost its last subscriber.
    Remove(Text),
    /// A `$share` filter now has this many members there; 0: none.
    Share(Text, u32),
}

/// Something for the log. Client identifiers are personal data: the daemon
/// shows them at DEBUG only.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A client is connected.
    Connected {
        /// The connection.
        conn: ConnId,
        /// Client identifier.
        client_id: Text,
        /// Session Present.
        resumed: bool,
    },
    /// A connection ended.
    Disconnected {
        /// The connection.
        conn: ConnId,
        /// Client identifier, if CONNECT was read.
        client_id: Option<Text>,
        /// Why, for people.
        cause: Text,
    },
    /// The client's address changed under its connection.
    Migrated {
        /// The connection.
        conn: ConnId,
        /// The new address.
        addr: SocketAddr,
    },
    /// The store refused a batch; the publishes in it were refused too.
    StoreFailed(Text),
}
