//! The fourth owner of a shard: what is pending, prepared and stored. Store
//! operations of one turn of the loop are gathered into few batches; what waits
//! for a batch comes out of [`Commits::poll`] when the store has answered.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::{Message, ShardId, Text};
use dunlin_queue::{Delivery, Window};
use dunlin_store::limits::BATCH_OPS_MAX;
use dunlin_store::{Batch, Request, Seq, SessionKey, StoreDone, StoreOp, Target};
use hashbrown::HashMap;

use crate::ids::SessionRef;
use crate::owners::missing::Missing;
use crate::owners::pending::{Pending, PendingPublish, Rest, Work};
use crate::owners::posts::Posts;

/// Publishes that wait for other shards for which memory is kept while none does:
/// about as many as one batch of them has.
const PUBLISHES_KEPT: usize = 4096;

/// What has become of work that waited.
#[derive(Debug)]
// Few of them exist at a time, and most are the large one.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Done {
    /// The batch of this work was stored, or refused.
    Settled {
        /// Of the work.
        token: u64,
        pending: Pending,
        stored: bool,
    },
    /// Messages that a session wanted; those that are gone are `None`.
    Loaded {
        session: SessionRef,
        messages: Vec<(Seq, Option<Arc<Message>>)>,
    },
    /// Messages that a session wanted could not be read.
    LoadFailed { session: SessionRef },
    /// The store refused a request, for the log.
    Refused(Text),
}

/// Operations not yet given to the store, batches that it has, and work that
/// waits for them or for other shards.
///
/// Removals go in a batch of their own, ahead of the rest: when the disk is
/// full they must not fail with what needs room. They may go first because an
/// identifier is used again only after its removal was asked for.
#[derive(Debug)]
pub(crate) struct Commits {
    shard: ShardId,
    durable: bool,
    removals: Round,
    others: Round,
    /// Batches that hold together, after `others`.
    wholes: VecDeque<Whole>,
    /// Messages have moved from one queue to another in this round.
    moving: bool,
    /// The number of the round of `others`.
    round: u32,
    /// Batches that the store has; it answers them in order.
    sent: VecDeque<Sent>,
    /// Messages that the store is asked for, by token.
    loads: HashMap<u64, SessionRef>,
    /// Publishes that wait for other shards, by token, which rises; answers come
    /// mostly in that order.
    publishes: Window<u64, PendingPublish>,
    /// Other work that waits for other shards, by token.
    waiting: HashMap<u64, Pending>,
    /// Parts of publishes of other shards that this shard has prepared.
    prepared: HashMap<(ShardId, u64), Work>,
    /// By session: messages of it that are in another queue of the store, mostly
    /// that of a group.
    kept: HashMap<SessionKey, BTreeMap<u64, SessionKey>>,
    /// What the store refused and must have, to be asked for again. Bounded by
    /// what can be in flight.
    refused: Vec<Pending>,
    done: VecDeque<Done>,
    last_token: u64,
    last_seq: u64,
    pub(crate) posts: Posts,
    pub(crate) missing: Missing,
    #[cfg(test)]
    searches: core::cell::Cell<u64>,
}

/// One kind of operations.
#[derive(Debug, Default)]
struct Round {
    ops: Vec<StoreOp>,
    waiting: Vec<(u64, Pending)>,
    /// An earlier part of what was too much for one batch has failed.
    torn: bool,
}

impl Round {
    const fn is_idle(&self) -> bool {
        self.ops.is_empty() && self.waiting.is_empty()
    }
}

/// Operations that are stored in one batch, and the work that waits for it.
#[derive(Debug)]
struct Whole {
    ops: Vec<StoreOp>,
    token: u64,
    pending: Pending,
}

/// A batch that the store has.
#[derive(Debug)]
struct Sent {
    token: u64,
    waiting: Vec<(u64, Pending)>,
    removals: bool,
    /// More of the same round follows in the next batch of its kind.
    goes_on: bool,
}

/// Tokens of one incarnation of a shard: an answer to an earlier one means nothing here.
const INCARNATION_BITS: u32 = 46;

