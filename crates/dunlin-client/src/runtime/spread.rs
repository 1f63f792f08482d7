//! Messages spread over the streams and datagrams of a connection, as
//! `dunlin_mqtt::streams` decides, and what becomes of those streams.

use dunlin_base::transport::{NetEventKind, Transport};
use dunlin_base::{ConnId, Instant, QoS, SendBuf, StreamId};
use dunlin_mqtt::client::{CommandError, Owed, Phase};
use dunlin_mqtt::streams::publish::{Ended, Way};

use super::QueuedPublish;
use super::io::Context;
use super::outgoing::{OUTSTANDING_BYTES_MAX, encode};
use super::session::{Core, Session};
use crate::error::{DisconnectCause, PublishError};
use crate::events::ConnectionEvent;
use crate::streams::{Priority, StreamPolicy};

impl Session {
    /// Writes what the protocol owes, where it belongs.
    pub(super) fn write_owed(&mut self, now: Instant) {
        let core = &mut self.core;
        if !core.data.routes.is_active() {
            while let Ok(true) = self.engine.poll_output(now, &mut core.out) {}
            return;
        }
        while let Some(owed) = self.engine.owed() {
            let stream = match owed {
                Owed::Release(id) => core.in_flight.get(&id).and_then(|queued| queued.stream),
                _ => None,
            };
            // All that belongs to a unidirectional stream, and is not on it, is
            // on control.
            let stream = stream.filter(|stream| !stream.is_unidirectional());
            let stream = stream.unwrap_or(StreamId::CONTROL);
            let out = core.data.buffer(stream, &mut core.out);
            if !matches!(self.engine.poll_output(now, out), Ok(true)) {
                return;
            }
        }
    }

    /// Writes messages, as far as there is room for them.
    pub(super) fn write_queue(&mut self, context: &mut Context<'_>, conn: ConnId) {
        if !core::mem::replace(&mut self.core.data.configured, true) {
            let streams = &self.core.options.streams;
            context.net.isolate_streams(conn, streams.isolate);
            context.net.repeat_packets(conn, streams.repeat());
        }
        if self.core.upgrade.is_switching() {
            return;
        }
        self.core.release_topics(context, conn);
        loop {
            let is_active = self.core.data.routes.is_active();
            if !is_active && !self.core.control_has_room(context, conn) {
                return;
            }
            let Some(queued) = self.core.queue.pop() else {
                break;
            };
            if !self.write_message(context, conn, queued) {
                break;
            }
        }
        let core = &mut self.core;
        if core.goodbye.is_some() && core.queue.is_clear() {
            core.data.routes.end_all();
        }
        core.data.routes.end_of_batch();
    }

    /// Writes a message or lets it wait; `false` when all have to wait.
    fn write_message(
        &mut self,
        context: &mut Context<'_>,
        conn: ConnId,
        mut queued: QueuedPublish,
    ) -> bool {
        let (qos, now) = (queued.publish.qos, context.now);
        if !self.engine.can_publish(qos) {
            self.core.queue.unpop(queued);
            return false;
        }
        let connected = self.engine.phase() == Phase::Connected;
        if connected && qos == QoS::AtMostOnce && self.core.options.streams.datagrams {
            match self.write_datagram(context, conn, queued) {
                Some(back) => queued = back,
                None => return true,
            }
        }
        let core = &mut self.core;
        let Some(stream) = core.choose_stream(context, conn, &queued) else {
            core.queue.park(queued);
            return true;
        };
        let payload = &queued.publish.payload;
        let packet = encode(&queued.publish);
        let put = |out: &mut SendBuf| {
            out.put_bytes(payload);
            Ok(())
        };
        self.engine.use_aliases(stream == StreamId::CONTROL);
        let out = core.data.buffer(stream, &mut core.out);
        let sent = self
            .engine
            .publish_with(now, &packet, payload.len(), out, put);
        self.engine.use_aliases(true);
        match sent {
            Ok(id) => {
                let hold = queued.obsolete_at.filter(|_| qos == QoS::AtMostOnce);
                let routes = &mut core.data.routes;
                routes.written(&queued.publish.topic, stream, qos, hold);
                match (id, stream) {
                    (Some(id), _) => {
                        queued.stream = Some(stream);
                        core.in_flight.insert(id, queued);
                    }
                    (None, StreamId::CONTROL) => {
                        let end = core.given + core.out.len() as u64;
                        core.leaving.push_back((end, queued));
                    }
                    (None, stream) => core.data.wrote(stream, queued, hold.is_some()),
                }
            }
            Err(CommandError::InFlightFull | CommandError::NotConnected) => {
                core.queue.unpop(queued);
                return false;
            }
            Err(error) => queued.finish(Err(PublishError::NotSupported(error))),
        }
        true
    }

