//! Which path a connection uses. Which address of a client is believed is in
//! [`proof`], what a dialled connection does to move in [`moves`].

mod moves;
mod proof;
mod silence;

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::time::Instant as StdInstant;

use dunlin_base::Instant;
use quinn_proto::Connection;

pub use moves::{Due, Moves, Probe};
use proof::Proof;
pub(in crate::conn) use proof::{Credit, Kept};

use crate::datagram::Transmit;
use crate::endpoint::FirstDatagram;
use crate::{Counters, QuicStats, session, window};

/// What became of the addresses of the peer since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::conn) struct News {
    /// Another address counts now.
    pub(in crate::conn) moved: bool,
    /// Addresses that were given up before they were proved.
    pub(in crate::conn) unproved: u32,
}

/// The path of one connection.
#[derive(Debug)]
pub(super) struct Path {
    /// The address of the peer that counts: the last that proved itself.
    addr: SocketAddr,
    /// Of an accepted connection. Boxed: few ever have one after the handshake.
    proof: Option<Box<Proof>>,
    news: News,
    /// Of a dialled connection.
    moves: Option<Box<Moves>>,
    /// Address changes of the peer.
    migrations: u32,
    /// Datagrams that quinn-proto believes to have come, and their bytes.
    credited: (u32, u64),
    marks: Marks,
    noted: Noted,
}

/// What of a path is already in the loop's totals. Statistics of a path begin
/// again when the peer moves to another.
#[derive(Debug, Default)]
struct Noted {
    packets_out: u64,
    packets_lost: u64,
    bytes_lost: u64,
    congestion_events: u64,
    black_holes: u64,
}

/// Marks of ECN (RFC 9000 section 13.4).
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::conn) struct Marks {
    /// What was sent last is marked as capable.
    pub(in crate::conn) capable: bool,
    /// Datagrams received that the network marked for congestion.
    pub(in crate::conn) congested_in: u32,
}

/// What came since the last look.
const fn fresh(noted: &mut u64, value: u64) -> u64 {
    let before = core::mem::replace(noted, value);
    if value >= before {
        value - before
    } else {
        value
    }
}

impl Path {
    /// `first`: of an accepted connection.
    pub(super) fn new(remote: SocketAddr, first: Option<FirstDatagram>) -> Self {
        let unproved = first.filter(|first| !first.proves_address);
        let proof = unproved.map(|first| Box::new(Proof::of_handshake(remote, first.bytes)));
        Self {
            addr: remote,
            proof,
            news: News::default(),
            moves: first.is_none().then(|| Box::new(Moves::new())),
            migrations: 0,
            credited: (0, 0),
            marks: Marks::default(),
            noted: Noted::default(),
        }
    }

    /// The address of the peer that counts.
    pub(super) const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// A datagram came; `local_ip`: by the path in use, and to where.
    pub(super) fn on_datagram(
        &mut self,
        proto: &Connection,
        local_ip: Option<Option<IpAddr>>,
        now: Instant,
    ) {
        if let Some(moves) = &mut self.moves {
            if let Some(local_ip) = local_ip {
                moves.set_local_ip(local_ip);
            }
            if moves.counts_frames() {
                let frames = proto.stats().frame_rx;
                moves.on_frames(frames.stream + frames.datagram, now);
            }
        }
    }

    /// A datagram is about to be taken, from that address.
    pub(super) fn before_datagram(&mut self, remote: SocketAddr, bytes: usize) {
        let unproved = remote != self.addr || self.is_first_unproved();
        if self.moves.is_some() || (!unproved && self.proof.is_none()) {
            return;
        }
        let proof = self.proof.get_or_insert_default();
        if unproved {
            proof.received(remote, bytes);
        } else {
            proof.proved_heard();
        }
    }

