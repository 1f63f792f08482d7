//! Data streams of one connection: what was written on them and what waits for
//! them. Decisions are in `dunlin_mqtt::streams`.

use std::collections::{HashMap, VecDeque};

use dunlin_base::{ConnId, SendBuf, StreamId, Text};
use dunlin_dial::Context;
use dunlin_mqtt::codec::ReasonCode;
use dunlin_mqtt::streams::publish::PublishPlanner;

use super::super::flow;
use crate::error::PublishError;
use crate::streams::StreamOptions;
use crate::work::QueuedPublish;

/// Bytes that wait for one stream, beyond which no more messages are written
/// on it.
const STREAM_BYTES_MAX: usize = 64 * 1024;

/// Data streams of a connection.
pub(super) struct DataStreams {
    pub(super) planner: PublishPlanner,
    open: HashMap<StreamId, Outgoing>,
    /// Topics that wait until their stream, or control, has room.
    blocked: Vec<(StreamId, Text)>,
    /// Streams to refuse.
    refused: Vec<StreamId>,
    /// Streams that the server ended and this side has not.
    answered: Vec<StreamId>,
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

impl DataStreams {
    pub(super) fn new(options: &StreamOptions) -> Self {
        Self {
            planner: PublishPlanner::new(options.planned()),
            open: HashMap::new(),
            blocked: Vec::new(),
            refused: Vec::new(),
            answered: Vec::new(),
        }
    }

    /// The connection is gone; gives the messages that went with it.
    pub(super) fn forget_connection(&mut self) -> Vec<QueuedPublish> {
        self.planner.start(false, None);
        self.blocked = Vec::new();
        self.refused = Vec::new();
        self.answered = Vec::new();
        let open = core::mem::take(&mut self.open);
        open.into_values().flat_map(Outgoing::messages).collect()
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
        written + context.net.conn(conn).stream_backlog(stream) < STREAM_BYTES_MAX
    }

    /// Whether topics wait for room.
    pub(super) fn is_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    /// Whether there is anything to do for other streams than control.
    pub(super) fn is_in_use(&self) -> bool {
        self.planner.is_active()
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
                let waits = context.net.conn(conn).stream_backlog(*stream) as u64;
                outgoing.finish_until(outgoing.given.saturating_sub(waits));
            }
        }
        for stream in self.answered.drain(..) {
            context.net.conn(conn).finish_stream(stream);
        }
        for stream in self.refused.drain(..) {
            flow::refuse(context.net, conn, stream);
        }
    }

    /// Ends the writing side of streams that have served.
    pub(super) fn finish(&mut self, context: &mut Context<'_>, conn: ConnId) {
        while let Some(stream) = self.planner.poll_finish() {
            context.net.conn(conn).finish_stream(stream);
        }
        let planner = &self.planner;
        self.open.retain(|stream, outgoing| {
            planner.knows(*stream) || !(outgoing.held.is_empty() && outgoing.leaving.is_empty())
        });
    }

    /// A stream has arrived, or been read, to its end.
    pub(super) fn complete(&mut self, stream: StreamId) {
        if let Some(outgoing) = self.open.get_mut(&stream) {
            for message in core::mem::take(&mut outgoing.held) {
                message.finish(Ok(ReasonCode::Success));
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
        flow::give_up(context.net, conn, stream);
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

    /// The server ended its side of a stream that it had opened: ends ours.
    pub(super) fn answer(&mut self, stream: StreamId) {
        if !stream.is_unidirectional() {
            self.answered.push(stream);
        }
    }

    /// Wants nothing of a stream of the server.
    pub(super) fn refuse(&mut self, stream: StreamId) {
        self.refused.push(stream);
    }

    /// Whether everything written has arrived: a DISCONNECT on control would
    /// overtake it.
    pub(super) fn has_left(&self) -> bool {
        self.open.is_empty() && !self.planner.has_streams()
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
            message.finish(Ok(ReasonCode::Success));
        }
    }
}
