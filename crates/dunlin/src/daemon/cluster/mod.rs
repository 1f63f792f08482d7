//! A node of a cluster: one broker on several machines. One node, the *home*, has what is
//! durable, in a log in NATS; the others are *edges*, which have connections and the
//! sessions that end with them, and wait as standbys to be the home.
//!
//! [`Nodes`] hears what happens on the bus and gives it to the shards that this node has at
//! the moment, [`Far`](far::Far) sends what they have for those of others.

pub(crate) mod far;
mod frame;
pub(crate) mod relay;
mod roster;
pub(crate) mod tickets;
mod view;

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use dunlin_base::ShardId;
use dunlin_broker::{Config, Homes, bus};
use dunlin_bus::limits::{ANNOUNCE_BYTES, LINK_BYTES_MAX, NODES_MAX};
use dunlin_bus::{Batch, Event, Member, Peer};
use dunlin_net::{Clock, NetConfig, NetKeys, TicketRegister};

use super::StartError;
use super::changes::Changes;
use super::mailbox::{Address, Addresses, BusBatch, INBOX_BYTES_MAX, Mail};
use crate::config::cluster::SHARDS_MAX;
use crate::control::cluster::Known;
use crate::metrics::{LogViews, Readiness};
use far::{Change, Far, Linked};
use frame::{Frame, Home, Run};
use relay::{Entry, Relayed};
use roster::{Roster, Step};
use tickets::{Copies, Desk, To};
use view::Joined;

/// Bytes in the inbox of a shard here from which on datagrams of other nodes for it are dropped:
/// less than makes other shards stop reading.
const RELAY_INBOX_BYTES: usize = INBOX_BYTES_MAX / 4;

/// The shards of a node: from its number times [`SHARDS_MAX`] on.
pub(super) fn shards_of(node: u16, count: u16) -> impl Iterator<Item = ShardId> {
    let first = first_of(node).0;
    (0..count.min(SHARDS_MAX)).map(move |at| ShardId(first + at))
}

/// The first shard of a node.
pub(super) const fn first_of(node: u16) -> ShardId {
    ShardId(node.saturating_mul(SHARDS_MAX))
}

/// The node of a shard.
pub(super) const fn node_of(shard: ShardId) -> u16 {
    shard.0 / SHARDS_MAX
}

/// Bytes on their way to a node from which on datagrams of clients and copies of tickets for it
/// are dropped: half of what makes its link full, so that they alone have no client wait. What a
/// receiver may have taken without saying so is less.
const SPARE_BYTES_MAX: usize = LINK_BYTES_MAX / 2;

const _: () = assert!(SPARE_BYTES_MAX as u64 > ANNOUNCE_BYTES + (2 << 20));

/// Whether something may be handed over for a node that it can do without.
fn has_spare_room(peer: &Peer) -> bool {
    peer.load() < SPARE_BYTES_MAX
}

/// What a node is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Go on.
    Nothing,
    /// Begin to serve as an edge: there is a home.
    Edge,
    /// End what it serves: the home is gone, or the other nodes cannot be reached.
    End,
    /// Join the cluster again.
    Rejoin,
}

/// Where shards of this process stand among all.
#[derive(Clone, Debug)]
pub(crate) struct Place(Option<Within>);

/// Where those of a node stand.
#[derive(Clone, Debug)]
struct Within {
    nodes: Arc<Nodes>,
    /// This node.
    here: u16,
    /// What is begun.
    run: Run,
    /// Which shards are homes.
    homes: Homes,
}

impl Place {
    /// There are no others.
    pub(crate) const fn alone() -> Self {
        Self(None)
    }

    /// The number of the first one here.
    pub(crate) fn first(&self) -> ShardId {
        self.0.as_ref().map_or(ShardId(0), |it| first_of(it.here))
    }

    /// The node with the homes.
    pub(crate) fn home(&self) -> u16 {
        self.0.as_ref().map_or(0, |it| it.run.home.node)
    }

    /// Whether what is durable is at another node.
    fn is_edge(&self) -> bool {
        self.0
            .as_ref()
            .is_some_and(|it| it.here != it.run.home.node)
    }

    /// Settings of a shard here.
    pub(crate) fn settle(&self, config: Config) -> Config {
        let Some(it) = &self.0 else {
            return config;
        };
        Config {
            nodes: dunlin_broker::Nodes {
                homes: Some(it.homes),
                // What tells shards of one run from those of another.
                incarnation: it.run.number as u16,
                ..config.nodes
            },
            durable: config.durable && !self.is_edge(),
            ..config
        }
    }

