//! Moving dialled QUIC connections to other local addresses (RFC 9000 section
//! 9): the sockets of paths, and the steps of a move. What a connection
//! remembers of it is in `dunlin_quic`.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::io;

use dunlin_base::transport::plain_addr;
use dunlin_base::{ConnId, Instant};
use dunlin_quic::Due;
use mio::Token;

use super::quic::QuicSlot;
use super::{Conn, Net, Report, SOURCE_BASE, SOURCES_MAX, Source, mark};
use crate::error::MoveError;
use crate::port::{UdpPort, bind};

/// How a connection is moved to another local address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Move {
    /// Only once the server answered over the new path; stays otherwise.
    Probed,
    /// At once: the old path is gone.
    AtOnce,
    /// At once, and without notice to the peer: what a NAT does. The same
    /// connection id goes on, so that an observer can link both paths.
    Rebound,
}

/// Another socket of an endpoint.
#[derive(Debug)]
pub(super) struct UdpPath {
    port: UdpPort,
    /// Index of the endpoint whose connections use it.
    pub(super) endpoint: usize,
    /// Serial of the connection for which it was made.
    serial: u64,
}

impl Source {
    pub(super) fn port(&self) -> Option<&UdpPort> {
        match self {
            Self::Udp(endpoint) => Some(&endpoint.port),
            Self::Path(path) => Some(&path.port),
            Self::Tcp(_) | Self::Gone => None,
        }
    }

    pub(super) fn port_mut(&mut self) -> Option<&mut UdpPort> {
        match self {
            Self::Udp(endpoint) => Some(&mut endpoint.port),
            Self::Path(path) => Some(&mut path.port),
            Self::Tcp(_) | Self::Gone => None,
        }
    }

    /// The endpoint that its datagrams are for, itself at `index`.
    pub(super) fn endpoint(&self, index: usize) -> usize {
        match self {
            Self::Path(path) => path.endpoint,
            _ => index,
        }
    }
}

