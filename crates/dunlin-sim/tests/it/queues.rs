//! One queue of both protocols, through lost connections and crashes: publishers of
//! MQTT and a sender of AMQP, consumers that settle first and second. What was
//! acknowledged is consumed, and what a consumer has seen settled never comes again.
//!
//! `QUEUE_SEEDS=0..1000` in the environment runs that many.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use dunlin_amqp::codec::{
    AnyTarget, Attach, DeliveryState, Outcome, ReceiverSettleMode, Role, SerialNumber, Source,
    Target,
};
use dunlin_amqp::{Delivery, Event, LinkId, Sending, SessionId, State, Tag};
use dunlin_base::QoS;
use dunlin_sim::{Random, ToClient, World, crash_edge, is_up, join_edge};

use super::scene::{Client, Line, Scene, message, payload, publisher, setup};
use super::seeds::{check_all, seeds};

const ADDRESS: &str = "/queues/jobs";

/// What an AMQP client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Send,
    /// It settles at once.
    First,
    /// The broker settles, then it does.
    Second,
}

/// A client of AMQP with one link.
struct Worker {
    work: Work,
    line: Line,
    link: Option<LinkId>,
    /// What it has to send, until it is accepted.
    open: Vec<String>,
    /// Payloads by tag or delivery, of this connection.
    under_way: BTreeMap<u64, String>,
    accepting: BTreeMap<Delivery, String>,
    tag: u64,
    accepted: BTreeSet<String>,
    rejected: usize,
}

/// What consumers have seen.
#[derive(Default)]
struct Seen {
    consumed: BTreeSet<String>,
    settled: BTreeSet<String>,
    doubled: Vec<String>,
}

impl Worker {
    fn new(work: Work) -> Self {
        Self {
            work,
            line: Line::new(),
            link: None,
            open: Vec::new(),
            under_way: BTreeMap::new(),
            accepting: BTreeMap::new(),
            tag: 0,
            accepted: BTreeSet::new(),
            rejected: 0,
        }
    }

    fn attach(&mut self, session: SessionId) {
        let attach = match self.work {
            Work::Send => Attach {
                name: "sender",
                role: Role::Sender,
                source: Some(Source::default()),
                target: Some(AnyTarget::Target(Target {
                    address: Some(ADDRESS),
                    ..Target::default()
                })),
                initial_delivery_count: Some(SerialNumber(0)),
                ..Attach::default()
            },
            Work::First | Work::Second => Attach {
                name: "receiver",
                role: Role::Receiver,
                rcv_settle_mode: match self.work {
                    Work::Second => ReceiverSettleMode::Second,
                    _ => ReceiverSettleMode::First,
                },
                source: Some(Source {
                    address: Some(ADDRESS),
                    ..Source::default()
                }),
                target: Some(AnyTarget::Target(Target::default())),
                ..Attach::default()
            },
        };
        let link = self.line.engine.attach(session, &attach).expect("attach");
        self.link = Some(link);
        if self.work != Work::Send {
            self.line.engine.set_credit(link, 4, false).expect("credit");
        }
    }

    /// Sends what is not accepted and not under way.
    fn send_open(&mut self) {
        let Some(link) = self.link.filter(|_| self.work == Work::Send) else {
            return;
        };
        for payload in &self.open {
            if self.under_way.values().any(|it| it == payload) || self.line.engine.credit(link) == 0
            {
                continue;
            }
            self.tag += 1;
            let bytes = message(payload);
            let sending = Sending::new(Tag::from(self.tag), false);
            if self
                .line
                .engine
                .send(link, &sending, &bytes, &Bytes::new())
                .is_ok()
            {
                self.under_way.insert(self.tag, payload.clone());
            }
        }
    }

