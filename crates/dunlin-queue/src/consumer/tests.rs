//! Consumers: order, credit, outcomes, and what the store is asked.

use super::*;

/// A consumer with its queue, whose keys count up as delivery-ids do.
#[derive(Default)]
struct Receiver {
    queue: Queue,
    consumer: Consumer<u32>,
    last: u32,
}

impl Receiver {
    fn push(&mut self, qos: QoS, seq: Option<u64>) {
        self.queue.push(delivery(qos, seq));
    }

    /// `credit` in deliveries that are not settled.
    fn poll(&mut self, credit: usize) -> Option<Next<u32>> {
        let last = &mut self.last;
        let left = credit.saturating_sub(self.consumer.len());
        self.consumer
            .poll(&mut self.queue, Instant::ZERO, left, |_| {
                *last += 1;
                Some(*last)
            })
    }

    /// The key and DUP of what is sent next.
    fn sent(&mut self, credit: usize) -> Option<(u32, bool)> {
        match self.poll(credit)? {
            Next::Send(transfer) => Some((transfer.key, transfer.again)),
            other => panic!("unexpected {other:?}"),
        }
    }

    fn settle(&mut self, key: u32, outcome: Outcome) -> Settled {
        self.consumer.settle(&mut self.queue, key, outcome)
    }
}

fn delivery(qos: QoS, seq: Option<u64>) -> Delivery {
    Delivery {
        content: Content::Held(Arc::new(Message::default())),
        seq,
        qos,
        retain: false,
        identifiers: Identifiers::new(),
        share: None,
        stream: StreamId::CONTROL,
        level: 0,
        maybe_sent: false,
        failed: 0,
        added: None,
    }
}

/// Places for which queue and consumer have memory.
fn kept(receiver: &Receiver) -> (usize, usize) {
    let consumer = &receiver.consumer;
    (receiver.queue.capacity(), consumer.unsettled.capacity())
}

#[test]
fn memory_is_kept_between_deliveries_where_that_is_wanted_and_little() {
    let mut receiver = Receiver {
        consumer: Consumer::keeping(16),
        ..Receiver::default()
    };
    let pass = |receiver: &mut Receiver, count: u32| {
        (0..count).for_each(|_| receiver.push(ONCE, None));
        let keys = core::iter::from_fn(|| receiver.sent(100).map(|(key, _)| key));
        for key in keys.collect::<Vec<_>>() {
            receiver.settle(key, Outcome::Accepted);
        }
    };
    for _ in 0..3 {
        pass(&mut receiver, 4);
        let (queue, consumer) = kept(&receiver);
        assert!((4..=16).contains(&queue) && (4..=16).contains(&consumer));
    }
    // What many took is given back.
    pass(&mut receiver, 100);
    assert_eq!(kept(&receiver), (0, 0));
    // As is all of a session that is idle.
    let mut receiver = Receiver::default();
    pass(&mut receiver, 4);
    assert_eq!(kept(&receiver), (0, 0));
}

const ONCE: QoS = QoS::AtLeastOnce;
const TWICE: QoS = QoS::ExactlyOnce;

#[test]
fn accepted_and_rejected_deliveries_are_over() {
    let mut to = Receiver::default();
    for seq in [7, 8] {
        to.push(ONCE, Some(seq));
    }
    assert_eq!(to.sent(2), Some((1, false)));
    assert_eq!(to.sent(2), Some((2, false)));
    for (key, place, outcome) in [(2, 8, Outcome::Rejected), (1, 7, Outcome::Accepted)] {
        assert!(matches!(
            to.settle(key, outcome),
            Settled::Done { seq: Some(seq), key_stored: false } if seq == place
        ));
        assert!(matches!(to.settle(key, outcome), Settled::Unknown));
    }
    assert!(to.consumer.is_empty() && to.queue.is_empty());
}

#[test]
fn a_released_delivery_is_in_front_of_its_queue_again() {
    let mut to = Receiver::default();
    for seq in [7, 8] {
        to.push(ONCE, Some(seq));
    }
    let bytes = to.queue.bytes();
    assert_eq!(to.sent(1), Some((1, false)));
    assert!(matches!(
        to.settle(1, Outcome::Released),
        Settled::Requeued { key_stored: false }
    ));
    assert_eq!((to.queue.len(), to.queue.bytes()), (2, bytes));
    assert_eq!(to.queue.front().and_then(|d| d.seq), Some(7));
    assert_eq!(to.sent(1), Some((2, false)), "under a key of its own");
}

