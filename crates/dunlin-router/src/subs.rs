//! The subscribers of one filter: in place while there is one, behind a pointer
//! when there are more or when there are shared groups.

use alloc::boxed::Box;

use dunlin_base::Text;

use crate::entries::Entries;
use crate::shared::Group;

/// Who subscribed to exactly one filter.
#[derive(Clone, Debug)]
pub(crate) enum Subs<K, V> {
    None,
    One(K, V),
    Many(Box<Fan<K, V>>),
}

/// Several subscribers, or groups.
#[derive(Clone, Debug)]
pub(crate) struct Fan<K, V> {
    pub(crate) plain: Entries<K, V>,
    /// By share name.
    pub(crate) groups: Entries<Text, Group<K, V>>,
}

impl<K: Copy + Ord, V> Subs<K, V> {
    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// The many, made of what was there.
    pub(crate) fn fan_mut(&mut self) -> &mut Fan<K, V> {
        loop {
            match self {
                Self::Many(fan) => return fan,
                _ => {
                    let mut plain = Entries::new();
                    if let Self::One(key, value) = core::mem::replace(self, Self::None) {
                        plain.insert(key, value);
                    }
                    let groups = Entries::new();
                    *self = Self::Many(Box::new(Fan { plain, groups }));
                }
            }
        }
    }

    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self {
            Self::None => {
                *self = Self::One(key, value);
                None
            }
            Self::One(k, old) if *k == key => Some(core::mem::replace(old, value)),
            Self::One(..) | Self::Many(_) => self.fan_mut().plain.insert(key, value),
        }
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        match self {
            Self::Many(fan) => fan.plain.remove(&key).map(|(_, value)| value),
            Self::One(k, _) if *k == key => match core::mem::replace(self, Self::None) {
                Self::One(_, value) => Some(value),
                Self::None | Self::Many(_) => None,
            },
            Self::None | Self::One(..) => None,
        }
    }

    /// Gives back the memory of a fan that holds one plain subscription or
    /// nothing.
    pub(crate) fn tidy(&mut self) {
        if let Self::Many(fan) = self
            && fan.groups.is_empty()
            && fan.plain.len() <= 1
            && let Self::Many(fan) = core::mem::replace(self, Self::None)
            && let Some((key, value)) = fan.plain.into_only()
        {
            *self = Self::One(key, value);
        }
    }
}
