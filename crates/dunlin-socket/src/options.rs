//! How to connect: what to trust, which application protocol, tickets and early
//! data, the network.

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;
use std::io;
use std::sync::Arc;

use dunlin_base::Text;
use dunlin_dial::{LinkOptions, NetworkOptions, Race, TicketFile, TlsOptions};

use crate::connection::Connection;
use crate::driver::Driver;
use crate::error::Error;
use crate::server::ToServer;
use crate::shared::{MadeTls, New, Opened};
use crate::stream::Stream;
use crate::wait::{Asked, Patience};

/// The application protocol (ALPN) of both sides unless they say otherwise.
pub const PROTOCOL_DEFAULT: &str = "dunlin-socket";

/// Silence after which the peer is asked for a sign of life, unless another time
/// is set; after three times as long it is gone.
pub const KEEP_ALIVE_DEFAULT: Duration = Duration::from_secs(20);

/// How to connect.
///
/// The server's certificate is verified against what the operating system trusts,
/// or what [`Options::tls`] gives. Connections made with one value, or with clones
/// of it, share what the server remembers of the client, so that later
/// handshakes are cheaper.
///
/// # Examples
/// ```no_run
/// use dunlin_socket::{Options, TlsOptions};
/// use std::io::Write;
///
/// let tls = TlsOptions::new().ca_file("ca.pem");
/// let mut stream = Options::new().tls(tls).connect("localhost:4433")?;
/// stream.write_all(b"hello")?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct Options {
    tls: TlsOptions,
    made: MadeTls,
    protocol: Text,
    network: NetworkOptions,
    keep_alive: Option<Duration>,
    connect_timeout: Option<Duration>,
    local_addr: Option<IpAddr>,
    tickets: Option<TicketFile>,
    early_data: bool,
    race: Option<Race>,
    driver: Option<Driver>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tls: TlsOptions::new(),
            made: MadeTls::default(),
            protocol: Text::from_static(PROTOCOL_DEFAULT),
            network: NetworkOptions::new(),
            keep_alive: Some(KEEP_ALIVE_DEFAULT),
            connect_timeout: None,
            local_addr: None,
            tickets: None,
            early_data: false,
            race: None,
            driver: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("protocol", &self.protocol)
            .field("early_data", &self.early_data)
            .finish_non_exhaustive()
    }
}

impl Options {
    /// What the operating system trusts, [`PROTOCOL_DEFAULT`],
    /// [`KEEP_ALIVE_DEFAULT`], no early data.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what to trust, and the certificate of this side if it has one. The only
    /// way to trust every server is
    /// [`TlsOptions::dangerous_no_verification`].
    pub fn tls(mut self, tls: TlsOptions) -> Self {
        self.tls = tls;
        self.made = MadeTls::default();
        self
    }

    /// Sets the application protocol (ALPN) that the server must speak, such as
    /// `mqtt`.
    pub fn protocol(mut self, name: &str) -> Self {
        self.protocol = name.into();
        self
    }

    /// How QUIC behaves towards the network: congestion control, first round-trip
    /// time, whether it follows a change of the local address by itself (it does).
    /// [`Options::keep_alive`] counts for its time of silence.
    pub fn network(mut self, network: NetworkOptions) -> Self {
        self.network = network;
        self
    }

    /// Asks the server for a sign of life after such a silence, 1 s to 1 h: one that
    /// is gone is noticed after three times as long, and the ways through a NAT
    /// stay open. `None`: a silent connection costs nothing, and a peer that is gone
    /// is noticed when something is written. Default [`KEEP_ALIVE_DEFAULT`].
    pub fn keep_alive(mut self, silence: Option<Duration>) -> Self {
        self.keep_alive = silence;
        self
    }

