//! Shared subscriptions: section 4.8.2 of MQTT 5.0.

use dunlin_base::{Message, QoS};
use dunlin_sim::{Script, Setup, check};
use dunlin_store::{Seq, SessionKey, SessionRecord, StoreOp, Target};

#[test]
fn names_of_groups() {
    //= mqtt5#[MQTT-4.8.2-1] type=test
    //= mqtt5#[MQTT-4.8.2-2] type=test
    for filter in [
        "$share/",
        "$share//a",
        "$share/g",
        "$share/g/",
        "$share/+/a",
        "$share/#/a",
    ] {
        check(&format!(
            "
            a > CONNECT a clean => CONNACK
            a > SUBSCRIBE 1 {filter} => DISCONNECT 0x8f
            a < closed
        "
        ));
    }
}

#[test]
fn each_group_gets_one_copy_with_the_members_qos() {
    //= mqtt5#[MQTT-4.8.2-3] type=test
    check(
        "
        # Copies of groups come to an edge in no order.
        set edges=0
        a > CONNECT a clean => CONNACK
        a > SUBSCRIBE 1 $share/one/t|q1 $share/two/t|q2 t => SUBACK 1 01 02 00
        b > CONNECT b clean => CONNACK
        b > SUBSCRIBE 1 $share/three/+ => SUBACK 1 00
        c > CONNECT c clean => CONNACK
        c > PUBLISH t x q2 #1 => PUBREC 1
        a < PUBLISH t x
        a < PUBLISH t x q1 #1
        a < PUBLISH t x q2 #2
        b < PUBLISH t x
    ",
    );
}

/// Runs lines, reading what comes for the members; returns what each got.
fn deliveries(script: &mut Script, members: &[&str], lines: &[String]) -> Vec<Vec<String>> {
    let mut got = vec![Vec::new(); members.len()];
    for line in lines {
        script.step(line).expect("a step");
        for (list, member) in got.iter_mut().zip(members) {
            while let Some(packet) = script.pop(member) {
                list.push(packet);
            }
        }
        while script.pop("p").is_some() {}
    }
    got
}

#[test]
fn members_take_turns_and_a_slow_one_is_passed_over() {
    for (shards, seed) in [(1, 1), (2, 1), (2, 2)] {
        let mut script = Script::new(Setup::new(shards, seed));
        let members = ["m1", "m2", "m3"];
        let mut lines = vec!["p > CONNECT p clean".to_owned()];
        for member in members {
            lines.push(format!("{member} > CONNECT {member} clean"));
            lines.push(format!("{member} > SUBSCRIBE 1 $share/g/t"));
        }
        deliveries(&mut script, &members, &lines);
        let publishes: Vec<String> = (0..30).map(|n| format!("p > PUBLISH t {n}")).collect();
        let got = deliveries(&mut script, &members, &publishes);
        let counts: Vec<usize> = got.iter().map(Vec::len).collect();
        assert_eq!(counts.iter().sum::<usize>(), 30, "{counts:?}");
        assert!(
            counts.iter().all(|n| (5..=20).contains(n)),
            "shards {shards}, seed {seed}: {counts:?}"
        );
    }
}

#[test]
fn what_a_member_that_leaves_has_not_answered_goes_to_another() {
    // QoS 1 and what is still queued goes on; QoS 2 in flight ends with the
    // session that it was sent to.
    //= mqtt5#[MQTT-4.8.2-5] type=test
    check(
        "
        a > CONNECT a clean rm=2 => CONNACK
        a > SUBSCRIBE 1 $share/g/t|q2 => SUBACK 1 02
        p > CONNECT p clean => CONNACK
        p > PUBLISH t 1 q1 #1 => PUBACK 1
        a < PUBLISH t 1 q1 #1
        p > PUBLISH t 2 q2 #2 => PUBREC 2
        a < PUBLISH t 2 q2 #2
        p > PUBLISH t 3 q2 #3 => PUBREC 3
        b > CONNECT b clean => CONNACK
        b > SUBSCRIBE 1 $share/g/t|q2 => SUBACK 1 02
        a > DISCONNECT
        a < closed
        b < PUBLISH t 1 q1 #1
        b < PUBLISH t 3 q2 #2
    ",
    );
}

#[test]
fn qos_2_waits_for_the_member_that_was_chosen() {
    //= mqtt5#[MQTT-4.8.2-4] type=test
    check(
        "
        a > CONNECT a expiry=100 => CONNACK
        a > SUBSCRIBE 1 $share/g/t|q2 => SUBACK 1 02
        p > CONNECT p clean => CONNACK
        p > PUBLISH t 1 q2 #1 => PUBREC 1
        a < PUBLISH t 1 q2 #1
        a cut
        b > CONNECT b expiry=100 => CONNACK
        b > SUBSCRIBE 1 $share/g/t|q2 => SUBACK 1 02
        wait 10s
        a > CONNECT a expiry=100 => CONNACK present
        a < PUBLISH t 1 q2 #1 dup
        a > PUBREC 1 => PUBREL 1
    ",
    );
}

