//! The systems that are compared: how each is found, started and addressed.
//!
//! All brokers have the same certificate. All clients are ours
//! (`dunlin-client`, and `dunlin send` and `receive` for AMQP), so that what
//! differs is the broker, the transport and how a connection is opened;
//! the broker `mqttv5` delivers on the control stream, which any client takes.
//! CoAP has clients by libcoap (`lab/coap`), which take the same options.

use core::net::Ipv4Addr;
use core::time::Duration;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result};
use dunlin_link::linux::Namespace;

use super::coap::{self, Known};
use super::load::clients;
use super::visits::Visits;
use crate::lab::{Lab, QUIC_PORT, TCP_PORT, TLS_PORT, find, targets};
use crate::process::{Server, output};

/// A broker with a transport and a way to use it.
#[derive(Debug)]
pub(crate) struct System {
    pub(crate) id: &'static str,
    /// For legends.
    pub(crate) title: &'static str,
    pub(crate) broker: Broker,
    pub(crate) wire: Wire,
    /// As the load generator names it.
    pub(crate) streams: &'static str,
    /// Clients keep session tickets and send early data.
    pub(crate) early: bool,
    /// AMQP is spoken, by `dunlin send` and `receive` with these options.
    pub(crate) amqp: Option<&'static [&'static str]>,
    /// CoAP is spoken, by `coap-client` with these options.
    pub(crate) coap: Option<(&'static [&'static str], Known)>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Broker {
    Dunlin,
    Mosquitto,
    Mqttv5,
    Artemis,
    Libcoap,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Wire {
    Quic,
    Tls,
    Tcp,
    Udp,
    Dtls,
}

/// Settings of a broker beside its ports and certificates.
#[derive(Clone, Debug, Default)]
pub(crate) struct Serving {
    /// Silence after which Dunlin drops a client that has no keep alive.
    pub(crate) idle_timeout: Option<Duration>,
    /// More settings of Dunlin's, such as `shards=1`.
    pub(crate) settings: Vec<String>,
}

/// All of them, in the order of legends.
pub(crate) static SYSTEMS: &[System] = &[
    System {
        early: false,
        ..dunlin("dunlin-quic", "Dunlin, QUIC", Wire::Quic, "single")
    },
    System {
        early: true,
        ..dunlin(
            "dunlin-quic-0rtt",
            "Dunlin, QUIC 0-RTT",
            Wire::Quic,
            "single",
        )
    },
    dunlin(
        "dunlin-quic-topics",
        "Dunlin, QUIC, a stream per topic",
        Wire::Quic,
        "per-topic",
    ),
    dunlin("dunlin-tls", "Dunlin, TLS 1.3", Wire::Tls, "single"),
    other(
        "mosquitto-tls",
        "Mosquitto, TLS 1.3",
        Broker::Mosquitto,
        Wire::Tls,
    ),
    other(
        "mosquitto-tcp",
        "Mosquitto, TCP",
        Broker::Mosquitto,
        Wire::Tcp,
    ),
    other("mqttv5-quic", "mqttv5, QUIC", Broker::Mqttv5, Wire::Quic),
    amqp("amqp-tls12", "AMQP over TLS 1.2", Wire::Tls, TLS_1_2),
    amqp("amqp-tls13", "AMQP over TLS 1.3", Wire::Tls, STEPWISE),
    amqp("amqp-quic", "AMQP over QUIC", Wire::Quic, STEPWISE),
    System {
        early: true,
        ..amqp(
            "amqp-quic-0rtt",
            "AMQP over QUIC 0-RTT",
            Wire::Quic,
            STEPWISE,
        )
    },
    System {
        early: true,
        ..amqp(
            "amqp-ours",
            "AMQP over QUIC 0-RTT, opened in one flight",
            Wire::Quic,
            &[],
        )
    },
    amqp(
        "amqp-ours-1rtt",
        "AMQP over QUIC, opened in one flight",
        Wire::Quic,
        &[],
    ),
    amqp(
        "amqp-ours-tls13",
        "AMQP over TLS 1.3, opened in one flight",
        Wire::Tls,
        &[],
    ),
    System {
        broker: Broker::Artemis,
        ..amqp("artemis-tls12", "Artemis, TLS 1.2", Wire::Tls, TLS_1_2)
    },
    System {
        broker: Broker::Artemis,
        ..amqp("artemis-tls13", "Artemis, TLS 1.3", Wire::Tls, STEPWISE)
    },
    dunlin("bridge-quic", "Dunlin's bridge, QUIC", Wire::Quic, "single"),
    dunlin(
        "bridge-quic-topics",
        "Dunlin's bridge, QUIC, a stream per topic",
        Wire::Quic,
        "per-topic",
    ),
    dunlin(
        "bridge-tls",
        "Dunlin's bridge, TLS 1.3",
        Wire::Tls,
        "single",
    ),
    other(
        "bridge-mosquitto",
        "Mosquitto's bridge, TLS 1.3",
        Broker::Mosquitto,
        Wire::Tls,
    ),
    of_coap("coap-con", "CoAP, confirmable", &[], Known::Not),
    of_coap(
        "coap-non",
        "CoAP, non-confirmable",
        &[coap::NON_CONFIRMABLE],
        Known::Not,
    ),
    of_coap("coap-dtls", "CoAP, DTLS 1.2", &[], Known::Certificate),
    of_coap(
        "coap-dtls-psk",
        "CoAP, DTLS 1.2, shared key",
        &[],
        Known::SharedKey,
    ),
];

const fn of_coap(
    id: &'static str,
    title: &'static str,
    options: &'static [&'static str],
    known: Known,
) -> System {
    let wire = match known {
        Known::Not => Wire::Udp,
        _ => Wire::Dtls,
    };
    System {
        coap: Some((options, known)),
        ..other(id, title, Broker::Libcoap, wire)
    }
}

