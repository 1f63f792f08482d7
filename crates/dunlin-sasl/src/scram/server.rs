//! The server's side.

use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_base::transport::BindingType;
use dunlin_base::{ByteSink, SinkFull, Text};
use hmac::Mac as _;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::{
    DIGEST, SALT_BYTES_MAX, ScramError, ServerFirst, StoredKeys, attribute, channel_attribute,
    decode_base64, is_nonce, mac, put_base64, text, xor,
};

/// The client's first message, as a server reads it.
#[derive(Clone, Copy, Debug)]
pub struct ClientFirst<'a> {
    user: &'a str,
    nonce: &'a str,
    bare: &'a str,
    /// The header before `bare`, as it came.
    header: &'a str,
    flag: Flag<'a>,
}

/// What a client says of channel binding (RFC 5802 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flag<'a> {
    /// It cannot.
    No,
    /// It can, and believes that the server cannot.
    NotOffered,
    /// It does, by this type.
    Bound(&'a str),
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
        let flag = match flag {
            "n" => Flag::No,
            "y" => Flag::NotOffered,
            _ => Flag::Bound(flag.strip_prefix("p=").ok_or(ScramError::Malformed)?),
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
        let header = message.strip_suffix(bare).unwrap_or_default();
        let first = Self {
            user,
            nonce,
            bare,
            header,
            flag,
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
    pub fn user_name(&self) -> String {
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

    /// Whether what the client says of channel binding fits the mechanism.
    ///
    /// # Errors
    /// As [`Exchange::begin`].
    fn check_flag(&self, binds: bool, offered: Option<BindingType>) -> Result<(), ScramError> {
        match (self.flag, offered) {
            (Flag::Bound(kind), Some(offered)) if binds && kind == offered.name() => Ok(()),
            (Flag::No, _) | (Flag::NotOffered, None) if !binds => Ok(()),
            (Flag::NotOffered, Some(_)) if !binds => Err(ScramError::ChannelBinding),
            _ => Err(ScramError::Unsupported),
        }
    }

    /// Checks the client's final message, which must have `data` of the
    /// channel, and writes the server's.
    ///
    /// # Errors
    /// [`ScramError::Proof`] if the client does not know the password;
    /// [`ScramError::Malformed`], [`ScramError::Nonce`],
    /// [`ScramError::ChannelBinding`], [`ScramError::SinkFull`].
    fn verify(
        &self,
        server_first: &[u8],
        client_final: &[u8],
        data: &[u8],
        keys: &StoredKeys,
        out: &mut impl ByteSink,
    ) -> Result<(), ScramError> {
        let server_first = text(server_first)?;
        let message = text(client_final)?;
        let (without_proof, proof) = message.rsplit_once(",p=").ok_or(ScramError::Malformed)?;
        let mut fields = without_proof.split(',');
        if attribute(fields.next(), "c=")? != channel_attribute(self.header, data) {
            return Err(ScramError::ChannelBinding);
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

/// The server's side of one exchange, from the client's first message on.
pub struct Exchange {
    client_first: Bytes,
    server_first: Vec<u8>,
    /// The mechanism is SCRAM-SHA-256-PLUS.
    binds: bool,
    /// What that is bound by, once it is known.
    channel: Option<Bytes>,
    keys: Option<StoredKeys>,
    user: Text,
}

// Keys must not reach a log.
impl core::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut exchange = f.debug_struct("Exchange");
        exchange.field("user", &self.user).finish_non_exhaustive()
    }
}

impl Exchange {
    /// Reads the client's first message; the keys of its user are still to be
    /// asked for, and, if it binds, the data of the channel. `binds`: the
    /// mechanism is SCRAM-SHA-256-PLUS. `offered`: by what the server offers
    /// that, if it does.
    ///
    /// # Errors
    /// What [`ClientFirst::parse`] says; [`ScramError::Unsupported`] if message
    /// and mechanism do not fit, or another type is wanted;
    /// [`ScramError::ChannelBinding`] if the client believes that PLUS was not
    /// offered, but it was: the list was changed on the way (RFC 5802 section 6).
    pub fn begin(
        message: &[u8],
        binds: bool,
        offered: Option<BindingType>,
    ) -> Result<Self, ScramError> {
        let first = ClientFirst::parse(message)?;
        first.check_flag(binds, offered)?;
        Ok(Self {
            binds,
            channel: None,
            client_first: Bytes::copy_from_slice(message),
            server_first: Vec::new(),
            keys: None,
            user: Text::from(first.user_name()),
        })
    }

    /// Whether it waits for the data of the channel.
    #[must_use]
    pub const fn wants_channel(&self) -> bool {
        self.binds && self.channel.is_none()
    }

    /// The data of the channel, of the type that was offered.
    pub fn bind(&mut self, data: Bytes) {
        self.channel = (!data.is_empty()).then_some(data);
    }

    /// The user whom the client claims to be.
    #[must_use]
    pub const fn user(&self) -> &Text {
        &self.user
    }

    /// The server's first message.
    ///
    /// # Errors
    /// What [`ClientFirst::respond`] says.
    pub fn challenge(
        &mut self,
        nonce: &str,
        salt: &[u8],
        iterations: u32,
        keys: StoredKeys,
    ) -> Result<&[u8], ScramError> {
        let first = ClientFirst::parse(&self.client_first)?;
        self.server_first.clear();
        first.respond(nonce, salt, iterations, &mut self.server_first)?;
        self.keys = Some(keys);
        Ok(&self.server_first)
    }

    /// Checks the client's proof; gives the server's last message.
    ///
    /// # Errors
    /// [`ScramError::Proof`] if the client does not know the password, or was
    /// not challenged; [`ScramError::ChannelBinding`] if it is at the end of
    /// another channel, or the data of this one is not known; what else is
    /// wrong with the message.
    pub fn finish(&self, client_final: &[u8]) -> Result<Bytes, ScramError> {
        let first = ClientFirst::parse(&self.client_first)?;
        let keys = self.keys.as_ref().ok_or(ScramError::Proof)?;
        let data = match &self.channel {
            Some(data) if self.binds => &data[..],
            None if self.binds => return Err(ScramError::ChannelBinding),
            _ => &[],
        };
        let mut out = Vec::new();
        first.verify(&self.server_first, client_final, data, keys, &mut out)?;
        Ok(out.into())
    }
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
