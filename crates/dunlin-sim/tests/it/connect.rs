//! CONNECT and CONNACK: section 3.1 and 3.2 of MQTT 5.0.

use dunlin_sim::check;

#[test]
fn a_session_is_started_resumed_or_replaced() {
    //= mqtt5#[MQTT-3.1.2-4] type=test
    //= mqtt5#[MQTT-3.1.2-5] type=test
    //= mqtt5#[MQTT-3.1.2-6] type=test
    //= mqtt5#[MQTT-3.1.3-2] type=test
    //= mqtt5#[MQTT-3.1.4-4] type=test
    //= mqtt5#[MQTT-3.1.4-5] type=test
    //= mqtt5#[MQTT-3.2.2-2] type=test
    //= mqtt5#[MQTT-3.2.2-3] type=test
    check(
        "
        a > CONNECT a expiry=100 => CONNACK
        a > SUBSCRIBE 1 t|q1 => SUBACK 1 01
        a cut
        b > CONNECT b clean => CONNACK
        b > PUBLISH t while-away q1 #1 => PUBACK 1
        a > CONNECT a expiry=100 => CONNACK present
        a < PUBLISH t while-away q1 #1
        a > PUBACK 1
        a > DISCONNECT
        a < closed
        a > CONNECT a clean expiry=100 => CONNACK
        b > PUBLISH t nobody q1 #2 => PUBACK 2 0x10
        other > CONNECT other expiry=100 => CONNACK
    ",
    );
}

#[test]
fn state_outlives_the_connection_as_long_as_asked() {
    //= mqtt5#[MQTT-3.1.2-23] type=test
    //= mqtt5#[MQTT-4.1.0-1] type=test
    //= mqtt5#[MQTT-4.1.0-2] type=test
    check(
        "
        a > CONNECT a expiry=100 => CONNACK
        a > DISCONNECT
        a < closed
        wait 99s
        a > CONNECT a expiry=100 => CONNACK present
        a > DISCONNECT
        a < closed
        wait 101s
        a > CONNECT a expiry=0 => CONNACK
        a > DISCONNECT
        a < closed
        a > CONNECT a expiry=100 => CONNACK
        a > DISCONNECT expiry=10
        a < closed
        wait 11s
        a > CONNECT a => CONNACK
    ",
    );
}

#[test]
fn a_session_can_outlive_the_process() {
    check(
        "
        a > CONNECT a expiry=100 => CONNACK
        a > SUBSCRIBE 1 t|q1 => SUBACK 1 01
        b > CONNECT b clean expiry=100 => CONNACK
        a > DISCONNECT
        a < closed
        b > PUBLISH t 1 q1 #1 => PUBACK 1
        crash
        a > CONNECT a expiry=100 => CONNACK present
        a < PUBLISH t 1 q1 #1
        a > PUBACK 1
        b > CONNECT b => CONNACK present
        a cut
        wait 101s
        crash
        a > CONNECT a => CONNACK
    ",
    );
}

#[test]
fn expiry_has_a_limit_that_the_client_learns() {
    check(
        "
        set session_expiry_secs_max=50
        a > CONNECT a expiry=100 => CONNACK expiry=50
        a > DISCONNECT
        a < closed
        wait 51s
        a > CONNECT a expiry=40 => CONNACK
    ",
    );
}

#[test]
fn the_first_packet_is_connect_and_comes_once() {
    //= mqtt5#[MQTT-3.1.0-1] type=test
    //= mqtt5#[MQTT-3.1.0-2] type=test
    check(
        "
        a > PINGREQ
        a < closed
        b > PUBLISH t x
        b < closed
        c > CONNECT c clean => CONNACK
        c > CONNECT c clean => DISCONNECT 0x82
        c < closed
        d > CONNECT d v4 clean => CONNACK
        d > CONNECT d v4 clean
        d < closed
    ",
    );
}

#[test]
fn a_connection_that_says_nothing_is_closed() {
    check(
        "
        a > hex 10
        wait 9s
        wait 2s
        a < closed
    ",
    );
}

#[test]
fn other_protocols_and_versions_are_refused() {
    //= mqtt5#[MQTT-3.1.2-1] type=test
    //= mqtt5#[MQTT-3.1.2-2] type=test
    check(
        "
        # Level 6 is answered in the newest form.
        a > hex 100d 0004 4d515454 06 02 0000 00 0000
        a < CONNACK 0x84
        a < closed
        # Another protocol learns nothing.
        b > hex 100d 0004 4d515455 05 02 0000 00 0000
        b < closed
    ",
    );
}

