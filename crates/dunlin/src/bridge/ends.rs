//! The clients of a bridge: those of the other broker, and those of this one, which come
//! through a pair of sockets instead of a listener.

use core::time::Duration;
use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use dunlin_base::Text;
use dunlin_client::{
    Backoff, Builder, Client, Connecting, Connector, Messages, Priority, Publish, QoS, Runtime,
    TicketFile, TlsOptions, Url, Version, Will,
};
use dunlin_net::Adopted;

use crate::config::Config;
use crate::config::bridge::{self, Bridge};
use crate::daemon::error::StartError;
use crate::daemon::mailbox::{Address, Mail};

/// How long this broker keeps the session of a bridge that is gone from the
/// configuration, with what waits in it.
const LOCAL_EXPIRY: Duration = Duration::from_secs(3600);

/// How soon a connection within the process is tried again: only a full broker refuses it.
const LOCAL_BACKOFF: Backoff = Backoff {
    min: Duration::from_millis(100),
    max: Duration::from_secs(1),
    jitter: 0.5,
};

/// A client that was started.
pub(super) struct End {
    pub(super) client: Client,
    pub(super) messages: Messages,
    pub(super) connecting: Connecting,
}

/// The clients of one bridge.
pub(super) struct Ends {
    /// Receives what goes out.
    pub(super) local_source: Option<End>,
    /// Publishes what comes in, if that is another client.
    pub(super) local_target: Option<End>,
    /// Receives what comes in.
    pub(super) remote_source: Option<End>,
    /// Publish what goes out, if these are other clients.
    pub(super) remote_targets: Vec<End>,
}

/// How the clients of a bridge are made.
pub(super) struct Plan {
    remote: Builder,
    remote_id: Text,
    remote_session: RemoteSession,
    local: Builder,
    local_id: String,
    has_in: bool,
    has_out: bool,
    /// What comes in has a client of its own here; see [`needs_own_target`].
    own_local_target: bool,
    /// What goes out has clients of its own there.
    own_remote_targets: u16,
    status_topic: Option<String>,
}

/// The session at the other broker in which messages wait for this one.
struct RemoteSession {
    clean_start: bool,
    expiry: Duration,
}

impl Plan {
    pub(super) fn new(
        config: &Config,
        bridge: &Bridge,
        remote_id: Text,
        shard: &Address,
        runtime: &Runtime,
        dir: &Path,
    ) -> Result<Self, StartError> {
        let (has_in, has_out) = (bridge.has_in(), bridge.has_out());
        let exact_in = needs_own_target(bridge, bridge::Topic::is_in);
        let exact_out = needs_own_target(bridge, bridge::Topic::is_out);
        let alone = bridge.connections == 1 && has_in && !exact_out;
        let local = local(config, bridge, shard).map_err(|e| wrong(bridge, e.to_string()))?;
        let window = bridge.max_in_flight;
        let common = |builder: Builder| {
            builder
                .persistent()
                .losses_max(0)
                .runtime(runtime)
                .receive_maximum(window)
                .max_in_flight(window)
                .receive_queue(usize::from(window))
                .maximum_packet_size(config.limits.packets.max_packet_size.as_u32())
                .manual_acknowledgement()
        };
        let expiry = u64::from(bridge.session_expiry.as_secs_u32());
        Ok(Self {
            remote: common(remote(bridge, dir)?),
            remote_id,
            remote_session: RemoteSession {
                clean_start: bridge.clean_start,
                expiry: Duration::from_secs(expiry),
            },
            local: common(local),
            local_id: bridge.local_id(),
            has_in,
            has_out,
            own_local_target: has_in && (!has_out || exact_in),
            own_remote_targets: match has_out && !alone {
                true => bridge.connections,
                false => 0,
            },
            status_topic: bridge.status_topic.clone(),
        })
    }

