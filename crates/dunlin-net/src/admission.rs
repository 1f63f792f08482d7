//! Who may start a handshake: limits by address and in total, counted over all
//! loops of the process. It knows no socket; it only counts.
//!
//! Addresses are counted in tables behind locks, each held for a few map
//! operations and never two at a time; what has no limit takes no lock.

use core::hash::BuildHasher;
use core::net::{IpAddr, Ipv6Addr};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dunlin_base::Instant;

use crate::{Counters, NetLimits};

/// Tables over which addresses are spread, so that loops rarely wait for each
/// other.
const TABLES: usize = 16;

/// Addresses whose handshakes are counted within one second, in each table.
/// When it is full, further addresses pass uncounted until the second is over:
/// a flood from that many addresses is met by Retry and the pending limit
/// instead.
const RATE_ADDRESSES_MAX: usize = 65_536 / TABLES;

/// Length of the window in which handshakes are counted.
const RATE_WINDOW_MICROS: u64 = 1_000_000;

/// Bits of an IPv6 address that tell networks apart: a network has at least
/// 2^64 addresses to choose from (RFC 4291 section 2.5.4).
const V6_NETWORK_BITS: u32 = 64;

/// What is known of the address of a connection that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The client can receive there.
    Proved,
    /// It may be forged.
    Unproved,
    /// It is that of a proxy, of this process or of a Unix socket, and counts for nothing. That of a
    /// proxy's client is counted when it is known: [`Admission::admit_address`].
    Proxy,
}

impl Standing {
    /// Of a client without a proxy.
    pub(crate) const fn of_client(proved: bool) -> Self {
        if proved { Self::Proved } else { Self::Unproved }
    }
}

/// Why a connection may not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The process holds as many as it may.
    Full,
    /// Too many handshakes are going on.
    Pending,
    /// Its address has as many as it may.
    PerAddress,
    /// Its address began as many in this second as it may.
    Rate,
}

impl Refusal {
    /// Counts it.
    pub(crate) const fn count(self, counters: &mut Counters) {
        match self {
            Self::Full => counters.refused_full += 1,
            Self::Pending => counters.refused_pending += 1,
            Self::PerAddress => counters.refused_per_address += 1,
            Self::Rate => counters.refused_rate += 1,
        }
    }
}

/// Counts connections and handshakes of a process.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    live: AtomicUsize,
    pending: AtomicUsize,
    /// Bytes that peers have sent which are not known yet.
    unknown_bytes: AtomicUsize,
    hasher: RandomState,
    tables: [Mutex<Table>; TABLES],
}

#[derive(Debug, Default)]
struct Table {
    connections: HashMap<IpAddr, u32>,
    /// Handshakes begun in this window, by whether the address was proved:
    /// who forges an address uses up what is unproved only.
    begun: HashMap<IpAddr, [u32; 2]>,
    window: u64,
}

impl Admission {
    /// Handshakes that have begun and not ended.
    pub(crate) fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    /// Whether so many connections from `ip` are held that an unproved one
    /// should not take a further place: half of what it may have.
    pub(crate) fn is_crowded(&self, ip: IpAddr, limits: &NetLimits) -> bool {
        let max = limits.connections_per_address_max;
        max > 0 && {
            let network = network(ip);
            let table = self.table(network);
            table
                .connections
                .get(&network)
                .is_some_and(|n| *n >= max.div_ceil(2))
        }
    }

    /// Takes a place for one more connection from `ip`, or says why not.
    ///
    /// # Errors
    /// A limit is reached.
    pub(crate) fn admit(
        &self,
        ip: IpAddr,
        standing: Standing,
        now: Instant,
        limits: &NetLimits,
    ) -> Result<(), Refusal> {
        take(&self.live, limits.connections_max, Refusal::Full)?;
        let admitted = take(
            &self.pending,
            limits.handshakes_pending_max,
            Refusal::Pending,
        )
        .and_then(|()| {
            let proved = match standing {
                Standing::Proxy => return Ok(()),
                standing => standing == Standing::Proved,
            };
            self.admit_address(ip, proved, now, limits)
                .inspect_err(|_| give_back(&self.pending))
        });
        admitted.inspect_err(|_| give_back(&self.live))
    }

