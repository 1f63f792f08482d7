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
    AnyTarget, Attach, Coordinator, DeliveryState, Outcome, Properties, ReceiverSettleMode, Role,
    Section, SerialNumber, Source, Target, TransactionalState,
};
use dunlin_amqp::{Connection, Delivery, Demand, Event, LinkId, Sending, SessionId, State, Tag};
use dunlin_base::QoS;
use dunlin_sim::{Peer, PeerOptions, Random, ToClient, World};

use super::scene::{Client, Line, Scene, payload, publisher, queue, setup};
use super::seeds::{check_all, seeds};

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
    line: Line,
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
            line: Line::new(),
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

    fn attach(&mut self, session: SessionId) {
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
        self.controller = self.line.engine.attach(session, &controller).ok();
        self.relay = self.line.engine.attach(session, &relay).ok();
        self.take(3);
    }

    /// Attaches to the queue that it takes from.
    fn take(&mut self, credit: u32) {
        let mode = match self.settles {
            true => ReceiverSettleMode::First,
            false => ReceiverSettleMode::Second,
        };
        let session = self.session.expect("begun");
        let link = self.line.engine.attach(session, &receiver(IN, mode));
        let link = link.expect("no other has the name");
        let given = self.line.engine.set_credit(link, credit, false);
        given.expect("attached");
        self.source = Some(link);
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
            let _ = self.line.engine.set_credit(link, 3, false);
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
        let sent = self.line.engine.send(link, &sending, &[], &bytes);
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
                let sent = self
                    .line
                    .engine
                    .send(relay, &sending, &bytes, &Bytes::new());
                back |= sent.is_err();
            }
            let accepted = within(Some(Outcome::Accepted));
            let said = match self.settles {
                true => self.line.engine.settle(delivery, Some(&accepted)),
                false => self.line.engine.update(delivery, &accepted),
            };
            // Its link may have been closed meanwhile: it is not this one's to move.
            back |= said.is_err();
            self.moving.push((delivery, payload));
        }
        if world.random().one_in(8)
            && let Some(link) = self.source
        {
            let _ = self.line.engine.detach(link, true, None);
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

impl Client for Mover {
    type Shared = ();

    fn line(&self) -> &Line {
        &self.line
    }

    fn line_mut(&mut self) -> &mut Line {
        &mut self.line
    }

    fn connect(&mut self, world: &mut World) {
        let session = self.line.open(world, None);
        self.session = Some(session);
        self.stage = Stage::Idle;
        self.taken.clear();
        self.moving.clear();
        self.attach(session);
        self.line.flush(world);
    }

    fn handle(&mut self, world: &mut World, event: ToClient, (): &mut ()) {
        match event {
            ToClient::Bytes(_, data) => {
                for event in hear(&mut self.line.engine, world, &data) {
                    self.note(world, event);
                }
                self.go_on();
                self.line.flush(world);
            }
            ToClient::Closed(_) => self.connect(world),
            _ => {}
        }
    }
}

/// What a client of AMQP acts upon.
enum Heard {
    Message(Delivery, String),
    State(Delivery, State),
    Detached(LinkId),
}

fn hear(engine: &mut Connection, world: &World, mut data: &[u8]) -> Vec<Heard> {
    let mut events = Vec::new();
    while let Some(event) = engine.poll_event(world.now(), &mut data) {
        events.extend(heard(event));
    }
    events
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

/// How often each message has come out of the queue at the end.
fn collect(scene: &mut Scene<Mover>) -> BTreeMap<String, usize> {
    let world = &mut scene.world;
    for mover in core::mem::take(&mut scene.clients) {
        mover.line.cut(world);
    }
    let mut line = Line::new();
    let session = line.open(world, None);
    let attach = receiver(OUT, ReceiverSettleMode::First);
    let link = line.engine.attach(session, &attach).expect("attach");
    line.engine.set_credit(link, 1000, false).expect("attached");
    line.flush(world);
    let mut counts = BTreeMap::new();
    let until = world.now() + Duration::from_secs(3);
    while let Some((at, event)) = world.next(until) {
        let ToClient::Bytes(_, data) = event else {
            continue;
        };
        if Some(at) != line.conn {
            continue;
        }
        for event in hear(&mut line.engine, world, &data) {
            if let Heard::Message(delivery, payload) = event {
                *counts.entry(payload).or_default() += 1;
                let accepted = line.engine.settle(delivery, Some(&DeliveryState::ACCEPTED));
                accepted.expect("open");
            }
        }
        line.flush(world);
    }
    counts
}

fn program(seed: u64) -> Result<(), String> {
    let mut random = Random::new(seed);
    let mut setup = setup(seed, &mut random);
    setup.config.queues.named = vec![queue("in", &["jobs/#"])];
    // Else the first transaction makes it.
    let is_there = random.one_in(2);
    let out = is_there.then(|| queue("out", &[]));
    setup.config.queues.named.extend(out);
    let to = PeerOptions {
        receive_maximum: 5,
        ..PeerOptions::new("to", &[("log/#", QoS::ExactlyOnce)])
    };
    let mut scene = Scene {
        world: World::new(setup),
        peers: vec![publisher("from"), Peer::new(to)],
        clients: [true, false, true].map(Mover::new).into(),
        shared: (),
    };
    scene.begin();
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
                let mover = &mut scene.clients[random.below(3) as usize];
                mover.line.cut(world);
                mover.connect(world);
            }
            _ => world.crash(),
        }
        scene.run(Duration::from_micros(random.between(100, 20_000)));
    }
    scene.run(Duration::from_secs(90));
    check(&mut scene)
}

fn check(scene: &mut Scene<Mover>) -> Result<(), String> {
    let commits: usize = scene.clients.iter().map(|it| it.commits).sum();
    let out = collect(scene);
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
    check_all(seeds("TRANSACTION_SEEDS", 0..60), program);
}
