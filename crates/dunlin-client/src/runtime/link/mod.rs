//! How connections of a client come and go: look up, dial, the way back to
//! QUIC, and again after a failure. Knows no packet.

mod dialing;
mod early;
mod knock;
mod losses;
mod pace;
mod upgrade;

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use dunlin_base::transport::{CloseCause, Transport, close_code};
use dunlin_base::{ConnId, Instant, Text};
use dunlin_mqtt::codec::ReasonCode;
use dunlin_net::{ClientTls, DialConfig};

use super::context::Context;
use super::resolver::Job;
use crate::command::Resolved;
use crate::error::DisconnectCause;
use crate::events::ConnectionEvent;
use crate::options::{Options, random_u64};
use crate::shared::Shared;
use dialing::Dialing;
use early::Early;
use losses::Losses;
pub(super) use upgrade::SessionFacts;
use upgrade::{Due, Upgrade};

/// What is spoken, as ALPN and WebSocket call it.
const PROTOCOL: &str = "mqtt";

/// Path of a WebSocket unless the URL says another.
const WS_PATH: &str = "/mqtt";

/// The connections of one client, one at a time.
pub(super) struct Link {
    shared: Arc<Shared>,
    options: Arc<Options>,
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

/// Where the client's connection stands.
enum State {
    /// An attempt is due.
    Idle,
    /// The name is being looked up.
    Resolving,
    /// It has been looked up.
    Resolved(Vec<SocketAddr>),
    /// The attempt is over.
    Failed(DisconnectCause),
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
pub(super) enum Step {
    /// Nothing.
    Rest,
    /// A transport is open: MQTT begins on it.
    Begin(ConnId),
    /// There will be no further attempt.
    End(DisconnectCause),
}

/// What became of an open transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is open.
    Open(ConnId),
    /// It is gone, and is still to be closed by this side.
    Gone(ConnId),
    /// There is none.
    None,
}

impl Link {
    pub(super) fn new(shared: Arc<Shared>, options: Arc<Options>) -> Self {
        Self {
            transport: options.link.url.transport(),
            early: Early::new(&options),
            losses: Losses::new(options.link.losses_max),
            shared,
            options,
            state: State::Idle,
            tls: None,
            attempt: 0,
            failures: 0,
            was_connected: false,
            upgrade: Upgrade::default(),
        }
    }

    /// The connection that MQTT runs on.
    pub(super) fn open_conn(&self) -> Option<ConnId> {
        match self.standing() {
            Standing::Open(conn) => Some(conn),
            Standing::Gone(_) | Standing::None => None,
        }
    }

    pub(super) fn standing(&self) -> Standing {
        match &self.state {
            State::Open(open) if open.closed.is_some() => Standing::Gone(open.conn),
            State::Open(open) => Standing::Open(open.conn),
            _ => Standing::None,
        }
    }

