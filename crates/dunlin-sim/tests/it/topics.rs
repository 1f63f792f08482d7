//! Topics, order and strings: sections 1.5, 4.6 and 4.7 of MQTT 5.0.

use dunlin_sim::check;

#[test]
fn wildcards_match_as_they_should() {
    //= mqtt5#[MQTT-4.7.1-1] type=test
    //= mqtt5#[MQTT-4.7.1-2] type=test
    //= mqtt5#[MQTT-4.7.2-1] type=test
    //= mqtt5#[MQTT-4.7.3-4] type=test
    check(
        "
        a > CONNECT a clean => CONNACK
        a > SUBSCRIBE 1 sport/# => SUBACK 1 00
        a > SUBSCRIBE 2 +/+ => SUBACK 2 00
        b > CONNECT b clean => CONNACK
        b > PUBLISH sport 1
        a < PUBLISH sport 1
        b > PUBLISH sport/tennis 2
        a < PUBLISH sport/tennis 2
        b > PUBLISH /finance 3
        a < PUBLISH /finance 3
        b > PUBLISH sport/ 4
        a < PUBLISH sport/ 4
        b > PUBLISH finance 5
        b > PUBLISH a/b/c 6
        b > PUBLISH Sport 7
        b > PUBLISH $x/y 8
        a > SUBSCRIBE 3 $x/# => SUBACK 3 00
        b > PUBLISH $x/y 9
        a < PUBLISH $x/y 9
        # A filter that is not one.
        a > hex 820b 0001 00 0005 73702b2f61 00
        a < DISCONNECT 0x8f
        a < closed
        a > CONNECT a clean => CONNACK
        a > hex 820b 0001 00 0005 73702f2361 00
        a < DISCONNECT 0x8f
        a < closed
    ",
    );
}

#[test]
fn a_topic_name_has_no_wildcards_no_null_and_some_length() {
    //= mqtt5#[MQTT-4.7.0-1] type=test
    //= mqtt5#[MQTT-4.7.3-1] type=test
    //= mqtt5#[MQTT-4.7.3-2] type=test
    //= mqtt5#[MQTT-1.5.4-2] type=test
    check(
        "
        a > CONNECT a clean => CONNACK
        a > hex 3004 0001 2b 00
        a < DISCONNECT 0x90
        a < closed
        a > CONNECT a clean => CONNACK
        a > hex 3006 0003 740075 00
        a < DISCONNECT 0x81
        a < closed
        a > CONNECT a clean => CONNACK
        a > hex 8209 0001 00 0003 740075 00
        a < DISCONNECT 0x81
        a < closed
        a > CONNECT a clean => CONNACK
        a > hex 8206 0001 00 0000 00
        a < DISCONNECT 0x8f
        a < closed
    ",
    );
}

#[test]
fn the_longest_topic_travels() {
    //= mqtt5#[MQTT-4.7.3-3] type=test
    let longest = "t".repeat(65_535);
    check(&format!(
        "
        a > CONNECT a expiry=100 => CONNACK
        a > SUBSCRIBE 1 {longest}|q1 $share/g/# => SUBACK 1 01 00
        b > CONNECT b clean => CONNACK
        b > PUBLISH {longest} x q1 #1 retain => PUBACK 1
        a < PUBLISH <65535> x
        a < PUBLISH <65535> x q1 #1
        b > PUBLISH {longest} y alias=1
        a < PUBLISH <65535> y
        a < PUBLISH <65535> y
        b > PUBLISH - z alias=1
        a < PUBLISH <65535> z
        a < PUBLISH <65535> z
    "
    ));
}

