//! Bytes that could not leave at once, in order. Owns no memory while empty.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};
use dunlin_base::SendBuf;
use dunlin_base::sendbuf::SHARE_BYTES_MIN;

/// Slices offered to one vectored write.
pub const SLICES_MAX: usize = 64;

/// Waiting bytes: shared chunks, then a copied tail that small writes grow.
#[derive(Debug, Default)]
pub struct Backlog {
    chunks: VecDeque<Bytes>,
    tail: Vec<u8>,
    len: usize,
}

impl Backlog {
    /// Bytes that wait.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether none wait.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a copy.
    pub fn put_slice(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Appends what `data` holds after its first `skip` bytes, sharing its
    /// chunks, and empties it.
    pub fn put(&mut self, data: &mut SendBuf, mut skip: usize) {
        self.len += data.len() - skip;
        if data.tail().len() < SHARE_BYTES_MIN {
            for chunk in data.chunks() {
                self.share(chunk, &mut skip);
            }
            self.tail
                .extend_from_slice(data.tail().get(skip..).unwrap_or_default());
        } else {
            for chunk in data.take_chunks() {
                self.share(&chunk, &mut skip);
            }
        }
        data.clear();
    }

    /// Appends what `chunk` has after `skip` bytes, which it takes from that.
    fn share(&mut self, chunk: &Bytes, skip: &mut usize) {
        let skipped = chunk.len().min(*skip);
        *skip -= skipped;
        if skipped < chunk.len() {
            self.seal_tail();
            self.chunks.push_back(chunk.slice(skipped..));
        }
    }

    /// Fills `slices` with the first bytes, and says how many were filled.
    pub fn fill<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        let tail = (!self.tail.is_empty()).then_some(self.tail.as_slice());
        let parts = self.chunks.iter().map(AsRef::as_ref).chain(tail);
        slices
            .iter_mut()
            .zip(parts)
            .map(|(slice, part)| *slice = IoSlice::new(part))
            .count()
    }

    /// The first contiguous bytes.
    #[must_use]
    pub fn front(&self) -> &[u8] {
        self.chunks.front().map_or(self.tail.as_slice(), |c| c)
    }

    /// Takes the first chunk as shared bytes.
    pub fn pop(&mut self) -> Option<Bytes> {
        if self.chunks.is_empty() {
            self.seal_tail();
        }
        let chunk = self.chunks.pop_front()?;
        self.len -= chunk.len();
        self.release_if_empty();
        Some(chunk)
    }

    /// Puts back what [`Backlog::pop`] took, or its rest.
    pub fn unpop(&mut self, chunk: Bytes) {
        if !chunk.is_empty() {
            self.len += chunk.len();
            self.chunks.push_front(chunk);
        }
    }

    /// Drops the first `n` bytes.
    pub fn advance(&mut self, mut n: usize) {
        n = n.min(self.len);
        self.len -= n;
        while n > 0 {
            if self.chunks.is_empty() {
                self.seal_tail();
            }
            let Some(front) = self.chunks.front_mut() else {
                break;
            };
            if n < front.len() {
                front.advance(n);
                break;
            }
            n -= front.len();
            self.chunks.pop_front();
        }
        self.release_if_empty();
    }

    fn seal_tail(&mut self) {
        if !self.tail.is_empty() {
            let tail = core::mem::take(&mut self.tail);
            self.chunks.push_back(Bytes::from(tail));
        }
    }

    fn release_if_empty(&mut self) {
        if self.len == 0 {
            self.chunks = VecDeque::new();
            self.tail = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_keep_their_order_through_partial_writes() {
        let mut want = Vec::new();
        let mut backlog = Backlog::default();
        let mut next = 0u8;
        let mut fresh = |n: usize| {
            let bytes: Vec<u8> = (0..n)
                .map(|_| {
                    next = next.wrapping_add(1);
                    next
                })
                .collect();
            bytes
        };
        for round in 0..6 {
            let mut data = SendBuf::new();
            for part in [fresh(5), fresh(SHARE_BYTES_MIN + round), fresh(3)] {
                data.put_bytes(&Bytes::from(part.clone()));
                want.extend(part);
            }
            let skip = (round * 1500).min(data.len());
            let already: Vec<u8> = data.slices().flatten().copied().take(skip).collect();
            let at = want.len() - data.len();
            assert_eq!(want[at..at + skip], already);
            want.drain(at..at + skip);
            backlog.put(&mut data, skip);
            assert!(data.is_empty());
            let small = fresh(2);
            backlog.put_slice(&small);
            want.extend(small);
        }
        assert_eq!(backlog.len(), want.len());
        let mut got: Vec<u8> = Vec::new();
        while !backlog.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let n = backlog.fill(&mut slices);
            let all: Vec<u8> = slices[..n].iter().flat_map(|s| s.to_vec()).collect();
            let take = all.len().min(1001);
            got.extend(&all[..take]);
            backlog.advance(take);
            if let Some(chunk) = backlog.pop() {
                backlog.unpop(chunk);
            }
        }
        assert_eq!(got, want);
        assert_eq!(backlog.tail.capacity() + backlog.chunks.capacity(), 0);
    }
}
