//! `dunlin bench`: the options of the load generator, and where its results
//! go. What it does is in [`crate::bench`].

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::io::{self, Write};
use std::net::ToSocketAddrs as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use clap::Args;
use dunlin_base::transport::Transport;
use dunlin_dial::{Protocol, Url};
use dunlin_mqtt_codec::{QoS, Version};
use dunlin_net::{ClientTls, ClientTlsBuilder};

use super::network::Network;
use crate::bench;
use crate::bench::handshakes::{self, Pace, Until, Visits};
use crate::bench::placement;
use crate::bench::places::Placement;
use crate::bench::plan::{Pattern, Plan, Target};
use crate::bench::proc::Process;
use crate::files;

/// One of so many clients of `--handshakes` comes before and does not count.
const WARM_UP_PART: u64 = 10;

/// Connections from one local address to one listener at most; the kernel has
/// 28,232 ports by default.
const PORTS_PER_ADDRESS: usize = 20_000;
/// Local addresses from which QUIC connections come on loopback, so that a
/// broker that spreads by address has something to spread.
const QUIC_SOURCES: u8 = 8;

/// Measure a broker: load, latency, memory.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Bench {
    /// The broker: quic://, mqtt://, mqtts://, ws:// or wss://HOST[:PORT], or with
    /// AMQP amqp+quic://, amqp://, amqps://, amqp+ws:// or amqp+wss://.
    #[arg(long, default_value = "mqtt://127.0.0.1:1883")]
    url: String,
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
    connect: Connect,
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
  dunlin bench --url amqp://127.0.0.1 --queue /queues/one --qos 1 --subs 10
  dunlin bench --url mqtt://127.0.0.1 --sub-url amqp://127.0.0.1
  dunlin bench --handshakes 5000 --url quic://127.0.0.1 --ca dunlin-data/certs/ca.pem
  dunlin bench --idle 10000 --url quic://127.0.0.1 --ca dunlin-data/certs/ca.pem";

