//! Keys of QUIC packets that are kept as TLS derives them, in 32 bytes each. A
//! cipher expands a key before it uses it, AES-GCM to 600 bytes, and a connection
//! has six keys for as long as it lives. Expanded keys are in a table of each
//! thread, which holds those that were used lately. Knows no connection.

use core::cell::RefCell;
use core::hash::{BuildHasherDefault, Hasher};
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::aead::{self, Aad, LessSafeKey, UnboundKey};
use aws_lc_rs::error::Unspecified;
use dunlin_base::Instant;
use rustls::crypto::CipherSuiteCommon;
use rustls::crypto::cipher::{AeadKey, Iv, Nonce};
use rustls::quic::{self, Tag};
use rustls::{CipherSuite, Error, SupportedCipherSuite, Tls13CipherSuite};

/// Expanded keys of a kind that a thread gathers before it lets the older ones go:
/// those of a thousand busy connections.
const EXPANDED_MAX: usize = 2048;

/// Uses of a key after which it is kept expanded: more than a handshake and a
/// client's first words take.
const USES_MIN: u64 = 8;
const USES_BITS: u32 = 8;
const USES_MASK: u64 = (1 << USES_BITS) - 1;

/// Time in which an expanded key that is not used is let go, or twice that.
const UNUSED: Duration = Duration::from_secs(10);

/// Packets with AES-GCM under one key (RFC 9001 section 6.6).
const GCM_SEALED_MAX: u64 = 1 << 23;
/// Forged packets with AES-GCM and ChaCha20-Poly1305 under one key (likewise).
const GCM_FORGED_MAX: u64 = 1 << 52;
const CHACHA_FORGED_MAX: u64 = 1 << 36;

/// The suite with compact keys, if it is one of TLS 1.3. TLS wants suites that
/// live for ever: there is one for each that there is.
pub(super) fn compact(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    static SUITES: Mutex<BTreeMap<u16, &'static Tls13CipherSuite>> = Mutex::new(BTreeMap::new());
    let SupportedCipherSuite::Tls13(inner) = suite else {
        return suite;
    };
    let Some(ciphers) = ciphers(inner.common.suite) else {
        return suite;
    };
    let mut suites = SUITES.lock().unwrap_or_else(PoisonError::into_inner);
    let suite = suites.entry(inner.common.suite.into()).or_insert_with(|| {
        Box::leak(Box::new(Tls13CipherSuite {
            common: CipherSuiteCommon {
                suite: inner.common.suite,
                hash_provider: inner.common.hash_provider,
                confidentiality_limit: inner.common.confidentiality_limit,
            },
            hkdf_provider: inner.hkdf_provider,
            aead_alg: inner.aead_alg,
            quic: Some(ciphers),
        }))
    });
    SupportedCipherSuite::Tls13(suite)
}

/// Lets go of expanded keys of this thread that were not used lately. To be called
/// every few seconds.
pub fn release_keys(now: Instant) {
    EXPANDED.with_borrow_mut(|expanded| {
        if now.saturating_duration_since(expanded.aged) >= UNUSED || now < expanded.aged {
            expanded.aged = now;
            expanded.packets.age();
            expanded.headers.age();
        }
    });
}

/// What protects the packets of a suite.
struct Ciphers {
    packet: &'static aead::Algorithm,
    header: &'static aead::quic::Algorithm,
    sealed_max: u64,
    forged_max: u64,
}

fn ciphers(suite: CipherSuite) -> Option<&'static dyn quic::Algorithm> {
    static AES_128: &Ciphers = &Ciphers {
        packet: &aead::AES_128_GCM,
        header: &aead::quic::AES_128,
        sealed_max: GCM_SEALED_MAX,
        forged_max: GCM_FORGED_MAX,
    };
    static AES_256: &Ciphers = &Ciphers {
        packet: &aead::AES_256_GCM,
        header: &aead::quic::AES_256,
        sealed_max: GCM_SEALED_MAX,
        forged_max: GCM_FORGED_MAX,
    };
    static CHACHA20: &Ciphers = &Ciphers {
        packet: &aead::CHACHA20_POLY1305,
        header: &aead::quic::CHACHA20,
        // More than there are packet numbers.
        sealed_max: u64::MAX,
        forged_max: CHACHA_FORGED_MAX,
    };
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => Some(&AES_128),
        CipherSuite::TLS13_AES_256_GCM_SHA384 => Some(&AES_256),
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => Some(&CHACHA20),
        _ => None,
    }
}

