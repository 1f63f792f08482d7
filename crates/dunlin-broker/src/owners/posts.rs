//! What homes with other stores are to do with messages of publishes here: posts. A publish
//! is acknowledged when this store has its message, with the homes that it is for; each is
//! given its post then, and given it again until it has stored what follows from it, with
//! the number of the post: how far it has taken what this shard posts. So each post is
//! taken once and in order, whichever of the two ends and begins again.
//!
//! In the store the posts of one shard for one home are a queue as that of a session; what
//! is to be done with a message is in its target there. How far a home has taken what
//! another posts is a named value.
//!
//! A post whose record cannot be read, as after damage or by an older release, is counted
//! and left out: those behind it are given, and it stays in the store. A home that cannot
//! read how far it has taken what another posts is given all that is still there, and may
//! deliver some of that twice.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::{Message, ShardId, Text};
use dunlin_store::{RecoveredSession, Seq, SessionKey, SessionRecord, StoreOp};

use crate::config::PostLimits;

mod incoming;
mod outgoing;
mod purpose;

use incoming::{Incoming, Progress, UNTAKEN_MAX};
pub(crate) use incoming::{Trial, Tried};
use outgoing::Outgoing;
pub(crate) use purpose::Purpose;

/// Protocol of such a queue in its record.
pub(crate) const PROTOCOL: u8 = 12;

/// Posts that a home is given in one message, and stores at once.
pub(crate) const POSTS_MAX: usize = 256;

/// Numbers of posts of one incarnation of a shard: all of them are above those of the one
/// before.
const INCARNATION_BITS: u32 = 46;

/// A message that a shard has stored for a home with another store.
#[derive(Clone, Debug)]
pub struct Post {
    /// Its place among those of that shard for that home.
    pub number: u64,
    /// What was published.
    pub message: Arc<Message>,
    pub(crate) purpose: Purpose,
}

/// A post of a publish that is not stored yet.
#[derive(Debug)]
pub(crate) struct New {
    pub(crate) to: ShardId,
    /// 0: it has none yet.
    pub(crate) number: u64,
    message: Arc<Message>,
    purpose: Purpose,
}

/// Adds a post to those of a publish; whether it is one more: one message is one post for
/// each home.
pub(crate) fn add(
    new: &mut Vec<New>,
    to: ShardId,
    message: &Arc<Message>,
    purpose: Purpose,
) -> bool {
    let same = |it: &&mut New| it.to == to && Arc::ptr_eq(&it.message, message);
    if let Some(known) = new.iter_mut().find(same) {
        known.purpose.add(purpose);
        return false;
    }
    new.push(New {
        to,
        number: 0,
        message: Arc::clone(message),
        purpose,
    });
    true
}

/// A publish that waits for room for its post.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) token: u64,
    pub(crate) message: Arc<Message>,
    pub(crate) purpose: Purpose,
}

impl Waiting {
    /// Bytes that it takes in memory.
    fn memory(&self) -> usize {
        size_of::<Self>() + self.purpose.bytes() + self.message.cost()
    }
}

/// What follows for a home.
#[derive(Debug)]
pub(crate) enum Next {
    /// It gets these posts, the first of which comes next after this number.
    Give { after: u64, posts: Vec<Post> },
    /// The store is asked for messages.
    Load(Vec<Seq>),
    /// Nothing, for now.
    Nothing,
}

/// Posts for others and from others.
#[derive(Debug)]
pub(crate) struct Posts {
    /// What the budget counts for them.
    pub(crate) weighed: usize,
    /// All numbers that are given here are above this one.
    base: u64,
    to: BTreeMap<ShardId, Outgoing>,
    from: BTreeMap<ShardId, Incoming>,
    /// For which home the store is asked for messages.
    loading: Option<ShardId>,
}

impl Posts {
    pub(crate) fn new(incarnation: u16) -> Self {
        Self {
            weighed: 0,
            base: u64::from(incarnation) << INCARNATION_BITS,
            to: BTreeMap::new(),
            from: BTreeMap::new(),
            loading: None,
        }
    }

    /// Whether a message of this cost may be posted to a home.
    pub(crate) fn has_room(&self, to: ShardId, cost: usize, limits: &PostLimits) -> bool {
        let out = self.to.get(&to);
        out.is_none_or(|out| out.has_room(cost, limits))
    }

