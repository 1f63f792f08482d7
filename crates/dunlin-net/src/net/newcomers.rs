//! QUIC clients whose first packet has come and whose handshake waits for its
//! turn. A handshake costs as much as thousands of datagrams of a connection that
//! stands, so that few begin in one turn of the loop; the others wait here.

use core::net::SocketAddr;
use std::collections::VecDeque;

use dunlin_quic::Incoming;

/// Handshakes of QUIC that begin in one turn of the loop.
pub(crate) const BEGUN_MAX: usize = 8;

/// Clients that wait for their turn: so many that have proved their address, and as
/// many others.
pub(crate) const WAITING_MAX: usize = 256;

/// Handshakes begun in this turn, and who waits.
#[derive(Debug, Default)]
pub(super) struct Newcomers {
    begun: usize,
    proved: VecDeque<Newcomer>,
    others: VecDeque<Newcomer>,
}

/// A client that waits.
#[derive(Debug)]
pub(super) struct Newcomer {
    /// The endpoint that it came to.
    pub(super) source: usize,
    pub(super) incoming: Incoming,
    /// It has sent early data.
    pub(super) early: bool,
}

impl Newcomers {
    /// A turn begins.
    pub(super) const fn begin_turn(&mut self) {
        self.begun = 0;
    }

    /// Takes one of the turn's places, unless others wait for it.
    pub(super) fn take_place(&mut self) -> bool {
        let free = self.begun < BEGUN_MAX && self.is_empty();
        self.begun += usize::from(free);
        free
    }

    /// Has a client wait; it comes back if there is no room.
    pub(super) fn wait(&mut self, newcomer: Newcomer) -> Option<Newcomer> {
        let queue = match newcomer.incoming.is_proved() {
            true => &mut self.proved,
            false => &mut self.others,
        };
        if queue.len() >= WAITING_MAX {
            return Some(newcomer);
        }
        queue.push_back(newcomer);
        None
    }

    /// The next that may begin in this turn: first those whose address is proved.
    pub(super) fn next(&mut self) -> Option<Newcomer> {
        if self.begun >= BEGUN_MAX {
            return None;
        }
        let next = self.proved.pop_front();
        let next = next.or_else(|| self.others.pop_front())?;
        self.begun += 1;
        Some(next)
    }

    /// Early data came from an address, for one that waits if there is one.
    pub(super) fn note_early_data(&mut self, remote: SocketAddr) {
        let mut waiting = self.proved.iter_mut().chain(&mut self.others);
        if let Some(newcomer) = waiting.find(|waiting| waiting.incoming.remote() == remote) {
            newcomer.early = true;
        }
    }

    /// Takes all that wait.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Newcomer> {
        let (proved, others) = (&mut self.proved, &mut self.others);
        core::mem::take(proved)
            .into_iter()
            .chain(core::mem::take(others))
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.proved.len() + self.others.len()
    }

    /// Whether none waits.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
