//! `$cbs`: tokens that clients set on an open connection.

use core::time::Duration;

use dunlin_amqp::codec::{DeliveryState, Symbol};
use dunlin_amqp::codec::{
    Map, Message as Scanned, MessageId, Outcome, Properties, SaslCode, Section, Value,
};
use dunlin_amqp::{LinkId, SessionId};
use dunlin_base::transport::Transport;
use dunlin_base::{ConnId, StreamId};
use dunlin_broker::auth::{Anonymous, AuthPolicy};
use dunlin_sim::{AmqpClient, Seen, Setup, World, run_amqp};

const FIRST: StreamId = StreamId(0);
const SECOND: StreamId = StreamId(4);

/// What a client without a user name may do, and what others may.
const RULES: &str = "topic readwrite open\nuser alice\ntopic readwrite hers\n\
    user bob\ntopic readwrite his\n";

const UNAUTHORIZED: &str = "amqp:unauthorized-access";

fn policy(anonymous: Anonymous) -> AuthPolicy {
    AuthPolicy {
        anonymous,
        passwords: true,
        certificates: false,
        tokens: true,
        ..AuthPolicy::default()
    }
}

/// A broker whose clients have tokens: the name of a user, and the seconds that it is
/// valid.
fn world(anonymous: Anonymous) -> World {
    let mut setup = Setup::new(2, 5);
    setup.protocol = Some("amqp");
    setup.users = &[("alice", "secret"), ("bob", "secret")];
    setup.acl = Some(RULES.to_owned());
    setup.config.listeners = vec![policy(anonymous)];
    World::new(setup)
}

/// Sections of a message with these application properties.
pub(crate) fn request(
    properties: &Properties<'_>,
    application: &[(&str, &str)],
    body: &Value<'_>,
) -> Vec<u8> {
    let mut out = Vec::new();
    properties.encode(&mut out).expect("small");
    let pairs = application.iter();
    let pairs = pairs.map(|(name, text)| (Value::String(name), Value::String(text)));
    let pairs: Vec<_> = pairs.collect();
    let map = Value::Map(Map::new(&pairs));
    let section = Section::ApplicationProperties;
    section.encode(&map, &mut out).expect("small");
    Section::AmqpValue.encode(body, &mut out).expect("small");
    out
}

/// A request by which clients in the field set a token.
pub(crate) fn put(kind: &str, token: &str, reply_to: Option<&str>) -> Vec<u8> {
    let properties = Properties {
        message_id: Some(MessageId::Ulong(7)),
        reply_to,
        ..Properties::default()
    };
    let name = "amqps://broker.example/hers";
    let application = [("operation", "put-token"), ("type", kind), ("name", name)];
    request(&properties, &application, &Value::String(token))
}

/// A message that sets a token by its outcome.
pub(crate) fn set(kind: &str, token: &str) -> Vec<u8> {
    let properties = Properties {
        subject: Some("set-token"),
        ..Properties::default()
    };
    request(&properties, &[("token-type", kind)], &Value::String(token))
}

/// A request by which a client takes its token back.
fn delete() -> Vec<u8> {
    let properties = Properties {
        message_id: Some(MessageId::Ulong(7)),
        ..Properties::default()
    };
    let name = "amqps://broker.example/hers";
    let application = [
        ("operation", "delete-token"),
        ("type", "jwt"),
        ("name", name),
    ];
    request(&properties, &application, &Value::Null)
}

/// A client with links to `$cbs`.
struct Holder {
    client: AmqpClient,
    session: SessionId,
    sender: LinkId,
}

impl Holder {
    /// Opens by this mechanism and attaches the links.
    fn new(world: &mut World, conn: ConnId, stream: StreamId, sasl: (&str, &[u8])) -> Self {
        let mut client = AmqpClient::new(world, conn, stream, Some(sasl));
        let session = client.open(world.now()).expect("a session");
        let sender = client.sender(session, "$cbs").expect("a handle");
        client.receiver(session, "$cbs", 500).expect("a handle");
        run_amqp(world, &mut [&mut client]);
        assert_eq!(client.sasl_code(), Some(SaslCode::Ok));
        Self {
            client,
            session,
            sender,
        }
    }

