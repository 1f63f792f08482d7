//! Runs the vectors of a file that `mini/dunlin-mini-crypto/examples/vectors.rs`
//! wrote. Each record is a letter for the operation, its inputs in order, and
//! one byte: 1 valid, 0 invalid, 2 either. Parts without a fixed length have
//! it in two bytes before them, the lowest first.

use core::fmt::Write as _;

use dunlin_mini_crypto::{Crypto, Digest, Group, Suite};

use crate::host::File;
use crate::provider;

/// Longest message of a vector.
const PART_MAX: usize = 64 * 1024;
static mut PARTS: [[u8; PART_MAX]; 4] = [[0; PART_MAX]; 4];

struct Reader(File);

impl Reader {
    fn fixed<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.0.read(&mut bytes).then_some(bytes)
    }

    fn part<'a>(&mut self, to: &'a mut [u8; PART_MAX]) -> Option<&'a mut [u8]> {
        let length = usize::from(u16::from_le_bytes(self.fixed()?));
        let to = to.get_mut(..length)?;
        // Nothing is read of nothing: the host would answer that it is the end.
        (length == 0 || self.0.read(to)).then_some(to)
    }
}

/// Runs every vector; whether all were answered as they must be.
pub fn run(path: &[u8], console: &mut File) -> bool {
    let Some(mut reader) = File::open(path, 1).map(Reader) else {
        let _ = writeln!(console, "no such file");
        return false;
    };
    let (mut ran, mut failed) = (0, 0);
    while let Some([operation]) = reader.fixed::<1>() {
        if operation == b'x' && !has(&provider(&[0; 32]), Group::X25519) {
            // Three values, the result and the verdict.
            reader.fixed::<{ 4 * 32 + 1 }>();
            continue;
        }
        let Some(passed) = one(operation, &mut reader) else {
            let _ = writeln!(console, "vector {ran} is cut off or unknown");
            return false;
        };
        // The verdict is the last byte of a record.
        let right = match reader.fixed() {
            Some([0]) => !passed,
            Some([1]) => passed,
            Some([2]) => true,
            _ => false,
        };
        if !right {
            failed += 1;
            let _ = writeln!(console, "vector {ran} ({}) failed", operation as char);
        }
        ran += 1;
    }
    let _ = writeln!(console, "vectors {ran} failed {failed}");
    ran > 0 && failed == 0
}

/// Whether a provider has a group.
fn has<C: Crypto>(_: &C, group: Group) -> bool {
    C::GROUPS.contains(&group)
}

/// Whether the operation gave the expected result; nothing if the file does.
fn one(operation: u8, reader: &mut Reader) -> Option<bool> {
    // SAFETY: the only user, and not called again before it returns.
    let [a, b, c, d] = unsafe { &mut *(&raw mut PARTS) };
    match operation {
        b'e' => exchange::<65>(Group::Secp256r1, reader),
        b'x' => exchange::<32>(Group::X25519, reader),
        b'v' => {
            let (key, digest, signature) = (reader.fixed()?, reader.fixed()?, reader.fixed()?);
            Some(provider(&[0; 32]).verify(&key, &digest, &signature).is_ok())
        }
        b'g' | b'c' => {
            let (suite, key) = match operation {
                b'g' => (Suite::Aes128Gcm, Suite::key(&reader.fixed::<16>()?)),
                _ => (Suite::ChaCha20Poly1305, Suite::key(&reader.fixed::<32>()?)),
            };
            let nonce = reader.fixed()?;
            let (aad, plain) = (reader.part(a)?, reader.part(b)?);
            let (sealed, tag) = (reader.part(c)?, reader.fixed()?);
            let mut crypto = provider(&[0; 32]);
            let key = crypto.aead(suite, &key);
            let work = d.get_mut(..plain.len())?;
            work.copy_from_slice(plain);
            let made = crypto.seal(&key, &nonce, aad, work);
            let seals = made == tag && work == sealed;
            let opens = crypto.open(&key, &nonce, aad, sealed, &tag).is_ok();
            // Both must be right, or both wrong.
            (seals == (opens && sealed == plain)).then_some(seals)
        }
        b'm' => {
            let key: Digest = reader.fixed()?;
            let (message, tag) = (reader.part(a)?, reader.part(b)?);
            let made = provider(&[0; 32]).hmac(&key, &[message]);
            Some(made.get(..tag.len())? == tag)
        }
        b'k' => {
            let salt: Digest = reader.fixed()?;
            let (secret, info, want) = (reader.part(a)?, reader.part(b)?, reader.part(c)?);
            let mut crypto = provider(&[0; 32]);
            let key = crypto.extract(&salt, secret);
            let out = d.get_mut(..want.len())?;
            crypto.expand(&key, &[info, &[], &[], &[], &[]], out);
            Some(out == want)
        }
        b'b' => mask::<16>(Suite::Aes128Gcm, reader),
        b'h' => mask::<32>(Suite::ChaCha20Poly1305, reader),
        _ => None,
    }
}

/// A mask of header protection, with a key of `N` bytes.
fn mask<const N: usize>(suite: Suite, reader: &mut Reader) -> Option<bool> {
    let key = Suite::key(&reader.fixed::<N>()?);
    let (mut sample, want) = (reader.fixed()?, reader.fixed()?);
    let mut crypto = provider(&[0; 32]);
    let key = crypto.block(suite, &key);
    crypto.mask(&key, &mut sample);
    Some(sample == want)
}

/// A key pair from a private key, and its agreement with a share of `N` bytes.
fn exchange<const N: usize>(group: Group, reader: &mut Reader) -> Option<bool> {
    let scalar: [u8; 32] = reader.fixed()?;
    let (own, peer) = (reader.fixed::<N>()?, reader.fixed::<N>()?);
    let want: Digest = reader.fixed()?;
    let mut crypto = provider(&scalar);
    let Ok((secret, public)) = crypto.generate(group) else {
        return Some(false);
    };
    let shared = crypto.agree(&secret, &peer);
    Some(public.bytes() == own && shared == Ok(want))
}
