//! One stream as application and driver share it: bytes that have arrived and
//! are to leave, both bounded, and how either direction ended. Knows no socket.

use core::task::{Poll, Waker};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};

use dunlin_base::{SendBuf, StreamId};

use crate::error::Error;
use crate::wait::{Patience, Waiters, block, lock};

/// Bytes of a stream that are read before the application has accepted it.
const UNTAKEN_BYTES_MAX: usize = 16 << 10;

/// Memory of a buffer that is kept while it is empty.
const IDLE_BYTES_MAX: usize = 16 << 10;

/// One stream.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) id: StreamId,
    state: Mutex<PipeState>,
    /// Something has arrived, or nothing more will.
    arrived: Condvar,
    /// There is room, or there will be none; what was sent has arrived.
    left: Condvar,
}

/// What is shared of a stream.
#[derive(Debug)]
pub(crate) struct PipeState {
    pub(crate) inbound: Inbound,
    pub(crate) outbound: Outbound,
    /// The driver is asked to look at it, and has not yet.
    pub(crate) asked: bool,
    /// The application has it.
    pub(crate) taken: bool,
    /// How long reads and writes may wait.
    pub(crate) read_patience: Patience,
    pub(crate) write_patience: Patience,
}

/// What has arrived.
#[derive(Debug)]
pub(crate) struct Inbound {
    bytes: VecDeque<u8>,
    end: InboundEnd,
    /// Bytes beyond which the peer has to wait.
    limit: usize,
    /// The driver does not read the stream.
    pub(crate) paused: bool,
    waiters: Waiters,
}

/// How what arrives ended.
#[derive(Debug)]
enum InboundEnd {
    Open,
    /// The peer has ended its side.
    Finished,
    /// The application wants no more.
    ShutDown,
    Failed(Error),
}

/// What is to leave.
#[derive(Debug)]
pub(crate) struct Outbound {
    pub(crate) bytes: SendBuf,
    /// Bytes given to the transport that have not left.
    pub(crate) waiting: usize,
    end: OutboundEnd,
    /// Bytes in both beyond which a writer has to wait.
    limit: usize,
    opening: Opening,
    waiters: Waiters,
}

/// How what leaves ended.
#[derive(Debug)]
enum OutboundEnd {
    Open,
    /// What is here is the last.
    Due,
    /// The end was passed on.
    Passed,
    /// The peer's transport has everything.
    Delivered,
    Failed(Error),
}

/// Whether the peer can know of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opening {
    /// This side opened it and has not sent anything.
    Silent,
    /// The application waits for the peer to speak first.
    Due,
    Known,
}

/// Bounds of a pipe, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) receive: usize,
    pub(crate) send: usize,
}