    /// Whether the server will send nothing more.
    pub(super) fn is_finished(&self) -> bool {
        matches!(&self.state, State::Open(open) if open.finished)
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// The client is over.
    pub(super) fn end(&mut self) {
        self.state = State::Ended;
    }

    pub(super) fn transport(&self) -> Transport {
        self.transport
    }

    /// Whether the server has accepted a connection before.
    pub(super) fn was_connected(&self) -> bool {
        self.was_connected
    }

    /// Messages wait for a better connection.
    pub(super) fn is_switching(&self) -> bool {
        self.upgrade.is_switching()
    }

    /// Messages of QoS 1 and 2 that need not wait for CONNACK; with 0 nothing
    /// does but CONNECT.
    pub(super) fn early_publishes(&self, conn: ConnId) -> u16 {
        self.early.publishes(conn)
    }

    /// Something was written ahead of CONNACK.
    pub(super) fn ran_ahead(&mut self, now: Instant) {
        self.early.ran_ahead(now);
    }

    /// A connection opened, perhaps before its handshake.
    pub(super) fn opened(&mut self, now: Instant, conn: ConnId, early: bool) {
        self.early.opened(now, conn, early);
        self.upgrade.opened(now, conn);
        if let State::Dialing(dialing) = &mut self.state {
            dialing.opened(now, conn);
        }
    }

    /// The handshake is complete. Tells whether early data waited for that.
    pub(super) fn verdict(&mut self, now: Instant, conn: ConnId) -> bool {
        self.early.verdict(now, conn)
    }

    /// The server ended the control stream.
    pub(super) fn finished(&mut self, conn: ConnId) {
        if let State::Open(open) = &mut self.state
            && open.conn == conn
        {
            open.finished = true;
        }
    }

    pub(super) fn closed(&mut self, now: Instant, conn: ConnId, cause: CloseCause) {
        self.upgrade.closed(now, conn);
        match &mut self.state {
            State::Dialing(dialing) => dialing.closed(conn, cause),
            State::Open(open) | State::Closing(open) if open.conn == conn => {
                open.closed = Some(cause);
            }
            _ => {}
        }
    }

    /// A name was looked up, for an attempt that may be over.
    pub(super) fn resolved(&mut self, attempt: u64, resolved: Resolved) {
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
    pub(super) fn connected(&mut self, now: Instant) {
        self.losses.accepted(now);
        self.was_connected = true;
        self.early.connected();
    }

    /// When to run again.
    pub(super) fn deadline(&self) -> Option<Instant> {
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
    pub(super) fn run(&mut self, context: &mut Context<'_>) -> Step {
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
                State::Failed(cause) => self.attempt_failed(context, cause),
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
    pub(super) fn give_up(&self, context: &mut Context<'_>) -> bool {
        match &self.state {
            State::Open(_) | State::Closing(_) | State::Ended => return false,
            State::Dialing(dialing) => dialing.abort(context, None),
            _ => {}
        }
        true
    }

    fn look_up(&mut self, context: &mut Context<'_>) {
        self.attempt += 1;
        let options = &self.options.link;
        let url = &options.url;
        let encrypted = url.transport().is_encrypted() || options.race.is_some();
        let needs_tls = encrypted && self.tls.is_none();
        if let (Some(ip), false) = (url.ip(), needs_tls) {
            self.state = State::Resolved(vec![SocketAddr::new(ip, url.port())]);
            return;
        }
        let started = context.resolver.start(Job {
            key: self.shared.key,
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
    ) -> Result<ConnId, DisconnectCause> {
        let options = &self.options.link;
        let url = &options.url;
        let mut config = DialConfig::new(transport, addr, url.host());
        config.tls.clone_from(&self.tls);
        config.quic = options.network.tuning();
        config.local_addr = options.local_addr.map(|ip| SocketAddr::new(ip, 0));
        config.handshake_timeout = Some(options.connect_timeout);
        self.early.configure(&mut config, early);
        config.protocols = vec![Text::from_static(PROTOCOL)];
        let path = match url.path() {
            "" => WS_PATH,
            path => path,
        };
        path.clone_into(&mut config.ws_path);
        let conn = context
            .net
            .dial(&config)
            .map_err(|error| DisconnectCause::Net(Arc::new(error)))?;
        context.conns.insert(conn, self.shared.key);
        Ok(conn)
    }

    /// A transport is open and carries MQTT from now on.
    fn take(&mut self, conn: ConnId, transport: Transport) -> Step {
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
    pub(super) fn measure(&mut self, context: &mut Context<'_>, last: bool) {
        if let Some(conn) = self.open_conn()
            && let Some(home) = self.early.wants_rtt(last)
            && let Some(quic) = context.net.conn(conn).stats().and_then(|stats| stats.quic)
        {
            self.early.pace.measured(home, quic.rtt);
        }
    }

    /// Closes the transport. From here on the transport bounds the time.
    pub(super) fn close(&mut self, context: &mut Context<'_>, conn: ConnId) {
        self.measure(context, true);
        context.net.close(conn, close_code::NO_ERROR);
        self.start_closing();
    }

    fn start_closing(&mut self) {
        self.state = match core::mem::replace(&mut self.state, State::Idle) {
            State::Open(open) => State::Closing(open),
            other => other,
        };
    }

    /// Why the transport that was being closed is gone, once.
    pub(super) fn take_closed(&mut self) -> Option<CloseCause> {
        match &mut self.state {
            State::Closing(closing) => closing.closed.take(),
            _ => None,
        }
    }

    /// Does what is due for the way back to QUIC. Gives the connections to
    /// leave and to go on with, when the session can change over:
    /// [`Link::leave`] follows.
    pub(super) fn run_upgrade(
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

    /// DISCONNECT is written on the old connection: closes it and waits for
    /// its end.
    pub(super) fn leave(&mut self, context: &mut Context<'_>, old: ConnId, new: ConnId) {
        context.net.close(old, close_code::NO_ERROR);
        self.upgrade.leaving(new);
        self.start_closing();
    }

    /// The transport is gone: takes the connection that the session changes
    /// over to, if there is one and it is `wanted`.
    pub(super) fn switch(&mut self, context: &mut Context<'_>, wanted: bool) -> Option<ConnId> {
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
    pub(super) fn lost(
        &mut self,
        context: &Context<'_>,
        fault: Option<DisconnectCause>,
        cause: CloseCause,
        is_last: bool,
        is_useful: bool,
    ) -> Step {
        let by_server = match &fault {
            Some(fault) => matches!(fault, DisconnectCause::Server { .. }),
            None => matches!(cause, CloseCause::Peer { .. } | CloseCause::Failed(_)),
        };
        let unheard = self.early.lost(context.now, by_server);
        if is_last {
            self.shared.emit(ConnectionEvent::Disconnected {
                cause: DisconnectCause::Local,
            });
            return Step::End(DisconnectCause::Local);
        }
        if unheard && fault.is_none() {
            self.state = State::Waiting(context.now);
            return Step::Rest;
        }
        let cause = fault.unwrap_or(DisconnectCause::Transport(cause));
        if self.losses.lost(context.now, &cause, is_useful) {
            self.failures = 0;
        }
        self.attempt_failed(context, cause).unwrap_or(Step::Rest)
    }

    /// An attempt or a connection ended: waits, or gives up.
    fn attempt_failed(&mut self, context: &Context<'_>, cause: DisconnectCause) -> Option<Step> {
        self.shared.emit(ConnectionEvent::Disconnected {
            cause: cause.clone(),
        });
        let backoff = self.options.link.reconnect.filter(|_| self.was_connected);
        let is_over = is_final(&cause) || self.losses.are_enough();
        let Some(backoff) = backoff.filter(|_| !is_over) else {
            return Some(Step::End(cause));
        };
        self.failures = self.failures.saturating_add(1);
        // Nothing is wrong with the server where this side's address changed.
        let gone = matches!(cause, DisconnectCause::Transport(CloseCause::AddressGone));
        let wait = match gone && self.failures == 1 {
            true => Duration::ZERO,
            false => backoff.wait(self.failures, (random_u64() >> 32) as u32),
        };
        self.shared.emit(ConnectionEvent::Reconnecting { wait });
        self.state = State::Waiting(context.now + wait);
        Some(Step::Rest)
    }
}

fn drop_probe(context: &mut Context<'_>, conn: ConnId) {
    context.conns.remove(&conn);
    context.net.conn(conn).abort();
}

/// Whether another attempt would only do harm: the server threw this client
/// out for another one of its name, or will never take it or what it sends.
fn is_final(cause: &DisconnectCause) -> bool {
    match cause {
        DisconnectCause::Server { reason, .. } | DisconnectCause::Refused { reason, .. } => {
            matches!(
                reason,
                ReasonCode::SessionTakenOver
                    | ReasonCode::Banned
                    | ReasonCode::BadAuthenticationMethod
                    | ReasonCode::UnsupportedProtocolVersion
                    | ReasonCode::ClientIdentifierNotValid
                    | ReasonCode::PacketTooLarge
            )
        }
        DisconnectCause::Options(_) => true,
        _ => false,
    }
}
