//! Names and the public key in a certificate. It verifies nothing: certificates
//! come here after verification, or to be compared with a pin.

use dunlin_base::Text;
use sha2::{Digest, Sha256};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::OID_X509_COMMON_NAME;
use x509_parser::prelude::FromDer as _;

use super::CertName;

fn parsed(cert: &[u8]) -> Option<X509Certificate<'_>> {
    X509Certificate::from_der(cert).ok().map(|(_, cert)| cert)
}

/// The encoded SubjectPublicKeyInfo.
pub(super) fn public_key(cert: &[u8]) -> Option<&[u8]> {
    parsed(cert).map(|cert| cert.tbs_certificate.subject_pki.raw)
}

/// The name that is asked for, where the certificate has it.
pub(super) fn identity(cert: &[u8], name: CertName) -> Option<Text> {
    if name == CertName::Sha256 {
        return Some(hex(&Sha256::digest(cert)).as_str().into());
    }
    let cert = parsed(cert)?;
    let text = |name: &GeneralName<'_>| match name {
        GeneralName::RFC822Name(text) | GeneralName::DNSName(text) | GeneralName::URI(text) => {
            Some(Text::from(*text))
        }
        _ => None,
    };
    let found = match name {
        CertName::Any => common_name(&cert).or_else(|| alternative_name(&cert, text)),
        CertName::CommonName => common_name(&cert),
        CertName::DnsName => alternative_name(&cert, |name| match name {
            GeneralName::DNSName(_) => text(name),
            _ => None,
        }),
        CertName::Email => alternative_name(&cert, |name| match name {
            GeneralName::RFC822Name(_) => text(name),
            _ => None,
        }),
        CertName::Uri => alternative_name(&cert, |name| match name {
            GeneralName::URI(_) => text(name),
            _ => None,
        }),
        CertName::Sha256 => None,
    };
    found.filter(|name| !name.is_empty())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The first common name, whichever kind of string holds it.
fn common_name(cert: &X509Certificate<'_>) -> Option<Text> {
    let attributes = cert.subject().iter_attributes();
    let mut names = attributes.filter(|a| *a.attr_type() == OID_X509_COMMON_NAME);
    let value = names.next()?.attr_value();
    core::str::from_utf8(value.data).ok().map(Text::from)
}

/// The first subject alternative name that `pick` takes.
fn alternative_name(
    cert: &X509Certificate<'_>,
    pick: impl Fn(&GeneralName<'_>) -> Option<Text>,
) -> Option<Text> {
    cert.extensions()
        .iter()
        .find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectAlternativeName(names) => {
                names.general_names.iter().find_map(&pick)
            }
            _ => None,
        })
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
