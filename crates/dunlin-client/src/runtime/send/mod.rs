//! What goes to the server: messages that wait, and the streams and datagrams
//! that carry them, as `dunlin_mqtt::streams` plans.

mod control;
mod data;
mod datagram;

use std::sync::Arc;

use dunlin_base::transport::Transport;
use dunlin_base::{ConnId, Instant, QoS, SendBuf, StreamId, Text};
use dunlin_dial::Context;
use dunlin_mqtt::client::CommandError;
use dunlin_mqtt::streams::publish::{Ended, Way};

use super::exchange::Exchange;
use crate::error::{DisconnectCause, PublishError};
use crate::events::ConnectionEvent;
use crate::options::Options;
use crate::outbox::Outbox;
use crate::shared::Shared;
use crate::streams::{Priority, StreamPolicy};
use crate::work::QueuedPublish;
use control::{Control, OUTSTANDING_BYTES_MAX};
use data::DataStreams;

/// The sending side of one client.
pub(super) struct Sender {
    shared: Arc<Shared>,
    options: Arc<Options>,
    /// Messages that wait for a connection or for the server's quota.
    queue: Outbox<QueuedPublish>,
    control: Control,
    /// Streams besides control.
    data: DataStreams,
    /// The server refused data streams on this or an earlier connection.
    refused_by_server: bool,
    /// The transport knows what this connection carries.
    configured: bool,
}

impl Sender {
    pub(super) fn new(shared: Arc<Shared>, options: Arc<Options>) -> Self {
        Self {
            data: DataStreams::new(&options.streams),
            shared,
            options,
            queue: Outbox::new(),
            control: Control::default(),
            refused_by_server: false,
            configured: false,
        }
    }

    /// Takes a message from the application.
    pub(super) fn enqueue(&mut self, now: Instant, mut queued: QueuedPublish) {
        let streams = &self.options.streams;
        if !streams.priorities.is_empty() {
            queued.priority = streams.priority(&queued.publish.topic);
        }
        if queued.publish.qos == QoS::AtMostOnce {
            let max_age = queued.publish.max_age.or(streams.max_age);
            queued.obsolete_at = max_age.map(|age| now + age);
        }
        self.queue.push(queued);
    }

    /// Where to encode what goes on control.
    pub(super) fn control(&mut self) -> &mut SendBuf {
        &mut self.control.out
    }

