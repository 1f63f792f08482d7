//! Which packets a link loses.

use core::fmt;

use crate::random::Random;
use crate::units::{UnitError, parse_probability};

/// How a direction loses packets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Loss {
    /// It loses none.
    #[default]
    None,
    /// Each with this probability.
    Random(f64),
    /// Every N-th exactly.
    Every(u64),
    /// Two states with their own loss, the Gilbert-Elliott model.
    GilbertElliott {
        /// Probability to go from good to bad, per packet.
        to_bad: f64,
        /// Probability to go from bad to good, per packet.
        to_good: f64,
        /// Probability to lose a packet in the good state.
        good: f64,
        /// Probability to lose a packet in the bad state.
        bad: f64,
    },
}

impl Loss {
    /// Reads `none`, `5%`, `every 20` or `ge P R [H K]`: from good to bad, from
    /// bad to good, loss when good (0) and when bad (100 %).
    ///
    /// # Errors
    /// When it is none of these.
    pub fn parse(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError::Probability(text.to_owned());
        let mut words = text.split_whitespace();
        let first = words.next().ok_or_else(wrong)?;
        let rest: Vec<&str> = words.collect();
        match (first, rest.as_slice()) {
            ("none", []) => Ok(Self::None),
            ("every", [n]) => n
                .parse()
                .ok()
                .filter(|n| *n > 0)
                .map(Self::Every)
                .ok_or_else(wrong),
            ("ge", [p, r]) => Self::gilbert(&[p, r, "0", "1"]),
            ("ge", [p, r, h, k]) => Self::gilbert(&[p, r, h, k]),
            ("random", [p]) => parse_probability(p).map(Self::random),
            (p, []) => parse_probability(p).map(Self::random),
            _ => Err(wrong()),
        }
    }

    /// The share of packets that it loses in the long run.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share, for people")]
    pub fn share(&self) -> f64 {
        match *self {
            Self::None => 0.0,
            Self::Random(p) => p,
            Self::Every(n) => 1.0 / n as f64,
            Self::GilbertElliott {
                to_bad,
                to_good,
                good,
                bad,
            } => {
                let in_bad = if to_bad + to_good > 0.0 {
                    to_bad / (to_bad + to_good)
                } else {
                    0.0
                };
                in_bad * bad + (1.0 - in_bad) * good
            }
        }
    }

    const fn random(p: f64) -> Self {
        if p > 0.0 { Self::Random(p) } else { Self::None }
    }

    fn gilbert(words: &[&str; 4]) -> Result<Self, UnitError> {
        let [p, r, h, k] = words;
        Ok(Self::GilbertElliott {
            to_bad: parse_probability(p)?,
            to_good: parse_probability(r)?,
            good: parse_probability(h)?,
            bad: parse_probability(k)?,
        })
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Random(p) => write!(f, "{}%", p * 100.0),
            Self::Every(n) => write!(f, "every {n}"),
            Self::GilbertElliott {
                to_bad,
                to_good,
                good,
                bad,
            } => {
                write!(f, "ge {to_bad} {to_good} {good} {bad}")
            }
        }
    }
}

/// The state of a [`Loss`] on one direction.
#[derive(Clone, Debug)]
pub struct LossModel {
    loss: Loss,
    random: Random,
    seen: u64,
    bad: bool,
}

impl LossModel {
    /// A direction that loses nothing yet.
    #[must_use]
    pub const fn new(random: Random) -> Self {
        Self {
            loss: Loss::None,
            random,
            seen: 0,
            bad: false,
        }
    }

    /// Changes the model. The same model again keeps its state.
    pub fn set(&mut self, loss: Loss) {
        if self.loss != loss {
            self.loss = loss;
            self.seen = 0;
            self.bad = false;
        }
    }

    /// Whether the next packet is lost.
    pub fn next_is_lost(&mut self) -> bool {
        match self.loss {
            Loss::None => false,
            Loss::Random(p) => self.random.chance(p),
            Loss::Every(n) => {
                self.seen += 1;
                self.seen.is_multiple_of(n)
            }
            Loss::GilbertElliott {
                to_bad,
                to_good,
                good,
                bad,
            } => {
                let turn = if self.bad { to_good } else { to_bad };
                if self.random.chance(turn) {
                    self.bad = !self.bad;
                }
                self.random.chance(if self.bad { bad } else { good })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(loss: &str, packets: u64, seed: u64) -> u64 {
        let mut model = LossModel::new(Random::new(seed));
        model.set(Loss::parse(loss).unwrap());
        (0..packets).filter(|_| model.next_is_lost()).count() as u64
    }

    #[test]
    fn shares_are_met() {
        assert_eq!(lost("none", 1000, 1), 0);
        assert_eq!(lost("100%", 1000, 1), 1000);
        assert_eq!(lost("every 20", 1000, 1), 50);
        let random = lost("5%", 100_000, 1);
        assert!((4_800..5_200).contains(&random), "{random}");
        let bursts = lost("ge 1% 30%", 100_000, 1);
        let expected = Loss::parse("ge 1% 30%").unwrap().share() * 1e5;
        assert!(
            (bursts as f64 - expected).abs() < 400.0,
            "{bursts} {expected}"
        );
    }

    #[test]
    fn bursts_are_bursts() {
        let mut model = LossModel::new(Random::new(9));
        model.set(Loss::parse("ge 0.01 0.25").unwrap());
        let fates: Vec<bool> = (0..200_000).map(|_| model.next_is_lost()).collect();
        let bursts = fates.windows(2).filter(|w| !w[0] && w[1]).count();
        let lost = fates.iter().filter(|lost| **lost).count();
        let mean = lost as f64 / bursts as f64;
        assert!((3.6..4.4).contains(&mean), "mean burst {mean}, expected 4");
    }

    #[test]
    fn words_are_read_and_shown() {
        for text in ["none", "5%", "every 20", "ge 0.01 0.3 0 1"] {
            assert_eq!(Loss::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "", "every", "every 0", "every x", "ge 0.1", "ge 1 2", "5% 6%",
        ] {
            assert!(Loss::parse(text).is_err(), "{text}");
        }
    }
}
