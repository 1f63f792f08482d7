//! Messages to the server, and when they count as delivered.

use std::sync::mpsc::channel;

use dunlin_client::{
    DisconnectCause, Publish, PublishError, QoS, ReasonCode, Subscribe, SubscribeError,
    TryPublishError,
};
use dunlin_mqtt::codec::{ConnAck, Packet, ReasonCodes, SubAck};

use super::run;
use super::server::Server;

fn message(topic: &str, qos: QoS) -> Publish {
    Publish::new(topic, "x").qos(qos)
}

#[test]
fn a_publish_ends_at_its_acknowledgement() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept_session(false);
        peer.expect("PUBLISH a");
        peer.expect("PUBLISH 1 q1 b");
        peer.send("PUBACK 1 0x10");
        peer.expect("PUBLISH 2 q2 c");
        peer.send("PUBREC 2");
        peer.expect("PUBREL 2");
        peer.send("PUBCOMP 2");
        peer.expect("PUBLISH 3 q1 d");
        peer.send("PUBACK 3 0x87");
        peer.expect("PUBLISH 4 q2 e");
        peer.send("PUBREC 4 0x97");
    });
    run(async {
        let (client, _messages) = server.client().connect().await.expect("connected");
        let publish = |topic, qos| client.publish(message(topic, qos));
        let left = publish("a", QoS::AtMostOnce).await;
        assert_eq!(left.expect("left"), ReasonCode::Success);
        let acked = publish("b", QoS::AtLeastOnce).await;
        assert_eq!(
            acked.expect("acknowledged"),
            ReasonCode::NoMatchingSubscribers
        );
        let done = publish("c", QoS::ExactlyOnce).await;
        assert_eq!(done.expect("complete"), ReasonCode::Success);
        for (topic, qos, want) in [
            ("d", QoS::AtLeastOnce, ReasonCode::NotAuthorized),
            ("e", QoS::ExactlyOnce, ReasonCode::QuotaExceeded),
        ] {
            let result = publish(topic, qos).await;
            assert!(matches!(result, Err(PublishError::Refused { reason }) if reason == want));
        }
        let result = publish("a/+", QoS::AtMostOnce).await;
        assert!(matches!(result, Err(PublishError::Topic(_))));
    });
    server.end();
}

#[test]
fn messages_in_flight_are_bounded() {
    let (full, tried) = channel();
    let server = Server::run(move |listener| {
        let mut peer = listener.accept_session(false);
        peer.expect("PUBLISH 1 q1 a");
        peer.expect("PUBLISH 2 q1 b");
        tried.recv().expect("the client has tried a third");
        peer.send("PUBACK 1");
        peer.expect("PUBLISH 3 q1 d");
        peer.send("PUBACK 2");
        peer.send("PUBACK 3");
    });
    run(async {
        let (client, _messages) = server
            .client()
            .max_in_flight(2)
            .connect()
            .await
            .expect("connected");
        let qos = QoS::AtLeastOnce;
        let a = client.try_publish(message("a", qos)).expect("room");
        let b = client.try_publish(message("b", qos)).expect("room");
        let third = client.try_publish(message("c", qos));
        assert!(matches!(third, Err(TryPublishError::Full(back)) if back.topic() == "c"));
        full.send(()).expect("the server waits");
        // Waits for the acknowledgement of the first.
        let d = client.start_publish(message("d", qos)).await.expect("room");
        for delivery in [a, b, d] {
            delivery.await.expect("acknowledged");
        }
    });
    server.end();
}

#[test]
fn the_servers_receive_maximum_holds() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept();
        peer.expect("CONNECT c");
        let mut connack = ConnAck::default();
        connack.properties.receive_maximum = core::num::NonZeroU16::new(1);
        peer.send_packet(&Packet::ConnAck(connack));
        for n in 1..=20 {
            peer.expect(&format!("PUBLISH {n} q1 a"));
            peer.send(&format!("PUBACK {n}"));
        }
    });
    run(async {
        let (client, _messages) = server.client().connect().await.expect("connected");
        let mut deliveries = Vec::new();
        for _ in 0..20 {
            let started = client.start_publish(message("a", QoS::AtLeastOnce)).await;
            deliveries.push(started.expect("room"));
        }
        for delivery in deliveries {
            delivery.await.expect("acknowledged");
        }
    });
    server.end();
}

#[test]
fn what_the_server_does_not_take_is_refused_here() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept();
        peer.expect("CONNECT c");
        let mut connack = ConnAck::default();
        connack.properties.maximum_qos = Some(QoS::AtMostOnce);
        connack.properties.retain_available = Some(false);
        connack.properties.maximum_packet_size = core::num::NonZeroU32::new(50);
        connack.properties.shared_subscription_available = Some(false);
        peer.send_packet(&Packet::ConnAck(connack));
        peer.expect("PUBLISH fine");
    });
    run(async {
        let (client, _messages) = server.client().connect().await.expect("connected");
        for publish in [
            Publish::new("a", "").qos(QoS::AtLeastOnce),
            Publish::new("a", "").retain(true),
        ] {
            let result = client.publish(publish).await;
            assert!(matches!(result, Err(PublishError::NotSupported(_))));
        }
        let result = client.publish(Publish::new("a", vec![0; 50])).await;
        assert!(matches!(result, Err(PublishError::TooLarge { max: 50 })));
        let result = client.subscribe("$share/g/a", QoS::AtMostOnce).await;
        assert!(matches!(result, Err(SubscribeError::NotSupported(_))));
        client
            .publish(Publish::new("fine", ""))
            .await
            .expect("left");
    });
    server.end();
}

