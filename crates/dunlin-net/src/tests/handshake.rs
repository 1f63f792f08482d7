//! Proof of address, versions, keys, ciphers, restarts: what happens around a
//! QUIC handshake.

use core::net::IpAddr;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::certs::{certs, client_builder, dial_to, listen_on, server_options};
use super::raw::{Raw, first_datagram};
use super::*;
use crate::{
    AddressTokens, Cipher, Congestion, Group, NetShared, QuicTuning, RetryMode, ServerTls,
    TlsPolicy,
};

fn listen() -> ListenerConfig {
    listen_on(Transport::Quic)
}

fn dial(addr: SocketAddr) -> DialConfig {
    dial_to(Transport::Quic, addr)
}

fn always_retry() -> NetLimits {
    NetLimits {
        quic_retry: RetryMode::Always,
        ..NetLimits::default()
    }
}

/// Tokens that the test can look at, keep and give again.
#[derive(Debug, Default)]
struct Tokens {
    given: Mutex<Vec<Bytes>>,
    to_take: Mutex<VecDeque<Bytes>>,
}

impl AddressTokens for Tokens {
    fn insert(&self, server_name: &str, token: Bytes) {
        assert_eq!(server_name, "localhost");
        self.given.lock().unwrap().push(token);
    }

    fn take(&self, _: &str) -> Option<Bytes> {
        self.to_take.lock().unwrap().pop_front()
    }
}

/// A client that shows its tokens, and a server.
struct Visit {
    pair: Pair,
    config: DialConfig,
    tokens: Arc<Tokens>,
}

impl Visit {
    fn new(server: Side) -> Self {
        let tokens = Arc::new(Tokens::default());
        let tls = client_builder().address_tokens(Arc::clone(&tokens) as _);
        let mut pair = Pair {
            client: Side::new(NetLimits::default()),
            server,
        };
        let addr = pair.server.net.listen(listen()).unwrap();
        let mut config = dial(addr);
        config.tls = Some(Arc::new(tls.build().unwrap()));
        Self {
            pair,
            config,
            tokens,
        }
    }

    /// Connects with this token; returns whether the address was believed
    /// without Retry, and the token for the next visit.
    fn with(&mut self, token: Option<&[u8]>) -> (bool, Bytes) {
        let token = token.map(Bytes::copy_from_slice);
        self.tokens.to_take.lock().unwrap().extend(token);
        let retries = self.pair.server.net.counters().retries_sent;
        self.pair.client.events.clear();
        let conn = self.pair.client.net.dial(&self.config).unwrap();
        let tokens = Arc::clone(&self.tokens);
        self.pair.until("token", |p| {
            p.client.opened().is_some() && !tokens.given.lock().unwrap().is_empty()
        });
        self.pair.client.net.close(conn, 0);
        self.pair.until("end", |p| p.server.net.connections() == 0);
        let believed = self.pair.server.net.counters().retries_sent == retries;
        (believed, self.tokens.given.lock().unwrap().remove(0))
    }
}

fn shard(limits: NetLimits, keys: &NetKeys) -> Side {
    Side::shard(0, 1, limits, keys.clone())
}

#[test]
fn a_token_spares_a_returning_client_the_retry_once() {
    let keys = NetKeys::random().unwrap();
    let mut visit = Visit::new(shard(always_retry(), &keys));
    let (believed, token) = visit.with(None);
    assert!(!believed, "a stranger");
    let (believed, next) = visit.with(Some(&token));
    assert!(believed, "a returning client");
    assert_ne!(token, next);
    let (believed, _) = visit.with(Some(&token));
    assert!(!believed, "a token that was used");
    assert_eq!(visit.pair.server.net.counters().retries_sent, 2);
    assert_eq!(visit.pair.server.net.counters().address_proved, 3);

    // With the same keys, as after a restart.
    let mut later = Visit::new(shard(always_retry(), &keys));
    assert!(later.with(Some(&next)).0, "a token from before the restart");
}

