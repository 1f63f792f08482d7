//! What a shard keeps of a node that links attach to: its queue, its links, and
//! who of them takes next.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

use dunlin_base::{Instant, Message, QoS, ShardId, StreamId, Text};
use dunlin_queue::{Content, Delivery, Next, Outcome, Queue, Settled};
use dunlin_store::SessionRecord;
use slab::Slab;

use crate::config::Config;
use crate::ids::SessionRef;
use crate::owners::common::{SessionCore, Standing};
use crate::owners::delayed::Delayed;
use crate::owners::end::{BROWSED_MAX, End, Found, Looks, Search, Seen};
use crate::owners::kind::SessionKind;
use crate::owners::routing::FILTERED;
use crate::owners::subscribers::Subscribed;
use crate::queues::calls::{Attach, Keep, Place, Use};
use crate::queues::options::{Kept, Overflow};
use crate::queues::orders::Asked;
use crate::wants::Wants;

/// Protocol of a node in its record.
pub(crate) const PROTOCOL: u8 = 10;

/// QoS 1 and Retain As Published: a message is once in a queue, however its
/// publisher sent it, and its consumers settle it. [`Node::binding`] has more.
pub(crate) const BINDING: Subscribed = Subscribed {
    options: 0b1001,
    restricted: false,
    identifier: 0,
    stream: StreamId::CONTROL,
};

/// Whether a node can be used.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Its record is on its way to the store, or its binding to other shards:
    /// these links wait for it, with the shards that they are on.
    Making(Vec<(ShardId, Attach)>),
    Ready,
}

/// A node: a named queue, a subscription that outlives its link, a dynamic node.
#[derive(Debug)]
pub(crate) struct Node {
    core: SessionCore,
    pub(crate) address: Text,
    pub(crate) stage: Stage,
    pub(crate) kept: Kept,
    /// Topic filters that bring messages.
    pub(crate) bindings: BTreeMap<Text, Subscribed>,
    pub(crate) queue: Queue,
    pub(crate) delayed: Delayed,
    pub(super) ends: Slab<End>,
    /// Those of them that do not want every message.
    searching: usize,
    /// What it wants of what its bindings bring, if not all.
    pub(crate) wants: Option<Wants>,
    /// Consumers that may have credit, in their turn.
    turns: VecDeque<usize>,
    /// Consumers that something is due for which they have had, or whose key is stored.
    pub(super) behind: VecDeque<usize>,
    /// Consumers that wait for the last message there is.
    pub(crate) drains: VecDeque<usize>,
    /// The link that made it, with its shard.
    pub(crate) maker: Option<(ShardId, SessionRef)>,
    /// When it ends, unless a link is attached before.
    pub(crate) expires: Option<Instant>,
    /// Messages that links have and have not settled.
    taken: usize,
    taken_bytes: usize,
    /// Messages that some consumers do not take, for the others.
    aside: VecDeque<Aside>,
    /// Who did not take a message that a link has, by its number and key.
    refusers: BTreeMap<(usize, u32), Vec<SessionRef>>,
    /// What a client has ordered and waits for.
    pub(crate) change: Option<Box<Change>>,
}

/// A message, and the links whose clients do not take it.
#[derive(Debug)]
struct Aside {
    delivery: Delivery,
    refusers: Vec<SessionRef>,
}

/// Messages of a queue that some consumers do not take; one more is dead.
const ASIDE_MAX: usize = 256;

/// A node is being made or changed for a client.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) asked: Asked,
    /// What it will be like, and bound to, when the store has that; `None`: it is
    /// being made.
    pub(crate) to: Option<(Kept, Vec<Text>)>,
}

impl Node {
    pub(crate) fn new(core: SessionCore, address: Text, kept: Kept) -> Self {
        let wants = Wants::parse(&kept.filter);
        Self {
            core,
            address,
            stage: Stage::Making(Vec::new()),
            kept,
            bindings: BTreeMap::new(),
            queue: Queue::default(),
            delayed: Delayed::default(),
            ends: Slab::new(),
            searching: 0,
            wants,
            turns: VecDeque::new(),
            behind: VecDeque::new(),
            drains: VecDeque::new(),
            maker: None,
            expires: None,
            taken: 0,
            taken_bytes: 0,
            aside: VecDeque::new(),
            refusers: BTreeMap::new(),
            change: None,
        }
    }

    /// What it is bound to topic filters by.
    pub(crate) fn binding(&self) -> Subscribed {
        Subscribed {
            options: BINDING.options | if self.wants.is_some() { FILTERED } else { 0 },
            ..BINDING
        }
    }

