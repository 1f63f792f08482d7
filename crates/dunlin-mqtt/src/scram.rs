//! SCRAM-SHA-256 (RFC 5802, RFC 7677) without channel binding, both sides, as
//! pure functions over the exchanged messages: the caller keeps the messages
//! and brings nonces and salts, so that no entropy is drawn here.
//!
//! MQTT 5.0 carries these messages in Authentication Data (section 4.12): the
//! client's first in CONNECT, the server's first in AUTH, the client's final in
//! AUTH, the server's final in CONNACK or AUTH. SASLprep is not applied: user
//! names and passwords are compared as the UTF-8 bytes they are given in.

use core::str;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use dunlin_base::{ByteSink, SinkFull};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The Authentication Method of MQTT and the mechanism's registered name.
pub const METHOD: &str = "SCRAM-SHA-256";

/// Fewest iterations a client accepts (RFC 7677 section 4).
pub const ITERATIONS_MIN: u32 = 4096;

/// Most iterations a client computes for a server that it does not trust yet.
pub const ITERATIONS_MAX: u32 = 1_000_000;

/// Longest salt accepted from a server.
pub const SALT_BYTES_MAX: usize = 64;

/// Longest nonce, client's and server's parts together, accepted from a peer.
pub const NONCE_BYTES_MAX: usize = 256;

/// Bytes of a SHA-256 digest.
const DIGEST: usize = 32;

/// Characters of a digest in base64.
const DIGEST_BASE64: usize = 44;

/// Characters of the longest salt in base64.
const SALT_BASE64: usize = SALT_BYTES_MAX.div_ceil(3) * 4;

/// GS2 header of a client that does not support channel binding.
const GS2_HEADER: &str = "n,,";

/// `GS2_HEADER` in base64, as `c=` repeats it.
const GS2_HEADER_BASE64: &str = "biws";

/// `y,,` in base64: a client that would bind channels if the server could.
const GS2_HEADER_Y_BASE64: &str = "eSws";

/// Why an exchange failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScramError {
    /// A message does not follow the grammar of RFC 5802 section 7, or is not
    /// UTF-8.
    #[error("a SCRAM message is malformed")]
    Malformed,
    /// The client insists on channel binding or on acting for someone else.
    #[error("channel binding and authorization identities are not supported")]
    Unsupported,
    /// The peer's nonce does not continue ours, or is empty or too long.
    #[error("the SCRAM nonce does not match")]
    Nonce,
    /// The server asks for an iteration count outside
    /// [`ITERATIONS_MIN`]..=[`ITERATIONS_MAX`], or its salt is too long.
    #[error("the server's SCRAM parameters are unacceptable")]
    Parameters,
    /// The proof or the server signature is wrong: not the same password.
    #[error("the SCRAM proof does not match")]
    Proof,
    /// The server reported an error instead of its signature.
    #[error("the server refused the SCRAM exchange")]
    Refused,
    /// The output buffer is full.
    #[error("the output buffer is full")]
    SinkFull,
}

impl From<SinkFull> for ScramError {
    fn from(_: SinkFull) -> Self {
        Self::SinkFull
    }
}

/// What a client knows.
#[derive(Clone, Copy)]
pub struct Client<'a> {
    /// User name.
    pub user: &'a str,
    /// Password.
    pub password: &'a [u8],
    /// Fresh random printable characters without a comma; at least 18 bytes of
    /// entropy are customary.
    pub nonce: &'a str,
}

