//! The smallest provider against RustCrypto, over seeded random inputs and
//! published vectors. Knows only the trait.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

use dunlin_mini_crypto::{Crypto, CryptoError, Digest, Entropy, Group, Host, Point, Suite, Tiny};
use p256::ecdsa::signature::hazmat::PrehashSigner;
use p256::ecdsa::{Signature, SigningKey};

/// Runs of the fast and of the slow comparisons. `DUNLIN_CRYPTO_RUNS`
/// multiplies them.
const FAST: u64 = 2_000;
const SLOW: u64 = 300;

fn runs(count: u64) -> u64 {
    let times = std::env::var("DUNLIN_CRYPTO_RUNS").ok();
    count * times.and_then(|t| t.parse().ok()).unwrap_or(1_u64)
}

/// SplitMix64.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        core::array::from_fn(|_| self.next() as u8)
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let len = self.next() % (most + 1);
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// A number whose words are often all zeros or ones, where carries hide.
    fn number(&mut self) -> [u8; 32] {
        let mut out: [u8; 32] = self.array();
        for word in out.chunks_mut(4) {
            match self.next() % 6 {
                0 => word.fill(0),
                1 => word.fill(0xff),
                _ => (),
            }
        }
        out
    }
}

impl Entropy for Random {
    fn fill(&mut self, out: &mut [u8]) -> Result<(), CryptoError> {
        out.fill_with(|| self.next() as u8);
        Ok(())
    }
}

fn both(seed: u64) -> (Random, Host<Random>, Tiny<Random>) {
    let random = Random(seed);
    (random.clone(), Host::new(random.clone()), Tiny::new(random))
}

fn hex<const N: usize>(text: &str) -> [u8; N] {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|b| !b.is_ascii_whitespace())
        .map(|b| (b as char).to_digit(16).unwrap() as u8)
        .collect();
    assert_eq!(digits.len(), 2 * N);
    core::array::from_fn(|i| digits[2 * i] << 4 | digits[2 * i + 1])
}

fn tiny() -> Tiny<Random> {
    Tiny::new(Random(1))
}

fn digest<C: Crypto>(crypto: &mut C, parts: &[&[u8]]) -> Digest {
    let mut hash = crypto.hash();
    for part in parts {
        crypto.update(&mut hash, part);
    }
    crypto.finish(hash)
}

#[test]
fn hashes_agree() {
    let (mut random, mut host, mut tiny) = both(2);
    // Every length around the padding's edges, then random ones in parts.
    for len in 0..200 {
        let data = vec![len as u8; len];
        assert_eq!(digest(&mut tiny, &[&data]), digest(&mut host, &[&data]));
    }
    for _ in 0..runs(FAST) {
        let (a, b) = (random.bytes(300), random.bytes(300));
        let want = digest(&mut host, &[&a, &b]);
        assert_eq!(digest(&mut tiny, &[&a, &b]), want);
        let key = random.array();
        assert_eq!(tiny.hmac(&key, &[&a, &b]), host.hmac(&key, &[&a, &b]));
    }
}

const SUITES: [Suite; 2] = [Suite::Aes128Gcm, Suite::ChaCha20Poly1305];

#[test]
fn masks_agree() {
    let (mut random, mut host, mut tiny) = both(3);
    for run in 0..runs(FAST) {
        let raw: [u8; 32] = random.array();
        for suite in SUITES {
            let key = Suite::key(&raw[..suite.key_len()]);
            let (host_key, tiny_key) = (host.block(suite, &key), tiny.block(suite, &key));
            let mut want: [u8; 16] = random.array();
            if run % 8 == 0 {
                // The last and the first counter of ChaCha20.
                want[..4].fill(0_u8.wrapping_sub((run % 16 / 8) as u8));
            }
            let mut got = want;
            host.mask(&host_key, &mut want);
            tiny.mask(&tiny_key, &mut got);
            assert_eq!(got, want, "{suite:?}");
        }
    }
}

#[test]
fn packets_agree() {
    for suite in SUITES {
        packets(suite);
    }
}

