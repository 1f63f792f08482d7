//! Programs of hostile clients: random steps, each a burst of packets of one
//! kind. What a step sends it sends without waiting.

use dunlin_mqtt::server::link::UNFINISHED_BYTES_MAX;
use dunlin_mqtt_codec::Version;
use dunlin_sim::{Link, Random, Script, encode};

use crate::amqp::{self, Attackers, Burst, Step};
use crate::packets::{Packets, STRANGER_PROPERTIES_MAX};

/// Hostile clients with a session.
const CLIENTS: [&str; 3] = ["a", "b", "c"];

/// Times of a SUBSCRIBE that is repeated, but not to do harm.
const FEW: u64 = 10;

/// Streams of a client that it begins packets on.
const STREAMS: u64 = 16;

/// Pieces that these packets are sent in.
const PIECES: usize = 4;

/// A client's filters; none matches the innocent client's topic.
const FILTERS_POOL: [&str; 8] = [
    "#",
    "+/+",
    "r/#",
    "r/1",
    "t/#",
    "$share/g/t/#",
    "$share/h/r/#",
    "+/+/#",
];

/// What is under way.
pub(crate) struct Program<'a> {
    pub(crate) script: Script,
    random: Random,
    ready: &'a Packets,
    /// Bytes that the step has sent.
    pub(crate) sent: usize,
    /// All that was sent.
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    serial: u64,
    /// Clients of AMQP, if it has any.
    amqp: Option<Attackers>,
}

