//! Why there is no answer, as problem details (RFC 9457).

use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use crate::control::values::{Code, Failure};

/// Seconds after which a client that was too early may ask again.
const RETRY_SECONDS: u32 = 1;

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    /// What kind of reason it is, for programs.
    code: &'static str,
    /// The reason, for people.
    detail: String,
    /// Seconds after which to ask again.
    pub(super) retry: Option<u32>,
    /// Methods that there are, where this one is not.
    pub(super) allow: Option<String>,
}

/// Why there is no answer.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub(super) struct Details<'a> {
    /// `about:blank`: the status says what kind of problem it is.
    r#type: &'a str,
    /// The status in words.
    title: &'a str,
    /// The status of the answer.
    status: u16,
    /// The reason, for people.
    detail: &'a str,
    /// What kind of reason it is, for programs.
    code: &'a str,
}

impl Problem {
    pub(super) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status,
            code,
            detail: detail.into(),
            retry: None,
            allow: None,
        }
    }

    /// More is asked than is answered at a time.
    pub(super) fn busy(detail: &str) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "busy", detail).after(RETRY_SECONDS)
    }

    /// The same, with the seconds after which to ask again.
    pub(super) fn after(mut self, seconds: u32) -> Self {
        self.retry = Some(seconds);
        self
    }

    pub(super) fn not_found() -> Self {
        let detail = "there is nothing at this path: see /api/v1/openapi.json";
        Self::new(StatusCode::NOT_FOUND, "not-found", detail)
    }

    /// The body of the answer.
    pub(super) fn details(&self) -> Details<'_> {
        Details {
            r#type: "about:blank",
            title: self.status.canonical_reason().unwrap_or("Error"),
            status: self.status.as_u16(),
            detail: &self.detail,
            code: self.code,
        }
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        let (status, code) = match failure.code {
            Code::BadRequest => (StatusCode::BAD_REQUEST, "bad-request"),
            Code::Forbidden => (StatusCode::FORBIDDEN, "forbidden"),
            Code::NotFound => (StatusCode::NOT_FOUND, "not-found"),
            Code::Conflict => (StatusCode::CONFLICT, "conflict"),
            Code::Busy => (StatusCode::TOO_MANY_REQUESTS, "busy"),
            Code::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        };
        let problem = Self::new(status, code, failure.text);
        match failure.code {
            Code::Busy | Code::Unavailable => problem.after(RETRY_SECONDS),
            _ => problem,
        }
    }
}
