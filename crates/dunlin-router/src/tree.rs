//! The subscription tree: filters by level, subscribers at their ends.
//!
//! A node stands for one or more whole levels (its label), so a chain without
//! branches is one node. Where a node has one literal child it names it; where
//! it has more they are in one table for the whole tree, keyed by parent and
//! level. A publish to one of a million topics of the same shape thus waits for
//! two cold places: a slot of that table and the node, which holds label and a
//! single subscriber in itself. The walk that matches topics is in `walk.rs`.

use crate::arena::Arena;
use crate::edges::Edges;
use crate::filter_id::FilterId;
use crate::hash::HashKey;
use crate::label::{Label, common_levels, first_level, rest_after};
use crate::shared::{Group, SharedMatch};
use crate::subs::Subs;

/// The root's number; as a child it means "none".
pub(crate) const ROOT: u32 = 0;

/// Subscriptions by filter: `K` is the subscriber, `V` its options.
///
/// `K` and `V` are stored in the node of a filter that has one subscriber, so
/// they want to be small. With 12 bytes of them and a million filters of the
/// form `fleet/{region}/{device}/+`, a subscription takes 97 bytes of resident
/// memory: a node of 80 and a slot of 8 in a table at most three quarters full.
/// Labels longer than 38 bytes are allocated apart. A further subscriber to the
/// same filter takes the size of `K` and `V`.
///
/// The tree does not bound itself; the broker bounds subscriptions per client
/// and in all.
#[derive(Clone, Debug)]
pub struct SubscriptionTree<K, V> {
    pub(crate) nodes: Arena<Node<K, V>>,
    pub(crate) edges: Edges,
    pub(crate) hash_key: HashKey,
    filters: usize,
    subscriptions: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Node<K, V> {
    pub(crate) label: Label,
    pub(crate) subs: Subs<K, V>,
    pub(crate) parent: u32,
    /// Child whose label begins with the level `+`.
    pub(crate) plus: u32,
    /// Child whose label is `#`.
    pub(crate) hash: u32,
    /// How many children begin with a literal level; with two or more, they
    /// are in the edge table.
    pub(crate) literals: u32,
    /// All literal children's numbers combined by exclusive or: with one left,
    /// this is its number.
    pub(crate) literal_xor: u32,
}

impl<K, V> Node<K, V> {
    const fn new(parent: u32, label: Label) -> Self {
        Self {
            label,
            subs: Subs::None,
            parent,
            plus: ROOT,
            hash: ROOT,
            literals: 0,
            literal_xor: ROOT,
        }
    }

    fn child_count(&self) -> usize {
        usize::from(self.plus != ROOT) + usize::from(self.hash != ROOT) + self.literals as usize
    }

