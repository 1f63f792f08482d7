//! Peers that break the rules, datagrams that are none: each has a defined
//! answer, and a bystander on the same socket does not notice.

use core::net::IpAddr;

use dunlin_base::Random;
use quinn_proto::{StreamId as QuicStreamId, TransportErrorCode};

use super::certs::{dial_to, listen_on};
use super::raw::Raw;
use super::raw::forge::{frame, varint};
use super::*;
use crate::RetryMode;

/// Mutated datagrams of each recorded one.
const MUTATIONS: usize = 400;

/// A server with a client that minds its own business.
pub(super) struct Scene {
    pub(super) pair: Pair,
    conn: ConnId,
    server_conn: ConnId,
    to: SocketAddr,
    said: usize,
}

impl Scene {
    pub(super) fn new(limits: NetLimits) -> Self {
        let mut pair = Pair::with_limits(NetLimits::default(), limits);
        let mut to = loopback();
        let (conn, server_conn) = pair.connect(listen_on(Transport::Quic), |addr| {
            to = addr;
            dial_to(Transport::Quic, addr)
        });
        let mut scene = Self {
            pair,
            conn,
            server_conn,
            to,
            said: 0,
        };
        scene.bystander();
        scene
    }

    /// The bystander is heard, and hears.
    pub(super) fn bystander(&mut self) {
        let (conn, server_conn) = (self.conn, self.server_conn);
        let _ = self.pair.client.send(conn, StreamId::CONTROL, b"?");
        self.said += 1;
        let said = self.said;
        self.pair.until("the bystander is heard", |p| {
            heard(&p.server, server_conn) == said
        });
        let _ = self.pair.server.send(server_conn, StreamId::CONTROL, b"!");
        self.pair
            .until("the bystander hears", |p| heard(&p.client, conn) == said);
    }

    /// A further client, of which every packet is seen.
    pub(super) fn raw(&mut self) -> (Raw, ConnId) {
        let mut raw = Raw::new(self.to);
        let known = self.pair.server.events.len();
        raw.open(&mut self.pair.server);
        let mut conn = None;
        raw.until(&mut self.pair.server, "opened", |_, server| {
            conn = server.events[known..].iter().find_map(|e| match e {
                Ev::Opened(conn, _) => Some(*conn),
                _ => None,
            });
            conn.is_some()
        });
        (raw, conn.unwrap())
    }
}

/// Bytes of a connection on control.
fn heard(side: &Side, conn: ConnId) -> usize {
    let of = |e: &Ev| match e {
        Ev::Bytes(c, StreamId::CONTROL, data) if *c == conn => data.len(),
        _ => 0,
    };
    side.events.iter().map(of).sum()
}

/// Datagrams that go wrong, the same ones for the same seed.
struct Wrong(Random);

impl Wrong {
    fn next(&mut self) -> u64 {
        self.0.next()
    }

    fn below(&mut self, n: usize) -> usize {
        self.0.below(n as u64) as usize
    }

    /// One of the ways in which a datagram goes wrong.
    fn mutate(&mut self, datagram: &[u8], other: &[u8]) -> Vec<u8> {
        let mut d = datagram.to_vec();
        match self.below(9) {
            0 => d.truncate(self.below(datagram.len())),
            1 => {
                let at = self.below(d.len());
                d[at] ^= 1 << self.below(8);
            }
            2 => (0..8).for_each(|_| {
                let at = self.below(d.len());
                d[at] = self.next() as u8;
            }),
            // The header, where the structure is.
            3 => {
                let at = self.below(d.len().min(40));
                d[at] = self.next() as u8;
            }
            4 => d.extend((0..self.below(300)).map(|_| self.next() as u8)),
            5 => d.extend_from_slice(other),
            6 => {
                let at = self.below(d.len());
                d.truncate(at);
                d.extend_from_slice(other.get(at..).unwrap_or_default());
            }
            7 => {
                let from = self.below(d.len());
                d.drain(..from);
            }
            _ => d.fill_with(|| self.next() as u8),
        }
        d
    }
}

