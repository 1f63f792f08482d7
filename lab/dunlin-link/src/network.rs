//! Packets on their ways through a network: from host to link, from link to
//! link at nodes, from the last link to a host, with a NAT before each host.

use core::net::Ipv4Addr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use crate::counters::{Counters, Fate};
use crate::nat::Nat;
use crate::packet::Packet;
use crate::pipe::{Arrived, Pipe};
use crate::profile::Profile;
use crate::random::Random;
use crate::routes::Routes;
use crate::script::Action;
use crate::side::Side;
use crate::topology::{HostId, LinkId, Topology, TopologyError};

/// A packet at the end of its way.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Exit {
    /// When it got there.
    pub due: Duration,
    /// The host that it is for; `None` if no host has its address.
    pub to: Option<HostId>,
    /// The link on which it came, or was dropped.
    pub link: Option<LinkId>,
    /// [`Fate::Left`], or why it was dropped.
    pub fate: Fate,
    /// The packet.
    pub bytes: Vec<u8>,
}

/// A link at work.
#[derive(Debug)]
struct Joint {
    /// From A and from B.
    pipes: [Pipe; 2],
    /// The places at A and at B.
    ends: [usize; 2],
}

impl Joint {
    const fn pipe(&mut self, from: Side) -> &mut Pipe {
        let [a, b] = &mut self.pipes;
        match from {
            Side::A => a,
            Side::B => b,
        }
    }
}

/// A host at work.
#[derive(Debug)]
struct Station {
    place: usize,
    nat: Nat,
    /// The address that it got last.
    address: Ipv4Addr,
}

/// Hosts, nodes and links at work. Sans-IO and deterministic.
///
/// Call [`handle_packet`](Self::handle_packet) with what hosts send,
/// [`poll`](Self::poll) until it gives nothing, then wait until
/// [`next_timeout`](Self::next_timeout). Time is counted from the start of the
/// network and does not go back. However late it is called, packets pass from
/// link to link at the times that the links gave them.
#[derive(Debug)]
pub struct Network {
    topology: Topology,
    routes: Routes,
    links: Vec<Joint>,
    hosts: Vec<Station>,
    /// Who has an address.
    owners: BTreeMap<Ipv4Addr, HostId>,
    /// What reached its end and waits to be polled.
    exits: VecDeque<Exit>,
}

impl Network {
    /// A network of this plan, whose chances all come from this seed.
    ///
    /// # Errors
    /// When the plan is no network.
    pub fn new(topology: &Topology, seed: u64) -> Result<Self, TopologyError> {
        topology.check()?;
        let random = Random::new(seed);
        let mut purpose = 0;
        let mut split = || {
            purpose += 1;
            random.split(purpose)
        };
        let hosts: Vec<Station> = topology
            .hosts()
            .zip(topology.addresses())
            .filter_map(|(host, address)| {
                Some(Station {
                    place: topology.place_of(host)?,
                    nat: Nat::new(split()),
                    address,
                })
            })
            .collect();
        let links = topology
            .edges()
            .map(|ends| Joint {
                pipes: [Pipe::new(&split()), Pipe::new(&split())],
                ends,
            })
            .collect();
        let owners = topology.addresses().zip(topology.hosts()).collect();
        let mut network = Self {
            topology: topology.clone(),
            routes: Routes::new(topology, |_| true),
            links,
            hosts,
            owners,
            exits: VecDeque::new(),
        };
        for index in 0..network.links.len() {
            if let Some([a, b]) = topology.profiles(LinkId(index)) {
                network.set_profile(LinkId(index), Side::A, a);
                network.set_profile(LinkId(index), Side::B, b);
            }
        }
        Ok(network)
    }

    /// The plan that it follows, with the profiles of the start.
    #[must_use]
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// What happens now to packets from an end of a link.
    #[must_use]
    pub fn profile(&self, link: LinkId, from: Side) -> Option<&Profile> {
        let joint = self.links.get(link.0)?;
        Some(joint.pipes[from as usize].profile())
    }

