//! What the frames of the server do (RFC 9000 section 19).

use dunlin_mini_crypto::Crypto;

use super::space::{APP, HANDSHAKE, space};
use super::{Client, State};
use crate::error::Error;
use crate::memory::{Memory, Slot};
use crate::recovery::{Sent, what};
use crate::verify::Verifier;
use crate::wire::{Reader, fill};

impl<C: Crypto, V: Verifier, M: Memory> Client<C, V, M> {
    /// Takes the payload of a packet. Whether it asks for an acknowledgement.
    #[inline(never)]
    pub(super) fn frames(&mut self, now: u32, which: u8, payload: &[u8]) -> Result<bool, Error> {
        let mut frame = Reader(payload);
        let mut asks = false;
        if frame.is_empty() {
            return Err(Error::EmptyPacket);
        }
        while !frame.is_empty() {
            // PADDING, of which the first datagrams of a server are full.
            if let [0, rest @ ..] = frame.0 {
                frame.0 = rest;
                continue;
            }
            let kind = frame.varint().ok_or(Error::FrameEncoding)?;
            asks |= !matches!(kind, 0x00 | 0x02 | 0x03 | 0x1c | 0x1d);
            match kind {
                0x00 | 0x01 => {}
                0x02 | 0x03 => self.ack(now, which, kind == 3, &mut frame)?,
                0x06 => self.crypto_frame(now, which, &mut frame)?,
                0x1c => return Err(self.closed(kind, &mut frame)),
                _ if which != APP => return Err(Error::FrameForbidden),
                _ => self.app_frame(kind, &mut frame)?,
            }
        }
        Ok(asks)
    }

    /// A frame that only 1-RTT packets carry.
    fn app_frame(&mut self, kind: u32, frame: &mut Reader<'_>) -> Result<(), Error> {
        // The first number is there in most of them.
        let mut number = || frame.varint().ok_or(Error::FrameEncoding);
        match kind {
            0x04 => {
                let (id, code, size) = (number()?, number()?, number()?);
                self.cut(id, code, size)
            }
            0x05 => {
                let (id, code) = (number()?, number()?);
                if let Some(slot) = self.stream(id)? {
                    slot.state.reset(code);
                }
                Ok(())
            }
            0x07 => self.new_token(frame),
            0x08..=0x0f => self.stream_frame(kind, frame),
            0x10 => {
                self.credit = self.credit.max(number()?);
                Ok(())
            }
            0x11 => {
                let (id, limit) = (number()?, number()?);
                if let Some(slot) = self.stream(id)? {
                    slot.state.raise(limit);
                }
                Ok(())
            }
            0x12 => {
                self.streams_max = self.streams_max.max(number()?);
                Ok(())
            }
            // More streams than this side allows, which is none.
            0x13 | 0x16 | 0x17 => number().map(|_| ()),
            // A server that is blocked gets what there is, however little: some
            // cannot use the last bytes of a window.
            0x14 => number().map(|_| self.widen(0)),
            0x15 => {
                let (id, _) = (number()?, number()?);
                if let Some(slot) = self.stream(id)? {
                    slot.state.widen(slot.receive.len(), 0);
                }
                Ok(())
            }
            0x18 => self.new_connection_id(frame),
            // This side has issued no id but the first one, which is in use.
            0x19 => Err(Error::ConnectionId),
            0x1a => {
                self.response = Some(*frame.array().ok_or(Error::FrameEncoding)?);
                Ok(())
            }
            0x1b => {
                let data: &[u8; 8] = frame.array().ok_or(Error::FrameEncoding)?;
                if cfg!(feature = "migration") && *data == self.challenge {
                    self.path_open = true;
                    self.pending &= !what::CHALLENGE;
                }
                Ok(())
            }
            0x1d => Err(self.closed(kind, frame)),
            0x1e => {
                self.confirm();
                Ok(())
            }
            _ => Err(Error::UnknownFrame),
        }
    }

    /// The server closed the connection.
    fn closed(&mut self, kind: u32, frame: &mut Reader<'_>) -> Error {
        let mut read = || {
            self.code = frame.varint()?;
            if kind == 0x1c {
                frame.varint()?;
            }
            frame.varvec()
        };
        if read().is_none() {
            return Error::FrameEncoding;
        }
        if kind == 0x1c {
            Error::ClosedByPeer
        } else {
            Error::ClosedByApplication
        }
    }

