//! QUIC-LB: connection ids that a load balancer can read
//! (draft-ietf-quic-load-balancers, "Generating Routable QUIC Connection
//! IDs"). It knows the layout and the encryption; what the nonce holds is for
//! `quic::cid` to say.
//!
//! ```text
//! 0          1                 1+n                 1+n+m <= 20
//! +----------+-----------------+--------------------+
//! | CR | len | server id       | nonce              |  encrypted with a key
//! +----------+-----------------+--------------------+
//! CR: configuration rotation, 3 bits; len: octets that follow, 5 bits
//! ```

use core::fmt;
use std::sync::Arc;

use aws_lc_rs::cipher::{
    AES_128, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext, UnboundCipherKey,
};

/// Octets of a server id at least and at most.
const SERVER_ID_BYTES: core::ops::RangeInclusive<usize> = 1..=15;
/// Octets of a nonce at least: the draft's minimum.
const NONCE_BYTES_MIN: usize = 4;
/// Octets of both together at most: an id of QUIC version 1 has 20.
pub(crate) const PLAINTEXT_MAX: usize = 19;
/// Octets of a block of AES.
const BLOCK: usize = 16;
/// The codepoint that marks ids which are not routable.
const ROTATION_UNROUTABLE: u8 = 0b111;

/// How connection ids are laid out for a load balancer.
#[derive(Clone)]
pub struct LbConfig {
    rotation: u8,
    server_id: Vec<u8>,
    nonce_len: usize,
    key: Option<Arc<BlockKey>>,
    /// The first octet tells the length; else its bits are random.
    tells_length: bool,
}

/// What a connection id says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LbId {
    /// Which configuration made it.
    pub rotation: u8,
    /// The server.
    pub server_id: Vec<u8>,
    /// What makes it unique.
    pub nonce: Vec<u8>,
}

/// A configuration of connection ids, or an id, makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LbError {
    /// The rotation is not one of seven.
    #[error("the configuration rotation must be 0 to 6, not {0}")]
    Rotation(u8),
    /// The server id is too short or too long.
    #[error("the server id must have 1 to 15 octets, not {0}")]
    ServerId(usize),
    /// The nonce is too short.
    #[error("the nonce must have at least {min} octets, not {len}")]
    Nonce {
        /// As configured.
        len: usize,
        /// What is needed.
        min: usize,
    },
    /// Server id and nonce do not fit together.
    #[error("server id and nonce must have at most 19 octets together, not {0}")]
    Length(usize),
    /// The cipher refused the key.
    #[error("the key does not suit AES-128")]
    Key,
    /// The id is of another length than the configuration's.
    #[error("the id has {len} octets, and those of this configuration have {expected}")]
    IdLength {
        /// Of the id.
        len: usize,
        /// As configured.
        expected: usize,
    },
    /// The id's first octet tells another length than it has.
    #[error("the first octet says that {says} octets follow, and {follow} do")]
    SelfLength {
        /// What it says.
        says: usize,
        /// What follows.
        follow: usize,
    },
    /// The id was made by another configuration.
    #[error("the id is of configuration {found}, not {expected}")]
    OtherRotation {
        /// Of the id.
        found: u8,
        /// As configured.
        expected: u8,
    },
    /// The id has no server id.
    #[error("the id is not routable: its configuration bits are 0b111")]
    Unroutable,
}

impl LbConfig {
    /// A configuration; without a key, server ids can be read by anyone.
    ///
    /// # Errors
    /// A length or the rotation is out of range.
    pub fn new(
        rotation: u8,
        server_id: &[u8],
        nonce_len: usize,
        key: Option<[u8; 16]>,
    ) -> Result<Self, LbError> {
        let sum = server_id.len() + nonce_len;
        if rotation >= ROTATION_UNROUTABLE {
            return Err(LbError::Rotation(rotation));
        }
        if !SERVER_ID_BYTES.contains(&server_id.len()) {
            return Err(LbError::ServerId(server_id.len()));
        }
        if nonce_len < NONCE_BYTES_MIN {
            return Err(LbError::Nonce {
                len: nonce_len,
                min: NONCE_BYTES_MIN,
            });
        }
        if sum > PLAINTEXT_MAX {
            return Err(LbError::Length(sum));
        }
        Ok(Self {
            rotation,
            server_id: server_id.to_vec(),
            nonce_len,
            key: key.map(BlockKey::new).transpose()?.map(Arc::new),
            tells_length: true,
        })
    }

