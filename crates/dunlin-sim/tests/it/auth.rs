//! Enhanced authentication: section 4.12 of MQTT 5.0, with SCRAM-SHA-256.

use core::time::Duration;

use dunlin_base::StreamId;
use dunlin_base::transport::{BindingType, Transport};
use dunlin_broker::auth::{Anonymous, AuthPolicy};
use dunlin_mqtt::scram::{Binding, ChannelBinding, Client, METHOD, METHOD_PLUS};
use dunlin_mqtt_codec::{
    Auth, AuthProperties, Connect, ConnectProperties, Packet, ReasonCode, Version, decode, peek,
};
use dunlin_sim::{Setup, ToClient, World, channel_of, check, show};

/// One client that speaks SCRAM.
pub(crate) struct Rig {
    pub(crate) world: World,
    conn: dunlin_base::ConnId,
    bytes: Vec<u8>,
    pub(crate) open: bool,
}

fn rig(shards: u16) -> Rig {
    rig_over(Transport::Quic, shards)
}

fn rig_over(transport: Transport, shards: u16) -> Rig {
    rig_from("127.0.0.1:40000", transport, shards, false)
}

pub(crate) fn rig_from(addr: &str, transport: Transport, shards: u16, tokens: bool) -> Rig {
    let mut setup = Setup::new(shards, 7);
    setup.transport = transport;
    setup.users = &[("alice", "secret"), ("bob", "hunter2")];
    setup.config.listeners = vec![AuthPolicy {
        anonymous: Anonymous::Never,
        passwords: true,
        tokens,
        ..AuthPolicy::default()
    }];
    let mut world = World::new(setup);
    let conn = world.open_from(addr, None);
    Rig {
        world,
        conn,
        bytes: Vec::new(),
        open: true,
    }
}

impl Rig {
    pub(crate) fn send(&mut self, packet: &Packet<'_>) {
        self.send_all(core::slice::from_ref(packet));
    }

