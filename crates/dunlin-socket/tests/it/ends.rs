//! How streams and connections end: half, dropped, reset, refused, gone.

use core::time::Duration;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, UdpSocket};
use std::thread;
use std::time::Instant;

use dunlin_socket::{Error, Limits, Options, TlsOptions};

use crate::support::{
    Identity, PATIENCE, Relay, ask, bind, kind_of, pair, patient, pattern, rest, server,
};

#[test]
fn half_of_a_stream_ends_alone() {
    let (mut client, mut accepted) = pair();
    client.write_all(b"question").expect("written");
    client.shutdown(Shutdown::Write).expect("ended");
    assert_eq!(kind_of(client.write(b"late")), ErrorKind::BrokenPipe);
    assert_eq!(rest(&accepted), b"question");
    // The other half goes on for as long as it likes.
    for _ in 0..3 {
        thread::sleep(Duration::from_millis(20));
        accepted.write_all(b"answer").expect("written");
    }
    drop(accepted);
    assert_eq!(rest(&client), b"answeransweranswer");
}

#[test]
fn what_was_written_arrives_after_its_writer_is_dropped() {
    let (mut client, accepted) = pair();
    let sent = pattern(200_000);
    client.write_all(&sent).expect("written");
    drop(client);
    assert!(rest(&accepted) == sent);
    let mut writer = &accepted;
    // Nothing reads the answer.
    let until = Instant::now() + PATIENCE;
    while writer.write(b"answer").is_ok() {
        assert!(Instant::now() < until);
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_was_written_on_one_of_many_streams_arrives_after_it_is_dropped() {
    let (client, accepted) = pair();
    let (from, to) = (client.connection(), accepted.connection());
    to.set_timeout(Some(PATIENCE)).expect("a limit");
    for turn in 0..20 {
        let sent = pattern(10_000 + turn);
        let mut stream = from.open_stream().expect("a stream");
        patient(&stream);
        stream.write_all(&sent).expect("written");
        drop(stream);
        let stream = to.accept_stream().expect("a stream");
        patient(&stream);
        assert!(rest(&stream) == sent, "{turn}");
    }
    // The connection is there still.
    drop(to);
    thread::spawn(move || crate::support::echo_one(accepted));
    assert_eq!(ask(&client, b"x"), b"x");
}

#[test]
fn finishing_waits_for_the_peer() {
    let (mut client, accepted) = pair();
    client.write_all(&pattern(100_000)).expect("written");
    client.finish().expect("delivered");
    drop(client);
    assert_eq!(rest(&accepted).len(), 100_000);
}

#[test]
fn reading_ends_without_a_word_to_the_peer() {
    let (client, mut accepted) = pair();
    client.shutdown(Shutdown::Read).expect("ended");
    assert_eq!(rest(&client), b"");
    // It may write more than all windows.
    accepted.write_all(&pattern(3 << 20)).expect("written");
    assert_eq!(rest(&client), b"");
}

#[test]
fn a_reset_shows_its_code_both_ways() {
    let (mut client, mut accepted) = pair();
    client.write_all(b"abc").expect("written");
    let mut into = [0; 3];
    accepted.read_exact(&mut into).expect("read");
    client.reset(77);
    let error = accepted.read(&mut into).expect_err("reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert!(
        matches!(Error::of(&error), Some(Error::Reset { code: 77 })),
        "{error:?}"
    );
    let error = accepted.write(b"x").expect_err("stopped");
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    assert!(
        matches!(Error::of(&error), Some(Error::Stopped { code: 77 })),
        "{error:?}"
    );
    assert_eq!(kind_of(client.read(&mut into)), ErrorKind::NotConnected);
    // It was one stream of the connection.
    let mut other = client.connection().open_stream().expect("a stream");
    other.write_all(b"other").expect("written");
    drop(other);
    let connection = accepted.connection();
    let other = connection.accept_stream().expect("a stream");
    assert_eq!(rest(&other), b"other");
}

/// A connection that is closed in the middle of a stream is not the end of it.
#[test]
fn a_stream_that_is_cut_off_does_not_seem_to_end() {
    let (client, mut accepted) = pair();
    let connection = client.connection();
    let wait = Duration::from_millis(50);
    accepted.set_read_timeout(Some(wait)).expect("a limit");
    assert_eq!(kind_of(accepted.read(&mut [0])), ErrorKind::WouldBlock);
    patient(&accepted);
    client.reset(5);
    connection.close(9);
    let error = accepted.read(&mut [0]).expect_err("cut off");
    let kinds = [ErrorKind::ConnectionAborted, ErrorKind::ConnectionReset];
    assert!(kinds.contains(&error.kind()), "{error:?}");
    let error = accepted.connection().accept_stream().expect_err("closed");
    assert!(
        matches!(Error::of(&error), Some(Error::Closed { code: 9 })),
        "{error:?}"
    );
    let error = connection.open_stream().expect_err("closed");
    assert!(
        matches!(Error::of(&error), Some(Error::ClosedHere)),
        "{error:?}"
    );
}

#[test]
fn a_peer_that_vanishes_is_noticed() {
    let identity = Identity::new();
    let listener = bind(&identity.listen().keep_alive(None));
    let relay = Relay::to(listener.local_addr());
    let options = identity.options().keep_alive(Some(Duration::from_secs(1)));
    let mut client = options
        .connect(("localhost", relay.port))
        .expect("connected");
    patient(&client);
    client.write_all(b"x").expect("written");
    let (_accepted, _) = listener.accept().expect("accepted");
    // It is held as long as it answers.
    client
        .set_read_timeout(Some(Duration::from_secs(4)))
        .expect("a limit");
    assert_eq!(kind_of(client.read(&mut [0])), ErrorKind::WouldBlock);
    relay.cut();
    patient(&client);
    let began = Instant::now();
    let error = client.read(&mut [0]).expect_err("gone");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(
        matches!(Error::of(&error), Some(Error::IdleTimeout)),
        "{error:?}"
    );
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!(kind_of(client.write(b"x")), ErrorKind::TimedOut);
}

#[test]
fn a_closed_port_is_refused() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let addr = socket.local_addr().expect("an address");
    drop(socket);
    let options = Identity::new().options();
    assert_eq!(kind_of(options.connect(addr)), ErrorKind::ConnectionRefused);
}

#[test]
fn a_server_that_says_nothing_times_out() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let addr = socket.local_addr().expect("an address");
    let options = Identity::new()
        .options()
        .connect_timeout(Duration::from_millis(300));
    assert_eq!(kind_of(options.connect(addr)), ErrorKind::TimedOut);
}

