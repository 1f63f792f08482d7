//! How clients come and go.

use dunlin_client::{
    Client, ConnectError, ConnectionEvent, DisconnectCause, PeerError, Publish, PublishError, QoS,
    ReasonCode, Runtime, RuntimeError, RuntimeLimits, TlsOptions, Version, Will,
};
use dunlin_mqtt::codec::{ConnAck, Packet};
use dunlin_mqtt::scram;

use super::server::Server;
use super::{Duration, run};

#[test]
fn connect_says_what_was_asked_for() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept();
        peer.expect_connect(|connect| {
            assert_eq!(connect.client_id, "plant");
            assert_eq!((connect.keep_alive, connect.clean_start), (30, false));
            assert_eq!(connect.username, Some("u"));
            assert_eq!(connect.password, Some(b"p".as_slice()));
            let will = connect.will.as_ref().expect("a will");
            assert_eq!((will.topic, will.payload), ("gone", b"!".as_slice()));
            assert_eq!((will.qos, will.retain), (QoS::AtLeastOnce, true));
            assert_eq!(will.properties.delay_interval, Some(5));
            let properties = &connect.properties;
            assert_eq!(properties.session_expiry_interval, Some(3600));
            assert_eq!(properties.receive_maximum.map(|m| m.get()), Some(9));
            assert_eq!(properties.topic_alias_maximum, Some(3));
            let user: Vec<_> = properties.user_properties.iter().collect();
            assert_eq!(user, [("k", "v")]);
        });
        let mut connack = ConnAck::default();
        connack.properties.assigned_client_identifier = Some("other");
        peer.send_packet(&Packet::ConnAck(connack));
        peer.expect("DISCONNECT");
        peer.expect("end");
    });
    run(async {
        let will = Publish::new("gone", "!").qos(QoS::AtLeastOnce).retain(true);
        let (client, _messages) = server
            .client()
            .client_id("plant")
            .keep_alive(Duration::from_secs(30))
            .clean_start(false)
            .session_expiry(Duration::from_secs(3600))
            .credentials("u", "p")
            .will(Will::new(will).delay(Duration::from_secs(5)))
            .receive_maximum(9)
            .topic_aliases(3)
            .user_property("k", "v")
            .connect()
            .await
            .expect("connected");
        assert_eq!(client.client_id(), "other");
        assert!(client.negotiated().is_some());
        client.disconnect().await;
        assert!(client.negotiated().is_none());
    });
    server.end();
}

#[test]
fn a_refusal_is_reported_with_its_reason() {
    for (version, hex, want) in [
        (Version::V5, "0x86", ReasonCode::BadUserNameOrPassword),
        (Version::V311, "0x87", ReasonCode::NotAuthorized),
    ] {
        let server = Server::run(move |listener| {
            let mut peer = listener.accept();
            peer.expect("CONNECT c");
            peer.send(&format!("CONNACK {hex}"));
            peer.expect("end");
        });
        let error = run(server.client().version(version).connect()).expect_err("refused");
        assert_eq!(error.reason(), Some(want));
        server.end();
    }
}

#[test]
fn a_silent_server_is_given_up() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept();
        peer.expect("CONNECT c");
        peer.expect("end");
    });
    let result = run(server
        .client()
        .connect_timeout(Duration::from_millis(50))
        .connect());
    let error = result.expect_err("too late");
    assert!(
        matches!(
            error,
            ConnectError::Failed(DisconnectCause::Peer(PeerError::ConnectTimeout))
        ),
        "{error:?}"
    );
    server.end();
}

#[test]
fn no_server_is_an_error() {
    run(async {
        // A port that was free a moment ago.
        let port = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            listener.local_addr().expect("an address").port()
        };
        let builder = Client::builder(format!("mqtt://127.0.0.1:{port}")).expect("a URL");
        let error = builder.connect().await.expect_err("refused");
        assert!(matches!(
            error,
            ConnectError::Failed(DisconnectCause::Transport(_))
        ));

        // RFC 6761: this name never exists.
        let builder = Client::builder("mqtt://nothing.invalid").expect("a URL");
        let error = builder.connect().await.expect_err("no such name");
        assert!(
            matches!(error, ConnectError::Failed(DisconnectCause::Resolve { .. })),
            "{error:?}"
        );

        let builder = Client::builder("mqtts://127.0.0.1").expect("a URL");
        let tls = TlsOptions::new().ca_file("/nonexistent/ca.pem");
        let error = builder.tls(tls).connect().await.expect_err("no such file");
        assert!(error.to_string().contains("/nonexistent/ca.pem"), "{error}");
    });
}

