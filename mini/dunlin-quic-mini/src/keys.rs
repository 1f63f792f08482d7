//! Keys of packets and the functions that derive them (RFC 9001 sections 5
//! and 6). Knows the shape of a packet only as far as its protection.

#[cfg(feature = "retry")]
use dunlin_mini_crypto::KEY_LEN;
use dunlin_mini_crypto::{Crypto, Digest, HmacKey, NONCE_LEN, Suite, SuiteKey, TAG_LEN};

use crate::held::Held;

/// Salt of the first secret, left-padded bytes of RFC 9001 section 5.2.
const INITIAL_SALT: [u8; 20] = [
    0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad,
    0xcc, 0xbb, 0x7f, 0x0a,
];

/// Key and nonce of the tag of a Retry packet, RFC 9001 section 5.8.
#[cfg(feature = "retry")]
const RETRY_KEY: SuiteKey = [[
    0xbe, 0x0c, 0x69, 0x0b, 0x9f, 0x66, 0x57, 0x5a, 0x1d, 0x76, 0x6b, 0x54, 0xe3, 0x68, 0xc8, 0x4e,
]; size_of::<SuiteKey>() / KEY_LEN];
#[cfg(feature = "retry")]
const RETRY_NONCE: [u8; NONCE_LEN] = [
    0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb,
];

/// The packet number is sent in four bytes always: simpler than choosing, and
/// the sample of header protection is then always there.
pub(crate) const PN_LEN: usize = 4;

/// HKDF-Expand-Label of RFC 8446 section 7.1, for at most 32 bytes.
#[inline(never)]
pub(crate) fn expand_label<C: Crypto>(
    crypto: &mut C,
    secret: &Digest,
    label: &[u8],
    context: &[u8],
    out: &mut [u8],
) {
    let secret = crypto.hmac_key(secret);
    expand_with(crypto, &secret, label, context, out);
}

/// The same with a secret that more than one is expanded of.
#[inline(never)]
pub(crate) fn expand_with<C: Crypto>(
    crypto: &mut C,
    secret: &HmacKey<C::Hash>,
    label: &[u8],
    context: &[u8],
    out: &mut [u8],
) {
    let [out_len, ..] = out.len().to_le_bytes();
    let [label_len, ..] = label.len().to_le_bytes();
    let [context_len, ..] = context.len().to_le_bytes();
    let head = [0, out_len, label_len.wrapping_add(6)];
    let info: [&[u8]; 5] = [&head, b"tls13 ", label, &[context_len], context];
    crypto.expand_with(secret, &info, out);
}

/// A key of a suite.
#[inline(always)]
fn suite_key<C: Crypto>(
    crypto: &mut C,
    suite: Suite,
    secret: &HmacKey<C::Hash>,
    label: &[u8],
) -> SuiteKey {
    let mut key = SuiteKey::default();
    if let Some(bytes) = key.as_flattened_mut().get_mut(..suite.key_len()) {
        expand_with(crypto, secret, label, &[], bytes);
    }
    key
}

/// Keys of one direction at one encryption level.
pub(crate) struct Keys<C: Crypto> {
    packet: PacketKey<C>,
    /// There as soon as the keys are whole.
    header: Option<C::Block>,
}

/// The part of the keys that a key update replaces.
pub(crate) struct PacketKey<C: Crypto> {
    aead: C::Aead,
    iv: [u8; NONCE_LEN],
}

impl<C: Crypto> PacketKey<C> {
    #[inline(never)]
    pub(crate) fn new(crypto: &mut C, suite: Suite, secret: &Digest) -> Self {
        let secret = crypto.hmac_key(secret);
        Self::of(crypto, suite, &secret)
    }

    #[inline(never)]
    fn of(crypto: &mut C, suite: Suite, secret: &HmacKey<C::Hash>) -> Self {
        let key = suite_key(crypto, suite, secret, b"quic key");
        let mut iv = [0; NONCE_LEN];
        expand_with(crypto, secret, b"quic iv", &[], &mut iv);
        Self {
            aead: crypto.aead(suite, &key),
            iv,
        }
    }

