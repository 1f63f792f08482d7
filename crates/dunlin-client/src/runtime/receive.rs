//! What comes from the server: bytes of each stream to packets, as long as the
//! application has room for messages.

use std::collections::BTreeMap;
use std::sync::Arc;

use dunlin_base::{Instant, QoS, StreamId};
use dunlin_dial::Link;
use dunlin_mqtt::codec::{Packet, Version, decode_from_server};

use super::exchange::{Exchange, Received};
use super::flow::header_len;
use super::send::Sender;
use crate::events::ConnectionEvent;
use crate::shared::Shared;

/// Bytes that wait on data streams for CONNACK: more than a server that knows
/// the client sends ahead of it.
const AHEAD_BYTES_MAX: usize = 256 * 1024;

/// The receiving side of one client.
pub(super) struct Receiver {
    shared: Arc<Shared>,
    version: Version,
    /// Bytes of control that are not a whole packet yet, or wait for room in
    /// the inbox.
    control: Vec<u8>,
    /// What came on other streams and is not a whole packet yet.
    streams: BTreeMap<StreamId, Input>,
    /// The application does not take messages fast enough.
    inbox_full: bool,
    /// The transport does not read.
    reading_paused: bool,
}

/// A stream that the server writes on.
#[derive(Default)]
struct Input {
    /// The flow header is still to come, or is known not to.
    begun: bool,
    /// Nothing more will come.
    ended: bool,
    bytes: Vec<u8>,
}

/// The parts of a client that packets change.
pub(super) struct Parts<'a> {
    pub(super) link: &'a mut Link<Shared>,
    pub(super) exchange: &'a mut Exchange,
    pub(super) sender: &'a mut Sender,
}

impl Receiver {
    pub(super) fn new(shared: Arc<Shared>, version: Version) -> Self {
        Self {
            shared,
            version,
            control: Vec::new(),
            streams: BTreeMap::new(),
            inbox_full: false,
            reading_paused: false,
        }
    }

    /// Bytes arrived on control.
    pub(super) fn receive(&mut self, now: Instant, data: &[u8], parts: &mut Parts<'_>) {
        let was_connected = parts.exchange.is_connected();
        if self.control.is_empty() {
            let taken = self.parse(now, data, parts);
            self.control
                .extend_from_slice(data.get(taken..).unwrap_or_default());
        } else {
            self.control.extend_from_slice(data);
            if !self.inbox_full {
                self.parse_control(now, parts);
            }
        }
        if !was_connected && parts.exchange.is_connected() {
            self.parse_streams(now, parts);
        }
    }

    /// There may be room in the inbox for what waits.
    pub(super) fn receive_rest(&mut self, now: Instant, parts: &mut Parts<'_>) {
        if self.inbox_full && self.shared.inbox.has_room() {
            self.inbox_full = false;
            self.parse_control(now, parts);
            self.parse_streams(now, parts);
        }
    }

    /// Bytes arrived on a stream besides control.
    pub(super) fn receive_on(
        &mut self,
        now: Instant,
        stream: StreamId,
        data: &[u8],
        parts: &mut Parts<'_>,
    ) {
        let input = self.streams.entry(stream).or_default();
        input.bytes.extend_from_slice(data);
        if !parts.exchange.is_connected() {
            // Streams overtake each other: this one waits for CONNACK.
            let waiting: usize = self.streams.values().map(|input| input.bytes.len()).sum();
            if waiting > AHEAD_BYTES_MAX {
                parts.exchange.fail_too_early();
            }
        } else if !self.inbox_full {
            self.parse_stream(now, stream, parts);
        }
    }

    /// The server ended its side of a stream besides control; `reset`: or gave
    /// it up.
    pub(super) fn stream_ended(&mut self, stream: StreamId, reset: bool, parts: &mut Parts<'_>) {
        if !stream.is_server_initiated() {
            parts.sender.stream_ended(stream, reset, parts.exchange);
            self.streams.remove(&stream);
            return;
        }
        if let Some(input) = self.streams.get_mut(&stream) {
            // What waits for the application is still wanted.
            input.ended = true;
            if input.bytes.is_empty() {
                self.streams.remove(&stream);
            }
        }
        parts.sender.answer(stream);
    }

