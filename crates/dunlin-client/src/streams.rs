//! How messages are spread over the streams of a QUIC connection: options,
//! and which topics matter more than others. Knows no connection.

use core::time::Duration;

use dunlin_base::topic::{TopicError, matches, validate_filter};
use dunlin_base::{Repeat, Text};
use dunlin_mqtt::flow::option;
use dunlin_mqtt::streams::publish::PublishOptions;
pub use dunlin_mqtt::streams::{StreamDialect, StreamPolicy};

use crate::message::Topic;
use crate::options::Builder;

/// Streams that topics may have at a time by default.
const TOPICS_DEFAULT: u16 = 32;

/// Largest number of streams for topics; servers allow fewer.
const TOPICS_MAX: u16 = 1024;

/// Streams that the server may have open at a time, if it is told that it may
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
    /// What topics have that nobody gave another one.
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

    /// Priority of its stream: the streams that nobody prefers have 0.
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
    #[error("invalid priority pattern: {0}")]
    Pattern(#[from] TopicError),
    /// There are too many.
    #[error("more than 64 priorities")]
    TooMany,
}

/// Everything about streams that a client was told.
#[derive(Clone, Debug)]
pub(crate) struct StreamOptions {
    pub(crate) policy: StreamPolicy,
    pub(crate) dialect: StreamDialect,
    pub(crate) topics_max: u16,
    /// First match wins.
    pub(crate) priorities: Vec<(Topic, Priority)>,
    /// Longest that a message of QoS 0 may take.
    pub(crate) max_age: Option<Duration>,
    pub(crate) isolate: bool,
    /// When small packets are sent twice; by policy if nothing was said.
    pub(crate) repeat: Option<Repeat>,
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
            repeat: None,
            datagrams: false,
            deliveries: false,
        }
    }
}

impl StreamOptions {
    /// What CONNECT says about them, to a server that understands it.
    pub(crate) fn add_properties(&self, properties: &mut Vec<(Text, Text)>) {
        let mut add = |name, value: String| {
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
        match self.repeat() {
            Repeat::Always => add(option::REPEAT, "1".into()),
            Repeat::OnLoss => add(option::REPEAT, "2".into()),
            _ => {}
        }
    }

    /// When small packets are sent twice. Whoever spreads messages over
    /// streams wants no loss to hold them up.
    pub(crate) fn repeat(&self) -> Repeat {
        self.repeat.unwrap_or(match self.policy {
            StreamPolicy::Single => Repeat::Never,
            _ => Repeat::OnLoss,
        })
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

/// Streams of a QUIC connection. On other transports these options change
/// nothing but the order in which messages leave.
impl Builder {
    /// How messages are spread over the streams of a QUIC connection. Default:
    /// all on one ([`StreamPolicy::Single`]).
    pub fn streams(mut self, policy: StreamPolicy) -> Self {
        self.options.streams.policy = policy;
        self
    }

    /// What kind of stream carries messages besides the first one.
    pub fn stream_dialect(mut self, dialect: StreamDialect) -> Self {
        self.options.streams.dialect = dialect;
        self
    }

    /// How many topics may have a stream of their own at a time, 1 to 1,024.
    /// Default 32. When there are more, the one that rested longest gives its
    /// stream to the next; if none rests, the others share the first stream.
    pub fn topic_streams(mut self, topics: u16) -> Self {
        self.options.streams.topics_max = topics.clamp(1, TOPICS_MAX);
        self
    }

    /// Sends messages of topics that match a filter before or after others: in
    /// this client's queue on every transport, and among the streams of a QUIC
    /// connection. The first filter that matches decides.
    pub fn priority(mut self, filter: impl Into<Topic>, priority: Priority) -> Self {
        let priority = (filter.into(), priority);
        self.options.streams.priorities.push(priority);
        self
    }

    /// Gives up messages of QoS 0 that have not arrived after this time, with
    /// [`PublishError::Obsolete`](crate::PublishError::Obsolete). They are
    /// dropped from this client's queue on every transport. Where messages
    /// have streams of their own, those on their way are given up, too: their
    /// stream is reset. To learn what has arrived, messages of one topic then
    /// go in trains: what is published while the last train is on its way
    /// waits and forms the next.
    pub fn max_age(mut self, max_age: Duration) -> Self {
        self.options.streams.max_age = Some(max_age);
        self
    }

    /// Keeps bytes of different streams in different packets, so that a lost
    /// packet holds up one topic only. Costs packets.
    pub fn isolate_streams(mut self, isolate: bool) -> Self {
        self.options.streams.isolate = isolate;
        self
    }

    /// When small packets are sent twice, a few milliseconds apart; a server
    /// that knows how is asked to do so, too. A single lost packet then holds
    /// up nothing at all. Costs up to twice the bytes; packets that do not fit
    /// the congestion window together with their copies are sent once.
    /// Default: [`Repeat::Never`] with [`StreamPolicy::Single`], else
    /// [`Repeat::OnLoss`], which costs nothing where nothing is lost.
    pub fn repeat_packets(mut self, repeat: Repeat) -> Self {
        self.options.streams.repeat = Some(repeat);
        self
    }

    /// Sends messages of QoS 0 in datagrams (RFC 9221) where the server takes
    /// them and they fit, and takes datagrams from the server. They may be
    /// lost and come in any order, and are dropped when they are older than
    /// [`Builder::max_age`], or one second.
    pub fn datagrams(mut self, datagrams: bool) -> Self {
        self.options.streams.datagrams = datagrams;
        self
    }

    /// Lets a server that knows how deliver each topic on a stream of its own,
    /// so that a lost packet holds up its topic only. Dunlin does.
    pub fn delivery_streams(mut self, deliveries: bool) -> Self {
        self.options.streams.deliveries = deliveries;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(patterns: &[(&str, u8)]) -> StreamOptions {
        StreamOptions {
            priorities: patterns
                .iter()
                .map(|(pattern, level)| (Topic::from(*pattern), Priority::new(*level)))
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
