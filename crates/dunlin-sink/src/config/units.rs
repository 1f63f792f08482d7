//! Values of the configuration with a unit: lengths of time, sizes, and what numbers count
//! that are times. Knows no key.

use core::time::Duration;

use serde::{Deserialize, Deserializer};

/// A length of time such as `"100ms"`, `"30s"` or `"7d"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// Suffixes with their milliseconds; `ms` before `s`.
        const UNITS: [(&str, u64); 6] = [
            ("ms", 1),
            ("s", 1_000),
            ("m", 60_000),
            ("h", 3_600_000),
            ("d", 86_400_000),
            ("w", 604_800_000),
        ];
        number(
            deserializer,
            &UNITS,
            "a duration such as \"30s\" (ms, s, m, h, d, w)",
        )
        .map(|millis| Self(Duration::from_millis(millis)))
    }
}

/// A number of bytes such as `"4MiB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const UNITS: [(&str, u64); 4] = [
            ("KiB", 1 << 10),
            ("MiB", 1 << 20),
            ("GiB", 1 << 30),
            ("B", 1),
        ];
        number(
            deserializer,
            &UNITS,
            "a size such as \"4MiB\" (B, KiB, MiB, GiB)",
        )
        .map(Self)
    }
}

fn number<'de, D: Deserializer<'de>>(
    deserializer: D,
    units: &[(&str, u64)],
    what: &str,
) -> Result<u64, D::Error> {
    use serde::de::Error as _;
    let text = String::deserialize(deserializer)?;
    let mut units = units.iter();
    let found = units.find_map(|(suffix, unit)| {
        let count: u64 = text.strip_suffix(suffix)?.trim().parse().ok()?;
        count.checked_mul(*unit)
    });
    found.ok_or_else(|| D::Error::custom(format_args!("`{text}` is not {what}")))
}

/// What numbers that are times count since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Seconds.
    S,
    /// Milliseconds.
    Ms,
    /// Microseconds.
    Us,
    /// Nanoseconds.
    Ns,
}

impl Unit {
    /// A count of them in microseconds.
    #[must_use]
    pub const fn micros(self, count: i64) -> Option<i64> {
        match self {
            Self::S => count.checked_mul(1_000_000),
            Self::Ms => count.checked_mul(1_000),
            Self::Us => Some(count),
            Self::Ns => Some(count.div_euclid(1_000)),
        }
    }

    /// The same of a count with a fraction.
    #[must_use]
    pub fn micros_of(self, count: f64) -> Option<i64> {
        /// Year 10000 and a little: what no database takes.
        const MICROS_MAX: f64 = 1e18;
        let micros = match self {
            Self::S => count * 1e6,
            Self::Ms => count * 1e3,
            Self::Us => count,
            Self::Ns => count / 1e3,
        };
        (micros.abs() < MICROS_MAX).then(|| micros.round() as i64)
    }
}
