//! The owner's thread: gathers what is submitted into records, sends them one behind the
//! other, and answers when the server has acknowledged a record and all before it.

use core::mem;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use async_nats::{HeaderMap, Message, Subscriber};
use bytes::Bytes;
use dunlin_store::codec::encode_ops;
use dunlin_store::{Batch, Charge, OnDone, Pending, Request, StoreDone, StoreError};
use dunlin_store_redb::StoreMetrics;
use futures_util::StreamExt as _;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};

use crate::api::Api;
use crate::chain::{Chain, Place};
use crate::config::NatsConfig;
use crate::copy::{CopyThread, Work};
use crate::error::GaveUp;
use crate::holder::Lease;
use crate::limits::{
    ACK_WAIT, BATCH_BYTES_MAX, COMPACT_FACTOR, GROUP_BYTES, GROUP_OPS, IN_FLIGHT_BYTES_MAX,
    IN_FLIGHT_MAX, LIVE_GROUPS_MAX, QUEUE_MAX, RECORD_BYTES_MAX, WINDOW,
};
use crate::live::Chunk;
use crate::look::Look;
use crate::position::Position;
use crate::reading::{EXPECTED, PubAck, WRONG_PLACE};
use crate::record::{self, BEGIN, END, FIRST, Head, Kind, LAST};
use crate::recover::Owned;
use crate::role::LogMetrics;
use crate::server;
use crate::submit::{Command, Orders, check};

/// Far enough away to be no time at all.
const NEVER: Duration = Duration::from_secs(3600);

/// Who waits to hear of a batch.
struct Answer {
    token: u64,
    on_done: OnDone,
    /// It was refused before it came to the log.
    refused: Option<StoreError>,
    charge: Option<Charge>,
}

/// What becomes a record.
#[derive(Default)]
struct Group {
    body: Vec<u8>,
    batches: Vec<Batch>,
    answers: Vec<Answer>,
    /// Loads and flushes that came behind a batch of it.
    after: Vec<Pending>,
    ops: usize,
    since: Option<Instant>,
}

impl Group {
    const fn is_full(&self) -> bool {
        let waiting = self.answers.len() + self.after.len();
        self.body.len() >= GROUP_BYTES || self.ops >= GROUP_OPS || waiting >= QUEUE_MAX
    }
}

/// A body that is sent, as one record or several, and not acknowledged.
pub(crate) struct Flight {
    body: Bytes,
    kind: Kind,
    flags: u8,
    base: Place,
    batches: Vec<Batch>,
    answers: Vec<Answer>,
    after: Vec<Pending>,
    /// When it was sent first.
    begun: Instant,
    sent: Sent,
}

/// How a body was sent last.
#[derive(Clone, Copy)]
struct Sent {
    first_reply: u64,
    parts: u64,
    acked: u64,
    /// Of the last record.
    end: Place,
    term: u32,
    at: Instant,
}

impl Flight {
    pub(crate) const fn end(&self) -> Place {
        self.sent.end
    }
}

/// Where the next record goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    pub(crate) owner: u64,
    pub(crate) epoch: u64,
    pub(crate) term: u32,
    pub(crate) last: Place,
}

/// How long the log is, and what is written again to make it shorter.
struct Length {
    /// Bytes since it was made shorter.
    grown: u64,
    /// Bytes that were live then.
    live: u64,
    /// Bytes that are written again now.
    writing: u64,
    least: u64,
    chunks: Option<Receiver<Chunk>>,
}

/// Why a turn of the loop ended otherwise than well.
pub(crate) enum Stop {
    /// It is uncertain what became of records.
    Uncertain(String),
    GaveUp(GaveUp),
}

impl From<GaveUp> for Stop {
    fn from(cause: GaveUp) -> Self {
        Self::GaveUp(cause)
    }
}

/// A log and its owner.
pub(crate) struct Log {
    pub(crate) api: Api,
    pub(crate) subject: String,
    pub(crate) own: Own,
    /// What was read, or acknowledged and answered.
    pub(crate) tail: Chain,
    pub(crate) flights: VecDeque<Flight>,
    pub(crate) patience: Duration,
    /// Since when nothing was acknowledged although something is uncertain.
    pub(crate) uncertain: Option<Instant>,
    flying: usize,
    group: Group,
    inbox: String,
    replies: Subscriber,
    next_reply: u64,
    commands: Receiver<Command>,
    copy: CopyThread,
    length: Length,
    look: Look,
    asked: Option<oneshot::Receiver<String>>,
    metrics: Arc<StoreMetrics>,
    title: Title,
    closing: bool,
}

