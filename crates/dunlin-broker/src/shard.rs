//! The shard: its tables, the way in ([`Shard::handle`],
//! [`Shard::handle_timeout`]) and the way out ([`Shard::poll_output`],
//! [`Shard::poll_timeout`]).

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::transport::{NetCommand, NetCommandKind, NetEvent, NetEventKind};
use dunlin_base::{ConnId, Instant, Message, SendBuf, ShardId, StreamId, Text};
use dunlin_mqtt::codec::ReasonCode;
use dunlin_router::{Interest, RetainedTree, SubscriptionTree};
use dunlin_store::Seq;
use hashbrown::HashMap;
use slab::Slab;

use crate::access::Acl;
use crate::config::Config;
use crate::conn::{Conn, ConnIdx, Phase};
use crate::io::{BusMessage, Event, Input, Output};
use crate::pending::{Pending, Prepared};
use crate::persist::Writes;
use crate::publish::Hit;
use crate::random::Random;
use crate::retained::RetainedTopic;
use crate::session::{Session, SessionIdx};
use crate::stats::Stats;
use crate::timers::{Timer, Timers};

/// Send buffers kept for reuse.
const POOL_MAX: usize = 64;

/// Who is behind a subscription in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Subscriber {
    /// A session of this shard.
    Session(u32),
    /// Some session of another shard.
    Shard(ShardId),
}

/// What the tree keeps with a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subscribed {
    pub(crate) options: u8,
    /// Subscription identifier; 0: none.
    pub(crate) identifier: u32,
    pub(crate) stream: StreamId,
}

/// One shard of the broker.
///
/// Call order: any number of [`Shard::handle`] (a batch), then
/// [`Shard::poll_output`] until it returns `None`; [`Shard::handle_timeout`]
/// once [`Shard::poll_timeout`] is reached. Time never goes backwards.
#[derive(Debug)]
pub struct Shard {
    pub(crate) config: Config,
    pub(crate) acl: Option<Arc<Acl>>,
    pub(crate) now: Instant,
    pub(crate) random: Random,
    pub(crate) conns: Slab<Conn>,
    pub(crate) conn_ids: HashMap<ConnId, ConnIdx>,
    pub(crate) sessions: Slab<Session>,
    pub(crate) client_ids: HashMap<Text, SessionIdx>,
    pub(crate) session_keys: HashMap<u64, SessionIdx>,
    pub(crate) tree: SubscriptionTree<Subscriber, Subscribed>,
    pub(crate) interest: Interest,
    pub(crate) retained: RetainedTree<Arc<Message>>,
    /// Topics with a retained message on its way to the store.
    pub(crate) retained_waiting: HashMap<Text, RetainedTopic>,
    pub(crate) retained_order: u64,
    pub(crate) timers: Timers,
    pub(crate) pending: HashMap<u64, Pending>,
    pub(crate) prepared: HashMap<(ShardId, u64), Prepared>,
    pub(crate) loads: HashMap<u64, u64>,
    pub(crate) next_token: u64,
    pub(crate) next_seq: u64,
    pub(crate) next_session: u64,
    pub(crate) writes: Writes,
    pub(crate) hits: Vec<Hit>,
    /// `$share` filters of the last forwarded message without a member here.
    pub(crate) missed: Vec<Text>,
    pub(crate) mark: u64,
    /// Connection whose PUBLISH is being routed.
    pub(crate) publisher: Option<ConnIdx>,
    pub(crate) stats: Stats,
    pub(crate) started: Instant,
    outputs: VecDeque<Output>,
    dirty: Vec<ConnIdx>,
    pool: Vec<SendBuf>,
    shutting_down: bool,
    /// The owner may add to the round of `$SYS` messages.
    sys_round: bool,
}