    /// Whether the first octet tells the length, for load balancers that need
    /// it; default true. Else its five bits are random.
    #[must_use]
    pub const fn tell_length(mut self, tell: bool) -> Self {
        self.tells_length = tell;
        self
    }

    /// Octets of a connection id.
    #[must_use]
    pub fn id_len(&self) -> usize {
        1 + self.server_id.len() + self.nonce_len
    }

    /// Octets of a nonce.
    #[must_use]
    pub const fn nonce_len(&self) -> usize {
        self.nonce_len
    }

    /// Writes an id of [`id_len`](Self::id_len) octets. `random` fills the
    /// bits of the first octet that say nothing.
    pub(crate) fn write(&self, nonce: &[u8], random: u8, out: &mut [u8]) {
        let low = if self.tells_length {
            (self.id_len() - 1) as u8
        } else {
            random & 0x1f
        };
        let Some((first, body)) = out.split_first_mut() else {
            return;
        };
        *first = self.rotation << 5 | low;
        let filled = self.server_id.iter().chain(nonce);
        body.iter_mut()
            .zip(filled)
            .for_each(|(to, from)| *to = *from);
        if let Some(key) = &self.key {
            key.encrypt_id(body);
        }
    }

    /// The id of a nonce, for tests and tools.
    #[must_use]
    pub fn encode(&self, nonce: &[u8]) -> Vec<u8> {
        let mut id = vec![0; self.id_len()];
        self.write(nonce, 0, &mut id);
        id
    }

    /// Decrypts an id in place; its server id and nonce. `None`: it is not one
    /// of this configuration.
    pub(crate) fn open<'a>(&self, id: &'a mut [u8]) -> Option<(&'a [u8], &'a [u8])> {
        if id.len() != self.id_len() {
            return None;
        }
        let (first, body) = id.split_first_mut()?;
        if *first >> 5 != self.rotation
            || self.tells_length && usize::from(*first & 0x1f) != body.len()
        {
            return None;
        }
        if let Some(key) = &self.key {
            key.decrypt_id(body);
        }
        body.split_at_checked(self.server_id.len())
    }

    /// Reads an id; only the length of the configured server id matters, so
    /// that it reads the ids of every server.
    ///
    /// # Errors
    /// It is not one of this configuration.
    pub fn decode(&self, id: &[u8]) -> Result<LbId, LbError> {
        let (len, expected) = (id.len(), self.id_len());
        let first = *id.first().ok_or(LbError::IdLength { len, expected })?;
        let found = first >> 5;
        if found == ROTATION_UNROUTABLE {
            return Err(LbError::Unroutable);
        }
        if found != self.rotation {
            return Err(LbError::OtherRotation {
                found,
                expected: self.rotation,
            });
        }
        if len != expected {
            return Err(LbError::IdLength { len, expected });
        }
        let says = usize::from(first & 0x1f);
        if self.tells_length && says != len - 1 {
            let follow = len - 1;
            return Err(LbError::SelfLength { says, follow });
        }
        let mut id = id.to_vec();
        let opened = self.open(&mut id);
        let (server_id, nonce) = opened.ok_or(LbError::IdLength { len, expected })?;
        Ok(LbId {
            rotation: self.rotation,
            server_id: server_id.to_vec(),
            nonce: nonce.to_vec(),
        })
    }
}

impl fmt::Debug for LbConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LbConfig")
            .field("rotation", &self.rotation)
            .field("server_id", &self.server_id)
            .field("nonce_len", &self.nonce_len)
            .field("encrypted", &self.key.is_some())
            .field("tells_length", &self.tells_length)
            .finish()
    }
}

/// AES-128 of single blocks, both ways.
struct BlockKey {
    encrypt: EncryptingKey,
    decrypt: DecryptingKey,
}

