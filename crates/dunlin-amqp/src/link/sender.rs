//! The sending end: credit that the receiver gave.

use dunlin_amqp_codec::{Flow, SerialNumber};

use super::FIRST;

/// Flow state of a sending end (section 2.6.7).
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) delivery_count: SerialNumber,
    pub(crate) credit: u32,
    /// Deliveries that wait, as the driver says.
    pub(crate) available: u32,
    pub(crate) drain: bool,
    /// The receiver's `max-message-size`; 0 is any.
    pub(crate) message_bytes_max: u64,
    /// The delivery of which further parts follow.
    pub(crate) part: Option<SentPart>,
    /// One of the `unsettled` maps is incomplete.
    pub(crate) is_incomplete: bool,
    initial: SerialNumber,
}

/// A delivery that was sent in part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentPart {
    pub(crate) id: u32,
    pub(crate) settled: bool,
    /// Bytes so far.
    pub(crate) bytes: u64,
}

impl Sender {
    pub(crate) fn new(initial: Option<SerialNumber>) -> Self {
        let initial = initial.unwrap_or(FIRST);
        Self {
            delivery_count: initial,
            credit: 0,
            available: 0,
            drain: false,
            message_bytes_max: 0,
            part: None,
            is_incomplete: false,
            initial,
        }
    }

    pub(crate) const fn initial_delivery_count(&self) -> SerialNumber {
        self.initial
    }

    /// Flow state of the receiver.
    pub(crate) fn handle_flow(&mut self, flow: &Flow<'_>) {
        if let Some(credit) = flow.link_credit {
            // Without a count the receiver has not seen our `attach`.
            let seen = flow.delivery_count.unwrap_or(self.initial);
            let in_flight = self.delivery_count.since(seen).max(0).unsigned_abs();
            self.credit = credit.saturating_sub(in_flight);
        }
        self.drain = flow.drain;
    }

    /// Whether a delivery may begin that is resumed or is not.
    pub(crate) const fn may_begin(&self, resumed: bool) -> bool {
        resumed || !self.is_incomplete
    }

    /// Whether the receiver takes a message of so many bytes.
    pub(crate) const fn takes(&self, bytes: u64) -> bool {
        self.message_bytes_max == 0 || bytes <= self.message_bytes_max
    }

    /// A delivery begins: `false` without credit for it.
    pub(crate) fn take_credit(&mut self) -> bool {
        let Some(left) = self.credit.checked_sub(1) else {
            return false;
        };
        self.credit = left;
        self.delivery_count = self.delivery_count.next();
        true
    }

    /// Gives back what is left of the credit.
    pub(crate) fn drained(&mut self) {
        self.delivery_count = self.delivery_count.add(self.credit);
        self.credit = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(delivery_count: Option<u32>, link_credit: u32) -> Flow<'static> {
        Flow {
            delivery_count: delivery_count.map(SerialNumber),
            link_credit: Some(link_credit),
            ..Flow::default()
        }
    }

    #[test]
    fn credit_is_counted_from_what_the_receiver_has_seen() {
        let mut sender = Sender::new(Some(SerialNumber(u32::MAX - 1)));
        sender.handle_flow(&flow(None, 5));
        assert_eq!(sender.credit, 5);
        assert!((0..3).all(|_| sender.take_credit()));
        assert_eq!(sender.delivery_count, SerialNumber(1), "wrapped");
        // Two of the three had come when the receiver sent this.
        sender.handle_flow(&flow(Some(0), 10));
        assert_eq!(sender.credit, 9);
        sender.handle_flow(&flow(Some(u32::MAX - 1), 2));
        assert_eq!(sender.credit, 0, "less than what is in flight");
        assert!(!sender.take_credit());
        sender.handle_flow(&flow(Some(1), u32::MAX));
        assert_eq!(sender.credit, u32::MAX);
        // Ahead of what was sent.
        sender.handle_flow(&flow(Some(9), 3));
        assert_eq!(sender.credit, 3);
        sender.drained();
        assert_eq!((sender.delivery_count, sender.credit), (SerialNumber(4), 0));
    }
}
