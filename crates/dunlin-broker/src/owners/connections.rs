//! The first owner of a shard: its network connections, which of them have
//! bytes to send, and the send buffers that are kept for reuse.

use alloc::vec::Vec;
use core::cell::Cell;

use dunlin_base::{ConnId, SendBuf, StreamId};
use hashbrown::HashMap;
use slab::Slab;

use crate::ids::ConnIdx;
use crate::owners::amqp::AmqpConn;
use crate::owners::carrier::Carrier;
use crate::owners::conn::{Conn, MqttConn};

/// Send buffers kept for reuse.
const SPARE_BUFFERS_MAX: usize = 64;

/// The connections of a shard.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    table: Slab<Conn>,
    by_id: HashMap<ConnId, ConnIdx>,
    touched: Vec<ConnIdx>,
    spare: Vec<SendBuf>,
    /// Streams that were given an id.
    carried: u64,
    missing: Cell<u64>,
    #[cfg(test)]
    searches: Cell<u64>,
}

impl Connections {
    /// Where a connection is. The only search in this table: everything that
    /// follows uses the place.
    pub(crate) fn find(&self, id: ConnId) -> Option<ConnIdx> {
        #[cfg(test)]
        self.searches.set(self.searches.get() + 1);
        self.by_id.get(&id).copied()
    }

    /// A connection that must be there; it is a bug, and counted, if not.
    pub(crate) fn get(&self, c: ConnIdx) -> Option<&Conn> {
        let found = self.table.get(c);
        if found.is_none() {
            self.missing.set(self.missing.get() + 1);
        }
        found
    }

    /// As [`Connections::get`].
    pub(crate) fn get_mut(&mut self, c: ConnIdx) -> Option<&mut Conn> {
        let found = self.table.get_mut(c);
        if found.is_none() {
            self.missing.set(self.missing.get() + 1);
        }
        found
    }

    /// A connection that may have ended.
    pub(crate) fn peek(&self, c: ConnIdx) -> Option<&Conn> {
        self.table.get(c)
    }

    /// As [`Connections::peek`].
    pub(crate) fn peek_mut(&mut self, c: ConnIdx) -> Option<&mut Conn> {
        self.table.get_mut(c)
    }

    /// A connection that must be there and speak MQTT; it is a bug, and counted,
    /// if not.
    pub(crate) fn mqtt(&self, c: ConnIdx) -> Option<&MqttConn> {
        let found = self.table.get(c).and_then(Conn::mqtt);
        if found.is_none() {
            self.missing.set(self.missing.get() + 1);
        }
        found
    }

    /// As [`Connections::mqtt`].
    pub(crate) fn mqtt_mut(&mut self, c: ConnIdx) -> Option<&mut MqttConn> {
        let found = self.table.get_mut(c).and_then(Conn::mqtt_mut);
        if found.is_none() {
            self.missing.set(self.missing.get() + 1);
        }
        found
    }

    /// A connection of MQTT that may have ended.
    pub(crate) fn peek_mqtt(&self, c: ConnIdx) -> Option<&MqttConn> {
        self.table.get(c).and_then(Conn::mqtt)
    }

    /// As [`Connections::peek_mqtt`].
    pub(crate) fn peek_mqtt_mut(&mut self, c: ConnIdx) -> Option<&mut MqttConn> {
        self.table.get_mut(c).and_then(Conn::mqtt_mut)
    }

    /// A connection that must be there and speak AMQP; it is a bug, and counted,
    /// if not.
    pub(crate) fn amqp(&self, c: ConnIdx) -> Option<&AmqpConn> {
        let found = self.peek_amqp(c);
        if found.is_none() {
            self.missing.set(self.missing.get() + 1);
        }
        found
    }

    /// As [`Connections::amqp`].
    pub(crate) fn amqp_mut(&mut self, c: ConnIdx) -> Option<&mut AmqpConn> {
        let found = self.table.get_mut(c).and_then(Conn::amqp_mut);
        if found.is_none() {
            self.missing.set(self.missing.get() + 1);
        }
        found
    }

    /// A connection of AMQP that may have ended.
    pub(crate) fn peek_amqp(&self, c: ConnIdx) -> Option<&AmqpConn> {
        self.table.get(c).and_then(Conn::amqp)
    }

    /// As [`Connections::peek_amqp`].
    pub(crate) fn peek_amqp_mut(&mut self, c: ConnIdx) -> Option<&mut AmqpConn> {
        self.table.get_mut(c).and_then(Conn::amqp_mut)
    }

