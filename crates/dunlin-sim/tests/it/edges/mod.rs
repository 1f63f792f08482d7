//! Several processes: homes with a store, and edges that come and go.

mod amqp;
mod clients;
mod groups;
mod lives;

use core::time::Duration;
use std::collections::BTreeMap;

use dunlin_base::transport::Transport;
use dunlin_base::{ConnId, QoS, StreamId};
use dunlin_mqtt_codec::{Version, decode, peek};
use dunlin_sim::{
    AmqpClient, Peer, PeerOptions, Setup, ToClient, World, encode, is_ready, open_on, run, show,
};

const HOMES: u16 = 2;

/// Places of shards.
const HOME: usize = 0;
const EDGES: [usize; 2] = [2, 3];

const ALL_QOS: [QoS; 3] = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];

fn setup(seed: u64) -> Setup {
    let mut setup = Setup::new(HOMES, seed);
    setup.edges = 2;
    setup.transport = match seed % 2 {
        0 => Transport::Quic,
        _ => Transport::Tcp,
    };
    setup
}

fn begin(setup: Setup) -> World {
    let mut world = World::new(setup);
    settle(&mut world);
    assert!(is_ready(&world, 0) && is_ready(&world, 1));
    world
}

fn settle(world: &mut World) {
    while world.next_before_quiet().is_some() {}
}

fn peer_at(place: usize, id: &str, expiry_secs: u32, filters: &[(&str, QoS)]) -> Peer {
    let mut peer = Peer::new(PeerOptions {
        expiry_secs,
        ..PeerOptions::new(id, filters)
    });
    peer.at = Some(place);
    peer.clean = expiry_secs == 0;
    peer
}

fn pass(world: &mut World, peers: &mut [Peer]) {
    run(world, peers, Duration::from_secs(1));
}

fn payloads(peer: &Peer) -> Vec<&str> {
    let received = peer.received.iter();
    received.map(|message| message.payload.as_str()).collect()
}

/// Nothing waits and nothing is left of those that have gone.
fn check_quiet(world: &World) {
    let census = world.census();
    let waits = (census.pending, census.prepared, census.store_requests);
    assert_eq!(waits, (0, 0, 0), "{census:?}");
    assert_eq!(census.miscounted_bytes, 0, "{census:?}");
}

/// What a client without an engine sees.
#[derive(Default)]
struct Raw {
    seen: BTreeMap<ConnId, Vec<u8>>,
    closed: Vec<ConnId>,
}

impl Raw {
    fn settle(&mut self, world: &mut World) {
        while let Some((conn, event)) = world.next_before_quiet() {
            match event {
                ToClient::Bytes(_, bytes) => self.seen.entry(conn).or_default().extend(bytes),
                ToClient::Closed(_) => self.closed.push(conn),
                _ => {}
            }
        }
    }

    fn say(&mut self, world: &mut World, conn: ConnId, line: &str) {
        let version = match line.contains(" v4 ") {
            true => Version::V311,
            false => Version::V5,
        };
        world.send(conn, StreamId::CONTROL, &encode(line, version));
        self.settle(world);
    }

    /// Packets since the last call.
    fn take(&mut self, conn: ConnId) -> Vec<String> {
        let bytes = self.seen.remove(&conn).unwrap_or_default();
        let (mut rest, mut lines) = (&bytes[..], Vec::new());
        while let Ok(Some(head)) = peek(rest, u32::MAX) {
            let (packet, behind) = rest.split_at(head.total_len);
            let packet = decode(packet, Version::V5).expect("a packet");
            lines.push(show(&packet, Version::V5));
            rest = behind;
        }
        lines
    }
}

fn amqp_at(world: &mut World, place: usize) -> AmqpClient {
    let conn = open_on(world, place, "amqp");
    AmqpClient::new(world, conn, StreamId::CONTROL, None)
}