/// Thousands of datagrams that were right once, altered, from the address of
/// a living connection and from another: none ends it, none leaves anything.
#[test]
fn altered_datagrams_are_dropped() {
    let mut scene = Scene::new(NetLimits::default());
    let (mut raw, conn) = scene.raw();
    let stream = raw.open_stream();
    let _ = raw.write(stream, &pattern(16_000));
    raw.until(&mut scene.pair.server, "bytes", |_, s| {
        heard(s, conn) == 16_000
    });
    let recorded = raw.sent.clone();
    assert!(recorded.len() > 15, "Initial, Handshake and 1-RTT packets");
    let stranger = std::net::UdpSocket::bind(loopback()).unwrap();
    let mut random = Wrong(Random::new(1));
    for (n, datagram) in recorded.iter().enumerate() {
        for round in 0..MUTATIONS {
            let other = &recorded[random.below(recorded.len())];
            let bad = random.mutate(datagram, other);
            if round % 4 == 0 {
                let _ = stranger.send_to(&bad, scene.to);
            } else {
                raw.send(&bad);
            }
            if round % 20 == 0 {
                scene.pair.server.poll();
            }
        }
        if n % 8 == 0 {
            scene.bystander();
        }
    }
    let _ = raw.write(stream, b"still here");
    raw.until(&mut scene.pair.server, "more bytes", |_, s| {
        heard(s, conn) == 16_010
    });
    assert_eq!(raw.lost, None);
    scene.bystander();
    assert_eq!(scene.pair.server.net.connections(), 2);
}

/// What is too short to be a packet, and too long to be a datagram of QUIC.
#[test]
fn datagrams_of_any_length_are_survived() {
    let mut scene = Scene::new(NetLimits::default());
    let (raw, _) = scene.raw();
    let long = pattern(65_507);
    for len in (0..70).chain([1199, 1200, 1452, 1472, 1500, 9000, 65_507]) {
        for first in [0x00, 0x40, 0x80, 0xc0, 0xd0, 0xe0, 0xf0, 0xff] {
            let mut datagram = long[..len].to_vec();
            if let Some(byte) = datagram.first_mut() {
                *byte = first;
            }
            raw.send(&datagram);
            // Version 1, where there is room for one.
            if let Some(version) = datagram.get_mut(1..5) {
                version.copy_from_slice(&[0, 0, 0, 1]);
                raw.send(&datagram);
            }
        }
        scene.pair.server.poll();
    }
    scene.bystander();
    assert_eq!(scene.pair.server.net.connections(), 2);
}

/// A packet that is followed by bytes that are none (RFC 9000 section 12.2):
/// the packet counts, the rest does not.
#[test]
fn garbage_behind_a_packet_is_ignored() {
    let mut scene = Scene::new(NetLimits::default());
    let mut raw = Raw::new(scene.to);
    let mut random = Random::new(2);
    raw.tamper = Some(Box::new(move |mut datagram| {
        // A short header has no length, so that what follows is part of it.
        if datagram[0] & 0x80 != 0 {
            datagram.extend((0..100).map(|_| random.next() as u8));
        }
        vec![datagram]
    }));
    raw.open(&mut scene.pair.server);
    let stream = raw.open_stream();
    let _ = raw.write(stream, b"through");
    raw.until(&mut scene.pair.server, "bytes", |_, s| {
        s.received(StreamId::CONTROL).ends_with(b"through")
    });
    scene.bystander();
}

