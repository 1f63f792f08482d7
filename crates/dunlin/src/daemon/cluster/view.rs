//! What a node knows of its cluster, for operators.

use std::sync::Arc;

use dunlin_bus::{Bus, BusMetrics, Member, Peer};

use super::frame::Run;
use super::{Inner, Nodes};
use crate::control::cluster::Known;
use crate::control::values::{ClusterNode, NodeLink, NodeRole};
use crate::metrics::text::Exposition;
use crate::metrics::{LogView, LogViews, cluster};

/// This node as a member.
#[derive(Debug)]
pub(super) struct Joined {
    member: Arc<Member>,
    metrics: Arc<BusMetrics>,
}

impl Nodes {
    /// This node is a member.
    pub(in crate::daemon) fn joined(&self, bus: &Bus) {
        let joined = Joined {
            member: Arc::clone(bus.member()),
            metrics: bus.metrics(),
        };
        // It joins once.
        let _ = self.joined.set(joined);
    }

    /// What this node is to the log that is the store, from now on.
    pub(in crate::daemon) fn set_log(&self, log: LogViews) {
        self.lock().log = Some(log);
    }
}

impl Known for Nodes {
    fn nodes(&self) -> Vec<ClusterNode> {
        let Some(own) = self.joined.get() else {
            return Vec::new();
        };
        let inner = self.lock();
        let log = inner.log.as_ref().map(|view| view()).unwrap_or_default();
        let mut rows = vec![inner.own(&own.member, log)];
        rows.extend(inner.members.values().map(|it| inner.other(it, log)));
        rows.sort_by_key(|row| row.node);
        rows
    }

    fn log(&self) -> Option<LogViews> {
        self.lock().log.clone()
    }

    fn metrics(&self, out: &mut Exposition) {
        let Some(own) = self.joined.get() else {
            return;
        };
        let view = cluster::View {
            nodes: self.nodes(),
            introductions: self.lock().introductions,
            bus: own.metrics.totals(),
            relayed: self.relayed.totals(),
        };
        cluster::metrics(out, &view);
    }
}

impl Inner {
    /// The node that answers.
    fn own(&self, member: &Member, log: LogView) -> ClusterNode {
        let role = role(member.node.get(), self.roster.own());
        ClusterNode {
            here: true,
            role: Some(role),
            lease: log.holds_lease,
            behind_records: Some(log.behind),
            ..described(member)
        }
    }

    /// Another one.
    fn other(&self, member: &Member, log: LogView) -> ClusterNode {
        let number = member.node.get();
        let peer = self.peers.get(&number);
        let role = peer.map(|_| role(number, self.roster.served_by(number)));
        ClusterNode {
            role,
            // The log has one owner, and the lease.
            lease: role == Some(NodeRole::Home) && log.is_lease_of_other,
            link: Some(peer.map_or(NodeLink::Lost, |_| NodeLink::Linked)),
            link_seconds: peer.map(|peer| peer.age().as_secs()),
            waiting_bytes: peer.map(|peer| peer.load() as u64),
            held_bytes: peer.map(Peer::held),
            round_trip_us: peer.and_then(round_trip_us),
            ..described(member)
        }
    }
}

fn round_trip_us(peer: &Peer) -> Option<u64> {
    u64::try_from(peer.round_trip()?.as_micros()).ok()
}

/// What a node does that serves this.
fn role(node: u16, run: Option<&Run>) -> NodeRole {
    match run {
        Some(run) if run.is_home_at(node) => NodeRole::Home,
        Some(_) => NodeRole::Edge,
        None => NodeRole::Standby,
    }
}

/// What a member says about itself.
fn described(member: &Member) -> ClusterNode {
    let about = &member.about;
    ClusterNode {
        node: member.node.get(),
        name: about.name.clone(),
        here: false,
        role: None,
        lease: false,
        addresses: about.addresses.clone(),
        shards: about.shards,
        version: about.version.clone(),
        since: Some(about.since).filter(|since| *since > 0),
        behind_records: None,
        link: None,
        link_seconds: None,
        waiting_bytes: None,
        held_bytes: None,
        round_trip_us: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::Home;
    use super::*;

    #[test]
    fn what_a_node_does_is_said_by_what_it_serves() {
        let run = Run {
            number: 10,
            home: Home { node: 1, run: 10 },
            shards: 2,
        };
        assert_eq!(role(1, Some(&run)), NodeRole::Home);
        assert_eq!(role(2, Some(&run)), NodeRole::Edge);
        // It was an edge of a run of the home before.
        let edge = Run { number: 11, ..run };
        assert_eq!(role(1, Some(&edge)), NodeRole::Edge);
        assert_eq!(role(1, None), NodeRole::Standby);
    }
}
