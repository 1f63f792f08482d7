//! Resuming deliveries (section 2.6.13): what the sender does with a delivery
//! that is unsettled when its link is attached again, from what both sides say
//! of it in their `unsettled` maps.
//!
//! The driver keeps its deliveries by [`Tag`] between the attachments of a link,
//! names them in `unsettled` of [`crate::Connection::attach`] or
//! [`crate::Connection::accept_attach`], and compares them with the peer's map
//! here. While one of the maps is incomplete the engine takes no deliveries but
//! resumed ones.

use alloc::collections::BTreeMap;

use dunlin_amqp_codec::{Attach, DeliveryState, Received};

use crate::tag::Tag;

/// What the sender does with a delivery.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Resumption<'a> {
    /// Send it as a new delivery: the receiver has nothing of it.
    Resend,
    /// Send it with [`crate::Sending::resume`], from this place or an earlier
    /// one, which [`crate::Sending::state`] names.
    Resume(Received),
    /// Send it without a message, resumed and settled, with this outcome: the
    /// receiver's, which is now the sender's.
    Settle(DeliveryState<'a>),
    /// Forget it: the receiver has.
    Forget,
    /// Send it without a message, resumed and not settled, with this outcome:
    /// the sender's, which the receiver takes over and settles.
    Restate(DeliveryState<'a>),
    /// Send it without a message, resumed and [`crate::Extent::Aborted`].
    Abort,
    /// Do nothing: the receiver's map is incomplete and has nothing of it. The
    /// link has to be attached again with fewer deliveries.
    Wait,
}

/// Nothing of a message has come.
const START: Received = Received {
    section_number: 0,
    section_offset: 0,
};

/// The receiver's `unsettled` map, for the sender.
#[derive(Debug)]
pub struct RemoteUnsettled<'a> {
    deliveries: BTreeMap<Tag, Option<DeliveryState<'a>>>,
    is_complete: bool,
}

impl<'a> RemoteUnsettled<'a> {
    /// The map of the peer's `attach`.
    #[must_use]
    pub fn new(attach: &Attach<'a>) -> Self {
        let unsettled = attach.unsettled.as_ref();
        let entries = unsettled.into_iter().flat_map(|map| map.iter());
        Self {
            deliveries: entries
                .filter_map(|(tag, state)| Some((Tag::new(tag)?, state)))
                .collect(),
            is_complete: !attach.incomplete_unsettled,
        }
    }