/// What says to others that this is the owner.
struct Title {
    lease: Lease,
    role: Arc<LogMetrics>,
}

impl Title {
    /// It is another's turn.
    fn give_back(&mut self) {
        self.role.set_owner(false);
        self.lease.release();
    }
}

impl Log {
    pub(crate) fn new(
        owned: Owned,
        config: &NatsConfig,
        (inbox, replies): (String, Subscriber),
        (orders, role): (Orders, Arc<LogMetrics>),
    ) -> Result<Self, crate::OpenError> {
        role.set_lease(owned.lease.held(), owned.lease.seen());
        role.set_owner(true);
        let chain = owned.chain;
        let last = Place {
            seq: chain.next.saturating_sub(1),
            ..chain.last
        };
        Ok(Self {
            api: owned.api,
            subject: owned.subject,
            own: Own {
                owner: owned.owner,
                epoch: chain.epoch,
                term: chain.term,
                last,
            },
            tail: chain,
            flights: VecDeque::new(),
            patience: config.patience,
            uncertain: None,
            flying: 0,
            group: Group::default(),
            inbox,
            replies,
            next_reply: 0,
            commands: orders.commands,
            copy: CopyThread::start(owned.copy)?,
            length: Length {
                grown: owned.bytes,
                live: 0,
                writing: 0,
                least: config.compact_bytes,
                chunks: None,
            },
            look: Look::new(),
            asked: owned.asked,
            metrics: orders.metrics,
            title: Title {
                lease: owned.lease,
                role,
            },
            closing: false,
        })
    }

    /// Serves until it is closed. After giving up, every request is answered with why.
    pub(crate) async fn run(mut self, gave_up: impl FnOnce(GaveUp)) {
        let cause = loop {
            match self.turn().await {
                Ok(true) => {}
                Ok(false) => return self.title.give_back(),
                Err(Stop::GaveUp(cause)) => break cause,
                Err(Stop::Uncertain(why)) => {
                    tracing::warn!(stream = self.api.stream, "the log: {why}; asking for it");
                    if let Err(cause) = self.settle().await {
                        break cause;
                    }
                }
            }
        };
        tracing::error!(
            stream = self.api.stream,
            "the partition is given up: {cause}"
        );
        let error = cause.to_store_error();
        self.metrics.note_given_up();
        gave_up(cause);
        self.fail_all(&error);
        self.title.give_back();
        while let Some(command) = self.commands.recv().await {
            match command {
                Command::Request(pending) => {
                    self.metrics.note_failed(1, 0);
                    pending.fail(error.clone());
                }
                // Without a receiver, nothing wants it.
                Command::Snapshot(to) => drop(to.send(Err(error.clone()))),
                Command::Close => return,
            }
        }
    }

    fn fail_all(&mut self, error: &StoreError) {
        let group = mem::take(&mut self.group);
        let flights = mem::take(&mut self.flights);
        let waiting = flights.into_iter().map(|f| (f.answers, f.after));
        for (answers, after) in waiting.chain([(group.answers, group.after)]) {
            for answer in answers {
                let refused = answer.refused.clone().or_else(|| Some(error.clone()));
                self.metrics.note_failed(1, 0);
                Answer { refused, ..answer }.tell();
            }
            for pending in after {
                pending.fail(error.clone());
            }
        }
    }

