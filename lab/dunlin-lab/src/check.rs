//! `dunlin-lab check`: experiments run afresh and judged by their targets. Fails
//! if a target is missed or a cell could not be measured.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use dunlin_link::linux;

use crate::console;
use crate::run::drive::RunCommand;

/// Experiments with targets.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// What to check; everything if nothing is named.
    names: Vec<Name>,
    /// Seconds instead of minutes, with fewer repetitions. Where there can be
    /// no link that is said, and no failure.
    #[arg(long)]
    short: bool,
    /// The `dunlin` binary; the one beside this program if not given.
    #[arg(long, value_name = "FILE")]
    dunlin: Option<PathBuf>,
    /// Folder in which `check` gets the runs and their report.
    #[arg(long, value_name = "DIR", default_value = "target/lab")]
    out: PathBuf,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Name {
    /// Time, packets and bytes of one wake-publish-sleep cycle.
    Wake,
    /// Rebinding and migration every second under traffic.
    Storm,
    /// Whether a lost packet holds up one topic or all.
    Isolation,
    /// Memory of the broker at saturation under loss.
    Memory,
    /// QUIC and TLS race for a connection where a firewall drops UDP.
    Race,
}

impl Check {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if let Some(what) = linux::missing() {
            if self.short {
                console::line(format_args!("checks on emulated links: SKIPPED: {what}"));
                return Ok(ExitCode::SUCCESS);
            }
            bail!(what);
        }
        let names = if self.names.is_empty() {
            Name::value_variants().to_vec()
        } else {
            self.names
        };
        // Experiments have the names of their checks.
        let values = names.iter().filter_map(ValueEnum::to_possible_value);
        let names = values.map(|value| value.get_name().to_owned()).collect();
        let out = self.out.join("check");
        let missed = RunCommand::checking(names, self.short, self.dunlin, out).check()?;
        if missed.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        console::line(format_args!("missed a target: {}", missed.join(", ")));
        Ok(ExitCode::FAILURE)
    }
}
