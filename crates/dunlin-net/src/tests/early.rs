//! Early data over real sockets: taken, refused, waiting for its strike.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use dunlin_base::transport::Transport;
use dunlin_base::{ConnId, StreamId};

use super::certs::{client_builder, dial_to, listen_on};
use super::expect_more;
use super::{Ev, Pair, Side};
use crate::{
    Counters, DialConfig, NetLimits, SessionTickets, TicketChange, TicketLimits, TicketRegister,
};

/// A server with tickets and a client that keeps them in memory.
struct Rig {
    pair: Pair,
    dial: DialConfig,
}

impl Rig {
    fn new(register: TicketRegister) -> Self {
        let server = Side::with_tickets(Arc::new(register));
        let client = Side::new(NetLimits::default());
        let mut pair = Pair { client, server };
        let addr = pair.server.net.listen(listen_on(Transport::Quic)).unwrap();
        let mut dial = dial_to(Transport::Quic, addr);
        dial.early_data = true;
        Self { pair, dial }
    }

    /// Connects, says something, closes: the client has tickets then.
    fn fetch_tickets(&mut self) {
        let conn = self.pair.client.net.dial(&self.dial).unwrap();
        self.pair.until("opened", |p| p.client.opened().is_some());
        let _ = self.pair.client.send(conn, StreamId::CONTROL, b"first");
        self.finish(conn);
        self.pair.client.events.clear();
        self.pair.server.events.clear();
    }

    fn finish(&mut self, conn: ConnId) {
        self.pair.client.net.close(conn, 0);
        self.pair.until_closed();
    }

    /// Dials and sends at once; nothing has gone out yet.
    fn dial_early(&mut self, bytes: &[u8]) -> ConnId {
        let conn = self.pair.client.net.dial(&self.dial).unwrap();
        self.pair.client.poll();
        let (_, peer) = self.pair.client.opened().expect("open at once");
        assert!(peer.early_data);
        let _ = self.pair.client.send(conn, StreamId::CONTROL, bytes);
        conn
    }

    fn counters(&self) -> (Counters, Counters) {
        let of = |side: &Side| *side.net.counters();
        (of(&self.pair.client), of(&self.pair.server))
    }
}

fn verdict(side: &Side) -> Option<bool> {
    side.events.iter().find_map(|e| match e {
        Ev::EarlyData(_, accepted) => Some(*accepted),
        _ => None,
    })
}

#[test]
fn early_data_is_answered_before_the_handshake_ends() {
    let mut rig = Rig::new(TicketRegister::in_memory(TicketLimits::default()));
    rig.fetch_tickets();
    assert_eq!(rig.counters().1.tickets_issued, 2);
    let conn = rig.dial_early(b"hello");
    // One datagram brings ClientHello and data.
    rig.pair.client.net.flush();
    let before = rig.counters().0.datagrams_out;
    rig.pair.until("early bytes", |p| {
        p.server.poll();
        p.server.received(StreamId::CONTROL) == b"hello"
    });
    let (server, peer) = rig.pair.server.opened().unwrap();
    assert!(peer.early_data);
    assert_eq!(rig.counters().0.datagrams_out, before, "client was silent");
    assert_eq!(verdict(&rig.pair.server), None);
    let _ = rig.pair.server.send(server, StreamId::CONTROL, b"half");
    rig.pair.until("answer", |p| {
        p.client.received(StreamId::CONTROL) == b"half" && verdict(&p.server).is_some()
    });
    assert_eq!(verdict(&rig.pair.client), Some(true));
    assert_eq!(verdict(&rig.pair.server), Some(true));
    rig.finish(conn);
    let (client, server) = rig.counters();
    assert_eq!((client.early_data_sent, server.early_data_accepted), (1, 1));
}

