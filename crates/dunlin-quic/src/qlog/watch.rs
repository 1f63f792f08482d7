//! What the loop itself sees of a connection that is logged: its beginning and
//! end, streams and the bytes in them, UDP datagrams, moves to other addresses.

use core::net::{IpAddr, SocketAddr};

use dunlin_base::StreamId;
use dunlin_base::transport::{CloseCause, NetEventKind, plain_addr};
use quinn_proto::{QlogConfig, QlogStream};
use serde_json::{Value, json};

use super::sink::Log;
use super::{Choice, Qlog};
use crate::limits::QuicLimits;
use crate::{QuicStats, allowance};

/// A log that is about to begin.
pub(crate) struct LogStart {
    qlog: Qlog,
    log: Log,
}

/// The log of one connection.
pub(crate) struct ConnLog {
    qlog: Qlog,
    log: Log,
    /// quinn-proto writes nothing to it, because it began too late.
    alone: bool,
    over: bool,
    seen: QuicStats,
}

dunlin_base::opaque_debug!(ConnLog);

impl LogStart {
    /// A log for an accepted connection from this address, if it is wanted or
    /// could be.
    pub(crate) fn accepted(qlog: &Qlog, ip: IpAddr, odcid: &[u8]) -> Option<Self> {
        let choice = qlog.choose(ip);
        let odcid = || odcid.iter().map(|byte| format!("{byte:02x}")).collect();
        (choice != Choice::No).then(|| Self {
            qlog: qlog.clone(),
            log: Log::new(qlog, true, Some(odcid()), choice == Choice::Yes),
        })
    }

    /// A log for a connection that is dialled.
    pub(crate) fn dialled(qlog: &Qlog, ip: IpAddr) -> Option<Self> {
        (qlog.choose(ip) != Choice::No).then(|| Self {
            qlog: qlog.clone(),
            log: Log::new(qlog, false, None, true),
        })
    }

    /// Where quinn-proto is to write.
    pub(crate) fn stream(&self) -> Option<QlogStream> {
        let mut config = QlogConfig::default();
        config.writer(Box::new(self.log.sink()));
        config.into_stream()
    }

    pub(crate) fn watch(self, remote: SocketAddr, limits: &QuicLimits) -> ConnLog {
        let log = ConnLog {
            qlog: self.qlog,
            log: self.log,
            alone: false,
            over: false,
            seen: QuicStats::default(),
        };
        log.begin(remote, limits);
        log
    }
}

impl ConnLog {
    /// Begins to log a connection that is under way: without its packets.
    pub(crate) fn late(qlog: &Qlog, server: bool, remote: SocketAddr, limits: &QuicLimits) -> Self {
        let name = format!("late-{:016x}", qlog.0.clock.now().as_micros());
        let log = Self {
            qlog: qlog.clone(),
            log: Log::new(qlog, server, Some(name), true),
            alone: true,
            over: false,
            seen: QuicStats::default(),
        };
        log.begin(remote, limits);
        log
    }

    fn begin(&self, remote: SocketAddr, limits: &QuicLimits) {
        let whole = limits.stream_receive_window;
        let first = match self.log.is_server() {
            true => allowance::small(whole),
            false => whole,
        };
        // The local address is that of the socket, which may be all addresses.
        self.log.add(
            "quic:connection_started",
            json!({ "local": {}, "remote": tuple(remote) }),
        );
        self.log.add(
            "quic:parameters_set",
            json!({
                "initiator": "local",
                "initial_max_data": limits.receive_window,
                "initial_max_stream_data_bidi_remote": first,
                "initial_max_stream_data_uni": first,
                "unknown_parameters": [],
            }),
        );
    }

    /// Its client is known, which may decide whether it is wanted.
    pub(crate) fn name(&self, client_id: &str) {
        self.log.decide(self.qlog.wants_client(client_id));
    }

    /// It is not wanted.
    pub(crate) fn is_off(&self) -> bool {
        self.log.is_off()
    }

    pub(crate) fn opened(&self, protocol: Option<&[u8]>, early: bool) {
        if let Some(protocol) = protocol {
            let name = String::from_utf8_lossy(protocol);
            let data = json!({ "chosen_alpn": { "string_value": name } });
            self.log.add("quic:alpn_information", data);
        }
        // Early data is served before the handshake is complete.
        let state = if early {
            "early_write"
        } else {
            "handshake_completed"
        };
        let data = json!({ "new": state });
        self.log.add("quic:connection_state_updated", data);
    }

    pub(crate) fn stream_opened(&self, stream: StreamId, by_us: bool) {
        let trigger = if by_us { "local" } else { "remote" };
        self.stream(stream, "open", Some(trigger));
    }

    fn stream(&self, stream: StreamId, state: &str, trigger: Option<&str>) {
        let kind = if stream.is_unidirectional() {
            "unidirectional"
        } else {
            "bidirectional"
        };
        let mut data = json!({ "stream_id": stream.0, "stream_type": kind, "new": state });
        if let (Some(trigger), Some(data)) = (trigger, data.as_object_mut()) {
            data.insert("trigger".into(), trigger.into());
        }
        self.log.add("quic:stream_state_updated", data);
    }

    /// Bytes went from the transport to its owner, and perhaps the end.
    pub(crate) fn read(&self, stream: StreamId, bytes: usize, end: Option<&NetEventKind<&[u8]>>) {
        self.moved(stream, bytes, "transport", "application");
        match end {
            Some(NetEventKind::StreamFinished { .. }) => {
                self.stream(stream, "half_closed_remote", None);
            }
            Some(_) => self.stream(stream, "reset_received", None),
            None => {}
        }
    }

