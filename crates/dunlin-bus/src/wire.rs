//! What goes over a subject, as bytes: greetings and sealed messages. Numbers are big-endian.
//! Knows lengths and places, no state of a link.

use bytes::{Buf as _, BufMut as _};

use crate::authority::{Authority, NONCE_BYTES, Nonce, PROOF_BYTES, Proof, Transcript};
use crate::ids::{Incarnation, NodeId};

/// What every message begins with.
const MAGIC: [u8; 3] = *b"DLB";

/// Version of all that this file and [`session`](crate::session) say.
pub(crate) const VERSION: u8 = 1;

/// Magic, version, kind, sender.
const HEAD_BYTES: usize = 7;

/// Receiver, incarnations, nonces.
const FIELDS_BYTES: usize = 2 + 2 + 8 + 8 + 2 * NONCE_BYTES;

/// A whole greeting: its sender is in the head and in the fields.
pub(crate) const GREETING_BYTES: usize = HEAD_BYTES + FIELDS_BYTES + PROOF_BYTES;

/// What is in front of an encrypted body: head, number of the link, number of the message.
pub(crate) const SEALED_HEAD_BYTES: usize = HEAD_BYTES + 16;

/// What is behind it.
pub(crate) const TAG_BYTES: usize = 16;

/// Kind of a sealed message.
const SEALED: u8 = 4;

/// Why a message was dropped without effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Dropped {
    /// It has no length or beginning that a message has.
    Garbage,
    /// It is of another version of the links.
    Version,
    /// It is of a node that is no member, or for another incarnation.
    Unknown,
    /// The sender does not have the secret of this cluster.
    Secret,
    /// It is of a link, or of greetings, that are over.
    Stale,
    /// It was received before.
    Repeated,
    /// An entry of a node that this one does not understand, or that does not understand it.
    Encoding,
}

impl Dropped {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Garbage,
        Self::Version,
        Self::Unknown,
        Self::Secret,
        Self::Stale,
        Self::Repeated,
        Self::Encoding,
    ];

    /// As metrics and logs say it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Garbage => "garbage",
            Self::Version => "version",
            Self::Unknown => "unknown",
            Self::Secret => "secret",
            Self::Stale => "stale",
            Self::Repeated => "repeated",
            Self::Encoding => "encoding",
        }
    }
}

/// Which of the three greetings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The node with the lower number begins, with its nonce.
    Hello = 1,
    /// The other one answers with its own.
    Answer = 2,
    /// The first one proves that it has that.
    Confirm = 3,
}

/// One of the greetings that make a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Greeting {
    pub(crate) kind: Kind,
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) from_incarnation: Incarnation,
    pub(crate) to_incarnation: Incarnation,
    /// Of the node that began.
    pub(crate) first: Nonce,
    /// Of the other one; zeros in the first greeting.
    pub(crate) second: Nonce,
}

impl Greeting {
    fn fields(&self) -> [u8; FIELDS_BYTES] {
        let mut out = [0; FIELDS_BYTES];
        let mut to = &mut out[..];
        to.put_u16(self.from.get());
        to.put_u16(self.to.get());
        to.put_u64(self.from_incarnation.0);
        to.put_u64(self.to_incarnation.0);
        to.put_slice(&self.first);
        to.put_slice(&self.second);
        out
    }

    pub(crate) fn encode(&self, authority: &Authority) -> Vec<u8> {
        let fields = self.fields();
        let proof = authority.prove_greeting(&Transcript {
            kind: self.kind as u8,
            fields: &fields,
        });
        let mut out = Vec::with_capacity(GREETING_BYTES);
        put_head(&mut out, self.kind as u8, self.from);
        out.put_slice(&fields);
        out.put_slice(&proof);
        out
    }

    /// Whether a node with the secret made it.
    pub(crate) fn is_proved(&self, proof: &Proof, authority: &Authority) -> bool {
        let transcript = Transcript {
            kind: self.kind as u8,
            fields: &self.fields(),
        };
        authority.is_greeting(&transcript, proof)
    }

    /// What both ends derive the keys of the link from.
    pub(crate) fn link_fields(&self) -> Vec<u8> {
        // From the node that began, whichever of the two sent this one.
        let as_first = match self.kind {
            Kind::Hello | Kind::Confirm => *self,
            Kind::Answer => Self {
                from: self.to,
                to: self.from,
                from_incarnation: self.to_incarnation,
                to_incarnation: self.from_incarnation,
                ..*self
            },
        };
        as_first.fields().to_vec()
    }
}

fn put_head(out: &mut Vec<u8>, kind: u8, from: NodeId) {
    out.put_slice(&MAGIC);
    out.put_u8(VERSION);
    out.put_u8(kind);
    out.put_u16(from.get());
}

/// Puts what is in front of an encrypted body.
pub(crate) fn put_sealed_head(out: &mut Vec<u8>, from: NodeId, link: u64, number: u64) {
    put_head(out, SEALED, from);
    out.put_u64(link);
    out.put_u64(number);
}

/// An encrypted message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sealed<'a> {
    pub(crate) from: NodeId,
    pub(crate) link: u64,
    pub(crate) number: u64,
    /// What is not encrypted, but proved by the tag.
    pub(crate) head: &'a [u8],
    pub(crate) body: &'a [u8],
    pub(crate) tag: &'a [u8],
}

