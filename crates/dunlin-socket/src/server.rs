//! Where a server is: a host name or an address, and a port. Unlike an address
//! alone, it says for which name the server's certificate must be good.

use core::fmt;
use core::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};

use dunlin_dial::Url;

use crate::error::Error;

/// A server: `host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    url: Url,
}

impl Server {
    fn new(host: &str, port: u16) -> Result<Self, Error> {
        let text = match host.contains(':') {
            true => format!("quic://[{host}]:{port}"),
            false => format!("quic://{host}:{port}"),
        };
        match text.parse() {
            Ok(url) => Ok(Self { url }),
            Err(error) => Err(Error::Address(format!("{host}:{port}"), Some(error))),
        }
    }

    /// The host, without brackets: the name that its certificate must be good for.
    #[must_use]
    pub fn host(&self) -> &str {
        self.url.host()
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.url.port()
    }

    /// As the link knows it.
    pub(crate) fn into_url(self) -> Url {
        self.url
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host().contains(':') {
            true => write!(f, "[{}]:{}", self.host(), self.port()),
            false => write!(f, "{}:{}", self.host(), self.port()),
        }
    }
}

/// What names a server, as [`std::net::ToSocketAddrs`] does, but keeps the name:
/// `"host:port"`, `("host", port)`, a socket address. Names are looked up by the
/// driver.
pub trait ToServer {
    /// The server.
    ///
    /// # Errors
    /// [`Error::Address`]: it is no host with a port.
    fn to_server(&self) -> Result<Server, Error>;
}

impl ToServer for Server {
    fn to_server(&self) -> Result<Server, Error> {
        Ok(self.clone())
    }
}

impl ToServer for str {
    fn to_server(&self) -> Result<Server, Error> {
        if let Ok(addr) = self.parse::<SocketAddr>() {
            return addr.to_server();
        }
        let wrong = || Error::Address(self.to_owned(), None);
        let (host, port) = self.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| wrong())?;
        match host.contains([':', '[', ']', '/', '@']) {
            true => Err(wrong()),
            false => Server::new(host, port),
        }
    }
}

impl ToServer for String {
    fn to_server(&self) -> Result<Server, Error> {
        self.as_str().to_server()
    }
}

impl ToServer for (&str, u16) {
    fn to_server(&self) -> Result<Server, Error> {
        Server::new(self.0, self.1)
    }
}

impl ToServer for (String, u16) {
    fn to_server(&self) -> Result<Server, Error> {
        Server::new(&self.0, self.1)
    }
}

impl ToServer for (IpAddr, u16) {
    fn to_server(&self) -> Result<Server, Error> {
        Server::new(&self.0.to_string(), self.1)
    }
}

impl ToServer for SocketAddr {
    fn to_server(&self) -> Result<Server, Error> {
        (self.ip(), self.port()).to_server()
    }
}

impl ToServer for SocketAddrV4 {
    fn to_server(&self) -> Result<Server, Error> {
        SocketAddr::V4(*self).to_server()
    }
}

impl ToServer for SocketAddrV6 {
    fn to_server(&self) -> Result<Server, Error> {
        SocketAddr::V6(*self).to_server()
    }
}

impl<T: ToServer + ?Sized> ToServer for &T {
    fn to_server(&self) -> Result<Server, Error> {
        (**self).to_server()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_kept() {
        for text in ["example.org:4433", "127.0.0.1:1", "[::1]:65535"] {
            let server = text.to_server().expect(text);
            assert_eq!(server.to_string(), text);
        }
        let addr = SocketAddr::from(([10, 0, 0, 1], 7));
        assert_eq!(addr.to_server().expect("one").to_string(), "10.0.0.1:7");
        assert_eq!(("a", 7).to_server().expect("one").host(), "a");
    }

    #[test]
    fn what_is_no_server_is_refused() {
        for text in [
            "", "a", "a:", "a:0", "a:65536", ":7", "::1:7", "a/b:7", "u@a:7", "a b:7",
        ] {
            assert!(
                matches!(text.to_server(), Err(Error::Address(..))),
                "{text}"
            );
        }
    }
}
