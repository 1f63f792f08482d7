//! The least of HTTP/1.1 that shows a page: one request a connection, its head
//! bounded in bytes and time, its body ignored. It knows no page.

use core::time::Duration;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use dunlin_net::http;

/// Media type of most pages.
pub(crate) const JSON: &str = "application/json";

/// Bytes of a request's head at most.
pub(crate) const REQUEST_BYTES_MAX: usize = 8 << 10;

/// Headers of a request at most.
const HEADERS_MAX: usize = 64;

/// Time for a request to arrive, and for its answer to be taken.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// A request, as far as it matters.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Path, still percent-encoded.
    pub(crate) path: String,
    query: String,
    /// The machine as the client calls it, if it said so.
    pub(crate) host: Option<String>,
    /// Sent by a page of some other site.
    pub(crate) foreign: bool,
}

/// Why there is no request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It is not HTTP.
    Malformed,
    /// Its head is too long.
    TooLong,
}

impl Request {
    /// Reads the head of a request.
    pub(crate) fn read(stream: &mut TcpStream) -> io::Result<Result<Self, Refused>> {
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let mut buf = Vec::new();
        let mut part = [0; 1024];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            stream.set_read_timeout(Some(left))?;
            let n = stream.read(&mut part)?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            buf.extend_from_slice(part.get(..n).unwrap_or_default());
            match Self::parse(&buf) {
                Ok(Some(request)) => return Ok(Ok(request)),
                Ok(None) if buf.len() < REQUEST_BYTES_MAX => {}
                Ok(None) => return Ok(Err(Refused::TooLong)),
                Err(refused) => return Ok(Err(refused)),
            }
        }
    }

    /// `None`: the rest is to come.
    pub(crate) fn parse(head: &[u8]) -> Result<Option<Self>, Refused> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(head) {
            Ok(httparse::Status::Partial) => return Ok(None),
            Ok(httparse::Status::Complete(len)) => {
                let whole = head.get(..len).unwrap_or_default();
                http::check_head(whole, request.headers).map_err(|_| Refused::Malformed)?;
            }
            Err(httparse::Error::TooManyHeaders) => return Err(Refused::TooLong),
            Err(_) => return Err(Refused::Malformed),
        }
        let (Some(method), Some(target)) = (request.method, request.path) else {
            return Err(Refused::Malformed);
        };
        if !target.starts_with('/') {
            return Err(Refused::Malformed);
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        // Browsers say so with everything that is not a visit by hand.
        let foreign = request
            .headers
            .iter()
            .any(|header| header.name.eq_ignore_ascii_case("origin"));
        Ok(Some(Self {
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            host: http::value(request.headers, "host").map(str::to_owned),
            foreign,
        }))
    }

    /// The decoded value of a key of the query.
    pub(crate) fn query(&self, key: &str) -> Option<String> {
        self.query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find(|(name, _)| *name == key)
            .and_then(|(_, value)| decode(&value.replace('+', " ")))
    }
}

/// Undoes percent-encoding; `None`: it is damaged, or no text.
pub(crate) fn decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let (high, low) = (digit(bytes.next())?, digit(bytes.next())?);
        out.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(out).ok()
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) body: String,
}

impl Response {
    pub(crate) const fn new(content_type: &'static str, body: String) -> Self {
        Self {
            status: "200 OK",
            content_type,
            body,
        }
    }

    /// An answer that says what is wrong.
    pub(crate) fn refusal(status: &'static str, why: &str) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            body: format!("{why}\n"),
        }
    }

    pub(crate) fn write(&self, stream: &mut TcpStream, with_body: bool) -> io::Result<()> {
        stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
        let mut text = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n\
             Cache-Control: no-store\r\nConnection: close\r\n\r\n",
            self.status,
            self.content_type,
            self.body.len(),
        );
        if with_body {
            text.push_str(&self.body);
        }
        stream.write_all(text.as_bytes())?;
        stream.shutdown(std::net::Shutdown::Write)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_understood_once_it_is_whole() {
        let text = "GET /a%20b?limit=5&x=%C3%A4+%2B HTTP/1.1\r\nHost: h\r\n\r\n";
        for cut in 0..text.len() {
            assert_eq!(Request::parse(&text.as_bytes()[..cut]), Ok(None), "{cut}");
        }
        let request = Request::parse(text.as_bytes()).unwrap().unwrap();
        assert_eq!(
            (request.method.as_str(), request.path.as_str()),
            ("GET", "/a%20b")
        );
        assert_eq!(decode(&request.path).unwrap(), "/a b");
        assert_eq!(request.query("limit").unwrap(), "5");
        assert_eq!(request.query("x").unwrap(), "ä +");
        assert_eq!(request.query("y"), None);
        assert!(!request.foreign);
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for text in [
            "GET / HTTP/1.1\nHost: h\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n",
            "GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "\x16\x03\x01\x02",
            "GET a HTTP/1.1\r\n\r\n",
            "GET / SPDY\r\n\r\n",
        ] {
            assert_eq!(
                Request::parse(text.as_bytes()),
                Err(Refused::Malformed),
                "{text}"
            );
        }
        let many = format!(
            "GET / HTTP/1.1\r\n{}\r\n",
            "a: b\r\n".repeat(HEADERS_MAX + 1)
        );
        assert_eq!(Request::parse(many.as_bytes()), Err(Refused::TooLong));
        for text in ["%", "%4", "%zz", "%ff"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
