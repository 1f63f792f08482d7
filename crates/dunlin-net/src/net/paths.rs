//! Moving dialled QUIC connections to other local addresses (RFC 9000 section
//! 9): the sockets of paths, and the steps of a move. What a connection
//! remembers of it is in `dunlin_quic`.

use core::net::{Ipv4Addr, SocketAddr};

use dunlin_base::ConnId;
use dunlin_base::transport::plain_addr;
use dunlin_quic::Due;

use super::Net;
use super::conns::{Conn, Conns, Report};
use super::sources::Sources;
use crate::error::MoveError;
use crate::port::{any_for, preferred_ip};

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
        self.env.tick();
        let (endpoint, remote) = may_move(&mut self.conns, conn, how)?;
        let serial = conn.serial();
        let local = to.unwrap_or_else(|| any_for(remote));
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(MoveError::Family { local, remote });
        }
        let registry = self.poll.registry();
        let path = self
            .sources
            .add_path(endpoint, serial, local, &self.env, registry)
            .map_err(|source| MoveError::Bind { local, source })?;
        if how == Move::Probed {
            let (timeout, now) = (self.env.limits().quic_probe_timeout, self.env.now);
            if let Some(quic) = self.conns.quic_mut(serial) {
                let rtt = quic.conn.path().rtt();
                if let Some(moves) = quic.conn.path_mut().moves() {
                    moves.start_probe(path, rtt, timeout, now);
                }
            }
            run_move(self, serial);
        } else {
            move_to(self, serial, path, how);
        }
        Ok(())
    }

    /// The address of this machine that a connection is sent from, as far as that
    /// can be known; `None`: it is gone.
    #[must_use]
    pub fn local_addr(&mut self, conn: ConnId) -> Option<SocketAddr> {
        match self.conns.find(conn)? {
            Conn::Stream(tcp) => tcp.sock_mut().local_addr().ok().map(plain_addr),
            Conn::Quic(quic) => {
                let via = quic.via;
                Some(local_addr(&self.conns, &self.sources, conn.serial(), via))
            }
        }
    }
}

/// Whether a connection may move now; the index of its endpoint, and its peer.
fn may_move(conns: &mut Conns, conn: ConnId, how: Move) -> Result<(usize, SocketAddr), MoveError> {
    let quic = match conns.find(conn) {
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
    Ok((quic.source, path.remote()))
}

/// Does what is due for a connection that moves or has moved. Returns `false`
/// if it stays where it was, because nothing answered on the new path.
pub(super) fn run_move(net: &mut Net, serial: u64) -> bool {
    let Net {
        env,
        conns,
        sources,
        ..
    } = net;
    let Some(quic) = conns.quic_to_flush(serial) else {
        return true;
    };
    let to = quic.conn.path().remote();
    let mut path = quic.conn.path_mut();
    let Some(moves) = path.moves() else {
        return true;
    };
    match moves.due(env.now) {
        Due::Nothing => {}
        Due::Probe => {
            if let Some(probe) = moves.probe()
                && let Some(port) = sources.port_mut(probe.path())
            {
                port.send(to, &probe.datagram(), &mut env.counters);
            }
        }
        Due::NoAnswer => {
            if let Some(index) = moves.end_probe() {
                let to = local_addr(conns, sources, serial, index);
                env.counters.moves_failed += 1;
                conns.push_report(Report::MoveFailed(conns.id(serial), to));
                sources.close_path(index);
                return false;
            }
        }
        Due::Ping => path.ping(),
        Due::Settled => {
            let left = moves.take_left();
            path.ping();
            for index in left {
                sources.close_path(index);
            }
        }
    }
    true
}

/// A datagram came in on a path; whether it answered a probe.
pub(super) fn answers_probe(net: &mut Net, source: usize, datagram: &[u8]) -> bool {
    let Some(serial) = net.sources.path_owner(source) else {
        return false;
    };
    let answers = net.conns.quic(serial).is_some_and(|quic| {
        let path = quic.conn.path();
        let probe = path.moves().and_then(|moves| moves.probe());
        probe.is_some_and(|probe| probe.path() == source && probe.is_answer(datagram))
    });
    if answers {
        move_to(net, serial, source, Move::Probed);
    }
    answers
}

/// Sends from another socket from now on.
fn move_to(net: &mut Net, serial: u64, path: usize, how: Move) {
    let Net {
        env,
        conns,
        sources,
        ..
    } = net;
    let Some(via) = conns.quic(serial).map(|quic| quic.via) else {
        return;
    };
    let from = local_addr(conns, sources, serial, via);
    let to = local_addr(conns, sources, serial, path);
    let Some(quic) = conns.quic_to_flush(serial) else {
        return;
    };
    quic.via = path;
    if how != Move::Rebound {
        let only_port = from.ip() == to.ip();
        let std_now = env.config.clock.to_std(env.now);
        quic.conn.path_mut().on_moved(only_port, std_now);
    }
    let mut path = quic.conn.path_mut();
    let surplus = path.moves().and_then(|m| m.moved(via, to.ip(), env.now));
    env.counters.moves += 1;
    conns.push_report(Report::Moved(conns.id(serial), from, to));
    if let Some(index) = surplus {
        sources.close_path(index);
    }
}

/// The address that a connection sends from by a socket, as far as it can be
/// known.
fn local_addr(conns: &Conns, sources: &Sources, serial: u64, source: usize) -> SocketAddr {
    let bound = sources.port(source).and_then(|port| port.local_addr().ok());
    let Some(quic) = conns.quic(serial) else {
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

/// Whether a connection has something due besides its own deadlines.
pub(super) fn is_move_due(net: &Net, serial: u64) -> bool {
    net.conns.quic(serial).is_some_and(|quic| {
        let path = quic.conn.path();
        path.moves()
            .is_some_and(|moves| moves.deadline() <= net.env.now)
    })
}
