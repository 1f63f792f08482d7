//! A dialled connection that moves to another local address: the probe that
//! goes before it, and what is still owed to it afterwards. Sockets are the
//! loop's; this only keeps the plan.
//!
//! quinn-proto cannot challenge a path before it uses it. So the probe is a
//! packet of a version that does not exist: a server must answer it with a
//! Version Negotiation packet (RFC 9000 section 6.1), which shows that
//! datagrams of 1,200 bytes get there and that answers come back.

use core::net::IpAddr;
use core::time::Duration;

use dunlin_base::Instant;
use quinn_proto::Connection;

use super::silence::Silence;

/// Bytes of a probe: below it a server does not answer (RFC 9000 section
/// 14.1).
const PROBE_BYTES: usize = 1200;
const PROBE_CID_BYTES: usize = 8;
/// A version reserved to force negotiation (RFC 9000 section 15).
const PROBE_VERSION: u32 = 0x5a6a_7a8a;
/// The first probe is repeated after two round trips, but not sooner.
const PROBE_REPEAT_MIN: Duration = Duration::from_millis(50);

/// A server that lost our answer to its challenge returns to the old address
/// after three probe timeouts, and a ping then leads it to the new one again.
/// A connection with nothing to say would never send one.
const PINGS_AFTER: [Duration; 3] = [
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(16),
];

/// Sockets left behind that stay open for late datagrams.
const LEFT_MAX: usize = 2;

/// What a dialled connection remembers of its paths.
#[derive(Debug)]
pub struct Moves {
    /// Where its datagrams arrive.
    local_ip: Option<IpAddr>,
    probe: Option<Probe>,
    /// When it moved last, and which ping is next.
    pings: Option<(Instant, usize)>,
    /// Numbers of the sockets that it left, the oldest first.
    left: Vec<usize>,
    /// It stays at its address until we move it.
    pins: bool,
    /// Of one that follows the network: whether the peer lost sight of it.
    silence: Option<Silence>,
    /// Frames with data received so far.
    data_frames: u64,
}

/// A probe under way.
#[derive(Debug)]
pub struct Probe {
    /// Number of the new socket in the loop.
    path: usize,
    /// Our connection id in it, by which the answer is known.
    id: [u8; PROBE_CID_BYTES],
    repeat: Duration,
    next: Instant,
    end: Instant,
}

/// What is to be done now.
#[derive(Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing.
    Nothing,
    /// Send the probe again.
    Probe,
    /// No answer came.
    NoAnswer,
    /// Send something, so that the server learns where we are.
    Ping,
    /// It has settled: close what it left.
    Settled,
}

impl Moves {
    pub(super) const fn new() -> Self {
        Self {
            local_ip: None,
            probe: None,
            pings: None,
            left: Vec::new(),
            pins: false,
            silence: None,
            data_frames: 0,
        }
    }

    /// It follows the network: it asks when a peer that sent steadily falls
    /// silent. If changes of the network are `heard` of, it stays at its
    /// address until it moves; else the system may change that at any time,
    /// untried and with ids that link both.
    pub fn follow(&mut self, heard: bool) {
        self.silence = Some(Silence::default());
        self.pins = heard;
    }

    /// Where its datagrams arrive, as far as that is known.
    #[must_use]
    pub const fn local_ip(&self) -> Option<IpAddr> {
        self.local_ip
    }

    pub(super) const fn set_local_ip(&mut self, ip: Option<IpAddr>) {
        self.local_ip = ip;
    }

    /// The probe under way.
    #[must_use]
    pub const fn probe(&self) -> Option<&Probe> {
        self.probe.as_ref()
    }

    /// Ends the probe; the number of its socket.
    pub fn end_probe(&mut self) -> Option<usize> {
        self.probe.take().map(|probe| probe.path)
    }

    /// The address to send from; `None`: as the socket and the system say.
    pub(super) fn pinned_ip(&self) -> Option<IpAddr> {
        self.local_ip.filter(|_| self.pins)
    }

    /// A datagram came; the peer has sent so many frames with data.
    pub(super) fn on_frames(&mut self, data_frames: u64, now: Instant) {
        let more = core::mem::replace(&mut self.data_frames, data_frames) < data_frames;
        if let Some(silence) = &mut self.silence
            && more
        {
            silence.on_data(now);
        }
    }

