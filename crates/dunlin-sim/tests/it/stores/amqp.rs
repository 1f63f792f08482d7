//! Clients of AMQP while the home of a queue is away: what needs it is refused, and
//! nothing waits for ever.

use core::time::Duration;

use dunlin_amqp::codec::{
    AnyTarget, Attach, DeliveryState, List, Map, Outcome, ReceiverSettleMode, Rejected, Role,
    Section, SerialNumber, Source, Symbols, Target, TerminusExpiryPolicy, Value,
};
use dunlin_amqp::codec::{Message, Properties};
use dunlin_amqp::{Connection, Limits, LinkId, SaslPolicy, Settings, Side};
use dunlin_base::Text;
use dunlin_base::transport::Transport;
use dunlin_broker::control::values::{Reply, Request};
use dunlin_broker::{NamedQueue, QueueOptions, home_shard};
use dunlin_sim::{
    AmqpClient, Seen, Setup, World, ask, crash_store, is_store_ready, open_on, run_amqp,
    start_store,
};

/// A condition of a client whose request needs a home that is away.
const AWAY: &str = "amqp:internal-error";

/// Messages that a client may have without an outcome.
const CREDIT: u16 = 4;

/// The name of a queue whose home is this one of two.
fn queue(home: u16) -> String {
    let mut names = (0..).map(|number| format!("q{number}"));
    let of = names.find(|name| home_shard(&format!("/queues/{name}"), 2) == home);
    of.expect("one of them")
}

fn named(home: u16) -> NamedQueue {
    NamedQueue {
        name: Text::from(queue(home).as_str()),
        ..NamedQueue::default()
    }
}

/// Two homes with a store each, and a queue at the second.
fn two_stores(change: impl FnOnce(&mut Setup)) -> World {
    let mut setup = Setup::new(2, 1);
    setup.transport = Transport::Tcp;
    setup.config.nodes.homes_per_store = 1;
    setup.config.clients.receive_maximum = CREDIT;
    setup.config.queues.named = vec![named(1)];
    change(&mut setup);
    let mut world = World::new(setup);
    settle(&mut world);
    assert!((0..2).all(|store| is_store_ready(&world, store)));
    world
}

fn settle(world: &mut World) {
    while world.next_before_quiet().is_some() {}
}

/// Lets a client say what it has and hear what comes, for a while.
fn pass(world: &mut World, client: &mut AmqpClient, time: Duration) {
    let until = world.now() + time;
    client.flush(world);
    while let Some((conn, event)) = world.next(until) {
        client.take(world.now(), conn, &event);
        client.flush(world);
    }
}

fn client_at(world: &mut World, place: usize) -> AmqpClient {
    let conn = open_on(world, place, "amqp");
    AmqpClient::new(world, conn, dunlin_base::StreamId::CONTROL, None)
}

/// A durable message with one byte; `to`: where it goes, on a link without an address.
fn message(to: Option<&str>, byte: u8) -> Vec<u8> {
    let mut bytes = vec![0x00, 0x53, 0x70, 0xc0, 2, 1, 0x41];
    if to.is_some() {
        let properties = Properties {
            to,
            ..Properties::default()
        };
        properties.encode(&mut bytes).expect("small");
    }
    bytes.extend([0x00, 0x53, 0x75, 0xa0, 1, byte]);
    bytes
}

/// A link that sends, to this address or to that of each message.
fn sender(world: &mut World, client: &mut AmqpClient, address: Option<&str>) -> LinkId {
    let session = client.open(world.now()).expect("open");
    let attach = Attach {
        name: "sender",
        role: Role::Sender,
        source: Some(Source::default()),
        target: Some(AnyTarget::Target(Target {
            address,
            ..Target::default()
        })),
        initial_delivery_count: Some(SerialNumber(0)),
        ..Attach::default()
    };
    let link = client.engine.attach(session, &attach).expect("a session");
    run_amqp(world, &mut [client]);
    link
}

/// What became of messages: the conditions of those that were refused, nothing for those
/// that were accepted.
fn outcomes(client: &mut AmqpClient) -> Vec<String> {
    let events = client.events.drain(..);
    let outcomes = events.filter_map(|event| match event {
        Seen::Disposition(_, Some(state)) => Some(match state.get() {
            state if state == DeliveryState::ACCEPTED => String::new(),
            DeliveryState::Outcome(Outcome::Rejected(Rejected { error: Some(error) })) => {
                error.condition.as_str().to_owned()
            }
            other => format!("{other:?}"),
        }),
        _ => None,
    });
    outcomes.collect()
}

