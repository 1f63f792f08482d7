//! What operators say to a running broker and what it answers: the one vocabulary of
//! every door. As JSON, an object with the name of the request, or of the reply, in
//! the field of that name; fields that are not known are refused.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::qlog::Range;

/// Most rows of a page.
pub const ROWS_MAX: usize = 1000;

/// Rows of a page, where the request does not say.
const ROWS_DEFAULT: usize = 100;

/// Most messages of one look into a queue.
pub const PEEKED_MAX: usize = dunlin_broker::control::values::PEEKED_MAX;

/// Most bans.
pub const BANS_MAX: usize = 10_000;

/// Longest reason that an order gives.
pub const WHY_BYTES_MAX: usize = 256;

/// A question or an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Request {
    /// What runs here. Answered by [`Reply::Status`].
    Status {},
    /// Connected clients. Answered by [`Reply::Clients`].
    Clients {
        /// Which.
        #[serde(default)]
        filter: ClientFilter,
        /// Which page.
        #[serde(default)]
        page: PageOf,
    },
    /// One client. Answered by [`Reply::Client`].
    Client {
        /// Its client identifier, or container id.
        client_id: String,
    },
    /// Ends the connections of a client. Answered by [`Reply::Done`].
    Disconnect {
        /// Its client identifier, or container id.
        client_id: String,
        /// Why, for the client.
        #[serde(default)]
        why: String,
    },
    /// Sessions of MQTT, connected or not. Answered by [`Reply::Clients`].
    Sessions {
        /// Which.
        #[serde(default)]
        filter: SessionFilter,
        /// Which page.
        #[serde(default)]
        page: PageOf,
    },
    /// Ends a session, and the connection of its client. Answered by [`Reply::Done`]
    /// when the store has forgotten it.
    DeleteSession {
        /// Its client identifier.
        client_id: String,
        /// Why, for the client.
        #[serde(default)]
        why: String,
    },
    /// Subscriptions of a session. Answered by [`Reply::Subscriptions`].
    Subscriptions {
        /// Its client identifier.
        client_id: String,
        /// Which page.
        #[serde(default)]
        page: PageOf,
    },
    /// Who would get a message. Answered by [`Reply::Receivers`].
    Receivers {
        /// Its topic.
        topic: String,
        /// Most rows.
        #[serde(default = "rows_default")]
        limit: usize,
    },
    /// Retained messages. Answered by [`Reply::Retained`].
    Retained {
        /// Topic filter.
        filter: String,
        /// Which page.
        #[serde(default)]
        page: PageOf,
    },
    /// One retained message. Answered by [`Reply::Message`].
    RetainedMessage {
        /// Its topic.
        topic: String,
    },
    /// Removes retained messages; subscribers hear nothing of it. Answered by [`Reply::Done`],
    /// a page at a time.
    ClearRetained {
        /// Topic filter.
        filter: String,
        /// Which page.
        #[serde(default)]
        page: PageOf,
    },
    /// Publishes a message of the broker. Answered by [`Reply::Published`] when its
    /// receivers that keep it have it.
    Publish {
        /// The message.
        message: Message,
    },
    /// Bridges to other brokers. Answered by [`Reply::Bridges`].
    Bridges {},
    /// One bridge. Answered by [`Reply::Bridge`].
    Bridge {
        /// Its name.
        name: String,
    },
    /// Ends the connections of a bridge until it is resumed or the broker starts again;
    /// what it would carry waits. Answered by [`Reply::Bridge`].
    PauseBridge {
        /// Its name.
        name: String,
    },
    /// Has a bridge that was paused go on. Answered by [`Reply::Bridge`].
    ResumeBridge {
        /// Its name.
        name: String,
    },
    /// Ends the connections of a bridge, which begins again at once. Answered by
    /// [`Reply::Bridge`].
    ReconnectBridge {
        /// Its name.
        name: String,
    },
    /// Queues of AMQP. Answered by [`Reply::Queues`].
    Queues {
        /// Which page.
        #[serde(default)]
        page: PageOf,
    },
    /// One queue. Answered by [`Reply::Queue`].
    Queue {
        /// Its name, or address.
        name: String,
    },
    /// Makes a queue. Answered by [`Reply::Queue`].
    CreateQueue {
        /// Its name, or address.
        name: String,
        /// What it is like.
        #[serde(default)]
        options: QueueOptions,
    },
    /// Changes a queue. Answered by [`Reply::Queue`].
    ChangeQueue {
        /// Its name, or address.
        name: String,
        /// What changes.
        #[serde(default)]
        options: QueueOptions,
    },
    /// Deletes a queue with all of its messages. Answered by [`Reply::Done`].
    DeleteQueue {
        /// Its name, or address.
        name: String,
    },
    /// The messages of a queue that leave first, which stay. Answered by
    /// [`Reply::Messages`].
    PeekQueue {
        /// Its name, or address.
        name: String,
        /// Most messages, up to [`PEEKED_MAX`].
        #[serde(default = "peeked_default")]
        limit: usize,
    },
    /// Removes messages that wait in a queue. Answered by [`Reply::Done`], whose `next`
    /// says how many are left to remove after some time.
    PurgeQueue {
        /// Its name, or address.
        name: String,
        /// So many; those that wait now, if not given.
        #[serde(default)]
        left: Option<u64>,
    },
    /// Moves messages that wait in a queue to another, each once. Answered as
    /// [`Request::PurgeQueue`].
    MoveMessages {
        /// Its name, or address.
        name: String,
        /// That of the other queue.
        to: String,
        /// So many; those that wait now, if not given.
        #[serde(default)]
        left: Option<u64>,
    },
    /// Keeps clients out, and ends the connections of those who are here. Answered by
    /// [`Reply::Done`] with how many those were.
    Ban {
        /// Whom; another ban of the same is replaced.
        whom: Whom,
        /// For how long, in seconds; for good if not given.
        #[serde(default)]
        seconds: Option<u64>,
        /// Why, for those who look at the bans.
        #[serde(default)]
        why: String,
    },
    /// Ends a ban. Answered by [`Reply::Done`].
    Unban {
        /// Whose.
        whom: Whom,
    },
    /// Bans. Answered by [`Reply::Bans`].
    Bans {
        /// Which page.
        #[serde(default)]
        page: PageOf,
    },
    /// Reads users, rules, certificates and the configuration again. Answered by
    /// [`Reply::Reloaded`].
    Reload {},
    /// What the log writes. Answered by [`Reply::LogLevel`].
    LogLevel {},
    /// Changes what the log writes, until the next start or reload. Answered by
    /// [`Reply::LogLevel`].
    SetLogLevel {
        /// A level, or what `RUST_LOG` takes.
        filter: String,
    },
    /// Limits as they are. Answered by [`Reply::Settings`].
    Limits {},
    /// The configuration as it runs, and where its file says something else by now.
    /// Answered by [`Reply::Settings`].
    Configuration {},
    /// Where clients are accepted. Answered by [`Reply::Listeners`].
    Listeners {},
    /// Certificates of the broker. Answered by [`Reply::Certificates`].
    Certificates {},
    /// Who may come over HTTP. Answered by [`Reply::Tokens`].
    Tokens {
        /// Which page.
        #[serde(default)]
        page: PageOf,
    },
    /// Makes a token for the HTTP door. Answered by [`Reply::Token`].
    AddToken {
        /// What it is called, in the audit log too.
        name: String,
        /// What it allows.
        role: Role,
    },
    /// Takes a token away. Answered by [`Reply::Done`].
    RemoveToken {
        /// What it is called.
        name: String,
    },
    /// Users of the password file. Answered by [`Reply::Users`].
    Users {
        /// Which page.
        #[serde(default)]
        page: PageOf,
    },
    /// What the rules let a client do. Answered by [`Reply::Rights`].
    Rights {
        /// Its user; none: it has not authenticated as one.
        #[serde(default)]
        user: Option<String>,
        /// Its client identifier.
        #[serde(default)]
        client_id: String,
        /// Topic, or filter.
        topic: String,
    },
    /// Accepts no clients any more, ends their connections, so many in a second, and
    /// stops. Answered by [`Reply::Done`] with how many there are.
    Drain {
        /// Connections ended in a second.
        rate: u32,
        /// The server to which clients of MQTT 5.0 are to go.
        #[serde(default)]
        server: Option<String>,
        /// They are to go there from now on, not just for now.
        #[serde(default)]
        moved: bool,
    },
    /// A copy of the store. It is no [`Reply`] but lines of JSON of their own, after
    /// which the door closes; it may be slow to send.
    Backup {},
}

