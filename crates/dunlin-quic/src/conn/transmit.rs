//! What a connection sends: its datagrams, and its end when that is due.

use dunlin_base::{Instant, StreamId};

use super::QuicConn;
use super::path::{Kept, Path};
use super::streams::Left;
use crate::datagram::{DatagramSender, Transmit};
use crate::{Clock, Counters};

/// Transmissions of one connection before others get a turn.
const TRANSMITS_MAX: usize = 8;

/// What left of one connection.
#[derive(Debug, Default)]
pub struct Transmitted {
    /// Bytes of the owner that went with it, by stream.
    pub left: Vec<(StreamId, usize)>,
    /// Streams that the peer takes no more of, with the bytes that wait, and
    /// with 0 those that go on.
    pub blocked: Vec<(StreamId, usize)>,
    /// How often datagrams left.
    transmits: usize,
}

impl Transmitted {
    /// Whether datagrams left.
    #[must_use]
    pub const fn has_any(&self) -> bool {
        self.transmits > 0
    }

    /// Whether there may be more.
    #[must_use]
    pub const fn has_more(&self) -> bool {
        self.transmits == TRANSMITS_MAX
    }
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
        let (mut transmits, mut left) = (0, Left::new());
        // If nothing else would be sent but acknowledgements, the end of the
        // connection carries them too.
        if self.life.has_parted() && self.answer.has_left() && !self.streams.has_backlog() {
            self.leave(clock, now);
        }
        self.repeats.send(now, port, counters);
        send_again(&mut self.path, port, counters);
        let before = self.proto.poll_timeout();
        while !port.is_blocked() && transmits < TRANSMITS_MAX {
            // Datagrams are not sent again when the server refuses early data.
            if !self.streams.is_in_flight() {
                self.datagrams().feed(now, counters);
            }
            buf.clear();
            let segments = self.path.datagrams(&self.proto, port.max_segments());
            if segments == 0 {
                break;
            }
            let polled = self.proto.poll_transmit(std_now, segments, buf);
            let Some(mut transmit) = polled.map(Transmit::from) else {
                if let Some(credit) = self.streams().take_turn() {
                    left.extend(credit);
                    continue;
                }
                if self.leave(clock, now) {
                    continue;
                }
                break;
            };
            transmits += 1;
            if self.path.route(&mut transmit, buf, &self.proto, now) {
                transmit.src_ip = self.path.pinned_ip().or(transmit.src_ip);
                self.note_transmit(&transmit, buf, now);
                send(&mut self.path, transmit, buf, port, counters);
            } else {
                counters.datagrams_unproved += 1;
            }
        }
        self.ack_wait.sent(before, std_now, &mut self.proto);
        challenge_again(&mut self.path, port, counters);
        self.answer.flushed(transmits, self.life.is_confirmed());
        if self.life.is_open() {
            self.ack_tail.ask_for_ack(transmits, &mut self.proto);
        }
        if transmits > 0 && self.keys.is_over(&self.proto, now) && self.update_keys(now) {
            counters.key_updates += 1;
        }
        log_path(self);
        left.retain(|_| self.life.is_open());
        Some(Transmitted {
            left,
            blocked: counted(self.streams.take_blocked_news(), counters),
            transmits,
        })
    }

    fn note_transmit(&mut self, transmit: &Transmit, buf: &[u8], now: Instant) {
        if let Some(log) = &self.log {
            log.udp_sent(transmit.size, transmit.segment_size);
        }
        if self.life.is_open() && self.path.is_proved(transmit.destination) {
            self.repeats.note(transmit, buf, &self.proto, now);
        }
        self.streams.note_transmit(transmit);
    }
}

/// Streams that are blocked since the last time, or not any more.
fn counted(blocked: Vec<(StreamId, usize)>, counters: &mut Counters) -> Vec<(StreamId, usize)> {
    let waiting = blocked.iter().filter(|(_, bytes)| *bytes > 0);
    counters.quic_streams_blocked += waiting.count() as u64;
    blocked
}

fn log_path(conn: &mut QuicConn) {
    if conn.log.is_some() {
        let stats = conn.quic_stats();
        conn.log_mut().path(&stats);
    }
}

/// Sends to the address that counts, and perhaps to the one that is tried.
fn send(
    path: &mut Path,
    transmit: Transmit,
    contents: &[u8],
    port: &mut dyn DatagramSender,
    counters: &mut Counters,
) {
    path.note_ecn(port.marks_ecn() && transmit.ecn.is_some());
    if let Some(destination) = path.copies_to(&transmit, contents) {
        let copy = Transmit {
            destination,
            ..transmit.clone()
        };
        port.send(copy, contents, counters);
    }
    port.send(transmit, contents, counters);
}

/// Sends what went to the former address until another one was proved.
fn send_again(path: &mut Path, port: &mut dyn DatagramSender, counters: &mut Counters) {
    let destination = path.addr();
    for Kept { transmit, contents } in path.take_again() {
        let transmit = Transmit {
            destination,
            ..transmit
        };
        port.send(transmit, &contents, counters);
    }
}

/// Sends a challenge again that an address has not answered.
fn challenge_again(path: &mut Path, port: &mut dyn DatagramSender, counters: &mut Counters) {
    if let Some((destination, datagram)) = path.due_challenge() {
        let transmit = Transmit {
            destination,
            ecn: None,
            size: datagram.len(),
            segment_size: None,
            src_ip: None,
        };
        port.send(transmit, datagram, counters);
    }
}
