//! What operators say to a running broker and what it answers: the one vocabulary of
//! every door. As JSON, an object with the name of the request, or of the reply, in
//! the field of that name; fields that are not known are refused.

mod access;
mod bans;
mod bridges;
mod broker;
mod clients;
mod cluster;
mod messages;
mod outcome;
mod queues;
mod rows;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use access::{Bearer, Right, Role, User};
pub use bans::{BANS_MAX, Ban, Whom};
pub use bridges::{Bridge, BridgeState, Leftover};
pub use broker::{Certificate, Listening, Setting, Status};
pub use clients::{Client, ClientFilter, Protocol, Receiver, SessionFilter, Subscription, Tls};
pub use cluster::{ClusterNode, NodeLink, NodeRole};
pub use messages::{Message, RetainedTopic};
pub use outcome::{Code, Failure};
pub use queues::{Full, PEEKED_MAX, Queue, QueueOptions, QueuedMessage};
pub use rows::{Page, PageOf, ROWS_MAX};

use crate::config::bridge as config;
use queues::peeked_default;
use rows::rows_default;

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
    /// Adds a bridge, which the broker keeps over restarts. Answered by [`Reply::Bridge`].
    AddBridge {
        /// What it is like, as in the configuration file. Files that it names are in the
        /// folder `bridges` of the data directory.
        bridge: Box<config::Bridge>,
        /// The password at the other broker, instead of a file with it.
        #[serde(default)]
        password: Option<String>,
    },
    /// Puts another bridge in the place of one that was added; it carries what waits.
    /// Answered by [`Reply::Bridge`].
    ChangeBridge {
        /// As in [`Request::AddBridge`].
        bridge: Box<config::Bridge>,
        /// Likewise; the one before stays if it is not given.
        #[serde(default)]
        password: Option<String>,
    },
    /// Removes a bridge that was added. Answered by [`Reply::Done`] with how many messages
    /// are dropped.
    RemoveBridge {
        /// Its name.
        name: String,
        /// What becomes of messages that wait.
        #[serde(default)]
        waiting: Leftover,
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
    /// Nodes of the cluster, as this one sees them; of a broker that is alone, none. Answered
    /// by [`Reply::Cluster`].
    Cluster {},
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
    /// Adds a user to the password file, who is known at once. Answered by
    /// [`Reply::Done`].
    AddUser {
        /// Its name.
        name: String,
        /// Its password.
        password: String,
    },
    /// Gives a user another password, and ends the connections of those who came with the
    /// former. Answered by [`Reply::Done`].
    SetPassword {
        /// Its name.
        name: String,
        /// Its password.
        password: String,
    },
    /// Takes a user out of the password file, and ends its connections. Answered by
    /// [`Reply::Done`].
    RemoveUser {
        /// Its name.
        name: String,
    },
    /// What a client with a session may do, by the rules and by what its token, or a server
    /// that was asked, brought. Answered by [`Reply::Rights`].
    ClientRights {
        /// Its client identifier.
        client_id: String,
        /// Topic, or filter.
        topic: String,
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
            | Self::Cluster {}
            | Self::Users { .. }
            | Self::ClientRights { .. }
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
            Self::AddBridge { .. }
            | Self::ChangeBridge { .. }
            | Self::RemoveBridge { .. }
            | Self::Backup {}
            | Self::Reload {}
            | Self::SetLogLevel { .. }
            | Self::Tokens { .. }
            | Self::AddToken { .. }
            | Self::RemoveToken { .. }
            | Self::AddUser { .. }
            | Self::SetPassword { .. }
            | Self::RemoveUser { .. }
            | Self::Drain { .. } => Role::Admin,
        }
    }
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
        /// Shared subscriptions whose members are neither shown nor counted, at least: a shard
        /// looks at 1,024.
        #[serde(default)]
        groups_left_out: u64,
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
    /// Nodes of a cluster.
    Cluster(Page<ClusterNode>),
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
