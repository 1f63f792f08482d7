//! QUIC connection ids that tell the shard they belong to, so that a datagram
//! which the kernel gave to another shard's socket finds its way.
//!
//! ```text
//! 0        2                    8
//! +--------+--------------------+
//! | shard ^ mask(key, rest)     |   2 bytes
//! |        | rest               |   6 random bytes, or more
//! +--------+--------------------+
//! ```
//!
//! The mask keeps an observer from linking ids by their shard. Behind a load
//! balancer this is the nonce of an id as [`crate::lb`] lays it out, after the
//! server id and encrypted with it. The shards of several processes with the same
//! keys have different numbers, so that each reads the ids of all.

use core::ops::Range;
use core::time::Duration;

use dunlin_base::ShardId;
use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};

use crate::lb::{LbConfig, LbError};

/// The longest id of QUIC version 1.
const ID_BYTES_MAX: usize = 20;
/// Length of a nonce without a load balancer, and its least length with one:
/// six random bytes, so that ids of one shard do not meet.
pub(crate) const NONCE_BYTES: usize = 8;
const SHARD_BYTES: usize = 2;
/// Random bytes drawn from the system at once.
const POOL_BYTES: usize = 1024;

/// Reads and writes the shard in a connection id.
#[derive(Clone, Debug)]
pub struct CidCodec {
    key: (u64, u64),
    /// Numbers that shards have.
    shards: Range<u16>,
    lb: Option<LbConfig>,
}

impl CidCodec {
    /// `key` masks the shard and is common to all of them.
    ///
    /// # Errors
    /// The nonce of the load balancer's configuration is too short.
    pub fn new(key: [u8; 16], shards: u16, lb: Option<LbConfig>) -> Result<Self, LbError> {
        let key = u128::from_le_bytes(key);
        let len = lb.as_ref().map_or(NONCE_BYTES, LbConfig::nonce_len);
        if len < NONCE_BYTES {
            let min = NONCE_BYTES;
            return Err(LbError::Nonce { len, min });
        }
        Ok(Self {
            key: (key as u64, (key >> 64) as u64),
            shards: 0..shards,
            lb,
        })
    }

    /// Shards of several processes issue such ids, and have these numbers.
    #[must_use]
    pub fn among(self, shards: Range<u16>) -> Self {
        Self { shards, ..self }
    }

    /// Octets of a connection id.
    #[must_use]
    pub fn id_len(&self) -> usize {
        self.lb.as_ref().map_or(NONCE_BYTES, LbConfig::id_len)
    }

    fn nonce_len(&self) -> usize {
        self.lb.as_ref().map_or(NONCE_BYTES, LbConfig::nonce_len)
    }

    /// Makes an id of a nonce whose first two bytes are overwritten.
    fn encode(&self, shard: ShardId, nonce: &mut [u8], random: u8) -> ConnectionId {
        if let Some((first, rest)) = nonce.split_first_chunk_mut::<SHARD_BYTES>() {
            *first = (shard.0 ^ self.mask(rest)).to_be_bytes();
        }
        match &self.lb {
            None => ConnectionId::new(nonce),
            Some(lb) => {
                let mut id = [0; ID_BYTES_MAX];
                let id = id.get_mut(..lb.id_len()).unwrap_or_default();
                lb.write(nonce, random, id);
                ConnectionId::new(id)
            }
        }
    }

    /// An id of a shard, for tools and tests; the first two octets of the
    /// nonce do not matter.
    #[must_use]
    pub fn id(&self, shard: ShardId, nonce: &[u8]) -> Vec<u8> {
        let mut nonce = nonce.to_vec();
        nonce.resize(self.nonce_len(), 0);
        self.encode(shard, &mut nonce, 0).to_vec()
    }

