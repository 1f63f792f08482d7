//! What a network did, and whether it was the network that was asked for.

use serde::Serialize;

use super::lateness::Lateness;
use crate::counters::Counters;

/// What a network did so far.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct TestbedReport {
    /// By link, in the order of the plan.
    pub links: Vec<LinkReport>,
    /// How late packets came to hosts.
    pub lateness: Lateness,
    /// Packets that the kernel dropped before or after the network: a run with
    /// any of them measured something else than this network.
    pub kernel_drops: u64,
    /// Hosts at whose devices that was.
    pub kernel_drops_at: Vec<String>,
    /// Whether the network ran at real-time priority.
    pub realtime: bool,
    /// Processor time of the network, in microseconds.
    pub cpu_us: u64,
    /// Changes of addresses that failed, and trouble with the capture.
    pub failures: Vec<String>,
}

/// What a link did so far.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct LinkReport {
    /// Its name.
    pub name: String,
    /// Packets from its first end.
    pub up: Counters,
    /// Packets from its second end.
    pub down: Counters,
}

impl TestbedReport {
    /// The link of this name.
    #[must_use]
    pub fn link(&self, name: &str) -> Option<&LinkReport> {
        self.links.iter().find(|link| link.name == name)
    }

    /// What makes the run worthless, a sentence each.
    #[must_use]
    pub fn trouble(&self) -> Vec<String> {
        let mut at = self.kernel_drops_at.join(", ");
        if !at.is_empty() {
            at.insert_str(0, " at ");
        }
        trouble(&self.failures, self.kernel_drops, &at)
    }
}

/// What a link between two hosts did so far.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Packets from host A.
    pub from_a: Counters,
    /// Packets from host B.
    pub from_b: Counters,
    /// How late packets left.
    pub lateness: Lateness,
    /// Packets that the kernel dropped before or after the link: a run with
    /// any of them measured something else than this link.
    pub kernel_drops: u64,
    /// Whether the link ran at real-time priority.
    pub realtime: bool,
    /// Processor time of the link, in microseconds.
    pub cpu_us: u64,
    /// Changes of addresses that failed, and trouble with the capture.
    pub failures: Vec<String>,
}

impl Report {
    /// What makes the run worthless, a sentence each.
    #[must_use]
    pub fn trouble(&self) -> Vec<String> {
        trouble(&self.failures, self.kernel_drops, "")
    }
}

impl From<TestbedReport> for Report {
    fn from(report: TestbedReport) -> Self {
        let link = report.links.into_iter().next().unwrap_or_default();
        Self {
            from_a: link.up,
            from_b: link.down,
            lateness: report.lateness,
            kernel_drops: report.kernel_drops,
            realtime: report.realtime,
            cpu_us: report.cpu_us,
            failures: report.failures,
        }
    }
}

fn trouble(failures: &[String], kernel_drops: u64, at: &str) -> Vec<String> {
    let mut trouble = failures.to_vec();
    if kernel_drops > 0 {
        trouble.push(format!(
            "INVALID: the kernel dropped {kernel_drops} packets{at} that the link never saw; \
             send more slowly or use a faster machine"
        ));
    }
    trouble
}
