//! More than one stream in a connection: the dialects of MQTT over QUIC.

use dunlin_sim::check;

#[test]
fn answers_come_on_the_stream_of_the_request() {
    check(
        "
        a > CONNECT a expiry=100 => CONNACK
        a@4 > SUBSCRIBE 1 t/4|q1 => SUBACK 1 01
        a@8 > SUBSCRIBE 1 t/8|q2 => SUBACK 1 02
        a@8 > PINGREQ => PINGRESP
        b > CONNECT b expiry=100 => CONNACK
        # Packet identifiers are the stream's own.
        b@4 > PUBLISH t/4 1 q1 #1 => PUBACK 1
        a@4 < PUBLISH t/4 1 q1 #1
        b@8 > PUBLISH t/8 2 q2 #1 => PUBREC 1
        a@8 < PUBLISH t/8 2 q2 #2
        b@12 > PUBLISH t/4 3 q2 #1 => PUBREC 1
        a@4 < PUBLISH t/4 3 q1 #3
        b@8 > PUBREL 1 => PUBCOMP 1
        b@12 > PUBREL 1 => PUBCOMP 1
        # An acknowledgement may come on any stream.
        a@4 > PUBACK 1
        a > PUBACK 3
        a@8 > PUBREC 2 => PUBREL 2
        a > PUBCOMP 2
    ",
    );
}

#[test]
fn one_way_streams_are_answered_on_control() {
    check(
        "
        a > CONNECT a clean => CONNACK
        a@2 > PUBLISH t 1 q1 #1
        a@0 < PUBACK 1 0x10
        a@2 finish
        a@6 > PUBLISH t 1 q2 #2
        a@0 < PUBREC 2 0x10
        a@6 finish
        a > PUBREL 2
        a@0 < PUBCOMP 2
    ",
    );
}

#[test]
fn data_before_connack_waits() {
    check(
        "
        set access=passwords
        b > CONNECT b clean user=bob pass=hunter2 => CONNACK
        b > SUBSCRIBE 1 t|q1 => SUBACK 1 01
        a@4 >> PUBLISH t 1 q1 #1
        a@8 >> PUBLISH t 2 q1 #1
        a >> CONNECT a clean user=alice pass=secret
        a > PINGREQ
        a@0 < CONNACK
        a@4 < PUBACK 1
        a@8 < PUBACK 1
        a@0 < PINGRESP
        b < PUBLISH t 1 q1 #1
        b < PUBLISH t 2 q1 #2
    ",
    );
}

#[test]
fn data_before_connect_waits_although_connect_is_decided_at_once() {
    check(
        "
        a@4 > SUBSCRIBE 1 t|q1
        a@8 > PUBLISH u 1 q1 #1
        a > CONNECT a clean
        a@0 < CONNACK
        a@4 < SUBACK 1 01
        a@8 < PUBACK 1 0x10
    ",
    );
}

#[test]
fn a_broken_stream_ends_alone() {
    check(
        "
        a > CONNECT a expiry=100 => CONNACK
        a@4 > SUBSCRIBE 1 t|q1 => SUBACK 1 01
        a@8 > hex 00
        a@8 < reset 0x81
        a@4 > hex 3003
        a@4 finish
        a@4 < finished
        b > CONNECT b clean => CONNACK
        # The session outlives connections, so the subscription outlives its
        # stream.
        b > PUBLISH t 1 q1 #1 => PUBACK 1
        a@0 < PUBLISH t 1 q1 #1
        c > CONNECT c clean => CONNACK
        c@4 > SUBSCRIBE 1 t => SUBACK 1 00
        c@4 finish
        c@4 < finished
        b > PUBLISH t 2
        a@0 < PUBLISH t 2
        # CONNECT, AUTH and DISCONNECT belong on control.
        c@8 > DISCONNECT
        c@0 < DISCONNECT 0x82
        c < closed
    ",
    );
}

