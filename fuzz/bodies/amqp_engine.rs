//! Any sequence of what an AMQP client, a server, the network and time do to two
//! engines. Nothing panics, everything that came to be known has exactly one end,
//! and both sides of the calls keep to what the events say.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use dunlin_amqp::codec::{
    AnyTarget, Attach, Begin, Coordinator, DeliveryState, Error, Modified, Open, Outcome,
    ReceiverSettleMode, Role, SaslCode, SaslInit, Source, Symbol, Symbols, Target, Unsettled,
    condition,
};
use dunlin_amqp::{
    Connection, Delivery, Event, Extent, Limits, LinkId, SaslPolicy, SendError, Sending, SessionId,
    Settings, Side, Tag,
};
use dunlin_base::{Instant, SendBuf};

/// Small, so that limits are met.
fn limits() -> Limits {
    Limits {
        frame_bytes_max: 512,
        waiting_bytes_max: 600,
        sessions_max: 3,
        links_max: 4,
        incoming_window: 5,
        unsettled_received_max: 6,
        unsettled_sent_max: 6,
        partial_bytes_max: 2000,
        idle_time_out: Some(Duration::from_secs(4)),
        ..Limits::default()
    }
}

const NAMES: [&str; 3] = ["a", "b", "c"];

/// One side, with what its events have said.
struct End {
    connection: Connection,
    to_peer: Vec<u8>,
    sessions: BTreeSet<SessionId>,
    links: BTreeSet<LinkId>,
    /// Links of the peer that wait for an answer, with the peer's role.
    asked: BTreeMap<LinkId, Role>,
    deliveries: Vec<Delivery>,
    tag: u64,
    closed: u32,
    /// Bytes came that no engine sent: faults are expected.
    is_tampered: bool,
}

