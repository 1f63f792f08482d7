//! Messages to the server.

use super::*;

#[test]
fn qos_0_has_no_identifier_and_no_answer() {
    //= mqtt5#[MQTT-4.3.1-1] type=test
    //= mqtt5#[MQTT-3.3.1-2] type=test
    //= mqtt5#[MQTT-2.2.1-2] type=test
    let mut rig = Rig::connected();
    let mut publish = message("a", 0);
    publish.dup = true;
    publish.packet_id = Some(id(9));
    let result = rig.engine.publish(rig.now, &publish, &mut rig.out);
    assert_eq!(result, Ok(None));
    rig.expect(&["PUBLISH a"]);
    assert_eq!(rig.engine.in_flight(), 0);
}

#[test]
fn qos_1_ends_at_puback() {
    //= mqtt5#[MQTT-4.3.2-1] type=test
    //= mqtt5#[MQTT-4.3.2-2] type=test
    //= mqtt5#[MQTT-4.3.2-3] type=test
    //= mqtt5#[MQTT-2.2.1-3] type=test
    let mut rig = Rig::connected();
    assert_eq!(rig.publish("a", 1), Ok(Some(id(1))));
    assert_eq!(rig.publish("b", 1), Ok(Some(id(2))));
    rig.expect(&["PUBLISH 1 q1 a", "PUBLISH 2 q1 b"]);
    assert_eq!(rig.engine.in_flight(), 2);
    rig.hears("PUBACK 2", "Published 2");
    rig.hears("PUBACK 1 0x10", "Published 1 0x10");
    assert_eq!(rig.engine.in_flight(), 0);
    // Repetitions are nothing.
    rig.hears("PUBACK 1", "Nothing");
    rig.expect(&[]);
}

#[test]
fn qos_2_ends_at_pubcomp() {
    //= mqtt5#[MQTT-4.3.3-1] type=test
    //= mqtt5#[MQTT-4.3.3-2] type=test
    //= mqtt5#[MQTT-4.3.3-3] type=test
    //= mqtt5#[MQTT-4.3.3-4] type=test
    //= mqtt5#[MQTT-4.3.3-5] type=test
    //= mqtt5#[MQTT-2.2.1-5] type=test
    let mut rig = Rig::connected();
    assert_eq!(rig.publish("a", 2), Ok(Some(id(1))));
    rig.expect(&["PUBLISH 1 q2 a"]);
    rig.hears("PUBREC 1", "Recorded 1");
    rig.expect(&["PUBREL 1"]);
    assert_eq!(rig.engine.in_flight(), 1);
    // A repeated PUBREC is answered again.
    rig.hears("PUBREC 1", "Nothing");
    rig.expect(&["PUBREL 1"]);
    rig.hears("PUBCOMP 1", "Published 1");
    assert_eq!(rig.engine.in_flight(), 0);
    rig.expect(&[]);
}

#[test]
fn a_refused_message_is_acknowledged() {
    //= mqtt5#[MQTT-4.4.0-2] type=test
    let mut rig = Rig::connected();
    rig.publish("a", 1).expect("published");
    rig.publish("a", 2).expect("published");
    rig.hears("PUBACK 1 0x87", "Published 1 0x87");
    rig.hears("PUBREC 2 0x97", "Published 2 0x97");
    rig.sent();
    assert_eq!(rig.engine.in_flight(), 0);
    rig.reconnect(true);
    assert_eq!(rig.resume(&[]), []);
    rig.expect(&[]);
}

#[test]
fn pubrels_follow_the_order_of_pubrecs() {
    //= mqtt5#[MQTT-4.6.0-4] type=test
    let mut rig = Rig::connected();
    for _ in 0..3 {
        rig.publish("a", 2).expect("published");
    }
    rig.sent();
    for line in ["PUBREC 3", "PUBREC 1", "PUBREC 2"] {
        rig.server(line).expect("in order");
    }
    rig.expect(&["PUBREL 3", "PUBREL 1", "PUBREL 2"]);
}

#[test]
fn unknown_pubrec_and_pubrel_are_answered() {
    let mut rig = Rig::connected();
    rig.hears("PUBREC 7", "Nothing");
    rig.expect(&["PUBREL 7 0x92"]);
    rig.hears("PUBREC 7 0x80", "Nothing");
    rig.expect(&[]);
    rig.hears("PUBREL 7", "Nothing");
    rig.expect(&["PUBCOMP 7 0x92"]);
    rig.hears("PUBCOMP 7 0x92", "Nothing");
    rig.expect(&[]);
}

#[test]
fn each_unknown_identifier_is_answered_when_many_come_at_once() {
    let mut rig = Rig::connected();
    for line in ["PUBREL 9", "PUBREL 8", "PUBREC 7", "PUBREL 10"] {
        rig.hears(line, "Nothing");
    }
    rig.expect(&[
        "PUBCOMP 9 0x92",
        "PUBCOMP 8 0x92",
        "PUBREL 7 0x92",
        "PUBCOMP 10 0x92",
    ]);
}

