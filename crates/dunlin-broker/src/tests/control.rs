//! What operators ask of a shard: pages are bounded in what they look at, and
//! everything is in one of them.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_amqp::Event;
use dunlin_amqp::codec::condition;
use dunlin_base::transport::{CloseCause, NetEvent, NetEventKind, Transport};
use dunlin_base::{ConnId, Instant, StreamId, Text};

use super::amqp::{Client, NOW, OPEN, World, conn, peer};
use crate::bans::{Banned, Bans};
use crate::control::values::{
    ClientFilter, ClientView, Ending, EndingKind, Page, Place, Reply, Request,
};
use crate::io::Input;
use crate::owners::routing::GROUPS_MAX;
use crate::reports::census::{COUNT_EVERY, COUNT_PAUSE, Census};
use crate::reports::clients::{ENDED_MAX, EXAMINED_MAX};

fn page(world: &mut World, filter: &ClientFilter, at: Place, limit: usize) -> Page<ClientView> {
    let filter = filter.clone();
    world.ask(0, Request::Clients { filter, at, limit });
    match world.replies.pop() {
        Some(Reply::Clients(page)) => page,
        other => panic!("{other:?}"),
    }
}

/// Opens a connection of MQTT whose client identifier is its number.
fn connect(world: &mut World, conn: ConnId) {
    let id = format!("{:06}", conn.serial());
    world.open(conn, "mqtt");
    let mut packet = Vec::from([0x10, 19, 0, 4, b'M', b'Q', b'T', b'T', 5, 2, 0, 0, 0, 0, 6]);
    packet.extend_from_slice(id.as_bytes());
    world.bytes(conn, &packet);
}

/// CONNECT of a client whose session goes on, and lasts, at its home.
fn resume(world: &mut World, conn: ConnId) {
    let id = format!("{:06}", conn.serial());
    let mut packet = Vec::from([0x10, 24, 0, 4, b'M', b'Q', b'T', b'T', 5, 0, 0, 0]);
    packet.extend_from_slice(&[5, 0x11, 0, 0, 0, 60, 0, 6]);
    packet.extend_from_slice(id.as_bytes());
    world.bytes(conn, &packet);
}

fn open_quic(world: &mut World, conn: ConnId, protocol: &'static str) {
    let peer = peer(Transport::Quic, protocol);
    let event = NetEvent::new(conn, NetEventKind::Opened { peer });
    world.input(usize::from(conn.shard().0), Input::Net(event));
}

#[test]
fn a_page_looks_at_a_bounded_piece_of_the_table() {
    const CLIENTS: usize = 5 * EXAMINED_MAX / 2;
    let mut world = World::new(1, OPEN);
    for number in 1..=CLIENTS as u64 {
        connect(&mut world, conn(0, number));
    }
    let nothing = ClientFilter {
        client_id: Text::from_static("other"),
        ..ClientFilter::default()
    };
    let last = ClientFilter {
        client_id: Text::from(format!("{CLIENTS:06}")),
        ..ClientFilter::default()
    };
    for (filter, found) in [(nothing, 0), (last, 1), (ClientFilter::default(), CLIENTS)] {
        let (mut rows, mut at, mut pages) = (Vec::new(), Some(0), 0);
        while let Some(place) = at {
            let page = page(&mut world, &filter, place, usize::MAX);
            assert!(page.next.is_none_or(|next| next - place <= EXAMINED_MAX));
            rows.extend(page.rows.into_iter().map(|row| row.client_id));
            (at, pages) = (page.next, pages + 1);
        }
        rows.sort_unstable();
        rows.dedup();
        assert_eq!(rows.len(), found, "{filter:?}");
        assert!(pages >= 3, "{pages}");
    }
    let beyond = page(&mut world, &ClientFilter::default(), usize::MAX, 10);
    assert!(beyond.rows.is_empty() && beyond.next.is_none());
}

fn subscribe(world: &mut World, conn: ConnId, filter: &str) {
    let len = filter.len() as u8;
    let mut packet = Vec::from([0x82, len + 6, 0, 1, 0, 0, len]);
    packet.extend_from_slice(filter.as_bytes());
    packet.push(0);
    world.bytes(conn, &packet);
}

