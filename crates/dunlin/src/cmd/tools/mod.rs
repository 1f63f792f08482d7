//! Clients, the load generator and all else that is not for running a broker: the
//! feature `tools`. Their options may stand in profiles too.

mod amqp;
mod bench;
mod completions;
mod connect;
mod import;
mod input;
mod losses;
mod man;
mod network;
mod profile;
mod properties;
mod publish;
mod rr;
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
use clap::{ArgMatches, Subcommand};

use profile::Surroundings;

/// What to do.
#[derive(Debug, Subcommand)]
pub(super) enum Tool {
    Bench(Box<bench::Bench>),
    Completions(completions::Completions),
    Import(import::Import),
    Man(man::Man),
    #[command(name = "pub", disable_help_flag = true)]
    Pub(Box<publish::Pub>),
    Queue(Box<amqp::queue::Queue>),
    Receive(Box<amqp::receive::Receive>),
    #[command(name = "rr", disable_help_flag = true)]
    Rr(Box<rr::Rr>),
    Send(Box<amqp::send::Send>),
    #[command(name = "sub", disable_help_flag = true)]
    Sub(Box<subscribe::Sub>),
    Test(Box<test::Test>),
    Tunnel(Box<tunnel::TunnelArgs>),
}

/// A command line that was read.
pub(super) struct Line {
    /// What it says.
    given: ArgMatches,
    /// What it says with the profiles.
    pub(super) all: ArgMatches,
}

/// Reads a command line, and the profiles around it.
///
/// # Errors
/// There is nothing to run.
pub(super) fn read(command: &clap::Command, words: &[OsString]) -> Result<Line, clap::Error> {
    let given = command.clone().try_get_matches_from(words);
    let given = given.map_err(with_replacement)?;
    let all = profile::extend(command, words, &given, &Surroundings::of_process())
        .map_err(|text| command.clone().error(ErrorKind::InvalidValue, text))?;
    let all = match all {
        Some(all) => command.clone().try_get_matches_from(all)?,
        None => given.clone(),
    };
    Ok(Line { given, all })
}

impl Tool {
    /// Refuses options of the command line that have no effect beside all others.
    ///
    /// # Errors
    /// Which these are.
    pub(super) fn check(&self, cli: &clap::Command, line: &Line) -> Result<(), clap::Error> {
        let mode = match self {
            Self::Pub(publish) => publish.mode(),
            Self::Rr(rr) => rr.mode(),
            Self::Sub(subscribe) => subscribe.mode(),
            _ => None,
        };
        let (Some((name, given)), Some((_, all))) =
            (line.given.subcommand(), line.all.subcommand())
        else {
            return Ok(());
        };
        let Some(command) = cli.find_subcommand(name) else {
            return Ok(());
        };
        let checked = match (self, mode) {
            (Self::Bench(_), _) => unused::check_bench(command, given),
            (_, Some(mode)) => unused::check(command, given, all, mode),
            _ => Ok(()),
        };
        checked.map_err(|text| command.clone().error(ErrorKind::ArgumentConflict, text))
    }

    /// Runs it; `cli` is the whole command line.
    pub(super) fn run(self, cli: clap::Command) -> anyhow::Result<ExitCode> {
        match self {
            Self::Bench(bench) => bench.run(),
            Self::Completions(completions) => completions.run(cli),
            Self::Import(import) => import.run(),
            Self::Man(man) => man.run(cli),
            Self::Pub(publish) => publish.run(),
            Self::Queue(queue) => queue.run(),
            Self::Receive(receive) => receive.run(),
            Self::Rr(rr) => rr.run(),
            Self::Send(send) => send.run(),
            Self::Sub(subscribe) => subscribe.run(),
            Self::Test(test) => test.run(),
            Self::Tunnel(tunnel) => tunnel.run(),
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
