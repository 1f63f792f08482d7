//! All streams of a connection, and its flow control (RFC 9000 section 4). Has
//! the limits; the streams and their buffers are in the caller's memory.

use crate::error::Error;
use crate::memory::{Memory, Slot};
use crate::params::Params;
use crate::recovery::{Recovery, Sent, what};
use crate::stream::Stream;
use crate::wire::{Reader, Writer};

/// Bytes in one direction after which a connection ends, so that no offset
/// wraps around. What is left is more than the buffers of any such device.
pub(super) const BYTES: u32 = 0xff00_0000;

/// A stream: its number among those that this side opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamId(pub(crate) u32);

impl StreamId {
    /// The stream that was opened as the `number`th, from zero on. Calls refuse
    /// the id of a stream that does not exist.
    #[must_use]
    pub const fn nth(number: u32) -> Self {
        Self(number)
    }

    /// The id on the wire.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0 << 2
    }
}

/// Limits of the connection and its streams.
pub(crate) struct Streams {
    /// Bytes that this side may send in all, and has sent.
    pub(super) credit: u32,
    pub(super) used: u32,
    /// Bytes that the server may send in all, has sent, and that were read.
    window: u32,
    arrived: u32,
    pub(super) consumed: u32,
    /// Streams that the server allows, and that were opened.
    pub(super) max: u32,
    next: u32,
    /// Whether the server must learn the window.
    pub(super) widened: bool,
}

impl Streams {
    /// Nothing allowed.
    pub(super) const NEW: Self = Self {
        credit: 0,
        used: 0,
        window: 0,
        arrived: 0,
        consumed: 0,
        max: 0,
        next: 0,
        widened: false,
    };

    /// Begins with free slots. Gives the window of the connection and that of a
    /// stream.
    pub(super) fn begin<M: Memory>(&mut self, memory: &mut M) -> (u32, u32) {
        let parts = memory.parts();
        let count = u32::try_from(parts.streams.len()).unwrap_or(0);
        let stream = u32::try_from(parts.receive_len).unwrap_or(0);
        self.window = count * stream;
        for stream in parts.streams {
            *stream = Stream::FREE;
        }
        (self.window, stream)
    }

    /// Whether one of the byte numbers ends.
    pub(super) fn is_spent(&self) -> bool {
        // No offset of a stream is beyond these and its buffer.
        self.used.max(self.consumed) >= BYTES
    }

    /// Takes the server's limits.
    pub(super) fn allow(&mut self, peer: &Params) {
        self.credit = peer.max_data;
        self.max = peer.streams;
    }

    /// Whether the server's limits are below those of the ticket, which early
    /// data has used.
    pub(super) fn shrinks<M: Memory>(&self, memory: &mut M, peer: &Params) -> bool {
        let limits = memory.parts().streams.iter().map(|stream| stream.limit());
        let limit = limits.max().unwrap_or(0);
        peer.max_data < self.credit
            || peer.streams < self.max
            || self.next > 0 && peer.stream_data < limit
    }

    /// Opens a stream.
    pub(crate) fn open<M: Memory>(
        &mut self,
        memory: &mut M,
        recovery: &mut Recovery,
        limit: u32,
    ) -> Result<StreamId, Error> {
        let number = self.next;
        let parts = memory.parts();
        let window = u32::try_from(parts.receive_len).unwrap_or(0);
        let mut slots = parts.streams.iter_mut().enumerate();
        let free = slots.find(|(_, stream)| stream.is_free());
        let free = free.filter(|_| number < self.max);
        let (index, slot) = free.ok_or(Error::NoStreamLeft)?;
        *slot = Stream::open(number, limit, window);
        recovery.release(index.to_le_bytes()[0]);
        self.next += 1;
        Ok(StreamId(number))
    }

