//! Loops against loops on loopback, with ports that the system chooses and no
//! waiting for anything but events.

mod acks;
#[cfg(unix)]
mod adopt;
mod binding;
pub(crate) mod certs;
mod crowd;
mod datagrams;
mod detach;
mod early;
mod ending;
mod follow;
mod gather;
mod handshake;
mod hostile;
mod layered;
mod moves;
mod network;
mod paths;
mod proxies;
mod qlog;
mod quic;
mod random;
mod raw;
mod relay;
mod repeat;
mod strangers;
mod tcp;
#[cfg(unix)]
mod unix;

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant as StdInstant;

use dunlin_base::transport::{
    CloseCause, NetCommand, NetCommandKind, NetEvent, NetEventKind, Peer, Transport,
};
use dunlin_base::{ConnId, Repeat, SendBuf, ShardId, StreamId};

use crate::{
    Clock, DialConfig, ListenerConfig, Net, NetConfig, NetKeys, NetLimits, TicketRegister,
};

/// After this a test has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// An event that owns its bytes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ev {
    Opened(ConnId, Peer),
    Bytes(ConnId, StreamId, Vec<u8>),
    Finished(ConnId, StreamId),
    Reset(ConnId, StreamId, u64),
    Sent(ConnId, usize),
    Blocked(ConnId, StreamId, usize),
    Migrated(ConnId, SocketAddr),
    Moved(ConnId, SocketAddr, SocketAddr),
    MoveFailed(ConnId, SocketAddr),
    EarlyData(ConnId, bool),
    Datagram(ConnId, Vec<u8>),
    Delivered(ConnId, StreamId),
    Available(ConnId, bool),
    Closed(ConnId, CloseCause),
}

/// More follows what is sent next.
fn expect_more(net: &mut Net, conn: ConnId) {
    let _ = net.command(&mut NetCommand::new(conn, NetCommandKind::ExpectMore));
}

impl Ev {
    fn from(event: NetEvent<&[u8]>) -> Self {
        let NetEvent { conn, kind } = event;
        match kind {
            NetEventKind::Opened { peer } => Self::Opened(conn, peer),
            NetEventKind::Bytes { stream, data } => Self::Bytes(conn, stream, data.to_vec()),
            NetEventKind::StreamFinished { stream } => Self::Finished(conn, stream),
            NetEventKind::StreamReset { stream, code } => Self::Reset(conn, stream, code),
            NetEventKind::Sent { bytes, .. } => Self::Sent(conn, bytes),
            NetEventKind::StreamBlocked { stream, bytes } => Self::Blocked(conn, stream, bytes),
            NetEventKind::Migrated { addr } => Self::Migrated(conn, addr),
            NetEventKind::Moved { from, to } => Self::Moved(conn, from, to),
            NetEventKind::MoveFailed { to } => Self::MoveFailed(conn, to),
            NetEventKind::EarlyData { accepted } => Self::EarlyData(conn, accepted),
            NetEventKind::Closed { cause } => Self::Closed(conn, cause),
            NetEventKind::Datagram { data } => Self::Datagram(conn, data.to_vec()),
            NetEventKind::StreamDelivered { stream } => Self::Delivered(conn, stream),
            NetEventKind::StreamsAvailable { bidirectional } => {
                Self::Available(conn, bidirectional)
            }
            other => panic!("unknown event {other:?}"),
        }
    }
}

/// One loop and what it reported.
pub(crate) struct Side {
    pub(crate) net: Net,
    pub(crate) events: Vec<Ev>,
}

impl Side {
    pub(crate) fn new(limits: NetLimits) -> Self {
        Self::shard(0, 1, limits, NetKeys::random().unwrap())
    }

    pub(crate) fn shard(shard: u16, shards: u16, limits: NetLimits, keys: NetKeys) -> Self {
        let mut config = NetConfig::new(ShardId(shard), shards, Clock::new(), keys);
        config.limits = limits;
        Self {
            net: Net::new(config).unwrap(),
            events: Vec::new(),
        }
    }

    /// One loop with session tickets.
    pub(crate) fn with_tickets(tickets: Arc<TicketRegister>) -> Self {
        let mut config = NetConfig::client(Clock::new()).unwrap();
        config.tickets = Some(tickets);
        Self {
            net: Net::new(config).unwrap(),
            events: Vec::new(),
        }
    }

    pub(crate) fn poll(&mut self) {
        let events = &mut self.events;
        self.net
            .poll(Some(Duration::from_millis(1)), &mut |e| {
                events.push(Ev::from(e))
            })
            .unwrap();
    }

    pub(crate) fn opened(&self) -> Option<(ConnId, Peer)> {
        self.events.iter().find_map(|e| match e {
            Ev::Opened(conn, peer) => Some((*conn, peer.clone())),
            _ => None,
        })
    }

    pub(crate) fn closed(&self) -> Option<CloseCause> {
        self.events.iter().find_map(|e| match e {
            Ev::Closed(_, cause) => Some(cause.clone()),
            _ => None,
        })
    }

