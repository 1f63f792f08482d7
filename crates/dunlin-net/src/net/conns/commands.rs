//! What a caller can do with one connection: as methods, and as values.

use core::time::Duration;

use bytes::Bytes;
use dunlin_base::transport::{BindingType, CloseCause, NetCommandKind, NetEvent, NetEventKind};
use dunlin_base::{ConnId, Instant, Repeat, SendBuf, StreamId};
use dunlin_quic::{ConnStats, DatagramError, QuicConn};

use super::super::env::Env;
use super::{Conn, Conns, Report, find_in, mark};
use crate::stream;

/// One connection of a loop. Where there is none with the id it was asked for,
/// or none any more, nothing happens.
#[derive(Debug)]
pub struct ConnMut<'a> {
    id: ConnId,
    conns: &'a mut Conns,
    env: &'a mut Env,
}

impl Conns {
    /// A connection, to be commanded.
    pub(crate) fn handle<'a>(&'a mut self, id: ConnId, env: &'a mut Env) -> ConnMut<'a> {
        ConnMut {
            id,
            conns: self,
            env,
        }
    }
}

impl ConnMut<'_> {
    /// What is known of it; `None` once it is gone.
    #[must_use]
    pub fn stats(&mut self) -> Option<ConnStats> {
        self.conns.find(self.id).map(|conn| match conn {
            Conn::Stream(stream) => stream.stats(),
            Conn::Quic(quic) => quic.conn.stats(),
        })
    }

    /// The certificate that the peer presented, in DER; `None` where there is no TLS,
    /// and before the handshake is complete.
    #[must_use]
    pub fn peer_certificate(&mut self) -> Option<Vec<u8>> {
        match self.conns.find(self.id)? {
            Conn::Stream(stream) => stream::peer_certificate(stream),
            Conn::Quic(quic) => dunlin_quic::peer_certificate(&quic.conn),
        }
    }

    /// The peer's transport parameters (RFC 9000 section 18), in their encoding; `None`
    /// on other transports than QUIC, and before the handshake is complete.
    #[must_use]
    pub fn peer_parameters(&mut self) -> Option<Vec<u8>> {
        match self.conns.find(self.id)? {
            Conn::Stream(_) => None,
            Conn::Quic(quic) => dunlin_quic::peer_parameters(&quic.conn),
        }
    }

    /// Gives it bytes; takes all of them. Returns how many left at once: room
    /// for as many more. The rest is announced by `Sent`.
    ///
    /// A dialled QUIC connection opens its control stream with the first bytes
    /// sent on it; an accepted one keeps bytes for it until the client has opened
    /// it. Bytes for a stream that takes none any more are dropped and
    /// count as left.
    #[must_use = "these bytes are not announced by `Sent`"]
    pub fn send(&mut self, stream: StreamId, data: &mut SendBuf) -> usize {
        let serial = self.id.serial();
        let Self { id, conns, env } = self;
        let counters = &mut env.counters;
        let result = match find_in(&mut conns.slots, conns.shard, *id) {
            Some(Conn::Stream(tcp)) if stream == StreamId::CONTROL => {
                let result = tcp.send(data, &env.config.limits, counters, &mut env.scratch);
                if tcp.wants_run() {
                    conns.ready.push(serial);
                }
                result
            }
            Some(Conn::Quic(quic)) => {
                mark(&mut conns.dirty, serial, &mut quic.dirty);
                quic.conn.send(stream, data, env.quic.limits(), counters)
            }
            Some(Conn::Stream(_)) | None => Ok(0),
        };
        data.clear();
        result.unwrap_or_else(|cause| {
            conns.end(*id, cause, env);
            0
        })
    }

    /// Opens a stream (QUIC); `None` when the peer allows no more now, and on
    /// other transports.
    pub fn open_stream(&mut self, bidirectional: bool) -> Option<StreamId> {
        self.with_quic(|quic| quic.streams().open(bidirectional))
            .flatten()
    }

    /// Lets the peer know of a stream on which nothing has been sent (QUIC), so that
    /// it can send first.
    pub fn announce_stream(&mut self, stream: StreamId) {
        self.with_quic(|quic| quic.streams().announce(stream));
    }

    /// Whether more may arrive on a stream, and whether this side may send on it:
    /// after `StreamReset`, which of the two was meant. On other transports than
    /// QUIC both, while the connection lives.
    pub fn stream_sides(&mut self, stream: StreamId) -> (bool, bool) {
        let quic = self.with_quic(|quic| quic.streams().sides(stream));
        quic.unwrap_or_else(|| {
            let lives = self.conns.find(self.id).is_some();
            (lives, lives)
        })
    }

    /// Ends our side of a stream after what was given to `send`.
    pub fn finish_stream(&mut self, stream: StreamId) {
        let Self { id, conns, env } = self;
        if let Some(Conn::Stream(tcp)) = find_in(&mut conns.slots, conns.shard, *id)
            && stream == StreamId::CONTROL
        {
            let left = tcp.finish(env.config.clock.now(), &mut env.counters, &mut env.scratch);
            if left > 0 {
                conns.reports.push_back(Report::Sent(*id, stream, left));
            }
        } else {
            self.with_quic(|quic| quic.streams().finish(stream));
        }
    }

    /// Abandons our side of a stream; bytes that have not left are dropped and
    /// announced by `Sent`. On other transports than QUIC it does nothing.
    pub fn reset_stream(&mut self, stream: StreamId, code: u64) {
        let dropped = self.with_quic(|quic| quic.streams().reset(stream, code));
        if let Some(bytes) = dropped.filter(|n| *n > 0) {
            self.conns.push_report(Report::Sent(self.id, stream, bytes));
        }
    }

    /// Asks the peer to stop sending on a stream (QUIC).
    pub fn stop_stream(&mut self, stream: StreamId, code: u64) {
        self.with_quic(|quic| quic.streams().stop(stream, code));
    }

    /// Bytes given to `send` for one stream that have not left: where a
    /// connection has several, `Sent` tells of all of them together. 0 on
    /// other transports than QUIC.
    #[must_use]
    pub fn stream_backlog(&mut self, stream: StreamId) -> usize {
        match self.conns.find(self.id) {
            Some(Conn::Quic(quic)) => quic.conn.streams().backlog(stream),
            _ => 0,
        }
    }

    /// Has what is sent on a stream leave before what is sent on streams with a
    /// lower priority (QUIC); streams begin with 0. It decides only among
    /// bytes that have not left: it makes nothing faster than the path.
    pub fn set_stream_priority(&mut self, stream: StreamId, priority: i32) {
        self.with_quic(|quic| quic.streams().set_priority(stream, priority));
    }

    /// Keeps bytes of different streams in different packets (QUIC), so that a
    /// lost packet holds up one stream only. Lost bytes that are sent again
    /// may still share a packet.
    pub fn isolate_streams(&mut self, isolate: bool) {
        self.with_quic(|quic| quic.streams().set_isolation(isolate));
    }

    /// Sends packets with bytes of streams, or datagrams, a second time a few
    /// milliseconds later (QUIC), so that a single loss holds up nothing. Only
    /// while both fit the congestion window: for few small messages. With
    /// [`Repeat::OnLoss`] for ten seconds after each loss.
    pub fn repeat_packets(&mut self, repeat: Repeat) {
        let now = self.env.config.clock.now();
        self.with_quic(|quic| quic.set_repeat(repeat, now));
    }

    /// The largest datagram (RFC 9221) that can be sent now; `None` when the
    /// connection carries none. It changes with the path.
    pub fn datagram_max_size(&mut self) -> Option<usize> {
        self.with_quic(|quic| quic.datagrams().max_size()).flatten()
    }

    /// Sends a datagram (RFC 9221): it may be lost, and comes in no order. It
    /// is dropped, and counted, if it has not left at `expires`, or if newer
    /// ones need its place in the queue.
    ///
    /// # Errors
    /// It does not fit, or the connection carries no datagrams: send it on a
    /// stream.
    pub fn send_datagram(&mut self, data: Bytes, expires: Instant) -> Result<(), DatagramError> {
        let Self { id, conns, env } = self;
        match find_in(&mut conns.slots, conns.shard, *id) {
            Some(Conn::Quic(quic)) => {
                mark(&mut conns.dirty, id.serial(), &mut quic.dirty);
                let mut datagrams = quic.conn.datagrams();
                datagrams.send(data, expires, env.quic.limits(), &mut env.counters)
            }
            _ => Err(DatagramError::Unsupported),
        }
    }

    /// What SASL on a dialled connection can be bound by.
    #[must_use]
    pub fn binding_type(&mut self) -> Option<BindingType> {
        match self.conns.find(self.id)? {
            Conn::Stream(tcp) => stream::end_point(tcp).map(|_| BindingType::TlsServerEndPoint),
            Conn::Quic(_) => Some(BindingType::TlsExporter),
        }
    }

    /// The data of that type, or of the one that
    /// [`Peer::binding`](dunlin_base::transport::Peer::binding) names; `None` as
    /// long as the handshake goes on. On an accepted connection an event gives
    /// it then.
    pub fn bind_channel(&mut self) -> Option<Bytes> {
        match self.conns.find(self.id)? {
            Conn::Stream(tcp) => stream::end_point(tcp),
            Conn::Quic(quic) => quic.conn.binding().ask(),
        }
    }

    /// The application knows the peer: it does not count as a pending handshake
    /// any more ([`NetConfig::accepts_peers`](crate::NetConfig::accepts_peers)).
    pub fn accept(&mut self) {
        self.conns.accept(self.id, self.env);
    }

    /// Closes it after what was given to `send`; `code` goes to a QUIC peer.
    /// `Closed` follows when the bytes have left.
    pub fn close(&mut self, code: u64) {
        self.close_as(code, false);
    }

    /// As `close` for a peer that ended the conversation: what is waiting is
    /// sent, but it need not arrive. Differs for QUIC only.
    pub fn close_promptly(&mut self, code: u64) {
        self.close_as(code, true);
    }

    fn close_as(&mut self, code: u64, promptly: bool) {
        let Self { id, conns, env } = self;
        let (now, serial) = (env.config.clock.now(), id.serial());
        match find_in(&mut conns.slots, conns.shard, *id) {
            Some(Conn::Stream(tcp)) => {
                let (limits, scratch) = (&env.config.limits, &mut env.scratch);
                let ended = tcp.close(now, limits, &mut env.counters, scratch);
                let is_over = tcp.is_over();
                if let Some(cause) = ended
                    && !core::mem::replace(&mut tcp.reported, true)
                {
                    conns.reports.push_back(Report::Closed(*id, cause));
                }
                conns
                    .timers
                    .arm(serial, tcp.next_deadline(), &mut tcp.armed);
                if is_over {
                    conns.remove(serial, env);
                }
            }
            Some(Conn::Quic(quic)) => {
                mark(&mut conns.dirty, serial, &mut quic.dirty);
                // Ends when it is flushed.
                quic.conn.close(code, promptly, now, env.quic.limits());
            }
            None => {}
        }
    }

    /// Ends it at once, dropping what has not left.
    pub fn abort(&mut self) {
        self.conns.end(self.id, CloseCause::Local, self.env);
    }

    /// Takes new keys (RFC 9001 section 6). Returns whether it did: not while
    /// the handshake or an earlier update is going on, and not on other
    /// transports than QUIC.
    pub fn update_keys(&mut self) -> bool {
        let now = self.env.config.clock.now();
        let updated = self.with_quic(|quic| quic.update_keys(now));
        let updated = updated.unwrap_or(false);
        self.env.counters.key_updates += u64::from(updated);
        updated
    }

    /// Closes it once nothing arrived for `idle`.
    pub fn set_idle_timeout(&mut self, idle: Duration) {
        let Self { id, conns, env } = self;
        let idle = idle.min(env.limits().idle_timeout_max);
        let serial = id.serial();
        match find_in(&mut conns.slots, conns.shard, *id) {
            Some(Conn::Stream(tcp)) => {
                tcp.input.set_idle_timeout(idle);
                conns
                    .timers
                    .arm(serial, tcp.next_deadline(), &mut tcp.armed);
            }
            Some(Conn::Quic(quic)) => {
                quic.conn.reading_mut().set_idle_timeout(idle);
                let at = quic.conn.next_deadline(&env.config.clock);
                conns.timers.arm(serial, at, &mut quic.armed);
            }
            None => {}
        }
    }

    /// Stops or resumes reading, so that the peer is slowed down. While reading
    /// is stopped the idle timeout rests.
    pub fn pause_reading(&mut self, paused: bool) {
        let Self { id, conns, env } = self;
        let (now, serial) = (env.config.clock.now(), id.serial());
        let unread = match find_in(&mut conns.slots, conns.shard, *id) {
            Some(Conn::Stream(tcp)) => {
                let unread = tcp.input.pause(paused, now);
                conns
                    .timers
                    .arm(serial, tcp.next_deadline(), &mut tcp.armed);
                unread
            }
            Some(Conn::Quic(quic)) => {
                let unread = quic.conn.reading_mut().pause(paused, now);
                let at = quic.conn.next_deadline(&env.config.clock);
                conns.timers.arm(serial, at, &mut quic.armed);
                unread
            }
            None => false,
        };
        if unread {
            conns.ready.push(serial);
        }
    }

    /// Reads control and one other stream only (QUIC); `None`: reads all. What
    /// may come on the others meanwhile does not count against the bytes that
    /// the peer may send ahead on the connection.
    pub fn read_only(&mut self, stream: Option<StreamId>) {
        let limits = self.env.quic.limits().clone();
        if self.with_quic(|quic| quic.streams().read_only(stream, &limits)) == Some(true) {
            self.conns.ready.push(self.id.serial());
        }
    }

    /// Stops or resumes reading one stream, so that the peer is slowed down on
    /// it: on others, too, when it has filled the window of the connection. On
    /// other transports than QUIC, as [`Self::pause_reading`].
    pub fn pause_stream(&mut self, stream: StreamId, paused: bool) {
        match self.with_quic(|quic| quic.streams().pause(stream, paused)) {
            Some(true) => self.conns.ready.push(self.id.serial()),
            Some(false) => {}
            None => self.pause_reading(paused),
        }
    }

    /// Its client is known. Where identifiers decide which connections are
    /// logged, this one's log (QUIC) goes on or is given up.
    pub fn name_log(&mut self, client_id: &str) {
        if let Some(Conn::Quic(quic)) = self.conns.find(self.id) {
            quic.conn.log_mut().name(client_id);
        }
    }

    /// Begins to log a QUIC connection that is under way. Its packets are not
    /// in such a log; everything else is.
    pub fn begin_log(&mut self) {
        if let Some(Conn::Quic(quic)) = self.conns.find(self.id)
            && let Some(qlog) = &self.env.config.qlog
        {
            let limits = self.env.quic.limits();
            quic.conn.log_mut().begin_late(qlog, limits);
        }
    }

    /// Does what a command says. Returns what came of it at once, which `poll`
    /// does not report again: `Sent` for bytes that have left, `StreamOpened`
    /// for a stream.
    ///
    /// The bytes of a `Send` are taken; the emptied buffer stays in the command
    /// for reuse.
    #[must_use = "`poll` does not report this event again"]
    pub fn command(&mut self, command: &mut NetCommandKind) -> Option<NetEvent<&'static [u8]>> {
        match command {
            NetCommandKind::Send { stream, data } => {
                let bytes = self.send(*stream, data);
                return self.sent(*stream, bytes);
            }
            NetCommandKind::SendDatagram {
                data,
                expires,
                fallback,
            } => {
                let bytes = match self.send_datagram(data.clone(), *expires) {
                    // Its queue has a bound of its own.
                    Ok(()) => data.len(),
                    Err(_) => {
                        let mut bytes = SendBuf::new();
                        bytes.put_bytes(data);
                        self.send(*fallback, &mut bytes)
                    }
                };
                return self.sent(*fallback, bytes);
            }
            NetCommandKind::OpenStream { bidirectional } => {
                let stream = self.open_stream(*bidirectional);
                let kind = NetEventKind::StreamOpened { stream };
                return Some(NetEvent::new(self.id, kind));
            }
            NetCommandKind::FinishStream { stream } => self.finish_stream(*stream),
            NetCommandKind::ResetStream { stream, code } => {
                self.reset_stream(*stream, *code);
                self.stop_stream(*stream, *code);
            }
            NetCommandKind::SetPriority { stream, priority } => {
                self.set_stream_priority(*stream, *priority);
            }
            NetCommandKind::IsolateStreams { isolate } => self.isolate_streams(*isolate),
            NetCommandKind::RepeatPackets { repeat } => self.repeat_packets(*repeat),
            NetCommandKind::ExpectMore => {
                self.with_quic(|quic| quic.early_data().expect_more());
            }
            NetCommandKind::BindChannel => {
                let kind = NetEventKind::ChannelBinding {
                    data: self.bind_channel()?,
                };
                return Some(NetEvent::new(self.id, kind));
            }
            NetCommandKind::Accept => self.accept(),
            NetCommandKind::Close { code, promptly } => self.close_as(*code, *promptly),
            NetCommandKind::SetIdleTimeout { timeout } => self.set_idle_timeout(*timeout),
            NetCommandKind::PauseReading { paused } => self.pause_reading(*paused),
            NetCommandKind::PauseStream { stream, paused } => {
                self.pause_stream(*stream, *paused);
            }
            NetCommandKind::ReadOnly { stream } => self.read_only(*stream),
        }
        None
    }

    fn sent(&self, stream: StreamId, bytes: usize) -> Option<NetEvent<&'static [u8]>> {
        (bytes > 0).then(|| NetEvent::new(self.id, NetEventKind::Sent { stream, bytes }))
    }

    fn with_quic<R>(&mut self, f: impl FnOnce(&mut QuicConn) -> R) -> Option<R> {
        let conns = &mut *self.conns;
        match find_in(&mut conns.slots, conns.shard, self.id) {
            Some(Conn::Quic(quic)) => {
                mark(&mut conns.dirty, self.id.serial(), &mut quic.dirty);
                Some(f(&mut quic.conn))
            }
            _ => None,
        }
    }
}