    /// One thing that happened; `false`: it is closed.
    async fn turn(&mut self) -> Result<bool, Stop> {
        if let Some(error) = self.copy.failed.error.get() {
            return Err(GaveUp::Copy(error.clone()).into());
        }
        if self.closing && self.flights.is_empty() && self.group.since.is_none() {
            return Ok(false);
        }
        let room = self.flights.len() < IN_FLIGHT_MAX && self.flying < IN_FLIGHT_BYTES_MAX;
        let held = self.is_held();
        let due = self.group.since.map(|since| since + WINDOW);
        let due = due.filter(|_| !held);
        if let Some(due) = due
            && room
            && (self.flights.is_empty() || self.group.is_full() || due <= Instant::now())
        {
            self.send_group().await?;
            return Ok(true);
        }
        let overdue = self.flights.front().map(|flight| flight.sent.at + ACK_WAIT);
        let window = due.filter(|_| room);
        let wake = [overdue, window].into_iter().flatten().min();
        let wake = wake.unwrap_or_else(|| Instant::now() + NEVER);
        let takes = !self.closing && !self.group.is_full();
        let idle = self.flights.is_empty() && self.group.since.is_none() && !self.closing;
        let looks = held || idle;
        let writes = room && self.group.since.is_none() && self.length.chunks.is_some();
        tokio::select! {
            biased;
            reply = self.replies.next() => self.take_reply(reply)?,
            () = self.copy.failed.happened.notified() => {}
            seen = self.look.answer(&self.api), if looks => {
                let now = Instant::now();
                self.look.judge(seen, &self.subject, self.patience, now)?;
            }
            command = self.commands.recv(), if takes => self.take(command),
            chunk = next_chunk(&mut self.length.chunks), if writes => {
                self.write_again(chunk).await?;
            }
            // The log says whether that is so; it is asked at once.
            () = self.title.lease.lost() => self.look.soon(),
            server = server::unsynced(&mut self.asked) => {
                return Err(GaveUp::Unsynced { server }.into());
            }
            () = sleep_until(wake) => {
                if overdue.is_some_and(|at| at <= Instant::now()) {
                    return Err(Stop::Uncertain("no acknowledgement in time".to_owned()));
                }
            }
        }
        Ok(true)
    }

    /// Whether batches without operations wait. Nothing of them is sent, so that nothing says
    /// that this is the owner, unless a look was answered a moment ago.
    fn is_held(&self) -> bool {
        let empty = self.group.since.is_some() && self.group.body.is_empty();
        empty && self.flights.is_empty() && self.look.is_open(Instant::now())
    }

    /// Takes what is submitted, as far as it fits into one group.
    fn take(&mut self, command: Option<Command>) {
        let mut next = command;
        loop {
            match next {
                Some(Command::Request(pending)) => self.take_request(*pending),
                Some(Command::Snapshot(to)) => self.copy.order(Work::Snapshot(to)),
                Some(Command::Close) | None => {
                    self.closing = true;
                    return;
                }
            }
            if self.group.is_full() {
                return;
            }
            match self.commands.try_recv() {
                Ok(command) => next = Some(command),
                Err(_) => return,
            }
        }
    }

    fn take_request(&mut self, mut pending: Pending) {
        let request = pending.request.take();
        let batch = match request {
            Some(Request::Write(batch)) => batch,
            other => {
                pending.request = other;
                return self.take_other(pending);
            }
        };
        let before = self.group.body.len();
        let mut refused = check(&batch).err();
        if refused.is_none() && !batch.ops.is_empty() {
            encode_ops(&batch.ops, &mut self.group.body);
            if self.group.body.len().saturating_sub(before) > BATCH_BYTES_MAX {
                self.group.body.truncate(before);
                refused = Some(StoreError::TooLarge("bytes of a batch"));
            }
        }
        self.group.answers.push(Answer {
            token: batch.token,
            on_done: pending.on_done.clone(),
            refused,
            charge: pending.charge.take(),
        });
        if self.group.body.len() > before {
            self.group.ops += batch.ops.len();
            self.group.batches.push(batch);
        }
        self.group.since.get_or_insert_with(Instant::now);
    }

    /// A load or a flush: behind the batches that came before it.
    fn take_other(&mut self, pending: Pending) {
        let waits = self.group.since.is_some();
        match self.flights.back_mut() {
            _ if waits => self.group.after.push(pending),
            Some(flight) => flight.after.push(pending),
            None => self.answer(pending),
        }
    }

    /// Everything before it is acknowledged.
    fn answer(&self, mut pending: Pending) {
        let Some(request) = pending.request.take() else {
            return;
        };
        let on_done = pending.on_done.clone();
        let token = request.token();
        if let Err(error) = request.check() {
            return on_done(StoreDone::Failed { token, error });
        }
        match request {
            Request::Load { seqs, .. } => self.copy.order(Work::Load {
                token,
                seqs,
                on_done,
            }),
            _ => on_done(StoreDone::Committed { token }),
        }
    }

    async fn send_group(&mut self) -> Result<(), Stop> {
        let group = mem::take(&mut self.group);
        if group.body.is_empty() {
            self.finish(group.answers, group.after);
            return Ok(());
        }
        let flight = Flight {
            body: group.body.into(),
            kind: Kind::Ops,
            flags: 0,
            base: Place::default(),
            batches: group.batches,
            answers: group.answers,
            after: group.after,
            begun: Instant::now(),
            sent: self.unsent(),
        };
        self.send(flight).await
    }

