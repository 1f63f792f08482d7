//! The sans-IO client of the `flowsdk` crate (by EMQ) under the features: early
//! data and a changing address, with a UDP socket of our own under it.

use std::collections::VecDeque;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use flowsdk::mqtt_client::commands::{PublishCommand, SubscribeCommand};
use flowsdk::mqtt_client::engine::{
    MqttEvent, QuicMqttEngine, QuicZeroRttConfig, QuicZeroRttStatus,
};
use flowsdk::mqtt_client::opts::MqttClientOptions;
use quic_peers::features::{Run, Skip, ask};
use quic_peers::{Target, unique, within};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::net::UdpSocket;

/// How often the engine looks at its timers.
const TICK: Duration = Duration::from_millis(5);
const DATAGRAM_BYTES_MAX: usize = 2048;

struct Client {
    engine: QuicMqttEngine,
    socket: UdpSocket,
    server: SocketAddr,
    target: Target,
    // One for all connections: rustls resumes with the same verifier only.
    crypto: rustls::ClientConfig,
    events: VecDeque<MqttEvent>,
    /// Nothing leaves once something has arrived.
    hold: bool,
    has_heard: bool,
    held: Vec<Vec<u8>>,
}

/// The errors of this client can be printed and nothing else.
fn plain(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("{error}")
}

fn crypto(target: &Target) -> Result<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(&target.ca)? {
        roots.add(certificate?)?;
    }
    let config = rustls::ClientConfig::builder();
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

async fn any_port() -> Result<UdpSocket> {
    Ok(UdpSocket::bind("127.0.0.1:0").await?)
}

impl Client {
    async fn new(target: &Target) -> Result<Self> {
        let options = MqttClientOptions::builder()
            .client_id(unique("flowsdk"))
            .mqtt_version(5)
            .clean_start(true)
            .reconnect(false)
            .peer(format!("{}:{}", target.host, target.port));
        let mut addresses = (target.host.as_str(), target.port).to_socket_addrs()?;
        let server = addresses
            .find(SocketAddr::is_ipv4)
            .context("the host has no IPv4 address")?;
        Ok(Self {
            engine: QuicMqttEngine::new(options.build()).map_err(plain)?,
            socket: any_port().await?,
            server,
            target: target.clone(),
            crypto: crypto(target)?,
            events: VecDeque::new(),
            hold: false,
            has_heard: false,
            held: Vec::new(),
        })
    }

    async fn connected(target: &Target) -> Result<Self> {
        let mut client = Self::new(target).await?;
        let (server, crypto) = (client.server, client.crypto.clone());
        let (host, now) = (client.target.host.clone(), Instant::now());
        let connecting = client.engine.connect(server, &host, crypto, now);
        connecting.map_err(plain)?;
        client.connack().await?;
        Ok(client)
    }

    /// Begins to connect, with early data if there is a ticket.
    fn dial_early(&mut self) -> Result<()> {
        (self.has_heard, self.held) = (false, Vec::new());
        let (server, crypto) = (self.server, self.crypto.clone());
        let (host, config) = (self.target.host.clone(), QuicZeroRttConfig::default());
        let now = Instant::now();
        let connecting = self
            .engine
            .connect_with_zero_rtt(server, &host, crypto, config, now);
        connecting.map_err(plain)
    }

    /// Lets one thing happen: a datagram arrives or a moment passes.
    async fn turn(&mut self) -> Result<()> {
        let mut buffer = [0; DATAGRAM_BYTES_MAX];
        self.tick().await?;
        if let Ok(received) = tokio::time::timeout(TICK, self.socket.recv_from(&mut buffer)).await {
            let (len, from) = received?;
            self.has_heard = true;
            let data = buffer.get(..len).unwrap_or_default().to_vec();
            self.engine.handle_datagram(data, from, Instant::now());
        }
        self.tick().await
    }

    async fn tick(&mut self) -> Result<()> {
        self.events.extend(self.engine.handle_tick(Instant::now()));
        self.events.extend(self.engine.take_events());
        for (to, data) in self.engine.take_outgoing_datagrams() {
            if self.hold && self.has_heard {
                self.held.push(data);
            } else {
                self.socket.send_to(&data, to).await?;
            }
        }
        Ok(())
    }

