//! Which path a connection uses. quinn-proto sends to a new address of a peer
//! from the first datagram that comes from there and proves it meanwhile
//! (RFC 9000 section 8.2); limits, logs and the application follow only when
//! it is proved, so that a forged source address moves nothing. What a dialled
//! connection does to move is in [`moves`].

mod moves;
mod silence;

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::time::Instant as StdInstant;

use dunlin_base::Instant;
use quinn_proto::Connection;

pub use moves::{Due, Moves, Probe};

use crate::datagram::Transmit;
use crate::{Counters, QuicStats};

/// Longer than quinn-proto takes to give a new path up: three probe timeouts.
/// A client that once answered a challenge it never got must stay so long.
const DOUBT: Duration = Duration::from_secs(30);

/// The address of the peer that counts, and the one that is being proved.
#[derive(Debug)]
struct PeerAddr {
    counts: SocketAddr,
    /// Boxed: few connections ever have one.
    candidate: Option<Box<Candidate>>,
    /// The peer sent a PATH_RESPONSE to a challenge that did not reach it.
    lied: bool,
}

#[derive(Debug)]
struct Candidate {
    addr: SocketAddr,
    /// PATH_RESPONSE frames received before it.
    responses: u64,
    since: Instant,
}

impl PeerAddr {
    const fn new(addr: SocketAddr) -> Self {
        Self {
            counts: addr,
            candidate: None,
            lied: false,
        }
    }

    const fn get(&self) -> SocketAddr {
        self.counts
    }

    /// Whether quinn-proto uses `now_used`, which does not count yet.
    fn differs(&self, now_used: SocketAddr) -> bool {
        now_used != self.counts || self.candidate.is_some()
    }

    /// quinn-proto uses `used`, and the peer has sent so many PATH_RESPONSE
    /// frames. Returns whether another address counts from now on.
    ///
    /// That a response carries the right token is known to quinn-proto only;
    /// a wrong one shows when it gives the path up, see [`Self::gave_up`].
    fn see(&mut self, used: SocketAddr, responses: u64, now: Instant) -> Seen {
        if used == self.counts {
            let dropped = self.candidate.take().is_some();
            return if dropped { Seen::Unproved } else { Seen::Same };
        }
        let doubtful = self.lied;
        match &self.candidate {
            Some(c) if c.addr == used => {
                let waits = doubtful && now.saturating_duration_since(c.since) < DOUBT;
                if responses > c.responses && !waits {
                    self.counts = used;
                    self.candidate = None;
                    return Seen::Moved;
                }
                Seen::Same
            }
            // The first challenge leaves after this, so that responses counted
            // by now answer none.
            other => {
                let dropped = other.is_some();
                self.candidate = Some(Box::new(Candidate {
                    addr: used,
                    responses,
                    since: now,
                }));
                if dropped { Seen::Unproved } else { Seen::Same }
            }
        }
    }

    /// quinn-proto returned to `back`, because the path to `from` was not
    /// proved in time.
    fn gave_up(&mut self, from: SocketAddr, back: SocketAddr) -> Seen {
        self.candidate = None;
        if self.counts == from && from != back {
            self.lied = true;
            self.counts = back;
            return Seen::Moved;
        }
        Seen::Unproved
    }
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::conn) enum Seen {
    /// Nothing changed.
    Same,
    /// Another address counts now.
    Moved,
    /// An address was given up before it was proved.
    Unproved,
}

/// The path of one connection.
#[derive(Debug)]
pub(super) struct Path {
    peer: PeerAddr,
    /// Of a dialled connection.
    moves: Option<Box<Moves>>,
    /// Address changes of the peer.
    migrations: u32,
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
    pub(super) fn new(remote: SocketAddr, dialled: bool) -> Self {
        Self {
            peer: PeerAddr::new(remote),
            moves: dialled.then(|| Box::new(Moves::new())),
            migrations: 0,
            marks: Marks::default(),
            noted: Noted::default(),
        }
    }

    /// The address of the peer that counts.
    pub(super) const fn addr(&self) -> SocketAddr {
        self.peer.get()
    }

