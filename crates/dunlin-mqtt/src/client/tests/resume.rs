//! Sessions that outlive connections, and sessions that do not.

use super::*;

#[test]
fn unacknowledged_messages_go_again_in_order() {
    //= mqtt5#[MQTT-4.4.0-1] type=test
    //= mqtt5#[MQTT-4.6.0-1] type=test
    //= mqtt5#[MQTT-3.3.1-1] type=test
    //= mqtt5#[MQTT-4.1.0-1] type=test
    let mut rig = Rig::connected();
    for qos in [1, 2, 1, 2, 1] {
        rig.publish("a", qos).expect("published");
    }
    rig.hears("PUBACK 3", "Published 3");
    rig.sent();
    rig.reconnect(true);
    let qos = [(1, 1), (2, 2), (4, 2), (5, 1)];
    assert_eq!(
        rig.resume(&qos),
        [1, 2, 4, 5].map(|n| Resume::Publish(id(n)))
    );
    rig.expect(&[
        "PUBLISH 1 q1 dup again",
        "PUBLISH 2 q2 dup again",
        "PUBLISH 4 q2 dup again",
        "PUBLISH 5 q1 dup again",
    ]);
    for (line, event) in [
        ("PUBACK 1", "Published 1"),
        ("PUBREC 2", "Recorded 2"),
        ("PUBCOMP 2", "Published 2"),
        ("PUBREC 4 0x10", "Recorded 4"),
    ] {
        rig.hears(line, event);
    }
    rig.expect(&["PUBREL 4"]);
}

#[test]
fn after_pubrel_the_message_does_not_go_again() {
    //= mqtt5#[MQTT-4.3.3-6] type=test
    //= mqtt5#[MQTT-4.4.0-1] type=test
    let mut rig = Rig::connected();
    for _ in 0..3 {
        rig.publish("a", 2).expect("published");
    }
    rig.hears("PUBREC 2", "Recorded 2");
    rig.hears("PUBREC 1", "Recorded 1");
    rig.sent();
    for _ in 0..3 {
        rig.reconnect(true);
        assert_eq!(rig.resume(&[(3, 2)]), [Resume::Publish(id(3))]);
        rig.expect(&["PUBLISH 3 q2 dup again", "PUBREL 2", "PUBREL 1"]);
    }
    rig.hears("PUBCOMP 2", "Published 2");
    rig.reconnect(true);
    assert_eq!(rig.resume(&[(3, 2)]), [Resume::Publish(id(3))]);
    rig.expect(&["PUBLISH 3 q2 dup again", "PUBREL 1"]);
}

#[test]
fn a_pubrec_that_came_but_was_not_answered_counts() {
    let mut rig = Rig::connected();
    rig.publish("a", 2).expect("published");
    rig.out.clear();
    rig.hears("PUBREC 1", "Recorded 1");
    rig.reconnect(true);
    assert_eq!(rig.resume(&[]), []);
    rig.expect(&["PUBREL 1"]);
}

#[test]
fn a_lost_session_makes_messages_new() {
    //= mqtt5#[MQTT-3.2.2-5] type=test
    //= mqtt5#[MQTT-3.3.1-3] type=test
    let mut rig = Rig::connected();
    rig.publish("a", 1).expect("published");
    rig.publish("a", 2).expect("published");
    rig.publish("a", 2).expect("published");
    rig.hears("PUBREC 3", "Recorded 3");
    rig.hears("PUBLISH 5 q2 b", "Message q2 b");
    rig.sent();
    rig.reconnect(false);
    assert_eq!(
        rig.resume(&[(1, 1), (2, 2)]),
        [
            Resume::Completed(id(3)),
            Resume::Publish(id(1)),
            Resume::Publish(id(2))
        ]
    );
    rig.expect(&["PUBLISH 1 q1 again", "PUBLISH 2 q2 again"]);
    // The server's identifiers mean nothing any more.
    rig.hears("PUBLISH 5 q2 c", "Message q2 c");
}

#[test]
fn a_lost_session_does_not_take_new_messages_with_it() {
    let mut rig = Rig::connected();
    rig.publish("a", 2).expect("published");
    rig.hears("PUBREC 1", "Recorded 1");
    rig.sent();
    rig.reconnect(false);
    let new = rig.publish("b", 2).expect("published").expect("identifier");
    rig.hears(
        &alloc::format!("PUBREC {new}"),
        &alloc::format!("Recorded {new}"),
    );
    assert_eq!(rig.resume(&[]), [Resume::Completed(id(1))]);
    rig.expect(&["PUBLISH 2 q2 b", "PUBREL 2"]);
}

#[test]
fn requests_without_answer_are_reported() {
    let mut rig = Rig::connected();
    rig.subscribe("a").expect("subscribed");
    rig.unsubscribe(&["b"]).expect("unsubscribed");
    rig.publish("a", 1).expect("published");
    rig.reconnect(true);
    assert_eq!(
        rig.resume(&[(3, 1)]),
        [
            Resume::Request(id(1)),
            Resume::Request(id(2)),
            Resume::Publish(id(3))
        ]
    );
    rig.hears("SUBACK 1", "Nothing");
}

