//! Where encoders write: a growing buffer on a host, a fixed one on a
//! microcontroller.

use alloc::vec::Vec;

/// The sink has no room for what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the output buffer is full")]
pub struct SinkFull;

/// A place for encoded bytes.
pub trait ByteSink {
    /// Appends all of `bytes` or nothing.
    ///
    /// # Errors
    /// [`SinkFull`] when a fixed buffer has no room.
    fn put(&mut self, bytes: &[u8]) -> Result<(), SinkFull>;

    /// Appends one byte.
    ///
    /// # Errors
    /// As [`ByteSink::put`].
    #[inline]
    fn put_u8(&mut self, byte: u8) -> Result<(), SinkFull> {
        self.put(&[byte])
    }
}

impl ByteSink for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) -> Result<(), SinkFull> {
        self.extend_from_slice(bytes);
        Ok(())
    }
}

/// Writes to the front of a slice and moves the slice on, as `io::Write` does.
impl ByteSink for &mut [u8] {
    #[inline]
    fn put(&mut self, bytes: &[u8]) -> Result<(), SinkFull> {
        if bytes.len() > self.len() {
            return Err(SinkFull);
        }
        let (head, tail) = core::mem::take(self).split_at_mut(bytes.len());
        head.copy_from_slice(bytes);
        *self = tail;
        Ok(())
    }
}
