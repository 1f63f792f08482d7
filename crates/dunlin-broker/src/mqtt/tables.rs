//! The entries of MQTT in the tables of a shard.

use dunlin_base::{SendBuf, StreamId, Text};
use dunlin_mqtt::codec::Version;

use crate::ids::{ConnIdx, SessionIdx, SessionRef};
use crate::mqtt::conn::MqttConn;
use crate::mqtt::session::MqttSession;
use crate::owners::conn::Conn;
use crate::owners::connections::Connections;
use crate::owners::session::Session;
use crate::owners::sessions::Sessions;

impl Conn {
    fn mqtt(&self) -> Option<&MqttConn> {
        match self {
            Self::Mqtt(conn) => Some(conn),
            _ => None,
        }
    }

    fn mqtt_mut(&mut self) -> Option<&mut MqttConn> {
        match self {
            Self::Mqtt(conn) => Some(conn),
            _ => None,
        }
    }
}

impl Session {
    fn mqtt(&self) -> Option<&MqttSession> {
        match self {
            Self::Mqtt(session) => Some(session),
            _ => None,
        }
    }

    fn mqtt_mut(&mut self) -> Option<&mut MqttSession> {
        match self {
            Self::Mqtt(session) => Some(session),
            _ => None,
        }
    }
}

impl Connections {
    /// A connection that must be there and speak MQTT; it is a bug, and counted,
    /// if not.
    pub(crate) fn mqtt(&self, c: ConnIdx) -> Option<&MqttConn> {
        self.checked(self.peek_mqtt(c))
    }

    /// As [`Connections::mqtt`].
    pub(crate) fn mqtt_mut(&mut self, c: ConnIdx) -> Option<&mut MqttConn> {
        self.checked_mut(c, Conn::mqtt_mut)
    }

    /// A connection of MQTT that may have ended.
    pub(crate) fn peek_mqtt(&self, c: ConnIdx) -> Option<&MqttConn> {
        self.peek(c).and_then(Conn::mqtt)
    }

    /// As [`Connections::peek_mqtt`].
    pub(crate) fn peek_mqtt_mut(&mut self, c: ConnIdx) -> Option<&mut MqttConn> {
        self.peek_mut(c).and_then(Conn::mqtt_mut)
    }

    /// The buffer of a stream, ready to be written to.
    pub(crate) fn out(&mut self, c: ConnIdx, stream: StreamId) -> Option<&mut SendBuf> {
        self.touch(c);
        self.with_spare(c, |conn| Some(conn.mqtt_mut()?.link.streams.out(stream)))
    }
}

impl Sessions {
    /// A session that must be there and of MQTT; it is a bug, and counted, if not.
    pub(crate) fn mqtt(&self, s: SessionIdx) -> Option<&MqttSession> {
        self.checked(self.peek(s).and_then(Session::mqtt))
    }

    /// As [`Sessions::mqtt`].
    pub(crate) fn mqtt_mut(&mut self, s: SessionIdx) -> Option<&mut MqttSession> {
        self.checked_mut(s, Session::mqtt_mut)
    }

    /// As [`Sessions::resolve_mut`], of MQTT.
    pub(crate) fn resolve_mqtt(&mut self, session: SessionRef) -> Option<&mut MqttSession> {
        self.resolve_mut(session)?.mqtt_mut()
    }

    /// A new session of a client, with a key of its own.
    pub(crate) fn create(&mut self, client_id: Text, version: Version) -> SessionIdx {
        let key = self.next_key();
        self.insert(Session::Mqtt(MqttSession::new(key, client_id, version)))
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use dunlin_base::transport::{Peer, Transport};
    use dunlin_base::{ConnId, Instant, ShardId};

    use super::*;

    fn conn(serial: u64) -> Conn {
        let peer = Peer {
            addr: ([127, 0, 0, 1], 1).into(),
            transport: Transport::Tcp,
            listener: 0,
            identity: None,
            protocol: Text::new(),
            early_data: false,
            binding: None,
        };
        let id = ConnId::new(ShardId(0), serial);
        Conn::Mqtt(MqttConn::new(id, peer, Instant::ZERO, Duration::ZERO))
    }

    #[test]
    fn a_connection_is_found_until_it_is_removed() {
        let id = |serial| ConnId::new(ShardId(0), serial);
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
        assert_eq!(conns.spare_buffers(), 0);
        for _ in 0..=Connections::SPARE_BUFFERS_MAX {
            conns.recycle(SendBuf::new());
        }
        assert_eq!(conns.spare_buffers(), Connections::SPARE_BUFFERS_MAX);
    }

    fn create(sessions: &mut Sessions, client: &'static str) -> SessionIdx {
        sessions.create(Text::from_static(client), Version::V5)
    }

    #[test]
    fn a_reference_does_not_find_a_later_session_at_the_same_place() {
        let mut sessions = Sessions::new(ShardId(3), 0);
        let a = create(&mut sessions, "a");
        let old = sessions.get(a).expect("a session").reference(a);
        assert_eq!(sessions.resolve(old), Some(a));
        assert!(sessions.remove(a, None).is_some());
        assert_eq!((sessions.resolve(old), sessions.find("a")), (None, None));
        let b = create(&mut sessions, "b");
        assert_eq!(a, b);
        assert_eq!(sessions.resolve(old), None);
        assert!(sessions.resolve_mut(old).is_none());
        assert_eq!(sessions.take_missing(), 0);
        assert!(sessions.get(b + 1).is_none());
        assert_eq!(sessions.take_missing(), 1);
    }

    #[test]
    fn keys_have_the_shard_and_go_on_after_a_restart() {
        let mut sessions = Sessions::new(ShardId(3), 0);
        let key = |sessions: &Sessions, s| sessions.get(s).expect("a session").key.0;
        let first = create(&mut sessions, "a");
        let first = key(&sessions, first);
        assert_eq!(first & 0xffff, 3);
        sessions.skip_keys(first + (9 << 16));
        let later = create(&mut sessions, "b");
        assert!(key(&sessions, later) > first + (9 << 16));
        sessions.skip_keys(0);
        let last = create(&mut sessions, "c");
        assert!(key(&sessions, last) > key(&sessions, later));
    }
}
