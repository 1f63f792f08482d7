//! AMQP 1.0 beside MQTT over real sockets: both carry messages to each other, and
//! the first flight of a client opens everything.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant as Clock;

use bytes::Bytes;
use dunlin_amqp::codec::{
    AnyTarget, Attach, Begin, DeliveryState, Open, Outcome, Role, SaslInit, SerialNumber, Source,
    Symbol, Symbols, Target,
};
use dunlin_amqp::message::{Attempt, from_amqp, to_amqp};
use dunlin_amqp::{Connection, Event, Limits, LinkId, SaslPolicy, Sending, Settings, Side, Tag};
use dunlin_base::transport::Transport;
use dunlin_base::{Instant, Message, MessageProperties, SendBuf, Text};
use dunlin_client::{Publish, QoS};

use crate::support::{Broker, PATIENCE, run};

/// One listener for both.
const BOTH: &str = r#"listener=[{transport="tcp",address="127.0.0.1:0"}]"#;

/// A client of AMQP with a sender and a receiver on one session.
pub(crate) struct Client {
    socket: TcpStream,
    pub(crate) engine: Connection,
    started: Clock,
}

impl Client {
    fn open(broker: &Broker, topic: &str) -> (Self, LinkId, LinkId) {
        let addr = broker.addr(Transport::Tcp);
        Self::over(TcpStream::connect(addr).expect("connected"), topic)
    }

    /// Sends everything in one flight, before the first answer.
    pub(crate) fn over(socket: TcpStream, topic: &str) -> (Self, LinkId, LinkId) {
        socket.set_read_timeout(Some(PATIENCE)).expect("set");
        let settings = Settings {
            side: Side::Client,
            container_id: "test",
            sasl: SaslPolicy::Required,
            mechanisms: Symbols::default(),
            limits: Limits::default(),
        };
        let mut engine = Connection::new(Instant::ZERO, &settings);
        let init = SaslInit {
            mechanism: Symbol::from_static("ANONYMOUS"),
            initial_response: None,
            hostname: None,
        };
        engine.sasl_init(&init).expect("SASL");
        engine.open(Instant::ZERO, &Open::default()).expect("open");
        let session = engine.begin(&Begin::default()).expect("begin");
        let receiver = Attach {
            name: "in",
            role: Role::Receiver,
            source: Some(Source {
                address: Some("back/#"),
                ..Source::default()
            }),
            target: Some(AnyTarget::Target(Target::default())),
            ..Attach::default()
        };
        let receiver = engine.attach(session, &receiver).expect("attach");
        engine.set_credit(receiver, 10, false).expect("credit");
        let sender = Attach {
            name: "out",
            role: Role::Sender,
            source: Some(Source::default()),
            target: Some(AnyTarget::Target(Target {
                address: Some(topic),
                ..Target::default()
            })),
            initial_delivery_count: Some(SerialNumber(0)),
            ..Attach::default()
        };
        let sender = engine.attach(session, &sender).expect("attach");
        let started = Clock::now();
        let client = Self {
            socket,
            engine,
            started,
        };
        (client, sender, receiver)
    }

    fn flush(&mut self) {
        let mut out = SendBuf::new();
        self.engine.poll_output(self.now(), &mut out);
        let bytes: Vec<u8> = out.slices().flatten().copied().collect();
        self.socket.write_all(&bytes).expect("sent");
    }

    fn now(&self) -> Instant {
        Instant::ZERO + self.started.elapsed()
    }

    /// Sends a message and waits until it is accepted.
    pub(crate) fn send(&mut self, sender: LinkId, payload: &'static [u8]) {
        self.until(|event| match event {
            Event::Credit { link, .. } if link == sender => Some(()),
            _ => None,
        });
        let message = Message {
            payload: Bytes::from_static(payload),
            ..Message::default()
        };
        let mut bytes = Vec::new();
        let written = to_amqp(&message, Instant::ZERO, Attempt::default(), &mut bytes);
        written.expect("small");
        let sending = Sending::new(Tag::from(1), false);
        let sent = self.engine.send(sender, &sending, &bytes, &Bytes::new());
        let sent = sent.expect("credit");
        let state = self.until(|event| match event {
            Event::Disposition {
                delivery, state, ..
            } if delivery == sent => state,
            _ => None,
        });
        assert!(matches!(
            state.get(),
            DeliveryState::Outcome(Outcome::Accepted)
        ));
    }

