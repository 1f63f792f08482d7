//! URLs of servers that the broker asks: `https`, or `http` on this machine.

use core::net::IpAddr;

/// Longest URL.
const URL_BYTES_MAX: usize = 2048;

/// What is wrong with a URL.
///
/// # Errors
/// It is none, or what it names is asked over a connection that others read.
pub(super) fn check(url: &str) -> Result<(), String> {
    if url.len() > URL_BYTES_MAX || url.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(format!(
            "is no URL, or one of more than {URL_BYTES_MAX} bytes"
        ));
    }
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err("has a user name, which belongs elsewhere".into());
    }
    match scheme {
        _ if host(authority).is_empty() => Err("is not a URL such as https://host/path".into()),
        "https" => Ok(()),
        "http" if is_here(host(authority)) => Ok(()),
        "http" => Err("must begin with https://, because it is not on this machine".into()),
        _ => Err("must begin with https://".into()),
    }
}

/// The host in `host:port`, without the brackets of an IPv6 address.
pub(super) fn host(authority: &str) -> &str {
    match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    }
}

pub(super) fn is_here(host: &str) -> bool {
    let address = host.parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|it| it.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn only_this_machine_is_asked_in_clear() {
        for url in [
            "https://issuer.example/keys",
            "https://issuer.example:8443",
            "https://[2001:db8::1]/x",
            "http://localhost:1/x",
            "http://127.0.0.2/",
            "http://[::1]:80/",
        ] {
            assert_eq!(check(url), Ok(()), "{url}");
        }
        for url in [
            "",
            "https://",
            "https:///x",
            "http://issuer.example/",
            "http://localhost.example/",
            "http://127.0.0.1.example/",
            "http://localhost@issuer.example/",
            "https://user:password@issuer.example/",
            "ftp://localhost/",
            "file:///etc/passwd",
            "https://issuer.example/a b",
            "https://issuer.example/\r\nHost: x",
        ] {
            assert!(check(url).is_err(), "{url}");
        }
    }
}
