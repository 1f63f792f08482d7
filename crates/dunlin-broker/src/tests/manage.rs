//! `$management`: queues made, shown, changed, emptied and deleted by clients on any
//! shard, under the rules, through restarts and refusals of the store.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_amqp::codec::{
    AnyTarget, Attach, Begin, List, Map, Message as Scanned, MessageId, Properties, Role, Section,
    SerialNumber, Source, Target, Value, capability,
};
use dunlin_amqp::{Event, LinkId};
use dunlin_base::Text;
use dunlin_base::transport::{NetEvent, NetEventKind};
use dunlin_store::{Batch, StoreDone, StoreError};

#[cfg(feature = "mqtt")]
use super::amqp::publish;
use super::amqp::{Client, NOW, OPEN, World, addressed, conn, is_accepted, message, receiver};
use crate::access::{Access, Acl};
use crate::config::{Config, NamedQueue};
use crate::io::Input;
use crate::random::home_shard;

/// A name of a queue whose home is this shard of two.
fn name(shard: u16, number: usize) -> String {
    let mut names = (0..).map(|at| format!("q{number}-{at}"));
    let here = |name: &String| home_shard(&format!("/queues/{name}"), 2) == shard;
    names.find(here).expect("one of many")
}

/// An answer: its status, and its body as text, with `count` before it if it has that.
type Answer = (i64, String);

/// A client with links to the management node.
struct Manager {
    client: Client,
    sender: LinkId,
}

impl Manager {
    fn new(world: &mut World, shard: u16, serial: u64) -> Self {
        let (mut client, _) = Client::receiving(world, conn(shard, serial), "$management", 500);
        let sender = client.sender(world, Some("$management"));
        Self { client, sender }
    }

    /// Sends a request; `None`: it was not taken.
    fn begin(&mut self, world: &mut World, request: Vec<u8>) -> Option<()> {
        self.client.send(world, self.sender, false, request);
        self.client
            .events
            .iter()
            .find_map(|event| match event {
                Event::Disposition { state, .. } => state.clone(),
                _ => None,
            })
            .filter(is_accepted)
            .map(drop)
    }

    fn answer(&mut self, world: &mut World) -> Option<Answer> {
        self.client.exchange(world);
        let (_, _, bytes) = self.client.message()?;
        self.client.events.clear();
        Some(read(&bytes))
    }

    fn ask(&mut self, world: &mut World, request: Vec<u8>) -> Answer {
        self.begin(world, request).expect("taken");
        self.answer(world).expect("an answer")
    }

