//! Where sessions live: a client identifier has one session on whichever shard its
//! connections came to, and nothing of it is left when its clients have gone.

use std::collections::BTreeMap;

use core::time::Duration;

use dunlin_base::transport::Transport;
use dunlin_base::{ConnId, StreamId};
use dunlin_broker::Census;
use dunlin_mqtt_codec::Version;
use dunlin_sim::{Random, Setup, ToClient, World, encode};

const SHARDS: u16 = 3;
const ATTEMPTS: u64 = 120;
const CLIENTS: [&str; 4] = ["a", "b", "c", "d"];

/// What a client has got on its connections.
#[derive(Default)]
struct Seen {
    accepted: Vec<ConnId>,
    closed: Vec<ConnId>,
}

impl Seen {
    fn take(&mut self, conn: ConnId, event: &ToClient) {
        match event {
            // CONNACK with Success.
            ToClient::Bytes(_, bytes) if bytes.first() == Some(&0x20) && bytes[3] == 0 => {
                self.accepted.push(conn);
            }
            ToClient::Closed(_) => self.closed.push(conn),
            _ => {}
        }
    }

    /// Connections that have a session.
    fn open(&self) -> Vec<ConnId> {
        let accepted = self.accepted.iter().copied();
        accepted
            .filter(|conn| !self.closed.contains(conn))
            .collect()
    }
}

fn settle(world: &mut World, seen: &mut Seen) {
    while let Some((conn, event)) = world.next_before_quiet() {
        seen.take(conn, &event);
    }
}

fn play(seed: u64, transport: Transport) {
    let mut setup = Setup::new(SHARDS, seed);
    setup.transport = transport;
    let mut world = World::new(setup);
    let mut random = Random::new(seed);
    let mut seen = Seen::default();
    let mut of: BTreeMap<ConnId, &str> = BTreeMap::new();
    for _ in 0..ATTEMPTS {
        let id = CLIENTS[random.below(CLIENTS.len() as u64) as usize];
        let conn = world.open();
        of.insert(conn, id);
        let (line, version) = match random.below(5) {
            0 => (format!("CONNECT {id} expiry=30"), Version::V5),
            1 => (format!("CONNECT {id} v4 clean"), Version::V311),
            2 => (format!("CONNECT {id} clean will=w:x"), Version::V5),
            _ => (format!("CONNECT {id} clean"), Version::V5),
        };
        world.send(conn, StreamId::CONTROL, &encode(&line, version));
        if random.one_in(6) {
            world.cut(conn);
        }
        let until = world.now() + Duration::from_micros(random.below(6_000));
        while let Some((conn, event)) = world.next(until) {
            seen.take(conn, &event);
        }
        if random.one_in(10) {
            settle(&mut world, &mut seen);
            let mut held: Vec<&str> = seen.open().iter().map(|conn| of[conn]).collect();
            let all = held.len();
            held.sort_unstable();
            held.dedup();
            assert_eq!(held.len(), all, "two connections have one session, {seed}");
        }
    }
    settle(&mut world, &mut seen);
    let census = world.census();
    assert!(census.sessions <= CLIENTS.len(), "{census:?}, seed {seed}");
    for conn in seen.open() {
        world.cut(conn);
    }
    settle(&mut world, &mut seen);
    // Sessions with an expiry are left for so long.
    let until = world.now() + Duration::from_secs(60);
    while let Some((conn, event)) = world.next(until) {
        seen.take(conn, &event);
    }
    assert_eq!(
        world.census(),
        Census::default(),
        "left behind, seed {seed}"
    );
}

#[test]
fn a_client_identifier_has_one_session() {
    //= mqtt5#[MQTT-3.1.4-3] type=test
    for seed in 0..60 {
        play(seed, Transport::Quic);
        play(seed, Transport::Tcp);
    }
}