    fn nonce(&self, pn: u32) -> [u8; NONCE_LEN] {
        let mut nonce = self.iv;
        for (byte, pn) in nonce.iter_mut().rev().zip(&pn.to_le_bytes()) {
            *byte ^= pn;
        }
        nonce
    }

    /// Decrypts what follows the header of `header_len` bytes in place and
    /// gives the payload.
    #[inline(never)]
    pub(crate) fn open<'p>(
        &self,
        crypto: &mut C,
        pn: u32,
        packet: &'p mut [u8],
        header_len: usize,
    ) -> Option<&'p [u8]> {
        let (header, body) = packet.split_at_mut_checked(header_len)?;
        let (data, tag) = body.split_last_chunk_mut::<TAG_LEN>()?;
        let nonce = self.nonce(pn);
        crypto.open(&self.aead, &nonce, header, data, tag).ok()?;
        Some(data)
    }
}

impl<C: Crypto> Keys<C> {
    /// Makes keys where they stay, part by part: a whole set is too much for the
    /// stack of a small device.
    pub(crate) fn install(place: &mut Held<Self>, crypto: &mut C, suite: Suite, secret: &Digest) {
        let secret = crypto.hmac_key(secret);
        Self::begin(place, crypto, suite, &secret);
        if let Some(keys) = place.as_mut() {
            keys.end(crypto, suite, &secret);
        }
    }

    #[inline(never)]
    fn begin(place: &mut Held<Self>, crypto: &mut C, suite: Suite, secret: &HmacKey<C::Hash>) {
        *place = Held::Nothing;
        let packet = PacketKey::of(crypto, suite, secret);
        *place = Held::Value(Self {
            packet,
            header: None,
        });
    }

    #[inline(never)]
    fn end(&mut self, crypto: &mut C, suite: Suite, secret: &HmacKey<C::Hash>) {
        let key = suite_key(crypto, suite, secret, b"quic hp");
        self.header = Some(crypto.block(suite, &key));
    }

    #[cfg(any(test, feature = "trial"))]
    pub(crate) fn new(crypto: &mut C, suite: Suite, secret: &Digest) -> Self {
        let mut place = Held::Nothing;
        Self::install(&mut place, crypto, suite, secret);
        place.take().expect("they were installed")
    }

    pub(crate) const fn packet(&self) -> &PacketKey<C> {
        &self.packet
    }

    /// Replaces the packet key, as a key update does; the header key stays.
    pub(crate) fn replace(&mut self, packet: PacketKey<C>) {
        self.packet = packet;
    }

    /// The mask of header protection for the packet number at `at`.
    fn mask(&self, crypto: &mut C, packet: &[u8], at: usize) -> Option<[u8; 16]> {
        let sample = packet.get(at.checked_add(PN_LEN)?..)?;
        let mut mask = *sample.first_chunk()?;
        crypto.mask(self.header.as_ref()?, &mut mask);
        Some(mask)
    }

    /// Takes the header protection off. Gives the truncated packet number and
    /// the length of the header.
    #[inline(never)]
    pub(crate) fn unmask(
        &self,
        crypto: &mut C,
        packet: &mut [u8],
        at: usize,
    ) -> Option<(u32, usize)> {
        let [mask, pad @ ..] = self.mask(crypto, packet, at)?;
        let first = packet.first_mut()?;
        *first ^= mask & header_bits(*first);
        let len = usize::from(*first & 3) + 1;
        let mut pn = 0;
        for (byte, pad) in packet.get_mut(at..)?.iter_mut().take(len).zip(pad) {
            *byte ^= pad;
            pn = pn << 8 | u32::from(*byte);
        }
        Some((pn, at + len))
    }

    /// Encrypts a finished packet in place: header up to and with the packet
    /// number at `at`, payload, and room for the tag.
    #[inline(never)]
    pub(crate) fn seal(&self, crypto: &mut C, pn: u32, packet: &mut [u8], at: usize) -> Option<()> {
        let (header, body) = packet.split_at_mut_checked(at.checked_add(PN_LEN)?)?;
        let (data, tag) = body.split_last_chunk_mut::<TAG_LEN>()?;
        let nonce = self.packet.nonce(pn);
        *tag = crypto.seal(&self.packet.aead, &nonce, header, data);
        let [mask, pad @ ..] = self.mask(crypto, packet, at)?;
        let first = packet.first_mut()?;
        *first ^= mask & header_bits(*first);
        let number = packet.get_mut(at..)?.iter_mut().take(PN_LEN);
        for (byte, pad) in number.zip(pad) {
            *byte ^= pad;
        }
        Some(())
    }
}