impl End {
    fn new(side: Side, sasl: SaslPolicy) -> Self {
        const MECHANISMS: [Symbol<'static>; 1] = [Symbol::from_static("ANONYMOUS")];
        let settings = Settings {
            side,
            container_id: "c",
            sasl,
            mechanisms: Symbols::new(&MECHANISMS),
            limits: limits(),
        };
        Self {
            connection: Connection::new(Instant::ZERO, &settings),
            to_peer: Vec::new(),
            sessions: BTreeSet::new(),
            links: BTreeSet::new(),
            asked: BTreeMap::new(),
            deliveries: Vec::new(),
            tag: 0,
            closed: 0,
            is_tampered: false,
        }
    }

    /// Takes bytes, and checks that events make sense after each other.
    fn read(&mut self, now: Instant, mut data: &[u8]) {
        while let Some(event) = self.connection.poll_event(now, &mut data) {
            if !self.is_tampered {
                check_fault(&event);
            }
            match event {
                Event::Begun {
                    session, by_peer, ..
                } => {
                    assert_eq!(self.sessions.insert(session), by_peer, "one begin");
                }
                Event::Ended { session, .. } => assert!(self.sessions.remove(&session)),
                Event::Attach {
                    link,
                    session,
                    attach,
                    steals,
                } => {
                    assert!(self.sessions.contains(&session));
                    assert!(self.links.insert(link), "a new id");
                    assert!(steals.is_none_or(|old| self.links.contains(&old)));
                    let attach = attach.attach().expect("decoded before");
                    self.asked.insert(link, attach.role);
                }
                Event::Detached { link, .. } => {
                    assert!(self.links.remove(&link), "one end");
                    self.asked.remove(&link);
                    self.deliveries.retain(|delivery| delivery.link != link);
                }
                Event::Attached { link, .. }
                | Event::Credit { link, .. }
                | Event::Flow { link, .. }
                | Event::Aborted { link, .. }
                | Event::Void { link } => assert!(self.links.contains(&link)),
                Event::Message(message) => {
                    assert!(self.links.contains(&message.delivery.link));
                    if !message.settled {
                        self.deliveries.push(message.delivery);
                    }
                }
                Event::Demand { delivery, .. } => self.deliveries.push(delivery),
                Event::Disposition {
                    delivery, settled, ..
                } => {
                    assert!(self.links.contains(&delivery.link));
                    if settled {
                        self.deliveries.retain(|it| *it != delivery);
                    }
                }
                Event::WindowOpen { session } => assert!(self.sessions.contains(&session)),
                Event::Closed { .. } => {
                    assert!(self.links.is_empty() && self.sessions.is_empty());
                    self.closed += 1;
                }
                _ => {}
            }
        }
        assert!(data.is_empty(), "all is taken");
    }

    fn write(&mut self, now: Instant) {
        let mut out = SendBuf::new();
        self.connection.poll_output(now, &mut out);
        self.to_peer.extend(out.slices().flatten());
    }

    fn session(&self, choice: u8) -> Option<SessionId> {
        let place = usize::from(choice) % self.sessions.len().max(1);
        self.sessions.iter().nth(place).copied()
    }

    fn link(&self, choice: u8) -> Option<LinkId> {
        let place = usize::from(choice) % self.links.len().max(1);
        self.links.iter().nth(place).copied()
    }

    fn delivery(&self, choice: u8) -> Option<Delivery> {
        let place = usize::from(choice) % self.deliveries.len().max(1);
        self.deliveries.get(place).copied()
    }

    fn call(&mut self, now: Instant, op: u8, choice: u8) {
        let error = Error::new(condition::NOT_ALLOWED, "no");
        let connection = &mut self.connection;
        match op % 16 {
            0 => drop(connection.open(now, &Open::default())),
            1 => {
                let init = SaslInit {
                    mechanism: Symbol::from_static("ANONYMOUS"),
                    ..SaslInit::default()
                };
                let _ = connection.sasl_init(&init);
            }
            2 => {
                let code = [SaslCode::Ok, SaslCode::Ok, SaslCode::Auth];
                if choice % 4 < 3 {
                    let _ = connection.sasl_outcome(code[usize::from(choice % 4)], None);
                } else if connection.sasl_challenge(b"?").is_ok() {
                    // The client may have sent ahead what follows the outcome.
                    self.is_tampered = true;
                }
            }
            3 => {
                if let Ok(session) = connection.begin(&Begin::default()) {
                    assert!(self.sessions.insert(session), "a new id");
                }
            }
            4 => self.attach(choice),
            5 | 6 => self.answer(choice),
            7..=9 => self.send(op, choice),
            10 | 11 => self.settle(choice),
            12 => {
                if let Some(link) = self.link(choice) {
                    let drain = choice & 64 != 0;
                    let _ = self
                        .connection
                        .set_credit(link, u32::from(choice & 7), drain);
                }
            }
            13 => {
                if let Some(link) = self.link(choice) {
                    let _ = match choice >> 6 {
                        0 => self.connection.drained(link).is_ok(),
                        1 => self.connection.abort(link).is_ok(),
                        2 => self.connection.set_available(link, 3).is_ok(),
                        _ => self.connection.detach(link, choice & 1 != 0, None).is_ok(),
                    };
                }
            }
            14 => {
                if let Some(session) = self.session(choice >> 2)
                    && choice & 3 == 0
                {
                    let _ = self
                        .connection
                        .end(session, (choice & 4 != 0).then_some(&error));
                }
            }
            _ if choice == 0 => drop(connection.close(now, Some(&error))),
            _ => {}
        }
    }

    fn attach(&mut self, choice: u8) {
        let Some(session) = self.session(choice >> 3) else {
            return;
        };
        let known = [(&b"12345678"[..], None)];
        let attach = Attach {
            name: NAMES[usize::from(choice) % NAMES.len()],
            role: if choice & 4 == 0 {
                Role::Sender
            } else {
                Role::Receiver
            },
            rcv_settle_mode: match choice & 16 {
                0 => ReceiverSettleMode::First,
                _ => ReceiverSettleMode::Second,
            },
            source: Some(Source::default()),
            target: Some(match choice & 224 {
                0 => AnyTarget::Coordinator(Coordinator::default()),
                _ => AnyTarget::Target(Target::default()),
            }),
            unsettled: (choice & 8 != 0).then(|| Unsettled::new(&known)),
            incomplete_unsettled: choice & 224 == 32,
            ..Attach::default()
        };
        if let Ok(link) = self.connection.attach(session, &attach) {
            assert!(self.links.insert(link), "a new id");
        }
    }

    fn answer(&mut self, choice: u8) {
        let Some((link, role)) = self.asked.pop_first() else {
            return;
        };
        if choice & 7 == 0 {
            let error = Error::new(condition::NOT_FOUND, "none");
            let _ = self.connection.refuse_attach(link, &error);
            return;
        }
        let answer = Attach {
            source: Some(Source::default()),
            target: Some(AnyTarget::Target(Target::default())),
            max_message_size: (choice & 8 != 0).then_some(900),
            ..Attach::default()
        };
        let accepted = self.connection.accept_attach(link, &answer);
        if accepted.is_ok() && role == Role::Sender {
            let credit = u32::from(choice >> 4);
            let given = self.connection.set_credit(link, credit, false);
            given.expect("attached");
        }
    }

    fn send(&mut self, op: u8, choice: u8) {
        let Some(link) = self.link(choice >> 4) else {
            return;
        };
        let body = Bytes::from(vec![7; usize::from(choice & 15) * 100]);
        if op & 16 != 0 {
            let _ = self.connection.send_part(link, &body, choice & 1 != 0);
            return;
        }
        let credit = self.connection.credit(link);
        let sending = Sending {
            extent: match choice & 7 {
                0 => Extent::First,
                1 => Extent::Aborted,
                _ => Extent::Whole,
            },
            resume: choice & 7 == 1,
            ..Sending::new(Tag::from(self.tag), choice & 8 != 0)
        };
        let sent = self.connection.send(link, &sending, b"head", &body);
        match sent {
            Ok(delivery) => {
                assert!(credit > 0 || sending.settled, "within the credit");
                self.tag += 1;
                if !sending.settled && sending.extent != Extent::Aborted {
                    self.deliveries.push(delivery);
                }
            }
            Err(SendError::Credit | SendError::Window | SendError::Unsettled) => {
                assert!(credit == 0, "credit says so");
            }
            Err(_) => {}
        }
    }

    fn settle(&mut self, choice: u8) {
        let Some(delivery) = self.delivery(choice >> 3) else {
            return;
        };
        let states = [
            DeliveryState::Outcome(Outcome::Accepted),
            DeliveryState::Outcome(Outcome::Released),
            DeliveryState::Outcome(Outcome::Modified(Modified::default())),
        ];
        let state = &states[usize::from(choice) % states.len()];
        if choice & 4 == 0 {
            let _ = self.connection.update(delivery, state);
        } else {
            let _ = self.connection.settle(delivery, Some(state));
            self.deliveries.retain(|it| *it != delivery);
        }
    }
}

/// Faults that two engines never find at each other, with any drivers.
const FAULTS: [Symbol<'static>; 8] = [
    condition::FRAMING_ERROR,
    condition::HANDLE_IN_USE,
    condition::ILLEGAL_STATE,
    condition::INVALID_FIELD,
    condition::MESSAGE_SIZE_EXCEEDED,
    condition::TRANSFER_LIMIT_EXCEEDED,
    condition::UNATTACHED_HANDLE,
    condition::WINDOW_VIOLATION,
];

fn check_fault(event: &Event<'_>) {
    if let Event::Detached { error, .. } | Event::Ended { error, .. } | Event::Closed { error, .. } =
        event
        && let Some(error) = error
    {
        assert!(!FAULTS.contains(&error.get().condition), "{error:?}");
    }
}

/// One input: two bytes for each operation.
pub(crate) fn run(data: &[u8]) {
    let mut input = data.iter().copied();
    let sasl = match input.next().unwrap_or_default() % 3 {
        0 => SaslPolicy::Off,
        1 => SaslPolicy::Optional,
        _ => SaslPolicy::Required,
    };
    let mut ends = [End::new(Side::Client, sasl), End::new(Side::Server, sasl)];
    let mut now = Instant::ZERO;
    while let (Some(op), Some(choice)) = (input.next(), input.next()) {
        let [client, server] = &mut ends;
        let (this, other) = match op & 1 {
            0 => (client, server),
            _ => (server, client),
        };
        match op >> 1 {
            0..=79 => this.call(now, op >> 1, choice),
            80..=111 => {
                this.write(now);
                let count = match op >> 6 {
                    2 => this.to_peer.len(),
                    _ => usize::from(choice).min(this.to_peer.len()),
                };
                let bytes: Vec<u8> = this.to_peer.drain(..count).collect();
                other.read(now, &bytes);
            }
            112..=115 => {
                now += Duration::from_millis(u64::from(choice) * 20);
                if this.connection.deadline().is_some_and(|at| at <= now) {
                    this.connection.on_deadline(now);
                }
            }
            // A byte of the peer's is another.
            116..=119 => {
                if let Some(byte) = this.to_peer.get_mut(usize::from(choice)) {
                    *byte ^= op;
                    other.is_tampered = true;
                    this.is_tampered = true;
                }
            }
            120 => {
                let len = usize::from(choice % 16);
                let bytes: Vec<u8> = input.by_ref().take(len).collect();
                (this.is_tampered, other.is_tampered) = (true, true);
                this.read(now, &bytes);
            }
            _ => this.read(now, &[]),
        }
    }
    for end in &mut ends {
        end.connection.handle_closed();
        end.read(now, &[]);
        assert!(
            end.links.is_empty() && end.sessions.is_empty(),
            "left behind"
        );
        assert_eq!(end.closed, 1, "one end");
        end.write(now);
        assert!(end.connection.is_finished());
        assert_eq!(end.connection.deadline(), None);
    }
}
