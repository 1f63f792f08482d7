//! Points in time as microseconds since 1970, and their text by RFC 3339. Knows no clock.

use core::fmt;

/// Microseconds of a second.
const SECOND: i64 = 1_000_000;
/// Seconds of a day.
const DAY: i64 = 86_400;

/// Writes a point in time as RFC 3339 says, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rfc3339(pub(crate) i64);

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.0.div_euclid(SECOND), self.0.rem_euclid(SECOND));
        let (days, second) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"
        )?;
        if micros != 0 {
            write!(f, ".{micros:06}")?;
        }
        f.write_str("Z")
    }
}

/// Reads a point in time as RFC 3339 says; also with a space instead of `T`, and without
/// an offset, which then is UTC.
pub(crate) fn parse(text: &str) -> Option<i64> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let mut parts = date.split('-');
    let year = digits(parts.next()?, 4)?;
    let month = digits(parts.next()?, 2)?;
    let day = digits(parts.next()?, 2)?;
    let exists = (1..=12).contains(&month) && (1..=31).contains(&day);
    if parts.next().is_some() || !exists || civil(days(year, month, day)) != (year, month, day) {
        return None;
    }
    let (clock, offset) = split_offset(rest)?;
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let mut parts = clock.split(':');
    let hour = digits(parts.next()?, 2)?;
    let minute = digits(parts.next()?, 2)?;
    let second = digits(parts.next()?, 2)?;
    // A leap second counts as the one after it.
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = days(year, month, day) * DAY + hour * 3600 + minute * 60 + second - offset;
    Some(seconds * SECOND + micros(fraction)?)
}

/// A clock and the seconds that it is ahead of UTC.
fn split_offset(text: &str) -> Option<(&str, i64)> {
    if let Some(clock) = text.strip_suffix(['Z', 'z']) {
        return Some((clock, 0));
    }
    let Some(at) = text.rfind(['+', '-']) else {
        return Some((text, 0));
    };
    let (clock, offset) = text.split_at(at);
    let (sign, offset) = offset.split_at(1);
    let (hours, minutes) = match offset.split_once(':') {
        Some(parts) => parts,
        None if offset.len() == 4 => offset.split_at(2),
        None => (offset, "00"),
    };
    let seconds = digits(hours, 2)? * 3600 + digits(minutes, 2)? * 60;
    let ahead = match sign {
        "-" => -seconds,
        _ => seconds,
    };
    (ahead.abs() < DAY).then_some((clock, ahead))
}

/// A number of exactly so many digits.
fn digits(text: &str, count: usize) -> Option<i64> {
    let plain = text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// A fraction of a second; what is finer than a microsecond is cut off.
fn micros(fraction: &str) -> Option<i64> {
    let mut micros = 0;
    if fraction.len() > 18 {
        return None;
    }
    for place in 0..6 {
        let digit = match fraction.as_bytes().get(place) {
            Some(byte) => byte.checked_sub(b'0').filter(|digit| *digit < 10)?,
            None => 0,
        };
        micros = micros * 10 + i64::from(digit);
    }
    let finer = fraction.get(6..).unwrap_or_default();
    finer.bytes().all(|b| b.is_ascii_digit()).then_some(micros)
}

/// Days since 1970 of a date of the Gregorian calendar.
const fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The date of a day since 1970.
const fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day = days.rem_euclid(146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day + 2) / 153;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_number_agree() {
        for (text, micros) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1969-12-31T23:59:59.999999Z", -1),
            ("2000-02-29T12:30:05.250000Z", 951_827_405_250_000),
            ("2026-11-23T19:43:03.000001Z", 1_795_462_983_000_001),
        ] {
            assert_eq!(parse(text), Some(micros), "{text}");
            assert_eq!(Rfc3339(micros).to_string(), text);
        }
    }

    #[test]
    fn other_forms_are_read() {
        for (text, like) in [
            ("2026-01-02 03:04:05", "2026-01-02T03:04:05Z"),
            ("2026-01-02T03:04:05.5+01:00", "2026-01-02T02:04:05.500000Z"),
            ("2026-01-02T03:04:05-0230", "2026-01-02T05:34:05Z"),
            (
                "2026-01-02t03:04:05.123456789z",
                "2026-01-02T03:04:05.123456Z",
            ),
            ("2026-01-02T03:04:05+00", "2026-01-02T03:04:05Z"),
        ] {
            let read = parse(text).map(|micros| Rfc3339(micros).to_string());
            assert_eq!(read.as_deref(), Some(like), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "now",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00Z",
            "2026-01-01T00:00:00.1x",
            "2026-01-01T00:00:00+99:99",
            "2026-01-01",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