/// Who may ask for what; each may also do what those before it may.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Look.
    Read,
    /// Change what clients have.
    Operate,
    /// Change the broker.
    Admin,
}

impl Role {
    /// All of them, the least first.
    pub const ALL: [Self; 3] = [Self::Read, Self::Operate, Self::Admin];

    /// As in the file of tokens.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}

impl Request {
    /// Who may ask for it. All but [`Role::Read`] are orders, which are audited.
    #[must_use]
    pub const fn role(&self) -> Role {
        match self {
            Self::Status {}
            | Self::Clients { .. }
            | Self::Client { .. }
            | Self::Sessions { .. }
            | Self::Subscriptions { .. }
            | Self::Receivers { .. }
            | Self::Retained { .. }
            | Self::RetainedMessage { .. }
            | Self::Bridges {}
            | Self::Bridge { .. }
            | Self::Queues { .. }
            | Self::Queue { .. }
            | Self::PeekQueue { .. }
            | Self::Bans { .. }
            | Self::LogLevel {}
            | Self::Limits {}
            | Self::Configuration {}
            | Self::Listeners {}
            | Self::Certificates {}
            | Self::Users { .. }
            | Self::Rights { .. } => Role::Read,
            Self::Disconnect { .. }
            | Self::DeleteSession { .. }
            | Self::ClearRetained { .. }
            | Self::Publish { .. }
            | Self::PauseBridge { .. }
            | Self::ResumeBridge { .. }
            | Self::ReconnectBridge { .. }
            | Self::CreateQueue { .. }
            | Self::ChangeQueue { .. }
            | Self::DeleteQueue { .. }
            | Self::PurgeQueue { .. }
            | Self::MoveMessages { .. }
            | Self::Ban { .. }
            | Self::Unban { .. } => Role::Operate,
            Self::Backup {}
            | Self::Reload {}
            | Self::SetLogLevel { .. }
            | Self::Tokens { .. }
            | Self::AddToken { .. }
            | Self::RemoveToken { .. }
            | Self::Drain { .. } => Role::Admin,
        }
    }
}

/// One page of rows. Who is there from the first page to the last is in one of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PageOf {
    /// What [`Page::next`] of the page before was.
    pub after: Option<String>,
    /// Most rows, up to [`ROWS_MAX`].
    pub limit: usize,
}