impl Net {
    /// Moves a dialled QUIC connection to another local address; `None`: one
    /// that the system chooses. `Moved` or `MoveFailed` follows.
    ///
    /// # Errors
    /// The connection cannot be moved, or no socket could be made.
    pub fn migrate(
        &mut self,
        conn: ConnId,
        to: Option<SocketAddr>,
        how: Move,
    ) -> Result<(), MoveError> {
        self.now = self.config.clock.now();
        let endpoint = self.may_move(conn, how)?;
        let serial = conn.serial();
        let remote = match self.slots.get(serial) {
            Some(Conn::Quic(quic)) => quic.conn.path().remote(),
            _ => return Err(MoveError::Unknown),
        };
        let local = to.unwrap_or_else(|| any_for(remote));
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(MoveError::Family { local, remote });
        }
        let path = self
            .add_path(endpoint, serial, local)
            .map_err(|source| MoveError::Bind { local, source })?;
        if how == Move::Probed {
            let timeout = self.config.limits.quic_probe_timeout;
            let now = self.now;
            if let Some(Conn::Quic(quic)) = self.slots.get_mut(serial) {
                let rtt = quic.conn.path().rtt();
                if let Some(moves) = quic.conn.path_mut().moves() {
                    moves.start_probe(path, rtt, timeout, now);
                }
            }
            self.run_move(serial);
        } else {
            self.move_to(serial, path, how);
        }
        Ok(())
    }

    /// Whether it may move now; the index of its endpoint.
    fn may_move(&mut self, conn: ConnId, how: Move) -> Result<usize, MoveError> {
        let quic = match Self::find_in(&mut self.slots, self.config.shard, conn) {
            Some(Conn::Quic(quic)) => quic,
            Some(Conn::Stream(_)) => return Err(MoveError::NotQuic),
            None => return Err(MoveError::Unknown),
        };
        let path = quic.conn.path();
        let moves = path.moves().ok_or(MoveError::Accepted)?;
        if moves.probe().is_some() {
            return Err(MoveError::Busy);
        }
        // "An endpoint MUST NOT initiate connection migration before the
        // handshake is confirmed" (RFC 9000 section 9).
        if !path.is_confirmed() {
            return Err(MoveError::Handshaking);
        }
        if how == Move::Probed && path.is_move_forbidden() {
            return Err(MoveError::Forbidden);
        }
        Ok(quic.source)
    }

    fn add_path(&mut self, endpoint: usize, serial: u64, local: SocketAddr) -> io::Result<usize> {
        let ecn = match self.sources.get(endpoint) {
            Some(Source::Udp(endpoint)) => endpoint.quic.uses_ecn(),
            _ => false,
        };
        let mut port = UdpPort::new(bind(local, false)?, ecn, &self.config.limits)?;
        let free = self.sources.iter().position(|s| matches!(s, Source::Gone));
        let index = free.unwrap_or(self.sources.len());
        if index >= SOURCES_MAX {
            return Err(io::Error::other("a loop has at most 1,024 UDP sockets"));
        }
        self.poll.registry().register(
            port.socket_mut(),
            Token(SOURCE_BASE + index),
            UdpPort::INTEREST,
        )?;
        let path = Source::Path(Box::new(UdpPath {
            port,
            endpoint,
            serial,
        }));
        match self.sources.get_mut(index) {
            Some(place) => *place = path,
            None => self.sources.push(path),
        }
        Ok(index)
    }

    /// Closes a socket that was made for a path; an endpoint's own stays.
    pub(super) fn close_path(&mut self, index: usize) {
        if let Some(place @ Source::Path(_)) = self.sources.get_mut(index) {
            *place = Source::Gone;
        }
    }

    /// Does what is due for a connection that moves or has moved.
    pub(super) fn run_move(&mut self, serial: u64) {
        let now = self.now;
        let Some(Conn::Quic(quic)) = self.slots.get_mut(serial) else {
            return;
        };
        let to = quic.conn.path().remote();
        let mut path = quic.conn.path_mut();
        let Some(moves) = path.moves() else {
            return;
        };
        let due = moves.due(now);
        mark(&mut self.dirty, serial, &mut quic.dirty);
        match due {
            Due::Nothing => {}
            Due::Probe => {
                if let Some(probe) = moves.probe()
                    && let Some(port) = self
                        .sources
                        .get_mut(probe.path())
                        .and_then(Source::port_mut)
                {
                    port.send(to, &probe.datagram(), &mut self.counters);
                }
            }
            Due::NoAnswer => {
                if let Some(index) = moves.end_probe() {
                    let id = ConnId::new(self.config.shard, serial);
                    let to = self.local_addr(index, serial);
                    self.counters.moves_failed += 1;
                    self.reports.push_back(Report::MoveFailed(id, to));
                    self.close_path(index);
                    self.look_if_lost(serial);
                }
            }
            Due::Ping => path.ping(),
            Due::Settled => {
                let left = moves.take_left();
                path.ping();
                for index in left {
                    self.close_path(index);
                }
            }
        }
    }

    /// A datagram came in on a path; whether it answered a probe.
    pub(super) fn answers_probe(&mut self, source: usize, datagram: &[u8]) -> bool {
        let Some(Source::Path(path)) = self.sources.get(source) else {
            return false;
        };
        let serial = path.serial;
        let answers = match self.slots.get(serial) {
            Some(Conn::Quic(quic)) => quic
                .conn
                .path()
                .moves()
                .and_then(|moves| moves.probe())
                .is_some_and(|probe| probe.path() == source && probe.is_answer(datagram)),
            _ => false,
        };
        if answers {
            self.move_to(serial, source, Move::Probed);
        }
        answers
    }

    /// Sends from another socket from now on.
    fn move_to(&mut self, serial: u64, path: usize, how: Move) {
        let now = self.now;
        let from = match self.slots.get(serial) {
            Some(Conn::Quic(quic)) => self.local_addr(quic.via, serial),
            _ => return,
        };
        let to = self.local_addr(path, serial);
        let std_now = self.config.clock.to_std(now);
        let Some(Conn::Quic(quic)) = self.slots.get_mut(serial) else {
            return;
        };
        let left = core::mem::replace(&mut quic.via, path);
        if how != Move::Rebound {
            let only_port = from.ip() == to.ip();
            quic.conn.path_mut().on_moved(only_port, std_now);
        }
        mark(&mut self.dirty, serial, &mut quic.dirty);
        let mut surplus = None;
        if let Some(moves) = quic.conn.path_mut().moves() {
            surplus = moves.moved(left, to.ip(), now);
        }
        self.counters.moves += 1;
        let id = ConnId::new(self.config.shard, serial);
        self.reports.push_back(Report::Moved(id, from, to));
        if let Some(index) = surplus {
            self.close_path(index);
        }
    }

    /// The address that a connection sends from by this socket, as far as it
    /// can be known.
    fn local_addr(&self, source: usize, serial: u64) -> SocketAddr {
        let port = self.sources.get(source).and_then(Source::port);
        let bound = port.and_then(|port| port.local_addr().ok());
        let Some(Conn::Quic(quic)) = self.slots.get(serial) else {
            return bound.unwrap_or_else(|| any_for((Ipv4Addr::UNSPECIFIED, 0).into()));
        };
        let remote = quic.conn.path().remote();
        let mut addr = bound.unwrap_or_else(|| any_for(remote));
        if addr.ip().is_unspecified() {
            let seen = quic.conn.path().moves().and_then(|moves| moves.local_ip());
            let seen = seen.filter(|_| quic.via == source);
            if let Some(ip) = seen.or_else(|| preferred_ip(remote)) {
                addr.set_ip(ip);
            }
        }
        plain_addr(addr)
    }

    /// All sockets of a connection that is gone.
    pub(super) fn close_paths(&mut self, quic: &mut QuicSlot) {
        let via = quic.via;
        let mut path = quic.conn.path_mut();
        let Some(moves) = path.moves() else {
            return;
        };
        let probed = moves.end_probe();
        for index in moves.take_left().into_iter().chain(probed).chain([via]) {
            self.close_path(index);
        }
    }

    /// Whether a connection has something due besides its own deadlines.
    pub(super) fn is_move_due(&self, serial: u64, now: Instant) -> bool {
        match self.slots.get(serial) {
            Some(Conn::Quic(quic)) => quic
                .conn
                .path()
                .moves()
                .is_some_and(|moves| moves.deadline() <= now),
            _ => false,
        }
    }
}

/// The address that lets the system choose, of the same family.
pub(super) fn any_for(remote: SocketAddr) -> SocketAddr {
    if remote.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    }
}

/// The local address that the system would send from now; `None`: the network
/// cannot be reached. It sends nothing.
pub(super) fn preferred_ip(remote: SocketAddr) -> Option<IpAddr> {
    let socket = std::net::UdpSocket::bind(any_for(remote)).ok()?;
    socket.connect(remote).ok()?;
    Some(socket.local_addr().ok()?.ip())
}