impl Commits {
    pub(crate) fn new(shard: ShardId, durable: bool, incarnation: u16) -> Self {
        Self {
            shard,
            durable,
            removals: Round::default(),
            others: Round::default(),
            wholes: VecDeque::new(),
            moving: false,
            round: 0,
            sent: VecDeque::new(),
            loads: HashMap::new(),
            publishes: Window::keeping(PUBLISHES_KEPT),
            waiting: HashMap::new(),
            prepared: HashMap::new(),
            kept: HashMap::new(),
            refused: Vec::new(),
            done: VecDeque::new(),
            last_token: (u64::from(incarnation) << INCARNATION_BITS) + 1,
            last_seq: 1,
            posts: Posts::new(incarnation),
            missing: Missing::default(),
            #[cfg(test)]
            searches: core::cell::Cell::default(),
        }
    }

    /// Whether there is a store.
    pub(crate) const fn is_durable(&self) -> bool {
        self.durable
    }

    /// A name for work that waits.
    pub(crate) const fn token(&mut self) -> u64 {
        self.last_token += 1;
        self.last_token
    }

    /// The number of the round that gathers now: what is written in one is stored or refused
    /// together.
    pub(crate) const fn round(&self) -> u32 {
        self.round
    }

    /// The last such name.
    pub(crate) const fn last_token(&self) -> u64 {
        self.last_token
    }

    /// A place in the order of stored messages.
    pub(crate) const fn seq(&mut self) -> Seq {
        self.last_seq += 1;
        Seq::new(self.last_seq, self.shard)
    }

    /// Places up to this one were given before a restart.
    pub(crate) fn skip_seqs(&mut self, last: Seq) {
        self.last_seq = self.last_seq.max(last.counter());
    }

    /// Has an operation done with the next batch.
    pub(crate) fn write(&mut self, op: StoreOp) {
        if !self.durable {
            return;
        }
        match op {
            // It may not go ahead of what it removes.
            StoreOp::Dequeue { .. } if self.moving => self.others.ops.push(op),
            StoreOp::Dequeue { .. }
            | StoreOp::DeleteInflight { .. }
            | StoreOp::DeleteInbound { .. }
            | StoreOp::DeleteMeta { .. } => self.removals.ops.push(op),
            _ => self.others.ops.push(op),
        }
    }

    /// As [`Commits::write`], but in one batch with what was written before and
    /// is written next in the same call, for any operation.
    pub(crate) fn write_together(&mut self, op: StoreOp) {
        if self.durable {
            self.others.ops.push(op);
        }
    }

    /// Has work go on when everything written so far in this round is stored.
    pub(crate) fn when_stored(&mut self, token: u64, pending: Pending) {
        match self.durable {
            true => self.others.waiting.push((token, pending)),
            false => self.settle_now(token, pending),
        }
    }

    /// Has these operations done in one batch of their own, which the caller has
    /// bounded, and work go on then.
    pub(crate) fn write_whole(&mut self, ops: Vec<StoreOp>, token: u64, pending: Pending) {
        match self.durable {
            true => self.wholes.push_back(Whole {
                ops,
                token,
                pending,
            }),
            false => self.settle_now(token, pending),
        }
    }

    /// As [`Commits::when_stored`], for a removal.
    pub(crate) fn when_removed(&mut self, token: u64, pending: Pending) {
        match self.durable {
            // Removals do not go ahead.
            true if self.moving => self.others.waiting.push((token, pending)),
            true => self.removals.waiting.push((token, pending)),
            false => self.settle_now(token, pending),
        }
    }

    fn settle_now(&mut self, token: u64, pending: Pending) {
        self.done.push_back(Done::Settled {
            token,
            pending,
            stored: true,
        });
    }

    /// Keeps a publish that waits for other shards.
    pub(crate) fn wait_publish(&mut self, token: u64, publish: PendingPublish) {
        self.publishes.insert(token, publish);
    }

