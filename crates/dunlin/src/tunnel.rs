//! `dunlin tunnel`: carries TCP clients of MQTT or AMQP to a broker over QUIC, on
//! [`dunlin_socket`]. MQTT begins on the first stream of a connection, so each
//! client has a QUIC connection of its own; every stream of AMQP is a connection, so
//! clients can share one. No packet is looked at.

use core::cell::{Cell, RefCell};
use core::convert::Infallible;
use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;
use std::io;
use std::net::TcpListener;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use dunlin_dial::{Protocol, Url};
use dunlin_socket::{Connection, Driver, Error, Limits, Options, wait_idle};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Notify, OnceCell};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, timeout};

use crate::causes::sentence;

/// TCP connections at a time, unless another number is given.
pub const CONNECTIONS_DEFAULT: usize = 1024;

/// Clients of AMQP on one QUIC connection, unless another number is given. Those
/// that share one may inherit the identity of the first, and what a lost packet
/// costs.
pub const STREAMS_DEFAULT: u32 = 1;

/// Silence after which the broker is asked for a sign of life: one that is gone
/// is noticed after three times as long.
pub const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Bytes that are read at a time, beside those that wait in the QUIC stream
/// ([`Limits::send_buffer`], [`Limits::receive_buffer`]).
const READ_BYTES: usize = 8 << 10;

/// Time in which connections may end when the tunnel does.
const STOP_MAX: Duration = Duration::from_secs(2);

/// Time in which a client may end its side after the broker has: what came last
/// could be lost to it otherwise.
const LINGER_MAX: Duration = Duration::from_secs(1);

/// Pause where the system has no room for another TCP connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Takes what goes wrong, in words.
pub type Complain = Box<dyn Fn(&dyn fmt::Display) + Send>;

/// What a tunnel is to do.
pub struct Settings {
    /// Where TCP clients connect.
    pub listen: SocketAddr,
    /// The broker: a URL of QUIC, whose protocol the clients speak.
    pub url: Url,
    /// How to connect to it.
    pub options: Options,
    /// What clients say first goes out with the handshake where there is a ticket.
    pub early_data: bool,
    /// TCP connections at a time, at most.
    pub connections_max: usize,
    /// Clients of AMQP on one QUIC connection, at most; MQTT has one.
    pub streams_max: u32,
    /// Takes what goes wrong, in words.
    pub complain: Complain,
}

/// A tunnel that listens.
pub struct Tunnel {
    listener: TcpListener,
    addr: SocketAddr,
    stop: Stop,
    settings: Settings,
}

/// Ends a tunnel from another thread.
#[derive(Clone, Default)]
pub struct Stop(Arc<Notify>);

/// What clients need of their tunnel.
struct Dialler {
    settings: Settings,
    carriers: RefCell<Vec<Weak<Carrier>>>,
    /// The last QUIC connection heard nothing: the next one sends no early data.
    was_silent: Cell<bool>,
}

/// A QUIC connection. The clients that it carries hold it.
#[derive(Default)]
struct Carrier {
    /// None: it did not come about.
    connection: OnceCell<Option<Connection>>,
    /// The broker has said something.
    heard: Cell<bool>,
    is_over: Cell<bool>,
}

/// Why bytes did not pass.
enum Failed {
    Read(io::Error),
    Write,
}

/// What ends a client before both directions have ended.
enum End {
    Client,
    Broker(io::Error),
}

impl Stop {
    /// Ends the tunnel: [`Tunnel::run`] returns soon.
    pub fn stop(&self) {
        self.0.notify_one();
    }
}

impl Tunnel {
    /// Listens. The broker is dialled when the first client comes.
    ///
    /// # Errors
    /// The address cannot be used, or no thread for QUIC can be had.
    pub fn bind(mut settings: Settings) -> io::Result<Self> {
        let listener = TcpListener::bind(settings.listen)?;
        listener.set_nonblocking(true)?;
        let protocol = settings.url.protocol();
        if protocol != Protocol::Amqp {
            settings.streams_max = 1;
        }
        let mut limits = Limits::default();
        // Those that end count, too.
        limits.connections = settings.connections_max.saturating_mul(2);
        limits.streams = settings.streams_max;
        let options = settings.options.driver(&Driver::new(&limits)?);
        settings.options = options.protocol(protocol.name());
        Ok(Self {
            addr: listener.local_addr()?,
            listener,
            stop: Stop::default(),
            settings,
        })
    }