#[test]
fn released_deliveries_are_in_their_order_again() {
    let front = |to: &mut Receiver, key| {
        let sent = to.sent(9).map(|(key, _)| key);
        assert_eq!(sent, Some(key));
        to.consumer.delivery(key).and_then(|d| d.seq)
    };
    for order in [[1, 2, 3], [3, 2, 1], [2, 3, 1]] {
        let mut to = Receiver::default();
        for seq in [7, 8, 9, 10] {
            to.push(ONCE, Some(seq));
        }
        for (key, seq) in [(1, 7), (2, 8), (3, 9)] {
            assert_eq!(front(&mut to, key), Some(seq));
        }
        for key in order {
            to.settle(key, Outcome::Released);
        }
        // One of them once more, in front of what came back with it.
        assert_eq!(front(&mut to, 4), Some(7));
        to.settle(4, Outcome::Released);
        for (key, seq) in [(5, 7), (6, 8), (7, 9), (8, 10)] {
            assert_eq!(front(&mut to, key), Some(seq), "released as {order:?}");
        }
    }
}

#[test]
fn an_attempt_that_failed_is_sent_as_a_repetition() {
    let mut to = Receiver::default();
    to.push(ONCE, None);
    assert_eq!(to.sent(1), Some((1, false)));
    let modified = Outcome::Modified {
        failed: true,
        undeliverable_here: false,
    };
    assert!(matches!(to.settle(1, modified), Settled::Requeued { .. }));
    assert_eq!(to.sent(1), Some((2, true)));
}

#[test]
fn what_cannot_be_delivered_here_is_for_another_receiver() {
    let mut to = Receiver::default();
    to.push(ONCE, Some(7));
    assert_eq!(to.sent(1), Some((1, false)));
    let modified = Outcome::Modified {
        failed: false,
        undeliverable_here: true,
    };
    let Settled::Returned { delivery, .. } = to.settle(1, modified) else {
        panic!("must be returned");
    };
    assert_eq!((delivery.seq, delivery.maybe_sent), (Some(7), false));
    assert!(to.queue.is_empty());
}

#[test]
fn a_shared_delivery_goes_back_to_its_group_with_its_filter() {
    let mut to = Receiver::default();
    for qos in [ONCE, TWICE, ONCE] {
        to.queue.push(Delivery {
            share: Some(Arc::from("$share/g/t")),
            ..delivery(qos, None)
        });
    }
    to.push(ONCE, None);
    for _ in 0..4 {
        assert!(to.sent(4).is_some());
    }
    let Settled::Returned { delivery, .. } = to.settle(1, Outcome::Released) else {
        panic!("must be returned");
    };
    assert_eq!(delivery.share.as_deref(), Some("$share/g/t"));
    // What settles in two steps may be with its receiver already.
    assert_eq!(to.consumer.release_shared().len(), 1);
    assert_eq!((to.consumer.len(), to.queue.len()), (2, 0));
}

#[test]
fn what_settles_in_two_steps_is_not_accepted_in_one() {
    let mut to = Receiver::default();
    to.push(TWICE, None);
    to.push(ONCE, None);
    assert!(to.sent(2).is_some() && to.sent(2).is_some());
    assert!(matches!(to.settle(1, Outcome::Accepted), Settled::Unknown));
    assert_eq!(to.consumer.handle_received(2), Receipt::Unknown);
    assert!(matches!(
        to.consumer.complete(&mut to.queue, 1),
        Settled::Unknown
    ));
    assert_eq!(to.consumer.handle_received(1), Receipt::Settle);
    assert!(matches!(to.settle(1, Outcome::Rejected), Settled::Unknown));
    assert!(to.consumer.delivery(1).is_none());
    assert!(matches!(
        to.consumer.complete(&mut to.queue, 1),
        Settled::Done { seq: None, .. }
    ));
}