    /// A publish that waits for other shards.
    pub(crate) fn publish_mut(&mut self, token: u64) -> Option<&mut PendingPublish> {
        #[cfg(test)]
        self.searches.set(self.searches.get() + 1);
        self.publishes.get_mut(token)
    }

    /// Takes a publish that waits for other shards.
    pub(crate) fn take_publish(&mut self, token: u64) -> Option<PendingPublish> {
        #[cfg(test)]
        self.searches.set(self.searches.get() + 1);
        self.publishes.take(token)
    }

    /// Visits messages that are on their way into queues by way of the store, or out of
    /// them.
    pub(crate) fn visit_due(&self, mut visit: impl FnMut(&Arc<Message>)) {
        let sent = self.sent.iter().flat_map(|sent| &sent.waiting);
        let waiting = self.others.waiting.iter().chain(sent);
        let waiting = waiting.map(|(_, pending)| pending);
        let waiting = waiting.chain(self.wholes.iter().map(|whole| &whole.pending));
        let publishes = self.publishes.iter().map(|(_, publish)| publish);
        let (mut works, mut rests) = (Vec::new(), Vec::new());
        for pending in waiting.chain(&self.refused) {
            match pending {
                Pending::Publish(publish) => rests.extend(publish.rest()),
                Pending::Promise(promise) => works.push(&promise.work),
                Pending::Bury(dead) => dead.delivery.held().into_iter().for_each(&mut visit),
                _ => {}
            }
        }
        rests.extend(publishes.filter_map(PendingPublish::rest));
        works.extend(self.prepared.values());
        let works = works.into_iter().flat_map(Work::due_and_retired);
        let rests = rests.into_iter().flat_map(Rest::deliveries);
        let all = works.chain(rests).filter_map(Delivery::held);
        all.for_each(visit);
    }

    /// Keeps other work that waits for other shards.
    pub(crate) fn wait(&mut self, token: u64, pending: Pending) {
        self.waiting.insert(token, pending);
    }

    /// Takes other work that waits for other shards.
    pub(crate) fn take(&mut self, token: u64) -> Option<Pending> {
        #[cfg(test)]
        self.searches.set(self.searches.get() + 1);
        self.waiting.remove(&token)
    }

    /// The part of another shard's publish that is prepared here, without its
    /// operations.
    pub(crate) fn prepared(&mut self, from: ShardId, token: u64) -> &mut Work {
        self.prepared.entry((from, token)).or_default()
    }

    /// Parts of a shard that is gone.
    pub(crate) fn take_prepared_of(&mut self, from: ShardId) -> Vec<Work> {
        let of = self.prepared.extract_if(|(shard, _), _| *shard == from);
        let mut of: Vec<_> = of.collect();
        of.sort_unstable_by_key(|((_, token), _)| *token);
        of.into_iter().map(|(_, work)| work).collect()
    }

    /// Deliveries of that part.
    pub(crate) fn prepared_deliveries(&self, from: ShardId, token: u64) -> usize {
        let prepared = self.prepared.get(&(from, token));
        prepared.map_or(0, Work::deliveries)
    }

    /// As [`Commits::prepared`], to be settled.
    pub(crate) fn take_prepared(&mut self, from: ShardId, token: u64) -> Option<Work> {
        self.prepared.remove(&(from, token))
    }

    /// A message of a session is in another queue of the store.
    pub(crate) fn keep(&mut self, session: SessionKey, seq: Seq, queue: SessionKey) {
        let kept = self.kept.entry(session).or_default();
        kept.insert(seq.0, queue);
    }

    /// Has the store move a message of a session from that other queue to the session,
    /// if it is in one and in memory.
    pub(crate) fn move_in(&mut self, session: SessionKey, delivery: &Delivery) {
        let kept = self.kept.get(&session);
        let queue = delivery.seq.and_then(|seq| kept?.get(&seq).copied());
        if let (Some(seq), Some(queue), Some(message)) = (delivery.seq, queue, delivery.held()) {
            let seq = Seq(seq);
            self.moving = true;
            self.write_together(StoreOp::Enqueue {
                seq,
                message: Arc::clone(message),
                targets: alloc::vec![target(session, delivery, None)],
            });
            self.write_together(StoreOp::Dequeue {
                seq,
                session: queue,
            });
        }
    }

