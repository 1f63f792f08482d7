//! Hostile clients of AMQP: random steps, each a burst of frames of one kind. They
//! read nothing of what comes: what they may say follows from what they have said.
//!
//! One program of [`EVERY`] has them, by a hash of its seed; each of its steps is
//! followed by one of theirs. They have their own chance, so that what the clients of
//! MQTT do is the same with them and without.

use dunlin_amqp::Demand;
use dunlin_amqp::codec::{
    AnyTarget, Attach, Begin, Coordinator, DeliveryState, Described, Descriptor, Detach,
    Disposition, End, Error, Flow, Map, Modified, Open, Outcome, Performative, ReceiverSettleMode,
    Rejected, Role, Section, SenderSettleMode, SerialNumber, Source, Symbol, Target,
    TerminusDurability, TerminusExpiryPolicy, TransactionalState, Transfer, Value, condition,
};
use dunlin_sim::Random;
use dunlin_sim::frames::{HEADER, frame};

use crate::sizes::Sizes;

/// One of so many programs has clients of AMQP.
const EVERY: u64 = 4;

/// Hostile clients.
pub(crate) const CLIENTS: [&str; 3] = ["p", "q", "s"];

/// Connections of a client, each on a stream of its QUIC connection.
const LANES: usize = 3;

/// Sessions of a connection.
const SESSIONS_MAX: u64 = 16;

/// Links of a session.
const LINKS_MAX: u32 = 64;

/// What the broker may take for one such connection besides its budget: the engine,
/// its sessions, and frames that wait in it.
const LANE_BYTES: usize = 32 << 10;

const SELECTOR: &str = "apache.org:selector-filter:string";

const TOPICS: [&str; 4] = ["t/1", "r/5", "y/w", "a/long/topic/of/several/levels"];

const FILTERS: [&str; 6] = ["#", "t/#", "r/#", "+/+", "$share/g/t/#", "y/w"];

/// Whether a program has clients of AMQP. Without a memory budget it has none: one
/// connection may have 1,024 links.
pub(crate) fn is_part_of(seed: u64, sizes: &Sizes) -> bool {
    let hash = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    hash.is_multiple_of(EVERY) && sizes.budget_bytes != usize::MAX
}

/// A connection of a client.
#[derive(Debug, Default)]
struct Lane {
    is_open: bool,
    /// By channel.
    sessions: Vec<Session>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Session {
    /// Handles below are attached, or were.
    links: u32,
    /// The next delivery-id.
    next: u32,
}

/// What a step sends.
pub(crate) struct Burst {
    /// A client and its stream.
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) frames: u64,
    /// What it is, for people.
    pub(crate) what: String,
}

/// What such a step is.
pub(crate) enum Step {
    Send(Burst),
    /// A client does this.
    Act(&'static str, &'static str),
    /// All but the end of a frame, from this many strangers.
    Strangers(Vec<u8>),
}

/// The clients.
pub(crate) struct Attackers {
    random: Random,
    lanes: [[Lane; LANES]; CLIENTS.len()],
}

/// The frames of a step.
struct Frames<'a> {
    bytes: Vec<u8>,
    count: u64,
    lane: &'a mut Lane,
}

impl Frames<'_> {
    fn put(&mut self, channel: usize, performative: &Performative<'_>, payload: &[u8]) {
        self.bytes
            .extend(frame(channel as u16, performative, payload));
        self.count += 1;
    }

    fn open(&mut self) {
        self.bytes.extend_from_slice(HEADER);
        self.put(0, &Performative::Open(Open::default()), b"");
        self.lane.is_open = true;
    }

    fn begin(&mut self) -> usize {
        let channel = self.lane.sessions.len();
        let begin = Begin {
            incoming_window: 1 << 20,
            outgoing_window: 1 << 20,
            ..Begin::default()
        };
        self.put(channel, &Performative::Begin(begin), b"");
        self.lane.sessions.push(Session::default());
        channel
    }

    /// A delivery, or the first part of one.
    fn transfer(&mut self, channel: usize, transfer: &Transfer<'_>, payload: &[u8]) {
        let session = &mut self.lane.sessions[channel];
        let id = session.next;
        session.next += 1;
        let tag = id.to_be_bytes();
        let transfer = Transfer {
            delivery_id: Some(SerialNumber(id)),
            delivery_tag: Some(&tag),
            ..*transfer
        };
        self.put(channel, &Performative::Transfer(transfer), payload);
    }
}

