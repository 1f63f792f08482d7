//! QUIC connection ids that tell the shard they belong to, so that a datagram
//! which the kernel gave to another shard's socket finds its way.
//!
//! ```text
//! 0        2                    8
//! +--------+--------------------+
//! | shard ^ mask(key, nonce)    |   2 bytes
//! |        | nonce              |   6 random bytes
//! +--------+--------------------+
//! ```
//!
//! The mask keeps an observer from linking ids by their shard. A server id in
//! the manner of QUIC-LB fits in front of the shard as a further layout; the
//! length is a property of the layout, everything else asks this file.

use core::time::Duration;

use dunlin_base::ShardId;
use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};

/// Length of every connection id that we issue.
pub(crate) const CID_BYTES: usize = 8;
const NONCE_BYTES: usize = 6;
/// Random bytes drawn from the system at once.
const POOL_BYTES: usize = 64 * NONCE_BYTES;

/// Reads and writes the shard in a connection id.
#[derive(Clone, Copy)]
pub(crate) struct CidCodec {
    key: (u64, u64),
    shards: u16,
}

impl CidCodec {
    pub(crate) fn new(key: [u8; 16], shards: u16) -> Self {
        let key = u128::from_le_bytes(key);
        Self {
            key: (key as u64, (key >> 64) as u64),
            shards,
        }
    }

    pub(crate) fn encode(&self, shard: ShardId, nonce: [u8; NONCE_BYTES]) -> [u8; CID_BYTES] {
        let [a, b] = (shard.0 ^ self.mask(nonce)).to_be_bytes();
        let [c, d, e, f, g, h] = nonce;
        [a, b, c, d, e, f, g, h]
    }

    /// The shard of an id that we issued; most others yield `None`.
    pub(crate) fn decode(&self, cid: &[u8]) -> Option<ShardId> {
        let &[a, b, c, d, e, f, g, h] = cid else {
            return None;
        };
        let shard = u16::from_be_bytes([a, b]) ^ self.mask([c, d, e, f, g, h]);
        (shard < self.shards).then_some(ShardId(shard))
    }

    fn mask(&self, nonce: [u8; NONCE_BYTES]) -> u16 {
        let [c, d, e, f, g, h] = nonce;
        let hash = siphash24(self.key, u64::from_le_bytes([c, d, e, f, g, h, 0, 0]));
        hash as u16
    }
}

/// The shard to which a datagram belongs, when its header says so: packets
/// that carry an id issued by a server. The first flight of a client carries
/// one of the client's choice and is handled where it lands.
pub(crate) fn shard_of_datagram(codec: &CidCodec, datagram: &[u8]) -> Option<ShardId> {
    const LONG_HEADER: u8 = 0x80;
    const TYPE_BITS: u8 = 0x30;
    const HANDSHAKE: u8 = 0x20;
    /// Flags, version and length of the destination id.
    const LONG_CID_AT: usize = 6;
    let first = *datagram.first()?;
    if first & LONG_HEADER == 0 {
        return codec.decode(datagram.get(1..=CID_BYTES)?);
    }
    if first & TYPE_BITS != HANDSHAKE || usize::from(*datagram.get(5)?) != CID_BYTES {
        return None;
    }
    codec.decode(datagram.get(LONG_CID_AT..LONG_CID_AT + CID_BYTES)?)
}

/// Issues ids for one shard.
pub(crate) struct ShardCids {
    codec: CidCodec,
    shard: ShardId,
    pool: [u8; POOL_BYTES],
    used: usize,
}

impl ShardCids {
    pub(crate) const fn new(codec: CidCodec, shard: ShardId) -> Self {
        Self {
            codec,
            shard,
            pool: [0; POOL_BYTES],
            used: POOL_BYTES,
        }
    }

    fn nonce(&mut self) -> [u8; NONCE_BYTES] {
        if self.used >= POOL_BYTES {
            self.used = 0;
            if let Err(error) = getrandom::fill(&mut self.pool) {
                // Ids repeat then and connections fail, which is visible; an
                // id is no secret.
                tracing::error!(%error, "no random bytes for connection ids");
            }
        }
        let mut nonce = [0; NONCE_BYTES];
        if let Some(bytes) = self.pool.get(self.used..self.used + NONCE_BYTES) {
            nonce.copy_from_slice(bytes);
        }
        self.used += NONCE_BYTES;
        nonce
    }
}

