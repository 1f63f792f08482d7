//! A running link: what starts it, changes it and ends it.

use core::net::Ipv4Addr;
use core::time::Duration;
use std::fs::File;
use std::io::{self, BufWriter};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{EventfdFlags, eventfd};
use thiserror::Error;

use super::addresses::{Addresses, Host, PREFIX_LEN};
use super::guard::{Claim, namespace_name};
use super::namespace::{Namespace, NamespaceError};
use super::pump::{Order, Pump, Report};
use super::tun::Tun;
use crate::capture::Capture;
use crate::link::{Link, Side};
use crate::profile::Profile;
use crate::script::{Action, Script};

/// Buffered bytes of a capture.
const CAPTURE_BUFFER_BYTES: usize = 1 << 20;

/// Longest name of a link; names of namespaces are file names.
const NAME_BYTES_MAX: usize = 64;

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

    fn link(&self) -> Link {
        let mut link = Link::new(self.seed);
        for (side, profile) in Side::BOTH.into_iter().zip(&self.profiles) {
            link.set_profile(side, profile);
        }
        link
    }
}

/// Why a link does not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// No root, no TUN device or no `ip` command.
    #[error("{0}")]
    Missing(String),
    /// The name cannot be one of a namespace.
    #[error("`{0}` is no name for a link: use up to 64 letters, digits and dashes")]
    Name(String),
    /// Another link has the name, or the lock cannot be had.
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

/// A link that is running. Dropping it ends it.
#[derive(Debug)]
pub struct Emulator {
    namespaces: [Namespace; 2],
    orders: Sender<Order>,
    bell: OwnedFd,
    /// `None` once it was stopped.
    running: Option<(JoinHandle<Report>, Addresses)>,
    start: Instant,
    no_realtime: Option<io::Error>,
    /// Last, so that the namespaces go after everything else.
    _claim: Claim,
}

impl Emulator {
    /// Address of a host at the start.
    #[must_use]
    pub const fn address(side: Side) -> Ipv4Addr {
        match side {
            Side::A => Ipv4Addr::new(10, 203, 0, 1),
            Side::B => Ipv4Addr::new(10, 203, 0, 2),
        }
    }

    /// Makes the namespaces and starts moving packets.
    ///
    /// # Errors
    /// When something is missing or refused; nothing is left behind then.
    pub fn start(options: Options) -> Result<Self, StartError> {
        if let Some(what) = super::missing() {
            return Err(StartError::Missing(what));
        }
        let name = &options.name;
        let usable = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(usable) {
            return Err(StartError::Name(options.name));
        }
        let claim = Claim::take(name).map_err(StartError::Claim)?;
        let capture = open_capture(options.capture.as_ref())?;
        let mut namespaces = Vec::new();
        let mut tuns = Vec::new();
        for side in Side::BOTH {
            let namespace = Namespace::create(&namespace_name(name, side))?;
            let address = format!("{}/{PREFIX_LEN}", Self::address(side));
            tuns.push(Tun::open(&namespace, &address, options.mtu)?);
            namespaces.push(namespace);
        }
        let pair = || io::Error::other("two sides");
        let namespaces: [Namespace; 2] = namespaces.try_into().map_err(|_| pair())?;
        let mut tuns: [Tun; 2] = tuns.try_into().map_err(|_| pair())?;
        let drops_at_start = tuns[0].kernel_drops()? + tuns[1].kernel_drops()?;
        let addresses = Addresses::start([Side::A, Side::B].map(|side| Host {
            namespace: namespaces[side as usize].clone(),
            address: Self::address(side),
        }));
        let bell =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from)?;
        let (orders, received) = channel();
        let (ready, is_ready) = channel();
        let start = Instant::now();
        let pump = Pump {
            link: options.link(),
            script: options.script,
            tuns,
            buffer_len: usize::from(options.mtu) + 64,
            capture,
            orders: received,
            bell: bell.try_clone()?,
            addresses: addresses.sender(),
            start,
            spare: Vec::new(),
            report: Report::default(),
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
            namespaces,
            orders,
            bell,
            running: Some((thread, addresses)),
            start,
            no_realtime: asked.err(),
            _claim: claim,
        })
    }

    /// The namespace of a host.
    #[must_use]
    pub const fn namespace(&self, side: Side) -> &Namespace {
        let [a, b] = &self.namespaces;
        match side {
            Side::A => a,
            Side::B => b,
        }
    }

    /// Why the link runs without real-time priority, if it was asked for.
    #[must_use]
    pub const fn no_realtime(&self) -> Option<&io::Error> {
        self.no_realtime.as_ref()
    }

    /// When the link's time was zero.
    #[must_use]
    pub const fn started(&self) -> Instant {
        self.start
    }

    /// Changes something now.
    pub fn apply(&self, action: Action) {
        self.order(Order::Do(action));
    }

    /// What the link did so far.
    #[must_use]
    pub fn report(&self) -> Report {
        let (to, from) = channel();
        self.order(Order::Report(to));
        from.recv().unwrap_or_default()
    }

    /// Ends the link and removes the namespaces with what runs inside.
    #[must_use]
    pub fn stop(mut self) -> Report {
        self.end()
    }

    fn end(&mut self) -> Report {
        let Some((thread, addresses)) = self.running.take() else {
            return Report::default();
        };
        self.order(Order::Stop);
        let mut report = thread.join().unwrap_or_else(|_| {
            let mut report = Report::default();
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

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

fn open_capture(path: Option<&PathBuf>) -> Result<Option<Capture<BufWriter<File>>>, StartError> {
    let Some(path) = path else {
        return Ok(None);
    };
    let now: Duration = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    File::create(path)
        .map(|file| BufWriter::with_capacity(CAPTURE_BUFFER_BYTES, file))
        .and_then(|out| Capture::new(out, now))
        .map(Some)
        .map_err(|cause| StartError::Capture {
            path: path.display().to_string(),
            cause,
        })
}
