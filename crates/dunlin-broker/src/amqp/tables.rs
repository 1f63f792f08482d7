//! The entries of AMQP in the tables of a shard.

use alloc::boxed::Box;

use crate::amqp::carrier::Carrier;
use crate::amqp::state::{AmqpConn, AmqpLink};
use crate::ids::{ConnIdx, SessionIdx};
use crate::owners::conn::Conn;
use crate::owners::connections::Connections;
use crate::owners::session::Session;
use crate::owners::sessions::Sessions;

impl Conn {
    pub(crate) fn amqp(&self) -> Option<&AmqpConn> {
        match self {
            Self::Amqp(conn) => Some(conn),
            _ => None,
        }
    }

    fn amqp_mut(&mut self) -> Option<&mut AmqpConn> {
        match self {
            Self::Amqp(conn) => Some(conn),
            _ => None,
        }
    }

    pub(crate) fn carrier(&self) -> Option<&Carrier> {
        match self {
            Self::Carrier(carrier) => Some(carrier),
            _ => None,
        }
    }

    pub(crate) fn carrier_mut(&mut self) -> Option<&mut Carrier> {
        match self {
            Self::Carrier(carrier) => Some(carrier),
            _ => None,
        }
    }
}

impl Session {
    pub(crate) fn amqp(&self) -> Option<&AmqpLink> {
        match self {
            Self::Amqp(link) => Some(link),
            _ => None,
        }
    }

    pub(crate) fn amqp_mut(&mut self) -> Option<&mut AmqpLink> {
        match self {
            Self::Amqp(link) => Some(link),
            _ => None,
        }
    }
}

impl Connections {
    /// A connection that must be there and speak AMQP; it is a bug, and counted,
    /// if not.
    pub(crate) fn amqp(&self, c: ConnIdx) -> Option<&AmqpConn> {
        self.checked(self.peek_amqp(c))
    }

    /// As [`Connections::amqp`].
    pub(crate) fn amqp_mut(&mut self, c: ConnIdx) -> Option<&mut AmqpConn> {
        self.checked_mut(c, Conn::amqp_mut)
    }

    /// A connection of AMQP that may have ended.
    pub(crate) fn peek_amqp(&self, c: ConnIdx) -> Option<&AmqpConn> {
        self.peek(c).and_then(Conn::amqp)
    }

    /// As [`Connections::peek_amqp`].
    pub(crate) fn peek_amqp_mut(&mut self, c: ConnIdx) -> Option<&mut AmqpConn> {
        self.peek_mut(c).and_then(Conn::amqp_mut)
    }

    /// A QUIC connection of AMQP that must be there; it is a bug, and counted, if
    /// not.
    pub(crate) fn carrier_mut(&mut self, c: ConnIdx) -> Option<&mut Carrier> {
        self.checked_mut(c, Conn::carrier_mut)
    }
}

impl Sessions {
    /// Adds the session of a link, which no client identifier names.
    pub(crate) fn insert_link(&mut self, link: Box<AmqpLink>) -> SessionIdx {
        self.insert_unnamed(Session::Amqp(link))
    }

    /// A session that must be there and a link of AMQP; it is a bug, and counted,
    /// if not.
    pub(crate) fn amqp_mut(&mut self, s: SessionIdx) -> Option<&mut AmqpLink> {
        self.checked_mut(s, Session::amqp_mut)
    }
}
