//! Calls between links and nodes. One within a shard waits for the end of what goes
//! on; one to another shard goes by the bus, behind everything that was said before.

use dunlin_base::ShardId;

use crate::io::{BusMessage, QueueCall};
use crate::owners::{Later, Owners};
use crate::queues::calls::Call;

impl Owners {
    /// Says something to a link or node of a shard.
    pub(crate) fn call(&mut self, to: ShardId, call: Call) {
        if to == self.config.shard {
            self.later.push_back(Later::Call(call));
        } else {
            self.outbox.bus(to, BusMessage::Queue(QueueCall(call)));
        }
    }
}
