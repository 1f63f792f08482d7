//! `dunlin sink`: the options of a sink, its log, its signals. What it does is in
//! `dunlin-sink`.

use core::net::SocketAddr;
use core::time::Duration;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use dunlin_sink::{Config, Sample, Sink, SinkError};
use toml::{Table, Value};

use crate::config::sections::Log;
use crate::metrics::Server;
use crate::metrics::sink::SinkPages;
use crate::signals::Signals;

/// Write messages into a database.
///
/// A sink is a durable member of a shared subscription, in a process of its own. It
/// acknowledges a message when the database has stored it: while the database or the
/// sink is away, messages wait at the broker. Without --config, the options below say
/// what to do; a file can say more.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct SinkArgs {
    /// File that says what to do.
    #[arg(short = 'c', long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Connect to both, show the first messages as they would be stored, and exit.
    /// Stores nothing, and takes nothing from the sink.
    #[arg(long)]
    check: bool,
    /// Messages that --check shows.
    #[arg(long, value_name = "NUMBER", default_value_t = 5, requires = "check")]
    count: usize,
    /// Seconds that --check waits for them.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, requires = "check")]
    wait: u64,
    /// Where /metrics, /healthz and /readyz are.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    #[command(flatten)]
    plain: Plain,
}

/// Options instead of a file.
#[derive(Debug, Args)]
struct Plain {
    /// Name: client identifier and group are called so. [default: sink]
    #[arg(long, value_name = "NAME", conflicts_with = "config")]
    name: Option<String>,
    /// The broker. [default: mqtt://localhost]
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    url: Option<String>,
    /// Topics; may be repeated.
    #[arg(
        short = 't',
        long = "topic",
        value_name = "FILTER",
        conflicts_with = "config"
    )]
    topics: Vec<String>,
    /// What payloads are: json, text, raw, cbor or sparkplug. [default: json]
    #[arg(long, value_name = "FORMAT", conflicts_with = "config")]
    format: Option<String>,
    /// Only messages for which this expression is true.
    #[arg(long = "where", value_name = "EXPRESSION", conflicts_with = "config")]
    condition: Option<String>,
    /// A column and what is in it; may be repeated. Without any: topic, time, qos and
    /// payload.
    #[arg(
        long = "column",
        value_name = "NAME=EXPRESSION",
        conflicts_with = "config"
    )]
    columns: Vec<String>,
    /// File for messages that cannot be stored; without it they end the sink.
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    refused: Option<PathBuf>,
    /// PostgreSQL: postgresql://USER@HOST/DATABASE, or host=... dbname=...
    #[arg(long, value_name = "URL", conflicts_with_all = ["config", "http"], requires = "table")]
    postgres: Option<String>,
    /// Its table.
    #[arg(long, value_name = "TABLE", requires = "postgres")]
    table: Option<String>,
    /// Do nothing for a row whose unique key is there already.
    #[arg(long, requires = "postgres")]
    keyed: bool,
    /// A server that takes rows by HTTP POST, an object a line.
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    http: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  dunlin sink --config sink.toml --check
  dunlin sink --config sink.toml --metrics 127.0.0.1:9464
  dunlin sink -t 'plant/+/temperature' --postgres postgresql:///plant --table readings \\
      --column device=parts[1] --column at=time --column celsius=payload.celsius";

impl SinkArgs {
    /// Runs until it is asked to stop.
    pub(super) fn run(self) -> Result<ExitCode> {
        let mut config = match &self.config {
            Some(path) => Config::load(path)?,
            None => self.plain.config()?,
        };
        config.metrics = self.metrics.or(config.metrics);
        if config.state.is_none() {
            // Of a unit of systemd with `StateDirectory=`; of several, the first.
            let folders = std::env::var_os("STATE_DIRECTORY");
            config.state = folders.as_deref().and_then(|folders| {
                let first = std::env::split_paths(folders).next()?;
                Some(first.join(format!("{}.state", config.name)))
            });
        }
        config.check()?;
        if self.check {
            return self.try_out(&config);
        }
        crate::log::init(&Log::default())?;
        let signals = Signals::new().context("cannot take over signals")?;
        let (name, workers) = (config.name.clone(), config.broker.workers);
        let metrics = config.metrics;
        let sink = Sink::start(config)?;
        // It answers for as long as this lives.
        let _server = metrics
            .map(|addr| {
                let stats = sink.stats();
                serve(
                    addr,
                    SinkPages {
                        name,
                        workers,
                        stats,
                    },
                )
            })
            .transpose()?;
        let stopper = sink.stopper();
        let thread = std::thread::Builder::new().name("signals".into());
        let asked = thread.spawn(move || {
            let mut signals = signals;
            while signals.wait() == crate::signals::Signal::Reload {}
            stopper.stop();
            // The second time nothing is waited for.
            while signals.wait() == crate::signals::Signal::Reload {}
            std::process::exit(1);
        });
        asked.context("cannot start")?;
        sink.join()?;
        Ok(ExitCode::SUCCESS)
    }