/// Frames that no peer may send, and the code that the connection is closed
/// with (RFC 9000 section 20.1).
#[test]
fn violations_close_the_connection_that_commits_them() {
    const STREAM: u8 = 0x0e; // with offset and length
    let limits = NetLimits {
        quic_bidi_streams: 10,
        quic_uni_streams: 3,
        ..NetLimits::default()
    };
    let window = u64::from(limits.quic_stream_receive_window);
    let all = u64::from(limits.quic_receive_window);
    let stream =
        |id: u64, offset: u64, data: &[u8]| frame(STREAM, &[id, offset, data.len() as u64], data);
    let several = |frames: &[Vec<u8>]| frames.concat();
    let connection_id = |sequence: u64, retire: u64| {
        let mut bytes = frame(0x18, &[sequence, retire], &[8]);
        bytes.extend([sequence as u8; 8]);
        bytes.extend([sequence as u8 ^ 0x55; 16]);
        bytes
    };
    let cases: Vec<(&str, Vec<u8>, TransportErrorCode)> = vec![
        (
            "more than the window of a stream",
            stream(0, window, b"x"),
            TransportErrorCode::FLOW_CONTROL_ERROR,
        ),
        (
            "more than the window of the connection",
            several(&[
                stream(0, window - 1, b"x"),
                stream(4, window - 1, b"x"),
                stream(8, all - window, b"x"),
            ]),
            TransportErrorCode::FLOW_CONTROL_ERROR,
        ),
        (
            "more streams than allowed",
            stream(4 * 10, 0, b"x"),
            TransportErrorCode::STREAM_LIMIT_ERROR,
        ),
        (
            "more unidirectional streams than allowed",
            stream(2 + 4 * 3, 0, b"x"),
            TransportErrorCode::STREAM_LIMIT_ERROR,
        ),
        (
            "a stream that only we may open",
            stream(1, 0, b"x"),
            TransportErrorCode::STREAM_STATE_ERROR,
        ),
        (
            "an offset that no integer holds",
            stream(0, (1 << 62) - 1, b"xx"),
            TransportErrorCode::FLOW_CONTROL_ERROR,
        ),
        (
            "two ends of one stream",
            several(&[
                frame(STREAM | 1, &[4, 0, 5], b"first"),
                frame(STREAM | 1, &[4, 0, 6], b"second"),
            ]),
            TransportErrorCode::FINAL_SIZE_ERROR,
        ),
        (
            "more connection ids than asked for",
            several(&(2..12).map(|n| connection_id(n, 0)).collect::<Vec<_>>()),
            TransportErrorCode::CONNECTION_ID_LIMIT_ERROR,
        ),
        (
            "a frame that does not exist",
            frame(0x3f, &[], &[]),
            TransportErrorCode::FRAME_ENCODING_ERROR,
        ),
        (
            "a frame that is cut",
            frame(0x06, &[0, 1 << 20], b"x"),
            TransportErrorCode::FRAME_ENCODING_ERROR,
        ),
        (
            "HANDSHAKE_DONE from a client",
            vec![0x1e],
            TransportErrorCode::PROTOCOL_VIOLATION,
        ),
        (
            "NEW_TOKEN from a client",
            frame(0x07, &[4], b"fake"),
            TransportErrorCode::PROTOCOL_VIOLATION,
        ),
        (
            "an acknowledgement of what was never sent",
            frame(0x02, &[1 << 40, 0, 0, 0], &[]),
            TransportErrorCode::PROTOCOL_VIOLATION,
        ),
        (
            "more data for the handshake than is kept",
            frame(0x06, &[1 << 30, 4], b"xxxx"),
            TransportErrorCode::CRYPTO_BUFFER_EXCEEDED,
        ),
        (
            "handshake data after the handshake",
            frame(0x06, &[0, 5], &[24, 0, 0, 1, 0]),
            TransportErrorCode::crypto(rustls::AlertDescription::UnexpectedMessage.into()),
        ),
    ];
    let mut scene = Scene::new(limits);
    for (what, frames, code) in cases {
        let (mut raw, conn) = scene.raw();
        let control = raw.open_stream();
        let _ = raw.write(control, b"honest");
        raw.until(&mut scene.pair.server, "bytes", |_, s| heard(s, conn) == 6);
        raw.forge(control, frames);
        assert_eq!(raw.until_refused(&mut scene.pair.server), code, "{what}");
        let cause = scene.pair.server.events.iter().find_map(|e| match e {
            Ev::Closed(c, cause) if *c == conn => Some(cause.clone()),
            _ => None,
        });
        assert!(matches!(cause, Some(CloseCause::Failed(_))), "{what}");
        scene.bystander();
    }
    let pair = &mut scene.pair;
    pair.until("nothing left", |p| p.server.net.connections() == 1);
}

/// A datagram (RFC 9221) that is larger than allowed, and one where none are
/// allowed.
#[test]
fn datagrams_beyond_what_was_agreed_close_the_connection() {
    const DATAGRAM: u8 = 0x31;
    for (allowed, size) in [(600, 700), (0, 1)] {
        let limits = NetLimits {
            quic_datagram_receive_bytes: allowed,
            ..NetLimits::default()
        };
        let mut scene = Scene::new(limits);
        let (mut raw, _) = scene.raw();
        let control = raw.open_stream();
        raw.forge(control, frame(DATAGRAM, &[size], &vec![7; size as usize]));
        let code = raw.until_refused(&mut scene.pair.server);
        assert_eq!(code, TransportErrorCode::PROTOCOL_VIOLATION);
        scene.bystander();
    }
}

