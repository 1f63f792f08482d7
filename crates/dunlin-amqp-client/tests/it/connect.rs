//! How clients come and go: opening in one flight, SASL, refusals, the end.

use std::io::Read;

use bytes::Bytes;
use dunlin_amqp::codec::{Error, ProtocolHeader, SaslCode, condition, frame};
use dunlin_amqp::{Event, Limits};
use dunlin_amqp_client::{
    Client, ConnectError, ConnectionEvent, DisconnectCause, LinkError, OptionError, Sasl, UrlError,
};
use dunlin_base::Instant;
use dunlin_sasl::Mechanism;
use dunlin_sasl::scram::StoredKeys;
use dunlin_sasl::server::{Exchange, Next, Question};

use super::run;
use super::server::Server;

#[test]
fn everything_is_opened_in_the_first_flight() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept();
        // Nothing is answered until all of it is here.
        let mut bytes = Vec::new();
        let mut names = Vec::new();
        while names.len() < 8 {
            let mut buffer = [0; 4096];
            let len = peer.stream.read(&mut buffer).expect("more");
            assert!(len > 0, "only {names:?}");
            bytes.extend_from_slice(&buffer[..len]);
            names = frames(&bytes);
        }
        let want = [
            "header", "init", "header", "open", "begin", "attach", "attach", "flow",
        ];
        assert_eq!(names, want);
    });
    run(async {
        let (client, connecting) = server.client().no_reconnect().start().expect("options");
        let sender = client.sender("a").start().expect("started");
        let receiver = client.receiver("b").start().expect("started");
        // The script ends without an answer.
        assert!(connecting.await.is_err());
        drop((sender, receiver));
    });
    server.end();
}

/// Names of what a client's bytes are.
fn frames(mut bytes: &[u8]) -> Vec<&'static str> {
    let mut names = Vec::new();
    loop {
        if ProtocolHeader::peek(bytes).is_ok_and(|header| header.is_some()) {
            names.push("header");
            bytes = &bytes[ProtocolHeader::LEN..];
        } else if let Ok(Some(whole)) = frame::split(bytes, u32::MAX) {
            let size = u32::from_be_bytes(*bytes.first_chunk().expect("a size"));
            names.push(match whole.body.get(2) {
                Some(0x41) => "init",
                Some(0x10) => "open",
                Some(0x11) => "begin",
                Some(0x12) => "attach",
                Some(0x13) => "flow",
                _ => "other",
            });
            bytes = &bytes[size as usize..];
        } else {
            return names;
        }
    }
}

#[test]
fn a_server_that_wants_one_step_at_a_time_gets_it() {
    let server = Server::run(|listener| {
        // It ends what begins with more than it has asked for.
        let peer = listener.accept();
        peer.stream.peek(&mut [0]).expect("the first flight");
        drop(peer);
        let mut peer = listener.accept();
        peer.until(|_, event| match event {
            Event::Opened(_) => Some(()),
            Event::Attach { .. } => unreachable!("before open"),
            _ => None,
        })
        .expect("opened");
        peer.link();
        peer.serve();
    });
    run(async {
        let (client, connecting) = server.client().start().expect("options");
        let (_sender, attaching) = client.sender("a").start().expect("started");
        connecting.await.expect("connected");
        attaching.await.expect("attached");
        client.close().await;
    });
    server.end();
}

#[test]
fn open_says_what_was_asked_for() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept();
        peer.until(|_, event| match event {
            Event::Opened(body) => {
                let open = body.open().expect("decoded before");
                assert_eq!((open.container_id, open.hostname), ("plant", Some("there")));
                assert_eq!(
                    (open.max_frame_size, open.idle_time_out),
                    (9000, Some(10_000))
                );
                Some(())
            }
            _ => None,
        })
        .expect("opened");
        peer.serve();
    });
    run(async {
        let client = server
            .client()
            .container_id("plant")
            .hostname("there")
            .max_frame_size(9000)
            .idle_timeout(Some(core::time::Duration::from_secs(20)))
            .connect()
            .await
            .expect("connected");
        assert!(client.transport().is_some());
        let mut events = client.events();
        client.close().await;
        while let Some(event) = events.next().await {
            assert!(!matches!(event, ConnectionEvent::Reconnecting { .. }));
        }
        assert!(client.transport().is_none());
        let refused = client.sender("late").attach().await;
        assert!(matches!(refused, Err(LinkError::Closed)));
    });
    server.end();
}

#[test]
fn wrong_credentials_are_refused_once() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept();
        peer.until(|engine, event| match event {
            Event::SaslInit {
                mechanism,
                response,
                ..
            } => {
                assert_eq!(*mechanism, "PLAIN");
                assert_eq!(response.as_deref(), Some(&b"\0u\0p"[..]));
                engine.sasl_outcome(SaslCode::Auth, None).expect("it waits");
                Some(())
            }
            _ => None,
        });
        peer.serve();
    });
    let refused = run(server.client_as("u:p@").connect());
    assert!(
        matches!(
            refused,
            Err(ConnectError::Failed(DisconnectCause::Credentials))
        ),
        "{refused:?}"
    );
    server.end();
}

