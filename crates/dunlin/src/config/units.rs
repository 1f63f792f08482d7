//! Durations and sizes as people write them: `"10s"`, `"1MiB"`. Knows nothing
//! of what they configure.

use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Suffixes of a duration with their milliseconds, largest first.
const DURATIONS: [(&str, u64); 6] = [
    ("w", 604_800_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Suffixes of a size with their bytes, largest first. Powers of 1024 have an
/// `i`; powers of 1000 are not offered, because few people mean them.
const SIZES: [(&str, u64); 4] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

/// A length of time, in milliseconds at the finest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl Span {
    /// So many milliseconds.
    #[must_use]
    pub const fn millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// So many seconds.
    #[must_use]
    pub const fn secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }

    /// Whole seconds, at most `u32::MAX`.
    #[must_use]
    pub fn as_secs_u32(self) -> u32 {
        u32::try_from(self.0.as_secs()).unwrap_or(u32::MAX)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let millis = parse(text, &DURATIONS).ok_or_else(|| {
            format!("`{text}` is not a duration such as \"10s\" or \"1h\" (ms, s, m, h, d, w)")
        })?;
        Ok(Self::millis(millis))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        write(f, millis, "0s", &DURATIONS)
    }
}

/// Suffixes of a short time with their microseconds, largest first.
const BRIEF: [(&str, u64); 3] = [("s", 1_000_000), ("ms", 1_000), ("us", 1)];

/// A short time, in microseconds at the finest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Brief(pub Duration);

impl Brief {
    fn parse(text: &str) -> Result<Self, String> {
        let micros = parse(text, &BRIEF)
            .ok_or_else(|| format!("`{text}` is not a time such as \"100us\" or \"1ms\""))?;
        Ok(Self(Duration::from_micros(micros)))
    }
}

impl fmt::Display for Brief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = u64::try_from(self.0.as_micros()).unwrap_or(u64::MAX);
        write(f, micros, "0s", &BRIEF)
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl Size {
    /// So many KiB.
    #[must_use]
    pub const fn kib(kib: u64) -> Self {
        Self(kib << 10)
    }

    /// So many MiB.
    #[must_use]
    pub const fn mib(mib: u64) -> Self {
        Self(mib << 20)
    }

    /// As a `usize`; saturates on machines with small pointers.
    #[must_use]
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    /// As a `u32`; saturates.
    #[must_use]
    pub fn as_u32(self) -> u32 {
        u32::try_from(self.0).unwrap_or(u32::MAX)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let bytes = parse(text, &SIZES).ok_or_else(|| {
            format!("`{text}` is not a size such as \"64KiB\" or \"1MiB\" (B, KiB, MiB, GiB)")
        })?;
        Ok(Self(bytes))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, self.0, "0B", &SIZES)
    }
}

/// Memory: so much, or a part of what the machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// A percentage of the machine's.
    Percent(u8),
    /// So much.
    Bytes(Size),
}

impl Share {
    /// In bytes, on a machine with so many.
    #[must_use]
    pub fn of(self, machine: u64) -> usize {
        let bytes = match self {
            Self::Percent(percent) => machine / 100 * u64::from(percent),
            Self::Bytes(size) => size.0,
        };
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let percent = text.strip_suffix('%').map(str::parse);
        match percent {
            Some(Ok(percent @ 1..=100)) => Ok(Self::Percent(percent)),
            Some(_) => Err(format!("`{text}` is not between \"1%\" and \"100%\"")),
            None => Size::parse(text).map(Self::Bytes),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percent(percent) => write!(f, "{percent}%"),
            Self::Bytes(size) => size.fmt(f),
        }
    }
}

/// How long a session may outlive its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// So long.
    After(Span),
    /// Without end.
    Never,
}

impl Expiry {
    /// Seconds as MQTT 5.0 writes them: `u32::MAX` is without end.
    #[must_use]
    pub fn as_secs_u32(self) -> u32 {
        match self {
            Self::After(span) => span.as_secs_u32(),
            Self::Never => u32::MAX,
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text == "never" {
            return Ok(Self::Never);
        }
        Span::parse(text).map(Self::After)
    }
}

impl fmt::Display for Expiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::After(span) => span.fmt(f),
            Self::Never => f.write_str("never"),
        }
    }
}

/// A whole number with one of the suffixes, without sign, fraction or sum.
fn parse(text: &str, suffixes: &[(&str, u64)]) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, suffix) = text.split_at_checked(digits)?;
    let (_, factor) = suffixes
        .iter()
        .find(|(name, _)| *name == suffix.trim_start())?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// The shortest exact form.
