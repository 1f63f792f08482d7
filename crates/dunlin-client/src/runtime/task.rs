//! One client within the loop: wires its link, its session, and what is sent
//! and received, and ends it.

use core::time::Duration;
use std::sync::Arc;

use dunlin_base::transport::{CloseCause, NetEvent, NetEventKind};
use dunlin_base::{ConnId, Instant, StreamId};
use dunlin_dial::{Channel, Context, Key, Link, Resolved, SessionFacts, Standing, Step, Task};
use dunlin_mqtt::codec::ReasonCode;
use tokio::sync::oneshot;

use super::exchange::Exchange;
use super::migrate::Migrations;
use super::receive::{Parts, Receiver};
use super::send::Sender;
use crate::command::Command;
use crate::error::{DisconnectCause, MigrateError};
use crate::events::{ConnectionEvent, Migrated};
use crate::options::Options;
use crate::shared::{NewClient, Shared};

/// Time in which messages handed over before a disconnect must leave.
const DISCONNECT_MAX: Duration = Duration::from_secs(5);

/// Messages of QoS 1 and 2 that go out before the server has said how many it
/// takes at a time. The smallest limit that common servers have is 10.
const EARLY_PUBLISHES_MAX: u16 = 10;

/// One client.
pub(crate) struct ClientTask {
    shared: Arc<Shared>,
    options: Arc<Options>,
    link: Link<Shared>,
    exchange: Exchange,
    sender: Sender,
    receiver: Receiver,
    migrations: Migrations,
    /// The application ends the client.
    ending: Option<Ending>,
}

/// The wish to end the client.
struct Ending {
    reason: ReasonCode,
    expiry: Option<Duration>,
    done: Vec<oneshot::Sender<()>>,
    /// Until when messages may leave.
    by: Option<Instant>,
}

impl Ending {
    fn new(reason: ReasonCode, expiry: Option<Duration>) -> Self {
        Self {
            reason,
            expiry,
            done: Vec::new(),
            by: None,
        }
    }
}

impl Task for ClientTask {
    type New = NewClient;
    type Command = Command;

    fn new(key: Key, new: NewClient) -> Self {
        let NewClient {
            shared,
            options,
            connected,
        } = new;
        let own = || (Arc::clone(&shared), Arc::clone(&options));
        let (sender, of_sender) = own();
        let (exchange, of_exchange) = own();
        Self {
            link: Link::new(
                Arc::clone(&shared),
                key,
                Arc::clone(&options.link),
                options.tickets_of(),
            ),
            exchange: Exchange::new(exchange, of_exchange, connected),
            sender: Sender::new(sender, of_sender),
            receiver: Receiver::new(Arc::clone(&shared), options.session.version),
            migrations: Migrations::default(),
            ending: None,
            shared,
            options,
        }
    }

    fn handle_net(&mut self, now: Instant, event: NetEvent<&[u8]>) {
        let NetEvent { conn, kind } = event;
        match kind {
            NetEventKind::Opened { peer } => self.link.opened(now, conn, peer.early_data),
            NetEventKind::EarlyData { accepted } if self.link.verdict(now, conn) => {
                self.shared.emit(ConnectionEvent::EarlyData { accepted });
            }
            NetEventKind::Moved { from, to } => {
                let moved = Migrated { from, to };
                if self.link.open_conn() == Some(conn) {
                    self.shared.emit(ConnectionEvent::Migrated(moved));
                }
                self.migrations.finish(conn, Ok(moved));
            }
            NetEventKind::MoveFailed { to } => {
                let failed = Err(MigrateError::NoAnswer { from: to });
                self.migrations.finish(conn, failed);
            }
            NetEventKind::Closed { cause } => self.link.closed(now, conn, cause),
            NetEventKind::StreamFinished {
                stream: StreamId::CONTROL,
            }
            | NetEventKind::StreamReset {
                stream: StreamId::CONTROL,
                ..
            } => self.link.finished(conn),
            kind if self.link.open_conn() == Some(conn) => self.on_open_conn(now, kind),
            _ => {}
        }
    }

    fn handle_command(&mut self, now: Instant, command: Command) {
        match command {
            Command::Publish(queued) => self.sender.enqueue(now, queued),
            Command::Request(request) => self.exchange.request(request),
            Command::Migrate(migration) => self.migrations.want(migration),
            Command::Disconnect {
                reason,
                expiry,
                done,
            } => {
                let ending = self
                    .ending
                    .get_or_insert_with(|| Ending::new(reason, expiry));
                ending.done.push(done);
            }
            Command::Release => {
                let reason = ReasonCode::NORMAL_DISCONNECTION;
                self.ending.get_or_insert_with(|| Ending::new(reason, None));
            }
            // Running follows any command.
            Command::Run => {}
        }
    }

