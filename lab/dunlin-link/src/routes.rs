//! Ways through a network: for each place and each host, the next link.

use std::collections::VecDeque;

use crate::side::Side;
use crate::topology::{HostId, LinkId, Topology};

/// The next link to each host from each place.
#[derive(Debug)]
pub(crate) struct Routes {
    hosts: usize,
    /// By place, then by host.
    next: Vec<Option<(LinkId, Side)>>,
}

impl Routes {
    /// Ways with the fewest links, the earlier link first where two are equal.
    /// No way leads through a host, or over a link that is not `usable`.
    pub(crate) fn new(topology: &Topology, usable: impl Fn(LinkId) -> bool) -> Self {
        let hosts = topology.hosts().count();
        let mut routes = Self {
            hosts,
            next: vec![None; topology.place_count() * hosts],
        };
        for host in topology.hosts() {
            routes.find(topology, host, &usable);
        }
        routes
    }

    /// The link to take from a place to a host, and the end where it starts.
    pub(crate) fn next(&self, place: usize, to: HostId) -> Option<(LinkId, Side)> {
        *self.next.get(place * self.hosts + to.0)?
    }

    /// Goes outward from a host, link by link.
    fn find(&mut self, topology: &Topology, to: HostId, usable: &impl Fn(LinkId) -> bool) {
        let Some(start) = topology.place_of(to) else {
            return;
        };
        let mut waiting = VecDeque::from([start]);
        while let Some(place) = waiting.pop_front() {
            for (index, [a, b]) in topology.edges().enumerate() {
                let (other, side) = if a == place {
                    (b, Side::B)
                } else if b == place {
                    (a, Side::A)
                } else {
                    continue;
                };
                if !usable(LinkId(index)) {
                    continue;
                }
                let Some(next) = self.next.get_mut(other * self.hosts + to.0) else {
                    continue;
                };
                if other == start || next.is_some() {
                    continue;
                }
                *next = Some((LinkId(index), side));
                if topology.host_in(other).is_none() {
                    waiting.push_back(other);
                }
            }
        }
    }
}
