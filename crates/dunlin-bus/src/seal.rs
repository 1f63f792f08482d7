//! Encryption of a link's messages with AES-256-GCM. The nonce is the number of the message
//! in its direction, so that none is used twice with a key. Every
//! [`REKEY_PACKETS`] messages the next key is derived.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::authority::{Proof, span_key};
use crate::ids::NodeId;
use crate::limits::REKEY_PACKETS;
use crate::wire::{SEALED_HEAD_BYTES, Sealed, TAG_BYTES, put_sealed_head};

/// Why a message was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotOpened {
    /// It was received before.
    Repeated,
    /// Another one has sealed it.
    Forged,
    /// It is genuine, and at least one before it is missing.
    Hole,
}

/// The keys of one direction of a link.
struct Keys {
    direction: Proof,
    span: u64,
    key: Option<LessSafeKey>,
}

impl Keys {
    fn new(direction: Proof) -> Self {
        Self {
            direction,
            span: 0,
            key: key(&direction, 0),
        }
    }
}

fn key(direction: &Proof, span: u64) -> Option<LessSafeKey> {
    let key = UnboundKey::new(&AES_256_GCM, &span_key(direction, span)).ok()?;
    Some(LessSafeKey::new(key))
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    let number = number.to_be_bytes();
    for (to, from) in bytes.iter_mut().rev().zip(number.iter().rev()) {
        *to = *from;
    }
    Nonce::assume_unique_for_key(bytes)
}

/// Seals what goes out on a link.
pub(crate) struct Sealer {
    keys: Keys,
    next: u64,
}

impl Sealer {
    pub(crate) fn new(direction: Proof) -> Self {
        Self {
            keys: Keys::new(direction),
            next: 0,
        }
    }

    /// Number of the message that comes next.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    /// A message with the body that `put` appends, of about so many bytes. `None`: the
    /// cryptography failed, after which nothing can be sent on this link.
    pub(crate) fn seal(
        &mut self,
        (from, link): (NodeId, u64),
        about: usize,
        put: impl FnOnce(&mut Vec<u8>),
    ) -> Option<Vec<u8>> {
        let number = self.next;
        let span = number / REKEY_PACKETS;
        if span != self.keys.span {
            self.keys.key = key(&self.keys.direction, span);
            self.keys.span = span;
        }
        let mut out = Vec::with_capacity(SEALED_HEAD_BYTES + about + TAG_BYTES);
        put_sealed_head(&mut out, from, link, number);
        put(&mut out);
        let (head, body) = out.split_at_mut(SEALED_HEAD_BYTES);
        let key = self.keys.key.as_ref()?;
        let tag = key.seal_in_place_separate_tag(nonce(number), Aad::from(&*head), body);
        out.extend_from_slice(tag.ok()?.as_ref());
        self.next += 1;
        Some(out)
    }
}

/// Opens what comes in on a link.
pub(crate) struct Opener {
    keys: Keys,
    next: u64,
}

impl Opener {
    pub(crate) fn new(direction: Proof) -> Self {
        Self {
            keys: Keys::new(direction),
            next: 0,
        }
    }

    /// Number of the message that is awaited: as many were received.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    /// The body of the next message.
    pub(crate) fn open(&mut self, sealed: &Sealed<'_>) -> Result<Vec<u8>, NotOpened> {
        if sealed.number < self.next {
            return Err(NotOpened::Repeated);
        }
        let span = sealed.number / REKEY_PACKETS;
        // Kept only once a message that was sealed with it came.
        let other = (span != self.keys.span).then(|| key(&self.keys.direction, span));
        let key = other.as_ref().unwrap_or(&self.keys.key);
        let key = key.as_ref().ok_or(NotOpened::Forged)?;
        let mut out = vec![0; sealed.body.len()];
        let (nonce, head) = (nonce(sealed.number), Aad::from(sealed.head));
        key.open_separate_gather(nonce, head, sealed.body, sealed.tag, &mut out)
            .map_err(|_| NotOpened::Forged)?;
        if sealed.number != self.next {
            return Err(NotOpened::Hole);
        }
        if let Some(other) = other {
            self.keys.key = other;
            self.keys.span = span;
        }
        self.next += 1;
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Packet, read};

    fn pair() -> (Sealer, Opener) {
        (Sealer::new([1; 32]), Opener::new([1; 32]))
    }

    fn seal(sealer: &mut Sealer, body: &[u8]) -> Vec<u8> {
        let from = NodeId::new(1).expect("a number");
        let put = |out: &mut Vec<u8>| out.extend_from_slice(body);
        sealer.seal((from, 9), body.len(), put).expect("sealed")
    }

    fn open(opener: &mut Opener, bytes: &[u8]) -> Result<Vec<u8>, NotOpened> {
        match read(bytes) {
            Ok(Packet::Sealed(sealed)) => opener.open(&sealed),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn messages_come_back_once_and_in_order() {
        let (mut sealer, mut opener) = pair();
        let bytes: Vec<_> = (0..4_u8).map(|n| seal(&mut sealer, &[n; 10])).collect();
        assert!(
            !bytes[1].windows(10).any(|part| part == [1; 10]),
            "it is encrypted"
        );
        assert_eq!(open(&mut opener, &bytes[0]), Ok(vec![0; 10]));
        assert_eq!(open(&mut opener, &bytes[0]), Err(NotOpened::Repeated));
        assert_eq!(open(&mut opener, &bytes[2]), Err(NotOpened::Hole));
        assert_eq!(open(&mut opener, &bytes[1]), Ok(vec![1; 10]));
    }

    #[test]
    fn every_byte_is_proved() {
        let (mut sealer, mut opener) = pair();
        let bytes = seal(&mut sealer, b"what a batch says");
        for at in 7..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            assert_eq!(
                open(&mut opener, &bytes),
                Err(NotOpened::Forged),
                "byte {at}"
            );
        }
        let mut stranger = Opener::new([2; 32]);
        assert_eq!(open(&mut stranger, &bytes), Err(NotOpened::Forged));
        assert!(open(&mut opener, &bytes).is_ok());
    }

    #[test]
    fn keys_change_on_both_sides_at_once() {
        let (mut sealer, mut opener) = pair();
        sealer.next = REKEY_PACKETS - 1;
        opener.next = REKEY_PACKETS - 1;
        for n in 0..3 {
            let bytes = seal(&mut sealer, &[n]);
            assert_eq!(open(&mut opener, &bytes), Ok(vec![n]));
        }
        assert_eq!((sealer.keys.span, opener.keys.span), (1, 1));
    }
}
