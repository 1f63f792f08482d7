//! Flows of the MQTT-next draft: the header that a stream may begin with, and
//! what a session remembers of a flow when its stream is gone.
//!
//! A flow is a data stream with a name. Packet identifiers towards the client
//! are unique per connection anyway, so what is left to remember are its
//! subscriptions, and where QoS 2 messages from the client stand.

use alloc::vec::Vec;
use core::time::Duration;

use dunlin_base::transport::NetCommandKind;
use dunlin_base::{Instant, StreamId, Text};
use dunlin_mqtt::codec::{Disconnect, Packet, ReasonCode};
use dunlin_mqtt::flow::{FlowFlags, FlowHeader, connection_code, stream_code};
use dunlin_store::StoreOp;

use crate::conn::{Conn, ConnIdx, DataStream, Head, Phase};
use crate::session::{Session, SessionIdx};
use crate::shard::Shard;

/// Flows of one session, open ones and those that may be recovered.
pub(crate) const FLOWS_MAX: usize = 64;

/// Flows of one connection whose recovery failed and is remembered.
const FAILED_MAX: usize = 16;

/// What a session knows of a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowState {
    flags: FlowFlags,
    expire_secs: u64,
    /// Its stream, or its last one, on the session's connection; control
    /// stands in for those of earlier connections.
    stream: StreamId,
    /// When that stream was lost; `None`: it is open.
    lost_at: Option<Instant>,
}

impl FlowState {
    fn is_expired(&self, now: Instant) -> bool {
        let lasts = Duration::from_secs(self.expire_secs.min(u64::from(u32::MAX)));
        self.lost_at.is_some_and(|at| at + lasts <= now)
    }

    /// Whether its subscriptions outlive its stream.
    pub(crate) const fn keeps_subscriptions(&self) -> bool {
        self.flags.has(FlowFlags::PERSISTENT_SUBSCRIPTIONS) && self.expire_secs > 0
    }
}

/// A flow that the client asks for.
struct Wanted {
    id: u64,
    stream: StreamId,
    expire_secs: u64,
    flags: FlowFlags,
}

impl Shard {
    /// Makes room for a stream that has not been seen before; `false` if it is
    /// one too many, or none that the client may open.
    pub(crate) fn enter_stream(&mut self, c: ConnIdx, stream: StreamId) -> bool {
        let streams_max = self.config.data_streams_max;
        let Some(conn) = self.conns.get_mut(c) else {
            return false;
        };
        if stream == StreamId::CONTROL || conn.streams.iter().any(|(id, _)| *id == stream) {
            return true;
        }
        // Data streams of the client, both dialects; ours are known.
        let opened = conn.streams.iter();
        let opened = opened.filter(|(id, _)| !id.is_server_initiated());
        if stream.is_server_initiated() || opened.count() >= streams_max {
            return false;
        }
        conn.streams.push((stream, DataStream::default()));
        true
    }

    /// Reads the flow header that a stream may begin with. `false` while it is
    /// incomplete, or when it has ended the stream.
    pub(crate) fn read_head(&mut self, c: ConnIdx, stream: StreamId, data: &mut &[u8]) -> bool {
        let Some(head) = self.conns.get_mut(c).and_then(|conn| conn.head(stream)) else {
            return false;
        };
        let header = match core::mem::take(head) {
            Head::Read => {
                *head = Head::Read;
                return true;
            }
            Head::Expected => {
                if !data
                    .first()
                    .is_some_and(|first| FlowHeader::is_type(*first))
                {
                    if !data.is_empty() {
                        *head = Head::Read;
                    }
                    return true;
                }
                let parsed = FlowHeader::parse(data);
                match parsed {
                    Ok(Some((_, len))) => *data = data.get(len..).unwrap_or_default(),
                    Ok(None) => *head = Head::Partial(core::mem::take(data).to_vec()),
                    Err(_) => {}
                }
                parsed
            }
            Head::Partial(mut bytes) => {
                let mut parsed = Ok(None);
                while let (Ok(None), Some((byte, rest))) = (parsed, data.split_first()) {
                    bytes.push(*byte);
                    *data = rest;
                    parsed = FlowHeader::parse(&bytes);
                }
                if parsed == Ok(None) {
                    *head = Head::Partial(bytes);
                }
                parsed
            }
        };
        match header {
            Ok(None) => false,
            Ok(Some((header, _))) => {
                *head = Head::Read;
                self.handle_head(c, stream, header)
            }
            Err(_) => {
                self.break_off(c, connection_code::PROTOCOL_L0);
                false
            }
        }
    }

