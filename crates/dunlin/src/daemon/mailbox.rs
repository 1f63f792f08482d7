//! The mailbox of a shard: what other shards, the store, the authenticator and
//! the metrics send to it.
//!
//! A shard gathers what it sends during one turn of its loop in an [`Outbox`]
//! per destination and hands it over under one lock. The destination takes
//! everything that waits under one lock. Buffers go back to the senders.
//!
//! A destination is woken only if it sleeps:
//!
//! - the destination sets `sleeps`, then looks for mail under the lock, then
//!   polls if it found none;
//! - a sender puts mail in under the lock, then reads `sleeps`, then wakes.
//!
//! The lock orders the two. If the sender has it first, the destination finds
//! the mail. If the destination has it first, its store of `sleeps` happens
//! before the sender's load, so that the sender wakes it.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use dunlin_base::{ConnId, ShardId};
use dunlin_broker::access::Access;
use dunlin_broker::auth::AuthAnswer;
use dunlin_broker::{BridgeSession, BusMessage, RunningLimits, home_shard};
#[cfg(feature = "cluster")]
use dunlin_net::Answer;
use dunlin_net::{Adopted, DetachedConn, ForeignDatagram, ServerTls, StrikeId, Waker};
use dunlin_store::StoreDone;

#[cfg(feature = "cluster")]
use super::cluster::far::{Change, Receipt};
use super::query::Query;

/// Bytes in a shard's inbox above which other shards stop reading from their
/// clients until it has caught up.
pub(crate) const INBOX_BYTES_MAX: usize = 32 << 20;

/// What one message in an inbox costs besides its payload.
const MAIL_BYTES: usize = 128;

/// Empty buffers that a mailbox keeps for its senders.
const SPARE_BATCHES_MAX: usize = 4;

/// Messages for which an empty buffer that is kept has room at most.
const SPARE_MESSAGES_MAX: usize = 1024;

/// Something for a shard.
#[derive(Debug)]
pub(crate) enum Mail {
    /// From another shard.
    Bus(BusBatch),
    /// A connection over TCP that moves to this shard.
    Conn(Box<MovedConn>),
    /// A connection from within this process.
    Adopt(Box<Adopted>),
    /// A QUIC datagram that arrived at the wrong shard's socket.
    Datagram(ForeignDatagram),
    /// A QUIC datagram that came to another node, which sends the answers.
    #[cfg(feature = "cluster")]
    Relayed {
        from: ShardId,
        datagram: ForeignDatagram,
    },
    /// What another node has for a client that sent to here.
    #[cfg(feature = "cluster")]
    Answer(Box<Answer>),
    /// From the store.
    Store(StoreDone),
    /// From the authenticator.
    Auth { conn: ConnId, answer: AuthAnswer },
    /// The use of a session ticket has been stored, or cannot be.
    Struck { strike: StrikeId, kept: bool },
    /// New rules about users and topics.
    Access(Access),
    /// A question about the shard, or a request from outside of it.
    Query(Query),
    /// New certificates, by listener.
    Tls(Arc<[Option<Arc<ServerTls>>]>),
    /// Other limits.
    Limits(Arc<RunningLimits>),
    /// Shards of other nodes come or go.
    #[cfg(feature = "cluster")]
    Members(Box<Change>),
    /// The sessions of bridges.
    Bridges(Arc<[BridgeSession]>),
    /// Disconnect the clients and end.
    ShutDown,
}

impl Mail {
    fn cost(&self) -> usize {
        match self {
            Self::Bus(batch) => batch.cost,
            Self::Datagram(datagram) => MAIL_BYTES + datagram.len(),
            #[cfg(feature = "cluster")]
            Self::Relayed { datagram, .. } => MAIL_BYTES + datagram.len(),
            #[cfg(feature = "cluster")]
            Self::Answer(answer) => MAIL_BYTES + answer.len(),
            Self::Conn(moved) => MAIL_BYTES + moved.unread.len() + moved.conn.unsent(),
            _ => MAIL_BYTES,
        }
    }
}

/// A connection on its way to another shard.
#[derive(Debug)]
pub(crate) struct MovedConn {
    pub(crate) conn: DetachedConn,
    /// Bytes that the shard it leaves has read and not used.
    pub(crate) unread: Bytes,
}

