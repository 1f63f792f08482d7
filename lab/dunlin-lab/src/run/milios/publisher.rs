//! A publisher that reads lines is given one at a time; a subscriber tells when
//! they arrive. Processor time and memory are the publisher's.

use core::time::Duration;
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};

use crate::process::{memory, processor};
use crate::run::dialog::Dialog;
use crate::run::stats::quantile_of;

/// Time that the processor's use is looked at for, as `htop` does.
const WINDOW: Duration = Duration::from_secs(1);

/// Between two looks at the clock.
const LOOK: Duration = Duration::from_millis(20);

/// Longest wait for the publisher to connect and for its first message.
const START_MAX: Duration = Duration::from_secs(60);

/// Quiet time before the first line that counts.
const SETTLE: Duration = Duration::from_millis(500);

/// Longest wait for the last messages.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of a line.
const PAYLOAD: usize = 64;

/// What came of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Published {
    /// From the line to the arrival, in microseconds.
    pub(super) delivered_us: Vec<u64>,
    pub(super) lost: usize,
    /// Processor time of the publisher until its first message had arrived.
    pub(super) start_cpu: Duration,
    /// ... and for all lines that count.
    pub(super) lines_cpu: Duration,
    /// Use of one processor in each second, the start included, in percent.
    pub(super) cpu_percent: Vec<f64>,
    /// Most memory at a time.
    pub(super) resident_bytes: u64,
    /// Memory that no file is behind, at the end.
    pub(super) private_bytes: u64,
    /// How far behind its schedule it was with all but one in fifty.
    pub(super) late_us: u64,
}

/// Gives the publisher so many lines, that time apart. The subscriber prints the
/// time of arrival, as `%U` of `dunlin sub`, and the line.
pub(super) fn feed(
    publisher: &mut Dialog,
    subscriber: &Dialog,
    count: usize,
    every: Duration,
) -> Result<Published> {
    let mut done = Published::default();
    let mut usage = Usage::new(publisher.id());
    // The first line is the warm-up: it connects first.
    publisher.give(&line(0))?;
    let begun = Instant::now();
    while subscriber.next(LOOK).is_none() {
        usage.look()?;
        if begun.elapsed() > START_MAX {
            bail!("nothing of the publisher arrived within {START_MAX:?}");
        }
    }
    thread::sleep(SETTLE);
    done.start_cpu = processor(publisher.id())?;
    let start = Instant::now();
    let (mut sent, mut late) = (Vec::new(), Vec::new());
    let mut arrived = vec![None; count];
    for number in 1..=count {
        let due = start + every * u32::try_from(number - 1)?;
        while let Some(left) = due.checked_duration_since(Instant::now()) {
            thread::sleep(left.min(LOOK));
            usage.look()?;
        }
        late.push(due.elapsed().as_secs_f64() * 1e6);
        sent.push(SystemTime::now());
        publisher.give(&line(number))?;
    }
    let end = Instant::now() + PATIENCE;
    while arrived.contains(&None) && Instant::now() < end {
        usage.look()?;
        let Some((at, number)) = subscriber.next(LOOK).as_deref().and_then(arrival) else {
            continue;
        };
        let index = number.checked_sub(1);
        let place = index.and_then(|index| Some((sent.get(index)?, arrived.get_mut(index)?)));
        if let Some((sent, slot @ None)) = place {
            let took = at.duration_since(*sent).unwrap_or_default();
            *slot = Some(u64::try_from(took.as_micros())?);
        }
    }
    done.lines_cpu = processor(publisher.id())?.saturating_sub(done.start_cpu);
    done.resident_bytes = memory(publisher.id(), "VmHWM:")?;
    done.private_bytes = memory(publisher.id(), "RssAnon:")?;
    done.lost = arrived.iter().filter(|at| at.is_none()).count();
    done.delivered_us = arrived.into_iter().flatten().collect();
    if usage.percent.is_empty() {
        usage.close()?;
    }
    done.cpu_percent = usage.percent;
    done.late_us = Duration::from_secs_f64(quantile_of(&late, 0.98) / 1e6)
        .as_micros()
        .try_into()?;
    Ok(done)
}

/// A line of [`PAYLOAD`] bytes with a number in front.
fn line(number: usize) -> String {
    format!("{:.<PAYLOAD$}", format!("{number}."))
}

/// Time and number of a line that arrived.
fn arrival(said: &str) -> Option<(SystemTime, usize)> {
    let (at, line) = said.split_once(' ')?;
    let (seconds, nanoseconds) = at.split_once('.')?;
    let at = Duration::new(seconds.parse().ok()?, nanoseconds.parse().ok()?);
    let number = line.split('.').next()?.parse().ok()?;
    Some((UNIX_EPOCH + at, number))
}

/// Use of the processor second by second.
struct Usage {
    process: u32,
    since: Instant,
    used: Duration,
    percent: Vec<f64>,
}

impl Usage {
    /// From the start of the process.
    fn new(process: u32) -> Self {
        Self {
            process,
            since: Instant::now(),
            used: Duration::ZERO,
            percent: Vec::new(),
        }
    }

    fn look(&mut self) -> Result<()> {
        match self.since.elapsed() < WINDOW {
            true => Ok(()),
            false => self.close(),
        }
    }

    /// Ends a window: what is left at the end makes one only where there is no
    /// other.
    fn close(&mut self) -> Result<()> {
        let now = processor(self.process).context("the publisher ended")?;
        let used = now.saturating_sub(self.used).as_secs_f64();
        let share = used / self.since.elapsed().as_secs_f64();
        self.percent.push(share * 100.0);
        (self.since, self.used) = (Instant::now(), now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_again_with_its_time() {
        let line = line(7);
        assert_eq!(line.len(), PAYLOAD);
        let at = UNIX_EPOCH + Duration::new(12, 5_000);
        assert_eq!(arrival(&format!("12.000005000 {line}")), Some((at, 7)));
        assert_eq!(arrival("Subscribed 'plant'"), None);
    }
}
