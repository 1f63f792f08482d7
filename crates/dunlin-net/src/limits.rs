//! Limits and deadlines of a loop: every one that an operator may want to change
//! is in [`NetLimits`].

use core::time::Duration;

use dunlin_quic::QuicLimits;

use crate::slots::SLOTS_MAX;

/// When a QUIC client must prove its address before anything is kept for it,
/// at the cost of a round trip (Retry, RFC 9000 section 8.1.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetryMode {
    /// Never. Forged addresses can use up the limits of those they belong to.
    Never,
    /// When [`NetLimits::quic_retry_pending`] handshakes are going on, or when
    /// a limit by address comes near and the address is not proved.
    #[default]
    UnderLoad,
    /// Always, unless it has a token from an earlier connection.
    Always,
}

/// Limits and deadlines of one loop.
///
/// Worst-case memory of a TCP connection is
/// [`backlog_bytes_max`](Self::backlog_bytes_max); of a QUIC connection that
/// plus `quic_send_window`, `quic_receive_window`, and an eighth of
/// `quic_stream_receive_window` for each stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NetLimits {
    /// Accepted connections at most, of all loops with the same
    /// [`NetShared`], and dialled ones of each. Default 1,048,576, which is
    /// also the most that one loop can hold.
    pub connections_max: usize,
    /// Connections from one IPv4 address, or one IPv6 /64, at most, over all
    /// loops with the same [`NetShared`]; 0: no limit (default).
    pub connections_per_address_max: u32,
    /// New connections from one IPv4 address, or one IPv6 /64, per second at
    /// most, counted likewise; 0: no limit (default).
    pub handshakes_per_address_per_second: u32,
    /// Peers at most, all transports together, that have not completed their
    /// handshake or are not accepted by the application, counted likewise. The
    /// oldest of the address that has the most makes room for a newcomer from
    /// another; a silent one does for one from its own. Default 8,192.
    pub handshakes_pending_max: usize,
    /// Bytes that peers may have sent before the application accepts them, all
    /// together, counted likewise; who exceeds it is closed. Default 64 MiB.
    pub unknown_bytes_max: usize,
    /// Those of one IPv4 address, or one IPv6 /64, at one loop. Default 16 MiB.
    pub unknown_bytes_per_address_max: usize,
    /// When a QUIC client must first prove its address. Default
    /// [`RetryMode::UnderLoad`].
    pub quic_retry: RetryMode,
    /// Pending handshakes, counted likewise, from which on it must under load.
    /// Default 1,024.
    pub quic_retry_pending: usize,
    /// Address tokens that a QUIC client is given for later connections.
    /// Default 1.
    pub quic_tokens: u32,
    /// How long such a token is good; zero: not at all. Default 7 days.
    pub quic_token_lifetime: Duration,
    /// Time for a handshake: TCP connect, TLS, WebSocket or QUIC. Default 10 s.
    pub handshake_timeout: Duration,
    /// Time in which an accepted connection must say something after its
    /// handshake. Default 10 s.
    pub first_bytes_timeout: Duration,
    /// Idle timeout of a connection until `set_idle_timeout`, and its maximum;
    /// also QUIC's `max_idle_timeout`, which cannot be raised later. Default
    /// 98,303 s: one and a half times 65,535 s.
    pub idle_timeout_max: Duration,
    /// Time in which a closing connection may still flush. Default 5 s.
    pub close_linger: Duration,
    /// Time in which a peer that ended its side may still read. Default 10 s.
    pub half_close_linger: Duration,
    /// Bytes waiting to leave on one connection, beyond which it is aborted.
    /// The caller's own bound should be well below. Default 64 MiB.
    pub backlog_bytes_max: usize,
    /// Bytes waiting to leave on one accepted connection, beyond which it is not
    /// read until half of them have left. Default 4 MiB.
    pub unread_answers_bytes_max: usize,
    /// Bytes read from one connection before others get a turn. Default
    /// 256 KiB.
    pub read_budget_bytes: usize,
    /// Connections accepted from one listener before others get a turn.
    /// Default 64.
    pub accept_budget: usize,
    /// Bytes of a WebSocket upgrade request or answer. Default 8 KiB.
    pub ws_handshake_bytes_max: usize,
    /// Bytes of one WebSocket message, summed over its fragments. Default
    /// 256 MiB + 5.
    pub ws_message_bytes_max: u64,
    /// Bidirectional streams a QUIC peer may have open, once it uses the 10
    /// that it may open at first. Default 64.
    pub quic_bidi_streams: u32,
    /// Unidirectional streams a QUIC peer may have open, once it uses the 3
    /// that it may open at first. Default 128.
    pub quic_uni_streams: u32,
    /// Bytes a QUIC peer may send ahead of us on a connection. Default
    /// 256 KiB.
    pub quic_receive_window: u32,
    /// Bytes a QUIC peer may send ahead of us on a stream. Default 128 KiB. A client
    /// has an eighth of it at first, and while more than two streams besides control
    /// are open.
    pub quic_stream_receive_window: u32,
    /// Unacknowledged bytes kept for a QUIC connection. Default 256 KiB.
    pub quic_send_window: u32,
    /// Bytes of received QUIC datagrams (RFC 9221) kept until they are read;
    /// 0: peers learn that none are taken, and none can be sent. Default
    /// 64 KiB.
    pub quic_datagram_receive_bytes: u32,
    /// Bytes of QUIC datagrams that wait to be sent on a connection; the
    /// oldest make room for new ones. Default 64 KiB.
    pub quic_datagram_queue_bytes: usize,
    /// Time in which a server must answer over a new path before a dialled
    /// QUIC connection moves to it. Default 3 s.
    pub quic_probe_timeout: Duration,
    /// How long a turn of the loop waits for more datagrams before it reads, if so
    /// many have come within the last millisecond that another is to be expected
    /// meanwhile; at most 1 ms. Zero (default): not at all.
    pub gather: Duration,
    /// Receive and send buffers asked of the kernel for UDP sockets. Default
    /// 2 MiB.
    pub udp_buffer_bytes: usize,
}

