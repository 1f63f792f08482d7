//! The command line: one file per command. Each has a `clap::Args` struct and
//! `run(self) -> anyhow::Result<ExitCode>`, and is registered in [`Command`], or in
//! [`tools::Tool`] if a broker does not need it.
//!
//! `pub`, `sub` and `rr` give `-h` to the host, as mosquitto does, so their variants
//! carry `#[command(disable_help_flag = true)]` and their structs a `--help`
//! of their own (`#[arg(long, action = clap::ArgAction::Help)]`).

mod announce;
mod broker;
mod cert;
mod cid;
#[cfg(unix)]
mod ctl;
#[cfg(feature = "cluster")]
mod node;
mod passwd;
mod queue;
#[cfg(feature = "sink")]
mod sink;
mod store;
#[cfg(feature = "tools")]
mod tools;

use std::ffi::OsString;
use std::process::ExitCode;

#[cfg(any(feature = "tools", test))]
use clap::CommandFactory as _;
#[cfg(feature = "tools")]
use clap::FromArgMatches as _;
use clap::{Parser, Subcommand};

/// MQTT and AMQP over QUIC, TCP, TLS and WebSocket: broker, clients and tools.
#[derive(Debug, Parser)]
#[command(name = "dunlin", version, max_term_width = 100, next_display_order = None)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum Command {
    Broker(broker::Broker),
    Cert(cert::Cert),
    Cid(cid::Cid),
    #[cfg(unix)]
    Ctl(Box<ctl::Ctl>),
    Passwd(passwd::Passwd),
    #[cfg(feature = "sink")]
    Sink(Box<sink::SinkArgs>),
    Store(store::Store),
    #[cfg(feature = "tools")]
    #[command(flatten)]
    Tool(tools::Tool),
}

impl Cli {
    /// Reads the command line of the process. `Err` is the exit code, after
    /// help has been printed, or what is wrong: 1 as with mosquitto's clients.
    ///
    /// # Errors
    /// There is nothing to run.
    pub fn read() -> Result<Self, ExitCode> {
        let words: Vec<OsString> = std::env::args_os().collect();
        Self::read_from(&words).map_err(|error| {
            // Nothing is left to do when the output is closed.
            let _ = error.print();
            match error.exit_code() {
                0 => ExitCode::SUCCESS,
                _ => ExitCode::FAILURE,
            }
        })
    }

    #[cfg(not(feature = "tools"))]
    fn read_from(words: &[OsString]) -> Result<Self, clap::Error> {
        Self::try_parse_from(words)
    }

    #[cfg(feature = "tools")]
    fn read_from(words: &[OsString]) -> Result<Self, clap::Error> {
        let command = Self::command();
        let line = tools::read(&command, words)?;
        let cli = Self::from_arg_matches(&line.all)?;
        if let Command::Tool(tool) = &cli.command {
            tool.check(&command, &line)?;
        }
        Ok(cli)
    }

    /// Runs the command.
    ///
    /// # Errors
    /// A chain that reads as one sentence; `main` prints it.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Broker(broker) => broker.run(),
            Command::Cert(cert) => cert.run(),
            Command::Cid(cid) => cid.run(),
            #[cfg(unix)]
            Command::Ctl(ctl) => ctl.run(),
            Command::Passwd(passwd) => passwd.run(),
            #[cfg(feature = "sink")]
            Command::Sink(sink) => sink.run(),
            Command::Store(store) => store.run(),
            #[cfg(feature = "tools")]
            Command::Tool(tool) => tool.run(Self::command()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
