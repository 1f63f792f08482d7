//! Acknowledgements and the QoS protocols: sections 3.4 to 3.7, 4.3, 4.4 and
//! 4.9 of MQTT 5.0.

use dunlin_sim::check;

#[test]
fn the_three_protocols_towards_the_server() {
    //= mqtt5#[MQTT-2.2.1-5] type=test
    //= mqtt5#[MQTT-4.3.2-4] type=test
    //= mqtt5#[MQTT-4.3.2-5] type=test
    //= mqtt5#[MQTT-4.3.3-8] type=test
    //= mqtt5#[MQTT-4.3.3-9] type=test
    //= mqtt5#[MQTT-4.3.3-10] type=test
    //= mqtt5#[MQTT-4.3.3-11] type=test
    //= mqtt5#[MQTT-4.3.3-12] type=test
    //= mqtt5#[MQTT-3.3.4-1] type=test
    //= mqtt5#[MQTT-3.4.2-1] type=test
    //= mqtt5#[MQTT-3.5.2-1] type=test
    //= mqtt5#[MQTT-3.7.2-1] type=test
    check(
        "
        a > CONNECT a clean => CONNACK
        a > SUBSCRIBE 1 t|q2 => SUBACK 1 02
        p > CONNECT p expiry=100 => CONNACK
        p > SUBSCRIBE 1 other|q2 => SUBACK 1 02
        b > CONNECT b expiry=100 => CONNACK
        b > PUBLISH t zero
        a < PUBLISH t zero
        b > PUBLISH t one q1 #7 => PUBACK 7
        a < PUBLISH t one q1 #1
        a > PUBACK 1
        # Accepted again after its PUBACK, as a new message.
        b > PUBLISH t one q1 #7 => PUBACK 7
        a < PUBLISH t one q1 #2
        a > PUBACK 2
        b > PUBLISH t two q2 #8 => PUBREC 8
        a < PUBLISH t two q2 #3
        # Not delivered again until PUBREL has come.
        b > PUBLISH t two q2 #8 dup => PUBREC 8
        b > PUBLISH t two q2 #8 dup => PUBREC 8
        b > PUBREL 8 => PUBCOMP 8
        b > PUBREL 8 => PUBCOMP 8 0x92
        b > PUBLISH t two q2 #8 => PUBREC 8
        a < PUBLISH t two q2 #4
        b > PUBREL 8 => PUBCOMP 8
        b > PUBLISH nobody one q1 #9 => PUBACK 9 0x10
        b > PUBLISH nobody two q2 #10 => PUBREC 10 0x10
        b > PUBREL 10 => PUBCOMP 10
    ",
    );
}

#[test]
fn the_three_protocols_towards_the_client() {
    //= mqtt5#[MQTT-2.2.1-4] type=test
    //= mqtt5#[MQTT-4.3.1-1] type=test
    //= mqtt5#[MQTT-4.3.2-1] type=test
    //= mqtt5#[MQTT-4.3.2-2] type=test
    //= mqtt5#[MQTT-4.3.2-3] type=test
    //= mqtt5#[MQTT-4.3.3-1] type=test
    //= mqtt5#[MQTT-4.3.3-2] type=test
    //= mqtt5#[MQTT-4.3.3-3] type=test
    //= mqtt5#[MQTT-4.3.3-4] type=test
    //= mqtt5#[MQTT-4.3.3-5] type=test
    //= mqtt5#[MQTT-3.6.2-1] type=test
    //= mqtt5#[MQTT-3.3.1-3] type=test
    for session in ["clean", "expiry=100"] {
        check(&format!(
            "
            a > CONNECT a {session} => CONNACK
            a > SUBSCRIBE 1 t|q2 => SUBACK 1 02
            b > CONNECT b clean => CONNACK
            b >> PUBLISH t 0
            b >> PUBLISH t 1 q1 #1
            b > PUBLISH t 2 q2 #2 => PUBACK 1
            b < PUBREC 2
            a < PUBLISH t 0
            a < PUBLISH t 1 q1 #1
            a < PUBLISH t 2 q2 #2
            a > PUBREC 2 => PUBREL 2
            a > PUBREC 2 => PUBREL 2
            a > PUBCOMP 2
            a > PUBREC 2 => PUBREL 2 0x92
            a > PUBACK 1
            # DUP of the publisher is not passed on.
            b > PUBLISH t 3 q1 #3 dup => PUBACK 3
            a < PUBLISH t 3 q1 #3
            # A refusal ends the delivery.
            a > PUBACK 3 0x80
            b > PUBLISH t 4 q2 #4 => PUBREC 4
            a < PUBLISH t 4 q2 #4
            a > PUBREC 4 0x80
            a cut
        "
        ));
    }
}