impl Client<'_> {
    /// Writes the client's first message.
    ///
    /// # Errors
    /// [`ScramError::Nonce`] if the nonce is empty or not printable,
    /// [`ScramError::SinkFull`].
    pub fn first(&self, out: &mut impl ByteSink) -> Result<(), ScramError> {
        if !is_nonce(self.nonce) {
            return Err(ScramError::Nonce);
        }
        out.put(GS2_HEADER.as_bytes())?;
        self.first_bare(|part| out.put(part))?;
        Ok(())
    }

    /// Reads the server's first message and writes the client's final one.
    /// Runs PBKDF2, which takes milliseconds on a host and seconds on a small
    /// microcontroller.
    ///
    /// # Errors
    /// What is wrong with the server's message.
    pub fn respond(
        &self,
        server_first: &[u8],
        out: &mut impl ByteSink,
    ) -> Result<ExpectServerFinal, ScramError> {
        let message = text(server_first)?;
        let server = ServerFirst::parse(message)?;
        // RFC 5802 section 5: the server's nonce continues the client's.
        let added = server.nonce.strip_prefix(self.nonce);
        if added.is_none_or(str::is_empty) || !is_nonce(server.nonce) {
            return Err(ScramError::Nonce);
        }
        let mut salt = [0; SALT_BYTES_MAX];
        let salt = decode_base64(server.salt, &mut salt).ok_or(ScramError::Parameters)?;
        if !(ITERATIONS_MIN..=ITERATIONS_MAX).contains(&server.iterations) {
            return Err(ScramError::Parameters);
        }
        let keys = SaltedKeys::derive(self.password, salt, server.iterations);
        let mut client_signature = mac(&keys.server.stored_key);
        let mut server_signature = mac(&keys.server.server_key);
        let mut feed = |part: &[u8]| {
            client_signature.update(part);
            server_signature.update(part);
            Ok::<(), SinkFull>(())
        };
        self.first_bare(&mut feed)?;
        for part in [",", message, ",c=", GS2_HEADER_BASE64, ",r=", server.nonce] {
            feed(part.as_bytes())?;
        }
        let proof = xor(
            keys.client_key,
            client_signature.finalize().into_bytes().into(),
        );
        for part in ["c=", GS2_HEADER_BASE64, ",r=", server.nonce, ",p="] {
            out.put(part.as_bytes())?;
        }
        put_base64(&proof, out)?;
        Ok(ExpectServerFinal {
            signature: server_signature.finalize().into_bytes().into(),
        })
    }

    fn first_bare<E>(&self, mut put: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        put(b"n=")?;
        // RFC 5802 section 5.1: comma and equals sign are escaped in names.
        for part in self.user.split_inclusive([',', '=']) {
            let (plain, escape) = match part.as_bytes().last() {
                Some(b',') => (part.strip_suffix(','), "=2C"),
                Some(b'=') => (part.strip_suffix('='), "=3D"),
                _ => (None, ""),
            };
            put(plain.unwrap_or(part).as_bytes())?;
            put(escape.as_bytes())?;
        }
        put(b",r=")?;
        put(self.nonce.as_bytes())
    }
}

/// A client that sent its proof and waits for the server's.
#[derive(Clone)]
pub struct ExpectServerFinal {
    signature: [u8; DIGEST],
}

impl ExpectServerFinal {
    /// Checks the server's final message.
    ///
    /// # Errors
    /// The server refused, or does not know the password either.
    pub fn verify(&self, server_final: &[u8]) -> Result<(), ScramError> {
        let message = text(server_final)?;
        if message.starts_with("e=") {
            return Err(ScramError::Refused);
        }
        let signature = message.strip_prefix("v=").ok_or(ScramError::Malformed)?;
        let signature = signature.split(',').next().unwrap_or_default();
        let mut got = [0; DIGEST];
        let got = decode_base64(signature, &mut got).ok_or(ScramError::Malformed)?;
        if bool::from(got.ct_eq(&self.signature)) {
            Ok(())
        } else {
            Err(ScramError::Proof)
        }
    }
}

/// What a server stores for a user instead of the password.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StoredKeys {
    /// `H(ClientKey)`: verifies the client's proof.
    pub stored_key: [u8; DIGEST],
    /// Signs the server's final message.
    pub server_key: [u8; DIGEST],
}

impl StoredKeys {
    /// Keys for a password.
    #[must_use]
    pub fn derive(password: &[u8], salt: &[u8], iterations: u32) -> Self {
        SaltedKeys::derive(password, salt, iterations).server
    }
}

/// The client's first message, as a server reads it.
#[derive(Clone, Copy, Debug)]
pub struct ClientFirst<'a> {
    user: &'a str,
    nonce: &'a str,
    bare: &'a str,
    gs2_is_y: bool,
}

