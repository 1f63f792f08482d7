//! What an operator makes of the topics of clients: mount points, rewriting, topics
//! with a delay, subscriptions by rule, certificates of Sparkplug. Values and pure
//! functions over them, which know no packet.

mod automatic;
mod delays;
mod rewrite;
pub(crate) mod sparkplug;
mod template;

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use dunlin_base::Text;
use dunlin_base::topic::{Filter, TopicError, validate_filter, validate_name};

pub use automatic::Automatic;
pub(crate) use automatic::is_like;
pub use delays::Delays;
pub use rewrite::{Rewrite, RewriteOf};

/// Most rules of one kind: each is compared with a topic or a client in turn.
pub const TOPIC_RULES_MAX: usize = 64;

/// Longest mount point, so that there is room for topics below it.
pub const MOUNT_BYTES_MAX: usize = 256;

/// A rule about topics is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopicRuleError {
    /// Its filter breaks a rule of MQTT.
    #[error("it is not a topic filter: {0}")]
    Filter(TopicError),
    /// What it makes could never be a topic.
    #[error("it gives no topic: {0}")]
    Result(TopicError),
    /// It names a wildcard that its filter does not have.
    #[error("`${0}` stands for a wildcard that the filter does not have")]
    Capture(u8),
    /// Its filter has more wildcards than names for them.
    #[error("a filter has at most 9 wildcards here")]
    Captures,
    /// It is for a group of a shared subscription.
    #[error("`$share/` is no part of it")]
    Share,
    /// A mount point is a part of topics.
    #[error(
        "a mount point has 2 to {MOUNT_BYTES_MAX} bytes, no wildcard, no `$` in front and a `/` at its end"
    )]
    Mount,
}

/// A client, as far as rules ask for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client<'a> {
    pub(crate) id: &'a str,
    pub(crate) user: Option<&'a str>,
}

/// Why a topic of a client stands for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// It is no topic, or none when it is mounted.
    Name,
    /// Its delay is longer than any may be.
    Late,
    /// There are no topics with `$` below a mount point.
    Reserved,
}

/// What a topic of a client stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meant {
    /// `None`: itself.
    pub(crate) topic: Option<String>,
    /// Until it is published.
    pub(crate) delay: Option<Duration>,
}

/// What the broker makes of topics of clients.
#[derive(Clone, Debug, Default)]
pub struct Topics {
    /// The mount point of each listener, by its number; empty: none. Left empty where no
    /// listener has one.
    pub mounts: Vec<Text>,
    /// The first that matches counts.
    pub rewrites: Vec<Rewrite>,
    /// Subscriptions of new sessions.
    pub automatic: Vec<Automatic>,
    /// What `$delayed/SECONDS/TOPIC` may ask for.
    pub delays: Delays,
    /// Births of Sparkplug are retained as certificates.
    pub sparkplug: bool,
}

/// Checks a mount point.
///
/// # Errors
/// It is none.
pub fn validate_mount(mount: &str) -> Result<(), TopicRuleError> {
    let fits = (2..=MOUNT_BYTES_MAX).contains(&mount.len());
    let is_part = validate_name(mount).is_ok() && !mount.starts_with('$');
    match fits && is_part && mount.ends_with('/') {
        true => Ok(()),
        false => Err(TopicRuleError::Mount),
    }
}

impl Topics {
    /// Whether a topic of a client may stand for another one.
    pub(crate) const fn alters(&self) -> bool {
        !self.mounts.is_empty() || !self.rewrites.is_empty() || self.delays.messages_max > 0
    }

    /// What is in front of all topics of the clients of a listener.
    pub(crate) fn mount(&self, listener: u16) -> &str {
        let mount = self.mounts.get(usize::from(listener));
        mount.map_or("", |mount| mount.as_str())
    }

