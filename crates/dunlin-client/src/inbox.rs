//! Received messages on their way to the application: a bounded queue between
//! the background thread and one task, and the acknowledgements on their way
//! back. Knows no packet.

use core::task::{Context, Poll, Waker};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dunlin_mqtt::client::Receipt;

use crate::message::Message;

/// Bytes of messages that wait for the application, after which the server is
/// slowed down, even if [`crate::Builder::receive_queue`] allows more.
pub(crate) const INBOX_BYTES_MAX: usize = 16 << 20;

/// The queue and its acknowledgements.
pub(crate) struct Inbox {
    messages_max: usize,
    /// A message is acknowledged by hand, not when it is taken.
    manual_acknowledgement: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Message>,
    bytes: usize,
    /// The task that waits for a message.
    waker: Option<Waker>,
    acknowledged: Vec<Receipt>,
    /// The background thread waits for room.
    full: bool,
    /// The background thread has been notified, and has not looked yet.
    notified: bool,
    /// No further messages: the client is closed.
    ended: bool,
    /// No messages will be taken: [`Messages`](crate::Messages) was dropped.
    abandoned: bool,
    /// Messages that were thrown away then. They stay unacknowledged, so that
    /// a client that ends now loses nothing; one that goes on and receives more
    /// must acknowledge them, because acknowledgements keep their order.
    orphans: Vec<Receipt>,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// There is room for another.
    Room,
    /// It was the last one that fits; the background thread is notified when
    /// there is room again.
    Full,
    /// No messages will be taken.
    Unwanted,
}

/// A message that was taken.
pub(crate) struct Popped {
    pub(crate) message: Message,
    /// The background thread must be notified.
    pub(crate) notify: bool,
}

impl Inbox {
    pub(crate) fn new(messages_max: usize, manual_acknowledgement: bool) -> Self {
        Self {
            messages_max,
            manual_acknowledgement,
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether another message may be put in; otherwise the background thread
    /// is notified when there is room.
    pub(crate) fn has_room(&self) -> bool {
        let mut state = self.lock();
        let room = state.queue.len() < self.messages_max && state.bytes < INBOX_BYTES_MAX;
        state.full = !room;
        room
    }

    /// Puts in a message.
    pub(crate) fn push(&self, message: Message) -> Pushed {
        let mut state = self.lock();
        if state.abandoned {
            let state = &mut *state;
            state.acknowledged.append(&mut state.orphans);
            return Pushed::Unwanted;
        }
        state.bytes += cost(&message);
        state.queue.push_back(message);
        let room = state.queue.len() < self.messages_max && state.bytes < INBOX_BYTES_MAX;
        state.full = !room;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        match room {
            true => Pushed::Room,
            false => Pushed::Full,
        }
    }

    /// Takes the acknowledgements that have gathered.
    pub(crate) fn take_acknowledged(&self, into: &mut Vec<Receipt>) {
        let mut state = self.lock();
        state.notified = false;
        into.append(&mut state.acknowledged);
    }

    /// There will be no further messages.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Notes an acknowledgement; `true` if the background thread must be
    /// notified.
    pub(crate) fn acknowledge(&self, receipt: Receipt) -> bool {
        let mut state = self.lock();
        state.acknowledged.push(receipt);
        !core::mem::replace(&mut state.notified, true)
    }

    /// Takes the next message; `None` when there will be no further ones.
    pub(crate) fn poll_pop(&self, cx: &Context<'_>) -> Poll<Option<Popped>> {
        let mut state = self.lock();
        let Some(mut message) = state.queue.pop_front() else {
            if state.ended {
                return Poll::Ready(None);
            }
            if !state
                .waker
                .as_ref()
                .is_some_and(|waker| waker.will_wake(cx.waker()))
            {
                state.waker = Some(cx.waker().clone());
            }
            return Poll::Pending;
        };
        state.bytes = state.bytes.saturating_sub(cost(&message));
        let mut notify = false;
        if !self.manual_acknowledgement
            && let Some(claim) = message.claim.take()
        {
            state.acknowledged.push(claim.receipt);
            notify = true;
        }
        // Half empty, so that a slow task does not cost a wake per message.
        if state.full && state.queue.len() <= self.messages_max / 2 {
            state.full = false;
            notify = true;
        }
        let notify = notify && !core::mem::replace(&mut state.notified, true);
        Poll::Ready(Some(Popped { message, notify }))
    }

    /// Drops what is queued; `true` if the background thread must be notified.
    pub(crate) fn abandon(&self) -> bool {
        let mut state = self.lock();
        state.abandoned = true;
        let queue = core::mem::take(&mut state.queue);
        let claims = queue.into_iter().filter_map(|message| message.claim);
        state.orphans = claims.map(|claim| claim.receipt).collect();
        state.bytes = 0;
        core::mem::take(&mut state.full)
    }
}

fn cost(message: &Message) -> usize {
    /// What a queued message costs besides its bytes.
    const FLAT_BYTES: usize = 128;
    FLAT_BYTES
        + message.topic.as_bytes().len()
        + message.payload.len()
        + message.properties.as_ref().map_or(0, |p| p.cost())
}