    fn try_out(&self, config: &Config) -> Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start")?;
        let mut out = io::stdout();
        let mut refused = 0;
        let show = |sample: Sample| {
            let rows = match sample.rows {
                Ok(rows) if rows.is_empty() => "not selected".into(),
                Ok(rows) => rows.join("\n  "),
                Err(refusal) => {
                    refused += 1;
                    format!("refused: {refusal}")
                }
            };
            let _ = writeln!(out, "{}\n  {rows}", sample.topic);
        };
        let wait = Duration::from_secs(self.wait);
        let tried = runtime.block_on(dunlin_sink::check(config, self.count, wait, show));
        // A resolver that waits for a name is not waited for.
        runtime.shutdown_background();
        let seen = tried.map_err(|error: SinkError| anyhow::Error::new(error))?;
        writeln!(
            io::stdout(),
            "broker and target are there; {seen} messages seen, {refused} refused"
        )?;
        Ok(match refused {
            0 => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        })
    }
}

/// Shows metrics at an address.
fn serve(addr: SocketAddr, pages: SinkPages) -> Result<Server> {
    let server = Server::start(addr, Vec::new(), pages)
        .with_context(|| format!("cannot serve metrics at {addr}"))?;
    tracing::info!(bound = %server.addr(), "metrics are served");
    Ok(server)
}

impl Plain {
    /// What the options say, as a file would.
    fn config(&self) -> Result<Config> {
        if self.topics.is_empty() {
            bail!("say what to do: --config, or -t and a target (see --help)");
        }
        let text = |text: &String| Value::from(text.as_str());
        let table = |fields: &[(&str, Option<Value>)]| {
            let given = fields.iter().filter_map(|(key, value)| {
                let value = value.clone()?;
                Some(((*key).to_owned(), value))
            });
            Value::Table(given.collect::<Table>())
        };
        let mut columns = Table::new();
        for column in &self.columns {
            let (name, value) = column
                .split_once('=')
                .with_context(|| format!("--column {column}: it is NAME=EXPRESSION"))?;
            columns.insert(name.trim().to_owned(), value.trim().into());
        }
        let topics: Vec<Value> = self.topics.iter().map(text).collect();
        let file = self.refused.as_ref();
        let file = file.map(|path| Value::from(path.display().to_string()));
        let keyed = self.keyed.then(|| Value::from("nothing"));
        let all = table(&[
            ("name", self.name.as_ref().map(text)),
            (
                "broker",
                Some(table(&[
                    ("url", self.url.as_ref().map(text)),
                    ("filters", Some(topics.into())),
                ])),
            ),
            (
                "message",
                Some(table(&[
                    ("format", self.format.as_ref().map(text)),
                    ("where", self.condition.as_ref().map(text)),
                ])),
            ),
            ("columns", Some(columns.into())),
            ("refused", Some(table(&[("file", file)]))),
            (
                "postgres",
                self.postgres.as_ref().map(|url| {
                    table(&[
                        ("url", Some(text(url))),
                        ("table", self.table.as_ref().map(text)),
                        ("on_conflict", keyed),
                    ])
                }),
            ),
            (
                "http",
                self.http
                    .as_ref()
                    .map(|url| table(&[("url", Some(text(url)))])),
            ),
        ]);
        let text = toml::to_string(&all).context("the options make no configuration")?;
        Ok(Config::parse(&"the command line", &text)?)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        sink: SinkArgs,
    }

    #[test]
    fn options_say_what_a_file_would() {
        let line = "x -t a/# -t b --name n --postgres host=/run --table t --keyed \
                    --column v=payload.v --where payload.v>1 --refused r";
        let line = Line::parse_from(line.split_whitespace());
        let config = line.sink.plain.config().expect("a configuration");
        config.check().expect("possible");
        assert_eq!(config.subscriptions(), ["$share/n/a/#", "$share/n/b"]);
        let postgres = config.postgres.expect("given");
        assert_eq!(postgres.on_conflict, dunlin_sink::OnConflict::Nothing);
        let none = Line::parse_from(["x"]);
        assert!(none.sink.plain.config().is_err(), "nothing to do");
    }
}