    /// Answers where nothing has to be written; behind what is on its way.
    fn finish(&mut self, mut answers: Vec<Answer>, mut after: Vec<Pending>) {
        if let Some(flight) = self.flights.back_mut() {
            flight.answers.append(&mut answers);
            flight.after.append(&mut after);
            return;
        }
        self.note_refused(&answers, 0);
        for answer in answers {
            answer.tell();
        }
        for pending in after {
            self.answer(pending);
        }
    }

    fn unsent(&self) -> Sent {
        Sent {
            first_reply: self.next_reply,
            parts: 0,
            acked: 0,
            end: Place::default(),
            term: self.own.term,
            at: Instant::now(),
        }
    }

    /// Sends a body in as many records as it takes. It counts as sent even if
    /// that fails.
    pub(crate) async fn send(&mut self, mut flight: Flight) -> Result<(), Stop> {
        flight.sent = self.unsent();
        self.flying += flight.body.len();
        let len = flight.body.len();
        let parts = len.div_ceil(RECORD_BYTES_MAX).max(1);
        let mut sent = Ok(());
        for part in 0..parts {
            let from = part * RECORD_BYTES_MAX;
            let to = (from + RECORD_BYTES_MAX).min(len);
            let mut flags = flight.flags;
            flags |= if part == 0 { FIRST } else { 0 };
            flags |= if part + 1 == parts { LAST } else { 0 };
            let head = Head {
                kind: flight.kind,
                flags,
                epoch: self.own.epoch,
                term: self.own.term,
                number: self.own.last.number + 1,
                before: self.own.last.hash,
                base: flight.base.number,
            };
            let body = flight.body.get(from..to).unwrap_or_default();
            let (bytes, hash) = record::encode(&head, body);
            let after = self.own.last.seq;
            self.length.grown += bytes.len() as u64;
            self.own.last = Place {
                seq: after + 1,
                number: head.number,
                hash,
            };
            flight.sent.parts += 1;
            if sent.is_ok() {
                sent = self.publish(after, bytes.into()).await;
            }
        }
        flight.sent.end = self.own.last;
        self.flights.push_back(flight);
        sent
    }

