//! The HTTP upgrade that begins a WebSocket (RFC 6455 section 4), strict on
//! both sides and bounded in size; its time is bounded by the connection.

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dunlin_base::Text;
use sha1::{Digest, Sha1};

use super::WsFailure;
use crate::Origins;
use crate::config::Protocols;
use crate::http::{check_head, has_body, is_local_name, value};
use crate::proxy::{MalformedHeader, Proxies};

/// Header lines at most.
const HEADERS_MAX: usize = 48;
/// Suffix of the key that is hashed (section 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// An upgrade that is under way.
#[derive(Debug)]
pub(super) struct Upgrade {
    side: Side,
    /// Subprotocols that this side speaks, by preference.
    protocols: Protocols,
    /// The one that was agreed on.
    agreed: Text,
    /// Where the client is, as a trusted proxy wrote it.
    client: Option<SocketAddr>,
    received: Vec<u8>,
    bytes_max: usize,
}

#[derive(Debug)]
enum Side {
    Server(Place),
    /// The value of `Sec-WebSocket-Accept` that proves that the server
    /// understood.
    Client {
        accept: String,
    },
}

/// Where a server's WebSocket is, and who may come.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) path: Arc<str>,
    pub(crate) origins: Origins,
    pub(crate) proxies: Option<Arc<Proxies>>,
}

/// What a good request says.
struct Accepted {
    /// Length of the head.
    head: usize,
    /// The value of `Sec-WebSocket-Accept`.
    accept: String,
    /// The first of our subprotocols that is offered.
    agreed: Text,
    client: Option<SocketAddr>,
}

/// A status line and the headers that explain it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refusal {
    status: &'static str,
    header: &'static str,
    why: &'static str,
}

impl Refusal {
    const fn new(status: &'static str, why: &'static str) -> Self {
        Self {
            status,
            header: "",
            why,
        }
    }
}

const TOO_LARGE: Refusal = Refusal::new(
    "431 Request Header Fields Too Large",
    "the request is too long",
);
const MALFORMED: Refusal = Refusal::new("400 Bad Request", "the request is malformed");
const NO_HOST: Refusal = Refusal::new("400 Bad Request", "the Host header is missing");
const BODY: Refusal = Refusal::new(
    "400 Bad Request",
    "a request with a body begins no WebSocket",
);
const FOREIGN: Refusal = Refusal::new(
    "403 Forbidden",
    "pages of this origin may not connect: see `origins` of the listener",
);
const BAD_FORWARDED: Refusal = Refusal::new("400 Bad Request", "the Forwarded header is malformed");
const BAD_KEY: Refusal = Refusal::new("400 Bad Request", "Sec-WebSocket-Key is not 16 bytes");
const NO_PROTOCOL: Refusal = Refusal::new("400 Bad Request", "no subprotocol in common");
const NOT_FOUND: Refusal = Refusal::new("404 Not Found", "no WebSocket is at this path");
const NOT_GET: Refusal = Refusal {
    status: "405 Method Not Allowed",
    header: "Allow: GET\r\n",
    why: "only GET begins a WebSocket",
};
const NOT_UPGRADE: Refusal = Refusal {
    status: "426 Upgrade Required",
    header: "Upgrade: websocket\r\n",
    why: "this is a WebSocket endpoint",
};
const BAD_VERSION: Refusal = Refusal {
    status: "426 Upgrade Required",
    header: "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
    why: "only version 13 is spoken",
};

impl Upgrade {
    pub(super) const fn server(at: Place, protocols: Protocols, bytes_max: usize) -> Self {
        Self {
            side: Side::Server(at),
            protocols,
            agreed: Text::new(),
            client: None,
            received: Vec::new(),
            bytes_max,
        }
    }

