//! Connections that we begin, and those whose other end is in this process.

use core::net::{Ipv4Addr, SocketAddr};
use std::io;
use std::sync::Arc;

use dunlin_base::transport::Transport;
use dunlin_base::{ConnId, Instant};
use dunlin_quic::{ClientTls, ConnectError, Dial};

use super::{Net, layers};
use crate::admission::Standing;
use crate::port::any_for;
use crate::slots::SLOTS_MAX;
use crate::stream::{Layers, NewStream, Origin, StreamConn};
use crate::{Adopted, DialConfig, NetError, tcp};

impl Net {
    /// Starts to connect; `Opened` or `Closed` follows.
    ///
    /// # Errors
    /// No socket could be made, or the settings are incomplete.
    pub fn dial(&mut self, config: &DialConfig) -> Result<ConnId, NetError> {
        let limits = self.env.limits();
        if self.conns.len() >= limits.connections_max {
            return Err(NetError::TooManyConnections(limits.connections_max));
        }
        let timeout = config.handshake_timeout.unwrap_or(limits.handshake_timeout);
        self.env.tick();
        let deadline = self.env.now + timeout;
        let serial = match (config.transport, &config.tls) {
            (transport, None) if transport.is_encrypted() => {
                return Err(NetError::TlsMissing(transport));
            }
            (Transport::Quic, Some(tls)) => self.dial_quic(config, tls, deadline)?,
            _ => self.dial_tcp(config, deadline)?,
        };
        if config.quic.follow_network {
            let registry = self.poll.registry();
            self.follow.add(serial, &mut self.conns, registry);
        }
        self.env.counters.dialled += 1;
        Ok(self.conns.id(serial))
    }

    fn dial_tcp(&mut self, config: &DialConfig, deadline: Instant) -> Result<u64, NetError> {
        let fail = |source| NetError::Dial {
            addr: config.addr,
            source,
        };
        let origin = Arc::new(Origin {
            transport: config.transport,
            listener: None,
            protocols: config.protocols.as_slice().into(),
            end_point: None,
        });
        let (now, limits) = (self.env.now, self.env.limits());
        let layers = layers::of_client(config, &origin.protocols, limits)?;
        let sock = match &config.connector {
            Some(connector) => connector.connect().and_then(tcp::given),
            None if config.transport == Transport::Unix => {
                return Err(NetError::Config("a Unix socket needs a connector"));
            }
            None => tcp::connect(config.addr, config.local_addr),
        }
        .map_err(|source| match config.transport {
            Transport::Unix => NetError::Unix(source),
            _ => fail(source),
        })?;
        self.conns
            .insert_stream(self.poll.registry(), |id| {
                let new = NewStream {
                    id,
                    sock,
                    addr: config.addr,
                    origin,
                    layers,
                    is_proxy: false,
                    handshake_deadline: deadline,
                };
                StreamConn::new(new, now, limits)
            })
            .map_err(fail)?
            .ok_or(NetError::TooManyConnections(SLOTS_MAX))
    }

    /// Takes one end of a pair of sockets as a connection that the listener of this
    /// number accepted, from a peer of this name; the other end is in this process.
    /// `Opened` follows.
    ///
    /// # Errors
    /// A limit is reached, or the kernel does not watch the socket.
    pub fn adopt(&mut self, adopted: Adopted) -> Result<ConnId, NetError> {
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        self.env.tick();
        let env = &mut self.env;
        let full = NetError::TooManyConnections(env.limits().connections_max);
        // Its address is no client's either: it counts for nothing.
        if let Err(refusal) = self.conns.admit(addr.ip(), Standing::Proxy, env) {
            refusal.count(&mut env.counters);
            return Err(full);
        }
        let (now, limits) = (env.now, &env.config.limits);
        let origin = Arc::new(Origin {
            transport: Transport::Tcp,
            listener: Some(adopted.listener),
            protocols: [adopted.protocol].into(),
            end_point: None,
        });
        let layers = Box::new(Layers {
            identity: Some(adopted.identity),
            ..Layers::default()
        });
        let inserted = tcp::given(adopted.socket).and_then(|sock| {
            self.conns.insert_stream(self.poll.registry(), |id| {
                let new = NewStream {
                    id,
                    sock,
                    addr,
                    origin,
                    layers: Some(layers),
                    is_proxy: true,
                    handshake_deadline: now + limits.handshake_timeout,
                };
                StreamConn::new(new, now, limits)
            })
        });
        let error = match inserted {
            Ok(Some(serial)) => {
                env.counters.accepted += 1;
                return Ok(self.conns.id(serial));
            }
            Ok(None) => full,
            Err(error) => NetError::Loop(error),
        };
        env.admission().withdraw(addr.ip(), Standing::Proxy, limits);
        Err(error)
    }

    fn dial_quic(
        &mut self,
        config: &DialConfig,
        tls: &Arc<ClientTls>,
        deadline: Instant,
    ) -> Result<u64, NetError> {
        let fail = |source| NetError::Dial {
            addr: config.addr,
            source,
        };
        let local = config.local_addr.unwrap_or_else(|| any_for(config.addr));
        let env = &mut self.env;
        let qlog = env.config.qlog.clone();
        let dial = Dial {
            addr: config.addr,
            server_name: &config.server_name,
            tls,
            protocols: &config.protocols,
            early_data: config.early_data,
            tickets: config.tickets.as_ref(),
            tokens: config.tokens.as_ref(),
            tuning: &config.quic,
            qlog: qlog.as_ref(),
        };
        let prepared = env.quic.prepare(&dial)?;
        let registry = self.poll.registry();
        let source = self
            .sources
            .client_endpoint(local, &config.quic, env, registry)
            .map_err(fail)?;
        let Some(endpoint) = self.sources.endpoint_mut(source) else {
            return Err(NetError::Config("the UDP socket is gone"));
        };
        let std_now = env.config.clock.to_std(env.now);
        let begun = endpoint.quic.connect(prepared, &dial, std_now);
        let begun = begun.map_err(|error| match error {
            ConnectError::ServerName(name) => NetError::ServerName(name),
            other => fail(io::Error::other(other)),
        })?;
        let serial = self
            .conns
            .insert_quic(source, &mut self.sources, begun, deadline, env)
            .ok_or(NetError::TooManyConnections(SLOTS_MAX))?;
        if let Some(quic) = self.conns.quic_mut(serial)
            && quic.conn.streams().begin_flight()
        {
            // It is open, and says so in the next `poll`.
            self.conns.run_soon(serial);
        }
        Ok(serial)
    }
}
