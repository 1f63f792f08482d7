//! Where the broker accepts connections, as configured.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::io;
use std::net::{ToSocketAddrs, UdpSocket};
use std::path::PathBuf;

use dunlin_base::transport::Transport;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::error::Wrong;
use super::mode::Mode;
use super::path::Path;
use super::qlog::Range;
use super::tls::Name;

/// Path of the WebSocket endpoint when none is configured.
pub const WEBSOCKET_PATH: &str = "/mqtt";

/// One `[[listener]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Listener {
    /// What carries the bytes.
    pub transport: Kind,
    /// What is spoken; all protocols when absent.
    pub protocols: Option<Vec<Protocol>>,
    /// Address and port; all addresses and the usual port of transport and
    /// protocol when absent.
    pub address: Option<Address>,
    /// What is in front of all topics of its clients; nothing when absent.
    pub mount: Option<String>,
    /// Path of the WebSocket endpoint, or of a Unix socket.
    pub path: Option<String>,
    /// Permissions of a Unix socket; those of the broker's user and group when absent.
    pub mode: Option<Mode>,
    /// Group of a Unix socket; that of the broker when absent.
    pub group: Option<String>,
    /// Who may connect without credentials; as `[auth]` says when absent.
    pub anonymous: Option<Anonymous>,
    /// Whether subscriptions that the rules allow in part are accepted; as `[auth]` says when
    /// absent.
    pub filter_subscriptions: Option<bool>,
    /// Web pages that may connect; when absent all, but none that would need no
    /// credentials.
    pub origins: Option<Vec<String>>,
    /// The PROXY header that every connection begins with; none when absent.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Whether the common name in that header is a verified certificate's.
    pub proxy_identity: Option<bool>,
    /// Header of a WebSocket's request that has the client's address; none when absent.
    pub forwarded: Option<Forwarded>,
    /// Addresses of the proxies that are believed.
    pub trusted: Option<Vec<Range>>,
    /// Certificates; the development ones when absent.
    pub tls: Option<Tls>,
    /// How QUIC behaves here; as `[quic]` says when absent.
    pub quic: Option<Path>,
}

impl Listener {
    /// A listener for all protocols on all addresses, at the transport's usual
    /// port.
    #[must_use]
    pub fn new(transport: Kind) -> Self {
        Self {
            transport,
            protocols: None,
            address: Some(Address::Any(transport.port())),
            mount: None,
            path: None,
            mode: None,
            group: None,
            anonymous: None,
            filter_subscriptions: None,
            origins: None,
            proxy_protocol: None,
            proxy_identity: None,
            forwarded: None,
            trusted: None,
            tls: None,
            quic: None,
        }
    }

    /// A listener for AMQP on all addresses, at the usual port of AMQP.
    #[must_use]
    pub fn amqp(transport: Kind) -> Self {
        Self {
            protocols: Some(vec![Protocol::Amqp]),
            address: Some(Address::Any(transport.amqp_port())),
            ..Self::new(transport)
        }
    }

