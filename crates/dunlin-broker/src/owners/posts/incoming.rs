//! What another shard posts to this one, until it is stored here. A post for which a
//! receiver has no room waits, and with it those of its topic that come later; the others
//! go past it.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::{Message, Text};
use dunlin_store::{Seq, SessionKey, StoreOp};

use super::outgoing::GIVEN_MAX;
use super::{POSTS_MAX, Post};

/// Posts of one shard that wait here until those before them are stored: what is given at
/// most, before and after it has begun again.
const WAITING_MAX: usize = 2 * GIVEN_MAX;

/// Posts of one shard that wait here until receivers have room, past which others go.
pub(super) const UNTAKEN_MAX: usize = 256;

/// Posts of another shard.
#[derive(Debug)]
pub(super) struct Incoming {
    /// What is stored.
    stored: Progress,
    /// How far they have come, in their order.
    accepted: u64,
    /// What is stored when the store has done what it has been asked for.
    taking: Option<Progress>,
    waiting: VecDeque<Post>,
    /// The post that is tried, if it is one alone.
    alone: Option<(Tried, Post)>,
    /// Those for which receivers had no room, by number.
    untaken: BTreeMap<u64, Post>,
    /// The last of them that was tried again.
    retried: u64,
    /// Bytes that all of these take in memory.
    memory: usize,
    /// Places and queues of what is stored for those.
    attempt: Vec<(Seq, SessionKey)>,
    /// How many are stored at once.
    most: usize,
    /// The store has refused some: nothing is accepted until they are asked for again.
    is_refused: bool,
    /// Those for which receivers had no room are tried again after a while.
    is_reminded: bool,
    /// The shard knows that there are such.
    is_known_there: bool,
}

/// How far posts are stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Up to this number.
    pub(super) up_to: u64,
    /// But for these.
    pub(super) untaken: BTreeSet<u64>,
}

/// Posts that are tried now, in their order.
#[derive(Debug)]
pub(crate) struct Trial {
    pub(crate) posts: Vec<Post>,
    /// Topics of which a post waits, with the number of the first such.
    pub(crate) closed: Closed,
    /// Which posts these are.
    pub(crate) tried: Tried,
}

/// Topics of which a post waits, with the number of the first such: those of it that come
/// later wait as well.
#[derive(Debug, Default)]
pub(crate) struct Closed(BTreeMap<Text, u64>);

impl Closed {
    /// A post waits.
    pub(crate) fn add(&mut self, post: &Post) {
        let first = self.0.entry(post.message.topic.clone());
        let first = first.or_insert(post.number);
        *first = post.number.min(*first);
    }

    /// Whether one of the same topic waits that is before this one.
    pub(crate) fn is_before(&self, post: &Post) -> bool {
        let first = self.0.get(&post.message.topic);
        first.is_some_and(|first| *first < post.number)
    }
}

/// Which posts are tried.
#[derive(Clone, Debug)]
pub(crate) struct Tried {
    /// Up to this number.
    up_to: u64,
    /// And these before, for which there was no room.
    again: Vec<u64>,
}

impl Default for Incoming {
    fn default() -> Self {
        Self {
            stored: Progress::default(),
            accepted: 0,
            taking: None,
            waiting: VecDeque::new(),
            alone: None,
            untaken: BTreeMap::new(),
            retried: 0,
            memory: 0,
            attempt: Vec::new(),
            most: POSTS_MAX,
            is_refused: false,
            is_reminded: false,
            is_known_there: false,
        }
    }
}

impl Incoming {
    /// After a restart: how far they are stored.
    pub(super) fn restore(&mut self, stored: Progress) {
        self.accepted = stored.up_to;
        self.stored = stored;
    }

    /// Nothing more of what the shard has posted comes.
    pub(super) fn lose(&mut self) {
        self.forget();
        self.accepted = self.progress().up_to;
    }

    /// What is stored when the store has done what it has been asked for.
    fn progress(&self) -> &Progress {
        self.taking.as_ref().unwrap_or(&self.stored)
    }

    /// As [`Posts::accept`](super::Posts::accept).
    pub(super) fn accept(&mut self, after: u64, posts: Vec<Post>) {
        if self.is_refused || after > self.accepted {
            return;
        }
        for post in posts {
            if self.waiting.len() >= WAITING_MAX {
                return;
            }
            let number = post.number;
            if number > self.accepted {
                self.accepted = number;
                self.memory += post.memory();
                self.waiting.push_back(post);
            } else if self.progress().untaken.contains(&number) {
                self.keep_untaken(post);
            }
        }
    }