    fn anonymous(world: &mut World) -> Self {
        let conn = world.open();
        Self::new(world, conn, FIRST, ("ANONYMOUS", b""))
    }

    fn say(&mut self, world: &mut World, message: &[u8]) {
        self.client.events.clear();
        self.client.send(self.sender, message).expect("credit");
        run_amqp(world, &mut [&mut self.client]);
    }

    /// Sends a request; the status of its answer, and the condition.
    fn ask(&mut self, world: &mut World, message: &[u8]) -> (i64, String) {
        self.say(world, message);
        answer(&self.client.message().expect("an answer"))
    }

    fn put(&mut self, world: &mut World, token: &str) -> i64 {
        self.ask(world, &put("jwt", token, None)).0
    }

    /// Sends a message; the condition by which it is rejected, if it is.
    fn set(&mut self, world: &mut World, message: &[u8]) -> Option<String> {
        self.say(world, message);
        let state = self.client.find(|seen| match seen {
            Seen::Disposition(_, Some(state)) => Some(state.clone()),
            _ => None,
        });
        match state.expect("an outcome").get() {
            DeliveryState::Outcome(Outcome::Accepted) => None,
            DeliveryState::Outcome(Outcome::Rejected(rejected)) => {
                let condition = rejected.error.map(|error| error.condition);
                Some(condition.map_or("", Symbol::as_str).to_owned())
            }
            other => panic!("{other:?}"),
        }
    }

    /// Whether it may send to this topic.
    fn may_send(&mut self, world: &mut World, topic: &str) -> bool {
        let link = self.client.sender(self.session, topic).expect("a handle");
        run_amqp(world, &mut [&mut self.client]);
        let refused = self.client.find(|seen| match seen {
            Seen::Detached(at, condition) if *at == link => Some(condition.clone()),
            Seen::Credit(at, _) if *at == link => Some(String::new()),
            _ => None,
        });
        let refused = refused.expect("an answer");
        assert!(refused.is_empty() || refused == UNAUTHORIZED, "{refused}");
        if refused.is_empty() {
            let gone = self.client.engine.detach(link, true, None);
            gone.expect("attached");
            run_amqp(world, &mut [&mut self.client]);
        }
        refused.is_empty()
    }

    /// The condition by which the connection was closed, if it was.
    fn closed(&mut self) -> Option<String> {
        self.client.closed()
    }
}

fn answer(bytes: &[u8]) -> (i64, String) {
    let scanned = Scanned::scan(bytes).expect("a message");
    scanned.check().expect("valid");
    let properties = scanned.properties().expect("valid").expect("some");
    assert_eq!(properties.correlation_id, Some(MessageId::Ulong(7)));
    let application = scanned.application_properties().expect("valid");
    let application = application.expect("some");
    assert!(application.get("status-description").is_some());
    let status = application.get("status-code");
    let condition = application.get("error-condition");
    let condition = condition.as_ref().and_then(Value::as_str);
    let status = status.and_then(|it| it.as_i64()).expect("a status");
    (status, condition.unwrap_or_default().to_owned())
}

/// Lets time pass.
fn wait(world: &mut World, secs: u64, clients: &mut [&mut Holder]) {
    let until = world.now() + Duration::from_secs(secs);
    for client in &mut *clients {
        client.client.events.clear();
    }
    while let Some((conn, event)) = world.next(until) {
        let now = world.now();
        for client in &mut *clients {
            client.client.take(now, conn, &event);
        }
    }
}

/// Of the first token, and of a later one.
#[test]
fn limits_of_a_token_hold_its_client() {
    const SLOW: &str = "alice.20.open;limit~messages~1;limit~debt~2000";
    for tokens in [&[SLOW][..], &["alice.20.open", SLOW]] {
        let mut world = world(Anonymous::Always);
        let mut alice = Holder::anonymous(&mut world);
        for token in tokens {
            assert_eq!(alice.put(&mut world, token), 202);
        }
        let link = alice
            .client
            .sender(alice.session, "hers")
            .expect("a handle");
        run_amqp(&mut world, &mut [&mut alice.client]);
        for _ in 0..10 {
            alice
                .client
                .send(link, b"\x00\x53\x75\xa0\x01m")
                .expect("credit");
        }
        run_amqp(&mut world, &mut [&mut alice.client]);
        let closed = alice.closed();
        assert_eq!(closed.as_deref(), Some("amqp:resource-limit-exceeded"));
    }
}

