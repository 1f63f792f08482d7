//! What the background thread is asked to do for a client. Bounded by what a
//! client may have: links, messages in flight, deliveries that are held.

use core::convert::Infallible;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use dunlin_amqp::Tag;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::error::{LinkError, SendError, SettleError};
use crate::outcome::Outcome;
use crate::terminus::{Attached, LinkSpec};
use crate::unsettled::{Restored, Unsettled};

/// Names a link of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LinkKey(pub(crate) u64);

/// What the background thread is asked to do.
pub(crate) enum Command {
    /// A sender is wanted.
    Sender(LinkKey, Box<NewSender>),
    /// A receiver is wanted.
    Receiver(LinkKey, Box<NewReceiver>),
    /// A message goes out.
    Send(LinkKey, Outgoing),
    /// The application says what became of a delivery.
    Settle(LinkKey, Settle),
    /// What a receiver has not settled is wanted.
    Unsettled(LinkKey, oneshot::Sender<Vec<Unsettled>>),
    /// The application has taken messages, or waits for one.
    Taken,
    /// The sender is to send what it has and no more.
    Drain(LinkKey, oneshot::Sender<()>),
    /// The link ends when all of it is settled.
    Detach {
        link: LinkKey,
        /// Not only for now.
        closed: bool,
        done: Option<oneshot::Sender<()>>,
    },
    /// The client ends.
    Close(oneshot::Sender<()>),
    /// All handles of the client are gone.
    Release,
}

/// What a link tells its handle.
pub(crate) type Answer = oneshot::Sender<Result<Attached, LinkError>>;

pub(crate) struct NewSender {
    pub(crate) spec: LinkSpec,
    pub(crate) shared: Arc<SenderShared>,
    pub(crate) attached: Answer,
}

pub(crate) struct NewReceiver {
    pub(crate) spec: LinkSpec,
    pub(crate) credit: u32,
    pub(crate) shared: Arc<ReceiverShared>,
    pub(crate) inbox: mpsc::UnboundedSender<Received>,
    /// What an earlier process had.
    pub(crate) restored: Vec<Restored>,
    pub(crate) attached: Answer,
}

/// A sender, seen from both sides.
pub(crate) struct SenderShared {
    /// One permit for each message that may be in flight.
    pub(crate) in_flight: Arc<Semaphore>,
    pub(crate) status: Status,
}

/// A receiver, seen from both sides.
#[derive(Default)]
pub(crate) struct ReceiverShared {
    /// Messages and bytes that the application has taken.
    pub(crate) taken: AtomicU64,
    pub(crate) taken_bytes: AtomicU64,
    /// It was drained: there is no credit until the application waits.
    pub(crate) is_drained: AtomicBool,
    pub(crate) status: Status,
}

impl ReceiverShared {
    pub(crate) fn note_taken(&self, bytes: usize) -> u64 {
        self.taken_bytes.fetch_add(bytes as u64, Ordering::AcqRel);
        self.taken.fetch_add(1, Ordering::AcqRel) + 1
    }
}

/// What is known of a link.
#[derive(Default)]
pub(crate) struct Status(Mutex<(Attached, Option<LinkError>)>);

impl Status {
    fn lock(&self) -> MutexGuard<'_, (Attached, Option<LinkError>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn attached(&self) -> Attached {
        self.lock().0.clone()
    }

    pub(crate) fn set_attached(&self, attached: Attached) {
        self.lock().0 = attached;
    }

    /// Why the link has ended.
    pub(crate) fn ended(&self) -> Option<LinkError> {
        self.lock().1.clone()
    }

    pub(crate) fn set_ended(&self, why: LinkError) {
        self.lock().1.get_or_insert(why);
    }
}

/// A message on its way out.
pub(crate) struct Outgoing {
    pub(crate) head: Bytes,
    pub(crate) body: Bytes,
    pub(crate) settled: bool,
    /// The transaction that it belongs to.
    pub(crate) txn: Option<Posted>,
    pub(crate) answer: Sent,
}

/// The transaction of a message, as that knows it.
#[derive(Debug)]
pub(crate) struct Posted {
    pub(crate) id: Bytes,
    /// It is rolled back: what has not left stays here.
    pub(crate) is_over: Arc<AtomicBool>,
    /// Until the message has left, a commit waits.
    pub(crate) waits: Option<mpsc::Sender<Infallible>>,
    /// A message of the transaction was given up before it left.
    pub(crate) is_lost: Arc<AtomicBool>,
}

impl Drop for Posted {
    fn drop(&mut self) {
        // Before its sender is dropped, which a commit waits for.
        if self.waits.is_some() && !self.is_over() {
            self.is_lost.store(true, Ordering::Release);
        }
    }
}

impl Posted {
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}

/// Who waits for the outcome of a message.
pub(crate) struct Sent {
    pub(crate) done: oneshot::Sender<Result<Reply, SendError>>,
    pub(crate) permit: Option<OwnedSemaphorePermit>,
}

impl Sent {
    pub(crate) fn tell(self, outcome: Result<Reply, SendError>) {
        drop(self.permit);
        let _ = self.done.send(outcome);
    }
}

/// What a receiver answered.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Outcome(Outcome),
    /// A coordinator's: the transaction.
    Declared(Bytes),
}

/// A delivery that came.
pub(crate) struct Received {
    pub(crate) bytes: Bytes,
    pub(crate) format: u32,
    pub(crate) tag: Tag,
    /// Tells apart deliveries with the same tag.
    pub(crate) serial: u64,
    pub(crate) settled: bool,
    /// An earlier process had it.
    pub(crate) resumed: bool,
}

/// What the application says of a delivery.
pub(crate) struct Settle {
    pub(crate) tag: Tag,
    pub(crate) serial: u64,
    /// The state that the sender hears.
    pub(crate) state: dunlin_amqp::State,
    pub(crate) done: oneshot::Sender<Result<(), SettleError>>,
}
