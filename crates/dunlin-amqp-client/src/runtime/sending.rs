//! A sender within the loop: what waits for credit, what has no outcome, and
//! what is done with that when the link is attached again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use dunlin_amqp::codec::{Attach, DeliveryState, Outcome as Wire, Received, TransactionalState};
use dunlin_amqp::{
    Connection, Delivery, Extent, LinkId, RemoteUnsettled, Resumption, SendError as Refusal,
    Sending, State, Tag,
};

use crate::command::{Outgoing, Posted, Reply, SenderShared, Sent};
use crate::error::{LinkError, SendError};
use crate::outcome::Outcome;

/// A sender.
pub(super) struct SendLink {
    shared: Arc<SenderShared>,
    /// Not sent.
    queue: VecDeque<Outgoing>,
    /// Sent and without outcome, by tag.
    unsettled: BTreeMap<u64, Outgoing>,
    /// Those of an earlier attachment, and what is done with them on this one
    /// before anything new.
    again: VecDeque<(u64, Again)>,
    next_tag: u64,
    /// The receiver wants what there is.
    drain: bool,
    /// Deliveries remain for a further attachment, when this one is done with
    /// those up to `listed_to`.
    is_incomplete: bool,
    listed_to: Option<u64>,
}

/// What is done with a delivery of an earlier attachment.
enum Again {
    /// All of it, resumed.
    Resume,
    /// Settled, with the receiver's outcome.
    Settle(State),
    /// Given up, and sent as a new one.
    Abort,
}

/// Settled messages that were written.
pub(super) type Left = Vec<Sent>;

impl SendLink {
    pub(super) fn new(shared: Arc<SenderShared>) -> Self {
        Self {
            shared,
            queue: VecDeque::new(),
            unsettled: BTreeMap::new(),
            again: VecDeque::new(),
            next_tag: 0,
            drain: false,
            is_incomplete: false,
            listed_to: None,
        }
    }

    pub(super) fn shared(&self) -> &SenderShared {
        &self.shared
    }

    pub(super) fn enqueue(&mut self, outgoing: Outgoing) {
        self.queue.push_back(outgoing);
    }

    /// Whether everything that was handed over has its outcome.
    pub(super) fn is_done(&self) -> bool {
        self.queue.is_empty() && self.unsettled.is_empty()
    }

