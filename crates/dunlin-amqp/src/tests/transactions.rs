//! The coordinator and work within transactions.

use dunlin_amqp_codec::{
    Coordinator, Declared, Error, Rejected, Section, TransactionalState, condition,
};

use super::*;
use crate::{Demand, State};

fn controller() -> Attach<'static> {
    Attach {
        target: Some(AnyTarget::Coordinator(Coordinator::default())),
        ..attach("txn", Role::Sender)
    }
}

/// A client with a link to the server's coordinator.
fn coordinated() -> (Pair, SessionId, LinkId) {
    let (mut pair, session) = Pair::open();
    let (link, theirs) = pair.attach(session, &controller());
    pair.give_credit(theirs, 10);
    pair.client.names();
    (pair, session, link)
}

impl Pair {
    /// Sends a demand; the server's delivery of it.
    fn demand(&mut self, link: LinkId, demand: &Demand) -> crate::Delivery {
        let bytes = demand.encode().expect("small");
        let sending = Sending::new(Tag::from(1), false);
        let client = &mut self.client.connection;
        client.send(link, &sending, b"", &bytes).expect("sent");
        self.run();
        let Some(Event::Demand {
            delivery,
            demand: it,
        }) = self.server.events.pop_front()
        else {
            panic!("no demand came");
        };
        assert_eq!(&it, demand);
        delivery
    }

    /// The server answers the delivery; what the client is said.
    fn answer(&mut self, delivery: crate::Delivery, state: &DeliveryState<'_>) -> State {
        let server = &mut self.server.connection;
        server.settle(delivery, Some(state)).expect("unsettled");
        self.run();
        let Some(Event::Disposition { state, settled, .. }) = self.client.events.pop_front() else {
            panic!("no disposition came");
        };
        assert!(settled);
        state.expect("an outcome")
    }
}

#[test]
fn a_transaction_is_declared_used_and_discharged() {
    let (mut pair, session, link) = coordinated();
    let delivery = pair.demand(link, &Demand::Declare { global_id: None });
    let declared = DeliveryState::Outcome(Outcome::Declared(Declared { txn_id: b"t1" }));
    assert_eq!(pair.answer(delivery, &declared).get(), declared);

    // A message is posted, and its outcome is part of the transaction.
    let (sender, _) = pair.sender(session, 10);
    let within = DeliveryState::Transactional(TransactionalState {
        txn_id: b"t1",
        outcome: None,
    });
    let sending = Sending {
        state: Some(within),
        ..Sending::new(Tag::from(7), false)
    };
    let body = Bytes::from_static(b"posted");
    let client = &mut pair.client.connection;
    client.send(sender, &sending, b"", &body).expect("sent");
    pair.run();
    let message = pair.server.message();
    assert_eq!(message.state.as_ref().map(State::get), Some(within));
    let accepted = DeliveryState::Transactional(TransactionalState {
        txn_id: b"t1",
        outcome: Some(Outcome::Accepted),
    });
    let heard = pair.answer(message.delivery, &accepted);
    assert_eq!(heard.get(), accepted);

    let discharge = Demand::Discharge {
        txn_id: Bytes::from_static(b"t1"),
        fail: false,
    };
    let delivery = pair.demand(link, &discharge);
    assert_eq!(pair.answer(delivery, &ACCEPTED), State::Accepted);
    let delivery = pair.demand(link, &discharge);
    let unknown = DeliveryState::Outcome(Outcome::Rejected(Rejected {
        error: Some(Error::new(condition::TRANSACTION_UNKNOWN_ID, "")),
    }));
    assert_eq!(pair.answer(delivery, &unknown).get(), unknown);
}

#[test]
fn a_demand_of_several_frames_is_read_whole() {
    let limits = Limits {
        frame_bytes_max: 512,
        ..Limits::default()
    };
    let (mut pair, session) = Pair::open_with(limits, limits);
    let (link, theirs) = pair.attach(session, &controller());
    pair.give_credit(theirs, 10);
    let discharge = Demand::Discharge {
        txn_id: Bytes::from_static(&[5; 2_000]),
        fail: true,
    };
    pair.demand(link, &discharge);
}

#[test]
fn what_is_no_demand_detaches_the_link() {
    let data = alloc::vec![0x00, 0x53, Section::Data.descriptor() as u8, 0xa0, 1, b'x'];
    let declare = Demand::Declare { global_id: None }.encode().expect("small");
    for (settled, message, error) in [
        (false, data, "amqp:decode-error"),
        (false, Vec::new(), "amqp:decode-error"),
        (true, declare.to_vec(), "amqp:not-allowed"),
    ] {
        let (mut pair, _, link) = coordinated();
        pair.client.send(link, 1, settled, &message);
        pair.run();
        let detached = alloc::format!("Detached closed {error}");
        assert_eq!(pair.server.names(), [detached.as_str()]);
        assert_eq!(pair.client.names(), [detached.as_str()]);
    }
}

#[test]
fn a_discharge_does_not_overtake_outcomes_of_its_transaction() {
    let (mut pair, session, link) = coordinated();
    let (ours, theirs) = pair.attach(session, &attach("r", Role::Receiver));
    let client = &mut pair.client.connection;
    client.set_credit(ours, 1, false).expect("attached");
    pair.run();
    pair.server.send(theirs, 1, false, b"m");
    pair.run();
    let message = pair.client.message();
    let within = DeliveryState::Transactional(TransactionalState {
        txn_id: b"t1",
        outcome: Some(Outcome::Accepted),
    });
    let client = &mut pair.client.connection;
    let settled = client.settle(message.delivery, Some(&within));
    settled.expect("unsettled");
    let discharge = Demand::Discharge {
        txn_id: Bytes::from_static(b"t1"),
        fail: false,
    };
    let bytes = discharge.encode().expect("small");
    let sending = Sending::new(Tag::from(9), false);
    client.send(link, &sending, b"", &bytes).expect("sent");
    pair.run();
    let order = pair
        .server
        .events
        .drain(..)
        .filter_map(|event| match event {
            Event::Disposition { .. } => Some("outcome"),
            Event::Demand { .. } => Some("discharge"),
            _ => None,
        });
    let order: Vec<&str> = order.collect();
    assert_eq!(order, ["outcome", "discharge"]);
}