impl quic::Algorithm for &'static Ciphers {
    fn packet_key(&self, key: AeadKey, iv: Iv) -> Box<dyn quic::PacketKey> {
        Box::new(PacketKey {
            key: Compact::new(key),
            iv,
            ciphers: self,
        })
    }

    fn header_protection_key(&self, key: AeadKey) -> Box<dyn quic::HeaderProtectionKey> {
        Box::new(HeaderKey {
            key: Compact::new(key),
            algorithm: self.header,
        })
    }

    fn aead_key_len(&self) -> usize {
        self.packet.key_len()
    }
}

thread_local! {
    static EXPANDED: RefCell<Expanded> = RefCell::default();
}

/// Keys as ciphers use them.
#[derive(Default)]
struct Expanded {
    packets: Table<LessSafeKey>,
    headers: Table<Box<aead::quic::HeaderProtectionKey>>,
    /// When unused ones were let go.
    aged: Instant,
}

/// Expanded keys of one kind, in two generations: what is not used while the table
/// fills, or for a while, goes.
struct Table<T> {
    young: HashMap<u64, T, BuildHasherDefault<ById>>,
    old: HashMap<u64, T, BuildHasherDefault<ById>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        let (young, old) = Default::default();
        Self { young, old }
    }
}

impl<T> Table<T> {
    fn get(&mut self, id: u64) -> Option<&T> {
        if let Some(key) = self.old.remove(&id) {
            self.keep(id, key);
        }
        self.young.get(&id)
    }

    fn keep(&mut self, id: u64, key: T) {
        if self.young.len() >= EXPANDED_MAX {
            self.age();
        }
        self.young.insert(id, key);
    }

    fn age(&mut self) {
        self.old = core::mem::take(&mut self.young);
    }

    fn forget(&mut self, id: u64) {
        if self.young.remove(&id).is_none() {
            self.old.remove(&id);
        }
    }
}

/// Spreads numbers that follow each other.
#[derive(Default)]
struct ById(u64);

impl Hasher for ById {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, n: u64) {
        /// 2^64 divided by the golden ratio.
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        self.0 = (self.0 ^ n).wrapping_mul(SPREAD);
    }
}

/// A key as TLS derived it, which is wiped when it is dropped.
struct Compact {
    bytes: AeadKey,
    /// A number that no other key of the process has, and in the lowest bits how
    /// often the key was used, up to [`USES_MIN`].
    id_and_uses: AtomicU64,
}

impl Compact {
    fn new(bytes: AeadKey) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            bytes,
            id_and_uses: AtomicU64::new(NEXT.fetch_add(1 << USES_BITS, Ordering::Relaxed)),
        }
    }

    /// Its number, if its expanded form is worth a place: it was used some times.
    fn busy_id(&self) -> Option<u64> {
        let state = self.id_and_uses.load(Ordering::Relaxed);
        (state & USES_MASK >= USES_MIN).then_some(state >> USES_BITS)
    }

    fn count(&self) {
        let state = self.id_and_uses.load(Ordering::Relaxed);
        self.id_and_uses.store(state + 1, Ordering::Relaxed);
    }

    /// Runs `f` with its expanded form.
    fn with<T, R>(
        &self,
        table: impl FnOnce(&mut Expanded) -> &mut Table<T>,
        expand: impl FnOnce(&[u8]) -> Result<T, Unspecified>,
        f: impl FnOnce(&T) -> Result<R, Unspecified>,
    ) -> Result<R, Unspecified> {
        let bytes = self.bytes.as_ref();
        let Some(id) = self.busy_id() else {
            self.count();
            return f(&expand(bytes)?);
        };
        EXPANDED.with_borrow_mut(|expanded| {
            let table = table(expanded);
            if let Some(key) = table.get(id) {
                return f(key);
            }
            let key = expand(bytes)?;
            let result = f(&key);
            table.keep(id, key);
            result
        })
    }
}

struct PacketKey {
    key: Compact,
    iv: Iv,
    ciphers: &'static Ciphers,
}

impl PacketKey {
    fn with<R>(
        &self,
        f: impl FnOnce(&LessSafeKey) -> Result<R, Unspecified>,
    ) -> Result<R, Unspecified> {
        let algorithm = self.ciphers.packet;
        let expand = |bytes: &[u8]| UnboundKey::new(algorithm, bytes).map(LessSafeKey::new);
        self.key.with(|all| &mut all.packets, expand, f)
    }

    fn nonce(&self, packet: u64) -> aead::Nonce {
        aead::Nonce::assume_unique_for_key(Nonce::new(&self.iv, packet).0)
    }
}

impl Drop for PacketKey {
    fn drop(&mut self) {
        forget(&self.key, |all, id| all.packets.forget(id));
    }
}