    /// A datagram was taken, from `remote`: quinn-proto used `used` before, and
    /// a round trip there took `rtt`.
    pub(super) fn after_datagram(
        &mut self,
        remote: SocketAddr,
        (used, rtt): (SocketAddr, Duration),
        credit: Credit,
        proto: &mut Connection,
        now: Instant,
    ) {
        let Some(proof) = &mut self.proof else {
            return;
        };
        if proof.is_first_unproved() {
            if !session::inspector(proto).is_some_and(|i| i.is_handshake_opened()) {
                return;
            }
            proof.first_is_proved(self.addr);
        }
        let uses = proto.remote_address();
        if uses != used {
            proof.give_credit(credit);
            let given_up = match session::inspector(proto).filter(|_| uses != self.addr) {
                Some(inspector) => proof.begin(uses, inspector, rtt, credit, now),
                None => proof.end(),
            };
            self.news.unproved += u32::from(given_up);
        } else if proof.heard(remote, now) {
            proto.ping();
            if proof.wants_new() && give_up_early(proto, credit.at) {
                let _ = proof.give_up(used);
            }
        }
        if let Some(addr) = proof.take_proved(self.addr) {
            self.addr = addr;
            self.has_moved();
            // What was sent to the former address is lost.
            proto.ping();
        }
        if self.proof.as_ref().is_some_and(|proof| proof.is_empty()) {
            self.proof = None;
        }
    }

    fn has_moved(&mut self) {
        self.news.moved = true;
        self.migrations = self.migrations.saturating_add(1);
    }

    fn is_first_unproved(&self) -> bool {
        let proof = self.proof.as_ref();
        proof.is_some_and(|proof| proof.is_first_unproved())
    }

    /// Whether it is the address that counts and the peer has proved it: copies of what
    /// goes anywhere else would not be counted.
    pub(super) fn is_proved(&self, addr: SocketAddr) -> bool {
        addr == self.addr && !self.is_first_unproved()
    }

    /// How many datagrams may be made at once, at most `most`. None while the
    /// handshake has no room for a whole one.
    pub(super) fn datagrams(&self, proto: &Connection, most: usize) -> usize {
        match &self.proof {
            Some(proof) if proof.is_first_unproved() => {
                most.min(proof.room(self.addr) / usize::from(proto.current_mtu()))
            }
            Some(proof) if proof.expect() => 1,
            _ => most,
        }
    }

    /// Says where a transmission really goes, and of which only a part is
    /// sent; whether it goes at all.
    pub(super) fn route(
        &mut self,
        transmit: &mut Transmit,
        contents: &[u8],
        proto: &Connection,
        now: Instant,
    ) -> bool {
        let Some(proof) = &mut self.proof else {
            return true;
        };
        if transmit.destination == proto.remote_address() {
            transmit.destination = self.addr;
            proof.uses_credit(transmit.size);
        }
        let sealed = proof.take_sealed();
        if let Some(sealed) = sealed.filter(|_| transmit.segment_size.is_none()) {
            transmit.size = transmit.size.min(sealed.bytes);
            if let (Some(data), Some(datagram)) = (sealed.challenge, contents.get(..transmit.size))
                && let Some(tried) = proof.challenged(data, datagram, now)
            {
                transmit.destination = tried;
            }
        }
        let proved = transmit.destination == self.addr && !proof.is_first_unproved();
        proved || proof.take_room(transmit.destination, transmit.size)
    }

    /// This goes to the proved address: the one that is tried may get a copy
    /// now, or get it later.
    pub(super) fn copies_to(&mut self, transmit: &Transmit, contents: &[u8]) -> Option<SocketAddr> {
        let proof = self.proof.as_mut()?;
        if transmit.destination != self.addr {
            return None;
        }
        let copies_to = proof.copies_to(transmit.size);
        if copies_to.is_none() {
            proof.keep(transmit, contents);
        }
        copies_to
    }

    /// What goes again to the address that has just been proved.
    pub(super) fn take_again(&mut self) -> Vec<Kept> {
        let proof = self.proof.as_mut();
        proof.map_or_else(Vec::new, |proof| proof.take_again())
    }

    /// Credit that quinn-proto is to be given.
    pub(super) fn take_credit(&mut self) -> Option<Credit> {
        self.proof.as_mut()?.take_credit()
    }

    pub(super) const fn count_credit(&mut self, bytes: usize) {
        let (datagrams, sum) = &mut self.credited;
        *datagrams = datagrams.saturating_add(1);
        *sum += bytes as u64;
    }

