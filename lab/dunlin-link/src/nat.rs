//! A NAT in front of one host, which can forget its mappings.
//!
//! Until the first rebinding it changes nothing. From then on each flow of the
//! host shows a port (and, if asked, an address) that the NAT chose, and what
//! is sent to ports of earlier bindings is dropped, as behind a home router
//! that was restarted.

use core::net::{Ipv4Addr, SocketAddrV4};
use std::collections::BTreeMap;

use crate::packet::{End, FlowKey, Packet};
use crate::random::Random;

/// Mappings held; the oldest goes first.
const MAPPINGS_MAX: usize = 4096;

/// The ports that mappings use: from here to the last.
const FIRST_PORT: u16 = 20_000;

/// The NAT of one host.
#[derive(Debug)]
pub struct Nat {
    random: Random,
    rebound: bool,
    outside: Option<Ipv4Addr>,
    by_host: BTreeMap<FlowKey, FlowKey>,
    by_outside: BTreeMap<FlowKey, FlowKey>,
    order: std::collections::VecDeque<FlowKey>,
}

impl Nat {
    /// A NAT that changes nothing yet.
    #[must_use]
    pub const fn new(random: Random) -> Self {
        Self {
            random,
            rebound: false,
            outside: None,
            by_host: BTreeMap::new(),
            by_outside: BTreeMap::new(),
            order: std::collections::VecDeque::new(),
        }
    }

    /// Forgets all mappings. Flows get new ports when they send next, and this
    /// address, if one is given.
    pub fn rebind(&mut self, address: Option<Ipv4Addr>) {
        self.rebound = true;
        if address.is_some() {
            self.outside = address;
        }
        self.by_host.clear();
        self.by_outside.clear();
        self.order.clear();
    }

    /// Gives a packet that the host sent its outside look.
    pub fn outbound(&mut self, bytes: &mut [u8]) {
        if !self.rebound {
            return;
        }
        let Some(mut packet) = Packet::new(bytes) else {
            return;
        };
        let host = packet.source();
        let outside = match self.by_host.get(&host) {
            Some(outside) => *outside,
            None => self.map(host),
        };
        packet.set_end(End::Source, outside.end);
    }

    /// Finds the host's end for a packet from outside; false if there is none.
    pub fn inbound(&self, bytes: &mut [u8]) -> bool {
        if !self.rebound {
            return true;
        }
        let Some(mut packet) = Packet::new(bytes) else {
            return false;
        };
        match self.by_outside.get(&packet.destination()) {
            Some(host) => {
                packet.set_end(End::Destination, host.end);
                true
            }
            None => false,
        }
    }

    fn map(&mut self, host: FlowKey) -> FlowKey {
        if self.order.len() >= MAPPINGS_MAX
            && let Some(oldest) = self.order.pop_front()
            && let Some(outside) = self.by_host.remove(&oldest)
        {
            self.by_outside.remove(&outside);
        }
        let address = self.outside.unwrap_or_else(|| *host.end.ip());
        // The table is far smaller than the range, so this ends soon.
        let outside = loop {
            let port = if host.end.port() == 0 {
                0
            } else {
                let range = u64::from(u16::MAX - FIRST_PORT) + 1;
                #[expect(clippy::cast_possible_truncation, reason = "below the range")]
                let offset = self.random.below(range) as u16;
                FIRST_PORT + offset
            };
            let outside = FlowKey {
                end: SocketAddrV4::new(address, port),
                ..host
            };
            if port == 0 || !self.by_outside.contains_key(&outside) {
                break outside;
            }
        };
        self.by_host.insert(host, outside);
        self.by_outside.insert(outside, host);
        self.order.push_back(host);
        outside
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::tests::{residue, udp};

    const HOST: &str = "10.0.0.1:5000";
    const PEER: &str = "10.0.0.2:14567";

    #[test]
    fn rebinding_changes_what_the_peer_sees() {
        let mut nat = Nat::new(Random::new(5));
        let mut before = udp(HOST, PEER, b"a");
        nat.outbound(&mut before);
        assert_eq!(before, udp(HOST, PEER, b"a"));
        assert!(nat.inbound(&mut udp(PEER, HOST, b"b")));

        let mut seen = Vec::new();
        for _ in 0..3 {
            nat.rebind(None);
            assert!(!nat.inbound(&mut udp(PEER, HOST, b"b")), "old mapping");
            let mut out = udp(HOST, PEER, b"a");
            nat.outbound(&mut out);
            assert_eq!(residue(&out), 0);
            let outside = Packet::new(&out).unwrap().source().end;
            assert_eq!(outside.ip(), &Ipv4Addr::new(10, 0, 0, 1));
            let mut again = udp(HOST, PEER, b"c");
            nat.outbound(&mut again);
            assert_eq!(Packet::new(&again).unwrap().source().end, outside);
            let mut answer = udp(PEER, &outside.to_string(), b"d");
            assert!(nat.inbound(&mut answer));
            assert_eq!(answer, udp(PEER, HOST, b"d"));
            seen.push(outside);
        }
        seen.dedup();
        assert_eq!(seen.len(), 3);
    }

    #[test]
    fn a_new_address_stays() {
        let mut nat = Nat::new(Random::new(5));
        let address = Ipv4Addr::new(10, 0, 0, 50);
        nat.rebind(Some(address));
        nat.rebind(None);
        let mut out = udp(HOST, PEER, b"a");
        nat.outbound(&mut out);
        assert_eq!(Packet::new(&out).unwrap().source().end.ip(), &address);
    }

    #[test]
    fn the_table_is_bounded() {
        let mut nat = Nat::new(Random::new(5));
        nat.rebind(None);
        for host in 0..2 * MAPPINGS_MAX {
            let from = format!("10.1.{}.{}:700", host / 256, host % 256);
            nat.outbound(&mut udp(&from, PEER, b"a"));
        }
        assert_eq!(nat.by_host.len(), MAPPINGS_MAX);
        assert_eq!(nat.by_outside.len(), MAPPINGS_MAX);
        assert_eq!(nat.order.len(), MAPPINGS_MAX);
    }
}