    fn note(
        &mut self,
        delivery: Delivery,
        tag: Tag,
        state: Option<&State>,
        settled: bool,
        seen: &mut Seen,
    ) {
        let sent = tag.number().and_then(|tag| self.under_way.remove(&tag));
        let state = state.map(State::get);
        if let Some(payload) = sent {
            if matches!(state, Some(DeliveryState::Outcome(Outcome::Accepted))) {
                self.open.retain(|open| *open != payload);
                self.accepted.insert(payload);
            } else {
                self.rejected += 1;
            }
            if !settled {
                self.line.engine.settle(delivery, None).expect("open");
            }
        } else if settled && let Some(payload) = self.accepting.remove(&delivery) {
            seen.settled.insert(payload);
        }
    }

    fn take(&mut self, world: &mut World, delivery: Delivery, payload: String, seen: &mut Seen) {
        // Others may be sent twice.
        if payload.starts_with('x') && seen.settled.contains(&payload) {
            seen.doubled.push(payload.clone());
        }
        if world.random().one_in(6) {
            let released = self
                .line
                .engine
                .settle(delivery, Some(&DeliveryState::RELEASED));
            released.expect("open");
        } else if self.work == Work::First {
            let accepted = self
                .line
                .engine
                .settle(delivery, Some(&DeliveryState::ACCEPTED));
            accepted.expect("open");
            seen.consumed.insert(payload);
        } else {
            let accepted = self.line.engine.update(delivery, &DeliveryState::ACCEPTED);
            accepted.expect("open");
            seen.consumed.insert(payload.clone());
            self.accepting.insert(delivery, payload);
        }
        if let Some(link) = self.link {
            self.line.engine.set_credit(link, 4, false).expect("credit");
        }
    }
}

impl Client for Worker {
    type Shared = Seen;

    fn line(&self) -> &Line {
        &self.line
    }

    fn line_mut(&mut self) -> &mut Line {
        &mut self.line
    }

    fn connect(&mut self, world: &mut World) {
        let session = self.line.open(world, None);
        self.under_way.clear();
        self.accepting.clear();
        self.attach(session);
        self.line.flush(world);
    }

    fn handle(&mut self, world: &mut World, event: ToClient, seen: &mut Seen) {
        match event {
            ToClient::Bytes(_, data) => {
                let mut data = &data[..];
                let mut events = Vec::new();
                while let Some(event) = self.line.engine.poll_event(world.now(), &mut data) {
                    match event {
                        Event::Message(message) => {
                            let (delivery, bytes) =
                                (message.delivery, message.payload.into_bytes());
                            events.push((delivery, payload(&bytes)));
                        }
                        Event::Disposition {
                            delivery,
                            tag,
                            state,
                            settled,
                        } => self.note(delivery, tag, state.as_ref(), settled, seen),
                        _ => {}
                    }
                }
                for (delivery, payload) in events {
                    self.take(world, delivery, payload, seen);
                }
                self.send_open();
                self.line.flush(world);
            }
            ToClient::Closed(_) => self.connect(world),
            _ => {}
        }
    }
}

fn program(seed: u64, edges: u16) -> Result<(), String> {
    let mut random = Random::new(seed);
    let mut setup = setup(seed, &mut random);
    setup.edges = edges;
    let mut scene = Scene {
        world: World::new(setup),
        peers: vec![publisher("twice"), publisher("once")],
        clients: [Work::Send, Work::First, Work::Second, Work::Second]
            .map(Worker::new)
            .into(),
        shared: Seen::default(),
    };
    scene.run(Duration::from_millis(100));
    scene.begin();
    for number in 0..60 {
        let world = &mut scene.world;
        match random.below(9) {
            0..=2 => {
                scene.peers[0].publish(world, "jobs/x", format!("x{number}"), QoS::ExactlyOnce);
            }
            3 => scene.peers[1].publish(world, "jobs/y", format!("y{number}"), QoS::AtLeastOnce),
            4 | 5 => {
                let sender = &mut scene.clients[0];
                sender.open.push(format!("z{number}"));
                sender.send_open();
                sender.line.flush(world);
            }
            6 => {
                let at = random.below(2) as usize;
                scene.peers[at].cut(world);
                scene.peers[at].connect(world);
            }
            7 => {
                let client = &mut scene.clients[random.below(4) as usize];
                client.line.cut(world);
                client.connect(world);
            }
            _ if random.below(2) < u64::from(edges) => crash_edge(world, random.below(2) as usize),
            _ => world.crash(),
        }
        if edges > 0 && random.one_in(3) {
            revive(&mut scene.world);
        }
        scene.run(Duration::from_micros(random.between(100, 20_000)));
    }
    if edges > 0 {
        revive(&mut scene.world);
    }
    scene.run(Duration::from_secs(90));
    check(&scene)
}

