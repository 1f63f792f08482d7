//! Hosts, the nodes between them, and the links that join them: a plan that a
//! [`Network`](crate::Network) follows. Knows names and addresses, no packets.

use core::net::Ipv4Addr;

use thiserror::Error;

use crate::profile::Profile;
use crate::script::{Action, Script};
use crate::side::Side;

/// Hosts of one network; each is a namespace with a device.
pub const HOSTS_MAX: usize = 200;

/// Hosts and nodes of one network.
const PLACES_MAX: usize = 400;

/// Links of one network.
const LINKS_MAX: usize = 800;

/// Longest name of a host, node or link.
const NAME_BYTES_MAX: usize = 24;

/// The network of all addresses.
const NETWORK: Ipv4Addr = Ipv4Addr::new(10, 203, 0, 0);

/// Bits of an address that all hosts share.
pub(crate) const PREFIX_LEN: u8 = 16;

/// Words that scripts have for directions, so no link can be called that.
const RESERVED: [&str; 2] = ["up", "down"];

/// A host of a network, in the order in which hosts were added.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct HostId(pub(crate) usize);

impl HostId {
    /// Its number, from 0.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0
    }
}

/// A link of a network, in the order in which links were added.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct LinkId(pub(crate) usize);

impl LinkId {
    /// Its number, from 0.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0
    }
}

/// Why there can be no such network.
#[derive(Clone, Debug, Eq, PartialEq, Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// Names are parts of names of namespaces and of scripts.
    #[error(
        "`{0}` is no name: use up to {NAME_BYTES_MAX} lower case letters, digits and underscores"
    )]
    Name(String),
    /// `up` and `down` are directions.
    #[error("a link cannot be named `{0}`, which is a direction")]
    Reserved(String),
    /// A name is used already.
    #[error("there are two called `{0}`")]
    Twice(String),
    /// An address is used already.
    #[error("two hosts have the address {0}")]
    AddressTwice(Ipv4Addr),
    /// An address that no other host would reach.
    #[error("`{0}` is no address of the network: choose one from 10.203.0.1 to 10.203.255.254")]
    Address(Ipv4Addr),
    /// A name is used by none.
    #[error("there is no {what} `{name}`; there are {known}")]
    Unknown {
        /// `host`, `link` or `end`.
        what: &'static str,
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// Both ends of a link are the same.
    #[error("the link `{0}` goes from a place to itself")]
    Loop(String),
    /// A host without a link reaches no other.
    #[error("the host `{0}` has no link")]
    Alone(String),
    /// Too little for a network.
    #[error("a network has two hosts at least")]
    TooFew,
    /// Too many of something.
    #[error("a network has at most {limit} {what}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },
}

/// A place where links end.
#[derive(Clone, Debug)]
struct Place {
    name: String,
    /// `None` for a node, which only passes packets on.
    host: Option<HostId>,
}

/// A host of a plan.
#[derive(Clone, Copy, Debug)]
struct Station {
    place: usize,
    address: Ipv4Addr,
}

/// A link of a plan.
#[derive(Clone, Debug)]
struct Edge {
    name: String,
    /// Places at [`Side::A`] and [`Side::B`].
    ends: [usize; 2],
    /// What happens to packets from each end.
    profiles: [Profile; 2],
}

/// A plan of a network.
///
/// Packets take the way with the fewest links, of several the one over the link
/// that was added first; they never pass through a host, and nodes take no time.
/// [`Action::Reroute`] has them go around links that carry nothing. What goes up a link goes from its first to its
/// second end.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    places: Vec<Place>,
    hosts: Vec<Station>,
    links: Vec<Edge>,
}

impl Topology {
    /// An empty plan.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Hosts `a` and `b`, and the link `link` between them.
    #[must_use]
    pub fn pair(profiles: [Profile; 2]) -> Self {
        let place = |side: Side| Place {
            name: side.letter().to_string(),
            host: Some(HostId(side as usize)),
        };
        let station = |side: Side| Station {
            place: side as usize,
            address: Self::pair_address(side),
        };
        Self {
            places: Side::BOTH.map(place).to_vec(),
            hosts: Side::BOTH.map(station).to_vec(),
            links: vec![Edge {
                name: "link".to_owned(),
                ends: [0, 1],
                profiles,
            }],
        }
    }

    /// The address of a host of [`Self::pair`].
    #[must_use]
    pub const fn pair_address(side: Side) -> Ipv4Addr {
        match side {
            Side::A => Ipv4Addr::new(10, 203, 0, 1),
            Side::B => Ipv4Addr::new(10, 203, 0, 2),
        }
    }

