//! Tries what this library does over QUIC against any broker, and prints a line
//! for each: `ok NAME`, `not ok NAME: reason`, `skip NAME: reason`, at last
//! `end`. `scripts/interop/run_own.py` runs it against brokers by others.
//!
//! ```sh
//! cargo run -p dunlin-client --example features -- --port 14567 --ca ca.pem
//! ```

#![allow(clippy::print_stdout, reason = "its lines are its answer")]

mod relay;
mod tries;

use core::error::Error;
use core::fmt;
use core::time::Duration;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use dunlin_client::{Builder, Client, TlsOptions};

/// Longest that one feature may take.
const FEATURE_MAX: Duration = Duration::from_secs(30);

type Outcome = Result<(), Box<dyn Error>>;

/// The broker cannot do this, and what became of it.
#[derive(Debug)]
struct Skip(&'static str);

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for Skip {}

/// What was asked for on the command line.
struct Run {
    host: String,
    port: u16,
    tls_port: Option<u16>,
    ca: PathBuf,
    setting: String,
    only: Option<String>,
    /// The broker works on streams in the order in which they arrive.
    streams_in_order: bool,
    /// Of topics and of client identifiers.
    name: String,
}

impl Run {
    fn from_arguments() -> Result<Self, Box<dyn Error>> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let mut run = Self {
            host: "localhost".into(),
            port: 14567,
            tls_port: None,
            ca: PathBuf::new(),
            setting: "plain".into(),
            only: None,
            streams_in_order: false,
            name: format!("dunlin-{:x}", since.as_micros()),
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(flag) = arguments.next() {
            let value = arguments
                .next()
                .ok_or_else(|| format!("{flag} needs a value"))?;
            match flag.as_str() {
                "--host" => run.host = value,
                "--port" => run.port = value.parse()?,
                "--tls-port" => run.tls_port = Some(value.parse()?).filter(|port| *port > 0),
                "--ca" => run.ca = value.into(),
                "--setting" => run.setting = value,
                "--only" => run.only = Some(value),
                "--streams-in-order" => run.streams_in_order = value.parse()?,
                _ => return Err(format!("unknown argument {flag}").into()),
            }
        }
        Ok(run)
    }

    /// A topic of this run.
    fn topic(&self, tail: &str) -> String {
        format!("interop/{}/{tail}", self.name)
    }

    fn tls(&self) -> TlsOptions {
        TlsOptions::new().ca_file(&self.ca)
    }

    /// A client over QUIC that notices the end of its connection.
    fn client(&self) -> Result<Builder, Box<dyn Error>> {
        self.client_at(self.port)
    }

    /// The same by way of another port.
    fn client_at(&self, port: u16) -> Result<Builder, Box<dyn Error>> {
        let url = format!("quic://{}:{port}", self.host);
        Ok(Client::builder(url)?.tls(self.tls()).no_reconnect())
    }

    /// Tries a feature, if this setting of the broker is the one for it.
    async fn feature(
        &self,
        setting: &str,
        name: &str,
        attempt: impl AsyncFnOnce(&Self) -> Outcome,
    ) {
        if self.setting != setting || self.only.as_deref().is_some_and(|only| only != name) {
            return;
        }
        let result = match tokio::time::timeout(FEATURE_MAX, attempt(self)).await {
            Ok(result) => result,
            Err(_) => Err(format!("no end in {FEATURE_MAX:?}").into()),
        };
        match result {
            Ok(()) => println!("ok {name}"),
            Err(error) if error.is::<Skip>() => println!("skip {name}: {error}"),
            Err(error) => println!("not ok {name}: {}", error.to_string().replace('\n', " ")),
        }
    }
}

/// Asks the runner for something, and waits until it is done.
fn ask(word: &str) -> Outcome {
    println!("{word}");
    match std::io::stdin().read_line(&mut String::new())? {
        0 => Err(Skip("nobody restarts the broker").into()),
        _ => Ok(()),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let run = match Run::from_arguments() {
        Ok(run) => run,
        Err(error) => {
            println!("not ok arguments: {error}");
            return ExitCode::FAILURE;
        }
    };
    tries::all(&run).await;
    println!("end");
    ExitCode::SUCCESS
}
