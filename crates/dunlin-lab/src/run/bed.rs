//! The network of paper 000: a subscriber and a publisher that reach a broker.

use core::net::Ipv4Addr;
use std::path::PathBuf;

use anyhow::Result;
use dunlin_link::linux::{Emulator, Namespace, Options};
use dunlin_link::{Action, Link, Side};

use super::validity;
use crate::link::start;

/// Its three testbeds.
pub(crate) const TESTBEDS: [&str; 3] = ["wired", "wireless", "long-distance"];

/// Hosts.
pub(crate) const SUBSCRIBER: &str = "subscriber";
pub(crate) const PUBLISHER: &str = "publisher";
pub(crate) const BROKER: &str = "broker";

/// The network while it runs.
#[derive(Debug)]
pub(crate) struct Bed {
    emulator: Emulator,
}

impl Bed {
    /// Starts one of [`TESTBEDS`].
    pub(crate) fn start(testbed: &str, seed: u64, capture: Option<PathBuf>) -> Result<Self> {
        let settings: &[&str] = match testbed {
            "wired" => &["delay=200us", "rate=1gbit"],
            "wireless" => &["delay=2ms", "jitter=1ms", "loss=ge 1% 30%"],
            _ => &["delay=35ms", "jitter=1ms"],
        };
        let mut link = Link::new(0);
        for setting in settings {
            Action::parse(setting)?.apply(&mut link);
        }
        let mut options = Options::new(format!("run-{}", std::process::id()));
        options.seed = seed;
        options.profiles = Side::BOTH.map(|side| link.profile(side).clone());
        options.capture = capture;
        Ok(Self {
            emulator: start(options)?,
        })
    }

    pub(crate) fn namespace(&self, host: &str) -> Result<&Namespace> {
        Ok(self.emulator.namespace(side(host)))
    }

    pub(crate) fn address(&self, host: &str) -> Result<Ipv4Addr> {
        Ok(Emulator::address(side(host)))
    }

    /// Drops every N-th packet that the publisher sends, or all.
    pub(crate) fn publisher_loses(&self, every: &str) -> Result<()> {
        let action = match every {
            "all" => "up.blackhole=on".to_owned(),
            every => format!("up.loss=every {every}"),
        };
        self.emulator.apply(Action::parse(&action)?);
        Ok(())
    }

    /// The subscriber loses its address for another.
    pub(crate) fn subscriber_moves(&self, to: Ipv4Addr) -> Result<()> {
        self.emulator.apply(Action::parse(&format!("move a {to}"))?);
        Ok(())
    }

    /// Ends it; why what was measured was not this network, if so.
    pub(crate) fn stop(self) -> Option<String> {
        validity::link(&self.emulator.stop())
    }
}

fn side(host: &str) -> Side {
    if host == BROKER { Side::B } else { Side::A }
}
