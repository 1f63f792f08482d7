//! Moves to other addresses, TLS where QUIC does not get through, statistics.

use core::time::Duration;
use std::io::{ErrorKind, Read, Write, copy};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Instant;

use dunlin_socket::{EarlyData, Listener, Options, Race, Stream, TlsOptions};

use crate::support::{
    Identity, PATIENCE, ask, bind, echo, kind_of, patient, pattern, rest, server,
};

fn say(from: &mut Stream, to: &mut Stream, text: &[u8]) {
    from.write_all(text).expect("written");
    let mut into = vec![0; text.len()];
    to.read_exact(&mut into).expect("read");
    assert_eq!(into, text);
}

/// Both ends of a stream. A new path is tried with the listener's help.
fn pair() -> (Listener, Stream, Stream) {
    let (listener, options, server) = server();
    let client = options.connect(server).expect("connected");
    let (accepted, _) = listener.accept().expect("accepted");
    patient(&client);
    patient(&accepted);
    (listener, client, accepted)
}

/// The server sees its client at another address.
fn await_peer(accepted: &Stream, port: u16) {
    let until = Instant::now() + PATIENCE;
    while accepted.peer_addr().expect("an address").port() != port {
        assert!(Instant::now() < until);
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_stream_goes_on_from_another_address() {
    let (_listener, mut client, mut accepted) = pair();
    say(&mut client, &mut accepted, b"before");
    let connection = client.connection();
    let before = connection.local_addr();
    let to = ([127, 0, 0, 2], 0).into();
    let after = connection.migrate(Some(to)).expect("moved");
    assert_eq!(after.ip(), to.ip());
    assert_eq!(connection.local_addr(), after);
    say(&mut client, &mut accepted, b"after");
    say(&mut accepted, &mut client, b"answer");
    await_peer(&accepted, after.port());
    assert_ne!(before, after);
    let stats = connection.stats().expect("statistics");
    assert_eq!(stats.address_changes, 1);
    assert!(
        stats.rtt > Duration::ZERO && stats.bytes_sent > 0,
        "{stats:?}"
    );
    // A server stays where it is.
    let error = accepted.connection().migrate(None).expect_err("a server");
    assert_eq!(error.kind(), ErrorKind::Other);
}

#[test]
fn a_stream_survives_a_nat_that_forgets() {
    let (_listener, mut client, mut accepted) = pair();
    say(&mut client, &mut accepted, b"before");
    let connection = client.connection();
    let before = connection.local_addr();
    let after = connection.rebind().expect("another port");
    assert_ne!(before.port(), after.port());
    say(&mut client, &mut accepted, b"after");
    say(&mut accepted, &mut client, b"answer");
    await_peer(&accepted, after.port());
}

/// A port where only TCP gets through, and the first bytes so late.
fn without_udp(server: u16, late: Duration) -> (u16, UdpSocket) {
    loop {
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = tcp.local_addr().expect("an address").port();
        let Ok(udp) = UdpSocket::bind(("127.0.0.1", port)) else {
            continue;
        };
        thread::spawn(move || {
            for client in tcp.incoming() {
                let client = client.expect("accepted");
                thread::sleep(late);
                let onwards = TcpStream::connect(("127.0.0.1", server)).expect("connected");
                for (mut from, mut to) in [
                    (client.try_clone(), onwards.try_clone()),
                    (Ok(onwards), Ok(client)),
                ]
                .map(|(from, to)| (from.expect("one"), to.expect("one")))
                {
                    thread::spawn(move || {
                        let _ = copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Write);
                    });
                }
            }
        });
        return (port, udp);
    }
}

#[test]
fn tls_is_taken_where_quic_does_not_get_through() {
    let identity = Identity::new();
    let listener = bind(&identity.listen().also_tls());
    let port = listener.local_addr().port();
    echo(listener);
    let racing = |port: u16| {
        let tls = TlsOptions::new().ca_pem(identity.cert.clone());
        let options = Options::new().tls(tls).race(Race::new());
        options.connect(("localhost", port)).expect("connected")
    };
    let (blocked, _udp) = without_udp(port, Duration::ZERO);
    let stream = racing(blocked);
    let connection = stream.connection();
    assert!(!connection.is_quic());
    patient(&stream);
    let sent = vec![7; 1 << 20];
    assert!(ask(&stream, &sent) == sent);
    assert_eq!(kind_of(connection.open_stream()), ErrorKind::Unsupported);
    assert_eq!(kind_of(connection.stats()), ErrorKind::Unsupported);
    // Where both get through, QUIC is as good as TLS or better, and one of them
    // carries the bytes.
    let stream = racing(port);
    assert_eq!(stream.connection().early_data(), EarlyData::None);
    assert_eq!(ask(&stream, b"both"), b"both");
}

/// Time that TLS takes. QUIC may take a quarter longer: that is how long TLS is open
/// before it is chosen.
const TLS_TIME: Duration = Duration::from_millis(1200);

/// TLS is open, and its server speaks, while QUIC is still tried.
#[test]
fn a_server_that_speaks_first_is_heard_where_tls_is_taken() {
    let identity = Identity::new();
    let listener = bind(&identity.listen().also_tls());
    let (blocked, _udp) = without_udp(listener.local_addr().port(), TLS_TIME);
    // More than is read before the connection is chosen.
    let greeting = pattern(2 << 20);
    let sent = greeting.clone();
    thread::spawn(move || {
        let (mut accepted, _) = listener.accept().expect("accepted");
        patient(&accepted);
        accepted.write_all(&sent).expect("written");
        drop(accepted);
        // It drives what it accepted.
        thread::sleep(PATIENCE);
        drop(listener);
    });
    let options = identity
        .options()
        .race(Race::new().head_start(Duration::ZERO));
    let stream = options.connect(("localhost", blocked)).expect("connected");
    assert!(!stream.connection().is_quic());
    patient(&stream);
    assert!(rest(&stream) == greeting);
}
