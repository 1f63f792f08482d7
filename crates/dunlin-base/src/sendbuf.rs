//! Bytes waiting to leave on one stream. Small frames are copied into one
//! tail, so that a batch leaves with one call; large payloads are shared. A tail that
//! is full becomes a chunk, so that no batch is copied, or mapped, while it grows.

use alloc::vec::Vec;

use bytes::Bytes;

use crate::sink::{ByteSink, SinkFull};

/// Payloads of at least this many bytes are shared instead of copied.
pub const SHARE_BYTES_MIN: usize = 4096;

/// Capacity that [`SendBuf::clear`] keeps for the next batch.
pub const KEEP_BYTES_MAX: usize = 64 * 1024;

/// Most bytes of a tail, unless one slice is larger.
pub const TAIL_BYTES_MAX: usize = 48 * 1024;

/// An ordered run of bytes made of shared chunks and a copied tail.
#[derive(Clone, Debug, Default)]
pub struct SendBuf {
    chunks: Vec<Bytes>,
    tail: Vec<u8>,
    chunk_bytes: usize,
}

impl SendBuf {
    /// An empty buffer that owns no memory.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            chunks: Vec::new(),
            tail: Vec::new(),
            chunk_bytes: 0,
        }
    }

    /// Bytes held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.chunk_bytes + self.tail.len()
    }

    /// Whether no bytes are held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends a copy of `bytes`.
    #[inline]
    pub fn put_slice(&mut self, bytes: &[u8]) {
        self.make_room(bytes.len());
        self.tail.extend_from_slice(bytes);
    }

    /// Appends `bytes`: shared when large, copied when small.
    pub fn put_bytes(&mut self, bytes: &Bytes) {
        if bytes.len() < SHARE_BYTES_MIN {
            self.put_slice(bytes);
            return;
        }
        self.seal_tail();
        self.chunk_bytes += bytes.len();
        self.chunks.push(bytes.clone());
    }

    /// The bytes as slices, in order.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.chunks
            .iter()
            .map(AsRef::as_ref)
            .chain((!self.tail.is_empty()).then_some(self.tail.as_slice()))
    }

    /// The leading bytes, as shared chunks; [`SendBuf::tail`] follows them.
    #[must_use]
    pub fn chunks(&self) -> &[Bytes] {
        &self.chunks
    }

    /// The bytes after [`SendBuf::chunks`].
    #[must_use]
    pub fn tail(&self) -> &[u8] {
        &self.tail
    }

    /// Moves everything that `other` holds to the end.
    pub fn append(&mut self, other: &mut Self) {
        if other.chunks.is_empty() && other.tail.len() < SHARE_BYTES_MIN {
            self.put_slice(&other.tail);
        } else {
            self.seal_tail();
            self.chunk_bytes += other.chunk_bytes;
            self.chunks.append(&mut other.chunks);
            self.tail = core::mem::take(&mut other.tail);
        }
        other.clear();
    }

    /// Takes everything as shared chunks, leaving the buffer empty.
    pub fn take_chunks(&mut self) -> Vec<Bytes> {
        self.seal_tail();
        self.chunk_bytes = 0;
        core::mem::take(&mut self.chunks)
    }

    /// Empties the buffer, keeping at most [`KEEP_BYTES_MAX`] of capacity.
    pub fn clear(&mut self) {
        self.chunks.clear();
        self.chunk_bytes = 0;
        self.tail.clear();
        self.tail.shrink_to(KEEP_BYTES_MAX);
    }

    /// Makes a chunk of a tail that `more` bytes would make too long. The next one is
    /// expected to become as long.
    #[inline]
    fn make_room(&mut self, more: usize) {
        if self.tail.len() + more > TAIL_BYTES_MAX {
            self.begin_tail(more);
        }
    }

    #[cold]
    fn begin_tail(&mut self, more: usize) {
        if !self.tail.is_empty() {
            self.seal_tail();
            self.tail.reserve_exact(TAIL_BYTES_MAX.max(more));
        }
    }

    fn seal_tail(&mut self) {
        if self.tail.is_empty() {
            return;
        }
        self.chunk_bytes += self.tail.len();
        // A chunk keeps the capacity of its tail, and may wait for long: one that is
        // filled by less than half is copied.
        if self.tail.len() < self.tail.capacity() / 2 {
            self.chunks.push(Bytes::copy_from_slice(&self.tail));
            self.tail.clear();
        } else {
            self.chunks.push(core::mem::take(&mut self.tail).into());
        }
    }
}

