//! Frames that are wrong for the state of their connection, session or link.

use dunlin_amqp::codec::{
    AnyTarget, Attach, Begin, Close, Detach, Disposition, End, Flow, Open, Performative,
    Properties, Role, SaslFrame, SaslResponse, SerialNumber, Source, Target, TerminusDurability,
    Transfer, condition,
};
use dunlin_base::StreamId;
use dunlin_broker::NamedQueue;
use dunlin_sim::Setup;
use dunlin_sim::frames::{HEADER, RawAmqp, frame, frame_of, sasl_frame};

use super::{HANDLE, Scene, begin, first, from, message, receiver, sender, setup};

fn opened() -> Vec<u8> {
    let open = frame(0, &Performative::Open(Open::default()), b"");
    [HEADER, &open].concat()
}

fn begun() -> Vec<u8> {
    let begin = frame(0, &Performative::Begin(begin()), b"");
    [opened(), begin].concat()
}

#[test]
fn frames_wrong_for_the_state_have_their_condition() {
    let begin_frame = || Performative::Begin(begin());
    let answer = || {
        Performative::Begin(Begin {
            remote_channel: Some(7),
            ..begin()
        })
    };
    let flow = |handle| {
        Performative::Flow(Flow {
            handle,
            ..Flow::default()
        })
    };
    let transfer = || Performative::Transfer(first(0, b"t"));
    let open = || Performative::Open(Open::default());
    let detach = || Performative::Detach(Detach::default());
    let end = || Performative::End(End::default());
    let illegal = condition::ILLEGAL_STATE.as_str();
    let framing = condition::FRAMING_ERROR.as_str();
    let unattached = condition::UNATTACHED_HANDLE.as_str();
    let invalid = condition::INVALID_FIELD.as_str();
    let backwards = || {
        Performative::Disposition(Disposition {
            role: Role::Sender,
            first: SerialNumber(5),
            last: Some(SerialNumber(4)),
            ..Disposition::default()
        })
    };
    let cases = [
        (
            "begin before open",
            HEADER.to_vec(),
            0,
            begin_frame(),
            "close",
            illegal,
        ),
        (
            "transfer before open",
            HEADER.to_vec(),
            0,
            transfer(),
            "close",
            illegal,
        ),
        ("open again", opened(), 0, open(), "close", illegal),
        (
            "open on channel 1",
            HEADER.to_vec(),
            1,
            open(),
            "close",
            framing,
        ),
        (
            "attach without a session",
            opened(),
            0,
            sender("s", 0, "t"),
            "close",
            illegal,
        ),
        (
            "end without a session",
            opened(),
            3,
            end(),
            "close",
            illegal,
        ),
        (
            "a channel above channel-max",
            opened(),
            16,
            begin_frame(),
            "close",
            framing,
        ),
        (
            "an answer to nothing",
            opened(),
            0,
            answer(),
            "close",
            illegal,
        ),
        ("begin again", begun(), 0, begin_frame(), "close", illegal),
        (
            "a handle above handle-max",
            begun(),
            0,
            sender("s", 64, "t"),
            "close",
            framing,
        ),
        (
            "flow without a link",
            begun(),
            0,
            flow(Some(0)),
            "end",
            unattached,
        ),
        (
            "transfer without a link",
            begun(),
            0,
            transfer(),
            "end",
            unattached,
        ),
        (
            "detach without a link",
            begun(),
            0,
            detach(),
            "end",
            unattached,
        ),
        ("a range backwards", begun(), 0, backwards(), "end", invalid),
    ];
    for shards in [1, 2] {
        let mut scene = Scene::new(setup(shards));
        for (name, before, channel, wrong, level, expected) in &cases {
            let mut wire = RawAmqp::new(scene.world.open(), StreamId::CONTROL);
            wire.send(&mut scene.world, before);
            wire.send(&mut scene.world, &frame(*channel, wrong, b""));
            scene.run(&mut [&mut wire]);
            let found = wire.said(level);
            assert_eq!(found, [format!("{level} {expected}")], "{name}");
            scene.cut(&wire);
        }
        scene.check_served("states");
        scene.check_empty("states");
    }
}

#[test]
fn a_closed_connection_hears_nothing_more() {
    let mut scene = Scene::new(setup(2));
    let mut wire = scene.begun();
    scene.say(&wire, 0, &Performative::Close(Close::default()));
    for _ in 0..100 {
        scene.say(&wire, 0, &sender("late", 0, "some/topic"));
        scene.say(&wire, 1, &Performative::Begin(begin()));
    }
    scene.run(&mut [&mut wire]);
    assert!(wire.is_over);
    assert_eq!(wire.lines, ["close"]);
    scene.check_served("closed");
    scene.check_empty("closed");
}

