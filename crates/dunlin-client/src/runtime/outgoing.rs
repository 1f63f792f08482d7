//! What goes to the server: acknowledgements, requests, messages of earlier
//! connections, then new ones, as far as the server and the transport allow.

use std::collections::BTreeSet;

use dunlin_base::{ConnId, SendBuf, StreamId, Text};
use dunlin_mqtt::client::{CommandError, Phase, Resume, Session as Engine};
use dunlin_mqtt::codec::{
    self, PacketId, PublishProperties, Subscribe, SubscribeFilter, SubscribeFilters, Unsubscribe,
    UnsubscribeFilters,
};

use super::io::Context;
use super::session::{Core, Session};
use super::{Request, RequestKind};
use crate::error::{PublishError, SubscribeError};
use crate::message::Publish;
use crate::options::whole_seconds;

/// Bytes given to the transport that have not left, beyond which no more
/// messages are encoded.
pub(super) const OUTSTANDING_BYTES_MAX: u64 = 256 * 1024;

/// Subscriptions and bytes of filters in one SUBSCRIBE of the client's own.
const RESUBSCRIBE_FILTERS_MAX: usize = 64;
const RESUBSCRIBE_BYTES_MAX: usize = 16 * 1024;

impl Session {
    /// Writes what can be written.
    pub(super) fn write(&mut self, context: &mut Context<'_>) {
        let Some(conn) = self.core.link.open_conn() else {
            return;
        };
        let now = context.now;
        self.write_owed(now);
        if self.engine.phase() == Phase::Connected {
            self.write_requests(context);
            self.write_again(context);
            self.write_queue(context, conn);
        } else if self.core.early.publishes(conn) > 0 {
            self.write_early(context, conn);
        }
        let core = &mut self.core;
        if !core.out.is_empty() {
            core.given += core.out.len() as u64;
            core.left += context.net.send(conn, StreamId::CONTROL, &mut core.out) as u64;
        }
        if core.data.is_in_use() {
            core.data.flush(context, conn);
            core.data.finish(context, conn);
            let waits = context.net.stream_backlog(conn, StreamId::CONTROL) as u64;
            core.left = core.given.saturating_sub(waits);
        }
        // What left ahead of CONNACK may yet be thrown away.
        while self.engine.phase() == Phase::Connected
            && let Some((end, _)) = core.leaving.front()
            && *end <= core.left
            && let Some((_, queued)) = core.leaving.pop_front()
        {
            queued.finish(Ok(codec::ReasonCode::Success));
        }
        if core.inbox_full != core.reading_paused {
            core.reading_paused = core.inbox_full;
            context.net.pause_reading(conn, core.inbox_full);
            self.engine.handle_read_paused(now, core.inbox_full);
        }
    }

    /// Messages of earlier connections.
    fn write_again(&mut self, context: &Context<'_>) {
        while let Some(resume) = self.engine.poll_resume() {
            let core = &mut self.core;
            match resume {
                Resume::Completed(id) => {
                    if let Some(queued) = core.in_flight.remove(&id) {
                        queued.finish(Ok(codec::ReasonCode::Success));
                    }
                }
                Resume::Publish(id) => self.send_again(context, id),
                _ => {}
            }
        }
    }

    fn send_again(&mut self, context: &Context<'_>, id: PacketId) {
        let core = &mut self.core;
        let Some(queued) = core.in_flight.get(&id) else {
            self.engine.abandon(id);
            return;
        };
        let payload = &queued.publish.payload;
        let packet = encode(&queued.publish);
        let put = |out: &mut SendBuf| {
            out.put_bytes(payload);
            Ok(())
        };
        let sent =
            self.engine
                .resend_with(context.now, id, &packet, payload.len(), &mut core.out, put);
        match sent {
            Ok(()) => {
                let topic = &queued.publish.topic;
                core.data.routes.resumed(topic, context.now);
                if let Some(queued) = core.in_flight.get_mut(&id) {
                    queued.stream = Some(StreamId::CONTROL);
                }
            }
            Err(error) => {
                self.engine.abandon(id);
                if let Some(queued) = core.in_flight.remove(&id) {
                    queued.finish(Err(PublishError::NotSupported(error)));
                }
            }
        }
    }

    /// Writes what need not wait for CONNACK.
    fn write_early(&mut self, context: &mut Context<'_>, conn: ConnId) {
        let before = self.core.out.len();
        self.write_requests(context);
        self.write_queue(context, conn);
        if self.core.out.len() > before {
            self.core.early.ran_ahead(context.now);
        }
    }

    /// CONNECT is written: requests that the last connection took with it come
    /// before all others.
    pub(super) fn take_back_requests(&mut self) {
        let mut stale = Vec::new();
        while let Some(Resume::Request(id)) = self.engine.poll_resume() {
            stale.extend(self.core.requested.remove(&id));
        }
        for request in stale.into_iter().rev() {
            self.core.requests.push_front(request);
        }
    }

