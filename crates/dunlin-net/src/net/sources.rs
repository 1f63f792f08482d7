//! The sockets of a loop that are not connections: listeners, UDP ports of
//! endpoints, and further UDP ports to which connections moved.

use core::net::{IpAddr, SocketAddr};
use std::io;
use std::sync::Arc;

use dunlin_base::Instant;
use dunlin_base::transport::Transport;
use dunlin_quic::{CertName, Counters, QuicEndpoint, QuicTuning, ServerTls};
use mio::{Interest, Registry, Token};

use super::env::Env;
use crate::port::{UdpPort, bind};
use crate::proxy::Proxies;
use crate::slots::SLOTS_MAX;
use crate::stream::Origin;
use crate::unix::Acceptor;
use crate::{ForeignDatagram, ListenerConfig, NetError, Origins, tcp};

/// Listeners and UDP sockets of one loop at most.
const SOURCES_MAX: usize = 1024;
/// First token of listeners and UDP sockets; connections use their serial,
/// which is larger than any of these.
const SOURCE_BASE: usize = 1;
/// Changes of the network.
pub(super) const WATCH: Token = Token(SLOTS_MAX - 1);
const _: () = assert!(SOURCE_BASE + SOURCES_MAX < WATCH.0);

/// What the kernel reports about by a small token.
#[derive(Debug)]
enum Source {
    Tcp(Listener),
    Udp(Box<UdpEndpoint>),
    /// Another socket of an endpoint, to which a connection moved.
    Path(Box<UdpPath>),
    /// A socket that was closed; its place is free.
    Gone,
}

/// A listener of byte streams and what its connections will be.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) socket: Acceptor,
    pub(super) origin: Arc<Origin>,
    pub(super) tls: Option<(Arc<rustls::ServerConfig>, CertName)>,
    pub(super) ws_path: Arc<str>,
    pub(super) origins: Origins,
    pub(super) proxies: Option<Arc<Proxies>>,
    /// The kernel may have more connections for us.
    pub(super) ready: bool,
    /// Do not accept before this.
    pub(super) not_before: Instant,
}

/// A UDP socket with the connections that began on it.
#[derive(Debug)]
pub(super) struct UdpEndpoint {
    pub(super) port: UdpPort,
    pub(super) quic: QuicEndpoint,
    /// The address asked for, by which a dialled connection finds its socket.
    bound_to: SocketAddr,
}

/// Another socket of an endpoint.
#[derive(Debug)]
struct UdpPath {
    port: UdpPort,
    /// Index of the endpoint whose connections use it.
    endpoint: usize,
    /// Serial of the connection for which it was made.
    serial: u64,
}

/// What a source has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Accept,
    Receive,
    Nothing,
}

/// The table of sources, by index.
#[derive(Debug, Default)]
pub(super) struct Sources {
    list: Vec<Source>,
}

impl Listener {
    /// Serves connections to come with this certificate, where it is used.
    fn set_tls(&mut self, tls: &ServerTls) {
        let Origin {
            transport,
            listener,
            ref protocols,
            ..
        } = *self.origin;
        let config = match transport {
            Transport::Tls => tls.over_tcp(protocols),
            Transport::Wss => tls.over_ws(protocols),
            _ => return,
        };
        self.tls = Some((config, tls.cert_name()));
        // Connections that are there keep what they were accepted with.
        self.origin = Arc::new(Origin {
            transport,
            listener,
            protocols: protocols.clone(),
            end_point: tls.end_point().cloned(),
        });
    }
}

impl Source {
    fn port(&self) -> Option<&UdpPort> {
        match self {
            Self::Udp(endpoint) => Some(&endpoint.port),
            Self::Path(path) => Some(&path.port),
            Self::Tcp(_) | Self::Gone => None,
        }
    }

    fn port_mut(&mut self) -> Option<&mut UdpPort> {
        match self {
            Self::Udp(endpoint) => Some(&mut endpoint.port),
            Self::Path(path) => Some(&mut path.port),
            Self::Tcp(_) | Self::Gone => None,
        }
    }
}