const BEARER: (&str, &[u8]) = ("OAUTHBEARER", b"n,,\x01auth=Bearer alice.20\x01\x01");

#[test]
fn a_renewed_token_prolongs_the_connection() {
    for is_set in [false, true] {
        let mut world = world(Anonymous::Never);
        let conn = world.open();
        let mut alice = Holder::new(&mut world, conn, FIRST, BEARER);
        assert!(alice.may_send(&mut world, "hers"));
        for _ in 0..3 {
            wait(&mut world, 15, &mut [&mut alice]);
            assert_eq!(alice.closed(), None);
            match is_set {
                true => assert_eq!(alice.set(&mut world, &set("amqp:jwt", "alice.20")), None),
                false => assert_eq!(alice.put(&mut world, "alice.20"), 202),
            }
        }
        // One that ends earlier takes nothing away.
        assert_eq!(alice.put(&mut world, "alice.2"), 202);
        wait(&mut world, 15, &mut [&mut alice]);
        assert_eq!(alice.closed(), None);
        wait(&mut world, 6, &mut [&mut alice]);
        assert_eq!(alice.closed().as_deref(), Some(UNAUTHORIZED));
    }
}

#[test]
fn who_has_no_name_becomes_the_user_of_the_token() {
    let mut world = world(Anonymous::Always);
    let mut client = Holder::anonymous(&mut world);
    assert!(client.may_send(&mut world, "open"));
    assert!(!client.may_send(&mut world, "hers"));
    assert_eq!(client.put(&mut world, "eve.60"), 401);
    assert_eq!(client.put(&mut world, "nonsense"), 401);
    assert!(!client.may_send(&mut world, "hers"));
    assert_eq!(client.put(&mut world, "alice.20"), 202);
    assert!(client.may_send(&mut world, "hers"));
    assert!(!client.may_send(&mut world, "his"));
    // It is hers from now on.
    let (status, condition) = client.ask(&mut world, &put("jwt", "bob.60", None));
    assert_eq!((status, &*condition), (403, UNAUTHORIZED));
    let refused = client.set(&mut world, &set("jwt", "bob.60"));
    assert_eq!(refused.as_deref(), Some(UNAUTHORIZED));
    assert!(client.may_send(&mut world, "hers"));
    assert!(!client.may_send(&mut world, "his"));
    wait(&mut world, 21, &mut [&mut client]);
    assert_eq!(client.closed().as_deref(), Some(UNAUTHORIZED));
    assert_eq!(world.census().sessions, 0);
}

#[test]
fn who_has_a_password_is_no_other_user_and_lives_on() {
    let mut world = world(Anonymous::Never);
    let conn = world.open();
    let mut bob = Holder::new(&mut world, conn, FIRST, ("PLAIN", b"\0bob\0secret"));
    assert_eq!(bob.put(&mut world, "alice.60"), 403);
    assert!(bob.may_send(&mut world, "his"));
    assert!(!bob.may_send(&mut world, "hers"));
    assert_eq!(bob.put(&mut world, "bob.3"), 202);
    wait(&mut world, 10, &mut [&mut bob]);
    assert_eq!(bob.closed(), None);
}