/// The bits of the first byte that are protected.
const fn header_bits(first: u8) -> u8 {
    if first & 0x80 == 0 { 0x1f } else { 0x0f }
}

/// The secrets of Initial packets, the client's and the server's.
#[inline(never)]
pub(crate) fn initial<C: Crypto>(crypto: &mut C, dcid: &[u8]) -> [Digest; 2] {
    let mut salt = [0; 32];
    crate::wire::fill(&mut salt, &INITIAL_SALT);
    let secret = crypto.extract(&salt, dcid);
    let secret = crypto.hmac_key(&secret);
    let mut sides = [[0; 32]; 2];
    for (side, label) in sides.iter_mut().zip([b"client in", b"server in"]) {
        expand_with(crypto, &secret, label, &[], side);
    }
    sides
}

/// The secret after a key update.
#[inline(never)]
pub(crate) fn next_secret<C: Crypto>(crypto: &mut C, secret: &Digest) -> Digest {
    let mut next = [0; 32];
    expand_label(crypto, secret, b"quic ku", &[], &mut next);
    next
}

/// Whether the tag at the end of a Retry packet is right. `pseudo` begins with
/// the length-prefixed original connection id and has room for the packet.
#[cfg(feature = "retry")]
#[inline(never)]
pub(crate) fn retry_is_genuine<C: Crypto>(crypto: &mut C, pseudo: &[u8], tag: &[u8]) -> bool {
    dunlin_mini_crypto::equal(&retry_tag(crypto, pseudo), tag)
}

/// The tag of a Retry.
#[cfg(feature = "retry")]
pub(crate) fn retry_tag<C: Crypto>(crypto: &mut C, pseudo: &[u8]) -> [u8; TAG_LEN] {
    let key = crypto.aead(Suite::Aes128Gcm, &RETRY_KEY);
    crypto.seal(&key, &RETRY_NONCE, pseudo, &mut [])
}

/// The packet number nearest to `expected` that ends with `truncated`
/// (RFC 9000 section 17.1), unless it is below zero or beyond 32 bits.
pub(crate) fn decode_pn(expected: u32, truncated: u32, len: usize) -> Option<u32> {
    let shift = 32_u32.saturating_sub(8 * u32::try_from(len).ok()?);
    let distance = truncated
        .wrapping_sub(expected)
        .wrapping_shl(shift)
        .cast_signed();
    expected.checked_add_signed(distance.wrapping_shr(shift))
}

#[cfg(test)]
mod tests {
    use dunlin_mini_crypto::{CryptoError, Host};

    use super::*;

    fn host() -> Host<impl FnMut(&mut [u8]) -> Result<(), CryptoError>> {
        Host::new(|_: &mut [u8]| Ok(()))
    }