impl Sources {
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Begins to accept connections; returns the bound address.
    pub(super) fn listen(
        &mut self,
        config: ListenerConfig,
        env: &mut Env,
        registry: &Registry,
    ) -> Result<SocketAddr, NetError> {
        if self.list.len() >= SOURCES_MAX {
            return Err(NetError::Config("a loop has at most 1,024 listeners"));
        }
        let (transport, addr) = (config.transport, config.addr);
        let fail = |source| NetError::Listen {
            transport,
            addr,
            source,
        };
        if transport.is_encrypted() && config.tls.is_none() {
            return Err(NetError::TlsMissing(transport));
        }
        if (transport == Transport::Unix) != config.unix.is_some() {
            return Err(NetError::Config(
                "a Unix listener, and no other, has a socket",
            ));
        }
        match (transport, &config.tls) {
            (Transport::Quic, Some(tls)) => {
                let tls = Arc::clone(tls);
                self.listen_udp(&config, &tls, env, registry, fail)
            }
            _ => self.listen_tcp(config, registry).map_err(fail),
        }
    }

    fn listen_tcp(
        &mut self,
        config: ListenerConfig,
        registry: &Registry,
    ) -> io::Result<SocketAddr> {
        let (mut socket, addr) = match config.unix {
            Some(socket) => (Acceptor::unix(socket)?, config.addr),
            None => {
                let listener = tcp::listen(config.addr, config.reuse_port)?;
                let addr = listener.local_addr()?;
                (Acceptor::Tcp(listener), addr)
            }
        };
        registry.register(&mut socket, token(self.list.len()), Interest::READABLE)?;
        let mut listener = Listener {
            socket,
            ws_path: config.ws_path.as_str().into(),
            origins: config.origins,
            proxies: config.proxies,
            origin: Arc::new(Origin {
                transport: config.transport,
                listener: Some(config.index),
                protocols: config.protocols.into(),
                end_point: None,
            }),
            tls: None,
            ready: false,
            not_before: Instant::ZERO,
        };
        if let Some(tls) = &config.tls {
            listener.set_tls(tls);
        }
        self.list.push(Source::Tcp(listener));
        Ok(addr)
    }

    fn listen_udp(
        &mut self,
        config: &ListenerConfig,
        tls: &ServerTls,
        env: &mut Env,
        registry: &Registry,
        fail: impl Fn(io::Error) -> NetError,
    ) -> Result<SocketAddr, NetError> {
        let socket = bind(config.addr, config.reuse_port).map_err(&fail)?;
        let addr = socket.local_addr().map_err(&fail)?;
        let ecn = config.quic.ecn;
        let port = UdpPort::new(socket, ecn, env.limits()).map_err(&fail)?;
        let quic = QuicEndpoint::listening(
            config.index,
            tls,
            &config.protocols,
            config.quic.clone(),
            &env.quic,
            port.allows_mtu_discovery(),
        )?;
        let endpoint = UdpEndpoint {
            port,
            quic,
            bound_to: addr,
        };
        self.add_endpoint(endpoint, env, registry).map_err(&fail)?;
        Ok(addr)
    }

    fn add_endpoint(
        &mut self,
        mut endpoint: UdpEndpoint,
        env: &mut Env,
        registry: &Registry,
    ) -> io::Result<usize> {
        let index = self.list.len();
        registry.register(endpoint.port.socket_mut(), token(index), UdpPort::INTEREST)?;
        env.scratch.reserve_udp();
        self.list.push(Source::Udp(Box::new(endpoint)));
        Ok(index)
    }

    /// The UDP socket that dialled connections from `local` share.
    pub(super) fn client_endpoint(
        &mut self,
        local: SocketAddr,
        tuning: &QuicTuning,
        env: &mut Env,
        registry: &Registry,
    ) -> io::Result<usize> {
        let found = self.list.iter().position(|source| {
            matches!(source, Source::Udp(e)
                if e.quic.listener().is_none() && e.bound_to == local && e.quic.shares(tuning))
        });
        if let Some(index) = found {
            return Ok(index);
        }
        if self.list.len() >= SOURCES_MAX {
            return Err(too_many());
        }
        let socket = bind(local, false)?;
        let port = UdpPort::new(socket, tuning.ecn, env.limits())?;
        let searches = port.allows_mtu_discovery();
        let endpoint = UdpEndpoint {
            quic: QuicEndpoint::dialling(tuning.clone(), &env.quic, searches),
            port,
            bound_to: local,
        };
        self.add_endpoint(endpoint, env, registry)
    }

