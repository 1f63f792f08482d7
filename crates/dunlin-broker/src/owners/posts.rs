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

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_base::{Message, ShardId, Text};
use dunlin_store::{RecoveredSession, Seq, SessionKey, SessionRecord, StoreOp, Target};

use crate::config::PostLimits;

mod purpose;

pub(crate) use purpose::Purpose;

/// Protocol of such a queue in its record.
pub(crate) const PROTOCOL: u8 = 12;

/// Posts that a home is given in one message, and stores at once.
pub(crate) const POSTS_MAX: usize = 256;

/// Bytes of messages after which a message to a home has no further post.
const POSTS_BYTES_MAX: usize = 256 * 1024;

/// Posts that a home was given and has not said to be stored.
const GIVEN_MAX: usize = 1024;

/// Bytes of their messages after which it is given no more.
const GIVEN_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Posts of one shard that wait here until those before them are stored: what is given at
/// most, before and after it has begun again.
const WAITING_MAX: usize = 2 * GIVEN_MAX;

/// Publishes that wait for room for their posts to one home; further ones are refused.
const CROWD_MAX: usize = 1024;

/// Bytes of the messages of these, at most, unless it is one.
const CROWD_BYTES_MAX: usize = 1024 * 1024;

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

/// Adds a post to those of a publish. One message is one post for each home.
pub(crate) fn add(new: &mut Vec<New>, to: ShardId, message: &Arc<Message>, purpose: Purpose) {
    let same = |it: &&mut New| it.to == to && Arc::ptr_eq(&it.message, message);
    match new.iter_mut().find(same) {
        Some(known) => known.purpose.add(purpose),
        None => new.push(New {
            to,
            number: 0,
            message: Arc::clone(message),
            purpose,
        }),
    }
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

/// Posts for one home, by number.
#[derive(Debug)]
struct Outgoing {
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
    /// Bytes of all messages of the list.
    bytes: usize,
    /// Publishes that wait for room in the list.
    crowd: VecDeque<Waiting>,
    crowd_bytes: usize,
    /// Bytes that the list takes in memory, and what waits for room in it.
    memory: usize,
    last: u64,
    /// How far the home has taken them.
    taken: u64,
}

/// A post, until it is taken.
#[derive(Debug)]
struct Entry {
    number: u64,
    seq: Seq,
    purpose: Purpose,
    /// While it is not in the store, and when it was loaded.
    message: Option<Arc<Message>>,
    cost: usize,
    stored: bool,
}

/// Posts of another shard.
#[derive(Debug)]
struct Incoming {
    /// How far they are stored.
    stored: u64,
    /// How far they have come, in their order.
    accepted: u64,
    /// How far those are that the store has been asked for.
    taking: Option<u64>,
    waiting: VecDeque<Post>,
    /// Bytes that those take in memory.
    memory: usize,
    /// Places and queues of what is stored for those.
    attempt: Vec<(Seq, SessionKey)>,
    /// How many are stored at once.
    most: usize,
    /// The store has refused some: nothing is accepted until they are asked for again.
    is_refused: bool,
}

impl Default for Incoming {
    fn default() -> Self {
        Self {
            stored: 0,
            accepted: 0,
            taking: None,
            waiting: VecDeque::new(),
            memory: 0,
            attempt: Vec::new(),
            most: POSTS_MAX,
            is_refused: false,
        }
    }
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
        self.to.get(&to).is_none_or(|out| {
            let bytes = out.bytes.saturating_add(cost);
            out.list.len() < limits.messages_max
                && (out.list.is_empty() || bytes <= limits.bytes_max)
        })
    }

    /// A publish waits until there is room for its post; `false`: too many do.
    pub(crate) fn wait(&mut self, to: ShardId, waiting: Waiting) -> bool {
        let Some(out) = self.to.get_mut(&to) else {
            return false;
        };
        let bytes = out.crowd_bytes.saturating_add(waiting.message.cost());
        let fits = out.crowd.is_empty() || bytes <= CROWD_BYTES_MAX;
        if out.crowd.len() >= CROWD_MAX || !fits {
            return false;
        }
        out.crowd_bytes = bytes;
        out.memory += waiting.memory();
        out.crowd.push_back(waiting);
        true
    }

    /// The next publish that waits, if there is room for its post. That is there when the
    /// publish is stored: one that is behind another of its client takes it a while later,
    /// so that there may be as many posts too many as publishes wait.
    pub(crate) fn next_waiting(&mut self, to: ShardId, limits: &PostLimits) -> Option<Waiting> {
        let first = self.to.get(&to)?.crowd.front()?;
        if !self.has_room(to, first.message.cost(), limits) {
            return None;
        }
        let out = self.to.get_mut(&to)?;
        let first = out.crowd.pop_front()?;
        out.crowd_bytes -= first.message.cost();
        out.memory -= first.memory();
        Some(first)
    }

    /// Whether the queue for a home has a key.
    pub(crate) fn has_queue(&self, to: ShardId) -> bool {
        self.to.contains_key(&to)
    }

    /// The queue for a home has this key.
    pub(crate) fn add_queue(&mut self, to: ShardId, queue: SessionKey) {
        let base = self.base;
        self.to.entry(to).or_insert_with(|| Outgoing {
            queue,
            is_made: false,
            is_there: false,
            list: VecDeque::new(),
            given: 0,
            given_bytes: 0,
            bytes: 0,
            crowd: VecDeque::new(),
            crowd_bytes: 0,
            memory: 0,
            last: base,
            taken: 0,
        });
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
        let Some(out) = self.to.get_mut(&new.to) else {
            return;
        };
        out.last = out.last.saturating_add(1);
        new.number = out.last;
        let target = Target {
            added: Some(new.purpose.encode(new.number)),
            ..Target::new(out.queue, new.message.qos)
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
        if !out.is_made {
            let make = StoreOp::PutSession {
                key: out.queue,
                record: record(here, new.to),
            };
            ops.insert(0, make);
        }
        let cost = new.message.cost();
        let entry = Entry {
            number: new.number,
            seq,
            purpose: core::mem::take(&mut new.purpose),
            message: Some(Arc::clone(&new.message)),
            cost,
            stored: false,
        };
        out.bytes += cost;
        out.memory += entry.memory();
        out.list.push_back(entry);
    }

    /// The store has a post, or has refused it.
    pub(crate) fn settle(&mut self, to: ShardId, number: u64, stored: bool) {
        let Some(out) = self.to.get_mut(&to) else {
            return;
        };
        let at = out.list.partition_point(|entry| entry.number < number);
        if stored {
            out.is_made = true;
            if let Some(entry) = out.list.get_mut(at).filter(|it| it.number == number) {
                entry.stored = true;
            }
        } else if let Some(entry) = out.list.remove(at) {
            out.bytes -= entry.cost;
            out.memory -= entry.memory();
        }
    }

    /// What follows for a home. Posts are given when all before them are stored; with a
    /// store, their messages are in memory no longer then.
    pub(crate) fn next(&mut self, to: ShardId, durable: bool) -> Next {
        let Some(out) = self.to.get_mut(&to) else {
            return Next::Nothing;
        };
        let (after, mut posts, mut bytes) = (out.after(), Vec::new(), 0);
        while posts.len() < POSTS_MAX && bytes < POSTS_BYTES_MAX && out.may_give() {
            let Some(entry) = out.list.get_mut(out.given).filter(|entry| entry.stored) else {
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
                out.memory -= message.cost();
            }
            posts.push(entry.post(message));
            bytes += cost;
            out.given += 1;
            out.given_bytes += cost;
        }
        if !posts.is_empty() {
            return Next::Give { after, posts };
        }
        if durable {
            out.shed();
        }
        if self.loading.is_some() || !out.may_give() {
            return Next::Nothing;
        }
        let wanted = out.list.iter().skip(out.given);
        let wanted = wanted.take_while(|entry| entry.stored && entry.message.is_none());
        let mut bytes = 0;
        let some = wanted.take(POSTS_MAX).take_while(|entry| {
            let fits = bytes < POSTS_BYTES_MAX;
            bytes += entry.cost;
            fits
        });
        let seqs: Vec<Seq> = some.map(|entry| entry.seq).collect();
        if seqs.is_empty() {
            return Next::Nothing;
        }
        self.loading = Some(to);
        Next::Load(seqs)
    }

    /// Messages of posts came from the store; how many it has no longer.
    pub(crate) fn handle_loaded(&mut self, messages: &[(u64, Option<Arc<Message>>)]) -> u64 {
        let out = self.loading.take().and_then(|to| self.to.get_mut(&to));
        let Some(out) = out else {
            return 0;
        };
        let loaded: BTreeMap<u64, &Option<Arc<Message>>> = messages
            .iter()
            .map(|(seq, message)| (*seq, message))
            .collect();
        let (given, mut at, mut lost, mut count) = (out.given, 0, 0, 0);
        let memory = &mut out.memory;
        out.list.retain_mut(|entry| {
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
        out.bytes -= lost;
        count
    }

    /// Messages of posts could not be read: they are asked for again.
    pub(crate) const fn load_again(&mut self) {
        self.loading = None;
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
        if again {
            out.is_there = true;
            out.give_again();
        }
        // A home whose store has gone back to an earlier state is given what comes after it.
        out.taken = if again { up_to } else { out.taken.max(up_to) };
        out.last = out.last.max(up_to);
        let mut seqs = Vec::new();
        while let Some(first) = out.list.front()
            && first.stored
            && first.number <= up_to
        {
            seqs.push(first.seq);
            out.bytes -= first.cost;
            out.memory -= first.memory();
            if out.given > 0 {
                out.given -= 1;
                out.given_bytes -= first.cost;
            }
            out.list.pop_front();
        }
        Some((out.queue, seqs))
    }

    /// A home is gone: what it was given may be lost, and nothing more of what it has
    /// posted comes.
    pub(crate) fn lose(&mut self, home: ShardId) {
        if let Some(out) = self.to.get_mut(&home) {
            out.is_there = false;
            out.give_again();
        }
        if let Some(incoming) = self.from.get_mut(&home) {
            incoming.forget();
            incoming.accepted = incoming.taking.unwrap_or(incoming.stored);
        }
    }

    /// Posts of another shard have come, of which the first comes next after the one with
    /// the number `after`. What is known is passed over, and all of it if some before it
    /// is missing: that is given again.
    pub(crate) fn accept(&mut self, from: ShardId, after: u64, posts: Vec<Post>) {
        let incoming = self.from.entry(from).or_default();
        if incoming.is_refused || after > incoming.accepted {
            return;
        }
        for post in posts {
            if incoming.waiting.len() >= WAITING_MAX {
                return;
            }
            if post.number > incoming.accepted {
                incoming.accepted = post.number;
                incoming.memory += post.memory();
                incoming.waiting.push_back(post);
            }
        }
    }

    /// The posts of a shard that are stored next, and the number of the last one; none
    /// while others are being stored.
    pub(crate) fn begin_taking(&mut self, from: ShardId) -> Option<(Vec<Post>, u64)> {
        let incoming = self.from.get_mut(&from)?;
        if incoming.taking.is_some() {
            return None;
        }
        let most = incoming.most.min(incoming.waiting.len());
        let posts: Vec<Post> = incoming.waiting.drain(..most).collect();
        incoming.memory -= posts.iter().map(Post::memory).sum::<usize>();
        let up_to = posts.last()?.number;
        incoming.taking = Some(up_to);
        incoming.attempt.clear();
        Some((posts, up_to))
    }

    /// This is what the store is asked for.
    pub(crate) fn note_attempt(&mut self, from: ShardId, ops: &[StoreOp]) {
        let Some(incoming) = self.from.get_mut(&from) else {
            return;
        };
        incoming.attempt.clear();
        for op in ops {
            if let StoreOp::Enqueue { seq, targets, .. } = op {
                let targets = targets.iter().map(|target| (*seq, target.session));
                incoming.attempt.extend(targets);
            }
        }
    }

    /// They are stored, with how far that is; or the store has refused them, and the
    /// shard is to be asked for them later.
    pub(crate) fn end_taking(&mut self, from: ShardId, stored: bool) {
        let Some(incoming) = self.from.get_mut(&from) else {
            return;
        };
        let up_to = incoming.taking.take();
        if stored {
            incoming.stored = up_to.unwrap_or(incoming.stored);
            incoming.most = POSTS_MAX.min(2 * incoming.most);
        } else {
            incoming.forget();
            incoming.accepted = incoming.stored;
            incoming.is_refused = true;
            // They may be more than one batch of the store can have.
            incoming.most = 1;
        }
    }

    /// Takes out of the store what it has refused and may have all the same.
    pub(crate) fn undo(&self, here: ShardId, from: ShardId) -> Vec<StoreOp> {
        let incoming = self.from.get(&from);
        let attempt = incoming.map_or(&[][..], |incoming| &incoming.attempt);
        let ops = attempt.iter().map(|(seq, session)| StoreOp::Dequeue {
            seq: *seq,
            session: *session,
        });
        let taken = taken_op(here, from, self.taken(from));
        core::iter::once(taken).chain(ops).collect()
    }

    /// What the store has refused is accepted again.
    pub(crate) fn end_refusing(&mut self, from: ShardId) {
        if let Some(incoming) = self.from.get_mut(&from) {
            incoming.is_refused = false;
        }
    }

    /// How far what a shard posts is stored.
    pub(crate) fn taken(&self, from: ShardId) -> u64 {
        self.from.get(&from).map_or(0, |incoming| incoming.stored)
    }

    /// Bytes that posts take in memory, here and on their way to the store.
    pub(crate) fn memory(&self) -> usize {
        let to: usize = self.to.values().map(|out| out.memory).sum();
        let from: usize = self.from.values().map(|it| it.memory).sum();
        to + from
    }

    /// As [`Posts::memory`], counted.
    pub(crate) fn count_memory(&self) -> usize {
        let to = self.to.values().flat_map(|out| &out.list);
        let crowds = self.to.values().flat_map(|out| &out.crowd);
        let from = self.from.values().flat_map(|it| &it.waiting);
        let to: usize = to.map(Entry::memory).sum();
        let crowds: usize = crowds.map(Waiting::memory).sum();
        to + crowds + from.map(Post::memory).sum::<usize>()
    }

    /// Messages of posts in memory.
    pub(crate) fn held(&self) -> impl Iterator<Item = &Arc<Message>> {
        let to = self.to.values().flat_map(|out| &out.list);
        let from = self.from.values().flat_map(|it| &it.waiting);
        let to = to.filter_map(|entry| entry.message.as_ref());
        let crowds = self.to.values().flat_map(|out| &out.crowd);
        let crowds = crowds.map(|waiting| &waiting.message);
        to.chain(crowds).chain(from.map(|post| &post.message))
    }

    /// Posts that wait to be taken, here and elsewhere.
    pub(crate) fn len(&self) -> usize {
        let to: usize = self.to.values().map(|out| out.list.len()).sum();
        let from = self.from.values();
        let from: usize = from
            .map(|it| it.waiting.len() + usize::from(it.taking.is_some()))
            .sum();
        to + from
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
        let Some(out) = self.to.get_mut(&to) else {
            return 0;
        };
        out.is_made = true;
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
        out.bytes = entries.iter().map(|entry| entry.cost).sum();
        out.memory = entries.iter().map(Entry::memory).sum();
        let last = entries.last().map_or(0, |entry| entry.number);
        out.last = out.last.max(last);
        out.list = entries.into();
        from.queue.len().saturating_sub(out.list.len()) as u64
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
        let Ok(value) = value.try_into() else {
            return 1;
        };
        let stored = u64::from_le_bytes(value);
        let incoming = self.from.entry(from).or_default();
        (incoming.stored, incoming.accepted) = (stored, stored);
        0
    }
}

impl Outgoing {
    /// The number of the post before the one that is given next.
    fn after(&self) -> u64 {
        let before = self.given.checked_sub(1);
        let before = before.and_then(|at| self.list.get(at));
        before.map_or(self.taken, |entry| entry.number)
    }

    const fn may_give(&self) -> bool {
        self.is_there && self.given < GIVEN_MAX && self.given_bytes < GIVEN_BYTES_MAX
    }

    /// What the home was given may be lost.
    const fn give_again(&mut self) {
        (self.given, self.given_bytes) = (0, 0);
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

impl Incoming {
    /// What waits is given again.
    fn forget(&mut self) {
        self.waiting.clear();
        self.memory = 0;
    }
}

impl Post {
    /// Bytes that it takes in memory.
    fn memory(&self) -> usize {
        size_of::<Self>() + self.purpose.bytes() + self.message.cost()
    }
}

impl Entry {
    /// Bytes that it takes in memory.
    fn memory(&self) -> usize {
        let message = self.message.as_ref().map_or(0, |message| message.cost());
        size_of::<Self>() + self.purpose.bytes() + message
    }

    fn post(&self, message: Arc<Message>) -> Post {
        Post {
            number: self.number,
            message,
            purpose: self.purpose.clone(),
        }
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

/// Has the store know how far a home has taken what another posts.
pub(crate) fn taken_op(here: ShardId, from: ShardId, up_to: u64) -> StoreOp {
    StoreOp::PutMeta {
        key: Text::from(format!("{TAKEN}{}/{}", here.0, from.0)),
        value: Bytes::copy_from_slice(&up_to.to_le_bytes()),
    }
}

#[cfg(test)]
mod tests;
