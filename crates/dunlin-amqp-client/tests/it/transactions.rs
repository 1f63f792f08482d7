//! Transactions against a coordinator that is an engine.

use std::collections::BTreeSet;

use dunlin_amqp::codec::{
    Declared, DeliveryState, Error, Outcome as Wire, Rejected, TransactionalState, condition,
};
use dunlin_amqp::{Demand, Event};
use dunlin_amqp_client::{Outcome, SendError, TransactionError};

use super::run;
use super::server::{Peer, Server};

/// Coordinates until the client is gone, or a message comes when it `breaks`.
fn coordinate(peer: &mut Peer, breaks: bool) -> (u32, u32) {
    let mut open = BTreeSet::new();
    let (mut committed, mut staged, mut next) = (0, 0, 0_u8);
    peer.until(|engine, event| {
        match event {
            Event::Attach { link, .. } => {
                engine.set_credit(*link, 100, false).expect("attached");
            }
            Event::Demand { delivery, demand } => {
                let id = [next];
                let outcome = match demand {
                    Demand::Declare { .. } => {
                        open.insert(next);
                        next += 1;
                        Wire::Declared(Declared { txn_id: &id })
                    }
                    Demand::Discharge { txn_id, fail } if open.remove(&txn_id[0]) => {
                        committed += if *fail { 0 } else { staged };
                        staged = 0;
                        Wire::Accepted
                    }
                    Demand::Discharge { .. } => Wire::Rejected(Rejected {
                        error: Some(Error::new(condition::TRANSACTION_UNKNOWN_ID, "")),
                    }),
                };
                let state = DeliveryState::Outcome(outcome);
                engine.settle(*delivery, Some(&state)).expect("unsettled");
            }
            Event::Message(message) => {
                if breaks {
                    return Some(());
                }
                let state = message.state.as_ref().expect("of a transaction");
                let DeliveryState::Transactional(TransactionalState { txn_id, .. }) = state.get()
                else {
                    unreachable!("{state:?}");
                };
                staged += 1;
                let state = DeliveryState::Transactional(TransactionalState {
                    txn_id,
                    outcome: Some(Wire::Accepted),
                });
                engine
                    .settle(message.delivery, Some(&state))
                    .expect("unsettled");
            }
            _ => {}
        }
        None
    });
    (committed, next.into())
}

#[test]
fn what_is_committed_counts() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept();
        assert_eq!(coordinate(&mut peer, false), (2, 2));
    });
    run(async {
        let client = server.client().connect().await.expect("connected");
        let controller = client.controller().await.expect("transactions");
        let sender = client.sender("a").attach().await.expect("attached");
        for commits in [true, false] {
            let transaction = controller.declare().await.expect("declared");
            let first = transaction.send(&sender, "1").await.expect("sent");
            let second = transaction.send(&sender, "2").await.expect("sent");
            assert_eq!(first.await.expect("staged"), Outcome::Accepted);
            assert_eq!(second.await.expect("staged"), Outcome::Accepted);
            let ended = match commits {
                true => transaction.commit().await,
                false => transaction.rollback().await,
            };
            ended.expect("ended");
        }
        client.close().await;
    });
    server.end();
}

#[test]
fn a_lost_connection_rolls_back() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept();
        coordinate(&mut peer, true);
        drop(peer);
        let mut peer = listener.accept();
        assert_eq!(coordinate(&mut peer, false), (0, 0));
    });
    run(async {
        let client = server.client().connect().await.expect("connected");
        let controller = client.controller().await.expect("transactions");
        let sender = client.sender("a").attach().await.expect("attached");
        let transaction = controller.declare().await.expect("declared");
        let sent = transaction.send(&sender, "1").await.expect("sent");
        let lost = sent.await;
        assert!(matches!(lost, Err(SendError::RolledBack)), "{lost:?}");
        let error = transaction.commit().await.expect_err("rolled back");
        assert!(
            matches!(&error, TransactionError::Refused(Some(why))
            if why.name() == "amqp:transaction:unknown-id"),
            "{error}"
        );
        client.close().await;
    });
    server.end();
}

