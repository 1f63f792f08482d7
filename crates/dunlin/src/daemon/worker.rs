//! The loop of one shard: transport events, mail and deadlines in; bytes, mail
//! and store requests out. All decisions are the shard's.

use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;
use std::time::Instant as StdInstant;

use bytes::Bytes;
use dunlin_base::transport::{NetCommand, NetCommandKind, NetEvent, NetEventKind, ShownAddr};
use dunlin_base::{ConnId, ShardId, StreamId, Text};
use dunlin_broker::{BusMessage, Event, Holder, Input, Output, Shard};
use dunlin_net::{Clock, Net, Qlog};
use dunlin_store::{Request, StoreDone};
use dunlin_store_redb::SubmitError;

use super::asked::Asked;
use super::authenticator::AuthClient;
use super::far::Far;
use super::kept::Submits;
use super::mailbox::{Address, Addresses, BusBatch, Inbox, Mail, MovedConn, Outbox};
use super::memory::{Due, Memory, give_back_aside};
use super::query::Query;
use crate::auth::Proof;
use crate::metrics::Paths;

/// Time for clients to take their DISCONNECT and for the store to finish.
const SHUT_DOWN_MAX: Duration = Duration::from_secs(5);

/// Pieces of mail and messages of shards after which transports get a turn;
/// a batch is finished.
const MAIL_BATCH_MAX: usize = 4096;

/// What a long question counts there: each may take a good part of a millisecond, and no
/// more than four hold up a turn.
const QUESTION: usize = MAIL_BATCH_MAX / 4;

/// Pause while another shard, or the store, is behind.
const BACK_OFF: Duration = Duration::from_micros(200);

/// Longest wait of a shard that ends: looks whether everything is done.
const ENDING_TURN: Duration = Duration::from_millis(10);

/// Pause after a failure of the event loop.
const FAILED_PAUSE: Duration = Duration::from_millis(10);

/// One shard with its loop, which one thread has at a time.
pub(crate) struct Worker {
    pub(crate) id: ShardId,
    pub(crate) shard: Shard,
    pub(crate) net: Net,
    pub(crate) clock: Clock,
    pub(crate) inbox: Inbox,
    /// Addresses of all shards, this one included.
    pub(crate) shards: Addresses,
    pub(crate) store: Option<Submits>,
    pub(crate) auth: AuthClient,
    pub(crate) qlog: Option<Qlog>,
    /// Requests that the store had no room for, oldest first.
    pub(crate) held: VecDeque<Request>,
    /// Mail to each shard that this turn has brought forth.
    pub(crate) outboxes: Vec<Outbox>,
    pub(crate) deadline: Option<StdInstant>,
    /// Properties of QUIC paths, as sampled for the metrics.
    pub(crate) paths: Paths,
    pub(crate) memory: Memory,
    /// The ways to shards of other nodes.
    pub(super) far: Far,
    pub(super) asked: Asked,
    /// What the store said last of a batch, if it took none since.
    pub(super) refused: Option<Text>,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Worker");
        shown.field("id", &self.id).finish_non_exhaustive()
    }
}

impl Worker {
    /// One turn of the loop, which waits at most `bound` for something to do.
    /// Returns how long it waited.
    pub(crate) fn turn(&mut self, bound: Option<Duration>) -> Duration {
        let waited = if self.is_held_up() {
            self.back_off(bound)
        } else {
            self.poll_net(bound)
        };
        self.turn_without_net();
        waited
    }

    /// Which of the process's shards it is, from 0 on.
    pub(crate) fn place(&self) -> usize {
        self.shards.place(self.id).unwrap_or_default()
    }

