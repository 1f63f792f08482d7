//! AMQP and MQTT clients on two shards, in virtual time: the engine of a client
//! against the front, and packets of MQTT as bytes.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;

use bytes::Bytes;
use dunlin_amqp::codec::{
    AnyTarget, Attach, Begin, DeliveryState, Map, Message as Scanned, Modified, Open, Outcome,
    Properties, ReceiverSettleMode, Role, SaslInit, Section, SenderSettleMode, SerialNumber,
    Source, Symbol, Symbols, Target, TerminusDurability, TerminusExpiryPolicy, Value,
};
use dunlin_amqp::{
    Connection, Delivery, Event, Limits, LinkId, SaslPolicy, Sending, SessionId, Settings, Side,
    State, Tag,
};
use dunlin_base::transport::{NetCommandKind, NetEvent, NetEventKind, Peer, Transport};
use dunlin_base::{ConnId, Instant, SendBuf, ShardId, StreamId, Text};
use dunlin_store::{Batch, MemoryStore, Request, StoreDone, StoreError};

use crate::auth::{Anonymous, AuthAnswer, AuthPolicy, AuthRequest, Others, Partial};
use crate::bus::{self, Addressed};
use crate::config::{ClientLimits, Config, SysTopics};
use crate::control::values::{self as control, Reply};
use crate::io::{self, Input, Output};
use crate::random::home_shard;
use crate::shard::Shard;

pub(super) const NOW: Instant = Instant::from_micros(1_000_000);

pub(super) struct World {
    pub(super) shards: Vec<Shard>,
    pub(super) sent: Vec<(ConnId, Vec<u8>)>,
    pub(super) closed: Vec<ConnId>,
    /// Connections whose reading stopped, or went on.
    pub(super) pauses: Vec<(ConnId, bool)>,
    /// Batches that the store has not answered, while it is held up.
    pub(super) held: Option<Vec<(usize, Batch)>>,
    /// The store refuses what it is asked to write.
    pub(super) refuses: bool,
    pub(super) store: MemoryStore,
    configs: Vec<Config>,
    /// Answers to operators.
    pub(super) replies: Vec<Reply>,
}

/// A client on this machine.
pub(super) fn peer(transport: Transport, protocol: &'static str) -> Peer {
    Peer {
        addr: ([127, 0, 0, 1], 1).into(),
        transport,
        listener: 0,
        identity: None,
        protocol: Text::from_static(protocol),
        early_data: false,
        binding: None,
    }
}

impl World {
    pub(super) fn new(shards: u16, policy: AuthPolicy) -> Self {
        Self::configured(shards, policy, |_| {})
    }

    /// With more in the configuration of each shard.
    pub(super) fn configured(
        shards: u16,
        policy: AuthPolicy,
        change: impl Fn(&mut Config),
    ) -> Self {
        let config = |shard| {
            let mut config = Config {
                shard: ShardId(shard),
                shards,
                listeners: alloc::vec![policy],
                sys: SysTopics::quiet(),
                ..Config::default()
            };
            change(&mut config);
            config
        };
        let mut world = Self {
            shards: Vec::new(),
            sent: Vec::new(),
            closed: Vec::new(),
            pauses: Vec::new(),
            held: None,
            refuses: false,
            store: MemoryStore::new(),
            configs: (0..shards).map(config).collect(),
            replies: Vec::new(),
        };
        world.restart();
        world
    }

    /// All shards begin again with what the store has.
    pub(super) fn restart(&mut self) {
        let recovered = self.store.recover();
        let configs = self.configs.iter().cloned();
        self.shards = configs.map(|config| Shard::new(config, NOW)).collect();
        for shard in &mut self.shards {
            shard.restore(&recovered).expect("its store");
        }
        self.run();
    }

    pub(super) fn input(&mut self, at: usize, input: Input<'_>) {
        self.shards[at].handle(NOW, input);
        self.run();
    }

    /// An operator asks a shard.
    pub(super) fn ask(&mut self, at: usize, request: control::Request) {
        let number = 1;
        self.input(at, Input::Control { number, request });
    }

