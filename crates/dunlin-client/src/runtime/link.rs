//! How connections of a client come and go: look up, dial (in `dialing`),
//! CONNECT, and again after a failure.

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use dunlin_base::transport::{CloseCause, Transport, close_code};
use dunlin_base::{ConnId, Instant};
use dunlin_mqtt::client::Phase;
use dunlin_mqtt::codec::{Disconnect, DisconnectProperties, ReasonCode, Version};
use dunlin_mqtt::scram;
use dunlin_net::ClientTls;

use super::dialing::Dialing;
use super::io::Context;
use super::resolver::{Job, Resolved};
use super::session::{Scram, Session};
use crate::error::DisconnectCause;
use crate::events::ConnectionEvent;
use crate::options::{random_u64, whole_seconds};

/// Time in which messages handed over before a goodbye must leave.
const GOODBYE_MAX: Duration = Duration::from_secs(5);

/// Where a client's connection stands.
pub(super) enum Link {
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
pub(super) struct Conn {
    conn: ConnId,
    /// The server will send nothing more.
    finished: bool,
    closed: Option<CloseCause>,
}

impl Link {
    /// The connection that MQTT runs on.
    pub(super) fn open_conn(&self) -> Option<ConnId> {
        match self {
            Self::Open(open) if open.closed.is_none() => Some(open.conn),
            _ => None,
        }
    }

    pub(super) fn opened(&mut self, now: Instant, conn: ConnId) {
        if let Self::Dialing(dialing) = self {
            dialing.opened(now, conn);
        }
    }

    /// The transport is being closed by this side.
    pub(super) fn start_closing(&mut self) {
        *self = match core::mem::replace(self, Self::Idle) {
            Self::Open(open) => Self::Closing(open),
            other => other,
        };
    }

    pub(super) fn finished(&mut self, conn: ConnId) {
        if let Self::Open(open) = self
            && open.conn == conn
        {
            open.finished = true;
        }
    }

    pub(super) fn closed(&mut self, conn: ConnId, cause: CloseCause) {
        match self {
            Self::Dialing(dialing) => dialing.closed(conn, cause),
            Self::Open(open) | Self::Closing(open) if open.conn == conn => {
                open.closed = Some(cause);
            }
            _ => {}
        }
    }

    pub(super) fn resolved(
        &mut self,
        current: bool,
        resolved: Resolved,
        tls: &mut Option<Arc<ClientTls>>,
    ) {
        if !(current && matches!(self, Self::Resolving)) {
            return;
        }
        *self = match resolved {
            Ok((addrs, made)) => {
                if made.is_some() {
                    *tls = made;
                }
                Self::Resolved(addrs)
            }
            Err(cause) => Self::Failed(cause),
        };
    }

    /// When to look again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Dialing(dialing) => Some(dialing.deadline()),
            Self::Waiting(until) => Some(*until),
            _ => None,
        }
    }
}

impl Session {
    /// Goes as far as it can towards a connection.
    pub(super) fn run_link(&mut self, context: &mut Context<'_>) {
        if self.core.goodbye.is_some() && self.give_up_attempt(context) {
            return;
        }
        loop {
            match core::mem::replace(&mut self.core.link, Link::Idle) {
                Link::Idle => self.look_up(context),
                Link::Resolved(addrs) => self.start_dialing(context, &addrs),
                Link::Failed(cause) => self.attempt_failed(context, cause),
                Link::Dialing(dialing) => {
                    if self.run_dialing(context, dialing) {
                        return;
                    }
                }
                Link::Waiting(until) if until <= context.now => {}
                Link::Open(open) => {
                    self.core.link = Link::Open(open);
                    if self
                        .engine
                        .poll_timeout()
                        .is_some_and(|at| at <= context.now)
                        && let Err(error) = self.engine.handle_timeout(context.now)
                    {
                        self.core.fault.get_or_insert(DisconnectCause::Peer(error));
                    }
                    return;
                }
                other => {
                    self.core.link = other;
                    return;
                }
            }
            if matches!(
                self.core.link,
                Link::Ended | Link::Resolving | Link::Waiting(_)
            ) {
                return;
            }
        }
    }

