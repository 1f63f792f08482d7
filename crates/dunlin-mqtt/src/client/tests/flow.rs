//! Receive Maximum of the server (section 4.9).

use super::*;

fn limited(receive_maximum: u16) -> Rig {
    let mut rig = Rig::new(Settings::default());
    rig.connect(&Rig::options());
    rig.connack(false, |p| {
        p.receive_maximum = NonZeroU16::new(receive_maximum)
    });
    rig
}

#[test]
fn messages_wait_for_the_quota() {
    //= mqtt5#[MQTT-3.3.4-7] type=test
    //= mqtt5#[MQTT-4.9.0-1] type=test
    //= mqtt5#[MQTT-4.9.0-2] type=test
    let mut rig = limited(2);
    rig.publish("a", 1).expect("first");
    rig.publish("a", 2).expect("second");
    assert_eq!(rig.publish("a", 1), Err(CommandError::InFlightFull));
    assert!(!rig.engine.can_publish(QoS::AtLeastOnce));
    // PUBREC is not the end of it, PUBCOMP is.
    rig.hears("PUBREC 2", "Recorded 2");
    assert_eq!(rig.publish("a", 1), Err(CommandError::InFlightFull));
    rig.hears("PUBCOMP 2", "Published 2");
    rig.publish("a", 1).expect("third");
    assert_eq!(rig.publish("a", 1), Err(CommandError::InFlightFull));
    // A PUBREC that refuses is the end.
    rig.hears("PUBACK 1", "Published 1");
    let id = rig.publish("a", 2).expect("fourth").expect("identifier");
    rig.hears(
        &alloc::format!("PUBREC {id} 0x80"),
        &alloc::format!("Published {id} 0x80"),
    );
    assert!(rig.engine.can_publish(QoS::AtLeastOnce));
}

#[test]
fn other_packets_do_not_wait() {
    //= mqtt5#[MQTT-3.3.4-8] type=test
    //= mqtt5#[MQTT-4.9.0-3] type=test
    let mut rig = limited(1);
    rig.publish("a", 2).expect("published");
    assert!(rig.engine.can_publish(QoS::AtMostOnce));
    rig.publish("b", 0).expect("QoS 0");
    rig.subscribe("a").expect("SUBSCRIBE");
    rig.hears("PUBREC 1", "Recorded 1");
    rig.hears("PUBLISH 9 q1 a", "Message q1 a");
    rig.take(ReasonCode::Success);
    rig.wait(70);
    rig.engine.handle_timeout(rig.now).expect("in time");
    rig.expect(&[
        "PUBLISH 1 q2 a",
        "PUBLISH b",
        "SUBSCRIBE 2",
        "PUBACK 9",
        "PUBREL 1",
        "PINGREQ",
    ]);
}

#[test]
fn one_identifier_stays_free_for_subscriptions() {
    let mut rig = Rig::connected();
    let mut count = 0;
    while rig.publish("a", 1).is_ok() {
        count += 1;
    }
    assert_eq!(count, 7);
    rig.subscribe("a").expect("the eighth slot");
    assert_eq!(rig.subscribe("b"), Err(CommandError::InFlightFull));
}

#[test]
fn the_quota_is_that_of_the_connection() {
    let mut rig = limited(2);
    rig.publish("a", 2).expect("published");
    rig.publish("a", 2).expect("published");
    rig.hears("PUBREC 1", "Recorded 1");
    rig.sent();
    rig.engine.handle_closed();
    rig.connect(&Rig::options());
    rig.connack(true, |p| p.receive_maximum = NonZeroU16::new(1));
    // The PUBREL does not count, the repeated PUBLISH does.
    assert_eq!(rig.resume(&[(2, 2)]), [Resume::Publish(id(2))]);
    rig.expect(&["PUBLISH 2 q2 dup again", "PUBREL 1"]);
    assert_eq!(rig.publish("a", 1), Err(CommandError::InFlightFull));
    rig.hears("PUBCOMP 1", "Published 1");
    rig.publish("a", 1).expect("as section 4.9 allows");
    // More acknowledgements than messages do not raise the quota.
    rig.hears("PUBREC 2 0x80", "Published 2 0x80");
    rig.hears("PUBACK 3", "Published 3");
    rig.publish("a", 1).expect("one");
    assert_eq!(rig.publish("a", 1), Err(CommandError::InFlightFull));
}
