//! The world: shards, links, bus, store and clock, moved by one queue of
//! events in order of time.

use core::time::Duration;
use std::collections::BTreeMap;

use bytes::Bytes;
use dunlin_base::transport::{
    CloseCause, NetCommand, NetCommandKind, NetEvent, NetEventKind, Peer, Transport,
};
use dunlin_base::{ConnId, Instant, ShardId, StreamId};
use dunlin_broker::auth::AuthAnswer;
use dunlin_broker::{BusMessage, Census, Config, Event, Input, Output, Shard};
use dunlin_store::{Recovered, Request, StoreDone};

use crate::auth::Users;
use crate::disk::{Disk, Fault};
use crate::link::{Link, ToClient, ToServer};
use crate::moves::Moves;
use crate::random::Random;
use crate::trace;

/// When the world begins. Not zero, so that nothing depends on that.
const BEGIN: Instant = Instant::from_micros(1_000_000_000_000);

/// Bytes of a stream that a client does not read at which the server learns it.
const BLOCKED_BYTES_MIN: usize = 16 << 10;

/// How often shards are asked to give memory back.
const SHRINK_EVERY: u64 = 7;

/// How long things take, in microseconds, from and to.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// From client to shard and back.
    pub link: (u64, u64),
    /// From shard to shard.
    pub bus: (u64, u64),
    /// Until a request to the store is done.
    pub store: (u64, u64),
    /// Until the authenticator answers.
    pub auth: (u64, u64),
    /// Streams to the client do not wait for each other.
    pub apart: bool,
    /// Bytes to the server arrive in pieces.
    pub split: bool,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            link: (100, 2_000),
            bus: (10, 1_500),
            store: (500, 5_000),
            auth: (1_000, 3_000),
            apart: false,
            split: true,
        }
    }
}

/// What a world is made from.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Number of shards.
    pub shards: u16,
    /// Decides every delay and every cut.
    pub seed: u64,
    /// Configuration of every shard; number, count and seed are filled in.
    pub config: Config,
    /// Delays.
    pub pace: Pace,
    /// Streams that clients let the server open at once.
    pub server_streams: u64,
    /// Transport of all connections. One over TCP moves to the shard of its
    /// session and has no streams besides control.
    pub transport: Transport,
    /// Application protocol of all connections, if it is not `mqtt`.
    pub protocol: Option<&'static str>,
    /// Users and passwords.
    pub users: &'static [(&'static str, &'static str)],
}

impl Setup {
    /// A quiet configuration: no `$SYS` messages.
    #[must_use]
    pub fn new(shards: u16, seed: u64) -> Self {
        let config = Config {
            sys_interval: Duration::ZERO,
            ..Config::default()
        };
        Self {
            shards,
            seed,
            config,
            pace: Pace::default(),
            server_streams: 0,
            transport: Transport::Quic,
            protocol: None,
            users: &[],
        }
    }
}

#[derive(Debug)]
enum Happening {
    Opened(ConnId, Box<Peer>),
    Server(ConnId, ToServer),
    Lost(ConnId),
    Sent(ConnId, usize),
    Blocked(ConnId, StreamId, usize),
    Bus {
        from: ShardId,
        to: usize,
        message: BusMessage,
    },
    Store(usize, Request),
    Stored(usize, StoreDone),
    Auth(usize, ConnId, AuthAnswer),
    Drain(usize),
    Client(ConnId, ToClient),
    /// A connection arrives at another shard.
    Attached {
        conn: ConnId,
        to: ShardId,
        unread: Bytes,
    },
}

/// Shards and everything around them.
#[derive(Debug)]
pub struct World {
    setup: Setup,
    now: Instant,
    random: Random,
    shards: Vec<Shard>,
    /// Things that happened to them.
    inputs: u64,
    draining: Vec<bool>,
    happenings: BTreeMap<(Instant, u64), Happening>,
    serial: u64,
    conns: u64,
    links: BTreeMap<ConnId, Link>,
    moves: Moves,
    inbox: Vec<Instant>,
    disk: Disk,
    disk_busy: Instant,
    disk_answered: Instant,
    users: Users,
    trace: u64,
    verbose: bool,
    log: Vec<Event>,
}

