//! From what there is to say to a datagram: which packets go into it, which
//! frames into them, padding, protection.

use dunlin_mini_crypto::{Crypto, TAG_LEN};

use super::space::{APP, HANDSHAKE, INITIAL, space};
use super::{Client, State};
use crate::error::Error;
use crate::keys::PN_LEN;
use crate::memory::Memory;
use crate::recovery::{DATAGRAM, Sent, what};
use crate::time::is_due;
use crate::verify::Verifier;
use crate::wire::Writer;

/// Room that the control frames of a packet may take.
const CONTROL_ROOM: usize = 100;
/// Packets with one key phase, after which the keys are updated. RFC 9001
/// section 6.6 allows twice as many.
const PHASE_PACKETS: u32 = 1 << 22;

/// A packet that was written but not protected.
struct Built {
    which: u8,
    /// Where it begins and ends in the datagram, tag included.
    from: usize,
    to: usize,
    /// Where its packet number is, and its length in a long header.
    at: usize,
    long: bool,
    /// Whether the datagram must be of full size.
    pad: bool,
    /// Whether it asks for an acknowledgement.
    asks: bool,
    sent: Sent,
}

impl<C: Crypto, V: Verifier, M: Memory> Client<C, V, M> {
    /// Writes the next datagram into `out`, which should have 1200 bytes, and
    /// gives its length; zero if there is nothing to send now.
    pub fn transmit(&mut self, now: u32, out: &mut [u8]) -> usize {
        self.tick(now);
        let live = match self.state {
            State::Idle | State::Closed => false,
            State::Closing => self.tell,
            State::Connecting | State::Connected => true,
        };
        if !live {
            return 0;
        }
        let size = out.len().min(DATAGRAM);
        let mut packets = [const { None }; 3];
        let mut end = 0;
        let mut pad = false;
        for (which, packet) in [INITIAL, HANDSHAKE, APP].into_iter().zip(&mut packets) {
            let room = out.get_mut(end..size).unwrap_or_default();
            if let Some(mut built) = self.build(now, which, room) {
                built.from += end;
                built.at += end;
                built.to += end;
                end = built.to;
                pad |= built.pad;
                *packet = Some(built);
            }
        }
        if pad && let Some(last) = packets.iter_mut().flatten().last() {
            let mut from = end;
            if !last.long {
                // It takes the rest of the datagram.
                from = end.saturating_sub(TAG_LEN);
                last.to = size;
            }
            // Behind a packet with a length, what is no packet fills a
            // datagram as well (RFC 9000 section 14.1), and need not be
            // encrypted.
            out.get_mut(from..size).unwrap_or_default().fill(0);
            end = size;
        }
        for built in packets.iter().flatten() {
            self.seal(now, built, out);
        }
        self.tell = false;
        end
    }

    /// Protects a packet and notes it.
    fn seal(&mut self, now: u32, built: &Built, out: &mut [u8]) {
        let Some(packet) = out.get_mut(built.from..built.to) else {
            return;
        };
        let at = built.at.saturating_sub(built.from);
        if built.long {
            let mut writer = Writer::at(packet, built.to.saturating_sub(built.from));
            writer.close(at, 0x4000);
        }
        let space = space(&mut self.spaces, built.which);
        if let Some(keys) = space.tx.as_ref() {
            let sealed = keys.seal(&mut self.crypto, built.sent.pn, packet, at);
            debug_assert!(sealed.is_some());
        }
        space.next_pn = built.sent.pn.saturating_add(1);
        space.unacked = 0;
        if built.asks {
            space.probes = space.probes.saturating_sub(1);
            let size = u16::try_from(packet.len()).unwrap_or(u16::MAX);
            self.recovery.record(Sent { size, ..built.sent });
            self.probe_from = now;
            if !self.asked {
                self.asked = true;
                self.idle_from = now;
            }
        }
        if built.which == HANDSHAKE {
            // RFC 9001 section 4.9.1.
            let [initial, _, _] = &mut self.spaces;
            if initial.tx.as_ref().is_some() {
                initial.discard();
                self.recovery.discard(INITIAL);
            }
        }
    }