impl BlockKey {
    fn new(key: [u8; 16]) -> Result<Self, LbError> {
        let unbound = || UnboundCipherKey::new(&AES_128, &key).map_err(|_| LbError::Key);
        Ok(Self {
            encrypt: EncryptingKey::ecb(unbound()?).map_err(|_| LbError::Key)?,
            decrypt: DecryptingKey::ecb(unbound()?).map_err(|_| LbError::Key)?,
        })
    }

    fn encrypt(&self, block: &mut [u8]) {
        let context = EncryptionContext::None;
        if self.encrypt.less_safe_encrypt(block, context).is_err() {
            tracing::error!("AES-128 refused a block");
        }
    }

    /// Of all octets after the first.
    fn encrypt_id(&self, body: &mut [u8]) {
        if body.len() == BLOCK {
            self.encrypt(body);
        } else {
            self.passes(body, [1, 2, 3, 4]);
        }
    }

    fn decrypt_id(&self, body: &mut [u8]) {
        if body.len() == BLOCK {
            if self.decrypt.decrypt(body, DecryptionContext::None).is_err() {
                tracing::error!("AES-128 refused a block");
            }
        } else {
            self.passes(body, [4, 3, 2, 1]);
        }
    }

    /// Four rounds of a Feistel network; in reverse they undo it. Odd passes
    /// change the right half, even ones the left.
    fn passes(&self, body: &mut [u8], passes: [u8; 4]) {
        let len = body.len();
        let half_len = len.div_ceil(2);
        let is_odd = len % 2 == 1;
        let mut left = Half::default();
        let mut right = Half::default();
        // With an odd length both halves share the octet in the middle.
        copy(&mut left, body);
        copy(&mut right, body.get(len - half_len..).unwrap_or_default());
        let trim = |left: &mut Half, right: &mut Half| {
            left.iter_mut().skip(half_len).for_each(|b| *b = 0);
            right.iter_mut().skip(half_len).for_each(|b| *b = 0);
            if is_odd {
                if let Some(b) = left.get_mut(half_len - 1) {
                    *b &= 0xf0;
                }
                if let Some(b) = right.first_mut() {
                    *b &= 0x0f;
                }
            }
        };
        trim(&mut left, &mut right);
        for pass in passes {
            let (from, to) = match pass % 2 {
                1 => (&left, &mut right),
                _ => (&right, &mut left),
            };
            let mut block = *from;
            let [.., length, round] = &mut block;
            (*length, *round) = (len as u8, pass);
            self.encrypt(&mut block);
            to.iter_mut()
                .zip(block)
                .take(half_len)
                .for_each(|(to, b)| *to ^= b);
            trim(&mut left, &mut right);
        }
        body.fill(0);
        body.iter_mut()
            .zip(left)
            .take(half_len)
            .for_each(|(to, b)| *to = b);
        body.iter_mut()
            .skip(len - half_len)
            .zip(right)
            .for_each(|(to, b)| *to |= b);
    }
}

/// Half of an id, at most 10 octets, at the start of a block.
type Half = [u8; BLOCK];