#[test]
fn what_is_not_acknowledged_is_sent_again_on_the_next_connection_only() {
    //= mqtt5#[MQTT-4.4.0-1] type=test
    //= mqtt5#[MQTT-4.4.0-2] type=test
    //= mqtt5#[MQTT-3.3.1-1] type=test
    //= mqtt5#[MQTT-4.3.3-6] type=test
    //= mqtt5#[MQTT-4.3.3-13] type=test
    //= mqtt5#[MQTT-4.6.0-1] type=test
    check(
        "
        a > CONNECT a expiry=100 => CONNACK
        a > SUBSCRIBE 1 t|q2 => SUBACK 1 02
        b > CONNECT b clean => CONNACK
        b >> PUBLISH t 1 q1 #1
        b >> PUBLISH t 2 q2 #2
        b >> PUBLISH t 3 q2 #3
        b > PUBLISH t 4 q1 #4 => PUBACK 1
        b < PUBREC 2
        b < PUBREC 3
        b < PUBACK 4
        a < PUBLISH t 1 q1 #1
        a < PUBLISH t 4 q1 #4
        a < PUBLISH t 2 q2 #2
        a < PUBLISH t 3 q2 #3
        a > PUBREC 2 => PUBREL 2
        wait 30s
        a cut
        b > PUBLISH t 5 q1 #5 => PUBACK 5
        a > CONNECT a expiry=100 => CONNACK present
        a < PUBLISH t 1 q1 #1 dup
        a < PUBREL 2
        a < PUBLISH t 3 q2 #3 dup
        a < PUBLISH t 4 q1 #4 dup
        a < PUBLISH t 5 q1 #5
        a > PUBCOMP 2
        a > PUBACK 1
        a cut
        a > CONNECT a expiry=100 => CONNACK present
        a < PUBLISH t 3 q2 #3 dup
        a < PUBLISH t 4 q1 #4 dup
        a < PUBLISH t 5 q1 #5 dup
    ",
    );
}

#[test]
fn exactly_once_over_a_crash() {
    check(
        "
        a > CONNECT a expiry=100 => CONNACK
        a > SUBSCRIBE 1 t|q2 => SUBACK 1 02
        b > CONNECT b expiry=100 => CONNACK
        b >> PUBLISH t 1 q2 #1
        b > PUBLISH t 2 q2 #2 => PUBREC 1
        b < PUBREC 2
        a < PUBLISH t 1 q2 #1
        a < PUBLISH t 2 q2 #2
        b > PUBREL 1 => PUBCOMP 1
        a > PUBREC 1 => PUBREL 1
        crash
        a > CONNECT a expiry=100 => CONNACK present
        a < PUBREL 1
        a < PUBLISH t 2 q2 #2 dup
        a > PUBCOMP 1
        a > PUBREC 2 => PUBREL 2
        a > PUBCOMP 2
        b > CONNECT b expiry=100 => CONNACK present
        b > PUBLISH t 2 q2 #2 dup => PUBREC 2
        b > PUBREL 2 => PUBCOMP 2
        b > PUBLISH t 3 q2 #1 => PUBREC 1
        a < PUBLISH t 3 q2 #1
    ",
    );
}