/// Who says that more follows has all of it leave with the handshake.
#[test]
fn an_answer_that_is_not_complete_waits_for_its_rest() {
    let mut rig = Rig::new(TicketRegister::in_memory(TicketLimits::default()));
    rig.fetch_tickets();
    let silent = rig.counters().1.datagrams_out;
    rig.dial_early(b"hello");
    rig.pair.client.net.flush();
    rig.pair.until("early bytes", |p| {
        p.server.poll();
        p.server.received(StreamId::CONTROL) == b"hello"
    });
    if rig.counters().1.datagrams_out > silent {
        eprintln!("not looked at: this machine is too slow for what waits 25 ms");
        return;
    }
    let (server, _) = rig.pair.server.opened().unwrap();
    let side = &mut rig.pair.server;
    expect_more(&mut side.net, server);
    let _ = side.send(server, StreamId::CONTROL, b"first ");
    side.net.flush();
    assert_eq!(side.net.counters().datagrams_out, silent);
    let _ = side.send(server, StreamId::CONTROL, b"rest");
    side.net.flush();
    assert_eq!(side.net.counters().datagrams_out, silent + 1);
    rig.pair.until_client_has(b"first rest");
}

#[test]
fn refused_bytes_go_again_once() {
    let mut rig = Rig::new(TicketRegister::in_memory(TicketLimits::default()));
    rig.fetch_tickets();
    // Another server of that name and address knows none of the tickets.
    let addr = rig.dial.addr;
    let register = Arc::new(TicketRegister::in_memory(TicketLimits::default()));
    rig.pair.server = Side::with_tickets(register);
    let mut listen = listen_on(Transport::Quic);
    listen.addr = addr;
    rig.pair.server.net.listen(listen).unwrap();
    let conn = rig.dial_early(b"once");
    let uni = rig.pair.client.net.conn(conn).open_stream(false).unwrap();
    let _ = rig.pair.client.send(conn, uni, b"ended");
    rig.pair.client.net.conn(conn).finish_stream(uni);
    let dropped = rig.pair.client.net.conn(conn).open_stream(true).unwrap();
    let _ = rig.pair.client.send(conn, dropped, b"dropped");
    rig.pair.client.net.conn(conn).reset_stream(dropped, 7);
    rig.pair.client.net.conn(conn).stop_stream(dropped, 7);
    // More than is kept for sending again waits for the verdict.
    let more = super::pattern(200_000);
    let mut left = rig.pair.client.send(conn, StreamId::CONTROL, &more);
    assert_eq!(left, 0);
    rig.pair.until("all bytes", |p| {
        p.server.received_len(StreamId::CONTROL) == 4 + more.len()
            && p.server.received(uni) == b"ended"
    });
    let got = rig.pair.server.received(StreamId::CONTROL);
    assert_eq!(&got[..4], b"once");
    assert!(got[4..] == more, "bytes differ");
    let (server, peer) = rig.pair.server.opened().unwrap();
    assert!(!peer.early_data);
    assert!(rig.pair.server.events.contains(&Ev::Finished(server, uni)));
    rig.pair.until("credit", |p| p.client.sent() == more.len());
    left += rig.pair.client.sent();
    assert_eq!(left, more.len());
    assert_eq!(verdict(&rig.pair.client), Some(false));
    assert!(rig.pair.server.received(dropped).is_empty());
    rig.finish(conn);
    let (client, server) = rig.counters();
    assert_eq!(client.early_data_resent, 1);
    assert_eq!(server.early_data_refused_unknown, 1);
    assert_eq!(server.early_data_accepted, 0);
}

/// A register whose changes come out of a channel.
fn kept() -> (TicketRegister, Receiver<TicketChange>) {
    let (sender, receiver) = channel();
    let keep = move |change| sender.send(change).unwrap();
    let register = TicketRegister::kept_by(TicketLimits::default(), Box::new(keep));
    (register, receiver)
}

fn strike(changes: &Receiver<TicketChange>) -> crate::StrikeId {
    let found = changes.try_iter().find_map(|change| match change {
        TicketChange::Strike { strike, .. } => Some(strike),
        _ => None,
    });
    found.expect("a strike")
}

#[test]
fn early_data_waits_until_its_ticket_is_struck_off_for_good() {
    let (register, changes) = kept();
    let mut rig = Rig::new(register);
    rig.fetch_tickets();
    let conn = rig.dial_early(b"held");
    rig.pair
        .until("client's handshake", |p| verdict(&p.client).is_some());
    assert_eq!(rig.pair.server.events, [], "nothing is reported");
    rig.pair.server.net.handle_struck(strike(&changes), true);
    rig.pair.until_server_has(b"held");
    rig.finish(conn);
}

