//! A running network: what starts it, changes it and ends it.

use core::net::Ipv4Addr;
use core::time::Duration;
use std::fs::File;
use std::io::{self, BufWriter};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{EventfdFlags, eventfd};
use thiserror::Error;

use super::addresses::{Addresses, Host};
use super::guard::{Claim, namespace_name};
use super::namespace::{Namespace, NamespaceError};
use super::pump::{CaptureFile, Heard, Order, Pump};
use super::report::TestbedReport;
use super::tun::Tun;
use crate::capture::Capture;
use crate::network::Network;
use crate::script::{Action, Script};
use crate::topology::{PREFIX_LEN, Topology, TopologyError};

/// Buffered bytes of a capture: few, so that a full disk is noticed early.
const CAPTURE_BUFFER_BYTES: usize = 1 << 16;

/// Longest name of a network; names of namespaces are file names.
const NAME_BYTES_MAX: usize = 64;

/// What a network is to be.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TestbedOptions {
    /// Its name; the namespace of a host is `dunlin-NAME-HOST`.
    pub name: String,
    /// Hosts and links.
    pub topology: Topology,
    /// The source of its chances.
    pub seed: u64,
    /// What changes when.
    pub script: Script,
    /// Where to write a capture.
    pub capture: Option<PathBuf>,
    /// Largest IP packet.
    pub mtu: u16,
    /// Whether to ask for real-time priority.
    pub realtime: bool,
}

impl TestbedOptions {
    /// This network with this name.
    #[must_use]
    pub fn new(name: impl Into<String>, topology: Topology) -> Self {
        Self {
            name: name.into(),
            topology,
            seed: 1,
            script: Script::default(),
            capture: None,
            mtu: 1500,
            realtime: true,
        }
    }
}

/// Why a network does not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// No root, no TUN device or no `ip` command.
    #[error("{0}")]
    Missing(String),
    /// The name cannot be one of a namespace.
    #[error("`{0}` is no name for a link: use up to 64 letters, digits and dashes")]
    Name(String),
    /// The plan is no network, or the script is about another one.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// Another network has the name, or the lock cannot be had.
    #[error("cannot claim the name: {0}")]
    Claim(io::Error),
    /// A namespace or its device.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The capture.
    #[error("cannot write the capture {path}: {cause}")]
    Capture {
        /// The file.
        path: String,
        /// Why.
        cause: io::Error,
    },
    /// Something that the kernel always has, and had not.
    #[error("cannot start the link: {0}")]
    System(#[from] io::Error),
}

/// A network that is running. Dropping it ends it.
#[derive(Debug)]
pub struct Testbed {
    topology: Topology,
    /// In the order of hosts.
    namespaces: Vec<Namespace>,
    orders: Sender<Order>,
    bell: OwnedFd,
    /// `None` once it was stopped.
    running: Option<(JoinHandle<TestbedReport>, Addresses)>,
    start: Instant,
    no_realtime: Option<io::Error>,
    first_failure: Arc<OnceLock<String>>,
    /// Last, so that the namespaces go after everything else.
    _claim: Claim,
}

