//! Time and chance of a world: what will happen, in order of time. Things of
//! the same time happen in the order in which they were put in.

use core::time::Duration;
use std::collections::BTreeMap;

use bytes::Bytes;
use dunlin_base::transport::Peer;
use dunlin_base::{ConnId, Instant, ShardId, StreamId};
use dunlin_broker::auth::AuthAnswer;
use dunlin_broker::bus::Addressed;
use dunlin_store::{Request, StoreDone};

use crate::link::{ToClient, ToServer};
use crate::random::Random;

/// When the world begins. Not zero, so that nothing depends on that.
pub(crate) const BEGIN: Instant = Instant::from_micros(1_000_000_000_000);

/// What shards say to each other, on its way.
#[derive(Debug)]
pub(crate) enum Crossing {
    /// As within a process.
    Value(Addressed),
    /// As between machines: a batch, and when it was sent.
    Bytes(Bytes, Instant),
}

/// Two shards, by place and incarnation: something of the first is for the second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) from: (usize, u16),
    pub(crate) to: (usize, u16),
}

/// What will happen.
#[derive(Debug)]
pub(crate) enum Happening {
    Opened(ConnId, Box<Peer>),
    Server(ConnId, ToServer),
    Lost(ConnId),
    Sent(ConnId, StreamId, usize),
    Blocked(ConnId, StreamId, usize),
    Bus {
        of: Pair,
        crossing: Crossing,
    },
    /// A shard hears that another has joined, or is gone.
    Member {
        of: Pair,
        joined: bool,
    },
    Store(usize, Request),
    Stored(usize, StoreDone),
    Auth(usize, ConnId, AuthAnswer),
    Drain(usize),
    Client(ConnId, ToClient),
    /// A connection arrives at another shard.
    Attached {
        conn: ConnId,
        to: ShardId,
        unread: Bytes,
    },
}

/// The clock, and what will happen.
#[derive(Debug)]
pub(crate) struct Agenda {
    pub(crate) now: Instant,
    pub(crate) random: Random,
    happenings: BTreeMap<(Instant, u64), Happening>,
    serial: u64,
}

impl Agenda {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            now: BEGIN,
            random: Random::new(seed),
            happenings: BTreeMap::new(),
            serial: 0,
        }
    }

    /// A moment that is this many microseconds away, from and to.
    pub(crate) fn soon(&mut self, away: (u64, u64)) -> Instant {
        self.after(self.now, away)
    }

    /// A moment that is this long after another one, and not in the past.
    pub(crate) fn after(&mut self, moment: Instant, (from, to): (u64, u64)) -> Instant {
        moment.max(self.now) + Duration::from_micros(self.random.between(from, to))
    }

    pub(crate) fn at(&mut self, at: Instant, happening: Happening) {
        self.serial += 1;
        self.happenings.insert((at, self.serial), happening);
    }

    /// Puts something at the present moment, after what is there already.
    pub(crate) fn at_once(&mut self, happening: Happening) {
        self.at(self.now, happening);
    }

    /// When something happens next.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.happenings.keys().next().map(|key| key.0)
    }

    pub(crate) fn pop(&mut self) -> Option<Happening> {
        self.happenings.pop_first().map(|(_, happening)| happening)
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&Happening) -> bool) {
        self.happenings.retain(|_, happening| keep(happening));
    }

    /// Takes out what is under way from a client to its shard.
    pub(crate) fn take_to_server(&mut self, conn: ConnId) -> Vec<ToServer> {
        let of_client =
            |happening: &Happening| matches!(happening, Happening::Server(of, _) if *of == conn);
        let taken = self
            .happenings
            .extract_if(.., |_, happening| of_client(happening));
        taken
            .filter_map(|(_, happening)| match happening {
                Happening::Server(_, what) => Some(what),
                _ => None,
            })
            .collect()
    }
}
