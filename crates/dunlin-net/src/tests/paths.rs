//! What a server must not do before an address is proved, and what a change of
//! address in the middle of a handshake leads to.

use std::net::UdpSocket;
use std::sync::Arc;

use super::certs::{dial_to, listen_on};
use super::*;
use crate::{Move, MoveError, TicketLimits};

/// Bytes that a server may send to an address that is not proved, for each
/// that it received from there (RFC 9000 section 8).
const AMPLIFICATION_MAX: usize = 3;

fn bound(ip: [u8; 4]) -> UdpSocket {
    let socket = UdpSocket::bind(SocketAddr::from((ip, 0))).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// Everything that waits at a socket; bytes of it.
pub(super) fn drain(socket: &UdpSocket) -> usize {
    let mut buf = [0; 65_536];
    core::iter::from_fn(|| socket.recv(&mut buf).ok()).sum()
}

/// Between the two sides, with an outgoing address that can be changed. What
/// the server sends to an address that was left is lost, as behind a NAT.
pub(super) struct Between {
    pub(super) inside: UdpSocket,
    outside: UdpSocket,
    server: SocketAddr,
    client: Option<SocketAddr>,
    /// Datagrams of the client that went on.
    forwarded: usize,
}

impl Between {
    fn new(server: SocketAddr) -> Self {
        Self {
            inside: bound([127, 0, 0, 1]),
            outside: bound([127, 0, 0, 1]),
            server,
            client: None,
            forwarded: 0,
        }
    }

    fn rebind(&mut self) {
        self.outside = bound([127, 0, 0, 1]);
    }

    pub(super) fn step(&mut self) {
        self.up(usize::MAX);
        self.down();
    }

    /// Forwards at most so many datagrams of the client.
    fn up(&mut self, max: usize) {
        let mut buf = [0; 2000];
        for _ in 0..max {
            let Ok((n, from)) = self.inside.recv_from(&mut buf) else {
                break;
            };
            self.client = Some(from);
            self.outside.send_to(&buf[..n], self.server).unwrap();
            self.forwarded += 1;
        }
    }

    fn down(&self) {
        let mut buf = [0; 2000];
        while let Ok((n, _)) = self.outside.recv_from(&mut buf) {
            if let Some(client) = self.client {
                self.inside.send_to(&buf[..n], client).unwrap();
            }
        }
    }
}

/// Someone who can send from a victim's address gets the newest packet of a
/// connection through first. The victim must not be flooded.
#[test]
fn an_address_that_is_not_proved_gets_three_times_what_came_from_it() {
    for forged_ip in [[127, 0, 0, 1], [127, 0, 0, 2]] {
        let mut pair = Pair::new();
        let (client, server, mut between) = through_nat(&mut pair);
        let to = between.server;
        // The newest packet of the client comes from the victim's address.
        let victim = bound(forged_ip);
        let _ = pair.client.send(client, StreamId::CONTROL, b" forged");
        let start = StdInstant::now();
        let mut buf = [0; 2000];
        let forged = loop {
            assert!(start.elapsed() < PATIENCE);
            pair.client.poll();
            if let Ok((n, _)) = between.inside.recv_from(&mut buf) {
                break n;
            }
        };
        victim.send_to(&buf[..forged], to).unwrap();
        pair.until_server_has(b"hello forged");
        let flood = pattern(100_000);
        let _ = pair.server.send(server, StreamId::CONTROL, &flood);
        // Until it gives the path up; the client is not polled, so that only
        // the server's own timers do.
        let mut flooded = 0;
        let start = StdInstant::now();
        while pair.server.net.counters().migrations_unproved == 0 {
            assert!(start.elapsed() < PATIENCE);
            pair.server.poll();
            flooded += drain(&victim);
        }
        flooded += drain(&victim);
        let max = AMPLIFICATION_MAX * forged;
        assert!(flooded > 0, "the address was never challenged");
        assert!(flooded <= max, "{flooded} bytes for {forged}");
        assert_eq!(pair.server.net.counters().migrations, 0);
        // The owner of the connection notices nothing.
        pair.until("everything", |p| {
            between.step();
            p.client.received_len(StreamId::CONTROL) == flood.len()
        });
        assert!(pair.client.received(StreamId::CONTROL) == flood);
        assert_eq!(pair.server.closed(), None);
        flooded += drain(&victim);
        assert!(flooded <= max, "{flooded} bytes for {forged} in all");
    }
}

#[test]
fn nothing_moves_before_the_handshake_is_confirmed() {
    let mut pair = Pair::new();
    let to = pair.server.net.listen(listen_on(Transport::Quic)).unwrap();
    let client = pair.client.net.dial(&dial_to(Transport::Quic, to)).unwrap();
    for how in [Move::Probed, Move::AtOnce, Move::Rebound] {
        let refused = pair.client.net.migrate(client, None, how);
        assert!(
            matches!(refused, Err(MoveError::Handshaking)),
            "{refused:?}"
        );
    }
    assert_eq!(pair.client.net.sockets(), 1);
    pair.until("connection", |p| p.client.opened().is_some());
    pair.until("confirmation", |p| {
        p.client.net.migrate(client, None, Move::AtOnce).is_ok()
    });
}

/// "The design of QUIC relies on endpoints retaining a stable address for the
/// duration of the handshake" (RFC 9000 section 9): the server drops what comes
/// from elsewhere. Both ends give up in time, early data is not processed
/// again, and the next attempt works.
#[test]
fn a_rebinding_in_the_middle_of_early_data_ends_the_attempt_only() {
    let limits = NetLimits {
        handshake_timeout: Duration::from_millis(700),
        ..NetLimits::default()
    };
    let mut config = NetConfig::client(Clock::new()).unwrap();
    config.limits = limits.clone();
    let register = TicketRegister::in_memory(TicketLimits::default());
    config.tickets = Some(Arc::new(register));
    let server = Side {
        net: Net::new(config).unwrap(),
        events: Vec::new(),
    };
    let client = Side::new(limits);
    let mut pair = Pair { client, server };
    let to = pair.server.net.listen(listen_on(Transport::Quic)).unwrap();
    let mut between = Between::new(to);
    let mut dial = dial_to(Transport::Quic, between.inside.local_addr().unwrap());
    dial.early_data = true;
    let first = pair.client.net.dial(&dial).unwrap();
    pair.until("opened", |p| {
        between.step();
        p.client.opened().is_some() && p.server.opened().is_some()
    });
    let _ = pair.client.send(first, StreamId::CONTROL, b"tickets");
    pair.client.net.close(first, 0);
    pair.until("closed", |p| {
        between.step();
        p.client.closed().is_some() && p.server.closed().is_some()
    });
    pair.client.events.clear();
    pair.server.events.clear();

    let early = pair.client.net.dial(&dial).unwrap();
    pair.client.poll();
    assert!(pair.client.opened().unwrap().1.early_data);
    let _ = pair.client.send(early, StreamId::CONTROL, b"early");
    // The first datagram brings all of it, and no other gets through before
    // the NAT forgets: the server cannot finish the handshake.
    between.forwarded = 0;
    pair.until("early bytes", |p| {
        between.up(1 - between.forwarded);
        p.server.received(StreamId::CONTROL) == b"early"
    });
    between.rebind();
    pair.until("both ends", |p| {
        between.step();
        p.client.closed().is_some() && p.server.closed().is_some()
    });
    for side in [&pair.client, &pair.server] {
        assert_eq!(side.closed(), Some(CloseCause::HandshakeTimeout));
    }
    assert_eq!(pair.server.received(StreamId::CONTROL), b"early", "once");
    assert_eq!(pair.server.net.counters().migrations, 0);
    pair.until("nothing left", |p| {
        p.client.net.connections() + p.server.net.connections() == 0
    });

    pair.client.events.clear();
    pair.server.events.clear();
    let again = pair.client.net.dial(&dial).unwrap();
    let _ = pair.client.send(again, StreamId::CONTROL, b"again");
    pair.until("bytes", |p| {
        between.step();
        p.server.received(StreamId::CONTROL) == b"again" && p.client.opened().is_some()
    });
}

/// Between the server's last flight and the client's confirmation the server
/// knows the client already: then it follows.
#[test]
fn a_rebinding_right_after_the_handshake_is_followed() {
    let mut pair = Pair::new();
    let to = pair.server.net.listen(listen_on(Transport::Quic)).unwrap();
    let mut between = Between::new(to);
    let through = between.inside.local_addr().unwrap();
    let client = pair
        .client
        .net
        .dial(&dial_to(Transport::Quic, through))
        .unwrap();
    pair.until("server's end of the handshake", |p| {
        between.step();
        p.server.opened().is_some()
    });
    between.rebind();
    let _ = pair
        .client
        .send(client, StreamId::CONTROL, b"from elsewhere");
    pair.until("bytes", |p| {
        between.step();
        p.server.received(StreamId::CONTROL) == b"from elsewhere"
    });
    let (server, _) = pair.server.opened().unwrap();
    let _ = pair.server.send(server, StreamId::CONTROL, b"answer");
    pair.until("answer", |p| {
        between.step();
        p.client.received(StreamId::CONTROL) == b"answer"
    });
    pair.until("new address", |p| {
        between.step();
        p.server.net.counters().migrations == 1
    });
    assert_eq!(pair.client.closed(), None);
}

/// Waits without polling, so that deadlines pass.
fn pass(time: Duration) {
    let start = StdInstant::now();
    while start.elapsed() < time {
        std::thread::yield_now();
    }
}

/// A connection through a NAT, with a byte from the client.
pub(super) fn through_nat(pair: &mut Pair) -> (ConnId, ConnId, Between) {
    let to = pair.server.net.listen(listen_on(Transport::Quic)).unwrap();
    let mut between = Between::new(to);
    let through = between.inside.local_addr().unwrap();
    let dial = dial_to(Transport::Quic, through);
    let client = pair.client.net.dial(&dial).unwrap();
    pair.until("connection", |p| {
        between.step();
        p.client.opened().is_some() && p.server.opened().is_some()
    });
    let (server, _) = pair.server.opened().unwrap();
    let _ = pair.client.send(client, StreamId::CONTROL, b"hello");
    pair.until("bytes", |p| {
        between.step();
        p.server.received(StreamId::CONTROL) == b"hello"
    });
    (client, server, between)
}

/// Longer than a probe timeout here, and shorter than what anyone gives up at.
const PROBE_TIMEOUT: Duration = Duration::from_millis(300);

/// In one turn a client moves and the timer for what was lost at its old
/// address is due.
#[test]
fn a_loss_is_noticed_in_the_turn_of_a_move() {
    for _ in 0..5 {
        let mut pair = Pair::new();
        let (client, server, mut between) = through_nat(&mut pair);
        between.rebind();
        // It goes to an address that does not exist.
        let _ = pair
            .server
            .send(server, StreamId::CONTROL, b"lost at first");
        pair.server.poll();
        pass(PROBE_TIMEOUT);
        let _ = pair.client.send(client, StreamId::CONTROL, b" moved");
        pair.client.poll();
        between.step();
        pair.server.poll();
        pair.until("what was lost", |p| {
            between.step();
            p.client.received(StreamId::CONTROL) == b"lost at first"
        });
        assert_eq!(pair.server.closed(), None);
    }
}

/// An address is given up while something that was sent there is in flight,
/// and nothing is at the old one.
#[test]
fn a_connection_that_returns_goes_on_without_news() {
    let mut pair = Pair::new();
    let (client, server, mut between) = through_nat(&mut pair);
    let victim = bound([127, 0, 0, 2]);
    let _ = pair.client.send(client, StreamId::CONTROL, b" forged");
    pair.client.poll();
    let mut buf = [0; 2000];
    let (n, _) = between.inside.recv_from(&mut buf).unwrap();
    victim.send_to(&buf[..n], between.server).unwrap();
    pair.until("return", |p| {
        p.server.poll();
        p.server.net.counters().migrations_unproved == 1
    });
    // Timers of the path that was given up would be due by then.
    let start = StdInstant::now();
    while start.elapsed() < PROBE_TIMEOUT * 5 {
        pair.server.poll();
    }
    let _ = pair.server.send(server, StreamId::CONTROL, b"news");
    pair.until("news", |p| {
        between.step();
        p.client.received(StreamId::CONTROL) == b"news"
    });
    assert_eq!(pair.server.closed(), None);
}