/// Messages of one shard, in the order in which it sent them.
#[derive(Debug)]
pub(crate) struct BusBatch {
    pub(crate) from: ShardId,
    pub(crate) messages: Vec<BusMessage>,
    cost: usize,
    /// Of another node, which may send more when this is dropped.
    #[cfg(feature = "cluster")]
    #[expect(dead_code, reason = "it counts until it is dropped")]
    receipt: Option<Receipt>,
}

impl BusBatch {
    fn new(from: ShardId, messages: Vec<BusMessage>) -> Self {
        Self {
            from,
            messages,
            cost: 0,
            #[cfg(feature = "cluster")]
            receipt: None,
        }
    }

    /// Messages of a shard of another node.
    #[cfg(feature = "cluster")]
    pub(crate) fn received(from: ShardId, receipt: Receipt) -> Self {
        Self {
            receipt: Some(receipt),
            ..Self::new(from, Vec::new())
        }
    }

    /// Adds a message.
    #[cfg(feature = "cluster")]
    pub(crate) fn push(&mut self, message: BusMessage) {
        self.cost += cost(&message);
        self.messages.push(message);
    }
}

fn cost(message: &BusMessage) -> usize {
    let payload = match message {
        BusMessage::Handover { data, .. } => data.len(),
        BusMessage::Net(event) => event.kind.payload_len(),
        BusMessage::Command(command) => command.kind.payload_len(),
        BusMessage::Messages(messages) => messages.len(),
        BusMessage::Received(tokens) => 8 * tokens.len(),
        BusMessage::Forward { forward, .. } => forward.message.cost(),
        BusMessage::Retained { message } => message.cost(),
        BusMessage::Posts { posts, .. } => {
            let messages = posts.iter().map(|post| &post.message);
            messages.map(|message| message.cost()).sum()
        }
        _ => 0,
    };
    MAIL_BYTES + payload
}

/// What a shard sends to another during one turn of its loop.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    mail: VecDeque<Mail>,
    cost: usize,
    /// Empty buffers for batches.
    spare: Vec<Vec<BusMessage>>,
}

impl Outbox {
    /// Adds one piece of mail.
    pub(crate) fn push(&mut self, mail: Mail) {
        self.cost += mail.cost();
        self.mail.push_back(mail);
    }

    /// Adds a message of a shard to the batch at the end, or begins one.
    pub(crate) fn push_message(&mut self, from: ShardId, message: BusMessage) {
        let cost = cost(&message);
        self.cost += cost;
        if let Some(Mail::Bus(batch)) = self.mail.back_mut() {
            batch.messages.push(message);
            batch.cost += cost;
            return;
        }
        let mut batch = BusBatch::new(from, self.spare.pop().unwrap_or_default());
        batch.messages.push(message);
        batch.cost = cost;
        self.mail.push_back(Mail::Bus(batch));
    }
}

/// What senders and the shard share.
#[derive(Debug)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// Cost of the mail that has not been taken.
    cost: AtomicUsize,
    /// The shard polls, or is about to, and must be woken.
    sleeps: AtomicBool,
    waker: Waker,
}

#[derive(Debug, Default)]
struct Waiting {
    mail: VecDeque<Mail>,
    spare: Vec<Vec<BusMessage>>,
    /// The shard has ended: mail to it is dropped.
    closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be called after mail was put in.
    fn wake_if_asleep(&self) {
        // The load spares senders the write to a line that all of them share.
        if self.sleeps.load(Ordering::Relaxed) && self.sleeps.swap(false, Ordering::Relaxed) {
            self.waker.wake();
        }
    }
}

/// The way into a shard's inbox.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    shared: Arc<Shared>,
}

impl Address {
    /// Puts one piece of mail in.
    pub(crate) fn send(&self, mail: Mail) {
        let mut waiting = self.shared.lock();
        if waiting.closed {
            return;
        }
        self.shared.cost.fetch_add(mail.cost(), Ordering::Relaxed);
        waiting.mail.push_back(mail);
        drop(waiting);
        self.shared.wake_if_asleep();
    }

