//! Topics that stand for others.

use alloc::string::String;
use alloc::vec;

use dunlin_base::Text;
use dunlin_base::topic::{validate_filter, validate_name};

use super::template::{CAPTURES_MAX, Captures, Template};
use super::{Client, TopicRuleError};

/// What a rule rewrites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RewriteOf {
    /// Topics of messages and of wills.
    Publish,
    /// Filters of subscriptions.
    Subscribe,
    /// Both.
    #[default]
    All,
}

/// A topic or filter of a client that matches is replaced.
#[derive(Clone, Debug)]
pub struct Rewrite {
    of: RewriteOf,
    from: Text,
    to: Template,
}

impl Rewrite {
    /// Replaces what matches the filter `from` by `to`, in which `$1` is what the first
    /// wildcard stands for, `%c` the client identifier and `%u` the user name.
    ///
    /// # Errors
    /// One of them is wrong.
    pub fn new(of: RewriteOf, from: &str, to: &str) -> Result<Self, TopicRuleError> {
        validate_filter(from).map_err(TopicRuleError::Filter)?;
        if from.starts_with("$share/") || to.starts_with("$share/") {
            return Err(TopicRuleError::Share);
        }
        let captures = from.split('/').filter(|level| matches!(*level, "+" | "#"));
        let captures = captures.count();
        if captures > CAPTURES_MAX {
            return Err(TopicRuleError::Captures);
        }
        let to = Template::parse(to, captures)?;
        // As it comes out for some client.
        let client = Client {
            id: "c",
            user: Some("u"),
        };
        let sample = to.fill(&vec![Some("x"); captures], client);
        validate_name(&sample.unwrap_or_default()).map_err(TopicRuleError::Result)?;
        let from = Text::from(from);
        Ok(Self { of, from, to })
    }

    /// Whether it is a rule for that.
    pub(super) fn is_for(&self, of: RewriteOf) -> bool {
        self.of == RewriteOf::All || self.of == of
    }

    /// What a topic or filter becomes; `None`: the rule does not match it.
    pub(super) fn apply(&self, topic: &str, client: Client<'_>) -> Option<String> {
        let captures = captures(&self.from, topic)?;
        self.to.fill(&captures, client)
    }
}

/// What the wildcards of a filter stand for in a topic, or in a filter all of whose
/// topics match it.
fn captures<'t>(filter: &str, topic: &'t str) -> Option<Captures<'t>> {
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return None;
    }
    let mut captures = Captures::new();
    let mut rest = Some(topic);
    for level in filter.split('/') {
        if level == "#" {
            captures.push(rest);
            return Some(captures);
        }
        let (name, after) = match rest?.split_once('/') {
            Some((name, after)) => (name, Some(after)),
            None => (rest?, None),
        };
        match level {
            // More than one level.
            "+" if name == "#" => return None,
            "+" => captures.push(Some(name)),
            level if level != name => return None,
            _ => {}
        }
        rest = after;
    }
    rest.is_none().then_some(captures)
}