    /// A datagram arrived: one PUBLISH of QoS 0, or nothing that counts.
    pub(super) fn receive_datagram(&mut self, now: Instant, data: &[u8], parts: &mut Parts<'_>) {
        let wanted = match decode_from_server(data, self.version) {
            Ok(Packet::Publish(publish)) if !self.inbox_full => {
                let has_alias = publish.properties.topic_alias.is_some();
                publish.qos == QoS::AtMostOnce && !has_alias
            }
            _ => false,
        };
        let connected = parts.exchange.is_connected();
        let taken = wanted && connected && self.parse(now, data, parts) == data.len();
        let mut status = self.shared.status();
        match taken {
            true => status.streams.datagrams_received += 1,
            false => status.streams.datagrams_ignored += 1,
        }
    }

    /// Whether the transport is to stop reading, or to go on, once.
    pub(super) fn take_pause(&mut self) -> Option<bool> {
        let changed = self.inbox_full != self.reading_paused;
        self.reading_paused = self.inbox_full;
        changed.then_some(self.inbox_full)
    }

    /// The transport is gone.
    pub(super) fn forget_connection(&mut self) {
        self.control = Vec::new();
        self.streams = BTreeMap::new();
        (self.inbox_full, self.reading_paused) = (false, false);
    }

    fn parse_control(&mut self, now: Instant, parts: &mut Parts<'_>) {
        let mut control = core::mem::take(&mut self.control);
        let taken = self.parse(now, &control, parts);
        if taken >= control.len() {
            // An idle client keeps no buffer.
            control = Vec::new();
        } else {
            control.drain(..taken);
        }
        self.control = control;
    }

    fn parse_streams(&mut self, now: Instant, parts: &mut Parts<'_>) {
        let streams: Vec<StreamId> = self.streams.keys().copied().collect();
        for stream in streams {
            if self.inbox_full {
                return;
            }
            self.parse_stream(now, stream, parts);
        }
    }

    fn parse_stream(&mut self, now: Instant, stream: StreamId, parts: &mut Parts<'_>) {
        let Some(input) = self.streams.get_mut(&stream) else {
            return;
        };
        if !input.begun {
            let header = match stream.is_server_initiated() {
                true => header_len(&input.bytes),
                false => Ok(Some(0)),
            };
            match header {
                Ok(Some(len)) => {
                    input.begun = true;
                    input.bytes.drain(..len);
                }
                Ok(None) => return,
                Err(()) => {
                    self.streams.remove(&stream);
                    return parts.sender.refuse(stream);
                }
            }
        }
        let bytes = core::mem::take(&mut input.bytes);
        let taken = self.parse(now, &bytes, parts);
        let ended = match self.streams.get_mut(&stream) {
            Some(input) => {
                let rest = bytes.get(taken..).unwrap_or_default();
                input.bytes = rest.to_vec();
                input.ended && rest.is_empty()
            }
            None => false,
        };
        if ended {
            self.streams.remove(&stream);
        }
    }

    /// Takes whole packets; gives how many bytes they were.
    fn parse(&mut self, now: Instant, bytes: &[u8], parts: &mut Parts<'_>) -> usize {
        let mut at = 0;
        while !self.inbox_full && !parts.exchange.has_failed() {
            let rest = bytes.get(at..).unwrap_or_default();
            let out = parts.sender.control();
            let Some((len, received)) = parts.exchange.receive(now, rest, out) else {
                break;
            };
            at += len;
            match received {
                Received::Nothing => {}
                Received::Full => self.inbox_full = true,
                Received::Connected(announced) => self.connected(now, announced, parts),
                Received::Arrived(stream) => parts.sender.arrived(stream),
                Received::Acknowledged(topic, stream) => {
                    parts.sender.acknowledged(&topic, stream);
                }
            }
            // The engine holds at most one answer of some kinds.
            parts.sender.write_owed(now, parts.exchange);
        }
        at
    }

    /// CONNACK has come: looks after the session, and says so.
    fn connected(&self, now: Instant, announced: Option<usize>, parts: &mut Parts<'_>) {
        let Parts {
            link,
            exchange,
            sender,
        } = parts;
        let transport = link.transport();
        let is_reconnection = link.was_connected();
        link.connected(now);
        exchange.connected(transport);
        sender.start_streams(transport, announced);
        if is_reconnection {
            exchange.restore_subscriptions();
        }
        self.shared.emit(ConnectionEvent::Connected {
            session_present: exchange.session_present(),
            transport,
        });
        exchange.answer_connected();
    }
}
