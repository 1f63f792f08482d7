//! Early data (0-RTT) of one link: when it is used, and what happens when
//! there is no answer to it.

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use dunlin_base::{ConnId, Instant};
use dunlin_net::DialConfig;

use super::pace::Pace;
use crate::options::LinkOptions;
use crate::tickets::Scope;

/// How long a server has to object to what was written before it had answered
/// the protocol's opening: when it ends the connection later, that was not the cause.
const TRIAL: Duration = Duration::from_secs(10);

/// How long to wait for the server's side of the handshake, before connecting
/// again without early data: the address may have become wrong.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same where TLS over TCP would be tried, too: a little more than QUIC
/// took on this network before.
const PATIENCE_IN_RACE_MIN: Duration = Duration::from_millis(10);
const PATIENCE_IN_RACE_MAX: Duration = Duration::from_secs(1);

/// The application's choice.
#[derive(Clone, Copy, Debug)]
struct Choice {
    early_data: bool,
    /// Nothing waits for the answer to the opening in any case.
    pipelined: bool,
}

/// Whether the server has answered the opening, and the round-trip time has been measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Awaited,
    Fresh,
    Measured,
}

/// What a link knows about early data.
pub(super) struct Early {
    choice: Choice,
    patience: Duration,
    /// QUIC gets through on this network, as far as it matters.
    is_known: bool,
    scope: Option<Arc<Scope>>,
    pub(super) pace: Pace,
    /// Where the server was found the last time: a connection that is open at
    /// once tells nothing about its address, so no other is tried this way.
    home: Option<SocketAddr>,
    /// Where the current connection goes.
    current: Option<SocketAddr>,
    /// The attempt before came to nothing.
    skip: bool,
    /// Something was written ahead of the answer: until when the server may
    /// object.
    ahead: Option<Instant>,
    answer: Answer,
    /// It did object, perhaps: this time all but the opening waits for its limits.
    wait: bool,
    /// The connection whose verdict is awaited, since when and until when.
    pending: Option<Pending>,
}

struct Pending {
    conn: ConnId,
    since: Instant,
    until: Instant,
}

impl Early {
    /// `id`: whose tickets they are, among the clients of one server.
    pub(super) fn new(link: &LinkOptions, id: &str) -> Self {
        let file = link.tickets.as_ref();
        let scope = file.map(|file| file.scope(&link.url, id));
        let (home, rtt) = scope.as_ref().map_or((None, None), |scope| scope.place());
        let (assumed, chosen) = link.network.assumed_rtt();
        Self {
            choice: Choice {
                early_data: link.early_data,
                pipelined: link.pipelined,
            },
            patience: PATIENCE.min(link.connect_timeout),
            is_known: true,
            home,
            pace: Pace::new(scope.clone(), rtt, assumed, chosen),
            scope,
            current: None,
            skip: false,
            ahead: None,
            answer: Answer::Awaited,
            wait: false,
            pending: None,
        }
    }

    /// The address to try first.
    pub(super) fn home(&self) -> Option<SocketAddr> {
        self.home
    }

    /// A race begins where QUIC `took` so long before. Where that is not known
    /// there is no early data: a connection that is open at once would win,
    /// although QUIC may be blocked.
    pub(super) fn race(&mut self, took: Option<Duration>) {
        self.is_known = took.is_some();
        if let Some(took) = took {
            self.patience = (took * 5 / 4).clamp(PATIENCE_IN_RACE_MIN, PATIENCE_IN_RACE_MAX);
        }
    }

    /// Whether the attempt before was not answered.
    pub(super) const fn was_silent(&self) -> bool {
        self.skip
    }

    /// Settings of a connection; `now`: the protocol begins on it as soon as it
    /// opens.
    pub(super) fn configure(&self, config: &mut DialConfig, now: bool) {
        let is_home = self.home == Some(config.addr);
        config.early_data = now && self.choice.early_data && self.is_known && !self.skip && is_home;
        if let Some(rtt) = self.pace.assumed().filter(|_| is_home) {
            config.quic.initial_rtt = rtt;
        }
        if let Some(scope) = &self.scope {
            config.tickets = Some(Arc::clone(scope) as _);
            config.tokens = Some(Arc::clone(scope) as _);
        }
    }

    /// A connection opened, perhaps before its handshake.
    pub(super) fn opened(&mut self, now: Instant, conn: ConnId, early: bool) {
        if early {
            self.pending = Some(Pending {
                conn,
                since: now,
                until: now + self.patience,
            });
        }
    }

    /// Something is written ahead of the answer to the opening.
    pub(super) fn ran_ahead(&mut self, now: Instant) {
        self.ahead = Some(now + TRIAL);
    }

