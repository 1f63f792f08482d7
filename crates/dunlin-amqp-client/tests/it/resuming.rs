//! Connections that break at any byte: nothing is lost or doubled where the
//! server keeps the state of its links, and nothing is lost where it does not.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Shutdown;

use bytes::Bytes;
use dunlin_amqp::codec::{Attach, DeliveryState, Role, Unsettled as UnsettledMap};
use dunlin_amqp::{
    Body, Connection, Event, LinkId, Message, RemoteUnsettled, Resumption, Sending, State, Tag,
};
use dunlin_amqp_client::{
    Client, Delivery, LinkError, Outcome, Receiver, SendError, TerminusDurability,
    TerminusExpiryPolicy, Unsettled,
};
use dunlin_base::Random;

use super::run;
use super::server::{Peer, Server};

/// Messages each way.
const COUNT: u64 = 600;

/// What a server keeps of the two links of a client: it takes what is sent on
/// one, and sends on the other, second mode on both.
#[derive(Default)]
struct Kept {
    /// Deliveries of the client that are accepted and unsettled.
    received: BTreeMap<Tag, ()>,
    /// How often each message of the client was handled.
    handled: BTreeMap<Bytes, u32>,
    /// Messages to the client that are unsettled.
    sent: BTreeMap<u64, ()>,
    /// Those of them to be sent on this attachment: resumed or not.
    again: Vec<(u64, Option<State>)>,
    next: u64,
    out: Option<LinkId>,
    /// The client sends nothing.
    only_sends: bool,
}

impl Kept {
    /// All messages have come, and all that were sent are settled.
    fn is_done(&self) -> bool {
        let has_all = self.only_sends || self.handled.len() as u64 == COUNT;
        has_all && self.next == COUNT && self.sent.is_empty()
    }

    fn handle(&mut self, engine: &mut Connection, event: &Event<'_>) {
        match event {
            Event::Attach { link, attach, .. } => self.attach(engine, *link, attach),
            Event::Message(message) => self.receive(engine, message),
            Event::Disposition {
                delivery,
                tag,
                state,
                settled,
            } => {
                if *settled {
                    self.received.remove(tag);
                    return;
                }
                assert_eq!(*state, Some(State::Accepted));
                let accepted = Some(&DeliveryState::ACCEPTED);
                engine.settle(*delivery, accepted).expect("unsettled");
                self.sent.remove(&tag.number().expect("ours"));
            }
            _ => {}
        }
        self.send(engine);
    }

    fn attach(&mut self, engine: &mut Connection, link: LinkId, body: &Body) {
        let asked = body.attach().expect("decoded before");
        let map = RemoteUnsettled::new(&asked);
        let mut ours = Vec::new();
        if asked.role == Role::Sender {
            self.received.retain(|tag, ()| !map.is_forgotten(*tag));
            let state = Some(DeliveryState::ACCEPTED);
            ours.extend(self.received.keys().map(|tag| (*tag, state)));
        } else {
            self.out = Some(link);
            self.again.clear();
            for number in self.sent.keys().copied() {
                let state = match map.resumption(Tag::from(number), None) {
                    Resumption::Resend => None,
                    Resumption::Settle(state) => State::new(&state),
                    Resumption::Resume(at) => State::new(&DeliveryState::Received(at)),
                    other => unreachable!("{other:?}"),
                };
                self.again.push((number, state));
            }
            self.again.reverse();
            ours.extend(self.sent.keys().map(|number| (Tag::from(*number), None)));
        }
        let ours: Vec<_> = ours.iter().map(|(tag, s)| (tag.as_bytes(), *s)).collect();
        let answer = Attach {
            unsettled: Some(UnsettledMap::new(&ours)),
            ..asked
        };
        engine.accept_attach(link, &answer).expect("it waits");
        if asked.role == Role::Sender {
            engine.set_credit(link, 1000, false).expect("attached");
        }
    }

    fn receive(&mut self, engine: &mut Connection, message: &Message<'_>) {
        if message.settled {
            self.received.remove(&message.tag);
            return;
        }
        if message.resume {
            assert!(self.received.contains_key(&message.tag), "known");
        } else {
            let bytes = Bytes::copy_from_slice(message.payload.as_ref());
            *self.handled.entry(bytes).or_default() += 1;
            self.received.insert(message.tag, ());
        }
        let accepted = engine.update(message.delivery, &DeliveryState::ACCEPTED);
        accepted.expect("unsettled");
    }