    pub(super) const fn credited(&self) -> (u32, u64) {
        self.credited
    }

    /// A challenge that is sent again, and where to.
    pub(super) fn due_challenge(&mut self) -> Option<(SocketAddr, &[u8])> {
        self.proof.as_mut()?.due()
    }

    pub(super) const fn count_congested(&mut self) {
        self.marks.congested_in = self.marks.congested_in.saturating_add(1);
    }

    /// What was sent last was marked as capable of ECN, or not.
    pub(super) const fn note_ecn(&mut self, capable: bool) {
        self.marks.capable = capable;
    }

    pub(super) const fn marks(&self) -> Marks {
        self.marks
    }

    pub(super) const fn migrations(&self) -> u32 {
        self.migrations
    }

    /// Where datagrams must come from.
    pub(super) fn pinned_ip(&self) -> Option<IpAddr> {
        self.moves.as_ref().and_then(|moves| moves.pinned_ip())
    }

    pub(super) fn deadline(&self) -> Instant {
        let moves = self.moves.as_ref().map(|moves| moves.deadline());
        let proof = self.proof.as_ref().map(|proof| proof.deadline());
        let first = moves.into_iter().chain(proof).min();
        first.unwrap_or(Instant::FAR_FUTURE)
    }

    /// What happened since the last call.
    pub(super) const fn take_news(&mut self) -> News {
        core::mem::replace(
            &mut self.news,
            News {
                moved: false,
                unproved: 0,
            },
        )
    }

    /// Timers fired before which quinn-proto used `used`: it gives a path up
    /// then, and returns to the one before.
    pub(super) fn on_timer(&mut self, used: SocketAddr, proto: &mut Connection, now: Instant) {
        let Some(proof) = &mut self.proof else {
            return;
        };
        self.news.unproved += u32::from(proof.end_when_due(now));
        if proof.repeats(now) {
            proto.ping();
        }
        let back = proto.remote_address();
        if back == used {
            return;
        }
        // What was lost with the path shows when this is acknowledged; and
        // quinn-proto must not be left with a timer for that path.
        proto.ping();
        self.news.unproved += u32::from(proof.give_up(used));
        if used == self.addr && proof.take_former(back) {
            self.addr = back;
            self.has_moved();
        }
    }

    /// Adds what is new to the loop's totals.
    fn note_totals(&mut self, stats: &QuicStats, counters: &mut Counters) {
        let noted = &mut self.noted;
        counters.quic_packets_out += fresh(&mut noted.packets_out, stats.packets_out);
        counters.quic_packets_lost += fresh(&mut noted.packets_lost, stats.lost_packets);
        counters.quic_lost_bytes += fresh(&mut noted.bytes_lost, stats.lost_bytes);
        counters.quic_congestion_events +=
            fresh(&mut noted.congestion_events, stats.congestion_events);
        counters.quic_black_holes += fresh(&mut noted.black_holes, stats.black_holes);
    }
}

/// Has quinn-proto give up the path that it is validating, as it does after
/// three probe timeouts: nothing but its timer ends that. Whether it did. The
/// peer was heard just now: its idle timer, three probe timeouts at least, is
/// later.
fn give_up_early(proto: &mut Connection, now: StdInstant) -> bool {
    /// Longer than those are where no round trip is known.
    const AHEAD: Duration = Duration::from_secs(4);
    /// Timers before that one.
    const TIMERS_MAX: usize = 8;
    let used = proto.remote_address();
    for _ in 0..TIMERS_MAX {
        let Some(at) = proto.poll_timeout().filter(|at| *at <= now + AHEAD) else {
            break;
        };
        proto.handle_timeout(at);
        if proto.remote_address() != used {
            return true;
        }
    }
    false
}

/// Where a connection goes, and how it moves.
#[derive(Clone, Copy)]
pub struct PathRef<'a> {
    path: &'a Path,
    proto: &'a Connection,
    is_open: bool,
}

