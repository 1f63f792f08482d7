//! The sans-IO client of the `flowsdk` crate (by EMQ) as a peer: it opens one data
//! stream for its subscriptions and one for its publications, as EMQX takes them.

use std::collections::VecDeque;
use std::net::ToSocketAddrs as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use flowsdk::mqtt_client::commands::{PublishCommand, SubscribeCommand};
use flowsdk::mqtt_client::engine::MqttEvent;
use flowsdk::mqtt_client::opts::MqttClientOptions;
use flowsdk::mqtt_client::tokio_quic_client::TokioQuicMqttClient;
use flowsdk::mqtt_serde::mqttv5::will::Will;
use quic_peers::{Message, Options, Peer, Target, within};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

struct FlowsdkStreams {
    client: TokioQuicMqttClient,
    target: Target,
    session_present: bool,
    messages: VecDeque<Message>,
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

impl FlowsdkStreams {
    /// The next event that is not a message; messages are kept.
    async fn event(&mut self) -> Result<MqttEvent> {
        loop {
            match self.client.next_event().await.context("the client ended")? {
                MqttEvent::MessageReceived(message) => self.messages.push_back(Message {
                    topic: message.topic_name,
                    payload: message.payload,
                    qos: message.qos,
                    retain: message.retain,
                }),
                MqttEvent::TransportClosed { reason, .. } => bail!("transport closed: {reason}"),
                MqttEvent::DisconnectReceived { reason_code, .. } => {
                    bail!("DISCONNECT {reason_code:#04x}")
                }
                MqttEvent::OperationFailed { error, .. } => bail!("{error}"),
                other => return Ok(other),
            }
        }
    }

    async fn connect(target: &Target, options: &Options) -> Result<(TokioQuicMqttClient, bool)> {
        let mut mqtt = MqttClientOptions::builder()
            .client_id(&options.client_id)
            .mqtt_version(if target.is_v5 { 5 } else { 4 })
            .clean_start(options.clean)
            .keep_alive(options.keep_alive)
            .reconnect(false)
            .peer(format!("{}:{}", target.host, target.port));
        if target.is_v5 {
            mqtt = mqtt.session_expiry_interval(options.expiry);
        }
        if let Some((topic, payload)) = &options.will {
            mqtt = mqtt.will(Will::new(topic.clone(), payload.clone(), 1, false));
        }
        let mut client = TokioQuicMqttClient::new(mqtt.build()).map_err(plain)?;
        let session_present = dial(&mut client, target).await?;
        Ok((client, session_present))
    }
}

/// Connects and says whether a session was there.
async fn dial(client: &mut TokioQuicMqttClient, target: &Target) -> Result<bool> {
    let addresses = (target.host.as_str(), target.port).to_socket_addrs()?;
    let address = addresses
        .into_iter()
        .find(|address| address.is_ipv4())
        .context("the host has no IPv4 address")?;
    let connecting = client.connect(address, target.host.clone(), crypto(target)?);
    connecting.await.map_err(plain)?;
    let connected = within("CONNACK", async {
        loop {
            match client.next_event().await.context("the client ended")? {
                MqttEvent::Connected(result) => return Ok(result),
                MqttEvent::TransportClosed {
                    reason,
                    by_peer: true,
                    ..
                } => bail!("closed: {reason}"),
                MqttEvent::OperationFailed { error, .. } => bail!("{error}"),
                _ => {}
            }
        }
    })
    .await?;
    let code = connected.reason_code;
    ensure!(connected.is_success(), "CONNACK {code:#04x}");
    Ok(connected.session_present)
}

impl Peer for FlowsdkStreams {
    async fn open(target: &Target, options: Options) -> Result<Self> {
        let (client, session_present) = Self::connect(target, &options).await?;
        Ok(Self {
            client,
            target: target.clone(),
            session_present,
            messages: VecDeque::new(),
        })
    }

    fn session_present(&self) -> bool {
        self.session_present
    }

    async fn subscribe(&mut self, filter: &str, qos: u8) -> Result<()> {
        let command = SubscribeCommand::builder().add_topic(filter, qos);
        let command = command.build().map_err(plain)?;
        self.client.subscribe(command).await.map_err(plain)?;
        within("SUBACK", async {
            loop {
                if let MqttEvent::Subscribed(result) = self.event().await? {
                    let granted = result.reason_codes;
                    ensure!(granted == [qos], "granted {granted:?}");
                    return Ok(());
                }
            }
        })
        .await
    }

    async fn publish_all(
        &mut self,
        topic: &str,
        payloads: Vec<Vec<u8>>,
        qos: u8,
        retain: bool,
    ) -> Result<()> {
        // This client refuses more than a few unacknowledged messages.
        const IN_FLIGHT_MAX: usize = 10;
        let mut open = 0;
        let mut payloads = payloads.into_iter().peekable();
        while payloads.peek().is_some() || open > 0 {
            if open < IN_FLIGHT_MAX
                && let Some(payload) = payloads.next()
            {
                let command = PublishCommand::simple(topic, payload, qos, retain);
                self.client.publish(command).await.map_err(plain)?;
                open += usize::from(qos > 0);
                continue;
            }
            let event = within("acknowledgement", self.event()).await?;
            if let MqttEvent::Published(result) = event {
                ensure!(result.is_success(), "refused: {:?}", result.reason_code);
                open -= 1;
            }
        }
        Ok(())
    }

    async fn message(&mut self) -> Result<Message> {
        within("message", async {
            loop {
                if let Some(message) = self.messages.pop_front() {
                    return Ok(message);
                }
                tokio::select! {
                    event = self.client.next_event() => {
                        match event.context("the client ended")? {
                            MqttEvent::MessageReceived(message) => return Ok(Message {
                                topic: message.topic_name,
                                payload: message.payload,
                                qos: message.qos,
                                retain: message.retain,
                            }),
                            MqttEvent::TransportClosed { reason, .. } => bail!("closed: {reason}"),
                            _ => {}
                        }
                    }
                }
            }
        })
        .await
    }

    async fn suspend(&mut self) -> Result<()> {
        self.client.disconnect().await.map_err(plain)?;
        // The disconnect leaves with the next tick of the client.
        let _ = tokio::time::timeout(std::time::Duration::from_millis(200), async {
            while self.client.next_event().await.is_some() {}
        })
        .await;
        Ok(())
    }

    async fn resume(&mut self) -> Result<()> {
        // Only the same client may see Session Present.
        self.session_present = dial(&mut self.client, &self.target).await?;
        Ok(())
    }

    async fn open_and_vanish(target: &Target, options: Options) -> Result<()> {
        // A runtime of its own, which ends with all of the client's tasks: no
        // packet says that the client is gone.
        let target = target.clone();
        let opened = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Runtime::new()?;
            let peer = runtime.block_on(Self::open(&target, options));
            runtime.shutdown_background();
            peer.map(drop)
        });
        opened.await?
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    // Fails only when a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    quic_peers::run::<FlowsdkStreams>("flowsdk-streams").await
}
