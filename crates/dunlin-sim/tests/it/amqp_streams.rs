//! AMQP over QUIC: each stream of the client is a connection. SASL, and what later
//! streams inherit of earlier ones.

use core::time::Duration;

use dunlin_amqp::codec::{DeliveryState, Outcome, SaslCode, Section};
use dunlin_base::transport::{BindingType, Transport};
use dunlin_base::{ConnId, StreamId};
use dunlin_broker::Event;
use dunlin_broker::auth::{Anonymous, AuthPolicy};
use dunlin_sasl::scram;
use dunlin_sim::{AmqpClient, Seen, Setup, World, channel_of, run_amqp};

const FIRST: StreamId = StreamId(0);
const SECOND: StreamId = StreamId(4);
const THIRD: StreamId = StreamId(8);

const PLAIN: Option<(&str, &[u8])> = Some(("PLAIN", b"\0alice\0secret"));

/// Clients have to say a password.
fn passwords() -> AuthPolicy {
    AuthPolicy {
        anonymous: Anonymous::Never,
        passwords: true,
        certificates: false,
        tokens: false,
        ..AuthPolicy::default()
    }
}

fn world(seed: u64) -> World {
    world_with(seed, passwords())
}

fn world_with(seed: u64, policy: AuthPolicy) -> World {
    let mut setup = Setup::new(2, seed);
    setup.protocol = Some("amqp");
    setup.users = &[("alice", "secret")];
    setup.config.listeners = vec![policy];
    World::new(setup)
}

/// One data section.
fn message(payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Section::encode_data_start(payload.len(), &mut bytes).expect("a vector");
    bytes.extend_from_slice(payload);
    bytes
}

/// A stream whose client has opened in its first flight.
fn begun(
    world: &mut World,
    conn: ConnId,
    stream: StreamId,
    sasl: Option<(&str, &[u8])>,
) -> AmqpClient {
    let mut client = AmqpClient::new(world, conn, stream, sasl);
    client.open(world.now()).expect("a session");
    client.flush(world);
    client
}

fn accepted(client: &mut AmqpClient) -> bool {
    let outcome = |seen: &Seen| match seen {
        Seen::Disposition(_, Some(state)) => Some(matches!(
            state.get(),
            DeliveryState::Outcome(Outcome::Accepted)
        )),
        _ => None,
    };
    client.find(outcome) == Some(true)
}

#[test]
fn scram_authenticates_over_any_transport() {
    for (transport, password, expected) in [
        (Transport::Tcp, "secret", SaslCode::Ok),
        (Transport::Quic, "secret", SaslCode::Ok),
        (Transport::Tcp, "guess", SaslCode::Auth),
    ] {
        let mut setup = Setup::new(1, 1);
        setup.transport = transport;
        setup.protocol = Some("amqp");
        setup.users = &[("alice", "secret")];
        setup.config.listeners = vec![passwords()];
        let mut world = World::new(setup);
        // From another machine: PLAIN is for encrypted connections.
        let conn = world.open_from("192.0.2.1:5", None);
        let scram = scram::Client {
            user: "alice",
            password: password.as_bytes(),
            nonce: "of-the-client",
            binding: scram::Binding::Unsupported,
        };
        let mut first = Vec::new();
        scram.first(&mut first).expect("room");
        let sasl = Some(("SCRAM-SHA-256", &first[..]));
        let mut client = AmqpClient::new(&world, conn, FIRST, sasl);
        run_amqp(&mut world, &mut [&mut client]);
        let offered = client.mechanisms();
        let plain = transport.is_encrypted().then_some("PLAIN");
        let plus = transport.is_encrypted().then_some("SCRAM-SHA-256-PLUS");
        let names = plus.into_iter().chain(["SCRAM-SHA-256"]).chain(plain);
        let names: Vec<&str> = names.collect();
        assert_eq!(offered.expect("an offer"), names, "{transport:?}");
        let challenge = client.challenge();
        let mut last = Vec::new();
        let challenge = challenge.expect("a challenge");
        let verify = scram.respond(&challenge, &mut last).expect("an answer");
        client.engine.sasl_response(&last).expect("asked for");
        client.open(world.now()).expect("a session");
        run_amqp(&mut world, &mut [&mut client]);
        let (code, data) = client.sasl_outcome().expect("an outcome");
        assert_eq!(code, expected);
        if code == SaslCode::Ok {
            assert_eq!(verify.verify(&data.expect("the proof")), Ok(()));
        }
        assert_eq!(client.is_opened(), code == SaslCode::Ok);
        let proof = ("alice".into(), code == SaslCode::Ok);
        assert_eq!(world.proofs, [proof]);
    }
}

