//! Congestion control of TCP in namespaces: that of QUIC, so that transports
//! are compared and not two algorithms. The kernel's default may be another.

use std::fs;
use std::io;

use dunlin_link::linux::Namespace;

/// What QUIC has by default, here and in mqttv5.
pub(crate) const ALGORITHM: &str = "cubic";

/// What sockets get in the namespace of the thread that opens it.
const DEFAULT: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// What namespaces may choose from.
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

/// Has TCP in these namespaces use [`ALGORITHM`], from the next socket on.
/// Where the kernel refuses, it keeps its own; [`tcp`] tells.
pub(crate) fn equal<'a>(namespaces: impl IntoIterator<Item = &'a Namespace>) {
    let _allowed = Allowed::take();
    for namespace in namespaces {
        let _ = namespace.within(|| fs::write(DEFAULT, ALGORITHM));
    }
}

/// For people: what TCP uses in experiments.
pub(crate) fn tcp() -> String {
    let default = fs::read_to_string(DEFAULT).unwrap_or_default();
    let default = default.trim();
    if default == ALGORITHM {
        return ALGORITHM.to_owned();
    }
    match Allowed::take() {
        Ok(_) => format!("{ALGORITHM}, in all namespaces; the kernel's default is {default}"),
        Err(_) => format!("{default}, the kernel's default, for it refuses {ALGORITHM}"),
    }
}

/// Lets namespaces choose the algorithm until it is dropped.
struct Allowed {
    /// What to put back.
    before: Option<String>,
}

impl Allowed {
    fn take() -> io::Result<Self> {
        let before = fs::read_to_string(ALLOWED)?;
        if before.split_whitespace().any(|name| name == ALGORITHM) {
            return Ok(Self { before: None });
        }
        fs::write(ALLOWED, format!("{} {ALGORITHM}", before.trim()))?;
        Ok(Self {
            before: Some(before),
        })
    }
}

impl Drop for Allowed {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            let _ = fs::write(ALLOWED, before);
        }
    }
}
