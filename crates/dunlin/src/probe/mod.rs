//! `dunlin test`: what a server can, found out by speaking to it. Each check has
//! connections of its own, a time limit, and leaves nothing behind.

mod amqp;
mod fault;
mod mqtt;
mod quic;
mod report;
mod tls;
mod wire;

use core::net::SocketAddr;
use core::time::Duration;
use std::net::ToSocketAddrs as _;
use std::sync::{Arc, mpsc};
use std::time::Instant;

use dunlin_base::Text;
use dunlin_base::transport::Transport;
use dunlin_dial::{Protocol, Url};
use dunlin_mqtt_codec::Version;
use dunlin_net::{ClientTls, Connector, DialConfig, QuicTuning};
use serde_json::Value;

pub use fault::Fault;
pub use report::{Outcome, Report, Row};

use mqtt::Granted;
use wire::Wire;

/// Whom to ask, and how long.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server.
    pub url: Url,
    /// User name, if not that of the URL.
    pub user: Option<String>,
    /// Password, if not that of the URL.
    pub password: Option<String>,
    /// Whom to trust, where the transport is encrypted.
    pub tls: Option<Arc<ClientTls>>,
    /// How QUIC behaves.
    pub quic: QuicTuning,
    /// Topics begin with this, and client identifiers with `dunlin-test-`.
    pub prefix: String,
    /// Time for each check.
    pub check: Duration,
    /// Time for all of them.
    pub total: Duration,
}

/// What a check says, if it comes to an end.
pub(crate) struct Verdict {
    has: bool,
    detail: String,
    value: Value,
}

impl Verdict {
    fn yes(detail: impl Into<String>) -> Self {
        Self {
            has: true,
            detail: detail.into(),
            value: Value::Null,
        }
    }

    fn no(detail: impl Into<String>) -> Self {
        Self {
            has: false,
            ..Self::yes(detail)
        }
    }

    fn value(mut self, value: impl Into<Value>) -> Self {
        self.value = value.into();
        self
    }
}

type Checked = Result<Verdict, Fault>;

/// One check.
pub(crate) struct Check {
    name: &'static str,
    title: &'static str,
    needs: Needs,
    run: fn(&mut Probe, Instant) -> Checked,
}

const fn check(
    name: &'static str,
    title: &'static str,
    needs: Needs,
    run: fn(&mut Probe, Instant) -> Checked,
) -> Check {
    Check {
        name,
        title,
        needs,
        run,
    }
}

/// When a check makes sense.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    /// The server takes clients of MQTT.
    Mqtt,
    /// The server takes clients of MQTT 5.0.
    V5,
    Quic,
    Tls,
    /// TLS over TCP.
    TlsOverTcp,
    /// QUIC with MQTT.
    MqttOverQuic,
}

/// The names of all checks.
pub fn names() -> impl Iterator<Item = &'static str> {
    let all = [CHECKS, tls::CHECKS, quic::CHECKS, mqtt::CHECKS];
    let more = [quic::WITH_MQTT, amqp::CHECKS];
    let all = all.into_iter().chain(more).flatten();
    all.map(|check| check.name)
}

const CHECKS: &[Check] = &[
    Check {
        name: "connect",
        title: "transport",
        needs: Needs::Nothing,
        run: connect,
    },
    Check {
        name: "quic",
        title: "QUIC",
        needs: Needs::Nothing,
        run: |probe, _| match probe.transport() {
            Transport::Quic => Ok(Verdict::yes("version 1")),
            other => Ok(Verdict::no(format!("the URL is one of {}", other.name()))),
        },
    },
];

/// What is known while checks run.
pub(crate) struct Probe {
    options: Options,
    addr: SocketAddr,
    /// In all names of this run.
    run: String,
    /// Of the last names that were made.
    serial: u32,
    version: Option<Version>,
    granted: Option<Granted>,
}

/// Runs all checks that make sense for the URL.
///
/// # Errors
/// The name of the host has no address.
pub fn run(options: Options) -> Result<Report, Fault> {
    let end = Instant::now() + options.total;
    let addr = resolve(&options.url, options.check.min(options.total))?;
    let random = getrandom::u64().map_err(|error| Fault::Other(error.to_string()))?;
    let url = options.url.to_string();
    let protocol = options.url.protocol();
    let mut probe = Probe {
        options,
        addr,
        run: format!("{random:016x}"),
        serial: 0,
        version: None,
        granted: None,
    };
    let mut rows = Vec::new();
    let tables: &[&'static [Check]] = match protocol {
        Protocol::Amqp => &[CHECKS, tls::CHECKS, quic::CHECKS, amqp::CHECKS],
        _ => &[
            CHECKS,
            tls::CHECKS,
            quic::CHECKS,
            mqtt::CHECKS,
            quic::WITH_MQTT,
        ],
    };
    for check in tables.iter().copied().flatten() {
        let row = probe.row(check, end);
        let is_over = check.name == "connect" && row.outcome != Outcome::Yes;
        rows.push(row);
        if is_over {
            break;
        }
    }
    // Rows that make no sense for this URL are left out, not listed as skipped.
    rows.retain(|row| row.outcome != Outcome::Skipped || !row.detail.is_empty());
    Ok(Report { url, rows })
}