    /// A publish waits until there is room for its post; `false`: too many do.
    pub(crate) fn wait(&mut self, to: ShardId, waiting: Waiting) -> bool {
        let out = self.to.get_mut(&to);
        out.is_some_and(|out| out.wait(waiting))
    }

    /// A post to a home has its room, which it takes when its publish is stored.
    pub(crate) fn reserve(&mut self, to: ShardId, cost: usize) {
        if let Some(out) = self.to.get_mut(&to) {
            out.reserve(cost);
        }
    }

    /// A post that is not stored does not need its room any more.
    pub(crate) fn unreserve(&mut self, new: &New) {
        if let Some(out) = self.to.get_mut(&new.to) {
            out.unreserve(new.message.cost());
        }
    }

    /// The next publish that waits, if there is room for its post.
    pub(crate) fn next_waiting(&mut self, to: ShardId, limits: &PostLimits) -> Option<Waiting> {
        self.to.get_mut(&to)?.next_waiting(limits)
    }

    /// Whether the queue for a home has a key.
    pub(crate) fn has_queue(&self, to: ShardId) -> bool {
        self.to.contains_key(&to)
    }

    /// The queue for a home has this key.
    pub(crate) fn add_queue(&mut self, to: ShardId, queue: SessionKey) {
        let base = self.base;
        let to = self.to.entry(to);
        to.or_insert_with(|| Outgoing::new(queue, base));
    }

    /// Gives a post its number, and has the store keep it with what the publish stores
    /// besides: in the order of the numbers, as these operations are. It is at the place
    /// `spare` where the message has none yet.
    pub(crate) fn write(
        &mut self,
        here: ShardId,
        new: &mut New,
        ops: &mut Vec<StoreOp>,
        spare: Seq,
    ) {
        if let Some(out) = self.to.get_mut(&new.to) {
            out.write(here, new, ops, spare);
        }
    }

    /// The store has a post, or has refused it: it may have it all the same, in this queue
    /// and place.
    pub(crate) fn settle(
        &mut self,
        to: ShardId,
        number: u64,
        stored: bool,
    ) -> Option<(SessionKey, Seq)> {
        self.to.get_mut(&to)?.settle(number, stored)
    }

    /// What follows for a home. Posts are given when all before them are stored; with a
    /// store, their messages are in memory no longer then.
    /// At most so many messages, and bytes of them but for one, are loaded.
    pub(crate) fn next(&mut self, to: ShardId, durable: bool, loads: (usize, usize)) -> Next {
        let Some(out) = self.to.get_mut(&to) else {
            return Next::Nothing;
        };
        let loads = Some(loads).filter(|_| self.loading.is_none());
        let next = out.next(durable, loads);
        if let Next::Load(_) = next {
            self.loading = Some(to);
        }
        next
    }

    /// Messages of posts came from the store; how many it has no longer.
    pub(crate) fn handle_loaded(&mut self, messages: &[(u64, Option<Arc<Message>>)]) -> u64 {
        let out = self.loading.take().and_then(|to| self.to.get_mut(&to));
        out.map_or(0, |out| out.handle_loaded(messages))
    }

    /// Messages of posts could not be read: they are asked for again.
    pub(crate) fn load_again(&mut self) {
        let out = self.loading.take().and_then(|to| self.to.get_mut(&to));
        if let Some(out) = out {
            out.end_loading();
        }
    }

    /// A home has taken posts up to this one; `again`: it is to be given those after it
    /// once more. The places of those that it has taken come out, with their queue.
    pub(crate) fn handle_taken(
        &mut self,
        to: ShardId,
        up_to: u64,
        again: bool,
    ) -> Option<(SessionKey, Vec<Seq>)> {
        let out = self.to.get_mut(&to)?;
        Some(out.handle_taken(up_to, again))
    }

    /// A home has no room for these posts, by number, nor for others of these topics.
    pub(crate) fn handle_untaken(&mut self, to: ShardId, numbers: Vec<u64>, topics: Vec<Text>) {
        if let Some(out) = self.to.get_mut(&to) {
            out.handle_untaken(numbers, topics);
        }
    }

    /// Whether a home has said that it has no room for messages of this topic.
    pub(crate) fn is_closed(&self, to: ShardId, topic: &str) -> bool {
        self.to.get(&to).is_some_and(|out| out.is_closed(topic))
    }

