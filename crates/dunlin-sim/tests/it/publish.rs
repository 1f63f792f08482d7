//! PUBLISH and retained messages: section 3.3 of MQTT 5.0.

use dunlin_sim::check;

#[test]
fn a_retained_message_waits_for_subscribers() {
    //= mqtt5#[MQTT-3.3.1-5] type=test
    //= mqtt5#[MQTT-3.3.1-6] type=test
    //= mqtt5#[MQTT-3.3.1-7] type=test
    //= mqtt5#[MQTT-3.3.1-8] type=test
    check(
        "
        b > CONNECT b clean => CONNACK
        b > PUBLISH r/1 old q1 #1 retain => PUBACK 1 0x10
        b > PUBLISH r/1 new retain u=k:v ct=text
        b > PUBLISH r/1 passing
        b > PUBLISH r/2 two q2 #2 retain => PUBREC 2 0x10
        b > PUBREL 2 => PUBCOMP 2
        b > PUBLISH r/3 three q1 #3 retain => PUBACK 3 0x10
        b > PUBLISH r/3 - q1 #4 retain => PUBACK 4 0x10
        a > CONNECT a clean => CONNACK
        a > SUBSCRIBE 1 r/+|q2 => SUBACK 1 02
        a < PUBLISH r/1 new retain ct=text u=k:v
        a < PUBLISH r/2 two q2 #1 retain
        a > PUBREC 1 => PUBREL 1
        a > PUBCOMP 1
        # The empty message itself is delivered like any other.
        b > PUBLISH r/2 - retain
        a < PUBLISH r/2 -
        c > CONNECT c clean => CONNACK
        c > SUBSCRIBE 1 r/# => SUBACK 1 00
        c < PUBLISH r/1 new retain ct=text u=k:v
    ",
    );
}

#[test]
fn retain_handling() {
    //= mqtt5#[MQTT-3.3.1-9] type=test
    //= mqtt5#[MQTT-3.3.1-10] type=test
    //= mqtt5#[MQTT-3.3.1-11] type=test
    //= mqtt5#[MQTT-3.8.4-4] type=test
    check(
        "
        b > CONNECT b clean => CONNACK
        b > PUBLISH r kept retain
        a > CONNECT a clean => CONNACK
        a > SUBSCRIBE 1 r => SUBACK 1 00
        a < PUBLISH r kept retain
        a > SUBSCRIBE 2 r => SUBACK 2 00
        a < PUBLISH r kept retain
        a > SUBSCRIBE 3 r|rh1 => SUBACK 3 00
        a > UNSUBSCRIBE 4 r => UNSUBACK 4 00
        a > SUBSCRIBE 5 r|rh1 => SUBACK 5 00
        a < PUBLISH r kept retain
        a > UNSUBSCRIBE 6 r => UNSUBACK 6 00
        a > SUBSCRIBE 7 r|rh2 => SUBACK 7 00
        # A shared subscription gets none.
        a > SUBSCRIBE 8 $share/g/r => SUBACK 8 00
    ",
    );
}

#[test]
fn retain_as_published() {
    //= mqtt5#[MQTT-3.3.1-12] type=test
    //= mqtt5#[MQTT-3.3.1-13] type=test
    check(
        "
        a > CONNECT a clean => CONNACK
        a > SUBSCRIBE 1 r|q1 s|rap|q1 => SUBACK 1 01 01
        b > CONNECT b clean => CONNACK
        b > PUBLISH r 1 retain
        a < PUBLISH r 1
        b > PUBLISH r 2 retain q1 #1 => PUBACK 1
        a < PUBLISH r 2 q1 #1
        b > PUBLISH s 3 retain
        a < PUBLISH s 3 retain
        b > PUBLISH s 4 retain q1 #2 => PUBACK 2
        a < PUBLISH s 4 q1 #2 retain
        b > PUBLISH s 5
        a < PUBLISH s 5
    ",
    );
}

