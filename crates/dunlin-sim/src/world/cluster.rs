//! Which shards a world has: homes with a store, or with several that come and go with
//! their homes, and edges that come and go. What one
//! shard sends another keeps its order; nothing of an earlier incarnation of either
//! arrives.

use std::collections::BTreeMap;

use dunlin_base::{ConnId, Instant, ShardId};
use dunlin_broker::{
    BusMessage, Config, Homes, Input, Membership, Memory, Nodes, Secret, Shard, Totals,
};

use super::{World, bus};
use crate::agenda::{Happening, Pair};
use crate::link::ToClient;

/// From the number of one edge to that of the next.
const STEP: u16 = 64;

/// The shards of a world, by their places: the homes, then the edges.
#[derive(Debug)]
pub(crate) struct Cluster {
    homes: usize,
    /// Homes that have one store.
    per_store: usize,
    members: Vec<Member>,
    /// When the last thing of a pair arrives.
    last: BTreeMap<(usize, usize), Instant>,
    /// When the second hears that the first has joined.
    joins: BTreeMap<(usize, usize), Instant>,
}

/// One shard.
#[derive(Debug, Default)]
struct Member {
    incarnation: u16,
    is_up: bool,
    /// It takes connections.
    is_ready: bool,
    /// It has lost a home.
    is_lost: bool,
    /// The others that it knows, by place, with their incarnations.
    known: BTreeMap<usize, u16>,
}

impl Cluster {
    pub(crate) fn new(homes: u16, edges: u16, per_store: u16) -> Self {
        let members = (0..homes + edges).map(|_| Member::default());
        let per_store = if per_store == 0 { homes } else { per_store };
        Self {
            homes: usize::from(homes),
            per_store: usize::from(per_store),
            members: members.collect(),
            last: BTreeMap::new(),
            joins: BTreeMap::new(),
        }
    }

    /// The number of the shard at a place.
    pub(crate) fn number(&self, place: usize) -> ShardId {
        let edge = place.checked_sub(self.homes);
        ShardId(edge.map_or(place as u16, |edge| STEP * (edge as u16 + 1)))
    }

    /// The place of a shard.
    pub(crate) fn place(&self, shard: ShardId) -> usize {
        let number = usize::from(shard.0);
        match number < self.homes {
            true => number,
            false => self.homes + number / usize::from(STEP) - 1,
        }
    }

    /// How many stores there are.
    pub(crate) const fn stores(&self) -> usize {
        self.homes.div_ceil(self.per_store)
    }

    /// The store of a home.
    pub(crate) const fn store(&self, home: usize) -> usize {
        home / self.per_store
    }

    /// The homes of a store.
    fn homes_of(&self, store: usize) -> core::ops::Range<usize> {
        let first = store * self.per_store;
        first..self.homes.min(first + self.per_store)
    }

    pub(crate) const fn is_home(&self, place: usize) -> bool {
        place < self.homes
    }

    pub(crate) fn is_up(&self, place: usize) -> bool {
        self.members[place].is_up
    }

    /// Whether something of a pair arrives.
    pub(crate) fn arrives(&self, of: Pair) -> bool {
        let to = &self.members[of.to.0];
        let known = to.known.get(&of.from.0);
        to.is_up && to.incarnation == of.to.1 && known == Some(&of.from.1)
    }

    fn pair(&self, from: usize, to: usize) -> Pair {
        let of = |place: usize| (place, self.members[place].incarnation);
        Pair {
            from: of(from),
            to: of(to),
        }
    }

    /// As [`Cluster::pair`], with the second as the first knows it.
    fn known_pair(&self, from: usize, to: usize) -> Pair {
        let known = self.members[from].known.get(&to);
        let incarnation = known.expect("a shard says something only to one that it knows");
        Pair {
            to: (to, *incarnation),
            ..self.pair(from, to)
        }
    }

    fn up(&self) -> impl Iterator<Item = usize> {
        (0..self.members.len()).filter(|place| self.members[*place].is_up)
    }

    /// Whether a shard, or any, takes connections.
    pub(crate) fn is_open(&self, place: Option<usize>) -> bool {
        match place {
            Some(place) => self.members[place].is_ready,
            None => self.members.iter().any(|member| member.is_ready),
        }
    }

    /// The first place from `from` on that takes connections.
    pub(crate) fn open_place(&self, from: usize) -> usize {
        let count = self.members.len();
        let places = (from..from + count).map(|place| place % count);
        let mut ready = places.filter(|place| self.members[*place].is_ready);
        ready.next().expect("a shard that takes connections")
    }
}

/// Something of a shard is for another.
pub(super) fn send(world: &mut World, from: usize, shard: ShardId, message: BusMessage) {
    let crossing = bus::cross(world, world.cluster.number(from), shard, message);
    let to = world.cluster.place(shard);
    let soon = world.agenda.soon(world.setup.pace.bus);
    let last = world.cluster.last.entry((from, to)).or_insert(soon);
    let at = soon.max(*last);
    *last = at;
    let of = world.cluster.known_pair(from, to);
    world.agenda.at(at, Happening::Bus { of, crossing });
}

