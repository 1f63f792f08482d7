//! The simplest conversation.
use dunlin_sim::check;
#[test]
fn smoke() {
    check(
        "
        a > CONNECT a clean => CONNACK
        a > SUBSCRIBE 1 t/+|q1 => SUBACK 1 01
        b > CONNECT b clean => CONNACK
        b > PUBLISH t/1 hi q1 #5 => PUBACK 5
        a < PUBLISH t/1 hi q1 #1
        a > PUBACK 1
        a > DISCONNECT
        a < closed
    ",
    );
}
