//! The connections of a loop: their table, their deadlines, what is left to do
//! for each, and what is to be reported of them.

mod acks;
mod commands;
mod detach;
mod ends;
mod flush;
mod run;
mod tickets;
mod unknown;

use core::net::SocketAddr;
use std::collections::{BTreeMap, VecDeque};
use std::io;

use dunlin_base::transport::{CloseCause, NetEvent, NetEventKind, Transport};
use dunlin_base::{ConnId, Instant, ShardId, StreamId};
use dunlin_quic::{Begun, QuicConn, QuicStats, StrikeId};
use mio::{Interest, Registry, Token};

pub use commands::ConnMut;
pub use detach::DetachedConn;
pub(super) use run::{Cause, Handler};

pub(super) use acks::join_acks;
use acks::{Senders, WaitingAcks};
#[cfg(test)]
pub(crate) use ends::ENDS_MAX;
use ends::Ends;

use super::env::Env;
use super::held::Held;
use super::quic::QuicSlot;
use super::sources::Sources;
use crate::slots::Slots;
use crate::strangers::Strangers;
use crate::stream::StreamConn;
use crate::timers::{Armed, Timers};

#[derive(Debug)]
pub(super) enum Conn {
    Stream(Box<StreamConn>),
    Quic(Box<QuicSlot>),
}

/// What `poll` reports of a connection although it arose elsewhere.
#[derive(Debug)]
pub(super) enum Report {
    Sent(ConnId, StreamId, usize),
    Finished(ConnId),
    Blocked(ConnId, StreamId, usize),
    Moved(ConnId, SocketAddr, SocketAddr),
    MoveFailed(ConnId, SocketAddr),
    Closed(ConnId, CloseCause),
}

/// The table of connections.
#[derive(Debug)]
pub(super) struct Conns {
    shard: ShardId,
    slots: Slots<Conn>,
    held: Held,
    /// Where the next sample begins.
    sampled: usize,
    timers: Timers,
    /// Connections with something left to do although the kernel is silent.
    ready: Vec<u64>,
    /// QUIC connections that may have something to transmit.
    dirty: Vec<u64>,
    /// QUIC connections to run after a batch of datagrams.
    touched: Vec<u64>,
    pub(super) acks: WaitingAcks,
    senders: Senders,
    pub(super) ends: Ends,
    /// Connections whose ticket's use is being kept.
    strikes: BTreeMap<StrikeId, u64>,
    reports: VecDeque<Report>,
    /// Accepted connections whose peers are not known yet.
    strangers: Strangers,
    /// Sockets that connections which are gone had made for their paths.
    left_paths: Vec<usize>,
    /// A connection is gone, and its descriptor free, since this was asked.
    freed: bool,
}

impl Conn {
    fn transport(&self) -> Transport {
        match self {
            Self::Stream(stream) => stream.transport(),
            Self::Quic(_) => Transport::Quic,
        }
    }

    const fn armed(&self) -> &Armed {
        match self {
            Self::Stream(tcp) => &tcp.armed,
            Self::Quic(quic) => &quic.armed,
        }
    }

    fn armed_mut(&mut self) -> &mut Armed {
        match self {
            Self::Stream(tcp) => &mut tcp.armed,
            Self::Quic(quic) => &mut quic.armed,
        }
    }
}

