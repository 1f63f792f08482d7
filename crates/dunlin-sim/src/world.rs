//! The world: shards, links, bus, store and clock, moved by one queue of
//! events in order of time.

mod bus;
mod clients;
mod cluster;

pub use clients::{channel_of, open_as, open_at, open_on, takes_connections};
pub use cluster::{
    crash_edge, crash_homes, crash_store, is_lost, is_ready, is_store_ready, is_store_up, is_up,
    join_edge, start_store,
};

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use dunlin_base::transport::{CloseCause, NetCommand, NetCommandKind, NetEvent, NetEventKind};
use dunlin_base::{ConnId, Instant, ShardId, StreamId, Text};
use dunlin_broker::access::{Access, Acl};
use dunlin_broker::control::values::{Reply, Request};
use dunlin_broker::{Census, Config, Event, Input, Output, Shard};

use crate::agenda::{Agenda, BEGIN, Happening};
use crate::auth::Users;
use crate::disk::Disk;
use crate::link::{Link, ToClient, ToServer};
use crate::moves::Moves;
use crate::random::Random;
use crate::setup::Setup;
use crate::trace::Trace;
use crate::world::cluster::Cluster;

/// How often shards are asked to give memory back.
const SHRINK_EVERY: u64 = 7;

/// Shards and everything around them.
#[derive(Debug)]
pub struct World {
    setup: Setup,
    agenda: Agenda,
    shards: Vec<Shard>,
    /// Things that happened to the shards.
    pub inputs: u64,
    draining: Vec<bool>,
    conns: u64,
    links: BTreeMap<ConnId, Link>,
    moves: Moves,
    cluster: Cluster,
    /// The store, or that of the first homes.
    pub disk: Disk,
    /// The stores of the other homes, in order.
    pub disks: Vec<Disk>,
    /// By shard; the first is that of all, unless their requests go apart.
    disk_busy: Vec<Instant>,
    disk_answered: Instant,
    users: Users,
    /// The access list: the same one until another is set.
    acl: Option<Arc<Acl>>,
    /// How exchanges of SCRAM ended, by user.
    pub proofs: Vec<(Text, bool)>,
    trace: Trace,
    log: Vec<Event>,
    /// Answers to operators.
    pub replies: Vec<Reply>,
}

