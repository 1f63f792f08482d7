//! One function for each resource and method: what is asked of the control plane, from
//! path, query and body.

use schemars::JsonSchema;
use serde::Deserialize;

use super::input::Input;
use crate::config::bridge::Bridge;
use crate::config::qlog::Range;
use crate::control::topics::bad;
use crate::control::values::{
    Bearer, ClientFilter, Failure, Leftover, PageOf, Protocol, Request, SessionFilter, Whom,
};

/// A request of the plane, or why there is none.
pub(super) type Made = Result<Request, Failure>;

/// No parameters.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// A page of clients.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Clients {
    /// What the client identifier begins with.
    prefix: String,
    /// The user.
    user: Option<String>,
    /// Address, or range of addresses as in `192.0.2.0/24`.
    address: Option<Range>,
    /// What they speak.
    protocol: Option<Protocol>,
    /// What `next` of the page before was.
    after: Option<String>,
    /// Most rows, 1 to 1000.
    limit: usize,
}

impl Default for Clients {
    fn default() -> Self {
        Self {
            prefix: String::new(),
            user: None,
            address: None,
            protocol: None,
            after: None,
            limit: PageOf::default().limit,
        }
    }
}

/// A page of sessions.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Sessions {
    /// What the client identifier begins with.
    prefix: String,
    /// The user.
    user: Option<String>,
    /// Whether the client is connected.
    connected: Option<bool>,
    /// Whether the session outlives its connection.
    persistent: Option<bool>,
    /// A filter to which it has subscribed, exactly.
    subscribed: Option<String>,
    /// What `next` of the page before was.
    after: Option<String>,
    /// Most rows, 1 to 1000.
    limit: usize,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            prefix: String::new(),
            user: None,
            connected: None,
            persistent: None,
            subscribed: None,
            after: None,
            limit: PageOf::default().limit,
        }
    }
}

/// A user of the password file.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewUser {
    /// Its name.
    name: String,
    /// Its password.
    password: String,
}

/// A password.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewPassword {
    /// The password.
    password: String,
}

/// A reason.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Why {
    /// Why, for the client.
    why: String,
}

/// A topic.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Topic {
    /// The topic.
    topic: String,
    /// Most rows, 1 to 1000.
    #[serde(default = "rows_default")]
    limit: usize,
}

/// Retained messages.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Retained {
    /// Topic filter.
    #[serde(default = "everything")]
    filter: String,
    /// What `next` of the page before was.
    after: Option<String>,
    /// Most rows, 1 to 1000.
    #[serde(default = "rows_default")]
    limit: usize,
}

/// Retained messages to remove.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Removed {
    /// Topic filter.
    filter: String,
    /// What `next` of the answer before was.
    after: Option<String>,
    /// Most messages, 1 to 1000.
    #[serde(default = "rows_default")]
    limit: usize,
}

/// Messages of a queue to look at.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Peeked {
    /// Most messages, 1 to 100.
    limit: usize,
}

impl Default for Peeked {
    fn default() -> Self {
        Self { limit: 10 }
    }
}

/// Messages of a queue to remove.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Left {
    /// So many: what `next` of the answer before was; those that wait now, if not given.
    left: Option<u64>,
}

/// Messages of a queue to move.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Moved {
    /// Name of the other queue.
    to: String,
    /// So many: what `next` of the answer before was; those that wait now, if not given.
    #[serde(default)]
    left: Option<u64>,
}

/// A bridge.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewBridge {
    /// What it is like, as in the configuration file. Files that it names are in the folder
    /// `bridges` of the data directory.
    bridge: Box<Bridge>,
    /// The password at the other broker, instead of a file with it.
    #[serde(default)]
    password: Option<String>,
}

/// A bridge to remove.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Removal {
    /// What becomes of messages that wait.
    waiting: Leftover,
}

/// A ban.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewBan {
    /// Whom; another ban of the same is replaced.
    whom: Whom,
    /// For how long, in seconds; for good if not given.
    #[serde(default)]
    seconds: Option<u64>,
    /// Why, for those who look at the bans.
    #[serde(default)]
    why: String,
}

/// Whose ban, by one of these.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Banned {
    /// A client identifier, or container id.
    client_id: Option<String>,
    /// A user.
    user: Option<String>,
    /// Address, or range of addresses.
    address: Option<Range>,
}

/// What the log writes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Level {
    /// A level, or what `RUST_LOG` takes.
    filter: String,
}

/// Whose rights, to what.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Rights {
    /// The user; none: it has not authenticated as one.
    user: Option<String>,
    /// The client identifier.
    #[serde(default)]
    client_id: String,
    /// Topic, or filter.
    topic: String,
}

/// A topic.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OneTopic {
    /// Topic, or filter.
    topic: String,
}

