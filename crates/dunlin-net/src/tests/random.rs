//! Random operations on every transport, from a seed. Always: bytes
//! arrive in order and unchanged, credit adds up, nothing follows `Closed`,
//! and nothing is left at the end.

use std::collections::BTreeMap;

use super::certs::{dial_to, listen_on};
use super::*;
use crate::Move;

const SEEDS: u64 = 4;
const STEPS: usize = 150;
/// Bytes outstanding beyond which a connection is given no more.
const CREDIT: usize = 300_000;

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        // xorshift64
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

#[derive(Default)]
struct Known {
    streams: Vec<StreamId>,
    given: usize,
    credited: usize,
    sent: BTreeMap<StreamId, usize>,
    received: BTreeMap<StreamId, usize>,
    opened: bool,
    closing: bool,
    closed: bool,
    paused: bool,
}

/// Byte number `at` of what a side sends on a stream.
fn byte(from_client: bool, stream: StreamId, at: usize) -> u8 {
    (at ^ (at >> 8) ^ stream.0 as usize ^ (usize::from(from_client) << 7)) as u8
}

struct World {
    side: Side,
    is_client: bool,
    conns: BTreeMap<ConnId, Known>,
}

impl World {
    fn poll(&mut self) {
        self.side.poll();
        for event in core::mem::take(&mut self.side.events) {
            let conn = match &event {
                Ev::Opened(c, _) | Ev::Bytes(c, ..) | Ev::Finished(c, _) | Ev::Reset(c, ..) => *c,
                Ev::Sent(c, _) | Ev::Blocked(c, ..) => *c,
                Ev::Migrated(c, _) | Ev::Closed(c, _) => *c,
                Ev::EarlyData(c, _) | Ev::Datagram(c, _) => *c,
                Ev::Delivered(c, _) | Ev::Available(c, _) => *c,
                Ev::Moved(c, ..) | Ev::MoveFailed(c, _) => *c,
            };
            let known = self.conns.entry(conn).or_default();
            assert!(!known.closed, "{event:?} after the end");
            assert!(known.opened || matches!(event, Ev::Opened(..) | Ev::Closed(..)));
            match event {
                Ev::Opened(_, peer) => {
                    assert!(!core::mem::replace(&mut known.opened, true));
                    // A QUIC server has no stream until its client opens one.
                    if self.is_client || peer.transport != Transport::Quic {
                        known.streams.push(StreamId::CONTROL);
                    }
                }
                Ev::Bytes(_, stream, data) => {
                    assert!(!known.closing, "bytes after close was called");
                    let at = known.received.entry(stream).or_default();
                    for b in &data {
                        assert_eq!(*b, byte(!self.is_client, stream, *at));
                        *at += 1;
                    }
                    if !known.streams.contains(&stream) && !stream.is_unidirectional() {
                        known.streams.push(stream);
                    }
                }
                Ev::Sent(_, n) => known.credited += n,
                Ev::Closed(..) => known.closed = true,
                _ => {}
            }
            assert!(known.credited <= known.given);
        }
    }

    fn live(&self) -> Vec<ConnId> {
        let live = |k: &Known| k.opened && !k.closing && !k.closed;
        self.conns
            .iter()
            .filter(|(_, k)| live(k))
            .map(|(c, _)| *c)
            .collect()
    }

