//! The eight bytes that a connection and each security layer begin with
//! (sections 2.2, 5.2.1, 5.3.2).

/// A protocol header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ProtocolHeader {
    /// AMQP 1.0.0.
    Amqp = 0,
    /// TLS, which is negotiated inside the connection.
    Tls = 2,
    /// SASL.
    Sasl = 3,
}

/// Bytes of a protocol header.
const LEN: usize = 8;

impl ProtocolHeader {
    /// Bytes of a protocol header.
    pub const LEN: usize = LEN;

    /// The bytes.
    #[must_use]
    pub const fn bytes(self) -> [u8; LEN] {
        [b'A', b'M', b'Q', b'P', self as u8, 1, 0, 0]
    }

    /// Reads the header at the start of `buf`: `Ok(None)` while more bytes are
    /// needed.
    ///
    /// # Errors
    /// As soon as the bytes are the beginning of none; the answer is the header
    /// that is wanted, and the end of the connection (section 2.2).
    pub fn peek(buf: &[u8]) -> Result<Option<Self>, NotAProtocolHeader> {
        let have = buf.get(..LEN).unwrap_or(buf);
        let found = [Self::Amqp, Self::Sasl, Self::Tls]
            .into_iter()
            .find(|header| header.bytes().starts_with(have))
            .ok_or(NotAProtocolHeader)?;
        Ok((have.len() == LEN).then_some(found))
    }
}

/// The bytes are no protocol header that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a protocol header of AMQP 1.0")]
pub struct NotAProtocolHeader;
