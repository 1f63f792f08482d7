//! Where a server is, as one line of text: `quic://user:pass@host:port/path`, or
//! `unix:/path` for a socket of this machine.
//! Knows no socket and resolves no name.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};
use core::str::FromStr;

use dunlin_base::transport::Transport;

use crate::protocol::{Protocol, SCHEMES, Scheme};

/// Longest URL accepted.
const URL_BYTES_MAX: usize = 4096;

/// Why a URL is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// Longer than 4,096 bytes.
    #[error("the URL is longer than 4,096 bytes")]
    TooLong,
    /// There is no `scheme://`.
    #[error("the URL has no scheme; write for example quic://HOST, mqtt://HOST or unix:/PATH")]
    NoScheme,
    /// The scheme is none of MQTT's (auto, quic, mqtt, mqtts, ws, wss, unix) and none
    /// of AMQP's (those that begin with `amqp`).
    #[error(
        "unknown scheme {0:?}; known are auto, quic, mqtt, mqtts, ws, wss and unix, and of \
         AMQP amqp+auto, amqp+quic, amqp, amqps, amqp+ws, amqp+wss and amqp+unix"
    )]
    UnknownScheme(String),
    /// The scheme is of another protocol than the one that is wanted.
    #[error(
        "{scheme}:// is a scheme of {}; those of {} are {}",
        .protocol.title(), .wanted.title(), .wanted.schemes()
    )]
    OtherProtocol {
        /// The scheme.
        scheme: &'static str,
        /// Its protocol.
        protocol: Protocol,
        /// The protocol that is wanted.
        wanted: Protocol,
    },
    /// There is no host.
    #[error("the URL has no host")]
    NoHost,
    /// The host is neither a name nor an address.
    #[error("{0:?} is not a host name or address")]
    BadHost(String),
    /// The port is not a number from 1 to 65535.
    #[error("{0:?} is not a port; ports are 1 to 65535")]
    BadPort(String),
    /// A `%` is not followed by two hexadecimal digits, or what they spell is
    /// not UTF-8.
    #[error("the URL contains a wrong percent-encoding")]
    BadEscape,
    /// The URL of a Unix socket has no path, or has a host.
    #[error("a Unix socket is unix:/PATH or unix://[USER:PASSWORD@]/PATH")]
    BadSocket,
    /// A path, query or fragment on a transport that has none.
    #[error("only ws and wss URLs have a path; {0:?} is left over")]
    UnexpectedPath(String),
}

/// A server's address.
///
/// # Examples
/// ```
/// use dunlin_dial::Url;
///
/// let url: Url = "wss://alice:s%40fe@[::1]/mqtt".parse()?;
/// assert_eq!(url.port(), 8084);
/// assert_eq!(url.password(), Some("s@fe"));
/// # Ok::<(), dunlin_dial::UrlError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    protocol: Protocol,
    transport: Transport,
    /// QUIC, or TLS where QUIC does not get through.
    auto: bool,
    host: String,
    port: u16,
    /// The URL names no port.
    default_port: bool,
    path: String,
    user: Option<String>,
    password: Option<String>,
}

impl Url {
    /// The same at another host, whose name or address is without brackets, and port; of
    /// a Unix socket, over TCP.
    #[must_use]
    pub fn at(&self, host: &str, port: u16) -> Self {
        let mut other = Self {
            host: host.into(),
            port,
            default_port: false,
            ..self.clone()
        };
        if other.transport == Transport::Unix {
            other.transport = Transport::Tcp;
            other.path.clear();
        }
        other
    }

    /// The Unix socket at a path.
    ///
    /// # Errors
    /// The path is empty.
    pub fn unix(protocol: Protocol, path: &str) -> Result<Self, UrlError> {
        if path.is_empty() {
            return Err(UrlError::BadSocket);
        }
        Ok(Self {
            protocol,
            transport: Transport::Unix,
            auto: false,
            host: Ipv6Addr::LOCALHOST.to_string(),
            port: 0,
            default_port: true,
            path: path.into(),
            user: None,
            password: None,
        })
    }

    /// The path of the Unix socket, if it is one.
    #[must_use]
    pub fn socket(&self) -> Option<&str> {
        (self.transport == Transport::Unix).then_some(&*self.path)
    }

    /// What is spoken there.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Refuses the schemes of other protocols.
    ///
    /// # Errors
    /// The scheme is not of this protocol.
    pub fn require(&self, wanted: Protocol) -> Result<(), UrlError> {
        match self.protocol == wanted {
            true => Ok(()),
            false => Err(UrlError::OtherProtocol {
                scheme: self.scheme(),
                protocol: self.protocol,
                wanted,
            }),
        }
    }

