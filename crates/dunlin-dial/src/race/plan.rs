//! Which transport to try when, and which one wins: decisions in given time,
//! without sockets. QUIC is wanted; TLS over TCP must not wait for it much
//! longer than it takes itself.

use core::time::Duration;

use dunlin_base::Instant;

/// Head start of QUIC where nothing is known: long enough that on a fast
/// network TLS is often not begun, short against any round trip that matters.
pub(crate) const HEAD_START_UNKNOWN: Duration = Duration::from_millis(10);

/// Bounds of the head start where QUIC worked before.
const HEAD_START_MIN: Duration = Duration::from_millis(10);
const HEAD_START_MAX: Duration = Duration::from_millis(250);

/// What QUIC may take longer than it should, before TLS is taken: it needs one
/// round trip where TLS over TCP needs two.
const GRACE_MIN: Duration = Duration::from_millis(5);

/// One side of the race.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runner {
    /// QUIC.
    Quic,
    /// TLS over TCP.
    Tls,
}

/// When to begin, counted from the start. `None`: only if the other fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) quic: Option<Duration>,
    pub(crate) tls: Option<Duration>,
    /// What QUIC took here before. Only where it is known, early data may stand
    /// for an answer: it opens a connection before anything came through.
    pub(crate) took: Option<Duration>,
    /// QUIC may take longer than it should.
    grace: bool,
}

impl Plan {
    /// Nothing is known of this network.
    pub(crate) const UNKNOWN: Self = Self {
        quic: Some(Duration::ZERO),
        tls: Some(HEAD_START_UNKNOWN),
        took: None,
        grace: true,
    };

    /// QUIC does not get through.
    pub(crate) const BLOCKED: Self = Self {
        quic: None,
        tls: Some(Duration::ZERO),
        took: None,
        grace: true,
    };

    /// It did not get through, and it is time to try again.
    pub(crate) const PROBE: Self = Self {
        quic: Some(Duration::ZERO),
        tls: Some(Duration::ZERO),
        took: None,
        grace: true,
    };

    /// It worked before, and has just left early data without an answer. TLS
    /// goes first: QUIC takes another ticket out of its file.
    pub(crate) const SILENT: Self = Self {
        quic: Some(GRACE_MIN),
        grace: false,
        ..Self::PROBE
    };

    /// QUIC took this long before.
    pub(crate) fn after_success(took: Duration) -> Self {
        let head_start = (took * 5 / 4).clamp(HEAD_START_MIN, HEAD_START_MAX);
        Self {
            quic: Some(Duration::ZERO),
            tls: Some(head_start),
            took: Some(took),
            grace: true,
        }
    }

    /// With a head start that the application chose.
    pub(crate) fn with_head_start(self, head_start: Option<Duration>) -> Self {
        match (self.quic, head_start) {
            (Some(_), Some(_)) => Self {
                tls: head_start,
                ..self
            },
            _ => self,
        }
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Begin with this one.
    Start(Runner),
    /// Take this one, drop the other.
    Win(Runner),
    /// Look again then, or when something happens.
    Wait(Option<Instant>),
    /// Both failed.
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// `None`: only if the other fails.
    Due(Option<Instant>),
    Running(Instant),
    Open {
        since: Instant,
        at: Instant,
    },
    Failed,
}

/// A race that is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Race {
    quic: State,
    tls: State,
    grace: bool,
}

impl Race {
    pub(crate) fn new(now: Instant, plan: Plan) -> Self {
        let due = |after: Option<Duration>| State::Due(after.map(|after| now + after));
        Self {
            quic: due(plan.quic),
            tls: due(plan.tls),
            grace: plan.grace,
        }
    }

    /// [`Step::Start`] was done.
    pub(crate) fn started(&mut self, runner: Runner, now: Instant) {
        *self.state(runner) = State::Running(now);
    }

    /// It could carry the protocol now.
    pub(crate) fn opened(&mut self, runner: Runner, now: Instant) {
        if let State::Running(since) = *self.state(runner) {
            *self.state(runner) = State::Open { since, at: now };
        }
    }

