//! Timed changes of a link: `5s up.loss=5%`, `every 1s rebind a`.
//!
//! One line is one step. The same words without a time are commands to a
//! running link.

use core::net::Ipv4Addr;
use core::time::Duration;

use thiserror::Error;

use crate::profile::{Profile, SettingError};
use crate::side::Side;
use crate::units::{UnitError, parse_duration};

/// Steps of one script.
const STEPS_MAX: usize = 10_000;

/// A change of a link.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Action {
    /// A setting of a [`Profile`], of packets from one end or from both.
    Set {
        /// Which link; all if none.
        link: Option<String>,
        /// Whose packets; those from both ends if none.
        from: Option<Side>,
        /// The setting.
        name: String,
        /// Its value.
        value: String,
    },
    /// The NAT before a host forgets its mappings, and may get an address.
    Rebind {
        /// The host.
        host: String,
        /// What others see from now on.
        address: Option<Ipv4Addr>,
    },
    /// A host loses the address that it got last and gets another.
    Move {
        /// The host.
        host: String,
        /// Its new address.
        address: Ipv4Addr,
    },
    /// A host gets one more address.
    Add {
        /// The host.
        host: String,
        /// The address.
        address: Ipv4Addr,
    },
    /// A host loses an address.
    Remove {
        /// The host.
        host: String,
        /// The address.
        address: Ipv4Addr,
    },
    /// The nodes have noticed which links carry nothing either way, and
    /// packets take other ways from now on.
    Reroute,
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
        "`{0}` is neither [LINK.][up.|down.]NAME=VALUE, `rebind HOST [ADDRESS]`, \
         `move HOST ADDRESS`, `add HOST ADDRESS`, `remove HOST ADDRESS` nor `reroute`"
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
    /// Reads `loss=5%`, `up.delay=20ms`, `wan.down.blackhole=on`, `rebind a`,
    /// `rebind a 10.0.0.9`, `move a 10.0.0.9` or `reroute`.
    ///
    /// # Errors
    /// When it is none of these, or the setting does not exist. Whether there
    /// is such a link or host, only a network knows.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let wrong = || ScriptError::Action(text.to_owned());
        if let Some((name, value)) = text.split_once('=') {
            let mut words: Vec<&str> = name.trim().split('.').collect();
            let name = words.pop().unwrap_or_default();
            let from = match words.last() {
                Some(&"up") => Some(Side::A),
                Some(&"down") => Some(Side::B),
                _ => None,
            };
            words.truncate(words.len() - usize::from(from.is_some()));
            let link = match words.as_slice() {
                [] => None,
                [link] => Some((*link).to_owned()),
                _ => return Err(wrong()),
            };
            Profile::default().set(name, value)?;
            return Ok(Self::Set {
                link,
                from,
                name: name.to_owned(),
                value: value.trim().to_owned(),
            });
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        let host = |word: &str| word.to_owned();
        let address = |word: &str| word.parse().map_err(|_| wrong());
        match words.as_slice() {
            ["rebind", who] => Ok(Self::Rebind {
                host: host(who),
                address: None,
            }),
            ["rebind", who, to] => Ok(Self::Rebind {
                host: host(who),
                address: Some(address(to)?),
            }),
            ["move", who, to] => Ok(Self::Move {
                host: host(who),
                address: address(to)?,
            }),
            ["add", who, what] => Ok(Self::Add {
                host: host(who),
                address: address(what)?,
            }),
            ["reroute"] => Ok(Self::Reroute),
            ["remove", who, what] => Ok(Self::Remove {
                host: host(who),
                address: address(what)?,
            }),
            _ => Err(wrong()),
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

    /// What it does, in order of time.
    pub(crate) fn actions(&self) -> impl Iterator<Item = &Action> {
        self.steps.iter().map(|step| &step.action)
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

    const SCRIPT: &str = "
        # a bad quarter of a minute
        5s    up.loss=50%      # with a comment
        20s   wan.up.loss=none
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
                Action::Set {
                    link,
                    from,
                    name,
                    value,
                } => format!("{link:?} {from:?} {name} {value}"),
                Action::Rebind { host, address } => format!("rebind {host} {address:?}"),
                Action::Move { host, address } => format!("move {host} {address}"),
                Action::Add { host, address } => format!("add {host} {address}"),
                Action::Remove { host, address } => format!("remove {host} {address}"),
                Action::Reroute => "reroute".to_owned(),
            };
            seen.push(format!("{} {what}", at.as_secs()));
        }
        assert_eq!(
            seen,
            [
                "2 rebind a None",
                "3 rebind a None",
                "3 move b 10.0.0.9",
                "3 None Some(B) loss ge 1% 30%",
                "4 rebind a None",
                "5 None Some(A) loss 50%",
                "20 Some(\"wan\") Some(A) loss none",
                "21 add a 10.0.0.7",
                "22 remove a 10.0.0.7",
            ]
        );
    }

    #[test]
    fn a_wrong_script_names_its_line() {
        let cases = [
            ("1s loss=5%\nsoon loss=1%", "line 2: `soon` is no duration"),
            ("1s loss=lots", "line 1: loss: `lots` is no probability"),
            (
                "1s wan.sideways.loss=1%",
                "line 1: `wan.sideways.loss=1%` is neither",
            ),
            ("1s rebind", "line 1: `rebind` is neither"),
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
