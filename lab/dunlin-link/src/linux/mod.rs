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
pub use testbed::{Alarm, StartError, Testbed, TestbedOptions};

/// The device of a link in a namespace.
pub const DEVICE: &str = "link0";

/// Capabilities, by their numbers, that namespaces and devices need.
const CAPABILITIES: [(u32, &str); 2] = [(12, "CAP_NET_ADMIN"), (21, "CAP_SYS_ADMIN")];

/// Why this machine or this user cannot have a link; `None` if it can.
#[must_use]
pub fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("the link emulator makes network namespaces: run it as root".to_owned());
    }
    if let Some(capability) = missing_capability() {
        return Some(format!(
            "the link emulator makes network namespaces: it needs {capability} \
             (in a container: run it with --privileged)"
        ));
    }
    let tun = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun");
    if let Err(error) = tun {
        return Some(format!(
            "cannot open /dev/net/tun ({error}): load the kernel module `tun` \
             (in a container: add the device)"
        ));
    }
    let ip = std::process::Command::new("ip").arg("-V").output();
    if ip.is_err() {
        return Some(
            "there is no `ip` command: install iproute2, or add /usr/sbin to PATH".to_owned(),
        );
    }
    None
}

/// Bytes that may still be written where this file or folder is.
///
/// # Errors
/// When there is no such path.
pub fn free_bytes(path: &std::path::Path) -> std::io::Result<u64> {
    let found = rustix::fs::statvfs(path)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// A capability that even root may lack; unknown counts as there.
fn missing_capability() -> Option<&'static str> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    let set = u64::from_str_radix(line.trim(), 16).ok()?;
    CAPABILITIES
        .iter()
        .find(|(number, _)| set >> number & 1 == 0)
        .map(|(_, name)| *name)
}
