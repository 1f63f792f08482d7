//! The log's lines about tokens that let no client in: so many a second. What a client
//! gets, and the shard's line about it, say no more than of a wrong password.

use core::time::Duration;
use std::time::Instant;

use dunlin_broker::auth::AuthRequest;

/// Most lines in a second.
pub(super) const LINES_MAX: u32 = 20;

/// What was written in the present second.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    since: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl Refusals {
    /// Writes why a token is refused, if there is room for a line.
    pub(super) fn note(&mut self, request: &AuthRequest, why: &str, now: Instant) {
        let Some(left_out) = self.admit(now) else {
            return;
        };
        let (user, client_id) = match request {
            AuthRequest::Password {
                user, client_id, ..
            } => (Some(user), Some(client_id)),
            AuthRequest::Token {
                user, client_id, ..
            } => (user.as_ref(), client_id.as_ref()),
            AuthRequest::Scram { .. } | AuthRequest::Topic(_) => (None, None),
        };
        let user = user.map(|it| it.as_str());
        let client_id = client_id.map(|it| it.as_str());
        let left_out = (left_out > 0).then_some(left_out);
        tracing::info!(client_id, user, cause = why, left_out, "token refused");
    }

    /// How many lines were left out before this one; `None`: so is this one.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        let second = Duration::from_secs(1);
        let is_over = |since: Instant| now.saturating_duration_since(since) >= second;
        if self.since.is_none_or(is_over) {
            self.since = Some(now);
            self.lines = 0;
        }
        if self.lines >= LINES_MAX {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(core::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_lines_a_second() {
        let mut refusals = Refusals::default();
        let now = Instant::now();
        for _ in 0..LINES_MAX {
            assert_eq!(refusals.admit(now), Some(0));
        }
        assert_eq!(refusals.admit(now), None);
        assert_eq!(refusals.admit(now), None);
        let next = now + Duration::from_secs(1);
        assert_eq!(refusals.admit(next), Some(2));
        assert_eq!(refusals.admit(next), Some(0));
    }
}
