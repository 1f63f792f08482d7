//! The `mqtt5` crate (the client behind `mqttv5-cli`) under the features: its
//! stream strategies, flow headers, datagrams, migration.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use mqtt5::transport::StreamStrategy;
use mqtt5::{ConnectOptions, Message, MqttClient, PublishOptions, QoS, SubscribeOptions};
use quic_peers::features::{Run, Skip};
use quic_peers::{unique, within};
use tokio::sync::mpsc;

/// Messages of a feature, over several topics.
const MESSAGES: usize = 24;
const TOPICS: usize = 3;

/// What a client is asked to use.
#[derive(Clone, Copy, Default)]
struct Settings {
    strategy: StreamStrategy,
    flow_headers: bool,
    datagrams: bool,
    early_data: bool,
    user_properties: &'static [(&'static str, &'static str)],
}

struct Client {
    client: MqttClient,
    arrived: mpsc::UnboundedSender<Message>,
    messages: mpsc::UnboundedReceiver<Message>,
}

impl Client {
    async fn new(run: &Run, settings: Settings) -> Result<Self> {
        let client = MqttClient::new(unique("mqtt5"));
        let ca = std::fs::read(&run.target.ca)?;
        client.set_tls_config(None, None, Some(ca)).await;
        client.set_quic_stream_strategy(settings.strategy).await;
        client.set_quic_flow_headers(settings.flow_headers).await;
        client.set_quic_datagrams(settings.datagrams).await;
        client.set_quic_early_data(settings.early_data).await;
        let (arrived, messages) = mpsc::unbounded_channel();
        let client = Self {
            client,
            arrived,
            messages,
        };
        client.connect(run, settings).await?;
        Ok(client)
    }

    async fn connect(&self, run: &Run, settings: Settings) -> Result<()> {
        let mut options = ConnectOptions::new(unique("mqtt5"))
            .with_automatic_reconnect(false)
            .with_keep_alive(Duration::from_secs(30));
        for (name, value) in settings.user_properties {
            let pair = ((*name).to_owned(), (*value).to_owned());
            options
                .protocol_options
                .properties
                .user_properties
                .push(pair);
        }
        let url = format!("quics://{}:{}", run.target.host, run.target.port);
        within("CONNACK", async {
            let connecting = self.client.connect_with_options(&url, options);
            connecting.await.context("cannot connect")
        })
        .await?;
        Ok(())
    }

    async fn subscribe(&self, filter: &str, qos: QoS) -> Result<()> {
        let options = SubscribeOptions {
            qos,
            ..SubscribeOptions::default()
        };
        let arrived = self.arrived.clone();
        let receive = move |message| {
            // The receiver may be gone already.
            let _ = arrived.send(message);
        };
        let (_, granted) = within("SUBACK", async {
            let subscribing = self.client.subscribe_with_options(filter, options, receive);
            subscribing.await.context("cannot subscribe")
        })
        .await?;
        ensure!(granted == qos, "granted {granted:?}");
        Ok(())
    }

    async fn publish(&self, topic: &str, payload: &str, qos: QoS) -> Result<()> {
        let options = PublishOptions {
            qos,
            ..PublishOptions::default()
        };
        within("acknowledgement", async {
            let publishing = self.client.publish_with_options(topic, payload, options);
            publishing.await.context("cannot publish")
        })
        .await?;
        Ok(())
    }

    async fn message(&mut self) -> Result<Message> {
        let next = async { self.messages.recv().await.context("no more messages") };
        within("message", next).await
    }

    async fn close(self) -> Result<()> {
        self.client.disconnect().await.context("cannot disconnect")
    }
}

/// Messages of every QoS on several topics arrive once each, in order within
/// their topic.
async fn there_and_back(run: &Run, name: &str, settings: Settings) -> Result<Client> {
    let mut client = Client::new(run, settings).await?;
    let topics: Vec<String> = (0..TOPICS)
        .map(|n| run.topic(&format!("{name}/{n}")))
        .collect();
    for topic in &topics {
        client.subscribe(topic, QoS::ExactlyOnce).await?;
    }
    for number in 0..MESSAGES {
        let qos = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce][number / TOPICS % 3];
        let topic = &topics[number % TOPICS];
        client.publish(topic, &number.to_string(), qos).await?;
    }
    let mut seen = vec![Vec::new(); TOPICS];
    for _ in 0..MESSAGES {
        let message = client.message().await?;
        let topic = topics.iter().position(|topic| *topic == message.topic);
        let topic = topic.with_context(|| format!("a message for {}", message.topic))?;
        seen[topic].push(String::from_utf8(message.payload)?.parse::<usize>()?);
    }
    for (topic, mut numbers) in seen.into_iter().enumerate() {
        let want: Vec<usize> = (topic..MESSAGES).step_by(TOPICS).collect();
        // A stream for each message keeps no order between messages.
        if settings.strategy == StreamStrategy::DataPerPublish {
            numbers.sort_unstable();
        }
        ensure!(
            numbers == want,
            "topic {topic}: got {numbers:?}, want {want:?}"
        );
    }
    Ok(client)
}

async fn single(run: &Run) -> Result<()> {
    let client = there_and_back(run, "single", Settings::default()).await?;
    client.close().await
}