    /// The queue in which the store has a message of a session: its own, or another
    /// one, which is forgotten with this.
    pub(crate) fn take_queue(&mut self, session: SessionKey, seq: Seq) -> SessionKey {
        if self.kept.is_empty() {
            return session;
        }
        let Some(kept) = self.kept.get_mut(&session) else {
            return session;
        };
        let queue = kept.remove(&seq.0);
        if kept.is_empty() {
            self.kept.remove(&session);
        }
        queue.unwrap_or(session)
    }

    /// Asks the store for messages of a session.
    pub(crate) fn load(&mut self, session: SessionRef, seqs: Vec<Seq>) -> Request {
        let token = self.token();
        self.loads.insert(token, session);
        Request::Load { token, seqs }
    }

    /// The round's batches, removals first.
    pub(crate) fn poll_batch(&mut self) -> Option<Batch> {
        let removals = !self.removals.is_idle();
        let token = self.last_token + 1;
        let round = match removals {
            true => &mut self.removals,
            false => &mut self.others,
        };
        if round.is_idle() {
            return self.poll_whole(token);
        }
        self.moving &= removals;
        self.last_token = token;
        let goes_on = round.ops.len() > BATCH_OPS_MAX;
        let (ops, waiting) = if goes_on {
            // Work waits for the last part of what it covers.
            let rest = round.ops.split_off(BATCH_OPS_MAX);
            (core::mem::replace(&mut round.ops, rest), Vec::new())
        } else {
            let ops = core::mem::take(&mut round.ops);
            self.round = self.round.wrapping_add(u32::from(!removals));
            (ops, core::mem::take(&mut round.waiting))
        };
        self.sent.push_back(Sent {
            token,
            waiting,
            removals,
            goes_on,
        });
        Some(Batch { token, ops })
    }

    fn poll_whole(&mut self, token: u64) -> Option<Batch> {
        let whole = self.wholes.pop_front()?;
        self.last_token = token;
        self.sent.push_back(Sent {
            token,
            waiting: alloc::vec![(whole.token, whole.pending)],
            removals: false,
            goes_on: false,
        });
        Some(Batch {
            token,
            ops: whole.ops,
        })
    }

    /// The store answered; [`Commits::poll`] says what follows.
    pub(crate) fn handle(&mut self, answer: StoreDone) {
        match answer {
            StoreDone::Committed { token } => self.handle_written(token, true),
            StoreDone::Failed { token, error } => {
                let text = Text::from(alloc::format!("{error}"));
                self.done.push_back(Done::Refused(text));
                match self.loads.remove(&token) {
                    Some(session) => self.done.push_back(Done::LoadFailed { session }),
                    None => self.handle_written(token, false),
                }
            }
            StoreDone::Loaded { token, messages } => {
                let session = self.loads.remove(&token);
                if let Some(session) = self.missing.checked(session) {
                    self.done.push_back(Done::Loaded { session, messages });
                }
            }
        }
    }

    /// A batch was stored, or not. What was too much for one batch is stored
    /// when all of its parts are.
    fn handle_written(&mut self, token: u64, stored: bool) {
        // The first, as the store answers in order.
        let at = self.sent.iter().position(|sent| sent.token == token);
        let sent = at.and_then(|at| self.sent.remove(at));
        let Some(sent) = self.missing.checked(sent) else {
            return;
        };
        let round = match sent.removals {
            true => &mut self.removals,
            false => &mut self.others,
        };
        let torn = core::mem::replace(&mut round.torn, false) || !stored;
        round.torn = torn && sent.goes_on;
        let settled = sent.waiting.into_iter();
        self.done
            .extend(settled.map(|(token, pending)| Done::Settled {
                token,
                pending,
                stored: !torn,
            }));
    }

    /// What goes on now.
    pub(crate) fn poll(&mut self) -> Option<Done> {
        self.done.pop_front()
    }