#[test]
fn retained_messages_outlive_the_process_and_expire() {
    check(
        "
        b > CONNECT b clean => CONNACK
        b > PUBLISH r/1 1 retain q1 #1 => PUBACK 1 0x10
        b > PUBLISH r/2 2 retain expiry=10 q1 #2 => PUBACK 2 0x10
        b > PUBLISH r/3 3 retain
        wait 100ms
        crash
        wait 4s
        a > CONNECT a clean => CONNACK
        a > SUBSCRIBE 1 r/+ => SUBACK 1 00
        a < PUBLISH r/1 1 retain
        a < PUBLISH r/2 2 retain expiry=6
        a < PUBLISH r/3 3 retain
        wait 7s
        a > SUBSCRIBE 2 r/2 => SUBACK 2 00
    ",
    );
}

#[test]
fn an_older_retained_message_does_not_come_back() {
    // The QoS 1 message waits for the store when the QoS 0 message, which does
    // not, replaces it.
    check(
        "
        b > CONNECT b clean => CONNACK
        b >> PUBLISH r old q1 #1 retain
        b > PUBLISH r new retain => PUBACK 1 0x10
        a > CONNECT a clean => CONNACK
        a > SUBSCRIBE 1 r => SUBACK 1 00
        a < PUBLISH r new retain
        a > DISCONNECT
        a < closed
        crash
        a > CONNECT a clean => CONNACK
        a > SUBSCRIBE 1 r => SUBACK 1 00
        a < PUBLISH r new retain
    ",
    );
}

#[test]
fn the_limit_of_retained_messages_refuses_the_next() {
    check(
        "
        set retained_max=1
        b > CONNECT b clean => CONNACK
        b > PUBLISH r/1 1 retain q1 #1 => PUBACK 1 0x10
        b > PUBLISH r/2 2 retain q1 #2 => PUBACK 2 0x97
        b > PUBLISH r/1 3 retain q1 #3 => PUBACK 3 0x10
        b > PUBLISH r/1 - retain q1 #4 => PUBACK 4 0x10
        b > PUBLISH r/2 2 retain q1 #5 => PUBACK 5 0x10
    ",
    );
}

#[test]
fn what_is_sent_matches_and_arrives_as_published() {
    //= mqtt5#[MQTT-3.3.2-3] type=test
    //= mqtt5#[MQTT-3.3.2-4] type=test
    //= mqtt5#[MQTT-3.3.2-15] type=test
    //= mqtt5#[MQTT-3.3.2-16] type=test
    //= mqtt5#[MQTT-3.3.2-17] type=test
    //= mqtt5#[MQTT-3.3.2-18] type=test
    //= mqtt5#[MQTT-3.3.2-20] type=test
    check(
        "
        a > CONNECT a clean => CONNACK
        a > SUBSCRIBE 1 x/+/z y/# => SUBACK 1 00 00
        p > CONNECT p expiry=100 => CONNACK
        p > SUBSCRIBE 1 x/#|q1 => SUBACK 1 01
        b > CONNECT b clean => CONNACK
        b > PUBLISH x/y/z 1 q1 #1 utf8 ct=text resp=x/r corr=42 u=b:1 u=a:2 u=b:3 => PUBACK 1
        a < PUBLISH x/y/z 1 utf8 ct=text resp=x/r corr=42 u=b:1 u=a:2 u=b:3
        p < PUBLISH x/y/z 1 q1 #1 utf8 ct=text resp=x/r corr=42 u=b:1 u=a:2 u=b:3
        b > PUBLISH x/z 2
        p < PUBLISH x/z 2
        b > PUBLISH X/y/z 3
        b > PUBLISH y 4
        a < PUBLISH y 4
    ",
    );
}

#[test]
fn messages_expire() {
    //= mqtt5#[MQTT-3.3.2-5] type=test
    //= mqtt5#[MQTT-3.3.2-6] type=test
    check(
        "
        a > CONNECT a expiry=1000 => CONNACK
        a > SUBSCRIBE 1 t|q1 => SUBACK 1 01
        a > DISCONNECT
        a < closed
        b > CONNECT b clean => CONNACK
        b > PUBLISH t short expiry=5 q1 #1 => PUBACK 1
        b > PUBLISH t long expiry=60 q1 #2 => PUBACK 2
        b > PUBLISH t ever q1 #3 => PUBACK 3
        wait 10s
        a > CONNECT a expiry=1000 => CONNACK present
        a < PUBLISH t long q1 #1 expiry=50
        a < PUBLISH t ever q1 #2
        a > PUBACK 1
        a > PUBACK 2
    ",
    );
}