#[test]
fn what_is_recorded_leaves_in_order_when_the_store_does_not_answer_in_order() {
    let mut to = Receiver::default();
    for seq in 1..=3 {
        to.push(TWICE, Some(seq));
        assert!(matches!(to.poll(9), Some(Next::Store { .. })));
    }
    assert_eq!(to.consumer.state(2), Some(State::Acquired));
    to.consumer.handle_stored(2);
    assert!(to.poll(9).is_none());
    to.consumer.handle_stored(1);
    assert_eq!(to.sent(9), Some((1, false)));
    assert_eq!(to.sent(9), Some((2, false)));
    assert!(to.poll(9).is_none());
    assert_eq!(to.consumer.handle_received(2), Receipt::Store { seq: 2 });
    assert_eq!(to.consumer.handle_received(2), Receipt::Pending);
    to.consumer.note_stream(2, StreamId(8));
    to.consumer.handle_receipt_stored(2);
    assert!(matches!(
        to.poll(9),
        Some(Next::Settle {
            key: 2,
            stream: StreamId(8)
        })
    ));
    assert!(matches!(
        to.consumer.complete(&mut to.queue, 2),
        Settled::Done {
            seq: None,
            key_stored: true
        }
    ));
}

#[test]
fn what_is_restored_is_sent_again_and_loaded_first() {
    let mut to = Receiver::default();
    let mut stored = delivery(TWICE, Some(5));
    stored.shed();
    to.consumer.restore(&mut to.queue, 9, Some(stored));
    to.consumer.restore(&mut to.queue, 2, None);
    to.push(ONCE, Some(6));
    to.consumer.handle_resumed(&mut to.queue);
    assert!(to.consumer.is_behind());
    assert!(matches!(to.poll(9), Some(Next::Load)));
    assert!(to.poll(9).is_none(), "one load at a time");
    assert_eq!(
        to.consumer.stored_at_front(&to.queue, 10, usize::MAX).0,
        [5],
        "before the queue"
    );
    let message = Arc::new(Message::default());
    to.consumer
        .handle_loaded(&mut to.queue, &[(5, Some(message))]);
    assert_eq!(to.sent(9), Some((9, true)));
    assert!(matches!(to.poll(9), Some(Next::Settle { key: 2, .. })));
    assert_eq!(to.sent(9), Some((1, false)));
}

/// A receiver after a restart: the key 9 is recorded for the message 5, and these wait.
fn recorded(waiting: &[u64]) -> Receiver {
    let mut to = Receiver::default();
    let (queue, recorded) = (&mut to.queue, delivery(TWICE, Some(5)));
    to.consumer.restore_recorded(queue, 9, recorded);
    for seq in waiting {
        to.push(TWICE, Some(*seq));
    }
    to.consumer.handle_resumed(&mut to.queue);
    to
}

/// Asks for the next message of the queue, and has it recorded.
fn record(to: &mut Receiver, credit: usize, expected: u64) -> u32 {
    let Some(Next::Store { key, seq }) = to.poll(credit) else {
        panic!("{expected} is recorded");
    };
    assert_eq!(seq, expected);
    assert!(to.poll(credit).is_none(), "nothing overtakes it");
    to.consumer.handle_stored(key);
    key
}

fn complete(to: &mut Receiver, key: u32) {
    let received = to.consumer.handle_received(key);
    assert!(matches!(received, Receipt::Store { .. }));
    to.consumer.handle_receipt_stored(key);
    assert!(matches!(to.poll(0), Some(Next::Settle { key: it, .. }) if it == key));
    let completed = to.consumer.complete(&mut to.queue, key);
    assert!(matches!(completed, Settled::Done { .. }));
}

#[test]
fn what_was_recorded_is_sent_behind_what_was_stored_before_it() {
    let mut to = recorded(&[4, 6]);
    assert!(to.consumer.is_behind());
    let first = record(&mut to, 9, 4);
    assert_eq!(to.sent(9), Some((first, false)));
    assert_eq!(to.sent(9), Some((9, true)));
    assert!(!to.consumer.is_behind());
    let last = record(&mut to, 9, 6);
    // After another connection they are in this order again.
    to.consumer.handle_resumed(&mut to.queue);
    assert_eq!(to.sent(9), Some((first, true)));
    assert_eq!(to.sent(9), Some((9, true)));
    assert_eq!(to.sent(9), Some((last, false)));
}

#[test]
fn what_was_recorded_waits_for_credit_that_others_give_back() {
    let mut to = recorded(&[3, 4]);
    let first = record(&mut to, 2, 3);
    assert_eq!(to.sent(2), Some((first, false)));
    assert!(to.poll(2).is_none(), "the message 4 leaves before");
    complete(&mut to, first);
    let second = record(&mut to, 2, 4);
    assert_eq!(to.sent(2), Some((second, false)));
    assert_eq!(to.sent(2), Some((9, true)));
    // Where it has all the credit itself, nothing else would end that.
    let mut to = recorded(&[4]);
    assert_eq!(to.sent(1), Some((9, true)));
    assert!(to.poll(1).is_none());
    complete(&mut to, 9);
    record(&mut to, 1, 4);
}

