//! Back to QUIC: a link that had to take TLS tries QUIC on the side, and its
//! session moves there when it gets through. Only a session that the server
//! keeps between connections can, so that what is under way goes on.

use core::net::SocketAddr;
use core::time::Duration;

use dunlin_base::{ConnId, Instant};

use super::dialing::Network;
use crate::context::Context;
use crate::race::wall_clock;

/// No attempt before a connection has lasted this long.
const SETTLE: Duration = Duration::from_secs(10);

/// Longest handshake of an attempt; one that takes longer is no gain.
const PROBE_MAX: Duration = Duration::from_secs(5);

/// Longest time in which messages must leave the old connection.
const SWITCH_MAX: Duration = Duration::from_secs(5);

/// What the session says before it changes over.
#[derive(Clone, Copy, Debug)]
pub struct SessionFacts {
    /// The server has accepted the connection.
    pub is_connected: bool,
    /// The server keeps it between connections.
    pub is_kept: bool,
    /// All that was written and is not sent again has left.
    pub has_left: bool,
}

/// What is to be done on the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    /// Try QUIC at this address.
    Probe(SocketAddr),
    /// Give up this attempt.
    Drop(ConnId),
    /// Leave the connection for this one.
    Leave(ConnId),
}

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

    /// What is to be done now.
    pub(super) fn due(&mut self, now: Instant, session: SessionFacts) -> Due {
        match self.state {
            State::Later(at) if at <= now => self.probe(now, session),
            State::Probing { conn, since } if since + PROBE_MAX <= now => {
                self.failed(now);
                Due::Drop(conn)
            }
            State::Ready { conn, .. } if session.has_left => Due::Leave(conn),
            State::Ready { conn, by } if by <= now => {
                // Not QUIC's fault; the next attempt comes all the same.
                self.state = State::Later(now + SETTLE);
                Due::Drop(conn)
            }
            _ => Due::Nothing,
        }
    }

    fn probe(&mut self, now: Instant, session: SessionFacts) -> Due {
        let wanted = self.network.as_ref().is_some_and(|network| !network.stay);
        let Some(addr) = self.addr.filter(|_| session.is_kept && wanted) else {
            self.state = State::Off;
            return Due::Nothing;
        };
        self.state = State::Later(now + SETTLE);
        match session.is_connected {
            true => Due::Probe(addr),
            false => Due::Nothing,
        }
    }

    /// The attempt began, or could not.
    pub(super) fn probed(&mut self, now: Instant, conn: Option<ConnId>) {
        match conn {
            Some(conn) => self.state = State::Probing { conn, since: now },
            None => self.failed(now),
        }
    }

    /// The session leaves its connection for this one.
    pub(super) fn leaving(&mut self, new: ConnId) {
        self.state = State::Leaving(new);
    }

    /// The old connection is gone: the one to go on with, if that is `wanted`,
    /// and one to drop.
    pub(super) fn take_next(&mut self, wanted: bool) -> (Option<ConnId>, Option<ConnId>) {
        match core::mem::take(&mut self.state) {
            State::Leaving(conn) | State::Ready { conn, .. } if wanted => (Some(conn), None),
            State::Probing { conn, .. } | State::Ready { conn, .. } | State::Leaving(conn) => {
                (None, Some(conn))
            }
            State::Off | State::Later(_) => (None, None),
        }
    }

    /// Where QUIC is found.
    pub(super) fn addr(&self) -> Option<SocketAddr> {
        self.addr
    }

    /// Has what was learned about the network written down.
    pub(super) fn save(&self, context: &mut Context<'_>) {
        if let Some(network) = &self.network {
            context.resolver.save(&network.memory);
        }
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

#[cfg(test)]
mod tests {
    use dunlin_base::ShardId;

    use super::*;
    use crate::race::RaceMemory;

    const READY: SessionFacts = SessionFacts {
        is_connected: true,
        is_kept: true,
        has_left: true,
    };

    fn at(millis: u64) -> Instant {
        Instant::from_micros(millis * 1000)
    }

    fn conn(n: u64) -> ConnId {
        ConnId::new(ShardId(0), n)
    }

    fn planned(stay: bool) -> Upgrade {
        let mut upgrade = Upgrade::default();
        let network = Network {
            name: "network".into(),
            memory: RaceMemory::new(),
            quic_port: 14567,
            probe_after: Some(Duration::from_millis(10)),
            stay,
        };
        let addr = "127.0.0.1:14567".parse().ok();
        upgrade.plan(at(0), addr, network, wall_clock());
        upgrade
    }

    #[test]
    fn a_session_changes_over_when_everything_has_left() {
        let mut upgrade = planned(false);
        assert_eq!(upgrade.due(at(9), READY), Due::Nothing);
        assert!(matches!(upgrade.due(at(10), READY), Due::Probe(_)));
        upgrade.probed(at(10), Some(conn(1)));
        upgrade.opened(at(20), conn(1));
        assert!(upgrade.is_switching());
        let writing = SessionFacts {
            has_left: false,
            ..READY
        };
        assert_eq!(upgrade.due(at(20), writing), Due::Nothing);
        assert_eq!(upgrade.due(at(21), READY), Due::Leave(conn(1)));
        upgrade.leaving(conn(1));
        assert_eq!(upgrade.take_next(true), (Some(conn(1)), None));
        assert_eq!(upgrade.take_next(true), (None, None));
    }

    #[test]
    fn what_comes_to_nothing_is_dropped() {
        let mut upgrade = planned(false);
        upgrade.probed(at(10), Some(conn(1)));
        let late = at(10) + PROBE_MAX;
        assert_eq!(upgrade.due(late, READY), Due::Drop(conn(1)));
        upgrade.probed(late, Some(conn(2)));
        assert_eq!(upgrade.take_next(true), (None, Some(conn(2))));
        assert_eq!(planned(true).due(at(10), READY), Due::Nothing);
    }
}
