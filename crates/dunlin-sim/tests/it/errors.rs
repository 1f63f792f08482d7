//! Pings, sizes, DISCONNECT and errors: sections 3.12, 3.14, 3.1.2.11.4 and
//! 4.13 of MQTT 5.0.

use dunlin_sim::check;

#[test]
fn pings_are_answered() {
    //= mqtt5#[MQTT-3.12.4-1] type=test
    check(
        "
        a > CONNECT a clean => CONNACK
        a > PINGREQ => PINGRESP
        b > CONNECT b v4 clean => CONNACK
        b >> PINGREQ
        b > PINGREQ => PINGRESP
        b < PINGRESP
    ",
    );
}

#[test]
fn the_server_ends_connections_with_a_reason() {
    //= mqtt5#[MQTT-3.14.0-1] type=test
    //= mqtt5#[MQTT-3.14.1-1] type=test
    //= mqtt5#[MQTT-3.14.2-1] type=test
    //= mqtt5#[MQTT-3.14.2-2] type=test
    //= mqtt5#[MQTT-3.14.4-1] type=test
    //= mqtt5#[MQTT-3.14.4-2] type=test
    //= mqtt5#[MQTT-4.13.1-1] type=test
    //= mqtt5#[MQTT-4.13.2-1] type=test
    check(
        "
        # No DISCONNECT before CONNACK.
        a > hex 00
        a < closed
        # A reserved packet type; flags that DISCONNECT does not have; a packet
        # that only a server sends; one that is not for servers at all.
        a > CONNECT a clean => CONNACK
        a >> hex 00
        a > PINGREQ => DISCONNECT 0x81
        a < closed
        a > CONNECT a clean => CONNACK
        a > hex e100
        a < DISCONNECT 0x81
        a < closed
        a > CONNECT a clean => CONNACK
        a > CONNACK => DISCONNECT 0x82
        a < closed
        a > CONNECT a clean => CONNACK
        a > PINGRESP => DISCONNECT 0x82
        a < closed
        # A session that ends with its connection cannot be prolonged.
        a > CONNECT a clean => CONNACK
        a > DISCONNECT expiry=10 => DISCONNECT 0x82
        a < closed
        # A property that the packet does not have, and one twice.
        a > CONNECT a clean => CONNACK
        a > hex 3006 0001 74 02 1701
        a < DISCONNECT 0x81
        a < closed
        a > CONNECT a clean => CONNACK
        a > hex 3008 0001 74 04 0101 0101
        a < DISCONNECT 0x82
        a < closed
        # 3.1.1 has no DISCONNECT from the server.
        b > CONNECT b v4 clean => CONNACK
        b > hex 00
        b < closed
        b > CONNECT b v4 clean => CONNACK
        b > DISCONNECT
        b < closed
    ",
    );
}

#[test]
fn the_largest_packet_of_the_client() {
    //= mqtt5#[MQTT-3.1.2-24] type=test
    //= mqtt5#[MQTT-3.1.2-25] type=test
    let long = "x".repeat(100);
    for session in ["clean", "expiry=100"] {
        check(&format!(
            "
            a > CONNECT a {session} max=60 rm=1 aliases=5 => CONNACK
            a > SUBSCRIBE 1 t/#|q2 => SUBACK 1 02
            b > CONNECT b clean => CONNACK
            b > PUBLISH t/1 {long}
            b > PUBLISH t/1 {long} q1 #1 => PUBACK 1
            b > PUBLISH t/1 {long} q2 #2 => PUBREC 2
            b > PUBLISH t/1 short q1 #3 => PUBACK 3
            a < PUBLISH t/1 short q1 #3 alias=1
            a > PUBACK 3
            # Exactly as large as allowed, then one more byte. There is no room
            # for an alias.
            b > PUBLISH t/2 {fits}
            a < PUBLISH t/2 <52>
            b > PUBLISH t/2 {fits}y
        ",
            fits = "y".repeat(52)
        ));
    }
}

#[test]
fn a_client_that_takes_no_connack_is_let_go() {
    check(
        "
        a > CONNECT a clean max=10
        a < closed
        b > CONNECT - clean max=20
        b < closed
        c > CONNECT c v4 clean => CONNACK
    ",
    );
}

#[test]
fn the_largest_packet_of_the_server() {
    let (fits, long) = ("x".repeat(90), "x".repeat(93));
    check(&format!(
        "
        set packet_bytes_max=100
        a > CONNECT a clean => CONNACK max=100
        a > PUBLISH t {fits} q1 #1 => PUBACK 1 0x10
        a > PUBLISH t {long} q1 #1 => DISCONNECT 0x95
        a < closed
        # Refused at its header, before the body has come.
        a > CONNECT a clean => CONNACK max=100
        a > hex 30ffffff7f
        a < DISCONNECT 0x95
        a < closed
    "
    ));
}