impl Attackers {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Random::new(!seed),
            lanes: Default::default(),
        }
    }

    /// Bytes that the broker may hold for them besides its budget.
    pub(crate) const fn bytes_max() -> usize {
        CLIENTS.len() * LANES * LANE_BYTES
    }

    /// The next step. `is_connected`: by client.
    pub(crate) fn step(&mut self, sizes: &Sizes, is_connected: [bool; CLIENTS.len()]) -> Step {
        let at = self.random.below(CLIENTS.len() as u64) as usize;
        if !is_connected[at] {
            self.lanes[at] = Default::default();
        }
        let kind = self.random.below(18);
        match kind {
            0 => return Step::Act(CLIENTS[at], "cut"),
            1 => return Step::Act(CLIENTS[at], "stall"),
            2 | 3 => return Step::Act(CLIENTS[at], "read"),
            4 => return Step::Strangers(stranger(self.random.below(2) == 0)),
            _ => {}
        }
        // A connection needs the ones before it: streams are not skipped.
        let open = self.lanes[at].iter().take_while(|it| it.is_open).count();
        let number = self.random.below(LANES as u64).min(open as u64) as usize;
        let random = &mut self.random;
        let mut frames = Frames {
            bytes: Vec::new(),
            count: 0,
            lane: &mut self.lanes[at][number],
        };
        if !frames.lane.is_open {
            frames.open();
        }
        let begun = frames.lane.sessions.len() as u64;
        if begun == 0 || (begun < SESSIONS_MAX && random.one_in(5)) {
            frames.begin();
        }
        let channel = random.below(frames.lane.sessions.len() as u64) as usize;
        let what = fill(kind, &mut frames, channel, random, sizes);
        let (bytes, count) = (frames.bytes, frames.count);
        Step::Send(Burst {
            name: format!("{}@{}", CLIENTS[at], number * 4),
            bytes,
            frames: count,
            what,
        })
    }
}

fn fill(
    kind: u64,
    frames: &mut Frames<'_>,
    channel: usize,
    random: &mut Random,
    sizes: &Sizes,
) -> String {
    let what = match kind {
        5 => senders(frames, channel, random),
        6 | 7 => receivers(frames, channel, random, sizes),
        8 | 9 => messages(frames, channel, random, sizes),
        10 => unfinished(frames, channel, sizes),
        11 | 12 => dispositions(frames, channel, random, sizes),
        13 => credit(frames, channel, random, sizes),
        14 => loops(frames, channel, random, sizes),
        15 => transactions(frames, channel, random),
        16 => detach(frames, channel, random),
        _ => nonsense(frames, channel, random),
    };
    format!("channel {channel}: {what}")
}

/// All but the end of the largest frame before `open`.
fn stranger(with_sasl: bool) -> Vec<u8> {
    let layer = if with_sasl { 3 } else { 0 };
    let mut bytes = vec![b'A', b'M', b'Q', b'P', layer, 1, 0, 0];
    bytes.extend_from_slice(&[0, 0, 0x10, 0, 2, u8::from(with_sasl), 0, 0]);
    bytes.extend_from_slice(&[0; 4087]);
    bytes
}

/// The next handle of a session, if it has one.
fn next_handle(frames: &mut Frames<'_>, channel: usize) -> Option<u32> {
    let links = &mut frames.lane.sessions[channel].links;
    *links += 1;
    (*links <= LINKS_MAX).then(|| *links - 1)
}