    /// Carries what shards want until they want nothing.
    pub(super) fn run(&mut self) {
        let mut idle = 0;
        for at in (0..self.shards.len()).cycle() {
            let mut any = false;
            while let Some(output) = self.shards[at].poll_output() {
                any = true;
                self.carry(at, output);
            }
            idle = if any { 0 } else { idle + 1 };
            if idle > self.shards.len() {
                return;
            }
        }
    }

    pub(super) fn carry(&mut self, at: usize, output: Output) {
        match output {
            Output::Bus { to, message } => {
                // As bytes, as between machines.
                let mut batch = Vec::new();
                bus::begin(NOW, &mut batch);
                bus::encode(ShardId(at as u16), to, &message, &mut batch).expect("within limits");
                for addressed in bus::Batch::open(batch.into(), NOW).expect("a batch") {
                    let Addressed { from, to, message } = addressed.expect("a message");
                    let message = Input::Bus { from, message };
                    self.shards[usize::from(to.0)].handle(NOW, message);
                }
            }
            Output::Store(Request::Write(batch)) => match &mut self.held {
                Some(held) => held.push((at, batch)),
                None => self.commit(at, &batch),
            },
            Output::Store(request) => {
                let done = self.store.handle(&request);
                self.shards[at].handle(NOW, Input::Store(done));
            }
            Output::Control { reply, .. } => self.replies.push(reply),
            Output::Event(io::Event::InternalError(missing)) => {
                panic!("{missing} table entries are missing: a bug of the shard");
            }
            Output::Auth {
                conn,
                request: AuthRequest::Password { user, password, .. },
            } => {
                let answer = match *user == *"ann" && *password == *b"secret" {
                    true => AuthAnswer::Accept { user: Some(user) },
                    false => AuthAnswer::Refuse,
                };
                self.shards[at].handle(NOW, Input::Auth { conn, answer });
            }
            Output::Net(command) => match command.kind {
                NetCommandKind::Send { data, .. } => {
                    let bytes: Vec<u8> = data.slices().flatten().copied().collect();
                    let (stream, bytes_sent) = (StreamId::CONTROL, bytes.len());
                    let event = NetEventKind::Sent {
                        stream,
                        bytes: bytes_sent,
                    };
                    let event = NetEvent::new(command.conn, event);
                    self.sent.push((command.conn, bytes));
                    self.shards[at].handle(NOW, Input::Net(event));
                }
                NetCommandKind::Close { .. } => self.closed.push(command.conn),
                NetCommandKind::PauseReading { paused } => {
                    self.pauses.push((command.conn, paused));
                }
                _ => {}
            },
            _ => {}
        }
    }

    pub(super) fn commit(&mut self, at: usize, batch: &Batch) {
        let token = batch.token;
        let done = match self.refuses {
            true => StoreDone::Failed {
                token,
                error: StoreError::DiskFull,
            },
            false => {
                self.store.apply(batch);
                StoreDone::Committed { token }
            }
        };
        self.shards[at].handle(NOW, Input::Store(done));
    }

    /// The store answers what it was asked.
    pub(super) fn release_store(&mut self) {
        for (at, batch) in self.held.take().unwrap_or_default() {
            self.commit(at, &batch);
        }
        self.run();
    }

    /// The shards look at their timers, so long after the beginning.
    pub(super) fn pass(&mut self, time: Duration) {
        for shard in &mut self.shards {
            shard.handle_timeout(NOW + time);
        }
        self.run();
    }

    /// Nothing is miscounted, and no table entry was missing.
    pub(super) fn check_counts(&self) {
        for shard in &self.shards {
            assert_eq!(shard.census().miscounted_bytes, 0);
            assert_eq!(shard.stats().internal_errors, 0);
        }
    }

    /// As [`World::check_counts`], and no request is under way.
    pub(super) fn check(&self) {
        self.check_counts();
        let pending = self.shards.iter().map(|shard| shard.census().pending);
        assert_eq!(pending.sum::<usize>(), 0);
    }

    pub(super) fn open(&mut self, conn: ConnId, protocol: &'static str) {
        let peer = peer(Transport::Tcp, protocol);
        let event = NetEvent::new(conn, NetEventKind::Opened { peer });
        self.input(usize::from(conn.shard().0), Input::Net(event));
    }

    pub(super) fn bytes(&mut self, conn: ConnId, data: &[u8]) {
        let stream = StreamId::CONTROL;
        let event = NetEvent::new(conn, NetEventKind::Bytes { stream, data });
        self.input(usize::from(conn.shard().0), Input::Net(event));
    }

