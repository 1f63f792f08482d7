//! AMQP 1.0 of one connection of the generator: a session, and a link for each
//! address. QoS 0 is settled, 1 unsettled, 2 unsettled with the receiver settling
//! second.

use core::time::Duration;

use bytes::Bytes;
use dunlin_amqp::codec::{
    AnyTarget, Attach, Begin, DeliveryState, Header, Message as Sections, Open, Outcome,
    ReceiverSettleMode, Role as LinkRole, SaslCode, SaslInit, Section, SenderSettleMode, Source,
    Symbol, Symbols, Target, Value, encode_annotated,
};
use dunlin_amqp::{
    Connection, Delivery, Event, Limits, LinkId, Message, Reason, SaslPolicy, Sending, SessionId,
    Settings, Side, State, Tag,
};
use dunlin_base::{Instant, SendBuf};
use dunlin_mqtt_codec::QoS;

use super::common::{Common, Cx, Role};
use super::plan::Plan;
use super::publisher::Writer;
use super::wire::{STAMP_BYTES, Stamp};

/// Messages that a receiver may be sent ahead.
const CREDIT: u32 = 1000;

/// Bytes of a message beside its payload, at most, for the limit of one that has
/// not come whole.
const AROUND_BYTES: usize = 64 << 10;

/// Longest opening of a connection.
const OPENING_MAX: Duration = Duration::from_secs(60);

/// What a connection of AMQP has beside what every client has.
#[derive(Debug)]
pub(super) struct Amqp {
    engine: Connection,
    links: Vec<Link>,
    /// What comes before the stamp of each message.
    head: Vec<u8>,
    settled: bool,
    /// Bytes of messages that the engine was given since the last flush.
    written: usize,
}

#[derive(Debug)]
struct Link {
    id: LinkId,
    /// Messages received since credit was given.
    received: u32,
}

impl Amqp {
    /// The transport is open: SASL begins.
    pub(super) fn begin(client: &mut Common, cx: &Cx<'_>) -> Self {
        let plan = cx.plan;
        let (kind, number) = client.name();
        let container_id = plan.client_id(kind, number);
        let size = plan.size_of(number);
        let keep_alive = u64::from(plan.sessions.keep_alive);
        let limits = Limits {
            sessions_max: 1,
            links_max: u32::try_from(plan.topics.max(1)).unwrap_or(u32::MAX),
            first_frame_bytes_max: 16 << 10,
            partial_bytes_max: Limits::default()
                .partial_bytes_max
                .max(plan.size_max() + AROUND_BYTES),
            unsettled_sent_max: usize::from(u16::MAX),
            idle_time_out: (keep_alive > 0).then(|| Duration::from_secs(2 * keep_alive)),
            open_time_out: OPENING_MAX,
            ..Limits::default()
        };
        let settings = Settings {
            side: Side::Client,
            container_id: &container_id,
            sasl: SaslPolicy::Required,
            mechanisms: Symbols::default(),
            limits,
        };
        let mut amqp = Self {
            engine: Connection::new(cx.now(), &settings),
            links: Vec::new(),
            head: head(plan, size),
            settled: plan.messages.qos == QoS::AtMostOnce,
            written: 0,
        };
        amqp.flush(cx.now(), &mut client.out);
        amqp
    }

    pub(super) fn on_bytes(&mut self, client: &mut Common, mut data: &[u8], cx: &mut Cx<'_>) {
        while let Some(event) = self.engine.poll_event(cx.now(), &mut data) {
            if let Err(cause) = self.on_event(client, event, cx) {
                client.fail(cause, cx);
            }
        }
        self.flush(cx.now(), &mut client.out);
    }

    /// Gives what the engine has written to `out`.
    pub(super) fn flush(&mut self, now: Instant, out: &mut SendBuf) {
        self.engine.poll_output(now, out);
        self.written = 0;
    }

    /// Time has passed.
    pub(super) fn on_time(&mut self, client: &mut Common, cx: &mut Cx<'_>) {
        if self.engine.deadline().is_some_and(|due| due <= cx.now()) {
            self.engine.on_deadline(cx.now());
            self.on_bytes(client, &[], cx);
        }
    }

    pub(super) fn close(&mut self, now: Instant, out: &mut SendBuf) {
        // Refused where it is over already.
        let _ = self.engine.close(now, None);
        self.flush(now, out);
    }

