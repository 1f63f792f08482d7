//! The client's stream policies against the broker: everything arrives, once
//! for QoS 1 and 2, and in order within each topic.

use core::time::Duration;
use std::collections::BTreeMap;

use dunlin_base::transport::Transport;
use dunlin_client::{
    Builder, Client, ConnectionEvent, Messages, Priority, Publish, PublishError, QoS, Repeat,
    StreamDialect, StreamPolicy,
};

use crate::support::{Broker, connect, run, subscribe};

const TOPICS: usize = 6;
const MESSAGES: usize = 240;

/// Publishes over several topics and checks what a subscriber sees.
async fn conversation(broker: &Broker, name: &str, set: impl FnOnce(Builder) -> Builder) -> u64 {
    let subscriber = broker.client(Transport::Tcp);
    let (subscriber, mut messages) = subscriber.connect().await.expect("connected");
    let filter = format!("{name}/#");
    subscribe(&subscriber, &filter, QoS::ExactlyOnce).await;
    let (client, _) = connect(set(broker.client(Transport::Quic))).await;
    let mut deliveries = Vec::new();
    for n in 0..MESSAGES {
        let qos = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce][n % 3];
        let topic = format!("{name}/{}", n % TOPICS);
        let message = Publish::new(topic, n.to_string()).qos(qos);
        deliveries.push(client.start_publish(message).await.expect("taken"));
    }
    for delivery in deliveries {
        delivery.await.expect("published");
    }
    let opened = client.stream_statistics().opened;
    client.disconnect().await;
    let mut last: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..MESSAGES {
        let message = messages.next().await.expect("a message");
        let text = core::str::from_utf8(&message.payload).expect("text");
        let n: usize = text.parse().expect("a number");
        let before = last.insert(message.topic.to_string(), n);
        assert!(before.is_none_or(|before| before < n), "{name}: {n} late");
    }
    assert_eq!(last.len(), TOPICS);
    subscriber.disconnect().await;
    opened
}

#[test]
fn every_policy_keeps_each_topic_in_order() {
    for shards in [1, 2] {
        let broker = Broker::start(shards);
        run(async {
            let cases = [
                (StreamPolicy::Single, 0, 0),
                (StreamPolicy::PerTopic, TOPICS, TOPICS),
                (StreamPolicy::Auto, TOPICS - 1, TOPICS - 1),
                (StreamPolicy::PerPublish, MESSAGES, MESSAGES),
            ];
            for (policy, least, most) in cases {
                for dialect in [StreamDialect::Bidirectional, StreamDialect::Unidirectional] {
                    let name = format!("{policy:?}-{dialect:?}");
                    let opened = conversation(&broker, &name, |client| {
                        client.streams(policy).stream_dialect(dialect)
                    })
                    .await as usize;
                    assert!((least..=most).contains(&opened), "{name}: {opened}");
                }
            }
        });
    }
}

#[test]
fn more_topics_than_streams_take_turns() {
    let broker = Broker::start(1);
    run(async {
        let opened = conversation(&broker, "few", |client| {
            client.streams(StreamPolicy::PerTopic).topic_streams(2)
        })
        .await;
        assert!(opened >= 2, "{opened}");
    });
}

#[test]
fn a_server_that_takes_few_streams_gets_no_more() {
    let broker = Broker::start_with(1, &["quic.max_data_streams=2"]);
    run(async {
        for policy in [StreamPolicy::PerTopic, StreamPolicy::PerPublish] {
            let name = format!("{policy:?}");
            conversation(&broker, &name, |client| client.streams(policy)).await;
        }
    });
}

#[test]
fn what_was_published_before_a_disconnect_arrives() {
    let broker = Broker::start(1);
    run(async {
        let (subscriber, mut messages) = connect(broker.client(Transport::Tcp)).await;
        subscribe(&subscriber, "bye/#", QoS::AtMostOnce).await;
        for policy in [
            StreamPolicy::PerTopic,
            StreamPolicy::PerPublish,
            StreamPolicy::PerPublishUnordered,
        ] {
            let builder = broker.client(Transport::Quic).streams(policy);
            let (client, _) = builder.connect().await.expect("connected");
            for n in 0..50 {
                let message = Publish::new(format!("bye/{}", n % 5), vec![b'x'; 5000]);
                drop(client.start_publish(message).await.expect("taken"));
            }
            client.disconnect().await;
            for n in 0..50 {
                assert!(messages.next().await.is_some(), "{policy:?}: {n}");
            }
        }
    });
}

#[test]
fn a_slow_stream_does_not_hold_up_another_topic() {
    let broker = Broker::start(1);
    run(async {
        let builder = broker.client(Transport::Quic);
        let builder = builder.streams(StreamPolicy::PerTopic);
        let builder = builder.priority("alarms/#", Priority::HIGHEST);
        let (client, mut messages) = connect(builder).await;
        subscribe(&client, "alarms/#", QoS::AtLeastOnce).await;
        // Where this thread has to wait for a processor the bulk may be gone before
        // the alarm is there.
        let mut tries = 0;
        while !overtakes(&client, &mut messages).await {
            tries += 1;
            assert!(tries < 10, "the alarm comes behind the bulk");
        }
    });
}