#[test]
fn a_large_message_waits_for_what_connack_allows() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept();
        peer.expect("CONNECT c");
        peer.expect("PUBLISH 1 q1 a");
        peer.expect_silence();
        let mut connack = ConnAck::default();
        connack.properties.maximum_packet_size = core::num::NonZeroU32::new(100_000);
        peer.send_packet(&Packet::ConnAck(connack));
        peer.send("PUBACK 1");
        peer.expect("DISCONNECT expiry=0");
    });
    run(async {
        let builder = server.client().pipelined(true);
        let (client, _messages, connecting) = builder.start().expect("started");
        let small = message("a", QoS::AtLeastOnce);
        let small = client.start_publish(small).await.expect("room");
        let large = Publish::new("a", vec![0; 200_000]).qos(QoS::AtLeastOnce);
        let large = client.start_publish(large).await.expect("room");
        connecting.await.expect("connected");
        let too_large = PublishError::TooLarge { max: 100_000 };
        let error = large.await.expect_err("too large");
        assert_eq!(error.to_string(), too_large.to_string());
        small.await.expect("acknowledged");
        client.disconnect().await;
    });
    server.end();
}

#[test]
fn a_server_that_calls_a_packet_too_large_is_not_asked_again() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept_session(false);
        peer.expect("PUBLISH 1 q1 a");
        peer.send("DISCONNECT 0x95");
        peer.expect("end");
    });
    run(async {
        let (client, _messages) = server.client().connect().await.expect("connected");
        let error = client.publish(message("a", QoS::AtLeastOnce)).await;
        assert!(matches!(
            error,
            Err(PublishError::Closed(DisconnectCause::Server {
                reason: ReasonCode::PacketTooLarge,
                ..
            }))
        ));
    });
    server.end();
}

#[test]
fn a_message_that_costs_every_connection_is_given_up() {
    const LOSSES: u32 = 3;
    let server = Server::run(|listener| {
        for _ in 0..LOSSES {
            let mut peer = listener.accept_session(true);
            assert!(peer.line().starts_with("PUBLISH 1 q1"));
        }
    });
    run(async {
        let builder = server.client().clean_start(false).losses_max(LOSSES);
        let (client, mut messages) = builder.connect().await.expect("connected");
        let error = client.publish(message("a", QoS::AtLeastOnce)).await;
        let lost = |cause: &DisconnectCause| matches!(cause, DisconnectCause::Transport(_));
        assert!(matches!(error, Err(PublishError::Closed(cause)) if lost(&cause)));
        assert!(messages.next().await.is_none());
    });
    server.end();
}

#[test]
fn large_messages_leave_whole() {
    const LEN: usize = 3_000_000;
    let server = Server::run(|listener| {
        let mut peer = listener.accept_session(false);
        for _ in 0..3 {
            let len = peer.read(|packet| match packet {
                Packet::Publish(publish) => {
                    assert!(publish.payload.iter().all(|byte| *byte == 7));
                    publish.payload.len()
                }
                other => unreachable!("{other:?}"),
            });
            assert_eq!(len, Some(LEN));
        }
        peer.expect("DISCONNECT expiry=0");
    });
    run(async {
        let (client, _messages) = server.client().connect().await.expect("connected");
        let payload = bytes::Bytes::from(vec![7; LEN]);
        for _ in 0..3 {
            let left = client.publish(Publish::new("a", payload.clone())).await;
            left.expect("left");
        }
        client.disconnect().await;
    });
    server.end();
}

#[test]
fn subscriptions_are_answered() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept_session(false);
        peer.expect("SUBSCRIBE 1 a/#");
        peer.send("SUBACK 1");
        peer.expect("SUBSCRIBE 2 b c");
        peer.send_packet(&Packet::SubAck(SubAck {
            packet_id: core::num::NonZeroU16::new(2).expect("not zero"),
            properties: Default::default(),
            reasons: ReasonCodes::new(&[ReasonCode::GrantedQos2, ReasonCode::NotAuthorized]),
        }));
        peer.expect("UNSUBSCRIBE 3 a/#");
        peer.send("UNSUBACK 3");
        // Fewer answers than questions.
        peer.expect("SUBSCRIBE 4 d e");
        peer.send("SUBACK 4 1");
    });
    run(async {
        let (client, _messages) = server.client().connect().await.expect("connected");
        let how = Subscribe::new(QoS::ExactlyOnce).no_local(true);
        let subscription = client.subscribe("a/#", how).await.expect("subscribed");
        assert_eq!(subscription.granted, QoS::AtLeastOnce);
        let both = [("b", QoS::ExactlyOnce), ("c", QoS::AtMostOnce)];
        let answers = client.subscribe_many(both).await.expect("answered");
        assert!(matches!(&answers[0], Ok(s) if s.granted == QoS::ExactlyOnce));
        assert!(matches!(
            &answers[1],
            Err(SubscribeError::Refused {
                reason: ReasonCode::NotAuthorized
            })
        ));
        let reason = client.unsubscribe("a/#").await.expect("answered");
        assert_eq!(reason, ReasonCode::Success);
        let both = [("d", QoS::ExactlyOnce), ("e", QoS::AtMostOnce)];
        let answers = client.subscribe_many(both).await;
        assert!(matches!(answers, Err(SubscribeError::Answer)));
        let wrong = client.subscribe("a/#/b", QoS::AtMostOnce).await;
        assert!(matches!(wrong, Err(SubscribeError::Filter(_))));
    });
    server.end();
}
