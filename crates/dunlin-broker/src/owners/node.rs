//! What a shard keeps of a node that links attach to: its queue, its links, and
//! who of them takes next.

mod turns;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

use dunlin_base::{Instant, Message, QoS, ShardId, StreamId, Text};
use dunlin_queue::{Content, Delivery, Outcome, Queue, Settled, State};
use dunlin_store::SessionRecord;
use slab::Slab;

use crate::config::Config;
use crate::ids::SessionRef;
use crate::owners::aside::{Aside, cost};
use crate::owners::common::{SessionCore, Standing};
use crate::owners::delayed::Delayed;
use crate::owners::end::{BROWSED_MAX, End, ScanBudget, Search, Seen};
use crate::owners::kind::SessionKind;
use crate::owners::leaving::LeavingFilters;
use crate::owners::room::Room;
use crate::owners::routing::FILTERED;
use crate::owners::senders::Senders;
use crate::owners::subscribers::Subscribed;
use crate::queues::calls::{Attach, Keep, Place, Use};
use crate::queues::options::{Kept, Overflow};
use crate::queues::orders::Asked;
use crate::wants::Wants;

/// Protocol of a node in its record.
pub(crate) const PROTOCOL: u8 = 10;

/// In front of the address of a node whose messages are published when their time comes.
pub(crate) const WAITING: &str = "/delayed/";

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
    /// It can be used, and its record is on its way to the store: with what it gets and,
    /// if `alone`, by itself.
    Storing {
        alone: bool,
    },
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
    /// Credit of those that send.
    pub(crate) senders: Senders,
    /// Consumers that may have credit, in their turn.
    turns: VecDeque<usize>,
    /// Consumers that something is due for which they have had, or whose key is stored.
    pub(super) behind: VecDeque<usize>,
    /// Consumers that wait for the last message there is.
    pub(crate) drains: VecDeque<usize>,
    /// The link that its end depends on, with its shard: who made it or, where it stays
    /// for a while without links, who left it last.
    pub(crate) holder: Option<(ShardId, SessionRef)>,
    /// When it ends, unless a link is attached before.
    pub(crate) expires: Option<Instant>,
    pub(crate) taken: Taken,
    /// Messages that some consumers do not take, for the others.
    pub(crate) aside: Aside,
    /// Who did not take a message that a link has, by its number and key.
    refusers: BTreeMap<(usize, u32), Vec<SessionRef>>,
    /// What a client has ordered and waits for.
    pub(crate) change: Option<Box<Change>>,
}

/// Messages of a node that are not in its queue.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Those that links have and have not settled.
    messages: usize,
    bytes: usize,
    /// Those that are leaving, in a commit or to the queue for the dead, and may come
    /// back.
    leaving: usize,
    leaving_bytes: usize,
    /// Those on their way to the store in one batch with the record of the node.
    recording: usize,
}

impl Taken {
    /// A message is leaving, in a batch of the store that is not decided.
    pub(crate) fn begin_leaving(&mut self, delivery: &Delivery) {
        self.leaving += 1;
        self.leaving_bytes += cost(delivery);
    }

    /// It has left, or is about to come back.
    pub(crate) fn end_leaving(&mut self, delivery: &Delivery) {
        self.leaving = self.leaving.saturating_sub(1);
        self.leaving_bytes = self.leaving_bytes.saturating_sub(cost(delivery));
    }

    /// Messages that are not settled, and those that are leaving; and their bytes in memory.
    const fn all(&self) -> (usize, usize) {
        let messages = self.messages + self.leaving;
        (messages, self.bytes + self.leaving_bytes)
    }

    /// A message takes the record of the node with it to the store.
    pub(crate) const fn begin_recording(&mut self) {
        self.recording += 1;
    }

    /// The batch of such a message is stored, or off.
    pub(crate) const fn end_recording(&mut self) {
        self.recording = self.recording.saturating_sub(1);
    }