/// Identifiers at QoS 1 do not outlive a crash. A client that still has a message under
/// one of them must not take another one for its repetition.
#[test]
fn what_comes_under_another_identifier_after_a_crash_is_no_repetition() {
    check(
        "
        a > CONNECT a expiry=100 => CONNACK
        a > SUBSCRIBE 1 t|q1 => SUBACK 1 01
        b > CONNECT b clean => CONNACK
        b > PUBLISH t 1 q1 #1 => PUBACK 1
        a < PUBLISH t 1 q1 #1
        b > PUBLISH t 2 q1 #2 => PUBACK 2
        a < PUBLISH t 2 q1 #2
        a > PUBACK 1
        b > PUBLISH t 3 q1 #3 => PUBACK 3
        a < PUBLISH t 3 q1 #3
        crash
        a > CONNECT a expiry=100 => CONNACK present
        a < PUBLISH t 2 q1 #1
        a < PUBLISH t 3 q1 #2
    ",
    );
}

#[test]
fn a_message_belongs_to_the_sessions_that_match() {
    //= mqtt5#[MQTT-4.5.0-1] type=test
    check(
        "
        a > CONNECT a expiry=100 => CONNACK
        a > SUBSCRIBE 1 t|q1 => SUBACK 1 01
        c > CONNECT c expiry=100 => CONNACK
        c > SUBSCRIBE 1 #|q2 => SUBACK 1 02
        d > CONNECT d expiry=100 => CONNACK
        d > SUBSCRIBE 1 u|q1 => SUBACK 1 01
        a cut
        c cut
        d cut
        b > CONNECT b clean => CONNACK
        b > PUBLISH t x q2 #1 => PUBREC 1
        crash
        a > CONNECT a expiry=100 => CONNACK present
        a < PUBLISH t x q1 #1
        c > CONNECT c expiry=100 => CONNACK present
        c < PUBLISH t x q2 #1
        d > CONNECT d expiry=100 => CONNACK present
    ",
    );
}

#[test]
fn the_receive_maximum_of_the_client() {
    //= mqtt5#[MQTT-3.3.4-7] type=test
    //= mqtt5#[MQTT-3.3.4-10] type=test
    //= mqtt5#[MQTT-4.9.0-1] type=test
    //= mqtt5#[MQTT-4.9.0-2] type=test
    //= mqtt5#[MQTT-4.9.0-3] type=test
    for session in ["clean", "expiry=100"] {
        check(&format!(
            "
            a > CONNECT a {session} rm=2 => CONNACK
            a > SUBSCRIBE 1 t|q2 => SUBACK 1 02
            b > CONNECT b clean => CONNACK
            b >> PUBLISH t 1 q1 #1
            b >> PUBLISH t 2 q1 #2
            b >> PUBLISH t 3 q2 #3
            b > PUBLISH t 4 q1 #4 => PUBACK 1
            b < PUBACK 2
            b < PUBREC 3
            b < PUBACK 4
            a < PUBLISH t 1 q1 #1
            a < PUBLISH t 2 q1 #2
            # QoS 0 and all other packets pass.
            b > PUBLISH t 5
            a < PUBLISH t 5
            a > PINGREQ => PINGRESP
            a > SUBSCRIBE 2 u => SUBACK 2 00
            a > PUBLISH u own q1 #1 => PUBLISH u own
            a < PUBACK 1
            a > PUBACK 2 => PUBLISH t 3 q2 #3
            # PUBREC does not make room, PUBCOMP does.
            a > PUBREC 3 => PUBREL 3
            a > PUBCOMP 3 => PUBLISH t 4 q1 #4
            a > PUBACK 1
            a > PUBACK 4
        "
        ));
    }
}

