//! Who the server must be: the types that decide whether a certificate is
//! believed. Knows no handshake; the signature over the handshake is checked
//! elsewhere, with the key that a verifier gives back.

use dunlin_mini_crypto::{Crypto, Point};

use crate::error::Error;
#[cfg(feature = "client-certificate")]
use crate::identity::Identity;
use crate::x509::Certificate;

/// Decides whose key may sign the handshake.
pub trait Verifier {
    /// The key of the server's certificate, if the server is the right one.
    ///
    /// # Errors
    ///
    /// The reason to refuse it; the connection ends with it.
    fn verify<C: Crypto>(&self, crypto: &mut C, certificate: &[u8]) -> Result<Point, Error>;

    /// Adds to a hash who is believed. A ticket is used only where this is what
    /// it was when the server was verified: with a ticket, it is not asked again.
    fn believed<C: Crypto>(&self, crypto: &mut C, hash: &mut C::Hash);

    /// What this client shows a server that asks who it is: see
    /// [`Identified`]. A ticket is used only where it is what it was.
    #[cfg(feature = "client-certificate")]
    fn identity(&self) -> Option<Identity<'_>> {
        None
    }
}

/// What there is to show.
#[cfg(feature = "client-certificate")]
pub(crate) fn shown<V: Verifier>(verifier: &V) -> Option<Identity<'_>> {
    let identity = verifier.identity();
    identity.filter(|identity| !identity.certificates.is_empty())
}

/// Believes servers by their keys: the certificate only carries the key, and
/// name, dates and issuer mean nothing.
#[derive(Clone, Copy, Debug)]
pub struct Pinned<'a> {
    keys: &'a [Point],
}

impl<'a> Pinned<'a> {
    /// Any of `keys` is the server's. Give two to be able to change one.
    #[must_use]
    pub const fn new(keys: &'a [Point]) -> Self {
        Self { keys }
    }
}

impl Verifier for Pinned<'_> {
    fn verify<C: Crypto>(&self, _: &mut C, certificate: &[u8]) -> Result<Point, Error> {
        let certificate = Certificate::read(certificate)?;
        if self.keys.contains(certificate.key) {
            Ok(*certificate.key)
        } else {
            Err(Error::WrongKey)
        }
    }

    fn believed<C: Crypto>(&self, crypto: &mut C, hash: &mut C::Hash) {
        crypto.update(hash, self.keys.as_flattened());
    }
}

/// A verifier that believes the servers that another one believes, and shows them
/// who the client is if they ask.
#[cfg(feature = "client-certificate")]
#[derive(Clone, Copy, Debug)]
pub struct Identified<'a, V> {
    verifier: V,
    identity: Identity<'a>,
}

#[cfg(feature = "client-certificate")]
impl<'a, V> Identified<'a, V> {
    /// Believes whom `verifier` believes.
    #[must_use]
    pub const fn new(verifier: V, identity: Identity<'a>) -> Self {
        Self { verifier, identity }
    }
}

#[cfg(feature = "client-certificate")]
impl<V: Verifier> Verifier for Identified<'_, V> {
    fn verify<C: Crypto>(&self, crypto: &mut C, certificate: &[u8]) -> Result<Point, Error> {
        self.verifier.verify(crypto, certificate)
    }

    fn believed<C: Crypto>(&self, crypto: &mut C, hash: &mut C::Hash) {
        self.verifier.believed(crypto, hash);
    }

    fn identity(&self) -> Option<Identity<'_>> {
        Some(self.identity)
    }
}

/// Believes every server. An attacker in the path can read and change all
/// data; for laboratories only.
#[cfg(feature = "unverified")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Unverified;

#[cfg(feature = "unverified")]
impl Verifier for Unverified {
    fn verify<C: Crypto>(&self, _: &mut C, certificate: &[u8]) -> Result<Point, Error> {
        Certificate::read(certificate).map(|certificate| *certificate.key)
    }

    fn believed<C: Crypto>(&self, crypto: &mut C, hash: &mut C::Hash) {
        crypto.update(hash, b"anybody");
    }
}

#[cfg(feature = "authority")]
pub use authority::{Authority, Name};

#[cfg(feature = "authority")]
mod authority {
    //! Servers known by a certificate that one authority signed directly.

    use dunlin_mini_crypto::{Crypto, Point};

    use super::Verifier;
    use crate::error::Error;
    use crate::wire::Reader;
    use crate::x509::{Certificate, any, bit_string, element, signature};

    const SEQUENCE: u8 = 0x30;
    /// `ecdsa-with-SHA256`.
    const ECDSA_SHA256: [u8; 10] = [0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
    /// `serverAuth` and `anyExtendedKeyUsage`.
    const SERVER: [&[u8]; 2] = [
        &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01],
        &[0x55, 0x1d, 0x25, 0x00],
    ];

