//! Timed changes of a link: `5s up.loss=5%`, `every 1s rebind a`.
//!
//! One line is one step. The same words without a time are commands to a
//! running link.

use core::net::Ipv4Addr;
use core::time::Duration;

use thiserror::Error;

use crate::link::{Link, Side};
use crate::profile::{Profile, SettingError};
use crate::units::{UnitError, parse_duration};

/// Steps of one script.
const STEPS_MAX: usize = 10_000;

/// A change of a link.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Action {
    /// A setting of a [`Profile`], of packets from one side or from both.
    Set {
        /// Whose packets; both if none.
        from: Option<Side>,
        /// The setting.
        name: String,
        /// Its value.
        value: String,
    },
    /// The NAT before a host forgets its mappings, and may get an address.
    Rebind {
        /// The host.
        side: Side,
        /// What the other side sees from now on.
        address: Option<Ipv4Addr>,
    },
    /// A host loses the address that it got last and gets another.
    Move {
        /// The host.
        side: Side,
        /// Its new address.
        address: Ipv4Addr,
    },
    /// A host gets one more address.
    Add {
        /// The host.
        side: Side,
        /// The address.
        address: Ipv4Addr,
    },
    /// A host loses an address.
    Remove {
        /// The host.
        side: Side,
        /// The address.
        address: Ipv4Addr,
    },
}

/// Why a script cannot be read.
#[derive(Clone, Debug, Eq, PartialEq, Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// A setting is wrong.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A time is wrong.
    #[error(transparent)]
    Time(#[from] UnitError),
    /// A word is not understood.
    #[error(
        "`{0}` is neither NAME=VALUE, `rebind a|b [ADDRESS]`, `move a|b ADDRESS`, \
         `add a|b ADDRESS` nor `remove a|b ADDRESS`"
    )]
    Action(String),
    /// A period of zero would never end.
    #[error("`every` needs a time above zero")]
    Period,
    /// Too long.
    #[error("a script has at most {STEPS_MAX} steps")]
    TooLong,
    /// Where a script is wrong.
    #[error("line {line}: {cause}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong there.
        cause: Box<Self>,
    },
}

impl Action {
    /// Reads `loss=5%`, `up.delay=20ms`, `down.blackhole=on`, `rebind a`,
    /// `rebind a 10.0.0.9` or `move a 10.0.0.9`.
    ///
    /// # Errors
    /// When it is none of these, or the setting does not exist.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let wrong = || ScriptError::Action(text.to_owned());
        if let Some((name, value)) = text.split_once('=') {
            let (from, name) = match name.trim().split_once('.') {
                Some(("up", name)) => (Some(Side::A), name),
                Some(("down", name)) => (Some(Side::B), name),
                Some(_) => return Err(wrong()),
                None => (None, name.trim()),
            };
            Profile::default().set(name, value)?;
            return Ok(Self::Set {
                from,
                name: name.to_owned(),
                value: value.trim().to_owned(),
            });
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        let side = |word: &str| match word {
            "a" => Ok(Side::A),
            "b" => Ok(Side::B),
            _ => Err(wrong()),
        };
        let address = |word: &str| word.parse().map_err(|_| wrong());
        match words.as_slice() {
            ["rebind", host] => Ok(Self::Rebind {
                side: side(host)?,
                address: None,
            }),
            ["rebind", host, to] => Ok(Self::Rebind {
                side: side(host)?,
                address: Some(address(to)?),
            }),
            ["move", host, to] => Ok(Self::Move {
                side: side(host)?,
                address: address(to)?,
            }),
            ["add", host, what] => Ok(Self::Add {
                side: side(host)?,
                address: address(what)?,
            }),
            ["remove", host, what] => Ok(Self::Remove {
                side: side(host)?,
                address: address(what)?,
            }),
            _ => Err(wrong()),
        }
    }

    /// Does this to a link. What concerns the addresses of hosts is not the
    /// link's, and changes nothing here.
    pub fn apply(&self, link: &mut Link) {
        match self {
            Self::Set { from, name, value } => {
                let sides = Side::BOTH
                    .into_iter()
                    .filter(|s| from.is_none_or(|f| f == *s));
                for side in sides {
                    let mut profile = link.profile(side).clone();
                    // It was tried when it was read.
                    if profile.set(name, value).is_ok() {
                        link.set_profile(side, &profile);
                    }
                }
            }
            Self::Rebind { side, address } => link.rebind(*side, *address),
            Self::Move { .. } | Self::Add { .. } | Self::Remove { .. } => {}
        }
    }
}

/// An action with its times.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Step {
    /// When it is done first.
    pub at: Duration,
    /// After which time it is done again, and until when.
    pub again: Option<(Duration, Duration)>,
    /// What is done.
    pub action: Action,
}

/// The steps still to be done.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// In the order of the script; few enough to look at all.
    steps: Vec<Step>,
}