    /// Whether frames are to be counted.
    pub(super) const fn counts_frames(&self) -> bool {
        self.silence.is_some()
    }

    /// Begins to try a new socket.
    pub fn start_probe(&mut self, path: usize, rtt: Duration, timeout: Duration, now: Instant) {
        let mut id = [0; PROBE_CID_BYTES];
        if let Err(error) = getrandom::fill(&mut id) {
            tracing::error!(%error, "no random bytes for a probe");
        }
        self.probe = Some(Probe {
            path,
            id,
            repeat: (rtt * 2).max(PROBE_REPEAT_MIN).min(timeout / 4),
            next: now,
            end: now + timeout,
        });
    }

    /// It sends from another socket now, at `to`, as far as that is known:
    /// datagrams may take long to come. Returns a socket to close.
    pub fn moved(&mut self, left: usize, to: IpAddr, now: Instant) -> Option<usize> {
        self.local_ip = Some(to).filter(|ip| !ip.is_unspecified());
        self.probe = None;
        self.pings = Some((now, 0));
        self.left.push(left);
        (self.left.len() > LEFT_MAX).then(|| self.left.remove(0))
    }

    /// All sockets that are kept for it alone and not in use.
    pub fn take_left(&mut self) -> Vec<usize> {
        core::mem::take(&mut self.left)
    }

    /// When something is due.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        let probe = self.probe.as_ref().map(|p| p.next.min(p.end));
        let ping = self.next_ping();
        let ask = self.silence.as_ref().and_then(Silence::deadline);
        probe
            .into_iter()
            .chain(ping)
            .chain(ask)
            .min()
            .unwrap_or(Instant::FAR_FUTURE)
    }

    fn next_ping(&self) -> Option<Instant> {
        let (since, n) = self.pings?;
        PINGS_AFTER.get(n).map(|after| since + *after)
    }

    /// What is to be done now.
    pub fn due(&mut self, now: Instant) -> Due {
        if let Some(probe) = &mut self.probe {
            if probe.end <= now {
                return Due::NoAnswer;
            }
            if probe.next <= now {
                probe.next = now + probe.repeat;
                probe.repeat *= 2;
                return Due::Probe;
            }
        }
        if self.next_ping().is_some_and(|at| at <= now) {
            if let Some((_, n)) = &mut self.pings {
                *n += 1;
            }
            if self.next_ping().is_none() {
                self.pings = None;
                return Due::Settled;
            }
            return Due::Ping;
        }
        if self.silence.as_mut().is_some_and(|s| s.must_ask(now)) {
            return Due::Ping;
        }
        Due::Nothing
    }
}

impl Probe {
    /// Number of the new socket in the loop.
    #[must_use]
    pub const fn path(&self) -> usize {
        self.path
    }

    /// A long header packet (RFC 8999 section 5.1) filled to the smallest
    /// size that is answered. The payload means nothing.
    #[must_use]
    pub fn datagram(&self) -> Vec<u8> {
        const LONG_HEADER_AND_FIXED_BIT: u8 = 0xc0;
        let mut out = Vec::with_capacity(PROBE_BYTES);
        out.push(LONG_HEADER_AND_FIXED_BIT);
        out.extend(PROBE_VERSION.to_be_bytes());
        let mut dst = self.id;
        dst.reverse();
        for cid in [dst, self.id] {
            out.push(PROBE_CID_BYTES as u8);
            out.extend(cid);
        }
        out.resize(PROBE_BYTES, 0);
        out
    }

    /// Whether it is the answer: version 0, and our id as its destination
    /// (RFC 8999 section 6).
    #[must_use]
    pub fn is_answer(&self, datagram: &[u8]) -> bool {
        let Some((header, rest)) = datagram.split_first_chunk::<6>() else {
            return false;
        };
        let [first, a, b, c, d, len] = *header;
        first & 0x80 != 0
            && [a, b, c, d] == [0; 4]
            && usize::from(len) == PROBE_CID_BYTES
            && rest.starts_with(&self.id)
    }
}

