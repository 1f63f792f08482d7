//! One QUIC connection of a tunnel and the TCP connections that it carries,
//! each on a stream of its own.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use dunlin_base::transport::CloseCause;
use dunlin_base::{ConnId, Instant, StreamId};
use dunlin_dial::{Cause as _, Context, DialError, Key, Link, LinkOptions, Resolved, Step, Watch};

/// A QUIC connection.
pub(super) struct Carrier {
    link: Link<Blind>,
    conn: Option<ConnId>,
    /// The broker has said something.
    heard: bool,
    streams: BTreeMap<StreamId, ConnId>,
    /// TCP connections without a stream yet.
    waiting: VecDeque<ConnId>,
    gone: Option<CloseCause>,
}

/// What became of a carrier.
pub(super) enum Fate {
    /// It goes on; these TCP connections have a stream now.
    Goes(Vec<(ConnId, StreamId)>),
    /// It is over, with all it carries.
    Over(DialError),
}

/// Every end of a connection is seen as a [`Fate`].
struct Blind;

impl Watch for Blind {
    type Cause = DialError;

    fn disconnected(&self, _: &DialError) {}

    fn reconnecting(&self, _: Duration) {}
}

impl Carrier {
    /// For one TCP connection; [`Carrier::add`] adds others.
    pub(super) fn new(key: Key, options: Arc<LinkOptions>, tcp: ConnId) -> Self {
        Self {
            link: Link::new(Arc::new(Blind), key, options, ""),
            conn: None,
            heard: false,
            streams: BTreeMap::new(),
            waiting: VecDeque::from([tcp]),
            gone: None,
        }
    }

    pub(super) fn has_room(&self, streams_max: u32) -> bool {
        let taken = self.streams.len() + self.waiting.len();
        self.gone.is_none() && taken < streams_max as usize
    }

    pub(super) fn add(&mut self, tcp: ConnId) {
        self.waiting.push_back(tcp);
    }

    pub(super) const fn was_heard(&self) -> bool {
        self.heard
    }

    pub(super) fn conn(&self) -> Option<ConnId> {
        self.conn
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.link.deadline()
    }

    /// The TCP connection on a stream.
    pub(super) fn tcp(&self, stream: StreamId) -> Option<ConnId> {
        self.streams.get(&stream).copied()
    }

    /// All TCP connections.
    pub(super) fn all(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.streams.values().chain(&self.waiting).copied()
    }

    pub(super) fn opened(&mut self, now: Instant, conn: ConnId, early: bool) {
        self.link.opened(now, conn, early);
    }

    pub(super) fn verdict(&mut self, now: Instant, conn: ConnId) {
        self.link.verdict(now, conn);
    }

    pub(super) fn resolved(&mut self, attempt: u64, resolved: Resolved) {
        self.link.resolved(attempt, resolved);
    }

    /// The broker said something.
    pub(super) fn hear(&mut self, now: Instant) {
        if !self.heard {
            self.heard = true;
            self.link.connected(now);
        }
    }

    pub(super) fn closed(&mut self, now: Instant, conn: ConnId, cause: CloseCause) {
        self.link.closed(now, conn, cause.clone());
        if self.conn == Some(conn) {
            self.gone = Some(cause);
        }
    }

    /// Goes as far as it can.
    pub(super) fn run(&mut self, context: &mut Context<'_>) -> Fate {
        match self.link.run(context) {
            Step::Begin(conn) => self.conn = Some(conn),
            Step::End(cause) => return Fate::Over(cause),
            Step::Rest => {}
        }
        if let Some(cause) = self.gone.take() {
            return Fate::Over(DialError::Transport(cause));
        }
        self.link.measure(context, false);
        let mut opened = Vec::new();
        if let Some(conn) = self.conn {
            while let Some(tcp) = self.waiting.pop_front() {
                let Some(stream) = context.net.conn(conn).open_stream(true) else {
                    self.waiting.push_front(tcp);
                    break;
                };
                self.streams.insert(stream, tcp);
                opened.push((tcp, stream));
            }
        }
        Fate::Goes(opened)
    }

    /// A TCP connection is over. Tells whether it was the last one.
    pub(super) fn remove(&mut self, tcp: ConnId, stream: Option<StreamId>) -> bool {
        match stream {
            Some(stream) => {
                self.streams.remove(&stream);
            }
            None => self.waiting.retain(|waiting| *waiting != tcp),
        }
        self.streams.is_empty() && self.waiting.is_empty()
    }

    /// Ends it after what was given to it.
    pub(super) fn close(&mut self, context: &mut Context<'_>) {
        match self.conn {
            Some(conn) => {
                self.link.close(context, conn);
                context.conns.remove(&conn);
            }
            None => {
                self.link.give_up(context);
            }
        }
    }
}

/// Whether a connection ended as connections do.
pub(super) fn is_usual(cause: &DialError) -> bool {
    matches!(
        cause.transport(),
        Some(CloseCause::Peer { code: 0 } | CloseCause::Local)
    )
}
