//! The certificate of this client, for servers that ask for one (RFC 8446 sections
//! 4.3.2 and 4.4), and the messages that show it. Knows no packet.

use dunlin_mini_crypto::{Crypto, Digest, SIGNATURE_LEN, sign};

use crate::error::Error;
use crate::wire::{Reader, Writer};
use crate::x509::element;

/// What a client signs in front of the hash, after 64 spaces.
pub(crate) const SIGNED: &[u8] = b"TLS 1.3, client CertificateVerify\0";

/// ecdsa_secp256r1_sha256.
const SCHEME: u16 = 0x0403;

/// A certificate and its key.
#[derive(Clone, Copy)]
pub struct Identity<'a> {
    /// Certificates in DER, one behind the other: the client's own first, then those
    /// that lead to an authority of the server. They must fit into
    /// [`hello`](crate::Parts::hello) with 140 bytes and 5 for each, and with the ticket
    /// behind them. Without any there is nothing to show.
    pub certificates: &'a [u8],
    /// The private key of the first, of P-256, as 32 bytes.
    pub key: &'a Digest,
}

impl<'a> Identity<'a> {
    /// Takes the next certificate off `rest`, as what is in front of the others.
    fn next(rest: &mut Reader<'a>) -> Result<&'a [u8], Error> {
        let whole = rest.0;
        // The tag of a SEQUENCE.
        element(rest, 0x30).ok_or(Error::ClientKey)?;
        let len = whole.len().saturating_sub(rest.0.len());
        whole.get(..len).ok_or(Error::ClientKey)
    }
}

impl core::fmt::Debug for Identity<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Identity")
    }
}

/// Whether a CertificateRequest takes signatures that this client can make.
pub(crate) fn takes_ours(mut body: Reader<'_>) -> Result<bool, Error> {
    // In a handshake it has no context.
    let context = body.vector(1).ok_or(Error::Decode)?;
    let list = body.vector(2).filter(|_| body.is_empty());
    let mut list = list.filter(|_| context.is_empty()).ok_or(Error::Decode)?;
    let mut takes = None;
    while !list.is_empty() {
        let number = list.u16().ok_or(Error::Decode)?;
        let mut value = list.vector(2).ok_or(Error::Decode)?;
        // signature_algorithms; of the others none must be understood.
        if number == 13 {
            let schemes = value.vector(2).filter(|_| value.is_empty());
            let schemes = schemes.ok_or(Error::Decode)?.0.as_chunks().0;
            takes = Some(schemes.iter().any(|s| u16::from_be_bytes(*s) == SCHEME));
        }
    }
    // RFC 8446 section 4.3.2 wants it.
    takes.ok_or(Error::Decode)
}

/// Writes the Certificate message.
pub(crate) fn put_certificates(identity: &Identity<'_>, out: &mut Writer<'_>) -> Result<(), Error> {
    let (mut rest, mut list) = (Reader(identity.certificates), 0);
    while !rest.is_empty() {
        list += 3 + Identity::next(&mut rest)?.len() + 2;
    }
    out.u8(11);
    put_len(out, 1 + 3 + list);
    out.u8(0);
    put_len(out, list);
    rest = Reader(identity.certificates);
    while !rest.is_empty() {
        let certificate = Identity::next(&mut rest)?;
        put_len(out, certificate.len());
        out.put(certificate);
        out.u16(0);
    }
    Ok(())
}

/// Writes the CertificateVerify message for what was signed.
pub(crate) fn put_verify<C: Crypto>(
    crypto: &mut C,
    identity: &Identity<'_>,
    digest: &Digest,
    out: &mut Writer<'_>,
) -> Result<(), Error> {
    let signature = sign(crypto, identity.key, digest).ok_or(Error::ClientKey)?;
    // Its longest form in DER: two numbers with a zero in front.
    let mut der = [0; 2 * (2 + 1) + SIGNATURE_LEN];
    let mut numbers = Writer::new(&mut der);
    let (halves, _) = signature.as_chunks::<32>();
    for half in halves {
        put_number(half, &mut numbers);
    }
    let len = numbers.len();
    out.u8(15);
    put_len(out, 2 + 2 + 2 + len);
    out.u16(SCHEME);
    let mark = out.open();
    out.put(&[0x30, len.to_le_bytes()[0]]);
    out.put(der.get(..len).unwrap_or_default());
    out.close(mark, 0);
    Ok(())
}

/// A number in DER, in its shortest form.
fn put_number(digits: &[u8; 32], out: &mut Writer<'_>) {
    let zeros = digits.iter().take_while(|digit| **digit == 0).count();
    // A number of 0 is no part of a signature.
    let digits = digits.get(zeros..).unwrap_or_default();
    let negative = matches!(digits, [0x80..=0xff, ..]);
    out.u8(0x02);
    out.u8((digits.len() + usize::from(negative)).to_le_bytes()[0]);
    if negative {
        out.u8(0);
    }
    out.put(digits);
}

/// A length of three bytes.
fn put_len(out: &mut Writer<'_>, len: usize) {
    let [a, b, c, _] = u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes();
    out.put(&[c, b, a]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::x509;

    #[test]
    fn signatures_are_written_as_they_are_read() {
        let edges = [0x00, 0x01, 0x7f, 0x80, 0xff];
        for (first, second) in edges.iter().flat_map(|a| edges.map(|b| (*a, b))) {
            for zeros in [0, 1, 30, 31] {
                let mut signature = [0x11; SIGNATURE_LEN];
                signature[..zeros].fill(0);
                (signature[zeros], signature[32]) = (first, second);
                // Neither half is 0.
                signature[31] |= 1;
                let mut der = [0; 70];
                let mut out = Writer::new(&mut der);
                let (halves, _) = signature.as_chunks::<32>();
                for half in halves {
                    put_number(half, &mut out);
                }
                let len = out.len();
                assert!(!out.full());
                let mut whole = alloc::vec![0x30, u8::try_from(len).unwrap()];
                whole.extend_from_slice(&der[..len]);
                assert_eq!(x509::signature(&whole), Some(signature));
            }
        }
    }

    #[test]
    fn requests_must_say_what_they_take() {
        // One scheme that is not ours, and ours.
        let good: [(&[u8], bool); 3] = [
            (&[0, 0, 8, 0, 13, 0, 4, 0, 2, 4, 3], true),
            (&[0, 0, 10, 0, 13, 0, 6, 0, 4, 8, 7, 4, 3], true),
            (&[0, 0, 12, 0, 47, 0, 0, 0, 13, 0, 4, 0, 2, 8, 7], false),
        ];
        for (body, want) in good {
            assert_eq!(takes_ours(Reader(body)), Ok(want), "{body:?}");
            for len in 0..body.len() {
                assert_eq!(takes_ours(Reader(&body[..len])), Err(Error::Decode));
            }
        }
        let bad: [&[u8]; 4] = [
            // No extension, a context, something behind it, and behind the schemes.
            &[0, 0, 0],
            &[1, 7, 0, 8, 0, 13, 0, 4, 0, 2, 4, 3],
            &[0, 0, 8, 0, 13, 0, 4, 0, 2, 4, 3, 0],
            &[0, 0, 9, 0, 13, 0, 5, 0, 2, 4, 3, 0],
        ];
        for body in bad {
            assert_eq!(takes_ours(Reader(body)), Err(Error::Decode), "{body:?}");
        }
    }
}
