//! Options of `pub`, `sub` and `bench --library` that say how messages are spread over the
//! streams of a QUIC connection, and what the race of QUIC and TLS remembers.

use core::time::Duration;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use dunlin_base::topic::validate_filter;
use dunlin_client::{Builder, Priority, Race, RaceMemory, Repeat, StreamDialect, StreamPolicy};

/// Where the options are in the help.
const HEADING: &str = "Streams";

/// How messages are spread.
#[derive(Debug, Args)]
pub(super) struct Streams {
    /// How messages are spread over the streams of a QUIC connection.
    #[arg(help_heading = HEADING, long, value_enum, default_value = "single")]
    streams: Policy,
    /// What kind of streams: bidi for Dunlin and EMQX, uni for Dunlin and
    /// brokers of the mqtt5 crate.
    #[arg(help_heading = HEADING, long, value_enum, default_value = "bidi", value_name = "KIND")]
    stream_kind: Kind,
    /// Streams that topics may have at a time.
    #[arg(help_heading = HEADING, long, default_value_t = 32, value_name = "N")]
    topic_streams: u16,
    /// Send topics that match a filter before or after others: 0 is last, 7 is
    /// first, others have 3. The first filter that matches decides.
    #[arg(help_heading = HEADING, long, value_name = "FILTER=0..7", value_parser = priority)]
    priority: Vec<(String, Priority)>,
    /// Give up messages of QoS 0 that have not arrived after this many
    /// milliseconds; they are counted, and are no failure.
    #[arg(help_heading = HEADING, long, value_name = "MS", value_parser = millis)]
    max_age: Option<Duration>,
    /// Carry messages of QoS 0 in datagrams where both sides can: they may be
    /// lost and come in any order.
    #[arg(help_heading = HEADING, long)]
    datagrams: bool,
    /// Keep bytes of different streams in different packets.
    #[arg(help_heading = HEADING, long)]
    isolate: bool,
    /// When to send small packets twice, and have the server do so: one lost
    /// packet then delays nothing, for up to twice the bytes. Without a value:
    /// always. Not given: on loss, but lone if all is on a single stream.
    #[arg(
        help_heading = HEADING, long, value_enum, value_name = "WHEN",
        num_args = 0..=1, require_equals = true, default_missing_value = "always"
    )]
    repeat_packets: Option<When>,
    /// Let the server deliver each topic on a stream of its own.
    #[arg(help_heading = HEADING, long)]
    delivery_streams: bool,
    /// With auto://: remember in this file on which networks QUIC gets
    /// through.
    #[arg(help_heading = HEADING, long, value_name = "FILE")]
    race_memory: Option<PathBuf>,
    /// With auto://: where TLS was taken, try QUIC again after this many
    /// milliseconds; by what is remembered, from 10 seconds to an hour, if not
    /// given. The connection moves only if the server keeps the session (-x).
    #[arg(help_heading = HEADING, long, value_name = "MS", value_parser = millis)]
    race_probe_after: Option<Duration>,
}

/// As [`StreamPolicy`].
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Policy {
    /// All on one stream.
    Single,
    /// One for each topic.
    PerTopic,
    /// One for each message; those of a topic wait for each other.
    PerPublish,
    /// One for each message, in no order.
    PerPublishUnordered,
    /// Per topic if the server says that it takes such streams.
    Auto,
}

/// As [`StreamDialect`].
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// Bidirectional.
    Bidi,
    /// Unidirectional.
    Uni,
}

/// As [`Repeat`].
#[derive(Clone, Copy, Debug, ValueEnum)]
enum When {
    /// Never.
    Never,
    /// Those that are alone on their way, where packets were lost lately.
    Lone,
    /// For ten seconds after a packet was lost, then as lone.
    OnLoss,
    /// Always.
    Always,
}

impl Streams {
    /// Sets the options.
    pub(super) fn apply(&self, mut builder: Builder, is_auto: bool) -> Result<Builder> {
        builder = builder
            .streams(match self.streams {
                Policy::Single => StreamPolicy::Single,
                Policy::PerTopic => StreamPolicy::PerTopic,
                Policy::PerPublish => StreamPolicy::PerPublish,
                Policy::PerPublishUnordered => StreamPolicy::PerPublishUnordered,
                Policy::Auto => StreamPolicy::Auto,
            })
            .stream_dialect(match self.stream_kind {
                Kind::Bidi => StreamDialect::Bidirectional,
                Kind::Uni => StreamDialect::Unidirectional,
            })
            .topic_streams(self.topic_streams)
            .datagrams(self.datagrams)
            .isolate_streams(self.isolate)
            .delivery_streams(self.delivery_streams);
        if let Some(when) = self.repeat_packets {
            builder = builder.repeat_packets(match when {
                When::Never => Repeat::Never,
                When::Lone => Repeat::Lone,
                When::OnLoss => Repeat::OnLoss,
                When::Always => Repeat::Always,
            });
        }
        for (filter, priority) in &self.priority {
            builder = builder.priority(filter.as_str(), *priority);
        }
        if let Some(max_age) = self.max_age {
            builder = builder.max_age(max_age);
        }
        if is_auto {
            builder = builder.race(self.race()?);
        }
        Ok(builder)
    }

    fn race(&self) -> Result<Race> {
        let mut race = Race::new();
        if let Some(path) = &self.race_memory {
            let memory = RaceMemory::file(path)
                .with_context(|| format!("cannot read --race-memory {}", path.display()))?;
            race = race.memory(&memory);
        }
        if let Some(wait) = self.race_probe_after {
            race = race.probe_after(wait);
        }
        Ok(race)
    }
}

fn priority(text: &str) -> Result<(String, Priority), String> {
    // A filter may contain the sign.
    let (filter, level) = text.rsplit_once('=').ok_or("it is FILTER=0..7")?;
    validate_filter(filter).map_err(|error| error.to_string())?;
    match level.parse() {
        Ok(level) if level <= Priority::HIGHEST.level() => {
            Ok((filter.into(), Priority::new(level)))
        }
        _ => Err(format!("{level} is not a priority; it is 0 to 7")),
    }
}

fn millis(text: &str) -> Result<Duration, String> {
    text.parse()
        .map(Duration::from_millis)
        .map_err(|_| "it is a number of milliseconds".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_are_a_filter_and_a_level() {
        let parsed = priority("alarms/#=7");
        assert_eq!(parsed, Ok(("alarms/#".into(), Priority::HIGHEST)));
        assert_eq!(priority("a=b=0"), Ok(("a=b".into(), Priority::LOWEST)));
        for wrong in ["alarms", "a/#/b=1", "a=8", "a=", "a=-1", "=1"] {
            assert!(priority(wrong).is_err(), "{wrong}");
        }
    }
}