    fn write_requests(&mut self, context: &Context<'_>) {
        while let Some(request) = self.core.requests.pop_front() {
            let (engine, out) = (&mut self.engine, &mut self.core.out);
            match write_request(engine, context, &request.kind, out) {
                Ok(id) => {
                    self.core.requested.insert(id, request);
                }
                Err(CommandError::InFlightFull | CommandError::NotConnected) => {
                    self.core.requests.push_front(request);
                    return;
                }
                Err(error) => request.finish(Err(SubscribeError::NotSupported(error))),
            }
        }
    }
}

impl Core {
    /// Bytes that the transport has not passed on.
    pub(super) fn outstanding(&self) -> u64 {
        (self.given + self.out.len() as u64).saturating_sub(self.left)
    }

    /// Whether all messages that could be written have left. Those of QoS 1
    /// and 2 that wait for the server's quota are given up by a goodbye.
    pub(super) fn has_written_queue(&self) -> bool {
        let waits_for_room = !self.queue.is_empty() && self.outstanding() >= OUTSTANDING_BYTES_MAX;
        let waits_for_streams = self.queue.is_empty() && !self.queue.is_clear();
        let waits = waits_for_room || waits_for_streams || !self.data.has_left();
        self.requests.is_empty() && self.leaving.is_empty() && !waits
    }

    /// The transport is gone, with what was given to it.
    pub(super) fn forget_connection(&mut self) {
        self.input = Vec::new();
        self.out = SendBuf::new();
        (self.given, self.left) = (0, 0);
        (self.inbox_full, self.reading_paused) = (false, false);
        self.scram = None;
        {
            let mut status = self.shared.status();
            (status.negotiated, status.transport) = (None, None);
        }
        for (_, queued) in self.leaving.drain(..) {
            queued.finish(Err(PublishError::Lost));
        }
        for queued in self.data.forget_connection() {
            queued.finish(Err(PublishError::Lost));
        }
        self.queue.release_all();
        for queued in self.in_flight.values_mut() {
            queued.stream = None;
        }
    }

    /// The server lost the session: makes the subscriptions again, before
    /// anything else but what went out ahead of CONNACK, which counts.
    pub(super) fn subscribe_again(&mut self) {
        let mut again: Vec<Request> = Vec::new();
        let mut bytes = 0;
        let ahead: BTreeSet<&Text> = self.requested.values().flat_map(Request::filters).collect();
        let subscriptions = self.subscriptions.iter();
        for (filter, (options, id)) in subscriptions.filter(|(filter, _)| !ahead.contains(filter)) {
            bytes += filter.as_bytes().len();
            if let Some(Request {
                kind:
                    RequestKind::Subscribe {
                        filters,
                        id: last_id,
                    },
                ..
            }) = again.last_mut()
                && last_id == id
                && filters.len() < RESUBSCRIBE_FILTERS_MAX
                && bytes < RESUBSCRIBE_BYTES_MAX
            {
                filters.push((filter.clone(), *options));
                continue;
            }
            bytes = filter.as_bytes().len();
            again.push(Request {
                kind: RequestKind::Subscribe {
                    filters: vec![(filter.clone(), *options)],
                    id: *id,
                },
                done: None,
            });
        }
        for request in again.into_iter().rev() {
            self.requests.push_front(request);
        }
    }
}

fn write_request(
    engine: &mut Engine,
    context: &Context<'_>,
    kind: &RequestKind,
    out: &mut SendBuf,
) -> Result<PacketId, CommandError> {
    match kind {
        RequestKind::Subscribe { filters, id } => {
            let filters: Vec<_> = filters
                .iter()
                .map(|(filter, options)| SubscribeFilter {
                    filter,
                    options: *options,
                })
                .collect();
            let subscribe = Subscribe {
                packet_id: PacketId::MIN,
                subscription_identifier: *id,
                user_properties: Default::default(),
                filters: SubscribeFilters::new(&filters),
            };
            engine.subscribe(context.now, &subscribe, out)
        }
        RequestKind::Unsubscribe { filters } => {
            let filters: Vec<_> = filters.iter().map(Text::as_str).collect();
            let unsubscribe = Unsubscribe {
                packet_id: PacketId::MIN,
                user_properties: Default::default(),
                filters: UnsubscribeFilters::new(&filters),
            };
            engine.unsubscribe(context.now, &unsubscribe, out)
        }
    }
}

/// The packet without its payload.
pub(super) fn encode(publish: &Publish) -> codec::Publish<'_> {
    let mut packet = codec::Publish {
        qos: publish.qos,
        retain: publish.retain,
        topic: &publish.topic,
        ..codec::Publish::default()
    };
    packet.properties.message_expiry_interval = publish.expiry.map(whole_seconds);
    if let Some(from) = publish.properties.as_deref() {
        packet.properties = PublishProperties {
            payload_format_indicator: from.payload_is_utf8,
            response_topic: from.response_topic.as_deref(),
            correlation_data: from.correlation_data.as_deref(),
            content_type: from.content_type.as_deref(),
            user_properties: from.user_properties.as_slice().into(),
            ..packet.properties
        };
    }
    packet
}
