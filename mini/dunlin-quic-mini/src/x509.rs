//! Reads the parts of an X.509 certificate that the verifiers ask for
//! (RFC 5280). Decides nothing, and knows only ECDSA with P-256 and SHA-256.

use dunlin_mini_crypto::{POINT_LEN, Point, SIGNATURE_LEN};

use crate::error::Error;
use crate::wire::{Reader, fill};

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
#[cfg(feature = "authority")]
const BIT_STRING: u8 = 0x03;

/// `SEQUENCE { id-ecPublicKey, prime256v1 }` and the head of the bit string.
const P256_KEY: [u8; 24] = [
    0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48,
    0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// A certificate cut into its parts.
pub(crate) struct Certificate<'a> {
    /// What the authority signed.
    #[cfg(feature = "authority")]
    pub(crate) signed: &'a [u8],
    #[cfg(feature = "authority")]
    pub(crate) validity: Reader<'a>,
    /// The extensions, one SEQUENCE after the other.
    #[cfg(feature = "authority")]
    pub(crate) extensions: Reader<'a>,
    /// Algorithm and signature.
    #[cfg(feature = "authority")]
    pub(crate) signature: Reader<'a>,
    pub(crate) key: &'a Point,
}

/// The content of the next element, which must have this tag.
#[inline(never)]
pub(crate) fn element<'a>(reader: &mut Reader<'a>, tag: u8) -> Option<Reader<'a>> {
    let (found, body) = any(reader)?;
    (found == tag).then_some(body)
}

/// The next element: its tag and its content.
#[inline(never)]
pub(crate) fn any<'a>(reader: &mut Reader<'a>) -> Option<(u8, Reader<'a>)> {
    let tag = reader.u8()?;
    // The shortest form is the only one.
    let (len, least) = match reader.u8()? {
        len @ 0..=0x7f => (len.into(), 0),
        0x81 => (reader.uint(1)?, 0x80),
        0x82 => (reader.uint(2)?, 0x100),
        _ => return None,
    };
    let body = reader.take(len as usize)?;
    (len >= least).then_some((tag, Reader(body)))
}

/// The digits of a number that is not negative, without zeros in front.
#[inline(never)]
fn integer<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
    match element(reader, INTEGER)?.0 {
        digits @ [1..=0x7f, ..] => Some(digits),
        // A zero, or one in front of what would be negative.
        [0, digits @ ..] if !matches!(digits, [..=0x7f, ..]) => Some(digits),
        _ => None,
    }
}

impl<'a> Certificate<'a> {
    /// # Errors
    ///
    /// [`Error::CertificateEncoding`], or [`Error::CertificateKey`] for a key
    /// of another kind.
    #[inline(never)]
    pub(crate) fn read(der: &'a [u8]) -> Result<Self, Error> {
        let parts = cut(der).ok_or(Error::CertificateEncoding)?;
        let mut key = Reader(parts.key);
        if key.array() != Some(&P256_KEY) {
            return Err(Error::CertificateKey);
        }
        let point: Option<&[u8; POINT_LEN]> = key.array();
        let key = point.filter(|_| key.is_empty());
        Ok(Certificate {
            #[cfg(feature = "authority")]
            signed: parts.signed,
            #[cfg(feature = "authority")]
            validity: parts.validity,
            #[cfg(feature = "authority")]
            extensions: parts.extensions,
            #[cfg(feature = "authority")]
            signature: parts.signature,
            key: key.ok_or(Error::CertificateKey)?,
        })
    }
}

/// The parts before the key was looked at.
#[cfg_attr(not(feature = "authority"), allow(dead_code))]
struct Parts<'a> {
    signed: &'a [u8],
    validity: Reader<'a>,
    key: &'a [u8],
    extensions: Reader<'a>,
    signature: Reader<'a>,
}

fn cut(der: &[u8]) -> Option<Parts<'_>> {
    let mut outer = Reader(der);
    let mut certificate = element(&mut outer, SEQUENCE)?;
    let whole = certificate.0;
    let mut body = element(&mut certificate, SEQUENCE)?;
    let signed = whole.get(..whole.len().checked_sub(certificate.0.len())?)?;
    // The version is there in every certificate that has extensions.
    if body.0.first() == Some(&0xa0) {
        any(&mut body)?;
    }
    integer(&mut body)?;
    // The algorithm is named again outside, where it is looked at.
    element(&mut body, SEQUENCE)?;
    element(&mut body, SEQUENCE)?;
    let validity = element(&mut body, SEQUENCE)?;
    element(&mut body, SEQUENCE)?;
    let key = element(&mut body, SEQUENCE)?.0;
    let mut extensions = Reader(&[]);
    while !body.is_empty() {
        if let (0xa3, mut explicit) = any(&mut body)? {
            extensions = element(&mut explicit, SEQUENCE)?;
        }
    }
    outer.is_empty().then_some(Parts {
        signed,
        validity,
        key,
        extensions,
        signature: certificate,
    })
}