/// Whether a link was attached, or the condition with which it was not; `None`: neither.
fn attached(client: &mut AmqpClient) -> Option<Result<(), String>> {
    client.find(|event| match event {
        Seen::Detached(_, condition) if !condition.is_empty() => Some(Err(condition.clone())),
        Seen::Attached(_, body) => {
            let answer = body.attach().expect("an attachment");
            // A refusal has no terminus; why comes after it.
            let is_there = answer.target.is_some() && answer.source.is_some();
            is_there.then_some(Ok(()))
        }
        _ => None,
    })
}

#[test]
fn a_message_to_a_queue_whose_home_is_away_is_refused() {
    let mut world = two_stores(|_| {});
    crash_store(&mut world, 1);
    settle(&mut world);
    let mut from = client_at(&mut world, 0);
    let link = sender(&mut world, &mut from, None);
    let away = format!("/queues/{}", queue(1));
    // More than its credit: that comes back.
    for byte in 0..3 * CREDIT as u8 {
        from.events.clear();
        from.send(link, &message(Some(&away), byte))
            .expect("credit");
        run_amqp(&mut world, &mut [&mut from]);
        assert_eq!(outcomes(&mut from), [AWAY], "message {byte}");
    }
    from.send(link, &message(Some("t"), 0)).expect("credit");
    run_amqp(&mut world, &mut [&mut from]);
    assert_eq!(outcomes(&mut from), [""], "a topic needs no other home");
    // It is there again.
    start_store(&mut world, 1);
    settle(&mut world);
    from.send(link, &message(Some(&away), 9)).expect("credit");
    run_amqp(&mut world, &mut [&mut from]);
    assert_eq!(outcomes(&mut from), [""]);
    assert_eq!(world.disks[0].stored_messages(), 1);
    assert_eq!(world.census().pending, 0);
}

/// The home may have it, or not: it has not said.
#[test]
fn a_message_is_not_accepted_when_the_home_of_its_queue_is_gone_first() {
    let mut world = two_stores(|setup| setup.pace.store = (50_000, 60_000));
    let mut from = client_at(&mut world, 0);
    let address = format!("/queues/{}", queue(1));
    let link = sender(&mut world, &mut from, Some(&address));
    from.send(link, &message(None, 1)).expect("credit");
    pass(&mut world, &mut from, Duration::from_millis(20));
    assert_eq!(outcomes(&mut from), [""; 0], "it is not stored yet");
    crash_store(&mut world, 1);
    pass(&mut world, &mut from, Duration::from_millis(200));
    assert_eq!(world.disks[0].stored_messages(), 0);
    assert_eq!(outcomes(&mut from), [AWAY]);
    assert!(from.is_over, "its link needs that home");
}

#[test]
fn a_link_to_a_queue_whose_home_is_away_is_refused() {
    let mut world = two_stores(|_| {});
    crash_store(&mut world, 1);
    settle(&mut world);
    let away = format!("/queues/{}", queue(1));
    let mut client = client_at(&mut world, 0);
    sender(&mut world, &mut client, Some(&away));
    assert_eq!(attached(&mut client), Some(Err(AWAY.to_owned())));
    let mut client = client_at(&mut world, 0);
    let session = client.open(world.now()).expect("open");
    client.receiver(session, &away, 1).expect("a link");
    run_amqp(&mut world, &mut [&mut client]);
    assert_eq!(attached(&mut client), Some(Err(AWAY.to_owned())));
    let here = format!("/queues/{}", queue(0));
    let mut client = client_at(&mut world, 0);
    sender(&mut world, &mut client, Some(&here));
    assert_eq!(attached(&mut client), Some(Ok(())));
}

