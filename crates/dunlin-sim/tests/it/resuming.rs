//! Exactly once from end to end: links of AMQP that settle last and are resumed over lost
//! connections, connections that others of the same container take links from, and
//! crashes. Senders to a queue and to a topic, a publisher of MQTT; receivers of the
//! queue and of a durable subscription. What was accepted is consumed once by each side.
//!
//! `RESUME_SEEDS=0..1000` in the environment runs that many.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use dunlin_amqp::codec::{
    AnyTarget, Attach, DeliveryState, Received, ReceiverSettleMode, Role, SenderSettleMode,
    SerialNumber, Source, Target, TerminusDurability, TerminusExpiryPolicy, Unsettled,
};
use dunlin_amqp::{
    Body, Connection, Delivery, Event, LinkId, RemoteUnsettled, Resumption, Sending, SessionId,
    State, Tag,
};
use dunlin_base::QoS;
use dunlin_sim::{Random, ToClient, World};

use super::scene::{Client, Line, Scene, message, payload, publisher, setup};
use super::seeds::{check_all, seeds};

const QUEUE: &str = "/queues/jobs";

/// A message that a receiver has.
struct Held {
    payload: String,
    delivery: Option<Delivery>,
    said: Option<State>,
}

/// What a client does on its link.
enum Work {
    Send {
        /// Not sent.
        queue: VecDeque<String>,
        /// Without outcome, by tag.
        unsettled: BTreeMap<u64, String>,
        /// How those of an earlier attachment go on.
        again: VecDeque<(u64, Option<State>)>,
        tag: u64,
        accepted: Vec<String>,
    },
    Receive {
        held: BTreeMap<Tag, Held>,
        consumed: BTreeMap<String, usize>,
    },
}

/// A client of AMQP with one link, which it attaches again.
struct Resumer {
    container: &'static str,
    address: &'static str,
    durable: TerminusDurability,
    work: Work,
    line: Line,
    link: Option<LinkId>,
    is_attached: bool,
}

/// What a client acts upon.
enum Heard {
    Attached(Body),
    Message {
        delivery: Delivery,
        tag: Tag,
        payload: String,
        resume: bool,
        settled: bool,
    },
    State {
        delivery: Delivery,
        tag: Tag,
        state: Option<State>,
        settled: bool,
    },
    Credit,
    Detached,
}

impl Resumer {
    fn new(container: &'static str, address: &'static str, work: Work) -> Self {
        Self {
            container,
            address,
            durable: TerminusDurability::UnsettledState,
            work,
            line: Line::new(),
            link: None,
            is_attached: false,
        }
    }

    fn attach(&mut self, session: SessionId) {
        let (durable, expiry_policy) = (self.durable, TerminusExpiryPolicy::Never);
        let tags: Vec<(Tag, Option<DeliveryState<'_>>)> = match &self.work {
            Work::Send { unsettled, .. } => unsettled
                .keys()
                .map(|tag| (Tag::from(*tag), None))
                .collect(),
            Work::Receive { held, .. } => {
                let all = held.iter();
                all.map(|(tag, held)| (*tag, held.said.as_ref().map(State::get)))
                    .collect()
            }
        };
        let map: Vec<_> = tags.iter().map(|(tag, it)| (tag.as_bytes(), *it)).collect();
        let is_sender = matches!(self.work, Work::Send { .. });
        let attach = Attach {
            name: "link",
            role: if is_sender {
                Role::Sender
            } else {
                Role::Receiver
            },
            snd_settle_mode: SenderSettleMode::Unsettled,
            rcv_settle_mode: ReceiverSettleMode::Second,
            source: Some(match is_sender {
                true => Source::default(),
                false => Source {
                    address: Some(self.address),
                    durable,
                    expiry_policy,
                    ..Source::default()
                },
            }),
            target: Some(AnyTarget::Target(match is_sender {
                true => Target {
                    address: Some(self.address),
                    durable,
                    expiry_policy,
                    ..Target::default()
                },
                false => Target::default(),
            })),
            unsettled: (!map.is_empty()).then(|| Unsettled::new(&map)),
            initial_delivery_count: is_sender.then_some(SerialNumber(0)),
            ..Attach::default()
        };
        let link = self.line.engine.attach(session, &attach).expect("attach");
        self.link = Some(link);
        self.is_attached = false;
        match &mut self.work {
            Work::Send { again, .. } => again.clear(),
            Work::Receive { held, .. } => {
                for held in held.values_mut() {
                    held.delivery = None;
                }
                self.line.engine.set_credit(link, 4, false).expect("credit");
            }
        }
    }