    /// Ends a client that is not connected.
    fn give_up_attempt(&mut self, context: &mut Context<'_>) -> bool {
        match &self.core.link {
            Link::Open(_) | Link::Closing(_) | Link::Ended => return false,
            Link::Dialing(dialing) => dialing.abort(context, None),
            _ => {}
        }
        self.end(&DisconnectCause::Local);
        true
    }

    fn look_up(&mut self, context: &mut Context<'_>) {
        let core = &mut self.core;
        core.attempt += 1;
        let url = &core.options.url;
        let encrypted = url.transport().is_encrypted() || core.options.race.is_some();
        let needs_tls = encrypted && core.tls.is_none();
        if let (Some(ip), false) = (url.ip(), needs_tls) {
            core.link = Link::Resolved(vec![SocketAddr::new(ip, url.port())]);
            return;
        }
        let started = context.resolver.start(Job {
            key: core.shared.key,
            attempt: core.attempt,
            host: url.host().to_owned(),
            port: url.port(),
            tls: needs_tls.then(|| core.options.tls.clone()),
        });
        core.link = match started {
            Ok(()) => Link::Resolving,
            Err(cause) => Link::Failed(cause),
        };
    }

    /// The transport is open: writes CONNECT.
    pub(super) fn begin(&mut self, context: &Context<'_>, conn: ConnId, transport: Transport) {
        let core = &mut self.core;
        core.transport = transport;
        core.link = Link::Open(Conn {
            conn,
            finished: false,
            closed: None,
        });
        let mut scram_first = Vec::new();
        if let Some((user, password)) = &core.options.scram {
            let nonce = format!("{:016x}{:016x}", random_u64(), random_u64());
            let client = scram::Client {
                user,
                password,
                nonce: &nonce,
            };
            if let Err(error) = client.first(&mut scram_first) {
                core.fault = Some(DisconnectCause::Scram(error));
            }
            core.scram = Some(Scram {
                nonce,
                expect: None,
            });
        }
        let early = core.early.publishes(conn);
        self.engine.set_early_publishes(early);
        let first = core.scram.as_ref().map(|_| scram_first.as_slice());
        let (engine, out) = (&mut self.engine, &mut core.out);
        let result = core
            .options
            .with_connect(core.was_connected, first, |connect| {
                engine.connect(context.now, connect, out)
            });
        if let Err(error) = result {
            core.fault = Some(DisconnectCause::Options(error));
        }
        self.take_back_requests();
    }

    /// Notes how long a round trip takes, if that is to be remembered.
    pub(super) fn measure(&mut self, context: &mut Context<'_>, last: bool) {
        let core = &mut self.core;
        if let Some(conn) = core.link.open_conn()
            && let Some(home) = core.early.wants_rtt(last)
            && let Some(quic) = context.net.stats(conn).and_then(|stats| stats.quic)
        {
            core.early.pace.measured(home, quic.rtt);
        }
    }

    /// Ends the connection or the client where that is due.
    pub(super) fn finish_if_wanted(&mut self, context: &mut Context<'_>) {
        let Link::Open(open) = &self.core.link else {
            return self.finish_closing(context);
        };
        let (conn, is_closed) = (open.conn, open.closed.is_some());
        let stuck = self.engine.phase() != Phase::Connected;
        let done = self.core.fault.is_some() || open.finished;
        if self.core.goodbye.is_some() && !(done || is_closed) {
            let patience = GOODBYE_MAX.min(self.core.options.connect_timeout);
            let by = context.now + patience;
            if *self.core.goodbye_by.get_or_insert(by) <= context.now {
                // The server does not read.
                self.core.goodbye_by = None;
                self.core.fault = Some(DisconnectCause::Local);
                return context.net.abort(conn);
            }
        }
        if self.core.goodbye.is_some() && (stuck || self.core.has_written_queue()) && !done {
            self.say_goodbye(context);
            let _ = context
                .net
                .send(conn, dunlin_base::StreamId::CONTROL, &mut self.core.out);
        } else if !(done || is_closed) {
            return;
        }
        self.measure(context, true);
        // From here on the transport bounds the time.
        self.core.goodbye_by = None;
        context.net.close(conn, close_code::NO_ERROR);
        self.core.link.start_closing();
        self.finish_closing(context);
    }