#[test]
fn repetition_keeps_to_the_new_receive_maximum() {
    let mut rig = Rig::connected();
    for _ in 0..5 {
        rig.publish("a", 1).expect("published");
    }
    rig.sent();
    rig.engine.handle_closed();
    rig.connect(&Rig::options());
    rig.connack(true, |p| p.receive_maximum = NonZeroU16::new(2));
    let qos = [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1)];
    assert_eq!(rig.resume(&qos), [1, 2].map(|n| Resume::Publish(id(n))));
    assert!(rig.engine.is_resuming());
    // New messages would overtake.
    assert_eq!(rig.publish("b", 1), Err(CommandError::InFlightFull));
    rig.hears("PUBACK 1", "Published 1");
    assert_eq!(rig.resume(&qos), [Resume::Publish(id(3))]);
    for line in ["PUBACK 2", "PUBACK 3"] {
        rig.server(line).expect("acknowledged");
    }
    assert_eq!(rig.resume(&qos), [4, 5].map(|n| Resume::Publish(id(n))));
    assert!(!rig.engine.is_resuming());
    assert_eq!(rig.publish("b", 1), Err(CommandError::InFlightFull));
    rig.hears("PUBACK 5", "Published 5");
    rig.publish("b", 1).expect("after the others");
}

#[test]
fn what_the_new_server_does_not_take_is_abandoned() {
    let mut rig = Rig::connected();
    rig.publish("a", 2).expect("published");
    rig.publish("a", 1).expect("published");
    rig.sent();
    rig.engine.handle_closed();
    rig.connect(&Rig::options());
    rig.connack(false, |p| p.maximum_qos = Some(QoS::AtLeastOnce));
    assert_eq!(rig.engine.poll_resume(), Some(Resume::Publish(id(1))));
    let result = rig
        .engine
        .resend(rig.now, id(1), &message("a", 2), &mut rig.out);
    assert_eq!(result, Err(CommandError::QosNotSupported));
    rig.engine.abandon(id(1));
    assert_eq!(rig.resume(&[(2, 1)]), [Resume::Publish(id(2))]);
    assert_eq!(rig.engine.in_flight(), 1);
}

#[test]
fn held_messages_are_not_delivered_twice() {
    //= mqtt5#[MQTT-4.3.3-10] type=test
    let mut rig = Rig::connected();
    for line in ["PUBLISH 1 q1 a", "PUBLISH 2 q2 b", "PUBLISH 3 q2 c"] {
        rig.server(line).expect("message");
    }
    let receipts = rig.receipts.clone();
    rig.reconnect(true);
    // The server repeats; the application still has them.
    for line in ["PUBLISH 1 q1 dup a", "PUBLISH 2 q2 dup b"] {
        rig.hears(line, "Nothing");
    }
    for receipt in &receipts {
        assert!(rig.engine.acknowledge(*receipt, ReasonCode::Success));
    }
    rig.expect(&["PUBACK 1", "PUBREC 2"]);
    // Taken while the repetition was on its way.
    rig.hears("PUBLISH 3 q2 dup c", "Nothing");
    rig.expect(&["PUBREC 3"]);
}

#[test]
fn recorded_identifiers_survive() {
    //= mqtt5#[MQTT-4.3.3-10] type=test
    //= mqtt5#[MQTT-4.3.3-13] type=test
    let mut rig = Rig::connected();
    rig.server("PUBLISH 1 q2 a").expect("message");
    rig.take(ReasonCode::Success);
    rig.server("PUBLISH 2 q2 a").expect("message");
    rig.take(ReasonCode::Success);
    rig.expect(&["PUBREC 1", "PUBREC 2"]);
    rig.hears("PUBREL 2", "Nothing");
    rig.reconnect(true);
    rig.hears("PUBLISH 1 q2 dup a", "Nothing");
    rig.expect(&["PUBREC 1"]);
    rig.hears("PUBREL 1", "Nothing");
    rig.hears("PUBREL 2", "Nothing");
    rig.expect(&["PUBCOMP 1", "PUBCOMP 2"]);
    assert!(!rig.engine.has_session_state());
}

#[test]
fn a_reused_identifier_is_a_new_message() {
    let mut rig = Rig::connected();
    rig.server("PUBLISH 1 q1 a").expect("message");
    let old = rig.receipts[0];
    rig.reconnect(true);
    // Not a repetition: the server let the old message expire.
    rig.hears("PUBLISH 1 q1 b", "Message q1 b");
    assert!(!rig.engine.acknowledge(old, ReasonCode::Success));
    rig.take(ReasonCode::Success);
    rig.expect(&["PUBACK 1"]);
}

#[test]
fn messages_that_the_server_forgot_are_forgotten() {
    let mut rig = Rig::connected();
    rig.server("PUBLISH 1 q1 a").expect("message");
    let old = rig.receipts[0];
    rig.reconnect(true);
    rig.reconnect(true);
    assert!(!rig.engine.acknowledge(old, ReasonCode::Success));
    assert!(!rig.engine.has_session_state());
}

#[test]
fn early_messages_do_not_wait_for_connack() {
    let settings = Settings {
        early_publishes: 2,
        ..Settings::default()
    };
    let mut rig = Rig::new(settings);
    rig.connect(&Rig::options());
    rig.publish("a", 1).expect("early");
    rig.publish("a", 0).expect("early");
    rig.publish("a", 2).expect("early");
    assert_eq!(rig.publish("a", 1), Err(CommandError::InFlightFull));
    rig.connack(false, |p| p.receive_maximum = NonZeroU16::new(3));
    assert_eq!(rig.resume(&[]), []);
    rig.publish("a", 1).expect("the third");
    assert_eq!(rig.publish("a", 1), Err(CommandError::InFlightFull));
    rig.expect(&[
        "PUBLISH 1 q1 a",
        "PUBLISH a",
        "PUBLISH 2 q2 a",
        "PUBLISH 3 q1 a",
    ]);
    // With old messages to repeat, new ones wait for their turn.
    rig.engine.handle_closed();
    rig.connect(&Rig::options());
    assert_eq!(rig.publish("a", 1), Err(CommandError::NotConnected));
}
