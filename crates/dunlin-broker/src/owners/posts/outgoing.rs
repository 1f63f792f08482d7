//! What a shard has posted to one home, by number, until that has taken it; and publishes
//! that wait for room in it.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::{Message, ShardId, Text};
use dunlin_store::{RecoveredSession, Seq, SessionKey, StoreOp, Target};

use super::purpose::Purpose;
use super::{New, Next, POSTS_MAX, Post, Waiting, record};
use crate::config::PostLimits;

/// Bytes of messages after which a message to a home has no further post.
const POSTS_BYTES_MAX: usize = 256 * 1024;

/// Posts that a home was given and has not said to be stored.
pub(super) const GIVEN_MAX: usize = 1024;

/// Bytes of their messages after which it is given no more.
const GIVEN_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Publishes that wait for room for their posts to one home; further ones are refused.
pub(super) const CROWD_MAX: usize = 1024;

/// Bytes of the messages of these, at most, unless it is one.
pub(super) const CROWD_BYTES_MAX: usize = 1024 * 1024;

/// Posts for one home, by number.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// Where the store has them.
    queue: SessionKey,
    /// The store knows that queue.
    is_made: bool,
    /// The home is there and has said how far it has taken what is posted.
    is_there: bool,
    list: VecDeque<Entry>,
    /// How many of the list it was given since then.
    given: usize,
    given_bytes: usize,
    /// Of these, those that wait there for room, and bytes of their messages: further ones
    /// go past them.
    parked: (usize, usize),
    /// Bytes of all messages of the list.
    pub(super) bytes: usize,
    /// Posts of publishes that have room in the list and are not there yet, and bytes of
    /// their messages.
    reserved: (usize, usize),
    /// Publishes that wait for room in the list.
    crowd: VecDeque<Waiting>,
    crowd_bytes: usize,
    /// Bytes that the list takes in memory, and what waits for room in it.
    memory: usize,
    /// Bytes that the store was asked for.
    loading: usize,
    last: u64,
    /// How far the home has taken them.
    taken: u64,
    /// But for these, for which it has no room.
    untaken: BTreeSet<u64>,
    /// Of these topics it has none for others, too.
    closed: BTreeSet<Text>,
}

/// A post, until it is taken.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) number: u64,
    pub(super) seq: Seq,
    pub(super) purpose: Purpose,
    /// While it is not in the store, and when it was loaded.
    pub(super) message: Option<Arc<Message>>,
    pub(super) cost: usize,
    pub(super) stored: bool,
}

impl Outgoing {
    /// All numbers that are given here are above `base`.
    pub(super) fn new(queue: SessionKey, base: u64) -> Self {
        Self {
            queue,
            is_made: false,
            is_there: false,
            list: VecDeque::new(),
            given: 0,
            given_bytes: 0,
            parked: (0, 0),
            bytes: 0,
            reserved: (0, 0),
            crowd: VecDeque::new(),
            crowd_bytes: 0,
            memory: 0,
            loading: 0,
            last: base,
            taken: 0,
            untaken: BTreeSet::new(),
            closed: BTreeSet::new(),
        }
    }

    /// Whether a message of this cost may be posted.
    pub(super) fn has_room(&self, cost: usize, limits: &PostLimits) -> bool {
        let (reserved, reserved_bytes) = self.reserved;
        let messages = self.list.len() + reserved;
        let bytes = (self.bytes + reserved_bytes).saturating_add(cost);
        messages < limits.messages_max && (messages == 0 || bytes <= limits.bytes_max)
    }

    /// A post of a message of this cost has its room.
    pub(super) const fn reserve(&mut self, cost: usize) {
        let (messages, bytes) = &mut self.reserved;
        (*messages, *bytes) = (*messages + 1, *bytes + cost);
    }

