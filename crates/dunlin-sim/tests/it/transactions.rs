//! What is taken from a queue and put into others in one transaction, through lost
//! connections, crashes, rollbacks and links that are closed before the commit:
//! publishers and a subscriber of MQTT at the ends, movers of AMQP between them.
//! Every message that was acknowledged comes out once, at each end.
//!
//! `TRANSACTION_SEEDS=0..1000` in the environment runs that many.

use core::time::Duration;
use std::collections::BTreeMap;

use bytes::Bytes;
use dunlin_amqp::codec::{
    AnyTarget, Attach, Begin, Coordinator, DeliveryState, Open, Outcome, Properties,
    ReceiverSettleMode, Role, Section, SerialNumber, Source, Symbols, Target, TransactionalState,
};
use dunlin_amqp::{
    Connection, Delivery, Demand, Event, Limits, LinkId, SaslPolicy, Sending, SessionId, Settings,
    Side, State, Tag,
};
use dunlin_base::transport::Transport;
use dunlin_base::{ConnId, Instant, QoS, SendBuf, StreamId, Text};
use dunlin_broker::NamedQueue;
use dunlin_mqtt_codec::Version;
use dunlin_sim::{Peer, PeerOptions, Random, Setup, ToClient, World};

const IN: &str = "/queues/in";
const OUT: &str = "/queues/out";

/// Where a mover stands.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// It has no transaction.
    Idle,
    /// It waits for one.
    Declaring,
    /// It waits for the end of one; whether that is to be a rollback.
    Ending(bool),
}

/// Takes from `IN` and puts into `OUT` and to a topic, in transactions.
struct Mover {
    /// It settles what it takes before the commit.
    settles: bool,
    conn: Option<ConnId>,
    engine: Connection,
    session: Option<SessionId>,
    controller: Option<LinkId>,
    source: Option<LinkId>,
    relay: Option<LinkId>,
    stage: Stage,
    /// What it has taken and not moved.
    taken: Vec<(Delivery, String)>,
    /// What is part of the transaction.
    moving: Vec<(Delivery, String)>,
    tag: u64,
    commits: usize,
}

impl Mover {
    fn new(settles: bool) -> Self {
        Self {
            settles,
            conn: None,
            engine: engine(Instant::from_micros(1), None),
            session: None,
            controller: None,
            source: None,
            relay: None,
            stage: Stage::Idle,
            taken: Vec::new(),
            moving: Vec::new(),
            tag: 0,
            commits: 0,
        }
    }

    fn connect(&mut self, world: &mut World) {
        let now = world.now();
        self.conn = Some(world.open());
        self.engine = engine(now, self.conn);
        self.stage = Stage::Idle;
        self.taken.clear();
        self.moving.clear();
        self.engine.open(now, &Open::default()).expect("open");
        let session = self.engine.begin(&Begin::default()).expect("begin");
        self.session = Some(session);
        let sender = Attach {
            role: Role::Sender,
            source: Some(Source::default()),
            initial_delivery_count: Some(SerialNumber(0)),
            ..Attach::default()
        };
        let controller = Attach {
            name: "controller",
            target: Some(AnyTarget::Coordinator(Coordinator::default())),
            ..sender
        };
        let relay = Attach {
            name: "relay",
            target: Some(AnyTarget::Target(Target::default())),
            ..sender
        };
        self.controller = self.engine.attach(session, &controller).ok();
        self.relay = self.engine.attach(session, &relay).ok();
        self.take(3);
        self.flush(world);
    }

    /// Attaches to the queue that it takes from.
    fn take(&mut self, credit: u32) {
        let mode = match self.settles {
            true => ReceiverSettleMode::First,
            false => ReceiverSettleMode::Second,
        };
        let session = self.session.expect("begun");
        let link = self.engine.attach(session, &receiver(IN, mode));
        let link = link.expect("no other has the name");
        let given = self.engine.set_credit(link, credit, false);
        given.expect("attached");
        self.source = Some(link);
    }

    fn flush(&mut self, world: &mut World) {
        if let Some(conn) = self.conn {
            flush(&mut self.engine, world, conn);
        }
    }

    fn handle(&mut self, world: &mut World, event: ToClient) {
        match event {
            ToClient::Bytes(_, data) => {
                let mut data = &data[..];
                let mut events = Vec::new();
                while let Some(event) = self.engine.poll_event(world.now(), &mut data) {
                    events.extend(heard(event));
                }
                for event in events {
                    self.note(world, event);
                }
                self.go_on();
                self.flush(world);
            }
            ToClient::Closed(_) => self.connect(world),
            _ => {}
        }
    }