    /// An ACK frame, with counts of ECN behind it or not.
    fn ack(&mut self, now: u32, which: u8, ecn: bool, frame: &mut Reader<'_>) -> Result<(), Error> {
        let read = |reader: &mut Reader<'_>| reader.varint().ok_or(Error::FrameEncoding);
        let largest = read(frame)?;
        let delay = read(frame)?;
        let mut ranges = read(frame)?;
        let mut high = largest;
        if largest >= space(&mut self.spaces, which).next_pn {
            return Err(Error::AckUnsent);
        }
        let mut news = false;
        loop {
            let low = high.checked_sub(read(frame)?).ok_or(Error::AckRange)?;
            while let Some(sent) = self.recovery.take(which, low, high) {
                if sent.pn == largest {
                    self.sample(now, which, &sent, delay);
                }
                news = true;
                self.recovery.grow(&sent);
                self.acked(which, &sent);
            }
            if ranges == 0 {
                break;
            }
            ranges -= 1;
            let gap = read(frame)?;
            high = low
                .checked_sub(gap)
                .and_then(|high| high.checked_sub(2))
                .ok_or(Error::AckRange)?;
        }
        if ecn {
            for _ in 0..3 {
                read(frame)?;
            }
        }
        if which == HANDSHAKE {
            self.validated = true;
        }
        if news {
            if self.validated {
                self.recovery.backoff = 0;
            }
            self.recovery.acknowledge(which, largest);
            self.detect_losses(now);
        }
        Ok(())
    }

    /// A sample of the round-trip time. The server's delay counts only in
    /// 1-RTT packets, and not beyond what it promised (RFC 9002 section 5.3).
    fn sample(&mut self, now: u32, which: u8, sent: &Sent, delay: u32) {
        let mut held = 0;
        if which == APP {
            let shift = u32::from(self.peer.ack_exponent);
            let micros = delay.min(u32::MAX >> shift) << shift;
            held = (micros / 1000).min(self.peer.max_ack_delay);
        }
        self.recovery.sample(now, sent.time, held);
    }

    /// A packet of this side was acknowledged.
    fn acked(&mut self, which: u8, sent: &Sent) {
        if which != APP {
            return;
        }
        if self.state == State::Connected && sent.pn >= self.phase.tx_first {
            self.phase.acked = true;
            if sent.pn >= self.first_pn {
                self.confirm();
            }
        }
        if let Some(slot) = self.memory.parts().slot(usize::from(sent.stream)) {
            slot.state.acked(slot.send, sent);
        }
    }

    /// The stream that a frame is for; none if it is over.
    fn stream(&mut self, id: u32) -> Result<Option<Slot<'_>>, Error> {
        match id & 3 {
            0 if id >> 2 < self.streams_next => Ok(self.slot(id >> 2)),
            0 | 2 => Err(Error::StreamState),
            // The server was allowed none.
            _ => Err(Error::StreamLimit),
        }
    }

    fn stream_frame(&mut self, kind: u32, frame: &mut Reader<'_>) -> Result<(), Error> {
        let mut number = || frame.varint().ok_or(Error::FrameEncoding);
        let id = number()?;
        let offset = if kind & 4 != 0 { number()? } else { 0 };
        let data = if kind & 2 != 0 {
            frame.varvec().ok_or(Error::FrameEncoding)?
        } else {
            core::mem::replace(frame, Reader(&[])).0
        };
        if let Some(slot) = self.stream(id)? {
            let fresh = slot
                .state
                .receive(slot.receive, offset, data, kind & 1 != 0)?;
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
    fn cut(&mut self, id: u32, code: u32, size: u32) -> Result<(), Error> {
        let Some(slot) = self.stream(id)? else {
            return Ok(());
        };
        let (fresh, gone) = slot.state.cut(code, size)?;
        self.arrive(fresh)?;
        self.read(gone);
        Ok(())
    }

    /// NEW_TOKEN.
    fn new_token(&mut self, frame: &mut Reader<'_>) -> Result<(), Error> {
        let token = frame.varvec().ok_or(Error::FrameEncoding)?;
        if token.is_empty() {
            return Err(Error::EmptyToken);
        }
        if cfg!(feature = "retry") && token.len() <= self.token.len() {
            self.token_len = fill(&mut self.token, token);
            self.has_new_token = true;
        }
        Ok(())
    }
}
