//! Which address of a client counts. quinn-proto sends to a new address from
//! the first datagram that comes from there and proves it meanwhile
//! (RFC 9000 section 8.2); limits, logs and the application follow only when
//! it is proved, so that a forged source address moves nothing. It knows
//! neither sockets nor limits.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use dunlin_base::Instant;
use dunlin_base::transport::{NetEvent, NetEventKind};
use quinn_proto::Transmit;

use super::conn::{Phase, QuicConn};
use crate::config::plain_addr;
use crate::stream::Cx;

/// Longer than quinn-proto takes to give a new path up: three probe timeouts.
/// A client that once answered a challenge it never got must stay so long.
const DOUBT: Duration = Duration::from_secs(30);

/// The address of the peer that counts, and the one that is being proved.
#[derive(Debug)]
pub(super) struct PeerAddr {
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
    pub(super) const fn new(addr: SocketAddr) -> Self {
        Self {
            counts: addr,
            candidate: None,
            lied: false,
        }
    }

    pub(super) const fn get(&self) -> SocketAddr {
        self.counts
    }

    /// Whether quinn-proto uses `now_used`, which does not count yet.
    pub(super) fn differs(&self, now_used: SocketAddr) -> bool {
        now_used != self.counts || self.candidate.is_some()
    }

    /// quinn-proto uses `used`, and the peer has sent so many PATH_RESPONSE
    /// frames. Returns whether another address counts from now on.
    ///
    /// That a response carries the right token is known to quinn-proto only;
    /// a wrong one shows when it gives the path up, see [`Self::gave_up`].
    pub(super) fn see(&mut self, used: SocketAddr, responses: u64, now: Instant) -> Seen {
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
    pub(super) fn gave_up(&mut self, from: SocketAddr, back: SocketAddr) -> Seen {
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
pub(super) enum Seen {
    /// Nothing changed.
    Same,
    /// Another address counts now.
    Moved,
    /// An address was given up before it was proved.
    Unproved,
}

impl QuicConn {
    /// Looks whether the peer uses another address, and has proved it.
    pub(super) fn check_address(&mut self, cx: &mut Cx<'_>) {
        let used = self.proto.remote_address();
        if self.addr.differs(used) {
            let responses = self.proto.stats().frame_rx.path_response;
            let seen = self.addr.see(used, responses, cx.now);
            self.report_address(seen, cx);
        }
    }

    /// A timer fired before which the peer was at `used`: quinn-proto gives a
    /// path up then.
    pub(super) fn check_returned(&mut self, used: SocketAddr, cx: &mut Cx<'_>) {
        let back = self.proto.remote_address();
        if back != used {
            // What was lost with the path shows when this is acknowledged; and
            // quinn-proto must not be left with a timer for that path.
            self.proto.ping();
            let seen = self.addr.gave_up(used, back);
            self.report_address(seen, cx);
        }
    }

    fn report_address(&mut self, seen: Seen, cx: &mut Cx<'_>) {
        match seen {
            Seen::Same => {}
            Seen::Unproved => cx.counters.migrations_unproved += 1,
            Seen::Moved => {
                cx.counters.migrations += 1;
                self.moved = self.moved.saturating_add(1);
                if let Some(log) = &self.log {
                    log.migrated(plain_addr(self.addr.get()));
                }
                if self.phase == Phase::Open {
                    (cx.out)(NetEvent::new(
                        self.id,
                        NetEventKind::Migrated {
                            addr: plain_addr(self.addr.get()),
                        },
                    ));
                }
            }
        }
    }

    /// Sets where it comes from; false if it must not go. That is a search for
    /// a larger packet towards an address that is not proved: quinn-proto does
    /// not count it against the limit of what may be sent there (RFC 9000
    /// section 8). Lost, it is tried again later.
    pub(crate) fn lets_leave(&self, transmit: &mut Transmit) -> bool {
        if self.accepted
            && self.addr.differs(transmit.destination)
            && transmit.segment_size.is_none()
            && transmit.size > usize::from(self.proto.stats().path.current_mtu)
        {
            return false;
        }
        transmit.src_ip = self.pinned_ip().or(transmit.src_ip);
        true
    }

    /// The peer has proved another address: limits count it there, and no
    /// longer at the first of the two.
    pub(crate) fn take_new_ip(&mut self) -> Option<(IpAddr, IpAddr)> {
        let ip = plain_addr(self.addr.get()).ip();
        let was = core::mem::replace(&mut self.admitted_ip, ip);
        (self.accepted && was != ip).then_some((was, ip))
    }

    /// The server has said that the handshake is over.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.phase == Phase::Open
            && !self.proto.is_handshaking()
            && self.proto.stats().frame_rx.handshake_done > 0
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
