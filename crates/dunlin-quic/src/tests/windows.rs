//! Streams that are not read: what they hold, and what goes on beside them.

use core::time::Duration;

use dunlin_base::StreamId;

use super::World;

/// Streams that are in use: the server allows more of them then.
fn open_streams(world: &mut World, count: usize) -> Vec<StreamId> {
    let mut open = Vec::new();
    while open.len() < count {
        if let Some(stream) = world.client.open() {
            world.client.send_on(stream, b"hello");
            open.push(stream);
        } else {
            world.touch_client();
            world.pass(world.delay * 4);
        }
    }
    world.touch_client();
    world.pass(world.delay * 4 + Duration::from_secs(1));
    open
}

/// Several streams want to bring 1 MB each, one of them is read at a time.
#[test]
fn a_stream_that_is_read_alone_arrives_beside_full_ones() {
    const STREAMS: usize = 16;
    const BYTES: usize = 950_000;
    let mut world = World::connected(Duration::from_millis(5), 1);
    let data = vec![7; BYTES];
    let open = open_streams(&mut world, STREAMS);
    for stream in &open {
        world.client.send_on(*stream, &data);
    }
    world.touch_client();
    world.pass(Duration::from_millis(30));
    for stream in &open {
        world.server.read_only(Some(*stream));
        let others = world.server.received_on(|s| s != *stream);
        world.touch_server();
        world.pass(Duration::from_secs(2));
        let all = BYTES + b"hello".len();
        assert_eq!(world.server.received_on(|s| s == *stream), all);
        assert_eq!(world.server.received_on(|s| s != *stream), others);
        world.client.send(b"control");
        world.touch_client();
        world.pass(Duration::from_secs(1));
        let all = world.server.received_on(|_| true);
        let hello = b"hello".len();
        assert_eq!(all, others + BYTES + hello + b"control".len());
    }
}

/// What many streams bring and is not read stays within what the book says, and
/// goes when the connection ends.
#[test]
fn what_is_not_read_is_bounded_for_all_streams_together() {
    const STREAMS: usize = 16;
    const BYTES: usize = 950_000;
    const HELD_MAX: usize = 512 << 10;
    let mut world = World::connected(Duration::from_millis(5), 1);
    let data = vec![7; BYTES];
    let open = open_streams(&mut world, STREAMS);
    for stream in &open {
        world.client.send_on(*stream, &data);
    }
    world.touch_client();
    world.pass(Duration::from_millis(30));
    world.server.read_only(open.first().copied());
    world.touch_server();
    world.pass(Duration::from_secs(5));
    let arrived: usize = world.got_from.values().sum();
    let held = arrived - world.server.received_on(|_| true);
    // Headers and acknowledgements came, too.
    let others = arrived / 12;
    println!("{held} of {arrived} bytes");
    assert!(held < HELD_MAX + others, "{held} of {arrived} bytes");
    assert!(world.server.has_unread());
    world.server.abort(0, world.now);
    assert!(!world.server.has_unread());
}

/// Bytes a second on one stream while so many others are open.
fn rate(stream: Option<usize>, others: usize, delay: Duration) -> u64 {
    const BYTES: usize = 4_000_000;
    let mut world = World::connected(delay, 1);
    let open = open_streams(&mut world, others + usize::from(stream.is_some()));
    let stream = stream.map_or(StreamId::CONTROL, |n| open[n]);
    let before = world.server.received_on(|s| s == stream);
    world.client.send_on(stream, &vec![7; BYTES]);
    world.touch_client();
    let took = world.until(Duration::from_secs(100), |world| {
        world.server.received_on(|s| s == stream) == before + BYTES
    });
    BYTES as u64 * 1000 / took.as_millis() as u64
}

/// Control and two other streams fill their windows once in a round trip, one of
/// three the small one.
#[test]
fn few_streams_are_as_fast_as_their_windows() {
    for ms in [25, 50] {
        let delay = Duration::from_millis(ms);
        let window = (128 << 10) * 1000 / (2 * ms);
        for (stream, others) in [(None, 0), (None, 15), (Some(0), 0), (Some(0), 1)] {
            let rate = rate(stream, others, delay);
            println!("{ms} ms one way, {stream:?} beside {others}: {rate} B/s");
            assert!(rate > window * 3 / 4, "{stream:?} beside {others}: {rate}");
        }
        let slow = rate(Some(0), 2, delay);
        println!("{ms} ms one way, one of 3: {slow} B/s");
        assert!(slow > window / 8 * 3 / 4, "one of 3: {slow}");
    }
}

/// What waited is read when all streams are read again.
#[test]
fn streams_go_on_when_all_are_read() {
    let mut world = World::connected(Duration::from_millis(5), 1);
    let [first, second] = [0; 2].map(|_| world.client.open().expect("a stream"));
    world.server.read_only(Some(first));
    world.client.send_on(second, &[7; 300_000]);
    world.touch_client();
    world.pass(Duration::from_secs(2));
    assert_eq!(world.server.received_on(|s| s == second), 0);
    world.server.read_only(None);
    world.touch_server();
    world.pass(Duration::from_secs(2));
    assert_eq!(world.server.received_on(|s| s == second), 300_000);
}

/// A stream that is not read holds up no other one, and loses nothing.
#[test]
fn one_stream_is_paused_and_the_others_go_on() {
    const BYTES: usize = 400_000;
    let mut world = World::connected(Duration::from_millis(5), 1);
    let [first, second] = [0; 2].map(|_| world.client.open().expect("a stream"));
    world.server.pause_stream(first, true);
    for stream in [first, second] {
        world.client.send_on(stream, &[7; BYTES]);
    }
    world.touch_client();
    world.pass(Duration::from_secs(2));
    assert_eq!(world.server.received_on(|s| s == first), 0);
    assert_eq!(world.server.received_on(|s| s == second), BYTES);
    world.server.pause_stream(first, false);
    world.touch_server();
    world.pass(Duration::from_secs(2));
    assert_eq!(world.server.received_on(|s| s == first), BYTES);
}
