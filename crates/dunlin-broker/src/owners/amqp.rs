//! What a shard keeps of a connection that speaks AMQP, and of its links: each
//! link is a session of the shard, with a queue or with publishes of its own.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use core::ops::{Deref, DerefMut};

use dunlin_amqp::{Connection, Delivery, LinkId};
use dunlin_base::ConnId;
use dunlin_base::Text;
use dunlin_base::transport::Peer;
use dunlin_queue::{Consumer, Queue};

use crate::ids::SessionIdx;
use crate::owners::common::{ConnCore, Identity, SessionCore, Who};
use crate::owners::subscribers::Subscribed;

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AmqpPhase {
    /// The client has not opened.
    Opening,
    /// The authenticator has its password.
    Authenticating,
    /// It is authenticated by SASL and has not opened.
    Authenticated,
    /// Both sides have opened.
    Open,
    /// Closing: what still arrives is ignored.
    Closing,
}

/// A connection that speaks AMQP.
#[derive(Debug)]
pub(crate) struct AmqpConn {
    core: ConnCore,
    pub(crate) engine: Connection,
    pub(crate) phase: AmqpPhase,
    pub(crate) who: Option<Box<Who>>,
    pub(crate) identity: Identity,
    pub(crate) links: BTreeMap<LinkId, SessionIdx>,
    /// Bytes given to the transport that have not left it.
    pub(crate) given: usize,
    /// Bytes of messages given to the engine since the last flush.
    pub(crate) written: usize,
}

impl AmqpConn {
    pub(crate) fn new(id: ConnId, peer: Peer, engine: Connection) -> Self {
        Self {
            core: ConnCore::new(id, peer),
            engine,
            phase: AmqpPhase::Opening,
            who: None,
            identity: Identity::default(),
            links: BTreeMap::new(),
            given: 0,
            written: 0,
        }
    }
}

impl AmqpConn {
    /// Bytes on their way out.
    pub(crate) const fn backlog(&self) -> usize {
        self.given + self.written
    }
}

impl Deref for AmqpConn {
    type Target = ConnCore;

    fn deref(&self) -> &ConnCore {
        &self.core
    }
}

impl DerefMut for AmqpConn {
    fn deref_mut(&mut self) -> &mut ConnCore {
        &mut self.core
    }
}

/// A publish of a client that has no outcome yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    /// Names the publish.
    pub(crate) token: u64,
    pub(crate) delivery: Delivery,
    /// The client settles first.
    pub(crate) second: bool,
}

/// Which way a link goes.
#[derive(Debug)]
pub(crate) enum End {
    /// The client sends.
    Incoming {
        /// The topic of all its messages; `None`: each says its own.
        topic: Option<Text>,
        /// Bounded by the credit.
        open: VecDeque<Open>,
        /// Messages that the client may send.
        credit: u32,
    },
    /// The client receives.
    Outgoing {
        filter: Text,
        subscribed: Subscribed,
        /// Every delivery is settled when it is sent.
        settled: bool,
        /// The client has asked for what there is.
        drain: bool,
    },
}

/// One link of a connection.
#[derive(Debug)]
pub(crate) struct AmqpLink {
    core: SessionCore,
    pub(crate) link: LinkId,
    pub(crate) end: End,
    /// What waits for credit.
    pub(crate) queue: Queue,
    /// What was sent and has no outcome; its keys are in the delivery tags.
    pub(crate) consumer: Consumer<u32>,
    pub(crate) last_key: u32,
}

impl AmqpLink {
    pub(crate) fn new(core: SessionCore, link: LinkId, end: End) -> Self {
        Self {
            core,
            link,
            end,
            queue: Queue::default(),
            consumer: Consumer::default(),
            last_key: 0,
        }
    }

    /// The subscription of a receiver.
    pub(crate) const fn subscription(&self) -> Option<(&Text, &Subscribed)> {
        match &self.end {
            End::Outgoing {
                filter, subscribed, ..
            } => Some((filter, subscribed)),
            End::Incoming { .. } => None,
        }
    }
}

impl Deref for AmqpLink {
    type Target = SessionCore;

    fn deref(&self) -> &SessionCore {
        &self.core
    }
}

impl DerefMut for AmqpLink {
    fn deref_mut(&mut self) -> &mut SessionCore {
        &mut self.core
    }
}
