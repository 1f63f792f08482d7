//! Bytes on their way out: frames, each within what the peer accepts.

use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_amqp_codec::limits::FRAME_BYTES_MIN;
use dunlin_amqp_codec::{Performative, ProtocolHeader, SaslFrame, Transfer, frame};
use dunlin_base::SendBuf;

use crate::error::CallError;

/// A message, or a part of one: what the sender writes itself, and what it passes
/// on as it came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    pub(crate) head: Bytes,
    pub(crate) body: Bytes,
}

impl Parts {
    pub(crate) fn len(&self) -> usize {
        self.head.len() + self.body.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes `len` bytes from the front.
    fn take(&mut self, len: usize) -> Self {
        let head = self.head.split_to(len.min(self.head.len()));
        let body = self.body.split_to((len - head.len()).min(self.body.len()));
        Self { head, body }
    }
}

/// What is to be sent.
#[derive(Debug)]
pub(crate) struct Output {
    buf: SendBuf,
    /// `max-frame-size` of the peer.
    frame_bytes_max: u32,
}

impl Default for Output {
    fn default() -> Self {
        Self {
            buf: SendBuf::new(),
            frame_bytes_max: FRAME_BYTES_MIN,
        }
    }
}

impl Output {
    pub(crate) fn set_frame_bytes_max(&mut self, max: u32) {
        self.frame_bytes_max = max;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// Moves all bytes to the end of `out`.
    pub(crate) fn drain_to(&mut self, out: &mut SendBuf) {
        if out.is_empty() {
            core::mem::swap(&mut self.buf, out);
        } else {
            out.append(&mut self.buf);
        }
    }

    pub(crate) fn header(&mut self, header: ProtocolHeader) {
        self.buf.put_slice(&header.bytes());
    }

    pub(crate) fn empty_frame(&mut self) {
        // A `SendBuf` is never full.
        let _ = frame::encode_empty(&mut self.buf);
    }

    pub(crate) fn sasl(&mut self, body: &SaslFrame<'_>) -> Result<(), CallError> {
        let mut bytes = Vec::new();
        frame::encode_sasl(body, &mut bytes).map_err(|_| CallError::FrameSize)?;
        self.buf.put_slice(&bytes);
        Ok(())
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.buf.put_slice(bytes);
    }

    /// Whether the peer takes a frame of this size.
    pub(crate) fn takes(&self, performative: &Performative<'_>) -> bool {
        frame::encoded_len(performative) <= self.frame_bytes_max as usize
    }

    /// Writes a frame that the driver has filled.
    pub(crate) fn write(
        &mut self,
        channel: u16,
        performative: &Performative<'_>,
    ) -> Result<(), CallError> {
        if !self.takes(performative) {
            return Err(CallError::FrameSize);
        }
        frame::encode(channel, performative, &mut self.buf).map_err(|_| CallError::FrameSize)
    }

    /// Writes a whole message, or the next part of one, as one frame: `false`
    /// if it does not fit.
    pub(crate) fn transfer_whole(
        &mut self,
        channel: u16,
        transfer: &Transfer<'_>,
        head: &[u8],
        body: &Bytes,
    ) -> bool {
        let payload = head.len() + body.len();
        let len = frame::HEADER_BYTES + transfer.encoded_len() + payload;
        if len > self.frame_bytes_max as usize
            || frame::encode_transfer(channel, transfer, payload, &mut self.buf).is_err()
        {
            return false;
        }
        self.buf.put_slice(head);
        self.buf.put_bytes(body);
        true
    }

    /// Writes one frame of a transfer with as much of `parts` as fits, and takes
    /// that from `parts`. `more` says whether further parts follow these.
    pub(crate) fn transfer_part(
        &mut self,
        channel: u16,
        transfer: &mut Transfer<'_>,
        parts: &mut Parts,
        more: bool,
    ) -> Result<(), CallError> {
        transfer.more = true;
        let head = frame::HEADER_BYTES + transfer.encoded_len();
        let room = (self.frame_bytes_max as usize).saturating_sub(head);
        if room == 0 {
            return Err(CallError::FrameSize);
        }
        let now = parts.take(room.min(parts.len()));
        transfer.more = more || !parts.is_empty();
        if self.transfer_whole(channel, transfer, &now.head, &now.body) {
            Ok(())
        } else {
            Err(CallError::FrameSize)
        }
    }
}
