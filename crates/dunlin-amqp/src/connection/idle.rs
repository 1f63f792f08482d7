//! Idle time-out in both directions (section 2.4.5), and the time-outs of
//! opening and closing.

use core::time::Duration;

use dunlin_base::Instant;

/// When something was last sent and received, and what follows from it.
#[derive(Debug)]
pub(crate) struct Idle {
    received: Instant,
    sent: Instant,
    /// Silence of the peer that is too long.
    silence_max: Option<Duration>,
    /// Silence of this side that is too long for the peer.
    peer_silence_max: Option<Duration>,
    /// The end of opening or of closing.
    step_ends: Option<Instant>,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// An empty frame.
    Heartbeat,
    /// The peer was silent for too long.
    Silence,
    /// Opening or closing took too long.
    Step,
}

impl Idle {
    pub(crate) fn new(now: Instant, open_time_out: Duration) -> Self {
        Self {
            received: now,
            sent: now,
            silence_max: None,
            peer_silence_max: None,
            step_ends: Some(now + open_time_out),
        }
    }

    pub(crate) fn note_received(&mut self, now: Instant) {
        self.received = now;
    }

    pub(crate) fn note_sent(&mut self, now: Instant) {
        self.sent = now;
    }

    /// The time-out that this side announced holds from now on.
    pub(crate) fn watch(&mut self, silence_max: Option<Duration>) {
        self.silence_max = silence_max;
    }

    /// The peer announced its time-out.
    pub(crate) fn set_peer(&mut self, time_out: Option<Duration>) {
        self.peer_silence_max = time_out;
    }

    /// Opening is done, or closing begins and has until then.
    pub(crate) fn set_step(&mut self, ends: Option<Instant>) {
        self.step_ends = ends;
    }

    fn heartbeat_at(&self) -> Option<Instant> {
        // At half of it, so that the frame is there in time.
        self.peer_silence_max
            .map(|time_out| self.sent + time_out / 2)
    }

    fn silence_at(&self) -> Option<Instant> {
        self.silence_max.map(|max| self.received + max)
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        let all = [self.heartbeat_at(), self.silence_at(), self.step_ends];
        all.into_iter().flatten().min()
    }

    /// What is due first; a time-out before a heartbeat.
    pub(crate) fn due(&self, now: Instant) -> Option<Due> {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.step_ends) {
            Some(Due::Step)
        } else if is_due(self.silence_at()) {
            Some(Due::Silence)
        } else {
            is_due(self.heartbeat_at()).then_some(Due::Heartbeat)
        }
    }

    /// Nothing is waited for any more.
    pub(crate) fn stop(&mut self) {
        self.silence_max = None;
        self.peer_silence_max = None;
        self.step_ends = None;
    }
}