/// A message as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packet<'a> {
    Greeting(Greeting, Proof),
    Sealed(Sealed<'a>),
}

impl Packet<'_> {
    pub(crate) const fn from(&self) -> NodeId {
        match self {
            Self::Greeting(greeting, _) => greeting.from,
            Self::Sealed(sealed) => sealed.from,
        }
    }
}

/// Reads a message. What it says is not believed yet.
pub(crate) fn read(bytes: &[u8]) -> Result<Packet<'_>, Dropped> {
    let mut head = bytes;
    if bytes.len() < HEAD_BYTES || bytes[..MAGIC.len()] != MAGIC {
        return Err(Dropped::Garbage);
    }
    head.advance(MAGIC.len());
    if head.get_u8() != VERSION {
        return Err(Dropped::Version);
    }
    let kind = head.get_u8();
    let from = NodeId::new(head.get_u16()).ok_or(Dropped::Garbage)?;
    let kind = match kind {
        1 => Kind::Hello,
        2 => Kind::Answer,
        3 => Kind::Confirm,
        SEALED => return read_sealed(bytes, head, from),
        _ => return Err(Dropped::Garbage),
    };
    if bytes.len() != GREETING_BYTES {
        return Err(Dropped::Garbage);
    }
    let again = NodeId::new(head.get_u16());
    let to = NodeId::new(head.get_u16()).ok_or(Dropped::Garbage)?;
    let mut greeting = Greeting {
        kind,
        from,
        to,
        from_incarnation: Incarnation(head.get_u64()),
        to_incarnation: Incarnation(head.get_u64()),
        first: [0; NONCE_BYTES],
        second: [0; NONCE_BYTES],
    };
    head.copy_to_slice(&mut greeting.first);
    head.copy_to_slice(&mut greeting.second);
    let mut proof = [0; PROOF_BYTES];
    head.copy_to_slice(&mut proof);
    if again != Some(from) {
        return Err(Dropped::Garbage);
    }
    Ok(Packet::Greeting(greeting, proof))
}

fn read_sealed<'a>(bytes: &'a [u8], mut after: &[u8], from: NodeId) -> Result<Packet<'a>, Dropped> {
    let Some((rest, tag)) = bytes.split_last_chunk::<TAG_BYTES>() else {
        return Err(Dropped::Garbage);
    };
    let Some((head, body)) = rest.split_at_checked(SEALED_HEAD_BYTES) else {
        return Err(Dropped::Garbage);
    };
    Ok(Packet::Sealed(Sealed {
        from,
        link: after.get_u64(),
        number: after.get_u64(),
        head,
        body,
        tag,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u16) -> NodeId {
        NodeId::new(number).expect("a number")
    }

    fn greeting(kind: Kind) -> Greeting {
        Greeting {
            kind,
            from: node(1),
            to: node(2),
            from_incarnation: Incarnation(3),
            to_incarnation: Incarnation(4),
            first: [5; NONCE_BYTES],
            second: [6; NONCE_BYTES],
        }
    }

    #[test]
    fn greetings_come_back_and_prove_every_byte() {
        let own = Authority::new(b"a secret of sixteen", "dl");
        let others = [
            Authority::new(b"another secret of it", "dl"),
            Authority::new(b"a secret of sixteen", "other"),
        ];
        for kind in [Kind::Hello, Kind::Answer, Kind::Confirm] {
            let bytes = greeting(kind).encode(&own);
            let Ok(Packet::Greeting(found, proof)) = read(&bytes) else {
                panic!("not read");
            };
            assert_eq!(found, greeting(kind));
            assert!(found.is_proved(&proof, &own));
            for other in &others {
                assert!(!found.is_proved(&proof, other));
            }
            for at in 0..bytes.len() {
                let mut bytes = bytes.clone();
                bytes[at] ^= 1;
                if let Ok(Packet::Greeting(found, proof)) = read(&bytes) {
                    assert!(!found.is_proved(&proof, &own), "byte {at}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_message_is_dropped() {
        let own = Authority::new(b"a secret of sixteen", "dl");
        let good = greeting(Kind::Hello).encode(&own);
        for len in 0..good.len() {
            assert_eq!(read(&good[..len]), Err(Dropped::Garbage), "{len} bytes");
        }
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            read(&bytes).map(|_| ())
        };
        assert_eq!(with(0, b'X'), Err(Dropped::Garbage));
        assert_eq!(with(3, 2), Err(Dropped::Version));
        assert_eq!(with(4, 9), Err(Dropped::Garbage));
        assert_eq!(with(6, 0), Err(Dropped::Garbage));
        assert_eq!(with(6, 255), Err(Dropped::Garbage));
        assert_eq!(with(8, 2), Err(Dropped::Garbage), "another sender");
        let mut sealed = Vec::new();
        put_sealed_head(&mut sealed, node(1), 7, 8);
        for len in 0..SEALED_HEAD_BYTES + TAG_BYTES {
            sealed.resize(len.max(SEALED_HEAD_BYTES), 0);
            assert_eq!(read(&sealed[..len]), Err(Dropped::Garbage), "{len} bytes");
        }
        sealed.resize(SEALED_HEAD_BYTES + TAG_BYTES, 0);
        assert!(matches!(read(&sealed), Ok(Packet::Sealed(s)) if s.link == 7 && s.number == 8));
    }
}