#[test]
fn the_receive_maximum_of_the_server() {
    //= mqtt5#[MQTT-3.3.4-9] type=test
    // The publishes wait for the store, so that the third is one too many.
    check(
        "
        set receive_maximum=2
        p > CONNECT p expiry=100 => CONNACK rm=2
        p > SUBSCRIBE 1 t|q1 => SUBACK 1 01
        a > CONNECT a clean => CONNACK rm=2
        a > PUBLISH u 1 q2 #1 => PUBREC 1 0x10
        a > PUBLISH u 2 q2 #2 => PUBREC 2 0x10
        a > PUBLISH u 1 q2 #1 dup => PUBREC 1
        a > PUBREL 1 => PUBCOMP 1
        # An unknown PUBREL makes no room.
        a > PUBREL 9 => PUBCOMP 9 0x92
        a > PUBLISH u 3 q1 #3 => PUBACK 3 0x10
        a > PUBLISH u 4 q2 #4 => PUBREC 4 0x10
        a > PUBLISH u 5 q1 #5 => DISCONNECT 0x93
        a < closed
        # QoS 0 does not count.
        b > CONNECT b clean => CONNACK rm=2
        b > PUBLISH u 1 q2 #1 => PUBREC 1 0x10
        b > PUBLISH u 2 q2 #2 => PUBREC 2 0x10
        b > PUBLISH u 3
        b > PINGREQ => PINGRESP
    ",
    );
}

#[test]
fn acknowledgements_with_other_flags_are_malformed() {
    //= mqtt5#[MQTT-3.6.1-1] type=test
    //= mqtt5#[MQTT-2.1.3-1] type=test
    check(
        "
        a > CONNECT a clean => CONNACK
        a > hex 60 02 0001
        a < DISCONNECT 0x81
        a < closed
        a > CONNECT a clean => CONNACK
        a > hex 42 02 0001
        a < DISCONNECT 0x81
        a < closed
        a > CONNECT a clean => CONNACK
        a > hex c1 00
        a < DISCONNECT 0x81
        a < closed
    ",
    );
}

#[test]
fn acknowledgements_carry_no_words_and_fit() {
    //= mqtt5#[MQTT-3.4.2-2] type=test
    //= mqtt5#[MQTT-3.4.2-3] type=test
    //= mqtt5#[MQTT-3.5.2-2] type=test
    //= mqtt5#[MQTT-3.5.2-3] type=test
    //= mqtt5#[MQTT-3.6.2-2] type=test
    //= mqtt5#[MQTT-3.6.2-3] type=test
    //= mqtt5#[MQTT-3.7.2-2] type=test
    //= mqtt5#[MQTT-3.7.2-3] type=test
    //= mqtt5#[MQTT-3.9.2-1] type=test
    //= mqtt5#[MQTT-3.9.2-2] type=test
    //= mqtt5#[MQTT-3.11.2-1] type=test
    //= mqtt5#[MQTT-3.11.2-2] type=test
    //= mqtt5#[MQTT-3.14.2-3] type=test
    //= mqtt5#[MQTT-3.14.2-4] type=test
    //= mqtt5#[MQTT-3.2.2-19] type=test
    //= mqtt5#[MQTT-3.2.2-20] type=test
    //= mqtt5#[MQTT-3.1.2-29] type=test
    // With room for the bare packets and nothing else, each still arrives; the
    // harness would show a Reason String or User Property as "with words".
    check(
        "
        set packet_bytes_max=268435460
        a > CONNECT a clean max=11 noproblem => CONNACK
        a > SUBSCRIBE 1 t|q2 => SUBACK 1 02
        a > PUBLISH nobody x q1 #1 => PUBACK 1 0x10
        a > PUBLISH t x q2 #2 => PUBLISH t x q2 #1
        a < PUBREC 2
        a > PUBREL 2 => PUBCOMP 2
        a > PUBREL 2 => PUBCOMP 2 0x92
        a > PUBREC 1 => PUBREL 1
        a > PUBCOMP 1
        a > PUBREC 1 => PUBREL 1 0x92
        a > UNSUBSCRIBE 3 t no => UNSUBACK 3 00 11
        a > hex 00
        a < DISCONNECT 0x81
        a < closed
    ",
    );
}