impl Shard {
    /// An empty shard.
    #[must_use]
    pub fn new(config: Config, now: Instant) -> Self {
        let seed = config.seed ^ u64::from(config.shard.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut timers = Timers::default();
        if !config.sys_interval.is_zero() {
            timers.set(now + config.sys_interval, Timer::Sys);
        }
        Self {
            acl: None,
            now,
            random: Random::new(seed),
            conns: Slab::new(),
            conn_ids: HashMap::new(),
            sessions: Slab::new(),
            client_ids: HashMap::new(),
            session_keys: HashMap::new(),
            tree: SubscriptionTree::new(seed),
            interest: Interest::new(),
            retained: RetainedTree::new(),
            retained_waiting: HashMap::new(),
            retained_order: 0,
            timers,
            pending: HashMap::new(),
            prepared: HashMap::new(),
            loads: HashMap::new(),
            next_token: 1,
            next_seq: 1,
            next_session: 1,
            writes: Writes::default(),
            hits: Vec::new(),
            missed: Vec::new(),
            mark: 0,
            publisher: None,
            stats: Stats::default(),
            started: now,
            outputs: VecDeque::new(),
            dirty: Vec::new(),
            pool: Vec::new(),
            shutting_down: false,
            sys_round: false,
            config,
        }
    }

    /// Replaces the access rules; `None` allows everything.
    pub fn set_acl(&mut self, acl: Option<Arc<Acl>>) {
        self.acl = acl;
    }

    /// Counters since the start.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Whether a round of `$SYS` messages was published since the last call,
    /// to which [`Shard::publish_sys_value`] may add.
    pub fn take_sys_round(&mut self) -> bool {
        core::mem::take(&mut self.sys_round)
    }

    /// Takes something that happened.
    pub fn handle(&mut self, now: Instant, input: Input<'_>) {
        self.now = now;
        match input {
            Input::Net(event) => self.handle_net(event),
            Input::Bus { from, message } => self.handle_bus(from, message),
            Input::Store(done) => self.handle_store(done),
            Input::Auth { conn, answer } => {
                if let Some(&c) = self.conn_ids.get(&conn) {
                    self.handle_auth_answer(c, answer);
                }
            }
        }
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        while let Some(timer) = self.timers.pop(now) {
            match timer {
                Timer::Conn(conn) => {
                    if let Some(&c) = self.conn_ids.get(&conn) {
                        self.check_silence(c);
                    }
                }
                Timer::Session(key) => {
                    if let Some(&s) = self.session_keys.get(&key) {
                        self.check_session(s);
                    }
                }
                Timer::Retry => self.retry(),
                Timer::Release(conn) => {
                    if let Some(&c) = self.conn_ids.get(&conn) {
                        self.release(c);
                    }
                }
                Timer::Sys => {
                    self.publish_sys();
                    self.sys_round = true;
                    self.timers.set(now + self.config.sys_interval, Timer::Sys);
                }
            }
        }
    }

    /// When [`Shard::handle_timeout`] wants to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// The next thing to do. Bytes of all touched connections come last, one
    /// [`NetCommandKind::Send`] a stream, then one batch for the store.
    pub fn poll_output(&mut self) -> Option<Output> {
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return Some(output);
            }
            if let Some(c) = self.dirty.pop() {
                self.flush(c);
                continue;
            }
            return self.poll_writes();
        }
    }

    /// Gives back a send buffer whose bytes have been taken.
    pub fn recycle(&mut self, mut buf: SendBuf) {
        if self.pool.len() < POOL_MAX {
            buf.clear();
            self.pool.push(buf);
        }
    }

    /// Tells every client that the server goes (0x8B) and closes. Sessions and
    /// queues stay as they are.
    pub fn shut_down(&mut self, now: Instant) {
        self.now = now;
        self.shutting_down = true;
        // A connection that was handed over is ended by the shard that has its
        // session, which alone can say DISCONNECT.
        let here = self
            .conns
            .iter()
            .filter(|(_, conn)| !matches!(conn.phase, Phase::HandedOver(_)));
        let conns: Vec<ConnIdx> = here.map(|(c, _)| c).collect();
        for c in conns {
            self.disconnect(c, ReasonCode::ServerShuttingDown);
        }
    }

    /// Connections whose sockets or sessions are here.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.conns.len()
    }

    /// Gives back what tables hold beyond their use, after many connections
    /// have ended.
    pub fn shrink(&mut self) {
        self.conns.shrink_to_fit();
        self.conn_ids.shrink_to_fit();
        self.sessions.shrink_to_fit();
        self.client_ids.shrink_to_fit();
        self.session_keys.shrink_to_fit();
        self.outputs.shrink_to_fit();
        self.dirty.shrink_to_fit();
        self.hits.shrink_to_fit();
        self.pool = Vec::new();
    }

    /// Whether all connections are gone and the store has everything.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.conns.is_empty() && self.writes.is_idle()
    }

    pub(crate) const fn is_shutting_down(&self) -> bool {
        self.shutting_down
    }

    pub(crate) fn output(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    /// A command for the transport, wherever its socket is.
    pub(crate) fn command(&mut self, conn: ConnId, kind: NetCommandKind) {
        let owner = conn.shard();
        let command = NetCommand::new(conn, kind);
        self.outputs.push_back(if owner == self.config.shard {
            Output::Net(command)
        } else {
            Output::Bus {
                to: owner,
                message: BusMessage::Command(command),
            }
        });
    }

    pub(crate) fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    /// A place in the order of stored messages.
    pub(crate) fn seq(&mut self) -> Seq {
        self.next_seq += 1;
        Seq::new(self.next_seq, self.config.shard)
    }

    /// Marks a connection that has bytes to send.
    pub(crate) fn touch(&mut self, c: ConnIdx) {
        if let Some(conn) = self.conns.get_mut(c)
            && !conn.dirty
        {
            conn.dirty = true;
            self.dirty.push(c);
        }
    }

    /// The buffer of a stream, ready to be written to.
    pub(crate) fn out(&mut self, c: ConnIdx, stream: StreamId) -> Option<&mut SendBuf> {
        self.touch(c);
        let conn = self.conns.get_mut(c)?;
        let buf = conn.out(stream);
        if buf.is_empty()
            && let Some(spare) = self.pool.pop()
        {
            *buf = spare;
        }
        Some(buf)
    }

    /// Hands a connection's bytes to its transport.
    pub(crate) fn flush(&mut self, c: ConnIdx) {
        let Some(conn) = self.conns.get_mut(c) else {
            return;
        };
        conn.dirty = false;
        let id = conn.id;
        let mut sends: Vec<(StreamId, SendBuf)> = Vec::new();
        if !conn.out.is_empty() {
            sends.push((StreamId::CONTROL, core::mem::take(&mut conn.out)));
        }
        for (stream, data) in &mut conn.streams {
            if !data.out.is_empty() {
                sends.push((*stream, core::mem::take(&mut data.out)));
            }
        }
        // The answer to what came with CONNECT may share CONNACK's datagram.
        let more = conn.peer.early_data && conn.subscribing > 0 && !sends.is_empty();
        conn.unsent += sends.iter().map(|(_, data)| data.len()).sum::<usize>() as i64;
        if more {
            self.command(id, NetCommandKind::ExpectMore);
        }
        for (stream, data) in sends {
            self.stats.bytes_sent += data.len() as u64;
            self.command(id, NetCommandKind::Send { stream, data });
        }
    }

    fn handle_net(&mut self, event: NetEvent<&[u8]>) {
        let NetEvent { conn, kind } = event;
        if let NetEventKind::Opened { peer } = kind {
            return self.handle_opened(conn, peer);
        }
        let Some((c, handed_over)) = self.locate(conn) else {
            return;
        };
        let Some(to) = handed_over else {
            return self.handle_conn_event(c, kind);
        };
        match kind {
            NetEventKind::EarlyData { .. }
            | NetEventKind::Moved { .. }
            | NetEventKind::MoveFailed { .. } => return,
            NetEventKind::Closed { .. } => self.remove_conn(c),
            _ => {}
        }
        let message = BusMessage::Net(NetEvent::new(conn, kind).into_owned());
        self.output(Output::Bus { to, message });
    }

    fn locate(&self, conn: ConnId) -> Option<(ConnIdx, Option<ShardId>)> {
        let c = *self.conn_ids.get(&conn)?;
        let handed_over = match self.conns.get(c)?.phase {
            Phase::HandedOver(to) => Some(to),
            _ => None,
        };
        Some((c, handed_over))
    }
}