#[test]
fn a_mechanism_that_is_not_offered_is_named() {
    let server = Server::run(|listener| {
        listener
            .accept_with(&["EXTERNAL"], Limits::default())
            .serve();
    });
    let refused = run(server.client().connect()).expect_err("refused");
    assert_eq!(
        refused.to_string(),
        "the server does not offer ANONYMOUS; it offers EXTERNAL"
    );
    server.end();
}

#[test]
fn scram_proves_both_sides() {
    for (password, is_right) in [("secret", true), ("other", false)] {
        let server = Server::run(move |listener| {
            let mut peer = listener.accept();
            let mut exchange = None;
            peer.until(|engine, event| {
                match event {
                    Event::SaslInit { response, .. } => {
                        let begun =
                            Exchange::begin(Mechanism::ScramSha256, response.as_deref(), None);
                        let (mut begun, next) = begun.expect("a first message");
                        assert!(matches!(next, Next::Ask(Question::Keys { .. })));
                        let keys =
                            StoredKeys::derive(password.as_bytes(), b"salt of 16 bytes", 4096);
                        let challenge = begun.challenge("nonce", b"salt of 16 bytes", 4096, keys);
                        let challenge = challenge.expect("answerable");
                        engine.sasl_challenge(&challenge).expect("it waits");
                        exchange = Some(begun);
                    }
                    Event::SaslResponse(bytes) => {
                        let done = exchange.as_mut().expect("begun").respond(bytes);
                        let (code, data) = match done {
                            Ok(Next::Done { data, .. }) => (SaslCode::Ok, data),
                            _ => (SaslCode::Auth, Bytes::new()),
                        };
                        engine.sasl_outcome(code, Some(&data)).expect("it waits");
                    }
                    _ => {}
                }
                None::<()>
            });
        });
        let builder = server.client_as("user:secret@").sasl(Sasl::ScramSha256);
        run(async {
            match builder.connect().await {
                Ok(client) if is_right => client.close().await,
                Err(ConnectError::Failed(DisconnectCause::Credentials)) if !is_right => {}
                other => unreachable!("{other:?}"),
            }
        });
        server.end();
    }
}

#[test]
fn options_that_cannot_be_are_refused() {
    let wrong = Client::builder("mqtt://h");
    assert!(matches!(wrong, Err(UrlError::OtherProtocol { .. })));
    let builder = Client::builder("amqp://h").expect("a URL");
    for (builder, want) in [
        (
            builder.clone().sasl(Sasl::ScramSha256),
            "SCRAM-SHA-256 needs a user name and a password",
        ),
        (
            builder.container_id("x".repeat(256)),
            "the container id is longer than 255 bytes",
        ),
    ] {
        let error = builder.start().expect_err("refused");
        assert!(matches!(
            error,
            ConnectError::Options(OptionError::NoCredentials(_) | OptionError::TooLong { .. })
        ));
        assert_eq!(error.to_string(), want);
    }
}

#[test]
fn a_close_is_answered_and_the_client_comes_back() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept();
        peer.until(|_, event| matches!(event, Event::Opened(_)).then_some(()));
        let error = Error::new(condition::CONNECTION_FORCED, "maintenance");
        peer.engine
            .close(Instant::ZERO, Some(&error))
            .expect("open");
        let answered = peer.until(|_, event| matches!(event, Event::Closed { .. }).then_some(()));
        assert!(answered.is_some(), "the client did not close");
        listener.accept().serve();
    });
    run(async {
        let (client, mut connecting) = server.client().start().expect("options");
        // However late: from the start on.
        (&mut connecting).await.expect("connected");
        let mut events = connecting.events();
        let first = events.next().await;
        assert!(matches!(first, Some(ConnectionEvent::Connected { .. })));
        let mut causes = Vec::new();
        loop {
            match events.next().await.expect("not closed") {
                ConnectionEvent::Connected { .. } => break,
                ConnectionEvent::Disconnected { cause } => causes.push(cause.to_string()),
                _ => {}
            }
        }
        let want = "the server closed the connection: maintenance (amqp:connection:forced)";
        assert_eq!(causes, [want]);
        client.close().await;
    });
    server.end();
}

#[test]
fn dropping_all_handles_closes_the_connection() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept();
        let closed = peer.until(|_, event| match event {
            Event::Closed { by_peer, error } => Some((*by_peer, error.is_none())),
            _ => None,
        });
        assert_eq!(closed, Some((true, true)));
    });
    run(async {
        let client = server.client().connect().await.expect("connected");
        let sender = client.sender("a").attach().await.expect("attached");
        drop(client);
        drop(sender);
        tokio::time::sleep(core::time::Duration::from_millis(1)).await;
    });
    server.end();
}
