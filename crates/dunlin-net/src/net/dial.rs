//! Connections that we begin.

use core::net::SocketAddr;
use std::io;
use std::sync::Arc;

use dunlin_base::transport::Transport;
use dunlin_base::{ConnId, Instant};
use dunlin_quic::{ConnectError, Dial, QuicEndpoint};

use super::paths::any_for;
use super::quic::UdpEndpoint;
use super::{Conn, Net, SOURCES_MAX, Source, layers};
use crate::port::{UdpPort, bind};
use crate::slots::SLOTS_MAX;
use crate::stream::Origin;
use crate::{ClientTls, DialConfig, NetError, QuicTuning, tcp};

impl Net {
    /// Starts to connect; `Opened` or `Closed` follows.
    ///
    /// # Errors
    /// No socket could be made, or the settings are incomplete.
    pub fn dial(&mut self, config: &DialConfig) -> Result<ConnId, NetError> {
        if self.slots.len() >= self.config.limits.connections_max {
            return Err(NetError::TooManyConnections(
                self.config.limits.connections_max,
            ));
        }
        self.now = self.config.clock.now();
        let timeout = config
            .handshake_timeout
            .unwrap_or(self.config.limits.handshake_timeout);
        let deadline = self.now + timeout;
        let serial = match (config.transport, &config.tls) {
            (transport, None) if transport.is_encrypted() => {
                return Err(NetError::TlsMissing(transport));
            }
            (Transport::Quic, Some(tls)) => self.dial_quic(config, tls, deadline)?,
            _ => self.dial_tcp(config, deadline)?,
        };
        self.counters.dialled += 1;
        Ok(ConnId::new(self.config.shard, serial))
    }

    fn dial_tcp(&mut self, config: &DialConfig, deadline: Instant) -> Result<u64, NetError> {
        let fail = |source| NetError::Dial {
            addr: config.addr,
            source,
        };
        let origin = Origin {
            transport: config.transport,
            listener: None,
            protocols: config.protocols.as_slice().into(),
        };
        let layers = layers::of_client(config, &origin.protocols, &self.config.limits)?;
        let sock = tcp::connect(config.addr, config.local_addr).map_err(fail)?;
        let serial = self
            .insert_stream(sock, config.addr, origin, layers, deadline)
            .map_err(fail)?
            .ok_or(NetError::TooManyConnections(SLOTS_MAX))?;
        if let Some(Conn::Stream(conn)) = self.slots.get_mut(serial) {
            self.timers
                .arm(serial, conn.next_deadline(), &mut conn.armed);
        }
        if config.quic.follow_network {
            self.follow(serial);
        }
        Ok(serial)
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
        let qlog = self.config.qlog.clone();
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
        let prepared = self.quic.prepare(&dial)?;
        let source = self.client_endpoint(local, &config.quic).map_err(fail)?;
        let Some(Source::Udp(endpoint)) = self.sources.get_mut(source) else {
            return Err(NetError::Config("the UDP socket is gone"));
        };
        let std_now = self.config.clock.to_std(self.now);
        let begun = endpoint.quic.connect(prepared, &dial, std_now);
        let begun = begun.map_err(|error| match error {
            ConnectError::ServerName(name) => NetError::ServerName(name),
            other => fail(io::Error::other(other)),
        })?;
        let serial = self
            .insert_quic(source, begun, deadline)
            .ok_or(NetError::TooManyConnections(SLOTS_MAX))?;
        if let Some(Conn::Quic(quic)) = self.slots.get_mut(serial)
            && quic.conn.streams().begin_flight()
        {
            // It is open, and says so in the next `poll`.
            self.ready.push(serial);
        }
        if config.quic.follow_network {
            self.follow(serial);
        }
        Ok(serial)
    }

    /// The UDP socket that dialled connections from `local` share.
    fn client_endpoint(&mut self, local: SocketAddr, tuning: &QuicTuning) -> io::Result<usize> {
        let found = self.sources.iter().position(|source| {
            matches!(source, Source::Udp(e)
                if e.quic.listener().is_none() && e.bound_to == local && e.quic.shares(tuning))
        });
        if let Some(index) = found {
            return Ok(index);
        }
        if self.sources.len() >= SOURCES_MAX {
            return Err(io::Error::other("a loop has at most 1,024 UDP sockets"));
        }
        let socket = bind(local, false)?;
        let port = UdpPort::new(socket, tuning.ecn, &self.config.limits)?;
        let searches = port.allows_mtu_discovery();
        let endpoint = UdpEndpoint {
            quic: QuicEndpoint::dialling(tuning.clone(), &self.quic, searches),
            port,
            bound_to: local,
        };
        self.add_endpoint(endpoint)
    }
}