    fn act(&mut self, random: &mut Random) {
        let live = self.live();
        let Some(conn) = (!live.is_empty()).then(|| live[random.below(live.len())]) else {
            return;
        };
        let known = self.conns.get_mut(&conn).unwrap();
        let Some(&stream) = known.streams.get(random.below(known.streams.len().max(1))) else {
            return;
        };
        let net = &mut self.side.net;
        match random.below(40) {
            0..=24 => {
                let room = CREDIT.saturating_sub(known.given - known.credited);
                let n = [1, 70, 5000, 120_000][random.below(4)].min(room);
                let at = known.sent.entry(stream).or_default();
                let part: Vec<u8> = (*at..*at + n)
                    .map(|i| byte(self.is_client, stream, i))
                    .collect();
                *at += n;
                let mut data = SendBuf::new();
                let (a, b) = part.split_at(random.below(n + 1));
                data.put_slice(a);
                data.put_bytes(&bytes::Bytes::copy_from_slice(b));
                known.given += n;
                known.credited += net.send(conn, stream, &mut data);
            }
            25..=28 => {
                known.paused = !known.paused;
                net.conn(conn).pause_reading(known.paused);
            }
            29..=32 => {
                if let Some(new) = net.conn(conn).open_stream(random.below(2) == 0) {
                    // The first one of a dialled connection is control itself.
                    if new != StreamId::CONTROL {
                        known.streams.push(new);
                    }
                }
            }
            33 if stream != StreamId::CONTROL => {
                net.conn(conn).finish_stream(stream);
                known.streams.retain(|s| *s != stream);
            }
            34 if stream != StreamId::CONTROL => {
                net.conn(conn).reset_stream(stream, 7);
                known.streams.retain(|s| *s != stream);
            }
            35 => net.conn(conn).stop_stream(stream, 8),
            36 => net.conn(conn).set_idle_timeout(Duration::from_secs(60)),
            37 => {
                // Refused on all but dialled QUIC connections.
                let how = [Move::Probed, Move::AtOnce, Move::Rebound][random.below(3)];
                let to = [[127, 0, 0, 1], [127, 0, 0, 2]][random.below(2)];
                let _ = net.migrate(conn, Some((to, 0).into()), how);
                net.flush();
            }
            38 if random.below(4) == 0 => {
                known.closing = true;
                net.close(conn, 3);
            }
            39 if random.below(8) == 0 => {
                known.closing = true;
                net.conn(conn).abort();
            }
            _ => {}
        }
    }
}

fn run(transport: Transport, seed: u64) {
    let limits = NetLimits {
        close_linger: Duration::from_millis(300),
        half_close_linger: Duration::from_millis(300),
        ..NetLimits::default()
    };
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let [mut client, mut server] = [true, false].map(|is_client| World {
        side: Side::new(limits.clone()),
        is_client,
        conns: BTreeMap::new(),
    });
    let addr = server.side.net.listen(listen_on(transport)).unwrap();
    let config = dial_to(transport, addr);
    for _ in 0..STEPS {
        if client.live().len() < 5 && random.below(6) == 0 {
            let conn = client.side.net.dial(&config).unwrap();
            client.conns.insert(conn, Known::default());
        }
        for world in [&mut client, &mut server] {
            (0..random.below(4)).for_each(|_| world.act(&mut random));
            world.poll();
        }
    }
    // Where both sides live and read, all credit comes back.
    let settled = |w: &World| {
        w.conns
            .values()
            .all(|k| k.closed || k.closing || k.given == k.credited)
    };
    for world in [&mut client, &mut server] {
        for conn in world.live() {
            world.side.net.conn(conn).pause_reading(false);
        }
    }
    let start = StdInstant::now();
    while !(settled(&client) && settled(&server)) {
        assert!(
            start.elapsed() < PATIENCE,
            "{transport:?} seed {seed}: credit is missing"
        );
        client.poll();
        server.poll();
    }
    for world in [&mut client, &mut server] {
        for conn in world.live() {
            world.conns.get_mut(&conn).unwrap().closing = true;
            world.side.net.close(conn, 0);
        }
    }
    while client.side.net.connections() + server.side.net.connections() > 0 {
        assert!(
            start.elapsed() < PATIENCE,
            "{transport:?} seed {seed}: connections are left"
        );
        client.poll();
        server.poll();
        for world in [&mut client, &mut server] {
            for conn in world.live() {
                world.conns.get_mut(&conn).unwrap().closing = true;
                world.side.net.close(conn, 0);
            }
        }
    }
    for world in [&client, &server] {
        assert!(
            world.conns.values().all(|k| k.closed),
            "{transport:?} seed {seed}: an end is not reported"
        );
    }
}

#[test]
fn operations_over_tcp_and_layers() {
    for seed in 1..=SEEDS {
        for transport in [
            Transport::Tcp,
            Transport::Tls,
            Transport::Ws,
            Transport::Wss,
        ] {
            run(transport, seed);
        }
    }
}

#[test]
fn operations_over_quic() {
    (1..=SEEDS).for_each(|seed| run(Transport::Quic, seed));
}
