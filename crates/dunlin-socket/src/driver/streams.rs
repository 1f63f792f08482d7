//! The streams of one connection in the loop: what the transport reports goes to
//! their pipes, and what their pipes hold goes to the transport.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use dunlin_base::{ConnId, StreamId};
use dunlin_net::Net;

use crate::error::Error;
use crate::pipe::Pipe;
use crate::shared::{ConnShared, FIRST, Settings};

/// Application error code of a stream that is no longer wanted.
const NOT_WANTED: u64 = 0;

/// Application error code of a stream for which there is no room.
const NO_ROOM: u64 = 1;

/// Bits of a stream's number that say who opened it, and how (RFC 9000 section
/// 2.1).
const KIND_BITS: u32 = 2;

/// The streams of one connection. Each list has a stream once, or what the
/// application asked for it.
pub(super) struct Streams {
    settings: Settings,
    /// This side is the server.
    is_server: bool,
    entries: HashMap<StreamId, Entry>,
    /// The number after the last one, without its kind, of which a bidirectional
    /// stream of the peer was seen.
    next: u64,
    /// Those before it that were not: the peer has opened them (RFC 9000 section
    /// 2.1), so that its limit of streams bounds them.
    unseen: BTreeSet<u64>,
    /// Those that are dropped and on which the peer may still send.
    deaf: HashSet<StreamId>,
    /// Those of them on which it did.
    stops: Vec<StreamId>,
    /// Those to look at.
    touched: Vec<StreamId>,
    /// Those that the peer has abandoned, in one direction or both.
    resets: Vec<(StreamId, u64)>,
    /// Those that the application has abandoned.
    abandoned: Vec<(StreamId, u64)>,
    /// Those that the application has dropped.
    released: Vec<StreamId>,
    /// Those of the peer for which there is no room.
    unwanted: Vec<StreamId>,
}

struct Entry {
    pipe: Arc<Pipe>,
    touched: bool,
}

impl Streams {
    pub(super) fn new(settings: Settings, is_server: bool) -> Self {
        Self {
            settings,
            is_server,
            entries: HashMap::new(),
            next: 0,
            unseen: BTreeSet::new(),
            deaf: HashSet::new(),
            stops: Vec::new(),
            touched: Vec::new(),
            resets: Vec::new(),
            abandoned: Vec::new(),
            released: Vec::new(),
            unwanted: Vec::new(),
        }
    }

    /// The stream that the client opens first, before it is there: the transport
    /// keeps what is sent on it.
    pub(super) fn await_first(&mut self) -> Arc<Pipe> {
        self.insert(FIRST, false)
    }

    /// This side opened a stream.
    pub(super) fn opened(&mut self, stream: StreamId) -> Arc<Pipe> {
        self.insert(stream, true)
    }

    fn insert(&mut self, stream: StreamId, is_ours: bool) -> Arc<Pipe> {
        let pipe = Arc::new(Pipe::new(stream, self.settings.bounds, is_ours));
        let entry = Entry {
            pipe: Arc::clone(&pipe),
            touched: false,
        };
        self.entries.insert(stream, entry);
        pipe
    }

    /// Has a stream looked at in the next run.
    pub(super) fn touch(&mut self, stream: StreamId) {
        if let Some(entry) = self.entries.get_mut(&stream)
            && !core::mem::replace(&mut entry.touched, true)
        {
            self.touched.push(stream);
        }
    }

    pub(super) fn release(&mut self, stream: StreamId) {
        self.released.push(stream);
    }

    pub(super) fn abandon(&mut self, stream: StreamId, code: u64) {
        self.abandoned.push((stream, code));
    }

    pub(super) fn on_bytes(&mut self, stream: StreamId, data: &[u8], shared: &ConnShared) {
        self.meet(stream, shared);
        match self.entries.get(&stream) {
            Some(entry) if entry.pipe.put(data) => self.touch(stream),
            Some(_) => {}
            None if self.deaf.remove(&stream) => self.stops.push(stream),
            None => {}
        }
    }

    pub(super) fn on_finished(&mut self, stream: StreamId, shared: &ConnShared) {
        self.meet(stream, shared);
        match self.entries.get(&stream) {
            Some(entry) => entry.pipe.end_inbound(),
            None => {
                self.deaf.remove(&stream);
            }
        }
    }

    pub(super) fn on_reset(&mut self, stream: StreamId, code: u64, shared: &ConnShared) {
        self.meet(stream, shared);
        match self.entries.contains_key(&stream) {
            true => self.resets.push((stream, code)),
            false => {
                self.deaf.remove(&stream);
            }
        }
    }

    pub(super) fn on_delivered(&self, stream: StreamId) {
        if let Some(entry) = self.entries.get(&stream) {
            entry.pipe.set_delivered();
        }
    }

    pub(super) fn on_sent(&self, stream: StreamId, bytes: usize) {
        if let Some(entry) = self.entries.get(&stream) {
            entry.pipe.sent(bytes);
        }
    }

    /// Makes an entry for a stream that the peer has opened, when there is news
    /// of it for the first time.
    fn meet(&mut self, stream: StreamId, shared: &ConnShared) {
        let is_peers = stream.is_server_initiated() != self.is_server;
        let index = stream.0 >> KIND_BITS;
        if !is_peers || stream.is_unidirectional() {
            return;
        }
        if index >= self.next {
            self.unseen.extend(self.next..index);
            self.next = index + 1;
        } else if !self.unseen.remove(&index) {
            return;
        }
        if self.is_server && stream == FIRST {
            return shared.change(|state| {
                let first = state.first.take();
                state.incoming.extend(first);
            });
        }
        if shared.lock().incoming.len() >= self.settings.streams {
            return self.unwanted.push(stream);
        }
        let pipe = self.insert(stream, false);
        shared.change(|state| state.incoming.push_back(pipe));
    }