    pub(crate) const fn is_ready(&self) -> bool {
        matches!(self.stage, Stage::Ready)
    }

    /// What it is bound to and will not be, and the other way round.
    pub(crate) fn rebound(&self, topics: &[Text]) -> (Vec<Text>, Vec<Text>) {
        let old = self.bindings.keys();
        let gone = old.filter(|filter| !topics.contains(filter)).cloned();
        let new = topics
            .iter()
            .filter(|filter| !self.bindings.contains_key(filter.as_bytes()))
            .cloned();
        (gone.collect(), new.collect())
    }

    /// What the store keeps of it.
    pub(crate) fn record(&self) -> SessionRecord {
        SessionRecord {
            client_id: self.address.clone(),
            version: PROTOCOL,
            expiry_interval_secs: u32::MAX,
            disconnected_at: None,
            will: None,
            user_name: self.core.user.clone(),
            owner: match self.core.standing {
                Standing::Open | Standing::Server => Text::new(),
                Standing::Listed | Standing::Gone => self.core.user.clone().unwrap_or_default(),
            },
            options: self.kept.encode(),
        }
    }

    /// Whether so many copies of a message of `cost` bytes fit.
    pub(crate) fn fits(&self, copies: usize, cost: usize) -> bool {
        let options = &self.kept.options;
        let (messages, bytes) = (self.delayed.len(), self.delayed.bytes());
        let messages_max = options.messages_max.saturating_sub(self.taken + messages);
        let bytes_max = options.bytes_max.saturating_sub(self.taken_bytes + bytes);
        self.is_ready() && self.queue.has_room(copies, cost, messages_max, bytes_max)
    }

    pub(crate) fn attach(
        &mut self,
        link: (ShardId, SessionRef),
        wants: Use,
        search: Option<Wants>,
        keep: Option<Keep>,
    ) -> usize {
        // What is there now, as far as it is in memory.
        let held = self.queue.browse().filter_map(|delivery| {
            let Content::Held(message) = &delivery.content else {
                return None;
            };
            let message = Arc::downgrade(message);
            Some((message, delivery.failed, delivery.added.clone()))
        });
        let mut end = End::new(link, wants, search);
        if wants == Use::Browse {
            end.browsed.extend(held.take(BROWSED_MAX));
        }
        let is_durable = keep.as_ref().is_some_and(|keep| keep.durable);
        end.consumer.set_recording(is_durable);
        end.keep = keep;
        self.searching += usize::from(end.search.is_some());
        self.ends.insert(end)
    }

    /// What a link wants of the messages from now on, if not all.
    pub(crate) fn set_search(&mut self, at: usize, wants: Option<Wants>) {
        if let Some(end) = self.ends.get_mut(at) {
            self.searching -= usize::from(end.search.is_some());
            end.search = wants.map(|wants| Box::new(Search::new(wants)));
            self.searching += usize::from(end.search.is_some());
        }
    }

    /// The link of a place, if it is still there.
    pub(crate) fn end_mut(&mut self, from: ShardId, place: Place) -> Option<&mut End> {
        let end = self.ends.get_mut(place.end)?;
        ((end.shard, end.link) == (from, place.link)).then_some(end)
    }

    pub(crate) fn at(&mut self, end: usize) -> Option<&mut End> {
        self.ends.get_mut(end)
    }

    /// A link, with what there is for it.
    pub(crate) fn at_queue(&mut self, end: usize) -> Option<(&mut End, &Queue)> {
        Some((self.ends.get_mut(end)?, &self.queue))
    }

    pub(crate) fn ends(&self) -> impl Iterator<Item = (usize, &End)> {
        self.ends.iter()
    }

    /// Links that are attached.
    pub(crate) fn links(&self) -> usize {
        let attached = self.ends.iter().filter(|(_, end)| end.away.is_none());
        attached.count()
    }