/// Looks the host up, in a thread: the system's resolver knows no time limit. One that
/// hangs stays behind until the process ends.
fn resolve(url: &Url, limit: Duration) -> Result<SocketAddr, Fault> {
    let (host, port) = (url.host().to_owned(), url.port());
    let name = host.clone();
    let (found, answer) = mpsc::channel();
    std::thread::Builder::new()
        .name("dunlin-resolve".into())
        .spawn(move || {
            let addrs = (name.as_str(), port).to_socket_addrs();
            // Its reader may have given up.
            let _ = found.send(addrs.map(|mut addrs| addrs.next()));
        })?;
    let addrs = answer.recv_timeout(limit).map_err(|_| Fault::Timeout)?;
    let addr = addrs.map_err(|error| Fault::Other(format!("cannot resolve {host}: {error}")))?;
    addr.ok_or_else(|| Fault::Other(format!("{host} has no address")))
}

impl Probe {
    fn row(&mut self, check: &'static Check, end: Instant) -> Row {
        let (outcome, detail, value) = match self.lacks(check.needs) {
            Some(why) => (Outcome::Skipped, why.to_owned(), Value::Null),
            None if Instant::now() >= end => {
                (Outcome::Skipped, "the time is over".into(), Value::Null)
            }
            None => {
                let until = (Instant::now() + self.options.check).min(end);
                match (check.run)(self, until) {
                    Ok(verdict) if verdict.has => (Outcome::Yes, verdict.detail, verdict.value),
                    Ok(verdict) => (Outcome::No, verdict.detail, verdict.value),
                    Err(fault) if fault.is_answer() => {
                        (Outcome::No, fault.to_string(), Value::Null)
                    }
                    Err(fault) => (Outcome::Failed, fault.to_string(), Value::Null),
                }
            }
        };
        Row {
            name: check.name,
            title: check.title,
            outcome,
            detail,
            value,
        }
    }

    /// Why a check makes no sense; empty: not for this URL at all.
    fn lacks(&self, needs: Needs) -> Option<&'static str> {
        let transport = self.transport();
        let is_quic = transport == Transport::Quic;
        match needs {
            Needs::Quic | Needs::MqttOverQuic if !is_quic => Some(""),
            Needs::Tls if !transport.is_encrypted() => Some(""),
            Needs::TlsOverTcp if is_quic || !transport.is_encrypted() => Some(""),
            Needs::Mqtt | Needs::MqttOverQuic if self.version.is_none() => Some("no CONNACK"),
            Needs::V5 if self.version != Some(Version::V5) => Some("needs MQTT 5.0"),
            _ => None,
        }
    }

    fn transport(&self) -> Transport {
        self.options.url.transport()
    }

    /// How to connect.
    fn config(&self) -> DialConfig {
        let url = &self.options.url;
        let mut config = DialConfig::new(url.transport(), self.addr, url.host());
        config.tls.clone_from(&self.options.tls);
        config.quic.clone_from(&self.options.quic);
        config.quic.follow_network = false;
        config.protocols = vec![Text::from_static(url.protocol().name())];
        let path = match url.path() {
            "" => url.protocol().ws_path(),
            path => path,
        };
        path.clone_into(&mut config.ws_path);
        config.connector = url.socket().map(|path| Connector::unix(path.into()));
        config
    }

    /// A connection without a word of its protocol.
    fn dial(&self, until: Instant) -> Result<Wire, Fault> {
        Wire::dial(&self.config(), self.version.unwrap_or_default(), until)
    }

    fn user(&self) -> Option<&str> {
        let options = &self.options;
        options.user.as_deref().or_else(|| options.url.user())
    }

    fn password(&self) -> Option<&str> {
        let options = &self.options;
        options
            .password
            .as_deref()
            .or_else(|| options.url.password())
    }

    /// A client identifier that no other connection has: short, as 3.1 wants it.
    fn client_id(&mut self) -> String {
        self.serial += 1;
        let run = self.run.get(..8).unwrap_or_default();
        format!("dunlin-test-{run}-{}", self.serial)
    }

    /// A topic that no other check has.
    fn topic(&mut self, what: &str) -> String {
        self.serial += 1;
        format!(
            "{}/{}/{what}/{}",
            self.options.prefix, self.run, self.serial
        )
    }
}

/// Whether the transport comes about, and how long that takes.
fn connect(probe: &mut Probe, until: Instant) -> Checked {
    let begun = Instant::now();
    let wire = probe.dial(until)?;
    let took = begun.elapsed();
    let detail = format!(
        "{} to {}, {}",
        probe.transport().name(),
        probe.addr,
        millis(took)
    );
    wire.abandon();
    Ok(Verdict::yes(detail).value(micros(took)))
}

fn millis(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
