//! What a shard keeps of a network connection. A connection without traffic
//! owns no buffers.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use dunlin_base::transport::Peer;
use dunlin_base::{ConnId, Instant, SendBuf, ShardId, StreamId, Text};
use dunlin_mqtt::codec::Version;
use dunlin_mqtt::server::{AliasTable, Framer, TopicAliases};

use crate::ids::SessionIdx;
use crate::lanes::Lanes;
use crate::scram::ScramExchange;
use crate::timers::Alarm;

/// Bytes kept of a client that sends on before its CONNACK. Reading is paused
/// meanwhile, so this bounds what one read brought.
pub(crate) const PARKED_BYTES_MAX: usize = 512 * 1024;

/// Where a connection stands.
#[derive(Debug)]
pub(crate) enum Phase {
    /// Nothing understood yet.
    ExpectConnect,
    /// CONNECT was read; the authenticator has it.
    Authenticating(Box<PendingConnect>),
    /// The client and the server exchange AUTH.
    Exchanging(Box<PendingConnect>, Box<ScramExchange>),
    /// Accepted; the session is on its way to the store and CONNACK waits.
    Storing(SessionIdx, Box<ConnAckFacts>),
    /// CONNACK was sent.
    Connected(SessionIdx),
    /// The session lives on another shard, which sees everything.
    HandedOver(ShardId),
    /// Its session has been taken from it; Close follows in the same call.
    Ending,
    /// Closing: what still arrives is ignored.
    Closing,
}

/// A CONNECT that waits for its verdict.
#[derive(Debug)]
pub(crate) struct PendingConnect {
    /// The packet.
    pub(crate) packet: Bytes,
    /// Assigned client identifier.
    pub(crate) assigned: Option<Text>,
}

/// What CONNACK says that the session does not know.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnAckFacts {
    pub(crate) session_present: bool,
    pub(crate) assigned: Option<Text>,
    pub(crate) server_keep_alive: Option<u16>,
    pub(crate) session_expiry: Option<u32>,
    pub(crate) auth_method: Option<Text>,
    pub(crate) auth_data: Option<Bytes>,
}

/// A stream besides control.
#[derive(Debug, Default)]
pub(crate) struct DataStream {
    pub(crate) head: Head,
    /// Flow identifier; 0: none.
    pub(crate) flow: u64,
    pub(crate) framer: Framer,
    /// What aliases mean on it: there is no order between streams, so an alias
    /// holds where it was set.
    pub(crate) aliases_in: Option<Box<TopicAliases>>,
    pub(crate) out: SendBuf,
    /// The client has ended its side; ours follows when it has its answers.
    pub(crate) half_closed: bool,
    /// We have ended our side: nothing more can be sent on it.
    pub(crate) ended: bool,
    /// The client takes no more of it while it would on others.
    pub(crate) blocked: bool,
    /// Bytes that wait for it in the transport and do not count against the
    /// other streams.
    pub(crate) apart: usize,
}

impl DataStream {
    /// Whether a packet, or the header, has come in part.
    pub(crate) fn is_cut(&self) -> bool {
        matches!(self.head, Head::Partial(_)) || self.framer.has_partial()
    }

    /// Whether it has, or begins with, a flow header.
    pub(crate) const fn has_head(&self) -> bool {
        self.flow != 0 || matches!(self.head, Head::Partial(_))
    }

    /// One that the broker opened: only it has a flow header.
    pub(crate) fn opened() -> Self {
        Self {
            head: Head::Read,
            ..Self::default()
        }
    }
}

/// The flow header that a stream may begin with.
#[derive(Debug, Default)]
pub(crate) enum Head {
    /// Nothing has come.
    #[default]
    Expected,
    /// The beginning of one.
    Partial(Vec<u8>),
    /// There is none, or it has been read: packets follow.
    Read,
}

/// A network connection.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) id: ConnId,
    pub(crate) peer: Peer,
    pub(crate) phase: Phase,
    pub(crate) version: Version,
    /// Of the control stream.
    pub(crate) head: Head,
    pub(crate) framer: Framer,
    pub(crate) out: SendBuf,
    /// Delivery streams, if the client takes them.
    pub(crate) lanes: Option<Box<Lanes>>,
    /// The last streams that were abandoned: what still arrives is ignored.
    pub(crate) abandoned: Vec<StreamId>,
    /// Flows that could not be recovered.
    pub(crate) failed_flows: Vec<u64>,
    /// Age limit of datagrams to the client; zero: it takes none.
    pub(crate) datagram_age: Duration,
    /// Subscriptions of data streams outlive them.
    pub(crate) durable_streams: bool,
    pub(crate) streams: Vec<(StreamId, DataStream)>,
    /// Bytes handed to the transport that have not left it, without those that
    /// wait apart. Below zero while one event of two has come.
    pub(crate) unsent: i64,
    /// SUBSCRIBEs and UNSUBSCRIBEs that wait for their answer.
    pub(crate) subscribing: u16,
    /// In the shard's list of connections to flush.
    pub(crate) dirty: bool,
    /// Queued messages wait for the transport.
    pub(crate) blocked: bool,
    /// Some stream takes nothing.
    pub(crate) any_blocked: bool,
    /// Reading is paused.
    pub(crate) paused: bool,
    /// Since when this receiver is behind.
    pub(crate) behind_since: Option<Instant>,
    /// Publishers that it holds up.
    pub(crate) holds: Vec<ConnId>,
    /// Bytes that came before CONNACK, by stream.
    pub(crate) parked: Vec<(StreamId, Vec<u8>)>,
    /// Those of them that the client has ended.
    pub(crate) parked_ends: Vec<(StreamId, Option<u64>)>,
    /// Datagrams that came before CONNACK.
    pub(crate) parked_datagrams: Vec<Bytes>,
    pub(crate) packet_bytes_max: u32,
    pub(crate) receive_maximum: u16,
    pub(crate) aliases_in: TopicAliases,
    pub(crate) aliases_out: AliasTable,
    pub(crate) problem_information: bool,
    /// It asked how many data streams it may have.
    pub(crate) asked_for_streams: bool,
    /// 1.5 times the keep alive; zero: off.
    pub(crate) silence_max: Duration,
    pub(crate) last_packet: Instant,
    pub(crate) alarm: Alarm,
    /// Authentication method of CONNECT, for re-authentication.
    pub(crate) auth_method: Option<Text>,
    /// Re-authentication under way.
    pub(crate) reauth: Option<Box<ScramExchange>>,
}