    /// It is in the list now, or will not be.
    pub(super) const fn unreserve(&mut self, cost: usize) {
        let (messages, bytes) = &mut self.reserved;
        *messages = messages.saturating_sub(1);
        *bytes = bytes.saturating_sub(cost);
    }

    /// A publish waits until there is room for its post; `false`: too many do.
    pub(super) fn wait(&mut self, waiting: Waiting) -> bool {
        let bytes = self.crowd_bytes.saturating_add(waiting.message.cost());
        let fits = self.crowd.is_empty() || bytes <= CROWD_BYTES_MAX;
        if self.crowd.len() >= CROWD_MAX || !fits {
            return false;
        }
        self.crowd_bytes = bytes;
        self.memory += waiting.memory();
        self.crowd.push_back(waiting);
        true
    }

    /// The next publish that waits, if there is room for its post.
    pub(super) fn next_waiting(&mut self, limits: &PostLimits) -> Option<Waiting> {
        let first = self.crowd.front()?;
        if !self.has_room(first.message.cost(), limits) {
            return None;
        }
        let first = self.crowd.pop_front()?;
        self.crowd_bytes -= first.message.cost();
        self.memory -= first.memory();
        Some(first)
    }

    /// As [`Posts::write`](super::Posts::write).
    pub(super) fn write(
        &mut self,
        here: ShardId,
        new: &mut New,
        ops: &mut Vec<StoreOp>,
        spare: Seq,
    ) {
        self.last = self.last.saturating_add(1);
        new.number = self.last;
        let target = Target {
            added: Some(new.purpose.encode(new.number)),
            ..Target::new(self.queue, new.message.qos)
        };
        let known = ops.iter_mut().find_map(|op| match op {
            StoreOp::Enqueue {
                seq,
                message,
                targets,
            } if Arc::ptr_eq(message, &new.message) => Some((*seq, targets)),
            _ => None,
        });
        let seq = match known {
            Some((seq, targets)) => {
                targets.push(target);
                seq
            }
            None => {
                ops.push(StoreOp::Enqueue {
                    seq: spare,
                    message: Arc::clone(&new.message),
                    targets: alloc::vec![target],
                });
                spare
            }
        };
        if !self.is_made {
            let make = StoreOp::PutSession {
                key: self.queue,
                record: record(here, new.to),
            };
            ops.insert(0, make);
        }
        let cost = new.message.cost();
        self.unreserve(cost);
        let entry = Entry {
            number: new.number,
            seq,
            purpose: core::mem::take(&mut new.purpose),
            message: Some(Arc::clone(&new.message)),
            cost,
            stored: false,
        };
        self.bytes += cost;
        self.memory += entry.memory();
        self.list.push_back(entry);
    }

    /// As [`Posts::settle`](super::Posts::settle).
    pub(super) fn settle(&mut self, number: u64, stored: bool) -> Option<(SessionKey, Seq)> {
        let at = self.list.partition_point(|entry| entry.number < number);
        if stored {
            self.is_made = true;
            if let Some(entry) = self.list.get_mut(at).filter(|it| it.number == number) {
                entry.stored = true;
            }
            return None;
        }
        let entry = self.list.remove(at)?;
        self.bytes -= entry.cost;
        self.memory -= entry.memory();
        Some((self.queue, entry.seq))
    }

