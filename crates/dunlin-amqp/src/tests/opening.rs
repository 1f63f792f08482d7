//! Headers, `open`, `close` and time-outs.

use super::*;
use crate::Phase;

#[test]
fn both_sides_open_and_close() {
    let (mut pair, _) = Pair::open();
    assert_eq!(pair.client.connection.phase(), Phase::Opened);
    pair.client.connection.close(pair.now, None).expect("open");
    assert_eq!(pair.client.connection.phase(), Phase::CloseSent);
    pair.run();
    assert_eq!(pair.client.names(), ["Ended", "Closed"]);
    assert_eq!(pair.server.names(), ["Ended", "Closed by peer"]);
    for end in [&pair.client, &pair.server] {
        assert!(end.connection.is_finished());
        assert_eq!(end.connection.deadline(), None);
    }
}

#[test]
fn the_first_flight_has_everything() {
    let mut pair = Pair::new(SaslPolicy::Off, Limits::default(), Limits::default());
    let client = &mut pair.client.connection;
    client.open(NOW, &Open::default()).expect("opened");
    let session = client.begin(&Begin::default()).expect("begun");
    let link = client.attach(session, &attach("a", Role::Sender));
    link.expect("attached");
    let flight = pair.client.output(NOW);
    assert_eq!(
        notation::frames(&flight),
        ["header 0", "open client", "begin", "attach a h=0"]
    );
    for chunk in [usize::MAX, 1, 7] {
        let mut server = End::new(Side::Server, SaslPolicy::Off, Limits::default());
        server.chunk = chunk;
        server.feed(NOW, &flight, true);
        assert_eq!(
            server.names(),
            ["Opened client", "Begun by peer", "Attach a"]
        );
        assert_eq!(
            notation::frames(&server.output(NOW)),
            ["header 0", "open server", "begin remote=0", "attach a h=0"]
        );
    }
}

#[test]
fn what_follows_open_waits_for_the_driver() {
    let mut pair = Pair::new(SaslPolicy::Off, Limits::default(), Limits::default());
    let client = &mut pair.client.connection;
    client.open(NOW, &Open::default()).expect("opened");
    client.begin(&Begin::default()).expect("begun");
    pair.accepts = false;
    pair.run();
    assert_eq!(pair.server.names(), ["Opened client"]);
    assert_eq!(pair.server.connection.phase(), Phase::OpenRcvd);
    pair.server
        .connection
        .open(NOW, &Open::default())
        .expect("waits");
    pair.server.feed(NOW, &[], false);
    assert_eq!(pair.server.names(), ["Begun by peer"]);
    pair.run();
    assert_eq!(pair.client.names(), ["Opened server", "Begun"]);
}

#[test]
fn a_connection_is_refused_with_open_and_close() {
    let mut pair = Pair::new(SaslPolicy::Off, Limits::default(), Limits::default());
    pair.accepts = false;
    pair.client
        .connection
        .open(NOW, &Open::default())
        .expect("opened");
    pair.run();
    let error = dunlin_amqp_codec::Error::new(dunlin_amqp_codec::condition::NOT_FOUND, "host");
    let server = &mut pair.server.connection;
    server.close(NOW, Some(&error)).expect("not closed");
    assert_eq!(
        notation::frames(&pair.server.output(NOW)),
        ["open server", "close amqp:not-found"]
    );
}

#[test]
fn a_header_that_is_not_taken_is_answered_with_one_that_is() {
    for (sasl, sent, answer) in [
        (SaslPolicy::Off, b"AMQP\x03\x01\x00\x00", "header 0"),
        (SaslPolicy::Required, b"AMQP\x00\x01\x00\x00", "header 3"),
        (SaslPolicy::Optional, b"AMQP\x00\x00\x09\x01", "header 0"),
        (SaslPolicy::Required, b"GET / HT", "header 3"),
        (SaslPolicy::Off, b"AMQP\x02\x01\x00\x00", "header 0"),
    ] {
        let mut server = End::new(Side::Server, sasl, Limits::default());
        server.feed(NOW, sent, true);
        assert_eq!(notation::frames(&server.output(NOW)), [answer]);
        assert_eq!(server.names(), ["Closed amqp:not-implemented"]);
        assert!(server.connection.is_finished());
    }
}

#[test]
fn a_silent_peer_is_closed_and_heartbeats_keep_one_open() {
    let quick = Limits {
        idle_time_out: Some(Duration::from_secs(4)),
        ..Limits::default()
    };
    let never = Limits {
        idle_time_out: None,
        ..Limits::default()
    };
    let (mut pair, _) = Pair::open_with(never, quick);
    for _ in 0..20 {
        pair.wait(Duration::from_secs(1));
        pair.run();
    }
    assert!(pair.client.names().is_empty() && pair.server.names().is_empty());
    // The client's frames do not arrive any more.
    for _ in 0..5 {
        pair.wait(Duration::from_secs(1));
        pair.client.output(pair.now);
    }
    let error = "amqp:resource-limit-exceeded";
    assert_eq!(
        pair.server.names(),
        [
            alloc::format!("Ended {error}"),
            alloc::format!("Closed {error}")
        ]
    );
    assert_eq!(pair.server.connection.phase(), Phase::Discarding);
    pair.wait(Duration::from_secs(5));
    assert_eq!(pair.server.connection.phase(), Phase::End);
    assert!(pair.server.names().is_empty(), "said once");
}

#[test]
fn opening_and_closing_have_their_time() {
    let mut server = End::new(Side::Server, SaslPolicy::Off, Limits::default());
    let deadline = server.connection.deadline().expect("opening");
    server.connection.on_deadline(deadline);
    server.feed(deadline, &[], false);
    assert_eq!(server.names(), ["Closed amqp:resource-limit-exceeded"]);

    let (mut pair, _) = Pair::open();
    pair.client.connection.close(pair.now, None).expect("open");
    pair.client.output(pair.now);
    pair.wait(Limits::default().close_time_out);
    let names = pair.client.names();
    assert_eq!(names, ["Ended", "Closed amqp:resource-limit-exceeded"]);
    assert!(pair.client.connection.is_finished());
}

#[test]
fn the_end_of_the_transport_ends_links_sessions_and_connection() {
    let (mut pair, session) = Pair::open();
    pair.attach(session, &attach("a", Role::Sender));
    pair.client.connection.handle_closed();
    pair.client.feed(NOW, &[], false);
    let forced = "amqp:connection:forced";
    let expected = ["Detached", "Ended", "Closed"].map(|it| alloc::format!("{it} {forced}"));
    assert_eq!(pair.client.names(), expected);
    pair.client.connection.handle_closed();
    pair.client.feed(NOW, &[], false);
    assert!(pair.client.names().is_empty());
}