/// Whether the server asked not to be moved away from (RFC 9000 section 18.2,
/// `disable_active_migration`).
pub(super) fn is_forbidden(proto: &Connection) -> bool {
    const DISABLE_ACTIVE_MIGRATION: u64 = 0x0c;
    let Ok(Some(parameters)) = proto.crypto_session().transport_parameters() else {
        return false;
    };
    let mut bytes = Vec::new();
    parameters.write(&mut bytes);
    let mut rest = bytes.as_slice();
    while let Some((id, len)) = varint(&mut rest).zip(varint(&mut rest)) {
        if id == DISABLE_ACTIVE_MIGRATION {
            return true;
        }
        let Some(after) = usize::try_from(len).ok().and_then(|n| rest.get(n..)) else {
            return false;
        };
        rest = after;
    }
    false
}

/// A variable-length integer (RFC 9000 section 16).
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let first = *bytes.first()?;
    let len = 1 << (first >> 6);
    let (number, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    let value = number.iter().fold(0, |n, b| n << 8 | u64::from(*b));
    Some(value & (u64::MAX >> (66 - 8 * len as u32)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: IpAddr = IpAddr::V4(core::net::Ipv4Addr::LOCALHOST);

    fn at(millis: u64) -> Instant {
        Instant::from_micros(millis * 1000)
    }

    #[test]
    fn numbers_are_read_as_rfc_9000_a_1_writes_them() {
        let cases: [(&[u8], u64); 4] = [
            (
                &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c],
                151_288_809_941_952_652,
            ),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ];
        for (mut bytes, value) in cases {
            assert_eq!(varint(&mut bytes), Some(value));
            assert!(bytes.is_empty());
        }
        assert_eq!(varint(&mut [0x7b].as_slice()), None);
    }

    #[test]
    fn a_probe_is_repeated_and_given_up() {
        let mut moves = Moves::new();
        assert_eq!(moves.due(at(0)), Due::Nothing);
        let rtt = Duration::from_millis(30);
        moves.start_probe(3, rtt, Duration::from_secs(1), at(0));
        let mut sent = Vec::new();
        let end = loop {
            let now = moves.deadline();
            match moves.due(now) {
                Due::Probe => sent.push(now.as_micros() / 1000),
                other => break (other, now),
            }
        };
        assert_eq!(sent, [0, 60, 180, 420, 900]);
        assert_eq!(end, (Due::NoAnswer, at(1000)));
    }

    #[test]
    fn pings_follow_a_move_and_end() {
        let mut moves = Moves::new();
        assert_eq!(moves.moved(1, TO, at(0)), None);
        let mut done = Vec::new();
        while moves.deadline() != Instant::FAR_FUTURE {
            let now = moves.deadline();
            done.push((now.as_micros() / 1_000_000, moves.due(now)));
        }
        assert_eq!(done, [(4, Due::Ping), (8, Due::Ping), (16, Due::Settled)]);
        assert_eq!(moves.take_left(), [1]);
    }

    #[test]
    fn few_sockets_are_kept() {
        let mut moves = Moves::new();
        assert_eq!(moves.moved(1, TO, at(0)), None);
        assert_eq!(moves.moved(2, TO, at(0)), None);
        assert_eq!(moves.moved(3, TO, at(0)), Some(1));
    }

    #[test]
    fn only_an_answer_to_our_probe_counts() {
        let mut moves = Moves::new();
        moves.start_probe(0, Duration::ZERO, Duration::from_secs(1), at(0));
        let probe = moves.probe.as_ref().unwrap();
        let datagram = probe.datagram();
        assert_eq!(datagram.len(), PROBE_BYTES);
        let mut answer = vec![0x80, 0, 0, 0, 0, 8];
        answer.extend(&datagram[15..23]);
        answer.push(8);
        answer.extend(&datagram[6..14]);
        answer.extend([0, 0, 0, 1]);
        assert!(probe.is_answer(&answer));
        for at in 0..14 {
            let mut other = answer.clone();
            other[at] ^= 0x80;
            assert!(!probe.is_answer(&other), "octet {at}");
            assert!(!probe.is_answer(&answer[..at]));
        }
    }
}