    /// Sends what was unsettled, then what is new.
    fn send(&mut self, engine: &mut Connection) {
        let Some(link) = self.out else {
            return;
        };
        while let Some((number, state)) = self.again.last() {
            let number = *number;
            let sending = Sending {
                resume: state.is_some(),
                // Its outcome is known: this side takes it over.
                settled: state.as_ref().is_some_and(State::is_terminal),
                state: state.as_ref().map(State::get),
                ..Sending::new(Tag::from(number), false)
            };
            if engine.send(link, &sending, b"", &body(number)).is_err() {
                return;
            }
            if sending.settled {
                self.sent.remove(&number);
            }
            self.again.pop();
        }
        while self.next < COUNT && self.sent.len() < 20 {
            let sending = Sending::new(Tag::from(self.next), false);
            if engine.send(link, &sending, b"", &body(self.next)).is_err() {
                return;
            }
            self.sent.insert(self.next, ());
            self.next += 1;
        }
    }
}

fn body(number: u64) -> Bytes {
    let mut bytes = vec![0x00, 0x53, 0x75, 0xa0, 8];
    bytes.extend(number.to_be_bytes());
    bytes.into()
}

/// Serves one connection until it breaks by itself, after so many events. At the
/// end it does not break any more: the client closes it.
fn serve(peer: &mut Peer, kept: &mut Kept, events: u64) {
    let mut count = 0;
    kept.out = None;
    let _ = peer.until(|engine, event| {
        kept.handle(engine, event);
        count += 1;
        (count >= events && !kept.is_done()).then_some(())
    });
    let _ = peer.stream.shutdown(Shutdown::Both);
}

#[test]
fn what_is_sent_exactly_once_is_handled_exactly_once() {
    let server = Server::run(|listener| {
        let mut kept = Kept::default();
        let mut random = Random::new(7);
        let mut breaks = 0;
        while !kept.is_done() {
            let mut peer = listener.accept();
            // Links are answered by what is kept of them.
            peer.by_hand = true;
            let events = 5 + random.below(60);
            serve(&mut peer, &mut kept, events);
            breaks += 1;
        }
        assert!(breaks >= 10, "{breaks}");
        assert_eq!(kept.handled.len() as u64, COUNT);
        let doubled = kept.handled.values().filter(|count| **count != 1).count();
        assert_eq!((doubled, kept.sent.len()), (0, 0));
    });
    run(async {
        let client = server
            .client()
            .losses_max(0)
            .connect()
            .await
            .expect("connected");
        let received = receive_all(&client);
        let sent = send_all(&client, true);
        let (received, ()) = tokio::join!(received, sent);
        let all: Vec<u64> = (0..COUNT).collect();
        assert_eq!(received, all, "each once and in order");
        client.close().await;
    });
    server.end();
}

async fn send_all(client: &Client, once: bool) {
    let builder = client.sender("a").name("to").max_in_flight(16);
    let builder = if once {
        builder.exactly_once()
    } else {
        builder
    };
    let (sender, _) = builder.start().expect("started");
    let mut all = Vec::new();
    for number in 0..COUNT {
        let message = dunlin_amqp_client::Message::raw(body(number));
        all.push(sender.start_send(message).await.expect("handed over"));
    }
    for sent in all {
        assert_eq!(sent.await.expect("an outcome"), Outcome::Accepted);
    }
}

async fn receive_all(client: &Client) -> Vec<u64> {
    let builder = client.receiver("b").name("from").exactly_once().credit(8);
    let (mut receiver, _) = builder.start().expect("started");
    let mut all = Vec::new();
    let mut accepted = Vec::new();
    while (all.len() as u64) < COUNT {
        let delivery = receiver.recv().await.expect("a message");
        all.push(number(&delivery));
        accepted.push(delivery.accept());
    }
    for accepted in accepted {
        accepted.await.expect("settled by both");
    }
    all
}

fn number(delivery: &Delivery) -> u64 {
    let payload = delivery.payload();
    u64::from_be_bytes(payload[..].try_into().expect("8 bytes"))
}

