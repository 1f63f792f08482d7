//! The closed set of things that go into a shard and come out of it. Sockets,
//! store, authenticator and other shards are all behind these values, so the
//! simulator and the daemon drive the same code.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use dunlin_base::transport::{NetCommand, NetEvent, Peer};
use dunlin_base::{ConnId, Message, ShardId, Text};
use dunlin_store::{SessionKey, StoreDone, StoreOp};

use crate::auth::{AuthAnswer, AuthRequest};
use crate::control::values::{Reply, Request};
use crate::memory::Part;
use crate::owners::figures::Counts;
use crate::owners::holders::{Holder, Holding};
use crate::owners::pending::Passed;
use crate::owners::posts::Post;
use crate::queues::calls::Call;

/// Something happened.
#[derive(Debug)]
pub enum Input<'a> {
    /// On a transport of this shard.
    Net(NetEvent<&'a [u8]>),
    /// Another shard says something. Messages of one shard arrive in the order
    /// in which it sent them.
    Bus {
        /// Who.
        from: ShardId,
        /// What.
        message: BusMessage,
    },
    /// The store answered.
    Store(StoreDone),
    /// The authenticator answered.
    Auth {
        /// The connection that asked.
        conn: ConnId,
        /// The answer.
        answer: AuthAnswer,
    },
    /// Shards come and go.
    Members(Membership),
    /// An operator asks; answered by [`Output::Control`].
    Control {
        /// Returned with the reply.
        number: u64,
        /// What is asked.
        request: Request,
    },
}

/// Shards come and go. For a home, those that share its store are there from the start and
/// stay; those that have another store come and go, and a home of which there are such may
/// serve from [`Output::Ready`] on.
///
/// Every shard hears of every other one: that it has joined before anything comes from
/// it, and nothing comes from it after it is gone. A shard that comes back under its
/// number is another one, with the next [`Nodes::incarnation`](crate::Nodes).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Membership {
    /// These are there now. To a shard that is no home and has just begun, in one list all
    /// that are there, with the homes: it may serve from [`Output::Ready`] on.
    Joined(Vec<ShardId>),
    /// This one has vanished, with its connections. If it was a home, a shard that is
    /// none is at its end too: see [`Output::HomeLost`].
    Gone(ShardId),
}

/// Something is to be done.
#[derive(Debug)]
pub enum Output {
    /// On a transport of this shard.
    Net(NetCommand),
    /// Tell another shard.
    Bus {
        /// Whom.
        to: ShardId,
        /// What.
        message: BusMessage,
    },
    /// Move a connection of this shard to another, whole: it opens there again,
    /// under an id of that shard, and these bytes come first. This shard has
    /// forgotten it.
    Move {
        /// The connection; never one over QUIC.
        conn: ConnId,
        /// Where its session lives.
        to: ShardId,
        /// Bytes from CONNECT on.
        unread: Bytes,
    },
    /// Ask the store.
    Store(dunlin_store::Request),
    /// Ask the authenticator.
    Auth {
        /// The connection that the answer is for.
        conn: ConnId,
        /// The question.
        request: AuthRequest,
    },
    /// Tell the operator who asked.
    Control {
        /// Of the request.
        number: u64,
        /// What became of it.
        reply: Reply,
    },
    /// How an exchange of SCRAM ended, for the authenticator.
    Proof {
        /// The user.
        user: Text,
        /// Where its client is.
        address: IpAddr,
        /// The client knew the password.
        right: bool,
    },
    /// Worth a line in the log.
    Event(Event),
    /// This shard has joined the others and knows what it has to: it may have connections.
    Ready,
    /// This home is gone. This shard has ended its connections and takes no more; when
    /// they are closed another one is to begin in its place.
    HomeLost(ShardId),
}