    /// Where it listens.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What ends it.
    #[must_use]
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Carries until it is stopped.
    ///
    /// # Errors
    /// The event loop cannot be had.
    pub fn run(self) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        LocalSet::new().block_on(&runtime, self.serve())?;
        // What brokers do not acknowledge in time is lost.
        let _ = wait_idle(STOP_MAX);
        Ok(())
    }

    async fn serve(self) -> io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let connections_max = self.settings.connections_max;
        let dialler = Rc::new(Dialler {
            settings: self.settings,
            carriers: RefCell::default(),
            was_silent: Cell::new(false),
        });
        let mut clients = JoinSet::new();
        loop {
            tokio::select! {
                () = self.stop.0.notified() => return Ok(()),
                Some(_) = clients.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((tcp, _)) if clients.len() < connections_max => {
                        clients.spawn_local(Rc::clone(&dialler).serve(tcp));
                    }
                    Ok((refused, _)) => drop(refused),
                    Err(error) => {
                        (dialler.settings.complain)(&format_args!("cannot accept: {error}"));
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
    }
}

impl Dialler {
    /// A TCP client, to its end.
    async fn serve(self: Rc<Self>, mut tcp: TcpStream) {
        let carrier = self.carrier();
        let error = match self.carry(&carrier, &mut tcp).await {
            Err(End::Broker(error)) => error,
            Ok(()) | Err(End::Client) => return,
        };
        if let Some(Error::Reset { .. }) = Error::of(&error) {
            // The client sees what the broker did.
            let _ = tcp.set_zero_linger();
            return;
        }
        self.end(&carrier, &error);
        let _ = tcp.shutdown().await;
        let mut sink = tokio::io::sink();
        let rest = tokio::io::copy(&mut tcp, &mut sink);
        let _ = timeout(LINGER_MAX, rest).await;
    }

    /// The QUIC connection for a client.
    fn carrier(&self) -> Rc<Carrier> {
        let mut carriers = self.carriers.borrow_mut();
        carriers.retain(|carrier| carrier.strong_count() > 0);
        let most = self.settings.streams_max as usize;
        let with_room = carriers
            .iter()
            .filter(|carrier| carrier.strong_count() < most);
        let found = with_room
            .filter_map(Weak::upgrade)
            .find(|carrier| !carrier.is_over.get());
        found.unwrap_or_else(|| {
            let carrier = Rc::default();
            carriers.push(Rc::downgrade(&carrier));
            carrier
        })
    }

    /// Passes everything on, both ways.
    async fn carry(&self, carrier: &Carrier, tcp: &mut TcpStream) -> Result<(), End> {
        // Nothing waits to be sent with more.
        tcp.set_nodelay(true).map_err(|_| End::Client)?;
        let connection = carrier.connection.get_or_init(|| self.dial(carrier)).await;
        let connection = connection.as_ref().ok_or(End::Client)?;
        let opened = connection.open_stream_async().await;
        let quic = opened.map_err(End::Broker)?;
        let mut from_broker = quic.try_clone().map_err(End::Broker)?;
        let mut to_broker = quic.try_clone().map_err(End::Broker)?;
        let (mut from_client, mut to_client) = tcp.split();
        let up = async {
            match pass(&mut from_client, &mut to_broker, || {}).await {
                Err(Failed::Read(_)) => Err(End::Client),
                // What the broker said before comes still, and then why.
                Ok(()) | Err(Failed::Write) => Ok(()),
            }
        };
        let down = async {
            let hear = || {
                carrier.heard.set(true);
                self.was_silent.set(false);
            };
            match pass(&mut from_broker, &mut to_client, hear).await {
                Err(Failed::Read(error)) => Err(End::Broker(error)),
                Err(Failed::Write) => Err(End::Client),
                Ok(()) => Ok(()),
            }
        };
        let done = tokio::select! {
            done = async { tokio::try_join!(up, down) } => done.map(|_| ()),
            never = refuse_streams(connection) => match never {},
        };
        if let Err(End::Client) = done {
            quic.reset(0);
        }
        done
    }

    async fn dial(&self, carrier: &Carrier) -> Option<Connection> {
        let Settings { url, options, .. } = &self.settings;
        let mut options = options.clone();
        if self.settings.early_data && !self.was_silent.get() {
            options = options.early_data();
        }
        let server = (url.host(), url.port());
        match options.connect_connection_async(server).await {
            Ok(connection) => Some(connection),
            Err(error) => {
                let error = sentence(&error);
                self.end(
                    carrier,
                    &io::Error::other(format!("cannot connect: {error}")),
                );
                None
            }
        }
    }

    /// A QUIC connection is over, or did not come about.
    fn end(&self, carrier: &Carrier, error: &io::Error) {
        if carrier.is_over.replace(true) {
            return;
        }
        self.was_silent.set(!carrier.heard.get());
        let is_usual = matches!(
            Error::of(error),
            Some(Error::Closed { code: 0 } | Error::ClosedHere)
        );
        if !is_usual {
            let Settings { url, complain, .. } = &self.settings;
            complain(&format_args!("{url}: {}", sentence(error)));
        }
    }
}

/// Passes bytes on until their end, and that too.
async fn pass(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    hear: impl Fn(),
) -> Result<(), Failed> {
    let mut bytes = vec![0; READ_BYTES];
    loop {
        let read = from.read(&mut bytes).await.map_err(Failed::Read)?;
        let Some(data @ [_, ..]) = bytes.get(..read) else {
            return to.shutdown().await.map_err(|_| Failed::Write);
        };
        hear();
        to.write_all(data).await.map_err(|_| Failed::Write)?;
    }
}

/// Streams that the broker opens carry nothing.
async fn refuse_streams(connection: &Connection) -> Infallible {
    while let Ok(stream) = connection.accept_stream_async().await {
        drop(stream);
    }
    core::future::pending().await
}
