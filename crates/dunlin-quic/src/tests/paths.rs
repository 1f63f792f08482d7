//! Addresses that are not proved, in virtual time: how much goes there, what
//! proves them, and how long a client waits whose address changed.

use core::net::SocketAddr;
use core::time::Duration;

use super::{World, addr};
use crate::{Congestion, QuicTuning};

/// Bytes that a server may send to an address that is not proved, for each
/// that it received from there (RFC 9000 section 8).
const AMPLIFICATION_MAX: usize = 3;

const DELAY: Duration = Duration::from_millis(25);
const ROUND_TRIP: Duration = Duration::from_millis(50);

fn assert_bounded(world: &World, to: impl Fn(&SocketAddr) -> bool) {
    for (addr, sent) in world.sent_to.iter().filter(|(addr, _)| to(addr)) {
        let got = world.got_from.get(addr).copied().unwrap_or(0);
        assert!(
            *sent <= AMPLIFICATION_MAX * got,
            "{sent} bytes to {addr} for {got}"
        );
    }
}

/// A client that names others as its address, with the smallest packets.
#[test]
fn forged_addresses_get_three_times_what_came_from_them() {
    let mut world = World::connected(DELAY, 1);
    let real = world.nat;
    let mut small = usize::MAX;
    for round in 0..3 {
        for n in 0..100 {
            world.client.send(b".");
            for data in world.intercept() {
                small = small.min(data.len());
                world.inject(addr(3 + round % 2, 5000 + n), &data);
            }
            // There is always something to be sent.
            world.server.send(&[n as u8; 300]);
            world.touch_server();
            world.pass(Duration::from_millis(3));
        }
        world.pass(Duration::from_secs(1));
    }
    assert!(small < 40, "the packets have {small} bytes and more");
    assert_bounded(&world, |to| *to != real);
}

/// Who only begins a handshake gets no more, also when its first datagram is
/// not a third of what fits datagrams.
#[test]
fn a_handshake_that_goes_nowhere_gets_three_times_its_bytes() {
    for more in [0, 1, 50, 150] {
        let mut world = World::begun(DELAY, 1);
        let mut first = world.intercept().remove(0);
        first.resize(first.len() + more, 0);
        let from = world.nat;
        world.open.clear();
        world.inject(from, &first);
        world.client.conn = None;
        world.pass(Duration::from_secs(9));
        assert!(world.sent_to[&from] >= 2400, "it is sent again");
        assert_bounded(&world, |_| true);
    }
}

/// Someone who sees the packets sends copies that come first.
#[test]
fn copies_that_come_first_prove_no_address() {
    for seed in 0..20 {
        let mut world = World::connected(DELAY, seed);
        let (real, forged) = (world.nat, addr(9, 999));
        world.copier = Some(forged);
        for n in 0..40 {
            world.client.send(b"up");
            world.server.send(&[n; 64]);
            world.touch_client();
            world.touch_server();
            world.pass(Duration::from_millis(seed % 7 * 10 + 5));
        }
        world.pass(Duration::from_secs(3));
        assert_eq!(world.server.migrated, [], "seed {seed}");
        assert_eq!(world.server.counters.migrations, 0);
        let conn = world.server.conn.as_mut().unwrap();
        assert_eq!(conn.stats().addr, real);
        assert_bounded(&world, |to| *to != real);
    }
}

