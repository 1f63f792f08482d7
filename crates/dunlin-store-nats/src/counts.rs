//! How much of what there is in a store, and whether two stores have the same.

use core::fmt;

use dunlin_store::StoreOp;
use xxhash_rust::xxh3::xxh3_64;

/// How much of each a store has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Sessions, queues and durable subscriptions among them.
    pub sessions: u64,
    /// Subscriptions.
    pub subscriptions: u64,
    /// Packet identifiers of what was sent and is not acknowledged.
    pub outgoing: u64,
    /// Packet identifiers of what came at QoS 2 and is not released.
    pub incoming: u64,
    /// Messages that wait for sessions.
    pub messages: u64,
    /// Places of these messages in queues of sessions.
    pub places: u64,
    /// Retained messages.
    pub retained: u64,
    /// Named values, session tickets among them.
    pub values: u64,
}

impl Counts {
    /// Counts an operation that adds something.
    pub const fn count(&mut self, op: &StoreOp) {
        let count = match op {
            StoreOp::PutSession { .. } => &mut self.sessions,
            StoreOp::PutSubscription { .. } => &mut self.subscriptions,
            StoreOp::PutInflight { .. } => &mut self.outgoing,
            StoreOp::PutInbound { .. } => &mut self.incoming,
            StoreOp::Enqueue { targets, .. } => {
                self.places += targets.len() as u64;
                &mut self.messages
            }
            StoreOp::PutRetained { .. } => &mut self.retained,
            StoreOp::PutMeta { .. } => &mut self.values,
            // None of what a store amounts to.
            StoreOp::DeleteSession { .. }
            | StoreOp::DeleteSubscription { .. }
            | StoreOp::Dequeue { .. }
            | StoreOp::DeleteInflight { .. }
            | StoreOp::DeleteInbound { .. }
            | StoreOp::DeleteRetained { .. }
            | StoreOp::DeleteMeta { .. } => return,
        };
        *count += 1;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = [
            ("sessions", self.sessions),
            ("subscriptions", self.subscriptions),
            ("outgoing ids", self.outgoing),
            ("incoming ids", self.incoming),
            ("messages", self.messages),
            ("places", self.places),
            ("retained", self.retained),
            ("values", self.values),
        ];
        for (at, (name, count)) in rows.iter().enumerate() {
            let end = if at + 1 < rows.len() { "\n" } else { "" };
            write!(f, "{name:<13} {count:>10}{end}")?;
        }
        Ok(())
    }
}

/// [`Counts`] and what is in them, in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) counts: Counts,
    hash: u64,
}

impl Sums {
    /// Adds an operation, which is these bytes.
    pub(crate) fn add(&mut self, op: &[StoreOp; 1], bytes: &[u8]) {
        let [op] = op;
        self.counts.count(op);
        self.hash = self.hash.wrapping_add(xxh3_64(bytes));
    }
}

#[cfg(test)]
mod tests {
    use dunlin_base::Text;
    use dunlin_store::codec::encode_ops;

    use super::*;

    #[test]
    fn order_does_not_count_and_content_does() {
        let sums = |values: &[&'static str]| {
            let mut sums = Sums::default();
            for value in values {
                let op = [StoreOp::PutMeta {
                    key: Text::from_static(value),
                    value: Vec::new().into(),
                }];
                let mut bytes = Vec::new();
                encode_ops(&op, &mut bytes);
                sums.add(&op, &bytes);
            }
            sums
        };
        assert_eq!(sums(&["a", "b"]), sums(&["b", "a"]));
        assert_eq!(sums(&["a", "b"]).counts, sums(&["a", "c"]).counts);
        assert_ne!(sums(&["a", "b"]), sums(&["a", "c"]));
        assert_ne!(sums(&["a"]).counts, sums(&["a", "a"]).counts);
    }
}