    /// The ways of a shard here to those of other nodes. That it serves is said to `ready`.
    pub(crate) fn far(&self, ready: &Arc<Readiness>) -> Far {
        let nodes = self.0.as_ref().map(|it| Arc::clone(&it.nodes));
        Far::new(nodes, self.is_edge().then(|| Arc::clone(ready)))
    }

    /// Settings of a loop here: its datagrams may be of other nodes.
    pub(crate) fn settle_net(&self, config: &mut NetConfig) {
        config.first = self.first();
        if self.0.is_some() {
            let known = first_of(1).0..first_of(NODES_MAX + 1).0;
            config.known = Some(known);
        }
    }

    /// The keys of QUIC that all nodes have.
    pub(crate) fn net_keys(&self) -> Option<NetKeys> {
        self.0.as_ref().map(|it| it.nodes.keys.clone())
    }

    /// Whether session tickets are kept by another node.
    pub(crate) fn asks_for_tickets(&self) -> bool {
        self.is_edge()
    }

    /// What the thread of session tickets does where another node keeps them.
    pub(crate) fn ask_home(
        &self,
        register: &Arc<TicketRegister>,
        shards: &Addresses,
        changes: &Arc<Changes>,
    ) -> Option<Box<dyn FnOnce() + Send>> {
        let it = self.0.as_ref().filter(|_| self.is_edge())?;
        it.nodes.open_desk(register, shards, changes, false);
        let (nodes, here) = (Arc::clone(&it.nodes), it.here);
        let (changes, register) = (Arc::clone(changes), Arc::downgrade(register));
        Some(Box::new(move || {
            tickets::ask_home(&nodes, here, &changes, &register);
        }))
    }

    /// How other nodes have copies of the session tickets that are kept here.
    pub(crate) fn copies(
        &self,
        register: &Arc<TicketRegister>,
        shards: &Addresses,
        changes: &Arc<Changes>,
    ) -> Copies {
        let Some(it) = &self.0 else {
            return Copies::default();
        };
        let desk = it.nodes.open_desk(register, shards, changes, true);
        Copies::of(Arc::clone(&it.nodes), desk)
    }

    /// What is known of the cluster.
    pub(crate) fn cluster(&self) -> Option<Arc<dyn Known>> {
        let it = self.0.as_ref()?;
        Some(Arc::<Nodes>::clone(&it.nodes))
    }

    /// The shards here are there, and about to begin.
    ///
    /// # Errors
    /// Their home is gone.
    pub(crate) fn attach(
        &self,
        shards: &Addresses,
        clock: Clock,
    ) -> Result<Option<Attached>, StartError> {
        let Some(it) = &self.0 else {
            return Ok(None);
        };
        let attached = it.nodes.attach(it, shards, clock);
        attached.map(Some).ok_or(StartError::HomeGone)
    }
}

/// The shards here are known to the other nodes as long as this is there.
#[derive(Debug)]
pub(crate) struct Attached(Arc<Nodes>);

impl Drop for Attached {
    fn drop(&mut self) {
        self.0.detach();
    }
}

/// See the head of the file.
pub(crate) struct Nodes {
    inner: Mutex<Inner>,
    /// This node as a member, once it is one.
    joined: OnceLock<Joined>,
    /// Of QUIC, the same on all nodes.
    keys: NetKeys,
    /// The other members, for those who must not wait.
    present: Present,
    /// Those that were seen to leave, and are not back.
    left: Present,
    relayed: Relayed,
    /// Something cannot be sent to another node, or is not understood.
    broken: AtomicBool,
    expelled: AtomicBool,
    /// It was said that another thing may be wanted, and not asked what.
    said: AtomicBool,
    /// What is wanted may be something else now.
    changed: Box<dyn Fn() + Send + Sync>,
}

dunlin_base::opaque_debug!(Nodes);

/// Numbers of nodes that are members.
#[derive(Debug, Default)]
struct Present([AtomicU64; NODES_MAX as usize / 64 + 1]);

impl Present {
    fn bit(&self, node: u16) -> Option<(&AtomicU64, u64)> {
        let word = self.0.get(usize::from(node / 64))?;
        Some((word, 1 << (node % 64)))
    }

