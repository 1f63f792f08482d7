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
