//! Streams and datagrams of QUIC against the daemon, with one shard and with
//! several, where most connections are handed over to the home of their
//! session.

use crate::support::Broker;
use crate::wire::Wire;

/// Runs a conversation for several client identifiers, so that some are at
/// home where they arrive and others are not. `$` in it is that identifier.
fn check_at(protocol: &str, settings: &[&str], script: &str) {
    for shards in [1, 3] {
        let broker = Broker::start_with(shards, settings);
        for id in ["k", "l", "m"] {
            let mut wire = Wire::new(&broker, protocol);
            wire.run(&script.replace('$', id));
        }
    }
}

fn check(script: &str) {
    check_at("mqtt", &[], script);
}

#[test]
fn each_stream_has_its_answers_and_deliveries() {
    check(
        "
        a > CONNECT $a clean
        a < CONNACK
        a@4 > SUBSCRIBE 1 $/4|q2
        a@4 < SUBACK 1 02
        a@8 > SUBSCRIBE 1 $/8|q1
        a@8 < SUBACK 1 01
        b > CONNECT $b clean
        b < CONNACK
        b@4 > PUBLISH $/4 1 q2 #1
        b@4 < PUBREC 1
        a@4 < PUBLISH $/4 1 q2 #1
        b@8 > PUBLISH $/8 2 q1 #1
        b@8 < PUBACK 1
        a@8 < PUBLISH $/8 2 q1 #2
        b@4 > PUBREL 1
        b@4 < PUBCOMP 1
        # Acknowledgements may come on any stream.
        a@8 > PUBREC 1
        a@8 < PUBREL 1
        a@4 > PUBACK 2
        a > PUBCOMP 1
        # One way, answered on control.
        b@2 > PUBLISH $/4 3 q1 #7
        b < PUBACK 7
        a@4 < PUBLISH $/4 3 q1 #3
        b@2 finish
        b@6 > PUBLISH $/8 4
        a@8 < PUBLISH $/8 4
        b@8 finish
        b@8 < finished
        a@8 > PINGREQ
        a@8 < PINGRESP
    ",
    );
}

#[test]
fn what_comes_before_connect_is_handed_over_with_it() {
    check(
        "
        b > CONNECT $b clean
        b < CONNACK
        b > SUBSCRIBE 1 $/#
        b < SUBACK 1 00
        a@4 > SUBSCRIBE 1 a
        a@8 > PUBLISH $/1 1 q1 #1
        a@2 > PUBLISH $/2 1 q1 #2
        a@2 finish
        a@d > PUBLISH $/3 1
        a > CONNECT $a clean
        a < CONNACK
        a < PUBACK 2
        a@4 < SUBACK 1 00
        a@8 < PUBACK 1
        b <~ PUBLISH $/1 1
        b <~ PUBLISH $/2 1
        b <~ PUBLISH $/3 1
    ",
    );
}

#[test]
fn topics_come_on_streams_of_their_own() {
    let script = "
        a > CONNECT $a clean u=dunlin-streams:2
        a < CONNACK
        a > SUBSCRIBE 1 $/#|q2
        a < SUBACK 1 02
        b > CONNECT $b clean
        b < CONNACK
        b > PUBLISH $/1 1
        a@1 < flow 3
        a@1 < PUBLISH $/1 1
        b > PUBLISH $/2 1 q1 #1
        b < PUBACK 1
        a@5 < flow 5
        a@5 < PUBLISH $/2 1 q1 #1
        a@5 > PUBACK 1
        b > PUBLISH $/1 2 q2 #2
        b < PUBREC 2
        a@1 < PUBLISH $/1 2 q2 #2
        a@1 > PUBREC 2
        a@1 < PUBREL 2
        a@1 > PUBCOMP 2
        # A third topic shares a stream.
        b > PUBLISH $/3 1
        a@5 < PUBLISH $/3 1
        # One that the client ends is replaced, one that it refuses is not.
        a@1 finish
        a@1 < finished
        b > PUBLISH $/1 3
        a@9 < flow 7
        a@9 < PUBLISH $/1 3
        a@5 reset 0xbe
        a@5 < reset 0xbe
        b > PUBLISH $/2 2
        a < PUBLISH $/2 2
        b > PUBREL 2
        b < PUBCOMP 2
    ";
    check(script);
    // By its protocol alone.
    check_at(
        "MQTT-next",
        &["quic.delivery_streams=2"],
        &script.replace(" u=dunlin-streams:2", ""),
    );
}