    /// Does everything that has become possible.
    pub(super) fn run(&mut self, net: &mut Net, conn: ConnId, shared: &ConnShared) {
        for stream in self.unwanted.drain(..) {
            net.conn(conn).reset_stream(stream, NO_ROOM);
            net.conn(conn).stop_stream(stream, NO_ROOM);
        }
        for (stream, code) in core::mem::take(&mut self.resets) {
            self.run_reset(net, conn, stream, code, shared);
        }
        for (stream, code) in core::mem::take(&mut self.abandoned) {
            if let Some(entry) = self.entries.get(&stream) {
                net.conn(conn).reset_stream(stream, code);
                end_reading(net, conn, stream, code);
                entry.pipe.fail_outbound(Error::ClosedHere);
                entry.pipe.fail_inbound(Error::ClosedHere);
            }
        }
        for stream in core::mem::take(&mut self.touched) {
            if let Some(entry) = self.entries.get_mut(&stream) {
                entry.touched = false;
                serve(&entry.pipe, net, conn);
            }
        }
        for stream in core::mem::take(&mut self.released) {
            self.run_release(net, conn, stream);
        }
        for stream in self.stops.drain(..) {
            end_reading(net, conn, stream, NOT_WANTED);
        }
    }

    /// The application has dropped a stream: what was written leaves, and its end.
    /// The peer is asked to stop when it has sent something that was not read, as
    /// with TCP: until then the stream is one of those that it may have open.
    fn run_release(&mut self, net: &mut Net, conn: ConnId, stream: StreamId) {
        let Some(Entry { pipe, .. }) = self.entries.remove(&stream) else {
            return;
        };
        pipe.finish(&|| {});
        serve(&pipe, net, conn);
        let (is_open, is_empty) = {
            let inbound = &pipe.lock().inbound;
            (inbound.is_open(), inbound.is_empty())
        };
        match (is_open, is_empty) {
            (true, true) => {
                self.deaf.insert(stream);
            }
            (true, false) => self.stops.push(stream),
            (false, _) => {}
        }
    }

    /// The peer abandoned a stream: the transport knows in which direction.
    fn run_reset(
        &mut self,
        net: &mut Net,
        conn: ConnId,
        stream: StreamId,
        code: u64,
        shared: &ConnShared,
    ) {
        let Some(entry) = self.entries.get(&stream) else {
            return;
        };
        let (receives, sends) = net.conn(conn).stream_sides(stream);
        // Who reads that it is reset finds that it takes nothing.
        if !sends {
            entry.pipe.fail_outbound(Error::Stopped { code });
        }
        if !receives {
            entry.pipe.fail_inbound(Error::Reset { code });
        }
        // It makes room for another: what is not accepted must not add up.
        if !sends && entry.pipe.lock().inbound.has_failed() {
            let mut state = shared.lock();
            let before = state.incoming.len();
            state.incoming.retain(|pipe| pipe.id != stream);
            if state.incoming.len() < before {
                self.entries.remove(&stream);
            }
        }
    }

    /// Nothing more happens on any of them, for this reason.
    pub(super) fn fail(&self, error: &Error) {
        for entry in self.entries.values() {
            // Who reads that it is over finds that it takes nothing.
            entry.pipe.fail_outbound(error.clone());
            entry.pipe.fail_inbound(error.clone());
        }
    }
}

/// Passes on what a pipe holds: bytes, the end, and whether the peer is to wait.
fn serve(pipe: &Pipe, net: &mut Net, conn: ConnId) {
    let stream = pipe.id;
    pipe.serve(|state| {
        state.asked = false;
        let holds = state.holds();
        let outbound = &mut state.outbound;
        if outbound.take_announcement() {
            net.conn(conn).announce_stream(stream);
        }
        let given = outbound.bytes.len();
        if given > 0 {
            let left = net.send(conn, stream, &mut outbound.bytes);
            outbound.waiting += given.saturating_sub(left);
        }
        if outbound.take_end() {
            net.conn(conn).finish_stream(stream);
        }
        if core::mem::replace(&mut state.inbound.paused, holds) != holds {
            net.conn(conn).pause_stream(stream, holds);
        }
    });
}

/// What arrives is not wanted any more; what has arrived is dropped.
fn end_reading(net: &mut Net, conn: ConnId, stream: StreamId, code: u64) {
    net.conn(conn).stop_stream(stream, code);
    net.conn(conn).pause_stream(stream, false);
}

#[cfg(test)]
mod tests {
    use core::task::Waker;
    use std::sync::Mutex;
    use std::task::Wake;

    use super::*;
    use crate::limits::Limits;

    /// A task that writes as soon as it is woken.
    struct Writer {
        pipe: Arc<Pipe>,
        written: Mutex<Option<Result<usize, Error>>>,
    }

    impl Wake for Writer {
        fn wake(self: Arc<Self>) {
            let written = self.pipe.write(b"x", &|| {});
            *self.written.lock().expect("whole") = Some(written);
        }
    }

    #[test]
    fn who_reads_that_the_connection_is_over_finds_that_it_takes_nothing() {
        let mut streams = Streams::new(Settings::of(&Limits::default()), false);
        let pipe = streams.opened(FIRST);
        let writer = Arc::new(Writer {
            pipe: Arc::clone(&pipe),
            written: Mutex::default(),
        });
        let waker = Waker::from(Arc::clone(&writer));
        let read = pipe.poll_read(&mut [0], &waker, &|| {});
        assert!(read.is_pending());
        streams.fail(&Error::IdleTimeout);
        let written = writer.written.lock().expect("whole").take();
        assert!(matches!(written, Some(Err(Error::IdleTimeout))));
    }
}
