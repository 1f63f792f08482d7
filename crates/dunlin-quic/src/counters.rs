//! What a loop counts, for metrics and tests. A counter that is added to
//! [`Counters`] appears in the broker's metrics by itself.

use core::net::SocketAddr;
use core::time::Duration;

use dunlin_base::transport::Transport;

dunlin_base::totals! {
    /// Totals of one loop since its start.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct Counters {
        /// Connections accepted by listeners.
        pub accepted: u64,
        /// Connections dialled.
        pub dialled: u64,
        /// Handshakes completed, accepted and dialled.
        pub opened: u64,
        /// Connections gone, opened or not.
        pub closed: u64,
        /// Connections over TCP given to another shard.
        pub detached: u64,
        /// Connections over TCP taken from another shard.
        pub attached: u64,
        /// Refused: all connection slots in use.
        pub refused_full: u64,
        /// Refused: too many connections from one address.
        pub refused_per_address: u64,
        /// Refused: too many handshakes from one address in this second.
        pub refused_rate: u64,
        /// Refused: not from a trusted proxy, at a listener that is behind one.
        pub refused_untrusted: u64,
        /// Refused: too many handshakes pending.
        pub refused_pending: u64,
        /// Connections of peers that were not known yet, ended to make room for others.
        pub made_room: u64,
        /// Connections of peers that were not known yet, ended because such peers had sent
        /// too many bytes.
        pub unknown_bytes_exceeded: u64,
        /// Times that a connection was not read because too much waited to leave.
        pub input_held: u64,
        /// Accepting stopped for a while because no file descriptor was left.
        pub accept_exhausted: u64,
        /// QUIC clients asked to prove their address first.
        pub retries_sent: u64,
        /// First packets of QUIC clients dropped because too many waited.
        pub newcomers_dropped: u64,
        /// QUIC connections begun by a client that had proved its address, by
        /// Retry or by a token of an earlier connection.
        pub address_proved: u64,
        /// QUIC clients answered with the versions there are.
        pub versions_sent: u64,
        /// QUIC peers answered that their connection is not known any more.
        pub stateless_resets: u64,
        /// QUIC connections refused without keeping anything, for a forged or
        /// expired proof of address or a malformed first packet.
        pub stateless_refusals: u64,
        /// QUIC connections that took new keys, on our initiative.
        pub key_updates: u64,
        /// Handshakes that did not end in time.
        pub handshake_timeouts: u64,
        /// Clients that completed the handshake and said nothing.
        pub silent_timeouts: u64,
        /// Connections closed because nothing arrived.
        pub idle_timeouts: u64,
        /// Handshakes that failed.
        pub handshake_failures: u64,
        /// Connections aborted because their backlog passed its cap.
        pub backlog_overflows: u64,
        /// Bytes received from streams of TCP.
        pub tcp_bytes_in: u64,
        /// Bytes written to streams of TCP.
        pub tcp_bytes_out: u64,
        /// UDP datagrams received.
        pub datagrams_in: u64,
        /// UDP datagrams sent.
        pub datagrams_out: u64,
        /// UDP datagrams of QUIC connections that the network had marked for congestion (ECN).
        pub ecn_marked_in: u64,
        /// Bytes of UDP payload received.
        pub udp_bytes_in: u64,
        /// Bytes of UDP payload sent.
        pub udp_bytes_out: u64,
        /// System calls that sent datagrams.
        pub udp_send_calls: u64,
        /// Turns of the loop that waited for more datagrams.
        pub turns_gathered: u64,
        /// Datagrams that belong to another shard, here or at another node of a cluster.
        pub datagrams_foreign: u64,
        /// Of these, datagrams dropped because too many waited for other shards.
        pub datagrams_foreign_dropped: u64,
        /// Transmissions given to another node of a cluster, to which the client had sent.
        pub answers_relayed: u64,
        /// Such transmissions dropped because too many waited.
        pub answers_relayed_dropped: u64,
        /// Datagrams that could not be sent and count as lost.
        pub datagrams_unsent: u64,
        /// Datagrams not sent because their address is not proved and has had
        /// three times what came from it.
        pub datagrams_unproved: u64,
        /// Application datagrams (RFC 9221) received.
        pub app_datagrams_in: u64,
        /// Application datagrams sent.
        pub app_datagrams_out: u64,
        /// Application datagrams dropped because newer ones needed their place, or
        /// the path had become too narrow for them.
        pub app_datagrams_dropped: u64,
        /// Application datagrams dropped because they had become too old.
        pub app_datagrams_expired: u64,
        /// Packets of QUIC sent.
        pub quic_packets_out: u64,
        /// Packets of QUIC sent a second time without being lost, as a client
        /// asked for, or because they were alone where packets are lost.
        pub quic_packets_repeated: u64,
        /// Packets of QUIC declared lost.
        pub quic_packets_lost: u64,
        /// Bytes of packets of QUIC declared lost.
        pub quic_lost_bytes: u64,
        /// Reactions of QUIC to loss or to congestion marks (ECN).
        pub quic_congestion_events: u64,
        /// Times that a path of QUIC stopped to carry large packets.
        pub quic_black_holes: u64,
        /// Times that bytes for a stream had to wait because the peer had not read
        /// it, while its connection went on.
        pub quic_streams_blocked: u64,
        /// Handshakes of accepted QUIC connections, by whether they resumed an
        /// earlier session.
        pub quic_handshakes_full: u64,
        /// Handshakes of accepted QUIC connections, by whether they resumed an
        /// earlier session.
        pub quic_handshakes_resumed: u64,
        /// QUIC connections whose peer address changed.
        pub migrations: u64,
        /// Accepted QUIC connections whose early data was taken.
        pub early_data_accepted: u64,
        /// Early data refused: the ticket is not one of ours, or no longer.
        pub early_data_refused_unknown: u64,
        /// Early data refused: the ticket was used before. A replay stopped.
        pub early_data_refused_used: u64,
        /// Early data refused: the ticket is too old.
        pub early_data_refused_expired: u64,
        /// Early data refused: the ticket was issued under other settings.
        pub early_data_refused_settings: u64,
        /// Early data refused: the register of used tickets is behind.
        pub early_data_refused_overflow: u64,
        /// Early data refused by TLS: the client's clock, its cipher suite, its
        /// server name or its key share.
        pub early_data_refused_tls: u64,
        /// Early data refused: it is switched off.
        pub early_data_refused_off: u64,
        /// Connections ended because the use of a ticket could not be kept.
        pub early_data_unkept: u64,
        /// Session tickets given to QUIC clients.
        pub tickets_issued: u64,
        /// Session tickets given up while good, for want of room.
        pub tickets_evicted: u64,
        /// Dialled QUIC connections whose early data the server took.
        pub early_data_sent: u64,
        /// Dialled QUIC connections whose early data the server refused, and
        /// which sent it again.
        pub early_data_resent: u64,
        /// New addresses of QUIC peers that were given up before they were
        /// proved.
        pub migrations_unproved: u64,
        /// QUIC connections that moved to an address that had as many as are
        /// allowed; they stay.
        pub migrations_over_limit: u64,
        /// Times that a dialled QUIC connection moved to another local
        /// address.
        pub moves: u64,
        /// Moves given up because no answer came over the new path.
        pub moves_failed: u64,
    }
}