    /// The only child; wrong when there are several.
    fn only_child(&self) -> u32 {
        self.plus ^ self.hash ^ self.literal_xor
    }
}

impl<K: Copy + Ord, V> SubscriptionTree<K, V> {
    /// An empty tree whose edges are hashed with a key made of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            nodes: Arena::new(Node::new(ROOT, Label::EMPTY)),
            edges: Edges::new(),
            hash_key: HashKey::new(seed),
            filters: 0,
            subscriptions: 0,
        }
    }

    /// Distinct filters that have a subscription, plain or shared.
    #[must_use]
    pub fn filter_count(&self) -> usize {
        self.filters
    }

    /// Plain subscriptions and members of shared groups, of any weight.
    #[must_use]
    pub fn subscription_count(&self) -> usize {
        self.subscriptions
    }

    /// Nodes in use, the root included: what the tree's memory grows with.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The number of exactly this filter, when it has a subscription.
    #[must_use]
    pub fn filter_id(&self, filter: &str) -> Option<FilterId> {
        let id = self.find(filter)?;
        match self.nodes.get(id)?.subs {
            Subs::None => None,
            Subs::One(..) | Subs::Many(_) => Some(FilterId::new(id)),
        }
    }

    /// Adds a plain subscription or replaces its options, returning the old
    /// ones.
    pub fn insert(&mut self, filter: &str, key: K, value: V) -> Option<V> {
        let id = self.find_or_create(filter);
        let node = self.nodes.get_mut(id)?;
        let was_unused = node.subs.is_none();
        let old = node.subs.insert(key, value);
        self.count_insert(was_unused, old.is_none());
        old
    }

    /// Removes a plain subscription.
    pub fn remove(&mut self, filter: &str, key: K) -> Option<V> {
        let id = self.find(filter)?;
        let old = self.nodes.get_mut(id)?.subs.remove(key)?;
        self.count_remove(id);
        Some(old)
    }

    /// The options of a plain subscription.
    #[must_use]
    pub fn get(&self, filter: &str, key: K) -> Option<&V> {
        match &self.nodes.get(self.find(filter)?)?.subs {
            Subs::None => None,
            Subs::One(k, value) => (*k == key).then_some(value),
            Subs::Many(fan) => fan.plain.get(&key),
        }
    }

    /// Adds a member to the group `group` on `filter` or changes it, returning
    /// the old options. `weight` is how many subscribers stand behind the key
    /// (a remote shard can stand for several); 0 counts as 1.
    pub fn insert_shared(
        &mut self,
        group: &str,
        filter: &str,
        key: K,
        value: V,
        weight: u32,
    ) -> Option<V> {
        let id = self.find_or_create(filter);
        let node = self.nodes.get_mut(id)?;
        let was_unused = node.subs.is_none();
        let groups = &mut node.subs.fan_mut().groups;
        if groups.get(group.as_bytes()).is_none() {
            groups.insert(group.into(), Group::new(filter));
        }
        let members = groups.get_mut(group.as_bytes())?;
        let old = members.insert(key, value, weight);
        self.count_insert(was_unused, old.is_none());
        old
    }

    /// Removes a member of a shared group; the group goes with its last one.
    pub fn remove_shared(&mut self, group: &str, filter: &str, key: K) -> Option<V> {
        let id = self.find(filter)?;
        let Subs::Many(fan) = &mut self.nodes.get_mut(id)?.subs else {
            return None;
        };
        let members = fan.groups.get_mut(group.as_bytes())?;
        let old = members.remove(key)?;
        if members.len() == 0 {
            fan.groups.remove(group.as_bytes());
        }
        self.count_remove(id);
        Some(old)
    }

    /// The shared group `group` on exactly this filter: to route one message
    /// within it alone, when a member left or another shard hands it over.
    #[must_use]
    pub fn shared_group(&self, group: &str, filter: &str) -> Option<SharedMatch<'_, K, V>> {
        let id = self.find(filter)?;
        let Subs::Many(fan) = &self.nodes.get(id)?.subs else {
            return None;
        };
        let (name, group) = fan.groups.get_pair(group.as_bytes())?;
        Some(SharedMatch {
            name,
            group,
            filter_id: FilterId::new(id),
        })
    }

    fn count_insert(&mut self, first_of_filter: bool, is_new: bool) {
        self.filters += usize::from(first_of_filter);
        self.subscriptions += usize::from(is_new);
    }

    fn count_remove(&mut self, id: u32) {
        self.subscriptions -= 1;
        let Some(node) = self.nodes.get_mut(id) else {
            return;
        };
        node.subs.tidy();
        if node.subs.is_none() {
            self.filters -= 1;
            self.prune(id);
        }
    }

    /// The node of exactly this filter, used or not.
    fn find(&self, filter: &str) -> Option<u32> {
        let mut at = ROOT;
        let mut rest = filter.as_bytes();
        loop {
            at = self.child(at, first_level(rest))?;
            let label = self.nodes.get(at)?.label.bytes();
            rest = match rest.strip_prefix(label)? {
                [] => return Some(at),
                [b'/', rest @ ..] => rest,
                _ => return None,
            };
        }
    }

    fn find_or_create(&mut self, filter: &str) -> u32 {
        let mut at = ROOT;
        let mut rest = filter.as_bytes();
        loop {
            let Some(child) = self.child(at, first_level(rest)) else {
                let leaf = self.nodes.put(Node::new(at, Label::new(rest)));
                self.attach(leaf);
                return leaf;
            };
            let label = self.label(child);
            let common = common_levels(label, rest);
            at = if common == label.len() {
                child
            } else {
                self.split(child, common)
            };
            match rest_after(rest, common) {
                Some(after) => rest = after,
                None => return at,
            }
        }
    }

    /// The child of `parent` whose label begins with `level`.
    fn child(&self, parent: u32, level: &[u8]) -> Option<u32> {
        let node = self.nodes.get(parent)?;
        let is_it = |child: u32| {
            let node = self.nodes.get(child)?;
            (node.parent == parent && node.label.first_level() == level).then_some(child)
        };
        match (level, node.literals) {
            (b"+", _) => (node.plus != ROOT).then_some(node.plus),
            (b"#", _) => (node.hash != ROOT).then_some(node.hash),
            (_, 0) => None,
            (_, 1) => is_it(node.literal_xor),
            _ => self.edges.find(self.hash_key.edge(parent, level), is_it),
        }
    }

    fn label(&self, id: u32) -> &[u8] {
        self.nodes.get(id).map_or(&[], |n| n.label.bytes())
    }

    fn edge_hash(&self, parent: u32, child: u32) -> u32 {
        self.hash_key.edge(parent, first_level(self.label(child)))
    }

    /// Makes `id` a child of the parent that it names.
    fn attach(&mut self, id: u32) {
        let Some((parent, first)) = self.place_of(id) else {
            return;
        };
        let Some(node) = self.nodes.get_mut(parent) else {
            return;
        };
        match first {
            Place::Plus => node.plus = id,
            Place::Hash => node.hash = id,
            Place::Literal => {
                let others = node.literal_xor;
                node.literals += 1;
                node.literal_xor ^= id;
                let count = node.literals;
                if count == 2 {
                    self.edges.insert(self.edge_hash(parent, others), others);
                }
                if count >= 2 {
                    self.edges.insert(self.edge_hash(parent, id), id);
                }
            }
        }
    }

    /// Undoes [`Self::attach`].
    fn detach(&mut self, id: u32) {
        let Some((parent, first)) = self.place_of(id) else {
            return;
        };
        let Some(node) = self.nodes.get_mut(parent) else {
            return;
        };
        match first {
            Place::Plus => node.plus = ROOT,
            Place::Hash => node.hash = ROOT,
            Place::Literal => {
                node.literals -= 1;
                node.literal_xor ^= id;
                let (count, others) = (node.literals, node.literal_xor);
                if count >= 1 {
                    self.edges.remove(self.edge_hash(parent, id), id);
                }
                if count == 1 {
                    self.edges.remove(self.edge_hash(parent, others), others);
                }
            }
        }
    }

    /// Puts `new` where `old` is among their parent's children; their labels
    /// begin with the same level.
    fn replace_child(&mut self, old: u32, new: u32) {
        let Some((parent, first)) = self.place_of(old) else {
            return;
        };
        let hash = self.edge_hash(parent, old);
        let Some(node) = self.nodes.get_mut(parent) else {
            return;
        };
        match first {
            Place::Plus => node.plus = new,
            Place::Hash => node.hash = new,
            Place::Literal => {
                node.literal_xor ^= old ^ new;
                if node.literals >= 2 {
                    self.edges.replace(hash, old, new);
                }
            }
        }
    }

    fn place_of(&self, id: u32) -> Option<(u32, Place)> {
        let node = self.nodes.get(id)?;
        let place = match node.label.first_level() {
            b"+" => Place::Plus,
            b"#" => Place::Hash,
            _ => Place::Literal,
        };
        Some((node.parent, place))
    }

    /// Inserts a node above `id` that takes the first `head_len` bytes of its
    /// label.
    fn split(&mut self, id: u32, head_len: usize) -> u32 {
        let Some(node) = self.nodes.get(id) else {
            return id;
        };
        let label = node.label.bytes();
        let head = label.get(..head_len).unwrap_or_default();
        let tail = Label::new(rest_after(label, head_len).unwrap_or_default());
        let upper = Node::new(node.parent, Label::new(head));
        let upper = self.nodes.put(upper);
        self.replace_child(id, upper);
        if let Some(node) = self.nodes.get_mut(id) {
            node.label = tail;
            node.parent = upper;
        }
        self.attach(id);
        upper
    }

    /// Removes `id` and what is above it as far as nothing needs it; a node
    /// left with one child is merged into that child.
    fn prune(&mut self, mut id: u32) {
        while id != ROOT {
            let Some(node) = self.nodes.get(id) else {
                return;
            };
            if !node.subs.is_none() {
                return;
            }
            let (parent, child) = (node.parent, node.only_child());
            match node.child_count() {
                0 => self.detach(id),
                1 => {
                    let joined = Label::join(node.label.bytes(), self.label(child));
                    self.replace_child(id, child);
                    if let Some(node) = self.nodes.get_mut(child) {
                        node.label = joined;
                        node.parent = parent;
                    }
                }
                _ => return,
            }
            self.nodes.free(id, Node::new(ROOT, Label::EMPTY));
            id = parent;
        }
    }
}

enum Place {
    Plus,
    Hash,
    Literal,
}
