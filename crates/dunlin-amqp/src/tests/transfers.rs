//! Messages of one frame and of many.

use dunlin_amqp_codec::{ReceiverSettleMode, SerialNumber, Transfer};

use super::*;
use crate::Extent;

/// The first transfer of a settled delivery.
fn first(id: u32) -> Transfer<'static> {
    Transfer {
        delivery_id: Some(SerialNumber(id)),
        delivery_tag: Some(b"t"),
        settled: Some(true),
        ..Transfer::default()
    }
}

fn further() -> Transfer<'static> {
    Transfer::default()
}

#[test]
fn messages_of_every_size_arrive_as_they_were_sent() {
    for (chunk, frame_bytes_max) in [
        (usize::MAX, 512),
        (1, 512),
        (100, 700),
        (usize::MAX, 65_536),
    ] {
        let limits = Limits {
            frame_bytes_max,
            ..Limits::default()
        };
        let (mut pair, session) = Pair::open_with(limits, limits);
        pair.server.chunk = chunk;
        let (link, _) = pair.sender(session, 1000);
        for (number, size) in [0, 1, 400, 470, 480, 490, 500, 5_000, 70_000]
            .into_iter()
            .enumerate()
        {
            let body: Vec<u8> = (0..size).map(|n: u32| (n * 7) as u8).collect();
            let sending = Sending::new(Tag::from(number as u64), number % 2 == 0);
            let connection = &mut pair.client.connection;
            let (head, rest) = body.split_at(size as usize / 3);
            let rest = Bytes::copy_from_slice(rest);
            connection.send(link, &sending, head, &rest).expect("sent");
            pair.run();
            let message = pair.server.message();
            assert_eq!(message.payload.as_ref(), body, "{size}");
            assert_eq!(message.tag.number(), Some(number as u64));
            assert_eq!(message.settled, number % 2 == 0);
        }
    }
}

#[test]
fn parts_of_two_links_may_mix() {
    let (mut pair, session) = Pair::open();
    let (a, _) = pair.sender(session, 10);
    let (b, theirs) = pair.attach(session, &attach("b", Role::Sender));
    pair.give_credit(theirs, 10);
    let client = &mut pair.client.connection;
    let part = |number| Sending {
        extent: Extent::First,
        ..Sending::new(Tag::from(number), false)
    };
    let bytes = Bytes::from_static;
    client.send(a, &part(1), b"", &bytes(b"a1")).expect("sent");
    client.send(b, &part(2), b"", &bytes(b"b1")).expect("sent");
    assert_eq!(
        client.send(a, &part(3), b"", &bytes(b"x")),
        Err(SendError::Part)
    );
    client.send_part(a, &bytes(b"a2"), true).expect("sent");
    client.send_part(b, &bytes(b"b2"), false).expect("sent");
    client.send_part(a, &bytes(b""), false).expect("sent");
    assert_eq!(
        client.send_part(a, &bytes(b"x"), false),
        Err(SendError::Part)
    );
    pair.run();
    assert_eq!(pair.server.message().payload.as_ref(), b"b1b2");
    assert_eq!(pair.server.message().payload.as_ref(), b"a1a2");
}

#[test]
fn an_aborted_delivery_is_not_seen() {
    let (mut pair, session) = Pair::open();
    let (link, theirs) = pair.sender(session, 3);
    let client = &mut pair.client.connection;
    let part = Sending {
        extent: Extent::First,
        ..Sending::new(Tag::from(1), false)
    };
    client
        .send(link, &part, b"", &Bytes::from_static(b"a"))
        .expect("sent");
    client.abort(link).expect("begun");
    assert_eq!(client.abort(link), Err(SendError::Part));
    // The tag is free again.
    pair.client.send(link, 1, false, b"whole");
    pair.run();
    assert_eq!(pair.server.names(), ["Void", "Message 5"]);
    // It took credit on both sides.
    pair.give_credit(theirs, 5);
    assert_eq!(pair.client.names(), ["Credit 5"]);
}