/// Why there is no CoAP.
const NO_COAP: &str = "libcoap or coap-peer is not installed: scripts/setup-test.sh --lab";

/// As most clients open a connection.
const STEPWISE: &[&str] = &["--stepwise"];
const TLS_1_2: &[&str] = &["--stepwise", "--tls-max", "1.2"];

const fn amqp(
    id: &'static str,
    title: &'static str,
    wire: Wire,
    options: &'static [&'static str],
) -> System {
    System {
        amqp: Some(options),
        ..dunlin(id, title, wire, "single")
    }
}

const fn dunlin(
    id: &'static str,
    title: &'static str,
    wire: Wire,
    streams: &'static str,
) -> System {
    System {
        id,
        title,
        broker: Broker::Dunlin,
        wire,
        streams,
        early: false,
        amqp: None,
        coap: None,
    }
}

const fn other(id: &'static str, title: &'static str, broker: Broker, wire: Wire) -> System {
    System {
        id,
        title,
        broker,
        wire,
        streams: "single",
        early: false,
        amqp: None,
        coap: None,
    }
}

impl System {
    /// The system of this identifier.
    pub(crate) fn find(id: &str) -> Option<&'static Self> {
        SYSTEMS.iter().find(|system| system.id == id)
    }

    /// The system of a cell.
    pub(crate) fn of(cell: &super::record::Cell) -> Result<&'static Self> {
        let id = &cell.system;
        Self::find(id).with_context(|| format!("there is no system `{id}`"))
    }

    /// What to install before it can be measured, if anything.
    pub(crate) fn missing(&self) -> Option<&'static str> {
        if self.program().is_some() {
            return None;
        }
        match self.broker {
            Broker::Dunlin => None,
            Broker::Mosquitto => Some("mosquitto is not installed: apt install mosquitto"),
            Broker::Mqttv5 => Some("mqttv5 is not installed: scripts/setup-test.sh --brokers"),
            Broker::Artemis => Some("Artemis is not installed: scripts/setup-test.sh --lab"),
            Broker::Libcoap => Some(NO_COAP),
        }
    }

    /// The broker's program, unless it is ours.
    fn program(&self) -> Option<PathBuf> {
        match self.broker {
            Broker::Dunlin => None,
            Broker::Mosquitto => find("mosquitto"),
            Broker::Mqttv5 => mqttv5(),
            Broker::Artemis => find("java").filter(|_| artemis().is_some()),
            Broker::Libcoap => coap::server().filter(|_| coap::peer().is_some()),
        }
    }

    /// What its broker says of its version.
    pub(crate) fn version(&self, lab: &Lab) -> Option<String> {
        let (program, argument) = match self.broker {
            Broker::Dunlin => (lab.program().to_owned(), "--version"),
            Broker::Mosquitto => (self.program()?, "-h"),
            Broker::Mqttv5 => (self.program()?, "--version"),
            Broker::Artemis => return artemis_version(&artemis()?),
            Broker::Libcoap => return coap::version(),
        };
        let mut command = Command::new(program);
        command.arg(argument);
        // Mosquitto calls help a failure.
        let said = command.output().ok()?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        said.lines().next().map(|line| line.trim().to_owned())
    }

    pub(crate) const fn port(&self) -> u16 {
        match self.wire {
            Wire::Quic => QUIC_PORT,
            Wire::Tls => TLS_PORT,
            Wire::Tcp => TCP_PORT,
            Wire::Udp => coap::PORT,
            Wire::Dtls => coap::SECURE_PORT,
        }
    }

    /// Where clients connect to.
    pub(crate) fn url(&self, broker: Ipv4Addr) -> String {
        let scheme = match (self.wire, self.amqp.is_some()) {
            (Wire::Quic, false) => "quic",
            (Wire::Tls, false) => "mqtts",
            (Wire::Tcp, false) => "mqtt",
            (Wire::Quic, true) => "amqp+quic",
            (Wire::Tls, true) => "amqps",
            (Wire::Tcp, true) => "amqp",
            (Wire::Udp, _) => "coap",
            (Wire::Dtls, _) => "coaps",
        };
        format!("{scheme}://{broker}:{}", self.port())
    }

    /// Adds to `coap-client` how it sends, and where to.
    pub(crate) fn coap_request(
        &self,
        command: &mut Command,
        lab: &Lab,
        (broker, path): (Ipv4Addr, &str),
    ) {
        if let Some((options, known)) = self.coap {
            coap::request(command, lab, options, known);
        }
        command.arg(format!("{}/{path}", self.url(broker)));
    }

    /// Starts the broker in a namespace.
    pub(crate) fn serve(
        &self,
        lab: &Lab,
        namespace: &Namespace,
        serving: &Serving,
    ) -> Result<Server> {
        match self.broker {
            Broker::Dunlin => {
                let mut settings = serving.settings.clone();
                if let Some(time) = serving.idle_timeout {
                    settings.push(format!("limits.idle_timeout={}ms", time.as_millis()));
                }
                let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
                lab.broker_in(namespace, &settings)
            }
            Broker::Mosquitto => {
                let server = lab.mosquitto_in(namespace)?;
                server.context("mosquitto is not installed")
            }
            Broker::Mqttv5 => {
                let program = self.program().context("mqttv5 is not installed")?;
                serve_mqttv5(lab, namespace, &namespace.command(program))
            }
            Broker::Artemis => {
                let folder = artemis().context("Artemis is not installed")?;
                serve_artemis(lab, namespace, &folder)
            }
            Broker::Libcoap => {
                let program = self.program().context(NO_COAP)?;
                let how = self.coap.unwrap_or((&[], Known::Not));
                coap::serve(lab, namespace, program, how)
            }
        }
    }

    /// Publishers and subscribers in one process, at a host; `streams` is how
    /// messages are spread.
    pub(crate) fn load(
        &self,
        lab: &Lab,
        (namespace, broker): (&Namespace, Ipv4Addr),
        streams: &str,
    ) -> Command {
        let url = self.url(broker);
        if let Some(how) = self.coap {
            return coap_peer(lab, namespace, ("load", &url), how);
        }
        let ca = lab.certificate("ca.pem");
        clients(lab.dunlin(namespace), &url, &ca, streams)
    }

    /// Clients at a host that come one after another.
    pub(super) fn visits(
        &self,
        lab: &Lab,
        (namespace, broker): (&Namespace, Ipv4Addr),
        visits: &Visits<'_>,
    ) -> Command {
        let url = self.url(broker);
        if let Some(how) = self.coap {
            return visits.add_to(coap_peer(lab, namespace, ("visits", &url), how));
        }
        visits.of(lab.dunlin(namespace), &url, &lab.certificate("ca.pem"))
    }

    /// `dunlin pub` or `sub`, that talks to the broker as this system does, or
    /// what does the same with CoAP. Each device has tickets of its own.
    pub(crate) fn client(&self, lab: &Lab, broker: Ipv4Addr, name: &str, device: &str) -> Command {
        let url = self.url(broker);
        if let Some(how) = self.coap {
            let mut command = Command::new(coap::peer().unwrap_or_default());
            coap::connect(&mut command, (name, &url), &lab.certificate("ca.pem"), how);
            return command;
        }
        let mut command = Command::new(lab.program());
        command.args([name, "--url", &url]);
        if self.wire != Wire::Tcp {
            command.arg("--cafile").arg(lab.certificate("ca.pem"));
        }
        if self.early {
            let tickets = lab.temporary(&format!("tickets-{device}"));
            command.arg("--tickets").arg(tickets);
        }
        command
    }
}

