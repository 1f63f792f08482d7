//! Clients of AMQP that send faster than their quota, or more at a time, and users that have
//! all the links and queues that theirs gives them.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use dunlin_amqp::codec::{Attach, Begin, Open, SaslInit, Symbol, Symbols, Target};
use dunlin_amqp::{Connection, Event, Limits, SaslPolicy, SendError, Sending, Settings, Side, Tag};
use dunlin_base::transport::{NetCommandKind, NetEvent, NetEventKind, Transport};
use dunlin_base::{ConnId, Instant, SendBuf, StreamId, Text};

use super::amqp::{Client, NOW, OPEN, World, conn, message, peer, receiver, sender};
use crate::auth::{Anonymous, AuthPolicy};
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

/// The largest message that the peer takes, as it says in its answer.
fn announced(client: &Client) -> Option<u64> {
    let mut events = client.events.iter();
    events.find_map(|event| match event {
        Event::Attached { attach, .. } => attach.attach()?.max_message_size,
        _ => None,
    })
}

#[test]
fn a_message_larger_than_its_quota_ends_the_link() {
    const MAX: u32 = 1000;
    let sizes = |config: &mut Config| {
        config.quotas.0.push(Quota {
            packet_bytes_max: MAX,
            ..quota(0, 0)
        });
        config.queues.auto_create = true;
    };
    for address in ["t", "/queues/q"] {
        let mut world = World::configured(1, OPEN, sizes);
        // What a client sends that has not heard of the limit.
        let mut free = World::configured(1, OPEN, |config| config.queues.auto_create = true);
        let mut large = Client::of(&mut free, conn(0, 1), None, SLOW);
        let link = large.sender(&mut free, Some(address));
        let all = u64::from(Config::default().clients.packet_bytes_max);
        assert_eq!(announced(&large), Some(all), "{address}");
        let sending = Sending::new(Tag::from(1_u64), true);
        let whole = message(false, &[0; MAX as usize]);
        let sent = large.engine.send(link, &sending, &whole, &Bytes::new());
        sent.expect("it is allowed");
        let mut frame = SendBuf::new();
        large.engine.poll_output(NOW, &mut frame);
        let frame: Vec<u8> = frame.slices().flatten().copied().collect();

        for (serial, container, refusal) in [
            (1, "other", None),
            (2, SLOW, Some("amqp:link:message-size-exceeded")),
        ] {
            let mut client = Client::of(&mut world, conn(0, serial), None, container);
            let link = client.sender(&mut world, Some(address));
            let max = refusal.map_or(all, |_| MAX.into());
            assert_eq!(announced(&client), Some(max), "{address}");
            if refusal.is_some() {
                let sent = client.engine.send(link, &sending, &whole, &Bytes::new());
                assert_eq!(sent.expect_err("it knows"), SendError::MessageSize);
            }
            world.bytes(conn(0, serial), &frame);
            client.exchange(&mut world);
            assert_eq!(
                client.refusal().as_deref(),
                refusal,
                "{address} {container}"
            );
        }
        let mut client = Client::of(&mut world, conn(0, 3), None, SLOW);
        let link = client.sender(&mut world, Some(address));
        client.send(
            &mut world,
            link,
            true,
            message(false, &[0; MAX as usize / 2]),
        );
        assert_eq!(client.refusal(), None);
        assert_eq!(world.shards[0].stats().messages_too_large, 1);
        world.check();
    }
}

/// Ann, who may have so many sessions, links and queues, and a client of hers.
fn ann(sessions_max: usize) -> (World, Client) {
    let policy = AuthPolicy {
        anonymous: Anonymous::Never,
        passwords: true,
        ..AuthPolicy::default()
    };
    let mut world = World::configured(1, policy, |config| {
        config.queues.auto_create = true;
        config.quotas.0.push(Quota {
            user: Some(Text::from_static("ann")),
            sessions_max,
            ..Quota::default()
        });
    });
    let init = SaslInit {
        mechanism: Symbol::from_static("PLAIN"),
        initial_response: Some(b"\0ann\0secret"),
        hostname: None,
    };
    let client = Client::of(&mut world, conn(0, 1), Some(init), "c");
    (world, client)
}

const FULL: Option<&str> = Some("amqp:resource-limit-exceeded");

#[test]
fn a_user_has_so_many_links() {
    let (mut world, mut client) = ann(2);
    let first = client.receiver(&mut world, "a", 1);
    client.sender(&mut world, Some("b"));
    assert_eq!(client.refusal(), None);
    let third = |client: &mut Client, world: &mut World, name| {
        let attach = Attach {
            name,
            ..receiver("c")
        };
        client.attach(world, &attach);
        client.refusal()
    };
    assert_eq!(third(&mut client, &mut world, "l1").as_deref(), FULL);
    assert_eq!(world.shards[0].stats().memory_refused_sessions, 1);
    client.detach(&mut world, first, true);
    client.events.clear();
    assert_eq!(third(&mut client, &mut world, "l2"), None);
    assert_eq!(third(&mut client, &mut world, "l3").as_deref(), FULL);
    world.check();
}

#[test]
fn a_user_with_all_its_links_may_attach_one_again() {
    let (mut world, mut client) = ann(2);
    let again = Attach {
        name: "again",
        ..receiver("a")
    };
    client.attach(&mut world, &again);
    client.sender(&mut world, Some("b"));
    assert_eq!(client.refusal(), None);
    for _ in 0..3 {
        let session = client.engine.begin(&Begin::default()).expect("begin");
        client.session = Some(session);
        client.exchange(&mut world);
        client.attach(&mut world, &again);
        assert_eq!(client.refusal().as_deref(), Some("amqp:link:stolen"));
        assert_eq!(client.refusal(), None);
        assert_eq!(world.shards[0].census().sessions, 2);
    }
    let other = Attach {
        name: "other",
        ..again
    };
    client.attach(&mut world, &other);
    assert_eq!(client.refusal().as_deref(), FULL);
    world.check();
}

#[test]
fn queues_of_a_user_count_beside_its_links() {
    let (mut world, mut client) = ann(3);
    let queue = |client: &mut Client, world: &mut World, name, address| {
        let target = Target {
            address: Some(address),
            ..Target::default()
        };
        let attach = Attach {
            name,
            ..sender(target)
        };
        client.attach(world, &attach);
        client.refusal()
    };
    assert_eq!(queue(&mut client, &mut world, "l1", "/queues/a"), None);
    // A link that would be the third, to a queue that would be the fourth.
    let refused = queue(&mut client, &mut world, "l2", "/queues/b");
    assert_eq!(refused.as_deref(), FULL);
    assert_eq!(world.shards[0].census().sessions, 2, "a link and a queue");
    // To the first again: a link, and no queue.
    assert_eq!(queue(&mut client, &mut world, "l3", "/queues/a"), None);
    world.check();
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