    /// Sends what was held back.
    async fn release(&mut self) -> Result<()> {
        self.hold = false;
        for data in std::mem::take(&mut self.held) {
            self.socket.send_to(&data, self.server).await?;
        }
        Ok(())
    }

    /// The next event that `pick` takes something from; others are kept.
    async fn event<T>(
        &mut self,
        what: &str,
        mut pick: impl FnMut(&MqttEvent) -> Option<T>,
    ) -> Result<T> {
        within(what, async {
            loop {
                let found = self.events.iter().enumerate();
                let found = found
                    .filter_map(|(at, event)| Some((at, pick(event)?)))
                    .next();
                if let Some((at, value)) = found {
                    self.events.remove(at);
                    return Ok(value);
                }
                for event in &self.events {
                    match event {
                        MqttEvent::TransportClosed { reason, .. } => bail!("closed: {reason}"),
                        MqttEvent::OperationFailed { error, .. } => bail!("{error}"),
                        _ => {}
                    }
                }
                self.turn().await?;
            }
        })
        .await
    }

    async fn connack(&mut self) -> Result<()> {
        let code = self.event("CONNACK", |event| match event {
            MqttEvent::Connected(result) => Some(result.reason_code),
            _ => None,
        });
        let code = code.await?;
        ensure!(code == 0, "CONNACK {code:#04x}");
        Ok(())
    }

    /// What became of the early data.
    async fn verdict(&mut self) -> Result<QuicZeroRttStatus> {
        self.event("verdict on early data", |event| match event {
            MqttEvent::ZeroRttStatusChanged {
                status: QuicZeroRttStatus::Attempted,
            } => None,
            MqttEvent::ZeroRttStatusChanged { status } => Some(*status),
            _ => None,
        })
        .await
    }

    async fn subscribe(&mut self, stream: u64, filter: &str, qos: u8) -> Result<()> {
        let command = SubscribeCommand::single(filter, qos);
        self.engine.subscribe_on(stream, command).map_err(plain)?;
        let granted = self.event("SUBACK", |event| match event {
            MqttEvent::Subscribed(result) => Some(result.reason_codes.clone()),
            _ => None,
        });
        let granted = granted.await?;
        ensure!(granted == [qos], "granted {granted:?}");
        Ok(())
    }

    async fn publish(&mut self, stream: u64, topic: &str, payload: &str, qos: u8) -> Result<()> {
        let command = PublishCommand::simple(topic, payload.into(), qos, false);
        self.engine.publish_on(stream, command).map_err(plain)?;
        if qos > 0 {
            self.acknowledged().await?;
        }
        Ok(())
    }

    async fn acknowledged(&mut self) -> Result<()> {
        let is_success = self.event("acknowledgement", |event| match event {
            MqttEvent::Published(result) if result.qos > 0 => Some(result.is_success()),
            _ => None,
        });
        ensure!(is_success.await?, "refused");
        Ok(())
    }

    async fn message(&mut self, want: &str) -> Result<()> {
        let payload = self.event("message", |event| match event {
            MqttEvent::MessageReceived(message) => Some(message.payload.clone()),
            _ => None,
        });
        let payload = payload.await?;
        ensure!(payload == want.as_bytes(), "got {payload:?}, want {want}");
        Ok(())
    }

    /// Goes on from another port, as behind a NAT that forgot.
    async fn rebind(&mut self) -> Result<()> {
        self.socket = any_port().await?;
        Ok(())
    }

    /// Moves to another port, and knows it.
    async fn migrate(&mut self) -> Result<()> {
        self.rebind().await?;
        self.engine.notify_local_address_changed().map_err(plain)
    }

    /// Ends the connection; the engine with its tickets stays.
    async fn close(&mut self) -> Result<()> {
        self.engine.disconnect_and_close(0, b"").map_err(plain)?;
        for _ in 0..3 {
            self.turn().await?;
        }
        self.events.clear();
        Ok(())
    }
}

