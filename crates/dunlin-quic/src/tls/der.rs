//! Just enough DER to find names and the public key in a certificate. It
//! verifies nothing: certificates come here after verification, or to be
//! compared with a pin.

use dunlin_base::Text;
use sha2::{Digest, Sha256};

use super::CertName;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OID: u8 = 0x06;
const OCTET_STRING: u8 = 0x04;
const BOOLEAN: u8 = 0x01;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;

/// id-at-commonName, 2.5.4.3.
const OID_COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// id-ce-subjectAltName, 2.5.29.17.
const OID_SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// A run of DER values.
#[derive(Clone, Copy)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The next value: tag, content, and the whole encoding.
    fn next(&mut self) -> Option<(u8, Self, &'a [u8])> {
        let all = self.0;
        let (&tag, rest) = all.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (len, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            // Lengths of up to four bytes; DER has no indefinite length.
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                let len = bytes.iter().fold(0, |n, b| (n << 8) | usize::from(*b));
                (len, rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((tag, Self(content), &all[..all.len() - rest.len()]))
    }

    fn expect(&mut self, tag: u8) -> Option<Self> {
        let (found, content, _) = self.next()?;
        (found == tag).then_some(content)
    }

    fn skip_if(&mut self, tag: u8) {
        if self.0.first() == Some(&tag) {
            self.next();
        }
    }
}

/// The parts of a certificate that are used here.
struct Parts<'a> {
    subject: Reader<'a>,
    public_key: &'a [u8],
    /// What follows the public key, extensions included.
    rest: Reader<'a>,
}

fn parts(cert: &[u8]) -> Option<Parts<'_>> {
    let mut tbs = Reader(cert).expect(SEQUENCE)?.expect(SEQUENCE)?;
    tbs.skip_if(VERSION);
    tbs.next()?; // serial number
    tbs.next()?; // signature algorithm
    tbs.next()?; // issuer
    tbs.next()?; // validity
    let subject = tbs.expect(SEQUENCE)?;
    let (_, _, public_key) = tbs.next()?;
    Some(Parts {
        subject,
        public_key,
        rest: tbs,
    })
}

/// The encoded SubjectPublicKeyInfo.
pub(super) fn public_key(cert: &[u8]) -> Option<&[u8]> {
    parts(cert).map(|p| p.public_key)
}

/// Context tags of GeneralName that hold text.
const EMAIL: u8 = 0x81;
const DNS_NAME: u8 = 0x82;
const URI: u8 = 0x86;

/// The name that is asked for, where the certificate has it.
pub(super) fn identity(cert: &[u8], name: CertName) -> Option<Text> {
    if name == CertName::Sha256 {
        return Some(hex(&Sha256::digest(cert)).as_str().into());
    }
    let parts = parts(cert)?;
    let alternative = |tags| alternative_name(parts.rest, tags);
    let found = match name {
        CertName::Any => {
            common_name(parts.subject).or_else(|| alternative(&[EMAIL, DNS_NAME, URI]))
        }
        CertName::CommonName => common_name(parts.subject),
        CertName::DnsName => alternative(&[DNS_NAME]),
        CertName::Email => alternative(&[EMAIL]),
        CertName::Uri => alternative(&[URI]),
        CertName::Sha256 => None,
    };
    found.filter(|name| !name.is_empty()).map(Text::from)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn common_name(mut subject: Reader<'_>) -> Option<&str> {
    while let Some(mut set) = subject.expect(SET) {
        while let Some(mut attribute) = set.expect(SEQUENCE) {
            if attribute.expect(OID)?.0 == OID_COMMON_NAME {
                let (_, value, _) = attribute.next()?;
                return core::str::from_utf8(value.0).ok();
            }
        }
    }
    None
}

/// The first name with one of these tags.
fn alternative_name<'a>(mut rest: Reader<'a>, tags: &[u8]) -> Option<&'a str> {
    let mut extensions = loop {
        let (tag, content, _) = rest.next()?;
        if tag == EXTENSIONS {
            let mut content = content;
            break content.expect(SEQUENCE)?;
        }
    };
    while let Some(mut extension) = extensions.expect(SEQUENCE) {
        if extension.expect(OID)?.0 != OID_SUBJECT_ALT_NAME {
            continue;
        }
        extension.skip_if(BOOLEAN);
        let mut names = extension.expect(OCTET_STRING)?.expect(SEQUENCE)?;
        while let Some((tag, name, _)) = names.next() {
            if tags.contains(&tag) {
                return core::str::from_utf8(name.0).ok();
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, PublicKeyData};

    fn cert(common_name: Option<&str>, names: &[&str]) -> (Vec<u8>, KeyPair) {
        let names: Vec<String> = names.iter().map(|n| (*n).into()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::OrganizationName, "Org");
        if let Some(name) = common_name {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        let key = KeyPair::generate().unwrap();
        let cert = params.self_signed(&key).unwrap();
        (cert.der().to_vec(), key)
    }

    #[test]
    fn names_and_key_are_found() {
        let cases: [(Option<&str>, &[&str], Option<&str>); 4] = [
            (Some("device-é-7"), &["a.example"], Some("device-é-7")),
            (
                None,
                &["10.0.0.1", "b.example", "c.example"],
                Some("b.example"),
            ),
            (Some("only"), &[], Some("only")),
            (None, &[], None),
        ];
        for (common_name, names, want) in cases {
            let (der, key) = cert(common_name, names);
            assert_eq!(identity(&der, CertName::Any).as_deref(), want);
            assert_eq!(public_key(&der), Some(&*key.subject_public_key_info()));
        }
    }

    #[test]
    fn each_kind_of_name_is_found() {
        use rcgen::SanType;
        let mut params = CertificateParams::new(vec!["10.0.0.1".into()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "pump");
        params.subject_alt_names.extend([
            SanType::URI("spiffe://plant/pump/7".try_into().unwrap()),
            SanType::DnsName("pump-7.example".try_into().unwrap()),
            SanType::Rfc822Name("pump@example".try_into().unwrap()),
        ]);
        let key = KeyPair::generate().unwrap();
        let der = params.self_signed(&key).unwrap().der().to_vec();
        let digest = hex(&Sha256::digest(&der));
        let cases = [
            (CertName::Any, "pump"),
            (CertName::CommonName, "pump"),
            (CertName::Uri, "spiffe://plant/pump/7"),
            (CertName::DnsName, "pump-7.example"),
            (CertName::Email, "pump@example"),
            (CertName::Sha256, &digest),
        ];
        for (name, want) in cases {
            assert_eq!(identity(&der, name).as_deref(), Some(want), "{name}");
        }
        let (der, _) = cert(None, &["a.example"]);
        assert_eq!(identity(&der, CertName::CommonName), None);
        assert_eq!(identity(&der, CertName::Uri), None);
    }

    #[test]
    fn damaged_certificates_yield_nothing_and_do_not_panic() {
        let (der, _) = cert(Some("x"), &["y.example"]);
        for cut in 0..der.len() {
            assert_eq!(identity(&der[..cut], CertName::Any), None);
        }
        for at in 0..der.len() {
            for value in [0, 0x7f, 0x80, 0x84, 0xff] {
                let mut bad = der.clone();
                bad[at] = value;
                for name in CertName::ALL {
                    let _ = (identity(&bad, name), public_key(&bad));
                }
            }
        }
    }
}