    /// As [`Posts::next`](super::Posts::next); without `loads`, the store is not asked.
    pub(super) fn next(&mut self, durable: bool, loads: Option<(usize, usize)>) -> Next {
        let (after, mut posts, mut bytes) = (self.after(), Vec::new(), 0);
        while posts.len() < POSTS_MAX && bytes < POSTS_BYTES_MAX && self.may_give() {
            let Some(entry) = self.list.get_mut(self.given).filter(|entry| entry.stored) else {
                break;
            };
            let message = match durable {
                true => entry.message.take(),
                false => entry.message.clone(),
            };
            let Some(message) = message else {
                break;
            };
            let cost = entry.cost;
            if durable {
                self.memory -= message.cost();
            }
            posts.push(entry.post(message));
            if self.untaken.contains(&entry.number) {
                self.parked = (self.parked.0 + 1, self.parked.1 + cost);
            }
            bytes += cost;
            self.given += 1;
            self.given_bytes += cost;
        }
        if !posts.is_empty() {
            return Next::Give { after, posts };
        }
        if durable {
            self.shed();
        }
        let Some((messages_max, bytes_max)) = loads.filter(|_| self.may_give()) else {
            return Next::Nothing;
        };
        let (messages_max, bytes_max) = (
            messages_max.clamp(1, POSTS_MAX),
            bytes_max.min(POSTS_BYTES_MAX),
        );
        let wanted = self.list.iter().skip(self.given);
        let wanted = wanted.take_while(|entry| entry.stored && entry.message.is_none());
        let (mut seqs, mut bytes) = (Vec::new(), 0);
        for entry in wanted.take(messages_max) {
            if !seqs.is_empty() && bytes + entry.cost > bytes_max {
                break;
            }
            bytes += entry.cost;
            seqs.push(entry.seq);
        }
        if seqs.is_empty() {
            return Next::Nothing;
        }
        self.loading = bytes;
        Next::Load(seqs)
    }

    /// Messages of posts came from the store; how many it has no longer.
    pub(super) fn handle_loaded(&mut self, messages: &[(u64, Option<Arc<Message>>)]) -> u64 {
        self.end_loading();
        let loaded: BTreeMap<u64, &Option<Arc<Message>>> = messages
            .iter()
            .map(|(seq, message)| (*seq, message))
            .collect();
        let (given, mut at, mut lost, mut count) = (self.given, 0, 0, 0);
        let memory = &mut self.memory;
        self.list.retain_mut(|entry| {
            at += 1;
            let found = loaded.get(&entry.seq.0).filter(|_| at > given);
            match found {
                Some(Some(message)) => {
                    *memory -= entry.memory();
                    entry.message = Some(Arc::clone(message));
                    *memory += entry.memory();
                }
                // The store has it no longer: it was damaged.
                Some(None) => {
                    *memory -= entry.memory();
                    lost += entry.cost;
                    count += 1;
                    return false;
                }
                None => {}
            }
            true
        });
        self.bytes -= lost;
        count
    }

    /// Nothing is being loaded any more.
    pub(super) const fn end_loading(&mut self) {
        self.loading = 0;
    }

    /// The home has no room for these, nor for others of these topics.
    pub(super) fn handle_untaken(&mut self, numbers: Vec<u64>, topics: Vec<Text>) {
        self.untaken = numbers.into_iter().collect();
        self.closed = topics.into_iter().collect();
        let given = self.list.iter().take(self.given);
        let parked = given.filter(|entry| self.untaken.contains(&entry.number));
        self.parked = parked.fold((0, 0), |(count, bytes), entry| {
            (count + 1, bytes + entry.cost)
        });
    }

    /// Whether it has said that of this topic.
    pub(super) fn is_closed(&self, topic: &str) -> bool {
        self.closed.contains(topic.as_bytes())
    }

    /// As [`Posts::handle_taken`](super::Posts::handle_taken).
    pub(super) fn handle_taken(&mut self, up_to: u64, again: bool) -> (SessionKey, Vec<Seq>) {
        if again {
            self.is_there = true;
            self.give_again();
        }
        // A home whose store has gone back to an earlier state is given what comes after it.
        self.taken = if again { up_to } else { self.taken.max(up_to) };
        self.last = self.last.max(up_to);
        let (mut seqs, mut untaken) = (Vec::new(), Vec::new());
        let (mut at, given) = (0, self.given);
        let is_taken = |entry: &Entry| entry.stored && entry.number <= up_to;
        while self.list.front().is_some_and(is_taken) {
            let Some(first) = self.list.pop_front() else {
                break;
            };
            at += 1;
            if self.untaken.contains(&first.number) {
                untaken.push(first);
                continue;
            }
            seqs.push(first.seq);
            self.bytes -= first.cost;
            self.memory -= first.memory();
            if at <= given {
                self.given -= 1;
                self.given_bytes -= first.cost;
            }
        }
        for entry in untaken.into_iter().rev() {
            self.list.push_front(entry);
        }
        (self.queue, seqs)
    }