#[test]
fn by_mssbcbs_a_client_may_do_nothing_until_it_has_a_token() {
    for anonymous in [Anonymous::Never, Anonymous::Always] {
        let mut world = world(anonymous);
        let conn = world.open();
        let mut client = Holder::new(&mut world, conn, FIRST, ("MSSBCBS", b""));
        for topic in ["open", "hers", "$management", "/queues/q"] {
            assert!(!client.may_send(&mut world, topic), "{topic}");
        }
        assert_eq!(client.put(&mut world, "nonsense"), 401);
        assert!(!client.may_send(&mut world, "hers"));
        assert_eq!(client.put(&mut world, "alice.60"), 202);
        assert!(client.may_send(&mut world, "hers"));
        wait(&mut world, 30, &mut [&mut client]);
        assert_eq!(client.closed(), None);
        // Without a token it does not stay.
        let conn = world.open();
        let mut silent = Holder::new(&mut world, conn, FIRST, ("MSSBCBS", b""));
        wait(&mut world, 19, &mut [&mut silent]);
        assert_eq!(silent.closed(), None);
        wait(&mut world, 2, &mut [&mut silent]);
        assert_eq!(silent.closed().as_deref(), Some(UNAUTHORIZED));
        // The token that was none, and the client without one.
        assert_eq!(counts(&world), (1, 2));
    }
}

/// Clients that were let in, and refusals.
fn counts(world: &World) -> (u64, u64) {
    let stats = world.shards().iter().map(|it| it.stats());
    stats.fold((0, 0), |(accepted, refused), it| {
        (accepted + it.clients_accepted, refused + it.clients_refused)
    })
}

#[test]
fn a_stranger_has_three_tries_on_a_transport() {
    let mut world = world(Anonymous::Never);
    let conn = world.open();
    let mut first = Holder::new(&mut world, conn, FIRST, ("MSSBCBS", b""));
    for tries in 1..=2 {
        assert_eq!(first.put(&mut world, "nonsense"), 401);
        assert_eq!(first.closed(), None);
        assert_eq!(counts(&world), (0, tries));
    }
    // The third one is answered, too, and what waits behind it forgotten.
    first.client.events.clear();
    for _ in 0..5 {
        let token = put("jwt", "nonsense", None);
        first.client.send(first.sender, &token).expect("credit");
    }
    run_amqp(&mut world, &mut [&mut first.client]);
    let said = first.client.find(|seen| match seen {
        Seen::Message(_, bytes) => Some(answer(bytes).0),
        _ => None,
    });
    assert_eq!(said, Some(401));
    assert_eq!(first.closed().as_deref(), Some(UNAUTHORIZED));
    assert_eq!(counts(&world), (0, 3));
    // Another stream brings no further try.
    let mut second = Holder::new(&mut world, conn, SECOND, ("MSSBCBS", b""));
    assert_eq!(second.put(&mut world, "alice.60"), 429);
    assert_eq!(counts(&world), (0, 3));
    let conn = world.open();
    let mut other = Holder::new(&mut world, conn, FIRST, ("MSSBCBS", b""));
    assert_eq!(other.put(&mut world, "alice.60"), 202);
    assert_eq!(counts(&world), (1, 3));
}

#[test]
fn tokens_of_all_streams_are_counted_together() {
    let mut world = world(Anonymous::Always);
    let conn = world.open();
    let mut first = Holder::new(&mut world, conn, FIRST, ("ANONYMOUS", b""));
    let mut second = Holder::new(&mut world, conn, SECOND, ("ANONYMOUS", b""));
    let begun = world.now();
    let mut verified = 0;
    for _ in 0..60 {
        for client in [&mut first, &mut second] {
            verified += u64::from(client.put(&mut world, "nonsense") == 401);
        }
    }
    let secs = (world.now() - begun).as_secs();
    assert!(verified >= 64 && verified <= 64 + secs, "{verified} {secs}");
    assert_eq!(counts(&world).1, verified);
}

#[test]
fn a_later_proof_takes_the_place_of_one_that_has_expired() {
    let brief: (&str, &[u8]) = ("OAUTHBEARER", b"n,,\x01auth=Bearer alice.2\x01\x01");
    let bob: (&str, &[u8]) = ("OAUTHBEARER", b"n,,\x01auth=Bearer bob.20\x01\x01");
    for by_renewal in [false, true] {
        let mut world = world(Anonymous::Never);
        let conn = world.open();
        let mut alice = Holder::new(&mut world, conn, FIRST, brief);
        let early = by_renewal.then(|| Holder::new(&mut world, conn, SECOND, bob));
        wait(&mut world, 3, &mut [&mut alice]);
        assert_eq!(alice.closed().as_deref(), Some(UNAUTHORIZED));
        let _bob = match early {
            Some(mut bob) => {
                assert_eq!(bob.put(&mut world, "bob.60"), 202);
                bob
            }
            None => Holder::new(&mut world, conn, SECOND, bob),
        };
        let mut third = AmqpClient::new(&world, conn, StreamId(8), None);
        third.open(world.now()).expect("a session");
        run_amqp(&mut world, &mut [&mut third]);
        assert!(third.is_opened(), "{by_renewal}");
        assert_eq!(third.closed(), None, "{by_renewal}");
    }
}

