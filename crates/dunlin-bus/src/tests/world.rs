//! Two ends of a link, what is on its way between them, and the rules that hold in
//! any case.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Buf as _, BufMut as _, Bytes};
use dunlin_base::{Instant, Random};

use crate::authority::Authority;
use crate::cause::Lost;
use crate::config::Timing;
use crate::flow::{Flow, Receipt, cost};
use crate::ids::{Incarnation, NodeId};
use crate::link::{Draw, Link, LinkEvent, Own};
use crate::member::Encoding;
use crate::wire::{self, Dropped};

/// What happens to messages: once in so many, where 0 is never.
#[derive(Clone, Copy, Default)]
pub(crate) struct Faults {
    pub(crate) loss: u64,
    pub(crate) repetition: u64,
    pub(crate) other_order: u64,
    /// Messages of strangers: recorded, altered or random ones.
    pub(crate) stranger: u64,
    /// A node starts again.
    pub(crate) restart: u64,
    /// A node stands still for seconds.
    pub(crate) stall: u64,
}

/// Messages that strangers remember.
const RECORDED_MAX: usize = 200;

pub(crate) struct End {
    pub(crate) link: Link,
    node: NodeId,
    incarnation: Incarnation,
    secret: &'static [u8],
    /// The link that there is, and the number of the batch that comes next.
    pub(crate) current: Option<(u64, Arc<Flow>)>,
    expected: u64,
    next: u64,
    /// It does nothing until then.
    stalled: Instant,
    /// Batches that its consumer has, and until when.
    held: Vec<(Instant, Receipt)>,
    pub(crate) received: u64,
    pub(crate) lost: Vec<Lost>,
    pub(crate) linked: u64,
    pub(crate) dropped: BTreeMap<Dropped, u64>,
    pub(crate) round_trips: u64,
}

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) random: Random,
    pub(crate) faults: Faults,
    pub(crate) ends: [End; 2],
    /// Bytes of a message: few, so that batches are cut.
    pub(crate) bytes_max: usize,
    /// By time of arrival and order of sending: to which end.
    on_way: BTreeMap<(Instant, u64), (usize, Bytes)>,
    sent: u64,
    recorded: Vec<(usize, Bytes)>,
    /// Nothing goes wrong, and little happens.
    is_calm: bool,
    /// How long consumers keep a batch.
    pub(crate) keep: Duration,
    /// An end whose peer does not know of its restart yet, and when it does.
    news: Option<(Instant, usize)>,
}

fn draw(seed: u64) -> Draw {
    let mut random = Random::new(seed);
    Box::new(move || {
        let (a, b) = (random.next().to_be_bytes(), random.next().to_be_bytes());
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&a);
        nonce[8..].copy_from_slice(&b);
        Some(nonce)
    })
}

fn node(at: usize) -> NodeId {
    NodeId::new(if at == 0 { 3 } else { 7 }).expect("a number")
}

impl End {
    fn new(now: Instant, at: usize, random: &mut Random, secret: &'static [u8]) -> Self {
        let incarnation = Incarnation(random.next());
        Self {
            link: link(
                now,
                (node(at), incarnation),
                (node(1 - at), incarnation),
                random,
                secret,
            ),
            node: node(at),
            incarnation,
            secret,
            current: None,
            expected: 0,
            next: 0,
            stalled: now,
            held: Vec::new(),
            received: 0,
            lost: Vec::new(),
            linked: 0,
            dropped: BTreeMap::new(),
            round_trips: 0,
        }
    }
}

fn link(
    now: Instant,
    (own, incarnation): (NodeId, Incarnation),
    peer: (NodeId, Incarnation),
    random: &mut Random,
    secret: &[u8],
) -> Link {
    let own = Own {
        node: own,
        incarnation,
        encoding: Encoding::default(),
        authority: Authority::new(secret, "dl"),
        timing: Timing::default(),
        wake: Arc::new(|| ()),
    };
    Link::new(now, Arc::new(own), peer, draw(random.next()))
}

impl World {
    pub(crate) fn new(seed: u64, faults: Faults) -> Self {
        Self::with_secrets(seed, faults, [b"a secret of sixteen"; 2])
    }