    /// Puts in everything that was gathered, and takes empty buffers along.
    pub(crate) fn deliver(&self, outbox: &mut Outbox) {
        if outbox.mail.is_empty() {
            return;
        }
        let cost = core::mem::take(&mut outbox.cost);
        let mut waiting = self.shared.lock();
        if waiting.closed {
            outbox.mail.clear();
            return;
        }
        self.shared.cost.fetch_add(cost, Ordering::Relaxed);
        if waiting.mail.is_empty() {
            core::mem::swap(&mut waiting.mail, &mut outbox.mail);
        } else {
            waiting.mail.append(&mut outbox.mail);
        }
        if outbox.spare.is_empty() {
            outbox.spare.extend(waiting.spare.pop());
        }
        drop(waiting);
        self.shared.wake_if_asleep();
    }

    /// Cost of the mail that waits.
    pub(crate) fn waiting(&self) -> usize {
        self.shared.cost.load(Ordering::Relaxed)
    }

    /// Whether the shard is behind.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting() > INBOX_BYTES_MAX
    }
}

/// The ways to all shards of this process, which have the numbers from `first` on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Addresses {
    first: ShardId,
    all: Arc<[Address]>,
}

impl Addresses {
    pub(crate) fn new(first: ShardId, all: Vec<Address>) -> Self {
        let all = all.into();
        Self { first, all }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Their numbers.
    pub(crate) fn ids(&self) -> impl Iterator<Item = ShardId> + use<> {
        let first = self.first.0;
        let count = u16::try_from(self.all.len()).unwrap_or(u16::MAX);
        (0..count).map(move |at| ShardId(first.wrapping_add(at)))
    }

    /// The number of the first one.
    pub(crate) const fn first(&self) -> ShardId {
        self.first
    }

    /// Which of them owns what is durable under a name.
    pub(crate) fn home(&self, name: &str) -> ShardId {
        let count = u16::try_from(self.all.len()).unwrap_or(u16::MAX);
        ShardId(self.first.0.wrapping_add(home_shard(name, count)))
    }

    /// Which of them a shard is, from 0 on.
    pub(crate) fn place(&self, shard: ShardId) -> Option<usize> {
        let place = shard.0.checked_sub(self.first.0).map(usize::from);
        place.filter(|place| *place < self.all.len())
    }

    /// The way to a shard.
    pub(crate) fn get(&self, shard: ShardId) -> Option<&Address> {
        self.all.get(self.place(shard)?)
    }

    /// The way to each.
    pub(crate) fn iter(&self) -> core::slice::Iter<'_, Address> {
        self.all.iter()
    }
}

impl<'a> IntoIterator for &'a Addresses {
    type Item = &'a Address;
    type IntoIter = core::slice::Iter<'a, Address>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// A shard's inbox.
#[derive(Debug)]
pub(crate) struct Inbox {
    shared: Arc<Shared>,
    /// Taken out of the shared queue, not yet handled.
    mail: VecDeque<Mail>,
    /// Empty buffers on their way back.
    spare: Vec<Vec<BusMessage>>,
}

impl Inbox {
    /// An inbox and its address.
    pub(crate) fn new(waker: Waker) -> (Self, Address) {
        let shared = Arc::new(Shared {
            waiting: Mutex::default(),
            cost: AtomicUsize::new(0),
            sleeps: AtomicBool::new(false),
            waker,
        });
        let inbox = Self {
            shared: Arc::clone(&shared),
            mail: VecDeque::new(),
            spare: Vec::new(),
        };
        (inbox, Address { shared })
    }

    /// The next piece of mail.
    pub(crate) fn take(&mut self) -> Option<Mail> {
        if self.mail.is_empty() {
            // Mail that is put in at this moment is found before the next poll.
            if self.is_empty() {
                return None;
            }
            let mut waiting = self.shared.lock();
            core::mem::swap(&mut waiting.mail, &mut self.mail);
            let room = SPARE_BATCHES_MAX - waiting.spare.len().min(SPARE_BATCHES_MAX);
            let kept = self.spare.len().saturating_sub(room);
            waiting.spare.extend(self.spare.drain(kept..));
        }
        let mail = self.mail.pop_front()?;
        self.shared.cost.fetch_sub(mail.cost(), Ordering::Relaxed);
        Some(mail)
    }

    /// Whether no mail waits; mail that is put in at this moment may be missed.
    pub(crate) fn is_empty(&self) -> bool {
        self.shared.cost.load(Ordering::Relaxed) == 0
    }

    /// Gives the buffer of a batch back to the senders.
    pub(crate) fn recycle(&mut self, mut messages: Vec<BusMessage>) {
        if self.spare.len() < SPARE_BATCHES_MAX && messages.capacity() <= SPARE_MESSAGES_MAX {
            messages.clear();
            self.spare.push(messages);
        }
    }

