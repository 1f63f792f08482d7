//! What MQTT 3.1.1 does differently.

use dunlin_sim::check;

#[test]
fn clean_session_decides_how_long_a_session_lives() {
    check(
        "
        a > CONNECT a v4 => CONNACK
        a > SUBSCRIBE 1 t|q1 => SUBACK 1 01
        a > DISCONNECT
        a < closed
        b > CONNECT b clean => CONNACK
        b > PUBLISH t 1 q1 #1 ct=text u=k:v => PUBACK 1
        wait 1000000s
        a > CONNECT a v4 => CONNACK present
        a < PUBLISH t 1 q1 #1
        a > PUBACK 1
        a > DISCONNECT
        a < closed
        a > CONNECT a v4 clean => CONNACK
        a > DISCONNECT
        a < closed
        a > CONNECT a v4 => CONNACK
    ",
    );
}

#[test]
fn answers_without_reasons() {
    check(
        "
        set subscriptions_max=1
        a > CONNECT a v4 clean => CONNACK
        a > SUBSCRIBE 1 t|q2 u => SUBACK 1 02 80
        a > UNSUBSCRIBE 2 t no => UNSUBACK 2
        a > PUBLISH nobody x q1 #1 => PUBACK 1
        a > PUBLISH nobody x q2 #2 => PUBREC 2
        a > PUBREL 2 => PUBCOMP 2
        a > PUBREL 2 => PUBCOMP 2
        a > PUBREC 9 => PUBREL 9
    ",
    );
}

#[test]
fn versions_meet() {
    check(
        "
        a > CONNECT a v4 clean will=w:old wq=1 => CONNACK
        a > SUBSCRIBE 1 t|q1 => SUBACK 1 01
        b > CONNECT b clean => CONNACK
        b > SUBSCRIBE 1 #|q1 sub=5 => SUBACK 1 01
        b > PUBLISH t x q1 #1 ct=text resp=r expiry=9 u=k:v retain
        b < PUBLISH t x q1 #1 expiry=9 ct=text resp=r sub=5 u=k:v
        b < PUBACK 1
        a < PUBLISH t x q1 #1
        a > PUBLISH t y => PUBLISH t y
        b < PUBLISH t y sub=5
        a > SUBSCRIBE 2 t => SUBACK 2 00
        a < PUBLISH t x retain
        a cut
        b < PUBLISH w old q1 #2 sub=5
    ",
    );
}

#[test]
fn refusals_have_the_old_codes() {
    check(
        "
        set access=passwords
        a > CONNECT a v4 clean => CONNACK 0x87
        a < closed
        a > CONNECT a v4 clean user=alice pass=secret => CONNACK
        # Protocol level 3, in the form that all know.
        b v4
        b > hex 100c 0004 4d515454 03 02 0000 0000
        b < CONNACK 0x84
        b < closed
        # Bad flags: closed without a word.
        c > hex 100c 0004 4d515454 04 03 0000 0000
        c < closed
    ",
    );
}

/// Mosquitto's bridges set the highest bit of the protocol level.
#[test]
fn a_bridge_gets_nothing_back_and_keeps_the_retain_flag() {
    check(
        "
        b > CONNECT bridge v4 bridge => CONNACK
        b > SUBSCRIBE 1 t|q1 u => SUBACK 1 01 00
        b > PUBLISH t mine q1 #1 => PUBACK 1
        a > CONNECT a clean => CONNACK
        a > PUBLISH u kept retain
        b < PUBLISH u kept retain
        # One of another version is answered in 3.1.1, so that it falls back.
        c v4
        c > hex 100d00044d5154548302003c000163
        c < CONNACK 0x84
        c < closed
    ",
    );
}
