//! `[queues]` and `[[queue]]`: what AMQP clients attach to at `/queues/NAME`.

use dunlin_base::topic;
use dunlin_broker::{LEVELS_MAX, NamedQueue, Overflow, QueueOptions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::Wrong;
use super::limits::{Limits, QueueFull};
use super::units::{Size, Span};

/// Most queues of the configuration: they are looked through one by one.
const QUEUES_MAX: usize = 1024;

/// Most topic filters of a queue, likewise.
const TOPICS_MAX: usize = 64;

/// Most bytes of a name.
const NAME_BYTES_MAX: usize = 256;

/// `[queues]`: what clients may make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Queues {
    /// A queue that is attached to is made if it is not there.
    pub auto_create: bool,
    /// Most queues.
    pub max: usize,
    /// Most queues of one user.
    pub max_per_user: usize,
}

impl Default for Queues {
    fn default() -> Self {
        Self {
            auto_create: true,
            max: 10_000,
            max_per_user: 1000,
        }
    }
}

/// When a queue is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "BridgeFull")]
#[serde(rename_all = "kebab-case")]
pub enum Full {
    /// The sender is refused.
    #[default]
    Reject,
    /// The queue goes without.
    DropNewest,
    /// The oldest messages make room.
    DropOldest,
}

impl From<Full> for Overflow {
    fn from(full: Full) -> Self {
        match full {
            Full::Reject => Self::Reject,
            Full::DropNewest => Self::DropNewest,
            Full::DropOldest => Self::DropOldest,
        }
    }
}

/// `[[queue]]`: one that is there from the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Queue {
    /// Its address is `/queues/` and this.
    pub name: String,
    /// Topic filters that bring it messages.
    #[serde(default)]
    pub topics: Vec<String>,
    /// Most messages.
    #[serde(default = "messages")]
    pub max_messages: usize,
    /// Most bytes of them in memory.
    #[serde(default = "bytes")]
    pub max_bytes: Size,
    /// What happens when it is full.
    #[serde(default)]
    pub full: Full,
    /// Longest time that a message stays; zero: no limit.
    #[serde(default = "no_time")]
    pub ttl: Span,
    /// Levels that priorities are sorted into.
    #[serde(default = "levels")]
    pub levels: u8,
    /// Failed deliveries after which a message is dead; 0: no limit.
    #[serde(default)]
    pub max_deliveries: u16,
    /// The queue that gets dead messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_letter: Option<String>,
}

const fn messages() -> usize {
    100_000
}

const fn bytes() -> Size {
    Size::mib(64)
}

const fn no_time() -> Span {
    Span::secs(0)
}

const fn levels() -> u8 {
    LEVELS_MAX
}

/// The queues as a shard takes them, of so many shards.
pub(crate) fn queues(
    queues: &Queues,
    named: &[Queue],
    limits: &Limits,
    shards: u16,
) -> dunlin_broker::Queues {
    let shards = usize::from(shards.max(1));
    dunlin_broker::Queues {
        named: named.iter().map(one).collect(),
        auto_create: queues.auto_create,
        options: options(limits),
        max: queues.max.div_ceil(shards),
        of_user_max: queues.max_per_user.div_ceil(shards),
    }
}

/// What a queue is like that a client makes.
pub(crate) fn options(limits: &Limits) -> QueueOptions {
    QueueOptions {
        messages_max: limits.queue.max_queued_messages,
        bytes_max: limits.queue.max_queued_bytes.as_usize(),
        overflow: match limits.queue.queue_full {
            QueueFull::Reject => Overflow::Reject,
            QueueFull::DropNewest => Overflow::DropNewest,
        },
        ..QueueOptions::default()
    }
}

fn one(queue: &Queue) -> NamedQueue {
    let dead = queue.dead_letter.as_ref();
    NamedQueue {
        name: queue.name.as_str().into(),
        topics: queue.topics.iter().map(|it| it.as_str().into()).collect(),
        options: QueueOptions {
            messages_max: queue.max_messages,
            bytes_max: queue.max_bytes.as_usize(),
            overflow: queue.full.into(),
            ttl: Some(queue.ttl.0).filter(|ttl| !ttl.is_zero()),
            levels: queue.levels,
            deliveries_max: queue.max_deliveries,
            dead_letter: dead.map(|dead| format!("/queues/{dead}").into()),
            ..QueueOptions::default()
        },
    }
}

/// What is wrong with a queue, by its number.
pub(super) fn check(queues: &[Queue]) -> Result<(), (usize, Wrong)> {
    for (index, queue) in queues.iter().enumerate() {
        let wrong = |key, why| Err((index, (key, why)));
        let name = &queue.name;
        if index >= QUEUES_MAX {
            return wrong("name", format!("there are more than {QUEUES_MAX} queues"));
        }
        if name.len() > NAME_BYTES_MAX || topic::validate_name(name).is_err() {
            return wrong("name", format!("'{name}' is not a name for a queue"));
        }
        if queues.iter().take(index).any(|other| other.name == *name) {
            return wrong("name", format!("there are two queues '{name}'"));
        }
        let is_filter = |filter: &String| {
            topic::validate_filter(filter).is_ok() && !filter.starts_with("$share/")
        };
        if let Some(bad) = queue.topics.iter().find(|filter| !is_filter(filter)) {
            return wrong("topics", format!("'{bad}' is not a topic filter"));
        }
        if queue.topics.len() > TOPICS_MAX {
            return wrong(
                "topics",
                format!("there are more than {TOPICS_MAX} filters"),
            );
        }
        if !(1..=LEVELS_MAX).contains(&queue.levels) {
            let why = format!("{} is not between 1 and {LEVELS_MAX}", queue.levels);
            return wrong("levels", why);
        }
        if let Some(dead) = &queue.dead_letter
            && (dead == name || !queues.iter().any(|other| other.name == *dead))
        {
            return wrong("dead_letter", format!("'{dead}' is not another queue"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str) -> Queue {
        Queue {
            name: name.into(),
            topics: Vec::new(),
            max_messages: messages(),
            max_bytes: bytes(),
            full: Full::Reject,
            ttl: no_time(),
            levels: levels(),
            max_deliveries: 0,
            dead_letter: None,
        }
    }

    #[test]
    fn queues_have_names_of_their_own_and_limits_that_fit() {
        let bound = |filter: &str| Queue {
            topics: vec![filter.into()],
            ..queue("q")
        };
        let dead = |name: &str| Queue {
            dead_letter: Some(name.into()),
            ..queue("q")
        };
        let level = |levels| Queue {
            levels,
            ..queue("q")
        };
        assert!(check(&[queue("dead"), dead("dead")]).is_ok());
        for (bad, key) in [
            (queue("dead"), "name"),
            (queue("a/#"), "name"),
            (queue(""), "name"),
            (bound("$share/g/t"), "topics"),
            (bound("a/#/b"), "topics"),
            (level(0), "levels"),
            (level(11), "levels"),
            (dead("q"), "dead_letter"),
            (dead("nowhere"), "dead_letter"),
        ] {
            let found = check(&[queue("dead"), bad]).map_err(|(index, (key, _))| (index, key));
            assert_eq!(found, Err((1, key)));
        }
    }
}
