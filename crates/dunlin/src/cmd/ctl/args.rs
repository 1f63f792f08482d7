//! The arguments of `dunlin ctl`.

use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};

use crate::config::qlog::Range;
use crate::config::units::Span;
use crate::control::values::{ClientFilter, Protocol, ROWS_MAX, Role, SessionFilter, Whom};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// What is running, and how much it has.
    Status,
    /// List connected clients.
    Clients {
        #[command(flatten)]
        filter: Chosen,
        /// Print so many at most.
        #[arg(long, value_name = "NUMBER")]
        limit: Option<usize>,
    },
    /// One client.
    #[command(subcommand)]
    Client(Client),
    /// End the connections of a client. Its session stays, and it may come back.
    Disconnect {
        /// Client identifier, or container id of AMQP.
        id: String,
        /// Why, for the client.
        #[arg(long, default_value = "", value_name = "TEXT")]
        why: String,
    },
    /// List sessions of MQTT, connected or not.
    Sessions {
        #[command(flatten)]
        filter: Kept,
        /// Print so many at most.
        #[arg(long, value_name = "NUMBER")]
        limit: Option<usize>,
    },
    /// One session.
    #[command(subcommand)]
    Session(OneSession),
    /// List the subscriptions of a session.
    Subscriptions {
        /// Client identifier.
        id: String,
        /// Print so many at most.
        #[arg(long, value_name = "NUMBER")]
        limit: Option<usize>,
    },
    /// Topics.
    #[command(subcommand)]
    Topic(Topic),
    /// Bridges to other brokers.
    #[command(subcommand)]
    Bridge(super::bridges::Bridge),
    /// Queues of AMQP.
    #[command(subcommand)]
    Queue(super::queues::Queue),
    /// Retained messages.
    #[command(subcommand)]
    Retained(Retained),
    /// Publish a message of the broker.
    Publish {
        /// Its topic.
        topic: String,
        /// Its payload; standard input if not given.
        message: Option<String>,
        /// Its QoS.
        #[arg(short, long, default_value_t = 1, value_name = "0|1|2")]
        qos: u8,
        /// Have it retained.
        #[arg(short, long)]
        retain: bool,
        /// Seconds after which it is of no use.
        #[arg(long, value_name = "SECONDS")]
        expiry: Option<u32>,
        /// Its Content Type.
        #[arg(long, value_name = "TYPE")]
        content_type: Option<String>,
    },
    /// Keep clients out, and end the connections of those who are here.
    Ban {
        #[command(flatten)]
        whom: Banned,
        /// For how long, as in 10m, 12h or 7d; for good if not given.
        #[arg(long = "for", value_name = "TIME")]
        lasts: Option<Span>,
        /// Why, for those who look at the bans.
        #[arg(long, default_value = "", value_name = "TEXT")]
        why: String,
    },
    /// End a ban.
    Unban {
        #[command(flatten)]
        whom: Banned,
    },
    /// List bans.
    Bans,
    /// Read users, rules, certificates and the configuration again.
    Reload,
    /// Show or change what the log writes.
    LogLevel {
        /// off, error, warn, info, debug, trace, or what RUST_LOG takes.
        filter: Option<String>,
    },
    /// Show limits.
    Limits,
    /// Show the configuration as it runs, and where its file says something else by now.
    Configuration {
        /// Only what is not the default, or differs from the file.
        #[arg(long)]
        changed: bool,
    },
    /// List where clients are accepted.
    Listeners,
    /// List certificates, and until when they are good.
    Certificates,
    /// List the nodes of the cluster: what each does, the links to them, who has the lease.
    Cluster,
    /// Tokens for HTTP.
    #[command(subcommand)]
    Token(Token),
    /// List users of the password file.
    Users,
    /// Users of the password file.
    #[command(subcommand)]
    User(User),
    /// Rules.
    #[command(subcommand)]
    Acl(Acl),
    /// Accept no clients any more, send those who are here away, and stop.
    Drain {
        /// Connections ended in a second.
        #[arg(long, default_value_t = 100, value_name = "NUMBER")]
        rate: u32,
        /// The server to which clients of MQTT 5.0 are to go.
        #[arg(long, value_name = "SERVER")]
        server: Option<String>,
        /// They are to go there from now on, not just for now.
        #[arg(long, requires = "server")]
        moved: bool,
    },
    /// Copy the store, as of one moment, as lines of JSON.
    Backup {
        /// The copy, which must not exist; standard output if not given.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum Client {
    /// Show everything that is known of it.
    Show {
        /// Client identifier, or container id of AMQP.
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum Token {
    /// Make a token, and print it. It is kept nowhere, and in force at once.
    Add {
        /// What it is called, in the audit log too.
        name: String,
        /// What it allows: read looks, operate changes what clients have, admin changes the
        /// broker.
        #[arg(long, value_name = "read|operate|admin")]
        role: Allowed,
    },
    /// List what there are, without the tokens themselves.
    List,
    /// Take one away. What it was used for ends at once.
    Remove {
        /// What it is called.
        name: String,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Allowed {
    Read,
    Operate,
    Admin,
}

impl From<Allowed> for Role {
    fn from(allowed: Allowed) -> Self {
        match allowed {
            Allowed::Read => Self::Read,
            Allowed::Operate => Self::Operate,
            Allowed::Admin => Self::Admin,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum User {
    /// Add a user, who is known at once. The password is read from standard input: asked
    /// for twice at a terminal, else one line.
    Add {
        /// Its name.
        name: String,
    },
    /// Give a user another password, read as with `add`. Its connections end.
    Passwd {
        /// Its name.
        name: String,
    },
    /// Take a user away. Its connections end.
    Remove {
        /// Its name.
        name: String,
    },
    /// List users.
    List,
}

#[derive(Debug, Subcommand)]
pub(super) enum Acl {
    /// Say what a user, or a client that is here, may do with a topic or filter, and what
    /// decides.
    #[command(allow_missing_positional = true)]
    Explain {
        /// The user; - for clients without one. Without it, what the client of --client may
        /// do, by what its token or a server brought, too.
        #[arg(required_unless_present = "client")]
        user: Option<String>,
        /// The topic, or filter.
        #[arg(required = true)]
        topic: String,
        /// The client identifier.
        #[arg(long, value_name = "ID")]
        client: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum OneSession {
    /// Show everything that is known of it.
    Show {
        /// Client identifier.
        id: String,
    },
    /// End it, and the connection of its client: what waits for it is lost.
    Delete {
        /// Client identifier.
        id: String,
        /// Why, for the client.
        #[arg(long, default_value = "", value_name = "TEXT")]
        why: String,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum Topic {
    /// List who would get a message, without sending one.
    Who {
        /// The topic.
        topic: String,
        /// Print so many at most.
        #[arg(long, default_value_t = ROWS_MAX, value_name = "NUMBER")]
        limit: usize,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum Retained {
    /// List topics that have one.
    List {
        /// Topic filter.
        #[arg(default_value = "#")]
        filter: String,
        /// Print so many at most.
        #[arg(long, value_name = "NUMBER")]
        limit: Option<usize>,
    },
    /// Show one of them.
    Get {
        /// Its topic.
        topic: String,
    },
    /// Remove those that match. Subscribers hear nothing of it.
    Clear {
        /// Topic filter.
        filter: String,
    },
}

/// Whom a ban keeps out.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct Banned {
    /// A client identifier, or container id of AMQP.
    #[arg(long, value_name = "ID")]
    client: Option<String>,
    /// A user that has authenticated.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// An address, or a range such as 192.0.2.0/24.
    #[arg(long, value_name = "RANGE")]
    address: Option<dunlin_base::AddrRange>,
}

impl Banned {
    pub(super) fn whom(self) -> anyhow::Result<Whom> {
        match (self.client, self.user, self.address) {
            (Some(client), ..) => Ok(Whom::ClientId(client)),
            (_, Some(user), _) => Ok(Whom::User(user)),
            (.., Some(address)) => Ok(Whom::Address(Range(address))),
            _ => bail!("one of --client, --user and --address is needed"),
        }
    }
}

/// Which sessions.
#[derive(Debug, Args)]
pub(super) struct Kept {
    /// What their client identifiers begin with.
    #[arg(long, default_value = "", value_name = "TEXT")]
    prefix: String,
    /// Their user.
    #[arg(long)]
    user: Option<String>,
    /// Whether their clients are connected.
    #[arg(long, value_name = "true|false")]
    connected: Option<bool>,
    /// Whether they outlive their connections.
    #[arg(long, value_name = "true|false")]
    persistent: Option<bool>,
    /// A filter to which they have subscribed, exactly.
    #[arg(long, value_name = "FILTER")]
    subscribed: Option<String>,
}

impl From<Kept> for SessionFilter {
    fn from(sessions: Kept) -> Self {
        Self {
            client_id: sessions.prefix,
            user: sessions.user,
            connected: sessions.connected,
            persistent: sessions.persistent,
            subscribed: sessions.subscribed,
        }
    }
}

/// Which clients.
#[derive(Debug, Args)]
pub(super) struct Chosen {
    /// What their client identifiers begin with.
    #[arg(long, default_value = "", value_name = "TEXT")]
    prefix: String,
    /// Their user.
    #[arg(long)]
    user: Option<String>,
    /// Where they connect from: an address, or a range such as 192.0.2.0/24.
    #[arg(long, value_name = "RANGE")]
    address: Option<dunlin_base::AddrRange>,
    /// What they speak.
    #[arg(long)]
    protocol: Option<Spoken>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Spoken {
    Mqtt,
    Amqp,
}

impl From<Chosen> for ClientFilter {
    fn from(clients: Chosen) -> Self {
        Self {
            client_id: clients.prefix,
            user: clients.user,
            address: clients.address.map(Range),
            protocol: clients.protocol.map(|protocol| match protocol {
                Spoken::Mqtt => Protocol::Mqtt,
                Spoken::Amqp => Protocol::Amqp,
            }),
        }
    }
}
