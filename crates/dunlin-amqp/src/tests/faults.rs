//! Frames that break rules, each with its condition at its level; attach and
//! detach.

use dunlin_amqp_codec::{Detach, Error, Flow, SerialNumber, Transfer, condition};

use super::*;
use crate::{CallError, Phase};

#[test]
fn frames_that_are_wrong_for_the_state_close_the_connection() {
    let begin = || Performative::Begin(Begin::default());
    let answer = || {
        Performative::Begin(Begin {
            remote_channel: Some(9),
            ..Begin::default()
        })
    };
    let open = |max_frame_size, idle_time_out| {
        Performative::Open(Open {
            max_frame_size,
            idle_time_out,
            ..Open::default()
        })
    };
    let illegal = "close amqp:illegal-state";
    let framing = "close amqp:connection:framing-error";
    let cases = [
        ("second open", 0, open(512, None), illegal),
        ("open on channel 1", 1, open(512, None), framing),
        ("begin twice", 0, begin(), illegal),
        ("begin answers nothing", 1, answer(), illegal),
        ("no session", 1, sender_attach("s", 0), illegal),
        ("channel above the maximum", 2, begin(), framing),
        (
            "handle above the maximum",
            0,
            sender_attach("s", 2),
            framing,
        ),
    ];
    let limits = Limits {
        sessions_max: 2,
        links_max: 2,
        ..Limits::default()
    };
    for (name, channel, frame, expected) in cases {
        let mut script = Script::begun(limits);
        assert_eq!(script.frame(channel, frame), [expected], "{name}");
        let condition = &expected[6..];
        assert_eq!(
            script.end.names(),
            [
                alloc::format!("Ended {condition}"),
                alloc::format!("Closed {condition}")
            ],
            "{name}"
        );
        assert_eq!(script.end.connection.phase(), Phase::Discarding);
        // What comes before the peer's `close` is not looked at.
        assert!(script.frame(0, sender_attach("late", 0)).is_empty());
        assert!(script.bytes(&notation::frame(0, &begin(), b"")).is_empty());
        let close = Performative::Close(dunlin_amqp_codec::Close::default());
        assert!(script.frame(0, close).is_empty());
        assert!(script.end.names().is_empty(), "said once");
        assert!(script.end.connection.is_finished());
    }
    for (frame, condition) in [
        (open(511, None), "amqp:invalid-field"),
        (open(512, Some(99)), "amqp:not-allowed"),
        (begin(), "amqp:illegal-state"),
    ] {
        let mut script = Script::new(Limits::default());
        script.bytes(b"AMQP\x00\x01\x00\x00");
        let close = alloc::format!("close {condition}");
        assert_eq!(
            script.frame(0, frame),
            ["open server", close.as_str()],
            "{condition}"
        );
    }
}

#[test]
fn bytes_that_are_no_frame_close_the_connection() {
    let cases: [(&[u8], &str); 6] = [
        (&[0, 0, 0, 7, 2, 0, 0, 0], "amqp:connection:framing-error"),
        (&[0xff, 0, 0, 0], "amqp:connection:framing-error"),
        (&[0, 0, 0, 8, 1, 0, 0, 0], "amqp:connection:framing-error"),
        (&[0, 0, 0, 8, 3, 0, 0, 0], "amqp:connection:framing-error"),
        (&[0, 0, 0, 8, 2, 1, 0, 0], "amqp:connection:framing-error"),
        (
            &[0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x7f, 0x45],
            "amqp:not-implemented",
        ),
    ];
    for (bytes, condition) in cases {
        let mut script = Script::begun(Limits::default());
        let close = alloc::format!("close {condition}");
        assert_eq!(script.bytes(bytes), [close], "{bytes:?}");
    }
    // Before `open`, a frame of 513 bytes is too large.
    let mut script = Script::new(Limits::default());
    script.bytes(b"AMQP\x00\x01\x00\x00");
    assert_eq!(
        script.bytes(&[0, 0, 2, 1]),
        ["open server", "close amqp:connection:framing-error"]
    );
}