#[test]
fn a_full_disk_refuses_and_recovers() {
    check(
        "
        a > CONNECT a expiry=100 => CONNACK
        a > SUBSCRIBE 1 t|q2 => SUBACK 1 02
        b > CONNECT b clean => CONNACK
        b > PUBLISH t 1 q1 #1 => PUBACK 1
        a < PUBLISH t 1 q1 #1
        disk full
        b > PUBLISH t 2 q1 #2 => PUBACK 2 0x97
        b > PUBLISH t 3 q2 #3 => PUBREC 3 0x97
        # What needs no room works.
        a > PUBACK 1
        b > PUBLISH nobody 4 q1 #4 => PUBACK 4 0x10
        c > CONNECT c expiry=100 => CONNACK 0x88
        c < closed
        disk ok
        b > PUBLISH t 5 q2 #3 => PUBREC 3
        a < PUBLISH t 5 q2 #2
        b > PUBREL 3 => PUBCOMP 3
        # PUBREL waits until the store knows that PUBREC came.
        disk broken
        a > PUBREC 2
        wait 5s
        disk ok
        wait 2s
        a < PUBREL 2
        a > PUBCOMP 2
    ",
    );
}

#[test]
fn an_older_client_is_cut_off_by_a_full_disk_and_loses_nothing() {
    check(
        "
        a > CONNECT a expiry=100 => CONNACK
        a > SUBSCRIBE 1 t|q2 => SUBACK 1 02
        b > CONNECT b v4 => CONNACK
        disk full
        b > PUBLISH t 1 q2 #1
        b < closed
        disk ok
        b > CONNECT b v4 => CONNACK present
        b > PUBLISH t 1 q2 #1 dup => PUBREC 1
        a < PUBLISH t 1 q2 #1
        b > PUBREL 1 => PUBCOMP 1
    ",
    );
}

#[test]
fn a_full_queue_refuses_or_drops_as_configured() {
    check(
        "
        set queue_messages_max=2
        a > CONNECT a expiry=100 => CONNACK
        a > SUBSCRIBE 1 t|q1 => SUBACK 1 01
        a cut
        b > CONNECT b clean => CONNACK
        b > PUBLISH t 1 q1 #1 => PUBACK 1
        b > PUBLISH t 2 q1 #2 => PUBACK 2
        b > PUBLISH t 3 q1 #3 => PUBACK 3 0x97
        a > CONNECT a expiry=100 => CONNACK present
        a < PUBLISH t 1 q1 #1
        a < PUBLISH t 2 q1 #2
        b > PUBLISH t 4 q1 #4 => PUBACK 4
        a < PUBLISH t 4 q1 #3
    ",
    );
    check(
        "
        set queue_messages_max=2
        set queue_full=drop
        a > CONNECT a expiry=100 => CONNACK
        a > SUBSCRIBE 1 t|q1 => SUBACK 1 01
        a cut
        b > CONNECT b clean => CONNACK
        b > PUBLISH t 1 q1 #1 => PUBACK 1
        b > PUBLISH t 2 q1 #2 => PUBACK 2
        b > PUBLISH t 3 q1 #3 => PUBACK 3
        a > CONNECT a expiry=100 => CONNACK present
        a < PUBLISH t 1 q1 #1
        a < PUBLISH t 2 q1 #2
    ",
    );
}

#[test]
fn the_queue_of_a_bridge_has_its_own_limit_and_may_drop_the_oldest() {
    check(
        "
        set bridge=$bridge:up|2
        a > CONNECT $bridge:up expiry=100 => CONNACK
        a > SUBSCRIBE 1 t|q1 => SUBACK 1 01
        a cut
        b > CONNECT b clean => CONNACK
        b > PUBLISH t 1 q1 #1 => PUBACK 1
        b > PUBLISH t 2 q1 #2 => PUBACK 2
        b > PUBLISH t 3 q1 #3 => PUBACK 3
        b > PUBLISH t 4 q1 #4 => PUBACK 4
        a > CONNECT $bridge:up expiry=100 => CONNACK present
        a < PUBLISH t 3 q1 #1
        a < PUBLISH t 4 q1 #2
    ",
    );
}