async fn per_topic(run: &Run) -> Result<()> {
    // Deprecated there in favour of the first, and still offered.
    #[allow(deprecated, reason = "it is a choice of the command line program")]
    let strategies = [
        StreamStrategy::DataPerTopic,
        StreamStrategy::DataPerSubscription,
    ];
    for strategy in strategies {
        let settings = Settings {
            strategy,
            ..Settings::default()
        };
        there_and_back(run, "per-topic", settings)
            .await?
            .close()
            .await?;
    }
    Ok(())
}

async fn per_publish(run: &Run) -> Result<()> {
    let settings = Settings {
        strategy: StreamStrategy::DataPerPublish,
        ..Settings::default()
    };
    there_and_back(run, "per-publish", settings)
        .await?
        .close()
        .await
}

async fn flow_headers(run: &Run) -> Result<()> {
    for strategy in [
        StreamStrategy::ControlOnly,
        StreamStrategy::DataPerTopic,
        StreamStrategy::DataPerPublish,
    ] {
        let settings = Settings {
            strategy,
            flow_headers: true,
            ..Settings::default()
        };
        let client = there_and_back(run, "flow-headers", settings).await?;
        if !is_next(&client).await? {
            bail!(Skip("the broker does not take ALPN MQTT-next".into()));
        }
        client.close().await?;
    }
    Ok(())
}

/// Whether ALPN `MQTT-next` was agreed.
async fn is_next(client: &Client) -> Result<bool> {
    let connection = client.client.quic_connection().await;
    let connection = connection.context("no QUIC connection")?;
    let data = connection.handshake_data().context("no handshake data")?;
    let data = data.downcast::<quinn::crypto::rustls::HandshakeData>();
    let data = data.map_err(|_| anyhow::anyhow!("handshake data of another kind"))?;
    Ok(data.protocol.as_deref() == Some(b"MQTT-next"))
}

async fn server_streams(run: &Run) -> Result<()> {
    let settings = Settings {
        user_properties: &[("dunlin-streams", "8")],
        ..Settings::default()
    };
    let client = there_and_back(run, "server-streams", settings).await?;
    client.close().await
}

async fn datagrams(run: &Run) -> Result<()> {
    let settings = Settings {
        datagrams: true,
        ..Settings::default()
    };
    let mut client = Client::new(run, settings).await?;
    let connection = client.client.quic_connection().await;
    let connection = connection.context("no QUIC connection")?;
    if connection.max_datagram_size().is_none() {
        bail!(Skip("the broker takes no datagrams".into()));
    }
    let topic = run.topic("datagrams");
    client.subscribe(&topic, QoS::AtMostOnce).await?;
    for number in 0..MESSAGES {
        let payload = number.to_string();
        client.publish(&topic, &payload, QoS::AtMostOnce).await?;
        let message = client.message().await?;
        ensure!(message.payload == payload.as_bytes(), "got {message:?}");
    }
    let sent = connection.stats().frame_tx.datagram;
    ensure!(sent >= MESSAGES as u64, "{sent} datagrams were sent");
    client.close().await
}

async fn migrate(run: &Run) -> Result<()> {
    let mut client = Client::new(run, Settings::default()).await?;
    let topic = run.topic("migrate");
    client.subscribe(&topic, QoS::ExactlyOnce).await?;
    for number in 0..3 {
        client.client.migrate().await.context("cannot migrate")?;
        let payload = number.to_string();
        client.publish(&topic, &payload, QoS::ExactlyOnce).await?;
        let message = client.message().await?;
        ensure!(message.payload == payload.as_bytes(), "got {message:?}");
    }
    client.close().await
}

async fn zero_rtt(run: &Run) -> Result<()> {
    let settings = Settings {
        early_data: true,
        ..Settings::default()
    };
    let client = Client::new(run, settings).await?;
    client
        .publish(&run.topic("0rtt"), "", QoS::AtLeastOnce)
        .await?;
    client.client.disconnect().await?;
    client.connect(run, settings).await?;
    if !client.client.was_zero_rtt().await {
        bail!(Skip("the broker took no early data".into()));
    }
    client
        .publish(&run.topic("0rtt"), "", QoS::AtLeastOnce)
        .await?;
    client.close().await?;
    // Its CONNECT waits for the verdict, so that nothing is sent early.
    bail!(Skip("accepted, but this client sends nothing early".into()))
}

#[tokio::main]
async fn main() -> ExitCode {
    let run = match Run::from_arguments("mqtt5") {
        Ok(run) => run,
        Err(error) => {
            eprintln!("mqtt5-features: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    run.feature("plain", "single", single).await;
    run.feature("plain", "per-topic", per_topic).await;
    run.feature("plain", "per-publish", per_publish).await;
    run.feature("plain", "flow-headers", flow_headers).await;
    run.feature("plain", "server-streams", server_streams).await;
    run.feature("plain", "datagrams", datagrams).await;
    run.feature("plain", "migrate", migrate).await;
    run.feature("plain", "0rtt", zero_rtt).await;
    run.feature("retry", "retry", single).await;
    run.end();
    ExitCode::SUCCESS
}
