//! Conversations as text, so that a test reads like the figures of the
//! specification.
//!
//! One step a line: `NAME > PACKET` sends and lets everything happen that
//! follows, `NAME >> PACKET` only sends, `NAME < PACKET` reads the next packet
//! that the server sent, `NAME < closed` its end of the connection. `NAME > PACKET =>
//! ANSWER` sends and reads. A name is a client, or `client@4` for stream 4 of its
//! connection and `client@d` for its datagrams, or `client_1` for one that comes to
//! listener 1; it connects when it first sends, and again after its connection has ended. `NAME cut` breaks
//! the connection, `NAME finish` ends the client's side of the stream, `NAME
//! stall` and `NAME read` stop and resume reading (of `client@4`: that stream), `NAME reset 0xbe` abandons
//! a stream, `NAME grant` lets the server open one more, `NAME v4` expects answers in
//! 3.1.1 to bytes that are no CONNECT. `wait 10s` and `wait
//! 300ms` let time pass; `crash`, `stop`, `disk full`, `disk ok` are what
//! happens to the server; `acl LINE; LINE` replaces its access list, `acl -`
//! takes it away, and `user NAME PASSWORD` changes a user, `user NAME -` removes
//! one; `says TOPIC yes 10` is what a server says of a topic, or `no` or `down`, and for how many seconds. `set KEY=VALUE` at the top changes the
//! configuration; `set edges=0` is for what is another where edges are processes of their own.
//! What a client receives and no line reads is an error at
//! the next step.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dunlin_base::{ConnId, QoS, StreamId};
use dunlin_broker::access::WhenDown;
use dunlin_broker::auth::{Anonymous, AuthPolicy, Partial};
use dunlin_broker::{
    Automatic, Bounds, BridgeSession, Config, OtherUser, Overflow, Priority, QueueFull, Quota,
    Rewrite, RewriteOf, SysEvent,
};
use dunlin_mqtt::flow::{self, FlowHeader};
use dunlin_mqtt_codec::{Packet, Version, decode, peek};

use crate::disk::Fault;
use crate::link::ToClient;
use crate::notation::{encode, show};
use crate::setup::Setup;
use crate::world::{World, open_as, open_at, set_acl, set_limits, set_ruling, set_user};

/// What scripts call stream `d`.
const DATAGRAM: StreamId = StreamId(u64::MAX);

/// Users of scripts.
const USERS: &[(&str, &str)] = &[("alice", "secret"), ("bob", "hunter2")];

#[derive(Debug, Default)]
struct Client {
    conn: Option<ConnId>,
    /// Its packets are checked, and kept for no line.
    ignored: bool,
    /// It speaks AMQP: what it receives is not looked at.
    opaque: bool,
    version: Version,
    partial: BTreeMap<StreamId, Vec<u8>>,
    /// Streams of the server whose flow header has come.
    headed: BTreeSet<StreamId>,
    unread: VecDeque<(StreamId, String)>,
}

/// A conversation under way.
#[derive(Debug)]
pub struct Script {
    /// The world that it happens in.
    pub world: World,
    /// Packets that clients have received.
    pub received: u64,
    /// Most Subscription Identifiers of one message among them.
    pub identifiers: usize,
    clients: Vec<Client>,
    names: BTreeMap<String, usize>,
    /// Clients by their connection.
    conns: BTreeMap<ConnId, usize>,
    /// The only client whose packets are kept, if that is not all.
    watched: Option<String>,
}

/// Shards, edges and seeds that a script runs against.
const RUNS: [(u16, u16, u64); 7] = [
    (1, 0, 1),
    (1, 0, 2),
    (2, 0, 1),
    (2, 0, 2),
    (2, 0, 3),
    (1, 2, 4),
    (2, 3, 5),
];

/// Runs a script against one shard, with several seeds against two, and against homes and
/// edges.
///
/// # Panics
/// The conversation does not go as written; the message has shards, edges, seed and
/// line.
pub fn check(script: &str) {
    check_with(script, |_| {});
}

