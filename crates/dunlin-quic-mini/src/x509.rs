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
    let body = match reader.u8()? {
        len @ 0..=0x7f => Reader(reader.take(usize::from(len))?),
        0x81 => reader.vector(1)?,
        0x82 => reader.vector(2)?,
        _ => return None,
    };
    Some((tag, body))
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
    element(&mut body, INTEGER)?;
    // The algorithm is told again outside, where it is looked at.
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
    Some(Parts {
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
        let mut digits = element(&mut pair, INTEGER)?.0;
        if let [0, rest @ ..] = digits {
            digits = rest;
        }
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
