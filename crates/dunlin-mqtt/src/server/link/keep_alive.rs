//! Keep alive: how long a client may be silent, before CONNACK and after it.

use core::time::Duration;

use dunlin_base::Instant;
use dunlin_mqtt_codec::ReasonCode;

use crate::server::Fault;

/// When the client was heard last, and how long it may be silent.
#[derive(Clone, Copy, Debug)]
pub struct KeepAlive {
    /// Time for CONNECT, and for each answer until CONNACK.
    connect_timeout: Duration,
    /// 1.5 times the keep alive; zero: off.
    silence_max: Duration,
    heard_at: Instant,
}

/// What a deadline of a connection brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Nothing yet; look again then, if there is a limit.
    Until(Option<Instant>),
    /// The client was silent for too long, or did not come as far as CONNACK in
    /// time.
    TooLong(Fault),
}

impl KeepAlive {
    /// A connection that was opened now.
    #[must_use]
    pub const fn new(now: Instant, connect_timeout: Duration) -> Self {
        Self {
            connect_timeout,
            silence_max: Duration::ZERO,
            heard_at: now,
        }
    }

    /// A packet came.
    pub const fn heard(&mut self, now: Instant) {
        self.heard_at = now;
    }

    /// How long the client may be silent after CONNACK; zero: without limit.
    #[must_use]
    pub const fn limit(&self) -> Duration {
        self.silence_max
    }

    /// Sets how long the client may be silent after CONNACK.
    pub const fn set_limit(&mut self, silence_max: Duration) {
        self.silence_max = silence_max;
    }

    /// Until when the client may be silent; `connected`: CONNACK was sent.
    #[must_use]
    pub fn deadline(&self, connected: bool) -> Option<Instant> {
        let silence = match connected {
            true => self.silence_max,
            false => self.connect_timeout,
        };
        (!silence.is_zero()).then(|| self.heard_at + silence)
    }

    /// What is due now.
    #[must_use]
    pub fn handle_deadline(&self, now: Instant, connected: bool) -> Silence {
        let deadline = self.deadline(connected);
        match deadline.is_some_and(|at| at <= now) {
            false => Silence::Until(deadline),
            //= mqtt5#[MQTT-3.1.2-22]
            true => Silence::TooLong(Fault::new(
                ReasonCode::KeepAliveTimeout,
                "keep alive timeout",
            )),
        }
    }
}