/// As [`check`], with another configuration.
///
/// # Panics
/// As [`check`].
pub fn check_with(script: &str, change: impl Fn(&mut Setup)) {
    for (shards, edges, seed) in RUNS {
        let mut setup = Setup::new(shards, seed);
        setup.edges = edges;
        setup.users = USERS;
        change(&mut setup);
        for line in script.lines().map(str::trim) {
            if let Some(pair) = line.strip_prefix("set ") {
                set(&mut setup, pair);
            }
        }
        let mut run = Script::new(setup);
        for (number, line) in script.lines().enumerate() {
            if let Err(error) = run.step(line.trim()) {
                panic!(
                    "shards {shards}, edges {edges}, seed {seed}, line {}: {}: {error}",
                    number + 1,
                    line.trim()
                );
            }
        }
        if let Err(error) = run.nothing_unread() {
            panic!("shards {shards}, edges {edges}, seed {seed}, at the end: {error}");
        }
    }
}

fn when_down(value: &str) -> WhenDown {
    match value {
        "allow" => WhenDown::Allow,
        "last" => WhenDown::Last,
        _ => WhenDown::Deny,
    }
}

fn set(setup: &mut Setup, pair: &str) {
    let (key, value) = pair.split_once('=').expect("KEY=VALUE");
    match key {
        "server_streams" => return setup.server_streams = value.parse().expect("a number"),
        "protocol" => return setup.protocol = (value == flow::ALPN).then_some(flow::ALPN),
        "acl" => return setup.acl = access_list(value),
        "edges" => return setup.edges = value.parse().expect("a number"),
        "asks" => return setup.asks = Some(when_down(value)),
        _ => {}
    }
    let config = &mut setup.config;
    let number = || value.parse::<usize>().expect("a number");
    match key {
        "receive_maximum" => config.clients.receive_maximum = number() as u16,
        "packet_bytes_max" => config.clients.packet_bytes_max = number() as u32,
        "keep_alive_secs_max" => config.clients.keep_alive_secs_max = number() as u16,
        "session_expiry_secs_max" => config.sessions.session_expiry_secs_max = number() as u32,
        "topic_alias_maximum" => config.clients.topic_alias_maximum = number() as u16,
        "queue_messages_max" => config.sessions.queue_messages_max = number(),
        "queue_held_max" => config.sessions.queue_held_max = number(),
        "retained_max" => config.retained_max = number(),
        "memory" => config.memory.bytes = number(),
        "retained_bytes_max" => config.memory.retained_bytes_max = Some(number()),
        "will_bytes_max" => config.memory.will_bytes_max = Some(number()),
        "subscription_bytes_max" => config.memory.subscription_bytes_max = number(),
        "sessions_max" => config.memory.sessions_max = number(),
        "sessions_per_user_max" => config.memory.sessions_per_user_max = number(),
        "user_bytes_max" => config.memory.user_bytes_max = number(),
        "address_bytes_max" => config.memory.address_bytes_max = number(),
        "overlaps_max" => config.sessions.overlaps_max = number(),
        "subscriptions_max" => config.sessions.subscriptions_max = number(),
        "data_streams_max" => config.clients.data_streams_max = number(),
        "connections_max" => config.clients.connections_max = number(),
        "inflight_max" => config.sending.inflight_max = number() as u16,
        "delivery_streams_max" => config.sending.delivery_streams_max = number(),
        "datagrams" => config.sending.datagrams = value == "yes",
        "priority" => {
            let (filter, level) = value.split_once('|').expect("FILTER|LEVEL");
            config.sending.priorities.push(Priority {
                filter: filter.into(),
                level: level.parse().expect("a level"),
            });
        }
        "durable" => config.durable = value == "yes",
        "other_user" => config.sessions.other_user = OtherUser::StartClean,
        "queue_full" if value == "drop" => config.sessions.queue_full = QueueFull::DropNewest,
        "bridge" => {
            config.bridges.listener = Some(0);
            let session = bridge(value, config.sessions.queue_bytes_max);
            config.bridges.sessions.push(session);
        }
        "access" => {
            config.listeners = vec![AuthPolicy {
                anonymous: match value {
                    "passwords" | "tokens" => Anonymous::Never,
                    _ => Anonymous::Loopback,
                },
                passwords: true,
                tokens: value == "tokens",
                ..AuthPolicy::default()
            }];
        }
        key => set_rule(config, key, value),
    }
}

