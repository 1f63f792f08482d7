//! One shared subscription group of one filter, and the choice of the member
//! that gets a message (MQTT 5.0 section 4.8.2). Knows nothing of the tree.
//!
//! Members of weight 1 take turns. Heavier ones, which stand for several
//! subscribers elsewhere, and the turn of all light ones together are
//! interleaved by smooth weighted round robin: every class gains its weight,
//! the richest is served and pays the sum. The cost of a choice then grows with
//! the heavy members (other shards), not with all.

use core::cell::Cell;
use core::fmt;

use dunlin_base::Text;

use crate::entries::Entries;
use crate::filter_id::FilterId;

/// The members of one group on one filter.
#[derive(Clone, Debug)]
pub(crate) struct Group<K, V> {
    filter: Text,
    light: Entries<K, V>,
    /// Position in `light` whose turn is next.
    turn: Cell<usize>,
    light_credit: Cell<i64>,
    heavy: Entries<K, Heavy<V>>,
}

#[derive(Clone, Debug)]
struct Heavy<V> {
    value: V,
    weight: u32,
    credit: Cell<i64>,
}

impl<K: Copy + Ord, V> Group<K, V> {
    pub(crate) fn new(filter: &str) -> Self {
        Self {
            filter: filter.into(),
            light: Entries::new(),
            turn: Cell::new(0),
            light_credit: Cell::new(0),
            heavy: Entries::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.light.len() + self.heavy.len()
    }

    pub(crate) fn get(&self, key: K) -> Option<&V> {
        let heavy = || self.heavy.get(&key).map(|h| &h.value);
        self.light.get(&key).or_else(heavy)
    }

    /// Adds or changes a member; a member that stays in its class keeps its
    /// turn.
    pub(crate) fn insert(&mut self, key: K, value: V, weight: u32) -> Option<V> {
        if weight <= 1 {
            let was_heavy = self.heavy.remove(&key).map(|(_, h)| h.value);
            return self.light.insert(key, value).or(was_heavy);
        }
        if let Some(heavy) = self.heavy.get_mut(&key) {
            heavy.weight = weight;
            return Some(core::mem::replace(&mut heavy.value, value));
        }
        let was_light = self.remove_light(key);
        let heavy = Heavy {
            value,
            weight,
            credit: Cell::new(0),
        };
        self.heavy.insert(key, heavy);
        was_light
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        match self.remove_light(key) {
            Some(value) => Some(value),
            None => self.heavy.remove(&key).map(|(_, h)| h.value),
        }
    }

    fn remove_light(&mut self, key: K) -> Option<V> {
        let (at, value) = self.light.remove(&key)?;
        let turn = self.turn.get();
        if at < turn {
            self.turn.set(turn - 1);
        }
        Some(value)
    }

    /// The first available light member from the one whose turn it is, with its
    /// position.
    #[inline]
    fn next_light(&self, is_available: &mut impl FnMut(&K, &V) -> bool) -> Option<usize> {
        let members = self.light.as_slice();
        let turn = self.turn.get().min(members.len());
        let (before, from) = members.split_at_checked(turn)?;
        let mut free = |(key, value): &(K, V)| is_available(key, value);
        match from.iter().position(&mut free) {
            Some(at) => Some(turn + at),
            None => before.iter().position(&mut free),
        }
    }

    fn serve_light(&self, at: usize) -> Option<(K, &V)> {
        let (key, value) = self.light.as_slice().get(at)?;
        self.turn.set(at + 1);
        Some((*key, value))
    }

    fn select(&self, mut is_available: impl FnMut(&K, &V) -> bool) -> Option<(K, &V)> {
        let light = self.next_light(&mut is_available);
        if self.heavy.is_empty() {
            return self.serve_light(light?);
        }
        let mut sum = 0;
        let mut most = i64::MIN;
        // `None` while the light members are the richest class.
        let mut richest = None;
        if light.is_some() {
            sum = self.light.len() as i64;
            most = self.light_credit.get() + sum;
            self.light_credit.set(most);
        }
        for (key, heavy) in self.heavy.as_slice() {
            if !is_available(key, &heavy.value) {
                continue;
            }
            let credit = heavy.credit.get() + i64::from(heavy.weight);
            heavy.credit.set(credit);
            sum += i64::from(heavy.weight);
            if credit > most {
                most = credit;
                richest = Some((*key, heavy));
            }
        }
        match richest {
            Some((key, heavy)) => {
                heavy.credit.set(most - sum);
                Some((key, &heavy.value))
            }
            None => {
                let at = light?;
                self.light_credit.set(most - sum);
                self.serve_light(at)
            }
        }
    }
}

/// A shared subscription that matched: choose one member with
/// [`SharedMatch::select`].
pub struct SharedMatch<'t, K, V> {
    pub(crate) name: &'t Text,
    pub(crate) group: &'t Group<K, V>,
    pub(crate) filter_id: FilterId,
}

impl<K, V> Clone for SharedMatch<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for SharedMatch<'_, K, V> {}

/// One member of a shared subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedMember<'t, K, V> {
    /// Its key.
    pub key: K,
    /// Its options.
    pub value: &'t V,
    /// How many subscribers stand behind the key.
    pub weight: u32,
}

impl<'t, K: Copy + Ord, V> SharedMatch<'t, K, V> {
    /// The share name.
    #[must_use]
    pub fn group(&self) -> &'t Text {
        self.name
    }

    /// The filter, without `$share/NAME/`.
    #[must_use]
    pub fn filter(&self) -> &'t Text {
        &self.group.filter
    }

    /// The filter's number in its tree.
    #[must_use]
    pub fn filter_id(&self) -> FilterId {
        self.filter_id
    }

    /// How many members there are, each key counted once.
    #[must_use]
    pub fn member_count(&self) -> usize {
        self.group.len()
    }

    /// The options of one member.
    #[must_use]
    pub fn get(&self, key: K) -> Option<&'t V> {
        self.group.get(key)
    }

    /// Chooses the member whose turn it is among those for which
    /// `is_available` holds: members of weight 1 take turns, and over time
    /// everyone gets a share by its weight. `None` when none is available.
    ///
    /// `is_available` is asked for one light member after the other until one
    /// is available, and once for each member of a greater weight.
    #[must_use]
    pub fn select(&self, is_available: impl FnMut(&K, &V) -> bool) -> Option<(K, &'t V)> {
        self.group.select(is_available)
    }

    /// Chooses as if everyone were available: for a message that must be
    /// queued for one of them when none can take it now.
    #[must_use]
    pub fn select_any(&self) -> Option<(K, &'t V)> {
        self.group.select(|_, _| true)
    }

    /// All members: those of weight 1, then the others.
    pub fn members(&self) -> impl Iterator<Item = SharedMember<'t, K, V>> + use<'t, K, V> {
        let light = self.group.light.as_slice().iter();
        let heavy = self.group.heavy.as_slice().iter();
        light
            .map(|(key, value)| SharedMember {
                key: *key,
                value,
                weight: 1,
            })
            .chain(heavy.map(|(key, heavy)| SharedMember {
                key: *key,
                value: &heavy.value,
                weight: heavy.weight,
            }))
    }
}

impl<K: Copy + Ord + fmt::Debug, V: fmt::Debug> fmt::Debug for SharedMatch<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMatch")
            .field("group", self.group())
            .field("filter", self.filter())
            .field("member_count", &self.member_count())
            .finish_non_exhaustive()
    }
}
