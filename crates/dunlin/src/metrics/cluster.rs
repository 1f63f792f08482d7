//! What a node of a cluster counts: its links, what goes over them, the nodes by what they do.

use dunlin_bus::{BusTotals, Dropped, Lost, ROUND_TRIP_MICROS};

use super::text::Exposition;
use crate::control::values::{ClusterNode, NodeRole};
use crate::daemon::RelayedTotals;

/// At one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    /// All nodes.
    pub(crate) nodes: Vec<ClusterNode>,
    /// How often shards here and those of another node heard of each other.
    pub(crate) introductions: u64,
    pub(crate) bus: BusTotals,
    pub(crate) relayed: RelayedTotals,
}

const MICROS_OF_SECOND: f64 = 1e6;

pub(crate) fn metrics(out: &mut Exposition, view: &View) {
    nodes(out, view);
    links(out, &view.bus);
    traffic(out, &view.bus);
    for (outcome, count) in [
        ("passed", view.relayed.passed),
        ("dropped", view.relayed.dropped),
        ("gone", view.relayed.gone),
    ] {
        let labels = [("outcome", outcome)];
        let help = "Datagrams of QUIC that came to a node whose connection they are not for, \
                    and answers to them, by what became of them.";
        let name = "dunlin_cluster_datagrams_total";
        out.counter(name, help, &labels, count);
    }
}

fn nodes(out: &mut Exposition, view: &View) {
    let here = view.nodes.iter().find(|node| node.here);
    for role in NodeRole::ALL {
        let labels = [("role", role.name())];
        let count = view.nodes.iter().filter(|node| node.role == Some(role));
        let help = "Nodes of the cluster by what they do, as this one sees them.";
        let name = "dunlin_cluster_nodes";
        out.gauge(name, help, &labels, count.count() as f64);
        let is_own = here.is_some_and(|node| node.role == Some(role));
        let help = "Whether this node does that: 1 or 0.";
        let name = "dunlin_cluster_role";
        out.gauge(name, help, &labels, f64::from(u8::from(is_own)));
    }
    let help = "Nodes of the cluster, this one included, linked or not.";
    let members = view.nodes.len();
    out.gauge("dunlin_cluster_members", help, &[], members as f64);
    let help = "Times that shards here and those of another node were introduced.";
    let name = "dunlin_cluster_introductions_total";
    out.counter(name, help, &[], view.introductions);
    for node in &view.nodes {
        let number = node.node.to_string();
        let labels = [("node", number.as_str())];
        let mut show = |name, help, bytes: Option<u64>| {
            if let Some(bytes) = bytes {
                out.gauge(name, help, &labels, bytes as f64);
            }
        };
        show(
            "dunlin_cluster_link_waiting_bytes",
            "Bytes for another node that it has not handled yet.",
            node.waiting_bytes,
        );
        show(
            "dunlin_cluster_link_held_bytes",
            "Bytes of another node that are not handled here yet.",
            node.held_bytes,
        );
    }
}

fn links(out: &mut Exposition, bus: &BusTotals) {
    let help = "Links to other nodes.";
    out.gauge("dunlin_cluster_links", help, &[], bus.links as f64);
    let help = "Links that were made to other nodes.";
    out.counter("dunlin_cluster_links_made_total", help, &[], bus.linked);
    for cause in Lost::ALL {
        let labels = [("cause", cause.name())];
        let help = "Links to other nodes that were lost, by cause.";
        let name = "dunlin_cluster_links_lost_total";
        out.counter(name, help, &labels, bus.lost_by(cause));
    }
    let help = "Entries of nodes that did not answer, which this one ended.";
    out.counter("dunlin_cluster_evicted_total", help, &[], bus.evicted);
    let help = "Time from a heartbeat on a link to its answer.";
    let classes = ROUND_TRIP_MICROS.iter().zip(bus.by_time);
    let classes = classes.map(|(micros, count)| (*micros as f64 / MICROS_OF_SECOND, count));
    let sum = bus.round_trip_micros as f64 / MICROS_OF_SECOND;
    let name = "dunlin_cluster_round_trip_seconds";
    out.histogram(name, help, &[], classes, (sum, bus.round_trips));
}

fn traffic(out: &mut Exposition, bus: &BusTotals) {
    for (direction, messages, bytes, batches) in [
        ("out", bus.messages_sent, bus.bytes_sent, bus.batches_sent),
        (
            "in",
            bus.messages_received,
            bus.bytes_received,
            bus.batches_received,
        ),
    ] {
        let labels = [("direction", direction)];
        let help = "Messages of links: batches, greetings, heartbeats.";
        out.counter("dunlin_cluster_messages_total", help, &labels, messages);
        let help = "Bytes of these.";
        out.counter("dunlin_cluster_bytes_total", help, &labels, bytes);
        let help = "Batches in these: what a turn of a shard had for a node.";
        out.counter("dunlin_cluster_batches_total", help, &labels, batches);
    }
    for cause in Dropped::ALL {
        let labels = [("cause", cause.name())];
        let help = "Messages and entries of other nodes that had no effect, by cause.";
        let name = "dunlin_cluster_dropped_total";
        out.counter(name, help, &labels, bus.dropped_by(cause));
    }
}

#[cfg(test)]
pub(super) fn sample() -> View {
    use crate::control::values::NodeLink;
    let node = |node, role, waiting: Option<u64>| ClusterNode {
        node,
        name: format!("node-{node}"),
        here: waiting.is_none(),
        role,
        lease: false,
        addresses: Vec::new(),
        shards: 1,
        version: String::new(),
        since: None,
        behind_records: None,
        link: waiting.map(|_| NodeLink::Linked),
        link_seconds: waiting,
        waiting_bytes: waiting,
        held_bytes: waiting.map(|bytes| bytes + 1),
        round_trip_us: None,
    };
    View {
        nodes: vec![
            node(1, Some(NodeRole::Edge), None),
            node(2, Some(NodeRole::Home), Some(7)),
            node(3, Some(NodeRole::Edge), Some(0)),
        ],
        ..View::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_counted_by_what_they_do() {
        let mut out = Exposition::default();
        metrics(&mut out, &sample());
        let text = out.render();
        for line in [
            "dunlin_cluster_members 3",
            "dunlin_cluster_nodes{role=\"edge\"} 2",
            "dunlin_cluster_nodes{role=\"home\"} 1",
            "dunlin_cluster_nodes{role=\"standby\"} 0",
            "dunlin_cluster_role{role=\"edge\"} 1",
            "dunlin_cluster_role{role=\"home\"} 0",
            "dunlin_cluster_link_waiting_bytes{node=\"2\"} 7",
            "dunlin_cluster_link_held_bytes{node=\"2\"} 8",
            "dunlin_cluster_links_lost_total{cause=\"silence\"} 0",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
        assert!(!text.contains("waiting_bytes{node=\"1\"}"), "{text}");
    }
}