impl Default for PageOf {
    fn default() -> Self {
        Self {
            after: None,
            limit: ROWS_DEFAULT,
        }
    }
}

const fn rows_default() -> usize {
    ROWS_DEFAULT
}

/// Messages of a look into a queue, where the request does not say.
const fn peeked_default() -> usize {
    10
}

/// What a queue is to be like; what is not given stays, or is as usual.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QueueOptions {
    /// Topic filters that bring it messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topics: Option<Vec<String>>,
    /// Most messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_messages: Option<usize>,
    /// Most bytes of them in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<usize>,
    /// What happens to a message when it is full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full: Option<Full>,
    /// Longest time that a message stays, in seconds; 0: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
    /// Levels that the priorities 0 to 9 are sorted into.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub levels: Option<u8>,
    /// Failed deliveries after which a message is dead; 0: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_deliveries: Option<u16>,
    /// The queue that dead messages go to; empty: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter: Option<String>,
    /// Whether it and its messages outlive a restart; for a new queue only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durable: Option<bool>,
}

/// What happens to a message for a queue that is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Full {
    /// Its sender is refused.
    Reject,
    /// The queue goes without.
    DropNewest,
    /// The oldest messages make room.
    DropOldest,
}

/// A bridge to another broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bridge {
    /// Its name.
    pub name: String,
    /// How it is.
    pub state: BridgeState,
    /// Where the other broker is, without a password.
    pub url: String,
    /// Connections to it for what goes out.
    pub connections: u16,
    /// What it carries, as in `out sensors/#`.
    pub topics: Vec<String>,
    /// Messages that wait for the other broker, those on their way included.
    pub waiting_messages: Option<u64>,
    /// Connections that the other broker has accepted.
    pub connects: u64,
    /// Messages carried to the other broker.
    pub messages_out: u64,
    /// Messages carried from it.
    pub messages_in: u64,
    /// Messages that it did not carry.
    pub messages_dropped: u64,
    /// From a message to its acknowledgement by the other broker, smoothed, in
    /// microseconds.
    pub round_trip_us: Option<u64>,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// When that was, in seconds since 1970.
    pub last_error_at: Option<u64>,
}

