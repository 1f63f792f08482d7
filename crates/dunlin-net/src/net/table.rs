//! The table of connections: how they enter and leave it.

use core::net::SocketAddr;
use std::io;

use dunlin_base::transport::Transport;
use dunlin_base::{ConnId, Instant};
use mio::net::TcpStream;
use mio::{Interest, Token};

use super::{Conn, Net, Source, mark};
use crate::quic::{NewQuic, QuicConn};
use crate::stream::{Layers, NewStream, StreamConn};

impl Net {
    pub(super) fn insert_stream(
        &mut self,
        sock: TcpStream,
        addr: SocketAddr,
        transport: Transport,
        listener: Option<u16>,
        layers: Option<Box<Layers>>,
        handshake_deadline: Instant,
    ) -> io::Result<Option<u64>> {
        let (now, config, registry) = (self.now, &self.config, self.poll.registry());
        let inserted = self.slots.insert_with(|serial| {
            let new = NewStream {
                id: ConnId::new(config.shard, serial),
                sock,
                addr,
                transport,
                listener,
                layers,
                handshake_deadline,
            };
            let mut conn = Box::new(StreamConn::new(new, now, &config.limits));
            let token = Token(serial as usize);
            let interest = Interest::READABLE | Interest::WRITABLE;
            registry.register(conn.sock_mut(), token, interest)?;
            Ok(Conn::Stream(conn))
        });
        if let Ok(Some(_)) = &inserted {
            self.held.add(transport);
        }
        inserted
    }

    /// Stores a connection and lists it for its first transmission.
    pub(super) fn insert_quic(
        &mut self,
        source: usize,
        handle: quinn_proto::ConnectionHandle,
        proto: quinn_proto::Connection,
        listener: Option<u16>,
        handshake_deadline: Instant,
    ) -> Option<u64> {
        let (now, config) = (self.now, &self.config);
        let inserted = self.slots.insert_with(|serial| {
            let new = NewQuic {
                id: ConnId::new(config.shard, serial),
                source,
                handle,
                proto,
                listener,
                handshake_deadline,
            };
            let conn = Box::new(QuicConn::new(new, now, &config.limits));
            Ok::<_, core::convert::Infallible>(Conn::Quic(conn))
        });
        let Ok(serial) = inserted;
        let Some(Source::Udp(endpoint)) = self.sources.get_mut(source) else {
            return None;
        };
        match serial {
            Some(serial) => {
                endpoint.bind_serial(handle, serial);
                self.held.add(Transport::Quic);
                if let Some(Conn::Quic(quic)) = self.slots.get_mut(serial) {
                    mark(&mut self.dirty, serial, &mut quic.dirty);
                }
            }
            None => {
                let drained = quinn_proto::EndpointEvent::drained();
                endpoint.proto.handle_event(handle, drained);
            }
        }
        serial
    }

    pub(super) fn remove(&mut self, serial: u64) {
        let Some(mut conn) = self.slots.remove(serial) else {
            return;
        };
        self.counters.closed += 1;
        self.held.remove(conn.transport());
        if let Conn::Quic(quic) = &mut conn {
            let stats = quic.quic_stats();
            quic.note_totals(&stats, &mut self.counters);
            self.close_paths(quic);
        }
        let (pending, accepted, addr) = match &conn {
            Conn::Stream(tcp) => (tcp.pending, tcp.accepted, tcp.addr().ip()),
            Conn::Quic(quic) => (quic.pending, quic.accepted, quic.admitted_ip()),
        };
        if pending {
            self.config.shared.admission.handshake_over();
        }
        if accepted {
            let by_address = self.config.limits.counts_addresses();
            self.config.shared.admission.end(addr, by_address);
        }
        // A descriptor is free again.
        for source in &mut self.sources {
            if let Source::Tcp(listener) = source {
                listener.not_before = Instant::ZERO;
            }
        }
    }
}