    /// The name that a certificate must be for.
    #[derive(Clone, Copy, Debug)]
    #[non_exhaustive]
    pub enum Name<'a> {
        /// A host name, in lower case and without a dot at the end.
        Host(&'a [u8]),
        /// The bytes of an IPv4 or IPv6 address.
        Address(&'a [u8]),
    }

    /// Believes servers that have a certificate for a name from an authority,
    /// without an intermediate one: ECDSA P-256 with SHA-256.
    #[derive(Clone, Copy, Debug)]
    pub struct Authority<'a> {
        key: &'a Point,
        name: Name<'a>,
        now: Option<u32>,
    }

    impl<'a> Authority<'a> {
        /// Certificates for `name` that `key` has signed. `now` is the time in
        /// seconds since 1970; without it the dates mean nothing, and a device
        /// without a clock believes a certificate for ever.
        #[must_use]
        pub const fn new(key: &'a Point, name: Name<'a>, now: Option<u32>) -> Self {
            Self { key, name, now }
        }
    }

    impl Verifier for Authority<'_> {
        fn verify<C: Crypto>(&self, crypto: &mut C, certificate: &[u8]) -> Result<Point, Error> {
            let mut certificate = Certificate::read(certificate)?;
            let algorithm =
                element(&mut certificate.signature, SEQUENCE).ok_or(Error::CertificateEncoding)?;
            if algorithm.0 != ECDSA_SHA256 {
                return Err(Error::CertificateAlgorithm);
            }
            let signed = bit_string(&mut certificate.signature).and_then(signature);
            let signed = signed.filter(|_| certificate.signature.is_empty());
            let signed = signed.ok_or(Error::CertificateEncoding)?;
            let mut hash = crypto.hash();
            crypto.update(&mut hash, certificate.signed);
            let digest = crypto.finish(hash);
            crypto
                .verify(self.key, &digest, &signed)
                .map_err(|_| Error::UnknownAuthority)?;
            if let Some(now) = self.now {
                check_dates(certificate.validity, now)?;
            }
            check_extensions(certificate.extensions, self.name)?;
            Ok(*certificate.key)
        }

