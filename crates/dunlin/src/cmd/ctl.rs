//! `dunlin ctl`: sees and steers a running broker over its control socket.

mod table;

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use serde_json::Value;

use crate::config::qlog::Range;
use crate::config::units::Span;
use crate::control::caller::{Caller, socket_of};
use crate::control::values::{
    ClientFilter, Code, Failure, Message, PageOf, Protocol, ROWS_MAX, Reply, Request,
    SessionFilter, Whom,
};
use table::{Column, Table};

/// The exit code where there is no such thing as is asked for.
const NOT_FOUND: u8 = 2;

/// Time between two questions whether the broker is still there.
const WAIT: core::time::Duration = core::time::Duration::from_millis(200);

/// See and steer a running broker.
///
/// It is asked on its control socket: that of the configuration file, or else of the
/// broker that was started in this directory, or else of the service. Exit codes: 0 it
/// is done; 1 it is not, or no broker is running; 2 there is no such thing.
#[derive(Debug, Args)]
pub(super) struct Ctl {
    /// The control socket.
    #[arg(long, value_name = "PATH", global = true)]
    socket: Option<PathBuf>,
    /// Configuration file of the broker.
    #[arg(
        short,
        long,
        value_name = "FILE",
        global = true,
        conflicts_with = "socket"
    )]
    config: Option<PathBuf>,
    /// Print JSON, one object or row a line.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
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
    /// List users of the password file.
    Users,
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
enum Client {
    /// Show everything that is known of it.
    Show {
        /// Client identifier, or container id of AMQP.
        id: String,
    },
}

#[derive(Debug, Subcommand)]
enum Acl {
    /// Say what a user may do with a topic or filter, and which line says so.
    Explain {
        /// The user; - for clients without one.
        user: String,
        /// The topic, or filter.
        topic: String,
        /// The client identifier.
        #[arg(long, default_value = "", value_name = "ID")]
        client: String,
    },
}