    fn handle_resolved(&mut self, attempt: u64, resolved: Resolved) {
        self.link.resolved(attempt, resolved);
    }

    fn run(&mut self, context: &mut Context<'_>) {
        self.exchange.take_acknowledged();
        let mut parts = Parts {
            link: &mut self.link,
            exchange: &mut self.exchange,
            sender: &mut self.sender,
        };
        self.receiver.receive_rest(context.now, &mut parts);
        self.run_link(context);
        self.link.measure(context, false);
        self.run_upgrade(context);
        self.migrations.run(context, self.link.open_conn());
        self.sender.drop_obsolete(context, self.link.open_conn());
        self.write(context);
        self.finish_if_wanted(context);
    }

    fn has_ended(&self) -> bool {
        self.link.has_ended()
    }

    fn deadline(&self) -> Option<Instant> {
        let deadlines = [
            self.link.deadline(),
            self.exchange.deadline(),
            self.sender.deadline(),
            self.ending.as_ref().and_then(|ending| ending.by),
        ];
        deadlines.into_iter().flatten().min()
    }
}

impl ClientTask {
    /// Something happened on the connection that MQTT runs on.
    fn on_open_conn(&mut self, now: Instant, event: NetEventKind<&[u8]>) {
        let mut parts = Parts {
            link: &mut self.link,
            exchange: &mut self.exchange,
            sender: &mut self.sender,
        };
        match event {
            NetEventKind::Bytes {
                stream: StreamId::CONTROL,
                data,
            } => self.receiver.receive(now, data, &mut parts),
            NetEventKind::Bytes { stream, data } => {
                self.receiver.receive_on(now, stream, data, &mut parts);
            }
            NetEventKind::Datagram { data } => {
                self.receiver.receive_datagram(now, data, &mut parts);
            }
            NetEventKind::StreamFinished { stream } => {
                self.receiver.stream_ended(stream, false, &mut parts);
            }
            NetEventKind::StreamReset { stream, .. } => {
                self.receiver.stream_ended(stream, true, &mut parts);
            }
            NetEventKind::Sent { bytes, .. } => self.sender.sent(bytes),
            NetEventKind::ChannelBinding { data } => self.exchange.bind(data),
            NetEventKind::StreamDelivered { stream } => self.sender.delivered(stream, now),
            NetEventKind::StreamsAvailable { .. } => self.sender.more_credit(),
            // Addresses may change.
            _ => {}
        }
    }

    fn run_link(&mut self, context: &mut Context<'_>) {
        if self.ending.is_some() && self.link.give_up(context) {
            return self.end(&DisconnectCause::Local);
        }
        let step = self.link.run(context);
        self.follow(context, step);
        if self.link.standing() != Standing::None {
            self.exchange.handle_timeout(context.now);
        }
    }

    fn follow(&mut self, context: &mut Context<'_>, step: Step<DisconnectCause>) {
        match step {
            Step::Rest => {}
            Step::Begin(conn) => self.begin(context, conn),
            Step::End(cause) => self.end(&cause),
        }
    }

    /// A transport is open: writes CONNECT.
    fn begin(&mut self, context: &mut Context<'_>, conn: ConnId) {
        let early = match self.link.may_run_ahead(conn) {
            true => EARLY_PUBLISHES_MAX,
            false => 0,
        };
        let is_reconnection = self.link.was_connected();
        let channel = match self.exchange.wants_channel() {
            true => Channel::of(context.net, conn),
            false => Channel::default(),
        };
        let out = self.sender.control();
        self.exchange
            .begin(context.now, channel, early, is_reconnection, out);
    }

    /// Does what is due for the way back to QUIC.
    fn run_upgrade(&mut self, context: &mut Context<'_>) {
        if self.exchange.has_failed() || self.ending.is_some() {
            return;
        }
        let facts = SessionFacts {
            is_connected: self.exchange.is_connected(),
            is_kept: self.exchange.is_kept(),
            has_left: self.sender.control_has_left(),
        };
        let Some((old, new)) = self.link.run_upgrade(context, facts) else {
            return;
        };
        let out = self.sender.control();
        if self.exchange.write_leave(context.now, out) {
            let _ = context.net.send(old, StreamId::CONTROL, out);
            self.link.leave(context, old, new);
        }
    }