        fn believed<C: Crypto>(&self, crypto: &mut C, hash: &mut C::Hash) {
            let (kind, name) = match self.name {
                Name::Host(name) => (b"host", name),
                Name::Address(address) => (b"addr", address),
            };
            // Another length than any number of pinned keys has.
            crypto.update(hash, kind);
            crypto.update(hash, self.key);
            crypto.update(hash, name);
        }
    }

    fn check_dates(mut validity: Reader<'_>, now: u32) -> Result<(), Error> {
        let from = time(&mut validity).ok_or(Error::CertificateEncoding)?;
        let to = time(&mut validity).ok_or(Error::CertificateEncoding)?;
        if now < from {
            return Err(Error::NotYetValid);
        }
        if now > to {
            return Err(Error::Expired);
        }
        Ok(())
    }

    /// Seconds since 1970 of a UTCTime or GeneralizedTime; the ends of what 32
    /// bits can tell for times outside.
    fn time(reader: &mut Reader<'_>) -> Option<u32> {
        let (tag, mut text) = any(reader)?;
        let two = |text: &mut Reader<'_>| {
            let [tens, ones] = text.array()?.map(|digit| digit.wrapping_sub(b'0'));
            (tens < 10 && ones < 10).then_some(u32::from(tens) * 10 + u32::from(ones))
        };
        let century = match tag {
            0x17 => None,
            0x18 => Some(two(&mut text)?),
            _ => return None,
        };
        let year = two(&mut text)?;
        let century = century.unwrap_or(if year < 50 { 20 } else { 19 });
        let year = century * 100 + year;
        let month = two(&mut text)?;
        let day = two(&mut text)?;
        let hour = two(&mut text)?;
        let minute = two(&mut text)?;
        let second = two(&mut text)?;
        if text.0 != b"Z" || !(1..=12).contains(&month) || day == 0 {
            return None;
        }
        if year < 1970 {
            return Some(0);
        }
        if year > 2104 {
            return Some(u32::MAX);
        }
        // Years begin in March, so that the leap day is the last one.
        let (year, month) = if month > 2 {
            (year, month - 3)
        } else {
            (year - 1, month + 9)
        };
        let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day;
        // 719 469 is the day before 1970-01-01 in this count.
        Some(((days - 719_469) * 24 + hour) * 3600 + minute * 60 + second)
    }

    fn check_extensions(mut extensions: Reader<'_>, name: Name<'_>) -> Result<(), Error> {
        let mut named = false;
        while !extensions.is_empty() {
            named |= check_extension(&mut extensions, name)?;
        }
        if named { Ok(()) } else { Err(Error::WrongName) }
    }

    /// Checks one extension; true if it names the server.
    fn check_extension(extensions: &mut Reader<'_>, name: Name<'_>) -> Result<bool, Error> {
        let mut read = || {
            let mut extension = element(extensions, SEQUENCE)?;
            let id = element(&mut extension, 0x06)?;
            let critical = extension.0.first() == Some(&0x01);
            // False is the default, which is not written.
            if critical && element(&mut extension, 0x01)?.0 != [0xff] {
                return None;
            }
            let body = element(&mut extension, 0x04)?;
            extension.is_empty().then_some((id.0, critical, body))
        };
        let (id, critical, mut body) = read().ok_or(Error::CertificateEncoding)?;
        // All extensions that matter are below id-ce (2.5.29).
        match id {
            // subjectAltName
            [0x55, 0x1d, 0x11] => {
                let names = element(&mut body, SEQUENCE).ok_or(Error::CertificateEncoding)?;
                Ok(is_named(names, name))
            }
            // extKeyUsage
            [0x55, 0x1d, 0x25] => {
                let mut usages = element(&mut body, SEQUENCE).ok_or(Error::CertificateEncoding)?;
                while let Some(usage) = element(&mut usages, 0x06) {
                    if SERVER.contains(&usage.0) {
                        return Ok(false);
                    }
                }
                Err(Error::WrongUsage)
            }
            // keyUsage: the first bit is digitalSignature.
            [0x55, 0x1d, 0x0f] => match body.0 {
                [0x03, _, _, bits, ..] if bits & 0x80 != 0 => Ok(false),
                _ => Err(Error::WrongUsage),
            },
            // basicConstraints limits authorities, and this is a leaf.
            [0x55, 0x1d, 0x13] => Ok(false),
            _ if critical => Err(Error::CriticalExtension),
            _ => Ok(false),
        }
    }

    /// Whether one of the names of the certificate is the wanted one.
    fn is_named(mut names: Reader<'_>, name: Name<'_>) -> bool {
        while let Some((tag, found)) = any(&mut names) {
            let same = match (tag, name) {
                (0x82, Name::Host(host)) => matches(found.0, host),
                (0x87, Name::Address(address)) => found.0 == address,
                _ => false,
            };
            if same {
                return true;
            }
        }
        false
    }

    /// Compares host names; a star stands for exactly one label (RFC 9525
    /// section 6.3), and never for the last but one.
    fn matches(pattern: &[u8], host: &[u8]) -> bool {
        if let [b'*', rest @ ..] = pattern {
            let dot = host.iter().position(|&byte| byte == b'.');
            let parent = dot.and_then(|at| host.get(at..)).unwrap_or_default();
            let dots = rest.iter().filter(|&&byte| byte == b'.').count();
            return dots > 1 && dot != Some(0) && rest.eq_ignore_ascii_case(parent);
        }
        pattern.eq_ignore_ascii_case(host)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn times_become_seconds() {
            let cases: [(u8, &[u8], Option<u32>); 9] = [
                (0x17, b"700101000000Z", Some(0)),
                (0x17, b"000229120000Z", Some(951_825_600)),
                (0x18, b"20380119031408Z", Some(2_147_483_648)),
                (0x18, b"40960101000000Z", Some(u32::MAX)),
                // Days and hours that are none, at the end of 32 bits.
                (0x18, b"21051299999999Z", Some(u32::MAX)),
                (0x17, b"490101000000Z", Some(2_493_072_000)),
                (0x17, b"500101000000Z", Some(0)),
                (0x17, b"7001010000Z", None),
                (0x17, b"701301000000Z", None),
            ];
            for (tag, text, want) in cases {
                let mut der = [0; 17];
                der[0] = tag;
                der[1] = u8::try_from(text.len()).unwrap();
                der[2..2 + text.len()].copy_from_slice(text);
                let got = time(&mut Reader(&der[..2 + text.len()]));
                assert_eq!(got, want, "{text:?}");
            }
        }

        #[test]
        fn stars_stand_for_one_label() {
            let cases: [(&[u8], &[u8], bool); 7] = [
                (b"broker.example.net", b"broker.example.net", true),
                (b"Broker.example.NET", b"broker.example.net", true),
                (b"*.example.net", b"broker.example.net", true),
                (b"*.example.net", b"a.b.example.net", false),
                (b"*.example.net", b"example.net", false),
                (b"*.net", b"example.net", false),
                (b"*.example.net", b".example.net", false),
            ];
            for (pattern, host, want) in cases {
                assert_eq!(matches(pattern, host), want, "{pattern:?} {host:?}");
            }
        }
    }
}