/// The outcome of SCRAM-SHA-256-PLUS on a stream, as Alice at the end of a channel.
fn plus(world: &mut World, conn: ConnId, stream: StreamId, channel: &[u8]) -> Option<SaslCode> {
    let binding = scram::Binding::Bound(scram::ChannelBinding {
        kind: BindingType::TlsExporter,
        data: channel,
    });
    let scram = scram::Client {
        user: "alice",
        password: b"secret",
        nonce: "of-the-client",
        binding,
    };
    let mut first = Vec::new();
    scram.first(&mut first).expect("room");
    let sasl = Some(("SCRAM-SHA-256-PLUS", &first[..]));
    let mut client = AmqpClient::new(world, conn, stream, sasl);
    run_amqp(world, &mut [&mut client]);
    let challenge = client.challenge();
    if let Some(challenge) = challenge {
        let mut last = Vec::new();
        scram.respond(&challenge, &mut last).expect("an answer");
        client.engine.sasl_response(&last).expect("asked for");
        client.open(world.now()).expect("a session");
        run_amqp(world, &mut [&mut client]);
    }
    let outcome = client.sasl_code();
    assert_eq!(client.is_opened(), outcome == Some(SaslCode::Ok));
    outcome
}

#[test]
fn scram_is_bound_to_its_connection() {
    let mut world = world(1);
    let (conn, other) = (world.open(), world.open());
    let (ours, theirs) = (channel_of(conn), channel_of(other));
    let refused = Some(SaslCode::Auth);
    // One in the middle has another channel to the server.
    assert_eq!(plus(&mut world, conn, FIRST, &theirs), refused);
    // The bytes are those of the connection on each of its streams, also once
    // the client is known.
    let ok = Some(SaslCode::Ok);
    for stream in [SECOND, THIRD] {
        assert_eq!(plus(&mut world, conn, stream, &ours), ok);
    }
    assert_eq!(plus(&mut world, conn, StreamId(12), &theirs), refused);
    // The offer is there, so that it was taken away on the way.
    for (stream, first) in [(FIRST, "y,,n=alice,r=x"), (SECOND, "y,,n=alice,r=x")] {
        let sasl = Some(("SCRAM-SHA-256", first.as_bytes()));
        let mut client = AmqpClient::new(&world, other, stream, sasl);
        run_amqp(&mut world, &mut [&mut client]);
        assert_eq!(client.sasl_code(), refused);
    }
}

#[test]
fn plain_without_its_first_message_is_challenged() {
    let mut world = world(1);
    let conn = world.open();
    let mut client = AmqpClient::new(&world, conn, FIRST, Some(("PLAIN", b"")));
    run_amqp(&mut world, &mut [&mut client]);
    assert_eq!(client.challenge().as_deref(), Some(&b""[..]));
    client
        .engine
        .sasl_response(b"\0alice\0secret")
        .expect("asked");
    client.open(world.now()).expect("a session");
    run_amqp(&mut world, &mut [&mut client]);
    assert!(client.is_opened());
}

#[test]
fn a_mechanism_that_is_not_offered_is_refused() {
    for mechanism in ["ANONYMOUS", "EXTERNAL", "OAUTHBEARER", "MSSBCBS", "X"] {
        let mut world = world(1);
        let conn = world.open();
        let mut client = begun(&mut world, conn, FIRST, Some((mechanism, b"x")));
        run_amqp(&mut world, &mut [&mut client]);
        assert_eq!(client.sasl_code(), Some(SaslCode::Auth), "{mechanism}");
        assert!(!client.is_opened(), "{mechanism}");
    }
}

