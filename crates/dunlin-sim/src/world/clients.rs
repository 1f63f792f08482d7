//! What clients do on their connections, and what they see.

use dunlin_base::transport::{BindingType, NetEventKind, Peer, Transport};
use dunlin_base::{ConnId, StreamId};

use super::World;
use crate::agenda::Happening;
use crate::link::{Link, ToClient, ToServer};

/// Bytes of a stream that a client does not read at which the server learns it.
const BLOCKED_BYTES_MIN: usize = 16 << 10;

impl World {
    /// A client on this machine opens a connection.
    pub fn open(&mut self) -> ConnId {
        self.open_from("127.0.0.1:40000", None)
    }

    /// A client opens a connection from an address, perhaps with the name of
    /// its certificate.
    ///
    /// # Panics
    /// `addr` is no address.
    pub fn open_from(&mut self, addr: &str, identity: Option<&str>) -> ConnId {
        let protocol = self.setup.protocol.unwrap_or("mqtt");
        open_as(self, protocol, addr, identity)
    }

    /// The client sends bytes.
    pub fn send(&mut self, conn: ConnId, stream: StreamId, bytes: &[u8]) {
        self.trace.packets(self.agenda.now, conn, ">", bytes);
        let mut rest = bytes;
        while !rest.is_empty() {
            let len = if self.setup.pace.split && self.agenda.random.one_in(3) {
                self.agenda.random.between(1, rest.len() as u64) as usize
            } else {
                rest.len()
            };
            let (head, tail) = rest.split_at(len);
            rest = tail;
            self.client_does(conn, ToServer::Bytes(stream, head.to_vec()));
        }
    }

    /// The client sends no more on a stream.
    pub fn finish(&mut self, conn: ConnId, stream: StreamId) {
        self.client_does(conn, ToServer::Finished(stream));
    }

    /// The client abandons a stream.
    pub fn reset(&mut self, conn: ConnId, stream: StreamId, code: u64) {
        self.client_does(conn, ToServer::Reset(stream, code));
    }

    /// The client sends a datagram.
    pub fn datagram(&mut self, conn: ConnId, bytes: &[u8]) {
        self.client_does(conn, ToServer::Datagram(bytes.to_vec()));
    }

    /// The client lets the server open more streams.
    pub fn grant(&mut self, conn: ConnId, streams: u64) {
        let Some(link) = self.links.get_mut(&conn) else {
            return;
        };
        link.credit += streams;
        if core::mem::take(&mut link.refused) {
            let bidirectional = true;
            self.event(conn, NetEventKind::StreamsAvailable { bidirectional });
        }
    }

    /// The connection breaks: what is under way is lost, both sides notice
    /// after a while.
    pub fn cut(&mut self, conn: ConnId) {
        let Some(link) = self.links.remove(&conn) else {
            return;
        };
        self.agenda.retain(|happening| match happening {
            Happening::Server(of, _)
            | Happening::Client(of, _)
            | Happening::Sent(of, ..)
            | Happening::Blocked(of, ..) => *of != conn,
            _ => true,
        });
        let at = self.agenda.soon(self.setup.pace.link);
        self.agenda
            .at(at.max(link.last_to_server), Happening::Lost(conn));
        let at = self.agenda.soon(self.setup.pace.link);
        self.agenda
            .at(at, Happening::Client(conn, ToClient::Closed(0)));
    }

    /// The client stops or resumes reading.
    pub fn stall(&mut self, conn: ConnId, stalled: bool) {
        let Some(link) = self.links.get_mut(&conn) else {
            return;
        };
        link.stalled = stalled;
        if !stalled {
            let unread = core::mem::take(&mut link.unread);
            link.unread_bytes = 0;
            let bytes: Vec<_> = unread.iter().filter_map(ToClient::sent).collect();
            for event in unread {
                self.agenda.at_once(Happening::Client(conn, event));
            }
            for (stream, bytes) in bytes {
                self.agenda.at_once(Happening::Sent(conn, stream, bytes));
            }
        }
    }

    /// The client stops or resumes reading one stream, of which its transport
    /// takes little ahead.
    pub fn stall_stream(&mut self, conn: ConnId, stream: StreamId, stalled: bool) {
        let Some(link) = self.links.get_mut(&conn) else {
            return;
        };
        if stalled {
            link.stalled_streams.entry(stream).or_default();
            return;
        }
        let unread = link.stalled_streams.remove(&stream).unwrap_or_default();
        let all: usize = unread.iter().map(Vec::len).sum();
        if all >= BLOCKED_BYTES_MIN {
            self.agenda.at_once(Happening::Blocked(conn, stream, 0));
        }
        for bytes in unread {
            let event = ToClient::Bytes(stream, bytes);
            self.agenda.at_once(Happening::Client(conn, event));
        }
    }

    pub(super) fn client_does(&mut self, conn: ConnId, what: ToServer) {
        let soon = self.agenda.soon(self.setup.pace.link);
        let Some(link) = self.links.get_mut(&conn) else {
            return;
        };
        let at = link.last_to_server.max(soon);
        link.last_to_server = at;
        self.agenda.at(at, Happening::Server(conn, what));
    }

