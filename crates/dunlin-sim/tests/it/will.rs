//! The Will Message: sections 3.1.2.5 and 3.1.3.2 of MQTT 5.0.

use dunlin_sim::check;

#[test]
fn a_lost_client_leaves_its_will() {
    //= mqtt5#[MQTT-3.1.2-7] type=test
    //= mqtt5#[MQTT-3.1.2-8] type=test
    //= mqtt5#[MQTT-3.1.2-10] type=test
    //= mqtt5#[MQTT-3.14.4-3] type=test
    check(
        "
        w > CONNECT w clean => CONNACK
        w > SUBSCRIBE 1 will/#|q2 => SUBACK 1 02
        a > CONNECT a clean will=will/a:cut wq=1 => CONNACK
        a cut
        w < PUBLISH will/a cut q1 #1
        w > PUBACK 1
        a > CONNECT a clean will=will/a:left => CONNACK
        a > DISCONNECT
        a < closed
        a > CONNECT a clean will=will/a:asked => CONNACK
        a > DISCONNECT 0x04
        a < closed
        w < PUBLISH will/a asked
        a > CONNECT a clean will=will/a:broke => CONNACK
        a > hex 00
        a < DISCONNECT 0x81
        a < closed
        w < PUBLISH will/a broke
        a > CONNECT a clean will=will/a:taken-over => CONNACK
        a2 > CONNECT a clean => CONNACK
        a < DISCONNECT 0x8e
        a < closed
        w < PUBLISH will/a taken-over
        # Published once, and not again for a later connection.
        a2 cut
        b > CONNECT b v4 clean will=will/b:b wq=2 => CONNACK
        b finish
        b < closed
        w < PUBLISH will/b b q2 #2
        w > PUBREC 2 => PUBREL 2
        w > PUBCOMP 2
    ",
    );
}

#[test]
fn a_will_waits_for_its_delay() {
    //= mqtt5#[MQTT-3.1.3-9] type=test
    check(
        "
        w > CONNECT w clean => CONNACK
        w > SUBSCRIBE 1 will => SUBACK 1 00
        a > CONNECT a expiry=100 will=will:late wdelay=10 => CONNACK
        a cut
        wait 9s
        a > CONNECT a expiry=100 will=will:later wdelay=10 => CONNACK present
        wait 20s
        a cut
        wait 9s
        wait 2s
        w < PUBLISH will later
        wait 200s
        # The end of the session does not wait.
        a > CONNECT a expiry=5 will=will:ends wdelay=1000 => CONNACK
        a cut
        wait 4s
        wait 2s
        w < PUBLISH will ends
        a > CONNECT a expiry=100 will=will:clean wdelay=1000 => CONNACK
        a cut
        a > CONNECT a clean => CONNACK
        w < PUBLISH will clean
        a > DISCONNECT
        a < closed
        # A take-over continues the session: nothing is sent.
        a > CONNECT a expiry=100 will=will:kept wdelay=10 => CONNACK
        a2 > CONNECT a expiry=100 => CONNACK present
        a < DISCONNECT 0x8e
        a < closed
        wait 11s
    ",
    );
}

#[test]
fn a_will_is_retained_as_its_flag_says() {
    //= mqtt5#[MQTT-3.1.2-14] type=test
    //= mqtt5#[MQTT-3.1.2-15] type=test
    check(
        "
        a > CONNECT a clean will=kept:1 wretain => CONNACK
        b > CONNECT b clean will=lost:2 => CONNACK
        a cut
        b cut
        c > CONNECT c clean => CONNACK
        c > SUBSCRIBE 1 kept lost => SUBACK 1 00 00
        c < PUBLISH kept 1 retain
    ",
    );
}

#[test]
fn a_will_keeps_its_properties_in_order() {
    //= mqtt5#[MQTT-3.1.3-10] type=test
    check(
        "
        w > CONNECT w clean => CONNACK
        w > SUBSCRIBE 1 will => SUBACK 1 00
        a > CONNECT a clean will=will:x wexpiry=60 wct=text u=b:1 u=a:2 u=b:3 => CONNACK
        wait 100s
        a cut
        w < PUBLISH will x expiry=60 ct=text u=b:1 u=a:2 u=b:3
    ",
    );
}

#[test]
fn a_will_outlives_the_process() {
    check(
        "
        w > CONNECT w expiry=1000 => CONNACK
        w > SUBSCRIBE 1 will/#|q1 => SUBACK 1 01
        w > DISCONNECT
        w < closed
        a > CONNECT a clean will=will/a:a wq=1 => CONNACK
        b > CONNECT b clean expiry=100 will=will/b:b wq=1 wdelay=10 => CONNACK
        c > CONNECT c clean expiry=100 will=will/c:c wq=1 => CONNACK
        c > DISCONNECT
        c < closed
        crash
        wait 5s
        w > CONNECT w expiry=1000 => CONNACK present
        w < PUBLISH will/a a q1 #1
        w > PUBACK 1
        wait 6s
        w < PUBLISH will/b b q1 #2
        w > PUBACK 2
        # Not again after another crash.
        crash
        w > CONNECT w expiry=1000 => CONNACK present
        wait 100s
    ",
    );
}

#[test]
fn one_full_queue_does_not_silence_a_will() {
    check(
        "
        set queue_messages_max=2
        o > CONNECT o expiry=100 => CONNACK
        o > SUBSCRIBE 1 w|q1 => SUBACK 1 01
        o cut
        p > CONNECT p clean => CONNACK
        p > PUBLISH w 1 q1 #1 => PUBACK 1
        p > PUBLISH w 2 q1 #2 => PUBACK 2
        p > PUBLISH w 3 q1 #3 => PUBACK 3 0x97
        w > CONNECT w clean => CONNACK
        w > SUBSCRIBE 1 w|q1 => SUBACK 1 01
        s > CONNECT s expiry=100 => CONNACK
        s > SUBSCRIBE 1 w|q2 => SUBACK 1 02
        a > CONNECT a clean will=w:x wq=1 => CONNACK
        a cut
        w < PUBLISH w x q1 #1
        s < PUBLISH w x q1 #1
        o > CONNECT o expiry=100 => CONNACK present
        o < PUBLISH w 1 q1 #1
        o < PUBLISH w 2 q1 #2
        ",
    );
}
