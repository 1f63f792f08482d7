//! Clients for trials in which clients, connections and brokers are killed:
//! `links send URL CONTAINER ADDRESS` and `links receive URL CONTAINER ADDRESS TAG...` on
//! links that are resumed, and `links move URL CONTAINER FROM TO` in transactions. Each
//! says on its output, line by line, what is certain: `accepted PAYLOAD`, `moved NUMBER`,
//! `got TAG PAYLOAD`, then `settled TAG` or `forgotten TAG`. A receiver is given the tags
//! that an earlier one of its container has got and not called settled. Each goes on until
//! its input ends, and then finishes what it has begun.

use core::error::Error;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::sync::Arc;

use bytes::Bytes;
use dunlin_amqp_client::{
    Client, Controller, Delivery, Events, LinkError, Outcome, Receiver, Sender, Sending,
    SettleError, TerminusDurability, TerminusExpiryPolicy, Unsettled, Url,
};

/// Messages of a sender without outcome.
const IN_FLIGHT: usize = 32;

/// Messages of one transaction.
const MOVED_MAX: usize = 8;

/// Attempts to connect at first; a broker is away for some of them.
const ATTEMPTS_MAX: u32 = 500;

/// Between attempts after a failure.
const PAUSE: Duration = Duration::from_millis(20);

type Failure = Box<dyn Error>;

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Without who listens there is nothing to do.
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}

/// Set when the input ends.
fn watch_input() -> Arc<AtomicBool> {
    let over = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&over);
    std::thread::spawn(move || {
        let mut rest = Vec::new();
        let _ = std::io::stdin().read_to_end(&mut rest);
        set.store(true, Ordering::Relaxed);
    });
    over
}

