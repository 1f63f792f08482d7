//! Flow headers of the MQTT-next draft.

use dunlin_sim::check;

#[test]
fn a_header_may_come_in_pieces_and_on_either_protocol() {
    for set in ["set protocol=MQTT-next", "set protocol=mqtt"] {
        check(&format!(
            "
            {set}
            a@0 >> hex 110000
            a > CONNECT a clean
            a@0 < CONNACK
            # Flow 2, expires after 300 s, no flags.
            a@4 >> hex 12
            a@4 >> hex 02 41
            a@4 > hex 2c 00 c000
            a@4 < PINGRESP
            # Integers may be longer than they need be.
            a@8 > hex 12 c000000000000004 80000000 00 c000
            a@8 < PINGRESP
            a@2 >> hex 12060000
            a@2 > PUBLISH t 1 q1 #1
            a@0 < PUBACK 1 0x10
            a@2 finish
            a@4 finish
            a@4 < finished
        "
        ));
    }
}

#[test]
fn headers_that_do_not_fit_end_their_stream_alone() {
    for (bytes, code) in [
        // A second control flow.
        ("110000", "0xb5"),
        // A flow of the server, with any identifier.
        ("13030000", "0xb5"),
        ("13020000", "0xb5"),
        // A foreign identifier, and that of the control flow.
        ("12030000", "0xb6"),
        ("12000000", "0xb6"),
        // Optional headers, persistent aliases, clean and abort together.
        ("12020080", "0xb9"),
        ("12020020", "0xb7"),
        ("12020003", "0xbf"),
        // No state although it must be there.
        ("12020002", "0xb3"),
        // Another protocol's flow.
        ("1402", "0xbe"),
        ("1402aabbccdd", "0xbe"),
    ] {
        for stream in [2, 4] {
            check(&format!(
                "
                a > CONNECT a clean => CONNACK
                a@{stream} > hex {bytes}
                a@{stream} < reset {code}
                a > PINGREQ => PINGRESP
            "
            ));
        }
    }
}

#[test]
fn a_stream_that_ends_within_its_header_or_a_packet_is_reset() {
    check(
        "
        a > CONNECT a clean => CONNACK
        a@4 > hex 1202
        a@4 finish
        a@4 < reset 0xba
        a@8 > hex 12020000 30
        a@8 finish
        a@8 < reset 0xba
        a@2 > hex 12
        a@2 finish
        a@2 < reset 0xba
        a > PINGREQ => PINGRESP
    ",
    );
}

#[test]
fn control_has_the_control_header_or_none() {
    for bytes in ["110200", "12020000", "13030000", "1402"] {
        check(&format!(
            "
            a > hex {bytes}
            a < closed 180
        "
        ));
    }
}

#[test]
fn a_flow_that_was_lost_is_recovered_with_its_subscriptions() {
    check(
        "
        a > CONNECT a expiry=100 => CONNACK
        # Flow 2, 60 s, QoS and subscriptions outlive the stream.
        a@4 >> hex 12023c50
        a@4 > SUBSCRIBE 1 t|q1 => SUBACK 1 01
        a@4 > PUBLISH u 1 q2 #9 => PUBREC 9 0x10
        a cut
        b > CONNECT b clean => CONNACK
        b > PUBLISH t 1 q1 #1 => PUBACK 1
        a > CONNECT a expiry=100
        a@0 < CONNACK present
        # Until the flow is back, control stands in.
        a@0 < PUBLISH t 1 q1 #1
        a > PUBACK 1
        a@8 >> hex 12023c52
        a@8 > PUBLISH u 1 q2 #9 dup => PUBREC 9
        a@8 > PUBREL 9 => PUBCOMP 9
        b > PUBLISH t 2
        a@8 < PUBLISH t 2
        # Another stream takes over.
        a@12 >> hex 12023c52
        a@12 > PINGREQ
        a@8 < reset 0xbc
        a@12 < PINGRESP
        b > PUBLISH t 3
        a@12 < PUBLISH t 3
        # An earlier one does not, though it comes later.
        a@2 > hex 12023c52
        a@2 < reset 0xbc
        # Ended in order, it is over.
        a@12 finish
        a@12 < finished
        b > PUBLISH t 4
        a@16 > hex 12023c52
        a@16 < reset 0xb3
        a@20 > hex 12023c52
        a@20 < reset 0xb3
        a@0 < DISCONNECT 0x82
        a@0 < closed 179
    "
        .replace(
            "a@20 < reset 0xb3\n        a@0 < DISCONNECT 0x82",
            "a@0 < DISCONNECT 0x82",
        )
        .as_str(),
    );
}

#[test]
fn a_flow_that_keeps_nothing_loses_its_subscriptions_with_its_stream() {
    check(
        "
        a > CONNECT a expiry=100 => CONNACK
        a@4 >> hex 12023c10
        a@4 > SUBSCRIBE 1 t|q1 => SUBACK 1 01
        a@8 >> hex 12043c40
        a@8 > SUBSCRIBE 1 u|q1 => SUBACK 1 01
        a@4 reset 0xbc
        a@4 < reset 0xbc
        a@8 reset 0xbc
        a@8 < reset 0xbc
        a > PUBLISH t 1
        a > PUBLISH u 1
        a@0 < PUBLISH u 1
        # The state of the second is discarded.
        a@12 > hex 12040001
        a@12 finish
        a@12 < finished
        a > PUBLISH u 2
    ",
    );
}

#[test]
fn a_flow_that_is_not_recovered_in_time_is_forgotten() {
    check(
        "
        a > CONNECT a expiry=100 => CONNACK
        a@4 >> hex 12020a40
        a@4 > SUBSCRIBE 1 t|q1 => SUBACK 1 01
        a cut
        wait 11s
        a > CONNECT a expiry=100 => CONNACK present
        a > PUBLISH t 1
        a@4 > hex 12020a42
        a@4 < reset 0xb3
    ",
    );
}

#[test]
fn durable_streams_can_be_declined() {
    check(
        "
        a > CONNECT a expiry=100 u=dunlin-durable-streams:0 => CONNACK
        a@4 > SUBSCRIBE 1 t|q1 => SUBACK 1 01
        a@8 > SUBSCRIBE 1 u|q1 => SUBACK 1 01
        a@8 finish
        a@8 < finished
        a > PUBLISH u 1
        a > PUBLISH t 1
        a@4 < PUBLISH t 1
        a cut
        a > CONNECT a expiry=100 u=dunlin-durable-streams:0 => CONNACK present
        a > PUBLISH t 2
        a > UNSUBSCRIBE 2 t => UNSUBACK 2 11
    ",
    );
}

#[test]
fn what_ends_before_connack_is_handled_after_it() {
    check(
        "
        set data_streams_max=1
        a@2 >> PUBLISH t 1 q1 #1
        a@2 finish
        a > CONNECT a clean
        a@0 < CONNACK
        a@0 < PUBACK 1 0x10
        a@6 > PUBLISH t 2 q1 #2
        a@0 < PUBACK 2 0x10
    ",
    );
}