/// The same for one that receives: what it sends is what counts, not whether
/// copies come first. It is cut off for a round trip at most.
#[test]
fn copies_that_come_first_do_not_cut_the_owner_off() {
    for seed in 0..20 {
        let mut world = World::connected(DELAY, seed);
        world.copier = Some(addr(9, 999));
        let mut longest = Duration::ZERO;
        let mut heard = (world.now, 0);
        for n in 0..400 {
            if n % 10 == seed % 10 {
                world.client.send(b"up");
                world.touch_client();
            }
            world.server.send(&[n as u8; 64]);
            world.touch_server();
            let end = world.now + Duration::from_millis(10);
            while world.now < end {
                let left = end.saturating_duration_since(world.now);
                world.until(left, |world| world.client.received.len() != heard.1);
                let now = world.now;
                if world.client.received.len() != heard.1 {
                    longest = longest.max(now.saturating_duration_since(heard.0));
                    heard = (now, world.client.received.len());
                } else {
                    break;
                }
            }
            world.now = end;
        }
        longest = longest.max(world.now.saturating_duration_since(heard.0));
        println!("seed {seed}: longest gap {longest:?}");
        assert!(longest <= ROUND_TRIP * 2, "seed {seed}: {longest:?}");
    }
}

/// It speaks from another address, and what goes to the former one still gets
/// there: both are challenged in one turn, and it answers one of them.
#[test]
fn an_address_is_proved_while_the_former_one_is_open() {
    for to in [addr(2, 2000), addr(4, 2000)] {
        for delay in [Duration::from_micros(100), DELAY] {
            let mut world = World::connected(delay, 1);
            world.nat = to;
            world.open.push(to);
            for n in 0..20 {
                world.client.send(b"from elsewhere");
                world.touch_client();
                world.server.send(&[n; 64]);
                world.touch_server();
                world.pass(Duration::from_millis(10));
            }
            world.pass(Duration::from_secs(3));
            assert_eq!(world.server.migrated, [to], "{delay:?}");
            assert_eq!(world.client.received.len(), 20 * 64);
        }
    }
}

/// A client has no address for so long, with more in flight than a new path may
/// carry, and moves. How long it takes until the server hears it; what it sends first
/// to search for larger packets is lost.
fn unheard(tuning: &QuicTuning, outage: Duration, to: SocketAddr) -> Duration {
    const BYTES: usize = 60_000;
    /// The smallest packets; larger ones are probes where nothing is known.
    const PACKET: usize = 1200;
    const MOST: Duration = Duration::from_secs(120);
    let mut world = World::tuned(DELAY, 1, tuning);
    // The window becomes larger than that of a new path.
    for _ in 0..40 {
        world.client.send(&[1; 20_000]);
        world.touch_client();
        world.pass(ROUND_TRIP * 2);
    }
    let before = world.server.received.len();
    let sent = world.client.sent.1;
    world.loss = 1000;
    world.client.send(&[2; BYTES]);
    world.touch_client();
    world.pass(outage);
    assert_eq!(world.server.received.len(), before);
    assert!(world.client.sent.1 - sent > 20 * PACKET, "in flight");
    world.loss = 0;
    let is_new_path = to.ip() != world.nat.ip();
    world.move_client(to);
    let (start, wide) = (world.now, world.client.window());
    let at_once = world.intercept();
    world.pass(DELAY);
    for data in &at_once {
        if !is_new_path || data.len() <= PACKET {
            world.inject(to, data);
        }
    }
    world.until(MOST, |world| world.server.received.len() > before);
    let heard = world.now.saturating_duration_since(start);
    // The window is its own again when something is acknowledged.
    world.until(ROUND_TRIP, |world| world.client.window() < wide);
    assert!(world.client.window() < wide);
    world.until(MOST, |world| world.server.received.len() == before + BYTES);
    assert_eq!(world.server.received.len(), before + BYTES);
    heard
}

/// What is in flight at the former address is lost and is not acknowledged, and must not
/// keep the client from speaking at the new one: its timer for that has doubled several
/// times.
#[test]
fn a_client_that_moves_with_a_full_window_is_heard_at_once() {
    // The first window of BBR is wide enough.
    for congestion in [Congestion::Cubic, Congestion::NewReno] {
        for mtu_discovery in [true, false] {
            for (outage, to) in [500, 1000, 5000]
                .into_iter()
                .flat_map(|outage| [addr(2, 2000), addr(4, 2000)].map(|to| (outage, to)))
            {
                let tuning = QuicTuning {
                    congestion,
                    mtu_discovery,
                    ..QuicTuning::default()
                };
                let heard = unheard(&tuning, Duration::from_millis(outage), to);
                let of = format!("{congestion}, search {mtu_discovery}, {outage} ms, {to}");
                println!("{of}: heard after {heard:?}");
                assert!(heard <= ROUND_TRIP * 3, "{of}: {heard:?}");
            }
        }
    }
}

