//! SCRAM-SHA-256 and SCRAM-SHA-256-PLUS (RFC 5802, RFC 7677), both sides, as
//! pure functions over the exchanged messages: the caller keeps the messages
//! and brings nonces and salts, so that no entropy is drawn here.
//!
//! MQTT 5.0 carries these messages in Authentication Data (section 4.12): the
//! client's first in CONNECT, the server's first in AUTH, the client's final in
//! AUTH, the server's final in CONNACK or AUTH. AMQP 1.0 has a frame for each
//! (part 5, section 5.3.3). SASLprep is not applied: user names and passwords
//! are compared as the UTF-8 bytes they are given in.

use alloc::string::String;
use core::str;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use dunlin_base::transport::BindingType;
use dunlin_base::{ByteSink, SinkFull};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

mod client;
mod server;

pub use client::{Binding, Client, ExpectServerFinal};
pub use server::{ClientFirst, Exchange};

/// The registered name, which is also the Authentication Method of MQTT.
pub const METHOD: &str = "SCRAM-SHA-256";

/// As [`METHOD`], bound to a channel.
pub const METHOD_PLUS: &str = "SCRAM-SHA-256-PLUS";

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

/// What a channel is bound by (RFC 5056).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelBinding<'a> {
    /// Its type.
    pub kind: BindingType,
    /// What both ends of this channel, and no others, have.
    pub data: &'a [u8],
}

/// Why an exchange failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScramError {
    /// A message does not follow the grammar of RFC 5802 section 7, or is not
    /// UTF-8.
    #[error("a SCRAM message is malformed")]
    Malformed,
    /// The client's channel binding is not that of the mechanism or not known,
    /// or it wants to act for another user.
    #[error("the channel binding or an authorization identity is not supported")]
    Unsupported,
    /// The client is at the end of another channel, or its first message was
    /// changed on the way.
    #[error("the channel binding does not match")]
    ChannelBinding,
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

/// RFC 5802 section 7, `channel-binding` without its name.
fn channel_attribute(header: &str, data: &[u8]) -> String {
    BASE64.encode([header.as_bytes(), data].concat())
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

#[cfg(test)]
mod tests;