    /// Whether some consumer may have credit.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Messages that wait, also for their time.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len() + self.delayed.len()
    }

    /// Takes the message out that is the next one to leave.
    pub(crate) fn remove_next(&mut self) -> Option<Delivery> {
        let queued = self.queue.remove_front();
        queued.or_else(|| self.delayed.take_first())
    }

    /// Whether there is no message, waiting or not settled.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.expected() + self.delayed.len() + self.taken == 0
    }

    /// Forgets a link, all of whose messages are settled.
    pub(crate) fn remove(&mut self, end: usize) -> Option<End> {
        self.turns.retain(|turn| *turn != end);
        self.drains.retain(|drain| *drain != end);
        let end = self.ends.try_remove(end)?;
        self.searching -= usize::from(end.search.is_some());
        Some(end)
    }

    /// A link is gone but for messages whose outcome is still to come: it takes no
    /// more.
    pub(crate) fn leave(&mut self, at: usize, how: (bool, bool)) {
        self.turns.retain(|turn| *turn != at);
        self.drains.retain(|drain| *drain != at);
        if let Some(end) = self.ends.get_mut(at) {
            end.use_up();
            end.waits = false;
            end.left = Some(how);
        }
    }

    /// Keys of messages that a link has and has not settled.
    pub(crate) fn unsettled(&self, end: usize) -> Vec<u32> {
        let end = self.ends.get(end);
        end.map(|end| end.consumer.keys().collect())
            .unwrap_or_default()
    }

    /// A message that a link has and has not settled.
    pub(crate) fn delivery(&self, end: usize, key: u32) -> Option<&Delivery> {
        self.ends.get(end)?.consumer.delivery(key)
    }

    /// Messages up to this key may be handed to a link.
    pub(crate) fn set_limit(&mut self, at: usize, limit: u32, drain: bool) {
        if let Some(end) = self.ends.get_mut(at) {
            end.limit = limit;
            if drain && !end.drain {
                self.drains.push_back(at);
            }
            end.drain = drain;
        }
        self.wait(at);
    }

    /// The next message that a link sees, with its key there.
    pub(crate) fn see(
        &mut self,
        at: usize,
        now: Instant,
        looks: &mut Looks,
    ) -> Option<(u32, Seen)> {
        let end = self.ends.get_mut(at)?;
        let seen = end.see(looks, now)?;
        Some((end.last_key, seen))
    }

    /// Whether some link has not looked at everything, and goes on after a while.
    pub(crate) fn is_paused(&self) -> bool {
        let mut searches = self.ends.iter().filter_map(|(_, end)| end.search.as_ref());
        self.searching > 0 && searches.any(|search| search.paused)
    }

    /// A consumer may have credit again.
    fn wait(&mut self, at: usize) {
        if let Some(end) = self.ends.get_mut(at)
            && end.away.is_none()
            && matches!(end.wants, Use::Take { .. })
            && !core::mem::replace(&mut end.waits, true)
        {
            self.turns.push_back(at);
        }
    }

    /// What comes next, for the consumer whose turn it is.
    pub(crate) fn next(
        &mut self,
        now: Instant,
        unsettled_max: usize,
        looks: &mut Looks,
    ) -> Option<(usize, Next<u32>)> {
        if let Some(next) = self.next_due(now) {
            return Some(next);
        }
        // Consumers in a row that have found nothing.
        let mut idle = 0;
        while idle < self.turns.len()
            && let Some(at) = self.turns.front().copied()
        {
            let credit = self.ends.get(at).map_or(0, |end| end.credit(unsettled_max));
            if credit == 0 {
                self.turns.pop_front();
                if let Some(end) = self.ends.get_mut(at) {
                    end.waits = false;
                }
                continue;
            }
            let next = match self.next_aside(at, now, credit, looks) {
                Some(next) => Some(next),
                None => self.next_queued(at, now, credit, looks),
            };
            if let Some(next) = next {
                if matches!(next, Next::Send(_)) {
                    self.turns.rotate_left(1);
                }
                return Some((at, next));
            }
            if self.searching == 0 {
                return None;
            }
            self.turns.rotate_left(1);
            idle += 1;
        }
        None
    }

    /// What comes next for a consumer that has credit.
    fn next_queued(
        &mut self,
        at: usize,
        now: Instant,
        credit: usize,
        looks: &mut Looks,
    ) -> Option<Next<u32>> {
        let buries = self.kept.options.dead_letter.is_some();
        if self.ends.get(at)?.search.is_none() {
            return self.with(at, |end, queue| {
                // One that is past its time is needed to be dead.
                let is_stored = |it: &Delivery| matches!(it.content, Content::Stored { .. });
                let is_dead = buries && queue.is_front_expired(now);
                if is_dead && queue.front().is_some_and(is_stored) {
                    return queue.must_load_front().then_some(Next::Load);
                }
                end.poll(queue, now, credit)
            });
        }
        loop {
            let found = self.with(at, |end, queue| Some(end.search(queue, looks, now, buries)))?;
            let place = match found {
                Found::Next(next) => return Some(next),
                Found::Nothing => return None,
                Found::Back(place) => place,
            };
            let others = self.ends.iter_mut().filter(|(other, _)| *other != at);
            for search in others.filter_map(|(_, end)| end.search.as_mut()) {
                search.looked.note_back(place);
            }
        }
    }

    /// The first message that others did not take, for a consumer that may.
    fn next_aside(
        &mut self,
        at: usize,
        now: Instant,
        credit: usize,
        looks: &mut Looks,
    ) -> Option<Next<u32>> {
        let End { link, search, .. } = self.ends.get_mut(at)?;
        let mut aside = self.aside.iter();
        let place = aside.position(|it| {
            !it.refusers.contains(link)
                && match (search.as_mut(), &it.delivery.content) {
                    (None, _) => true,
                    (Some(search), Content::Held(message)) => {
                        search.look(looks, message, now) == Some(true)
                    }
                    (Some(_), Content::Stored { .. }) => false,
                }
        })?;
        let Aside { delivery, refusers } = self.take_aside(place)?;
        let mut one = Queue::default();
        one.push(delivery);
        let next = self.with(at, |end, _| end.poll(&mut one, now, credit));
        if let Some(delivery) = one.remove_front() {
            self.set_aside(delivery, refusers);
        } else if let Some(Next::Send(transfer)) = &next {
            self.refusers.insert((at, transfer.key), refusers);
        }
        next
    }

    fn take_aside(&mut self, place: usize) -> Option<Aside> {
        let aside = self.aside.remove(place)?;
        self.taken = self.taken.saturating_sub(1);
        let bytes = cost(&aside.delivery);
        self.taken_bytes = self.taken_bytes.saturating_sub(bytes);
        Some(aside)
    }

    /// Keeps a message for other consumers than these.
    pub(crate) fn set_aside(&mut self, delivery: Delivery, refusers: Vec<SessionRef>) {
        self.taken += 1;
        self.taken_bytes += cost(&delivery);
        self.aside.push_back(Aside { delivery, refusers });
        let others: Vec<usize> = self.ends.iter().map(|(at, _)| at).collect();
        for at in others {
            self.wait(at);
        }
    }

    /// Who does not take a message that leaves its link with this outcome.
    pub(crate) fn take_refusers(
        &mut self,
        at: usize,
        key: u32,
        outcome: Outcome,
    ) -> Vec<SessionRef> {
        let mut refusers = self.refusers.remove(&(at, key)).unwrap_or_default();
        let refuses = matches!(
            outcome,
            Outcome::Modified {
                undeliverable_here: true,
                ..
            }
        );
        let link = self.ends.get(at).map(|end| end.link);
        refusers.extend(link.filter(|_| refuses));
        refusers
    }

    /// Whether there is a consumer besides these, and room for what it may take.
    pub(crate) fn may_set_aside(&self, refusers: &[SessionRef]) -> bool {
        self.aside.len() < ASIDE_MAX && self.has_other(refusers)
    }

    fn has_other(&self, refusers: &[SessionRef]) -> bool {
        let takes = |end: &End| end.away.is_none() && matches!(end.wants, Use::Take { .. });
        let mut ends = self.ends.iter().map(|(_, end)| end);
        ends.any(|end| takes(end) && !refusers.contains(&end.link))
    }

    /// A consumer has gone: messages that none of those left takes, which are dead.
    /// Where none is left, all of them wait for others.
    pub(crate) fn take_stranded(&mut self) -> Vec<Delivery> {
        let is_left = self.has_other(&[]);
        let mut dead = Vec::new();
        for _ in 0..self.aside.len() {
            let Some(Aside { delivery, refusers }) = self.take_aside(0) else {
                break;
            };
            match is_left {
                false => self.queue.push(delivery),
                true if self.has_other(&refusers) => self.set_aside(delivery, refusers),
                true => dead.push(delivery),
            }
        }
        dead
    }

    /// What the receivers of a message have added to it.
    pub(crate) fn add(&mut self, at: usize, key: u32, added: Arc<[u8]>) {
        if let Some(end) = self.ends.get_mut(at) {
            end.consumer.add(key, added);
        }
    }

    /// A message leaves its link with an outcome.
    pub(crate) fn settle(&mut self, at: usize, key: u32, outcome: Outcome) -> Settled {
        self.refusers.remove(&(at, key));
        let settled = self.with(at, |end, queue| {
            Some(end.consumer.settle(queue, key, outcome))
        });
        self.wait(at);
        settled.unwrap_or(Settled::Unknown)
    }

    /// Something with the messages of a link, which are counted after it.
    pub(super) fn with<R>(
        &mut self,
        at: usize,
        work: impl FnOnce(&mut End, &mut Queue) -> Option<R>,
    ) -> Option<R> {
        let end = self.ends.get_mut(at)?;
        let (len, bytes) = (end.consumer.len(), end.consumer.bytes());
        let done = work(end, &mut self.queue);
        self.taken = (self.taken + end.consumer.len()).saturating_sub(len);
        self.taken_bytes = (self.taken_bytes + end.consumer.bytes()).saturating_sub(bytes);
        done
    }
}