    /// Gives up what is of no use any more.
    pub(super) fn drop_obsolete(&mut self, context: &mut Context<'_>) {
        let core = &mut self.core;
        let mut obsolete = core.queue.take_obsolete(context.now);
        let dropped = obsolete.len();
        if let Some(conn) = core.link.open_conn() {
            for stream in core.data.routes.take_obsolete(context.now) {
                obsolete.append(&mut core.data.cancel(context, conn, stream));
            }
            core.data.routes.handle_timeout(context.now);
        }
        if obsolete.is_empty() {
            return;
        }
        // Before whoever waits for one of them can look.
        let cancelled = obsolete.len() - dropped;
        let mut status = core.shared.status();
        status.streams.obsolete_dropped += dropped as u64;
        status.streams.obsolete_cancelled += cancelled as u64;
        drop(status);
        for queued in obsolete {
            queued.finish(Err(PublishError::Obsolete));
        }
    }

    /// Something happened on a stream besides control, or a datagram came.
    pub(super) fn on_data_stream(&mut self, now: Instant, event: &NetEventKind<&[u8]>) {
        match event {
            NetEventKind::Bytes { stream, data } => self.receive_on(now, *stream, data),
            NetEventKind::Datagram { data } => self.receive_datagram(now, data),
            NetEventKind::StreamFinished { stream } => self.core.stream_ended(*stream, false),
            NetEventKind::StreamReset { stream, .. } => self.core.stream_ended(*stream, true),
            NetEventKind::StreamDelivered { stream } => {
                self.core.data.routes.delivered(*stream, now);
                self.core.data.complete(*stream);
            }
            NetEventKind::StreamsAvailable { .. } => self.core.data.routes.more_credit(),
            _ => {}
        }
    }
}

impl Core {
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

    /// CONNACK has come: what this connection carries besides control.
    pub(super) fn start_streams(&mut self) {
        let announced = self.data.announced;
        let is_known = self.options.streams.policy != StreamPolicy::Auto || announced.is_some();
        let usable = self.transport == Transport::Quic && is_known && !self.data.refused_by_server;
        self.data.routes.start(usable, announced);
        self.data.configured = false;
    }

    /// Whether control takes more messages.
    fn control_has_room(&self, context: &mut Context<'_>, conn: ConnId) -> bool {
        if self.data.routes.is_active() {
            let waiting = context.net.stream_backlog(conn, StreamId::CONTROL) + self.out.len();
            (waiting as u64) < OUTSTANDING_BYTES_MAX
        } else {
            self.outstanding() < OUTSTANDING_BYTES_MAX
        }
    }

    /// Lets go of the topics that need not wait any more.
    fn release_topics(&mut self, context: &mut Context<'_>, conn: ConnId) {
        while let Some(topic) = self.data.routes.poll_released() {
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
        if !self.data.routes.is_active() {
            return Some(StreamId::CONTROL);
        }
        let (topic, now) = (&queued.publish.topic, context.now);
        let preferred = queued.priority != Priority::NORMAL;
        let mut way = self.data.routes.way(topic, preferred, now);
        if way == Way::Open {
            let bidirectional = self.data.routes.bidirectional();
            match context.net.open_stream(conn, bidirectional) {
                Some(stream) => {
                    self.stream_opened(context, conn, queued, stream);
                    return Some(stream);
                }
                None => way = self.data.routes.not_opened(topic, now),
            }
            if !self.data.routes.is_active() {
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
        let routes = &mut self.data.routes;
        routes.opened(topic, stream, queued.obsolete_at, context.now);
        self.data.opened(stream);
        let priority = queued.priority.of_stream();
        if priority != 0 {
            context.net.set_stream_priority(conn, stream, priority);
        }
        self.shared.status().streams.opened += 1;
    }

    fn stream_ended(&mut self, stream: StreamId, reset: bool) {
        if stream.is_server_initiated() {
            return self.data.server_ended(stream);
        }
        let ended = self.data.routes.ended(stream, reset);
        match reset {
            true => self.data.lost(stream),
            false => self.data.complete(stream),
        }
        self.data.inputs.remove(&stream);
        if let Ended::Refused { lost } = ended {
            self.data.refused_by_server = true;
            self.shared.emit(ConnectionEvent::StreamsRefused);
            if lost {
                // Only a new connection lets them be sent again
                // [MQTT-4.4.0-1].
                self.fault.get_or_insert(DisconnectCause::StreamRefused);
            }
        }
    }
}
