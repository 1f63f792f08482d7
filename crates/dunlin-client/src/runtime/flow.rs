//! The MQTT-next draft: the flow header that a stream of the server may begin
//! with, and the codes by which streams are refused and given up. Nothing else
//! in this crate knows the draft.

use dunlin_base::{ConnId, StreamId};
use dunlin_mqtt::flow::{FlowFlags, FlowHeader, stream_code};
use dunlin_net::Net;

/// Wants nothing of a stream of the server.
pub(super) fn refuse(net: &mut Net, conn: ConnId, stream: StreamId) {
    net.conn(conn).stop_stream(stream, stream_code::STREAM_TYPE);
    net.conn(conn)
        .reset_stream(stream, stream_code::STREAM_TYPE);
}

/// What was written on a stream is of no use any more.
pub(super) fn give_up(net: &mut Net, conn: ConnId, stream: StreamId) {
    let code = stream_code::FLOW_PACKET_CANCELLED;
    net.conn(conn).reset_stream(stream, code);
}

/// Length of the flow header that a server's stream begins with, 0 if it has
/// none, `None` if more bytes are needed to tell; an error if it is not one
/// that a client takes.
pub(super) fn header_len(bytes: &[u8]) -> Result<Option<usize>, ()> {
    match bytes.first() {
        Some(first) if FlowHeader::is_type(*first) => {}
        Some(_) => return Ok(Some(0)),
        None => return Ok(None),
    }
    match FlowHeader::parse(bytes) {
        Ok(None) => Ok(None),
        Ok(Some((
            FlowHeader::Data {
                server: true,
                flags,
                ..
            },
            len,
        ))) if !flags.has(FlowFlags::OPTIONAL_HEADERS) => Ok(Some(len)),
        Ok(Some(_)) | Err(_) => Err(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_headers_differ_from_packets() {
        type Answer = Result<Option<usize>, ()>;
        let cases: [(&[u8], Answer); 10] = [
            (&[], Ok(None)),
            (&[0x30, 0], Ok(Some(0))),
            (&[0x13], Ok(None)),
            (&[0x13, 0x03, 0x41], Ok(None)),
            (&[0x13, 0x03, 0x41, 0x2c], Ok(None)),
            (&[0x13, 0x03, 0x41, 0x2c, 0x00, 0x30], Ok(Some(5))),
            (&[0x13, 0x03, 0x01, 0x80], Err(())),
            (&[0x11, 0x00, 0x00], Err(())),
            (&[0x12, 0x02, 0x00, 0x00], Err(())),
            (&[0x14, 0x00], Err(())),
        ];
        for (bytes, want) in cases {
            assert_eq!(header_len(bytes), want, "{bytes:02x?}");
        }
    }
}
