//! The loop of one shard: transport events, mail and deadlines in; bytes, mail
//! and store requests out. All decisions are the shard's.

use core::time::Duration;
use std::collections::VecDeque;
use std::time::Instant as StdInstant;

use dunlin_base::transport::NetEvent;
use dunlin_base::{ConnId, SendBuf, ShardId};
use dunlin_broker::{Event, Input, NetCommand, Output, Shard};
use dunlin_net::{Clock, Net, Qlog};
use dunlin_store::Request;
use dunlin_store_redb::{SubmitError, Submitter};

use super::desk::AuthDesk;
use super::look::Look;
use super::memory::{Memory, give_back_aside};
use super::post::{Address, Inbox, Mail};
use crate::metrics::Paths;

/// Time for clients to take their DISCONNECT and for the store to finish.
const SHUT_DOWN_MAX: Duration = Duration::from_secs(5);

/// Pieces of mail handled before transports get a turn.
const MAIL_BATCH_MAX: usize = 4096;

/// Pause while another shard, or the store, is behind.
const BACK_OFF: Duration = Duration::from_micros(200);

/// One shard's thread.
pub(crate) struct Worker {
    pub(crate) id: ShardId,
    pub(crate) shard: Shard,
    pub(crate) net: Net,
    pub(crate) clock: Clock,
    pub(crate) inbox: Inbox,
    /// Addresses of all shards, this one included.
    pub(crate) shards: Vec<Address>,
    pub(crate) store: Option<Submitter>,
    pub(crate) auth: AuthDesk,
    pub(crate) qlog: Option<Qlog>,
    /// Requests that the store had no room for, oldest first.
    pub(crate) held: VecDeque<Request>,
    /// Shards that got mail in this batch.
    pub(crate) to_wake: Vec<bool>,
    pub(crate) deadline: Option<StdInstant>,
    /// How paths of QUIC were when somebody looked.
    pub(crate) paths: Paths,
    pub(crate) memory: Memory,
}

impl Worker {
    /// Runs until told to shut down, and everything is done or the time for it
    /// is over.
    pub(crate) fn run(mut self) {
        self.perform();
        loop {
            self.turn();
            if let Some(deadline) = self.deadline
                && (self.shard.is_drained() || StdInstant::now() >= deadline)
            {
                return;
            }
        }
    }

    fn turn(&mut self) {
        if self.is_held_up() {
            std::thread::sleep(BACK_OFF);
        } else {
            self.poll_net();
        }
        while let Some((to, datagram)) = self.net.poll_foreign() {
            self.mail(to, Mail::Datagram(datagram));
        }
        for _ in 0..MAIL_BATCH_MAX {
            let Some(mail) = self.inbox.take() else {
                break;
            };
            self.open(mail);
        }
        let now = self.clock.now();
        let connections = self.net.connections().max(self.shard.connections());
        if self.memory.is_due(connections, now) {
            self.shard.shrink();
            give_back_aside();
        }
        if self.shard.poll_timeout().is_some_and(|at| at <= now) {
            self.shard.handle_timeout(now);
            if self.shard.take_sys_round() {
                let shard = &mut self.shard;
                self.net.counters().each(|name, _, value| {
                    shard.publish_sys_value(&format!("transport/{name}"), value);
                });
            }
        }
        self.perform();
    }

    /// Whether reading more would only make a queue longer.
    fn is_held_up(&self) -> bool {
        !self.held.is_empty() || self.shards.iter().any(Address::is_full)
    }

