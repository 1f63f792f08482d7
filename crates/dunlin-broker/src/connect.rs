//! CONNECT: where the session lives, who the client is, which session it gets,
//! and what CONNACK says.

use alloc::boxed::Box;
use alloc::format;

use bytes::Bytes;
use dunlin_base::transport::{NetCommandKind, Transport, close_code};
use dunlin_base::{ShardId, StreamId, Text};
use dunlin_mqtt::codec::{
    ConnAck, ConnAckProperties, Connect, Packet, ReasonCode, Version, decode,
};
use dunlin_mqtt::flow;
use dunlin_mqtt::server::{AliasTable, TopicAliases};
use dunlin_store::{StoreOp, StoredWill};

use crate::auth::{AuthAnswer, AuthPolicy, AuthRequest, FirstStep};
use crate::conn::{Conn, ConnAckFacts, ConnIdx, PendingConnect, Phase};
use crate::fault::Fault;
use crate::io::{Event, Output};
use crate::link::Flow;
use crate::pending::Pending;
use crate::random::home_shard;
use crate::session::{Session, SessionIdx};
use crate::shard::Shard;
use crate::timers::Timer;

/// The outcome of authentication, on its way into a session.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    pub(crate) user: Option<Text>,
    /// Last message of an enhanced authentication, for CONNACK.
    pub(crate) data: Option<Bytes>,
}

impl Shard {
    /// A CONNECT that decoded well.
    pub(crate) fn handle_connect(
        &mut self,
        c: ConnIdx,
        packet: &[u8],
        connect: &Connect<'_>,
    ) -> Result<Flow, Fault> {
        if let Some(conn) = self.conns.get_mut(c) {
            conn.version = connect.version;
        }
        let mut assigned = None;
        if connect.client_id.is_empty() {
            //= mqtt5#[MQTT-3.1.3-6]
            if connect.version == Version::V311 && !connect.clean_start {
                self.refuse(c, ReasonCode::ClientIdentifierNotValid);
                return Ok(Flow::Continue);
            }
            assigned = Some(self.assign_client_id());
        } else if self.config.shards > 1 {
            let home = ShardId(home_shard(connect.client_id, self.config.shards));
            if home != self.config.shard {
                return Ok(Flow::HandOver(home));
            }
        }
        let pending = PendingConnect {
            packet: Bytes::copy_from_slice(packet),
            assigned,
        };
        self.authenticate(c, connect, pending);
        // Decided at once, unless somebody has to be asked.
        self.unpark_connected(c);
        Ok(Flow::Continue)
    }

    /// CONNACK with an error, then close.
    pub(crate) fn refuse(&mut self, c: ConnIdx, reason: ReasonCode) {
        self.send_refusal(c, reason);
        self.close(c, close_code::NO_ERROR);
    }

    /// What its listener asks of a client.
    pub(crate) fn policy(&self, listener: u16) -> AuthPolicy {
        let policy = self.config.listeners.get(usize::from(listener)).copied();
        policy.unwrap_or_default()
    }

    fn authenticate(&mut self, c: ConnIdx, connect: &Connect<'_>, pending: PendingConnect) {
        if let Some(method) = connect.properties.authentication_method {
            return self.begin_exchange(c, method, connect, pending);
        }
        let Some(conn) = self.conns.get(c) else {
            return;
        };
        let policy = self.policy(conn.peer.listener);
        let assigned = pending.assigned.clone();
        let client_id = assigned.unwrap_or_else(|| Text::from(connect.client_id));
        let user = connect.username.map(Text::from);
        let password = connect.password.map(Bytes::copy_from_slice);
        let step = policy.first_step(&conn.peer, &client_id, user.as_ref(), password.as_ref());
        match step {
            FirstStep::Accept { user } => {
                let identity = Identity { user, data: None };
                self.accept(c, connect, pending.assigned, identity);
            }
            FirstStep::Refuse => self.refuse(c, ReasonCode::NotAuthorized),
            FirstStep::Ask(request) => {
                self.ask(c, Phase::Authenticating(Box::new(pending)), request)
            }
        }
    }

    /// Asks the authenticator, with the connection in `phase` meanwhile.
    pub(crate) fn ask(&mut self, c: ConnIdx, phase: Phase, request: AuthRequest) {
        if let Some(conn) = self.conns.get_mut(c) {
            conn.phase = phase;
            let conn = conn.id;
            self.output(Output::Auth { conn, request });
        }
    }

    /// The authenticator answered for this connection.
    pub(crate) fn handle_auth_answer(&mut self, c: ConnIdx, answer: AuthAnswer) {
        let Some(conn) = self.conns.get_mut(c) else {
            return;
        };
        let pending = match core::mem::replace(&mut conn.phase, Phase::ExpectConnect) {
            Phase::Authenticating(pending) => pending,
            other => {
                conn.phase = other;
                return self.challenge(c, &answer);
            }
        };
        match answer {
            AuthAnswer::Accept { user } => {
                self.accept_pending(c, *pending, Identity { user, data: None });
            }
            AuthAnswer::Busy => self.refuse(c, ReasonCode::ServerBusy),
            _ => self.refuse(c, ReasonCode::BadUserNameOrPassword),
        }
    }

