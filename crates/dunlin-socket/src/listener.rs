//! Where connections come in: what `std::net::TcpListener` has, and how a listener
//! is set up.

use core::fmt;
use core::net::SocketAddr;
use core::task::{Poll, Waker};
use core::time::Duration;
use std::io;
use std::net::ToSocketAddrs;
use std::path::Path;
use std::sync::Arc;

use dunlin_base::Text;
use dunlin_base::transport::Transport;
use dunlin_net::{
    ListenerConfig, QuicTuning, ServerTls, ServerTlsOptions, TicketLimits, TicketRegister,
};

use crate::connection::Connection;
use crate::driver::listen;
use crate::error::Error;
use crate::limits::Limits;
use crate::options::{KEEP_ALIVE_DEFAULT, PROTOCOL_DEFAULT};
use crate::shared::{ConnHandle, ListenerShared, ListenerState};
use crate::stream::Stream;
use crate::wait::block;

/// How to listen: certificate and key, application protocol, early data, limits.
///
/// # Examples
/// ```no_run
/// use dunlin_socket::ListenOptions;
///
/// let listener = ListenOptions::files("cert.pem", "key.pem")?.bind("[::]:4433")?;
/// for stream in listener.incoming() {
///     println!("{}", stream?.peer_addr()?);
/// }
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct ListenOptions {
    tls: ServerTlsOptions,
    protocol: Text,
    tuning: QuicTuning,
    limits: Limits,
    early_data: bool,
    also_tls: bool,
}

impl ListenOptions {
    /// Certificate chain, the server's own first, and key from PEM files.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn files(cert: impl AsRef<Path>, key: impl AsRef<Path>) -> io::Result<Self> {
        let tls = ServerTlsOptions::read(cert.as_ref(), key.as_ref(), None);
        Ok(Self::new(tls.map_err(Error::from)?))
    }

    /// Certificate chain and key as PEM text.
    pub fn pem(cert: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        Self::new(ServerTlsOptions::new(cert.into(), key.into()))
    }

    fn new(tls: ServerTlsOptions) -> Self {
        let mut tuning = QuicTuning::default();
        tuning.keep_alive = Some(KEEP_ALIVE_DEFAULT);
        Self {
            tls,
            protocol: Text::from_static(PROTOCOL_DEFAULT),
            tuning,
            limits: Limits::default(),
            early_data: false,
            also_tls: false,
        }
    }

    /// Sets the application protocol (ALPN) that clients must offer.
    pub fn protocol(mut self, name: &str) -> Self {
        self.protocol = name.into();
        self
    }

    /// Accepts only clients with a certificate of these authorities, as PEM text:
    /// [`Connection::peer_identity`].
    pub fn client_ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.client_ca_pem = Some(pem.into());
        self.tls.require_client_cert = true;
        self
    }

    /// Takes early data (0-RTT): what a client with a ticket sends with its
    /// handshake is read at once ([`Connection::early_data`]).
    ///
    /// Each ticket is good for one connection, to this listener, until it is
    /// dropped; the early data of a second one with the same ticket is refused
    /// and comes after the handshake. So what an attacker repeats is not
    /// acted upon. What remains different: until the handshake is complete
    /// nothing shows that the client is there now, and who steals
    /// the key of a ticket from the client's memory can read its early data.
    pub fn early_data(mut self) -> Self {
        self.early_data = true;
        self
    }

    /// Takes TLS over TCP on the same port, too, for clients where QUIC does not
    /// get through ([`Options::race`](crate::Options::race)).
    pub fn also_tls(mut self) -> Self {
        self.also_tls = true;
        self
    }

    /// Asks silent clients for a sign of life, as
    /// [`Options::keep_alive`](crate::Options::keep_alive).
    pub fn keep_alive(mut self, silence: Option<Duration>) -> Self {
        self.tuning.keep_alive = silence;
        self
    }

    /// What the listener and its connections may hold.
    pub fn limits(mut self, limits: &Limits) -> Self {
        self.limits = limits.clone();
        self
    }

    /// Listens, on a thread of its own that serves all its connections. Of several
    /// addresses the first is taken that can be.
    ///
    /// # Errors
    /// The address cannot be used; certificate or key cannot.
    pub fn bind(&self, addr: impl ToSocketAddrs) -> io::Result<Listener> {
        let tls = Arc::new(ServerTls::new(&self.tls).map_err(Error::from)?);
        self.tuning.check().map_err(Error::Option)?;
        let mut last = Error::Address(String::new(), None);
        for addr in addr.to_socket_addrs()? {
            match self.bind_one(addr, &tls) {
                Ok(listener) => return Ok(listener),
                Err(error) => last = error,
            }
        }
        Err(last.into())
    }

    fn bind_one(&self, addr: SocketAddr, tls: &Arc<ServerTls>) -> Result<Listener, Error> {
        let mut net = self.limits.net()?;
        if self.early_data {
            let register = TicketRegister::in_memory(TicketLimits::default());
            net.tickets = Some(Arc::new(register));
        }
        let config = |transport| {
            let mut config = ListenerConfig::new(transport, addr);
            config.protocols = vec![self.protocol.clone()];
            config.tls = Some(Arc::clone(tls));
            config.quic = self.tuning.clone();
            config
        };
        let mut configs = vec![config(Transport::Quic)];
        if self.also_tls {
            configs.push(config(Transport::Tls));
        }
        let (shared, addr) = listen(net, &self.limits, configs)?;
        shared.lock().addr = Some(addr);
        Ok(Listener { shared })
    }
}