impl<'a> ClientFirst<'a> {
    /// Reads the message.
    ///
    /// # Errors
    /// [`ScramError::Malformed`], [`ScramError::Unsupported`],
    /// [`ScramError::Nonce`].
    pub fn parse(message: &'a [u8]) -> Result<Self, ScramError> {
        let message = text(message)?;
        let (flag, rest) = message.split_once(',').ok_or(ScramError::Malformed)?;
        let gs2_is_y = match flag {
            "n" => false,
            "y" => true,
            _ if flag.starts_with("p=") => return Err(ScramError::Unsupported),
            _ => return Err(ScramError::Malformed),
        };
        let (authzid, bare) = rest.split_once(',').ok_or(ScramError::Malformed)?;
        if !authzid.is_empty() {
            return Err(ScramError::Unsupported);
        }
        let mut fields = bare.split(',');
        let user = attribute(fields.next(), "n=")?;
        let nonce = attribute(fields.next(), "r=")?;
        if !is_nonce(nonce) {
            return Err(ScramError::Nonce);
        }
        let first = Self {
            user,
            nonce,
            bare,
            gs2_is_y,
        };
        if first.user().count() == 0 || first.user().any(|part| part.is_none()) {
            return Err(ScramError::Malformed);
        }
        Ok(first)
    }

    /// The user name in pieces, escapes resolved; `None` marks a bad escape,
    /// which [`ClientFirst::parse`] has refused already.
    pub fn user(&self) -> impl Iterator<Item = Option<&'a str>> + use<'a> {
        let mut pieces = self.user.split('=');
        let head = pieces.next().filter(|piece| !piece.is_empty());
        let tail = pieces.flat_map(|piece| {
            let resolved = piece
                .strip_prefix("2C")
                .map(|rest| (",", rest))
                .or_else(|| piece.strip_prefix("3D").map(|rest| ("=", rest)));
            match resolved {
                Some((escaped, rest)) => [Some(escaped), Some(rest)],
                None => [None, None],
            }
        });
        head.map(Some).into_iter().chain(tail)
    }

    /// The user name, escapes resolved.
    #[must_use]
    pub fn user_name(&self) -> alloc::string::String {
        self.user().flatten().collect()
    }

    /// Writes the server's first message. The caller keeps what was written:
    /// [`ClientFirst::verify`] needs it.
    ///
    /// # Errors
    /// [`ScramError::Nonce`] if `nonce` is empty or not printable,
    /// [`ScramError::Parameters`] for a salt longer than [`SALT_BYTES_MAX`],
    /// [`ScramError::SinkFull`].
    pub fn respond(
        &self,
        nonce: &str,
        salt: &[u8],
        iterations: u32,
        out: &mut impl ByteSink,
    ) -> Result<(), ScramError> {
        if !is_nonce(nonce) {
            return Err(ScramError::Nonce);
        }
        if salt.len() > SALT_BYTES_MAX {
            return Err(ScramError::Parameters);
        }
        for part in ["r=", self.nonce, nonce, ",s="] {
            out.put(part.as_bytes())?;
        }
        put_base64(salt, out)?;
        out.put(b",i=")?;
        put_decimal(iterations, out)?;
        Ok(())
    }

    /// Checks the client's final message and writes the server's.
    ///
    /// # Errors
    /// [`ScramError::Proof`] if the client does not know the password;
    /// [`ScramError::Malformed`], [`ScramError::Nonce`],
    /// [`ScramError::SinkFull`].
    pub fn verify(
        &self,
        server_first: &[u8],
        client_final: &[u8],
        keys: &StoredKeys,
        out: &mut impl ByteSink,
    ) -> Result<(), ScramError> {
        let server_first = text(server_first)?;
        let message = text(client_final)?;
        let (without_proof, proof) = message.rsplit_once(",p=").ok_or(ScramError::Malformed)?;
        let mut fields = without_proof.split(',');
        let binding = attribute(fields.next(), "c=")?;
        let expected = if self.gs2_is_y {
            GS2_HEADER_Y_BASE64
        } else {
            GS2_HEADER_BASE64
        };
        if binding != expected {
            return Err(ScramError::Malformed);
        }
        if attribute(fields.next(), "r=")? != ServerFirst::parse(server_first)?.nonce {
            return Err(ScramError::Nonce);
        }
        let mut buf = [0; DIGEST];
        let proof: [u8; DIGEST] = decode_base64(proof, &mut buf)
            .and_then(|proof| proof.try_into().ok())
            .ok_or(ScramError::Malformed)?;
        let signature = |key: &[u8; DIGEST]| -> [u8; DIGEST] {
            let mut mac = mac(key);
            for part in [self.bare, ",", server_first, ",", without_proof] {
                mac.update(part.as_bytes());
            }
            mac.finalize().into_bytes().into()
        };
        let client_key = xor(proof, signature(&keys.stored_key));
        let digest = Sha256::digest(client_key);
        if !bool::from(digest.as_slice().ct_eq(&keys.stored_key)) {
            return Err(ScramError::Proof);
        }
        out.put(b"v=")?;
        put_base64(&signature(&keys.server_key), out)?;
        Ok(())
    }
}