impl quic::PacketKey for PacketKey {
    fn encrypt_in_place(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Result<Tag, Error> {
        let (nonce, aad) = (self.nonce(packet), Aad::from(header));
        let tag = self.with(|key| key.seal_in_place_separate_tag(nonce, aad, payload));
        let tag = tag.map_err(|Unspecified| Error::EncryptError)?;
        Ok(Tag::from(tag.as_ref()))
    }

    fn decrypt_in_place<'a>(
        &self,
        packet: u64,
        header: &[u8],
        payload: &'a mut [u8],
    ) -> Result<&'a [u8], Error> {
        let (nonce, aad) = (self.nonce(packet), Aad::from(header));
        let plain = self.with(|key| Ok(key.open_in_place(nonce, aad, payload)?.len()));
        let plain = plain.map_err(|Unspecified| Error::DecryptError)?;
        payload.get(..plain).ok_or(Error::DecryptError)
    }

    fn tag_len(&self) -> usize {
        self.ciphers.packet.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.ciphers.sealed_max
    }

    fn integrity_limit(&self) -> u64 {
        self.ciphers.forged_max
    }
}

struct HeaderKey {
    key: Compact,
    algorithm: &'static aead::quic::Algorithm,
}

impl HeaderKey {
    /// The mask of a packet with this sample, unless its number is longer than one
    /// can be.
    fn mask(&self, sample: &[u8], number: &[u8]) -> Result<([u8; 1], [u8; 4]), Error> {
        let expand = |bytes: &[u8]| {
            let key = aead::quic::HeaderProtectionKey::new(self.algorithm, bytes);
            key.map(Box::new)
        };
        let mask = self
            .key
            .with(|all| &mut all.headers, expand, |key| key.new_mask(sample));
        let [first, rest @ ..] = mask.map_err(|Unspecified| Error::EncryptError)?;
        match number.len() <= rest.len() {
            true => Ok(([first], rest)),
            false => Err(Error::General("a packet number is too long".into())),
        }
    }
}

impl Drop for HeaderKey {
    fn drop(&mut self) {
        forget(&self.key, |all, id| all.headers.forget(id));
    }
}

/// Header protection (RFC 9001 section 5.4.1).
impl quic::HeaderProtectionKey for HeaderKey {
    fn encrypt_in_place(
        &self,
        sample: &[u8],
        first: &mut u8,
        number: &mut [u8],
    ) -> Result<(), Error> {
        let ([of_first], of_number) = self.mask(sample, number)?;
        let len = number_len(*first);
        *first ^= of_first & masked_bits(*first);
        xor(number, of_number, len);
        Ok(())
    }

    fn decrypt_in_place(
        &self,
        sample: &[u8],
        first: &mut u8,
        number: &mut [u8],
    ) -> Result<(), Error> {
        let ([of_first], of_number) = self.mask(sample, number)?;
        *first ^= of_first & masked_bits(*first);
        xor(number, of_number, number_len(*first));
        Ok(())
    }

    fn sample_len(&self) -> usize {
        self.algorithm.sample_len()
    }
}

/// Bits of the first byte that are masked; its form is not.
const fn masked_bits(first: u8) -> u8 {
    const LONG: u8 = 0x80;
    if first & LONG == 0 { 0x1f } else { 0x0f }
}

/// Bytes of the packet number, by the first byte without its mask.
fn number_len(first: u8) -> usize {
    usize::from(first & 0x03) + 1
}

fn xor(number: &mut [u8], mask: [u8; 4], len: usize) {
    for (byte, mask) in number.iter_mut().zip(mask).take(len) {
        *byte ^= mask;
    }
}