fn packets(suite: Suite) {
    let (mut random, mut host, mut tiny) = both(4);
    for _ in 0..runs(FAST) {
        let (key, nonce) = (Suite::key(&random.array::<32>()), random.array());
        let (aad, plain) = (random.bytes(50), random.bytes(200));
        let (host_key, tiny_key) = (host.aead(suite, &key), tiny.aead(suite, &key));
        let (mut want, mut got) = (plain.clone(), plain.clone());
        let tag = host.seal(&host_key, &nonce, &aad, &mut want);
        assert_eq!(tiny.seal(&tiny_key, &nonce, &aad, &mut got), tag);
        assert_eq!(got, want);

        // One altered bit anywhere is refused, and leaves the data alone.
        let mut all = [&aad[..], &got[..], &tag[..]].concat();
        let bit = random.next() as usize % (8 * all.len());
        all[bit / 8] ^= 1 << (bit % 8);
        let (bad_aad, rest) = all.split_at(aad.len());
        let (bad_data, bad_tag) = rest.split_at(got.len());
        let mut data = bad_data.to_vec();
        let bad_tag = bad_tag.try_into().unwrap();
        let refused = tiny.open(&tiny_key, &nonce, bad_aad, &mut data, bad_tag);
        assert_eq!(refused, Err(CryptoError::BadTag));
        assert_eq!(data, bad_data);

        let opened = tiny.open(&tiny_key, &nonce, &aad, &mut got, &tag);
        assert_eq!(opened, Ok(()));
        assert_eq!(got, plain);
    }
}

#[test]
fn keys_and_agreements_agree() {
    let (mut random, ..) = both(5);
    for _ in 0..runs(SLOW) {
        // Both providers draw the same numbers, so make the same keys.
        let (one, two) = (random.number(), random.array::<32>());
        let draw = |out: &mut [u8]| {
            out.copy_from_slice(&one);
            Ok(())
        };
        let (mut host, mut tiny) = (Host::new(draw), Tiny::new(draw));
        let (made, tiny_made) = (
            host.generate(Group::Secp256r1),
            tiny.generate(Group::Secp256r1),
        );
        // Some of these numbers are above the order.
        assert_eq!(made.is_ok(), tiny_made.is_ok());
        let (Ok((host_key, point)), Ok((tiny_key, tiny_point))) = (made, tiny_made) else {
            continue;
        };
        assert_eq!(tiny_point, point);
        let peer = |out: &mut [u8]| {
            out.copy_from_slice(&two);
            Ok(())
        };
        let (_, peer) = Host::new(peer).generate(Group::Secp256r1).unwrap();
        let want = host.agree(&host_key, peer.bytes()).unwrap();
        assert_eq!(tiny.agree(&tiny_key, peer.bytes()), Ok(want));

        let mut off = peer.bytes().to_vec();
        let bit = random.next() as usize % (8 * off.len());
        off[bit / 8] ^= 1 << (bit % 8);
        let want = host.agree(&host_key, &off);
        assert_eq!(tiny.agree(&tiny_key, &off), want);
    }
}

#[test]
fn x25519_agrees() {
    let (mut random, ..) = both(7);
    for _ in 0..runs(SLOW) {
        let one = random.number();
        let draw = |out: &mut [u8]| {
            out.copy_from_slice(&one);
            Ok(())
        };
        let (mut host, mut tiny) = (Host::new(draw), Tiny::new(draw));
        let (host_key, public) = host.generate(Group::X25519).unwrap();
        let (tiny_key, tiny_public) = tiny.generate(Group::X25519).unwrap();
        assert_eq!(tiny_public, public);
        // Any 32 bytes are a point, of the curve or of its twist.
        let peer = random.number();
        let want = host.agree(&host_key, &peer);
        assert_eq!(tiny.agree(&tiny_key, &peer), want);
        assert_eq!(want.is_err(), peer == [0; 32]);
    }
}

#[test]
fn verdicts_agree() {
    let (mut random, mut host, mut tiny) = both(6);
    for run in 0..runs(SLOW) {
        let signer = SigningKey::from_slice(&random.array::<32>()).unwrap();
        let key: Point = signer
            .verifying_key()
            .to_sec1_point(false)
            .as_bytes()
            .try_into()
            .unwrap();
        let mut digest = if run % 2 == 0 {
            random.array()
        } else {
            random.number()
        };
        let signature: Signature = signer.sign_prehash(&digest).unwrap();
        let mut signature: [u8; 64] = signature.to_bytes().into();
        assert_eq!(tiny.verify(&key, &digest, &signature), Ok(()));

        let bit = random.next() as usize % (8 * 96);
        match bit / 8 {
            at @ 0..32 => digest[at] ^= 1 << (bit % 8),
            at => signature[at - 32] ^= 1 << (bit % 8),
        }
        let want = host.verify(&key, &digest, &signature);
        assert_eq!(want, Err(CryptoError::BadSignature));
        assert_eq!(tiny.verify(&key, &digest, &signature), want);
    }
}

