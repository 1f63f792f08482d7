//! What this server does not take, and topic aliases.

use super::*;

fn rig(set: impl FnOnce(&mut ConnAckProperties<'_>)) -> Rig {
    let mut rig = Rig::new(Settings::default());
    rig.connect(&Rig::options());
    rig.connack(false, set);
    rig
}

#[test]
fn qos_stays_within_the_maximum() {
    //= mqtt5#[MQTT-3.2.2-11] type=test
    let mut rig = rig(|p| p.maximum_qos = Some(QoS::AtLeastOnce));
    assert_eq!(rig.publish("a", 2), Err(CommandError::QosNotSupported));
    rig.publish("a", 1).expect("allowed");
}

#[test]
fn retain_needs_a_server_that_retains() {
    //= mqtt5#[MQTT-3.2.2-14] type=test
    let mut rig = rig(|p| p.retain_available = Some(false));
    let mut publish = message("a", 0);
    publish.retain = true;
    let result = rig.engine.publish(rig.now, &publish, &mut rig.out);
    assert_eq!(result, Err(CommandError::RetainNotSupported));
}

#[test]
fn packets_stay_within_the_maximum_size() {
    //= mqtt5#[MQTT-3.2.2-15] type=test
    let mut rig = rig(|p| p.maximum_packet_size = NonZeroU32::new(133));
    let payload = [0; 200];
    let mut publish = message("a", 0);
    // Header 1, length 2, topic 3, properties 1.
    for (len, fits) in [(126, true), (127, false), (120, true), (200, false)] {
        publish.payload = &payload[..len];
        let result = rig.engine.publish(rig.now, &publish, &mut rig.out);
        assert_eq!(result.is_ok(), fits, "{len}");
        if !fits {
            assert_eq!(result, Err(CommandError::PacketTooLarge));
        }
    }
    let long: String = core::iter::repeat_n('a', 130).collect();
    assert_eq!(rig.subscribe(&long), Err(CommandError::PacketTooLarge));
    assert_eq!(rig.unsubscribe(&[&long]), Err(CommandError::PacketTooLarge));
}

#[test]
fn filters_stay_within_what_the_server_has() {
    let mut rig = rig(|p| {
        p.wildcard_subscription_available = Some(false);
        p.shared_subscription_available = Some(false);
        p.subscription_identifiers_available = Some(false);
    });
    assert_eq!(
        rig.subscribe("a/+"),
        Err(CommandError::WildcardNotSupported)
    );
    assert_eq!(
        rig.subscribe("$share/g/a"),
        Err(CommandError::SharedNotSupported)
    );
    let filters = [SubscribeFilter {
        filter: "a",
        ..SubscribeFilter::default()
    }];
    let subscribe = Subscribe {
        packet_id: id(1),
        subscription_identifier: NonZeroU32::new(1),
        user_properties: Default::default(),
        filters: SubscribeFilters::new(&filters),
    };
    assert_eq!(
        rig.engine.subscribe(rig.now, &subscribe, &mut rig.out),
        Err(CommandError::SubscriptionIdNotSupported)
    );
    rig.subscribe("a").expect("plain");
}

#[test]
fn aliases_replace_repeated_topics() {
    //= mqtt5#[MQTT-3.2.2-17] type=test
    //= mqtt5#[MQTT-3.3.2-8] type=test
    //= mqtt5#[MQTT-3.3.2-9] type=test
    let mut rig = rig(|p| p.topic_alias_maximum = Some(1));
    for topic in [
        "long/topic",
        "long/topic",
        "other/topic",
        "long/topic",
        "ab",
    ] {
        rig.publish(topic, 0).expect("published");
    }
    rig.expect(&[
        "PUBLISH alias=1 long/topic",
        "PUBLISH alias=1",
        "PUBLISH alias=1 other/topic",
        "PUBLISH alias=1 long/topic",
        "PUBLISH ab",
    ]);
}

#[test]
fn aliases_stay_within_both_limits() {
    //= mqtt5#[MQTT-3.2.2-17] type=test
    let mut rig = rig(|p| p.topic_alias_maximum = Some(u16::MAX));
    for n in 0..50 {
        rig.publish(&alloc::format!("topic/{n}"), 0)
            .expect("published");
    }
    for line in rig.sent() {
        let alias = line.split("alias=").nth(1).expect("an alias");
        let alias: u16 = alias
            .split(' ')
            .next()
            .unwrap_or("")
            .parse()
            .expect("number");
        assert!((1..=4).contains(&alias), "{line}");
    }
}

#[test]
fn no_aliases_without_permission() {
    //= mqtt5#[MQTT-3.2.2-18] type=test
    let mut rig = Rig::connected();
    rig.publish("long/topic", 0).expect("published");
    rig.publish("long/topic", 0).expect("published");
    rig.expect(&["PUBLISH long/topic", "PUBLISH long/topic"]);
}

#[test]
fn aliases_end_with_the_connection() {
    //= mqtt5#[MQTT-3.3.2-7] type=test
    let mut rig = rig(|p| p.topic_alias_maximum = Some(1));
    rig.publish("long/topic", 0).expect("published");
    rig.sent();
    rig.hears("PUBLISH alias=2 a/b", "Message q0 a/b");
    rig.engine.handle_closed();
    rig.connect(&Rig::options());
    rig.connack(true, |p| p.topic_alias_maximum = Some(1));
    rig.publish("long/topic", 0).expect("published");
    rig.expect(&["PUBLISH alias=1 long/topic"]);
    assert_eq!(rig.server("PUBLISH alias=2"), Err(PeerError::TopicAlias));
    rig.expect(&["DISCONNECT 0x94"]);
}

#[test]
fn aliases_of_the_server_are_resolved() {
    //= mqtt5#[MQTT-3.3.2-10] type=test
    let mut rig = Rig::connected();
    for alias in 1..=4 {
        rig.hears(
            &alloc::format!("PUBLISH alias={alias} a/{alias}"),
            &alloc::format!("Message q0 a/{alias}"),
        );
    }
    rig.hears("PUBLISH alias=2 b", "Message q0 b");
    rig.hears("PUBLISH alias=2", "Message q0 b");
    rig.hears("PUBLISH alias=4", "Message q0 a/4");
}

#[test]
fn wrong_aliases_of_the_server_end_the_connection() {
    //= mqtt5#[MQTT-3.1.2-26] type=test
    //= mqtt5#[MQTT-3.3.2-11] type=test
    for line in ["PUBLISH alias=5 a", "PUBLISH alias=3"] {
        let mut rig = Rig::connected();
        assert_eq!(rig.server(line), Err(PeerError::TopicAlias), "{line}");
        rig.expect(&["DISCONNECT 0x94"]);
    }
}