/// How a bridge is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BridgeState {
    /// All of its connections are there.
    Connected,
    /// It tries.
    Connecting,
    /// An operator has paused it.
    Paused,
}

/// A queue of AMQP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Queue {
    /// Its name; its address is `/queues/` and this.
    pub name: String,
    /// It is of the configuration, which alone changes it.
    pub configured: bool,
    /// It and its messages outlive a restart.
    pub durable: bool,
    /// Topic filters that bring it messages.
    pub topics: Vec<String>,
    /// Messages that wait.
    pub messages: usize,
    /// Messages that consumers have and have not settled.
    pub unsettled: usize,
    /// Bytes of all of them in memory.
    pub bytes: usize,
    /// Links that take from it.
    pub consumers: usize,
    /// Age of the message that leaves first, by the time that its sender gave it.
    pub oldest_seconds: Option<u64>,
    /// The queue that dead messages go to.
    pub dead_letter: Option<String>,
    /// Most messages.
    pub max_messages: usize,
    /// Most bytes of them in memory.
    pub max_bytes: usize,
    /// What happens to a message when it is full.
    pub full: Full,
    /// Longest time that a message stays, in seconds.
    pub ttl_seconds: Option<u64>,
    /// Levels that the priorities 0 to 9 are sorted into.
    pub levels: u8,
    /// Failed deliveries after which a message is dead; 0: no limit.
    pub max_deliveries: u16,
}

/// A message of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueuedMessage {
    /// Its topic, or the address that it was sent to.
    pub topic: String,
    /// Its payload, if that is text and there is room for it in the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// Its payload in Base64, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    /// Bytes of its payload.
    pub bytes: usize,
    /// Content type.
    pub content_type: Option<String>,
    /// Deliveries that have failed.
    pub failed_deliveries: u16,
    /// Its priority, if it has one.
    pub priority: Option<u8>,
    /// How long it is good.
    pub expiry_seconds: Option<u64>,
}

/// Which sessions are meant: those to which all that is given applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionFilter {
    /// What the client identifier begins with.
    pub client_id: String,
    /// The user.
    pub user: Option<String>,
    /// Whether the client is connected.
    pub connected: Option<bool>,
    /// Whether the session outlives its connection.
    pub persistent: Option<bool>,
    /// A filter to which it has subscribed, as in its SUBSCRIBE.
    pub subscribed: Option<String>,
}

/// A setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Setting {
    /// Its key in the configuration.
    pub key: String,
    /// Its value.
    pub value: String,
    /// Whether that is the default.
    pub default: bool,
    /// What the configuration file says, if that is something else by now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// Where clients are accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Listening {
    /// Number of the listener in the configuration.
    pub listener: usize,
    /// Its transport.
    pub transport: String,
    /// Address and port.
    pub address: String,
    /// The path of a WebSocket.
    pub path: Option<String>,
    /// What is spoken there.
    pub protocols: Vec<Protocol>,
}

/// A certificate of the broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Certificate {
    /// Number of the listener in the configuration; none: it is that of the HTTP door.
    pub listener: Option<usize>,
    /// Its file.
    pub file: String,
    /// Whether it is one that the broker has made for itself.
    pub development: bool,
    /// Whose it is.
    pub subject: String,
    /// Names and addresses that it is good for.
    pub names: Vec<String>,
    /// From when on it is good, in seconds since 1970.
    pub not_before: i64,
    /// Until when it is good, in seconds since 1970.
    pub not_after: i64,
}

