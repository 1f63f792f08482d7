//! Where the client of a WebSocket is, as proxies wrote it into its request:
//! `X-Forwarded-For`, or `Forwarded` (RFC 7239). Each proxy adds the address that it
//! was asked from at the end; what stands before the addition of the first trusted
//! one may be invented.

use core::net::{IpAddr, SocketAddr};

use dunlin_base::transport::plain_addr;
use httparse::Header;

use super::{Proxies, is_possible};

/// The header that proxies write. Only this one is looked at: the other one may be
/// passed on as the client sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForwardedHeader {
    /// `X-Forwarded-For`.
    XForwardedFor,
    /// `Forwarded`.
    Forwarded,
}

/// A `Forwarded` header is not as RFC 7239 says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MalformedHeader;

impl Proxies {
    /// The address of the client of a request that came from `peer`: the last one
    /// in the header that is no proxy's. `None`: that of the peer.
    pub(crate) fn client(
        &self,
        headers: &[Header<'_>],
        peer: IpAddr,
    ) -> Result<Option<SocketAddr>, MalformedHeader> {
        let Some(kind) = self.forwarded.filter(|_| self.trusts(peer)) else {
            return Ok(None);
        };
        let mut hops = Vec::new();
        let name = match kind {
            ForwardedHeader::XForwardedFor => "x-forwarded-for",
            ForwardedHeader::Forwarded => "forwarded",
        };
        for header in headers {
            if !header.name.eq_ignore_ascii_case(name) {
                continue;
            }
            match kind {
                ForwardedHeader::XForwardedFor => {
                    let list = header.value.split(|b| *b == b',');
                    hops.extend(list.map(|hop| address(hop.trim_ascii())));
                }
                ForwardedHeader::Forwarded => forwarded(header.value, &mut hops)?,
            }
        }
        let (mut client, mut from) = (None, peer.to_canonical());
        for hop in hops.into_iter().rev() {
            // `unknown`, or a name that means something to one proxy only.
            let Some(addr) = hop.filter(|addr| is_possible(addr.ip(), from)) else {
                break;
            };
            (client, from) = (Some(addr), addr.ip());
            if !self.trusts(addr.ip()) {
                break;
            }
        }
        Ok(client)
    }
}

/// An address with or without a port.
fn address(text: &[u8]) -> Option<SocketAddr> {
    let text = core::str::from_utf8(text).ok()?;
    let bare = || {
        let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
        let ip: IpAddr = inner.unwrap_or(text).parse().ok()?;
        Some(SocketAddr::new(ip, 0))
    };
    text.parse().ok().or_else(bare).map(plain_addr)
}

/// The `for` of each element.
fn forwarded(value: &[u8], hops: &mut Vec<Option<SocketAddr>>) -> Result<(), MalformedHeader> {
    let mut rest = value.trim_ascii();
    while !rest.is_empty() {
        let mut hop = None;
        loop {
            let (name, value, after) = pair(rest)?;
            if name.eq_ignore_ascii_case(b"for") {
                hop = address(&value);
            }
            rest = after.trim_ascii_start();
            match rest.split_first() {
                Some((b';', after)) => rest = after.trim_ascii_start(),
                Some((b',', after)) => {
                    rest = after.trim_ascii_start();
                    break;
                }
                Some(_) => return Err(MalformedHeader),
                None => break,
            }
        }
        hops.push(hop);
    }
    Ok(())
}

/// A name, its value without quotes, and what follows.
type Pair<'a> = (&'a [u8], Vec<u8>, &'a [u8]);

fn pair(text: &[u8]) -> Result<Pair<'_>, MalformedHeader> {
    let is_token = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:[]".contains(b);
    let cut = |text: &[u8]| text.iter().position(|b| !is_token(b)).unwrap_or(text.len());
    let (name, rest) = text.split_at(cut(text));
    let rest = rest.strip_prefix(b"=").ok_or(MalformedHeader)?;
    if name.is_empty() {
        return Err(MalformedHeader);
    }
    let Some(quoted) = rest.strip_prefix(b"\"") else {
        let (value, rest) = rest.split_at(cut(rest));
        return Ok((name, value.to_vec(), rest));
    };
    let (mut value, mut bytes) = (Vec::new(), quoted.iter());
    loop {
        match bytes.next().ok_or(MalformedHeader)? {
            b'"' => return Ok((name, value, bytes.as_slice())),
            b'\\' => value.push(*bytes.next().ok_or(MalformedHeader)?),
            byte => value.push(*byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(forwarded: ForwardedHeader) -> Proxies {
        Proxies {
            trusted: vec!["10.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()],
            forwarded: Some(forwarded),
            ..Proxies::default()
        }
    }

    fn client(
        proxies: &Proxies,
        lines: &[(&str, &str)],
    ) -> Result<Option<SocketAddr>, MalformedHeader> {
        let header = |(name, value): &(&'static str, &'static str)| Header {
            name,
            value: value.as_bytes(),
        };
        // Headers borrow for as long as the test runs.
        let lines: Vec<(&'static str, &'static str)> = lines
            .iter()
            .map(|(n, v)| {
                let leak = |s: &str| -> &'static str { String::from(s).leak() };
                (leak(n), leak(v))
            })
            .collect();
        let headers: Vec<_> = lines.iter().map(header).collect();
        proxies.client(&headers, "10.1.2.3".parse().unwrap())
    }

    #[test]
    fn the_last_address_that_is_no_proxys_counts() {
        let proxies = proxies(ForwardedHeader::XForwardedFor);
        for (lines, want) in [
            (&["203.0.113.5"][..], Some("203.0.113.5:0")),
            // The client wrote the first one.
            (&["127.0.0.1, 203.0.113.5"], Some("203.0.113.5:0")),
            (&["127.0.0.1", "203.0.113.5"], Some("203.0.113.5:0")),
            (&["203.0.113.5, 10.9.9.9"], Some("203.0.113.5:0")),
            (&["203.0.113.5:4711,10.9.9.9"], Some("203.0.113.5:4711")),
            (&["2001:db8::7"], Some("[2001:db8::7]:0")),
            (&["[2001:db8::7]:80"], Some("[2001:db8::7]:80")),
            (&["::ffff:203.0.113.5"], Some("203.0.113.5:0")),
            (&["10.7.7.7, 10.9.9.9"], Some("10.7.7.7:0")),
            // A client at an address of the proxies wrote the first one.
            (&["127.0.0.1, 10.7.7.7"], Some("10.7.7.7:0")),
            (&["127.0.0.1"], None),
            (&["203.0.113.5, unknown"], None),
            (&["203.0.113.5, unknown, 10.9.9.9"], Some("10.9.9.9:0")),
            (&[""], None),
            (&[], None),
        ] {
            let lines: Vec<_> = lines.iter().map(|v| ("X-Forwarded-For", *v)).collect();
            let want = want.map(|text| text.parse().unwrap());
            assert_eq!(client(&proxies, &lines), Ok(want), "{lines:?}");
        }
    }

    #[test]
    fn the_header_of_rfc_7239_is_read() {
        let proxies = proxies(ForwardedHeader::Forwarded);
        for (line, want) in [
            ("for=192.0.2.43", Ok(Some("192.0.2.43:0"))),
            (
                "for=192.0.2.60;proto=http;by=203.0.113.43",
                Ok(Some("192.0.2.60:0")),
            ),
            (
                "For=\"[2001:db8:cafe::17]:4711\"",
                Ok(Some("[2001:db8:cafe::17]:4711")),
            ),
            (
                "for=192.0.2.43, for=\"[2001:db8:cafe::17]\"",
                Ok(Some("[2001:db8:cafe::17]:0")),
            ),
            ("for=192.0.2.43 , For=10.1.1.1", Ok(Some("192.0.2.43:0"))),
            ("for=_hidden", Ok(None)),
            ("proto=https", Ok(None)),
            // The client's `Host`, as the proxy quoted it, adds no hop.
            (
                "for=192.0.2.43;host=\"x,for=6.6.6.6;a=\"",
                Ok(Some("192.0.2.43:0")),
            ),
            (
                "for=192.0.2.43;host=\"x\\\",for=6.6.6.6;a=\"",
                Ok(Some("192.0.2.43:0")),
            ),
            ("for=192.0.2.43;host=\"x", Err(MalformedHeader)),
            ("for", Err(MalformedHeader)),
            ("for=a b", Err(MalformedHeader)),
            ("=a", Err(MalformedHeader)),
        ] {
            let want = want.map(|want: Option<&str>| want.map(|text| text.parse().unwrap()));
            assert_eq!(client(&proxies, &[("Forwarded", line)]), want, "{line}");
        }
    }

    #[test]
    fn strangers_and_the_other_header_are_not_believed() {
        let proxies = proxies(ForwardedHeader::XForwardedFor);
        assert_eq!(client(&proxies, &[("Forwarded", "for=1.2.3.4")]), Ok(None));
        let header = [Header {
            name: "X-Forwarded-For",
            value: b"1.2.3.4",
        }];
        let stranger = "192.0.2.1".parse().unwrap();
        assert_eq!(proxies.client(&header, stranger), Ok(None));
        // Of a proxy on this machine, a client on it is believed.
        let here = |text: &str| {
            let header = [Header {
                name: "X-Forwarded-For",
                value: text.as_bytes(),
            }];
            proxies.client(&header, "::1".parse().unwrap())
        };
        assert_eq!(here("127.0.0.1"), Ok(Some("127.0.0.1:0".parse().unwrap())));
    }
}