    /// A home is gone: what it was given may be lost, and nothing more of what it has
    /// posted comes.
    pub(crate) fn lose(&mut self, home: ShardId) {
        if let Some(out) = self.to.get_mut(&home) {
            out.lose();
        }
        if let Some(incoming) = self.from.get_mut(&home) {
            incoming.lose();
        }
    }

    /// Posts of another shard have come, of which the first comes next after the one with
    /// the number `after`. What is known is passed over, and all of it if some before it
    /// is missing: that is given again.
    pub(crate) fn accept(&mut self, from: ShardId, after: u64, posts: Vec<Post>) {
        self.from.entry(from).or_default().accept(after, posts);
    }

    /// The posts of a shard that are tried next; none while others are being stored.
    /// `again`: with those for which receivers had no room.
    pub(crate) fn begin_taking(&mut self, from: ShardId, again: bool) -> Option<Trial> {
        self.from.get_mut(&from)?.begin_taking(again)
    }

    /// Of those that were tried receivers have no room for these: they wait here, and stay
    /// with that shard. What the store is to know of that; nothing if that is no news.
    pub(crate) fn leave(
        &mut self,
        (here, from): (ShardId, ShardId),
        tried: Tried,
        untaken: Vec<Post>,
    ) -> Option<StoreOp> {
        let progress = self.from.get_mut(&from)?.leave(tried, untaken)?;
        Some(taken_op(here, from, progress))
    }

    /// Whether posts of a shard for which there was no room are to be tried after a while,
    /// which is not set yet.
    pub(crate) fn remind(&mut self, from: ShardId) -> bool {
        self.from.get_mut(&from).is_some_and(Incoming::remind)
    }

    /// They are tried now.
    pub(crate) fn end_reminder(&mut self, from: ShardId) {
        if let Some(incoming) = self.from.get_mut(&from) {
            incoming.end_reminder();
        }
    }

    /// Which posts of a shard stay there as there was no room for them, by number, and
    /// their topics, unless it knows that there are none; `again`: it does not.
    pub(crate) fn untaken(&mut self, from: ShardId, again: bool) -> Option<(Vec<u64>, Vec<Text>)> {
        let incoming = self.from.entry(from).or_default();
        incoming.untaken(again)
    }

    /// This is what the store is asked for.
    pub(crate) fn note_attempt(&mut self, from: ShardId, ops: &[StoreOp]) {
        if let Some(incoming) = self.from.get_mut(&from) {
            incoming.note_attempt(ops);
        }
    }

    /// Nothing was stored, as there was no room: the one post of a shard that was tried,
    /// which waits then as others do; none if there were more.
    pub(crate) fn set_aside(&mut self, from: ShardId) -> Option<(Tried, Post)> {
        self.from.get_mut(&from)?.set_aside()
    }

    /// They are stored, with how far that is; or the store has refused them, and the
    /// shard is to be asked for them later.
    pub(crate) fn end_taking(&mut self, from: ShardId, stored: bool) {
        if let Some(incoming) = self.from.get_mut(&from) {
            incoming.end_taking(stored);
        }
    }

    /// Takes out of the store what it has refused and may have all the same.
    pub(crate) fn undo(&self, here: ShardId, from: ShardId) -> Vec<StoreOp> {
        let incoming = self.from.get(&from);
        let attempt = incoming.map_or(&[][..], Incoming::attempt);
        let ops = attempt.iter().map(|(seq, session)| StoreOp::Dequeue {
            seq: *seq,
            session: *session,
        });
        let none = Progress::default();
        let stored = incoming.map_or(&none, Incoming::stored);
        let taken = taken_op(here, from, stored);
        core::iter::once(taken).chain(ops).collect()
    }

    /// What the store has refused is accepted again.
    pub(crate) fn end_refusing(&mut self, from: ShardId) {
        if let Some(incoming) = self.from.get_mut(&from) {
            incoming.end_refusing();
        }
    }

    /// How far what a shard posts is stored.
    pub(crate) fn taken(&self, from: ShardId) -> u64 {
        let incoming = self.from.get(&from);
        incoming.map_or(0, |incoming| incoming.stored().up_to)
    }