    pub(super) fn take_sent(&mut self, to: ConnId) -> Vec<u8> {
        let (mine, others) = core::mem::take(&mut self.sent)
            .into_iter()
            .partition(|(conn, _)| *conn == to);
        self.sent = others;
        let mine: Vec<(ConnId, Vec<u8>)> = mine;
        mine.into_iter().flat_map(|(_, bytes)| bytes).collect()
    }

    /// A client of MQTT 5.0 whose home is the shard of its connection. It
    /// subscribes to `t/#` with QoS 1; its session outlives the connection for
    /// `expiry` seconds.
    pub(super) fn mqtt(&mut self, conn: ConnId, expiry: u8) {
        self.open(conn, "mqtt");
        let is_home = |id: &u8| {
            let id = [*id];
            let id = core::str::from_utf8(&id).expect("a letter");
            home_shard(id, self.shards.len() as u16) == conn.shard().0
        };
        let id = (b'a'..=b'z').find(is_home).expect("one of 26");
        let connect = [
            0x10, 19, 0, 4, b'M', b'Q', b'T', b'T', 5, 0, 0, 0, 5, 0x11, 0, 0, 0, expiry, 0, 1, id,
        ];
        self.bytes(conn, &connect);
        self.bytes(conn, &[0x82, 9, 0, 1, 0, 0, 3, b't', b'/', b'#', 1]);
        let answer = self.take_sent(conn);
        assert_eq!(answer.first(), Some(&0x20), "CONNACK");
    }
}

/// Clients that were made.
static CLIENTS: AtomicUsize = AtomicUsize::new(0);

/// A client of AMQP.
pub(super) struct Client {
    pub(super) conn: ConnId,
    pub(super) engine: Connection,
    pub(super) session: Option<SessionId>,
    pub(super) events: VecDeque<Event<'static>>,
    pub(super) tag: u64,
    number: usize,
}

impl Client {
    pub(super) fn new(world: &mut World, conn: ConnId, sasl: Option<SaslInit<'_>>) -> Self {
        Self::of(world, conn, sasl, "client")
    }

    /// Of this container.
    pub(super) fn of(
        world: &mut World,
        conn: ConnId,
        sasl: Option<SaslInit<'_>>,
        container_id: &str,
    ) -> Self {
        world.open(conn, "amqp");
        let settings = Settings {
            side: Side::Client,
            container_id,
            sasl: match sasl {
                Some(_) => SaslPolicy::Required,
                None => SaslPolicy::Off,
            },
            mechanisms: Symbols::default(),
            limits: Limits::default(),
        };
        let mut engine = Connection::new(NOW, &settings);
        if let Some(init) = sasl {
            engine.sasl_init(&init).expect("SASL");
        }
        engine.open(NOW, &Open::default()).expect("open");
        let session = engine.begin(&Begin::default()).ok();
        let mut client = Self {
            conn,
            engine,
            session,
            events: VecDeque::new(),
            tag: 0,
            number: CLIENTS.fetch_add(1, Ordering::Relaxed),
        };
        client.exchange(world);
        client
    }

    /// Sends what there is and takes the answers, until there are none.
    pub(super) fn exchange(&mut self, world: &mut World) {
        loop {
            let mut out = SendBuf::new();
            self.engine.poll_output(NOW, &mut out);
            let out: Vec<u8> = out.slices().flatten().copied().collect();
            if !out.is_empty() {
                world.bytes(self.conn, &out);
            }
            let answer = world.take_sent(self.conn);
            let mut data = &answer[..];
            while let Some(event) = self.engine.poll_event(NOW, &mut data) {
                self.events.push_back(event.into_owned());
            }
            if out.is_empty() && answer.is_empty() {
                return;
            }
        }
    }

    pub(super) fn attach(&mut self, world: &mut World, attach: &Attach<'_>) -> LinkId {
        let session = self.session.expect("a session");
        // All are of one container: none takes links from another but by a name that a
        // test gives.
        let name = match attach.name {
            "sender" | "receiver" => format!("{} {}", attach.name, self.number),
            name => String::from(name),
        };
        let attach = Attach {
            name: &name,
            ..*attach
        };
        let link = self.engine.attach(session, &attach).expect("attach");
        self.exchange(world);
        link
    }