/// What shards say to each other.
#[derive(Debug)]
pub enum BusMessage {
    /// A QUIC connection whose session lives with the receiver: its CONNECT
    /// and what came with it. [`BusMessage::Net`] follows, and commands come back
    /// as [`BusMessage::Command`].
    Handover {
        /// The connection.
        conn: ConnId,
        /// Who is there.
        peer: Peer,
        /// Bytes from CONNECT on.
        data: Bytes,
    },
    /// A client that connected to the sender wants this client identifier,
    /// whose home is the receiver, for a session that begins empty and ends
    /// with its connection. Answered by [`BusMessage::Granted`] or
    /// [`BusMessage::Denied`].
    Claim {
        /// Names the claim, with the sender.
        token: u64,
        /// The client identifier.
        client_id: Text,
        /// The client's user.
        user: Option<Text>,
    },
    /// The client identifier belongs to a session of another user.
    Denied {
        /// Of the claim.
        token: u64,
    },
    /// No other session has the client identifier now.
    Granted {
        /// Of the claim.
        token: u64,
        /// The client identifier.
        client_id: Text,
    },
    /// Another connection gets the client identifier: end the session.
    /// Answered by [`BusMessage::Left`], unless that was sent before.
    Evict {
        /// Of the claim.
        token: u64,
        /// The client identifier.
        client_id: Text,
    },
    /// This is what users and addresses have with the sender now.
    Holders(Vec<(Holder, Holding)>),
    /// What the sender has counted.
    Figures(ShardFigures),
    /// The session under this claim has ended.
    Left {
        /// Of the claim.
        token: u64,
        /// The client identifier.
        client_id: Text,
    },
    /// Something happened on a handed-over connection.
    Net(NetEvent<Bytes>),
    /// Do this on a connection of yours.
    Command(NetCommand),
    /// The sender's subscriptions changed; answered by
    /// [`BusMessage::InterestNoted`]. Also serves as a barrier: everything
    /// that the receiver said before its answer has arrived then.
    Interest {
        /// Returned in the answer.
        token: u64,
        /// Changes, in order.
        changes: Vec<InterestChange>,
    },
    /// The changes are in force.
    InterestNoted {
        /// Of the request.
        token: u64,
    },
    /// A message that the receiver's sessions want.
    Forward {
        /// What to deliver, and how.
        forward: Forward,
        /// With a token: say [`BusMessage::Prepared`], then wait for
        /// [`BusMessage::Settled`] before durable receivers see it.
        token: Option<u64>,
    },
    /// Messages that the receiver's sessions want, for all matching plain
    /// subscriptions, in a form of this crate. Each with a token is answered
    /// as [`BusMessage::Forward`] is.
    Messages(Vec<u8>),
    /// Answers as [`BusMessage::Prepared`] does, for messages under these
    /// tokens for which nothing has to be stored.
    Received(Vec<u64>),
    /// What must be stored for a forwarded message.
    Prepared {
        /// Of the request.
        token: u64,
        /// What must be stored.
        answer: Preparation,
    },
    /// The batch was stored, or the publish is off.
    Settled {
        /// Of the request.
        token: u64,
        /// Stored.
        committed: bool,
    },
    /// Sets or (with an empty payload) removes a retained message; sent by the
    /// topic's owner to all others.
    Retained {
        /// The message.
        message: Arc<Message>,
    },
    /// Between a link of AMQP and the queue that it is attached to.
    Queue(QueueCall),
    /// A message of a shared subscription that a member gives up, for one there.
    PassedOn(PassedOn),
    /// The sender has said everything that a shard has to know which has just joined.
    Introduced,
    /// An edge does not have a message of a shared subscription any more that it got with
    /// a token.
    Returned {
        /// Of the message.
        token: u64,
        /// It is done with; if not, another member is to get it.
        over: bool,
    },
    /// Messages of publishes at the sender, which its store has, for a home with another
    /// store. Answered by [`BusMessage::Taken`].
    Posts {
        /// The number of the post before the first of them.
        after: u64,
        /// In the order of their numbers.
        posts: Vec<Post>,
    },
    /// Of what the receiver has posted, there is no room for these posts here.
    Untaken {
        /// Their numbers: [`BusMessage::Taken`] is without them from now on.
        numbers: Vec<u64>,
        /// Their topics: others of these wait as well.
        topics: Vec<Text>,
    },
    /// What the receiver has posted is stored here.
    Taken {
        /// Up to the post with this number.
        up_to: u64,
        /// Those after it are to be sent once more.
        again: bool,
    },
}

/// Figures of a shard.
#[derive(Debug)]
pub struct ShardFigures(pub(crate) Box<Counts>);

/// A message of a shared subscription on its way from one member to another.
#[derive(Debug)]
pub struct PassedOn(pub(crate) Box<Passed>);

/// What a link and its queue say to each other.
#[derive(Debug)]
pub struct QueueCall(pub(crate) Call);

/// Why a message is taken by no receiver that would keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// There is no such queue, or what is to be taken from it is gone.
    NotFound,
    /// A queue is full and its policy is to refuse, or another limit is reached.
    NoRoom,
    /// The store refused it.
    NotStored,
    /// The home of the queue is away, or was lost before it had said what it stored.
    Away,
}

/// A shard's part of a publish.
#[derive(Debug, Default)]
pub struct Preparation {
    /// Store operations; the publisher's shard writes them in one batch with
    /// its own.
    pub ops: Vec<StoreOp>,
    /// [`BusMessage::Settled`] is waited for.
    pub waits: bool,
    /// It is not taken there.
    pub refused: Option<NotTaken>,
    /// Shared subscriptions without a member there any more.
    pub missed: Option<Missed>,
    /// Messages that a transaction makes dead there, for the queues of their topics.
    pub dead: Vec<Arc<Message>>,
}

/// What a shard could not deliver because its members of a shared subscription
/// left while the message was on its way.
#[derive(Clone, Debug)]
pub struct Missed {
    /// The message.
    pub message: Arc<Message>,
    /// The `$share` filters.
    pub shares: Vec<Text>,
}

