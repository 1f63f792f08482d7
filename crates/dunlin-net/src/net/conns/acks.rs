//! Acknowledgements that wait, of all connections: those whose delay is nearly
//! over leave when other datagrams are sent, in one call with them.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use dunlin_base::Instant;
use dunlin_quic::AcksMut;

use super::super::env::Env;
use super::super::quic::QuicSlot;
use super::{Conns, mark};

/// Connections by the time from which on their acknowledgement may leave, each
/// once.
pub(in super::super) type WaitingAcks = BinaryHeap<Reverse<(Instant, u64)>>;

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
