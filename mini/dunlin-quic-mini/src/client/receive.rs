//! From a datagram to the payload of its packets: headers, Retry, version
//! negotiation, stateless reset, decryption, key phases.

use dunlin_mini_crypto::Crypto;

use super::space::{APP, HANDSHAKE, INITIAL, space};
use super::{Client, State};
use crate::cid::Cid;
use crate::error::Error;
use crate::keys::{PacketKey, decode_pn, next_secret};
use crate::memory::Memory;
use crate::verify::Verifier;
use crate::wire::Reader;

/// Milliseconds that an acknowledgement of 1-RTT packets may wait for company;
/// the transport parameter is left at its default of 25.
const ACK_DELAY: u32 = 20;

/// The kinds of packets that a client cares about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// With its number space.
    Protected(u8),
    Retry,
    Versions,
}

/// The part of a header that is not protected.
struct Head {
    kind: Kind,
    /// Bytes of the packet; the rest of the datagram is another one.
    len: usize,
    /// Where the packet number is, or what follows the ids.
    at: usize,
    source: Option<Cid>,
}

impl Head {
    /// Nothing for packets that are not for this client, or not of QUIC.
    #[inline(never)]
    fn read(datagram: &[u8]) -> Option<Self> {
        let mut reader = Reader(datagram);
        let all = datagram.len();
        let first = reader.u8()?;
        if first & 0x80 == 0 {
            return (first & 0x40 != 0).then_some(Self {
                kind: Kind::Protected(APP),
                len: all,
                at: 1,
                source: None,
            });
        }
        let version = reader.u32()?;
        // The client's id is the empty one.
        if !reader.vector(1)?.is_empty() {
            return None;
        }
        let source = Some(Cid::new(reader.vector(1)?.0)?);
        let at = |reader: &Reader<'_>| all.saturating_sub(reader.0.len());
        let mut head = Self {
            kind: Kind::Versions,
            len: all,
            at: at(&reader),
            source,
        };
        if version == 0 {
            return Some(head);
        }
        if version != 1 || first & 0x40 == 0 {
            return None;
        }
        head.kind = match first >> 4 & 3 {
            0 => {
                // Only clients send tokens (RFC 9000 section 17.2.2).
                if !reader.varvec()?.is_empty() {
                    return None;
                }
                Kind::Protected(INITIAL)
            }
            2 => Kind::Protected(HANDSHAKE),
            3 => {
                head.kind = Kind::Retry;
                return Some(head);
            }
            _ => return None,
        };
        let body = reader.varint()? as usize;
        head.at = at(&reader);
        reader.take(body)?;
        head.len = at(&reader);
        Some(head)
    }
}

impl<C: Crypto, V: Verifier, M: Memory> Client<C, V, M> {
    /// Takes a datagram that arrived; it is decrypted in place. Anything that
    /// does not belong to the connection is dropped without a trace.
    pub fn receive(&mut self, now: u32, datagram: &mut [u8]) {
        match self.state {
            State::Idle | State::Closed => return,
            State::Closing => {
                // RFC 9000 section 10.2.1: say it again, but ever more seldom,
                // so that an attacker cannot keep two ends busy with each other.
                self.late = self.late.saturating_add(1);
                self.tell |= self.late.is_power_of_two();
                return;
            }
            State::Connecting | State::Connected => {}
        }
        let tail = datagram.last_chunk().copied();
        let short = datagram.first().is_some_and(|first| first & 0x80 == 0);
        let mut understood = false;
        let mut rest = datagram;
        while let Some(head) = Head::read(rest) {
            let Some((packet, after)) = rest.split_at_mut_checked(head.len) else {
                break;
            };
            match self.packet(now, &head, packet) {
                Ok(good) => understood |= good,
                Err(Error::Again) => understood = true,
                Err(error @ (Error::ClosedByPeer | Error::ClosedByApplication)) => {
                    return self.forget(error);
                }
                Err(Error::VersionNegotiation) => return self.forget(Error::VersionNegotiation),
                Err(error) => return self.end(now, error),
            }
            rest = after;
        }
        if understood && self.state != State::Closed {
            self.idle_from = now;
            self.probe_from = now;
            self.asked = false;
        } else if short && tail.is_some_and(|tail| self.is_reset(&tail)) {
            self.forget(Error::StatelessReset);
        }
    }

    /// Takes one packet. Whether it was one of the server's.
    #[inline(never)]
    fn packet(&mut self, now: u32, head: &Head, packet: &mut [u8]) -> Result<bool, Error> {
        let which = match head.kind {
            Kind::Protected(which) => which,
            Kind::Retry => return self.retry(head, packet),
            Kind::Versions => return self.versions(head, packet),
        };
        if let Some(source) = &head.source
            && self.heard
            && *source != self.active.cid
            && self.active.sequence == 0
        {
            return Ok(false);
        }
        let Some((pn, payload, at)) = self.decrypt(which, head.at, packet) else {
            return Ok(false);
        };
        let (header, payload) = packet
            .split_at_checked(at)
            .map_or((&[][..], &[][..]), |(h, rest)| {
                (h, rest.get(..payload).unwrap_or_default())
            });
        let first = header.first().copied().unwrap_or(0);
        let reserved = if which == APP { 0x18 } else { 0x0c };
        if first & reserved != 0 {
            return Err(Error::ReservedBits);
        }
        if !self.heard {
            self.heard = true;
            // From now on the server's own choice is the id to write to.
            if let Some(source) = head.source {
                self.active.cid = source;
            }
        }
        if space(&mut self.spaces, which).received.is_known(pn) {
            // Anybody in the path can repeat it: it is no sign of life.
            return Ok(false);
        }
        let asks = self.frames(now, which, payload)?;
        let space = space(&mut self.spaces, which);
        let in_order = space.received.expected() == pn;
        if space.received.insert(pn) {
            space.newest_at = now;
        }
        if asks {
            if space.unacked == 0 {
                space.ack_at = now.wrapping_add(ACK_DELAY);
            }
            space.unacked = space.unacked.saturating_add(1);
            // The second packet is acknowledged at once, and so is all that
            // looks like a loss (RFC 9000 section 13.2.1).
            if which != APP || !in_order || space.unacked > 1 {
                space.ack_at = now;
            }
        }
        Ok(true)
    }