    /// Whether a transmission may go. Not a server's search for a larger packet
    /// towards an address that is not proved: quinn-proto does not count it
    /// against the limit of what may be sent there (RFC 9000 section 8). Lost,
    /// it is tried again later.
    pub(super) fn lets_leave(&self, transmit: &Transmit, proto: &Connection) -> bool {
        let accepted = self.moves.is_none();
        !(accepted
            && self.peer.differs(transmit.destination)
            && transmit.segment_size.is_none()
            && transmit.size > usize::from(proto.stats().path.current_mtu))
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
        let moves = self.moves.as_ref();
        moves.map_or(Instant::FAR_FUTURE, |moves| moves.deadline())
    }

    /// Looks whether the peer uses another address, and has proved it.
    pub(super) fn check_address(&mut self, proto: &Connection, now: Instant) -> Seen {
        let used = proto.remote_address();
        if !self.peer.differs(used) {
            return Seen::Same;
        }
        let responses = proto.stats().frame_rx.path_response;
        let seen = self.peer.see(used, responses, now);
        self.count(seen)
    }

    /// A timer fired before which the peer was at `used`: quinn-proto gives a
    /// path up then.
    pub(super) fn check_returned(&mut self, used: SocketAddr, proto: &mut Connection) -> Seen {
        let back = proto.remote_address();
        if back == used {
            return Seen::Same;
        }
        // What was lost with the path shows when this is acknowledged; and
        // quinn-proto must not be left with a timer for that path.
        proto.ping();
        let seen = self.peer.gave_up(used, back);
        self.count(seen)
    }

    fn count(&mut self, seen: Seen) -> Seen {
        if seen == Seen::Moved {
            self.migrations = self.migrations.saturating_add(1);
        }
        seen
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

/// Where a connection goes, and how it moves.
#[derive(Clone, Copy)]
pub struct PathRef<'a> {
    path: &'a Path,
    proto: &'a Connection,
    is_open: bool,
}

impl fmt::Debug for PathRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PathRef").finish_non_exhaustive()
    }
}

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

impl fmt::Debug for PathMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PathMut").finish_non_exhaustive()
    }
}

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
    /// section 9.4).
    pub fn on_moved(&mut self, only_port: bool, now: StdInstant) {
        if !only_port {
            self.proto.path_changed(now);
        }
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

    fn addr(n: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, n], 1883))
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn an_address_counts_when_it_is_proved() {
        let mut peer = PeerAddr::new(addr(1));
        assert_eq!(peer.see(addr(1), 0, at(0)), Seen::Same);
        assert!(!peer.differs(addr(1)));
        assert_eq!(peer.see(addr(2), 7, at(0)), Seen::Same);
        assert_eq!(peer.get(), addr(1));
        assert!(peer.differs(addr(2)));
        assert_eq!(peer.see(addr(2), 8, at(1)), Seen::Moved);
        assert_eq!(peer.get(), addr(2));
        assert_eq!(peer.see(addr(2), 8, at(1)), Seen::Same);
    }

    #[test]
    fn an_address_that_is_not_proved_never_counts() {
        let mut peer = PeerAddr::new(addr(1));
        peer.see(addr(2), 0, at(0));
        assert_eq!(peer.see(addr(3), 0, at(0)), Seen::Unproved);
        assert_eq!(peer.gave_up(addr(3), addr(1)), Seen::Unproved);
        assert_eq!(peer.get(), addr(1));
        peer.see(addr(4), 0, at(0));
        assert_eq!(peer.see(addr(1), 1, at(0)), Seen::Unproved, "it came back");
        assert_eq!(peer.see(addr(1), 2, at(0)), Seen::Same);
    }

    #[test]
    fn who_answered_a_challenge_it_did_not_get_is_believed_late() {
        let mut peer = PeerAddr::new(addr(1));
        peer.see(addr(2), 0, at(0));
        assert_eq!(peer.see(addr(2), 1, at(0)), Seen::Moved);
        assert_eq!(peer.gave_up(addr(2), addr(1)), Seen::Moved);
        assert_eq!(peer.get(), addr(1));
        peer.see(addr(2), 1, at(10));
        assert_eq!(peer.see(addr(2), 2, at(39)), Seen::Same);
        assert_eq!(peer.see(addr(2), 2, at(40)), Seen::Moved);
    }
}
