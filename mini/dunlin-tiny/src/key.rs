//! Keys and certificates as people have them: a point in hexadecimal, or a file that
//! `openssl` wrote. Knows no system.

use dunlin_mini_crypto::Digest;
use dunlin_quic_mini::Point;

/// What is before a point of P-256 in a certificate and in a public key:
/// `prime256v1`, and the head of the bit string.
const P256: [u8; 14] = [
    0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00, 0x04,
];
/// Longest certificate.
const DER: usize = 4096;

/// A point in hexadecimal.
pub(crate) fn point(text: &str) -> Option<Point> {
    let mut point = [0; 65];
    for (i, byte) in point.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    // Rust reads a sign in front of a number, too.
    let digits = text.bytes().all(|digit| digit.is_ascii_hexdigit());
    (text.len() == 130 && digits).then_some(point)
}

/// The first key of P-256 in a file of certificates or public keys, in PEM.
pub(crate) fn of_file(file: &[u8]) -> Option<Point> {
    let text = core::str::from_utf8(file).ok()?;
    let blocks = text.split("-----BEGIN ").skip(1);
    blocks.filter_map(of_block).next()
}

/// The key in a block, which begins with its label.
fn of_block(block: &str) -> Option<Point> {
    let mut room = [0; DER];
    let (_, der) = decode(block, &mut room)?;
    let at = der.windows(P256.len()).position(|part| part == P256)?;
    der.get(at + P256.len() - 1..)?.first_chunk().copied()
}

/// What is before the private key in the form of SEC 1, which that of PKCS #8 has in
/// it: the version, and the head of a string of 32 bytes.
const PRIVATE: [u8; 5] = [0x02, 0x01, 0x01, 0x04, 0x20];
/// `prime256v1`.
const CURVE: [u8; 10] = [0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];

/// The first private key of P-256 in a file in PEM, without a password.
pub(crate) fn private(file: &[u8]) -> Option<Digest> {
    let text = core::str::from_utf8(file).ok()?;
    let of_block = |block| {
        let mut room = [0; DER];
        let (label, der) = decode(block, &mut room)?;
        let own = label.ends_with("PRIVATE KEY") && der.windows(CURVE.len()).any(|w| w == CURVE);
        let at = der.windows(PRIVATE.len()).position(|part| part == PRIVATE);
        der.get(at.filter(|_| own)? + PRIVATE.len()..)?
            .first_chunk()
            .copied()
    };
    text.split("-----BEGIN ").skip(1).find_map(of_block)
}

/// Writes the certificates of a file in PEM behind each other into `room`, in their
/// order, and gives the length; nothing if there is none, or not enough room.
pub(crate) fn certificates(file: &[u8], room: &mut [u8]) -> Option<usize> {
    let text = core::str::from_utf8(file).ok()?;
    let mut len = 0;
    for block in text.split("-----BEGIN ").skip(1) {
        let (label, der) = decode(block, room.get_mut(len..)?)?;
        if label == "CERTIFICATE" {
            len += der.len();
        }
    }
    Some(len).filter(|&len| len > 0)
}

/// The label of a block, which begins with it, and its content.
fn decode<'r, 't>(block: &'t str, der: &'r mut [u8]) -> Option<(&'t str, &'r [u8])> {
    let (label, body) = block.split_once("-----")?;
    let (body, _) = body.split_once("-----END")?;
    let mut len = 0;
    let (mut bits, mut value) = (0, 0_u32);
    for digit in body.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
        if digit == b'=' {
            break;
        }
        value = value << 6 | u32::from(sextet(digit)?);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            *der.get_mut(len)? = (value >> bits).to_le_bytes()[0];
            len += 1;
        }
    }
    Some((label, der.get(..len)?))
}

/// The value of a digit of base 64.
const fn sextet(digit: u8) -> Option<u8> {
    Some(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::string::String;
    use std::{format, vec};

    use dunlin_mini_crypto::{Crypto, Tiny, sign};
    use rcgen::{KeyPair, PublicKeyData};

    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn hexadecimal_is_a_point_of_65_bytes() {
        let text = "04".repeat(65);
        assert_eq!(point(&text), Some([4; 65]));
        assert_eq!(point(&text.to_uppercase()), Some([4; 65]));
        let wrong = [
            "".into(),
            "04".repeat(64),
            "04".repeat(66),
            format!("{}+4", "04".repeat(64)),
        ];
        for text in wrong {
            assert_eq!(point(&text), None, "{text}");
        }
    }

    #[test]
    fn files_of_openssl_have_a_private_key_and_certificates() {
        let pair = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let params = || rcgen::CertificateParams::new(vec![String::from("device")]).unwrap();
        let [one, two] = [(); 2].map(|()| params().self_signed(&pair).unwrap());
        let pem = pair.serialize_pem();
        let key = private(pem.as_bytes()).unwrap();
        // It is the key of the pair.
        let mut crypto = Tiny::new(|_: &mut [u8]| Ok(()));
        let signature = sign(&mut crypto, &key, &[7; 32]).unwrap();
        let point: Point = pair.der_bytes().try_into().unwrap();
        assert_eq!(crypto.verify(&point, &[7; 32], &signature), Ok(()));
        // Behind a certificate, and not of another curve.
        let both = format!("{}{pem}", one.pem());
        assert_eq!(private(both.as_bytes()), Some(key));
        let other = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
        assert_eq!(private(other.serialize_pem().as_bytes()), None);
        assert_eq!(private(one.pem().as_bytes()), None);

        let mut room = [0; 2048];
        let chain = format!("{}{pem}{}", one.pem(), two.pem());
        let len = certificates(chain.as_bytes(), &mut room).unwrap();
        assert_eq!(room[..len], [&one.der()[..], two.der()].concat());
        assert_eq!(certificates(pem.as_bytes(), &mut room), None);
        assert_eq!(certificates(chain.as_bytes(), &mut room[..600]), None);
    }

    #[test]
    fn files_of_openssl_have_a_key() {
        let pair = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let key: Point = pair.der_bytes().try_into().unwrap();
        let names = vec![String::from("localhost")];
        let certificate = rcgen::CertificateParams::new(names).unwrap();
        let certificate = certificate.self_signed(&pair).unwrap().pem();
        assert_eq!(of_file(certificate.as_bytes()), Some(key), "{}", hex(&key));
        assert_eq!(of_file(pair.public_key_pem().as_bytes()), Some(key));
        let unix = certificate.replace('\r', "");
        assert_eq!(of_file(unix.as_bytes()), Some(key));
        // Behind a text for people, and behind a certificate with a key of another kind.
        let other = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
        let both = format!("for people\n{}{certificate}", other.public_key_pem());
        assert_eq!(of_file(both.as_bytes()), Some(key));

        assert_eq!(of_file(other.public_key_pem().as_bytes()), None);
        assert_eq!(of_file(b""), None);
        for len in 0..unix.find("-----END").unwrap() + "-----END".len() {
            let cut = &unix.as_bytes()[..len];
            assert_eq!(of_file(cut), None, "{len}");
        }
        let long = format!(
            "-----BEGIN X-----\n{}\n-----END X-----\n",
            "A".repeat(3 * DER)
        );
        assert_eq!(of_file(long.as_bytes()), None);
        assert_eq!(of_file(unix.replacen("MI", "M!", 1).as_bytes()), None);
    }
}