impl World {
    /// A world with empty shards.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let count = usize::from(setup.shards);
        let mut world = Self {
            now: BEGIN,
            random: Random::new(setup.seed),
            shards: Vec::new(),
            inputs: 0,
            draining: vec![false; count],
            happenings: BTreeMap::new(),
            serial: 0,
            conns: 0,
            links: BTreeMap::new(),
            moves: Moves::default(),
            inbox: vec![BEGIN; count],
            disk: Disk::default(),
            disk_busy: BEGIN,
            disk_answered: BEGIN,
            users: Users::new(setup.users),
            verbose: trace::is_on(),
            trace: 0xcbf2_9ce4_8422_2325,
            log: Vec::new(),
            setup,
        };
        world.start(&Recovered::default());
        world
    }

    /// The time.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// A number made of everything that arrived anywhere, and when.
    #[must_use]
    pub const fn trace(&self) -> u64 {
        self.trace
    }

    /// The world's own chance, for what a test decides.
    pub const fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// What the shards keep, summed up.
    #[must_use]
    pub fn census(&self) -> Census {
        self.shards
            .iter()
            .fold(Census::default(), |sum, shard| sum.plus(&shard.census()))
    }

    /// The shards.
    #[must_use]
    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// Lines for the log since the last call.
    pub fn take_log(&mut self) -> Vec<Event> {
        core::mem::take(&mut self.log)
    }

    /// Messages in the store.
    #[must_use]
    pub fn stored_messages(&self) -> usize {
        self.disk.stored_messages()
    }

    /// What a restart would find.
    #[must_use]
    pub fn stored(&self) -> Recovered {
        self.disk.recover()
    }

    /// Sets what is wrong with the disk.
    pub const fn set_fault(&mut self, fault: Fault) {
        self.disk.fault = fault;
    }

    /// A client on this machine opens a connection.
    pub fn open(&mut self) -> ConnId {
        self.open_from("127.0.0.1:40000", None)
    }

    /// A client opens a connection from an address, perhaps with the name of
    /// its certificate.
    ///
    /// # Panics
    /// `addr` is no address.
    pub fn open_from(&mut self, addr: &str, identity: Option<&str>) -> ConnId {
        self.conns += 1;
        let shard = self.conns % u64::from(self.setup.shards);
        let conn = ConnId::new(ShardId(shard as u16), self.conns);
        let peer = Peer {
            addr: addr.parse().expect("an address"),
            transport: self.setup.transport,
            listener: 0,
            identity: identity.map(Into::into),
            protocol: self.setup.protocol.unwrap_or("mqtt").into(),
            early_data: false,
        };
        let at = self.now + self.delay(self.setup.pace.link);
        let link = Link {
            last_to_server: at,
            last_to_client: at,
            credit: self.setup.server_streams,
            ..Link::default()
        };
        self.links.insert(conn, link);
        self.moves.open(conn, peer.clone());
        self.at(at, Happening::Opened(conn, Box::new(peer)));
        conn
    }

    /// The client sends bytes.
    pub fn send(&mut self, conn: ConnId, stream: StreamId, bytes: &[u8]) {
        if self.verbose {
            trace::packets(self.now, conn, ">", bytes);
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let len = if self.setup.pace.split && self.random.one_in(3) {
                self.random.between(1, rest.len() as u64) as usize
            } else {
                rest.len()
            };
            let (head, tail) = rest.split_at(len);
            rest = tail;
            self.client_does(conn, ToServer::Bytes(stream, head.to_vec()));
        }
    }

    /// The client sends no more on a stream.
    pub fn finish(&mut self, conn: ConnId, stream: StreamId) {
        self.client_does(conn, ToServer::Finished(stream));
    }

    /// The client abandons a stream.
    pub fn reset(&mut self, conn: ConnId, stream: StreamId, code: u64) {
        self.client_does(conn, ToServer::Reset(stream, code));
    }

    /// The client sends a datagram.
    pub fn datagram(&mut self, conn: ConnId, bytes: &[u8]) {
        self.client_does(conn, ToServer::Datagram(bytes.to_vec()));
    }

    /// The client lets the server open more streams.
    pub fn grant(&mut self, conn: ConnId, streams: u64) {
        let Some(link) = self.links.get_mut(&conn) else {
            return;
        };
        link.credit += streams;
        if core::mem::take(&mut link.refused) {
            let bidirectional = true;
            self.event(conn, NetEventKind::StreamsAvailable { bidirectional });
        }
    }

    /// The connection breaks: what is under way is lost, both sides notice
    /// after a while.
    pub fn cut(&mut self, conn: ConnId) {
        let Some(link) = self.links.remove(&conn) else {
            return;
        };
        self.happenings.retain(|_, happening| match happening {
            Happening::Server(of, _)
            | Happening::Client(of, _)
            | Happening::Sent(of, _)
            | Happening::Blocked(of, ..) => *of != conn,
            _ => true,
        });
        let at = self.now + self.delay(self.setup.pace.link);
        self.at(at.max(link.last_to_server), Happening::Lost(conn));
        let at = self.now + self.delay(self.setup.pace.link);
        self.at(at, Happening::Client(conn, ToClient::Closed(0)));
    }

    /// The client stops or resumes reading.
    pub fn stall(&mut self, conn: ConnId, stalled: bool) {
        let Some(link) = self.links.get_mut(&conn) else {
            return;
        };
        link.stalled = stalled;
        if !stalled {
            let unread = core::mem::take(&mut link.unread);
            let bytes = core::mem::take(&mut link.unread_bytes);
            for event in unread {
                self.at(self.now, Happening::Client(conn, event));
            }
            self.at(self.now, Happening::Sent(conn, bytes));
        }
    }

    /// The client stops or resumes reading one stream, of which its transport
    /// takes little ahead.
    pub fn stall_stream(&mut self, conn: ConnId, stream: StreamId, stalled: bool) {
        let Some(link) = self.links.get_mut(&conn) else {
            return;
        };
        if stalled {
            link.stalled_streams.entry(stream).or_default();
            return;
        }
        let unread = link.stalled_streams.remove(&stream).unwrap_or_default();
        let all: usize = unread.iter().map(Vec::len).sum();
        if all >= BLOCKED_BYTES_MIN {
            self.at(self.now, Happening::Blocked(conn, stream, 0));
        }
        for bytes in unread {
            let event = ToClient::Bytes(stream, bytes);
            self.at(self.now, Happening::Client(conn, event));
        }
    }

    /// Bytes that the server gave to streams that the client does not read.
    #[must_use]
    pub fn stalled_bytes(&self, conn: ConnId) -> usize {
        let link = self.links.get(&conn);
        let streams = link.into_iter().flat_map(|l| l.stalled_streams.values());
        streams.flatten().map(Vec::len).sum()
    }

    /// Bytes that the server gave to a connection whose client does not read.
    #[must_use]
    pub fn unread_bytes(&self, conn: ConnId) -> usize {
        self.links.get(&conn).map_or(0, |link| link.unread_bytes)
    }

    /// Bytes that a client has got.
    #[must_use]
    pub fn received_bytes(&self, conn: ConnId) -> u64 {
        self.links.get(&conn).map_or(0, |link| link.received)
    }

    /// Whether the connection stands.
    #[must_use]
    pub fn is_open(&self, conn: ConnId) -> bool {
        self.links.contains_key(&conn)
    }

    /// Idle timeout that the shard asked of the transport.
    #[must_use]
    pub fn idle_timeout(&self, conn: ConnId) -> Duration {
        let micros = self.links.get(&conn).map_or(0, |link| link.idle_timeout);
        Duration::from_micros(micros)
    }

    /// The process dies: connections break, what the store had not committed
    /// is lost, and the shards begin again from what it had.
    pub fn crash(&mut self) {
        if self.verbose {
            trace::line(self.now, "crash");
        }
        let conns: Vec<ConnId> = self.links.keys().copied().collect();
        self.links.clear();
        self.moves.lose_all();
        // Clients whose connection was lost before still have to notice.
        self.happenings
            .retain(|_, happening| matches!(happening, Happening::Client(_, ToClient::Closed(_))));
        for conn in conns {
            let at = self.now + self.delay(self.setup.pace.link);
            self.at(at, Happening::Client(conn, ToClient::Closed(0)));
        }
        self.draining.fill(false);
        self.disk_busy = self.now;
        let recovered = self.disk.recover();
        self.start(&recovered);
    }

    /// The process is asked to stop.
    pub fn shut_down(&mut self) {
        for index in 0..self.shards.len() {
            self.shards[index].shut_down(self.now);
            self.drain(index);
        }
    }

    /// Lets things happen until a client sees something, or until `until`.
    pub fn next(&mut self, until: Instant) -> Option<(ConnId, ToClient)> {
        loop {
            let event = self.happenings.keys().next().map(|key| key.0);
            let timer = self.shards.iter().filter_map(Shard::poll_timeout).min();
            let at = match (event, timer) {
                (Some(event), Some(timer)) => event.min(timer),
                (Some(at), None) | (None, Some(at)) => at,
                (None, None) => Instant::FAR_FUTURE,
            };
            if at > until {
                self.now = self.now.max(until);
                return None;
            }
            self.now = self.now.max(at);
            if event.is_none_or(|event| event > at) {
                self.run_timers();
            } else if let Some((_, happening)) = self.happenings.pop_first()
                && let Some(seen) = self.happen(happening)
            {
                return Some(seen);
            }
        }
    }

    /// Whether anything is under way, timers aside.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.happenings.is_empty()
    }

    /// As [`World::next`], until nothing is under way.
    pub fn next_before_quiet(&mut self) -> Option<(ConnId, ToClient)> {
        while let Some(&(at, _)) = self.happenings.keys().next() {
            if let Some(seen) = self.next(at) {
                return Some(seen);
            }
        }
        None
    }

    fn start(&mut self, recovered: &Recovered) {
        self.shards = (0..self.setup.shards)
            .map(|number| {
                let config = Config {
                    shard: ShardId(number),
                    shards: self.setup.shards,
                    seed: self.setup.seed,
                    ..self.setup.config.clone()
                };
                Shard::new(config, self.now)
            })
            .collect();
        for index in 0..self.shards.len() {
            self.shards[index].restore(recovered);
        }
        for index in 0..self.shards.len() {
            self.drain(index);
        }
    }

    fn run_timers(&mut self) {
        for index in 0..self.shards.len() {
            if self.shards[index]
                .poll_timeout()
                .is_some_and(|at| at <= self.now)
            {
                self.shards[index].handle_timeout(self.now);
                self.drain(index);
            }
        }
    }

    fn delay(&mut self, range: (u64, u64)) -> Duration {
        Duration::from_micros(self.random.between(range.0, range.1))
    }

    fn at(&mut self, at: Instant, happening: Happening) {
        self.serial += 1;
        self.happenings.insert((at, self.serial), happening);
    }

    fn client_does(&mut self, conn: ConnId, what: ToServer) {
        let delay = self.delay(self.setup.pace.link);
        let Some(link) = self.links.get_mut(&conn) else {
            return;
        };
        let at = link.last_to_server.max(self.now + delay);
        link.last_to_server = at;
        self.at(at, Happening::Server(conn, what));
    }

    fn note(&mut self, kind: u64, number: u64, bytes: &[u8]) {
        let words = [kind, number, self.now.as_micros()];
        let words = words.iter().flat_map(|word| word.to_le_bytes());
        for byte in words.chain(bytes.iter().copied()) {
            self.trace = (self.trace ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn happen(&mut self, happening: Happening) -> Option<(ConnId, ToClient)> {
        match happening {
            Happening::Client(conn, event) => return self.client_sees(conn, event),
            Happening::Opened(conn, peer) => {
                let peer = *peer;
                self.event(conn, NetEventKind::Opened { peer });
            }
            Happening::Server(conn, what) => self.server_sees(conn, what),
            Happening::Lost(conn) => {
                let cause = CloseCause::Failed("cut".into());
                self.closed(conn, cause);
            }
            Happening::Sent(conn, bytes) => {
                self.event(conn, NetEventKind::Sent { bytes });
            }
            Happening::Blocked(conn, stream, bytes) => {
                self.event(conn, NetEventKind::StreamBlocked { stream, bytes });
            }
            Happening::Bus { from, to, message } => {
                self.note(3, to as u64, &[]);
                self.input(to, Input::Bus { from, message });
            }
            Happening::Store(index, request) => {
                let done = self.disk.handle(&request);
                if self.verbose {
                    let text = format!("store of {index}: {request:?}: {done:?}");
                    trace::line(self.now, &text);
                }
                self.note(4, index as u64, &[]);
                let at = self.now + self.delay(self.setup.pace.bus);
                // Answers come in the order of the requests.
                let at = at.max(self.disk_answered);
                self.disk_answered = at;
                self.at(at, Happening::Stored(index, done));
            }
            Happening::Stored(index, done) => self.input(index, Input::Store(done)),
            Happening::Auth(index, conn, answer) => {
                self.input(index, Input::Auth { conn, answer });
            }
            Happening::Attached { conn, to, unread } => self.attach(conn, to, &unread),
            Happening::Drain(index) => {
                self.draining[index] = false;
                self.drain(index);
            }
        }
        None
    }

    fn client_sees(&mut self, conn: ConnId, event: ToClient) -> Option<(ConnId, ToClient)> {
        if let Some(link) = self.links.get_mut(&conn)
            && link.stalled
        {
            if let ToClient::Bytes(_, bytes) = &event {
                link.unread_bytes += bytes.len();
            }
            link.unread.push_back(event);
            return None;
        }
        if let ToClient::Bytes(stream, bytes) = &event
            && let Some(link) = self.links.get_mut(&conn)
            && let Some(unread) = link.stalled_streams.get_mut(stream)
        {
            let before: usize = unread.iter().map(Vec::len).sum();
            let (all, stream) = (before + bytes.len(), *stream);
            unread.push(bytes.clone());
            if before < BLOCKED_BYTES_MIN && all >= BLOCKED_BYTES_MIN {
                self.at(self.now, Happening::Blocked(conn, stream, all));
            }
            return None;
        }
        match &event {
            ToClient::Bytes(stream, bytes) => {
                let bytes = bytes.clone();
                if self.verbose {
                    trace::packets(self.now, conn, "<", &bytes);
                }
                self.note(1, stream.0, &bytes);
                if let Some(link) = self.links.get_mut(&conn) {
                    link.received += bytes.len() as u64;
                    self.at(self.now, Happening::Sent(conn, bytes.len()));
                }
            }
            ToClient::Closed(code) => {
                self.note(2, *code, &[]);
                self.links.remove(&conn);
            }
            ToClient::Finished(stream) => {
                // Its transport says so by itself.
                self.client_does(conn, ToServer::Delivered(*stream));
            }
            ToClient::Datagram(bytes) => self.note(5, 0, bytes),
            ToClient::Reset(stream, _) => {
                let link = self.links.get_mut(&conn);
                let unread = link.and_then(|link| link.stalled_streams.remove(stream));
                let all: usize = unread.iter().flatten().map(Vec::len).sum();
                self.at(self.now, Happening::Blocked(conn, *stream, 0));
                self.at(self.now, Happening::Sent(conn, all));
            }
        }
        Some((conn, event))
    }

    fn server_sees(&mut self, conn: ConnId, what: ToServer) {
        let Some(link) = self.links.get_mut(&conn) else {
            return;
        };
        if link.paused {
            link.waiting.push_back(what);
            return;
        }
        let kind = match &what {
            ToServer::Bytes(stream, data) => {
                if link.dead.contains(stream) {
                    return;
                }
                let (stream, data) = (*stream, data.as_slice());
                NetEventKind::Bytes { stream, data }
            }
            ToServer::Datagram(data) => {
                let data = data.as_slice();
                NetEventKind::Datagram { data }
            }
            ToServer::Delivered(stream) => NetEventKind::StreamDelivered { stream: *stream },
            ToServer::Finished(stream) => NetEventKind::StreamFinished { stream: *stream },
            ToServer::Reset(stream, code) => NetEventKind::StreamReset {
                stream: *stream,
                code: *code,
            },
        };
        self.event(conn, kind);
    }

    fn closed(&mut self, conn: ConnId, cause: CloseCause) {
        // One that is under way never arrives.
        if !self.moves.lose(conn) {
            self.event(conn, NetEventKind::Closed { cause });
        }
    }

    /// Something happens on a connection, under the id that its shard knows.
    fn event(&mut self, conn: ConnId, kind: NetEventKind<&[u8]>) {
        let conn = self.moves.at_shard(conn);
        self.input(conn_shard(conn), Input::Net(NetEvent::new(conn, kind)));
    }

    /// A connection leaves its shard; what arrives meanwhile waits.
    fn detach(&mut self, conn: ConnId, to: ShardId, unread: Bytes) {
        let conn = self.moves.at_client(conn);
        let Some(link) = self.links.get_mut(&conn) else {
            return;
        };
        link.paused = true;
        self.moves.leave(conn);
        let at = self.now + self.delay(self.setup.pace.bus);
        self.at(at, Happening::Attached { conn, to, unread });
    }

    fn attach(&mut self, conn: ConnId, to: ShardId, unread: &[u8]) {
        self.conns += 1;
        let id = ConnId::new(to, self.conns);
        let Some(peer) = self.moves.arrive(conn, id) else {
            return;
        };
        // What waited comes later than this instant.
        self.pause(conn, false);
        self.event(conn, NetEventKind::Opened { peer });
        let (stream, data) = (StreamId::CONTROL, unread);
        self.event(conn, NetEventKind::Bytes { stream, data });
    }

    /// Gives a shard something; its output is taken now, or together with that
    /// of what else arrives at this instant.
    fn input(&mut self, index: usize, input: Input<'_>) {
        // It may be asked for at any time, and must have no effect that shows.
        self.inputs += 1;
        if self.inputs.is_multiple_of(SHRINK_EVERY) {
            self.shards[index].shrink();
        }
        self.shards[index].handle(self.now, input);
        if !self.random.one_in(3) {
            self.drain(index);
        } else if !self.draining[index] {
            self.draining[index] = true;
            self.at(self.now, Happening::Drain(index));
        }
    }

    fn drain(&mut self, index: usize) {
        while let Some(output) = self.shards[index].poll_output() {
            match output {
                Output::Net(command) => self.command(index, command),
                Output::Bus { to, message } => {
                    let to = usize::from(to.0);
                    let at = self.now + self.delay(self.setup.pace.bus);
                    let at = at.max(self.inbox[to]);
                    self.inbox[to] = at;
                    let from = ShardId(index as u16);
                    self.at(at, Happening::Bus { from, to, message });
                }
                Output::Move { conn, to, unread } => self.detach(conn, to, unread),
                Output::Store(request) => {
                    let at = self.disk_busy.max(self.now) + self.delay(self.setup.pace.store);
                    self.disk_busy = at;
                    self.at(at, Happening::Store(index, request));
                }
                Output::Auth { conn, request } => {
                    let answer = self.users.answer(&request);
                    let at = self.now + self.delay(self.setup.pace.auth);
                    self.at(at, Happening::Auth(index, conn, answer));
                }
                Output::Event(Event::InternalError(missing)) => {
                    panic!("{missing} table entries are missing: a bug of the shard");
                }
                Output::Event(event) => self.log.push(event),
            }
        }
    }

    fn command(&mut self, index: usize, command: NetCommand) {
        let NetCommand { conn, kind } = command;
        assert_eq!(conn_shard(conn), index, "a command for someone's socket");
        let (server, conn) = (conn, self.moves.at_client(conn));
        match kind {
            NetCommandKind::Send {
                stream, mut data, ..
            } => {
                let bytes: Vec<u8> = data
                    .take_chunks()
                    .iter()
                    .flat_map(|chunk| chunk.iter().copied())
                    .collect();
                self.deliver(conn, ToClient::Bytes(stream, bytes));
                self.shards[index].recycle(data);
            }
            NetCommandKind::OpenStream { .. } => {
                let stream = self.links.get_mut(&conn).and_then(Link::open);
                let opened = NetEvent::new(server, NetEventKind::StreamOpened { stream });
                self.shards[index].handle(self.now, Input::Net(opened));
            }
            NetCommandKind::SendDatagram { data, .. } => {
                self.deliver(conn, ToClient::Datagram(data.to_vec()));
                self.at(self.now, Happening::Sent(conn, data.len()));
            }
            NetCommandKind::SetPriority { .. }
            | NetCommandKind::IsolateStreams { .. }
            | NetCommandKind::RepeatPackets { .. }
            | NetCommandKind::ExpectMore => {}
            NetCommandKind::FinishStream { stream, .. } => {
                self.deliver(conn, ToClient::Finished(stream));
            }
            NetCommandKind::ResetStream { stream, code, .. } => {
                if let Some(link) = self.links.get_mut(&conn) {
                    link.dead.push(stream);
                }
                self.deliver(conn, ToClient::Reset(stream, code));
            }
            NetCommandKind::Close { code, .. } => {
                if self.links.contains_key(&conn) {
                    self.deliver(conn, ToClient::Closed(code));
                    self.happenings.retain(
                        |_, happening| !matches!(happening, Happening::Server(of, _) if *of == conn),
                    );
                    if let Some(link) = self.links.get_mut(&conn) {
                        link.stalled = false;
                    }
                    let at = self.now + self.delay(self.setup.pace.link);
                    self.at(at, Happening::Lost(conn));
                }
            }
            NetCommandKind::SetIdleTimeout { timeout, .. } => {
                if let Some(link) = self.links.get_mut(&conn) {
                    link.idle_timeout = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
                }
            }
            NetCommandKind::PauseReading { paused, .. } => self.pause(conn, paused),
        }
    }

    fn pause(&mut self, conn: ConnId, paused: bool) {
        let Some(link) = self.links.get_mut(&conn) else {
            return;
        };
        link.paused = paused;
        if !paused {
            // Ahead of what is still under way.
            let waiting = core::mem::take(&mut link.waiting);
            let later: Vec<_> = self
                .happenings
                .iter()
                .filter(
                    |(_, happening)| matches!(happening, Happening::Server(of, _) if *of == conn),
                )
                .map(|(key, _)| *key)
                .collect();
            let mut all: Vec<ToServer> = waiting.into();
            for key in later {
                if let Some(Happening::Server(_, what)) = self.happenings.remove(&key) {
                    all.push(what);
                }
            }
            for what in all {
                self.client_does(conn, what);
            }
        }
    }

    fn deliver(&mut self, conn: ConnId, event: ToClient) {
        let delay = self.delay(self.setup.pace.link);
        let apart = self.setup.pace.apart;
        let Some(link) = self.links.get_mut(&conn) else {
            return;
        };
        let mut at = self.now + delay;
        let last = match &event {
            ToClient::Bytes(stream, _) | ToClient::Finished(stream) if apart => {
                link.last_on_stream.entry(*stream).or_insert(at)
            }
            ToClient::Datagram(_) if apart => &mut at.clone(),
            _ => &mut link.last_to_client,
        };
        at = at.max(*last);
        *last = at;
        // The end comes last.
        link.last_to_client = link.last_to_client.max(if apart { at } else { self.now });
        self.at(at, Happening::Client(conn, event));
    }
}

fn conn_shard(conn: ConnId) -> usize {
    usize::from(conn.shard().0)
}
