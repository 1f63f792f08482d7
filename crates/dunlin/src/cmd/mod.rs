//! The command line: one file per command. Each has a `clap::Args` struct and
//! `run(self) -> anyhow::Result<ExitCode>`, and is registered in [`Command`].
//!
//! `pub` and `sub` give `-h` to the host, as mosquitto does, so their variants
//! carry `#[command(disable_help_flag = true)]` and their structs a `--help`
//! of their own (`#[arg(long, action = clap::ArgAction::Help)]`).

mod amqp;
mod bench;
mod broker;
mod cert;
mod cid;
mod connect;
mod input;
mod network;
mod passwd;
mod properties;
mod publish;
mod store;
mod streams;
mod subscribe;
mod timing;
mod tunnel;
mod unused;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

/// MQTT and AMQP over QUIC, TCP, TLS and WebSocket: broker, clients and tools.
#[derive(Debug, Parser)]
#[command(name = "dunlin", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum Command {
    Bench(Box<bench::Bench>),
    Broker(broker::Broker),
    Cert(cert::Cert),
    Cid(cid::Cid),
    Passwd(passwd::Passwd),
    #[command(name = "pub", disable_help_flag = true)]
    Pub(Box<publish::Pub>),
    Queue(Box<amqp::queue::Queue>),
    Receive(Box<amqp::receive::Receive>),
    Send(Box<amqp::send::Send>),
    Store(store::Store),
    #[command(name = "sub", disable_help_flag = true)]
    Sub(Box<subscribe::Sub>),
    Tunnel(Box<tunnel::TunnelArgs>),
}

impl Cli {
    /// Reads the command line of the process. `Err` is the exit code, after
    /// help has been printed, or what is wrong: 1 as with mosquitto's clients.
    ///
    /// # Errors
    /// There is nothing to run.
    pub fn read() -> Result<Self, ExitCode> {
        let matches = Self::command().try_get_matches();
        let cli = matches.and_then(|matches| {
            let cli = Self::from_arg_matches(&matches)?;
            cli.check(&matches)?;
            Ok(cli)
        });
        cli.map_err(|error| {
            // Nothing is left to do when the output is closed.
            let _ = error.print();
            match error.exit_code() {
                0 => ExitCode::SUCCESS,
                _ => ExitCode::FAILURE,
            }
        })
    }

    /// Refuses options that have no effect beside the others.
    fn check(&self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let mode = match &self.command {
            Command::Pub(publish) => publish.mode(),
            Command::Sub(subscribe) => subscribe.mode(),
            _ => None,
        };
        let cli = Self::command();
        let (Some(mode), Some((name, matches))) = (mode, matches.subcommand()) else {
            return Ok(());
        };
        let Some(command) = cli.find_subcommand(name) else {
            return Ok(());
        };
        unused::check(command, matches, mode)
            .map_err(|text| command.clone().error(ErrorKind::ArgumentConflict, text))
    }

    /// Runs the command.
    ///
    /// # Errors
    /// A chain that reads as one sentence; `main` prints it.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Bench(bench) => bench.run(),
            Command::Broker(broker) => broker.run(),
            Command::Cert(cert) => cert.run(),
            Command::Cid(cid) => cid.run(),
            Command::Passwd(passwd) => passwd.run(),
            Command::Pub(publish) => publish.run(),
            Command::Queue(queue) => queue.run(),
            Command::Receive(receive) => receive.run(),
            Command::Send(send) => send.run(),
            Command::Store(store) => store.run(),
            Command::Sub(subscribe) => subscribe.run(),
            Command::Tunnel(tunnel) => tunnel.run(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