    /// Starts the clients; none of them waits for a server.
    pub(super) fn start(&self) -> Result<Ends, dunlin_client::ConnectError> {
        let local_source = self.has_out.then(|| {
            let session = self.local.clone().client_id(&self.local_id);
            start(session.clean_start(false).session_expiry(LOCAL_EXPIRY))
        });
        let local_target = self.own_local_target.then(|| {
            let id = format!("{}:in", self.local_id);
            start(self.local.clone().client_id(id))
        });
        let remote_source = self.has_in.then(|| {
            let session = &self.remote_session;
            let builder = self.remote.clone().client_id(self.remote_id.clone());
            start(
                self.with_status(builder)
                    .clean_start(session.clean_start)
                    .session_expiry(session.expiry),
            )
        });
        let remote_targets = (0..self.own_remote_targets).map(|number| {
            let id = match (number, self.has_in, self.own_remote_targets) {
                (0, false, 1) => self.remote_id.clone(),
                _ => Text::from(format!("{}-out-{number}", self.remote_id.as_str())),
            };
            let builder = self.remote.clone().client_id(id);
            let builder = builder.session_expiry(self.remote_session.expiry);
            start(match number == 0 && !self.has_in {
                true => self.with_status(builder),
                false => builder,
            })
        });
        Ok(Ends {
            remote_targets: remote_targets.collect::<Result<_, _>>()?,
            local_source: local_source.transpose()?,
            local_target: local_target.transpose()?,
            remote_source: remote_source.transpose()?,
        })
    }

    /// The client that says at the other broker whether the bridge is there.
    fn with_status(&self, builder: Builder) -> Builder {
        match self.status(false) {
            Some(gone) => builder.will(Will::new(gone)),
            None => builder,
        }
    }

    /// What is said at the other broker.
    pub(super) fn status(&self, connected: bool) -> Option<Publish> {
        let topic = self.status_topic.as_deref()?;
        let payload = if connected { "1" } else { "0" };
        let publish = Publish::new(topic, payload);
        Some(publish.qos(QoS::AtLeastOnce).retain(true))
    }
}

fn start(builder: Builder) -> Result<End, dunlin_client::ConnectError> {
    let (client, messages, connecting) = builder.start()?;
    Ok(End {
        client,
        messages,
        connecting,
    })
}

/// Whether messages of QoS 2 that go one way need a client that begins with an empty
/// session. One that resumes a session of an earlier process does not know which packet
/// identifiers that process had used: a server takes a new message with one of them for
/// the old one, and drops it.
fn needs_own_target(bridge: &Bridge, is_this_way: impl Fn(&bridge::Topic) -> bool) -> bool {
    let mut topics = bridge.topic.iter();
    let exact = topics.any(|topic| is_this_way(topic) && topic.qos() == QoS::ExactlyOnce);
    exact && bridge.has_in() && bridge.has_out()
}

/// A client of this broker.
fn local(
    config: &Config,
    bridge: &Bridge,
    shard: &Address,
) -> Result<Builder, dunlin_client::UrlError> {
    let (user, listener) = (Text::from(bridge.local_id()), config.bridge_listener());
    let shard = shard.clone();
    let connector = Connector::new(move || {
        let (near, far) = pair()?;
        shard.send(Mail::Adopt(Box::new(Adopted {
            socket: far,
            listener,
            protocol: Text::from_static("mqtt"),
            identity: user.clone(),
        })));
        Ok(near)
    });
    let builder = Client::builder("mqtt://127.0.0.1:1")?;
    Ok(builder.connector(connector).reconnect(LOCAL_BACKOFF))
}

/// Two sockets that are connected with each other.
#[cfg(unix)]
fn pair() -> io::Result<(TcpStream, TcpStream)> {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    let (one, other) = UnixStream::pair()?;
    Ok((
        TcpStream::from(OwnedFd::from(one)),
        TcpStream::from(OwnedFd::from(other)),
    ))
}

#[cfg(not(unix))]
fn pair() -> io::Result<(TcpStream, TcpStream)> {
    Err(io::ErrorKind::Unsupported.into())
}

fn wrong(bridge: &Bridge, message: String) -> StartError {
    StartError::Bridge {
        name: bridge.name.clone(),
        message,
    }
}

fn unreadable(bridge: &Bridge, path: &Path, error: &io::Error) -> StartError {
    wrong(bridge, format!("cannot read {}: {error}", path.display()))
}