    /// A client's upgrade and its request.
    pub(super) fn client(
        host: &str,
        path: &str,
        key: [u8; 16],
        protocols: Protocols,
        bytes_max: usize,
    ) -> (Self, String) {
        let key = STANDARD.encode(key);
        let names: Vec<&str> = protocols.iter().map(Text::as_str).collect();
        let names = names.join(", ");
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\n\
             Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: {names}\r\n\r\n"
        );
        let upgrade = Self {
            side: Side::Client {
                accept: accept_of(&key),
            },
            protocols,
            agreed: Text::new(),
            client: None,
            received: Vec::new(),
            bytes_max,
        };
        (upgrade, request)
    }

    /// The subprotocol that was agreed on.
    pub(super) fn take_protocol(&mut self) -> Text {
        core::mem::take(&mut self.agreed)
    }

    /// Where the client is, if a trusted proxy wrote it into the request.
    pub(super) const fn source(&self) -> Option<SocketAddr> {
        self.client
    }

    /// Whether the request may say where the client is.
    pub(super) fn names_client(&self) -> bool {
        match &self.side {
            Side::Server(at) => at.proxies.as_ref().is_some_and(|it| it.forwarded.is_some()),
            Side::Client { .. } => false,
        }
    }

    /// Takes received bytes of `peer`. Once complete, returns those behind the head.
    ///
    /// # Errors
    /// The upgrade is refused; a server's refusal is in `answer`.
    pub(super) fn input(
        &mut self,
        data: &[u8],
        peer: IpAddr,
        answer: &mut Vec<u8>,
    ) -> Result<Option<Vec<u8>>, WsFailure> {
        self.received.extend_from_slice(data);
        let head = match &self.side {
            Side::Server(at) => match check_request(&self.received, at, peer, &self.protocols) {
                Ok(Some(Accepted {
                    head,
                    accept,
                    agreed,
                    client,
                })) => {
                    answer.extend_from_slice(
                        format!(
                            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                             Connection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\
                             Sec-WebSocket-Protocol: {agreed}\r\n\r\n"
                        )
                        .as_bytes(),
                    );
                    self.agreed = agreed;
                    self.client = client;
                    Some(head)
                }
                Ok(None) if self.received.len() > self.bytes_max => {
                    return Err(refuse(TOO_LARGE, answer));
                }
                Ok(None) => None,
                Err(refusal) => return Err(refuse(refusal, answer)),
            },
            Side::Client { accept } => {
                let checked = check_response(&self.received, accept, &self.protocols);
                let head = checked.map_err(WsFailure::Upgrade)?.map(|(head, agreed)| {
                    self.agreed = agreed;
                    head
                });
                if head.is_none() && self.received.len() > self.bytes_max {
                    return Err(WsFailure::Upgrade("the server's answer is too long".into()));
                }
                head
            }
        };
        Ok(head.map(|head| {
            let mut rest = core::mem::take(&mut self.received);
            rest.drain(..head.min(rest.len()));
            rest
        }))
    }
}