    /// Makes a socket to which a connection may move.
    pub(super) fn add_path(
        &mut self,
        endpoint: usize,
        serial: u64,
        local: SocketAddr,
        env: &Env,
        registry: &Registry,
    ) -> io::Result<usize> {
        let ecn = self.endpoint(endpoint).is_some_and(|e| e.quic.uses_ecn());
        let mut port = UdpPort::new(bind(local, false)?, ecn, env.limits())?;
        let free = self.list.iter().position(|s| matches!(s, Source::Gone));
        let index = free.unwrap_or(self.list.len());
        if index >= SOURCES_MAX {
            return Err(too_many());
        }
        registry.register(port.socket_mut(), token(index), UdpPort::INTEREST)?;
        let path = Source::Path(Box::new(UdpPath {
            port,
            endpoint,
            serial,
        }));
        match self.list.get_mut(index) {
            Some(place) => *place = path,
            None => self.list.push(path),
        }
        Ok(index)
    }

    /// Closes a socket that was made for a path; an endpoint's own stays.
    pub(super) fn close_path(&mut self, index: usize) {
        if let Some(place @ Source::Path(_)) = self.list.get_mut(index) {
            *place = Source::Gone;
        }
    }

    /// Closes all listeners; connections stay. A UDP port stays bound for its
    /// connections and takes no new ones.
    pub(super) fn stop_listening(&mut self) {
        for source in &mut self.list {
            match source {
                Source::Tcp(_) => *source = Source::Gone,
                Source::Udp(endpoint) => endpoint.quic.refuse_new(),
                Source::Path(_) | Source::Gone => {}
            }
        }
    }

    /// Replaces certificate and key of the listeners with this number.
    pub(super) fn set_tls(&mut self, listener: u16, tls: &Arc<ServerTls>, env: &Env) {
        for source in &mut self.list {
            match source {
                Source::Tcp(tcp) if tcp.origin.listener == Some(listener) => tcp.set_tls(tls),
                Source::Udp(udp) if udp.quic.listener() == Some(listener) => {
                    udp.quic.set_tls(tls, &env.quic);
                }
                _ => {}
            }
        }
    }

    pub(super) fn listener(&mut self, index: usize) -> Option<&mut Listener> {
        match self.list.get_mut(index) {
            Some(Source::Tcp(listener)) => Some(listener),
            _ => None,
        }
    }

    pub(super) fn endpoint(&self, index: usize) -> Option<&UdpEndpoint> {
        match self.list.get(index) {
            Some(Source::Udp(endpoint)) => Some(endpoint),
            _ => None,
        }
    }

    pub(super) fn endpoint_mut(&mut self, index: usize) -> Option<&mut UdpEndpoint> {
        match self.list.get_mut(index) {
            Some(Source::Udp(endpoint)) => Some(endpoint),
            _ => None,
        }
    }

    /// The UDP endpoint of a listener, which may have several addresses, that a datagram is
    /// for: the one that knows its connection, or else the one of its address.
    pub(super) fn endpoint_for(&mut self, foreign: &ForeignDatagram, env: &Env) -> Option<usize> {
        let ForeignDatagram { listener, datagram } = foreign;
        let likely = self.endpoint_at(*listener, datagram.local_ip)?;
        let now = env.config.clock.to_std(env.now);
        // The likely one is not asked: it may be about to answer, which has a bound.
        let found = self.list.iter_mut().enumerate().find_map(|(at, source)| {
            let is_other = at != likely && is_of_listener(source, *listener);
            match source {
                Source::Udp(e) if is_other => e.quic.knows(now, datagram).then_some(at),
                _ => None,
            }
        });
        found.or(Some(likely))
    }

    /// The UDP endpoint of a listener that has this address, or else its first.
    pub(super) fn endpoint_at(&self, listener: u16, local_ip: Option<IpAddr>) -> Option<usize> {
        let rank = |source: &Source| match (source, local_ip) {
            (Source::Udp(e), Some(ip)) if e.bound_to.ip() == ip => 0,
            (Source::Udp(e), Some(ip)) if e.bound_to.is_ipv4() == ip.is_ipv4() => 1,
            _ => 2,
        };
        let sources = self.list.iter().enumerate();
        let of_it = sources.filter(|(_, source)| is_of_listener(source, listener));
        of_it
            .min_by_key(|(_, source)| rank(source))
            .map(|(at, _)| at)
    }

