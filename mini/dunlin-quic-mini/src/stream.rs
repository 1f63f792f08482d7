//! One stream with its two directions. Data that was sent stays in the buffer
//! until it is acknowledged; after a loss the stream goes back to what was
//! lost. Knows no frame and no packet.

use crate::assemble::{Assembler, Refused};
use crate::error::Error;
use crate::recovery::{Sent, what};
use crate::wire::{fill, shift};

/// The end of a stream that is not known yet.
const UNKNOWN: u32 = u32::MAX;

/// States of a stream that are either so or not.
mod flag {
    /// The slot has a stream.
    pub(super) const OPEN: u8 = 1;
    /// The application has written all.
    pub(super) const FIN: u8 = 2;
    /// All was acknowledged, or the reset was.
    pub(super) const SENT: u8 = 4;
    /// This side has reset its direction.
    pub(super) const RESET: u8 = 8;
    /// The server has reset its direction.
    pub(super) const CUT: u8 = 16;
    /// The application has seen the end of the server's direction.
    pub(super) const READ: u8 = 32;
}

/// The state of a stream, without its buffers.
///
/// Sequence numbers of the sending side count bytes, and one more for the end.
#[derive(Clone, Copy, Default)]
pub struct Stream {
    /// The stream's number among those of its kind; the id divided by four.
    pub(crate) number: u32,
    /// First byte that is not acknowledged, the first in the buffer.
    una: u32,
    /// Next byte to send.
    next: u32,
    /// One after the last byte that was written.
    end: u32,
    /// One after the last byte that was sent.
    pub(crate) high: u32,
    /// What the server allows.
    limit: u32,
    /// Bytes beyond `una` that are acknowledged already.
    ahead: (u32, u32),
    /// What the application may still receive.
    input: Assembler,
    /// What the server was allowed.
    window: u32,
    /// One after the last byte that arrived.
    arrived: u32,
    last: u32,
    /// Error code of the application, when it reset or stopped the stream.
    pub(crate) code: u32,
    flags: u8,
    /// Control frames to send, bits of [`what`].
    pub(crate) pending: u8,
}

impl core::fmt::Debug for Stream {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Stream")
    }
}

impl Stream {
    /// A slot without a stream. All zero, so that buffers need no flash.
    pub(crate) const FREE: Self = Self {
        number: 0,
        una: 0,
        next: 0,
        end: 0,
        high: 0,
        limit: 0,
        ahead: (0, 0),
        input: Assembler::NEW,
        window: 0,
        arrived: 0,
        last: 0,
        code: 0,
        flags: 0,
        pending: 0,
    };

    pub(crate) const fn open(number: u32, limit: u32, window: u32) -> Self {
        let mut stream = Self::FREE;
        stream.number = number;
        stream.limit = limit;
        stream.window = window;
        stream.last = UNKNOWN;
        stream.flags = flag::OPEN;
        stream
    }

    const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Whether nothing more can happen on it, or nothing ever did.
    pub(crate) const fn is_free(&self) -> bool {
        let over = flag::SENT | flag::READ;
        !self.has(flag::OPEN) || self.flags & over == over
    }

    /// Whether this is the stream in the slot.
    pub(crate) const fn is(&self, number: u32) -> bool {
        self.has(flag::OPEN) && self.number == number
    }

    /// Whether all that was written is acknowledged.
    pub(crate) const fn is_flushed(&self) -> bool {
        self.una >= self.all()
    }

    /// What the server allows to send.
    pub(crate) const fn limit(&self) -> u32 {
        self.limit
    }

    /// One after everything that must be acknowledged.
    const fn all(&self) -> u32 {
        self.end.wrapping_add(self.has(flag::FIN) as u32)
    }

    pub(crate) fn raise(&mut self, limit: u32) {
        self.limit = self.limit.max(limit);
    }

    /// Bytes that are not acknowledged yet.
    pub(crate) const fn buffered(&self) -> usize {
        self.end.saturating_sub(self.una) as usize
    }

