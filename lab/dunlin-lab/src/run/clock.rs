//! Times for people: how long runs take and took, and dates.

use core::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

use super::experiment::Experiment;
use super::record::{Cell, Scale};
use crate::console;

/// How long these cells take on a machine with nothing else to do.
pub(crate) fn estimate(experiment: &dyn Experiment, cells: &[Cell], scale: Scale) -> Duration {
    let seconds = cells.iter().map(|cell| experiment.seconds(cell, scale));
    Duration::from_secs_f64(seconds.sum())
}

/// What each experiment was to take, and took.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    rows: Vec<(&'static str, Duration, Option<Duration>)>,
}

impl Budget {
    pub(crate) fn plan(&mut self, name: &'static str, time: Duration) {
        self.rows.push((name, time, None));
    }

    /// An experiment has ended.
    pub(crate) fn took(&mut self, name: &'static str, time: Duration) {
        if let Some((.., took)) = self.rows.iter_mut().find(|(of, ..)| *of == name) {
            *took = Some(time);
        }
    }

    /// Prints it: estimates at the start, what they were worth at the end.
    pub(crate) fn print(&self) {
        let ended = self.rows.iter().any(|(.., took)| took.is_some());
        console::line(match ended {
            false => "time that it will take, about:",
            true => "time that it took, and was to take:",
        });
        let mut sums = (Duration::ZERO, Duration::ZERO);
        for (name, estimate, took) in &self.rows {
            sums.0 += *estimate;
            sums.1 += took.unwrap_or_default();
            let took = took.map_or_else(|| "-".to_owned(), shown);
            line(ended, name, &took, *estimate);
        }
        line(ended, "all", &shown(sums.1), sums.0);
    }
}

fn line(ended: bool, name: &str, took: &str, estimate: Duration) {
    let estimate = shown(estimate);
    match ended {
        false => console::line(format_args!("   {name:<20} {estimate:>14}")),
        true => console::line(format_args!("   {name:<20} {took:>14} {estimate:>14}")),
    }
}

/// For people, such as `1 h 20 min` or `40 s`.
pub(crate) fn shown(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3600, seconds / 60 % 60) {
        (0, 0) => format!("{seconds} s"),
        (0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

/// The time in UTC, as RFC 3339 has it.
pub(crate) fn now() -> String {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    rfc3339(since.as_secs())
}

fn rfc3339(seconds: u64) -> String {
    let (mut day, of_day) = (seconds / 86_400, seconds % 86_400);
    let leap =
        |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let mut year = 1970;
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let months = [
        31,
        28 + u64::from(leap(year)),
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ];
    let mut month = 1;
    for days in months {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!(
        "{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z",
        day + 1
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_dates() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (1_795_284_000, "2026-11-21T18:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
        }
    }

    #[test]
    fn estimates_are_for_people() {
        assert_eq!(shown(Duration::from_secs(40)), "40 s");
        assert_eq!(shown(Duration::from_secs(140)), "2 min 20 s");
        assert_eq!(shown(Duration::from_secs(4800)), "1 h 20 min");
    }
}
