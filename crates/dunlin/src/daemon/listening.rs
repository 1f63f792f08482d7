//! The sockets of the listeners: each address is bound on every shard.

use core::fmt;
use core::net::SocketAddr;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dunlin_base::Text;
use dunlin_base::transport::Transport;
use dunlin_base::transport::unix_addr;
use dunlin_mqtt::flow;
use dunlin_net::{ListenerConfig, UnixSocket};

use super::certificates::LoadedTls;
use super::{Parts, StartError};
use crate::config::Config;
use crate::config::listener::{Kind, Listener, Protocol};
use crate::config::{proxies, socket};

/// A place where the broker listens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bound {
    /// Number of the listener in the configuration.
    pub listener: usize,
    /// What it speaks.
    pub transport: Transport,
    /// Where; of a Unix socket, one of this machine without a port.
    pub addr: SocketAddr,
    /// The file of a Unix socket.
    pub path: Option<PathBuf>,
}

/// Where it is, for people.
impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => path.display().fmt(f),
            None => self.addr.fmt(f),
        }
    }
}

/// Addresses of a listener.
pub(super) fn resolve(index: usize, listener: &Listener) -> Result<Vec<SocketAddr>, StartError> {
    let address = listener.address();
    address.resolve().map_err(|source| StartError::Resolve {
        index,
        name: address.to_string(),
        source,
    })
}

/// What can be known of a listener without listening.
pub(super) fn check(index: usize, listener: &Listener) -> Result<(), StartError> {
    if listener.transport != Kind::Unix {
        return resolve(index, listener).map(drop);
    }
    let access = socket::access(listener);
    access.map(drop).map_err(|source| StartError::Socket {
        index,
        path: listener.path().into(),
        source,
    })
}

/// Whether the addresses of metrics and of orders over HTTP can be had later.
pub(super) fn ask(config: &Config) -> Result<(), StartError> {
    let free = |addr: SocketAddr| TcpListener::bind(addr).map(drop);
    if let Some(addr) = config.control.http.address {
        free(addr).map_err(|source| StartError::Http { addr, source })?;
    }
    match config.reports.metrics.address {
        Some(addr) => free(addr).map_err(|source| StartError::Metrics { addr, source }),
        None => Ok(()),
    }
}

/// Listeners that could not listen now, for a broker that does later.
#[cfg(feature = "cluster")]
pub(super) fn busy(config: &Config) -> Vec<StartError> {
    let of = |(index, listener): (usize, &Listener)| {
        let free = |addr: SocketAddr| {
            let transport = listener.transport.transport();
            probe(transport, addr).map_err(|source| StartError::Busy {
                index,
                transport: listener.transport.name(),
                addr,
                source,
            })
        };
        match listener.transport {
            Kind::Unix => None,
            _ => match resolve(index, listener) {
                Ok(addrs) => addrs.into_iter().find_map(|addr| free(addr).err()),
                Err(error) => Some(error),
            },
        }
    };
    config.listener.iter().enumerate().filter_map(of).collect()
}

/// Binds every listener on every shard.
pub(super) fn listen(
    config: &Config,
    tls: &LoadedTls,
    parts: &mut [Parts],
) -> Result<Vec<Bound>, StartError> {
    let mut bound = Vec::new();
    for (index, (listener, tls)) in config.listener.iter().zip(tls).enumerate() {
        if listener.transport == Kind::Unix {
            bound.push(listen_at_socket(index, listener, parts)?);
            continue;
        }
        for addr in resolve(index, listener)? {
            let mut settings = ListenerConfig::new(listener.transport.transport(), addr);
            settings.quic = config.quic_tuning(listener);
            settings.tls = tls.clone();
            settings.protocols = protocols(listener);
            settings.origins = config.origins(listener);
            settings.proxies = proxies::proxies(listener).map(Arc::new);
            let addr = listen_on(index, listener, settings, parts)?;
            bound.push(Bound {
                listener: index,
                transport: listener.transport.transport(),
                addr,
                path: None,
            });
        }
    }
    Ok(bound)
}

/// Binds a Unix socket, from which all shards accept.
fn listen_at_socket(
    index: usize,
    listener: &Listener,
    parts: &mut [Parts],
) -> Result<Bound, StartError> {
    let path = Path::new(listener.path());
    let wrong = |source| StartError::Socket {
        index,
        path: path.to_owned(),
        source,
    };
    let access = socket::access(listener).map_err(wrong)?;
    let socket = Arc::new(UnixSocket::bind(path, access).map_err(wrong)?);
    let addr = unix_addr(u32::MAX);
    for part in parts {
        let mut settings = ListenerConfig::new(Transport::Unix, addr);
        settings.index = u16::try_from(index).unwrap_or(u16::MAX);
        settings.protocols = protocols(listener);
        settings.unix = Some(Arc::clone(&socket));
        let listening = part.net.listen(settings);
        listening.map_err(|source| StartError::Listen {
            index,
            transport: listener.transport.name(),
            addr,
            source,
        })?;
    }
    Ok(Bound {
        listener: index,
        transport: Transport::Unix,
        addr,
        path: Some(path.to_owned()),
    })
}

/// What is spoken: MQTT on QUIC with flow headers too, for clients that offer it.
fn protocols(listener: &Listener) -> Vec<Text> {
    let spoken = listener.protocols();
    let has_flows = listener.transport == Kind::Quic && spoken.contains(&Protocol::Mqtt);
    let flows = has_flows.then_some(flow::ALPN);
    let names = spoken.iter().map(|protocol| protocol.name());
    flows
        .into_iter()
        .chain(names)
        .map(Text::from_static)
        .collect()
}

/// Whether the address can be had by this process alone.
fn probe(transport: Transport, addr: SocketAddr) -> std::io::Result<()> {
    match transport {
        Transport::Quic => std::net::UdpSocket::bind(addr).map(drop),
        _ => TcpListener::bind(addr).map(drop),
    }
}

fn listen_on(
    index: usize,
    listener: &Listener,
    mut settings: ListenerConfig,
    parts: &mut [Parts],
) -> Result<SocketAddr, StartError> {
    let (shared, addr) = (parts.len() > 1, settings.addr);
    if shared {
        // Shards share the address with each other, and so with any other
        // broker that shares it: ask for it alone first.
        probe(listener.transport.transport(), addr).map_err(|source| StartError::Busy {
            index,
            transport: listener.transport.name(),
            addr,
            source,
        })?;
    }
    settings.index = u16::try_from(index).unwrap_or(u16::MAX);
    settings.reuse_port = shared;
    settings.ws_path = listener.path().to_owned();
    for part in parts {
        // The first shard's port is everybody's.
        let addr = settings.addr;
        settings.addr = part
            .net
            .listen(settings.clone())
            .map_err(|source| StartError::Listen {
                index,
                transport: listener.transport.name(),
                addr,
                source,
            })?;
    }
    Ok(settings.addr)
}