    /// Bytes of control left the transport.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.control.sent(bytes as u64);
    }

    /// CONNACK has come: what this connection carries besides control.
    /// `announced`: how many data streams the server takes.
    pub(super) fn start_streams(&mut self, transport: Transport, announced: Option<usize>) {
        let is_known = self.options.streams.policy != StreamPolicy::Auto || announced.is_some();
        let usable = transport == Transport::Quic && is_known && !self.refused_by_server;
        self.data.planner.start(usable, announced);
        self.configured = false;
    }

    /// Writes what the protocol owes, where it belongs.
    pub(super) fn write_owed(&mut self, now: Instant, exchange: &mut Exchange) {
        if !self.data.planner.is_active() {
            while exchange.write_owed(now, &mut self.control.out) {}
            return;
        }
        while let Some(stream) = exchange.owed() {
            // All that belongs to a unidirectional stream, and is not on it, is
            // on control.
            let stream = stream.filter(|stream| !stream.is_unidirectional());
            let stream = stream.unwrap_or(StreamId::CONTROL);
            let out = self.data.buffer(stream, &mut self.control.out);
            if !exchange.write_owed(now, out) {
                return;
            }
        }
    }

    /// Writes messages of earlier connections.
    pub(super) fn write_again(&mut self, now: Instant, exchange: &mut Exchange) {
        for topic in exchange.write_again(now, &mut self.control.out) {
            self.data.planner.resumed(&topic, now);
        }
    }

    /// Writes messages, as far as there is room for them. `is_last`: the
    /// client ends when everything has left.
    pub(super) fn write_queue(
        &mut self,
        context: &mut Context<'_>,
        conn: ConnId,
        exchange: &mut Exchange,
        is_last: bool,
    ) {
        self.release_topics(context, conn);
        loop {
            let is_active = self.data.planner.is_active();
            if !is_active && !self.control_has_room(context, conn) {
                return;
            }
            let Some(queued) = self.queue.pop() else {
                break;
            };
            if !self.write_message(context, conn, exchange, queued) {
                break;
            }
        }
        if is_last && self.queue.is_clear() {
            self.data.planner.end_all();
        }
        self.data.planner.end_of_batch();
    }

    /// Prepares a connection for what it carries, once.
    pub(super) fn configure(&mut self, context: &mut Context<'_>, conn: ConnId) {
        if !core::mem::replace(&mut self.configured, true) {
            self.options.streams.configure(context.net, conn);
        }
    }

    /// Writes a message or lets it wait; `false` when all have to wait.
    fn write_message(
        &mut self,
        context: &mut Context<'_>,
        conn: ConnId,
        exchange: &mut Exchange,
        mut queued: QueuedPublish,
    ) -> bool {
        let (qos, now) = (queued.publish.qos, context.now);
        if !exchange.can_publish(qos) {
            self.queue.unpop(queued);
            return false;
        }
        let in_datagram = qos == QoS::AtMostOnce && self.options.streams.datagrams;
        if in_datagram && exchange.is_connected() {
            match datagram::send(context, conn, exchange, &self.shared, queued) {
                Some(back) => queued = back,
                None => return true,
            }
        }
        let Some(stream) = self.choose_stream(context, conn, &queued) else {
            self.queue.park(queued);
            return true;
        };
        let out = self.data.buffer(stream, &mut self.control.out);
        match exchange.publish(now, &queued, stream == StreamId::CONTROL, out) {
            Ok(id) => {
                let hold = queued.obsolete_at.filter(|_| qos == QoS::AtMostOnce);
                let planner = &mut self.data.planner;
                planner.written(&queued.publish.topic, stream, qos, hold);
                match (id, stream) {
                    (Some(id), _) => exchange.keep(id, queued, stream),
                    (None, StreamId::CONTROL) => self.control.wrote(queued),
                    (None, stream) => self.data.wrote(stream, queued, hold.is_some()),
                }
            }
            Err(CommandError::InFlightFull | CommandError::NotConnected) => {
                self.queue.unpop(queued);
                return false;
            }
            Err(error) => queued.finish(Err(exchange.unsupported(error))),
        }
        true
    }

    /// Gives everything to the transport, and ends what has left. `connected`:
    /// what left ahead of CONNACK may yet be thrown away.
    pub(super) fn flush(&mut self, context: &mut Context<'_>, conn: ConnId, connected: bool) {
        self.control.flush(context, conn);
        if self.data.is_in_use() {
            self.data.flush(context, conn);
            self.data.finish(context, conn);
            self.control.measure_left(context, conn);
        }
        if connected {
            self.control.finish_left();
        }
    }

    /// Gives up what is of no use any more.
    pub(super) fn drop_obsolete(&mut self, context: &mut Context<'_>, open: Option<ConnId>) {
        let mut obsolete = self.queue.take_obsolete(context.now);
        let dropped = obsolete.len();
        if let Some(conn) = open {
            for stream in self.data.planner.take_obsolete(context.now) {
                obsolete.append(&mut self.data.cancel(context, conn, stream));
            }
            self.data.planner.handle_timeout(context.now);
        }
        if obsolete.is_empty() {
            return;
        }
        // Before a task that waits for one of them can look.
        let cancelled = obsolete.len() - dropped;
        let mut status = self.shared.status();
        status.streams.obsolete_dropped += dropped as u64;
        status.streams.obsolete_cancelled += cancelled as u64;
        drop(status);
        for queued in obsolete {
            queued.finish(Err(PublishError::Obsolete));
        }
    }

    /// The server has the message of a stream.
    pub(super) fn arrived(&mut self, stream: StreamId) {
        self.data.planner.arrived(stream);
    }

    /// The exchange of a message is over.
    pub(super) fn acknowledged(&mut self, topic: &Text, stream: StreamId) {
        self.data.planner.acknowledged(topic, stream);
    }

    /// The server's transport has everything of a stream.
    pub(super) fn delivered(&mut self, stream: StreamId, now: Instant) {
        self.data.planner.delivered(stream, now);
        self.data.complete(stream);
    }

    /// The server allows more streams.
    pub(super) fn more_credit(&mut self) {
        self.data.planner.more_credit();
    }

    /// The server ended its side of a stream of its own.
    pub(super) fn answer(&mut self, stream: StreamId) {
        self.data.answer(stream);
    }

    /// Wants nothing of a stream of the server.
    pub(super) fn refuse(&mut self, stream: StreamId) {
        self.data.refuse(stream);
    }

    /// The server ended its side of a stream of this client; `reset`: or gave
    /// it up.
    pub(super) fn stream_ended(&mut self, stream: StreamId, reset: bool, exchange: &mut Exchange) {
        let ended = self.data.planner.ended(stream, reset);
        match reset {
            true => self.data.lost(stream),
            false => self.data.complete(stream),
        }
        if let Ended::Refused { lost } = ended {
            self.refused_by_server = true;
            self.shared.emit(ConnectionEvent::StreamsRefused);
            if lost {
                // Only a new connection lets them be sent again
                // [MQTT-4.4.0-1].
                exchange.fail(DisconnectCause::StreamRefused);
            }
        }
    }

    /// When to run again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let deadlines = [self.queue.obsolete_from(), self.data.planner.deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// Whether all messages of QoS 0 that were written on control have left.
    pub(super) fn control_has_left(&self) -> bool {
        self.control.messages_have_left() && self.control.out.is_empty()
    }

    /// Whether all messages that could be written have left. Those of QoS 1
    /// and 2 that wait for the server's quota are given up when the client
    /// ends.
    pub(super) fn has_written_queue(&self) -> bool {
        let is_full = self.control.outstanding() >= OUTSTANDING_BYTES_MAX;
        let waits_for_room = !self.queue.is_empty() && is_full;
        let waits_for_streams = self.queue.is_empty() && !self.queue.is_clear();
        let waits = waits_for_room || waits_for_streams || !self.data.has_left();
        self.control.messages_have_left() && !waits
    }

    /// The transport is gone, with what was given to it.
    pub(super) fn forget_connection(&mut self) {
        self.control.forget_connection();
        for queued in self.data.forget_connection() {
            queued.finish(Err(PublishError::Lost));
        }
        self.queue.release_all();
    }

    /// The client is over.
    pub(super) fn end(&mut self, cause: &DisconnectCause) {
        let control = core::mem::take(&mut self.control).into_messages();
        let streams = self.data.forget_connection();
        for queued in self.queue.drain().chain(control).chain(streams) {
            queued.finish(Err(PublishError::Closed(cause.clone())));
        }
    }

    /// Whether control takes more messages.
    fn control_has_room(&self, context: &mut Context<'_>, conn: ConnId) -> bool {
        if self.data.planner.is_active() {
            let backlog = context.net.conn(conn).stream_backlog(StreamId::CONTROL);
            ((backlog + self.control.out.len()) as u64) < OUTSTANDING_BYTES_MAX
        } else {
            self.control.outstanding() < OUTSTANDING_BYTES_MAX
        }
    }

    /// Lets go of the topics that need not wait any more.
    fn release_topics(&mut self, context: &mut Context<'_>, conn: ConnId) {
        while let Some(topic) = self.data.planner.poll_released() {
            self.queue.release(&topic);
        }
        if self.data.is_blocked() {
            let has_room = self.control_has_room(context, conn);
            for topic in self.data.take_unblocked(context, conn, has_room) {
                self.queue.release(&topic);
            }
        }
    }

    /// The stream for a message; `None`: it must wait.
    fn choose_stream(
        &mut self,
        context: &mut Context<'_>,
        conn: ConnId,
        queued: &QueuedPublish,
    ) -> Option<StreamId> {
        if !self.data.planner.is_active() {
            return Some(StreamId::CONTROL);
        }
        let (topic, now) = (&queued.publish.topic, context.now);
        let preferred = queued.priority != Priority::NORMAL;
        let mut way = self.data.planner.way(topic, preferred, now);
        if way == Way::Open {
            let bidirectional = self.data.planner.bidirectional();
            match context.net.conn(conn).open_stream(bidirectional) {
                Some(stream) => {
                    self.stream_opened(context, conn, queued, stream);
                    return Some(stream);
                }
                None => way = self.data.planner.not_opened(topic, now),
            }
            if !self.data.planner.is_active() {
                // The server has no credit at all for such streams.
                self.shared.emit(ConnectionEvent::StreamsRefused);
            }
        }
        let stream = match way {
            Way::Stream(stream) => stream,
            Way::Control => StreamId::CONTROL,
            Way::Wait | Way::Open => return None,
        };
        let has_room = match stream {
            StreamId::CONTROL => self.control_has_room(context, conn),
            stream => self.data.has_room(context, conn, stream),
        };
        if !has_room {
            self.data.block(stream, topic.clone());
            return None;
        }
        Some(stream)
    }

    fn stream_opened(
        &mut self,
        context: &mut Context<'_>,
        conn: ConnId,
        queued: &QueuedPublish,
        stream: StreamId,
    ) {
        let topic = &queued.publish.topic;
        let planner = &mut self.data.planner;
        planner.opened(topic, stream, queued.obsolete_at, context.now);
        self.data.opened(stream);
        let priority = queued.priority.of_stream();
        if priority != 0 {
            context.net.conn(conn).set_stream_priority(stream, priority);
        }
        self.shared.status().streams.opened += 1;
    }
}