/// Has edges come back that have died.
fn revive(world: &mut World) {
    for edge in 0..2 {
        if !is_up(world, edge) {
            join_edge(world, edge);
        }
    }
}

fn check(scene: &Scene<Worker>) -> Result<(), String> {
    let Scene {
        world,
        peers,
        clients,
        shared: seen,
    } = scene;
    if !seen.doubled.is_empty() {
        return Err(format!("settled, and came again: {:?}", seen.doubled));
    }
    let published = peers.iter().flat_map(|peer| &peer.acknowledged);
    let published = published.map(|message| &message.payload);
    for payload in published.chain(&clients[0].accepted) {
        if !seen.consumed.contains(payload) {
            return Err(format!("{payload} was acknowledged and is lost"));
        }
    }
    if seen.settled.is_empty() || clients[0].accepted.is_empty() {
        return Err("nothing was settled".into());
    }
    let census = world.census();
    let left = (
        census.queued,
        census.in_flight,
        world.disk.stored_messages(),
    );
    if left != (0, 0, 0) || census.miscounted_bytes > 0 {
        return Err(format!("left behind: {left:?} in {census:?}"));
    }
    Ok(())
}

/// Senders on both shards fill a queue that has room for few messages, and stay.
fn filling(seed: u64) -> Result<(), String> {
    let mut random = Random::new(seed);
    let mut setup = setup(seed, &mut random);
    setup.config.queues.named[0].options.messages_max = random.between(1, 8) as usize;
    let work = [
        Work::Send,
        Work::Send,
        Work::Send,
        Work::Second,
        Work::First,
    ];
    let mut scene = Scene {
        world: World::new(setup),
        peers: Vec::new(),
        clients: work.map(Worker::new).into(),
        shared: Seen::default(),
    };
    for client in &mut scene.clients {
        client.connect(&mut scene.world);
    }
    let mut sent = 0;
    for number in 0..60 {
        let world = &mut scene.world;
        let client = &mut scene.clients[random.below(5) as usize];
        match random.below(12) {
            0 => {
                client.line.cut(world);
                client.connect(world);
            }
            1 => world.crash(),
            _ if client.work == Work::Send => {
                for part in 0..random.between(1, 6) {
                    client.open.push(format!("z{number}-{part}"));
                    sent += 1;
                }
                client.send_open();
                client.line.flush(world);
            }
            _ => {}
        }
        scene.run(Duration::from_micros(random.between(100, 20_000)));
    }
    scene.run(Duration::from_secs(90));
    check(&scene)?;
    let senders = scene.clients.iter().filter(|it| it.work == Work::Send);
    let (mut accepted, mut rejected) = (0, 0);
    for sender in senders {
        accepted += sender.accepted.len();
        rejected += sender.rejected;
    }
    match (accepted, rejected) == (sent, 0) {
        true => Ok(()),
        false => Err(format!(
            "{accepted} of {sent} accepted, {rejected} rejected"
        )),
    }
}

fn run(program: impl Fn(u64) -> Result<(), String>) {
    check_all(seeds("QUEUE_SEEDS", 0..60), program);
}

#[test]
fn what_is_acknowledged_is_consumed_and_what_is_settled_stays_so() {
    run(|seed| program(seed, 0));
}

#[test]
fn what_is_acknowledged_is_consumed_when_edges_die() {
    run(|seed| program(seed, 2));
}

#[test]
fn senders_wait_for_room_and_are_not_refused() {
    run(filling);
}