#[test]
fn expiry_does_not_end_a_delivery_that_has_begun() {
    //= mqtt5#[MQTT-4.3.3-7] type=test
    check(
        "
        a > CONNECT a expiry=1000 rm=1 => CONNACK
        a > SUBSCRIBE 1 t|q2 => SUBACK 1 02
        b > CONNECT b clean => CONNACK
        b > PUBLISH t x expiry=5 q2 #1 => PUBREC 1
        a < PUBLISH t x q2 #1 expiry=5
        b > PUBREL 1 => PUBCOMP 1
        a cut
        wait 20s
        a > CONNECT a expiry=1000 rm=1 => CONNACK present
        a < PUBLISH t x q2 #1 dup expiry=0
        a > PUBREC 1 => PUBREL 1
        a > PUBCOMP 1
    ",
    );
}

#[test]
fn aliases_of_the_client() {
    //= mqtt5#[MQTT-3.3.2-9] type=test
    //= mqtt5#[MQTT-3.3.2-12] type=test
    //= mqtt5#[MQTT-3.3.2-7] type=test
    check(
        "
        set topic_alias_maximum=2
        a > CONNECT a clean => CONNACK aliases=2
        a > SUBSCRIBE 1 # => SUBACK 1 00
        b > CONNECT b clean => CONNACK aliases=2
        b > PUBLISH t/1 1 alias=1
        a < PUBLISH t/1 1
        b > PUBLISH t/2 2 alias=2
        a < PUBLISH t/2 2
        b > PUBLISH - 3 alias=1
        a < PUBLISH t/1 3
        b > PUBLISH t/3 4 alias=1
        a < PUBLISH t/3 4
        b > PUBLISH - 5 alias=1
        a < PUBLISH t/3 5
        # An alias is of one connection.
        b cut
        b > CONNECT b clean => CONNACK aliases=2
        b > PUBLISH - 6 alias=1 => DISCONNECT 0x94
        b < closed
        b > CONNECT b clean => CONNACK aliases=2
        b > PUBLISH t/1 7 alias=3 => DISCONNECT 0x94
        b < closed
        # Alias 0, and neither topic nor alias.
        b > CONNECT b clean => CONNACK aliases=2
        b > hex 3006 0000 03 230000
        b < DISCONNECT 0x94
        b < closed
        b > CONNECT b clean => CONNACK aliases=2
        b > hex 3003 0000 00
        b < DISCONNECT 0x82
        b < closed
    ",
    );
}

#[test]
fn aliases_of_the_server_only_as_many_as_asked() {
    //= mqtt5#[MQTT-3.1.2-26] type=test
    //= mqtt5#[MQTT-3.1.2-27] type=test
    check(
        "
        a > CONNECT a clean aliases=1 => CONNACK
        a > SUBSCRIBE 1 #|q1 => SUBACK 1 01
        n > CONNECT n clean => CONNACK
        n > SUBSCRIBE 1 # => SUBACK 1 00
        b > CONNECT b clean => CONNACK
        b > PUBLISH long/topic 1
        a < PUBLISH long/topic 1 alias=1
        n < PUBLISH long/topic 1
        b > PUBLISH long/topic 2 q1 #1 => PUBACK 1
        a < PUBLISH - 2 q1 #1 alias=1
        n < PUBLISH long/topic 2
        b > PUBLISH other/topic 3
        a < PUBLISH other/topic 3
        n < PUBLISH other/topic 3
        # Not repeated from an earlier connection.
        a cut
        a > CONNECT a clean aliases=1 => CONNACK
        a > SUBSCRIBE 1 # => SUBACK 1 00
        b > PUBLISH long/topic 4
        a < PUBLISH long/topic 4 alias=1
        n < PUBLISH long/topic 4
    ",
    );
}

