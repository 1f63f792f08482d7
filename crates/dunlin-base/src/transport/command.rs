//! What a connection is to do: [`NetCommand`].

use core::time::Duration;

use bytes::Bytes;

use super::{ConnId, Repeat, StreamId};
use crate::{Instant, SendBuf};

/// Something that one connection is to do. A command for a connection that is
/// gone does nothing.
///
/// # Bounds
/// - A transport takes all bytes of `Send`. What its caller has outstanding is
///   the caller's to bound, by `Sent`; a transport closes a connection that
///   exceeds its backlog limit (`backlog_bytes_max` in `dunlin-net`).
/// - `SendDatagram` goes to a queue with a limit of its own, where the oldest
///   datagram is dropped for the newest.
/// - Each `OpenStream` is answered by exactly one `StreamOpened`, and each
///   `BindChannel` by at most one `ChannelBinding`.
#[derive(Debug)]
pub struct NetCommand {
    /// The connection.
    pub conn: ConnId,
    /// What it is to do.
    pub kind: NetCommandKind,
}

/// What a connection is to do; see [`NetCommand`].
#[derive(Debug)]
pub enum NetCommandKind {
    /// Send bytes on a stream.
    Send {
        /// The stream.
        stream: StreamId,
        /// The bytes.
        data: SendBuf,
    },
    /// Nothing more will be sent on this stream.
    FinishStream {
        /// The stream.
        stream: StreamId,
    },
    /// Abandon a stream both ways: RESET_STREAM and STOP_SENDING.
    ResetStream {
        /// The stream.
        stream: StreamId,
        /// Application error code.
        code: u64,
    },
    /// Open a stream;
    /// [`NetEventKind::StreamOpened`](super::NetEventKind::StreamOpened)
    /// answers, in the order of the requests.
    OpenStream {
        /// Both sides send on it.
        bidirectional: bool,
    },
    /// Have what is sent on a stream overtake what is sent on streams with a
    /// lower priority; 0 to begin with.
    SetPriority {
        /// The stream.
        stream: StreamId,
        /// Its priority.
        priority: i32,
    },
    /// Keep bytes of different streams in different packets.
    IsolateStreams {
        /// Do, or stop to.
        isolate: bool,
    },
    /// Send small packets twice.
    RepeatPackets {
        /// When.
        repeat: Repeat,
    },
    /// Say what an exchange of SASL on this connection is bound by;
    /// [`NetEventKind::ChannelBinding`](super::NetEventKind::ChannelBinding)
    /// answers, once the handshake is complete. A transport keeps it for those
    /// that ask before [`NetCommandKind::Accept`].
    BindChannel,
    /// More follows soon what is sent next: a transport that holds the answer
    /// to early data back waits for it, within its bounds.
    ExpectMore,
    /// Send a datagram. One that does not fit, now, goes out on the stream.
    /// Its bytes count until [`NetEventKind::Sent`](super::NetEventKind::Sent),
    /// at once for a datagram.
    SendDatagram {
        /// The bytes.
        data: Bytes,
        /// Drop it if it has not left by then.
        expires: Instant,
        /// Where it goes otherwise; it must be between two packets.
        fallback: StreamId,
    },
    /// Send what is waiting, then close.
    Close {
        /// QUIC application error code.
        code: u64,
        /// The peer ended the conversation: what is waiting is sent but need
        /// not arrive.
        promptly: bool,
    },
    /// The application knows the peer: bounds for unknown peers do not hold for
    /// it any more.
    Accept,
    /// Close the connection when nothing arrives for this long.
    SetIdleTimeout {
        /// How long.
        timeout: Duration,
    },
    /// Stop or resume reading, so that the peer has to wait.
    PauseReading {
        /// Stop or resume.
        paused: bool,
    },
    /// Stop or resume reading one stream, so that the peer has to wait on it; on
    /// other transports than QUIC as `PauseReading`.
    PauseStream {
        /// The stream.
        stream: StreamId,
        /// Stop or resume.
        paused: bool,
    },
    /// Read control and one other stream only, so that the peer has to wait on
    /// all others; `None`: read all.
    ReadOnly {
        /// The other stream.
        stream: Option<StreamId>,
    },
}

impl NetCommand {
    /// A command for a connection.
    #[must_use]
    pub const fn new(conn: ConnId, kind: NetCommandKind) -> Self {
        Self { conn, kind }
    }
}

impl NetCommandKind {
    /// Bytes carried, for those who bound queues of commands.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        match self {
            Self::Send { data, .. } => data.len(),
            Self::SendDatagram { data, .. } => data.len(),
            _ => 0,
        }
    }
}
