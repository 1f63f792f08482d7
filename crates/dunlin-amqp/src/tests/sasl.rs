//! The SASL layer.

use dunlin_amqp_codec::SaslInit;

use super::*;

fn init() -> SaslInit<'static> {
    SaslInit {
        mechanism: Symbol::from_static("PLAIN"),
        initial_response: Some(b"\0u\0p"),
        hostname: None,
    }
}

#[test]
fn a_client_sends_everything_with_its_choice() {
    for chunk in [usize::MAX, 1, 5] {
        let mut pair = Pair::new(SaslPolicy::Required, Limits::default(), Limits::default());
        pair.server.chunk = chunk;
        pair.client.chunk = chunk;
        let client = &mut pair.client.connection;
        client.sasl_init(&init()).expect("a SASL layer");
        client.open(NOW, &Open::default()).expect("opened");
        client.begin(&Begin::default()).expect("begun");
        pair.accepts = false;
        pair.run();
        assert_eq!(pair.server.names(), ["SaslInit PLAIN"]);
        assert_eq!(pair.client.names(), ["mechanisms PLAIN ANONYMOUS"]);
        // The driver decides later.
        let server = &mut pair.server.connection;
        server
            .sasl_outcome(SaslCode::Ok, Some(b"v=x"))
            .expect("waits");
        assert!(server.sasl_outcome(SaslCode::Ok, None).is_err(), "once");
        pair.server.feed(NOW, &[], false);
        assert_eq!(pair.server.names(), ["Opened client"]);
        pair.server
            .connection
            .open(NOW, &Open::default())
            .expect("waits");
        pair.server.feed(NOW, &[], false);
        pair.run();
        assert_eq!(pair.server.names(), ["Begun by peer"]);
        assert_eq!(
            pair.client.names(),
            ["SaslOutcome Ok", "Opened server", "Begun"]
        );
    }
}

#[test]
fn challenges_go_back_and_forth_and_are_bounded() {
    let mut pair = Pair::new(SaslPolicy::Required, Limits::default(), Limits::default());
    pair.accepts = false;
    pair.client
        .connection
        .sasl_init(&init())
        .expect("a SASL layer");
    pair.run();
    pair.client.names();
    pair.server.names();
    for _ in 0..crate::limits::SASL_ROUNDS_MAX {
        pair.server.connection.sasl_challenge(b"c").expect("waits");
        assert!(pair.server.connection.sasl_challenge(b"c").is_err());
        pair.run();
        assert_eq!(pair.client.names(), ["SaslChallenge"]);
        pair.client.connection.sasl_response(b"r").expect("asked");
        pair.run();
        assert_eq!(pair.server.names(), ["SaslResponse"]);
    }
    assert_eq!(
        pair.server.connection.sasl_challenge(b"c"),
        Err(crate::CallError::Limit)
    );
    let server = &mut pair.server.connection;
    server.sasl_outcome(SaslCode::Auth, None).expect("waits");
    pair.run();
    pair.server.feed(NOW, &[], false);
    let closed = "Closed amqp:unauthorized-access";
    assert_eq!(pair.server.names(), [closed]);
    assert_eq!(pair.client.names(), ["SaslOutcome Auth", closed]);
    assert!(pair.server.connection.is_finished());
}

#[test]
fn what_comes_while_the_driver_decides_is_bounded() {
    let limits = Limits {
        waiting_bytes_max: 1000,
        ..Limits::default()
    };
    let mut pair = Pair::new(SaslPolicy::Required, Limits::default(), limits);
    pair.accepts = false;
    pair.client
        .connection
        .sasl_init(&init())
        .expect("a SASL layer");
    pair.run();
    pair.server.names();
    pair.server.feed(NOW, &[0; 1000], false);
    assert!(pair.server.names().is_empty());
    pair.server.feed(NOW, &[0; 1], false);
    assert_eq!(pair.server.names(), ["Closed amqp:resource-limit-exceeded"]);
}

#[test]
fn frames_out_of_order_end_the_exchange() {
    let response = notation_sasl(&dunlin_amqp_codec::SaslFrame::Response(
        dunlin_amqp_codec::SaslResponse { response: b"r" },
    ));
    let open = notation::frame(0, &Performative::Open(Open::default()), b"");
    for (bytes, condition) in [
        (response, "amqp:illegal-state"),
        (open, "amqp:connection:framing-error"),
        (alloc::vec![0, 1, 0, 0], "amqp:connection:framing-error"),
    ] {
        let mut server = End::new(Side::Server, SaslPolicy::Required, Limits::default());
        server.feed(NOW, b"AMQP\x03\x01\x00\x00", false);
        assert_eq!(
            notation::frames(&server.output(NOW)),
            ["header 3", "mechanisms PLAIN ANONYMOUS"]
        );
        server.feed(NOW, &bytes, false);
        assert_eq!(server.names(), [alloc::format!("Closed {condition}")]);
        assert!(server.output(NOW).is_empty());
    }
}

#[test]
fn a_server_that_may_do_without_takes_both_headers() {
    let mut server = End::new(Side::Server, SaslPolicy::Optional, Limits::default());
    server.feed(NOW, b"AMQP\x00\x01\x00\x00", false);
    assert_eq!(notation::frames(&server.output(NOW)), ["header 0"]);
}

fn notation_sasl(frame: &dunlin_amqp_codec::SaslFrame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    dunlin_amqp_codec::frame::encode_sasl(frame, &mut bytes).expect("encoded");
    bytes
}