/// Lets go of the expanded form of a key, if this thread has it. Another thread,
/// where it was used, does so by [`release_keys`].
fn forget(key: &Compact, f: impl FnOnce(&mut Expanded, u64)) {
    if let Some(id) = key.busy_id() {
        // Without its table the thread is about to end.
        let _ = EXPANDED.try_with(|all| {
            if let Ok(mut all) = all.try_borrow_mut() {
                f(&mut all, id);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use rustls::Side;
    use rustls::crypto::aws_lc_rs::cipher_suite as suites;
    use rustls::quic::{Keys, Version};

    use super::*;

    const SUITES: [SupportedCipherSuite; 3] = [
        suites::TLS13_AES_128_GCM_SHA256,
        suites::TLS13_AES_256_GCM_SHA384,
        suites::TLS13_CHACHA20_POLY1305_SHA256,
    ];

    fn keys(suite: SupportedCipherSuite, side: Side) -> Keys {
        let suite = suite.tls13().and_then(Tls13CipherSuite::quic_suite);
        suite.expect("QUIC").keys(b"8394c8f0", side, Version::V1)
    }

    /// Seals a packet with one pair of keys and opens it with the other.
    fn carries(from: &Keys, to: &Keys, number: u64) {
        const TEXT: &[u8] = b"some bytes of a stream, longer than a sample";
        for form in [0xc0, 0x40] {
            let first = form | (number & 3) as u8;
            let header = [&[first][..], &(number as u32).to_be_bytes()].concat();
            let mut payload = TEXT.to_vec();
            let tag = from
                .local
                .packet
                .encrypt_in_place(number, &header, &mut payload);
            payload.extend_from_slice(tag.expect("sealed").as_ref());
            let mut masked = header.clone();
            let (first, rest) = masked.split_first_mut().expect("a first byte");
            let sample = &payload[..from.local.header.sample_len()];
            let hidden = from.local.header.encrypt_in_place(sample, first, rest);
            hidden.expect("hidden");
            assert_ne!(masked, header);
            let (first, rest) = masked.split_first_mut().expect("a first byte");
            let shown = to.remote.header.decrypt_in_place(sample, first, rest);
            shown.expect("shown");
            assert_eq!(masked, header);
            let mut forged = payload.clone();
            forged[0] ^= 1;
            let refused = to
                .remote
                .packet
                .decrypt_in_place(number, &header, &mut forged);
            assert_eq!(refused, Err(Error::DecryptError));
            let opened = to
                .remote
                .packet
                .decrypt_in_place(number, &header, &mut payload);
            assert_eq!(opened.expect("opened"), TEXT);
        }
    }

    #[test]
    fn compact_keys_are_those_of_the_suite() {
        for suite in SUITES {
            let ours = keys(compact(suite), Side::Client);
            let theirs = keys(suite, Side::Server);
            for number in 0..40 {
                carries(&ours, &theirs, number);
                carries(&theirs, &ours, number);
                if number % 16 == 15 {
                    // Twice as long as it takes to let go of an unused one.
                    release_keys(Instant::from_micros(number * 1_000_000));
                    release_keys(Instant::from_micros((number + 10) * 1_000_000));
                }
            }
            let (ours, theirs) = (&ours.local.packet, &theirs.local.packet);
            assert_eq!(ours.tag_len(), theirs.tag_len());
            assert_eq!(ours.integrity_limit(), theirs.integrity_limit());
            assert_eq!(ours.confidentiality_limit(), theirs.confidentiality_limit());
        }
    }

    #[test]
    fn few_keys_are_kept_expanded() {
        let kept = || {
            EXPANDED.with_borrow(|all| {
                let packets = all.packets.young.len() + all.packets.old.len();
                (packets, all.headers.young.len() + all.headers.old.len())
            })
        };
        let pair = || {
            let suite = compact(suites::TLS13_AES_128_GCM_SHA256);
            (keys(suite, Side::Client), keys(suite, Side::Server))
        };
        let idle = pair();
        carries(&idle.0, &idle.1, 0);
        assert_eq!(kept(), (0, 0), "a handshake is no reason");
        let busy = pair();
        (0..9).for_each(|number| carries(&busy.0, &busy.1, number));
        assert_eq!(kept(), (2, 2));
        let at = Instant::from_micros;
        release_keys(at(10_000_000));
        carries(&busy.0, &busy.1, 9);
        release_keys(at(20_000_000));
        assert_eq!(kept(), (2, 2), "they are used");
        release_keys(at(29_000_000));
        assert_eq!(kept(), (2, 2));
        release_keys(at(30_000_000));
        assert_eq!(kept(), (0, 0), "they were not used for 10 s");
        carries(&busy.0, &busy.1, 10);
        assert_eq!(kept(), (2, 2));
        drop(busy);
        assert_eq!(kept(), (0, 0));
    }

    #[test]
    fn a_table_is_bounded() {
        let mut table = Table::default();
        for id in 0..3 * EXPANDED_MAX as u64 {
            table.keep(id, id);
            assert_eq!(table.get(0), Some(&0), "used all the time");
            assert!(table.young.len() + table.old.len() <= 2 * EXPANDED_MAX);
        }
        assert_eq!(table.get(1), None);
    }

    #[test]
    fn a_key_takes_little() {
        assert!(size_of::<PacketKey>() <= 72, "{}", size_of::<PacketKey>());
        assert!(size_of::<HeaderKey>() <= 72, "{}", size_of::<HeaderKey>());
    }
}
