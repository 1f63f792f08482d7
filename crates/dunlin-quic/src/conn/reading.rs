//! What has arrived goes to the owner: streams within a budget, datagrams at
//! once.

use core::time::Duration;

use bytes::Bytes;
use dunlin_base::transport::{NetEvent, NetEventKind};
use dunlin_base::{ConnId, Instant, StreamId};
use quinn_proto::{Connection, ReadError, ReadableError, StreamId as QuicStreamId};

use super::Cx;
use super::phase::Life;
use super::streams::Streams;
use crate::qlog::ConnLog;

/// Stream data of several datagrams that is reported at once.
const GATHER_BYTES: usize = 32 << 10;

/// Whether the owner reads, and how long nothing has arrived.
#[derive(Debug)]
pub struct Reading {
    paused: bool,
    /// Too much waits to leave for more to be read.
    choked: bool,
    last: Instant,
    idle: Duration,
}

impl Reading {
    pub(super) const fn new(now: Instant, idle: Duration) -> Self {
        Self {
            paused: false,
            choked: false,
            last: now,
            idle,
        }
    }

    /// Whether nothing is read.
    pub(super) const fn is_held(&self) -> bool {
        self.paused || self.choked
    }

    /// What arrived before the end is read, all of it.
    pub(super) const fn end(&mut self) {
        self.paused = false;
        self.choked = false;
    }

    /// Stops or resumes reading; whether there is something to read now. A
    /// peer that is not read is not idle.
    pub const fn pause(&mut self, paused: bool, now: Instant) -> bool {
        let resumed = self.paused && !paused;
        if resumed {
            self.last = now;
        }
        self.paused = paused;
        resumed
    }

    pub(super) const fn on_datagram(&mut self, now: Instant) {
        self.last = now;
    }

    /// How long nothing may arrive.
    pub const fn set_idle_timeout(&mut self, idle: Duration) {
        self.idle = idle;
    }

    /// When a peer that is read has been silent for too long.
    pub(super) fn deadline(&self) -> Instant {
        if self.paused {
            return Instant::FAR_FUTURE;
        }
        self.last + self.idle
    }
}

/// What has arrived, to be read.
pub(super) struct ReadMut<'a> {
    pub(super) id: ConnId,
    pub(super) life: &'a mut Life,
    pub(super) reading: &'a mut Reading,
    pub(super) accepted: bool,
    pub(super) streams: &'a mut Streams,
    pub(super) proto: &'a mut Connection,
    pub(super) log: &'a Option<Box<ConnLog>>,
}

impl ReadMut<'_> {
    /// Whether so much waits to leave that the peer must take some of it before
    /// more is read. Only a server insists: if both sides did, neither would
    /// read.
    pub(super) fn check_waiting(&mut self, cx: &mut Cx<'_>) {
        let most = cx.limits.unread_answers_bytes_max;
        let was = self.reading.choked;
        let most = if was { most / 2 } else { most };
        self.reading.choked = self.accepted && self.life.is_open() && self.streams.waiting() > most;
        cx.counters.input_held += u64::from(self.reading.choked && !was);
    }

    /// Streams that were not read to their end.
    pub(super) fn unread(&mut self, budget: &mut usize, cx: &mut Cx<'_>) {
        if self.reading.is_held() {
            return;
        }
        for id in self.streams.take_unread() {
            self.stream(id, budget, cx);
        }
    }

    /// One stream, as far as the budget goes.
    pub(super) fn stream(&mut self, id: QuicStreamId, budget: &mut usize, cx: &mut Cx<'_>) {
        if !self.life.is_open() {
            return;
        }
        if self.reading.is_held() || *budget == 0 {
            self.streams.note_unread(id);
            return;
        }
        if self.streams.waits(id) {
            return;
        }
        let (conn, stream) = (self.id, StreamId(id.into()));
        let mut read = 0;
        let mut recv = self.proto.recv_stream(id);
        let mut chunks = match recv.read(true) {
            Ok(chunks) => chunks,
            Err(ReadableError::ClosedStream | ReadableError::IllegalOrderedRead) => return,
        };
        // Datagrams bring little each: what has arrived together is reported
        // together, so that packets are cut at the ends of many datagrams and
        // not of each. A lone chunk is lent as it is.
        let gather = &mut *cx.gather;
        let mut lone: Option<Bytes> = None;
        let end = loop {
            if *budget == 0 {
                self.streams.note_unread(id);
                break None;
            }
            match chunks.next(*budget) {
                Ok(Some(chunk)) => {
                    *budget = budget.saturating_sub(chunk.bytes.len());
                    read += chunk.bytes.len();
                    if gather.len() + chunk.bytes.len() > GATHER_BYTES {
                        let data = gather.as_slice();
                        (cx.out)(NetEvent::new(conn, NetEventKind::Bytes { stream, data }));
                        gather.clear();
                    }
                    match lone.take() {
                        None if gather.is_empty() => lone = Some(chunk.bytes),
                        first => {
                            gather.extend_from_slice(&first.unwrap_or_default());
                            gather.extend_from_slice(&chunk.bytes);
                        }
                    }
                }
                Ok(None) => break Some(NetEventKind::StreamFinished { stream }),
                Err(ReadError::Blocked) => break None,
                Err(ReadError::Reset(code)) => {
                    let code = code.into_inner();
                    break Some(NetEventKind::StreamReset { stream, code });
                }
            }
        };
        let data = lone.as_deref().unwrap_or(gather);
        if !data.is_empty() {
            (cx.out)(NetEvent::new(conn, NetEventKind::Bytes { stream, data }));
        }
        gather.clear();
        // Whether credit frames wait is found out when flushing.
        let _ = chunks.finalize();
        if let Some(log) = self.log {
            log.read(stream, read, end.as_ref());
        }
        if let Some(end) = end {
            (cx.out)(NetEvent::new(conn, end));
        }
        if read > 0 {
            self.life.on_spoke();
        }
    }

    /// Reports datagrams that have arrived. Not of a connection that is not read:
    /// datagrams are not held back, and the oldest of a full buffer go first.
    pub(super) fn datagrams(&mut self, cx: &mut Cx<'_>) {
        if !self.life.is_open() || self.reading.is_held() {
            return;
        }
        while let Some(data) = self.proto.datagrams().recv() {
            self.life.on_spoke();
            cx.counters.app_datagrams_in += 1;
            cx.emit(self.id, NetEventKind::Datagram { data: &data });
        }
    }
}