    /// Keeps what the store refused and must have; whether it is the first.
    pub(crate) fn keep_refused(&mut self, pending: Pending) -> bool {
        let first = self.refused.is_empty();
        self.refused.push(pending);
        first
    }

    /// What the store refused and is asked for again.
    pub(crate) fn take_refused(&mut self) -> Vec<Pending> {
        core::mem::take(&mut self.refused)
    }

    /// Whether the store has everything.
    pub(crate) fn is_idle(&self) -> bool {
        let rounds = self.removals.is_idle() && self.others.is_idle();
        rounds && self.wholes.is_empty() && self.sent.is_empty()
    }

    /// Requests that the store has not answered.
    pub(crate) fn unanswered(&self) -> usize {
        self.loads.len() + self.sent.len()
    }

    /// Work that waits for other shards or for the store.
    pub(crate) fn pending(&self) -> usize {
        let rounds = self.removals.waiting.len() + self.others.waiting.len() + self.wholes.len();
        let sent: usize = self.sent.iter().map(|sent| sent.waiting.len()).sum();
        let kept: usize = self.kept.values().map(BTreeMap::len).sum();
        self.publishes.len() + self.waiting.len() + rounds + sent + kept
    }

    /// Parts of other shards' publishes that wait for their outcome.
    pub(crate) fn prepared_len(&self) -> usize {
        self.prepared.len()
    }

    /// Searches since the last call.
    #[cfg(test)]
    pub(crate) fn take_searches(&self) -> u64 {
        self.searches.take()
    }
}