/// Everything that follows from a password.
struct SaltedKeys {
    client_key: [u8; DIGEST],
    server: StoredKeys,
}

impl SaltedKeys {
    fn derive(password: &[u8], salt: &[u8], iterations: u32) -> Self {
        let salted: [u8; DIGEST] =
            pbkdf2::pbkdf2_hmac_array::<Sha256, DIGEST>(password, salt, iterations);
        let key = |label: &[u8]| -> [u8; DIGEST] {
            let mut mac = mac(&salted);
            mac.update(label);
            mac.finalize().into_bytes().into()
        };
        let client_key = key(b"Client Key");
        Self {
            client_key,
            server: StoredKeys {
                stored_key: Sha256::digest(client_key).into(),
                server_key: key(b"Server Key"),
            },
        }
    }
}

/// The server's first message, as both sides read it.
struct ServerFirst<'a> {
    nonce: &'a str,
    salt: &'a str,
    iterations: u32,
}

impl<'a> ServerFirst<'a> {
    fn parse(message: &'a str) -> Result<Self, ScramError> {
        let mut fields = message.split(',');
        let nonce = attribute(fields.next(), "r=")?;
        let salt = attribute(fields.next(), "s=")?;
        let iterations = attribute(fields.next(), "i=")?;
        let iterations = iterations.parse().map_err(|_| ScramError::Malformed)?;
        Ok(Self {
            nonce,
            salt,
            iterations,
        })
    }
}

fn text(message: &[u8]) -> Result<&str, ScramError> {
    str::from_utf8(message).map_err(|_| ScramError::Malformed)
}

fn attribute<'a>(field: Option<&'a str>, name: &str) -> Result<&'a str, ScramError> {
    field
        .and_then(|field| field.strip_prefix(name))
        .ok_or(ScramError::Malformed)
}

/// RFC 5802 section 7, `c-nonce`: printable ASCII except the comma.
fn is_nonce(nonce: &str) -> bool {
    let printable = |byte: u8| byte.is_ascii_graphic() && byte != b',';
    (1..=NONCE_BYTES_MAX).contains(&nonce.len()) && nonce.bytes().all(printable)
}

fn mac(key: &[u8; DIGEST]) -> Hmac<Sha256> {
    Hmac::new(&{
        // HMAC zero-pads keys shorter than its block.
        let mut block = hmac::digest::Key::<Hmac<Sha256>>::default();
        for (to, from) in block.iter_mut().zip(key) {
            *to = *from;
        }
        block
    })
}

fn xor(mut a: [u8; DIGEST], b: [u8; DIGEST]) -> [u8; DIGEST] {
    for (a, b) in a.iter_mut().zip(b) {
        *a ^= b;
    }
    a
}

/// Decodes into the front of `buf`; `None` if malformed or longer than `buf`.
fn decode_base64<'a>(encoded: &str, buf: &'a mut [u8]) -> Option<&'a [u8]> {
    let len = BASE64.decode_slice(encoded, buf).ok()?;
    buf.get(..len)
}

fn put_base64(bytes: &[u8], out: &mut impl ByteSink) -> Result<(), SinkFull> {
    const { assert!(DIGEST_BASE64 <= SALT_BASE64) };
    let mut buf = [0; SALT_BASE64];
    let len = BASE64.encode_slice(bytes, &mut buf).map_err(|_| SinkFull)?;
    out.put(buf.get(..len).ok_or(SinkFull)?)
}

fn put_decimal(mut value: u32, out: &mut impl ByteSink) -> Result<(), SinkFull> {
    /// Digits of `u32::MAX`.
    const DIGITS_MAX: usize = 10;
    let mut digits = [0; DIGITS_MAX];
    let mut start = DIGITS_MAX;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
        start -= 1;
        if value == 0 {
            break;
        }
    }
    out.put(digits.get(start..).ok_or(SinkFull)?)
}

#[cfg(test)]
mod tests;