/// How the broker is drained.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Drain {
    /// Connections ended in a second.
    rate: u32,
    /// The server to which clients of MQTT 5.0 are to go.
    #[serde(default)]
    server: Option<String>,
    /// They are to go there from now on, not just for now.
    #[serde(default)]
    moved: bool,
}

/// Samples to leave out.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Since {
    /// Only samples later than this, in seconds since 1970.
    pub(super) since: u64,
}

fn rows_default() -> usize {
    PageOf::default().limit
}

fn everything() -> String {
    "#".to_owned()
}

/// Nothing is asked but what the path says.
fn plain(input: &Input<'_>, request: Request) -> Made {
    input.query().map(|Nothing {}| request)
}

pub(super) fn status(input: &Input<'_>) -> Made {
    plain(input, Request::Status {})
}

pub(super) fn clients(input: &Input<'_>) -> Made {
    let asked: Clients = input.query()?;
    let filter = ClientFilter {
        client_id: asked.prefix,
        user: asked.user,
        address: asked.address,
        protocol: asked.protocol,
    };
    let (after, limit) = (asked.after, asked.limit);
    let page = PageOf { after, limit };
    Ok(Request::Clients { filter, page })
}

pub(super) fn client(input: &Input<'_>) -> Made {
    let client_id = input.name.clone();
    plain(input, Request::Client { client_id })
}

pub(super) fn disconnect(input: &Input<'_>) -> Made {
    let Why { why } = input.query()?;
    let client_id = input.name.clone();
    Ok(Request::Disconnect { client_id, why })
}

pub(super) fn sessions(input: &Input<'_>) -> Made {
    let asked: Sessions = input.query()?;
    let filter = SessionFilter {
        client_id: asked.prefix,
        user: asked.user,
        connected: asked.connected,
        persistent: asked.persistent,
        subscribed: asked.subscribed,
    };
    let (after, limit) = (asked.after, asked.limit);
    let page = PageOf { after, limit };
    Ok(Request::Sessions { filter, page })
}

pub(super) fn delete_session(input: &Input<'_>) -> Made {
    let Why { why } = input.query()?;
    let client_id = input.name.clone();
    Ok(Request::DeleteSession { client_id, why })
}

pub(super) fn subscriptions(input: &Input<'_>) -> Made {
    let (client_id, page) = (input.name.clone(), input.query()?);
    Ok(Request::Subscriptions { client_id, page })
}

pub(super) fn receivers(input: &Input<'_>) -> Made {
    let Topic { topic, limit } = input.query()?;
    Ok(Request::Receivers { topic, limit })
}

pub(super) fn retained(input: &Input<'_>) -> Made {
    let asked: Retained = input.query()?;
    let (filter, after, limit) = (asked.filter, asked.after, asked.limit);
    let page = PageOf { after, limit };
    Ok(Request::Retained { filter, page })
}

pub(super) fn retained_message(input: &Input<'_>) -> Made {
    let topic = input.name.clone();
    plain(input, Request::RetainedMessage { topic })
}

pub(super) fn clear_retained(input: &Input<'_>) -> Made {
    let asked: Removed = input.query()?;
    let (filter, after, limit) = (asked.filter, asked.after, asked.limit);
    let page = PageOf { after, limit };
    Ok(Request::ClearRetained { filter, page })
}

pub(super) fn publish(input: &Input<'_>) -> Made {
    let message = input.body()?;
    plain(input, Request::Publish { message })
}

pub(super) fn cluster(input: &Input<'_>) -> Made {
    plain(input, Request::Cluster {})
}

pub(super) fn bridges(input: &Input<'_>) -> Made {
    plain(input, Request::Bridges {})
}

pub(super) fn bridge(input: &Input<'_>) -> Made {
    let name = input.name.clone();
    plain(input, Request::Bridge { name })
}

pub(super) fn add_bridge(input: &Input<'_>) -> Made {
    let NewBridge { bridge, password } = input.body()?;
    plain(input, Request::AddBridge { bridge, password })
}

pub(super) fn change_bridge(input: &Input<'_>) -> Made {
    let NewBridge { bridge, password } = input.body()?;
    match bridge.name == input.name {
        true => plain(input, Request::ChangeBridge { bridge, password }),
        false => Err(bad("`name` is not that of the path")),
    }
}

pub(super) fn remove_bridge(input: &Input<'_>) -> Made {
    let Removal { waiting } = input.query()?;
    let name = input.name.clone();
    Ok(Request::RemoveBridge { name, waiting })
}

pub(super) fn pause_bridge(input: &Input<'_>) -> Made {
    let name = input.name.clone();
    plain(input, Request::PauseBridge { name })
}

pub(super) fn resume_bridge(input: &Input<'_>) -> Made {
    let name = input.name.clone();
    plain(input, Request::ResumeBridge { name })
}

pub(super) fn reconnect_bridge(input: &Input<'_>) -> Made {
    let name = input.name.clone();
    plain(input, Request::ReconnectBridge { name })
}