    /// Accepts a CONNECT that was kept while its verdict was out.
    pub(crate) fn accept_pending(
        &mut self,
        c: ConnIdx,
        pending: PendingConnect,
        identity: Identity,
    ) {
        // It decoded before, so this cannot fail.
        if let Ok(Packet::Connect(connect)) = decode(&pending.packet, Version::V5) {
            self.accept(c, &connect, pending.assigned, identity);
            self.unpark_connected(c);
        }
    }

    /// Handles what waited for CONNACK, if it has been sent.
    fn unpark_connected(&mut self, c: ConnIdx) {
        let phase = self.conns.get(c).map(|conn| &conn.phase);
        if matches!(phase, Some(Phase::Connected(_))) {
            self.unpark(c);
        }
    }

    /// The client is who it says: gives it its session.
    fn accept(
        &mut self,
        c: ConnIdx,
        connect: &Connect<'_>,
        assigned: Option<Text>,
        identity: Identity,
    ) {
        let client_id = assigned
            .clone()
            .unwrap_or_else(|| Text::from(connect.client_id));
        let (s, session_present) = self.take_session(connect, &client_id);
        let expiry = self.session_expiry(connect);
        let will = connect.will.as_ref().map(|will| {
            Box::new(StoredWill {
                message: dunlin_mqtt::server::delivery::will_message(will),
                delay_secs: will.properties.delay_interval.unwrap_or(0),
                message_expiry_secs: will.properties.message_expiry_interval,
            })
        });
        let facts = ConnAckFacts {
            session_present,
            assigned,
            server_keep_alive: self.negotiate(c, connect),
            session_expiry: (connect.version == Version::V5
                && connect.properties.session_expiry_interval.unwrap_or(0) != expiry)
                .then_some(expiry),
            auth_method: connect.properties.authentication_method.map(Text::from),
            auth_data: identity.data,
        };
        let Some(session) = self.sessions.get_mut(s) else {
            return;
        };
        session.version = connect.version;
        session.user = identity.user;
        session.expiry_secs = expiry;
        session.will = will;
        session.will_due = None;
        session.disconnected_at = None;
        session.conn = Some(c);
        // A session that was stored stays so although it now ends with its
        // connection: its queue may be only in the store.
        let must_store = self.config.durable
            && (session.is_persistent() || session.will.is_some() || session.stored);
        if must_store {
            session.stored = true;
            let op = StoreOp::PutSession {
                key: session.key,
                record: session.record(),
            };
            self.write(op);
        }
        if let Some(conn) = self.conns.get_mut(c) {
            conn.phase = Phase::Storing(s, Box::new(facts));
        }
        let Some(conn) = self.conns.get(c).map(|conn| conn.id) else {
            return;
        };
        // The record is stored before the client is told.
        if must_store {
            let token = self.token();
            self.await_writes(token, Pending::Connect { conn });
        } else {
            self.connected(c);
        }
    }

    /// CONNACK, then everything that waited for it.
    pub(crate) fn connected(&mut self, c: ConnIdx) {
        let Some(conn) = self.conns.get_mut(c) else {
            return;
        };
        let (s, facts) = match core::mem::replace(&mut conn.phase, Phase::Closing) {
            Phase::Storing(s, facts) => (s, facts),
            other => {
                conn.phase = other;
                return;
            }
        };
        conn.phase = Phase::Connected(s);
        conn.last_packet = self.now;
        let (id, silence) = (conn.id, conn.silence_max);
        let timeout = if silence.is_zero() {
            self.timers.cancel(Timer::Conn(id), &mut conn.alarm);
            self.config.idle_timeout_max
        } else {
            let due = self.now + silence;
            self.timers.remind(due, Timer::Conn(id), &mut conn.alarm);
            // The engine ends it first, with a reason; the transport's own
            // timeout is the net under it.
            silence + silence / 4
        };
        self.command(id, NetCommandKind::SetIdleTimeout { timeout });
        self.send_connack(c, &facts);
        if self.conns.get(c).and_then(Conn::session).is_none() {
            return;
        }
        self.stats.clients_accepted += 1;
        let Some(session) = self.sessions.get_mut(s) else {
            return;
        };
        session.inbound.handle_connected();
        session.outbound.handle_resumed();
        self.expire_flows(s);
        self.rehome_streams(s);
        let Some(session) = self.sessions.get(s) else {
            return;
        };
        let client_id = session.client_id.clone();
        self.event(Event::Connected {
            conn: id,
            client_id,
            resumed: facts.session_present,
        });
        self.send_acks(s);
        self.pump(s);
    }