    pub(crate) fn received(&self, stream: StreamId) -> Vec<u8> {
        let of = |e: &Ev| match e {
            Ev::Bytes(_, s, data) if *s == stream => data.clone(),
            _ => Vec::new(),
        };
        self.events.iter().flat_map(of).collect()
    }

    pub(crate) fn received_len(&self, stream: StreamId) -> usize {
        let of = |e: &Ev| match e {
            Ev::Bytes(_, s, data) if *s == stream => data.len(),
            _ => 0,
        };
        self.events.iter().map(of).sum()
    }

    pub(crate) fn sent(&self) -> usize {
        self.events
            .iter()
            .map(|e| if let Ev::Sent(_, n) = e { *n } else { 0 })
            .sum()
    }

    pub(crate) fn send(&mut self, conn: ConnId, stream: StreamId, bytes: &[u8]) -> usize {
        let mut data = SendBuf::new();
        data.put_slice(bytes);
        let left = self.net.send(conn, stream, &mut data);
        assert!(data.is_empty());
        left
    }
}

/// A client loop and a server loop.
pub(crate) struct Pair {
    pub(crate) client: Side,
    pub(crate) server: Side,
}

impl Pair {
    pub(crate) fn new() -> Self {
        Self::with_limits(NetLimits::default(), NetLimits::default())
    }

    pub(crate) fn with_limits(client: NetLimits, server: NetLimits) -> Self {
        Self {
            client: Side::new(client),
            server: Side::new(server),
        }
    }

    /// Polls both sides until `done`.
    pub(crate) fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let start = StdInstant::now();
        while !done(self) {
            assert!(
                start.elapsed() < PATIENCE,
                "no {what}\nclient: {:?}\nserver: {:?}",
                brief(&self.client.events),
                brief(&self.server.events),
            );
            self.client.poll();
            self.server.poll();
        }
    }

    /// Polls until this is all that the server has of the first stream.
    pub(crate) fn until_server_has(&mut self, bytes: &[u8]) {
        self.until("bytes at the server", |p| {
            p.server.received(StreamId::CONTROL) == bytes
        });
    }

    /// Polls until this is all that the client has of the first stream.
    pub(crate) fn until_client_has(&mut self, bytes: &[u8]) {
        self.until("bytes at the client", |p| {
            p.client.received(StreamId::CONTROL) == bytes
        });
    }

    pub(crate) fn until_closed(&mut self) {
        self.until("both closed", |p| {
            p.client.closed().is_some() && p.server.closed().is_some()
        });
    }

    /// Listens, dials and waits for both ends to be open.
    pub(crate) fn connect(
        &mut self,
        listen: ListenerConfig,
        dial: impl FnOnce(SocketAddr) -> DialConfig,
    ) -> (ConnId, ConnId) {
        let addr = self.server.net.listen(listen).unwrap();
        let dialled = self.client.net.dial(&dial(addr)).unwrap();
        self.until("connection", |p| {
            p.client.opened().is_some() && p.server.opened().is_some()
        });
        let (client, _) = self.client.opened().unwrap();
        assert_eq!(client, dialled);
        (client, self.server.opened().unwrap().0)
    }
}

fn brief(events: &[Ev]) -> Vec<String> {
    let mut texts: Vec<String> = events.iter().map(|e| format!("{e:.200?}")).collect();
    texts.iter_mut().for_each(|t| t.truncate(200));
    let skip = texts.len().saturating_sub(20);
    texts.split_off(skip)
}

pub(crate) fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

pub(crate) fn pattern(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 31 + i / 251) as u8).collect()
}

/// What every transport must do; `connect` makes a fresh pair.
pub(crate) mod every {
    use super::*;

    /// Bytes arrive as sent, both ways, and the credit adds up.
    pub(crate) fn echo(mut pair: Pair, client: ConnId, server: ConnId, transport: Transport) {
        let (_, peer) = pair.server.opened().unwrap();
        assert_eq!(peer.transport, transport);
        let mut left = pair.client.send(client, StreamId::CONTROL, b"ping");
        pair.until_server_has(b"ping");
        let answered = pair.server.send(server, StreamId::CONTROL, b"pong!");
        pair.until_client_has(b"pong!");
        left += pair.client.sent();
        assert_eq!((left, answered + pair.server.sent()), (4, 5));
        closes_in_order(pair, client, server);
    }

    /// What was sent before `close` arrives, then the end.
    fn closes_in_order(mut pair: Pair, client: ConnId, server: ConnId) {
        let _ = pair.server.send(server, StreamId::CONTROL, b"bye");
        pair.server.net.close(server, 0);
        pair.until("end", |p| {
            p.client
                .events
                .iter()
                .any(|e| matches!(e, Ev::Finished(..) | Ev::Closed(..)))
        });
        assert_eq!(pair.client.received(StreamId::CONTROL), b"pong!bye");
        pair.client.net.close(client, 0);
        pair.until_closed();
        assert_eq!(pair.server.closed(), Some(CloseCause::Local));
        assert_eq!(pair.client.closed(), Some(CloseCause::Peer { code: 0 }));
        pair.until("nothing left", |p| {
            p.client.net.connections() + p.server.net.connections() == 0
        });
    }