#[test]
fn dropping_all_handles_disconnects() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept_session(false);
        peer.expect("DISCONNECT expiry=0");
        peer.expect("end");
    });
    run(async {
        let (client, messages) = server.client().connect().await.expect("connected");
        let clone = client.clone();
        drop(client);
        drop(messages);
        drop(clone);
    });
    server.end();
}

#[test]
fn giving_up_connecting_closes_the_connection() {
    let (asked, wait) = tokio::sync::oneshot::channel();
    let server = Server::run(move |listener| {
        let mut peer = listener.accept();
        peer.expect("CONNECT c");
        asked.send(()).expect("the client waits");
        peer.expect("DISCONNECT expiry=0");
        peer.expect("end");
    });
    run(async {
        tokio::select! {
            _ = server.client().connect() => unreachable!("without CONNACK"),
            asked = wait => asked.expect("CONNECT came"),
        }
    });
    server.end();
}

#[test]
fn disconnecting_in_three_ways() {
    let server = Server::run(|listener| {
        for disconnect in ["DISCONNECT", "DISCONNECT 0x04", "DISCONNECT expiry=60"] {
            let mut peer = listener.accept_session(false);
            peer.expect(disconnect);
            peer.expect("end");
        }
    });
    run(async {
        for way in 0..3 {
            let builder = server.client().session_expiry(Duration::from_secs(9));
            let (client, mut messages) = builder.connect().await.expect("connected");
            match way {
                0 => client.disconnect().await,
                1 => client.disconnect_with_will().await,
                _ => {
                    client
                        .disconnect_and_keep_session(Duration::from_secs(60))
                        .await;
                }
            }
            assert!(messages.next().await.is_none());
            let error = client.publish(Publish::new("a", "")).await;
            assert!(matches!(
                error,
                Err(PublishError::Closed(DisconnectCause::Local))
            ));
            assert!(client.subscribe("a", QoS::AtMostOnce).await.is_err());
            assert!(client.events().next().await.is_none());
            // A second time changes nothing.
            client.disconnect().await;
        }
    });
    server.end();
}

#[test]
fn events_begin_at_the_start_however_late_they_are_asked_for() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept_session(false);
        peer.expect("DISCONNECT");
    });
    run(async {
        let builder = server.client().session_expiry(Duration::ZERO);
        let (client, _messages, mut connecting) = builder.start().expect("options");
        (&mut connecting).await.expect("connected");
        let mut events = connecting.events();
        let mut later = connecting.events();
        let connected = |event| matches!(event, Some(ConnectionEvent::Connected { .. }));
        assert!(connected(events.next().await));
        client.disconnect().await;
        // The second ones begin where the first were taken.
        assert!(!connected(later.next().await));
    });
    server.end();
}

#[test]
fn a_server_that_does_not_read_cannot_hold_up_a_disconnect() {
    let (ended, wait) = std::sync::mpsc::channel();
    let server = Server::run(move |listener| {
        let _peer = listener.accept_session(false);
        wait.recv().expect("the client ends");
    });
    run(async {
        let builder = server.client().connect_timeout(Duration::from_secs(1));
        let (client, _messages) = builder.connect().await.expect("connected");
        let large = Publish::new("a", vec![0; 64 << 20]);
        let delivery = client.start_publish(large).await.expect("room");
        client.disconnect().await;
        assert!(delivery.await.is_err());
        ended.send(()).expect("the server waits");
    });
    server.end();
}

#[test]
fn without_reconnection_the_end_is_the_end() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept_session(false);
        peer.send("DISCONNECT 0x8b");
        peer.expect("end");
    });
    run(async {
        let builder = server.client().no_reconnect();
        let (client, mut messages) = builder.connect().await.expect("connected");
        assert!(messages.next().await.is_none());
        let error = client.publish(Publish::new("a", "")).await;
        assert!(matches!(
            error,
            Err(PublishError::Closed(DisconnectCause::Server {
                reason: ReasonCode::ServerShuttingDown,
                ..
            }))
        ));
    });
    server.end();
}