    fn note(&mut self, world: &mut World, event: Heard) {
        match event {
            Heard::Message(delivery, payload) => self.taken.push((delivery, payload)),
            Heard::State(delivery, state) if Some(delivery.link) == self.controller => {
                match (state.get(), &self.stage) {
                    (DeliveryState::Outcome(Outcome::Declared(declared)), _) => {
                        self.move_all(world, declared.txn_id);
                    }
                    (outcome, Stage::Ending(back)) => {
                        let accepted = outcome == DeliveryState::ACCEPTED;
                        self.commits += usize::from(accepted && !back);
                        // What it has not settled is still its own.
                        let moving = core::mem::take(&mut self.moving);
                        if *back && !self.settles {
                            self.taken.extend(moving);
                        }
                        self.stage = Stage::Idle;
                    }
                    other => panic!("{other:?}"),
                }
            }
            Heard::State(..) => {}
            // It was closed before the commit.
            Heard::Detached(link) if Some(link) == self.source => self.take(3),
            Heard::Detached(_) => {}
        }
    }

    /// Declares a transaction for what was taken.
    fn go_on(&mut self) {
        if let Some(link) = self.source {
            // One that is being closed takes none.
            let _ = self.engine.set_credit(link, 3, false);
        }
        if self.stage == Stage::Idle && !self.taken.is_empty() {
            self.demand(&Demand::Declare { global_id: None });
            self.stage = Stage::Declaring;
        }
    }

    fn demand(&mut self, demand: &Demand) {
        let bytes = demand.encode().expect("small");
        self.tag += 1;
        let sending = Sending::new(Tag::from(self.tag), false);
        let link = self.controller.expect("attached");
        let sent = self.engine.send(link, &sending, &[], &bytes);
        sent.expect("credit for a demand");
    }

    fn move_all(&mut self, world: &mut World, txn_id: &[u8]) {
        let mut back = world.random().one_in(5);
        let relay = self.relay.expect("attached");
        for (delivery, payload) in core::mem::take(&mut self.taken) {
            let within =
                |outcome| DeliveryState::Transactional(TransactionalState { txn_id, outcome });
            for to in [OUT, "log/moved"] {
                self.tag += 1;
                let sending = Sending {
                    state: Some(within(None)),
                    ..Sending::new(Tag::from(self.tag), false)
                };
                let bytes = addressed(to, &payload);
                let sent = self.engine.send(relay, &sending, &bytes, &Bytes::new());
                back |= sent.is_err();
            }
            let accepted = within(Some(Outcome::Accepted));
            let said = match self.settles {
                true => self.engine.settle(delivery, Some(&accepted)),
                false => self.engine.update(delivery, &accepted),
            };
            // Its link may have been closed meanwhile: it is not this one's to move.
            back |= said.is_err();
            self.moving.push((delivery, payload));
        }
        if world.random().one_in(8)
            && let Some(link) = self.source
        {
            let _ = self.engine.detach(link, true, None);
            // What it took and has not settled is not its own any more.
            self.taken.clear();
            if !self.settles {
                self.moving.clear();
            }
        }
        let txn_id = Bytes::copy_from_slice(txn_id);
        self.demand(&Demand::Discharge { txn_id, fail: back });
        self.stage = Stage::Ending(back);
    }
}

/// What a client of AMQP acts upon.
enum Heard {
    Message(Delivery, String),
    State(Delivery, State),
    Detached(LinkId),
}

fn heard(event: Event<'_>) -> Option<Heard> {
    match event {
        Event::Message(message) => {
            let bytes = message.payload.into_bytes();
            Some(Heard::Message(message.delivery, payload(&bytes)))
        }
        Event::Disposition {
            delivery,
            state: Some(state),
            ..
        } => Some(Heard::State(delivery, state)),
        Event::Detached { link, .. } => Some(Heard::Detached(link)),
        _ => None,
    }
}

fn receiver(address: &str, mode: ReceiverSettleMode) -> Attach<'_> {
    Attach {
        name: "taker",
        role: Role::Receiver,
        rcv_settle_mode: mode,
        source: Some(Source {
            address: Some(address),
            ..Source::default()
        }),
        target: Some(AnyTarget::Target(Target::default())),
        ..Attach::default()
    }
}

