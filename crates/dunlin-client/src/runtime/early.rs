//! Early data (0-RTT) of one client: when it is used, and what happens when
//! nobody answers it.

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use dunlin_base::transport::Transport;
use dunlin_base::{ConnId, Instant};
use dunlin_net::DialConfig;

use super::pace::Pace;
use crate::options::Options;
use crate::tickets::Scope;

/// How long a server has to object to what was written ahead of its CONNACK:
/// when it ends the connection later, that was not the cause.
const TRIAL: Duration = Duration::from_secs(10);

/// Messages of QoS 1 and 2 that go out before the server has said how many it
/// takes at a time. The smallest limit that common servers have is 10.
const PUBLISHES_MAX: u16 = 10;

/// How long to wait for the server's side of the handshake, before connecting
/// anew without early data: the address may have become wrong.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same where TLS over TCP would be tried, too: a little more than QUIC
/// took on this network before.
const PATIENCE_IN_RACE_MIN: Duration = Duration::from_millis(10);
const PATIENCE_IN_RACE_MAX: Duration = Duration::from_secs(1);

/// What a client knows about early data.
pub(super) struct Early {
    wanted: bool,
    /// Messages do not wait for CONNACK in any case.
    pipelined: bool,
    patience: Duration,
    /// QUIC gets through on this network, as far as it matters.
    is_known: bool,
    scope: Option<Arc<Scope>>,
    pub(super) pace: Pace,
    /// The round-trip time is to be measured.
    measure: bool,
    /// Where the server was found the last time: a connection that is open at
    /// once tells nothing about its address, so no other is tried this way.
    home: Option<SocketAddr>,
    /// Where the current connection goes.
    current: Option<SocketAddr>,
    /// The attempt before came to nothing.
    skip: bool,
    /// Something was written ahead of CONNACK: until when the server may
    /// object.
    ahead: Option<Instant>,
    /// CONNACK has come.
    answered: bool,
    /// It did object, perhaps: this time all but CONNECT waits for its limits.
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
    pub(super) fn new(options: &Options) -> Self {
        let url = &options.url;
        let id = match options.random_id {
            true => "",
            false => options.client_id.as_str(),
        };
        let file = options.tickets.as_ref();
        let port = url.port_of(Transport::Quic);
        let scope = file.map(|file| file.scope(url.host(), port, id));
        let (home, rtt) = scope.as_ref().map_or((None, None), |scope| scope.place());
        let (assumed, chosen) = options.network.assumed_rtt();
        Self {
            wanted: options.early_data,
            pipelined: options.pipelined,
            patience: PATIENCE.min(options.connect_timeout),
            is_known: true,
            home,
            pace: Pace::new(scope.clone(), rtt, assumed, chosen),
            measure: false,
            scope,
            current: None,
            skip: false,
            ahead: None,
            answered: false,
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

    /// Settings of a connection; `now`: MQTT begins on it as soon as it opens.
    pub(super) fn configure(&self, config: &mut DialConfig, now: bool) {
        let is_home = self.home == Some(config.addr);
        config.early_data = now && self.wanted && self.is_known && !self.skip && is_home;
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

    /// Something is written ahead of CONNACK.
    pub(super) fn ran_ahead(&mut self, now: Instant) {
        self.ahead = Some(now + TRIAL);
    }

    /// This connection, to this address if it is one of QUIC, is the one; its
    /// handshake took so long, unless it is still under way.
    pub(super) fn begin(&mut self, addr: Option<SocketAddr>, took: Option<Duration>) {
        (self.current, self.answered) = (addr, false);
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
        let due = core::mem::take(&mut self.measure) || (last && self.answered);
        self.current.filter(|_| due && self.scope.is_some())
    }

    /// The server accepted the connection.
    pub(super) fn connected(&mut self) {
        (self.skip, self.wait, self.answered) = (false, false, true);
        self.measure = true;
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

    /// The connection is gone; `by_server`: the server ended it. Tells whether
    /// it is worth another attempt at once: nothing was ever heard of the
    /// server, or it gave no answer to CONNECT with more behind it.
    pub(super) fn lost(&mut self, now: Instant, by_server: bool) -> bool {
        let objects = self.ahead.take().is_some_and(|until| now < until);
        let objects = objects && by_server && !self.wait;
        self.wait |= objects;
        self.skip |= self.pending.is_some();
        self.pending.take().is_some() || (objects && !self.answered)
    }

    pub(super) fn is_pending(&self, conn: ConnId) -> bool {
        let pending = self.pending.as_ref();
        pending.is_some_and(|pending| pending.conn == conn)
    }

    /// Messages of QoS 1 and 2 that need not wait for CONNACK; with 0 nothing
    /// does but CONNECT.
    pub(super) fn publishes(&self, conn: ConnId) -> u16 {
        match (self.pipelined || self.is_pending(conn)) && !self.wait {
            true => PUBLISHES_MAX,
            false => 0,
        }
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
