//! Many topics on few streams that do not wait for each other: messages of one
//! topic and QoS arrive in the order in which they were published, on
//! any use of streams by the broker.

use std::collections::{BTreeMap, BTreeSet};

use dunlin_base::{ConnId, StreamId};
use dunlin_mqtt::flow::FlowHeader;
use dunlin_mqtt_codec::{Packet, Version, decode, peek};
use dunlin_sim::{Pace, Random, Setup, ToClient, World, encode};

const TOPICS: u64 = 90;
const MESSAGES: usize = 3000;

/// A client that reads every stream and answers where it was asked.
struct Reader {
    conn: ConnId,
    partial: BTreeMap<StreamId, Vec<u8>>,
    headed: BTreeSet<StreamId>,
    /// Number of the last message of a topic, by QoS.
    last: BTreeMap<(String, u8), u64>,
    received: usize,
    streams: BTreeSet<StreamId>,
    releases: usize,
}

impl Reader {
    fn new(conn: ConnId) -> Self {
        Self {
            conn,
            partial: BTreeMap::new(),
            headed: BTreeSet::new(),
            last: BTreeMap::new(),
            received: 0,
            streams: BTreeSet::new(),
            releases: 0,
        }
    }

    fn take(&mut self, world: &mut World, event: ToClient) {
        match event {
            ToClient::Bytes(stream, bytes) => {
                let partial = self.partial.entry(stream).or_default();
                partial.extend_from_slice(&bytes);
                if stream.is_server_initiated() && self.headed.insert(stream) {
                    let (_, len) = FlowHeader::parse(partial).expect("valid").expect("whole");
                    partial.drain(..len);
                }
                self.read(world, stream);
            }
            ToClient::Finished(stream) => {
                assert!(self.partial[&stream].is_empty(), "ends between packets");
                world.finish(self.conn, stream);
                world.grant(self.conn, 1);
            }
            ToClient::Reset(stream, code) => panic!("{stream:?} reset: {code:#x}"),
            ToClient::Closed(code) => panic!("closed: {code}"),
            ToClient::Datagram(_) => panic!("a datagram"),
        }
    }

    fn read(&mut self, world: &mut World, stream: StreamId) {
        let mut bytes = self.partial.remove(&stream).unwrap_or_default();
        while let Some(frame) = peek(&bytes, u32::MAX).expect("valid")
            && frame.total_len <= bytes.len()
        {
            let packet: Vec<u8> = bytes.drain(..frame.total_len).collect();
            let answer = match decode(&packet, Version::V5).expect("valid") {
                Packet::Publish(publish) => {
                    self.streams.insert(stream);
                    let number = core::str::from_utf8(publish.payload).expect("a number");
                    let number: u64 = number.parse().expect("a number");
                    let key = (publish.topic.to_owned(), publish.qos as u8);
                    let before = self.last.insert(key, number);
                    assert!(
                        before.is_none_or(|before| before < number),
                        "{}: {number} after {before:?}",
                        publish.topic
                    );
                    self.received += 1;
                    let answer = ["", "PUBACK", "PUBREC"][publish.qos as usize];
                    publish.packet_id.map(|id| format!("{answer} {id}"))
                }
                Packet::PubRel(ack) => {
                    self.releases += 1;
                    Some(format!("PUBCOMP {}", ack.packet_id))
                }
                _ => None,
            };
            if let Some(answer) = answer {
                world.send(self.conn, stream, &encode(&answer, Version::V5));
            }
        }
        self.partial.insert(stream, bytes);
    }
}

fn run(shards: u16, seed: u64, streams: usize, credit: u64) {
    let mut setup = Setup::new(shards, seed);
    setup.server_streams = credit;
    setup.config.sending.delivery_streams_max = streams;
    setup.pace = Pace {
        apart: true,
        ..Pace::default()
    };
    let mut world = World::new(setup);
    let mut reader = Reader::new(world.open());
    let publisher = world.open();
    let lines = ["CONNECT r clean u=dunlin-streams:64", "SUBSCRIBE 1 t/#|q2"];
    for line in lines {
        world.send(reader.conn, StreamId::CONTROL, &encode(line, Version::V5));
    }
    let connect = encode("CONNECT p clean", Version::V5);
    world.send(publisher, StreamId::CONTROL, &connect);
    let settle = |world: &mut World, reader: &mut Reader| {
        while let Some((conn, event)) = world.next_before_quiet() {
            if conn == reader.conn {
                reader.take(world, event);
            }
        }
    };
    settle(&mut world, &mut reader);
    let mut random = Random::new(seed);
    let mut received = Vec::new();
    for number in 0..MESSAGES {
        // A topic has its QoS: there is no order between two.
        let topic = random.between(0, TOPICS - 1);
        let (qos, id) = (topic % 3, number % 500 + 1);
        let id = if qos == 0 {
            String::new()
        } else {
            format!("q{qos} #{id}")
        };
        let line = format!("PUBLISH t/{topic} {number} {id}");
        world.send(publisher, StreamId::CONTROL, &encode(&line, Version::V5));
        if qos == 2 {
            received.push(number % 500 + 1);
        }
        if random.one_in(7) {
            let until = world.now() + core::time::Duration::from_millis(random.between(1, 5));
            while let Some((conn, event)) = world.next(until) {
                if conn == reader.conn {
                    reader.take(&mut world, event);
                }
            }
        }
        if number % 100 == 0 {
            settle(&mut world, &mut reader);
            // PUBREC has come for each by now.
            for id in received.drain(..) {
                let release = encode(&format!("PUBREL {id}"), Version::V5);
                world.send(publisher, StreamId::CONTROL, &release);
            }
        }
    }
    settle(&mut world, &mut reader);
    assert_eq!(reader.received, MESSAGES, "seed {seed}");
    assert!(reader.releases > 0);
    if credit > 1 {
        assert!(reader.streams.len() > 1, "{:?}", reader.streams);
    }
}

#[test]
fn order_within_a_topic_survives_sharing_renewal_and_want_of_credit() {
    for seed in 1..=2 {
        for (streams, credit) in [(2, 2), (8, 8), (8, 3), (32, 100), (1, 1), (4, 0)] {
            run(1, seed, streams, credit);
            run(2, seed, streams, credit);
        }
    }
}
