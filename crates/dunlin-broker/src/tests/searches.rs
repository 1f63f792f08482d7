//! What one message costs: how many tables are searched for it, and what is kept
//! of it.

use alloc::vec::Vec;

use dunlin_base::transport::{CloseCause, NetCommandKind, NetEvent, NetEventKind, Peer, Transport};
use dunlin_base::{ConnId, Instant, ShardId, StreamId};
use dunlin_store::{Request, StoreDone};

use crate::config::{Config, SysTopics};
use crate::io::{Input, Output};
use crate::memory::Part;
use crate::shard::Shard;

/// Searches by connection, session, topic or token, from a QoS 1 PUBLISH of
/// one client to its PUBACK and to the PUBACK of its one receiver.
const SEARCHES_MAX: u64 = 4;

/// CONNECT of MQTT 5.0, Clean Start 0, with this Session Expiry Interval.
fn connect(id: u8, expiry_secs: u8) -> Vec<u8> {
    let head = [0x10, 19, 0, 4, b'M', b'Q', b'T', b'T', 5, 0, 0, 0, 5, 0x11];
    let mut packet = head.to_vec();
    packet.extend_from_slice(&[0, 0, 0, expiry_secs, 0, 1, id]);
    packet
}

const SUBSCRIBE: [u8; 9] = [0x82, 7, 0, 1, 0, 0, 1, b't', 1];
const PUBLISH: [u8; 8] = [0x32, 6, 0, 1, b't', 0, 7, 0];
const PUBACK: [u8; 4] = [0x40, 2, 0, 1];

const CONN: ConnId = ConnId::new(ShardId(0), 1);

struct World {
    shard: Shard,
    sent: Vec<(ConnId, Vec<u8>)>,
}

impl World {
    fn new() -> Self {
        Self::new_with(|_| {})
    }

    fn new_with(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config {
            sys: SysTopics::quiet(),
            ..Config::default()
        };
        change(&mut config);
        Self {
            shard: Shard::new(config, Instant::from_micros(1)),
            sent: Vec::new(),
        }
    }

    /// How many batches the store is asked for when these bytes come. It does not answer.
    fn asked_by(&mut self, conn: ConnId, data: &[u8]) -> usize {
        let stream = StreamId::CONTROL;
        let kind = NetEventKind::Bytes { stream, data };
        let input = Input::Net(NetEvent::new(conn, kind));
        self.shard.handle(Instant::from_micros(1), input);
        let outputs = core::iter::from_fn(|| self.shard.poll_output());
        let asked = outputs.filter(|it| matches!(it, Output::Store(Request::Write(_))));
        asked.count()
    }

    fn bytes(&mut self, conn: ConnId, data: &[u8]) {
        let stream = StreamId::CONTROL;
        let kind = NetEventKind::Bytes { stream, data };
        self.input(Input::Net(NetEvent::new(conn, kind)));
    }

    /// Hands something to the shard, and lets the store commit at once.
    fn input(&mut self, input: Input<'_>) {
        let now = Instant::from_micros(1);
        self.shard.handle(now, input);
        while let Some(output) = self.shard.poll_output() {
            match output {
                Output::Store(Request::Write(batch)) => {
                    let token = batch.token;
                    let done = StoreDone::Committed { token };
                    self.shard.handle(now, Input::Store(done));
                }
                Output::Net(command) => {
                    if let NetCommandKind::Send { data, .. } = command.kind {
                        let bytes = data.slices().flatten().copied().collect();
                        self.sent.push((command.conn, bytes));
                    }
                }
                _ => {}
            }
        }
    }

    fn opened(&mut self, conn: ConnId) {
        let peer = Peer {
            addr: ([127, 0, 0, 1], 1).into(),
            transport: Transport::Tcp,
            listener: 0,
            identity: None,
            protocol: dunlin_base::Text::new(),
            early_data: false,
            binding: None,
        };
        let kind = NetEventKind::Opened { peer };
        self.input(Input::Net(NetEvent::new(conn, kind)));
    }