/// A home has the names of links that are known again, each its own.
#[test]
fn a_link_whose_name_is_kept_at_a_home_that_is_away_is_refused() {
    let mut world = two_stores(|_| {});
    crash_store(&mut world, 1);
    settle(&mut world);
    let mut counts = [0, 0];
    for number in 0..8 {
        let mut client = client_at(&mut world, 0);
        let settings = Settings {
            side: Side::Client,
            container_id: "container",
            sasl: SaslPolicy::Off,
            mechanisms: Symbols::default(),
            limits: Limits::default(),
        };
        client.engine = Connection::new(world.now(), &settings);
        let session = client.open(world.now()).expect("open");
        let target = Target {
            address: Some("t"),
            expiry_policy: TerminusExpiryPolicy::Never,
            ..Target::default()
        };
        let name = format!("link-{number}");
        let attach = Attach {
            name: &name,
            role: Role::Sender,
            rcv_settle_mode: ReceiverSettleMode::Second,
            source: Some(Source::default()),
            target: Some(AnyTarget::Target(target)),
            initial_delivery_count: Some(SerialNumber(0)),
            ..Attach::default()
        };
        client.engine.attach(session, &attach).expect("a session");
        run_amqp(&mut world, &mut [&mut client]);
        match attached(&mut client) {
            Some(Ok(())) => counts[0] += 1,
            Some(Err(condition)) if condition == AWAY => counts[1] += 1,
            other => panic!("link {number}: {other:?}"),
        }
    }
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

/// A request to `$management`: its operation, and what it is about.
fn request(application: &[(&str, &str)], body: &Value<'_>) -> Vec<u8> {
    let properties = Properties {
        reply_to: Some("$me"),
        ..Properties::default()
    };
    let mut out = Vec::new();
    properties.encode(&mut out).expect("small");
    let strings = application.iter();
    let strings = strings.map(|(name, value)| (Value::String(name), Value::String(value)));
    let strings: Vec<_> = strings.collect();
    let map = Value::Map(Map::new(&strings));
    Section::ApplicationProperties
        .encode(&map, &mut out)
        .expect("small");
    Section::AmqpValue.encode(body, &mut out).expect("small");
    out
}

/// The status of the next answer.
fn status(client: &mut AmqpClient) -> Option<i64> {
    client.find(|event| match event {
        Seen::Message(_, bytes) => {
            let scanned = Message::scan(bytes).expect("a message");
            let application = scanned.application_properties().expect("valid");
            application.expect("some").get("statusCode")?.as_i64()
        }
        _ => None,
    })
}

#[test]
fn what_is_asked_of_a_home_that_is_away_is_answered() {
    let mut world = two_stores(|_| {});
    crash_store(&mut world, 1);
    settle(&mut world);
    let mut client = client_at(&mut world, 0);
    let session = client.open(world.now()).expect("open");
    client.receiver(session, "$management", 10).expect("a link");
    let link = client.sender(session, "$management").expect("a link");
    run_amqp(&mut world, &mut [&mut client]);
    let (away, here) = (queue(1), queue(0));
    let names = [Value::String("name")];
    let body = [(
        Value::String("attributeNames"),
        Value::List(List::new(&names)),
    )];
    let all = Value::Map(Map::new(&body));
    let none = Value::Map(Map::new(&[]));
    let read = |name: &str| {
        let application = [
            ("operation", "READ"),
            ("type", "dunlin.queue"),
            ("name", name),
        ];
        request(&application, &none)
    };
    let query = [("operation", "QUERY"), ("entityType", "dunlin.queue")];
    for (request, wanted) in [
        (read(&away), 503),
        (read(&here), 404),
        // A list without the queues there would not be one of all.
        (request(&query, &all), 503),
    ] {
        client.send(link, &request).expect("credit");
        run_amqp(&mut world, &mut [&mut client]);
        assert_eq!(status(&mut client), Some(wanted));
    }
}

/// Two stores, the second of which has gone: a queue at the first whose dead go to one at
/// the second.
fn away_from_the_dead(options: QueueOptions) -> World {
    let dead = format!("/queues/{}", queue(1));
    let mut world = two_stores(|setup| {
        let options = QueueOptions {
            dead_letter: Some(Text::from(dead.as_str())),
            ..options
        };
        let first = NamedQueue {
            options,
            ..named(0)
        };
        setup.config.queues.named = vec![first, named(1)];
    });
    crash_store(&mut world, 1);
    settle(&mut world);
    world
}

/// Rejects the next message that came; `false`: there is none.
fn reject(taker: &mut AmqpClient) -> bool {
    let delivery = taker.find(|event| match event {
        Seen::Message(delivery, _) => Some(*delivery),
        _ => None,
    });
    let rejected = DeliveryState::Outcome(Outcome::Rejected(Rejected { error: None }));
    delivery.is_some_and(|delivery| {
        let settled = taker.engine.settle(delivery, Some(&rejected));
        settled.expect("a delivery");
        true
    })
}

#[test]
fn dead_messages_that_wait_for_a_home_count_as_those_of_their_queue() {
    const MAX: usize = 3;
    let mut world = away_from_the_dead(QueueOptions {
        messages_max: MAX,
        ..QueueOptions::default()
    });
    let address = format!("/queues/{}", queue(0));
    let mut from = client_at(&mut world, 0);
    let link = sender(&mut world, &mut from, None);
    let mut taker = client_at(&mut world, 0);
    let session = taker.open(world.now()).expect("open");
    taker.receiver(session, &address, 100).expect("a link");
    run_amqp(&mut world, &mut [&mut taker]);
    let send = |world: &mut World, clients: [&mut AmqpClient; 2], byte| {
        let [from, taker] = clients;
        let sent = from.send(link, &message(Some(&address), byte));
        sent.expect("credit");
        run_amqp(world, &mut [from, taker]);
        outcomes(from)
    };
    for byte in 0..MAX as u8 {
        let sent = send(&mut world, [&mut from, &mut taker], byte);
        assert_eq!(sent, [""], "message {byte}");
        assert!(reject(&mut taker), "message {byte}");
        pass(&mut world, &mut taker, Duration::from_secs(2));
    }
    let full = send(&mut world, [&mut from, &mut taker], 9);
    assert_eq!(full, ["amqp:resource-limit-exceeded"]);
    let census = world.census();
    assert_eq!((census.miscounted_bytes, census.in_flight), (0, MAX));
    assert_eq!(world.disk.stored_messages(), MAX);
    start_store(&mut world, 1);
    pass(&mut world, &mut taker, Duration::from_secs(3));
    assert_eq!(world.disk.stored_messages(), 0);
    assert_eq!(world.disks[0].stored_messages(), MAX, "with the dead");
    let sent = send(&mut world, [&mut from, &mut taker], 9);
    assert_eq!(sent, [""]);
    let census = world.census();
    assert_eq!((census.miscounted_bytes, census.pending), (0, 0));
}

#[test]
fn a_dead_message_waits_for_the_home_of_its_queue() {
    let mut world = away_from_the_dead(QueueOptions::default());
    let address = format!("/queues/{}", queue(0));
    let mut from = client_at(&mut world, 0);
    let link = sender(&mut world, &mut from, Some(&address));
    from.send(link, &message(None, 1)).expect("credit");
    run_amqp(&mut world, &mut [&mut from]);
    assert_eq!(outcomes(&mut from), [""]);
    let mut taker = client_at(&mut world, 0);
    let session = taker.open(world.now()).expect("open");
    taker.receiver(session, &address, 1).expect("a link");
    run_amqp(&mut world, &mut [&mut taker]);
    assert!(reject(&mut taker), "a message");
    pass(&mut world, &mut taker, Duration::from_secs(3));
    assert_eq!(world.disk.stored_messages(), 1, "it is not lost");
    start_store(&mut world, 1);
    pass(&mut world, &mut taker, Duration::from_secs(3));
    assert_eq!(world.disk.stored_messages(), 0);
    assert_eq!(world.disks[0].stored_messages(), 1, "it is with the dead");
    assert_eq!(world.census().pending, 0);
}

/// What does not fit there stays here, and nothing is at both.
#[test]
fn messages_that_are_moved_to_a_queue_of_another_store_are_there_or_here() {
    const SENT: usize = 5;
    const MAX: usize = 3;
    let mut world = two_stores(|setup| {
        let small = NamedQueue {
            options: QueueOptions {
                messages_max: MAX,
                ..QueueOptions::default()
            },
            ..named(1)
        };
        setup.config.queues.named = vec![named(0), small];
    });
    let [from, to] = [0, 1].map(|home| format!("/queues/{}", queue(home)));
    let mut client = client_at(&mut world, 0);
    let link = sender(&mut world, &mut client, Some(&from));
    for byte in 0..SENT as u8 {
        client.send(link, &message(None, byte)).expect("credit");
        run_amqp(&mut world, &mut [&mut client]);
        assert_eq!(outcomes(&mut client), [""]);
    }
    let mut all = 0;
    for _ in 0..SENT {
        let order = Request::Move {
            address: Text::from(from.as_str()),
            to: Text::from(to.as_str()),
            limit: 100,
        };
        ask(&mut world, 0, order);
        settle(&mut world);
        let Some(Reply::Moved { count, .. }) = world.replies.pop() else {
            panic!("an answer");
        };
        all += count;
        let stored = [&world.disk, &world.disks[0]].map(|disk| disk.stored_messages());
        assert_eq!(stored, [SENT - all, all]);
    }
    assert_eq!(all, MAX);
    assert_eq!(world.census().miscounted_bytes, 0);
}