    fn finish_closing(&mut self, context: &mut Context<'_>) {
        let Link::Closing(closing) = &mut self.core.link else {
            return;
        };
        let Some(cause) = closing.closed.take() else {
            return;
        };
        self.connection_lost(context, cause);
    }

    fn say_goodbye(&mut self, context: &Context<'_>) {
        let Some(goodbye) = &self.core.goodbye else {
            return;
        };
        let options = &self.core.options;
        let is_v5 = options.version == Version::V5;
        // A session kept only for reconnections is of no use any more.
        let own_expiry = (options.session_expiry.is_none() && options.session_expiry_seconds() > 0)
            .then_some(Duration::ZERO);
        let expiry = goodbye.expiry.or(own_expiry).filter(|_| is_v5);
        let mut disconnect = Disconnect {
            reason: match is_v5 {
                true => goodbye.reason,
                false => ReasonCode::NORMAL_DISCONNECTION,
            },
            properties: DisconnectProperties {
                session_expiry_interval: expiry.map(whole_seconds),
                ..DisconnectProperties::default()
            },
        };
        if !is_v5 && goodbye.reason == ReasonCode::DisconnectWithWill {
            // MQTT 3.1.1 publishes the will of whoever does not say goodbye.
            return;
        }
        let (engine, out) = (&mut self.engine, &mut self.core.out);
        if engine.disconnect(context.now, &disconnect, out).is_err() {
            disconnect.properties.session_expiry_interval = None;
            let _ = engine.disconnect(context.now, &disconnect, out);
        }
    }

    /// The transport is gone.
    fn connection_lost(&mut self, context: &mut Context<'_>, cause: CloseCause) {
        self.engine.handle_closed();
        self.core.forget_connection();
        if self.switch(context) {
            return;
        }
        let core = &mut self.core;
        let fault = core.fault.take();
        let by_server = match &fault {
            Some(fault) => matches!(fault, DisconnectCause::Server { .. }),
            None => matches!(cause, CloseCause::Peer { .. } | CloseCause::Failed(_)),
        };
        let unheard = core.early.lost(context.now, by_server);
        if core.goodbye.is_some() {
            core.shared.emit(ConnectionEvent::Disconnected {
                cause: DisconnectCause::Local,
            });
            return self.end(&DisconnectCause::Local);
        }
        if unheard && fault.is_none() {
            core.link = Link::Waiting(context.now);
            return;
        }
        let cause = fault.unwrap_or(DisconnectCause::Transport(cause));
        self.attempt_failed(context, cause);
    }

    /// An attempt or a connection ended: waits, or gives up.
    pub(super) fn attempt_failed(&mut self, context: &Context<'_>, cause: DisconnectCause) {
        let core = &mut self.core;
        core.fault = None;
        core.shared.emit(ConnectionEvent::Disconnected {
            cause: cause.clone(),
        });
        let backoff = core.options.reconnect.filter(|_| core.was_connected);
        let Some(backoff) = backoff.filter(|_| !is_final(&cause)) else {
            return self.end(&cause);
        };
        core.failures = core.failures.saturating_add(1);
        // Nothing is wrong with the server where this side's address changed.
        let gone = matches!(cause, DisconnectCause::Transport(CloseCause::AddressGone));
        let wait = match gone && core.failures == 1 {
            true => Duration::ZERO,
            false => backoff.wait(core.failures, (random_u64() >> 32) as u32),
        };
        core.shared.emit(ConnectionEvent::Reconnecting { wait });
        core.link = Link::Waiting(context.now + wait);
    }
}

/// Whether another attempt would only do harm: the server threw this client
/// out for another one of its name, or will never take it.
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
            )
        }
        DisconnectCause::Options(_) => true,
        _ => false,
    }
}
