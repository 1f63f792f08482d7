//! How long a turn waits for more datagrams before it reads, so that under load it
//! reads and sends more with each system call. It knows numbers and times only.

use core::time::Duration;

use dunlin_base::Instant;

/// Longest time that a turn can be made to wait.
pub const GATHER_MAX: Duration = Duration::from_millis(1);

/// Over which time the load is measured.
const STRETCH: Duration = Duration::from_millis(1);

/// Fewer datagrams in that time are no load.
const DATAGRAMS_MIN: u64 = 4;

/// Measures the load.
#[derive(Debug, Default)]
pub(super) struct Gather {
    since: Instant,
    /// Datagrams received in all until then.
    before: u64,
    /// Datagrams in a stretch, by the last measurement.
    load: u64,
}

impl Gather {
    /// How long the turn that begins now is to wait: `most` if the load lets another
    /// datagram be expected in that time, else not at all. `datagrams` is how many were
    /// received so far.
    pub(super) fn time(&mut self, now: Instant, datagrams: u64, most: Duration) -> Duration {
        if most.is_zero() {
            return Duration::ZERO;
        }
        let passed = now.saturating_duration_since(self.since);
        if passed >= STRETCH {
            let came = u128::from(datagrams.saturating_sub(self.before));
            let load = came * STRETCH.as_nanos() / passed.as_nanos();
            self.load = u64::try_from(load).unwrap_or(u64::MAX);
            self.since = now;
            self.before = datagrams;
        }
        let most = most.min(GATHER_MAX);
        let expected = u128::from(self.load) * most.as_nanos() / STRETCH.as_nanos();
        match self.load >= DATAGRAMS_MIN && expected > 0 {
            true => most,
            false => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    /// So many datagrams come at this distance, and the loop has turns: each waits, if it
    /// is to, and then for the next datagram. How many turns there were, how many of
    /// them waited, and how long altogether.
    fn turns(count: u64, distance: Duration, most: Duration) -> (u64, u64, Duration) {
        let mut gather = Gather::default();
        let start = Instant::ZERO + Duration::from_secs(1);
        let (mut now, mut came) = (start, 0);
        let (mut turns, mut waits, mut all) = (0, 0, Duration::ZERO);
        while came < count {
            let time = gather.time(now, came, most);
            assert!(time <= most && time <= GATHER_MAX);
            turns += 1;
            waits += u64::from(!time.is_zero());
            all += time;
            now = (now + time).max(start + distance * u32::try_from(came + 1).unwrap());
            let passed = now.saturating_duration_since(start);
            came = u64::try_from(passed.as_nanos() / distance.as_nanos()).unwrap();
        }
        (turns, waits, all)
    }

    #[test]
    fn a_turn_waits_only_if_another_datagram_is_expected_meanwhile() {
        // One in 50 us: two in 100 us. One in 150 us: none in 100 us.
        let (few, waits, all) = turns(1000, US * 50, US * 100);
        assert!((500..600).contains(&few), "half as many turns: {few}");
        assert!(waits + 50 > few && all == US * 100 * u32::try_from(waits).unwrap());
        assert_eq!(turns(1000, US * 150, US * 100), (1000, 0, Duration::ZERO));
        let (few, ..) = turns(1000, US * 150, US * 500);
        assert!(few < 400, "{few}");
        // Less than the smallest load, however long a turn may wait.
        assert_eq!(turns(1000, US * 300, GATHER_MAX).1, 0);
        assert_eq!(turns(1000, Duration::from_secs(1), GATHER_MAX).1, 0);
        assert_eq!(turns(1000, US, Duration::ZERO).1, 0, "off");
        let (_, waits, all) = turns(9000, US, Duration::from_secs(1));
        assert!(waits > 2 && all == GATHER_MAX * u32::try_from(waits).unwrap());
    }

    #[test]
    fn after_a_burst_one_turn_waits_at_most() {
        let mut gather = Gather::default();
        let mut now = Instant::ZERO + Duration::from_secs(1);
        for datagrams in 0..100 {
            let _ = gather.time(now, datagrams, US * 100);
            now += US * 20;
        }
        assert_eq!(gather.time(now, 100, US * 100), US * 100);
        // The next has nothing to wait for, whenever it is.
        now += Duration::from_millis(5);
        assert_eq!(gather.time(now, 101, US * 100), Duration::ZERO);
        for _ in 0..10 {
            now += Duration::from_secs(1);
            assert_eq!(gather.time(now, 101, US * 100), Duration::ZERO);
        }
    }
}