/// A server that sends all messages to a client that begins again and again; the
/// connection breaks after up to so many events.
fn sends_to_processes(events_max: u64) -> Server {
    Server::run(move |listener| {
        let mut kept = Kept {
            only_sends: true,
            ..Kept::default()
        };
        let mut random = Random::new(5);
        while !kept.is_done() {
            let mut peer = listener.accept();
            peer.by_hand = true;
            let events = 5 + random.below(events_max);
            serve(&mut peer, &mut kept, events);
        }
    })
}

/// A process that goes on with what an earlier one left.
async fn begin(server: &Server, kept: Vec<Unsettled>) -> (Client, Receiver) {
    let client = server.client().losses_max(0).connect().await;
    let client = client.expect("connected");
    let builder = client.receiver("b").name("from").exactly_once().credit(8);
    let builder = builder
        .durable(TerminusDurability::UnsettledState)
        .expiry(TerminusExpiryPolicy::Never, Duration::ZERO)
        .resume(kept);
    let (receiver, _) = builder.start().expect("started");
    (client, receiver)
}

#[test]
fn what_is_received_exactly_once_is_so_over_the_end_of_processes() {
    let server = sends_to_processes(60);
    run(async {
        let mut random = Random::new(11);
        // What a process has on its disk: its work, and tags.
        let (mut all, mut tags) = (Vec::new(), BTreeSet::new());
        let mut processes = 0;
        while (all.len() as u64) < COUNT {
            processes += 1;
            let kept = tags.iter().map(|tag: &Bytes| Unsettled {
                tag: tag.clone(),
                outcome: Some(Outcome::Accepted),
            });
            let (client, mut receiver) = begin(&server, kept.collect()).await;
            let mut open = receiver.resumed();
            assert_eq!(open.len(), tags.len());
            for _ in 0..5 + random.below(40) {
                let delivery = receiver.recv().await.expect("a message");
                assert!(!delivery.is_resumed());
                all.push(number(&delivery));
                let tag = Bytes::copy_from_slice(delivery.tag());
                tags.insert(tag.clone());
                open.push((tag, delivery.accept()));
                if all.len() as u64 == COUNT {
                    break;
                }
            }
            // Of some it hears that they are settled before it ends.
            let heard = match all.len() as u64 {
                COUNT => open.len(),
                _ => random.below(open.len() as u64) as usize,
            };
            for (tag, settled) in open.drain(..heard) {
                settled.await.expect("settled by both");
                tags.remove(&tag);
            }
            drop(receiver);
            client.close().await;
        }
        assert!(processes > 5 && tags.is_empty());
        let each: Vec<u64> = (0..COUNT).collect();
        all.sort_unstable();
        assert_eq!(all, each, "each once");
    });
    server.end();
}

fn is_of_sender(attach: &Body) -> bool {
    attach.attach().is_some_and(|it| it.role == Role::Sender)
}

#[test]
fn what_is_accepted_is_settled_while_as_many_messages_wait_as_may() {
    let server = Server::run(|listener| {
        let mut kept = Kept {
            only_sends: true,
            next: COUNT - 12,
            ..Kept::default()
        };
        let mut peer = listener.accept();
        peer.by_hand = true;
        // Settles nothing, and breaks when the client begins to send.
        let _ = peer.until(|engine, event| match event {
            Event::Attach { attach, .. } if is_of_sender(attach) => Some(()),
            Event::Disposition { .. } => None,
            _ => {
                kept.handle(engine, event);
                None
            }
        });
        drop(peer);
        let mut peer = listener.accept();
        peer.by_hand = true;
        serve(&mut peer, &mut kept, u64::MAX);
        assert!(kept.is_done());
    });
    run(async {
        let (client, mut receiver) = begin(&server, Vec::new()).await;
        let mut accepted = Vec::new();
        for _ in 0..4 {
            let delivery = receiver.recv().await.expect("a message");
            accepted.push(delivery.accept());
        }
        // The credit is 8: that many wait now.
        while receiver.unsettled().await.expect("attached").len() < 12 {
            tokio::task::yield_now().await;
        }
        let _sender = client.sender("a").start().expect("started");
        for settled in accepted {
            settled.await.expect("settled by both");
        }
        for _ in 0..8 {
            let delivery = receiver.recv().await.expect("a message");
            delivery.accept().await.expect("settled by both");
        }
        client.close().await;
    });
    server.end();
}

