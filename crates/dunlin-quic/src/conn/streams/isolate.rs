//! Which of several waiting streams gets its bytes into the next packets: by
//! priority, and with isolation one stream at a time.
//!
//! quinn-proto fills packets with what all its streams have. To keep streams
//! apart, bytes wait in the backlogs of this crate, and quinn-proto is given
//! those of one stream only when it has sent all that it was given before.
//! While congestion control or pacing holds them back, the next stream waits.
//! Bytes that were lost are sent again as quinn-proto likes, perhaps in one
//! packet with those of another stream.
//!
//! The price is at most one packet that is not full per stream and flush, and
//! its system call; with more than [`ISOLATED_STREAMS_MAX`] streams waiting at
//! once, packets are shared.

use quinn_proto::StreamId as QuicStreamId;

use super::{Left, Streams, StreamsMut, left_of};
use crate::datagram::Transmit;

/// Streams waiting at once above which they share packets.
const ISOLATED_STREAMS_MAX: usize = 64;

/// Packets that one stream may fill in its turn.
const TURN_PACKETS_MAX: usize = 10;

/// A packet's bytes that are not of the stream, at least: header, tag, and the
/// beginning of a STREAM frame (RFC 9000 sections 17.3 and 19.8).
const OVERHEAD_BYTES_MIN: usize = 1 + 8 + 1 + 16 + 2;
/// And at most, for bytes of a stream alone.
const OVERHEAD_BYTES_MAX: usize = 1 + 20 + 4 + 16 + 1 + 8 + 8 + 2;

/// What may be left of a turn when all of it has been sent: the two bounds of
/// the overhead differ by that for each packet. Whole packets, which is what
/// congestion control holds back, are larger.
const SLACK_BYTES: usize = TURN_PACKETS_MAX * (OVERHEAD_BYTES_MAX - OVERHEAD_BYTES_MIN);

/// The turn of a stream.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Whose turn it is, or was.
    stream: Option<QuicStreamId>,
    /// Bytes given to quinn-proto that it has not sent, to our knowledge.
    unsent: usize,
    /// It fits one packet, and is over when more STREAM frames than these have
    /// been sent.
    frames: Option<u64>,
}

impl Streams {
    /// quinn-proto sent packets.
    pub(in crate::conn) fn note_transmit(&mut self, transmit: &Transmit) {
        if self.turn.unsent > 0 {
            let size = transmit.segment_size.unwrap_or(transmit.size).max(1);
            let packets = transmit.size.div_ceil(size);
            let carried = transmit.size.saturating_sub(packets * OVERHEAD_BYTES_MIN);
            self.turn.unsent = self.turn.unsent.saturating_sub(carried);
        }
    }
}

impl StreamsMut<'_> {
    /// quinn-proto has nothing to send now: gives it bytes of the next stream
    /// in turn. Returns the credit that this sets free; `None`: there is
    /// nothing to give, or quinn-proto still holds bytes back.
    pub(in crate::conn) fn take_turn(&mut self) -> Option<Left> {
        if !self.state.isolated || self.state.backlogs.is_empty() {
            return None;
        }
        let frames = self.proto.stats().frame_tx.stream;
        let over = match self.state.turn.frames {
            Some(before) => frames > before,
            None => self.state.turn.unsent <= SLACK_BYTES,
        };
        if !over {
            return None;
        }
        self.state.turn.unsent = 0;
        self.state.turn.frames = None;
        if self.state.backlogs.len() > ISOLATED_STREAMS_MAX {
            let waiting = self.state.waiting();
            let credit = self.write_by_priority();
            return (self.state.waiting() < waiting).then_some(credit);
        }
        let mtu = usize::from(self.proto.current_mtu());
        let payload = mtu.saturating_sub(OVERHEAD_BYTES_MAX).max(1);
        for id in self.turns() {
            // Whole packets, or what fits one: then it is known when
            // the turn is over.
            let waiting = self.waiting_on(id);
            let packets = (waiting / payload).clamp(1, TURN_PACKETS_MAX);
            let taken = matches!(self.proto.send_stream(id).stopped(), Ok(None));
            let credit = self.write_some(id, payload * packets);
            let wrote = waiting - self.waiting_on(id);
            if wrote > 0 && taken {
                self.state.turn = Turn {
                    stream: Some(id),
                    unsent: wrote,
                    frames: (packets == 1).then_some(frames),
                };
            }
            if wrote > 0 {
                return Some(left_of([(id, credit)]));
            }
        }
        None
    }

    /// What a stream had given to quinn-proto is gone.
    pub(super) fn end_turn(&mut self, id: QuicStreamId) {
        if self.state.turn.stream == Some(id) {
            self.state.turn = Turn::default();
        }
    }

    /// Streams with waiting bytes, in the order of their turns: by priority,
    /// then by number, after the one that had the last turn.
    fn turns(&mut self) -> Vec<QuicStreamId> {
        let last = self.state.turn.stream;
        let mut turns: Vec<_> = self
            .by_priority()
            .into_iter()
            .map(|(priority, id)| (priority, last.is_some_and(|last| id <= last), id))
            .collect();
        turns.sort_unstable_by_key(|&(priority, had, id)| (core::cmp::Reverse(priority), had, id));
        turns.into_iter().map(|(_, _, id)| id).collect()
    }

    /// Gives quinn-proto what its streams take, the most important first.
    pub(super) fn write_by_priority(&mut self) -> Left {
        let mut order = self.by_priority();
        order.sort_by_key(|&(priority, _)| core::cmp::Reverse(priority));
        let order = order.into_iter();
        left_of(order.map(|(_, id)| (id, self.write_backlog(id))))
    }

    fn waiting_on(&self, id: QuicStreamId) -> usize {
        let backlog = self.state.backlogs.iter().find(|b| b.id == id);
        backlog.map_or(0, |b| b.bytes.len())
    }

    fn by_priority(&mut self) -> Vec<(i32, QuicStreamId)> {
        let proto = &mut self.proto;
        let ids = self.state.backlogs.iter().map(|b| b.id);
        ids.map(|id| (proto.send_stream(id).priority().unwrap_or(0), id))
            .collect()
    }
}