/// The clients of CoAP inside a namespace.
fn coap_peer(
    lab: &Lab,
    namespace: &Namespace,
    what: (&str, &str),
    how: (&[&str], Known),
) -> Command {
    let mut command = namespace.command(coap::peer().unwrap_or_default());
    coap::connect(&mut command, what, &lab.certificate("ca.pem"), how);
    command
}

fn serve_mqttv5(lab: &Lab, namespace: &Namespace, program: &Command) -> Result<Server> {
    let mut command = Command::new(program.get_program());
    command.args(program.get_args());
    command.args(["broker", "--non-interactive", "--allow-anonymous", "true"]);
    command.args(["--host", &format!("0.0.0.0:{TCP_PORT}")]);
    command.args(["--quic-host", &format!("0.0.0.0:{QUIC_PORT}")]);
    command.args(["--quic-delivery-strategy", "control-only"]);
    command.arg("--tls-cert").arg(lab.certificate("server.pem"));
    command.arg("--tls-key").arg(lab.certificate("server.key"));
    command.args(["--storage-backend", "memory", "--no-sys-topics"]);
    Server::start(namespace, command, TCP_PORT, &lab.temporary("mqttv5.log"))
}

/// Embedded and without persistence, by bench/artemis, with TLS.
fn serve_artemis(lab: &Lab, namespace: &Namespace, folder: &Path) -> Result<Server> {
    let store = lab.temporary("artemis.p12");
    let mut command = Command::new("openssl");
    command.args(["pkcs12", "-export", "-passout", "pass:artemis", "-in"]);
    command.arg(lab.certificate("server.pem"));
    command.arg("-inkey").arg(lab.certificate("server.key"));
    command.arg("-out").arg(&store);
    output(command).context("cannot make a key store for Artemis")?;
    let mut command = namespace.command("java");
    let path = format!("{0}/classes:{0}/lib/*", folder.display());
    command.args(["-Xmx512m", "-cp", &path, "Embedded", &TLS_PORT.to_string()]);
    command.arg(store);
    Server::start(namespace, command, TLS_PORT, &lab.temporary("artemis.log"))
}