/// Rules of operators about topics and clients.
fn set_rule(config: &mut Config, key: &str, value: &str) {
    let number = || value.parse::<usize>().expect("a number");
    match key {
        "filter_subscriptions" => {
            if config.listeners.is_empty() {
                config.listeners.push(AuthPolicy::default());
            }
            for policy in &mut config.listeners {
                policy.partial = Partial::Filtered;
            }
        }
        "mounts" => config.topics.mounts = value.split('|').map(Into::into).collect(),
        "rewrite" => config.topics.rewrites.push(rewrite(value)),
        "automatic" => config.topics.automatic.push(automatic(value)),
        "sparkplug" => config.topics.sparkplug = value == "yes",
        "delayed_max" => config.topics.delays.messages_max = number(),
        "delayed_bytes_max" => config.topics.delays.bytes_max = number(),
        "mosquitto" => config.sys.mosquitto = value == "yes",
        "sys_interval" => config.sys.interval = duration(value),
        "events" => {
            let all = SysEvent::ALL.into_iter();
            let wanted = all.filter(|event| value.split('|').any(|it| it == event.name()));
            config.sys.events = wanted.collect();
        }
        "quota" => config.quotas.0.push(quota(value)),
        other => unreachable!("no such setting: {other}"),
    }
}

/// `ACTION|FROM|TO`.
fn rewrite(value: &str) -> Rewrite {
    let parts: Vec<&str> = value.split('|').collect();
    let of = match parts[0] {
        "publish" => RewriteOf::Publish,
        "subscribe" => RewriteOf::Subscribe,
        _ => RewriteOf::All,
    };
    Rewrite::new(of, parts[1], parts[2]).expect("a rule")
}

/// `FILTER|QOS`, perhaps with `|USER`.
fn automatic(value: &str) -> Automatic {
    let parts: Vec<&str> = value.split('|').collect();
    let qos = parts[1].parse().ok().and_then(QoS::from_u8);
    let rule = Automatic::new(parts[0], qos.expect("a QoS")).expect("a rule");
    rule.of(None, parts.get(2).map(|user| (*user).into()))
}

/// `MESSAGES|BYTES|DEBT|PACKET|QUEUE|SESSIONS`, perhaps with `|USER`; without a burst.
fn quota(value: &str) -> Quota {
    let parts: Vec<&str> = value.split('|').collect();
    let number = |at: usize| parts[at].parse::<usize>().expect("a number");
    Quota {
        messages: number(0) as u64,
        bytes: number(1) as u64,
        debt: duration(parts[2]),
        packet_bytes_max: number(3) as u32,
        queue_messages_max: number(4),
        sessions_max: number(5),
        user: parts.get(6).map(|user| (*user).into()),
        ..Quota::default()
    }
}

/// The session of a bridge, whose full queue drops the oldest, as `ID|MESSAGES`.
fn bridge(value: &str, bytes_max: usize) -> BridgeSession {
    let (id, max) = value.split_once('|').expect("ID|MESSAGES");
    BridgeSession {
        client_id: id.into(),
        bounds: Bounds {
            messages_max: max.parse().expect("a number"),
            bytes_max,
            overflow: Overflow::DropOldest,
        },
    }
}

