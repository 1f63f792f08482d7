//! How connections end: who tells whom, and that no more is said than needed.

use std::sync::{Arc, Mutex};

use dunlin_base::transport::{CloseCause, Transport};
use dunlin_base::{ConnId, StreamId};

use super::certs::{dial_to, listen_on};
use super::expect_more;
use super::{Ev, Pair, Side};
use crate::{NetLimits, SessionTickets, TicketLimits, TicketRegister};

/// Counts tickets.
#[derive(Debug, Default)]
struct Came(Mutex<usize>);

impl SessionTickets for Came {
    fn insert(&self, _: Vec<u8>) {
        *self.0.lock().unwrap() += 1;
    }

    fn take(&self) -> Option<Vec<u8>> {
        None
    }
}

fn pair(came: &Arc<Came>) -> (Pair, ConnId, ConnId) {
    let register = TicketRegister::in_memory(TicketLimits::default());
    let mut pair = Pair {
        client: Side::new(NetLimits::default()),
        server: Side::with_tickets(Arc::new(register)),
    };
    let addr = pair.server.net.listen(listen_on(Transport::Quic)).unwrap();
    let mut dial = dial_to(Transport::Quic, addr);
    dial.tickets = Some(Arc::clone(came) as _);
    dial.quic.mtu_discovery = false;
    let client = pair.client.net.dial(&dial).unwrap();
    pair.until("opened", |p| p.client.opened().is_some());
    let _ = pair.client.send(client, StreamId::CONTROL, b"goodbye");
    pair.client.net.close(client, 0);
    pair.until_server_has(b"goodbye");
    let (server, _) = pair.server.opened().unwrap();
    (pair, client, server)
}

#[test]
fn a_goodbye_is_answered_with_the_end_and_tickets_come_before() {
    let came = Arc::new(Came::default());
    let (mut pair, client, server) = pair(&came);
    pair.server.net.conn(server).close_promptly(0);
    pair.until_closed();
    assert_eq!(pair.server.closed(), Some(CloseCause::Local));
    assert!(
        pair.client
            .events
            .contains(&Ev::Closed(client, CloseCause::Peer { code: 0 }))
    );
    assert_eq!(*came.0.lock().unwrap(), 2);
    // The client has heard it, and keeps silent.
    let sent = pair.client.net.counters().datagrams_out;
    pair.client.net.flush();
    assert_eq!(pair.client.net.counters().datagrams_out, sent);
}

#[test]
fn what_was_written_when_more_was_to_come_leaves_before_the_end() {
    let mut pair = Pair::new();
    let (client, server) = pair.connect(listen_on(Transport::Quic), |addr| {
        dial_to(Transport::Quic, addr)
    });
    let _ = pair.client.send(client, StreamId::CONTROL, b"question");
    pair.until_server_has(b"question");
    let _ = pair.server.send(server, StreamId::CONTROL, b"answer");
    pair.until_client_has(b"answer");
    // The rest never comes: the peer is known to part before.
    expect_more(&mut pair.server.net, server);
    let _ = pair.server.send(server, StreamId::CONTROL, b", and");
    pair.server.net.conn(server).close_promptly(0);
    pair.until("end", |p| p.client.closed().is_some());
    assert_eq!(pair.client.received(StreamId::CONTROL), b"answer, and");
}

#[test]
fn the_end_has_been_sent_when_it_is_reported() {
    let came = Arc::new(Came::default());
    let (mut pair, _, server) = pair(&came);
    pair.server.net.close(server, 0);
    pair.until("end", |p| p.client.closed().is_some());
    let sent = pair.client.net.counters().datagrams_out;
    pair.client.net.flush();
    assert_eq!(pair.client.net.counters().datagrams_out, sent);
    pair.until("end", |p| p.server.closed().is_some());
}