    /// A reader that stops slows the writer down; nothing is lost.
    pub(crate) fn bulk_with_back_pressure(mut pair: Pair, client: ConnId, server: ConnId) {
        const TOTAL: usize = 10 << 20;
        const CREDIT: usize = 256 << 10;
        let data = pattern(TOTAL);
        pair.server.net.conn(server).pause_reading(true);
        let (mut given, mut room) = (0, CREDIT);
        let mut feed = |p: &mut Pair| {
            let announced: usize = p.client.sent();
            p.client.events.retain(|e| !matches!(e, Ev::Sent(..)));
            room += announced;
            while room > 0 && given < TOTAL {
                let n = room.min(TOTAL - given).min(40_000);
                room -= n;
                room += p
                    .client
                    .send(client, StreamId::CONTROL, &data[given..given + n]);
                given += n;
            }
            (given, room)
        };
        // Until the writer finds no room for a while of many polls.
        let (mut stuck, mut last) = (0, 0);
        pair.until("back-pressure", |p| {
            let (given, room) = feed(p);
            stuck = if given == last && room == 0 {
                stuck + 1
            } else {
                0
            };
            last = given;
            stuck > 50
        });
        assert!(last < TOTAL, "the writer was stopped");
        let early = pair.server.received_len(StreamId::CONTROL);
        assert!(early <= CREDIT, "read {early} bytes while paused");
        pair.server.net.conn(server).pause_reading(false);
        let mut got = Vec::with_capacity(TOTAL);
        pair.until("all bytes", |p| {
            feed(p);
            for e in p.server.events.drain(..) {
                if let Ev::Bytes(_, _, data) = e {
                    got.extend(data);
                }
            }
            got.len() == TOTAL
        });
        assert!(got == data, "bytes differ");
        pair.until("credit back", |p| feed(p) == (TOTAL, CREDIT));
    }

    /// One side ends its sending; the other still can.
    pub(crate) fn half_close_by(mut pair: Pair, finish: impl FnOnce(&mut Pair), server: ConnId) {
        finish(&mut pair);
        pair.until("end of the client's side", |p| {
            p.server
                .events
                .contains(&Ev::Finished(server, StreamId::CONTROL))
        });
        let _ = pair.server.send(server, StreamId::CONTROL, b"late");
        pair.until_client_has(b"late");
    }

    /// Silence for longer than the idle timeout ends the connection.
    pub(crate) fn idle_timeout(mut pair: Pair, client: ConnId, server: ConnId) {
        let _ = pair.client.send(client, StreamId::CONTROL, b"x");
        pair.until("byte", |p| !p.server.received(StreamId::CONTROL).is_empty());
        pair.server
            .net
            .conn(server)
            .set_idle_timeout(Duration::from_millis(40));
        pair.until("idle timeout", |p| p.server.closed().is_some());
        assert_eq!(pair.server.closed(), Some(CloseCause::IdleTimeout));
        assert_eq!(pair.server.net.counters().idle_timeouts, 1);
    }

    /// A peer that is not read is not idle, until it is read again.
    pub(crate) fn paused_is_not_idle(mut pair: Pair, client: ConnId, server: ConnId) {
        const IDLE: Duration = Duration::from_millis(30);
        let _ = pair.client.send(client, StreamId::CONTROL, b"x");
        pair.until("byte", |p| !p.server.received(StreamId::CONTROL).is_empty());
        pair.server.net.conn(server).set_idle_timeout(IDLE);
        pair.server.net.conn(server).pause_reading(true);
        let start = StdInstant::now();
        pair.until("time", |_| start.elapsed() > IDLE * 2);
        assert_eq!(pair.server.closed(), None);
        pair.server.net.conn(server).pause_reading(false);
        pair.until("idle timeout", |p| {
            p.server.closed() == Some(CloseCause::IdleTimeout)
        });
    }

    /// A client that says nothing is closed.
    pub(crate) fn silent_client(mut pair: Pair) {
        pair.until("silence ends", |p| p.server.closed().is_some());
        assert_eq!(pair.server.net.counters().silent_timeouts, 1);
        pair.until("client sees it", |p| {
            p.client
                .events
                .iter()
                .any(|e| matches!(e, Ev::Finished(..) | Ev::Closed(..)))
        });
    }

    /// Limits of a side whose peer never completes the handshake.
    pub(crate) fn impatient() -> NetLimits {
        NetLimits {
            handshake_timeout: Duration::from_millis(50),
            ..NetLimits::default()
        }
    }

    /// Limits of a server whose client connects and is silent.
    pub(crate) fn awaiting_bytes() -> NetLimits {
        NetLimits {
            first_bytes_timeout: Duration::from_millis(50),
            ..NetLimits::default()
        }
    }
}