/// What is known of one connection.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ConnStats {
    /// How it is connected.
    pub transport: Transport,
    /// Address of the peer at this moment.
    pub addr: SocketAddr,
    /// Accepted by a listener; else dialled.
    pub accepted: bool,
    /// Application protocol negotiated by ALPN, if any.
    pub protocol: Option<Vec<u8>>,
    /// Name of the cipher suite, where the TLS library tells.
    pub cipher_suite: Option<&'static str>,
    /// Name of the key exchange group, where the TLS library tells.
    pub key_exchange: Option<&'static str>,
    /// The handshake resumed an earlier session, where that is known.
    pub resumed: Option<bool>,
    /// Bytes given to `send` that have not left.
    pub backlog_bytes: usize,
    /// What only QUIC has.
    pub quic: Option<QuicStats>,
}

/// What is known of a QUIC connection and its current path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuicStats {
    /// Bytes arrived or left as 0-RTT data.
    pub early_data: bool,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Smallest round-trip time seen on the path.
    pub rtt_min: Duration,
    /// Congestion window in bytes.
    pub congestion_window: u64,
    /// Reactions to loss or to congestion marks (ECN).
    pub congestion_events: u64,
    /// Packets sent on the path.
    pub packets_out: u64,
    /// Packets of the path declared lost.
    pub lost_packets: u64,
    /// Bytes of those.
    pub lost_bytes: u64,
    /// Path MTU in bytes.
    pub mtu: u16,
    /// Times that the path stopped to carry large packets.
    pub black_holes: u64,
    /// UDP datagrams sent.
    pub udp_out: u64,
    /// UDP datagrams received.
    pub udp_in: u64,
    /// Bytes of UDP payload sent.
    pub udp_bytes_out: u64,
    /// Bytes of UDP payload received.
    pub udp_bytes_in: u64,
    /// Our packets are marked as ECN-capable: neither is that switched off,
    /// nor has the path failed its validation (RFC 9000 section 13.4.2).
    pub ecn: bool,
    /// UDP datagrams received that the network had marked for congestion.
    pub ecn_marked_in: u64,
    /// DATAGRAM frames sent (RFC 9221).
    pub datagrams_out: u64,
    /// DATAGRAM frames received (RFC 9221).
    pub datagrams_in: u64,
    /// Streams of the peer that are open, bidirectional and unidirectional.
    pub streams_peer: (u64, u64),
    /// Streams that we may still send on.
    pub streams_sending: u64,
    /// Times that the peer's address changed.
    pub migrations: u64,
}

impl ConnStats {
    /// What is known of every connection.
    #[must_use]
    pub const fn new(
        transport: Transport,
        addr: SocketAddr,
        accepted: bool,
        backlog_bytes: usize,
    ) -> Self {
        Self {
            transport,
            addr,
            accepted,
            protocol: None,
            cipher_suite: None,
            key_exchange: None,
            resumed: None,
            backlog_bytes,
            quic: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_summed_and_exported_by_its_own_line() {
        let one = Counters {
            accepted: 1,
            migrations: 2,
            ..Counters::default()
        };
        let two = one.plus(&one);
        assert_eq!((two.accepted, two.migrations), (2, 4));
        let mut seen = Vec::new();
        two.each(|name, help, value| {
            assert!(
                help.ends_with('.') && !help.starts_with(' '),
                "{name}: {help}"
            );
            if value > 0 {
                seen.push((name, help, value));
            }
        });
        let first = ("accepted", "Connections accepted by listeners.", 2);
        assert_eq!(seen.first(), Some(&first));
        assert_eq!(seen.len(), 2);
    }
}