#[test]
fn what_was_recorded_is_loaded_when_its_turn_comes() {
    let mut to = Receiver::default();
    for (key, seq) in [(9, 5), (10, 6)] {
        let mut recorded = delivery(TWICE, Some(seq));
        recorded.shed();
        to.consumer.restore_recorded(&mut to.queue, key, recorded);
    }
    let mut first = delivery(TWICE, Some(4));
    first.shed();
    to.queue.push(first);
    to.consumer.handle_resumed(&mut to.queue);
    let load = |to: &mut Receiver, expected: &[u64]| {
        assert!(matches!(to.poll(9), Some(Next::Load)));
        let (asked, _) = to.consumer.stored_at_front(&to.queue, 10, usize::MAX);
        assert_eq!(asked, expected);
        let loaded = asked.into_iter().map(|seq| (seq, Some(Arc::default())));
        let loaded: Vec<_> = loaded.collect();
        to.consumer.handle_loaded(&mut to.queue, &loaded);
    };
    load(&mut to, &[4]);
    let key = record(&mut to, 9, 4);
    assert_eq!(to.sent(9), Some((key, false)));
    load(&mut to, &[5, 6]);
    assert_eq!(to.sent(9), Some((9, true)));
    // One that its receiver has is not sent any more.
    assert!(matches!(
        to.consumer.handle_received(10),
        Receipt::Store { .. }
    ));
    assert!(to.poll(9).is_none() && !to.consumer.is_behind());
}

#[test]
fn a_restored_message_that_is_gone_ends_its_delivery() {
    let mut to = Receiver::default();
    let mut stored = delivery(TWICE, Some(5));
    stored.shed();
    to.consumer.restore(&mut to.queue, 9, Some(stored));
    to.consumer.handle_resumed(&mut to.queue);
    assert!(matches!(to.poll(9), Some(Next::Load)));
    to.consumer.handle_loaded(&mut to.queue, &[(5, None)]);
    assert!(to.poll(9).is_none());
    assert!(to.consumer.is_empty());
}

#[test]
fn shed_messages_are_loaded_when_their_turn_comes() {
    let mut to = Receiver::default();
    for seq in 0..3 {
        to.push(ONCE, Some(seq));
    }
    assert!(to.queue.shed(1) > 0);
    assert_eq!(to.sent(10), Some((1, false)));
    assert!(matches!(to.poll(10), Some(Next::Load)));
    assert!(to.poll(10).is_none(), "one load at a time");
    let (asked, _) = to.consumer.stored_at_front(&to.queue, 10, usize::MAX);
    assert_eq!(asked, [1, 2]);
    let message = Arc::new(Message::default());
    let loaded = [(1, None), (2, Some(message))];
    to.consumer.handle_loaded(&mut to.queue, &loaded);
    assert_eq!(to.sent(10), Some((2, false)));
    assert!(to.queue.is_empty());
}

#[test]
fn an_expired_message_is_not_sent() {
    let mut to = Receiver::default();
    to.queue.push(Delivery {
        content: Content::Held(Arc::new(Message {
            expires: Some(Instant::ZERO),
            ..Message::default()
        })),
        ..delivery(ONCE, Some(3))
    });
    assert!(to.poll(0).is_none(), "without credit it waits");
    assert!(matches!(to.poll(1), Some(Next::Expired(d)) if d.seq == Some(3)));
    assert!(to.poll(1).is_none());
}

#[test]
fn higher_levels_overtake_what_waits_and_keep_their_own_order() {
    let mut to = Receiver::default();
    let levels = [0, 0, 7, 3, 7, 0, 3, 9];
    for (seq, level) in levels.into_iter().enumerate() {
        to.queue.push(Delivery {
            level,
            ..delivery(ONCE, Some(seq as u64))
        });
    }
    let mut order = Vec::new();
    while let Some((key, _)) = to.sent(100) {
        order.extend(to.consumer.delivery(key).and_then(|d| d.seq));
    }
    assert_eq!(order, [7, 2, 4, 3, 6, 0, 1, 5]);
}
