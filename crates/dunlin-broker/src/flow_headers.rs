//! Flow headers of the MQTT-next draft: what a stream may begin with, and the
//! flow that it opens, takes over or recovers.

use crate::conn::{Conn, Phase};
use crate::flow_state::{FLOWS_MAX, FlowState};
use crate::ids::{ConnIdx, SessionIdx};
use crate::owners::Owners;
use crate::{data_streams, ending, flows, send};
use alloc::vec::Vec;
use dunlin_base::StreamId;
use dunlin_base::transport::NetCommandKind;
use dunlin_mqtt::codec::{Disconnect, Packet, ReasonCode};
use dunlin_mqtt::flow::{FlowFlags, FlowHeader, connection_code, stream_code};
use dunlin_mqtt::server::link::HeadRead;

/// A flow that the client asks for.
struct Wanted {
    id: u64,
    stream: StreamId,
    expire_secs: u64,
    flags: FlowFlags,
}

/// Reads the flow header that a stream may begin with. `false` while it is
/// incomplete, or when it has ended the stream.
pub(crate) fn read_head(own: &mut Owners, c: ConnIdx, stream: StreamId, data: &mut &[u8]) -> bool {
    let conn = own.conns.get_mut(c);
    let Some(entry) = conn.and_then(|conn| conn.link.streams.get_mut(stream)) else {
        return false;
    };
    match entry.head.read(data) {
        HeadRead::Packets => true,
        HeadRead::Incomplete => false,
        HeadRead::Header(header) => handle_head(own, c, stream, header),
        HeadRead::Malformed => {
            break_off(own, c, connection_code::PROTOCOL_L0);
            false
        }
    }
}

/// A whole flow header. `false` if the stream, or the connection, has
/// ended.
fn handle_head(own: &mut Owners, c: ConnIdx, stream: StreamId, header: FlowHeader) -> bool {
    let code = match header {
        FlowHeader::Control { .. } if stream == StreamId::CONTROL => return true,
        // Without a control flow there is nothing to go on with.
        _ if stream == StreamId::CONTROL => {
            break_off(own, c, connection_code::PROTOCOL_L0);
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
            match open_flow(own, c, &wanted) {
                Ok(()) => return true,
                Err(code) => code,
            }
        }
    };
    data_streams::end_stream(own, c, stream, Some(code));
    false
}

/// A rule that concerns the whole connection was broken.
fn break_off(own: &mut Owners, c: ConnIdx, code: u64) {
    own.stats.protocol_errors += 1;
    if matches!(
        own.conns.get(c).map(|conn| &conn.phase),
        Some(Phase::Connected(_))
    ) {
        let packet = Packet::Disconnect(Disconnect {
            reason: ReasonCode::ProtocolError,
            ..Disconnect::default()
        });
        send::send(own, c, StreamId::CONTROL, &packet);
    }
    ending::close(own, c, code);
}

/// Opens a flow, takes it over, or recovers it.
fn open_flow(own: &mut Owners, c: ConnIdx, wanted: &Wanted) -> Result<(), u64> {
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
    let Some(s) = own.conns.get(c).and_then(Conn::session) else {
        return Err(stream_code::FLOW_REFUSED);
    };
    flows::expire_flows(own, s);
    if flags.has(FlowFlags::CLEAN) {
        let contradicts = flags.has(FlowFlags::ABORT_IF_NO_STATE);
        flows::forget_flow(own, s, wanted.id);
        if contradicts {
            return Err(stream_code::DISCARD_STATE);
        }
    }
    let Some(session) = own.sessions.get(s) else {
        return Err(stream_code::FLOW_REFUSED);
    };
    let known = session.flows.get(&wanted.id).copied();
    match known {
        Some(state) => move_flow(own, c, s, wanted, state)?,
        None if flags.has(FlowFlags::ABORT_IF_NO_STATE) => {
            return miss_flow(own, c, wanted.id);
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
    if let Some(session) = own.sessions.get_mut(s) {
        session.flows.insert(wanted.id, state);
    }
    let conn = own.conns.get_mut(c);
    if let Some(data) = conn.and_then(|conn| conn.link.streams.data_mut(wanted.stream)) {
        data.flow = wanted.id;
    }
    Ok(())
}

/// A known flow goes on, on another stream: the old one is ended, or is
/// gone already. Only a later stream takes over (draft, section 9.14).
fn move_flow(
    own: &mut Owners,
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
        if let Some(conn) = own.conns.get_mut(c) {
            conn.link.streams.abandon(old);
            let (conn, code) = (conn.id, stream_code::FLOW_CANCELLED);
            own.outbox
                .command(conn, NetCommandKind::ResetStream { stream: old, code });
        }
    }
    let Some(session) = own.sessions.get_mut(s) else {
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
        own.routing.insert(s, &text, subscription.value());
    }
    Ok(())
}

/// There is nothing to recover. Who asks again is cut off.
fn miss_flow(own: &mut Owners, c: ConnIdx, id: u64) -> Result<(), u64> {
    if let Some(conn) = own.conns.get_mut(c)
        && !conn.link.note_failed_flow(id)
    {
        break_off(own, c, connection_code::TOO_MANY_RECOVER_ATTEMPTS);
    }
    Err(stream_code::NO_FLOW_STATE)
}