    /// Bytes went the other way.
    pub(crate) fn wrote(&self, stream: StreamId, bytes: usize) {
        self.moved(stream, bytes, "application", "transport");
    }

    fn moved(&self, stream: StreamId, bytes: usize, from: &str, to: &str) {
        if bytes > 0 {
            let raw = json!({ "length": bytes });
            let data = json!({ "stream_id": stream.0, "from": from, "to": to, "raw": raw });
            self.log.add("quic:stream_data_moved", data);
        }
    }

    pub(crate) fn udp_received(&self, bytes: usize) {
        let data = json!({ "count": 1, "raw": [{ "length": bytes }] });
        self.log.add("quic:datagrams_received", data);
    }

    /// Datagrams left together, all of the same size but for the last.
    pub(crate) fn udp_sent(&self, bytes: usize, segment: Option<usize>) {
        let segment = segment.unwrap_or(bytes).max(1);
        let mut raw = Vec::new();
        let mut left = bytes;
        while left > 0 {
            let length = left.min(segment);
            raw.push(json!({ "length": length }));
            left -= length;
        }
        let data = json!({ "count": raw.len(), "raw": raw });
        self.log.add("quic:datagrams_sent", data);
    }

    /// The peer is at another address now.
    pub(crate) fn migrated(&self, remote: SocketAddr) {
        let data = json!({ "new": "migration_complete", "tuple_remote": tuple(remote) });
        self.log.add("quic:migration_state_updated", data);
    }

    /// What changed of the path. quinn-proto logs all of it but the MTU, where
    /// it writes at all.
    pub(crate) fn path(&mut self, stats: &QuicStats) {
        if stats.mtu != self.seen.mtu {
            let mut data = json!({ "new": stats.mtu });
            if let Some(data) = data.as_object_mut().filter(|_| self.seen.mtu > 0) {
                data.insert("old".into(), self.seen.mtu.into());
            }
            self.log.add("quic:mtu_updated", data);
        }
        let metrics = |s: &QuicStats| (s.rtt, s.rtt_min, s.congestion_window);
        if self.alone && metrics(stats) != metrics(&self.seen) {
            let millis = |time: core::time::Duration| time.as_micros() as f64 / 1e3;
            let data = json!({
                "smoothed_rtt": millis(stats.rtt),
                "min_rtt": millis(stats.rtt_min),
                "congestion_window": stats.congestion_window,
            });
            self.log.add("quic:recovery_metrics_updated", data);
        }
        self.seen = stats.clone();
    }

    /// It is over, which is logged once; packets may still follow.
    pub(crate) fn closed(&mut self, cause: &CloseCause) {
        if core::mem::replace(&mut self.over, true) {
            return;
        }
        let (initiator, trigger) = match cause {
            CloseCause::Peer { .. } => (Some("remote"), "application"),
            CloseCause::Local => (Some("local"), "application"),
            CloseCause::IdleTimeout => (None, "idle_timeout"),
            CloseCause::AddressGone => (None, "address_gone"),
            CloseCause::HandshakeTimeout => (None, "handshake_timeout"),
            _ => (None, "error"),
        };
        let mut data = json!({ "reason": cause.to_string(), "trigger": trigger });
        if let Some(data) = data.as_object_mut() {
            if let Some(initiator) = initiator {
                data.insert("initiator".into(), initiator.into());
            }
            if let CloseCause::Peer { code } = cause {
                data.insert("error_code".into(), (*code).into());
            }
        }
        self.log.add("quic:connection_closed", data);
    }
}

/// Where a connection has its log, if it has one.
#[derive(Debug)]
pub struct LogMut<'a> {
    log: &'a mut Option<Box<ConnLog>>,
    remote: SocketAddr,
    /// The connection was accepted.
    server: bool,
}

impl<'a> LogMut<'a> {
    pub(crate) const fn new(
        log: &'a mut Option<Box<ConnLog>>,
        remote: SocketAddr,
        server: bool,
    ) -> Self {
        Self {
            log,
            remote,
            server,
        }
    }

    /// Begins a log although the connection is under way.
    pub fn begin_late(&mut self, qlog: &Qlog, limits: &QuicLimits) {
        let remote = plain_addr(self.remote);
        self.log
            .get_or_insert_with(|| Box::new(ConnLog::late(qlog, self.server, remote, limits)));
    }

    /// The client is known: the log goes on, or is given up.
    pub fn name(&mut self, client_id: &str) {
        if let Some(log) = self.log {
            log.name(client_id);
        }
        self.drop_if_off();
    }

    /// Logs what changed of the path.
    pub(crate) fn path(&mut self, stats: &QuicStats) {
        // It may have ended at a bound.
        self.drop_if_off();
        if let Some(log) = self.log {
            log.path(stats);
        }
    }

    fn drop_if_off(&mut self) {
        if self.log.as_ref().is_some_and(|log| log.is_off()) {
            *self.log = None;
        }
    }
}

impl Drop for ConnLog {
    fn drop(&mut self) {
        self.log.end();
    }
}

fn tuple(addr: SocketAddr) -> Value {
    match addr {
        SocketAddr::V4(addr) => json!({ "ip_v4": addr.ip().to_string(), "port_v4": addr.port() }),
        SocketAddr::V6(addr) => json!({ "ip_v6": addr.ip().to_string(), "port_v6": addr.port() }),
    }
}
