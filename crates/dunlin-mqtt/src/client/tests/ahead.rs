//! Packets that follow CONNECT without waiting for CONNACK (section 3.1.4).

use super::*;

fn rig() -> Rig {
    let settings = Settings {
        early_publishes: 2,
        ..Settings::default()
    };
    let mut rig = Rig::new(settings);
    rig.connect(&Rig::options());
    rig
}

#[test]
fn requests_do_not_wait_for_connack() {
    let mut rig = rig();
    assert!(rig.engine.can_request());
    rig.subscribe("a/#").expect("early");
    rig.unsubscribe(&["b"]).expect("early");
    rig.publish("a", 1).expect("early");
    rig.expect(&["SUBSCRIBE 1", "UNSUBSCRIBE 2", "PUBLISH 3 q1 a"]);
    rig.connack(false, |_| {});
    // What is under way is not sent again.
    assert_eq!(rig.resume(&[]), []);
    rig.hears("SUBACK 1 0", "Subscribed 1");
    rig.hears("UNSUBACK 2", "Unsubscribed 2");
    rig.hears("PUBACK 3", "Published 3");
}

#[test]
fn an_answer_before_connack_is_an_error() {
    //= mqtt5#[MQTT-3.2.0-1] type=test
    let mut rig = rig();
    rig.subscribe("a").expect("early");
    assert_eq!(
        rig.server("SUBACK 1 0"),
        Err(PeerError::UnexpectedPacket("SUBACK"))
    );
}

#[test]
fn requests_of_a_connection_that_is_gone_come_first() {
    let mut rig = rig();
    rig.subscribe("a").expect("early");
    rig.unsubscribe(&["b"]).expect("early");
    rig.sent();
    rig.engine.handle_closed();
    rig.connect(&Rig::options());
    assert!(!rig.engine.can_request());
    assert_eq!(rig.unsubscribe(&["a"]), Err(CommandError::NotConnected));
    let stale = [Resume::Request(id(1)), Resume::Request(id(2))];
    assert_eq!(rig.resume(&[]), stale);
    rig.subscribe("a").expect("again");
    rig.unsubscribe(&["a"]).expect("what came later");
    rig.connack(true, |_| {});
    assert_eq!(rig.resume(&[]), []);
}

#[test]
fn a_refusal_leaves_nothing_under_way() {
    let mut rig = rig();
    rig.subscribe("a").expect("early");
    let refusal = ConnAck {
        reason: ReasonCode::NotAuthorized,
        ..ConnAck::default()
    };
    let event = rig.packet(Packet::ConnAck(refusal)).expect("an answer");
    assert!(event.starts_with("Refused"), "{event}");
    assert_eq!(rig.subscribe("b"), Err(CommandError::NotConnected));
    rig.engine.handle_closed();
    rig.sent();
    rig.connect(&Rig::options());
    assert_eq!(rig.resume(&[]), [Resume::Request(id(1))]);
}

/// What the last connection did not take is not sent ahead on the next; what
/// CONNACK then says counts.
#[test]
fn limits_of_the_last_connection_are_expected_again() {
    let mut rig = rig();
    rig.connack(false, |p| {
        p.receive_maximum = NonZeroU16::new(1);
        p.maximum_packet_size = NonZeroU32::new(30);
        p.wildcard_subscription_available = Some(false);
        p.shared_subscription_available = Some(false);
        p.retain_available = Some(false);
        p.maximum_qos = Some(QoS::AtLeastOnce);
        p.topic_alias_maximum = Some(4);
    });
    assert_eq!(
        rig.subscribe("a/#"),
        Err(CommandError::WildcardNotSupported)
    );
    let long = "a/topic/that/is/longer/than/thirty/bytes";
    let retained = Publish {
        retain: true,
        ..message("a", 0)
    };
    rig.sent();
    rig.engine.handle_closed();
    rig.connect(&Rig::options());
    for filter in ["a/#", "$share/g/a", long] {
        assert_eq!(rig.subscribe(filter), Err(CommandError::NotConnected));
    }
    for (topic, qos) in [("a", 2), (long, 0)] {
        assert_eq!(rig.publish(topic, qos), Err(CommandError::NotConnected));
    }
    let sent = rig.engine.publish(rig.now, &retained, &mut rig.out);
    assert_eq!(sent, Err(CommandError::NotConnected));
    rig.publish("topic", 1).expect("early");
    assert_eq!(rig.publish("topic", 1), Err(CommandError::InFlightFull));
    rig.expect(&["PUBLISH 1 q1 topic"]);
    rig.connack(false, |_| {});
    for filter in ["a/#", "$share/g/a", long] {
        rig.subscribe(filter).expect("taken now");
    }
}

#[test]
fn nothing_is_ahead_of_authentication() {
    let mut rig = Rig::new(Settings {
        early_publishes: 2,
        ..Settings::default()
    });
    let mut options = Rig::options();
    options.properties.authentication_method = Some("SCRAM-SHA-256");
    rig.connect(&options);
    assert!(!rig.engine.can_request());
    assert_eq!(rig.subscribe("a"), Err(CommandError::NotConnected));
}
