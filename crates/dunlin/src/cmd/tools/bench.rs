//! `dunlin bench`: the options of the load generator, and where its results
//! go. What it does is in [`crate::bench`].

mod connect;
mod library;
mod load;
mod scenario;

use core::time::Duration;
use std::io::{self, Write};
use std::net::ToSocketAddrs as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use clap::Args;
use dunlin_dial::{Protocol, Url};
use dunlin_mqtt_codec::{QoS, Version};
use serde::Serialize;

use super::network::Network;
use crate::bench;
use crate::bench::handshakes::{self, Pace, Visits};
use crate::bench::placement;
use crate::bench::plan::{Connecting, Plan, Target};
use crate::bench::proc::Process;
use crate::files;
use connect::{Connect, Trust, sources};
use library::LibraryOptions;
use load::{FleetOptions, Load};
use scenario::ScenarioOptions;

/// Where the broker is if nothing is said.
const URL: &str = "mqtt://127.0.0.1:1883";

/// One of so many clients of `--handshakes` comes before and does not count.
const WARM_UP_PART: u64 = 10;

/// Measure a broker: load, latency, memory.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Bench {
    /// The broker: quic://, mqtt://, mqtts://, ws:// or wss://HOST[:PORT], or with
    /// AMQP amqp+quic://, amqp://, amqps://, amqp+ws:// or amqp+wss://; without it
    /// mqtt://127.0.0.1:1883.
    #[arg(long)]
    url: Option<String>,
    /// The broker for subscribers, if they come by another transport or protocol.
    #[arg(long, value_name = "URL")]
    sub_url: Option<String>,
    /// MQTT version: 5 or 3.1.1.
    #[arg(long, short = 'V', default_value = "5", value_parser = version)]
    mqtt: Version,
    /// User name.
    #[arg(long, short)]
    user: Option<String>,
    /// Password.
    #[arg(long, short = 'P')]
    password: Option<String>,
    #[command(flatten)]
    trust: Trust,
    #[command(flatten)]
    network: Network,
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    fleet: FleetOptions,
    #[command(flatten)]
    library: LibraryOptions,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    scenario: ScenarioOptions,
    /// Write the result as JSON to this file; `-`: to standard output instead
    /// of the table.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Process of the broker, to report its CPU and memory; found by itself
    /// when the broker listens on loopback.
    #[arg(long, value_name = "PID")]
    broker_pid: Option<u32>,
    /// No progress lines.
    #[arg(long, short)]
    quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  dunlin bench                                      one publisher, one subscriber, saturation
  dunlin bench --pubs 10 --subs 10                  ten pairs
  dunlin bench --pattern fan-out --subs 50          one topic, fifty subscribers
  dunlin bench --pattern fan-in --pubs 100 --qos 1 --persistent
  dunlin bench --rate 1000 --duration 30            latency at 1,000 messages a second
  dunlin bench --pattern fleet --devices 2000 --rate 5000 --arrival poisson
  dunlin bench --pattern fleet --devices 500 --subscribing 10 --sleeping 80 --qos 1 \
               --url quic://127.0.0.1 --ca dunlin-data/certs/ca.pem
  dunlin bench --url amqp://127.0.0.1 --queue /queues/one --qos 1 --subs 10
  dunlin bench --url mqtt://127.0.0.1 --sub-url amqp://127.0.0.1
  dunlin bench --handshakes 5000 --url quic://127.0.0.1 --ca dunlin-data/certs/ca.pem
  dunlin bench --scenario fleet.toml --url quic://127.0.0.1 --ca dunlin-data/certs/ca.pem
  dunlin bench --idle 10000 --url quic://127.0.0.1 --ca dunlin-data/certs/ca.pem";