impl fmt::Debug for ListenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenOptions")
            .field("protocol", &self.protocol)
            .field("limits", &self.limits)
            .field("early_data", &self.early_data)
            .finish_non_exhaustive()
    }
}

/// Where connections come in, to be used like
/// [`TcpListener`](std::net::TcpListener); [`ListenOptions::bind`] makes one.
///
/// [`Listener::accept`] gives the stream that a client opens first, which is the
/// only one for most programs; [`Listener::accept_connection`] gives all.
///
/// It is closed when it is dropped; connections that were accepted go on.
pub struct Listener {
    shared: Arc<ListenerShared>,
}

impl Listener {
    /// Listens with these options, as [`ListenOptions::bind`].
    ///
    /// # Errors
    /// As [`ListenOptions::bind`].
    pub fn bind(addr: impl ToSocketAddrs, options: &ListenOptions) -> io::Result<Self> {
        options.bind(addr)
    }

    /// Waits for a client, and gives the stream that it opens first, and its
    /// address. It need not have sent anything: either side may be the first to
    /// speak.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) after
    /// [`Listener::set_nonblocking`]; the driver failed.
    pub fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        loop {
            // A client that is gone again has none.
            if let Some(accepted) = first_of(&self.next()?) {
                return Ok(accepted);
            }
        }
    }

    /// As [`Listener::accept`], for a task. Nothing is lost when the future is
    /// dropped.
    ///
    /// # Errors
    /// As [`Listener::accept`].
    pub async fn accept_async(&self) -> io::Result<(Stream, SocketAddr)> {
        loop {
            if let Some(accepted) = first_of(&self.next_async().await?) {
                return Ok(accepted);
            }
        }
    }

    /// Waits for a client, and gives its connection:
    /// [`Connection::accept_stream`] gives its streams.
    ///
    /// # Errors
    /// As [`Listener::accept`].
    pub fn accept_connection(&self) -> io::Result<Connection> {
        Ok(Connection::new(self.next()?))
    }

    /// As [`Listener::accept_connection`], for a task.
    ///
    /// # Errors
    /// As [`Listener::accept`].
    pub async fn accept_connection_async(&self) -> io::Result<Connection> {
        Ok(Connection::new(self.next_async().await?))
    }

    /// Accepts without end, as [`std::net::TcpListener::incoming`].
    pub fn incoming(&self) -> impl Iterator<Item = io::Result<Stream>> + '_ {
        core::iter::repeat_with(|| self.accept().map(|(stream, _)| stream))
    }

    /// The address that it listens on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        let addr = self.shared.lock().addr;
        addr.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)))
    }

    /// Whether [`Listener::accept`] fails with
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) when none waits.
    ///
    /// # Errors
    /// None; the result is there because `TcpListener` has one.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.shared.lock().patience.nonblocking = nonblocking;
        Ok(())
    }

    fn next(&self) -> Result<Arc<ConnHandle>, Error> {
        let ListenerShared { state, changed, .. } = &*self.shared;
        let patience = self.shared.lock().patience;
        block(
            state,
            changed,
            patience,
            |state| &mut state.waiters,
            ListenerState::next,
        )
    }

    async fn next_async(&self) -> Result<Arc<ConnHandle>, Error> {
        core::future::poll_fn(|context| self.poll_next(context.waker())).await
    }

    fn poll_next(&self, task: &Waker) -> Poll<Result<Arc<ConnHandle>, Error>> {
        let mut state = self.shared.lock();
        match state.next() {
            Some(result) => Poll::Ready(result),
            None => {
                state.waiters.register(task);
                Poll::Pending
            }
        }
    }
}

fn first_of(connection: &Arc<ConnHandle>) -> Option<(Stream, SocketAddr)> {
    let (pipe, peer) = {
        let mut state = connection.shared().lock();
        (state.take_first()?, state.facts.peer)
    };
    Some((Stream::adopt(pipe, connection), peer))
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.drop_it();
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("addr", &self.local_addr())
            .finish_non_exhaustive()
    }
}