fn refuse(refusal: Refusal, answer: &mut Vec<u8>) -> WsFailure {
    let Refusal {
        status,
        header,
        why,
    } = refusal;
    let body = format!("{why}\n");
    let head = format!(
        "HTTP/1.1 {status}\r\n{header}Connection: close\r\nContent-Type: text/plain\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    answer.extend_from_slice(head.as_bytes());
    WsFailure::Upgrade(format!("upgrade refused ({status}): {why}"))
}

/// What a good request says; `None`: the rest is to come.
fn check_request(
    received: &[u8],
    at: &Place,
    peer: IpAddr,
    protocols: &[Text],
) -> Result<Option<Accepted>, Refusal> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let head = match request.parse(received) {
        Ok(httparse::Status::Complete(head)) => head,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(TOO_LARGE),
        Err(_) => return Err(MALFORMED),
    };
    if request.method != Some("GET") {
        return Err(NOT_GET);
    }
    if request.version != Some(1) {
        return Err(MALFORMED);
    }
    let headers: &[httparse::Header<'_>] = request.headers;
    let whole = received.get(..head).unwrap_or_default();
    check_head(whole, headers).map_err(|why| Refusal::new("400 Bad Request", why))?;
    if has_body(headers) {
        return Err(BODY);
    }
    let target = request.path.unwrap_or_default();
    if target.split('?').next() != Some(&*at.path) {
        return Err(NOT_FOUND);
    }
    let host = value(headers, "host").filter(|host| !host.is_empty());
    let host = host.ok_or(NO_HOST)?;
    let client = match &at.proxies {
        Some(proxies) => proxies.client(headers, peer),
        None => Ok(None),
    };
    let client = client.map_err(|MalformedHeader| BAD_FORWARDED)?;
    let origins = at.origins.of(client.map_or(peer, |addr| addr.ip()));
    if let Some(origins) = origins
        && headers
            .iter()
            .any(|h| h.name.eq_ignore_ascii_case("origin"))
        && !value(headers, "origin").is_some_and(|origin| is_allowed(origin, host, &origins))
    {
        return Err(FOREIGN);
    }
    if !has_token(headers, "upgrade", "websocket") || !has_token(headers, "connection", "upgrade") {
        return Err(NOT_UPGRADE);
    }
    if value(headers, "sec-websocket-version") != Some("13") {
        return Err(BAD_VERSION);
    }
    let key = value(headers, "sec-websocket-key").ok_or(BAD_KEY)?;
    if STANDARD.decode(key).map(|k| k.len()) != Ok(16) {
        return Err(BAD_KEY);
    }
    let offered = |name: &&Text| has_token(headers, "sec-websocket-protocol", name);
    let agreed = protocols.iter().find(offered).ok_or(NO_PROTOCOL)?;
    Ok(Some(Accepted {
        head,
        accept: accept_of(key),
        agreed: agreed.clone(),
        client,
    }))
}

/// Whether pages of an origin may connect: it is listed, or it is the listener
/// itself under a name that is not open to DNS rebinding. (No page comes from
/// there, but some client libraries send it.)
fn is_allowed(origin: &str, host: &str, origins: &[Text]) -> bool {
    let listed = |text: &Text| text.as_str() == "*" || text.eq_ignore_ascii_case(origin);
    let own = origin.split_once("://").is_some_and(|(scheme, authority)| {
        matches!(scheme, "http" | "https") && authority.eq_ignore_ascii_case(host)
    });
    origins.iter().any(listed) || own && is_local_name(host)
}

/// Length of the head of a good answer, and the subprotocol that it chose.
fn check_response(
    received: &[u8],
    accept: &str,
    protocols: &[Text],
) -> Result<Option<(usize, Text)>, String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let head = match response.parse(received) {
        Ok(httparse::Status::Complete(head)) => head,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(e) => return Err(format!("the server does not speak HTTP: {e}")),
    };
    if response.code != Some(101) {
        let (code, reason) = (response.code.unwrap_or(0), response.reason.unwrap_or(""));
        return Err(format!("the server refused the upgrade: {code} {reason}"));
    }
    let headers: &[httparse::Header<'_>] = response.headers;
    check_head(received.get(..head).unwrap_or_default(), headers)?;
    if !has_token(headers, "upgrade", "websocket") || !has_token(headers, "connection", "upgrade") {
        return Err("the server switched to something else".into());
    }
    if value(headers, "sec-websocket-accept") != Some(accept) {
        return Err("the server's answer does not match the request".into());
    }
    let chosen = value(headers, "sec-websocket-protocol");
    let agreed = protocols.iter().find(|name| Some(name.as_str()) == chosen);
    let Some(agreed) = agreed else {
        let ours = protocols.first().map(Text::as_str).unwrap_or_default();
        return Err(format!(
            "the server does not speak the subprotocol '{ours}'"
        ));
    };
    Ok(Some((head, agreed.clone())))
}

fn accept_of(key: &str) -> String {
    let hash = Sha1::new().chain_update(key).chain_update(GUID).finalize();
    STANDARD.encode(hash)
}

/// Whether a list header, which may occur several times, holds a token.
fn has_token(headers: &[httparse::Header<'_>], name: &str, token: &str) -> bool {
    headers
        .iter()
        .filter(|h| h.name.eq_ignore_ascii_case(name))
        .filter_map(|h| core::str::from_utf8(h.value).ok())
        .flat_map(|list| list.split(','))
        .any(|item| item.trim().eq_ignore_ascii_case(token))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OriginCheck;

    const REQUEST: &str = "GET /mqtt HTTP/1.1\r\nHost: server.example.com\r\n\
        Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
        Sec-WebSocket-Protocol: mqttv3.1, mqtt\r\nSec-WebSocket-Version: 13\r\n\r\n";

    const PEER: IpAddr = IpAddr::V4(core::net::Ipv4Addr::LOCALHOST);

    fn protocols() -> Protocols {
        [Text::from_static("mqtt")].into()
    }

    fn serve(request: &str, step: usize) -> (Result<Option<Vec<u8>>, WsFailure>, String) {
        serve_to(None, request, step)
    }

    fn serve_to(
        origins: Option<&[&'static str]>,
        request: &str,
        step: usize,
    ) -> (Result<Option<Vec<u8>>, WsFailure>, String) {
        let mut allowed = Origins::default();
        if let Some(list) = origins {
            allowed.checked = OriginCheck::Always;
            allowed.allowed = list.iter().map(|text| Text::from_static(text)).collect();
        }
        let at = Place {
            path: "/mqtt".into(),
            origins: allowed,
            proxies: None,
        };
        let mut upgrade = Upgrade::server(at, protocols(), 1000);
        let mut answer = Vec::new();
        let mut result = Ok(None);
        let mut pieces = request.as_bytes().chunks(step);
        while let (Ok(None), Some(piece)) = (&result, pieces.next()) {
            result = upgrade.input(piece, PEER, &mut answer);
        }
        (result, String::from_utf8(answer).unwrap())
    }

    #[test]
    fn a_good_request_is_answered_whatever_its_cut() {
        for step in [1, 2, 7, 50, 1000] {
            let (result, answer) = serve(REQUEST, step);
            assert_eq!(result, Ok(Some(Vec::new())));
            // The example of RFC 6455 section 1.3.
            assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
            assert!(answer.contains("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"));
            //= mqtt5#[MQTT-6.0.0-4] type=test
            assert!(answer.contains("Sec-WebSocket-Protocol: mqtt\r\n"));
        }
        let (result, _) = serve(&format!("{REQUEST}frames"), 1000);
        assert_eq!(result, Ok(Some(b"frames".to_vec())));
    }

    #[test]
    fn bad_requests_are_refused_with_the_reason() {
        let long = format!("GET /mqtt HTTP/1.1\r\nX: {}", "x".repeat(2000));
        let many = format!("GET /mqtt HTTP/1.1\r\n{}", "X: y\r\n".repeat(49));
        let cases: [(String, &str); 14] = [
            (REQUEST.replace("GET", "POST"), "405"),
            (REQUEST.replace("/mqtt HTTP", "/other HTTP"), "404"),
            (REQUEST.replace("HTTP/1.1", "HTTP/1.0"), "400"),
            (REQUEST.replace("Host", "Most"), "400"),
            (REQUEST.replace("Upgrade: websocket", "Upgrade: h2c"), "426"),
            (REQUEST.replace("keep-alive, Upgrade", "keep-alive"), "426"),
            (REQUEST.replace("Version: 13", "Version: 8"), "426"),
            (
                REQUEST.replace("dGhlIHNhbXBsZSBub25jZQ==", "c2hvcnQ="),
                "400",
            ),
            (REQUEST.replace("dGhlIHNhbXBsZSBub25jZQ==", "!!!"), "400"),
            //= mqtt5#[MQTT-6.0.0-3] type=test
            (REQUEST.replace("mqttv3.1, mqtt", "chat"), "400"),
            (REQUEST.replace("Sec-WebSocket-Protocol", "Other"), "400"),
            ("\x16\x03\x01 this is TLS \r\n\r\n".into(), "400"),
            (long, "431"),
            (many, "431"),
        ];
        for (request, status) in cases {
            for step in [1, 4000] {
                let (result, answer) = serve(&request, step);
                assert!(result.is_err(), "{request}");
                assert!(
                    answer.starts_with(&format!("HTTP/1.1 {status} ")),
                    "{request}\n{answer}"
                );
            }
        }
    }

    #[test]
    fn requests_that_can_be_read_in_two_ways_are_refused() {
        let with = |header: &str| REQUEST.replace("Upgrade: websocket", header);
        let plus = |header: &str| with(&format!("{header}\r\nUpgrade: websocket"));
        let cases = [
            REQUEST.replace("\r\nConnection", "\nConnection"),
            REQUEST.replace("\r\n\r\n", "\n\n"),
            plus("Host: other.example"),
            plus("Origin: http://a\r\nOrigin: http://a"),
            plus("Content-Length: 0\r\nTransfer-Encoding: chunked"),
            plus("Content-Length: 0\r\nContent-Length: 0"),
            plus("Content-Length: 5"),
            plus("Transfer-Encoding: chunked"),
            plus("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="),
            plus("Sec-WebSocket-Version: 13"),
            REQUEST.replace("Host: server.example.com", "Host: "),
            plus("X: a\r\n folded"),
            plus("X : a"),
        ];
        for request in cases {
            for step in [1, 4000] {
                let (result, answer) = serve(&request, step);
                assert!(result.is_err(), "{request}");
                assert!(answer.starts_with("HTTP/1.1 400 "), "{request}\n{answer}");
            }
        }
        assert!(serve(&plus("Content-Length: 0"), 4000).0.is_ok());
    }

    #[test]
    fn pages_of_foreign_origins_are_refused() {
        let from = |host: &str, origin: &str| {
            REQUEST.replace("server.example.com", &format!("{host}\r\nOrigin: {origin}"))
        };
        let cases: [(&str, &str, &[&'static str], bool); 10] = [
            ("127.0.0.1:8083", "http://evil.example", &[], false),
            ("127.0.0.1:8083", "null", &[], false),
            ("127.0.0.1:8083", "http://127.0.0.1:8083", &[], true),
            ("localhost:8084", "https://localhost:8084", &[], true),
            // DNS rebinding: the page's own name leads here.
            ("evil.example:8083", "http://evil.example:8083", &[], false),
            ("127.0.0.1:8083", "http://127.0.0.1:3000", &[], false),
            (
                "b.example",
                "https://app.example",
                &["https://app.example"],
                true,
            ),
            (
                "b.example",
                "https://APP.example",
                &["https://app.example"],
                true,
            ),
            (
                "b.example",
                "http://app.example",
                &["https://app.example"],
                false,
            ),
            ("b.example", "http://any.example", &["*"], true),
        ];
        for (host, origin, origins, good) in cases {
            let request = from(host, origin);
            let (result, answer) = serve_to(Some(origins), &request, 4000);
            assert_eq!(
                result.is_ok(),
                good,
                "{host} {origin} {origins:?}: {answer}"
            );
            assert!(good || answer.starts_with("HTTP/1.1 403 "), "{answer}");
            // A listener that asks for credentials leaves it to those.
            assert!(serve(&request, 4000).0.is_ok());
        }
        // What is no browser sends none.
        assert!(serve_to(Some(&[]), REQUEST, 4000).0.is_ok());
    }

    #[test]
    fn a_client_checks_the_answer() {
        let make = || Upgrade::client("h:1", "/mqtt", *b"the sample nonce", protocols(), 1000);
        let (mut client, request) = make();
        let (_, answer) = serve(&request, 1000);
        let with_frames = format!("{answer}rest");
        let result = client.input(with_frames.as_bytes(), PEER, &mut Vec::new());
        assert_eq!(result, Ok(Some(b"rest".to_vec())));
        let cases = [
            (
                answer.replace("101 Switching Protocols", "404 Not Found"),
                "404 Not Found",
            ),
            (answer.replace("s3pP", "xxxx"), "match"),
            (answer.replace("Protocol: mqtt", "Protocol: chat"), "mqtt"),
            (
                answer.replace("Upgrade: websocket", "Upgrade: h2c"),
                "something else",
            ),
            ("SSH-2.0-OpenSSH\r\n".into(), "HTTP"),
            (
                format!("HTTP/1.1 101 x\r\nA: {}", "x".repeat(2000)),
                "too long",
            ),
        ];
        for (answer, want) in cases {
            let error = make()
                .0
                .input(answer.as_bytes(), PEER, &mut Vec::new())
                .unwrap_err();
            assert!(error.to_string().contains(want), "{error}");
        }
    }
}