    /// Its scheme, as in `quic://`; of several names, the first.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        match self.auto {
            true => self.protocol.auto_scheme(),
            false => self.protocol.scheme(self.transport),
        }
    }

    /// How to connect; QUIC for `auto`, which prefers it.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Whether the scheme is `auto` or `amqp+auto`: QUIC, or TLS over TCP where
    /// QUIC does not get through.
    #[must_use]
    pub fn is_auto(&self) -> bool {
        self.auto
    }

    /// Port of a transport that is not this URL's own: the one that the URL
    /// names, or that transport's default.
    #[must_use]
    pub fn port_of(&self, transport: Transport) -> u16 {
        match self.default_port || (transport != self.transport && !self.auto) {
            true => self.protocol.default_port(transport),
            false => self.port,
        }
    }

    /// Host name or address, without brackets; of a Unix socket, `::1`.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Port, the scheme's default if the URL has none: mqtt 1883, mqtts 8883,
    /// quic 14567, ws 8083, wss 8084; amqp 5672, amqps and amqp+quic 5671,
    /// amqp+ws 8083, amqp+wss 8084. `auto` and `amqp+auto` have one for QUIC
    /// and one for TLS, or the port that the URL names for both.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// WebSocket resource, or path of a Unix socket; empty for other transports.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// User name.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Password.
    #[must_use]
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// The address, if the host is one.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        if text.len() > URL_BYTES_MAX {
            return Err(UrlError::TooLong);
        }
        if let Some((protocol, rest)) = unix_scheme(text) {
            return parse_unix(protocol, rest);
        }
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::NoScheme)?;
        let known = SCHEMES
            .iter()
            .find(|known| known.name.eq_ignore_ascii_case(scheme));
        let Some(&Scheme {
            protocol,
            transport,
            auto,
            default_port,
            ..
        }) = known
        else {
            return Err(UrlError::UnknownScheme(scheme.into()));
        };
        let (authority, path) = match rest.find(['/', '?', '#']) {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let (user_info, host_port) = match authority.rsplit_once('@') {
            Some((user_info, host_port)) => (Some(user_info), host_port),
            None => (None, authority),
        };
        let (user, password) = credentials(user_info)?;
        let (host, port) = split_port(host_port)?;
        Ok(Self {
            protocol,
            transport,
            auto,
            default_port: port.is_none(),
            host: parse_host(host)?,
            port: match port {
                Some(port) => parse_port(port)?,
                None => default_port,
            },
            path: parse_path(protocol, transport, path)?,
            user,
            password,
        })
    }
}

/// Without the password.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.auto {
            // Two ports, unless one is named.
            write!(f, "{}://", self.scheme())?;
            match self.host.contains(':') {
                true => write!(f, "[{}]", self.host)?,
                false => f.write_str(&self.host)?,
            }
            return match self.default_port {
                true => Ok(()),
                false => write!(f, ":{}", self.port),
            };
        }
        if let Some(path) = self.socket() {
            return write!(f, "{}:{path}", self.scheme());
        }
        write!(f, "{}://", self.scheme())?;
        if self.host.contains(':') {
            write!(f, "[{}]:{}{}", self.host, self.port, self.path)
        } else {
            write!(f, "{}:{}{}", self.host, self.port, self.path)
        }
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({self})")
    }
}

/// User name and password before the `@`.
fn credentials(info: Option<&str>) -> Result<(Option<String>, Option<String>), UrlError> {
    Ok(match info.map(|info| info.split_once(':').ok_or(info)) {
        None => (None, None),
        Some(Err(user)) => (Some(decode(user)?), None),
        Some(Ok((user, password))) => (Some(decode(user)?), Some(decode(password)?)),
    })
}

/// What follows the scheme of a Unix socket.
fn unix_scheme(text: &str) -> Option<(Protocol, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let mut known = SCHEMES.iter().filter(|it| it.transport == Transport::Unix);
    let known = known.find(|it| it.name.eq_ignore_ascii_case(scheme))?;
    Some((known.protocol, rest))
}