    /// To be called before a poll: the time for which it may sleep. From here
    /// on senders wake the shard, until [`Inbox::wake_up`].
    pub(crate) fn prepare_sleep(&self, timeout: Option<Duration>) -> Option<Duration> {
        if !self.is_empty() || timeout == Some(Duration::ZERO) {
            return Some(Duration::ZERO);
        }
        self.shared.sleeps.store(true, Ordering::Relaxed);
        if self.shared.lock().mail.is_empty() {
            return timeout;
        }
        self.wake_up();
        Some(Duration::ZERO)
    }

    /// The shard is awake and takes its mail before it sleeps again.
    pub(crate) fn wake_up(&self) {
        self.shared.sleeps.store(false, Ordering::Relaxed);
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        let mut waiting = self.shared.lock();
        waiting.closed = true;
        waiting.mail.clear();
        self.shared.cost.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use core::cell::Cell;
    use core::sync::atomic::AtomicU64;
    use std::thread;
    use std::time::Instant;

    use dunlin_net::{Clock, NET_SECRET_BYTES, Net, NetConfig, NetKeys};

    use super::*;

    /// No poll of these tests may last as long.
    const TIMEOUT: Duration = Duration::from_secs(20);

    pub(crate) fn event_loop() -> Net {
        let keys = NetKeys::derived(&[7; NET_SECRET_BYTES]);
        Net::new(NetConfig::new(ShardId(0), 1, Clock::new(), keys)).expect("a loop")
    }

    fn noted(token: u64) -> BusMessage {
        BusMessage::InterestNoted { token }
    }

    fn tokens(batch: &BusBatch) -> impl Iterator<Item = u64> + '_ {
        batch.messages.iter().map(|message| match message {
            BusMessage::InterestNoted { token } => *token,
            other => panic!("not a number: {other:?}"),
        })
    }

    /// The turns of a shard: receives batches until `is_over`. Returns how
    /// often it slept.
    fn receive(
        net: &mut Net,
        inbox: &mut Inbox,
        mut received: impl FnMut(&BusBatch),
        is_over: impl Fn() -> bool,
    ) -> u32 {
        let mut sleeps = 0;
        while !is_over() {
            let timeout = inbox.prepare_sleep(Some(TIMEOUT));
            let before = Instant::now();
            net.poll(timeout, &mut |_| {}).expect("polled");
            inbox.wake_up();
            assert!(before.elapsed() < TIMEOUT, "a wake-up was lost");
            sleeps += u32::from(timeout == Some(TIMEOUT));
            while let Some(mail) = inbox.take() {
                let Mail::Bus(batch) = mail else {
                    panic!("not a batch: {mail:?}");
                };
                received(&batch);
                inbox.recycle(batch.messages);
            }
        }
        sleeps
    }

    /// The sender waits for each batch to be received, so that no later batch
    /// makes up for a wake-up that was lost. Its pauses vary, so that batches
    /// come at every point of the shard's way into its sleep.
    #[test]
    fn no_wake_up_is_lost() {
        const ROUNDS: u64 = 30_000;
        let mut net = event_loop();
        let (mut inbox, address) = Inbox::new(net.waker());
        let seen = Arc::new(AtomicU64::new(0));
        let sender = {
            let seen = Arc::clone(&seen);
            thread::spawn(move || {
                let mut outbox = Outbox::default();
                for round in 1..=ROUNDS {
                    outbox.push_message(ShardId(1), noted(round));
                    address.deliver(&mut outbox);
                    let (mut spins, pause) = (0_u32, round * 13 % 256);
                    while seen.load(Ordering::Acquire) < round {
                        spins += 1;
                        if spins.is_multiple_of(1000) {
                            thread::yield_now();
                        }
                    }
                    for step in 0..pause {
                        core::hint::black_box(step);
                    }
                }
            })
        };
        let received = |batch: &BusBatch| {
            for token in tokens(batch) {
                seen.store(token, Ordering::Release);
            }
        };
        let is_over = || seen.load(Ordering::Relaxed) == ROUNDS;
        let sleeps = receive(&mut net, &mut inbox, received, is_over);
        sender.join().expect("sender");
        assert!(sleeps > 0, "the shard never slept");
    }