#[test]
fn a_client_that_was_replaced_does_not_fight() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept_session(false);
        peer.send("DISCONNECT 0x8e");
        peer.expect("end");
    });
    run(async {
        let (_client, mut messages) = server.client().connect().await.expect("connected");
        assert!(messages.next().await.is_none());
    });
    server.end();
}

#[test]
fn events_tell_what_happens() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept_session(false);
        peer.expect("PUBLISH now");
        peer.send("DISCONNECT 0x8b");
        peer.expect("end");
        let mut peer = listener.accept();
        peer.expect("CONNECT c");
        peer.send("CONNACK 0x88");
        let mut peer = listener.accept_session(true);
        peer.expect("DISCONNECT expiry=0");
    });
    run(async {
        let (client, _messages) = server.client().connect().await.expect("connected");
        let mut events = client.events();
        client.publish(Publish::new("now", "")).await.expect("left");
        let mut seen = Vec::new();
        for _ in 0..5 {
            seen.push(match events.next().await.expect("an event") {
                ConnectionEvent::Connected {
                    session_present, ..
                } => format!("{session_present}"),
                ConnectionEvent::Disconnected { cause } => cause.to_string(),
                ConnectionEvent::Reconnecting { wait } => format!("{wait:?}"),
                other => format!("{other:?}"),
            });
        }
        assert_eq!(
            seen,
            [
                "the server disconnected: server shutting down (0x8b)",
                "0ns",
                "the server refused the connection: server unavailable (0x88)",
                "0ns",
                "true",
            ]
        );
        client.disconnect().await;
        let mut last = None;
        while let Some(event) = events.next().await {
            last = Some(event);
        }
        assert!(matches!(last, Some(ConnectionEvent::Closed)));
    });
    server.end();
}

#[test]
fn protocol_errors_are_answered_and_forgotten() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept_session(false);
        peer.expect("PUBLISH now");
        // A PUBACK with reserved flags.
        peer.send_bytes(&[0x41, 0x02, 0x00, 0x01]);
        peer.expect("DISCONNECT 0x81");
        peer.expect("end");
        let mut peer = listener.accept_session(true);
        peer.expect("PUBLISH again");
    });
    run(async {
        let (client, _messages) = server.client().connect().await.expect("connected");
        let mut events = client.events();
        client.publish(Publish::new("now", "")).await.expect("left");
        let event = events.next().await;
        assert!(matches!(
            event,
            Some(ConnectionEvent::Disconnected {
                cause: DisconnectCause::Peer(PeerError::Decode(_))
            })
        ));
        client
            .publish(Publish::new("again", ""))
            .await
            .expect("left");
    });
    server.end();
}

#[test]
fn a_runtime_takes_so_many_clients() {
    let mut limits = RuntimeLimits::default();
    limits.clients_max = 1;
    let runtime = Runtime::new(limits).expect("a runtime");
    let server = Server::run(|listener| {
        for _ in 0..2 {
            let mut peer = listener.accept_session(false);
            peer.expect("DISCONNECT expiry=0");
            peer.expect("end");
        }
    });
    run(async {
        for _ in 0..2 {
            let first = server.client().runtime(&runtime).connect().await;
            let (client, _messages) = first.expect("connected");
            let second = server.client().runtime(&runtime).connect().await;
            assert!(matches!(
                second,
                Err(ConnectError::Runtime(RuntimeError::TooManyClients(1)))
            ));
            client.disconnect().await;
        }
    });
    server.end();
}

const SALT: &[u8] = b"salt";