#[test]
fn only_the_right_certificate_is_good() {
    let identity = Identity::new();
    let listener = bind(&identity.listen());
    let port = listener.local_addr().port();
    // Of another authority, and for another name.
    let stranger = Identity::new().options();
    assert_eq!(
        kind_of(stranger.connect(("localhost", port))),
        ErrorKind::InvalidData
    );
    let options = identity.options();
    assert_eq!(
        kind_of(options.connect(("127.0.0.1", port))),
        ErrorKind::InvalidData
    );
    // Another application protocol.
    let other = options.clone().protocol("other");
    assert_eq!(
        kind_of(other.connect(("localhost", port))),
        ErrorKind::InvalidData
    );
    // Certificates that are none.
    let none = Options::new().tls(TlsOptions::new().ca_pem("no certificate"));
    assert_eq!(
        kind_of(none.connect(("localhost", port))),
        ErrorKind::InvalidInput
    );
    options.connect(("localhost", port)).expect("connected");
    let any = Options::new().tls(TlsOptions::new().dangerous_no_verification());
    any.connect(("127.0.0.1", port)).expect("connected");
}

#[test]
fn an_address_in_use_is_refused() {
    let (listener, ..) = server();
    let again = Identity::new().listen().bind(listener.local_addr());
    assert_eq!(kind_of(again), ErrorKind::AddrInUse);
}

#[test]
fn a_full_backlog_closes_newcomers() {
    let identity = Identity::new();
    let mut limits = Limits::default();
    limits.backlog = 2;
    let listener = bind(&identity.listen().limits(&limits));
    let server = ("localhost", listener.local_addr().port());
    let options = identity.options();
    let mut clients: Vec<_> = (0..3)
        .map(|_| options.connect(server).expect("connected"))
        .collect();
    let mut last = clients.pop().expect("three");
    patient(&last);
    let error = last.read(&mut [0]).expect_err("closed");
    assert!(
        matches!(Error::of(&error), Some(Error::Closed { code: 1 })),
        "{error:?}"
    );
    for _ in clients {
        listener.accept().expect("accepted");
    }
}

#[test]
fn a_listener_that_is_dropped_leaves_its_connections() {
    let (listener, options, server) = server();
    let client = options.connect(server).expect("connected");
    let (accepted, _) = listener.accept().expect("accepted");
    drop(listener);
    thread::spawn(move || crate::support::echo_one(accepted));
    assert_eq!(ask(&client, b"still"), b"still");
    let quick = options.connect_timeout(Duration::from_secs(2));
    assert!(quick.connect(server).is_err());
}