/// A peer that makes us issue connection ids as fast as it can retire them:
/// bounded by what it may hold at a time, however often.
#[test]
fn retiring_connection_ids_does_not_pile_them_up() {
    let mut scene = Scene::new(NetLimits::default());
    let (mut raw, conn) = scene.raw();
    let control = raw.open_stream();
    let _ = raw.write(control, b"honest");
    raw.until(&mut scene.pair.server, "bytes", |_, s| heard(s, conn) == 6);
    // An id that was never issued ends the connection.
    raw.forge(control, frame(0x19, &[1000], &[]));
    let code = raw.until_refused(&mut scene.pair.server);
    assert_eq!(code, TransportErrorCode::PROTOCOL_VIOLATION);
    scene.bystander();
}

/// Frames that ask for an answer, many in one packet: answered with one packet
/// or ignored, never with one each.
#[test]
fn frames_that_ask_for_answers_are_not_amplified() {
    let mut scene = Scene::new(NetLimits::default());
    let (mut raw, conn) = scene.raw();
    let control = raw.open_stream();
    let _ = raw.write(control, b"honest");
    raw.until(&mut scene.pair.server, "bytes", |_, s| heard(s, conn) == 6);
    let sent = |scene: &mut Scene| {
        let stats = scene.pair.server.net.conn(conn).stats().unwrap();
        stats.quic.unwrap().udp_out
    };
    let before = sent(&mut scene);
    let mut stream = control;
    for round in 0..50_u64 {
        // PATH_CHALLENGE, PING, STREAMS_BLOCKED, DATA_BLOCKED.
        let ask = |n: u64| {
            let mut frames = frame(0x1a, &[], &(round * 100 + n).to_be_bytes());
            frames.push(0x01);
            frames.extend(frame(0x16, &[n], &[]));
            frames.extend(frame(0x14, &[n], &[]));
            frames
        };
        let frames: Vec<u8> = (0..20).flat_map(ask).collect();
        // Nothing comes on the stream, so that its first window has to do.
        if round % 20 == 0 {
            stream = raw.open_stream();
        }
        raw.forge(stream, frames);
        raw.poll();
        scene.pair.server.poll();
    }
    scene.bystander();
    let sent = sent(&mut scene) - before;
    assert!(sent <= 120, "{sent} datagrams for 50");
    assert_eq!(raw.lost, None);
}

/// A client that reads one stream and not the other: the other's bytes wait,
/// within the window, and the one goes on.
#[test]
fn a_stream_that_is_not_read_holds_up_no_other() {
    let mut scene = Scene::new(NetLimits::default());
    let window = 64 << 10;
    let mut raw = Raw::with(IpAddr::from([127, 0, 0, 1]), scene.to, |transport| {
        transport.stream_receive_window(quinn_proto::VarInt::from_u32(window));
    });
    raw.open(&mut scene.pair.server);
    let (quick, slow) = (raw.open_stream(), raw.open_stream());
    for stream in [slow, quick] {
        let _ = raw.write(stream, b"hello");
    }
    let server = &mut scene.pair.server;
    let known = server.events.len();
    raw.until(server, "both streams", |_, s| {
        let is_bytes = |e: &&Ev| matches!(e, Ev::Bytes(..));
        s.events[known..].iter().filter(is_bytes).count() == 2
    });
    let conn = server.events[known..].iter().find_map(|e| match e {
        Ev::Bytes(conn, ..) => Some(*conn),
        _ => None,
    });
    let conn = conn.unwrap();
    let data = pattern(1 << 20);
    let left = server.send(conn, StreamId(slow.into()), &data);
    assert!(left < data.len(), "most of it waits");
    let mut got = 0;
    let mut sent = 0;
    raw.until(server, "all of the other stream", |raw, s| {
        if sent == got && sent < data.len() {
            let end = data.len().min(sent + 50_000);
            let _ = s.send(conn, StreamId(quick.into()), &data[sent..end]);
            sent = end;
        }
        got += read(raw, quick);
        got == data.len()
    });
    assert_eq!(raw.lost, None);
    let reported = |server: &Side| {
        let blocked = server.events.iter().filter_map(|event| match event {
            Ev::Blocked(of, stream, bytes) if *of == conn => Some((stream.0, *bytes)),
            _ => None,
        });
        blocked.collect::<Vec<_>>()
    };
    assert!(
        matches!(reported(server)[..], [(id, waiting)] if id == u64::from(slow)
            && waiting + left == data.len()),
        "{:?}",
        reported(server)
    );
    assert_eq!(server.net.counters().quic_streams_blocked, 1);
    let stats = server.net.conn(conn).stats().unwrap();
    assert!(stats.backlog_bytes <= data.len(), "{}", stats.backlog_bytes);
    scene.bystander();
    // What waited arrives when it is read after all.
    let mut late = 0;
    raw.until(&mut scene.pair.server, "the rest", |raw, _| {
        late += read(raw, slow);
        late == data.len()
    });
    assert_eq!(reported(&scene.pair.server).get(1), Some(&(slow.into(), 0)));
}

