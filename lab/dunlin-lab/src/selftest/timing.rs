//! Delay, jitter, rate, and packets a second.

use core::time::Duration;
use std::thread;
use std::time::Instant;

use anyhow::Result;
use dunlin_link::Topology;

use super::bench::{Bench, DRAIN, Pace, on_thread};
use super::{DEVIATIONS_99, Line, SelfTest, pair};

impl SelfTest {
    /// Times from host to host beside the delay.
    pub(super) fn delays(&mut self) -> Result<()> {
        let delays: &[u64] = if self.short {
            &[0, 10]
        } else {
            &[0, 1, 10, 50, 250]
        };
        for delay in delays {
            let topology = pair(&[&format!("delay={delay}ms")])?;
            self.delay(topology, "a", "b", *delay, "delay, one way")?;
        }
        Ok(())
    }

    /// Times between two hosts that should all be this one, in milliseconds.
    pub(super) fn delay(
        &mut self,
        topology: Topology,
        from: &str,
        to: &str,
        expected_ms: u64,
        what: &str,
    ) -> Result<()> {
        let probes = if self.short { 100 } else { 400 };
        let bench = Bench::start(topology, to)?;
        self.realtime &= bench.testbed.no_realtime().is_none();
        let sender = bench.sender(from)?;
        on_thread(|| sender.probe(probes))?;
        let expected = Duration::from_millis(expected_ms);
        let seen = bench.end(expected);
        let error = seen.time(50).saturating_sub(expected);
        let early = seen.times.first().is_none_or(|first| *first < expected);
        let shown = format!(
            "p50 {:.3} p99 {:.3} ms",
            millis(seen.time(50)),
            millis(seen.time(99))
        );
        self.line(Line {
            what,
            expected: &format!("{expected_ms} ms"),
            seen: &shown,
            good: error <= self.bounds.delay && !early && seen.report.trouble().is_empty(),
            timing: true,
        });
        Ok(())
    }

    /// Deviation of the times, which jitter makes.
    pub(super) fn jitters(&mut self) -> Result<()> {
        let probes: u32 = if self.short { 150 } else { 600 };
        // A uniform variation up to 3 ms deviates by 3 ms over the root of 3.
        let cases = [("2ms", 2.0), ("uniform 3ms", 3.0 / f64::sqrt(3.0))];
        for (jitter, expected) in cases.into_iter().take(if self.short { 1 } else { 2 }) {
            let settings = ["delay=20ms", "order=free", &format!("jitter={jitter}")];
            let bench = Bench::start(pair(&settings)?, "b")?;
            let sender = bench.sender("a")?;
            on_thread(|| sender.probe(probes.into()))?;
            let seen = bench.end(Duration::from_millis(40));
            let times: Vec<f64> = seen.times.iter().copied().map(millis).collect();
            let (mean, deviation) = moments(&times);
            // Of a sample of this size, and what delay itself may be off.
            let allowed = DEVIATIONS_99 * expected / f64::sqrt(2.0 * f64::from(probes))
                + millis(self.bounds.delay) / 2.0;
            let off = (mean - 20.0).abs()
                <= DEVIATIONS_99 * expected / f64::from(probes).sqrt() + millis(self.bounds.delay);
            self.line(Line {
                what: &format!("deviation, jitter {jitter}"),
                expected: &format!("{expected:.2}±{allowed:.2} ms"),
                seen: &format!("{deviation:.3}, mean {mean:.3} ms"),
                good: (deviation - expected).abs() <= allowed && off,
                timing: true,
            });
        }
        Ok(())
    }

    /// Bytes through a limited rate, while twice as much is offered.
    pub(super) fn rates(&mut self) -> Result<()> {
        let rates: &[u32] = if self.short { &[10] } else { &[1, 10, 100] };
        for mbit in rates {
            let topology = pair(&[&format!("rate={mbit}mbit"), &queue_for(*mbit)])?;
            let what = format!("rate, {} Mbit/s offered", 2 * mbit);
            self.rate(topology, &["a"], "b", "link", *mbit, &what)?;
        }
        Ok(())
    }