#[test]
fn the_sender_keeps_to_the_size_that_the_receiver_takes() {
    let (mut pair, session) = Pair::open();
    pair.accepts = false;
    let link = pair
        .client
        .connection
        .attach(session, &attach("s", Role::Sender));
    let link = link.expect("attached");
    pair.run();
    let Some(Event::Attach { link: theirs, .. }) = pair.server.events.pop_back() else {
        panic!("no attach came");
    };
    let answer = Attach {
        max_message_size: Some(10),
        ..attach("", Role::Sender)
    };
    let server = &mut pair.server.connection;
    server.accept_attach(theirs, &answer).expect("waits");
    server.set_credit(theirs, 5, false).expect("attached");
    pair.run();
    assert_eq!(
        pair.client.try_send(link, 1, true, &[0; 11]),
        Err(SendError::MessageSize)
    );
    pair.client.send(link, 1, true, &[0; 10]);
    let part = Sending {
        extent: Extent::First,
        ..Sending::new(Tag::from(2), true)
    };
    let client = &mut pair.client.connection;
    client
        .send(link, &part, b"", &Bytes::from_static(&[0; 6]))
        .expect("sent");
    assert_eq!(
        client.send_part(link, &Bytes::from_static(&[0; 5]), false),
        Err(SendError::MessageSize)
    );
}

