//! A connection of QUIC in the table of the loop: the sockets that it uses, and
//! what the loop has to remember of it.

use core::net::{IpAddr, SocketAddr};

use dunlin_base::transport::plain_addr;
use dunlin_quic::{Input, QuicConn};

use crate::relay::{Way, Ways};
use crate::strangers::Ticket;
use crate::timers::Armed;

/// A connection over QUIC.
#[derive(Debug)]
pub(super) struct QuicSlot {
    pub(super) conn: QuicConn,
    /// Index of its endpoint among the loop's sources.
    pub(super) source: usize,
    /// Index of the socket that it sends from; another one after it moved.
    pub(super) via: usize,
    /// Addresses of the client that other processes reach.
    pub(super) ways: Ways,
    /// The address under which limits count it.
    pub(super) admitted_ip: IpAddr,
    /// Its place among the peers that are not known yet.
    pub(super) stranger: Option<Ticket>,
    /// Listed for transmission.
    pub(super) dirty: bool,
    /// Listed to be run after datagrams.
    pub(super) touched: bool,
    /// Listed among those whose acknowledgement waits.
    pub(super) ack_waits: bool,
    pub(super) armed: Armed,
}

impl QuicSlot {
    pub(super) fn new(conn: QuicConn, source: usize) -> Self {
        let remote = conn.path().proved();
        Self {
            source,
            via: source,
            ways: Ways::default(),
            admitted_ip: plain_addr(remote).ip(),
            stranger: None,
            dirty: false,
            touched: false,
            ack_waits: false,
            armed: Armed::NEVER,
            conn,
        }
    }

    /// Has the connection take a datagram from `remote`, which came by another process or
    /// not. Answers go that way from then on, if it was authentic and new: no one else is
    /// to say which way they go.
    pub(super) fn take(
        &mut self,
        input: Input,
        (remote, way): (SocketAddr, Option<Way>),
        on_input: impl FnOnce(&mut QuicConn, Input),
    ) {
        if way.is_none() && !self.ways.has_any() {
            return on_input(&mut self.conn, input);
        }
        let before = self.conn.path().frames_in();
        on_input(&mut self.conn, input);
        if self.conn.path().frames_in() > before {
            self.ways.note(remote, way);
        }
    }

    /// The peer has proved another address: limits count it there, and no
    /// longer at the first of the two.
    pub(super) fn take_new_ip(&mut self) -> Option<(IpAddr, IpAddr)> {
        let ip = plain_addr(self.conn.path().proved()).ip();
        let was = core::mem::replace(&mut self.admitted_ip, ip);
        (self.conn.is_accepted() && was != ip).then_some((was, ip))
    }
}