    fn note(&mut self, world: &mut World, event: Heard) {
        match (&mut self.work, event) {
            (_, Heard::Credit) => {}
            (_, Heard::Detached) => self.connect(world),
            (work, Heard::Attached(body)) => {
                attached(work, &body);
                self.is_attached = true;
            }
            (
                Work::Receive { held, .. },
                Heard::Message {
                    delivery,
                    tag,
                    payload,
                    resume,
                    settled,
                },
            ) => {
                if settled {
                    held.remove(&tag);
                } else if let Some(known) = held.get_mut(&tag) {
                    assert!(resume && known.payload == payload, "{payload} is another");
                    known.delivery = Some(delivery);
                    if let Some(said) = &known.said {
                        self.line
                            .engine
                            .update(delivery, &said.get())
                            .expect("open");
                    }
                } else {
                    assert!(!resume, "{payload} is not known");
                    let said = None;
                    let delivery = Some(delivery);
                    let new = Held {
                        payload,
                        delivery,
                        said,
                    };
                    held.insert(tag, new);
                }
                let link = self.link.expect("attached");
                self.line.engine.set_credit(link, 4, false).expect("credit");
            }
            (Work::Receive { held, .. }, Heard::State { tag, settled, .. }) => {
                if settled {
                    held.remove(&tag);
                }
            }
            (
                Work::Send {
                    unsettled,
                    accepted,
                    ..
                },
                Heard::State {
                    delivery,
                    tag,
                    state,
                    settled,
                },
            ) => {
                let tag = tag.number().expect("its own");
                let state = state.expect("an outcome");
                assert_eq!(state, State::Accepted);
                assert!(!settled, "the broker settles after the sender");
                accepted.push(unsettled.remove(&tag).expect("unsettled"));
                // Sometimes it says nothing before its connection is lost.
                if !world.random().one_in(8) {
                    let settled = self.line.engine.settle(delivery, Some(&state.get()));
                    settled.expect("open");
                }
            }
            (Work::Send { .. }, Heard::Message { .. }) => panic!("a sender got a message"),
        }
    }

    fn go_on(&mut self, world: &mut World) {
        let Some(link) = self.link else {
            return;
        };
        let engine = &mut self.line.engine;
        match &mut self.work {
            Work::Send {
                queue,
                unsettled,
                again,
                tag,
                accepted,
            } => {
                while let Some((number, outcome)) = again.front() {
                    let payload = unsettled.get(number).expect("unsettled");
                    if !resend(engine, link, *number, payload, outcome.as_ref()) {
                        return self.line.flush(world);
                    }
                    if outcome.is_some() {
                        accepted.extend(unsettled.remove(number));
                    }
                    again.pop_front();
                }
                while let Some(payload) = queue.front() {
                    let sending = Sending::new(Tag::from(*tag + 1), false);
                    let bytes = message(payload);
                    if engine.send(link, &sending, &bytes, &Bytes::new()).is_err() {
                        break;
                    }
                    *tag += 1;
                    unsettled.insert(*tag, payload.clone());
                    queue.pop_front();
                }
            }
            Work::Receive { held, consumed } => {
                for held in held.values_mut().filter(|held| held.said.is_none()) {
                    let Some(delivery) = held.delivery else {
                        continue;
                    };
                    let state = match world.random().below(6) {
                        0 | 1 => continue,
                        2 => State::Released,
                        _ => State::Accepted,
                    };
                    if state == State::Accepted {
                        *consumed.entry(held.payload.clone()).or_default() += 1;
                    }
                    // One of a link that was taken away is heard of later.
                    let _ = engine.update(delivery, &state.get());
                    held.said = Some(state);
                }
            }
        }
        self.line.flush(world);
    }
}

impl Client for Resumer {
    type Shared = ();

    fn line(&self) -> &Line {
        &self.line
    }

    fn line_mut(&mut self) -> &mut Line {
        &mut self.line
    }

    fn connect(&mut self, world: &mut World) {
        let session = self.line.open(world, Some(self.container));
        self.attach(session);
        self.line.flush(world);
    }