dunlin_base::opaque_debug!(PathRef<'_>);

impl<'a> PathRef<'a> {
    pub(super) const fn new(path: &'a Path, proto: &'a Connection, is_open: bool) -> Self {
        Self {
            path,
            proto,
            is_open,
        }
    }

    /// Where it sends to, proved or not.
    #[must_use]
    pub fn remote(&self) -> SocketAddr {
        self.proto.remote_address()
    }

    /// Whether the client of an accepted connection has answered in the
    /// handshake.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        session::inspector(self.proto).is_some_and(|i| i.is_handshake_opened())
    }

    /// The address of the peer that counts.
    #[must_use]
    pub const fn proved(&self) -> SocketAddr {
        self.path.addr()
    }

    /// Smoothed round-trip time.
    #[must_use]
    pub fn rtt(&self) -> Duration {
        self.proto.rtt()
    }

    /// Frames that came in packets that were authentic and new, without padding.
    #[must_use]
    pub fn frames_in(&self) -> u64 {
        let it = self.proto.stats().frame_rx;
        [
            it.acks,
            it.ack_frequency,
            it.crypto,
            it.connection_close,
            it.data_blocked,
            it.datagram,
            it.immediate_ack,
            it.max_data,
            it.max_stream_data,
            it.max_streams_bidi,
            it.max_streams_uni,
            it.new_connection_id,
            it.path_challenge,
            it.path_response,
            it.ping,
            it.reset_stream,
            it.retire_connection_id,
            it.stream_data_blocked,
            it.streams_blocked_bidi,
            it.streams_blocked_uni,
            it.stop_sending,
            it.stream,
        ]
        .iter()
        .sum()
    }

    /// PING frames sent.
    #[must_use]
    pub fn pings_sent(&self) -> u64 {
        self.proto.stats().frame_tx.ping
    }

    /// Of a dialled connection: the plan of its moves.
    #[must_use]
    pub fn moves(&self) -> Option<&'a Moves> {
        self.path.moves.as_deref()
    }

    /// The server has said that the handshake is over.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        self.is_open
            && !self.proto.is_handshaking()
            && self.proto.stats().frame_rx.handshake_done > 0
    }

    /// Whether the server asked not to be moved away from.
    #[must_use]
    pub fn is_move_forbidden(&self) -> bool {
        moves::is_forbidden(self.proto)
    }
}

/// As [`PathRef`], to change.
pub struct PathMut<'a> {
    path: &'a mut Path,
    proto: &'a mut Connection,
}

dunlin_base::opaque_debug!(PathMut<'_>);

impl<'a> PathMut<'a> {
    pub(super) const fn new(path: &'a mut Path, proto: &'a mut Connection) -> Self {
        Self { path, proto }
    }

    /// As [`PathRef::moves`], to change.
    pub fn moves(&mut self) -> Option<&mut Moves> {
        self.path.moves.as_deref_mut()
    }

    /// Asks the peer for an acknowledgement.
    pub fn ping(&mut self) {
        self.proto.ping();
    }

    /// It sends from another socket from now on. What is known of the old path
    /// says nothing of the new one, unless only the port differs (RFC 9000
    /// section 9.4). What is in flight at the old one does not keep it from
    /// speaking.
    pub fn on_moved(&mut self, only_port: bool, now: StdInstant) {
        window::change_path(self.proto, only_port, now);
        self.proto.local_address_changed();
    }

    /// Adds what is new to the loop's totals.
    pub fn note_totals(&mut self, stats: &QuicStats, counters: &mut Counters) {
        self.path.note_totals(stats, counters);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_proved_once_the_client_has_answered() {
        let [addr, other] = [1, 2].map(|port| SocketAddr::from(([10, 0, 0, 1], port)));
        for (proves_address, proved) in [(false, false), (true, true)] {
            let first = FirstDatagram {
                bytes: 1200,
                proves_address,
            };
            let mut path = Path::new(addr, Some(first));
            assert_eq!(path.is_proved(addr), proved);
            assert!(!path.is_proved(other));
            if let Some(proof) = &mut path.proof {
                proof.first_is_proved(addr);
            }
            assert!(path.is_proved(addr));
        }
        assert!(Path::new(addr, None).is_proved(addr), "dialled");
    }
}
