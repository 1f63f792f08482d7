//! What leaves with CONNECT instead of after CONNACK.

use dunlin_client::{
    ConnectError, ConnectionEvent, DisconnectCause, Publish, QoS, ReasonCode, SubscribeError,
};
use dunlin_mqtt::client::CommandError;
use dunlin_mqtt::codec::{ConnAck, Packet};

use super::run;
use super::server::Server;

#[test]
fn requests_and_messages_do_not_wait_for_connack() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept();
        peer.expect("CONNECT c");
        peer.expect("SUBSCRIBE 1 a/#");
        peer.expect("PUBLISH 2 q1 m");
        peer.send("CONNACK");
        peer.send("SUBACK 1");
        peer.send("PUBACK 2");
        peer.expect("DISCONNECT expiry=0");
    });
    run(async {
        let (client, _messages, connecting) = server.client().pipelined(true).start().expect("ok");
        let subscribe = client.subscribe("a/#", QoS::AtLeastOnce);
        let publish = async {
            let message = Publish::new("m", "x").qos(QoS::AtLeastOnce);
            client.publish(message).await
        };
        let (connected, subscribed, published) = tokio::join!(connecting, subscribe, publish);
        connected.expect("connected");
        subscribed.expect("subscribed");
        published.expect("published");
        client.disconnect().await;
    });
    server.end();
}

#[test]
fn without_being_asked_everything_waits() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept();
        peer.expect("CONNECT c");
        peer.expect_silence();
        peer.send("CONNACK");
        peer.expect("SUBSCRIBE 1 a");
        peer.send("SUBACK 1");
    });
    run(async {
        let (client, _messages, connecting) = server.client().start().expect("begun");
        let subscribe = client.subscribe("a", QoS::AtLeastOnce);
        let (connected, subscribed) = tokio::join!(connecting, subscribe);
        connected.expect("connected");
        subscribed.expect("subscribed");
        client.disconnect().await;
    });
    server.end();
}

#[test]
fn a_refused_connect_is_the_answer_to_all() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept();
        peer.expect("CONNECT c");
        peer.expect("SUBSCRIBE 1 a");
        peer.send("CONNACK 0x87");
        peer.expect("end");
    });
    run(async {
        let (client, _messages, connecting) = server.client().pipelined(true).start().expect("ok");
        let subscribe = client.subscribe("a", QoS::AtLeastOnce);
        let (connected, subscribed) = tokio::join!(connecting, subscribe);
        let refused = |cause: &DisconnectCause| {
            let not_authorized = ReasonCode::NotAuthorized;
            matches!(cause, DisconnectCause::Refused { reason, .. } if *reason == not_authorized)
        };
        assert!(matches!(connected, Err(ConnectError::Failed(cause)) if refused(&cause)));
        assert!(matches!(subscribed, Err(SubscribeError::Closed(cause)) if refused(&cause)));
    });
    server.end();
}

/// A server that ends the connection because of what came ahead is asked first
/// the next time, and what it does not take fails with the reason.
#[test]
fn a_server_that_objects_is_asked_first() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept();
        peer.expect("CONNECT c");
        peer.expect("SUBSCRIBE 1 a/#");
        drop(peer);
        let mut peer = listener.accept();
        peer.expect("CONNECT c");
        peer.expect_silence();
        let mut connack = ConnAck::default();
        connack.properties.wildcard_subscription_available = Some(false);
        peer.send_packet(&Packet::ConnAck(connack));
        peer.expect("DISCONNECT expiry=0");
    });
    run(async {
        let (client, _messages, connecting) = server.client().pipelined(true).start().expect("ok");
        let subscribe = client.subscribe("a/#", QoS::AtLeastOnce);
        let (connected, subscribed) = tokio::join!(connecting, subscribe);
        connected.expect("connected");
        let not_supported = SubscribeError::NotSupported(CommandError::WildcardNotSupported);
        assert_eq!(
            subscribed.expect_err("refused").to_string(),
            not_supported.to_string()
        );
        client.disconnect().await;
    });
    server.end();
}

/// What was asked last counts, also where the server lost the session: a
/// subscription that the application just ended does not come back, and the
/// order of requests is kept.
#[test]
fn requests_ahead_of_a_lost_session_count() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept_session(false);
        peer.expect("SUBSCRIBE 1 a b");
        peer.send("SUBACK 1 2");
        peer.expect("UNSUBSCRIBE 2 a");
        peer.expect("SUBSCRIBE 3 d");
        drop(peer);
        let mut peer = listener.accept();
        peer.expect("CONNECT c");
        // Identifiers rest as long as possible before they are used again.
        let id = |line: &str| line.split(' ').nth(1).expect("an identifier").to_owned();
        let unsubscribe = peer.line();
        let first = id(&unsubscribe);
        assert_eq!(unsubscribe, format!("UNSUBSCRIBE {first} a"));
        let subscribe = peer.line();
        let second = id(&subscribe);
        assert_eq!(subscribe, format!("SUBSCRIBE {second} d"));
        peer.send("CONNACK");
        let again = peer.line();
        let third = id(&again);
        assert_eq!(again, format!("SUBSCRIBE {third} b"));
        peer.send(&format!("UNSUBACK {first}"));
        peer.send(&format!("SUBACK {second}"));
        peer.send(&format!("SUBACK {third}"));
        peer.expect("DISCONNECT expiry=0");
    });
    run(async {
        let builder = server.client().pipelined(true);
        let (client, _messages) = builder.connect().await.expect("connected");
        let mut events = client.events();
        let both = [("a", QoS::AtLeastOnce), ("b", QoS::AtLeastOnce)];
        client.subscribe_many(both).await.expect("subscribed");
        let unsubscribe = client.unsubscribe("a");
        let subscribe = client.subscribe("d", QoS::AtLeastOnce);
        let (unsubscribed, subscribed) = tokio::join!(unsubscribe, subscribe);
        unsubscribed.expect("unsubscribed");
        subscribed.expect("subscribed");
        while let Some(event) = events.next().await {
            if let ConnectionEvent::Connected { .. } = event {
                break;
            }
        }
        client.disconnect().await;
    });
    server.end();
}
