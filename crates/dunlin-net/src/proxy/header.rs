//! The header that a proxy sends before the bytes of a client: the PROXY protocol,
//! versions 1 and 2 (HAProxy's proxy-protocol.txt). Bytes in, values out; no socket.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::Bytes;
use dunlin_base::Text;

/// Bytes of a header at most. Those of version 1 have 107 at most.
pub const HEADER_BYTES_MAX: usize = 4096;

/// Bytes of a header of version 1 at most, with its end (section 2.1).
const V1_BYTES_MAX: usize = 107;
const V1_PREFIX: &[u8] = b"PROXY ";

/// The signature of version 2 (section 2.2).
const V2_PREFIX: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes before the addresses.
const V2_FIXED_BYTES: usize = 16;

/// `PP2_TYPE_SSL` and `PP2_SUBTYPE_SSL_CN` (section 2.2.6).
const TLV_SSL: u8 = 0x20;
const TLV_SSL_CN: u8 = 0x22;
/// `PP2_CLIENT_CERT_CONN` and `PP2_CLIENT_CERT_SESS`: the client had a certificate.
const CLIENT_CERT: u8 = 0x02 | 0x04;

/// Which versions of the header are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProxyVersions {
    /// Text.
    V1,
    /// Binary.
    V2,
    /// Both.
    Any,
}

/// What a header says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Header {
    /// Its bytes.
    pub len: usize,
    /// Where the client is. `None`: the connection is the proxy's own, or it does not
    /// know (`LOCAL`, `UNKNOWN`).
    pub source: Option<SocketAddr>,
    /// Common name in the client's certificate, which the proxy has verified.
    pub common_name: Option<Text>,
}

/// Why that is no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// It begins otherwise.
    #[error("the connection does not begin with a PROXY header of this version")]
    Absent,
    /// It is longer than [`HEADER_BYTES_MAX`].
    #[error("the PROXY header is too long")]
    TooLong,
    /// It begins as one and is none.
    #[error("the PROXY header is malformed: {0}")]
    Malformed(&'static str),
}

use HeaderError::{Absent, Malformed, TooLong};

impl Header {
    /// Reads the header at the beginning of `bytes`; `None`: the rest is to come.
    ///
    /// # Errors
    /// That is no header of these versions.
    pub fn parse(bytes: &[u8], versions: ProxyVersions) -> Result<Option<Self>, HeaderError> {
        let begins = |prefix: &[u8]| bytes.iter().zip(prefix).all(|(a, b)| a == b);
        let (v1, v2) = match versions {
            ProxyVersions::V1 => (true, false),
            ProxyVersions::V2 => (false, true),
            ProxyVersions::Any => (true, true),
        };
        if v1 && begins(V1_PREFIX) {
            parse_v1(bytes)
        } else if v2 && begins(V2_PREFIX) {
            parse_v2(bytes)
        } else {
            Err(Absent)
        }
    }
}

fn parse_v1(bytes: &[u8]) -> Result<Option<Header>, HeaderError> {
    let start = bytes.get(..V1_BYTES_MAX).unwrap_or(bytes);
    let Some(end) = start.windows(2).position(|two| two == b"\r\n") else {
        let whole = start.len() == V1_BYTES_MAX;
        return if whole { Err(TooLong) } else { Ok(None) };
    };
    let line = start.get(..end).unwrap_or_default();
    let line = core::str::from_utf8(line).map_err(|_| Malformed("it is no text"))?;
    let mut words = line.split(' ').skip(1);
    let source = match words.next() {
        // What follows is ignored.
        Some("UNKNOWN") => None,
        Some(family @ ("TCP4" | "TCP6")) => {
            let words = [(); 4].map(|()| words.next().unwrap_or_default());
            Some(v1_source(family, words)?)
        }
        _ => return Err(Malformed("the protocol is not known")),
    };
    if source.is_some() && words.next().is_some() {
        return Err(Malformed("there are too many words"));
    }
    Ok(Some(Header {
        len: end + 2,
        source,
        common_name: None,
    }))
}

