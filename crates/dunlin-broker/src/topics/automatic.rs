//! Subscriptions that the broker makes for new sessions.

use alloc::string::String;

use dunlin_base::topic::Filter;
use dunlin_base::{QoS, Text};

use super::template::Template;
use super::{Client, TopicRuleError};

/// New sessions of some clients begin with a subscription.
#[derive(Clone, Debug)]
pub struct Automatic {
    /// Client identifiers: `*` at the end stands for the rest; `None`: all.
    client_id: Option<Text>,
    /// User names, likewise.
    user: Option<Text>,
    filter: Template,
    options: u8,
}

/// What a subscription asks for besides its topics.
const NO_LOCAL: u8 = 0b100;
const RETAIN_AS_PUBLISHED: u8 = 0b1000;
const NO_RETAINED: u8 = 0b10_0000;

impl Automatic {
    /// A subscription of all clients to a filter, in which `%c` is the client identifier
    /// and `%u` the user name, for messages of up to this QoS.
    ///
    /// # Errors
    /// It is no filter.
    pub fn new(filter: &str, qos: QoS) -> Result<Self, TopicRuleError> {
        Filter::parse(filter).map_err(TopicRuleError::Filter)?;
        Ok(Self {
            client_id: None,
            user: None,
            filter: Template::parse(filter, 0).map_err(|_| TopicRuleError::Share)?,
            options: qos as u8,
        })
    }

    /// For clients of these identifiers and users only.
    #[must_use]
    pub fn of(mut self, client_id: Option<Text>, user: Option<Text>) -> Self {
        (self.client_id, self.user) = (client_id, user);
        self
    }

    /// Not for what the client has published itself.
    #[must_use]
    pub const fn no_local(mut self) -> Self {
        self.options |= NO_LOCAL;
        self
    }

    /// Messages keep their RETAIN flag.
    #[must_use]
    pub const fn retain_as_published(mut self) -> Self {
        self.options |= RETAIN_AS_PUBLISHED;
        self
    }

    /// Without the messages that are retained already.
    #[must_use]
    pub const fn without_retained(mut self) -> Self {
        self.options |= NO_RETAINED;
        self
    }

    /// As SUBSCRIBE has it.
    pub(super) const fn options(&self) -> u8 {
        self.options
    }

    /// The filter for a client, if it is meant.
    pub(super) fn filter(&self, client: Client<'_>) -> Option<String> {
        let by_id = self.client_id.as_deref();
        let by_user = self.user.as_deref();
        let is_meant = by_id.is_none_or(|pattern| is_like(pattern, client.id))
            && by_user.is_none_or(|it| client.user.is_some_and(|user| is_like(it, user)));
        if !is_meant {
            return None;
        }
        self.filter.fill(&[], client)
    }
}

/// Whether a name is this one, or begins with what is in front of `*`.
pub(crate) fn is_like(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(begin) => name.starts_with(begin),
        None => name == pattern,
    }
}
