//! One client within the loop: wires its transport and what runs on that, and
//! ends it.

use std::sync::Arc;

use dunlin_base::transport::{CloseCause, NetEvent, NetEventKind, Transport};
use dunlin_base::{ConnId, Instant, StreamId};
use dunlin_dial::{Context, Key, Link, Resolved, SessionFacts, Standing, Step, Task};
use tokio::sync::oneshot;

use super::lane::News;
use super::lanes::Lanes;
use super::sending::Left;
use crate::command::Command;
use crate::error::DisconnectCause;
use crate::events::ConnectionEvent;
use crate::shared::{NewClient, Shared};

/// One client.
pub(super) struct ClientTask {
    shared: Arc<Shared>,
    link: Link<Shared>,
    lanes: Lanes,
    /// Who waits for the first connection.
    connecting: Option<oneshot::Sender<Result<(), DisconnectCause>>>,
    /// The application ends the client.
    ending: Option<Vec<oneshot::Sender<()>>>,
    /// Something was settled or received on this connection.
    is_useful: bool,
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
        let watch = Arc::clone(&shared);
        let dial = Arc::clone(&options.link);
        Self {
            link: Link::new(watch, key, dial, options.tickets_of()),
            shared,
            lanes: Lanes::new(&options),
            connecting: Some(connected),
            ending: None,
            is_useful: false,
        }
    }

    fn handle_net(&mut self, now: Instant, event: NetEvent<&[u8]>) {
        let NetEvent { conn, kind } = event;
        let is_ours = self.link.open_conn() == Some(conn);
        match kind {
            NetEventKind::Opened { peer } => self.link.opened(now, conn, peer.early_data),
            NetEventKind::EarlyData { accepted } if self.link.verdict(now, conn) => {
                self.shared.emit(ConnectionEvent::EarlyData { accepted });
            }
            NetEventKind::Closed { cause } => self.link.closed(now, conn, cause),
            NetEventKind::StreamFinished {
                stream: StreamId::CONTROL,
            }
            | NetEventKind::StreamReset {
                stream: StreamId::CONTROL,
                ..
            } => self.link.finished(conn),
            NetEventKind::StreamFinished { stream } | NetEventKind::StreamReset { stream, .. }
                if is_ours =>
            {
                // What is on one stream comes back with all others.
                if let Some(lane) = self.lanes.on(stream) {
                    lane.fault.get_or_insert(DisconnectCause::Server(None));
                }
            }
            NetEventKind::Bytes { stream, data } if is_ours => {
                if let Some(lane) = self.lanes.on(stream) {
                    lane.receive(now, data);
                }
                self.take_news(now);
            }
            NetEventKind::ChannelBinding { data } if is_ours => self.lanes.first().bind(data),
            NetEventKind::Sent { stream, bytes } if is_ours => {
                if let Some(lane) = self.lanes.on(stream) {
                    lane.note_left(bytes);
                }
            }
            _ => {}
        }
    }

    fn handle_command(&mut self, _now: Instant, command: Command) {
        match command {
            Command::Sender(key, new) => self.lanes.add_sender(key, *new),
            Command::Receiver(key, new) => self.lanes.add_receiver(key, *new),
            Command::Send(key, outgoing) => {
                // Without the link it is dropped, which its sender notices.
                if let Some(sender) = self.lanes.of(key).links.sender(key) {
                    sender.enqueue(outgoing);
                }
            }
            Command::Settle(key, settle) => {
                let (engine, links) = self.lanes.of(key).parts();
                if let Some((receiver, _)) = links.receiver(key) {
                    receiver.settle(engine, settle);
                }
            }
            Command::Unsettled(key, answer) => {
                // Without the link it is dropped, which its receiver notices.
                if let Some((receiver, _)) = self.lanes.of(key).links.receiver(key) {
                    let _ = answer.send(receiver.give_out());
                }
            }
            // Running follows, which gives credit.
            Command::Taken => {}
            Command::Drain(key, done) => {
                let (engine, links) = self.lanes.of(key).parts();
                if let Some((receiver, link)) = links.receiver(key) {
                    receiver.drain(engine.zip(link), done);
                }
            }
            Command::Detach { link, closed, done } => {
                self.lanes.of(link).links.detach(link, closed, done);
            }
            Command::Close(done) => self.ending.get_or_insert_default().push(done),
            Command::Release => {
                self.ending.get_or_insert_default();
            }
        }
    }

    fn handle_resolved(&mut self, attempt: u64, resolved: Resolved) {
        self.link.resolved(attempt, resolved);
    }

    fn run(&mut self, context: &mut Context<'_>) {
        if self.ending.is_some() && self.link.give_up(context) {
            return self.end(&DisconnectCause::Local);
        }
        let step = self.link.run(context);
        self.follow(context, step);
        self.link.measure(context, false);
        let facts = SessionFacts {
            is_connected: self.lanes.first().is_open(),
            // Links come back on a new connection, not on another transport.
            is_kept: false,
            has_left: true,
        };
        let _ = self.link.run_upgrade(context, facts);
        for lane in self.lanes.iter() {
            lane.run_engine(context.now);
        }
        self.take_news(context.now);
        if let Some(conn) = self.link.open_conn() {
            self.write(context, conn);
        }
        self.finish(context);
    }

    fn has_ended(&self) -> bool {
        self.link.has_ended()
    }

    fn deadline(&self) -> Option<Instant> {
        let deadlines = [self.link.deadline(), self.lanes.deadline()];
        deadlines.into_iter().flatten().min()
    }
}