#[test]
fn strings_are_utf_8() {
    //= mqtt5#[MQTT-1.5.4-1] type=test
    //= mqtt5#[MQTT-1.5.4-3] type=test
    //= mqtt5#[MQTT-1.5.7-1] type=test
    check(
        "
        a > CONNECT a clean => CONNACK
        # A surrogate, and an overlong form, in a topic.
        a > hex 3006 0003 eda080 00
        a < DISCONNECT 0x81
        a < closed
        a > CONNECT a clean => CONNACK
        a > hex 3005 0002 c0af 00
        a < DISCONNECT 0x81
        a < closed
        # A user property whose value is no UTF-8.
        a > CONNECT a clean => CONNACK
        a > hex 300b 0001 74 07 26 0001 6b 0001 ff
        a < DISCONNECT 0x81
        a < closed
        # U+FEFF is a character like any other, and so is one of four bytes.
        a > CONNECT a clean => CONNACK
        a > SUBSCRIBE 1 + \u{feff}t/+ => SUBACK 1 00 00
        b > CONNECT b clean => CONNACK
        b > PUBLISH \u{feff}t 1
        a < PUBLISH \u{feff}t 1
        b > PUBLISH \u{feff}t/\u{1f600} 2
        a < PUBLISH \u{feff}t/\u{1f600} 2
        b > PUBLISH t/x 3
    ",
    );
}

#[test]
fn lengths_are_minimal_and_properties_counted() {
    //= mqtt5#[MQTT-1.5.5-1] type=test
    //= mqtt5#[MQTT-2.2.2-1] type=test
    check(
        "
        a > CONNECT a clean => CONNACK
        a > hex c08000
        a < DISCONNECT 0x81
        a < closed
        # No property length.
        a > CONNECT a clean => CONNACK
        a > hex 8206 0001 0001 74 00
        a < DISCONNECT 0x81
        a < closed
    ",
    );
}

#[test]
fn messages_of_one_client_keep_their_order() {
    //= mqtt5#[MQTT-4.6.0-5] type=test
    //= mqtt5#[MQTT-4.6.0-6] type=test
    //= mqtt5#[MQTT-4.6.0-2] type=test
    //= mqtt5#[MQTT-4.6.0-3] type=test
    // The first is retained, and with two shards perhaps by the other one,
    // which takes longer; a slow one must hold back those after it.
    check(
        "
        a > CONNECT a expiry=100 => CONNACK
        a > SUBSCRIBE 1 t|q2 => SUBACK 1 02
        c > CONNECT c clean => CONNACK
        c > SUBSCRIBE 1 t|q1 => SUBACK 1 01
        b > CONNECT b clean => CONNACK
        b >> PUBLISH t 1 q1 #11 retain
        b >> PUBLISH t 2 q1 #12
        b >> PUBLISH t 3 q1 #13 retain
        b > PUBLISH t 4 q1 #14 => PUBACK 11
        b < PUBACK 12
        b < PUBACK 13
        b < PUBACK 14
        a < PUBLISH t 1 q1 #1
        a < PUBLISH t 2 q1 #2
        a < PUBLISH t 3 q1 #3
        a < PUBLISH t 4 q1 #4
        c < PUBLISH t 1 q1 #1
        c < PUBLISH t 2 q1 #2
        c < PUBLISH t 3 q1 #3
        c < PUBLISH t 4 q1 #4
        b >> PUBLISH t 5 q2 #15 retain
        b >> PUBLISH nobody 6 q2 #16
        b > PUBLISH t 7 q2 #17 => PUBREC 15
        b < PUBREC 16 0x10
        b < PUBREC 17
        a < PUBLISH t 5 q2 #5
        a < PUBLISH t 7 q2 #6
        c < PUBLISH t 5 q1 #5
        c < PUBLISH t 7 q1 #6
    ",
    );
}

#[test]
fn deep_topics_are_refused() {
    let deep = "a/".repeat(200);
    check(&format!(
        "
        a > CONNECT a clean => CONNACK
        a > PUBLISH {deep} x => DISCONNECT 0x90
        a < closed
        a > CONNECT a clean => CONNACK
        a > SUBSCRIBE 1 {deep}# => DISCONNECT 0x8f
        a < closed
    "
    ));
}