/// A server with SCRAM and this password.
fn scram_server(password: &'static str, honest: bool) -> Server {
    Server::run(move |listener| {
        let keys = scram::StoredKeys::derive(password.as_bytes(), SALT, scram::ITERATIONS_MIN);
        let mut peer = listener.accept();
        let first = peer.expect_connect(|connect| {
            assert_eq!(
                connect.properties.authentication_method,
                Some(scram::METHOD)
            );
            assert_eq!((connect.username, connect.password), (None, None));
            let data = connect.properties.authentication_data;
            data.expect("the client's first message").to_vec()
        });
        let mut exchange = scram::Exchange::begin(&first, false, None).expect("well-formed");
        assert_eq!(exchange.user(), "alice");
        let server_first = exchange
            .challenge("server", SALT, scram::ITERATIONS_MIN, keys)
            .expect("written")
            .to_vec();
        let auth = |reason, data| {
            let mut auth = dunlin_mqtt::codec::Auth {
                reason,
                ..Default::default()
            };
            auth.properties.authentication_method = Some(scram::METHOD);
            auth.properties.authentication_data = Some(data);
            Packet::Auth(auth)
        };
        // Borrowed for the packet only.
        {
            let packet = auth(ReasonCode::ContinueAuthentication, &server_first);
            peer.send_packet(&packet);
        }
        let client_final = peer.read(|packet| match packet {
            Packet::Auth(auth) => auth.properties.authentication_data.map(<[u8]>::to_vec),
            other => unreachable!("{other:?}"),
        });
        let client_final = client_final.flatten().expect("the client's final message");
        let Ok(mut server_final) = exchange.finish(&client_final) else {
            peer.send("CONNACK 0x86");
            return peer.expect("end");
        };
        if !honest {
            server_final = b"v=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="[..].into();
        }
        let mut connack = ConnAck::default();
        connack.properties.authentication_method = Some(scram::METHOD);
        connack.properties.authentication_data = Some(&server_final);
        peer.send_packet(&Packet::ConnAck(connack));
        if honest {
            peer.expect("DISCONNECT expiry=0");
        }
        peer.line();
    })
}

#[test]
fn scram_proves_both_sides() {
    let server = scram_server("secret", true);
    run(async {
        let builder = server.client().scram("alice", "secret");
        let (client, _messages) = builder.connect().await.expect("connected");
        client.disconnect().await;
    });
    server.end();

    let server = scram_server("secret", true);
    let error = run(server.client().scram("alice", "wrong").connect()).expect_err("wrong");
    assert_eq!(error.reason(), Some(ReasonCode::BadUserNameOrPassword));
    server.end();

    let server = scram_server("secret", false);
    let error = run(server.client().scram("alice", "secret").connect()).expect_err("a fraud");
    assert!(matches!(
        error,
        ConnectError::Failed(DisconnectCause::Scram(_))
    ));
    server.end();
}

#[test]
fn pings_keep_the_connection() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept_session(false);
        peer.expect("PINGREQ");
        peer.send("PINGRESP");
        peer.expect("PINGREQ");
        peer.send("PINGRESP");
    });
    let (_client, _messages) =
        run(server.client().keep_alive(Duration::from_secs(1)).connect()).expect("connected");
    server.end();
}

/// No answer at all would take the connect timeout of 20 s.
#[test]
fn a_closed_udp_port_is_an_error_at_once() {
    let port = {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.local_addr().expect("an address").port()
    };
    for scheme in ["quic", "auto"] {
        let builder = Client::builder(format!("{scheme}://127.0.0.1:{port}")).expect("a URL");
        let begun = std::time::Instant::now();
        let tls = TlsOptions::new().dangerous_no_verification();
        let error = run(builder.tls(tls).connect()).expect_err("refused");
        assert!(begun.elapsed() < Duration::from_secs(10), "{error}");
        assert!(
            matches!(error, ConnectError::Failed(DisconnectCause::Transport(_))),
            "{error:?}"
        );
    }
}

#[test]
fn a_persistent_client_goes_on_after_a_first_attempt_that_failed() {
    let server = Server::run(|listener| {
        drop(listener.accept());
        let mut peer = listener.accept();
        peer.expect("CONNECT c");
        peer.send_packet(&Packet::ConnAck(ConnAck {
            reason: ReasonCode::ServerUnavailable,
            ..ConnAck::default()
        }));
        peer.expect("end");
        let mut peer = listener.accept_session(false);
        peer.expect("SUBSCRIBE 1 a");
        peer.send("SUBACK 1");
        peer.expect("DISCONNECT expiry=0");
    });
    run(async {
        let (client, _messages, connecting) = server.client().persistent().start().expect("begun");
        client.subscribe("a", QoS::AtMostOnce).await.expect("made");
        connecting.await.expect("connected");
        client.disconnect().await;
    });
    server.end();
}

#[test]
fn a_bridge_says_so_in_3_1_1_only() {
    for (version, said) in [(Version::V5, false), (Version::V311, true)] {
        let server = Server::run(move |listener| {
            let mut peer = listener.accept();
            peer.expect_connect(|connect| assert_eq!(connect.bridge, said));
        });
        run(async {
            let builder = server.client().version(version).bridge(true);
            let _ = builder.no_reconnect().connect().await;
        });
        server.end();
    }
}