    /// A whole flow header. `false` if the stream, or the connection, has
    /// ended.
    fn handle_head(&mut self, c: ConnIdx, stream: StreamId, header: FlowHeader) -> bool {
        let code = match header {
            FlowHeader::Control { .. } if stream == StreamId::CONTROL => return true,
            // Without a control flow there is nothing to go on with.
            _ if stream == StreamId::CONTROL => {
                self.break_off(c, connection_code::PROTOCOL_L0);
                return false;
            }
            FlowHeader::Control { .. } | FlowHeader::Data { server: true, .. } => {
                stream_code::STREAM_TYPE
            }
            FlowHeader::User { .. } => stream_code::FLOW_REFUSED,
            FlowHeader::Data {
                id,
                expire_secs,
                flags,
                ..
            } => {
                let wanted = Wanted {
                    id,
                    stream,
                    expire_secs,
                    flags,
                };
                match self.open_flow(c, &wanted) {
                    Ok(()) => return true,
                    Err(code) => code,
                }
            }
        };
        self.end_stream(c, stream, Some(code));
        false
    }

    /// A rule that concerns the whole connection was broken.
    fn break_off(&mut self, c: ConnIdx, code: u64) {
        self.stats.protocol_errors += 1;
        if matches!(
            self.conns.get(c).map(|conn| &conn.phase),
            Some(Phase::Connected(_))
        ) {
            let packet = Packet::Disconnect(Disconnect {
                reason: ReasonCode::ProtocolError,
                ..Disconnect::default()
            });
            self.send(c, StreamId::CONTROL, &packet);
        }
        self.close(c, code);
    }

    /// Opens a flow, takes it over, or recovers it.
    fn open_flow(&mut self, c: ConnIdx, wanted: &Wanted) -> Result<(), u64> {
        let flags = wanted.flags;
        // Even identifiers are the client's; 0 is the control flow.
        if wanted.id == 0 || wanted.id & 1 == 1 {
            return Err(stream_code::BAD_FLOW_ID);
        }
        // They cannot be told from packets.
        if flags.has(FlowFlags::OPTIONAL_HEADERS) {
            return Err(stream_code::OPTIONAL_HEADER);
        }
        if flags.has(FlowFlags::PERSISTENT_TOPIC_ALIAS) {
            return Err(stream_code::PERSISTENT_TOPIC);
        }
        let Some(s) = self.conns.get(c).and_then(Conn::session) else {
            return Err(stream_code::FLOW_REFUSED);
        };
        self.expire_flows(s);
        if flags.has(FlowFlags::CLEAN) {
            let contradicts = flags.has(FlowFlags::ABORT_IF_NO_STATE);
            self.forget_flow(s, wanted.id);
            if contradicts {
                return Err(stream_code::DISCARD_STATE);
            }
        }
        let Some(session) = self.sessions.get(s) else {
            return Err(stream_code::FLOW_REFUSED);
        };
        let known = session.flows.get(&wanted.id).copied();
        match known {
            Some(state) => self.move_flow(c, s, wanted, state)?,
            None if flags.has(FlowFlags::ABORT_IF_NO_STATE) => {
                return self.miss_flow(c, wanted.id);
            }
            None if session.flows.len() >= FLOWS_MAX => return Err(stream_code::FLOW_REFUSED),
            None => {}
        }
        let state = FlowState {
            flags,
            expire_secs: wanted.expire_secs,
            stream: wanted.stream,
            lost_at: None,
        };
        if let Some(session) = self.sessions.get_mut(s) {
            session.flows.insert(wanted.id, state);
        }
        let conn = self.conns.get_mut(c);
        if let Some(data) = conn.and_then(|conn| conn.data_stream(wanted.stream)) {
            data.flow = wanted.id;
        }
        Ok(())
    }

    /// A known flow goes on, on another stream: the old one is ended, or is
    /// gone already. Only a later stream takes over (draft, section 9.14).
    fn move_flow(
        &mut self,
        c: ConnIdx,
        s: SessionIdx,
        wanted: &Wanted,
        state: FlowState,
    ) -> Result<(), u64> {
        let old = state.stream;
        if state.lost_at.is_none() {
            let same_kind = old.is_unidirectional() == wanted.stream.is_unidirectional();
            if !same_kind || old > wanted.stream {
                return Err(stream_code::FLOW_CANCELLED);
            }
            // What it did not carry whole is dropped.
            if let Some(conn) = self.conns.get_mut(c) {
                conn.abandon(old);
                let (conn, code) = (conn.id, stream_code::FLOW_CANCELLED);
                self.command(conn, NetCommandKind::ResetStream { stream: old, code });
            }
        }
        let Some(session) = self.sessions.get_mut(s) else {
            return Ok(());
        };
        if old != StreamId::CONTROL {
            session.inbound.rehome(old, wanted.stream);
        }
        // Acknowledgements of what came one way go to control, and so do
        // deliveries.
        if wanted.stream.is_unidirectional() {
            return Ok(());
        }
        let moved = session.subscriptions.iter_mut();
        let moved: Vec<_> = moved
            .filter(|(_, subscription)| subscription.flow == wanted.id)
            .map(|(text, subscription)| {
                subscription.stream = wanted.stream;
                (text.clone(), *subscription)
            })
            .collect();
        for (text, subscription) in moved {
            self.plant(s, &text, subscription);
        }
        Ok(())
    }

