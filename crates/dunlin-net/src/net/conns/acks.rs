//! Acknowledgements that wait, of all connections: those whose delay is nearly
//! over, and those that nothing is likely to take along, leave when other datagrams
//! are sent, in one call with them.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::BinaryHeap;

use dunlin_base::Instant;
use dunlin_quic::AcksMut;

use super::super::env::Env;
use super::super::quic::QuicSlot;
use super::{Conns, mark};

/// Connections by the time from which on their acknowledgement may leave, each
/// once.
pub(in super::super) type WaitingAcks = BinaryHeap<Reverse<(Instant, u64)>>;

/// Which connections send.
#[derive(Debug, Default)]
pub(super) struct Senders {
    last: Option<(u64, Instant)>,
    /// When another than the last one did.
    other: Option<Instant>,
}

impl Senders {
    /// A connection sent something.
    pub(super) fn note(&mut self, serial: u64, now: Instant) {
        if let Some((last, at)) = self.last
            && last != serial
        {
            self.other = Some(at);
        }
        self.last = Some((serial, now));
    }

    /// Whether others than this one have sent lately, so that the next will probably
    /// not be long in coming.
    fn are_others_since(&self, serial: u64, now: Instant, lately: Duration) -> bool {
        let at = match self.last {
            Some((last, _)) if last == serial => self.other,
            last => last.map(|(_, at)| at),
        };
        at.is_some_and(|at| now.saturating_duration_since(at) < lately)
    }
}

/// A connection is going to be flushed: its acknowledgement does not wait if nothing is
/// likely to take it along, datagrams of other connections neither.
pub(super) fn free_ack(senders: &Senders, serial: u64, quic: &mut QuicSlot, now: Instant) {
    let mut acks = AcksMut::of(&mut quic.conn);
    if let Some(delay) = acks.in_vain()
        && !senders.are_others_since(serial, now, delay)
    {
        acks.leave();
    }
}

/// Something is going to be sent: lists the connections for transmission whose
/// acknowledgement may leave with it.
pub(in super::super) fn join_acks(conns: &mut Conns, listed: &mut Vec<u64>, env: &Env) {
    while let Some(&Reverse((from, serial))) = conns.acks.peek()
        && from <= env.now
    {
        conns.acks.pop();
        let Some(quic) = conns.quic_mut(serial) else {
            continue;
        };
        quic.ack_waits = false;
        let mut acks = AcksMut::of(&mut quic.conn);
        match acks.early_from(&env.config.clock) {
            Some(from) if from <= env.now => {
                acks.leave();
                mark(listed, serial, &mut quic.dirty);
            }
            // Another one, of a packet that came later.
            Some(from) => {
                quic.ack_waits = true;
                conns.acks.push(Reverse((from, serial)));
            }
            None => {}
        }
    }
}

/// A connection was flushed: remembers the acknowledgement that still waits.
pub(super) fn note_ack(acks: &mut WaitingAcks, serial: u64, quic: &mut QuicSlot, env: &Env) {
    if !quic.ack_waits
        && let Some(from) = AcksMut::of(&mut quic.conn).early_from(&env.config.clock)
    {
        quic.ack_waits = true;
        acks.push(Reverse((from, serial)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_others_send_counts() {
        let at = |millis: u64| Instant::ZERO + Duration::from_millis(millis);
        let lately = Duration::from_millis(5);
        let mut senders = Senders::default();
        assert!(!senders.are_others_since(1, at(0), lately));
        for millis in 10..20 {
            senders.note(1, at(millis));
        }
        assert!(!senders.are_others_since(1, at(20), lately), "itself");
        assert!(senders.are_others_since(2, at(20), lately));
        senders.note(2, at(21));
        assert!(senders.are_others_since(1, at(25), lately));
        assert!(senders.are_others_since(2, at(23), lately));
        assert!(!senders.are_others_since(2, at(24), lately), "too long ago");
        assert!(!senders.are_others_since(1, at(26), lately));
    }
}
