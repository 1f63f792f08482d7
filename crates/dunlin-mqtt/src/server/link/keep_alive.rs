//! Keep alive: how long a client may be silent.

use core::time::Duration;

use dunlin_base::Instant;

/// When the client was heard last, and how long it may be silent.
#[derive(Clone, Copy, Debug)]
pub struct KeepAlive {
    /// 1.5 times the keep alive; zero: off.
    silence_max: Duration,
    heard_at: Instant,
}

impl KeepAlive {
    /// A connection that was opened now.
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self {
            silence_max: Duration::ZERO,
            heard_at: now,
        }
    }

    /// A packet came.
    pub const fn heard(&mut self, now: Instant) {
        self.heard_at = now;
    }

    /// How long the client may be silent; zero: without limit.
    #[must_use]
    pub const fn limit(&self) -> Duration {
        self.silence_max
    }

    /// Sets how long the client may be silent.
    pub const fn set_limit(&mut self, silence_max: Duration) {
        self.silence_max = silence_max;
    }

    /// When a silence of this length ends.
    #[must_use]
    pub fn silent_until(&self, silence: Duration) -> Instant {
        self.heard_at + silence
    }
}
