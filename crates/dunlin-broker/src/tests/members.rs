//! Shards that come and go, one at a time: what comes from one that is gone, and what an
//! earlier one of its number was to get.

use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::transport::{NetCommandKind, NetEvent, NetEventKind, Peer, Transport};
use dunlin_base::{ConnId, Message, QoS, ShardId, StreamId, Text};
use dunlin_mqtt::codec::Version;
use dunlin_store::MemoryStore;

use super::amqp::{NOW, OPEN};
use crate::config::{Config, Nodes, SysTopics};
use crate::io::{
    BusMessage, Forward, Input, InterestChange, Manner, Membership, NotTaken, Output, Preparation,
};
use crate::owners::members::Homes;
use crate::reports::census::Census;
use crate::shard::Shard;

const HOME: ShardId = ShardId(0);
const EDGE: ShardId = ShardId(64);
const OTHER: ShardId = ShardId(128);

fn shard(number: ShardId, incarnation: u16) -> Shard {
    let config = Config {
        shard: number,
        shards: 1,
        nodes: Nodes {
            homes: Some(Homes {
                first: HOME,
                count: 1,
            }),
            incarnation,
            ..Nodes::default()
        },
        durable: false,
        listeners: alloc::vec![OPEN],
        sys: SysTopics::quiet(),
        ..Config::default()
    };
    Shard::new(config, NOW)
}

fn outputs(shard: &mut Shard) -> Vec<Output> {
    core::iter::from_fn(|| shard.poll_output()).collect()
}

/// What a shard says to another.
fn said(shard: &mut Shard, to: ShardId) -> Vec<BusMessage> {
    let outputs = outputs(shard).into_iter();
    let said = outputs.filter_map(|output| match output {
        Output::Bus { to: other, message } if other == to => Some(message),
        _ => None,
    });
    said.collect()
}

fn hear(shard: &mut Shard, from: ShardId, message: BusMessage) {
    shard.handle(NOW, Input::Bus { from, message });
}

fn joined(shard: &mut Shard, others: &[ShardId]) {
    shard.handle(NOW, Input::Members(Membership::Joined(others.to_vec())));
}

fn gone(shard: &mut Shard, other: ShardId) {
    shard.handle(NOW, Input::Members(Membership::Gone(other)));
}

/// Carries what two shards say to each other until neither says anything.
fn carry(a: (ShardId, &mut Shard), b: (ShardId, &mut Shard)) -> Vec<Output> {
    let mut others = Vec::new();
    let mut pairs = [a, b];
    loop {
        let [(first, a), (second, b)] = &mut pairs;
        let said: Vec<_> = outputs(a)
            .into_iter()
            .map(|output| (*second, output))
            .chain(outputs(b).into_iter().map(|output| (*first, output)))
            .collect();
        if said.is_empty() {
            return others;
        }
        for (to, output) in said {
            match output {
                Output::Bus { to: named, message } if named == to => {
                    let from = if to == *second { *first } else { *second };
                    let shard = if to == *second { &mut **b } else { &mut **a };
                    hear(shard, from, message);
                }
                other => others.push(other),
            }
        }
    }
}

fn message(topic: &str) -> Arc<Message> {
    Arc::new(Message {
        topic: Text::from(topic),
        qos: QoS::AtLeastOnce,
        ..Message::default()
    })
}

fn forward(topic: &str) -> Forward {
    Forward {
        message: message(topic),
        plain: true,
        shares: Vec::new(),
        retain: false,
        queue: false,
        manner: Manner::Usual,
    }
}

fn interest(filter: &str) -> BusMessage {
    BusMessage::Interest {
        token: 7,
        changes: alloc::vec![InterestChange::Add(Text::from(filter))],
    }
}

