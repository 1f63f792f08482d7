//! What the front of a protocol says of its connections and sessions, whose place
//! among the others the owners keep. Each kind is a variant of [`Conn`] or of
//! [`Session`], which ask it without dynamic dispatch.
//!
//! [`Conn`]: crate::owners::conn::Conn
//! [`Session`]: crate::owners::session::Session

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::DerefMut;

use dunlin_base::transport::NetCommandKind;
use dunlin_base::{ConnId, Instant, Message, QoS, ShardId, Text};
use dunlin_queue::{Delivery, Queue};
use dunlin_store::StoreOp;

use crate::config::Config;
use crate::ids::SessionIdx;
use crate::owners::common::{ConnCore, SessionCore, Who};
use crate::owners::leaving::LeavingFilters;
use crate::owners::subscribers::Subscribed;

/// What let a client in, or is about to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Proof<'a> {
    /// The password of a user.
    Password(&'a Text),
    /// What its session knows.
    Session(SessionIdx),
    /// A certificate, or nothing.
    Other,
}

/// A network connection, or a stream of one that carries several.
pub(crate) trait ConnKind: DerefMut<Target = ConnCore> {
    /// The session of its client, if it has one for all that it does.
    fn session(&self) -> Option<SessionIdx> {
        None
    }

    /// The sessions of its links, if it has one for each and is open.
    fn links(&self) -> Option<Vec<SessionIdx>> {
        None
    }

    /// The shard that has its session and sees everything that happens on it.
    fn handed_over(&self) -> Option<ShardId> {
        None
    }

    /// Bytes on their way out.
    fn backlog(&self) -> usize {
        0
    }

    /// Bytes of packets that have not come whole, and of what came too early.
    fn unfinished(&self) -> usize {
        0
    }

    /// Bytes of what came too early.
    fn parked_bytes(&self) -> usize {
        0
    }

    /// Bytes of packets on data streams that have not come whole.
    fn begun_bytes(&self) -> usize {
        0
    }

    /// Whether what it sends is read and handled as it comes.
    fn is_open(&self) -> bool {
        true
    }

    /// Whether it is a stream of another entry, and no connection of the network.
    fn is_carried(&self) -> bool {
        false
    }

    /// What stops or resumes reading from it.
    fn reading(&self, paused: bool) -> (ConnId, NetCommandKind) {
        (self.id, NetCommandKind::PauseReading { paused })
    }

    /// Whose it is, if that is not a matter of its session.
    fn user(&self) -> Option<Text> {
        None
    }

    /// Who its client says that it is, until it has its session.
    fn who(&self) -> Option<&Who> {
        None
    }

    /// What let its client in, or is about to.
    fn proof(&self) -> Proof<'_> {
        Proof::Other
    }
}

/// A session: a queue, and subscriptions that fill it.
pub(crate) trait SessionKind: DerefMut<Target = SessionCore> {
    /// What waits for it.
    fn queue(&self) -> &Queue;

    /// As [`SessionKind::queue`].
    fn queue_mut(&mut self) -> &mut Queue;

    /// Queues a delivery, or keeps it back until its time.
    fn push(&mut self, delivery: Delivery, _now: Instant) {
        self.queue_mut().push(delivery);
    }

    /// Until when it keeps a message back.
    fn keeps_back(&self, _message: &Message, _now: Instant) -> Option<Instant> {
        None
    }

    /// Whether so many copies of a message of `cost` bytes fit, given limits in
    /// messages and in bytes, for what waits and what is not settled.
    fn has_room(&self, copies: usize, cost: usize, messages_max: usize, bytes_max: usize) -> bool;

    /// Bytes of messages held in memory, those in flight and those that are on their way
    /// to the store included, and of their places.
    fn held_bytes(&self) -> usize;

    /// The part of these that is of places.
    fn place_bytes(&self) -> usize {
        0
    }

    /// Visits these messages.
    fn visit_held(&self, visit: impl FnMut(&Arc<Message>));

    /// Visits what it was given and has not settled, as far as it is in memory.
    fn visit_deliveries(&self, _visit: impl FnMut(&Delivery)) {}

    /// Messages that it has and has not settled.
    fn in_flight(&self) -> usize;

    /// Takes what came through a shared subscription and has not been answered,
    /// so that another member of its group can have it.
    fn take_shared(&mut self, with_in_flight: bool) -> Vec<Delivery>;

    /// Messages that were loaded for it, or are lost.
    fn handle_loaded(&mut self, messages: &[(u64, Option<Arc<Message>>)]);

    /// The subscription to a filter, as the tree keeps it.
    fn subscription(&self, filter: &str) -> Option<Subscribed>;

    /// All subscriptions, as the tree keeps them.
    fn subscriptions(&self) -> Vec<(Text, Subscribed)>;

    /// As [`SessionKind::subscriptions`], those after this filter, at most so many.
    fn subscriptions_after(&self, after: &str, max: usize) -> Vec<(Text, Subscribed)> {
        let mut all = self.subscriptions();
        all.retain(|(filter, _)| **filter > *after);
        all.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        all.truncate(max);
        all
    }

    /// Takes the filters of all subscriptions.
    fn take_subscriptions(&mut self) -> Box<dyn LeavingFilters>;

    /// Whether it is the session of a client identifier.
    fn is_named(&self) -> bool {
        false
    }

    /// Whether its state outlives the connection, and so belongs in the store.
    fn is_persistent(&self) -> bool {
        false
    }

    /// The level of a message here, of which `usual` is that of its topic, and the
    /// priority that decides on it.
    fn rank(&self, usual: u8, _message: &Message) -> (u8, Option<u8>) {
        (usual, None)
    }

    /// Whether it has the publisher refused for whom its queue has no room, with
    /// this QoS of the delivery.
    fn refuses(&self, _config: &Config, _qos: QoS) -> bool {
        false
    }

    /// What the store keeps of a message that came exactly once, whose publish
    /// has this token.
    fn receipt(&self, _token: u64) -> Option<StoreOp> {
        None
    }

    /// Bytes that it keeps of what its client said besides these.
    fn kept_bytes(&self) -> usize {
        0
    }

    /// Bytes that its subscriptions take.
    fn subscription_bytes(&self) -> usize {
        0
    }

    /// Bytes that its will takes.
    fn will_bytes(&self) -> usize {
        0
    }

    /// Messages on their way from it that have not come to rest.
    fn receiving(&self) -> usize {
        0
    }

    /// Its protocol's version, where it has several.
    fn version(&self) -> u8 {
        0
    }

    /// How long it outlives its connection; `u32::MAX`: for ever.
    fn expiry_secs(&self) -> u32 {
        0
    }

    /// How many subscriptions it has.
    fn subscriptions_len(&self) -> usize;

    /// Whether it wants a retained message that its subscription matches.
    fn wants(&self, _message: &Message, _now: Instant) -> bool {
        true
    }
}