    /// What the topic of a PUBLISH stands for.
    pub(crate) fn published(
        &self,
        topic: &str,
        listener: u16,
        client: Client<'_>,
    ) -> Result<Meant, Wrong> {
        let (delay, name) = self.delays.parse(topic)?;
        let rewritten = self.rewritten(RewriteOf::Publish, name, client);
        let (delay, name) = match (&rewritten, delay) {
            // A rule may say that it is delayed.
            (Some(rewritten), None) => self.delays.parse(rewritten)?,
            (Some(rewritten), delay) => (delay, rewritten.as_str()),
            (None, delay) => (delay, name),
        };
        let mounted = self.mounted(name, listener)?;
        let topic = mounted.or_else(|| (name != topic).then(|| String::from(name)));
        Ok(Meant { topic, delay })
    }

    /// What the topic of a will stands for; `None`: itself. It has no other delay than its
    /// own.
    pub(crate) fn willed(
        &self,
        name: &str,
        listener: u16,
        client: Client<'_>,
    ) -> Result<Option<String>, Wrong> {
        let rewritten = self.rewritten(RewriteOf::Publish, name, client);
        let mounted = self.mounted(rewritten.as_deref().unwrap_or(name), listener)?;
        Ok(mounted.or(rewritten))
    }

    /// A topic below the mount point of a listener, if that has one.
    fn mounted(&self, name: &str, listener: u16) -> Result<Option<String>, Wrong> {
        let mount = self.mount(listener);
        if mount.is_empty() {
            return Ok(None);
        }
        if name.starts_with('$') {
            return Err(Wrong::Reserved);
        }
        let topic = [mount, name].concat();
        validate_name(&topic).map_err(|_| Wrong::Name)?;
        Ok(Some(topic))
    }

    /// What a filter of SUBSCRIBE or UNSUBSCRIBE stands for; `None`: itself.
    pub(crate) fn filtered(
        &self,
        text: &str,
        listener: u16,
        client: Client<'_>,
    ) -> Result<Option<String>, Wrong> {
        let filter = Filter::parse(text).map_err(|_| Wrong::Name)?.filter;
        let group = text.strip_suffix(filter).unwrap_or_default();
        let rewritten = self.rewritten(RewriteOf::Subscribe, filter, client);
        let mount = self.mount(listener);
        if mount.is_empty() {
            return Ok(rewritten.map(|filter| [group, &filter].concat()));
        }
        let filter = rewritten.as_deref().unwrap_or(filter);
        if filter.starts_with('$') {
            return Err(Wrong::Reserved);
        }
        let all = [group, mount, filter].concat();
        Filter::parse(&all).map_err(|_| Wrong::Name)?;
        Ok(Some(all))
    }

    /// The filters that a new session of a client begins with, and their options.
    pub(crate) fn automatic(&self, listener: u16, client: Client<'_>) -> Vec<(String, u8)> {
        let mount = self.mount(listener);
        let rules = self.automatic.iter();
        let all = rules.filter_map(|rule| {
            let filter = rule.filter(client)?;
            let parsed = Filter::parse(&filter).ok()?.filter;
            let group = filter.strip_suffix(parsed).unwrap_or_default();
            let below = match mount.is_empty() {
                true => filter,
                false if parsed.starts_with('$') => return None,
                false => [group, mount, parsed].concat(),
            };
            Filter::parse(&below).ok()?;
            Some((below, rule.options()))
        });
        all.collect()
    }

    /// By the first rule that matches and gives a topic. What it gives is final.
    fn rewritten(&self, of: RewriteOf, text: &str, client: Client<'_>) -> Option<String> {
        let validate = match of {
            RewriteOf::Subscribe => validate_filter,
            _ => validate_name,
        };
        let mut rules = self.rewrites.iter().filter(|rule| rule.is_for(of));
        let result = rules.find_map(|rule| rule.apply(text, client))?;
        let is_whole = validate(&result).is_ok() && !result.starts_with("$share/");
        (is_whole && result != text).then_some(result)
    }
}

/// The topic of a message as a client below a mount point sees it; `None`: it does not.
pub(crate) fn below<'t>(mount: &str, topic: &'t str) -> Option<&'t str> {
    let topic = topic.strip_prefix(mount)?;
    (!topic.is_empty() && !topic.starts_with('$')).then_some(topic)
}

#[cfg(test)]
mod tests;