#[test]
fn what_lacks_a_message_that_never_left_is_rolled_back() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept();
        let mut links = 0;
        let mut ended = Vec::new();
        peer.until(|engine, event| {
            match event {
                Event::Attach { link, .. } => {
                    links += 1;
                    engine.set_credit(*link, 100, false).expect("attached");
                    if links == 3 {
                        let why = Error::new(condition::NOT_FOUND, "gone");
                        engine.detach(*link, true, Some(&why)).expect("attached");
                    }
                }
                Event::Demand { delivery, demand } => {
                    let outcome = match demand {
                        Demand::Declare { .. } => Wire::Declared(Declared { txn_id: b"t" }),
                        Demand::Discharge { fail, .. } => {
                            ended.push(*fail);
                            Wire::Accepted
                        }
                    };
                    let state = DeliveryState::Outcome(outcome);
                    engine.settle(*delivery, Some(&state)).expect("unsettled");
                }
                Event::Message(message) => {
                    let accepted = Some(&DeliveryState::ACCEPTED);
                    engine
                        .settle(message.delivery, accepted)
                        .expect("unsettled");
                }
                _ => {}
            }
            None::<()>
        });
        assert_eq!(ended, [true]);
    });
    run(async {
        let client = server.client().connect().await.expect("connected");
        let controller = client.controller().await.expect("transactions");
        let good = client.sender("a").attach().await.expect("attached");
        let bad = client.sender("b").attach().await.expect("attached");
        let transaction = controller.declare().await.expect("declared");
        let first = transaction.send(&good, "1").await.expect("sent");
        assert_eq!(first.await.expect("staged"), Outcome::Accepted);
        // At once, or when it was handed over: the link has ended.
        let lost = match transaction.send(&bad, "2").await {
            Ok(sending) => sending.await,
            Err(error) => Err(error),
        };
        assert!(matches!(lost, Err(SendError::Link(_))), "{lost:?}");
        let error = transaction.commit().await.expect_err("rolled back");
        let is_rolled_back = matches!(error, TransactionError::Send(SendError::RolledBack));
        assert!(is_rolled_back, "{error}");
        client.close().await;
    });
    server.end();
}

/// Coordinates, and gives the sender credit when a second transaction is declared.
fn coordinate_late(peer: &mut Peer) -> Vec<(bool, u32)> {
    let (mut ended, mut staged, mut declared) = (Vec::new(), 0, 0_u8);
    let (mut coordinator, mut late) = (None, None);
    peer.until(|engine, event| {
        match event {
            Event::Attach { link, .. } if coordinator.is_none() => {
                engine.set_credit(*link, 100, false).expect("attached");
                coordinator = Some(*link);
            }
            Event::Attach { link, .. } => late = Some(*link),
            Event::Demand { delivery, demand } => {
                let id = [declared];
                let outcome = match demand {
                    Demand::Declare { .. } => {
                        declared += 1;
                        Wire::Declared(Declared { txn_id: &id })
                    }
                    Demand::Discharge { fail, .. } => {
                        ended.push((*fail, staged));
                        Wire::Accepted
                    }
                };
                let state = DeliveryState::Outcome(outcome);
                engine.settle(*delivery, Some(&state)).expect("unsettled");
                if let Some(link) = late.filter(|_| declared == 2) {
                    engine.set_credit(link, 100, false).expect("attached");
                    late = None;
                }
            }
            Event::Message(message) => {
                staged += u32::from(message.state.is_some());
                let accepted = Some(&DeliveryState::ACCEPTED);
                engine
                    .settle(message.delivery, accepted)
                    .expect("unsettled");
            }
            _ => {}
        }
        None::<()>
    });
    ended
}

#[test]
fn a_message_without_credit_leaves_before_its_commit_or_not_at_all() {
    for commits in [true, false] {
        let server = Server::run(move |listener| {
            let mut peer = listener.accept();
            let ended = coordinate_late(&mut peer);
            assert_eq!(ended, [(!commits, u32::from(commits))]);
        });
        run(async {
            let client = server.client().connect().await.expect("connected");
            let controller = client.controller().await.expect("transactions");
            let sender = client.sender("a").attach().await.expect("attached");
            let first = controller.declare().await.expect("declared");
            let sending = first.send(&sender, "1").await.expect("handed over");
            if commits {
                let (ended, second) = tokio::join!(first.commit(), controller.declare());
                ended.expect("committed");
                let _second = second.expect("declared");
                assert_eq!(sending.await.expect("sent"), Outcome::Accepted);
            } else {
                first.rollback().await.expect("rolled back");
                let _second = controller.declare().await.expect("declared");
                let outcome = sending.await;
                assert!(matches!(outcome, Err(SendError::RolledBack)), "{outcome:?}");
                // The link is none the worse for it.
                let sent = sender.send("2").await;
                assert_eq!(sent.expect("sent"), Outcome::Accepted);
            }
            client.close().await;
        });
        server.end();
    }
}