    #[test]
    fn batches_of_several_senders_arrive_whole_and_in_order() {
        const SENDERS: u16 = 3;
        const ROUNDS: u64 = 10_000;
        const PER_ROUND: u64 = 3;
        let mut net = event_loop();
        let (mut inbox, address) = Inbox::new(net.waker());
        let senders = (0..SENDERS).map(|from| {
            let address = address.clone();
            thread::spawn(move || {
                let mut outbox = Outbox::default();
                for token in 0..ROUNDS * PER_ROUND {
                    outbox.push_message(ShardId(from), noted(token));
                    if token % PER_ROUND == PER_ROUND - 1 {
                        address.deliver(&mut outbox);
                    }
                }
            })
        });
        let senders: Vec<_> = senders.collect();
        let (mut next, total) = ([0; SENDERS as usize], Cell::new(0));
        let received = |batch: &BusBatch| {
            let next = &mut next[usize::from(batch.from.0)];
            assert_eq!(batch.messages.len() as u64, PER_ROUND);
            for token in tokens(batch) {
                assert_eq!(token, *next);
                *next += 1;
                total.set(total.get() + 1);
            }
        };
        let is_over = || total.get() == u64::from(SENDERS) * ROUNDS * PER_ROUND;
        receive(&mut net, &mut inbox, received, is_over);
        senders
            .into_iter()
            .for_each(|sender| sender.join().expect("sender"));
        assert!(inbox.take().is_none());
        assert_eq!(address.waiting(), 0);
    }

    #[test]
    fn messages_of_a_turn_are_one_batch_and_order_is_kept() {
        let net = event_loop();
        let (mut inbox, address) = Inbox::new(net.waker());
        let mut outbox = Outbox::default();
        for token in 0..3 {
            outbox.push_message(ShardId(1), noted(token));
        }
        outbox.push(Mail::ShutDown);
        outbox.push_message(ShardId(1), noted(3));
        address.deliver(&mut outbox);
        assert_eq!(address.waiting(), 5 * MAIL_BYTES);
        let sizes: Vec<_> = core::iter::from_fn(|| inbox.take())
            .map(|mail| match mail {
                Mail::Bus(batch) => batch.messages.len(),
                _ => 0,
            })
            .collect();
        assert_eq!(sizes, [3, 0, 1]);
        assert_eq!((address.waiting(), outbox.cost), (0, 0));
    }

    #[test]
    fn a_full_inbox_is_seen_by_senders_until_it_is_taken() {
        let net = event_loop();
        let (mut inbox, address) = Inbox::new(net.waker());
        let mut outbox = Outbox::default();
        for token in 0..=(INBOX_BYTES_MAX / MAIL_BYTES) as u64 {
            outbox.push_message(ShardId(1), noted(token));
        }
        address.deliver(&mut outbox);
        assert!(address.is_full());
        assert!(inbox.take().is_some());
        assert!(!address.is_full());
    }

    #[test]
    fn buffers_come_back_and_are_bounded() {
        let net = event_loop();
        let (mut inbox, address) = Inbox::new(net.waker());
        let mut outbox = Outbox::default();
        for round in 0..20 {
            outbox.push_message(ShardId(1), noted(round));
            address.deliver(&mut outbox);
            let Some(Mail::Bus(batch)) = inbox.take() else {
                panic!("a batch");
            };
            inbox.recycle(batch.messages);
        }
        assert!(outbox.spare.iter().all(|spare| spare.capacity() > 0));
        assert_eq!(outbox.spare.len(), 1, "each batch sent brought one back");
        inbox.recycle(Vec::with_capacity(SPARE_MESSAGES_MAX + 1));
        for _ in 0..20 {
            inbox.recycle(Vec::with_capacity(1));
        }
        assert_eq!(inbox.spare.len(), SPARE_BATCHES_MAX);
    }

    #[test]
    fn mail_to_a_shard_that_ended_is_dropped() {
        let net = event_loop();
        let (inbox, address) = Inbox::new(net.waker());
        let mut outbox = Outbox::default();
        outbox.push(Mail::ShutDown);
        address.deliver(&mut outbox);
        drop(inbox);
        outbox.push_message(ShardId(1), noted(1));
        address.deliver(&mut outbox);
        address.send(Mail::ShutDown);
        assert_eq!(address.waiting(), 0);
        assert!(outbox.mail.is_empty());
    }
}