/// Whether a message that is published after many large ones of another topic is
/// acknowledged and delivered before the last of them is acknowledged.
async fn overtakes(client: &Client, messages: &mut Messages) -> bool {
    let mut bulk = Vec::new();
    for _ in 0..8 {
        let message = Publish::new("bulk", vec![0; 900_000]).qos(QoS::AtLeastOnce);
        bulk.push(client.start_publish(message).await.expect("taken"));
    }
    let alarm = Publish::new("alarms/fire", "!").qos(QoS::AtLeastOnce);
    client.publish(alarm).await.expect("published");
    assert!(messages.next().await.is_some());
    let mut last = bulk.pop().expect("the last");
    let early = tokio::time::timeout(Duration::ZERO, &mut last).await;
    for delivery in bulk {
        delivery.await.expect("published");
    }
    if early.is_err() {
        last.await.expect("published");
    }
    early.is_err()
}

#[test]
fn datagrams_carry_what_fits() {
    let broker = Broker::start(1);
    run(async {
        let builder = broker.client(Transport::Quic).datagrams(true);
        let (client, _) = builder.connect().await.expect("connected");
        for (bytes, qos) in [
            (100, QoS::AtMostOnce),
            (5000, QoS::AtMostOnce),
            (100, QoS::AtLeastOnce),
        ] {
            let message = Publish::new("d", vec![b'x'; bytes]).qos(qos);
            client.publish(message).await.expect("published");
        }
        let statistics = client.stream_statistics();
        assert_eq!(statistics.datagrams_sent, 1);
        assert_eq!(statistics.datagram_fallbacks, 1);
    });
}

/// A client whose messages become too old while there is no server.
#[test]
fn old_messages_are_dropped_while_there_is_no_connection() {
    let mut broker = Broker::start(1);
    run(async {
        let builder: Builder =
            Client::builder(format!("mqtt://{}", broker.addr(Transport::Tcp))).expect("a URL");
        let (client, _) = builder.connect().await.expect("connected");
        let mut events = client.events();
        broker.stop();
        while !matches!(
            events.next().await,
            Some(ConnectionEvent::Reconnecting { .. })
        ) {}
        let message = Publish::new("t", "x").max_age(Duration::from_millis(20));
        let outcome = client.publish(message).await;
        assert!(
            matches!(outcome, Err(PublishError::Obsolete)),
            "{outcome:?}"
        );
        assert_eq!(client.stream_statistics().obsolete_dropped, 1);
    });
}

/// The broker opens streams towards the subscriber, or sends datagrams.
#[test]
fn deliveries_come_on_streams_and_in_datagrams() {
    let broker = Broker::start(1);
    run(async {
        // Sent twice and apart changes nothing of it.
        let subscriber = broker
            .client(Transport::Quic)
            .delivery_streams(true)
            .isolate_streams(true)
            .repeat_packets(Repeat::Always);
        let (subscriber, mut messages) = subscriber.connect().await.expect("connected");
        subscribe(&subscriber, "in/#", QoS::ExactlyOnce).await;
        let datagrams = broker.client(Transport::Quic).datagrams(true);
        let (datagrams, mut singles) = datagrams.connect().await.expect("connected");
        subscribe(&datagrams, "in/0", QoS::AtMostOnce).await;
        let publisher = broker.client(Transport::Tcp);
        let (publisher, _) = publisher.connect().await.expect("connected");
        let mut last: BTreeMap<String, usize> = BTreeMap::new();
        for n in 0..MESSAGES {
            let qos = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce][n / TOPICS % 3];
            let message = Publish::new(format!("in/{}", n % TOPICS), n.to_string()).qos(qos);
            publisher.publish(message).await.expect("published");
        }
        for _ in 0..MESSAGES {
            let message = messages.next().await.expect("a message");
            let text = core::str::from_utf8(&message.payload).expect("text");
            let n: usize = text.parse().expect("a number");
            let before = last.insert(message.topic.to_string(), n);
            assert!(before.is_none_or(|before| before < n), "{n} late");
        }
        assert!(singles.next().await.is_some());
        assert!(datagrams.stream_statistics().datagrams_received > 0);
        // Acknowledged: nothing comes again.
        subscriber.disconnect().await;
        datagrams.disconnect().await;
    });
}

/// More than the broker holds of packets that are not whole: their streams
/// take turns.
#[test]
fn many_large_messages_at_once_all_arrive() {
    for shards in [1, 2] {
        let broker = Broker::start(shards);
        run(async {
            let client = broker.client(Transport::Quic);
            let client = client.streams(StreamPolicy::PerPublish);
            let (client, _) = client.connect().await.expect("connected");
            let mut deliveries = Vec::new();
            for n in 0..24 {
                let message = Publish::new(format!("large/{n}"), vec![n; 900_000]);
                let message = message.qos(QoS::AtLeastOnce);
                deliveries.push(client.start_publish(message).await.expect("taken"));
            }
            for delivery in deliveries {
                delivery.await.expect("published");
            }
            client.disconnect().await;
        });
    }
}