    /// Writes a packet, unless there is nothing to say in this space.
    #[inline(never)]
    fn build(&mut self, now: u32, which: u8, room: &mut [u8]) -> Option<Built> {
        let closing = self.state == State::Closing;
        let room_len = room.len().checked_sub(TAG_LEN)?;
        self.refresh(which);
        let early = which == APP && self.level != APP;
        let long = which != APP || early;
        let current = space(&mut self.spaces, which);
        current.tx.as_ref()?;
        if early && closing {
            return None;
        }
        let pn = current.next_pn;
        if pn == u32::MAX {
            self.forget(Error::PacketNumbers);
            return None;
        }
        let mut writer = Writer::new(room.get_mut(..room_len)?);
        let at = self.header(which, early, pn, &mut writer);
        let space = space(&mut self.spaces, which);
        let due = space.unacked > 0 && is_due(now, space.ack_at);
        if space.unacked > 0 && !early {
            let mut delay = 0;
            if which == APP {
                // In units of eight microseconds.
                delay = now.wrapping_sub(space.newest_at).min(1000) * 125;
            }
            space.received.write(&mut writer, delay);
        }
        let probe = space.probes > 0;
        let mut built = Built {
            which,
            from: 0,
            to: 0,
            at,
            long,
            pad: which == INITIAL,
            asks: false,
            sent: Sent {
                pn,
                time: now,
                space: which,
                ..Sent::default()
            },
        };
        if closing {
            self.close_frame(which, &mut writer);
        } else {
            if probe || self.recovery.may_send() {
                if which == APP {
                    self.app_frames(early, &mut writer, &mut built);
                } else {
                    self.crypto_frames(which, &mut writer, &mut built);
                }
            }
            if probe && !built.asks {
                writer.u8(0x01);
                built.asks = true;
            }
            if !built.asks && (!due || early) {
                return None;
            }
        }
        if writer.full() {
            return None;
        }
        built.to = writer.len() + TAG_LEN;
        Some(built)
    }

    /// Updates the keys in time (RFC 9001 section 6.6).
    fn refresh(&mut self, which: u8) {
        let [_, _, app] = &self.spaces;
        if which == APP
            && app.next_pn.wrapping_sub(self.phase.tx_first) > PHASE_PACKETS
            && self.phase.acked
        {
            self.update_sending();
        }
    }

    /// Writes a header and gives where its packet number is.
    fn header(&self, which: u8, early: bool, pn: u32, writer: &mut Writer<'_>) -> usize {
        let long = which != APP || early;
        let id = self.active.cid.bytes();
        if long {
            // Initial, Handshake and 0-RTT with a packet number of four bytes.
            let first = if early { 0xd3 } else { 0xc3 | which << 5 };
            writer.put(&[first, 0, 0, 0, 1]);
            writer.u8(id.len().to_le_bytes()[0]);
        } else {
            writer.u8(0x43 | self.phase.tx_bit);
        }
        writer.put(id);
        if long {
            writer.u8(0);
        }
        if which == INITIAL {
            let token = self.token.get(..self.token_len).unwrap_or_default();
            writer.varint(u32::try_from(token.len()).unwrap_or(0));
            writer.put(token);
        }
        if long {
            writer.open();
        }
        let at = writer.len();
        writer.u32(pn);
        at
    }

    /// CONNECTION_CLOSE.
    fn close_frame(&self, which: u8, writer: &mut Writer<'_>) {
        let mut code = self.error.map_or(0, |error| u32::from(error.wire()));
        let mut kind = 0x1c;
        if self.error == Some(Error::ClosedLocally) {
            if which == APP {
                kind = 0x1d;
                code = self.code;
            } else {
                // RFC 9000 section 10.2.3: APPLICATION_ERROR.
                code = 0x0c;
            }
        }
        writer.u8(kind);
        writer.varint(code);
        if kind == 0x1c {
            writer.u8(0);
        }
        writer.u8(0);
    }

