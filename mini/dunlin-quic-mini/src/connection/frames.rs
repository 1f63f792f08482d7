//! What the frames of the server do (RFC 9000 section 19).

use dunlin_mini_crypto::Crypto;

use super::handshake::Progress;
use super::space::{APP, HANDSHAKE};
use super::{Connection, State};
use crate::error::Error;
use crate::memory::Memory;
use crate::recovery::Sent;
use crate::verify::Verifier;
use crate::wire::Reader;

impl<C: Crypto, V: Verifier, M: Memory> Connection<C, V, M> {
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
                0x1c => return Err(self.life.closed(kind, &mut frame)),
                _ if which != APP => return Err(Error::FrameForbidden),
                _ => self.app_frame(kind, &mut frame)?,
            }
        }
        Ok(asks)
    }

    /// A frame that only 1-RTT packets carry.
    #[inline(never)]
    fn app_frame(&mut self, kind: u32, frame: &mut Reader<'_>) -> Result<(), Error> {
        // The first number is there in most of them.
        let mut number = || frame.varint().ok_or(Error::FrameEncoding);
        match kind {
            0x04 => {
                let (id, code, size) = (number()?, number()?, number()?);
                self.streams.cut(&mut self.memory, id, code, size)
            }
            0x05 => {
                let (id, code) = (number()?, number()?);
                if let Some(slot) = self.streams.of(&mut self.memory, id)? {
                    slot.state.reset(code);
                }
                Ok(())
            }
            0x07 => self.token.issued(frame),
            0x08..=0x0f => self.streams.receive(&mut self.memory, kind, frame),
            0x10 => {
                self.streams.credit = self.streams.credit.max(number()?);
                Ok(())
            }
            0x11 => {
                let (id, limit) = (number()?, number()?);
                if let Some(slot) = self.streams.of(&mut self.memory, id)? {
                    slot.state.raise(limit);
                }
                Ok(())
            }
            0x12 => {
                self.streams.max = self.streams.max.max(number()?);
                Ok(())
            }
            // More streams than this side allows, which is none.
            0x13 | 0x16 | 0x17 => number().map(|_| ()),
            // A server that is blocked gets what there is, however little: some
            // cannot use the last bytes of a window.
            0x14 => number().map(|_| self.streams.widen(&mut self.memory, 0)),
            0x15 => {
                let (id, _) = (number()?, number()?);
                if let Some(slot) = self.streams.of(&mut self.memory, id)? {
                    slot.state.widen(slot.receive.len(), 0);
                }
                Ok(())
            }
            0x18 => self.cids.new_connection_id(frame),
            // This side has issued no id but the first one, which is in use.
            0x19 => Err(Error::ConnectionId),
            0x1a => {
                self.path.response = Some(*frame.array().ok_or(Error::FrameEncoding)?);
                Ok(())
            }
            0x1b => {
                let data = frame.array().ok_or(Error::FrameEncoding)?;
                self.path.answered(*data);
                Ok(())
            }
            0x1d => Err(self.life.closed(kind, frame)),
            0x1e => {
                self.confirm();
                Ok(())
            }
            _ => Err(Error::UnknownFrame),
        }
    }

    /// An ACK frame, with counts of ECN behind it or not.
    fn ack(&mut self, now: u32, which: u8, ecn: bool, frame: &mut Reader<'_>) -> Result<(), Error> {
        let read = |reader: &mut Reader<'_>| reader.varint().ok_or(Error::FrameEncoding);
        let largest = read(frame)?;
        let delay = read(frame)?;
        let mut ranges = read(frame)?;
        let mut high = largest;
        if largest >= self.spaces.of(which).next_pn {
            return Err(Error::AckUnsent);
        }
        let mut news = false;
        loop {
            let low = high.checked_sub(read(frame)?).ok_or(Error::AckRange)?;
            while let Some(sent) = self.recovery.take(which, low, high) {
                if sent.pn == largest {
                    let held = match which {
                        APP => self.peer.held(delay),
                        _ => 0,
                    };
                    self.recovery.sample(now, sent.time, held);
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
            self.handshake.reach(Progress::Validated);
        }
        if news {
            if self.handshake.progress >= Progress::Validated {
                self.recovery.backoff = 0;
            }
            self.recovery.acknowledge(which, largest);
            self.detect_losses(now);
        }
        Ok(())
    }

    /// A packet of this side was acknowledged.
    fn acked(&mut self, which: u8, sent: &Sent) {
        if which != APP {
            return;
        }
        if self.life.state == State::Connected && self.spaces.acked(sent.pn) {
            self.confirm();
        }
        if let Some(slot) = self.memory.parts().slot(usize::from(sent.stream)) {
            slot.state.acked(slot.send, sent);
        }
    }
}
