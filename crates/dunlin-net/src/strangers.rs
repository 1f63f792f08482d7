//! Peers that the application does not know yet, by address: how many there
//! are, in which order they came, and how many bytes they have sent. Where
//! there are too many, it says who makes room.

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::admission::network;

/// Oldest peers of an address that are looked at for one that is silent.
const LOOK_MAX: usize = 16;

/// A peer's place in the order of arrival.
pub(crate) type Ticket = core::num::NonZeroU64;

/// The unknown peers of one loop.
#[derive(Debug, Default)]
pub(crate) struct Strangers {
    last: u64,
    groups: HashMap<IpAddr, Group>,
    /// Number of peers and address of every group.
    ranks: BTreeSet<(usize, IpAddr)>,
}

/// Those of one IPv4 address or IPv6 network.
#[derive(Debug, Default)]
struct Group {
    peers: BTreeMap<Ticket, Peer>,
    bytes: usize,
}

#[derive(Debug)]
struct Peer {
    serial: u64,
    bytes: usize,
}

impl Strangers {
    pub(crate) fn enter(&mut self, ip: IpAddr, serial: u64) -> Ticket {
        self.last += 1;
        let ticket = Ticket::new(self.last).unwrap_or(Ticket::MIN);
        self.change(network(ip), |group| {
            group.peers.insert(ticket, Peer { serial, bytes: 0 });
        });
        ticket
    }

    /// A peer is known or gone; returns the bytes that it had sent.
    pub(crate) fn leave(&mut self, ip: IpAddr, ticket: Ticket) -> usize {
        let mut bytes = 0;
        self.change(network(ip), |group| {
            bytes = group.peers.remove(&ticket).map_or(0, |peer| peer.bytes);
            group.bytes = group.bytes.saturating_sub(bytes);
        });
        bytes
    }

    /// A peer has another address.
    pub(crate) fn move_to(&mut self, from: IpAddr, to: IpAddr, ticket: &mut Ticket) {
        let peer = self.groups.get(&network(from));
        let Some(serial) = peer.and_then(|g| Some(g.peers.get(ticket)?.serial)) else {
            return;
        };
        let bytes = self.leave(from, *ticket);
        *ticket = self.enter(to, serial);
        self.add_bytes(to, *ticket, bytes);
    }

    /// A peer has sent bytes; returns how many those of its address have sent.
    pub(crate) fn add_bytes(&mut self, ip: IpAddr, ticket: Ticket, bytes: usize) -> usize {
        let Some(group) = self.groups.get_mut(&network(ip)) else {
            return 0;
        };
        if let Some(peer) = group.peers.get_mut(&ticket) {
            peer.bytes += bytes;
            group.bytes += bytes;
        }
        group.bytes
    }

    /// Who makes room for a newcomer: the oldest of the address that has the
    /// most. At the newcomer's own address only one that is silent.
    pub(crate) fn victim(&self, ip: IpAddr, is_silent: impl Fn(u64) -> bool) -> Option<u64> {
        let own = network(ip);
        let (most, crowded) = self.ranks.last()?;
        let held = self.groups.get(&own).map_or(0, |group| group.peers.len());
        let mut oldest = self.groups.get(crowded)?.peers.values().map(|p| p.serial);
        if held < *most {
            return oldest.next();
        }
        let mut own = self.groups.get(&own)?.peers.values().map(|p| p.serial);
        own.by_ref()
            .take(LOOK_MAX)
            .find(|serial| is_silent(*serial))
    }

    fn change(&mut self, network: IpAddr, f: impl FnOnce(&mut Group)) {
        let group = self.groups.entry(network).or_default();
        self.ranks.remove(&(group.peers.len(), network));
        f(group);
        let now = group.peers.len();
        if now == 0 {
            self.groups.remove(&network);
        } else {
            self.ranks.insert((now, network));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_the_most_crowded_address_makes_room() {
        let [a, b] = [1, 2].map(|n| IpAddr::from([10, 0, 0, n]));
        let mut strangers = Strangers::default();
        let first = strangers.enter(a, 11);
        strangers.enter(a, 12);
        strangers.enter(b, 21);
        assert_eq!(strangers.victim(b, |_| false), Some(11));
        assert_eq!(strangers.victim(a, |_| false), None, "its own speak");
        assert_eq!(strangers.victim(a, |serial| serial == 12), Some(12));
        assert_eq!(strangers.add_bytes(a, first, 7), 7);
        assert_eq!(strangers.leave(a, first), 7);
        assert_eq!(strangers.leave(a, first), 0, "once");
        assert_eq!(strangers.victim(b, |_| false), None, "as many each");
        assert_eq!(strangers.victim(b, |_| true), Some(21));
    }
}