    fn send_connack(&mut self, c: ConnIdx, facts: &ConnAckFacts) {
        let config = &self.config;
        let lowered = config.packet_bytes_max < dunlin_base::limits::PACKET_BYTES_DEFAULT;
        let asked = self.conns.get(c).is_some_and(|conn| conn.asked_for_streams);
        let streams = format!("{}", config.data_streams_max);
        let answer = [(flow::option::DATA_STREAMS, streams.as_str())];
        let properties = ConnAckProperties {
            user_properties: answer.get(..usize::from(asked)).unwrap_or_default().into(),
            session_expiry_interval: facts.session_expiry,
            receive_maximum: core::num::NonZeroU16::new(config.receive_maximum),
            maximum_packet_size: core::num::NonZeroU32::new(config.packet_bytes_max)
                .filter(|_| lowered),
            assigned_client_identifier: facts.assigned.as_deref(),
            topic_alias_maximum: (config.topic_alias_maximum > 0)
                .then_some(config.topic_alias_maximum),
            server_keep_alive: facts.server_keep_alive,
            authentication_method: facts.auth_method.as_deref(),
            authentication_data: facts.auth_data.as_deref(),
            ..ConnAckProperties::default()
        };
        let packet = Packet::ConnAck(ConnAck {
            session_present: facts.session_present,
            reason: ReasonCode::Success,
            properties,
        });
        let fits = self.conns.get(c).is_some_and(|conn| {
            let len = packet.encoded_len(conn.version);
            len.is_ok_and(|len| len <= conn.packet_bytes_max as usize)
        });
        self.send(c, StreamId::CONTROL, &packet);
        if !fits {
            // The client would wait for it in vain.
            self.close(c, close_code::NO_ERROR);
        }
    }

    /// Takes over what the client asked for on the connection; returns the
    /// Server Keep Alive if it differs.
    fn negotiate(&mut self, c: ConnIdx, connect: &Connect<'_>) -> Option<u16> {
        let max = self.config.keep_alive_secs_max;
        let asked = connect.keep_alive;
        let keep_alive = match (asked, max) {
            (asked, 0) => asked,
            (0, max) => max,
            (asked, max) => asked.min(max),
        };
        self.take_stream_options(c, connect);
        let alias_maximum = self.config.topic_alias_maximum;
        let conn = self.conns.get_mut(c)?;
        let properties = &connect.properties;
        conn.receive_maximum = properties.receive_maximum.map_or(u16::MAX, |max| max.get());
        conn.packet_bytes_max = properties
            .maximum_packet_size
            .map_or(u32::MAX, |max| max.get());
        let mut asked_for = properties.user_properties.iter();
        conn.asked_for_streams = conn.peer.transport == Transport::Quic
            && asked_for.any(|(name, _)| name == flow::option::DATA_STREAMS);
        conn.problem_information = properties.request_problem_information.unwrap_or(true);
        conn.aliases_in = TopicAliases::new(alias_maximum);
        conn.aliases_out = AliasTable::new(properties.topic_alias_maximum.unwrap_or(0));
        conn.auth_method = properties.authentication_method.map(Text::from);
        // 3.1.1 has no Server Keep Alive: there the client's value stands.
        let effective = match connect.version {
            Version::V5 => keep_alive,
            Version::V311 => asked,
        };
        //= mqtt5#[MQTT-3.1.2-22]
        conn.silence_max = core::time::Duration::from_millis(u64::from(effective) * 1500);
        (connect.version == Version::V5 && keep_alive != asked).then_some(keep_alive)
    }

    fn session_expiry(&self, connect: &Connect<'_>) -> u32 {
        let max = self.config.session_expiry_secs_max;
        match connect.version {
            Version::V5 => connect
                .properties
                .session_expiry_interval
                .unwrap_or(0)
                .min(max),
            Version::V311 if connect.clean_start => 0,
            Version::V311 => max,
        }
    }

    /// The session for a CONNECT, and whether it existed. A connection that
    /// has it is told 0x8E and closed.
    fn take_session(&mut self, connect: &Connect<'_>, client_id: &Text) -> (SessionIdx, bool) {
        if let Some(&s) = self.client_ids.get(client_id.as_bytes()) {
            let old = self.sessions.get(s).and_then(|session| session.conn);
            if let Some(old) = old {
                //= mqtt5#[MQTT-3.1.4-3]
                self.stats.take_overs += 1;
                self.disconnect(old, ReasonCode::SessionTakenOver);
            }
        }
        // The disconnection may have ended the session.
        if let Some(&s) = self.client_ids.get(client_id.as_bytes()) {
            if !connect.clean_start {
                return (s, true);
            }
            //= mqtt5#[MQTT-3.1.2-4]
            self.end_session(s);
        }
        let key = self.new_session_key();
        let s = self
            .sessions
            .insert(Session::new(key, client_id.clone(), connect.version));
        self.client_ids.insert(client_id.clone(), s);
        self.session_keys.insert(key.0, s);
        (s, false)
    }

    /// An identifier that belongs to this shard.
    fn assign_client_id(&mut self) -> Text {
        loop {
            let id = format!("auto-{:016x}", self.random.next());
            if home_shard(&id, self.config.shards) == self.config.shard.0
                && !self.client_ids.contains_key(id.as_bytes())
            {
                return Text::from(id);
            }
        }
    }
}