/// The rows for who gets a message, and how many there are.
fn receivers(world: &mut World, at: usize, topic: &'static str) -> (usize, usize) {
    let topic = Text::from_static(topic);
    let limit = usize::MAX;
    world.ask(at, Request::Receivers { topic, limit });
    match world.replies.pop() {
        Some(Reply::Receivers {
            rows,
            count,
            groups_left_out: 0,
        }) => (rows.len(), count),
        other => panic!("{other:?}"),
    }
}

#[test]
fn of_many_receivers_a_bounded_number_is_shown_and_all_are_counted() {
    const CLIENTS: u64 = 3 * EXAMINED_MAX as u64 / 2;
    let mut world = World::new(2, OPEN);
    for number in 1..=CLIENTS {
        connect(&mut world, conn(0, number));
        subscribe(&mut world, conn(0, number), "all/+");
        if number % 2 == 0 {
            subscribe(&mut world, conn(0, number), "$share/g/all/+");
        }
    }
    connect(&mut world, conn(1, CLIENTS + 1));
    subscribe(&mut world, conn(1, CLIENTS + 1), "all/+");
    let all = (CLIENTS + CLIENTS / 2) as usize;
    assert_eq!(receivers(&mut world, 0, "all/a"), (EXAMINED_MAX, all));
    assert_eq!(receivers(&mut world, 1, "all/a"), (1, 1), "not the shard 0");
    assert_eq!(receivers(&mut world, 0, "none/a"), (0, 0));
}

#[test]
fn only_so_many_shared_subscriptions_are_looked_at() {
    const MORE: usize = 70;
    let mut world = World::new(1, OPEN);
    for group in 0..GROUPS_MAX + MORE {
        // A message may match some hundreds of one client.
        let of = conn(0, 1 + group as u64 / 100);
        if group % 100 == 0 {
            connect(&mut world, of);
        }
        subscribe(&mut world, of, &format!("$share/{group}/a"));
    }
    let topic = Text::from_static("a");
    let limit = usize::MAX;
    world.ask(0, Request::Receivers { topic, limit });
    match world.replies.pop() {
        Some(Reply::Receivers {
            rows,
            count,
            groups_left_out,
        }) => assert_eq!(
            (rows.len(), count, groups_left_out),
            (GROUPS_MAX, GROUPS_MAX, MORE)
        ),
        other => panic!("{other:?}"),
    }
}

/// Figures are the count of all tables at once, a step at a time: the ones of a small
/// shard at once.
#[test]
fn figures_are_counted_in_bounded_steps() {
    for (clients, steps) in [(0, 0), (EXAMINED_MAX / 4, 0), (2 * EXAMINED_MAX, 3)] {
        let mut world = World::new(1, OPEN);
        for number in 1..=clients as u64 {
            connect(&mut world, conn(0, number));
        }
        let mut whole = world.shards[0].census();
        let mut now = NOW;
        let first = world.shards[0].figures(now);
        assert_eq!((first.sessions, first.conns), (clients, clients));
        assert_eq!(first == whole, steps == 0, "{clients}");
        // One step at each reminder, the first of them above.
        for _ in 0..steps {
            now += COUNT_PAUSE;
            assert_eq!(world.shards[0].poll_timeout(), Some(now));
            world.shards[0].handle_timeout(now);
        }
        assert_eq!(world.shards[0].poll_timeout(), None);
        assert_eq!(world.shards[0].figures(now), whole, "{clients}");
        // Who comes is in the next count: of a large shard seconds later.
        connect(&mut world, conn(0, clients as u64 + 1));
        whole = world.shards[0].census();
        let figures = world.shards[0].figures(now);
        assert_eq!(
            (figures.sessions, figures.conns),
            (clients + 1, clients + 1)
        );
        assert_eq!(figures == whole, steps == 0, "{clients}");
        assert_eq!(world.shards[0].poll_timeout(), None, "not at each look");
        now += COUNT_EVERY;
        world.shards[0].figures(now);
        while let Some(at) = world.shards[0].poll_timeout() {
            now = at;
            world.shards[0].handle_timeout(now);
        }
        assert_eq!(world.shards[0].figures(now), whole, "{clients}");
    }
}