#[derive(Debug, Args)]
#[command(next_help_heading = "Trust")]
struct Trust {
    /// Authorities to trust, PEM; without it those of the system.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// SHA-256 of the server's public key (SubjectPublicKeyInfo) in hex.
    #[arg(long, value_name = "HEX", value_parser = pin)]
    pin: Option<[u8; 32]>,
    /// Do not check the server's certificate.
    #[arg(long)]
    insecure: bool,
    /// Certificate of this client, PEM.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Its key, PEM.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
struct Load {
    /// Who talks to whom.
    #[arg(long, value_enum, default_value = "pair")]
    pattern: Pattern,
    /// Publishers.
    #[arg(long, value_name = "N")]
    pubs: Option<usize>,
    /// Subscribers.
    #[arg(long, value_name = "N")]
    subs: Option<usize>,
    /// Topics; several of one publisher are used in turn.
    #[arg(long, value_name = "N")]
    topics: Option<usize>,
    /// QoS of messages and subscriptions. With AMQP 0 is settled, 1 unsettled, 2
    /// unsettled with the receiver settling second.
    #[arg(long, default_value = "0", value_parser = qos)]
    qos: QoS,
    /// With AMQP: all messages go to the queue with this address, such as
    /// /queues/NAME, and each from there to one of the subscribers.
    #[arg(long, value_name = "ADDRESS")]
    queue: Option<String>,
    /// With AMQP: messages are to survive a restart of the broker.
    #[arg(long)]
    durable: bool,
    /// QoS of subscriptions, if it differs.
    #[arg(long, value_parser = qos)]
    sub_qos: Option<QoS>,
    /// Payload bytes.
    #[arg(long, default_value_t = 64)]
    size: usize,
    /// Messages a second, all publishers together; without it as fast as the
    /// broker takes them.
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    /// Messages of one publisher that may be on their way: unacknowledged with
    /// QoS 1 and 2, undelivered with QoS 0 at saturation.
    #[arg(long, value_name = "N")]
    inflight: Option<usize>,
    /// Messages that a publisher writes at once at most; 1 is the worst case
    /// for a broker.
    #[arg(long, default_value_t = 1024, value_name = "N")]
    batch: usize,
    /// With QoS 0 at saturation do not wait for deliveries: what the broker
    /// drops shows as loss.
    #[arg(long)]
    open_loop: bool,
    /// Subscribers form one shared subscription.
    #[arg(long)]
    share: bool,
    /// Subscribers have persistent sessions.
    #[arg(long)]
    persistent: bool,
    /// How long such a session outlives its connection, in seconds.
    #[arg(long, default_value_t = 3600, value_name = "SECONDS")]
    session_expiry: u32,
    /// Seconds measured.
    #[arg(long, short, default_value = "10", value_parser = seconds)]
    duration: Duration,
    /// Seconds before that, not measured.
    #[arg(long, default_value = "2", value_parser = seconds)]
    warmup: Duration,
    /// Seconds of silence after which what is missing counts as lost.
    #[arg(long, default_value = "3", value_parser = seconds)]
    drain: Duration,
    /// Start of all topics; a random part follows.
    #[arg(long, default_value = "bench")]
    prefix: String,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Connections")]
struct Connect {
    /// Only connect this many clients and hold them; with AMQP each has a session
    /// and a receiver.
    #[arg(long, value_name = "N", conflicts_with_all = ["pubs", "subs", "rate"])]
    idle: Option<usize>,
    /// Only connect this many clients one after the other, and say what that
    /// costs the broker.
    #[arg(long, value_name = "N", conflicts_with_all = ["pubs", "subs", "rate", "idle"])]
    handshakes: Option<u64>,
    /// Such clients come back, with tickets and tokens of earlier connections,
    /// instead of being strangers each time.
    #[arg(long, requires = "handshakes")]
    returning: bool,
    /// They send CONNECT as early data (QUIC).
    #[arg(long, requires = "returning")]
    early_data: bool,
    /// How far each goes.
    #[arg(long, value_enum, default_value = "connack", requires = "handshakes")]
    until: Until,
    /// Such clients at a time.
    #[arg(long, default_value_t = 4, value_name = "N")]
    at_once: usize,
    /// Such a client each time so many seconds have passed, and how long each took;
    /// with --early-data each comes once before, for tickets of its own.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, conflicts_with = "at_once")]
    every: Option<Duration>,
    /// Seconds after which such a client is given up.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "60")]
    give_up: Duration,
    /// Such clients that come before and do not count; without it a tenth as many.
    #[arg(long, value_name = "N", requires = "handshakes")]
    uncounted: Option<u64>,
    /// Connections a second; without it as fast as they come about.
    #[arg(long, value_name = "PER_SECOND")]
    connect_rate: Option<f64>,
    /// Handshakes pending at most.
    #[arg(long, default_value_t = 100, value_name = "N")]
    connecting: usize,
    /// Keep alive in seconds; 0: none.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    keep_alive: u16,
    /// Threads.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Local addresses to connect from in turn.
    #[arg(long, value_delimiter = ',', value_name = "IP,...")]
    source: Vec<IpAddr>,
    /// Place clients on chosen shards of a dunlin broker on 127.0.0.1.
    #[arg(
        long,
        value_enum,
        requires = "metrics",
        conflicts_with = "source",
        hide = true
    )]
    placement: Option<Placement>,
    /// Address of the metrics of that broker.
    #[arg(long, value_name = "IP:PORT", hide = true)]
    metrics: Option<SocketAddr>,
}

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
        let plan = self.plan()?;
        let broker = match self.broker_pid {
            Some(pid) => Some(Process::new(pid).with_context(|| format!("no process {pid}"))?),
            None => Process::listening_at(plan.target.addr, plan.target.transport),
        };
        let mut log: Box<dyn Write> = if self.quiet {
            Box::new(io::sink())
        } else {
            Box::new(io::stderr())
        };
        let report = bench::run(&plan, broker, &mut log)?;
        let to_stdout = self
            .json
            .as_deref()
            .is_some_and(|path| path.as_os_str() == "-");
        let mut out = io::stdout().lock();
        if let Some(path) = &self.json {
            let mut json = serde_json::to_vec_pretty(&report).context("cannot make JSON")?;
            json.push(b'\n');
            if to_stdout {
                out.write_all(&json)?;
            } else {
                files::replace(path, &json, files::Access::Public)
                    .with_context(|| format!("cannot write {}", path.display()))?;
            }
        }
        if !to_stdout {
            write!(out, "{report}")?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn visits(&self, count: u64) -> anyhow::Result<Visits> {
        let connect = &self.connect;
        let warm_up = connect.uncounted.unwrap_or(count / WARM_UP_PART);
        let target = self.target(&self.url)?;
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
        let mut out = io::stdout().lock();
        match &self.json {
            Some(path) if path.as_os_str() != "-" => {
                let json = serde_json::to_vec_pretty(&cost).context("cannot make JSON")?;
                files::replace(path, &json, files::Access::Public)
                    .with_context(|| format!("cannot write {}", path.display()))?;
            }
            // One line: who reads it may read others before.
            Some(_) => writeln!(out, "{}", serde_json::to_string(&cost)?)?,
            None => write!(out, "{cost}")?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn plan(&self) -> anyhow::Result<Plan> {
        let (load, connect) = (&self.load, &self.connect);
        let target = self.target(&self.url)?;
        let subscribers_at = self.sub_url.as_deref().map(|url| self.target(url));
        let idle = connect.idle.unwrap_or(0);
        let (pubs, subs, topics) = match idle {
            0 => load.shape(),
            _ => (0, 0, 1),
        };
        let run_id = run_id();
        let mut plan = Plan {
            version: self.mqtt,
            pattern: load.pattern,
            publishers: pubs,
            subscribers: subs,
            topics,
            idle,
            qos: load.qos,
            subscribe_qos: load.sub_qos.unwrap_or(load.qos),
            size: load.size,
            rate: load.rate,
            in_flight: load.inflight,
            batch: load.batch.max(1),
            open_loop: load.open_loop,
            share: load.share,
            persistent: load.persistent,
            session_expiry: load.session_expiry,
            keep_alive: connect.keep_alive,
            warmup: load.warmup,
            duration: load.duration.max(Duration::from_millis(100)),
            drain: load.drain,
            connect_rate: connect.connect_rate,
            connecting_max: connect.connecting.max(1),
            threads: connect.threads,
            sources: sources(&connect.source, &target, pubs + subs + idle),
            places: None,
            prefix: format!("{}/{run_id}", load.prefix),
            run_id,
            queue: load.queue.clone(),
            durable: load.durable,
            target,
            subscribers_at: subscribers_at.transpose()?,
        };
        if dunlin_base::topic::validate_name(&plan.prefix).is_err() {
            bail!("{:?} cannot be the start of a topic", load.prefix);
        }
        plan.check()?;
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

impl Load {
    /// Publishers, subscribers and topics, with what the pattern suggests for
    /// those not given.
    fn shape(&self) -> (usize, usize, usize) {
        let (pubs, subs) = match self.pattern {
            Pattern::Pair => {
                let pairs = self.pubs.or(self.subs).unwrap_or(1);
                (self.pubs.unwrap_or(pairs), self.subs.unwrap_or(pairs))
            }
            Pattern::FanIn => (self.pubs.unwrap_or(100), self.subs.unwrap_or(1)),
            Pattern::FanOut => (self.pubs.unwrap_or(1), self.subs.unwrap_or(50)),
            Pattern::All => (self.pubs.unwrap_or(10), self.subs.unwrap_or(10)),
        };
        let topics = match self.pattern {
            _ if self.queue.is_some() => return (pubs, subs, 1),
            Pattern::FanOut => 1,
            Pattern::Pair => pubs.min(subs),
            Pattern::FanIn | Pattern::All => pubs,
        };
        (pubs, subs, self.topics.unwrap_or(topics).max(1))
    }
}

impl Trust {
    fn build(&self, network: &Network, resumption: bool) -> anyhow::Result<Arc<ClientTls>> {
        let mut builder: ClientTlsBuilder = ClientTls::builder()
            .policy(network.policy())
            .resumption(resumption);
        if let Some(ca) = &self.ca {
            builder = builder.ca_pem_file(ca)?;
        }
        if let Some(pin) = self.pin {
            builder = builder.pin_public_key_sha256(pin);
        }
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            builder = builder.client_cert_files(cert, key)?;
        }
        if self.insecure {
            builder = builder.dangerous_accept_any_certificate();
        } else if self.ca.is_none() && self.pin.is_none() {
            builder = builder.system_roots()?;
        }
        Ok(Arc::new(builder.build()?))
    }
}

/// Where to connect from: as given, or on loopback as many addresses as ports
/// (TCP) or a broker's shards (QUIC) call for.
fn sources(given: &[IpAddr], target: &Target, connections: usize) -> Vec<IpAddr> {
    if !given.is_empty() || !is_loopback_v4(target.addr) {
        return given.to_vec();
    }
    let count = if target.transport == Transport::Quic {
        usize::from(QUIC_SOURCES).min(connections)
    } else if connections > PORTS_PER_ADDRESS {
        connections.div_ceil(PORTS_PER_ADDRESS)
    } else {
        return Vec::new();
    };
    (1..=u8::try_from(count).unwrap_or(u8::MAX))
        .map(|last| Ipv4Addr::new(127, 0, 0, last).into())
        .collect()
}

fn is_loopback_v4(addr: SocketAddr) -> bool {
    addr.is_ipv4() && addr.ip().is_loopback()
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

fn pin(text: &str) -> Result<[u8; 32], String> {
    let hex: Vec<u8> = text.bytes().filter(|byte| *byte != b':').collect();
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let bytes: Option<Vec<u8>> = hex
        .chunks(2)
        .map(|pair| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        })
        .collect();
    bytes
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| "must be 64 hexadecimal digits".into())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        bench: Bench,
    }

    fn plan(args: &str) -> Result<Plan, String> {
        let line = Line::try_parse_from(core::iter::once("bench").chain(args.split_whitespace()));
        line.map_err(|e| e.to_string())?
            .bench
            .plan()
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
            (plan.qos, plan.subscribe_qos),
            (QoS::ExactlyOnce, QoS::AtLeastOnce)
        );
        assert_eq!(plan.version, Version::V311);
        assert_eq!((plan.size, plan.rate, plan.window()), (100, Some(50.5), 9));
        assert_eq!(plan.duration, Duration::from_millis(500));
        assert_eq!(plan.sources.len(), 2);
        assert!(plan.persistent && plan.warmup.is_zero());
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
        assert_eq!(tcp.sources.len(), 3);
        assert!(plan("--idle 100").expect("plan").sources.is_empty());
        let quic = plan("--idle 100 --insecure --url quic://127.0.0.1").expect("plan");
        assert_eq!(quic.sources.len(), 8);
    }
}
