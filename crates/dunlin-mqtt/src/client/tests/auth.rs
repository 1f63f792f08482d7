//! Enhanced authentication (section 4.12).

use super::*;

const METHOD: &str = "SCRAM-SHA-256";

fn rig() -> Rig {
    let mut rig = Rig::new(Settings {
        early_publishes: 5,
        ..Settings::default()
    });
    let mut options = Rig::options();
    options.properties.authentication_method = Some(METHOD);
    rig.connect(&options);
    rig
}

#[test]
fn the_exchange_precedes_connack() {
    //= mqtt5#[MQTT-4.12.0-3] type=test
    //= mqtt5#[MQTT-3.1.2-30] type=test
    //= mqtt5#[MQTT-3.15.2-1] type=test
    let mut rig = rig();
    assert_eq!(rig.publish("a", 0), Err(CommandError::NotConnected));
    for _ in 0..2 {
        rig.hears("AUTH SCRAM-SHA-256 0x18", "Auth");
        rig.engine
            .authenticate(rig.now, METHOD, b"data", &mut rig.out)
            .expect("answer");
        rig.expect(&["AUTH 0x18"]);
    }
    rig.connack(false, |p| p.authentication_method = Some(METHOD));
    rig.publish("a", 0).expect("published");
    assert_eq!(
        rig.engine
            .authenticate(rig.now, METHOD, b"data", &mut rig.out),
        Err(CommandError::NotAuthenticating)
    );
}

#[test]
fn the_method_never_changes() {
    //= mqtt5#[MQTT-4.12.0-5] type=test
    let mut first = rig();
    let result = first.server("AUTH PLAIN 0x18");
    assert_eq!(result, Err(PeerError::AuthenticationMethod));
    first.expect(&["DISCONNECT 0x82"]);
    for method in [None, Some("PLAIN")] {
        let mut rig = rig();
        let mut connack = ConnAck::default();
        connack.properties.authentication_method = method;
        let result = rig.packet(Packet::ConnAck(connack));
        assert_eq!(result, Err(PeerError::AuthenticationMethod));
    }
    let mut rig = rig();
    rig.hears("AUTH SCRAM-SHA-256 0x18", "Auth");
    assert_eq!(
        rig.engine.authenticate(rig.now, "PLAIN", b"", &mut rig.out),
        Err(CommandError::NotAuthenticating)
    );
}

#[test]
fn without_a_method_there_is_no_auth() {
    //= mqtt5#[MQTT-4.12.0-6] type=test
    //= mqtt5#[MQTT-4.12.0-7] type=test
    let mut rig = Rig::connected();
    let no = Err(CommandError::NotAuthenticating);
    assert_eq!(
        rig.engine
            .reauthenticate(rig.now, METHOD, b"", &mut rig.out),
        no
    );
    assert_eq!(
        rig.engine.authenticate(rig.now, METHOD, b"", &mut rig.out),
        no
    );
    assert_eq!(
        rig.server("AUTH SCRAM-SHA-256 0x18"),
        Err(PeerError::UnexpectedPacket("AUTH"))
    );
    let mut rig = Rig::new(Settings::default());
    rig.connect(&Rig::options());
    let mut connack = ConnAck::default();
    connack.properties.authentication_method = Some(METHOD);
    let result = rig.packet(Packet::ConnAck(connack));
    assert_eq!(result, Err(PeerError::AuthenticationMethod));
}

#[test]
fn authentication_can_be_repeated() {
    //= mqtt5#[MQTT-4.12.1-1] type=test
    let mut rig = rig();
    rig.connack(false, |p| p.authentication_method = Some(METHOD));
    assert_eq!(
        rig.engine
            .reauthenticate(rig.now, "PLAIN", b"", &mut rig.out),
        Err(CommandError::NotAuthenticating)
    );
    rig.engine
        .reauthenticate(rig.now, METHOD, b"first", &mut rig.out)
        .expect("started");
    rig.expect(&["AUTH 0x19"]);
    // Everything else goes on meanwhile.
    rig.publish("a", 0).expect("published");
    rig.hears("AUTH SCRAM-SHA-256 0x18", "Auth");
    rig.engine
        .authenticate(rig.now, METHOD, b"final", &mut rig.out)
        .expect("answer");
    rig.expect(&["PUBLISH a", "AUTH 0x18"]);
    rig.hears("AUTH SCRAM-SHA-256", "Authenticated");
    // This client asked for no other.
    assert!(rig.server("AUTH SCRAM-SHA-256 0x18").is_err());
}