#[test]
fn what_had_no_outcome_comes_again_with_its_tag() {
    let server = sends_to_processes(u64::MAX / 2);
    run(async {
        let (client, mut receiver) = begin(&server, Vec::new()).await;
        let (mut done, mut open) = (BTreeSet::new(), BTreeMap::new());
        for count in 0..5 {
            let delivery = receiver.recv().await.expect("a message");
            if count < 2 {
                delivery.accept().await.expect("settled by both");
                done.insert(number(&delivery));
            } else {
                open.insert(Bytes::copy_from_slice(delivery.tag()), number(&delivery));
            }
        }
        let kept = receiver.unsettled().await.expect("attached");
        let has = |tag: &Bytes| kept.iter().any(|it| it.tag == *tag && it.outcome.is_none());
        assert!(open.keys().all(has), "{kept:?}");
        drop(receiver);
        client.close().await;
        let (client, mut receiver) = begin(&server, kept.clone()).await;
        assert!(receiver.resumed().is_empty(), "nothing was said");
        let mut again = 0;
        while (done.len() as u64) < COUNT {
            let delivery = receiver.recv().await.expect("a message");
            if delivery.is_resumed() {
                again += 1;
                let before = open.remove(delivery.tag());
                assert!(before.is_none_or(|before| before == number(&delivery)));
            }
            delivery.accept().await.expect("settled by both");
            assert!(done.insert(number(&delivery)), "once");
        }
        assert_eq!((again, open.len()), (kept.len(), 0));
        assert_eq!(receiver.unsettled().await.expect("attached"), []);
        // What is no state of a link is refused at once.
        let wrong = client.receiver("b").resume([Unsettled {
            tag: Bytes::from_static(&[0; 33]),
            outcome: None,
        }]);
        assert!(matches!(wrong.attach().await, Err(LinkError::Unsettled(_))));
        drop(receiver);
        client.close().await;
    });
    server.end();
}

#[test]
fn a_server_that_forgets_gets_at_least_once() {
    let server = Server::run(|listener| {
        let mut handled = BTreeMap::<Bytes, u32>::new();
        let mut random = Random::new(3);
        while (handled.len() as u64) < COUNT {
            let mut peer = listener.accept();
            let mut left = 5 + random.below(60);
            let _ = peer.until(|engine, event| {
                match event {
                    Event::Attach { link, .. } => {
                        engine.set_credit(*link, 1000, false).expect("attached");
                    }
                    Event::Message(message) => {
                        let bytes = Bytes::copy_from_slice(message.payload.as_ref());
                        *handled.entry(bytes).or_default() += 1;
                        let accepted = Some(&DeliveryState::ACCEPTED);
                        engine
                            .settle(message.delivery, accepted)
                            .expect("unsettled");
                    }
                    _ => {}
                }
                left = left.saturating_sub(1);
                (left == 0 && (handled.len() as u64) < COUNT).then_some(())
            });
            let _ = peer.stream.shutdown(Shutdown::Both);
        }
    });
    run(async {
        let client = server
            .client()
            .losses_max(0)
            .connect()
            .await
            .expect("connected");
        send_all(&client, false).await;
        client.close().await;
    });
    server.end();
}

#[test]
fn settled_messages_that_were_on_their_way_are_lost() {
    let server = Server::run(|listener| {
        let mut peer = listener.accept();
        let link = peer.link();
        peer.engine.set_credit(link, 1000, false).expect("attached");
        peer.flush();
        // The first message is on its way; it and the rest are not read.
        peer.stream.peek(&mut [0]).expect("a message");
        std::thread::sleep(Duration::from_millis(300));
        drop(peer);
        let mut peer = listener.accept();
        let link = peer.link();
        peer.engine.set_credit(link, 1000, false).expect("attached");
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
        let mut all = Vec::new();
        let body = Bytes::from(vec![0; 1 << 20]);
        for _ in 0..40 {
            let message = dunlin_amqp_client::Message::new(body.clone());
            all.push(sender.start_send(message).await.expect("handed over"));
        }
        let mut lost = 0;
        for sent in all.into_iter().take(20) {
            if matches!(sent.await, Err(SendError::Lost)) {
                lost += 1;
            }
        }
        assert!(lost > 0);
        client.close().await;
    });
    server.end();
}
