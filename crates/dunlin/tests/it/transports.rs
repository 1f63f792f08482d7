//! The same conversation over every transport, and across a restart.

use core::time::Duration;

use dunlin_base::transport::Transport;
use dunlin_client::{Publish, QoS, ReasonCode, Version};

use crate::support::{ALL, Broker, connect, run, subscribe};

const LEVELS: [QoS; 3] = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];

/// One client a transport subscribes; one a transport publishes at every QoS;
/// everybody receives everything once.
fn conversation(shards: u16, version: Version) {
    let broker = Broker::start(shards);
    let client = |transport, name: &str| {
        let builder = broker.client(transport).version(version);
        builder.client_id(format!("{name}-{}", dunlin_client::scheme(transport)))
    };
    run(async {
        let mut subscribers = Vec::new();
        for transport in ALL {
            let (subscriber, messages) = connect(client(transport, "sub")).await;
            subscribe(&subscriber, "t/#", QoS::ExactlyOnce).await;
            subscribers.push((subscriber, messages));
        }
        let large = vec![b'x'; 300_000];
        for transport in ALL {
            let (publisher, _) = connect(client(transport, "pub")).await;
            for qos in LEVELS {
                let topic = format!("t/{}/{}", dunlin_client::scheme(transport), qos as u8);
                let message = Publish::new(topic, large.clone()).qos(qos);
                let reason = publisher.publish(message).await.expect("published");
                assert_eq!(reason, ReasonCode::Success);
            }
            publisher.disconnect().await;
        }
        for (_, messages) in &mut subscribers {
            let mut topics = Vec::new();
            for _ in 0..ALL.len() * LEVELS.len() {
                let message = messages.next().await.expect("a message");
                assert_eq!(message.payload.len(), large.len());
                topics.push(message.topic.to_string());
            }
            topics.sort();
            topics.dedup();
            assert_eq!(topics.len(), ALL.len() * LEVELS.len(), "{topics:?}");
        }
    });
}

#[test]
fn every_transport_talks_to_every_other_with_one_shard() {
    conversation(1, Version::V5);
}

#[test]
fn every_transport_talks_to_every_other_with_two_shards() {
    conversation(2, Version::V5);
    conversation(2, Version::V311);
}

#[test]
fn sessions_queues_and_retained_messages_survive_a_restart() {
    for (before, after) in [(1, 2), (2, 1)] {
        let mut broker = Broker::start(before);
        let sleeper = |broker: &Broker, clean| {
            broker
                .client(Transport::Tcp)
                .client_id("sleeper")
                .clean_start(clean)
                .session_expiry(Duration::from_secs(3600))
        };
        run(async {
            let (client, _messages) = sleeper(&broker, true).connect().await.expect("connected");
            subscribe(&client, "q/+", QoS::ExactlyOnce).await;
            client
                .disconnect_and_keep_session(Duration::from_secs(3600))
                .await;
            let (publisher, _) = connect(broker.client(Transport::Quic)).await;
            for (n, qos) in [(1, QoS::AtLeastOnce), (2, QoS::ExactlyOnce)] {
                publisher
                    .publish(Publish::new(format!("q/{n}"), "kept").qos(qos).retain(true))
                    .await
                    .expect("acknowledged");
            }
        });
        broker.start_again(after, &[]);
        run(async {
            let (_client, mut messages) =
                sleeper(&broker, false).connect().await.expect("connected");
            let mut topics = Vec::new();
            for _ in 0..2 {
                topics.push(messages.next().await.expect("queued").topic.to_string());
            }
            topics.sort();
            assert_eq!(topics, ["q/1", "q/2"]);
            let (client, mut messages) = connect(broker.client(Transport::Wss)).await;
            subscribe(&client, "q/2", QoS::AtMostOnce).await;
            let message = messages.next().await.expect("retained");
            assert!(message.retain && message.topic == "q/2");
        });
    }
}

#[test]
fn a_stop_disconnects_clients() {
    use dunlin_client::ConnectionEvent;
    let mut broker = Broker::start(2);
    let mut events = run(async {
        let (client, messages) = connect(broker.client(Transport::Tcp)).await;
        let events = client.events();
        // The client ends with its last handle.
        core::mem::forget((client, messages));
        events
    });
    broker.stop();
    let cause = run(async {
        loop {
            match events.next().await {
                Some(ConnectionEvent::Disconnected { cause, .. }) => break cause.to_string(),
                Some(_) => {}
                None => panic!("no farewell"),
            }
        }
    });
    assert!(cause.to_lowercase().contains("shutting down"), "{cause}");
}
