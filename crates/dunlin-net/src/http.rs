//! What the head of an HTTP message must keep to, so that no proxy and no
//! browser reads it otherwise than this side does (RFC 9112 sections 2.2 and
//! 6.1), and which names a request may call this machine by.

use core::net::{IpAddr, SocketAddr};

use httparse::Header;

/// Headers that two readers would understand differently if there were two.
const SINGLE: [&str; 6] = [
    "host",
    "origin",
    "content-length",
    "transfer-encoding",
    "sec-websocket-key",
    "sec-websocket-version",
];

/// Whether a head can be understood in one way only: `head` is its bytes up to
/// and including the empty line.
///
/// # Errors
/// What is wrong with it.
pub fn check_head(head: &[u8], headers: &[Header<'_>]) -> Result<(), &'static str> {
    let mut before = 0;
    for byte in head {
        if (*byte == b'\n') != (before == b'\r') {
            return Err("a line does not end with CR LF");
        }
        before = *byte;
    }
    let count = |name: &str| {
        let named = |h: &&Header<'_>| h.name.eq_ignore_ascii_case(name);
        headers.iter().filter(named).count()
    };
    if SINGLE.iter().any(|name| count(name) > 1) {
        return Err("a header occurs twice that must not");
    }
    if count("transfer-encoding") + count("content-length") > 1 {
        return Err("the body is framed in two ways");
    }
    Ok(())
}

/// Whether a head announces a body.
#[must_use]
pub fn has_body(headers: &[Header<'_>]) -> bool {
    headers.iter().any(|header| {
        header.name.eq_ignore_ascii_case("transfer-encoding")
            || header.name.eq_ignore_ascii_case("content-length")
                && header.value.trim_ascii() != b"0"
    })
}

/// The value of a header that occurs once.
#[must_use]
pub fn value<'a>(headers: &[Header<'a>], name: &str) -> Option<&'a str> {
    let mut found = headers.iter().filter(|h| h.name.eq_ignore_ascii_case(name));
    let value = core::str::from_utf8(found.next()?.value).ok()?;
    found.next().is_none().then(|| value.trim())
}

/// Whether a `Host`, with or without a port, is a name that only this machine's
/// operator can give: `localhost` or an address. Any other can be pointed at
/// this machine by a stranger's DNS server (DNS rebinding).
#[must_use]
pub fn is_local_name(host: &str) -> bool {
    let name = name_of(host);
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok()
        || host.parse::<SocketAddr>().is_ok()
}

/// A `Host` without its port.
#[must_use]
pub fn name_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.contains(':') => {
            name
        }
        Some((name, _)) if name.ends_with(']') => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_localhost_are_local_names() {
        for host in [
            "localhost",
            "LocalHost:80",
            "127.0.0.1",
            "192.0.2.1:9464",
            "[::1]",
            "[2001:db8::1]:80",
        ] {
            assert!(is_local_name(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "127.0.0.1.evil.example:80",
            "localhost.evil:1",
            ":80",
        ] {
            assert!(!is_local_name(host), "{host}");
        }
        assert_eq!(name_of("broker.example:80"), "broker.example");
    }
}