#[test]
fn frames_that_break_a_rule_of_the_session_end_it() {
    let flow = |handle| {
        Performative::Flow(Flow {
            handle: Some(handle),
            ..Flow::default()
        })
    };
    let detach = Performative::Detach(Detach {
        handle: 1,
        ..Detach::default()
    });
    let transfer = Performative::Transfer(Transfer {
        handle: 1,
        ..Transfer::default()
    });
    let without_count = Performative::Attach(Attach {
        handle: 1,
        ..attach("t", Role::Sender)
    });
    let name = "n".repeat(1025);
    let unattached = "end amqp:session:unattached-handle";
    let cases = [
        (flow(1), unattached),
        (detach, unattached),
        (transfer, unattached),
        (sender_attach("t", 0), "end amqp:session:handle-in-use"),
        (without_count, "end amqp:invalid-field"),
        (sender_attach(&name, 1), "end amqp:resource-limit-exceeded"),
    ];
    for (frame, expected) in cases {
        let mut script = Script::sending(Limits::default(), 1);
        assert_eq!(script.frame(0, frame), [expected]);
        assert_eq!(script.end.names().len(), 2, "the link and the session");
    }
}

#[test]
fn a_link_that_broke_a_rule_and_goes_on_ends_its_session() {
    let flow = || {
        Performative::Flow(Flow {
            handle: Some(0),
            ..Flow::default()
        })
    };
    let transfer = || {
        Performative::Transfer(Transfer {
            delivery_id: Some(SerialNumber(1)),
            delivery_tag: Some(b"1"),
            ..Transfer::default()
        })
    };
    for late in [flow(), transfer()] {
        let mut script = Script::sending(Limits::default(), 1);
        let detached = script.frame(0, Performative::Transfer(Transfer::default()));
        assert_eq!(detached, ["detach h=0 closed amqp:invalid-field"]);
        assert_eq!(script.frame(0, late), ["end amqp:session:errant-link"]);
    }
    // The peer of a link that this side detached may not have known.
    let mut script = Script::begun(Limits::default());
    script.frame(0, sender_attach("s", 0));
    let Some(Event::Attach { link, .. }) = script.end.events.pop_back() else {
        panic!("no attach came");
    };
    let connection = &mut script.end.connection;
    connection.detach(link, true, None).expect("attached");
    assert_eq!(script.sent(), ["detach h=0 closed"]);
    assert!(script.frame(0, transfer()).is_empty());
}

#[test]
fn a_transfer_to_a_sender_detaches_the_link() {
    let mut script = Script::begun(Limits::default());
    script.frame(0, Performative::Attach(attach("r", Role::Receiver)));
    let transfer = Transfer {
        delivery_id: Some(SerialNumber(0)),
        delivery_tag: Some(b"t"),
        ..Transfer::default()
    };
    assert_eq!(
        script.transfer(transfer, b""),
        ["detach h=0 closed amqp:not-allowed"]
    );
}

#[test]
fn the_driver_accepts_later_or_refuses() {
    let (mut pair, session) = Pair::open();
    pair.accepts = false;
    let client = &mut pair.client.connection;
    for (name, role) in [
        ("a", Role::Sender),
        ("b", Role::Receiver),
        ("c", Role::Sender),
    ] {
        client
            .attach(session, &attach(name, role))
            .expect("attached");
    }
    assert_eq!(
        client.attach(session, &attach("a", Role::Sender)),
        Err(CallError::State),
        "the name is in use"
    );
    pair.run();
    let links: Vec<LinkId> = pair
        .server
        .events
        .drain(..)
        .map(|event| match event {
            Event::Attach { link, .. } => link,
            other => panic!("{other:?}"),
        })
        .collect();
    let server = &mut pair.server.connection;
    assert_eq!(server.set_credit(links[0], 1, false), Err(CallError::State));
    let error = Error::new(condition::NOT_FOUND, "no such queue");
    server.refuse_attach(links[1], &error).expect("waits");
    server
        .accept_attach(links[0], &attach("", Role::Sender))
        .expect("waits");
    assert_eq!(
        server.accept_attach(links[1], &attach("", Role::Sender)),
        Err(CallError::State)
    );
    pair.run();
    assert_eq!(
        pair.client.names(),
        [
            "Attached null",
            "Detached closed amqp:not-found",
            "Attached"
        ]
    );
    assert_eq!(pair.server.names(), ["Detached closed"]);
    // The peer gives up a link before it is accepted.
    let Some(third) = links.get(2).copied() else {
        panic!("three links");
    };
    let detach = Performative::Detach(Detach {
        handle: 2,
        ..Detach::default()
    });
    pair.server
        .feed(NOW, &notation::frame(0, &detach, b""), false);
    assert_eq!(pair.server.names(), ["Detached"]);
    assert_eq!(
        notation::frames(&pair.server.output(NOW)),
        ["attach c h=2 null", "detach h=2"]
    );
    let server = &mut pair.server.connection;
    assert_eq!(
        server.accept_attach(third, &attach("", Role::Sender)),
        Err(CallError::Gone)
    );
}