    /// A turn that leaves the sockets alone.
    pub(crate) fn turn_without_net(&mut self) {
        while let Some((to, datagram)) = self.net.poll_foreign() {
            if self.shards.place(to).is_some() {
                self.mail(to, Mail::Datagram(datagram));
            } else if let Some(gone) = self.far.relay(self.id, to, datagram, self.clock.now()) {
                self.net.handle_foreign(gone);
            }
        }
        self.take_mail();
        let now = self.clock.now();
        let connections = self.net.connections().max(self.shard.connections());
        let due = self.memory.look(connections, now);
        if due == Due::Tables {
            self.shard.shrink();
        }
        if due != Due::Nothing {
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

    /// Whether it has mail.
    pub(crate) fn has_mail(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// Whether it was asked to end.
    pub(crate) const fn is_ending(&self) -> bool {
        self.deadline.is_some()
    }

    /// Whether it was asked to end and everything is done, or the time for it
    /// is over.
    pub(crate) fn is_over(&self) -> bool {
        self.deadline
            .is_some_and(|deadline| self.shard.is_drained() || StdInstant::now() >= deadline)
    }

    /// To be called before a wait together with other shards: how long it may
    /// last, and whether a turn has to follow in any case. From here on senders
    /// wake the shard, until [`Worker::wake_up`].
    pub(crate) fn prepare_wait(&mut self) -> (Option<Duration>, bool) {
        if self.is_held_up() {
            let is_empty = self.inbox.is_empty();
            return (Some(if is_empty { BACK_OFF } else { Duration::ZERO }), true);
        }
        let timeout = self.timeout(None);
        let timeout = self.net.prepare_wait(timeout).unwrap_or_else(failed);
        let timeout = self.inbox.prepare_sleep(timeout);
        (timeout, timeout == Some(Duration::ZERO))
    }

    /// How long of that wait is to be spent without the sockets, so that more comes.
    pub(crate) fn gather_time(&mut self, timeout: Option<Duration>) -> Duration {
        self.net.gather_time(timeout)
    }

    /// To be called after that wait.
    pub(crate) fn wake_up(&self) {
        self.inbox.wake_up();
    }

    /// Whether reading more would only make a queue longer.
    pub(crate) fn is_held_up(&self) -> bool {
        !self.held.is_empty() || self.shards.iter().any(Address::is_full) || self.far.is_held_up()
    }

    fn take_mail(&mut self) {
        let mut handled = 0;
        while handled < MAIL_BATCH_MAX
            && let Some(mail) = self.inbox.take()
        {
            handled += match mail {
                Mail::Bus(batch) => self.take_batch(batch),
                Mail::Query(query) => {
                    let counts = if query.is_long() { QUESTION } else { 1 };
                    self.query(query);
                    counts
                }
                mail => {
                    self.open(mail);
                    1
                }
            };
        }
    }

    /// Gives the messages of another shard to this one; returns how many.
    fn take_batch(&mut self, mut batch: BusBatch) -> usize {
        let (now, from, count) = (self.clock.now(), batch.from, batch.messages.len());
        for message in batch.messages.drain(..) {
            self.shard.handle(now, Input::Bus { from, message });
        }
        self.inbox.recycle(core::mem::take(&mut batch.messages));
        // From here on another node may send more.
        drop(batch);
        count
    }

    /// Waits for a queue to become shorter.
    fn back_off(&self, bound: Option<Duration>) -> Duration {
        if bound == Some(Duration::ZERO) || self.has_mail() {
            return Duration::ZERO;
        }
        std::thread::sleep(BACK_OFF);
        BACK_OFF
    }

    /// Time until the shard has something to do by itself, at most `bound`.
    fn timeout(&self, bound: Option<Duration>) -> Option<Duration> {
        let now = self.clock.now();
        let next = self.shard.poll_timeout().into_iter();
        let next = next.chain(self.memory.look_at()).map(|at| at - now);
        let ending = self.is_ending().then_some(ENDING_TURN);
        next.chain(ending).chain(bound).min()
    }

    fn poll_net(&mut self, bound: Option<Duration>) -> Duration {
        let timeout = self.timeout(bound);
        let (shard, inbox, clock) = (&mut self.shard, &self.inbox, self.clock);
        let timeout = inbox.prepare_sleep(timeout);
        let mut asleep = timeout != Some(Duration::ZERO);
        let polled = self.net.poll(timeout, &mut |event| {
            // Mail is taken after these events: it needs no wake-up.
            if core::mem::take(&mut asleep) {
                inbox.wake_up();
            }
            shard.handle(clock.now(), Input::Net(event));
        });
        if asleep {
            inbox.wake_up();
        }
        polled.unwrap_or_else(|error| {
            let pause = failed(error).unwrap_or_default();
            std::thread::sleep(pause);
            pause
        })
    }

    fn open(&mut self, mail: Mail) {
        let now = self.clock.now();
        match mail {
            Mail::Bus(batch) => _ = self.take_batch(batch),
            Mail::Conn(moved) => self.take_over(*moved),
            Mail::Adopt(adopted) => {
                if let Err(error) = self.net.adopt(*adopted) {
                    tracing::warn!(%error, "a bridge cannot connect to its own broker");
                }
            }
            Mail::Datagram(datagram) => self.net.handle_foreign(datagram),
            #[cfg(feature = "cluster")]
            Mail::Relayed { from, datagram } => self.net.handle_relayed(from, datagram),
            #[cfg(feature = "cluster")]
            Mail::Answer(answer) => self.net.send_answer(*answer),
            Mail::Store(done) => {
                if matches!(done, StoreDone::Committed { .. }) {
                    self.refused = None;
                }
                self.shard.handle(now, Input::Store(done));
            }
            Mail::Auth { conn, answer } => {
                self.shard.handle(now, Input::Auth { conn, answer });
            }
            Mail::Struck { strike, kept } => self.net.handle_struck(strike, kept),
            Mail::Access(access) => self.shard.set_access(now, access),
            Mail::Limits(limits) => self.shard.set_limits(&limits),
            Mail::Bridges(sessions) => self.shard.set_bridges(sessions.to_vec()),
            #[cfg(feature = "cluster")]
            Mail::Members(change) => {
                for change in self.far.change(*change) {
                    self.shard.handle(now, Input::Members(change));
                }
            }
            Mail::Query(query) => self.query(query),
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
    pub(super) fn perform(&mut self) {
        self.retry_held();
        while let Some(output) = self.shard.poll_output() {
            match output {
                Output::Net(command) => self.command(command),
                Output::Bus { to, message } => {
                    self.send(to, message);
                }
                Output::Move { conn, to, unread } => self.move_conn(conn, to, unread),
                Output::Store(request) => {
                    self.held.push_back(request);
                    self.retry_held();
                }
                Output::Auth { conn, request } => self.auth.ask(conn, request),
                Output::Control { number, reply } => self.asked.answer(number, reply),
                Output::Proof {
                    user,
                    address,
                    right,
                } => self.auth.note(Proof {
                    user,
                    address,
                    right,
                }),
                Output::Event(event) => self.note(&event),
                Output::Ready => self.far.serve(),
                // The node has heard of it.
                Output::HomeLost(_) => {}
            }
        }
        self.net.flush();
        while let Some((to, answer)) = self.net.poll_answer() {
            self.far.answer(self.id, to, &answer, self.clock.now());
        }
        for (outbox, address) in self.outboxes.iter_mut().zip(&self.shards) {
            address.deliver(outbox);
        }
        self.far.flush();
    }

    /// Something is for another shard.
    fn send(&mut self, to: ShardId, message: BusMessage) {
        let from = self.id;
        match self
            .shards
            .place(to)
            .and_then(|at| self.outboxes.get_mut(at))
        {
            Some(outbox) => outbox.push_message(from, message),
            None => self.far.push(from, to, &message, self.clock.now()),
        }
    }

    /// Has the transport do something, and gives the shard what came of it at
    /// once.
    fn command(&mut self, mut command: NetCommand) {
        let event = self.net.command(&mut command);
        if let NetCommandKind::Send { data, .. } = command.kind {
            self.shard.recycle(data);
        }
        if let Some(event) = event {
            self.shard.handle(self.clock.now(), Input::Net(event));
        }
    }

    /// Sends a connection to the shard where its session lives.
    fn move_conn(&mut self, conn: ConnId, to: ShardId, unread: Bytes) {
        // A connection that ended meanwhile was reported as closed.
        if let Some(conn) = self.net.detach(conn) {
            self.mail(to, Mail::Conn(Box::new(MovedConn { conn, unread })));
        }
    }

    /// Takes a connection whose session lives here, as if it was accepted here.
    fn take_over(&mut self, moved: MovedConn) {
        let (now, peer) = (self.clock.now(), moved.conn.peer().clone());
        match self.net.attach(moved.conn) {
            Ok(conn) => {
                // The shard that it left may have paused it.
                self.net.conn(conn).pause_reading(false);
                let opened = NetEvent::new(conn, NetEventKind::Opened { peer });
                self.shard.handle(now, Input::Net(opened));
                let (stream, data) = (StreamId::CONTROL, &moved.unread[..]);
                if !data.is_empty() {
                    let bytes = NetEvent::new(conn, NetEventKind::Bytes { stream, data });
                    self.shard.handle(now, Input::Net(bytes));
                }
            }
            Err(error) => tracing::warn!(%error, "a connection could not change its shard"),
        }
    }

    fn note(&mut self, event: &Event) {
        match event {
            Event::StoreFailed(error) => self.log_refused(error),
            event => log(event),
        }
        if let Event::Connected {
            conn, client_id, ..
        } = event
            && self.qlog.as_ref().is_some_and(Qlog::is_active)
        {
            let (conn, client_id) = (*conn, client_id.clone());
            if conn.shard() == self.id {
                self.net.conn(conn).name_log(&client_id);
            } else if self.shards.place(conn.shard()).is_some() {
                self.mail(conn.shard(), Mail::Query(Query::Name { conn, client_id }));
            }
        }
    }

    /// The store refused a batch: says so once, until it takes one again.
    fn log_refused(&mut self, error: &Text) {
        if self.refused.as_ref() != Some(error) {
            tracing::error!(%error, "the store refused a batch; its publishes were refused");
            self.refused = Some(error.clone());
        }
    }

    fn mail(&mut self, to: ShardId, mail: Mail) {
        if let Some(outbox) = self.outbox(to) {
            outbox.push(mail);
        }
    }

    fn outbox(&mut self, to: ShardId) -> Option<&mut Outbox> {
        let place = self.shards.place(to);
        let outbox = place.and_then(|place| self.outboxes.get_mut(place));
        if outbox.is_none() {
            tracing::error!(shard = to.0, "mail for a shard that does not exist");
        }
        outbox
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

/// The pause after a failure of the event loop.
fn failed(error: std::io::Error) -> Option<Duration> {
    tracing::error!(%error, "the event loop failed");
    Some(FAILED_PAUSE)
}

/// A user or an address has all the memory that it may have.
fn log_full(holder: &Holder) {
    match holder {
        Holder::User(user) => tracing::warn!(
            ?user,
            "this user has limits.memory_per_user: more is refused"
        ),
        Holder::Address(address) => tracing::warn!(
            %address,
            "this address has limits.memory_per_address: more is refused"
        ),
    }
}

/// An operator ended a connection.
fn log_ended(event: &Event) {
    if let Event::Ended {
        conn,
        client_id,
        why,
    } = event
    {
        let (client_id, why) = (client_id.as_str(), why.as_str());
        tracing::debug!(%conn, client_id, why, "ended by an operator");
    }
}

fn log(event: &Event) {
    match event {
        Event::Connected {
            conn,
            client_id,
            resumed,
        } => tracing::debug!(%conn, client_id = client_id.as_str(), resumed, "connected"),
        Event::Disconnected {
            conn,
            client_id,
            cause,
        } => {
            let (client_id, cause) = (client_id.as_deref(), cause.as_str());
            tracing::debug!(%conn, client_id, cause, "disconnected");
        }
        Event::Ended { .. } => log_ended(event),
        Event::Access(event) => {
            let (user, topic) = (event.user.as_deref(), event.topic.as_deref());
            tracing::info!(
                conn = %event.conn,
                addr = %ShownAddr(event.peer.addr),
                transport = event.peer.transport.name(),
                listener = event.peer.listener,
                client_id = event.client_id.as_str(),
                user,
                topic,
                cause = event.cause,
                "{}",
                event.kind.name()
            );
        }
        Event::LeftOut { kind, lines } => {
            tracing::info!(
                kind = kind.name(),
                lines,
                "lines left out, there were too many"
            );
        }
        Event::Migrated { conn, addr } => tracing::debug!(%conn, %addr, "address changed"),
        Event::Overlapping {
            conn,
            client_id,
            refused,
        } => tracing::warn!(
            %conn,
            ?client_id,
            refused,
            "subscriptions refused: one message could match too many of this client"
        ),
        Event::MemoryFull(part) => tracing::warn!(
            part = part.name(),
            "this part of limits.memory is used up: more is refused"
        ),
        Event::HolderFull(holder) => log_full(holder),
        Event::QueueFull { client_id } => tracing::warn!(
            ?client_id,
            "the queue of this client is full: limits.queue_full says what follows"
        ),
        Event::PostsUnreadable(count) => tracing::error!(
            count,
            "messages for homes with other stores cannot be read: they stay in the store"
        ),
        Event::InternalError(missing) => tracing::error!(
            missing,
            "table entries are missing although they cannot be: a bug"
        ),
        _ => {}
    }
}
