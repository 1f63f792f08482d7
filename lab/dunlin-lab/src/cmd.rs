//! The command line.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use dunlin_link::linux;

use crate::check::Check;
use crate::console;
use crate::lab::remove_folders;
use crate::link::LinkCommand;
use crate::profile::Profiles;
use crate::run::drive::RunCommand;
use crate::run::report::ReportCommand;

/// Emulated links between hosts of one machine, and experiments on them.
#[derive(Debug, Parser)]
#[command(name = "dunlin-lab", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Join network namespaces by links with delay, rate and loss.
    Link(Box<LinkCommand>),
    /// Run experiments on emulated links and judge what they show.
    Check(Check),
    /// Run the experiments of the papers, of all systems on the same links.
    Run(RunCommand),
    Report(ReportCommand),
    /// List the profiles of links, and where their numbers are from.
    Profiles(Profiles),
    /// Remove what links of killed processes left behind.
    Clean {
        /// Only what these links left; all if none is named.
        names: Vec<String>,
    },
    /// Wait for a link's process to be gone, then clean up after it.
    #[command(hide = true)]
    Watch {
        /// The link.
        name: String,
    },
}

/// Runs what the command line asks for.
pub(crate) fn run() -> Result<ExitCode> {
    match Cli::parse().command {
        Command::Link(link) => link.run(),
        Command::Check(check) => check.run(),
        Command::Run(run) => run.run(),
        Command::Report(report) => report.run(),
        Command::Profiles(profiles) => {
            profiles.run()?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Clean { names } => clean(&names),
        Command::Watch { name } => {
            linux::watch(&name)?;
            // Those of a killed process, if that is why the link is gone.
            remove_folders();
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn clean(names: &[String]) -> Result<ExitCode> {
    if let Some(what) = linux::missing() {
        anyhow::bail!(what);
    }
    let cleaned = linux::clean(names)?;
    for name in &cleaned.removed {
        console::line(format_args!("removed {name}"));
    }
    for name in &cleaned.running {
        console::line(format_args!("left alone: {name} is running"));
    }
    let folders = match names {
        [] => remove_folders(),
        _ => Vec::new(),
    };
    for name in &folders {
        console::line(format_args!("removed the folder {name}"));
    }
    if cleaned.removed.is_empty() && cleaned.running.is_empty() && folders.is_empty() {
        console::line("nothing to clean");
    }
    Ok(ExitCode::SUCCESS)
}
