//! The life of a delivery as a table: what may happen in which state, and what
//! follows.

/// Where a delivery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// In a queue: no consumer has it.
    Waiting,
    /// A consumer has it, and the store is being asked to record its key. It
    /// is not sent before: after a restart the key must be known.
    Acquired,
    /// To be sent, or sent: its receiver owes an outcome.
    Sent,
    /// Its receiver has it (PUBREC), and the store is being asked to record
    /// that.
    Received,
    /// Its receiver is asked to forget the key (PUBREL), and owes the end
    /// (PUBCOMP).
    Settling,
}

/// What happens to a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A consumer takes it.
    Take {
        /// Its key must be recorded before it is sent.
        record: bool,
    },
    /// The store has recorded its key.
    KeyStored,
    /// Its receiver has it and will settle in a second step.
    Received {
        /// That must be recorded before the second step.
        record: bool,
    },
    /// The store has recorded that its receiver has it.
    ReceiptStored,
    /// Its receiver has settled in the second step.
    Complete,
    /// Its receiver, or the end of the receiver, settles it in one step.
    Settle(Outcome),
}

/// How a delivery ends for its receiver (AMQP 1.0 section 3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was processed: it is over.
    Accepted,
    /// It is invalid and cannot be processed: it is over.
    Rejected,
    /// It was not processed, and may be sent again, here or elsewhere: it goes
    /// back in front of its queue, or to its group.
    Released,
    /// As released, with what the receiver adds.
    Modified {
        /// Sending it counts as an attempt that failed.
        failed: bool,
        /// It must not be sent to this receiver again: another one has to be
        /// found.
        undeliverable_here: bool,
    },
}

/// What follows from an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is in this state now, perhaps the one that it was in: the event is a
    /// repetition.
    To(State),
    /// It leaves its consumer with this outcome.
    End(Outcome),
    /// The event does not belong to this state, and nothing happens.
    Refused,
}

impl State {
    /// The table.
    #[must_use]
    pub const fn after(self, event: Event) -> Step {
        use State::{Acquired, Received, Sent, Settling, Waiting};
        match (self, event) {
            (Waiting, Event::Take { record: true }) => Step::To(Acquired),
            (Waiting, Event::Take { record: false }) | (Acquired, Event::KeyStored) => {
                Step::To(Sent)
            }
            (Sent, Event::Received { record: true }) | (Received, Event::Received { .. }) => {
                Step::To(Received)
            }
            (Sent, Event::Received { record: false })
            | (Received, Event::ReceiptStored)
            | (Settling, Event::Received { .. }) => Step::To(Settling),
            (Sent, Event::Settle(outcome)) => Step::End(outcome),
            (Settling, Event::Complete) => Step::End(Outcome::Accepted),
            _ => Step::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Event::{Complete, KeyStored, ReceiptStored, Settle, Take};
    use super::State::{Acquired, Received, Sent, Settling, Waiting};
    use super::Step::{End, Refused, To};
    use super::*;

    const MODIFIED: Outcome = Outcome::Modified {
        failed: true,
        undeliverable_here: false,
    };

    #[test]
    fn every_event_in_every_state() {
        let states = [Waiting, Acquired, Sent, Received, Settling];
        let table = [
            (
                Take { record: true },
                [To(Acquired), Refused, Refused, Refused, Refused],
            ),
            (
                Take { record: false },
                [To(Sent), Refused, Refused, Refused, Refused],
            ),
            (KeyStored, [Refused, To(Sent), Refused, Refused, Refused]),
            (
                Event::Received { record: true },
                [Refused, Refused, To(Received), To(Received), To(Settling)],
            ),
            (
                Event::Received { record: false },
                [Refused, Refused, To(Settling), To(Received), To(Settling)],
            ),
            (
                ReceiptStored,
                [Refused, Refused, Refused, To(Settling), Refused],
            ),
            (
                Complete,
                [Refused, Refused, Refused, Refused, End(Outcome::Accepted)],
            ),
        ];
        for (event, row) in table {
            for (state, step) in states.into_iter().zip(row) {
                assert_eq!(state.after(event), step, "{event:?} in {state:?}");
            }
        }
        for outcome in [
            Outcome::Accepted,
            Outcome::Rejected,
            Outcome::Released,
            MODIFIED,
        ] {
            for state in states {
                let step = match state {
                    Sent => End(outcome),
                    _ => Refused,
                };
                assert_eq!(state.after(Settle(outcome)), step);
            }
        }
    }
}