impl World {
    /// A world with empty shards.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let count = usize::from(setup.shards + setup.edges);
        let cluster = Cluster::new(
            setup.shards,
            setup.edges,
            setup.config.nodes.homes_per_store,
        );
        let mut world = Self {
            agenda: Agenda::new(setup.seed),
            shards: (0..count)
                .map(|_| Shard::new(Config::default(), BEGIN))
                .collect(),
            inputs: 0,
            draining: vec![false; count],
            conns: 0,
            links: BTreeMap::new(),
            moves: Moves::default(),
            disks: vec![Disk::default(); cluster.stores() - 1],
            cluster,
            disk: Disk::default(),
            disk_busy: vec![BEGIN; count],
            disk_answered: BEGIN,
            users: Users::new(setup.users),
            acl: parsed(setup.acl.as_deref()),
            proofs: Vec::new(),
            trace: Trace::new(),
            log: Vec::new(),
            replies: Vec::new(),
            setup,
        };
        world.start();
        world
    }

    /// The time.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.agenda.now
    }

    /// A number made of everything that arrived anywhere, and when.
    #[must_use]
    pub const fn trace(&self) -> u64 {
        self.trace.hash()
    }

    /// The world's own chance, for what a test decides.
    pub const fn random(&mut self) -> &mut Random {
        &mut self.agenda.random
    }

    /// What the shards keep, summed up.
    #[must_use]
    pub fn census(&self) -> Census {
        let up = self.shards.iter().enumerate();
        let up = up.filter(|(place, _)| self.cluster.is_up(*place));
        up.fold(Census::default(), |sum, (_, shard)| {
            sum.plus(&shard.census())
        })
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

    /// The connection of a client, as long as it stands.
    #[must_use]
    pub fn link(&self, conn: ConnId) -> Option<&Link> {
        self.links.get(&conn)
    }

    /// Whether the connection stands.
    #[must_use]
    pub fn is_open(&self, conn: ConnId) -> bool {
        self.links.contains_key(&conn)
    }

    /// The process dies: connections break, what the store had not committed
    /// is lost, and the shards begin again from what it had.
    pub fn crash(&mut self) {
        self.trace.line(self.agenda.now, || "crash".into());
        let conns: Vec<ConnId> = self.links.keys().copied().collect();
        self.links.clear();
        self.moves.lose_all();
        // Clients whose connection was lost before still have to notice.
        self.agenda
            .retain(|happening| matches!(happening, Happening::Client(_, ToClient::Closed(_))));
        for conn in conns {
            let at = self.agenda.soon(self.setup.pace.link);
            self.agenda
                .at(at, Happening::Client(conn, ToClient::Closed(0)));
        }
        self.draining.fill(false);
        self.disk_busy.fill(self.agenda.now);
        self.start();
    }

    /// The process is asked to stop.
    pub fn shut_down(&mut self) {
        for index in 0..self.shards.len() {
            if self.cluster.is_up(index) {
                self.shards[index].shut_down(self.agenda.now);
                self.drain(index);
            }
        }
    }

    /// Lets things happen until a client sees something, or until `until`.
    pub fn next(&mut self, until: Instant) -> Option<(ConnId, ToClient)> {
        loop {
            let event = self.agenda.next();
            let timer = timers(self).min();
            let at = match (event, timer) {
                (Some(event), Some(timer)) => event.min(timer),
                (Some(at), None) | (None, Some(at)) => at,
                (None, None) => Instant::FAR_FUTURE,
            };
            if at > until {
                self.agenda.now = self.agenda.now.max(until);
                return None;
            }
            self.agenda.now = self.agenda.now.max(at);
            if event.is_none_or(|event| event > at) {
                self.run_timers();
            } else if let Some(happening) = self.agenda.pop()
                && let Some(seen) = self.happen(happening)
            {
                return Some(seen);
            }
        }
    }

    /// Whether anything is under way, timers aside.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.agenda.next().is_none()
    }

    /// As [`World::next`], until nothing is under way.
    pub fn next_before_quiet(&mut self) -> Option<(ConnId, ToClient)> {
        while let Some(at) = self.agenda.next() {
            if let Some(seen) = self.next(at) {
                return Some(seen);
            }
        }
        None
    }

    fn start(&mut self) {
        cluster::start(self);
        reload(self);
        cluster::begin_edges(self);
    }

    fn run_timers(&mut self) {
        for index in 0..self.shards.len() {
            let due = self.shards[index].poll_timeout();
            if due.is_some_and(|at| at <= self.agenda.now) && self.cluster.is_up(index) {
                self.shards[index].handle_timeout(self.agenda.now);
                self.drain(index);
            }
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
            Happening::Sent(conn, stream, bytes) => {
                self.event(conn, NetEventKind::Sent { stream, bytes });
            }
            Happening::Blocked(conn, stream, bytes) => {
                self.event(conn, NetEventKind::StreamBlocked { stream, bytes });
            }
            Happening::Bus { of, crossing } => {
                let to = of.to.0;
                self.trace.note(self.agenda.now, 3, to as u64, &[]);
                if self.cluster.arrives(of) {
                    bus::crossed(self, to, crossing);
                }
            }
            Happening::Member { of, joined } => cluster::heard(self, of, joined),
            Happening::Store(index, request) => {
                let store = self.cluster.store(index);
                let done = disk_of(self, store).handle(&request);
                self.trace.line(self.agenda.now, || {
                    format!("store of {index}: {request:?}: {done:?}")
                });
                self.trace.note(self.agenda.now, 4, index as u64, &[]);
                let at = self.agenda.soon(self.setup.pace.bus);
                // Answers come in the order of the requests.
                let at = at.max(self.disk_answered);
                self.disk_answered = at;
                self.agenda.at(at, Happening::Stored(index, done));
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

    fn server_sees(&mut self, conn: ConnId, what: ToServer) {
        let Some(link) = self.links.get_mut(&conn) else {
            return;
        };
        if link.paused || !link.is_read(&what) {
            link.wait(what);
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
        let place = self.cluster.place(conn.shard());
        self.input(place, Input::Net(NetEvent::new(conn, kind)));
    }

    /// A connection leaves its shard; what arrives meanwhile waits.
    fn detach(&mut self, conn: ConnId, to: ShardId, unread: Bytes) {
        let conn = self.moves.at_client(conn);
        let Some(link) = self.links.get_mut(&conn) else {
            return;
        };
        link.paused = true;
        self.moves.leave(conn);
        let at = self.agenda.soon(self.setup.pace.bus);
        self.agenda.at(at, Happening::Attached { conn, to, unread });
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
        if !self.cluster.is_up(index) {
            return;
        }
        self.inputs += 1;
        if self.inputs.is_multiple_of(SHRINK_EVERY) {
            self.shards[index].shrink();
        }
        self.shards[index].handle(self.agenda.now, input);
        if !self.agenda.random.one_in(3) {
            self.drain(index);
        } else if !self.draining[index] {
            self.draining[index] = true;
            self.agenda.at_once(Happening::Drain(index));
        }
    }

    fn drain(&mut self, index: usize) {
        while let Some(output) = self.shards[index].poll_output() {
            match output {
                Output::Net(command) => self.command(index, command),
                Output::Bus { to, message } => cluster::send(self, index, to, message),
                Output::Move { conn, to, unread } => {
                    assert!(self.cluster.is_home(index), "a socket stays in its process");
                    self.detach(conn, to, unread);
                }
                Output::Ready => cluster::note_ready(self, index),
                Output::HomeLost(_) => cluster::note_lost(self, index),
                Output::Store(request) => {
                    assert!(self.cluster.is_home(index), "an edge has no store");
                    let pace = self.setup.pace;
                    let queue = match pace.stores_apart {
                        true => index,
                        false => self.cluster.store(index),
                    };
                    let at = self.agenda.after(self.disk_busy[queue], pace.store);
                    self.disk_busy[queue] = at;
                    self.agenda.at(at, Happening::Store(index, request));
                }
                Output::Auth { conn, request } => {
                    let answer = self.users.answer(&request);
                    let at = self.agenda.soon(self.setup.pace.auth);
                    self.agenda.at(at, Happening::Auth(index, conn, answer));
                }
                Output::Control { reply, .. } => self.replies.push(reply),
                Output::Proof { user, right, .. } => self.proofs.push((user, right)),
                Output::Event(Event::InternalError(missing)) => {
                    panic!("{missing} table entries are missing: a bug of the shard");
                }
                Output::Event(event) => self.log.push(event),
            }
        }
    }

    fn command(&mut self, index: usize, command: NetCommand) {
        let NetCommand { conn, kind } = command;
        let place = self.cluster.place(conn.shard());
        assert_eq!(place, index, "a command for another shard's socket");
        let (server, conn) = (conn, self.moves.at_client(conn));
        match kind {
            NetCommandKind::Send {
                stream, mut data, ..
            } => {
                let chunks = data.take_chunks();
                let bytes = chunks.iter().map(|chunk| &chunk[..]).collect::<Vec<_>>();
                let bytes = bytes.concat();
                self.deliver(conn, ToClient::Bytes(stream, bytes));
                self.shards[index].recycle(data);
            }
            NetCommandKind::OpenStream { .. } => {
                let stream = self.links.get_mut(&conn).and_then(Link::open);
                let opened = NetEvent::new(server, NetEventKind::StreamOpened { stream });
                self.shards[index].handle(self.agenda.now, Input::Net(opened));
            }
            NetCommandKind::BindChannel => {
                let data = channel_of(conn).to_vec().into();
                let bound = NetEvent::new(server, NetEventKind::ChannelBinding { data });
                self.shards[index].handle(self.agenda.now, Input::Net(bound));
            }
            NetCommandKind::SendDatagram { data, fallback, .. } => {
                self.deliver(conn, ToClient::Datagram(data.to_vec()));
                let sent = Happening::Sent(conn, fallback, data.len());
                self.agenda.at_once(sent);
            }
            NetCommandKind::SetPriority { .. }
            | NetCommandKind::Accept
            | NetCommandKind::SetIdleTimeout { .. }
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
                    self.agenda.retain(
                        |happening| !matches!(happening, Happening::Server(of, _) if *of == conn),
                    );
                    if let Some(link) = self.links.get_mut(&conn) {
                        link.stalled = false;
                    }
                    let at = self.agenda.soon(self.setup.pace.link);
                    self.agenda.at(at, Happening::Lost(conn));
                }
            }
            NetCommandKind::PauseReading { paused, .. } => self.pause(conn, paused),
            NetCommandKind::PauseStream { stream, paused } => {
                change_reading(self, conn, |link| link.pause_stream(stream, paused));
            }
            NetCommandKind::ReadOnly { stream } => {
                change_reading(self, conn, |link| link.read_only = stream);
            }
        }
    }

    fn pause(&mut self, conn: ConnId, paused: bool) {
        let Some(link) = self.links.get_mut(&conn) else {
            return;
        };
        link.paused = paused;
        if !paused {
            let waiting = link.take_waiting();
            self.go_on(conn, waiting);
        }
    }

    /// What waited arrives, ahead of what is still under way.
    fn go_on(&mut self, conn: ConnId, waiting: VecDeque<ToServer>) {
        let later = self.agenda.take_to_server(conn);
        for what in waiting.into_iter().chain(later) {
            self.client_does(conn, what);
        }
    }

    fn deliver(&mut self, conn: ConnId, event: ToClient) {
        let mut at = self.agenda.soon(self.setup.pace.link);
        let apart = self.setup.pace.apart;
        let Some(link) = self.links.get_mut(&conn) else {
            return;
        };
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
        link.last_to_client = link
            .last_to_client
            .max(if apart { at } else { self.agenda.now });
        self.agenda.at(at, Happening::Client(conn, event));
    }
}

/// The disk of a store.
fn disk_of(world: &mut World, store: usize) -> &mut Disk {
    match store.checked_sub(1) {
        Some(at) => &mut world.disks[at],
        None => &mut world.disk,
    }
}

/// When the shards that are there want to be called.
fn timers(world: &World) -> impl Iterator<Item = Instant> {
    let shards = world.shards.iter().enumerate();
    let up = shards.filter(|(place, _)| world.cluster.is_up(*place));
    up.filter_map(|(_, shard)| shard.poll_timeout())
}

/// The server reads other streams than before.
fn change_reading(world: &mut World, conn: ConnId, change: impl FnOnce(&mut Link)) {
    if let Some(link) = world.links.get_mut(&conn) {
        change(link);
        let waiting = link.take_waiting();
        world.go_on(conn, waiting);
    }
}

/// An operator asks a shard; see [`World::replies`].
pub fn ask(world: &mut World, index: usize, request: Request) {
    let number = world.inputs;
    world.input(index, Input::Control { number, request });
}

/// Replaces the access list of all shards, as a reload does.
///
/// # Panics
/// `acl` is no access list.
pub fn set_acl(world: &mut World, acl: Option<&str>) {
    world.acl = parsed(acl);
    reload(world);
}

/// Has the server say this of a topic from now on.
pub fn set_ruling(world: &mut World, topic: &str, says: &str, secs: u64) {
    world.users.rule(topic, says, secs);
}

/// Changes or removes a user's password, as a reload does.
pub fn set_user(world: &mut World, user: &str, password: Option<&str>) {
    world.users.set(user, password);
    reload(world);
}

fn parsed(acl: Option<&str>) -> Option<Arc<Acl>> {
    acl.map(|text| Arc::new(Acl::parse(text).expect("an access list")))
}

fn reload(world: &mut World) {
    let access = Access {
        acl: world.acl.clone(),
        users: world.users.listed(),
        asks: world.setup.asks,
    };
    for index in 0..world.shards.len() {
        if world.cluster.is_up(index) {
            world.shards[index].set_access(world.agenda.now, access.clone());
            world.drain(index);
        }
    }
}

/// Other limits are in force from now on.
pub fn set_limits(world: &mut World, change: impl FnOnce(&mut Setup)) {
    change(&mut world.setup);
    let limits = world.setup.config.running();
    for index in 0..world.shards.len() {
        world.shards[index].set_limits(&limits);
        if world.cluster.is_up(index) {
            world.drain(index);
        }
    }
}