#[test]
fn a_home_does_not_take_the_store_of_others() {
    let begin = |count: u16, homes_per_store: u16, store: &MemoryStore| {
        let homes = Some(Homes { first: HOME, count });
        let config = Config {
            shard: HOME,
            shards: 1,
            nodes: Nodes {
                homes,
                homes_per_store,
                ..Nodes::default()
            },
            durable: true,
            sys: SysTopics::quiet(),
            ..Config::default()
        };
        let mut shard = Shard::new(config, NOW);
        shard
            .restore(&store.recover())
            .map(|()| outputs(&mut shard))
    };
    let mut store = MemoryStore::new();
    let made = begin(2, 1, &store).expect("an empty one");
    assert_eq!(made.len(), 1, "{made:?}");
    for output in &made {
        if let Output::Store(request) = output {
            store.handle(request);
        }
    }
    assert!(begin(2, 1, &store).expect("its own").is_empty());
    for (count, homes_per_store) in [(3, 1), (3, 2), (2, 0)] {
        let refused = begin(count, homes_per_store, &store);
        assert!(refused.is_err(), "{count}, {homes_per_store}");
    }
}

#[test]
fn nothing_comes_from_a_shard_that_is_not_there() {
    let mut home = shard(HOME, 0);
    hear(&mut home, EDGE, interest("t"));
    assert!(outputs(&mut home).is_empty());
    joined(&mut home, &[EDGE]);
    drop(said(&mut home, EDGE));
    hear(&mut home, EDGE, interest("t"));
    let answers = said(&mut home, EDGE);
    assert!(matches!(
        answers[..],
        [BusMessage::InterestNoted { token: 7 }]
    ));
    assert_eq!(home.census().subscriptions, 1);
    gone(&mut home, EDGE);
    assert_eq!(home.census(), Census::default());
    hear(&mut home, EDGE, interest("t"));
    assert!(outputs(&mut home).is_empty());
    assert_eq!(home.census(), Census::default());
}

#[test]
fn what_was_for_a_shard_is_not_for_the_next_of_its_number() {
    let mut home = shard(HOME, 0);
    joined(&mut home, &[EDGE]);
    hear(&mut home, EDGE, interest("t"));
    // All of it is still here when the edge is gone and another one has joined.
    gone(&mut home, EDGE);
    joined(&mut home, &[EDGE]);
    let said = said(&mut home, EDGE);
    assert!(
        said.iter()
            .all(|it| !matches!(it, BusMessage::InterestNoted { .. })),
        "{said:?}"
    );
}

#[test]
fn answers_to_an_earlier_edge_mean_nothing_to_the_next() {
    let mut tokens = Vec::new();
    for incarnation in [1, 2] {
        let (mut home, mut edge) = (shard(HOME, 0), shard(EDGE, incarnation));
        joined(&mut home, &[EDGE]);
        joined(&mut edge, &[HOME]);
        let others = carry((HOME, &mut home), (EDGE, &mut edge));
        assert!(matches!(others[..], [Output::Ready]), "{others:?}");
        // Answers of all kinds, under every token that the one before has used.
        for token in tokens.drain(..) {
            let client_id = Text::from_static("a");
            let answers = [
                BusMessage::Denied { token },
                BusMessage::Granted {
                    token,
                    client_id: client_id.clone(),
                },
                BusMessage::Evict { token, client_id },
                BusMessage::InterestNoted { token },
                BusMessage::Received(alloc::vec![token]),
                BusMessage::Prepared {
                    token,
                    answer: Preparation::default(),
                },
                BusMessage::Settled {
                    token,
                    committed: true,
                },
                BusMessage::Returned { token, over: false },
            ];
            let before = edge.census();
            for answer in answers {
                hear(&mut edge, HOME, answer);
            }
            assert!(outputs(&mut edge).is_empty());
            assert_eq!(edge.census(), before);
            assert_eq!(edge.stats().internal_errors, 0);
        }
        let conn = ConnId::new(EDGE, 1);
        let peer = Peer {
            addr: "127.0.0.1:1".parse().expect("an address"),
            transport: Transport::Tcp,
            listener: 0,
            identity: None,
            protocol: Text::from_static("mqtt"),
            early_data: false,
            binding: None,
        };
        let opened = NetEvent::new(conn, NetEventKind::Opened { peer });
        edge.handle(NOW, Input::Net(opened));
        let connect = connect();
        let bytes = NetEventKind::Bytes {
            stream: StreamId::CONTROL,
            data: &connect[..],
        };
        edge.handle(NOW, Input::Net(NetEvent::new(conn, bytes)));
        let auth = outputs(&mut edge);
        for output in auth {
            if let Output::Bus {
                message: BusMessage::Claim { token, .. },
                ..
            } = output
            {
                tokens.extend(token - 50..=token);
            }
        }
        assert!(!tokens.is_empty(), "it claims its client identifier");
    }
}

