//! The command line: one file per command. Each has a `clap::Args` struct and
//! `run(self) -> anyhow::Result<ExitCode>`, and is registered in [`Command`].
//!
//! `pub`, `sub` and `rr` give `-h` to the host, as mosquitto does, so their variants
//! carry `#[command(disable_help_flag = true)]` and their structs a `--help`
//! of their own (`#[arg(long, action = clap::ArgAction::Help)]`).
//!
//! Without the features `tools` and `sink` there are only the commands that a broker needs.

#[cfg(feature = "tools")]
mod amqp;
#[cfg(feature = "tools")]
mod bench;
mod broker;
mod cert;
mod cid;
#[cfg(feature = "tools")]
mod completions;
#[cfg(feature = "tools")]
mod connect;
#[cfg(unix)]
mod ctl;
#[cfg(feature = "tools")]
mod import;
#[cfg(feature = "tools")]
mod input;
#[cfg(feature = "tools")]
mod man;
#[cfg(feature = "tools")]
mod network;
mod passwd;
#[cfg(feature = "tools")]
mod profile;
#[cfg(feature = "tools")]
mod properties;
#[cfg(feature = "tools")]
mod publish;
#[cfg(feature = "tools")]
mod rr;
#[cfg(feature = "sink")]
mod sink;
mod store;
#[cfg(feature = "tools")]
mod streams;
#[cfg(feature = "tools")]
mod subscribe;
#[cfg(feature = "tools")]
mod test;
#[cfg(feature = "tools")]
mod timing;
#[cfg(feature = "tools")]
mod tls;
#[cfg(feature = "tools")]
mod tunnel;
#[cfg(feature = "tools")]
mod unused;

use std::ffi::OsString;
use std::process::ExitCode;

#[cfg(feature = "tools")]
use clap::error::{ContextKind, ContextValue, ErrorKind};
#[cfg(feature = "tools")]
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _};
use clap::{Parser, Subcommand};

#[cfg(feature = "tools")]
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
    #[cfg(feature = "tools")]
    Bench(Box<bench::Bench>),
    Broker(broker::Broker),
    Cert(cert::Cert),
    Cid(cid::Cid),
    #[cfg(feature = "tools")]
    Completions(completions::Completions),
    #[cfg(unix)]
    Ctl(Box<ctl::Ctl>),
    #[cfg(feature = "tools")]
    Import(import::Import),
    #[cfg(feature = "tools")]
    Man(man::Man),
    Passwd(passwd::Passwd),
    #[cfg(feature = "tools")]
    #[command(name = "pub", disable_help_flag = true)]
    Pub(Box<publish::Pub>),
    #[cfg(feature = "tools")]
    Queue(Box<amqp::queue::Queue>),
    #[cfg(feature = "tools")]
    Receive(Box<amqp::receive::Receive>),
    #[cfg(feature = "tools")]
    #[command(name = "rr", disable_help_flag = true)]
    Rr(Box<rr::Rr>),
    #[cfg(feature = "tools")]
    Send(Box<amqp::send::Send>),
    #[cfg(feature = "sink")]
    Sink(Box<sink::SinkArgs>),
    Store(store::Store),
    #[cfg(feature = "tools")]
    #[command(name = "sub", disable_help_flag = true)]
    Sub(Box<subscribe::Sub>),
    #[cfg(feature = "tools")]
    Test(Box<test::Test>),
    #[cfg(feature = "tools")]
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
        #[cfg(feature = "tools")]
        let cli = Self::read_from(&words, &Surroundings::of_process());
        #[cfg(not(feature = "tools"))]
        let cli = Self::try_parse_from(&words);
        cli.map_err(|error| {
            // Nothing is left to do when the output is closed.
            let _ = error.print();
            match error.exit_code() {
                0 => ExitCode::SUCCESS,
                _ => ExitCode::FAILURE,
            }
        })
    }

    #[cfg(feature = "tools")]
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
    #[cfg(feature = "tools")]
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
            #[cfg(feature = "tools")]
            Command::Bench(bench) => bench.run(),
            Command::Broker(broker) => broker.run(),
            Command::Cert(cert) => cert.run(),
            Command::Cid(cid) => cid.run(),
            #[cfg(feature = "tools")]
            Command::Completions(completions) => completions.run(Self::command()),
            #[cfg(unix)]
            Command::Ctl(ctl) => ctl.run(),
            #[cfg(feature = "tools")]
            Command::Import(import) => import.run(),
            #[cfg(feature = "tools")]
            Command::Man(man) => man.run(Self::command()),
            Command::Passwd(passwd) => passwd.run(),
            #[cfg(feature = "tools")]
            Command::Pub(publish) => publish.run(),
            #[cfg(feature = "tools")]
            Command::Queue(queue) => queue.run(),
            #[cfg(feature = "tools")]
            Command::Receive(receive) => receive.run(),
            #[cfg(feature = "tools")]
            Command::Rr(rr) => rr.run(),
            #[cfg(feature = "tools")]
            Command::Send(send) => send.run(),
            #[cfg(feature = "sink")]
            Command::Sink(sink) => sink.run(),
            Command::Store(store) => store.run(),
            #[cfg(feature = "tools")]
            Command::Sub(subscribe) => subscribe.run(),
            #[cfg(feature = "tools")]
            Command::Test(test) => test.run(),
            #[cfg(feature = "tools")]
            Command::Tunnel(tunnel) => tunnel.run(),
        }
    }
}

/// An option that is not there is explained if it is one of mosquitto's.
#[cfg(feature = "tools")]
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