    /// Takes as much of `data` as fits.
    pub(crate) fn write(&mut self, buf: &mut [u8], data: &[u8]) -> Result<usize, Error> {
        if self.flags & (flag::FIN | flag::RESET) != 0 {
            return Err(Error::State);
        }
        let n = fill(buf.get_mut(self.buffered()..).unwrap_or_default(), data);
        self.end += u32::try_from(n).unwrap_or(0);
        Ok(n)
    }

    pub(crate) const fn finish(&mut self) {
        self.flags |= flag::FIN;
    }

    /// Gives up sending.
    pub(crate) const fn reset(&mut self, code: u32) {
        if !self.has(flag::SENT) && !self.has(flag::RESET) {
            self.flags |= flag::RESET;
            self.code = code;
            self.pending |= what::RESET;
        }
    }

    /// The next stretch to send: offset, length and whether it ends the
    /// stream. `credit` are new bytes that the connection allows.
    pub(crate) fn stretch(&mut self, credit: u32, room: u32) -> Option<(u32, u32, bool)> {
        let (start, end) = self.ahead;
        if self.next >= start && self.next < end {
            self.next = end;
        }
        if !self.has(flag::OPEN) || self.flags & (flag::RESET | flag::SENT) != 0 {
            return None;
        }
        let mut to = self
            .end
            .min(self.limit)
            .min(self.high.saturating_add(credit));
        if start < end && self.next < start {
            to = to.min(start);
        }
        let len = to.saturating_sub(self.next).min(room);
        let fin = self.has(flag::FIN) && self.next <= self.end && self.next + len == self.end;
        (len > 0 || fin).then_some((self.next, len, fin))
    }