#[test]
fn a_refused_message_goes_to_no_other() {
    //= mqtt5#[MQTT-4.8.2-6] type=test
    for session in ["clean", "expiry=100"] {
        check(
            &format!(
                "
            a > CONNECT a {session} => CONNACK
            a > SUBSCRIBE 1 $share/g/t|q2 => SUBACK 1 02
            p > CONNECT p clean => CONNACK
            p > PUBLISH t 1 q1 #1 => PUBACK 1
            a < PUBLISH t 1 q1 #1
            p > PUBLISH t 2 q2 #2 => PUBREC 2
            a < PUBLISH t 2 q2 #2
            b > CONNECT b clean => CONNACK
            b > SUBSCRIBE 1 $share/g/t|q2 => SUBACK 1 02
            a > PUBACK 1 0x83
            a > PUBREC 2 0x83
            a cut
            a > CONNECT a
            wait 1s
        "
            )
            .replace("a > CONNECT a\n", "\n"),
        );
    }
}

#[test]
fn a_session_that_expires_leaves_its_share_to_the_others() {
    check(
        "
        a > CONNECT a expiry=100 => CONNACK
        a > SUBSCRIBE 1 $share/g/t|q1 => SUBACK 1 01
        a cut
        p > CONNECT p clean => CONNACK
        p > PUBLISH t 1 q1 #1 => PUBACK 1
        b > CONNECT b expiry=1000 => CONNACK
        b > SUBSCRIBE 1 $share/g/t|q1 => SUBACK 1 01
        b cut
        wait 101s
        b > CONNECT b expiry=1000 => CONNACK present
        b < PUBLISH t 1 q1 #1
    ",
    );
}

#[test]
fn what_a_session_leaves_after_a_restart_goes_to_the_others() {
    // Nothing of it is in memory then.
    check(
        "
        a > CONNECT a expiry=100 => CONNACK
        a > SUBSCRIBE 1 $share/g/t|q2 => SUBACK 1 02
        a cut
        p > CONNECT p clean => CONNACK
        p > PUBLISH t 1 q1 #1 => PUBACK 1
        p > PUBLISH t 2 q2 #2 => PUBREC 2
        p > PUBREL 2 => PUBCOMP 2
        b > CONNECT b expiry=1000 => CONNACK
        b > SUBSCRIBE 1 $share/g/t|q2 => SUBACK 1 02
        b cut
        crash
        wait 101s
        b > CONNECT b expiry=1000 => CONNACK present
        b < PUBLISH t 1 q1 #2
        b < PUBLISH t 2 q2 #1
    ",
    );
}

#[test]
fn what_is_only_in_the_store_goes_to_the_others_too() {
    check(
        "
        set queue_held_max=1
        a > CONNECT a expiry=100 => CONNACK
        a > SUBSCRIBE 1 $share/g/t|q1 => SUBACK 1 01
        a cut
        p > CONNECT p clean => CONNACK
        p > PUBLISH t 1 q1 #1 => PUBACK 1
        p > PUBLISH t 2 q1 #2 => PUBACK 2
        p > PUBLISH t 3 q1 #3 => PUBACK 3
        b > CONNECT b clean => CONNACK
        b > SUBSCRIBE 1 $share/g/t|q1 => SUBACK 1 01
        wait 99s
        wait 2s
        b < PUBLISH t 1 q1 #1
        b < PUBLISH t 2 q1 #2
        b < PUBLISH t 3 q1 #3
    ",
    );
}

#[test]
fn what_is_only_in_the_store_goes_to_a_member_that_gets_it_at_most_once() {
    check(
        "
        set queue_held_max=1
        a > CONNECT a expiry=100 => CONNACK
        a > SUBSCRIBE 1 $share/g/t|q1 => SUBACK 1 01
        a cut
        p > CONNECT p clean => CONNACK
        p > PUBLISH t 1 q1 #1 => PUBACK 1
        p > PUBLISH t 2 q1 #2 => PUBACK 2
        p > PUBLISH t 3 q1 #3 => PUBACK 3
        b > CONNECT b clean => CONNACK
        b > SUBSCRIBE 1 $share/g/t => SUBACK 1 00
        wait 99s
        wait 4s
        b < PUBLISH t 1
        b < PUBLISH t 2
        b < PUBLISH t 3
    ",
    );
}

#[test]
fn what_waits_for_the_only_durable_member_goes_to_others_when_that_is_gone() {
    check(
        "
        a > CONNECT a expiry=100 => CONNACK
        a > SUBSCRIBE 1 $share/g/t|q2 => SUBACK 1 02
        a cut
        b > CONNECT b clean => CONNACK
        b > SUBSCRIBE 1 $share/g/t|q2 => SUBACK 1 02
        p > CONNECT p clean => CONNACK
        # Exactly once is a matter of durable members, as long as there are some.
        p > PUBLISH t 1 q2 #1 => PUBREC 1
        p > PUBREL 1 => PUBCOMP 1
        wait 99s
        wait 4s
        b < PUBLISH t 1 q2 #1
    ",
    );
}