    /// Adds a host with the lowest address that is free: 10.203.0.1 is the
    /// first.
    ///
    /// # Errors
    /// When the name is taken or none, or there are too many.
    pub fn host(&mut self, name: &str) -> Result<HostId, TopologyError> {
        let mut number = NETWORK.to_bits() + 1;
        // There are fewer hosts than addresses, so this ends.
        while self.addresses().any(|address| address.to_bits() == number) {
            number += 1;
        }
        self.host_at(name, Ipv4Addr::from_bits(number))
    }

    /// Adds a host with an address from 10.203.0.1 to 10.203.255.254.
    ///
    /// # Errors
    /// When the name is taken or none, or the address, or there are too many.
    pub fn host_at(&mut self, name: &str, address: Ipv4Addr) -> Result<HostId, TopologyError> {
        let number = address.to_bits() ^ NETWORK.to_bits();
        if !(1..u32::MAX >> PREFIX_LEN).contains(&number) {
            return Err(TopologyError::Address(address));
        }
        if self.addresses().any(|taken| taken == address) {
            return Err(TopologyError::AddressTwice(address));
        }
        if self.hosts.len() >= HOSTS_MAX {
            return Err(TopologyError::TooMany {
                what: "hosts",
                limit: HOSTS_MAX,
            });
        }
        let host = HostId(self.hosts.len());
        let place = self.place(name, Some(host))?;
        self.hosts.push(Station { place, address });
        Ok(host)
    }

    /// Adds a node, which passes packets from link to link.
    ///
    /// # Errors
    /// When the name is taken or none, or there are too many.
    pub fn node(&mut self, name: &str) -> Result<(), TopologyError> {
        self.place(name, None).map(drop)
    }

    fn place(&mut self, name: &str, host: Option<HostId>) -> Result<usize, TopologyError> {
        check_name(name)?;
        if self.places.iter().any(|place| place.name == name) {
            return Err(TopologyError::Twice(name.to_owned()));
        }
        if self.places.len() >= PLACES_MAX {
            return Err(TopologyError::TooMany {
                what: "hosts and nodes",
                limit: PLACES_MAX,
            });
        }
        self.places.push(Place {
            name: name.to_owned(),
            host,
        });
        Ok(self.places.len() - 1)
    }

    /// Joins two places, with what happens to packets from the first and from
    /// the second.
    ///
    /// # Errors
    /// When an end is missing, the name is taken or none, or there are too many.
    pub fn link(
        &mut self,
        name: &str,
        from: &str,
        to: &str,
        profiles: [Profile; 2],
    ) -> Result<LinkId, TopologyError> {
        check_name(name)?;
        if RESERVED.contains(&name) {
            return Err(TopologyError::Reserved(name.to_owned()));
        }
        if self.links.iter().any(|link| link.name == name) {
            return Err(TopologyError::Twice(name.to_owned()));
        }
        if self.links.len() >= LINKS_MAX {
            return Err(TopologyError::TooMany {
                what: "links",
                limit: LINKS_MAX,
            });
        }
        let ends = [self.end(from)?, self.end(to)?];
        if ends[0] == ends[1] {
            return Err(TopologyError::Loop(name.to_owned()));
        }
        self.links.push(Edge {
            name: name.to_owned(),
            ends,
            profiles,
        });
        Ok(LinkId(self.links.len() - 1))
    }

    fn end(&self, name: &str) -> Result<usize, TopologyError> {
        let found = self.places.iter().position(|place| place.name == name);
        found.ok_or_else(|| unknown("end", name, self.places.iter().map(|p| &*p.name)))
    }

    /// Whether it is a network: hosts, each with a link.
    ///
    /// # Errors
    /// When it is none.
    pub fn check(&self) -> Result<(), TopologyError> {
        if self.hosts.len() < 2 {
            return Err(TopologyError::TooFew);
        }
        for (host, name) in self.hosts.iter().zip(self.host_names()) {
            if !self
                .links
                .iter()
                .any(|link| link.ends.contains(&host.place))
            {
                return Err(TopologyError::Alone(name.to_owned()));
            }
        }
        Ok(())
    }

    /// Whether all links and hosts that a script names are there.
    ///
    /// # Errors
    /// With the first that is not.
    pub fn check_script(&self, script: &Script) -> Result<(), TopologyError> {
        script
            .actions()
            .try_for_each(|action| self.check_action(action))
    }

    /// Whether what an action names is there.
    ///
    /// # Errors
    /// When it is not.
    pub fn check_action(&self, action: &Action) -> Result<(), TopologyError> {
        match action {
            Action::Set { link, .. } => match link {
                Some(link) => self.link_id(link).map(drop),
                None => Ok(()),
            },
            Action::Rebind { host, .. }
            | Action::Move { host, .. }
            | Action::Add { host, .. }
            | Action::Remove { host, .. } => self.host_id(host).map(drop),
            Action::Reroute => Ok(()),
        }
    }

