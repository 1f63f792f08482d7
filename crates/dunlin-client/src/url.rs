//! Where a server is, as one line of text: `quic://user:pass@host:port/path`.
//! Knows no socket and resolves no name.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};
use core::str::FromStr;

use dunlin_base::transport::Transport;

/// Longest URL accepted.
pub(crate) const URL_BYTES_MAX: usize = 4096;

/// Path of the WebSocket resource when the URL has none.
pub(crate) const WS_PATH_DEFAULT: &str = "/mqtt";

/// Why a URL is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// Longer than 4,096 bytes.
    #[error("the URL is longer than 4,096 bytes")]
    TooLong,
    /// There is no `scheme://`.
    #[error("the URL has no scheme; write for example quic://HOST or mqtt://HOST")]
    NoScheme,
    /// The scheme is none of auto, quic, mqtt, mqtts, ws, wss.
    #[error("unknown scheme {0:?}; known are auto, quic, mqtt, mqtts, ws and wss")]
    UnknownScheme(String),
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
    /// A path, query or fragment on a transport that has none.
    #[error("only ws and wss URLs have a path; {0:?} is left over")]
    UnexpectedPath(String),
}

/// A server's address.
///
/// # Examples
/// ```
/// use dunlin_client::Url;
///
/// let url: Url = "wss://alice:s%40fe@[::1]/mqtt".parse()?;
/// assert_eq!(url.port(), 8084);
/// assert_eq!(url.password(), Some("s@fe"));
/// # Ok::<(), dunlin_client::UrlError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
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
    /// How to connect; QUIC for `auto`, which prefers it.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Whether the scheme is `auto`: QUIC, or TLS over TCP where QUIC does not
    /// get through.
    #[must_use]
    pub fn is_auto(&self) -> bool {
        self.auto
    }

    /// Port of a transport that is not this URL's own: the one that the URL
    /// names, or that transport's default.
    pub(crate) fn port_of(&self, transport: Transport) -> u16 {
        match self.default_port || (transport != self.transport && !self.auto) {
            true => default_port(transport),
            false => self.port,
        }
    }

    /// Host name or address, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Port, the transport's default if the URL has none: mqtt 1883, mqtts
    /// 8883, quic 14567, ws 8083, wss 8084; auto 14567 for QUIC and 8883 for
    /// TLS, or the port that it names for both.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// WebSocket resource; empty for other transports.
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
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::NoScheme)?;
        let auto = scheme.eq_ignore_ascii_case("auto");
        let transport = match auto {
            true => Transport::Quic,
            false => transport_of(scheme)?,
        };
        let (authority, path) = match rest.find(['/', '?', '#']) {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let (user_info, host_port) = match authority.rsplit_once('@') {
            Some((user_info, host_port)) => (Some(user_info), host_port),
            None => (None, authority),
        };
        let (user, password) = match user_info.map(|info| info.split_once(':').ok_or(info)) {
            None => (None, None),
            Some(Err(user)) => (Some(decode(user)?), None),
            Some(Ok((user, password))) => (Some(decode(user)?), Some(decode(password)?)),
        };
        let (host, port) = split_port(host_port)?;
        Ok(Self {
            transport,
            auto,
            default_port: port.is_none(),
            host: parse_host(host)?,
            port: match port {
                Some(port) => parse_port(port)?,
                None => default_port(transport),
            },
            path: parse_path(transport, path)?,
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
            f.write_str("auto://")?;
            match self.host.contains(':') {
                true => write!(f, "[{}]", self.host)?,
                false => f.write_str(&self.host)?,
            }
            return match self.default_port {
                true => Ok(()),
                false => write!(f, ":{}", self.port),
            };
        }
        write!(f, "{}://", self.transport.scheme())?;
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

/// Port of a transport when nothing else is said.
#[must_use]
pub fn default_port(transport: Transport) -> u16 {
    match transport {
        Transport::Quic => 14567,
        Transport::Tls => 8883,
        Transport::Ws => 8083,
        Transport::Wss => 8084,
        _ => 1883,
    }
}

fn transport_of(scheme: &str) -> Result<Transport, UrlError> {
    match scheme.to_ascii_lowercase().as_str() {
        "quic" | "mqtt-quic" => Ok(Transport::Quic),
        "mqtt" | "tcp" => Ok(Transport::Tcp),
        "mqtts" | "ssl" | "tls" => Ok(Transport::Tls),
        "ws" => Ok(Transport::Ws),
        "wss" => Ok(Transport::Wss),
        _ => Err(UrlError::UnknownScheme(scheme.into())),
    }
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

fn parse_path(transport: Transport, path: &str) -> Result<String, UrlError> {
    let has_path = matches!(transport, Transport::Ws | Transport::Wss);
    let path = path.split('#').next().unwrap_or_default();
    match (has_path, path) {
        (true, "") => Ok(WS_PATH_DEFAULT.into()),
        (true, "/") => Ok("/".into()),
        (true, path) if path.starts_with('?') => Ok(format!("{WS_PATH_DEFAULT}{path}")),
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
        ];
        for (text, want) in cases {
            let url: Url = text.parse().expect(text);
            assert_eq!(url.to_string(), want, "{text}");
        }
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
            (&long, UrlError::TooLong),
        ];
        for (text, want) in cases {
            assert_eq!(text.parse::<Url>(), Err(want), "{text}");
        }
    }
}