    /// Reads until `wanted` finds what it looks for.
    fn until<T>(&mut self, mut wanted: impl FnMut(Event<'_>) -> Option<T>) -> T {
        let mut buffer = vec![0; 16 * 1024];
        loop {
            self.flush();
            let len = self.socket.read(&mut buffer).expect("in time");
            assert!(len > 0, "closed");
            let now = self.now();
            let mut data = &buffer[..len];
            let mut found = None;
            while let Some(event) = self.engine.poll_event(now, &mut data) {
                found = found.or_else(|| wanted(event));
            }
            if let Some(found) = found {
                return found;
            }
        }
    }
}

#[test]
fn amqp_and_mqtt_carry_messages_to_each_other() {
    for shards in [1, 2] {
        let broker = Broker::start_with(shards, &[BOTH]);
        run(async {
            let (mqtt, mut messages) = broker
                .client(Transport::Tcp)
                .client_id("mqtt")
                .connect()
                .await
                .expect("connected");
            mqtt.subscribe("there/#", QoS::AtLeastOnce)
                .await
                .expect("subscribed");
            let (mut amqp, sender, receiver) = Client::open(&broker, "there/a");
            amqp.until(|event| match event {
                Event::Credit { link, .. } if link == sender => Some(()),
                _ => None,
            });
            let message = Message {
                topic: Text::from_static("there/a"),
                payload: Bytes::from_static(b"by AMQP"),
                qos: QoS::AtLeastOnce,
                properties: Some(Box::new(MessageProperties {
                    content_type: Some(Text::from_static("text/plain")),
                    ..MessageProperties::default()
                })),
                ..Message::default()
            };
            let mut bytes = Vec::new();
            let written = to_amqp(&message, Instant::ZERO, Attempt::default(), &mut bytes);
            written.expect("small");
            let sending = Sending::new(Tag::from(1), false);
            let sent = amqp.engine.send(sender, &sending, &bytes, &Bytes::new());
            let sent = sent.expect("credit");
            let accepted = amqp.until(|event| match event {
                Event::Disposition {
                    delivery, state, ..
                } if delivery == sent => state,
                _ => None,
            });
            assert!(matches!(
                accepted.get(),
                DeliveryState::Outcome(Outcome::Accepted)
            ));
            let got = messages.next().await.expect("a message");
            assert_eq!(
                (&*got.topic, &got.payload[..]),
                ("there/a", &b"by AMQP"[..])
            );
            assert_eq!(got.qos, QoS::AtLeastOnce);
            let properties = got.properties.as_ref().expect("some");
            assert_eq!(properties.content_type.as_deref(), Some("text/plain"));

            let publish = Publish::new("back/b", "by MQTT").qos(QoS::AtLeastOnce);
            mqtt.publish(publish).await.expect("acknowledged");
            let (delivery, bytes) = amqp.until(|event| match event {
                Event::Message(message) if message.delivery.link == receiver => {
                    Some((message.delivery, message.payload.into_bytes()))
                }
                _ => None,
            });
            let topic = Text::from_static("back/b");
            let got = from_amqp(&bytes, topic, Instant::ZERO).expect("valid");
            assert_eq!(got.payload, &b"by MQTT"[..]);
            let settled = amqp.engine.settle(delivery, Some(&DeliveryState::ACCEPTED));
            settled.expect("open");
            let now = amqp.now();
            amqp.engine.close(now, None).expect("open");
            amqp.until(|event| matches!(event, Event::Closed { error: None, .. }).then_some(()));
            drop(mqtt);
        });
    }
}