/// Reads what there is.
fn read(raw: &mut Raw, stream: QuicStreamId) -> usize {
    let mut recv = raw.conn.recv_stream(stream);
    let Ok(mut chunks) = recv.read(true) else {
        return 0;
    };
    let mut n = 0;
    while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
        n += chunk.bytes.len();
    }
    let _ = chunks.finalize();
    n
}

/// First packets of clients that never come back, from many addresses: a
/// bounded number is kept, the others are asked for a proof, and all are
/// forgotten in time.
#[test]
fn a_flood_of_initials_takes_a_bounded_place() {
    const FLOOD: usize = 1000;
    const KEPT: usize = 32;
    let limits = NetLimits {
        quic_retry_pending: KEPT,
        handshake_timeout: Duration::from_secs(2),
        ..NetLimits::default()
    };
    let mut scene = Scene::new(limits);
    for n in 0..FLOOD {
        let ip = IpAddr::from([127, 1, (n / 200) as u8, (n % 200) as u8 + 1]);
        let mut raw = Raw::from_ip(ip, scene.to);
        raw.flush();
        if n % 10 == 0 {
            scene.pair.server.poll();
            assert!(scene.pair.server.net.connections() <= KEPT + 1);
        }
        if n % 100 == 0 {
            scene.bystander();
        }
    }
    let pair = &mut scene.pair;
    pair.until("all answered", |p| {
        let counters = p.server.net.counters();
        (counters.retries_sent + counters.accepted) as usize > FLOOD
    });
    let counters = *pair.server.net.counters();
    assert!(counters.retries_sent as usize >= FLOOD - 2 * KEPT);
    pair.until("all forgotten", |p| p.server.net.connections() == 1);
    // Who is there gets in, in the middle of it too.
    let (raw, _) = scene.raw();
    assert_eq!(raw.lost, None);
    scene.bystander();
}

/// One address that begins more handshakes than it may: the surplus proves its
/// address and is refused then, others are not touched.
#[test]
fn a_flood_from_one_address_is_stopped_at_its_rate() {
    let limits = NetLimits {
        handshakes_per_address_per_second: 5,
        quic_retry: RetryMode::UnderLoad,
        ..NetLimits::default()
    };
    let mut scene = Scene::new(limits);
    let ip = IpAddr::from([127, 2, 0, 1]);
    let mut raws: Vec<Raw> = (0..40).map(|_| Raw::from_ip(ip, scene.to)).collect();
    let start = StdInstant::now();
    while raws.iter().any(|raw| !raw.is_open && raw.lost.is_none()) {
        assert!(start.elapsed() < PATIENCE);
        raws.iter_mut().for_each(Raw::poll);
        scene.pair.server.poll();
    }
    let refused = raws.iter().filter(|raw| raw.lost.is_some()).count();
    let counters = *scene.pair.server.net.counters();
    assert!(refused > 0 && counters.refused_rate as usize >= refused);
    assert!(counters.retries_sent > 0);
    scene.bystander();
    let (other, _) = scene.raw();
    assert_eq!(other.lost, None);
}

#[test]
fn integers_are_written_as_quic_reads_them() {
    assert_eq!(varint(5), [0xc0, 0, 0, 0, 0, 0, 0, 5]);
}