#[test]
fn later_streams_inherit_the_identity_of_the_first() {
    for seed in 0..20 {
        let mut world = world(seed);
        let conn = world.open();
        // All begin before the first one is authenticated.
        let mut first = begun(&mut world, conn, FIRST, PLAIN);
        let mut bare = begun(&mut world, conn, SECOND, None);
        let mut external = begun(&mut world, conn, THIRD, Some(("EXTERNAL", b"alice")));
        let anonymous = StreamId(12);
        let mut anonymous = begun(&mut world, conn, anonymous, Some(("ANONYMOUS", b"")));
        let mut other = begun(&mut world, conn, StreamId(16), Some(("EXTERNAL", b"bob")));
        let mut all = [
            &mut first,
            &mut bare,
            &mut external,
            &mut anonymous,
            &mut other,
        ];
        run_amqp(&mut world, &mut all);
        for client in [&mut first, &mut bare, &mut external, &mut anonymous] {
            assert!(client.is_opened(), "seed {seed}, {:?}", client.stream);
        }
        assert!(!other.is_opened(), "as another user");
        world.finish(conn, other.stream);
        run_amqp(&mut world, &mut []);
        let log = world.take_log();
        let users = log.iter().filter_map(|event| match event {
            Event::Access(event) if event.kind.name() == "client accepted" => {
                Some(event.user.as_deref().map(str::to_owned))
            }
            _ => None,
        });
        let users: Vec<_> = users.collect();
        assert_eq!(users, vec![Some("alice".to_owned()); 4], "seed {seed}");
        let census = world.census();
        assert_eq!((census.conns, census.carried), (1, 4), "{census:?}");
    }
}

#[test]
fn nothing_is_inherited_from_a_stream_that_was_refused() {
    for seed in 0..20 {
        let mut world = world(seed);
        let conn = world.open();
        let wrong = Some(("PLAIN", &b"\0alice\0guess"[..]));
        let mut first = begun(&mut world, conn, FIRST, wrong);
        let mut bare = begun(&mut world, conn, SECOND, None);
        run_amqp(&mut world, &mut [&mut first, &mut bare]);
        assert!(!first.is_opened() && bare.is_over, "seed {seed}");
        assert_eq!(bare.closed().as_deref(), Some("amqp:unauthorized-access"));
        // Another one may still prove who it is.
        let mut third = begun(&mut world, conn, THIRD, PLAIN);
        run_amqp(&mut world, &mut [&mut third]);
        assert!(third.is_opened(), "seed {seed}");
    }
}

#[test]
fn the_end_of_a_stream_is_the_end_of_its_connection_only() {
    for (seed, how) in (0..15).flat_map(|seed| [(seed, "close"), (seed, "fin"), (seed, "reset")]) {
        let mut world = world(seed);
        let conn = world.open();
        let mut one = begun(&mut world, conn, FIRST, PLAIN);
        let mut two = begun(&mut world, conn, SECOND, None);
        run_amqp(&mut world, &mut [&mut one, &mut two]);
        assert!(one.is_opened() && two.is_opened());
        match how {
            "close" => one.engine.close(world.now(), None).expect("open"),
            "fin" => world.finish(conn, FIRST),
            _ => world.reset(conn, FIRST, 0),
        }
        run_amqp(&mut world, &mut [&mut one, &mut two]);
        if how == "close" {
            assert!(one.is_over && !two.is_over, "seed {seed}");
            world.finish(conn, FIRST);
            run_amqp(&mut world, &mut [&mut two]);
        }
        assert_eq!(world.census().carried, 1, "seed {seed}, {how}");
        let now = world.now();
        let session = two.engine.begin(&Default::default()).expect("a channel");
        let sender = two.sender(session, "t").expect("a link");
        run_amqp(&mut world, &mut [&mut two]);
        two.send(sender, &message(b"x")).expect("credit");
        run_amqp(&mut world, &mut [&mut two]);
        assert!(accepted(&mut two), "seed {seed}, {how}");
        assert!(world.is_open(conn) && world.now() > now);
        // The last one has closed: the transport stands a while for another.
        two.engine.close(world.now(), None).expect("open");
        run_amqp(&mut world, &mut [&mut two]);
        world.finish(conn, SECOND);
        run_amqp(&mut world, &mut []);
        assert!(world.is_open(conn) && two.is_over);
        let until = world.now() + Duration::from_secs(11);
        while world.next(until).is_some() {}
        assert!(!world.is_open(conn), "seed {seed}, {how}");
        let census = world.census();
        assert_eq!((census.conns, census.sessions, census.timers), (0, 0, 0));
    }
}

