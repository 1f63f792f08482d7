//! Clients of AMQP that send faster than their quota.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::time::Duration;

use dunlin_amqp::codec::{Begin, Open, Symbols};
use dunlin_amqp::{Connection, Event, Limits, SaslPolicy, Settings, Side};
use dunlin_base::transport::{NetCommandKind, NetEvent, NetEventKind, Transport};
use dunlin_base::{ConnId, Instant, SendBuf, StreamId, Text};

use super::amqp::{Client, NOW, OPEN, World, conn, message, peer};
use crate::config::Config;
use crate::io::{Input, Output};
use crate::quotas::Quota;
use crate::shard::Shard;

const SLOW: &str = "slow";

fn quota(messages: u64, bytes: u64) -> Quota {
    Quota {
        client_id: Some(Text::from_static(SLOW)),
        messages,
        bytes,
        debt: Duration::from_secs(5),
        ..Quota::default()
    }
}

fn limited(messages: u64, bytes: u64) -> World {
    World::configured(1, OPEN, |config| {
        config.quotas.0.push(quota(messages, bytes));
    })
}

/// A sender of this container that sends so many messages, settled; the condition with
/// which it was closed, if it was.
fn send(
    world: &mut World,
    serial: u64,
    container: &str,
    count: usize,
) -> Option<alloc::string::String> {
    let mut client = Client::of(world, conn(0, serial), None, container);
    let link = client.sender(world, Some("t"));
    for _ in 0..count {
        client.send(world, link, true, message(false, b"m"));
        let closed = client.events.iter().find_map(|event| match event {
            Event::Closed { error, .. } => error.as_ref(),
            _ => None,
        });
        if let Some(error) = closed {
            return Some(error.get().condition.as_str().to_string());
        }
    }
    None
}

#[test]
fn who_sends_messages_faster_than_its_quota_is_not_read_for_a_while() {
    let mut world = limited(10, 0);
    assert_eq!(send(&mut world, 1, "other", 100), None);
    assert_eq!(world.pauses, []);
    assert_eq!(send(&mut world, 2, SLOW, 20), None);
    assert_eq!(world.pauses, [(conn(0, 2), true)]);
    let stats = world.shards[0].stats();
    assert_eq!((stats.clients_paced, stats.clients_over_quota), (1, 0));
    for (millis, pauses) in [(1900, 1), (2000, 2)] {
        world.shards[0].handle_timeout(NOW + Duration::from_millis(millis));
        world.run();
        assert_eq!(world.pauses.len(), pauses, "after {millis} ms");
    }
    assert_eq!(world.pauses.last(), Some(&(conn(0, 2), false)));
    world.check();
}

#[test]
fn who_sends_far_too_much_is_closed() {
    for (messages, bytes) in [(10, 0), (0, 1000)] {
        let mut world = limited(messages, bytes);
        let closed = send(&mut world, 1, SLOW, 200);
        assert_eq!(closed.as_deref(), Some("amqp:resource-limit-exceeded"));
        assert_eq!(world.shards[0].stats().clients_over_quota, 1);
        assert_eq!(send(&mut world, 2, "other", 200), None);
    }
}

/// The first bytes of a client: `open` and `begin`.
fn opening() -> Vec<u8> {
    let settings = Settings {
        side: Side::Client,
        container_id: SLOW,
        sasl: SaslPolicy::Off,
        mechanisms: Symbols::default(),
        limits: Limits::default(),
    };
    let mut engine = Connection::new(NOW, &settings);
    engine.open(NOW, &Open::default()).expect("open");
    engine.begin(&Begin::default()).expect("begin");
    let mut out = SendBuf::new();
    engine.poll_output(NOW, &mut out);
    out.slices().flatten().copied().collect()
}

/// What stopped or resumed reading.
fn pauses(shard: &mut Shard) -> Vec<(ConnId, bool)> {
    let outputs = core::iter::from_fn(|| shard.poll_output());
    let pause = |output| match output {
        Output::Net(command) => match command.kind {
            NetCommandKind::PauseReading { paused } => Some((command.conn, paused)),
            _ => None,
        },
        _ => None,
    };
    outputs.filter_map(pause).collect()
}

#[test]
fn streams_of_a_connection_have_one_quota() {
    let data = opening();
    let each = Duration::from_secs(1);
    let config = Config {
        listeners: alloc::vec![OPEN],
        quotas: crate::Quotas(alloc::vec![quota(0, data.len() as u64)]),
        ..Config::default()
    };
    let mut shard = Shard::new(config, NOW);
    let peer = peer(Transport::Quic, "amqp");
    let id = conn(0, 1);
    let opened = NetEvent::new(id, NetEventKind::Opened { peer });
    shard.handle(NOW, Input::Net(opened));
    let mut said = Vec::new();
    for stream in [0, 4, 8] {
        let stream = StreamId(stream);
        let data = &data[..];
        let event = NetEvent::new(id, NetEventKind::Bytes { stream, data });
        shard.handle(NOW, Input::Net(event));
        said.extend(pauses(&mut shard));
    }
    assert_eq!(said, [(id, true)]);
    let mut at = |time: Duration| {
        let now: Instant = NOW + time;
        shard.handle_timeout(now);
        pauses(&mut shard)
    };
    assert_eq!(at(each), [], "one stream is paid for");
    assert_eq!(at(2 * each), [], "two are");
    assert_eq!(at(3 * each), [(id, false)]);
    // Far too much on one of them: all are closed, and their answers are read.
    let data = &[0; 4096][..];
    let stream = StreamId(8);
    let event = NetEvent::new(id, NetEventKind::Bytes { stream, data });
    shard.handle(NOW + 3 * each, Input::Net(event));
    assert_eq!(pauses(&mut shard), []);
    let stats = shard.stats();
    assert_eq!((stats.clients_over_quota, stats.internal_errors), (1, 0));
    // The next stream has the same debt.
    let (data, stream) = (&opening()[..], StreamId(12));
    let event = NetEvent::new(id, NetEventKind::Bytes { stream, data });
    shard.handle(NOW + 3 * each, Input::Net(event));
    assert_eq!(shard.stats().clients_over_quota, 2);
}