impl Bench {
    /// Runs the command.
    ///
    /// # Errors
    /// The options make no sense, the broker cannot be reached, the result
    /// cannot be written.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(count) = self.connect.handshakes {
            return self.handshakes(count);
        }
        if self.library.library {
            return self.library();
        }
        if let Some(path) = &self.scenario.scenario {
            return self.scenario(path);
        }
        let plan = self.plan(run_id())?;
        let broker = self.broker(&plan)?;
        let mut log: Box<dyn Write> = if self.quiet {
            Box::new(io::sink())
        } else {
            Box::new(io::stderr())
        };
        let report = bench::run(&plan, broker, &mut log)?;
        if let Some(path) = &self.json {
            write_json(path, &report, true)?;
        }
        if !self.json.as_deref().is_some_and(is_stdout) {
            write!(io::stdout().lock(), "{report}")?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The process of the broker, if it is known.
    fn broker(&self, plan: &Plan) -> anyhow::Result<Option<Process>> {
        match self.broker_pid {
            Some(pid) => Process::new(pid)
                .with_context(|| format!("no process {pid}"))
                .map(Some),
            None => Ok(Process::listening_at(
                plan.target.addr,
                plan.target.transport,
            )),
        }
    }

    fn url(&self) -> &str {
        self.url.as_deref().unwrap_or(URL)
    }

    fn visits(&self, count: u64) -> anyhow::Result<Visits> {
        let connect = &self.connect;
        let warm_up = connect.uncounted.unwrap_or(count / WARM_UP_PART);
        let target = self.target(self.url())?;
        if target.protocol != Protocol::Mqtt {
            bail!("--handshakes needs a URL of MQTT");
        }
        let mut visits = Visits {
            target,
            version: self.mqtt,
            count,
            warm_up,
            pace: Pace::AtOnce(connect.at_once),
            until: connect.until,
            timeout: connect.give_up,
            early_data: connect.early_data,
            own_tickets: Vec::new(),
        };
        if let Some(interval) = connect.every {
            visits.pace = Pace::Every(interval);
            if connect.early_data {
                let trust = (0..count + warm_up).map(|_| self.trust.build(&self.network, true));
                visits.own_tickets = trust.collect::<anyhow::Result<_>>()?;
            }
        }
        Ok(visits)
    }

    fn handshakes(&self, count: u64) -> anyhow::Result<ExitCode> {
        let visits = self.visits(count)?;
        let (addr, transport) = (visits.target.addr, visits.target.transport);
        let broker = match self.broker_pid {
            Some(pid) => Process::new(pid),
            None => Process::listening_at(addr, transport),
        };
        let cost = handshakes::run(&visits, broker)?;
        match &self.json {
            // One line: who reads it may read others before.
            Some(path) => write_json(path, &cost, false)?,
            None => write!(io::stdout().lock(), "{cost}")?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn plan(&self, run_id: String) -> anyhow::Result<Plan> {
        let (load, connect) = (&self.load, &self.connect);
        let target = self.target(self.url())?;
        let subscribers_at = self.sub_url.as_deref().map(|url| self.target(url));
        let idle = connect.idle.unwrap_or(0);
        let (pubs, subs, topics) = match idle {
            0 => load.shape(&self.fleet),
            _ => (0, 0, 1),
        };
        let mut plan = Plan {
            pattern: load.pattern,
            publishers: pubs,
            subscribers: subs,
            topics,
            idle,
            fleet: self.fleet.fleet(load)?,
            messages: load.messages(),
            pace: load.pace(pubs),
            sessions: load.sessions(self.mqtt, connect.keep_alive),
            time: load.time(),
            connecting: Connecting {
                rate: connect.connect_rate,
                pending_max: connect.connecting.max(1),
                sources: sources(&connect.source, &target, pubs + subs + idle),
            },
            threads: connect.threads,
            places: None,
            part: None,
            prefix: format!("{}/{run_id}", load.prefix),
            run_id,
            target,
            subscribers_at: subscribers_at.transpose()?,
        };
        if dunlin_base::topic::validate_name(&plan.prefix).is_err() {
            bail!("{:?} cannot be the start of a topic", load.prefix);
        }
        plan.check()?;
        self.library.check(&plan)?;
        if let (Some(placement), Some(metrics)) = (connect.placement, connect.metrics) {
            plan.places = Some(placement::find(&plan, placement, metrics)?);
        }
        Ok(plan)
    }

    fn target(&self, text: &str) -> anyhow::Result<Target> {
        let url: Url = text.parse().with_context(|| format!("--url {text}"))?;
        let addr = (url.host(), url.port())
            .to_socket_addrs()
            .with_context(|| format!("cannot resolve {}", url.host()))?
            .next()
            .with_context(|| format!("{} has no address", url.host()))?;
        let returning = self.connect.handshakes.is_none() || self.connect.returning;
        let tls = if url.transport().is_encrypted() {
            Some(
                self.trust
                    .build(&self.network, returning)
                    .context("TLS settings")?,
            )
        } else {
            None
        };
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Ok(Target {
            url: url.to_string(),
            protocol: url.protocol(),
            transport: url.transport(),
            addr,
            server_name: url.host().to_owned(),
            ws_path: url.path().to_owned(),
            tls,
            quic: self.network.tuning(),
            user: self.user.clone().or_else(|| owned(url.user())),
            password: self.password.clone().or_else(|| owned(url.password())),
        })
    }
}

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Writes a result to a file, or to standard output: over several lines if it is
/// `pretty` there.
fn write_json(path: &Path, result: &impl Serialize, pretty: bool) -> anyhow::Result<()> {
    let json = match is_stdout(path) && !pretty {
        true => serde_json::to_vec(result),
        false => serde_json::to_vec_pretty(result),
    };
    let mut json = json.context("cannot make JSON")?;
    json.push(b'\n');
    if is_stdout(path) {
        return Ok(io::stdout().lock().write_all(&json)?);
    }
    files::replace(path, &json, files::Access::Public)
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Tells the topics and clients of this run from those of others.
fn run_id() -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let mixed = now.as_micros() as u64 ^ (u64::from(std::process::id()) << 32);
    format!("{:07x}", mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 36)
}

fn version(text: &str) -> Result<Version, String> {
    match text {
        "5" | "5.0" | "mqttv5" => Ok(Version::V5),
        "3.1.1" | "311" | "4" | "mqttv311" => Ok(Version::V311),
        _ => Err("must be 5 or 3.1.1".into()),
    }
}

fn qos(text: &str) -> Result<QoS, String> {
    let number = text.parse().ok().and_then(QoS::from_u8);
    number.ok_or_else(|| "must be 0, 1 or 2".into())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| "must be a number of seconds")?;
    let valid = (0.0..=31_536_000.0).contains(&number);
    valid
        .then(|| Duration::from_secs_f64(number))
        .ok_or_else(|| "must be from 0 to a year".into())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::bench::schedule::Arrival;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        bench: Bench,
    }

    fn plan(args: &str) -> Result<Plan, String> {
        let line = Line::try_parse_from(core::iter::once("bench").chain(args.split_whitespace()));
        line.map_err(|e| e.to_string())?
            .bench
            .plan("x".into())
            .map_err(|e| format!("{e:#}"))
    }

    #[test]
    fn patterns_suggest_their_shape() {
        let cases = [
            ("", (1, 1, 1)),
            ("--pubs 10", (10, 10, 10)),
            ("--subs 7", (7, 7, 7)),
            ("--pubs 2 --subs 6", (2, 6, 2)),
            ("--pattern fan-in", (100, 1, 100)),
            ("--pattern fan-out --subs 9", (1, 9, 1)),
            ("--pattern n-n --pubs 3 --subs 4 --topics 5", (3, 4, 5)),
            ("--pattern 1-1", (1, 1, 1)),
            ("--idle 10", (0, 0, 1)),
            ("--pattern fleet", (500, 500, 500)),
            ("--pattern fleet --devices 10 --subscribing 20%", (8, 2, 2)),
            ("--pattern fleet --devices 10 --subscribing 0", (10, 0, 10)),
            (
                "--url amqp://127.0.0.1 --queue q --pubs 3 --subs 4",
                (3, 4, 1),
            ),
        ];
        for (args, want) in cases {
            let plan = plan(args).expect(args);
            let got = (plan.publishers, plan.subscribers, plan.topics);
            assert_eq!(got, want, "{args}");
        }
    }

    #[test]
    fn options_reach_the_plan() {
        let plan = plan(
            "--url mqtt://u:p@127.0.0.1:99 --qos 2 --sub-qos 1 --size 100 --rate 50.5 -V 3.1.1 \
             --duration 0.5 --warmup 0 --persistent --inflight 9 --source 127.0.0.1,127.0.0.2",
        )
        .expect("plan");
        assert_eq!(plan.target.addr.to_string(), "127.0.0.1:99");
        assert_eq!(plan.target.user.as_deref(), Some("u"));
        assert_eq!(
            (plan.messages.qos, plan.sessions.subscribe_qos),
            (QoS::ExactlyOnce, QoS::AtLeastOnce)
        );
        assert_eq!(plan.sessions.version, Version::V311);
        assert_eq!(
            (&*plan.messages.sizes, plan.pace.rate),
            (&[100][..], Some(50.5))
        );
        assert_eq!(plan.window(), 9);
        assert_eq!(plan.time.duration, Duration::from_millis(500));
        assert_eq!(plan.connecting.sources.len(), 2);
        assert!(plan.sessions.persistent && plan.time.warmup.is_zero());
    }

    #[test]
    fn a_fleet_has_a_rate_and_shares() {
        let args = "--pattern fleet --devices 200 --size 20,80 --arrival clusters --cluster 7";
        let plan = plan(&format!("{args} --sleeping 25")).expect("plan");
        assert_eq!(
            plan.pace.rate,
            Some(100.0),
            "one a second of each publisher"
        );
        assert_eq!(plan.pace.arrival, Arrival::Clusters(7));
        assert_eq!([0, 1, 2].map(|n| plan.size_of(n)), [20, 80, 20]);
        assert_eq!((0..100).filter(|n| plan.fleet.sleeps(*n)).count(), 25);
        assert_eq!(plan.fleet.movers(100, 100), 0);
    }

    #[test]
    fn nonsense_is_one_sentence() {
        let cases = [
            ("--size 3", "16 bytes"),
            ("--qos 3", "0, 1 or 2"),
            ("--rate 0", "more than 0"),
            ("--idle 5 --pubs 5", "cannot be used with"),
            ("--url http://x", "unknown scheme"),
            ("--queue q", "AMQP"),
            ("--url amqp://127.0.0.1 --share", "MQTT"),
            ("--pin 12", "64 hexadecimal"),
            ("--prefix a/#", "start of a topic"),
            ("--threads 0", "threads"),
            ("--samples", "--library"),
            ("--library --share", "--share"),
            ("--arrival poisson", "--rate"),
            ("--sleeping 10", "--pattern fleet"),
            ("--pattern fleet --moving 10", "over QUIC"),
            ("--pattern fleet --sleeping 101", "percentage"),
            ("--pattern fleet --pubs 3", "--devices"),
            ("--duration x", "seconds"),
            ("--cert x.pem", "--key"),
        ];
        for (args, want) in cases {
            let error = plan(args).expect_err(args);
            assert!(error.contains(want), "{args}: {error}");
        }
    }

    #[test]
    fn loopback_has_addresses_enough() {
        let tcp = plan("--idle 50000").expect("plan");
        assert_eq!(tcp.connecting.sources.len(), 3);
        assert!(
            plan("--idle 100")
                .expect("plan")
                .connecting
                .sources
                .is_empty()
        );
        let quic = plan("--idle 100 --insecure --url quic://127.0.0.1").expect("plan");
        assert_eq!(quic.connecting.sources.len(), 8);
    }
}
