//! `[qlog]`: which QUIC connections are logged, and where.

use std::path::PathBuf;

use dunlin_base::AddrRange;
use dunlin_net::{QlogFilter, QlogLimits};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::error::Wrong;
use super::units::Size;

/// `[qlog]`: logs of QUIC connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Qlog {
    /// Where; nothing is logged when absent.
    pub dir: Option<PathBuf>,
    /// Client identifiers whose connections are logged.
    pub clients: Vec<String>,
    /// Addresses whose connections are logged.
    pub addresses: Vec<Range>,
    /// One in so many connections is logged; zero: none.
    pub one_in: u32,
    /// Most files.
    pub max_files: u64,
    /// Most bytes of one file.
    pub max_file_size: Size,
    /// Most bytes of all files.
    pub max_total_size: Size,
}

impl Default for Qlog {
    fn default() -> Self {
        let limits = QlogLimits::default();
        Self {
            dir: None,
            clients: Vec::new(),
            addresses: Vec::new(),
            one_in: 0,
            max_files: limits.files_max,
            max_file_size: Size(limits.file_bytes_max),
            max_total_size: Size(limits.total_bytes_max),
        }
    }
}

impl Qlog {
    /// What is logged from the start.
    #[must_use]
    pub fn filter(&self) -> QlogFilter {
        let mut filter = QlogFilter::default();
        filter.clients.clone_from(&self.clients);
        filter.addresses = self.addresses.iter().map(|range| range.0).collect();
        filter.one_in = self.one_in;
        filter
    }

    /// How much is logged at most.
    #[must_use]
    pub fn limits(&self) -> QlogLimits {
        let mut limits = QlogLimits::default();
        limits.files_max = self.max_files;
        limits.file_bytes_max = self.max_file_size.0;
        limits.total_bytes_max = self.max_total_size.0;
        limits
    }

    /// What is wrong with it, as key and sentence.
    pub(super) fn check(&self) -> Result<(), Wrong> {
        if self.filter().is_too_long() {
            return Err(("clients", "it and addresses have at most 64 entries".into()));
        }
        if self.dir.is_none() && !self.filter().is_empty() {
            return Err(("dir", "is needed to log connections".into()));
        }
        Ok(())
    }
}

/// A range of addresses, as `"192.0.2.0/24"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(transparent)]
pub struct Range(#[schemars(with = "String")] pub AddrRange);

impl Serialize for Range {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Range {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}
