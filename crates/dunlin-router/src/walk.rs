//! Matching one topic against the tree.
//!
//! A walk over nodes with an explicit stack of the `+` branches not yet taken:
//! at most one per level, so that topics of the permitted depth never allocate.

use dunlin_base::limits::TOPIC_LEVELS_MAX;
use smallvec::SmallVec;

use crate::filter_id::FilterId;
use crate::label::{Step, level_end};
use crate::shared::SharedMatch;
use crate::subs::Subs;
use crate::tree::{Node, ROOT, SubscriptionTree};

/// Something that wants the message.
#[derive(Clone, Copy, Debug)]
pub enum Match<'t, K: Copy + Ord, V> {
    /// A plain subscription.
    Subscriber {
        /// Who subscribed.
        key: K,
        /// With which options.
        value: &'t V,
    },
    /// A shared group, of which one member must be chosen.
    Shared(SharedMatch<'t, K, V>),
}

/// All who have subscribed to one filter.
#[derive(Clone, Copy, Debug)]
pub struct Matched<'t, K: Copy + Ord, V> {
    filter_id: FilterId,
    subs: &'t Subs<K, V>,
}

impl<'t, K: Copy + Ord, V> Matched<'t, K, V> {
    /// How many plain subscriptions there are.
    #[must_use]
    pub fn plain_len(&self) -> usize {
        match self.subs {
            Subs::None => 0,
            Subs::One(..) => 1,
            Subs::Many(fan) => fan.plain.len(),
        }
    }

    /// Whether one of them is of this subscriber.
    #[must_use]
    pub fn has_plain(&self, key: K) -> bool {
        match self.subs {
            Subs::None => false,
            Subs::One(its, _) => *its == key,
            Subs::Many(fan) => fan.plain.get(&key).is_some(),
        }
    }

    /// All of them.
    pub fn plain(&self) -> impl Iterator<Item = (K, &'t V)> + use<'t, K, V> {
        let (one, many) = match self.subs {
            Subs::None => (None, None),
            Subs::One(key, value) => (Some((*key, value)), None),
            Subs::Many(fan) => (None, Some(fan.plain.as_slice())),
        };
        let many = many.into_iter().flatten();
        one.into_iter()
            .chain(many.map(|(key, value)| (*key, value)))
    }

    /// How many shared groups there are.
    #[must_use]
    pub fn groups_len(&self) -> usize {
        match self.subs {
            Subs::None | Subs::One(..) => 0,
            Subs::Many(fan) => fan.groups.len(),
        }
    }

    /// The shared groups.
    pub fn groups(&self) -> impl Iterator<Item = SharedMatch<'t, K, V>> + use<'t, K, V> {
        let filter_id = self.filter_id;
        let groups = match self.subs {
            Subs::None | Subs::One(..) => None,
            Subs::Many(fan) => Some(fan.groups.as_slice()),
        };
        let groups = groups.into_iter().flatten();
        groups.map(move |(name, group)| SharedMatch {
            name,
            group,
            filter_id,
        })
    }
}

impl<K: Copy + Ord, V> SubscriptionTree<K, V> {
    /// Calls `visit` once for each plain subscription and once for each shared
    /// group whose filter matches `topic`. A subscriber with several matching
    /// filters is visited for each.
    ///
    /// Leading wildcards do not match topics that begin with `$`
    /// [MQTT-4.7.2-1]; text is compared byte by byte [MQTT-4.7.3-4].
    pub fn matches<'t>(&'t self, topic: &str, mut visit: impl FnMut(Match<'t, K, V>)) {
        self.walk(topic, |id, node| emit(id, node, &mut visit));
    }

    /// Calls `visit` once for each filter that matches `topic` and has a subscription: the
    /// cost does not grow with the subscribers of a filter.
    pub fn matched_filters<'t>(&'t self, topic: &str, mut visit: impl FnMut(Matched<'t, K, V>)) {
        self.walk(topic, |id, node| {
            let subs = &node.subs;
            if !subs.is_none() {
                let filter_id = FilterId::new(id);
                visit(Matched { filter_id, subs });
            }
        });
    }

