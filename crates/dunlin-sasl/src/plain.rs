//! PLAIN (RFC 4616): `authzid NUL authcid NUL password`.

use alloc::vec::Vec;
use core::str;

use crate::SaslError;

/// The client's only message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Plain<'a> {
    /// Who to act for; empty: the user.
    pub authzid: &'a str,
    /// User name.
    pub user: &'a str,
    /// Password.
    pub password: &'a [u8],
}

impl<'a> Plain<'a> {
    /// Reads the message.
    ///
    /// # Errors
    /// [`SaslError::Malformed`].
    pub fn parse(message: &'a [u8]) -> Result<Self, SaslError> {
        let mut parts = message.split(|byte| *byte == 0);
        let (Some(authzid), Some(user), Some(password), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(SaslError::Malformed);
        };
        let text = |bytes| str::from_utf8(bytes).map_err(|_| SaslError::Malformed);
        let (authzid, user) = (text(authzid)?, text(user)?);
        if user.is_empty() || password.is_empty() {
            return Err(SaslError::Malformed);
        }
        Ok(Self {
            authzid,
            user,
            password,
        })
    }

    /// Writes the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.authzid.as_bytes());
        out.push(0);
        out.extend_from_slice(self.user.as_bytes());
        out.push(0);
        out.extend_from_slice(self.password);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for (authzid, user, password) in [("", "tim", "tanstaaftanstaaf"), ("a", "é", "p q")] {
            let plain = Plain {
                authzid,
                user,
                password: password.as_bytes(),
            };
            let mut out = Vec::new();
            plain.encode(&mut out);
            assert!(Plain::parse(&out) == Ok(plain));
        }
    }

    #[test]
    fn other_messages_are_malformed() {
        let cases: [&[u8]; 6] = [
            b"",
            b"\0user",
            b"\0\0password",
            b"\0user\0",
            b"\0user\0pass\0word",
            b"\0\xff\0password",
        ];
        for case in cases {
            assert!(matches!(Plain::parse(case), Err(SaslError::Malformed)));
        }
    }
}
