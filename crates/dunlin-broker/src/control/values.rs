//! What operators ask of a shard, and what it answers, as values. They name no
//! protocol and no door: how they come here is a matter of the driver.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::transport::Peer;
use dunlin_base::{AddrRange, ConnId, Message, QoS, Text};

use crate::access::{Action, Grounds};
use crate::bans::Bans;
pub use crate::queues::addresses::of_queue as queue_address;
pub use crate::queues::orders::{
    Answer as QueueAnswer, Changes as QueueChanges, Problem as QueueProblem, View as QueueView,
};

/// Most messages of one look into a queue.
pub const PEEKED_MAX: usize = 100;

/// Most messages that are moved in one step.
pub const MOVED_MAX: usize = 100;

/// Bytes of the messages of one step, or look, after which there are no more.
pub const STEP_BYTES_MAX: usize = 1 << 20;

/// A question or an order; each is answered by one [`Reply`] under its number.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Request {
    /// Connected clients. Answered by [`Reply::Clients`].
    Clients {
        /// Which.
        filter: ClientFilter,
        /// Where the page begins.
        at: Place,
        /// Most rows.
        limit: usize,
    },
    /// As [`Request::Clients`], those whose [`client_topic`](crate::client_topic)
    /// has a subscriber.
    Watched {
        /// Where the page begins.
        at: Place,
        /// Most rows.
        limit: usize,
    },
    /// The session of MQTT with this client identifier. Answered by
    /// [`Reply::Client`].
    Client(Text),
    /// Sessions of MQTT, connected or not. Answered by [`Reply::Clients`].
    Sessions {
        /// Which.
        filter: SessionFilter,
        /// Where the page begins.
        at: Place,
        /// Most rows.
        limit: usize,
    },
    /// Ends the session with this client identifier, and its connection. Answered by
    /// [`Reply::Stored`] when the store has forgotten it, or [`Reply::Client`] with
    /// nothing if it is not here.
    EndSession {
        /// The client identifier.
        client_id: Text,
        /// How its connection ends.
        ending: Ending,
    },
    /// Subscriptions of this client, in the order of their filters. Answered by
    /// [`Reply::Subscriptions`].
    Subscriptions {
        /// The client identifier.
        client_id: Text,
        /// Only those after this filter.
        after: Option<Text>,
        /// Most rows.
        limit: usize,
    },
    /// What this client may do. Answered by [`Reply::Rights`].
    Rights {
        /// The client identifier.
        client_id: Text,
        /// Topic, or filter.
        topic: Text,
    },
    /// Which sessions of this shard would get a message of this topic. Answered by
    /// [`Reply::Receivers`].
    Receivers {
        /// The topic.
        topic: Text,
        /// Most rows.
        limit: usize,
    },
    /// Retained messages, in the order of their topics. Answered by
    /// [`Reply::Retained`].
    Retained {
        /// Topic filter.
        filter: Text,
        /// Only those after this topic.
        after: Option<Text>,
        /// Most rows.
        limit: usize,
    },
    /// Removes the retained messages of topics that this shard owns. Answered by
    /// [`Reply::Stored`].
    Forget(Vec<Text>),
    /// Lets no client in any more. Sessions stay as they are when their connections
    /// end, as at the end of the process. Answered by [`Reply::Stored`].
    Leave,
    /// Replaces who is banned; who is connected stays until
    /// [`Request::EndAll`]. Answered by [`Reply::Stored`].
    Ban(Arc<Bans>),
    /// Publishes a message of the server. Answered by [`Reply::Published`].
    Publish(Arc<Message>),
    /// Queues of AMQP. Answered by [`Reply::Queues`].
    Queues {
        /// Where the page begins.
        at: Place,
        /// Most rows.
        limit: usize,
    },
    /// The queue with this address. Answered, as all about a queue that lives on the
    /// shard that its address hashes to, by [`Reply::Queue`].
    Queue(Text),
    /// Makes a queue.
    CreateQueue(Text, Box<QueueChanges>),
    /// Changes a queue.
    ChangeQueue(Text, Box<QueueChanges>),
    /// Deletes a queue with its messages.
    DeleteQueue(Text),
    /// Removes messages that wait in a queue, so many at most.
    Purge(Text, usize),
    /// The messages of a queue that leave first. Answered by [`Reply::Peeked`], or
    /// [`Reply::Queue`] with why not.
    Peek {
        /// Address of the queue.
        address: Text,
        /// Most messages, up to [`PEEKED_MAX`].
        limit: usize,
    },
    /// Moves the messages of a queue that leave first to another, all of them or none
    /// and each once, as much as one step does. Answered by [`Reply::Moved`], or
    /// [`Reply::Queue`] with why not.
    Move {
        /// Address of the queue.
        address: Text,
        /// Address of the other one.
        to: Text,
        /// Most messages, up to [`MOVED_MAX`].
        limit: usize,
    },
    /// Ends this connection. Answered by [`Reply::Ended`].
    End {
        /// The connection, on the shard that has its session.
        conn: ConnId,
        /// How.
        ending: Ending,
    },
    /// Ends the connections of clients. Answered by [`Reply::Ended`].
    EndAll {
        /// Which.
        filter: ClientFilter,
        /// Where the page begins.
        at: Place,
        /// Most of them.
        limit: usize,
        /// How.
        ending: Ending,
    },
}

