//! Topic aliases (MQTT 5.0 section 3.3.2.3.4), one table a direction, alive as
//! long as the network connection. Both ends use [`TopicAliases`] for what the
//! peer defines; for their own the server uses [`AliasTable`], the client
//! [`HashedAliases`].

use alloc::vec::Vec;
use core::num::NonZeroU16;

use dunlin_base::Text;
use hashbrown::HashMap;

/// Largest alias table kept for a peer, even if it offers more. Worst case 64
/// topics of 65,535 bytes a direction.
const ALIASES_MAX: u16 = 64;

/// Aliases that the peer defines.
#[derive(Debug, Default)]
pub struct TopicAliases {
    topics: Vec<Option<Text>>,
    maximum: u16,
}

impl TopicAliases {
    /// A table for the Topic Alias Maximum that this side announced.
    #[must_use]
    pub const fn new(maximum: u16) -> Self {
        Self {
            topics: Vec::new(),
            maximum,
        }
    }

    /// Sets an alias; `false` when it is over the announced maximum
    /// [MQTT-3.3.2-9].
    #[must_use]
    pub fn set(&mut self, alias: NonZeroU16, topic: &str) -> bool {
        if alias.get() > self.maximum {
            return false;
        }
        let index = usize::from(alias.get() - 1);
        if self.topics.len() <= index {
            self.topics.resize(index + 1, None);
        }
        if let Some(slot) = self.topics.get_mut(index) {
            *slot = Some(Text::from(topic));
        }
        true
    }

    /// Forgets all aliases [MQTT-3.3.2-7].
    pub fn clear(&mut self) {
        self.topics = Vec::new();
    }

    /// The topic behind an alias, if it was set.
    #[must_use]
    pub fn topic(&self, alias: NonZeroU16) -> Option<Text> {
        self.get(alias).cloned()
    }

    /// As [`TopicAliases::topic`], borrowed.
    #[must_use]
    pub fn get(&self, alias: NonZeroU16) -> Option<&Text> {
        self.topics.get(usize::from(alias.get() - 1))?.as_ref()
    }
}

/// Aliases that this side defines: the first topics used get one, for the life
/// of the connection.
#[derive(Debug, Default)]
pub struct AliasTable {
    aliases: HashMap<Text, NonZeroU16>,
    maximum: u16,
}

impl AliasTable {
    /// A table for the Topic Alias Maximum that the peer announced.
    #[must_use]
    pub fn new(maximum: u16) -> Self {
        Self {
            aliases: HashMap::new(),
            maximum: maximum.min(ALIASES_MAX),
        }
    }

    /// Whether aliases may be used at all.
    #[must_use]
    pub const fn is_enabled(&self) -> bool {
        self.maximum > 0
    }

    /// The alias for a topic, and whether it is new, so that the topic must
    /// travel with it once. `None` when the table is full.
    pub fn alias(&mut self, topic: &str) -> Option<(NonZeroU16, bool)> {
        if let Some(&alias) = self.aliases.get(topic.as_bytes()) {
            return Some((alias, false));
        }
        let next = u16::try_from(self.aliases.len()).ok()?.checked_add(1)?;
        if next > self.maximum {
            return None;
        }
        let alias = NonZeroU16::new(next)?;
        self.aliases.insert(Text::from(topic), alias);
        Some((alias, true))
    }
}

/// Aliases that this side defines: each topic has one place, given by its hash,
/// and the last topic used there has the alias. Two busy topics in one place
/// cost three bytes a message; a search would cost more.
#[derive(Debug, Default)]
pub struct HashedAliases {
    topics: TopicAliases,
}

impl HashedAliases {
    /// At most `maximum` aliases.
    #[must_use]
    pub const fn new(maximum: u16) -> Self {
        Self {
            topics: TopicAliases::new(maximum),
        }
    }

    /// The alias for a topic, where the peer takes `peer_maximum` of them, and
    /// whether it has to be set: then the topic travels with it, and
    /// [`HashedAliases::set`] follows.
    #[must_use]
    pub fn alias(&self, topic: &str, peer_maximum: u16) -> Option<(NonZeroU16, bool)> {
        let hash = fnv1a(topic);
        let maximum = self.topics.maximum.min(peer_maximum);
        let place = (hash ^ (hash >> 16)).checked_rem(u32::from(maximum))?;
        let alias = NonZeroU16::new(u16::try_from(place).ok()?.checked_add(1)?)?;
        let is_set = self
            .topics
            .get(alias)
            .is_some_and(|known| known.as_bytes() == topic.as_bytes());
        Some((alias, !is_set))
    }

    /// The topic has been sent with its alias.
    pub fn set(&mut self, alias: NonZeroU16, topic: &str) {
        let is_set = self.topics.set(alias, topic);
        debug_assert!(is_set, "alias over the maximum");
    }

    /// Forgets all aliases [MQTT-3.3.2-7].
    pub fn clear(&mut self) {
        self.topics.clear();
    }
}

/// The FNV-1a hash of a text.
fn fnv1a(text: &str) -> u32 {
    const OFFSET: u32 = 0x811c_9dc5;
    const PRIME: u32 = 0x0100_0193;
    text.bytes().fold(OFFSET, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(PRIME)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_over_the_maximum_are_refused() {
        //= mqtt5#[MQTT-3.3.2-9] type=test
        let mut table = TopicAliases::new(2);
        let alias = |n| NonZeroU16::new(n).expect("not zero");
        assert!(table.set(alias(2), "a"));
        assert!(!table.set(alias(3), "b"));
        assert_eq!(table.topic(alias(1)), None);
        assert_eq!(table.topic(alias(2)), Some(Text::from("a")));
        assert!(table.set(alias(2), "c"));
        assert_eq!(table.topic(alias(2)), Some(Text::from("c")));
    }

    #[test]
    fn outbound_aliases_stop_at_the_clients_maximum() {
        //= mqtt5#[MQTT-3.1.2-26] type=test
        let mut table = AliasTable::new(1);
        let one = NonZeroU16::new(1).expect("not zero");
        assert_eq!(table.alias("a"), Some((one, true)));
        assert_eq!(table.alias("a"), Some((one, false)));
        assert_eq!(table.alias("b"), None);
        assert!(!AliasTable::new(0).is_enabled());
    }

    #[test]
    fn hashed_aliases_go_to_the_last_topic_of_their_place() {
        let mut table = HashedAliases::new(4);
        let one = NonZeroU16::MIN;
        assert_eq!(table.alias("a", 1), Some((one, true)));
        table.set(one, "a");
        assert_eq!(table.alias("a", 1), Some((one, false)));
        assert_eq!(table.alias("b", 1), Some((one, true)));
        table.set(one, "b");
        assert_eq!(table.alias("a", 1), Some((one, true)));
        assert_eq!(table.alias("a", 0), None);
        table.clear();
        assert_eq!(table.alias("b", 1), Some((one, true)));
    }
}
