//! What a connection sends: its datagrams, and its end when that is due.

use dunlin_base::{Instant, StreamId};

use super::QuicConn;
use crate::datagram::{DatagramSender, Transmit};
use crate::{Clock, Counters};

/// Transmissions of one connection before others get a turn.
const TRANSMITS_MAX: usize = 8;

/// What left of one connection.
#[derive(Debug, Default)]
pub struct Transmitted {
    /// Bytes of the owner that went with it.
    pub left: usize,
    /// Streams that the peer takes no more of, with the bytes that wait, and
    /// with 0 those that go on.
    pub blocked: Vec<(StreamId, usize)>,
    /// There may be more.
    pub more: bool,
}

impl QuicConn {
    /// Sends what there is to be sent, and the end of the connection when that
    /// is due. `None`: not now.
    pub fn transmit(
        &mut self,
        clock: &Clock,
        now: Instant,
        port: &mut dyn DatagramSender,
        buf: &mut Vec<u8>,
        counters: &mut Counters,
    ) -> Option<Transmitted> {
        if self.life.is_quiet() || self.answer.holds_back(self.early.is_held()) {
            return None;
        }
        let std_now = clock.to_std(now);
        let (mut transmits, mut left) = (0, 0);
        // If nothing else would be sent but acknowledgements, the end of the
        // connection carries them too.
        if self.life.has_parted() && self.answer.has_left() && !self.streams.has_backlog() {
            self.leave(clock, now);
        }
        if let Some(repeats) = &mut self.repeats {
            repeats.send(now, port, counters);
        }
        while !port.is_blocked() && transmits < TRANSMITS_MAX {
            // Datagrams are not sent again when the server refuses early data.
            if !self.streams.is_in_flight() {
                self.datagrams().feed(now, counters);
            }
            buf.clear();
            let segments = port.max_segments();
            let Some(transmit) = self.proto.poll_transmit(std_now, segments, buf) else {
                if let Some(credit) = self.streams().take_turn() {
                    left += credit;
                    continue;
                }
                if self.leave(clock, now) {
                    continue;
                }
                break;
            };
            transmits += 1;
            let mut transmit = Transmit::from(transmit);
            if self.path.lets_leave(&transmit, &self.proto) {
                transmit.src_ip = self.path.pinned_ip().or(transmit.src_ip);
                self.note_transmit(&transmit, buf, now);
                self.path
                    .note_ecn(port.marks_ecn() && transmit.ecn.is_some());
                port.send(transmit, buf, counters);
            }
        }
        self.answer.flushed(transmits, self.life.is_confirmed());
        if self.life.is_open() {
            self.ack_tail.ask_for_ack(transmits, &mut self.proto);
        }
        if transmits > 0 && self.keys.is_over(&self.proto, now) && self.update_keys(now) {
            counters.key_updates += 1;
        }
        if self.log.is_some() {
            let stats = self.quic_stats();
            self.log_mut().path(&stats);
        }
        Some(Transmitted {
            left: if self.life.is_open() { left } else { 0 },
            blocked: self.streams.take_blocked_news(),
            more: transmits == TRANSMITS_MAX,
        })
    }

    fn note_transmit(&mut self, transmit: &Transmit, buf: &[u8], now: Instant) {
        if let Some(log) = &self.log {
            log.udp_sent(transmit.size, transmit.segment_size);
        }
        let is_open = self.life.is_open();
        if let Some(repeats) = &mut self.repeats {
            repeats.note(transmit, buf, &self.proto, is_open, now);
        }
        self.streams.note_transmit(transmit);
    }
}