#[test]
fn a_connect_that_breaks_the_format_is_refused() {
    //= mqtt5#[MQTT-3.1.2-3] type=test
    //= mqtt5#[MQTT-3.1.4-1] type=test
    //= mqtt5#[MQTT-3.1.2-11] type=test
    //= mqtt5#[MQTT-3.1.2-12] type=test
    //= mqtt5#[MQTT-3.1.2-13] type=test
    //= mqtt5#[MQTT-3.1.2-16] type=test
    //= mqtt5#[MQTT-3.1.2-17] type=test
    //= mqtt5#[MQTT-3.1.2-18] type=test
    //= mqtt5#[MQTT-3.1.2-19] type=test
    //= mqtt5#[MQTT-3.1.3-3] type=test
    //= mqtt5#[MQTT-3.1.3-4] type=test
    check(
        "
        # The reserved flag is set.
        a > hex 100d 0004 4d515454 05 03 0000 00 0000
        a < CONNACK 0x81
        a < closed
        # Will QoS without a will.
        a > hex 100d 0004 4d515454 05 0a 0000 00 0000
        a < CONNACK 0x81
        a < closed
        # Will Retain without a will.
        a > hex 100d 0004 4d515454 05 22 0000 00 0000
        a < CONNACK 0x81
        a < closed
        # Will QoS 3.
        a > hex 1013 0004 4d515454 05 1e 0000 00 0000 00 0001 74 0000
        a < CONNACK 0x81
        a < closed
        # A user name without its flag.
        a > hex 1010 0004 4d515454 05 02 0000 00 0000 0001 75
        a < CONNACK 0x81
        a < closed
        # The flag without a user name.
        a > hex 100d 0004 4d515454 05 82 0000 00 0000
        a < CONNACK 0x81
        a < closed
        # A password without its flag, and the flag without a password.
        a > hex 1013 0004 4d515454 05 82 0000 00 0000 0001 75 0001 70
        a < CONNACK 0x81
        a < closed
        a > hex 100d 0004 4d515454 05 42 0000 00 0000
        a < CONNACK 0x81
        a < closed
        # No client identifier at all, and one that is no UTF-8.
        a > hex 100b 0004 4d515454 05 02 0000 00
        a < CONNACK 0x81
        a < closed
        a > hex 100e 0004 4d515454 05 02 0000 00 0001 ff
        a < CONNACK 0x81
        a < closed
    ",
    );
}

#[test]
fn the_fields_of_connect_come_in_their_order() {
    //= mqtt5#[MQTT-3.1.3-1] type=test
    //= mqtt5#[MQTT-3.1.2-9] type=test
    //= mqtt5#[MQTT-3.1.3-11] type=test
    //= mqtt5#[MQTT-3.1.3-12] type=test
    check(
        "
        set access=passwords
        a > CONNECT a clean user=alice pass=secret will=w:gone wct=text => CONNACK
        b > CONNECT b clean user=bob pass=hunter2 => CONNACK
        b > SUBSCRIBE 1 w => SUBACK 1 00
        a cut
        b < PUBLISH w gone ct=text
        # A will without topic and payload.
        c > hex 100d 0004 4d515454 05 06 0000 00 0000
        c < CONNACK 0x81
        c < closed
        # A will topic, and a user name, that are no UTF-8.
        c > hex 1013 0004 4d515454 05 06 0000 00 0000 00 0001 ff 0000
        c < CONNACK 0x81
        c < closed
        c > hex 1010 0004 4d515454 05 82 0000 00 0000 0001 ff
        c < CONNACK 0x81
        c < closed
    ",
    );
}

#[test]
fn client_identifiers() {
    //= mqtt5#[MQTT-3.1.3-5] type=test
    //= mqtt5#[MQTT-3.1.3-6] type=test
    //= mqtt5#[MQTT-3.1.3-7] type=test
    //= mqtt5#[MQTT-3.2.2-16] type=test
    check(
        "
        a > CONNECT 0123456789abcdefghijklm clean => CONNACK
        b > CONNECT nopqrstuvwxyzABCDEFGHIJ clean => CONNACK
        c > CONNECT KLMNOPQRSTUVWXYZ clean => CONNACK
        # Each gets an identifier of its own, and no session is taken over.
        d > CONNECT - clean => CONNACK assigned
        e > CONNECT - expiry=100 => CONNACK assigned
        d > PINGREQ => PINGRESP
        e > SUBSCRIBE 1 t|q1 => SUBACK 1 01
        f > CONNECT - v4 clean => CONNACK
    ",
    );
}

