//! From a datagram to the payload of its packets: headers, Retry, version
//! negotiation, stateless reset.

use dunlin_mini_crypto::Crypto;

use super::handshake::Progress;
use super::space::{APP, HANDSHAKE, INITIAL};
use super::{Connection, State};
use crate::cid::Cid;
use crate::error::Error;
use crate::memory::Memory;
use crate::verify::Verifier;
use crate::wire::Reader;

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

impl<C: Crypto, V: Verifier, M: Memory> Connection<C, V, M> {
    /// Takes a datagram that arrived.
    pub(crate) fn receive(&mut self, now: u32, datagram: &mut [u8]) {
        match self.life.state {
            State::Idle | State::Closed => return,
            State::Closing => return self.life.disturb(),
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
                    return self.life.forget(error);
                }
                Err(Error::VersionNegotiation) => {
                    return self.life.forget(Error::VersionNegotiation);
                }
                Err(error) => return self.end(now, error),
            }
            rest = after;
        }
        if understood && self.life.state != State::Closed {
            self.idle.heard(now);
            self.recovery.probe_from = now;
        } else if short && tail.is_some_and(|tail| self.cids.is_reset(&tail)) {
            self.life.forget(Error::StatelessReset);
        }
    }

    /// Takes one packet. Whether it was one of the server's.
    #[inline(never)]
    fn packet(&mut self, now: u32, head: &Head, packet: &mut [u8]) -> Result<bool, Error> {
        let which = match head.kind {
            Kind::Protected(which) => which,
            #[cfg(feature = "retry")]
            Kind::Retry => return self.retry(head, packet),
            #[cfg(not(feature = "retry"))]
            Kind::Retry => return Ok(false),
            Kind::Versions => return self.versions(head, packet),
        };
        let heard = self.handshake.progress > Progress::Silent;
        if let Some(source) = &head.source
            && heard
            && *source != self.cids.active.cid
            && self.cids.active.sequence == 0
        {
            return Ok(false);
        }
        let suite = self.handshake.suite();
        let place = (which, head.at);
        let decrypted = self.spaces.decrypt(&mut self.crypto, suite, place, packet);
        let Some((pn, payload, at)) = decrypted else {
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
        if !heard {
            self.handshake.progress = Progress::Heard;
            // From now on the server's own choice is the id to write to.
            if let Some(source) = head.source {
                self.cids.active.cid = source;
            }
        }
        if self.spaces.of(which).received.is_known(pn) {
            // Anybody in the path can repeat it: it is no sign of life.
            return Ok(false);
        }
        let asks = self.frames(now, which, payload)?;
        let space = self.spaces.of(which);
        space.arrived(now, pn, asks, which == APP);
        Ok(true)
    }

    /// A Retry packet: once, before anything else, and with a genuine tag
    /// (RFC 9000 section 17.2.5.2).
    #[cfg(feature = "retry")]
    fn retry(&mut self, head: &Head, packet: &[u8]) -> Result<bool, Error> {
        use crate::keys::retry_is_genuine;
        use crate::wire::Writer;

        let Some((body, tag)) = packet.split_last_chunk::<16>() else {
            return Ok(false);
        };
        let token = body.get(head.at..).unwrap_or_default();
        let same = head.source == Some(self.cids.original);
        if self.handshake.progress > Progress::Silent
            || self.cids.retried.is_some()
            || token.is_empty()
            || same
        {
            return Ok(false);
        }
        // Nothing of the server's handshake is there yet: its buffer is free.
        let mut pseudo = Writer::new(self.memory.parts().handshake);
        let original = self.cids.original.bytes();
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
        if !self.token.set(token) {
            return Err(Error::RetryToken);
        }
        self.cids.retried = head.source;
        self.cids.active.cid = head.source.unwrap_or_default();
        let cid = &self.cids.active.cid;
        self.spaces.initial_keys(&mut self.crypto, cid);
        self.spaces.of(INITIAL).next = 0;
        self.recovery.discard(INITIAL);
        // Early data went unseen as well.
        self.recovery.discard(APP);
        self.restart();
        Ok(true)
    }

    /// Version negotiation: the end, unless it is a lie or comes too late
    /// (RFC 9000 section 6.2).
    fn versions(&self, head: &Head, packet: &[u8]) -> Result<bool, Error> {
        let ours = head.source == Some(self.cids.original);
        let mut list = Reader(packet.get(head.at..).unwrap_or_default());
        if self.handshake.progress > Progress::Silent
            || self.cids.retried.is_some()
            || !ours
            || list.is_empty()
        {
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