#[test]
fn flows_are_recovered_on_a_new_connection() {
    for protocol in ["mqtt", "MQTT-next"] {
        check_at(
            protocol,
            &[],
            "
            a > hex 110000
            a > CONNECT $a expiry=100 u=dunlin-streams:0
            a < CONNACK
            # Flow 2, 60 s, QoS and subscriptions outlive the stream.
            a@4 > hex 12023c50
            a@4 > SUBSCRIBE 1 $|q1
            a@4 < SUBACK 1 01
            a@4 > PUBLISH $/u 1 q2 #9
            a@4 < PUBREC 9 0x10
            # A foreign flow, and one of the server.
            a@8 > hex 12030000
            a@8 < reset 0xb6
            a@12 > hex 13030000
            a@12 < reset 0xb5
            # Half a header.
            a@16 > hex 1204
            a@16 finish
            a@16 < reset 0xba
            a@20 > hex 1402aabb
            a@20 < reset 0xbe
            a cut
            b > CONNECT $b clean u=dunlin-streams:0
            b < CONNACK
            b > PUBLISH $ 1 q1 #1
            b < PUBACK 1
            a > CONNECT $a expiry=100 u=dunlin-streams:0
            a < CONNACK present
            a < PUBLISH $ 1 q1 #1
            a > PUBACK 1
            a@4 > hex 12023c52
            a@4 > PUBREL 9
            a@4 < PUBCOMP 9
            b > PUBLISH $ 2
            a@4 < PUBLISH $ 2
            a@8 > hex 12063c52
            a@8 < reset 0xb3
        ",
        );
    }
}

#[test]
fn what_streams_carried_outlives_the_connection() {
    check(
        "
        a > CONNECT $a expiry=100
        a < CONNACK
        a@4 > SUBSCRIBE 1 $|q1
        a@4 < SUBACK 1 01
        a@8 > PUBLISH $/u 1 q2 #5
        a@8 < PUBREC 5 0x10
        b > CONNECT $b clean
        b < CONNACK
        b@4 > PUBLISH $ 1 q1 #1
        b@4 < PUBACK 1
        a@4 < PUBLISH $ 1 q1 #1
        a cut
        b > PUBLISH $ 2 q1 #1
        b < PUBACK 1
        a > CONNECT $a expiry=100
        a < CONNACK present
        a < PUBLISH $ 1 q1 #1 dup
        a < PUBLISH $ 2 q1 #2
        a > PUBREL 5
        a < PUBCOMP 5
        b > PUBLISH $ 3
        a < PUBLISH $ 3
    ",
    );
}

#[test]
fn datagrams_go_both_ways_and_large_messages_on_a_stream() {
    let large = "x".repeat(1200);
    check(
        &"
        a > CONNECT $a clean u=dunlin-datagrams:10000
        a < CONNACK
        a > SUBSCRIBE 1 $|q1
        a < SUBACK 1 01
        b > CONNECT $b clean
        b < CONNACK
        b@d > PUBLISH $ 1
        a@d < PUBLISH $ 1
        b > PUBLISH $ LARGE
        a < PUBLISH $ <1200>
        b > PUBLISH $ 2 q1 #1
        b < PUBACK 1
        a < PUBLISH $ 2 q1 #1
        # Nothing for MQTT, then what no datagram may carry.
        b@d > hex 00112233
        b@d > PUBLISH $ 3
        a@d < PUBLISH $ 3
        b@d > PUBLISH $ 4 q1 #2
        b < DISCONNECT 0x82
        b < closed 0x00
        a > PINGREQ
        a < PINGRESP
    "
        .replace("LARGE", &large),
    );
}

#[test]
fn bad_streams_get_their_answers_and_others_do_not_notice() {
    check_at(
        "mqtt",
        &["quic.max_data_streams=4"],
        "
        w > CONNECT $w clean
        w < CONNACK
        w > SUBSCRIBE 1 $
        w < SUBACK 1 00
        a > CONNECT $a clean
        a < CONNACK
        a@4 > hex 00
        a@4 < reset 0x81
        a@8 > PUBLISH $ 1
        w < PUBLISH $ 1
        a@12 > PINGREQ
        a@12 < PINGRESP
        a@16 > CONNECT again clean
        a < DISCONNECT 0x82
        a < closed 0x00
        b > CONNECT $b clean
        b < CONNACK
        b@4 > DISCONNECT
        b < DISCONNECT 0x82
        b < closed 0x00
        # First things first.
        c > PINGREQ
        c < closed 0x00
        d > hex 12020000
        d < closed 0xb4
        w > PINGREQ
        w < PINGRESP
    ",
    );
}