    /// It will not, or does not any more.
    pub(crate) fn failed(&mut self, runner: Runner) {
        *self.state(runner) = State::Failed;
    }

    /// How long it took, if it is open.
    pub(crate) fn took(&self, runner: Runner) -> Option<Duration> {
        let state = match runner {
            Runner::Quic => self.quic,
            Runner::Tls => self.tls,
        };
        match state {
            State::Open { since, at } => Some(at.saturating_duration_since(since)),
            _ => None,
        }
    }

    /// Whether QUIC was tried and did not come through.
    pub(crate) fn quic_missed(&self) -> bool {
        matches!(self.quic, State::Running(_) | State::Failed)
    }

    pub(crate) fn next(&self, now: Instant) -> Step {
        if let State::Open { .. } = self.quic {
            return Step::Win(Runner::Quic);
        }
        if let State::Open { since, at } = self.tls {
            let until = match self.quic {
                State::Running(quic_since) if self.grace => {
                    let took = at.saturating_duration_since(since);
                    quic_since + took + (took / 4).max(GRACE_MIN)
                }
                _ => now,
            };
            return match until <= now {
                true => Step::Win(Runner::Tls),
                false => Step::Wait(Some(until)),
            };
        }
        let mut wait: Option<Instant> = None;
        let sides = [
            (Runner::Quic, self.quic, self.tls),
            (Runner::Tls, self.tls, self.quic),
        ];
        for (runner, state, other) in sides {
            let State::Due(at) = state else {
                continue;
            };
            match at {
                _ if other == State::Failed => return Step::Start(runner),
                Some(at) if at <= now => return Step::Start(runner),
                Some(at) => wait = Some(wait.map_or(at, |wait| wait.min(at))),
                None => {}
            }
        }
        if self.quic == State::Failed && self.tls == State::Failed {
            return Step::Lost;
        }
        Step::Wait(wait)
    }