/// A delivery as the store gets it.
pub(crate) fn target(session: SessionKey, delivery: &Delivery, priority: Option<u8>) -> Target {
    Target {
        session,
        qos: delivery.qos,
        retain: delivery.retain,
        identifiers: delivery.identifiers.to_vec(),
        shared: delivery.share.as_deref().map(Text::from),
        failed: delivery.failed,
        priority,
        not_before: None,
        added: delivery.added.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin_store::StoreError;

    fn commits() -> Commits {
        Commits::new(ShardId(2), true, 0)
    }

    const KEY: SessionKey = SessionKey(9);

    fn removal() -> StoreOp {
        StoreOp::DeleteInbound {
            session: KEY,
            packet_id: 1,
        }
    }

    fn other() -> StoreOp {
        StoreOp::DeleteSession { key: KEY }
    }

    fn wait_for(commits: &mut Commits) -> u64 {
        let token = commits.token();
        let (session, client_id) = (KEY, Text::new());
        commits.when_stored(token, Pending::Forget { session, client_id });
        token
    }

    /// What goes on, as its token and whether it was stored.
    fn settled(commits: &mut Commits) -> Vec<(u64, bool)> {
        core::iter::from_fn(|| commits.poll())
            .filter_map(|done| match done {
                Done::Settled { token, stored, .. } => Some((token, stored)),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn removals_go_first_and_in_a_batch_of_their_own() {
        let mut commits = commits();
        commits.write(other());
        commits.write(removal());
        let first = commits.poll_batch().expect("removals");
        assert!(matches!(first.ops[..], [StoreOp::DeleteInbound { .. }]));
        let second = commits.poll_batch().expect("the rest");
        assert!(matches!(second.ops[..], [StoreOp::DeleteSession { .. }]));
        assert!(commits.poll_batch().is_none() && !commits.is_idle());
        // Written together, nothing is taken apart.
        commits.write_together(removal());
        commits.write_together(other());
        assert_eq!(commits.poll_batch().map(|batch| batch.ops.len()), Some(2));
    }

    #[test]
    fn work_waits_for_a_removal_that_may_not_go_ahead() {
        let mut commits = commits();
        commits.moving = true;
        commits.write(StoreOp::Dequeue {
            seq: Seq(7),
            session: KEY,
        });
        let token = commits.token();
        let (session, client_id) = (KEY, Text::new());
        commits.when_removed(token, Pending::Forget { session, client_id });
        let mut removed = false;
        while let Some(batch) = commits.poll_batch() {
            removed |= !batch.ops.is_empty();
            commits.handle(StoreDone::Committed { token: batch.token });
            let expected = removed.then_some((token, true));
            assert_eq!(settled(&mut commits).first(), expected.as_ref());
        }
        assert!(removed);
    }

    #[test]
    fn work_goes_on_when_its_batch_is_stored() {
        let mut commits = commits();
        commits.write(other());
        let token = wait_for(&mut commits);
        assert!(commits.poll().is_none());
        let batch = commits.poll_batch().expect("a batch");
        assert_eq!((commits.pending(), commits.unanswered()), (1, 1));
        commits.handle(StoreDone::Committed { token: batch.token });
        assert_eq!(settled(&mut commits), [(token, true)]);
        assert!(commits.is_idle());
        // Without a store it goes on at once.
        let mut memory = Commits::new(ShardId(0), false, 0);
        memory.write(other());
        let token = wait_for(&mut memory);
        assert_eq!(settled(&mut memory), [(token, true)]);
        assert!(memory.poll_batch().is_none());
    }

    #[test]
    fn what_is_too_much_for_one_batch_is_stored_when_all_of_it_is() {
        for (first_stored, want) in [(true, true), (false, false)] {
            let mut commits = commits();
            for _ in 0..=BATCH_OPS_MAX {
                commits.write_together(other());
            }
            let token = wait_for(&mut commits);
            let batches = [commits.poll_batch(), commits.poll_batch()];
            let [first, second] = batches.map(|batch| batch.expect("a batch"));
            assert_eq!((first.ops.len(), second.ops.len()), (BATCH_OPS_MAX, 1));
            let answer = |token, stored| match stored {
                true => StoreDone::Committed { token },
                false => StoreDone::Failed {
                    token,
                    error: StoreError::DiskFull,
                },
            };
            commits.handle(answer(first.token, first_stored));
            assert_eq!(settled(&mut commits), []);
            commits.handle(answer(second.token, true));
            assert_eq!(settled(&mut commits), [(token, want)]);
            // The next round is not torn.
            let token = wait_for(&mut commits);
            let batch = commits.poll_batch().expect("a batch");
            commits.handle(answer(batch.token, true));
            assert_eq!(settled(&mut commits), [(token, true)]);
        }
    }

    #[test]
    fn what_holds_together_is_one_batch_behind_the_rest() {
        let mut commits = commits();
        let token = commits.token();
        let (session, client_id) = (KEY, Text::new());
        let pending = Pending::Forget { session, client_id };
        let ops = alloc::vec![other(), removal()];
        commits.write_whole(ops, token, pending);
        commits.write(other());
        commits.write(removal());
        let batches: Vec<Batch> = core::iter::from_fn(|| commits.poll_batch()).collect();
        let sizes: Vec<usize> = batches.iter().map(|batch| batch.ops.len()).collect();
        assert_eq!((sizes, commits.pending()), (alloc::vec![1, 1, 2], 1));
        for batch in &batches {
            assert_eq!(settled(&mut commits), []);
            commits.handle(StoreDone::Committed { token: batch.token });
        }
        assert_eq!(settled(&mut commits), [(token, true)]);
        assert!(commits.is_idle());
    }

    #[test]
    fn what_was_refused_is_asked_for_once_more() {
        let mut commits = commits();
        let forget = || Pending::Forget {
            session: KEY,
            client_id: Text::new(),
        };
        assert!(commits.keep_refused(forget()));
        assert!(!commits.keep_refused(forget()));
        assert_eq!(commits.take_refused().len(), 2);
        assert!(commits.take_refused().is_empty());
    }

    #[test]
    fn places_and_names_go_on_after_a_restart() {
        let mut commits = commits();
        commits.skip_seqs(Seq::new(100, ShardId(1)));
        let seq = commits.seq();
        assert!(seq > Seq::new(100, ShardId(1)));
        assert_eq!(seq.counter(), 101);
        commits.skip_seqs(Seq::new(5, ShardId(1)));
        assert_eq!(commits.seq().counter(), 102);
    }
}