#[test]
fn overlapping_subscriptions() {
    //= mqtt5#[MQTT-3.3.4-2] type=test
    //= mqtt5#[MQTT-3.3.4-3] type=test
    //= mqtt5#[MQTT-3.3.4-4] type=test
    //= mqtt5#[MQTT-3.3.4-5] type=test
    check(
        "
        a > CONNECT a clean => CONNACK
        a > SUBSCRIBE 1 t/+ sub=3 => SUBACK 1 00
        a > SUBSCRIBE 2 t/1|q2 sub=4 => SUBACK 2 02
        a > SUBSCRIBE 3 #|q1 => SUBACK 3 01
        p > CONNECT p expiry=100 => CONNACK
        p > SUBSCRIBE 1 t/+ sub=5 => SUBACK 1 00
        p > SUBSCRIBE 2 t/1|q1 sub=268435455 => SUBACK 2 01
        b > CONNECT b clean => CONNACK
        b > PUBLISH t/1 x q2 #1 => PUBREC 1
        a < PUBLISH t/1 x q2 #1 sub=4 sub=3
        p < PUBLISH t/1 x q1 #1 sub=268435455 sub=5
        b > PUBREL 1 => PUBCOMP 1
        a > PUBREC 1 => PUBREL 1
        a > PUBCOMP 1
        p > PUBACK 1
        b > PUBLISH t/2 y q2 #2 => PUBREC 2
        a < PUBLISH t/2 y q1 #2 sub=3
        p < PUBLISH t/2 y sub=5
        b > PUBREL 2 => PUBCOMP 2
        # A shared subscription delivers besides, with its own identifier.
        a > SUBSCRIBE 4 $share/g/t/2 sub=9 => SUBACK 4 00
        b > PUBLISH t/2 z
        a < PUBLISH t/2 z sub=3
        a < PUBLISH t/2 z sub=9
        p < PUBLISH t/2 z sub=5
        # A client may not send one.
        b > PUBLISH t/2 z sub=1 => DISCONNECT 0x82
        b < closed
    ",
    );
}

#[test]
fn a_message_with_bad_strings_is_malformed() {
    //= mqtt5#[MQTT-3.3.2-1] type=test
    //= mqtt5#[MQTT-3.3.2-2] type=test
    //= mqtt5#[MQTT-3.3.2-13] type=test
    //= mqtt5#[MQTT-3.3.2-14] type=test
    //= mqtt5#[MQTT-3.3.2-19] type=test
    //= mqtt5#[MQTT-2.2.1-2] type=test
    //= mqtt5#[MQTT-3.3.1-2] type=test
    //= mqtt5#[MQTT-3.3.1-4] type=test
    check(
        "
        a > CONNECT a clean => CONNACK
        a > hex 3004 0001 ff 00
        a < DISCONNECT 0x81
        a < closed
        # A wildcard in the topic.
        a > CONNECT a clean => CONNACK
        a > hex 3006 0003 742f2b 00
        a < DISCONNECT 0x90
        a < closed
        # Response Topic and Content Type that are no UTF-8.
        a > CONNECT a clean => CONNACK
        a > hex 3008 0001 74 04 08 0001 ff
        a < DISCONNECT 0x81
        a < closed
        a > CONNECT a clean => CONNACK
        a > hex 3008 0001 74 04 03 0001 ff
        a < DISCONNECT 0x81
        a < closed
        # A wildcard in the Response Topic.
        a > CONNECT a clean => CONNACK
        a > hex 3008 0001 74 04 08 0001 23
        a < DISCONNECT 0x90
        a < closed
        # DUP with QoS 0, and QoS 3.
        a > CONNECT a clean => CONNACK
        a > hex 3804 0001 74 00
        a < DISCONNECT 0x81
        a < closed
        a > CONNECT a clean => CONNACK
        a > hex 3606 0001 74 0001 00
        a < DISCONNECT 0x81
        a < closed
        # Packet identifier 0.
        a > CONNECT a clean => CONNACK
        a > hex 3206 0001 74 0000 00
        a < DISCONNECT 0x82
        a < closed
    ",
    );
}
