//! Sends messages to one receiver as fast as they pass, for
//! `bench/compare-amqp.sh`: `flood URL ADDRESS MESSAGES BYTES settled|unsettled`.
//! Prints messages a second. `flood URL ADDRESS CONNECTIONS idle SECONDS` holds
//! connections with one receiver each.

use core::time::Duration;
use std::collections::VecDeque;
use std::io::Write;
use std::time::Instant;

use dunlin_amqp_client::{Client, Message};

/// Messages of the sender, and credit of the receiver.
const IN_FLIGHT: u32 = 1000;

type Failure = Box<dyn core::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, address, count, what, how] = arguments.as_slice() else {
        return Err("flood URL ADDRESS MESSAGES BYTES settled|unsettled".into());
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let count = count.parse()?;
    if what == "idle" {
        return runtime.block_on(idle(url, address, count, how.parse()?));
    }
    let began = Instant::now();
    let settled = how == "settled";
    runtime.block_on(flood(url, address, count, what.parse()?, settled))?;
    let rate = count as f64 / began.elapsed().as_secs_f64();
    writeln!(std::io::stdout(), "{rate:.0}")?;
    Ok(())
}

async fn flood(
    url: &str,
    address: &str,
    count: usize,
    bytes: usize,
    settled: bool,
) -> Result<(), Failure> {
    let client = Client::builder(url)?.connect().await?;
    let other = Client::builder(url)?.connect().await?;
    let receiver = other.receiver(address).credit(IN_FLIGHT);
    let receiver = if settled {
        receiver.settled()
    } else {
        receiver.auto_accept()
    };
    let mut receiver = receiver.attach().await?;
    let sender = client.sender(address).max_in_flight(IN_FLIGHT);
    let sender = if settled { sender.settled() } else { sender };
    let sender = sender.attach().await?;
    let body = bytes::Bytes::from(vec![b'x'; bytes]);
    let send = async {
        let mut waiting = VecDeque::new();
        for _ in 0..count {
            waiting.push_back(sender.start_send(Message::new(body.clone())).await?);
            if waiting.len() >= IN_FLIGHT as usize
                && let Some(first) = waiting.pop_front()
            {
                first.await?;
            }
        }
        for sending in waiting {
            sending.await?;
        }
        Ok::<(), Failure>(())
    };
    let receive = async {
        for _ in 0..count {
            receiver.recv().await?;
        }
        Ok::<(), Failure>(())
    };
    let (sent, received) = tokio::join!(send, receive);
    sent?;
    received?;
    client.close().await;
    other.close().await;
    Ok(())
}

async fn idle(url: &str, address: &str, count: usize, seconds: u64) -> Result<(), Failure> {
    let mut held = Vec::new();
    for _ in 0..count {
        let client = Client::builder(url)?.connect().await?;
        held.push(client.receiver(address).credit(10).attach().await?);
    }
    writeln!(std::io::stdout(), "{count} connections")?;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    drop(held);
    Ok(())
}
