//! An MQTT client by others, `rust-mqtt`, which takes any stream, over MQTT over
//! QUIC: only what it is given differs from its own example.
//!
//! ```text
//! dunlin broker &
//! cargo run -p dunlin-socket --example mqtt dunlin-data/certs/ca.pem [HOST:PORT]
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use core::error::Error;
use core::fmt;
use std::path::Path;

use dunlin_socket::{Options, TlsOptions};
use embedded_io_adapters::tokio_1::FromTokio;
use rust_mqtt::Bytes;
use rust_mqtt::buffer::AllocBuffer;
use rust_mqtt::client::Client;
use rust_mqtt::client::event::Event;
use rust_mqtt::client::options::{
    ConnectOptions, DisconnectOptions, PublicationOptions, SubscriptionOptions, TopicReference,
};
use rust_mqtt::types::{MqttString, TopicFilter, TopicName};

const TOPIC: &str = "sockets/example";
const TEXT: &str = "a client by others, over QUIC";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let ca = args
        .next()
        .ok_or("the authority's certificate is missing")?;
    let server = args.next().unwrap_or_else(|| "localhost:14567".into());
    run(Path::new(&ca), &server).await
}

/// Subscribes, publishes to itself with QoS 2, and hears it.
pub(crate) async fn run(ca: &Path, server: &str) -> Result<(), Box<dyn Error>> {
    let tls = TlsOptions::new().ca_file(ca);
    let options = Options::new().tls(tls).protocol("mqtt");
    let stream = options.connect_async(server).await?;

    let mut buffer = AllocBuffer;
    let mut client = Client::<'_, '_, _, _, 1, 1, 1, 1, 16, 0, 1>::new(&mut buffer);
    let connect = ConnectOptions::new().clean_start();
    let id = MqttString::from_str("rust-mqtt").map_err(text)?;
    let connected = client.connect(FromTokio::new(stream), &connect, Some(id));
    println!("{:?}", connected.await.map_err(text)?);

    let topic = MqttString::from_str(TOPIC).map_err(text)?;
    let filter = TopicFilter::new(topic.as_borrowed()).ok_or("no filter")?;
    let subscribe = SubscriptionOptions::new().exactly_once();
    client.subscribe(filter, &subscribe).await.map_err(text)?;
    println!("{:?}", client.poll().await.map_err(text)?);

    let name = TopicName::new(topic.as_borrowed()).ok_or("no topic")?;
    let publish = PublicationOptions::new(TopicReference::Name(name)).exactly_once();
    let payload = Bytes::from(TEXT.as_bytes());
    client.publish(&publish, payload).await.map_err(text)?;
    let (mut heard, mut complete) = (false, false);
    while !(heard && complete) {
        match client.poll().await.map_err(text)? {
            Event::Publish(publish) => {
                println!("{}", String::from_utf8_lossy(publish.message.as_bytes()));
                heard = publish.message.as_bytes() == TEXT.as_bytes();
            }
            Event::PublishComplete(_) => complete = true,
            _ => {}
        }
    }
    let goes = DisconnectOptions::new();
    client.disconnect(&goes).await.map_err(text)?;
    Ok(())
}

/// Its errors show themselves with `Debug` only.
fn text(error: impl fmt::Debug) -> String {
    format!("{error:?}")
}