    fn state(&mut self, runner: Runner) -> &mut State {
        match runner {
            Runner::Quic => &mut self.quic,
            Runner::Tls => &mut self.tls,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the network does: how long each handshake takes, `None` for ever;
    /// a negative time is a failure after that time.
    #[derive(Clone, Copy)]
    struct Network {
        quic: Option<i64>,
        tls: Option<i64>,
    }

    /// Runs a race in virtual time; who won, after how many milliseconds, and
    /// whether TLS was begun.
    fn run(plan: Plan, network: Network) -> (Option<Runner>, u64, bool) {
        let mut now = Instant::ZERO;
        let mut race = Race::new(now, plan);
        let mut events: Vec<(Instant, Runner, bool)> = Vec::new();
        let mut tls_began = false;
        for _ in 0..100 {
            let wait = match race.next(now) {
                Step::Start(runner) => {
                    race.started(runner, now);
                    tls_began |= runner == Runner::Tls;
                    let takes = match runner {
                        Runner::Quic => network.quic,
                        Runner::Tls => network.tls,
                    };
                    if let Some(millis) = takes {
                        let at = now + Duration::from_millis(millis.unsigned_abs());
                        events.push((at, runner, millis >= 0));
                    }
                    continue;
                }
                Step::Win(runner) => return (Some(runner), now.as_micros() / 1000, tls_began),
                Step::Lost => return (None, now.as_micros() / 1000, tls_began),
                Step::Wait(until) => until,
            };
            events.sort_by_key(|(at, ..)| *at);
            match (events.first().copied(), wait) {
                (Some((at, runner, opens)), wait) if wait.is_none_or(|wait| at <= wait) => {
                    events.remove(0);
                    now = at;
                    match opens {
                        true => race.opened(runner, now),
                        false => race.failed(runner),
                    }
                }
                (_, Some(wait)) => now = wait,
                (_, None) => return (None, u64::MAX, tls_began),
            }
        }
        unreachable!("the race does not end")
    }

    const QUIC: Option<Runner> = Some(Runner::Quic);
    const TLS: Option<Runner> = Some(Runner::Tls);

    /// After early data without an answer, as long as a handshake of QUIC
    /// takes and a quarter more: connected within 1.5 times the time of TLS
    /// alone, MQTT's round trip included.
    #[test]
    fn silence_after_early_data_costs_little() {
        for rtt in [20, 100, 600] {
            let network = Network {
                quic: None,
                tls: Some(2 * rtt),
            };
            let (winner, at, _) = run(Plan::SILENT, network);
            assert_eq!((winner, at), (TLS, 2 * rtt.unsigned_abs()));
            let alone = 3 * rtt.unsigned_abs();
            let waited = rtt.unsigned_abs() * 5 / 4;
            assert!(2 * (waited + at + rtt.unsigned_abs()) <= 3 * alone, "{rtt}");
        }
        let network = Network {
            quic: Some(100),
            tls: Some(200),
        };
        assert_eq!(run(Plan::SILENT, network).0, QUIC, "it was a lost packet");
    }

    #[test]
    fn quic_wins_where_it_works() {
        for rtt in [1, 20, 100, 600] {
            let network = Network {
                quic: Some(rtt),
                tls: Some(2 * rtt),
            };
            let quic_ms = Duration::from_millis(rtt.unsigned_abs());
            for plan in [Plan::UNKNOWN, Plan::PROBE, Plan::after_success(quic_ms)] {
                let (winner, at, _) = run(plan, network);
                assert_eq!((winner, at), (QUIC, rtt.unsigned_abs()), "{plan:?}");
            }
        }
        // A server that needs long for its first answer does not matter.
        let network = Network {
            quic: Some(120),
            tls: Some(110),
        };
        assert_eq!(run(Plan::UNKNOWN, network).0, QUIC);
    }

    #[test]
    fn tls_is_not_begun_where_quic_is_known_to_be_quicker() {
        let network = Network {
            quic: Some(50),
            tls: Some(100),
        };
        let plan = Plan::after_success(Duration::from_millis(50));
        assert_eq!(run(plan, network), (QUIC, 50, false));
    }

    /// With the CONNECT that follows, which takes a round trip more, TLS beside
    /// a blocked QUIC takes at most 1.5 times what it takes alone.
    #[test]
    fn a_blocked_quic_costs_less_than_half() {
        for rtt in [40_u64, 100, 250, 600] {
            let network = Network {
                quic: None,
                tls: Some(2 * rtt as i64),
            };
            let plans = [
                Plan::UNKNOWN,
                Plan::BLOCKED,
                Plan::PROBE,
                // It worked the last time.
                Plan::after_success(Duration::from_millis(rtt)),
            ];
            for plan in plans {
                let (winner, at, _) = run(plan, network);
                assert_eq!(winner, TLS);
                assert!(2 * (at + rtt) <= 3 * 3 * rtt, "{plan:?}: {at} ms of {rtt}");
            }
            assert_eq!(run(Plan::BLOCKED, network).1, 2 * rtt);
        }
    }

    #[test]
    fn a_failure_of_quic_lets_tls_begin_at_once() {
        let network = Network {
            quic: Some(-3),
            tls: Some(40),
        };
        let plan = Plan::after_success(Duration::from_millis(100));
        assert_eq!(run(plan, network), (TLS, 43, true));
    }

    #[test]
    fn what_was_not_tried_is_the_last_resort() {
        let network = Network {
            quic: Some(30),
            tls: Some(-5),
        };
        assert_eq!(run(Plan::BLOCKED, network), (QUIC, 35, true));
        let none = Network {
            quic: Some(-7),
            tls: Some(-5),
        };
        assert_eq!(run(Plan::BLOCKED, none), (None, 12, true));
        assert_eq!(run(Plan::UNKNOWN, none), (None, 12, true));
    }

    #[test]
    fn the_application_may_choose_the_head_start() {
        let plan = Plan::UNKNOWN.with_head_start(Some(Duration::from_millis(500)));
        assert_eq!(plan.tls, Some(Duration::from_millis(500)));
        let blocked = Plan::BLOCKED.with_head_start(Some(Duration::from_millis(500)));
        assert_eq!(blocked, Plan::BLOCKED);
    }
}
