//! The receiving end: credit that it gives, and the message that is coming.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};

use dunlin_amqp_codec::{Attach, Flow, SerialNumber};

use super::Partial;
use crate::tag::Tag;

/// Flow state of a receiving end (section 2.6.7).
#[derive(Debug)]
pub(crate) struct Receiver {
    /// `None` until the sender's `attach` came.
    pub(crate) delivery_count: Option<SerialNumber>,
    pub(crate) credit: u32,
    /// Deliveries that may come: more than the credit after it was reduced,
    /// because the sender may not have known.
    allowed: u32,
    pub(crate) drain: bool,
    /// The next flow asks for an answer.
    pub(crate) echo: bool,
    /// Largest message; 0 is any.
    pub(crate) message_bytes_max: u64,
    /// A delivery of which transfers are to follow.
    pub(crate) partial: Option<Box<Partial>>,
    /// Unsettled deliveries. No more than the session's table has.
    pub(crate) tags: BTreeMap<Tag, u32>,
    /// What this side's `unsettled` map said.
    pub(crate) resumable: Resumable,
}

/// Deliveries that the sender may resume.
#[derive(Debug, Default)]
pub(crate) struct Resumable {
    tags: BTreeSet<Tag>,
    /// The map was incomplete: none but these may come.
    is_incomplete: bool,
}

impl Resumable {
    /// What an `attach` of this side says.
    pub(crate) fn new(attach: &Attach<'_>) -> Self {
        let unsettled = attach.unsettled.as_ref();
        let entries = unsettled.into_iter().flat_map(|map| map.iter());
        Self {
            tags: entries.filter_map(|(tag, _)| Tag::new(tag)).collect(),
            is_incomplete: attach.incomplete_unsettled,
        }
    }

    /// Whether a delivery may begin that is not resumed.
    pub(crate) const fn takes_new(&self) -> bool {
        !self.is_incomplete
    }

    /// A delivery is resumed: `false` if it is unknown here.
    pub(crate) fn take(&mut self, tag: &Tag) -> bool {
        self.tags.remove(tag)
    }
}

impl Receiver {
    pub(crate) fn new(
        delivery_count: Option<SerialNumber>,
        message_bytes_max: Option<u64>,
    ) -> Self {
        Self {
            delivery_count,
            credit: 0,
            allowed: 0,
            drain: false,
            echo: false,
            message_bytes_max: message_bytes_max.unwrap_or(0),
            partial: None,
            tags: BTreeMap::new(),
            resumable: Resumable::default(),
        }
    }

    /// Gives credit.
    pub(crate) fn set_credit(&mut self, credit: u32, drain: bool) {
        self.credit = credit;
        self.allowed = self.allowed.max(credit);
        self.drain = drain;
    }

    /// A delivery begins: `false` if no credit was ever given for it.
    pub(crate) fn take_credit(&mut self) -> bool {
        let Some(left) = self.allowed.checked_sub(1) else {
            return false;
        };
        self.allowed = left;
        self.credit = self.credit.saturating_sub(1);
        self.delivery_count = self.delivery_count.map(SerialNumber::next);
        true
    }

    /// Flow state of the sender; whether it has drained its credit now.
    pub(crate) fn handle_flow(&mut self, flow: &Flow<'_>) -> bool {
        if let (Some(theirs), Some(ours)) = (flow.delivery_count, self.delivery_count) {
            let given_back = theirs.since(ours).max(0).unsigned_abs();
            self.credit = self.credit.saturating_sub(given_back);
            self.allowed = self.allowed.saturating_sub(given_back);
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
