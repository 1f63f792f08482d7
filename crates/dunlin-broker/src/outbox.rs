//! What a shard wants done, in order, until it is taken.

use alloc::collections::VecDeque;

use dunlin_base::transport::{NetCommand, NetCommandKind};
use dunlin_base::{ConnId, ShardId};

use crate::io::{BusMessage, Event, Output};

/// Outputs that wait to be taken. Bounded by what one call of the shard adds,
/// since its owner takes everything after each batch.
#[derive(Debug)]
pub(crate) struct Outbox {
    shard: ShardId,
    queue: VecDeque<Output>,
}

impl Outbox {
    pub(crate) const fn new(shard: ShardId) -> Self {
        Self {
            shard,
            queue: VecDeque::new(),
        }
    }

    pub(crate) fn push(&mut self, output: Output) {
        self.queue.push_back(output);
    }

    /// Something for the log.
    pub(crate) fn event(&mut self, event: Event) {
        self.queue.push_back(Output::Event(event));
    }

    /// Something for another shard.
    pub(crate) fn bus(&mut self, to: ShardId, message: BusMessage) {
        self.queue.push_back(Output::Bus { to, message });
    }

    /// A command for the transport, wherever its socket is.
    pub(crate) fn command(&mut self, conn: ConnId, kind: NetCommandKind) {
        let owner = conn.shard();
        let command = NetCommand::new(conn, kind);
        if owner == self.shard {
            self.queue.push_back(Output::Net(command));
        } else {
            self.bus(owner, BusMessage::Command(command));
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Output> {
        self.queue.pop_front()
    }

    pub(crate) fn shrink(&mut self) {
        self.queue.shrink_to_fit();
    }
}
