//! How connections come and go, one at a time: look up, dial, the way back to
//! QUIC, and again after a failure. Knows no packet.

mod dialing;
mod early;
mod losses;
mod pace;
mod port_probe;
mod upgrade;

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use dunlin_base::transport::{CloseCause, Transport};
use dunlin_base::{ConnId, Instant};
use dunlin_net::{ClientTls, Connector, DialConfig};

use crate::backoff::random_u64;
use crate::context::Context;
use crate::error::{Cause, DialError};
use crate::options::LinkOptions;
use crate::resolver::{Job, Key, Resolved};
use dialing::Dialing;
use early::Early;
use losses::Losses;
pub use upgrade::SessionFacts;
use upgrade::{Due, Upgrade};

/// QUIC application error code of a normal end, in every protocol.
const CLOSE_NORMAL: u64 = 0;

/// The owner of a link: what it hears of its connections.
pub trait Watch {
    /// Why a connection ended.
    type Cause: Cause;

    /// A connection ended, or an attempt failed.
    fn disconnected(&self, cause: &Self::Cause);

    /// The next attempt follows after this time.
    fn reconnecting(&self, wait: Duration);
}

/// The connections of one owner, one at a time.
///
/// The owner runs [`Link::run`] when something happened on one of them, when a
/// name was looked up, and at [`Link::deadline`]; does what its [`Step`] says;
/// and tells the link of what it saw: [`Link::opened`], [`Link::verdict`],
/// [`Link::finished`], [`Link::closed`], [`Link::resolved`], and
/// [`Link::connected`] when the server has accepted the protocol's opening. When
/// the transport is to end, [`Link::close`]; when it is gone,
/// [`Link::take_closed`], then [`Link::switch`] or [`Link::lost`].
pub struct Link<W: Watch> {
    watch: Arc<W>,
    key: Key,
    options: Arc<LinkOptions>,
    state: State,
    /// How the current connection is made.
    transport: Transport,
    tls: Option<Arc<ClientTls>>,
    /// Counts attempts to connect, to tell late answers of the resolver.
    attempt: u64,
    /// Failed attempts in a row.
    failures: u32,
    losses: Losses,
    /// The server has accepted a connection.
    was_connected: bool,
    early: Early,
    /// The way back to QUIC, where QUIC and TLS race.
    upgrade: Upgrade,
}

/// Where the connection stands.
enum State {
    /// An attempt is due.
    Idle,
    /// The name is being looked up.
    Resolving,
    /// It has been looked up.
    Resolved(Vec<SocketAddr>),
    /// The attempt is over.
    Failed(DialError),
    /// Transports are being opened.
    Dialing(Dialing),
    /// A transport is open.
    Open(Conn),
    /// The transport is being closed.
    Closing(Conn),
    /// The next attempt comes later.
    Waiting(Instant),
    /// There will be none.
    Ended,
}

/// An open transport.
struct Conn {
    conn: ConnId,
    /// The server will send nothing more.
    finished: bool,
    closed: Option<CloseCause>,
}

/// What the owner does after [`Link::run`] or [`Link::lost`].
#[derive(Debug)]
pub enum Step<C> {
    /// Nothing.
    Rest,
    /// A transport is open: the protocol begins on it.
    Begin(ConnId),
    /// There will be no further attempt.
    End(C),
}

/// What became of an open transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is open.
    Open(ConnId),
    /// It is gone, and is still to be closed by this side.
    Gone(ConnId),
    /// There is none.
    None,
}

impl<W: Watch> Link<W> {
    /// A link that has not begun: [`Link::run`] begins. `id`: whose session
    /// tickets are used, among the clients of one server; empty for all that
    /// have no name.
    #[must_use]
    pub fn new(watch: Arc<W>, key: Key, options: Arc<LinkOptions>, id: &str) -> Self {
        Self {
            transport: options.url.transport(),
            early: Early::new(&options, id),
            losses: Losses::new(options.losses_max),
            watch,
            key,
            options,
            state: State::Idle,
            tls: None,
            attempt: 0,
            failures: 0,
            was_connected: false,
            upgrade: Upgrade::default(),
        }
    }