/// The client's address among both addresses and ports.
fn v1_source(family: &str, words: [&str; 4]) -> Result<SocketAddr, HeaderError> {
    let [from, to, from_port, to_port] = words;
    let address = |text: &str| -> Option<IpAddr> {
        match family {
            "TCP4" => text.parse::<Ipv4Addr>().ok().map(IpAddr::from),
            _ => text.parse::<Ipv6Addr>().ok().map(IpAddr::from),
        }
    };
    let port = |text: &str| {
        let is_plain = text.bytes().all(|b| b.is_ascii_digit());
        let is_plain = is_plain && (text == "0" || !text.starts_with('0'));
        is_plain.then(|| text.parse::<u16>().ok()).flatten()
    };
    let source = address(from).zip(port(from_port));
    let target = address(to).zip(port(to_port));
    match (source, target) {
        (Some((ip, port)), Some(_)) => Ok(SocketAddr::new(ip, port)),
        _ => Err(Malformed("an address or a port is wrong")),
    }
}

fn parse_v2(bytes: &[u8]) -> Result<Option<Header>, HeaderError> {
    let Some((fixed, rest)) = bytes.split_first_chunk::<V2_FIXED_BYTES>() else {
        return Ok(None);
    };
    let [.., version_command, family, high, low] = *fixed;
    let len = usize::from(u16::from_be_bytes([high, low]));
    let is_local = match version_command {
        0x20 => true,
        0x21 => false,
        _ => return Err(Malformed("the version or the command is not known")),
    };
    if V2_FIXED_BYTES + len > HEADER_BYTES_MAX {
        return Err(TooLong);
    }
    let Some(body) = rest.get(..len) else {
        return Ok(None);
    };
    let mut header = Header {
        len: V2_FIXED_BYTES + len,
        source: None,
        common_name: None,
    };
    if is_local {
        return Ok(Some(header));
    }
    let (addresses, source): (usize, Source) = match family {
        0x00 => return Ok(Some(header)),
        0x11 => (12, v2_source_v4),
        0x21 => (36, v2_source_v6),
        // Datagrams and Unix sockets: no address of a client of TCP.
        0x12 => (12, |_| None),
        0x22 => (36, |_| None),
        0x31 | 0x32 => (216, |_| None),
        _ => return Err(Malformed("the family or the protocol is not known")),
    };
    let (addresses, tlvs) = body
        .split_at_checked(addresses)
        .ok_or(Malformed("its length is too small for the addresses"))?;
    header.source = source(addresses);
    if let Some(ssl) = find(tlvs, TLV_SSL)? {
        header.common_name = common_name(ssl)?;
    }
    Ok(Some(header))
}

/// Reads the client's address, where there is one.
type Source = fn(&[u8]) -> Option<SocketAddr>;

fn v2_source_v4(addresses: &[u8]) -> Option<SocketAddr> {
    let (ip, rest) = addresses.split_first_chunk::<4>()?;
    let (_, ports) = rest.split_first_chunk::<4>()?;
    let (port, _) = ports.split_first_chunk::<2>()?;
    Some((Ipv4Addr::from(*ip), u16::from_be_bytes(*port)).into())
}

fn v2_source_v6(addresses: &[u8]) -> Option<SocketAddr> {
    let (ip, rest) = addresses.split_first_chunk::<16>()?;
    let (_, ports) = rest.split_first_chunk::<16>()?;
    let (port, _) = ports.split_first_chunk::<2>()?;
    Some((Ipv6Addr::from(*ip), u16::from_be_bytes(*port)).into())
}

/// The value of the first entry of a type. All of them are looked at.
fn find(mut tlvs: &[u8], wanted: u8) -> Result<Option<&[u8]>, HeaderError> {
    const CUT: HeaderError = Malformed("an entry is longer than the header");
    let mut found = None;
    while !tlvs.is_empty() {
        let ([kind, high, low], rest) = tlvs.split_first_chunk::<3>().ok_or(CUT)?;
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        let (value, rest) = rest.split_at_checked(len).ok_or(CUT)?;
        if *kind == wanted && found.is_none() {
            found = Some(value);
        }
        tlvs = rest;
    }
    Ok(found)
}