/// Whether the files that a bridge names can be read.
pub(crate) fn check_files(bridge: &Bridge) -> Result<(), StartError> {
    let tls = &bridge.tls;
    let files = [&bridge.password_file, &tls.ca, &tls.cert, &tls.key];
    for path in files.into_iter().flatten() {
        std::fs::read(path).map_err(|error| unreadable(bridge, path, &error))?;
    }
    Ok(())
}

/// A client of the other broker.
fn remote(bridge: &Bridge, dir: &Path) -> Result<Builder, StartError> {
    let url: Url = bridge
        .url
        .parse()
        .map_err(|error: dunlin_client::UrlError| wrong(bridge, error.to_string()))?;
    let connection = &bridge.connection;
    let has_tickets = url.transport() == dunlin_client::Transport::Quic;
    let mut builder = Builder::new(url)
        .tls(tls(&bridge.tls))
        .keep_alive(connection.keep_alive.0)
        .reconnect(Backoff {
            min: connection.reconnect_min.0,
            max: connection.reconnect_max.0,
            ..Backoff::default()
        })
        .early_data(connection.early_data)
        .streams(connection.streams.into())
        .datagrams(connection.datagrams);
    for level in &connection.priority {
        builder = builder.priority(&level.filter, Priority::new(level.level));
    }
    if bridge.version == bridge::Version::V311 {
        builder = builder
            .version(Version::V311)
            .bridge(connection.bridge_flag);
    }
    if has_tickets {
        let file = tickets_path(dir, &bridge.name);
        let tickets = TicketFile::open(&file);
        let unusable = |error: io::Error| wrong(bridge, format!("{}: {error}", file.display()));
        builder = builder.tickets(tickets.map_err(unusable)?);
    }
    with_credentials(builder, bridge)
}

/// The file of a bridge's session tickets.
pub(super) fn tickets_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.tickets"))
}

fn tls(tls: &bridge::Tls) -> TlsOptions {
    let mut options = TlsOptions::new();
    if let Some(ca) = &tls.ca {
        options = options.ca_file(ca);
    }
    if let (Some(cert), Some(key)) = (&tls.cert, &tls.key) {
        options = options.identity_files(cert, key);
    }
    match tls.insecure {
        true => options.dangerous_no_verification(),
        false => options,
    }
}

fn with_credentials(builder: Builder, bridge: &Bridge) -> Result<Builder, StartError> {
    let Some(user) = bridge.user.as_deref() else {
        return Ok(builder);
    };
    let Some(path) = &bridge.password_file else {
        return Ok(builder.user(user));
    };
    let read = std::fs::read(path);
    let mut password = read.map_err(|error| unreadable(bridge, path, &error))?;
    // Editors end a file with a new line.
    while password
        .last()
        .is_some_and(|byte| matches!(byte, b'\n' | b'\r'))
    {
        password.pop();
    }
    Ok(match bridge.scram {
        true => builder.scram(user, password),
        false => builder.credentials(user, password),
    })
}

/// Names under which the remote client is known: the bridge's own, or made up of its name
/// and the number of this broker.
pub(super) fn remote_id(bridge: &Bridge, broker: &str) -> Text {
    match &bridge.client_id {
        Some(id) => Text::from(id.as_str()),
        None => Text::from(format!("{}-{broker}", bridge.name)),
    }
}

impl Ends {
    /// Clients of the other broker, the one that says whether the bridge is there first.
    pub(super) fn remote(&mut self) -> impl Iterator<Item = &mut End> {
        self.remote_source
            .iter_mut()
            .chain(&mut self.remote_targets)
    }

    /// Clients of this broker.
    pub(super) fn local(&mut self) -> impl Iterator<Item = &mut End> {
        self.local_source.iter_mut().chain(&mut self.local_target)
    }

    /// Who publishes what comes in.
    pub(super) fn publishes_here(&self) -> Vec<Client> {
        let end = self.local_target.as_ref().or(self.local_source.as_ref());
        end.map(|end| end.client.clone()).into_iter().collect()
    }

    /// Who publishes what goes out.
    pub(super) fn publish_there(&self) -> Vec<Client> {
        let own = self.remote_targets.iter();
        let shared = self.remote_source.iter();
        match self.remote_targets.is_empty() {
            true => shared.map(|end| end.client.clone()).collect(),
            false => own.map(|end| end.client.clone()).collect(),
        }
    }
}