impl ClientTask {
    fn follow(&mut self, context: &mut Context<'_>, step: Step<DisconnectCause>) {
        match step {
            Step::Rest => {}
            Step::Begin(conn) => self.begin(context, conn),
            Step::End(cause) => self.end(&cause),
        }
    }

    /// A transport is open.
    fn begin(&mut self, context: &mut Context<'_>, conn: ConnId) {
        let ahead = self.link.may_run_ahead(conn);
        let has_streams = self.link.transport() == Transport::Quic;
        self.lanes.begin(context, conn, has_streams, ahead);
        if ahead {
            self.link.ran_ahead(context.now);
        }
    }

    /// What the lanes have heard of the server.
    fn take_news(&mut self, now: Instant) {
        let first = core::mem::take(&mut self.lanes.first().news);
        // One that sends this client on was not there for it.
        let fault = self.lanes.first().fault.as_ref();
        let is_sent_on = matches!(fault, Some(DisconnectCause::Redirected(_)));
        if first.opened && !is_sent_on {
            self.connected(now);
        }
        for lane in self.lanes.iter() {
            let News { useful, .. } = core::mem::take(&mut lane.news);
            self.is_useful |= useful;
        }
        self.is_useful |= first.useful;
    }

    /// The server has opened.
    fn connected(&mut self, now: Instant) {
        self.link.connected(now);
        let transport = self.link.transport();
        self.shared.set_transport(Some(transport));
        self.shared.emit(ConnectionEvent::Connected { transport });
        if let Some(connecting) = self.connecting.take() {
            let _ = connecting.send(Ok(()));
        }
    }

    /// Writes everything that may go, as long as the transport takes it.
    fn write(&mut self, context: &mut Context<'_>, conn: ConnId) {
        if self.lanes.fault().is_some() {
            return;
        }
        self.lanes.open_streams(context, conn);
        self.shared.set_streams(self.lanes.streams());
        for lane in self.lanes.iter() {
            lane.write(context, conn);
        }
    }

    /// Ends the connection or the client where that is due.
    fn finish(&mut self, context: &mut Context<'_>) {
        let (conn, is_gone) = match self.link.standing() {
            Standing::None => return self.finish_closing(context),
            Standing::Gone(conn) => (conn, true),
            Standing::Open(conn) => (conn, false),
        };
        let done = self.lanes.first().is_closed() || self.link.is_finished();
        if !is_gone && !done {
            let has_failed = self.lanes.fault().is_some();
            if !has_failed && self.ending.is_none() {
                return;
            }
            let mut waits = false;
            for lane in self.lanes.iter() {
                waits |= lane.close(context, conn);
            }
            // The server has as long to answer as the engines say.
            if waits && self.lanes.fault().is_none() {
                return;
            }
        }
        if !is_gone {
            // The answer to the server's end.
            for lane in self.lanes.iter() {
                lane.flush(context, conn, Left::new());
            }
        }
        let has_parted = self.ending.is_some() && self.lanes.have_parted();
        match has_parted && !is_gone {
            true => self.link.close_promptly(context, conn),
            false => self.link.close(context, conn),
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
        let fault = self.lanes.forget_transport();
        self.shared.set_transport(None);
        self.shared.set_streams(0);
        let is_last = self.ending.is_some();
        let is_useful = core::mem::take(&mut self.is_useful);
        // A probe of another transport, which is not made.
        let _ = self.link.switch(context, false);
        let step = self.link.lost(context, fault, cause, is_last, is_useful);
        self.follow(context, step);
    }

    /// The client is over.
    fn end(&mut self, cause: &DisconnectCause) {
        self.link.end();
        self.shared.end(cause);
        self.lanes.end(cause);
        if let Some(connecting) = self.connecting.take() {
            let _ = connecting.send(Err(cause.clone()));
        }
        for done in self.ending.take().into_iter().flatten() {
            let _ = done.send(());
        }
    }
}