fn parse_unix(protocol: Protocol, rest: &str) -> Result<Url, UrlError> {
    let (user_info, path) = match rest.strip_prefix("//") {
        Some(rest) => {
            let at = rest.find('/').ok_or(UrlError::BadSocket)?;
            let (authority, path) = rest.split_at(at);
            let user_info = authority.strip_suffix('@');
            if user_info.is_none() && !authority.is_empty() {
                return Err(UrlError::BadSocket);
            }
            (user_info, path)
        }
        None => (None, rest),
    };
    let (user, password) = credentials(user_info)?;
    Ok(Url {
        user,
        password,
        ..Url::unix(protocol, &decode(path)?)?
    })
}

fn split_port(host_port: &str) -> Result<(&str, Option<&str>), UrlError> {
    let bad = || UrlError::BadHost(host_port.into());
    if let Some(rest) = host_port.strip_prefix('[') {
        let (host, port) = rest.split_once(']').ok_or_else(bad)?;
        return match port.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if port.is_empty() => Ok((host, None)),
            None => Err(bad()),
        };
    }
    match host_port.rsplit_once(':') {
        // An IPv6 address without brackets would lose its last group.
        Some((host, _)) if host.contains(':') => Err(bad()),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((host_port, None)),
    }
}

fn parse_host(host: &str) -> Result<String, UrlError> {
    if host.is_empty() {
        return Err(UrlError::NoHost);
    }
    let is_name = host
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'));
    // A zone identifier ends an IPv6 address (RFC 6874): fe80::1%25eth0.
    let is_address = || {
        let address = host.split('%').next().unwrap_or_default();
        address.parse::<Ipv6Addr>().is_ok()
    };
    if is_name || is_address() {
        decode(host)
    } else {
        Err(UrlError::BadHost(host.into()))
    }
}

fn parse_port(port: &str) -> Result<u16, UrlError> {
    match port.parse() {
        Ok(number) if number > 0 && port.bytes().all(|byte| byte.is_ascii_digit()) => Ok(number),
        _ => Err(UrlError::BadPort(port.into())),
    }
}

fn parse_path(protocol: Protocol, transport: Transport, path: &str) -> Result<String, UrlError> {
    let has_path = matches!(transport, Transport::Ws | Transport::Wss);
    let path = path.split('#').next().unwrap_or_default();
    match (has_path, path) {
        (true, "") => Ok(protocol.ws_path().into()),
        (true, "/") => Ok("/".into()),
        (true, path) if path.starts_with('?') => Ok(format!("{}{path}", protocol.ws_path())),
        (true, path) => Ok(path.into()),
        (false, "" | "/") => Ok(String::new()),
        (false, path) => Err(UrlError::UnexpectedPath(path.into())),
    }
}

