//! Topics that say when their message is published.

use core::time::Duration;

use super::Wrong;

/// In front of the seconds and the topic.
const PREFIX: &str = "$delayed/";

/// What `$delayed/SECONDS/TOPIC` may ask for, on one shard.
#[derive(Clone, Copy, Debug)]
pub struct Delays {
    /// Most messages that wait; 0: such a topic is like any other.
    pub messages_max: usize,
    /// Most bytes of them, in memory or not.
    pub bytes_max: usize,
    /// Most messages of one client.
    pub client_messages_max: usize,
    /// Most bytes of these.
    pub client_bytes_max: usize,
    /// Longest delay.
    pub delay_max: Duration,
}

impl Default for Delays {
    fn default() -> Self {
        Self {
            messages_max: 0,
            bytes_max: 64 * 1024 * 1024,
            client_messages_max: usize::MAX,
            client_bytes_max: usize::MAX,
            delay_max: Duration::from_secs(30 * 24 * 3600),
        }
    }
}

impl Delays {
    /// The delay of a topic, if it has one, and the topic that its message is for.
    pub(super) fn parse<'t>(&self, topic: &'t str) -> Result<(Option<Duration>, &'t str), Wrong> {
        let rest = topic.strip_prefix(PREFIX).filter(|_| self.messages_max > 0);
        let Some(rest) = rest else {
            return Ok((None, topic));
        };
        let (secs, name) = rest.split_once('/').ok_or(Wrong::Name)?;
        let is_number = !secs.is_empty() && secs.bytes().all(|b| b.is_ascii_digit());
        if !is_number || name.is_empty() || name.starts_with(PREFIX) {
            return Err(Wrong::Name);
        }
        let secs: u64 = secs.parse().map_err(|_| Wrong::Late)?;
        if secs > self.delay_max.as_secs() {
            return Err(Wrong::Late);
        }
        let delay = (secs > 0).then(|| Duration::from_secs(secs));
        Ok((delay, name))
    }
}