    /// A QUIC connection of AMQP that must be there; it is a bug, and counted, if
    /// not.
    pub(crate) fn carrier_mut(&mut self, c: ConnIdx) -> Option<&mut Carrier> {
        let found = self.table.get_mut(c).and_then(Conn::carrier_mut);
        if found.is_none() {
            self.missing.set(self.missing.get() + 1);
        }
        found
    }

    /// The id of a connection that is one stream of another.
    pub(crate) const fn next_carried(&mut self, by: ConnId) -> ConnId {
        self.carried += 1;
        ConnId::carried(by.shard(), self.carried)
    }

    pub(crate) fn insert(&mut self, conn: Conn) -> ConnIdx {
        let id = conn.id;
        let c = self.table.insert(conn);
        self.by_id.insert(id, c);
        c
    }

    pub(crate) fn remove(&mut self, c: ConnIdx) -> Option<Conn> {
        let conn = self.table.try_remove(c)?;
        self.by_id.remove(&conn.id);
        Some(conn)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ConnIdx, &Conn)> {
        self.table.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
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

    /// The buffer of a stream of MQTT, ready to be written to.
    pub(crate) fn out(&mut self, c: ConnIdx, stream: StreamId) -> Option<&mut SendBuf> {
        self.touch(c);
        let conn = self.table.get_mut(c)?.mqtt_mut()?;
        let buf = conn.link.streams.out(stream);
        if buf.is_empty()
            && let Some(spare) = self.spare.pop()
        {
            *buf = spare;
        }
        Some(buf)
    }

    /// Takes back a send buffer whose bytes have been sent.
    pub(crate) fn recycle(&mut self, mut buf: SendBuf) {
        if self.spare.len() < SPARE_BUFFERS_MAX {
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

    /// Searches since the last call.
    #[cfg(test)]
    pub(crate) fn take_searches(&self) -> u64 {
        self.searches.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use dunlin_base::transport::{Peer, Transport};
    use dunlin_base::{Instant, ShardId, Text};

    fn id(serial: u64) -> ConnId {
        ConnId::new(ShardId(0), serial)
    }

    fn conn(serial: u64) -> Conn {
        let peer = Peer {
            addr: ([127, 0, 0, 1], 1).into(),
            transport: Transport::Tcp,
            listener: 0,
            identity: None,
            protocol: Text::new(),
            early_data: false,
        };
        Conn::Mqtt(MqttConn::new(
            id(serial),
            peer,
            Instant::ZERO,
            Duration::ZERO,
        ))
    }

    #[test]
    fn a_connection_is_found_until_it_is_removed() {
        let mut conns = Connections::default();
        let (a, b) = (conns.insert(conn(1)), conns.insert(conn(2)));
        assert_eq!((conns.find(id(1)), conns.find(id(2))), (Some(a), Some(b)));
        assert!(conns.remove(a).is_some() && conns.remove(a).is_none());
        assert_eq!((conns.find(id(1)), conns.len()), (None, 1));
        assert_eq!(conns.take_missing(), 0);
        // One that must be there and is not is counted; one that may have
        // ended is not.
        assert!(conns.peek(a).is_none() && conns.get(a).is_none());
        assert!(conns.get_mut(a).is_none());
        assert_eq!((conns.take_missing(), conns.take_missing()), (2, 0));
    }

    #[test]
    fn a_connection_is_flushed_once_however_often_it_is_written_to() {
        let mut conns = Connections::default();
        let c = conns.insert(conn(1));
        for _ in 0..2 {
            let out = conns.out(c, StreamId::CONTROL).expect("control");
            out.put_slice(b"x");
        }
        assert_eq!(
            (conns.next_touched(), conns.next_touched()),
            (Some(c), None)
        );
        // Until it was flushed it stays marked.
        conns.touch(c);
        assert_eq!(conns.next_touched(), None);
        conns.get_mut(c).expect("a connection").dirty = false;
        conns.touch(c);
        assert_eq!(conns.next_touched(), Some(c));
    }

    #[test]
    fn send_buffers_are_used_again() {
        let mut conns = Connections::default();
        let c = conns.insert(conn(1));
        let mut spare = SendBuf::new();
        spare.put_slice(b"sent");
        conns.recycle(spare);
        let out = conns.out(c, StreamId::CONTROL).expect("control");
        assert!(out.is_empty());
        assert!(conns.spare.is_empty());
        for _ in 0..=SPARE_BUFFERS_MAX {
            conns.recycle(SendBuf::new());
        }
        assert_eq!(conns.spare.len(), SPARE_BUFFERS_MAX);
    }
}