impl ConnectionIdGenerator for ShardCids {
    fn generate_cid(&mut self) -> ConnectionId {
        let nonce = self.nonce();
        ConnectionId::new(&self.codec.encode(self.shard, nonce))
    }

    fn validate(&self, cid: &ConnectionId) -> Result<(), InvalidCid> {
        self.codec.decode(cid).map(|_| ()).ok_or(InvalidCid)
    }

    fn cid_len(&self) -> usize {
        CID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// SipHash-2-4 of eight bytes (Aumasson and Bernstein 2012): a keyed function
/// that costs nanoseconds per datagram and stays the same between builds.
fn siphash24(key: (u64, u64), message: u64) -> u64 {
    let mut v = [
        key.0 ^ 0x736f_6d65_7073_6575,
        key.1 ^ 0x646f_7261_6e64_6f6d,
        key.0 ^ 0x6c79_6765_6e65_7261,
        key.1 ^ 0x7465_6462_7974_6573,
    ];
    // The last block holds the message length in its top byte.
    for block in [message, 8 << 56] {
        v[3] ^= block;
        sip_rounds(&mut v, 2);
        v[0] ^= block;
    }
    v[2] ^= 0xff;
    sip_rounds(&mut v, 4);
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

fn sip_rounds(v: &mut [u64; 4], rounds: u32) {
    for _ in 0..rounds {
        v[0] = v[0].wrapping_add(v[1]);
        v[1] = v[1].rotate_left(13) ^ v[0];
        v[0] = v[0].rotate_left(32);
        v[2] = v[2].wrapping_add(v[3]);
        v[3] = v[3].rotate_left(16) ^ v[2];
        v[0] = v[0].wrapping_add(v[3]);
        v[3] = v[3].rotate_left(21) ^ v[0];
        v[2] = v[2].wrapping_add(v[1]);
        v[1] = v[1].rotate_left(17) ^ v[2];
        v[2] = v[2].rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siphash_matches_the_reference_vector() {
        // Key 00..0f, message 00..07, from the reference implementation.
        let key = (0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        let hash = siphash24(key, 0x0706_0504_0302_0100);
        assert_eq!(hash, 0x93f5_f579_9a93_2462);
    }

    #[test]
    fn ids_carry_their_shard_and_do_not_show_it() {
        let codec = CidCodec::new(*b"0123456789abcdef", 4);
        let mut first_bytes = std::collections::BTreeSet::new();
        for shard in 0..4 {
            let mut cids = ShardCids::new(codec, ShardId(shard));
            for _ in 0..100 {
                let cid = cids.generate_cid();
                first_bytes.insert(cid[..2].to_vec());
                assert_eq!(codec.decode(&cid), Some(ShardId(shard)));
                assert!(cids.validate(&cid).is_ok());
            }
        }
        assert!(first_bytes.len() > 300, "shards are masked");
        let other = CidCodec::new(*b"another key 1234", 4);
        let cid = codec.encode(ShardId(1), [1, 2, 3, 4, 5, 6]);
        assert_eq!(other.decode(&cid), None);
        assert_eq!(codec.decode(&cid[1..]), None);
    }

    #[test]
    fn only_ids_that_a_server_issued_route_datagrams() {
        let codec = CidCodec::new([7; 16], 2);
        let cid = codec.encode(ShardId(1), [9; 6]);
        let long = |kind: u8| {
            let mut d = vec![0xc0 | kind << 4, 0, 0, 0, 1, 8];
            d.extend(cid);
            d
        };
        let mut short = vec![0x40];
        short.extend(cid);
        assert_eq!(shard_of_datagram(&codec, &short), Some(ShardId(1)));
        assert_eq!(shard_of_datagram(&codec, &long(2)), Some(ShardId(1)));
        assert_eq!(shard_of_datagram(&codec, &long(0)), None, "Initial");
        assert_eq!(shard_of_datagram(&codec, &long(1)), None, "0-RTT");
        for cut in 0..short.len() {
            assert_eq!(shard_of_datagram(&codec, &short[..cut]), None);
        }
    }
}
