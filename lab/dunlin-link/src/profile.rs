//! What one direction of a link does to packets, as settings with names.

use core::time::Duration;

use thiserror::Error;

use crate::loss::Loss;
use crate::units::{UnitError, parse_bytes, parse_duration, parse_probability, parse_rate};

/// Bytes that wait for a limited rate, unless the profile says otherwise.
const DEFAULT_QUEUE_BYTES: u64 = 128_000;

/// Variation of the delay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Jitter {
    /// The delay is constant.
    #[default]
    None,
    /// Normal, with this deviation, never below zero delay.
    Normal(Duration),
    /// Uniform, up to this much more or less.
    Uniform(Duration),
}

/// Packets that others overtake.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Reorder {
    /// The share of packets that are held back.
    pub probability: f64,
    /// How long they are held back, on top of the delay.
    pub by: Duration,
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Profile {
    /// Time on the way, after the queue.
    pub delay: Duration,
    /// Variation of the delay.
    pub jitter: Jitter,
    /// Whether packets keep their order in spite of jitter.
    pub keep_order: bool,
    /// Bits a second; IP headers count.
    pub rate: Option<u64>,
    /// Bytes that may wait for the rate; what does not fit is dropped.
    pub queue: u64,
    /// Which packets are lost on the way. They have used the rate.
    pub loss: Loss,
    /// Packets that others overtake.
    pub reorder: Reorder,
    /// The share of packets that arrive twice.
    pub duplicate: f64,
    /// The share of packets with one bit flipped behind the headers.
    pub corrupt: f64,
    /// Whether the checksum of a corrupted packet is made right again, so that
    /// the corruption reaches the application instead of the kernel's counter.
    pub corrupt_unseen: bool,
    /// Everything is swallowed.
    pub blackhole: bool,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            jitter: Jitter::None,
            keep_order: true,
            rate: None,
            queue: DEFAULT_QUEUE_BYTES,
            loss: Loss::None,
            reorder: Reorder::default(),
            duplicate: 0.0,
            corrupt: 0.0,
            corrupt_unseen: false,
            blackhole: false,
        }
    }
}

/// Why a setting is refused.
#[derive(Clone, Debug, Eq, PartialEq, Error)]
#[non_exhaustive]
pub enum SettingError {
    /// The value has no meaning there.
    #[error("{name}: {cause}")]
    Value {
        /// The setting.
        name: String,
        /// What is wrong with its value.
        cause: UnitError,
    },
    /// A setting that is one of some words.
    #[error("{name}: `{value}` is none of {words}")]
    Word {
        /// The setting.
        name: String,
        /// What was written.
        value: String,
        /// What could have been.
        words: &'static str,
    },
    /// There is no such setting.
    #[error("there is no setting `{0}`; there are {names}", names = Profile::NAMES.join(", "))]
    Unknown(String),
}

impl Profile {
    /// The settings that [`Self::set`] knows.
    pub const NAMES: [&'static str; 9] = [
        "delay",
        "jitter",
        "order",
        "rate",
        "queue",
        "loss",
        "reorder",
        "duplicate",
        "corrupt",
    ];

    /// Changes one setting, as written in profiles, scripts and on the command
    /// line; `blackhole` is one too.
    ///
    /// # Errors
    /// When there is no such setting or the value has no meaning there; the
    /// profile is as before then.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        let wrong = |cause| SettingError::Value {
            name: name.to_owned(),
            cause,
        };
        let value = value.trim();
        match name {
            "delay" => self.delay = parse_duration(value).map_err(wrong)?,
            "jitter" => self.jitter = Jitter::parse(value).map_err(wrong)?,
            "order" => self.keep_order = word(name, value, "keep", "free")?,
            "rate" => self.rate = parse_rate(value).map_err(wrong)?,
            "queue" => self.queue = parse_bytes(value).map_err(wrong)?,
            "loss" => self.loss = Loss::parse(value).map_err(wrong)?,
            "reorder" => self.reorder = Reorder::parse(value).map_err(wrong)?,
            "duplicate" => self.duplicate = parse_probability(value).map_err(wrong)?,
            "corrupt" => {
                let unseen = value.strip_suffix("unseen");
                self.corrupt = parse_probability(unseen.unwrap_or(value)).map_err(wrong)?;
                self.corrupt_unseen = unseen.is_some();
            }
            "blackhole" => self.blackhole = word(name, value, "on", "off")?,
            _ => return Err(SettingError::Unknown(name.to_owned())),
        }
        Ok(())
    }
}

/// True for one word, false for the other.
fn word(
    name: &str,
    value: &str,
    yes: &'static str,
    no: &'static str,
) -> Result<bool, SettingError> {
    if value == yes {
        Ok(true)
    } else if value == no {
        Ok(false)
    } else {
        Err(SettingError::Word {
            name: name.to_owned(),
            value: value.to_owned(),
            words: if yes == "on" { "on, off" } else { "keep, free" },
        })
    }
}

impl Jitter {
    /// Reads `2ms`, `normal 2ms`, `uniform 2ms` or `none`.
    fn parse(text: &str) -> Result<Self, UnitError> {
        if text == "none" {
            return Ok(Self::None);
        }
        let (uniform, amount) = match text.split_once(' ') {
            Some(("uniform", amount)) => (true, amount),
            Some(("normal", amount)) => (false, amount),
            _ => (false, text),
        };
        let amount = parse_duration(amount)?;
        Ok(match (amount.is_zero(), uniform) {
            (true, _) => Self::None,
            (false, true) => Self::Uniform(amount),
            (false, false) => Self::Normal(amount),
        })
    }
}

impl Reorder {
    /// Reads `1% 5ms` or `none`.
    fn parse(text: &str) -> Result<Self, UnitError> {
        if text == "none" {
            return Ok(Self::default());
        }
        let (probability, by) = text
            .split_once(' ')
            .ok_or_else(|| UnitError::Duration(text.to_owned()))?;
        Ok(Self {
            probability: parse_probability(probability)?,
            by: parse_duration(by)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_setting_exists() {
        let values = [
            ("delay", "25ms"),
            ("jitter", "uniform 2ms"),
            ("order", "free"),
            ("rate", "20mbit"),
            ("queue", "60kB"),
            ("loss", "ge 1% 30%"),
            ("reorder", "1% 5ms"),
            ("duplicate", "2%"),
            ("corrupt", "1% unseen"),
        ];
        assert_eq!(values.map(|(name, _)| name), Profile::NAMES);
        let mut profile = Profile::default();
        for (name, value) in values {
            profile.set(name, value).unwrap();
        }
        assert_eq!(profile.jitter, Jitter::Uniform(Duration::from_millis(2)));
        assert!(!profile.keep_order);
        assert_eq!(profile.reorder.by, Duration::from_millis(5));
        assert!(profile.corrupt_unseen);
        profile.set("corrupt", "0").unwrap();
        profile.set("blackhole", "on").unwrap();
        assert!(profile.blackhole && !profile.corrupt_unseen);
    }

    #[test]
    fn a_refused_setting_says_why() {
        let mut profile = Profile::default();
        let cases = [
            ("delay", "fast", "delay: `fast` is no duration"),
            ("order", "maybe", "order: `maybe` is none of keep, free"),
            (
                "colour",
                "red",
                "there is no setting `colour`; there are delay,",
            ),
            ("reorder", "1%", "reorder: `1%` is no duration"),
        ];
        for (name, value, want) in cases {
            let error = profile.set(name, value).unwrap_err().to_string();
            assert!(error.starts_with(want), "{error}");
        }
        assert_eq!(profile, Profile::default());
    }
}