    pub(super) fn sender(&mut self, world: &mut World, address: Option<&str>) -> LinkId {
        let target = Target {
            address,
            ..Target::default()
        };
        self.attach(world, &sender(target))
    }

    pub(super) fn receiver(&mut self, world: &mut World, address: &str, credit: u32) -> LinkId {
        self.take(world, &receiver(address), credit)
    }

    /// Attaches a receiver, with credit.
    pub(super) fn take(&mut self, world: &mut World, attach: &Attach<'_>, credit: u32) -> LinkId {
        let link = self.attach(world, attach);
        self.give_credit(world, link, credit);
        link
    }

    /// A client with a link that sends to `address`.
    pub(super) fn sending(world: &mut World, conn: ConnId, address: &str) -> (Self, LinkId) {
        let mut client = Self::new(world, conn, None);
        let link = client.sender(world, Some(address));
        (client, link)
    }

    /// A client with a link that receives from `address`.
    pub(super) fn receiving(
        world: &mut World,
        conn: ConnId,
        address: &str,
        credit: u32,
    ) -> (Self, LinkId) {
        let mut client = Self::new(world, conn, None);
        let link = client.receiver(world, address, credit);
        (client, link)
    }

    pub(super) fn give_credit(&mut self, world: &mut World, link: LinkId, credit: u32) {
        let given = self.engine.set_credit(link, credit, false);
        given.expect("attached");
        self.exchange(world);
    }

    /// Has a link drained; whether the broker says that it is.
    pub(super) fn drain(&mut self, world: &mut World, link: LinkId, credit: u32) -> bool {
        let given = self.engine.set_credit(link, credit, true);
        given.expect("attached");
        self.exchange(world);
        let drained = |event: &Event<'_>| {
            matches!(
                event,
                Event::Flow {
                    credit: 0,
                    drained: true,
                    ..
                }
            )
        };
        self.events.iter().any(drained)
    }

    pub(super) fn detach(&mut self, world: &mut World, link: LinkId, closed: bool) {
        let detached = self.engine.detach(link, closed, None);
        detached.expect("attached");
        self.exchange(world);
    }

    pub(super) fn settle(&mut self, world: &mut World, of: Delivery, state: &DeliveryState<'_>) {
        self.engine.settle(of, Some(state)).expect("open");
        self.exchange(world);
    }

    /// Accepts all messages that have come; their payloads.
    pub(super) fn accept_all(&mut self, world: &mut World) -> String {
        self.exchange(world);
        let got = self.taken();
        for (delivery, ..) in &got {
            let accepted = Some(&DeliveryState::ACCEPTED);
            self.engine.settle(*delivery, accepted).expect("open");
        }
        self.exchange(world);
        payloads(&got)
    }

    /// Sends a message, which is accepted.
    pub(super) fn send_accepted(&mut self, world: &mut World, link: LinkId, bytes: Vec<u8>) {
        let sent = self.send(world, link, false, bytes);
        let (answered, state) = self.outcome().expect("an outcome");
        assert!(answered == sent && is_accepted(&state), "{state:?}");
    }

    /// Sends a durable message for each byte.
    pub(super) fn send_all(&mut self, world: &mut World, link: LinkId, payloads: &str) {
        for byte in payloads.bytes() {
            self.send_accepted(world, link, message(true, &[byte]));
        }
    }

    pub(super) fn send(
        &mut self,
        world: &mut World,
        link: LinkId,
        settled: bool,
        bytes: Vec<u8>,
    ) -> Delivery {
        self.tag += 1;
        let sending = Sending::new(Tag::from(self.tag), settled);
        let sent = self.engine.send(link, &sending, &bytes, &Bytes::new());
        let sent = sent.expect("sent");
        self.exchange(world);
        sent
    }

    /// The outcome of the delivery that was answered next.
    pub(super) fn outcome(&mut self) -> Option<(Delivery, State)> {
        while let Some(event) = self.events.pop_front() {
            if let Event::Disposition {
                delivery, state, ..
            } = event
            {
                return Some((delivery, state.expect("a state")));
            }
        }
        None
    }

    /// The next message: its delivery and its sections.
    pub(super) fn message(&mut self) -> Option<(Delivery, bool, Bytes)> {
        while let Some(event) = self.events.pop_front() {
            if let Event::Message(message) = event {
                let bytes = message.payload.into_bytes();
                return Some((message.delivery, message.settled, bytes));
            }
        }
        None
    }

    /// All messages that have come: delivery, last byte, delivery count.
    pub(super) fn taken(&mut self) -> Vec<(Delivery, u8, u32)> {
        let all = core::iter::from_fn(|| self.message());
        all.map(|(delivery, _, bytes)| {
            let header = Scanned::scan(&bytes).expect("a message").header();
            let count = header.expect("valid").map_or(0, |h| h.delivery_count);
            (delivery, *bytes.last().expect("a payload"), count)
        })
        .collect()
    }

    /// The payloads of all messages that have come.
    pub(super) fn payloads(&mut self, world: &mut World) -> String {
        self.exchange(world);
        payloads(&self.taken())
    }

    /// The address in the answer to the attachment of a receiver.
    pub(super) fn attached(&mut self) -> Option<String> {
        while let Some(event) = self.events.pop_front() {
            if let Event::Attached { attach, .. } = event {
                let source = attach.attach().and_then(|attach| attach.source);
                return source.and_then(|source| source.address.map(ToString::to_string));
            }
        }
        None
    }

    /// The condition with which the link that was attached last was refused.
    pub(super) fn refusal(&mut self) -> Option<String> {
        while let Some(event) = self.events.pop_front() {
            if let Event::Detached { error, .. } = event {
                return error.map(|error| error.get().condition.as_str().to_string());
            }
        }
        None
    }
}

