//! The table of connections: how they enter and leave it.

use core::net::SocketAddr;
use std::io;

use dunlin_base::transport::Transport;
use dunlin_base::{ConnId, Instant};
use dunlin_quic::{Begun, QuicConn};
use mio::net::TcpStream;
use mio::{Interest, Token};

use super::quic::QuicSlot;
use super::{Conn, Net, Source, mark};
use crate::stream::{Layers, NewStream, Origin, StreamConn};

impl Net {
    pub(super) fn insert_stream(
        &mut self,
        sock: TcpStream,
        addr: SocketAddr,
        origin: Origin,
        layers: Option<Box<Layers>>,
        handshake_deadline: Instant,
    ) -> io::Result<Option<u64>> {
        let transport = origin.transport;
        let (now, config, registry) = (self.now, &self.config, self.poll.registry());
        let inserted = self.slots.insert_with(|serial| {
            let new = NewStream {
                id: ConnId::new(config.shard, serial),
                sock,
                addr,
                origin,
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
        begun: Begun,
        handshake_until: Instant,
    ) -> Option<u64> {
        let (now, shard, limits) = (self.now, self.config.shard, self.quic.limits());
        let handle = begun.handle();
        let inserted = self.slots.insert_with(|serial| {
            let id = ConnId::new(shard, serial);
            let mut slot = Box::new(QuicSlot::new(
                QuicConn::new(begun, id, now, handshake_until, limits),
                source,
            ));
            mark(&mut self.dirty, serial, &mut slot.dirty);
            Ok::<_, core::convert::Infallible>(Conn::Quic(slot))
        });
        let Ok(serial) = inserted;
        let Some(Source::Udp(endpoint)) = self.sources.get_mut(source) else {
            return None;
        };
        match serial {
            Some(serial) => {
                endpoint.quic.bind_serial(handle, serial);
                self.held.add(Transport::Quic);
            }
            None => endpoint.quic.forget(handle),
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
            let stats = quic.conn.quic_stats();
            quic.conn.path_mut().note_totals(&stats, &mut self.counters);
            self.close_paths(quic);
        }
        let (pending, accepted, addr) = match &conn {
            Conn::Stream(tcp) => (tcp.pending, tcp.accepted, tcp.addr().ip()),
            Conn::Quic(quic) => (quic.pending, quic.conn.is_accepted(), quic.admitted_ip),
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
