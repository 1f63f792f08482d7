//! The command line: one file per command. Each has a `clap::Args` struct and
//! `run(self) -> anyhow::Result<ExitCode>`, and is registered in [`Command`].
//!
//! `pub`, `sub` and `rr` give `-h` to the host, as mosquitto does, so their variants
//! carry `#[command(disable_help_flag = true)]` and their structs a `--help`
//! of their own (`#[arg(long, action = clap::ArgAction::Help)]`).

mod amqp;
mod bench;
mod broker;
mod cert;
mod cid;
mod completions;
mod connect;
#[cfg(unix)]
mod ctl;
mod import;
mod input;
mod man;
mod network;
mod passwd;
mod profile;
mod properties;
mod publish;
mod rr;
mod store;
mod streams;
mod subscribe;
mod test;
mod timing;
mod tls;
mod tunnel;
mod unused;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use profile::Surroundings;

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
    Completions(completions::Completions),
    #[cfg(unix)]
    Ctl(Box<ctl::Ctl>),
    Import(import::Import),
    Man(man::Man),
    Passwd(passwd::Passwd),
    #[command(name = "pub", disable_help_flag = true)]
    Pub(Box<publish::Pub>),
    Queue(Box<amqp::queue::Queue>),
    Receive(Box<amqp::receive::Receive>),
    #[command(name = "rr", disable_help_flag = true)]
    Rr(Box<rr::Rr>),
    Send(Box<amqp::send::Send>),
    Store(store::Store),
    #[command(name = "sub", disable_help_flag = true)]
    Sub(Box<subscribe::Sub>),
    Test(Box<test::Test>),
    Tunnel(Box<tunnel::TunnelArgs>),
}

impl Cli {
    /// Reads the command line of the process. `Err` is the exit code, after
    /// help has been printed, or what is wrong: 1 as with mosquitto's clients.
    ///
    /// # Errors
    /// There is nothing to run.
    pub fn read() -> Result<Self, ExitCode> {
        let words: Vec<OsString> = std::env::args_os().collect();
        let cli = Self::read_from(&words, &Surroundings::of_process());
        cli.map_err(|error| {
            // Nothing is left to do when the output is closed.
            let _ = error.print();
            match error.exit_code() {
                0 => ExitCode::SUCCESS,
                _ => ExitCode::FAILURE,
            }
        })
    }

    fn read_from(words: &[OsString], around: &Surroundings) -> Result<Self, clap::Error> {
        let command = Self::command();
        let given = command.clone().try_get_matches_from(words);
        let given = given.map_err(with_replacement)?;
        let all = profile::extend(&command, words, &given, around)
            .map_err(|text| command.clone().error(ErrorKind::InvalidValue, text))?;
        let matches = match all {
            Some(all) => command.try_get_matches_from(all)?,
            None => given.clone(),
        };
        let cli = Self::from_arg_matches(&matches)?;
        cli.check(&given, &matches)?;
        Ok(cli)
    }

    /// Refuses options of the command line that have no effect beside all others.
    fn check(&self, given: &ArgMatches, all: &ArgMatches) -> Result<(), clap::Error> {
        let mode = match &self.command {
            Command::Pub(publish) => publish.mode(),
            Command::Rr(rr) => rr.mode(),
            Command::Sub(subscribe) => subscribe.mode(),
            _ => None,
        };
        let cli = Self::command();
        let (Some((name, given)), Some((_, all))) = (given.subcommand(), all.subcommand()) else {
            return Ok(());
        };
        let Some(command) = cli.find_subcommand(name) else {
            return Ok(());
        };
        let checked = match (&self.command, mode) {
            (Command::Bench(_), _) => unused::check_bench(command, given),
            (_, Some(mode)) => unused::check(command, given, all, mode),
            _ => Ok(()),
        };
        checked.map_err(|text| command.clone().error(ErrorKind::ArgumentConflict, text))
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
            Command::Completions(completions) => completions.run(Self::command()),
            #[cfg(unix)]
            Command::Ctl(ctl) => ctl.run(),
            Command::Import(import) => import.run(),
            Command::Man(man) => man.run(Self::command()),
            Command::Passwd(passwd) => passwd.run(),
            Command::Pub(publish) => publish.run(),
            Command::Queue(queue) => queue.run(),
            Command::Receive(receive) => receive.run(),
            Command::Rr(rr) => rr.run(),
            Command::Send(send) => send.run(),
            Command::Store(store) => store.run(),
            Command::Sub(subscribe) => subscribe.run(),
            Command::Test(test) => test.run(),
            Command::Tunnel(tunnel) => tunnel.run(),
        }
    }
}

/// An option that is not there is explained if it is one of mosquitto's.
fn with_replacement(mut error: clap::Error) -> clap::Error {
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg)
        && let Some(advice) = profile::replacement(option)
    {
        let advice = vec![advice.into()];
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(advice));
    }
    error
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