pub(super) fn payloads(messages: &[(Delivery, u8, u32)]) -> String {
    let bytes = messages.iter().map(|(_, byte, _)| char::from(*byte));
    bytes.collect()
}

/// A link that sends to `target`.
pub(super) fn sender(target: Target<'_>) -> Attach<'_> {
    Attach {
        name: "sender",
        role: Role::Sender,
        source: Some(Source::default()),
        target: Some(AnyTarget::Target(target)),
        initial_delivery_count: Some(SerialNumber(0)),
        ..Attach::default()
    }
}

/// A source that is kept for ever.
pub(super) fn never(address: &str) -> Source<'_> {
    Source {
        address: Some(address),
        durable: TerminusDurability::UnsettledState,
        expiry_policy: TerminusExpiryPolicy::Never,
        ..Source::default()
    }
}

pub(super) fn receiver(address: &str) -> Attach<'_> {
    Attach {
        name: "receiver",
        role: Role::Receiver,
        source: Some(Source {
            address: Some(address),
            ..Source::default()
        }),
        target: Some(AnyTarget::Target(Target::default())),
        ..Attach::default()
    }
}

/// A message with a header, if it is durable, and one data section.
pub(super) fn message(durable: bool, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    if durable {
        bytes.extend_from_slice(&[0x00, 0x53, 0x70, 0xc0, 2, 1, 0x41]);
    }
    Section::encode_data_start(payload.len(), &mut bytes).expect("a vector");
    bytes.extend_from_slice(payload);
    bytes
}

/// A durable message that says where it goes.
pub(super) fn addressed(to: &str, payload: &[u8]) -> Vec<u8> {
    let properties = Properties {
        to: Some(to),
        ..Properties::default()
    };
    let mut bytes = alloc::vec![0x00, 0x53, 0x70, 0xc0, 2, 1, 0x41];
    properties.encode(&mut bytes).expect("small");
    bytes.extend_from_slice(&message(false, payload));
    bytes
}

pub(super) const OPEN: AuthPolicy = AuthPolicy {
    anonymous: Anonymous::Always,
    passwords: false,
    certificates: false,
    tokens: false,
    others: Others::Never,
    certificate_first: false,
    partial: Partial::Refused,
};

pub(super) fn conn(shard: u16, serial: u64) -> ConnId {
    ConnId::new(ShardId(shard), serial)
}

pub(super) fn is_accepted(state: &State) -> bool {
    matches!(state.get(), DeliveryState::Outcome(Outcome::Accepted))
}

