//! Plans of networks: shapes with names, and files.

use core::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use dunlin_link::{HOSTS_MAX, Topology};
use serde::Deserialize;

use crate::profile::{self, Both, in_line, perfect};

/// Clients of a star, and links of a chain, if nothing is said.
const CLIENTS: usize = 4;
const LINKS: usize = 3;

const SHAPES: &str = "pair, star, star:CLIENTS, chain, chain:LINKS, dumbbell";

/// The plan of this name, or in this file. Links that name no profile get this
/// one; in a star, the links of the clients do.
pub(crate) fn load(name: &str, both: &Both) -> Result<Topology> {
    let (shape, size) = match name.split_once(':') {
        Some((shape, size)) => (shape, size.parse().ok()),
        None => (name, None),
    };
    let sized = size.is_some() || !name.contains(':');
    Ok(match (shape, size) {
        ("pair", None) if sized => Topology::pair(both.clone()),
        ("dumbbell", None) if sized => Topology::dumbbell(both)?,
        ("star", size) if sized => {
            let names: Vec<String> = (1..=size.unwrap_or(CLIENTS).min(HOSTS_MAX))
                .map(|number| format!("c{number}"))
                .collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            Topology::star(&names, both, &perfect())?
        }
        ("chain", size) if sized => Topology::chain(size.unwrap_or(LINKS), both)?,
        _ => {
            if !name.ends_with(".toml") && !Path::new(name).is_file() {
                bail!("there is no topology `{name}`; there are {SHAPES}, or a TOML file");
            }
            let text =
                std::fs::read_to_string(name).with_context(|| format!("cannot read {name}"))?;
            read(&text, both).with_context(|| format!("in {name}"))?
        }
    })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plan {
    /// Names of places that pass packets on.
    #[serde(default)]
    nodes: Vec<String>,
    #[serde(default)]
    host: Vec<Host>,
    #[serde(default)]
    link: Vec<Edge>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Host {
    name: String,
    address: Option<Ipv4Addr>,
}

#[derive(Debug, Deserialize)]
struct Edge {
    /// That of its first end if not given.
    name: Option<String>,
    ends: [String; 2],
    profile: Option<String>,
    /// On top of the profile.
    #[serde(flatten)]
    settings: toml::Table,
}

fn read(text: &str, both: &Both) -> Result<Topology> {
    let plan: Plan = toml::from_str(text).map_err(|error| in_line(text, &error))?;
    let mut topology = Topology::new();
    for node in &plan.nodes {
        topology.node(node)?;
    }
    // Addresses that are given are not given to others.
    let (fixed, free): (Vec<&Host>, Vec<&Host>) =
        plan.host.iter().partition(|host| host.address.is_some());
    for host in fixed.into_iter().chain(free) {
        match host.address {
            Some(address) => topology.host_at(&host.name, address)?,
            None => topology.host(&host.name)?,
        };
    }
    for edge in &plan.link {
        let [from, to] = &edge.ends;
        let name = edge.name.as_ref().unwrap_or(from);
        let wrong = || format!("the link {name}");
        let profile = match &edge.profile {
            Some(profile) => profile::load(profile).with_context(wrong)?,
            None => both.clone(),
        };
        let profile = profile::apply(&edge.settings, profile).with_context(wrong)?;
        topology.link(name, from, to, profile)?;
    }
    topology.check()?;
    Ok(topology)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: &str = r#"
        nodes = ["hub"]

        [[host]]
        name = "lamp"

        [[host]]
        name = "broker"
        address = "10.203.0.1"

        [[link]]
        ends = ["lamp", "hub"]
        profile = "smart-home-zigbee"
        loss = "none"
        up.delay = "7ms"

        [[link]]
        name = "wan"
        ends = ["hub", "broker"]
    "#;

    #[test]
    fn a_file_is_read() {
        let topology = read(HOME, &profile::of(&["delay=1ms"]).unwrap()).unwrap();
        let hosts: Vec<&str> = topology.host_names().collect();
        assert_eq!(hosts, ["broker", "lamp"]);
        let addresses: Vec<String> = topology.addresses().map(|at| at.to_string()).collect();
        assert_eq!(addresses, ["10.203.0.1", "10.203.0.2"]);
        let delays = |link| {
            let profiles = topology.profiles(topology.link_id(link).unwrap()).unwrap();
            profiles.each_ref().map(|profile| profile.delay.as_millis())
        };
        assert_eq!((delays("lamp"), delays("wan")), ([7, 5], [1, 1]));
        let radio = topology
            .profiles(topology.link_id("lamp").unwrap())
            .unwrap();
        assert_eq!(radio[0].rate, Some(250_000));
        assert_eq!(radio[0].loss, dunlin_link::Loss::None);
    }

    #[test]
    fn shapes_have_names() {
        let hosts = |name: &str| load(name, &perfect()).unwrap().hosts().count();
        let names = ["pair", "star", "star:7", "chain", "chain:1", "dumbbell"];
        assert_eq!(names.map(hosts), [2, 5, 8, 2, 2, 11]);
    }

    #[test]
    fn what_is_no_topology_says_why() {
        let names = [
            ("ring", "there is no topology `ring`; there are pair, star,"),
            ("pair:2", "there is no topology `pair:2`"),
            ("star:many", "there is no topology `star:many`"),
            ("star:0", "a network has two hosts at least"),
            ("star:999999", "a network has at most 200 hosts"),
            ("chain:0", "the host `broker` has no link"),
            ("nowhere.toml", "cannot read nowhere.toml: No such file"),
        ];
        for (name, want) in names {
            let error = format!("{:#}", load(name, &perfect()).unwrap_err());
            assert!(error.contains(want), "{name}: {error}");
        }
        let changes = [
            (
                "[\"hub\", \"broker\"]",
                "[\"hub\", \"attic\"]",
                "there is no end `attic`",
            ),
            (
                "\"7ms\"",
                "\"soon\"",
                "the link lamp: delay: `soon` is no duration",
            ),
            ("zigbee", "zigbeee", "the link lamp: there is no profile"),
            ("loss =", "lost =", "there is no setting `lost`"),
            ("address =", "adress =", "line 9: unknown field `adress`"),
            (
                "10.203.0.1",
                "10.0.0.1",
                "`10.0.0.1` is no address of the network",
            ),
            ("\"wan\"", "\"up\"", "a link cannot be named `up`"),
            ("name = \"wan\"", "", "there are two called `hub`"),
            ("nodes", "knots", "unknown field `knots`"),
        ];
        for (from, to, want) in changes {
            let text = HOME.replacen(from, to, 1);
            // Two links without a name from the same place.
            let text = text.replace(
                "ends = [\"lamp\", \"hub\"]",
                match want {
                    "there are two called `hub`" => "ends = [\"hub\", \"lamp\"]",
                    _ => "ends = [\"lamp\", \"hub\"]",
                },
            );
            let error = format!("{:#}", read(&text, &perfect()).unwrap_err());
            assert!(error.contains(want), "{want}: {error}");
        }
    }
}