    /// The home is gone: what it was given may be lost.
    pub(super) fn lose(&mut self) {
        self.is_there = false;
        // It says that again when it is back.
        self.untaken.clear();
        self.closed.clear();
        self.give_again();
    }

    /// Takes back, after a restart, what the store has of it; how many posts cannot be read.
    pub(super) fn restore(&mut self, from: &RecoveredSession) -> u64 {
        self.is_made = true;
        let entries = from.queue.iter().filter_map(|queued| {
            let (number, purpose) = Purpose::decode(queued.added()?)?;
            Some(Entry {
                number,
                seq: queued.seq(),
                purpose,
                message: None,
                cost: queued.cost(),
                stored: true,
            })
        });
        let mut entries: Vec<Entry> = entries.collect();
        entries.sort_unstable_by_key(|entry| entry.number);
        self.bytes = entries.iter().map(|entry| entry.cost).sum();
        self.memory = entries.iter().map(Entry::memory).sum();
        let last = entries.last().map_or(0, |entry| entry.number);
        self.last = self.last.max(last);
        self.list = entries.into();
        from.queue.len().saturating_sub(self.list.len()) as u64
    }

    /// How many posts are not taken.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Bytes that it takes in memory, or will when they are loaded.
    pub(super) const fn memory(&self) -> usize {
        self.memory + self.loading
    }

    /// As [`Outgoing::memory`], counted.
    pub(super) fn count_memory(&self) -> usize {
        let list: usize = self.list.iter().map(Entry::memory).sum();
        list + self.crowd.iter().map(Waiting::memory).sum::<usize>() + self.loading
    }

    /// Messages in memory.
    pub(super) fn held(&self) -> impl Iterator<Item = &Arc<Message>> {
        let list = self.list.iter().filter_map(|entry| entry.message.as_ref());
        list.chain(self.crowd.iter().map(|waiting| &waiting.message))
    }

    /// The number of the post before the one that is given next.
    fn after(&self) -> u64 {
        let before = self.given.checked_sub(1);
        let before = before.and_then(|at| self.list.get(at));
        before.map_or(self.taken, |entry| entry.number)
    }

    const fn may_give(&self) -> bool {
        let given = self.given.saturating_sub(self.parked.0);
        let bytes = self.given_bytes.saturating_sub(self.parked.1);
        self.is_there && given < GIVEN_MAX && bytes < GIVEN_BYTES_MAX
    }

    /// What the home was given may be lost.
    const fn give_again(&mut self) {
        (self.given, self.given_bytes, self.parked) = (0, 0, (0, 0));
    }

    /// Messages that are stored and cannot be given now are loaded when they can.
    fn shed(&mut self) {
        if !self.list.get(self.given).is_some_and(|entry| entry.stored) {
            return;
        }
        let last_first = self.list.iter_mut().rev();
        for entry in last_first.skip_while(|entry| !entry.stored) {
            if entry.message.is_none() {
                return;
            }
            if entry.stored
                && let Some(message) = entry.message.take()
            {
                self.memory -= message.cost();
            }
        }
    }
}

impl Entry {
    /// Bytes that it takes in memory.
    fn memory(&self) -> usize {
        let message = self.message.as_ref().map_or(0, |message| message.cost());
        size_of::<Self>() + self.purpose.bytes() + message
    }

    pub(super) fn post(&self, message: Arc<Message>) -> Post {
        Post {
            number: self.number,
            message,
            purpose: self.purpose.clone(),
        }
    }
}
