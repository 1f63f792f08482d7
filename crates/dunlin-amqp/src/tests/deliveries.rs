//! Settlement: ranges, modes and states.

use dunlin_amqp_codec::{
    Disposition, Error, Modified, ReceiverSettleMode, Rejected, SerialNumber, condition,
};

use super::*;
use crate::{CallError, Delivery};

/// `count` deliveries that the server has and has not settled.
fn delivered(attach: &Attach<'_>, count: u64) -> (Pair, LinkId, Vec<Delivery>) {
    let (mut pair, session) = Pair::open();
    let (link, theirs) = pair.attach(session, attach);
    pair.give_credit(theirs, 1000);
    pair.client.names();
    for number in 0..count {
        pair.client.send(link, number, false, b"x");
    }
    pair.run();
    let deliveries = (0..count).map(|_| pair.server.message().delivery);
    let deliveries = deliveries.collect();
    (pair, link, deliveries)
}

#[test]
fn settlements_one_after_the_other_are_one_frame() {
    let (mut pair, _, deliveries) = delivered(&attach("s", Role::Sender), 6);
    let server = &mut pair.server.connection;
    for (place, delivery) in deliveries.iter().enumerate() {
        let state = match place {
            3 => DeliveryState::Outcome(Outcome::Released),
            _ => ACCEPTED,
        };
        server.settle(*delivery, Some(&state)).expect("unsettled");
    }
    let frames = pair.server.output(NOW);
    // Ids wrap: they begin at -3.
    assert_eq!(
        notation::frames(&frames),
        [
            "disposition -3--1 accepted settled",
            "disposition 0 released settled",
            "disposition 1-2 accepted settled"
        ]
    );
    pair.client.feed(NOW, &frames, false);
    let names = pair.client.names();
    assert_eq!(names.len(), 6);
    assert_eq!(names[2], "Disposition 2 accepted settled");
    assert_eq!(names[3], "Disposition 3 released settled");
    let server = &mut pair.server.connection;
    assert_eq!(
        server.settle(deliveries[0], Some(&ACCEPTED)),
        Err(CallError::Gone)
    );
}

#[test]
fn the_sender_settles_second() {
    let second = Attach {
        rcv_settle_mode: ReceiverSettleMode::Second,
        ..attach("s", Role::Sender)
    };
    let (mut pair, link, deliveries) = delivered(&second, 2);
    for delivery in &deliveries {
        let server = &mut pair.server.connection;
        server.update(*delivery, &ACCEPTED).expect("unsettled");
    }
    pair.run();
    assert_eq!(
        pair.client.names(),
        ["Disposition 0 accepted", "Disposition 1 accepted"]
    );
    let client = &mut pair.client.connection;
    for delivery in deliveries {
        let ours = Delivery { link, ..delivery };
        client.settle(ours, Some(&ACCEPTED)).expect("unsettled");
    }
    pair.run();
    assert_eq!(
        pair.server.names(),
        [
            "Disposition 0 accepted settled",
            "Disposition 1 accepted settled"
        ]
    );
}

#[test]
fn states_arrive_as_they_were_said() {
    let (mut pair, _, deliveries) = delivered(&attach("s", Role::Sender), 3);
    let states = [
        DeliveryState::Outcome(Outcome::Rejected(Rejected {
            error: Some(Error::new(condition::NOT_ALLOWED, "no")),
        })),
        DeliveryState::Outcome(Outcome::Modified(Modified {
            delivery_failed: true,
            ..Modified::default()
        })),
        DeliveryState::Received(dunlin_amqp_codec::Received {
            section_number: 3,
            section_offset: 77,
        }),
    ];
    let server = &mut pair.server.connection;
    for (delivery, state) in deliveries.iter().zip(&states) {
        server.update(*delivery, state).expect("unsettled");
    }
    pair.run();
    for expected in states {
        let Some(Event::Disposition { state, settled, .. }) = pair.client.events.pop_front() else {
            panic!("no disposition came");
        };
        assert_eq!(state.as_ref().map(crate::State::get), Some(expected));
        assert!(!settled);
    }
}

