//! Streams that the broker opens, and datagrams.

use dunlin_sim::check;

#[test]
fn topics_come_on_streams_of_their_own_where_the_client_takes_them() {
    check(
        "
        set server_streams=2
        a > CONNECT a expiry=100 u=dunlin-streams:8 => CONNACK
        a > SUBSCRIBE 1 t/#|q2 => SUBACK 1 02
        b > CONNECT b clean => CONNACK
        b > PUBLISH t/1 x
        a@1 < flow 3
        a@1 < PUBLISH t/1 x
        b > PUBLISH t/2 y q1 #1 => PUBACK 1
        a@5 < flow 5
        a@5 < PUBLISH t/2 y q1 #1
        a@5 > PUBACK 1
        b > PUBLISH t/2 z q2 #2 => PUBREC 2
        a@5 < PUBLISH t/2 z q2 #2
        a@5 > PUBREC 2 => PUBREL 2
        a@5 > PUBCOMP 2
        # The client lets no more be opened: control, and nothing is lost.
        b > PUBLISH t/3 1
        a@0 < PUBLISH t/3 1
        # Further topics share the streams there are.
        b > PUBLISH t/4 1
        a@1 < PUBLISH t/4 1
        a grant
        b > PUBLISH t/5 1
        a@9 < flow 9
        a@9 < PUBLISH t/5 1
        # Once on control, always on control.
        b > PUBLISH t/3 2
        a@0 < PUBLISH t/3 2
        b > PUBLISH t/1 2
        a@1 < PUBLISH t/1 2
        b > PUBREL 2 => PUBCOMP 2
    ",
    );
}

#[test]
fn no_client_gets_a_stream_or_datagram_without_asking() {
    check(
        "
        set server_streams=8
        a > CONNECT a clean => CONNACK
        a > SUBSCRIBE 1 t => SUBACK 1 00
        b > CONNECT b clean u=dunlin-streams:0 u=dunlin-datagrams:often => CONNACK
        b > SUBSCRIBE 1 t => SUBACK 1 00
        a > PUBLISH t 1
        a@0 < PUBLISH t 1
        b@0 < PUBLISH t 1
    ",
    );
}

#[test]
fn by_flow_headers_a_client_says_that_it_takes_streams() {
    check(
        "
        set server_streams=8
        set protocol=MQTT-next
        a > CONNECT a clean v4 => CONNACK
        a > SUBSCRIBE 1 t => SUBACK 1 00
        b > CONNECT b clean u=dunlin-streams:0 => CONNACK
        b > SUBSCRIBE 1 t => SUBACK 1 00
        b > PUBLISH t 1
        a@1 < flow 3
        a@1 < PUBLISH t 1
        b@0 < PUBLISH t 1
    ",
    );
}

#[test]
fn what_a_subscription_on_a_data_stream_brings_stays_there() {
    check(
        "
        set server_streams=8
        a > CONNECT a clean u=dunlin-streams:8 => CONNACK
        a@4 > SUBSCRIBE 1 t => SUBACK 1 00
        a > PUBLISH t 1
        a@4 < PUBLISH t 1
    ",
    );
}

#[test]
fn a_stream_that_the_client_does_not_want_is_replaced_by_control() {
    check(
        "
        set server_streams=8
        a > CONNECT a clean u=dunlin-streams:8 => CONNACK
        a > SUBSCRIBE 1 # => SUBACK 1 00
        a > PUBLISH t 1
        a@1 < flow 3
        a@1 < PUBLISH t 1
        a@1 reset 0xc0
        a@1 < reset 0xc0
        a > PUBLISH t 2
        a@0 < PUBLISH t 2
        # It ends another in order: ours ends too, and the topic gets a new one.
        a > PUBLISH u 1
        a@5 < flow 5
        a@5 < PUBLISH u 1
        a@5 finish
        a@5 < finished
        a > PUBLISH u 2
        a@9 < flow 7
        a@9 < PUBLISH u 2
    ",
    );
}

#[test]
fn only_acknowledgements_and_pings_belong_on_the_servers_streams() {
    check(
        "
        set server_streams=8
        a > CONNECT a clean u=dunlin-streams:8 => CONNACK
        a > SUBSCRIBE 1 # => SUBACK 1 00
        a > PUBLISH t 1
        a@1 < flow 3
        a@1 < PUBLISH t 1
        a@1 > PINGREQ => PINGRESP
        a@1 > SUBSCRIBE 2 u
        a@1 < reset 0xb5
        a > PUBLISH t 2
        a@0 < PUBLISH t 2
    ",
    );
}

