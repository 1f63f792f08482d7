//! Messages in both directions, their outcomes, credit and drain.

use bytes::Bytes;
use dunlin_amqp::codec::{
    DeliveryState, Error, Modified, Outcome as Wire, ReceiverSettleMode, Rejected, condition,
};
use dunlin_amqp::{Connection, Event, Limits, SendError as Refusal, Sending, State, Tag};
use dunlin_amqp_client::{Message, Outcome, SendError, SettleError, TrySendError, Value};

use super::run;
use super::server::Server;

#[test]
fn a_sender_hears_what_became_of_each_message() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept();
        let link = peer.link();
        peer.engine.set_credit(link, 10, false).expect("attached");
        let mut count = 0;
        peer.until(|engine, event| {
            let Event::Message(message) = event else {
                return None;
            };
            count += 1;
            let rejected = Rejected {
                error: Some(Error::new(condition::NOT_ALLOWED, "never")),
            };
            let outcome = match count {
                1 => Wire::Accepted,
                2 => Wire::Rejected(rejected),
                3 => Wire::Released,
                _ => Wire::Modified(Modified {
                    delivery_failed: true,
                    ..Modified::default()
                }),
            };
            let state = DeliveryState::Outcome(outcome);
            engine
                .settle(message.delivery, Some(&state))
                .expect("unsettled");
            None::<()>
        });
    });
    run(async {
        let client = server.client().connect().await.expect("connected");
        let sender = client.sender("a").attach().await.expect("attached");
        let mut outcomes = Vec::new();
        for number in 0..4 {
            outcomes.push(sender.start_send(format!("{number}")).await.expect("sent"));
        }
        let mut said = Vec::new();
        for outcome in outcomes {
            said.push(outcome.await.expect("an outcome"));
        }
        assert_eq!(said[0], Outcome::Accepted);
        assert_eq!(said[1].to_string(), "rejected: never (amqp:not-allowed)");
        assert_eq!(said[2], Outcome::Released);
        let failed = Outcome::Modified {
            delivery_failed: true,
            undeliverable_here: false,
        };
        assert_eq!(said[3], failed);
        client.close().await;
    });
    server.end();
}

#[test]
fn settled_messages_are_done_when_they_have_left() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept();
        let link = peer.link();
        peer.engine.set_credit(link, 1000, false).expect("attached");
        let mut count = 0;
        let whole = peer.until(|_, event| {
            let Event::Message(message) = event else {
                return None;
            };
            assert!(message.settled);
            count += 1;
            (count == 500).then_some(())
        });
        assert!(whole.is_some(), "{count}");
        peer.serve();
    });
    run(async {
        let client = server.client().connect().await.expect("connected");
        let sender = client
            .sender("a")
            .settled()
            .attach()
            .await
            .expect("attached");
        let body = vec![7; 3000];
        let mut all = Vec::new();
        for _ in 0..500 {
            all.push(
                sender
                    .start_send(Message::new(body.clone()))
                    .await
                    .expect("sent"),
            );
        }
        for sent in all {
            assert_eq!(sent.await.expect("left"), Outcome::Settled);
        }
        client.close().await;
    });
    server.end();
}

#[test]
fn no_more_than_allowed_is_in_flight() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept();
        peer.link();
        peer.serve();
    });
    run(async {
        let client = server.client().connect().await.expect("connected");
        let sender = client
            .sender("a")
            .max_in_flight(2)
            .attach()
            .await
            .expect("attached");
        // There is no credit.
        let first = sender.try_send("1").expect("room");
        let second = sender.try_send("2").expect("room");
        let refused = sender.try_send("3");
        assert!(matches!(refused, Err(TrySendError::Full(_))), "{refused:?}");
        client.close().await;
        for waiting in [first, second] {
            assert!(matches!(waiting.await, Err(SendError::Link(_))));
        }
    });
    server.end();
}

#[test]
fn large_messages_cross_in_frames_both_ways() {
    const SIZE: usize = 300_000;
    let server = Server::run(|listener| {
        let limits = Limits {
            frame_bytes_max: 600,
            ..Limits::default()
        };
        let mut peer = listener.accept_with(&["ANONYMOUS"], limits);
        let back = peer.link();
        let link = peer.link();
        peer.engine.set_credit(link, 1, false).expect("attached");
        let bytes = peer.until(|engine, event| {
            let Event::Message(message) = event else {
                return None;
            };
            engine
                .settle(message.delivery, Some(&DeliveryState::ACCEPTED))
                .expect("unsettled");
            Some(Bytes::copy_from_slice(message.payload.as_ref()))
        });
        let bytes = bytes.expect("a message");
        assert!(bytes.len() > SIZE);
        let sending = Sending::new(Tag::from(1), false);
        let sent = peer.engine.send(back, &sending, b"", &bytes);
        sent.expect("credit came in the first flight");
        let accepted = peer.until(|_, event| match event {
            Event::Disposition { state, settled, .. } => Some((state.clone(), *settled)),
            _ => None,
        });
        assert_eq!(accepted, Some((Some(State::Accepted), true)));
        peer.serve();
    });
    run(async {
        let client = server
            .client()
            .max_frame_size(700)
            .connect()
            .await
            .expect("connected");
        let mut receiver = client.receiver("b").attach().await.expect("attached");
        let sender = client.sender("a").attach().await.expect("attached");
        let body: Vec<u8> = (0..SIZE).map(|n| (n / 7) as u8).collect();
        let message = Message::new(body.clone())
            .subject("large")
            .property("k", 1_u32);
        assert!(sender.send(message).await.expect("sent").is_accepted());
        let delivery = receiver.recv().await.expect("a message");
        assert_eq!(delivery.payload(), body);
        assert_eq!(delivery.properties().subject, Some("large"));
        assert_eq!(delivery.property("k"), Some(Value::Uint(1)));
        delivery.accept().await.expect("settled");
        client.close().await;
    });
    server.end();
}

