//! Packet keys of accepted connections that look at what they seal and open
//! while an address is being proved: quinn-proto says neither which challenge
//! went where nor which was answered, and fills each to 1,200 bytes, which is
//! more than may go to an address that sent little (RFC 9000 section 8.1).
//! What is sealed can be changed before that, as long as each packet number is
//! used once.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;
use quinn_proto::crypto::{CryptoError, PacketKey};

use crate::frames;

/// What the keys of one connection have seen.
#[derive(Debug, Default)]
pub(crate) struct Inspector {
    /// A packet of the handshake was opened: the client got ours (RFC 9000
    /// section 8.1).
    handshake_opened: AtomicBool,
    /// Packets are looked at.
    looks: AtomicBool,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// The next packet may be a challenge alone.
    alone: bool,
    sealed: Option<Sealed>,
    /// The last challenges whose answers are waited for.
    awaited: [Option<u64>; 2],
    answered: bool,
}

/// A packet with nothing but a challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sealed {
    pub(crate) challenge: u64,
    /// Bytes of it, without padding.
    pub(crate) bytes: usize,
}

impl Inspector {
    /// Begins to look, for an address that is to be proved.
    pub(crate) fn begin(&self) {
        *self.seen() = Seen::default();
        self.looks.store(true, Ordering::Relaxed);
    }

    /// Whether the next packet may be a challenge alone, for the address that
    /// is to be proved: its padding is left out then. Challenges in other
    /// packets are left out themselves: they go to another address, and a
    /// client that gets two at a time answers the later one only.
    pub(crate) fn expect_alone(&self, alone: bool) {
        self.seen().alone = alone;
    }

    pub(crate) fn expects_alone(&self) -> bool {
        self.seen().alone
    }

    /// The answer to this challenge is waited for.
    pub(crate) fn await_answer(&self, challenge: u64) {
        let mut seen = self.seen();
        seen.awaited = [Some(challenge), seen.awaited[0]];
    }

    /// The challenge was answered.
    pub(crate) fn is_answered(&self) -> bool {
        self.seen().answered
    }

    /// The challenge that was sealed since the last call.
    pub(crate) fn take_sealed(&self) -> Option<Sealed> {
        self.seen().sealed.take()
    }

    pub(crate) fn end(&self) {
        self.looks.store(false, Ordering::Relaxed);
    }

    /// The client has answered what was sent to its address in the handshake.
    pub(crate) fn is_handshake_opened(&self) -> bool {
        self.handshake_opened.load(Ordering::Relaxed)
    }

    fn looks(&self) -> bool {
        self.looks.load(Ordering::Relaxed)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key of packets of the handshake, with this.
    pub(crate) fn handshake(self: &Arc<Self>, key: impl PacketKey + 'static) -> Box<dyn PacketKey> {
        Box::new(HandshakeKey {
            key,
            inspector: Arc::clone(self),
        })
    }

    /// A key of packets after the handshake, with this.
    pub(crate) fn one_rtt(self: &Arc<Self>, key: impl PacketKey + 'static) -> Box<dyn PacketKey> {
        Box::new(OneRttKey {
            key,
            inspector: Arc::clone(self),
        })
    }
}

struct HandshakeKey<K> {
    key: K,
    inspector: Arc<Inspector>,
}

struct OneRttKey<K> {
    key: K,
    inspector: Arc<Inspector>,
}

impl<K: PacketKey> PacketKey for HandshakeKey<K> {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        self.key.encrypt(packet, buf, header_len);
    }

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        self.key.decrypt(packet, header, payload)?;
        let opened = &self.inspector.handshake_opened;
        opened.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn tag_len(&self) -> usize {
        self.key.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.key.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.key.integrity_limit()
    }
}

impl<K: PacketKey> PacketKey for OneRttKey<K> {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        if !self.inspector.looks() {
            return self.key.encrypt(packet, buf, header_len);
        }
        let tag_len = self.key.tag_len();
        let total = buf.len();
        let mut bytes = total;
        let mut seen = self.inspector.seen();
        if let Some(frames) = buf.get_mut(header_len..total.saturating_sub(tag_len)) {
            match frames::lone_challenge(frames).filter(|_| seen.alone) {
                // A packet with a short header has no length: it ends with
                // its datagram, so that one without padding only is shorter.
                // What is left of the buffer is not sent.
                Some((challenge, frame_len)) => {
                    bytes = (header_len + frame_len + tag_len).min(total);
                    seen.sealed = Some(Sealed { challenge, bytes });
                }
                None => frames::without_challenges(frames),
            }
        }
        drop(seen);
        if let Some(buf) = buf.get_mut(..bytes) {
            self.key.encrypt(packet, buf, header_len);
        }
    }

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        self.key.decrypt(packet, header, payload)?;
        if self.inspector.looks() {
            let mut seen = self.inspector.seen();
            // quinn-proto ends the connection if a frame cannot be read.
            let _ = frames::path_responses(payload, |data| {
                seen.answered |= seen.awaited.contains(&Some(data));
            });
        }
        Ok(())
    }

    fn tag_len(&self) -> usize {
        self.key.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.key.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.key.integrity_limit()
    }
}