    /// As [`Posts::begin_taking`](super::Posts::begin_taking).
    pub(super) fn begin_taking(&mut self, again: bool) -> Option<Trial> {
        if self.taking.is_some() {
            return None;
        }
        let room = UNTAKEN_MAX.saturating_sub(self.stored.untaken.len());
        let most = self.most.min(self.waiting.len()).min(room);
        let mut untaken = BTreeMap::new();
        while again && untaken.len() < self.most {
            // One without room for it does not keep those behind it from their turn.
            let mut behind = self.untaken.range(self.retried.saturating_add(1)..);
            let next = behind.next().or_else(|| self.untaken.first_key_value());
            let Some(number) = next.map(|(number, _)| *number) else {
                break;
            };
            let Some(post) = self.untaken.remove(&number) else {
                break;
            };
            self.retried = number;
            untaken.insert(number, post);
        }
        // What waits is tried after these: without room for one, all would be off.
        let most = if untaken.is_empty() { most } else { 0 };
        let mut closed = Closed::default();
        self.untaken.values().for_each(|post| closed.add(post));
        let again = untaken.keys().copied().collect();
        let mut posts: Vec<Post> = untaken.into_values().collect();
        posts.extend(self.waiting.drain(..most));
        let up_to = posts.last()?.number.max(self.stored.up_to);
        self.memory -= posts.iter().map(Post::memory).sum::<usize>();
        self.attempt.clear();
        let tried = Tried { up_to, again };
        self.alone = match &posts[..] {
            [post] => Some((tried.clone(), post.clone())),
            _ => None,
        };
        Some(Trial {
            posts,
            closed,
            tried,
        })
    }

    /// As [`Posts::set_aside`](super::Posts::set_aside).
    pub(super) fn set_aside(&mut self) -> Option<(Tried, Post)> {
        let alone = self.alone.take()?;
        self.taking = None;
        Some(alone)
    }

    /// As [`Posts::leave`](super::Posts::leave).
    pub(super) fn leave(&mut self, tried: Tried, untaken: Vec<Post>) -> Option<&Progress> {
        let Tried { up_to, again } = tried;
        let mut progress = Progress {
            up_to,
            untaken: self.stored.untaken.clone(),
        };
        for number in &again {
            progress.untaken.remove(number);
        }
        for post in untaken {
            progress.untaken.insert(post.number);
            self.keep_untaken(post);
        }
        if progress == self.stored {
            // Perhaps there is room for others.
            self.most = POSTS_MAX.min(2 * self.most);
            return None;
        }
        Some(self.taking.insert(progress))
    }

    /// This is what the store is asked for.
    pub(super) fn note_attempt(&mut self, ops: &[StoreOp]) {
        self.attempt.clear();
        for op in ops {
            if let StoreOp::Enqueue { seq, targets, .. } = op {
                let targets = targets.iter().map(|target| (*seq, target.session));
                self.attempt.extend(targets);
            }
        }
    }

    /// As [`Posts::end_taking`](super::Posts::end_taking).
    pub(super) fn end_taking(&mut self, stored: bool) {
        let taking = self.taking.take();
        self.alone = None;
        if stored {
            self.stored = taking.unwrap_or_default();
            self.most = POSTS_MAX.min(2 * self.most);
        } else {
            self.forget();
            self.accepted = self.stored.up_to;
            self.is_refused = true;
            // They may be more than one batch of the store can have.
            self.most = 1;
        }
    }

    /// What the store has refused and may have all the same.
    pub(super) fn attempt(&self) -> &[(Seq, SessionKey)] {
        &self.attempt
    }

    /// What the store has refused is accepted again.
    pub(super) const fn end_refusing(&mut self) {
        self.is_refused = false;
    }

    /// How far they are stored.
    pub(super) const fn stored(&self) -> &Progress {
        &self.stored
    }

    /// Whether those for which there was no room are to be tried after a while, which is
    /// not set yet.
    pub(super) fn remind(&mut self) -> bool {
        !self.untaken.is_empty() && !core::mem::replace(&mut self.is_reminded, true)
    }

    /// They are tried now.
    pub(super) const fn end_reminder(&mut self) {
        self.is_reminded = false;
    }

    /// As [`Posts::untaken`](super::Posts::untaken).
    pub(super) fn untaken(&mut self, again: bool) -> Option<(Vec<u64>, Vec<Text>)> {
        let numbers: Vec<u64> = self.stored.untaken.iter().copied().collect();
        let is_news = core::mem::replace(&mut self.is_known_there, !numbers.is_empty());
        if !is_news && !again && numbers.is_empty() {
            return None;
        }
        let topics = self.untaken.values().map(|post| &post.message.topic);
        let topics: BTreeSet<&Text> = topics.collect();
        Some((numbers, topics.into_iter().cloned().collect()))
    }

    /// How many wait, where those that are being stored are one.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.untaken.len() + usize::from(self.taking.is_some())
    }

    /// Bytes that those take in memory which wait.
    pub(super) const fn memory(&self) -> usize {
        self.memory
    }

    /// As [`Incoming::memory`], counted.
    pub(super) fn count_memory(&self) -> usize {
        let waiting = self.waiting.iter().chain(self.untaken.values());
        waiting.map(Post::memory).sum()
    }

    /// Their messages.
    pub(super) fn held(&self) -> impl Iterator<Item = &Arc<Message>> {
        let waiting = self.waiting.iter().chain(self.untaken.values());
        waiting.map(|post| &post.message)
    }

    /// A post waits until there is room for it.
    fn keep_untaken(&mut self, post: Post) {
        self.memory += post.memory();
        if let Some(known) = self.untaken.insert(post.number, post) {
            self.memory -= known.memory();
        }
    }

    /// What waits is given again.
    fn forget(&mut self) {
        self.waiting.clear();
        self.untaken.clear();
        self.memory = 0;
    }
}