impl ByteSink for SendBuf {
    #[inline]
    fn put(&mut self, bytes: &[u8]) -> Result<(), SinkFull> {
        self.put_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_long_tail_becomes_chunks_and_does_not_move() {
        let mut buf = SendBuf::new();
        let frame = [5; 1100];
        let count = 4 * TAIL_BYTES_MAX / frame.len();
        let mut moved = 0;
        for _ in 0..count {
            let (at, chunks) = (buf.tail().as_ptr(), buf.chunks().len());
            buf.put_slice(&frame);
            moved += usize::from(buf.tail().as_ptr() != at && buf.chunks().len() == chunks);
            assert!(buf.tail.capacity() <= 2 * TAIL_BYTES_MAX);
        }
        // The first one grows, the others have their room at once.
        assert!(moved <= 8, "{moved}");
        assert_eq!(buf.len(), count * frame.len());
        assert!(buf.slices().all(|part| part.len() <= TAIL_BYTES_MAX));
        assert!(buf.slices().flatten().all(|byte| *byte == 5));
        let mut other = SendBuf::new();
        other.put_slice(&frame);
        let at = buf.tail().as_ptr();
        other.append(&mut buf);
        assert_eq!(other.len(), (count + 1) * frame.len());
        assert!(buf.is_empty());
        assert_eq!(other.tail().as_ptr(), at, "chunks and tail are not copied");
        // One slice stays whole, however long.
        let long = [6; 2 * TAIL_BYTES_MAX];
        other.put_slice(&long);
        assert_eq!(other.tail(), long);
    }

    #[test]
    fn a_chunk_that_waits_keeps_little_more_than_its_bytes() {
        let mut buf = SendBuf::new();
        buf.put_slice(&[1; KEEP_BYTES_MAX]);
        buf.clear();
        buf.put_slice(&[2; SHARE_BYTES_MIN]);
        let room = buf.tail().as_ptr();
        let chunks = buf.take_chunks();
        assert_eq!(chunks, [vec![2; SHARE_BYTES_MIN]]);
        assert_ne!(chunks[0].as_ptr(), room);
        // One that is full is not copied.
        buf.put_slice(&[3; TAIL_BYTES_MAX]);
        let room = buf.tail().as_ptr();
        assert_eq!(buf.take_chunks()[0].as_ptr(), room);
    }

    #[test]
    fn order_is_kept_across_shared_and_copied_parts() {
        let mut buf = SendBuf::new();
        buf.put_slice(b"ab");
        let large = Bytes::from(vec![7u8; SHARE_BYTES_MIN]);
        buf.put_bytes(&large);
        buf.put_bytes(&Bytes::from_static(b"cd"));
        assert_eq!(buf.len(), 4 + SHARE_BYTES_MIN);
        let joined: Vec<u8> = buf.slices().flatten().copied().collect();
        let chunks = buf.take_chunks();
        assert!(buf.is_empty());
        assert_eq!(chunks.iter().map(Bytes::len).sum::<usize>(), joined.len());
        assert_eq!(&joined[..2], b"ab");
        assert_eq!(&joined[joined.len() - 2..], b"cd");
        assert_eq!(
            chunks[1].as_ptr(),
            large.as_ptr(),
            "large payload is shared"
        );
    }
}
