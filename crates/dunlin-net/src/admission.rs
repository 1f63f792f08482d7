//! Who may start a handshake: limits by address and in total. It knows no
//! socket; it only counts.

use core::net::IpAddr;
use std::collections::HashMap;

use dunlin_base::Instant;

use crate::{Counters, NetLimits};

/// Addresses whose handshakes are counted within one second. When the table is
/// full, further addresses pass uncounted until the second is over: a flood
/// from that many addresses is met by Retry and the pending limit instead.
const RATE_ADDRESSES_MAX: usize = 65_536;

/// Length of the window in which handshakes are counted.
const RATE_WINDOW_MICROS: u64 = 1_000_000;

/// Counts connections and handshakes.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    per_address: HashMap<IpAddr, u32>,
    rate: HashMap<IpAddr, u32>,
    rate_window: u64,
    pending: usize,
}

impl Admission {
    /// Handshakes that have begun and not ended.
    pub(crate) const fn pending(&self) -> usize {
        self.pending
    }

    /// Whether one more connection from `ip` may begin; `live` are held now.
    pub(crate) fn admit(
        &mut self,
        ip: IpAddr,
        live: usize,
        now: Instant,
        limits: &NetLimits,
        counters: &mut Counters,
    ) -> bool {
        if live >= limits.connections_max {
            counters.refused_full += 1;
            return false;
        }
        if self.pending >= limits.handshakes_pending_max {
            counters.refused_pending += 1;
            return false;
        }
        let max = limits.connections_per_address_max;
        if max > 0 && self.per_address.get(&ip).is_some_and(|n| *n >= max) {
            counters.refused_per_address += 1;
            return false;
        }
        if !self.within_rate(ip, now, limits.handshakes_per_address_per_second) {
            counters.refused_rate += 1;
            return false;
        }
        true
    }

    /// An accepted connection begins.
    pub(crate) fn begin(&mut self, ip: IpAddr, limits: &NetLimits) {
        self.pending += 1;
        if limits.connections_per_address_max > 0 {
            *self.per_address.entry(ip).or_insert(0) += 1;
        }
    }

    /// Its handshake ended, well or not.
    pub(crate) fn handshake_over(&mut self) {
        self.pending = self.pending.saturating_sub(1);
    }

    /// It is gone.
    pub(crate) fn end(&mut self, ip: IpAddr) {
        if let Some(count) = self.per_address.get_mut(&ip) {
            *count -= 1;
            if *count == 0 {
                self.per_address.remove(&ip);
            }
        }
    }

    fn within_rate(&mut self, ip: IpAddr, now: Instant, max: u32) -> bool {
        if max == 0 {
            return true;
        }
        let window = now.as_micros() / RATE_WINDOW_MICROS;
        if window != self.rate_window {
            self.rate_window = window;
            self.rate.clear();
        }
        if let Some(count) = self.rate.get_mut(&ip) {
            *count = count.saturating_add(1);
            return *count <= max;
        }
        if self.rate.len() < RATE_ADDRESSES_MAX {
            self.rate.insert(ip, 1);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    #[test]
    fn limits_count_by_address_and_second() {
        let limits = NetLimits {
            connections_per_address_max: 2,
            handshakes_per_address_per_second: 3,
            handshakes_pending_max: 3,
            connections_max: 10,
            ..NetLimits::default()
        };
        let mut counters = Counters::default();
        let mut admission = Admission::default();
        let ip = |n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n));
        let at = Instant::from_micros;
        let mut admit = |a: &mut Admission, n, live, t| {
            let ok = a.admit(ip(n), live, at(t), &limits, &mut counters);
            if ok {
                a.begin(ip(n), &limits);
            }
            ok
        };
        assert!(admit(&mut admission, 1, 0, 0));
        assert!(admit(&mut admission, 1, 1, 0));
        assert!(!admit(&mut admission, 1, 2, 0), "third from one address");
        assert!(admit(&mut admission, 2, 2, 0));
        assert!(!admit(&mut admission, 3, 3, 0), "too many pending");
        for _ in 0..3 {
            admission.handshake_over();
        }
        assert!(!admit(&mut admission, 3, 10, 0), "full");
        admission.end(ip(1));
        assert!(admit(&mut admission, 1, 2, 5));
        admission.end(ip(1));
        assert!(!admit(&mut admission, 1, 2, 6), "fourth in one second");
        assert!(admit(&mut admission, 1, 2, RATE_WINDOW_MICROS));
        assert_eq!(counters.refused_per_address, 1);
        assert_eq!((counters.refused_pending, counters.refused_full), (1, 1));
        assert_eq!(counters.refused_rate, 1);
    }
}
