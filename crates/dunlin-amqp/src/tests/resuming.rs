//! Deliveries that survive the connection: exactly once with any number of
//! broken connections, and the rules for incomplete maps.

use alloc::collections::BTreeMap;

use dunlin_amqp_codec::{ReceiverSettleMode, SerialNumber, Transfer, Unsettled};
use dunlin_base::Random;

use super::*;
use crate::{Delivery, Extent, RemoteUnsettled, Resumption, State};

/// A sender and a receiver that settle second, a network that breaks, and what
/// both keep over it.
struct World {
    random: Random,
    client: End,
    server: End,
    to_server: VecDeque<u8>,
    to_client: VecDeque<u8>,
    session: Option<SessionId>,
    link: Option<LinkId>,
    /// Messages of the sender that are unsettled, with their sizes.
    sent: BTreeMap<u64, usize>,
    /// Those of them that are to be sent on this attachment: resumed or again.
    again: VecDeque<(u64, bool)>,
    /// Deliveries of the receiver that are unsettled and accepted.
    received: BTreeMap<u64, ()>,
    /// How often each message was handled.
    handled: BTreeMap<u64, u32>,
    next: u64,
    breaks: u32,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            client: End::new(Side::Client, SaslPolicy::Off, Limits::default()),
            server: End::new(Side::Server, SaslPolicy::Off, small()),
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            session: None,
            link: None,
            sent: BTreeMap::new(),
            again: VecDeque::new(),
            received: BTreeMap::new(),
            handled: BTreeMap::new(),
            next: 0,
            breaks: 0,
        }
    }

    /// The transport breaks: what is on its way is lost.
    fn connect(&mut self) {
        self.to_server.clear();
        self.to_client.clear();
        self.client = End::new(Side::Client, SaslPolicy::Off, Limits::default());
        self.server = End::new(Side::Server, SaslPolicy::Off, small());
        self.link = None;
        self.again.clear();
        let client = &mut self.client.connection;
        client.open(NOW, &Open::default()).expect("opened");
        self.session = client.begin(&Begin::default()).ok();
    }

    fn step(&mut self, breaks: bool) {
        match self.random.below(60) {
            0 if breaks => {
                self.breaks += 1;
                self.connect();
            }
            0..15 => self.send_new(),
            15..25 => self.send_again(),
            25..43 => {
                self.to_server.extend(self.client.output(NOW));
                let count = self.random.below(self.to_server.len() as u64 + 1);
                let bytes: Vec<u8> = self.to_server.drain(..count as usize).collect();
                self.server_reads(&bytes);
            }
            _ => {
                self.to_client.extend(self.server.output(NOW));
                let count = self.random.below(self.to_client.len() as u64 + 1);
                let bytes: Vec<u8> = self.to_client.drain(..count as usize).collect();
                self.client_reads(&bytes);
            }
        }
    }

    fn send_new(&mut self) {
        let size = self.random.below(1500) as usize;
        let Some(link) = self.link.filter(|_| self.again.is_empty()) else {
            return;
        };
        if self.sent.len() < 10
            && self
                .client
                .try_send(link, self.next, false, &body(size))
                .is_ok()
        {
            self.sent.insert(self.next, size);
            self.next += 1;
        }
    }

    /// Sends what the comparison of the maps said.
    fn send_again(&mut self) {
        let (Some(link), Some((number, resume))) = (self.link, self.again.front().copied()) else {
            return;
        };
        let sending = Sending {
            resume,
            ..Sending::new(Tag::from(number), false)
        };
        let size = self.sent.get(&number).copied().expect("unsettled");
        let message = Bytes::from(body(size));
        let client = &mut self.client.connection;
        if client.send(link, &sending, b"", &message).is_ok() {
            self.again.pop_front();
        }
    }

    fn client_reads(&mut self, mut data: &[u8]) {
        while let Some(event) = self.client.connection.poll_event(NOW, &mut data) {
            match event.into_owned() {
                Event::Begun { session, .. } => {
                    let tags: Vec<Tag> = self.sent.keys().copied().map(Tag::from).collect();
                    let map: Vec<_> = tags.iter().map(|tag| (tag.as_bytes(), None)).collect();
                    let attach = Attach {
                        unsettled: Some(Unsettled::new(&map)),
                        rcv_settle_mode: ReceiverSettleMode::Second,
                        ..attach("s", Role::Sender)
                    };
                    let link = self.client.connection.attach(session, &attach);
                    link.expect("attached");
                }
                Event::Attached { link, attach } => self.compare(link, &attach),
                Event::Disposition {
                    delivery,
                    tag,
                    state,
                    settled,
                } => {
                    assert_eq!((state, settled), (Some(State::Accepted), false));
                    let client = &mut self.client.connection;
                    client.settle(delivery, Some(&ACCEPTED)).expect("unsettled");
                    self.sent.remove(&tag.number().expect("ours"));
                }
                Event::Opened(_) | Event::Credit { .. } | Event::WindowOpen { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Goes through what both sides have not settled.
    fn compare(&mut self, link: LinkId, attach: &crate::Body) {
        self.link = Some(link);
        let attach = attach.attach().expect("decoded before");
        let map = RemoteUnsettled::new(&attach);
        for number in self.sent.keys().copied().collect::<Vec<_>>() {
            match map.resumption(Tag::from(number), None) {
                Resumption::Resend => self.again.push_back((number, false)),
                // The receiver has it: only the outcome is missing.
                Resumption::Settle(outcome) => {
                    assert_eq!(outcome, ACCEPTED);
                    self.again.push_back((number, true));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn server_reads(&mut self, mut data: &[u8]) {
        while let Some(event) = self.server.connection.poll_event(NOW, &mut data) {
            let event = event.into_owned();
            let server = &mut self.server.connection;
            match event {
                Event::Opened(_) => server.open(NOW, &Open::default()).expect("waits"),
                Event::Attach { link, attach, .. } => self.reattach(link, &attach),
                Event::Message(message) => self.receive(&message),
                Event::Disposition { tag, settled, .. } => {
                    assert!(settled);
                    self.received.remove(&tag.number().expect("ours"));
                }
                Event::Begun { .. } | Event::Flow { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn reattach(&mut self, link: LinkId, attach: &crate::Body) {
        let asked = attach.attach().expect("decoded before");
        let map = RemoteUnsettled::new(&asked);
        self.received
            .retain(|number, ()| !map.is_forgotten(Tag::from(*number)));
        let tags: Vec<Tag> = self.received.keys().copied().map(Tag::from).collect();
        let ours: Vec<_> = tags
            .iter()
            .map(|tag| (tag.as_bytes(), Some(ACCEPTED)))
            .collect();
        let answer = Attach {
            unsettled: Some(Unsettled::new(&ours)),
            ..asked
        };
        let server = &mut self.server.connection;
        server.accept_attach(link, &answer).expect("waits");
        server.set_credit(link, 1000, false).expect("attached");
    }

    fn receive(&mut self, message: &Message<'_>) {
        let number = message.tag.number().expect("ours");
        if message.resume {
            assert!(self.received.contains_key(&number), "known");
        } else {
            *self.handled.entry(number).or_default() += 1;
            self.received.insert(number, ());
        }
        let server = &mut self.server.connection;
        server
            .update(message.delivery, &ACCEPTED)
            .expect("unsettled");
    }
}

/// Frames so small that most messages have several, and a window of few.
fn small() -> Limits {
    Limits {
        frame_bytes_max: 512,
        incoming_window: 6,
        ..Limits::default()
    }
}

fn body(size: usize) -> Vec<u8> {
    alloc::vec![7; size]
}

#[test]
fn every_message_is_handled_once_over_broken_connections() {
    let (mut breaks, mut messages) = (0, 0);
    for seed in 0..60 {
        let mut world = World::new(seed);
        world.connect();
        for _ in 0..3_000 {
            world.step(true);
        }
        for _ in 0..3_000 {
            world.step(false);
        }
        for number in 0..world.next {
            let handled = world.handled.get(&number).copied();
            let is_left = world.sent.contains_key(&number);
            let is_right = handled == Some(1) || handled.is_none() && is_left;
            assert!(is_right, "seed {seed}: {number} {handled:?}");
        }
        breaks += world.breaks;
        messages += world.handled.len();
    }
    assert!(breaks > 1_000 && messages > 10_000, "{breaks} {messages}");
}

/// A delivery that is resumed, without a message.
fn resumed(id: u32) -> Transfer<'static> {
    Transfer {
        delivery_id: Some(SerialNumber(id)),
        delivery_tag: Some(b"known"),
        resume: true,
        ..Transfer::default()
    }
}

/// A server whose map has the delivery `known`.
fn resuming(incomplete_unsettled: bool) -> Script {
    let mut script = Script::begun(Limits::default());
    let asked = notation::frame(0, &sender_attach("s", 0), b"");
    script.end.feed(NOW, &asked, false);
    let Some(Event::Attach { link, .. }) = script.end.events.pop_back() else {
        panic!("no attach came");
    };
    let map = [(&b"known"[..], None)];
    let answer = Attach {
        unsettled: Some(Unsettled::new(&map)),
        incomplete_unsettled,
        ..attach("", Role::Receiver)
    };
    let connection = &mut script.end.connection;
    connection.accept_attach(link, &answer).expect("waits");
    connection.set_credit(link, 10, false).expect("attached");
    script.sent();
    script
}

#[test]
fn what_the_receiver_does_not_know_is_not_resumed() {
    let mut script = resuming(false);
    let unknown = Transfer {
        delivery_tag: Some(b"unknown"),
        ..resumed(0)
    };
    let part = Transfer {
        more: true,
        ..unknown
    };
    let again = Transfer {
        delivery_id: Some(SerialNumber(1)),
        ..unknown
    };
    let further = Transfer::default();
    assert!(script.transfer(part, b"x").is_empty());
    assert!(script.transfer(further, b"x").is_empty());
    assert_eq!(script.end.names(), ["Void"]);
    assert!(script.transfer(again, b"x").is_empty());
    assert_eq!(script.end.names(), ["Void"]);
    assert!(script.transfer(resumed(2), b"x").is_empty());
    assert_eq!(script.end.names(), ["Message 1"]);

    let mut script = resuming(false);
    let aborted = Transfer {
        aborted: true,
        ..resumed(0)
    };
    assert!(script.transfer(aborted, b"").is_empty());
    assert_eq!(script.end.names(), ["Aborted 0"]);
}

#[test]
fn incomplete_maps_keep_new_deliveries_back_on_both_sides() {
    let mut script = resuming(true);
    assert!(script.transfer(resumed(0), b"x").is_empty());
    let new = Transfer {
        resume: false,
        ..resumed(1)
    };
    assert_eq!(
        script.transfer(new, b"x"),
        ["detach h=0 closed amqp:illegal-state"]
    );

    let (mut pair, session) = Pair::open();
    let incomplete = Attach {
        incomplete_unsettled: true,
        ..attach("s", Role::Sender)
    };
    let (link, theirs) = pair.attach(session, &incomplete);
    pair.give_credit(theirs, 10);
    assert_eq!(
        pair.client.try_send(link, 1, false, b"x"),
        Err(SendError::Incomplete)
    );
    let sending = Sending {
        resume: true,
        extent: Extent::Aborted,
        ..Sending::new(Tag::from(1), false)
    };
    let client = &mut pair.client.connection;
    let sent = client.send(link, &sending, b"", &Bytes::new());
    let Ok(Delivery { id, .. }) = sent else {
        panic!("{sent:?}");
    };
    assert_eq!(
        notation::frames(&pair.client.output(NOW)),
        [alloc::format!(
            "transfer h=0 id={} 0 aborted resume",
            id.cast_signed()
        )]
    );
}
