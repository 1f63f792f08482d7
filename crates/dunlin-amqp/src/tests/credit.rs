//! Link credit, drain and echo.

use dunlin_amqp_codec::{Flow, SerialNumber};

use super::*;

#[test]
fn nothing_is_sent_without_credit() {
    let (mut pair, session) = Pair::open();
    let (link, theirs) = pair.sender(session, 2);
    pair.client.send(link, 1, true, b"a");
    pair.client.send(link, 2, true, b"b");
    assert_eq!(
        pair.client.try_send(link, 3, true, b"c"),
        Err(SendError::Credit)
    );
    pair.run();
    assert_eq!(pair.server.names().len(), 2);
    // Credit counts from what the receiver has seen.
    pair.give_credit(theirs, 1);
    assert_eq!(pair.client.names(), ["Credit 1"]);
    assert_eq!(pair.client.connection.credit(link), 1);
}

#[test]
fn credit_in_flight_is_not_given_twice() {
    let (mut pair, session) = Pair::open();
    let (link, theirs) = pair.sender(session, 5);
    for number in 0..3 {
        pair.client.send(link, number, true, b"x");
    }
    // The receiver has not seen them when it gives credit again.
    pair.give_credit(theirs, 5);
    assert_eq!(pair.client.names(), ["Credit 2"]);
    assert_eq!(pair.server.names().len(), 3);
}

#[test]
fn drain_is_answered_after_everything_that_can_be_sent() {
    let (mut pair, session) = Pair::open();
    let (link, theirs) = pair.sender(session, 3);
    pair.client.send(link, 1, true, b"a");
    pair.server
        .connection
        .set_credit(theirs, 10, true)
        .expect("attached");
    pair.run();
    assert_eq!(pair.client.names(), ["Credit 9 drain"]);
    assert_eq!(pair.server.names(), ["Message 1 settled"]);
    pair.client.send(link, 2, true, b"b");
    pair.client.connection.drained(link).expect("a sender");
    pair.run();
    assert_eq!(pair.server.names(), ["Message 1 settled", "Flow 0 drained"]);
    assert_eq!(pair.client.connection.credit(link), 0);
    // Counts of both sides are the same after it.
    pair.give_credit(theirs, 4);
    assert_eq!(pair.client.names(), ["Credit 4"]);
}

#[test]
fn a_drain_waits_for_the_rest_of_a_message() {
    let narrow = Limits {
        incoming_window: 2,
        frame_bytes_max: 512,
        ..Limits::default()
    };
    let (mut pair, session) = Pair::open_with(Limits::default(), narrow);
    let (link, _) = pair.sender(session, 10);
    pair.client.send(link, 1, true, &[7; 3000]);
    pair.client.connection.drained(link).expect("a sender");
    let flight = pair.client.output(NOW);
    let frames = notation::frames(&flight);
    assert!(frames.iter().all(|frame| frame.starts_with("transfer")));
    pair.server.feed(NOW, &flight, true);
    pair.run();
    assert_eq!(pair.server.names(), ["Message 3000 settled", "Flow 0"]);
}

#[test]
fn credit_ahead_of_acceptance_is_kept() {
    let mut script = Script::begun(Limits::default());
    let asked = Performative::Attach(attach("r", Role::Receiver));
    script
        .end
        .feed(NOW, &notation::frame(0, &asked, b""), false);
    let flow = Flow {
        next_incoming_id: None,
        incoming_window: 100,
        handle: Some(0),
        link_credit: Some(7),
        ..Flow::default()
    };
    assert!(script.frame(0, Performative::Flow(flow)).is_empty());
    let Some(Event::Attach { link, attach, .. }) = script.end.events.pop_front() else {
        panic!("no attach came");
    };
    assert!(script.end.names().is_empty());
    let answer = attach.attach().expect("decoded before");
    script
        .end
        .connection
        .accept_attach(link, &answer)
        .expect("waits");
    script.end.feed(NOW, &[], false);
    assert_eq!(script.end.names(), ["Credit 7"]);
}

#[test]
fn echo_is_answered_with_the_state_of_the_link_or_session() {
    let mut script = Script::sending(Limits::default(), 9);
    let echo = |handle| {
        Performative::Flow(Flow {
            next_incoming_id: Some(SerialNumber(crate::link::FIRST.0)),
            incoming_window: 100,
            handle,
            delivery_count: Some(SerialNumber(0)),
            echo: true,
            ..Flow::default()
        })
    };
    assert_eq!(
        script.frame(0, echo(Some(0))),
        ["flow window=2048 h=0 credit=9"]
    );
    assert_eq!(script.frame(0, echo(None)), ["flow window=2048"]);
}

#[test]
fn credit_that_is_reduced_holds_for_what_is_on_its_way() {
    let (mut pair, session) = Pair::open();
    let (link, theirs) = pair.sender(session, 5);
    for number in 0..3 {
        pair.client.send(link, number, true, b"x");
    }
    pair.give_credit(theirs, 0);
    assert_eq!(pair.server.names(), ["Message 1 settled"; 3]);
    assert_eq!(pair.client.names(), ["Credit 0"]);
    pair.give_credit(theirs, 2);
    assert_eq!(pair.client.names(), ["Credit 2"]);
}
