//! Subscribes, publishes one message of each QoS to itself, and prints them.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use core::error::Error;

use dunlin_client::{Client, Publish, QoS};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "mqtt://localhost".into());
    let (client, mut messages) = Client::builder(url)?.connect().await?;
    println!("{:?}", client.negotiated());
    println!("{:?}", client.subscribe("smoke/#", QoS::ExactlyOnce).await?);
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let publish = Publish::new("smoke/1", format!("{qos:?}")).qos(qos);
        println!("{:?}", client.publish(publish).await?);
        println!("{:?}", messages.next().await);
    }
    client.disconnect().await;
    println!("{:?}", messages.next().await);
    Ok(())
}
