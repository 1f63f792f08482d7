//! What clients may do: the server's topics, the access list, who a session
//! belongs to, and what a reload changes.

use dunlin_base::{Random, StreamId};
use dunlin_broker::auth::{Anonymous, AuthPolicy};
use dunlin_broker::{AccessKind, Event};
use dunlin_mqtt_codec::{Connect, Packet, Version, decode};
use dunlin_sim::{Script, Setup, ToClient, World, check};

#[test]
fn only_the_server_publishes_to_its_topics() {
    check(
        "
        sub > CONNECT sub clean => CONNACK
        sub > SUBSCRIBE 1 $SYS/#|q1 => SUBACK 1 01
        a > CONNECT a clean => CONNACK
        a > PUBLISH $SYS/broker/version forged q1 #1 retain => PUBACK 1 0x87
        a > PUBLISH $SYS forged q2 #2 => PUBREC 2 0x87
        a > PUBLISH $SYS/broker/uptime forged retain
        a > PUBLISH $SYS/x forged alias=1
        a > PUBLISH - forged alias=1
        a > PUBLISH $SYSTEM/x fine q1 #3 => PUBACK 3 0x10
        # Acknowledged in 3.1.1, which has no reason codes, and dropped.
        b > CONNECT b v4 clean => CONNACK
        b > PUBLISH $SYS/x forged q1 #1 => PUBACK 1
        # A will there is refused at once, and dropped in 3.1.1: mosquitto's bridges
        # have one.
        c > CONNECT c clean will=$SYS/x:forged wretain => CONNACK 0x87
        c < closed
        d > CONNECT d v4 clean bridge will=$SYS/x:forged wretain => CONNACK
        d cut
        late > CONNECT late clean => CONNACK
        late > SUBSCRIBE 1 $SYS/#|q1 => SUBACK 1 01
        # Nor does a list that allows it change that.
        acl topic readwrite $SYS/#
        a > PUBLISH $SYS/x forged q1 #4 => PUBACK 4 0x87
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

#[test]
fn a_session_belongs_to_its_user() {
    check(
        "
        set access=passwords
        a > CONNECT dev expiry=100 user=alice pass=secret => CONNACK
        a > SUBSCRIBE 1 vault/#|q1 => SUBACK 1 01
        # Neither a live one is taken over,
        b > CONNECT dev expiry=100 user=bob pass=hunter2 => CONNACK 0x85
        b < closed
        b > CONNECT dev clean user=bob pass=hunter2 => CONNACK 0x85
        b < closed
        b > CONNECT dev v4 user=bob pass=hunter2 => CONNACK 0x85
        b < closed
        a > PINGREQ => PINGRESP
        # nor one that waits resumed,
        a cut
        p > CONNECT p clean user=alice pass=secret => CONNACK
        p > PUBLISH vault/x gold q1 #1 => PUBACK 1
        b > CONNECT dev expiry=100 user=bob pass=hunter2 => CONNACK 0x85
        b < closed
        # nor after a restart.
        crash
        b > CONNECT dev clean user=bob pass=hunter2 => CONNACK 0x85
        b < closed
        a > CONNECT dev expiry=100 user=alice pass=secret => CONNACK present
        a < PUBLISH vault/x gold q1 #1
        a > PUBACK 1
        # Sessions that end with their connection, on any shard.
        c > CONNECT live clean user=alice pass=secret => CONNACK
        d > CONNECT live clean user=bob pass=hunter2 => CONNACK 0x85
        d < closed
        d > CONNECT live user=bob pass=hunter2 expiry=9 => CONNACK 0x85
        d < closed
        e > CONNECT live clean user=alice pass=secret
        c < DISCONNECT 0x8e
        c < closed
        e < CONNACK
    ",
    );
}

#[test]
fn the_session_of_another_user_may_be_ended_instead() {
    check(
        "
        set access=passwords
        set other_user=clean
        a > CONNECT dev expiry=100 user=alice pass=secret => CONNACK
        a > SUBSCRIBE 1 vault/#|q1 => SUBACK 1 01
        b > CONNECT dev expiry=100 user=bob pass=hunter2
        a < DISCONNECT 0x8e
        a < closed
        b < CONNACK
        p > CONNECT p clean user=alice pass=secret => CONNACK
        p > PUBLISH vault/x gold q1 #1 => PUBACK 1 0x10
    ",
    );
}

#[test]
fn a_session_of_no_user_belongs_to_the_first_that_resumes_it() {
    check(
        "
        set access=both
        set acl=topic read t; user alice; topic write t
        a > CONNECT dev expiry=100 => CONNACK
        a > SUBSCRIBE 1 t|q1 => SUBACK 1 01
        a cut
        a > CONNECT dev expiry=100 user=alice pass=secret => CONNACK present
        # What the new user may not receive is not delivered.
        a > PUBLISH t x q1 #1 => PUBACK 1 0x10
        a cut
        crash
        a > CONNECT dev expiry=100 => CONNACK 0x85
        a < closed
    ",
    );
}

#[test]
fn rights_to_receive_end_with_the_line_that_gave_them() {
    check(
        "
        set access=passwords
        set acl=user alice; topic read a/#; user bob; topic write a/#
        a > CONNECT a expiry=100 user=alice pass=secret => CONNACK
        a > SUBSCRIBE 1 a/#|q1 a/x => SUBACK 1 01 00
        b > CONNECT b v4 clean user=bob pass=hunter2 => CONNACK
        b > PUBLISH a/x one q1 #1 => PUBACK 1
        a < PUBLISH a/x one q1 #1
        a > PUBACK 1
        # Part of a subscription: each message is checked.
        acl user alice; topic read a/y; user bob; topic write a/#
        b > PUBLISH a/x two q1 #2 => PUBACK 2
        b > PUBLISH a/x two
        b > PUBLISH a/y three q1 #3 => PUBACK 3
        a < PUBLISH a/y three q1 #2
        a > PUBACK 2
        a cut
        b > PUBLISH a/y queued q1 #4 => PUBACK 4
        # All of it, and what waited for the client too.
        acl user bob; topic write a/#
        crash
        b > CONNECT b v4 clean user=bob pass=hunter2 => CONNACK
        b > PUBLISH a/y five q1 #5 => PUBACK 5
        a > CONNECT a expiry=100 user=alice pass=secret => CONNACK present
        # The subscription is still there, should the right come back.
        acl user alice; topic read a/#; user bob; topic write a/#
        b > PUBLISH a/y six q1 #6 => PUBACK 6
        a < PUBLISH a/y six q1 #2
        a > PUBACK 2
        acl -
        b > PUBLISH a/x seven q1 #7 => PUBACK 7
        a < PUBLISH a/x seven q1 #3
    ",
    );
}

#[test]
fn a_subscription_that_is_allowed_in_part_is_filtered() {
    check(
        "
        set access=both
        set filter_subscriptions=yes
        acl user bob; topic write #; client a; topic read plant/1/#; topic deny plant/1/secret; client w; topic read other/#; pattern deny hidden/#
        p > CONNECT p expiry=1000 user=bob pass=hunter2 => CONNACK
        p > PUBLISH plant/1/kept 1 retain q1 #1 => PUBACK 1 0x10
        p > PUBLISH plant/1/secret 2 retain q1 #2 => PUBACK 2 0x10
        p > PUBLISH plant/2/kept 3 retain q1 #3 => PUBACK 3 0x10
        a > CONNECT a expiry=1000 => CONNACK
        a > SUBSCRIBE 1 # => SUBACK 1 00
        a < PUBLISH plant/1/kept 1 retain
        a > UNSUBSCRIBE 2 # => UNSUBACK 2 00
        # Of these nothing is allowed, and a member of a group would take what others may have.
        a > SUBSCRIBE 3 other/# plant/1/secret hidden/+ $share/g/plant/# $share/g/plant/1/x => SUBACK 3 87 87 87 87 00
        a > UNSUBSCRIBE 4 $share/g/plant/1/x => UNSUBACK 4 00
        a > SUBSCRIBE 5 plant/+/+|q1 => SUBACK 5 01
        a < PUBLISH plant/1/kept 1 q1 #1 retain
        a > PUBACK 1
        o > CONNECT o v4 clean => CONNACK
        o > SUBSCRIBE 1 # => SUBACK 1 80
        p > PUBLISH plant/1/x 4 q1 #4 => PUBACK 4
        a < PUBLISH plant/1/x 4 q1 #2
        a > PUBACK 2
        p > PUBLISH plant/2/x 5 q1 #5 => PUBACK 5 0x10
        p > PUBLISH plant/1/secret 6 q1 #6 => PUBACK 6 0x10
        p > PUBLISH plant/1/x 7
        a < PUBLISH plant/1/x 7
        p > PUBLISH plant/2/x 8
        # While its client is away, and after a restart.
        a cut
        p > PUBLISH plant/2/x 9 q1 #7 => PUBACK 7 0x10
        p > PUBLISH plant/1/x 10 q1 #8 => PUBACK 8
        crash
        p > CONNECT p expiry=1000 user=bob pass=hunter2 => CONNACK present
        p > PUBLISH plant/2/x 11 q1 #9 => PUBACK 9 0x10
        p > PUBLISH plant/1/x 12 q1 #10 => PUBACK 10
        a > CONNECT a expiry=1000 => CONNACK present
        a < PUBLISH plant/1/x 10 q1 #1
        a < PUBLISH plant/1/x 12 q1 #2
        a > PUBACK 1
        a > PUBACK 2
        # Other lines allow other messages.
        acl user bob; topic write #; client a; topic read plant/2/#
        p > PUBLISH plant/1/x 13 q1 #11 => PUBACK 11 0x10
        p > PUBLISH plant/2/x 14 q1 #12 => PUBACK 12
        a < PUBLISH plant/2/x 14 q1 #3
        a > PUBACK 3
    ",
    );
}

/// Rules that a token brings are lines of its client.
#[test]
fn own_rules_may_allow_a_part() {
    check(
        "
        set access=tokens
        set filter_subscriptions=yes
        p > CONNECT p clean user=bob pass=hunter2 => CONNACK
        a > CONNECT a clean user=alice pass=alice.90.read~plant/%u/#;deny~plant/alice/x => CONNACK
        a > SUBSCRIBE 1 plant/#|q1 news => SUBACK 1 01 87
        p > PUBLISH plant/alice/y 1 q1 #1 => PUBACK 1
        a < PUBLISH plant/alice/y 1 q1 #1
        a > PUBACK 1
        p > PUBLISH plant/alice/x 2
        p > PUBLISH plant/bob/y 3
        p > PUBLISH plant/alice/z 4
        a < PUBLISH plant/alice/z 4
    ",
    );
}

#[test]
fn users_that_are_gone_or_have_a_new_password_are_disconnected() {
    check(
        "
        set access=passwords
        a > CONNECT a expiry=100 user=alice pass=secret => CONNACK
        a > SUBSCRIBE 1 t|q1 $share/g/u|q1 => SUBACK 1 01 01
        b > CONNECT b v4 clean user=bob pass=hunter2 will=w:x => CONNACK
        user alice -
        a < DISCONNECT 0x87
        a < closed
        b > PUBLISH t one q1 #1 => PUBACK 1
        b > PUBLISH u one q1 #2 => PUBACK 2
        crash
        b > CONNECT b v4 clean user=bob pass=hunter2 => CONNACK
        b > PUBLISH t two q1 #1 => PUBACK 1
        b > PUBLISH u two q1 #2 => PUBACK 2
        a > CONNECT a expiry=100 user=alice pass=secret => CONNACK 0x86
        a < closed
        user alice new
        a > CONNECT a expiry=100 user=alice pass=new => CONNACK present
        b > PUBLISH t three q1 #3 => PUBACK 3
        a < PUBLISH t three q1 #1
        a > PUBACK 1
        b > PUBLISH u four q1 #4 => PUBACK 4
        a < PUBLISH u four q1 #2
        a > PUBACK 2
        user alice other
        a < DISCONNECT 0x87
        a < closed
        # An exchange that began with the old password.
        a > CONNECT a clean auth=SCRAM-SHA-256 data=n,,n=alice,r=abc => AUTH 0x18 SCRAM-SHA-256
        user alice another
        a < CONNACK 0x87
        a < closed
        b > PINGREQ => PINGRESP
    ",
    );
}

#[test]
fn messages_of_a_group_go_to_members_with_rights() {
    check(
        "
        set access=passwords
        set acl=user alice; topic readwrite t; user bob; topic readwrite t
        a > CONNECT a clean user=alice pass=secret => CONNACK
        a > SUBSCRIBE 1 $share/g/t|q1 => SUBACK 1 01
        b > CONNECT b clean user=bob pass=hunter2 => CONNACK
        b > SUBSCRIBE 1 $share/g/t|q1 => SUBACK 1 01
        acl user alice; topic write t; user bob; topic readwrite t
        a > PUBLISH t one q1 #1 => PUBACK 1
        b < PUBLISH t one q1 #1
        b > PUBACK 1
        a > PUBLISH t two q1 #1 => PUBACK 1
        b < PUBLISH t two q1 #2
        b > PUBACK 2
        # A subscription that is made again is refused.
        a > SUBSCRIBE 2 $share/g/t|q1 => SUBACK 2 87
        b > DISCONNECT
        b < closed
        a > PUBLISH t three q1 #1 => PUBACK 1 0x10
        a > UNSUBSCRIBE 3 $share/g/t => UNSUBACK 3 00
    ",
    );
}

/// A conversation in which only alice and bob are let in.
fn guarded(shards: u16) -> Script {
    let mut setup = Setup::new(shards, 1);
    setup.users = &[("alice", "secret"), ("bob", "hunter2")];
    setup.acl = Some("user alice\ntopic readwrite a\n".to_owned());
    setup.config.listeners = vec![AuthPolicy {
        anonymous: Anonymous::Never,
        passwords: true,
        certificates: false,
        tokens: false,
        ..AuthPolicy::default()
    }];
    Script::new(setup)
}

#[test]
fn what_happens_to_access_is_in_the_log() {
    let conversation = "
        a > CONNECT dev user=alice pass=secret => CONNACK
        a > PUBLISH b x q1 #1 => PUBACK 1 0x87
        a > SUBSCRIBE 1 c a => SUBACK 1 87 00
        b > CONNECT dev user=bob pass=hunter2 => CONNACK 0x85
        b < closed
        b > CONNECT x user=bob pass=wrong => CONNACK 0x86
        b < closed
        b > CONNECT x => CONNACK 0x87
        b < closed
        c > CONNECT dev user=alice pass=secret
        a < DISCONNECT 0x8e
        a < closed
        c < CONNACK
        user alice -
        c < DISCONNECT 0x87
        c < closed
    ";
    for shards in [1, 2] {
        let mut run = guarded(shards);
        for line in conversation.lines() {
            run.step(line.trim())
                .unwrap_or_else(|error| panic!("{line}: {error}"));
        }
        let log = run.world.take_log().into_iter();
        let got: Vec<String> = log
            .filter_map(|event| match event {
                Event::Access(event) => {
                    assert_eq!(event.peer.addr.to_string(), "127.0.0.1:40000");
                    let or_dash = |text: Option<dunlin_base::Text>| {
                        text.map_or_else(|| "-".to_owned(), |text| text.to_string())
                    };
                    let (user, topic) = (or_dash(event.user), or_dash(event.topic));
                    let (kind, cause) = (event.kind.name(), event.cause);
                    Some(format!(
                        "{kind}: {} {user} {topic}: {cause}",
                        event.client_id
                    ))
                }
                _ => None,
            })
            .collect();
        let want = [
            "client accepted: dev alice -: password",
            "topic denied: dev alice b: may not publish",
            "topic denied: dev alice c: may not subscribe",
            "client refused: dev bob -: the session belongs to another user",
            "client refused: x bob -: wrong user name or password",
            "client refused: x - -: no credentials",
            "session taken over: dev alice -: another connection has the client identifier",
            "client accepted: dev alice -: password",
            "access revoked: dev alice -: the user is gone or has another password",
        ];
        assert_eq!(got, want, "shards {shards}");
    }
}

#[test]
fn lines_about_access_are_limited_and_the_rest_is_counted() {
    const TRIALS: u64 = 300;
    let mut run = guarded(1);
    run.step("a > CONNECT a clean user=alice pass=secret")
        .expect("sent");
    run.step("a < CONNACK").expect("let in");
    let begin = run.world.now();
    for id in 1..=TRIALS {
        run.send_line("a", &format!("PUBLISH b x q1 #{id}"));
    }
    run.settle();
    let seconds = (run.world.now() - begin).as_secs() + 1;
    run.run_for(core::time::Duration::from_secs(2));
    run.send_line("a", "PINGREQ");
    run.settle();
    let (mut written, mut left_out) = (0, 0);
    for event in run.world.take_log() {
        match event {
            Event::Access(event) => written += u64::from(event.kind == AccessKind::Denied),
            Event::LeftOut { kind, lines } => {
                assert_eq!(kind, AccessKind::Denied);
                left_out += lines;
            }
            _ => {}
        }
    }
    assert!(written <= 20 * seconds, "{written} in {seconds} s");
    assert_eq!(written + left_out, TRIALS);
}