    pub(crate) fn with_secrets(seed: u64, faults: Faults, secrets: [&'static [u8]; 2]) -> Self {
        let mut random = Random::new(seed);
        let now = Instant::from_micros(1);
        let ends = [
            End::new(now, 0, &mut random, secrets[0]),
            End::new(now, 1, &mut random, secrets[1]),
        ];
        let mut world = Self {
            now,
            random,
            faults,
            ends,
            bytes_max: 300,
            on_way: BTreeMap::new(),
            sent: 0,
            recorded: Vec::new(),
            is_calm: false,
            keep: Duration::from_millis(1),
            news: None,
        };
        world.meet(0);
        world.meet(1);
        world
    }

    /// An end learns which membership the other one is of.
    fn meet(&mut self, at: usize) {
        let peer = (self.ends[1 - at].node, self.ends[1 - at].incarnation);
        self.ends[at].link.lose(self.now, Lost::NewIncarnation);
        self.flush(at);
        let end = &mut self.ends[at];
        let own = (end.node, end.incarnation);
        end.link = link(self.now, own, peer, &mut self.random, end.secret);
    }

    fn once_in(&mut self, n: u64) -> bool {
        n > 0 && self.random.one_in(n)
    }

    /// What one end has to send goes on its way, and what became of the link is looked at.
    fn flush(&mut self, at: usize) {
        let bytes_max = self.bytes_max;
        while let Some((bytes, _)) = self.ends[at].link.poll_transmit(self.now, bytes_max) {
            assert!(bytes.len() <= bytes_max);
            self.transmit(at, bytes);
        }
        while let Some(event) = self.ends[at].link.poll_event() {
            self.event(at, event);
        }
    }

    fn transmit(&mut self, from: usize, bytes: Bytes) {
        if self.recorded.len() < RECORDED_MAX || self.random.one_in(4) {
            let slot = self.random.below(RECORDED_MAX as u64) as usize;
            match self.recorded.get_mut(slot) {
                Some(old) => *old = (1 - from, bytes.clone()),
                None => self.recorded.push((1 - from, bytes.clone())),
            }
        }
        let copies = if self.once_in(self.faults.loss) {
            0
        } else if self.once_in(self.faults.repetition) {
            2
        } else {
            1
        };
        for _ in 0..copies {
            let late = if self.once_in(self.faults.other_order) {
                self.random.below(30_000)
            } else {
                0
            };
            self.put(1 - from, bytes.clone(), 300 + late);
        }
    }

    fn put(&mut self, to: usize, bytes: Bytes, micros: u64) {
        self.sent += 1;
        let at = self.now + Duration::from_micros(micros);
        self.on_way.insert((at, self.sent), (to, bytes));
    }

    /// The rules.
    fn event(&mut self, at: usize, event: LinkEvent) {
        let until = self.now + self.keep;
        let end = &mut self.ends[at];
        match event {
            LinkEvent::Linked(number, flow) => {
                assert!(end.current.is_none(), "linked twice");
                end.current = Some((number, flow));
                (end.expected, end.next) = (0, 0);
                end.linked += 1;
            }
            LinkEvent::Batch(bytes) => {
                let (number, flow) = end.current.as_ref().expect("a link");
                let mut content = &bytes[..];
                assert_eq!(content.get_u64(), *number, "it was sent on this link");
                assert_eq!(content.get_u64(), end.expected, "in order, exactly once");
                assert!(content.iter().all(|byte| *byte == end.expected as u8));
                end.expected += 1;
                end.received += 1;
                let receipt = Receipt::new(Arc::clone(flow), cost(bytes.len()));
                end.held.push((until, receipt));
            }
            LinkEvent::RoundTrip(took) => {
                // Both ways. What strangers repeat may be there before the original.
                let least = if self.faults.stranger > 0 { 1 } else { 600 };
                assert!(took >= Duration::from_micros(least), "{took:?}");
                end.round_trips += 1;
            }
            LinkEvent::Lost(number, cause) => {
                let (current, flow) = end.current.take().expect("lost once");
                assert_eq!(current, number);
                assert!(flow.send(Bytes::new()).is_err());
                end.lost.push(cause);
            }
        }
    }

    /// One end hands a batch over, if it has a link.
    pub(crate) fn send(&mut self, at: usize, bytes: usize) {
        let end = &mut self.ends[at];
        if let Some((number, flow)) = &end.current {
            let mut batch = Vec::new();
            batch.put_u64(*number);
            batch.put_u64(end.next);
            batch.resize(16 + bytes, end.next as u8);
            if flow.send(batch.into()).is_ok() {
                end.next += 1;
            }
        }
    }

    fn strangers(&mut self) {
        if !self.once_in(self.faults.stranger) || self.recorded.is_empty() {
            return;
        }
        let pick = self.random.below(self.recorded.len() as u64) as usize;
        let (to, bytes) = self.recorded[pick].clone();
        let mut bytes = bytes.to_vec();
        match self.random.below(4) {
            0 => {
                let at = self.random.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << self.random.below(8);
            }
            1 => bytes.truncate(self.random.below(bytes.len() as u64) as usize),
            2 if bytes.len() > 23 => {
                // A number far ahead.
                bytes[15..23].copy_from_slice(&self.random.next().to_be_bytes());
            }
            _ => {}
        }
        let to = if self.random.one_in(8) { 1 - to } else { to };
        let late = self.random.below(5_000);
        self.put(to, bytes.into(), late);
    }

    fn restarts(&mut self) {
        if self.news.is_some_and(|(at, _)| self.now >= at) {
            let (_, end) = self.news.take().expect("there is");
            self.meet(1 - end);
        }
        if self.news.is_none() && self.once_in(self.faults.restart) {
            let at = self.random.below(2) as usize;
            let secret = self.ends[at].secret;
            self.ends[at] = End {
                received: self.ends[at].received,
                lost: core::mem::take(&mut self.ends[at].lost),
                linked: self.ends[at].linked,
                ..End::new(self.now, at, &mut self.random, secret)
            };
            self.meet(at);
            let known = self.now + Duration::from_millis(self.random.below(3_000));
            self.news = Some((known, at));
        }
    }

    /// Goes on for so long; `each` is called about once in a millisecond.
    pub(crate) fn run(&mut self, time: Duration, mut each: impl FnMut(&mut Self)) {
        let until = self.now + time;
        let mut tick = self.now;
        while self.now < until {
            if self.now >= tick {
                let most = if self.is_calm { 60 } else { 3 };
                tick = self.now + Duration::from_millis(self.random.between(1, most));
                each(self);
                self.strangers();
                self.restarts();
                if self.once_in(self.faults.stall) {
                    let at = self.random.below(2) as usize;
                    let long = Duration::from_millis(self.random.below(5_000));
                    self.ends[at].stalled = self.ends[at].stalled.max(self.now + long);
                }
            }
            for at in 0..2 {
                self.turn(at);
            }
            let first = self.on_way.keys().next().map(|(at, _)| *at);
            let deadlines = self
                .ends
                .iter()
                .map(|end| end.link.poll_timeout().max(end.stalled));
            let next = deadlines.chain(first).chain([tick]).min().unwrap_or(tick);
            self.now = next.max(self.now + Duration::from_micros(1));
            self.arrive();
        }
    }

    fn turn(&mut self, at: usize) {
        if self.now < self.ends[at].stalled {
            return;
        }
        let now = self.now;
        self.ends[at].held.retain(|(until, _)| *until > now);
        if self.ends[at].link.poll_timeout() <= now {
            self.ends[at].link.handle_timeout(now);
        }
        self.flush(at);
    }

    fn arrive(&mut self) {
        while let Some((at, order)) = self.on_way.keys().next().copied()
            && at <= self.now
        {
            let Some((to, bytes)) = self.on_way.remove(&(at, order)) else {
                return;
            };
            let stalled = self.ends[to].stalled;
            if stalled > self.now {
                // It waits in a buffer of the system.
                self.on_way.insert((stalled, order), (to, bytes));
                continue;
            }
            let link = &mut self.ends[to].link;
            let handled = wire::read(&bytes).and_then(|packet| link.handle_packet(at, &packet));
            if let Err(cause) = handled {
                *self.ends[to].dropped.entry(cause).or_default() += 1;
            }
            self.flush(to);
        }
    }

    /// Nothing more goes wrong.
    pub(crate) fn calm(&mut self) {
        self.faults = Faults::default();
        self.is_calm = true;
        if let Some((_, end)) = self.news.take() {
            self.meet(1 - end);
        }
    }

    /// Both ends have the same link, and what is handed over arrives and is taken.
    pub(crate) fn assert_works(&mut self) {
        self.run(Duration::from_secs(20), |_| ());
        let number = |end: &End| end.current.as_ref().map(|(number, _)| *number);
        assert!(number(&self.ends[0]).is_some(), "there is a link");
        assert_eq!(number(&self.ends[0]), number(&self.ends[1]));
        let lost = self.ends[0].lost.len() + self.ends[1].lost.len();
        for at in [0, 1] {
            for bytes in [0, 1, 100, 1_000, 10_000] {
                self.send(at, bytes);
            }
        }
        self.run(Duration::from_secs(2), |_| ());
        assert_eq!(self.ends[0].expected, self.ends[1].next);
        assert_eq!(self.ends[1].expected, self.ends[0].next);
        for end in &self.ends {
            let (_, flow) = end.current.as_ref().expect("a link");
            assert_eq!(flow.load(), 0, "all was taken, and the sender knows");
        }
        let after = self.ends[0].lost.len() + self.ends[1].lost.len();
        assert_eq!(after, lost, "none is lost in calm");
    }
}