    /// Whether the store may still get the record as it was for such a message.
    pub(crate) const fn is_recording(&self) -> bool {
        self.recording > 0
    }
}

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
        let wants = kept.wants(core.user.as_ref());
        let publishes = address.starts_with(WAITING);
        Self {
            core,
            address,
            stage: Stage::Making(Vec::new()),
            kept,
            bindings: BTreeMap::new(),
            queue: Queue::default(),
            delayed: Delayed::new(publishes),
            ends: Slab::new(),
            searching: 0,
            wants,
            senders: Senders::default(),
            turns: VecDeque::new(),
            behind: VecDeque::new(),
            drains: VecDeque::new(),
            holder: None,
            expires: None,
            taken: Taken::default(),
            aside: Aside::default(),
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
        !matches!(self.stage, Stage::Making(_))
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
                Standing::Open | Standing::Server | Standing::Unproved => Text::new(),
                Standing::Listed | Standing::Gone => self.core.user.clone().unwrap_or_default(),
            },
            options: self.kept.encode(),
        }
    }

    /// What it has of what it may have.
    pub(crate) fn room(&self) -> Room {
        let options = &self.kept.options;
        let (messages, bytes) = (self.queue.expected(), self.queue.expected_bytes());
        let (taken, taken_bytes) = self.taken.all();
        let messages = messages + taken + self.delayed.len() + self.aside.len();
        let delayed = match self.delayed.publishes {
            true => self.delayed.all_bytes(),
            false => self.delayed.bytes(),
        };
        let bytes = bytes + taken_bytes + delayed + self.aside.bytes();
        Room {
            messages: (messages, options.messages_max),
            bytes: (bytes, options.bytes_max),
        }
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

    /// Whether there is no message: waiting, not settled or leaving.
    pub(crate) fn is_empty(&self) -> bool {
        let taken = self.in_flight() + self.taken.leaving;
        self.queue.expected() + self.delayed.len() + taken == 0
    }

    /// Forgets a link, all of whose messages are settled.
    pub(crate) fn remove(&mut self, end: usize) -> Option<End> {
        self.turns.retain(|turn| *turn != end);
        self.drains.retain(|drain| *drain != end);
        self.senders.remove(end);
        let end = self.ends.try_remove(end)?;
        self.searching -= usize::from(end.search.is_some());
        Some(end)
    }

    /// A link is gone but for messages whose outcome is still to come: it takes no
    /// more.
    pub(crate) fn leave(&mut self, at: usize, how: (bool, bool)) {
        self.turns.retain(|turn| *turn != at);
        self.drains.retain(|drain| *drain != at);
        self.senders.remove(at);
        if let Some(end) = self.ends.get_mut(at) {
            end.use_up();
            end.waits = false;
            end.left = Some(how);
            end.again = Vec::new();
            end.consumer.rest();
            let consumer = &end.consumer;
            let keys = consumer.keys();
            end.late = keys
                .filter(|key| consumer.state(*key) == Some(State::Acquired))
                .collect();
        }
    }

    /// Keys of messages that a link has and has not settled.
    pub(crate) fn unsettled(&self, end: usize) -> Vec<u32> {
        let end = self.ends.get(end);
        end.map(|end| end.consumer.keys().collect())
            .unwrap_or_default()
    }

    /// A message that a link has had and has not settled; not one whose key the store
    /// is being asked to keep.
    pub(crate) fn delivery(&self, end: usize, key: u32) -> Option<&Delivery> {
        let consumer = &self.ends.get(end)?.consumer;
        let delivery = consumer.delivery(key)?;
        (consumer.state(key) != Some(State::Acquired)).then_some(delivery)
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
        budget: &mut ScanBudget,
    ) -> Option<(u32, Seen)> {
        let end = self.ends.get_mut(at)?;
        let seen = end.see(budget, now)?;
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
        self.taken.messages = (self.taken.messages + end.consumer.len()).saturating_sub(len);
        self.taken.bytes = (self.taken.bytes + end.consumer.bytes()).saturating_sub(bytes);
        done
    }
}

/// Bindings are to plain filters.
impl LeavingFilters for BTreeMap<Text, Subscribed> {
    fn take(&mut self, max: usize) -> Vec<Text> {
        let first = core::iter::from_fn(|| self.pop_first());
        first.take(max).map(|(filter, _)| filter).collect()
    }

    fn is_empty(&self) -> bool {
        Self::is_empty(self)
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
        self.is_ready() && self.room().fits(copies, cost)
    }

    fn held_bytes(&self) -> usize {
        let queue = self.queue.expected_bytes() + self.queue.loading_bytes();
        let (_, taken) = self.taken.all();
        let held = queue + taken;
        held + self.aside.bytes() + self.delayed.bytes() + self.place_bytes()
    }

    fn place_bytes(&self) -> usize {
        self.delayed.len() * PLACE_BYTES + self.queue.passed_bytes()
    }

    fn visit_held(&self, visit: impl FnMut(&Arc<Message>)) {
        let taken = self.ends.iter().flat_map(|(_, end)| end.consumer.held());
        let all = self.queue.held().chain(taken).chain(self.aside.held());
        let all = all.chain(self.delayed.held());
        all.for_each(visit);
    }

    fn in_flight(&self) -> usize {
        self.taken.messages + self.aside.len()
    }

    fn take_shared(&mut self, _: bool) -> Vec<Delivery> {
        Vec::new()
    }

    fn handle_loaded(&mut self, messages: &[(u64, Option<Arc<Message>>)]) {
        self.queue.end_loading();
        for (seq, message) in messages {
            let message = message.as_ref();
            if !self.handle_loaded_due(*seq, message) && !self.aside.handle_loaded(*seq, message) {
                self.queue.handle_loaded(*seq, message);
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

    fn subscriptions_len(&self) -> usize {
        self.bindings.len()
    }

    fn take_subscriptions(&mut self) -> Box<dyn LeavingFilters> {
        Box::new(core::mem::take(&mut self.bindings))
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

/// Messages that are leaving a node, or are being loaded for that.
pub(crate) fn leaving(node: &Node) -> usize {
    node.taken.leaving + node.aside.leaving()
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