fn write(
    f: &mut fmt::Formatter<'_>,
    value: u64,
    zero: &str,
    suffixes: &[(&str, u64)],
) -> fmt::Result {
    if value == 0 {
        return f.write_str(zero);
    }
    for (name, factor) in suffixes {
        if value.is_multiple_of(*factor) {
            return write!(f, "{}{name}", value / factor);
        }
    }
    Ok(())
}

macro_rules! as_text {
    ($($unit:ident)*) => {$(
        impl<'de> Deserialize<'de> for $unit {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;

                impl serde::de::Visitor<'_> for Visitor {
                    type Value = $unit;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str(match stringify!($unit) {
                            "Size" => "a size in quotes such as \"1MiB\"",
                            "Brief" => "a time in quotes such as \"100us\"",
                            "Share" => "a size in quotes such as \"2GiB\" or \"50%\"",
                            _ => "a duration in quotes such as \"10s\"",
                        })
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$unit, E> {
                        $unit::parse(text).map_err(E::custom)
                    }
                }

                deserializer.deserialize_str(Visitor)
            }
        }

        impl core::str::FromStr for $unit {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                Self::parse(text)
            }
        }

        impl Serialize for $unit {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}

as_text!(Span Brief Size Share Expiry);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written() {
        let cases = [
            ("10s", 10_000, "10s"),
            ("1 s", 1_000, "1s"),
            ("1500ms", 1_500, "1500ms"),
            ("90m", 5_400_000, "90m"),
            ("24h", 86_400_000, "1d"),
            ("2w", 1_209_600_000, "2w"),
            ("0s", 0, "0s"),
        ];
        for (text, millis, written) in cases {
            let span = Span::parse(text).expect(text);
            assert_eq!(span, Span::millis(millis), "{text}");
            assert_eq!(span.to_string(), written);
        }
        for text in [
            "",
            "10",
            "s",
            "-1s",
            "1.5s",
            "10 parsecs",
            "1s2",
            "1h30m",
            "99999999999999999w",
        ] {
            let error = Span::parse(text).expect_err(text);
            assert!(error.contains("is not a duration such as"), "{error}");
        }
    }

    #[test]
    fn short_times_are_read_and_written() {
        for (text, micros, written) in [
            ("100us", 100, "100us"),
            ("1000us", 1000, "1ms"),
            ("0s", 0, "0s"),
        ] {
            let brief = Brief::parse(text).expect(text);
            assert_eq!(brief, Brief(Duration::from_micros(micros)), "{text}");
            assert_eq!(brief.to_string(), written);
        }
        for text in ["", "100", "us", "0.1ms", "1m", "100 ns"] {
            let error = Brief::parse(text).expect_err(text);
            assert!(error.contains("is not a time such as"), "{error}");
        }
    }

    #[test]
    fn sizes_are_read_and_written() {
        for (text, bytes, written) in [
            ("1MiB", 1 << 20, "1MiB"),
            ("1024KiB", 1 << 20, "1MiB"),
            ("100B", 100, "100B"),
            ("1536B", 1536, "1536B"),
            ("0KiB", 0, "0B"),
        ] {
            let size = Size::parse(text).expect(text);
            assert_eq!(size, Size(bytes), "{text}");
            assert_eq!(size.to_string(), written);
        }
        for text in ["1MB", "1M", "1", "one", "99999999999GiB"] {
            let error = Size::parse(text).expect_err(text);
            assert!(error.contains("is not a size such as"), "{error}");
        }
    }

    #[test]
    fn memory_is_a_size_or_a_part_of_the_machine() {
        for (text, bytes) in [("50%", 5_000), ("100%", 10_000), ("3KiB", 3_072)] {
            let share = Share::parse(text).expect(text);
            assert_eq!((share.of(10_000), share.to_string()), (bytes, text.into()));
        }
        for text in ["0%", "101%", "%", "half", "-1%"] {
            assert!(Share::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sessions_may_live_without_end() {
        assert_eq!(Expiry::parse("never"), Ok(Expiry::Never));
        assert_eq!(Expiry::Never.as_secs_u32(), u32::MAX);
        let week = Expiry::parse("1w").expect("valid");
        assert_eq!(
            (week.as_secs_u32(), week.to_string().as_str()),
            (604_800, "1w")
        );
    }
}
