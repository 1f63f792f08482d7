//! Data streams of one connection: what was written on them, what waits for
//! them, and what comes on them. Decisions are in `dunlin_mqtt::streams`, packets in
//! `outgoing` and `incoming`.

use std::collections::{BTreeMap, HashMap, VecDeque};

use dunlin_base::{ConnId, SendBuf, StreamId, Text};
use dunlin_mqtt::flow::{FlowFlags, FlowHeader, stream_code};
use dunlin_mqtt::streams::publish::PublishPlanner;

use super::QueuedPublish;
use super::io::Context;
use crate::error::PublishError;
use crate::streams::StreamOptions;

/// Bytes that wait for one stream, beyond which no more messages are written
/// on it.
const STREAM_BYTES_MAX: usize = 64 * 1024;

/// Data streams of a connection.
pub(super) struct DataStreams {
    pub(super) routes: PublishPlanner,
    open: HashMap<StreamId, Outgoing>,
    /// Topics that wait until their stream, or control, has room.
    blocked: Vec<(StreamId, Text)>,
    /// What came on a stream and is not a whole packet yet.
    pub(super) inputs: BTreeMap<StreamId, Input>,
    /// Streams to refuse.
    refused: Vec<StreamId>,
    /// Streams that the server ended and this side has not.
    answered: Vec<StreamId>,
    /// How many data streams the server takes, by its CONNACK.
    pub(super) announced: Option<usize>,
    /// The server refused them on this or an earlier connection.
    pub(super) refused_by_server: bool,
    /// The transport has been told about this connection.
    pub(super) configured: bool,
}

/// A stream that this side writes on.
#[derive(Default)]
struct Outgoing {
    out: SendBuf,
    given: u64,
    /// Messages of QoS 0 whose last byte is the n-th given to the transport.
    leaving: VecDeque<(u64, QueuedPublish)>,
    /// Messages whose stream is given up when they are too old.
    held: Vec<QueuedPublish>,
}

/// A stream that the server writes on.
#[derive(Default)]
pub(super) struct Input {
    /// The flow header is still to come, or is known not to.
    pub(super) begun: bool,
    /// Nothing more will come.
    pub(super) ended: bool,
    pub(super) bytes: Vec<u8>,
}

impl DataStreams {
    pub(super) fn new(options: &StreamOptions) -> Self {
        Self {
            routes: PublishPlanner::new(options.planned()),
            open: HashMap::new(),
            blocked: Vec::new(),
            inputs: BTreeMap::new(),
            refused: Vec::new(),
            answered: Vec::new(),
            announced: None,
            refused_by_server: false,
            configured: false,
        }
    }

    /// The connection is gone; gives the messages that went with it.
    pub(super) fn forget_connection(&mut self) -> Vec<QueuedPublish> {
        self.routes.start(false, None);
        self.blocked = Vec::new();
        self.inputs = BTreeMap::new();
        self.refused = Vec::new();
        self.answered = Vec::new();
        self.announced = None;
        let open = core::mem::take(&mut self.open);
        open.into_values().flat_map(Outgoing::messages).collect()
    }

