//! The smallest network: one link between hosts `a` and `b`.

use core::net::Ipv4Addr;
use std::io;
use std::path::PathBuf;
use std::time::Instant;

use super::namespace::Namespace;
use super::report::Report;
use super::testbed::{StartError, Testbed, TestbedOptions};
use crate::profile::Profile;
use crate::script::{Action, Script};
use crate::side::Side;
use crate::topology::Topology;

/// What a link is to be.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Its name; the namespaces are `dunlin-NAME-a` and `dunlin-NAME-b`.
    pub name: String,
    /// The source of its chances.
    pub seed: u64,
    /// What happens to packets from A and from B.
    pub profiles: [Profile; 2],
    /// What changes when.
    pub script: Script,
    /// Where to write a capture.
    pub capture: Option<PathBuf>,
    /// Largest IP packet.
    pub mtu: u16,
    /// Whether to ask for real-time priority.
    pub realtime: bool,
}

impl Options {
    /// A perfect link of this name.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            seed: 1,
            profiles: [Profile::default(), Profile::default()],
            script: Script::default(),
            capture: None,
            mtu: 1500,
            realtime: true,
        }
    }
}

impl From<Options> for TestbedOptions {
    fn from(options: Options) -> Self {
        Self {
            name: options.name,
            topology: Topology::pair(options.profiles),
            seed: options.seed,
            script: options.script,
            capture: options.capture,
            mtu: options.mtu,
            realtime: options.realtime,
        }
    }
}

/// A link between two hosts that is running. Dropping it ends it.
#[derive(Debug)]
pub struct Emulator {
    testbed: Testbed,
}

impl Emulator {
    /// Address of a host at the start.
    #[must_use]
    pub const fn address(side: Side) -> Ipv4Addr {
        Topology::pair_address(side)
    }

    /// Makes the namespaces and starts moving packets.
    ///
    /// # Errors
    /// When something is missing or refused; nothing is left behind then.
    pub fn start(options: Options) -> Result<Self, StartError> {
        let testbed = Testbed::start(options.into())?;
        Ok(Self { testbed })
    }

    /// The network that it is.
    #[must_use]
    pub const fn testbed(&self) -> &Testbed {
        &self.testbed
    }

    /// The namespace of a host.
    #[must_use]
    pub fn namespace(&self, side: Side) -> &Namespace {
        &self.testbed.namespaces()[side as usize]
    }

    /// Why the link runs without real-time priority, if it was asked for.
    #[must_use]
    pub const fn no_realtime(&self) -> Option<&io::Error> {
        self.testbed.no_realtime()
    }

    /// When the link's time was zero.
    #[must_use]
    pub const fn started(&self) -> Instant {
        self.testbed.started()
    }

    /// Changes something now. What names another link or host changes nothing.
    pub fn apply(&self, action: Action) {
        let _ = self.testbed.apply(action);
    }

    /// What the link did so far.
    #[must_use]
    pub fn report(&self) -> Report {
        self.testbed.report().into()
    }

    /// Ends the link and removes the namespaces with what runs inside.
    #[must_use]
    pub fn stop(self) -> Report {
        self.testbed.stop().into()
    }
}