/// `r || s` of an ECDSA signature in DER.
#[inline(never)]
pub(crate) fn signature(der: &[u8]) -> Option<[u8; SIGNATURE_LEN]> {
    let mut outer = Reader(der);
    let mut pair = element(&mut outer, SEQUENCE)?;
    let mut signature = [0; SIGNATURE_LEN];
    for half in signature.chunks_exact_mut(SIGNATURE_LEN / 2) {
        let digits = integer(&mut pair)?;
        let zeros = half.len().checked_sub(digits.len())?;
        fill(half.get_mut(zeros..)?, digits);
    }
    (outer.is_empty() && pair.is_empty()).then_some(signature)
}

/// The bytes of a bit string without unused bits.
#[cfg(feature = "authority")]
pub(crate) fn bit_string<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
    let mut body = element(reader, BIT_STRING)?;
    (body.u8()? == 0).then_some(body.0)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    /// An element whose length takes so many bytes behind the first.
    fn long(tag: u8, content: &[u8], more: usize) -> Vec<u8> {
        let len = u32::try_from(content.len()).unwrap().to_be_bytes();
        let first = match more {
            0 => len[3],
            _ => 0x80 | u8::try_from(more).unwrap(),
        };
        [&[tag, first], &len[4 - more..], content].concat()
    }

    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        let more = usize::from(content.len() > 0x7f) + usize::from(content.len() > 0xff);
        long(tag, content, more)
    }

    /// A certificate with this as its serial number.
    fn certificate(serial: &[u8]) -> Vec<u8> {
        let key = [&P256_KEY[..], &[4; POINT_LEN]].concat();
        let empty = [SEQUENCE, 0];
        let signed = [serial, &empty.repeat(4), &der(SEQUENCE, &key)].concat();
        der(SEQUENCE, &der(SEQUENCE, &signed))
    }

    #[test]
    fn lengths_have_one_form() {
        for (len, shortest) in [(0, 0), (0x7f, 0), (0x80, 1), (0xff, 1), (0x100, 2)] {
            let content = std::vec![7; len];
            for more in shortest..=4 {
                let der = long(SEQUENCE, &content, more);
                let read = element(&mut Reader(&der), SEQUENCE).map(|read| read.0);
                let want = (more == shortest).then_some(&content[..]);
                assert_eq!(read, want, "{len} in {more}");
            }
        }
        // The indefinite length of BER.
        assert!(element(&mut Reader(&[SEQUENCE, 0x80, 0, 0]), SEQUENCE).is_none());
    }

    #[test]
    fn serial_numbers_have_one_form() {
        let good: [&[u8]; 4] = [&[0], &[0x7f], &[0, 0x80], &[1, 0]];
        for digits in good {
            let read = Certificate::read(&certificate(&der(INTEGER, digits))).map(|_| ());
            assert_eq!(read, Ok(()), "{digits:?}");
        }
        let bad: [&[u8]; 5] = [&[], &[0, 0], &[0, 0x7f], &[0x80], &[0xff, 0xff]];
        for digits in bad {
            let read = Certificate::read(&certificate(&der(INTEGER, digits))).map(|_| ());
            assert_eq!(read, Err(Error::CertificateEncoding), "{digits:?}");
        }
        let mut more = certificate(&der(INTEGER, &[1]));
        more.push(0);
        let read = Certificate::read(&more).map(|_| ());
        assert_eq!(read, Err(Error::CertificateEncoding));
    }

    #[test]
    fn signatures_have_one_form() {
        let pair = |r: &[u8], s: &[u8]| {
            let pair = [der(INTEGER, r), der(INTEGER, s)].concat();
            signature(&der(SEQUENCE, &pair))
        };
        let [high, low] = [&[0x81; 32][..], &[0x7f; 32]];
        let signed = pair(&[&[0], high].concat(), low).unwrap();
        assert_eq!(signed[..], [high, low].concat());
        let short = pair(&[1], &[0, 0x80]).unwrap();
        assert_eq!((short[31], short[63]), (1, 0x80));
        assert_eq!(short.iter().filter(|&&byte| byte != 0).count(), 2);
        let bad: [&[u8]; 5] = [&[], high, &[0; 2], &[0, 1], &[1; 33]];
        for digits in bad {
            assert_eq!(pair(digits, &[1]), None, "{digits:?}");
            assert_eq!(pair(&[1], digits), None, "{digits:?}");
        }
    }
}