    /// Bytes that leave a link, while all senders together offer twice its rate.
    pub(super) fn rate(
        &mut self,
        topology: Topology,
        from: &[&str],
        to: &str,
        link: &str,
        mbit: u32,
        what: &str,
    ) -> Result<()> {
        let bench = Bench::start(topology, to)?;
        let share = u32::try_from(from.len()).unwrap_or(1).max(1);
        let pace = Pace {
            count: mbit * 200 / share * if self.short { 1 } else { 3 },
            per_second: mbit * 200 / share,
            len: 1_222, // 1250 with headers
            numbered: false,
        };
        let senders = from.iter().map(|from| bench.sender(from));
        let senders: Vec<_> = senders.collect::<Result<_>>()?;
        let bytes = || {
            let report = bench.testbed.report();
            report.link(link).map_or(0, |link| link.up.bytes_out)
        };
        let (before, begun) = (bytes(), Instant::now());
        thread::scope(|scope| {
            let running: Vec<_> = senders
                .iter()
                .map(|sender| scope.spawn(|| on_thread(|| sender.pace(pace))))
                .collect();
            running
                .into_iter()
                .try_for_each(|sender| sender.join().unwrap_or(Ok(())))
        })?;
        let (after, took) = (bytes(), begun.elapsed());
        let seen = bench.end(Duration::ZERO);
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let rate = (after - before) as f64 * 8.0 / 1e6 / took.as_secs_f64();
        self.line(Line {
            what,
            expected: &format!("{mbit} Mbit/s"),
            seen: &format!("{rate:.3} Mbit/s"),
            good: self.within_rate(rate, f64::from(mbit)) && seen.report.trouble().is_empty(),
            timing: true,
        });
        Ok(())
    }

    /// Packets a second at which nothing is lost behind the link's back, and
    /// the most that it moves.
    pub(super) fn packets_per_second(&mut self) -> Result<()> {
        let bench = Bench::start(pair(&["delay=5ms"])?, "b")?;
        let sender = bench.sender("a")?;
        let pace = Pace {
            count: self.bounds.pps,
            per_second: self.bounds.pps,
            len: 100,
            numbered: false,
        };
        on_thread(|| sender.pace(pace))?;
        thread::sleep(DRAIN);
        let report = bench.testbed.report();
        let late = report.lateness.quantile_us(0.99);
        self.line(Line {
            what: &format!("{} packets in 1 s, kernel drops", self.bounds.pps),
            expected: "0 dropped",
            seen: &format!("{} dropped, late p99 {late} us", report.kernel_drops),
            good: report.kernel_drops == 0,
            timing: true,
        });
        let fast = Pace {
            count: if self.short { 50_000 } else { 300_000 },
            per_second: u32::MAX,
            ..pace
        };
        let packets = |report: &dunlin_link::linux::TestbedReport| {
            report.link("link").map_or(0, |link| link.up.packets_in)
        };
        let (before, begun) = (packets(&report), Instant::now());
        on_thread(|| sender.pace(fast))?;
        let (after, took) = (packets(&bench.testbed.report()), begun.elapsed());
        let _ = bench.end(Duration::ZERO);
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let kpps = (after - before) as f64 / 1e3 / took.as_secs_f64();
        self.line(Line {
            what: "as fast as one sender can",
            expected: "-",
            seen: &format!("{kpps:.0} kpps"),
            good: true,
            timing: false,
        });
        Ok(())
    }
}

/// A queue of a tenth of a second, so that a sender who is held up by others
/// for less does not show as a slow link.
pub(super) fn queue_for(mbit: u32) -> String {
    format!("queue={}B", u64::from(mbit) * 12_500)
}

/// Mean and deviation.
#[expect(clippy::cast_precision_loss, reason = "a count of probes")]
fn moments(values: &[f64]) -> (f64, f64) {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0).max(1.0)).sqrt())
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