/// A QoS 1 PUBLISH of MQTT 5.0 to `t/a`, with this payload.
pub(super) fn publish(id: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = alloc::vec![
        0x32,
        8 + payload.len() as u8,
        0,
        3,
        b't',
        b'/',
        b'a',
        0,
        id,
        0
    ];
    packet.extend_from_slice(payload);
    packet
}

#[cfg(feature = "mqtt")]
#[test]
fn a_transfer_reaches_mqtt_on_every_shard_and_is_accepted() {
    let mut world = World::new(2, OPEN);
    world.mqtt(conn(1, 1), 0);
    let (mut client, link) = Client::sending(&mut world, conn(0, 2), "t/a");
    let sent = client.send(&mut world, link, false, message(true, b"hello"));
    let got = world.take_sent(conn(1, 1));
    assert_eq!(got.first(), Some(&0x32), "QoS 1 PUBLISH in {got:?}");
    assert!(got.ends_with(b"hello"));
    let (answered, state) = client.outcome().expect("an outcome");
    assert!(answered == sent && is_accepted(&state));
    // One that is not durable, and one that is settled, ask for nothing.
    let sent = client.send(&mut world, link, false, message(false, b"once"));
    assert_eq!(client.outcome().map(|(sent, _)| sent), Some(sent));
    client.send(&mut world, link, true, message(true, b"settled"));
    assert!(client.outcome().is_none());
    let got = world.take_sent(conn(1, 1));
    assert!(got.windows(4).any(|w| w == b"once") && got.ends_with(b"settled"));
}

#[cfg(feature = "mqtt")]
#[test]
fn a_transfer_is_accepted_when_the_store_has_what_depends_on_it() {
    for shard in [0, 1] {
        let mut world = World::new(2, OPEN);
        world.mqtt(conn(shard, 1), 60);
        let (mut client, link) = Client::sending(&mut world, conn(0, 2), "t/a");
        world.held = Some(Vec::new());
        let sent = client.send(&mut world, link, false, message(true, b"kept"));
        assert!(client.outcome().is_none(), "before the store has it");
        world.release_store();
        client.exchange(&mut world);
        let (answered, state) = client.outcome().expect("an outcome");
        assert!(answered == sent && is_accepted(&state));
    }
}

#[cfg(feature = "mqtt")]
#[test]
fn a_subscription_sends_within_credit_and_takes_back_what_is_released() {
    let mut world = World::new(2, OPEN);
    world.mqtt(conn(1, 1), 0);
    let (mut client, link) = Client::receiving(&mut world, conn(0, 2), "t/+", 2);
    for id in 1..=3 {
        world.bytes(conn(1, 1), &publish(id, &[b'0' + id]));
    }
    client.exchange(&mut world);
    let (first, settled, bytes) = client.message().expect("within credit");
    assert!(!settled && bytes.ends_with(b"1"));
    let (second, ..) = client.message().expect("within credit");
    assert!(client.message().is_none(), "no credit for a third");
    // Both go back in their order, whichever is released first.
    for delivery in [second, first] {
        let released = client
            .engine
            .settle(delivery, Some(&DeliveryState::RELEASED));
        released.expect("settled");
    }
    client.give_credit(&mut world, link, 3);
    let again: Vec<(Delivery, bool, Bytes)> = core::iter::from_fn(|| client.message()).collect();
    let payloads: Vec<Option<&u8>> = again.iter().map(|(_, _, b)| b.last()).collect();
    assert_eq!(payloads, [Some(&b'1'), Some(&b'2'), Some(&b'3')]);
    let failed = Modified {
        delivery_failed: true,
        ..Modified::default()
    };
    let failed = DeliveryState::Outcome(Outcome::Modified(failed));
    for ((delivery, ..), state) in
        again
            .iter()
            .zip([DeliveryState::ACCEPTED, failed, DeliveryState::ACCEPTED])
    {
        client
            .engine
            .settle(*delivery, Some(&state))
            .expect("settled");
    }
    // What there is, then the rest of the credit goes back.
    assert!(client.drain(&mut world, link, 9));
    let (_, _, bytes) = client.message().expect("the one that failed");
    let header = Scanned::scan(&bytes).expect("a message");
    let header = header.header().expect("valid").expect("a header");
    assert_eq!(header.delivery_count, 1);
    // The end of the link is the end of the subscription.
    let before = world.shards[0].census();
    client.detach(&mut world, link, true);
    let census = world.shards[0].census();
    assert_eq!((before.sessions, census.sessions), (1, 0));
    assert_eq!(census.miscounted_bytes, 0);
    assert_eq!(world.shards[1].census().subscriptions, 1, "the one of MQTT");
}

