//! Asks a peer for an acknowledgement now and then when nothing is sent to it
//! but acknowledgements, as to a publisher of QoS 0 (RFC 9000 section 13.2.4).
//!
//! A packet that has nothing else in it is not acknowledged, so quinn-proto
//! would remember a thousand of them, a hundred bytes each, and would go on to
//! report what arrived long ago. The question costs no packet of its own: it
//! waits for the next one. This knows numbers of frames and no packet.

use quinn_proto::{Connection, FrameStats};

/// Transmissions after which to look whether the peer has anything to
/// acknowledge. Between one and two times as many packets are remembered.
const TRANSMITS: u8 = 32;

/// What was sent at the last look.
#[derive(Debug, Default)]
pub(super) struct AckTail {
    transmits: u8,
    /// Frames that a peer acknowledges.
    eliciting: u64,
}

impl AckTail {
    /// So many transmissions were made; returns whether it is time to look.
    const fn is_due(&mut self, transmits: usize) -> bool {
        let transmits = transmits as u64 + self.transmits as u64;
        if transmits < TRANSMITS as u64 {
            self.transmits = transmits as u8;
            return false;
        }
        self.transmits = 0;
        true
    }

    /// Whether nothing was sent since the last look that a peer acknowledges.
    fn is_unanswered(&mut self, sent: &FrameStats) -> bool {
        let eliciting = eliciting(sent);
        core::mem::replace(&mut self.eliciting, eliciting) == eliciting
    }
}

impl AckTail {
    /// So many transmissions were made on an open connection.
    pub(super) fn ask_for_ack(&mut self, transmits: usize, proto: &mut Connection) {
        if transmits > 0 && self.is_due(transmits) && self.is_unanswered(&proto.stats().frame_tx) {
            proto.ping();
        }
    }
}

/// Frames that elicit an acknowledgement, of those that a connection sends again
/// and again (RFC 9000 section 1.2).
const fn eliciting(sent: &FrameStats) -> u64 {
    sent.stream
        + sent.datagram
        + sent.ping
        + sent.crypto
        + sent.max_data
        + sent.max_stream_data
        + sent.max_streams_bidi
        + sent.max_streams_uni
        + sent.new_connection_id
        + sent.path_challenge
        + sent.path_response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_of_acknowledgements_is_noticed() {
        let mut tail = AckTail::default();
        let mut sent = FrameStats::default();
        let mut asked = Vec::new();
        for packet in 1..=200_u64 {
            sent.acks += 1;
            // Up to here something else went now and then.
            if packet < 50 && packet.is_multiple_of(10) {
                sent.stream += 1;
            }
            if tail.is_due(1) && tail.is_unanswered(&sent) {
                asked.push(packet);
                sent.ping += 1;
            }
        }
        // After the first look that saw nothing, every other does: the question
        // before is what it sees.
        assert_eq!(asked, [96, 160]);
        assert!(tail.is_due(usize::from(TRANSMITS) * 3), "many at once");
    }
}