impl Conns {
    pub(super) fn new(shard: ShardId) -> Self {
        Self {
            shard,
            slots: Slots::new(),
            held: Held::default(),
            sampled: 0,
            timers: Timers::default(),
            ready: Vec::new(),
            dirty: Vec::new(),
            touched: Vec::new(),
            acks: WaitingAcks::new(),
            senders: Senders::default(),
            ends: Ends::default(),
            strikes: BTreeMap::new(),
            reports: VecDeque::new(),
            strangers: Strangers::default(),
            left_paths: Vec::new(),
            freed: false,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) const fn held(&self) -> Held {
        self.held
    }

    pub(super) const fn id(&self, serial: u64) -> ConnId {
        ConnId::new(self.shard, serial)
    }

    pub(super) fn find(&mut self, conn: ConnId) -> Option<&mut Conn> {
        find_in(&mut self.slots, self.shard, conn)
    }

    pub(super) fn get(&self, serial: u64) -> Option<&Conn> {
        self.slots.get(serial)
    }

    pub(super) fn quic(&self, serial: u64) -> Option<&QuicSlot> {
        match self.slots.get(serial) {
            Some(Conn::Quic(quic)) => Some(quic),
            _ => None,
        }
    }

    pub(super) fn quic_mut(&mut self, serial: u64) -> Option<&mut QuicSlot> {
        match self.slots.get_mut(serial) {
            Some(Conn::Quic(quic)) => Some(quic),
            _ => None,
        }
    }

    /// A QUIC connection, which is listed for transmission.
    pub(super) fn quic_to_flush(&mut self, serial: u64) -> Option<&mut QuicSlot> {
        match self.slots.get_mut(serial) {
            Some(Conn::Quic(quic)) => {
                mark(&mut self.dirty, serial, &mut quic.dirty);
                Some(quic)
            }
            _ => None,
        }
    }

    /// A QUIC connection, which is listed to be run after this batch of
    /// datagrams.
    pub(super) fn quic_to_run(&mut self, serial: u64) -> Option<&mut QuicSlot> {
        match self.slots.get_mut(serial) {
            Some(Conn::Quic(quic)) => {
                mark(&mut self.touched, serial, &mut quic.touched);
                Some(quic)
            }
            _ => None,
        }
    }

    /// Has a connection run in the next turn.
    pub(super) fn run_soon(&mut self, serial: u64) {
        self.ready.push(serial);
    }

    pub(super) fn push_report(&mut self, report: Report) {
        self.reports.push_back(report);
    }

    /// Whether there is something to do without the kernel.
    pub(super) fn is_busy(&self) -> bool {
        let now = !self.ready.is_empty() || !self.dirty.is_empty() || !self.reports.is_empty();
        now || self.ends.is_waiting()
    }

    /// Adds a socket that was accepted or dialled.
    pub(super) fn insert_stream(
        &mut self,
        registry: &Registry,
        make: impl FnOnce(ConnId) -> StreamConn,
    ) -> io::Result<Option<u64>> {
        let shard = self.shard;
        self.slots.insert_with(|serial| {
            let mut tcp = Box::new(make(ConnId::new(shard, serial)));
            watch_socket(registry, &mut tcp, serial)?;
            self.held.add(tcp.transport());
            self.timers.arm(serial, tcp.next_deadline(), &mut tcp.armed);
            let mut conn = Conn::Stream(tcp);
            unknown::enter(&mut self.strangers, &mut conn, serial);
            Ok(conn)
        })
    }

    /// Adds a connection that began at the endpoint `source`, and lists it for
    /// its first transmission.
    pub(super) fn insert_quic(
        &mut self,
        source: usize,
        sources: &mut Sources,
        begun: Begun,
        handshake_until: Instant,
        env: &Env,
    ) -> Option<u64> {
        let (shard, handle) = (self.shard, begun.handle());
        let inserted = self.slots.insert_with(|serial| {
            let id = ConnId::new(shard, serial);
            let conn = QuicConn::new(begun, id, env.now, handshake_until, env.quic.limits());
            let mut slot = Box::new(QuicSlot::new(conn, source));
            mark(&mut self.dirty, serial, &mut slot.dirty);
            let mut conn = Conn::Quic(slot);
            unknown::enter(&mut self.strangers, &mut conn, serial);
            Ok::<_, core::convert::Infallible>(conn)
        });
        let Ok(serial) = inserted;
        let endpoint = sources.endpoint_mut(source)?;
        match serial {
            Some(serial) => {
                endpoint.quic.bind_serial(handle, serial);
                self.held.add(Transport::Quic);
            }
            None => endpoint.quic.forget(handle),
        }
        serial
    }

    /// Drops a connection and gives back its places in the limits.
    fn remove(&mut self, serial: u64, env: &mut Env) {
        let Some(mut conn) = self.slots.remove(serial) else {
            return;
        };
        env.counters.closed += 1;
        self.held.remove(conn.transport());
        if let Conn::Quic(quic) = &mut conn {
            let stats = quic.conn.quic_stats();
            quic.conn.path_mut().note_totals(&stats, &mut env.counters);
            let via = quic.via;
            if let Some(moves) = quic.conn.path_mut().moves() {
                let probed = moves.end_probe();
                self.left_paths
                    .extend(moves.take_left().into_iter().chain(probed).chain([via]));
            }
        }
        let (accepted, counted, addr) = match &conn {
            Conn::Stream(tcp) => (tcp.is_accepted(), !tcp.is_proxy, tcp.addr().ip()),
            Conn::Quic(quic) => (quic.conn.is_accepted(), true, quic.admitted_ip),
        };
        unknown::forget(&mut self.strangers, &mut conn, env);
        if accepted {
            let by_address = counted && env.limits().counts_addresses();
            env.admission().end(addr, by_address);
        }
        self.freed = true;
    }

    /// Ends a connection outside of `poll`; its end is reported there.
    pub(super) fn end(&mut self, conn: ConnId, cause: CloseCause, env: &mut Env) {
        let reported = match find_in(&mut self.slots, self.shard, conn) {
            Some(Conn::Stream(tcp)) => {
                tcp.reset();
                let reported = tcp.reported;
                self.remove(conn.serial(), env);
                reported
            }
            Some(Conn::Quic(quic)) => {
                mark(&mut self.dirty, conn.serial(), &mut quic.dirty);
                let clock = &env.config.clock;
                quic.conn.abort(None, clock, clock.now());
                !quic.conn.life_mut().take_report()
            }
            None => return,
        };
        if !reported {
            self.reports.push_back(Report::Closed(conn, cause));
        }
    }

    /// Lets go of what connections that are gone had: closes the sockets of
    /// their paths, and lets listeners use their descriptors.
    pub(super) fn settle_gone(&mut self, sources: &mut Sources) {
        for index in self.left_paths.drain(..) {
            sources.close_path(index);
        }
        if core::mem::take(&mut self.freed) {
            sources.end_pauses();
        }
    }

    /// When the next entry of the timers is due. Sleeping until one that stands
    /// for nothing, or for something later, would be for nothing, so those are
    /// settled first.
    pub(super) fn next_timer(&mut self) -> Option<Instant> {
        while let Some(serial) = self.timers.next_serial() {
            let armed = self.slots.get_mut(serial).map(Conn::armed_mut);
            if !self.timers.settle(armed) {
                break;
            }
        }
        self.timers.next()
    }

    /// Entries of the timers, those that stand for nothing included.
    pub(super) fn timer_entries(&self) -> usize {
        self.timers.len()
    }

    /// Takes the next entry that is due; inside, the connection, unless the
    /// entry stands for nothing now.
    pub(super) fn pop_timer(&mut self, now: Instant) -> Option<Option<u64>> {
        let (at, serial) = self.timers.pop_due(now)?;
        let Some(armed) = self.slots.get_mut(serial).map(Conn::armed_mut) else {
            return Some(None);
        };
        // A stale entry: the one that counts is another.
        let fires = armed.is_at(at) && self.timers.fires(serial, armed, now);
        Some(fires.then_some(serial))
    }

    pub(super) fn sweep_timers(&mut self) {
        let slots = &self.slots;
        self.timers.sweep(slots.len(), |serial, at| {
            slots.get(serial).is_some_and(|conn| conn.armed().is_at(at))
        });
    }

    /// Shows some QUIC connections, at most `max`, and goes on after them at
    /// the next call.
    pub(super) fn sample(&mut self, max: usize, env: &mut Env, f: &mut dyn FnMut(&QuicStats)) {
        let counters = &mut env.counters;
        self.slots.visit(&mut self.sampled, max, |conn| {
            if let Conn::Quic(quic) = conn {
                let stats = quic.conn.quic_stats();
                quic.conn.path_mut().note_totals(&stats, counters);
                f(&stats);
            }
        });
    }

    /// Reports what arose outside of `poll`; whether there was anything.
    pub(super) fn report(&mut self, handler: &mut Handler<'_>) -> bool {
        let any = !self.reports.is_empty();
        let slots = &self.slots;
        let lives = |conn: ConnId| match slots.get(conn.serial()) {
            Some(Conn::Quic(quic)) => !quic.conn.life().is_reported(),
            _ => false,
        };
        for report in self.reports.drain(..) {
            handler(match report {
                // Nothing follows the end.
                Report::Moved(conn, ..) | Report::MoveFailed(conn, _) if !lives(conn) => continue,
                Report::Moved(conn, from, to) => {
                    NetEvent::new(conn, NetEventKind::Moved { from, to })
                }
                Report::MoveFailed(conn, to) => {
                    NetEvent::new(conn, NetEventKind::MoveFailed { to })
                }
                Report::Sent(conn, stream, bytes) => {
                    NetEvent::new(conn, NetEventKind::Sent { stream, bytes })
                }
                Report::Finished(conn) => {
                    let stream = StreamId::CONTROL;
                    NetEvent::new(conn, NetEventKind::StreamFinished { stream })
                }
                Report::Blocked(conn, ..) if !lives(conn) => continue,
                Report::Blocked(conn, stream, bytes) => {
                    NetEvent::new(conn, NetEventKind::StreamBlocked { stream, bytes })
                }
                Report::Closed(conn, cause) => NetEvent::new(conn, NetEventKind::Closed { cause }),
            });
        }
        any
    }
}

/// A connection, borrowing only the table.
fn find_in(slots: &mut Slots<Conn>, shard: ShardId, conn: ConnId) -> Option<&mut Conn> {
    (conn.shard() == shard && !conn.is_carried())
        .then(|| slots.get_mut(conn.serial()))
        .flatten()
}

/// Lists a QUIC connection, once.
fn mark(list: &mut Vec<u64>, serial: u64, listed: &mut bool) {
    if !core::mem::replace(listed, true) {
        list.push(serial);
    }
}

/// Has the kernel report about a socket, what is readable and writable already
/// included.
fn watch_socket(registry: &Registry, conn: &mut StreamConn, serial: u64) -> io::Result<()> {
    let interest = Interest::READABLE | Interest::WRITABLE;
    registry.register(conn.sock_mut(), Token(serial as usize), interest)
}