#[test]
fn a_strike_that_cannot_be_kept_ends_the_connection() {
    let (register, changes) = kept();
    let mut rig = Rig::new(register);
    rig.fetch_tickets();
    let _ = rig.dial_early(b"never");
    rig.pair
        .until("client's handshake", |p| verdict(&p.client).is_some());
    rig.pair.server.net.handle_struck(strike(&changes), false);
    rig.pair.until("end", |p| p.client.closed().is_some());
    assert_eq!(rig.pair.server.events, [], "nothing is reported");
    assert_eq!(rig.counters().1.early_data_unkept, 1);
}

#[test]
fn expired_tickets_and_switched_off_early_data_are_refused_and_told_apart() {
    let clock = Arc::new(AtomicU64::new(1_000_000));
    let ours = Arc::clone(&clock);
    let seconds = move || ours.load(Ordering::Relaxed);
    let register = TicketRegister::with_clock(TicketLimits::default(), None, Box::new(seconds));
    let mut rig = Rig::new(register);
    rig.fetch_tickets();
    clock.fetch_add(24 * 60 * 60, Ordering::Relaxed);
    let conn = rig.dial_early(b"late");
    rig.pair.until_server_has(b"late");
    assert_eq!(rig.counters().1.early_data_refused_expired, 1);
    rig.finish(conn);
    let addr = rig.dial.addr;
    rig.pair.server = Side::new(NetLimits::default());
    let mut listen = listen_on(Transport::Quic);
    listen.addr = addr;
    rig.pair.server.net.listen(listen).unwrap();
    rig.pair.client.events.clear();
    let _ = rig.dial_early(b"off");
    rig.pair.until_server_has(b"off");
    assert_eq!(rig.counters().1.early_data_refused_off, 1);
}

/// Tickets as bytes, as a file would keep them.
#[derive(Debug, Default)]
struct Kept(Mutex<Vec<Vec<u8>>>);

impl SessionTickets for Kept {
    fn insert(&self, ticket: Vec<u8>) {
        self.0.lock().unwrap().push(ticket);
    }

    fn take(&self) -> Option<Vec<u8>> {
        self.0.lock().unwrap().pop()
    }
}