/// The name in a certificate that the proxy has verified.
fn common_name(ssl: &[u8]) -> Result<Option<Text>, HeaderError> {
    let cut = Malformed("the entry about TLS is too short");
    let ([client, verify @ ..], entries) = ssl.split_first_chunk::<5>().ok_or(cut)?;
    let name = find(entries, TLV_SSL_CN)?;
    if client & CLIENT_CERT == 0 || *verify != [0; 4] {
        return Ok(None);
    }
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let name = Text::from_utf8(Bytes::copy_from_slice(name));
    name.map(Some)
        .map_err(|_| Malformed("the common name is no text"))
}

#[cfg(test)]
#[path = "../../../../fuzz/bodies/proxy.rs"]
mod body;

#[cfg(test)]
mod tests {
    use super::*;

    fn any(bytes: &[u8]) -> Result<Option<Header>, HeaderError> {
        Header::parse(bytes, ProxyVersions::Any)
    }

    /// What the header says, with a byte behind it, however it is cut.
    fn whole(bytes: &[u8]) -> Header {
        for cut in 0..bytes.len() {
            assert_eq!(any(&bytes[..cut]), Ok(None), "{cut} of {bytes:02x?}");
        }
        let header = any(bytes).unwrap().unwrap();
        assert_eq!(header.len, bytes.len());
        let more = [bytes, b"x"].concat();
        assert_eq!(any(&more).unwrap().unwrap(), header);
        header
    }

    fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let len = u16::try_from(body.len()).unwrap().to_be_bytes();
        [V2_PREFIX, &[command, family], &len, body].concat()
    }

    fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
        let len = u16::try_from(value.len()).unwrap().to_be_bytes();
        [&[kind], &len[..], value].concat()
    }

    const V4: [u8; 12] = [192, 0, 2, 1, 192, 0, 2, 2, 0x1f, 0x90, 0x07, 0x5b];

    #[test]
    fn the_examples_of_the_specification_are_read() {
        // Section 2.1: an example, and the longest line of each family.
        let cases: [(&str, Option<&str>); 5] = [
            (
                "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n",
                Some("192.168.0.1:56324"),
            ),
            (
                "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n",
                Some("255.255.255.255:65535"),
            ),
            (
                "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff \
                 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
                Some("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"),
            ),
            ("PROXY UNKNOWN\r\n", None),
            (
                "PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff \
                 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
                None,
            ),
        ];
        for (line, source) in cases {
            let header = whole(line.as_bytes());
            assert_eq!(header.source, source.map(|text| text.parse().unwrap()));
        }
        assert_eq!(cases[4].0.len(), V1_BYTES_MAX);
    }

    #[test]
    fn lines_that_are_no_header_are_refused() {
        for line in [
            "PROXY TCP4 192.168.0.1 192.168.0.11 56324\r\n",
            "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443 1\r\n",
            "PROXY TCP4 192.168.0.1  192.168.0.11 56324 443\r\n",
            "PROXY TCP4 192.168.0.01 192.168.0.11 56324 443\r\n",
            "PROXY TCP4 192.168.0.1 192.168.0.11 056324 443\r\n",
            "PROXY TCP4 192.168.0.1 192.168.0.11 65536 443\r\n",
            "PROXY TCP4 192.168.0.1 192.168.0.11 +5 443\r\n",
            "PROXY TCP4 ::1 ::1 1 2\r\n",
            "PROXY TCP6 192.168.0.1 192.168.0.11 1 2\r\n",
            "PROXY UDP4 192.168.0.1 192.168.0.11 1 2\r\n",
            "PROXY \r\n",
            "PROXY TCP4\n192.168.0.1 192.168.0.11 1 2\r\n",
        ] {
            let result = any(line.as_bytes());
            assert!(matches!(result, Err(Malformed(_))), "{line}: {result:?}");
        }
        let long = format!("PROXY UNKNOWN {}", "x".repeat(V1_BYTES_MAX));
        assert_eq!(any(long.as_bytes()), Err(TooLong));
        for other in [
            &b"proxy TCP4"[..],
            b"GET / HTTP/1.1",
            b"\x10\x0c",
            b"\r\n\r\n\r",
        ] {
            assert_eq!(any(other), Err(Absent));
        }
    }

    #[test]
    fn binary_headers_say_where_the_client_is() {
        let header = whole(&v2(0x21, 0x11, &V4));
        assert_eq!(header.source, Some("192.0.2.1:8080".parse().unwrap()));
        let mut v6 = [0; 36];
        v6[..16].copy_from_slice(&"2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
        v6[32..34].copy_from_slice(&8080u16.to_be_bytes());
        let header = whole(&v2(0x21, 0x21, &v6));
        assert_eq!(header.source, Some("[2001:db8::1]:8080".parse().unwrap()));
        // LOCAL, with any family; UNSPEC; datagrams; Unix sockets.
        for (command, family, body) in [
            (0x20, 0x00, &[][..]),
            (0x20, 0x11, &V4),
            (0x20, 0xff, b"anything"),
            (0x21, 0x00, b"ignored"),
            (0x21, 0x12, &V4),
            (0x21, 0x22, &v6),
            (0x21, 0x31, &[0; 216]),
        ] {
            assert_eq!(whole(&v2(command, family, body)).source, None);
        }
    }

    #[test]
    fn binary_headers_that_are_wrong_are_refused() {
        for (command, family, body) in [
            (0x11, 0x11, &V4[..]),
            (0x22, 0x11, &V4),
            (0x21, 0x10, &V4),
            (0x21, 0x13, &V4),
            (0x21, 0x41, &V4),
            (0x21, 0x11, &V4[..11]),
            (0x21, 0x21, &V4),
            (0x21, 0x31, &V4),
            (0x21, 0x11, &[&V4[..], &[4, 0]].concat()),
            (0x21, 0x11, &[&V4[..], &[4, 0, 2, 0]].concat()),
            (
                0x21,
                0x11,
                &[&V4[..], &tlv(TLV_SSL, &[1, 0, 0, 0])].concat(),
            ),
        ] {
            let result = any(&v2(command, family, body));
            assert!(matches!(result, Err(Malformed(_))), "{body:?}: {result:?}");
        }
        let long = v2(0x21, 0x00, &[0; HEADER_BYTES_MAX]);
        assert_eq!(any(&long[..V2_FIXED_BYTES]), Err(TooLong));
    }

    #[test]
    fn the_name_of_a_verified_certificate_is_read() {
        let name = |client: u8, verify: u8, value: &[u8]| {
            let entries = [tlv(0x21, b"TLSv1.3"), tlv(TLV_SSL_CN, value)].concat();
            let ssl = [&[client, 0, 0, 0, verify], &entries[..]].concat();
            let tlvs = [tlv(0x04, &[0; 7]), tlv(TLV_SSL, &ssl), tlv(0x05, b"id")].concat();
            any(&v2(0x21, 0x11, &[&V4[..], &tlvs].concat()))
        };
        let text = |header: Result<Option<Header>, _>| header.unwrap().unwrap().common_name;
        for client in [0x03, 0x05, 0x07] {
            assert_eq!(text(name(client, 0, b"sensor")).unwrap(), "sensor");
        }
        assert_eq!(text(name(0x01, 0, b"sensor")), None, "no certificate");
        assert_eq!(text(name(0x03, 1, b"sensor")), None, "not verified");
        assert_eq!(text(name(0x03, 0, b"")), None);
        assert!(name(0x03, 0, b"\xff").is_err());
    }

    #[test]
    fn the_corpus_of_the_fuzz_target_is_replayed_with_changes() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/proxy");
        let mut count = 0;
        for seed in std::fs::read_dir(corpus).unwrap() {
            let seed = std::fs::read(seed.unwrap().path()).unwrap();
            for at in 0..seed.len() {
                body::run(&seed[..at]);
                for byte in [0, 1, 0x0a, 0x0d, 0x20, 0x7f, 0xff, seed[at] ^ 1] {
                    let mut altered = seed.clone();
                    altered[at] = byte;
                    body::run(&altered);
                }
            }
            body::run(&seed);
            count += 1;
        }
        assert!(count >= 9);
    }

    #[test]
    fn only_the_version_that_is_wanted_is_taken() {
        let (line, binary) = (&b"PROXY UNKNOWN\r\n"[..], v2(0x20, 0, &[]));
        assert!(Header::parse(line, ProxyVersions::V1).is_ok());
        assert_eq!(Header::parse(line, ProxyVersions::V2), Err(Absent));
        assert!(Header::parse(&binary, ProxyVersions::V2).is_ok());
        assert_eq!(Header::parse(&binary, ProxyVersions::V1), Err(Absent));
    }
}