    /// Writes what can be written.
    fn write(&mut self, context: &mut Context<'_>) {
        let Some(conn) = self.link.open_conn() else {
            return;
        };
        let now = context.now;
        self.sender.write_owed(now, &mut self.exchange);
        if self.exchange.is_connected() {
            let out = self.sender.control();
            self.exchange.write_requests(now, out);
            self.sender.write_again(now, &mut self.exchange);
            self.write_queue(context, conn);
        } else if self.link.may_run_ahead(conn) {
            let out = self.sender.control();
            let before = out.len();
            self.exchange.write_requests(now, out);
            self.write_queue(context, conn);
            if self.sender.control().len() > before {
                self.link.ran_ahead(now);
            }
        }
        let connected = self.exchange.is_connected();
        self.sender.flush(context, conn, connected);
        if let Some(paused) = self.receiver.take_pause() {
            context.net.conn(conn).pause_reading(paused);
            self.exchange.handle_read_paused(now, paused);
        }
    }

    fn write_queue(&mut self, context: &mut Context<'_>, conn: ConnId) {
        self.sender.configure(context, conn);
        if !self.link.is_switching() {
            let is_last = self.ending.is_some();
            let exchange = &mut self.exchange;
            self.sender.write_queue(context, conn, exchange, is_last);
        }
    }

    /// Ends the connection or the client where that is due.
    fn finish_if_wanted(&mut self, context: &mut Context<'_>) {
        let (conn, is_gone) = match self.link.standing() {
            Standing::None => return self.finish_closing(context),
            Standing::Gone(conn) => (conn, true),
            Standing::Open(conn) => (conn, false),
        };
        let done = self.exchange.has_failed() || self.link.is_finished();
        if let Some(ending) = &mut self.ending
            && !(done || is_gone)
        {
            let patience = DISCONNECT_MAX.min(self.options.link.connect_timeout);
            if *ending.by.get_or_insert(context.now + patience) <= context.now {
                // The server does not read.
                ending.by = None;
                self.exchange.fail(DisconnectCause::Local);
                return context.net.conn(conn).abort();
            }
        }
        let is_written = self.exchange.requests_are_written() && self.sender.has_written_queue();
        let may_end = !self.exchange.is_connected() || is_written;
        if let Some(ending) = self.ending.as_ref().filter(|_| may_end && !done) {
            let (reason, expiry) = (ending.reason, ending.expiry);
            let out = self.sender.control();
            self.exchange
                .write_disconnect(context.now, reason, expiry, out);
            let _ = context.net.send(conn, StreamId::CONTROL, out);
        } else if !(done || is_gone) {
            return;
        }
        self.link.close(context, conn);
        if let Some(ending) = &mut self.ending {
            ending.by = None;
        }
        self.finish_closing(context);
    }

    fn finish_closing(&mut self, context: &mut Context<'_>) {
        if let Some(cause) = self.link.take_closed() {
            self.connection_lost(context, cause);
        }
    }

    /// The transport is gone.
    fn connection_lost(&mut self, context: &mut Context<'_>, cause: CloseCause) {
        let is_last = self.ending.is_some();
        let begins_again = self.exchange.take_plus_refused() && !is_last;
        self.exchange.handle_closed();
        self.receiver.forget_connection();
        self.sender.forget_connection();
        let goes_on = !is_last && !begins_again && !self.exchange.has_failed();
        if let Some(conn) = self.link.switch(context, goes_on) {
            self.begin(context, conn);
            return self.write(context);
        }
        if begins_again {
            return self.link.begin_again(context.now);
        }
        let fault = self.exchange.take_fault();
        let is_useful = self.exchange.take_usefulness();
        let step = self.link.lost(context, fault, cause, is_last, is_useful);
        self.follow(context, step);
    }

    /// The client is over.
    fn end(&mut self, cause: &DisconnectCause) {
        self.link.end();
        let shared = &self.shared;
        shared.remote.unregister();
        shared.in_flight.close();
        shared.requests.close();
        shared.emit(ConnectionEvent::Closed);
        {
            let mut status = shared.status();
            status.closed = Some(cause.clone());
            status.events = None;
        }
        self.sender.end(cause);
        self.exchange.end(cause);
        self.shared.inbox.end();
        for done in self.ending.take().into_iter().flat_map(|e| e.done) {
            let _ = done.send(());
        }
    }
}
