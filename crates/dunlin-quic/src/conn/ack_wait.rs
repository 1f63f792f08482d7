//! When an acknowledgement leaves that nothing has taken along. quinn-proto sends
//! it at the end of the delay that the peer allows, each connection at its own
//! time. Shortly before that it may leave with datagrams of other connections,
//! which are sent anyway: then it costs neither a wake-up nor a system call of its
//! own.
//!
//! quinn-proto says only when it wants to be woken next, not for what. That it is
//! an acknowledgement is seen by the time: the delay after a packet came, to the
//! nanosecond. The delay, which peers may change (draft-ietf-quic-ack-frequency),
//! is seen when a packet comes to a connection that has nothing else to wait for, or
//! when two packets in a row lead to the same delay: a timer of losses begins when something
//! was sent and lasts as long as round-trip times say, which is rarely the same twice and
//! rarely whole microseconds. One that is taken for it all the same costs one probe.
//!
//! Where acknowledgements have waited in vain lately, they need not wait: one leaves
//! with the next datagrams of other connections, or alone in the turn that read the
//! packet if others send little, and no timer wakes the loop for it. Something to say
//! within the delay, or another packet, shows that waiting is worth it again.

use core::fmt;
use core::time::Duration;
use std::time::Instant as StdInstant;

use dunlin_base::Instant;
use quinn_proto::Connection;

use super::QuicConn;
use crate::Clock;

/// Delays with which it is worth the while: no peer that asks for longer ones is
/// in a hurry, and none that asks for shorter ones can wait.
const DELAYS: core::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_millis(100);

/// A connection that wants to be woken in less than this waits for something.
const QUIET: Duration = Duration::from_secs(1);

/// The last part of the delay, in which an acknowledgement may leave. Until then
/// the owner may have an answer that takes it along.
const EARLY_PART: u32 = 4;

/// Acknowledgements in a row that nothing took along, after which they need not wait.
const LONELY_MIN: u8 = 4;

/// What is known of it.
#[derive(Debug, Default)]
pub(super) struct AckWait {
    /// How long the peer lets acknowledgements wait.
    delay: Duration,
    /// What may be that, seen once.
    candidate: Duration,
    due: Option<StdInstant>,
    /// Acknowledgements in a row that nothing took along, up to [`LONELY_MIN`].
    lonely: u8,
    /// Until when the last one, which did not wait so long, could have waited.
    spared: Option<StdInstant>,
}

impl AckWait {
    /// A packet came; quinn-proto wanted to be woken at `before`, and wants to be
    /// at `after` now.
    pub(super) fn note(
        &mut self,
        came: StdInstant,
        before: Option<StdInstant>,
        after: Option<StdInstant>,
    ) {
        if before == after && self.due == after {
            return;
        }
        self.judge(before);
        let until = |at: StdInstant| at.saturating_duration_since(came);
        let delay = after.map(until).filter(|delay| DELAYS.contains(delay));
        // Peers ask for whole microseconds.
        let delay = delay.filter(|delay| delay.subsec_nanos().is_multiple_of(1_000));
        if let Some(delay) = delay
            && before != after
        {
            let is_alone = before.is_none_or(|at| until(at) > QUIET);
            if is_alone || delay == self.candidate {
                self.delay = delay;
            }
            self.candidate = delay;
        }
        self.due = after.filter(|_| delay == Some(self.delay));
        if self.due.is_some() && self.spared.take_if(|until| came < *until).is_some() {
            // One would have done for both.
            self.lonely = 0;
        }
    }

    /// The peer has moved: quinn-proto's timers are still for the path before, and must
    /// not be run before something is sent.
    pub(super) const fn moved(&mut self) {
        self.due = None;
    }

    /// quinn-proto wants to be woken at `timeout`: if that is not for the
    /// acknowledgement that waited, something has taken it along.
    fn judge(&mut self, timeout: Option<StdInstant>) {
        if self.due.is_some() && self.due != timeout {
            self.due = None;
            self.lonely = 0;
        }
    }

    /// The delay is over, or nearly, and nothing has taken the acknowledgement along.
    fn end(&mut self, timeout: Option<StdInstant>) -> Option<StdInstant> {
        self.judge(timeout);
        let due = self.due.take()?;
        self.lonely = (self.lonely + 1).min(LONELY_MIN);
        Some(due)
    }

    /// A timer of quinn-proto, which wants to be woken at `timeout`, is looked at.
    pub(super) fn on_timer(&mut self, now: StdInstant, timeout: Option<StdInstant>) {
        if self.due.is_some_and(|due| due <= now) {
            self.end(timeout);
        }
    }

    /// Whether it is likely to wait in vain.
    const fn is_lonely(&self) -> bool {
        self.lonely >= LONELY_MIN
    }

    /// What was due has left. If that was more than an acknowledgement, quinn-proto,
    /// which wanted to be woken at `before`, wants to be sooner: the other may be lost.
    pub(super) fn sent(
        &mut self,
        before: Option<StdInstant>,
        now: StdInstant,
        proto: &mut Connection,
    ) {
        let timeout = proto.poll_timeout();
        self.judge(timeout);
        let sooner = timeout.is_some_and(|at| before.is_none_or(|before| at < before));
        if sooner && self.spared.take_if(|until| now < *until).is_some() {
            self.lonely = 0;
        }
    }
}

/// The acknowledgement of a connection that waits.
pub struct AcksMut<'a> {
    wait: &'a mut AckWait,
    proto: &'a mut Connection,
}

