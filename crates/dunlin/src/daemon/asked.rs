//! Who waits for the answer of a shard to an operator's request.

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;

use dunlin_broker::control::values::Reply;

/// Requests of operators that a shard has not answered. The doors bound how many are
/// made at a time.
#[derive(Debug, Default)]
pub(super) struct Asked {
    last: u64,
    waiting: BTreeMap<u64, Sender<Reply>>,
}

impl Asked {
    /// Notes who asks, and gives the question its number.
    pub(super) fn note(&mut self, reply: Sender<Reply>) -> u64 {
        self.last += 1;
        self.waiting.insert(self.last, reply);
        self.last
    }

    /// The shard has answered.
    pub(super) fn answer(&mut self, number: u64, reply: Reply) {
        if let Some(asker) = self.waiting.remove(&number) {
            // It may have given up waiting.
            let _ = asker.send(reply);
        }
    }
}