/// Any handle of a session.
fn any_handle(frames: &Frames<'_>, channel: usize, random: &mut Random) -> u32 {
    let links = frames.lane.sessions[channel].links.clamp(1, LINKS_MAX);
    random.below(u64::from(links)) as u32
}

fn queue(random: &mut Random) -> String {
    format!("/queues/q{}", random.below(5))
}

fn senders(frames: &mut Frames<'_>, channel: usize, random: &mut Random) -> String {
    let count = 1 + random.below(20);
    let kind = random.below(6);
    let long = "n".repeat(random.below(1000) as usize);
    let second = random.one_in(3);
    for number in 0..count {
        let Some(handle) = next_handle(frames, channel) else {
            break;
        };
        let queue = queue(random);
        let topic = TOPICS[random.below(TOPICS.len() as u64) as usize];
        let address = match kind {
            0 => Some("$management"),
            1 => Some(&*queue),
            2 | 3 => None,
            _ => Some(topic),
        };
        let target = Target {
            address,
            dynamic: kind == 3,
            ..Target::default()
        };
        let name = format!("{long}{number}");
        let attach = Attach {
            name: &name,
            handle,
            role: Role::Sender,
            rcv_settle_mode: match second {
                true => ReceiverSettleMode::Second,
                false => ReceiverSettleMode::First,
            },
            source: Some(Source::default()),
            target: Some(AnyTarget::Target(target)),
            initial_delivery_count: Some(SerialNumber(0)),
            ..Attach::default()
        };
        frames.put(channel, &Performative::Attach(attach), b"");
    }
    format!("{count} senders, kind {kind}")
}

/// A selector of about so many bytes, as the value of a filter.
fn selector(bytes: usize) -> Vec<u8> {
    let text = "n=1 OR ".repeat(bytes / 7) + "TRUE";
    let value = Value::String(&text);
    let name = Symbol::from_static(SELECTOR);
    let described = Described::new(Descriptor::Symbol(name), &value);
    Value::Described(described).to_vec().expect("a vector")
}

fn receivers(
    frames: &mut Frames<'_>,
    channel: usize,
    random: &mut Random,
    sizes: &Sizes,
) -> String {
    let count = 1 + random.below(20);
    let kind = random.below(8);
    let limit = match random.below(3) {
        0 => u32::MAX,
        1 => 1,
        _ => 20,
    };
    let described = selector(random.below(2 * sizes.payload_bytes_max) as usize);
    let name = Value::Symbol(Symbol::from_static(SELECTOR));
    let entries = [(name, Value::decode(&described).expect("just written"))];
    for number in 0..count {
        let Some(handle) = next_handle(frames, channel) else {
            break;
        };
        let queue = queue(random);
        let filter = FILTERS[random.below(FILTERS.len() as u64) as usize];
        let durable = kind == 4;
        let source = Source {
            address: match kind {
                0 => None,
                1 | 2 => Some(&*queue),
                3 => Some("$management"),
                _ => Some(filter),
            },
            dynamic: kind == 0,
            durable: match durable {
                true => TerminusDurability::UnsettledState,
                false => TerminusDurability::None,
            },
            expiry_policy: match durable {
                true => TerminusExpiryPolicy::Never,
                false => TerminusExpiryPolicy::SessionEnd,
            },
            filter: (kind == 5).then(|| Map::new(&entries)),
            ..Source::default()
        };
        let name = format!("r{number}");
        let attach = Attach {
            name: &name,
            handle,
            role: Role::Receiver,
            snd_settle_mode: match kind {
                6 => SenderSettleMode::Settled,
                _ => SenderSettleMode::Mixed,
            },
            rcv_settle_mode: match kind {
                7 => ReceiverSettleMode::Second,
                _ => ReceiverSettleMode::First,
            },
            source: Some(source),
            target: Some(AnyTarget::Target(Target::default())),
            ..Attach::default()
        };
        frames.put(channel, &Performative::Attach(attach), b"");
        frames.put(channel, &flow(handle, limit, false), b"");
    }
    format!("{count} receivers, kind {kind}, credit {limit}")
}