pub(super) fn queues(input: &Input<'_>) -> Made {
    let page = input.query()?;
    Ok(Request::Queues { page })
}

pub(super) fn queue(input: &Input<'_>) -> Made {
    let name = input.name.clone();
    plain(input, Request::Queue { name })
}

pub(super) fn create_queue(input: &Input<'_>) -> Made {
    let (name, options) = (input.name.clone(), input.body()?);
    plain(input, Request::CreateQueue { name, options })
}

pub(super) fn change_queue(input: &Input<'_>) -> Made {
    let (name, options) = (input.name.clone(), input.body()?);
    plain(input, Request::ChangeQueue { name, options })
}

pub(super) fn delete_queue(input: &Input<'_>) -> Made {
    let name = input.name.clone();
    plain(input, Request::DeleteQueue { name })
}

pub(super) fn peek(input: &Input<'_>) -> Made {
    let Peeked { limit } = input.query()?;
    let name = input.name.clone();
    Ok(Request::PeekQueue { name, limit })
}

pub(super) fn purge(input: &Input<'_>) -> Made {
    let Left { left } = input.query()?;
    let name = input.name.clone();
    Ok(Request::PurgeQueue { name, left })
}

pub(super) fn move_messages(input: &Input<'_>) -> Made {
    let Moved { to, left } = input.body()?;
    let name = input.name.clone();
    plain(input, Request::MoveMessages { name, to, left })
}

pub(super) fn bans(input: &Input<'_>) -> Made {
    let page = input.query()?;
    Ok(Request::Bans { page })
}

pub(super) fn ban(input: &Input<'_>) -> Made {
    let NewBan { whom, seconds, why } = input.body()?;
    plain(input, Request::Ban { whom, seconds, why })
}

pub(super) fn unban(input: &Input<'_>) -> Made {
    let whom = match input.query()? {
        Banned {
            client_id: Some(client_id),
            user: None,
            address: None,
        } => Whom::ClientId(client_id),
        Banned {
            client_id: None,
            user: Some(user),
            address: None,
        } => Whom::User(user),
        Banned {
            client_id: None,
            user: None,
            address: Some(address),
        } => Whom::Address(address),
        _ => return Err(bad("one of `client_id`, `user` and `address` is needed")),
    };
    Ok(Request::Unban { whom })
}

pub(super) fn reload(input: &Input<'_>) -> Made {
    plain(input, Request::Reload {})
}

pub(super) fn level(input: &Input<'_>) -> Made {
    plain(input, Request::LogLevel {})
}

pub(super) fn set_level(input: &Input<'_>) -> Made {
    let Level { filter } = input.body()?;
    plain(input, Request::SetLogLevel { filter })
}

pub(super) fn limits(input: &Input<'_>) -> Made {
    plain(input, Request::Limits {})
}

pub(super) fn configuration(input: &Input<'_>) -> Made {
    plain(input, Request::Configuration {})
}

pub(super) fn listeners(input: &Input<'_>) -> Made {
    plain(input, Request::Listeners {})
}

pub(super) fn certificates(input: &Input<'_>) -> Made {
    plain(input, Request::Certificates {})
}

pub(super) fn users(input: &Input<'_>) -> Made {
    let page = input.query()?;
    Ok(Request::Users { page })
}

pub(super) fn rights(input: &Input<'_>) -> Made {
    let Rights {
        user,
        client_id,
        topic,
    } = input.query()?;
    Ok(Request::Rights {
        user,
        client_id,
        topic,
    })
}

pub(super) fn client_rights(input: &Input<'_>) -> Made {
    let OneTopic { topic } = input.query()?;
    let client_id = input.name.clone();
    Ok(Request::ClientRights { client_id, topic })
}

pub(super) fn drain(input: &Input<'_>) -> Made {
    let Drain {
        rate,
        server,
        moved,
    } = input.body()?;
    let request = Request::Drain {
        rate,
        server,
        moved,
    };
    plain(input, request)
}

pub(super) fn tokens(input: &Input<'_>) -> Made {
    let page = input.query()?;
    Ok(Request::Tokens { page })
}

pub(super) fn add_token(input: &Input<'_>) -> Made {
    let Bearer { name, role } = input.body()?;
    plain(input, Request::AddToken { name, role })
}

pub(super) fn remove_token(input: &Input<'_>) -> Made {
    let name = input.name.clone();
    plain(input, Request::RemoveToken { name })
}

pub(super) fn add_user(input: &Input<'_>) -> Made {
    let NewUser { name, password } = input.body()?;
    plain(input, Request::AddUser { name, password })
}

pub(super) fn set_password(input: &Input<'_>) -> Made {
    let NewPassword { password } = input.body()?;
    let name = input.name.clone();
    plain(input, Request::SetPassword { name, password })
}

pub(super) fn remove_user(input: &Input<'_>) -> Made {
    let name = input.name.clone();
    plain(input, Request::RemoveUser { name })
}