    const DCID: [u8; 8] = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];

    #[test]
    fn server_initial_of_rfc_9001() {
        // RFC 9001 appendix A.3, which has a packet number of two bytes: only
        // taking off can be shown with it.
        let mut packet = [
            0xcf, 0x00, 0x00, 0x00, 0x01, 0x00, 0x08, 0xf0, 0x67, 0xa5, 0x50, 0x2a, 0x42, 0x62,
            0xb5, 0x00, 0x40, 0x75, 0xc0, 0xd9, 0x5a, 0x48, 0x2c, 0xd0, 0x99, 0x1c, 0xd2, 0x5b,
            0x0a, 0xac, 0x40, 0x6a, 0x58, 0x16, 0xb6, 0x39, 0x41, 0x00, 0xf3, 0x7a, 0x1c, 0x69,
            0x79, 0x75, 0x54, 0x78, 0x0b, 0xb3, 0x8c, 0xc5, 0xa9, 0x9f, 0x5e, 0xde, 0x4c, 0xf7,
            0x3c, 0x3e, 0xc2, 0x49, 0x3a, 0x18, 0x39, 0xb3, 0xdb, 0xcb, 0xa3, 0xf6, 0xea, 0x46,
            0xc5, 0xb7, 0x68, 0x4d, 0xf3, 0x54, 0x8e, 0x7d, 0xde, 0xb9, 0xc3, 0xbf, 0x9c, 0x73,
            0xcc, 0x3f, 0x3b, 0xde, 0xd7, 0x4b, 0x56, 0x2b, 0xfb, 0x19, 0xfb, 0x84, 0x02, 0x2f,
            0x8e, 0xf4, 0xcd, 0xd9, 0x37, 0x95, 0xd7, 0x7d, 0x06, 0xed, 0xbb, 0x7a, 0xaf, 0x2f,
            0x58, 0x89, 0x18, 0x50, 0xab, 0xbd, 0xca, 0x3d, 0x20, 0x39, 0x8c, 0x27, 0x64, 0x56,
            0xcb, 0xc4, 0x21, 0x58, 0x40, 0x7d, 0xd0, 0x74, 0xee,
        ];
        let mut crypto = host();
        let [_, server] = initial(&mut crypto, &DCID);
        let server = Keys::new(&mut crypto, Suite::Aes128Gcm, &server);
        let (pn, header) = server.unmask(&mut crypto, &mut packet, 18).unwrap();
        assert_eq!((pn, header), (1, 20));
        let payload = server.packet().open(&mut crypto, pn, &mut packet, header);
        assert_eq!(payload.unwrap()[..5], [0x02, 0x00, 0x00, 0x00, 0x00]);
    }

    #[test]
    fn sealed_packets_open() {
        let mut crypto = host();
        let [client, _] = initial(&mut crypto, &DCID);
        let client = Keys::new(&mut crypto, Suite::Aes128Gcm, &client);
        let mut packet = [0; 60];
        packet[..5].copy_from_slice(&[0xc3, 0, 0, 0, 1]);
        packet[6..10].copy_from_slice(&9_u32.to_be_bytes());
        packet[10..44].fill(7);
        client.seal(&mut crypto, 9, &mut packet, 6).unwrap();
        let (pn, header) = client.unmask(&mut crypto, &mut packet, 6).unwrap();
        assert_eq!((pn, header), (9, 10));
        let mut altered = packet;
        altered[20] ^= 1;
        assert!(
            client
                .packet()
                .open(&mut crypto, pn, &mut altered, header)
                .is_none()
        );
        let payload = client.packet().open(&mut crypto, pn, &mut packet, header);
        assert_eq!(payload, Some(&[7; 34][..]));
    }

    #[cfg(feature = "retry")]
    #[test]
    fn retry_of_rfc_9001() {
        // RFC 9001 appendix A.4.
        let mut pseudo = [0; 9 + 20];
        pseudo[0] = 8;
        pseudo[1..9].copy_from_slice(&DCID);
        pseudo[9..].copy_from_slice(&[
            0xff, 0x00, 0x00, 0x00, 0x01, 0x00, 0x08, 0xf0, 0x67, 0xa5, 0x50, 0x2a, 0x42, 0x62,
            0xb5, 0x74, 0x6f, 0x6b, 0x65, 0x6e,
        ]);
        let mut tag = [
            0x04, 0xa2, 0x65, 0xba, 0x2e, 0xff, 0x4d, 0x82, 0x90, 0x58, 0xfb, 0x3f, 0x0f, 0x24,
            0x96, 0xba,
        ];
        let mut crypto = host();
        assert!(retry_is_genuine(&mut crypto, &pseudo, &tag));
        tag[3] ^= 1;
        assert!(!retry_is_genuine(&mut crypto, &pseudo, &tag));
    }

    #[test]
    fn packet_numbers_find_their_place() {
        // RFC 9000 appendix A.3, and the edges.
        assert_eq!(decode_pn(0xa82f_30eb, 0x9b32, 2), Some(0xa82f_9b32));
        assert_eq!(decode_pn(0, 0, 1), Some(0));
        assert_eq!(decode_pn(0, 0xff, 1), None);
        assert_eq!(decode_pn(u32::MAX, 0x05, 1), None);
        assert_eq!(decode_pn(255, 0, 1), Some(256));
        assert_eq!(decode_pn(7, 0x1234_5678, 4), Some(0x1234_5678));
    }
}