/// The homes begin, with what their stores have.
pub(super) fn start(world: &mut World) {
    world.cluster.last.clear();
    world.cluster.joins.clear();
    for home in 0..world.cluster.homes {
        let member = &mut world.cluster.members[home];
        (member.is_up, member.is_ready) = (false, false);
    }
    for store in 0..world.cluster.stores() {
        // Edges begin later.
        let homes = world.cluster.up().filter(|it| world.cluster.is_home(*it));
        begin_homes(world, store, homes.collect());
    }
}

/// The process of the homes of a store begins, with what that has, and joins `others`.
fn begin_homes(world: &mut World, store: usize, others: Vec<usize>) {
    let (homes, totals) = (world.cluster.homes_of(store), Totals::default());
    let recovered = super::disk_of(world, store).recover();
    for home in homes.clone() {
        world.cluster.members[home].incarnation += 1;
    }
    for home in homes.clone() {
        let mut shard = Shard::new(config(world, home, &totals), world.agenda.now);
        shard.restore(&recovered).expect("the store of these homes");
        world.shards[home] = shard;
        let known = homes.clone().filter(|other| *other != home);
        let known = known.chain(others.iter().copied());
        let incarnation = |other: usize| (other, world.cluster.members[other].incarnation);
        let known = known.map(incarnation).collect();
        let is_alone = world.cluster.stores() == 1;
        let member = &mut world.cluster.members[home];
        (member.is_up, member.is_ready) = (true, is_alone);
        member.known = known;
    }
    if others.is_empty() {
        return;
    }
    super::reload(world);
    for home in homes {
        for other in &others {
            hear(world, (home, *other), true);
        }
        let numbers = others.iter().map(|other| world.cluster.number(*other));
        let joined = Membership::Joined(numbers.collect());
        world.input(home, Input::Members(joined));
    }
}

/// The homes of a store begin again, with what that has.
///
/// # Panics
/// They are there.
pub fn start_store(world: &mut World, store: usize) {
    assert!(!is_store_up(world, store), "they are there");
    let others = world.cluster.up().collect();
    begin_homes(world, store, others);
}

/// The process of the homes of a store dies: what that has not committed is lost, and the
/// others hear of it after a while.
pub fn crash_store(world: &mut World, store: usize) {
    if !is_store_up(world, store) {
        return;
    }
    let homes = world.cluster.homes_of(store);
    for home in homes.clone() {
        kill(world, home);
    }
    let others: Vec<usize> = world.cluster.up().collect();
    for other in others {
        for home in homes.clone() {
            hear(world, (home, other), false);
        }
    }
}

/// Whether the homes of a store are there.
#[must_use]
pub fn is_store_up(world: &World, store: usize) -> bool {
    let mut homes = world.cluster.homes_of(store);
    homes.all(|home| world.cluster.is_up(home))
}

/// Whether the homes of a store take connections.
#[must_use]
pub fn is_store_ready(world: &World, store: usize) -> bool {
    let mut homes = world.cluster.homes_of(store);
    homes.all(|home| world.cluster.members[home].is_ready)
}

fn config(world: &World, place: usize, totals: &Totals) -> Config {
    let is_home = world.cluster.is_home(place);
    let member = &world.cluster.members[place];
    Config {
        shard: world.cluster.number(place),
        shards: if is_home {
            world.cluster.per_store as u16
        } else {
            1
        },
        nodes: Nodes {
            homes: Some(Homes {
                first: ShardId(0),
                count: world.setup.shards,
            }),
            incarnation: match is_home && world.cluster.stores() == 1 {
                true => 0,
                false => member.incarnation,
            },
            ..world.setup.config.nodes.clone()
        },
        durable: is_home && world.setup.config.durable,
        secret: Secret::of_seed(world.setup.seed),
        memory: Memory {
            totals: totals.clone(),
            ..world.setup.config.memory.clone()
        },
        ..world.setup.config.clone()
    }
}

/// An edge begins and joins the others; it takes connections after a while.
///
/// # Panics
/// It is there.
pub fn join_edge(world: &mut World, edge: usize) {
    let place = world.cluster.homes + edge;
    assert!(!world.cluster.is_up(place), "it is there");
    world.cluster.members[place].incarnation += 1;
    let config = config(world, place, &Totals::default());
    world.shards[place] = Shard::new(config, world.agenda.now);
    let others: Vec<usize> = world.cluster.up().collect();
    let incarnation = |other: &usize| world.cluster.members[*other].incarnation;
    let known = others.iter().map(|other| (*other, incarnation(other)));
    let known = known.collect();
    world.cluster.members[place] = Member {
        incarnation: world.cluster.members[place].incarnation,
        is_up: true,
        known,
        ..Member::default()
    };
    for other in &others {
        hear(world, (place, *other), true);
    }
    let numbers = others.iter().map(|other| world.cluster.number(*other));
    let joined = Membership::Joined(numbers.collect());
    super::reload(world);
    world.input(place, Input::Members(joined));
}

