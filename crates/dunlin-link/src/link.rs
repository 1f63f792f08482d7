//! Two directions, a NAT before each host, and the chance behind all of it.

use core::net::Ipv4Addr;
use core::time::Duration;

use serde::Serialize;

use crate::counters::{Counters, Fate};
use crate::nat::Nat;
use crate::packet::Packet;
use crate::pipe::Pipe;
use crate::profile::Profile;
use crate::random::Random;

/// One of the two hosts of a link. By custom A is the client.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The client's host.
    A,
    /// The server's host.
    B,
}

impl Side {
    /// Both, in order.
    pub const BOTH: [Self; 2] = [Self::A, Self::B];

    /// The host at the other end.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    /// `a` or `b`.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Self::A => 'a',
            Self::B => 'b',
        }
    }
}

/// A packet at the end of its way.
#[derive(Debug)]
#[non_exhaustive]
pub struct Delivered {
    /// The host that it is for.
    pub to: Side,
    /// When it was to arrive.
    pub due: Duration,
    /// The packet.
    pub bytes: Vec<u8>,
    /// [`Fate::Left`], or why the NAT dropped it.
    pub fate: Fate,
}

/// A link between two hosts.
///
/// Call [`handle_packet`](Self::handle_packet) with what the hosts send,
/// [`poll`](Self::poll) until it gives nothing, then wait until
/// [`next_timeout`](Self::next_timeout). Time is counted from the start of the
/// link and does not go back.
#[derive(Debug)]
pub struct Link {
    from_a: Pipe,
    from_b: Pipe,
    nat_a: Nat,
    nat_b: Nat,
}

impl Link {
    /// A perfect link, whose chances all come from this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let random = Random::new(seed);
        Self {
            from_a: Pipe::new(&random.split(1)),
            from_b: Pipe::new(&random.split(2)),
            nat_a: Nat::new(random.split(3)),
            nat_b: Nat::new(random.split(4)),
        }
    }

    /// What happens to packets from this host.
    #[must_use]
    pub const fn profile(&self, from: Side) -> &Profile {
        self.pipe(from).profile()
    }

    /// The counters of packets from this host.
    #[must_use]
    pub const fn counters(&self, from: Side) -> &Counters {
        &self.pipe(from).counters
    }

    /// When the next packet arrives.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Duration> {
        let times = [self.from_a.next_timeout(), self.from_b.next_timeout()];
        times.into_iter().flatten().min()
    }

    /// Takes a packet that a host sent, or gives it back with the reason of its
    /// drop.
    ///
    /// # Errors
    /// When the packet is dropped.
    pub fn handle_packet(
        &mut self,
        now: Duration,
        from: Side,
        mut bytes: Vec<u8>,
    ) -> Result<(), (Fate, Vec<u8>)> {
        if Packet::new(&bytes[..]).is_none() {
            let counters = &mut self.pipe_mut(from).counters;
            counters.entered(bytes.len());
            counters.dropped(Fate::NotIp);
            return Err((Fate::NotIp, bytes));
        }
        self.nat_mut(from).outbound(&mut bytes);
        self.pipe_mut(from).handle_packet(now, bytes)
    }

    /// Changes what happens to packets from this host from now on.
    pub fn set_profile(&mut self, from: Side, profile: &Profile) {
        self.pipe_mut(from).set_profile(profile);
    }

    /// The NAT before a host forgets its mappings.
    pub fn rebind(&mut self, side: Side, address: Option<Ipv4Addr>) {
        self.nat_mut(side).rebind(address);
    }

    /// A packet whose time has come.
    pub fn poll(&mut self, now: Duration) -> Option<Delivered> {
        let from = Side::BOTH
            .into_iter()
            .filter_map(|side| Some((self.pipe(side).next_timeout()?, side)))
            .min()?
            .1;
        let (due, mut bytes) = self.pipe_mut(from).poll(now)?;
        let to = from.other();
        let known = self.nat_mut(to).inbound(&mut bytes);
        let counters = &mut self.pipe_mut(from).counters;
        let fate = if known { Fate::Left } else { Fate::NoMapping };
        if known {
            counters.left(bytes.len());
        } else {
            counters.dropped(fate);
        }
        Some(Delivered {
            to,
            due,
            bytes,
            fate,
        })
    }

    const fn pipe(&self, from: Side) -> &Pipe {
        match from {
            Side::A => &self.from_a,
            Side::B => &self.from_b,
        }
    }

    const fn pipe_mut(&mut self, from: Side) -> &mut Pipe {
        match from {
            Side::A => &mut self.from_a,
            Side::B => &mut self.from_b,
        }
    }

    const fn nat_mut(&mut self, side: Side) -> &mut Nat {
        match side {
            Side::A => &mut self.nat_a,
            Side::B => &mut self.nat_b,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::tests::udp;

    #[test]
    fn a_rebinding_loses_only_what_is_on_its_way_to_the_old_port() {
        let mut link = Link::new(1);
        let mut profile = Profile::default();
        profile.set("delay", "10ms").unwrap();
        for side in Side::BOTH {
            link.set_profile(side, &profile);
        }
        let ms = Duration::from_millis(1);
        let there = udp("10.0.0.1:5000", "10.0.0.2:9", b"there");
        let back = udp("10.0.0.2:9", "10.0.0.1:5000", b"back");
        link.handle_packet(ms, Side::B, back).unwrap();
        link.handle_packet(ms * 2, Side::A, there.clone()).unwrap();
        link.rebind(Side::A, None);
        link.handle_packet(ms * 3, Side::A, there).unwrap();
        let mut fates = Vec::new();
        while let Some(packet) = link.poll(ms * 20) {
            let from = Packet::new(&packet.bytes[..]).unwrap().source().end.port();
            fates.push((packet.to, packet.fate, from == 5000));
        }
        assert_eq!(
            fates,
            [
                (Side::A, Fate::NoMapping, false),
                (Side::B, Fate::Left, true),
                (Side::B, Fate::Left, false),
            ]
        );
        assert_eq!(link.counters(Side::B).no_mapping, 1);
        assert_eq!(link.counters(Side::A).packets_out, 2);
        assert_eq!(link.next_timeout(), None);
    }

    #[test]
    fn what_is_not_ipv4_does_not_pass() {
        let mut link = Link::new(1);
        let refused = link.handle_packet(Duration::ZERO, Side::A, vec![0x60; 40]);
        assert!(matches!(refused, Err((Fate::NotIp, _))));
        assert_eq!(link.counters(Side::A).not_ip, 1);
    }
}