#[test]
fn what_the_queue_of_a_bridge_dropped_is_not_in_the_store() {
    check(
        "
        set bridge=$bridge:up|1
        a > CONNECT $bridge:up expiry=100 => CONNACK
        a > SUBSCRIBE 1 t|q1 => SUBACK 1 01
        a cut
        b > CONNECT b clean => CONNACK
        b > PUBLISH t 1 q1 #1 => PUBACK 1
        b > PUBLISH t 2 q1 #2 => PUBACK 2
        crash
        a > CONNECT $bridge:up expiry=100 => CONNACK present
        a < PUBLISH t 2 q1 #1
    ",
    );
}

#[test]
fn the_names_of_bridges_are_for_bridges() {
    for version in ["", "v4"] {
        check(&format!(
            "a > CONNECT $bridge:up clean {version} => CONNACK 0x85\na < closed"
        ));
    }
}

#[test]
fn a_receiver_that_keeps_nothing_and_falls_behind_is_cut_off() {
    check(
        "
        set queue_messages_max=2
        a > CONNECT a clean rm=1 => CONNACK
        a > SUBSCRIBE 1 t|q1 => SUBACK 1 01
        b > CONNECT b clean => CONNACK
        b >> PUBLISH t 1 q1 #1
        b >> PUBLISH t 2 q1 #2
        b >> PUBLISH t 3 q1 #3
        b > PUBLISH t 4 q1 #4 => PUBACK 1
        b < PUBACK 2
        b < PUBACK 3
        b < PUBACK 4
        a < PUBLISH t 1 q1 #1
        a < DISCONNECT 0x97
        a < closed
    ",
    );
}

#[test]
fn a_long_queue_is_loaded_from_the_store() {
    check(
        "
        set queue_held_max=1
        a > CONNECT a expiry=100 rm=2 => CONNACK
        a > SUBSCRIBE 1 t|q2 => SUBACK 1 02
        a cut
        b > CONNECT b clean => CONNACK
        b >> PUBLISH t 1 q1 #1
        b >> PUBLISH t 2 q2 #2
        b >> PUBLISH t 3 q1 #3
        b > PUBLISH t 4 q2 #4 => PUBACK 1
        b < PUBREC 2
        b < PUBACK 3
        b < PUBREC 4
        # Though the session now ends with its connection.
        a > CONNECT a rm=2 => CONNACK present
        a < PUBLISH t 1 q1 #1
        a < PUBLISH t 2 q2 #2
        a > PUBACK 1 => PUBLISH t 3 q1 #3
        a > PUBREC 2 => PUBREL 2
        a > PUBCOMP 2 => PUBLISH t 4 q2 #4
    ",
    );
}

#[test]
fn an_acknowledgement_of_the_wrong_kind_ends_the_connection() {
    for (qos, wrong) in [
        ("q1", "PUBREC 1"),
        ("q1", "PUBREC 1 0x80"),
        ("q1", "PUBCOMP 1"),
        ("q2", "PUBACK 1"),
        ("q2", "PUBCOMP 1"),
    ] {
        check(&format!(
            "
            a > CONNECT a expiry=100 => CONNACK
            a > SUBSCRIBE 1 t|{qos} => SUBACK 1 0{level}
            b > CONNECT b clean => CONNACK
            b > PUBLISH t x {qos} #1
            b < {ack} 1
            a < PUBLISH t x {qos} #1
            a > {wrong}
            a < DISCONNECT 0x82
            a < closed
            # The message is still the client's.
            a > CONNECT a expiry=100 => CONNACK present
            a < PUBLISH t x {qos} #1 dup
            # One that is not in use may have been settled before.
            a > PUBACK 9
            ",
            level = &qos[1..],
            ack = if qos == "q1" { "PUBACK" } else { "PUBREC" },
        ));
    }
}