#[test]
fn scalars_out_of_range_are_not_keys() {
    const ORDER: &str = "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551";
    let mut above = hex::<32>(ORDER);
    let key = tiny().generate(Group::Secp256r1).unwrap().1;
    let key: &Point = key.bytes().try_into().unwrap();
    for (bad, offset) in [([0; 32], 0), (above, 0), ([0xff; 32], 0), (above, 1)] {
        above = bad;
        above[31] += offset;
        let draw = |out: &mut [u8]| {
            out.copy_from_slice(&above);
            Ok(())
        };
        let refused = Tiny::new(draw).generate(Group::Secp256r1).map(|_| ());
        assert_eq!(refused, Err(CryptoError::Entropy));
        for at in [0, 32] {
            let mut signature = [1; 64];
            signature[at..at + 32].copy_from_slice(&above);
            let verdict = tiny().verify(key, &[1; 32], &signature);
            assert_eq!(verdict, Err(CryptoError::BadSignature));
        }
    }
    // The last key is minus the generator: same x, other y.
    let mut last = hex::<32>(ORDER);
    last[31] -= 1;
    let point = |bytes: [u8; 32]| {
        let draw = move |out: &mut [u8]| {
            out.copy_from_slice(&bytes);
            Ok(())
        };
        let share = Tiny::new(draw).generate(Group::Secp256r1).unwrap().1;
        share.bytes().to_vec()
    };
    let (minus, mut one) = (point(last), [0; 32]);
    one[31] = 1;
    let one = point(one);
    assert_eq!(minus[..33], one[..33]);
    assert_ne!(minus, one);
}

#[test]
fn failed_entropy_makes_no_key() {
    let mut crypto = Tiny::new(|_: &mut [u8]| Err(CryptoError::Entropy));
    assert_eq!(crypto.random(&mut [0; 4]), Err(CryptoError::Entropy));
    for group in [Group::X25519, Group::Secp256r1] {
        let made = crypto.generate(group).map(|_| ());
        assert_eq!(made, Err(CryptoError::Entropy));
    }
}

const AES: Suite = Suite::Aes128Gcm;

/// An AES-128 key.
fn aes(text: &str) -> dunlin_mini_crypto::SuiteKey {
    Suite::key(&hex::<16>(text))
}