/// Each connection is a container of its own, so that none takes links from another.
fn engine(now: Instant, conn: Option<ConnId>) -> Connection {
    let container = format!("{conn:?}");
    let settings = Settings {
        side: Side::Client,
        container_id: &container,
        sasl: SaslPolicy::Off,
        mechanisms: Symbols::default(),
        limits: Limits::default(),
    };
    Connection::new(now, &settings)
}

fn flush(engine: &mut Connection, world: &mut World, conn: ConnId) {
    let mut out = SendBuf::new();
    engine.poll_output(world.now(), &mut out);
    let out: Vec<u8> = out.slices().flatten().copied().collect();
    if !out.is_empty() {
        world.send(conn, StreamId::CONTROL, &out);
    }
}

/// A durable message that says where it goes, and that it has QoS 2 there.
fn addressed(to: &str, payload: &str) -> Vec<u8> {
    let mut bytes = vec![0x00, 0x53, 0x70, 0xc0, 2, 1, 0x41];
    // One annotation: a symbol and a byte.
    bytes.extend_from_slice(&[0x00, 0x53, 0x72, 0xc1, 19, 2, 0xa3, 14]);
    bytes.extend_from_slice(b"x-opt-mqtt-qos\x50\x02");
    let properties = Properties {
        to: Some(to),
        ..Properties::default()
    };
    properties.encode(&mut bytes).expect("small");
    Section::encode_data_start(payload.len(), &mut bytes).expect("small");
    bytes.extend_from_slice(payload.as_bytes());
    bytes
}

/// The payload: one data section of less than 256 bytes ends the message.
fn payload(bytes: &Bytes) -> String {
    let at = bytes.windows(3).rposition(|it| it == [0x00, 0x53, 0x75]);
    let data = &bytes[at.expect("a data section") + 5..];
    String::from_utf8(data.to_vec()).expect("text")
}

struct Scene {
    world: World,
    peers: Vec<Peer>,
    movers: Vec<Mover>,
}

impl Scene {
    fn run(&mut self, time: Duration) {
        let until = self.world.now() + time;
        loop {
            let peers = self.peers.iter().filter_map(Peer::poll_timeout);
            let movers = self.movers.iter().filter_map(|it| it.engine.deadline());
            let limit = peers.chain(movers).fold(until, |a, b| a.min(b));
            if let Some((conn, event)) = self.world.next(limit) {
                self.happen(conn, event);
                continue;
            }
            let now = self.world.now();
            if now >= until {
                return;
            }
            for peer in &mut self.peers {
                if peer.poll_timeout().is_some_and(|at| at <= now) {
                    peer.handle_timeout(&mut self.world);
                }
            }
            for mover in &mut self.movers {
                if mover.engine.deadline().is_some_and(|at| at <= now) {
                    mover.engine.on_deadline(now);
                    mover.flush(&mut self.world);
                }
            }
        }
    }

    fn happen(&mut self, conn: ConnId, event: ToClient) {
        let world = &mut self.world;
        if let Some(peer) = self.peers.iter_mut().find(|it| it.conn() == Some(conn)) {
            peer.handle(world, event);
            if peer.conn().is_none() {
                peer.connect(world);
            }
        } else if let Some(mover) = self.movers.iter_mut().find(|it| it.conn == Some(conn)) {
            mover.handle(world, event);
        }
    }

    /// How often each message has come out of the queue at the end.
    fn collect(&mut self) -> BTreeMap<String, usize> {
        for mover in core::mem::take(&mut self.movers) {
            self.world.cut(mover.conn.expect("connected"));
        }
        let now = self.world.now();
        let conn = self.world.open();
        let mut engine = engine(now, Some(conn));
        engine.open(now, &Open::default()).expect("open");
        let session = engine.begin(&Begin::default()).expect("begin");
        let attach = receiver(OUT, ReceiverSettleMode::First);
        let link = engine.attach(session, &attach).expect("attach");
        engine.set_credit(link, 1000, false).expect("attached");
        flush(&mut engine, &mut self.world, conn);
        let mut counts = BTreeMap::new();
        let until = now + Duration::from_secs(3);
        while let Some((at, event)) = self.world.next(until) {
            let ToClient::Bytes(_, data) = event else {
                continue;
            };
            if at != conn {
                continue;
            }
            let mut data = &data[..];
            let mut events = Vec::new();
            while let Some(event) = engine.poll_event(self.world.now(), &mut data) {
                events.extend(heard(event));
            }
            for event in events {
                if let Heard::Message(delivery, payload) = event {
                    *counts.entry(payload).or_default() += 1;
                    let accepted = engine.settle(delivery, Some(&DeliveryState::ACCEPTED));
                    accepted.expect("open");
                }
            }
            flush(&mut engine, &mut self.world, conn);
        }
        counts
    }
}