async fn data_streams(run: &Run) -> Result<()> {
    let mut client = Client::connected(&run.target).await?;
    let one = client.engine.open_data_stream().map_err(plain)?;
    let two = client.engine.open_data_stream().map_err(plain)?;
    for qos in 0..3 {
        let topic = run.topic(&format!("data/{qos}"));
        client.subscribe(two, &topic, qos).await?;
        client.publish(one, &topic, "data", qos).await?;
        client.message("data").await?;
    }
    client.close().await
}

async fn rebind(run: &Run) -> Result<()> {
    moving(run, false).await
}

async fn migrate(run: &Run) -> Result<()> {
    moving(run, true).await
}

async fn moving(run: &Run, is_known: bool) -> Result<()> {
    let mut client = Client::connected(&run.target).await?;
    let stream = client.engine.open_data_stream().map_err(plain)?;
    let topic = run.topic(&format!("moving/{is_known}"));
    client.subscribe(stream, &topic, 2).await?;
    for number in 0..3 {
        if is_known {
            client.migrate().await?;
        } else {
            client.rebind().await?;
        }
        let payload = number.to_string();
        client.publish(stream, &topic, &payload, 2).await?;
        client.message(&payload).await?;
    }
    client.close().await
}

/// A client that was connected and has a ticket in memory.
async fn with_ticket(run: &Run) -> Result<Client> {
    let mut client = Client::new(&run.target).await?;
    client.dial_early()?;
    client.connack().await?;
    let stream = client.engine.open_data_stream().map_err(plain)?;
    client.publish(stream, &run.topic("ticket"), "", 1).await?;
    client.close().await?;
    Ok(client)
}

async fn watcher(run: &Run, topic: &str) -> Result<Client> {
    let mut watcher = Client::connected(&run.target).await?;
    let stream = watcher.engine.open_data_stream().map_err(plain)?;
    watcher.subscribe(stream, topic, 1).await?;
    Ok(watcher)
}

/// Dials with CONNECT and a PUBLISH in early data.
fn publish_early(client: &mut Client, topic: &str, payload: &str) -> Result<()> {
    client.dial_early()?;
    let status = client.engine.zero_rtt_status();
    if status != QuicZeroRttStatus::Attempted {
        bail!(Skip("the tickets of the broker allow no early data".into()));
    }
    let command = PublishCommand::simple(topic, payload.into(), 1, false);
    client.engine.publish(command).map_err(plain)?;
    Ok(())
}

async fn zero_rtt(run: &Run) -> Result<()> {
    let topic = run.topic("0rtt");
    let mut client = with_ticket(run).await?;
    let mut watcher = watcher(run, &topic).await?;
    client.hold = true;
    publish_early(&mut client, &topic, "early")?;
    // What follows the first flight is held back until the message is there.
    client.turn().await?;
    watcher.message("early").await?;
    client.release().await?;
    let verdict = client.verdict().await?;
    ensure!(verdict == QuicZeroRttStatus::Accepted, "{verdict:?}");
    client.connack().await?;
    client.acknowledged().await?;
    client.close().await?;
    watcher.close().await
}

async fn zero_rtt_restart(run: &Run) -> Result<()> {
    let topic = run.topic("restart");
    let mut client = with_ticket(run).await?;
    ask("restart")?;
    publish_early(&mut client, &topic, "early")?;
    let verdict = client.verdict().await?;
    client.connack().await?;
    client.acknowledged().await?;
    ensure!(verdict == QuicZeroRttStatus::Accepted, "{verdict:?}");
    client.close().await
}

async fn retry(run: &Run) -> Result<()> {
    data_streams(run).await
}

#[tokio::main]
async fn main() -> ExitCode {
    // Fails only when a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let run = match Run::from_arguments("flowsdk") {
        Ok(run) => run,
        Err(error) => {
            eprintln!("flowsdk-features: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    run.feature("plain", "data-streams", data_streams).await;
    run.feature("plain", "rebind", rebind).await;
    run.feature("plain", "migrate", migrate).await;
    run.feature("plain", "0rtt", zero_rtt).await;
    run.feature("retry", "retry", retry).await;
    run.feature("restart", "0rtt-restart", zero_rtt_restart)
        .await;
    run.end();
    ExitCode::SUCCESS
}
