//! Messages from the server, and when they are acknowledged.

use core::num::NonZeroU16;
use std::sync::mpsc::channel;

use dunlin_client::{Publish, QoS, Text};
use dunlin_mqtt::codec::{self, Packet};

use super::run;
use super::server::Server;

#[test]
fn taking_a_message_acknowledges_it() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept_session(false);
        peer.send("PUBLISH a");
        peer.send("PUBLISH 5 q1 b");
        peer.send("PUBLISH 6 q2 c");
        // The application has taken nothing, so nothing is acknowledged yet.
        peer.expect("PUBLISH look");
        peer.expect("PUBACK 5");
        peer.expect("PUBREC 6");
        peer.send("PUBREL 6");
        peer.expect("PUBCOMP 6");
    });
    run(async {
        let (client, mut messages) = server.client().connect().await.expect("connected");
        let first = messages.next().await.expect("a message");
        assert_eq!((first.topic.as_str(), first.qos), ("a", QoS::AtMostOnce));
        client
            .publish(Publish::new("look", ""))
            .await
            .expect("left");
        for (topic, qos, id) in [("b", QoS::AtLeastOnce, 5), ("c", QoS::ExactlyOnce, 6)] {
            let message = messages.next().await.expect("a message");
            assert_eq!((message.topic.as_str(), message.qos), (topic, qos));
            assert_eq!(message.packet_id, NonZeroU16::new(id));
            assert_eq!(message.payload, "x");
        }
        assert!(messages.try_next().is_none());
        server.end();
    });
}

#[test]
fn acknowledging_by_hand() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept_session(false);
        for n in 1..=3 {
            peer.send(&format!("PUBLISH {n} q1 a"));
        }
        peer.expect("PUBLISH look");
        for n in 1..=3 {
            peer.expect(&format!("PUBACK {n}"));
        }
    });
    run(async {
        let builder = server.client().manual_acknowledgement();
        let (client, mut messages) = builder.connect().await.expect("connected");
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(messages.next().await.expect("a message"));
        }
        client
            .publish(Publish::new("look", ""))
            .await
            .expect("left");
        // In any order: they leave in that of the messages.
        while let Some(message) = held.pop() {
            message.acknowledge();
        }
    });
    server.end();
}

#[test]
fn a_slow_application_slows_the_server_down() {
    const MESSAGES: usize = 5000;
    let server = Server::run(|listener| {
        let mut peer = listener.accept_session(false);
        let mut bytes = Vec::new();
        for _ in 0..MESSAGES {
            let publish = codec::Publish {
                topic: "a",
                payload: &[0; 1000],
                ..codec::Publish::default()
            };
            let packet = Packet::Publish(publish);
            packet
                .encode(codec::Version::V5, &mut bytes)
                .expect("encoded");
        }
        peer.send_bytes(&bytes);
        peer.expect("PUBLISH done");
    });
    run(async {
        let builder = server.client().receive_queue(10);
        let (client, mut messages) = builder.connect().await.expect("connected");
        for n in 0..MESSAGES {
            let message = messages.next().await;
            assert_eq!(message.expect("a message").payload.len(), 1000, "{n}");
        }
        client
            .publish(Publish::new("done", ""))
            .await
            .expect("left");
    });
    server.end();
}

#[test]
fn without_a_listener_everything_is_acknowledged() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept_session(false);
        peer.expect("PUBLISH deaf");
        peer.send("PUBLISH 1 q1 a");
        peer.expect("PUBACK 1");
        peer.send("PUBLISH 2 q2 a");
        peer.expect("PUBREC 2");
    });
    run(async {
        let (client, messages) = server.client().connect().await.expect("connected");
        drop(messages);
        client
            .publish(Publish::new("deaf", ""))
            .await
            .expect("left");
        server.end();
    });
}

#[test]
fn what_was_not_taken_is_not_acknowledged_by_a_disconnect() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept_session(false);
        peer.send("PUBLISH 1 q1 a");
        peer.send("PUBLISH 2 q1 b");
        peer.expect("PUBACK 1");
        peer.expect("PUBLISH 1 q1 look");
        peer.send("PUBACK 1");
        peer.expect("DISCONNECT expiry=0");
    });
    run(async {
        let (client, mut messages) = server.client().connect().await.expect("connected");
        messages.next().await.expect("a message");
        // When this is acknowledged, the second message is here.
        let look = Publish::new("look", "").qos(QoS::AtLeastOnce);
        client.publish(look).await.expect("acknowledged");
        drop(messages);
        client.disconnect().await;
    });
    server.end();
}

#[test]
fn what_was_thrown_away_does_not_hold_up_the_rest() {
    let (thrown, wait) = channel();
    let server = Server::run(move |listener| {
        let mut peer = listener.accept_session(false);
        peer.send("PUBLISH 1 q1 a");
        peer.send("PUBLISH 2 q1 a");
        peer.send("PUBLISH 3 q1 a");
        peer.expect("PUBACK 1");
        peer.expect("PUBLISH 1 q1 look");
        peer.send("PUBACK 1");
        wait.recv().expect("the client goes on");
        peer.send("PUBLISH 4 q1 a");
        for n in 2..=4 {
            peer.expect(&format!("PUBACK {n}"));
        }
    });
    run(async {
        let (client, mut messages) = server.client().connect().await.expect("connected");
        messages.next().await.expect("a message");
        let look = Publish::new("look", "").qos(QoS::AtLeastOnce);
        client.publish(look).await.expect("acknowledged");
        drop(messages);
        thrown.send(()).expect("the server waits");
        server.end();
        drop(client);
    });
}

#[test]
fn properties_travel_both_ways() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept_session(false);
        // What came goes back, with subscription identifiers.
        let mut bytes = Vec::new();
        peer.read(|packet| {
            let Packet::Publish(publish) = packet else {
                unreachable!("{packet:?}");
            };
            let mut publish = publish.clone();
            let ids = [3, 200];
            publish.properties.subscription_identifiers = ids.as_slice().into();
            let packet = Packet::Publish(publish);
            packet
                .encode(codec::Version::V5, &mut bytes)
                .expect("encoded");
        });
        peer.send_bytes(&bytes);
    });
    run(async {
        let (client, mut messages) = server.client().connect().await.expect("connected");
        let publish = Publish::new("é", [1, 2, 3].as_slice())
            .retain(true)
            .expires_in(core::time::Duration::from_secs(7))
            .content_type("text/plain")
            .response_topic("answer")
            .correlation_data("id")
            .payload_is_utf8(false)
            .user_property("k", "1")
            .user_property("k", "2");
        client.publish(publish).await.expect("left");
        let message = messages.next().await.expect("a message");
        assert_eq!(message.topic, "é");
        assert!(message.retain && !message.dup);
        assert_eq!(message.expires_in, Some(core::time::Duration::from_secs(7)));
        assert_eq!(message.subscription_ids, [3, 200]);
        let properties = message.properties.expect("properties");
        assert_eq!(properties.content_type, Some(Text::from("text/plain")));
        assert_eq!(properties.response_topic, Some(Text::from("answer")));
        assert_eq!(
            properties.correlation_data.as_deref(),
            Some(b"id".as_slice())
        );
        assert_eq!(properties.payload_is_utf8, Some(false));
        let user: Vec<_> = properties
            .user_properties
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .collect();
        assert_eq!(user, [("k", "1"), ("k", "2")]);
    });
    server.end();
}