impl Pipe {
    /// `is_ours`: this side opened the stream.
    pub(crate) fn new(id: StreamId, bounds: Bounds, is_ours: bool) -> Self {
        let opening = if is_ours {
            Opening::Silent
        } else {
            Opening::Known
        };
        let state = PipeState {
            inbound: Inbound {
                bytes: VecDeque::new(),
                end: InboundEnd::Open,
                limit: bounds.receive.max(1),
                paused: false,
                waiters: Waiters::default(),
            },
            outbound: Outbound {
                bytes: SendBuf::new(),
                waiting: 0,
                end: OutboundEnd::Open,
                limit: bounds.send.max(1),
                opening,
                waiters: Waiters::default(),
            },
            asked: false,
            taken: is_ours,
            read_patience: Patience::default(),
            write_patience: Patience::default(),
        };
        Self {
            id,
            state: Mutex::new(state),
            arrived: Condvar::new(),
            left: Condvar::new(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, PipeState> {
        lock(&self.state)
    }

    // The application's side. Where the answer says so, the driver is to look.

    /// Reads what is there, or waits for it. `touch` asks the driver to look.
    pub(crate) fn read(
        &self,
        into: &mut [u8],
        keep: bool,
        touch: &dyn Fn(),
    ) -> Result<usize, Error> {
        let patience = self.lock().read_patience;
        block(
            &self.state,
            &self.arrived,
            patience,
            |state| &mut state.inbound.waiters,
            |state| state.read(into, keep, touch),
        )
    }

    pub(crate) fn poll_read(
        &self,
        into: &mut [u8],
        task: &Waker,
        touch: &dyn Fn(),
    ) -> Poll<Result<usize, Error>> {
        let mut state = self.lock();
        match state.read(into, false, touch) {
            Some(result) => Poll::Ready(result),
            None => {
                state.inbound.waiters.register(task);
                Poll::Pending
            }
        }
    }

    /// Writes what fits, or waits until something does.
    pub(crate) fn write(&self, bytes: &[u8], touch: &dyn Fn()) -> Result<usize, Error> {
        let patience = self.lock().write_patience;
        block(
            &self.state,
            &self.left,
            patience,
            |state| &mut state.outbound.waiters,
            |state| state.write(bytes, touch),
        )
    }

    pub(crate) fn poll_write(
        &self,
        bytes: &[u8],
        task: &Waker,
        touch: &dyn Fn(),
    ) -> Poll<Result<usize, Error>> {
        let mut state = self.lock();
        match state.write(bytes, touch) {
            Some(result) => Poll::Ready(result),
            None => {
                state.outbound.waiters.register(task);
                Poll::Pending
            }
        }
    }

    /// Ends what leaves, after what was written.
    pub(crate) fn finish(&self, touch: &dyn Fn()) {
        let mut state = self.lock();
        if matches!(state.outbound.end, OutboundEnd::Open) {
            state.outbound.end = OutboundEnd::Due;
            state.ask(touch);
        }
    }

    /// Waits until the peer's transport has everything.
    pub(crate) fn wait_delivered(&self) -> Result<(), Error> {
        let patience = self.lock().write_patience;
        block(
            &self.state,
            &self.left,
            patience,
            |state| &mut state.outbound.waiters,
            |state| state.outbound.delivered(),
        )
    }

    pub(crate) fn poll_delivered(&self, task: &Waker) -> Poll<Result<(), Error>> {
        let mut state = self.lock();
        match state.outbound.delivered() {
            Some(result) => Poll::Ready(result),
            None => {
                state.outbound.waiters.register(task);
                Poll::Pending
            }
        }
    }

    /// Wants nothing more of what arrives; it is dropped.
    pub(crate) fn shut_down_reading(&self, touch: &dyn Fn()) {
        let mut state = self.lock();
        let inbound = &mut state.inbound;
        inbound.bytes = VecDeque::new();
        if matches!(inbound.end, InboundEnd::Open) {
            inbound.end = InboundEnd::ShutDown;
        }
        let woken = inbound.waiters.take();
        // The peer may send what is dropped.
        let _ = state.outbound.announce();
        state.ask(touch);
        drop(state);
        woken.wake(&self.arrived);
    }

    // The driver's side.

    /// Bytes arrived. Tells whether the peer is to wait from now on.
    pub(crate) fn put(&self, data: &[u8]) -> bool {
        let mut state = self.lock();
        let inbound = &mut state.inbound;
        if !matches!(inbound.end, InboundEnd::ShutDown) {
            inbound.bytes.extend(data);
        }
        let woken = inbound.waiters.take();
        let holds = state.holds() && !state.inbound.paused;
        drop(state);
        woken.wake(&self.arrived);
        holds
    }

    /// The peer has ended its side.
    pub(crate) fn end_inbound(&self) {
        self.close_inbound(InboundEnd::Finished);
    }

    /// Nothing more arrives, for this reason.
    pub(crate) fn fail_inbound(&self, error: Error) {
        self.close_inbound(InboundEnd::Failed(error));
    }

    fn close_inbound(&self, end: InboundEnd) {
        let mut state = self.lock();
        let inbound = &mut state.inbound;
        if matches!(inbound.end, InboundEnd::Open) {
            inbound.end = end;
        }
        let woken = inbound.waiters.take();
        drop(state);
        woken.wake(&self.arrived);
    }

    /// Nothing more leaves, for this reason.
    pub(crate) fn fail_outbound(&self, error: Error) {
        let mut state = self.lock();
        let outbound = &mut state.outbound;
        outbound.bytes = SendBuf::new();
        outbound.waiting = 0;
        if !matches!(
            outbound.end,
            OutboundEnd::Delivered | OutboundEnd::Failed(_)
        ) {
            outbound.end = OutboundEnd::Failed(error);
        }
        let woken = outbound.waiters.take();
        drop(state);
        woken.wake(&self.left);
    }

    /// Bytes that were given to the transport have left.
    pub(crate) fn sent(&self, bytes: usize) {
        self.serve(|state| {
            let outbound = &mut state.outbound;
            outbound.waiting = outbound.waiting.saturating_sub(bytes);
        });
    }

    /// The peer's transport has everything.
    pub(crate) fn set_delivered(&self) {
        self.serve(|state| {
            let end = &mut state.outbound.end;
            if matches!(end, OutboundEnd::Passed) {
                *end = OutboundEnd::Delivered;
            }
        });
    }

    /// Changes what is shared, and wakes writers if they may go on.
    pub(crate) fn serve<R>(&self, change: impl FnOnce(&mut PipeState) -> R) -> R {
        let mut state = self.lock();
        let result = change(&mut state);
        if state.outbound.wakes() {
            let woken = state.outbound.waiters.take();
            drop(state);
            woken.wake(&self.left);
        }
        result
    }
}

impl PipeState {
    /// Whether the stream is not to be read now.
    pub(crate) fn holds(&self) -> bool {
        let untaken = !self.taken && self.inbound.bytes.len() > UNTAKEN_BYTES_MAX;
        untaken || self.inbound.is_full()
    }

    /// Has the driver look.
    pub(crate) fn ask(&mut self, touch: &dyn Fn()) {
        if !core::mem::replace(&mut self.asked, true) {
            touch();
        }
    }

    fn read(
        &mut self,
        into: &mut [u8],
        keep: bool,
        touch: &dyn Fn(),
    ) -> Option<Result<usize, Error>> {
        if into.is_empty() {
            return Some(Ok(0));
        }
        if let Some(read) = self.inbound.take(into, keep) {
            if self.inbound.paused && !self.inbound.is_full() {
                self.ask(touch);
            }
            return Some(Ok(read));
        }
        match &self.inbound.end {
            InboundEnd::Open => {
                if self.outbound.announce() {
                    self.ask(touch);
                }
                None
            }
            InboundEnd::Finished | InboundEnd::ShutDown => Some(Ok(0)),
            InboundEnd::Failed(error) => Some(Err(error.clone())),
        }
    }

    fn write(&mut self, bytes: &[u8], touch: &dyn Fn()) -> Option<Result<usize, Error>> {
        match &self.outbound.end {
            OutboundEnd::Open => {}
            OutboundEnd::Failed(error) => return Some(Err(error.clone())),
            OutboundEnd::Due | OutboundEnd::Passed | OutboundEnd::Delivered => {
                return Some(Err(Error::ShutDown));
            }
        }
        if bytes.is_empty() {
            return Some(Ok(0));
        }
        let room = self.outbound.room().min(bytes.len());
        let (now, _) = bytes
            .split_at_checked(room)
            .filter(|(now, _)| !now.is_empty())?;
        self.outbound.opening = Opening::Known;
        self.outbound.bytes.put_slice(now);
        self.ask(touch);
        Some(Ok(room))
    }
}

impl Inbound {
    /// Whether the peer has to wait: from the limit on, until half of it is read.
    pub(crate) fn is_full(&self) -> bool {
        let most = if self.paused {
            self.limit / 2
        } else {
            self.limit
        };
        self.bytes.len() > most && !matches!(self.end, InboundEnd::ShutDown)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) const fn has_failed(&self) -> bool {
        matches!(self.end, InboundEnd::Failed(_))
    }

    pub(crate) const fn is_open(&self) -> bool {
        matches!(self.end, InboundEnd::Open | InboundEnd::ShutDown)
    }

    /// Copies what is there; `None`: nothing.
    fn take(&mut self, into: &mut [u8], keep: bool) -> Option<usize> {
        let (first, second) = self.bytes.as_slices();
        let mut copied = 0;
        for part in [first, second] {
            let room = into.get_mut(copied..).unwrap_or_default();
            let count = part.len().min(room.len());
            if let (Some(to), Some(from)) = (room.get_mut(..count), part.get(..count)) {
                to.copy_from_slice(from);
                copied += count;
            }
        }
        if !keep {
            self.bytes.drain(..copied);
            if self.bytes.is_empty() && self.bytes.capacity() > IDLE_BYTES_MAX {
                self.bytes = VecDeque::new();
            }
        }
        (copied > 0).then_some(copied)
    }
}

impl Outbound {
    fn room(&self) -> usize {
        self.limit.saturating_sub(self.bytes.len() + self.waiting)
    }

    /// Writers go on when half of the limit is free, and everything else wakes them
    /// too.
    fn wakes(&self) -> bool {
        !matches!(self.end, OutboundEnd::Open) || self.room() * 2 >= self.limit
    }

    fn delivered(&self) -> Option<Result<(), Error>> {
        match &self.end {
            OutboundEnd::Delivered => Some(Ok(())),
            OutboundEnd::Failed(error) => Some(Err(error.clone())),
            _ => None,
        }
    }

    /// The application waits for what the peer says first. Tells whether the peer
    /// cannot know of the stream.
    fn announce(&mut self) -> bool {
        let silent = self.opening == Opening::Silent;
        if silent {
            self.opening = Opening::Due;
        }
        silent
    }

    /// Whether the peer is to learn of the stream, once.
    pub(crate) fn take_announcement(&mut self) -> bool {
        let due = self.opening == Opening::Due;
        if due {
            self.opening = Opening::Known;
        }
        due
    }

    /// Whether the end is to be passed on, once.
    pub(crate) fn take_end(&mut self) -> bool {
        let due = matches!(self.end, OutboundEnd::Due) && self.bytes.is_empty();
        if due {
            self.end = OutboundEnd::Passed;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    const BOUNDS: Bounds = Bounds {
        receive: 100,
        send: 10,
    };

    /// A pipe that never waits.
    fn pipe(is_ours: bool) -> Pipe {
        let pipe = Pipe::new(StreamId(0), BOUNDS, is_ours);
        let mut state = pipe.lock();
        state.taken = true;
        state.read_patience.nonblocking = true;
        state.write_patience.nonblocking = true;
        drop(state);
        pipe
    }

    #[test]
    fn a_writer_waits_for_half_of_the_buffer() {
        let pipe = pipe(true);
        assert_eq!(pipe.write(&[1; 64], &|| {}).expect("room"), 10);
        let full = pipe.write(&[1], &|| {});
        assert!(matches!(full, Err(Error::WouldBlock)));
        pipe.serve(|state| {
            state.outbound.bytes.clear();
            state.outbound.waiting = 10;
        });
        assert!(!pipe.lock().outbound.wakes());
        pipe.sent(5);
        assert!(pipe.lock().outbound.wakes());
        assert_eq!(pipe.write(&[1; 64], &|| {}).expect("room"), 5);
    }

    #[test]
    fn a_peer_waits_at_the_limit_until_half_is_read() {
        let pipe = pipe(false);
        assert!(!pipe.put(&[7; 100]));
        assert!(pipe.put(&[7; 1]));
        pipe.lock().inbound.paused = true;
        let asked = Cell::new(0);
        let touch = || asked.set(asked.get() + 1);
        let mut into = [0; 50];
        assert_eq!(pipe.read(&mut into, false, &touch).expect("read"), 50);
        assert_eq!(asked.get(), 0);
        assert_eq!(pipe.read(&mut into[..1], false, &touch).expect("read"), 1);
        assert_eq!(asked.get(), 1);
        assert!(!pipe.lock().holds());
    }

    #[test]
    fn what_arrived_is_read_before_the_end_and_before_a_failure() {
        for fails in [false, true] {
            let pipe = pipe(false);
            pipe.put(b"abc");
            match fails {
                true => pipe.fail_inbound(Error::Reset { code: 9 }),
                false => pipe.end_inbound(),
            }
            let mut into = [0; 8];
            assert_eq!(pipe.read(&mut into, true, &|| {}).expect("kept"), 3);
            assert_eq!(pipe.read(&mut into, false, &|| {}).expect("read"), 3);
            match (fails, pipe.read(&mut into, false, &|| {})) {
                (false, Ok(0)) | (true, Err(Error::Reset { code: 9 })) => {}
                other => unreachable!("{other:?}"),
            }
        }
    }

    #[test]
    fn an_end_is_passed_on_once_and_after_the_bytes() {
        let pipe = pipe(true);
        pipe.write(b"x", &|| {}).expect("room");
        pipe.finish(&|| {});
        let late = pipe.write(b"y", &|| {});
        assert!(matches!(late, Err(Error::ShutDown)));
        pipe.serve(|state| {
            assert!(!state.outbound.take_end());
            state.outbound.bytes.clear();
            assert!(state.outbound.take_end());
            assert!(!state.outbound.take_end());
        });
        assert!(matches!(pipe.wait_delivered(), Err(Error::WouldBlock)));
        pipe.set_delivered();
        pipe.wait_delivered().expect("delivered");
    }

    #[test]
    fn who_reads_first_has_the_stream_announced_once() {
        let pipe = pipe(true);
        let read = pipe.read(&mut [0], false, &|| {});
        assert!(matches!(read, Err(Error::WouldBlock)));
        assert!(pipe.lock().outbound.take_announcement());
        let _ = pipe.read(&mut [0], false, &|| {});
        assert!(!pipe.lock().outbound.take_announcement());
    }
}