impl Testbed {
    /// Makes the namespaces and starts moving packets.
    ///
    /// # Errors
    /// When something is missing or refused; nothing is left behind then.
    pub fn start(options: TestbedOptions) -> Result<Self, StartError> {
        let TestbedOptions { topology, .. } = &options;
        let network = Network::new(topology, options.seed)?;
        topology.check_script(&options.script)?;
        if let Some(what) = super::missing() {
            return Err(StartError::Missing(what));
        }
        if !is_name(&options.name) {
            return Err(StartError::Name(options.name));
        }
        let claim = Claim::take(&options.name).map_err(StartError::Claim)?;
        let (namespaces, mut tuns) = make_hosts(&options)?;
        let drops_at_start = tuns
            .iter_mut()
            .map(Tun::kernel_drops)
            .collect::<io::Result<_>>()?;
        let hosts = topology.addresses().zip(topology.host_names());
        let hosts = hosts
            .zip(&namespaces)
            .map(|((address, name), namespace)| Host {
                name: name.to_owned(),
                namespace: namespace.clone(),
                address,
            });
        let addresses = Addresses::start(hosts.collect());
        let bell =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from)?;
        let (orders, received) = channel();
        let (ready, is_ready) = channel();
        // Together, so that times in the capture are those of other clocks.
        let capture = open_capture(&options)?;
        let start = Instant::now();
        let first_failure = Arc::default();
        let pump = Pump {
            network,
            script: options.script,
            heard: vec![Heard::Nothing; tuns.len()],
            tuns,
            buffer_len: usize::from(options.mtu) + 64,
            capture,
            orders: received,
            bell: bell.try_clone()?,
            addresses: addresses.sender(),
            start,
            spare: Vec::new(),
            report: TestbedReport::default(),
            first_failure: Arc::clone(&first_failure),
            drops_at_start,
            early: Duration::ZERO,
        };
        let realtime = options.realtime;
        let thread = thread::Builder::new()
            .name("link".to_owned())
            .spawn(move || pump.run(realtime, &ready))?;
        let asked = is_ready
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("the link's thread ended")));
        Ok(Self {
            topology: options.topology,
            namespaces,
            orders,
            bell,
            running: Some((thread, addresses)),
            start,
            no_realtime: asked.err(),
            first_failure,
            _claim: claim,
        })
    }

    /// The plan that it followed at the start.
    #[must_use]
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The namespace of a host.
    ///
    /// # Errors
    /// When there is no such host.
    pub fn namespace(&self, host: &str) -> Result<&Namespace, TopologyError> {
        let id = self.topology.host_id(host)?;
        let found = self.namespaces.get(id.index());
        found.ok_or_else(|| TopologyError::Alone(host.to_owned()))
    }

    /// The address of a host at the start.
    ///
    /// # Errors
    /// When there is no such host.
    pub fn address(&self, host: &str) -> Result<Ipv4Addr, TopologyError> {
        let id = self.topology.host_id(host)?;
        let found = self.topology.addresses().nth(id.index());
        found.ok_or_else(|| TopologyError::Alone(host.to_owned()))
    }

    /// Hosts with their names, namespaces and addresses at the start.
    pub fn hosts(&self) -> impl Iterator<Item = (&str, &Namespace, Ipv4Addr)> {
        let hosts = self.topology.host_names().zip(&self.namespaces);
        hosts
            .zip(self.topology.addresses())
            .map(|((name, namespace), address)| (name, namespace, address))
    }

    /// Namespaces, in the order of hosts.
    pub(super) fn namespaces(&self) -> &[Namespace] {
        &self.namespaces
    }

    /// Why the network runs without real-time priority, if it was asked for.
    #[must_use]
    pub const fn no_realtime(&self) -> Option<&io::Error> {
        self.no_realtime.as_ref()
    }

    /// Tells others when something has failed that makes the run worthless.
    #[must_use]
    pub fn alarm(&self) -> Alarm {
        Alarm(Arc::downgrade(&self.first_failure))
    }

    /// When the network's time was zero.
    #[must_use]
    pub const fn started(&self) -> Instant {
        self.start
    }

    /// Changes something now.
    ///
    /// # Errors
    /// When there is no such link or host; nothing changes then.
    pub fn apply(&self, action: Action) -> Result<(), TopologyError> {
        self.topology.check_action(&action)?;
        self.order(Order::Do(action));
        Ok(())
    }

    /// What the network did so far.
    #[must_use]
    pub fn report(&self) -> TestbedReport {
        let (to, from) = channel();
        self.order(Order::Report(to));
        from.recv().unwrap_or_default()
    }

    /// Ends the network and removes the namespaces with what runs inside.
    #[must_use]
    pub fn stop(mut self) -> TestbedReport {
        self.end()
    }

    fn end(&mut self) -> TestbedReport {
        let Some((thread, addresses)) = self.running.take() else {
            return TestbedReport::default();
        };
        self.order(Order::Stop);
        let mut report = thread.join().unwrap_or_else(|_| {
            let mut report = TestbedReport::default();
            report
                .failures
                .push("the link's thread panicked".to_owned());
            report
        });
        report.failures.extend(addresses.finish());
        report
    }

    fn order(&self, order: Order) {
        // A thread that has ended takes no orders, which is as well.
        let _ = self.orders.send(order);
        let _ = rustix::io::write(self.bell.as_fd(), &1u64.to_ne_bytes());
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// What is wrong with a running network, for a holder that does not own it.
#[derive(Clone, Debug)]
pub struct Alarm(Weak<OnceLock<String>>);

impl Alarm {
    /// What failed first, if anything did. `None` too once the network is gone.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.0.upgrade()?.get().cloned()
    }

    /// Whether the network is gone.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.strong_count() == 0
    }
}

/// Whether a network can be called so.
fn is_name(name: &str) -> bool {
    let usable = |c: char| c.is_ascii_alphanumeric() || c == '-';
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(usable)
}

/// Namespaces with a device each, in the order of hosts.
fn make_hosts(options: &TestbedOptions) -> Result<(Vec<Namespace>, Vec<Tun>), StartError> {
    let mut namespaces = Vec::new();
    let mut tuns = Vec::new();
    let topology = &options.topology;
    for (address, name) in topology.addresses().zip(topology.host_names()) {
        let namespace = Namespace::create(&namespace_name(&options.name, name))?;
        let address = format!("{address}/{PREFIX_LEN}");
        tuns.push(Tun::open(&namespace, &address, options.mtu)?);
        namespaces.push(namespace);
    }
    Ok((namespaces, tuns))
}

fn open_capture(options: &TestbedOptions) -> Result<Option<CaptureFile>, StartError> {
    let Some(path) = &options.capture else {
        return Ok(None);
    };
    let now: Duration = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    File::create(path)
        .map(|file| BufWriter::with_capacity(CAPTURE_BUFFER_BYTES, file))
        .and_then(|out| Capture::new(out, now, options.topology.host_names()))
        .map(|capture| {
            Some(CaptureFile {
                capture,
                path: path.clone(),
            })
        })
        .map_err(|cause| StartError::Capture {
            path: path.display().to_string(),
            cause,
        })
}