/// One message for another shard.
#[derive(Clone, Debug)]
pub struct Forward {
    /// The message.
    pub message: Arc<Message>,
    /// Deliver to all matching plain subscriptions.
    pub plain: bool,
    /// Deliver to one member of each of these `$share` filters.
    pub shares: Vec<Text>,
    /// The receiver owns the topic's retained message and shall set it.
    pub retain: bool,
    /// Deliver to the queue with this address, and nothing else.
    pub queue: bool,
    /// How it is published.
    pub manner: Manner,
}

/// How a message is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// As any other.
    Usual,
    /// It is a will: a receiver without room goes without.
    Lossy,
    /// It is part of a transaction: nothing of it is seen before
    /// [`BusMessage::Settled`].
    Transacted,
    /// It is dead by a transaction: as part of that, and where there is no room it is
    /// over.
    Dead,
}

impl Manner {
    pub(crate) const fn new(lossy: bool, transacted: bool) -> Self {
        match (lossy, transacted) {
            (false, true) => Self::Transacted,
            (true, true) => Self::Dead,
            (true, false) => Self::Lossy,
            (false, false) => Self::Usual,
        }
    }
}

/// A change of what a shard wants to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterestChange {
    /// A plain filter got its first subscriber.
    Add(Text),
    /// A plain filter lost its last subscriber.
    Remove(Text),
    /// A `$share` filter now has this many members there; 0: none.
    Share(Text, u32),
    /// A `$share` filter has durable members there, whose messages are in this queue
    /// of the store; none: it has no such members.
    Queue(Text, Option<SessionKey>),
}

/// What happened to a client's access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// It was let in.
    Accepted,
    /// It was not let in, or did not authenticate again.
    Refused,
    /// Its session was given to another connection of its user.
    TakenOver,
    /// It may not publish or subscribe to a topic.
    Denied,
    /// A reload took its user or password away, or its token has expired.
    Revoked,
}

impl AccessKind {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Accepted,
        Self::Refused,
        Self::TakenOver,
        Self::Denied,
        Self::Revoked,
    ];

    /// For the log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accepted => "client accepted",
            Self::Refused => "client refused",
            Self::TakenOver => "session taken over",
            Self::Denied => "topic denied",
            Self::Revoked => "access revoked",
        }
    }
}

/// Who was let in or refused, and why. Everything but the cause comes from the
/// client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccessEvent {
    /// What happened.
    pub kind: AccessKind,
    /// The connection.
    pub conn: ConnId,
    /// Where it comes from, and to which listener.
    pub peer: Peer,
    /// Client identifier; empty before CONNECT.
    pub client_id: Text,
    /// Its user, or the one that it claims to be.
    pub user: Option<Text>,
    /// Topic or filter.
    pub topic: Option<Text>,
    /// Why.
    pub cause: &'static str,
}

/// Something for the log. Client identifiers are personal data: the daemon
/// shows them at DEBUG only, besides those of [`AccessEvent`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A client is connected.
    Connected {
        /// The connection.
        conn: ConnId,
        /// Client identifier.
        client_id: Text,
        /// Session Present.
        resumed: bool,
    },
    /// A connection ended.
    Disconnected {
        /// The connection.
        conn: ConnId,
        /// Client identifier, if CONNECT was read.
        client_id: Option<Text>,
        /// Why, for people.
        cause: Text,
    },
    /// A client has subscribed to a filter or unsubscribed, where that is published.
    Subscribed {
        /// The connection.
        conn: ConnId,
        /// Client identifier.
        client_id: Text,
        /// The filter.
        filter: Text,
        /// It has subscribed.
        subscribed: bool,
    },
    /// An operator ended a connection.
    Ended {
        /// The connection.
        conn: ConnId,
        /// Client identifier or container id.
        client_id: Text,
        /// What the operator said of it.
        why: Text,
    },
    /// A client's access was decided.
    Access(Box<AccessEvent>),
    /// So many lines about access were left out, as there were too many.
    LeftOut {
        /// Of which kind.
        kind: AccessKind,
        /// How many.
        lines: u64,
    },
    /// The client's address changed under its connection.
    Migrated {
        /// The connection.
        conn: ConnId,
        /// The new address.
        addr: SocketAddr,
    },
    /// Subscriptions were refused because one message could match too many of
    /// the session.
    Overlapping {
        /// The connection.
        conn: ConnId,
        /// Client identifier.
        client_id: Text,
        /// How many of one SUBSCRIBE.
        refused: u64,
    },
    /// A part of the memory budget is used up: more is refused. Once a
    /// minute.
    MemoryFull(Part),
    /// A user or an address has all the bytes of the memory budget that it may have:
    /// more is refused. Once a minute.
    HolderFull(Holder),
    /// A queue has no room: messages are dropped or publishers refused, by
    /// policy. Once until the client comes back.
    QueueFull {
        /// Client identifier.
        client_id: Text,
    },
    /// The store refused a batch; the publishes in it were refused too.
    StoreFailed(Text),
    /// So many messages for homes with other stores, or values that say how far such a
    /// home has taken them, cannot be read. They are left out, and stay in the store.
    PostsUnreadable(u64),
    /// So many table entries were missing although they cannot be: a bug.
    InternalError(u64),
}