#[test]
fn a_sender_and_a_receiver_with_one_name_are_two_links() {
    let (mut pair, session) = Pair::open();
    let (sender, _) = pair.attach(session, &attach("both", Role::Sender));
    let (receiver, theirs) = pair.attach(session, &attach("both", Role::Receiver));
    assert_ne!(sender, receiver);
    let client = &mut pair.client.connection;
    client.set_credit(receiver, 3, false).expect("attached");
    pair.run();
    assert_eq!(pair.server.names(), ["Credit 3"]);
    pair.server.send(theirs, 1, true, b"x");
    pair.run();
    assert_eq!(pair.client.names(), ["Message 1 settled"]);
    pair.client
        .connection
        .detach(sender, true, None)
        .expect("attached");
    pair.run();
    assert_eq!(pair.client.names(), ["Detached closed"]);
    assert_eq!(pair.server.connection.credit(theirs), 2);
}

#[test]
fn a_link_attached_again_elsewhere_is_stolen() {
    let (mut pair, first) = Pair::open();
    let (old, theirs) = pair.attach(first, &attach("s", Role::Sender));
    let second = pair
        .client
        .connection
        .begin(&Begin::default())
        .expect("begun");
    pair.run();
    pair.server.names();
    pair.client.names();
    let client = &mut pair.client.connection;
    client
        .attach(second, &attach("s", Role::Sender))
        .expect("attached");
    pair.run();
    let Some(Event::Attach { steals, .. }) = pair.server.events.pop_front() else {
        panic!("no attach came");
    };
    assert_eq!(steals, Some(theirs));
    let error = Error::new(condition::STOLEN, "");
    let server = &mut pair.server.connection;
    server.detach(theirs, true, Some(&error)).expect("attached");
    pair.run();
    assert_eq!(
        pair.client.names(),
        ["Attached", "Detached closed amqp:link:stolen"]
    );
    assert_eq!(pair.client.connection.credit(old), 0);
}

#[test]
fn handles_are_used_again_and_ids_are_not() {
    let (mut pair, session) = Pair::open();
    let (first, theirs) = pair.attach(session, &attach("s", Role::Sender));
    pair.client
        .connection
        .detach(first, true, None)
        .expect("attached");
    pair.run();
    pair.client.names();
    pair.server.names();
    let (second, _) = pair.attach(session, &attach("s", Role::Sender));
    assert_eq!(first.handle, second.handle);
    assert_ne!(first, second);
    let server = &mut pair.server.connection;
    assert_eq!(server.set_credit(theirs, 1, false), Err(CallError::Gone));
    assert_eq!(server.detach(theirs, true, None), Err(CallError::Gone));
}

#[test]
fn links_are_bounded_by_both_sides() {
    let two = Limits {
        links_max: 2,
        ..Limits::default()
    };
    for (client, server) in [(two, Limits::default()), (Limits::default(), two)] {
        let (mut pair, session) = Pair::open_with(client, server);
        pair.attach(session, &attach("a", Role::Sender));
        pair.attach(session, &attach("b", Role::Sender));
        let third = pair
            .client
            .connection
            .attach(session, &attach("c", Role::Sender));
        assert_eq!(third, Err(CallError::Limit));
    }
}

#[test]
fn a_detach_of_both_sides_at_once_ends_the_link_once() {
    let (mut pair, session) = Pair::open();
    let (ours, theirs) = pair.attach(session, &attach("s", Role::Sender));
    pair.client
        .connection
        .detach(ours, true, None)
        .expect("attached");
    pair.server
        .connection
        .detach(theirs, true, None)
        .expect("attached");
    pair.run();
    assert_eq!(pair.client.names(), ["Detached closed"]);
    assert_eq!(pair.server.names(), ["Detached closed"]);
}

#[test]
fn an_end_of_both_sides_at_once_ends_the_session_once() {
    let (mut pair, session) = Pair::open();
    let link = pair
        .client
        .connection
        .attach(session, &attach("s", Role::Sender));
    link.expect("attached");
    pair.run();
    let Some(Event::Attach { session: id, .. }) = pair.server.events.pop_back() else {
        panic!("no attach came");
    };
    pair.client.names();
    pair.client.connection.end(session, None).expect("there");
    pair.server.connection.end(id, None).expect("there");
    pair.run();
    assert_eq!(pair.client.names(), ["Detached", "Ended"]);
    assert_eq!(pair.server.names(), ["Detached", "Ended"]);
}