    /// Takes the protection off. Gives the packet number, the length of the
    /// payload and where it begins.
    fn decrypt(&mut self, which: u8, at: usize, packet: &mut [u8]) -> Option<(u32, usize, usize)> {
        let space = space(&mut self.spaces, which);
        let keys = space.rx.as_ref()?;
        let (truncated, header) = keys.unmask(&mut self.crypto, packet, at)?;
        let len = header.saturating_sub(at);
        let pn = decode_pn(space.received.expected(), truncated, len)?;
        let bit = packet.first()? & 4;
        if which == APP && bit != self.phase.rx_bit {
            let payload = self.other_phase(pn, packet, header)?;
            return Some((pn, payload, header));
        }
        let payload = keys.packet().open(&mut self.crypto, pn, packet, header)?;
        Some((pn, payload.len(), header))
    }

    /// Opens a packet of the phase before, or of the next one, which then
    /// becomes the current one (RFC 9001 section 6).
    #[inline(never)]
    fn other_phase(&mut self, pn: u32, packet: &mut [u8], header: usize) -> Option<usize> {
        let late = pn < self.phase.rx_first;
        let secret = if late {
            self.phase.old
        } else {
            next_secret(&mut self.crypto, &self.phase.rx)
        };
        let suite = self.suite();
        let key = PacketKey::new(&mut self.crypto, suite, &secret);
        let len = key.open(&mut self.crypto, pn, packet, header)?.len();
        if late {
            return Some(len);
        }
        self.phase.old = self.phase.rx;
        self.phase.rx = secret;
        self.phase.rx_bit ^= 4;
        self.phase.rx_first = pn;
        if let Some(keys) = space(&mut self.spaces, APP).rx.as_mut() {
            keys.replace(key);
        }
        if self.phase.tx_bit != self.phase.rx_bit {
            self.update_sending();
        }
        Some(len)
    }

    /// Begins to send with the keys of the next phase.
    pub(super) fn update_sending(&mut self) {
        let secret = next_secret(&mut self.crypto, &self.phase.tx);
        let suite = self.suite();
        let key = PacketKey::new(&mut self.crypto, suite, &secret);
        let app = space(&mut self.spaces, APP);
        self.phase.tx = secret;
        self.phase.tx_bit ^= 4;
        self.phase.tx_first = app.next_pn;
        self.phase.acked = false;
        if let Some(keys) = app.tx.as_mut() {
            keys.replace(key);
        }
    }

    /// A Retry packet: once, before anything else, and with a genuine tag
    /// (RFC 9000 section 17.2.5.2).
    #[cfg(feature = "retry")]
    fn retry(&mut self, head: &Head, packet: &[u8]) -> Result<bool, Error> {
        use crate::keys::retry_is_genuine;
        use crate::wire::{Writer, fill};

        let Some((body, tag)) = packet.split_last_chunk::<16>() else {
            return Ok(false);
        };
        let token = body.get(head.at..).unwrap_or_default();
        let same = head.source == Some(self.original);
        if self.heard || self.retried.is_some() || token.is_empty() || same {
            return Ok(false);
        }
        // Nothing of the server's handshake is there yet: its buffer is free.
        let mut pseudo = Writer::new(self.memory.parts().handshake);
        let original = self.original.bytes();
        pseudo.u8(original.len().to_le_bytes()[0]);
        pseudo.put(original);
        pseudo.put(body);
        let len = pseudo.len();
        if pseudo.full() {
            // It may be forged, so it may not end anything.
            return Ok(false);
        }
        let pseudo = pseudo.buf.get(..len).unwrap_or_default();
        if !retry_is_genuine(&mut self.crypto, pseudo, tag) {
            return Ok(false);
        }
        if token.len() > self.token.len() {
            return Err(Error::RetryToken);
        }
        self.token_len = fill(&mut self.token, token);
        self.retried = head.source;
        self.active.cid = head.source.unwrap_or_default();
        self.initial_keys();
        space(&mut self.spaces, INITIAL).next = 0;
        self.recovery.discard(INITIAL);
        // Early data went unseen as well.
        self.recovery.discard(APP);
        self.restart();
        Ok(true)
    }

    #[cfg(not(feature = "retry"))]
    #[allow(
        clippy::needless_pass_by_ref_mut,
        reason = "the same form as with the feature"
    )]
    const fn retry(&mut self, _: &Head, _: &[u8]) -> Result<bool, Error> {
        Ok(false)
    }

    /// Version negotiation: the end, unless it is a lie or comes too late
    /// (RFC 9000 section 6.2).
    fn versions(&self, head: &Head, packet: &[u8]) -> Result<bool, Error> {
        let ours = head.source == Some(self.original);
        let mut list = Reader(packet.get(head.at..).unwrap_or_default());
        if self.heard || self.retried.is_some() || !ours || list.is_empty() {
            return Ok(false);
        }
        while let Some(version) = list.u32() {
            if version == 1 {
                return Ok(false);
            }
        }
        Err(Error::VersionNegotiation)
    }
}