#[test]
fn streams_are_limited() {
    check(
        "
        set data_streams_max=2
        a > CONNECT a clean => CONNACK
        a@4 > PINGREQ => PINGRESP
        a@8 > PINGREQ => PINGRESP
        a@12 > PINGREQ
        a@12 < reset 0x97
        a@4 finish
        a@4 < finished
        a@16 > PINGREQ => PINGRESP
        # Only clients open streams.
        a@1 > PINGREQ
        a@1 < reset 0x97
    ",
    );
}

#[test]
fn what_streams_carried_goes_on_on_control() {
    check(
        "
        a > CONNECT a expiry=100 => CONNACK
        a@4 > SUBSCRIBE 1 t|q1 => SUBACK 1 01
        b > CONNECT b expiry=100 => CONNACK
        b@4 > PUBLISH t 1 q2 #5 => PUBREC 5
        a@4 < PUBLISH t 1 q1 #1
        a cut
        b cut
        b > CONNECT b expiry=100 => CONNACK present
        b > PUBLISH t 1 q2 #5 dup => PUBREC 5
        b > PUBREL 5 => PUBCOMP 5
        a > CONNECT a expiry=100 => CONNACK present
        a@0 < PUBLISH t 1 q1 #1 dup
        a@4 > PINGREQ => PINGRESP
        b > PUBLISH t 2
        a@0 < PUBLISH t 2
    ",
    );
}

#[test]
fn the_end_of_control_is_the_end() {
    check(
        "
        w > CONNECT w clean => CONNACK
        w > SUBSCRIBE 1 will => SUBACK 1 00
        a > CONNECT a clean will=will:a => CONNACK
        a@4 > PINGREQ => PINGRESP
        a finish
        a < closed
        w < PUBLISH will a
    ",
    );
}

#[test]
fn a_stream_for_each_publish_ends_after_its_answer() {
    check(
        "
        set data_streams_max=2
        s > CONNECT s expiry=100 => CONNACK
        s > SUBSCRIBE 1 t|q2 => SUBACK 1 02
        a > CONNECT a expiry=100 => CONNACK
        # The store takes its time; the stream waits for it.
        a@4 >> PUBLISH t 1 q1 #1
        a@4 finish
        a@4 < PUBACK 1
        a@4 < finished
        s < PUBLISH t 1 q1 #1
        a@8 >> PUBLISH t 2 q2 #2
        a@8 finish
        a@8 < PUBREC 2
        a@8 < finished
        s < PUBLISH t 2 q2 #2
        s > PUBREC 2 => PUBREL 2
        s > PUBCOMP 2
        # The rest goes wherever the client likes.
        a@12 > PUBREL 2 => PUBCOMP 2
        a@12 > PUBLISH t 3 q2 #3 => PUBREC 3
        s < PUBLISH t 3 q2 #3
        a@12 finish
        a@12 < finished
        # Repeated it is the same message, and not repeated another one.
        a > PUBLISH t 3 q2 #3 dup => PUBREC 3
        a > PUBREL 3 => PUBCOMP 3
        a@16 > PUBLISH t 4 q2 #4 => PUBREC 4
        s < PUBLISH t 4 q2 #4
        a@16 finish
        a@16 < finished
        a > PUBLISH t 5 q2 #4 => PUBREC 4
        s < PUBLISH t 5 q2 #5
    ",
    );
}

#[test]
fn an_alias_holds_on_the_stream_on_which_it_was_set() {
    check(
        "
        s > CONNECT s clean => CONNACK
        s > SUBSCRIBE 1 # => SUBACK 1 00
        a > CONNECT a clean => CONNACK
        a@4 > PUBLISH t/4 1 alias=1
        s < PUBLISH t/4 1
        a@8 > PUBLISH t/8 1 alias=1
        s < PUBLISH t/8 1
        a@2 > PUBLISH t/2 1 alias=1
        s < PUBLISH t/2 1
        a@4 > PUBLISH - 2 alias=1
        s < PUBLISH t/4 2
        a@2 > PUBLISH - 2 alias=1
        s < PUBLISH t/2 2
        a > PUBLISH - 2 alias=1 => DISCONNECT 0x94
        a < closed
    ",
    );
}
