//! What this process is to a store that is a log: its owner or a standby.

use std::sync::Arc;

use super::text::Exposition;

/// At one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogView {
    /// It owns the log; else it is a standby, or has given up.
    pub(crate) is_owner: bool,
    /// It holds the lease.
    pub(crate) holds_lease: bool,
    /// Records that a standby has not read.
    pub(crate) behind: u64,
}

/// Where that is known.
pub(crate) type LogViews = Arc<dyn Fn() -> LogView + Send + Sync>;

pub(super) fn metrics(out: &mut Exposition, view: LogView) {
    for (name, help, value) in [
        (
            "owner",
            "Whether this broker owns the log that is its store (1) or is a standby (0).",
            f64::from(u8::from(view.is_owner)),
        ),
        (
            "lease",
            "Whether this broker holds the lease of the log: 1 or 0.",
            f64::from(u8::from(view.holds_lease)),
        ),
        (
            "behind_records",
            "Records of the log that a standby has not read yet.",
            view.behind as f64,
        ),
    ] {
        out.gauge(&format!("dunlin_store_log_{name}"), help, &[], value);
    }
}