    /// Calls `visit` once for each node whose filter matches `topic`.
    #[inline]
    fn walk<'t>(&'t self, topic: &str, mut visit: impl FnMut(u32, &'t Node<K, V>)) {
        let topic = topic.as_bytes();
        let mut pending: SmallVec<[(u32, usize); TOPIC_LEVELS_MAX]> = SmallVec::new();
        // The node reached, and where in the topic its children's levels begin.
        let mut here = Some((ROOT, 0));
        while let Some((id, at)) = here {
            let Some(node) = self.nodes.get(id) else {
                return;
            };
            let mut next = None;
            if at > topic.len() {
                visit(id, node);
                // `a/#` matches `a` too.
                self.emit_at(node.hash, &mut visit);
            } else {
                if id != ROOT || topic.first() != Some(&b'$') {
                    self.emit_at(node.hash, &mut visit);
                    next = self.enter(node.plus, topic, at, &mut visit);
                }
                let literal = match node.literals {
                    0 => None,
                    1 => self.enter(node.literal_xor, topic, at, &mut visit),
                    _ => self.enter_by_hash(id, topic, at, &mut visit),
                };
                if let (Some(plus), Some(_)) = (next, literal) {
                    pending.push(plus);
                }
                next = literal.or(next);
            }
            here = next.or_else(|| pending.pop());
        }
    }

    /// Where the child `id` leads; a child that ends in `#` is visited at once.
    #[inline]
    fn enter<'t>(
        &'t self,
        id: u32,
        topic: &[u8],
        at: usize,
        visit: &mut impl FnMut(u32, &'t Node<K, V>),
    ) -> Option<(u32, usize)> {
        if id == ROOT {
            return None;
        }
        let node = self.nodes.get(id)?;
        match node.label.step(topic, at) {
            Step::Miss => None,
            Step::To(next) => Some((id, next)),
            Step::Through => {
                visit(id, node);
                None
            }
        }
    }

    /// As [`Self::enter`], for the child that the edge table has for the next
    /// level.
    #[inline]
    fn enter_by_hash<'t>(
        &'t self,
        parent: u32,
        topic: &[u8],
        at: usize,
        visit: &mut impl FnMut(u32, &'t Node<K, V>),
    ) -> Option<(u32, usize)> {
        let level = topic.get(at..level_end(topic, at))?;
        let hash = self.hash_key.edge(parent, level);
        let (id, step) = self.edges.find(hash, |id| {
            let node = self.nodes.get(id)?;
            if node.parent != parent {
                return None;
            }
            match node.label.step(topic, at) {
                // Perhaps another level with the same hash.
                Step::Miss => None,
                step => Some((id, step)),
            }
        })?;
        match step {
            Step::Miss => None,
            Step::To(next) => Some((id, next)),
            Step::Through => {
                self.emit_at(id, visit);
                None
            }
        }
    }

    #[inline]
    fn emit_at<'t>(&'t self, id: u32, visit: &mut impl FnMut(u32, &'t Node<K, V>)) {
        if id != ROOT
            && let Some(node) = self.nodes.get(id)
        {
            visit(id, node);
        }
    }
}

#[inline]
fn emit<'t, K: Copy + Ord, V>(
    id: u32,
    node: &'t Node<K, V>,
    visit: &mut impl FnMut(Match<'t, K, V>),
) {
    match &node.subs {
        Subs::None => {}
        Subs::One(key, value) => visit(Match::Subscriber { key: *key, value }),
        Subs::Many(fan) => {
            for (key, value) in fan.plain.as_slice() {
                visit(Match::Subscriber { key: *key, value });
            }
            for (name, group) in fan.groups.as_slice() {
                visit(Match::Shared(SharedMatch {
                    name,
                    group,
                    filter_id: FilterId::new(id),
                }));
            }
        }
    }
}
