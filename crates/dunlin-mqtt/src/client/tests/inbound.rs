//! Messages from the server.

use super::*;

#[test]
fn qos_0_is_not_answered() {
    let mut rig = Rig::connected();
    rig.hears("PUBLISH a/b", "Message q0 a/b");
    assert!(rig.receipts.is_empty());
    rig.expect(&[]);
}

#[test]
fn qos_1_is_answered_with_puback() {
    //= mqtt5#[MQTT-4.3.2-4] type=test
    //= mqtt5#[MQTT-3.3.4-1] type=test
    //= mqtt5#[MQTT-4.5.0-2] type=test
    //= mqtt5#[MQTT-3.4.2-1] type=test
    let mut rig = Rig::connected();
    rig.hears("PUBLISH 300 q1 a", "Message q1 a");
    rig.expect(&[]);
    rig.take(ReasonCode::Success);
    rig.expect(&["PUBACK 300"]);
    //= mqtt5#[MQTT-4.3.2-5] type=test
    rig.hears("PUBLISH 300 q1 dup b", "Message q1 b");
    rig.take(ReasonCode::QuotaExceeded);
    rig.expect(&["PUBACK 300 0x97"]);
}

#[test]
fn qos_2_is_delivered_once() {
    //= mqtt5#[MQTT-4.3.3-8] type=test
    //= mqtt5#[MQTT-4.3.3-10] type=test
    //= mqtt5#[MQTT-4.3.3-11] type=test
    //= mqtt5#[MQTT-4.3.3-12] type=test
    //= mqtt5#[MQTT-3.5.2-1] type=test
    //= mqtt5#[MQTT-3.7.2-1] type=test
    let mut rig = Rig::connected();
    rig.hears("PUBLISH 7 q2 a", "Message q2 a");
    rig.hears("PUBLISH 7 q2 dup a", "Nothing");
    rig.take(ReasonCode::Success);
    rig.expect(&["PUBREC 7"]);
    rig.hears("PUBLISH 7 q2 dup a", "Nothing");
    rig.expect(&["PUBREC 7"]);
    rig.hears("PUBREL 7", "Nothing");
    rig.expect(&["PUBCOMP 7"]);
    // The identifier is free again.
    rig.hears("PUBLISH 7 q2 b", "Message q2 b");
}

#[test]
fn a_refused_qos_2_message_is_over() {
    //= mqtt5#[MQTT-4.3.3-9] type=test
    let mut rig = Rig::connected();
    rig.hears("PUBLISH 7 q2 a", "Message q2 a");
    rig.take(ReasonCode::NotAuthorized);
    rig.expect(&["PUBREC 7 0x87"]);
    rig.hears("PUBLISH 7 q2 b", "Message q2 b");
}

#[test]
fn acknowledgements_follow_the_order_of_arrival() {
    //= mqtt5#[MQTT-4.6.0-2] type=test
    //= mqtt5#[MQTT-4.6.0-3] type=test
    let mut rig = Rig::connected();
    for line in [
        "PUBLISH 4 q1 a",
        "PUBLISH 3 q2 a",
        "PUBLISH 2 q1 a",
        "PUBLISH 1 q2 a",
    ] {
        rig.server(line).expect("message");
    }
    for at in [3, 1, 2] {
        let receipt = rig.receipts[at];
        assert!(rig.engine.acknowledge(receipt, ReasonCode::Success));
        rig.expect(&[]);
    }
    rig.take(ReasonCode::Success);
    rig.expect(&["PUBACK 4", "PUBREC 3", "PUBACK 2", "PUBREC 1"]);
}

#[test]
fn a_receipt_counts_once() {
    let mut rig = Rig::connected();
    rig.hears("PUBLISH 1 q1 a", "Message q1 a");
    let receipt = rig.receipts[0];
    rig.take(ReasonCode::Success);
    assert!(!rig.engine.acknowledge(receipt, ReasonCode::Success));
    rig.sent();
    assert!(!rig.engine.acknowledge(receipt, ReasonCode::Success));
    // Same identifier, maybe the same slot, another message.
    for _ in 0..20 {
        rig.hears("PUBLISH 1 q1 b", "Message q1 b");
        assert!(!rig.engine.acknowledge(receipt, ReasonCode::Success));
        rig.take(ReasonCode::Success);
        rig.expect(&["PUBACK 1"]);
    }
}

#[test]
fn the_server_keeps_to_the_receive_maximum() {
    //= mqtt5#[MQTT-3.3.4-9] type=test
    let mut rig = Rig::connected();
    for n in 1..=4 {
        rig.server(&alloc::format!("PUBLISH {n} q1 a"))
            .expect("within the limit");
    }
    rig.take(ReasonCode::Success);
    rig.expect(&["PUBACK 1"]);
    rig.server("PUBLISH 5 q2 a").expect("within the limit");
    assert_eq!(
        rig.server("PUBLISH 6 q1 a"),
        Err(PeerError::ReceiveMaximumExceeded)
    );
    rig.expect(&["DISCONNECT 0x93"]);
}

#[test]
fn an_identifier_is_one_message_at_a_time() {
    for (first, second) in [
        ("PUBLISH 1 q1 a", "PUBLISH 1 q1 b"),
        ("PUBLISH 1 q1 a", "PUBLISH 1 q2 b"),
        ("PUBLISH 1 q2 a", "PUBLISH 1 q1 b"),
    ] {
        let mut rig = Rig::connected();
        rig.server(first).expect("first");
        assert_eq!(
            rig.server(second),
            Err(PeerError::PacketIdInUse),
            "{second}"
        );
        rig.expect(&["DISCONNECT 0x82"]);
    }
}

#[test]
fn many_identifiers_in_few_slots() {
    let mut rig = Rig::connected();
    for n in (1..=65_535u16).step_by(97) {
        let line = alloc::format!("PUBLISH {n} q2 a");
        rig.hears(&line, "Message q2 a");
        rig.take(ReasonCode::Success);
        rig.expect(&[&alloc::format!("PUBREC {n}")]);
        rig.hears(&line, "Nothing");
        rig.sent();
        rig.hears(&alloc::format!("PUBREL {n}"), "Nothing");
        rig.expect(&[&alloc::format!("PUBCOMP {n}")]);
    }
    assert!(!rig.engine.has_session_state());
}