#[test]
fn streams_of_one_transport_live_as_long_as_its_token() {
    for sasl in [BEARER, ("MSSBCBS", b"")] {
        let mut world = world(Anonymous::Never);
        let conn = world.open();
        let mut first = Holder::new(&mut world, conn, FIRST, sasl);
        let mut second = AmqpClient::new(&world, conn, SECOND, None);
        second.open(world.now()).expect("a session");
        run_amqp(&mut world, &mut [&mut first.client, &mut second]);
        // It waits until the first one has said who they are.
        assert_eq!(second.is_opened(), sasl == BEARER);
        wait(&mut world, 8, &mut [&mut first]);
        first.client.events.clear();
        let sent = first
            .client
            .send(first.sender, &put("jwt", "alice.20", None));
        sent.expect("credit");
        run_amqp(&mut world, &mut [&mut first.client, &mut second]);
        assert_eq!(second.is_opened(), sasl != BEARER);
        for secs in [15, 6] {
            let until = world.now() + Duration::from_secs(secs);
            while let Some((conn, event)) = world.next(until) {
                let now = world.now();
                first.client.take(now, conn, &event);
                second.take(now, conn, &event);
            }
            let closed = second.closed();
            let is_over = secs == 6;
            assert_eq!(closed.as_deref(), is_over.then_some(UNAUTHORIZED));
            assert_eq!(first.closed().is_some(), is_over);
        }
    }
}

#[test]
fn requests_that_are_none_have_a_clear_answer() {
    let mut world = world(Anonymous::Always);
    let mut client = Holder::anonymous(&mut world);
    let none = Properties {
        message_id: Some(MessageId::Ulong(7)),
        ..Properties::default()
    };
    let text = Value::String("alice.20");
    let long = "x".repeat(8 * 1024 + 1);
    let bad = "amqp:invalid-field";
    let missing = "amqp:not-implemented";
    let put_jwt = [("operation", "put-token"), ("type", "jwt")];
    let cases = [
        (
            put(
                "servicebus.windows.net:sastoken",
                "SharedAccessSignature sr=x",
                None,
            ),
            501,
            missing,
        ),
        (put("", "alice.20", None), 501, missing),
        (put("jwt", "", None), 400, bad),
        (put("jwt", &long, None), 413, "amqp:resource-limit-exceeded"),
        (
            request(&none, &[("operation", "put-token")], &text),
            400,
            bad,
        ),
        (
            request(
                &none,
                &[("operation", "renew-token"), ("type", "jwt")],
                &text,
            ),
            501,
            missing,
        ),
        (delete(), 404, "amqp:not-found"),
        (request(&none, &[], &text), 501, missing),
        (request(&none, &put_jwt, &Value::Null), 400, bad),
        (request(&none, &put_jwt, &Value::Ulong(7)), 400, bad),
        (request(&none, &put_jwt, &Value::Binary(b"\xff")), 400, bad),
        (
            request(&none, &put_jwt, &Value::Binary(b"eve.20")),
            401,
            UNAUTHORIZED,
        ),
        (
            request(&none, &put_jwt, &Value::Binary(b"alice.20")),
            202,
            "",
        ),
        (put("JWT", "alice.20", Some("$cbs")), 202, ""),
        (put("amqp:jwt", "alice.20", Some("$me")), 202, ""),
    ];
    for (message, status, condition) in cases {
        let (got, why) = client.ask(&mut world, &message);
        assert_eq!((got, &*why), (status, condition));
    }
    for (kind, token, condition) in [
        ("servicebus.windows.net:sastoken", "alice.20", Some(missing)),
        ("jwt", "eve.20", Some(UNAUTHORIZED)),
        ("jwt", "", Some(bad)),
        ("jwt", "alice.20", None),
    ] {
        let got = client.set(&mut world, &set(kind, token));
        assert_eq!(got.as_deref(), condition, "{kind} {token}");
    }
}