    fn poll_net(&mut self) {
        let now = self.clock.now();
        let next = self.shard.poll_timeout().into_iter();
        let next = next.chain(self.memory.look_at()).min();
        let mut timeout = next.map(|at| at - now);
        if self.deadline.is_some() {
            timeout = Some(Duration::from_millis(10));
        }
        let (shard, clock) = (&mut self.shard, self.clock);
        let polled = self.net.poll(timeout, &mut |event| {
            shard.handle(clock.now(), Input::Net(event));
        });
        if let Err(error) = polled {
            tracing::error!(%error, "the event loop failed");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn open(&mut self, mail: Mail) {
        let now = self.clock.now();
        match mail {
            Mail::Bus { from, message } => {
                self.shard.handle(now, Input::Bus { from, message });
            }
            Mail::Datagram(datagram) => self.net.handle_foreign(datagram),
            Mail::Store(done) => self.shard.handle(now, Input::Store(done)),
            Mail::Auth { conn, answer } => {
                self.shard.handle(now, Input::Auth { conn, answer });
            }
            Mail::Struck { strike, kept } => self.net.handle_struck(strike, kept),
            Mail::Acl(acl) => self.shard.set_acl(acl),
            Mail::Look(look) => self.look(look),
            Mail::Tls(tls) => {
                for (listener, tls) in (0..).zip(tls.iter()) {
                    if let Some(tls) = tls {
                        self.net.set_tls(listener, tls);
                    }
                }
            }
            Mail::ShutDown => {
                self.net.stop_listening();
                self.shard.shut_down(now);
                self.deadline = Some(StdInstant::now() + SHUT_DOWN_MAX);
            }
        }
    }

    /// Does what the shard wants done.
    fn perform(&mut self) {
        self.retry_held();
        while let Some(output) = self.shard.poll_output() {
            match output {
                Output::Net(command) => self.command(command),
                Output::Bus { to, message } => {
                    let from = self.id;
                    self.mail(to, Mail::Bus { from, message });
                }
                Output::Store(request) => {
                    self.held.push_back(request);
                    self.retry_held();
                }
                Output::Auth { conn, request } => self.auth.ask(conn, request),
                Output::Event(event) => self.note(&event),
            }
        }
        self.net.flush();
        for (flag, address) in self.to_wake.iter_mut().zip(&self.shards) {
            if core::mem::take(flag) {
                address.wake();
            }
        }
    }

    fn command(&mut self, command: NetCommand) {
        let net = &mut self.net;
        match command {
            NetCommand::Send {
                conn,
                stream,
                mut data,
            } => {
                let bytes = net.send(conn, stream, &mut data);
                self.shard.recycle(data);
                self.sent(conn, bytes);
            }
            NetCommand::OpenStream {
                conn,
                bidirectional,
            } => {
                let stream = net.open_stream(conn, bidirectional);
                let opened = NetEvent::StreamOpened { conn, stream };
                self.shard.handle(self.clock.now(), Input::Net(opened));
            }
            NetCommand::SetPriority {
                conn,
                stream,
                priority,
            } => net.set_stream_priority(conn, stream, priority),
            NetCommand::IsolateStreams { conn, isolate } => net.isolate_streams(conn, isolate),
            NetCommand::RepeatPackets { conn, repeat } => net.repeat_packets(conn, repeat),
            NetCommand::ExpectMore { conn } => net.expect_more(conn),
            NetCommand::SendDatagram {
                conn,
                data,
                expires,
                fallback,
            } => {
                let bytes = match net.send_datagram(conn, data.clone(), expires) {
                    // Its queue has a bound of its own.
                    Ok(()) => data.len(),
                    Err(_) => {
                        let mut bytes = SendBuf::new();
                        bytes.put_bytes(&data);
                        net.send(conn, fallback, &mut bytes)
                    }
                };
                self.sent(conn, bytes);
            }
            NetCommand::FinishStream { conn, stream } => net.finish_stream(conn, stream),
            NetCommand::ResetStream { conn, stream, code } => {
                net.reset_stream(conn, stream, code);
                net.stop_stream(conn, stream, code);
            }
            NetCommand::Close {
                conn,
                code,
                promptly: true,
            } => net.close_promptly(conn, code),
            NetCommand::Close { conn, code, .. } => net.close(conn, code),
            NetCommand::SetIdleTimeout { conn, timeout } => net.set_idle_timeout(conn, timeout),
            NetCommand::PauseReading { conn, paused } => net.pause_reading(conn, paused),
        }
    }

    /// Tells the shard what left at once.
    fn sent(&mut self, conn: ConnId, bytes: usize) {
        if bytes > 0 {
            let sent = NetEvent::Sent { conn, bytes };
            self.shard.handle(self.clock.now(), Input::Net(sent));
        }
    }

    fn note(&mut self, event: &Event) {
        log(event);
        if let Event::Connected {
            conn, client_id, ..
        } = event
            && self.qlog.as_ref().is_some_and(Qlog::is_active)
        {
            let (conn, client_id) = (*conn, client_id.clone());
            if conn.shard() == self.id {
                self.net.name_log(conn, &client_id);
            } else {
                self.mail(conn.shard(), Mail::Look(Look::Name { conn, client_id }));
            }
        }
    }

    fn mail(&mut self, to: ShardId, mail: Mail) {
        let index = usize::from(to.0);
        if let (Some(address), Some(flag)) = (self.shards.get(index), self.to_wake.get_mut(index)) {
            address.put(mail);
            *flag = true;
        }
    }

    /// Gives the store what it had no room for, in order.
    fn retry_held(&mut self) {
        let Some(store) = &self.store else {
            self.held.clear();
            return;
        };
        while let Some(request) = self.held.pop_front() {
            match store.submit(request) {
                Ok(()) => {}
                Err(SubmitError::Busy(request)) => {
                    self.held.push_front(request);
                    return;
                }
                Err(error) => {
                    tracing::error!(%error, "the store is gone");
                    return;
                }
            }
        }
    }
}

fn log(event: &Event) {
    match event {
        Event::Connected {
            conn,
            client_id,
            resumed,
        } => tracing::debug!(%conn, %client_id, resumed, "connected"),
        Event::Disconnected {
            conn,
            client_id,
            cause,
        } => tracing::debug!(%conn, client_id = client_id.as_deref(), %cause, "disconnected"),
        Event::Migrated { conn, addr } => tracing::debug!(%conn, %addr, "address changed"),
        Event::StoreFailed(error) => {
            tracing::error!(%error, "the store refused a batch; its publishes were refused");
        }
        _ => {}
    }
}
