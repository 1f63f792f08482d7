//! How exact links are on this machine: delay, jitter, rate, loss, packets a
//! second, on one link and over several.

mod bench;
mod losses;
mod paths;
mod timing;

use core::time::Duration;
use std::process::ExitCode;

use anyhow::Result;
use dunlin_link::Topology;
use dunlin_link::linux::missing;

use crate::console;
use crate::profile;

/// How far a measurement may be off.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Error of the median delay.
    delay: Duration,
    /// Error of a rate, as a share of it.
    rate: f64,
    /// Packets a second at which the kernel must drop nothing.
    pps: u32,
}

/// What an idle machine keeps, judged by the whole test.
const IDLE: Bounds = Bounds {
    delay: Duration::from_micros(200),
    rate: 0.05,
    pps: 50_000,
};

/// What a machine keeps that others use too, judged by the short test: it is
/// there to find a link that is wrong, and not a machine that is busy.
const BUSY: Bounds = Bounds {
    delay: Duration::from_millis(2),
    rate: 0.15,
    pps: 20_000,
};

/// Deviations that 99 % of normal draws keep.
const DEVIATIONS_99: f64 = 2.576;

/// Runs all measurements; fails if one misses its target. Where there can be
/// no link that is said, and no failure.
pub(crate) fn run(short: bool) -> Result<ExitCode> {
    if let Some(what) = missing() {
        console::line(format_args!("link self-test: SKIPPED: {what}"));
        return Ok(ExitCode::SUCCESS);
    }
    let mut test = SelfTest {
        short,
        bounds: if short { BUSY } else { IDLE },
        passed: true,
        realtime: true,
    };
    console::line(format_args!(
        "{:<36} {:>13} {:>28}  verdict",
        "measurement", "expected", "seen"
    ));
    test.delays()?;
    test.jitters()?;
    test.losses()?;
    test.rates()?;
    test.paths()?;
    test.packets_per_second()?;
    let verdict = match (test.passed, test.realtime) {
        (true, true) => "link self-test: passed",
        (false, true) => "link self-test: FAILED",
        (_, false) => "link self-test: no real-time priority, so times were not judged",
    };
    console::line(verdict);
    Ok(if test.passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

struct SelfTest {
    short: bool,
    bounds: Bounds,
    passed: bool,
    realtime: bool,
}

/// A measurement.
struct Line<'a> {
    what: &'a str,
    expected: &'a str,
    seen: &'a str,
    good: bool,
    /// Whether it is about time, which means nothing without real-time priority.
    timing: bool,
}

impl SelfTest {
    fn within_rate(&self, seen: f64, expected: f64) -> bool {
        (seen / expected - 1.0).abs() <= self.bounds.rate
    }

    fn line(&mut self, line: Line<'_>) {
        let judged = self.realtime || !line.timing;
        self.passed &= line.good || !judged;
        let verdict = match (line.good, judged) {
            (true, _) => "ok",
            (false, true) => "MISSED",
            (false, false) => "not judged",
        };
        console::line(format_args!(
            "{:<36} {:>13} {:>28}  {verdict}",
            line.what, line.expected, line.seen
        ));
    }
}

/// Two hosts, and a link with these settings.
fn pair(settings: &[&str]) -> Result<Topology> {
    Ok(Topology::pair(profile::of(settings)?))
}

/// What 99 % of runs keep to, around the expected number of lost packets.
fn deviation(sent: u32, share: f64) -> f64 {
    DEVIATIONS_99 * (f64::from(sent) * share * (1.0 - share)).sqrt()
}
