//! What a node is like: its limits, and when it ends. Kept in the store as bytes.

use alloc::boxed::Box;
use core::time::Duration;

use bytes::Bytes;
use dunlin_base::Text;

use crate::random::sender_number;
use crate::wants::Wants;

/// What happens to a message for a queue that is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Overflow {
    /// Its sender is refused.
    #[default]
    Reject = 0,
    /// The queue goes without; its sender does not hear of it.
    DropNewest = 1,
    /// The oldest messages make room.
    DropOldest = 2,
}

impl Overflow {
    /// What the configuration calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reject => "reject",
            Self::DropNewest => "drop-newest",
            Self::DropOldest => "drop-oldest",
        }
    }
}

/// When a node ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Life {
    /// When it is deleted.
    #[default]
    Kept,
    /// When the link that made it is closed.
    Close,
    /// When no link is left.
    NoLinks,
    /// When it is empty.
    NoMessages,
    /// When no link is left and it is empty.
    NoLinksOrMessages,
    /// So many seconds after its last link was detached, or when a link closes it.
    Detached(u32),
}

/// Levels that priorities are sorted into, at most.
pub const LEVELS_MAX: u8 = 10;

/// The priority of a message that says none (AMQP 1.0 section 3.2.1).
const PRIORITY_USUAL: u8 = 4;

/// Limits and policies of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// Most messages, those that are not settled included.
    pub messages_max: usize,
    /// Most bytes of them in memory.
    pub bytes_max: usize,
    /// When it is full.
    pub overflow: Overflow,
    /// Longest time that a message stays.
    pub ttl: Option<Duration>,
    /// Levels that the priorities 0 to 9 are sorted into; 1: none go before others.
    pub levels: u8,
    /// Failed deliveries after which a message is dead; 0: no limit.
    pub deliveries_max: u16,
    /// Address of the queue that gets dead messages.
    pub dead_letter: Option<Text>,
    /// It and its durable messages are in the store.
    pub durable: bool,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            messages_max: 100_000,
            bytes_max: 64 * 1024 * 1024,
            overflow: Overflow::Reject,
            ttl: None,
            levels: LEVELS_MAX,
            deliveries_max: 0,
            dead_letter: None,
            durable: true,
        }
    }
}

impl QueueOptions {
    /// The level of a message of this priority.
    pub(crate) fn level(&self, priority: Option<u8>) -> u8 {
        let priority = priority.unwrap_or(PRIORITY_USUAL).min(LEVELS_MAX - 1);
        let levels = self.levels.clamp(1, LEVELS_MAX);
        let level = u16::from(priority) * u16::from(levels) / u16::from(LEVELS_MAX);
        level as u8
    }
}

/// What the store keeps of a node besides its address and bindings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) options: QueueOptions,
    pub(crate) life: Life,
    /// It has at most one consumer.
    pub(crate) exclusive: bool,
    /// The client whose rights count for what it is bound to.
    pub(crate) client_id: Text,
    /// What it wants of what its bindings bring, in a form of its protocol; empty: all.
    pub(crate) filter: Box<[u8]>,
}

/// With a filter.
const VERSION: u8 = 2;

/// Without: what earlier releases wrote.
const VERSION_PLAIN: u8 = 1;

impl Kept {
    /// What it wants of what its bindings bring, if not all; `user` has it.
    pub(crate) fn wants(&self, user: Option<&Text>) -> Option<Wants> {
        let own = sender_number(user.map(|user| &**user), &self.client_id);
        Wants::parse(&self.filter, own)
    }

    pub(crate) fn encode(&self) -> Box<[u8]> {
        let Self {
            options,
            life,
            exclusive,
            client_id,
            filter,
        } = self;
        let (life, secs) = match life {
            Life::Kept => (0, 0),
            Life::Close => (1, 0),
            Life::NoLinks => (2, 0),
            Life::NoMessages => (3, 0),
            Life::NoLinksOrMessages => (4, 0),
            Life::Detached(secs) => (5, *secs),
        };
        let ttl = options.ttl.map_or(0, |ttl| ttl.as_micros() as u64);
        let version = match filter.is_empty() {
            true => VERSION_PLAIN,
            false => VERSION,
        };
        let mut out = alloc::vec![version, options.overflow as u8, life, u8::from(*exclusive)];
        out.push(options.levels);
        out.extend_from_slice(&options.deliveries_max.to_le_bytes());
        out.extend_from_slice(&secs.to_le_bytes());
        for number in [options.messages_max as u64, options.bytes_max as u64, ttl] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let dead = options.dead_letter.as_ref();
        let dead = dead.map_or(&[][..], |dead| dead.as_bytes());
        out.extend_from_slice(&(dead.len() as u32).to_le_bytes());
        out.extend_from_slice(dead);
        if !filter.is_empty() {
            out.extend_from_slice(&(filter.len() as u32).to_le_bytes());
            out.extend_from_slice(filter);
        }
        out.extend_from_slice(client_id.as_bytes());
        out.into()
    }