#[test]
fn a_stream_that_is_not_read_holds_up_no_other() {
    for seed in 0..10 {
        let mut world = world(seed);
        let conn = world.open();
        let mut slow = begun(&mut world, conn, FIRST, PLAIN);
        let mut fast = begun(&mut world, conn, SECOND, None);
        run_amqp(&mut world, &mut [&mut slow, &mut fast]);
        let session = slow.engine.begin(&Default::default()).expect("a channel");
        slow.receiver(session, "slow", 10_000).expect("a link");
        let session = fast.engine.begin(&Default::default()).expect("a channel");
        fast.receiver(session, "fast", 10_000).expect("a link");
        let to_slow = fast.sender(session, "slow").expect("a link");
        let to_fast = fast.sender(session, "fast").expect("a link");
        run_amqp(&mut world, &mut [&mut slow, &mut fast]);
        world.stall_stream(conn, FIRST, true);
        // More for the slow one than may wait for a connection.
        let large = message(&[0; 64 << 10]);
        for _ in 0..16 {
            fast.send(to_slow, &large).expect("credit");
            fast.send(to_fast, &message(b"x")).expect("credit");
            run_amqp(&mut world, &mut [&mut fast]);
            assert_eq!(
                fast.message().as_deref(),
                Some(&message(b"x")[..]),
                "seed {seed}"
            );
        }
        world.stall_stream(conn, FIRST, false);
        run_amqp(&mut world, &mut [&mut slow, &mut fast]);
        let mut got = 0;
        while slow
            .find(|seen| matches!(seen, Seen::Message(..)).then_some(()))
            .is_some()
        {
            got += 1;
        }
        assert_eq!(got, 16, "seed {seed}");
    }
}

#[test]
fn links_and_sessions_are_counted_by_quic_connection() {
    let mut world = world(1);
    let conn = world.open();
    let mut streams = Vec::new();
    for number in 0..20 {
        let sasl = if number == 0 { PLAIN } else { None };
        let mut client = AmqpClient::new(&world, conn, StreamId(number * 4), sasl);
        let session = client.open(world.now()).expect("a session");
        for link in 0..60 {
            client
                .sender(session, &format!("t/{link}"))
                .expect("a handle");
        }
        run_amqp(&mut world, &mut [&mut client]);
        streams.push(client);
    }
    let (mut attached, mut refused) = (0, 0);
    for client in &mut streams {
        while let Some(seen) = client.events.pop_front() {
            match seen {
                Seen::Credit(..) | Seen::Flow(..) => {}
                Seen::Attached(_, body) => {
                    let is_real = body.attach().is_some_and(|it| it.target.is_some());
                    attached += usize::from(is_real);
                }
                Seen::Detached(_, condition) => {
                    assert_eq!(condition, "amqp:resource-limit-exceeded");
                    refused += 1;
                }
                _ => {}
            }
        }
    }
    assert_eq!((attached, refused), (1024, 20 * 60 - 1024));
    let mut ended = 0;
    for client in &mut streams {
        for _ in 0..15 {
            client.engine.begin(&Default::default()).expect("a channel");
        }
        run_amqp(&mut world, &mut [client]);
        while let Some(condition) = client.find(|seen| match seen {
            Seen::Ended(_, condition) => Some(condition.clone()),
            _ => None,
        }) {
            assert_eq!(condition, "amqp:resource-limit-exceeded");
            ended += 1;
        }
    }
    assert_eq!(ended, 20 * 16 - 256);
}