fn flow(handle: u32, credit: u32, drain: bool) -> Performative<'static> {
    Performative::Flow(Flow {
        incoming_window: 1 << 20,
        outgoing_window: 1 << 20,
        handle: Some(handle),
        delivery_count: Some(SerialNumber(0)),
        link_credit: Some(credit),
        drain,
        echo: drain,
        ..Flow::default()
    })
}

fn message(durable: bool, len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    if durable {
        bytes.extend_from_slice(&[0x00, 0x53, 0x70, 0xc0, 2, 1, 0x41]);
    }
    Section::encode_data_start(len, &mut bytes).expect("a vector");
    bytes.resize(bytes.len() + len, b'm');
    bytes
}

fn messages(frames: &mut Frames<'_>, channel: usize, random: &mut Random, sizes: &Sizes) -> String {
    let count = 1 + random.below(30);
    let len = 1 + random.below(sizes.payload_bytes_max) as usize;
    let bytes = message(random.one_in(2), len);
    let settled = random.one_in(3);
    let handle = any_handle(frames, channel, random);
    for _ in 0..count {
        let transfer = Transfer {
            handle,
            settled: Some(settled),
            ..Transfer::default()
        };
        frames.transfer(channel, &transfer, &bytes);
    }
    format!("{count} messages of {len} bytes to {handle}, settled {settled}")
}

/// The first part of a message on every link.
fn unfinished(frames: &mut Frames<'_>, channel: usize, sizes: &Sizes) -> String {
    let links = frames.lane.sessions[channel].links.clamp(1, LINKS_MAX);
    let part = vec![b'u'; sizes.unfinished_bytes / 4];
    for handle in 0..links {
        let transfer = Transfer {
            handle,
            more: true,
            ..Transfer::default()
        };
        frames.transfer(channel, &transfer, &part);
    }
    format!("{links} unfinished messages")
}

fn dispositions(
    frames: &mut Frames<'_>,
    channel: usize,
    random: &mut Random,
    sizes: &Sizes,
) -> String {
    let times = match random.below(2) {
        0 => sizes.repeats,
        _ => 1,
    };
    let text = "e".repeat(random.below(sizes.payload_bytes_max) as usize);
    let kind = random.below(6);
    let number = (1 + random.below(6)).to_be_bytes();
    let state = match kind {
        0 => DeliveryState::RELEASED,
        1 => DeliveryState::Outcome(Outcome::Modified(Modified {
            delivery_failed: true,
            ..Modified::default()
        })),
        2 => DeliveryState::Outcome(Outcome::Rejected(Rejected {
            error: Some(Error::new(condition::INTERNAL_ERROR, &text)),
        })),
        3 => DeliveryState::Transactional(TransactionalState {
            txn_id: &number,
            outcome: Some(Outcome::Accepted),
        }),
        _ => DeliveryState::ACCEPTED,
    };
    let settled = random.one_in(2);
    let role = match random.one_in(4) {
        true => Role::Sender,
        false => Role::Receiver,
    };
    let disposition = Disposition {
        role,
        first: SerialNumber(0),
        last: Some(SerialNumber(random.below(1 << 31) as u32)),
        settled,
        state: Some(state),
        ..Disposition::default()
    };
    for _ in 0..times {
        frames.put(channel, &Performative::Disposition(disposition), b"");
    }
    format!("{times} dispositions as {role:?}, kind {kind}, settled {settled}")
}

fn credit(frames: &mut Frames<'_>, channel: usize, random: &mut Random, sizes: &Sizes) -> String {
    let handle = any_handle(frames, channel, random);
    let drain = random.one_in(2);
    for _ in 0..sizes.repeats {
        let limit = random.below(1 << 32) as u32;
        frames.put(channel, &flow(handle, limit, drain), b"");
    }
    format!("{} flows to {handle}, drain {drain}", sizes.repeats)
}

