//! Back to QUIC: a client that had to take TLS tries QUIC on the side, and
//! moves its session there when it gets through. The session is one for the
//! server (Clean Start 0, the same client identifier), so that messages of
//! QoS 1 and 2 that are under way go on.

use core::net::SocketAddr;
use core::time::Duration;

use dunlin_base::transport::{Transport, close_code};
use dunlin_base::{ConnId, Instant, StreamId};
use dunlin_mqtt::client::Phase;
use dunlin_mqtt::codec::{Disconnect, ReasonCode, Version};

use super::dialing::Network;
use super::io::Context;
use super::link::Link;
use super::session::{Core, Session};
use crate::race::wall_clock;

/// No attempt before a connection has lasted this long.
const SETTLE: Duration = Duration::from_secs(10);

/// Longest handshake of an attempt; one that takes longer is no gain.
const PROBE_MAX: Duration = Duration::from_secs(5);

/// Longest time in which messages must leave the old connection.
const SWITCH_MAX: Duration = Duration::from_secs(5);

/// What is done about it.
#[derive(Default)]
pub(super) struct Upgrade {
    /// Where QUIC would be found.
    addr: Option<SocketAddr>,
    network: Option<Network>,
    state: State,
}

#[derive(Default)]
enum State {
    /// Nothing.
    #[default]
    Off,
    /// The next attempt is then.
    Later(Instant),
    /// An attempt.
    Probing { conn: ConnId, since: Instant },
    /// It succeeded, and the old connection is being left, until then.
    Ready { conn: ConnId, by: Instant },
    /// The old connection is being closed.
    Leaving(ConnId),
}

impl Upgrade {
    /// TLS won; QUIC would be at this address.
    pub(super) fn plan(
        &mut self,
        now: Instant,
        addr: Option<SocketAddr>,
        network: Network,
        wall: u64,
    ) {
        self.addr = addr;
        self.state = State::Later(now + network.probe_wait(wall));
        self.network = Some(network);
    }

    /// Messages wait for the new connection.
    pub(super) fn is_switching(&self) -> bool {
        matches!(self.state, State::Ready { .. } | State::Leaving(_))
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Later(at) => Some(at),
            State::Probing { since, .. } => Some(since + PROBE_MAX),
            State::Ready { by, .. } => Some(by),
            State::Off | State::Leaving(_) => None,
        }
    }

    /// A connection opened; perhaps it was the attempt.
    pub(super) fn opened(&mut self, now: Instant, conn: ConnId) {
        if let State::Probing { conn: probe, since } = self.state
            && probe == conn
        {
            if let Some(Network { name, memory, .. }) = &self.network {
                let took = now.saturating_duration_since(since);
                memory.worked(name, took, wall_clock());
            }
            let by = now + SWITCH_MAX;
            self.state = State::Ready { conn, by };
        }
    }

    /// A connection ended; perhaps it was the attempt.
    pub(super) fn closed(&mut self, now: Instant, conn: ConnId) {
        if let State::Probing { conn: probe, .. }
        | State::Ready { conn: probe, .. }
        | State::Leaving(probe) = self.state
            && probe == conn
        {
            self.failed(now);
        }
    }

    fn failed(&mut self, now: Instant) {
        self.state = State::Off;
        if let Some(network) = &self.network {
            let wall = wall_clock();
            network.memory.blocked(&network.name, wall);
            self.state = State::Later(now + network.probe_wait(wall));
        }
    }
}

impl Network {
    /// How long to wait before QUIC is tried again.
    fn probe_wait(&self, wall: u64) -> Duration {
        let remembered = self.memory.probe_in(&self.name, wall);
        let wait = remembered.unwrap_or(Duration::ZERO).max(SETTLE);
        self.probe_after.unwrap_or(wait)
    }
}

impl Session {
    /// Does what is due for the way back to QUIC.
    pub(super) fn run_upgrade(&mut self, context: &mut Context<'_>) {
        if matches!(self.core.upgrade.state, State::Off) {
            return;
        }
        let is_open = matches!(self.core.link, Link::Open(_));
        if !(is_open && self.core.fault.is_none() && self.core.goodbye.is_none()) {
            return;
        }
        match self.core.upgrade.state {
            State::Later(at) if at <= context.now => self.probe(context),
            State::Probing { conn, since } if since + PROBE_MAX <= context.now => {
                self.core.upgrade.failed(context.now);
                self.core.drop_probe(context, conn);
            }
            State::Ready { conn, .. } if self.core.has_left() => self.leave(context, conn),
            State::Ready { conn, by } if by <= context.now => {
                // Not QUIC's fault; the next attempt comes all the same.
                self.core.upgrade.state = State::Later(context.now + SETTLE);
                self.core.drop_probe(context, conn);
            }
            _ => {}
        }
    }

    fn probe(&mut self, context: &mut Context<'_>) {
        let keeps_session = match self.engine.version() {
            Version::V5 => self.engine.negotiated().session_expiry_seconds > 0,
            Version::V311 => !self.core.options.clean_start,
        };
        let connected = self.engine.phase() == Phase::Connected;
        let wanted = self.core.options.race.as_ref().is_some_and(|r| !r.stay);
        let Some(addr) = self.core.upgrade.addr.filter(|_| keeps_session && wanted) else {
            self.core.upgrade.state = State::Off;
            return;
        };
        self.core.upgrade.state = State::Later(context.now + SETTLE);
        if !connected {
            return;
        }
        match self.dial(context, Transport::Quic, addr, false) {
            Ok(conn) => {
                let since = context.now;
                self.core.upgrade.state = State::Probing { conn, since };
            }
            Err(_) => self.core.upgrade.failed(context.now),
        }
    }

    /// Says goodbye on the old connection, so that the server does not take
    /// the change for the client's death; the session stays.
    fn leave(&mut self, context: &mut Context<'_>, new: ConnId) {
        let Some(old) = self.core.link.open_conn() else {
            return;
        };
        if let Some(network) = &self.core.upgrade.network {
            context.resolver.save(&network.memory);
        }
        let disconnect = Disconnect {
            reason: ReasonCode::NORMAL_DISCONNECTION,
            ..Disconnect::default()
        };
        let core = &mut self.core;
        let said = self
            .engine
            .disconnect(context.now, &disconnect, &mut core.out);
        if said.is_err() {
            return;
        }
        let _ = context.net.send(old, StreamId::CONTROL, &mut core.out);
        context.net.close(old, close_code::NO_ERROR);
        core.upgrade.state = State::Leaving(new);
        core.link.start_closing();
    }

    /// The old connection is gone: tells whether the session goes on, on the
    /// new one.
    pub(super) fn switch(&mut self, context: &mut Context<'_>) -> bool {
        let state = core::mem::take(&mut self.core.upgrade.state);
        match state {
            State::Leaving(conn) | State::Ready { conn, .. }
                if self.core.goodbye.is_none() && self.core.fault.is_none() =>
            {
                self.core.early.begin(self.core.upgrade.addr, None);
                self.begin(context, conn, Transport::Quic);
                self.write(context);
                true
            }
            State::Probing { conn, .. } | State::Ready { conn, .. } | State::Leaving(conn) => {
                self.core.drop_probe(context, conn);
                false
            }
            State::Off | State::Later(_) => false,
        }
    }
}

impl Core {
    /// Whether all messages of QoS 0 that were written have left.
    fn has_left(&self) -> bool {
        self.leaving.is_empty() && self.out.is_empty()
    }

    fn drop_probe(&self, context: &mut Context<'_>, conn: ConnId) {
        context.conns.remove(&conn);
        context.net.abort(conn);
    }
}
