//! Networks of namespaces of this machine.
//!
//! [`Testbed::start`] makes the namespaces, opens a TUN device in each and
//! moves packets between them from one thread, at real-time priority where it
//! may. What it made goes when it is stopped or dropped, and, with a watcher
//! process ([`watch`]), also when this process is killed.

mod addresses;
mod emulator;
mod guard;
mod lateness;
mod namespace;
mod pump;
mod report;
mod sys;
mod testbed;
mod tun;

pub use emulator::{Emulator, Options};
pub use guard::{Cleaned, clean, watch};
pub use lateness::Lateness;
pub use namespace::{Namespace, NamespaceError};
pub use report::{LinkReport, Report, TestbedReport};
pub use sys::set_realtime;
pub use testbed::{StartError, Testbed, TestbedOptions};

/// The device of a link in a namespace.
pub const DEVICE: &str = "link0";

/// Why this machine or this user cannot have a link; `None` if it can.
#[must_use]
pub fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("the link emulator makes network namespaces: run it as root".to_owned());
    }
    if !std::path::Path::new("/dev/net/tun").exists() {
        return Some("there is no /dev/net/tun: load the kernel module `tun`".to_owned());
    }
    let ip = std::process::Command::new("ip").arg("-V").output();
    if ip.is_err() {
        return Some("there is no `ip` command: install iproute2".to_owned());
    }
    None
}
