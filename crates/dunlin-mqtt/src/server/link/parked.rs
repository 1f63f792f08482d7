//! What a client sends on before its CONNACK: it waits, in order, until the
//! CONNECT is decided.

use alloc::boxed::Box;
use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_base::StreamId;

/// Bytes kept of a client that sends on before its CONNACK. Reading is paused
/// meanwhile, so this bounds what one read brought.
pub const PARKED_BYTES_MAX: usize = 512 * 1024;

/// Datagrams kept of such a client; a later one replaces the first.
const DATAGRAMS_MAX: usize = 16;

/// What waits for CONNACK. Without anything it owns no memory.
#[derive(Debug, Default)]
pub struct Parked(Option<Box<ParkedBytes>>);

/// What waited for CONNACK.
#[derive(Debug, Default)]
pub struct ParkedBytes {
    /// By stream, in the order of their first bytes.
    pub streams: Vec<(StreamId, Vec<u8>)>,
    /// Streams that the client has ended, or reset with this code.
    pub ends: Vec<(StreamId, Option<u64>)>,
    /// Datagrams, oldest first.
    pub datagrams: Vec<Bytes>,
}

impl Parked {
    /// Whether bytes wait.
    #[must_use]
    pub fn has_bytes(&self) -> bool {
        self.0.as_ref().is_some_and(|all| !all.streams.is_empty())
    }

    /// Bytes of streams that wait.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let streams = self.0.iter().flat_map(|all| &all.streams);
        streams.map(|(_, bytes)| bytes.len()).sum()
    }

    /// Keeps bytes of a stream; `false` if they are too many, or if more than
    /// `streams_max` streams wait already.
    pub fn push(&mut self, stream: StreamId, data: &[u8], streams_max: usize) -> bool {
        self.hold(stream, data, streams_max, PARKED_BYTES_MAX)
    }

    /// As [`Parked::push`], where not more than `bytes_max` may wait.
    pub fn hold(
        &mut self,
        stream: StreamId,
        data: &[u8],
        streams_max: usize,
        bytes_max: usize,
    ) -> bool {
        let parked = self.bytes();
        let all = self.0.get_or_insert_default();
        if parked + data.len() > bytes_max || all.streams.len() > streams_max {
            return false;
        }
        match all.streams.iter_mut().find(|(id, _)| *id == stream) {
            Some((_, bytes)) => bytes.extend_from_slice(data),
            None => all.streams.push((stream, data.to_vec())),
        }
        true
    }

    /// Notes the end of a stream, if bytes of it wait: it comes after them.
    pub fn end(&mut self, stream: StreamId, code: Option<u64>) -> bool {
        let Some(all) = &mut self.0 else {
            return false;
        };
        if !all.streams.iter().any(|(id, _)| *id == stream) {
            return false;
        }
        all.ends.retain(|(id, _)| *id != stream);
        all.ends.push((stream, code));
        true
    }

    /// Keeps a datagram; `false` if an earlier one was dropped for it.
    pub fn push_datagram(&mut self, data: &[u8]) -> bool {
        let datagrams = &mut self.0.get_or_insert_default().datagrams;
        let full = datagrams.len() >= DATAGRAMS_MAX;
        if full {
            datagrams.remove(0);
        }
        datagrams.push(Bytes::copy_from_slice(data));
        !full
    }

    /// Everything that waits.
    pub fn take(&mut self) -> ParkedBytes {
        self.0.take().map(|all| *all).unwrap_or_default()
    }
}