    /// Something with one queue.
    fn one(
        &mut self,
        world: &mut World,
        operation: &str,
        name: &str,
        body: &[(&str, Value<'_>)],
    ) -> Answer {
        self.ask(world, request(operation, name, body))
    }

    fn status(&mut self, world: &mut World, operation: &str, name: &str) -> i64 {
        self.one(world, operation, name, &[]).0
    }

    /// Names of all queues.
    fn list(&mut self, world: &mut World, offset: u64, count: u64) -> Answer {
        let names = [Value::String("name")];
        let body = [(
            Value::String("attributeNames"),
            Value::List(List::new(&names)),
        )];
        let application = [
            ("operation", Value::String("QUERY")),
            ("entityType", Value::String("dunlin.queue")),
            ("offset", Value::Ulong(offset)),
            ("count", Value::Ulong(count)),
        ];
        let request = write(Some("$me"), &application, &Value::Map(Map::new(&body)));
        self.ask(world, request)
    }
}

fn read(bytes: &[u8]) -> Answer {
    let scanned = Scanned::scan(bytes).expect("a message");
    scanned.check().expect("valid");
    let properties = scanned.properties().expect("valid").expect("some");
    assert_eq!(properties.correlation_id, Some(MessageId::Ulong(7)));
    let application = scanned.application_properties().expect("valid");
    let application = application.expect("some");
    let status = application.get("statusCode").and_then(|it| it.as_i64());
    let description = application.get("statusDescription");
    assert!(description.and_then(|it| it.as_str()).is_some());
    let count = application.get("count").and_then(|it| it.as_i64());
    let body = scanned.body().values().next().expect("a body");
    let body = text(&body.expect("valid"));
    let body = count.map_or_else(|| body.clone(), |count| format!("{count}:{body}"));
    (status.expect("a status"), body)
}

/// A value, short.
fn text(value: &Value<'_>) -> String {
    match value {
        Value::Map(map) => {
            let all: Vec<String> = map
                .iter()
                .map(|(k, v)| format!("{}={}", text(&k), text(&v)))
                .collect();
            all.join(" ")
        }
        Value::List(list) => {
            let all: Vec<String> = list.iter().map(|it| text(&it)).collect();
            format!("[{}]", all.join(","))
        }
        Value::Bool(it) => it.to_string(),
        Value::Null => "-".into(),
        other => match (other.as_str(), other.as_u64()) {
            (Some(text), _) => text.into(),
            (None, number) => number.expect("a number").to_string(),
        },
    }
}

fn write(reply_to: Option<&str>, application: &[(&str, Value<'_>)], body: &Value<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let properties = Properties {
        message_id: Some(MessageId::Ulong(7)),
        reply_to,
        ..Properties::default()
    };
    properties.encode(&mut out).expect("encoded");
    let entries: Vec<_> = application
        .iter()
        .map(|(name, value)| (Value::String(name), *value))
        .collect();
    let map = Value::Map(Map::new(&entries));
    Section::ApplicationProperties
        .encode(&map, &mut out)
        .expect("encoded");
    Section::AmqpValue.encode(body, &mut out).expect("encoded");
    out
}

fn request(operation: &str, name: &str, body: &[(&str, Value<'_>)]) -> Vec<u8> {
    let application = [
        ("operation", Value::String(operation)),
        ("type", Value::String("dunlin.queue")),
        ("name", Value::String(name)),
    ];
    let body: Vec<_> = body
        .iter()
        .map(|(name, value)| (Value::String(name), *value))
        .collect();
    write(Some("$me"), &application, &Value::Map(Map::new(&body)))
}

fn field<'a>(answer: &'a Answer, name: &str) -> &'a str {
    let mut all = answer.1.split(' ').filter_map(|pair| pair.split_once('='));
    all.find(|(it, _)| *it == name).map_or("", |(_, it)| it)
}

#[cfg(feature = "mqtt")]
#[test]
fn a_queue_is_made_shown_changed_and_deleted_from_any_shard() {
    for (at, home) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let mut world = World::new(2, OPEN);
        let mut manager = Manager::new(&mut world, at, 1);
        let queue = name(home, 1);
        assert_eq!(manager.status(&mut world, "READ", &queue), 404);
        let topics = [Value::String("t/#")];
        let body = [
            ("max_messages", Value::Uint(2)),
            ("ttl", Value::Ulong(60_000)),
            ("dead_letter", Value::String("dead")),
            ("topics", Value::List(List::new(&topics))),
        ];
        let made = manager.one(&mut world, "CREATE", &queue, &body);
        assert_eq!(made.0, 201, "{made:?}");
        for (name, value) in [
            ("name", queue.as_str()),
            ("type", "dunlin.queue"),
            ("configured", "false"),
            ("durable", "true"),
            ("topics", "[t/#]"),
            ("max_messages", "2"),
            ("full", "reject"),
            ("ttl", "60000"),
            ("levels", "10"),
            ("dead_letter", "dead"),
            ("messages", "0"),
            ("consumers", "0"),
        ] {
            assert_eq!(field(&made, name), value, "{name}");
        }
        assert_eq!(manager.status(&mut world, "CREATE", &queue), 409);
        // What topics bring, and what consumers have.
        world.mqtt(conn(1 - at, 2), 0);
        world.bytes(conn(1 - at, 2), &publish(1, b"x"));
        world.bytes(conn(1 - at, 2), &publish(2, b"y"));
        let shown = manager.one(&mut world, "READ", &queue, &[]);
        assert_eq!((shown.0, field(&shown, "messages")), (200, "2"));

        Client::receiving(&mut world, conn(at, 3), &format!("/queues/{queue}"), 1);
        let shown = manager.one(&mut world, "READ", &queue, &[]);
        let counts = ["messages", "unsettled", "consumers"].map(|it| field(&shown, it));
        assert_eq!(counts, ["1", "1", "1"]);
        // All of it is there after a restart.
        world.restart();
        let mut manager = Manager::new(&mut world, at, 4);
        let again = manager.one(&mut world, "READ", &queue, &[]);
        assert_eq!(
            (field(&again, "messages"), field(&again, "ttl")),
            ("2", "60000")
        );
        // A change is in force, and kept.
        let topics = [Value::String("u/+")];
        let body = [
            ("full", Value::String("drop-oldest")),
            ("ttl", Value::Int(0)),
            ("topics", Value::List(List::new(&topics))),
        ];
        let changed = manager.one(&mut world, "UPDATE", &queue, &body);
        assert_eq!((changed.0, field(&changed, "topics")), (200, "[u/+]"));
        world.mqtt(conn(1 - at, 5), 0);
        world.bytes(conn(1 - at, 5), &publish(3, b"z"));
        let (mut from, link) = Client::sending(&mut world, conn(1 - at, 6), "u/1");
        for _ in 0..3 {
            from.send(&mut world, link, false, message(true, b"u"));
        }
        world.restart();
        let mut manager = Manager::new(&mut world, at, 7);
        let again = manager.one(&mut world, "READ", &queue, &[]);
        let fields = ["messages", "full", "max_messages", "ttl"].map(|it| field(&again, it));
        assert_eq!(fields, ["2", "drop-oldest", "2", "0"]);
        // The links of one that is deleted hear of it, and nothing is left.
        let (mut to, _) = Client::receiving(&mut world, conn(1, 8), &format!("/queues/{queue}"), 0);
        to.events.clear();
        assert_eq!(manager.status(&mut world, "DELETE", &queue), 204);
        to.exchange(&mut world);
        assert_eq!(to.refusal().as_deref(), Some("amqp:resource-deleted"));
        assert_eq!(manager.status(&mut world, "DELETE", &queue), 404);
        world.check();
        world.restart();
        assert_eq!(world.store.stored_messages(), 0);
        let mut manager = Manager::new(&mut world, at, 9);
        assert_eq!(manager.status(&mut world, "READ", &queue), 404);
    }
}

#[test]
fn a_message_that_was_to_make_its_queue_undoes_no_later_order() {
    for (operation, status) in [("UPDATE", 200), ("DELETE", 204)] {
        let queue = name(0, 1);
        let mut world = World::new(2, OPEN);
        let mut from = Client::new(&mut world, conn(1, 1), None);
        let link = from.sender(&mut world, None);
        let mut manager = Manager::new(&mut world, 0, 2);
        let body = [("max_messages", Value::Uint(2))];
        world.held = Some(Vec::new());
        let bytes = addressed(&format!("/queues/{queue}"), b"x");
        from.send(&mut world, link, false, bytes);
        // The batch of the queue is stored, that of the message is still to be, and has
        // the record as it was.
        let held = world.held.take().expect("held");
        let (here, there): (Vec<_>, Vec<_>) = held.into_iter().partition(|(at, _)| *at == 0);
        assert_eq!((here.len(), there.len()), (1, 1));
        let store = |world: &mut World, batches: &[(usize, Batch)]| {
            for (at, batch) in batches {
                world.commit(*at, batch);
                world.run();
            }
        };
        store(&mut world, &here);
        let mut done = manager.one(&mut world, operation, &queue, &body).0;
        store(&mut world, &there);
        if done == 409 {
            done = manager.one(&mut world, operation, &queue, &body).0;
        }
        assert_eq!(done, status, "{operation}");
        world.check();
        world.restart();
        let mut manager = Manager::new(&mut world, 0, 3);
        let shown = manager.one(&mut world, "READ", &queue, &[]);
        match operation {
            "UPDATE" => assert_eq!(field(&shown, "max_messages"), "2"),
            _ => assert_eq!(shown.0, 404),
        }
    }
}

#[test]
fn queues_of_all_shards_are_listed_in_pages() {
    let mut world = World::new(2, OPEN);
    let mut manager = Manager::new(&mut world, 0, 1);
    let mut names: Vec<String> = (0..6).map(|at| name(at as u16 % 2, at)).collect();
    for name in &names {
        assert_eq!(manager.status(&mut world, "CREATE", name), 201);
    }
    names.sort();
    let results = |names: &[String]| {
        let rows: Vec<String> = names.iter().map(|name| format!("[{name}]")).collect();
        let count = names.len();
        format!("{count}:attributeNames=[name] results=[{}]", rows.join(","))
    };
    assert_eq!(manager.list(&mut world, 0, 10), (200, results(&names)));
    assert_eq!(manager.list(&mut world, 0, 4), (200, results(&names[..4])));
    assert_eq!(manager.list(&mut world, 4, 4), (200, results(&names[4..])));
    assert_eq!(manager.list(&mut world, 6, 4), (200, results(&[])));
    world.check();
}

#[test]
fn a_queue_of_the_configuration_is_not_changed_from_outside() {
    let queue = name(1, 1);
    let configured = queue.clone();
    let mut world = World::configured(2, OPEN, move |config: &mut Config| {
        config.queues.named.push(NamedQueue {
            name: Text::from(configured.as_str()),
            ..NamedQueue::default()
        });
    });
    let (mut from, link) = Client::sending(&mut world, conn(0, 1), &format!("/queues/{queue}"));
    from.send(&mut world, link, false, message(true, b"x"));
    let mut manager = Manager::new(&mut world, 0, 2);
    let shown = manager.one(&mut world, "READ", &queue, &[]);
    assert_eq!(
        (field(&shown, "configured"), field(&shown, "messages")),
        ("true", "1")
    );
    for (operation, status) in [("CREATE", 409), ("UPDATE", 403), ("DELETE", 403)] {
        assert_eq!(manager.status(&mut world, operation, &queue), status);
    }
    // Its messages are not of the configuration.
    let purged = manager.one(&mut world, "PURGE", &queue, &[]);
    assert_eq!(purged, (200, "messages=1".into()));
    assert_eq!(world.store.stored_messages(), 0);
    world.check();
}

#[test]
fn a_long_queue_is_emptied_and_the_store_follows() {
    let queue = name(1, 1);
    let mut world = World::new(2, OPEN);
    let (mut from, link) = Client::sending(&mut world, conn(0, 1), &format!("/queues/{queue}"));
    for number in 0..2500 {
        from.send(&mut world, link, false, message(number % 2 == 0, b"x"));
    }
    from.events.clear();
    Client::receiving(&mut world, conn(0, 2), &format!("/queues/{queue}"), 1);
    let mut manager = Manager::new(&mut world, 0, 3);
    let purged = manager.one(&mut world, "PURGE", &queue, &[]);
    assert_eq!(purged, (200, "messages=2499".into()));
    // What a consumer has is its own.
    assert_eq!(world.store.stored_messages(), 1);
    let shown = manager.one(&mut world, "READ", &queue, &[]);
    let counts = ["messages", "unsettled"].map(|it| field(&shown, it));
    assert_eq!(counts, ["0", "1"]);
    world.check();
}

#[test]
fn what_is_kept_is_answered_when_the_store_has_it() {
    for (at, home) in [(0, 0), (0, 1)] {
        let mut world = World::new(2, OPEN);
        let mut manager = Manager::new(&mut world, at, 1);
        let queue = name(home, 1);
        for (operation, status) in [("CREATE", 201), ("UPDATE", 200), ("DELETE", 204)] {
            world.held = Some(Vec::new());
            let body = [("max_messages", Value::Uint(9))];
            let body = if operation == "DELETE" {
                &body[..0]
            } else {
                &body
            };
            manager
                .begin(&mut world, request(operation, &queue, body))
                .expect("taken");
            assert_eq!(manager.answer(&mut world), None, "{operation}");
            world.release_store();
            let answer = manager.answer(&mut world).expect("an answer");
            assert_eq!(answer.0, status, "{operation}");
        }
        world.check();
    }
}

#[test]
fn what_the_store_refuses_is_not_in_force() {
    let mut world = World::new(2, OPEN);
    let mut manager = Manager::new(&mut world, 0, 1);
    let queue = name(1, 1);
    let refuse = |world: &mut World| {
        for (at, batch) in world.held.take().expect("held") {
            let (token, error) = (batch.token, StoreError::DiskFull);
            world.input(at, Input::Store(StoreDone::Failed { token, error }));
        }
    };
    world.held = Some(Vec::new());
    manager
        .begin(&mut world, request("CREATE", &queue, &[]))
        .expect("taken");
    refuse(&mut world);
    assert_eq!(manager.answer(&mut world).expect("an answer").0, 500);
    assert_eq!(manager.status(&mut world, "READ", &queue), 404);
    assert_eq!(manager.status(&mut world, "CREATE", &queue), 201);
    world.held = Some(Vec::new());
    let body = [("max_messages", Value::Uint(9))];
    let update = request("UPDATE", &queue, &body);
    manager.begin(&mut world, update.clone()).expect("taken");
    // Another client has to wait.
    let mut other = Manager::new(&mut world, 1, 2);
    assert_eq!(other.ask(&mut world, update.clone()).0, 409);
    assert_eq!(other.status(&mut world, "DELETE", &queue), 409);
    refuse(&mut world);
    assert_eq!(manager.answer(&mut world).expect("an answer").0, 500);
    let shown = manager.one(&mut world, "READ", &queue, &[]);
    assert_eq!(field(&shown, "max_messages"), "100000");
    assert_eq!(manager.ask(&mut world, update).0, 200);
    world.check();
}

#[test]
fn the_access_list_says_who_manages_which_queue() {
    let mut world = World::new(2, OPEN);
    let mine = "mine/1";
    let acl = "topic readwrite $management/queues/mine/#\n\
               topic read $management/queues/seen\n\
               topic read t/#\n\
               topic write /queues/mine/dead\n";
    let mut all = Manager::new(&mut world, 0, 1);
    for queue in [mine, "seen", "secret"] {
        assert_eq!(all.status(&mut world, "CREATE", queue), 201);
    }
    for shard in &mut world.shards {
        let acl = Acl::parse(acl).expect("an access list");
        let access = Access {
            acl: Some(Arc::new(acl)),
            ..Access::default()
        };
        shard.set_access(NOW, access);
    }
    world.run();
    let mut manager = Manager::new(&mut world, 1, 2);
    for (operation, queue, status) in [
        ("READ", "mine/1", 200),
        ("UPDATE", "mine/1", 200),
        ("PURGE", "mine/1", 200),
        ("CREATE", "mine/2", 201),
        ("DELETE", "mine/2", 204),
        ("READ", "seen", 200),
        ("UPDATE", "seen", 403),
        ("PURGE", "seen", 403),
        ("READ", "secret", 403),
        ("DELETE", "secret", 403),
        ("CREATE", "other", 403),
    ] {
        let case = format!("{operation} {queue}");
        assert_eq!(
            manager.status(&mut world, operation, queue),
            status,
            "{case}"
        );
    }
    let (_, list) = manager.list(&mut world, 0, 10);
    assert!(list.contains("results=[[mine/1],[seen]]"), "{list}");
    // A queue takes from topics, and sends to another queue, as its maker may.
    for (topic, dead, status) in [
        ("t/1", "mine/dead", 200),
        ("v/1", "mine/dead", 403),
        ("t/1", "secret", 403),
    ] {
        let topics = [Value::String(topic)];
        let body = [
            ("topics", Value::List(List::new(&topics))),
            ("dead_letter", Value::String(dead)),
        ];
        let answer = manager.one(&mut world, "UPDATE", mine, &body);
        assert_eq!(answer.0, status, "{topic} {dead}");
    }
    world.check();
}

#[test]
fn wrong_requests_are_answered_and_credit_comes_back() {
    let mut world = World::new(2, OPEN);
    let mut manager = Manager::new(&mut world, 0, 1);
    let map = |body: &[(&str, Value<'_>)]| request("CREATE", "q", body);
    let of = |application: &[(&str, Value<'_>)]| write(None, application, &Value::Null);
    let operation = |name| ("operation", Value::String(name));
    let queue = ("name", Value::String("q"));
    let share = [Value::String("$share/g/t")];
    let many: Vec<Value<'_>> = (0..65).map(|_| Value::String("t")).collect();
    let cases = [
        (400, of(&[])),
        (501, of(&[operation("EXPLODE"), queue])),
        (400, of(&[operation("READ")])),
        (
            501,
            of(&[operation("READ"), queue, ("type", Value::String("x"))]),
        ),
        (
            400,
            of(&[operation("READ"), ("name", Value::String("a/#"))]),
        ),
        (
            501,
            of(&[operation("QUERY"), ("entityType", Value::String("x"))]),
        ),
        (400, of(&[operation("QUERY"), ("count", Value::Int(-1))])),
        (200, of(&[operation("GET-TYPES")])),
        (200, of(&[operation("GET-ATTRIBUTES")])),
        (200, of(&[operation("GET-OPERATIONS")])),
        (200, of(&[operation("GET-MGMT-NODES")])),
        (400, map(&[("colour", Value::Uint(1))])),
        (400, map(&[("messages", Value::Uint(1))])),
        (400, map(&[("max_messages", Value::String("1"))])),
        (400, map(&[("max_messages", Value::Int(-1))])),
        (400, map(&[("max_messages", Value::Uint(0))])),
        (400, map(&[("levels", Value::Uint(11))])),
        (400, map(&[("full", Value::String("explode"))])),
        (400, map(&[("dead_letter", Value::String("q"))])),
        (400, map(&[("topics", Value::List(List::new(&share)))])),
        (400, map(&[("topics", Value::List(List::new(&many)))])),
        (
            400,
            write(None, &[operation("CREATE"), queue], &Value::Bool(true)),
        ),
    ];
    for (at, (status, request)) in cases.iter().enumerate() {
        let answer = manager.ask(&mut world, request.clone());
        assert_eq!(answer.0, *status, "{at}: {answer:?}");
    }
    for _ in 0..100 {
        assert_eq!(manager.status(&mut world, "READ", "q"), 404);
    }
    assert_eq!(manager.begin(&mut world, b"rubbish".to_vec()), None);
    world.check();
}

#[test]
fn answers_go_where_the_request_says() {
    let mut world = World::new(2, OPEN);
    let application = [
        ("operation", Value::String("READ")),
        ("name", Value::String("q")),
    ];
    let to = |address: &str| write(Some(address), &application, &Value::Null);
    // The client's own name for a receiver.
    let mut client = Client::new(&mut world, conn(0, 1), None);
    let target = Target {
        address: Some("my-answers"),
        ..Target::default()
    };
    let attach = Attach {
        target: Some(AnyTarget::Target(target)),
        ..receiver("$management")
    };
    let link = client.attach(&mut world, &attach);
    client.engine.set_credit(link, 5, false).expect("credit");
    let sender = client.sender(&mut world, Some("$management"));
    client.send(&mut world, sender, false, to("my-answers"));
    let (_, _, bytes) = client.message().expect("an answer");
    assert_eq!(read(&bytes).0, 404);
    // A dynamic node, here and on another shard, and a topic.
    for shard in [0, 1] {
        let mut client = Client::new(&mut world, conn(shard, 2), None);
        let source = Source {
            dynamic: true,
            ..Source::default()
        };
        let attach = Attach {
            role: Role::Receiver,
            name: "answers",
            source: Some(source),
            target: Some(AnyTarget::Target(Target::default())),
            ..Attach::default()
        };
        let link = client.attach(&mut world, &attach);
        let address = client.attached().expect("an address");
        client.engine.set_credit(link, 5, false).expect("credit");
        let (mut topic, _) =
            Client::receiving(&mut world, conn(1, 3 + u64::from(shard)), "answers/#", 5);
        let sender = client.sender(&mut world, Some("$management"));
        client.send(&mut world, sender, false, to(&address));
        let (_, _, bytes) = client.message().expect("an answer");
        assert_eq!(read(&bytes).0, 404);
        client.send(&mut world, sender, false, to("answers/1"));
        topic.exchange(&mut world);
        let (_, _, bytes) = topic.message().expect("an answer");
        assert_eq!(read(&bytes).0, 404);
        // Where there is no receiver there is no request.
        client.events.clear();
        for nowhere in ["$me", "$management", "a/#"] {
            client.send(&mut world, sender, false, to(nowhere));
            let (_, state) = client.outcome().expect("an outcome");
            assert!(!is_accepted(&state), "{nowhere}");
        }
    }
    // Who asked is gone before the answer.
    let mut gone = Manager::new(&mut world, 0, 9);
    world.held = Some(Vec::new());
    gone.begin(&mut world, request("CREATE", &name(1, 1), &[]))
        .expect("taken");
    let cause = dunlin_base::transport::CloseCause::Local;
    let event = NetEvent::new(conn(0, 9), NetEventKind::Closed { cause });
    world.input(0, Input::Net(event));
    world.release_store();
    world.check();
}

/// Attaches a link from (`Role::Receiver`) or to `$management` with a property
/// `paired`. Returns the link, and that property in the answer.
fn attach_half(
    client: &mut Client,
    world: &mut World,
    name: &str,
    role: Role,
    paired: Value<'_>,
) -> (LinkId, Option<bool>) {
    client.events.clear();
    let properties = [(Value::Symbol(capability::PAIRED), paired)];
    let attach = Attach {
        name,
        properties: Some(Map::new(&properties)),
        ..receiver("$management")
    };
    let to = Target {
        address: Some("$management"),
        ..Target::default()
    };
    let attach = match role {
        Role::Receiver => attach,
        Role::Sender => Attach {
            role,
            target: Some(AnyTarget::Target(to)),
            initial_delivery_count: Some(SerialNumber(0)),
            ..attach
        },
    };
    let link = client.attach(world, &attach);
    if role == Role::Receiver {
        let _ = client.engine.set_credit(link, 9, false);
        client.exchange(world);
    }
    let answer = client.events.iter().find_map(|event| match event {
        Event::Attached { attach, .. } => attach.attach()?.properties,
        _ => None,
    });
    let answer = answer.and_then(|it| it.get(capability::PAIRED.as_str()));
    let answer = answer.and_then(|it| match it {
        Value::Bool(paired) => Some(paired),
        _ => None,
    });
    (link, answer)
}

/// The link that the answer to a request to `$me` comes on; `None`: it is rejected.
fn answered_on(client: &mut Client, world: &mut World, sender: LinkId) -> Option<LinkId> {
    client.events.clear();
    let application = [
        ("operation", Value::String("READ")),
        ("name", Value::String("q")),
    ];
    let request = write(Some("$me"), &application, &Value::Null);
    client.send(world, sender, false, request);
    let (delivery, _, bytes) = client.message()?;
    assert_eq!(read(&bytes).0, 404);
    Some(delivery.link)
}

#[test]
fn a_pair_of_links_answers_on_itself() {
    let mut world = World::new(2, OPEN);
    let mut client = Client::new(&mut world, conn(0, 1), None);
    let offered = client.events.iter().find_map(|event| match event {
        Event::Opened(body) => body.open()?.offered_capabilities,
        _ => None,
    });
    assert!(offered.is_some_and(|all| all.contains("LINK_PAIR_V1_0")));
    let pair = Value::Bool(true);
    let mut half = |client: &mut Client, name: &str, role, paired| {
        attach_half(client, &mut world, name, role, paired)
    };
    let first = client.session;
    let (alone, said) = half(&mut client, "alone", Role::Receiver, Value::Bool(false));
    assert_eq!(said, None);
    let (a_from, said) = half(&mut client, "a", Role::Receiver, pair);
    assert_eq!(said, Some(true));
    let (b_to, said) = half(&mut client, "b", Role::Sender, pair);
    assert_eq!(said, Some(true));
    let (a_to, _) = half(&mut client, "a", Role::Sender, pair);
    let (b_from, _) = half(&mut client, "b", Role::Receiver, pair);
    let (loose_to, _) = half(&mut client, "loose", Role::Sender, Value::Null);
    client.session = client.engine.begin(&Begin::default()).ok();
    let (c_from, _) = half(&mut client, "c", Role::Receiver, pair);
    let (c_to, _) = half(&mut client, "c", Role::Sender, pair);
    for (to, from) in [(a_to, a_from), (b_to, b_from), (c_to, c_from)] {
        assert_eq!(answered_on(&mut client, &mut world, to), Some(from));
    }
    // What is no pair does not take the half of one.
    assert_eq!(answered_on(&mut client, &mut world, loose_to), Some(alone));
    client.detach(&mut world, b_from, true);
    assert_eq!(answered_on(&mut client, &mut world, b_to), None);
    // The half of a pair on one session is none on another.
    client.session = first;
    let (d_to, _) = attach_half(&mut client, &mut world, "d", Role::Sender, pair);
    client.session = client.engine.begin(&Begin::default()).ok();
    attach_half(&mut client, &mut world, "d", Role::Receiver, pair);
    assert_eq!(answered_on(&mut client, &mut world, d_to), None);
    for role in [Role::Sender, Role::Receiver] {
        attach_half(&mut client, &mut world, "e", role, Value::Uint(1));
        assert_eq!(client.refusal().as_deref(), Some("amqp:invalid-field"));
    }
    world.check();
}