/// A connected client; the server may be away at first.
async fn client(url: &str, container: &str) -> Result<Client, Failure> {
    let url: Url = url.parse()?;
    let mut attempts = 0;
    loop {
        let builder = dunlin_amqp_client::Builder::new(url.clone()).container_id(container);
        match builder.connect().await {
            Ok(client) => return Ok(client),
            Err(error) if attempts == ATTEMPTS_MAX => return Err(error.into()),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
        attempts += 1;
    }
}

async fn send(client: &Client, container: &str, address: &str) -> Result<(), Failure> {
    let over = watch_input();
    let sender = client.sender(address).name("to").exactly_once();
    let sender = sender.attach().await?;
    let mut open: VecDeque<(String, Sending)> = VecDeque::new();
    // Another process with this container goes on with other messages.
    let process = std::process::id();
    let mut number = 0_u64;
    loop {
        let is_over = over.load(Ordering::Relaxed);
        if !is_over && open.len() < IN_FLIGHT {
            number += 1;
            let payload = format!("{container}-{process}-{number}");
            let message = dunlin_amqp_client::Message::from(payload.clone()).durable(true);
            open.push_back((payload, sender.start_send(message).await?));
            continue;
        }
        let Some((payload, sending)) = open.pop_front() else {
            return Ok(());
        };
        match sending.await? {
            Outcome::Accepted => say(&format!("accepted {payload}")),
            // The queue is full, or the broker is about to end: it was not taken.
            Outcome::Rejected(_) | Outcome::Released => tokio::time::sleep(PAUSE).await,
            outcome => return Err(format!("{payload}: {outcome:?}").into()),
        }
    }
}

async fn receive(client: &Client, address: &str, before: &[&str]) -> Result<(), Failure> {
    let over = watch_input();
    // What an earlier process has said that it got it accepts.
    let before = before.iter().map(|tag| -> Result<Unsettled, Failure> {
        let tag = u64::from_str_radix(tag, 16)?;
        Ok(Unsettled {
            tag: Bytes::copy_from_slice(&tag.to_be_bytes()),
            outcome: Some(Outcome::Accepted),
        })
    });
    let before: Result<Vec<Unsettled>, Failure> = before.collect();
    let receiver = client
        .receiver(address)
        .name("from")
        .exactly_once()
        .durable(TerminusDurability::UnsettledState)
        .expiry(TerminusExpiryPolicy::Never, Duration::ZERO)
        .credit(64)
        .resume(before?);
    let mut receiver = receiver.attach().await?;
    let mut open = VecDeque::from(receiver.resumed());
    while !over.load(Ordering::Relaxed) {
        let Ok(delivery) = tokio::time::timeout(PAUSE, receiver.recv()).await else {
            continue;
        };
        let delivery = delivery?;
        let tag = Bytes::copy_from_slice(delivery.tag());
        say(&format!("got {} {}", hex(&tag), text(&delivery)));
        open.push_back((tag, delivery.accept()));
        while let Some((tag, settlement)) = open.front_mut()
            && let Ok(settled) = tokio::time::timeout(Duration::ZERO, settlement).await
        {
            say_settled(tag, settled)?;
            open.pop_front();
        }
    }
    for (tag, settlement) in open {
        say_settled(&tag, settlement.await)?;
    }
    Ok(())
}

fn say_settled(tag: &[u8], settled: Result<(), SettleError>) -> Result<(), SettleError> {
    match settled {
        Ok(()) => say(&format!("settled {}", hex(tag))),
        Err(SettleError::Forgotten) => say(&format!("forgotten {}", hex(tag))),
        Err(error) => return Err(error),
    }
    Ok(())
}

fn hex(tag: &[u8]) -> String {
    tag.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text(delivery: &Delivery) -> String {
    String::from_utf8_lossy(&delivery.payload()).into_owned()
}

/// The links of one that moves; those that have ended are made again.
async fn move_all(client: &Client, from: &str, to: &str) -> Result<(), Failure> {
    let over = watch_input();
    while !over.load(Ordering::Relaxed) {
        if move_some(client, from, to, &over).await.is_err() {
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}

async fn move_some(
    client: &Client,
    from: &str,
    to: &str,
    over: &AtomicBool,
) -> Result<(), LinkError> {
    let controller = client.controller().await?;
    let sender = client.sender(to).unsettled().attach().await?;
    let receiver = client.receiver(from).unsettled().credit(16);
    let mut receiver = receiver.attach().await?;
    let mut events = client.events();
    while !over.load(Ordering::Relaxed) {
        if has_changed(&mut events).await {
            // What waits here came on another connection, and is another one's by now.
            return Ok(());
        }
        let taken = take(&mut receiver).await?;
        if taken.is_empty() {
            continue;
        }
        match transact(&controller, &mut events, &sender, &taken).await {
            Ok(()) => say(&format!("moved {}", taken.len())),
            // The end of the link gives back what is this one's still.
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

async fn take(receiver: &mut Receiver) -> Result<Vec<Delivery>, LinkError> {
    let mut taken = Vec::new();
    if let Ok(first) = tokio::time::timeout(PAUSE, receiver.recv()).await {
        taken.push(first?);
    }
    while taken.len() < MOVED_MAX
        && let Some(next) = receiver.try_recv()
    {
        taken.push(next);
    }
    Ok(taken)
}

/// Whether something happened to the connection since the last call.
async fn has_changed(events: &mut Events) -> bool {
    let mut changed = false;
    while let Ok(event) = tokio::time::timeout(Duration::ZERO, events.next()).await {
        changed = true;
        if event.is_none() {
            break;
        }
    }
    changed
}

async fn transact(
    controller: &Controller,
    events: &mut Events,
    sender: &Sender,
    taken: &[Delivery],
) -> Result<(), Failure> {
    let transaction = controller.declare().await?;
    if has_changed(events).await {
        // What came on another connection is no part of this transaction.
        return Err(transaction
            .rollback()
            .await
            .map_or_else(Into::into, |()| "lost".into()));
    }
    let (mut sent, mut accepted) = (Vec::new(), Vec::new());
    for delivery in taken {
        let message = dunlin_amqp_client::Message::from(text(delivery)).durable(true);
        sent.push(transaction.send(sender, message).await?);
        accepted.push(transaction.accept(delivery));
    }
    for sending in sent {
        sending.await?;
    }
    for settlement in accepted {
        // It is settled with the transaction, unless the server has forgotten it.
        if let Ok(Err(error)) = tokio::time::timeout(Duration::ZERO, settlement).await {
            transaction.rollback().await?;
            return Err(error.into());
        }
    }
    Ok(transaction.commit().await?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let given: Vec<&str> = given.iter().map(String::as_str).collect();
    let [what, url, container, rest @ ..] = &given[..] else {
        return Err("links send|receive|move URL CONTAINER ADDRESS [TO|TAG...]".into());
    };
    let client = client(url, container).await?;
    match (*what, rest) {
        ("send", [address]) => send(&client, container, address).await,
        ("receive", [address, before @ ..]) => receive(&client, address, before).await,
        ("move", [from, to]) => move_all(&client, from, to).await,
        _ => Err(format!("unknown: {given:?}").into()),
    }
}