    fn open(&mut self, conn: ConnId, expiry_secs: u8) {
        self.opened(conn);
        self.bytes(conn, &connect(b'a' + conn.serial() as u8, expiry_secs));
    }
}

#[test]
fn one_message_to_one_receiver_takes_few_searches() {
    let mut world = World::new();
    let publisher = ConnId::new(ShardId(0), 1);
    let receiver = ConnId::new(ShardId(0), 2);
    world.open(publisher, 60);
    world.open(receiver, 60);
    world.bytes(receiver, &SUBSCRIBE);
    world.sent.clear();
    world.shard.take_searches();

    world.bytes(publisher, &PUBLISH);
    let to = |conn| world.sent.iter().filter(move |(of, _)| *of == conn).count();
    assert_eq!((to(publisher), to(receiver)), (1, 1));
    world.bytes(receiver, &PUBACK);
    let searches = world.shard.take_searches();
    assert!(searches > 0 && searches <= SEARCHES_MAX, "{searches}");
    assert_eq!(world.shard.census().in_flight, 0);
}

#[test]
fn a_session_that_ends_with_its_connection_keeps_no_message_that_was_sent() {
    for (expiry_secs, keeps) in [(0, false), (60, true)] {
        let mut world = World::new();
        let publisher = ConnId::new(ShardId(0), 1);
        let receiver = ConnId::new(ShardId(0), 2);
        world.open(publisher, 0);
        world.open(receiver, expiry_secs);
        world.bytes(receiver, &SUBSCRIBE);
        world.bytes(publisher, &PUBLISH);
        let mut parts = world.shard.memory();
        let queued = parts.find(|(part, ..)| *part == Part::Queued);
        let bytes = queued.map_or(0, |(_, bytes, _)| bytes);
        assert_eq!(bytes > 0, keeps, "{expiry_secs}: {bytes}");
        drop(parts);
        assert_eq!(world.shard.census().in_flight, 1);
        world.bytes(receiver, &PUBACK);
        assert_eq!(world.shard.census().in_flight, 0);
    }
}

/// Only beside other stores a client of MQTT 3.1.1 is held back until the store has what it
/// has sent before.
#[test]
fn a_lone_broker_stores_what_comes_without_waiting() {
    let mut world = World::new();
    world.opened(CONN);
    let connect = [
        0x10, 13, 0, 4, b'M', b'Q', b'T', b'T', 4, 2, 0, 0, 0, 1, b'a',
    ];
    world.bytes(CONN, &connect);
    for id in 1..=3 {
        // QoS 1, to be retained.
        let publish = [0x33, 6, 0, 1, b't', 0, id, b'x'];
        let asked = world.asked_by(CONN, &publish);
        assert_eq!(asked, 1, "the store has not answered before");
    }
}

/// Nothing has to be taken out of the store that it was not asked for.
#[test]
fn what_there_is_no_room_for_is_no_matter_of_the_store() {
    let mut world = World::new_with(|config| {
        config.sessions.queue_messages_max = 1;
    });
    let receiver = ConnId::new(ShardId(0), 2);
    world.open(CONN, 60);
    world.open(receiver, 60);
    world.bytes(receiver, &SUBSCRIBE);
    let kind = NetEventKind::Closed {
        cause: CloseCause::failed("for the test"),
    };
    world.input(Input::Net(NetEvent::new(receiver, kind)));
    world.bytes(CONN, &PUBLISH);
    world.sent.clear();
    // To be retained.
    let publish = [0x33, 7, 0, 1, b't', 0, 8, 0, b'x'];
    assert_eq!(world.asked_by(CONN, &publish), 0);
    assert_eq!(world.shard.stats().publishes_refused, 1);
    assert_eq!(world.shard.census().retained, 0);
}
