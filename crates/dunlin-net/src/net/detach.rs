//! Connections over TCP that move whole from one loop of the process to
//! another: socket, TLS and WebSocket state, bytes that have not left, limits
//! and deadlines. QUIC connections never move: their ids lead to their shard.

use dunlin_base::ConnId;
use dunlin_base::transport::Peer;
use mio::{Interest, Token};

use super::{Conn, Net, Report};
use crate::slots::SLOTS_MAX;
use crate::stream::{StreamConn, detachable};
use crate::timers::Armed;
use crate::{NetError, NetShared};

/// A connection between two loops; see [`Net::detach`].
///
/// It keeps its place in the limits of [`NetShared`]. One that is dropped is
/// closed and gives its place back.
#[derive(Debug)]
pub struct DetachedConn {
    /// `None` once it is attached.
    conn: Option<Box<StreamConn>>,
    peer: Peer,
    /// Bytes that left after the last `Sent` was reported.
    credit: usize,
    shared: NetShared,
    /// It counts at its address.
    by_address: bool,
}

impl DetachedConn {
    /// The other side of the connection, as `Opened` described it.
    #[must_use]
    pub const fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Bytes given to `send` that `Sent` has not announced. The loop to which
    /// it is attached announces them.
    #[must_use]
    pub fn unsent(&self) -> usize {
        self.credit + self.conn.as_ref().map_or(0, |conn| conn.owed)
    }
}

impl Drop for DetachedConn {
    fn drop(&mut self) {
        if self.conn.take().is_some() {
            let ip = self.peer.addr.ip();
            self.shared.admission.end(ip, self.by_address);
        }
    }
}

impl Net {
    /// Takes a connection out of this loop, to be given to [`Net::attach`] of
    /// another one of the same process with the same [`NetShared`] and
    /// [`crate::Clock`]. Nothing is reported for its id any more.
    ///
    /// `None`: the connection is unknown, closed or closing, not open yet,
    /// dialled, or uses QUIC; it stays as it is.
    pub fn detach(&mut self, conn: ConnId) -> Option<DetachedConn> {
        let peer = match Self::find_in(&mut self.slots, self.config.shard, conn) {
            Some(Conn::Stream(tcp)) => detachable(tcp)?,
            _ => return None,
        };
        let Some(Conn::Stream(mut tcp)) = self.slots.remove(conn.serial()) else {
            return None;
        };
        self.held.remove(tcp.transport());
        if let Err(error) = self.poll.registry().deregister(tcp.sock_mut()) {
            // The other loop finds out what is wrong with the socket.
            tracing::debug!(%conn, %error, "a socket was not watched");
        }
        tcp.armed = Armed::NEVER;
        let mut credit = 0;
        self.reports.retain(|report| match report {
            Report::Sent(of, bytes) if *of == conn => {
                credit += bytes;
                false
            }
            // The other loop reports it.
            Report::Finished(of) => *of != conn,
            _ => true,
        });
        self.counters.detached += 1;
        Some(DetachedConn {
            peer,
            conn: Some(tcp),
            credit,
            shared: self.config.shared.clone(),
            by_address: self.config.limits.counts_addresses(),
        })
    }

    /// Takes a connection from another loop; returns its id in this one.
    /// `Opened` is not reported again; `StreamFinished` is, if the peer has
    /// ended its side. What the kernel holds of it is read, and what waits to
    /// leave is written, from the next [`Net::poll`] on.
    ///
    /// # Errors
    /// There is no place for it, or the kernel does not watch its socket. The
    /// connection is closed then.
    pub fn attach(&mut self, mut detached: DetachedConn) -> Result<ConnId, NetError> {
        let slot = &mut detached.conn;
        let (shard, registry) = (self.config.shard, self.poll.registry());
        let inserted = self.slots.insert_with(|serial| {
            let mut tcp = slot.take().ok_or_else(gone)?;
            // The kernel reports at once what is readable and writable.
            let registered = registry.register(
                tcp.sock_mut(),
                Token(serial as usize),
                Interest::READABLE | Interest::WRITABLE,
            );
            if let Err(error) = registered {
                *slot = Some(tcp);
                return Err(NetError::Loop(error));
            }
            tcp.id = ConnId::new(shard, serial);
            Ok(Conn::Stream(tcp))
        })?;
        let Some(serial) = inserted else {
            return Err(NetError::TooManyConnections(SLOTS_MAX));
        };
        let conn = ConnId::new(shard, serial);
        let mut finished = false;
        if let Some(Conn::Stream(tcp)) = self.slots.get_mut(serial) {
            self.held.add(tcp.transport());
            finished = tcp.peer_finished;
            if tcp.wants_run() {
                self.ready.push(serial);
            }
            self.timers.arm(serial, tcp.next_deadline(), &mut tcp.armed);
        }
        if detached.credit > 0 {
            self.reports.push_back(Report::Sent(conn, detached.credit));
        }
        if finished {
            self.reports.push_back(Report::Finished(conn));
        }
        self.counters.attached += 1;
        Ok(conn)
    }
}

fn gone() -> NetError {
    NetError::Config("the connection is attached already")
}
