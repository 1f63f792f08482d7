//! `dunlin-lab check`: experiments on emulated links with a target each. A
//! check prints a table, writes its figures as JSON and fails if it misses a
//! target.

pub(crate) mod isolation;
pub(crate) mod lab;
mod memory;
pub(crate) mod process;
mod race;
mod storm;
pub(crate) mod table;
pub(crate) mod trouble;
mod wake;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use dunlin_link::linux;

use crate::say;
use lab::Lab;
use table::Table;

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
    /// Folder for figures (NAME.json) and captures; made if it is not there.
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
                say::out(format_args!("checks on emulated links: SKIPPED: {what}"));
                return Ok(ExitCode::SUCCESS);
            }
            bail!(what);
        }
        let names = if self.names.is_empty() {
            Name::value_variants().to_vec()
        } else {
            self.names
        };
        std::fs::create_dir_all(&self.out)
            .with_context(|| format!("cannot make {}", self.out.display()))?;
        let lab = Lab::new(self.dunlin, self.out, self.short)?;
        let mut missed = Vec::new();
        for name in names {
            let shown = name
                .to_possible_value()
                .map_or_else(String::new, |value| value.get_name().to_owned());
            say::out(format_args!("== {shown}"));
            let table = match name {
                Name::Wake => wake::run(&lab),
                Name::Storm => storm::run(&lab),
                Name::Isolation => isolation::run(&lab),
                Name::Memory => memory::run(&lab),
                Name::Race => race::run(&lab),
            };
            let table = table.with_context(|| format!("the check {shown}"))?;
            let passed = finish(&lab, &shown, &table)?;
            if !passed {
                missed.push(shown);
            }
        }
        if missed.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        say::out(format_args!("missed a target: {}", missed.join(", ")));
        Ok(ExitCode::FAILURE)
    }
}

/// Writes the figures; true if all targets were met.
fn finish(lab: &Lab, name: &str, table: &Table) -> Result<bool> {
    let path = lab.out(&format!("{name}.json"));
    let text = serde_json::to_string_pretty(&table.json())?;
    std::fs::write(&path, text + "\n")
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(table.passed())
}