/// A broker whose clients have tokens: the name of a user, and the seconds that it is
/// valid.
fn tokens(seed: u64) -> World {
    let policy = AuthPolicy {
        passwords: false,
        tokens: true,
        ..passwords()
    };
    world_with(seed, policy)
}

/// A client that has sent this token.
fn bearer(world: &World, conn: ConnId, stream: StreamId, text: &str) -> AmqpClient {
    let (user, token) = text.split_once(' ').unwrap_or(("", text));
    let authzid = if user.is_empty() { "" } else { "a=" };
    let first = format!("n,{authzid}{user},\u{1}auth=Bearer {token}\u{1}\u{1}");
    let sasl = Some(("OAUTHBEARER", first.as_bytes()));
    AmqpClient::new(world, conn, stream, sasl)
}

fn outcome(client: &mut AmqpClient) -> Option<SaslCode> {
    client.sasl_code()
}

#[test]
fn a_token_lets_its_user_in_until_it_expires() {
    for text in ["alice.20", "alice alice.20"] {
        let mut world = tokens(1);
        let conn = world.open();
        let mut client = bearer(&world, conn, FIRST, text);
        client.open(world.now()).expect("a session");
        run_amqp(&mut world, &mut [&mut client]);
        assert_eq!(outcome(&mut client), Some(SaslCode::Ok), "{text}");
        assert!(client.is_opened());
        // A later stream is the same user, as long.
        let mut second = begun(&mut world, conn, SECOND, None);
        run_amqp(&mut world, &mut [&mut client, &mut second]);
        assert!(second.is_opened());
        let mut until = world.now() + Duration::from_secs(19);
        for is_over in [false, true] {
            while let Some((conn, event)) = world.next(until) {
                let now = world.now();
                client.take(now, conn, &event);
                second.take(now, conn, &event);
            }
            for stream in [&mut client, &mut second] {
                let closed = stream.closed();
                let expected = is_over.then_some("amqp:unauthorized-access");
                assert_eq!(closed.as_deref(), expected);
            }
            until += Duration::from_secs(2);
        }
        // A stream after that has to say who it is.
        let mut third = begun(&mut world, conn, THIRD, None);
        run_amqp(&mut world, &mut [&mut client, &mut second, &mut third]);
        assert_eq!(third.closed().as_deref(), Some("amqp:unauthorized-access"));
    }
}

#[test]
fn a_token_that_is_not_valid_is_refused_as_the_rfc_says() {
    for text in ["eve.60", "bob alice.60", "nonsense"] {
        let mut world = tokens(2);
        let conn = world.open();
        let mut client = bearer(&world, conn, FIRST, text);
        client.open(world.now()).expect("a session");
        run_amqp(&mut world, &mut [&mut client]);
        let (code, data) = client.sasl_outcome().expect("an outcome");
        assert_eq!(code, SaslCode::Auth);
        let expected = &br#"{"status":"invalid_token"}"#[..];
        assert_eq!(data.as_deref(), Some(expected), "{text}");
        assert!(!client.is_opened());
    }
}

#[test]
fn tokens_are_for_encrypted_connections_where_they_are_verified() {
    for (transport, addr, verified, offers) in [
        (Transport::Quic, "192.0.2.1:5", true, true),
        (Transport::Quic, "192.0.2.1:5", false, false),
        (Transport::Tcp, "192.0.2.1:5", true, false),
        (Transport::Tcp, "127.0.0.1:5", true, true),
    ] {
        let mut setup = Setup::new(1, 3);
        setup.transport = transport;
        setup.protocol = Some("amqp");
        setup.config.listeners = vec![AuthPolicy {
            tokens: verified,
            ..passwords()
        }];
        let mut world = World::new(setup);
        let conn = world.open_from(addr, None);
        let mut client = AmqpClient::new(&world, conn, FIRST, Some(("PLAIN", b"")));
        run_amqp(&mut world, &mut [&mut client]);
        let offered = client.mechanisms().expect("an offer");
        let found = offered.iter().any(|name| name == "OAUTHBEARER");
        assert_eq!(found, offers, "{transport:?} {addr} {verified}");
    }
}
