//! The bounds of a client; docs/book/src/limits.md has a line for each.

use core::time::Duration;

use dunlin_amqp::Limits;

/// Links of a client; a further one is refused with `LinkError::TooMany`.
pub(crate) const LINKS_MAX: u32 = 1024;

/// Streams of a client, each an AMQP connection; further links share them.
pub(crate) const STREAMS_MAX: usize = 16;

/// Longest wait for the server to allow another stream; then links share those
/// there are.
pub(crate) const STREAM_WAIT: Duration = Duration::from_secs(1);

/// Messages of one sender that are handed over and have no outcome, by default
/// and at most; `send` waits for room.
pub(crate) const IN_FLIGHT: u32 = 256;
pub(crate) const IN_FLIGHT_MAX: u32 = 4096;

/// Messages that one receiver's server may send ahead of `recv`, by default and
/// at most.
pub(crate) const CREDIT: u32 = 256;
pub(crate) const CREDIT_MAX: u32 = 4096;

/// Bytes of messages that wait for `recv` of one receiver: with more there is
/// no further credit.
pub(crate) const WAITING_BYTES_MAX: u64 = 16 << 20;

/// Messages that the application of one receiver has and has not settled: with
/// more there is no further credit.
pub(crate) const HELD_MAX: usize = 4096;

/// Largest message that is received, by default.
pub(crate) const MESSAGE_BYTES_MAX: u64 = 1 << 20;

/// Bytes handed to the transport that have not left: with more, messages wait.
pub(crate) const BACKLOG_MAX: u64 = 256 << 10;

/// Longest container id and link name.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// Longest end of a connection, after which it is cut.
pub(crate) const CLOSE_MAX: Duration = Duration::from_secs(5);

/// Those of the engine of one connection.
pub(crate) fn engine(frame_bytes: u32, idle: Option<Duration>, opening: Duration) -> Limits {
    Limits {
        frame_bytes_max: frame_bytes,
        // What a server says of itself in `open`.
        first_frame_bytes_max: 16 << 10,
        sessions_max: 1,
        links_max: LINKS_MAX,
        unsettled_received_max: 64 << 10,
        unsettled_sent_max: 64 << 10,
        partial_bytes_max: 64 << 20,
        idle_time_out: idle,
        open_time_out: opening,
        close_time_out: CLOSE_MAX,
        ..Limits::default()
    }
}
