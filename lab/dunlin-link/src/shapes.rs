//! Plans of common shapes. In all of them the broker's host is called `broker`
//! and has the address of host `b` of a pair, and what goes up a link goes
//! towards it.

use core::net::Ipv4Addr;

use crate::profile::Profile;
use crate::side::Side;
use crate::topology::{Topology, TopologyError};

/// The host that the others talk to.
const BROKER: &str = "broker";

/// Clusters of the dumbbell, and clients in each.
const CLUSTERS: usize = 2;
const CLIENTS: usize = 5;

impl Topology {
    /// Hosts with these names and `broker` around the node `hub`, each joined
    /// by a link named after it.
    ///
    /// # Errors
    /// When names are taken or none, or there are too many.
    pub fn star(
        clients: &[&str],
        of_clients: &[Profile; 2],
        of_broker: &[Profile; 2],
    ) -> Result<Self, TopologyError> {
        let mut topology = Self::new();
        topology.node("hub")?;
        topology.broker()?;
        for client in clients {
            topology.host(client)?;
            topology.link(client, client, "hub", of_clients.clone())?;
        }
        topology.link(BROKER, "hub", BROKER, of_broker.clone())?;
        topology.check()?;
        Ok(topology)
    }

    /// The host `client`, this many links `l1`, `l2`, ..., and `broker`.
    ///
    /// # Errors
    /// When there is no link, or there are too many.
    pub fn chain(links: usize, profiles: &[Profile; 2]) -> Result<Self, TopologyError> {
        let mut topology = Self::new();
        topology.broker()?;
        topology.host("client")?;
        let mut from = "client".to_owned();
        for number in 1..=links {
            let to = if number == links {
                BROKER.to_owned()
            } else {
                let node = format!("n{number}");
                topology.node(&node)?;
                node
            };
            topology.link(&format!("l{number}"), &from, &to, profiles.clone())?;
            from = to;
        }
        topology.check()?;
        Ok(topology)
    }

    /// The network of Figure 5.1 and Listing B.1 of I. Nikitin's dissertation (2022), as far
    /// as packets to the broker see it: clients `c00` to `c04` at the node
    /// `s0`, `c10` to `c14` at `s1`, both nodes at `s9`, and from there the link
    /// `bottleneck` to `broker`. All links are alike, as in the dissertation: its
    /// links between the clients of a cluster are left out.
    ///
    /// # Errors
    /// Never, as its names are good.
    pub fn dumbbell(profiles: &[Profile; 2]) -> Result<Self, TopologyError> {
        let mut topology = Self::new();
        topology.node("s9")?;
        topology.broker()?;
        for (cluster, third) in (0..CLUSTERS).zip(1..) {
            let node = format!("s{cluster}");
            topology.node(&node)?;
            topology.link(&node, &node, "s9", profiles.clone())?;
            for (client, fourth) in (0..CLIENTS).zip(1..) {
                let name = format!("c{cluster}{client}");
                topology.host_at(&name, Ipv4Addr::new(10, 203, third, fourth))?;
                topology.link(&name, &name, &node, profiles.clone())?;
            }
        }
        topology.link("bottleneck", "s9", BROKER, profiles.clone())?;
        topology.check()?;
        Ok(topology)
    }

    fn broker(&mut self) -> Result<(), TopologyError> {
        self.host_at(BROKER, Self::pair_address(Side::B)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::network::Network;
    use crate::packet::tests::udp;

    fn slow() -> [Profile; 2] {
        let mut profile = Profile::default();
        profile.set("delay", "5ms").unwrap();
        [profile.clone(), profile]
    }

    /// Names and addresses of hosts, and how long packets take from the first
    /// to the broker.
    fn seen(topology: &Topology, from: &str) -> (Vec<String>, u128) {
        let hosts = topology.host_names().zip(topology.addresses());
        let hosts: Vec<String> = hosts.map(|(name, at)| format!("{name} {at}")).collect();
        let mut network = Network::new(topology, 1).unwrap();
        let from = topology.host_id(from).unwrap();
        let bytes = udp("10.203.0.1:9", "10.203.0.2:9", b"a");
        network.handle_packet(Duration::ZERO, from, bytes).unwrap();
        let exit = network.poll(Duration::MAX).unwrap();
        assert_eq!(exit.to, Some(topology.host_id("broker").unwrap()));
        (hosts, exit.due.as_millis())
    }

    #[test]
    fn a_star_has_a_link_for_each_host() {
        let fast = [Profile::default(), Profile::default()];
        let star = Topology::star(&["pub", "sub"], &slow(), &fast).unwrap();
        let (hosts, ms) = seen(&star, "sub");
        assert_eq!(
            hosts,
            ["broker 10.203.0.2", "pub 10.203.0.1", "sub 10.203.0.3"]
        );
        assert_eq!(ms, 5);
        let twice = Topology::star(&["pub", "pub"], &fast, &fast).unwrap_err();
        assert_eq!(twice.to_string(), "there are two called `pub`");
    }

    #[test]
    fn a_chain_has_its_links_in_a_row() {
        for links in [1, 4] {
            let chain = Topology::chain(links, &slow()).unwrap();
            let (hosts, ms) = seen(&chain, "client");
            assert_eq!(hosts, ["broker 10.203.0.2", "client 10.203.0.1"]);
            assert_eq!(ms, 5 * links as u128);
        }
        let none = Topology::chain(0, &slow()).unwrap_err();
        assert_eq!(none.to_string(), "the host `broker` has no link");
    }

    #[test]
    fn the_dumbbell_has_ten_clients_three_links_away() {
        let dumbbell = Topology::dumbbell(&slow()).unwrap();
        let (hosts, ms) = seen(&dumbbell, "c14");
        assert_eq!(hosts.len(), 11);
        assert_eq!(hosts[10], "c14 10.203.2.5");
        assert_eq!(ms, 15);
        assert_eq!(dumbbell.link_names().count(), 13);
    }
}