#[test]
fn tokens_that_are_not_good_count_as_none() {
    let keys = NetKeys::random().unwrap();
    let mut visit = Visit::new(shard(always_retry(), &keys));
    let (_, token) = visit.with(None);
    let mut altered = token.to_vec();
    altered[3] ^= 1;
    for bad in [&altered[..], &token[..10], &[0; 64], &[1]] {
        assert!(!visit.with(Some(bad)).0, "{bad:?}");
    }
    let mut elsewhere = Visit::new(shard(always_retry(), &NetKeys::random().unwrap()));
    assert!(!elsewhere.with(Some(&token)).0, "a token of another server");
    let expired = NetLimits {
        quic_token_lifetime: Duration::from_nanos(1),
        ..always_retry()
    };
    let mut later = Visit::new(shard(expired, &keys));
    assert!(!later.with(Some(&token)).0, "a token that has expired");
    assert!(visit.with(Some(&token)).0, "it was good all the while");
}

/// A Retry token is bound to address and time, and who shows one that is
/// not good learns so at once (RFC 9000 section 8.1.2).
#[test]
fn a_retry_token_of_somebody_else_is_refused() {
    let mut server = Side::new(always_retry());
    let to = server.net.listen(listen()).unwrap();
    let mut honest = Raw::new(to);
    let mut count = 0;
    // What follows the Retry never arrives.
    honest.tamper = Some(Box::new(move |datagram| {
        count += 1;
        if count == 1 {
            vec![datagram]
        } else {
            Vec::new()
        }
    }));
    honest.until(&mut server, "second Initial", |raw, _| raw.sent.len() > 1);
    assert_eq!(server.net.counters().retries_sent, 1);
    let mut thief = Raw::new(to);
    thief.tamper = Some(Box::new(|_| Vec::new()));
    thief.send(&honest.sent[1]);
    thief.until(&mut server, "refusal", |raw, _| {
        raw.listen();
        !raw.received.is_empty()
    });
    assert_eq!(server.net.counters().stateless_refusals, 1);
    assert_eq!(server.net.connections(), 0);
    honest.tamper = None;
    honest.open(&mut server);
}

#[test]
fn retry_can_be_forbidden() {
    let limits = NetLimits {
        quic_retry: RetryMode::Never,
        quic_retry_pending: 0,
        handshakes_per_address_per_second: 1,
        ..NetLimits::default()
    };
    let mut pair = Pair::with_limits(NetLimits::default(), limits);
    let addr = pair.server.net.listen(listen()).unwrap();
    let mut refused = false;
    // Two within one second of the clock, after some attempts.
    while !refused {
        pair.client.events.clear();
        pair.client.net.dial(&dial(addr)).unwrap();
        pair.until("answer", |p| {
            p.client.opened().is_some() || p.client.closed().is_some()
        });
        refused = pair.client.closed().is_some();
    }
    assert_eq!(pair.server.net.counters().retries_sent, 0);
    assert_eq!(pair.server.net.counters().refused_rate, 1);
}

/// RFC 9000 section 8.1: at most three times what an unproved address sent.
#[test]
fn an_unproved_address_gets_three_times_what_it_sent_at_most() {
    let mut config = listen();
    // Retransmissions begin soon, so that there are many.
    config.quic.initial_rtt = Duration::from_millis(1);
    let limits = NetLimits {
        handshake_timeout: Duration::from_millis(300),
        ..NetLimits::default()
    };
    let mut server = Side::new(limits);
    let to = server.net.listen(config).unwrap();
    let mut raw = Raw::new(to);
    raw.flush();
    let sent = raw.sent[0].len();
    assert_eq!(raw.sent.len(), 1);
    while server.net.counters().closed == 0 {
        server.poll();
    }
    raw.listen();
    let received: usize = raw.received.iter().map(Vec::len).sum();
    assert!(received > 0 && received <= 3 * sent, "{received} of {sent}");
    assert_eq!(server.net.counters().handshake_timeouts, 1);
}