    async fn publish(&mut self, after: u64, payload: Bytes) -> Result<(), Stop> {
        let reply = format!("{}.{}", self.inbox, self.next_reply);
        self.next_reply += 1;
        let mut headers = HeaderMap::new();
        headers.insert(EXPECTED, after.to_string());
        let subject = self.subject.clone();
        let client = &self.api.client;
        let sent = client.publish_with_reply_and_headers(subject, reply, headers, payload);
        match timeout(ACK_WAIT, sent).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Stop::Uncertain(error.to_string())),
            Err(_) => Err(Stop::Uncertain("the connection takes nothing".to_owned())),
        }
    }

    /// The server says what became of a record.
    fn take_reply(&mut self, reply: Option<Message>) -> Result<(), Stop> {
        let uncertain = |why: &str| Stop::Uncertain(why.to_owned());
        let reply = reply.ok_or_else(|| uncertain("the connection ended"))?;
        let number = reply.subject.as_str().rsplit_once('.');
        let number = number.and_then(|(_, number)| number.parse::<u64>().ok());
        let sent = |flight: &Flight, number: u64| {
            (flight.sent.first_reply..flight.sent.first_reply + flight.sent.parts).contains(&number)
        };
        let found = number.and_then(|number| {
            let mut flights = self.flights.iter_mut();
            Some((number, flights.find(|flight| sent(flight, number))?))
        });
        // One that was asked for since.
        let Some((number, flight)) = found else {
            return Ok(());
        };
        if reply.status.is_some() {
            return Err(uncertain("no stream takes the record"));
        }
        let ack: PubAck = serde_json::from_slice(&reply.payload).unwrap_or_default();
        match ack.error {
            Some(error) if error.passes() || error.err_code == WRONG_PLACE => {
                return Err(Stop::Uncertain(error.description));
            }
            Some(error) => {
                return Err(Stop::GaveUp(GaveUp::Refused {
                    code: error.err_code,
                    text: error.description,
                }));
            }
            None => {}
        }
        let behind = flight.sent.first_reply + flight.sent.parts - 1 - number;
        if ack.seq != flight.sent.end.seq.saturating_sub(behind) {
            return Err(uncertain("a record is at another place than its own"));
        }
        flight.sent.acked += 1;
        while let Some(front) = self.flights.front()
            && front.sent.acked >= front.sent.parts
        {
            self.land();
        }
        Ok(())
    }

    /// The first body is acknowledged, and so is all before it.
    pub(crate) fn land(&mut self) {
        let Some(flight) = self.flights.pop_front() else {
            return;
        };
        self.flying = self.flying.saturating_sub(flight.body.len());
        self.uncertain = None;
        let (place, term) = (flight.sent.end, flight.sent.term);
        self.tail = Chain::after(place, self.own.epoch, term);
        self.look.not_now();
        self.note(&flight);
        for answer in flight.answers {
            answer.tell();
        }
        if !flight.batches.is_empty() {
            let epoch = self.own.epoch;
            let position = Position { place, epoch, term };
            let batches = flight.batches;
            self.copy.order(Work::Apply { batches, position });
        }
        for pending in flight.after {
            self.answer(pending);
        }
        if flight.flags & END != 0 {
            self.shorten(flight.base);
        }
        self.may_write_again();
    }

    /// Counts what is acknowledged; what is written again was counted.
    fn note(&self, flight: &Flight) {
        if flight.kind != Kind::Ops {
            return;
        }
        let batches = &flight.batches;
        let ops = || batches.iter().flat_map(|batch| &batch.ops);
        let bytes = batches.iter().map(Batch::bytes).sum();
        let took = flight.begun.elapsed();
        self.metrics.note(took, batches.len(), ops().count(), bytes);
        self.note_refused(&flight.answers, batches.len() as u64);
    }

    fn note_refused(&self, answers: &[Answer], written: u64) {
        let refused = answers.iter().filter(|answer| answer.refused.is_some());
        let refused = refused.count() as u64;
        if refused + written > 0 {
            self.metrics.note_failed(refused, written);
        }
    }

    /// Begins to write again what is live, where the log has grown enough.
    fn may_write_again(&mut self) {
        let enough = self.length.least.max(self.length.live * COMPACT_FACTOR);
        if self.length.chunks.is_some() || self.closing || self.length.grown < enough {
            return;
        }
        let (to, chunks) = channel(LIVE_GROUPS_MAX);
        self.length.chunks = Some(chunks);
        self.length.writing = 0;
        self.copy.order(Work::Live(to));
    }

    async fn write_again(&mut self, chunk: Option<Chunk>) -> Result<(), Stop> {
        let Some(chunk) = chunk else {
            // It ended early; the log stays as it is until it has grown as much again.
            self.length.chunks = None;
            self.length.grown = 0;
            return Ok(());
        };
        self.length.writing += chunk.body.len() as u64;
        let begin = if chunk.first { BEGIN } else { 0 };
        let end = if chunk.last { END } else { 0 };
        if chunk.last {
            self.length.chunks = None;
            self.length.live = self.length.writing;
            self.length.grown = self.length.writing;
        }
        let flight = Flight {
            body: chunk.body.into(),
            kind: Kind::Live,
            flags: begin | end,
            base: chunk.base,
            batches: Vec::new(),
            answers: Vec::new(),
            after: Vec::new(),
            begun: Instant::now(),
            sent: self.unsent(),
        };
        self.send(flight).await
    }

    /// What is live up to `base` is in the log again: deletes the log up to there.
    fn shorten(&self, base: Place) {
        let api = self.api.clone();
        tokio::spawn(async move {
            let purged = api.purge_before(base.seq + 1).await;
            if let Err(error) = purged {
                tracing::warn!(stream = api.stream, "the log is not made shorter: {error}");
            }
        });
    }

    /// Takes what is on its way, to send it again.
    pub(crate) fn take_flights(&mut self) -> VecDeque<Flight> {
        self.flying = 0;
        mem::take(&mut self.flights)
    }

    /// Puts back what could not be sent again.
    pub(crate) fn put_back(&mut self, flights: VecDeque<Flight>) {
        for mut flight in flights {
            // None of these replies comes.
            flight.sent = Sent {
                parts: 1,
                first_reply: u64::MAX - 1,
                ..self.unsent()
            };
            self.flying += flight.body.len();
            self.flights.push_back(flight);
        }
    }
}

impl Answer {
    /// Says what became of the batch, whose bytes wait no more.
    fn tell(self) {
        drop(self.charge);
        let token = self.token;
        (self.on_done)(match self.refused {
            None => StoreDone::Committed { token },
            Some(error) => StoreDone::Failed { token, error },
        });
    }
}

/// The next group of what is live; none comes where none is awaited.
async fn next_chunk(chunks: &mut Option<Receiver<Chunk>>) -> Option<Chunk> {
    match chunks {
        Some(chunks) => chunks.recv().await,
        None => core::future::pending().await,
    }
}
