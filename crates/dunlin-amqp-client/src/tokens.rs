//! The bearer tokens of a client: where they come from, and the last one.

use core::fmt;
use core::time::Duration;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Shortest time between two questions to the source.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// Longest one, so that instants stay in range.
const PAUSE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A bearer token, such as a JSON Web Token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    text: Arc<str>,
    lifetime: Duration,
}

impl Token {
    /// A token that is valid for so long from now on.
    #[must_use]
    pub fn new(text: impl AsRef<str>, lifetime: Duration) -> Self {
        Self {
            text: Arc::from(text.as_ref()),
            lifetime,
        }
    }
}

// Tokens must not reach a log.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut token = f.debug_struct("Token");
        token
            .field("lifetime", &self.lifetime)
            .finish_non_exhaustive()
    }
}

pub(crate) type Source = dyn Fn() -> io::Result<Token> + Send + Sync;

/// Where a client has its tokens from, and the last one.
pub(crate) struct Tokens {
    source: Box<Source>,
    last: Mutex<Arc<str>>,
}

impl Tokens {
    pub(crate) fn new(source: Box<Source>) -> Self {
        Self {
            source,
            last: Mutex::new(Arc::from("")),
        }
    }

    fn last(&self) -> MutexGuard<'_, Arc<str>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The token for a connection that begins now.
    pub(crate) fn current(&self) -> Arc<str> {
        Arc::clone(&self.last())
    }

    /// Has another token; when to ask for the next one.
    pub(crate) fn fetch(&self) -> io::Result<Instant> {
        let token = (self.source)()?;
        *self.last() = token.text;
        // Before its end, with time to try again.
        let pause = token.lifetime.min(PAUSE_MAX) * 3 / 4;
        Ok(Instant::now() + pause.max(PAUSE_MIN))
    }
}