#[test]
fn an_identifier_that_is_refused() {
    //= mqtt5#[MQTT-3.1.3-8] type=test
    //= mqtt5#[MQTT-3.2.2-7] type=test
    // 3.1.1 wants Clean Session with an empty identifier.
    check(
        "
        a > CONNECT - v4 => CONNACK 0x85
        a < closed
    ",
    );
}

#[test]
fn credentials_are_checked_and_what_follows_a_refusal_is_not_heard() {
    //= mqtt5#[MQTT-3.1.4-2] type=test
    //= mqtt5#[MQTT-3.1.4-6] type=test
    //= mqtt5#[MQTT-3.2.2-7] type=test
    check(
        "
        set access=passwords
        b > CONNECT b clean user=bob pass=hunter2 => CONNACK
        b > SUBSCRIBE 1 #|q1 => SUBACK 1 01
        a >> CONNECT a clean user=alice pass=wrong
        a > PUBLISH t x q1 #1 => CONNACK 0x86
        a < closed
        c >> CONNECT c clean
        c > PUBLISH t x => CONNACK 0x87
        c < closed
        d > CONNECT d clean user=busy pass=x => CONNACK 0x89
        d < closed
        e > CONNECT e v4 clean user=alice pass=wrong => CONNACK 0x86
        e < closed
        g > CONNECT g clean user=soon pass=x => CONNACK 0x9f
        g < closed
        # What follows a CONNECT that is accepted is heard, in order.
        f >> CONNECT f clean user=alice pass=secret
        f >> PUBLISH t 1 q1 #1
        f > PUBLISH t 2 q1 #2 => CONNACK
        f < PUBACK 1
        f < PUBACK 2
        b < PUBLISH t 1 q1 #1
        b < PUBLISH t 2 q1 #2
    ",
    );
}

#[test]
fn a_new_connection_takes_over() {
    //= mqtt5#[MQTT-3.1.4-3] type=test
    check(
        "
        a > CONNECT a expiry=100 => CONNACK
        a > SUBSCRIBE 1 t|q1 => SUBACK 1 01
        a2 > CONNECT a expiry=100 => CONNACK present
        a < DISCONNECT 0x8e
        a < closed
        b > CONNECT b v4 clean => CONNACK
        b > PUBLISH t x q1 #1 => PUBACK 1
        a2 < PUBLISH t x q1 #1
        b2 > CONNECT b v4 clean => CONNACK
        b < closed
    ",
    );
}

#[test]
fn keep_alive() {
    //= mqtt5#[MQTT-3.1.2-22] type=test
    //= mqtt5#[MQTT-3.2.2-22] type=test
    check(
        "
        set keep_alive_secs_max=60
        w > CONNECT w clean keep=60 => CONNACK
        w > SUBSCRIBE 1 will => SUBACK 1 00
        a > CONNECT a clean keep=10 will=will:a => CONNACK
        wait 14s
        a > PINGREQ => PINGRESP
        wait 14s
        a > PUBLISH t x
        wait 14s
        wait 2s
        a < DISCONNECT 0x8d
        a < closed
        w < PUBLISH will a
        b > CONNECT b clean keep=1000 => CONNACK keep=60
        w > PINGREQ => PINGRESP
        c > CONNECT c v4 clean keep=10 => CONNACK
        wait 16s
        c < closed
        b > PINGREQ => PINGRESP
        wait 60s
        w > PINGREQ => PINGRESP
        wait 20s
        wait 11s
        b < DISCONNECT 0x8d
        b < closed
    ",
    );
}

#[test]
fn no_response_information_unless_asked() {
    //= mqtt5#[MQTT-3.1.2-28] type=test
    check(
        "
        a > CONNECT a clean ri=0 => CONNACK
        b > CONNECT b clean => CONNACK
    ",
    );
}

#[test]
fn the_limits_of_the_server_are_announced() {
    check(
        "
        set receive_maximum=20
        set packet_bytes_max=1000
        set topic_alias_maximum=3
        a > CONNECT a clean => CONNACK rm=20 max=1000 aliases=3
    ",
    );
}

#[test]
fn a_full_server_says_that_it_is_full() {
    check(
        "
        set connections_max=0
        a > CONNECT a clean
        a < closed 2
    ",
    );
}

#[test]
fn a_server_that_stops_says_so() {
    check(
        "
        a > CONNECT a expiry=100 will=w:a => CONNACK
        b > CONNECT b v4 clean => CONNACK
        c > CONNECT c clean => CONNACK
        d > CONNECT d clean => CONNACK
        stop
        a < DISCONNECT 0x8b
        a < closed 2
        b < closed 2
        c < DISCONNECT 0x8b
        c < closed 2
        d < DISCONNECT 0x8b
        d < closed 2
        e > CONNECT e clean
        e < closed 2
    ",
    );
}
