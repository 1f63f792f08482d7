//! Topic aliases of one connection (MQTT 5.0 section 3.3.2.3.4): where they
//! are kept, and which topic gets which alias.

use core::num::NonZeroU16;

/// The topic does not fit the memory set aside for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room for the topic of an alias")]
pub struct AliasFull;

/// Memory for the aliases of one direction.
pub trait AliasStore {
    /// The highest alias; 0 for none.
    fn capacity(&self) -> u16;

    /// The topic of an alias.
    fn topic(&self, alias: NonZeroU16) -> Option<&str>;

    /// Whether there is room for this topic under an alias.
    fn fits(&self, topic: &str) -> bool;

    /// Sets or replaces the topic of an alias, at most
    /// [`AliasStore::capacity`].
    ///
    /// # Errors
    /// [`AliasFull`]; the alias keeps its former topic.
    fn set(&mut self, alias: NonZeroU16, topic: &str) -> Result<(), AliasFull>;

    /// Forgets all aliases [MQTT-3.3.2-7].
    fn clear(&mut self);
}

/// No aliases.
impl AliasStore for () {
    fn capacity(&self) -> u16 {
        0
    }

    fn topic(&self, _: NonZeroU16) -> Option<&str> {
        None
    }

    fn fits(&self, _: &str) -> bool {
        false
    }

    fn set(&mut self, _: NonZeroU16, _: &str) -> Result<(), AliasFull> {
        Err(AliasFull)
    }

    fn clear(&mut self) {}
}

/// `N` aliases for topics of at most `LEN` bytes, without an allocator.
#[derive(Clone, Debug)]
pub struct FixedAliases<const N: usize, const LEN: usize> {
    topics: [([u8; LEN], usize); N],
}

impl<const N: usize, const LEN: usize> Default for FixedAliases<N, LEN> {
    fn default() -> Self {
        const { assert!(N <= u16::MAX as usize) };
        Self {
            topics: [([0; LEN], 0); N],
        }
    }
}

impl<const N: usize, const LEN: usize> AliasStore for FixedAliases<N, LEN> {
    fn capacity(&self) -> u16 {
        u16::try_from(N).unwrap_or(u16::MAX)
    }

    fn topic(&self, alias: NonZeroU16) -> Option<&str> {
        let (bytes, len) = self.topics.get(usize::from(alias.get()) - 1)?;
        let topic = core::str::from_utf8(bytes.get(..*len)?).ok()?;
        // Topics are not empty [MQTT-4.7.3-1].
        (!topic.is_empty()).then_some(topic)
    }

    fn fits(&self, topic: &str) -> bool {
        topic.len() <= LEN
    }

    fn set(&mut self, alias: NonZeroU16, topic: &str) -> Result<(), AliasFull> {
        let slot = self.topics.get_mut(usize::from(alias.get()) - 1);
        let (bytes, len) = slot.ok_or(AliasFull)?;
        let to = bytes.get_mut(..topic.len()).ok_or(AliasFull)?;
        to.copy_from_slice(topic.as_bytes());
        *len = topic.len();
        Ok(())
    }

    fn clear(&mut self) {
        for (_, len) in &mut self.topics {
            *len = 0;
        }
    }
}

/// A number of aliases chosen at run time. Holds at most that many topics of
/// at most 65,535 bytes.
#[cfg(feature = "alloc")]
#[derive(Clone, Debug, Default)]
pub struct HeapAliases {
    topics: alloc::vec::Vec<alloc::string::String>,
    max: u16,
}

#[cfg(feature = "alloc")]
impl HeapAliases {
    /// Room for `max` aliases; takes memory as they are used.
    #[must_use]
    pub fn new(max: u16) -> Self {
        Self {
            topics: alloc::vec::Vec::new(),
            max,
        }
    }
}

#[cfg(feature = "alloc")]
impl AliasStore for HeapAliases {
    fn capacity(&self) -> u16 {
        self.max
    }

    fn topic(&self, alias: NonZeroU16) -> Option<&str> {
        let topic = self.topics.get(usize::from(alias.get()) - 1)?;
        (!topic.is_empty()).then_some(topic.as_str())
    }

    fn fits(&self, _: &str) -> bool {
        true
    }

    fn set(&mut self, alias: NonZeroU16, topic: &str) -> Result<(), AliasFull> {
        if alias.get() > self.max {
            return Err(AliasFull);
        }
        let index = usize::from(alias.get()) - 1;
        if self.topics.len() <= index {
            self.topics.resize_with(index + 1, Default::default);
        }
        let slot = self.topics.get_mut(index).ok_or(AliasFull)?;
        slot.clear();
        slot.push_str(topic);
        Ok(())
    }

    fn clear(&mut self) {
        self.topics.clear();
    }
}

/// The alias to try for a topic: each topic has one place, taken over by the
/// last one that hashes there. Two busy topics in one place cost three bytes a
/// message; a search would cost more.
pub(super) fn place(topic: &str, max: u16) -> Option<NonZeroU16> {
    let hash = fnv1a(topic);
    let place = (hash ^ (hash >> 16)).checked_rem(u32::from(max))?;
    NonZeroU16::new(u16::try_from(place).ok()?.checked_add(1)?)
}

/// The FNV-1a hash of a text.
pub(super) fn fnv1a(text: &str) -> u32 {
    const OFFSET: u32 = 0x811c_9dc5;
    const PRIME: u32 = 0x0100_0193;
    text.bytes().fold(OFFSET, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(PRIME)
    })
}
