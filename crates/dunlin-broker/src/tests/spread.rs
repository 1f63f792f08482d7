//! How a client of AMQP over QUIC has the broker use the streams of its connection.

use alloc::vec::Vec;

use dunlin_amqp::codec::{Map, Open, Symbols, Value, capability};
use dunlin_amqp::{Connection, Limits, SaslPolicy, Settings, Side};
use dunlin_base::transport::{NetCommandKind, NetEvent, NetEventKind, Transport};
use dunlin_base::{Repeat, SendBuf, StreamId};

use super::amqp::{NOW, OPEN, conn, peer};
use crate::config::{Config, Sending};
use crate::io::{Input, Output};
use crate::shard::Shard;

/// Whether streams are isolated, and when packets are sent twice.
type Asked = (bool, Option<Repeat>);

/// A property of `open`.
type Property = (Value<'static>, Value<'static>);

/// What the broker wants of the transport when a client opens with these
/// properties.
fn commands(allowed: bool, properties: &[Property]) -> Vec<NetCommandKind> {
    let config = Config {
        listeners: alloc::vec![OPEN],
        sending: Sending {
            repeat_packets: allowed,
            ..Sending::default()
        },
        ..Config::default()
    };
    let mut shard = Shard::new(config, NOW);
    let settings = Settings {
        side: Side::Client,
        container_id: "client",
        sasl: SaslPolicy::Off,
        mechanisms: Symbols::default(),
        limits: Limits::default(),
    };
    let mut engine = Connection::new(NOW, &settings);
    let open = Open {
        properties: Some(Map::new(properties)),
        ..Open::default()
    };
    engine.open(NOW, &open).expect("open");
    let mut out = SendBuf::new();
    engine.poll_output(NOW, &mut out);
    let data: Vec<u8> = out.slices().flatten().copied().collect();
    let peer = peer(Transport::Quic, "amqp");
    let (id, stream) = (conn(0, 1), StreamId::CONTROL);
    let events = [
        NetEventKind::Opened { peer },
        NetEventKind::Bytes {
            stream,
            data: &data[..],
        },
    ];
    for event in events {
        shard.handle(NOW, Input::Net(NetEvent::new(id, event)));
    }
    let mut commands = Vec::new();
    while let Some(output) = shard.poll_output() {
        if let Output::Net(command) = output {
            assert_eq!(command.conn, id, "of the QUIC connection");
            commands.push(command.kind);
        }
    }
    commands
}

#[test]
fn streams_are_kept_apart_for_a_client_that_asks() {
    let asked = [
        (Value::Symbol(capability::ISOLATE), Value::Uint(1)),
        (Value::Symbol(capability::REPEAT), Value::Uint(2)),
    ];
    let other = [(Value::Symbol(capability::ISOLATE), Value::String("1"))];
    let never = [(Value::Symbol(capability::REPEAT), Value::Uint(0))];
    let cases: [(bool, &[Property], Asked); 5] = [
        (true, &asked, (true, Some(Repeat::OnLoss))),
        (false, &asked, (true, None)),
        (true, &other, (false, None)),
        (true, &[], (false, None)),
        (false, &never, (false, Some(Repeat::Never))),
    ];
    for (allowed, properties, (isolates, repeats)) in cases {
        let commands = commands(allowed, properties);
        let has = |wanted: &dyn Fn(&NetCommandKind) -> bool| commands.iter().any(wanted);
        let isolate = |kind: &NetCommandKind| {
            matches!(kind, NetCommandKind::IsolateStreams { isolate: true })
        };
        let repeat = commands.iter().find_map(|kind| match kind {
            NetCommandKind::RepeatPackets { repeat } => Some(*repeat),
            _ => None,
        });
        assert_eq!((has(&isolate), repeat), (isolates, repeats));
    }
}