    /// Changes a setting of one link or of all before the network starts. What
    /// concerns hosts waits for a running network and changes nothing here.
    ///
    /// # Errors
    /// When what the action names is not there.
    pub fn apply(&mut self, action: &Action) -> Result<(), TopologyError> {
        self.check_action(action)?;
        if let Action::Set {
            link,
            from,
            name,
            value,
        } = action
        {
            let meant = |edge: &&mut Edge| link.as_ref().is_none_or(|link| *link == edge.name);
            for edge in self.links.iter_mut().filter(meant) {
                for (side, profile) in Side::BOTH.into_iter().zip(&mut edge.profiles) {
                    if from.is_none_or(|from| from == side) {
                        // It was tried when it was read.
                        let _ = profile.set(name, value);
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives one link, or all, these profiles, for packets from the first and
    /// from the second end.
    ///
    /// # Errors
    /// When there is no such link.
    pub fn set_profiles(
        &mut self,
        link: Option<&str>,
        profiles: &[Profile; 2],
    ) -> Result<(), TopologyError> {
        let only = link.map(|link| self.link_id(link)).transpose()?;
        for (index, edge) in self.links.iter_mut().enumerate() {
            if only.is_none_or(|only| only.0 == index) {
                edge.profiles = profiles.clone();
            }
        }
        Ok(())
    }

    /// The host of this name.
    ///
    /// # Errors
    /// When there is none.
    pub fn host_id(&self, name: &str) -> Result<HostId, TopologyError> {
        let found = self.host_names().position(|host| host == name);
        found
            .map(HostId)
            .ok_or_else(|| unknown("host", name, self.host_names()))
    }

    /// The link of this name.
    ///
    /// # Errors
    /// When there is none.
    pub fn link_id(&self, name: &str) -> Result<LinkId, TopologyError> {
        let found = self.links.iter().position(|link| link.name == name);
        found
            .map(LinkId)
            .ok_or_else(|| unknown("link", name, self.link_names()))
    }

    /// All hosts.
    pub fn hosts(&self) -> impl Iterator<Item = HostId> + use<> {
        (0..self.hosts.len()).map(HostId)
    }

    /// All links.
    pub fn links(&self) -> impl Iterator<Item = LinkId> + use<> {
        (0..self.links.len()).map(LinkId)
    }

    /// Names of hosts, in order.
    pub fn host_names(&self) -> impl Iterator<Item = &str> {
        let place = |host: &Station| self.places.get(host.place);
        let places = self.hosts.iter().filter_map(place);
        places.map(|place| &*place.name)
    }

    /// Names of links, in order.
    pub fn link_names(&self) -> impl Iterator<Item = &str> {
        self.links.iter().map(|link| &*link.name)
    }

    /// The name of a host.
    #[must_use]
    pub fn host_name(&self, host: HostId) -> Option<&str> {
        self.host_names().nth(host.0)
    }

    /// The name of a link.
    #[must_use]
    pub fn link_name(&self, link: LinkId) -> Option<&str> {
        self.links.get(link.0).map(|link| &*link.name)
    }

    /// Names of the places that a link joins.
    #[must_use]
    pub fn ends(&self, link: LinkId) -> Option<[&str; 2]> {
        let [a, b] = self.links.get(link.0)?.ends;
        Some([&self.places.get(a)?.name, &self.places.get(b)?.name])
    }

    /// What happens to packets from the ends of a link.
    #[must_use]
    pub fn profiles(&self, link: LinkId) -> Option<&[Profile; 2]> {
        self.links.get(link.0).map(|link| &link.profiles)
    }

    /// The addresses of hosts at the start, in order.
    pub fn addresses(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.hosts.iter().map(|host| host.address)
    }

    pub(crate) fn place_of(&self, host: HostId) -> Option<usize> {
        self.hosts.get(host.0).map(|host| host.place)
    }

    pub(crate) fn host_in(&self, place: usize) -> Option<HostId> {
        self.places.get(place).and_then(|place| place.host)
    }

    pub(crate) const fn place_count(&self) -> usize {
        self.places.len()
    }

    /// The places that links join, in the order of links.
    pub(crate) fn edges(&self) -> impl Iterator<Item = [usize; 2]> {
        self.links.iter().map(|link| link.ends)
    }
}

fn check_name(name: &str) -> Result<(), TopologyError> {
    let usable = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(usable) {
        return Err(TopologyError::Name(name.to_owned()));
    }
    Ok(())
}

fn unknown<'a>(
    what: &'static str,
    name: &str,
    known: impl Iterator<Item = &'a str>,
) -> TopologyError {
    TopologyError::Unknown {
        what,
        name: name.to_owned(),
        known: known.collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn perfect() -> [Profile; 2] {
        [Profile::default(), Profile::default()]
    }

    #[test]
    fn what_is_no_network_says_why() {
        let mut topology = Topology::new();
        assert_eq!(topology.check(), Err(TopologyError::TooFew));
        topology.host("x").unwrap();
        topology.host("y").unwrap();
        topology.node("n").unwrap();
        topology.link("xn", "x", "n", perfect()).unwrap();
        let mut says = Vec::new();
        let mut say = |error: TopologyError| says.push(error.to_string());
        say(topology.check().unwrap_err());
        say(topology.host("x").unwrap_err());
        say(topology.node("Big").unwrap_err());
        say(topology.host(&"x".repeat(25)).unwrap_err());
        say(topology.link("up", "x", "n", perfect()).unwrap_err());
        say(topology.link("xn", "x", "n", perfect()).unwrap_err());
        say(topology.link("nn", "n", "n", perfect()).unwrap_err());
        say(topology.link("xz", "x", "z", perfect()).unwrap_err());
        for address in [
            [10, 203, 0, 0],
            [10, 203, 255, 255],
            [10, 204, 0, 1],
            [10, 203, 0, 2],
        ] {
            say(topology.host_at("z", address.into()).unwrap_err());
        }
        say(topology.set_profiles(Some("zz"), &perfect()).unwrap_err());
        let names = "use up to 24 lower case letters, digits and underscores";
        let addresses = "choose one from 10.203.0.1 to 10.203.255.254";
        assert_eq!(
            says,
            [
                "the host `y` has no link".to_owned(),
                "there are two called `x`".to_owned(),
                format!("`Big` is no name: {names}"),
                format!("`{}` is no name: {names}", "x".repeat(25)),
                "a link cannot be named `up`, which is a direction".to_owned(),
                "there are two called `xn`".to_owned(),
                "the link `nn` goes from a place to itself".to_owned(),
                "there is no end `z`; there are x, y, n".to_owned(),
                format!("`10.203.0.0` is no address of the network: {addresses}"),
                format!("`10.203.255.255` is no address of the network: {addresses}"),
                format!("`10.204.0.1` is no address of the network: {addresses}"),
                "two hosts have the address 10.203.0.2".to_owned(),
                "there is no link `zz`; there are xn".to_owned(),
            ]
        );
    }

    #[test]
    fn sizes_are_bounded() {
        let mut topology = Topology::new();
        for host in 0..HOSTS_MAX {
            topology.host(&format!("h{host}")).unwrap();
        }
        let error = topology.host("more").unwrap_err();
        assert_eq!(error.to_string(), "a network has at most 200 hosts");
        for node in 0..PLACES_MAX - HOSTS_MAX {
            topology.node(&format!("n{node}")).unwrap();
        }
        let error = topology.node("more").unwrap_err();
        assert_eq!(
            error.to_string(),
            "a network has at most 400 hosts and nodes"
        );
        for link in 0..LINKS_MAX {
            topology
                .link(&format!("l{link}"), "h0", "h1", perfect())
                .unwrap();
        }
        let error = topology.link("more", "h0", "h1", perfect()).unwrap_err();
        assert_eq!(error.to_string(), "a network has at most 800 links");
    }

    #[test]
    fn settings_wait_for_the_start() {
        let mut topology = Topology::pair(perfect());
        for action in ["delay=9ms", "link.up.delay=8ms", "rebind a"] {
            topology.apply(&Action::parse(action).unwrap()).unwrap();
        }
        let [up, down] = topology.profiles(LinkId(0)).unwrap();
        assert_eq!([up.delay.as_millis(), down.delay.as_millis()], [8, 9]);
        let unknown = Action::parse("wan.delay=1ms").unwrap();
        assert!(topology.apply(&unknown).is_err());
    }

    #[test]
    fn a_network_knows_whether_it_has_what_a_script_names() {
        let topology = Topology::pair(perfect());
        assert_eq!(
            topology.check_script(&Script::parse("1s rebind a\n2s link.loss=1%").unwrap()),
            Ok(())
        );
        for (script, want) in [
            ("1s rebind c", "there is no host `c`; there are a, b"),
            ("1s wan.loss=1%", "there is no link `wan`; there are link"),
        ] {
            let error = topology.check_script(&Script::parse(script).unwrap());
            assert_eq!(error.unwrap_err().to_string(), want);
        }
    }
}
