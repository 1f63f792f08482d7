//! One connection of a check, driven by hand: every wait has an end, and what a
//! server may send has a bound. Answers the acknowledgements that MQTT asks for;
//! knows no check.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use bytes::Bytes;
use dunlin_base::transport::{CloseCause, NetEvent, NetEventKind, Peer};
use dunlin_base::{ConnId, SendBuf, StreamId};
use dunlin_mqtt_codec::{
    Ack, Packet, PacketId, QoS, ReasonCode, Version, decode_from_server, peek,
};
use dunlin_net::{Clock, ConnStats, DialConfig, Move, Net, NetConfig};

use super::fault::Fault;

/// Bytes that a server may send on one connection: no check asks for more.
const BYTES_MAX: usize = 1 << 20;

/// Longest wait of one turn of the event loop.
const TURN_MAX: Duration = Duration::from_millis(50);

/// How long the last bytes of a connection may take to leave.
const LEAVE_MAX: Duration = Duration::from_millis(300);

/// A packet as it came.
pub(super) type Arrival = (StreamId, Vec<u8>);

/// One connection.
pub(super) struct Wire {
    net: Net,
    conn: ConnId,
    version: Version,
    until: Instant,
    seen: Seen,
    /// Bytes of each stream that are no whole packet yet.
    partial: BTreeMap<StreamId, Vec<u8>>,
    packets: VecDeque<Arrival>,
}

/// What the event loop has reported.
#[derive(Default)]
struct Seen {
    opened: Option<Peer>,
    early: Option<bool>,
    moved: Option<bool>,
    closed: Option<CloseCause>,
    taken: usize,
    bytes: VecDeque<Arrival>,
}

impl Wire {
    /// Dials, and waits until the connection takes bytes.
    pub(super) fn dial(
        config: &DialConfig,
        version: Version,
        until: Instant,
    ) -> Result<Self, Fault> {
        let mut net = Net::new(NetConfig::client(Clock::new())?)?;
        let mut config = config.clone();
        config.handshake_timeout = Some(until.saturating_duration_since(Instant::now()));
        let conn = net.dial(&config)?;
        let mut wire = Self {
            net,
            conn,
            version,
            until,
            seen: Seen::default(),
            partial: BTreeMap::new(),
            packets: VecDeque::new(),
        };
        while wire.seen.opened.is_none() {
            wire.turn()?;
        }
        Ok(wire)
    }

    /// Lets another check use the connection.
    pub(super) fn allow(&mut self, until: Instant) {
        self.until = until;
    }

    /// When the check ends.
    pub(super) const fn until(&self) -> Instant {
        self.until
    }

    /// Who is there.
    pub(super) fn peer(&self) -> Option<&Peer> {
        self.seen.opened.as_ref()
    }

    /// The time of the event loop, for an engine.
    pub(super) fn now(&self) -> dunlin_base::Instant {
        self.net.now()
    }

    pub(super) fn stats(&mut self) -> Option<ConnStats> {
        self.net.conn(self.conn).stats()
    }

    pub(super) fn certificate(&mut self) -> Option<Vec<u8>> {
        self.net.conn(self.conn).peer_certificate()
    }

    pub(super) fn parameters(&mut self) -> Option<Vec<u8>> {
        self.net.conn(self.conn).peer_parameters()
    }

    pub(super) fn open_stream(&mut self, bidirectional: bool) -> Option<StreamId> {
        self.net.conn(self.conn).open_stream(bidirectional)
    }

    pub(super) fn send_datagram(&mut self, packet: &Packet<'_>) -> Result<(), Fault> {
        let mut bytes = Vec::new();
        let encoded = packet.encode(self.version, &mut bytes);
        encoded.map_err(Fault::Encode)?;
        let expires = self.net.now() + Duration::from_secs(1);
        let mut conn = self.net.conn(self.conn);
        conn.send_datagram(Bytes::from(bytes), expires)
            .map_err(|error| Fault::Other(error.to_string()))
    }

    /// Sends a packet on the control stream.
    pub(super) fn send(&mut self, packet: &Packet<'_>) -> Result<(), Fault> {
        self.send_on(StreamId::CONTROL, packet)
    }