    fn handle(&mut self, world: &mut World, event: ToClient, (): &mut ()) {
        match event {
            ToClient::Bytes(_, data) => {
                let mut data = &data[..];
                let mut events = Vec::new();
                while let Some(event) = self.line.engine.poll_event(world.now(), &mut data) {
                    events.extend(heard(event));
                }
                for event in events {
                    self.note(world, event);
                }
                self.go_on(world);
            }
            ToClient::Closed(_) => self.connect(world),
            _ => {}
        }
    }

    fn proceed(&mut self, world: &mut World) {
        self.go_on(world);
    }
}

/// Compares what both sides have.
fn attached(work: &mut Work, body: &Body) {
    let Some(answer) = body.attach() else {
        return;
    };
    let has_terminus = match work {
        Work::Send { .. } => answer.target.is_some(),
        Work::Receive { .. } => answer.source.is_some(),
    };
    if !has_terminus {
        return;
    }
    assert!(answer.unsettled.is_some(), "its state is kept");
    let remote = RemoteUnsettled::new(&answer);
    match work {
        Work::Send {
            queue,
            unsettled,
            again,
            ..
        } => {
            let tags: Vec<u64> = unsettled.keys().copied().collect();
            for tag in tags {
                match remote.resumption(Tag::from(tag), None) {
                    Resumption::Resend => queue.extend(unsettled.remove(&tag)),
                    Resumption::Resume(_) => again.push_back((tag, None)),
                    Resumption::Settle(outcome) => again.push_back((tag, State::new(&outcome))),
                    other => panic!("{other:?}"),
                }
            }
        }
        Work::Receive { held, .. } => {
            held.retain(|tag, held| {
                let is_forgotten = remote.is_forgotten(*tag);
                assert!(
                    !is_forgotten || held.said.is_some(),
                    "{} was forgotten without an outcome",
                    held.payload
                );
                !is_forgotten
            });
        }
    }
}

/// Goes on with a delivery of an earlier attachment.
fn resend(
    engine: &mut Connection,
    link: LinkId,
    number: u64,
    payload: &str,
    outcome: Option<&State>,
) -> bool {
    let start = DeliveryState::Received(Received {
        section_number: 0,
        section_offset: 0,
    });
    let sending = Sending {
        resume: true,
        state: Some(outcome.map_or(start, State::get)),
        ..Sending::new(Tag::from(number), outcome.is_some())
    };
    let bytes = match outcome {
        Some(_) => Vec::new(),
        None => message(payload),
    };
    engine.send(link, &sending, &bytes, &Bytes::new()).is_ok()
}

fn heard(event: Event<'_>) -> Option<Heard> {
    Some(match event {
        Event::Attached { attach, .. } => Heard::Attached(attach),
        Event::Message(message) => {
            let (delivery, tag) = (message.delivery, message.tag);
            let (resume, settled) = (message.resume, message.settled);
            let bytes = message.payload.into_bytes();
            Heard::Message {
                delivery,
                tag,
                payload: payload(&bytes),
                resume,
                settled,
            }
        }
        Event::Disposition {
            delivery,
            tag,
            state,
            settled,
        } => Heard::State {
            delivery,
            tag,
            state,
            settled,
        },
        Event::Detached { .. } => Heard::Detached,
        Event::Credit { .. } | Event::WindowOpen { .. } => Heard::Credit,
        _ => return None,
    })
}

/// A client comes again, perhaps before the broker knows that it was gone, or without
/// having been.
fn reconnect(scene: &mut Scene<Resumer>, at: usize) {
    let (world, client) = (&mut scene.world, &mut scene.clients[at]);
    if !(client.is_attached && world.random().one_in(3)) {
        client.line.cut(world);
    }
    client.connect(world);
}

fn scene(seed: u64, random: &mut Random) -> Scene<Resumer> {
    let send = || Work::Send {
        queue: VecDeque::new(),
        unsettled: BTreeMap::new(),
        again: VecDeque::new(),
        tag: 0,
        accepted: Vec::new(),
    };
    let receive = || Work::Receive {
        held: BTreeMap::new(),
        consumed: BTreeMap::new(),
    };
    let clients = vec![
        Resumer::new("to-queue", QUEUE, send()),
        Resumer::new("to-topic", "jobs/x", send()),
        Resumer::new("first", QUEUE, receive()),
        Resumer::new("second", QUEUE, receive()),
        Resumer::new("subscriber", "jobs/#", receive()),
    ];
    Scene {
        world: World::new(setup(seed, random)),
        peers: vec![publisher("mqtt")],
        clients,
        shared: (),
    }
}