    /// Bytes that came and are not read yet.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.inputs.values().map(|input| input.bytes.len()).sum()
    }

    /// Where to encode what goes on a stream: control, if the stream is gone.
    pub(super) fn buffer<'a>(
        &'a mut self,
        stream: StreamId,
        control: &'a mut SendBuf,
    ) -> &'a mut SendBuf {
        match self.open.get_mut(&stream) {
            Some(outgoing) => &mut outgoing.out,
            None => control,
        }
    }

    pub(super) fn opened(&mut self, stream: StreamId) {
        self.open.insert(stream, Outgoing::default());
    }

    /// Whether another message may be written on a stream.
    pub(super) fn has_room(
        &self,
        context: &mut Context<'_>,
        conn: ConnId,
        stream: StreamId,
    ) -> bool {
        let written = self.open.get(&stream).map_or(0, |o| o.out.len());
        written + context.net.stream_backlog(conn, stream) < STREAM_BYTES_MAX
    }

    /// Whether topics wait for room.
    pub(super) fn is_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    /// Whether there is anything to do for other streams than control.
    pub(super) fn is_in_use(&self) -> bool {
        self.routes.is_active()
            || !(self.open.is_empty() && self.answered.is_empty() && self.refused.is_empty())
    }

    /// A topic waits until a stream has room.
    pub(super) fn block(&mut self, stream: StreamId, topic: Text) {
        self.blocked.push((stream, topic));
    }

    /// The topics that wait no more.
    pub(super) fn take_unblocked(
        &mut self,
        context: &mut Context<'_>,
        conn: ConnId,
        control_has_room: bool,
    ) -> Vec<Text> {
        let mut unblocked = Vec::new();
        for (stream, topic) in core::mem::take(&mut self.blocked) {
            let has_room = match stream {
                StreamId::CONTROL => control_has_room,
                stream => self.has_room(context, conn, stream),
            };
            match has_room {
                true => unblocked.push(topic),
                false => self.blocked.push((stream, topic)),
            }
        }
        unblocked
    }

    /// A message of QoS 0 was written on a stream. `hold`: its stream may be
    /// given up, which decides its outcome.
    pub(super) fn wrote(&mut self, stream: StreamId, message: QueuedPublish, hold: bool) {
        let Some(outgoing) = self.open.get_mut(&stream) else {
            return message.finish(Err(PublishError::Lost));
        };
        if hold {
            outgoing.held.push(message);
        } else {
            let end = outgoing.given + outgoing.out.len() as u64;
            outgoing.leaving.push_back((end, message));
        }
    }

    /// Gives everything to the transport.
    pub(super) fn flush(&mut self, context: &mut Context<'_>, conn: ConnId) {
        for (stream, outgoing) in &mut self.open {
            if !outgoing.out.is_empty() {
                outgoing.given += outgoing.out.len() as u64;
                // What has left is seen by the backlog.
                let _ = context.net.send(conn, *stream, &mut outgoing.out);
                // Streams are many; an idle one keeps no buffer.
                outgoing.out = SendBuf::new();
            }
            if !outgoing.leaving.is_empty() {
                let waits = context.net.stream_backlog(conn, *stream) as u64;
                outgoing.finish_until(outgoing.given.saturating_sub(waits));
            }
        }
        for stream in self.answered.drain(..) {
            context.net.finish_stream(conn, stream);
        }
        for stream in self.refused.drain(..) {
            context
                .net
                .stop_stream(conn, stream, stream_code::STREAM_TYPE);
            context
                .net
                .reset_stream(conn, stream, stream_code::STREAM_TYPE);
        }
    }

    /// Ends the writing side of streams that have served.
    pub(super) fn finish(&mut self, context: &mut Context<'_>, conn: ConnId) {
        while let Some(stream) = self.routes.poll_finish() {
            context.net.finish_stream(conn, stream);
        }
        let routes = &self.routes;
        self.open.retain(|stream, outgoing| {
            routes.knows(*stream) || !(outgoing.held.is_empty() && outgoing.leaving.is_empty())
        });
    }

    /// A stream has arrived, or been read, to its end.
    pub(super) fn complete(&mut self, stream: StreamId) {
        if let Some(outgoing) = self.open.get_mut(&stream) {
            for message in core::mem::take(&mut outgoing.held) {
                message.finish(Ok(dunlin_mqtt::codec::ReasonCode::Success));
            }
        }
    }

    /// A stream is given up; gives the messages that were on it.
    pub(super) fn cancel(
        &mut self,
        context: &mut Context<'_>,
        conn: ConnId,
        stream: StreamId,
    ) -> Vec<QueuedPublish> {
        let code = stream_code::FLOW_PACKET_CANCELLED;
        context.net.reset_stream(conn, stream, code);
        let outgoing = self.open.get_mut(&stream);
        outgoing.map_or_else(Vec::new, |o| core::mem::take(&mut o.held))
    }

    /// The server gave up a stream: its messages of QoS 0 are gone.
    pub(super) fn lost(&mut self, stream: StreamId) {
        for message in self
            .open
            .remove(&stream)
            .into_iter()
            .flat_map(Outgoing::messages)
        {
            message.finish(Err(PublishError::Lost));
        }
    }

    /// The server ended its side of a stream that it had opened.
    pub(super) fn server_ended(&mut self, stream: StreamId) {
        if let Some(input) = self.inputs.get_mut(&stream) {
            // What waits for the application is still wanted.
            input.ended = true;
            if input.bytes.is_empty() {
                self.inputs.remove(&stream);
            }
        }
        if !stream.is_unidirectional() {
            self.answered.push(stream);
        }
    }

    /// Wants nothing of a stream of the server.
    pub(super) fn refuse(&mut self, stream: StreamId) {
        self.inputs.remove(&stream);
        self.refused.push(stream);
    }

    /// Whether everything written has arrived: a DISCONNECT on control would
    /// overtake it.
    pub(super) fn has_left(&self) -> bool {
        self.open.is_empty() && !self.routes.has_streams()
    }
}

impl Outgoing {
    fn messages(self) -> impl Iterator<Item = QueuedPublish> {
        let leaving = self.leaving.into_iter().map(|(_, message)| message);
        leaving.chain(self.held)
    }

    fn finish_until(&mut self, left: u64) {
        while let Some((end, _)) = self.leaving.front()
            && *end <= left
            && let Some((_, message)) = self.leaving.pop_front()
        {
            message.finish(Ok(dunlin_mqtt::codec::ReasonCode::Success));
        }
    }
}

/// Length of the flow header that a server's stream begins with, 0 if it has
/// none, `None` if more bytes are needed to tell; an error if it is not one
/// that a client takes.
pub(super) fn flow_header(bytes: &[u8]) -> Result<Option<usize>, ()> {
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
    fn flow_headers_are_told_from_packets() {
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
            assert_eq!(flow_header(bytes), want, "{bytes:02x?}");
        }
    }
}