    /// What is spoken.
    #[must_use]
    pub fn protocols(&self) -> &[Protocol] {
        self.protocols.as_deref().unwrap_or(Protocol::ALL)
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> Address {
        let port = match self.protocols() {
            [Protocol::Amqp] => self.transport.amqp_port(),
            _ => self.transport.port(),
        };
        self.address.clone().unwrap_or(Address::Any(port))
    }

    /// Its WebSocket path.
    #[must_use]
    pub fn path(&self) -> &str {
        self.path.as_deref().unwrap_or(WEBSOCKET_PATH)
    }

    /// Whether the name that a proxy verified lets a client in.
    #[must_use]
    pub fn proxy_identity(&self) -> bool {
        self.proxy_identity.unwrap_or(false)
    }

    /// What is wrong with it, as key and sentence.
    pub(super) fn check(&self) -> Result<(), (&'static str, String)> {
        let name = self.transport.name();
        match self.protocols() {
            [] => return Err(("protocols", "there must be at least one".into())),
            [one, others @ ..] if others.contains(one) => {
                return Err(("protocols", format!("\"{}\" is there twice", one.name())));
            }
            all => {
                if let Some(absent) = all.iter().find(|it| !Protocol::ALL.contains(it)) {
                    let name = absent.name();
                    let why = format!("this program was built without \"{name}\"");
                    return Err(("protocols", why));
                }
            }
        }
        if self.tls.is_some() && !self.transport.transport().is_encrypted() {
            let why = format!("a {name} listener does not use certificates; use tls, wss or quic");
            return Err(("tls", why));
        }
        if self.quic.is_some() && self.transport != Kind::Quic {
            return Err(("quic", format!("a {name} listener does not speak QUIC")));
        }
        let is_websocket = matches!(self.transport, Kind::Ws | Kind::Wss);
        match &self.path {
            Some(_) if self.transport == Kind::Unix => {}
            Some(_) if !is_websocket => {
                return Err((
                    "path",
                    format!("a {name} listener has no path; only ws, wss and unix do"),
                ));
            }
            Some(path) if !path.starts_with('/') => {
                return Err(("path", format!("`{path}` does not begin with `/`")));
            }
            _ => {}
        }
        if let Some(origins) = &self.origins {
            if !is_websocket {
                let why =
                    format!("a {name} listener is not open to web pages; only ws and wss are");
                return Err(("origins", why));
            }
            if let Some(wrong) = origins.iter().find(|text| !is_origin(text)) {
                let why = format!("`{wrong}` is not an origin such as \"https://app.example\"");
                return Err(("origins", why));
            }
        }
        self.tls.as_ref().map_or(Ok(()), Tls::check)
    }
}

/// Whether a text is what browsers send as `Origin`, or stands for all of them.
fn is_origin(text: &str) -> bool {
    let authority = text.split_once("://").map(|(_, authority)| authority);
    let is_plain = |c: char| c.is_ascii_graphic() && c != '/';
    text == "*" || authority.is_some_and(|a| !a.is_empty() && a.chars().all(is_plain))
}

/// A message protocol. Its name is that of ALPN and of the subprotocol of a
/// WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// MQTT 5.0 and 3.1.1.
    Mqtt,
    /// AMQP 1.0.
    Amqp,
}

impl Protocol {
    /// All that this program speaks, by preference.
    pub const ALL: &'static [Self] = match cfg!(feature = "amqp") {
        true => &[Self::Mqtt, Self::Amqp],
        false => &[Self::Mqtt],
    };

    /// As written in the file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mqtt => "mqtt",
            Self::Amqp => "amqp",
        }
    }
}

/// What carries the bytes of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// QUIC.
    Quic,
    /// TCP, not encrypted.
    Tcp,
    /// TLS over TCP.
    Tls,
    /// WebSocket, not encrypted.
    Ws,
    /// WebSocket over TLS.
    Wss,
    /// A Unix socket, for clients on this machine.
    Unix,
}

impl Kind {
    /// Those of networks, in the order in which they listen by default.
    pub const ALL: [Self; 5] = [Self::Quic, Self::Tcp, Self::Tls, Self::Ws, Self::Wss];

    /// As written in the file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quic => "quic",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Ws => "ws",
            Self::Wss => "wss",
            Self::Unix => "unix",
        }
    }

    /// The usual port; a Unix socket has none.
    #[must_use]
    pub const fn port(self) -> u16 {
        match self {
            Self::Quic => 14567,
            Self::Tcp => 1883,
            Self::Tls => 8883,
            Self::Ws => 8083,
            Self::Wss => 8084,
            Self::Unix => 0,
        }
    }

    /// The usual port where only AMQP is spoken.
    #[must_use]
    pub const fn amqp_port(self) -> u16 {
        match self {
            Self::Tcp => 5672,
            Self::Quic | Self::Tls => 5671,
            Self::Ws | Self::Wss | Self::Unix => self.port(),
        }
    }

    /// The transport of the vocabulary.
    #[must_use]
    pub const fn transport(self) -> Transport {
        match self {
            Self::Quic => Transport::Quic,
            Self::Tcp => Transport::Tcp,
            Self::Tls => Transport::Tls,
            Self::Ws => Transport::Ws,
            Self::Wss => Transport::Wss,
            Self::Unix => Transport::Unix,
        }
    }
}

/// Versions of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyProtocol {
    /// Text.
    V1,
    /// Binary.
    V2,
    /// Both.
    Any,
}

/// Headers of HTTP that have the address of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Forwarded {
    /// `X-Forwarded-For`.
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

/// Certificates of a listener, as PEM files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Tls {
    /// Certificate chain, the server's own certificate first.
    pub cert: PathBuf,
    /// Private key of the certificate.
    pub key: PathBuf,
    /// Certificates that client certificates are verified with.
    pub client_ca: Option<PathBuf>,
    /// Lists of certificates of clients that were revoked.
    #[serde(default)]
    pub crl_files: Vec<PathBuf>,
    /// Refuse clients without a certificate.
    #[serde(default)]
    pub require_client_cert: bool,
    /// Which name in a client's certificate is its user name.
    pub identity: Option<Name>,
}