impl Script {
    /// Reads a script: lines `TIME ACTION` and
    /// `every TIME [from TIME] [until TIME] ACTION`; `#` starts a comment.
    ///
    /// # Errors
    /// With the first line that cannot be read.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let mut script = Self::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let at_line = |cause| ScriptError::Line {
                line: index + 1,
                cause: Box::new(cause),
            };
            let step = Step::parse(line).map_err(at_line)?;
            if script.steps.len() >= STEPS_MAX {
                return Err(at_line(ScriptError::TooLong));
            }
            script.steps.push(step);
        }
        Ok(script)
    }

    /// When the next step is to be done.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Duration> {
        self.steps.iter().map(|step| step.at).min()
    }

    /// A step whose time has come.
    pub fn poll(&mut self, now: Duration) -> Option<Action> {
        let due = self.next_timeout().filter(|due| *due <= now)?;
        let index = self.steps.iter().position(|step| step.at == due)?;
        let step = self.steps.get_mut(index)?;
        let action = step.action.clone();
        match step.again {
            Some((period, until)) if due.saturating_add(period) <= until => step.at = due + period,
            _ => {
                self.steps.remove(index);
            }
        }
        Some(action)
    }
}

impl Step {
    fn parse(line: &str) -> Result<Self, ScriptError> {
        let (first, mut rest) = word(line);
        if first != "every" {
            return Ok(Self {
                at: parse_duration(first)?,
                again: None,
                action: Action::parse(rest)?,
            });
        }
        let (period, after) = word(rest);
        let period = parse_duration(period)?;
        if period.is_zero() {
            return Err(ScriptError::Period);
        }
        rest = after;
        let (mut from, mut until) = (period, Duration::MAX);
        loop {
            let (keyword, after) = word(rest);
            let place = match keyword {
                "from" => &mut from,
                "until" => &mut until,
                _ => break,
            };
            let (time, after) = word(after);
            *place = parse_duration(time)?;
            rest = after;
        }
        Ok(Self {
            at: from,
            again: Some((period, until)),
            action: Action::parse(rest)?,
        })
    }
}

/// The first word, and the rest.
fn word(text: &str) -> (&str, &str) {
    let text = text.trim();
    text.split_once(char::is_whitespace).unwrap_or((text, ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::Loss;

    const SCRIPT: &str = "
        # a bad quarter of a minute
        5s    up.loss=50%      # with a comment
        20s   up.loss=none
        21s   add a 10.0.0.7
        22s   remove a 10.0.0.7
        every 1s from 2s until 4s rebind a
        3s    move b 10.0.0.9
        3s    down.loss = ge 1% 30%
    ";

    #[test]
    fn steps_come_in_time() {
        let mut script = Script::parse(SCRIPT).unwrap();
        let mut seen = Vec::new();
        while let Some(at) = script.next_timeout() {
            assert!(script.poll(at - Duration::from_nanos(1)).is_none());
            let what = match script.poll(at).unwrap() {
                Action::Set { from, name, value } => format!("{from:?} {name} {value}"),
                Action::Rebind { side, address } => format!("rebind {side:?} {address:?}"),
                Action::Move { side, address } => format!("move {side:?} {address}"),
                Action::Add { side, address } => format!("add {side:?} {address}"),
                Action::Remove { side, address } => format!("remove {side:?} {address}"),
            };
            seen.push(format!("{} {what}", at.as_secs()));
        }
        assert_eq!(
            seen,
            [
                "2 rebind A None",
                "3 rebind A None",
                "3 move B 10.0.0.9",
                "3 Some(B) loss ge 1% 30%",
                "4 rebind A None",
                "5 Some(A) loss 50%",
                "20 Some(A) loss none",
                "21 add A 10.0.0.7",
                "22 remove A 10.0.0.7",
            ]
        );
    }

    #[test]
    fn settings_reach_the_right_direction() {
        let mut link = Link::new(1);
        Action::parse("delay=9ms").unwrap().apply(&mut link);
        Action::parse("up.loss=every 2").unwrap().apply(&mut link);
        for side in Side::BOTH {
            assert_eq!(link.profile(side).delay, Duration::from_millis(9));
        }
        assert_eq!(link.profile(Side::A).loss, Loss::Every(2));
        assert_eq!(link.profile(Side::B).loss, Loss::None);
    }

    #[test]
    fn a_wrong_script_names_its_line() {
        let cases = [
            ("1s loss=5%\nsoon loss=1%", "line 2: `soon` is no duration"),
            ("1s loss=lots", "line 1: loss: `lots` is no probability"),
            (
                "1s sideways.loss=1%",
                "line 1: `sideways.loss=1%` is neither",
            ),
            ("1s rebind c", "line 1: `rebind c` is neither"),
            ("1s move a", "line 1: `move a` is neither"),
            ("1s move a 1.2.3", "line 1: `move a 1.2.3` is neither"),
            (
                "every 0 rebind a",
                "line 1: `every` needs a time above zero",
            ),
            ("1s", "line 1: `` is neither"),
            ("1s colour=red", "line 1: there is no setting `colour`"),
        ];
        for (script, want) in cases {
            let error = Script::parse(script).unwrap_err().to_string();
            assert!(error.starts_with(want), "{error}");
        }
    }
}
