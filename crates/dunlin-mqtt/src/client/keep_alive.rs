//! Keep alive of a connection (MQTT 5.0 section 3.1.2.10): when a PINGREQ is
//! due, and until when the server must show that it still answers.

use core::time::Duration;

use dunlin_base::Instant;

/// Bounds of the time that a server has to answer a ping, where the owner does
/// not choose it.
const PING_TIMEOUT_MIN: Duration = Duration::from_secs(1);
const PING_TIMEOUT_MAX: Duration = Duration::from_secs(10);

/// The timers of one connection.
#[derive(Debug)]
pub(super) struct KeepAlive {
    interval: Duration,
    /// The owner's choice.
    ping_timeout: Option<Duration>,
    last_sent: Instant,
    last_received: Instant,
    ping_is_due: bool,
    /// PINGREQ is written and nothing has come since: until when to wait.
    answer_by: Option<Instant>,
    /// The owner does not read, so that an answer may wait in the transport.
    read_paused: bool,
}

impl KeepAlive {
    pub(super) fn new(ping_timeout: Option<Duration>) -> Self {
        Self {
            interval: Duration::ZERO,
            ping_timeout,
            last_sent: Instant::ZERO,
            last_received: Instant::ZERO,
            ping_is_due: false,
            answer_by: None,
            read_paused: false,
        }
    }

    /// A connection begins; an interval of zero turns pings off.
    pub(super) fn start(&mut self, now: Instant, interval: Duration) {
        self.interval = interval;
        (self.last_sent, self.last_received) = (now, now);
    }

    /// The server chose another interval [MQTT-3.1.2-21], [MQTT-3.2.2-21].
    pub(super) fn set_interval(&mut self, interval: Duration) {
        self.interval = interval;
    }

    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// The connection is gone.
    pub(super) fn stop(&mut self) {
        self.ping_is_due = false;
        self.answer_by = None;
        self.read_paused = false;
    }

    pub(super) fn sent(&mut self, now: Instant) {
        self.last_sent = now;
    }

    pub(super) fn received(&mut self, now: Instant) {
        self.last_received = now;
        self.answer_by = None;
    }

    pub(super) fn ping_is_due(&self) -> bool {
        self.ping_is_due
    }

    /// PINGREQ is written.
    pub(super) fn pinged(&mut self, now: Instant) {
        self.ping_is_due = false;
        let answer_by = now + self.ping_timeout();
        self.answer_by.get_or_insert(answer_by);
    }

    /// Whether the server has answered in time.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> bool {
        if self.answer_deadline().is_some_and(|at| at <= now) {
            return false;
        }
        if self.ping_at().is_some_and(|at| at <= now) {
            self.ping_is_due = true;
        }
        true
    }

    pub(super) fn set_read_paused(&mut self, now: Instant, paused: bool) {
        let until = now + self.ping_timeout();
        if let (true, false, Some(deadline)) = (self.read_paused, paused, &mut self.answer_by) {
            *deadline = until;
        }
        self.read_paused = paused;
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let deadlines = [self.answer_deadline(), self.ping_at()];
        deadlines.into_iter().flatten().min()
    }

    /// How long a server may take to answer a ping: less where pings are
    /// frequent.
    fn ping_timeout(&self) -> Duration {
        let derived = (self.interval / 2).clamp(PING_TIMEOUT_MIN, PING_TIMEOUT_MAX);
        self.ping_timeout.unwrap_or(derived)
    }

    fn answer_deadline(&self) -> Option<Instant> {
        self.answer_by.filter(|_| !self.read_paused)
    }

    fn ping_at(&self) -> Option<Instant> {
        if self.interval.is_zero() || self.ping_is_due {
            return None;
        }
        // A part earlier than promised, because timers are late and packets
        // take their time. Silence of the server asks for a ping as well:
        // sending alone does not show that it still hears.
        let interval = self.interval - self.interval / 8;
        let since = match self.answer_by {
            Some(_) => self.last_sent,
            None => self.last_sent.min(self.last_received),
        };
        Some(since + interval)
    }
}
