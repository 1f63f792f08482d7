//! What clients want done with queues, and what comes of it, as values: orders to
//! the shard that a queue lives on, and its answers.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use dunlin_base::{ShardId, Text};

use crate::access::{Access, Action, Actor, OwnRules};
use crate::ids::SessionRef;
use crate::owners::common::Standing;
use crate::queues::options::{LEVELS_MAX, Overflow, QueueOptions};

/// Most topic filters of a queue.
pub(crate) const TOPICS_MAX: usize = 64;

/// What is wanted of queues; each is named by its address.
#[derive(Debug)]
pub(crate) enum Order {
    Create(Text, Box<Changes>),
    Read(Text),
    Update(Text, Box<Changes>),
    Delete(Text),
    /// Its messages that wait are removed, so many at most.
    Purge(Text, usize),
    /// The queues that the client may read: the first ones by address.
    List {
        rows: usize,
    },
}

impl Order {
    /// The queue, and what the access list has to allow there.
    pub(crate) const fn right(&self) -> Option<(&Text, Action)> {
        match self {
            Self::Read(address) => Some((address, Action::Subscribe)),
            Self::Create(address, _)
            | Self::Update(address, _)
            | Self::Delete(address)
            | Self::Purge(address, _) => Some((address, Action::Publish)),
            Self::List { .. } => None,
        }
    }

    /// What it says of the options of a queue.
    pub(crate) fn changes(&self) -> Option<&Changes> {
        match self {
            Self::Create(_, changes) | Self::Update(_, changes) => Some(changes),
            _ => None,
        }
    }
}

/// What is said of the options of a queue; the rest stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Most messages.
    pub messages_max: Option<usize>,
    /// Most bytes of them in memory.
    pub bytes_max: Option<usize>,
    /// When it is full.
    pub overflow: Option<Overflow>,
    /// Longest time that a message stays; zero: no limit.
    pub ttl: Option<Duration>,
    /// Levels of priorities.
    pub levels: Option<u8>,
    /// Failed deliveries after which a message is dead; 0: no limit.
    pub deliveries_max: Option<u16>,
    /// Address of the queue that gets dead messages; empty: none.
    pub dead_letter: Option<Text>,
    /// Whether it is in the store.
    pub durable: Option<bool>,
    /// Topic filters that bring messages.
    pub topics: Option<Vec<Text>>,
}

impl Changes {
    /// The options with these changes.
    pub(crate) fn of(&self, options: &QueueOptions) -> QueueOptions {
        let dead_letter = match &self.dead_letter {
            Some(address) => Some(address.clone()).filter(|address| !address.is_empty()),
            None => options.dead_letter.clone(),
        };
        let ttl = match self.ttl {
            Some(ttl) => Some(ttl).filter(|ttl| !ttl.is_zero()),
            None => options.ttl,
        };
        QueueOptions {
            messages_max: self.messages_max.unwrap_or(options.messages_max),
            bytes_max: self.bytes_max.unwrap_or(options.bytes_max),
            overflow: self.overflow.unwrap_or(options.overflow),
            ttl,
            levels: self.levels.unwrap_or(options.levels),
            deliveries_max: self.deliveries_max.unwrap_or(options.deliveries_max),
            dead_letter,
            durable: self.durable.unwrap_or(options.durable),
        }
    }

    /// What is wrong with them for the queue of this address.
    ///
    /// # Errors
    /// The first mistake.
    pub fn check(&self, address: &str) -> Result<(), &'static str> {
        let levels = self.levels.unwrap_or(1);
        if self.messages_max == Some(0) || self.bytes_max == Some(0) {
            return Err("a queue has room for a message");
        }
        if !(1..=LEVELS_MAX).contains(&levels) {
            return Err("levels is between 1 and 10");
        }
        if self.dead_letter.as_deref() == Some(address) {
            return Err("dead_letter is another queue");
        }
        let topics = self.topics.as_ref().map_or(0, Vec::len);
        match topics > TOPICS_MAX {
            true => Err("at most 64 topics"),
            false => Ok(()),
        }
    }
}

/// Who wants to know of all queues.
#[derive(Debug)]
pub(crate) struct Asker {
    pub(crate) user: Option<Text>,
    pub(crate) client_id: Text,
    pub(crate) standing: Standing,
    pub(crate) rules: Option<Arc<OwnRules>>,
}

impl Asker {
    /// Whether the rules let it know of the queue with this address.
    pub(crate) fn may_read(&self, access: &Access, address: &str) -> bool {
        match self.standing {
            Standing::Gone | Standing::Unproved => false,
            Standing::Server => true,
            Standing::Open | Standing::Listed => {
                let who = Actor {
                    user: self.user.as_deref(),
                    client_id: &self.client_id,
                    rules: self.rules.as_deref(),
                };
                access.allows(who, Action::Subscribe, &right_of(address))
            }
        }
    }
}

/// In front of the address of a queue, where rights to manage it are meant.
const RIGHTS: &str = "$management";

/// What the access list knows the management of a queue by.
pub(crate) fn right_of(address: &str) -> alloc::string::String {
    alloc::format!("{RIGHTS}{address}")
}

/// Who waits for an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) shard: ShardId,
    /// A link; `None`: an operator.
    pub(crate) link: Option<SessionRef>,
    /// The number of the request there.
    pub(crate) number: u64,
}

/// An order, and who gave it.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) asked: Asked,
    pub(crate) asker: Asker,
    pub(crate) order: Order,
}

/// A queue as it is.
#[derive(Clone, Debug)]
pub struct View {
    /// Its address.
    pub address: Text,
    /// Its limits and policies.
    pub options: QueueOptions,
    /// Topic filters that bring messages.
    pub topics: Vec<Text>,
    /// It is of the configuration, which alone changes it.
    pub configured: bool,
    /// Messages that wait.
    pub messages: usize,
    /// Messages that consumers have and have not settled.
    pub unsettled: usize,
    /// Of all of them in memory.
    pub bytes: usize,
    /// Links that take from it.
    pub consumers: usize,
    /// When the message that is taken next was made, in milliseconds since 1970, if its
    /// sender says so and it is in memory.
    pub first_created_ms: Option<i64>,
}

/// Why an order was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// There is no such queue.
    NotFound,
    /// There is one already.
    Exists,
    /// It is of the configuration.
    Configured,
    /// It is being made, or changed for another client.
    Busy,
    /// Whether it is durable does not change.
    Durable,
    /// There is no room for another queue.
    NoRoom,
    /// The store refused it.
    Store,
}

/// What came of an order.
#[derive(Clone, Debug)]
pub enum Answer {
    /// It was made.
    Created(Box<View>),
    /// As it is, or is now.
    Queue(Box<View>),
    /// It is gone.
    Deleted,
    /// So many messages were removed.
    Purged(u64),
    /// Of one shard: the first ones.
    List(Vec<View>),
    /// It was not done.
    Refused(Problem),
}