/// The same for a server whose client speaks from another address, and does not know:
/// what is in flight does not count at a path that quinn-proto begins itself.
#[test]
fn a_server_with_a_full_window_is_heard_at_another_address() {
    const BYTES: usize = 60_000;
    for to in [addr(2, 2000), addr(4, 2000)] {
        for outage in [500, 1000, 5000] {
            let mut world = World::connected(DELAY, 1);
            for _ in 0..40 {
                world.server.send(&[1; 20_000]);
                world.touch_server();
                world.pass(ROUND_TRIP * 2);
            }
            let before = world.client.received.len();
            world.loss = 1000;
            world.server.send(&[2; BYTES]);
            world.touch_server();
            world.pass(Duration::from_millis(outage));
            assert_eq!(world.client.received.len(), before);
            world.loss = 0;
            world.rebind(to);
            world.client.send(b"ping");
            world.touch_client();
            let most = Duration::from_secs(1);
            let all = world.until(most, |world| world.client.received.len() == before + BYTES);
            assert_eq!(
                world.client.received.len(),
                before + BYTES,
                "{outage} ms, {to}"
            );
            println!("{outage} ms, {to}: all after {all:?}");
        }
    }
}

/// How long a subscriber hears nothing that speaks from another address, with
/// losses of so many in a thousand.
fn silence(seed: u64, loss: u64, to: SocketAddr, lose_first: bool) -> Duration {
    let mut world = World::connected(DELAY, seed);
    // The server knows its path.
    for _ in 0..10 {
        world.server.send(&[0; 64]);
        world.touch_server();
        world.pass(Duration::from_millis(100));
    }
    let before = world.client.received.len();
    world.rebind(to);
    if lose_first {
        world.open.clear();
    }
    world.loss = loss;
    world.client.send(b"ping");
    world.touch_client();
    let start = world.now;
    for n in 0..2000 {
        world.server.send(&[1; 64]);
        world.touch_server();
        world.until(Duration::from_millis(5), |world| {
            world.client.received.len() > before
        });
        if world.client.received.len() > before {
            return world.now.saturating_duration_since(start);
        }
        world.now = start + Duration::from_millis(5) * (n + 1);
        if lose_first && world.now >= start + ROUND_TRIP {
            world.open = vec![to];
        }
    }
    Duration::from_secs(10)
}

/// The 95th percentile of what many seeds give, and the most.
fn spread(of: impl Fn(u64) -> Duration) -> (Duration, Duration) {
    let mut all: Vec<_> = (0..200).map(of).collect();
    all.sort();
    (all[190], all[199])
}

/// A challenge, or its answer, is lost now and then. Three probe timeouts of a
/// path of which nothing is known are more than 2 s.
#[test]
fn a_client_behind_another_address_is_heard_again_soon() {
    for to in [addr(2, 2000), addr(4, 2000)] {
        let (_, most) = spread(|seed| silence(seed, 0, to, false));
        println!("{to}: within {most:?} without losses");
        assert!(most <= ROUND_TRIP * 3, "{to}: {most:?}");
        let (p95, most) = spread(|seed| silence(seed, 50, to, false));
        println!("{to}: 95 of 100 within {p95:?}, all within {most:?}");
        assert!(p95 <= ROUND_TRIP * 8, "{to}: {p95:?}");
        assert!(most <= ROUND_TRIP * 40, "{to}: {most:?}");
        let lost = silence(1, 0, to, true);
        println!("{to}: within {lost:?} if the first challenge is lost");
        assert!(lost <= ROUND_TRIP * 6, "{to}: {lost:?}");
    }
}

