//! Sessions that outlive connections, and sessions that do not.

use dunlin_client::{Publish, PublishError, QoS};

use super::run;
use super::server::Server;

fn message(topic: &str, qos: QoS) -> Publish {
    Publish::new(topic, "x").qos(qos)
}

#[test]
fn unacknowledged_messages_go_again() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept_session(false);
        peer.expect("PUBLISH 1 q1 a");
        peer.expect("PUBLISH 2 q2 b");
        peer.expect("PUBLISH 3 q2 c");
        peer.send("PUBREC 2");
        peer.expect("PUBREL 2");
        drop(peer);
        let mut peer = listener.accept_session(true);
        let mut lines = [peer.line(), peer.line(), peer.line()];
        lines.sort();
        assert_eq!(
            lines,
            ["PUBLISH 1 q1 dup a", "PUBLISH 3 q2 dup c", "PUBREL 2"]
        );
        for line in ["PUBACK 1", "PUBCOMP 2", "PUBREC 3"] {
            peer.send(line);
        }
        peer.expect("PUBREL 3");
        peer.send("PUBCOMP 3");
        peer.expect("DISCONNECT expiry=0");
    });
    run(async {
        let (client, _messages) = server.client().connect().await.expect("connected");
        let mut deliveries = Vec::new();
        for (topic, qos) in [
            ("a", QoS::AtLeastOnce),
            ("b", QoS::ExactlyOnce),
            ("c", QoS::ExactlyOnce),
        ] {
            let started = client.start_publish(message(topic, qos)).await;
            deliveries.push(started.expect("room"));
        }
        for delivery in deliveries {
            delivery.await.expect("delivered");
        }
        client.disconnect().await;
    });
    server.end();
}

#[test]
fn a_lost_session_is_rebuilt() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept_session(false);
        peer.expect("SUBSCRIBE 1 a b");
        peer.send("SUBACK 1 2");
        peer.expect("SUBSCRIBE 2 c");
        peer.send("SUBACK 2");
        peer.expect("UNSUBSCRIBE 3 a");
        peer.send("UNSUBACK 3");
        peer.expect("PUBLISH 4 q1 m");
        drop(peer);
        let mut peer = listener.accept_session(false);
        // Subscriptions first, so that no message is missed.
        let subscribe = peer.line();
        let id = subscribe.split(' ').nth(1).expect("an identifier");
        assert_eq!(subscribe, format!("SUBSCRIBE {id} b c"));
        peer.expect("PUBLISH 4 q1 m");
        peer.send(&format!("SUBACK {id} 2"));
        peer.send("PUBACK 4");
        peer.expect("DISCONNECT expiry=0");
    });
    run(async {
        let (client, _messages) = server.client().connect().await.expect("connected");
        let both = [("a", QoS::AtLeastOnce), ("b", QoS::AtLeastOnce)];
        client.subscribe_many(both).await.expect("subscribed");
        client
            .subscribe("c", QoS::AtLeastOnce)
            .await
            .expect("subscribed");
        client.unsubscribe("a").await.expect("unsubscribed");
        client
            .publish(message("m", QoS::AtLeastOnce))
            .await
            .expect("delivered");
        client.disconnect().await;
    });
    server.end();
}

#[test]
fn requests_without_answer_are_made_again() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept_session(false);
        peer.expect("SUBSCRIBE 1 a");
        drop(peer);
        let mut peer = listener.accept_session(true);
        peer.expect("SUBSCRIBE 2 a");
        peer.send("SUBACK 2");
    });
    run(async {
        let (client, _messages) = server.client().connect().await.expect("connected");
        client
            .subscribe("a", QoS::AtMostOnce)
            .await
            .expect("subscribed");
    });
    server.end();
}

#[test]
fn messages_wait_for_the_connection() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept_session(false);
        peer.expect("PUBLISH first");
        drop(peer);
        let mut peer = listener.accept_session(true);
        peer.expect("PUBLISH 1 q1 later");
        peer.send("PUBACK 1");
    });
    run(async {
        let (client, _messages) = server.client().connect().await.expect("connected");
        let mut events = client.events();
        client
            .publish(Publish::new("first", ""))
            .await
            .expect("left");
        events.next().await.expect("disconnected");
        client
            .publish(message("later", QoS::AtLeastOnce))
            .await
            .expect("delivered");
    });
    server.end();
}

#[test]
fn a_resumed_session_does_not_deliver_twice() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept_session(false);
        peer.send("PUBLISH 7 q2 a");
        peer.expect("PUBLISH got");
        drop(peer);
        let mut peer = listener.accept_session(true);
        peer.send("PUBLISH 7 q2 dup a");
        peer.send("PUBLISH 8 q2 b");
        peer.expect("PUBREC 7");
        peer.expect("PUBREC 8");
    });
    run(async {
        let builder = server.client().manual_acknowledgement();
        let (client, mut messages) = builder.connect().await.expect("connected");
        let held = messages.next().await.expect("a message");
        client.publish(Publish::new("got", "")).await.expect("left");
        let next = messages.next().await.expect("a message");
        assert_eq!((held.topic.as_str(), next.topic.as_str()), ("a", "b"));
        held.acknowledge();
        next.acknowledge();
        server.end();
    });
}

#[test]
fn qos_0_is_not_sent_twice() {
    let server = Server::run(|listener| {
        // Reads nothing, so that the message cannot leave as a whole.
        let peer = listener.accept_session(false);
        let mut other = listener.accept();
        drop(peer);
        other.expect("CONNECT go");
        drop(other);
        let mut peer = listener.accept_session(true);
        peer.expect("DISCONNECT expiry=0");
    });
    run(async {
        let (client, _messages) = server.client().connect().await.expect("connected");
        let large = Publish::new("a", vec![0; 64 << 20]);
        let delivery = client.start_publish(large).await.expect("room");
        // Tells the server to break the connection of the first.
        let go = server.client().client_id("go").no_reconnect();
        assert!(go.connect().await.is_err());
        assert!(matches!(delivery.await, Err(PublishError::Lost)));
        let mut events = client.events();
        while client.negotiated().is_none() {
            events.next().await.expect("an event");
        }
        client.disconnect().await;
    });
    server.end();
}