fn peer(client_id: &str, filters: Vec<(String, QoS)>) -> Peer {
    Peer::new(PeerOptions {
        client_id: client_id.into(),
        version: Version::V5,
        expiry_secs: 1000,
        filters,
        receive_maximum: 5,
    })
}

fn program(seed: u64) -> Result<(), String> {
    let mut random = Random::new(seed);
    let mut setup = Setup::new(2, seed);
    setup.protocol = Some("");
    setup.transport = Transport::Tcp;
    setup.pace.stores_apart = random.one_in(2);
    setup.config.sessions.queue_held_max = 3;
    let queue = |name, topics: &[&'static str]| NamedQueue {
        name: Text::from_static(name),
        topics: topics.iter().map(|it| Text::from_static(it)).collect(),
        ..NamedQueue::default()
    };
    setup.config.queues.named = vec![queue("in", &["jobs/#"])];
    // Else the first transaction makes it.
    let is_there = random.one_in(2);
    let out = is_there.then(|| queue("out", &[]));
    setup.config.queues.named.extend(out);
    let log = vec![("log/#".to_owned(), QoS::ExactlyOnce)];
    let mut scene = Scene {
        world: World::new(setup),
        peers: vec![peer("from", Vec::new()), peer("to", log)],
        movers: [true, false, true].map(Mover::new).into(),
    };
    for peer in &mut scene.peers {
        peer.connect(&mut scene.world);
    }
    for mover in &mut scene.movers {
        mover.connect(&mut scene.world);
    }
    scene.run(Duration::from_secs(1));
    for number in 0..60 {
        let world = &mut scene.world;
        match random.below(9) {
            0..=4 => {
                let payload = format!("m{number}");
                scene.peers[0].publish(world, "jobs/x", payload, QoS::ExactlyOnce);
            }
            5 => {
                let at = random.below(2) as usize;
                scene.peers[at].cut(world);
                scene.peers[at].connect(world);
            }
            6 | 7 => {
                let mover = &mut scene.movers[random.below(3) as usize];
                if let Some(conn) = mover.conn {
                    world.cut(conn);
                }
                mover.connect(world);
            }
            _ => world.crash(),
        }
        scene.run(Duration::from_micros(random.between(100, 20_000)));
    }
    scene.run(Duration::from_secs(90));
    check(&mut scene)
}

fn check(scene: &mut Scene) -> Result<(), String> {
    let commits: usize = scene.movers.iter().map(|it| it.commits).sum();
    let out = scene.collect();
    let mut log: BTreeMap<String, usize> = BTreeMap::new();
    for event in &scene.peers[1].received {
        *log.entry(event.payload.clone()).or_default() += 1;
    }
    for (end, counts) in [("queue", &out), ("subscriber", &log)] {
        for event in &scene.peers[0].acknowledged {
            let times = counts.get(&event.payload).copied().unwrap_or(0);
            if times != 1 {
                let other = (out.get(&event.payload), log.get(&event.payload));
                let payload = &event.payload;
                return Err(format!(
                    "{payload} came {times} times out of the {end}: {other:?}"
                ));
            }
        }
    }
    if out != log {
        return Err(format!(
            "one end has what the other has not: {out:?} {log:?}"
        ));
    }
    if commits == 0 {
        return Err("nothing was committed".into());
    }
    let (world, census) = (&scene.world, scene.world.census());
    let stored = world.disk.stored_messages();
    let left = (census.queued, census.in_flight, stored);
    if left != (0, 0, 0) || census.miscounted_bytes > 0 {
        return Err(format!("left behind: {left:?} in {census:?}"));
    }
    Ok(())
}

#[test]
fn what_is_moved_in_transactions_comes_out_once() {
    let given = std::env::var("TRANSACTION_SEEDS").unwrap_or_else(|_| "0..60".into());
    let (from, to) = given.split_once("..").expect("N..M");
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let broken: Vec<String> = (number(from)..number(to))
        .filter_map(|seed| Some(format!("seed {seed}: {}", program(seed).err()?)))
        .collect();
    assert!(broken.is_empty(), "{broken:#?}");
}
