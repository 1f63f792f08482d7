//! The loop: what a caller can ask of it, and its owners. How it runs is in
//! `run`; steps that several owners take part in are functions over [`Net`] in
//! a file each: datagrams in `udp`, moves in `paths`, what follows the network
//! in `watch`.

mod conns;
mod dial;
mod env;
mod gather;
mod held;
mod layers;
pub(crate) mod newcomers;
mod paths;
mod quic;
mod run;
mod sources;
mod udp;
mod watch;

#[cfg(test)]
pub(crate) use conns::ENDS_MAX;
pub use conns::{ConnMut, DetachedConn};
pub use gather::GATHER_MAX;
pub use held::Held;
pub use paths::Move;
pub(crate) use run::pause;

use core::net::SocketAddr;
use std::collections::VecDeque;
use std::sync::Arc;

use dunlin_base::transport::{NetCommand, NetEvent};
use dunlin_base::{ConnId, Instant, SendBuf, ShardId, StreamId};
use dunlin_quic::{Clock, Counters, QuicStats, ServerTls, StrikeId};
use mio::{Events, Poll, Token};

use crate::relay::Answers;
use crate::slots::SLOTS_MAX;
use crate::{Answer, ForeignDatagram, ListenerConfig, NetConfig, NetError, Waker};

use conns::Conns;
use env::Env;
use gather::Gather;
use newcomers::Newcomers;
use sources::Sources;
use watch::Follow;

/// Readiness events taken from the kernel at once.
const EVENTS_MAX: usize = 1024;

/// The loop's own waker.
const WAKER: Token = Token(0);

/// A single-threaded event loop over sockets.
#[derive(Debug)]
pub struct Net {
    env: Env,
    poll: Poll,
    events: Events,
    waker: Waker,
    conns: Conns,
    sources: Sources,
    follow: Follow,
    newcomers: Newcomers,
    gather: Gather,
    /// Datagrams for other shards.
    foreign: VecDeque<(ShardId, ForeignDatagram)>,
    /// Datagrams that other processes are to send.
    answers: Answers,
}

impl Net {
    /// A loop without sockets.
    ///
    /// # Errors
    /// The operating system refuses an event queue, or a limit is out of range.
    pub fn new(config: NetConfig) -> Result<Self, NetError> {
        if config.limits.connections_max > SLOTS_MAX {
            return Err(NetError::Config(
                "a loop holds at most 1,048,576 connections",
            ));
        }
        if config.limits.gather > GATHER_MAX {
            return Err(NetError::Config("a turn waits at most 1 ms for more"));
        }
        if config.shard.0 >= config.shards {
            return Err(NetError::Config(
                "a shard's number must be below the number of shards",
            ));
        }
        if u32::from(config.first.0) + u32::from(config.shards) > u32::from(ShardId::MAX.0) + 1 {
            return Err(NetError::Config("the numbers of the shards are too high"));
        }
        let poll = Poll::new().map_err(NetError::Loop)?;
        let waker = mio::Waker::new(poll.registry(), WAKER).map_err(NetError::Loop)?;
        Ok(Self {
            conns: Conns::new(config.number(config.shard)),
            env: Env::new(config)?,
            poll,
            events: Events::with_capacity(EVENTS_MAX),
            waker: Waker::new(waker),
            sources: Sources::default(),
            follow: Follow::default(),
            newcomers: Newcomers::default(),
            gather: Gather::default(),
            foreign: VecDeque::new(),
            answers: Answers::default(),
        })
    }

    /// The loop's clock, for use within a handler of [`Net::poll`].
    #[must_use]
    pub const fn clock(&self) -> Clock {
        self.env.config.clock
    }

