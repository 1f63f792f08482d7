//! `dunlin test`: the options of what asks a server what it can. The checks are in
//! [`crate::probe`].

use core::time::Duration;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use dunlin_base::topic;
use dunlin_dial::Url;

use super::network::Network;
use super::tls::Tls;
use crate::probe::{self, Options};

/// Exit code when something that is required is missing.
const MISSING: u8 = 2;

/// Find out what a server can: versions, QoS, limits, and what it does over QUIC.
///
/// It connects as a client, some twenty times one after the other, publishes a few
/// short messages below --prefix, and takes away what it leaves.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Test {
    /// The server: quic://, mqtts://, mqtt://, wss://, ws://, amqps://, amqp+quic://
    /// and others, [USER:PASSWORD@]HOST[:PORT][/PATH].
    url: Url,
    /// User name, instead of that of the URL.
    #[arg(short = 'u', long, value_name = "USER")]
    username: Option<String>,
    /// Password, instead of that of the URL.
    #[arg(
        short = 'P',
        long = "pw",
        value_name = "PASSWORD",
        allow_hyphen_values = true
    )]
    password: Option<String>,
    /// Exit with code 2 unless the server has all of these: names of the table.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = check_name)]
    require: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Where the messages of the checks are published.
    #[arg(long, value_name = "TOPIC", default_value = "dunlin-test")]
    prefix: String,
    /// Seconds for each check.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    check_time: u64,
    /// Seconds for all of them; what is left then is skipped.
    #[arg(short = 'W', long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    #[command(flatten)]
    tls: Tls,
    #[command(flatten)]
    network: Network,
}

const EXAMPLES: &str = "\
Examples:
  dunlin test --cafile ca.pem quic://broker.example
  dunlin test mqtt://localhost --require mqtt5,qos2,shared --json";

impl Test {
    /// Asks, and prints what was found.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let url = self.url;
        if url.is_auto() {
            bail!("{url}: name one transport, such as quic:// or mqtts://");
        }
        topic::validate_name(&self.prefix).context("--prefix")?;
        let tls = match url.transport().is_encrypted() {
            true => Some(self.network.tls(self.tls.options()?).build()?),
            false if self.tls.is_wanted() => {
                bail!("{url} is not encrypted: --cafile and others have no effect")
            }
            false => None,
        };
        let options = Options {
            url,
            user: self.username,
            password: self.password,
            tls,
            quic: self.network.tuning(),
            prefix: self.prefix,
            check: Duration::from_secs(self.check_time),
            total: Duration::from_secs(self.timeout),
        };
        let report = probe::run(options)?;
        let missing = report.missing(&self.require);
        let mut out = io::stdout().lock();
        match self.json {
            true => writeln!(out, "{:#}", report.json(&missing))?,
            false => write!(out, "{report}")?,
        }
        out.flush()?;
        if !missing.is_empty() {
            let _ = writeln!(io::stderr(), "dunlin: missing: {}", missing.join(", "));
            return Ok(ExitCode::from(MISSING));
        }
        Ok(match report.is_reachable() {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        })
    }
}

fn check_name(text: &str) -> Result<String, String> {
    if probe::names().any(|name| name == text) {
        return Ok(text.to_owned());
    }
    let names: Vec<_> = probe::names().collect();
    Err(format!("it is one of {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_checks_are_each_there_once() {
        let mut names: Vec<_> = probe::names().collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert_eq!(check_name("qos2"), Ok("qos2".to_owned()));
        assert!(check_name("qos3").is_err());
    }
}