fn copy(to: &mut Half, from: &[u8]) {
    to.iter_mut().zip(from).for_each(|(to, b)| *to = *b);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digit = |c: u8| (c as char).to_digit(16).unwrap() as u8;
        text.as_bytes()
            .chunks(2)
            .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
            .collect()
    }

    fn key(text: &str) -> Option<[u8; 16]> {
        Some(hex(text).try_into().unwrap())
    }

    const KEY: &str = "8f95f09245765f80256934e50c66207f";

    /// draft-ietf-quic-load-balancers, "Load Balancer Test Vectors": "In all
    /// cases, the server is configured to encode the CID length."
    #[test]
    fn vectors_of_the_draft() {
        // "cr_bits sid nonce cid"; the last one is printed under cr_bits 3 and
        // its id begins with the bits of 0.
        let plain = [
            ("0", "c4605e", "4504cc4f", "07c4605e4504cc4f"),
            // Printed with digits astray: nonce "3487d970b", and id
            // "20a350d28b4203487d970b".
            ("1", "350d28b420", "03487d970b", "2a350d28b42003487d970b"),
        ];
        let encrypted = [
            ("0", "ed793a", "ee080dbf", "0720b1d07b359d3c"),
            (
                "1",
                "ed793a51d49b8f5fab65",
                "ee080dbf48",
                "2fcc381bc74cb4fbad2823a3d1f8fed2",
            ),
            (
                "2",
                "ed793a51d49b8f5f",
                "ee080dbf48c0d1e5",
                "504dd2d05a7b0de9b2b9907afb5ecf8cc3",
            ),
            (
                "0",
                "ed793a51d49b8f5fab",
                "ee080dbf48c0d1e55d",
                "125779c9cc86beb3a3a4a3ca96fce4bfe0cdbc",
            ),
        ];
        let plain = plain.map(|v| (v, None));
        let encrypted = encrypted.map(|v| (v, key(KEY)));
        for ((rotation, server, nonce, id), key) in plain.into_iter().chain(encrypted) {
            let (server, nonce, id) = (hex(server), hex(nonce), hex(id));
            let rotation = rotation.parse().unwrap();
            let config = LbConfig::new(rotation, &server, nonce.len(), key).unwrap();
            assert_eq!(config.encode(&nonce), id);
            let decoded = config.decode(&id).unwrap();
            assert_eq!(
                (decoded.rotation, decoded.server_id, decoded.nonce),
                (rotation, server, nonce)
            );
        }
    }

    /// The draft's worked example of four passes.
    #[test]
    fn the_example_of_four_passes() {
        let key = key("fdf726a9893ec05c0632d3956680baf0");
        let config = LbConfig::new(0, &hex("31441a"), 4, key).unwrap();
        assert_eq!(config.encode(&hex("9c69c275")), hex("0767947d29be054a"));
    }

    #[test]
    fn every_length_comes_back() {
        for server in 1..=15 {
            for nonce in 4..=19 - server {
                for key in [None, key(KEY)] {
                    for tell in [true, false] {
                        let bytes: Vec<u8> = (0..19u8).map(|b| b.wrapping_mul(37)).collect();
                        let (id, rest) = bytes.split_at(server);
                        let config = LbConfig::new(6, id, nonce, key).unwrap().tell_length(tell);
                        let encoded = config.encode(&rest[..nonce]);
                        let decoded = config.decode(&encoded).unwrap();
                        assert_eq!(decoded.server_id, id);
                        assert_eq!(decoded.nonce, rest[..nonce]);
                    }
                }
            }
        }
    }

    #[test]
    fn what_makes_no_sense_says_why() {
        let new = |rotation, server: usize, nonce| {
            let e = LbConfig::new(rotation, &vec![1; server], nonce, None);
            e.unwrap_err()
        };
        assert_eq!(new(7, 1, 8), LbError::Rotation(7));
        assert_eq!(new(0, 0, 8), LbError::ServerId(0));
        assert_eq!(new(0, 16, 4), LbError::ServerId(16));
        assert_eq!(new(0, 1, 3), LbError::Nonce { len: 3, min: 4 });
        assert_eq!(new(0, 10, 10), LbError::Length(20));
        let config = LbConfig::new(1, &[1, 2], 8, None).unwrap();
        let good = config.encode(&[0; 8]);
        let refused = |id: &[u8]| config.decode(id).unwrap_err();
        let (len, expected) = (10, 11);
        assert_eq!(refused(&good[..10]), LbError::IdLength { len, expected });
        let (len, expected) = (0, 11);
        assert_eq!(refused(&[]), LbError::IdLength { len, expected });
        let with_first = |first: u8| {
            let mut id = good.clone();
            id[0] = first;
            config.decode(&id).unwrap_err()
        };
        assert_eq!(with_first(0xea), LbError::Unroutable);
        let (found, expected) = (2, 1);
        assert_eq!(with_first(0x4a), LbError::OtherRotation { found, expected });
        let (says, follow) = (11, 10);
        assert_eq!(with_first(0x2b), LbError::SelfLength { says, follow });
    }
}