/// Sessions, or links, that come and go.
fn loops(frames: &mut Frames<'_>, channel: usize, random: &mut Random, sizes: &Sizes) -> String {
    let of_links = random.one_in(2);
    let handle = LINKS_MAX - 1;
    for number in 0..sizes.repeats {
        if of_links {
            let name = format!("loop{number}");
            let source = Source {
                address: Some("t/#"),
                ..Source::default()
            };
            let attach = Attach {
                name: &name,
                handle,
                role: Role::Receiver,
                source: Some(source),
                target: Some(AnyTarget::Target(Target::default())),
                ..Attach::default()
            };
            frames.put(channel, &Performative::Attach(attach), b"");
            let detach = Detach {
                handle,
                closed: true,
                ..Detach::default()
            };
            frames.put(channel, &Performative::Detach(detach), b"");
        } else {
            frames.put(channel, &Performative::End(End::default()), b"");
            frames.put(channel, &Performative::Begin(Begin::default()), b"");
            frames.lane.sessions[channel] = Session::default();
        }
    }
    format!("{} times again, links {of_links}", sizes.repeats)
}

fn transactions(frames: &mut Frames<'_>, channel: usize, random: &mut Random) -> String {
    let Some(handle) = next_handle(frames, channel) else {
        return "no coordinator".into();
    };
    let attach = Attach {
        name: "controller",
        handle,
        role: Role::Sender,
        source: Some(Source::default()),
        target: Some(AnyTarget::Coordinator(Coordinator::default())),
        initial_delivery_count: Some(SerialNumber(0)),
        ..Attach::default()
    };
    frames.put(channel, &Performative::Attach(attach), b"");
    let count = 1 + random.below(10);
    let declare = Demand::Declare { global_id: None };
    let declare = declare.encode().expect("small");
    let to_coordinator = Transfer {
        handle,
        ..Transfer::default()
    };
    for _ in 0..count {
        frames.transfer(channel, &to_coordinator, &declare);
    }
    // Ids are numbers from one.
    let number = (1 + random.below(6)).to_be_bytes();
    let posts = random.below(10);
    let post = Transfer {
        handle: any_handle(frames, channel, random),
        state: Some(DeliveryState::Transactional(TransactionalState {
            txn_id: &number,
            outcome: None,
        })),
        ..Transfer::default()
    };
    for _ in 0..posts {
        frames.transfer(channel, &post, &message(true, 100));
    }
    let discharged = random.one_in(2);
    if discharged {
        let discharge = Demand::Discharge {
            txn_id: number.to_vec().into(),
            fail: random.one_in(2),
        };
        let discharge = discharge.encode().expect("small");
        frames.transfer(channel, &to_coordinator, &discharge);
    }
    format!("{count} transactions, {posts} posts, discharged {discharged}")
}

fn detach(frames: &mut Frames<'_>, channel: usize, random: &mut Random) -> String {
    let handle = any_handle(frames, channel, random);
    let closed = random.one_in(2);
    let detach = Detach {
        handle,
        closed,
        ..Detach::default()
    };
    frames.put(channel, &Performative::Detach(detach), b"");
    format!("detach {handle}, closed {closed}")
}

/// A frame with one byte changed, at which most connections end.
fn nonsense(frames: &mut Frames<'_>, channel: usize, random: &mut Random) -> String {
    let before = frames.bytes.len();
    let handle = any_handle(frames, channel, random);
    frames.put(channel, &flow(handle, 5, true), b"");
    let len = (frames.bytes.len() - before) as u64;
    let at = before + random.below(len) as usize;
    frames.bytes[at] ^= 1 << random.below(8);
    // Another one begins with its client.
    format!("a changed byte at {}", at - before)
}