/// Each side says something every 10 ms while the client's address changes
/// every `period`, and its last `open` addresses reach it; the longest time in
/// which it hears nothing.
fn longest_gap(world: &mut World, period: u64, open: usize, time: u64) -> Duration {
    const EVERY: u64 = 10;
    let mut longest = Duration::ZERO;
    let mut heard = (world.now, world.client.received.len());
    for n in 0..time / EVERY {
        if (n * EVERY).is_multiple_of(period) {
            let moves = (n * EVERY / period) as u16;
            // The port changes, then the host, too.
            world.nat = addr(2 + (moves / 2 % 200) as u8, 2000 + moves);
            world.open.push(world.nat);
            let closed = world.open.len().saturating_sub(open);
            world.open.drain(..closed);
        }
        world.client.send(&[n as u8; 20]);
        world.touch_client();
        world.server.send(&[n as u8; 64]);
        world.touch_server();
        let end = world.now + Duration::from_millis(EVERY);
        while world.now < end {
            let left = end.saturating_duration_since(world.now);
            world.until(left, |world| world.client.received.len() != heard.1);
            if world.client.received.len() == heard.1 {
                break;
            }
            longest = longest.max(world.now.saturating_duration_since(heard.0));
            heard = (world.now, world.client.received.len());
        }
        world.now = end;
    }
    longest.max(world.now.saturating_duration_since(heard.0))
}

/// A client has moved on when the challenge reaches it, and answers from the
/// newer address: that proves the one that was challenged.
#[test]
fn an_answer_proves_the_address_that_was_challenged() {
    let mut world = World::connected(DELAY, 1);
    let (first, second) = (addr(2, 2000), addr(4, 3000));
    world.rebind(first);
    world.client.send(b"from the first");
    world.touch_client();
    world.pass(ROUND_TRIP - Duration::from_millis(1));
    world.nat = second;
    world.pass(DELAY + Duration::from_millis(5));
    assert_eq!(world.server.migrated, [first]);
    assert_bounded(&world, |to| *to == second);
    world.open = vec![second];
    world.client.send(b"from the second");
    world.touch_client();
    world.pass(ROUND_TRIP * 4);
    assert_eq!(world.server.migrated, [first, second]);
}

/// A challenge gets to the address before the last, and its answer comes from
/// the last.
#[test]
fn a_client_that_moves_before_it_has_answered_is_sent_to() {
    for seed in 0..20 {
        let mut world = World::connected(DELAY, seed);
        let first = world.nat;
        let gap = longest_gap(&mut world, 30, 3, 3000);
        println!("seed {seed}: longest gap {gap:?}");
        assert!(gap <= ROUND_TRIP * 8, "seed {seed}: {gap:?}");
        assert_bounded(&world, |to| {
            !world.server.migrated.contains(to) && *to != first
        });
        world.pass(Duration::from_secs(3));
        assert_eq!(world.client.received.len(), 300 * 64);
        assert_eq!(world.server.received.len(), 300 * 20 + b"hello".len());
    }
}

/// Twice a second the client is forgotten, with losses.
#[test]
fn a_client_in_a_storm_is_sent_to() {
    let mut all = Vec::new();
    for seed in 0..40 {
        let mut world = World::connected(Duration::from_millis(10), seed);
        let first = world.nat;
        world.loss = 50;
        all.push(longest_gap(&mut world, 500, 1, 20_000));
        assert_bounded(&world, |to| {
            !world.server.migrated.contains(to) && *to != first
        });
        world.pass(Duration::from_secs(3));
        assert_eq!(world.client.received.len(), 2000 * 64, "seed {seed}");
        assert_eq!(world.server.received.len(), 2000 * 20 + b"hello".len());
    }
    all.sort();
    println!("longest gaps: median {:?}, most {:?}", all[20], all[39]);
    assert!(all[39] <= Duration::from_millis(1500), "{all:?}");
}