/// A shard is to hear of another: that it has joined before anything that it sends, that it
/// is gone before some of that.
fn hear(world: &mut World, (of, to): (usize, usize), joined: bool) {
    let soon = world.agenda.soon(world.setup.pace.bus);
    let cluster = &mut world.cluster;
    let before = match joined {
        true => cluster.last.get(&(of, to)),
        false => cluster.joins.get(&(of, to)),
    };
    let at = soon.max(before.copied().unwrap_or(soon));
    if joined {
        cluster.joins.insert((of, to), at);
    }
    cluster.last.insert((of, to), at);
    let of = world.cluster.pair(of, to);
    world.agenda.at(at, Happening::Member { of, joined });
}

/// A shard hears of another.
pub(super) fn heard(world: &mut World, of: Pair, joined: bool) {
    let to = &mut world.cluster.members[of.to.0];
    if !to.is_up || to.incarnation != of.to.1 {
        return;
    }
    match joined {
        true => _ = to.known.insert(of.from.0, of.from.1),
        false => {
            let known = to.known.remove(&of.from.0);
            assert_eq!(known, Some(of.from.1), "it goes once");
        }
    }
    let shard = world.cluster.number(of.from.0);
    let change = match joined {
        true => Membership::Joined(vec![shard]),
        false => Membership::Gone(shard),
    };
    world.input(of.to.0, Input::Members(change));
}

/// An edge dies: its connections break, what it had is lost, and the others hear of it
/// after a while.
pub fn crash_edge(world: &mut World, edge: usize) {
    let place = world.cluster.homes + edge;
    if !world.cluster.is_up(place) {
        return;
    }
    kill(world, place);
    let others: Vec<usize> = world.cluster.up().collect();
    for other in others {
        hear(world, (place, other), false);
    }
}

/// All edges begin, with the homes.
pub(super) fn begin_edges(world: &mut World) {
    let edges = usize::from(world.setup.edges);
    for edge in 0..edges {
        kill(world, world.cluster.homes + edge);
    }
    for edge in 0..edges {
        join_edge(world, edge);
    }
}

/// The process of the homes dies; edges hear of it after a while. [`World::crash`] has all
/// of them begin again.
pub fn crash_homes(world: &mut World) {
    for home in 0..world.cluster.homes {
        kill(world, home);
    }
    let edges: Vec<usize> = world.cluster.up().collect();
    for edge in edges {
        for home in 0..world.cluster.homes {
            hear(world, (home, edge), false);
        }
    }
}

/// Whether an edge is there.
#[must_use]
pub fn is_up(world: &World, edge: usize) -> bool {
    world.cluster.is_up(world.cluster.homes + edge)
}

/// Whether an edge takes connections.
#[must_use]
pub fn is_ready(world: &World, edge: usize) -> bool {
    world.cluster.members[world.cluster.homes + edge].is_ready
}

/// Whether an edge has lost a home and is at its end.
#[must_use]
pub fn is_lost(world: &World, edge: usize) -> bool {
    world.cluster.members[world.cluster.homes + edge].is_lost
}

pub(super) fn note_ready(world: &mut World, place: usize) {
    world.cluster.members[place].is_ready = true;
}

pub(super) fn note_lost(world: &mut World, place: usize) {
    let member = &mut world.cluster.members[place];
    (member.is_ready, member.is_lost) = (false, true);
}

fn kill(world: &mut World, place: usize) {
    let member = &mut world.cluster.members[place];
    (member.is_up, member.is_ready) = (false, false);
    member.known.clear();
    world.draining[place] = false;
    let number = world.cluster.number(place);
    let links = world.links.keys();
    let conns: Vec<ConnId> = links
        .copied()
        .filter(|conn| conn.shard() == number)
        .collect();
    world.agenda.retain(|happening| match happening {
        Happening::Client(_, ToClient::Closed(_)) => true,
        Happening::Opened(conn, _)
        | Happening::Server(conn, _)
        | Happening::Lost(conn)
        | Happening::Sent(conn, ..)
        | Happening::Blocked(conn, ..)
        | Happening::Attached { conn, .. }
        | Happening::Client(conn, _) => conn.shard() != number,
        Happening::Drain(at)
        | Happening::Auth(at, ..)
        | Happening::Store(at, _)
        | Happening::Stored(at, _) => *at != place,
        Happening::Bus { .. } | Happening::Member { .. } => true,
    });
    for conn in conns {
        world.links.remove(&conn);
        let at = world.agenda.soon(world.setup.pace.link);
        let closed = Happening::Client(conn, ToClient::Closed(0));
        world.agenda.at(at, closed);
    }
}
