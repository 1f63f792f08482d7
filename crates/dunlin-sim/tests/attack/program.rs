//! Programs of hostile clients: random steps, each a burst of packets of one
//! kind. What a step sends it sends without waiting.

use dunlin_mqtt_codec::Version;
use dunlin_sim::{Link, Random, Script, encode};

/// Hostile clients with a session.
pub(crate) const CLIENTS: [&str; 3] = ["a", "b", "c"];

/// Connections that never finish a CONNECT.
pub(crate) const STRANGERS: u64 = 40;

/// Bytes of each of its properties.
const STRANGER_BYTES: usize = 60 << 10;

/// Most of these properties.
const STRANGER_PROPERTIES_MAX: u64 = 4;

/// Clients that only have a will.
pub(crate) const CROWD: u64 = 150;

/// Payload of such a will.
const CROWD_WILL_BYTES: usize = 60 << 10;

/// Streams of a client that it begins packets on.
const STREAMS: u64 = 16;

/// Payload of a packet that is not finished.
const UNFINISHED_BYTES: usize = 250 << 10;

/// Largest payload of a message.
const PAYLOAD_BYTES_MAX: u64 = 8 << 10;

/// Groups of one SUBSCRIBE.
const GROUPS_MAX: u64 = 500;

/// Bytes that a client leaves in its own buffers when it is not read from.
const UNREAD_BYTES_MAX: usize = 64 << 10;

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
pub(crate) struct Program {
    pub(crate) script: Script,
    random: Random,
    /// Levels of the topic that overlapping filters match.
    levels: u64,
    /// Bytes that the step has sent.
    pub(crate) sent: usize,
    serial: u64,
}

impl Program {
    pub(crate) fn new(script: Script, random: Random, levels: u64) -> Self {
        Self {
            script,
            random,
            levels,
            sent: 0,
            serial: 0,
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn packet(&mut self, name: &str, line: &str) {
        let bytes = encode(line, Version::V5);
        self.bytes(name, &bytes);
    }

    fn bytes(&mut self, name: &str, bytes: &[u8]) {
        if let Some(conn) = self.script.conn(name) {
            let link = self.script.world.link(conn);
            if link.is_some_and(|link| link.waiting_bytes() > UNREAD_BYTES_MAX) {
                return;
            }
        }
        self.sent += bytes.len();
        self.script.send_bytes(name, bytes);
    }

    /// Bytes that wait at the clients, because the broker does not read them.
    pub(crate) fn waiting_bytes(&mut self) -> usize {
        let conns = CLIENTS.map(|name| self.script.conn(name));
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
                let times = if self.below(2) == 0 { 500 } else { 10 };
                if times > 10 {
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
                let pings = 1 + self.below(2000);
                let bytes = [0xc0, 0].repeat(pings as usize);
                self.bytes(name, &bytes);
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
            let payload = "w".repeat(self.below(PAYLOAD_BYTES_MAX) as usize + 1);
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
            let copies = if times > 10 { 40 } else { 1 };
            for _ in 0..copies {
                line += &format!(" {filter}|q{qos}");
            }
        }
        if self.below(2) == 0 {
            line += &format!(" sub={}", 1 + self.below(1000));
        }
        for _ in 0..times {
            self.packet(name, &line);
        }
        line.truncate(60);
        format!("{name}: {times} times {line}")
    }

    /// All filters that match one topic, each with an identifier.
    fn overlap(&mut self, name: &str) -> String {
        let levels = self.levels;
        let mut all = Vec::new();
        for number in 0..1_u64 << levels {
            let level = |bit| if number >> bit & 1 == 1 { "+" } else { "t" };
            let filter: Vec<&str> = (0..levels).map(level).collect();
            let line = format!("SUBSCRIBE 2 sub={} {}", number + 1, filter.join("/"));
            all.extend(encode(&line, Version::V5));
        }
        self.bytes(name, &all);
        format!("{name}: overlap, {levels} levels")
    }

    fn retain(&mut self, name: &str) -> String {
        let count = 1 + self.below(40);
        let len = 1 + self.below(PAYLOAD_BYTES_MAX);
        let payload = "r".repeat(len as usize);
        for _ in 0..count {
            let topic = self.below(300);
            self.packet(name, &format!("PUBLISH r/{topic} {payload} retain"));
        }
        format!("{name}: {count} retained of {len} bytes")
    }

    fn publish(&mut self, name: &str) -> String {
        let count = 1 + self.below(20);
        let (qos, len) = (self.below(3), 1 + self.below(200));
        let deep = vec!["t"; self.levels as usize].join("/");
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
        let count = 1 + self.below(GROUPS_MAX);
        let mut line = String::from("SUBSCRIBE 3");
        for group in 0..count {
            line += &format!(" $share/g{group}/t/#|q1");
        }
        self.packet(name, &line);
        format!("{name}: {count} groups")
    }

    /// All but the end of a packet, on every stream.
    fn unfinished(&mut self, name: &str) -> String {
        let whole = encode(
            &format!("PUBLISH t/1 {}", "u".repeat(UNFINISHED_BYTES)),
            Version::V5,
        );
        let most = &whole[..whole.len() - 1];
        for stream in 0..=STREAMS {
            self.bytes(&format!("{name}@{}", stream * 4), most);
        }
        format!("{name}: unfinished packets")
    }

    /// Connections with all but the end of a CONNECT.
    fn strangers(&mut self) -> String {
        let properties = self.below(STRANGER_PROPERTIES_MAX + 1);
        let mut line = format!("CONNECT {} clean", "s".repeat(20 << 10));
        for _ in 0..properties {
            line += &format!(" u=k:{}", "v".repeat(STRANGER_BYTES));
        }
        let whole = encode(&line, Version::V5);
        for number in 0..STRANGERS {
            let name = format!("x{number}");
            if self.script.conn(&name).is_none() {
                self.bytes(&name, &whole[..whole.len() - 1]);
            }
        }
        format!("strangers with most of a CONNECT of {} bytes", whole.len())
    }

    /// Sessions with a large will each.
    fn crowd(&mut self) -> String {
        let payload = "y".repeat(CROWD_WILL_BYTES);
        for number in 0..CROWD {
            let name = format!("y{number}");
            if self.script.conn(&name).is_none() {
                let line = format!("CONNECT {name} expiry=100000 will=y/w:{payload} wq=1");
                self.packet(&name, &line);
            }
        }
        "a crowd with wills".into()
    }
}
