//! Who may ask: names of this machine, pages of this server, bearers of a token. Wrong
//! tokens are counted by address, so that a search for one is noticed and costs little.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use dunlin_net::http::{is_local_name, name_of};
use hyper::header::{AUTHORIZATION, HOST, ORIGIN};
use hyper::{HeaderMap, StatusCode, Uri};

use super::problem::Problem;
use crate::control::audit::Who;
use crate::control::plane::Plane;

/// Wrong tokens of an address in [`WINDOW`] that are answered as such.
const WRONG_MAX: u32 = 10;

/// How long wrong tokens of an address are counted.
const WINDOW: Duration = Duration::from_secs(60);

/// Addresses with wrong tokens that are remembered.
const ADDRESSES_MAX: usize = 1024;

/// Longest token that is looked at.
const TOKEN_BYTES_MAX: usize = 256;

/// Decides who may ask.
#[derive(Debug)]
pub(super) struct Gate {
    /// Names of this machine, besides `localhost` and addresses.
    hosts: Vec<String>,
    wrong: Mutex<HashMap<IpAddr, Wrong>>,
}

/// Wrong tokens of an address.
#[derive(Clone, Copy, Debug)]
struct Wrong {
    since: Instant,
    count: u32,
}

impl Gate {
    pub(super) fn new(hosts: Vec<String>) -> Self {
        let wrong = Mutex::default();
        Self { hosts, wrong }
    }

    /// Whether the request was meant for this server, and comes from no page of another.
    pub(super) fn expect(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        let mut hosts = headers.get_all(HOST).iter();
        let host = match (hosts.next(), hosts.next()) {
            (Some(host), None) => host.to_str().ok(),
            _ => None,
        };
        let Some(host) = host else {
            let why = "a request has one `Host`";
            return Err(Problem::new(StatusCode::BAD_REQUEST, "bad-request", why));
        };
        let named = uri.authority().map(|authority| authority.as_str());
        if !self.is_known(host) || named.is_some_and(|named| named != host) {
            let why = "this machine is not known by that name: see `control.http.hosts`";
            let status = StatusCode::MISDIRECTED_REQUEST;
            return Err(Problem::new(status, "misdirected", why));
        }
        match headers
            .get_all(ORIGIN)
            .iter()
            .all(|it| it.to_str().is_ok_and(|it| is_own(it, host)))
        {
            true => Ok(()),
            false => {
                let why = "web pages of other sites may not ask";
                Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", why))
            }
        }
    }

    /// Whether a client calls this machine by a name that is its own. Any other is of a
    /// web page whose name was pointed here (DNS rebinding).
    fn is_known(&self, host: &str) -> bool {
        let name = name_of(host);
        let listed = |known: &String| known.eq_ignore_ascii_case(name);
        is_local_name(host) || self.hosts.iter().any(listed)
    }

    /// Whose token came with a request.
    pub(super) fn admit(
        &self,
        plane: &Plane,
        peer: IpAddr,
        headers: &HeaderMap,
    ) -> Result<Who, Problem> {
        let refusal = |why: &str| Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", why);
        let Some(token) = token(headers) else {
            let why = "send a token: Authorization: Bearer TOKEN \
                       (`dunlin ctl token add NAME --role read` makes one)";
            return Err(refusal(why));
        };
        if let Some(bearer) = plane.bearer(token) {
            return Ok(Who {
                door: "http",
                name: bearer.name,
                role: bearer.role,
            });
        }
        match self.note_wrong(peer, Instant::now()) {
            Ok(count) => {
                if count == 1 {
                    tracing::warn!(%peer, "a wrong token at the HTTP door");
                }
                Err(refusal("the token is not known"))
            }
            Err(left) => {
                let seconds = u32::try_from(left.as_secs()).unwrap_or(u32::MAX);
                let why = "too many wrong tokens from this address";
                Err(Problem::busy(why).after(seconds.saturating_add(1)))
            }
        }
    }

    /// Counts a wrong token: how many there are of this address, or how long it has to
    /// wait until one is answered again.
    fn note_wrong(&self, peer: IpAddr, now: Instant) -> Result<u32, Duration> {
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        wrong.retain(|_, it| now.saturating_duration_since(it.since) < WINDOW);
        let network = network(peer);
        if wrong.len() >= ADDRESSES_MAX && !wrong.contains_key(&network) {
            let oldest = wrong.iter().min_by_key(|(_, it)| it.since);
            if let Some(oldest) = oldest.map(|(address, _)| *address) {
                wrong.remove(&oldest);
            }
        }
        let first = Wrong {
            since: now,
            count: 0,
        };
        let it = wrong.entry(network).or_insert(first);
        it.count = it.count.saturating_add(1);
        match it.count <= WRONG_MAX {
            true => Ok(it.count),
            false => Err((it.since + WINDOW).saturating_duration_since(now)),
        }
    }
}

