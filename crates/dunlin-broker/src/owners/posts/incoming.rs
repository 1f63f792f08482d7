//! What another shard posts to this one, until it is stored here.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::Message;
use dunlin_store::{Seq, SessionKey, StoreOp};

use super::outgoing::GIVEN_MAX;
use super::{POSTS_MAX, Post};

/// Posts of one shard that wait here until those before them are stored: what is given at
/// most, before and after it has begun again.
const WAITING_MAX: usize = 2 * GIVEN_MAX;

/// Posts of another shard.
#[derive(Debug)]
pub(super) struct Incoming {
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

impl Incoming {
    /// After a restart: how far they are stored.
    pub(super) const fn restore(&mut self, stored: u64) {
        (self.stored, self.accepted) = (stored, stored);
    }

    /// Nothing more of what the shard has posted comes.
    pub(super) fn lose(&mut self) {
        self.forget();
        self.accepted = self.taking.unwrap_or(self.stored);
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
            if post.number > self.accepted {
                self.accepted = post.number;
                self.memory += post.memory();
                self.waiting.push_back(post);
            }
        }
    }

    /// As [`Posts::begin_taking`](super::Posts::begin_taking).
    pub(super) fn begin_taking(&mut self) -> Option<(Vec<Post>, u64)> {
        if self.taking.is_some() {
            return None;
        }
        let most = self.most.min(self.waiting.len());
        let posts: Vec<Post> = self.waiting.drain(..most).collect();
        self.memory -= posts.iter().map(Post::memory).sum::<usize>();
        let up_to = posts.last()?.number;
        self.taking = Some(up_to);
        self.attempt.clear();
        Some((posts, up_to))
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
        let up_to = self.taking.take();
        if stored {
            self.stored = up_to.unwrap_or(self.stored);
            self.most = POSTS_MAX.min(2 * self.most);
        } else {
            self.forget();
            self.accepted = self.stored;
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
    pub(super) const fn stored(&self) -> u64 {
        self.stored
    }

    /// How many wait, where those that are being stored are one.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + usize::from(self.taking.is_some())
    }

    /// Bytes that those take in memory which wait.
    pub(super) const fn memory(&self) -> usize {
        self.memory
    }

    /// As [`Incoming::memory`], counted.
    pub(super) fn count_memory(&self) -> usize {
        self.waiting.iter().map(Post::memory).sum()
    }

    /// Their messages.
    pub(super) fn held(&self) -> impl Iterator<Item = &Arc<Message>> {
        self.waiting.iter().map(|post| &post.message)
    }

    /// What waits is given again.
    fn forget(&mut self) {
        self.waiting.clear();
        self.memory = 0;
    }
}
