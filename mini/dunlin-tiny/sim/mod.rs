//! A deterministic network between the small client and a server of
//! quinn-proto, in virtual time: loss, reordering, duplication and corruption
//! from a seed. Shared by the tests and by the program of many runs.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::print_stderr)]

pub(crate) mod run;
pub(crate) mod server;

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use dunlin_mini_crypto::{CryptoError, Entropy, Host};

/// A small generator of numbers, good enough for faults (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xd1b5_4a32_d192_ed03)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.next() % n }
    }

    /// True in `per_mille` of 1000 cases.
    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }
}

impl Entropy for Rng {
    fn fill(&mut self, out: &mut [u8]) -> Result<(), CryptoError> {
        for byte in out {
            *byte = self.next().to_le_bytes()[0];
        }
        Ok(())
    }
}

/// The provider that the client of a run uses.
pub(crate) fn crypto(seed: u64) -> Host<Rng> {
    Host::new(Rng::new(seed ^ 0xc11e))
}

/// What the network does to datagrams; rates are per mille.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) loss: u64,
    pub(crate) duplicate: u64,
    pub(crate) corrupt: u64,
    /// Milliseconds of delay, and how many more at random: reordering.
    pub(crate) delay: u64,
    pub(crate) jitter: u64,
}

impl Faults {
    /// Everything at random, up to 30 % loss.
    pub(crate) fn random(rng: &mut Rng) -> Self {
        Self {
            loss: rng.below(301),
            duplicate: rng.below(101),
            corrupt: rng.below(101),
            delay: rng.below(100),
            jitter: rng.below(60),
        }
    }
}

/// Which way a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum To {
    Client,
    Server,
}

/// When it arrives, a number that keeps the order, whither, the client's port
/// and the bytes.
type Flight = (u64, u64, To, u16, Vec<u8>);

/// Datagrams under way.
pub(crate) struct Link {
    faults: Faults,
    rng: Rng,
    queue: BinaryHeap<Reverse<Flight>>,
    count: u64,
    /// Datagrams and bytes that were sent.
    pub(crate) datagrams: u64,
    pub(crate) bytes: u64,
}

impl Link {
    pub(crate) fn new(faults: Faults, seed: u64) -> Self {
        Self {
            faults,
            rng: Rng::new(seed ^ 0x11f7),
            queue: BinaryHeap::new(),
            count: 0,
            datagrams: 0,
            bytes: 0,
        }
    }

    /// Sends a datagram; `port` is the client's.
    pub(crate) fn send(&mut self, now: u64, to: To, port: u16, data: &[u8]) {
        self.datagrams += 1;
        self.bytes += data.len() as u64;
        let copies = 1 + u64::from(self.rng.chance(self.faults.duplicate));
        for _ in 0..copies {
            if self.rng.chance(self.faults.loss) {
                continue;
            }
            let mut data = data.to_vec();
            if self.rng.chance(self.faults.corrupt) {
                let at = usize::try_from(self.rng.below(data.len() as u64)).unwrap();
                data[at] ^= 1 << self.rng.below(8);
            }
            let at = now + self.faults.delay + self.rng.below(self.faults.jitter + 1);
            self.count += 1;
            self.queue.push(Reverse((at, self.count, to, port, data)));
        }
    }

    /// When the next datagram arrives.
    pub(crate) fn next_at(&self) -> Option<u64> {
        self.queue.peek().map(|Reverse((at, ..))| *at)
    }

    /// A datagram that has arrived.
    pub(crate) fn arrived(&mut self, now: u64) -> Option<(To, u16, Vec<u8>)> {
        if self.next_at()? > now {
            return None;
        }
        let Reverse((_, _, to, port, data)) = self.queue.pop()?;
        Some((to, port, data))
    }
}
