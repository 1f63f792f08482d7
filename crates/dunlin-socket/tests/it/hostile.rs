//! Peers that do what no program does: noise, streams without end, half of a
//! handshake.

use core::time::Duration;
use std::io::{ErrorKind, Read, Write};
use std::net::UdpSocket;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

use dunlin_socket::{Error, Limits, Listener, Options, Stream};

use crate::support::{Identity, PATIENCE, ask, bind, echo, kind_of, pair, patient, pattern, rest};

#[test]
fn noise_disturbs_no_client() {
    let identity = Identity::new();
    let listener = bind(&identity.listen());
    let addr = listener.local_addr();
    echo(listener);
    let client = identity.options().connect(("localhost", addr.port()));
    let client = client.expect("connected");
    let noise = UdpSocket::bind("127.0.0.1:0").expect("a port");
    for len in 0..1500 {
        let mut bytes = pattern(len);
        // Long headers, versions that are none, and Initials that are none.
        if let (Some(first), 1) = (bytes.first_mut(), len % 2) {
            *first |= 0xc0;
        }
        if let (Some(version), 1) = (bytes.get_mut(1..5), len % 4) {
            version.copy_from_slice(&[0, 0, 0, 1]);
        }
        noise.send_to(&bytes, addr).expect("sent");
    }
    assert_eq!(ask(&client, b"still here"), b"still here");
}

/// Streams that a client opens and abandons do not add up where none accepts them.
#[test]
fn abandoned_streams_do_not_add_up() {
    let (client, accepted) = pair();
    let (from, to) = (client.connection(), accepted.connection());
    from.set_timeout(Some(PATIENCE)).expect("a limit");
    to.set_timeout(Some(PATIENCE)).expect("a limit");
    for _ in 0..500 {
        let mut stream = from.open_stream().expect("a stream");
        stream.write_all(b"x").expect("written");
        stream.reset(3);
    }
    let mut last = from.open_stream().expect("a stream");
    last.write_all(b"last").expect("written");
    drop(last);
    let mut found = false;
    for _ in 0..=64 {
        let stream = to.accept_stream().expect("a stream");
        patient(&stream);
        let mut bytes = Vec::new();
        let read = (&stream).read_to_end(&mut bytes);
        if read.is_ok() && bytes == b"last" {
            found = true;
            break;
        }
    }
    assert!(found, "more streams waited than may");
}

/// What a client sends on streams that nothing accepts is bounded, and does not
/// keep away what it sends on the others.
#[test]
fn streams_that_are_not_accepted_are_not_read() {
    let identity = Identity::new();
    let mut limits = Limits::default();
    limits.streams = 8;
    let listener = bind(&identity.listen().limits(&limits));
    let server = ("localhost", listener.local_addr().port());
    let client = identity.options().connect(server).expect("connected");
    let (accepted, _) = listener.accept().expect("accepted");
    patient(&accepted);
    let connection = client.connection();
    connection
        .set_timeout(Some(Duration::from_millis(300)))
        .expect("a limit");
    let mut streams = Vec::new();
    while let Ok(mut stream) = connection.open_stream() {
        stream.set_nonblocking(true).expect("set");
        let taken = stream.write(&pattern(1 << 20)).expect("room");
        assert!(taken <= limits.send_buffer);
        streams.push(stream);
    }
    // One more is the first stream, which was not opened here.
    assert!(streams.len() <= 8, "{} streams", streams.len());
    let mut writer = &client;
    writer.write_all(b"first").expect("written");
    client.shutdown(std::net::Shutdown::Write).expect("ended");
    assert_eq!(rest(&accepted), b"first");
}

/// A server that allows so many streams, and how to reach it.
fn allowing(streams: u32) -> (Listener, Options, (&'static str, u16)) {
    let identity = Identity::new();
    let mut limits = Limits::default();
    limits.streams = streams;
    let listener = bind(&identity.listen().limits(&limits));
    let port = listener.local_addr().port();
    (listener, identity.options(), ("localhost", port))
}

#[test]
fn a_server_that_allows_no_stream_does_not_outlast_the_time_to_connect() {
    let (listener, options, server) = allowing(0);
    let limit = Duration::from_millis(700);
    let (sender, ended) = channel();
    thread::spawn(move || {
        let result = options.connect_timeout(limit).connect(server);
        sender.send(result.map(drop)).expect("awaited");
    });
    let (accepted, _) = listener.accept().expect("accepted");
    let result = ended.recv_timeout(Duration::from_secs(10));
    assert_eq!(kind_of(result.expect("in time")), ErrorKind::TimedOut);
    // The connection is not left open.
    assert_closed(&accepted);
}

/// The other side has closed the connection.
fn assert_closed(stream: &Stream) {
    let connection = stream.connection();
    let patience = Some(Duration::from_secs(10));
    connection.set_timeout(patience).expect("a limit");
    let error = connection.accept_stream().expect_err("closed");
    let end = Error::of(&error);
    assert!(matches!(end, Some(Error::Closed { code: 0 })), "{error:?}");
}

#[test]
fn calls_that_gave_up_do_not_keep_a_connection() {
    let (listener, options, server) = allowing(0);
    let connection = options.connect_connection(server).expect("connected");
    let (accepted, _) = listener.accept().expect("accepted");
    let limit = Some(Duration::from_millis(50));
    connection.set_timeout(limit).expect("a limit");
    assert_eq!(kind_of(connection.open_stream()), ErrorKind::WouldBlock);
    drop(connection);
    assert_closed(&accepted);
}

#[test]
fn calls_that_gave_up_take_no_place() {
    let (_listener, options, server) = allowing(0);
    let connection = options.connect_connection(server).expect("connected");
    let limit = Some(Duration::from_micros(100));
    connection.set_timeout(limit).expect("a limit");
    for turn in 0..1100 {
        let kind = kind_of(connection.open_stream());
        assert_eq!(kind, ErrorKind::WouldBlock, "{turn}");
    }
}

#[test]
fn calls_that_gave_up_take_no_stream() {
    let (listener, options, server) = allowing(1);
    let first = options.connect(server).expect("connected");
    let (accepted, _) = listener.accept().expect("accepted");
    let (from, to) = (first.connection(), accepted.connection());
    let limit = Some(Duration::from_millis(50));
    from.set_timeout(limit).expect("a limit");
    for _ in 0..3 {
        assert_eq!(kind_of(from.open_stream()), ErrorKind::WouldBlock);
    }
    from.set_timeout(Some(PATIENCE)).expect("a limit");
    to.set_timeout(Some(PATIENCE)).expect("a limit");
    assert_eq!(ask_and_end(first, accepted), b"first");
    let began = Instant::now();
    let mut fresh = from.open_stream().expect("a stream");
    assert!(began.elapsed() < PATIENCE);
    fresh.write_all(b"fresh").expect("written");
    drop(fresh);
    let stream = to.accept_stream().expect("a stream");
    patient(&stream);
    assert_eq!(rest(&stream), b"fresh");
}

/// Both sides use the first stream to its end, so that it makes room.
fn ask_and_end(mut first: Stream, accepted: Stream) -> Vec<u8> {
    patient(&accepted);
    first.write_all(b"first").expect("written");
    drop(first);
    rest(&accepted)
}
