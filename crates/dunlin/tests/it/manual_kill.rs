//! A broker that is killed while a client of ours, which stays, holds messages that it has
//! not acknowledged: each of them comes again, and none is acknowledged unseen.

use core::time::Duration;
use std::collections::BTreeSet;

use dunlin_client::{Backoff, Builder, Client, Message, Messages, Publish, QoS};

use crate::bridge_kill::Process;
use crate::support::{free_port, run};

/// How often the broker is killed.
const ROUNDS: u64 = 4;

/// Messages that are published before each of them.
const EACH: u64 = 60;

/// Of what is held, one of so many is acknowledged before each of them.
const PART: usize = 3;

fn near(port: u16) -> Builder {
    Client::builder(format!("mqtt://127.0.0.1:{port}")).expect("a URL")
}

/// Publishes numbers, and waits until the broker has each of them.
async fn publish(port: u16, from: u64) {
    let connected = near(port).no_reconnect().connect().await;
    let (client, _messages) = connected.expect("connected");
    for number in from..from + EACH {
        let message = Publish::new("m/x", number.to_string()).qos(QoS::AtLeastOnce);
        client.publish(message).await.expect("acknowledged");
    }
    client.disconnect().await;
}

fn number(message: &Message) -> u64 {
    let text = core::str::from_utf8(&message.payload).expect("text");
    text.parse().expect("a number")
}

/// Takes messages until all of these have come; those that came in their order.
async fn take_all(messages: &mut Messages, mut wanted: BTreeSet<u64>) -> Vec<Message> {
    let mut held = Vec::new();
    while !wanted.is_empty() {
        let message = messages.next().await.expect("a message");
        wanted.remove(&number(&message));
        held.push(message);
    }
    held
}

/// Holds messages while the broker is killed again and again.
fn hold(filter: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let port = free_port();
    let config = format!(
        "data_dir = '{}'\n[[listener]]\ntransport = 'tcp'\naddress = '127.0.0.1:{port}'\n",
        dir.path().join("data").display(),
    );
    std::fs::write(dir.path().join("dunlin.toml"), config).expect("written");
    run(async {
        let mut process = Process::start(dir.path(), "dunlin.toml", port);
        let soon = Backoff {
            min: Duration::from_millis(20),
            max: Duration::from_millis(200),
            jitter: 0.2,
        };
        let builder = near(port)
            .client_id("holder")
            .clean_start(false)
            .session_expiry(Duration::MAX)
            .reconnect(soon)
            .receive_maximum(1_000)
            .receive_queue(1_000)
            .manual_acknowledgement();
        let (client, mut messages) = builder.connect().await.expect("connected");
        let how = QoS::AtLeastOnce;
        client.subscribe(filter, how).await.expect("subscribed");
        let mut wanted = BTreeSet::new();
        // Those of former connections are kept, as a slow program keeps them.
        let mut old = Vec::new();
        for round in 0..ROUNDS {
            let from = round * EACH;
            publish(port, from).await;
            wanted.extend(from..from + EACH);
            let mut held = take_all(&mut messages, wanted.clone()).await;
            for message in held.drain(..held.len() / PART) {
                wanted.remove(&number(&message));
                message.acknowledge();
            }
            old.extend(held);
            drop(process);
            process = Process::start(dir.path(), "dunlin.toml", port);
        }
        assert!(wanted.len() as u64 > EACH, "{} are held", wanted.len());
        for message in take_all(&mut messages, wanted).await {
            message.acknowledge();
        }
        // What came over former connections is not acknowledged a second time.
        old.into_iter().for_each(Message::acknowledge);
        client.disconnect().await;
    });
}

#[test]
fn what_was_held_when_the_broker_was_killed_comes_again() {
    hold("m/#");
}

#[test]
fn what_a_member_of_a_group_held_when_the_broker_was_killed_comes_again() {
    hold("$share/g/m/#");
}