/// In a large shard too, how many connections and subscriptions there are is what it is at
/// each look, as they come, are handed over, carry streams and go.
#[test]
fn connections_of_a_large_shard_are_those_of_now() {
    const CLIENTS: u64 = 3 * EXAMINED_MAX as u64;
    const CARRIERS: u64 = 10;
    let mut world = World::new(2, OPEN);
    let look = |world: &mut World| {
        let of = |it: Census| {
            let conns = (it.conns, it.handed_over, it.carried);
            (conns, it.sessions, it.subscribed)
        };
        let whole = of(world.shards[0].census());
        assert_eq!(of(world.shards[0].figures(NOW)), whole);
        whole
    };
    look(&mut world);
    for number in 1..=CLIENTS {
        open_quic(&mut world, conn(0, number), "mqtt");
        resume(&mut world, conn(0, number));
        subscribe(&mut world, conn(0, number), "all/+");
        if number == CLIENTS / 2 {
            look(&mut world);
        }
    }
    let ((here, there, _), ..) = look(&mut world);
    assert_eq!(here + there, CLIENTS as usize);
    // The home of some half of the sessions is the other shard.
    assert!(here > EXAMINED_MAX && there > EXAMINED_MAX, "{here}");
    for number in CLIENTS + 1..=CLIENTS + CARRIERS {
        let id = conn(0, number);
        open_quic(&mut world, id, "amqp");
        for stream in [0, 4].map(StreamId) {
            let data = &b"AMQP\x00\x01\x00\x00"[..];
            let event = NetEvent::new(id, NetEventKind::Bytes { stream, data });
            world.input(0, Input::Net(event));
        }
    }
    let streams = 2 * CARRIERS as usize;
    let ((conns, _, carried), ..) = look(&mut world);
    assert_eq!((conns, carried), (here + CARRIERS as usize, streams));
    for number in 1..=CLIENTS + CARRIERS {
        let cause = CloseCause::Local;
        let event = NetEvent::new(conn(0, number), NetEventKind::Closed { cause });
        world.input(0, Input::Net(event));
        if number == CLIENTS / 2 {
            look(&mut world);
        }
    }
    assert_eq!(look(&mut world), ((0, 0, 0), here, here), "sessions last");
}

#[test]
fn clients_of_both_protocols_are_found_by_what_they_are() {
    let mut world = World::new(1, OPEN);
    connect(&mut world, conn(0, 1));
    let _amqp = Client::new(&mut world, conn(0, 2), None);
    world.open(conn(0, 3), "mqtt");
    let ids = |world: &mut World, filter: ClientFilter| {
        let rows = page(world, &filter, 0, 10).rows.into_iter();
        rows.map(|row| row.client_id).collect::<Vec<_>>()
    };
    let all = ClientFilter::default;
    assert_eq!(
        ids(&mut world, all()),
        ["000001", "client"],
        "not who said nothing"
    );
    let by = |mqtt, user, network: &str| ClientFilter {
        mqtt,
        user,
        network: Some(network.parse().expect("a range")),
        ..all()
    };
    let none: [&str; 0] = [];
    assert_eq!(
        ids(&mut world, by(Some(true), None, "127.0.0.0/8")),
        ["000001"]
    );
    assert_eq!(
        ids(&mut world, by(Some(false), None, "127.0.0.1")),
        ["client"]
    );
    assert_eq!(ids(&mut world, by(None, None, "10.0.0.0/8")), none);
    let user = Some(Text::from_static("ann"));
    assert_eq!(ids(&mut world, by(None, user, "0.0.0.0/0")), none);
}