    fn on_event(
        &mut self,
        client: &mut Common,
        event: Event<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<(), String> {
        match event {
            Event::SaslMechanisms(_) => self.authenticate(client, cx.plan),
            Event::SaslOutcome { code, .. } if code != SaslCode::Ok => {
                return Err(format!("connection refused: {code:?}"));
            }
            Event::SaslOutcome { .. } => {
                let (kind, _) = client.name();
                let open = Open {
                    hostname: Some(&cx.plan.target_of(kind).server_name),
                    ..Open::default()
                };
                let opened = self.engine.open(cx.now(), &open);
                opened.map_err(|error| format!("cannot open: {error}"))?;
            }
            Event::Opened(_) => {
                self.attach_all(client, cx.plan)?;
                let links = u16::try_from(self.links.len()).unwrap_or(u16::MAX);
                client.accepted(links, u16::MAX, cx);
            }
            Event::Attached { link, attach } => {
                // Without a terminus it is refused, and `detach` says why.
                let is_made = attach
                    .attach()
                    .is_some_and(|it| it.source.is_some() && it.target.is_some());
                if is_made {
                    if !matches!(client.role, Role::Publisher(_)) {
                        self.give_credit(link)?;
                    }
                    client.subscribed(cx);
                }
            }
            Event::Message(message) => self.on_message(client, &message, cx)?,
            Event::Disposition {
                delivery,
                tag,
                state,
                settled,
            } if matches!(client.role, Role::Publisher(_)) => {
                self.on_disposition(client, (delivery, tag), state.as_ref(), settled, cx);
            }
            Event::Detached { error, .. } => return Err(ended("a link", error.as_ref())),
            Event::Ended { error, .. } => return Err(ended("the session", error.as_ref())),
            Event::Closed { error, .. } => return Err(ended("the connection", error.as_ref())),
            _ => {}
        }
        Ok(())
    }

    fn authenticate(&mut self, client: &Common, plan: &Plan) {
        let (kind, _) = client.name();
        let target = plan.target_of(kind);
        let plain = target.user.as_deref().map(|user| {
            let password = target.password.as_deref().unwrap_or_default();
            format!("\0{user}\0{password}")
        });
        let init = SaslInit {
            mechanism: Symbol::from_static(match plain {
                Some(_) => "PLAIN",
                None => "ANONYMOUS",
            }),
            initial_response: Some(plain.as_deref().unwrap_or_default().as_bytes()),
            hostname: Some(&target.server_name),
        };
        // The layer is there: the engine was made with it.
        let _ = self.engine.sasl_init(&init);
    }

    fn attach_all(&mut self, client: &Common, plan: &Plan) -> Result<(), String> {
        let session = self.engine.begin(&Begin::default());
        let session = session.map_err(|error| format!("cannot begin a session: {error}"))?;
        let (role, addresses, qos) = match &client.role {
            Role::Publisher(publisher) => {
                let topics = plan.topics_of_publisher(publisher.index);
                let addresses = topics.map(|t| plan.topic(t)).collect();
                (LinkRole::Sender, addresses, plan.messages.qos)
            }
            Role::Subscriber(number, _) => {
                let addresses = plan.filters_of_subscriber(*number);
                (LinkRole::Receiver, addresses, plan.sessions.subscribe_qos)
            }
            Role::Idle(_) => (LinkRole::Receiver, vec![plan.topic(0)], QoS::AtMostOnce),
        };
        for (number, address) in addresses.iter().enumerate() {
            let link = self.attach(session, role, number, address, qos)?;
            self.links.push(Link {
                id: link,
                received: 0,
            });
        }
        Ok(())
    }

    fn attach(
        &mut self,
        session: SessionId,
        role: LinkRole,
        number: usize,
        address: &str,
        qos: QoS,
    ) -> Result<LinkId, String> {
        let address = Some(address);
        let (source, target) = match role {
            LinkRole::Sender => (None, address),
            LinkRole::Receiver => (address, None),
        };
        let attach = Attach {
            name: &format!("bench-{number}"),
            role,
            snd_settle_mode: match qos {
                QoS::AtMostOnce => SenderSettleMode::Settled,
                QoS::AtLeastOnce | QoS::ExactlyOnce => SenderSettleMode::Unsettled,
            },
            rcv_settle_mode: match qos {
                QoS::AtMostOnce | QoS::AtLeastOnce => ReceiverSettleMode::First,
                QoS::ExactlyOnce => ReceiverSettleMode::Second,
            },
            source: Some(Source {
                address: source,
                ..Source::default()
            }),
            target: Some(AnyTarget::Target(Target {
                address: target,
                ..Target::default()
            })),
            ..Attach::default()
        };
        let link = self.engine.attach(session, &attach);
        link.map_err(|error| format!("cannot attach: {error}"))
    }

    fn give_credit(&mut self, link: LinkId) -> Result<(), String> {
        let given = self.engine.set_credit(link, CREDIT, false);
        given.map_err(|error| format!("cannot give credit: {error}"))
    }

    fn on_message(
        &mut self,
        client: &mut Common,
        message: &Message<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<(), String> {
        if !message.settled {
            let delivery = message.delivery;
            let accepted = &DeliveryState::ACCEPTED;
            let said = match message.rcv_settle_mode {
                ReceiverSettleMode::First => self.engine.settle(delivery, Some(accepted)),
                ReceiverSettleMode::Second => self.engine.update(delivery, accepted),
            };
            said.map_err(|error| format!("cannot settle: {error}"))?;
        }
        client.received(stamp_of(message.payload.as_ref()), cx);
        let id = message.delivery.link;
        let link = self.links.iter_mut().find(|link| link.id == id);
        if let Some(link) = link {
            link.received += 1;
            if link.received >= CREDIT / 2 {
                link.received = 0;
                self.give_credit(id)?;
            }
        }
        Ok(())
    }

    /// What became of a message that this side sent.
    fn on_disposition(
        &mut self,
        client: &mut Common,
        (delivery, tag): (Delivery, Tag),
        state: Option<&State>,
        settled: bool,
        cx: &mut Cx<'_>,
    ) {
        let state = state.map(State::get);
        if !settled {
            // The receiver settles after this side.
            let _ = self.engine.settle(delivery, state.as_ref());
        }
        let refused = !matches!(state, Some(DeliveryState::Outcome(Outcome::Accepted)));
        let id = tag.number().and_then(|number| u16::try_from(number).ok());
        client.acknowledged(id.unwrap_or(0), refused, cx);
    }
}

impl Writer for Amqp {
    fn written(&self) -> usize {
        self.written
    }

    fn may_write(&mut self, topic: usize) -> bool {
        let link = self.links.get(topic).map(|link| link.id);
        link.is_some_and(|link| self.engine.credit(link) > 0)
    }

    fn write(&mut self, topic: usize, id: u16, stamp: Stamp, filler: &Bytes) {
        let Some(link) = self.links.get(topic) else {
            return;
        };
        let start = self.head.len();
        self.head.extend_from_slice(&stamp.to_bytes());
        let sending = Sending::new(Tag::from(u64::from(id)), self.settled);
        // There was credit.
        let _ = self.engine.send(link.id, &sending, &self.head, filler);
        self.written += self.head.len() + filler.len();
        self.head.truncate(start);
    }
}

/// What comes before the payload of a message: a header, if it is not the usual
/// one, and the beginning of a data section.
fn head(plan: &Plan, size: usize) -> Vec<u8> {
    let mut head = Vec::new();
    let header = Header {
        durable: true,
        ..Header::default()
    };
    let header = plan.messages.durable.then_some(&header);
    // A growing buffer takes everything, and the plan bounds the size.
    let _ = encode_annotated(header, None, None, &mut head);
    let _ = Section::encode_data_start(size.max(STAMP_BYTES), &mut head);
    head
}

/// The stamp of a message: in its data, or in a value that the broker made of it.
fn stamp_of(sections: &[u8]) -> Option<Stamp> {
    let sections = Sections::scan(sections).ok()?;
    let body = sections.body();
    let payload = body.data().next().or_else(|| match body.values().next()? {
        Ok(Value::Binary(bytes)) => Some(bytes),
        _ => None,
    });
    Stamp::from_payload(payload?)
}

fn ended(what: &str, error: Option<&Reason>) -> String {
    match error {
        Some(error) => {
            let error = error.get();
            let text = error.description.unwrap_or_default();
            format!(
                "the broker ended {what}: {} {text}",
                error.condition.as_str()
            )
        }
        None => format!("the broker ended {what}"),
    }
}