    /// The counters of packets from an end of a link. Packets that never came
    /// onto a link, as their addresses belong to no host, count at the first link
    /// of the host.
    #[must_use]
    pub fn counters(&self, link: LinkId, from: Side) -> Option<&Counters> {
        let joint = self.links.get(link.0)?;
        Some(&joint.pipes[from as usize].counters)
    }

    /// Changes what happens to packets from an end of a link from now on.
    pub fn set_profile(&mut self, link: LinkId, from: Side, profile: &Profile) {
        if let Some(joint) = self.links.get_mut(link.0) {
            joint.pipe(from).set_profile(profile);
        }
    }

    /// When the next packet gets to the end of a link.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Duration> {
        match self.exits.front() {
            Some(exit) => Some(exit.due),
            None => self.earliest().map(|(due, ..)| due),
        }
    }

    /// Takes a packet that a host sent.
    ///
    /// # Errors
    /// When it is dropped at once.
    pub fn handle_packet(
        &mut self,
        now: Duration,
        from: HostId,
        mut bytes: Vec<u8>,
    ) -> Result<(), Box<Exit>> {
        self.advance(now);
        let to = match Packet::new(&bytes[..]) {
            Some(packet) => self.owner(from, *packet.destination().end.ip()),
            None => return Err(self.refuse(now, from, None, Fate::NotIp, bytes)),
        };
        let Some(station) = self.hosts.get_mut(from.0) else {
            return Err(self.refuse(now, from, None, Fate::NoRoute, bytes));
        };
        let place = station.place;
        let next = to.and_then(|to| Some((to, self.routes.next(place, to)?)));
        let Some((to, (link, side))) = next else {
            return Err(self.refuse(now, from, to, Fate::NoRoute, bytes));
        };
        station.nat.outbound(&mut bytes);
        self.enter(now, to, link, side, bytes).map_err(Box::new)
    }

    /// A packet that has left the network or was dropped in it.
    pub fn poll(&mut self, now: Duration) -> Option<Exit> {
        if self.exits.is_empty() {
            self.advance(now);
        }
        self.exits.pop_front()
    }

    /// Does what an action says, as far as it concerns packets. The addresses
    /// of the hosts themselves are not the network's.
    ///
    /// # Errors
    /// When what the action names is not there.
    pub fn apply(&mut self, action: &Action) -> Result<(), TopologyError> {
        match action {
            Action::Set {
                link,
                from,
                name,
                value,
            } => {
                let only = link.as_ref().map(|link| self.topology.link_id(link));
                let only = only.transpose()?;
                let meant = |(index, _): &(usize, _)| only.is_none_or(|only| only.0 == *index);
                for (_, joint) in self.links.iter_mut().enumerate().filter(meant) {
                    for side in Side::BOTH {
                        if from.is_none_or(|from| from == side) {
                            joint.pipe(side).set(name, value);
                        }
                    }
                }
            }
            Action::Rebind { host, address } => {
                let id = self.topology.host_id(host)?;
                if let Some(station) = self.hosts.get_mut(id.0) {
                    station.nat.rebind(*address);
                }
                self.owners.extend(address.map(|address| (address, id)));
            }
            Action::Move { host, address } => {
                let id = self.topology.host_id(host)?;
                if let Some(station) = self.hosts.get_mut(id.0) {
                    let old = core::mem::replace(&mut station.address, *address);
                    self.disown(id, old);
                }
                self.owners.insert(*address, id);
            }
            Action::Add { host, address } => {
                let id = self.topology.host_id(host)?;
                if let Some(station) = self.hosts.get_mut(id.0) {
                    station.address = *address;
                }
                self.owners.insert(*address, id);
            }
            Action::Reroute => {
                let usable = |link: LinkId| {
                    let joint = self.links.get(link.0);
                    let holes = |joint: &Joint| joint.pipes.iter().all(|it| it.profile().blackhole);
                    !joint.is_some_and(holes)
                };
                self.routes = Routes::new(&self.topology, usable);
            }
            Action::Remove { host, address } => {
                let id = self.topology.host_id(host)?;
                self.disown(id, *address);
            }
        }
        Ok(())
    }

    fn disown(&mut self, host: HostId, address: Ipv4Addr) {
        if self.owners.get(&address) == Some(&host) {
            self.owners.remove(&address);
        }
    }

    /// Who has an address. Of two hosts it is always the other.
    fn owner(&self, from: HostId, address: Ipv4Addr) -> Option<HostId> {
        if self.hosts.len() == 2 {
            return Some(HostId(1 - from.0.min(1)));
        }
        self.owners.get(&address).copied()
    }

    /// Counts a packet that never comes onto a link.
    fn refuse(
        &mut self,
        now: Duration,
        from: HostId,
        to: Option<HostId>,
        fate: Fate,
        bytes: Vec<u8>,
    ) -> Box<Exit> {
        let place = self.hosts.get(from.0).map(|host| host.place);
        let at = |(index, joint): (usize, &Joint)| {
            let side = Side::BOTH
                .into_iter()
                .find(|side| Some(joint.ends[*side as usize]) == place)?;
            Some((index, side))
        };
        let first = self.links.iter().enumerate().find_map(at);
        if let Some((index, side)) = first
            && let Some(joint) = self.links.get_mut(index)
        {
            let counters = &mut joint.pipe(side).counters;
            counters.entered(bytes.len());
            counters.dropped(fate);
        }
        Box::new(Exit {
            due: now,
            to,
            link: None,
            fate,
            bytes,
        })
    }

    fn enter(
        &mut self,
        at: Duration,
        to: HostId,
        link: LinkId,
        from: Side,
        bytes: Vec<u8>,
    ) -> Result<(), Exit> {
        let exit = |fate, bytes| Exit {
            due: at,
            to: Some(to),
            link: Some(link),
            fate,
            bytes,
        };
        match self.links.get_mut(link.0) {
            Some(joint) => joint
                .pipe(from)
                .handle_packet(at, to, bytes)
                .map_err(|(fate, bytes)| exit(fate, bytes)),
            None => Err(exit(Fate::NoRoute, bytes)),
        }
    }

    /// When, on which link and from which end the next packet arrives.
    fn earliest(&self) -> Option<(Duration, usize, Side)> {
        let both = |(index, joint): (usize, &Joint)| {
            let [a, b] = joint.pipes.each_ref().map(Pipe::next_timeout);
            let a = a.map(|due| (due, index, Side::A));
            let b = b.map(|due| (due, index, Side::B));
            a.into_iter().chain(b).min()
        };
        self.links.iter().enumerate().filter_map(both).min()
    }

    /// Passes packets on in the order of their times, up to now.
    fn advance(&mut self, now: Duration) {
        while let Some((due, index, side)) = self.earliest()
            && due <= now
        {
            let Some(joint) = self.links.get_mut(index) else {
                return;
            };
            let place = joint.ends[side.other() as usize];
            let Some(arrived) = joint.pipe(side).poll(now) else {
                return;
            };
            if let Some(exit) = self.arrive(LinkId(index), side, place, arrived) {
                self.exits.push_back(exit);
            }
        }
    }

    /// A packet at the end of a link: it is at its host, or goes on.
    fn arrive(&mut self, link: LinkId, from: Side, place: usize, arrived: Arrived) -> Option<Exit> {
        let Arrived { due, to, mut bytes } = arrived;
        let mut fate = Fate::Left;
        if self.topology.host_in(place) == Some(to) {
            let known = self.hosts.get(to.0)?.nat.inbound(&mut bytes);
            if !known {
                fate = Fate::NoMapping;
            }
        } else if self.routes.next(place, to).is_none() {
            fate = Fate::NoRoute;
        }
        let counters = &mut self.links.get_mut(link.0)?.pipe(from).counters;
        if fate == Fate::Left {
            counters.left(bytes.len());
        } else {
            counters.dropped(fate);
        }
        if fate == Fate::Left && self.topology.host_in(place) != Some(to) {
            let (link, side) = self.routes.next(place, to)?;
            return self.enter(due, to, link, side, bytes).err();
        }
        Some(Exit {
            due,
            to: Some(to),
            link: Some(link),
            fate,
            bytes,
        })
    }
}

#[cfg(test)]
mod tests;