fn program(seed: u64, crashes: bool) -> Result<(), String> {
    let mut random = Random::new(seed);
    let mut scene = scene(seed, &mut random);
    for client in &mut scene.clients {
        if !crashes && random.one_in(2) {
            client.durable = TerminusDurability::None;
        }
        // Its subscription is in the store, or ends with the broker.
        if client.container == "subscriber" {
            client.durable = TerminusDurability::UnsettledState;
        }
    }
    scene.begin();
    for number in 0..80 {
        match random.below(11) {
            0 => {
                let payload = format!("m{number}");
                let qos = QoS::ExactlyOnce;
                scene.peers[0].publish(&mut scene.world, "jobs/y", payload, qos);
            }
            1..=4 => {
                let sender = &mut scene.clients[random.below(2) as usize];
                if let Work::Send { queue, .. } = &mut sender.work {
                    queue.push_back(format!("{}{number}", &sender.address[..2]));
                }
                sender.go_on(&mut scene.world);
            }
            5..=8 => reconnect(&mut scene, random.below(5) as usize),
            9 => {
                scene.peers[0].cut(&mut scene.world);
                scene.peers[0].connect(&mut scene.world);
            }
            _ if crashes => scene.world.crash(),
            _ => {}
        }
        scene.run(Duration::from_micros(random.between(100, 20_000)));
    }
    for at in 0..5 {
        scene.run(Duration::from_secs(30));
        // What a sender has not settled, it does now.
        if at < 2 {
            reconnect(&mut scene, at);
        }
        for client in &mut scene.clients {
            client.go_on(&mut scene.world);
        }
    }
    for _ in 0..60 {
        scene.run(Duration::from_secs(2));
        for client in &mut scene.clients {
            client.go_on(&mut scene.world);
        }
    }
    check(&scene)
}

fn check(scene: &Scene<Resumer>) -> Result<(), String> {
    let (mut all, mut to_topic) = (Vec::new(), Vec::new());
    for event in &scene.peers[0].acknowledged {
        all.push(&event.payload);
        to_topic.push(&event.payload);
    }
    let (mut of_queue, mut of_topic) = (BTreeMap::new(), BTreeMap::new());
    for client in &scene.clients {
        match &client.work {
            Work::Send {
                queue,
                unsettled,
                accepted,
                ..
            } => {
                if !queue.is_empty() || !unsettled.is_empty() {
                    return Err(format!("not sent: {queue:?} {unsettled:?}"));
                }
                all.extend(accepted);
                if client.address != QUEUE {
                    to_topic.extend(accepted);
                }
            }
            Work::Receive { consumed, .. } => {
                let counts = match client.address {
                    QUEUE => &mut of_queue,
                    _ => &mut of_topic,
                };
                for (payload, times) in consumed {
                    *counts.entry(payload).or_insert(0_usize) += times;
                }
            }
        }
    }
    for (end, sent, counts) in [
        ("queue", &all, &of_queue),
        ("subscription", &to_topic, &of_topic),
    ] {
        for payload in sent {
            let times = counts.get(payload).copied().unwrap_or(0);
            if times != 1 {
                let census = scene.world.census();
                return Err(format!(
                    "{payload} came {times} times out of the {end}: {census:?}"
                ));
            }
        }
        // The publisher's own list lacks what was acknowledged on another connection.
        if let Some((payload, times)) = counts.iter().find(|(_, times)| **times != 1) {
            return Err(format!("{payload} came {times} times out of the {end}"));
        }
        if sent.is_empty() {
            return Err(format!("nothing was sent to the {end}"));
        }
    }
    let census = scene.world.census();
    let rows = scene.world.disk.recover().meta.len();
    let stored = scene.world.disk.stored_messages();
    let left = (census.queued, census.in_flight, stored, rows);
    if left != (0, 0, 0, 0) || census.miscounted_bytes > 0 {
        return Err(format!("left behind: {left:?} in {census:?}"));
    }
    Ok(())
}

fn run(crashes: bool) {
    check_all(seeds("RESUME_SEEDS", 0..40), |seed| program(seed, crashes));
}

#[test]
fn links_are_resumed_over_connections() {
    run(false);
}

#[test]
fn links_are_resumed_over_restarts() {
    run(true);
}
