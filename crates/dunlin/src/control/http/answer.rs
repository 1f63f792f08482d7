//! Answers: bodies, and the headers that each has.

use core::convert::Infallible;
use core::pin::Pin;
use core::task::{Context, Poll};

use bytes::Bytes;
use dunlin_net::http::name_of;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, Response, StatusCode};
use serde::Serialize;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc::Receiver;

use super::page::Asset;
use super::problem::Problem;
use super::routes::Found;

/// What a web page of the broker may do: load its own files, ask its own server, and
/// speak MQTT to the broker, whose WebSocket has another port. No script of it may make
/// markup of text. Where it may speak MQTT comes after it.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self' data:; font-src 'self'; manifest-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; connect-src 'self'";

const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";
const LINES: &str = "application/jsonl";

/// A body.
#[derive(Debug)]
pub(super) enum Content {
    /// As a whole, until it is taken.
    Whole(Option<Bytes>),
    /// Piece by piece, as it comes.
    Pieces(Receiver<Bytes>),
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = |bytes| Ok(Frame::data(bytes));
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(piece)),
            Self::Pieces(pieces) => pieces.poll_recv(context).map(|bytes| bytes.map(piece)),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Pieces(_) => SizeHint::default(),
        }
    }
}

fn response(status: StatusCode, media: &'static str, body: Content) -> Response<Content> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, media),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn whole(bytes: impl Into<Bytes>) -> Content {
    let bytes = bytes.into();
    Content::Whole((!bytes.is_empty()).then_some(bytes))
}

/// A value as JSON.
pub(super) fn json(value: &impl Serialize) -> Response<Content> {
    // Values of the control plane have no keys but texts.
    let body = serde_json::to_vec(value).unwrap_or_default();
    json_text(body)
}

/// What is written as JSON already.
pub(super) fn json_text(text: impl Into<Bytes>) -> Response<Content> {
    response(StatusCode::OK, JSON, whole(text))
}

/// Lines of JSON, to be kept in a file.
pub(super) fn lines(pieces: Receiver<Bytes>) -> Response<Content> {
    let mut response = response(StatusCode::OK, LINES, Content::Pieces(pieces));
    let name = HeaderValue::from_static("attachment; filename=\"backup.jsonl\"");
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_DISPOSITION, name);
    response
}

/// A refusal.
pub(super) fn refusal(problem: &Problem) -> Response<Content> {
    let body = serde_json::to_vec(&problem.details()).unwrap_or_default();
    let mut response = response(problem.status, PROBLEM, whole(body));
    let headers = response.headers_mut();
    if problem.status == StatusCode::UNAUTHORIZED {
        let scheme = HeaderValue::from_static("Bearer realm=\"dunlin\"");
        headers.insert(header::WWW_AUTHENTICATE, scheme);
    }
    if let Some(seconds) = problem.retry {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    let allow = problem.allow.as_deref().map(HeaderValue::from_str);
    if let Some(Ok(allow)) = allow {
        headers.insert(header::ALLOW, allow);
    }
    response
}

/// What a web page may do that was asked for under this name: WebSockets lead to every
/// port of it, and to no other. A policy has no form for an address of IPv6.
fn policy(asked: &HeaderMap) -> HeaderValue {
    let host = asked.get(header::HOST).and_then(|it| it.to_str().ok());
    let name = host.map(name_of).unwrap_or_default();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    let text = match name {
        "" => PAGE_POLICY.to_owned(),
        name if name.chars().all(is_name) => {
            format!("{PAGE_POLICY} ws://{name}:* wss://{name}:*")
        }
        name if name.starts_with('[') => format!("{PAGE_POLICY} ws: wss:"),
        _ => PAGE_POLICY.to_owned(),
    };
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(PAGE_POLICY))
}

/// A file of the page, unless the client has it.
pub(super) fn file(asset: &'static Asset, asked: &HeaderMap) -> Response<Content> {
    let hash = Sha256::digest(asset.body);
    let tag: String = hash
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let tag = format!("\"{tag}\"");
    let known = asked.get(header::IF_NONE_MATCH);
    let is_known = known.is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let (status, body) = match is_known {
        true => (StatusCode::NOT_MODIFIED, Content::Whole(None)),
        false => (StatusCode::OK, whole(Bytes::from_static(asset.body))),
    };
    let mut response = response(status, asset.content_type, body);
    let headers = response.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    headers.insert(header::CONTENT_SECURITY_POLICY, policy(asked));
    for (name, value) in [
        (header::CACHE_CONTROL, "no-cache"),
        (header::REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// There is no such resource, or not with this method.
pub(super) fn missing(found: Found) -> Problem {
    match found {
        Found::Methods(methods) => {
            let why = format!("there is {methods}");
            let status = StatusCode::METHOD_NOT_ALLOWED;
            let mut problem = Problem::new(status, "method-not-allowed", why);
            problem.allow = Some(methods);
            problem
        }
        _ => Problem::not_found(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_speaks_mqtt_to_its_own_server_alone() {
        let connects = |host: Option<&str>| {
            let mut asked = HeaderMap::new();
            if let Some(host) = host {
                asked.insert(header::HOST, HeaderValue::from_str(host).expect("a header"));
            }
            let text = policy(&asked);
            let (_, connects) = text
                .to_str()
                .expect("text")
                .split_once("connect-src ")
                .expect("said");
            connects.to_owned()
        };
        for (host, want) in [
            (
                Some("localhost:8080"),
                "'self' ws://localhost:* wss://localhost:*",
            ),
            (
                Some("b.example"),
                "'self' ws://b.example:* wss://b.example:*",
            ),
            (
                Some("127.0.0.1:1"),
                "'self' ws://127.0.0.1:* wss://127.0.0.1:*",
            ),
            (Some("[::1]:1"), "'self' ws: wss:"),
            (Some("a;script-src *"), "'self'"),
            (Some("*"), "'self'"),
            (None, "'self'"),
        ] {
            assert_eq!(connects(host), want, "{host:?}");
        }
    }
}