#[test]
fn another_layer_in_the_middle_closes_the_connection() {
    let response = sasl_frame(&SaslFrame::Response(SaslResponse { response: b"x" }));
    let mut extended = frame_of(0, &[]);
    extended[4] = 1;
    let mut unknown = frame_of(0, &[]);
    unknown[5] = 7;
    for bytes in [response, extended, unknown, HEADER.to_vec()] {
        let mut scene = Scene::new(setup(2));
        let mut wire = scene.begun();
        wire.send(&mut scene.world, &bytes);
        scene.run(&mut [&mut wire]);
        let expected = format!("close {}", condition::FRAMING_ERROR.as_str());
        assert_eq!(wire.said("close"), [expected], "{bytes:x?}");
        scene.cut(&wire);
        scene.check_served("layers");
        scene.check_empty("layers");
    }
}

#[test]
fn duplicate_names_handles_and_tags_have_their_condition() {
    let mut scene = Scene::new(setup(2));
    // The second of a name takes the link, as often as it comes.
    let mut wire = scene.begun();
    for handle in 0..3 {
        scene.say(&wire, 0, &sender("same", handle, "some/topic"));
        scene.run(&mut [&mut wire]);
        let stolen = format!("detach {}", condition::STOLEN.as_str());
        let expected: Vec<String> = (handle > 0).then_some(stolen).into_iter().collect();
        assert_eq!(wire.said("detach"), expected);
    }
    for handle in 0..2 {
        let detach = Detach {
            handle,
            closed: true,
            ..Detach::default()
        };
        scene.say(&wire, 0, &Performative::Detach(detach));
    }
    scene.run(&mut [&mut wire]);
    assert_eq!(scene.world.census().sessions, 5 + 1);
    // A handle that has a link.
    scene.say(&wire, 0, &sender("other", 2, "some/topic"));
    scene.run(&mut [&mut wire]);
    let expected = format!("end {}", condition::HANDLE_IN_USE.as_str());
    assert_eq!(wire.said("end"), [expected]);
    scene.cut(&wire);
    // A tag of a delivery that is not settled: the message has not come whole.
    let mut wire = scene.sending("some/topic");
    let more = |id| Transfer {
        more: true,
        ..first(id, b"tag")
    };
    scene.transfer(&wire, more(0), b"");
    scene.say(&wire, 0, &sender("second", 1, "some/topic"));
    scene.transfer(
        &wire,
        Transfer {
            handle: 1,
            ..more(1)
        },
        b"",
    );
    scene.run(&mut [&mut wire]);
    // It is another link's.
    assert!(wire.said("detach").is_empty());
    let again = Transfer {
        delivery_id: Some(SerialNumber(2)),
        ..more(2)
    };
    scene.transfer(&wire, again, b"");
    scene.run(&mut [&mut wire]);
    let expected = format!("detach {}", condition::INVALID_FIELD.as_str());
    assert_eq!(wire.said("detach"), [expected]);
    scene.cut(&wire);
    scene.check_served("duplicates");
    scene.check_empty("duplicates");
}

#[test]
fn credit_and_size_violations_detach_the_link() {
    let mut setup = setup(2);
    setup.config.clients.receive_maximum = 5;
    setup.config.clients.packet_bytes_max = 1000;
    // No credit comes back before the store has answered.
    setup.pace.store = (50_000, 50_000);
    setup.pace.split = false;
    let mut scene = Scene::new(setup);
    let mut wire = scene.sending("/queues/some");
    let mut burst = Vec::new();
    for id in 0..20_u32 {
        let transfer = Transfer {
            more: false,
            ..first(id, &[])
        };
        let tag = id.to_be_bytes();
        let transfer = Performative::Transfer(Transfer {
            delivery_tag: Some(&tag),
            ..transfer
        });
        burst.extend(frame(0, &transfer, &message(true, b"x")));
    }
    wire.send(&mut scene.world, &burst);
    scene.run(&mut [&mut wire]);
    let end = wire.lines.iter().find(|line| line.contains("amqp:"));
    let end = end.map(String::as_str);
    assert_eq!(end, Some("detach amqp:link:transfer-limit-exceeded"));
    scene.cut(&wire);
    // One message that is too large, in one frame and in several.
    for parts in [1, 4] {
        let mut wire = scene.sending("some/topic");
        let whole = message(false, &[b'x'; 1200]);
        let size = whole.len() / parts + 1;
        let last = whole.chunks(size).count() - 1;
        for (n, part) in whole.chunks(size).enumerate() {
            let transfer = Transfer {
                more: n < last,
                ..first(0, b"t")
            };
            scene.transfer(&wire, transfer, part);
        }
        scene.run(&mut [&mut wire]);
        let conditions: Vec<&String> = wire
            .lines
            .iter()
            .filter(|line| line.contains("amqp:"))
            .collect();
        let size = "detach amqp:link:message-size-exceeded";
        assert_eq!(conditions.first().map(|line| &***line), Some(size));
        scene.cut(&wire);
    }
    // More frames than the session has a window for.
    let mut wire = scene.sending("some/topic");
    let more = Transfer {
        more: true,
        ..first(0, b"t")
    };
    let frame = frame(0, &Performative::Transfer(more), b"");
    wire.send(&mut scene.world, &frame.repeat(5000));
    scene.run(&mut [&mut wire]);
    let expected = format!("end {}", condition::WINDOW_VIOLATION.as_str());
    assert_eq!(wire.said("end"), [expected]);
    scene.cut(&wire);
    scene.check_served("violations");
}