#[test]
fn vectors_of_the_standards() {
    let mut crypto = tiny();
    // FIPS 180-2 appendix B.1 and B.2.
    let abc = hex("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_eq!(digest(&mut crypto, &[b"abc"]), abc);
    let long = hex("248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    let text = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    assert_eq!(digest(&mut crypto, &[text]), long);

    // FIPS 197 appendix C.1.
    let key = crypto.block(AES, &aes("000102030405060708090a0b0c0d0e0f"));
    let mut block = hex("00112233445566778899aabbccddeeff");
    crypto.mask(&key, &mut block);
    assert_eq!(block, hex("69c4e0d86a7b0430d8cdb78070b4c55a"));

    // McGrew and Viega, "The Galois/Counter Mode of Operation", cases 1, 2, 4.
    let zero = crypto.aead(AES, &Suite::key(&[]));
    let tag = crypto.seal(&zero, &[0; 12], &[], &mut []);
    assert_eq!(tag, hex("58e2fccefa7e3061367f1d57a4e7455a"));
    let mut data = [0; 16];
    let tag = crypto.seal(&zero, &[0; 12], &[], &mut data);
    assert_eq!(data, hex("0388dace60b6a392f328c2b971b2fe78"));
    assert_eq!(tag, hex("ab6e47d42cec13bdf53a67b21257bddf"));
    let key = crypto.aead(AES, &aes("feffe9928665731c6d6a8f9467308308"));
    let mut data: [u8; 60] = hex(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72
         1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
    );
    let aad: [u8; 20] = hex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
    let tag = crypto.seal(&key, &hex("cafebabefacedbaddecaf888"), &aad, &mut data);
    let want = hex(
        "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e
         21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091",
    );
    assert_eq!(data, want);
    assert_eq!(tag, hex("5bc94fbc3221a5db94fae95ae7121a47"));
}

#[test]
fn vectors_of_rfc_5903() {
    // Section 8.1: an exchange with the 256-bit random ECP group.
    let mut crypto = tiny();
    let draw = |out: &mut [u8]| {
        out.copy_from_slice(&hex::<32>(
            "c88f01f510d9ac3f70a292daa2316de544e9aab8afe84049c62a9c57862d1433",
        ));
        Ok(())
    };
    let (_, public) = Tiny::new(draw).generate(Group::Secp256r1).unwrap();
    let want: Point = hex(
        "04dad0b65394221cf9b051e1feca5787d098dfe637fc90b9ef945d0c37725811805271a0461cdb8252d61f\
         1c456fa3e59ab1f45b33accf5f58389e0577b8990bb3",
    );
    assert_eq!(public.bytes(), want);
    let draw = |out: &mut [u8]| {
        out.copy_from_slice(&hex::<32>(
            "c6ef9c5d78ae012a011164acb397ce2088685d8f06bf9be0b283ab46476bee53",
        ));
        Ok(())
    };
    let (secret, _) = Tiny::new(draw).generate(Group::Secp256r1).unwrap();
    let shared = crypto.agree(&secret, public.bytes());
    let want = hex("d6840f6b42f6edafd13116e0e12565202fef8e9ece7dce03812464d04b9442de");
    assert_eq!(shared, Ok(want));
}

/// The function of RFC 7748.
fn x25519(scalar: &[u8; 32], point: &[u8]) -> Result<Digest, CryptoError> {
    let draw = |out: &mut [u8]| {
        out.copy_from_slice(scalar);
        Ok(())
    };
    let mut crypto = Tiny::new(draw);
    let (secret, _) = crypto.generate(Group::X25519).unwrap();
    crypto.agree(&secret, point)
}

#[test]
fn vectors_of_rfc_7748() {
    // Section 5.2.
    let cases = [
        (
            "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
            "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
            "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
        ),
        (
            "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
            "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
            "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
        ),
    ];
    for (scalar, point, want) in cases {
        assert_eq!(x25519(&hex(scalar), &hex::<32>(point)), Ok(hex(want)));
    }
    let (mut k, mut u) = ([0; 32], [0; 32]);
    (k[0], u[0]) = (9, 9);
    let once = hex("422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079");
    let thousand = hex("684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51");
    for round in 0..1000 {
        let made = x25519(&k, &u).unwrap();
        (k, u) = (made, k);
        assert!(round != 0 || k == once);
    }
    assert_eq!(k, thousand);
    // Section 6.1: both sides of an exchange.
    let key = |bytes| {
        let draw = move |out: &mut [u8]| {
            out.copy_from_slice(&hex::<32>(bytes));
            Ok(())
        };
        Tiny::new(draw).generate(Group::X25519).unwrap()
    };
    let (a, of_a) = key("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a");
    let (b, of_b) = key("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb");
    let want = hex::<32>("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a");
    assert_eq!(of_a.bytes(), want);
    let want = hex::<32>("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f");
    assert_eq!(of_b.bytes(), want);
    let want = hex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742");
    assert_eq!(tiny().agree(&a, of_b.bytes()), Ok(want));
    assert_eq!(tiny().agree(&b, of_a.bytes()), Ok(want));
}

#[test]
fn points_of_small_order_are_refused() {
    // All u coordinates of them below 2^255, as https://cr.yp.to/ecdh.html has
    // them, each with the unused bit set or not.
    let points = [
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    ];
    for point in points {
        let mut point = hex::<32>(point);
        for _ in 0..2 {
            assert_eq!(x25519(&[7; 32], &point), Err(CryptoError::BadPoint));
            point[31] ^= 0x80;
        }
    }
    assert_eq!(x25519(&[7; 32], &[9; 31]), Err(CryptoError::BadPoint));
    assert_eq!(x25519(&[7; 32], &[9; 33]), Err(CryptoError::BadPoint));
}

#[test]
fn signature_of_rfc_6979() {
    // Appendix A.2.5, SHA-256, message "sample".
    let key = hex(
        "0460fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb6\
         7903fe1008b8bc99a41ae9e95628bc64f2f1b20c2d7e9f5177a3c294d4462299",
    );
    let signature = hex(
        "efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716\
         f7cb1c942d657c41d436c7a1b6e29f65f3e900dbb9aff4064dc4ab2f843acda8",
    );
    let mut crypto = tiny();
    let message = digest(&mut crypto, &[b"sample"]);
    assert_eq!(crypto.verify(&key, &message, &signature), Ok(()));
    let other = digest(&mut crypto, &[b"Sample"]);
    assert!(crypto.verify(&key, &other, &signature).is_err());
}

#[test]
fn packets_of_rfc_9001() {
    let mut crypto = tiny();
    // Appendix A.1: from the connection id to the client's keys.
    let mut salt = [0; 32];
    salt[..20].copy_from_slice(&hex::<20>("38762cf7f55934b34d179ae6a4c80cadccbb7f0a"));
    let secret = crypto.extract(&salt, &hex::<8>("8394c8f03e515708"));
    let expand = |crypto: &mut Tiny<Random>, secret: &Digest, label: &[u8], out: &mut [u8]| {
        let lengths = ([0, out.len() as u8], [6 + label.len() as u8]);
        let info: [&[u8]; 5] = [&lengths.0, &lengths.1, b"tls13 ", label, &[0]];
        crypto.expand(secret, &info, out);
    };
    let mut client = [0; 32];
    expand(&mut crypto, &secret, b"client in", &mut client);
    let want = hex("c00cf151ca5be075ed0ebfb5c80323c42d6b7db67881289af4008f1f6c357aea");
    assert_eq!(client, want);
    let (mut key, mut iv, mut hp) = ([0; 16], [0; 12], [0; 16]);
    expand(&mut crypto, &client, b"quic key", &mut key);
    expand(&mut crypto, &client, b"quic iv", &mut iv);
    expand(&mut crypto, &client, b"quic hp", &mut hp);
    assert_eq!(key, hex("1f369613dd76d5467730efcbe3b1a22d"));
    assert_eq!(iv, hex("fa044b2f42a3fd3b46fb255c"));
    assert_eq!(hp, hex("9f50449e04a0e810283a1e9933adedd2"));

    // Appendix A.2: the mask of the client's first packet.
    let hp = crypto.block(AES, &Suite::key(&hp));
    let mut sample = hex("d1b1c98dd7689fb8ec11d242b123dc9b");
    crypto.mask(&hp, &mut sample);
    assert_eq!(sample[..5], hex::<5>("437b9aec36"));

    // Appendix A.4: the integrity tag of a Retry.
    let key = crypto.aead(AES, &aes("be0c690b9f66575a1d766b54e368c84e"));
    let pseudo: [u8; 28] = hex("088394c8f03e515708ff000000010008f067a5502a4262b5746f6b65");
    let pseudo = [&pseudo[..], b"n"].concat();
    let nonce = hex("461599d35d632bf2239825bb");
    let tag = crypto.seal(&key, &nonce, &pseudo, &mut []);
    assert_eq!(tag, hex("04a265ba2eff4d829058fb3f0f2496ba"));
}

/// `HKDF-Expand-Label` of RFC 8446 without a context.
fn expand(crypto: &mut impl Crypto, secret: &Digest, label: &[u8], out: &mut [u8]) {
    let lengths = ([0, out.len() as u8], [6 + label.len() as u8]);
    let info: [&[u8]; 5] = [&lengths.0, &lengths.1, b"tls13 ", label, &[0]];
    crypto.expand(secret, &info, out);
}

#[test]
fn packet_with_chacha20_of_rfc_9001() {
    // Appendix A.5.
    let (mut crypto, suite) = (tiny(), Suite::ChaCha20Poly1305);
    let secret = hex("9ac312a7f877468ebe69422748ad00a15443f18203a07d6060f688f30f21632b");
    let (mut key, mut iv, mut hp, mut next) = ([0; 32], [0; 12], [0; 32], [0; 32]);
    expand(&mut crypto, &secret, b"quic key", &mut key);
    expand(&mut crypto, &secret, b"quic iv", &mut iv);
    expand(&mut crypto, &secret, b"quic hp", &mut hp);
    expand(&mut crypto, &secret, b"quic ku", &mut next);
    let want = hex("c6d98ff3441c3fe1b2182094f69caa2ed4b716b65488960a7a984979fb23e1c8");
    assert_eq!(key, want);
    assert_eq!(iv, hex("e0459b3474bdd0e44a41c144"));
    let want = hex("25a282b9e82f06f21f488917a4fc8f1b73573685608597d0efcb076b0ab7a7a4");
    assert_eq!(hp, want);
    let want = hex("1223504755036d556342ee9361d253421a826c9ecdf3c7148684b36b714881f9");
    assert_eq!(next, want);
    // A PING in packet 654360564, in three bytes.
    let header: [u8; 4] = hex("4200bff4");
    let nonce = hex("e0459b3474bdd0e46d417eb0");
    let key = crypto.aead(suite, &Suite::key(&key));
    let mut payload = [1];
    let tag = crypto.seal(&key, &nonce, &header, &mut payload);
    let sealed = [&payload[..], &tag].concat();
    assert_eq!(sealed, hex::<17>("655e5cd55c41f69080575d7999c25a5bfb"));
    let hp = crypto.block(suite, &Suite::key(&hp));
    let mut mask = hex("5e5cd55c41f69080575d7999c25a5bfb");
    crypto.mask(&hp, &mut mask);
    assert_eq!(mask[..5], hex::<5>("aefefe7d03"));
}

#[test]
fn vectors_of_rfc_8439() {
    let (mut crypto, suite) = (tiny(), Suite::ChaCha20Poly1305);
    // Section 2.8.2.
    let key: [u8; 32] = core::array::from_fn(|i| 0x80 + i as u8);
    let key = crypto.aead(suite, &Suite::key(&key));
    let nonce = hex("070000004041424344454647");
    let aad: [u8; 12] = hex("50515253c0c1c2c3c4c5c6c7");
    let plain = b"Ladies and Gentlemen of the class of '99: If I could offer you \
                  only one tip for the future, sunscreen would be it.";
    let mut data = *plain;
    let tag = crypto.seal(&key, &nonce, &aad, &mut data);
    let want: [u8; 114] = hex(
        "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d6
         3dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b36
         92ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc
         3ff4def08e4b7a9de576d26586cec64b6116",
    );
    assert_eq!(data, want);
    assert_eq!(tag, hex("1ae10b594f09e26a7e902ecbd0600691"));
    assert_eq!(crypto.open(&key, &nonce, &aad, &mut data, &tag), Ok(()));
    assert_eq!(&data, plain);
    // Appendix A.5, which is opened.
    let key = hex::<32>("1c9240a5eb55d38af333888604f6b5f0473917c1402b80099dca5cbc207075c0");
    let key = crypto.aead(suite, &Suite::key(&key));
    let mut data: [u8; 265] = hex(
        "64a0861575861af460f062c79be643bd5e805cfd345cf389f108670ac76c8cb2
         4c6cfc18755d43eea09ee94e382d26b0bdb7b73c321b0100d4f03b7f355894cf
         332f830e710b97ce98c8a84abd0b948114ad176e008d33bd60f982b1ff37c855
         9797a06ef4f0ef61c186324e2b3506383606907b6a7c02b0f9f6157b53c867e4
         b9166c767b804d46a59b5216cde7a4e99040c5a40433225ee282a1b0a06c523e
         af4534d7f83fa1155b0047718cbc546a0d072b04b3564eea1b422273f548271a
         0bb2316053fa76991955ebd63159434ecebb4e466dae5a1073a6727627097a10
         49e617d91d361094fa68f0ff77987130305beaba2eda04df997b714d6c6f2c29
         a6ad5cb4022b02709b",
    );
    let aad: [u8; 12] = hex("f33388860000000000004e91");
    let tag = hex("eead9d67890cbb22392336fea1851f38");
    let opened = crypto.open(
        &key,
        &hex("000000000102030405060708"),
        &aad,
        &mut data,
        &tag,
    );
    assert_eq!(opened, Ok(()));
    assert!(data.starts_with(b"Internet-Drafts are draft documents valid for"));
}

/// Bytes that make long carries in Poly1305.
#[test]
fn tags_of_equal_bytes_agree() {
    let (mut random, mut host, mut tiny) = both(8);
    let suite = Suite::ChaCha20Poly1305;
    for len in 0..200 {
        for fill in [0, 1, 0x80, 0xff] {
            let key = Suite::key(&random.array::<32>());
            let (host_key, tiny_key) = (host.aead(suite, &key), tiny.aead(suite, &key));
            let (aad, nonce) = (vec![fill; len], random.array());
            let want = host.seal(&host_key, &nonce, &aad, &mut []);
            assert_eq!(tiny.seal(&tiny_key, &nonce, &aad, &mut []), want);
        }
    }
}