#[test]
fn the_range_of_a_peer_may_be_any() {
    let (mut pair, _, deliveries) = delivered(&attach("s", Role::Sender), 5);
    let server = &mut pair.server.connection;
    server.settle(deliveries[1], None).expect("unsettled");
    pair.run();
    assert_eq!(pair.client.names(), ["Disposition 1 settled"]);
    let range = |first: u32, last: u32| {
        let disposition = Disposition {
            role: Role::Receiver,
            first: SerialNumber(first),
            last: Some(SerialNumber(last)),
            settled: true,
            ..Disposition::default()
        };
        notation::frame(0, &Performative::Disposition(disposition), b"")
    };
    // From long before the first to the third, and then to long after.
    pair.client
        .feed(NOW, &range(u32::MAX - 1_000_000, u32::MAX), false);
    assert_eq!(
        pair.client.names(),
        ["Disposition 0 settled", "Disposition 2 settled"]
    );
    pair.client
        .feed(NOW, &range(u32::MAX - 5, 1_000_000_000), false);
    assert_eq!(
        pair.client.names(),
        ["Disposition 3 settled", "Disposition 4 settled"]
    );
    pair.client.feed(NOW, &range(0, 1), false);
    assert!(pair.client.names().is_empty(), "known no more");
    pair.client.feed(NOW, &range(1, 0), false);
    assert_eq!(
        pair.client.names(),
        ["Detached amqp:invalid-field", "Ended amqp:invalid-field"]
    );
}

#[test]
fn a_link_that_goes_takes_its_deliveries_along() {
    let (mut pair, link, deliveries) = delivered(&attach("s", Role::Sender), 3);
    pair.server
        .connection
        .settle(deliveries[0], Some(&ACCEPTED))
        .expect("unsettled");
    pair.client
        .connection
        .detach(link, false, None)
        .expect("attached");
    pair.run();
    assert_eq!(
        pair.client.names(),
        ["Detached"],
        "late dispositions are not said"
    );
    assert_eq!(pair.server.names(), ["Detached"]);
    let server = &mut pair.server.connection;
    assert_eq!(server.settle(deliveries[1], None), Err(CallError::Gone));
}

#[test]
fn many_settlements_out_of_order_are_written_in_batches() {
    let count = crate::limits::DISPOSITION_RUNS_MAX as u64 * 2 + 2;
    let (mut pair, _, deliveries) = delivered(&attach("s", Role::Sender), count);
    let server = &mut pair.server.connection;
    for delivery in deliveries.iter().rev() {
        server
            .settle(*delivery, Some(&ACCEPTED))
            .expect("unsettled");
    }
    pair.run();
    assert_eq!(pair.client.names().len() as u64, count);
}

#[test]
fn states_that_are_said_again_and_again_are_passed_over() {
    let (mut pair, _, deliveries) = delivered(&attach("s", Role::Sender), 2);
    let heard = |pair: &mut Pair, delivery, state: &DeliveryState<'_>| {
        let server = &mut pair.server.connection;
        server.update(delivery, state).expect("unsettled");
        pair.run();
        pair.client.names().len()
    };
    // How far a message came may be said a number of times.
    let received = |offset| {
        DeliveryState::Received(dunlin_amqp_codec::Received {
            section_number: 0,
            section_offset: offset,
        })
    };
    let times = (0..100).map(|offset| heard(&mut pair, deliveries[0], &received(offset)));
    let times: usize = times.sum();
    assert_eq!(times, usize::from(crate::limits::STATES_MAX));
    // An outcome is the last word.
    let released = DeliveryState::Outcome(Outcome::Released);
    assert_eq!(heard(&mut pair, deliveries[1], &ACCEPTED), 1);
    assert_eq!(heard(&mut pair, deliveries[1], &released), 0);
    // Both are settled as ever.
    for delivery in deliveries {
        let server = &mut pair.server.connection;
        server.settle(delivery, Some(&ACCEPTED)).expect("unsettled");
    }
    pair.run();
    assert_eq!(pair.client.names().len(), 2);
}
