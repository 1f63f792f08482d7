//! Accepted connections until the application knows the peer: they are counted
//! as pending, their bytes have bounds, and one makes room for another.

use core::net::IpAddr;

use dunlin_base::ConnId;
use dunlin_base::transport::CloseCause;

use super::super::env::Env;
use super::{Conn, Conns, find_in};
use crate::admission::{Refusal, Standing};
use crate::strangers::{Strangers, Ticket};

impl Conns {
    /// The application knows the peer of a connection.
    pub(super) fn accept(&mut self, conn: ConnId, env: &Env) {
        if let Some(conn) = find_in(&mut self.slots, self.shard, conn) {
            forget(&mut self.strangers, conn, env);
            if let Conn::Quic(quic) = conn {
                quic.conn.binding().settle();
            }
        }
    }

    /// The connection of an unknown peer was run, which has sent some bytes.
    pub(super) fn check_unknown(
        &mut self,
        serial: u64,
        bytes: usize,
        handshaking: bool,
        env: &mut Env,
    ) {
        let conn = self.id(serial);
        if !env.config.accepts_peers && !handshaking {
            self.accept(conn, env);
            return;
        }
        let stranger = self.slots.get_mut(serial).map(place);
        let Some((ip, Some(ticket))) = stranger.map(|(ip, ticket)| (ip, *ticket)) else {
            return;
        };
        let here = self.strangers.add_bytes(ip, ticket, bytes);
        let all = env.admission().add_unknown_bytes(bytes);
        let limits = env.limits();
        let exceeded =
            here > limits.unknown_bytes_per_address_max || all > limits.unknown_bytes_max;
        if bytes > 0 && exceeded {
            env.counters.unknown_bytes_exceeded += 1;
            let why = "clients that are not known yet have sent too many bytes";
            self.end(conn, CloseCause::failed(why), env);
        }
    }

    /// Takes a place for a connection from `ip`; where too many peers are not
    /// known, another of them ends.
    ///
    /// # Errors
    /// A limit is reached.
    pub(crate) fn admit(
        &mut self,
        ip: IpAddr,
        standing: Standing,
        env: &mut Env,
    ) -> Result<(), Refusal> {
        let admit = |env: &Env| env.admission().admit(ip, standing, env.now, env.limits());
        match admit(env) {
            Err(Refusal::Pending) if self.make_room(ip, env) => admit(env),
            result => result,
        }
    }

    /// Ends a connection of an unknown peer in favour of one from `ip`; whether
    /// there was any.
    fn make_room(&mut self, ip: IpAddr, env: &mut Env) -> bool {
        let slots = &self.slots;
        let is_silent = |serial| match slots.get(serial) {
            Some(Conn::Stream(tcp)) => tcp.input.is_mute(),
            Some(Conn::Quic(quic)) => !quic.conn.path().is_answered(),
            None => false,
        };
        let Some(serial) = self.strangers.victim(ip, is_silent) else {
            return false;
        };
        let conn = self.id(serial);
        self.accept(conn, env);
        env.counters.made_room += 1;
        self.end(conn, CloseCause::failed("made room for another"), env);
        true
    }
}

/// Lists a new connection, if it was accepted.
pub(super) fn enter(strangers: &mut Strangers, conn: &mut Conn, serial: u64) {
    let accepted = match conn {
        Conn::Stream(tcp) => tcp.is_accepted(),
        Conn::Quic(quic) => quic.conn.is_accepted(),
    };
    if accepted {
        let (ip, stranger) = place(conn);
        *stranger = Some(strangers.enter(ip, serial));
    }
}

/// Takes a connection from those of unknown peers, if it is one of them.
pub(super) fn forget(strangers: &mut Strangers, conn: &mut Conn, env: &Env) {
    let (ip, stranger) = place(conn);
    if let Some(ticket) = stranger.take() {
        let admission = env.admission();
        admission.drop_unknown_bytes(strangers.leave(ip, ticket));
        admission.handshake_over();
    }
}

fn place(conn: &mut Conn) -> (IpAddr, &mut Option<Ticket>) {
    match conn {
        Conn::Stream(tcp) => (tcp.addr().ip(), &mut tcp.stranger),
        Conn::Quic(quic) => (quic.admitted_ip, &mut quic.stranger),
    }
}