    /// The current instant of the loop's clock.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.env.config.clock.now()
    }

    /// A handle that wakes this loop from other threads.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Totals since the start.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.env.counters
    }

    /// Connections held, those still closing included.
    #[must_use]
    pub const fn connections(&self) -> usize {
        self.conns.len()
    }

    /// Connections by transport.
    #[must_use]
    pub const fn held(&self) -> Held {
        self.conns.held()
    }

    /// Handshakes going on, on all shards together.
    #[must_use]
    pub fn handshakes_pending(&self) -> usize {
        self.env.admission().pending()
    }

    /// Shows some QUIC connections, at most `max`, and goes on after them at
    /// the next call, so that a loop with many connections is sampled in turns.
    /// Totals of packets in [`Net::counters`] are as new as the last visit to
    /// each connection.
    pub fn sample_quic(&mut self, max: usize, f: &mut dyn FnMut(&QuicStats)) {
        self.conns.sample(max, &mut self.env, f);
    }

    /// Starts to accept connections; returns the bound address.
    ///
    /// # Errors
    /// The address cannot be bound, or TLS settings are missing.
    pub fn listen(&mut self, config: ListenerConfig) -> Result<SocketAddr, NetError> {
        let registry = self.poll.registry();
        self.sources.listen(config, &mut self.env, registry)
    }

    /// Closes all listeners; connections stay. A UDP port stays bound for its
    /// connections and takes no new ones.
    pub fn stop_listening(&mut self) {
        udp::refuse_newcomers(self);
        udp::send_gathered(self);
        self.sources.stop_listening();
    }

    /// Replaces certificate and key of the listeners with this number, for
    /// connections to come.
    pub fn set_tls(&mut self, listener: u16, tls: &Arc<ServerTls>) {
        self.sources.set_tls(listener, tls, &self.env);
    }

    /// A connection, to be asked or commanded.
    pub fn conn(&mut self, conn: ConnId) -> ConnMut<'_> {
        self.conns.handle(conn, &mut self.env)
    }

    /// [`ConnMut::send`].
    #[must_use = "these bytes are not announced by `Sent`"]
    pub fn send(&mut self, conn: ConnId, stream: StreamId, data: &mut SendBuf) -> usize {
        self.conn(conn).send(stream, data)
    }

    /// [`ConnMut::close`].
    pub fn close(&mut self, conn: ConnId, code: u64) {
        self.conn(conn).close(code);
    }

    /// [`ConnMut::command`] of the connection that the command names.
    #[must_use = "`poll` does not report this event again"]
    pub fn command(&mut self, command: &mut NetCommand) -> Option<NetEvent<&'static [u8]>> {
        self.conn(command.conn).command(&mut command.kind)
    }

    /// Takes a connection out of this loop, to be given to [`Net::attach`] of
    /// another one of the same process with the same [`crate::NetShared`] and
    /// [`Clock`]. Nothing is reported for its id any more.
    ///
    /// `None`: the connection is unknown, closed or closing, not open yet,
    /// dialled, or uses QUIC; it stays as it is.
    pub fn detach(&mut self, conn: ConnId) -> Option<DetachedConn> {
        let registry = self.poll.registry();
        self.conns.detach(conn, &mut self.env, registry)
    }

    /// Takes a connection from another loop; returns its id in this one.
    /// `Opened` is not reported again; `StreamFinished` is, if the peer has
    /// ended its side. What the kernel holds of it is read, and what waits to
    /// leave is written, from the next [`Net::poll`] on.
    ///
    /// # Errors
    /// There is no place for it, or the kernel does not watch its socket. The
    /// connection is closed then.
    pub fn attach(&mut self, detached: DetachedConn) -> Result<ConnId, NetError> {
        let registry = self.poll.registry();
        self.conns.attach(detached, &mut self.env, registry)
    }

    /// The use of a ticket ([`TicketChange::Strike`](crate::TicketChange::Strike))
    /// has been kept for good, or cannot be; then the connection ends. What
    /// follows is reported by the next [`Net::poll`].
    pub fn handle_struck(&mut self, strike: StrikeId, kept: bool) {
        self.conns.on_struck(strike, kept, &mut self.env);
    }

    /// The next datagram that arrived here and belongs to another shard, which
    /// must be given it by [`Net::handle_foreign`], or by [`Net::handle_relayed`] if it is
    /// of another process.
    pub fn poll_foreign(&mut self) -> Option<(ShardId, ForeignDatagram)> {
        self.foreign.pop_front()
    }

    /// The next datagrams that a shard of another process is to send, by
    /// [`Net::send_answer`]. At most [`ANSWERS_MAX`](crate::ANSWERS_MAX) wait.
    pub fn poll_answer(&mut self) -> Option<(ShardId, Answer)> {
        self.answers.pop()
    }
}
