//! Connections over TCP that move whole from one loop of the process to
//! another: socket, TLS and WebSocket state, bytes that have not left, limits
//! and deadlines. QUIC connections never move: their ids lead to their shard.

use dunlin_base::transport::Peer;
use dunlin_base::{ConnId, StreamId};
use mio::Registry;

use super::super::env::Env;
use super::{Conn, Conns, Report, find_in, watch_socket};
use crate::slots::SLOTS_MAX;
use crate::stream::{StreamConn, detachable};
use crate::timers::Armed;
use crate::{NetError, NetShared};

/// A connection between two loops; see [`crate::Net::detach`].
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
        self.credit + self.conn.as_ref().map_or(0, |conn| conn.owed())
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

impl Conns {
    /// Takes a connection over TCP out of the table, if it can go.
    pub(crate) fn detach(
        &mut self,
        conn: ConnId,
        env: &mut Env,
        registry: &Registry,
    ) -> Option<DetachedConn> {
        let peer = match find_in(&mut self.slots, self.shard, conn) {
            Some(Conn::Stream(tcp)) => detachable(tcp)?,
            _ => return None,
        };
        let Some(Conn::Stream(mut tcp)) = self.slots.remove(conn.serial()) else {
            return None;
        };
        self.held.remove(tcp.transport());
        if let Some(ticket) = tcp.stranger.take() {
            // Who moves has said who it is.
            let bytes = self.strangers.leave(tcp.addr().ip(), ticket);
            env.admission().drop_unknown_bytes(bytes);
            env.admission().handshake_over();
        }
        if let Err(error) = registry.deregister(tcp.sock_mut()) {
            // The other loop finds out what is wrong with the socket.
            tracing::debug!(%conn, %error, "a socket was not watched");
        }
        tcp.armed = Armed::NEVER;
        let mut credit = 0;
        self.reports.retain(|report| match report {
            Report::Sent(of, _, bytes) if *of == conn => {
                credit += bytes;
                false
            }
            // The other loop reports it.
            Report::Finished(of) => *of != conn,
            _ => true,
        });
        env.counters.detached += 1;
        Some(DetachedConn {
            peer,
            conn: Some(tcp),
            credit,
            shared: env.config.shared.clone(),
            by_address: env.limits().counts_addresses(),
        })
    }

    /// Puts a connection from another loop into the table.
    pub(crate) fn attach(
        &mut self,
        mut detached: DetachedConn,
        env: &mut Env,
        registry: &Registry,
    ) -> Result<ConnId, NetError> {
        let (slot, shard) = (&mut detached.conn, self.shard);
        let inserted = self.slots.insert_with(|serial| {
            let mut tcp = slot.take().ok_or_else(gone)?;
            if let Err(error) = watch_socket(registry, &mut tcp, serial) {
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
            finished = tcp.input.is_finished();
            if tcp.wants_run() {
                self.ready.push(serial);
            }
            self.timers.arm(serial, tcp.next_deadline(), &mut tcp.armed);
        }
        if detached.credit > 0 {
            let (stream, credit) = (StreamId::CONTROL, detached.credit);
            self.reports.push_back(Report::Sent(conn, stream, credit));
        }
        if finished {
            self.reports.push_back(Report::Finished(conn));
        }
        env.counters.attached += 1;
        Ok(conn)
    }
}

fn gone() -> NetError {
    NetError::Config("the connection is attached already")
}
