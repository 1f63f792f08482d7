//! Publishes as fast as the server allows from one task, receives it all back
//! on another client, and prints the rates: `flood URL QOS COUNT`.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use core::error::Error;
use core::time::Duration;
use std::collections::VecDeque;
use std::time::Instant;

use dunlin_client::{Client, Publish, QoS, TlsOptions};
use tokio::time::timeout;

/// After this time without a message there will be none.
const PATIENCE: Duration = Duration::from_secs(2);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or_else(|| "mqtt://localhost".into());
    let qos = args.next().and_then(|qos| qos.parse().ok());
    let qos = qos.and_then(QoS::from_u8).unwrap_or_default();
    let count: usize = args.next().and_then(|n| n.parse().ok()).unwrap_or(100_000);
    let builder = || {
        let tls = TlsOptions::new().dangerous_no_verification();
        Client::builder(&url).map(|builder| builder.tls(tls).max_in_flight(1000))
    };
    let (subscriber, mut messages) = builder()?.connect().await?;
    subscriber.subscribe("flood", qos).await?;
    let (publisher, _unused) = builder()?.connect().await?;
    let start = Instant::now();
    let receive = async {
        let (mut received, mut last) = (0, start.elapsed());
        // A broker may drop messages of QoS 0.
        while received < count
            && let Ok(message) = timeout(PATIENCE, messages.next()).await
        {
            message.ok_or("the subscriber was closed")?;
            (received, last) = (received + 1, start.elapsed());
        }
        Ok::<_, Box<dyn Error>>((received, last))
    };
    let publish = async {
        let mut deliveries = VecDeque::new();
        for _ in 0..count {
            let message = Publish::new("flood", [0; 64].as_slice()).qos(qos);
            deliveries.push_back(publisher.start_publish(message).await?);
            if deliveries.len() >= 1000
                && let Some(delivery) = deliveries.pop_front()
            {
                delivery.await?;
            }
        }
        for delivery in deliveries {
            delivery.await?;
        }
        Ok::<_, Box<dyn Error>>(start.elapsed())
    };
    let (received, published) = tokio::join!(receive, publish);
    let rate = |count: usize, elapsed: Duration| count as f64 / elapsed.as_secs_f64();
    let (received, last) = received?;
    println!(
        "published {:.0}/s, received {:.0}/s, lost {}",
        rate(count, published?),
        rate(received, last),
        count - received
    );
    publisher.disconnect().await;
    subscriber.disconnect().await;
    Ok(())
}