impl Script {
    /// A conversation that has not begun.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let mut world = World::new(setup);
        // Edges join.
        while world.next_before_quiet().is_some() {}
        Self {
            world,
            received: 0,
            identifiers: 0,
            clients: Vec::new(),
            names: BTreeMap::new(),
            conns: BTreeMap::new(),
            watched: None,
        }
    }

    /// Keeps the packets of this client only; those of clients that come later are
    /// checked and not kept.
    pub fn watch_only(&mut self, name: &str) {
        self.watched = Some(name.to_owned());
    }

    /// Does one line.
    ///
    /// # Errors
    /// What did not go as written.
    pub fn step(&mut self, line: &str) -> Result<(), String> {
        let line = line.split("  #").next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with('#') || line.starts_with("set ") {
            return Ok(());
        }
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        if let Some(expected) = rest.strip_prefix("< ") {
            return self.read(name, expected);
        }
        if let Some(packet) = rest.strip_prefix(">> ") {
            self.send_line(name, packet);
            return Ok(());
        }
        self.nothing_unread()?;
        match (name, rest) {
            ("wait", time) => self.run_for(duration(time)),
            ("crash", _) => {
                self.world.crash();
                self.settle();
                let clients = self.clients.iter_mut();
                clients.for_each(|client| client.unread.clear());
            }
            ("limits", pair) => set_limits(&mut self.world, |setup| set(setup, pair)),
            ("acl", lines) => set_acl(&mut self.world, access_list(lines).as_deref()),
            ("user", words) => {
                let (user, password) = words.split_once(' ').expect("a user and a password");
                let password = (password != "-").then_some(password);
                set_user(&mut self.world, user, password);
            }
            ("says", words) => {
                let words: Vec<&str> = words.split(' ').collect();
                let &[topic, says, secs] = &words[..] else {
                    return Err("a topic, yes, no or down, and seconds".into());
                };
                set_ruling(&mut self.world, topic, says, secs.parse().expect("seconds"));
            }
            ("stop", _) => self.world.shut_down(),
            ("disk", "full") => self.world.disk.fault = Fault::Full,
            ("disk", "broken") => self.world.disk.fault = Fault::Broken,
            ("disk", _) => self.world.disk.fault = Fault::None,
            (name, "v4") => self.client(name).version = Version::V311,
            (name, rest) if self.act(name, rest) => {}
            (name, rest) => match rest.strip_prefix("> ") {
                Some(exchange) => return self.exchange(name, exchange),
                None => return Err("not understood".into()),
            },
        }
        self.settle();
        Ok(())
    }

    /// Sends a packet, lets everything happen that follows, and reads the answer if
    /// there is one in the line.
    /// Does one line, which must go as written.
    ///
    /// # Panics
    /// It did not.
    pub fn say(&mut self, line: impl AsRef<str>) {
        let line = line.as_ref();
        let done = self.step(line);
        done.unwrap_or_else(|error| panic!("{line}: {error}"));
    }

    /// Forgets what came for a client and was not looked at.
    pub fn ignore(&mut self, name: &str) {
        while self.pop(name).is_some() {}
    }

    fn exchange(&mut self, name: &str, exchange: &str) -> Result<(), String> {
        let (packet, answer) = match exchange.split_once(" => ") {
            Some((packet, answer)) => (packet, Some(answer)),
            None => (exchange, None),
        };
        self.send_line(name, packet);
        self.settle();
        answer.map_or(Ok(()), |answer| self.read(name, answer))
    }

    /// What a client does besides sending packets; `false` if it is not known.
    pub fn act(&mut self, name: &str, what: &str) -> bool {
        let words = ["cut", "finish", "grant", "stall", "read"];
        if !words.contains(&what) && !what.starts_with("reset ") {
            return false;
        }
        let Some(conn) = self.client(name).conn else {
            return true;
        };
        let stalled = what == "stall";
        match what {
            "cut" => {
                let client = self.client(name);
                client.unread.clear();
                client.conn = None;
                self.conns.remove(&conn);
                self.world.cut(conn);
            }
            "finish" => self.world.finish(conn, stream(name)),
            "grant" => self.world.grant(conn, 1),
            "stall" | "read" if name.contains('@') => {
                self.world.stall_stream(conn, stream(name), stalled);
            }
            "stall" | "read" => self.world.stall(conn, stalled),
            reset => {
                let code = reset.trim_start_matches("reset 0x");
                let code = u64::from_str_radix(code, 16).expect("hexadecimal");
                self.world.reset(conn, stream(name), code);
            }
        }
        true
    }

    /// Lets everything happen that is under way.
    pub fn settle(&mut self) {
        while let Some((conn, event)) = self.world.next_before_quiet() {
            self.take(conn, event);
        }
    }

    /// Lets time pass.
    pub fn run_for(&mut self, time: Duration) {
        let until = self.world.now() + time;
        while let Some((conn, event)) = self.world.next(until) {
            self.take(conn, event);
        }
    }

    /// Reads the next packet of a client without judging it.
    pub fn pop(&mut self, name: &str) -> Option<String> {
        self.client(name).unread.pop_front().map(|(_, line)| line)
    }

    /// The connection of a client.
    pub fn conn(&mut self, name: &str) -> Option<ConnId> {
        self.client(name).conn
    }

    /// Sends bytes as they are. A connection that begins with the header of AMQP
    /// speaks it.
    pub fn send_bytes(&mut self, name: &str, bytes: &[u8]) {
        let stream = stream(name);
        let conn = match self.client(name).conn {
            Some(conn) => conn,
            None => {
                let opaque = bytes.starts_with(b"AMQP");
                let conn = match opaque {
                    true => open_as(&mut self.world, "amqp", "127.0.0.1:40000", None),
                    false => open_at(&mut self.world, listener(name)),
                };
                let at = self.place(name);
                self.conns.insert(conn, at);
                let client = &mut self.clients[at];
                client.opaque = opaque;
                client.partial.clear();
                client.headed.clear();
                *client.conn.insert(conn)
            }
        };
        match stream {
            DATAGRAM => self.world.datagram(conn, bytes),
            stream => self.world.send(conn, stream, bytes),
        }
    }

    /// Sends a packet and waits for nothing.
    pub fn send_line(&mut self, name: &str, packet: &str) {
        if packet.starts_with("CONNECT ") {
            let version = match packet.split(' ').any(|word| word == "v4") {
                true => Version::V311,
                false => Version::V5,
            };
            self.client(name).version = version;
        }
        let bytes = encode(packet, self.client(name).version);
        self.send_bytes(name, &bytes);
    }

    fn read(&mut self, name: &str, expected: &str) -> Result<(), String> {
        let wanted = name.contains('@').then(|| stream(name));
        let unread = &mut self.client(name).unread;
        let at = unread
            .iter()
            .position(|(on, _)| wanted.is_none_or(|wanted| wanted == *on));
        match at.and_then(|at| unread.remove(at)) {
            None => Err("nothing came".into()),
            Some((_, line)) if line == expected => Ok(()),
            Some((on, line)) => Err(format!("came instead, on stream {}: {line}", on.0)),
        }
    }

    fn nothing_unread(&self) -> Result<(), String> {
        for (name, at) in &self.names {
            let client = &self.clients[*at];
            if !client.unread.is_empty() {
                return Err(format!("{name} has not read {:?}", client.unread));
            }
        }
        Ok(())
    }

    fn place(&mut self, name: &str) -> usize {
        let name = name.split('@').next().unwrap_or(name);
        if let Some(at) = self.names.get(name) {
            return *at;
        }
        self.names.insert(name.to_owned(), self.clients.len());
        let watched = self.watched.as_deref();
        self.clients.push(Client {
            ignored: watched.is_some_and(|watched| watched != name),
            ..Client::default()
        });
        self.clients.len() - 1
    }

    fn client(&mut self, name: &str) -> &mut Client {
        let at = self.place(name);
        &mut self.clients[at]
    }

    fn take(&mut self, conn: ConnId, event: ToClient) {
        let Some(&at) = self.conns.get(&conn) else {
            return;
        };
        let client = &mut self.clients[at];
        match event {
            ToClient::Bytes(stream, bytes) => {
                let (received, identifiers) = client.bytes(stream, &bytes);
                self.received += received;
                self.identifiers = self.identifiers.max(identifiers);
            }
            ToClient::Datagram(bytes) => {
                self.received += 1;
                client.packet(DATAGRAM, &bytes);
            }
            ToClient::Finished(stream) => client.note(stream, || "finished".into()),
            ToClient::Reset(stream, code) => client.note(stream, || format!("reset {code:#04x}")),
            ToClient::Closed(code) => {
                client.conn = None;
                self.conns.remove(&conn);
                client.note(StreamId::CONTROL, || match code {
                    0 => "closed".into(),
                    code => format!("closed {code}"),
                });
            }
        }
    }
}