impl NetLimits {
    /// Whether connections are counted by address.
    pub(crate) const fn counts_addresses(&self) -> bool {
        self.connections_per_address_max > 0
    }

    /// Those of QUIC connections.
    pub(crate) const fn of_quic(&self) -> QuicLimits {
        QuicLimits {
            bidi_streams: self.quic_bidi_streams,
            uni_streams: self.quic_uni_streams,
            receive_window: self.quic_receive_window,
            stream_receive_window: self.quic_stream_receive_window,
            send_window: self.quic_send_window,
            datagram_receive_bytes: self.quic_datagram_receive_bytes,
            datagram_queue_bytes: self.quic_datagram_queue_bytes,
            tokens: self.quic_tokens,
            token_lifetime: self.quic_token_lifetime,
            idle_timeout_max: self.idle_timeout_max,
            first_bytes_timeout: self.first_bytes_timeout,
            close_linger: self.close_linger,
            read_budget_bytes: self.read_budget_bytes,
            backlog_bytes_max: self.backlog_bytes_max,
            unread_answers_bytes_max: self.unread_answers_bytes_max,
        }
    }
}

impl Default for NetLimits {
    fn default() -> Self {
        Self {
            connections_max: SLOTS_MAX,
            connections_per_address_max: 0,
            handshakes_per_address_per_second: 0,
            handshakes_pending_max: 8192,
            unknown_bytes_max: 64 << 20,
            unknown_bytes_per_address_max: 16 << 20,
            quic_retry: RetryMode::UnderLoad,
            quic_retry_pending: 1024,
            quic_tokens: 1,
            quic_token_lifetime: Duration::from_secs(7 * 24 * 3600),
            handshake_timeout: Duration::from_secs(10),
            first_bytes_timeout: Duration::from_secs(10),
            idle_timeout_max: Duration::from_secs(98_303),
            close_linger: Duration::from_secs(5),
            half_close_linger: Duration::from_secs(10),
            backlog_bytes_max: 64 << 20,
            unread_answers_bytes_max: 4 << 20,
            read_budget_bytes: 256 << 10,
            accept_budget: 64,
            ws_handshake_bytes_max: 8 << 10,
            ws_message_bytes_max: (256 << 20) + 5,
            quic_bidi_streams: 64,
            quic_uni_streams: 128,
            quic_receive_window: 256 << 10,
            quic_stream_receive_window: 128 << 10,
            quic_send_window: 256 << 10,
            quic_datagram_receive_bytes: 64 << 10,
            quic_datagram_queue_bytes: 64 << 10,
            quic_probe_timeout: Duration::from_secs(3),
            gather: Duration::ZERO,
            udp_buffer_bytes: 2 << 20,
        }
    }
}