    /// The endpoint that datagrams of a source are for.
    pub(super) fn endpoint_of(&self, index: usize) -> usize {
        match self.list.get(index) {
            Some(Source::Path(path)) => path.endpoint,
            _ => index,
        }
    }

    /// The connection for which the socket of a path was made.
    pub(super) fn path_owner(&self, index: usize) -> Option<u64> {
        match self.list.get(index) {
            Some(Source::Path(path)) => Some(path.serial),
            _ => None,
        }
    }

    pub(super) fn port(&self, index: usize) -> Option<&UdpPort> {
        self.list.get(index).and_then(Source::port)
    }

    pub(super) fn port_mut(&mut self, index: usize) -> Option<&mut UdpPort> {
        self.list.get_mut(index).and_then(Source::port_mut)
    }

    #[cfg(test)]
    pub(super) fn ports(&self) -> impl Iterator<Item = &UdpPort> {
        self.list.iter().filter_map(Source::port)
    }

    /// The kernel reports readiness; returns the source if it takes datagrams
    /// again.
    pub(super) fn on_event(
        &mut self,
        token: Token,
        readable: bool,
        writable: bool,
    ) -> Option<usize> {
        let index = token.0 - SOURCE_BASE;
        match self.list.get_mut(index)? {
            Source::Tcp(listener) => listener.ready = true,
            source => {
                if let Some(port) = source.port_mut() {
                    port.readable |= readable;
                }
                return writable.then_some(index);
            }
        }
        None
    }

    /// What is to be done at a source.
    pub(super) fn turn(&self, index: usize) -> Turn {
        match self.list.get(index) {
            Some(Source::Tcp(listener)) if listener.ready => Turn::Accept,
            Some(source) if source.port().is_some_and(|port| port.readable) => Turn::Receive,
            _ => Turn::Nothing,
        }
    }

    /// Whether there is something to do without the kernel.
    pub(super) fn is_busy(&self, now: Instant) -> bool {
        self.list.iter().any(|source| match source {
            Source::Tcp(listener) => listener.ready && listener.not_before <= now,
            other => other
                .port()
                .is_some_and(|port| port.readable || port.is_unsent()),
        })
    }

    /// Whether datagrams have gathered.
    pub(super) fn is_unsent(&self) -> bool {
        let mut ports = self.list.iter().filter_map(Source::port);
        ports.any(UdpPort::is_unsent)
    }

    /// Sends what has gathered at the UDP sockets. Returns whether the way from
    /// here was gone for any of it.
    pub(super) fn flush(&mut self, counters: &mut Counters) -> bool {
        let mut gone = false;
        for port in self.list.iter_mut().filter_map(Source::port_mut) {
            gone |= port.flush(counters);
        }
        gone
    }

    /// When listeners that pause accept again.
    pub(super) fn pauses(&self) -> impl Iterator<Item = Instant> + '_ {
        self.list.iter().filter_map(|source| match source {
            Source::Tcp(listener) if listener.ready => Some(listener.not_before),
            _ => None,
        })
    }

    /// A descriptor is free: no listener needs to pause.
    pub(super) fn end_pauses(&mut self) {
        for source in &mut self.list {
            if let Source::Tcp(listener) = source {
                listener.not_before = Instant::ZERO;
            }
        }
    }

    /// Asks the kernel to report when a UDP socket takes datagrams again, only
    /// for those that took none: it would report after every datagram.
    pub(super) fn watch_blocked(&mut self, registry: &Registry) -> io::Result<()> {
        for (index, source) in self.list.iter_mut().enumerate() {
            let Some(port) = source.port_mut() else {
                continue;
            };
            if let Some(interest) = port.changed_interest() {
                registry.reregister(port.socket_mut(), token(index), interest)?;
            }
        }
        Ok(())
    }
}

fn is_of_listener(source: &Source, listener: u16) -> bool {
    matches!(source, Source::Udp(e) if e.quic.listener() == Some(listener))
}

const fn token(index: usize) -> Token {
    Token(SOURCE_BASE + index)
}

fn too_many() -> io::Error {
    io::Error::other("a loop has at most 1,024 UDP sockets")
}