impl Conn {
    pub(crate) fn new(id: ConnId, peer: Peer, now: Instant) -> Self {
        Self {
            id,
            peer,
            phase: Phase::ExpectConnect,
            version: Version::V5,
            head: Head::default(),
            framer: Framer::default(),
            out: SendBuf::new(),
            lanes: None,
            abandoned: Vec::new(),
            failed_flows: Vec::new(),
            datagram_age: Duration::ZERO,
            durable_streams: true,
            streams: Vec::new(),
            unsent: 0,
            subscribing: 0,
            dirty: false,
            blocked: false,
            any_blocked: false,
            paused: false,
            behind_since: None,
            holds: Vec::new(),
            parked: Vec::new(),
            parked_ends: Vec::new(),
            parked_datagrams: Vec::new(),
            packet_bytes_max: u32::MAX,
            receive_maximum: u16::MAX,
            aliases_in: TopicAliases::default(),
            aliases_out: AliasTable::default(),
            problem_information: true,
            asked_for_streams: false,
            silence_max: Duration::ZERO,
            last_packet: now,
            alarm: Alarm::default(),
            auth_method: None,
            reauth: None,
        }
    }

    /// Whether both sides agreed on flow headers (ALPN).
    pub(crate) fn speaks_next(&self) -> bool {
        self.peer.protocol.as_deref() == Some(dunlin_mqtt::flow::ALPN)
    }

    /// Bytes on their way out: in the transport and not yet given to it.
    pub(crate) fn backlog(&self) -> usize {
        let streams: usize = self.streams.iter().map(|(_, s)| s.out.len()).sum();
        let held = self.lanes.as_ref().map_or(0, |lanes| lanes.held_bytes());
        let unsent = usize::try_from(self.unsent).unwrap_or(0);
        unsent + self.out.len() + streams + held
    }

    /// The buffer of a stream; control stands in for one that is gone or
    /// that only the client may send on.
    pub(crate) fn out(&mut self, stream: StreamId) -> &mut SendBuf {
        if stream != StreamId::CONTROL
            && !stream.is_unidirectional()
            && let Some(at) = self.streams.iter().position(|(id, _)| *id == stream)
            && let Some((_, data)) = self.streams.get_mut(at)
            && !data.ended
        {
            return &mut data.out;
        }
        &mut self.out
    }

    /// Forgets a stream.
    pub(crate) fn forget(&mut self, stream: StreamId) {
        if let Some(at) = self.streams.iter().position(|(id, _)| *id == stream) {
            let (_, data) = self.streams.remove(at);
            self.unsent += data.apart as i64;
        }
    }

    /// Whether the client takes no more of this stream.
    pub(crate) fn is_blocked(&self, stream: StreamId) -> bool {
        let mut streams = self.streams.iter();
        streams.any(|(id, data)| *id == stream && data.blocked)
    }

    /// Whether messages of a topic would go to a stream of which the client
    /// takes nothing. `stream` is that of their subscription.
    pub(crate) fn is_blocked_for(&self, stream: StreamId, topic: &str) -> bool {
        if !self.any_blocked {
            return false;
        }
        let stream = match &self.lanes {
            Some(lanes) if stream == StreamId::CONTROL => lanes.stream_of(topic),
            _ => Some(stream),
        };
        stream.is_some_and(|stream| self.is_blocked(stream))
    }

    /// Notes that a stream was abandoned, and forgets it.
    pub(crate) fn abandon(&mut self, stream: StreamId) {
        /// More cannot be under way in one batch of events.
        const ABANDONED_MAX: usize = 64;
        self.forget(stream);
        if self.abandoned.len() >= ABANDONED_MAX {
            self.abandoned.remove(0);
        }
        self.abandoned.push(stream);
    }

    /// A stream besides control.
    pub(crate) fn data_stream(&mut self, stream: StreamId) -> Option<&mut DataStream> {
        let mut streams = self.streams.iter_mut();
        streams.find(|(id, _)| *id == stream).map(|(_, data)| data)
    }

    /// The packet boundary of a stream.
    pub(crate) fn framer(&mut self, stream: StreamId) -> Option<&mut Framer> {
        match stream {
            StreamId::CONTROL => Some(&mut self.framer),
            stream => self.data_stream(stream).map(|data| &mut data.framer),
        }
    }

    /// Where a stream's flow header stands.
    pub(crate) fn head(&mut self, stream: StreamId) -> Option<&mut Head> {
        match stream {
            StreamId::CONTROL => Some(&mut self.head),
            stream => self.data_stream(stream).map(|data| &mut data.head),
        }
    }

    /// Takes the session from a connection that ends.
    pub(crate) fn take_session(&mut self) -> Option<SessionIdx> {
        let s = self.session()?;
        self.phase = Phase::Ending;
        Some(s)
    }

    /// The session, once CONNECT was accepted.
    pub(crate) const fn session(&self) -> Option<SessionIdx> {
        match self.phase {
            Phase::Connected(s) | Phase::Storing(s, _) => Some(s),
            _ => None,
        }
    }
}