    pub(super) fn client_sees(
        &mut self,
        conn: ConnId,
        event: ToClient,
    ) -> Option<(ConnId, ToClient)> {
        if let Some(link) = self.links.get_mut(&conn)
            && link.stalled
        {
            if let ToClient::Bytes(_, bytes) = &event {
                link.unread_bytes += bytes.len();
            }
            link.unread.push_back(event);
            return None;
        }
        if let ToClient::Bytes(stream, bytes) = &event
            && let Some(link) = self.links.get_mut(&conn)
            && let Some(unread) = link.stalled_streams.get_mut(stream)
        {
            let before: usize = unread.iter().map(Vec::len).sum();
            let (all, stream) = (before + bytes.len(), *stream);
            unread.push(bytes.clone());
            if before < BLOCKED_BYTES_MIN && all >= BLOCKED_BYTES_MIN {
                self.agenda.at_once(Happening::Blocked(conn, stream, all));
            }
            return None;
        }
        match &event {
            ToClient::Bytes(stream, bytes) => {
                self.trace.packets(self.agenda.now, conn, "<", bytes);
                self.trace.note(self.agenda.now, 1, stream.0, bytes);
                if self.links.contains_key(&conn) {
                    let sent = Happening::Sent(conn, *stream, bytes.len());
                    self.agenda.at_once(sent);
                }
            }
            ToClient::Closed(code) => {
                self.trace.note(self.agenda.now, 2, *code, &[]);
                self.links.remove(&conn);
            }
            ToClient::Finished(stream) => {
                // Its transport says so by itself.
                self.client_does(conn, ToServer::Delivered(*stream));
            }
            ToClient::Datagram(bytes) => self.trace.note(self.agenda.now, 5, 0, bytes),
            ToClient::Reset(stream, _) => {
                let link = self.links.get_mut(&conn);
                let unread = link.and_then(|link| link.stalled_streams.remove(stream));
                let all: usize = unread.iter().flatten().map(Vec::len).sum();
                self.agenda.at_once(Happening::Blocked(conn, *stream, 0));
                self.agenda.at_once(Happening::Sent(conn, *stream, all));
            }
        }
        Some((conn, event))
    }
}

/// What SASL on a connection of a client is bound by: other bytes for each.
#[must_use]
pub fn channel_of(conn: ConnId) -> [u8; 32] {
    let mut data = [7; 32];
    let number = conn.serial().to_be_bytes();
    data[..number.len()].copy_from_slice(&number);
    data
}

fn binding_of(transport: Transport) -> Option<BindingType> {
    let binds = transport.is_encrypted();
    binds.then_some(BindingType::TlsExporter)
}

/// As [`World::open_from`], for a client that speaks `protocol`.
///
/// # Panics
/// `addr` is no address.
pub fn open_as(world: &mut World, protocol: &str, addr: &str, identity: Option<&str>) -> ConnId {
    open_with(world, protocol, addr, identity, 0)
}

/// As [`World::open`], at the shard at this place: the homes come first, then the edges.
///
/// # Panics
/// `protocol` is none, or the shard is not there.
pub fn open_on(world: &mut World, place: usize, protocol: &str) -> ConnId {
    assert!(world.cluster.is_up(place), "the shard is not there");
    open_place(world, place, protocol, "127.0.0.1:40000", None, 0)
}

/// Whether the shard at a place, or any, takes connections.
#[must_use]
pub fn takes_connections(world: &World, place: Option<usize>) -> bool {
    world.cluster.is_open(place)
}

/// As [`World::open`], at a listener.
pub fn open_at(world: &mut World, listener: u16) -> ConnId {
    let protocol = world.setup.protocol.unwrap_or("mqtt");
    open_with(world, protocol, "127.0.0.1:40000", None, listener)
}

fn open_with(
    world: &mut World,
    protocol: &str,
    addr: &str,
    identity: Option<&str>,
    listener: u16,
) -> ConnId {
    let turn = (world.conns + 1) % world.shards.len() as u64;
    let place = world.cluster.open_place(turn as usize);
    open_place(world, place, protocol, addr, identity, listener)
}

fn open_place(
    world: &mut World,
    place: usize,
    protocol: &str,
    addr: &str,
    identity: Option<&str>,
    listener: u16,
) -> ConnId {
    world.conns += 1;
    let conn = ConnId::new(world.cluster.number(place), world.conns);
    let peer = Peer {
        addr: addr.parse().expect("an address"),
        transport: world.setup.transport,
        listener,
        identity: identity.map(Into::into),
        protocol: protocol.into(),
        early_data: false,
        binding: binding_of(world.setup.transport),
    };
    let at = world.agenda.soon(world.setup.pace.link);
    let link = Link {
        last_to_server: at,
        last_to_client: at,
        credit: world.setup.server_streams,
        ..Link::default()
    };
    world.links.insert(conn, link);
    world.moves.open(conn, peer.clone());
    world.agenda.at(at, Happening::Opened(conn, Box::new(peer)));
    conn
}