fn decode(text: &str) -> Result<String, UrlError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    let digit = |byte: Option<u8>| {
        byte.and_then(|byte| char::from(byte).to_digit(16))
            .and_then(|digit| u8::try_from(digit).ok())
            .ok_or(UrlError::BadEscape)
    };
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => bytes.push(digit(rest.next())? << 4 | digit(rest.next())?),
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).map_err(|_| UrlError::BadEscape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_transport_host_and_port() {
        let cases = [
            ("quic://h", "quic://h:14567"),
            ("auto://h", "auto://h"),
            ("Auto://[::1]:8883", "auto://[::1]:8883"),
            ("mqtt://h", "mqtt://h:1883"),
            ("tcp://h:1", "mqtt://h:1"),
            ("mqtts://h/", "mqtts://h:8883"),
            ("ws://h", "ws://h:8083/mqtt"),
            ("ws://h/", "ws://h:8083/"),
            ("wss://h:443/a/b?c=d#e", "wss://h:443/a/b?c=d"),
            ("ws://h?x", "ws://h:8083/mqtt?x"),
            ("QUIC://[::1]", "quic://[::1]:14567"),
            ("mqtt://[fe80::1%25eth0]:99", "mqtt://[fe80::1%eth0]:99"),
            ("mqtt://10.0.0.1", "mqtt://10.0.0.1:1883"),
            ("mqtt://u:p@my_host-1.local", "mqtt://my_host-1.local:1883"),
            ("amqp://h", "amqp://h:5672"),
            ("amqps://u:p@h", "amqps://h:5671"),
            ("AMQP+QUIC://[::1]", "amqp+quic://[::1]:5671"),
            ("amqp+ws://h", "amqp+ws://h:8083/amqp"),
            ("amqp+wss://h:443/x?y", "amqp+wss://h:443/x?y"),
            ("amqp+auto://h", "amqp+auto://h"),
            ("amqp+auto://h:7", "amqp+auto://h:7"),
            ("unix:/run/m.sock", "unix:/run/m.sock"),
            ("Unix:///run/m%20q.sock", "unix:/run/m q.sock"),
            ("unix://u:p@/run/m.sock", "unix:/run/m.sock"),
            ("unix:m.sock", "unix:m.sock"),
            ("amqp+unix:/run/a.sock", "amqp+unix:/run/a.sock"),
        ];
        for (text, want) in cases {
            let url: Url = text.parse().expect(text);
            assert_eq!(url.to_string(), want, "{text}");
        }
    }

    #[test]
    fn a_race_has_the_ports_of_its_protocol() {
        let cases = [
            ("auto://h", 14567, 8883),
            ("amqp+auto://h", 5671, 5671),
            ("amqp+auto://h:7", 7, 7),
            ("amqps://h:7", 5671, 7),
        ];
        for (text, quic, tls) in cases {
            let url: Url = text.parse().expect(text);
            let ports = (url.port_of(Transport::Quic), url.port_of(Transport::Tls));
            assert_eq!(ports, (quic, tls), "{text}");
        }
    }

    #[test]
    fn a_scheme_of_another_protocol_is_refused() {
        let url: Url = "amqp+quic://h".parse().expect("a URL");
        assert_eq!(url.require(Protocol::Amqp), Ok(()));
        let error = url.require(Protocol::Mqtt).expect_err("not of MQTT");
        assert_eq!(
            error.to_string(),
            "amqp+quic:// is a scheme of AMQP; those of MQTT are \
             auto, quic, mqtt, mqtts, ws, wss, unix"
        );
        let url: Url = "ssl://h".parse().expect("a URL");
        let error = url.require(Protocol::Amqp).expect_err("not of AMQP");
        let want = "mqtts:// is a scheme of MQTT; those of AMQP are amqp+auto, amqp+quic";
        assert!(error.to_string().starts_with(want), "{error}");
    }

    #[test]
    fn credentials_are_decoded() {
        let cases = [
            ("mqtt://h", None, None),
            ("mqtt://u@h", Some("u"), None),
            ("mqtt://u:@h", Some("u"), Some("")),
            ("mqtt://u%3A:p%40%C3%A9@h", Some("u:"), Some("p@é")),
            ("mqtt://u:p:q@h", Some("u"), Some("p:q")),
            ("mqtt://u:p@q@h", Some("u"), Some("p@q")),
            ("unix:/u:p@h", None, None),
            ("unix://u:p%40@/h", Some("u"), Some("p@")),
        ];
        for (text, user, password) in cases {
            let url: Url = text.parse().expect(text);
            assert_eq!((url.user(), url.password()), (user, password), "{text}");
        }
    }

    #[test]
    fn wrong_urls_are_refused_with_the_reason() {
        let long = format!("mqtt://{}", "h".repeat(URL_BYTES_MAX));
        let cases = [
            ("", UrlError::NoScheme),
            ("localhost:1883", UrlError::NoScheme),
            ("http://h", UrlError::UnknownScheme("http".into())),
            ("mqtt://", UrlError::NoHost),
            ("unix:", UrlError::BadSocket),
            ("unix://", UrlError::BadSocket),
            ("unix://host/run/m.sock", UrlError::BadSocket),
            ("mqtt://:1883", UrlError::NoHost),
            ("mqtt://a b", UrlError::BadHost("a b".into())),
            ("mqtt://::1", UrlError::BadHost("::1".into())),
            ("mqtt://[::1", UrlError::BadHost("[::1".into())),
            ("mqtt://[::1]x", UrlError::BadHost("[::1]x".into())),
            ("mqtt://h:0", UrlError::BadPort("0".into())),
            ("mqtt://h:+1", UrlError::BadPort("+1".into())),
            ("mqtt://h:65536", UrlError::BadPort("65536".into())),
            ("mqtt://h:", UrlError::BadPort(String::new())),
            ("mqtt://%zz@h", UrlError::BadEscape),
            ("mqtt://%ff@h", UrlError::BadEscape),
            ("mqtt://%4", UrlError::BadHost("%4".into())),
            ("quic://h/x", UrlError::UnexpectedPath("/x".into())),
            ("amqp://h/x", UrlError::UnexpectedPath("/x".into())),
            ("amqp+http://h", UrlError::UnknownScheme("amqp+http".into())),
            (&long, UrlError::TooLong),
        ];
        for (text, want) in cases {
            assert_eq!(text.parse::<Url>(), Err(want), "{text}");
        }
    }
}
