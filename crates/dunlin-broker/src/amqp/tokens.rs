//! The tokens that a client sets on its open connection, in line for the
//! authenticator: one at a time, so many, and so often.

use alloc::collections::VecDeque;
use core::fmt;
use core::time::Duration;

use dunlin_base::{Instant, Text};

use crate::ids::SessionRef;

/// Longest token, as the authenticator takes it.
pub(super) const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// Tokens of a connection that wait for the authenticator.
const WAITING_MAX: usize = 16;

/// Tokens that a client may set without a pause.
const BURST_MAX: u32 = 64;

/// Time after which it may set another one.
const PAUSE: Duration = Duration::from_secs(1);

/// Tokens that are not valid, of a transport whose client has proved nothing.
const FAILURES_MAX: u32 = 3;

/// What a token takes besides its text.
const WAITING_BYTES: usize = size_of::<Waiting>();

/// Tokens of one connection.
#[derive(Debug)]
pub(crate) struct Tokens {
    /// The authenticator has been asked for the first one.
    waiting: VecDeque<Waiting>,
    /// On QUIC the carrier has that of all streams.
    pub(super) pace: Pace,
}

/// How often the client of a transport sets tokens.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Tokens that it may set now, as it was at `since`.
    left: u32,
    since: Instant,
    /// Of connections that had proved nothing.
    failures: u32,
}

/// A token of a request.
struct Waiting {
    link: SessionRef,
    number: u64,
    token: Text,
}

// Tokens must not reach a log.
impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut waiting = f.debug_struct("Waiting");
        waiting.field("link", &self.link).finish_non_exhaustive()
    }
}

impl Tokens {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            waiting: VecDeque::new(),
            pace: Pace::new(now),
        }
    }

    /// Bytes of those that wait.
    pub(super) fn bytes(&self) -> usize {
        let bytes = self.waiting.iter().map(|it| it.token.len() + WAITING_BYTES);
        bytes.sum()
    }

    /// Whether one token more may wait.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < WAITING_MAX
    }

    /// Forgets those that wait.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Puts the token of a request into the line; whether it is the first one.
    pub(super) fn push(&mut self, link: SessionRef, number: u64, token: Text) -> bool {
        let waiting = Waiting {
            link,
            number,
            token,
        };
        self.waiting.push_back(waiting);
        self.waiting.len() == 1
    }

    /// The token that the authenticator is asked for.
    pub(super) fn first(&self) -> Option<Text> {
        self.waiting.front().map(|waiting| waiting.token.clone())
    }

    /// The request of the token that the authenticator has answered for.
    pub(super) fn take(&mut self) -> Option<(SessionRef, u64)> {
        let waiting = self.waiting.pop_front()?;
        Some((waiting.link, waiting.number))
    }
}

impl Pace {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            left: BURST_MAX,
            since: now,
            failures: 0,
        }
    }

    /// Counts a token, if it is not one too many.
    pub(super) fn admit(&mut self, now: Instant) -> bool {
        let pauses = (now - self.since).as_secs() / PAUSE.as_secs();
        let pauses = u32::try_from(pauses).unwrap_or(u32::MAX);
        if pauses > 0 {
            self.since = now;
            self.left = self.left.saturating_add(pauses).min(BURST_MAX);
        }
        let admitted = self.left > 0;
        self.left -= u32::from(admitted);
        admitted
    }

    /// Counts a token that was not valid.
    pub(super) const fn note_failure(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    /// Whether a client that has proved nothing may set no further one.
    pub(super) const fn is_over(&self) -> bool {
        self.failures >= FAILURES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_sets_so_many_tokens_and_then_one_a_pause() {
        let mut now = Instant::ZERO;
        let mut tokens = Pace::new(now);
        let count = |tokens: &mut Pace, now| (0..100).filter(|_| tokens.admit(now)).count();
        assert_eq!(count(&mut tokens, now), 64);
        now += PAUSE * 3;
        assert_eq!(count(&mut tokens, now), 3);
        now += PAUSE / 2;
        assert_eq!(count(&mut tokens, now), 0);
        now += PAUSE * 1000;
        assert_eq!(count(&mut tokens, now), 64);
    }
}