/// Who may come over HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bearer {
    /// What the token is called.
    pub name: String,
    /// What it allows.
    pub role: Role,
}

/// A user of the password file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct User {
    /// The name.
    pub name: String,
}

/// What a client may do with a topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Right {
    /// `subscribe`, `publish` or `receive`.
    pub action: String,
    /// Whether it may.
    pub allowed: bool,
    /// What decides.
    pub why: String,
}

/// Whom a ban keeps out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Whom {
    /// A client identifier, or container id.
    ClientId(String),
    /// A user that has authenticated.
    User(String),
    /// Address, or range of addresses.
    Address(Range),
}

/// A ban.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ban {
    /// Whom it keeps out.
    pub whom: Whom,
    /// Until when, in seconds since 1970; for good if not given.
    pub until: Option<u64>,
    /// Why.
    pub why: String,
}

/// A subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Subscription {
    /// The filter, as in SUBSCRIBE.
    pub filter: String,
    /// Most QoS.
    pub qos: u8,
    /// Not what its own client publishes.
    pub no_local: bool,
    /// RETAIN stays as its publisher set it.
    pub retain_as_published: bool,
    /// Subscription identifier.
    pub identifier: Option<u32>,
}

/// Who gets a message, for one subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Receiver {
    /// Client identifier, container id, or address of a queue.
    pub client_id: String,
    /// Most QoS.
    pub qos: u8,
    /// The shared subscription of which one member gets it.
    pub share: Option<String>,
    /// The rules let it have messages of this topic.
    pub allowed: bool,
    /// It is connected.
    pub connected: bool,
}

/// A retained message without its payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RetainedTopic {
    /// Its topic.
    pub topic: String,
    /// Its QoS.
    pub qos: u8,
    /// Bytes of its payload.
    pub bytes: usize,
}

/// A message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Message {
    /// Its topic.
    pub topic: String,
    /// Its payload, if that is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// Its payload, in Base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    /// Its QoS.
    pub qos: u8,
    /// Whether it is retained.
    pub retain: bool,
    /// Content Type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// How long it is good, from when it is published; for good if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiry_seconds: Option<u32>,
}

/// Which clients are meant: those to which all that is given applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientFilter {
    /// What the client identifier begins with.
    pub client_id: String,
    /// The user.
    pub user: Option<String>,
    /// Address, or range of addresses.
    pub address: Option<Range>,
    /// The protocol.
    pub protocol: Option<Protocol>,
}

/// What a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// MQTT, any version.
    Mqtt,
    /// AMQP 1.0.
    Amqp,
}

/// What became of a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "reply", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Reply {
    /// What runs.
    Status(Status),
    /// Clients.
    Clients(Page<Client>),
    /// One client.
    Client(Box<Client>),
    /// Subscriptions.
    Subscriptions(Page<Subscription>),
    /// Who would get a message.
    Receivers {
        /// The first ones.
        rows: Vec<Receiver>,
        /// All of them; a client counts once for each subscription.
        count: u64,
    },
    /// Retained messages.
    Retained(Page<RetainedTopic>),
    /// Bridges.
    Bridges(Page<Bridge>),
    /// One bridge.
    Bridge(Box<Bridge>),
    /// Queues of AMQP.
    Queues(Page<Queue>),
    /// One queue.
    Queue(Box<Queue>),
    /// Messages of a queue, the one that leaves first in front.
    Messages(Page<QueuedMessage>),
    /// Bans.
    Bans(Page<Ban>),
    /// What a reload has changed.
    Reloaded {
        /// This is in force.
        changed: Vec<String>,
        /// Keys of the configuration that need a restart.
        restart: Vec<String>,
    },
    /// What the log writes.
    LogLevel {
        /// As a filter.
        filter: String,
    },
    /// Settings.
    Settings(Page<Setting>),
    /// Users.
    Users(Page<User>),
    /// Rights of a client.
    Rights(Page<Right>),
    /// Where clients are accepted.
    Listeners(Page<Listening>),
    /// Certificates of the broker.
    Certificates(Page<Certificate>),
    /// Who may come over HTTP.
    Tokens(Page<Bearer>),
    /// A new token.
    Token {
        /// The token, which is kept nowhere.
        token: String,
    },
    /// One message.
    Message(Box<Message>),
    /// A message was published.
    Published {
        /// It has receivers.
        matched: bool,
    },
    /// It is done.
    Done {
        /// To so many.
        count: u64,
        /// Where to go on, if more is left.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<String>,
    },
    /// It is not done.
    Failed(Failure),
}