#[test]
fn faults_of_transfers_have_their_condition() {
    let more = |transfer| Transfer {
        more: true,
        ..transfer
    };
    let unsettled = |id| Transfer {
        settled: Some(false),
        ..first(id)
    };
    let cases: [(&str, Vec<Transfer<'_>>, &str); 10] = [
        (
            "no id",
            alloc::vec![further()],
            "detach h=0 closed amqp:invalid-field",
        ),
        (
            "no tag",
            alloc::vec![Transfer {
                delivery_tag: None,
                ..first(0)
            }],
            "detach h=0 closed amqp:invalid-field",
        ),
        (
            "a long tag",
            alloc::vec![Transfer {
                delivery_tag: Some(&[0; 33]),
                ..first(0)
            }],
            // The codec refuses it.
            "close amqp:invalid-field",
        ),
        (
            "the id again",
            alloc::vec![first(5), first(5)],
            "end amqp:invalid-field",
        ),
        (
            "an earlier id",
            alloc::vec![first(5), first(4)],
            "end amqp:invalid-field",
        ),
        (
            "the tag again",
            alloc::vec![unsettled(0), unsettled(1)],
            "detach h=0 closed amqp:invalid-field",
        ),
        (
            "another id within",
            alloc::vec![more(first(0)), first(1)],
            "detach h=0 closed amqp:invalid-field",
        ),
        (
            "another format within",
            alloc::vec![
                more(first(0)),
                Transfer {
                    message_format: Some(1),
                    ..further()
                },
            ],
            "detach h=0 closed amqp:invalid-field",
        ),
        (
            "settled second",
            alloc::vec![Transfer {
                rcv_settle_mode: Some(ReceiverSettleMode::Second),
                ..first(0)
            }],
            "detach h=0 closed amqp:invalid-field",
        ),
        (
            "no credit",
            alloc::vec![first(0), first(1), first(2), first(3)],
            "detach h=0 closed amqp:link:transfer-limit-exceeded",
        ),
    ];
    for (name, transfers, expected) in cases {
        let mut script = Script::sending(Limits::default(), 3);
        let mut sent = Vec::new();
        for transfer in transfers {
            sent = script.transfer(transfer, b"x");
        }
        assert_eq!(sent, [expected], "{name}");
    }
}

#[test]
fn unfinished_messages_share_one_budget() {
    let limits = Limits {
        partial_bytes_max: 100,
        ..Limits::default()
    };
    let mut script = Script::sending(limits, 10);
    script.frame(0, sender_attach("second", 1));
    let Some(Event::Attach { link, .. }) = script.end.events.pop_back() else {
        panic!("no attach came");
    };
    script
        .end
        .connection
        .set_credit(link, 10, false)
        .expect("attached");
    script.sent();
    let part = |id, handle| Transfer {
        handle,
        more: true,
        ..first(id)
    };
    assert!(script.transfer(part(0, 0), &[0; 60]).is_empty());
    assert_eq!(
        script.transfer(part(1, 1), &[0; 60]),
        ["detach h=1 closed amqp:resource-limit-exceeded"]
    );
    let rest = Transfer {
        more: true,
        ..further()
    };
    assert!(
        script.transfer(rest, &[0; 40]).is_empty(),
        "up to the limit"
    );
    assert!(script.transfer(further(), &[0; 1]).is_empty());
    assert_eq!(script.end.message().payload.as_ref().len(), 101);
    // What is complete is not counted any more, nor what was detached.
    assert!(script.transfer(part(2, 0), &[0; 100]).is_empty());
    let aborted = Transfer {
        aborted: true,
        ..further()
    };
    assert!(script.transfer(aborted, &[]).is_empty());
    assert!(script.transfer(part(3, 0), &[0; 100]).is_empty());
}

#[test]
fn a_message_that_is_too_large_detaches_the_link() {
    let mut script = Script::begun(Limits::default());
    let asked = notation::frame(0, &sender_attach("s", 0), b"");
    script.end.feed(NOW, &asked, false);
    let Some(Event::Attach { link, .. }) = script.end.events.pop_back() else {
        panic!("no attach came");
    };
    let answer = Attach {
        max_message_size: Some(10),
        ..attach("", Role::Receiver)
    };
    let connection = &mut script.end.connection;
    connection.accept_attach(link, &answer).expect("waits");
    connection.set_credit(link, 10, false).expect("attached");
    script.sent();
    let part = Transfer {
        more: true,
        ..first(0)
    };
    assert!(script.transfer(part, &[0; 10]).is_empty());
    assert_eq!(
        script.transfer(further(), &[0; 1]),
        ["detach h=0 closed amqp:link:message-size-exceeded"]
    );
    assert_eq!(
        script.end.names(),
        ["Detached closed amqp:link:message-size-exceeded"]
    );
    // The peer detaches, and the link is gone.
    let detach = Performative::Detach(dunlin_amqp_codec::Detach::default());
    assert!(script.frame(0, detach).is_empty());
    assert_eq!(
        script.transfer(further(), &[0; 1]),
        ["end amqp:session:unattached-handle"]
    );
}

#[test]
fn unsettled_deliveries_are_bounded_on_both_sides() {
    let limits = Limits {
        unsettled_received_max: 2,
        unsettled_sent_max: 2,
        ..Limits::default()
    };
    let mut script = Script::sending(limits, 10);
    for id in 0..2 {
        let tag = [id as u8];
        let transfer = Transfer {
            settled: None,
            delivery_tag: Some(&tag),
            ..first(id)
        };
        assert!(script.transfer(transfer, b"x").is_empty());
    }
    let transfer = Transfer {
        settled: None,
        delivery_tag: Some(b"third"),
        ..first(2)
    };
    assert_eq!(
        script.transfer(transfer, b"x"),
        ["end amqp:resource-limit-exceeded"]
    );

    let (mut pair, session) = Pair::open_with(limits, Limits::default());
    let (link, _) = pair.sender(session, 10);
    pair.client.send(link, 0, false, b"x");
    pair.client.send(link, 1, false, b"x");
    assert_eq!(
        pair.client.try_send(link, 2, false, b"x"),
        Err(SendError::Unsettled)
    );
    pair.run();
    let delivery = pair.server.message().delivery;
    let server = &mut pair.server.connection;
    server.settle(delivery, Some(&ACCEPTED)).expect("unsettled");
    pair.run();
    assert_eq!(
        pair.client.names(),
        ["Disposition 0 accepted settled", "WindowOpen"]
    );
    pair.client.send(link, 2, false, b"x");
}

#[test]
fn a_sender_may_settle_before_the_last_part() {
    let (mut pair, session) = Pair::open();
    let (link, _) = pair.sender(session, 3);
    let part = Sending {
        extent: Extent::First,
        ..Sending::new(Tag::from(1), false)
    };
    let client = &mut pair.client.connection;
    let sent = client.send(link, &part, b"", &Bytes::from_static(b"a"));
    client.settle(sent.expect("sent"), None).expect("unsettled");
    pair.run();
    assert_eq!(pair.server.names(), ["Disposition 1 settled"]);
    let client = &mut pair.client.connection;
    client
        .send_part(link, &Bytes::from_static(b"b"), false)
        .expect("begun");
    pair.run();
    assert_eq!(pair.server.names(), ["Message 2 settled"]);
}