/// Bytes that a delivery takes.
fn cost(delivery: &Delivery) -> usize {
    match &delivery.content {
        Content::Held(message) => message.cost(),
        Content::Stored { .. } => 0,
    }
}

impl SessionKind for Node {
    fn queue(&self) -> &Queue {
        &self.queue
    }

    fn queue_mut(&mut self) -> &mut Queue {
        &mut self.queue
    }

    fn push(&mut self, delivery: Delivery, now: Instant) {
        let message = delivery.held();
        match message.and_then(|message| self.keeps_back(message, now)) {
            Some(until) => self.delayed.insert(until, delivery),
            None => self.queue.push(delivery),
        }
    }

    fn keeps_back(&self, message: &Message, now: Instant) -> Option<Instant> {
        let extra = message.extra.as_ref()?;
        extra.deliver_at.filter(|at| *at > now)
    }

    fn has_room(&self, copies: usize, cost: usize, _: usize, _: usize) -> bool {
        self.fits(copies, cost)
    }

    fn held_bytes(&self) -> usize {
        let places = self.delayed.len() * PLACE_BYTES;
        self.queue.bytes() + self.taken_bytes + self.delayed.bytes() + places
    }

    fn visit_held(&self, visit: impl FnMut(&Arc<Message>)) {
        let taken = self.ends.iter().flat_map(|(_, end)| end.consumer.held());
        let aside = self.aside.iter();
        let aside = aside.filter_map(|it| match &it.delivery.content {
            Content::Held(message) => Some(message),
            Content::Stored { .. } => None,
        });
        let all = self.queue.held().chain(taken).chain(aside);
        let all = all.chain(self.delayed.held());
        all.for_each(visit);
    }

