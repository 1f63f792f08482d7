//! Received messages on their way to the application: a bounded queue between
//! the background thread and one task, and the acknowledgements on their way
//! back. Knows no packet.

use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dunlin_mqtt::client::Receipt;
use futures_core::Stream;

use crate::message::Message;
use crate::shared::Shared;

/// Bytes of messages that wait for the application, after which the server is
/// slowed down, whatever [`crate::Builder::receive_queue`] says.
pub(crate) const INBOX_BYTES_MAX: usize = 16 << 20;

/// The queue and its acknowledgements.
#[derive(Default)]
pub(crate) struct Inbox {
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
    /// The background thread has been told, and has not looked yet.
    notified: bool,
    /// No further messages: the client is closed.
    ended: bool,
    /// Nobody will take messages: [`Messages`] was dropped.
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
    /// It was the last one that fits; the background thread is told when there
    /// is room again.
    Full,
    /// Nobody will take messages.
    Unwanted,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether another message may be put in; otherwise the background thread
    /// is told when there is room.
    pub(crate) fn has_room(&self, messages_max: usize) -> bool {
        let mut state = self.lock();
        let room = state.queue.len() < messages_max && state.bytes < INBOX_BYTES_MAX;
        state.full = !room;
        room
    }

    /// Puts in a message.
    pub(crate) fn push(&self, message: Message, messages_max: usize) -> Pushed {
        let mut state = self.lock();
        if state.abandoned {
            let state = &mut *state;
            state.acknowledged.append(&mut state.orphans);
            return Pushed::Unwanted;
        }
        state.bytes += cost(&message);
        state.queue.push_back(message);
        let room = state.queue.len() < messages_max && state.bytes < INBOX_BYTES_MAX;
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

    /// Notes an acknowledgement; `true` if the background thread must be told.
    fn acknowledge(&self, receipt: Receipt) -> bool {
        let mut state = self.lock();
        state.acknowledged.push(receipt);
        !core::mem::replace(&mut state.notified, true)
    }

    fn poll_pop(&self, cx: &Context<'_>, shared: &Shared) -> Poll<Option<Message>> {
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
        let mut tell = false;
        if !shared.manual_acknowledgement
            && let Some(claim) = message.claim.take()
        {
            state.acknowledged.push(claim.receipt);
            tell = true;
        }
        // Half empty, so that a slow task does not cost a wake per message.
        if state.full && state.queue.len() <= shared.receive_queue / 2 {
            state.full = false;
            tell = true;
        }
        let tell = tell && !core::mem::replace(&mut state.notified, true);
        drop(state);
        if tell {
            shared.notify();
        }
        Poll::Ready(Some(message))
    }

    /// Drops what is queued; `true` if the background thread must be told.
    fn abandon(&self) -> bool {
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

/// The right to acknowledge one message.
pub(crate) struct Claim {
    pub(crate) shared: Arc<Shared>,
    pub(crate) receipt: Receipt,
}

impl Claim {
    pub(crate) fn acknowledge(self) {
        if self.shared.inbox.acknowledge(self.receipt) {
            self.shared.notify();
        }
    }
}

/// The messages that a client receives, in the order of their arrival. Also a
/// [`Stream`].
///
/// When the queue is full ([`Builder::receive_queue`](crate::Builder::receive_queue)),
/// no more is read from the connection until messages are taken: look often
/// enough. Dropping it lets the client throw away and acknowledge whatever it
/// receives later.
///
/// # Examples
/// ```no_run
/// # async fn run(mut messages: dunlin_client::Messages) {
/// while let Some(message) = messages.next().await {
///     println!("{} {:?}", message.topic, message.payload);
/// }
/// # }
/// ```
#[must_use = "received messages pile up here"]
pub struct Messages {
    pub(crate) shared: Arc<Shared>,
}

impl Messages {
    /// The next message; `None` when the client is closed and all messages
    /// are taken. Taking a message acknowledges it, unless the client
    /// acknowledges by hand.
    ///
    /// # Cancel safety
    /// No message is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Message> {
        poll_fn(|cx| self.shared.inbox.poll_pop(cx, &self.shared)).await
    }

    /// The next message if there is one already.
    pub fn try_next(&mut self) -> Option<Message> {
        let cx = Context::from_waker(Waker::noop());
        match self.shared.inbox.poll_pop(&cx, &self.shared) {
            Poll::Ready(message) => message,
            Poll::Pending => None,
        }
    }
}

impl Stream for Messages {
    type Item = Message;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        self.shared.inbox.poll_pop(cx, &self.shared)
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        if self.shared.inbox.abandon() {
            self.shared.notify();
        }
        self.shared.release();
    }
}

impl core::fmt::Debug for Messages {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Messages").finish_non_exhaustive()
    }
}
