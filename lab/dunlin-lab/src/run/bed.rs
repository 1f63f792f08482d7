//! The network of paper 000: a subscriber and a publisher that reach a broker.

use core::net::Ipv4Addr;
use std::path::PathBuf;

use anyhow::Result;
use dunlin_link::linux::{Namespace, Testbed, TestbedOptions};
use dunlin_link::{Action, Topology};

use super::{congestion, validity};
use crate::link::start_testbed;
use crate::profile;

/// Its three testbeds, which are profiles too.
pub(crate) const TESTBEDS: [&str; 3] = ["wired", "wireless", "long-distance"];

/// Hosts.
pub(crate) const SUBSCRIBER: &str = "subscriber";
pub(crate) const PUBLISHER: &str = "publisher";
pub(crate) const BROKER: &str = "broker";

/// Where their links meet.
const SWITCH: &str = "switch";

/// The network while it runs. A link has the name of its host.
#[derive(Debug)]
pub(crate) struct Bed {
    testbed: Testbed,
}

impl Bed {
    /// Starts one of [`TESTBEDS`].
    pub(crate) fn start(testbed: &str, seed: u64, capture: Option<PathBuf>) -> Result<Self> {
        let (near, far) = match testbed {
            "long-distance" => ("wired", testbed),
            _ => (testbed, testbed),
        };
        let mut topology = Topology::new();
        topology.node(SWITCH)?;
        // The second host has the address of the certificate.
        for (host, profile) in [(SUBSCRIBER, near), (BROKER, far), (PUBLISHER, near)] {
            topology.host(host)?;
            topology.link(host, host, SWITCH, profile::load(profile)?)?;
        }
        let mut options = TestbedOptions::new(format!("run-{}", std::process::id()), topology);
        options.seed = seed;
        options.capture = capture;
        let testbed = start_testbed(options)?;
        congestion::equal(testbed.hosts().map(|(_, namespace, _)| namespace));
        Ok(Self { testbed })
    }

    pub(crate) fn namespace(&self, host: &str) -> Result<&Namespace> {
        Ok(self.testbed.namespace(host)?)
    }

    pub(crate) fn address(&self, host: &str) -> Result<Ipv4Addr> {
        Ok(self.testbed.address(host)?)
    }

    /// Drops every N-th packet that the publisher sends, or `all` of both ways,
    /// or `none` any more.
    pub(crate) fn publisher_loses(&self, every: &str) -> Result<()> {
        let action = match every {
            "all" => format!("{PUBLISHER}.blackhole=on"),
            "none" => format!("{PUBLISHER}.blackhole=off"),
            every => format!("{PUBLISHER}.up.loss=every {every}"),
        };
        Ok(self.testbed.apply(Action::parse(&action)?)?)
    }

    /// The subscriber loses its address for another.
    pub(crate) fn subscriber_moves(&self, to: Ipv4Addr) -> Result<()> {
        let action = format!("move {SUBSCRIBER} {to}");
        Ok(self.testbed.apply(Action::parse(&action)?)?)
    }

    /// Ends it; why what was measured was not this network, if so.
    pub(crate) fn stop(self) -> Option<String> {
        let report = self.testbed.stop();
        validity::network(&report.trouble(), &report.lateness)
    }
}
