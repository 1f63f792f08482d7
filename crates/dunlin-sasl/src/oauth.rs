//! OAUTHBEARER (RFC 7628 section 3.1): a GS2 header, then key-value pairs, each
//! ended by `^A`, of which `auth` has the token.

use alloc::vec::Vec;
use core::str;

use crate::SaslError;

const SEPARATOR: char = '\u{1}';

/// The client's only message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Bearer<'a> {
    /// Who to act for; empty: whom the token names.
    pub authzid: &'a str,
    /// The bearer token (RFC 6750 section 2.1).
    pub token: &'a str,
}

impl<'a> Bearer<'a> {
    /// Reads the message. Pairs other than `auth` are passed over.
    ///
    /// # Errors
    /// [`SaslError::Malformed`].
    pub fn parse(message: &'a [u8]) -> Result<Self, SaslError> {
        let message = str::from_utf8(message).map_err(|_| SaslError::Malformed)?;
        Self::find(message).ok_or(SaslError::Malformed)
    }

    fn find(message: &'a str) -> Option<Self> {
        let (header, pairs) = message.split_once(SEPARATOR)?;
        let header = header.strip_suffix(',')?;
        let (flag, authzid) = header.split_once(',')?;
        if !matches!(flag, "n" | "y") {
            return None;
        }
        let authzid = match authzid {
            "" => "",
            named => named.strip_prefix("a=")?,
        };
        let auth = pairs
            .split(SEPARATOR)
            .find_map(|pair| pair.strip_prefix("auth="))?;
        let (scheme, token) = auth.split_once(' ')?;
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        let fits = scheme.eq_ignore_ascii_case("bearer")
            && !token.is_empty()
            && token.bytes().all(is_token);
        fits.then_some(Self { authzid, token })
    }

    /// Writes the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let named = if self.authzid.is_empty() { "" } else { "a=" };
        let parts = [
            "n,",
            named,
            self.authzid,
            ",\u{1}auth=Bearer ",
            self.token,
            "\u{1}\u{1}",
        ];
        for part in parts {
            out.extend_from_slice(part.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc_is_read() {
        let message = b"n,a=user@example.com,\x01host=server.example.com\x01port=143\x01\
            auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01\x01";
        let bearer = Bearer::parse(message).map(|b| (b.authzid, b.token));
        let token = "vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==";
        assert_eq!(bearer, Ok(("user@example.com", token)));
    }

    #[test]
    fn what_is_written_is_read() {
        for authzid in ["", "user"] {
            let bearer = Bearer {
                authzid,
                token: "abc.def",
            };
            let mut out = Vec::new();
            bearer.encode(&mut out);
            assert!(Bearer::parse(&out) == Ok(bearer));
        }
    }

    #[test]
    fn other_messages_are_malformed() {
        let cases: [&[u8]; 6] = [
            b"",
            b"n,,\x01\x01",
            b"p=x,,\x01auth=Bearer a\x01\x01",
            b"n,b=u,\x01auth=Bearer a\x01\x01",
            b"n,,\x01auth=Basic a\x01\x01",
            b"n,,\x01auth=Bearer a b\x01\x01",
        ];
        for case in cases {
            assert!(matches!(Bearer::parse(case), Err(SaslError::Malformed)));
        }
    }
}
