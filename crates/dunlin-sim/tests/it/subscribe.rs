//! SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK: sections 3.8 to 3.11 of MQTT 5.0.

use dunlin_sim::check;

#[test]
fn each_subscribe_has_its_suback() {
    //= mqtt5#[MQTT-2.2.1-6] type=test
    //= mqtt5#[MQTT-3.8.4-1] type=test
    //= mqtt5#[MQTT-3.8.4-2] type=test
    //= mqtt5#[MQTT-3.8.4-5] type=test
    //= mqtt5#[MQTT-3.8.4-6] type=test
    //= mqtt5#[MQTT-3.8.4-7] type=test
    //= mqtt5#[MQTT-3.9.3-1] type=test
    //= mqtt5#[MQTT-3.9.3-2] type=test
    check(
        "
        set subscriptions_max=4
        a > CONNECT a clean => CONNACK
        a > SUBSCRIBE 7 a b|q1 c|q2 $share/g/d|q1 => SUBACK 7 00 01 02 01
        a > SUBSCRIBE 65535 a|q2 e => SUBACK 65535 02 97
        p > CONNECT p expiry=100 => CONNACK
        p >> SUBSCRIBE 1 a|q1
        p > SUBSCRIBE 2 b|q1 => SUBACK 1 01
        p < SUBACK 2 01
        b > CONNECT b clean => CONNACK
        b > PUBLISH b x
        a < PUBLISH b x
        p < PUBLISH b x
    ",
    );
}

#[test]
fn a_subscription_is_replaced() {
    //= mqtt5#[MQTT-3.8.4-3] type=test
    //= mqtt5#[MQTT-3.8.4-8] type=test
    check(
        "
        a > CONNECT a clean => CONNACK
        a > SUBSCRIBE 1 t sub=1 => SUBACK 1 00
        b > CONNECT b clean => CONNACK
        b > PUBLISH t x q2 #1 => PUBREC 1
        a < PUBLISH t x sub=1
        b > PUBREL 1 => PUBCOMP 1
        a > SUBSCRIBE 2 t|q1 sub=2 => SUBACK 2 01
        b > PUBLISH t y q2 #1 => PUBREC 1
        a < PUBLISH t y q1 #1 sub=2
        b > PUBREL 1 => PUBCOMP 1
        b > PUBLISH t z
        a < PUBLISH t z sub=2
    ",
    );
}

#[test]
fn no_local() {
    //= mqtt5#[MQTT-3.8.3-3] type=test
    //= mqtt5#[MQTT-3.8.3-4] type=test
    check(
        "
        a > CONNECT a clean => CONNACK
        a > SUBSCRIBE 1 t/#|nl|q1 sub=1 => SUBACK 1 01
        b > CONNECT b clean => CONNACK
        a > PUBLISH t/1 mine
        a > PUBLISH t/1 mine q1 #1 => PUBACK 1 0x10
        b > PUBLISH t/1 theirs
        a < PUBLISH t/1 theirs sub=1
        # Another subscription that matches still delivers, as itself.
        a > SUBSCRIBE 2 t/1 sub=2 => SUBACK 2 00
        a > PUBLISH t/1 mine => PUBLISH t/1 mine sub=2
        # Not with a shared subscription.
        a > SUBSCRIBE 3 $share/g/t|nl => DISCONNECT 0x82
        a < closed
    ",
    );
}

#[test]
fn a_subscribe_that_breaks_the_format() {
    //= mqtt5#[MQTT-3.8.1-1] type=test
    //= mqtt5#[MQTT-3.8.3-1] type=test
    //= mqtt5#[MQTT-3.8.3-2] type=test
    //= mqtt5#[MQTT-3.8.3-5] type=test
    check(
        "
        a > CONNECT a clean => CONNACK
        a > hex 8007 0001 00 0001 74 00
        a < DISCONNECT 0x81
        a < closed
        a > CONNECT a clean => CONNACK
        a > hex 8207 0001 00 0001 ff 00
        a < DISCONNECT 0x81
        a < closed
        # No filter.
        a > CONNECT a clean => CONNACK
        a > hex 8203 0001 00
        a < DISCONNECT 0x82
        a < closed
        # Reserved bits of the options, QoS 3, Retain Handling 3.
        a > CONNECT a clean => CONNACK
        a > hex 8207 0001 00 0001 74 40
        a < DISCONNECT 0x81
        a < closed
        a > CONNECT a clean => CONNACK
        a > hex 8207 0001 00 0001 74 03
        a < DISCONNECT 0x82
        a < closed
        a > CONNECT a clean => CONNACK
        a > hex 8207 0001 00 0001 74 30
        a < DISCONNECT 0x82
        a < closed
        # Packet identifier 0.
        a > CONNECT a clean => CONNACK
        a > hex 8207 0000 00 0001 74 00
        a < DISCONNECT 0x82
        a < closed
        # Subscription identifier 0.
        a > CONNECT a clean => CONNACK
        a > hex 8209 0001 02 0b00 0001 74 00
        a < DISCONNECT 0x82
        a < closed
    ",
    );
}

