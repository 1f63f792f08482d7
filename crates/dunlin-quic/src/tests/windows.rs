//! Streams that are not read: what they hold, and what goes on beside them.

use core::time::Duration;

use dunlin_base::StreamId;

use super::World;

/// Several streams want to bring 1 MB each, one of them is read at a time.
#[test]
fn a_stream_that_is_read_alone_arrives_beside_full_ones() {
    const STREAMS: usize = 9;
    const BYTES: usize = 950_000;
    let mut world = World::connected(Duration::from_millis(5), 1);
    let data = vec![7; BYTES];
    let open: Vec<StreamId> = (0..STREAMS)
        .map(|_| world.client.open().expect("a stream"))
        .collect();
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
        assert_eq!(world.server.received_on(|s| s == *stream), BYTES);
        assert_eq!(world.server.received_on(|s| s != *stream), others);
        world.client.send(b"control");
        world.touch_client();
        world.pass(Duration::from_secs(1));
        let all = world.server.received_on(|_| true);
        assert_eq!(all, others + BYTES + b"control".len());
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
