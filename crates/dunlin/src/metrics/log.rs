//! What this process is to a store that is a log: its owner or a standby.

use core::time::Duration;
use std::sync::Arc;

use super::text::Exposition;

/// At one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogView {
    /// It owns the log; else it is a standby, or has given up.
    pub(crate) is_owner: bool,
    /// It holds the lease.
    pub(crate) holds_lease: bool,
    /// How long ago it renewed the lease that it holds.
    pub(crate) lease_age: Option<Duration>,
    /// Another one holds the lease, as a standby saw last.
    pub(crate) is_lease_of_other: bool,
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
            "lease_of_other",
            "Whether another broker holds the lease, as this one saw last as a standby: 1 or 0.",
            f64::from(u8::from(view.is_lease_of_other)),
        ),
        (
            "behind_records",
            "Records of the log that a standby has not read yet.",
            view.behind as f64,
        ),
    ] {
        out.gauge(&format!("dunlin_store_log_{name}"), help, &[], value);
    }
    if let Some(age) = view.lease_age {
        let help = "Time since this broker renewed the lease of the log that it holds.";
        let name = "dunlin_store_log_lease_age_seconds";
        out.gauge(name, help, &[], age.as_secs_f64());
    }
}
