//! Any bytes as an operation with its inputs: the smallest provider and
//! RustCrypto give the same result, or refuse for the same reason. The
//! includer provides `Crypto`, `CryptoError`, `Group`, `Host`, `Suite`, `SuiteKey`,
//! `Tiny` and `sign`.

use super::{Crypto, CryptoError, Group, Host, Suite, SuiteKey, Tiny, sign};

/// Bytes from the input, then zeros.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        for to in &mut bytes {
            *to = self.byte();
        }
        bytes
    }

    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn part(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte()).min(self.0.len());
        let (part, rest) = self.0.split_at(len);
        self.0 = rest;
        part
    }

    /// Changes a bit of some bytes, or none.
    fn alter(&mut self, bytes: &mut [u8]) {
        let at = usize::from(u16::from_le_bytes(self.array()));
        if let Some(byte) = bytes.get_mut(at / 8) {
            *byte ^= 1 << (at % 8);
        }
    }
}

/// Both providers, with the same entropy.
fn both(scalar: [u8; 32]) -> (impl Crypto, impl Crypto) {
    let entropy = move |out: &mut [u8]| -> Result<(), CryptoError> {
        for (to, from) in out.iter_mut().zip(scalar.iter().cycle()) {
            *to = *from;
        }
        Ok(())
    };
    (Tiny::new(entropy), Host::new(entropy))
}

/// One input.
pub(crate) fn run(data: &[u8]) {
    let Some((operation, rest)) = data.split_first() else {
        return;
    };
    let mut input = Input(rest);
    match operation % 8 {
        0 => mask(Suite::Aes128Gcm, &mut input),
        1 => packet(Suite::Aes128Gcm, &mut input),
        2 => digests(&mut input),
        3 => exchange(Group::Secp256r1, &mut input),
        4 => signature(&mut input),
        5 => exchange(Group::X25519, &mut input),
        6 => mask(Suite::ChaCha20Poly1305, &mut input),
        _ => packet(Suite::ChaCha20Poly1305, &mut input),
    }
}

/// A key of a suite.
fn key(suite: Suite, input: &mut Input<'_>) -> SuiteKey {
    let mut bytes = [0; 32];
    for byte in bytes.iter_mut().take(suite.key_len()) {
        *byte = input.byte();
    }
    Suite::key(&bytes)
}

fn mask(suite: Suite, input: &mut Input<'_>) {
    let (mut tiny, mut host) = both([0; 32]);
    let (key, mut a) = (key(suite, input), input.array());
    let mut b = a;
    let of_tiny = tiny.block(suite, &key);
    tiny.mask(&of_tiny, &mut a);
    let of_host = host.block(suite, &key);
    host.mask(&of_host, &mut b);
    assert_eq!(a, b, "a mask");
}

fn packet(suite: Suite, input: &mut Input<'_>) {
    let (mut tiny, mut host) = both([0; 32]);
    let (key, nonce) = (key(suite, input), input.array());
    let (of_tiny, of_host) = (tiny.aead(suite, &key), host.aead(suite, &key));
    let (aad, plain) = (input.part(), input.part());
    let (mut a, mut b) = (plain.to_vec(), plain.to_vec());
    let mut tag = tiny.seal(&of_tiny, &nonce, aad, &mut a);
    assert_eq!(tag, host.seal(&of_host, &nonce, aad, &mut b), "a tag");
    assert_eq!(a, b, "a sealed packet");
    input.alter(&mut tag);
    input.alter(&mut a);
    b.copy_from_slice(&a);
    let opened = tiny.open(&of_tiny, &nonce, aad, &mut a, &tag);
    assert_eq!(opened, host.open(&of_host, &nonce, aad, &mut b, &tag));
    if opened.is_ok() {
        assert_eq!((&a[..], &b[..]), (plain, plain), "an opened packet");
    }
}

fn digests(input: &mut Input<'_>) {
    let (mut tiny, mut host) = both([0; 32]);
    let key = input.array();
    let mut parts = [&[][..]; 5];
    for part in &mut parts {
        *part = input.part();
    }
    let (mut a, mut b) = (tiny.hash(), host.hash());
    for part in parts {
        tiny.update(&mut a, part);
        host.update(&mut b, part);
        // A transcript is read and goes on.
        assert_eq!(tiny.finish(a.clone()), host.finish(b.clone()), "a digest");
    }
    assert_eq!(tiny.hmac(&key, &parts), host.hmac(&key, &parts), "an HMAC");
    let (mut a, mut b) = ([1; 32], [1; 32]);
    let len = usize::from(input.byte()).min(a.len());
    tiny.expand(&key, &parts, &mut a[..len]);
    host.expand(&key, &parts, &mut b[..len]);
    assert_eq!(a, b, "an expansion");
}

fn exchange(group: Group, input: &mut Input<'_>) {
    let (mut tiny, mut host) = both(input.array());
    let (a, b) = (tiny.generate(group), host.generate(group));
    let ((of_tiny, public), (of_host, other)) = match (a, b) {
        (Ok(a), Ok(b)) => (a, b),
        (a, b) => {
            assert_eq!(a.map(|_| ()), b.map(|_| ()), "a key");
            return;
        }
    };
    assert_eq!(public, other, "a public key");
    // The share of another key, altered or not, or any bytes.
    let mut peer = match both(input.array()).1.generate(group) {
        Ok((_, peer)) => peer.bytes().to_vec(),
        Err(_) => input.array::<65>().to_vec(),
    };
    input.alter(&mut peer);
    // One that is too short, sometimes, or no share of anybody.
    match input.byte() {
        1 => peer.truncate(usize::from(input.byte())),
        2 => peer = input.part().to_vec(),
        _ => {}
    }
    let shared = tiny.agree(&of_tiny, &peer);
    assert_eq!(shared, host.agree(&of_host, &peer), "a shared secret");
}

fn signature(input: &mut Input<'_>) {
    let (scalar, mut digest) = (input.array(), input.array());
    let (mut key, mut signature) = match sign(&scalar, &digest) {
        Some(signed) => signed,
        None => (input.array(), input.array()),
    };
    input.alter(&mut key);
    input.alter(&mut digest);
    input.alter(&mut signature);
    // Numbers out of range are rare otherwise.
    if input.byte() == 1 {
        let half = usize::from(input.byte() % 2) * 32;
        signature[half..half + 32].copy_from_slice(&input.array::<32>());
    }
    let (mut tiny, mut host) = both([0; 32]);
    assert_eq!(
        tiny.verify(&key, &digest, &signature),
        host.verify(&key, &digest, &signature),
        "a verdict"
    );
}