/// What one holder of addresses has: an IPv4 address, or a /64 of IPv6.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(ip) => {
            let bits = ip.to_bits() & (u128::MAX << 64);
            IpAddr::V6(bits.into())
        }
        ip => ip,
    }
}

/// Whether a page is one of this server, as the request names it.
fn is_own(origin: &str, host: &str) -> bool {
    let authority = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

fn token(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (value, None) = (values.next()?, values.next()) else {
        return None;
    };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    let is_one = scheme.eq_ignore_ascii_case("bearer")
        && !token.is_empty()
        && token.len() <= TOKEN_BYTES_MAX;
    is_one.then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(headers: &[(&str, &str)]) -> StatusCode {
        let gate = Gate::new(vec!["Broker.example".to_owned()]);
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: hyper::header::HeaderName = name.parse().expect("a name");
            map.append(name, value.parse().expect("a value"));
        }
        let outcome = gate.expect(&Uri::from_static("/"), &map);
        outcome.map_or_else(|problem| problem.status, |()| StatusCode::OK)
    }

    #[test]
    fn strangers_names_and_pages_are_refused() {
        for (headers, status) in [
            (&[("host", "localhost:8085")][..], 200),
            (&[("host", "127.0.0.1")], 200),
            (&[("host", "[::1]:8085")], 200),
            (&[("host", "broker.EXAMPLE:1")], 200),
            (&[("host", "evil.example")], 421),
            (&[], 400),
            (&[("host", "localhost"), ("host", "localhost")], 400),
            (
                &[("host", "localhost:1"), ("origin", "http://localhost:1")],
                200,
            ),
            (
                &[("host", "localhost:1"), ("origin", "https://localhost:1")],
                200,
            ),
            (
                &[("host", "localhost:1"), ("origin", "http://localhost:2")],
                403,
            ),
            (
                &[("host", "localhost:1"), ("origin", "http://evil.example")],
                403,
            ),
            (&[("host", "localhost:1"), ("origin", "null")], 403),
        ] {
            assert_eq!(expected(headers).as_u16(), status, "{headers:?}");
        }
        let gate = Gate::new(Vec::new());
        let mut map = HeaderMap::new();
        map.append("host", "localhost".parse().expect("a value"));
        let uri = Uri::from_static("http://evil.example/");
        let problem = gate.expect(&uri, &map).expect_err("another name");
        assert_eq!(problem.status, StatusCode::MISDIRECTED_REQUEST);
    }

    #[test]
    fn a_token_is_one_header_of_its_scheme() {
        for (values, found) in [
            (&["Bearer abc"][..], Some("abc")),
            (&["bearer  abc "], Some("abc")),
            (&["Basic abc"], None),
            (&["Bearer"], None),
            (&["Bearer "], None),
            (&["Bearer a", "Bearer b"], None),
            (&[], None),
        ] {
            let mut map = HeaderMap::new();
            for value in values {
                map.append(AUTHORIZATION, value.parse().expect("a value"));
            }
            assert_eq!(token(&map), found, "{values:?}");
        }
        let mut map = HeaderMap::new();
        let long = format!("Bearer {}", "x".repeat(TOKEN_BYTES_MAX + 1));
        map.append(AUTHORIZATION, long.parse().expect("a value"));
        assert_eq!(token(&map), None);
    }

    #[test]
    fn wrong_tokens_of_an_address_are_counted_for_a_while() {
        let (gate, now) = (Gate::new(Vec::new()), Instant::now());
        let peer = IpAddr::from([192, 0, 2, 1]);
        for count in 1..=WRONG_MAX {
            assert_eq!(gate.note_wrong(peer, now), Ok(count));
        }
        assert_eq!(gate.note_wrong(peer, now), Err(WINDOW));
        assert_eq!(gate.note_wrong(IpAddr::from([192, 0, 2, 2]), now), Ok(1));
        assert_eq!(gate.note_wrong(peer, now + WINDOW), Ok(1));
        let address = |at: u32| IpAddr::from(at.to_be_bytes());
        for at in 0..2 * ADDRESSES_MAX as u32 {
            let _ = gate.note_wrong(address(at), now + WINDOW);
        }
        assert_eq!(gate.wrong.lock().expect("free").len(), ADDRESSES_MAX);
        let one: IpAddr = "2001:db8::1".parse().expect("an address");
        let other: IpAddr = "2001:db8::ffff:2".parse().expect("an address");
        assert_eq!(network(one), network(other));
    }
}
