//! Connecting to a server, for the log and for the links between nodes: who is connected to,
//! as whom, by TLS or not, and how long that is tried.

use core::time::Duration;
use std::path::Path;

use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event, ServerAddr};
use tokio::time::{Instant, sleep};

use crate::limits::{ANSWER_WAIT, CONNECT_AGAIN};
use crate::url::Server;

/// No server answers, or none lets this user in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("NATS cannot be reached: {0}")]
pub struct ConnectError(pub(crate) String);

/// Servers to connect to.
#[derive(Clone, Copy)]
pub struct Servers<'a> {
    /// As `nats://user:password@host:port`; all for the same user. Other servers that these
    /// name are not connected to. TLS is used with all if one begins with `tls://`.
    pub urls: &'a [String],
    /// Certificates of the authorities that servers behind `tls://` are believed from; those
    /// of the system, if there is no such file.
    pub tls_ca: Option<&'a Path>,
    /// How long no server may be there.
    pub patience: Duration,
}

impl core::fmt::Debug for Servers<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Servers")
            .field("urls", &without_users(self.urls))
            .field("tls_ca", &self.tls_ca)
            .field("patience", &self.patience)
            .finish()
    }
}

/// URLs as logs may show them.
#[must_use]
pub fn without_users(urls: &[String]) -> Vec<String> {
    urls.iter().map(|url| Server::of(url).url).collect()
}

/// Connects as the user of the first URL that has one, when a server is there.
///
/// # Errors
/// [`ConnectError`]: no server was there for as long as the patience, or one refused.
pub async fn connect(to: &Servers<'_>) -> Result<Client, ConnectError> {
    let wrong = |error: std::io::Error| ConnectError(error.to_string());
    let named: Vec<Server> = to.urls.iter().map(|url| Server::of(url)).collect();
    // Without users and passwords: the client logs its addresses.
    let servers: Result<Vec<ServerAddr>, _> =
        named.iter().map(|server| server.url.parse()).collect();
    let servers = servers.map_err(wrong)?;
    let mut options = ConnectOptions::new()
        .name("dunlin")
        .event_callback(|event| async move {
            match event {
                Event::Connected | Event::Disconnected => tracing::info!("NATS: {event}"),
                // One for each attempt to connect again.
                other => tracing::debug!("NATS: {other}"),
            }
        })
        .connection_timeout(ANSWER_WAIT)
        .request_timeout(Some(ANSWER_WAIT))
        // A server says where others are, but not that they are to be reached by TLS.
        .ignore_discovered_servers()
        .require_tls(servers.iter().any(ServerAddr::tls_required));
    if let Some(file) = to.tls_ca {
        options = options.add_root_certificates(file.to_owned());
    }
    if let Some((user, password)) = named.into_iter().find_map(|server| server.user) {
        options = options.user_and_password(user, password);
    }
    let until = Instant::now() + to.patience;
    let mut said = false;
    loop {
        let error = match options.clone().connect(&servers[..]).await {
            Ok(client) => return Ok(client),
            Err(error) => error,
        };
        let passes = matches!(
            error.kind(),
            ConnectErrorKind::Dns | ConnectErrorKind::Io | ConnectErrorKind::TimedOut
        );
        if !passes || Instant::now() >= until {
            return Err(ConnectError(error.to_string()));
        }
        if !core::mem::replace(&mut said, true) {
            tracing::warn!("NATS cannot be reached: {error}; trying again");
        }
        sleep(CONNECT_AGAIN).await;
    }
}