impl Kept {
    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// Another process: another loop, and TLS settings of its own.
fn another_process(rig: &mut Rig, tls: crate::ClientTls) {
    rig.pair.client = Side::new(NetLimits::default());
    rig.dial.tls = Some(Arc::new(tls));
    rig.pair.server.events.clear();
}

#[test]
fn stored_tickets_work_in_another_process() {
    let mut rig = Rig::new(TicketRegister::in_memory(TicketLimits::default()));
    let kept = Arc::new(Kept::default());
    rig.dial.tickets = Some(Arc::clone(&kept) as _);
    rig.fetch_tickets();
    assert_eq!(kept.len(), 2);
    // Again and again: a resumed connection brings tickets too.
    for round in 1..4 {
        another_process(&mut rig, client_builder().build().unwrap());
        let conn = rig.dial_early(b"after a reboot");
        assert_eq!(kept.len(), 1);
        rig.pair.until_server_has(b"after a reboot");
        rig.finish(conn);
        assert_eq!(verdict(&rig.pair.client), Some(true));
        assert_eq!(rig.counters().1.early_data_accepted, round as u64);
        assert_eq!(kept.len(), 3);
        kept.0.lock().unwrap().pop();
    }
}

#[test]
fn a_ticket_is_good_for_the_same_trust_and_identity_only() {
    let mut rig = Rig::new(TicketRegister::in_memory(TicketLimits::default()));
    let kept = Arc::new(Kept::default());
    rig.dial.tickets = Some(Arc::clone(&kept) as _);
    rig.fetch_tickets();
    let ticket = kept.0.lock().unwrap()[0].clone();
    let certs = super::certs::certs();
    let stranger = || crate::ClientTls::builder().ca_pem(certs.stranger.as_bytes());
    let device =
        || client_builder().client_cert_pem(certs.device.0.as_bytes(), certs.device.1.as_bytes());
    let mut altered = ticket.clone();
    altered.truncate(100);
    let mut other_key = ticket.clone();
    // Within the ticket's key: the server knows another.
    other_key[50] ^= 1;
    let none = |ticket: &[u8], tls: crate::ClientTls, rig: &mut Rig| {
        *kept.0.lock().unwrap() = vec![ticket.to_vec()];
        another_process(rig, tls);
        let conn = rig.pair.client.net.dial(&rig.dial).unwrap();
        rig.pair.client.poll();
        assert_eq!(rig.pair.client.events, [], "not open at once");
        rig.pair.client.net.conn(conn).abort();
    };
    none(&ticket, stranger().unwrap().build().unwrap(), &mut rig);
    none(&ticket, device().unwrap().build().unwrap(), &mut rig);
    none(&altered, client_builder().build().unwrap(), &mut rig);
    none(b"", client_builder().build().unwrap(), &mut rig);
    let spoken = core::mem::replace(&mut rig.dial.protocols, vec!["other".into()]);
    none(&ticket, client_builder().build().unwrap(), &mut rig);
    rig.dial.protocols = spoken;
    // A wrong key is found out by the server, which ends the handshake.
    *kept.0.lock().unwrap() = vec![other_key];
    another_process(&mut rig, client_builder().build().unwrap());
    let _ = rig.dial_early(b"forged");
    rig.pair.until("end", |p| p.client.closed().is_some());
    assert_eq!(rig.pair.server.events, []);
    // And the ticket is used up by that.
    *kept.0.lock().unwrap() = vec![ticket];
    another_process(&mut rig, client_builder().build().unwrap());
    let _ = rig.dial_early(b"again");
    rig.pair.until_server_has(b"again");
    assert_eq!(verdict(&rig.pair.client), Some(false));
    assert_eq!(rig.counters().1.early_data_refused_used, 1);
}

#[test]
fn an_altered_ticket_is_none_to_its_server() {
    let mut rig = Rig::new(TicketRegister::in_memory(TicketLimits::default()));
    let kept = Arc::new(Kept::default());
    rig.dial.tickets = Some(Arc::clone(&kept) as _);
    rig.fetch_tickets();
    let mut record = dunlin_quic::Record::decode(&kept.0.lock().unwrap()[0]).unwrap();
    // RFC 8446 section 4.6.1: lifetime, age, nonce with its length, then the
    // ticket with its own.
    let ticket = 4 + 4 + 1 + usize::from(record.message[8]) + 2;
    for at in [0, 7] {
        record.message[ticket + at] ^= 0x10;
        *kept.0.lock().unwrap() = vec![record.encode().unwrap()];
        another_process(&mut rig, client_builder().build().unwrap());
        let refused = rig.counters().1.early_data_refused_unknown;
        let conn = rig.dial_early(b"not lost");
        rig.pair.until_server_has(b"not lost");
        rig.finish(conn);
        assert_eq!(verdict(&rig.pair.client), Some(false));
        let counters = rig.counters().1;
        assert_eq!(counters.early_data_refused_unknown, refused + 1);
        assert_eq!(counters.early_data_accepted, 0);
    }
}

#[test]
fn a_resumed_connection_has_the_identity_of_the_one_before() {
    let certs = super::certs::certs();
    let register = TicketRegister::in_memory(TicketLimits::default());
    let server = Side::with_tickets(Arc::new(register));
    let mut pair = Pair {
        client: Side::new(NetLimits::default()),
        server,
    };
    let mut options = super::certs::server_options();
    options.client_ca_pem = Some(certs.ca.clone().into());
    options.require_client_cert = true;
    let mut listen = listen_on(Transport::Quic);
    listen.tls = Some(Arc::new(crate::ServerTls::new(&options).unwrap()));
    let addr = pair.server.net.listen(listen).unwrap();
    let tls = || {
        let (cert, key) = &certs.device;
        let builder = client_builder().client_cert_pem(cert.as_bytes(), key.as_bytes());
        builder.unwrap().build().unwrap()
    };
    let mut dial = dial_to(Transport::Quic, addr);
    dial.early_data = true;
    dial.tls = Some(Arc::new(tls()));
    dial.tickets = Some(Arc::new(Kept::default()));
    let mut rig = Rig { pair, dial };
    rig.fetch_tickets();
    another_process(&mut rig, tls());
    let _ = rig.dial_early(b"me again");
    rig.pair.until("bytes", |p| {
        !p.server.received(StreamId::CONTROL).is_empty()
    });
    let (_, peer) = rig.pair.server.opened().unwrap();
    assert!(peer.early_data);
    assert_eq!(peer.identity.as_deref(), Some("device-7"));
}
