//! Filters of AMQP receivers: what is granted, what they get, and what is refused.

use dunlin_amqp::LinkId;
use dunlin_amqp::codec::{
    AnyTarget, Attach, Described, Descriptor, Map, Role, Section, Source, Symbol, Target,
    TerminusExpiryPolicy, Value, condition,
};
use dunlin_base::StreamId;
use dunlin_sim::{AmqpClient, Seen, Setup, World, run_amqp};

const FIRST: StreamId = StreamId(0);

const SELECTOR: &str = "apache.org:selector-filter:string";

fn world(shards: u16, seed: u64) -> World {
    let mut setup = Setup::new(shards, seed);
    setup.protocol = Some("amqp");
    World::new(setup)
}

fn client(world: &mut World) -> AmqpClient {
    let conn = world.open();
    AmqpClient::new(world, conn, FIRST, None)
}

/// A receiver of `t/#` with these filters.
fn attach(client: &mut AmqpClient, world: &mut World, filters: &[(&str, Value<'_>)]) -> LinkId {
    attach_until(client, world, TerminusExpiryPolicy::SessionEnd, filters)
}

fn attach_until(
    client: &mut AmqpClient,
    world: &mut World,
    expiry_policy: TerminusExpiryPolicy,
    filters: &[(&str, Value<'_>)],
) -> LinkId {
    let session = client.open(world.now()).expect("a session");
    // A large frame waits until the server has said that it takes one.
    run_amqp(world, &mut [client]);
    let described: Vec<Vec<u8>> = filters
        .iter()
        .map(|(name, value)| {
            let name = Symbol::new(name).expect("ASCII");
            let it = Described::new(Descriptor::Symbol(name), value);
            Value::Described(it).to_vec().expect("small")
        })
        .collect();
    let entries: Vec<(Value<'_>, Value<'_>)> = described
        .iter()
        .zip(filters)
        .map(|(bytes, (name, _))| {
            let name = Symbol::new(name).expect("ASCII");
            (Value::Symbol(name), Value::decode(bytes).expect("valid"))
        })
        .collect();
    let attach = Attach {
        name: "filtered",
        role: Role::Receiver,
        source: Some(Source {
            address: Some("t/#"),
            filter: Some(Map::new(&entries)),
            expiry_policy,
            ..Source::default()
        }),
        target: Some(AnyTarget::Target(Target::default())),
        ..Attach::default()
    };
    let link = client.engine.attach(session, &attach).expect("a handle");
    client.engine.set_credit(link, 100, false).expect("a link");
    link
}

/// A message whose only application property is `n`.
fn message(n: i32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let entries = [(Value::String("n"), Value::Int(n))];
    let map = Value::Map(Map::new(&entries));
    Section::ApplicationProperties
        .encode(&map, &mut bytes)
        .expect("a vector");
    Section::encode_data_start(1, &mut bytes).expect("a vector");
    bytes.push(n as u8);
    bytes
}

fn granted(client: &mut AmqpClient, link: LinkId) -> Vec<String> {
    let names = client.find(|seen| match seen {
        Seen::Attached(of, body) if *of == link => {
            let source = body.attach().and_then(|it| it.source);
            let map = source.and_then(|it| it.filter).unwrap_or_default();
            let names = map
                .iter()
                .filter_map(|(name, _)| Some(name.as_str()?.to_owned()));
            Some(names.collect())
        }
        _ => None,
    });
    names.expect("an answer")
}

fn bodies(client: &mut AmqpClient) -> Vec<u8> {
    let mut bodies = Vec::new();
    while let Some(body) = client.find(|seen| match seen {
        Seen::Message(_, bytes) => bytes.last().copied(),
        _ => None,
    }) {
        bodies.push(body);
    }
    bodies
}

/// Filters, those that are granted, and what passes them.
type Case<'a> = (&'a [Named<'a>], &'a [&'a str], &'a [u8]);
type Named<'a> = (&'a str, Value<'a>);

#[test]
fn a_receiver_gets_what_its_filters_let_through() {
    let odd = (
        "apache.org:selector-filter:string",
        Value::String("n IN (1, 3, 5)"),
    );
    let sql = (
        "amqp:sql-filter",
        Value::String("application_properties.n < 5"),
    );
    let entries = [(Value::String("n"), Value::Int(3))];
    let three = (
        "amqp:application-properties-filter",
        Value::Map(Map::new(&entries)),
    );
    let unknown = ("example:filter", Value::String("x"));
    let cases: [Case<'_>; 4] = [
        (&[odd], &[SELECTOR], &[1, 3, 5]),
        (&[odd, sql], &[SELECTOR, "amqp:sql-filter"], &[1, 3]),
        (
            &[three, unknown],
            &["amqp:application-properties-filter"],
            &[3],
        ),
        (&[unknown], &[], &[0, 1, 2, 3, 4, 5]),
    ];
    for (filters, names, expected) in cases {
        // Link-detach is what JMS asks for.
        for (shards, seed, until) in [
            (1, 1, TerminusExpiryPolicy::SessionEnd),
            (2, 1, TerminusExpiryPolicy::LinkDetach),
            (2, 2, TerminusExpiryPolicy::SessionEnd),
            (2, 3, TerminusExpiryPolicy::LinkDetach),
        ] {
            let mut world = world(shards, seed);
            let (mut receiver, mut sender) = (client(&mut world), client(&mut world));
            let filtered = attach_until(&mut receiver, &mut world, until, filters);
            let session = sender.open(world.now()).expect("a session");
            let link = sender.sender(session, "t/a").expect("a handle");
            run_amqp(&mut world, &mut [&mut receiver, &mut sender]);
            assert_eq!(granted(&mut receiver, filtered), names);
            for n in 0..6 {
                sender.send(link, &message(n)).expect("credit");
            }
            run_amqp(&mut world, &mut [&mut receiver, &mut sender]);
            assert_eq!(bodies(&mut receiver), expected, "{names:?}");
        }
    }
}

#[test]
fn no_local_keeps_out_what_its_own_connection_sent() {
    for seed in 1..5 {
        let mut world = world(2, seed);
        let (mut both, mut other) = (client(&mut world), client(&mut world));
        let no_local = [("apache.org:no-local-filter:list", Value::Null)];
        let filtered = attach(&mut both, &mut world, &no_local);
        let session = both.engine.begin(&Default::default()).expect("a channel");
        let own = both.sender(session, "t/own").expect("a handle");
        let session = other.open(world.now()).expect("a session");
        let its = other.sender(session, "t/other").expect("a handle");
        run_amqp(&mut world, &mut [&mut both, &mut other]);
        assert_eq!(
            granted(&mut both, filtered),
            ["apache.org:no-local-filter:list"]
        );
        both.send(own, &message(1)).expect("credit");
        other.send(its, &message(2)).expect("credit");
        run_amqp(&mut world, &mut [&mut both, &mut other]);
        assert_eq!(bodies(&mut both), [2], "seed {seed}");
    }
}

#[test]
fn invalid_filters_are_refused_with_their_condition() {
    let long = format!("a = '{}'", "x".repeat(20_000));
    let many = "a=1 OR ".repeat(1000) + "TRUE";
    for value in [
        Value::String("n ="),
        Value::String(&long),
        Value::String(&many),
        Value::Int(1),
    ] {
        let mut world = world(1, 1);
        let mut client = client(&mut world);
        let link = attach(&mut client, &mut world, &[(SELECTOR, value)]);
        run_amqp(&mut world, &mut [&mut client]);
        let refused = client.find(|seen| match seen {
            Seen::Detached(of, condition) if *of == link => Some(condition.clone()),
            _ => None,
        });
        assert_eq!(refused.as_deref(), Some(condition::INVALID_FIELD.as_str()));
        assert!(!client.is_over, "the connection goes on");
    }
}