    fn set(&self, node: u16, is_there: bool) {
        if let Some((word, bit)) = self.bit(node) {
            match is_there {
                true => word.fetch_or(bit, Ordering::Relaxed),
                false => word.fetch_and(!bit, Ordering::Relaxed),
            };
        }
    }

    fn has(&self, node: u16) -> bool {
        let found = self.bit(node);
        found.is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }
}

#[derive(Default)]
struct Inner {
    roster: Roster,
    /// The other members, linked or not.
    members: BTreeMap<u16, Arc<Member>>,
    peers: BTreeMap<u16, Peer>,
    shards: Option<(Addresses, Clock)>,
    /// What hears what others say about tickets, while early data is taken here.
    desk: Option<Arc<Desk>>,
    /// What this node is to the log that is the store.
    log: Option<LogViews>,
    /// How often the shards here and those of another node were introduced.
    introductions: u64,
}

impl Nodes {
    /// `changed` is called from any thread when another thing may be wanted, and must not
    /// block. `keys`: of QUIC, the same on all nodes.
    pub(super) fn new(keys: NetKeys, changed: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::default(),
            joined: OnceLock::new(),
            keys,
            present: Present::default(),
            left: Present::default(),
            relayed: Relayed::default(),
            broken: AtomicBool::new(false),
            expelled: AtomicBool::new(false),
            said: AtomicBool::new(false),
            changed: Box::new(changed),
        })
    }

    /// What this node is to do.
    #[must_use]
    pub(super) fn wanted(&self) -> Wanted {
        self.said.store(false, Ordering::Relaxed);
        if self.expelled.load(Ordering::Relaxed) {
            return Wanted::Rejoin;
        }
        let roster = &self.lock().roster;
        match roster.own() {
            Some(_) if self.broken.load(Ordering::Relaxed) || roster.is_homeless() => Wanted::End,
            None if roster.home().is_some() => Wanted::Edge,
            _ => Wanted::Nothing,
        }
    }

    /// Something happened in the cluster.
    pub(super) fn handle(&self, event: Event) {
        let mut inner = self.lock();
        match event {
            Event::Joined(member) => {
                let (node, name) = (member.node, &member.about.name);
                tracing::info!(%node, %name, "a node has joined the cluster");
                self.note_joined(node.get());
                inner.members.insert(node.get(), member);
            }
            Event::Left { node, .. } => {
                tracing::info!(%node, "a node has left the cluster");
                self.note_left(node.get());
                inner.members.remove(&node.get());
            }
            Event::Linked(peer) => {
                let node = peer.id().node.get();
                inner.roster.linked(node);
                if let Some(run) = inner.roster.own() {
                    hand_over(&peer, &Frame::Up(*run));
                }
                inner.peers.insert(node, peer);
            }
            Event::Batch(batch) => {
                let node = batch.from().node.get();
                self.take(&mut inner, node, &batch);
            }
            Event::Lost { link, cause } => {
                let node = link.node.get();
                tracing::info!(%node, cause = cause.name(), "the link to a node is lost");
                inner.peers.remove(&node);
                let step = inner.roster.lost(node);
                inner.carry_out(step);
            }
            Event::Expelled(why) => {
                tracing::warn!(
                    "this node is no member of the cluster any more: {}",
                    why.name()
                );
                self.expelled.store(true, Ordering::Relaxed);
            }
            _ => {}
        }
        drop(inner);
        self.say();
    }

    fn note_joined(&self, node: u16) {
        self.present.set(node, true);
        self.left.set(node, false);
    }

    fn note_left(&self, node: u16) {
        self.left.set(node, true);
        self.present.set(node, false);
    }

    fn say(&self) {
        if !self.said.swap(true, Ordering::Relaxed) {
            (self.changed)();
        }
    }

    /// What a node says.
    fn take(&self, inner: &mut Inner, node: u16, batch: &Batch) {
        match Frame::decode(batch.bytes()) {
            Some(Frame::Up(run)) => {
                let steps = inner.roster.up(node, run);
                inner.carry_out(steps);
            }
            Some(Frame::Down(run)) => {
                let step = inner.roster.down(node, run);
                inner.carry_out(step);
            }
            Some(Frame::Batch { run, bytes }) => {
                let own = inner.roster.own().map(|own| own.number);
                if own == Some(run)
                    && let Err(why) = inner.deliver(node, bytes, batch)
                {
                    self.break_off(&why);
                }
            }
            Some(Frame::Relay { run, bytes }) => {
                if inner.roster.own().map(|own| own.number) == Some(run)
                    && inner.relay(node, &bytes, &self.relayed).is_none()
                {
                    self.break_off("a node relays what is no datagram");
                }
            }
            Some(Frame::Tickets { run, bytes }) => {
                if inner.roster.own().map(|own| own.number) == Some(run)
                    && let Err(why) = inner.hear_of_tickets(node, &bytes)
                {
                    self.break_off(&why);
                }
            }
            None => self.break_off("a node says what this release does not know"),
        }
    }

    /// Says something about session tickets to others.
    fn say_of_tickets(&self, to: To, message: &[u8]) {
        let inner = self.lock();
        for (node, run) in inner.roster.with_us() {
            let is_meant = match to {
                To::Home => run.is_home_at(node),
                To::All => inner.peers.get(&node).is_some_and(has_spare_room),
                To::Node(number) => node == number,
            };
            if is_meant && let Some(peer) = inner.peers.get(&node) {
                let (run, bytes) = (run.number, Bytes::copy_from_slice(message));
                hand_over(peer, &Frame::Tickets { run, bytes });
            }
        }
    }

    /// Whether more may be handed over for a node; `None`: it is not there.
    fn has_room(&self, node: u16) -> Option<bool> {
        let inner = self.lock();
        let is_there = inner.roster.with_us().any(|(number, _)| number == node);
        let peer = inner.peers.get(&node).filter(|_| is_there)?;
        Some(has_spare_room(peer))
    }

    /// The shards here cannot go on with the others.
    pub(super) fn break_off(&self, why: &str) {
        if !self.broken.swap(true, Ordering::Relaxed) {
            tracing::error!("what this node serves begins again: {why}");
            self.say();
        }
    }

    /// Where shards of a home stand.
    pub(crate) fn home_place(
        self: &Arc<Self>,
        here: u16,
        shards: u16,
    ) -> Result<Place, StartError> {
        let number = random()?;
        let home = Home {
            node: here,
            run: number,
        };
        let run = Run {
            number,
            home,
            shards,
        };
        Ok(self.place(here, run, shards))
    }

    /// Where shards of an edge stand, if there is a home.
    pub(crate) fn edge_place(
        self: &Arc<Self>,
        here: u16,
        shards: u16,
    ) -> Result<Option<Place>, StartError> {
        let Some((_, of_home)) = self.lock().roster.home() else {
            return Ok(None);
        };
        let run = Run {
            number: random()?,
            home: of_home.home,
            shards,
        };
        Ok(Some(self.place(here, run, of_home.shards)))
    }

    fn place(self: &Arc<Self>, here: u16, run: Run, homes: u16) -> Place {
        Place(Some(Within {
            nodes: Arc::clone(self),
            here,
            homes: Homes {
                first: first_of(run.home.node),
                count: homes,
            },
            run,
        }))
    }

    /// The shards of a place are there, and about to begin; `None`: their home is gone.
    fn attach(
        self: &Arc<Self>,
        place: &Within,
        shards: &Addresses,
        clock: Clock,
    ) -> Option<Attached> {
        let mut inner = self.lock();
        let nodes = inner.roster.begin(place.here, place.run);
        if inner.roster.is_homeless() {
            inner.roster.end();
            return None;
        }
        self.broken.store(false, Ordering::Relaxed);
        inner.shards = Some((shards.clone(), clock));
        let nodes = inner.linked(&nodes);
        inner.introductions += nodes.len() as u64;
        for (here, address) in shards.ids().zip(shards) {
            let others = shards.ids().filter(|other| *other != here);
            let change = Change::Joined {
                nodes: nodes.clone(),
                siblings: match place.here == place.run.home.node {
                    // They know each other from the start.
                    true => Vec::new(),
                    false => others.collect(),
                },
            };
            address.send(Mail::Members(Box::new(change)));
        }
        for peer in inner.peers.values() {
            hand_over(peer, &Frame::Up(place.run));
        }
        Some(Attached(Arc::clone(self)))
    }

    fn detach(&self) {
        let mut inner = self.lock();
        inner.shards = None;
        inner.desk = None;
        if let Some(run) = inner.roster.end() {
            for peer in inner.peers.values() {
                hand_over(peer, &Frame::Down(run.number));
            }
        }
        self.broken.store(false, Ordering::Relaxed);
        drop(inner);
        self.say();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn linked(&self, nodes: &[(u16, Run)]) -> Vec<Linked> {
        let nodes = nodes.iter().filter_map(|(node, run)| {
            let peer = self.peers.get(node)?.clone();
            let (node, run) = (*node, *run);
            Some(Linked { node, run, peer })
        });
        nodes.collect()
    }

    /// Has the shards here hear of others.
    fn carry_out(&mut self, steps: impl IntoIterator<Item = Step>) {
        let Some((shards, _)) = &self.shards else {
            return;
        };
        for step in steps {
            let change = match step {
                Step::Joined(nodes) => {
                    if let Some(desk) = &self.desk {
                        nodes.iter().for_each(|(node, _)| desk.edge_began(*node));
                    }
                    let nodes = self.linked(&nodes);
                    self.introductions += nodes.len() as u64;
                    Change::Joined {
                        nodes,
                        siblings: Vec::new(),
                    }
                }
                Step::Gone(node, run) => Change::Gone { node, run },
            };
            for address in shards {
                address.send(Mail::Members(Box::new(change.clone())));
            }
        }
    }

    /// Gives what shards of a node say to those here. The batch counts as taken when they
    /// have handled it.
    fn deliver(&self, node: u16, bytes: Bytes, receipt: &Batch) -> Result<(), String> {
        let Some((shards, clock)) = &self.shards else {
            return Ok(());
        };
        let batch = bus::Batch::open(bytes, clock.now()).map_err(|error| error.to_string())?;
        let mut gathered: Option<(ShardId, BusBatch)> = None;
        for read in batch {
            let message = read.map_err(|error| error.to_string())?;
            if node_of(message.from) != node {
                return Err(format!("node {node} speaks for shard {}", message.from.0));
            }
            let is_same =
                |(to, batch): &(ShardId, BusBatch)| *to == message.to && batch.from == message.from;
            if !gathered.as_ref().is_some_and(is_same) {
                let begun = BusBatch::received(message.from, receipt.clone());
                let before = gathered.replace((message.to, begun));
                hand_in(shards, before);
            }
            if let Some((_, batch)) = &mut gathered {
                batch.push(message.message);
            }
        }
        hand_in(shards, gathered);
        Ok(())
    }
}