    /// Handshake messages.
    fn crypto_frames(&mut self, which: u8, writer: &mut Writer<'_>, built: &mut Built) {
        let space = space(&mut self.spaces, which);
        // Nothing is missing of a hello that was answered with a request for
        // another one, which is in its place.
        let base = if which == INITIAL { self.hello_at } else { 0 };
        space.next = space.next.max(base);
        // Type, offset and length take seven bytes at most here.
        let room = u32::try_from(writer.room().saturating_sub(8)).unwrap_or(0);
        let len = space.end.saturating_sub(space.next).min(room);
        if len == 0 {
            return;
        }
        let from = space.next.saturating_sub(base) as usize;
        let data = self.memory.parts().hello.get(from..).unwrap_or_default();
        writer.u8(0x06);
        writer.varint(space.next);
        writer.varint(len);
        writer.put(data.get(..len as usize).unwrap_or_default());
        built.asks = true;
        built.sent.what = what::DATA;
        built.sent.offset = space.next;
        built.sent.len = u16::try_from(len).unwrap_or(0);
        space.next += len;
    }

    /// Frames of 0-RTT and 1-RTT packets.
    fn app_frames(&mut self, early: bool, writer: &mut Writer<'_>, built: &mut Built) {
        if writer.room() < CONTROL_ROOM {
            return;
        }
        let from = writer.len();
        if let Some(data) = self.response.take_if(|_| !early) {
            writer.u8(0x1b);
            writer.put(&data);
            built.pad = true;
        }
        if cfg!(feature = "migration") && self.pending & what::CHALLENGE != 0 {
            writer.u8(0x1a);
            writer.put(&self.challenge);
            built.sent.what |= what::CHALLENGE;
            built.pad = true;
        }
        if self.pending & what::MAX_DATA != 0 && !early {
            writer.u8(0x10);
            writer.varint(self.window);
            built.sent.what |= what::MAX_DATA;
        }
        self.pending &= !built.sent.what;
        let waiting = self.retiring.iter_mut().find(|entry| **entry != 0);
        if let Some(entry) = waiting {
            let sequence = core::mem::take(entry).wrapping_sub(1);
            writer.u8(0x19);
            writer.varint(sequence);
            built.sent.what |= what::RETIRE;
            built.sent.offset = sequence;
        } else {
            self.stream_frames(writer, built);
        }
        built.asks = writer.len() > from;
    }

    /// Frames of one stream, a different one first in each packet.
    fn stream_frames(&mut self, writer: &mut Writer<'_>, built: &mut Built) {
        let count = self.memory.parts().streams.len();
        for i in 0..count {
            let turn = (built.sent.pn as usize).wrapping_add(i);
            let index = turn.checked_rem(count).unwrap_or(0);
            if self.one_stream(index, writer, built) {
                built.sent.stream = index.to_le_bytes()[0];
                return;
            }
        }
    }

    fn one_stream(&mut self, index: usize, writer: &mut Writer<'_>, built: &mut Built) -> bool {
        let idle = !self.recovery.carries(index.to_le_bytes()[0]);
        let credit = self.credit.saturating_sub(self.used);
        let streams = self.streams_max;
        let Some(slot) = self.memory.parts().slot(index) else {
            return false;
        };
        let stream = slot.state;
        if stream.number >= streams {
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
        built.sent.what |= pending;
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
            built.sent.what |= what::DATA;
            if fin {
                built.sent.what |= what::FIN;
            }
            built.sent.offset = offset;
            built.sent.len = u16::try_from(len).unwrap_or(0);
            return true;
        }
        pending != 0
    }
}

/// The packet number is as long as the sample of header protection wants it.
const _: () = assert!(PN_LEN == 4);