impl<'a> Program<'a> {
    pub(crate) fn new(seed: u64, script: Script, random: Random, ready: &'a Packets) -> Self {
        let has_amqp = amqp::is_part_of(seed, &ready.sizes);
        Self {
            script,
            random,
            ready,
            sent: 0,
            packets: 0,
            bytes: 0,
            serial: 0,
            amqp: has_amqp.then(|| Attackers::new(seed)),
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn packet(&mut self, name: &str, line: &str) {
        let bytes = encode(line, Version::V5);
        self.send(name, &bytes, 1);
    }

    fn send(&mut self, name: &str, bytes: &[u8], packets: u64) {
        if let Some(conn) = self.script.conn(name) {
            let link = self.script.world.link(conn);
            if link.is_some_and(|link| link.waiting_bytes() > self.ready.sizes.unread_bytes_max) {
                return;
            }
        }
        self.sent += bytes.len();
        self.bytes += bytes.len() as u64;
        self.packets += packets;
        self.script.send_bytes(name, bytes);
    }

    /// Bytes that wait at the clients, because the broker does not read them.
    pub(crate) fn waiting_bytes(&mut self) -> usize {
        let names = CLIENTS.iter().chain(&amqp::CLIENTS);
        let conns: Vec<_> = names.map(|name| self.script.conn(name)).collect();
        let links = conns.into_iter().flatten();
        let links = links.filter_map(|conn| self.script.world.link(conn));
        links.map(Link::waiting_bytes).sum()
    }

    /// Does one step; what it was, for people.
    pub(crate) fn step(&mut self) -> String {
        let name = CLIENTS[self.below(CLIENTS.len() as u64) as usize];
        self.sent = 0;
        if self.script.conn(name).is_none() {
            return self.connect(name);
        }
        match self.below(15) {
            0 => self.subscribe(name, 1),
            1 => {
                let times = match self.below(2) {
                    0 => self.ready.sizes.repeats,
                    _ => FEW,
                };
                if times > FEW {
                    self.change(name, "stall");
                }
                self.subscribe(name, times)
            }
            2 => self.overlap(name),
            3 => self.retain(name),
            4 => self.publish(name),
            5 => self.groups(name),
            6 => self.change(name, "stall"),
            7 | 8 => self.change(name, "read"),
            9 => self.unfinished(name),
            10 => self.strangers(),
            11 => {
                let pings = 1 + self.below(self.ready.sizes.pings_max);
                let bytes = [0xc0, 0].repeat(pings as usize);
                self.send(name, &bytes, pings);
                format!("{name}: {pings} PINGREQ")
            }
            12 => self.change(name, "cut"),
            13 => self.crowd(),
            _ => {
                self.script.world.crash();
                self.script.settle();
                "crash".into()
            }
        }
    }

    /// What the broker may hold for clients of AMQP besides its budget.
    pub(crate) const fn amqp_bytes_max(&self) -> usize {
        match self.amqp {
            Some(_) => Attackers::bytes_max(),
            None => 0,
        }
    }

    /// A step of a client of AMQP, if there are any.
    pub(crate) fn step_of_amqp(&mut self) -> Option<String> {
        let is_connected = amqp::CLIENTS.map(|name| self.script.conn(name).is_some());
        let step = self.amqp.as_mut()?.step(&self.ready.sizes, is_connected);
        Some(match step {
            Step::Send(burst) => {
                let Burst {
                    name,
                    bytes,
                    frames,
                    what,
                } = burst;
                self.send(&name, &bytes, frames);
                format!("{name}: {what}")
            }
            Step::Act(name, what) => self.change(name, what),
            Step::Strangers(bytes) => {
                for number in 0..self.ready.sizes.strangers {
                    let name = format!("v{number}");
                    if self.script.conn(&name).is_none() {
                        self.send(&name, &bytes, 1);
                    }
                }
                "strangers of AMQP".into()
            }
        })
    }

    fn connect(&mut self, name: &str) -> String {
        let mut line = format!("CONNECT {name}");
        if self.below(2) == 0 {
            line += " clean";
        }
        if self.below(3) > 0 {
            line += " expiry=100000";
        }
        match self.below(3) {
            0 => line += " rm=1",
            1 => line += " rm=20",
            _ => {}
        }
        if self.below(2) == 0 {
            let payload = "w".repeat(self.below(self.ready.sizes.payload_bytes_max) as usize + 1);
            line += &format!(" will=t/w:{payload} wq={}", self.below(3));
        }
        self.packet(name, &line);
        line.truncate(60);
        format!("{name}: {line}")
    }

    fn change(&mut self, name: &str, what: &str) -> String {
        self.script.act(name, what);
        format!("{name} {what}")
    }

    fn subscribe(&mut self, name: &str, times: u64) -> String {
        let qos = self.below(3);
        let count = 1 + self.below(4);
        let mut line = String::from("SUBSCRIBE 1");
        for _ in 0..count {
            let filter = FILTERS_POOL[self.below(FILTERS_POOL.len() as u64) as usize];
            let copies = if times > FEW {
                self.ready.sizes.copies
            } else {
                1
            };
            for _ in 0..copies {
                line += &format!(" {filter}|q{qos}");
            }
        }
        if self.below(2) == 0 {
            line += &format!(" sub={}", 1 + self.below(1000));
        }
        let bytes = encode(&line, Version::V5);
        for _ in 0..times {
            self.send(name, &bytes, 1);
        }
        line.truncate(60);
        format!("{name}: {times} times {line}")
    }

    fn overlap(&mut self, name: &str) -> String {
        let levels = self.ready.sizes.levels;
        self.send(name, &self.ready.overlap, 1 << levels);
        format!("{name}: overlap, {levels} levels")
    }

    fn retain(&mut self, name: &str) -> String {
        let count = 1 + self.below(40);
        let len = 1 + self.below(self.ready.sizes.payload_bytes_max);
        let payload = "r".repeat(len as usize);
        for _ in 0..count {
            let topic = self.below(self.ready.sizes.retained_topics);
            self.packet(name, &format!("PUBLISH r/{topic} {payload} retain"));
        }
        format!("{name}: {count} retained of {len} bytes")
    }

    fn publish(&mut self, name: &str) -> String {
        let count = 1 + self.below(20);
        let (qos, len) = (self.below(3), 1 + self.below(200));
        let deep = vec!["t"; self.ready.sizes.levels as usize].join("/");
        let topic = if self.below(4) > 0 { &deep } else { "t/1" };
        let payload = "p".repeat(len as usize);
        for _ in 0..count {
            self.serial += 1;
            let id = self.serial % 20 + 1;
            let line = match qos {
                0 => format!("PUBLISH {topic} {payload}"),
                qos => format!("PUBLISH {topic} {payload} q{qos} #{id}"),
            };
            self.packet(name, &line);
        }
        format!("{name}: {count} messages of QoS {qos} to {topic}")
    }

    fn groups(&mut self, name: &str) -> String {
        let count = 1 + self.below(self.ready.sizes.groups_max);
        let mut line = String::from("SUBSCRIBE 3");
        for group in 0..count {
            line += &format!(" $share/g{group}/t/#|q1");
        }
        self.packet(name, &line);
        format!("{name}: {count} groups")
    }

    /// All but the end of a packet, on every stream by turns.
    fn unfinished(&mut self, name: &str) -> String {
        let all = &self.ready.unfinished;
        for piece in all.chunks(all.len().div_ceil(PIECES)) {
            for stream in 0..=STREAMS {
                self.send(&format!("{name}@{}", stream * 4), piece, 1);
            }
            self.script.settle();
        }
        format!("{name}: unfinished packets")
    }

    /// Bytes of such packets that the broker may have, with those that come until
    /// its shard that reads them is asked not to.
    pub(crate) fn unfinished_bytes_max(&mut self) -> usize {
        let streams = STREAMS as usize + 1;
        let on_way = streams * self.ready.unfinished.len().div_ceil(PIECES);
        let packet = self.ready.sizes.packet_bytes_max as usize;
        let conns = CLIENTS.map(|name| self.script.conn(name));
        conns.iter().flatten().count() * (UNFINISHED_BYTES_MAX + packet + on_way)
    }

    /// Connections with all but the end of a CONNECT.
    fn strangers(&mut self) -> String {
        let properties = self.below(STRANGER_PROPERTIES_MAX + 1);
        let bytes = &self.ready.strangers[properties as usize];
        for number in 0..self.ready.sizes.strangers {
            let name = format!("x{number}");
            if self.script.conn(&name).is_none() {
                self.send(&name, bytes, 1);
            }
        }
        format!("strangers with {} bytes of a CONNECT", bytes.len())
    }

    /// Sessions with a large will each.
    fn crowd(&mut self) -> String {
        for (name, connect) in &self.ready.crowd {
            if self.script.conn(name).is_none() {
                self.send(name, connect, 1);
            }
        }
        "a crowd with wills".into()
    }
}
