//! What a subscriber remembers of what it received, to tell duplicates and
//! reordering from first deliveries.

/// How a message arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The first time, after all that were sent before it.
    InOrder,
    /// The first time, after one that was sent later.
    Late,
    /// Again.
    Duplicate,
}

/// The newest message of one publisher, and which of the 64 before it were
/// received. What is older and comes now counts as a duplicate.
#[derive(Clone, Copy, Debug)]
struct Seen {
    publisher: u32,
    newest: u32,
    mask: u64,
}

/// Messages received by one subscriber.
#[derive(Debug, Default)]
pub struct Received {
    /// Ascending by publisher.
    seen: Vec<Seen>,
    /// Where the last message's publisher is: bursts come from one.
    last: usize,
}

impl Received {
    /// Notes a message.
    pub fn note(&mut self, publisher: u32, seq: u32) -> Order {
        let index = match self.seen.get(self.last) {
            Some(seen) if seen.publisher == publisher => self.last,
            _ => match self.seen.binary_search_by_key(&publisher, |s| s.publisher) {
                Ok(index) => index,
                Err(index) => {
                    let new = Seen {
                        publisher,
                        newest: seq,
                        mask: 1,
                    };
                    self.seen.insert(index, new);
                    self.last = index;
                    return Order::InOrder;
                }
            },
        };
        self.last = index;
        self.seen
            .get_mut(index)
            .map_or(Order::InOrder, |seen| seen.note(seq))
    }
}

impl Seen {
    fn note(&mut self, seq: u32) -> Order {
        // Numbers wrap after 2^32 messages.
        let ahead = seq.wrapping_sub(self.newest);
        if ahead != 0 && ahead < 1 << 31 {
            self.mask = self.mask.checked_shl(ahead).unwrap_or(0) | 1;
            self.newest = seq;
            return Order::InOrder;
        }
        let behind = self.newest.wrapping_sub(seq);
        let bit = 1u64.checked_shl(behind).unwrap_or(0);
        if bit == 0 || self.mask & bit != 0 {
            return Order::Duplicate;
        }
        self.mask |= bit;
        Order::Late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_duplicates_are_distinguished() {
        let mut received = Received::default();
        let cases = [
            (1, 0, Order::InOrder),
            (1, 1, Order::InOrder),
            (1, 1, Order::Duplicate),
            (7, 5, Order::InOrder),
            (1, 4, Order::InOrder),
            (1, 2, Order::Late),
            (1, 2, Order::Duplicate),
            (0, 0, Order::InOrder),
            (7, 6, Order::InOrder),
            (1, 100, Order::InOrder),
            (1, 99, Order::Late),
            (1, 4, Order::Duplicate),
            (1, u32::MAX, Order::Duplicate),
        ];
        for (index, (publisher, seq, want)) in cases.into_iter().enumerate() {
            assert_eq!(received.note(publisher, seq), want, "case {index}");
        }
    }
}