    /// TLS, once it is made; one that another link made of the same options may be
    /// put here, with the tickets that it keeps.
    pub const fn tls_mut(&mut self) -> &mut Option<Arc<ClientTls>> {
        &mut self.tls
    }

    /// The connection that the protocol runs on.
    #[must_use]
    pub fn open_conn(&self) -> Option<ConnId> {
        match self.standing() {
            Standing::Open(conn) => Some(conn),
            Standing::Gone(_) | Standing::None => None,
        }
    }

    /// What became of the open transport.
    #[must_use]
    pub fn standing(&self) -> Standing {
        match &self.state {
            State::Open(open) if open.closed.is_some() => Standing::Gone(open.conn),
            State::Open(open) => Standing::Open(open.conn),
            _ => Standing::None,
        }
    }

    /// Whether the server will send nothing more.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        matches!(&self.state, State::Open(open) if open.finished)
    }

    /// There will be no further attempt.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// The owner is over.
    pub fn end(&mut self) {
        self.state = State::Ended;
    }

    /// How the current connection is made.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Whether the server has accepted a connection before.
    #[must_use]
    pub fn was_connected(&self) -> bool {
        self.was_connected
    }

    /// Messages wait for a better connection.
    #[must_use]
    pub fn is_switching(&self) -> bool {
        self.upgrade.is_switching()
    }

    /// Whether more than the protocol's opening may leave before the server has
    /// answered that.
    #[must_use]
    pub fn may_run_ahead(&self, conn: ConnId) -> bool {
        self.early.may_run_ahead(conn)
    }

    /// Something was written ahead of that answer.
    pub fn ran_ahead(&mut self, now: Instant) {
        self.early.ran_ahead(now);
    }

    /// A connection opened, perhaps before its handshake.
    pub fn opened(&mut self, now: Instant, conn: ConnId, early: bool) {
        self.early.opened(now, conn, early);
        self.upgrade.opened(now, conn);
        if let State::Dialing(dialing) = &mut self.state {
            dialing.opened(now, conn);
        }
    }

    /// The handshake is complete. Tells whether early data waited for that.
    pub fn verdict(&mut self, now: Instant, conn: ConnId) -> bool {
        self.early.verdict(now, conn)
    }

    /// The server ended the control stream.
    pub fn finished(&mut self, conn: ConnId) {
        if let State::Open(open) = &mut self.state
            && open.conn == conn
        {
            open.finished = true;
        }
    }

    /// A connection ended.
    pub fn closed(&mut self, now: Instant, conn: ConnId, cause: CloseCause) {
        self.upgrade.closed(now, conn);
        self.early.settle();
        match &mut self.state {
            State::Dialing(dialing) => dialing.closed(conn, cause),
            State::Open(open) | State::Closing(open) if open.conn == conn => {
                open.closed = Some(cause);
            }
            _ => {}
        }
    }

    /// A name was looked up, for an attempt that may be over.
    pub fn resolved(&mut self, attempt: u64, resolved: Resolved) {
        if !(attempt == self.attempt && matches!(self.state, State::Resolving)) {
            return;
        }
        self.state = match resolved {
            Ok((addrs, tls)) => {
                if tls.is_some() {
                    self.tls = tls;
                }
                State::Resolved(addrs)
            }
            Err(cause) => State::Failed(cause),
        };
    }

    /// The server accepted the connection.
    pub fn connected(&mut self, now: Instant) {
        self.losses.accepted(now);
        self.was_connected = true;
        self.early.connected();
    }

    /// When to run again.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let state = match &self.state {
            State::Dialing(dialing) => Some(dialing.deadline()),
            State::Waiting(until) => Some(*until),
            _ => None,
        };
        let upgrade = self.open_conn().and_then(|_| self.upgrade.deadline());
        let deadlines = [state, self.early.deadline(), upgrade];
        deadlines.into_iter().flatten().min()
    }

    /// Goes as far as it can towards a connection.
    pub fn run(&mut self, context: &mut Context<'_>) -> Step<W::Cause> {
        if let Some(conn) = self.early.overdue(context.now) {
            context.net.conn(conn).abort();
        }
        loop {
            let step = match core::mem::replace(&mut self.state, State::Idle) {
                State::Idle => {
                    self.look_up(context);
                    None
                }
                State::Resolved(addrs) => {
                    self.start_dialing(context, &addrs);
                    None
                }
                State::Failed(cause) => Some(self.ended(context, cause.into())),
                State::Dialing(dialing) => self.run_dialing(context, dialing),
                State::Waiting(until) if until <= context.now => None,
                other => {
                    self.state = other;
                    Some(Step::Rest)
                }
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    /// Ends what is under way towards a connection; `false` if there is one.
    pub fn give_up(&self, context: &mut Context<'_>) -> bool {
        match &self.state {
            State::Open(_) | State::Closing(_) | State::Ended => return false,
            State::Dialing(dialing) => dialing.abort(context, None),
            _ => {}
        }
        true
    }

    fn look_up(&mut self, context: &mut Context<'_>) {
        self.attempt += 1;
        let options = &*self.options;
        let url = &options.url;
        let encrypted = url.transport().is_encrypted() || options.race.is_some();
        let needs_tls = encrypted && self.tls.is_none();
        if let (Some(ip), false) = (url.ip(), needs_tls) {
            self.state = State::Resolved(vec![SocketAddr::new(ip, url.port())]);
            return;
        }
        let started = context.resolver.start(Job {
            key: self.key,
            attempt: self.attempt,
            host: url.host().to_owned(),
            port: url.port(),
            tls: needs_tls.then(|| options.tls.clone()),
        });
        self.state = match started {
            Ok(()) => State::Resolving,
            Err(cause) => State::Failed(cause),
        };
    }

    /// Opens a transport to one address.
    fn dial(
        &self,
        context: &mut Context<'_>,
        transport: Transport,
        addr: SocketAddr,
        early: bool,
    ) -> Result<ConnId, DialError> {
        let options = &*self.options;
        let url = &options.url;
        let mut config = DialConfig::new(transport, addr, url.host());
        config.tls.clone_from(&self.tls);
        config.quic = options.network.tuning();
        config.local_addr = options.local_addr.map(|ip| SocketAddr::new(ip, 0));
        config.handshake_timeout = Some(options.connect_timeout);
        config.connector = match (&options.connector, url.socket()) {
            (None, Some(path)) => Some(Connector::unix(path.into())),
            (connector, _) => connector.clone(),
        };
        self.early.configure(&mut config, early);
        config.protocols.clone_from(&options.protocols);
        url.path().clone_into(&mut config.ws_path);
        let conn = context
            .net
            .dial(&config)
            .map_err(|error| DialError::Net(Arc::new(error)))?;
        context.conns.insert(conn, self.key);
        Ok(conn)
    }

    /// A transport is open and carries the protocol from now on.
    fn take(&mut self, conn: ConnId, transport: Transport) -> Step<W::Cause> {
        self.transport = transport;
        self.state = State::Open(Conn {
            conn,
            finished: false,
            closed: None,
        });
        Step::Begin(conn)
    }

    /// Notes how long a round trip takes, if that is to be remembered. `last`:
    /// the connection is about to end.
    pub fn measure(&mut self, context: &mut Context<'_>, last: bool) {
        if let Some(conn) = self.open_conn()
            && let Some(home) = self.early.wants_rtt(last)
            && let Some(quic) = context.net.conn(conn).stats().and_then(|stats| stats.quic)
        {
            self.early.pace.measured(home, quic.rtt);
        }
    }

    /// Closes the transport. From here on the transport bounds the time.
    pub fn close(&mut self, context: &mut Context<'_>, conn: ConnId) {
        self.measure(context, true);
        context.net.close(conn, CLOSE_NORMAL);
        self.start_closing();
    }

    /// The same when both sides have said all: what is still on its way is not
    /// waited for.
    pub fn close_promptly(&mut self, context: &mut Context<'_>, conn: ConnId) {
        self.measure(context, true);
        context.net.conn(conn).close_promptly(CLOSE_NORMAL);
        self.start_closing();
    }

    fn start_closing(&mut self) {
        self.early.settle();
        self.state = match core::mem::replace(&mut self.state, State::Idle) {
            State::Open(open) => State::Closing(open),
            other => other,
        };
    }

    /// Why the transport that was being closed is gone, once.
    pub fn take_closed(&mut self) -> Option<CloseCause> {
        match &mut self.state {
            State::Closing(closing) => closing.closed.take(),
            _ => None,
        }
    }

    /// Does what is due for the way back to QUIC. Gives the connections to
    /// leave and to go on with, when the session can change over:
    /// [`Link::leave`] follows.
    pub fn run_upgrade(
        &mut self,
        context: &mut Context<'_>,
        session: SessionFacts,
    ) -> Option<(ConnId, ConnId)> {
        if !matches!(self.state, State::Open(_)) {
            return None;
        }
        match self.upgrade.due(context.now, session) {
            Due::Nothing => None,
            Due::Drop(probe) => {
                drop_probe(context, probe);
                None
            }
            Due::Probe(addr) => {
                let probe = self.dial(context, Transport::Quic, addr, false);
                self.upgrade.probed(context.now, probe.ok());
                None
            }
            Due::Leave(new) => {
                let old = self.open_conn()?;
                self.upgrade.save(context);
                Some((old, new))
            }
        }
    }

    /// The protocol's end is written on the old connection: closes it and waits for
    /// its end.
    pub fn leave(&mut self, context: &mut Context<'_>, old: ConnId, new: ConnId) {
        context.net.close(old, CLOSE_NORMAL);
        self.upgrade.leaving(new);
        self.start_closing();
    }

    /// The transport is gone: takes the connection that the session changes
    /// over to, if there is one and it is `wanted`.
    pub fn switch(&mut self, context: &mut Context<'_>, wanted: bool) -> Option<ConnId> {
        let (next, probe) = self.upgrade.take_next(wanted);
        if let Some(conn) = probe {
            drop_probe(context, conn);
        }
        let next = next?;
        self.early.begin(self.upgrade.addr(), None);
        self.take(next, Transport::Quic);
        Some(next)
    }

    /// The transport is gone, and the session does not go on with another.
    /// `fault`: why this side ended it. `is_last`: the client wants no further
    /// connection. `is_useful`: as for [`Losses::lost`].
    pub fn lost(
        &mut self,
        context: &Context<'_>,
        fault: Option<W::Cause>,
        cause: CloseCause,
        is_last: bool,
        is_useful: bool,
    ) -> Step<W::Cause> {
        let by_server = match &fault {
            Some(fault) => fault.is_by_server(),
            None => matches!(cause, CloseCause::Peer { .. } | CloseCause::Failed(_)),
        };
        let unheard = self.early.lost(context.now, by_server);
        if is_last {
            self.watch.disconnected(&W::Cause::local());
            return Step::End(W::Cause::local());
        }
        if unheard && fault.is_none() {
            self.state = State::Waiting(context.now);
            return Step::Rest;
        }
        let cause = fault.unwrap_or_else(|| DialError::Transport(cause).into());
        if self.losses.lost(context.now, &cause, is_useful) {
            self.failures = 0;
        }
        self.ended(context, cause)
    }

    /// The transport is gone, because the server wants the protocol to begin in
    /// another way: connects again at once.
    pub fn begin_again(&mut self, now: Instant) {
        let _ = self.early.lost(now, true);
        self.state = State::Waiting(now);
    }

    /// An attempt or a connection ended: waits, or gives up.
    fn ended(&mut self, context: &Context<'_>, cause: W::Cause) -> Step<W::Cause> {
        self.watch.disconnected(&cause);
        let goes_on = self.was_connected || self.options.persistent;
        let backoff = self.options.reconnect.filter(|_| goes_on);
        let is_over = cause.is_final() || self.losses.are_enough();
        let Some(backoff) = backoff.filter(|_| !is_over) else {
            return Step::End(cause);
        };
        self.failures = self.failures.saturating_add(1);
        // Nothing is wrong with the server where this side's address changed.
        let gone = cause.transport() == Some(&CloseCause::AddressGone);
        let wait = match gone && self.failures == 1 {
            true => Duration::ZERO,
            false => backoff.wait(self.failures, (random_u64() >> 32) as u32),
        };
        self.watch.reconnecting(wait);
        self.state = State::Waiting(context.now + wait);
        Step::Rest
    }
}

fn drop_probe(context: &mut Context<'_>, conn: ConnId) {
    context.conns.remove(&conn);
    context.net.conn(conn).abort();
}