#[test]
fn credit_follows_what_the_application_takes() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept();
        let link = peer.link();
        let mut number = 0_u64;
        let mut settled = 0;
        let mut send = |engine: &mut Connection| {
            assert!(engine.credit(link) <= 8, "the window");
            while number < 40 {
                let sending = Sending::new(Tag::from(number), false);
                match engine.send(link, &sending, b"", &body(number)) {
                    Ok(_) => number += 1,
                    Err(Refusal::Credit) => break,
                    Err(other) => unreachable!("{other}"),
                }
            }
        };
        // The credit came in the first flight.
        send(&mut peer.engine);
        peer.until(|engine, event| {
            settled += u32::from(matches!(event, Event::Disposition { .. }));
            send(engine);
            (settled == 40).then_some(())
        })
        .expect("all settled");
        peer.serve();
    });
    run(async {
        let client = server.client().connect().await.expect("connected");
        let mut receiver = client
            .receiver("b")
            .credit(8)
            .attach()
            .await
            .expect("attached");
        for number in 0..40 {
            let delivery = receiver.recv().await.expect("a message");
            assert_eq!(delivery.raw(), &body(number));
            delivery.accept();
        }
        client.close().await;
    });
    server.end();
}

fn body(number: u64) -> Bytes {
    let mut bytes = vec![0x00, 0x53, 0x75, 0xa0, 8];
    bytes.extend(number.to_be_bytes());
    bytes.into()
}

#[test]
fn a_drain_brings_what_there_is() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept();
        let link = peer.link();
        let mut drains = 0;
        peer.until(|engine, event| {
            if let Event::Credit { drain: true, .. } = event {
                for number in 0..3 {
                    let sending = Sending::new(Tag::from(number), true);
                    engine
                        .send(link, &sending, b"", &body(number))
                        .expect("credit");
                }
                engine.drained(link).expect("attached");
                drains += 1;
            } else if let Event::Credit { credit, .. } = event {
                return (drains == 1).then_some(*credit);
            }
            None
        })
        .expect("credit after the drain");
        peer.serve();
    });
    run(async {
        let client = server.client().connect().await.expect("connected");
        let mut receiver = client.receiver("b").attach().await.expect("attached");
        receiver.drain().await.expect("drained");
        for number in 0..3 {
            let delivery = receiver.try_recv().expect("it came before");
            assert!(delivery.is_settled());
            assert_eq!(delivery.raw(), &body(number));
        }
        assert!(receiver.try_recv().is_none());
        // Waiting gives credit again.
        let waiting = tokio::time::timeout(core::time::Duration::from_millis(50), receiver.recv());
        assert!(waiting.await.is_err());
        client.close().await;
    });
    server.end();
}

#[test]
fn the_receiver_says_every_outcome() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept();
        let link = peer.link();
        let mut said = Vec::new();
        for number in 0..4 {
            let sending = Sending::new(Tag::from(number), false);
            let sent = peer.engine.send(link, &sending, b"", &body(number));
            sent.expect("credit came in the first flight");
        }
        peer.until(|_, event| {
            if let Event::Disposition {
                state: Some(state),
                settled: true,
                ..
            } = event
            {
                said.push(format!("{:?}", state.get()));
            }
            (said.len() == 4).then_some(())
        })
        .expect("four");
        assert!(
            said[0].contains("Accepted") && said[1].contains("not good"),
            "{said:?}"
        );
        assert!(
            said[2].contains("Released") && said[3].contains("Modified"),
            "{said:?}"
        );
        peer.serve();
    });
    run(async {
        let client = server.client().connect().await.expect("connected");
        let mut receiver = client.receiver("b").attach().await.expect("attached");
        let mut all = Vec::new();
        for _ in 0..4 {
            all.push(receiver.recv().await.expect("a message"));
        }
        all[0].accept().await.expect("said");
        all[1]
            .reject("amqp:invalid-field", "not good")
            .await
            .expect("said");
        all[2].release().await.expect("said");
        all[3].modify(true, true).await.expect("said");
        assert_eq!(all[0].release().await, Err(SettleError::Forgotten), "once");
        client.close().await;
        assert!(receiver.recv().await.is_err());
    });
    server.end();
}

#[test]
fn exactly_once_waits_for_the_sender_to_settle() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept();
        let link = peer.link();
        let sending = Sending {
            rcv_settle_mode: Some(ReceiverSettleMode::Second),
            ..Sending::new(Tag::from(5), false)
        };
        let sent = peer.engine.send(link, &sending, b"", &body(5));
        sent.expect("credit came in the first flight");
        peer.until(|engine, event| {
            let Event::Disposition {
                delivery, settled, ..
            } = event
            else {
                return None;
            };
            assert!(!settled, "the sender settles first");
            let state = Some(&DeliveryState::ACCEPTED);
            engine.settle(*delivery, state).expect("unsettled");
            Some(())
        })
        .expect("accepted");
        peer.serve();
    });
    run(async {
        let client = server.client().connect().await.expect("connected");
        let receiver = client.receiver("b").exactly_once();
        let mut receiver = receiver.attach().await.expect("attached");
        let delivery = receiver.recv().await.expect("a message");
        delivery.accept().await.expect("settled by both");
        client.close().await;
    });
    server.end();
}
