//! Flow headers: what a stream may begin with, and the flow that it opens, takes over or
//! recovers.

use dunlin_base::StreamId;
use dunlin_mqtt::codec::{Disconnect, Packet, ReasonCode};
use dunlin_mqtt::flow::{FlowHeader, FlowRefused, HeadRead, Wanted, connection_code, stream_code};
use dunlin_mqtt::server::session::Changes;

use crate::ids::ConnIdx;
use crate::mqtt::conn::{MqttConn, Phase};
use crate::mqtt::flows::resets;
use crate::mqtt::{data_streams, ending, send, subscribe};
use crate::owners::Owners;

/// Reads the flow header that a stream may begin with. `false` while it is
/// incomplete, or when it has ended the stream.
pub(crate) fn read_head(own: &mut Owners, c: ConnIdx, stream: StreamId, data: &mut &[u8]) -> bool {
    let conn = own.conns.mqtt_mut(c);
    let Some(entry) = conn.and_then(|conn| conn.link.streams.get_mut(stream)) else {
        own.outbox.note_missing();
        return false;
    };
    match entry.flow.read(data) {
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
        own.conns.mqtt(c).map(|conn| &conn.phase),
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
    let s = own.conns.mqtt(c).and_then(MqttConn::session);
    let Some((s, session)) = s.and_then(|s| Some((s, own.sessions.mqtt_mut(s)?))) else {
        return Err(stream_code::FLOW_REFUSED);
    };
    let mut changes = Changes::default();
    let opened = session.mqtt.open_flow(wanted, own.now, &mut changes);
    subscribe::apply(own, s, changes);
    match opened {
        Ok(left) => {
            enter_flow(own, c, wanted, left);
            Ok(())
        }
        Err(FlowRefused::Code(code)) => Err(code),
        Err(FlowRefused::Unknown) => miss_flow(own, c, wanted.id),
    }
}

/// A flow has its stream. What the one that it left did not carry whole is
/// dropped.
fn enter_flow(own: &mut Owners, c: ConnIdx, wanted: &Wanted, left: Option<StreamId>) {
    let Some(conn) = own.conns.mqtt_mut(c) else {
        return;
    };
    if let Some(data) = conn.link.streams.data_mut(wanted.stream) {
        data.flow.enter(wanted.id);
    }
    if let Some(stream) = left {
        conn.link.streams.abandon(stream);
        resets::cancel(&mut own.outbox, conn.id, stream);
    }
}

/// There is nothing to recover. A client that asks again is cut off.
fn miss_flow(own: &mut Owners, c: ConnIdx, id: u64) -> Result<(), u64> {
    if let Some(conn) = own.conns.mqtt_mut(c)
        && !conn.link.failed_flows.note(id)
    {
        break_off(own, c, connection_code::TOO_MANY_RECOVER_ATTEMPTS);
    }
    Err(stream_code::NO_FLOW_STATE)
}
