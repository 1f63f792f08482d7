//! One client within the loop: its engine, what waits and what is in flight.
//! How connections come and go is in `link`, what comes from the server in
//! `incoming`, what goes to it in `outgoing`.

use core::num::NonZeroU32;
use core::time::Duration;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use dunlin_base::transport::{NetEvent, NetEventKind, Transport};
use dunlin_base::{Instant, SendBuf, StreamId, Text};
use dunlin_mqtt::client::{Receipt, Session as Engine, Settings};
use dunlin_mqtt::codec::{PacketId, ReasonCode, SubscribeOptions};
use dunlin_mqtt::scram::ExpectServerFinal;
use dunlin_net::ClientTls;
use tokio::sync::oneshot;

use super::data::DataStreams;
use super::early::Early;
use super::io::Context;
use super::link::Link;
use super::migrate::Migrations;
use super::outbox::Outbox;
use super::upgrade::Upgrade;
use super::{Command, Key, NewClient, QueuedPublish, Request};
use crate::error::{DisconnectCause, PublishError, SubscribeError};
use crate::events::ConnectionEvent;
use crate::options::{Options, REQUESTS_MAX};
use crate::shared::Shared;

/// One client.
pub(super) struct Session {
    pub(super) engine: Engine,
    pub(super) core: Core,
    /// The instant of its entry in the loop's timers.
    pub(super) armed: Option<Instant>,
    /// It is in the loop's list of sessions to run.
    pub(super) touched: bool,
}

/// Everything but the engine, whose events borrow from it.
pub(super) struct Core {
    pub(super) shared: Arc<Shared>,
    pub(super) options: Options,
    pub(super) link: Link,
    /// How the current connection is made.
    pub(super) transport: Transport,
    /// The way back to QUIC, where QUIC and TLS race.
    pub(super) upgrade: Upgrade,
    /// Counts attempts to connect, to tell late answers of the resolver.
    pub(super) attempt: u64,
    /// Failed attempts in a row.
    pub(super) failures: u32,
    pub(super) tls: Option<Arc<ClientTls>>,
    pub(super) early: Early,
    /// Who waits for the first connection.
    pub(super) connected: Option<oneshot::Sender<Result<(), DisconnectCause>>>,
    pub(super) was_connected: bool,
    /// Why the connection must end, found while handling what came.
    pub(super) fault: Option<DisconnectCause>,
    pub(super) goodbye: Option<Goodbye>,
    /// Until when the goodbye waits for messages to leave.
    pub(super) goodbye_by: Option<Instant>,
    pub(super) scram: Option<Scram>,
    /// Bytes that are not a whole packet yet, or wait for room in the inbox.
    pub(super) input: Vec<u8>,
    /// The application does not take messages fast enough.
    pub(super) inbox_full: bool,
    /// The transport has been told not to read.
    pub(super) reading_paused: bool,
    pub(super) receipts: Vec<Receipt>,
    pub(super) out: SendBuf,
    /// Bytes given to the transport on this connection, and how many of them
    /// have left.
    pub(super) given: u64,
    pub(super) left: u64,
    /// Messages that wait for a connection or for the server's quota.
    pub(super) queue: Outbox<QueuedPublish>,
    /// Streams besides control.
    pub(super) data: DataStreams,
    pub(super) migrations: Migrations,
    /// Messages of QoS 0 whose last byte is the n-th given to the transport.
    pub(super) leaving: VecDeque<(u64, QueuedPublish)>,
    pub(super) in_flight: HashMap<PacketId, QueuedPublish>,
    pub(super) requests: VecDeque<Request>,
    pub(super) requested: HashMap<PacketId, Request>,
    /// Subscriptions that the server has made.
    pub(super) subscriptions: BTreeMap<Text, (SubscribeOptions, Option<NonZeroU32>)>,
}

/// The wish to end the client.
pub(super) struct Goodbye {
    pub(super) reason: ReasonCode,
    pub(super) expiry: Option<Duration>,
    pub(super) done: Vec<oneshot::Sender<()>>,
}

/// A SCRAM exchange.
pub(super) struct Scram {
    pub(super) nonce: String,
    /// The proof has been sent; the server's is awaited.
    pub(super) expect: Option<ExpectServerFinal>,
}

impl Session {
    pub(super) fn new(new: NewClient) -> Self {
        let NewClient {
            shared,
            options,
            connected,
        } = new;
        let mut settings = Settings::default();
        settings.connect_timeout = options.connect_timeout;
        settings.ping_timeout = options.ping_timeout;
        settings.outbound_max = options.max_in_flight.saturating_add(REQUESTS_MAX);
        settings.inbound_max = options.receive_maximum.saturating_mul(2);
        settings.aliases_in_max = options.topic_aliases;
        settings.aliases_out_max = options.topic_aliases;
        let data = DataStreams::new(&options.streams);
        let early = Early::new(&options);
        Self {
            engine: Engine::new(settings),
            core: Core {
                shared,
                transport: options.url.transport(),
                options,
                link: Link::Idle,
                upgrade: Upgrade::default(),
                attempt: 0,
                failures: 0,
                tls: None,
                early,
                connected: Some(connected),
                was_connected: false,
                fault: None,
                goodbye: None,
                goodbye_by: None,
                scram: None,
                input: Vec::new(),
                inbox_full: false,
                reading_paused: false,
                receipts: Vec::new(),
                out: SendBuf::new(),
                given: 0,
                left: 0,
                queue: Outbox::new(),
                data,
                migrations: Migrations::default(),
                leaving: VecDeque::new(),
                in_flight: HashMap::new(),
                requests: VecDeque::new(),
                requested: HashMap::new(),
                subscriptions: BTreeMap::new(),
            },
            armed: None,
            touched: false,
        }
    }

