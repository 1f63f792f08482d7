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

use crate::scram::ScramExchange;
use crate::session::SessionIdx;
use crate::timers::Alarm;

/// Place of a connection in the shard's table.
pub(crate) type ConnIdx = usize;

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
    /// Closing: whatever still arrives is ignored.
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

/// A client-opened stream besides control.
#[derive(Debug, Default)]
pub(crate) struct DataStream {
    pub(crate) framer: Framer,
    pub(crate) out: SendBuf,
}

/// A network connection.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) id: ConnId,
    pub(crate) peer: Peer,
    pub(crate) phase: Phase,
    pub(crate) version: Version,
    pub(crate) framer: Framer,
    pub(crate) out: SendBuf,
    pub(crate) streams: Vec<(StreamId, DataStream)>,
    /// Bytes handed to the transport that have not left it.
    pub(crate) unsent: usize,
    /// In the shard's list of connections to flush.
    pub(crate) dirty: bool,
    /// Queued messages wait for the transport.
    pub(crate) blocked: bool,
    /// Reading is paused.
    pub(crate) paused: bool,
    /// Since when this receiver is behind.
    pub(crate) behind_since: Option<Instant>,
    /// Publishers that it holds up.
    pub(crate) holds: Vec<ConnId>,
    /// Bytes that came before CONNACK, by stream.
    pub(crate) parked: Vec<(StreamId, Vec<u8>)>,
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
            framer: Framer::default(),
            out: SendBuf::new(),
            streams: Vec::new(),
            unsent: 0,
            dirty: false,
            blocked: false,
            paused: false,
            behind_since: None,
            holds: Vec::new(),
            parked: Vec::new(),
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

    /// Bytes on their way out: in the transport and not yet given to it.
    pub(crate) fn backlog(&self) -> usize {
        let streams: usize = self.streams.iter().map(|(_, s)| s.out.len()).sum();
        self.unsent + self.out.len() + streams
    }

    /// The buffer of a stream; control stands in for one that is gone or
    /// that only the client may send on.
    pub(crate) fn out(&mut self, stream: StreamId) -> &mut SendBuf {
        if stream != StreamId::CONTROL
            && !stream.is_unidirectional()
            && let Some(at) = self.streams.iter().position(|(id, _)| *id == stream)
            && let Some((_, data)) = self.streams.get_mut(at)
        {
            return &mut data.out;
        }
        &mut self.out
    }

    /// The session, once CONNECT was accepted.
    pub(crate) const fn session(&self) -> Option<SessionIdx> {
        match self.phase {
            Phase::Connected(s) | Phase::Storing(s, _) => Some(s),
            _ => None,
        }
    }
}
