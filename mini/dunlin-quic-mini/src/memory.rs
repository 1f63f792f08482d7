//! The memory of a connection, which the caller owns and whose sizes the
//! caller chooses. Knows nothing of what is kept in it.

use crate::stream::Stream;

/// Buffers of a connection, borrowed for one step.
#[derive(Debug)]
pub struct Parts<'a> {
    /// The ClientHello, later the end of the handshake and a ticket. 400 bytes
    /// and the length of a ticket are enough.
    pub hello: &'a mut [u8],
    /// Handshake messages of the server. The longest one must fit, which is
    /// the certificate.
    pub handshake: &'a mut [u8],
    /// One entry for each stream that can be open at a time.
    pub streams: &'a mut [Stream],
    /// As many send buffers as streams, `send_len` bytes each.
    pub send: &'a mut [u8],
    /// As many receive buffers as streams, `receive_len` bytes each.
    pub receive: &'a mut [u8],
    /// Bytes that a stream may have unacknowledged; less than 8 MB.
    pub send_len: usize,
    /// Bytes that the server may send ahead on a stream; less than 8 MB for all.
    pub receive_len: usize,
}

/// Where a connection has its buffers.
pub trait Memory {
    /// All buffers; always the same ones, of the same sizes.
    fn parts(&mut self) -> Parts<'_>;
}

impl<M: Memory> Memory for &mut M {
    fn parts(&mut self) -> Parts<'_> {
        (**self).parts()
    }
}

/// Buffers as one value.
#[derive(Debug)]
pub struct Buffers<
    const STREAMS: usize = 2,
    const SEND: usize = 1024,
    const RECEIVE: usize = 1024,
    const HELLO: usize = 1024,
    const HANDSHAKE: usize = 2048,
> {
    hello: [u8; HELLO],
    handshake: [u8; HANDSHAKE],
    streams: [Stream; STREAMS],
    send: [[u8; SEND]; STREAMS],
    receive: [[u8; RECEIVE]; STREAMS],
}

impl<
    const STREAMS: usize,
    const SEND: usize,
    const RECEIVE: usize,
    const HELLO: usize,
    const HANDSHAKE: usize,
> Buffers<STREAMS, SEND, RECEIVE, HELLO, HANDSHAKE>
{
    /// Empty buffers.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            hello: [0; HELLO],
            handshake: [0; HANDSHAKE],
            streams: [Stream::FREE; STREAMS],
            send: [[0; SEND]; STREAMS],
            receive: [[0; RECEIVE]; STREAMS],
        }
    }
}

impl<
    const STREAMS: usize,
    const SEND: usize,
    const RECEIVE: usize,
    const HELLO: usize,
    const HANDSHAKE: usize,
> Default for Buffers<STREAMS, SEND, RECEIVE, HELLO, HANDSHAKE>
{
    fn default() -> Self {
        Self::new()
    }
}

impl<
    const STREAMS: usize,
    const SEND: usize,
    const RECEIVE: usize,
    const HELLO: usize,
    const HANDSHAKE: usize,
> Memory for Buffers<STREAMS, SEND, RECEIVE, HELLO, HANDSHAKE>
{
    fn parts(&mut self) -> Parts<'_> {
        Parts {
            hello: &mut self.hello,
            handshake: &mut self.handshake,
            streams: &mut self.streams,
            send: self.send.as_flattened_mut(),
            receive: self.receive.as_flattened_mut(),
            send_len: SEND,
            receive_len: RECEIVE,
        }
    }
}

/// One stream with its buffers.
pub(crate) struct Slot<'a> {
    pub(crate) state: &'a mut Stream,
    pub(crate) send: &'a mut [u8],
    pub(crate) receive: &'a mut [u8],
}

impl<'a> Parts<'a> {
    /// The stream in a slot.
    #[inline(never)]
    pub(crate) fn slot(self, index: usize) -> Option<Slot<'a>> {
        let chunk =
            |all: &'a mut [u8], len: usize| all.get_mut(index.checked_mul(len)?..)?.get_mut(..len);
        Some(Slot {
            state: self.streams.get_mut(index)?,
            send: chunk(self.send, self.send_len)?,
            receive: chunk(self.receive, self.receive_len)?,
        })
    }
}