#[cfg(feature = "mqtt")]
#[test]
fn a_drain_is_answered_when_the_credit_is_used_up() {
    let mut world = World::new(1, OPEN);
    world.mqtt(conn(0, 1), 0);
    let (mut client, link) = Client::receiving(&mut world, conn(0, 2), "t/a", 0);
    for id in 1..=2 {
        world.bytes(conn(0, 1), &publish(id, b"x"));
    }
    // One of two, and then none: neither waits for the message that is left.
    for credit in [1, 0] {
        assert!(client.drain(&mut world, link, credit), "{credit}");
        assert_eq!(client.message().is_some(), credit == 1);
        client.events.clear();
    }
}

#[test]
fn exactly_once_is_settled_by_the_sender_last() {
    let mut world = World::new(1, OPEN);
    let mut from = Client::new(&mut world, conn(0, 1), None);
    let mut to = Client::new(&mut world, conn(0, 2), None);
    let second = Attach {
        rcv_settle_mode: ReceiverSettleMode::Second,
        ..receiver("t/a")
    };
    to.take(&mut world, &second, 5);
    let sender = from.sender(&mut world, Some("t/a"));
    let symbol = Value::Symbol(Symbol::from_static("x-opt-mqtt-qos"));
    let entries = [(symbol, Value::Ubyte(2))];
    let mut bytes = Vec::new();
    let annotations = Value::Map(Map::new(&entries));
    let written = Section::MessageAnnotations.encode(&annotations, &mut bytes);
    written.expect("a vector");
    bytes.extend_from_slice(&message(false, b"x"));
    from.send(&mut world, sender, false, bytes);
    to.exchange(&mut world);
    let (delivery, settled, _) = to.message().expect("a message");
    assert!(!settled);
    to.engine
        .update(delivery, &DeliveryState::ACCEPTED)
        .expect("open");
    to.exchange(&mut world);
    let answered = to.events.drain(..).any(|event| {
        matches!(event, Event::Disposition { delivery: d, settled: true, .. } if d == delivery)
    });
    assert!(answered, "the sender settles");
    assert_eq!(world.shards[0].census().in_flight, 0);
}

#[test]
fn between_amqp_clients_the_bare_message_is_untouched() {
    let mut world = World::new(1, OPEN);
    let mut from = Client::new(&mut world, conn(0, 1), None);
    let (mut to, _) = Client::receiving(&mut world, conn(0, 2), "/topics/t/#", 5);
    // The anonymous relay: `to` says the topic.
    let link = from.sender(&mut world, None);
    let mut bare = Vec::new();
    let properties = Properties {
        to: Some("t/a"),
        subject: Some("s"),
        ..Properties::default()
    };
    properties.encode(&mut bare).expect("a vector");
    let entries = [(Value::String("n"), Value::Int(-3))];
    let application = Value::Map(Map::new(&entries));
    let written = Section::ApplicationProperties.encode(&application, &mut bare);
    written.expect("a vector");
    bare.extend_from_slice(&message(false, b"one"));
    bare.extend_from_slice(&message(false, b"two"));
    from.send(&mut world, link, false, bare.clone());
    assert!(from.outcome().is_some_and(|(_, state)| is_accepted(&state)));
    to.exchange(&mut world);
    let (_, settled, bytes) = to.message().expect("a message");
    assert!(!settled, "not durable, and answered all the same");
    let scanned = Scanned::scan(&bytes).expect("a message");
    assert_eq!(scanned.bare_and_footer(), &bare[..]);
}

#[test]
fn a_connection_that_is_refused_does_not_begin_again_as_amqp() {
    let mut world = World::new(1, OPEN);
    world.shards[0] = Shard::new(
        Config {
            clients: ClientLimits {
                connections_max: 1,
                ..ClientLimits::default()
            },
            listeners: alloc::vec![OPEN],
            sys: SysTopics::quiet(),
            ..Config::default()
        },
        NOW,
    );
    let (first, late) = (conn(0, 1), conn(0, 2));
    world.open(first, "");
    world.open(late, "");
    assert_eq!(world.closed, [late]);
    let header = b"AMQP\x00\x01\x00\x00";
    world.bytes(late, header);
    assert!(world.take_sent(late).is_empty(), "it was refused");
    world.bytes(first, header);
    assert_eq!(world.take_sent(first), header);
    assert_eq!(world.closed, [late], "the other was let in");
}