#[test]
fn a_resumed_session_gets_its_queue_on_streams_in_order() {
    check(
        "
        set server_streams=8
        a > CONNECT a expiry=100 u=dunlin-streams:8 => CONNACK
        a > SUBSCRIBE 1 t/#|q1 => SUBACK 1 01
        a cut
        b > CONNECT b clean => CONNACK
        b > PUBLISH t/1 1 q1 #1 => PUBACK 1
        b > PUBLISH t/1 2 q1 #2 => PUBACK 2
        b > PUBLISH t/2 1 q1 #3 => PUBACK 3
        a > CONNECT a expiry=100 u=dunlin-streams:8
        a@0 < CONNACK present
        a@1 < flow 3
        a@1 < PUBLISH t/1 1 q1 #1
        a@1 < PUBLISH t/1 2 q1 #2
        a@5 < flow 5
        a@5 < PUBLISH t/2 1 q1 #3
    ",
    );
}

#[test]
fn qos_0_goes_in_datagrams_both_ways() {
    check(
        "
        a > CONNECT a clean u=dunlin-datagrams:1000 => CONNACK
        a > SUBSCRIBE 1 t|q1 sub=7 => SUBACK 1 01
        a > SUBSCRIBE 2 u|q1 => SUBACK 2 01
        b > CONNECT b clean => CONNACK
        b > PUBLISH t 1
        a@d < PUBLISH t 1 sub=7
        b@d > PUBLISH u 2
        a@d < PUBLISH u 2
        b > PUBLISH u 3 q1 #1 => PUBACK 1
        a@0 < PUBLISH u 3 q1 #1
    ",
    );
}

#[test]
fn a_large_message_takes_a_stream() {
    let large = "x".repeat(1200);
    check(&format!(
        "
        a > CONNECT a clean u=dunlin-datagrams:1000 => CONNACK
        a > SUBSCRIBE 1 t => SUBACK 1 00
        a > PUBLISH t {large}
        a@0 < PUBLISH t <1200>
        a > PUBLISH t 1
        a@d < PUBLISH t 1
    "
    ));
}

#[test]
fn the_broker_may_be_set_to_send_none() {
    check(
        "
        set datagrams=no
        set delivery_streams_max=0
        set server_streams=8
        a > CONNECT a clean u=dunlin-datagrams:1000 u=dunlin-streams:8 => CONNACK
        a > SUBSCRIBE 1 t => SUBACK 1 00
        a > PUBLISH t 1
        a@0 < PUBLISH t 1
    ",
    );
}

#[test]
fn datagrams_before_connack_wait_and_those_of_others_are_ignored() {
    check(
        "
        set access=passwords
        b > CONNECT b clean user=bob pass=hunter2 => CONNACK
        b > SUBSCRIBE 1 t => SUBACK 1 00
        a@d >> PUBLISH t 1
        a@d >> hex 00112233
        a@d >> hex
        a >> CONNECT a clean user=alice pass=secret
        a@d > PUBLISH t 2
        a@0 < CONNACK
        b < PUBLISH t 1
        b < PUBLISH t 2
        a@d > hex 00
        a > PINGREQ => PINGRESP
    ",
    );
}

#[test]
fn what_no_datagram_may_carry_ends_the_connection() {
    for (bytes, reason) in [
        // Half a packet; a packet and a half.
        ("3005000174", "0x81"),
        ("300400017431c000", "0x81"),
        ("c000c000", "0x81"),
        // No packet type at all.
        ("f0ff", "0x81"),
        // PINGREQ, SUBSCRIBE, PUBACK.
        ("c000", "0x82"),
        ("8207000100000174 00", "0x82"),
        ("40020001", "0x82"),
        // QoS 1 and 2.
        ("32070001740001 0031", "0x82"),
        ("34070001740001 0031", "0x82"),
        // A topic alias, set or used.
        ("3008000174 03230001 31", "0x94"),
        ("3007000003230001 31", "0x94"),
    ] {
        check(&format!(
            "
            b > CONNECT b clean => CONNACK
            a > CONNECT a clean => CONNACK
            a@d > hex {bytes}
            a@0 < DISCONNECT {reason}
            a < closed
            b > PINGREQ => PINGRESP
        "
        ));
    }
}
