//! Priorities of topics, on one stream and on several.

use dunlin_sim::check;

#[test]
fn queued_alarms_overtake_telemetry_and_nothing_of_the_same_topic() {
    for connect in ["CONNECT a expiry=100", "CONNECT a v4"] {
        check(&format!(
            "
            set priority=alarms/#|7
            set priority=+/state|3
            a > {connect}
            a < CONNACK
            a > SUBSCRIBE 1 #|q1 => SUBACK 1 01
            a cut
            b > CONNECT b clean => CONNACK
            b > PUBLISH t 1 q1 #1 => PUBACK 1
            b > PUBLISH t 2 q1 #2 => PUBACK 2
            b > PUBLISH x/state 1 q1 #3 => PUBACK 3
            b > PUBLISH alarms/fire 1 q1 #4 => PUBACK 4
            b > PUBLISH alarms/fire 2 q1 #5 => PUBACK 5
            b > PUBLISH x/state 2 q1 #6 => PUBACK 6
            a > {connect}
            a < CONNACK present
            a < PUBLISH alarms/fire 1 q1 #1
            a < PUBLISH alarms/fire 2 q1 #2
            a < PUBLISH x/state 1 q1 #3
            a < PUBLISH x/state 2 q1 #4
            a < PUBLISH t 1 q1 #5
            a < PUBLISH t 2 q1 #6
        "
        ));
    }
}

#[test]
fn a_part_of_the_window_is_for_alarms() {
    let telemetry: String = (1..=7)
        .map(|id| {
            format!(
                "b > PUBLISH t {id} q1 #{id}
                b < PUBACK {id}
                a < PUBLISH t {id} q1 #{id}\n"
            )
        })
        .collect();
    check(&format!(
        "
        set priority=alarms/#|7
        a > CONNECT a clean rm=8 => CONNACK
        a > SUBSCRIBE 1 #|q1 => SUBACK 1 01
        b > CONNECT b clean => CONNACK
        {telemetry}
        b > PUBLISH t 8 q1 #8 => PUBACK 8
        b > PUBLISH alarms/x 1 q1 #9 => PUBACK 9
        a < PUBLISH alarms/x 1 q1 #8
        a > PUBACK 1
        a > PUBACK 2 => PUBLISH t 8 q1 #9
    "
    ));
}

#[test]
fn after_a_restart_nothing_overtakes_what_the_store_had() {
    check(
        "
        set priority=alarms/#|7
        a > CONNECT a expiry=1000 => CONNACK
        a > SUBSCRIBE 1 #|q1 => SUBACK 1 01
        a cut
        b > CONNECT b clean => CONNACK
        b > PUBLISH alarms/x 1 q1 #1 => PUBACK 1
        b > PUBLISH t 1 q1 #2 => PUBACK 2
        crash
        b > CONNECT b clean => CONNACK
        b > PUBLISH t 2 q1 #3 => PUBACK 3
        b > PUBLISH alarms/x 2 q1 #4 => PUBACK 4
        a > CONNECT a expiry=1000 => CONNACK present
        a < PUBLISH alarms/x 1 q1 #1
        a < PUBLISH t 1 q1 #2
        a < PUBLISH alarms/x 2 q1 #3
        a < PUBLISH t 2 q1 #4
    ",
    );
}