/// What became of a [`Request`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Reply {
    /// Subscriptions of a client, and the last filter where there may be more;
    /// `None`: it is not here.
    Subscriptions(Option<(Vec<SubscriptionView>, Option<Text>)>),
    /// What a client may do; `None`: it is not here.
    Rights(Option<Vec<RightView>>),
    /// Sessions of this shard that get a message, and how many they are.
    Receivers {
        /// The first ones.
        rows: Vec<ReceiverView>,
        /// All of them, but for those below.
        count: usize,
        /// Shared subscriptions whose members are not counted, of any shard: there are more than a
        /// shard looks at.
        groups_left_out: usize,
    },
    /// Retained messages, and the topic after which there may be more.
    Retained(Vec<Arc<Message>>, Option<Text>),
    /// What the store keeps, or was to forget: whether it does.
    Stored(bool),
    /// A message was published.
    Published {
        /// Its receivers that keep it have it.
        stored: bool,
        /// It has receivers.
        matched: bool,
    },
    /// One page of queues.
    Queues(Page<QueueView>),
    /// What came of an order about a queue.
    Queue(Box<QueueAnswer>),
    /// Messages of a queue, the one that leaves first in front.
    Peeked {
        /// Each with its deliveries that have failed.
        rows: Vec<(Arc<Message>, u16)>,
        /// Others are on their way from the store: ask again.
        loading: bool,
    },
    /// Messages were moved.
    Moved {
        /// How many; none: the other queue is not there, or has no room.
        count: usize,
        /// They are on their way from the store: ask again.
        loading: bool,
        /// The queue is empty.
        empty: bool,
    },
    /// One page of clients.
    Clients(Page<ClientView>),
    /// A client, if it is here.
    Client(Option<Box<ClientView>>),
    /// So many connections were ended.
    Ended {
        /// How many.
        count: usize,
        /// Where to go on.
        next: Option<Place>,
    },
}

/// Where a walk over a table goes on: the next place to look at.
pub type Place = usize;

/// Rows of a table. Who is in the table from the first page to the last is in one of
/// them.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// What was found.
    pub rows: Vec<T>,
    /// Where to go on; a page may have no rows and be followed by others.
    pub next: Option<Place>,
}

/// Whether a client may do something.
#[derive(Clone, Debug)]
pub struct RightView {
    /// What.
    pub action: Action,
    /// Whether it may.
    pub allowed: bool,
    /// What decides.
    pub grounds: Grounds,
}

/// Which clients are meant: those to which all that is given applies.
#[derive(Clone, Debug, Default)]
pub struct ClientFilter {
    /// What the client identifier begins with.
    pub client_id: Text,
    /// The user.
    pub user: Option<Text>,
    /// Where the client connects from.
    pub network: Option<AddrRange>,
    /// The protocol: `true` for MQTT, `false` for AMQP.
    pub mqtt: Option<bool>,
    /// Only those who are banned.
    pub banned: bool,
}

/// Which sessions are meant: those to which all that is given applies.
#[derive(Clone, Debug, Default)]
pub struct SessionFilter {
    /// What the client identifier begins with.
    pub client_id: Text,
    /// The user.
    pub user: Option<Text>,
    /// Whether the client is connected.
    pub connected: Option<bool>,
    /// Whether the session outlives its connection.
    pub persistent: Option<bool>,
    /// A filter to which it has subscribed, as in its SUBSCRIBE.
    pub subscribed: Option<Text>,
}

/// A subscription.
#[derive(Clone, Debug)]
pub struct SubscriptionView {
    /// The filter, as in SUBSCRIBE.
    pub filter: Text,
    /// Most QoS.
    pub qos: QoS,
    /// Not what its own client publishes.
    pub no_local: bool,
    /// RETAIN stays as its publisher set it.
    pub retain_as_published: bool,
    /// Subscription identifier.
    pub identifier: Option<u32>,
}

/// A session that gets a message.
#[derive(Clone, Debug)]
pub struct ReceiverView {
    /// Client identifier, container id, or address of a queue.
    pub client_id: Text,
    /// With which QoS at most.
    pub qos: QoS,
    /// The shared subscription of which one member gets it.
    pub share: Option<Text>,
    /// The rules let it have messages of this topic.
    pub allowed: bool,
    /// It is connected.
    pub connected: bool,
}

/// How an operator ends a connection.
#[derive(Clone, Debug)]
pub struct Ending {
    /// What the client is to do.
    pub kind: EndingKind,
    /// Why, for people at both ends.
    pub why: Text,
}

/// What a client whose connection an operator ends is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndingKind {
    /// That is not said: 0x98 Administrative action, `amqp:connection:forced`.
    Ordered,
    /// To stay away: as [`EndingKind::Ordered`], `amqp:unauthorized-access`.
    Banned,
    /// To come back: 0x8B Server shutting down, `amqp:connection:forced`.
    ShuttingDown,
    /// To use this server for now: 0x9C Use another server.
    UseAnother(Text),
    /// To use this server from now on: 0x9D Server moved.
    Moved(Text),
}

/// A session of MQTT and the connection that serves it, or a connection of AMQP.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientView {
    /// Its client identifier; of AMQP the container id, which several may have.
    pub client_id: Text,
    /// Its user, when it authenticated as one.
    pub user: Option<Text>,
    /// Its connection; `None`: the session waits for its client.
    pub conn: Option<ConnId>,
    /// Who is at the other end of that.
    pub peer: Option<Peer>,
    /// Its MQTT version: 4 for 3.1.1, or 5; 0: it speaks AMQP 1.0.
    pub version: u8,
    /// Its links, if it speaks AMQP.
    pub links: Option<usize>,
    /// How long the session outlives its connection; `u32::MAX`: for ever.
    pub expiry_secs: u32,
    /// Its subscriptions.
    pub subscriptions: usize,
    /// Messages that wait for it.
    pub queued: usize,
    /// Bytes of those that are held in memory.
    pub queued_bytes: usize,
    /// QoS 1 and 2 messages on their way to it.
    pub in_flight: usize,
    /// QoS 2 messages on their way from it.
    pub receiving: usize,
    /// Bytes on their way to it.
    pub backlog_bytes: usize,
}
