//! A token in a file, which another program renews there.

use core::time::Duration;
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dunlin_amqp_client::Token;
use serde_json::Value;

/// Time after which a file is read again whose token does not say when it expires.
const LIFETIME: Duration = Duration::from_secs(60 * 60);

/// Longest file; a server takes no token that is as long.
const FILE_BYTES_MAX: usize = 64 * 1024;

/// The token of a file.
pub(super) fn read(path: &Path) -> io::Result<Token> {
    let named = |error: &dyn core::fmt::Display| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(path)
        .map_err(|error| io::Error::new(error.kind(), named(&error)))?;
    let token = text.trim();
    if token.is_empty() || token.len() > FILE_BYTES_MAX {
        return Err(io::Error::other(named(&"the file has no token")));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let expires = now.ok().zip(expiry(token));
    let lifetime = expires.map_or(LIFETIME, |(now, at)| at.saturating_sub(now));
    Ok(Token::new(token, lifetime))
}

/// When a token expires, as it says itself.
fn expiry(token: &str) -> Option<Duration> {
    let claims = token.split('.').nth(1)?;
    let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    Duration::try_from_secs_f64(claims.get("exp")?.as_f64()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_says_when_it_expires() {
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let token = |claims: &str| format!("{}.{}.x", part("{}"), part(claims));
        for (token, secs) in [
            (token(r#"{"exp":1700000000}"#), Some(1_700_000_000)),
            (token(r#"{"exp":"soon"}"#), None),
            (token(r#"{"exp":-1}"#), None),
            (token("{}"), None),
            ("opaque".into(), None),
        ] {
            assert_eq!(expiry(&token), secs.map(Duration::from_secs), "{token}");
        }
    }
}