    /// This connection, to this address if it is one of QUIC, is the one; its
    /// handshake took so long, unless it is still under way.
    pub(super) fn begin(&mut self, addr: Option<SocketAddr>, took: Option<Duration>) {
        (self.current, self.answer) = (addr, Answer::Awaited);
        if let Some(took) = took.filter(|_| self.pending.is_none()) {
            self.pace.shook_hands(took);
        }
    }

    /// The handshake is complete. Tells whether it is news.
    pub(super) fn verdict(&mut self, now: Instant, conn: ConnId) -> bool {
        let Some(pending) = self.pending.take_if(|pending| pending.conn == conn) else {
            return false;
        };
        let took = now.saturating_duration_since(pending.since);
        self.pace.shook_hands(took);
        true
    }

    /// The address to which a round trip is to be measured now. Asked for when
    /// the connection stands, and when it is about to end (`last`).
    pub(super) fn wants_rtt(&mut self, last: bool) -> Option<SocketAddr> {
        let due = match self.answer {
            Answer::Awaited => false,
            Answer::Fresh => true,
            Answer::Measured => last,
        };
        if due {
            self.answer = Answer::Measured;
        }
        self.current.filter(|_| due && self.scope.is_some())
    }

    /// The server accepted the connection.
    pub(super) fn connected(&mut self) {
        (self.skip, self.wait) = (false, false);
        self.answer = Answer::Fresh;
        if let Some(addr) = self.current {
            if self.home != Some(addr) {
                self.pace.forget();
            }
            self.home = Some(addr);
            if let Some(scope) = &self.scope {
                scope.found(addr);
            }
        }
    }

    /// A connection ends, and perhaps the process after it: what it brought is to be
    /// in the file.
    pub(super) fn settle(&self) {
        if let Some(scope) = &self.scope {
            scope.settle();
        }
    }

    /// The connection is gone; `by_server`: the server ended it. Tells whether
    /// it is worth another attempt at once: nothing was ever heard of the
    /// server, or it gave no answer to an opening with more behind it.
    pub(super) fn lost(&mut self, now: Instant, by_server: bool) -> bool {
        let objects = self.ahead.take().is_some_and(|until| now < until);
        let objects = objects && by_server && !self.wait;
        self.wait |= objects;
        self.skip |= self.pending.is_some();
        self.pending.take().is_some() || (objects && self.answer == Answer::Awaited)
    }

    pub(super) fn is_pending(&self, conn: ConnId) -> bool {
        let pending = self.pending.as_ref();
        pending.is_some_and(|pending| pending.conn == conn)
    }

    /// More than the opening need not wait for its answer.
    pub(super) fn may_run_ahead(&self, conn: ConnId) -> bool {
        (self.choice.pipelined || self.is_pending(conn)) && !self.wait
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.pending.as_ref().map(|pending| pending.until)
    }

    /// The connection that was waited for long enough.
    pub(super) fn overdue(&self, now: Instant) -> Option<ConnId> {
        let pending = self.pending.as_ref()?;
        (pending.until <= now).then_some(pending.conn)
    }
}

#[cfg(test)]
mod tests {
    use dunlin_base::ShardId;

    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_micros(seconds * 1_000_000)
    }

    fn early(pipelined: bool) -> Early {
        let mut options = LinkOptions::new("quic://h".parse().expect("URL"));
        options.pipelined = pipelined;
        Early::new(&options, "")
    }

    fn conn() -> ConnId {
        ConnId::new(ShardId(0), 1)
    }

    #[test]
    fn messages_run_ahead_until_the_server_objects() {
        let mut early = early(true);
        early.begin(None, None);
        assert!(early.may_run_ahead(conn()));
        early.ran_ahead(at(0));
        // It ends the connection without an answer: once more, without them.
        assert!(early.lost(at(1), true));
        early.begin(None, None);
        assert!(!early.may_run_ahead(conn()));
        early.ran_ahead(at(1));
        assert!(!early.lost(at(2), true));
        early.connected();
        assert!(early.may_run_ahead(conn()));
    }

    #[test]
    fn an_end_much_later_is_no_objection() {
        let mut early = early(true);
        early.ran_ahead(at(0));
        early.connected();
        assert!(!early.lost(at(0) + TRIAL, true));
        assert!(early.may_run_ahead(conn()));
    }

    #[test]
    fn early_data_without_an_answer_is_tried_again_without() {
        let mut early = early(false);
        assert!(!early.may_run_ahead(conn()));
        early.opened(at(0), conn(), true);
        assert!(early.may_run_ahead(conn()));
        assert_eq!(early.overdue(at(0) + PATIENCE), Some(conn()));
        assert!(early.lost(at(5), false));
        assert!(early.was_silent());
        early.connected();
        assert!(!early.was_silent());
    }

    #[test]
    fn the_verdict_is_news_once() {
        let mut early = early(false);
        early.opened(at(0), conn(), true);
        assert!(early.verdict(at(1), conn()));
        assert!(!early.verdict(at(1), conn()));
        assert_eq!(early.deadline(), None);
    }
}
