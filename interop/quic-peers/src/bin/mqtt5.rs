//! The `mqtt5` crate (the client behind `mqttv5-cli`) as a peer.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use mqtt5::transport::StreamStrategy;
use mqtt5::{
    ConnectOptions, MqttClient, ProtocolVersion, PublishOptions, PublishResult, QoS,
    SubscribeOptions, WillMessage,
};
use quic_peers::{Message, Options, Peer, Target, within};
use tokio::sync::mpsc;

struct Mqtt5 {
    client: Arc<MqttClient>,
    target: Target,
    options: Options,
    session_present: bool,
    arrived: mpsc::UnboundedSender<Message>,
    messages: mpsc::UnboundedReceiver<Message>,
}

fn qos_of(qos: u8) -> QoS {
    match qos {
        0 => QoS::AtMostOnce,
        1 => QoS::AtLeastOnce,
        _ => QoS::ExactlyOnce,
    }
}

impl Mqtt5 {
    async fn connect(&mut self) -> Result<()> {
        let options = &self.options;
        let version = if self.target.is_v5 {
            ProtocolVersion::V5
        } else {
            ProtocolVersion::V311
        };
        let mut connect = ConnectOptions::new(&options.client_id)
            .with_protocol_version(version)
            .with_clean_start(options.clean)
            .with_automatic_reconnect(false)
            .with_keep_alive(std::time::Duration::from_secs(options.keep_alive.into()));
        if self.target.is_v5 {
            connect = connect.with_session_expiry_interval(options.expiry);
        }
        if let Some((topic, payload)) = &options.will {
            let mut will = WillMessage::new(topic, payload.clone());
            will.qos = QoS::AtLeastOnce;
            connect = connect.with_will(will);
        }
        let url = format!("quics://{}:{}", self.target.host, self.target.port);
        let result = within("CONNACK", async {
            let connected = self.client.connect_with_options(&url, connect).await;
            connected.context("cannot connect")
        })
        .await?;
        self.session_present = result.session_present;
        Ok(())
    }
}

impl Peer for Mqtt5 {
    async fn open(target: &Target, options: Options) -> Result<Self> {
        let client = MqttClient::new(&options.client_id);
        let ca = std::fs::read(&target.ca)?;
        client.set_tls_config(None, None, Some(ca)).await;
        let strategy = match target.streams.as_str() {
            "topic" => StreamStrategy::DataPerTopic,
            "publish" => StreamStrategy::DataPerPublish,
            _ => StreamStrategy::ControlOnly,
        };
        client.set_quic_stream_strategy(strategy).await;
        let (arrived, messages) = mpsc::unbounded_channel();
        let mut peer = Self {
            client: Arc::new(client),
            target: target.clone(),
            options,
            session_present: false,
            arrived,
            messages,
        };
        peer.connect().await?;
        Ok(peer)
    }

    fn session_present(&self) -> bool {
        self.session_present
    }

    async fn subscribe(&mut self, filter: &str, qos: u8) -> Result<()> {
        let options = SubscribeOptions {
            qos: qos_of(qos),
            ..SubscribeOptions::default()
        };
        let arrived = self.arrived.clone();
        let receive = move |message: mqtt5::Message| {
            // The receiver may be gone already.
            let _ = arrived.send(Message {
                topic: message.topic,
                payload: message.payload,
                qos: message.qos as u8,
                retain: message.retain,
            });
        };
        let (_, granted) = within("SUBACK", async {
            let subscribed = self.client.subscribe_with_options(filter, options, receive);
            subscribed.await.context("cannot subscribe")
        })
        .await?;
        ensure!(granted as u8 == qos, "granted {granted:?}");
        Ok(())
    }

    async fn publish_all(
        &mut self,
        topic: &str,
        payloads: Vec<Vec<u8>>,
        qos: u8,
        retain: bool,
    ) -> Result<()> {
        // In order, each with its acknowledgement: concurrent calls of this
        // client may overtake each other.
        for payload in payloads {
            let options = PublishOptions {
                qos: qos_of(qos),
                retain,
                ..PublishOptions::default()
            };
            let published = within("acknowledgement", async {
                let published = self.client.publish_with_options(topic, payload, options);
                published.await.context("cannot publish")
            })
            .await?;
            let is_acknowledged = matches!(published, PublishResult::Sent(_));
            ensure!(is_acknowledged, "not acknowledged: {published:?}");
        }
        Ok(())
    }

    async fn message(&mut self) -> Result<Message> {
        let next = async { self.messages.recv().await.context("no more messages") };
        within("message", next).await
    }

    async fn suspend(&mut self) -> Result<()> {
        within("DISCONNECT", async {
            self.client.disconnect().await.context("cannot disconnect")
        })
        .await
    }

    async fn resume(&mut self) -> Result<()> {
        self.connect().await
    }

    async fn open_and_vanish(target: &Target, options: Options) -> Result<()> {
        let peer = Self::open(target, options).await?;
        peer.client.disconnect_abnormally().await?;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    quic_peers::run::<Mqtt5>("mqtt5").await
}