#[test]
fn nothing_waits_for_its_time_at_an_edge() {
    let mut edge = shard(EDGE, 1);
    joined(&mut edge, &[HOME, OTHER]);
    drop(outputs(&mut edge));
    let (token, forward) = (Some(9), forward("t"));
    let forward = Forward {
        plain: false,
        queue: true,
        ..forward
    };
    hear(&mut edge, OTHER, BusMessage::Forward { forward, token });
    let said = said(&mut edge, OTHER);
    let [BusMessage::Prepared { token: 9, answer }] = &said[..] else {
        panic!("{said:?}");
    };
    assert_eq!(answer.refused, Some(NotTaken::NotFound));
    assert_eq!(edge.census().sessions, 0);
}

/// A CONNECT of a session that ends with its connection.
fn connect() -> Vec<u8> {
    let connect = dunlin_mqtt::codec::Connect {
        version: Version::V5,
        clean_start: true,
        client_id: "a",
        ..dunlin_mqtt::codec::Connect::default()
    };
    let mut bytes = Vec::new();
    let packet = dunlin_mqtt::codec::Packet::Connect(connect);
    packet.encode(Version::V5, &mut bytes).expect("a packet");
    bytes
}

#[test]
fn a_publish_does_not_wait_for_an_edge_that_is_gone() {
    let (mut edge, topic) = (shard(EDGE, 1), "t");
    joined(&mut edge, &[HOME, OTHER]);
    hear(&mut edge, OTHER, interest(topic));
    drop(outputs(&mut edge));
    let census = edge.census();
    // A will of another process: prepared here, and not decided.
    let token = Some(9);
    let forward = forward(topic);
    hear(&mut edge, HOME, BusMessage::Forward { forward, token });
    let answers = said(&mut edge, HOME);
    assert!(
        matches!(answers[..], [BusMessage::Received(_)]),
        "{answers:?}"
    );
    gone(&mut edge, OTHER);
    assert_eq!(edge.census().subscriptions, census.subscriptions - 1);
    assert!(
        !outputs(&mut edge)
            .iter()
            .any(|output| matches!(output, Output::HomeLost(_)))
    );
    gone(&mut edge, HOME);
    let lost = outputs(&mut edge);
    assert!(matches!(lost[..], [Output::HomeLost(HOME)]), "{lost:?}");
    // It takes no connections any more.
    let conn = ConnId::new(EDGE, 2);
    let peer = Peer {
        addr: "127.0.0.1:1".parse().expect("an address"),
        transport: Transport::Tcp,
        listener: 0,
        identity: None,
        protocol: Text::from_static("mqtt"),
        early_data: false,
        binding: None,
    };
    edge.handle(
        NOW,
        Input::Net(NetEvent::new(conn, NetEventKind::Opened { peer })),
    );
    let closes = outputs(&mut edge).into_iter().any(|output| match output {
        Output::Net(command) => matches!(command.kind, NetCommandKind::Close { .. }),
        _ => false,
    });
    assert!(closes);
}