    /// The stream that a frame is for; none if it is over.
    pub(super) fn of<'m, M: Memory>(
        &self,
        memory: &'m mut M,
        id: u32,
    ) -> Result<Option<Slot<'m>>, Error> {
        match id & 3 {
            0 if id >> 2 < self.next => Ok(find(memory, StreamId(id >> 2))),
            0 | 2 => Err(Error::StreamState),
            // The server was allowed none.
            _ => Err(Error::StreamLimit),
        }
    }

    /// A STREAM frame.
    pub(super) fn receive<M: Memory>(
        &mut self,
        memory: &mut M,
        kind: u32,
        frame: &mut Reader<'_>,
    ) -> Result<(), Error> {
        let mut number = || frame.varint().ok_or(Error::FrameEncoding);
        let id = number()?;
        let offset = if kind & 4 != 0 { number()? } else { 0 };
        let data = if kind & 2 != 0 {
            frame.varvec().ok_or(Error::FrameEncoding)?
        } else {
            core::mem::replace(frame, Reader(&[])).0
        };
        if let Some(slot) = self.of(memory, id)? {
            let fin = kind & 1 != 0;
            let fresh = slot.state.receive(slot.receive, offset, data, fin)?;
            self.arrive(fresh)?;
        }
        Ok(())
    }

    /// Counts bytes against the window of the connection.
    fn arrive(&mut self, fresh: u32) -> Result<(), Error> {
        self.arrived = self.arrived.saturating_add(fresh);
        if self.arrived > self.window {
            return Err(Error::ConnectionFlowControl);
        }
        Ok(())
    }

    /// RESET_STREAM.
    pub(super) fn cut<M: Memory>(
        &mut self,
        memory: &mut M,
        id: u32,
        code: u32,
        size: u32,
    ) -> Result<(), Error> {
        let Some(slot) = self.of(memory, id)? else {
            return Ok(());
        };
        let (fresh, gone) = slot.state.cut(code, size)?;
        self.arrive(fresh)?;
        self.read(memory, gone);
        Ok(())
    }

    /// Counts bytes of the connection's window that were read.
    pub(crate) fn read<M: Memory>(&mut self, memory: &mut M, n: u32) {
        self.consumed = self.consumed.saturating_add(n);
        self.widen(memory, 2);
    }

    /// Tells the server of a window that grew by one part in `parts` of its
    /// size, or at all.
    pub(super) fn widen<M: Memory>(&mut self, memory: &mut M, parts: u32) {
        let size = memory.parts().receive.len();
        let size = u32::try_from(size).unwrap_or(0);
        let window = self.consumed.saturating_add(size);
        if window - self.window > size.checked_div(parts).unwrap_or(0) {
            self.window = window;
            self.widened = true;
        }
    }

    /// Sends all data of the streams again, from the begin.
    pub(super) fn restart<M: Memory>(&mut self, memory: &mut M, limit: u32) {
        self.used = 0;
        for stream in memory.parts().streams {
            stream.restart(limit);
        }
    }

    /// Writes MAX_DATA if it is due. Gives the bits of what was written.
    pub(super) fn write_window(&mut self, writer: &mut Writer<'_>) -> u8 {
        if !core::mem::take(&mut self.widened) {
            return 0;
        }
        writer.u8(0x10);
        writer.varint(self.window);
        what::MAX_DATA
    }

    /// Writes frames of one stream, a different one first in each packet.
    pub(super) fn write<M: Memory>(
        &mut self,
        memory: &mut M,
        recovery: &Recovery,
        writer: &mut Writer<'_>,
        sent: &mut Sent,
    ) {
        let count = memory.parts().streams.len();
        for i in 0..count {
            let turn = (sent.pn as usize).wrapping_add(i);
            let index = turn.checked_rem(count).unwrap_or(0);
            let slot = index.to_le_bytes()[0];
            let idle = !recovery.carries(slot);
            if let Some(stream) = memory.parts().slot(index)
                && self.write_one(stream, idle, writer, sent)
            {
                sent.stream = slot;
                return;
            }
        }
    }

    fn write_one(
        &mut self,
        slot: Slot<'_>,
        idle: bool,
        writer: &mut Writer<'_>,
        sent: &mut Sent,
    ) -> bool {
        let credit = self.credit.saturating_sub(self.used);
        let stream = slot.state;
        if stream.number >= self.max {
            // A server that refused the early data need not allow as many
            // streams as the ticket did: this one waits for MAX_STREAMS.
            return false;
        }
        let id = stream.number << 2;
        if idle {
            stream.rewind();
        }
        let pending = core::mem::take(&mut stream.pending);
        if pending & what::MAX_STREAM_DATA != 0 {
            writer.u8(0x11);
            writer.varint(id);
            writer.varint(stream.window());
        }
        if pending & what::RESET != 0 {
            writer.u8(0x04);
            writer.varint(id);
            writer.varint(stream.code);
            writer.varint(stream.high);
        }
        if pending & what::STOP != 0 {
            writer.u8(0x05);
            writer.varint(id);
            writer.varint(stream.code);
        }
        sent.what |= pending;
        // Type, id, offset and length.
        let room = u32::try_from(writer.room().saturating_sub(1 + 8 + 8 + 2)).unwrap_or(0);
        if let Some((offset, len, fin)) = stream.stretch(credit, room)
            && room > 0
        {
            writer.u8(0x0e | u8::from(fin));
            writer.varint(id);
            writer.varint(offset);
            writer.varint(len);
            writer.put(stream.bytes(slot.send, offset, len));
            self.used += stream.sent(offset, len, fin);
            sent.what |= what::DATA;
            if fin {
                sent.what |= what::FIN;
            }
            sent.offset = offset;
            sent.len = u16::try_from(len).unwrap_or(0);
            return true;
        }
        pending != 0
    }
}

/// The stream with this number, if it is not over.
pub(crate) fn find<M: Memory>(memory: &mut M, id: StreamId) -> Option<Slot<'_>> {
    let parts = memory.parts();
    let index = parts.streams.iter().position(|stream| stream.is(id.0))?;
    parts.slot(index)
}