    /// Tags of what has no outcome.
    pub(super) fn tags(&self) -> impl Iterator<Item = Tag> + '_ {
        self.unsettled.keys().copied().map(Tag::from)
    }

    /// What was left out of `attach` can be said now.
    pub(super) fn wants_another(&self) -> bool {
        let oldest = self.unsettled.keys().next().copied();
        self.is_incomplete && self.again.is_empty() && oldest > self.listed_to
    }

    /// The transport is gone.
    pub(super) fn forget_attachment(&mut self) {
        self.again.clear();
        self.drain = false;
        self.is_incomplete = false;
        self.listed_to = None;
        let of_transaction = self.unsettled.iter().filter(|(_, out)| out.txn.is_some());
        let over: Vec<u64> = of_transaction.map(|(tag, _)| *tag).collect();
        for tag in over {
            self.tell(tag, Err(SendError::RolledBack));
        }
        let (over, rest) = core::mem::take(&mut self.queue)
            .into_iter()
            .partition::<VecDeque<_>, _>(|out| out.txn.is_some());
        self.queue = rest;
        for out in over {
            out.answer.tell(Err(SendError::RolledBack));
        }
    }

    /// The link is attached: compares what both sides have. `listed`: how many
    /// of the oldest deliveries this side's map had.
    pub(super) fn handle_attached(&mut self, answer: &Attach<'_>, listed: usize) {
        let remote = RemoteUnsettled::new(answer);
        self.is_incomplete = answer.incomplete_unsettled || listed < self.unsettled.len();
        let tags: Vec<u64> = self.unsettled.keys().copied().take(listed).collect();
        let mut unknown = Vec::new();
        for number in tags {
            let again = match remote.resumption(Tag::from(number), None) {
                // Under another tag, so that it waits like any other.
                Resumption::Resend | Resumption::Wait => {
                    unknown.extend(self.unsettled.remove(&number));
                    continue;
                }
                Resumption::Resume(_) => Again::Resume,
                Resumption::Settle(outcome) => match State::new(&outcome) {
                    Some(state) => Again::Settle(state),
                    None => Again::Abort,
                },
                Resumption::Abort | Resumption::Restate(_) | Resumption::Forget => Again::Abort,
            };
            self.listed_to = Some(number);
            self.again.push_back((number, again));
        }
        for out in unknown.into_iter().rev() {
            self.queue.push_front(out);
        }
    }

    /// The receiver wants what there is.
    pub(super) fn set_drain(&mut self, drain: bool) {
        self.drain = drain;
    }

    /// Sends what credit and windows allow, up to `room` bytes; gives the
    /// settled messages that it wrote.
    pub(super) fn pump(&mut self, engine: &mut Connection, link: LinkId, room: &mut u64) -> Left {
        let mut left = Vec::new();
        while *room > 0 && !self.again.is_empty() {
            if !self.send_again(engine, link, room) {
                return left;
            }
        }
        while *room > 0
            && let Some(mut next) = self.queue.pop_front()
        {
            let number = self.next_tag;
            if next.txn.as_ref().is_some_and(Posted::is_over) {
                next.answer.tell(Err(SendError::RolledBack));
                continue;
            }
            match send(engine, link, number, &next, None) {
                Ok(_) => {
                    self.next_tag += 1;
                    if let Some(posted) = &mut next.txn {
                        posted.waits = None;
                    }
                    *room = room.saturating_sub((next.head.len() + next.body.len()) as u64);
                    match next.settled {
                        true => left.push(next.answer),
                        false => {
                            self.unsettled.insert(number, next);
                        }
                    }
                }
                Err(Refusal::MessageSize) => next.answer.tell(Err(SendError::TooLarge)),
                Err(_) => {
                    self.queue.push_front(next);
                    return left;
                }
            }
        }
        if self.queue.is_empty() && core::mem::take(&mut self.drain) {
            let _ = engine.drained(link);
        }
        left
    }

    /// Does what the comparison said, for the first delivery of them.
    fn send_again(&mut self, engine: &mut Connection, link: LinkId, room: &mut u64) -> bool {
        let Some((number, again)) = self.again.front() else {
            return false;
        };
        let number = *number;
        let Some(out) = self.unsettled.get(&number) else {
            // It has its outcome.
            self.again.pop_front();
            return true;
        };
        let (is_abort, outcome) = match again {
            Again::Abort => (true, None),
            Again::Settle(state) => (false, outcome_of(&state.get())),
            Again::Resume => (false, None),
        };
        let size = out.head.len() + out.body.len();
        match send(engine, link, number, out, Some(again)) {
            Ok(_) => {}
            Err(Refusal::MessageSize) => {
                self.tell(number, Err(SendError::TooLarge));
                self.again.pop_front();
                return true;
            }
            Err(_) => return false,
        }
        self.again.pop_front();
        *room = room.saturating_sub(size as u64);
        if let Some(outcome) = outcome {
            self.tell(number, Ok(outcome));
        } else if is_abort && let Some(out) = self.unsettled.remove(&number) {
            self.queue.push_front(out);
        }
        true
    }

    /// The receiver says what became of a delivery.
    pub(super) fn handle_disposition(
        &mut self,
        engine: &mut Connection,
        delivery: Delivery,
        tag: Tag,
        state: Option<&State>,
        settled: bool,
    ) {
        let Some(number) = tag.number().filter(|it| self.unsettled.contains_key(it)) else {
            return;
        };
        let reply = state.and_then(|state| outcome_of(&state.get()));
        if !settled {
            let (Some(_), Some(state)) = (&reply, state) else {
                return;
            };
            // Ours, by which the receiver settles: it was unsettled just now.
            let _ = engine.settle(delivery, Some(&state.get()));
        }
        self.tell(
            number,
            Ok(reply.unwrap_or(Reply::Outcome(Outcome::Settled))),
        );
    }

    fn tell(&mut self, number: u64, outcome: Result<Reply, SendError>) {
        if let Some(out) = self.unsettled.remove(&number) {
            out.answer.tell(outcome);
        }
    }

    /// The link is over.
    pub(super) fn end(self, why: &LinkError) {
        self.shared.status.set_ended(why.clone());
        self.shared.in_flight.close();
        let all = self.unsettled.into_values().chain(self.queue);
        for out in all {
            out.answer.tell(Err(SendError::Link(why.clone())));
        }
    }
}

/// Sends a message, or says of it what its state on an earlier attachment asks.
fn send(
    engine: &mut Connection,
    link: LinkId,
    number: u64,
    out: &Outgoing,
    again: Option<&Again>,
) -> Result<Delivery, Refusal> {
    const START: DeliveryState<'static> = DeliveryState::Received(Received {
        section_number: 0,
        section_offset: 0,
    });
    let mut sending = Sending::new(Tag::from(number), out.settled);
    sending.state = out.txn.as_ref().map(|posted| {
        DeliveryState::Transactional(TransactionalState {
            txn_id: &posted.id,
            outcome: None,
        })
    });
    let nothing = Bytes::new();
    let (mut head, mut body) = (&out.head, &out.body);
    match again {
        None => {}
        Some(Again::Resume) => {
            sending.resume = true;
            sending.state = Some(START);
        }
        Some(Again::Abort) => {
            sending.resume = true;
            sending.extent = Extent::Aborted;
        }
        Some(Again::Settle(state)) => {
            sending.resume = true;
            sending.settled = true;
            sending.state = Some(state.get());
            (head, body) = (&nothing, &nothing);
        }
    }
    engine.send(link, &sending, head, body)
}

/// What a state says; `None` if it is not the last.
fn outcome_of(state: &DeliveryState<'_>) -> Option<Reply> {
    match state.outcome()? {
        Wire::Declared(declared) => Some(Reply::Declared(Bytes::copy_from_slice(declared.txn_id))),
        _ => Outcome::of(state).map(Reply::Outcome),
    }
}