impl Client {
    fn note(&mut self, stream: StreamId, line: impl FnOnce() -> String) {
        if !self.ignored {
            self.unread.push_back((stream, line()));
        }
    }

    /// Takes bytes of a stream; how many packets ended in them, and the most
    /// Subscription Identifiers of one.
    fn bytes(&mut self, stream: StreamId, bytes: &[u8]) -> (u64, usize) {
        if self.opaque {
            return (0, 0);
        }
        let mut partial = self.partial.remove(&stream).unwrap_or_default();
        partial.extend_from_slice(bytes);
        let mut rest = &partial[..];
        if stream.is_server_initiated()
            && self.headed.insert(stream)
            && let Ok(Some((header, len))) = FlowHeader::parse(rest)
        {
            rest = &rest[len..];
            let id = match header {
                FlowHeader::Data { id, .. } | FlowHeader::User { id } => id,
                FlowHeader::Control { .. } => 0,
            };
            self.note(stream, || format!("flow {id}"));
        }
        let (mut packets, mut identifiers) = (0, 0);
        while let Some(frame) = peek(rest, u32::MAX).expect("the server's packets")
            && let Some((packet, after)) = rest.split_at_checked(frame.total_len)
        {
            identifiers = identifiers.max(self.packet(stream, packet));
            packets += 1;
            rest = after;
        }
        let taken = partial.len() - rest.len();
        partial.drain(..taken);
        if !partial.is_empty() {
            self.partial.insert(stream, partial);
        }
        (packets, identifiers)
    }

