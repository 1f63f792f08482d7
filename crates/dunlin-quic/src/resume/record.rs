//! A session ticket as bytes, with all that is needed to use it.
//!
//! ```text
//! layout  1   | suite  2 | issued  8 (s since 1970) | client  32 (hash)
//! key     1 + n | application protocol  1 + n | message  2 + n
//! parameters  2 + n | certificates  1, each 3 + n
//! ```
//! Numbers are big-endian. `client` stands for the certificate that the client
//! had, `message` is the body of NewSessionTicket as it came.

use rustls::pki_types::CertificateDer;

const LAYOUT: u8 = 1;

/// Bytes of a record at most: two certificates of RSA with all that goes with
/// them are half of it.
pub(crate) const RECORD_BYTES_MAX: usize = 16 << 10;

/// What of `client` stands for no certificate.
pub(crate) const NO_CLIENT: [u8; 32] = [0; 32];

/// A stored ticket.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// Number of the cipher suite.
    pub suite: u16,
    /// When it came, in seconds since 1970.
    pub issued: u64,
    /// Hash of the client's certificate.
    pub client: [u8; 32],
    /// The pre-shared key.
    pub key: Vec<u8>,
    /// The application protocol.
    pub alpn: Vec<u8>,
    /// The body of NewSessionTicket.
    pub message: Vec<u8>,
    /// The server's transport parameters.
    pub params: Vec<u8>,
    /// The server's certificates.
    pub chain: Vec<CertificateDer<'static>>,
}

impl core::fmt::Debug for Record {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Record(..)")
    }
}

impl Record {
    /// `None`: too large to be worth keeping.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![LAYOUT];
        bytes.extend(self.suite.to_be_bytes());
        bytes.extend(self.issued.to_be_bytes());
        bytes.extend(self.client);
        put::<1>(&mut bytes, &self.key)?;
        put::<1>(&mut bytes, &self.alpn)?;
        put::<2>(&mut bytes, &self.message)?;
        put::<2>(&mut bytes, &self.params)?;
        bytes.push(u8::try_from(self.chain.len()).ok()?);
        for cert in &self.chain {
            put::<3>(&mut bytes, cert)?;
        }
        (bytes.len() <= RECORD_BYTES_MAX).then_some(bytes)
    }

    /// `None`: of another layout, or damaged.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (&layout, rest) = bytes.split_first()?;
        let (suite, rest) = rest.split_first_chunk::<2>()?;
        let (issued, rest) = rest.split_first_chunk::<8>()?;
        let (client, mut rest) = rest.split_first_chunk::<32>()?;
        let (key, alpn) = (get::<1>(&mut rest)?, get::<1>(&mut rest)?);
        let (message, params) = (get::<2>(&mut rest)?, get::<2>(&mut rest)?);
        let (&certs, mut rest) = rest.split_first()?;
        let mut chain = Vec::new();
        for _ in 0..certs {
            chain.push(get::<3>(&mut rest)?.into());
        }
        (layout == LAYOUT && rest.is_empty()).then(|| Self {
            suite: u16::from_be_bytes(*suite),
            issued: u64::from_be_bytes(*issued),
            client: *client,
            key,
            alpn,
            message,
            params,
            chain,
        })
    }

    /// Whether it is still good, as its server said (RFC 8446 section 4.6.1:
    /// the message begins with the lifetime in seconds).
    pub(crate) fn is_fresh(&self, now: u64) -> bool {
        let Some(lifetime) = self.message.first_chunk::<4>() else {
            return false;
        };
        let end = self
            .issued
            .saturating_add(u32::from_be_bytes(*lifetime).into());
        // A clock that was set back says nothing about the age of a ticket.
        self.issued <= now && now < end
    }
}

/// Appends `bytes` after their length in `N` bytes.
fn put<const N: usize>(out: &mut Vec<u8>, bytes: &[u8]) -> Option<()> {
    let len = (bytes.len() as u64).to_be_bytes();
    let (high, low) = len.split_at_checked(8 - N)?;
    if high.iter().any(|byte| *byte != 0) {
        return None;
    }
    out.extend_from_slice(low);
    out.extend_from_slice(bytes);
    Some(())
}

fn get<const N: usize>(from: &mut &[u8]) -> Option<Vec<u8>> {
    let (len, rest) = from.split_first_chunk::<N>()?;
    let len = len
        .iter()
        .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    let (bytes, rest) = rest.split_at_checked(len)?;
    *from = rest;
    Some(bytes.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            suite: 0x1301,
            issued: 1_000,
            client: NO_CLIENT,
            key: vec![1; 32],
            alpn: b"proto".to_vec(),
            message: vec![0, 0, 0, 100, 7],
            params: vec![3; 50],
            chain: vec![vec![4; 700].into(), vec![5; 70_000].into()],
        }
    }

    #[test]
    fn records_survive_and_no_part_of_one_does() {
        let mut small = record();
        assert!(small.encode().is_none(), "too large");
        small.chain.pop();
        let bytes = small.encode().unwrap();
        assert!(Record::decode(&bytes) == Some(small));
        for cut in 0..bytes.len() {
            assert!(Record::decode(&bytes[..cut]).is_none(), "cut at {cut}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(Record::decode(&longer).is_none());
    }

    #[test]
    fn a_ticket_ages_by_the_word_of_its_server() {
        let record = record();
        let fresh = [999, 1000, 1099, 1100].map(|now| record.is_fresh(now));
        assert_eq!(fresh, [false, true, true, false]);
    }
}