    pub(super) fn send_on(&mut self, stream: StreamId, packet: &Packet<'_>) -> Result<(), Fault> {
        let mut bytes = SendBuf::new();
        let encoded = packet.encode(self.version, &mut bytes);
        encoded.map_err(Fault::Encode)?;
        self.send_buf(stream, &mut bytes);
        Ok(())
    }

    /// Sends bytes that are no packet of ours.
    pub(super) fn send_bytes(&mut self, bytes: &[u8]) {
        let mut buffer = SendBuf::new();
        buffer.put_slice(bytes);
        self.send_buf(StreamId::CONTROL, &mut buffer);
    }

    pub(super) fn send_buf(&mut self, stream: StreamId, bytes: &mut SendBuf) {
        // A few bytes; a connection that is gone says so in the next turn.
        let _ = self.net.send(self.conn, stream, bytes);
        self.net.flush();
    }

    /// Moves the connection to another local port, and waits until it has moved.
    pub(super) fn migrate(&mut self, how: Move) -> Result<bool, Fault> {
        self.seen.moved = None;
        self.net.migrate(self.conn, None, how)?;
        loop {
            if let Some(moved) = self.seen.moved {
                return Ok(moved);
            }
            self.turn()?;
        }
    }

    /// Waits until the server has answered early data.
    pub(super) fn early_verdict(&mut self) -> Result<bool, Fault> {
        loop {
            if let Some(accepted) = self.seen.early {
                return Ok(accepted);
            }
            self.turn()?;
        }
    }

    /// The next bytes of the control stream.
    pub(super) fn bytes(&mut self) -> Result<Vec<u8>, Fault> {
        loop {
            if let Some((_, bytes)) = self.seen.bytes.pop_front() {
                return Ok(bytes);
            }
            self.turn()?;
        }
    }

