//! PINGREQ, and servers that fall silent.

use super::*;

impl Rig {
    fn timeout(&mut self) -> Result<(), PeerError> {
        let at = self.engine.poll_timeout().expect("a deadline");
        assert!(at > self.now, "time goes on");
        self.now = at;
        self.engine.handle_timeout(self.now)
    }
}

#[test]
fn silence_is_filled_with_pings() {
    //= mqtt5#[MQTT-3.1.2-20] type=test
    let mut rig = Rig::connected();
    let start = rig.now;
    rig.timeout().expect("ping");
    assert_eq!(rig.now, start + Duration::from_secs(70));
    rig.expect(&["PINGREQ"]);
    rig.hears("PINGRESP", "Nothing");
    rig.timeout().expect("ping");
    assert_eq!(rig.now, start + Duration::from_secs(140));
    rig.expect(&["PINGREQ"]);
}

#[test]
fn traffic_both_ways_makes_pings_needless() {
    let mut rig = Rig::connected();
    for _ in 0..10 {
        rig.wait(60);
        rig.engine.handle_timeout(rig.now).expect("in time");
        rig.publish("a", 0).expect("published");
        rig.hears("PUBLISH a", "Message q0 a");
        rig.expect(&["PUBLISH a"]);
    }
    // A server that only listens is asked now and then whether it does.
    rig.wait(60);
    rig.publish("a", 0).expect("published");
    rig.wait(20);
    rig.engine.handle_timeout(rig.now).expect("in time");
    rig.expect(&["PUBLISH a", "PINGREQ"]);
}

#[test]
fn a_ping_without_answer_ends_the_connection() {
    let mut rig = Rig::connected();
    rig.timeout().expect("ping");
    rig.expect(&["PINGREQ"]);
    let sent = rig.now;
    assert_eq!(rig.timeout(), Err(PeerError::PingTimeout));
    assert_eq!(rig.now, sent + Duration::from_secs(10));
    rig.expect(&[]);
    assert_eq!(rig.engine.poll_timeout(), None);
}

/// How long an answer may take follows from how often is asked, unless the
/// owner says it.
#[test]
fn who_pings_often_learns_soon() {
    for (keep_alive, chosen, expected) in [
        (1, None, 1000),
        (5, None, 2500),
        (20, None, 10_000),
        (600, None, 10_000),
        (600, Some(300), 300),
        (5, Some(30_000), 30_000),
    ] {
        let mut rig = Rig::new(Settings {
            ping_timeout: chosen.map(Duration::from_millis),
            ..Settings::default()
        });
        rig.connect(&Connect {
            keep_alive,
            ..Rig::options()
        });
        rig.connack(false, |_| {});
        rig.timeout().expect("ping");
        rig.expect(&["PINGREQ"]);
        let sent = rig.now;
        while rig.timeout().is_ok() {}
        assert_eq!(
            rig.now - sent,
            Duration::from_millis(expected),
            "{keep_alive}"
        );
    }
}

#[test]
fn an_answer_that_was_not_read_is_not_missing() {
    let mut rig = Rig::connected();
    rig.timeout().expect("ping");
    rig.expect(&["PINGREQ"]);
    rig.engine.handle_read_paused(rig.now, true);
    // The keep alive goes on while the application does not read.
    for _ in 0..5 {
        rig.timeout().expect("ping");
        rig.expect(&["PINGREQ"]);
    }
    rig.engine.handle_read_paused(rig.now, false);
    rig.wait(9);
    rig.engine.handle_timeout(rig.now).expect("in time");
    rig.hears("PINGRESP", "Nothing");
}

#[test]
fn no_keep_alive_no_pings() {
    let mut rig = Rig::new(Settings::default());
    let mut options = Rig::options();
    options.keep_alive = 0;
    rig.connect(&options);
    rig.connack(false, |_| {});
    assert_eq!(rig.engine.poll_timeout(), None);
}

#[test]
fn connack_must_come_in_time() {
    let mut rig = Rig::new(Settings::default());
    rig.connect(&Rig::options());
    rig.wait(9);
    rig.engine.handle_timeout(rig.now).expect("in time");
    rig.wait(1);
    assert_eq!(
        rig.engine.handle_timeout(rig.now),
        Err(PeerError::ConnectTimeout)
    );
    rig.expect(&[]);
}