    /// The shard of an id that we issued; most others yield `None`.
    #[must_use]
    pub fn shard(&self, id: &[u8]) -> Option<ShardId> {
        let Some(lb) = &self.lb else {
            return (id.len() == NONCE_BYTES)
                .then(|| self.shard_of_nonce(id))
                .flatten();
        };
        let mut buf = [0; ID_BYTES_MAX];
        let buf = buf.get_mut(..id.len())?;
        buf.copy_from_slice(id);
        let (_, nonce) = lb.open(buf)?;
        self.shard_of_nonce(nonce)
    }

    /// The shard that a nonce holds.
    #[must_use]
    pub fn shard_of_nonce(&self, nonce: &[u8]) -> Option<ShardId> {
        let (first, rest) = nonce.split_first_chunk::<SHARD_BYTES>()?;
        let shard = u16::from_be_bytes(*first) ^ self.mask(rest);
        self.shards.contains(&shard).then_some(ShardId(shard))
    }

    fn mask(&self, rest: &[u8]) -> u16 {
        siphash24(self.key, rest) as u16
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
    let len = codec.id_len();
    if first & LONG_HEADER == 0 {
        return codec.shard(datagram.get(1..=len)?);
    }
    if first & TYPE_BITS != HANDSHAKE || usize::from(*datagram.get(5)?) != len {
        return None;
    }
    codec.shard(datagram.get(LONG_CID_AT..LONG_CID_AT + len)?)
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

    /// Fills `to` with fresh random bytes.
    fn draw(&mut self, to: &mut [u8]) {
        if self.used + to.len() > POOL_BYTES {
            self.used = 0;
            if let Err(error) = getrandom::fill(&mut self.pool) {
                // Ids repeat then and connections fail, which is visible; an
                // id is no secret.
                tracing::error!(%error, "no random bytes for connection ids");
            }
        }
        if let Some(bytes) = self.pool.get(self.used..self.used + to.len()) {
            to.copy_from_slice(bytes);
        }
        self.used += to.len();
    }
}

impl ConnectionIdGenerator for ShardCids {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut bytes = [0; ID_BYTES_MAX];
        let len = self.codec.nonce_len();
        self.draw(bytes.get_mut(..=len).unwrap_or_default());
        let [random, nonce @ ..] = &mut bytes;
        let nonce = nonce.get_mut(..len).unwrap_or_default();
        self.codec.encode(self.shard, nonce, *random)
    }

    fn validate(&self, cid: &ConnectionId) -> Result<(), InvalidCid> {
        self.codec.shard(cid).map(|_| ()).ok_or(InvalidCid)
    }