    /// What the sender does with the delivery of this tag, which has this state
    /// at the sender.
    #[must_use]
    pub fn resumption(&self, tag: Tag, local: Option<DeliveryState<'a>>) -> Resumption<'a> {
        match self.deliveries.get(&tag) {
            Some(remote) => both(local, *remote),
            None if !self.is_complete => Resumption::Wait,
            None if is_outcome(local) => Resumption::Forget,
            None => Resumption::Resend,
        }
    }

    /// As a receiver, whose peer's map this is: whether the sender has forgotten
    /// the delivery, so that it is settled here.
    #[must_use]
    pub fn is_forgotten(&self, tag: Tag) -> bool {
        self.is_complete && !self.deliveries.contains_key(&tag)
    }
}

/// Both sides have the delivery, in these states.
fn both<'a>(local: Option<DeliveryState<'a>>, remote: Option<DeliveryState<'a>>) -> Resumption<'a> {
    let progress = |state| match state {
        None => Some(START),
        Some(DeliveryState::Received(received)) => Some(received),
        Some(_) => None,
    };
    match (local, progress(local), remote, progress(remote)) {
        (None, _, _, Some(there)) => Resumption::Resume(there),
        // The sender cannot send again what it knows has come.
        (_, Some(sent), _, Some(there)) if order(sent) <= order(there) => Resumption::Resume(there),
        (_, _, _, Some(_)) => Resumption::Abort,
        (_, Some(_), Some(outcome), None) => Resumption::Settle(outcome),
        (Some(ours), None, Some(theirs), None) if is_same(&ours, &theirs) => {
            Resumption::Settle(ours)
        }
        (Some(ours), _, _, _) => Resumption::Restate(ours),
        (None, _, _, None) => Resumption::Abort,
    }
}

const fn order(received: Received) -> (u32, u64) {
    (received.section_number, received.section_offset)
}

fn is_outcome(state: Option<DeliveryState<'_>>) -> bool {
    state.is_some_and(|state| !matches!(state, DeliveryState::Received(_)))
}

/// Whether two outcomes are of one kind.
fn is_same(ours: &DeliveryState<'_>, theirs: &DeliveryState<'_>) -> bool {
    match (ours, theirs) {
        (DeliveryState::Outcome(ours), DeliveryState::Outcome(theirs)) => {
            ours.descriptor() == theirs.descriptor()
        }
        _ => ours == theirs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin_amqp_codec::{Outcome, Unsettled};

    const ACCEPTED: DeliveryState<'static> = DeliveryState::Outcome(Outcome::Accepted);
    const RELEASED: DeliveryState<'static> = DeliveryState::Outcome(Outcome::Released);

    const fn received(section_number: u32, section_offset: u64) -> Received {
        Received {
            section_number,
            section_offset,
        }
    }

    const fn at(section_number: u32, section_offset: u64) -> DeliveryState<'static> {
        DeliveryState::Received(received(section_number, section_offset))
    }

    /// One of the fourteen deliveries of section 2.6.13: the sender's state, the
    /// receiver's if it has the delivery, and what follows.
    type Case = (
        Option<DeliveryState<'static>>,
        Option<Option<DeliveryState<'static>>>,
        Resumption<'static>,
    );

    const CASES: [Case; 14] = [
        (None, None, Resumption::Resend),
        (
            None,
            Some(Some(at(1, 5))),
            Resumption::Resume(received(1, 5)),
        ),
        (None, Some(Some(ACCEPTED)), Resumption::Settle(ACCEPTED)),
        (None, Some(None), Resumption::Resume(START)),
        (Some(at(1, 5)), None, Resumption::Resend),
        (
            Some(at(1, 5)),
            Some(Some(at(2, 0))),
            Resumption::Resume(received(2, 0)),
        ),
        (Some(at(1, 5)), Some(Some(at(1, 4))), Resumption::Abort),
        (
            Some(at(1, 5)),
            Some(Some(ACCEPTED)),
            Resumption::Settle(ACCEPTED),
        ),
        (Some(at(1, 5)), Some(None), Resumption::Abort),
        (Some(ACCEPTED), None, Resumption::Forget),
        (Some(ACCEPTED), Some(Some(at(1, 5))), Resumption::Abort),
        (
            Some(ACCEPTED),
            Some(Some(ACCEPTED)),
            Resumption::Settle(ACCEPTED),
        ),
        (
            Some(ACCEPTED),
            Some(Some(RELEASED)),
            Resumption::Restate(ACCEPTED),
        ),
        (Some(ACCEPTED), Some(None), Resumption::Abort),
    ];

    #[test]
    fn each_case_of_the_specification() {
        for (place, (local, remote, expected)) in CASES.into_iter().enumerate() {
            let entry = [(&b"t"[..], remote.flatten())];
            for incomplete_unsettled in [false, true] {
                let attach = Attach {
                    unsettled: remote.is_some().then(|| Unsettled::new(&entry)),
                    incomplete_unsettled,
                    ..Attach::default()
                };
                let map = RemoteUnsettled::new(&attach);
                let tag = Tag::new(b"t").expect("short");
                let expected = match remote {
                    None if incomplete_unsettled => Resumption::Wait,
                    _ => expected,
                };
                assert_eq!(
                    map.resumption(tag, local),
                    expected,
                    "delivery {}",
                    place + 1
                );
                let is_forgotten = remote.is_none() && !incomplete_unsettled;
                assert_eq!(map.is_forgotten(tag), is_forgotten);
            }
        }
    }
}