impl Inner {
    /// Whether the shards here are the home.
    fn is_home(&self) -> bool {
        let own = self.roster.own_place();
        own.is_some_and(|(here, run)| run.is_home_at(here))
    }

    /// Hears what a node says about session tickets, and answers.
    fn hear_of_tickets(&self, node: u16, bytes: &[u8]) -> Result<(), String> {
        let bytes = match &self.desk {
            Some(desk) => {
                let home = self.roster.own().map(|own| own.home.node);
                desk.hear(node, home, bytes)?
            }
            // No early data is taken here.
            None if self.is_home() => tickets::refuse(bytes),
            None => Vec::new(),
        };
        if !bytes.is_empty()
            && let (Some(peer), Some(run)) = (self.peers.get(&node), self.roster.served_by(node))
        {
            let (run, bytes) = (run.number, bytes.into());
            hand_over(peer, &Frame::Tickets { run, bytes });
        }
        Ok(())
    }

    /// Gives shards here datagrams of clients that another node relays. `None`: they are not
    /// that.
    fn relay(&self, node: u16, bytes: &[u8], relayed: &Relayed) -> Option<()> {
        let Some((shards, _)) = &self.shards else {
            return Some(());
        };
        for entry in relay::read(bytes) {
            let (from, to, entry) = entry?;
            if node_of(from) != node {
                return None;
            }
            let has_room = |address: &&Address| address.waiting() < RELAY_INBOX_BYTES;
            let Some(address) = shards.get(to).filter(has_room) else {
                relayed.note(false, 1);
                continue;
            };
            address.send(match entry {
                Entry::Datagram(datagram) => Mail::Relayed { from, datagram },
                Entry::Answer(answer) => Mail::Answer(Box::new(answer)),
            });
        }
        Some(())
    }
}

fn random() -> Result<u64, StartError> {
    getrandom::u64().map_err(|error| StartError::Loop(error.to_string()))
}

fn hand_in(shards: &Addresses, batch: Option<(ShardId, BusBatch)>) {
    if let Some((to, batch)) = batch
        && let Some(address) = shards.get(to)
    {
        address.send(Mail::Bus(batch));
    }
}

/// A link that is lost meanwhile is heard of soon.
fn hand_over(peer: &Peer, frame: &Frame) {
    if let Err(error) = peer.send(frame.encode()) {
        tracing::debug!("a node is not reached: {error}");
    }
}
