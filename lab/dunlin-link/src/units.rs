//! Numbers with units, as people write them in profiles and scripts.

use core::time::Duration;

use thiserror::Error;

/// Why a number with a unit cannot be read.
#[derive(Clone, Debug, Eq, PartialEq, Error)]
#[non_exhaustive]
pub enum UnitError {
    /// A duration needs a number and `ns`, `us`, `ms` or `s`.
    #[error("`{0}` is no duration; write for example 25ms, 1.5s or 300us")]
    Duration(String),
    /// A rate needs a number and `bit`, `kbit`, `mbit` or `gbit`.
    #[error("`{0}` is no rate; write for example 256kbit, 20mbit or unlimited")]
    Rate(String),
    /// A size needs a number and `B`, `kB` or `MB`.
    #[error("`{0}` is no size; write for example 1500B, 60kB or 1MB")]
    Size(String),
    /// A probability is a number from 0 to 1 or a percentage.
    #[error("`{0}` is no probability; write for example 5% or 0.05")]
    Probability(String),
}

/// The number at the start of a text, and what follows it.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = number.parse().ok().filter(|n: &f64| n.is_finite())?;
    Some((number, unit.trim()))
}

/// Reads `25ms`, `1.5s`, `300us`, `10ns` or `0`.
///
/// # Errors
/// When it is none of these.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let wrong = || UnitError::Duration(text.to_owned());
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let seconds = match unit {
        "ns" => number / 1e9,
        "us" | "µs" => number / 1e6,
        "ms" => number / 1e3,
        "s" => number,
        "min" => number * 60.0,
        "" if number == 0.0 => 0.0,
        _ => return Err(wrong()),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

/// Reads `256kbit`, `20mbit`, `1gbit` per second; `unlimited` is `None`.
///
/// # Errors
/// When it is none of these, or zero.
pub fn parse_rate(text: &str) -> Result<Option<u64>, UnitError> {
    if text.trim() == "unlimited" {
        return Ok(None);
    }
    let wrong = || UnitError::Rate(text.to_owned());
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "bit" => 1.0,
        "kbit" => 1e3,
        "mbit" => 1e6,
        "gbit" => 1e9,
        _ => return Err(wrong()),
    };
    whole(number * factor)
        .filter(|rate| *rate > 0)
        .map(Some)
        .ok_or_else(wrong)
}

/// Reads `1500B`, `60kB` or `1MB`.
///
/// # Errors
/// When it is none of these.
pub fn parse_bytes(text: &str) -> Result<u64, UnitError> {
    let wrong = || UnitError::Size(text.to_owned());
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "b" => 1.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "" if number == 0.0 => 0.0,
        _ => return Err(wrong()),
    };
    whole(number * factor).ok_or_else(wrong)
}

/// Reads `5%` or `0.05`.
///
/// # Errors
/// When it is neither, or not between 0 and 1.
pub fn parse_probability(text: &str) -> Result<f64, UnitError> {
    let wrong = || UnitError::Probability(text.to_owned());
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let value = match unit {
        "%" => number / 100.0,
        "" => number,
        _ => return Err(wrong()),
    };
    (0.0..=1.0)
        .contains(&value)
        .then_some(value)
        .ok_or_else(wrong)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range is checked"
)]
fn whole(number: f64) -> Option<u64> {
    (0.0..1e15).contains(&number).then(|| number.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read() {
        assert_eq!(parse_duration("25ms"), Ok(Duration::from_millis(25)));
        assert_eq!(parse_duration("1.5 s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("300us"), Ok(Duration::from_micros(300)));
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
        assert_eq!(parse_rate("256kbit"), Ok(Some(256_000)));
        assert_eq!(parse_rate("unlimited"), Ok(None));
        assert_eq!(parse_bytes("60kB"), Ok(60_000));
        assert_eq!(parse_probability("5%"), Ok(0.05));
        assert_eq!(parse_probability("0.5"), Ok(0.5));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "ms", "5", "-5ms", "5 parsecs", "1e3ms", "nan"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        for text in ["", "0mbit", "5", "5 MB", "many"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
        for text in ["", "5", "-1B", "3 bit"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
        for text in ["", "101%", "1.5", "-5%", "5 %%"] {
            assert!(parse_probability(text).is_err(), "{text}");
        }
    }
}
