//! Packet keys of accepted connections that look at what they seal and open
//! while an address is being proved: quinn-proto says neither which challenge
//! went where nor which was answered, and fills each to 1,200 bytes, which is
//! more than may go to an address that sent little (RFC 9000 section 8.1).
//! What is sealed can be changed before that, as long as each packet number is
//! used once. They also lower the windows of streams, see [`crate::allowance`].
//! What TLS had to say of the connection and is asked for later is kept here, too.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;
use quinn_proto::crypto::{CryptoError, PacketKey};

use crate::allowance::Allowance;
use crate::frames;

/// PATH_RESPONSE frames of one datagram that are looked at.
const ANSWERS_MAX: usize = 8;

/// Label and length of what SASL is bound by (RFC 9266 section 2).
const BINDING_LABEL: &[u8] = b"EXPORTER-Channel-Binding";
const BINDING_BYTES: usize = 32;

/// Exports that from TLS whose handshake is complete.
pub(crate) fn export<E>(
    exporter: impl FnOnce(&mut [u8], &[u8], &[u8]) -> Result<(), E>,
) -> Option<[u8; BINDING_BYTES]> {
    let mut data = [0; BINDING_BYTES];
    let exported = exporter(&mut data, BINDING_LABEL, b"");
    exported.ok().map(|()| data)
}

/// What the keys of one connection have seen.
#[derive(Debug, Default)]
pub(crate) struct Inspector {
    /// A packet of the handshake was opened: the client got ours (RFC 9000
    /// section 8.1).
    handshake_opened: AtomicBool,
    /// Packets are looked at.
    looks: AtomicBool,
    /// The highest number of a packet that was opened.
    highest: AtomicU64,
    pub(crate) allowance: Allowance,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    expected: Option<Expected>,
    sealed: Option<Sealed>,
    /// Data of PATH_RESPONSE frames.
    answers: Vec<u64>,
    /// A packet was opened with a number above all before.
    newer: bool,
    /// What SASL is bound by, as long as that may be asked for.
    exported: Option<Box<[u8; BINDING_BYTES]>>,
}

/// The next packet with a challenge that fits keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    /// Bytes that it may have.
    pub(crate) room: usize,
    /// Also one with other frames than PING and ACK.
    pub(crate) with_data: bool,
}

/// A packet with a challenge, or from which one was taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sealed {
    /// The challenge that it has.
    pub(crate) challenge: Option<u64>,
    /// Bytes of it, without padding.
    pub(crate) bytes: usize,
}

impl Inspector {
    /// Begins to look, for an address that is to be proved. An answer that has
    /// just come may be for another one.
    pub(crate) fn begin(&self) {
        let mut seen = self.seen();
        (seen.expected, seen.sealed, seen.newer) = (None, None, false);
        self.looks.store(true, Ordering::Relaxed);
    }

    /// Which of the next packets may keep its challenge: it goes to the
    /// address that is to be proved. The others go elsewhere, without.
    pub(crate) fn expect(&self, expected: Option<Expected>) {
        self.seen().expected = expected;
    }

    /// What came in PATH_RESPONSE frames since the last call.
    pub(crate) fn take_answers(&self) -> Vec<u64> {
        core::mem::take(&mut self.seen().answers)
    }

    /// Whether a packet with the highest number came since the last call.
    pub(crate) fn take_newer(&self) -> bool {
        core::mem::take(&mut self.seen().newer)
    }

    /// What is to be known of the packet that was sealed last.
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

    /// What SASL is bound by.
    pub(crate) fn exported(&self) -> Option<[u8; BINDING_BYTES]> {
        self.seen().exported.as_deref().copied()
    }

    /// Keeps that, or forgets it.
    pub(crate) fn set_exported(&self, data: Option<Box<[u8; BINDING_BYTES]>>) {
        self.seen().exported = data;
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
        let tag_len = self.key.tag_len();
        let total = buf.len();
        let frames = buf.get_mut(header_len..total.saturating_sub(tag_len));
        if let Some(frames) = frames {
            self.inspector.allowance.apply(frames);
        }
        if !self.inspector.looks() {
            return self.key.encrypt(packet, buf, header_len);
        }
        let mut bytes = total;
        let mut seen = self.inspector.seen();
        let frames = buf.get_mut(header_len..total.saturating_sub(tag_len));
        seen.sealed = frames.and_then(|frames| {
            let found = frames::challenge(frames)?;
            // A packet with a short header has no length: it ends with its
            // datagram. What is left of the buffer is not sent.
            bytes = (header_len + found.end + tag_len).min(total);
            let expected = seen.expected;
            let kept = expected.filter(|e| bytes <= e.room && (e.with_data || !found.with_data));
            if kept.is_none() {
                frames::make_ping(frames, &found);
            }
            Some(Sealed {
                challenge: kept.map(|_| found.data),
                bytes,
            })
        });
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
        let highest = &self.inspector.highest;
        // Packet 0 comes in the handshake.
        let newer = highest.fetch_max(packet, Ordering::Relaxed) < packet;
        if self.inspector.looks() {
            let mut seen = self.inspector.seen();
            seen.newer |= newer;
            // quinn-proto ends the connection if a frame cannot be read.
            let _ = frames::path_responses(payload, |data| {
                if seen.answers.len() < ANSWERS_MAX {
                    seen.answers.push(data);
                }
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
