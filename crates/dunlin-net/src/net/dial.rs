//! Connections that we begin.

use core::net::SocketAddr;
use std::io;
use std::sync::Arc;

use dunlin_base::transport::Transport;
use dunlin_base::{ConnId, Instant};

use super::paths::any_for;
use super::{Conn, Net, SOURCES_MAX, Source, layers};
use crate::qlog::LogStart;
use crate::quic::{UdpEndpoint, bind, logged_transport};
use crate::resume::Counted;
use crate::slots::SLOTS_MAX;
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
        let layers = layers::of_client(config, &self.config.limits)?;
        let sock = tcp::connect(config.addr, config.local_addr).map_err(fail)?;
        let serial = self
            .insert_stream(sock, config.addr, config.transport, None, layers, deadline)
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
        let limits = &self.config.limits;
        let qlog = self.config.qlog.as_ref();
        let log = qlog.and_then(|qlog| LogStart::dialled(qlog, config.addr.ip()));
        let transport = match &log {
            Some(log) => Arc::new(logged_transport(&config.quic, limits, log)?),
            None => self.quic.client_transport(&config.quic, limits)?,
        };
        let source = self.client_endpoint(local, &config.quic).map_err(fail)?;
        let Some(Source::Udp(endpoint)) = self.sources.get_mut(source) else {
            return Err(NetError::Config("the UDP socket is gone"));
        };
        let tickets = config.tickets.as_ref();
        let tickets = tickets.map(|tickets| Arc::new(Counted::new(tickets)));
        let mut client = tls.quic(config, tickets.as_ref());
        client.transport_config(transport);
        let std_now = self.config.clock.to_std(self.now);
        let (handle, proto) = endpoint
            .proto
            .connect(std_now, client, config.addr, &config.server_name)
            .map_err(|e| match e {
                quinn_proto::ConnectError::InvalidServerName(name) => NetError::ServerName(name),
                other => fail(io::Error::other(other)),
            })?;
        let serial = self
            .insert_quic(source, handle, proto, None, deadline)
            .ok_or(NetError::TooManyConnections(SLOTS_MAX))?;
        if let Some(Conn::Quic(quic)) = self.slots.get_mut(serial) {
            quic.limit_keys(&config.quic, self.now);
            quic.tickets = tickets;
            quic.begin_log(log, &self.config);
            if quic.begin_flight() {
                // It is open, and says so in the next `poll`.
                self.ready.push(serial);
            }
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
                if e.listener.is_none() && e.bound_to == local && e.shares(tuning))
        });
        if let Some(index) = found {
            return Ok(index);
        }
        if self.sources.len() >= SOURCES_MAX {
            return Err(io::Error::other("a loop has at most 1,024 UDP sockets"));
        }
        let socket = bind(local, false)?;
        let (quic, limits) = (&self.quic, &self.config.limits);
        let endpoint = UdpEndpoint::new(socket, local, None, None, tuning.clone(), quic, limits)?;
        self.add_endpoint(endpoint)
    }
}