    fn packet(&mut self, stream: StreamId, packet: &[u8]) -> usize {
        // Hostile bytes may have asked for the other version.
        let other = match self.version {
            Version::V5 => Version::V311,
            _ => Version::V5,
        };
        let decoded = decode(packet, self.version)
            .or_else(|_| decode(packet, other))
            .expect("the server's packets");
        let version = self.version;
        self.note(stream, || show(&decoded, version));
        match &decoded {
            Packet::Publish(publish) => publish.properties.subscription_identifiers.iter().count(),
            _ => 0,
        }
    }
}

/// `LINE; LINE`, or `-` for no list.
fn access_list(lines: &str) -> Option<String> {
    (lines != "-").then(|| lines.split("; ").collect::<Vec<_>>().join("\n"))
}

/// The listener that a client comes to.
fn listener(name: &str) -> u16 {
    let name = name.split('@').next().unwrap_or(name);
    let number = name.rsplit_once('_').and_then(|(_, it)| it.parse().ok());
    number.unwrap_or(0)
}

fn stream(name: &str) -> StreamId {
    let number = name.split_once('@').map_or("0", |(_, number)| number);
    if number == "d" {
        return DATAGRAM;
    }
    StreamId(number.parse().expect("a stream number"))
}

fn duration(text: &str) -> Duration {
    if let Some(millis) = text.strip_suffix("ms") {
        return Duration::from_millis(millis.parse().expect("milliseconds"));
    }
    let secs = text.strip_suffix('s').unwrap_or(text);
    Duration::from_secs(secs.parse().expect("seconds"))
}