    /// The bytes of a stretch.
    pub(crate) fn bytes<'b>(&self, buf: &'b [u8], offset: u32, len: u32) -> &'b [u8] {
        let from = offset.wrapping_sub(self.una) as usize;
        let bytes = buf.get(from..).and_then(|buf| buf.get(..len as usize));
        bytes.unwrap_or_default()
    }

    /// Notes that a stretch was sent. Gives how many of its bytes are new.
    pub(crate) fn sent(&mut self, offset: u32, len: u32, fin: bool) -> u32 {
        let to = offset + len;
        self.next = to + u32::from(fin);
        let fresh = to.saturating_sub(self.high);
        self.high = self.high.max(to);
        fresh
    }

    /// A packet with a part of this stream was acknowledged.
    #[inline(never)]
    pub(crate) fn acked(&mut self, buf: &mut [u8], packet: &Sent) {
        if packet.what & what::RESET != 0 {
            self.flags |= flag::SENT;
        }
        if packet.what & what::DATA == 0 {
            return;
        }
        let fin = u32::from(packet.what & what::FIN != 0);
        let from = packet.offset;
        let to = from + u32::from(packet.len) + fin;
        if from > self.una {
            // One stretch is remembered; others are sent again if need be.
            let (start, end) = self.ahead;
            if start >= end {
                self.ahead = (from, to);
            } else if from <= end && to >= start {
                self.ahead = (start.min(from), end.max(to));
            }
            return;
        }
        let mut una = self.una.max(to);
        if self.ahead.0 <= una {
            una = una.max(self.ahead.1);
            self.ahead = (0, 0);
        }
        let gone = una.min(self.end).saturating_sub(self.una.min(self.end)) as usize;
        shift(buf, gone);
        self.una = una;
        self.next = self.next.max(una);
        if self.has(flag::FIN) && una >= self.all() {
            self.flags |= flag::SENT;
        }
    }

    /// A packet was lost, or is repeated as a probe.
    pub(crate) fn lost(&mut self, packet: &Sent) {
        self.pending |= packet.what & (what::RESET | what::STOP | what::MAX_STREAM_DATA);
        if packet.what & what::DATA != 0 {
            self.next = self.next.min(packet.offset).max(self.una);
        }
    }

    /// Nothing of it is in flight: all that is not acknowledged goes again.
    pub(crate) fn rewind(&mut self) {
        self.next = self.una;
    }

    /// The server does not have the early data: all begins again.
    pub(crate) fn restart(&mut self, limit: u32) {
        self.rewind();
        self.high = 0;
        self.limit = limit;
        if self.has(flag::RESET) {
            self.pending |= what::RESET;
        }
    }

    /// Data arrived. Gives how many bytes count against the connection's
    /// window.
    #[inline(never)]
    pub(crate) fn receive(
        &mut self,
        buf: &mut [u8],
        offset: u32,
        data: &[u8],
        fin: bool,
    ) -> Result<u32, Error> {
        let len = u32::try_from(data.len()).map_err(|_| Error::StreamFlowControl)?;
        let to = offset.checked_add(len).ok_or(Error::StreamFlowControl)?;
        self.end_at(to, fin)?;
        if to > self.window {
            return Err(Error::StreamFlowControl);
        }
        if self.flags & (flag::CUT | flag::READ) == 0 {
            self.input
                .insert(buf, offset, data)
                .map_err(|refused| match refused {
                    Refused::Beyond => Error::StreamFlowControl,
                    Refused::Gaps => Error::Again,
                })?;
        }
        if fin {
            self.last = to;
        }
        let fresh = to.saturating_sub(self.arrived);
        self.arrived = self.arrived.max(to);
        Ok(fresh)
    }

    /// Checks an end against what is known of it (RFC 9000 section 4.5).
    const fn end_at(&self, to: u32, fin: bool) -> Result<(), Error> {
        let wrong = if self.last == UNKNOWN {
            fin && to < self.arrived
        } else {
            to > self.last || fin && to != self.last
        };
        if wrong { Err(Error::FinalSize) } else { Ok(()) }
    }

    /// The server reset its direction. Gives what counts against the window
    /// of the connection: bytes that will not come any more are consumed.
    pub(crate) fn cut(&mut self, code: u32, size: u32) -> Result<(u32, u32), Error> {
        self.end_at(size, true)?;
        if size > self.window {
            return Err(Error::StreamFlowControl);
        }
        if self.flags & (flag::CUT | flag::READ) != 0 {
            return Ok((0, 0));
        }
        let fresh = size.saturating_sub(self.arrived);
        self.arrived = size;
        self.last = size;
        self.flags |= flag::CUT;
        self.code = code;
        Ok((fresh, size.saturating_sub(self.input.base())))
    }

    /// What can be read, and whether the end is behind it.
    pub(crate) fn readable<'b>(&mut self, buf: &'b [u8]) -> Result<(&'b [u8], bool), Error> {
        if self.has(flag::CUT) {
            self.flags |= flag::READ;
            return Err(Error::StreamReset);
        }
        let fin = self.input.have() == self.last;
        if fin && self.input.ready() == 0 {
            self.flags |= flag::READ;
        }
        Ok((buf.get(..self.input.ready()).unwrap_or_default(), fin))
    }

    /// Removes what was read. Gives how many bytes that were.
    pub(crate) fn consume(&mut self, buf: &mut [u8], n: usize) -> u32 {
        if self.has(flag::CUT) {
            return 0;
        }
        let before = self.input.base();
        self.input.consume(buf, n);
        self.widen(buf.len(), 2);
        if self.input.base() == self.last {
            self.flags |= flag::READ;
        }
        self.input.base() - before
    }

    /// Tells the server of a window that grew by one part in `parts` of its
    /// size, or at all.
    pub(crate) fn widen(&mut self, size: usize, parts: u32) {
        let size = u32::try_from(size).unwrap_or(0);
        let window = self.input.base().saturating_add(size);
        let least = size.checked_div(parts).unwrap_or(0);
        if self.last == UNKNOWN && window - self.window > least {
            self.window = window;
            self.pending |= what::MAX_STREAM_DATA;
        }
    }

    /// Asks the server to stop, unless its direction is over.
    pub(crate) const fn stop(&mut self) {
        if self.last == UNKNOWN {
            self.pending |= what::STOP;
        }
    }

    /// The window to tell the server.
    pub(crate) const fn window(&self) -> u32 {
        self.window
    }
}
