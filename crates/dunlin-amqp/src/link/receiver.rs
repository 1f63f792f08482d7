//! The receiving end: credit that it gives, and the message that is coming.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use dunlin_amqp_codec::{Flow, SerialNumber};

use super::Partial;
use crate::tag::Tag;

/// Flow state of a receiving end (section 2.6.7).
#[derive(Debug)]
pub(crate) struct Receiver {
    /// `None` until the sender's `attach` came.
    pub(crate) delivery_count: Option<SerialNumber>,
    pub(crate) credit: u32,
    pub(crate) drain: bool,
    /// The next flow asks for an answer.
    pub(crate) echo: bool,
    /// Largest message; 0 is any.
    pub(crate) message_bytes_max: u64,
    /// A delivery of which transfers are to follow.
    pub(crate) partial: Option<Box<Partial>>,
    /// Unsettled deliveries. No more than the session's table has.
    pub(crate) tags: BTreeMap<Tag, u32>,
}

impl Receiver {
    pub(crate) fn new(
        delivery_count: Option<SerialNumber>,
        message_bytes_max: Option<u64>,
    ) -> Self {
        Self {
            delivery_count,
            credit: 0,
            drain: false,
            echo: false,
            message_bytes_max: message_bytes_max.unwrap_or(0),
            partial: None,
            tags: BTreeMap::new(),
        }
    }

    /// A delivery begins: `false` if no credit was given for it.
    pub(crate) fn take_credit(&mut self) -> bool {
        let Some(left) = self.credit.checked_sub(1) else {
            return false;
        };
        self.credit = left;
        self.delivery_count = self.delivery_count.map(SerialNumber::next);
        true
    }

    /// Flow state of the sender; whether it has drained its credit now.
    pub(crate) fn handle_flow(&mut self, flow: &Flow<'_>) -> bool {
        if let (Some(theirs), Some(ours)) = (flow.delivery_count, self.delivery_count) {
            let given_back = theirs.since(ours).max(0).unsigned_abs();
            self.credit = self.credit.saturating_sub(given_back);
            self.delivery_count = Some(theirs);
        }
        let drained = self.drain && self.credit == 0;
        if drained {
            self.drain = false;
        }
        drained
    }

    /// Whether a message may have so many bytes.
    pub(crate) const fn takes(&self, bytes: usize) -> bool {
        self.message_bytes_max == 0 || bytes as u64 <= self.message_bytes_max
    }
}
