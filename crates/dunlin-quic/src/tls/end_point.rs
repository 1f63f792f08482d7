//! What an exchange of SASL is bound by where TLS exports no keying material: a
//! hash of the server's certificate (RFC 5929 section 4).

use bytes::Bytes;
use sha2::{Digest as _, Sha224, Sha256, Sha384, Sha512};
use x509_parser::certificate::X509Certificate;
use x509_parser::oid_registry::{OID_PKCS1_RSASSAPSS, Oid};
use x509_parser::prelude::FromDer as _;
use x509_parser::signature_algorithm::RsaSsaPssParams;

/// The hash of a certificate as its server sent it, by the hash function of its
/// signature; `None` where that has none of its own, such as Ed25519.
#[must_use]
pub fn end_point(cert: &[u8]) -> Option<Bytes> {
    let (_, parsed) = X509Certificate::from_der(cert).ok()?;
    let algorithm = &parsed.signature_algorithm;
    let hash = match algorithm.algorithm == OID_PKCS1_RSASSAPSS {
        true => {
            let params = RsaSsaPssParams::try_from(algorithm.parameters.as_ref()?).ok()?;
            of_hash(params.hash_algorithm_oid())
        }
        false => of_signature(&algorithm.algorithm),
    };
    hash.map(|hash| hash.of(cert))
}

/// A hash function.
#[derive(Clone, Copy)]
enum Hash {
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

impl Hash {
    fn of(self, cert: &[u8]) -> Bytes {
        match self {
            Self::Sha224 => Bytes::copy_from_slice(&Sha224::digest(cert)),
            Self::Sha256 => Bytes::copy_from_slice(&Sha256::digest(cert)),
            Self::Sha384 => Bytes::copy_from_slice(&Sha384::digest(cert)),
            Self::Sha512 => Bytes::copy_from_slice(&Sha512::digest(cert)),
        }
    }
}

/// That of a signature algorithm (RFC 8017 appendix A.2.4, RFC 5758 section
/// 3.2); SHA-256 where it is MD5 or SHA-1.
fn of_signature(algorithm: &Oid<'_>) -> Option<Hash> {
    Some(match algorithm.to_id_string().as_str() {
        // MD5 and SHA-1 with RSA, SHA-1 with ECDSA.
        "1.2.840.113549.1.1.4" | "1.2.840.113549.1.1.5" | "1.2.840.10045.4.1" => Hash::Sha256,
        // SHA-2 with RSA, with ECDSA.
        "1.2.840.113549.1.1.14" | "1.2.840.10045.4.3.1" => Hash::Sha224,
        "1.2.840.113549.1.1.11" | "1.2.840.10045.4.3.2" => Hash::Sha256,
        "1.2.840.113549.1.1.12" | "1.2.840.10045.4.3.3" => Hash::Sha384,
        "1.2.840.113549.1.1.13" | "1.2.840.10045.4.3.4" => Hash::Sha512,
        _ => return None,
    })
}

/// A hash function by its own name (RFC 8017 appendix B.1); SHA-256 for MD5 and
/// SHA-1.
fn of_hash(algorithm: &Oid<'_>) -> Option<Hash> {
    Some(match algorithm.to_id_string().as_str() {
        "1.2.840.113549.2.5" | "1.3.14.3.2.26" => Hash::Sha256,
        "2.16.840.1.101.3.4.2.4" => Hash::Sha224,
        "2.16.840.1.101.3.4.2.1" => Hash::Sha256,
        "2.16.840.1.101.3.4.2.2" => Hash::Sha384,
        "2.16.840.1.101.3.4.2.3" => Hash::Sha512,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::parse_certs;

    /// Certificates that OpenSSL made, by their signatures, and the digests that
    /// Python computes.
    const CERTS: &[u8] = include_bytes!("data/end_point.pem");
    const DIGESTS: [(&str, Option<&str>); 7] = [
        (
            "RSA and SHA-1",
            Some("fb2991edd7fe50e8fda2f89eefb87c275b778a9650cca21fd9a1b31acca0bd39"),
        ),
        (
            "RSA and SHA-384",
            Some(
                "a16af9e5b9cbaf8d5bac54e1caa5a4eeb767b8067b732e324075976abf85f590\
                 93098e764696f0de59ff86cb1045ed2c",
            ),
        ),
        (
            "RSASSA-PSS and SHA-512",
            Some(
                "a032c9954d631d36d60819142af46863bcc550dbdc1dfabf0fa1250ab4fd7f67\
                 0dddf8e29b31e42660810c7c3c639eb573fdd9d9dbb7a93ee13ded2344700412",
            ),
        ),
        (
            "RSASSA-PSS and SHA-1",
            Some("8b46e34271828cf7f1f8a742503fc9da32bca779f19e86e944c7838a15145bed"),
        ),
        (
            "ECDSA and SHA-256",
            Some("455a6f55806447e8b984457e875f00de45f5bdd6114e23fffe5df81f909588ba"),
        ),
        (
            "ECDSA and SHA-512",
            Some(
                "29939c442722d48ef0e416ddf166eb5f820f4090d573d266f9437f1abe40e57a\
                 87c62e6368035ea7be15181504f5123c06ea23c098b7966a051f38b24b31970c",
            ),
        ),
        ("Ed25519", None),
    ];

    #[test]
    fn certificates_are_hashed_as_they_are_signed() {
        let certs = parse_certs(CERTS, "certificates").unwrap();
        assert_eq!(certs.len(), DIGESTS.len());
        for (cert, (name, want)) in certs.iter().zip(DIGESTS) {
            let got = end_point(cert).map(|hash| format!("{hash:x}"));
            assert_eq!(got.as_deref(), want, "{name}");
        }
    }

    #[test]
    fn damaged_certificates_do_not_panic() {
        for cert in parse_certs(CERTS, "certificates").unwrap() {
            for at in 0..cert.len() {
                let mut bad = cert.to_vec();
                bad[at] ^= 0xff;
                let _ = (end_point(&bad), end_point(&cert[..at]));
            }
        }
    }
}