    /// Time to connect: look-up, all addresses, handshake, and until the server
    /// allows the first stream. Default 20 s.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = Some(limit);
        self
    }

    /// Sends from this address of the machine.
    pub fn local_addr(mut self, addr: IpAddr) -> Self {
        self.local_addr = Some(addr);
        self
    }

    /// Keeps session tickets in a file, so that also another process goes on from
    /// them: without certificates in the handshake and, with
    /// [`Options::early_data`], without waiting for it.
    pub fn tickets(mut self, file: &TicketFile) -> Self {
        self.tickets = Some(file.clone());
        self
    }

    /// Sends what is written first together with the handshake (0-RTT), where
    /// [`Options::tickets`] has a ticket and the server takes early data
    /// ([`ListenOptions::early_data`](crate::ListenOptions::early_data)). Up to
    /// 64 KiB; what is more, and what the server refuses, goes after the
    /// handshake by itself. Without a ticket nothing differs.
    ///
    /// `connect` returns before the server has answered, so that a server that is
    /// not there shows at the first read. **What is sent this way may be
    /// repeated by an attacker** to servers that do not refuse it: a server of this
    /// crate takes each ticket once and so does not act twice, one of others
    /// may. Ask for it where the first bytes may arrive twice without harm, or
    /// where the server is known to refuse repetitions.
    pub fn early_data(mut self) -> Self {
        self.early_data = true;
        self
    }

    /// Has TLS over TCP, on the same port, race with QUIC for the connection, and
    /// takes QUIC where it gets through
    /// ([`ListenOptions::also_tls`](crate::ListenOptions::also_tls)). Over TLS a
    /// connection has one stream and does not move. Nothing is ever sent in the
    /// clear.
    pub fn race(mut self, race: Race) -> Self {
        self.race = Some(race);
        self
    }

    /// Uses this driver instead of that of the process.
    pub fn driver(mut self, driver: &Driver) -> Self {
        self.driver = Some(driver.clone());
        self
    }

    /// Connects and opens a stream. Blocks until the connection is open.
    ///
    /// # Errors
    /// As [`Error`] says, from `Address` to `Handshake`.
    pub fn connect(&self, server: impl ToServer) -> io::Result<Stream> {
        let opened = self.begin(&server, true)?.wait(Patience::default())?;
        Ok(stream_of(opened)?)
    }

    /// As [`Options::connect`], for a task.
    ///
    /// # Errors
    /// As [`Options::connect`].
    pub async fn connect_async(&self, server: impl ToServer) -> io::Result<Stream> {
        let asked = self.begin(&server, true)?;
        Ok(stream_of(asked.await?)?)
    }

    /// Connects without a stream: [`Connection::open_stream`] opens them. Blocks
    /// until the connection is open.
    ///
    /// # Errors
    /// As [`Options::connect`].
    pub fn connect_connection(&self, server: impl ToServer) -> io::Result<Connection> {
        let opened = self.begin(&server, false)?.wait(Patience::default())?;
        Ok(Connection::new(opened.conn))
    }

    /// As [`Options::connect_connection`], for a task.
    ///
    /// # Errors
    /// As [`Options::connect`].
    pub async fn connect_connection_async(&self, server: impl ToServer) -> io::Result<Connection> {
        let asked = self.begin(&server, false)?;
        Ok(Connection::new(asked.await?.conn))
    }

    fn begin(&self, server: &dyn ToServer, with_stream: bool) -> Result<Asked<Opened>, Error> {
        let url = server.to_server()?.into_url();
        let mut network = self.network.clone();
        if let Some(silence) = self.keep_alive {
            network = network.keep_alive(silence);
        }
        network.check().map_err(Error::Option)?;
        let mut link = LinkOptions::new(url);
        link.protocols = vec![self.protocol.clone()];
        link.tls = self.tls.clone();
        link.network = network;
        link.local_addr = self.local_addr;
        link.reconnect = None;
        link.early_data = self.early_data;
        link.tickets = self.tickets.clone();
        if let Some(race) = &self.race {
            let port = link.url.port();
            let race = race.clone().quic_port(port).tls_port(port);
            link.race = Some(race);
        }
        if let Some(limit) = self.connect_timeout {
            link.connect_timeout = limit;
        }
        let driver = match &self.driver {
            Some(driver) => driver.clone(),
            None => Driver::global()?,
        };
        driver.dial(New {
            // Tickets are good for one protocol.
            scope: format!("socket\0{}", self.protocol),
            link,
            made: Arc::clone(&self.made),
            with_stream,
        })
    }
}

fn stream_of(opened: Opened) -> Result<Stream, Error> {
    opened.stream.map(Stream::new).ok_or_else(Error::ended)
}

impl Stream {
    /// Connects with the default [`Options`]: verified against what the operating
    /// system trusts. Blocks until the connection is open.
    ///
    /// # Errors
    /// As [`Options::connect`].
    pub fn connect(server: impl ToServer) -> io::Result<Self> {
        Options::new().connect(server)
    }

    /// As [`Stream::connect`], for a task.
    ///
    /// # Errors
    /// As [`Options::connect`].
    pub async fn connect_async(server: impl ToServer) -> io::Result<Self> {
        Options::new().connect_async(server).await
    }
}

impl Connection {
    /// Connects with the default [`Options`], without a stream. Blocks until the
    /// connection is open.
    ///
    /// # Errors
    /// As [`Options::connect`].
    pub fn connect(server: impl ToServer) -> io::Result<Self> {
        Options::new().connect_connection(server)
    }
}
