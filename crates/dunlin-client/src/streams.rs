//! How messages are spread over the streams of a QUIC connection: options,
//! and which topics matter more than others. Knows no connection.

use core::time::Duration;

use dunlin_base::topic::{TopicError, matches, validate_filter};
use dunlin_base::{ConnId, Text};
use dunlin_mqtt::streams::option;
use dunlin_mqtt::streams::publish::PublishOptions;
pub use dunlin_mqtt::streams::{StreamDialect, StreamPolicy};
use dunlin_net::Net;

use crate::arguments::TextArg;
use crate::repeat::RepeatChoice;

/// Streams that topics may have at a time by default.
const TOPICS_DEFAULT: u16 = 32;

/// Largest number of streams for topics; servers allow fewer.
pub(crate) const TOPICS_MAX: u16 = 1024;

/// Streams that the server may have open at a time, if it may
/// open some: within the credit that the transport gives.
const DELIVERIES_MAX: u16 = 64;

/// Age at which a message in a datagram is dropped when nothing else is said:
/// a queue of older ones would only delay new ones.
pub(crate) const DATAGRAM_AGE: Duration = Duration::from_secs(1);

/// Priorities that a client may give.
const PRIORITIES_MAX: usize = 64;

/// How much a message matters, from 0 to 7, the highest first. Topics without
/// a priority have [`Priority::NORMAL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Priority(u8);

impl Priority {
    /// Last.
    pub const LOWEST: Self = Self(0);
    /// What topics have that were given no other one.
    pub const NORMAL: Self = Self(3);
    /// First.
    pub const HIGHEST: Self = Self(7);

    /// A priority, from 0 to 7; larger numbers mean 7.
    #[must_use]
    pub const fn new(level: u8) -> Self {
        if level > Self::HIGHEST.0 {
            Self::HIGHEST
        } else {
            Self(level)
        }
    }

    /// As a number.
    #[must_use]
    pub const fn level(self) -> u8 {
        self.0
    }

    /// Priority of its stream: the streams of topics without a priority have 0.
    pub(crate) fn of_stream(self) -> i32 {
        i32::from(self.0) - i32::from(Self::NORMAL.0)
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self::NORMAL
    }
}

/// Why a priority is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PriorityError {
    /// The pattern is not a topic filter.
    #[error("invalid priority pattern")]
    Pattern(#[from] TopicError),
    /// There are too many.
    #[error("more than 64 priorities")]
    TooMany,
}

/// The options of streams.
#[derive(Clone, Debug)]
pub(crate) struct StreamOptions {
    pub(crate) policy: StreamPolicy,
    pub(crate) dialect: StreamDialect,
    pub(crate) topics_max: u16,
    /// First match wins.
    pub(crate) priorities: Vec<(TextArg, Priority)>,
    /// Longest that a message of QoS 0 may take.
    pub(crate) max_age: Option<Duration>,
    pub(crate) isolate: bool,
    pub(crate) repeat: RepeatChoice,
    pub(crate) datagrams: bool,
    /// Let the server deliver on streams of its own.
    pub(crate) deliveries: bool,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            policy: StreamPolicy::Single,
            dialect: StreamDialect::Bidirectional,
            topics_max: TOPICS_DEFAULT,
            priorities: Vec::new(),
            max_age: None,
            isolate: false,
            repeat: RepeatChoice::default(),
            datagrams: false,
            deliveries: false,
        }
    }
}

impl StreamOptions {
    /// What CONNECT says about them, to a server that understands it.
    pub(crate) fn add_properties(&self, properties: &mut Vec<(Text, Text)>) {
        let mut add = |name: &'static str, value: String| {
            properties.push((Text::from_static(name), Text::from(value)));
        };
        if self.policy != StreamPolicy::Single {
            add(option::DATA_STREAMS, "1".into());
        }
        if self.deliveries {
            add(option::STREAMS, DELIVERIES_MAX.to_string());
        }
        if self.datagrams {
            let age = self.max_age.unwrap_or(DATAGRAM_AGE).as_millis();
            add(option::DATAGRAMS, age.to_string());
        }
        if self.isolate {
            add(option::ISOLATE, "1".into());
        }
        self.repeat.add_property(self.policy, add);
    }

    /// Prepares a connection that may carry other streams than control.
    pub(crate) fn configure(&self, net: &mut Net, conn: ConnId) {
        net.conn(conn).isolate_streams(self.isolate);
        self.repeat.configure(self.policy, net, conn);
    }

    /// What the planner of streams needs.
    pub(crate) fn planned(&self) -> PublishOptions {
        PublishOptions {
            policy: self.policy,
            dialect: self.dialect,
            topics_max: usize::from(self.topics_max),
        }
    }

    pub(crate) fn check(&self) -> Result<(), PriorityError> {
        if self.priorities.len() > PRIORITIES_MAX {
            return Err(PriorityError::TooMany);
        }
        for (pattern, _) in &self.priorities {
            validate_filter(&pattern.0)?;
        }
        Ok(())
    }

    /// The priority of a topic.
    pub(crate) fn priority(&self, topic: &str) -> Priority {
        self.priorities
            .iter()
            .find(|(pattern, _)| matches(&pattern.0, topic))
            .map_or(Priority::NORMAL, |(_, priority)| *priority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(patterns: &[(&str, u8)]) -> StreamOptions {
        StreamOptions {
            priorities: patterns
                .iter()
                .map(|(pattern, level)| (TextArg::from(*pattern), Priority::new(*level)))
                .collect(),
            ..StreamOptions::default()
        }
    }

    #[test]
    fn the_first_pattern_that_matches_decides() {
        let options = options(&[("alarms/low/#", 4), ("alarms/#", 7), ("+/bulk", 0)]);
        let cases = [
            ("alarms/fire", 7),
            ("alarms/low/door", 4),
            ("plant/bulk", 0),
            ("plant/temperature", 3),
        ];
        for (topic, level) in cases {
            assert_eq!(options.priority(topic).level(), level, "{topic}");
        }
        assert_eq!(Priority::new(200), Priority::HIGHEST);
    }

    #[test]
    fn impossible_priorities_are_refused() {
        assert_eq!(options(&[("a/#", 1)]).check(), Ok(()));
        assert!(matches!(
            options(&[("a/#/b", 1)]).check(),
            Err(PriorityError::Pattern(_))
        ));
        let many = vec![("a", 1); PRIORITIES_MAX + 1];
        assert_eq!(options(&many).check(), Err(PriorityError::TooMany));
    }
}