#[test]
fn many_banned_ranges_make_a_step_shorter() {
    let mut world = World::new(1, OPEN);
    for number in 1..=EXAMINED_MAX as u64 {
        connect(&mut world, conn(0, number));
    }
    let ranges = (0..10_000_u32).map(|at| {
        let range = format!("10.{}.{}.0/24", at / 256, at % 256);
        let range = range.parse().expect("a range");
        (Banned::Address(range), Instant::FAR_FUTURE)
    });
    world.ask(0, Request::Ban(Arc::new(ranges.collect())));
    world.replies.clear();
    let filter = ClientFilter {
        banned: true,
        ..ClientFilter::default()
    };
    let ending = Ending {
        kind: EndingKind::Banned,
        why: Text::new(),
    };
    let (at, limit) = (0, usize::MAX);
    world.ask(
        0,
        Request::EndAll {
            filter,
            at,
            limit,
            ending,
        },
    );
    match world.replies.pop() {
        Some(Reply::Ended { count: 0, next }) => {
            assert!(next.is_some_and(|next| next < 16), "{next:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn few_connections_are_ended_at_a_time() {
    const CLIENTS: usize = 5 * ENDED_MAX / 2;
    let mut world = World::new(1, OPEN);
    for number in 1..=CLIENTS as u64 {
        connect(&mut world, conn(0, number));
    }
    let (mut next, mut steps) = (Some(0), 0);
    while let Some(at) = next {
        let ending = Ending {
            kind: EndingKind::Ordered,
            why: Text::new(),
        };
        let before = world.closed.len();
        world.ask(
            0,
            Request::EndAll {
                filter: ClientFilter::default(),
                at,
                limit: usize::MAX,
                ending,
            },
        );
        let Some(Reply::Ended { count, next: place }) = world.replies.pop() else {
            panic!("no reply");
        };
        assert!(count <= ENDED_MAX);
        assert_eq!(world.closed.len() - before, count);
        (next, steps) = (place, steps + 1);
    }
    assert_eq!((world.closed.len(), steps), (CLIENTS, 3));
}

#[test]
fn connections_that_are_gone_are_not_ended() {
    let mut world = World::new(1, OPEN);
    connect(&mut world, conn(0, 1));
    world.open(conn(0, 2), "mqtt");
    let mut end = |serial| {
        let ending = Ending {
            kind: EndingKind::Ordered,
            why: Text::from_static("tests"),
        };
        let conn = conn(0, serial);
        world.ask(0, Request::End { conn, ending });
        match world.replies.pop() {
            Some(Reply::Ended { count, .. }) => count,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((end(1), end(1), end(2), end(3)), (1, 0, 0, 0));
    assert_eq!(world.closed, [conn(0, 1)]);
    let stats = world.shards[0].stats();
    assert_eq!((stats.connections_ended, stats.internal_errors), (1, 0));
}

#[test]
fn a_banned_container_is_refused_and_one_that_is_here_is_found() {
    let mut world = World::new(1, OPEN);
    let mut here = Client::new(&mut world, conn(0, 1), None);
    connect(&mut world, conn(0, 2));
    let container = Banned::Client(Text::from_static("client"));
    let bans: Bans = [(container, Instant::FAR_FUTURE)].into_iter().collect();
    world.ask(0, Request::Ban(Arc::new(bans)));
    let ending = Ending {
        kind: EndingKind::Banned,
        why: Text::from_static("banned"),
    };
    let banned = ClientFilter {
        banned: true,
        ..ClientFilter::default()
    };
    world.ask(
        0,
        Request::EndAll {
            filter: banned,
            at: 0,
            limit: 10,
            ending,
        },
    );
    let ended = world.replies.pop();
    assert!(
        matches!(ended, Some(Reply::Ended { count: 1, .. })),
        "{ended:?}"
    );
    here.exchange(&mut world);
    assert_eq!(world.closed, [conn(0, 1)]);
    let late = Client::new(&mut world, conn(0, 3), None);
    let refusal = late.events.iter().find_map(|event| match event {
        Event::Closed { error, .. } => error.clone(),
        _ => None,
    });
    let refusal = refusal.expect("an error");
    assert_eq!(refusal.get().condition, condition::UNAUTHORIZED_ACCESS);
    connect(&mut world, conn(0, 4));
    let stats = world.shards[0].stats();
    assert_eq!((stats.clients_banned, stats.connections_ended), (1, 1));
    let all = page(&mut world, &ClientFilter::default(), 0, 10).rows;
    assert!(all.iter().all(|row| row.version == 5), "{all:?}");
}
