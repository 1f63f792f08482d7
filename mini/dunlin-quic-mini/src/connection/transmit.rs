//! From what there is to say to a datagram: which packets go into it, which
//! frames into them, padding, protection.

use dunlin_mini_crypto::{Crypto, TAG_LEN};

use super::space::{APP, HANDSHAKE, INITIAL};
use super::{Connection, State};
use crate::error::Error;
use crate::keys::PN_LEN;
use crate::memory::Memory;
use crate::recovery::{DATAGRAM, Sent, what};
use crate::verify::Verifier;
use crate::wire::Writer;

/// Room that the control frames of a packet may take.
const CONTROL_ROOM: usize = 100;
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

impl<C: Crypto, V: Verifier, M: Memory> Connection<C, V, M> {
    /// Writes the next datagram into `out`. Gives its length, or zero.
    pub(crate) fn transmit(&mut self, now: u32, out: &mut [u8]) -> usize {
        self.tick(now);
        let live = match self.life.state {
            State::Idle | State::Closed => false,
            State::Closing => self.life.tell,
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
        self.life.tell = false;
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
        let space = self.spaces.of(built.which);
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
            self.recovery.probe_from = now;
            self.idle.ask(now);
        }
        if built.which == HANDSHAKE {
            // RFC 9001 section 4.9.1.
            if self.spaces.of(INITIAL).tx.as_ref().is_some() {
                self.discard(INITIAL);
            }
        }
    }

    /// Writes a packet, unless there is nothing to say in this space.
    #[inline(never)]
    fn build(&mut self, now: u32, which: u8, room: &mut [u8]) -> Option<Built> {
        let closing = self.life.state == State::Closing;
        let room_len = room.len().checked_sub(TAG_LEN)?;
        let suite = self.handshake.suite();
        self.spaces.refresh(&mut self.crypto, suite, which);
        let early = which == APP && self.handshake.level != APP;
        let long = which != APP || early;
        let current = self.spaces.of(which);
        current.tx.as_ref()?;
        if early && closing {
            return None;
        }
        let pn = current.next_pn;
        if pn == u32::MAX {
            self.life.forget(Error::PacketNumbers);
            return None;
        }
        let mut writer = Writer::new(room.get_mut(..room_len)?);
        let at = self.header(which, early, pn, &mut writer);
        let space = self.spaces.of(which);
        let due = !early && space.write_ack(now, which == APP, &mut writer);
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
            self.life.write(which == APP, &mut writer);
        } else {
            if probe || self.recovery.may_send() {
                if which == APP {
                    self.app_frames(early, &mut writer, &mut built);
                } else {
                    // Nothing is missing of a hello that was answered with a
                    // request for another one, which is in its place.
                    let base = match which {
                        INITIAL => self.handshake.hello_at,
                        _ => 0,
                    };
                    let hello = self.memory.parts().hello;
                    let space = self.spaces.of(which);
                    built.asks = space.write(base, hello, &mut writer, &mut built.sent);
                }
            }
            if probe && !built.asks {
                writer.u8(0x01);
                built.asks = true;
            }
            if !built.asks && !due {
                return None;
            }
        }
        if writer.full() {
            return None;
        }
        built.to = writer.len() + TAG_LEN;
        Some(built)
    }

    /// Writes a header and gives where its packet number is.
    fn header(&self, which: u8, early: bool, pn: u32, writer: &mut Writer<'_>) -> usize {
        let long = which != APP || early;
        let id = self.cids.active.cid.bytes();
        if long {
            // Initial, Handshake and 0-RTT with a packet number of four bytes.
            let first = if early { 0xd3 } else { 0xc3 | which << 5 };
            writer.put(&[first, 0, 0, 0, 1]);
            writer.u8(id.len().to_le_bytes()[0]);
        } else {
            writer.u8(0x43 | self.spaces.phase_bit());
        }
        writer.put(id);
        if long {
            writer.u8(0);
        }
        if which == INITIAL {
            let token = self.token.bytes();
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

    /// Frames of 0-RTT and 1-RTT packets.
    fn app_frames(&mut self, early: bool, writer: &mut Writer<'_>, built: &mut Built) {
        if writer.room() < CONTROL_ROOM {
            return;
        }
        let from = writer.len();
        let (written, pad) = self.path.write(early, writer);
        built.sent.what = written;
        built.pad |= pad;
        if !early {
            built.sent.what |= self.streams.write_window(writer);
        }
        if let Some(sequence) = self.cids.write(writer) {
            built.sent.what |= what::RETIRE;
            built.sent.offset = sequence;
        } else {
            let (memory, recovery) = (&mut self.memory, &self.recovery);
            self.streams
                .write(memory, recovery, writer, &mut built.sent);
        }
        built.asks = writer.len() > from;
    }
}

/// The packet number is as long as the sample of header protection wants it.
const _: () = assert!(PN_LEN == 4);