    /// Bytes that posts take in memory, here and on their way to the store.
    pub(crate) fn memory(&self) -> usize {
        let to: usize = self.to.values().map(Outgoing::memory).sum();
        to + self.from.values().map(Incoming::memory).sum::<usize>()
    }

    /// As [`Posts::memory`], counted.
    pub(crate) fn count_memory(&self) -> usize {
        let to: usize = self.to.values().map(Outgoing::count_memory).sum();
        to + self
            .from
            .values()
            .map(Incoming::count_memory)
            .sum::<usize>()
    }

    /// Messages of posts in memory.
    pub(crate) fn held(&self) -> impl Iterator<Item = &Arc<Message>> {
        let to = self.to.values().flat_map(Outgoing::held);
        to.chain(self.from.values().flat_map(Incoming::held))
    }

    /// Posts that wait to be taken, here and elsewhere.
    pub(crate) fn len(&self) -> usize {
        let to: usize = self.to.values().map(Outgoing::len).sum();
        to + self.from.values().map(Incoming::len).sum::<usize>()
    }

    /// Takes back, after a restart, what this shard has posted to a home: a queue of the
    /// store, if it is one of this shard. How many posts cannot be read comes out; `first`:
    /// this shard counts those of queues of which it cannot be said whose they are.
    pub(crate) fn restore(&mut self, here: ShardId, first: bool, from: &RecoveredSession) -> u64 {
        let Some((shard, to)) = pair(&from.record.client_id) else {
            return if first { from.queue.len() as u64 } else { 0 };
        };
        if shard != here {
            return 0;
        }
        self.add_queue(to, from.key);
        let out = self.to.get_mut(&to);
        out.map_or(0, |out| out.restore(from))
    }

    /// Takes back, after a restart, how far what another shard posts is stored: from a
    /// value with such a name. How many such values cannot be read comes out; `first`: as
    /// for [`Posts::restore`].
    pub(crate) fn restore_taken(
        &mut self,
        here: ShardId,
        first: bool,
        name: &str,
        value: &[u8],
    ) -> u64 {
        let Some(of) = name.strip_prefix(TAKEN) else {
            return 0;
        };
        let Some((to, from)) = pair(of) else {
            return u64::from(first);
        };
        if to != here {
            return 0;
        }
        let Some(stored) = read_taken(value) else {
            return 1;
        };
        self.from.entry(from).or_default().restore(stored);
        0
    }
}

impl Post {
    /// Bytes that it takes in memory.
    fn memory(&self) -> usize {
        size_of::<Self>() + self.purpose.bytes() + self.message.cost()
    }
}

/// Two shards, as names in the store have them.
fn pair(of: &str) -> Option<(ShardId, ShardId)> {
    let (one, other) = of.split_once('/')?;
    Some((ShardId(one.parse().ok()?), ShardId(other.parse().ok()?)))
}

/// The record of the queue of what a shard posts to a home.
fn record(from: ShardId, to: ShardId) -> SessionRecord {
    SessionRecord {
        client_id: Text::from(format!("{}/{}", from.0, to.0)),
        version: PROTOCOL,
        expiry_interval_secs: u32::MAX,
        ..SessionRecord::default()
    }
}

/// Begins the names of values that say how far a home has taken what another posts.
const TAKEN: &str = "posts/";

/// Has the store know how far a home has taken what another posts: the number, and those
/// below it that it has not.
fn taken_op(here: ShardId, from: ShardId, stored: &Progress) -> StoreOp {
    let numbers = core::iter::once(&stored.up_to).chain(&stored.untaken);
    let value: Vec<u8> = numbers.flat_map(|number| number.to_le_bytes()).collect();
    StoreOp::PutMeta {
        key: Text::from(format!("{TAKEN}{}/{}", here.0, from.0)),
        value: value.into(),
    }
}

/// What [`taken_op`] wrote; `None`: it is none.
fn read_taken(value: &[u8]) -> Option<Progress> {
    let (numbers, rest) = value.as_chunks();
    if !rest.is_empty() || numbers.len() > UNTAKEN_MAX + 1 {
        return None;
    }
    let mut numbers = numbers.iter().map(|number| u64::from_le_bytes(*number));
    Some(Progress {
        up_to: numbers.next()?,
        untaken: numbers.collect(),
    })
}

#[cfg(test)]
mod tests;