#[test]
fn who_leaves_a_group_keeps_what_it_was_given() {
    //= mqtt5#[MQTT-3.10.4-3] type=test
    check(
        "
        a > CONNECT a expiry=100 rm=1 => CONNACK
        a > SUBSCRIBE 1 $share/g/t|q1 => SUBACK 1 01
        p > CONNECT p clean => CONNACK
        p > PUBLISH t 1 q1 #1 => PUBACK 1
        a < PUBLISH t 1 q1 #1
        p > PUBLISH t 2 q1 #2 => PUBACK 2
        a > UNSUBSCRIBE 2 $share/g/t => UNSUBACK 2 00
        crash
        a > CONNECT a expiry=100 rm=2 => CONNACK present
        a < PUBLISH t 1 q1 #1
        a < PUBLISH t 2 q1 #2
    ",
    );
}

#[test]
fn what_is_acknowledged_as_its_group_is_left_is_gone() {
    for shards in [1, 2] {
        let mut script = Script::new(Setup::new(shards, 3));
        let lines = "
            a > CONNECT a expiry=100 => CONNACK
            a > SUBSCRIBE 1 $share/g/t|q1 => SUBACK 1 01
            p > CONNECT p clean => CONNACK
            p > PUBLISH t 1 q1 #1 => PUBACK 1
            a < PUBLISH t 1 q1 #1
            a >> UNSUBSCRIBE 2 $share/g/t
            a > PUBACK 1 => UNSUBACK 2 00
            wait 1s";
        for line in lines.lines() {
            script.step(line).expect(line);
        }
        let disk = &script.world.disk;
        assert_eq!(disk.stored_messages(), 0, "{shards} shards");
        assert_eq!(disk.recover().sessions.len(), 1, "{shards} shards");
    }
}

#[test]
fn a_file_with_messages_of_a_group_at_a_session_is_read() {
    for (shards, seed) in [(1, 1), (2, 1), (2, 2)] {
        let mut script = Script::new(Setup::new(shards, seed));
        let member = |key, client_id: &str, secs| {
            let record = SessionRecord {
                client_id: client_id.into(),
                version: 5,
                expiry_interval_secs: secs,
                ..SessionRecord::default()
            };
            let key = SessionKey(key);
            let filter = "$share/g/t".into();
            let subscription = StoreOp::PutSubscription {
                key,
                filter,
                options: 1,
                identifier: None,
            };
            [StoreOp::PutSession { key, record }, subscription]
        };
        let message = |seq, payload: &'static [u8]| {
            let message = Message {
                topic: "t".into(),
                payload: payload.into(),
                qos: QoS::AtLeastOnce,
                ..Message::default()
            };
            let mut target = Target::new(SessionKey(1), QoS::AtLeastOnce);
            target.shared = Some("$share/g/t".into());
            StoreOp::Enqueue {
                seq: Seq(seq),
                message: message.into(),
                targets: vec![target],
            }
        };
        let mut ops = vec![];
        ops.extend(member(1, "a", 1000));
        ops.extend(member(2, "b", 1000));
        ops.extend([message(1, b"1"), message(2, b"2")]);
        script.world.disk.write(ops);
        let lines = "
            crash
            a > CONNECT a expiry=1000 => CONNACK present
            a < PUBLISH t 1 q1 #1
            a < PUBLISH t 2 q1 #2
            a > PUBACK 1
            b > CONNECT b expiry=1000 => CONNACK present
            p > CONNECT p clean => CONNACK
            a > DISCONNECT expiry=0
            a < closed
            b < PUBLISH t 2 q1 #1
            crash
            b > CONNECT b expiry=1000 => CONNACK present
            b < PUBLISH t 2 q1 #1
            b > PUBACK 1
            wait 1s";
        for line in lines.lines() {
            script.step(line).expect(line);
        }
        assert_eq!(script.world.disk.stored_messages(), 0);
    }
}

#[test]
fn a_publish_is_refused_unless_there_is_room_for_all_its_copies() {
    check(
        "
        # Of a publish at an edge each part is stored or refused by itself.
        set edges=0
        set queue_messages_max=3
        a > CONNECT a expiry=100 => CONNACK
        a > SUBSCRIBE 1 $share/g/t|q1 $share/h/t|q1 => SUBACK 1 01 01
        a cut
        b > CONNECT b clean => CONNACK
        b > PUBLISH t 1 q1 #1 => PUBACK 1
        # One place is left, and there would be two copies.
        b > PUBLISH t 2 q1 #2 => PUBACK 2 0x97
        a > CONNECT a expiry=100 => CONNACK present
        a < PUBLISH t 1 q1 #1
        a < PUBLISH t 1 q1 #2
        ",
    );
}

#[test]
fn more_copies_than_a_queue_has_room_for_refuse_no_publisher() {
    check(
        "
        # Of a publish at an edge each part is stored or refused by itself.
        set edges=0
        set queue_messages_max=1
        a > CONNECT a expiry=100 => CONNACK
        a > SUBSCRIBE 1 $share/g/t|q1 $share/h/t|q1 t|q1 => SUBACK 1 01 01 01
        b > CONNECT b clean => CONNACK
        b > PUBLISH t 1 q1 #1 => PUBACK 1
        a < PUBLISH t 1 q1 #1
        ",
    );
}
