//! Threads that block: echo, many streams, time limits, back-pressure.

use core::time::Duration;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::thread;
use std::time::Instant;

use dunlin_socket::{Driver, Error, Limits};

use crate::support::{
    Identity, PATIENCE, ask, bind, echo, echo_one, kind_of, pair, patient, pattern, rest, server,
};

#[test]
fn bytes_come_back_to_many_clients() {
    let (listener, options, server) = server();
    echo(listener);
    for size in [0, 1, 1200, 300_000] {
        let stream = options.connect(server).expect("connected");
        let sent = pattern(size);
        assert!(ask(&stream, &sent) == sent, "{size} bytes");
    }
}

#[test]
fn addresses_are_those_of_both_ends() {
    let (client, accepted) = pair();
    let addr = |stream: &dunlin_socket::Stream| {
        let local = stream.local_addr().expect("an address");
        (local, stream.peer_addr().expect("an address"))
    };
    let ((client_local, client_peer), (local, peer)) = (addr(&client), addr(&accepted));
    assert_eq!((client_local, client_peer), (peer, local));
    assert!(client_local.ip().is_loopback() && client_local.port() != 0);
    assert_eq!(client.connection().protocol(), "dunlin-socket");
    assert_eq!(accepted.connection().protocol(), "dunlin-socket");
    assert!(client.connection().is_quic());
}

#[test]
fn either_side_may_speak_first() {
    let (mut client, mut accepted) = pair();
    accepted.write_all(b"220 ready\n").expect("written");
    let mut greeting = [0; 10];
    client.read_exact(&mut greeting).expect("a greeting");
    assert_eq!(&greeting, b"220 ready\n");
    client.write_all(b"HELO").expect("written");
    let mut answer = [0; 4];
    accepted.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"HELO");
}

/// A server that only speaks, and has gone before its client looks.
#[test]
fn what_a_server_says_first_outlives_it() {
    let (client, mut accepted) = pair();
    accepted.write_all(b"bye").expect("written");
    drop(accepted);
    assert_eq!(rest(&client), b"bye");
}

#[test]
fn streams_of_a_connection_do_not_wait_for_each_other() {
    let (listener, options, server) = server();
    thread::spawn(move || {
        let connection = listener.accept_connection().expect("accepted");
        while let Ok(stream) = connection.accept_stream() {
            thread::spawn(move || echo_one(stream));
        }
    });
    let connection = options.connect_connection(server).expect("connected");
    // One whose echo is not read: its buffers and windows are full.
    let mut stuck = connection.open_stream().expect("a stream");
    stuck
        .set_write_timeout(Some(Duration::from_millis(300)))
        .expect("a limit");
    let block = pattern(64 << 10);
    while stuck.write(&block).is_ok() {}
    let threads: Vec<_> = (0..8)
        .map(|n| {
            let connection = connection.clone();
            thread::spawn(move || {
                for turn in 0..25 {
                    let sent = pattern(1000 * n + turn);
                    let stream = connection.open_stream().expect("a stream");
                    assert!(ask(&stream, &sent) == sent);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
}

#[test]
fn the_server_may_open_streams() {
    let (client, accepted) = pair();
    let mut pushed = accepted.connection().open_stream().expect("a stream");
    pushed.write_all(b"pushed").expect("written");
    pushed.shutdown(Shutdown::Write).expect("ended");
    let connection = client.connection();
    connection.set_timeout(Some(PATIENCE)).expect("a limit");
    let stream = connection.accept_stream().expect("a stream");
    assert_eq!(rest(&stream), b"pushed");
    assert_eq!((client.id(), stream.id()), (0, 1));
}

#[test]
fn a_clone_reads_while_the_other_writes() {
    let (client, accepted) = pair();
    thread::spawn(move || echo_one(accepted));
    let mut writer = client.try_clone().expect("a clone");
    let sent = pattern(3 << 20);
    let expected = sent.clone();
    let thread = thread::spawn(move || {
        writer.write_all(&sent).expect("written");
        writer.shutdown(Shutdown::Write).expect("ended");
    });
    assert!(rest(&client) == expected);
    thread.join().expect("no panic");
}

#[test]
fn calls_end_at_their_time_limits() {
    let (mut client, accepted) = pair();
    let limit = Duration::from_millis(50);
    client.set_read_timeout(Some(limit)).expect("a limit");
    client.set_write_timeout(Some(limit)).expect("a limit");
    assert_eq!(client.read_timeout().expect("one"), Some(limit));
    let began = Instant::now();
    assert_eq!(kind_of(client.read(&mut [0])), ErrorKind::WouldBlock);
    assert!(began.elapsed() >= limit);
    let block = [0; 64 << 10];
    let full = loop {
        if let Err(error) = client.write(&block) {
            break error;
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    assert!(matches!(Error::of(&full), Some(Error::WouldBlock)));
    client.set_nonblocking(true).expect("set");
    assert_eq!(kind_of(client.read(&mut [0])), ErrorKind::WouldBlock);
    assert_eq!(kind_of(client.write(&block)), ErrorKind::WouldBlock);
    let zero = client.set_read_timeout(Some(Duration::ZERO));
    assert_eq!(kind_of(zero), ErrorKind::InvalidInput);
    let connection = accepted.connection();
    connection.set_timeout(Some(limit)).expect("a limit");
    assert_eq!(kind_of(connection.accept_stream()), ErrorKind::WouldBlock);
}

#[test]
fn a_listener_need_not_block() {
    let (listener, options, server) = server();
    listener.set_nonblocking(true).expect("set");
    assert_eq!(kind_of(listener.accept()), ErrorKind::WouldBlock);
    let _client = options.connect(server).expect("connected");
    let until = Instant::now() + PATIENCE;
    while let Err(error) = listener.accept() {
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        assert!(Instant::now() < until);
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn peeking_takes_nothing() {
    let (mut client, accepted) = pair();
    client.write_all(b"abc").expect("written");
    client.shutdown(Shutdown::Write).expect("ended");
    let mut into = [0; 2];
    assert_eq!(accepted.peek(&mut into).expect("bytes"), 2);
    assert_eq!(rest(&accepted), b"abc");
}

/// 20 MB for a reader that does not read: little of it is taken, and all of it
/// arrives once the reader goes on.
#[test]
fn a_slow_reader_holds_up_the_writer_and_no_memory() {
    const BYTES: usize = 20 << 20;
    // Both buffers and both windows, and what one turn of each driver reads.
    const HELD_MAX: usize = 4 << 20;
    let identity = Identity::new();
    let listener = bind(&identity.listen());
    let driver = Driver::new(&Limits::default()).expect("a driver");
    let server = ("localhost", listener.local_addr().port());
    let options = identity.options().driver(&driver);
    let mut client = options.connect(server).expect("connected");
    let (accepted, _) = listener.accept().expect("accepted");
    patient(&accepted);
    let sent = pattern(BYTES);
    client
        .set_write_timeout(Some(Duration::from_millis(500)))
        .expect("a limit");
    let mut taken = 0;
    while let Ok(count) = client.write(&sent[taken..]) {
        taken += count;
    }
    assert!((512 << 10..HELD_MAX).contains(&taken), "{taken} bytes");
    patient(&client);
    let expected = sent.clone();
    let writer = thread::spawn(move || {
        client.write_all(&sent[taken..]).expect("written");
        client.finish().expect("delivered");
    });
    assert!(rest(&accepted) == expected);
    writer.join().expect("no panic");
}
