//! Tokens of clients of MQTT: as a password, and as an authentication method. Those of
//! the simulator are a user, seconds, and perhaps the only topic of the client.

use core::time::Duration;

use dunlin_base::transport::Transport;
use dunlin_mqtt_codec::{Packet, Publish, ReasonCode};
use dunlin_sim::check;

use crate::auth::{Rig, auth_of, rig_from};

const METHOD: &str = "OAUTHBEARER";

/// The message that has a token.
fn message(authzid: &str, token: &str) -> Vec<u8> {
    let named = if authzid.is_empty() { "" } else { "a=" };
    format!("n,{named}{authzid},\u{1}auth=Bearer {token}\u{1}\u{1}").into_bytes()
}

fn connected(token: &str) -> Rig {
    let mut rig = rig_from("192.0.2.1:5", Transport::Tls, 2, true);
    rig.connect_by(METHOD, &message("", token));
    assert_eq!(rig.read().0, "CONNACK auth=OAUTHBEARER");
    rig
}

#[test]
fn a_token_as_password_ends_the_connection_when_it_expires() {
    check(
        "
        set access=tokens
        a > CONNECT a clean user=alice pass=alice.5 => CONNACK
        b > CONNECT b v4 clean user=anyone pass=alice.5 => CONNACK
        c > CONNECT c clean user=alice pass=secret => CONNACK
        d > CONNECT d clean user=alice pass=mallory.5 => CONNACK 0x86
        d < closed
        d > CONNECT d clean user=alice pass=alice.0x5 => CONNACK 0x86
        d < closed
        wait 4s
        a > PINGREQ => PINGRESP
        b > PINGREQ => PINGRESP
        wait 2s
        a < DISCONNECT 0x87
        a < closed
        # 3.1.1 has no packet for it.
        b < closed
        # A password has no end.
        wait 100s
        c > PINGREQ => PINGRESP
    ",
    );
}

#[test]
fn a_silent_client_is_noticed_before_its_token_expires() {
    check(
        "
        set access=tokens
        a > CONNECT a clean keep=10 user=alice pass=alice.100 => CONNACK
        wait 16s
        a < DISCONNECT 0x8d
        a < closed
    ",
    );
}

#[test]
fn rules_of_a_token_are_those_of_its_session() {
    check(
        "
        set access=tokens
        a > CONNECT a expiry=100 user=alice pass=alice.50.t => CONNACK
        a > SUBSCRIBE 1 t|q1 u => SUBACK 1 01 87
        a > PUBLISH u x q1 #1 => PUBACK 1 0x87
        # The list that there is from now on knows only bob.
        acl user bob; topic readwrite #
        a > PUBLISH u x q1 #2 => PUBACK 2 0x87
        a cut
        # They outlive the process.
        crash
        b > CONNECT b clean user=bob pass=hunter2 => CONNACK
        b > PUBLISH t one q1 #1 => PUBACK 1
        a > CONNECT a expiry=100 user=alice pass=alice.50.t => CONNACK present
        a < PUBLISH t one q1 #1
        a > PUBACK 1
        a cut
        # A token without them takes them away.
        a > CONNECT a expiry=100 user=alice pass=alice.50 => CONNACK present
        b > PUBLISH t two
        a > PUBLISH t x q1 #3 => PUBACK 3 0x87
        a cut
        # And another one gives others.
        a > CONNECT a expiry=100 user=alice pass=alice.50.+ => CONNACK present
        b > PUBLISH t three q1 #3 => PUBACK 3
        a < PUBLISH t three q1 #2
        a > PUBACK 2
    ",
    );
}

#[test]
fn a_client_renews_its_token() {
    let mut rig = connected("alice.10");
    for authzid in ["", "alice"] {
        rig.wait(Duration::from_secs(8));
        let token = message(authzid, "alice.10");
        rig.auth(ReasonCode::ReAuthenticate, METHOD, &token);
        assert_eq!(rig.read().0, "AUTH OAUTHBEARER");
    }
    rig.wait(Duration::from_secs(8));
    rig.send(&Packet::PingReq);
    assert_eq!(rig.read().0, "PINGRESP");
    rig.wait(Duration::from_secs(3));
    assert_eq!(rig.read().0, "DISCONNECT 0x87");
    assert!(!rig.open);
}

/// The rate of the token before held it up, and the next has none.
#[test]
fn a_client_with_a_token_without_a_rate_is_read_again() {
    let mut rig = connected("alice.90.limit~messages~1");
    let data = message("", "alice.90.open");
    let reason = ReasonCode::ReAuthenticate;
    let mut packets = vec![Packet::Auth(auth_of(reason, METHOD, &data))];
    let publish = Publish {
        topic: "t",
        payload: b"m",
        ..Publish::default()
    };
    packets.extend(core::iter::repeat_n(Packet::Publish(publish), 9));
    rig.send_all(&packets);
    rig.wait(Duration::from_secs(1));
    assert_eq!(rig.read().0, "AUTH OAUTHBEARER");
    rig.send(&Packet::PingReq);
    rig.wait(Duration::from_secs(20));
    assert_eq!(rig.read().0, "PINGRESP");
}

#[test]
fn a_token_that_is_not_its_own_ends_the_connection() {
    for (authzid, token, end) in [
        ("", "bob.10", "DISCONNECT 0x87"),
        ("bob", "alice.10", "DISCONNECT 0x87"),
        ("", "mallory.10", "DISCONNECT 0x87"),
        ("", "", "DISCONNECT 0x87"),
    ] {
        let mut rig = connected("alice.10");
        rig.auth(ReasonCode::ReAuthenticate, METHOD, &message(authzid, token));
        assert_eq!(rig.read().0, end, "{authzid} {token}");
        assert!(!rig.open);
    }
    // A second one before the answer, or one that goes on with nothing.
    let mut rig = connected("alice.10");
    let goes_on = ReasonCode::ContinueAuthentication;
    rig.auth(goes_on, METHOD, &message("", "alice.10"));
    assert_eq!(rig.read().0, "DISCONNECT 0x82");
}

#[test]
fn only_valid_tokens_over_encrypted_connections_let_in() {
    let far = "192.0.2.1:5";
    let hers = message("", "alice.10");
    for (transport, tokens, data, end) in [
        (
            Transport::Tls,
            true,
            hers.clone(),
            "CONNACK auth=OAUTHBEARER",
        ),
        (
            Transport::Tls,
            true,
            message("bob", "alice.10"),
            "CONNACK 0x86",
        ),
        (
            Transport::Tls,
            true,
            message("", "mallory.10"),
            "CONNACK 0x86",
        ),
        (Transport::Tls, true, b"nonsense".to_vec(), "CONNACK 0x87"),
        (Transport::Tls, false, hers.clone(), "CONNACK 0x8c"),
        (Transport::Tcp, true, hers, "CONNACK 0x8c"),
    ] {
        let mut rig = rig_from(far, transport, 2, tokens);
        rig.connect_by(METHOD, &data);
        assert_eq!(rig.read().0, end, "{transport:?} {tokens}");
    }
}