/// RFC 9000 section 6: an unknown version is answered with those that there
/// are, and never with more bytes than came.
#[test]
fn unknown_versions_are_negotiated() {
    let mut server = Side::new(NetLimits::default());
    let to = server.net.listen(listen()).unwrap();
    let mut raw = Raw::new(to);
    let mut asked = first_datagram(to);
    asked[1..5].copy_from_slice(&0xfaceb00c_u32.to_be_bytes());
    raw.send(&asked[..1199]);
    raw.send(&asked);
    raw.tamper = Some(Box::new(|_| Vec::new()));
    let start = StdInstant::now();
    while raw.received.is_empty() {
        assert!(start.elapsed() < PATIENCE);
        server.poll();
        raw.listen();
    }
    assert_eq!(raw.received.len(), 1, "the short one is not answered");
    assert_eq!(server.net.counters().versions_sent, 1);
    let answer = &raw.received[0];
    assert!(answer.len() < asked.len());
    assert_eq!(answer[1..5], [0; 4]);
    let (dst, src) = (
        usize::from(asked[5]),
        usize::from(asked[6 + usize::from(asked[5])]),
    );
    let (dst, src) = (&asked[6..6 + dst], &asked[7 + dst..7 + dst + src]);
    assert_eq!(&answer[6..6 + src.len()], src, "to whom it came from");
    let versions = &answer[7 + src.len() + dst.len()..];
    let versions: Vec<_> = versions.chunks(4).collect();
    assert!(versions.contains(&&[0, 0, 0, 1][..]), "version 1");
    let is_reserved = |v: &&[u8]| v.iter().all(|b| b & 0x0f == 0x0a);
    assert!(versions.iter().any(is_reserved), "a greased one");
}

#[test]
fn a_server_of_another_version_ends_the_attempt() {
    let other = std::net::UdpSocket::bind(loopback()).unwrap();
    let mut client = Side::new(NetLimits::default());
    client.net.dial(&dial(other.local_addr().unwrap())).unwrap();
    client.net.flush();
    let mut asked = [0; 2000];
    let (_, from) = other.recv_from(&mut asked).unwrap();
    let dst = usize::from(asked[5]);
    let src = usize::from(asked[6 + dst]);
    let mut answer = vec![0x80, 0, 0, 0, 0, asked[6 + dst]];
    answer.extend_from_slice(&asked[7 + dst..7 + dst + src]);
    answer.push(asked[5]);
    answer.extend_from_slice(&asked[6..6 + dst]);
    answer.extend_from_slice(&0xfaceb00c_u32.to_be_bytes());
    other.send_to(&answer, from).unwrap();
    while client.closed().is_none() {
        client.poll();
    }
    assert!(matches!(client.closed(), Some(CloseCause::Failed(_))));
}

/// RFC 9287: both sides allow any value of the fixed bit, and use it.
#[test]
fn the_fixed_bit_is_greased() {
    let mut server = Side::new(NetLimits::default());
    let to = server.net.listen(listen()).unwrap();
    let mut raw = Raw::new(to);
    raw.open(&mut server);
    let stream = raw.open_stream();
    let _ = raw.write(stream, b"hello");
    raw.until(&mut server, "bytes", |_, s| {
        !s.received(StreamId::CONTROL).is_empty()
    });
    let (conn, _) = server.opened().unwrap();
    let both = |datagrams: &[Vec<u8>]| {
        let short = |d: &&Vec<u8>| d[0] & 0x80 == 0;
        let fixed = |set: bool| {
            let is = |d: &Vec<u8>| (d[0] & 0x40 != 0) == set;
            datagrams.iter().filter(short).any(is)
        };
        fixed(true) && fixed(false)
    };
    raw.until(&mut server, "both values, both ways", |raw, s| {
        let _ = raw.write(stream, b"more");
        let _ = s.send(conn, StreamId::CONTROL, b"more");
        both(&raw.sent) && both(&raw.received)
    });
}