    /// `None`: bytes of a later release.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let ([version, overflow, life, exclusive, levels], rest) = bytes.split_first_chunk()?;
        let (deliveries_max, rest) = rest.split_first_chunk()?;
        let (secs, rest) = rest.split_first_chunk()?;
        let (messages_max, rest) = rest.split_first_chunk()?;
        let (bytes_max, rest) = rest.split_first_chunk()?;
        let (ttl, rest) = rest.split_first_chunk()?;
        let (dead, rest) = rest.split_first_chunk()?;
        let (dead, rest) = rest.split_at_checked(u32::from_le_bytes(*dead) as usize)?;
        let (filter, client_id) = match *version {
            VERSION_PLAIN => (&[][..], rest),
            VERSION => {
                let (len, rest) = rest.split_first_chunk()?;
                rest.split_at_checked(u32::from_le_bytes(*len) as usize)?
            }
            _ => return None,
        };
        let number = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
        let size = |bytes| usize::try_from(number(bytes)).unwrap_or(usize::MAX);
        let text = |bytes: &[u8]| Text::from_utf8(Bytes::copy_from_slice(bytes)).ok();
        let dead = text(dead)?;
        Some(Self {
            options: QueueOptions {
                messages_max: size(messages_max),
                bytes_max: size(bytes_max),
                overflow: match overflow {
                    0 => Overflow::Reject,
                    1 => Overflow::DropNewest,
                    2 => Overflow::DropOldest,
                    _ => return None,
                },
                ttl: Some(Duration::from_micros(number(ttl))).filter(|ttl| !ttl.is_zero()),
                levels: *levels,
                deliveries_max: u16::from_le_bytes(*deliveries_max),
                dead_letter: Some(dead).filter(|dead| !dead.is_empty()),
                durable: true,
            },
            life: match life {
                0 => Life::Kept,
                1 => Life::Close,
                2 => Life::NoLinks,
                3 => Life::NoMessages,
                4 => Life::NoLinksOrMessages,
                5 => Life::Detached(u32::from_le_bytes(*secs)),
                _ => return None,
            },
            exclusive: *exclusive != 0,
            client_id: text(client_id)?,
            filter: filter.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_comes_back() {
        let all = [
            Life::Kept,
            Life::Close,
            Life::NoLinks,
            Life::NoMessages,
            Life::NoLinksOrMessages,
            Life::Detached(7),
        ];
        for (at, life) in all.into_iter().enumerate() {
            let kept = Kept {
                options: QueueOptions {
                    messages_max: 5,
                    bytes_max: usize::MAX,
                    overflow: Overflow::DropOldest,
                    ttl: (at > 1).then_some(Duration::from_millis(1500)),
                    levels: 3,
                    deliveries_max: 300,
                    dead_letter: (at > 2).then(|| Text::from("/queues/dead")),
                    durable: true,
                },
                life,
                exclusive: at % 2 == 0,
                client_id: Text::from("c"),
                filter: b"f".repeat(at % 2 * 3).into(),
            };
            let bytes = kept.encode();
            assert_eq!(bytes[0], if at % 2 == 0 { 1 } else { 2 });
            assert_eq!(Kept::decode(&bytes).as_ref(), Some(&kept));
            for len in 0..39 {
                assert_eq!(Kept::decode(&bytes[..len]), None, "{len} bytes");
            }
        }
        assert_eq!(Kept::decode(&[3; 40]), None, "of a later release");
    }

    #[test]
    fn priorities_are_sorted_into_levels() {
        let of = |levels, priority| {
            let options = QueueOptions {
                levels,
                ..QueueOptions::default()
            };
            options.level(priority)
        };
        assert_eq!(
            (of(10, Some(0)), of(10, None), of(10, Some(200))),
            (0, 4, 9)
        );
        assert_eq!((of(1, Some(9)), of(0, Some(9))), (0, 0));
        assert_eq!((of(2, Some(4)), of(2, Some(5))), (0, 1));
    }
}