    fn in_flight(&self) -> usize {
        self.taken
    }

    fn take_shared(&mut self, _: bool) -> Vec<Delivery> {
        Vec::new()
    }

    fn handle_loaded(&mut self, messages: &[(u64, Option<Arc<Message>>)]) {
        self.queue.end_loading();
        for (seq, message) in messages {
            if !self.handle_loaded_due(*seq, message.as_ref()) {
                self.queue.handle_loaded(*seq, message.as_ref());
            }
        }
    }

    fn subscription(&self, filter: &str) -> Option<Subscribed> {
        self.bindings.get(filter.as_bytes()).copied()
    }

    fn subscriptions(&self) -> Vec<(Text, Subscribed)> {
        let all = self.bindings.iter();
        all.map(|(filter, it)| (filter.clone(), *it)).collect()
    }

    fn take_subscriptions(&mut self) -> Vec<Text> {
        core::mem::take(&mut self.bindings).into_keys().collect()
    }

    fn is_persistent(&self) -> bool {
        self.kept.options.durable
    }

    fn rank(&self, _: u8, message: &Message) -> (u8, Option<u8>) {
        let priority = message.extra.as_ref().and_then(|extra| extra.priority);
        (self.kept.options.level(priority), priority)
    }

    fn refuses(&self, _: &Config, _: QoS) -> bool {
        self.kept.options.overflow == Overflow::Reject
    }

    fn subscription_bytes(&self) -> usize {
        let bindings = self.bindings.keys();
        let bindings = bindings.map(|filter| binding_bytes(filter));
        let searches = self.ends.iter().filter_map(|(_, end)| end.search.as_ref());
        let searches = searches.map(|search| search.bytes());
        let wants = self.wants.as_ref().map(Wants::bytes);
        let all: usize = bindings.chain(searches).chain(wants).sum();
        all + self.away_bytes()
    }

    fn wants(&self, message: &Message, now: Instant) -> bool {
        let wants = self.wants.as_ref();
        wants.is_none_or(|wants| wants.look(message, now).0)
    }
}

/// What a filter takes here and in the tree, about.
pub(crate) const fn binding_bytes(filter: &str) -> usize {
    BINDING_BYTES + BINDING_COPIES * filter.len()
}

/// What a message takes besides itself that is kept back.
const PLACE_BYTES: usize = 192;

/// What a binding takes besides its text.
const BINDING_BYTES: usize = 384;

/// How often its text is kept.
const BINDING_COPIES: usize = 3;

impl Deref for Node {
    type Target = SessionCore;

    fn deref(&self) -> &SessionCore {
        &self.core
    }
}

impl DerefMut for Node {
    fn deref_mut(&mut self) -> &mut SessionCore {
        &mut self.core
    }
}