/// RFC 9000 section 10.3: with the same keys the server that comes after can
/// tell a client that its connection is gone; with others it cannot.
#[test]
fn a_restarted_server_resets_what_it_does_not_know() {
    let keys = NetKeys::random().unwrap();
    for same in [true, false] {
        let mut server = shard(NetLimits::default(), &keys);
        let to = server.net.listen(listen()).unwrap();
        let mut client = Side::new(NetLimits::default());
        let conn = client.net.dial(&dial(to)).unwrap();
        while client.opened().is_none() || server.opened().is_none() {
            client.poll();
            server.poll();
        }
        drop(server);
        let keys = if same {
            keys.clone()
        } else {
            NetKeys::random().unwrap()
        };
        let mut server = shard(NetLimits::default(), &keys);
        let mut config = listen();
        config.addr = to;
        server.net.listen(config).unwrap();
        while server.net.counters().stateless_resets == 0 {
            let _ = client.send(conn, StreamId::CONTROL, b"are you still there?");
            client.poll();
            server.poll();
            if !same && server.net.counters().datagrams_in > 20 {
                break;
            }
        }
        (0..20).for_each(|_| client.poll());
        match client.closed() {
            Some(CloseCause::Failed(text)) if same => assert!(text.contains("does not know")),
            None if !same => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn keys_are_updated_by_either_side_under_way() {
    let mut pair = Pair::new();
    let (client, server) = pair.connect(listen(), dial);
    let mut sent = 0;
    for round in 0..6 {
        let _ = pair.client.send(client, StreamId::CONTROL, &[0; 5000]);
        sent += 5000;
        // Only one update can be under way.
        pair.until("key update", |p| {
            if round % 2 == 0 {
                p.client.net.conn(client).update_keys()
            } else {
                p.server.net.conn(server).update_keys()
            }
        });
        let _ = pair.server.send(server, StreamId::CONTROL, &[1; 5000]);
        pair.until("bytes both ways", |p| {
            p.server.received_len(StreamId::CONTROL) == sent
                && p.client.received_len(StreamId::CONTROL) == sent
        });
    }
    assert!(pair.client.net.counters().key_updates >= 3);
    assert!(pair.client.closed().is_none() && pair.server.closed().is_none());
}

#[test]
fn keys_are_updated_when_they_are_worn() {
    let mut config = listen();
    config.quic.key_update_packets = Some(16);
    let mut pair = Pair::new();
    let (client, server) = pair.connect(config, dial);
    let _ = pair.client.send(client, StreamId::CONTROL, b"hello");
    pair.until("hello", |p| {
        !p.server.received(StreamId::CONTROL).is_empty()
    });
    let (mut sent, mut updates) = (0, 0);
    pair.until("updates", |p| {
        let answered = p.client.received_len(StreamId::CONTROL) == sent;
        if answered {
            updates = p.server.net.counters().key_updates;
            let _ = p.server.send(server, StreamId::CONTROL, &[1; 5000]);
            sent += 5000;
        }
        updates >= 3
    });
    assert_eq!(pair.client.closed(), None);
}

const SUITES: [(Cipher, &str); 3] = [
    (Cipher::Aes128Gcm, "TLS13_AES_128_GCM_SHA256"),
    (Cipher::Aes256Gcm, "TLS13_AES_256_GCM_SHA384"),
    (Cipher::ChaCha20Poly1305, "TLS13_CHACHA20_POLY1305_SHA256"),
];

const EXCHANGES: [(Group, &str); 3] = [
    (Group::X25519, "X25519"),
    (Group::Secp256r1, "secp256r1"),
    (Group::X25519MlKem768, "X25519MLKEM768"),
];

fn only(cipher: Cipher, group: Group) -> TlsPolicy {
    let mut policy = TlsPolicy::default();
    policy.ciphers = vec![cipher];
    policy.groups = vec![group];
    policy
}

/// Server and client with these policies.
fn meet(transport: Transport, server: &TlsPolicy, client: &TlsPolicy) -> (Pair, DialConfig) {
    let mut options = server_options();
    options.policy = server.clone();
    let mut listen = listen_on(transport);
    listen.tls = Some(Arc::new(ServerTls::new(&options).unwrap()));
    let mut pair = Pair::new();
    let addr = pair.server.net.listen(listen).unwrap();
    let mut config = dial_to(transport, addr);
    let tls = client_builder().policy(client.clone()).build().unwrap();
    config.tls = Some(Arc::new(tls));
    pair.client.net.dial(&config).unwrap();
    (pair, config)
}

#[test]
fn ciphers_and_key_exchanges_are_chosen() {
    let any = TlsPolicy::default();
    for transport in [Transport::Quic, Transport::Tls] {
        for ((cipher, suite), (group, exchange)) in SUITES.into_iter().zip(EXCHANGES) {
            let policy = only(cipher, group);
            for (server, client) in [(&policy, &any), (&any, &policy), (&policy, &policy)] {
                let (mut pair, _) = meet(transport, server, client);
                pair.until("connection", |p| p.server.opened().is_some());
                let (conn, _) = pair.server.opened().unwrap();
                let stats = pair.server.net.conn(conn).stats().unwrap();
                // quinn-proto does not tell what was negotiated.
                if transport == Transport::Tls {
                    assert_eq!(stats.cipher_suite, Some(suite));
                    assert_eq!(stats.key_exchange, Some(exchange));
                }
            }
        }
    }
}

#[test]
fn a_client_may_offer_no_later_version_than_tls_1_2() {
    for transport in [Transport::Tls, Transport::Quic] {
        let mut pair = Pair::new();
        let addr = pair.server.net.listen(listen_on(transport)).unwrap();
        let mut config = dial_to(transport, addr);
        let tls = client_builder().tls12_at_most().build().unwrap();
        config.tls = Some(Arc::new(tls));
        pair.client.net.dial(&config).unwrap();
        pair.until("connection", |p| p.server.opened().is_some());
        let (conn, _) = pair.server.opened().unwrap();
        let stats = pair.server.net.conn(conn).stats().unwrap();
        if transport == Transport::Tls {
            let suite = stats.cipher_suite.unwrap();
            assert!(suite.starts_with("TLS_ECDHE"), "{suite}");
        }
    }
}

#[test]
fn nothing_in_common_is_a_failed_handshake() {
    let (ours, theirs) = (SUITES[0].0, SUITES[2].0);
    let group = |n: usize| EXCHANGES[n].0;
    let cases = [
        (only(ours, group(0)), only(theirs, group(0))),
        (only(ours, group(0)), only(ours, group(2))),
    ];
    for transport in [Transport::Quic, Transport::Tls] {
        for (server, client) in &cases {
            let (mut pair, _) = meet(transport, server, client);
            pair.until("refusal", |p| p.client.closed().is_some());
            assert!(matches!(pair.client.closed(), Some(CloseCause::Failed(_))));
            pair.until("count", |p| p.server.net.counters().handshake_failures == 1);
        }
    }
}

#[test]
fn the_order_of_ciphers_is_the_clients_unless_the_server_insists() {
    for server_order in [false, true] {
        let mut server = TlsPolicy::default();
        server.ciphers = vec![Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305];
        server.server_order = server_order;
        let mut client = TlsPolicy::default();
        client.ciphers = vec![Cipher::ChaCha20Poly1305, Cipher::Aes256Gcm];
        let (mut pair, _) = meet(Transport::Tls, &server, &client);
        pair.until("connection", |p| p.server.opened().is_some());
        let (conn, _) = pair.server.opened().unwrap();
        let suite = pair
            .server
            .net
            .conn(conn)
            .stats()
            .unwrap()
            .cipher_suite
            .unwrap();
        assert_eq!(suite.contains("AES_256"), server_order, "{suite}");
    }
}

#[test]
fn certificates_are_replaced_under_connections_that_stay() {
    for transport in [Transport::Quic, Transport::Tls] {
        let mut pair = Pair::new();
        let mut to = None;
        let (client, _) = pair.connect(listen_on(transport), |addr| {
            to = Some(dial_to(transport, addr));
            dial_to(transport, addr)
        });
        let mut options = server_options();
        options.client_ca_pem = Some(certs().ca.clone().into());
        options.require_client_cert = true;
        let tls = Arc::new(ServerTls::new(&options).unwrap());
        pair.server.net.set_tls(0, &tls);
        let _ = pair.client.send(client, StreamId::CONTROL, b"old");
        pair.until_server_has(b"old");
        pair.client.events.clear();
        let new = pair.client.net.dial(&to.unwrap()).unwrap();
        pair.until("refusal", |p| {
            let of = |e: &Ev| matches!(e, Ev::Closed(conn, _) if *conn == new);
            p.client.events.iter().any(of)
        });
        assert_eq!(pair.server.closed(), None, "the old one stays");
    }
}

#[test]
fn every_congestion_control_carries_data() {
    for congestion in Congestion::ALL {
        let mut tuning = QuicTuning::default();
        tuning.congestion = congestion;
        tuning.initial_rtt = Duration::from_millis(20);
        tuning.initial_window = Some(48_000);
        tuning.mtu_discovery = false;
        let mut config = listen();
        config.quic = tuning.clone();
        let mut pair = Pair::new();
        let (client, server) = pair.connect(config, |addr| {
            let mut config = dial(addr);
            config.quic = tuning;
            config
        });
        let data = pattern(1 << 20);
        let _ = pair.client.send(client, StreamId::CONTROL, &data);
        pair.until("bytes", |p| {
            p.server.received_len(StreamId::CONTROL) == data.len()
        });
        let stats = pair.client.net.conn(client).stats().unwrap().quic.unwrap();
        assert_eq!(stats.mtu, 1200, "{congestion}");
        let stats = pair.server.net.conn(server).stats().unwrap();
        assert!(
            stats.quic.unwrap().congestion_window >= 48_000,
            "{congestion}"
        );
    }
}

#[test]
fn tuning_that_cannot_be_is_refused() {
    let mut side = Side::new(NetLimits::default());
    let mut config = listen();
    config.quic.initial_rtt = Duration::ZERO;
    let error = side.net.listen(config).unwrap_err().to_string();
    assert!(error.contains("1 ms to 30 s"), "{error}");
    let mut config = dial(SocketAddr::from(([127, 0, 0, 1], 1)));
    config.quic.initial_window = Some(1);
    let error = side.net.dial(&config).unwrap_err().to_string();
    assert!(error.contains("2400 B"), "{error}");
}

/// Loops that share counts hold one limit together.
#[test]
fn limits_hold_over_all_loops_of_a_process() {
    let limits = NetLimits {
        connections_per_address_max: 4,
        quic_retry: RetryMode::Never,
        ..NetLimits::default()
    };
    let shared = NetShared::default();
    let loops = [Transport::Quic, Transport::Tcp].map(|transport| {
        let mut config = NetConfig::new(ShardId(0), 1, Clock::new(), NetKeys::random().unwrap());
        config.limits = limits.clone();
        config.shared = shared.clone();
        let mut side = Side {
            net: Net::new(config).unwrap(),
            events: Vec::new(),
        };
        let addr = side.net.listen(listen_on(transport)).unwrap();
        (side, dial_to(transport, addr))
    });
    let mut client = Side::new(NetLimits::default());
    let mut sides: Vec<Side> = Vec::new();
    for (side, config) in loops {
        for _ in 0..4 {
            client.net.dial(&config).unwrap();
        }
        sides.push(side);
        let total = |sides: &[Side], of: fn(&crate::Counters) -> u64| -> u64 {
            sides.iter().map(|s| of(s.net.counters())).sum()
        };
        let want = if sides.len() == 1 { (4, 0) } else { (4, 4) };
        loop {
            client.poll();
            sides.iter_mut().for_each(Side::poll);
            let accepted = total(&sides, |c| c.accepted);
            let refused = total(&sides, |c| c.refused_per_address);
            if (accepted, refused) == want {
                break;
            }
            assert!(accepted <= 4);
        }
    }
    assert!(shared.handshakes_pending() <= 4);
}

#[test]
fn a_crowded_address_must_be_proved() {
    let limits = NetLimits {
        connections_per_address_max: 4,
        ..NetLimits::default()
    };
    let mut server = Side::new(limits);
    let to = server.net.listen(listen()).unwrap();
    // Another uses the address without being there.
    let ip = IpAddr::from([127, 0, 0, 9]);
    for _ in 0..8 {
        let mut forger = Raw::from_ip(ip, to);
        forger.flush();
        server.poll();
    }
    while server.net.counters().retries_sent < 6 {
        server.poll();
    }
    assert_eq!(server.net.connections(), 2, "half of the places");
    for _ in 0..2 {
        let mut owner = Raw::from_ip(ip, to);
        owner.open(&mut server);
    }
    assert_eq!(server.net.counters().address_proved, 2);
}