    /// Counts a connection that has its place already at an address.
    ///
    /// # Errors
    /// A limit of the address is reached.
    pub(crate) fn admit_address(
        &self,
        ip: IpAddr,
        proved: bool,
        now: Instant,
        limits: &NetLimits,
    ) -> Result<(), Refusal> {
        let network = network(ip);
        let (most, rate) = (
            limits.connections_per_address_max,
            limits.handshakes_per_address_per_second,
        );
        if most == 0 && rate == 0 {
            return Ok(());
        }
        let mut table = self.table(network);
        let held = table.connections.get(&network).copied().unwrap_or(0);
        if most > 0 && held >= most {
            return Err(Refusal::PerAddress);
        }
        if rate > 0 && !table.within_rate(network, proved, now, rate) {
            return Err(Refusal::Rate);
        }
        if most > 0 {
            table.connections.insert(network, held + 1);
        }
        Ok(())
    }

    /// Peers that are not known have sent so many bytes more; returns how many
    /// all of them have.
    pub(crate) fn add_unknown_bytes(&self, bytes: usize) -> usize {
        self.unknown_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    /// So many of them are of a peer that is known now, or gone.
    pub(crate) fn drop_unknown_bytes(&self, bytes: usize) {
        self.unknown_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// A handshake ended, well or not.
    pub(crate) fn handshake_over(&self) {
        give_back(&self.pending);
    }

    /// A connection that was admitted did not begin.
    pub(crate) fn withdraw(&self, ip: IpAddr, standing: Standing, limits: &NetLimits) {
        self.handshake_over();
        self.end(ip, limits.counts_addresses() && standing != Standing::Proxy);
    }

    /// A connection has proved another address and counts there from now on,
    /// also beyond the limit: a session is not ended because of its new
    /// neighbours, but no other is admitted from there until it is below.
    pub(crate) fn moved(
        &self,
        from: IpAddr,
        to: IpAddr,
        limits: &NetLimits,
        counters: &mut Counters,
    ) {
        let max = limits.connections_per_address_max;
        if max == 0 || network(from) == network(to) {
            return;
        }
        self.leave(from);
        let network = network(to);
        let mut table = self.table(network);
        let count = table.connections.entry(network).or_insert(0);
        *count += 1;
        counters.migrations_over_limit += u64::from(*count > max);
    }

    /// A connection is gone; it counted at its address or not.
    pub(crate) fn end(&self, ip: IpAddr, by_address: bool) {
        give_back(&self.live);
        if by_address {
            self.leave(ip);
        }
    }

    /// It does not count at an address any more.
    fn leave(&self, ip: IpAddr) {
        let network = network(ip);
        let mut table = self.table(network);
        if let Some(count) = table.connections.get_mut(&network) {
            *count -= 1;
            if *count == 0 {
                table.connections.remove(&network);
            }
        }
    }

    fn table(&self, network: IpAddr) -> MutexGuard<'_, Table> {
        let index = self.hasher.hash_one(network) as usize % TABLES;
        let [first, ..] = &self.tables;
        let table = self.tables.get(index).unwrap_or(first);
        // Counts are whole after every statement, so a panic elsewhere leaves
        // nothing half done.
        table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn within_rate(&mut self, network: IpAddr, proved: bool, now: Instant, max: u32) -> bool {
        let window = now.as_micros() / RATE_WINDOW_MICROS;
        if window != self.window {
            self.window = window;
            self.begun.clear();
        }
        if self.begun.len() >= RATE_ADDRESSES_MAX && !self.begun.contains_key(&network) {
            return true;
        }
        let [unproved, shown] = self.begun.entry(network).or_default();
        let count = if proved { shown } else { unproved };
        *count = count.saturating_add(1);
        *count <= max
    }
}

/// Takes one of `max` places.
fn take(places: &AtomicUsize, max: usize, refusal: Refusal) -> Result<(), Refusal> {
    if places.fetch_add(1, Ordering::Relaxed) < max {
        return Ok(());
    }
    give_back(places);
    Err(refusal)
}

fn give_back(places: &AtomicUsize) {
    places.fetch_sub(1, Ordering::Relaxed);
}

/// What is counted as one: an IPv4 address, an IPv6 network.
pub(crate) fn network(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(v6) => {
            let mask = u128::MAX << (128 - V6_NETWORK_BITS);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use std::sync::Arc;

    fn limits() -> NetLimits {
        NetLimits {
            connections_per_address_max: 2,
            handshakes_per_address_per_second: 3,
            handshakes_pending_max: 3,
            connections_max: 5,
            ..NetLimits::default()
        }
    }

    fn v4(n: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, n))
    }

    #[test]
    fn limits_count_by_address_and_second() {
        let limits = limits();
        let admission = Admission::default();
        let admit =
            |n, t| admission.admit(v4(n), Standing::Proved, Instant::from_micros(t), &limits);
        assert_eq!(admit(1, 0), Ok(()));
        assert!(admission.is_crowded(v4(1), &limits));
        assert!(!admission.is_crowded(v4(2), &limits));
        assert_eq!(admit(1, 0), Ok(()));
        assert_eq!(admit(1, 0), Err(Refusal::PerAddress));
        assert_eq!(admit(2, 0), Ok(()));
        assert_eq!(admit(3, 0), Err(Refusal::Pending));
        (0..3).for_each(|_| admission.handshake_over());
        assert_eq!(admit(3, 0), Ok(()));
        assert_eq!(admit(4, 0), Ok(()));
        assert_eq!(admit(5, 0), Err(Refusal::Full));
        admission.handshake_over();
        admission.end(v4(1), true);
        assert_eq!(admit(1, 5), Ok(()));
        admission.end(v4(1), true);
        admission.handshake_over();
        assert_eq!(admit(1, 6), Err(Refusal::Rate), "fourth in one second");
        assert_eq!(admit(1, RATE_WINDOW_MICROS), Ok(()));
        let mut counters = Counters::default();
        Refusal::Rate.count(&mut counters);
        assert_eq!(counters.refused_rate, 1);
    }

    #[test]
    fn forged_addresses_use_up_what_is_unproved_only() {
        let limits = limits();
        let admission = Admission::default();
        let admit = |proved| {
            let admitted = admission.admit(v4(1), proved, Instant::ZERO, &limits);
            if admitted.is_ok() {
                admission.handshake_over();
                admission.end(v4(1), true);
            }
            admitted
        };
        for _ in 0..3 {
            assert_eq!(admit(Standing::Unproved), Ok(()));
        }
        assert_eq!(admit(Standing::Unproved), Err(Refusal::Rate));
        assert_eq!(admit(Standing::Proved), Ok(()));
    }

    #[test]
    fn an_ipv6_network_counts_as_one() {
        let limits = limits();
        let admission = Admission::default();
        let admit = |text: &str| {
            let ip = text.parse().unwrap();
            admission.admit(ip, Standing::Proved, Instant::ZERO, &limits)
        };
        assert_eq!(admit("2001:db8::1"), Ok(()));
        assert_eq!(admit("2001:db8::ffff:0:0:1"), Ok(()));
        assert_eq!(admit("2001:db8::2"), Err(Refusal::PerAddress));
        assert_eq!(admit("2001:db8:0:1::2"), Ok(()));
    }

    #[test]
    fn loops_count_together_and_nothing_is_lost() {
        let limits = NetLimits {
            connections_per_address_max: 7,
            ..NetLimits::default()
        };
        let admission = Arc::new(Admission::default());
        let held: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let admit =
                            || admission.admit(v4(1), Standing::Proved, Instant::ZERO, &limits);
                        (0..100).filter(|_| admit().is_ok()).count()
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert_eq!((held, admission.pending()), (7, 7));
        for _ in 0..7 {
            admission.handshake_over();
            admission.end(v4(1), true);
        }
        assert_eq!(admission.pending(), 0);
        assert_eq!(admission.live.load(Ordering::Relaxed), 0);
        let empty = |table: &Mutex<Table>| table.lock().unwrap().connections.is_empty();
        assert!(admission.tables.iter().all(empty));
    }
}
