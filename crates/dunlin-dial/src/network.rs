//! How QUIC behaves towards the network, as options of a link.

use core::time::Duration;

use dunlin_net::{Congestion, QuicTuning, TuningError};

/// How QUIC behaves towards the network. Other transports heed
/// [`NetworkOptions::follow`] only.
///
/// # Examples
/// ```
/// use dunlin_dial::NetworkOptions;
/// use dunlin_net::Congestion;
/// use std::time::Duration;
///
/// let satellite = NetworkOptions::new()
///     .congestion(Congestion::Bbr)
///     .initial_rtt(Duration::from_millis(600));
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct NetworkOptions {
    tuning: QuicTuning,
    /// The application chose the initial round-trip time.
    rtt_chosen: bool,
}

impl NetworkOptions {
    /// CUBIC, 250 ms assumed at first, acknowledgements asked for within 5 ms, a search for larger packets, ECN.
    pub fn new() -> Self {
        Self::default()
    }

    /// Congestion control.
    pub const fn congestion(mut self, congestion: Congestion) -> Self {
        self.tuning.congestion = congestion;
        self
    }

    /// Round-trip time assumed until one is measured, 1 ms to 30 s: when the
    /// first packets are sent again. Also where an earlier connection measured
    /// one and a [`TicketFile`](crate::TicketFile) remembers it.
    pub const fn initial_rtt(mut self, rtt: Duration) -> Self {
        self.tuning.initial_rtt = rtt;
        self.rtt_chosen = true;
        self
    }

    /// Longest that the server is asked to wait before it acknowledges what it
    /// received, 1 ms to 16,383 ms, if it knows how to be asked
    /// (draft-ietf-quic-ack-frequency). What is lost and followed by nothing is
    /// sent again that much later than a round trip and four times its
    /// variation (RFC 9002 section 6.2.1). With more than 25 ms, five packets are
    /// acknowledged together instead of two. Zero: it is not asked, and waits as
    /// long as it wants, mostly 25 ms. Default 5 ms.
    pub const fn ack_delay(mut self, delay: Duration) -> Self {
        self.tuning.ack_delay = if delay.is_zero() { None } else { Some(delay) };
        self
    }

    /// Bytes that may be in flight at first, 2,400 B to 1 GiB.
    pub const fn initial_window(mut self, bytes: u32) -> Self {
        self.tuning.initial_window = Some(bytes);
        self
    }

    /// Whether to search for a larger packet size than 1,200 bytes.
    pub const fn mtu_discovery(mut self, search: bool) -> Self {
        self.tuning.mtu_discovery = search;
        self
    }

    /// Whether a connection moves by itself to another local address when its
    /// own disappears or the system prefers another; over TCP, where it cannot
    /// move, it begins again as soon as its own has disappeared. Default true.
    pub const fn follow(mut self, follow: bool) -> Self {
        self.tuning.follow_network = follow;
        self
    }

    /// Whether to mark packets for explicit congestion notification.
    pub const fn ecn(mut self, mark: bool) -> Self {
        self.tuning.ecn = mark;
        self
    }

    /// Takes new keys after so many packets, 16 or more.
    pub const fn key_update_packets(mut self, packets: u64) -> Self {
        self.tuning.key_update_packets = Some(packets);
        self
    }

    /// Takes new keys after such a time, 1 s or more, when something is sent.
    pub const fn key_update_interval(mut self, interval: Duration) -> Self {
        self.tuning.key_update_interval = Some(interval);
        self
    }

    /// Asks the server for a sign of life after such a silence, 1 s to 1 h; after
    /// three times as long the connection is lost. Default: a silent connection
    /// stays, and the protocol on it has to notice.
    pub const fn keep_alive(mut self, silence: Duration) -> Self {
        self.tuning.keep_alive = Some(silence);
        self
    }

    /// What to assume of the round-trip time, and whether that was chosen.
    pub(crate) const fn assumed_rtt(&self) -> (Duration, bool) {
        (self.tuning.initial_rtt, self.rtt_chosen)
    }

    /// Whether the options are possible.
    ///
    /// # Errors
    /// One is not.
    pub fn check(&self) -> Result<(), TuningError> {
        self.tuning.check()
    }

    pub(crate) fn tuning(&self) -> QuicTuning {
        self.tuning.clone()
    }
}