#[test]
fn unknown_identifiers_beyond_what_may_be_in_flight_end_the_connection() {
    let mut rig = Rig::connected();
    for id in 1..=16 {
        rig.hears(&alloc::format!("PUBREL {id}"), "Nothing");
    }
    assert_eq!(
        rig.server("PUBREL 17"),
        Err(PeerError::ReceiveMaximumExceeded)
    );
}

#[test]
fn acknowledgements_of_the_wrong_kind_end_the_connection() {
    let cases = [
        (1, "PUBREC 1"),
        (1, "PUBCOMP 1"),
        (1, "SUBACK 1"),
        (1, "UNSUBACK 1"),
        (2, "PUBACK 1"),
        (2, "PUBCOMP 1"),
    ];
    for (qos, line) in cases {
        let mut rig = Rig::connected();
        rig.publish("a", qos).expect("published");
        rig.sent();
        assert_eq!(
            rig.server(line),
            Err(PeerError::WrongAcknowledgement),
            "{line}"
        );
        rig.expect(&["DISCONNECT 0x82"]);
    }
    for line in ["PUBACK 1", "PUBREC 1", "PUBCOMP 1", "UNSUBACK 1"] {
        let mut rig = Rig::connected();
        rig.subscribe("a").expect("subscribed");
        assert_eq!(
            rig.server(line),
            Err(PeerError::WrongAcknowledgement),
            "{line}"
        );
    }
}

#[test]
fn subscriptions_share_the_identifiers() {
    //= mqtt5#[MQTT-2.2.1-3] type=test
    let mut rig = Rig::connected();
    assert_eq!(rig.publish("a", 1), Ok(Some(id(1))));
    assert_eq!(rig.subscribe("a/#"), Ok(id(2)));
    assert_eq!(rig.unsubscribe(&["a/#"]), Ok(id(3)));
    rig.expect(&["PUBLISH 1 q1 a", "SUBSCRIBE 2", "UNSUBSCRIBE 3"]);
    rig.hears("SUBACK 2", "Subscribed 2");
    rig.hears("UNSUBACK 3", "Unsubscribed 3");
    rig.hears("UNSUBACK 3", "Nothing");
    // Freed identifiers rest as long as possible.
    assert_eq!(rig.publish("a", 1), Ok(Some(id(4))));
}

#[test]
fn identifiers_are_never_shared_by_two_messages() {
    //= mqtt5#[MQTT-2.2.1-3] type=test
    let mut rig = Rig::connected();
    let mut used = Vec::new();
    for round in 0..100u16 {
        while let Ok(Some(id)) = rig.publish("a", 1) {
            assert!(!used.contains(&id), "{id} in round {round}");
            used.push(id);
        }
        let at = usize::from(round * 7) % used.len();
        let id = used.remove(at);
        rig.server(&alloc::format!("PUBACK {id}")).expect("known");
        rig.out.clear();
    }
}

#[test]
fn topics_must_be_names() {
    let mut rig = Rig::connected();
    for topic in ["", "a/+", "#", "a\0"] {
        assert!(
            matches!(rig.publish(topic, 0), Err(CommandError::Topic(_))),
            "{topic:?}"
        );
    }
    rig.expect(&[]);
}

#[test]
fn subscriptions_need_filters() {
    //= mqtt5#[MQTT-3.8.3-2] type=test
    //= mqtt5#[MQTT-3.10.3-2] type=test
    let mut rig = Rig::connected();
    assert_eq!(rig.unsubscribe(&[]), Err(CommandError::NoFilter));
    let none = Subscribe {
        packet_id: id(1),
        subscription_identifier: None,
        user_properties: Default::default(),
        filters: SubscribeFilters::default(),
    };
    let result = rig.engine.subscribe(rig.now, &none, &mut rig.out);
    assert_eq!(result, Err(CommandError::NoFilter));
    assert!(matches!(
        rig.subscribe("a/#/b"),
        Err(CommandError::Topic(_))
    ));
    assert!(matches!(
        rig.unsubscribe(&[""]),
        Err(CommandError::Topic(_))
    ));
    rig.expect(&[]);
}

#[test]
fn no_subscription_identifier_leaves_the_client() {
    //= mqtt5#[MQTT-3.3.4-6] type=test
    let mut rig = Rig::connected();
    let mut publish = message("a", 0);
    let ids = [7];
    publish.properties.subscription_identifiers = ids.as_slice().into();
    rig.engine
        .publish(rig.now, &publish, &mut rig.out)
        .expect("published");
    let packet = dunlin_mqtt_codec::decode(&rig.out, Version::V5).expect("well-formed");
    let Packet::Publish(publish) = packet else {
        unreachable!()
    };
    assert!(publish.properties.subscription_identifiers.is_empty());
}