#[test]
fn tokens_are_taken_where_they_are_verified_and_private() {
    for (transport, addr, verified, condition) in [
        (Transport::Tls, "192.0.2.1:5", true, None),
        (Transport::Tcp, "127.0.0.1:5", true, None),
        (
            Transport::Tcp,
            "192.0.2.1:5",
            true,
            Some("amqp:not-allowed"),
        ),
        (Transport::Tls, "192.0.2.1:5", false, Some("amqp:not-found")),
    ] {
        let mut setup = Setup::new(1, 3);
        setup.transport = transport;
        setup.protocol = Some("amqp");
        setup.config.listeners = vec![AuthPolicy {
            tokens: verified,
            ..policy(Anonymous::Always)
        }];
        let mut world = World::new(setup);
        let conn = world.open_from(addr, None);
        let mut client = AmqpClient::new(&world, conn, FIRST, Some(("ANONYMOUS", b"")));
        let session = client.open(world.now()).expect("a session");
        client.sender(session, "$cbs").expect("a handle");
        run_amqp(&mut world, &mut [&mut client]);
        let offered = client.mechanisms().expect("an offer");
        let is_offered = offered.iter().any(|name| name == "MSSBCBS");
        assert_eq!(is_offered, condition.is_none());
        let refused = client.find(|seen| match seen {
            Seen::Detached(_, condition) => Some(Some(condition.clone())),
            Seen::Credit(..) => Some(None),
            _ => None,
        });
        assert_eq!(refused.expect("an answer").as_deref(), condition);
    }
}

#[test]
fn a_token_that_is_deleted_takes_away_what_it_gave() {
    for sasl in [BEARER, ("MSSBCBS", b"")] {
        let mut world = world(Anonymous::Never);
        let conn = world.open();
        let mut first = Holder::new(&mut world, conn, FIRST, sasl);
        if sasl != BEARER {
            assert_eq!(first.ask(&mut world, &delete()).0, 404);
            assert_eq!(first.put(&mut world, "alice.60"), 202);
        }
        let mut second = Holder::new(&mut world, conn, SECOND, ("ANONYMOUS", b""));
        first.client.events.clear();
        first.client.send(first.sender, &delete()).expect("credit");
        run_amqp(&mut world, &mut [&mut first.client, &mut second.client]);
        let said = first.client.find(|seen| match seen {
            Seen::Message(_, bytes) => Some(answer(bytes).0),
            _ => None,
        });
        assert_eq!(said, Some(202));
        let until = world.now() + Duration::from_secs(1);
        while let Some((conn, event)) = world.next(until) {
            let now = world.now();
            first.client.take(now, conn, &event);
            second.client.take(now, conn, &event);
        }
        for client in [&mut first, &mut second] {
            assert_eq!(client.closed().as_deref(), Some(UNAUTHORIZED));
        }
        // Nothing is left to be inherited.
        let mut third = AmqpClient::new(&world, conn, StreamId(8), None);
        third.open(world.now()).expect("a session");
        run_amqp(&mut world, &mut [&mut third]);
        assert!(third.closed().is_some());
    }
}

#[test]
fn who_has_another_proof_has_no_token_to_delete() {
    let mut world = world(Anonymous::Always);
    for sasl in [("PLAIN", &b"\0alice\0secret"[..]), ("ANONYMOUS", b"")] {
        let conn = world.open();
        let mut client = Holder::new(&mut world, conn, FIRST, sasl);
        assert_eq!(client.ask(&mut world, &delete()).0, 404);
        wait(&mut world, 5, &mut [&mut client]);
        assert_eq!(client.closed(), None);
        assert_eq!(client.may_send(&mut world, "hers"), sasl.0 == "PLAIN");
    }
}
