//! The first owner of a shard: its network connections, which of them have
//! bytes to send, and the send buffers that are kept for reuse.

use alloc::vec::Vec;
#[cfg(test)]
use core::cell::Cell;

use dunlin_base::{ConnId, SendBuf};
use hashbrown::HashMap;
use slab::Slab;

use crate::ids::ConnIdx;
use crate::owners::conn::Conn;
use crate::owners::missing::Missing;

/// Entries that are no connection of the network with its session here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Apart {
    /// Connections whose session is on another shard.
    pub(crate) handed_over: usize,
    /// Streams of another entry.
    pub(crate) carried: usize,
}

impl Apart {
    /// Counts one that is there, as what it is now.
    pub(crate) fn add(&mut self, conn: &Conn) {
        self.handed_over += usize::from(conn.handed_over().is_some());
        self.carried += usize::from(conn.is_carried());
    }
}

/// The connections of a shard.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    table: Slab<Conn>,
    by_id: HashMap<ConnId, ConnIdx>,
    touched: Vec<ConnIdx>,
    spare: Vec<SendBuf>,
    /// Streams that were given an id.
    carried: u64,
    apart: Apart,
    missing: Missing,
    #[cfg(test)]
    searches: Cell<u64>,
}

impl Connections {
    /// Send buffers kept for reuse.
    pub(crate) const SPARE_BUFFERS_MAX: usize = 64;

    /// Where a connection is. The only search in this table: everything that
    /// follows uses the place.
    pub(crate) fn find(&self, id: ConnId) -> Option<ConnIdx> {
        #[cfg(test)]
        self.searches.set(self.searches.get() + 1);
        self.by_id.get(&id).copied()
    }

    /// A connection that must be there; it is a bug, and counted, if not.
    pub(crate) fn get(&self, c: ConnIdx) -> Option<&Conn> {
        self.missing.checked(self.table.get(c))
    }

    /// As [`Connections::get`].
    pub(crate) fn get_mut(&mut self, c: ConnIdx) -> Option<&mut Conn> {
        self.missing.checked(self.table.get_mut(c))
    }

    /// A connection that may have ended.
    pub(crate) fn peek(&self, c: ConnIdx) -> Option<&Conn> {
        self.table.get(c)
    }

    /// As [`Connections::peek`].
    pub(crate) fn peek_mut(&mut self, c: ConnIdx) -> Option<&mut Conn> {
        self.table.get_mut(c)
    }

    /// Counts it if an entry is not there that must be.
    pub(crate) fn checked<T>(&self, found: Option<T>) -> Option<T> {
        self.missing.checked(found)
    }

    /// As [`Connections::checked`], of one kind.
    pub(crate) fn checked_mut<T>(
        &mut self,
        c: ConnIdx,
        kind: impl FnOnce(&mut Conn) -> Option<&mut T>,
    ) -> Option<&mut T> {
        self.missing.checked(self.table.get_mut(c).and_then(kind))
    }

    /// The id of a connection that is one stream of another.
    pub(crate) const fn next_carried(&mut self, by: ConnId) -> ConnId {
        self.carried += 1;
        ConnId::carried(by.shard(), self.carried)
    }

    pub(crate) fn insert(&mut self, conn: Conn) -> ConnIdx {
        let id = conn.id;
        self.apart.add(&conn);
        let c = self.table.insert(conn);
        self.by_id.insert(id, c);
        c
    }

    pub(crate) fn remove(&mut self, c: ConnIdx) -> Option<Conn> {
        let conn = self.table.try_remove(c)?;
        self.by_id.remove(&conn.id);
        self.apart.carried -= usize::from(conn.is_carried());
        self.apart.handed_over -= usize::from(conn.handed_over().is_some());
        Some(conn)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ConnIdx, &Conn)> {
        self.table.iter()
    }

    /// The places from this one on, and what is there.
    pub(crate) fn from(&self, at: ConnIdx) -> impl Iterator<Item = (ConnIdx, Option<&Conn>)> {
        let places = at..self.table.capacity();
        places.map(|c| (c, self.table.get(c)))
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// How many of these are no connection of the network with its session here.
    pub(crate) const fn apart(&self) -> Apart {
        self.apart
    }

    /// The session of one that is there is on another shard from now on, or no longer.
    #[cfg(feature = "mqtt")]
    pub(crate) const fn note_handed_over(&mut self, is_handed_over: bool) {
        if is_handed_over {
            self.apart.handed_over += 1;
        } else {
            self.apart.handed_over -= 1;
        }
    }

    /// Marks a connection that has bytes to send.
    pub(crate) fn touch(&mut self, c: ConnIdx) {
        if let Some(conn) = self.table.get_mut(c)
            && !conn.dirty
        {
            conn.dirty = true;
            self.touched.push(c);
        }
    }

    /// The next connection that has bytes to send.
    pub(crate) fn next_touched(&mut self) -> Option<ConnIdx> {
        self.touched.pop()
    }

    /// A buffer of a connection, ready to be written to.
    pub(crate) fn with_spare(
        &mut self,
        c: ConnIdx,
        buffer: impl FnOnce(&mut Conn) -> Option<&mut SendBuf>,
    ) -> Option<&mut SendBuf> {
        let buf = self.table.get_mut(c).and_then(buffer)?;
        if buf.is_empty()
            && let Some(spare) = self.spare.pop()
        {
            *buf = spare;
        }
        Some(buf)
    }

    /// Takes back a send buffer whose bytes have been sent.
    pub(crate) fn recycle(&mut self, mut buf: SendBuf) {
        if self.spare.len() < Self::SPARE_BUFFERS_MAX {
            buf.clear();
            self.spare.push(buf);
        }
    }

    /// Entries that were missing since the last call.
    pub(crate) fn take_missing(&self) -> u64 {
        self.missing.take()
    }

    /// Gives back what the tables hold beyond their use.
    pub(crate) fn shrink(&mut self) {
        self.table.shrink_to_fit();
        self.by_id.shrink_to_fit();
        self.touched.shrink_to_fit();
        self.spare = Vec::new();
    }

    /// Counts a search elsewhere that stands for one here.
    #[cfg(test)]
    pub(crate) fn note_search(&self) {
        self.searches.set(self.searches.get() + 1);
    }

    /// Searches since the last call.
    #[cfg(test)]
    pub(crate) fn take_searches(&self) -> u64 {
        self.searches.take()
    }

    /// Send buffers kept now.
    #[cfg(test)]
    pub(crate) fn spare_buffers(&self) -> usize {
        self.spare.len()
    }
}