impl Tls {
    /// A certificate and its key; clients are not asked for theirs.
    #[must_use]
    pub const fn new(cert: PathBuf, key: PathBuf) -> Self {
        Self {
            cert,
            key,
            client_ca: None,
            crl_files: Vec::new(),
            require_client_cert: false,
            identity: None,
        }
    }

    /// What is wrong with it, as key and sentence.
    fn check(&self) -> Result<(), Wrong> {
        let of_clients = [
            ("tls.require_client_cert", self.require_client_cert),
            ("tls.identity", self.identity.is_some()),
            ("tls.crl_files", !self.crl_files.is_empty()),
        ];
        let given = of_clients.into_iter().find(|(_, given)| *given);
        match (given, &self.client_ca) {
            (Some((key, _)), None) => {
                let why = "requires `tls.client_ca`, to verify client certificates with";
                Err((key, why.into()))
            }
            _ => Ok(()),
        }
    }
}

/// Who may connect without credentials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Anonymous {
    /// No client.
    Never,
    /// Clients on this machine.
    #[default]
    Loopback,
    /// Everybody.
    Always,
}

impl From<Anonymous> for dunlin_broker::auth::Anonymous {
    fn from(value: Anonymous) -> Self {
        match value {
            Anonymous::Never => Self::Never,
            Anonymous::Loopback => Self::Loopback,
            Anonymous::Always => Self::Always,
        }
    }
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Address {
    /// `*:PORT`: every address of the machine, IPv6 and IPv4.
    Any(u16),
    /// `192.0.2.1:PORT` or `[2001:db8::1]:PORT`.
    Socket(SocketAddr),
    /// `NAME:PORT`: every address that the name has.
    Name(String, u16),
}

impl Address {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is not an address such as \"*:1883\", \"127.0.0.1:1883\", \"[::1]:1883\" or \"localhost:1883\""
            )
        };
        if let Ok(addr) = text.parse() {
            return Ok(Self::Socket(addr));
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| wrong())?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        match host {
            "*" => Ok(Self::Any(port)),
            _ if !host.is_empty() && host.chars().all(is_name) => Ok(Self::Name(host.into(), port)),
            _ => Err(wrong()),
        }
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        match self {
            Self::Any(port) | Self::Name(_, port) => *port,
            Self::Socket(addr) => addr.port(),
        }
    }

    /// Socket addresses to bind. A socket bound to `[::]` takes IPv4 clients
    /// too; where the machine has no IPv6, all addresses are `0.0.0.0`.
    ///
    /// # Errors
    /// The name has no address.
    pub fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        match self {
            Self::Any(port) => {
                let v6 = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
                let ip = match UdpSocket::bind((v6, 0)) {
                    Ok(_) => v6,
                    Err(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                };
                Ok(vec![SocketAddr::new(ip, *port)])
            }
            Self::Socket(addr) => Ok(vec![*addr]),
            Self::Name(name, port) => {
                let mut found: Vec<_> = (name.as_str(), *port).to_socket_addrs()?.collect();
                found.sort_unstable();
                found.dedup();
                Ok(found)
            }
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any(port) => write!(f, "*:{port}"),
            Self::Socket(addr) => addr.fmt(f),
            Self::Name(name, port) => write!(f, "{name}:{port}"),
        }
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_written_and_resolved() {
        for text in [
            "*:1883",
            "127.0.0.1:1883",
            "[::1]:0",
            "localhost:8883",
            "my-host.example:1",
        ] {
            assert_eq!(Address::parse(text).expect(text).to_string(), text);
        }
        for text in [
            "", "1883", ":1883", "*:", "*:70000", "a b:1", "::1:1883", "[::1]",
        ] {
            let error = Address::parse(text).expect_err(text);
            assert!(error.contains("is not an address such as"), "{error}");
        }
        let all = Address::Any(7).resolve().expect("local");
        assert!(all.len() == 1 && all[0].ip().is_unspecified() && all[0].port() == 7);
        let local = Address::Name("localhost".into(), 1)
            .resolve()
            .expect("local");
        assert!(local.iter().all(|addr| addr.ip().is_loopback()));
    }
}
