//! The bounds of one connection.

use core::time::Duration;

/// Longest name of a link. A longer one ends the session with
/// `amqp:resource-limit-exceeded`.
pub(crate) const LINK_NAME_BYTES_MAX: usize = 1024;

/// Challenges of one SASL exchange; after them it fails.
pub(crate) const SASL_ROUNDS_MAX: u8 = 8;

/// States of one delivery that a peer may say before it settles it and that the
/// driver hears of; later ones, and all that follow an outcome, are passed over.
pub(crate) const STATES_MAX: u8 = 16;

/// Runs of dispositions that are gathered before they are written.
pub(crate) const DISPOSITION_RUNS_MAX: usize = 64;

/// Shortest idle-time-out of a peer that is obeyed; a shorter one closes the
/// connection with `amqp:not-allowed`.
pub(crate) const IDLE_TIME_OUT_MIN: Duration = Duration::from_millis(100);

/// Every bound of a connection, and what happens when it is reached. Those with
/// a field of a frame are announced to the peer.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// `max-frame-size`: a larger frame closes the connection,
    /// `amqp:connection:framing-error`.
    pub frame_bytes_max: u32,
    /// The largest frame before `open` came whole; the same.
    pub first_frame_bytes_max: u32,
    /// The largest SASL frame; the exchange fails.
    pub sasl_frame_bytes_max: u32,
    /// Bytes that are kept while the driver decides about SASL or `open`; the
    /// connection closes, `amqp:resource-limit-exceeded`.
    pub waiting_bytes_max: usize,
    /// Sessions, as `channel-max` + 1; a higher channel closes the connection,
    /// `amqp:connection:framing-error`.
    pub sessions_max: u16,
    /// Links of a session, as `handle-max` + 1; a higher handle closes the
    /// connection, `amqp:connection:framing-error`.
    pub links_max: u32,
    /// `incoming-window`, in transfer frames; more end the session,
    /// `amqp:session:window-violation`.
    pub incoming_window: u32,
    /// Unsettled deliveries of a session that were received; more end the
    /// session, `amqp:resource-limit-exceeded`.
    pub unsettled_received_max: usize,
    /// Unsettled deliveries of a session that were sent; more are refused with
    /// [`crate::SendError::Unsettled`].
    pub unsettled_sent_max: usize,
    /// Bytes of all messages of the connection that have not come whole; the
    /// link that exceeds it is detached, `amqp:resource-limit-exceeded`.
    pub partial_bytes_max: usize,
    /// Time without a frame after which the connection is closed,
    /// `amqp:resource-limit-exceeded`; half of it is announced as
    /// `idle-time-out`.
    pub idle_time_out: Option<Duration>,
    /// Time from the first byte to `open` of both sides; the connection ends.
    pub open_time_out: Duration,
    /// Time for the peer to answer `close`; the connection ends.
    pub close_time_out: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes_max: 64 * 1024,
            first_frame_bytes_max: 512,
            sasl_frame_bytes_max: 4096,
            waiting_bytes_max: 16 * 1024,
            sessions_max: 64,
            links_max: 256,
            incoming_window: 2048,
            unsettled_received_max: 8192,
            unsettled_sent_max: 8192,
            partial_bytes_max: 16 * 1024 * 1024,
            idle_time_out: Some(Duration::from_secs(60)),
            open_time_out: Duration::from_secs(10),
            close_time_out: Duration::from_secs(5),
        }
    }
}
