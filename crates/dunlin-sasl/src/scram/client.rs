//! The client's side.

use alloc::string::String;

use dunlin_base::{ByteSink, SinkFull};
use hmac::Mac as _;
use subtle::ConstantTimeEq as _;

use super::{
    ChannelBinding, DIGEST, ITERATIONS_MAX, ITERATIONS_MIN, SALT_BYTES_MAX, SaltedKeys, ScramError,
    ServerFirst, channel_attribute, decode_base64, is_nonce, mac, put_base64, text, xor,
};

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
    /// What it says of the channel.
    pub binding: Binding<'a>,
}

/// What a client says of channel binding (RFC 5802 section 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Binding<'a> {
    /// It cannot bind.
    #[default]
    Unsupported,
    /// It could, but the server has not offered SCRAM-SHA-256-PLUS. A server
    /// that has knows then that its offer was taken away on the way.
    NotOffered,
    /// SCRAM-SHA-256-PLUS. The first message does not need the data.
    Bound(ChannelBinding<'a>),
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
        out.put(self.gs2_header().as_bytes())?;
        self.first_bare(|part| out.put(part))?;
        Ok(())
    }

    /// Reads the server's first message and writes the client's final one.
    /// Runs PBKDF2, which takes milliseconds on a host and seconds on a small
    /// microcontroller.
    ///
    /// # Errors
    /// What is wrong with the server's message; [`ScramError::ChannelBinding`]
    /// where the data of the channel is missing.
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
        let data = match self.binding {
            Binding::Bound(ChannelBinding { data: [], .. }) => {
                return Err(ScramError::ChannelBinding);
            }
            Binding::Bound(channel) => channel.data,
            Binding::Unsupported | Binding::NotOffered => &[],
        };
        let bound = channel_attribute(&self.gs2_header(), data);
        for part in [",", message, ",c=", &bound, ",r=", server.nonce] {
            feed(part.as_bytes())?;
        }
        let proof = xor(
            keys.client_key,
            client_signature.finalize().into_bytes().into(),
        );
        for part in ["c=", &bound, ",r=", server.nonce, ",p="] {
            out.put(part.as_bytes())?;
        }
        put_base64(&proof, out)?;
        Ok(ExpectServerFinal {
            signature: server_signature.finalize().into_bytes().into(),
        })
    }

    /// RFC 5802 section 7, `gs2-header`.
    fn gs2_header(&self) -> String {
        match self.binding {
            Binding::Bound(channel) => ["p=", channel.kind.name(), ",,"].concat(),
            Binding::NotOffered => String::from("y,,"),
            Binding::Unsupported => String::from("n,,"),
        }
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