    pub(super) fn key(&self) -> Key {
        self.core.shared.key
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.core.link, Link::Ended)
    }

    /// Something happened on one of its connections. The transport is not at
    /// hand here; what needs it happens in [`Session::run`].
    pub(super) fn on_net(&mut self, now: Instant, event: NetEvent<&[u8]>) {
        let NetEvent { conn, kind } = event;
        let is_open = self.core.link.open_conn() == Some(conn);
        match kind {
            NetEventKind::Opened { peer } => {
                self.core.early.opened(now, conn, peer.early_data);
                self.core.upgrade.opened(now, conn);
                self.core.link.opened(now, conn);
            }
            NetEventKind::Bytes {
                stream: StreamId::CONTROL,
                data,
            } if is_open => self.receive(now, data),
            NetEventKind::StreamFinished {
                stream: StreamId::CONTROL,
            }
            | NetEventKind::StreamReset {
                stream: StreamId::CONTROL,
                ..
            } => self.core.link.finished(conn),
            NetEventKind::Sent { bytes } if is_open => self.core.left += bytes as u64,
            NetEventKind::Bytes { .. }
            | NetEventKind::Datagram { .. }
            | NetEventKind::StreamFinished { .. }
            | NetEventKind::StreamReset { .. }
            | NetEventKind::StreamDelivered { .. }
            | NetEventKind::StreamsAvailable { .. }
                if is_open =>
            {
                self.on_data_stream(now, &kind);
            }
            NetEventKind::EarlyData { accepted } if self.core.early.verdict(now, conn) => {
                let event = ConnectionEvent::EarlyData { accepted };
                self.core.shared.emit(event);
            }
            NetEventKind::Moved { .. } | NetEventKind::MoveFailed { .. } => {
                self.on_moved(conn, &kind);
            }
            NetEventKind::Closed { cause } => {
                self.core.upgrade.closed(now, conn);
                self.core.link.closed(conn, cause);
            }
            // Addresses may change.
            _ => {}
        }
    }

    pub(super) fn on_command(&mut self, now: Instant, command: Command) {
        let core = &mut self.core;
        match command {
            Command::Publish(_, queued) => core.enqueue(now, queued),
            Command::Request(_, request) => core.requests.push_back(request),
            Command::Migrate(_, migration) => core.migrations.want(migration),
            Command::Disconnect {
                reason,
                expiry,
                done,
                ..
            } => {
                let goodbye = core.goodbye.get_or_insert_with(|| Goodbye {
                    reason,
                    expiry,
                    done: Vec::new(),
                });
                goodbye.done.push(done);
            }
            Command::Release(_) => {
                core.goodbye.get_or_insert_with(|| Goodbye {
                    reason: ReasonCode::NORMAL_DISCONNECTION,
                    expiry: None,
                    done: Vec::new(),
                });
            }
            Command::Resolved(_, attempt, resolved) => {
                core.link
                    .resolved(attempt == core.attempt, resolved, &mut core.tls)
            }
            // Looking is what `run` does anyway; the others are the loop's.
            Command::Look(_) | Command::Add(_) | Command::End => {}
        }
    }

    /// Does everything that has become possible.
    pub(super) fn run(&mut self, context: &mut Context<'_>) {
        self.take_acknowledged();
        if self.core.inbox_full {
            self.receive_rest(context.now);
        }
        if let Some(conn) = self.core.early.overdue(context.now) {
            context.net.abort(conn);
        }
        self.run_link(context);
        self.measure(context, false);
        self.run_upgrade(context);
        self.run_migrations(context);
        self.drop_obsolete(context);
        self.write(context);
        self.finish_if_wanted(context);
    }

    /// When to run again without being told.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let link = self.core.link.deadline();
        let at = link.or_else(|| self.engine.poll_timeout());
        let core = &self.core;
        let others = [
            core.goodbye_by,
            core.early.deadline(),
            core.queue.obsolete_from(),
            core.data.routes.deadline(),
            core.upgrade
                .deadline()
                .filter(|_| core.link.open_conn().is_some()),
        ];
        at.into_iter().chain(others.into_iter().flatten()).min()
    }

    /// The client is over.
    pub(super) fn end(&mut self, cause: &DisconnectCause) {
        let core = &mut self.core;
        core.link = Link::Ended;
        core.shared.remote.unregister();
        core.shared.in_flight.close();
        core.shared.requests.close();
        core.shared.emit(ConnectionEvent::Closed);
        {
            let mut status = core.shared.status();
            status.closed = Some(cause.clone());
            status.events = None;
            (status.negotiated, status.transport) = (None, None);
        }
        let closed = || Err(PublishError::Closed(cause.clone()));
        let leaving = core.leaving.drain(..).map(|(_, queued)| queued);
        let in_flight = core.in_flight.drain().map(|(_, queued)| queued);
        let streams = core.data.forget_connection();
        let sent = leaving.chain(in_flight).chain(streams);
        for queued in core.queue.drain().chain(sent) {
            queued.finish(closed());
        }
        let requested = core.requested.drain().map(|(_, request)| request);
        for request in core.requests.drain(..).chain(requested) {
            request.finish(Err(SubscribeError::Closed(cause.clone())));
        }
        core.shared.inbox.end();
        if let Some(connected) = core.connected.take() {
            let _ = connected.send(Err(cause.clone()));
        }
        for done in core.goodbye.take().into_iter().flat_map(|g| g.done) {
            let _ = done.send(());
        }
    }
}