#[test]
fn unsubscribe_stops_and_says_so() {
    //= mqtt5#[MQTT-3.10.4-1] type=test
    //= mqtt5#[MQTT-3.10.4-2] type=test
    //= mqtt5#[MQTT-3.10.4-4] type=test
    //= mqtt5#[MQTT-3.10.4-5] type=test
    //= mqtt5#[MQTT-3.10.4-6] type=test
    //= mqtt5#[MQTT-3.11.3-1] type=test
    //= mqtt5#[MQTT-3.11.3-2] type=test
    check(
        "
        a > CONNECT a expiry=100 => CONNACK
        a > SUBSCRIBE 1 t/1|q1 t/+|q1 $share/g/t/1 => SUBACK 1 01 01 00
        b > CONNECT b clean => CONNACK
        # Character by character: t/1 goes, t/+ stays.
        a > UNSUBSCRIBE 9 no t/1 T/+ => UNSUBACK 9 11 00 11
        a > UNSUBSCRIBE 10 $share/g/t/1 => UNSUBACK 10 00
        b > PUBLISH t/1 x
        a < PUBLISH t/1 x
        a > UNSUBSCRIBE 11 t/+ => UNSUBACK 11 00
        b > PUBLISH t/1 y q1 #1 => PUBACK 1 0x10
        crash
        a > CONNECT a expiry=100 => CONNACK present
        b > CONNECT b clean => CONNACK
        b > PUBLISH t/1 z q1 #1 => PUBACK 1 0x10
    ",
    );
}

#[test]
fn unsubscribe_completes_what_has_begun() {
    //= mqtt5#[MQTT-3.10.4-3] type=test
    check(
        "
        a > CONNECT a expiry=100 => CONNACK
        a > SUBSCRIBE 1 t|q2 => SUBACK 1 02
        b > CONNECT b clean => CONNACK
        b > PUBLISH t 1 q1 #1 => PUBACK 1
        a < PUBLISH t 1 q1 #1
        b > PUBLISH t 2 q2 #2 => PUBREC 2
        a < PUBLISH t 2 q2 #2
        b > PUBREL 2 => PUBCOMP 2
        a > UNSUBSCRIBE 1 t => UNSUBACK 1 00
        a cut
        a > CONNECT a expiry=100 => CONNACK present
        a < PUBLISH t 1 q1 #1 dup
        a < PUBLISH t 2 q2 #2 dup
        a > PUBACK 1
        a > PUBREC 2 => PUBREL 2
        a > PUBCOMP 2
    ",
    );
}

#[test]
fn an_unsubscribe_that_breaks_the_format() {
    //= mqtt5#[MQTT-3.10.1-1] type=test
    //= mqtt5#[MQTT-3.10.3-1] type=test
    //= mqtt5#[MQTT-3.10.3-2] type=test
    check(
        "
        a > CONNECT a clean => CONNACK
        a > hex a006 0001 00 0001 74
        a < DISCONNECT 0x81
        a < closed
        a > CONNECT a clean => CONNACK
        a > hex a206 0001 00 0001 ff
        a < DISCONNECT 0x81
        a < closed
        a > CONNECT a clean => CONNACK
        a > hex a203 0001 00
        a < DISCONNECT 0x82
        a < closed
    ",
    );
}

#[test]
fn a_retained_message_does_not_follow_an_unsubscribe() {
    check(
        "
        b > CONNECT b clean => CONNACK
        b > PUBLISH t kept retain
        a > CONNECT a expiry=100 => CONNACK
        a >> SUBSCRIBE 1 t
        a > UNSUBSCRIBE 2 t => SUBACK 1 00
        a < UNSUBACK 2 00
    ",
    );
}

#[test]
fn a_subscription_that_the_store_does_not_take_is_refused() {
    check(
        "
        a > CONNECT a expiry=100 => CONNACK
        b > CONNECT b clean => CONNACK
        disk full
        a > SUBSCRIBE 1 t|q1 => SUBACK 1 97
        b > PUBLISH t x
        disk ok
        a > SUBSCRIBE 2 t|q1 => SUBACK 2 01
        b > PUBLISH t y
        a < PUBLISH t y
    ",
    );
}
