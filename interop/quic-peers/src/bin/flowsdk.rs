//! The Tokio client of the `flowsdk` crate (by EMQ) as a peer: one stream for
//! everything.

use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow, ensure};
use flowsdk::mqtt_client::{
    MqttClientOptions, MqttMessage, TokioAsyncClientConfig, TokioAsyncMqttClient,
    TokioMqttEventHandler,
};
use flowsdk::mqtt_serde::mqttv5::will::Will;
use quic_peers::{Message, Options, Peer, Target, within};
use tokio::sync::mpsc;

struct Flowsdk {
    client: TokioAsyncMqttClient,
    session_present: bool,
    messages: mpsc::UnboundedReceiver<Message>,
}

/// Hands messages on.
struct Handler(mpsc::UnboundedSender<Message>);

#[async_trait::async_trait]
impl TokioMqttEventHandler for Handler {
    async fn on_message_received(&mut self, message: &MqttMessage) {
        // The receiver may be gone already.
        let _ = self.0.send(Message {
            topic: message.topic_name.clone(),
            payload: message.payload.clone(),
            qos: message.qos,
            retain: message.retain,
        });
    }
}

/// The errors of this client can be printed and nothing else.
fn plain(error: impl std::fmt::Debug) -> anyhow::Error {
    anyhow!("{error:?}")
}

async fn connect(
    target: &Target,
    options: &Options,
    arrived: mpsc::UnboundedSender<Message>,
) -> Result<(TokioAsyncMqttClient, bool)> {
    let mut mqtt = MqttClientOptions::builder()
        .client_id(&options.client_id)
        .mqtt_version(if target.is_v5 { 5 } else { 4 })
        .clean_start(options.clean)
        .keep_alive(options.keep_alive)
        .reconnect(false)
        .peer(format!("quic://{}:{}", target.host, target.port));
    if target.is_v5 {
        mqtt = mqtt.session_expiry_interval(options.expiry);
    }
    if let Some((topic, payload)) = &options.will {
        mqtt = mqtt.will(Will::new(topic.clone(), payload.clone(), 1, false));
    }
    let ca = std::fs::read_to_string(&target.ca)?;
    let config = TokioAsyncClientConfig::builder()
        .auto_reconnect(false)
        .quic_custom_root_ca_pem(ca)
        .build();
    let handler = Box::new(Handler(arrived));
    let client = TokioAsyncMqttClient::new(mqtt.build(), handler, config).await?;
    let session_present = connack(&client).await?;
    Ok((client, session_present))
}

/// Connects and says whether a session was there.
async fn connack(client: &TokioAsyncMqttClient) -> Result<bool> {
    let connecting = async { client.connect_sync().await.map_err(plain) };
    let connected = within("CONNACK", connecting).await?;
    let code = connected.reason_code;
    ensure!(connected.is_success(), "CONNACK {code:#04x}");
    Ok(connected.session_present)
}

impl Peer for Flowsdk {
    // It finishes the stream and closes the connection in the same breath.
    const DISCONNECTS: bool = false;

    async fn open(target: &Target, options: Options) -> Result<Self> {
        let (arrived, messages) = mpsc::unbounded_channel();
        let (client, session_present) = connect(target, &options, arrived).await?;
        Ok(Self {
            client,
            session_present,
            messages,
        })
    }

    fn session_present(&self) -> bool {
        self.session_present
    }

    async fn subscribe(&mut self, filter: &str, qos: u8) -> Result<()> {
        let result = within("SUBACK", async {
            self.client.subscribe_sync(filter, qos).await.map_err(plain)
        })
        .await?;
        let granted = result.reason_codes;
        ensure!(granted == [qos], "granted {granted:?}");
        Ok(())
    }

    async fn publish_all(
        &mut self,
        topic: &str,
        payloads: Vec<Vec<u8>>,
        qos: u8,
        retain: bool,
    ) -> Result<()> {
        for payload in payloads {
            let result = within("acknowledgement", async {
                let published = self.client.publish_sync(topic, &payload, qos, retain);
                published.await.map_err(plain)
            })
            .await?;
            ensure!(result.is_success(), "refused: {:?}", result.reason_code);
        }
        Ok(())
    }

    async fn message(&mut self) -> Result<Message> {
        let next = async { self.messages.recv().await.context("no more messages") };
        within("message", next).await
    }

    async fn suspend(&mut self) -> Result<()> {
        within("DISCONNECT", async {
            self.client.disconnect_sync().await.map_err(plain)
        })
        .await
    }

    async fn resume(&mut self) -> Result<()> {
        // Only the same client may see Session Present.
        self.session_present = connack(&self.client).await?;
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
    quic_peers::run::<Flowsdk>("flowsdk").await
}
