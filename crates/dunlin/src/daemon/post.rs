//! Mail between the threads of the daemon: shards, store and authenticator
//! put it into a shard's inbox and wake the shard's loop.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use dunlin_base::{ConnId, ShardId};
use dunlin_broker::access::Acl;
use dunlin_broker::auth::AuthAnswer;
use dunlin_broker::{BusMessage, NetCommand, OwnedNetEvent};
use dunlin_net::{ForeignDatagram, ServerTls, StrikeId, Waker};
use dunlin_store::StoreDone;

use super::look::Look;

/// Bytes in a shard's inbox above which other shards stop reading from their
/// clients until it has caught up.
pub(crate) const INBOX_BYTES_MAX: usize = 32 << 20;

/// What one message in an inbox costs besides its payload.
const MAIL_BYTES: usize = 128;

/// Something for a shard.
#[derive(Debug)]
pub(crate) enum Mail {
    /// From another shard.
    Bus { from: ShardId, message: BusMessage },
    /// A QUIC datagram that arrived at the wrong shard's socket.
    Datagram(ForeignDatagram),
    /// From the store.
    Store(StoreDone),
    /// From the authenticator.
    Auth { conn: ConnId, answer: AuthAnswer },
    /// The use of a session ticket has been stored, or cannot be.
    Struck { strike: StrikeId, kept: bool },
    /// New access rules.
    Acl(Option<Arc<Acl>>),
    /// Somebody wants to know something.
    Look(Look),
    /// New certificates, by listener.
    Tls(Arc<[Option<Arc<ServerTls>>]>),
    /// Say goodbye to the clients and end.
    ShutDown,
}

impl Mail {
    fn cost(&self) -> usize {
        let payload = match self {
            Self::Bus { message, .. } => match message {
                BusMessage::Handover { data, .. } => data.len(),
                BusMessage::Net {
                    event: OwnedNetEvent::Bytes(_, data) | OwnedNetEvent::Datagram(data),
                    ..
                } => data.len(),
                BusMessage::Command(NetCommand::Send { data, .. }) => data.len(),
                BusMessage::Command(NetCommand::SendDatagram { data, .. }) => data.len(),
                BusMessage::Forward { forward, .. } => forward.message.cost(),
                BusMessage::Retained { message } => message.cost(),
                _ => 0,
            },
            Self::Datagram(datagram) => datagram.len(),
            _ => 0,
        };
        MAIL_BYTES + payload
    }
}

/// The way into a shard's inbox.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    sender: Sender<Mail>,
    bytes: Arc<AtomicUsize>,
    waker: Waker,
}

impl Address {
    /// Puts something in and wakes the shard.
    pub(crate) fn send(&self, mail: Mail) {
        self.put(mail);
        self.waker.wake();
    }

    /// Puts something in; the caller wakes the shard at the end of its batch.
    pub(crate) fn put(&self, mail: Mail) {
        self.bytes.fetch_add(mail.cost(), Ordering::Relaxed);
        // A shard that has ended wants nothing any more.
        let _ = self.sender.send(mail);
    }

    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// Bytes of mail that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether the shard is behind.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting() > INBOX_BYTES_MAX
    }
}

/// A shard's inbox.
#[derive(Debug)]
pub(crate) struct Inbox {
    receiver: Receiver<Mail>,
    bytes: Arc<AtomicUsize>,
}

impl Inbox {
    /// An inbox and its address.
    pub(crate) fn new(waker: Waker) -> (Self, Address) {
        let (sender, receiver) = channel();
        let bytes = Arc::new(AtomicUsize::new(0));
        let inbox = Self {
            receiver,
            bytes: Arc::clone(&bytes),
        };
        let address = Address {
            sender,
            bytes,
            waker,
        };
        (inbox, address)
    }

    /// The next thing in the inbox.
    pub(crate) fn take(&self) -> Option<Mail> {
        let mail = self.receiver.try_recv().ok()?;
        self.bytes.fetch_sub(mail.cost(), Ordering::Relaxed);
        Some(mail)
    }
}