#[test]
fn links_are_refused_with_their_condition() {
    let mut world = World::new(1, OPEN);
    let mut client = Client::new(&mut world, conn(0, 1), None);
    for (address, condition) in [
        (Some("/queues/"), "amqp:invalid-field"),
        (Some("a/#"), "amqp:invalid-field"),
        (Some("$SYS/x"), "amqp:unauthorized-access"),
    ] {
        client.sender(&mut world, address);
        assert_eq!(client.refusal().as_deref(), Some(condition), "{address:?}");
    }
    // The anonymous relay refuses a message, not its link.
    let link = client.sender(&mut world, None);
    client.send(&mut world, link, false, message(false, b"x"));
    let (_, state) = client.outcome().expect("an outcome");
    let state = state.get();
    let DeliveryState::Outcome(Outcome::Rejected(rejected)) = state else {
        panic!("{state:?}");
    };
    let condition = rejected.error.map(|error| error.condition);
    assert_eq!(condition, Some(dunlin_amqp::codec::condition::NOT_FOUND));
    assert_eq!(world.shards[0].census().sessions, 1);
}

#[test]
fn sasl_decides_who_may_open() {
    let closed = AuthPolicy {
        anonymous: Anonymous::Never,
        passwords: true,
        certificates: false,
        tokens: false,
        ..AuthPolicy::default()
    };
    let init = |mechanism, response| SaslInit {
        mechanism: Symbol::from_static(mechanism),
        initial_response: Some(response),
        hostname: None,
    };
    let cases: [(Option<SaslInit<'_>>, bool); 5] = [
        (Some(init("PLAIN", b"\0ann\0secret")), true),
        (Some(init("PLAIN", b"\0ann\0wrong")), false),
        (Some(init("PLAIN", b"bob\0ann\0secret")), false),
        (Some(init("ANONYMOUS", b"")), false),
        (None, false),
    ];
    for (at, (sasl, opens)) in cases.into_iter().enumerate() {
        let mut world = World::new(1, closed);
        let mut client = Client::new(&mut world, conn(0, 1), sasl);
        let opened = client.events.iter().any(|e| matches!(e, Event::Opened(_)));
        let ended = |event| matches!(event, Event::Closed { error: Some(_), .. });
        let ended = client.events.drain(..).any(ended);
        // Without SASL the answer is an `open` and a `close` with an error.
        assert_eq!(opened && !ended, opens, "case {at}");
        assert_eq!(world.closed.is_empty(), opens, "case {at}");
    }
}

#[test]
fn settled_links_and_the_end_of_a_connection_leave_nothing() {
    let mut world = World::new(2, OPEN);
    let mut from = Client::new(&mut world, conn(1, 1), None);
    let mut to = Client::new(&mut world, conn(0, 2), None);
    let always = Attach {
        snd_settle_mode: SenderSettleMode::Settled,
        ..receiver("t/a")
    };
    to.take(&mut world, &always, 1);
    let sender = from.sender(&mut world, Some("t/a"));
    for _ in 0..3 {
        from.send(&mut world, sender, false, message(true, b"x"));
    }
    to.exchange(&mut world);
    let (_, settled, _) = to.message().expect("a message");
    assert!(settled && to.message().is_none());
    assert_eq!(world.shards[0].census().queued, 2);
    for (shard, conn) in [(0, to.conn), (1, from.conn)] {
        let cause = dunlin_base::transport::CloseCause::Local;
        let event = NetEvent::new(conn, NetEventKind::Closed { cause });
        world.input(shard, Input::Net(event));
        let census = world.shards[shard].census();
        assert_eq!((census.conns, census.sessions, census.queued), (0, 0, 0));
        assert_eq!((census.subscriptions, census.timers), (0, 0));
        assert_eq!((census.pending, census.miscounted_bytes), (0, 0));
    }
}