#[derive(Debug, Subcommand)]
enum OneSession {
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
enum Topic {
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
enum Retained {
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
struct Banned {
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
    fn whom(self) -> anyhow::Result<Whom> {
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
struct Kept {
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
struct Chosen {
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
enum Spoken {
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

impl Ctl {
    /// Runs the command.
    ///
    /// # Errors
    /// No broker is running, or it refuses.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let socket = match self.socket {
            Some(socket) => socket,
            None => socket_of(self.config.as_deref())?,
        };
        if let Command::Backup { output } = &self.command {
            return super::store::backup(&socket, None, output.as_deref());
        }
        let broker = Caller::connect(&socket)?;
        let mut session = Session {
            broker,
            json: self.json,
        };
        match session.run(self.command) {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(error) => match error.downcast_ref::<Failure>() {
                Some(failure) if failure.code == Code::NotFound => {
                    writeln!(io::stderr(), "dunlin: {failure}")?;
                    Ok(ExitCode::from(NOT_FOUND))
                }
                _ => Err(error),
            },
        }
    }
}

/// A connection, and how answers are shown.
struct Session {
    broker: Caller,
    json: bool,
}

impl Session {
    fn run(&mut self, command: Command) -> anyhow::Result<()> {
        match command {
            Command::Status => self.show(&Request::Status {}),
            Command::Clients { filter, limit } => {
                let filter = ClientFilter::from(filter);
                self.list(&CLIENTS, limit, |page| Request::Clients {
                    filter: filter.clone(),
                    page,
                })
            }
            Command::Client(Client::Show { id }) | Command::Session(OneSession::Show { id }) => {
                self.show(&Request::Client { client_id: id })
            }
            Command::Sessions { filter, limit } => {
                let filter = SessionFilter::from(filter);
                self.list(&SESSIONS, limit, |page| Request::Sessions {
                    filter: filter.clone(),
                    page,
                })
            }
            Command::Subscriptions { id, limit } => {
                self.list(&SUBSCRIPTIONS, limit, |page| Request::Subscriptions {
                    client_id: id.clone(),
                    page,
                })
            }
            Command::Topic(Topic::Who { topic, limit }) => self.who(topic, limit),
            Command::Retained(command) => self.retained(command),
            Command::LogLevel { filter } => {
                let request = match filter {
                    Some(filter) => Request::SetLogLevel { filter },
                    None => Request::LogLevel {},
                };
                self.show(&request)
            }
            Command::Limits => self.list(&SETTINGS, None, |_| Request::Limits {}),
            Command::Users => self.list(&USERS, None, |page| Request::Users { page }),
            Command::Acl(Acl::Explain {
                user,
                topic,
                client,
            }) => {
                let user = Some(user).filter(|user| user != "-");
                self.list(&RIGHTS, None, |_| Request::Rights {
                    user: user.clone(),
                    client_id: client.clone(),
                    topic: topic.clone(),
                })
            }
            Command::Bans => self.list(&BANS, None, |page| Request::Bans { page }),
            order => self.order_of(order),
        }
    }

    /// What changes something.
    fn order_of(&mut self, command: Command) -> anyhow::Result<()> {
        match command {
            Command::Session(OneSession::Delete { id, why }) => {
                let request = Request::DeleteSession { client_id: id, why };
                self.order(&request, "sessions deleted")
            }
            Command::Publish {
                topic,
                message,
                qos,
                retain,
                expiry,
                content_type,
            } => self.publish(Message {
                topic,
                payload: message,
                payload_base64: None,
                qos,
                retain,
                content_type,
                expiry_seconds: expiry,
            }),
            Command::Disconnect { id, why } => {
                let request = Request::Disconnect { client_id: id, why };
                self.order(&request, "connections ended")
            }
            Command::Ban { whom, lasts, why } => {
                let whom = whom.whom()?;
                let seconds = lasts.map(|lasts| lasts.0.as_secs());
                let request = Request::Ban { whom, seconds, why };
                self.order(&request, "connections ended")
            }
            Command::Unban { whom } => {
                let whom = whom.whom()?;
                self.order(&Request::Unban { whom }, "bans ended")
            }
            Command::Reload => self.reload(),
            Command::Drain {
                rate,
                server,
                moved,
            } => {
                let request = Request::Drain {
                    rate,
                    server,
                    moved,
                };
                self.order(&request, "connections to end")?;
                self.wait()
            }
            // Questions are answered above; a backup needs no table, and was made before.
            _ => Ok(()),
        }
    }

    fn reload(&mut self) -> anyhow::Result<()> {
        match self.broker.ask(&Request::Reload {})? {
            reply if self.json => line(&serde_json::to_value(reply)?),
            Reply::Reloaded { changed, restart } => {
                let mut out = io::stdout().lock();
                writeln!(out, "in force: {}", changed.join(", "))?;
                if !restart.is_empty() {
                    writeln!(out, "needs a restart: {}", restart.join(", "))?;
                }
                Ok(())
            }
            _ => bail!("the broker's answer is not understood"),
        }
    }

    /// Waits until the broker has stopped.
    fn wait(&mut self) -> anyhow::Result<()> {
        while self.broker.status().is_ok() {
            std::thread::sleep(WAIT);
        }
        match self.json {
            true => Ok(()),
            false => Ok(writeln!(io::stdout(), "the broker has stopped")?),
        }
    }

    fn who(&mut self, topic: String, limit: usize) -> anyhow::Result<()> {
        let Reply::Receivers { rows, count } =
            self.broker.ask(&Request::Receivers { topic, limit })?
        else {
            bail!("the broker's answer is not understood");
        };
        let shown = rows.len() as u64;
        let rows = values(rows)?;
        match self.json {
            true => rows.iter().try_for_each(line)?,
            false => Table::new(&RECEIVERS).print(&mut io::stdout().lock(), &rows)?,
        }
        if count > shown {
            writeln!(io::stderr(), "{} more are not shown", count - shown)?;
        }
        Ok(())
    }

    fn retained(&mut self, command: Retained) -> anyhow::Result<()> {
        match command {
            Retained::List { filter, limit } => {
                self.list(&RETAINED, limit, |page| Request::Retained {
                    filter: filter.clone(),
                    page,
                })
            }
            Retained::Get { topic } => self.show(&Request::RetainedMessage { topic }),
            Retained::Clear { filter } => {
                let (mut count, mut after) = (0, None);
                loop {
                    let limit = ROWS_MAX;
                    let request = Request::ClearRetained {
                        filter: filter.clone(),
                        page: PageOf { after, limit },
                    };
                    let Reply::Done { count: more, next } = self.broker.ask(&request)? else {
                        bail!("the broker's answer is not understood");
                    };
                    count += more;
                    match next {
                        None => return self.done(count, "retained messages removed"),
                        next => after = next,
                    }
                }
            }
        }
    }

    fn publish(&mut self, mut message: Message) -> anyhow::Result<()> {
        if message.payload.is_none() {
            let mut bytes = Vec::new();
            io::stdin().lock().read_to_end(&mut bytes)?;
            message.payload_base64 = Some(BASE64.encode(bytes));
        }
        match self.broker.ask(&Request::Publish { message })? {
            reply if self.json => line(&serde_json::to_value(reply)?),
            Reply::Published { matched: true } => Ok(writeln!(io::stdout(), "published")?),
            Reply::Published { .. } => Ok(writeln!(io::stdout(), "published; it has no receiver")?),
            _ => bail!("the broker's answer is not understood"),
        }
    }

    /// Shows one thing, a line for each thing that is known of it.
    fn show(&mut self, request: &Request) -> anyhow::Result<()> {
        let thing = match self.broker.ask(request)? {
            Reply::Status(status) => serde_json::to_value(status)?,
            Reply::Client(client) => serde_json::to_value(client)?,
            Reply::Message(message) => serde_json::to_value(message)?,
            Reply::LogLevel { filter } => serde_json::json!({ "level": filter }),
            _ => bail!("the broker's answer is not understood"),
        };
        match self.json {
            true => line(&thing),
            false => Ok(table::show(&mut io::stdout().lock(), &thing)?),
        }
    }

    /// Does something that counts what it did.
    fn order(&mut self, request: &Request, what: &str) -> anyhow::Result<()> {
        match self.broker.ask(request)? {
            Reply::Done { count, .. } => self.done(count, what),
            _ => bail!("the broker's answer is not understood"),
        }
    }

    fn done(&self, count: u64, what: &str) -> anyhow::Result<()> {
        match self.json {
            true => line(&serde_json::json!({ "count": count })),
            false => Ok(writeln!(io::stdout(), "{count} {what}")?),
        }
    }

    /// Lists rows, page by page.
    fn list(
        &mut self,
        columns: &'static [Column],
        limit: Option<usize>,
        request: impl Fn(PageOf) -> Request,
    ) -> anyhow::Result<()> {
        let mut left = limit.unwrap_or(usize::MAX);
        let (mut after, mut table) = (None, Table::new(columns));
        while left > 0 {
            let limit = left.min(ROWS_MAX);
            let reply = self.broker.ask(&request(PageOf { after, limit }))?;
            let (rows, next) = rows(reply)?;
            left = left.saturating_sub(rows.len());
            match self.json {
                true => rows.iter().try_for_each(line)?,
                false => table.print(&mut io::stdout().lock(), &rows)?,
            }
            match next {
                None => break,
                next => after = next,
            }
        }
        Ok(())
    }
}

/// What a page of any kind has.
fn rows(reply: Reply) -> anyhow::Result<(Vec<Value>, Option<String>)> {
    match reply {
        Reply::Clients(page) => Ok((values(page.rows)?, page.next)),
        Reply::Subscriptions(page) => Ok((values(page.rows)?, page.next)),
        Reply::Retained(page) => Ok((values(page.rows)?, page.next)),
        Reply::Bans(page) => Ok((values(page.rows)?, page.next)),
        Reply::Settings(page) => Ok((values(page.rows)?, page.next)),
        Reply::Users(page) => Ok((values(page.rows)?, page.next)),
        Reply::Rights(page) => Ok((values(page.rows)?, page.next)),
        _ => bail!("the broker's answer is not understood"),
    }
}

fn values<T: Serialize>(rows: Vec<T>) -> Result<Vec<Value>, serde_json::Error> {
    rows.into_iter().map(serde_json::to_value).collect()
}

fn line(value: &Value) -> anyhow::Result<()> {
    Ok(writeln!(io::stdout(), "{value}")?)
}

const SESSIONS: [Column; 7] = [
    Column("CLIENT", "client_id"),
    Column("USER", "user"),
    Column("CONNECTION", "connection"),
    Column("EXPIRY", "session_expiry_seconds"),
    Column("SUBSCRIPTIONS", "subscriptions"),
    Column("QUEUED", "queued_messages"),
    Column("INFLIGHT", "inflight_messages"),
];

const SUBSCRIPTIONS: [Column; 5] = [
    Column("FILTER", "filter"),
    Column("QOS", "qos"),
    Column("IDENTIFIER", "identifier"),
    Column("NO LOCAL", "no_local"),
    Column("RETAIN AS PUBLISHED", "retain_as_published"),
];

const RECEIVERS: [Column; 5] = [
    Column("CLIENT", "client_id"),
    Column("QOS", "qos"),
    Column("SHARE", "share"),
    Column("ALLOWED", "allowed"),
    Column("CONNECTED", "connected"),
];

const RETAINED: [Column; 3] = [
    Column("TOPIC", "topic"),
    Column("QOS", "qos"),
    Column("BYTES", "bytes"),
];

const SETTINGS: [Column; 3] = [
    Column("KEY", "key"),
    Column("VALUE", "value"),
    Column("DEFAULT", "default"),
];

const USERS: [Column; 1] = [Column("USER", "name")];

const RIGHTS: [Column; 3] = [
    Column("ACTION", "action"),
    Column("ALLOWED", "allowed"),
    Column("WHY", "why"),
];

const BANS: [Column; 3] = [
    Column("WHOM", "whom"),
    Column("UNTIL", "until"),
    Column("WHY", "why"),
];

const CLIENTS: [Column; 8] = [
    Column("CLIENT", "client_id"),
    Column("USER", "user"),
    Column("ADDRESS", "address"),
    Column("TRANSPORT", "transport"),
    Column("PROTOCOL", "protocol"),
    Column("SUBSCRIPTIONS", "subscriptions"),
    Column("QUEUED", "queued_messages"),
    Column("INFLIGHT", "inflight_messages"),
];