    /// There is nothing to recover. Who asks again is cut off.
    fn miss_flow(&mut self, c: ConnIdx, id: u64) -> Result<(), u64> {
        if let Some(conn) = self.conns.get_mut(c) {
            if conn.failed_flows.contains(&id) {
                self.break_off(c, connection_code::TOO_MANY_RECOVER_ATTEMPTS);
            } else {
                if conn.failed_flows.len() >= FAILED_MAX {
                    conn.failed_flows.remove(0);
                }
                conn.failed_flows.push(id);
            }
        }
        Err(stream_code::NO_FLOW_STATE)
    }

    /// The stream of a flow ended: in order, and then the flow is over, or
    /// not, and then it may be recovered.
    pub(crate) fn end_flow(&mut self, s: SessionIdx, id: u64, stream: StreamId, in_order: bool) {
        let now = self.now;
        let Some(session) = self.sessions.get_mut(s) else {
            return;
        };
        let Some(state) = session.flows.get_mut(&id) else {
            return;
        };
        // Another stream may have taken it over.
        if state.stream != stream || state.lost_at.is_some() {
            return;
        }
        if in_order || state.expire_secs == 0 {
            return self.forget_flow(s, id);
        }
        state.lost_at = Some(now);
        if !state.keeps_subscriptions() {
            self.drop_subscriptions(s, |flow, _| flow == id);
        }
    }

    /// The connection is gone, and the streams of all flows with it, as well
    /// as the subscriptions that end with their streams.
    pub(crate) fn lose_streams(&mut self, s: SessionIdx, durable: bool) {
        let Some(session) = self.sessions.get(s) else {
            return;
        };
        let flows = session.flows.iter();
        let flows: Vec<_> = flows.map(|(id, state)| (*id, state.stream)).collect();
        for (id, stream) in flows {
            self.end_flow(s, id, stream, false);
        }
        let flows = self.sessions.get_mut(s).map(|session| &mut session.flows);
        for state in flows.into_iter().flat_map(|flows| flows.values_mut()) {
            state.stream = StreamId::CONTROL;
        }
        if !durable {
            self.drop_subscriptions(s, |flow, stream| flow == 0 && stream != StreamId::CONTROL);
        }
    }

    /// Forgets flows that nobody recovered in time.
    pub(crate) fn expire_flows(&mut self, s: SessionIdx) {
        let now = self.now;
        let Some(session) = self.sessions.get(s) else {
            return;
        };
        let flows = session.flows.iter();
        let expired: Vec<u64> = flows
            .filter(|(_, state)| state.is_expired(now))
            .map(|(id, _)| *id)
            .collect();
        for id in expired {
            self.forget_flow(s, id);
        }
    }

    fn forget_flow(&mut self, s: SessionIdx, id: u64) {
        let flows = self.sessions.get_mut(s).map(|session| &mut session.flows);
        // A stream that is still open goes on as one without a name.
        if flows.is_some_and(|flows| flows.remove(&id).is_some()) {
            self.drop_subscriptions(s, |flow, _| flow == id);
        }
    }

    /// Ends subscriptions, by their flow and stream.
    pub(crate) fn drop_subscriptions(
        &mut self,
        s: SessionIdx,
        which: impl Fn(u64, StreamId) -> bool,
    ) {
        let Some(session) = self.sessions.get_mut(s) else {
            return;
        };
        let all = session.subscriptions.iter();
        let dropped: Vec<Text> = all
            .filter(|(_, subscription)| which(subscription.flow, subscription.stream))
            .map(|(text, _)| text.clone())
            .collect();
        let mut changes = Vec::new();
        for text in dropped {
            changes.extend(self.uproot(s, &text));
            let Some(session) = self.sessions.get_mut(s) else {
                break;
            };
            session.subscriptions.remove(text.as_bytes());
            session.walks.retain(|walk| walk.filter != text);
            if session.is_persistent() {
                let (key, filter) = (session.key, text);
                self.write(StoreOp::DeleteSubscription { key, filter });
            }
        }
        if !changes.is_empty() {
            self.tell_all(0, &changes);
        }
    }

    /// The flow of a stream; 0: none.
    pub(crate) fn flow_of(&self, c: ConnIdx, stream: StreamId) -> u64 {
        let conn = self.conns.get(c);
        let mut streams = conn.into_iter().flat_map(|conn| &conn.streams);
        streams
            .find(|(id, _)| *id == stream)
            .map_or(0, |(_, data)| data.flow)
    }

    /// Whether a subscription made on a stream outlives the connection.
    pub(crate) fn outlives(&self, c: ConnIdx, session: &Session, stream: StreamId) -> bool {
        if stream == StreamId::CONTROL {
            return true;
        }
        match session.flows.get(&self.flow_of(c, stream)) {
            Some(state) => state.keeps_subscriptions(),
            None => self.conns.get(c).is_none_or(|conn| conn.durable_streams),
        }
    }
}