    fn cid_len(&self) -> usize {
        self.codec.id_len()
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// SipHash-2-4 (Aumasson and Bernstein 2012): a keyed function that costs
/// nanoseconds per datagram and stays the same between builds.
fn siphash24(key: (u64, u64), message: &[u8]) -> u64 {
    let mut v = [
        key.0 ^ 0x736f_6d65_7073_6575,
        key.1 ^ 0x646f_7261_6e64_6f6d,
        key.0 ^ 0x6c79_6765_6e65_7261,
        key.1 ^ 0x7465_6462_7974_6573,
    ];
    let (blocks, rest) = message.as_chunks::<8>();
    // The last block holds the message length in its top byte.
    let mut last = [0; 8];
    last.iter_mut().zip(rest).for_each(|(to, b)| *to = *b);
    let last = u64::from_le_bytes(last) | (message.len() as u64) << 56;
    for block in blocks.iter().map(|b| u64::from_le_bytes(*b)).chain([last]) {
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

    fn plain(key: [u8; 16], shards: u16) -> CidCodec {
        CidCodec::new(key, shards, None).unwrap()
    }

    fn balanced(nonce: usize, key: Option<[u8; 16]>) -> CidCodec {
        let lb = LbConfig::new(3, b"s1", nonce, key).unwrap();
        CidCodec::new(*b"0123456789abcdef", 4, Some(lb)).unwrap()
    }

    #[test]
    fn siphash_matches_the_reference_vectors() {
        // Key 00..0f, messages of 00.., from the reference implementation.
        let key = (0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        let hash = |n: u8| siphash24(key, &(0..n).collect::<Vec<_>>());
        assert_eq!(hash(0), 0x726f_db47_dd0e_0e31);
        assert_eq!(hash(8), 0x93f5_f579_9a93_2462);
        assert_eq!(hash(15), 0xa129_ca61_49be_45e5);
    }

    #[test]
    fn ids_carry_their_shard_and_do_not_show_it() {
        let key = Some([9; 16]);
        let codecs = [
            plain(*b"0123456789abcdef", 4),
            balanced(8, None),
            balanced(14, key),
            balanced(9, key),
        ];
        for codec in codecs {
            let mut nonces = std::collections::BTreeSet::new();
            for shard in 0..4 {
                let mut cids = ShardCids::new(codec.clone(), ShardId(shard));
                for _ in 0..100 {
                    let cid = cids.generate_cid();
                    assert_eq!(cid.len(), codec.id_len());
                    nonces.insert(cid[cid.len() - codec.nonce_len()..].to_vec());
                    assert_eq!(codec.shard(&cid), Some(ShardId(shard)));
                    assert!(cids.validate(&cid).is_ok());
                    assert_eq!(codec.shard(&cid[1..]), None);
                }
            }
            let masked: std::collections::BTreeSet<_> =
                nonces.iter().map(|n| n[..2].to_vec()).collect();
            assert!(masked.len() > 300, "shards are masked");
        }
    }

    #[test]
    fn ids_of_others_have_no_shard() {
        let codec = plain(*b"0123456789abcdef", 4);
        let cid = ShardCids::new(codec, ShardId(1)).generate_cid();
        let other = plain(*b"another key 1234", 1);
        assert_eq!(other.shard(&cid), None);
        let balanced = balanced(8, None);
        assert_eq!(balanced.shard(&cid), None);
        let id = ShardCids::new(balanced.clone(), ShardId(1)).generate_cid();
        let mut rotated = id.to_vec();
        rotated[0] ^= 0x20;
        assert_eq!(balanced.shard(&rotated), None);
        let short = LbConfig::new(3, b"s1", 7, None).unwrap();
        let refused = CidCodec::new([0; 16], 1, Some(short)).unwrap_err();
        assert_eq!(refused, LbError::Nonce { len: 7, min: 8 });
    }

    #[test]
    fn ids_of_several_processes_tell_which_one_issued_them() {
        for lb in [
            None,
            Some(LbConfig::new(3, b"s1", 14, Some([9; 16])).unwrap()),
        ] {
            let all = CidCodec::new([7; 16], 2, lb).unwrap().among(64..256);
            for shard in [64, 65, 255] {
                let id = ShardCids::new(all.clone(), ShardId(shard)).generate_cid();
                assert_eq!(all.shard(&id), Some(ShardId(shard)));
                let fewer = all.clone().among(64..65);
                let known = (shard == 64).then_some(ShardId(64));
                assert_eq!(fewer.shard(&id), known);
            }
        }
    }

    #[test]
    fn only_ids_that_a_server_issued_route_datagrams() {
        for codec in [plain([7; 16], 2), balanced(10, Some([1; 16]))] {
            let cid = ShardCids::new(codec.clone(), ShardId(1)).generate_cid();
            let long = |kind: u8| {
                let mut d = vec![0xc0 | kind << 4, 0, 0, 0, 1, cid.len() as u8];
                d.extend(&*cid);
                d
            };
            let mut short = vec![0x40];
            short.extend(&*cid);
            assert_eq!(shard_of_datagram(&codec, &short), Some(ShardId(1)));
            assert_eq!(shard_of_datagram(&codec, &long(2)), Some(ShardId(1)));
            assert_eq!(shard_of_datagram(&codec, &long(0)), None, "Initial");
            assert_eq!(shard_of_datagram(&codec, &long(1)), None, "0-RTT");
            for cut in 0..short.len() {
                assert_eq!(shard_of_datagram(&codec, &short[..cut]), None);
            }
        }
    }
}
