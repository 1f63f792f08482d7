//! What is set about the network of a QUIC connection can be seen on the wire:
//! marks, packet sizes, the round trip that is assumed at first.

use core::net::SocketAddr;
use core::time::Duration;
use std::io::IoSliceMut;
use std::net::UdpSocket;
use std::time::Instant as StdInstant;

use dunlin_base::StreamId;
use dunlin_base::transport::Transport;
use quinn_udp::{EcnCodepoint, RecvMeta, UdpSocketState};

use super::certs::{dial_to, listen_on};
use super::raw::first_datagram;
use super::{PATIENCE, Pair, Side, loopback};
use crate::{DialConfig, ListenerConfig, NetLimits, QuicTuning};

fn listen(tuning: &QuicTuning) -> ListenerConfig {
    let mut config = listen_on(Transport::Quic);
    config.quic = tuning.clone();
    config
}

fn dial(addr: SocketAddr, tuning: &QuicTuning) -> DialConfig {
    let mut config = dial_to(Transport::Quic, addr);
    config.quic = tuning.clone();
    config
}

/// A socket of the test, and the mark of the first datagram that it gets.
struct Watcher {
    socket: UdpSocket,
    state: UdpSocketState,
}

impl Watcher {
    fn new() -> Self {
        let socket = UdpSocket::bind(loopback()).unwrap();
        let state = UdpSocketState::new((&socket).into()).unwrap();
        Self { socket, state }
    }

    fn mark(&self, side: &mut Side) -> Option<EcnCodepoint> {
        let start = StdInstant::now();
        let mut bytes = [0; 65_536];
        while start.elapsed() < PATIENCE {
            side.poll();
            let mut meta = [RecvMeta::default()];
            let mut slices = [IoSliceMut::new(&mut bytes)];
            let got = self
                .state
                .recv((&self.socket).into(), &mut slices, &mut meta);
            if got.is_ok() {
                return meta[0].ecn;
            }
        }
        panic!("no datagram");
    }
}

#[test]
fn datagrams_are_marked_unless_it_is_switched_off() {
    for ecn in [true, false] {
        let mut tuning = QuicTuning::default();
        tuning.ecn = ecn;
        let expected = ecn.then_some(EcnCodepoint::Ect0);
        let mut server = Side::new(NetLimits::default());
        let addr = server.net.listen(listen(&tuning)).unwrap();
        let watcher = Watcher::new();
        watcher.socket.send_to(&first_datagram(addr), addr).unwrap();
        assert_eq!(watcher.mark(&mut server), expected, "of a listener");

        let watcher = Watcher::new();
        let mut client = Side::new(NetLimits::default());
        let addr = watcher.socket.local_addr().unwrap();
        let _ = client.net.dial(&dial(addr, &tuning)).unwrap();
        assert_eq!(watcher.mark(&mut client), expected, "of a client");
    }
}

#[test]
fn larger_packets_are_searched_for_unless_it_is_switched_off() {
    let on = QuicTuning::default();
    let mut off = QuicTuning::default();
    off.mtu_discovery = false;
    let mtu = |side: &mut Side, conn| side.net.conn(conn).stats().unwrap().quic.unwrap().mtu;
    // A server that does not search lets its clients do so.
    let mut pair = Pair::new();
    let (client, server) = pair.connect(listen(&off), |addr| dial(addr, &on));
    pair.until("larger packets", |p| mtu(&mut p.client, client) > 1400);
    assert_eq!(mtu(&mut pair.server, server), 1200);
    // A client that does not search does not want to be searched for.
    let mut pair = Pair::new();
    let (client, server) = pair.connect(listen(&on), |addr| dial(addr, &off));
    let more = super::pattern(20_000);
    let _ = pair.client.send(client, StreamId::CONTROL, &more);
    pair.until("bytes", |p| {
        p.server.received_len(StreamId::CONTROL) == more.len()
    });
    let _ = pair.server.send(server, StreamId::CONTROL, &more);
    pair.until("bytes", |p| {
        p.client.received_len(StreamId::CONTROL) == more.len()
    });
    assert_eq!(mtu(&mut pair.client, client), 1200);
    assert_eq!(mtu(&mut pair.server, server), 1200);
}

#[test]
fn the_initial_round_trip_is_assumed_until_it_is_measured() {
    let silent = UdpSocket::bind(loopback()).unwrap();
    let addr = silent.local_addr().unwrap();
    for millis in [20, 600] {
        let mut tuning = QuicTuning::default();
        tuning.initial_rtt = Duration::from_millis(millis);
        let mut client = Side::new(NetLimits::default());
        let conn = client.net.dial(&dial(addr, &tuning)).unwrap();
        let stats = client.net.conn(conn).stats().unwrap().quic.unwrap();
        assert_eq!(stats.rtt, tuning.initial_rtt);
    }
}