/// There is one queue, and clients make none.
fn only_the_witness(setup: &mut Setup) {
    setup.config.queues.auto_create = false;
    setup.config.queues.named = vec![NamedQueue {
        name: "witness".into(),
        ..NamedQueue::default()
    }];
}

#[test]
fn unknown_and_forbidden_addresses_refuse_the_link() {
    let mut setup = setup(2);
    setup.acl = Some("topic allowed/#\ntopic witness/#\ntopic /queues/witness".into());
    only_the_witness(&mut setup);
    let mut scene = Scene::new(setup);
    let unauthorized = condition::UNAUTHORIZED_ACCESS.as_str();
    let invalid = condition::INVALID_FIELD.as_str();
    let not_found = condition::NOT_FOUND.as_str();
    let long = "x".repeat(2000);
    let null = Performative::Attach(Attach {
        name: "null",
        target: None,
        role: Role::Sender,
        source: None,
        initial_delivery_count: Some(SerialNumber(0)),
        ..Attach::default()
    });
    let kept = Source {
        durable: TerminusDurability::UnsettledState,
        ..from("forbidden/#")
    };
    let cases = [
        ("forbidden", sender("a", 0, "forbidden/topic"), unauthorized),
        (
            "of the broker",
            sender("b", 0, "$SYS/broker/version"),
            unauthorized,
        ),
        ("a wildcard", sender("c", 0, "allowed/#"), invalid),
        ("nothing", sender("d", 0, ""), invalid),
        (
            "an unknown queue",
            sender("e", 0, "/queues/nowhere"),
            unauthorized,
        ),
        ("no name of a queue", sender("f", 0, "/queues/"), invalid),
        ("no target", null, invalid),
        (
            "a forbidden filter",
            receiver("g", 0, from("forbidden/#")),
            unauthorized,
        ),
        ("no filter", receiver("h", 0, from("a#")), invalid),
        (
            "a forbidden group",
            receiver("i", 0, from("$share/g/forbidden")),
            unauthorized,
        ),
        (
            "a forbidden subscription",
            receiver("j", 0, kept),
            unauthorized,
        ),
        (
            "an unknown node",
            receiver("k", 0, from("/queues/nowhere")),
            unauthorized,
        ),
    ];
    for (name, attach, expected) in cases {
        let mut wire = scene.begun();
        scene.say(&wire, 0, &attach);
        scene.run(&mut [&mut wire]);
        let lines = wire.said("detach");
        assert_eq!(lines, [format!("detach {expected}")], "{name}");
        // The session goes on.
        scene.say(&wire, 0, &sender("later", 1, "allowed/topic"));
        scene.run(&mut [&mut wire]);
        assert_eq!(wire.said("attach"), ["attach later"], "{name}");
        scene.cut(&wire);
    }
    scene.check_served("addresses");
    // A queue that there is not, a long address, and a subscription of no one.
    let mut setup = super::setup(2);
    only_the_witness(&mut setup);
    let mut scene = Scene::new(setup);
    let none = Performative::Attach(Attach {
        name: "unknown",
        role: Role::Receiver,
        source: None,
        target: Some(AnyTarget::Target(Target::default())),
        ..Attach::default()
    });
    for (name, attach, expected) in [
        (
            "an unknown queue",
            sender("a", 0, "/queues/nowhere"),
            not_found,
        ),
        (
            "its receiver",
            receiver("b", 0, from("/queues/nowhere")),
            not_found,
        ),
        (
            "a long name",
            sender("c", 0, &format!("/queues/{long}")),
            invalid,
        ),
        ("no subscription", none, not_found),
    ] {
        let mut wire = scene.begun();
        scene.say(&wire, 0, &attach);
        scene.run(&mut [&mut wire]);
        let lines = wire.said("detach");
        assert_eq!(lines, [format!("detach {expected}")], "{name}");
        scene.cut(&wire);
    }
    // By message, where the link has no address.
    let relay = Performative::Attach(Attach {
        name: "relay",
        handle: HANDLE,
        role: Role::Sender,
        source: Some(Source::default()),
        target: Some(AnyTarget::Target(Target::default())),
        initial_delivery_count: Some(SerialNumber(0)),
        ..Attach::default()
    });
    let mut wire = scene.begun();
    scene.say(&wire, 0, &relay);
    for (id, to) in ["$SYS/x", "", "a/#", "/queues/nowhere"]
        .into_iter()
        .enumerate()
    {
        let mut bytes = Vec::new();
        let properties = Properties {
            to: Some(to),
            ..Properties::default()
        };
        properties.encode(&mut bytes).expect("a vector");
        bytes.extend(message(false, b"x"));
        scene.transfer(&wire, first(id as u32, &[id as u8]), &bytes);
        scene.run(&mut [&mut wire]);
        let said = wire.said("disposition");
        assert!(
            said.len() == 1 && said[0].contains("rejected"),
            "{to}: {said:?}"
        );
    }
    scene.cut(&wire);
    scene.check_served("addresses");
}