/// The folder with its jars and the program that embeds it.
fn artemis() -> Option<PathBuf> {
    let mut places = targets().into_iter().map(|it| it.join("peers/artemis"));
    places.find(|folder| folder.join("classes/Embedded.class").is_file())
}

fn artemis_version(folder: &Path) -> Option<String> {
    let jars = std::fs::read_dir(folder.join("lib")).ok()?;
    let mut names = jars.filter_map(|jar| jar.ok()?.file_name().into_string().ok());
    names.find_map(|name| {
        let version = name.strip_prefix("artemis-server-")?;
        Some(format!("Artemis {}", version.strip_suffix(".jar")?))
    })
}

/// Where `scripts/setup-test.sh` puts it, or Cargo, or the environment says.
fn mqttv5() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("MQTTV5") {
        return Some(PathBuf::from(named)).filter(|path| path.is_file());
    }
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo = cargo.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let peers = targets().into_iter().map(|it| it.join("peers/bin/mqttv5"));
    let mut places = peers.chain(cargo.map(|cargo| cargo.join("bin/mqttv5")));
    let found = places.find(|path| path.is_file());
    found.or_else(|| find("mqttv5"))
}

/// The version of a program that a report needs, for the environment. Asked
/// once, as the program takes a second to answer.
pub(crate) fn tshark_version() -> Option<String> {
    static VERSION: OnceLock<Option<String>> = OnceLock::new();
    let ask = || {
        let mut command = Command::new(find("tshark")?);
        command.arg("--version");
        output(command).ok()?.lines().next().map(str::to_owned)
    };
    VERSION.get_or_init(ask).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_are_found_by_their_identifiers() {
        for system in SYSTEMS {
            let found = System::find(system.id).map(|found| found.title);
            assert_eq!(found, Some(system.title));
        }
        assert!(System::find("hivemq").is_none());
        let quic = System::find("dunlin-quic").unwrap();
        let address = Ipv4Addr::new(10, 203, 0, 2);
        assert_eq!(quic.url(address), "quic://10.203.0.2:14567");
        let amqp = System::find("amqp-ours").unwrap();
        assert_eq!(amqp.url(address), "amqp+quic://10.203.0.2:14567");
        let coap = System::find("coap-dtls").unwrap();
        assert_eq!(coap.url(address), "coaps://10.203.0.2:5684");
    }

    #[test]
    fn systems_of_coap_are_those_that_libcoap_serves() {
        for system in SYSTEMS {
            let cell = super::super::plan::cell("x", system.id, Default::default(), 0);
            let served = system.broker == Broker::Libcoap;
            assert_eq!(coap::is_of(&cell), served, "{}", system.id);
            assert_eq!(system.coap.is_some(), served, "{}", system.id);
        }
    }
}
