//! What clients may do: the server's topics, the access list, who a session
//! belongs to, and what a reload changes.

use dunlin_base::{Random, StreamId};
use dunlin_mqtt_codec::{Connect, Packet, Version, decode};
use dunlin_sim::{Setup, ToClient, World, check};

#[test]
fn only_the_server_publishes_to_its_topics() {
    check(
        "
        sub > CONNECT sub clean
        sub < CONNACK
        sub > SUBSCRIBE 1 $SYS/#|q1
        sub < SUBACK 1 01
        a > CONNECT a clean
        a < CONNACK
        a > PUBLISH $SYS/broker/version forged q1 #1 retain
        a < PUBACK 1 0x87
        a > PUBLISH $SYS forged q2 #2
        a < PUBREC 2 0x87
        a > PUBLISH $SYS/broker/uptime forged retain
        a > PUBLISH $SYS/x forged alias=1
        a > PUBLISH - forged alias=1
        a > PUBLISH $SYSTEM/x fine q1 #3
        a < PUBACK 3 0x10
        # Acknowledged in 3.1.1, which has no reason codes, and dropped.
        b > CONNECT b v4 clean
        b < CONNACK
        b > PUBLISH $SYS/x forged q1 #1
        b < PUBACK 1
        # A will there is refused at once.
        c > CONNECT c clean will=$SYS/x:forged wretain
        c < CONNACK 0x87
        c < closed
        late > CONNECT late clean
        late < CONNACK
        late > SUBSCRIBE 1 $SYS/#|q1
        late < SUBACK 1 01
        # Nor does a list that allows it change that.
        acl topic readwrite $SYS/#
        a > PUBLISH $SYS/x forged q1 #4
        a < PUBACK 4 0x87
    ",
    );
}

/// The client identifier that the server assigns to a new client.
fn assigned(world: &mut World) -> u64 {
    let conn = world.open();
    let mut connect = Vec::new();
    let packet = Packet::Connect(Connect::default());
    packet.encode(Version::V5, &mut connect).expect("encodes");
    world.send(conn, StreamId::CONTROL, &connect);
    let mut answer = Vec::new();
    while let Some((_, event)) = world.next_before_quiet() {
        if let ToClient::Bytes(_, bytes) = event {
            answer.extend(bytes);
        }
    }
    let Packet::ConnAck(connack) = decode(&answer, Version::V5).expect("valid") else {
        panic!("no CONNACK");
    };
    let id = connack.properties.assigned_client_identifier;
    let digits = id
        .and_then(|id| id.strip_prefix("auto-"))
        .expect("its form");
    u64::from_str_radix(digits, 16).expect("hexadecimal")
}

/// The number that SplitMix64 gives after `number`.
fn successor(number: u64) -> u64 {
    let unshift = |z: u64, by: u32| {
        let mut plain = z;
        for _ in 0..64 / by {
            plain = z ^ (plain >> by);
        }
        plain
    };
    let mut z = unshift(number, 31).wrapping_mul(0x3196_42b2_d24d_8ec3);
    z = unshift(z, 27).wrapping_mul(0x96de_1b17_3f11_9089);
    let state = unshift(z, 30);
    Random::new(state).next()
}

#[test]
fn an_assigned_identifier_says_nothing_about_the_next() {
    let mut generator = Random::new(7);
    assert_eq!(successor(generator.next()), generator.next());
    for shards in [1, 2] {
        let mut world = World::new(Setup::new(shards, 7));
        let ids: Vec<u64> = (0..8).map(|_| assigned(&mut world)).collect();
        for id in &ids {
            let mut guess = *id;
            for _ in 0..8 {
                guess = successor(guess);
                assert!(!ids.contains(&guess), "{ids:x?}");
            }
        }
    }
}
