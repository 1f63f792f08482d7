//! Devices of a fleet: which of them sleep between messages, which of them move
//! to other local addresses, and the session tickets that each keeps.

use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dunlin_net::SessionTickets;
use serde::Serialize;

use super::stats::{Summary, Tally};

/// Tickets that a device keeps; a broker gives two with each connection.
const TICKETS_MAX: usize = 4;

/// Devices of one thread that can move at most: each has a socket of its own, and
/// two while it moves.
pub const MOVING_MAX: usize = 400;

/// A part of the devices, in hundredths of a percent, spread evenly over them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share(u64);

impl Share {
    /// All of them.
    const WHOLE: u64 = 10_000;

    /// From a percentage; `None` if it is not from 0 to 100.
    #[must_use]
    pub fn percent(percent: f64) -> Option<Self> {
        let valid = (0.0..=100.0).contains(&percent);
        valid.then(|| Self((percent * 100.0).round() as u64))
    }

    /// How many of the first `n` belong to it.
    #[must_use]
    pub const fn of(self, n: usize) -> usize {
        (n as u64 * self.0 / Self::WHOLE) as usize
    }

    /// Whether number `n` belongs to it.
    #[must_use]
    pub const fn holds(self, n: usize) -> bool {
        self.of(n + 1) > self.of(n)
    }
}

/// What devices do beside publishing and subscribing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fleet {
    /// Publishers that have a connection only while there is something to publish.
    pub sleeping: Share,
    /// Of the others and of the subscribers: those that move.
    pub moving: Share,
    /// Time between two moves of a device.
    pub move_every: Duration,
}

impl Fleet {
    /// Whether a publisher sleeps.
    #[must_use]
    pub const fn sleeps(&self, publisher: usize) -> bool {
        self.sleeping.holds(publisher)
    }

    /// Whether a client of this kind moves.
    #[must_use]
    pub const fn moves(&self, kind: char, number: usize) -> bool {
        match kind {
            'p' if self.sleeps(number) => false,
            'p' => self.moving.holds(number - self.sleeping.of(number)),
            _ => self.moving.holds(number),
        }
    }

    /// How many of so many publishers and subscribers move.
    #[must_use]
    pub const fn movers(&self, publishers: usize, subscribers: usize) -> usize {
        let awake = publishers - self.sleeping.of(publishers);
        self.moving.of(awake) + self.moving.of(subscribers)
    }
}

/// What the devices of a fleet did in the measured window.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Publishers and subscribers.
    pub devices: usize,
    /// Those that slept between messages.
    pub sleeping: usize,
    /// Those that moved.
    pub moving: usize,
    /// Connections made to publish what was due.
    pub wakes: u64,
    /// Those whose CONNECT left as early data, which the broker took.
    pub early_data_accepted: u64,
    /// Those whose early data the broker refused.
    pub early_data_refused: u64,
    /// From dialling to CONNACK.
    pub wake: Summary,
    /// Moves of connections to other local addresses.
    pub moves: u64,
    /// Moves that did not come about.
    pub moves_failed: u64,
}

impl Report {
    pub(super) fn new(
        fleet: &Fleet,
        (publishers, subscribers): (usize, usize),
        tally: &Tally,
    ) -> Self {
        let seen = &tally.devices;
        Self {
            devices: publishers + subscribers,
            sleeping: fleet.sleeping.of(publishers),
            moving: fleet.movers(publishers, subscribers),
            wakes: seen.wakes,
            early_data_accepted: seen.early_data_accepted,
            early_data_refused: seen.early_data_refused,
            wake: tally.wake.summary(),
            moves: seen.moves,
            moves_failed: seen.moves_failed,
        }
    }
}

/// Session tickets of one device.
#[derive(Debug, Default)]
pub(super) struct Tickets(Mutex<Vec<Vec<u8>>>);

impl Tickets {
    fn kept(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept().is_empty()
    }
}

impl SessionTickets for Tickets {
    fn insert(&self, ticket: Vec<u8>) {
        let mut kept = self.kept();
        if kept.len() >= TICKETS_MAX {
            kept.remove(0);
        }
        kept.push(ticket);
    }

    fn take(&self) -> Option<Vec<u8>> {
        // The newest is good for longest.
        self.kept().pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_spread_and_who_sleeps_does_not_move() {
        let share = |percent| Share::percent(percent).unwrap();
        assert_eq!((Share::percent(100.1), Share::percent(-1.0)), (None, None));
        let third = share(33.0);
        assert_eq!((0..100).filter(|n| third.holds(*n)).count(), 33);
        assert!((0..97).all(|n| (n..n + 4).any(|n| third.holds(n))));
        let fleet = Fleet {
            sleeping: share(50.0),
            moving: share(50.0),
            move_every: Duration::from_secs(1),
        };
        let moving = |kind| (0..100).filter(move |n| fleet.moves(kind, *n));
        assert_eq!((moving('p').count(), moving('s').count()), (25, 50));
        assert_eq!(fleet.movers(100, 100), 75);
        assert!(moving('p').all(|n| !fleet.sleeps(n)));
    }

    #[test]
    fn a_device_keeps_its_newest_tickets() {
        let tickets = Tickets::default();
        (0..9u8).for_each(|n| tickets.insert(vec![n]));
        let taken: Vec<_> = core::iter::from_fn(|| tickets.take()).collect();
        assert_eq!(taken, [[8], [7], [6], [5]]);
        assert!(tickets.is_empty());
    }
}