    /// Sends packets at once.
    pub(crate) fn send_all(&mut self, packets: &[Packet<'_>]) {
        let mut out = Vec::new();
        for packet in packets {
            packet.encode(Version::V5, &mut out).expect("encodes");
        }
        self.world.send(self.conn, StreamId::CONTROL, &out);
        self.settle();
    }

    /// Lets time pass.
    pub(crate) fn wait(&mut self, time: Duration) {
        let until = self.world.now() + time;
        while let Some((_, event)) = self.world.next(until) {
            self.see(event);
        }
    }

    fn settle(&mut self) {
        while let Some((_, event)) = self.world.next_before_quiet() {
            self.see(event);
        }
    }

    fn see(&mut self, event: ToClient) {
        match event {
            ToClient::Bytes(_, bytes) => self.bytes.extend(bytes),
            ToClient::Closed(_) => self.open = false,
            _ => {}
        }
    }

    /// The next packet as a line, with the authentication data that it has.
    pub(crate) fn read(&mut self) -> (String, Vec<u8>) {
        let frame = peek(&self.bytes, u32::MAX).expect("valid").expect("whole");
        let packet: Vec<u8> = self.bytes.drain(..frame.total_len).collect();
        let packet = decode(&packet, Version::V5).expect("valid");
        let data = match &packet {
            Packet::Auth(auth) => auth.properties.authentication_data,
            Packet::ConnAck(connack) => connack.properties.authentication_data,
            _ => None,
        };
        let data = data.unwrap_or_default().to_vec();
        (show(&packet, Version::V5), data)
    }

    fn connect(&mut self, client: &Client<'_>) {
        self.connect_by(METHOD, &first(client));
    }

    pub(crate) fn connect_by(&mut self, method: &str, first: &[u8]) {
        let connect = Connect {
            client_id: "c",
            properties: ConnectProperties {
                authentication_method: Some(method),
                authentication_data: Some(first),
                ..ConnectProperties::default()
            },
            ..Connect::default()
        };
        self.send(&Packet::Connect(connect));
    }

    pub(crate) fn auth(&mut self, reason: ReasonCode, method: &str, data: &[u8]) {
        self.send(&Packet::Auth(auth_of(reason, method, data)));
    }
}

pub(crate) fn auth_of<'a>(reason: ReasonCode, method: &'a str, data: &'a [u8]) -> Auth<'a> {
    let properties = AuthProperties {
        authentication_method: Some(method),
        authentication_data: Some(data),
        ..AuthProperties::default()
    };
    Auth { reason, properties }
}

fn first(client: &Client<'_>) -> Vec<u8> {
    let mut first = Vec::new();
    client.first(&mut first).expect("valid");
    first
}

fn alice(password: &'static [u8]) -> Client<'static> {
    Client {
        user: "alice",
        password,
        nonce: "fyko+d2lbbFgONRv9qkxdawL",
        binding: Binding::Unsupported,
    }
}

fn connected(shards: u16) -> Rig {
    let mut rig = rig(shards);
    let client = alice(b"secret");
    rig.connect(&client);
    let (line, challenge) = rig.read();
    //= mqtt5#[MQTT-4.12.0-2] type=test
    assert_eq!(line, "AUTH 0x18 SCRAM-SHA-256");
    let mut answer = Vec::new();
    let expect = client.respond(&challenge, &mut answer).expect("valid");
    rig.auth(ReasonCode::ContinueAuthentication, METHOD, &answer);
    let (line, last) = rig.read();
    //= mqtt5#[MQTT-4.12.0-5] type=test
    assert_eq!(line, "CONNACK auth=SCRAM-SHA-256");
    expect.verify(&last).expect("the server knows the password");
    rig
}

#[test]
fn the_right_password_connects_and_authenticates_again() {
    //= mqtt5#[MQTT-3.15.2-1] type=test
    for shards in [1, 2] {
        let mut rig = connected(shards);
        let client = alice(b"secret");
        let mut first = Vec::new();
        client.first(&mut first).expect("valid");
        rig.auth(ReasonCode::ReAuthenticate, METHOD, &first);
        let (line, challenge) = rig.read();
        assert_eq!(line, "AUTH 0x18 SCRAM-SHA-256");
        // The connection goes on meanwhile.
        rig.send(&Packet::PingReq);
        assert_eq!(rig.read().0, "PINGRESP");
        let mut answer = Vec::new();
        let expect = client.respond(&challenge, &mut answer).expect("valid");
        rig.auth(ReasonCode::ContinueAuthentication, METHOD, &answer);
        let (line, last) = rig.read();
        assert_eq!(line, "AUTH SCRAM-SHA-256");
        expect.verify(&last).expect("the server knows the password");
    }
}

#[test]
fn the_wrong_password_is_refused() {
    //= mqtt5#[MQTT-4.12.0-4] type=test
    for (user, password) in [("alice", "wrong"), ("nobody", "secret")] {
        let mut rig = rig(2);
        let client = Client {
            user,
            password: password.as_bytes(),
            nonce: "abc",
            binding: Binding::Unsupported,
        };
        rig.connect(&client);
        let (line, challenge) = rig.read();
        assert_eq!(line, "AUTH 0x18 SCRAM-SHA-256");
        let mut answer = Vec::new();
        client.respond(&challenge, &mut answer).expect("valid");
        rig.auth(ReasonCode::ContinueAuthentication, METHOD, &answer);
        assert_eq!(rig.read().0, "CONNACK 0x87");
        assert!(!rig.open);
        assert_eq!(rig.world.proofs, [(user.into(), false)]);
    }
}

#[test]
fn authenticating_again_with_the_wrong_password_ends_the_connection() {
    //= mqtt5#[MQTT-4.12.1-2] type=test
    let mut rig = connected(2);
    let client = alice(b"wrong");
    let mut first = Vec::new();
    client.first(&mut first).expect("valid");
    rig.auth(ReasonCode::ReAuthenticate, METHOD, &first);
    let (_, challenge) = rig.read();
    let mut answer = Vec::new();
    client.respond(&challenge, &mut answer).expect("valid");
    rig.auth(ReasonCode::ContinueAuthentication, METHOD, &answer);
    assert_eq!(rig.read().0, "DISCONNECT 0x87");
    assert!(!rig.open);
}

#[test]
fn a_connection_keeps_its_method_and_its_user() {
    //= mqtt5#[MQTT-4.12.1-1] type=test
    let mut rig = connected(2);
    rig.auth(ReasonCode::ReAuthenticate, "OTHER", b"x");
    assert_eq!(rig.read().0, "DISCONNECT 0x82");
    assert!(!rig.open);
    // Nor may it become another client.
    let mut rig = connected(2);
    let client = Client {
        user: "bob",
        password: b"hunter2",
        nonce: "abc",
        binding: Binding::Unsupported,
    };
    let mut first = Vec::new();
    client.first(&mut first).expect("valid");
    rig.auth(ReasonCode::ReAuthenticate, METHOD, &first);
    let (_, challenge) = rig.read();
    let mut answer = Vec::new();
    client.respond(&challenge, &mut answer).expect("valid");
    rig.auth(ReasonCode::ContinueAuthentication, METHOD, &answer);
    assert_eq!(rig.read().0, "DISCONNECT 0x87");
    assert!(!rig.open);
}

#[test]
fn only_auth_and_disconnect_before_connack() {
    //= mqtt5#[MQTT-3.1.2-30] type=test
    let mut rig = rig(2);
    rig.connect(&alice(b"secret"));
    rig.read();
    rig.send(&Packet::PingReq);
    assert_eq!(rig.read().0, "CONNACK 0x82");
    assert!(!rig.open);
}

#[test]
fn unknown_methods_and_auth_without_one_are_refused() {
    //= mqtt5#[MQTT-4.12.0-1] type=test
    //= mqtt5#[MQTT-4.12.0-6] type=test
    //= mqtt5#[MQTT-4.12.0-7] type=test
    //= mqtt5#[MQTT-3.15.1-1] type=test
    //= mqtt5#[MQTT-3.15.2-2] type=test
    //= mqtt5#[MQTT-3.15.2-3] type=test
    check(
        "
        set access=both
        a > CONNECT a clean auth=K5 data=x => CONNACK 0x8c
        a < closed
        # Data that is not SCRAM's.
        a > CONNECT a clean auth=SCRAM-SHA-256 data=x => CONNACK 0x87
        a < closed
        # No AUTH where CONNECT had no method: not from the server either.
        a > CONNECT a clean => CONNACK
        a > AUTH 0x19 auth=SCRAM-SHA-256 data=x => DISCONNECT 0x82
        a < closed
        # Reserved flags.
        a > CONNECT a clean => CONNACK
        a > hex f100
        a < DISCONNECT 0x81
        a < closed
        # The challenge carries method and data, and no words.
        a > CONNECT a clean auth=SCRAM-SHA-256 data=n,,n=alice,r=abc => AUTH 0x18 SCRAM-SHA-256
        a > DISCONNECT
        a < closed
        # 3.1.1 has no AUTH.
        a > CONNECT a v4 clean => CONNACK
        a > hex f000
        a < closed
    ",
    );
}

/// Alice's client, at the end of this channel.
fn bound(data: &[u8]) -> Client<'_> {
    let kind = BindingType::TlsExporter;
    Client {
        binding: Binding::Bound(ChannelBinding { kind, data }),
        ..alice(b"secret")
    }
}

#[test]
fn an_exchange_is_bound_to_its_connection() {
    for shards in [1, 2, 3] {
        let mut rig = rig(shards);
        let channel = channel_of(rig.conn);
        let client = bound(&channel);
        rig.connect_by(METHOD_PLUS, &first(&client));
        let goes_on = ReasonCode::ContinueAuthentication;
        for (begins, ends) in [
            (None, "CONNACK auth=SCRAM-SHA-256-PLUS"),
            (Some(ReasonCode::ReAuthenticate), "AUTH SCRAM-SHA-256-PLUS"),
        ] {
            if let Some(again) = begins {
                rig.auth(again, METHOD_PLUS, &first(&client));
            }
            let (line, challenge) = rig.read();
            assert_eq!(line, "AUTH 0x18 SCRAM-SHA-256-PLUS");
            let mut answer = Vec::new();
            let expect = client.respond(&challenge, &mut answer).expect("valid");
            rig.auth(goes_on, METHOD_PLUS, &answer);
            let (line, last) = rig.read();
            assert_eq!(line, ends);
            expect.verify(&last).expect("the server knows the password");
        }
        // It does not go back to one that is not bound.
        rig.auth(
            ReasonCode::ReAuthenticate,
            METHOD,
            &first(&alice(b"secret")),
        );
        assert_eq!(rig.read().0, "DISCONNECT 0x82");
    }
}

#[test]
fn one_in_the_middle_is_refused() {
    for again in [false, true] {
        let mut rig = rig(2);
        let other = rig.world.open();
        let channels = [channel_of(rig.conn), channel_of(other)];
        for client in channels
            .iter()
            .map(|it| bound(it))
            .skip(usize::from(!again))
        {
            rig.bytes.clear();
            match rig
                .world
                .shards()
                .iter()
                .any(|it| it.stats().clients_accepted > 0)
            {
                false => rig.connect_by(METHOD_PLUS, &first(&client)),
                true => rig.auth(ReasonCode::ReAuthenticate, METHOD_PLUS, &first(&client)),
            }
            let (_, challenge) = rig.read();
            let mut answer = Vec::new();
            client.respond(&challenge, &mut answer).expect("valid");
            rig.auth(ReasonCode::ContinueAuthentication, METHOD_PLUS, &answer);
        }
        let end = match again {
            false => "CONNACK 0x87",
            true => "DISCONNECT 0x87",
        };
        assert_eq!(rig.read().0, end);
        assert!(!rig.open);
    }
}

#[test]
fn what_a_client_says_of_its_channel_must_fit() {
    let quic = Transport::Quic;
    for (transport, method, first, end) in [
        // The list of methods has none, but it was refused on the way.
        (quic, METHOD, "y,,n=alice,r=abc", "CONNACK 0x87"),
        (
            quic,
            METHOD,
            "p=tls-exporter,,n=alice,r=abc",
            "CONNACK 0x87",
        ),
        (quic, METHOD_PLUS, "n,,n=alice,r=abc", "CONNACK 0x87"),
        (quic, METHOD_PLUS, "y,,n=alice,r=abc", "CONNACK 0x87"),
        (
            quic,
            METHOD_PLUS,
            "p=tls-unique,,n=alice,r=abc",
            "CONNACK 0x87",
        ),
        (quic, METHOD_PLUS, "p=,,n=alice,r=abc", "CONNACK 0x87"),
        // Nothing is there to be bound to.
        (
            Transport::Tcp,
            METHOD_PLUS,
            "p=tls-exporter,,n=alice,r=abc",
            "CONNACK 0x8c",
        ),
        (
            Transport::Tcp,
            METHOD,
            "y,,n=alice,r=abc",
            "AUTH 0x18 SCRAM-SHA-256",
        ),
    ] {
        let mut rig = rig_over(transport, 2);
        rig.connect_by(method, first.as_bytes());
        assert_eq!(rig.read().0, end, "{transport:?} {method} {first}");
    }
}