/// Rows, and where to go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "{T}Page")]
pub struct Page<T> {
    /// What was found. A page may have none and be followed by others.
    pub rows: Vec<T>,
    /// Where the next page begins.
    pub next: Option<String>,
}

/// Why something is not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    /// What kind of reason it is.
    pub code: Code,
    /// The reason, for people.
    pub text: String,
}

impl Failure {
    /// A reason.
    #[must_use]
    pub fn new(code: Code, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { code, text }
    }
}

/// Kinds of reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Code {
    /// The request is not understood.
    BadRequest,
    /// Who asks may not have it.
    Forbidden,
    /// There is no such thing.
    NotFound,
    /// It is there already, or under way.
    Conflict,
    /// Too much is asked at a time.
    Busy,
    /// A shard, the store or a file does not do its part.
    Unavailable,
}

/// What runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// The version of the program.
    pub version: String,
    /// The number of the process.
    pub pid: u32,
    /// Since when it runs, in seconds.
    pub uptime_seconds: u64,
    /// Its data directory, as an absolute path.
    pub data_dir: String,
    /// Its store, likewise, if it has one.
    pub store: Option<String>,
    /// Whether it is being drained.
    pub draining: bool,
    /// Shards, and those of them that answer.
    pub shards: usize,
    /// See [`Status::shards`].
    pub shards_answering: usize,
    /// Connections.
    pub connections: u64,
    /// Sessions, connected or not.
    pub sessions: u64,
    /// Subscriptions.
    pub subscriptions: u64,
    /// Retained messages.
    pub retained: u64,
}

/// A session of MQTT with its connection, or a connection of AMQP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Client {
    /// Client identifier, or container id.
    pub client_id: String,
    /// The user that it authenticated as.
    pub user: Option<String>,
    /// Its connection; none: the session waits for its client.
    pub connection: Option<String>,
    /// Its address.
    pub address: Option<String>,
    /// Its transport.
    pub transport: Option<String>,
    /// Number of the listener that accepted it.
    pub listener: Option<u16>,
    /// The name in its certificate.
    pub certificate: Option<String>,
    /// What it speaks.
    pub protocol: Protocol,
    /// The version of MQTT, if it is that.
    pub mqtt_version: Option<String>,
    /// Links, of AMQP.
    pub links: Option<usize>,
    /// How long the session outlives its connection; none: for ever.
    pub session_expiry_seconds: Option<u32>,
    /// Subscriptions.
    pub subscriptions: usize,
    /// Messages that wait for it.
    pub queued_messages: usize,
    /// Bytes of those in memory.
    pub queued_bytes: usize,
    /// QoS 1 and 2 messages on their way to it.
    pub inflight_messages: usize,
    /// QoS 2 messages on their way from it.
    pub receiving_messages: usize,
    /// Bytes on their way to it.
    pub backlog_bytes: usize,
    /// What TLS has agreed on; its fields stand beside the others.
    #[serde(flatten)]
    pub tls: Tls,
    /// What is known of a QUIC connection, by name; times in microseconds.
    pub quic: Option<BTreeMap<String, u64>>,
}

/// What TLS has agreed on, if the connection has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tls {
    /// The protocol that both sides agreed on by ALPN.
    pub alpn: Option<String>,
    /// Cipher suite.
    pub cipher_suite: Option<String>,
    /// Key exchange.
    pub key_exchange: Option<String>,
    /// Whether an earlier session was resumed.
    pub resumed: Option<bool>,
}