impl fmt::Debug for AcksMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcksMut")
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}

impl<'a> AcksMut<'a> {
    /// That of this connection.
    pub const fn of(conn: &'a mut QuicConn) -> Self {
        Self {
            wait: &mut conn.ack_wait,
            proto: &mut conn.proto,
        }
    }

    /// From when on it may leave with datagrams of other connections; `None`: there
    /// is none.
    pub fn early_from(&mut self, clock: &Clock) -> Option<Instant> {
        let due = self.due()?;
        let part = match self.wait.is_lonely() {
            true => self.wait.delay,
            false => self.wait.delay / EARLY_PART,
        };
        Some(clock.from_std(due.checked_sub(part)?))
    }

    /// How long it may wait, if that is likely to be in vain.
    pub fn in_vain(&mut self) -> Option<Duration> {
        (self.wait.is_lonely() && self.due().is_some()).then_some(self.wait.delay)
    }

    fn due(&mut self) -> Option<StdInstant> {
        let due = self.wait.due;
        due.filter(|at| self.proto.poll_timeout() == Some(*at))
    }

    /// Has the next transmission carry it. Nothing else is due at that time.
    pub fn leave(&mut self) {
        let was_lonely = self.wait.is_lonely();
        if let Some(due) = self.wait.end(self.proto.poll_timeout()) {
            self.wait.spared = was_lonely.then_some(due);
            self.proto.handle_timeout(due);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_is_learned_and_only_what_has_it_is_an_acknowledgement() {
        let start = StdInstant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        let idle = Some(start + Duration::from_secs(98_303));
        let mut wait = AckWait::default();
        // A timer of something that was sent, beside which nothing is learned.
        wait.note(at(0), Some(at(30)), Some(at(20)));
        assert_eq!(wait.due, None);
        wait.note(at(100), idle, Some(at(125)));
        assert_eq!(
            (wait.due, wait.delay),
            (Some(at(125)), Duration::from_millis(25))
        );
        // Another packet, for which nothing changes.
        wait.note(at(110), Some(at(125)), Some(at(125)));
        assert_eq!(wait.due, Some(at(125)));
        // Sent; something is in flight, and an acknowledgement of it comes.
        wait.note(at(130), Some(at(180)), Some(at(190)));
        assert_eq!(wait.due, None);
        // A packet comes while something is in flight.
        wait.note(at(140), Some(at(190)), Some(at(165)));
        assert_eq!(wait.due, Some(at(165)));
        // The peer asks for another delay.
        wait.note(at(200), Some(at(290)), Some(at(205)));
        assert_eq!(wait.due, None);
        wait.note(at(300), None, Some(at(305)));
        assert_eq!(
            (wait.due, wait.delay),
            (Some(at(305)), Duration::from_millis(5))
        );
        // One that is in no hurry.
        wait.note(at(400), idle, Some(at(600)));
        assert_eq!((wait.due, wait.delay), (None, Duration::from_millis(5)));
        wait.note(at(700), idle, idle);
        assert_eq!(wait.due, None);
    }

    #[test]
    fn the_same_delay_twice_in_a_row_is_that_of_acknowledgements() {
        let start = StdInstant::now();
        let at = |micros: u64| start + Duration::from_micros(micros);
        let mut wait = AckWait::default();
        // Packets that acknowledge what was in flight, and carry something.
        wait.note(at(0), Some(at(30_000)), Some(at(5_000)));
        assert_eq!(wait.due, None, "once");
        wait.note(at(100_000), Some(at(130_000)), Some(at(105_000)));
        assert_eq!(wait.due, Some(at(105_000)));
        // Others change nothing but what may be the delay.
        wait.note(at(200_000), Some(at(230_000)), Some(at(207_123)));
        wait.note(at(300_000), Some(at(330_000)), Some(at(308_456)));
        assert_eq!((wait.due, wait.delay), (None, Duration::from_millis(5)));
        // A timer that a packet does not change is not for its acknowledgement.
        for _ in 0..3 {
            wait.note(at(400_000), Some(at(409_000)), Some(at(409_000)));
            assert_eq!((wait.due, wait.delay), (None, Duration::from_millis(5)));
        }
        // A timer of losses is a mean of round-trip times.
        for begin in [500_000, 600_000] {
            let after = at(begin + 9_000) + Duration::from_nanos(250);
            wait.note(at(begin), Some(at(begin + 40_000)), Some(after));
            assert_eq!((wait.due, wait.delay), (None, Duration::from_millis(5)));
        }
    }

    #[test]
    fn only_waiting_in_vain_counts() {
        let start = StdInstant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        let idle = Some(start + Duration::from_secs(98_303));
        let mut wait = AckWait::default();
        for round in 1..=6_u64 {
            let came = round * 100;
            wait.note(at(came), idle, Some(at(came + 5)));
            wait.on_timer(at(came + 4), Some(at(came + 5)));
            assert_eq!(wait.due, Some(at(came + 5)), "not yet");
            wait.on_timer(at(came + 5), Some(at(came + 5)));
            assert_eq!(wait.due, None);
            assert_eq!(u64::from(wait.lonely), round.min(4));
        }
        // It left before the timer was looked at.
        wait.note(at(900), idle, Some(at(905)));
        wait.on_timer(at(905), Some(at(950)));
        assert_eq!((wait.due, wait.lonely), (None, 0));
    }
}