    /// Waits for a packet that `wanted` takes; others are answered and dropped. An
    /// error in CONNACK or DISCONNECT ends the wait.
    pub(super) fn wait_for<T>(
        &mut self,
        mut wanted: impl FnMut(StreamId, &Packet<'_>) -> Option<T>,
    ) -> Result<T, Fault> {
        loop {
            let (stream, bytes) = self.packet()?;
            let packet = decode_from_server(&bytes, self.version).map_err(Fault::Malformed)?;
            self.answer(stream, &packet)?;
            if let Some(found) = wanted(stream, &packet) {
                return Ok(found);
            }
            if let Some(fault) = refusal(&packet) {
                return Err(fault);
            }
        }
    }

    /// Reads for this long, or until the end of the check.
    pub(super) fn linger(&mut self, time: Duration) -> Result<(), Fault> {
        let end = (Instant::now() + time).min(self.until);
        while Instant::now() < end {
            self.poll(end)?;
        }
        Ok(())
    }

    /// Ends the connection at once, without DISCONNECT.
    pub(super) fn abandon(mut self) {
        self.net.close(self.conn, 0);
        self.leave();
    }

    /// Sends DISCONNECT and closes.
    pub(super) fn disconnect(mut self) {
        // What cannot be sent is of no use any more.
        let _ = self.send(&Packet::Disconnect(Default::default()));
        self.net.close(self.conn, 0);
        self.leave();
    }

    /// Lets the last bytes leave, for a short time.
    fn leave(&mut self) {
        let end = Instant::now() + LEAVE_MAX;
        while self.seen.closed.is_none() && Instant::now() < end {
            if self.poll(end).is_err() {
                return;
            }
        }
    }

    fn packet(&mut self) -> Result<Arrival, Fault> {
        loop {
            while let Some((stream, bytes)) = self.seen.bytes.pop_front() {
                self.cut(stream, &bytes)?;
            }
            if let Some(packet) = self.packets.pop_front() {
                return Ok(packet);
            }
            self.turn()?;
        }
    }

    /// Cuts what came on a stream into packets.
    fn cut(&mut self, stream: StreamId, bytes: &[u8]) -> Result<(), Fault> {
        let partial = self.partial.entry(stream).or_default();
        partial.extend_from_slice(bytes);
        let limit = u32::try_from(BYTES_MAX).unwrap_or(u32::MAX);
        while let Some(frame) = peek(partial, limit).map_err(Fault::Malformed)? {
            if partial.len() < frame.total_len {
                break;
            }
            let rest = partial.split_off(frame.total_len);
            self.packets
                .push_back((stream, core::mem::replace(partial, rest)));
        }
        Ok(())
    }

    /// Acknowledges, as a client does.
    fn answer(&mut self, stream: StreamId, packet: &Packet<'_>) -> Result<(), Fault> {
        let ack = |id: Option<PacketId>| Ack::new(id.unwrap_or(PacketId::MIN), ReasonCode::Success);
        let answer = match packet {
            Packet::Publish(publish) => match publish.qos {
                QoS::AtMostOnce => return Ok(()),
                QoS::AtLeastOnce => Packet::PubAck(ack(publish.packet_id)),
                QoS::ExactlyOnce => Packet::PubRec(ack(publish.packet_id)),
            },
            Packet::PubRec(received) if !received.reason.is_error() => {
                Packet::PubRel(ack(Some(received.packet_id)))
            }
            Packet::PubRel(released) => Packet::PubComp(ack(Some(released.packet_id))),
            _ => return Ok(()),
        };
        let to = match stream.is_unidirectional() {
            true => StreamId::CONTROL,
            false => stream,
        };
        self.send_on(to, &answer)
    }

    /// One turn of the loop; the end of the connection or of the time ends the check.
    fn turn(&mut self) -> Result<(), Fault> {
        if let Some(cause) = &self.seen.closed {
            return Err(Fault::Closed(cause.clone()));
        }
        if Instant::now() >= self.until {
            return Err(Fault::Timeout);
        }
        self.poll(self.until)
    }

    fn poll(&mut self, until: Instant) -> Result<(), Fault> {
        let wait = until.saturating_duration_since(Instant::now());
        let Self { net, seen, .. } = self;
        net.poll(Some(wait.min(TURN_MAX)), &mut |event| seen.take(event))?;
        net.flush();
        if self.seen.taken > BYTES_MAX {
            return Err(Fault::TooMuch(BYTES_MAX));
        }
        Ok(())
    }
}

impl Seen {
    fn take(&mut self, event: NetEvent<&[u8]>) {
        match event.kind {
            NetEventKind::Opened { peer } => self.opened = Some(peer),
            NetEventKind::EarlyData { accepted } => self.early = Some(accepted),
            NetEventKind::Moved { .. } => self.moved = Some(true),
            NetEventKind::MoveFailed { .. } => self.moved = Some(false),
            NetEventKind::Closed { cause } => self.closed = Some(cause),
            NetEventKind::StreamFinished { stream } if stream == StreamId::CONTROL => {
                self.closed = Some(CloseCause::Peer { code: 0 });
            }
            NetEventKind::Bytes { stream, data } => {
                self.taken += data.len();
                if self.taken <= BYTES_MAX {
                    self.bytes.push_back((stream, data.to_vec()));
                }
            }
            // A datagram is a whole packet; on which stream it counts does not matter.
            NetEventKind::Datagram { data } => {
                self.taken += data.len();
                if self.taken <= BYTES_MAX {
                    self.bytes.push_back((StreamId::CONTROL, data.to_vec()));
                }
            }
            _ => {}
        }
    }
}

/// The error that a packet of the server says.
fn refusal(packet: &Packet<'_>) -> Option<Fault> {
    let (reason, text) = match packet {
        Packet::ConnAck(connack) if connack.reason.is_error() => {
            (connack.reason, connack.properties.reason_string)
        }
        Packet::Disconnect(disconnect) => (disconnect.reason, disconnect.properties.reason_string),
        _ => return None,
    };
    Some(Fault::Refused(reason, text.map(plain)))
}

/// Text of a server for a terminal: one line without control characters, of a
/// bounded length.
pub(super) fn plain(text: &str) -> String {
    /// Longest text that is repeated.
    const CHARS_MAX: usize = 120;
    let clean = |char: char| if char.is_control() { '?' } else { char };
    text.chars().take(CHARS_MAX).map(clean).collect()
}
