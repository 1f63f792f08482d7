//! The key of a server as people have it: a point in hexadecimal, or a file that
//! `openssl` wrote. Knows no system.

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
    let (_, body) = block.split_once("-----")?;
    let (body, _) = body.split_once("-----END")?;
    let mut der = [0; DER];
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
    let der = der.get(..len)?;
    let at = der.windows(P256.len()).position(|part| part == P256)?;
    der.get(at + P256.len() - 1..)?.first_chunk().copied()
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
